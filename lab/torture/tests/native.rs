//! Runs the torture program without a memory limit, with several mixes. It must find no error, and
//! it must find each corruption on purpose.

use std::process::{Command, Output};

fn run(args: &str) -> Output {
    let exe = env!("CARGO_BIN_EXE_memfit-torture");
    Command::new(exe).args(args.split_whitespace()).output().expect("the program starts")
}

fn clean(args: &str) -> String {
    let out = run(args);
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(0), "{args}\n{stdout}\n{stderr}");
    let json = stdout.lines().last().unwrap_or_default().to_string();
    assert!(json.starts_with("{\"schema\":1,") && json.contains("\"errors\":0"), "{args}: {json}");
    json
}

/// A number from the JSON line.
fn field(json: &str, name: &str) -> u64 {
    let at = json.find(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {json}"));
    let digits: String = json[at + name.len() + 3..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

#[test]
fn everything_at_once() {
    let json = clean("--size 48M --ops 50000 --threads 3 --forks --verify-all-at-end");
    assert!(field(&json, "verified_pages") > 10_000);
    assert!(field(&json, "counter") > 0 && field(&json, "fork") > 0);
}

#[test]
fn one_thread_in_little_memory() {
    clean("--size 16M --ops 150000 --threads 1 --verify-all-at-end");
}

#[test]
fn mostly_mappings() {
    let mix = "only,mmap=10,munmap=9,mremap=20,dontneed=5,free=5,protect=10,write=20,patch=20,read=20,sweep=1";
    clean(&format!("--size 64M --ops 60000 --verify-all-at-end --mix {mix}"));
}

#[test]
fn mostly_races() {
    let mix = "only,race_read=20,race_write=10,neighbour=10,counter=20,mutex=10,shared=10";
    clean(&format!("--size 32M --ops 130000 --threads 4 --mix {mix}"));
}

#[test]
fn number_of_operations_and_reproducibility() {
    let args = "--size 32M --ops 3000 --threads 2 --seed 5";
    let (a, b) = (clean(args), clean(args));
    assert_eq!(field(&a, "total_ops"), 6000);
    let digest = |json: &str| json[json.find("\"digest\"").expect("a digest")..].split(',').next().map(String::from);
    assert_eq!(digest(&a), digest(&b));
    assert_ne!(digest(&a), digest(&clean("--size 32M --ops 3000 --threads 2 --seed 6")));
}

#[test]
fn supervised_operations_survive_restarts() {
    let json = clean("--size 16M --ops 4000 --threads 2 --processes 2 --exits --mix sleep=300");
    // A thread counts an operation when it has finished; an interrupted operation is repeated.
    assert_eq!(field(&json, "total_ops"), 16_000);
}

#[test]
fn what_is_broken_is_found() {
    for what in ["page", "lost", "stale", "counter", "race", "heap", "shared"] {
        let out = run(&format!("--size 16M --seconds 300 --threads 2 --corrupt-one={what}"));
        let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert_eq!(out.status.code(), Some(3), "{what}\n{stdout}\n{stderr}");
        assert!(stderr.contains("FAILED") && stderr.contains("seed 1 "), "{what}\n{stderr}");
        assert!(stdout.contains("\"errors\":1"), "{what}\n{stdout}");
    }
}

#[test]
fn a_broken_worker_is_found() {
    let out = run("--size 16M --seconds 300 --processes 2 --corrupt-one");
    assert_eq!(out.status.code(), Some(3));
}

#[test]
fn usage() {
    assert_eq!(run("--nonsense").status.code(), Some(2));
    let help = run("--help");
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&help.stdout).contains("race_read"));
}

/// Tests that depend on time, with tolerance for a busy machine.
mod behaviour {
    use super::{clean, field};

    #[test]
    fn processes_that_are_stopped_and_killed() {
        let json = clean("--size 16M --seconds 3 --threads 2 --processes 3 --stop-cont --exits");
        assert!(field(&json, "stops") > 0);
        assert!(field(&json, "kills") + field(&json, "exits") + field(&json, "execs") > 0);
    }
}
