//! Load control: processes that take pages from each other run by turns.

use crate::support::contents::assert_contents_eq;
use crate::support::stats::live;
use crate::support::tree::Tree;
use crate::support::{memfit_command, skip, Bench};
use std::time::Duration;

/// How often load control looks whether a process can be held, with a wide margin: turns begin
/// within a second, a rest takes ten at first.
const LOOKS: usize = 1500;

/// Of three processes one at a time fits. Whoever is held goes on, and has all of its data.
#[test]
fn processes_that_take_pages_from_each_other_wait_by_turns() {
    let Some(bench) = Bench::new("turns", &["gcc"]) else { return };
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    let Some(_) = bench.compile(&["gcc"], "program", include_str!("../workloads/turns.c")) else { return };
    let mut command = bench.memfit();
    command.args(["run", "-q", "-m", "56M", "--turns", "1", "--", "./program", "3", "30"]);
    let mut tree = Tree::start(command, &bench.directory, true);
    let (mut held, mut waits, mut seen) = (0, false, None);
    // Two of three at a time, whatever it brings: four have been held twice.
    for _ in 0..LOOKS {
        std::thread::sleep(Duration::from_millis(100));
        let Some(stats) = live(memfit_command(), tree.root()) else { continue };
        held = stats["transitions"]["held"].as_u64().unwrap_or(0);
        waits |= stats["processes"].as_array().is_some_and(|all| all.iter().any(|process| process["waits"] == true));
        seen = Some(stats);
        if held >= 4 {
            break;
        }
    }
    bench.file("stop", "");
    assert_eq!(tree.wait(), 0, "{}", tree.errors());
    assert_contents_eq!(tree.text(), "failed: 0 of 3\n", "{}", tree.errors());
    assert_eq!(tree.errors(), "");
    if std::fs::read_to_string(format!("/proc/{}/syscall", std::process::id())).is_err() {
        return skip("turns", "this kernel does not tell what threads do");
    }
    assert!(held >= 4 && waits, "held {held} times, seen to wait: {waits}: {seen:?}");
}
