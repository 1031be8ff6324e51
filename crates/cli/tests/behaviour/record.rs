//! Recorded runs: `memfit run --record` and `memfit trace`. The programs do not notice the
//! recording, and a replay of it makes the same decisions.

use crate::support::contents::assert_contents_eq;
use crate::support::recording::{as_tables, bench, good, info, recorded, text, FILE, MIB};
use crate::support::tree::{eventually, Tree};
use crate::support::{memfit, memfit_command, skip, Bench, PYTHON};
use memfit_os::capability::{self, CAP_SYS_PTRACE};
use memfit_os::proctree::kill_exactly;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn the_program_sees_nothing_of_it() {
    let Some(bench) = bench("record_same", "mix") else { return };
    let plain = bench.plain("./mix 36 1 rand; exit 3");
    let (ran, stats, told) = recorded(&bench, &[], "./mix 36 1 rand; exit 3", 20 * MIB);
    assert_contents_eq!((ran.code, &ran.out), (Some(3), &plain.out), "{}", ran.err);
    assert_eq!(ran.err, plain.err);
    stats.no_warnings();
    assert!(stats.number("/evictions/pages") > 5000, "{:#}", stats.json);
    // The pager may ask the core several times about a page fault.
    assert!(told["by_call"]["fault"].as_u64().unwrap() >= stats.number("/faults/total"), "{told:#}");
    assert!(told["by_call"]["compressed"].as_u64().unwrap() > 5000, "{told:#}");
    assert_eq!(told["command"], serde_json::json!(["sh", "-c", "./mix 36 1 rand; exit 3"]));
    assert_eq!((&told["budget_bytes"], &told["scheme"]), (&Value::from(20 * MIB), &Value::from("memfit")));
    assert!(told["run_ns"].as_u64().unwrap() < ran.time.as_nanos() as u64, "{told:#}");
    as_tables(&bench.directory, FILE, &told);
    // A new recording replaces the contents of the file.
    let (_, _, short) = recorded(&bench, &["--set", "fault.around_pages=1"], "./mix 1 0", 20 * MIB);
    assert!(short["calls"].as_u64() < told["calls"].as_u64(), "{short:#}");
    assert!(short["scheme_toml"].as_str().unwrap().contains("around_pages = 1"), "{short:#}");
}

#[test]
fn pages_of_files_are_recorded() {
    let Some(bench) = bench("record_files", "mapped") else { return };
    let (ran, stats, told) = recorded(&bench, &["-s", "ca+sa"], "./mapped file 12 6 1", 16 * MIB);
    assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"right\n"[..]), "{}", ran.err);
    // Without that right memfit leaves pages of files to the kernel.
    let filled = stats.number("/faults/file");
    assert!(filled > 0 || !capability::has(CAP_SYS_PTRACE), "{:#}", stats.json);
    assert!(filled == 0 || told["by_call"]["read_elsewhere"].as_u64() > Some(0), "{told:#}");
}

#[test]
fn forks_and_pipelines_decide_the_same_again() {
    let Some(bench) = Bench::new("record_forks", &[PYTHON]) else { return };
    bench.file("blocks.py", include_str!("../workloads/blocks.py"));
    let forks = "import multiprocessing, blocks\nm = blocks.build(5, 24)\n\ndef child(n):\n    return blocks.churn(m[n::4], n, 1)\n\n\
                 for i in range(1):\n    with multiprocessing.get_context('fork').Pool(3) as pool:\n        \
                 print(pool.map(child, range(4)))\n    print(blocks.churn(m, i, 1))\n";
    bench.file("forks.py", forks);
    let pipeline = "for i in 1 2 3; do seq 1 100000 | sort -R --random-source=/bin/sh | sort -n | tail -n 1; done";
    for (line, least) in [(format!("{PYTHON} forks.py"), 3), (pipeline.to_owned(), 9)] {
        let plain = bench.plain(&line);
        let (ran, stats, told) = recorded(&bench, &[], &line, 20 * MIB);
        assert_contents_eq!((ran.code, text(&ran.out)), (Some(0), text(&plain.out)), "{}", ran.err);
        // The core knows nothing of processes that are never paged.
        let paged = told["processes"].as_u64().unwrap();
        assert!(paged >= least || stats.number("/evictions/pages") < 1000, "{told:#}\n{:#}", stats.json);
    }
}

/// Kills the launcher, after which the pager ends the tree in order, and the pager, after which all
/// ends at once.
#[test]
fn killed_runs_can_be_read_up_to_there() {
    let Some(bench) = bench("record_killed", "touch") else { return };
    for who in ["launcher", "pager"] {
        let mut command = memfit_command();
        command.args(["run", "-q", "-m", "32M", "--record", FILE, "--", "./touch", "40"]);
        let mut tree = Tree::start(command, &bench.directory, true);
        eventually("both processes are full", || tree.text().contains("both are full"));
        let length = || fs::metadata(bench.directory.join(FILE)).map_or(0, |data| data.len());
        let before = length();
        eventually("more is recorded", || length() > before + 100_000);
        let members = tree.members();
        let victim = if who == "pager" { members.pager } else { members.launcher };
        assert!(kill_exactly(&victim.expect("it lives")));
        tree.wait_for_all(who);
        assert!(tree.errors().contains(&format!("memfit: the {who} died")), "{}", tree.errors());
        let whole = info(&bench.directory, FILE)["whole"].as_bool().unwrap();
        assert!(!(whole && who == "pager"));
        let told = good(&bench.directory, FILE, whole);
        as_tables(&bench.directory, FILE, &told);
        assert!(told["calls"].as_u64().unwrap() > 10_000, "{told:#}");
        let end = told["cut_at"].as_u64();
        assert!(whole || end.is_some_and(|end| end > before && end <= length()), "{told:#}");
    }
}

#[test]
fn what_cannot_be_recorded_to_is_refused_before_the_start() {
    let Some(bench) = Bench::new("record_refused", &[]) else { return };
    let run = |record: &str, command: &str| {
        let mut memfit = memfit_command();
        memfit.args(["run", "-q", "--record", record, "--", command, "ran"]);
        bench.checked(memfit, record)
    };
    for (path, why) in [("none/run.memfit", "No such file"), (".", "it is a directory"), ("/proc/x", "No such file")] {
        let ran = run(path, "touch");
        assert_eq!(ran.code, Some(1), "{path}: {}", ran.err);
        assert!(ran.err.contains(&format!("--record {path}: cannot be written: {why}")), "{}", ran.err);
    }
    // Without a run there is no recording either.
    assert_eq!(run(FILE, "memfit-no-such-command").code, Some(127));
    let names = fs::read_dir(&bench.directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    assert_eq!(names, ["stderr", "stdout"]);
}

#[test]
fn a_directory_without_permission_is_refused() {
    let Some(bench) = Bench::ordinary("record_permission", &[]) else { return };
    let mut command = bench.user.as_ref().unwrap().command(&["run", "-q", "--record", "/etc/run.memfit", "--"]);
    command.args(["touch", "ran"]);
    let ran = bench.checked(command, "--record /etc/run.memfit");
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("--record /etc/run.memfit: cannot be written: Permission denied"), "{}", ran.err);
    assert!(!bench.directory.join("ran").exists() && !Path::new("/etc/run.memfit").exists());
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_run() {
    let Some(bench) = bench("record_full", "mix") else { return };
    let line = "./mix 36 0; exit 5";
    let (ran, stats) = bench.managed_with(&["--record", "/dev/full"], line, 20 * MIB);
    assert_contents_eq!((ran.code, &*ran.out), (Some(5), &b"right\n"[..]), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "one warning: {}", ran.err);
    assert!(ran.err.contains("nothing is recorded, and the run goes on: No space left"), "{}", ran.err);
    assert!(stats.number("/evictions/pages") > 3000);
    // In the middle of the run.
    let mount = "mount -t tmpfs -o size=40k none small";
    fs::create_dir(bench.directory.join("small")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    let rest =
        format!("{} run -q -m 20M --record small/run -- sh -c '{line}'; echo $?; cp small/run run", memfit().display());
    command.arg(format!("{mount} && {rest}"));
    let ran = bench.checked(command, &rest);
    if ran.code != Some(0) {
        return skip(&bench.name, &format!("no file system can be mounted here: {}", ran.err));
    }
    assert_contents_eq!(text(&ran.out), "right\n5\n", "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "one warning: {}", ran.err);
    assert!(ran.err.contains("the recording ends here, and the run goes on: No space left"), "{}", ran.err);
    good(&bench.directory, "run", false);
}

/// The outer run records both; the inner one says that it does not record, even if it is quiet.
#[test]
fn a_run_inside_of_another_records_nothing() {
    let Some(bench) = bench("record_nested", "mix") else { return };
    let inner = format!("{} run -q --record inner.memfit -- ./mix 36 0; exit $?", memfit().display());
    let (ran, _, told) = recorded(&bench, &[], &inner, 20 * MIB);
    assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"right\n"[..]), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert!(ran.err.contains("--record inner.memfit: nothing is recorded: this run joins another one"), "{}", ran.err);
    assert!(!bench.directory.join("inner.memfit").exists());
    assert!(told["by_call"]["evicted"].as_u64().unwrap() > 100, "{told:#}");
}
