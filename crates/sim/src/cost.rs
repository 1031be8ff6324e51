//! Operations in RAM and their costs.
//!
//! A table of costs is a TOML file in `costs` and a line in [`COSTS`].

use crate::device::embedded;
use crate::fields::{find, Absent, Embedded, Key, Problem, TableError, Values};
use memfit_codec::{CODECS, CODEC_IDS};

/// Every built-in table of costs; the first is the default.
pub static COSTS: &[Embedded] = embedded!("costs", "measured" "han18" "cervera99");

/// Name of the costs that hold for every codec without costs of its own.
const ANY: &str = "any";

/// Costs of a codec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CodecCosts {
    /// Time to compress a page of 4 KiB, ns.
    pub compress_ns: u64,
    /// Time to decompress it, ns.
    pub decompress_ns: u64,
}

/// Costs of operations in RAM, ns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostTable {
    /// Name on the command line.
    pub name: String,
    /// Description in one line.
    pub summary: String,
    /// Origin of the numbers.
    pub source: String,
    /// A fault without its work: entry, hand-off to the pager and return.
    pub fault_ns: u64,
    /// Copy of the faulting page into place.
    pub copy_ns: u64,
    /// Copy of a page beside the faulting page.
    pub around_ns: u64,
    /// Fill of a page with zeros.
    pub zero_ns: u64,
    /// Fill of a page with one repeated word.
    pub fill_ns: u64,
    /// Move of a page out of a program, in a batch.
    pub move_ns: u64,
    /// Copy of that page to staging.
    pub stage_ns: u64,
    /// Release of that page's memory, in a batch.
    pub drop_ns: u64,
    /// Estimate of a page's entropy.
    pub entropy_ns: u64,
    /// Costs of each codec, by its number.
    codecs: [CodecCosts; CODEC_IDS],
}

/// One second.
const LONGEST_NS: u64 = 1_000_000_000;

const OPERATIONS: [(&str, &str); 9] = [
    ("fault_ns", "a fault without its work, ns"),
    ("copy_ns", "a page copied into place for a fault, ns"),
    ("around_ns", "a page that comes along with one, ns"),
    ("zero_ns", "a page of zeros put into place, ns"),
    ("fill_ns", "a page of one repeated word made and put into place, ns"),
    ("move_ns", "a page taken out of a program, ns"),
    ("stage_ns", "a page copied to staging, ns"),
    ("drop_ns", "a page's memory given back, ns"),
    ("entropy_ns", "an estimate of a page's entropy, ns"),
];

fn keys() -> Vec<Key> {
    let operation = |(name, help): (&str, _)| Key::new(name, 0, LONGEST_NS, Absent::Wrong, help);
    let mut keys: Vec<Key> = OPERATIONS.into_iter().map(operation).collect();
    for name in [ANY].into_iter().chain(CODECS.iter().map(|codec| codec.name)) {
        let [compress, decompress] = codec_keys(name);
        keys.push(Key::new(&compress, 0, LONGEST_NS, Absent::Empty, "to compress a page of 4 KiB, ns"));
        keys.push(Key::new(&decompress, 0, LONGEST_NS, Absent::Empty, "to decompress it, ns"));
    }
    keys
}

fn codec_keys(name: &str) -> [String; 2] {
    ["compress_ns", "decompress_ns"].map(|key| format!("codec.{name}.{key}"))
}

fn codec_costs(values: &Values, name: &str) -> Result<Option<CodecCosts>, TableError> {
    let [compress, decompress] = codec_keys(name);
    match (values.optional(&compress), values.optional(&decompress)) {
        (Some(compress_ns), Some(decompress_ns)) => Ok(Some(CodecCosts { compress_ns, decompress_ns })),
        (None, None) => Ok(None),
        _ => {
            let why = format!("`codec.{name}` needs both `compress_ns` and `decompress_ns`");
            Err(TableError::of_all(Problem::Impossible { why }))
        }
    }
}

impl CostTable {
    /// Reads a table of costs from TOML. A table without codecs has the measured ones.
    ///
    /// # Errors
    /// What is wrong, where, and what is allowed.
    pub fn parse(text: &str) -> Result<CostTable, TableError> {
        let values = Values::read(text, &keys())?;
        let any = codec_costs(&values, ANY)?;
        let own = CODECS.iter().map(|codec| codec_costs(&values, codec.name)).collect::<Result<Vec<_>, _>>()?;
        let measured = any.is_none() && own.iter().all(Option::is_none);
        let mut codecs = [CodecCosts::default(); CODEC_IDS];
        for (codec, own) in CODECS.iter().zip(own) {
            let default = CodecCosts { compress_ns: codec.compress_ns, decompress_ns: codec.decompress_ns };
            let costs = own.or(any).or(measured.then_some(default)).ok_or_else(|| {
                let name = codec.name;
                let why =
                    format!("no times for the codec `{name}`: give `codec.{name}`, or `codec.{ANY}` for all others");
                TableError::of_all(Problem::Impossible { why })
            })?;
            codec.ids().for_each(|id| codecs[usize::from(id)] = costs);
        }
        Ok(CostTable {
            name: values.text("name"),
            summary: values.text("summary"),
            source: values.text("source"),
            fault_ns: values.number("fault_ns"),
            copy_ns: values.number("copy_ns"),
            around_ns: values.number("around_ns"),
            zero_ns: values.number("zero_ns"),
            fill_ns: values.number("fill_ns"),
            move_ns: values.number("move_ns"),
            stage_ns: values.number("stage_ns"),
            drop_ns: values.number("drop_ns"),
            entropy_ns: values.number("entropy_ns"),
            codecs,
        })
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
