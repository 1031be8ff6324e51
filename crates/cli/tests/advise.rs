//! `memfit advise` and `memfit run --advise` as a user meets them: what is advised is tried with the program, by counts.

mod support;

use memfit_core::scheme::Scheme;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use support::stats::Stats;
use support::{say, Bench};

/// Far more than the program needs.
const PLENTY: u64 = 2 << 30;
/// MiB that are used again and again, and those that are not; how often, as in the program.
const USED: u64 = 32;
const REST: u64 = 32;
const ROUNDS: u64 = 8;
/// The largest budget that is tried, in terms of the one that is advised, percent.
const MORE_PERCENT: u64 = 130;

fn advise(directory: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memfit"));
    command.arg("advise").args(words).current_dir(directory).stdin(Stdio::null());
    command.output().expect("memfit starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn advice(directory: &Path, words: &[&str]) -> Value {
    let output = advise(directory, &[words, &["--json", "-"]].concat());
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], 1);
    json
}

/// Pages that came back.
fn back(stats: &Stats) -> u64 {
    ["pool", "swap", "filled", "around_pages"].iter().map(|key| stats.number(&format!("/faults/{key}"))).sum()
}

#[test]
fn what_is_advised_costs_what_is_said_and_so_does_less() {
    let Some(bench) = Bench::new("advise_holds", &["gcc"]) else { return };
    bench.file("pages.h", include_str!("workloads/pages.h"));
    if bench.compile(&["gcc"], "worked", include_str!("workloads/worked.c")).is_none() {
        return;
    }
    let line = format!("exec ./worked {USED} {REST}");
    let (ran, _) =
        bench.managed_with(&["--record", "recording", "--record-access=50", "--advise=advice.toml"], &line, PLENTY);
    assert_eq!((ran.code, text(&ran.out), &*ran.err), (Some(7), "0 wrong\n".into(), ""), "the command's own");
    let json = advice(&bench.directory, &["recording"]);
    let toml = fs::read_to_string(bench.directory.join("advice.toml")).unwrap();
    let scheme = Scheme::parse(&toml, &[]).unwrap_or_else(|error| panic!("{error}\n{toml}"));
    assert_eq!(scheme.name, json["scheme"].as_str().unwrap());
    assert!(toml.contains("# ") && toml.contains("memfit run -m ") && toml.contains("./worked 32 32"), "{toml}");
    let budget = json["budget_bytes"].as_u64().unwrap();
    // How much exactly is a matter of time, which passes more quickly where others want the CPUs; how often pages come back is not.
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
    // Half of the smallest budgets is less than there can be.
    assert!(said.len() >= 2 && said[0].0 == budget, "{json:#}");
    // Faults fall from a quarter of the touches to none within a tenth of the budget, and how much of a sample is used is chance:
    // what is said must be what happens in a budget from the next smaller one to a larger one.
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

#[test]
fn advice_goes_to_standard_error_and_nothing_is_left() {
    let Some(bench) = Bench::new("advise_error", &["gcc"]) else { return };
    bench.file("pages.h", include_str!("workloads/pages.h"));
    if bench.compile(&["gcc"], "worked", include_str!("workloads/worked.c")).is_none() {
        return;
    }
    let temporary = bench.directory.join("temporary");
    fs::create_dir(&temporary).unwrap();
    let mut command = support::memfit_command();
    command.env("TMPDIR", &temporary).args(["run", "--advise"]);
    let (ran, _) = bench.managed_by(command, "exec ./worked 4 20", PLENTY);
    assert_eq!((ran.code, text(&ran.out)), (Some(7), "0 wrong\n".into()), "the command's own");
    for part in ["give it ", "memfit run -m ", "Why:", "How sure:", "touches of"] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "the recording had no name");
    let mut command = support::memfit_command();
    command.args(["run", "--advise"]);
    let (ran, _) = bench.managed_by(command, "exit 5", PLENTY);
    assert!(ran.code == Some(5) && ran.out.is_empty(), "{}", ran.err);
    assert!(ran.err.is_empty() || ran.err.contains("give") || ran.err.contains("at most"), "{}", ran.err);
}

/// A directory of its own, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("memfit-advise-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    /// A small workload in too little memory, recorded without its accesses.
    fn record(&self, name: &str, budget: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_memfit"));
        command.args(["trace", "generate", SMALL, "-m", budget, "-o", name]).current_dir(&self.0);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const SMALL: &str = "zipf:pages=40M,accesses=40000,touch_ns=5000,seed=3";

#[test]
fn made_up_programs_get_less_for_a_wider_bound() {
    let here = Directory::new("bounds");
    let budgets: Vec<u64> = ["1", "10", "100"]
        .iter()
        .map(|bound| {
            let json = advice(&here.0, &[SMALL, "-s", "memfit", "--slowdown", bound]);
            assert_eq!(json["workloads"][0]["basis"]["kind"], "made");
            assert!(json["pool_bytes"].as_u64() < json["budget_bytes"].as_u64(), "{json:#}");
            json["budget_bytes"].as_u64().unwrap()
        })
        .collect();
    assert!(budgets[0] >= budgets[1] && budgets[1] > budgets[2], "{budgets:?}");
    let both = advice(&here.0, &["zipf:pages=20M,accesses=20000,seed=3", SMALL, "-s", "memfit"]);
    assert_eq!((&both["workloads"][0]["workload"], &both["budget_bytes"]), (&SMALL.into(), &budgets[1].into()));
    let files = ["--toml", "a.toml", "--json", "a.json", "--report", "a.html", "-s", "zram"];
    let output = advise(&here.0, &[&[SMALL][..], &files].concat());
    let said = text(&output.stdout);
    assert!(output.status.success() && said.contains("-s a.toml") && said.contains("compresses to"), "{said}");
    let toml = fs::read_to_string(here.0.join("a.toml")).unwrap();
    assert_eq!(Scheme::parse(&toml, &[]).unwrap().name, "zram");
    assert!(fs::read_to_string(here.0.join("a.html")).unwrap().contains("against the budget"));
    assert_eq!(fs::read_dir(&here.0).unwrap().count(), 3, "nothing else is left");
}

#[test]
fn a_recording_without_accesses_tells_of_its_own_budget_alone() {
    let here = Directory::new("plain");
    here.record("little", "25%");
    // Lines are broken anywhere.
    let words = |bytes: &[u8]| text(bytes).split_whitespace().collect::<Vec<_>>().join(" ");
    let said = |name| words(&advise(&here.0, &[name]).stdout);
    let little = said("little");
    assert!(little.contains("more than the 10 MiB that it had") && little.contains("room for everything"), "{little}");
    assert!(little.contains("tells of its own budget") && !little.contains("75 % of that"), "{little}");
    // It has what the codec of its own scheme made of the pages: by that no other scheme is advised, but one can be asked for.
    assert!(little.contains("What lzo would make of the pages was not recorded: zram, zswap-zsmalloc are"), "{little}");
    let swap = words(&advise(&here.0, &["little", "-s", "memfit,swap"]).stdout);
    assert!(!swap.contains("was not recorded"), "{swap}");
    let zram = words(&advise(&here.0, &["little", "-s", "zram"]).stdout);
    assert!(zram.contains("was not recorded") && zram.contains("-s zram"), "{zram}");
    // Beside one that can tell it is left out.
    let output = advise(&here.0, &["little", SMALL, "--quiet"]);
    assert!(output.status.success() && text(&output.stderr).contains("little: is left out"), "{output:?}");
}

fn fails(directory: &Path, words: &[&str], code: i32, parts: &[&str]) {
    let output = advise(directory, words);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    assert!(output.stdout.is_empty(), "{words:?}");
    assert!(said.starts_with("memfit: ") && parts.iter().all(|part| said.contains(part)), "{words:?}: {said}");
}

#[test]
fn what_cannot_be_advised_is_said_with_a_reason() {
    let here = Directory::new("bad");
    here.record("whole", "50%");
    let bytes = fs::read(here.0.join("whole")).unwrap();
    fs::write(here.0.join("empty"), b"").unwrap();
    fs::write(here.0.join("other"), b"hello, this is no recording").unwrap();
    // No block of calls is whole.
    fs::write(here.0.join("head"), &bytes[..bytes.len().min(6000)]).unwrap();
    fs::write(here.0.join("cut"), &bytes[..bytes.len() - 9]).unwrap();
    fails(&here.0, &["nonsense"], 2, &["nonsense: No such file", "memfit run --record"]);
    fails(&here.0, &["empty"], 1, &["empty: the file is empty"]);
    fails(&here.0, &["other"], 1, &["other: this is no recorded run"]);
    fails(&here.0, &["head"], 1, &["head: ", "the file is cut"]);
    here.record("untimed", "120%");
    fails(&here.0, &["untimed"], 1, &["untimed: it does not tell how long the program computed"]);
    fails(&here.0, &[SMALL, "-s", "zramm"], 2, &["there is no scheme zramm"]);
    fails(&here.0, &[SMALL, "-s", "zram,zram"], 2, &["two schemes of the name zram"]);
    fails(&here.0, &[SMALL, "--device", "floppy"], 2, &["--device", "floppy"]);
    fails(&here.0, &[SMALL, "--slowdown", "x"], 2, &["percentage"]);
    for option in ["--toml", "--json", "--report"] {
        fails(&here.0, &[SMALL, option, "/nonexistent/out"], 1, &[option, "cannot be written"]);
    }
    let output = advise(&here.0, &["cut"]);
    assert!(output.status.success() && text(&output.stderr).contains("the file is cut"), "{output:?}");
    assert!(text(&output.stdout).contains("A recording ends early"), "{output:?}");
}
