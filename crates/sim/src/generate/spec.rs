//! Workloads in text form: `zipf:pages=100000,skew=0.8,writes=50`.

use super::{find, Param, Unit, WorkloadEntry, WORKLOADS};
use crate::contents::kind;
use crate::workload::Workload;
use memfit_codec::generate::GENERATORS;
use std::fmt;

/// A workload and all of its parameters.
#[derive(Debug, Clone)]
pub struct Spec {
    entry: &'static WorkloadEntry,
    /// A value for each parameter of the workload: a number in its unit, or the index of a choice
    /// or a generator.
    values: Vec<f64>,
}

/// An error in the text form of a workload.
#[derive(Debug, Clone, PartialEq)]
pub enum SpecError {
    /// No workload has this name.
    Workload(String),
    /// The workload has no parameter of this name.
    Parameter(&'static str, String),
    /// This is not `name=value`.
    Unsaid(String),
    /// A parameter occurs twice.
    Twice(&'static str),
    /// A value that the parameter does not allow: parameter, value, reason.
    Value(&'static str, String, String),
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecError::Workload(name) => {
                write!(f, "no workload is called '{name}'; there are {}", list(WORKLOADS.iter().map(|w| w.name)))
            }
            SpecError::Parameter(workload, name) => {
                let params = find(workload).map_or(&[][..], |entry| entry.params);
                write!(f, "{workload} has no parameter '{name}'; it has {}", list(params.iter().map(|p| p.name)))
            }
            SpecError::Unsaid(item) => write!(f, "'{item}' is not NAME=VALUE"),
            SpecError::Twice(name) => write!(f, "{name} is there twice"),
            SpecError::Value(name, value, why) => write!(f, "{name}={value}: {why}"),
        }
    }
}

impl std::error::Error for SpecError {}

fn list(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

impl Spec {
    /// Reads `WORKLOAD` or `WORKLOAD:NAME=VALUE,NAME=VALUE...`; other parameters have defaults.
    ///
    /// # Errors
    /// For unknown names, values out of range and text in another form.
    pub fn parse(text: &str) -> Result<Spec, SpecError> {
        let (name, said) = text.split_once(':').map_or((text, None), |(name, said)| (name, Some(said)));
        let entry = find(name).ok_or_else(|| SpecError::Workload(name.into()))?;
        let mut values = vec![None; entry.params.len()];
        for item in said.into_iter().flat_map(|said| said.split(',')) {
            let (name, value) = item.split_once('=').ok_or_else(|| SpecError::Unsaid(item.into()))?;
            let index = entry.params.iter().position(|param| param.name == name);
            let index = index.ok_or_else(|| SpecError::Parameter(entry.name, name.into()))?;
            let param = &entry.params[index];
            if values[index].replace(read(param, value)?).is_some() {
                return Err(SpecError::Twice(param.name));
            }
        }
        let all = entry.params.iter().zip(values);
        let values = all.map(|(param, value)| value.map_or_else(|| read(param, param.default), Ok));
        Ok(Spec { entry, values: values.collect::<Result<_, _>>()? })
    }

    /// The workload.
    pub fn entry(&self) -> &'static WorkloadEntry {
        self.entry
    }

    /// Its events from the start; the same each time.
    pub fn make(&self) -> Box<dyn Workload> {
        (self.entry.make)(&Values(self))
    }
}

/// All parameters, including those with their defaults; [`Spec::parse`] can read the text.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry.name)?;
        for (i, (param, &value)) in self.entry.params.iter().zip(&self.values).enumerate() {
            let before = if i == 0 { ':' } else { ',' };
            write!(f, "{before}{}=", param.name)?;
            match param.unit {
                Unit::Choice(names) => f.write_str(names[value as usize])?,
                Unit::Content => f.write_str(GENERATORS[value as usize].name)?,
                _ => write!(f, "{value}")?,
            }
        }
        Ok(())
    }
}

/// Values of a workload's parameters, for the function that makes it.
///
/// # Panics
/// Each function panics if the workload has no parameter of that name: an error in the table.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a>(&'a Spec);

impl Values<'_> {
    fn get(&self, name: &str) -> (&'static Param, f64) {
        let Spec { entry, values } = self.0;
        let index = entry.params.iter().position(|param| param.name == name);
        let index = index.unwrap_or_else(|| panic!("{} has no parameter {name}", entry.name));
        (&entry.params[index], values[index])
    }

    /// A number, in its unit.
    pub fn real(&self, name: &str) -> f64 {
        self.get(name).1
    }

    /// A whole number, in its unit.
    pub fn count(&self, name: &str) -> u64 {
        self.real(name) as u64
    }

    /// A content: an index of [`GENERATORS`].
    pub fn kind(&self, name: &str) -> u16 {
        self.real(name) as u16
    }

    /// The name that was chosen.
    pub fn choice(&self, name: &str) -> &'static str {
        match self.get(name) {
            (Param { unit: Unit::Choice(names), .. }, value) => names[value as usize],
            (param, _) => panic!("{} is not a choice", param.name),
        }
    }
}

fn read(param: &'static Param, text: &str) -> Result<f64, SpecError> {
    let wrong = |why: String| SpecError::Value(param.name, text.into(), why);
    let (value, whole) = match param.unit {
        Unit::Choice(names) => {
            let at = names.iter().position(|&name| name == text);
            return at.map(|at| at as f64).ok_or_else(|| wrong(format!("it is one of {}", names.join(", "))));
        }
        Unit::Content => {
            let names = || list(GENERATORS.iter().map(|g| g.name));
            return kind(text).map(f64::from).ok_or_else(|| wrong(format!("it is one of {}", names())));
        }
        Unit::Pages => (pages(text), true),
        Unit::Real | Unit::Percent => (number(text), false),
        Unit::Count | Unit::Nanoseconds | Unit::Milliseconds => (number(text), true),
    };
    let Param { min, max, .. } = param;
    let range = match param.unit {
        Unit::Pages => format!("it goes from {min} to {max} pages of 4 KiB"),
        _ => format!("it goes from {min} to {max}"),
    };
    let value = value.ok_or_else(|| match param.unit {
        _ if text.strip_prefix('-').and_then(number).is_some() => wrong(range.clone()),
        Unit::Pages => wrong(format!("not a number of pages, nor a size such as 154M; {range}")),
        _ => wrong(format!("not a number; {range}")),
    })?;
    if whole && value.fract() != 0.0 {
        return Err(wrong("not a whole number".into()));
    }
    if !(*min..=*max).contains(&value) {
        return Err(wrong(range));
    }
    Ok(value)
}

/// Reads digits, optionally with decimals: no sign, exponent or name of a number.
fn number(text: &str) -> Option<f64> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let plain =
        text.split_once('.').map_or_else(|| digits(text), |(whole, decimals)| digits(whole) && digits(decimals));
    plain.then(|| text.parse().ok()).flatten()
}

/// Reads pages, or a size, which is rounded to whole pages.
fn pages(text: &str) -> Option<f64> {
    let (size, unit) = match text.char_indices().last()? {
        (at, 'K') => (&text[..at], 0.25),
        (at, 'M') => (&text[..at], 256.0),
        (at, 'G') => (&text[..at], 262_144.0),
        _ => return number(text),
    };
    Some((number(size)? * unit).round())
}
