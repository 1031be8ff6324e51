//! The budget under every preset.

use crate::support::contents::assert_contents_eq;
use crate::support::{say, Bench};
use memfit_scheme::PRESETS;

const BUDGET: u64 = 20 << 20;
/// Largest peak, percent of the budget: less than what the program would have without a limit.
const PEAK_PERCENT: u64 = 140;
const RUNS: usize = 3;

/// The program fills 36 MiB in about 20 ms, in which the pager may have to wait for a CPU: one run
/// of three must stay within the limit.
#[test]
fn every_preset_holds_its_budget_in_one_of_three_runs() {
    let Some(bench) = Bench::new("schemes_budget", &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc", "-O2"], "mix", include_str!("../workloads/mix.c")) else { return };
    let mut over = Vec::new();
    for preset in PRESETS {
        let peak = || {
            let (ran, stats) = bench.managed_with(&["-s", preset.name], "./mix 36 1 rand", BUDGET);
            assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"right\n"[..]), "{}: {}", preset.name, ran.err);
            stats.number("/peak/total_bytes") * 100 / BUDGET
        };
        let peaks: Vec<u64> = (0..RUNS).map(|_| peak()).collect();
        say(&format!("{}: peaks of {peaks:?} % of the budget", preset.name));
        if peaks.iter().all(|&peak| peak > PEAK_PERCENT) {
            over.push(preset.name);
        }
    }
    assert!(over.is_empty(), "over {PEAK_PERCENT} % in each run: {over:?}");
}
