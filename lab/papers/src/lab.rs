//! Simulations, each of a workload under one setup, run on a few threads. Counts are kept at each
//! mark.

use crate::one_computer::{self, OneComputer};
use crate::phone::Phone;
use crate::recorded::{Played, NOTED};
use memfit_core::Counters;
use memfit_sim::cost::CostTable;
use memfit_sim::device::{Device, Transfers};
use memfit_sim::generate::Spec;
use memfit_sim::price::{price, Counts};
use memfit_sim::{Contents, Event, Machine, Residents, Setup, Tally, Times, Workload};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// MiB.
pub const MIB: f64 = 1_048_576.0;

/// Options for all papers.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Seed.
    pub seed: u64,
    /// Additional divisor of all sizes, beyond each paper's setting.
    pub scale: f64,
    /// Whether to make simulations few and small, for tests.
    pub quick: bool,
}

impl Plan {
    /// The divisor of a paper's sizes in a full or in a quick run.
    pub fn divisor(&self, full: f64, quick: f64) -> f64 {
        self.scale * if self.quick { quick } else { full }
    }
}

/// The load of a simulation.
#[derive(Debug, Clone)]
pub enum Load {
    /// A workload of the simulator in text form.
    Made(String),
    /// The same, with a [`BEGINS`] mark after each pause of this many ns: the next launch begins.
    Launches(String, u64),
    /// A workload whose processes share a processor and a disk.
    OneComputer(OneComputer),
    /// Applications of a phone; some are killed when memory is short.
    Phone(Phone),
    /// A recorded real program.
    Recorded(Played),
}

/// A simulation.
#[derive(Debug, Clone)]
pub struct Job {
    /// Name of the workload and of the configuration.
    pub name: (String, String),
    /// Load.
    pub load: Load,
    /// Setup of the machine.
    pub setup: Setup,
}

/// In place of a mark of the workload: a launch begins.
pub const BEGINS: u32 = u32::MAX;

/// Counts from the start up to a mark.
#[derive(Debug, Clone)]
pub struct Snap {
    /// Number of the mark.
    pub mark: u32,
    /// Time of the programs with all their waiting, ns; reclaim and the device work concurrently.
    pub at: u64,
    /// Time with one processor and one device that do everything one after the other, ns.
    pub serial: u64,
    /// Counts of the machine.
    pub tally: Tally,
    /// Counts of the core.
    pub counters: Counters,
    /// Pages of the pool.
    pub zpages: u64,
    /// Frames of the pool.
    pub frames: u64,
    /// Pages in the programs' memory and in staging.
    pub resident: u64,
    /// Pages in the swap tier.
    pub swapped: u64,
    /// Pages in staging, which are in memory still; a page has its slot already there.
    pub staged: u64,
    /// Blocks of the swap tier that are in use.
    pub blocks: u64,
    /// Applications that were killed.
    pub kills: u64,
    /// Applications that left memory as a whole.
    pub left_whole: u64,
}

/// Result of a simulation.
#[derive(Debug, Clone)]
pub struct Run {
    /// Before the first event.
    pub start: Snap,
    /// At each mark.
    pub snaps: Vec<Snap>,
    /// At the end.
    pub end: Snap,
    /// Time on [`Load::OneComputer`], ns.
    pub elapsed: Option<u64>,
}

impl Run {
    /// Counts when a mark is first reached.
    pub fn mark(&self, mark: u32) -> Option<&Snap> {
        self.snaps.iter().find(|snap| snap.mark == mark)
    }

    /// Counts at a mark, or at the start if it is never reached: recordings have no marks of their
    /// programs.
    pub fn mark_or_start(&self, mark: u32) -> &Snap {
        self.mark(mark).unwrap_or(&self.start)
    }

    /// Most frames of the pool at any mark.
    pub fn most_frames(&self) -> u64 {
        self.snaps.iter().map(|snap| snap.frames).max().unwrap_or(0)
    }

    /// For each launch of so many applications in turns, the mark at its end, its time in ns, and
    /// the counts at its end. The first launch of a turn begins when the turn before has ended.
    pub fn launches(&self, apps: u32) -> impl Iterator<Item = (u32, u64, &Snap)> {
        let mut begins = None;
        self.snaps.iter().filter_map(move |snap| match snap.mark {
            NOTED => None,
            mark if mark == BEGINS || mark % (apps + 1) == apps => {
                begins = Some(snap.at);
                None
            }
            mark => begins.take().map(|began| (mark, snap.at - began, snap)),
        })
    }
}

/// Results of simulations by workload and configuration.
#[derive(Debug, Default)]
pub struct Runs(HashMap<(String, String), Run>);

impl Runs {
    /// The result of one simulation.
    pub fn get(&self, workload: &str, config: &str) -> Option<&Run> {
        self.0.get(&(workload.to_owned(), config.to_owned()))
    }

    /// The quotient of a measure of two configurations.
    pub fn quotient(&self, workload: &str, config: &str, other: &str, of: impl Fn(&Run) -> f64) -> Option<f64> {
        Some(of(self.get(workload, config)?) / of(self.get(workload, other)?))
    }
}

/// Makes a setup.
///
/// # Panics
/// If the preset does not exist or rejects an override: errors in a table of this crate.
pub fn setup(
    (preset, overrides): (&str, &[String]),
    budget: f64,
    swap: f64,
    costs: &Arc<CostTable>,
    device: &Arc<Device>,
) -> Setup {
    let scheme = memfit_scheme::preset(preset, overrides).unwrap_or_else(|| panic!("no preset {preset}"));
    Setup {
        scheme: Arc::new(scheme.unwrap_or_else(|error| panic!("{preset}: {error}"))),
        budget: pages(budget) * 4096,
        swap_bytes: pages(swap) * 4096,
        residents: Residents::Simulated,
        rate: 1.0,
        tables_per_frame: 0,
        costs: Arc::clone(costs),
        device: Arc::clone(device),
    }
}

/// The mean; `None` without values.
pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

/// Bytes in pages, rounded.
fn pages(bytes: f64) -> u64 {
    (bytes / 4096.0).round() as u64
}

/// A built-in device.
///
/// # Panics
/// If no device has this name.
pub fn device(name: &str) -> Arc<Device> {
    Arc::new(Device::find(name).unwrap_or_else(|error| panic!("{error}")))
}

/// A built-in table of costs, or one from its TOML text.
///
/// # Panics
/// If no table has this name, or the text is invalid.
pub fn costs(name_or_text: &str) -> Arc<CostTable> {
    let table = match name_or_text.contains('=') {
        true => CostTable::parse(name_or_text),
        false => CostTable::find(name_or_text),
    };
    Arc::new(table.unwrap_or_else(|error| panic!("{error}")))
}

/// A machine whose counts are noted at marks.
pub struct Watched<'a> {
    /// The machine itself.
    pub machine: Machine,
    /// Its setup.
    pub setup: &'a Setup,
    /// Counts at the marks so far.
    pub snaps: Vec<Snap>,
    /// Number of applications killed so far.
    pub kills: u64,
    /// Number of applications that left memory as a whole so far.
    pub left_whole: u64,
    near: Near,
}

/// Counts reads that the device's own buffer answers: of the page after the one read last, without
/// another transfer between. The page lies in the same block or in the next one, since pages leave
/// in order. The simulator counts the second read of a block as random.
#[derive(Default)]
struct Near {
    last: Option<(u32, u64)>,
    writes: u64,
    count: u64,
}

impl Near {
    /// Called after a touch, with the reads before it.
    fn note(&mut self, proc: u32, page: u64, before: Transfers, tally: &Tally) {
        let (operations, random) = (tally.reads.operations - before.operations, tally.reads.random() - before.random());
        if operations == 0 {
            return;
        }
        let next = page > 0 && self.last == Some((proc, page - 1)) && self.writes == tally.writes.operations;
        self.count += u64::from(next && operations == 1 && random == 1);
        (self.last, self.writes) = (Some((proc, page)), tally.writes.operations);
    }
}

impl Watched<'_> {
    /// A machine without processes.
    pub fn new(setup: &Setup) -> Watched<'_> {
        Watched {
            machine: Machine::new(setup, Contents::new()),
            setup,
            snaps: Vec::new(),
            kills: 0,
            left_whole: 0,
            near: Near::default(),
        }
    }

    /// Handles an event; notes all counts at a mark.
    pub fn event(&mut self, event: Event) {
        let before = self.machine.tally().reads;
        self.machine.event(event);
        match event {
            Event::Touches { proc, page, .. } => self.near.note(proc, page, before, self.machine.tally()),
            Event::Reaches { mark } => self.mark(mark),
            _ => {}
        }
    }

    /// Notes all counts.
    pub fn mark(&mut self, mark: u32) {
        let snap = self.snap(mark);
        self.snaps.push(snap);
    }

    fn snap(&self, mark: u32) -> Snap {
        let (machine, core) = (&self.machine, self.machine.core());
        let usage = core.pool_usage();
        let (times, read) = (machine.times(), self.setup.device.read);
        Snap {
            mark,
            at: times.program,
            serial: serial_ns(machine.tally(), &times, self.setup)
                - self.near.count * read.random_ns.saturating_sub(read.sequential_ns),
            tally: machine.tally().clone(),
            counters: machine.counters().clone(),
            zpages: usage.zpages,
            frames: u64::from(usage.frames),
            resident: core.present_total() + core.totals_staged(),
            swapped: core.swapped_total(),
            staged: core.totals_staged(),
            blocks: u64::from(core.blocks_in_use()),
            kills: self.kills,
            left_whole: self.left_whole,
        }
    }
}

/// Time if one processor and one device do everything one after the other, ns.
fn serial_ns(tally: &Tally, times: &Times, setup: &Setup) -> u64 {
    // The reads of cleaning are priced below, one after the other.
    let counts = Counts { beside_reads: Transfers::default(), ..memfit_sim::counts(tally) };
    let cleaning = setup.device.read_ns(&tally.cleaning_reads, 1);
    price(&counts, &setup.costs, &setup.device, times.computes).operations_ns() + times.computes + cleaning
}

fn simulate(job: &Job) -> Run {
    let mut watched = Watched::new(&job.setup);
    let start = watched.snap(BEGINS);
    let (spec, pause) = match &job.load {
        Load::Phone(phone) => {
            phone.run(&mut watched);
            return ended(start, watched);
        }
        Load::Recorded(played) => {
            played.run(&mut watched);
            return ended(start, watched);
        }
        Load::OneComputer(load) => {
            let elapsed = one_computer::run(&mut watched, made(&load.spec), load);
            return Run { elapsed: Some(elapsed), ..ended(start, watched) };
        }
        Load::Made(spec) => (spec, None),
        Load::Launches(spec, pause) => (spec, Some(*pause)),
    };
    for event in made(spec) {
        watched.event(event);
        if matches!(event, Event::Computes { ns } if Some(ns) == pause) {
            watched.mark(BEGINS);
        }
    }
    ended(start, watched)
}

fn made(spec: &str) -> Box<dyn Workload> {
    Spec::parse(spec).unwrap_or_else(|error| panic!("{error}")).make()
}

fn ended(start: Snap, watched: Watched<'_>) -> Run {
    let end = watched.snap(BEGINS);
    Run { start, snaps: watched.snaps, end, elapsed: None }
}

/// Runs all simulations on `threads` threads. Calls `progress` with the number done.
///
/// # Panics
/// If two have the same name, or a workload is invalid: errors in the tables of this crate.
pub fn simulate_all(jobs: &[Job], threads: usize, progress: &(dyn Fn(usize) + Sync)) -> Runs {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let runs: Mutex<HashMap<(String, String), Run>> = Mutex::new(HashMap::new());
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let run = simulate(job);
                    let before = runs.lock().expect("nobody panics with it").insert(job.name.clone(), run);
                    assert!(before.is_none(), "{:?} is there twice", job.name);
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    Runs(runs.into_inner().expect("nobody panics with it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_launch_of_a_turn_counts_and_the_end_of_a_turn_does_not() {
        const MS: u64 = 7;
        let load = format!("ezswap:apps=3,repetitions=3,scale=160,dwell_ms={MS}");
        let run = simulate(&Job {
            name: ("apps".into(), "swap".into()),
            load: Load::Launches(load, MS * 1_000_000),
            setup: setup(("swap", &[]), 4.0 * MIB, 16.0 * MIB, &costs("measured"), &device("ssd-sata")),
        });
        let launches: Vec<(u32, u64)> = run.launches(3).map(|(mark, ns, _)| (mark, ns)).collect();
        let marks: Vec<u32> = launches.iter().map(|(mark, _)| *mark).collect();
        assert_eq!(marks, [1, 2, 4, 5, 6, 8, 9, 10], "when the very first begins is not known");
        assert!(launches.iter().all(|(_, ns)| *ns > 0), "{launches:?}");
    }
}
