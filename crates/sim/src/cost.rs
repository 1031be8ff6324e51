//! Operations in RAM and their costs.
//!
//! A table of costs is a TOML file in `costs` and a line in [`COSTS`].

use crate::device::embedded;
use crate::table_file::{find, read, text, Embedded, TableError, Whole};
use memfit_codec::{CODECS, CODEC_IDS};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// Every built-in table of costs; the first is the default.
pub static COSTS: &[Embedded] = embedded!("costs", "measured" "han18" "cervera99");

/// Name of the costs that hold for every codec without costs of its own.
const ANY: &str = "any";

/// Costs of a codec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct CodecCosts {
    /// Time to compress a page of 4 KiB, ns.
    #[serde(deserialize_with = "ns")]
    pub compress_ns: u64,
    /// Time to decompress it, ns.
    #[serde(deserialize_with = "ns")]
    pub decompress_ns: u64,
}

/// Costs of operations in RAM, ns.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostTable {
    /// Name on the command line.
    #[serde(deserialize_with = "text")]
    pub name: String,
    /// Description in one line.
    #[serde(deserialize_with = "text")]
    pub summary: String,
    /// Origin of the numbers.
    #[serde(deserialize_with = "text")]
    pub source: String,
    /// A fault without its work: entry, hand-off to the pager and return.
    #[serde(deserialize_with = "ns")]
    pub fault_ns: u64,
    /// Copy of the faulting page into place.
    #[serde(deserialize_with = "ns")]
    pub copy_ns: u64,
    /// Copy of a page beside the faulting page.
    #[serde(deserialize_with = "ns")]
    pub around_ns: u64,
    /// Fill of a page with zeros.
    #[serde(deserialize_with = "ns")]
    pub zero_ns: u64,
    /// Fill of a page with one repeated word.
    #[serde(deserialize_with = "ns")]
    pub fill_ns: u64,
    /// Move of a page out of a program, in a batch.
    #[serde(deserialize_with = "ns")]
    pub move_ns: u64,
    /// Copy of that page to staging.
    #[serde(deserialize_with = "ns")]
    pub stage_ns: u64,
    /// Release of that page's memory, in a batch.
    #[serde(deserialize_with = "ns")]
    pub drop_ns: u64,
    /// Estimate of a page's entropy.
    #[serde(deserialize_with = "ns")]
    pub entropy_ns: u64,
    /// Costs of each codec, by its number.
    #[serde(rename = "codec", default = "measured", deserialize_with = "codecs")]
    codecs: [CodecCosts; CODEC_IDS],
}

/// One second.
const LONGEST_NS: u64 = 1_000_000_000;

fn ns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Ok(Whole::<0, LONGEST_NS>::deserialize(deserializer)?.0)
}

/// Reads costs by the name of a codec, or by [`ANY`]. Without any they are the measured ones.
fn codecs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[CodecCosts; CODEC_IDS], D::Error> {
    let given = BTreeMap::<String, CodecCosts>::deserialize(deserializer)?;
    let names: Vec<&str> = [ANY].into_iter().chain(CODECS.iter().map(|codec| codec.name)).collect();
    if let Some(name) = given.keys().find(|name| !names.contains(&name.as_str())) {
        return Err(D::Error::custom(format!("unknown codec `{name}`; allowed: {}", names.join(", "))));
    }
    if given.is_empty() {
        return Ok(measured());
    }
    let mut codecs = [CodecCosts::default(); CODEC_IDS];
    for codec in CODECS {
        let name = codec.name;
        let costs = *given.get(name).or(given.get(ANY)).ok_or_else(|| {
            let advice = format!("give `codec.{name}`, or `codec.{ANY}` for all others");
            D::Error::custom(format!("no times for the codec `{name}`: {advice}"))
        })?;
        codec.ids().for_each(|id| codecs[usize::from(id)] = costs);
    }
    Ok(codecs)
}

/// The measured costs of all codecs.
fn measured() -> [CodecCosts; CODEC_IDS] {
    let mut codecs = [CodecCosts::default(); CODEC_IDS];
    for codec in CODECS {
        let costs = CodecCosts { compress_ns: codec.compress_ns, decompress_ns: codec.decompress_ns };
        codec.ids().for_each(|id| codecs[usize::from(id)] = costs);
    }
    codecs
}

impl CostTable {
    /// Reads a table of costs from TOML. A table without codecs has the measured ones.
    ///
    /// # Errors
    /// What is wrong, where, and what is allowed.
    pub fn parse(text: &str) -> Result<CostTable, TableError> {
        read(text)
    }

    /// The table of this name, or of the file at this path. A path contains a `/` or ends in
    /// `.toml`.
    ///
    /// # Errors
    /// If no table has the name, with the names that exist; if the file cannot be read; and the
    /// errors of [`CostTable::parse`].
    pub fn find(name_or_path: &str) -> Result<CostTable, TableError> {
        find("table of costs", name_or_path, COSTS, CostTable::parse)
    }

    /// Costs of a codec by its number. They are zero for 0, an uncompressed page, and for a number
    /// that no codec has, which a damaged recording can hold.
    pub fn codec(&self, number: u8) -> CodecCosts {
        self.codecs.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// The codecs by name.
    pub fn codecs(&self) -> impl Iterator<Item = (&'static str, CodecCosts)> + '_ {
        CODECS.iter().map(|codec| (codec.name, self.codec(codec.id.0)))
    }

    /// All costs times `factor`.
    #[must_use]
    pub fn times(&self, factor: f64) -> CostTable {
        let more = |ns: u64| (ns as f64 * factor) as u64;
        CostTable {
            fault_ns: more(self.fault_ns),
            copy_ns: more(self.copy_ns),
            around_ns: more(self.around_ns),
            zero_ns: more(self.zero_ns),
            fill_ns: more(self.fill_ns),
            move_ns: more(self.move_ns),
            stage_ns: more(self.stage_ns),
            drop_ns: more(self.drop_ns),
            entropy_ns: more(self.entropy_ns),
            codecs: self.codecs.map(|costs| CodecCosts {
                compress_ns: more(costs.compress_ns),
                decompress_ns: more(costs.decompress_ns),
            }),
            ..self.clone()
        }
    }

    /// Cost of the eviction of a page, ns.
    pub fn evict_ns(&self) -> u64 {
        self.move_ns + self.stage_ns + self.drop_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_codec_with_several_numbers_is_listed_once() {
        let table = CostTable::find("measured").unwrap();
        let names: Vec<_> = table.codecs().map(|(name, _)| name).collect();
        assert_eq!(names.len(), CODECS.len());
        assert_eq!(table.codec(5), table.codec(7));
        assert_ne!(table.codec(5), table.codec(15));
        assert_eq!(table.codec(0), CodecCosts::default());
        assert_eq!(table.codec(255), CodecCosts::default());
    }
}
