//! What follows from the simulations.

use super::subject::Subject;
use crate::sim::curve::Found;
use crate::sim::table::Row;
use memfit_core::sample::REGION_PAGES;
use memfit_sim::Outcome;

/// Another scheme than the first one must do with less than this, percent of the budget: smaller
/// differences are within what a recording can tell (faults in live runs were 0.8 to 1.5 times
/// those that were said).
const CLEARLY_PERCENT: u64 = 85;
/// Sizes are told in whole ones of these, bytes.
const STEP: u64 = 1 << 20;
/// Smallest swap tier that is advised, bytes: a log makes room segment by segment.
const SWAP_LEAST: u64 = 4 << 20;

/// In whole MiB, not less.
pub fn whole(bytes: u64) -> u64 {
    bytes.next_multiple_of(STEP)
}

/// Which scheme to take: the first one, unless another keeps the bound in clearly less for the
/// workload that wants most of it. `found`: of each workload the answers by scheme; `judged`: of
/// which schemes it is known what their codecs make of the pages.
pub fn scheme(found: &[&[Found]], judged: &[bool]) -> usize {
    let schemes = found.first().map_or(0, |answers| answers.len());
    let wants =
        |scheme: usize| found.iter().map(|answers| answers[scheme].budget).try_fold(0, |most, b| Some(b?.max(most)));
    let first: Option<u64> = wants(0);
    let better = |bytes: u64| first.is_none_or(|first| bytes < first * CLEARLY_PERCENT / 100);
    let others = (1..schemes).filter(|&scheme| judged[scheme]).filter_map(|scheme| Some((wants(scheme)?, scheme)));
    others.filter(|&(bytes, _)| better(bytes)).min().map_or(0, |(_, scheme)| scheme)
}

/// Most bytes that were in the swap tier: a place there that is kept for a page and never written
/// to is none that is wanted.
pub fn in_swap(outcome: &Outcome) -> u64 {
    match outcome.tally.writes.bytes {
        0 => 0,
        _ => outcome.tally.peak_swap_bytes,
    }
}

/// Bytes that there can be where this share of all was sampled, and so many pages of theirs were
/// found: but for one sample in forty. Whole regions are sampled, and how many are found is chance
/// (as of Poisson: twice the root of their number more or less).
pub fn at_most(bytes: u64, found: u64, rate: f64) -> u64 {
    let regions = (found as f64 / REGION_PAGES as f64).max(1.0);
    (bytes as f64 * (1.0 + 2.0 * ((1.0 - rate) / regions).sqrt())) as u64
}

/// Size of a swap tier in which at most so much was: a quarter more, as a log with less to spare
/// writes anew what is in the way.
pub fn swap_size(peak: u64) -> Option<u64> {
    (peak > 0).then(|| whole(peak + peak / 4).max(SWAP_LEAST))
}

/// What the pages of a program hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Contents {
    /// Share of its pages of which it is known what they hold.
    pub known: f64,
    /// Size of what was compressed, in terms of its size before.
    pub ratio: Option<f64>,
    /// Share of the pages that are one word.
    pub one_word: f64,
    /// Share of those that nothing makes small enough.
    pub raw: f64,
}

/// By the simulation that evicted most.
pub fn contents(subject: &Subject, outcome: Option<&Outcome>) -> Contents {
    let working_set = &subject.working_set;
    let known = working_set.known as f64 / working_set.pages.max(1) as f64;
    let Some(outcome) = outcome else { return Contents { known, ratio: None, one_word: 0.0, raw: 0.0 } };
    let counters = &outcome.counters;
    let raw = counters.incompressible + counters.not_worth;
    let all = (counters.filled + counters.compressed + raw).max(1) as f64;
    Contents { known, ratio: outcome.ratio(), one_word: counters.filled as f64 / all, raw: raw as f64 / all }
}

/// Of the simulations under this scheme the one that evicted most in half of what the workload has,
/// or more: in less a few pages that come and go all the time would stand for all.
pub fn most_evicted<'a>(rows: &'a [Row], scheme: &str) -> Option<&'a Outcome> {
    let most = |half: bool| {
        let rows = rows.iter().filter(|row| row.scheme == scheme && (!half || row.budget * 2 >= row.footprint));
        let outcomes = rows.map(|row| &row.outcome).filter(|outcome| outcome.tally.evicted > 0);
        outcomes.max_by_key(|outcome| outcome.tally.evicted)
    };
    most(true).or_else(|| most(false))
}
