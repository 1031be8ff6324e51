//! `memfit advise` as a user meets it. No program is paged: workloads are generated.

use crate::support::recording::text;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn advise(directory: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memfit"));
    command.arg("advise").args(words).current_dir(directory).stdin(Stdio::null());
    command.output().expect("memfit starts")
}

fn advice(directory: &Path, words: &[&str]) -> Value {
    let output = advise(directory, &[words, &["--json", "-"]].concat());
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], 1);
    json
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
    assert_eq!(memfit_scheme::parse(&toml, &[]).unwrap().name, "zram");
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
    // Its command is the name of a workload, which cannot be run.
    assert!(little.starts_with("little: ") && little.contains(" -- COMMAND "), "{little}");
    // The recording has the sizes under the codec of its own scheme. So no other scheme is advised,
    // but the user can ask for one.
    assert!(little.contains("What lzo would make of the pages was not recorded: zram, zswap-zsmalloc are"), "{little}");
    let swap = words(&advise(&here.0, &["little", "-s", "memfit,swap"]).stdout);
    assert!(!swap.contains("was not recorded"), "{swap}");
    let zram = words(&advise(&here.0, &["little", "-s", "zram"]).stdout);
    assert!(zram.contains("was not recorded") && zram.contains("-s zram"), "{zram}");
    // Beside an informative workload the recording is left out.
    let output = advise(&here.0, &["little", SMALL, "--quiet"]);
    assert!(output.status.success() && text(&output.stderr).contains("little: is left out"), "{output:?}");
}

#[test]
fn a_bound_that_no_budget_keeps_is_said() {
    let here = Directory::new("none");
    let said = text(&advise(&here.0, &["scan:pages=64M,passes=2", "-s", "memfit", "--slowdown", "1"]).stdout);
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("no budget that was tried keeps it at most 1.0 % slower. 67 MiB are room for all"),
        "{said}"
    );
    fails(&here.0, &[SMALL, "--json", "-", "--toml", "-"], 2, &["--toml - and --json -: only one of them"]);
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
    // No complete block of calls is left.
    fs::write(here.0.join("head"), &bytes[..bytes.len().min(6000)]).unwrap();
    fs::write(here.0.join("cut"), &bytes[..bytes.len() - 9]).unwrap();
    fails(&here.0, &["nonsense"], 2, &["nonsense: No such file", "memfit run --record"]);
    fails(&here.0, &["empty"], 1, &["empty: the file is empty"]);
    fails(&here.0, &["other"], 1, &["other: this is no recorded run"]);
    fails(&here.0, &["head"], 1, &["head: ", "the file is cut"]);
    let mut flipped = bytes.clone();
    flipped[bytes.len() * 2 / 3] ^= 4;
    fs::write(here.0.join("flipped"), flipped).unwrap();
    fails(&here.0, &["flipped"], 1, &["flipped: the file is damaged, at byte "]);
    fails(&here.0, &[SMALL, "-s", "memfit,,zram"], 2, &["--scheme"]);
    // Only the end has a time.
    here.record("timed", "120%");
    let timed = fs::read(here.0.join("timed")).unwrap();
    fs::write(here.0.join("untimed"), &timed[..timed.len() - 44]).unwrap();
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
