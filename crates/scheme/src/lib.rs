//! Schemes as TOML.
//!
//! A scheme is read from TOML and `--set key=value` overrides, and checked strictly. An unknown
//! key, a wrong type, a number out of range or an impossible combination is an error, which names
//! its place and the allowed values. A missing key has its default, the value in the preset
//! `memfit`.
//!
//! Reading and writing walk [`axes`] and the table [`NUMBERS`]. A new preset is a file and a line
//! in [`PRESETS`].
#![forbid(unsafe_code)]

mod rules;
mod write;

use memfit_codec::CODECS;
use memfit_core::scheme::{Axis, Choice, Number, Scheme, AXES, NUMBERS};
use rules::RULES;
use std::fmt;
use toml::de::{DeTable, DeValue};
use toml::Spanned;

pub use write::to_toml;

/// A built-in scheme.
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// Its TOML.
    pub text: &'static str,
}

macro_rules! presets {
    ($($name:literal)+) => {
        &[$(Preset { name: $name, text: include_str!(concat!("../../../schemes/", $name, ".toml")) }),+]
    };
}

/// All presets; the first is the default.
pub static PRESETS: &[Preset] = presets!(
    "memfit"
    "swap"
    "zram"
    "zswap-zbud"
    "zswap-z3fold"
    "zswap-zsmalloc"
    "cervera99"
    "tuduce05"
    "hybrid18"
    "zsmalloc-sr"
    "apa"
    "apa+sa"
    "apa+ca"
    "ca+sa"
    "ezswap"
);

/// The axis of codecs. The core, which calls none, knows only their numbers.
static CODEC: Axis = Axis {
    name: "codec",
    help: "What compresses",
    choice: |index| match index {
        0 => Some(Choice {
            name: "auto",
            help: "word-mask, lz4 or a zstd, chosen for each region by what it gained lately and how scarce memory is",
        }),
        _ => CODECS.get(index - 1).map(|entry| Choice { name: entry.name, help: entry.help }),
    },
    get: |scheme| {
        let number = |kind| CODECS.iter().position(|entry| entry.id.0 == kind).expect("codecs come from the table");
        scheme.codec.kind.map_or(0, |kind| 1 + number(kind))
    },
    set: |scheme, index| scheme.codec.kind = index.checked_sub(1).map(|index| CODECS[index].id.0),
};

/// Every axis, in the order of listings.
pub fn axes() -> impl Iterator<Item = &'static Axis> {
    AXES.iter().chain([&CODEC])
}

/// Names of choices of earlier versions: axis, old name, new name.
const RENAMED: [(&str, &str, &str); 3] =
    [("admission", "nothing", "none"), ("reclaim", "second-chance", "fifo"), ("replacement", "oldest", "fifo")];

/// An error in a scheme; its text names the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemeError(String);

impl fmt::Display for SchemeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SchemeError {}

/// Reads a scheme from TOML, then applies overrides `KEY=VALUE` in order. Combinations are checked
/// at the end, so that an impossible combination may occur between two overrides.
///
/// # Errors
/// What is wrong, where, and what is allowed.
pub fn parse(text: &str, overrides: &[String]) -> Result<Scheme, SchemeError> {
    parse_noting(text, overrides, &mut Vec::new())
}

/// As [`parse`]; adds a note for each name of a choice that has another name now.
///
/// # Errors
/// Those of [`parse`].
pub fn parse_noting(text: &str, overrides: &[String], notes: &mut Vec<String>) -> Result<Scheme, SchemeError> {
    let scheme = Scheme { name: "unnamed".into(), summary: String::new(), ..Scheme::default() };
    let mut reader = Reader { text, scheme, given: Vec::new(), notes };
    let table = DeTable::parse(text).map_err(|error| {
        let place = reader.line(error.span().map_or(0, |span| span.start));
        SchemeError(format!("{place}: {}", error.message()))
    })?;
    reader.table("", table.get_ref())?;
    for text in overrides {
        reader.set_override(text)?;
    }
    reader.finish()
}

/// The preset of that name with overrides; `None` if there is no such preset.
pub fn preset(name: &str, overrides: &[String]) -> Option<Result<Scheme, SchemeError>> {
    let preset = PRESETS.iter().find(|preset| preset.name == name)?;
    Some(parse(preset.text, overrides))
}

/// A scheme under construction.
struct Reader<'a> {
    text: &'a str,
    scheme: Scheme,
    /// The keys in the order in which they were set, and where.
    given: Vec<(String, String)>,
    notes: &'a mut Vec<String>,
}

impl Reader<'_> {
    /// The line of a byte, for messages.
    fn line(&self, byte: usize) -> String {
        let before = &self.text.as_bytes()[..byte.min(self.text.len())];
        format!("line {}", 1 + before.iter().filter(|byte| **byte == b'\n').count())
    }

    fn table(&mut self, prefix: &str, table: &DeTable<'_>) -> Result<(), SchemeError> {
        let mut entries: Vec<_> = table.iter().collect();
        // The TOML parser sorts a table by name; the first error in the file must be reported.
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let name = format!("{prefix}{}", key.get_ref());
            let is_section = prefix.is_empty() && sections().any(|section| section == name);
            match value.get_ref() {
                DeValue::Table(inner) if is_section => self.table(&format!("{name}."), inner)?,
                value => self.set(&name, value, &found(value), self.line(key.span().start))?,
            }
        }
        Ok(())
    }

    fn set_override(&mut self, text: &str) -> Result<(), SchemeError> {
        let place = format!("--set {text}");
        let Some((key, value)) = text.split_once('=') else {
            return Err(SchemeError(format!("{place}: expected KEY=VALUE")));
        };
        let (key, value) = (key.trim(), value.trim());
        // A text has no quotes in an override: the key determines the type.
        let is_number = NUMBERS.iter().any(|number| number.key == key);
        let number = value.parse::<i128>().ok().filter(|_| is_number).map(|number| number.to_string());
        let parsed = number.as_ref().and_then(|number| DeValue::parse(number).ok()).map(Spanned::into_inner);
        self.set(key, &parsed.unwrap_or(DeValue::String(value.into())), &format!("`{value}`"), place)
    }

    /// Sets a key; `found` describes the value in messages.
    fn set(&mut self, key: &str, value: &DeValue<'_>, found: &str, place: String) -> Result<(), SchemeError> {
        self.assign(key, value, found).map_err(|why| SchemeError(format!("{place}: {why}")))?;
        self.given.push((key.to_owned(), place));
        Ok(())
    }

    /// As [`Reader::set`]; the error does not name the place.
    fn assign(&mut self, key: &str, value: &DeValue<'_>, found: &str) -> Result<(), String> {
        let wrong_type = |key: &str, expected: &str| format!("`{key}` must be {expected}, not {found}");
        if let Some(number) = NUMBERS.iter().find(|number| number.key == key) {
            let DeValue::Integer(given) = value else {
                return Err(wrong_type(key, &format!("a whole number ({})", allowed_range(number))));
            };
            let given = i128::from_str_radix(given.as_str(), given.radix()).unwrap_or(i128::MAX);
            if !number.set(&mut self.scheme, given) {
                let Number { min, max, unit, default, .. } = number;
                let allowed = format!("{min} to {max} {unit} (default {default})");
                return Err(format!("`{key}` = {given} is out of range; allowed: {allowed}"));
            }
        } else if let Some(axis) = axes().find(|axis| axis.name == key || kind_key(axis) == key) {
            let names = axis.choices().map(|choice| choice.name).collect::<Vec<_>>().join(", ");
            let key = kind_key(axis);
            let DeValue::String(name) = value else {
                return Err(wrong_type(&key, &format!("one of the strings {names}")));
            };
            let name = self.newest_name(axis, name);
            if !axis.choose(&mut self.scheme, name) {
                return Err(format!("`{key}` has no choice `{name}`; allowed: {names}"));
            }
        } else if let "name" | "summary" = key {
            let DeValue::String(text) = value else { return Err(wrong_type(key, "a string")) };
            let field = if key == "name" { &mut self.scheme.name } else { &mut self.scheme.summary };
            // It is printed.
            *field = text.replace(memfit_wire::is_unprintable, " ");
        } else if sections().any(|section| section == key) {
            return Err(wrong_type(key, "a table"));
        } else {
            return Err(format!("unknown key `{key}`; allowed: {}", siblings(key).join(", ")));
        }
        Ok(())
    }

    /// The name that a choice has now; notes an old one.
    fn newest_name<'n>(&mut self, axis: &Axis, name: &'n str) -> &'n str {
        let renamed = RENAMED.iter().find(|(of, old, _)| *of == axis.name && *old == name);
        let Some((of, old, new)) = renamed else { return name };
        self.notes.push(format!("{of}: `{old}` is called `{new}` now; the old name goes with the next version"));
        new
    }

    fn finish(self) -> Result<Scheme, SchemeError> {
        for rule in RULES {
            let Some(why) = (rule.broken)(&self.scheme) else { continue };
            // If values exclude each other, the one given last is to blame.
            let last = self.given.iter().rfind(|(key, _)| rule.keys.contains(&key.as_str()));
            let (_, place) = last.expect("the defaults keep the rules");
            return Err(SchemeError(format!("{place}: {why}")));
        }
        Ok(self.scheme)
    }
}

/// Description of a value in a file, for messages.
fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Integer(_) => "a whole number".into(),
        DeValue::String(_) => "a string".into(),
        other => format!("a value of type {}", other.type_str()),
    }
}

/// Keys that are valid in place of `key`.
fn siblings(key: &str) -> Vec<String> {
    let section = key.split_once('.').and_then(|(section, _)| sections().find(|name| *name == section));
    let Some(section) = section else {
        return ["name", "summary"].into_iter().chain(sections()).map(str::to_owned).collect();
    };
    let kind = axes().filter(|axis| axis.name == section).map(kind_key);
    kind.chain(numbers_of(section).map(|(number, _)| number.key.to_owned())).collect()
}

/// Tables of the TOML: the axes, then tables that only have numbers.
fn sections() -> impl Iterator<Item = &'static str> {
    let mut others: Vec<&str> = NUMBERS.iter().filter_map(|number| Some(number.key.split_once('.')?.0)).collect();
    others.dedup();
    others.retain(|section| axes().all(|axis| axis.name != *section));
    axes().map(|axis| axis.name).chain(others)
}

/// Numbers of a table, with their names in it.
fn numbers_of(section: &str) -> impl Iterator<Item = (&'static Number, &'static str)> + '_ {
    NUMBERS.iter().filter_map(move |number| {
        let (of, field) = number.key.split_once('.')?;
        (of == section).then_some((number, field))
    })
}

fn kind_key(axis: &Axis) -> String {
    format!("{}.kind", axis.name)
}

fn allowed_range(number: &Number) -> String {
    match is_switch(number.unit) {
        true => number.unit.into(),
        false => format!("{}, {} to {}", number.unit, number.min, number.max),
    }
}

/// Whether a unit names all values that a number can have.
pub fn is_switch(unit: &str) -> bool {
    unit == "0 or 1"
}
