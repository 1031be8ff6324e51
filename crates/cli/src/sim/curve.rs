//! The smallest budget in which a scheme keeps a program's slowdown within a bound.

use super::table::{label, Row};
use crate::size_parsing::{human, human_apart};

/// The answer for a workload and a scheme.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The workload.
    pub workload: String,
    /// Name of the scheme.
    pub scheme: String,
    /// The settings of the scheme that were changed.
    pub set: String,
    /// The smallest budget that keeps the bound, bytes; `None`: no tried budget keeps it.
    pub budget: Option<u64>,
    /// The largest smaller budget that does not, bytes; `None`: all tried budgets keep it.
    pub fails: Option<u64>,
}

impl Found {
    /// The scheme, with its changed settings.
    pub fn label(&self) -> String {
        label(&self.scheme, &self.set)
    }

    /// Whether it is the answer for the workload and the scheme of this row.
    pub fn is_of(&self, row: &Row) -> bool {
        (&self.workload, &self.scheme, &self.set) == (&row.workload, &row.scheme, &row.set)
    }

    /// The answer as a sentence.
    pub fn says(&self, bound: f64) -> String {
        let label = self.label();
        let slower = format!("{:.0} % slower", (bound - 1.0) * 100.0);
        match (self.budget, self.fails) {
            (Some(budget), Some(fails)) => {
                let [keeps, fails] = human_apart([budget, fails]);
                format!("{label}: {keeps} keep it at most {slower}, {fails} do not.")
            }
            (Some(budget), None) => {
                format!("{label}: {} keep it at most {slower}; less was not tried.", human(budget))
            }
            (None, _) => format!("{label}: in none of these budgets is it at most {slower}."),
        }
    }
}

/// Finds where the bound is crossed: from the answer's budget up, all tried budgets keep it. Not
/// for yardsticks, which have no times.
pub fn find(rows: &[Row], bound: f64) -> Vec<Found> {
    let mut all: Vec<Found> = Vec::new();
    for row in rows.iter().filter(|row| !row.counted) {
        if all.iter().any(|found| found.is_of(row)) {
            continue;
        }
        let (workload, scheme, set) = (row.workload.clone(), row.scheme.clone(), row.set.clone());
        let mut found = Found { workload, scheme, set, budget: None, fails: None };
        let mut own: Vec<(u64, f64)> = rows
            .iter()
            .filter(|other| found.is_of(other))
            .filter_map(|other| Some((other.budget, other.outcome.slowdown()?)))
            .collect();
        own.sort_by_key(|&(budget, _)| budget);
        let fails = own.iter().rev().find(|&&(_, slowdown)| slowdown > bound).map(|&(budget, _)| budget);
        found.budget = own.iter().map(|&(budget, _)| budget).find(|&budget| fails.is_none_or(|fails| budget > fails));
        found.fails = fails;
        all.push(found);
    }
    all
}

/// Budgets between the two of an answer, to search closer; none if they differ by at most 1 %.
pub fn between(found: &Found, steps: u64) -> Vec<u64> {
    let (Some(high), Some(low)) = (found.budget, found.fails) else { return Vec::new() };
    if high - low <= high / 100 {
        return Vec::new();
    }
    (1..steps).map(|i| low + (high - low) * i / steps).collect()
}
