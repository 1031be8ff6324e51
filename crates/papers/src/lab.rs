//! Simulations: each a workload under one setup, all of them on a few threads, with what was
//! counted at each mark.

use crate::phone::Phone;
use crate::recorded::{Played, LOOKED};
use memfit_core::scheme::Scheme;
use memfit_core::Counters;
use memfit_sim::cost::CostTable;
use memfit_sim::device::{Device, Transfers};
use memfit_sim::generate::Spec;
use memfit_sim::price::{price, Counts};
use memfit_sim::{Contents, Event, Machine, Residents, Setup, Tally, Times};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// MiB.
pub const MIB: f64 = 1_048_576.0;

/// What is wanted of all papers.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Of all that is by chance.
    pub seed: u64,
    /// Sizes are divided by this, beyond what each paper's setting says.
    pub scale: f64,
    /// Small and few: for tests.
    pub quick: bool,
}

impl Plan {
    /// What a paper's sizes are divided by: so much in a full run, so much in a quick one.
    pub fn divisor(&self, full: f64, quick: f64) -> f64 {
        self.scale * if self.quick { quick } else { full }
    }
}

/// What is simulated.
#[derive(Debug, Clone)]
pub enum Load {
    /// A workload of the simulator, as it is written there.
    Made(String),
    /// The same, with [`BEGINS`] marked after each pause of so many ns: the next launch begins.
    Launches(String, u64),
    /// Applications of a phone that are killed when memory is short.
    Phone(Phone),
    /// A real program that was recorded.
    Recorded(Played),
}

/// One simulation.
#[derive(Debug, Clone)]
pub struct Job {
    /// Workload and configuration.
    pub name: (String, String),
    /// What runs.
    pub load: Load,
    /// On what.
    pub setup: Setup,
}

/// In place of a mark of the workload: a launch begins.
pub const BEGINS: u32 = u32::MAX;

/// What was counted up to a mark, from the start.
#[derive(Debug, Clone)]
pub struct Snap {
    /// Which mark of the workload.
    pub mark: u32,
    /// Time of the programs with all their waiting, beside which reclaim and the device work, ns.
    pub at: u64,
    /// The same if there is one processor and one device, and all is done one after the other, ns.
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
    /// Blocks of the swap tier that are in use.
    pub blocks: u64,
    /// Applications that were killed.
    pub kills: u64,
}

/// What came of a simulation.
#[derive(Debug, Clone)]
pub struct Run {
    /// Before anything was done.
    pub start: Snap,
    /// At each mark.
    pub snaps: Vec<Snap>,
    /// At the end.
    pub end: Snap,
}

impl Run {
    /// At that mark, the first time.
    pub fn mark(&self, mark: u32) -> Option<&Snap> {
        self.snaps.iter().find(|snap| snap.mark == mark)
    }

    /// At that mark, or where it is not reached at the start: recordings have no marks of their
    /// programs.
    pub fn mark_or_start(&self, mark: u32) -> &Snap {
        self.mark(mark).unwrap_or(&self.start)
    }

    /// Most frames of the pool at any mark.
    pub fn most_frames(&self) -> u64 {
        self.snaps.iter().map(|snap| snap.frames).max().unwrap_or(0)
    }

    /// Launches: the mark at the end of each, its time in ns, and the counts at its end.
    pub fn launches(&self) -> impl Iterator<Item = (u32, u64, &Snap)> {
        let mut begins = None;
        self.snaps.iter().filter_map(move |snap| match snap.mark {
            LOOKED => None,
            BEGINS => {
                begins = Some(snap.at);
                None
            }
            mark => begins.take().map(|began| (mark, snap.at - began, snap)),
        })
    }
}

/// What came of all of them, by workload and configuration.
#[derive(Debug, Default)]
pub struct Runs(HashMap<(String, String), Run>);

impl Runs {
    /// One of them.
    pub fn get(&self, workload: &str, config: &str) -> Option<&Run> {
        self.0.get(&(workload.to_owned(), config.to_owned()))
    }

    /// What `of` makes of one, in terms of what it makes of the other.
    pub fn quotient(&self, workload: &str, config: &str, other: &str, of: impl Fn(&Run) -> f64) -> Option<f64> {
        Some(of(self.get(workload, config)?) / of(self.get(workload, other)?))
    }
}

/// A setup. What is wrong with the names is a mistake in a table here.
///
/// # Panics
/// If there is no such preset, or an override cannot be.
pub fn setup(
    (preset, overrides): (&str, &[String]),
    budget: f64,
    swap: f64,
    costs: &Arc<CostTable>,
    device: &Arc<Device>,
) -> Setup {
    let scheme = Scheme::preset(preset, overrides).unwrap_or_else(|| panic!("no preset {preset}"));
    Setup {
        scheme: Arc::new(scheme.unwrap_or_else(|error| panic!("{preset}: {error}"))),
        budget: pages(budget) * 4096,
        swap_bytes: pages(swap) * 4096,
        residents: Residents::Simulated,
        rate: 1.0,
        costs: Arc::clone(costs),
        device: Arc::clone(device),
    }
}

/// Their mean; of none there is none.
pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

/// Whole pages of so many bytes.
fn pages(bytes: f64) -> u64 {
    (bytes / 4096.0).round() as u64
}

/// A device that is built in.
///
/// # Panics
/// If there is none of this name.
pub fn device(name: &str) -> Arc<Device> {
    Arc::new(Device::find(name).unwrap_or_else(|error| panic!("{error}")))
}

/// A table of costs that is built in, or its text.
///
/// # Panics
/// If there is none of this name, or the text is wrong.
pub fn costs(name_or_text: &str) -> Arc<CostTable> {
    let table = match name_or_text.contains('=') {
        true => CostTable::parse(name_or_text),
        false => CostTable::find(name_or_text),
    };
    Arc::new(table.unwrap_or_else(|error| panic!("{error}")))
}

/// A machine that is watched.
pub struct Watched<'a> {
    /// The machine itself.
    pub machine: Machine,
    /// What it was made from.
    pub setup: &'a Setup,
    /// What was seen so far.
    pub snaps: Vec<Snap>,
    /// Applications that were killed so far.
    pub kills: u64,
    near: Near,
}

/// Reads that the device's own buffer answers: of the page after the one that was read last, with
/// no other transfer between. It lies in the same block or in the next one, since pages leave in
/// their order; the simulator counts the second read of a block as one anywhere.
#[derive(Default)]
struct Near {
    last: Option<(u32, u64)>,
    writes: u64,
    count: u64,
}

impl Near {
    /// After a touch, with the reads before it.
    fn look(&mut self, proc: u32, page: u64, before: Transfers, tally: &Tally) {
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
    /// With nothing in it.
    pub fn new(setup: &Setup) -> Watched<'_> {
        Watched {
            machine: Machine::new(setup, Contents::new()),
            setup,
            snaps: Vec::new(),
            kills: 0,
            near: Near::default(),
        }
    }

    /// Does what happens next, and takes note of all counts at the workload's marks.
    pub fn event(&mut self, event: Event) {
        let before = self.machine.tally().reads;
        self.machine.event(event);
        match event {
            Event::Touches { proc, page, .. } => self.near.look(proc, page, before, self.machine.tally()),
            Event::Reaches { mark } => self.mark(mark),
            _ => {}
        }
    }

    /// Takes note of all counts.
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
            blocks: u64::from(core.blocks_in_use()),
            kills: self.kills,
        }
    }
}

/// One processor and one device: everything takes its time one after the other, ns.
fn serial_ns(tally: &Tally, times: &Times, setup: &Setup) -> u64 {
    // What cleaning reads is priced below: one after the other.
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
        Load::Made(spec) => (spec, None),
        Load::Launches(spec, pause) => (spec, Some(*pause)),
    };
    let spec = Spec::parse(spec).unwrap_or_else(|error| panic!("{error}"));
    for event in spec.make() {
        watched.event(event);
        if matches!(event, Event::Computes { ns } if Some(ns) == pause) {
            watched.mark(BEGINS);
        }
    }
    ended(start, watched)
}

fn ended(start: Snap, watched: Watched<'_>) -> Run {
    let end = watched.snap(BEGINS);
    Run { start, snaps: watched.snaps, end }
}

/// Does all of them, on so many threads; `progress` is told how many are done.
///
/// # Panics
/// If two have the same name, or a workload cannot be read: mistakes in the tables here.
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
