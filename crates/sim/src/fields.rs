//! Tables of numbers in TOML, such as devices and costs. Keys that are unknown or missing and
//! values of a wrong type or out of range are errors that say where and what is allowed.

use std::collections::BTreeMap;
use std::fmt;
use toml::de::{DeTable, DeValue};

/// A built-in table.
pub struct Embedded {
    /// Its name, the same as in the text.
    pub name: &'static str,
    /// Its TOML.
    pub text: &'static str,
}

/// An error in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Problem {
    /// The file cannot be read.
    Unreadable { message: String },
    /// Not TOML.
    Syntax { message: String },
    /// No such key; `allowed` are the keys possible there.
    UnknownKey { key: String, allowed: Vec<String> },
    /// A key without default is missing; `help` describes it.
    MissingKey { key: String, help: String },
    /// A value of another type.
    WrongType { key: String, expected: String, found: String },
    /// A number below its minimum or above its maximum; `value` as written.
    OutOfRange { key: String, value: String, allowed: String },
    /// Values that do not go together; `why` says which and why.
    Impossible { why: String },
    /// No built-in table has this name, and it is not a path.
    UnknownName { kind: &'static str, name: String, allowed: Vec<&'static str> },
}

/// An error in a table or in a table's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableError {
    /// The file, if the table came from one.
    pub file: Option<String>,
    /// The line, from 1 on, if the error is about one.
    pub line: Option<usize>,
    /// The error.
    pub problem: Problem,
}

impl TableError {
    /// An error about no particular line.
    pub(crate) fn of_all(problem: Problem) -> Self {
        TableError { file: None, line: None, problem }
    }

    fn at(text: &str, byte: usize, problem: Problem) -> Self {
        let line = 1 + text.as_bytes()[..byte.min(text.len())].iter().filter(|b| **b == b'\n').count();
        TableError { file: None, line: Some(line), problem }
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}: ")?;
        }
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        match &self.problem {
            Problem::Unreadable { message } | Problem::Syntax { message } => write!(f, "{message}"),
            Problem::UnknownKey { key, allowed } => write!(f, "unknown key `{key}`; allowed: {}", allowed.join(", ")),
            Problem::MissingKey { key, help } => write!(f, "the key `{key}` is missing: {help}"),
            Problem::WrongType { key, expected, found } => write!(f, "`{key}` must be {expected}, not {found}"),
            Problem::OutOfRange { key, value, allowed } => {
                write!(f, "`{key}` = {value} is out of range; allowed: {allowed}")
            }
            Problem::Impossible { why } => write!(f, "{why}"),
            Problem::UnknownName { kind, name, allowed } => write!(
                f,
                "there is no {kind} `{name}`; there are {}; the path of a file ends in .toml",
                allowed.join(", ")
            ),
        }
    }
}

impl std::error::Error for TableError {}

/// What happens if a key is missing.
#[derive(Clone, Copy)]
pub(crate) enum Absent {
    /// It is an error.
    Wrong,
    /// The key has this default.
    Means(u64),
    /// The key has no value.
    Empty,
}

/// A number in a table.
pub(crate) struct Key {
    /// Dotted name.
    pub name: String,
    /// Description with the unit.
    pub help: &'static str,
    pub min: u64,
    pub max: u64,
    pub absent: Absent,
}

impl Key {
    pub(crate) fn new(name: &str, min: u64, max: u64, absent: Absent, help: &'static str) -> Key {
        Key { name: name.to_owned(), help, min, max, absent }
    }

    fn range(&self) -> String {
        format!("{} to {}, {}", self.min, self.max, self.help)
    }
}

/// The texts that every table must have, with their descriptions.
const TEXTS: [(&str, &str); 3] = [
    ("name", "what it is called on the command line"),
    ("summary", "what it is, in a line"),
    ("source", "where the numbers come from; \"assumed, because ...\" is an answer"),
];

/// The values of a table, checked.
pub(crate) struct Values {
    texts: BTreeMap<String, String>,
    numbers: BTreeMap<String, u64>,
}

impl Values {
    /// Reads a table with these keys.
    pub(crate) fn read(text: &str, keys: &[Key]) -> Result<Values, TableError> {
        let document = DeTable::parse(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            TableError::at(text, start, Problem::Syntax { message: error.message().to_owned() })
        })?;
        let mut values = Values { texts: BTreeMap::new(), numbers: BTreeMap::new() };
        values.table(text, "", document.get_ref(), keys)?;
        for (name, help) in TEXTS {
            if !values.texts.contains_key(name) {
                let (key, help) = (name.to_owned(), help.to_owned());
                return Err(TableError::of_all(Problem::MissingKey { key, help }));
            }
        }
        for key in keys {
            match (values.numbers.contains_key(&key.name), key.absent) {
                (true, _) | (_, Absent::Empty) => {}
                (false, Absent::Means(number)) => _ = values.numbers.insert(key.name.clone(), number),
                (false, Absent::Wrong) => {
                    let (key, help) = (key.name.clone(), key.range());
                    return Err(TableError::of_all(Problem::MissingKey { key, help }));
                }
            }
        }
        Ok(values)
    }

    /// A text; always present.
    pub(crate) fn text(&self, name: &str) -> String {
        self.texts[name].clone()
    }

    /// A number that is required or has a default.
    pub(crate) fn number(&self, key: &str) -> u64 {
        self.numbers[key]
    }

    /// A number that may be missing.
    pub(crate) fn optional(&self, key: &str) -> Option<u64> {
        self.numbers.get(key).copied()
    }

    fn table(&mut self, text: &str, prefix: &str, table: &DeTable<'_>, keys: &[Key]) -> Result<(), TableError> {
        let mut entries: Vec<_> = table.iter().collect();
        // The table is sorted by name; the first error in the file is the one to report.
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let (name, start) = (format!("{prefix}{}", key.get_ref()), key.span().start);
            let inner = format!("{name}.");
            let is_section = keys.iter().any(|key| key.name.starts_with(&inner));
            match value.get_ref() {
                DeValue::Table(table) if is_section => self.table(text, &inner, table, keys)?,
                value => self.assign(&name, value, is_section, keys).map_err(|p| TableError::at(text, start, p))?,
            }
        }
        Ok(())
    }

    fn assign(&mut self, name: &str, value: &DeValue<'_>, is_section: bool, keys: &[Key]) -> Result<(), Problem> {
        let wrong = |expected: String| {
            let found = match value {
                DeValue::Integer(_) => "a whole number".to_owned(),
                DeValue::String(text) if text.trim().is_empty() => "an empty one".to_owned(),
                DeValue::String(_) => "a string".to_owned(),
                other => format!("a value of type {}", other.type_str()),
            };
            Problem::WrongType { key: name.to_owned(), expected, found }
        };
        if let Some(key) = keys.iter().find(|key| key.name == name) {
            let range = key.range();
            let DeValue::Integer(number) = value else {
                return Err(wrong(format!("a whole number ({range})")));
            };
            let value = i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX);
            let in_range = u64::try_from(value).ok().filter(|value| (key.min..=key.max).contains(value));
            let number = in_range.ok_or_else(|| {
                let (key, value) = (name.to_owned(), number.as_str().to_owned());
                Problem::OutOfRange { key, value, allowed: range }
            })?;
            self.numbers.insert(name.to_owned(), number);
        } else if let Some((_, help)) = TEXTS.iter().find(|(text, _)| *text == name) {
            match value {
                DeValue::String(text) if !text.trim().is_empty() => {
                    self.texts.insert(name.to_owned(), text.to_string());
                }
                _ => return Err(wrong(format!("a string ({help})"))),
            }
        } else if is_section {
            return Err(wrong("a table".to_owned()));
        } else {
            return Err(Problem::UnknownKey { key: name.to_owned(), allowed: siblings(name, keys) });
        }
        Ok(())
    }
}

/// Keys and sections allowed in the place of `name`, in the order of their description.
fn siblings(name: &str, keys: &[Key]) -> Vec<String> {
    let prefix = name.rfind('.').map_or("", |dot| &name[..=dot]);
    let texts = TEXTS.iter().map(|(text, _)| *text).filter(|_| prefix.is_empty());
    let mut allowed: Vec<String> = texts.map(str::to_owned).collect();
    for rest in keys.iter().filter_map(|key| key.name.strip_prefix(prefix)) {
        let next = rest.split('.').next().unwrap_or(rest);
        let next = format!("{prefix}{next}");
        if !allowed.contains(&next) {
            allowed.push(next);
        }
    }
    allowed
}

/// The built-in table of this name, or the one in the file at this path. A path contains a `/` or
/// ends in `.toml`.
pub(crate) fn find<T>(
    kind: &'static str,
    name_or_path: &str,
    embedded: &'static [Embedded],
    parse: fn(&str) -> Result<T, TableError>,
) -> Result<T, TableError> {
    if let Some(found) = embedded.iter().find(|table| table.name == name_or_path) {
        return parse(found.text);
    }
    let in_file = |error| TableError { file: Some(name_or_path.to_owned()), ..error };
    if !name_or_path.contains('/') && !name_or_path.ends_with(".toml") {
        let allowed = embedded.iter().map(|table| table.name).collect();
        let name = name_or_path.to_owned();
        return Err(TableError::of_all(Problem::UnknownName { kind, name, allowed }));
    }
    let text = std::fs::read_to_string(name_or_path)
        .map_err(|error| in_file(TableError::of_all(Problem::Unreadable { message: error.to_string() })))?;
    parse(&text).map_err(in_file)
}
