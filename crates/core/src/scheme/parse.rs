//! Builds a scheme from TOML and overrides; checks every key against the tables.

use super::error::{Origin, Problem, SchemeError};
use super::rules::RULES;
use super::{allowed_range, kind_key, numbers_of, sections, Axis, Number, Scheme, AXES, NUMBERS};
use toml::de::{DeTable, DeValue};

/// Names of choices of earlier versions: section, old name, new name.
const RENAMED: [(&str, &str, &str); 3] =
    [("admission", "nothing", "none"), ("reclaim", "second-chance", "fifo"), ("replacement", "oldest", "fifo")];

/// A value as the user gave it.
pub(super) enum Value {
    Integer(i128),
    Text(String),
    /// From an override: the key determines its type.
    Raw(String),
    Other(&'static str),
}

impl Value {
    fn found(&self) -> String {
        match self {
            Value::Integer(_) => "a whole number".into(),
            Value::Text(_) => "a string".into(),
            Value::Raw(text) => format!("`{text}`"),
            Value::Other(name) => format!("a value of type {name}"),
        }
    }
}

/// A scheme under construction, and where each key was set.
pub(super) struct Builder<'a> {
    pub scheme: Scheme,
    pub origins: Vec<(String, Origin)>,
    pub notes: &'a mut Vec<String>,
}

impl Builder<'_> {
    pub(super) fn table(&mut self, text: &str, prefix: &str, table: &DeTable<'_>) -> Result<(), SchemeError> {
        let mut entries: Vec<_> = table.iter().collect();
        // The TOML parser sorts a table by name; the first error in the file must be reported.
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let origin = Origin::Line(line_of(text, key.span().start));
            let name = format!("{prefix}{}", key.get_ref());
            let is_section = prefix.is_empty() && sections().any(|section| section == name);
            let value = match value.get_ref() {
                DeValue::Table(inner) if is_section => {
                    self.table(text, &format!("{name}."), inner)?;
                    continue;
                }
                DeValue::Integer(number) => {
                    Value::Integer(i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX))
                }
                DeValue::String(text) => Value::Text(text.to_string()),
                other => Value::Other(other.type_str()),
            };
            self.set(&name, value, origin)?;
        }
        Ok(())
    }

    pub(super) fn set(&mut self, key: &str, value: Value, origin: Origin) -> Result<(), SchemeError> {
        self.assign(key, value).map_err(|problem| SchemeError { origin: origin.clone(), problem })?;
        self.origins.push((key.to_owned(), origin));
        Ok(())
    }

    fn assign(&mut self, key: &str, value: Value) -> Result<(), Problem> {
        if let Some(number) = NUMBERS.iter().find(|number| number.key == key) {
            (number.set)(&mut self.scheme, number_from(number, &value)?);
        } else if let Some(axis) = AXES.iter().find(|axis| [axis.name, &kind_key(axis)].contains(&key)) {
            let value = self.newest_name(axis, value);
            (axis.set)(&mut self.scheme, choice_from(axis, value)?);
        } else if key == "name" {
            self.scheme.name = text_from(key, "a string", value)?;
        } else if key == "summary" {
            self.scheme.summary = text_from(key, "a string", value)?;
        } else if sections().any(|section| section == key) {
            let (expected, found) = ("a table".to_owned(), value.found());
            return Err(Problem::WrongType { key: key.to_owned(), expected, found });
        } else {
            return Err(Problem::UnknownKey { key: key.to_owned(), allowed: siblings(key) });
        }
        Ok(())
    }

    /// The value, with the name that the choice has now.
    fn newest_name(&mut self, axis: &Axis, value: Value) -> Value {
        let (Value::Text(name) | Value::Raw(name)) = &value else { return value };
        let Some((_, old, new)) = RENAMED.iter().find(|(section, old, _)| *section == axis.name && old == name) else {
            return value;
        };
        self.notes
            .push(format!("{}: `{old}` is called `{new}` now; the old name goes with the next version", axis.name));
        Value::Text((*new).to_owned())
    }

    pub(super) fn finish(self) -> Result<Scheme, SchemeError> {
        for rule in RULES {
            let Some(why) = (rule.broken)(&self.scheme) else { continue };
            let last = self.origins.iter().rfind(|(key, _)| rule.keys.contains(&key.as_str()));
            let origin = last.expect("the defaults keep the rules").1.clone();
            return Err(SchemeError { origin, problem: Problem::Impossible { why } });
        }
        Ok(self.scheme)
    }
}

/// Keys that are valid in place of `key`.
fn siblings(key: &str) -> Vec<String> {
    let section = key.split_once('.').and_then(|(section, _)| sections().find(|name| *name == section));
    let Some(section) = section else {
        return ["name", "summary"].into_iter().chain(sections()).map(str::to_owned).collect();
    };
    let kind = AXES.iter().filter(|axis| axis.name == section).map(kind_key);
    kind.chain(numbers_of(section).map(|(number, _)| number.key.to_owned())).collect()
}

fn number_from(number: &'static Number, value: &Value) -> Result<u32, Problem> {
    let integer = match value {
        Value::Integer(integer) => Some(*integer),
        Value::Raw(text) => text.parse().ok(),
        _ => None,
    };
    let Some(value) = integer else {
        let expected = format!("a whole number ({})", allowed_range(number));
        return Err(Problem::WrongType { key: number.key.to_owned(), expected, found: value.found() });
    };
    let in_range = u32::try_from(value).ok().filter(|value| (number.min..=number.max).contains(value));
    let allowed = format!("{} to {} {} (default {})", number.min, number.max, number.unit, number.default);
    in_range.ok_or(Problem::OutOfRange { key: number.key, value, allowed })
}

fn choice_from(axis: &Axis, value: Value) -> Result<usize, Problem> {
    let (key, allowed) = (kind_key(axis), axis.choices().map(|choice| choice.name).collect::<Vec<_>>());
    let value = text_from(&key, &format!("one of the strings {}", allowed.join(", ")), value)?;
    let index = allowed.iter().position(|name| *name == value);
    index.ok_or(Problem::UnknownChoice { key, value, allowed })
}

fn text_from(key: &str, expected: &str, value: Value) -> Result<String, Problem> {
    match value {
        Value::Text(text) | Value::Raw(text) => Ok(text),
        other => Err(Problem::WrongType { key: key.to_owned(), expected: expected.to_owned(), found: other.found() }),
    }
}

pub(super) fn line_of(text: &str, byte: usize) -> usize {
    1 + text.as_bytes()[..byte.min(text.len())].iter().filter(|b| **b == b'\n').count()
}
