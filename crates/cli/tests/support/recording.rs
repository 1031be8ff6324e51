//! Recordings of runs: how they are made, and what must hold of each.

use super::process::{self, Limits, Ran};
use super::stats::Stats;
use super::{memfit_command, Bench, RUN_TIMEOUT};
use serde_json::Value;
use std::fs;
use std::path::Path;

pub const MIB: u64 = 1 << 20;
/// Where tests record to, in their directories.
pub const FILE: &str = "run.memfit";

pub fn bench(name: &str, program: &str) -> Option<Bench> {
    let bench = Bench::new(name, &["gcc"])?;
    let source = match program {
        "mix" => include_str!("../workloads/mix.c"),
        "mapped" => include_str!("../workloads/mapped.c"),
        _ => include_str!("../workloads/touch.c"),
    };
    bench.compile(&["gcc", "-O2"], program, source)?;
    Some(bench)
}

/// Runs `memfit trace` in a directory.
pub fn trace(directory: &Path, words: &[&str]) -> Ran {
    memfit(directory, &[&["trace"], words].concat())
}

pub fn memfit(directory: &Path, words: &[&str]) -> Ran {
    let mut command = memfit_command();
    command.args(words);
    let ran = process::run(command, directory, &Limits::of(RUN_TIMEOUT));
    assert!(!ran.timed_out, "memfit {words:?} takes too long");
    ran
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What `info` prints for a recording that can be read up to its end or its cut.
#[track_caller]
pub fn info(directory: &Path, file: &str) -> Value {
    let (ran, json) = (trace(directory, &["info", file]), trace(directory, &["info", "--json", file]));
    assert_eq!((ran.code, &*ran.err, json.code, &*json.err), (Some(0), "", Some(0), ""), "{file}");
    let value: Value = serde_json::from_slice(&json.out).unwrap();
    let told = text(&ran.out);
    assert!(told.starts_with(&format!("{file}: ")) && told.contains("budget"), "{told}");
    let all: u64 = value[0]["by_call"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(value[0]["calls"], all);
    value[0].clone()
}

/// Asserts that a replay makes the same decisions; returns the output of `info`.
#[track_caller]
pub fn good(directory: &Path, file: &str, whole: bool) -> Value {
    let told = info(directory, file);
    assert_eq!(told["whole"], whole, "{told:#}");
    let verified = trace(directory, &["verify", file]);
    assert_eq!((verified.code, &*verified.err), (Some(0), ""), "{told:#}");
    assert!(text(&verified.out).contains("every decision is the same"), "{}", text(&verified.out));
    assert_eq!(text(&verified.out).contains("cut at byte"), !whole, "{}", text(&verified.out));
    told
}

/// Asserts that the tables have all calls that `info` counted.
#[track_caller]
pub fn as_tables(directory: &Path, file: &str, told: &Value) {
    for table in ["table.csv", "table.parquet"] {
        let exported = trace(directory, &["export", file, "-o", table]);
        let whole = !exported.err.contains("cut at byte");
        assert_eq!((exported.code, Value::from(whole)), (Some(0), told["whole"].clone()), "{}", exported.err);
    }
    let rows = fs::read(directory.join("table.csv")).unwrap().iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(told["calls"], rows - 1, "{told:#}");
}

/// Records a run, and asserts that its recording is good.
#[track_caller]
pub fn recorded(bench: &Bench, options: &[&str], line: &str, budget: u64) -> (Ran, Stats, Value) {
    let (ran, stats) = bench.managed_with(&[&["--record", FILE], options].concat(), line, budget);
    (ran, stats, good(&bench.directory, FILE, true))
}
