//! What a run did: JSON for scripts (schema 1), one line for people, fault latencies.

use crate::config::ToPager;
use crate::control::{Desk, Row};
use crate::regions::Regions;
use crate::state::{CodecCount, Shared};
use crate::timeline::{Counts, Course, FaultTimes, SOURCES};
use memfit_core::Source;
use serde::Deserialize;
use serde_json::{json, Value};
use std::collections::{BTreeMap, HashSet};
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
    by_source: [Histogram; 6],
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

    fn summary(&self, sources: &[usize]) -> Value {
        let mut counts = [0u64; BUCKETS];
        let mut max = 0;
        for &source in sources {
            let histogram = &self.by_source[source];
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
        json!({"count": total, "p50": quantile(500), "p90": quantile(900), "p99": quantile(990), "max": max})
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

    fn json(&self) -> Value {
        let mut out = self.summary(&[0, 1, 2, 3, 4, 5]);
        let by: serde_json::Map<String, Value> =
            SOURCES.iter().enumerate().map(|(i, name)| (name.to_string(), self.summary(&[i]))).collect();
        out["by_source"] = Value::Object(by);
        out
    }
}

/// By name: the numbers of trained dictionaries share one.
fn codecs(shared: &Shared) -> Value {
    let mut rows: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    for (id, count) in shared.codecs.iter().enumerate() {
        let counts = [&count.pages, &count.in_bytes, &count.out_bytes].map(|n| n.load(Relaxed));
        if let (Some(name), true) = (memfit_codec::name(memfit_codec::CodecId(id as u8)), counts[0] > 0) {
            let row = rows.entry(name).or_default();
            *row = std::array::from_fn(|i| row[i] + counts[i]);
        }
    }
    rows.into_iter()
        .map(|(name, [pages, input, output])| {
            (name.to_owned(), json!({"pages": pages, "in_bytes": input, "out_bytes": output}))
        })
        .collect::<serde_json::Map<String, Value>>()
        .into()
}

/// About 170 bytes each; a packet of 200 KB can be sent by default.
const PROCESSES_IN_A_PACKET: usize = 500;

/// What is asked of a running pager, as JSON; keys that are not known are no matter.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Question {
    /// Without what takes time in proportion to the tree: for those who ask every second. The pages
    /// by state are counted under the core's lock, and of ended processes there can be many.
    pub brief: bool,
}

/// One row a pid: a program that execs says hello again.
fn processes(desk: &Desk, brief: bool) -> Vec<Value> {
    let mut past = desk.past.lock().unwrap().clone();
    let clients = desk.clients.lock().unwrap().clone();
    if brief {
        let running: HashSet<i32> = clients.iter().map(|client| client.pid).collect();
        past.retain(|row| running.contains(&row.pid));
    }
    let mut rows: BTreeMap<i32, Row> = BTreeMap::new();
    for new in past.into_iter().chain(clients.iter().map(|client| client.row())) {
        let row = rows.entry(new.pid).or_default();
        *row = Row {
            peak: row.peak.max(new.peak),
            faults: row.faults + new.faults,
            evicted: row.evicted + new.evicted,
            paged: row.paged || new.paged,
            ..new
        };
    }
    let json = |row: Row| {
        json!({
            "pid": row.pid, "comm": row.comm, "running": row.running, "paged": row.paged, "resident_bytes": row.resident,
            "peak_total_bytes": row.peak, "faults": row.faults, "evicted_pages": row.evicted,
        })
    };
    rows.into_values().map(json).collect()
}

/// Bytes in an hour at the pace of the run.
fn per_hour(bytes: u64, wall: Duration) -> u64 {
    (bytes as f64 * 3600.0 / wall.as_secs_f64().max(1e-3)) as u64
}

/// How long a device of this endurance lasts at this pace, days; `None` for ever.
fn days(rated_bytes: u64, bytes_per_hour: u64) -> Option<f64> {
    (bytes_per_hour > 0).then(|| (rated_bytes as f64 / bytes_per_hour as f64 / 24.0 * 10.0).round() / 10.0)
}

/// Everything about now and since the start.
#[allow(clippy::too_many_lines)]
pub fn live(desk: &Desk, question: &Question) -> Value {
    let shared = &desk.shared;
    let state = shared.lock();
    let (c, usage, staged) = (state.core.counters().clone(), state.core.pool_usage(), state.core.totals_staged());
    let totals = (!question.brief).then(|| state.core.totals(shared.tick()));
    let backed = u64::from(state.frames.backed_frames) * 4096;
    let log_bytes = shared.swap.as_ref().map_or(0, |s| s.metadata_bytes());
    let files = shared.files.metadata_bytes();
    let metadata = state.core.metadata_bytes() + state.frames.metadata_bytes() + log_bytes + files;
    let resident = state.core.present_total() * 4096;
    let (calls, pool_limit) = (state.core.number(), u64::from(state.core.pool_limit()) * 4096);
    drop(state);
    let file_faults = shared.files.faults.load(Relaxed);
    let peak = &shared.peak;
    let swap = shared.swap.as_ref().map(|s| &s.counters);
    let swapped = |f: fn(&crate::swap::Counters) -> &AtomicU64| swap.map_or(0, |s| f(s).load(Relaxed));
    let wall = shared.started.elapsed();
    let mut json = json!({
        "schema": 1, "version": env!("CARGO_PKG_VERSION"), "command": desk.config.command,
        "scheme": shared.scheme.name, "budget_bytes": shared.sizes.budget, "pid": desk.config.launcher_pid,
        "wall_ns": wall.as_nanos() as u64,
        "now": {
            "total_bytes": shared.used(), "resident_bytes": resident, "staged_bytes": staged * 4096,
            "pool_bytes": backed, "metadata_bytes": metadata, "unmanaged_bytes": shared.unmanaged.load(Relaxed),
            "swap_bytes": shared.swap.as_ref().map_or(0, |s| s.used_bytes()),
        },
        "peak": {
            "total_bytes": peak.total.load(Relaxed), "resident_bytes": peak.resident.load(Relaxed),
            "staged_bytes": peak.staged.load(Relaxed), "pool_bytes": peak.pool.load(Relaxed),
            "metadata_bytes": peak.metadata.load(Relaxed), "swap_bytes": swapped(|s| &s.peak_bytes),
        },
        "faults": {
            "total": c.faults, "zero": c.faults_zero - file_faults.min(c.faults_zero), "staged": c.faults_staged, "filled": c.faults_filled,
            "pool": c.faults_pool, "swap": c.faults_swap,
            "file": c.faults_file + file_faults, "around_pages": c.around_pages,
            "zero_run_pages": c.zero_run_pages, "present": c.faults_present,
        },
        "evictions": {
            "pages": c.evicted, "filled": c.filled, "compressed": c.compressed,
            "rejected": {
                "incompressible": c.incompressible, "not_worth": c.not_worth, "in_advance": c.in_advance,
                "pool_full": c.pool_full, "not_moved": c.not_moved, "wanted_meanwhile": c.wasted,
            },
            "raw_kept": c.raw_kept, "to_swap": c.to_swap, "clean": c.clean, "file_dropped": c.file_dropped, "dropped": c.dropped, "parked_runs": c.parked_runs,
        },
        "transitions": {
            "adopted": c.adopted, "quarantined": c.quarantined, "unquarantined": c.unquarantined,
            "remapped": c.remapped, "forks": c.forks, "compaction_moves": c.compaction_moves,
            "unexpected_present": c.unexpected_present, "swap_failed": c.swap_failed, "core_calls": calls,
        },
        "codecs": codecs(shared),
        "pool": {"zpages": usage.zpages, "frames": usage.frames, "bytes": usage.stored_bytes, "evicted_frames": c.evicted_frames, "evicted_units": c.evicted_units, "limit_bytes": pool_limit},
        "swap": {
            "enabled": shared.swap.is_some(),
            "read_bytes": swapped(|s| &s.read_bytes), "write_bytes": swapped(|s| &s.write_bytes),
            "reads": swapped(|s| &s.reads), "writes": swapped(|s| &s.writes), "errors": swapped(|s| &s.errors),
            "used_bytes": shared.swap.as_ref().map_or(0, |s| s.used_bytes()),
            "live_bytes": shared.swap.as_ref().map_or(0, |s| s.live_bytes()),
            "object_bytes": swapped(|s| &s.object_bytes), "cleaned_bytes": swapped(|s| &s.cleaned_bytes),
            "write_bytes_per_hour": per_hour(swapped(|s| &s.write_bytes), wall),
            "endurance_bytes": desk.config.endurance,
            "endurance_days": desk.config.endurance.and_then(|rated| days(rated, per_hour(swapped(|s| &s.write_bytes), wall))),
        },
        "files": {
            "reads": shared.files.reads.load(Relaxed), "read_bytes": shared.files.read_bytes.load(Relaxed),
        },
        "fault_latency_ns": shared.latency.json(),
        "lock": {"longest_hold_ns": shared.longest_hold.load(Relaxed)},
        "processes": processes(desk, question.brief),
        "warnings": *shared.warnings.lock().unwrap(),
    });
    if let Some(t) = totals {
        json["now"]["pages"] = json!({
            "quarantined": t.quarantined, "evicting": t.evicting, "parked": t.parked, "staged": t.staged, "filled": t.filled,
            "pooled": t.pooled, "swapped": t.swapped,
        });
    }
    json
}

/// Keeps those running processes that have most memory, so that an answer fits into one packet, and
/// tells how many others run.
pub fn shorten(answer: &mut Value) {
    let Some(rows) = answer["processes"].as_array_mut() else { return };
    rows.retain(|row| row["running"] == true);
    rows.sort_by_key(|row| std::cmp::Reverse(row["resident_bytes"].as_u64()));
    let left_out = rows.len().saturating_sub(PROCESSES_IN_A_PACKET);
    rows.truncate(PROCESSES_IN_A_PACKET);
    answer["processes_left_out"] = json!(left_out);
}

/// What the run has done up to now.
pub fn counts(shared: &Shared) -> Counts {
    let c = shared.lock().core.counters().clone();
    let file_faults = shared.files.faults.load(Relaxed);
    let zero = c.faults_zero - file_faults.min(c.faults_zero);
    let sum = |of: fn(&CodecCount) -> &AtomicU64| shared.codecs.iter().map(|count| of(count).load(Relaxed)).sum();
    let swap = shared.swap.as_ref().map(|s| &s.counters);
    Counts {
        faults: [zero, c.faults_staged, c.faults_filled, c.faults_pool, c.faults_swap, c.faults_file + file_faults],
        evicted: c.evicted,
        swap_read: swap.map_or(0, |s| s.read_bytes.load(Relaxed)),
        swap_written: swap.map_or(0, |s| s.write_bytes.load(Relaxed)),
        compressed: sum(|count| &count.pages),
        in_bytes: sum(|count| &count.in_bytes),
        out_bytes: sum(|count| &count.out_bytes),
    }
}

/// The run over time, if that was asked for, the final statistics and the summary line.
pub fn report(desk: &Arc<Desk>, ended: &ToPager) -> (Option<Box<Course>>, Value, String) {
    // The monitor can add nothing to either until both are made, so that they agree.
    let timeline = desk.timeline.as_ref().map(|timeline| timeline.lock().unwrap());
    let mut json = live(desk, &Question::default());
    let course = timeline.map(|mut timeline| {
        let shared = &desk.shared;
        if timeline.wants(0) {
            timeline.look(
                crate::monitor::bytes(shared, shared.used().min(shared.peak.total.load(Relaxed))),
                std::iter::empty(),
                0,
            );
        }
        timeline.close(shared.started.elapsed().as_nanos() as u64, counts(shared));
        let mut course = Box::new(timeline.course(shared.latency.times()));
        course.regions = shared.regions.as_ref().map_or_else(Vec::new, Regions::largest);
        course
    });
    if let ToPager::CommandExited { code, signal, .. } = ended {
        json["exit"] = json!({"code": code, "signal": signal});
    }
    let line = summary(&json);
    (course, json, line)
}

fn mib(bytes: u64) -> String {
    if bytes >= 10 << 30 {
        format!("{:.1}G", bytes as f64 / (1u64 << 30) as f64)
    } else {
        format!("{}M", bytes.div_ceil(1 << 20))
    }
}

fn summary(json: &Value) -> String {
    let number = |path: &str| json.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    let seconds = number("/wall_ns") as f64 / 1e9;
    let mut line =
        format!("peak {} of {} in {seconds:.1} s", mib(number("/peak/total_bytes")), mib(number("/budget_bytes")));
    let evicted = number("/evictions/pages") * 4096;
    if evicted == 0 {
        line.push_str("; nothing had to be paged");
        return line;
    }
    line.push_str(&format!("; {} paged out, {} faults", mib(evicted), number("/faults/total")));
    let (mut input, mut output) = (0, 0);
    for codec in json["codecs"].as_object().into_iter().flat_map(|m| m.values()) {
        input += codec["in_bytes"].as_u64().unwrap_or(0);
        output += codec["out_bytes"].as_u64().unwrap_or(0);
    }
    if output > 0 {
        line.push_str(&format!(", compressed {:.1}:1", input as f64 / output as f64));
    }
    let written = number("/swap/write_bytes");
    line.push_str(&if written > 0 {
        format!(", {} written to swap", mib(written))
    } else {
        ", nothing written to disk".into()
    });
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_processes_are_kept() {
        let rows: Vec<Value> =
            (0..2000).map(|n| json!({"pid": n, "running": n < 1000, "resident_bytes": n % 1000})).collect();
        let mut answer = json!({"processes": rows});
        shorten(&mut answer);
        assert_eq!(answer["processes_left_out"], 500);
        let rows = answer["processes"].as_array().unwrap();
        assert_eq!((rows.len(), rows[0]["resident_bytes"].as_u64()), (PROCESSES_IN_A_PACKET, Some(999)));
        shorten(&mut json!({}));
    }

    #[test]
    fn quantiles_are_within_an_eighth() {
        let latency = Latency::default();
        for us in 1..=1000u64 {
            latency.record(SourceKind::Pool, Duration::from_micros(us));
        }
        let json = latency.json();
        for (key, wanted) in [("p50", 500_000.0), ("p90", 900_000.0), ("p99", 990_000.0)] {
            let got = json["by_source"]["pool"][key].as_f64().unwrap();
            assert!((got / wanted - 1.0).abs() < 0.13, "{key} = {got}");
        }
        assert_eq!(json["max"], 1_000_000);
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
