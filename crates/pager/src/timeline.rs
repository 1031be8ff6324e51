//! What a run did over time, for its report: samples at a bounded number, and memory by process. No
//! clock and no I/O: the monitor brings the numbers, and this keeps what is worth it.
//!
//! A sample is taken every 20 ms, or as often as the monitor adds a reading. When there are
//! [`SAMPLES_MAX`], each two become one and the interval doubles: an hour has one every 2.6 s. Of
//! all readings between two samples, and of two samples that become one, the one with the highest
//! total is kept as it was, so that its parts add up to it and the peak of the run stays. Counts go
//! on from the start of the run, so the later ones of two hold both.
//!
//! Bounded: a sample takes 200 bytes and 8 for each of up to 32 processes, so all of them 1 MiB at
//! most; for a moment half of that again, when they are halved, and as text when the run has ended.

use crate::regions::Region;
use memfit_core::PAGE_BYTES;
use memfit_stats::SOURCES;
use serde::{Deserialize, Serialize};

/// Most samples that are kept.
pub const SAMPLES_MAX: usize = 2048;
/// Most processes that are told apart in the end: those that had most at a time.
pub const PROCESSES_MAX: usize = 16;
/// Largest processes that a sample holds. One of the largest of the run is one of the largest at
/// its peak, so none is missed; while more than so many others are larger it counts among the
/// others.
const LISTED: usize = 32;
/// Nanoseconds between two samples at first.
const INTERVAL_NS: u64 = 20_000_000;

/// Where memory was at a moment; bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes {
    /// All that counts towards the budget: the sum of the next five.
    pub total: u64,
    /// In the programs' memory, and known to the pager: can be taken out.
    pub resident: u64,
    /// In the programs' memory, and not registered; and the pager's and launcher's own memory but
    /// the tables.
    pub unmanaged: u64,
    /// Taken out, and neither compressed nor written yet.
    pub staged: u64,
    /// The compressed pool.
    pub pool: u64,
    /// Tables of the pager.
    pub metadata: u64,
    /// In use in the swap tier; not in RAM.
    pub swap: u64,
    /// What the pages in the pool were before they were compressed.
    pub pooled: u64,
    /// What the pages in the swap tier were before.
    pub swapped: u64,
}

impl Bytes {
    /// Makes the parts add up to the total: it comes from the kernel, some moments before the
    /// pager's own figures.
    #[must_use]
    pub fn scaled_to_total(mut self) -> Bytes {
        let mut left = self.total;
        for part in [&mut self.metadata, &mut self.staged, &mut self.pool, &mut self.resident] {
            *part = left.min(*part);
            left -= *part;
        }
        self.unmanaged = left;
        self
    }
}

/// What was done since the start of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Faults by where the page came from, in the order of [`SOURCES`].
    pub faults: [u64; SOURCES.len()],
    /// Pages taken out of programs.
    pub evicted: u64,
    /// Bytes read from the swap tier.
    pub swap_read: u64,
    /// Bytes written to it.
    pub swap_written: u64,
    /// Pages that were compressed.
    pub compressed: u64,
    /// Their bytes before.
    pub in_bytes: u64,
    /// Their bytes afterwards.
    pub out_bytes: u64,
}

/// A moment of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The end of what it stands for, nanoseconds since the start of the pager.
    pub at_ns: u64,
    /// The moment with the highest total since the sample before it; but the swap tier's use is its
    /// own highest.
    pub bytes: Bytes,
    /// Up to its end.
    pub counts: Counts,
}

/// Memory of a process over the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessCourse {
    /// Its number.
    pub pid: i32,
    /// Its name when it had most.
    pub comm: String,
    /// Its own anonymous and shared memory that was resident, bytes, for each sample; 0 where there
    /// is none.
    pub bytes: Vec<u64>,
}

/// How long faults took, as a histogram for each source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultTimes {
    /// Where the classes begin, and where the last one ends; nanoseconds.
    pub bounds_ns: Vec<u64>,
    /// Faults of each source in each class, in the order of [`SOURCES`].
    pub counts: Vec<Vec<u64>>,
}

/// A run from its start to its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Course {
    /// In the order of time.
    pub samples: Vec<Sample>,
    /// The up to [`PROCESSES_MAX`] largest processes, the one that had most first.
    pub processes: Vec<ProcessCourse>,
    /// All others together, bytes, for each sample.
    pub others: Vec<u64>,
    /// Over the whole run.
    pub fault_times: FaultTimes,
    /// What became of pages by where they were, the largest region first.
    pub regions: Vec<Region>,
}

/// A process in a reading: number, name, bytes.
pub type Seen<'a> = (i32, &'a str, u64);

/// Bytes and processes of the same moment.
#[derive(Debug, Clone, Default)]
struct Reading {
    bytes: Bytes,
    /// Number and pages; those that have none are left out.
    processes: Box<[(i32, u32)]>,
    others: u64,
}

impl Reading {
    /// Of two, that with the higher total.
    fn or(self, other: Reading) -> Reading {
        let swap = self.bytes.swap.max(other.bytes.swap);
        let mut higher = if other.bytes.total > self.bytes.total { other } else { self };
        higher.bytes.swap = swap;
        higher
    }
}

#[derive(Debug)]
struct Kept {
    at_ns: u64,
    reading: Reading,
    counts: Counts,
}

#[derive(Debug)]
struct Largest {
    pid: i32,
    comm: String,
    peak: u64,
}

/// Keeps the samples of a run.
#[derive(Debug)]
pub struct Timeline {
    interval_ns: u64,
    /// When the next sample is due.
    next_ns: u64,
    samples: Vec<Kept>,
    /// The highest reading since the last sample.
    highest: Option<Reading>,
    /// Processes that have had most so far.
    largest: Vec<Largest>,
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline { interval_ns: INTERVAL_NS, next_ns: 0, samples: Vec::new(), highest: None, largest: Vec::new() }
    }
}

impl Timeline {
    /// Whether a reading with that total would be kept for now: of all others only the swap tier's
    /// use need be taken ([`Timeline::swap_in_use`]).
    pub fn wants(&self, total: u64) -> bool {
        self.highest.as_ref().is_none_or(|reading| total > reading.bytes.total)
    }

    /// A reading. `others`: bytes of processes that are not told apart.
    pub fn add<'a>(&mut self, bytes: Bytes, processes: impl Iterator<Item = Seen<'a>>, mut others: u64) {
        let mut all: Vec<Seen<'a>> = processes.filter(|(_, _, bytes)| *bytes >= PAGE_BYTES).collect();
        all.sort_unstable_by_key(|(pid, _, bytes)| (std::cmp::Reverse(*bytes), *pid));
        for &(pid, comm, bytes) in all.iter().take(PROCESSES_MAX) {
            self.rank(pid, comm, bytes);
        }
        others += all.iter().skip(LISTED).map(|(_, _, bytes)| bytes).sum::<u64>();
        let pages = |bytes: u64| u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX);
        let listed = all.iter().take(LISTED).map(|&(pid, _, bytes)| (pid, pages(bytes))).collect();
        let reading = Reading { bytes: bytes.scaled_to_total(), processes: listed, others };
        self.highest = Some(match self.highest.take() {
            Some(before) => before.or(reading),
            None => reading,
        });
    }

    /// A reading of the swap tier's use alone, beside the highest total.
    pub fn swap_in_use(&mut self, bytes: u64) {
        if let Some(highest) = &mut self.highest {
            highest.bytes.swap = highest.bytes.swap.max(bytes);
        }
    }

    fn rank(&mut self, pid: i32, comm: &str, bytes: u64) {
        match self.largest.iter_mut().find(|known| known.pid == pid) {
            Some(known) if known.peak >= bytes => return,
            Some(known) => {
                known.peak = bytes;
                if known.comm != comm {
                    comm.clone_into(&mut known.comm);
                }
            }
            None => self.largest.push(Largest { pid, comm: comm.to_owned(), peak: bytes }),
        }
        // Stable: among equals the first one stays.
        self.largest.sort_by_key(|known| std::cmp::Reverse(known.peak));
        self.largest.truncate(PROCESSES_MAX);
    }

    /// Whether it is time for a sample.
    pub fn is_due(&self, at_ns: u64) -> bool {
        at_ns >= self.next_ns && self.highest.is_some()
    }

    /// Ends a sample: what was seen since the last one, and the counts now.
    pub fn close(&mut self, at_ns: u64, counts: Counts) {
        let Some(reading) = self.highest.take() else { return };
        self.samples.push(Kept { at_ns, reading, counts });
        if self.samples.len() >= SAMPLES_MAX {
            self.halve();
        }
        self.next_ns = at_ns + self.interval_ns;
    }

    /// Each two become one.
    fn halve(&mut self) {
        let mut old = std::mem::take(&mut self.samples).into_iter();
        self.samples.reserve_exact(SAMPLES_MAX / 2);
        while let Some(first) = old.next() {
            self.samples.push(match old.next() {
                None => first,
                Some(second) => Kept { reading: first.reading.or(second.reading), ..second },
            });
        }
        self.interval_ns *= 2;
    }

    /// All that was kept; ended by [`Timeline::close`].
    pub fn course(&self, fault_times: FaultTimes) -> Course {
        let pages =
            |kept: &Kept, pid: i32| kept.reading.processes.iter().find(|(other, _)| *other == pid).map_or(0, |p| p.1);
        let of = |known: &Largest| ProcessCourse {
            pid: known.pid,
            comm: known.comm.clone(),
            bytes: self.samples.iter().map(|kept| u64::from(pages(kept, known.pid)) * PAGE_BYTES).collect(),
        };
        let told = |pid: i32| self.largest.iter().any(|known| known.pid == pid);
        let rest = |kept: &Kept| {
            let listed = kept.reading.processes.iter().filter(|(pid, _)| !told(*pid));
            kept.reading.others + listed.map(|(_, pages)| u64::from(*pages) * PAGE_BYTES).sum::<u64>()
        };
        let sample = |kept: &Kept| Sample { at_ns: kept.at_ns, bytes: kept.reading.bytes, counts: kept.counts };
        Course {
            samples: self.samples.iter().map(sample).collect(),
            processes: self.largest.iter().map(of).collect(),
            others: self.samples.iter().map(rest).collect(),
            regions: Vec::new(),
            fault_times,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const MIB: u64 = 1 << 20;

    fn bytes(total: u64) -> Bytes {
        Bytes { total, resident: total / 2, pool: total / 4, ..Bytes::default() }
    }

    /// A run with a reading every 50 ms, of that total at each.
    fn run(readings: u64, total: impl Fn(u64) -> u64) -> Timeline {
        let mut timeline = Timeline::default();
        for reading in 0..readings {
            let at = reading * 50 * MS;
            let swap = if reading == readings / 3 { 77 * MIB } else { MIB };
            if timeline.wants(total(reading)) {
                timeline.add(Bytes { swap, ..bytes(total(reading)) }, [(1, "one", total(reading))].into_iter(), 0);
            }
            if timeline.is_due(at) {
                timeline
                    .close(at, Counts { evicted: reading, faults: [0, 0, 0, reading * 2, 0, 0], ..Counts::default() });
            }
        }
        timeline
    }

    #[test]
    fn a_short_run_has_a_sample_for_each_reading() {
        let course = run(101, |_| MIB).course(FaultTimes::default());
        assert_eq!(course.samples.len(), 101);
        assert!(course.samples.windows(2).all(|pair| pair[1].at_ns - pair[0].at_ns == 50 * MS));
    }

    #[test]
    fn an_hour_keeps_its_peak_and_its_counts() {
        let readings = 20 * 3600;
        let course = run(readings, |reading| if reading == 31_337 { 500 * MIB } else { 10 * MIB + reading })
            .course(FaultTimes::default());
        let samples = &course.samples;
        assert!(samples.len() > SAMPLES_MAX / 2 - 2 && samples.len() < SAMPLES_MAX, "{}", samples.len());
        let highest = samples.iter().max_by_key(|sample| sample.bytes.total).unwrap();
        assert_eq!(highest.bytes, Bytes { swap: MIB, ..bytes(500 * MIB).scaled_to_total() }, "as it was");
        assert!(highest.at_ns.abs_diff(31_337 * 50 * MS) <= 3200 * MS, "{}", highest.at_ns);
        assert_eq!(course.processes[0].bytes.iter().max(), Some(&(500 * MIB)));
        assert!(samples.is_sorted_by_key(|sample| sample.at_ns) && samples.is_sorted_by_key(|s| s.counts.evicted));
        let last = samples.last().unwrap();
        assert!(last.counts.evicted > readings - 70 && last.counts.faults[3] == last.counts.evicted * 2);
        // Less would be shown than what there was.
        let text = serde_json::to_string(&course).unwrap();
        assert!(text.len() < 1 << 20, "{}", text.len());
    }

    #[test]
    fn the_highest_of_what_is_put_together_stays() {
        let mut timeline = Timeline::default();
        for (at, total, swap) in [(0, 10, 5), (100, 30, 1), (200, 20, 9), (300, 7, 2), (400, 8, 0)] {
            timeline.add(Bytes { total, swap, ..Bytes::default() }, std::iter::empty(), total);
            timeline.close(at, Counts { evicted: at, ..Counts::default() });
        }
        timeline.halve();
        let course = timeline.course(FaultTimes::default());
        let seen = course.samples.iter().map(|s| (s.at_ns, s.bytes.total, s.bytes.swap, s.counts.evicted));
        assert_eq!(seen.collect::<Vec<_>>(), [(100, 30, 5, 100), (300, 20, 9, 300), (400, 8, 0, 400)]);
        assert_eq!(course.others, [30, 20, 8]);
        assert_eq!(timeline.interval_ns, 2 * INTERVAL_NS);
    }

    #[test]
    fn the_swap_tier_can_have_its_peak_while_memory_has_none() {
        let mut timeline = Timeline::default();
        timeline.swap_in_use(7 * MIB);
        for (total, swap) in [(10 * MIB, MIB), (9 * MIB, 5 * MIB), (8 * MIB, 2 * MIB)] {
            match timeline.wants(total) {
                true => timeline.add(Bytes { swap, ..bytes(total) }, std::iter::empty(), 0),
                false => timeline.swap_in_use(swap),
            }
        }
        timeline.close(0, Counts::default());
        let sample = timeline.course(FaultTimes::default()).samples[0];
        assert_eq!((sample.bytes.total, sample.bytes.swap), (10 * MIB, 5 * MIB));
    }

    #[test]
    fn memory_is_bounded() {
        let mut timeline = Timeline::default();
        for reading in 0..20_000u64 {
            // 200 processes at a time, and no two readings have one in common.
            let processes = (0..200).map(|n| ((reading * 200 + n) as i32, "name", (n + 1) * MIB));
            timeline.add(bytes(MIB), processes, 0);
            timeline.close(reading * 100 * MS, Counts::default());
        }
        assert!(timeline.samples.len() < SAMPLES_MAX && timeline.samples.capacity() <= SAMPLES_MAX);
        assert!(timeline.samples.iter().all(|kept| kept.reading.processes.len() <= LISTED));
        assert_eq!(timeline.largest.len(), PROCESSES_MAX);
        assert!(SAMPLES_MAX * (size_of::<Kept>() + LISTED * size_of::<(i32, u32)>()) <= 1 << 20, "as documented");
    }

    #[test]
    fn the_largest_processes_of_the_run_are_told_apart() {
        let mut timeline = Timeline::default();
        // 40 processes, one after the other the largest; each has been small before.
        for turn in 0..40 {
            let processes = (0..40).map(|n| (n, "worker", if n == turn { (10 + n as u64) * MIB } else { MIB }));
            timeline.add(bytes(100 * MIB), processes, 3 * MIB);
            timeline.close(turn as u64, Counts::default());
        }
        let course = timeline.course(FaultTimes::default());
        assert_eq!(course.processes.iter().map(|p| p.pid).collect::<Vec<_>>(), (24..40).rev().collect::<Vec<_>>());
        for (at, sample) in course.samples.iter().enumerate() {
            let sum = course.processes.iter().map(|process| process.bytes[at]).sum::<u64>() + course.others[at];
            assert_eq!(sum, (10 + sample.at_ns + 39 + 3) * MIB, "nobody is lost or counted twice");
        }
        assert_eq!(course.processes[0].bytes[39], 49 * MIB);
    }

    #[test]
    fn a_program_that_becomes_another_has_the_name_of_when_it_was_largest() {
        let mut timeline = Timeline::default();
        for (comm, bytes) in [("sh", MIB), ("python3", 9 * MIB), ("true", MIB)] {
            timeline.add(Bytes::default(), [(7, comm, bytes)].into_iter(), 0);
        }
        assert_eq!((timeline.largest.len(), timeline.largest[0].comm.as_str()), (1, "python3"));
    }

    #[test]
    fn parts_add_up_to_the_total() {
        let odd = Bytes { total: 10, resident: 9, staged: 2, pool: 3, metadata: 1, ..Bytes::default() };
        let parts = |b: Bytes| [b.resident, b.unmanaged, b.staged, b.pool, b.metadata];
        assert_eq!(parts(odd.scaled_to_total()), [4, 0, 2, 3, 1]);
        assert_eq!(parts(Bytes { total: 20, ..odd }.scaled_to_total()), [9, 5, 2, 3, 1]);
    }

    #[test]
    fn nothing_seen_is_nothing_kept() {
        let mut timeline = Timeline::default();
        assert!(!timeline.is_due(u64::MAX));
        timeline.close(5, Counts::default());
        assert_eq!(timeline.course(FaultTimes::default()), Course::default());
    }
}
