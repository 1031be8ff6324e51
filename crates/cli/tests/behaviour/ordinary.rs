//! Runs of an ordinary user, whose only right is access to `/dev/userfaultfd`: the kernel reports
//! no forks, so libmemfit.so announces them (crates/stub/src/fork.rs). Each child must have every
//! byte of its parent.

use super::torture::{SOAK, STALLED};
use crate::support::contents::assert_contents_eq;
use crate::support::known::{managed, ordinary_program, share_a_table, SHARED_TABLE};
use crate::support::process::Ran;
use crate::support::{say, sized, skip, Bench, FORKS, ONE, PYTHON};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Each thread runs operations for some seconds; a child that memfit must kill ends the run.
const TORTURE: &str = "--size 128M --verify-all-at-end --stall 120 --forks";

fn script(name: &str, text: &str, percent: u64) {
    let Some(bench) = Bench::ordinary(name, &[PYTHON]) else { return };
    bench.file("blocks.py", include_str!("../workloads/blocks.py"));
    bench.file("script.py", text);
    bench.same_within(&format!("{PYTHON} script.py"), &[], percent, FORKS);
}

#[test]
fn sort_without_forks() {
    let Some(bench) = Bench::ordinary("ordinary_sort", &["sort", "seq", "rev"]) else { return };
    assert_eq!(bench.plain("seq 1 1000000 | rev > input").code, Some(0));
    bench.same("sort -S 300M --parallel=2 -o output input", &["output"], 65);
}

/// The kernel starts no process or thread for memfit itself. As root no such limit holds.
#[test]
fn a_want_of_tasks_is_told_with_its_fix() {
    let Some(bench) = Bench::ordinary("few_tasks", &["prlimit"]) else { return };
    let user = bench.user.as_ref().expect("an ordinary user");
    let memfit = user.place().join("memfit");
    let mut told_of = Vec::new();
    for tasks in 1..40 {
        let limit = format!("--nproc={tasks}");
        let line = ["prlimit", &limit, memfit.to_str().unwrap(), "run", "-q", "--swap", "none", "true"];
        // Processes of the other tests' user would count as well.
        let outcome = user.becoming(&[], &line).env("TEST_UID", "65533").output().unwrap();
        let err = String::from_utf8(outcome.stderr).unwrap();
        if outcome.status.success() {
            break;
        }
        let told = outcome.status.code() == Some(1) && err.contains("raise ulimit -u") && !err.contains("panicked");
        assert!(told, "{tasks}: {:?} {err}", outcome.status);
        told_of.push(err);
    }
    // A process for the pager, its main thread, and those that work.
    for want in ["cannot start the pager", "the kernel gives it no thread", "the pager cannot start a thread"] {
        assert!(told_of.iter().any(|err| err.contains(want)), "{want:?}: {told_of:#?}");
    }
    assert!(told_of.len() < 39, "{told_of:#?}");
}

#[test]
fn the_oom_killer_takes_programs_first() {
    let Some(bench) = Bench::ordinary("oom_score", &["cat"]) else { return };
    let user = bench.user.as_ref().expect("an ordinary user");
    let memfit = user.place().join("memfit");
    let score = |words: &[&str]| -> i32 {
        let outcome = user.becoming(&[], &[words, &["sh", "-c", "cat /proc/self/oom_score_adj"]].concat()).output();
        String::from_utf8(outcome.unwrap().stdout).unwrap().trim().parse().unwrap()
    };
    let plain = score(&[]);
    assert_eq!(score(&[memfit.to_str().unwrap(), "run", "-q", "--"]), (plain + 500).min(1000));
}

/// `setcap` gives a capability to memfit, but not to its programs: such a memfit works as without
/// it. Without access to the device it says that the capability does not help.
#[test]
fn a_capability_of_memfits_file() {
    let Some(bench) = Bench::ordinary("file_capability", &["setcap", "sort", "seq", "cksum"]) else { return };
    let user = bench.user.as_ref().expect("an ordinary user");
    let memfit = user.place().join("memfit");
    let memfit = memfit.to_str().expect("the place is UTF-8");
    let set = Command::new("setcap").args(["cap_sys_ptrace+ep", memfit]).output().unwrap();
    if !set.status.success() {
        return skip("file_capability", &format!("setcap {memfit}: {}", String::from_utf8_lossy(&set.stderr)));
    }
    let line = "seq 600000 | sort -S 100M -r | cksum";
    let (ran, stats) = bench.managed_by(user.becoming(&[], &[memfit, "run"]), line, 24 << 20);
    assert_contents_eq!((ran.code, &ran.out), (Some(0), &bench.plain(line).out), "{}", ran.err);
    stats.no_warnings();
    assert!(stats.number("/evictions/pages") > 500, "{:#}", stats.json);
    let mut doctor = Command::new("setpriv");
    doctor.args(["--reuid=65534", "--regid=65534", "--clear-groups", memfit, "doctor"]);
    let told = String::from_utf8(doctor.output().unwrap().stdout).unwrap();
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["(setcap) does not help", "setfacl", "PAGEMAP_SCAN tried, works"] {
        assert!(told.contains(words), "{words:?} is not in: {told}");
    }
}

#[test]
fn forks_with_threads() {
    let Some(bench) = Bench::ordinary("fork_threads", &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc"], "fork_threads", include_str!("../workloads/fork_threads.c")) else { return };
    let (ran, stats) = managed(&bench, "./fork_threads", 60 << 20);
    assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"3 rounds, 0 wrong\n"[..]), "{}\n{:#}", ran.err, stats.json);
    assert!(stats.number("/evictions/pages") > 10_000, "{:#}", stats.json);
    stats.peak_within(FORKS.peak_percent);
}

/// One thread has unmapped what another one moves memory to, while a third forks.
#[test]
fn forks_while_other_threads_move_memory() {
    let Some(bench) = Bench::ordinary("ordinary_moves", &["gcc"]) else { return };
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    let Some(_) = bench.compile(&["gcc"], "moves", include_str!("../workloads/fork_moves.c")) else { return };
    for _ in 0..sized(2, 20) {
        let (ran, stats) = managed(&bench, "./moves", 16 << 20);
        let right = (Some(0), &b"wrong: 0, forked: 1\n"[..]);
        assert_contents_eq!((ran.code, &*ran.out), right, "{}\n{:#}", ran.err, stats.json);
        assert!(stats.number("/evictions/pages") > 5_000, "{:#}", stats.json);
    }
}

#[test]
fn python_forks() {
    script("ordinary_forks", include_str!("../workloads/forks.py"), 60);
}

#[test]
fn workers_share_a_table() {
    let Some(bench) = ordinary_program("ordinary_shared_table", SHARED_TABLE) else { return };
    share_a_table(&bench);
}

#[test]
fn short_lived_children() {
    script("ordinary_short_lived", include_str!("../workloads/short_lived.py"), 60);
}

#[test]
fn redis_saves_in_a_child() {
    let Some(bench) = Bench::ordinary("ordinary_bgsave", &[PYTHON, crate::support::REDIS]) else { return };
    bench.same_bgsave();
}

#[test]
fn torture_with_forks() {
    let Some(bench) = Bench::ordinary("ordinary_torture", &[]) else { return };
    let user = bench.user.as_ref().expect("an ordinary user runs it");
    let program = user.place().join("memfit-torture");
    for (threads, ops, seed) in [(1, 3000, 11), (2, 1500, 12), (3, 1000, 13)] {
        let ops = sized(ops, ops * SOAK);
        let line = format!(
            "exec {} {TORTURE} --threads {threads} --ops {ops} --seed {seed} --dir {}",
            program.display(),
            bench.directory.display()
        );
        let (ran, stats) = managed(&bench, &line, 48 << 20);
        let forks = stats.number("/transitions/forks");
        say(&format!("ordinary torture, {threads} threads: exit {:?}, {forks} forks", ran.code));
        let out = String::from_utf8_lossy(&ran.out);
        assert_ne!(ran.code, Some(STALLED), "seed {seed}: {}", ran.err);
        assert_contents_eq!(ran.code, Some(0), "seed {seed}: {}\n{out}\n{:#}", ran.err, stats.json);
        assert!(forks > 0, "{out}");
    }
}

/// Programs of tools.rs whose fork children, descriptors and limits are special.
fn tool(name: &str, source: &str) {
    let Some(bench) = Bench::ordinary(name, &["gcc"]) else { return };
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    let Some(_) = bench.compile(&["gcc"], "program", source) else { return };
    bench.same_within("./program", &[], 50, FORKS);
}

#[test]
fn memory_that_fork_children_do_not_get() {
    tool("ordinary_wiped", include_str!("../workloads/wiped.c"));
}

#[test]
fn memory_that_fork_children_do_not_get_from_the_moment_of_paging_on() {
    tool("ordinary_meanwhile", include_str!("../workloads/dontfork_meanwhile.c"));
}

#[test]
fn parents_that_change_their_memory_just_after_a_fork() {
    tool("ordinary_after_fork", include_str!("../workloads/after_fork.c"));
}

/// The page that announces a fork is touched by another thread, locked, or replaced.
#[test]
fn forks_whose_doorbell_is_there_already() {
    let Some(bench) = Bench::ordinary("doorbell", &["gcc"]) else { return };
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    let Some(_) = bench.compile(&["gcc"], "doorbell", include_str!("../workloads/doorbell.c")) else { return };
    for how in ["read", "lock", "replace"] {
        bench.same_within(&format!("./doorbell {how}"), &[], 60, FORKS);
    }
    // A child is killed where nothing tells whether memory was dropped before the fork.
    let plain = bench.plain("./doorbell drop");
    let (managed, stats) = bench.managed("./doorbell drop", plain.peak * 60 / 100);
    let out = |ran: &Ran| String::from_utf8_lossy(&ran.out).into_owned();
    assert_contents_eq!((managed.code, out(&managed)), (plain.code, out(&plain)), "{}", managed.err);
    let is_known =
        |line: &str| line.starts_with("memfit: killed") && line.contains("another thread of its parent dropped");
    assert!(managed.err.lines().all(is_known), "{}", managed.err);
    assert!(stats.number("/evictions/pages") > plain.peak / 4096, "{:#}", stats.json);
}

#[test]
fn all_descriptors_closed() {
    tool("ordinary_closes", include_str!("../workloads/closes.c"));
}

#[test]
fn limits_of_its_own() {
    tool("ordinary_limits", include_str!("../workloads/limits.c"));
}

/// A chain of announced forks.
#[test]
fn a_chain_of_forks() {
    let Some(bench) = Bench::ordinary("ordinary_chain", &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc"], "fork_chain", include_str!("../workloads/fork_chain.c")) else { return };
    bench.same_within("./fork_chain 20 40", &[], 60, FORKS);
}

/// A child of an unannounced fork must not read zeros. It crashes, since dontfork keeps paged
/// mappings from it.
#[test]
fn bare_clones_crash() {
    let Some(bench) = Bench::ordinary("bare_clone", &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc"], "bare_clone", include_str!("../workloads/bare_clone.c")) else { return };
    bench.same_within("./bare_clone", &[], 60, ONE);
}

/// libc's functions announce the child, whichever of them makes it.
#[test]
fn children_of_clone() {
    let Some(bench) = Bench::ordinary("clones", &["gcc"]) else { return };
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    let Some(_) = bench.compile(&["gcc"], "clones", include_str!("../workloads/clones.c")) else { return };
    bench.same_within("./clones", &[], 60, FORKS);
}

/// As root the kernel reports such children, and the pager serves them.
#[test]
fn bare_clones_with_fork_events() {
    let Some(bench) = Bench::new("bare_clone_events", &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc"], "bare_clone", include_str!("../workloads/bare_clone.c")) else { return };
    bench.same_within("./bare_clone", &[], 60, FORKS);
}

/// The statistics and the table of running trees work for an ordinary user, too.
#[test]
fn schemes_and_options_that_page_files_are_told() {
    let Some(bench) = Bench::ordinary("ordinary_files", &[]) else { return };
    for (options, what) in [(&["--files"][..], "--files"), (&["-s", "ezswap"], "scheme ezswap"), (&[], "")] {
        let mut command = bench.memfit();
        command.args(["run", "-m", "32M", "--swap", "none"]).args(options).args(["--", "true"]);
        let said = String::from_utf8(command.current_dir(&bench.directory).output().unwrap().stderr).unwrap();
        let words = "without CAP_SYS_PTRACE the kernel keeps the pages of files";
        assert_eq!(said.contains(&format!("memfit: {what}: {words}\n")), !what.is_empty(), "{options:?}: {said}");
    }
}

#[test]
fn stat_shows_his_tree() {
    let Some(bench) = Bench::ordinary("ordinary_stat", &[]) else { return };
    let user = bench.user.as_ref().expect("an ordinary user runs it");
    let memfit: PathBuf = user.place().join("memfit");
    let line = format!("{} stat --json > stat.json", memfit.display());
    let (ran, _) = bench.managed(&line, 32 << 20);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let text = fs::read_to_string(bench.directory.join("stat.json")).unwrap();
    assert!(text.contains("\"budget_bytes\""), "{text}");
}
