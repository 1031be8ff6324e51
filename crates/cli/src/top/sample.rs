//! One answer of a pager as numbers, and what two of them say together. Pure.

use serde_json::Value;
use std::collections::HashMap;

/// Where the page of a fault came from, in the order in which they are shown.
pub const SOURCES: [&str; 5] = ["zero", "staged", "filled", "pool", "swap"];

/// Quantiles since the start, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latency {
    /// Faults counted.
    pub count: u64,
    /// The median.
    pub p50: u64,
    /// One in a hundred takes longer.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

/// What one codec has done since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Codec {
    /// Its name.
    pub name: String,
    /// Pages that it compressed.
    pub pages: u64,
    /// Their bytes.
    pub in_bytes: u64,
    /// What was left of them.
    pub out_bytes: u64,
}

/// One process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number, as the pager sees it.
    pub pid: i32,
    /// Name of its command.
    pub comm: String,
    /// It has a userfaultfd.
    pub paged: bool,
    /// Anonymous memory that it has in RAM.
    pub resident_bytes: u64,
    /// The most that it had.
    pub peak_bytes: u64,
    /// Since its start.
    pub faults: u64,
    /// Since its start.
    pub evicted_pages: u64,
    /// As in `ps`, if it is known.
    pub state: Option<char>,
}

/// A pager's answer. Bytes and counts are since the start of the tree, but for those under "now".
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Sample {
    /// Age of the tree by the pager's clock.
    pub wall_ns: u64,
    pub pid: u64,
    pub command: String,
    pub scheme: String,
    pub budget_bytes: u64,
    // Now.
    pub total_bytes: u64,
    pub resident_bytes: u64,
    pub staged_bytes: u64,
    pub pool_bytes: u64,
    pub metadata_bytes: u64,
    pub swap_bytes: u64,
    pub peak_bytes: u64,
    pub faults: u64,
    /// In the order of [`SOURCES`].
    pub by_source: [u64; 5],
    pub around_pages: u64,
    pub latency: Latency,
    pub latency_by_source: [Latency; 5],
    pub evicted_pages: u64,
    pub rejected: Vec<(String, u64)>,
    pub codecs: Vec<Codec>,
    pub pool_pages: u64,
    /// There is no swap tier.
    pub no_swap: bool,
    pub swap_read_bytes: u64,
    pub swap_write_bytes: u64,
    pub swap_errors: u64,
    pub processes: Vec<Process>,
    /// So many more processes run.
    pub left_out: u64,
    pub warnings: Vec<String>,
}

impl Sample {
    /// Reads an answer; what is missing is 0 or empty, so that an older pager can be looked at,
    /// too.
    #[must_use]
    pub fn parse(answer: &Value) -> Self {
        let number = |pointer: &str| answer.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let text = |key: &str| clean(answer[key].as_str().unwrap_or(""));
        let latency = |value: &Value| Latency {
            count: field(value, "count"),
            p50: field(value, "p50"),
            p99: field(value, "p99"),
            max: field(value, "max"),
        };
        let latencies = &answer["fault_latency_ns"];
        let codec = |(name, value): (&String, &Value)| Codec {
            name: clean(name),
            pages: field(value, "pages"),
            in_bytes: field(value, "in_bytes"),
            out_bytes: field(value, "out_bytes"),
        };
        let mut codecs: Vec<Codec> = answer["codecs"].as_object().into_iter().flatten().map(codec).collect();
        codecs.sort_by(|a, b| (b.pages, &a.name).cmp(&(a.pages, &b.name)));
        let rejected = answer["evictions"]["rejected"].as_object().into_iter().flatten();
        let list = |key: &str| answer[key].as_array().map_or(&[][..], Vec::as_slice);
        let running = list("processes").iter().filter(|process| process["running"] == true);
        Self {
            wall_ns: number("/wall_ns"),
            pid: number("/pid"),
            command: command(answer),
            scheme: text("scheme"),
            budget_bytes: number("/budget_bytes"),
            total_bytes: number("/now/total_bytes"),
            resident_bytes: number("/now/resident_bytes"),
            staged_bytes: number("/now/staged_bytes"),
            pool_bytes: number("/now/pool_bytes"),
            metadata_bytes: number("/now/metadata_bytes"),
            swap_bytes: number("/now/swap_bytes"),
            peak_bytes: number("/peak/total_bytes"),
            faults: number("/faults/total"),
            by_source: SOURCES.map(|source| field(&answer["faults"], source)),
            around_pages: number("/faults/around_pages"),
            latency: latency(latencies),
            latency_by_source: SOURCES.map(|source| latency(&latencies["by_source"][source])),
            evicted_pages: number("/evictions/pages"),
            rejected: rejected.map(|(reason, count)| (clean(reason), count.as_u64().unwrap_or(0))).collect(),
            codecs,
            pool_pages: number("/pool/zpages"),
            no_swap: answer["swap"]["enabled"] == false,
            swap_read_bytes: number("/swap/read_bytes"),
            swap_write_bytes: number("/swap/write_bytes"),
            swap_errors: number("/swap/errors"),
            processes: running.map(process).collect(),
            left_out: number("/processes_left_out"),
            warnings: list("warnings").iter().filter_map(Value::as_str).map(clean).collect(),
        }
    }

    /// Bytes compressed for each byte in the pool; `None` when there are none.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        (self.pool_pages > 0 && self.pool_bytes > 0).then(|| (self.pool_pages * 4096) as f64 / self.pool_bytes as f64)
    }

    /// What counts towards the budget and is none of the other parts: memory of programs that is
    /// not paged (yet), and memfit's own code and stacks.
    #[must_use]
    pub fn unpaged_bytes(&self) -> u64 {
        let parts = self.resident_bytes + self.staged_bytes + self.pool_bytes + self.metadata_bytes;
        self.total_bytes.saturating_sub(parts)
    }
}

fn field(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

fn process(value: &Value) -> Process {
    Process {
        pid: value["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0),
        comm: clean(value["comm"].as_str().unwrap_or("")),
        paged: value["paged"] == true,
        resident_bytes: field(value, "resident_bytes"),
        peak_bytes: field(value, "peak_total_bytes"),
        faults: field(value, "faults"),
        evicted_pages: field(value, "evicted_pages"),
        state: None,
    }
}

fn command(answer: &Value) -> String {
    let words = answer["command"].as_array().into_iter().flatten().filter_map(Value::as_str);
    clean(&words.collect::<Vec<_>>().join(" "))
}

/// Programs choose their names: nothing of them may reach the terminal as an order.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Changes per second between two samples of a tree.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Rates {
    pub faults: f64,
    pub by_source: [f64; 5],
    pub around_pages: f64,
    pub evicted_pages: f64,
    /// In the order of [`Sample::rejected`].
    pub rejected: Vec<f64>,
    pub swap_read_bytes: f64,
    pub swap_write_bytes: f64,
    /// By pid: faults, evicted pages.
    pub processes: HashMap<i32, (f64, f64)>,
}

impl Rates {
    /// Between `old` and `new`; without `old`, on average since the start of the tree.
    #[must_use]
    pub fn between(old: Option<&Sample>, new: &Sample) -> Self {
        let first = Sample::default();
        let old = old.unwrap_or(&first);
        let seconds = new.wall_ns.saturating_sub(old.wall_ns) as f64 / 1e9;
        // A counter never falls, but a pid can be another process's the next time.
        let rate = |old: u64, new: u64| if seconds > 0.0 { new.saturating_sub(old) as f64 / seconds } else { 0.0 };
        let known: HashMap<i32, &Process> = old.processes.iter().map(|process| (process.pid, process)).collect();
        let of_process = |process: &Process| {
            let (faults, evicted) = known.get(&process.pid).map_or((0, 0), |p| (p.faults, p.evicted_pages));
            (process.pid, (rate(faults, process.faults), rate(evicted, process.evicted_pages)))
        };
        let rejected = new.rejected.iter().map(|(reason, count)| {
            rate(old.rejected.iter().find(|(name, _)| name == reason).map_or(0, |(_, count)| *count), *count)
        });
        Self {
            faults: rate(old.faults, new.faults),
            by_source: std::array::from_fn(|i| rate(old.by_source[i], new.by_source[i])),
            around_pages: rate(old.around_pages, new.around_pages),
            evicted_pages: rate(old.evicted_pages, new.evicted_pages),
            rejected: rejected.collect(),
            swap_read_bytes: rate(old.swap_read_bytes, new.swap_read_bytes),
            swap_write_bytes: rate(old.swap_write_bytes, new.swap_write_bytes),
            processes: new.processes.iter().map(of_process).collect(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    /// An answer of a tree of that age, all of whose counters have grown by `n`.
    pub(in crate::top) fn answer(seconds: u64, n: u64) -> Value {
        json!({
            "schema": 1, "command": ["python3", "big.py\u{1b}[2J"], "scheme": "memfit", "pid": 4242,
            "budget_bytes": 128u64 << 20, "wall_ns": seconds * 1_000_000_000,
            "now": {"total_bytes": 127u64 << 20, "resident_bytes": 70u64 << 20, "staged_bytes": 4u64 << 20,
                    "pool_bytes": 36u64 << 20, "metadata_bytes": 2u64 << 20, "swap_bytes": 12u64 << 20},
            "peak": {"total_bytes": 129u64 << 20},
            "faults": {"total": 100 * n, "zero": 10 * n, "staged": 20 * n, "filled": 5 * n, "pool": 60 * n, "swap": 5 * n,
                       "around_pages": 30 * n, "zero_run_pages": 0},
            "evictions": {"pages": 3000 * n, "rejected": {"not_moved": 2 * n, "wanted_meanwhile": 0}},
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
        })
    }

    #[test]
    fn reads_an_answer_and_nothing() {
        let sample = Sample::parse(&answer(10, 1));
        assert_eq!(sample.command, "python3 big.py [2J", "no escape sequence is left");
        assert_eq!((sample.processes.len(), sample.processes[0].pid), (2, 7), "those that run");
        assert_eq!(sample.by_source, [10, 20, 5, 60, 5]);
        assert_eq!(
            (sample.latency.p50, sample.latency_by_source[3].p99, sample.latency_by_source[0].max),
            (9000, 70_000, 0)
        );
        assert_eq!(sample.codecs[0].name, "zstd", "the most used first");
        assert_eq!(sample.unpaged_bytes(), 15 << 20);
        assert!((sample.ratio().unwrap() - 3.26).abs() < 0.01);
        assert_eq!(Sample::parse(&json!({})), Sample::default());
        assert_eq!(Sample::parse(&json!([1, "x"])), Sample::default());
        assert_eq!(Sample::default().ratio(), None);
    }

    #[test]
    fn rates_are_changes_over_the_pagers_time() {
        let (old, new) = (Sample::parse(&answer(10, 1)), Sample::parse(&answer(12, 5)));
        let rates = Rates::between(Some(&old), &new);
        assert_eq!((rates.faults, rates.by_source[3], rates.evicted_pages), (200.0, 120.0, 6000.0));
        assert_eq!((rates.swap_read_bytes, rates.swap_write_bytes), (2_097_152.0, 4_194_304.0));
        assert_eq!((rates.rejected, rates.processes[&7]), (vec![4.0, 0.0], (180.0, 5800.0)));
        let since_start = Rates::between(None, &new);
        assert!((since_start.faults - 500.0 / 12.0).abs() < 1e-9);
        // The same moment, and a pid that another process has.
        assert_eq!(Rates::between(Some(&new), &new).faults, 0.0);
        assert_eq!(Rates::between(Some(&new), &old).processes[&7], (0.0, 0.0));
    }
}
