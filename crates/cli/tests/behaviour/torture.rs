//! The torture program under memfit: it changes its memory and mappings at random and knows what
//! every byte must be. Over all runs every transition between page states must have happened.

use crate::support::contents::assert_contents;
use crate::support::{memfit, say, sized, Bench};
use std::path::PathBuf;

const BUDGET: u64 = 48 << 20;
const COMMON: &str = "--size 128M --verify-all-at-end --stall 120";

/// Operations of each thread, for some seconds, and modes, each with its own seed.
const MODES: [(u64, &str); 6] = [
    (5000, "--threads 1 --seed 101"),
    (2500, "--threads 3 --seed 202"),
    (3000, "--threads 3 --seed 303 --mix mremap=40,dontneed=40,free=20,munmap=30,mmap=30"),
    (1500, "--threads 2 --processes 2 --size 64M --stop-cont --exits --seed 404"),
    (1800, "--threads 2 --forks --seed 505"),
    (400, "--threads 1 --forks --mix fork=2000 --size 80M --seed 606"),
];
/// Factor for the operations in `make soak`.
pub const SOAK: u64 = 10;

/// What must have happened in one of the runs, by the keys of the statistics.
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

pub fn torture() -> PathBuf {
    let path = memfit().with_file_name("memfit-torture");
    assert!(
        path.is_file(),
        "{} is missing: run `cargo build --workspace` with the same profile first, or `make test`",
        path.display()
    );
    path
}

/// Exit code of torture when a thread makes no progress.
pub const STALLED: i32 = 4;

#[test]
fn every_transition_keeps_every_byte() {
    let Some(bench) = Bench::new("torture", &[]) else { return };
    let (program, directory) = (torture(), bench.directory.clone());
    let mut sums = [0; REACHED.len()];
    let (mut failures, mut said) = (Vec::new(), String::new());
    for (ops, mode) in MODES {
        let ops = sized(ops, ops * SOAK);
        let line = format!("exec {} {COMMON} --ops {ops} {mode} --dir {}", program.display(), directory.display());
        let (ran, stats) = bench.managed(&line, BUDGET);
        let counts = REACHED.map(|key| stats.json.pointer(key).map_or(0, |_| stats.number(key)));
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        let shown: Vec<_> = REACHED
            .iter()
            .zip(counts)
            .map(|(key, n)| format!("{} {n}", key.rsplit('/').next().unwrap_or(key)))
            .collect();
        said.push_str(&ran.err);
        let peak = stats.number("/peak/total_bytes") as f64 / BUDGET as f64;
        let latency = stats.number("/fault_latency_ns/p99") / 1000;
        say(&format!(
            "torture {mode}: exit {:?}, peak {peak:.3} of the budget, 99 % of faults within {latency} us",
            ran.code
        ));
        say(&format!("  {}, forks {}", shown.join(", "), stats.number("/transitions/forks")));
        assert_ne!(ran.code, Some(STALLED), "{mode}: {}", ran.err);
        if ran.code != Some(0) {
            let out = String::from_utf8_lossy(&ran.out);
            failures.push(format!("{mode}: {:?}\n{}\n{out}", ran.code, ran.err));
        }
    }
    assert_contents!(failures.is_empty(), "{}", failures.join("\n"));
    let missing: Vec<_> = REACHED.iter().zip(sums).filter(|(_, sum)| *sum == 0).map(|(key, _)| *key).collect();
    assert_eq!(said, "");
    assert!(missing.is_empty(), "never happened in any run: {missing:?}");
}
