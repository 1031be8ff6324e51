//! `memfit sim` on a terminal.

use crate::support::terminal::Terminal;
use crate::support::tree::{eventually, Tree};
use crate::support::{memfit_command, skip};
use std::path::Path;

#[test]
fn how_far_it_is_is_shown_on_a_terminal_alone() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // This would run very long; its progress shows soon.
    let words = ["sim", "uniform:pages=32M,accesses=1000000000", "-s", "memfit,lru", "-m", "16M,24M"];
    let on_a_terminal = |words: &[&str]| {
        let mut terminal = Terminal::open().map_err(|reason| skip("sim_progress", &reason)).ok()?;
        terminal.resize(100, 24);
        let mut command = memfit_command();
        command.args(words).env("TERM", "xterm");
        terminal.give_to(&mut command);
        Some((terminal, Tree::start(command, directory, false)))
    };
    let Some((mut terminal, _counting)) = on_a_terminal(&words) else { return };
    eventually("events are counted", || terminal.count("uniform:pages=32M,acc...: first pass, ") > 0);
    let words =
        ["sim", "uniform:pages=32M,accesses=2000000", "-s", "memfit,lru", "-m", "16M,24M", "--device", "hdd-1999"];
    let (mut terminal, _simulating) = on_a_terminal(&words).unwrap();
    for part in [" % [", "> ", "0 of 4 simulations, ", " events/s, ", " left"] {
        eventually(part, || terminal.count(part) > 0);
    }
    let small = ["sim", "zipf:pages=16M,accesses=60000,seed=3", "-m", "8M", "-q"];
    let (mut terminal, mut quiet) = on_a_terminal(&small).unwrap();
    assert_eq!(quiet.wait(), 0);
    assert!(terminal.text().starts_with("workload"), "{}", terminal.text());
}
