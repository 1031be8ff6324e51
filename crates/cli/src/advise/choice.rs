//! Choices that follow from the simulations.

use super::subject::Subject;
use crate::sim::curve::Found;
use crate::sim::table::Row;
use crate::swap::SWAP_BYTES_MIN;
use memfit_core::sample::REGION_PAGES;
use memfit_core::scheme::SwapFormat;
use memfit_core::swap_log::SEGMENT_BYTES;
use memfit_sim::Outcome;

/// Another scheme than the first one is taken if it needs less than this, percent of the first
/// one's budget. Smaller differences are within the error of a recording (page faults in live runs
/// were 0.8 to 1.5 times the predicted ones).
const CLEARLY_PERCENT: u64 = 85;
/// Sizes are rounded up to a multiple of this, bytes.
const STEP: u64 = 1 << 20;

/// Rounds up to whole MiB.
pub fn whole(bytes: u64) -> u64 {
    bytes.next_multiple_of(STEP)
}

/// The budget with room for `all` pages if the program is quick enough there, or as quick as in
/// what it `wants`, which is more. `slowdowns`: in the two, if they are known.
pub fn of_two(wants: u64, all: u64, slowdowns: (Option<f64>, Option<f64>), bound: f64) -> u64 {
    match slowdowns {
        (Some(in_all), in_wants) if in_all > in_wants.map_or(bound, |slowdown| slowdown.max(bound)) => wants,
        _ => all,
    }
}

/// Index of the scheme to take: the first one, unless another keeps the bound in a clearly smaller
/// budget. For each scheme its most demanding workload counts. `found`: for each workload, the
/// answers by scheme. `judged`: whether the sizes under a scheme's codecs are known.
pub fn scheme(found: &[&[Found]], judged: &[bool]) -> usize {
    let schemes = found.first().map_or(0, |answers| answers.len());
    let wants =
        |scheme: usize| found.iter().map(|answers| answers[scheme].budget).try_fold(0, |most, b| Some(b?.max(most)));
    let first: Option<u64> = wants(0);
    let better = |bytes: u64| first.is_none_or(|first| bytes < first * CLEARLY_PERCENT / 100);
    let others = (1..schemes).filter(|&scheme| judged[scheme]).filter_map(|scheme| Some((wants(scheme)?, scheme)));
    others.filter(|&(bytes, _)| better(bytes)).min().map_or(0, |(_, scheme)| scheme)
}

/// Peak of the swap tier, bytes; 0 if nothing was written there: places that are only reserved do
/// not count.
pub fn in_swap(outcome: &Outcome) -> u64 {
    match outcome.tally.writes.bytes {
        0 => 0,
        _ => outcome.tally.peak_swap_bytes,
    }
}

/// Upper bound of `bytes`, an estimate from a sample of the share `rate` in which `found` pages
/// were counted; one sample in forty exceeds it. Whole regions are sampled, and their number varies
/// by chance (as Poisson's: by twice its root).
pub fn at_most(bytes: u64, found: u64, rate: f64) -> u64 {
    let regions = (found as f64 / REGION_PAGES as f64).max(1.0);
    (bytes as f64 * (1.0 + 2.0 * ((1.0 - rate) / regions).sqrt())) as u64
}

/// Size of a swap tier that held at most `peak` bytes. A log needs a quarter more, because a fuller
/// one must rewrite more live data to make room. In a file or on a device the first segment is not
/// used.
pub fn swap_size(peak: u64, format: SwapFormat) -> Option<u64> {
    let more = if is_log(format) { peak / 4 } else { SEGMENT_BYTES.into() };
    (peak > 0).then(|| whole(peak + more).max(SWAP_BYTES_MIN))
}

/// Whether the swap tier is a log.
pub fn is_log(format: SwapFormat) -> bool {
    format == SwapFormat::CompressedExtents
}

/// The contents of a program's pages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Contents {
    /// Share of its pages whose contents are known.
    pub known: f64,
    /// Compressed size of what was compressed, as a factor of its size before.
    pub ratio: Option<f64>,
    /// Share of the pages that repeat one word.
    pub one_word: f64,
    /// Share of the pages that no codec makes small enough.
    pub raw: f64,
}

/// From the simulation that evicted most.
pub fn contents(subject: &Subject, outcome: Option<&Outcome>) -> Contents {
    let working_set = &subject.working_set;
    let known = working_set.known as f64 / working_set.pages.max(1) as f64;
    let Some(outcome) = outcome else { return Contents { known, ratio: None, one_word: 0.0, raw: 0.0 } };
    let counters = &outcome.counters;
    let raw = counters.incompressible + counters.by_entropy;
    let all = (counters.filled + counters.compressed + raw).max(1) as f64;
    Contents { known, ratio: outcome.ratio(), one_word: counters.filled as f64 / all, raw: raw as f64 / all }
}

/// The simulation under this scheme that evicted most, in a budget of at least half of the
/// footprint if one evicted there: in smaller budgets a few pages that come and go would count for
/// all.
pub fn most_evicted<'a>(rows: &'a [Row], scheme: &str) -> Option<&'a Outcome> {
    let most = |half: bool| {
        let rows = rows.iter().filter(|row| row.scheme == scheme && (!half || row.budget * 2 >= row.footprint));
        let outcomes = rows.map(|row| &row.outcome).filter(|outcome| outcome.tally.evicted > 0);
        outcomes.max_by_key(|outcome| outcome.tally.evicted)
    };
    most(true).or_else(|| most(false))
}
