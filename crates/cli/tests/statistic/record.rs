//! Recordings, compared with their runs.

use crate::support::process::{self, Limits};
use crate::support::recording::{bench, recorded, FILE, MIB};
use crate::support::{memfit_command, RUN_TIMEOUT};
use serde_json::Value;

/// `memfit sim` with the residents of the run does about what the pager did.
#[test]
fn a_simulation_of_the_run_as_it_was_counts_like_the_run() {
    let Some(bench) = bench("record-simulated", "mix") else { return };
    for preset in ["memfit", "swap", "zswap-zbud"] {
        let (_, stats, _) = recorded(&bench, &["-s", preset], "./mix 36 1 rand", 20 * MIB);
        let mut command = memfit_command();
        command.args(["sim", FILE, "--json", "-"]);
        let ran = process::run(command, &bench.directory, &Limits::of(RUN_TIMEOUT));
        assert_eq!((ran.code, &*ran.err), (Some(0), ""));
        let rows: Value = serde_json::from_slice(&ran.out).unwrap();
        let row = &rows["rows"][0];
        let simulated = |key: &str| row[key].as_u64().unwrap() as f64;
        let (evicted, live) = (simulated("evicted_pages"), stats.number("/evictions/pages") as f64);
        assert!((evicted / live - 1.0).abs() < 0.02, "{preset}: {evicted} evicted, and {live} in the run");
        let faults = |sources: &[&str]| {
            let sum = sources.iter().map(|source| simulated(&format!("faults_{source}"))).sum::<f64>();
            let live = sources.iter().map(|source| stats.number(&format!("/faults/{source}")) as f64).sum::<f64>();
            (sum, live)
        };
        let (all, live) = faults(&["staged", "filled", "pool", "swap"]);
        assert!((all - live).abs() <= live * 0.25 + 300.0, "{preset}: {all} faults, and {live} in the run: {row:#}");
        // How far writes lag behind the programs depends on the machine, and so does which pages
        // are still in memory.
        let (swap, live) = faults(&["swap"]);
        let alike = swap <= live * 2.0 + 300.0 && live <= swap * 2.0 + 300.0;
        assert!(alike, "{preset}: {swap} faults from swap, and {live} in the run: {row:#}");
    }
}
