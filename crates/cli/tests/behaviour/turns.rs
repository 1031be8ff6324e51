//! Load control: processes that take pages from each other run by turns.

use crate::support::contents::assert_contents_eq;
use crate::support::stats::live;
use crate::support::tree::{eventually, Tree};
use crate::support::{memfit_command, Bench};
use std::time::Duration;

/// Of three processes one at a time fits. Whoever is held goes on, and has all of its data.
#[test]
fn processes_that_take_pages_from_each_other_wait_by_turns() {
    let Some(bench) = Bench::new("turns", &["gcc"]) else { return };
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    let Some(_) = bench.compile(&["gcc"], "program", include_str!("../workloads/turns.c")) else { return };
    let mut command = bench.memfit();
    command.args(["run", "-q", "-m", "48M", "--turns", "1", "--", "./program", "3", "30"]);
    let mut tree = Tree::start(command, &bench.directory, true);
    eventually("each was held", || {
        std::thread::sleep(Duration::from_millis(100));
        let held = live(memfit_command(), tree.root()).and_then(|stats| stats["transitions"]["held"].as_u64());
        held.is_some_and(|held| held >= 5)
    });
    bench.file("stop", "");
    assert_eq!(tree.wait(), 0, "{}", tree.errors());
    assert_contents_eq!(tree.text(), "failed: 0 of 3\n", "{}", tree.errors());
    assert_eq!(tree.errors(), "");
}
