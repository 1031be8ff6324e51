//! Errors in a scheme, and their messages.

use std::fmt;

/// Where in the user's input an error is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// This line of the TOML, from 1 on.
    Line(usize),
    /// This override.
    Override(String),
}

/// What is wrong with a scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Problem {
    /// Not TOML.
    Syntax { message: String },
    /// An override without `=`.
    NotKeyValue,
    /// No such key; `allowed` are the keys of the same table.
    UnknownKey { key: String, allowed: Vec<String> },
    /// A value of another type.
    WrongType { key: String, expected: String, found: String },
    /// No such choice on an axis.
    UnknownChoice { key: String, value: String, allowed: Vec<&'static str> },
    /// A number below its minimum or above its maximum.
    OutOfRange { key: &'static str, value: i128, allowed: String },
    /// Values that exclude each other; the text says which and why.
    Impossible { why: String },
}

/// An error in a scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemeError {
    /// Place of the error. If values exclude each other, the one given last.
    pub origin: Origin,
    /// The error.
    pub problem: Problem,
}

impl fmt::Display for SchemeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Line(line) => write!(f, "line {line}: ")?,
            Origin::Override(text) => write!(f, "--set {text}: ")?,
        }
        match &self.problem {
            Problem::Syntax { message } => write!(f, "{message}"),
            Problem::NotKeyValue => write!(f, "expected KEY=VALUE"),
            Problem::UnknownKey { key, allowed } => write!(f, "unknown key `{key}`; allowed: {}", allowed.join(", ")),
            Problem::WrongType { key, expected, found } => write!(f, "`{key}` must be {expected}, not {found}"),
            Problem::UnknownChoice { key, value, allowed } => {
                write!(f, "`{key}` has no choice `{value}`; allowed: {}", allowed.join(", "))
            }
            Problem::OutOfRange { key, value, allowed } => {
                write!(f, "`{key}` = {value} is out of range; allowed: {allowed}")
            }
            Problem::Impossible { why } => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for SchemeError {}
