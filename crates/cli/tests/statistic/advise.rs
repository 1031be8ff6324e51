//! Predictions of `memfit advise`, compared with counts of real runs.

use crate::support::recording::text;
use crate::support::stats::Stats;
use crate::support::{memfit_command, process, say, Bench, RUN_TIMEOUT};
use serde_json::Value;
use std::fs;

/// Far more than the program needs.
const PLENTY: u64 = 2 << 30;
/// MiB that the program uses again and again, MiB that it does not, and its rounds.
const USED: u64 = 32;
const REST: u64 = 32;
const ROUNDS: u64 = 8;
/// The largest budget that is tried, percent of the advised one.
const MORE_PERCENT: u64 = 130;

/// Refaulted pages.
fn back(stats: &Stats) -> u64 {
    ["pool", "swap", "filled", "around_pages"].iter().map(|key| stats.number(&format!("/faults/{key}"))).sum()
}

#[test]
fn what_is_advised_costs_what_is_said_and_so_does_less() {
    let Some(bench) = Bench::new("advise_holds", &["gcc"]) else { return };
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    if bench.compile(&["gcc"], "worked", include_str!("../workloads/worked.c")).is_none() {
        return;
    }
    let line = format!("exec ./worked {USED} {REST}");
    let (ran, _) =
        bench.managed_with(&["--record", "recording", "--record-access=50", "--advise=advice.toml"], &line, PLENTY);
    assert_eq!((ran.code, text(&ran.out), &*ran.err), (Some(7), "0 wrong\n".into(), ""), "the command's own");
    let mut command = memfit_command();
    command.args(["advise", "recording", "--json", "-"]);
    let advice = process::run(command, &bench.directory, &process::Limits::of(RUN_TIMEOUT));
    assert_eq!(advice.code, Some(0), "{}", advice.err);
    let json: Value = serde_json::from_slice(&advice.out).unwrap();
    let toml = fs::read_to_string(bench.directory.join("advice.toml")).unwrap();
    let scheme = memfit_scheme::parse(&toml, &[]).unwrap_or_else(|error| panic!("{error}\n{toml}"));
    assert_eq!(scheme.name, json["scheme"].as_str().unwrap());
    assert!(toml.contains("# ") && toml.contains("memfit run -m ") && toml.contains("./worked 32 32"), "{toml}");
    let budget = json["budget_bytes"].as_u64().unwrap();
    // The exact budget depends on time, which passes more quickly where others use the CPUs; the
    // number of refaults does not.
    assert!((16 << 20..=(USED + REST + 8) << 20).contains(&budget), "{json:#}");
    let touches = (USED << 20) / 4096 * ROUNDS;
    let live = |budget: u64| {
        let (ran, stats) = bench.managed_with(&["-s", "advice.toml"], &line, budget);
        assert_eq!(ran.code, Some(7), "{}", ran.err);
        back(&stats)
    };
    let costs = json["costs"].as_array().unwrap().iter().filter(|cost| cost["percent"].is_u64());
    let said: Vec<(u64, u64)> =
        costs.map(|cost| (cost["budget_bytes"].as_u64().unwrap(), cost["faults"].as_u64().unwrap())).collect();
    // Half of the smallest budgets is below the minimum.
    assert!(said.len() >= 2 && said[0].0 == budget, "{json:#}");
    // Page faults fall from a quarter of the touches to none within a tenth of the budget, and a
    // sample varies by chance. So a prediction must lie between the counts in the next smaller
    // budget and in a larger one.
    let more = budget / 100 * MORE_PERCENT;
    let all: Vec<(u64, u64)> =
        [more].into_iter().chain(said.iter().map(|&(budget, _)| budget)).map(|budget| (budget, live(budget))).collect();
    for (i, &(budget, said)) in said.iter().enumerate() {
        let (larger, here, smaller) = (all[i].1, all[i + 1].1, all.get(i + 2).map_or(touches, |&(_, live)| live));
        say(&format!(
            "advise_holds: in {} MiB {here} pages came back, {said} were said; {touches} touches",
            budget >> 20
        ));
        let slack = touches / 4;
        assert!(said + slack >= larger && said <= smaller + slack, "{all:?}\n{json:#}");
    }
    let least = all[said.len()].1;
    assert!(least > all[1].1 && least > touches / 4, "{all:?}\n{json:#}");
}
