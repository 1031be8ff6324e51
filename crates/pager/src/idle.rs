//! Which processes can have changed since the monitor's last sample.
//!
//! Who fills memory, or makes a thread, gets a CPU. To ask for the CPU time of a process takes 0.3
//! us, and to read its sizes 1.4, its threads 20. So a sample asks for the time, and looks at those
//! alone that have run. Memory can also change while no thread of its process runs: a vfork child
//! has it, another process writes to it, the kernel makes huge pages of it. A process that lends
//! its memory counts as one that runs. So do those that ran a moment ago, which may do so unknown
//! to us, unless there are many processes. All else is found in rotation.

use crate::clients::Client;
use memfit_os::procfs::{self, Rss};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Processes whose CPU time is read for each millisecond between two samples: a sixteenth of a CPU.
/// More are read in turn. That of 400 is as often as their sizes could be read, each one in each
/// sample.
const CLOCKS: usize = 256;
/// Processes whose sizes are read for each millisecond though their CPU time is as before. If there
/// are no more of them, those that ran a moment ago are read in each sample.
const SIZES: usize = 16;
/// How long a process counts as one that runs: longer than it takes to find who has its memory.
pub const RESTS_AFTER: Duration = Duration::from_millis(600);

/// Some of many, in turn.
#[derive(Debug, Default)]
struct Rotation(usize);

impl Rotation {
    /// The next so many of `all`.
    fn turn(&mut self, all: usize, most: usize) -> impl Fn(usize) -> bool {
        let from = self.0 % all.max(1);
        self.0 = from + most;
        move |index| (index + all - from) % all < most
    }
}

/// Whose turn it is.
#[derive(Debug, Default)]
pub struct Turns {
    clocks: Rotation,
    sizes: Rotation,
}

/// What is read of a process at rest in this sample.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    pub clock: bool,
    pub size: bool,
    /// There are so few that no size need wait for its turn.
    pub few: bool,
}

impl Turns {
    /// Of all of so many, so long after the last sample.
    pub fn next(&mut self, all: usize, elapsed: Duration) -> impl Fn(usize) -> Turn {
        let ms = elapsed.as_millis().clamp(1, 1000) as usize;
        let (clock, size) = (self.clocks.turn(all, CLOCKS * ms), self.sizes.turn(all, SIZES * ms));
        move |index| Turn { clock: clock(index), size: size(index), few: all <= SIZES }
    }
}

/// What the monitor has seen of a process.
#[derive(Debug, Default)]
pub struct Watch {
    cpu: Option<Duration>,
    /// When it was seen to have run.
    ran: Option<Instant>,
    /// Its sizes, as last read.
    pub rss: Rss,
    /// It may have memory or threads that nobody has looked for.
    pub not_drained: bool,
}

impl Watch {
    /// Whether its sizes must be read. `cpu` reads how long it has run; one that has ended tells
    /// nothing.
    pub fn is_due(&mut self, turn: Turn, now: Instant, cpu: impl FnOnce() -> Option<Duration>) -> bool {
        let restless = self.ran_within(RESTS_AFTER, now);
        if restless || turn.clock {
            let cpu = cpu();
            if cpu.is_none() || cpu != self.cpu {
                (self.cpu, self.ran, self.not_drained) = (cpu, Some(now), true);
                return true;
            }
        }
        (restless && turn.few) || turn.size
    }

    /// The CPU time that it had then.
    pub fn cpu(&self) -> Option<Duration> {
        self.cpu
    }

    /// Whether it was seen to have run so lately. One that nobody has seen may have.
    pub fn ran_within(&self, limit: Duration, now: Instant) -> bool {
        self.ran.is_none_or(|ran| now.duration_since(ran) <= limit)
    }
}

/// The sizes of a process, as far as they can have changed; `None` once it is gone.
pub fn size(client: &Client, turn: Turn, now: Instant) -> Option<Rss> {
    let mut watch = client.watch.lock();
    // Others, or we, can fill its memory while it waits.
    let filled = || client.proc.lock().as_ref().is_some_and(|proc| proc.at_rest());
    if watch.is_due(turn, now, || procfs::cpu_clock(client.pid)) || client.lends.load(Relaxed) || filled() {
        let Ok(rss) = client.rss.sample() else {
            *watch = Watch::default();
            return None;
        };
        watch.not_drained |= rss != watch.rss;
        watch.rss = rss;
    }
    Some(watch.rss)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const NONE: Turn = Turn { clock: false, size: false, few: true };
    const CLOCK: Turn = Turn { clock: true, ..NONE };

    #[test]
    fn who_runs_is_looked_at_and_who_rests_in_turn() {
        let (mut watch, start) = (Watch::default(), Instant::now());
        let at = |ms: u32| start + MS * ms;
        let cpu = |ns| move || Some(Duration::from_nanos(ns));
        assert!(watch.is_due(NONE, start, cpu(5)), "it is new");
        assert!(watch.is_due(NONE, at(500), cpu(5)), "it may have lent its memory");
        assert!(!watch.is_due(Turn { few: false, ..NONE }, at(500), cpu(5)), "of many, in turn");
        assert!(!watch.is_due(CLOCK, at(700), cpu(5)) && !watch.is_due(NONE, at(700), || unreachable!()));
        assert!(watch.is_due(Turn { size: true, ..NONE }, at(700), || unreachable!()));
        watch.not_drained = false;
        assert!(watch.is_due(CLOCK, at(701), cpu(6)) && watch.not_drained, "it has run");
        assert!(watch.ran_within(MS, at(702)) && !watch.ran_within(MS, at(703)));
        assert!(watch.is_due(CLOCK, at(2000), || None), "it has ended, and its sizes cannot be read");
    }

    /// A program that wakes is seen at once if there are few, and of many after as many
    /// milliseconds as it takes to read all at [`CLOCKS`].
    #[test]
    fn everybody_is_asked_in_time() {
        for (all, elapsed, samples) in [(1, 1, 1), (256, 1, 1), (300, 1, 2), (3000, 1, 12), (3000, 4, 3), (300, 0, 2)] {
            let (mut turns, mut last) = (Turns::default(), vec![0; all]);
            for sample in 1..200 {
                let turn = turns.next(all, MS * elapsed);
                let asked: Vec<usize> = (0..all).filter(|&index| turn(index).clock).collect();
                assert!(asked.len() <= CLOCKS * elapsed.max(1) as usize);
                asked.into_iter().for_each(|index| last[index] = sample);
                assert!(last.iter().all(|last| sample - last < samples), "{all} processes, each {elapsed} ms");
            }
        }
    }
}
