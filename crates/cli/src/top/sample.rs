//! What two answers of a pager say together, and what of them can be shown. Pure.

use memfit_stats::{BySource, Process, Rejected, Stats};
use std::collections::HashMap;

/// Only the processes that run, and texts that a terminal can show: programs choose their names,
/// and nothing of them may reach it as an order.
#[must_use]
pub fn shown(mut stats: Stats) -> Stats {
    let clean = |text: &mut String| *text = text.replace(memfit_wire::is_unprintable, " ");
    stats.processes.retain(|process| process.running);
    stats.processes.iter_mut().for_each(|process| {
        clean(&mut process.comm);
        process.why_not_paged.iter_mut().for_each(clean);
    });
    let texts = [&mut stats.scheme].into_iter().chain(&mut stats.command).chain(&mut stats.warnings);
    texts.for_each(clean);
    let codecs = std::mem::take(&mut stats.codecs);
    stats.codecs =
        codecs.into_iter().map(|(name, codec)| (name.replace(memfit_wire::is_unprintable, " "), codec)).collect();
    stats
}

/// Changes per second between two answers of a tree.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Rates {
    pub faults: f64,
    pub by_source: BySource<f64>,
    pub around_pages: f64,
    pub brought_pages: f64,
    pub evicted_pages: f64,
    pub rejected: Rejected<f64>,
    pub swap_read_bytes: f64,
    pub swap_write_bytes: f64,
    /// By pid: faults, evicted pages.
    pub processes: HashMap<i32, (f64, f64)>,
}

impl Rates {
    /// Between `old` and `new`; without `old`, on average since the start of the tree.
    #[must_use]
    pub fn between(old: Option<&Stats>, new: &Stats) -> Self {
        let first = Stats::default();
        let old = old.unwrap_or(&first);
        let seconds = new.wall_ns.saturating_sub(old.wall_ns) as f64 / 1e9;
        // A counter never falls, but a pid can be another process's the next time.
        let rate = |old: u64, new: u64| if seconds > 0.0 { new.saturating_sub(old) as f64 / seconds } else { 0.0 };
        let of = |count: fn(&Stats) -> u64| rate(count(old), count(new));
        let known: HashMap<i32, &Process> = old.processes.iter().map(|process| (process.pid, process)).collect();
        let of_process = |process: &Process| {
            let (faults, evicted) = known.get(&process.pid).map_or((0, 0), |p| (p.faults, p.evicted_pages));
            (process.pid, (rate(faults, process.faults), rate(evicted, process.evicted_pages)))
        };
        Self {
            faults: of(|stats| stats.faults.total),
            by_source: old.faults.by_source.zip(&new.faults.by_source, rate),
            around_pages: of(|stats| stats.faults.around_pages),
            brought_pages: of(|stats| stats.faults.brought_pages),
            evicted_pages: of(|stats| stats.evictions.pages),
            rejected: old.evictions.rejected.zip(&new.evictions.rejected, rate),
            swap_read_bytes: of(|stats| stats.swap.read_bytes),
            swap_write_bytes: of(|stats| stats.swap.write_bytes),
            processes: new.processes.iter().map(of_process).collect(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    /// An answer of a tree of that age, all of whose counters have grown by `n`.
    pub(in crate::top) fn answer(seconds: u64, n: u64) -> Stats {
        let json = json!({
            "schema": 1, "command": ["python3", "big.py\u{1b}[2J"], "scheme": "memfit", "pid": 4242,
            "budget_bytes": 128u64 << 20, "wall_ns": seconds * 1_000_000_000,
            "now": {"total_bytes": 127u64 << 20, "resident_bytes": 70u64 << 20, "staged_bytes": 4u64 << 20,
                    "pool_bytes": 36u64 << 20, "metadata_bytes": 2u64 << 20, "swap_bytes": 12u64 << 20},
            "peak": {"total_bytes": 129u64 << 20},
            "faults": {"total": 100 * n, "zero": 10 * n, "staged": 20 * n, "filled": 3 * n, "pool": 60 * n, "swap": 5 * n, "file": 2 * n,
                       "around_pages": 30 * n, "zero_run_pages": 0},
            "evictions": {"pages": 3000 * n, "rejected": {"not_moved": 2 * n, "refaulted": 0}},
            "codecs": {"zstd": {"pages": 900, "in_bytes": 3_686_400, "out_bytes": 921_600},
                       "lz4": {"pages": 100, "in_bytes": 409_600, "out_bytes": 204_800}},
            "pool": {"zpages": 30_000},
            "swap": {"enabled": true, "read_bytes": 1_048_576 * n, "write_bytes": 2_097_152 * n, "errors": 0},
            "fault_latency_ns": {"count": 100, "p50": 9000, "p99": 80_000, "max": 2_000_000,
                "by_source": {"pool": {"count": 60, "p50": 11_000, "p99": 70_000, "max": 900_000}}},
            "processes": [
                {"pid": 7, "comm": "python3", "running": true, "paged": true, "resident_bytes": 90u64 << 20,
                 "peak_total_bytes": 120u64 << 20, "faults": 90 * n, "evicted_pages": 2900 * n},
                {"pid": 8, "comm": "sh", "running": true, "paged": false, "resident_bytes": 1u64 << 20,
                 "peak_total_bytes": 1u64 << 20, "faults": 0, "evicted_pages": 0},
                {"pid": 9, "comm": "gone", "running": false},
            ],
            "warnings": ["first", "the swap file has its full size"],
        });
        shown(serde_json::from_value(json).unwrap())
    }

    #[test]
    fn reads_an_answer_and_nothing() {
        let stats = answer(10, 1);
        assert_eq!(stats.command.join(" "), "python3 big.py [2J", "no escape sequence is left");
        assert_eq!((stats.processes.len(), stats.processes[0].pid), (2, 7), "those that run");
        assert_eq!(stats.faults.by_source.values(), [10, 20, 3, 60, 5, 2]);
        let latency = &stats.fault_latency_ns;
        assert_eq!((latency.all.p50, latency.by_source.pool.p99, latency.by_source.zero.max), (9000, 70_000, 0));
        assert_eq!(stats.codecs_by_pages()[0].0, "zstd", "the most used first");
        assert_eq!(stats.now.memory.unmanaged_bytes(), 15 << 20);
        assert!((stats.pool_ratio().unwrap() - 3.26).abs() < 0.01);
        assert_eq!(shown(Stats::default()), Stats::default());
        assert_eq!(Stats::default().pool_ratio(), None);
    }

    #[test]
    fn rates_are_changes_over_the_pagers_time() {
        let (old, new) = (answer(10, 1), answer(12, 5));
        let rates = Rates::between(Some(&old), &new);
        assert_eq!((rates.faults, rates.by_source.pool, rates.evicted_pages), (200.0, 120.0, 6000.0));
        assert_eq!((rates.swap_read_bytes, rates.swap_write_bytes), (2_097_152.0, 4_194_304.0));
        let Rejected { not_moved, refaulted, .. } = rates.rejected;
        assert_eq!((not_moved, refaulted, rates.processes[&7]), (4.0, 0.0, (180.0, 5800.0)));
        let since_start = Rates::between(None, &new);
        assert!((since_start.faults - 500.0 / 12.0).abs() < 1e-9);
        // The same moment, and a pid that another process has.
        assert_eq!(Rates::between(Some(&new), &new).faults, 0.0);
        assert_eq!(Rates::between(Some(&new), &old).processes[&7], (0.0, 0.0));
    }
}
