//! What a run did: the statistics (`schema`), one line for people, fault latencies.

use crate::clients::{Client, Past, REFUSED};
use crate::config::{Order, ToPager};
use crate::control::Desk;
use crate::meters::{CodecCount, Meters};
use crate::regions::Regions;
use crate::state::{Shared, State};
use crate::timeline::{Counts, Course, FaultTimes};
use memfit_core::{Counters, Source};
use memfit_os::procfs::RssReader;
use memfit_stats::{Codec, Evictions, Exit, FaultLatency, Faults, Files, Lock, Memory, Monitor, Now};
use memfit_stats::{Pages, Pool, Process, Quantiles, Rejected, Stats, Swap, Transitions, SOURCES};
use memfit_trace::{fitting, shorten_words};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

/// Sources of a fault's page, for latencies; in the order of [`SOURCES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SourceKind {
    Zero,
    Staged,
    Filled,
    Pool,
    Swap,
    File,
}

impl SourceKind {
    /// Of one load.
    pub fn of(source: &Source) -> SourceKind {
        match source {
            Source::Zero => SourceKind::Zero,
            Source::Staged(_) => SourceKind::Staged,
            Source::Word(_) => SourceKind::Filled,
            Source::Pooled { .. } => SourceKind::Pool,
            Source::Swapped { .. } => SourceKind::Swap,
            Source::File => SourceKind::File,
        }
    }
}

/// Eight buckets an octave from 256 ns on; what is shorter is in the first one.
const SHORTEST: u64 = 256;
const BUCKETS: usize = 8 * 27;
/// Reads over which their mean runs.
const READS: u64 = 64;

#[derive(Debug)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    max_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: [const { AtomicU64::new(0) }; BUCKETS], max_ns: AtomicU64::new(0) }
    }
}

/// Time from reading a fault to waking its thread, by source.
#[derive(Debug, Default)]
pub struct Latency {
    by_source: [Histogram; SOURCES.len()],
    /// Running mean of the times of reads from the swap tier in faults, ns.
    read_ns: AtomicU64,
}

fn bucket(ns: u64) -> usize {
    let scaled = ns.max(SHORTEST);
    let octave = 63 - scaled.leading_zeros() as usize;
    let part = (scaled >> (octave - 3)) as usize & 7;
    ((octave - 8) * 8 + part).min(BUCKETS - 1)
}

/// Upper bound of a bucket, ns.
fn bound(bucket: usize) -> u64 {
    let (octave, part) = (bucket / 8 + 8, bucket as u64 % 8);
    (9 + part) << (octave - 3)
}

impl Latency {
    /// One fault.
    pub fn record(&self, source: SourceKind, time: Duration) {
        let ns = time.as_nanos() as u64;
        let histogram = &self.by_source[source as usize];
        histogram.buckets[bucket(ns)].fetch_add(1, Relaxed);
        histogram.max_ns.fetch_max(ns, Relaxed);
    }

    /// One read from the swap tier in a fault.
    pub fn read(&self, time: Duration) {
        let (ns, mean) = (time.as_nanos() as u64, self.read_ns.load(Relaxed));
        // Threads may lose a value of each other.
        self.read_ns.store(if mean == 0 { ns } else { mean - mean / READS + ns / READS }, Relaxed);
    }

    /// Running mean of these times, us; 0 before the first one.
    pub fn mean_read_us(&self) -> u32 {
        u32::try_from(self.read_ns.load(Relaxed).div_ceil(1000)).unwrap_or(u32::MAX)
    }

    fn quantiles(&self, sources: Range<usize>) -> Quantiles {
        let mut counts = [0u64; BUCKETS];
        let mut max = 0;
        for histogram in &self.by_source[sources] {
            for (sum, bucket) in counts.iter_mut().zip(&histogram.buckets) {
                *sum += bucket.load(Relaxed);
            }
            max = max.max(histogram.max_ns.load(Relaxed));
        }
        let total: u64 = counts.iter().sum();
        let quantile = |permille: u64| {
            let mut left = (total * permille).div_ceil(1000).max(1);
            for (i, &count) in counts.iter().enumerate() {
                if count >= left {
                    return bound(i).min(max);
                }
                left -= count;
            }
            0
        };
        Quantiles { count: total, p50: quantile(500), p90: quantile(900), p99: quantile(990), max }
    }

    /// Faults by source.
    fn counts(&self) -> [u64; SOURCES.len()] {
        self.by_source.each_ref().map(|histogram| histogram.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum())
    }

    /// All of it, from the first class that has a fault to the last one.
    fn times(&self) -> FaultTimes {
        let counts = self.by_source.each_ref().map(|histogram| histogram.buckets.each_ref().map(|b| b.load(Relaxed)));
        let used = |class: &usize| counts.iter().any(|source| source[*class] > 0);
        let (Some(first), Some(last)) = ((0..BUCKETS).find(used), (0..BUCKETS).rfind(used)) else {
            return FaultTimes::default();
        };
        let begin = |class: usize| if class == 0 { SHORTEST } else { bound(class - 1) };
        FaultTimes {
            bounds_ns: (first..=last + 1).map(begin).collect(),
            counts: counts.iter().map(|source| source[first..=last].to_vec()).collect(),
        }
    }

    fn summary(&self) -> FaultLatency {
        let by_source: [Quantiles; SOURCES.len()] = std::array::from_fn(|source| self.quantiles(source..source + 1));
        FaultLatency { all: self.quantiles(0..SOURCES.len()), by_source: by_source.into() }
    }
}

/// By name: the numbers of trained dictionaries share one.
fn codecs(shared: &Shared) -> BTreeMap<String, Codec> {
    let mut rows: BTreeMap<String, Codec> = BTreeMap::new();
    for (id, count) in shared.meters.codecs.iter().enumerate() {
        let pages = count.pages.load(Relaxed);
        if let (Some(name), true) = (memfit_codec::CodecId(id as u8).name(), pages > 0) {
            let row = rows.entry(name.to_owned()).or_default();
            row.pages += pages;
            row.in_bytes += count.in_bytes.load(Relaxed);
            row.out_bytes += count.out_bytes.load(Relaxed);
        }
    }
    rows
}

/// About 170 bytes each; a packet of 200 KB can be sent by default.
const PROCESSES_IN_A_PACKET: usize = 500;
/// Bytes of the command in a packet, and of the warnings.
const TEXT_IN_A_PACKET: usize = 16 << 10;

/// What is asked of a running pager, as JSON; keys that are not known are no matter.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Question {
    /// Without what takes time in proportion to the tree: for those who ask every second. The pages
    /// by state are counted under the core's lock, and of ended processes there can be many.
    pub brief: bool,
    /// Something else is asked: the answer is a [`Told`](crate::config::Told).
    pub order: Option<Order>,
}

/// One row a pid: a program that execs says hello again.
fn processes(desk: &Desk, brief: bool) -> Vec<Process> {
    let mut past: Vec<Process> = desk.past.lock().iter().map(Past::row).collect();
    let clients = desk.clients.lock().clone();
    let known: HashSet<i32> = clients.iter().map(|client| client.pid).collect();
    if brief {
        past.retain(|row| known.contains(&row.pid));
    }
    let mut unpaged = desk.unpaged.lock().clone();
    unpaged.retain(|row| !known.contains(&row.pid));
    // The monitor looks for them rarely.
    let lives =
        |row: &&mut Process| RssReader::open(row.pid).and_then(|rss| rss.read()).is_ok_and(|rss| rss.mapped > 0);
    unpaged.iter_mut().filter(|row| !lives(row)).for_each(|row| (row.running, row.resident_bytes) = (false, 0));
    let why: HashMap<i32, &str> = desk.detached.lock().why.iter().map(|(&pid, why)| (pid, why.text())).collect();
    let of_client = |client: &Arc<Client>| {
        let refused = client.stage.load(Relaxed) == REFUSED;
        let why = why.get(&client.pid).copied().unwrap_or("a warning of the run says why");
        Process { why_not_paged: refused.then(|| why.to_owned()), ..client.row() }
    };
    let mut rows: BTreeMap<i32, Process> = BTreeMap::new();
    for new in past.into_iter().chain(unpaged).chain(clients.iter().map(of_client)) {
        let row = rows.entry(new.pid).or_default();
        *row = Process {
            peak_total_bytes: row.peak_total_bytes.max(new.peak_total_bytes),
            faults: row.faults + new.faults,
            evicted_pages: row.evicted_pages + new.evicted_pages,
            paged: row.paged || new.paged,
            ..new
        };
    }
    rows.into_values().collect()
}

/// Bytes in an hour at the pace of the run.
fn per_hour(bytes: u64, wall: Duration) -> u64 {
    (bytes as f64 * 3600.0 / wall.as_secs_f64().max(1e-3)) as u64
}

/// How long a device of this endurance lasts at this pace, days; `None` for ever.
fn days(rated_bytes: u64, bytes_per_hour: u64) -> Option<f64> {
    (bytes_per_hour > 0).then(|| (rated_bytes as f64 / bytes_per_hour as f64 / 24.0 * 10.0).round() / 10.0)
}

/// A part of the statistics: fields that have the same names in the counters, and others.
macro_rules! part {
    ($part:ident of $counters:expr, $($same:ident)* $(; $($field:ident: $value:expr),+)?) => {
        $part { $($same: $counters.$same,)* $($($field: $value,)+)? }
    };
}

/// The core counts as faults also pages that come back without one, and takes the first fault of a
/// page of a file for one of new memory. So their number is that of the latencies.
fn faults(c: &Counters, meters: &Meters, latency: &FaultLatency) -> Faults {
    let by_source = latency.by_source.values().map(|times| times.count);
    part!(Faults of c,
        zero_run_pages;
        total: by_source.iter().sum(), by_source: by_source.into(), present: c.faults_present,
        around_pages: c.around_pages.saturating_sub(meters.brought_along.load(Relaxed)),
        brought_pages: meters.brought.load(Relaxed))
}

fn evictions(c: &Counters) -> Evictions {
    let rejected = part!(Rejected of c,
        incompressible by_entropy by_need in_advance pool_full not_moved; refaulted: c.wasted);
    part!(Evictions of c,
        compressed filled clean same to_swap dropped file_dropped stored_raw parked_runs spared accessed; pages: c.evicted, rejected: rejected)
}

fn swap(desk: &Desk, wall: Duration) -> Swap {
    let endurance_bytes = desk.config.endurance;
    let Some(tier) = &desk.shared.swap else { return Swap { endurance_bytes, ..Swap::default() } };
    let counters = &tier.counters;
    let write_bytes = counters.write_bytes.load(Relaxed);
    let write_bytes_per_hour = per_hour(write_bytes, wall);
    Swap {
        enabled: true,
        reads: counters.reads.load(Relaxed),
        read_bytes: counters.read_bytes.load(Relaxed),
        writes: counters.writes.load(Relaxed),
        write_bytes,
        errors: counters.errors.load(Relaxed),
        used_bytes: tier.used_bytes(),
        live_bytes: tier.live_bytes(),
        object_bytes: counters.object_bytes.load(Relaxed),
        cleaned_bytes: counters.cleaned_bytes.load(Relaxed),
        held_back: counters.held_back.load(Relaxed),
        write_bytes_per_hour,
        endurance_bytes,
        endurance_days: endurance_bytes.and_then(|rated| days(rated, write_bytes_per_hour)),
    }
}

/// Memory now, and the pages by state if they are wanted.
fn now(shared: &Shared, state: &State, metadata_bytes: u64, brief: bool) -> Now {
    let totals = (!brief).then(|| state.core.totals(shared.tick()));
    let pages = totals.map(|t| part!(Pages of t, staged pooled swapped filled evicting quarantined parked));
    let memory = Memory {
        total_bytes: shared.budget.used(),
        resident_bytes: shared.resident_bytes(&state.core),
        staged_bytes: state.core.totals_staged() * 4096,
        pool_bytes: u64::from(state.frames.backed_frames) * 4096,
        metadata_bytes,
        swap_bytes: shared.swap.as_ref().map_or(0, |swap| swap.used_bytes()),
    };
    Now { memory, unmanaged_bytes: memory.unmanaged_bytes(), pages }
}

/// The largest values that were seen. The monitor may not have seen the tables as they are now.
fn peak(shared: &Shared, now: &Now) -> Memory<u64> {
    shared.budget.raise_peak(&Memory { metadata_bytes: now.memory.metadata_bytes, ..Memory::default() });
    let swap_bytes = shared.swap.as_ref().map_or(0, |swap| swap.counters.peak_bytes.load(Relaxed));
    Memory { swap_bytes, ..*shared.budget.peak.lock() }
}

/// Everything about now and since the start.
pub fn live(desk: &Desk, question: &Question) -> Stats {
    let shared = &desk.shared;
    let metadata_bytes = shared.metadata_bytes();
    let state = shared.lock();
    let (c, usage) = (state.core.counters().clone(), state.core.pool_usage());
    let now = now(shared, &state, metadata_bytes, question.brief);
    let (calls, pool_limit) = (state.core.number(), u64::from(state.core.pool_limit()) * 4096);
    let cached = shared.cache.resident_bytes(&state.core);
    drop(state);
    let latency = shared.meters.latency.summary();
    let wall = shared.started.elapsed();
    Stats {
        schema: 1,
        version: env!("CARGO_PKG_VERSION").into(),
        command: desk.config.command.clone(),
        pid: desk.config.launcher_pid,
        scheme: shared.scheme.name.clone(),
        budget_bytes: shared.budget.sizes.budget,
        wall_ns: wall.as_nanos() as u64,
        exit: None,
        warnings: shared.outbox.warnings.lock().clone(),
        processes_left_out: Some(shared.meters.rows_left_out.load(Relaxed)).filter(|rows| *rows > 0),
        peak: peak(shared, &now),
        now,
        faults: faults(&c, &shared.meters, &latency),
        fault_latency_ns: latency,
        evictions: evictions(&c),
        codecs: codecs(shared),
        pool: part!(Pool of c,
            evicted_frames evicted_units cached_reads;
            zpages: usage.zpages, bytes: usage.stored_bytes, frames: usage.frames.into(), limit_bytes: pool_limit),
        swap: swap(desk, wall),
        files: Files {
            reads: shared.files.counters.reads.load(Relaxed),
            read_bytes: shared.files.counters.read_bytes.load(Relaxed),
            resident_bytes: cached,
        },
        transitions: part!(Transitions of c,
            adopted quarantined unquarantined remapped forks compaction_moves unexpected_present swap_failed;
            core_calls: calls, killed: shared.meters.killed.load(Relaxed),
            stopped: shared.meters.stopped.load(Relaxed), held: shared.meters.held.load(Relaxed),
            waited_at_start: shared.meters.waited_at_start.load(Relaxed),
            left_for_others: shared.meters.left_for_others.load(Relaxed)),
        lock: Lock { longest_hold_ns: shared.meters.longest_hold.load(Relaxed) },
        monitor: Monitor {
            longest_delay_ns: shared.meters.longest_delay.load(Relaxed),
            longest_sample_ns: shared.meters.longest_sample.load(Relaxed),
        },
        processes: processes(desk, question.brief),
    }
}

/// Keeps those running processes that have most memory, so that an answer fits into one packet, and
/// tells how many others run. Keeps the beginning of the command, and the last warnings.
pub fn shorten(answer: &mut Stats) {
    let rows = &mut answer.processes;
    rows.retain(|row| row.running);
    rows.sort_by_key(|row| std::cmp::Reverse(row.resident_bytes));
    answer.processes_left_out = Some(rows.len().saturating_sub(PROCESSES_IN_A_PACKET) as u64);
    rows.truncate(PROCESSES_IN_A_PACKET);
    shorten_words(&mut answer.command, TEXT_IN_A_PACKET);
    let mut room = TEXT_IN_A_PACKET;
    let cut = answer.warnings.iter().rposition(|warning| fitting(warning, &mut room).is_some());
    answer.warnings.drain(..cut.map_or(0, |last| last + 1));
}

/// What the run has done up to now.
pub fn counts(shared: &Shared) -> Counts {
    let evicted = shared.lock().core.counters().evicted;
    let sum =
        |of: fn(&CodecCount) -> &AtomicU64| shared.meters.codecs.iter().map(|count| of(count).load(Relaxed)).sum();
    let swap = shared.swap.as_ref().map(|s| &s.counters);
    Counts {
        faults: shared.meters.latency.counts(),
        evicted,
        swap_read: swap.map_or(0, |s| s.read_bytes.load(Relaxed)),
        swap_written: swap.map_or(0, |s| s.write_bytes.load(Relaxed)),
        compressed: sum(|count| &count.pages),
        in_bytes: sum(|count| &count.in_bytes),
        out_bytes: sum(|count| &count.out_bytes),
    }
}

/// The run over time, if that was asked for, the final statistics and the summary line.
pub fn report(desk: &Arc<Desk>, ended: &ToPager) -> (Option<Box<Course>>, Box<Stats>, String) {
    // The monitor can add nothing to either until both are made, so that they agree.
    let timeline = desk.timeline.as_ref().map(|timeline| timeline.lock());
    let mut stats = Box::new(live(desk, &Question::default()));
    let course = timeline.map(|mut timeline| {
        let shared = &desk.shared;
        if timeline.wants(0) {
            let total = shared.budget.used().min(shared.budget.peak.lock().total_bytes);
            timeline.add(crate::monitor::bytes(shared, total), std::iter::empty(), 0);
        }
        timeline.close(shared.started.elapsed().as_nanos() as u64, counts(shared));
        let mut course = Box::new(timeline.course(shared.meters.latency.times()));
        course.regions = shared.regions.as_ref().map_or_else(Vec::new, Regions::largest);
        course
    });
    if let &ToPager::CommandExited { code, signal, .. } = ended {
        stats.exit = Some(Exit { code, signal });
    }
    let line = summary(&stats);
    (course, stats, line)
}

/// With one decimal below 100, as in `memfit top`.
fn size(bytes: u64) -> String {
    let units = [(10 << 40, 40, "T"), (10 << 30, 30, "G"), (1 << 20, 20, "M"), (0, 10, "K")];
    let &(_, shift, name) = units.iter().find(|(from, ..)| bytes >= *from).unwrap_or(&units[3]);
    let value = bytes as f64 / (1u64 << shift) as f64;
    let digits = usize::from(value < 99.95);
    format!("{value:.digits$}{name}")
}

fn summary(stats: &Stats) -> String {
    let seconds = stats.wall_ns as f64 / 1e9;
    let mut line = format!("peak {} of {} in {seconds:.1} s", size(stats.peak.total_bytes), size(stats.budget_bytes));
    let evicted = stats.evictions.pages * 4096;
    if evicted == 0 {
        let over = stats.peak.total_bytes > stats.budget_bytes;
        line.push_str(if over { "; nothing was paged" } else { "; nothing had to be paged" });
        return line;
    }
    line.push_str(&format!("; {} paged out, {} faults", size(evicted), stats.faults.total));
    let sum = |of: fn(&Codec) -> u64| stats.codecs.values().map(of).sum::<u64>();
    let (input, output) = (sum(|codec| codec.in_bytes), sum(|codec| codec.out_bytes));
    // What was tried, and not stored so, is no saving.
    if output > 0 && stats.evictions.compressed > 0 {
        line.push_str(&format!(", compressed {:.1}:1", input as f64 / output as f64));
    }
    line.push_str(&match stats.swap.write_bytes {
        0 => ", nothing written to disk".into(),
        written => format!(", {} written to swap", size(written)),
    });
    if stats.transitions.held > 0 {
        let times = match stats.transitions.held {
            1 => "once".into(),
            held => format!("{held} times"),
        };
        line.push_str(&format!("; processes waited for their turn {times} (--turns)"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_a_ratio_of_what_is_stored_compressed() {
        let mut stats = Stats { budget_bytes: 64 << 20, ..Stats::default() };
        (stats.evictions.pages, stats.swap.write_bytes) = (5000, 20 << 20);
        stats.codecs.insert("lz4".into(), Codec { pages: 13, in_bytes: 53_248, out_bytes: 4551 });
        assert!(!summary(&stats).contains("compressed"), "{}", summary(&stats));
        stats.evictions.compressed = 13;
        assert!(summary(&stats).ends_with(", compressed 11.7:1, 20.0M written to swap"), "{}", summary(&stats));
        stats.transitions.held = 1;
        assert!(summary(&stats).ends_with("; processes waited for their turn once (--turns)"), "{}", summary(&stats));
        stats.transitions.held = 4;
        assert!(
            summary(&stats).ends_with("; processes waited for their turn 4 times (--turns)"),
            "{}",
            summary(&stats)
        );
    }

    #[test]
    fn a_run_over_its_budget_had_something_to_page() {
        let mut stats = Stats { budget_bytes: 64 << 20, ..Stats::default() };
        stats.peak.total_bytes = 64 << 20;
        assert!(summary(&stats).ends_with("; nothing had to be paged"), "{}", summary(&stats));
        stats.peak.total_bytes += 1 << 17;
        assert!(summary(&stats).ends_with("; nothing was paged"), "{}", summary(&stats));
    }

    #[test]
    fn sizes_of_the_summary_are_short() {
        let all = [0, 4096, 48 << 20, (40 << 20) + (1 << 16), 1500 << 20, 10 << 30, 999 << 40].map(size);
        assert_eq!(all, ["0.0K", "4.0K", "48.0M", "40.1M", "1500M", "10.0G", "999T"]);
    }

    #[test]
    fn the_largest_processes_are_kept() {
        let row = |n| Process { pid: n, running: n < 1000, resident_bytes: n as u64 % 1000, ..Process::default() };
        let mut answer = Stats { processes: (0..2000).map(row).collect(), ..Stats::default() };
        shorten(&mut answer);
        assert_eq!(answer.processes_left_out, Some(500));
        let rows = &answer.processes;
        assert_eq!((rows.len(), rows[0].resident_bytes), (PROCESSES_IN_A_PACKET, 999));
        shorten(&mut Stats::default());
    }

    #[test]
    fn an_answer_about_a_long_command_fits_into_a_packet() {
        let row = |pid| Process { pid, running: true, comm: "\u{1}".repeat(15), ..Process::default() };
        for command in
            [vec!["tr".into(), "\0".repeat(300_000)], vec!["\"".into(); 300_000], vec![String::new(); 300_000]]
        {
            let warnings = (0..300).map(|number| format!("{number} {}", "x".repeat(1000))).collect();
            let processes = (0..2000).map(row).collect();
            let mut answer = Stats { command, warnings, processes, ..Stats::default() };
            shorten(&mut answer);
            let bytes = serde_json::to_vec(&answer).unwrap().len();
            assert!(bytes < 200_000, "{bytes}");
            let (words, last) = (answer.command.len(), answer.command.last().unwrap());
            assert!(
                last.ends_with("...") && serde_json::to_vec(&answer.command).unwrap().len() <= TEXT_IN_A_PACKET + 8
            );
            assert!(words > 1000 || last.len() > 1000, "{words} words");
            assert!(answer.warnings.len() > 10 && answer.warnings.last().unwrap().starts_with("299 "));
        }
        let mut short = Stats { command: vec!["a".into()], warnings: vec!["w".into()], ..Stats::default() };
        shorten(&mut short);
        assert_eq!((&*short.command, &*short.warnings), (&["a".to_owned()][..], &["w".to_owned()][..]));
    }

    #[test]
    fn quantiles_are_within_an_eighth() {
        let latency = Latency::default();
        for us in 1..=1000u64 {
            latency.record(SourceKind::Pool, Duration::from_micros(us));
        }
        let FaultLatency { all, by_source } = latency.summary();
        let Quantiles { p50, p90, p99, .. } = by_source.pool;
        for (got, wanted) in [(p50, 500_000.0), (p90, 900_000.0), (p99, 990_000.0)] {
            assert!((got as f64 / wanted - 1.0).abs() < 0.13, "{got} for {wanted}");
        }
        assert_eq!(all.max, 1_000_000);
    }

    #[test]
    fn pages_that_come_back_without_a_fault_are_no_faults() {
        let (meters, latency) = (Meters::default(), Latency::default());
        let of_core =
            Counters { faults: 500, faults_zero: 3, faults_pool: 497, around_pages: 3000, ..Counters::default() };
        meters.brought.store(3200, Relaxed);
        meters.brought_along.store(2800, Relaxed);
        for source in [SourceKind::Zero, SourceKind::File, SourceKind::Pool, SourceKind::Pool] {
            latency.record(source, Duration::from_micros(9));
        }
        let told = faults(&of_core, &meters, &latency.summary());
        assert_eq!((told.total, told.by_source.values()), (4, latency.counts()));
        assert_eq!((told.by_source.values(), told.around_pages, told.brought_pages), ([1, 0, 0, 2, 0, 1], 200, 3200));
    }

    #[test]
    fn histograms_have_all_faults_and_no_empty_ends() {
        let latency = Latency::default();
        assert_eq!(latency.times(), FaultTimes::default());
        for ns in [1000, 1001, 5_000_000] {
            latency.record(SourceKind::Swap, Duration::from_nanos(ns));
        }
        let times = latency.times();
        let swap = &times.counts[SourceKind::Swap as usize];
        assert_eq!((times.counts.len(), times.bounds_ns.len()), (SOURCES.len(), swap.len() + 1));
        assert_eq!((swap[0], swap.iter().sum::<u64>(), *swap.last().unwrap()), (2, 3, 1));
        assert!(times.bounds_ns[0] <= 1000 && times.bounds_ns[1] > 1001 && times.bounds_ns.is_sorted());
        assert!(times.bounds_ns[swap.len() - 1] <= 5_000_000 && times.bounds_ns[swap.len()] > 5_000_000);
    }
}
