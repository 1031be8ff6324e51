//! docs/kernel-surface.md: each system call on memory that is evicted gives what it gives without
//! memfit. Each row is a process of its own, so none spoils the next one.

use crate::support::known::{compare, plainly};
use crate::support::{skip, Bench, FORKS};

/// A row fills 4 MiB and evicts them by 24 MiB of new memory.
const BUDGET: u64 = 16 << 20;
const ROWS: &str = "for row in $(./program list); do ./program $row || echo \"$row: ended with $?\"; done";
const IMPOSSIBLE: &str = ": not possible here";

fn rows(bench: Option<Bench>, source: &str) {
    let Some(bench) = bench else { return };
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    bench.file("rows.h", include_str!("../workloads/surface/rows.h"));
    let Some(_) = bench.compile(&["gcc"], "program", source) else { return };
    let Some(plain) = plainly(&bench, ROWS) else { return };
    let out = String::from_utf8_lossy(&plain.out).into_owned();
    for line in out.lines() {
        assert!(!line.contains("ended with"), "without memfit: {out}");
        assert!(!line.ends_with(" wrong") || line.ends_with(": 0 wrong"), "without memfit: {out}");
        if let Some(row) = line.strip_suffix(IMPOSSIBLE) {
            skip(&format!("{} {row}", bench.name), "this kernel or user cannot do it without memfit either");
        }
    }
    let (managed, stats) = bench.managed(ROWS, BUDGET);
    compare(&bench, &plain, (&managed, &stats), FORKS);
}

fn as_root(name: &str, source: &str) {
    rows(Bench::new(name, &["gcc"]), source);
}

fn as_user(name: &str, source: &str) {
    rows(Bench::ordinary(name, &["gcc"]), source);
}

#[test]
fn mappings() {
    as_root("surface_mappings", include_str!("../workloads/surface/mappings.c"));
}

#[test]
fn mappings_of_an_ordinary_user() {
    as_user("surface_mappings_user", include_str!("../workloads/surface/mappings.c"));
}

#[test]
fn advice() {
    as_root("surface_advice", include_str!("../workloads/surface/advice.c"));
}

#[test]
fn advice_of_an_ordinary_user() {
    as_user("surface_advice_user", include_str!("../workloads/surface/advice.c"));
}

#[test]
fn calls() {
    as_root("surface_calls", include_str!("../workloads/surface/calls.c"));
}

#[test]
fn calls_of_an_ordinary_user() {
    as_user("surface_calls_user", include_str!("../workloads/surface/calls.c"));
}

/// Where docs/limits.md says that a program can notice memfit.
#[test]
fn limits() {
    as_root("surface_limits", include_str!("../workloads/surface/limits.c"));
}

#[test]
fn limits_of_an_ordinary_user() {
    as_user("surface_limits_user", include_str!("../workloads/surface/limits.c"));
}

#[test]
fn processes() {
    as_root("surface_processes", include_str!("../workloads/surface/processes.c"));
}

#[test]
fn processes_of_an_ordinary_user() {
    as_user("surface_processes_user", include_str!("../workloads/surface/processes.c"));
}
