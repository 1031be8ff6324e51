//! Programs that know each word of their memory (`workloads/pages.h`), fill about twice their
//! budget, and print how many words are wrong: the output must be the same without memfit.

use super::contents::assert_contents_eq;
use super::process::Ran;
use super::stats::Stats;
use super::{say, skip, Bench, Bounds, SEVERAL};

/// Half of what most programs here fill.
pub const BUDGET: u64 = 32 << 20;
/// Least pages that must have been evicted.
pub const EVICTED: u64 = 2000;
/// Exit code of a program that is not permitted to do here what it tests.
pub const REFUSED: i32 = 77;

/// A program of `workloads/`, and its bench.
pub fn program(name: &str, source: &str) -> Option<Bench> {
    compiled(Bench::new(name, &["gcc"])?, source)
}

/// The same for an ordinary user.
pub fn ordinary_program(name: &str, source: &str) -> Option<Bench> {
    compiled(Bench::ordinary(name, &["gcc"])?, source)
}

fn compiled(bench: Bench, source: &str) -> Option<Bench> {
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    bench.compile(&["gcc"], "program", source)?;
    Some(bench)
}

/// Runs a line without memfit; `None`, with a report, where it is not permitted.
pub fn plainly(bench: &Bench, line: &str) -> Option<Ran> {
    let plain = bench.plain(line);
    let out = String::from_utf8_lossy(&plain.out).into_owned();
    if plain.code == Some(REFUSED) {
        skip(&bench.name, &format!("refused here without memfit, too: {line}: {out}"));
        return None;
    }
    assert_eq!((plain.code, plain.err.as_str()), (Some(0), ""), "without memfit: {line}: {out}");
    Some(plain)
}

/// Asserts that the program did the same under memfit, and was paged.
#[track_caller]
pub fn compare(bench: &Bench, plain: &Ran, (managed, stats): (&Ran, &Stats), bounds: Bounds) {
    let out = |ran: &Ran| String::from_utf8_lossy(&ran.out).into_owned();
    let code = managed.code;
    assert_contents_eq!(
        (code, out(managed)),
        (Some(0), out(plain)),
        "{}: {}\n{:#}",
        bench.name,
        managed.err,
        stats.json
    );
    assert_eq!(managed.err, "", "{}: {:#}", bench.name, stats.json);
    let evicted = stats.number("/evictions/pages");
    assert!(evicted >= EVICTED, "{}: only {evicted} pages were evicted; {:#}", bench.name, stats.json);
    stats.peak_within(bounds.peak_percent);
    say(&format!("{:24} {evicted} pages evicted, {:.1} s", bench.name, managed.time.as_secs_f64()));
}

/// Forked workers that share a table of their parent.
pub const SHARED_TABLE: &str = include_str!("../workloads/shared_table.c");

/// Runs the workers with a table of 24 MiB, and as much memory of their own, in a budget that has
/// room for the table, and in one that has not.
#[track_caller]
pub fn share_a_table(bench: &Bench) {
    for budget in [40 << 20, 20 << 20] {
        let (ran, stats) = managed(bench, "./program 24", budget);
        let right = (Some(0), &b"wrong: 0\n"[..]);
        assert_contents_eq!((ran.code, &*ran.out), right, "{}\n{:#}", ran.err, stats.json);
        assert!(stats.number("/evictions/pages") > EVICTED, "{:#}", stats.json);
        stats.peak_within(SEVERAL.peak_percent);
        let same = stats.number("/evictions/same");
        say(&format!("{:24} {same} pages were stored already, {:.1} s", bench.name, ran.time.as_secs_f64()));
        assert!(budget > 24 << 20 || same > 1000, "what they share is stored once: {:#}", stats.json);
    }
}

/// memfit's words when it kills a child whose contents cannot be determined: another thread dropped
/// memory at the very moment of the fork. Only where the kernel reports no forks (docs/limits.md).
const UNCLEAR: &str = "another thread of its parent";

/// Runs a line under memfit. For an ordinary user: until memfit killed no child for that reason,
/// three times at most.
pub fn managed(bench: &Bench, line: &str, budget: u64) -> (Ran, Stats) {
    let again = if bench.user.is_some() { 2 } else { 0 };
    for _ in 0..again {
        let (ran, stats) = bench.managed(line, budget);
        if !ran.err.contains(UNCLEAR) {
            return (ran, stats);
        }
        say(&format!("{}: once more, since {}", bench.name, ran.err.lines().next().unwrap_or_default()));
    }
    bench.managed(line, budget)
}

/// Asserts that a line does the same with and without memfit.
pub fn same(bench: &Bench, line: &str, bounds: Bounds) {
    let Some(plain) = plainly(bench, line) else { return };
    let (managed, stats) = managed(bench, line, BUDGET);
    compare(bench, &plain, (&managed, &stats), bounds);
    stats.no_warnings();
}

/// The same for one program, called in several ways.
pub fn same_each(bench: &Bench, ways: &[&str], bounds: Bounds) {
    ways.iter().for_each(|way| same(bench, &format!("./program {way}"), bounds));
}
