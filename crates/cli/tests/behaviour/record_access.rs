//! `memfit run --record-access`: pages of a sample are evicted again and again, and come back as
//! they were; the recording has their touches, and can be replayed.

use super::torture::{SOAK, STALLED};
use crate::support::contents::assert_contents_eq;
use crate::support::sampled::{compiled, known, recording, tell, OPTIONS, PLENTY};
use crate::support::stats::Stats;
use crate::support::{memfit, sized, Bench};

#[test]
fn touches_of_sampled_pages_are_recorded() {
    let Some(bench) = Bench::new("record_access_known", &["gcc"]) else { return };
    if let Some(known) = known(&bench) {
        // Usually all touches are there. On a busy machine a pass can take longer than the
        // program's pause, and passes become rarer. A fault that is served again counts twice.
        let (pages, faults) = (known.touched.len(), known.touched.iter().sum::<usize>());
        assert!(pages > 0 && faults * 2 > pages * 3, "{:?}", known.touched);
    }
}

fn keeps_every_byte(bench: &Bench, line: &str, budget: u64) -> Stats {
    let (ran, stats) = bench.managed_with(&OPTIONS, line, budget);
    let out = String::from_utf8_lossy(&ran.out);
    assert_ne!(ran.code, Some(STALLED), "{}\n{out}", ran.err);
    assert_contents_eq!(ran.code, Some(0), "{}\n{out}", ran.err);
    assert_eq!(ran.err, "");
    tell(bench, &stats, &recording(bench));
    // If memory is short, the sample is small and passes wait.
    if budget == PLENTY {
        let counts = ["/evictions/pages", "/faults/staged"].map(|key| stats.number(key));
        assert!(counts.iter().all(|&count| count > 1000), "{counts:?}\n{:#}", stats.json);
    }
    stats
}

#[test]
fn processes_that_fork() {
    let Some(bench) = Bench::new("record_access_forks", &["gcc"]) else { return };
    if compiled(&bench) {
        let stats = keeps_every_byte(&bench, "exec ./sampled", PLENTY);
        assert_eq!(stats.number("/evictions/compressed"), 0, "memory was never short: {:#}", stats.json);
    }
}

#[test]
fn processes_of_an_ordinary_user() {
    let Some(bench) = Bench::ordinary("record_access_user", &["gcc"]) else { return };
    if compiled(&bench) {
        keeps_every_byte(&bench, "exec ./sampled", PLENTY);
    }
}

#[test]
fn torture() {
    let Some(bench) = Bench::new("record_access_torture", &[]) else { return };
    let program = memfit().with_file_name("memfit-torture");
    assert!(
        program.is_file(),
        "{} is missing: `cargo build --workspace` with the same profile first",
        program.display()
    );
    for (ops, mode, budget) in [
        (3000, "--threads 3 --seed 71 --mix mremap=40,dontneed=40,free=20,munmap=30,mmap=30", PLENTY),
        (1800, "--threads 2 --forks --seed 72", PLENTY),
        (1500, "--threads 2 --processes 2 --size 64M --stop-cont --exits --seed 73", 48 << 20),
    ] {
        let common = format!("--size 128M --ops {} --verify-all-at-end --stall 120", sized(ops, ops * SOAK));
        let directory = bench.directory.display();
        keeps_every_byte(&bench, &format!("exec {} {common} {mode} --dir {directory}", program.display()), budget);
    }
}
