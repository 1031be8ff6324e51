//! The smallest budget in which a scheme keeps a program quick enough.

use super::table::Row;
use crate::size_parsing::human;

/// What was found for a workload and a scheme.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The workload.
    pub workload: String,
    /// The scheme, with what was set in it.
    pub label: String,
    /// The smallest budget that keeps the bound, bytes; `None`: none that was tried does.
    pub budget: Option<u64>,
    /// The largest that does not and is smaller, bytes; `None`: all that were tried keep it.
    pub fails: Option<u64>,
}

impl Found {
    /// In words.
    pub fn says(&self, bound: f64) -> String {
        let slower = format!("{:.0} % slower", (bound - 1.0) * 100.0);
        match (self.budget, self.fails) {
            (Some(budget), Some(fails)) => {
                format!("{}: {} keep it at most {slower}, {} do not.", self.label, human(budget), human(fails))
            }
            (Some(budget), None) => {
                format!("{}: {} keep it at most {slower}; less was not tried.", self.label, human(budget))
            }
            (None, _) => format!("{}: in none of these budgets is it at most {slower}.", self.label),
        }
    }
}

/// Where the bound is crossed: above the budget of the answer all that were tried keep it.
pub fn find(rows: &[Row], bound: f64) -> Vec<Found> {
    let mut all: Vec<Found> = Vec::new();
    for row in rows {
        let (workload, label) = (row.workload.clone(), row.label());
        if all.iter().any(|found| found.workload == workload && found.label == label) {
            continue;
        }
        let mut own: Vec<(u64, f64)> = rows
            .iter()
            .filter(|other| other.workload == workload && other.label() == label)
            .filter_map(|other| Some((other.budget, other.outcome.slowdown()?)))
            .collect();
        own.sort_by_key(|&(budget, _)| budget);
        let fails = own.iter().rev().find(|&&(_, slowdown)| slowdown > bound).map(|&(budget, _)| budget);
        let budget = own.iter().map(|&(budget, _)| budget).find(|&budget| fails.is_none_or(|fails| budget > fails));
        all.push(Found { workload, label, budget, fails });
    }
    all
}

/// Budgets between the two of an answer, to find it more closely; none if they are close already.
pub fn between(found: &Found, steps: u64) -> Vec<u64> {
    let (Some(high), Some(low)) = (found.budget, found.fails) else { return Vec::new() };
    if high - low <= high / 100 {
        return Vec::new();
    }
    (1..steps).map(|i| low + (high - low) * i / steps).collect()
}
