//! `memfit run --advise` of a program that is paged.

use crate::support::contents::assert_contents_eq;
use crate::support::recording::text;
use crate::support::{memfit_command, process, Bench, RUN_TIMEOUT};
use std::fs;

/// Far more than the program needs.
const PLENTY: u64 = 2 << 30;

#[test]
fn advice_goes_to_standard_error_and_nothing_is_left() {
    let Some(bench) = Bench::new("advise_error", &["gcc"]) else { return };
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    if bench.compile(&["gcc"], "worked", include_str!("../workloads/worked.c")).is_none() {
        return;
    }
    let temporary = bench.directory.join("temporary");
    fs::create_dir(&temporary).unwrap();
    let mut command = memfit_command();
    command.env("TMPDIR", &temporary).args(["run", "--advise"]);
    let (ran, _) = bench.managed_by(command, "exec ./worked 4 20", PLENTY);
    assert_contents_eq!((ran.code, text(&ran.out)), (Some(7), "0 wrong\n".into()), "the command's own");
    for part in ["give it ", "memfit run -m ", "Why:", "How sure:", "touches of"] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "the recording had no name");
    let mut command = memfit_command();
    command.args(["run", "--advise=advice.toml", "-m", "2G", "--", "./worked", "4", "20"]);
    let ran = process::run(command, &bench.directory, &process::Limits::of(RUN_TIMEOUT));
    assert!(ran.err.contains("give it ") && !ran.err.contains("Why:"), "{}", ran.err);
    assert!(ran.err.contains("  memfit run -m ") && ran.err.contains(" -s advice.toml "), "{}", ran.err);
    assert!(fs::read_to_string(bench.directory.join("advice.toml")).unwrap().contains("# Why:"));
    let mut command = memfit_command();
    command.args(["run", "--advise"]);
    let (ran, _) = bench.managed_by(command, "exit 5", PLENTY);
    assert!(ran.code == Some(5) && ran.out.is_empty(), "{}", ran.err);
    assert!(ran.err.is_empty() || ran.err.contains("give") || ran.err.contains("at most"), "{}", ran.err);
    assert!(!ran.err.contains("memfit run --advise -- COMMAND"), "that is the command: {}", ran.err);
}
