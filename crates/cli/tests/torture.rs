//! The torture program under memfit: it changes its memory and mappings at random and knows what every byte must be.
//! Over the set of runs every way of a page from one state to another must have been taken.

mod support;

use std::path::PathBuf;
use support::{memfit, say, Bench};

const BUDGET: u64 = 48 << 20;
const COMMON: &str = "--size 128M --seconds 5 --verify-all-at-end --stall 20";

/// Modes; each run gets a seed of its own.
const MODES: [&str; 5] = [
    "--threads 1 --seed 101",
    "--threads 3 --seed 202",
    "--threads 3 --seed 303 --mix mremap=40,dontneed=40,free=20,munmap=30,mmap=30",
    "--threads 2 --processes 2 --size 64M --stop-cont --exits --seed 404",
    "--threads 2 --forks --seed 505",
];

/// What must have happened in one of the runs, as the statistics name it.
const REACHED: [&str; 15] = [
    "/transitions/adopted",
    "/evictions/pages",
    "/evictions/filled",
    "/evictions/compressed",
    "/codecs/zstd-trained/pages",
    "/evictions/to_swap",
    "/evictions/dropped",
    "/evictions/rejected/not_moved",
    "/faults/staged",
    "/faults/filled",
    "/faults/pool",
    "/faults/swap",
    "/transitions/quarantined",
    "/transitions/unquarantined",
    "/transitions/remapped",
];

fn torture() -> PathBuf {
    let path = memfit().with_file_name("memfit-torture");
    assert!(
        path.is_file(),
        "{} is missing: run `cargo build --workspace` with the same profile first, or `make test`",
        path.display()
    );
    path
}

#[test]
fn every_transition_keeps_every_byte() {
    let Some(bench) = Bench::new("torture", &[]) else { return };
    let (program, directory) = (torture(), bench.directory.clone());
    let mut sums = [0; REACHED.len()];
    let mut failures = Vec::new();
    for mode in MODES {
        let line = format!("exec {} {COMMON} {mode} --dir {}", program.display(), directory.display());
        let (ran, stats) = bench.managed(&line, BUDGET);
        let counts = REACHED.map(|key| stats.json.pointer(key).map_or(0, |_| stats.number(key)));
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        let shown: Vec<_> = REACHED
            .iter()
            .zip(counts)
            .map(|(key, n)| format!("{} {n}", key.rsplit('/').next().unwrap_or(key)))
            .collect();
        let peak = stats.number("/peak/total_bytes") as f64 / BUDGET as f64;
        let latency = stats.number("/fault_latency_ns/p99") / 1000;
        say(&format!(
            "torture {mode}: exit {:?}, peak {peak:.3} of the budget, 99 % of faults within {latency} us",
            ran.code
        ));
        say(&format!("  {}, forks {}", shown.join(", "), stats.number("/transitions/forks")));
        if ran.code != Some(0) || !ran.err.is_empty() {
            let out = String::from_utf8_lossy(&ran.out);
            failures.push(format!("{mode}: {:?}\n{}\n{out}", ran.code, ran.err));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let missing: Vec<_> = REACHED.iter().zip(sums).filter(|(_, sum)| *sum == 0).map(|(key, _)| *key).collect();
    assert!(missing.is_empty(), "never happened in any run: {missing:?}");
}
