//! The statistics of a run: schema 1, and figures that fit together.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

pub struct Stats {
    pub json: Value,
}

/// What a tree that runs says of itself, by the pid of its first process, to this memfit.
pub fn live(mut memfit: Command, pid: i32) -> Option<Value> {
    let out = memfit.args(["stat", "--json"]).output().unwrap().stdout;
    let trees: Value = serde_json::from_slice(&out).unwrap();
    trees.as_array().unwrap().iter().find(|tree| tree["pid"] == pid).cloned()
}

impl Stats {
    /// Reads the file and checks all that holds for every run.
    #[track_caller]
    pub fn read(path: &Path, budget: u64) -> Stats {
        let text = fs::read(path).unwrap_or_else(|error| panic!("no statistics: {}: {error}", path.display()));
        let json: Value = serde_json::from_slice(&text).expect("the statistics are JSON");
        let stats = Stats { json };
        assert_eq!(stats.number("/schema"), 1);
        assert_eq!(stats.number("/budget_bytes"), budget);
        let known: memfit_stats::Stats = serde_json::from_slice(&text).unwrap();
        assert_eq!(serde_json::to_value(known).unwrap(), stats.json, "every key of schema 1 is there, and no other");
        stats.sane();
        stats
    }

    #[track_caller]
    pub fn number(&self, key: &str) -> u64 {
        let value = self.json.pointer(key).unwrap_or_else(|| panic!("{key} is missing"));
        value.as_u64().unwrap_or_else(|| panic!("{key} is {value}"))
    }

    #[track_caller]
    fn sane(&self) {
        let n = |key: &str| self.number(key);
        assert_eq!(n("/transitions/unexpected_present"), 0, "a page was present that should not be; {:#}", self.json);
        assert_eq!(n("/swap/errors"), 0, "{:#}", self.json);
        assert!(n("/faults/total") <= n("/fault_latency_ns/count"), "{:#}", self.json);
        assert!(n("/fault_latency_ns/p50") <= n("/fault_latency_ns/p99"));
        assert!(n("/fault_latency_ns/p99") <= n("/fault_latency_ns/max"));
        assert!(n("/now/metadata_bytes") <= n("/peak/metadata_bytes"), "{:#}", self.json);
        for part in ["resident", "staged", "pool", "metadata"] {
            let key = format!("/peak/{part}_bytes");
            assert!(n(&key) <= n("/peak/total_bytes") + (8 << 20), "{key} exceeds the total; {:#}", self.json);
        }
    }

    #[track_caller]
    pub fn no_warnings(&self) {
        assert_eq!(self.json["warnings"], serde_json::json!([]), "{:#}", self.json);
    }

    /// Removes warnings with these words.
    pub fn forget_warning(&mut self, words: &str) {
        let warnings = self.json["warnings"].as_array_mut().unwrap();
        warnings.retain(|warning| !warning.as_str().unwrap().contains(words));
    }

    #[track_caller]
    pub fn peak_within(&self, percent: u64) {
        let (peak, budget) = (self.number("/peak/total_bytes"), self.number("/budget_bytes"));
        assert!(peak * 100 <= budget * percent, "peak {peak} is over {percent} % of {budget}; {:#}", self.json);
    }
}
