//! `memfit run --report`: what a run did, as a page.
//!
//! [`of`] turns the final statistics and the course of the run into a [`Report`]; its sentences are
//! computed from the numbers that are drawn. A run in which nothing was paged gets a short page.
//! [`command`] makes pages from JSON descriptions.

pub mod command;
mod faults;
mod memory;
mod regions;
mod storage;
pub(crate) mod words;

use memfit_pager::timeline::{Course, Sample};
use memfit_report::{Axis, Report, Section, Unit};
use memfit_stats::{Exit, Stats};
use words::{count, duration, size, times};

/// Most points of a figure of rates. Each is a mean over its stretch of the run, so that a figure
/// shows more than noise.
const RATES_MAX: usize = 240;
/// The shortest such stretch, nanoseconds.
const RATES_NS: u64 = 50_000_000;
/// Colours of things that several figures show; see `memfit_report::COLOURS`.
const RESIDENT: usize = 0;
const POOL: usize = 1;
const FILE: usize = 2;
const FILLED: usize = 3;
const SWAP: usize = 4;
const STAGED: usize = 5;
const UNMANAGED: usize = 6;
const TABLES: usize = 7;

/// The input of a page.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// Final statistics.
    pub stats: &'a Stats,
    /// What the run did over time.
    pub course: &'a Course,
    /// The places of the swap tier, as text.
    pub swap: &'a str,
}

impl Run<'_> {
    fn budget(&self) -> u64 {
        self.stats.budget_bytes
    }

    fn peak(&self) -> u64 {
        self.stats.peak.total_bytes
    }

    fn paged(&self) -> bool {
        self.stats.evictions.pages > 0
    }

    fn process_count(&self) -> usize {
        self.stats.processes.len()
    }

    fn samples(&self) -> &[Sample] {
        &self.course.samples
    }
}

/// The page of a run, as HTML.
#[must_use]
pub fn page(run: &Run<'_>) -> Vec<u8> {
    let mut page = Vec::new();
    of(run).write(&mut page).expect("memory takes all that is written");
    page
}

/// The page of a run, not yet rendered.
#[must_use]
pub fn of(run: &Run<'_>) -> Report {
    let mut sections = vec![memory::section(run)];
    sections.extend(memory::processes(run));
    if run.paged() {
        sections.extend([faults::section(run), storage::compression(run)]);
        sections.extend(regions::section(run));
        sections.push(storage::swap(run));
    }
    sections.extend(warnings(run));
    Report { title: title(run), says: says(run), facts: facts(run), sections }
}

fn title(run: &Run<'_>) -> String {
    let program = run.stats.command.first().map_or("A run", |word| word.rsplit('/').next().unwrap_or(word));
    format!("{program} within {}", size(run.budget()))
}

fn says(run: &Run<'_>) -> String {
    let (peak, budget) = (run.peak(), run.budget());
    if !run.paged() {
        let tail = "nothing was paged, and nothing was in the way of the programs.";
        return if peak <= budget {
            format!("The tree needed {} at most, {} of its budget: {tail}", size(peak), words::percent(peak, budget))
        } else {
            format!("The tree had {} at most, more than its budget, and no page could be taken out.", size(peak))
        };
    }
    let held = memory::held(run);
    let had = if held > budget { format!("had up to {} of memory and ", size(held)) } else { String::new() };
    let kept = if peak <= budget {
        format!("The tree {had}stayed within its budget of {}", size(budget))
    } else {
        let over = words::percent(peak - budget, budget);
        format!("The tree {had}exceeded its budget of {} by {over} for a moment at least", size(budget))
    };
    let evicted = size(run.stats.evictions.pages * 4096);
    let faults = run.stats.faults.total;
    let back = match faults {
        0 => "and nothing of it was needed again".to_owned(),
        _ => {
            let median = duration(run.stats.fault_latency_ns.all.p50);
            format!("and {} were answered, half of them within {median}", times(faults, "fault"))
        }
    };
    format!("{kept}; {evicted} of pages were taken out over the run, {back}.")
}

fn facts(run: &Run<'_>) -> Vec<(String, String)> {
    let (peak, budget) = (run.peak(), run.budget());
    let exit = match run.stats.exit {
        Some(Exit { signal: Some(signal), .. }) => format!("killed by signal {signal}{}", words::signal(signal)),
        Some(Exit { code: Some(code), .. }) => format!("status {code}"),
        _ => "unknown".into(),
    };
    let warnings = run.stats.warnings.len();
    let facts = [
        ("Command", words::command(&run.stats.command)),
        ("Budget", size(budget)),
        ("Peak", format!("{} ({})", size(peak), words::percent(peak, budget))),
        ("Time", words::seconds(run.stats.wall_ns)),
        ("Exit", exit),
        ("Scheme", run.stats.scheme.clone()),
        ("Swap", if run.stats.swap.enabled { run.swap.to_owned() } else { "none".into() }),
        ("Processes", count(run.process_count() as u64)),
        ("Warnings", if warnings == 0 { "none".into() } else { count(warnings as u64) }),
        ("Version", format!("memfit {}", run.stats.version)),
    ];
    facts.map(|(name, value)| (name.into(), value)).into()
}

fn warnings(run: &Run<'_>) -> Option<Section> {
    let text = run.stats.warnings.clone();
    (!text.is_empty()).then(|| Section { title: "Warnings".into(), text, ..Section::default() })
}

fn time() -> Axis {
    Axis::new("Time since the start", Unit::Seconds)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The part of a run between two samples.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stretch {
    from: Sample,
    to: Sample,
}

impl Stretch {
    fn middle(&self) -> f64 {
        seconds(self.from.at_ns).midpoint(seconds(self.to.at_ns))
    }

    /// The rate of a counter, per second.
    fn rate(&self, of: impl Fn(&Sample) -> u64) -> f64 {
        of(&self.to).saturating_sub(of(&self.from)) as f64 / seconds(self.to.at_ns - self.from.at_ns)
    }
}

/// Splits the run into at most [`RATES_MAX`] stretches of about the same length, from its start,
/// when all counters were 0.
fn stretches(samples: &[Sample]) -> Vec<Stretch> {
    let end = samples.last().map_or(0, |sample| sample.at_ns);
    let step = (end / RATES_MAX as u64).max(RATES_NS);
    let mut from = Sample::default();
    let mut all: Vec<Stretch> = Vec::new();
    for &to in samples {
        if to.at_ns >= from.at_ns + step {
            all.push(Stretch { from, to });
            from = to;
        } else if let (true, Some(last)) = (to.at_ns == end, all.last_mut()) {
            last.to = to;
        }
    }
    all
}

/// The length of the longest of these [`stretches`], as a sentence.
fn stretch_words(all: &[Stretch]) -> String {
    let longest = all.iter().map(|stretch| stretch.to.at_ns - stretch.from.at_ns).max().unwrap_or(0);
    format!("Points are means over up to {}.", duration(longest))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
