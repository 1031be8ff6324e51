//! What is done in RAM, and what it costs.
//!
//! A table of costs is a TOML file in `costs` and a line in [`COSTS`].

use crate::device::embedded;
use crate::fields::{find, Absent, Embedded, Key, Problem, TableError, Values};

/// Every table of costs that is built in; the first is the default.
pub static COSTS: &[Embedded] = embedded!("costs", "measured" "han18" "cervera99");

/// Names of the codecs by the numbers that stand beside compressed pages, which never change; 0 is
/// a page as it is. Those with a dictionary have a number for each of three.
const CODECS: [&str; 18] = [
    "",
    "lz4",
    "zstd",
    "word-mask",
    "zstd-fast",
    "zstd-trained",
    "zstd-trained",
    "zstd-trained",
    "lz4hc",
    "lzo",
    "deflate",
    "wkdm",
    "wk4x4",
    "lzrw1",
    "zstd-strong",
    "zstd-strong-trained",
    "zstd-strong-trained",
    "zstd-strong-trained",
];

/// Name of those costs that count for every codec without its own.
const ANY: &str = "any";

/// What a codec costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CodecCosts {
    /// To compress a page of 4 KiB, ns.
    pub compress_ns: u64,
    /// To decompress it, ns.
    pub decompress_ns: u64,
}

/// What operations in RAM cost, ns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostTable {
    /// Its name.
    pub name: String,
    /// What it is.
    pub summary: String,
    /// Where its numbers come from.
    pub source: String,
    /// A fault without its work: entry, hand-off to the pager, and back.
    pub fault_ns: u64,
    /// A page that is copied into place for a fault.
    pub copy_ns: u64,
    /// A page that comes along with one.
    pub around_ns: u64,
    /// A page of zeros put into place.
    pub zero_ns: u64,
    /// A page of one repeated word made and put into place.
    pub fill_ns: u64,
    /// A page taken out of a program, in a batch.
    pub move_ns: u64,
    /// The same page copied to staging.
    pub stage_ns: u64,
    /// The same page's memory given back, in a batch.
    pub drop_ns: u64,
    /// An estimate of a page's entropy.
    pub entropy_ns: u64,
    /// Of each codec, by its number.
    codecs: [CodecCosts; CODECS.len()],
}

/// A second.
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
    for (number, name) in CODECS.into_iter().enumerate() {
        let name = if number == 0 { ANY } else { name };
        let [compress, decompress] = codec_keys(name);
        if keys.iter().all(|key| key.name != compress) {
            keys.push(Key::new(&compress, 0, LONGEST_NS, Absent::Empty, "to compress a page of 4 KiB, ns"));
            keys.push(Key::new(&decompress, 0, LONGEST_NS, Absent::Empty, "to decompress it, ns"));
        }
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
    /// Reads a table of costs.
    ///
    /// # Errors
    /// What is wrong, where, and what is allowed.
    pub fn parse(text: &str) -> Result<CostTable, TableError> {
        let values = Values::read(text, &keys())?;
        let any = codec_costs(&values, ANY)?;
        let mut codecs = [CodecCosts::default(); CODECS.len()];
        for (name, costs) in CODECS.iter().zip(&mut codecs).skip(1) {
            *costs = codec_costs(&values, name)?.or(any).ok_or_else(|| {
                let why =
                    format!("no times for the codec `{name}`: give `codec.{name}`, or `codec.{ANY}` for all others");
                TableError::of_all(Problem::Impossible { why })
            })?;
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

    /// The table of this name, or the one in the file at this path: what has a `/` or ends in
    /// `.toml` is a path.
    ///
    /// # Errors
    /// If there is none, with the names of those that there are; if the file cannot be read; and
    /// what [`CostTable::parse`] says.
    pub fn find(name_or_path: &str) -> Result<CostTable, TableError> {
        find("table of costs", name_or_path, COSTS, CostTable::parse)
    }

    /// Costs of a codec by its number; nothing for 0, which is a page as it is. A number that no
    /// codec has, which a damaged recording can hold, costs nothing either.
    pub fn codec(&self, number: u8) -> CodecCosts {
        self.codecs.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// Its codecs by name, in the order of their numbers.
    pub fn codecs(&self) -> impl Iterator<Item = (&'static str, CodecCosts)> + '_ {
        let first = |number: &usize| CODECS[*number] != CODECS[number - 1];
        (1..CODECS.len()).filter(first).map(|number| (CODECS[number], self.codecs[number]))
    }

    /// All costs, so many times.
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

    /// What it costs to take a page out of a program, ns.
    pub fn evict_ns(&self) -> u64 {
        self.move_ns + self.stage_ns + self.drop_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_core::scheme::CodecKind;

    #[test]
    fn codecs_are_those_that_a_scheme_can_ask_for() {
        let mut here: Vec<_> = CODECS.into_iter().skip(1).collect();
        here.sort_unstable();
        here.dedup();
        let mut there: Vec<_> = CodecKind::ALL.iter().map(|kind| kind.name()).filter(|name| *name != "auto").collect();
        there.sort_unstable();
        assert_eq!(here, there);
    }

    #[test]
    fn a_codec_with_several_numbers_is_listed_once() {
        let table = CostTable::find("measured").unwrap();
        let names: Vec<_> = table.codecs().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 13);
        assert_eq!(table.codec(5), table.codec(7));
        assert_ne!(table.codec(5), table.codec(15));
        assert_eq!(table.codec(0), CodecCosts::default());
        assert_eq!(table.codec(255), CodecCosts::default());
    }
}
