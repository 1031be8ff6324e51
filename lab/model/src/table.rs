//! Counts of state changes of page entries: from which state to which, by which call.

use memfit_core::Entry;
use std::collections::BTreeMap;
use std::fmt;

/// Name of an entry's state.
pub fn kind(entry: Entry) -> &'static str {
    match entry {
        Entry::Untracked => "Untracked",
        Entry::Resident => "Resident",
        Entry::Quarantined(_) => "Quarantined",
        Entry::Lazy => "Lazy",
        Entry::Evicting(_) => "Evicting",
        Entry::Out(_) => "Out",
        Entry::Loading(_) => "Loading",
        Entry::Filling(_) => "Filling",
    }
}

/// Counts by call, old state and new state.
#[derive(Debug, Clone, Default)]
pub struct Transitions(BTreeMap<(&'static str, &'static str, &'static str), u64>);

impl Transitions {
    /// Counts one change.
    pub fn note(&mut self, call: &'static str, from: Entry, to: Entry) {
        *self.0.entry((kind(from), kind(to), call)).or_default() += 1;
    }

    /// Adds the counts of another table.
    pub fn add(&mut self, other: &Transitions) {
        for (&key, &count) in &other.0 {
            *self.0.entry(key).or_default() += count;
        }
    }

    /// Number of changes from `from` to `to` by `call`.
    pub fn count(&self, from: &'static str, to: &'static str, call: &'static str) -> u64 {
        self.0.get(&(from, to, call)).copied().unwrap_or(0)
    }
}

impl fmt::Display for Transitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((from, to, call), count) in &self.0 {
            writeln!(f, "{from:>12} -> {to:<12} {call:<16} {count:>10}")?;
        }
        Ok(())
    }
}
