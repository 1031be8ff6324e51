//! Tables of numbers in TOML files, such as devices and costs. Keys that are unknown or missing and
//! values of a wrong type or out of range are errors that say where and what is allowed.

use serde::de::{DeserializeOwned, Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// A built-in table.
pub struct Embedded {
    /// Its name, the same as in the text.
    pub name: &'static str,
    /// Its TOML.
    pub text: &'static str,
}

/// What is wrong with a table or with a table's name, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableError(pub(crate) String);

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TableError {}

/// A number that is in this range.
#[derive(Clone, Copy)]
pub(crate) struct Whole<const MIN: u64, const MAX: u64>(pub u64);

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Whole<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(Whole(0))
    }
}

impl<const MIN: u64, const MAX: u64> Visitor<'_> for Whole<MIN, MAX> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {MIN} to {MAX}")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self, E> {
        self.visit_i128(number.into())
    }

    fn visit_i128<E: Error>(self, number: i128) -> Result<Self, E> {
        let in_range = u64::try_from(number).ok().filter(|number| (MIN..=MAX).contains(number));
        in_range.map(Whole).ok_or_else(|| E::invalid_value(Unexpected::Other(&format!("integer `{number}`")), &self))
    }
}

/// A text that is not empty.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.trim().is_empty() {
        return Err(D::Error::invalid_value(Unexpected::Str(&text), &"a text that is not empty"));
    }
    Ok(text)
}

/// Reads a table.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, TableError> {
    toml::from_str(text).map_err(|error| {
        let message = error.message();
        // A key that is missing at the top has no line.
        let Some(span) = error.span().filter(|span| span.start > 0 || !message.starts_with("missing")) else {
            return TableError(message.to_owned());
        };
        let number = text.as_bytes()[..span.start].iter().filter(|byte| **byte == b'\n').count();
        let line = text.lines().nth(number).unwrap_or_default().trim();
        TableError(format!("line {}, `{line}`: {message}", number + 1))
    })
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
    if !name_or_path.contains('/') && !name_or_path.ends_with(".toml") {
        let names = embedded.iter().map(|table| table.name).collect::<Vec<_>>().join(", ");
        let path = "the path of a file ends in .toml";
        return Err(TableError(format!("there is no {kind} `{name_or_path}`; there are {names}; {path}")));
    }
    let text = std::fs::read_to_string(name_or_path).map_err(|error| TableError(error.to_string()));
    text.and_then(|text| parse(&text)).map_err(|error| TableError(format!("{name_or_path}: {error}")))
}
