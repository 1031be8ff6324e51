//! Threads that end while their memory is cold. The kernel then marks their robust mutexes and
//! clears their thread ids, and serves no userfault: the parts of a thread's descriptor that it
//! needs must be resident.
//!
//! `scripts/mutants` runs the same program with a pager that evicts them.

use crate::support::contents::assert_contents;
use crate::support::known::{compare, plainly, program};
use crate::support::{say, Bench, SEVERAL};

const BUDGET: u64 = 32 << 20;
/// glibc's rseq area lies in the descriptor, and the kernel writes to it whenever a thread wakes
/// up.
const WITHOUT_RSEQ: &str = "GLIBC_TUNABLES=glibc.pthread.rseq=0";
/// Evict the oldest pages, whatever they are: the default policy may find it better to keep a part
/// of them, and with it a cold stack.
const OLDEST_FIRST: [&str; 2] = ["--set", "reclaim=fifo"];
const MARKED: &str = "8 of 8 mutexes marked\n";
const JOINED: &str = "8 of 8 threads joined\n";

fn ends(name: &str, mode: &str, expected: &str) {
    let Some(bench) = Bench::new(name, &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc"], "raw_exit", include_str!("../workloads/raw_exit.c")) else { return };
    let line = format!("{WITHOUT_RSEQ} ./raw_exit {mode}");
    let plain = bench.plain(&line);
    assert_eq!(plain.code, Some(0), "{}", plain.err);
    assert_eq!(String::from_utf8_lossy(&plain.out), format!("{expected}0 of 8 threads cold\n"));
    let (managed, stats) = bench.managed_with(&OLDEST_FIRST, &line, BUDGET);
    let (out, seconds) = (String::from_utf8_lossy(&managed.out), managed.time.as_secs_f64());
    let evicted = stats.number("/evictions/pages");
    say(&format!("{name:32} {evicted} pages evicted, {seconds:.1} s: {}", out.trim().replace('\n', ", ")));
    // If all threads are cold, their descriptors would have been evicted, too, if they could be.
    assert_contents!(managed.code == Some(0) && out.starts_with(expected), "{out}\n{}", managed.err);
    assert_eq!(out, format!("{expected}8 of 8 threads cold\n"), "{}\n{:#}", managed.err, stats.json);
    assert_eq!(managed.err, "");
    stats.no_warnings();
}

#[test]
fn threads_leave_by_a_bare_system_call() {
    ends("threads_leave", "exit", &format!("{MARKED}{JOINED}"));
}

#[test]
fn threads_of_a_killed_process() {
    ends("threads_killed", "kill", MARKED);
}

/// A thread that starts between two scans of the pager can have its descriptor where an ended
/// thread had it.
#[test]
fn stacks_that_are_kept_for_new_threads() {
    let Some(bench) = program("cached", include_str!("../workloads/cached.c")) else { return };
    let Some(plain) = plainly(&bench, "./program") else { return };
    let (ran, stats) = bench.managed_with(&OLDEST_FIRST, &format!("{WITHOUT_RSEQ} ./program"), BUDGET);
    compare(&bench, &plain, (&ran, &stats), SEVERAL);
}

#[test]
fn threads_on_stacks_of_ended_ones() {
    ends("threads_on_old_stacks", "late", &format!("{MARKED}{JOINED}"));
}

/// In old memory, and for less time than passes between two scans.
#[test]
fn threads_on_stacks_of_the_programs_own() {
    let Some(bench) = program("own_stacks", include_str!("../workloads/own_stacks.c")) else { return };
    let line = format!("{WITHOUT_RSEQ} ./program");
    let Some(plain) = plainly(&bench, &line) else { return };
    let (ran, stats) = bench.managed_with(&OLDEST_FIRST, &line, BUDGET);
    compare(&bench, &plain, (&ran, &stats), SEVERAL);
}
