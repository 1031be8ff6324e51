//! Programs that use what memfit uses: userfaultfd, LD_PRELOAD, ptrace; and those that change what
//! it relies on: descriptors, limits, locked memory, memory that devices fill or fork children do
//! not get.
//!
//! Each fills about twice its budget with known words, does what it tests, and compares all words.

use crate::support::contents::{assert_contents, assert_contents_eq};
use crate::support::known::{compare, plainly, program, same, BUDGET, EVICTED};
use crate::support::process::Ran;
use crate::support::{memfit, memfit_command, say, skip, Bench, Bounds, FORKS, PYTHON, SEVERAL};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Nothing can be evicted for a while: the budget does not hold.
const ANY_PEAK: Bounds = Bounds { evicted_percent: 0, peak_percent: 1000 };

#[test]
fn a_userfaultfd_of_its_own() {
    let Some(bench) = program("own_faults", include_str!("../workloads/own_faults.c")) else { return };
    same(&bench, "./program", SEVERAL);
}

/// A library of the usual places of Debian and others.
fn library(name: &str) -> Option<PathBuf> {
    let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"];
    places.iter().map(|place| Path::new(place).join(name)).find(|path| path.is_file())
}

/// An allocator in place of libc's: preloaded into memfit as well, or added by the command to what
/// is preloaded already.
fn allocator(name: &str, file: &str) {
    let Some(path) = library(file) else {
        return skip(name, &format!("there is no {file}; tests/setup installs it"));
    };
    let Some(bench) = Bench::new(name, &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc"], "program", include_str!("../workloads/heap.c")) else { return };
    let preload = format!("LD_PRELOAD={}", path.display());
    let Some(plain) = plainly(&bench, &format!("env {preload} ./program")) else { return };
    let mut around = Command::new("env");
    around.args([&preload, memfit().to_str().unwrap(), "run"]);
    let budget = (plain.peak * 6 / 10).max(BUDGET);
    let (managed, stats) = bench.managed_by(around, "./program", budget);
    compare(&bench, &plain, (&managed, &stats), SEVERAL);
    stats.no_warnings();
    // First in the list, before the stub.
    let inside = format!("env {preload}:$LD_PRELOAD ./program");
    let (managed, stats) = bench.managed(&inside, budget);
    compare(&bench, &plain, (&managed, &stats), SEVERAL);
    stats.no_warnings();
}

#[test]
fn jemalloc() {
    allocator("jemalloc", "libjemalloc.so.2");
}

#[test]
fn mimalloc() {
    allocator("mimalloc", "libmimalloc.so.2");
}

#[test]
fn tcmalloc() {
    allocator("tcmalloc", "libtcmalloc_minimal.so.4");
}

/// memfit counts a program without the stub, and names it. With fork events the pager gives it the
/// stub: see loaded.rs.
#[test]
fn a_preload_that_replaces_the_stub() {
    let Some(bench) = Bench::ordinary("replaced_stub", &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc"], "unpreloaded", include_str!("../workloads/unmanaged.c")) else { return };
    let line = "env LD_PRELOAD= ./unpreloaded & env -u LD_PRELOAD ./unpreloaded; wait $!";
    let Some(plain) = plainly(&bench, line) else { return };
    let (managed, stats) = bench.managed(line, 64 << 20);
    assert_contents_eq!((managed.code, &managed.out), (Some(0), &plain.out), "{}", managed.err);
    assert_eq!(managed.err.lines().count(), 1, "{}", managed.err);
    assert!(
        managed.err.contains("not paged, but counted: unpreloaded (started without libmemfit.so in LD_PRELOAD)"),
        "{}",
        managed.err
    );
    assert!(stats.number("/peak/total_bytes") > 8 << 20, "{:#}", stats.json);
}

/// No stub is on its way to the fork children of such a program: they count at once.
#[test]
fn fork_children_of_a_program_without_the_stub() {
    let Some(bench) = Bench::new("unmanaged_forks", &[PYTHON]) else { return };
    bench.file("forks.py", include_str!("../workloads/short_forks.py"));
    let (managed, stats) = bench.managed(&format!("env -u LD_PRELOAD {PYTHON} forks.py"), 512 << 20);
    assert_contents_eq!((managed.code, &*managed.out), (Some(0), &b"done\n"[..]), "{}", managed.err);
    assert!(stats.number("/peak/total_bytes") > 60 << 20, "{:#}", stats.json);
}

/// Another preloaded library answers calls that the stub sees first.
#[test]
fn a_preloaded_library_of_the_users() {
    let Some(bench) = Bench::new("other_preload", &["gcc"]) else { return };
    let source = include_str!("../workloads/intercepts.c");
    let Some(library) = bench.compile(&["gcc", "-shared", "-fPIC"], "intercepts.so", source) else { return };
    let Some(_) = bench.compile(&["gcc", "-DPROGRAM"], "program", source) else { return };
    // The bench takes that variable out of the environment.
    let mut command = Command::new("env");
    command.arg(format!("LD_PRELOAD={}", library.display())).arg(memfit()).arg("run");
    let (ran, _) = bench.managed_by(command, "./program", BUDGET);
    assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"42 77\n"[..]), "{}", ran.err);
}

/// Runs the program. When it is paged, calls `look` with its process number, a cold address and the
/// byte there; then the program ends. `right` judges the result of `look` after all has ended.
fn attached<T>(name: &str, tool: &str, look: impl Fn(&Bench, [&str; 3]) -> T, right: impl Fn(T)) {
    if crate::support::find(tool).is_none() {
        return skip(name, &format!("there is no {tool}; tests/setup installs it"));
    }
    let Some(bench) = program(name, include_str!("../workloads/attached.c")) else { return };
    let Some(plain) = plainly(&bench, "touch done; ./program; rm ready done") else { return };
    let (looked, (managed, stats)) = std::thread::scope(|scope| {
        let ran = scope.spawn(|| bench.managed("exec ./program", BUDGET));
        let ready = bench.directory.join("ready");
        while !ready.exists() && !ran.is_finished() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let text = fs::read_to_string(ready).unwrap_or_default();
        let words: Vec<&str> = text.split_whitespace().collect();
        let looked = <[&str; 3]>::try_from(words).ok().map(|words| look(&bench, words));
        bench.file("done", "");
        (looked, ran.join().unwrap())
    });
    // memfit may say that the process has been traced for long or, after that, that the budget does
    // not hold.
    let traced = |line: &str| line.contains("is traced by") && line.contains(tool);
    let told = |line: &&str| traced(line) || line.starts_with("memfit: the budget is ");
    let others: String = managed.err.lines().filter(|line| !told(line)).collect();
    compare(&bench, &plain, (&Ran { err: others, ..managed }, &stats), ANY_PEAK);
    right(looked.expect("it was ready"));
}

/// The output of a tool, which is ended after a while.
fn tool(words: &[&str]) -> String {
    let mut command = Command::new("timeout");
    command.args(["-s", "INT", "-k", "5", "120"]).args(words).env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn gdb_attaches() {
    let look = |_: &Bench, [pid, address, byte]: [&str; 3]| {
        let show = format!("x/1ub {address}");
        let all = ["-ex", "info threads", "-ex", &show, "-ex", "detach"];
        let words = [&["gdb", "-nx", "-batch", "-p", pid][..], &all[..]].concat();
        (tool(&words), address.to_owned(), byte.to_owned())
    };
    attached("gdb", "gdb", look, |(said, address, byte)| {
        if said.contains("Operation not permitted") {
            return skip("gdb", "it may not attach here");
        }
        assert!(said.contains("memfit-stub"), "{said}");
        // The tool may get EIO for an evicted page, and never a wrong byte.
        let refused = said.contains(&format!("Cannot access memory at address {address}"));
        let right = said.contains(&format!("{address}:\t{byte}\n"));
        let other = said.contains(&format!("{address}:\t")) && !refused;
        assert_contents!(right || !other, "{byte} is at {address}: {said}");
        assert!(refused || right, "{byte} is at {address}: {said}");
        say(if refused { "gdb: the page is refused" } else { "gdb: the page is read" });
    });
}

/// With `-f` strace stops the stub thread, too, which must not wait for long. strace itself can
/// wait for a page that only the stub thread can give back.
#[test]
fn strace_attaches() {
    let look = |bench: &Bench, [pid, ..]: [&str; 3]| {
        let file = bench.directory.join("trace");
        let said =
            tool(&["timeout", "-s", "INT", "-k", "20", "1", "strace", "-f", "-p", pid, "-o", file.to_str().unwrap()]);
        (said, fs::read_to_string(file).unwrap_or_default())
    };
    attached("strace", "strace", look, |(said, trace)| {
        if said.contains("Operation not permitted") {
            return skip("strace", "it may not attach here");
        }
        say(&format!("strace: {} calls seen: {}", trace.lines().count(), said.trim()));
    });
}

#[test]
fn strace_from_the_start() {
    if crate::support::find("strace").is_none() {
        return skip("strace_from_the_start", "there is no strace; tests/setup installs it");
    }
    let Some(bench) = program("strace_from_the_start", include_str!("../workloads/closes.c")) else { return };
    // With -f strace follows the stub thread, too, and each of its calls takes long.
    same(&bench, "strace -f -o trace ./program; echo $?; rm trace", SEVERAL);
    let line = "strace -o trace ./program; echo $?; tail -n 1 trace; rm trace";
    let Some(plain) = plainly(&bench, line) else { return };
    let (managed, stats) = bench.managed(line, BUDGET);
    let out = |ran: &Ran| String::from_utf8_lossy(&ran.out).into_owned();
    assert_contents_eq!((managed.code, out(&managed)), (Some(0), out(&plain)), "{}\n{:#}", managed.err, stats.json);
}

#[test]
fn a_tracer_of_its_parent() {
    let Some(bench) = program("tracer", include_str!("../workloads/tracer.c")) else { return };
    same(&bench, "./program", FORKS);
    let refused = fs::read_to_string(bench.directory.join("refused")).unwrap_or_default();
    say(&format!("tracer: ptrace refused {refused} of 6760 words, which were outside"));
}

#[test]
fn all_descriptors_closed() {
    let Some(bench) = program("closes", include_str!("../workloads/closes.c")) else { return };
    same(&bench, "./program", FORKS);
}

#[test]
fn limits_of_its_own() {
    let Some(bench) = program("limits", include_str!("../workloads/limits.c")) else { return };
    same(&bench, "./program", SEVERAL);
}

#[test]
fn few_descriptors() {
    let Some(bench) = program("few_descriptors", include_str!("../workloads/limits.c")) else { return };
    same(&bench, "ulimit -n 16; ./program outer", SEVERAL);
}

#[test]
fn a_limit_of_the_address_space() {
    let Some(bench) = program("address_space", include_str!("../workloads/limits.c")) else { return };
    same(&bench, "ulimit -v 200000; ./program outer", SEVERAL);
}

/// memfit itself with few descriptors: it says so, and does not begin; with some more it works.
#[test]
fn few_descriptors_for_all_of_it() {
    let Some(bench) = program("few_for_all", include_str!("../workloads/limits.c")) else { return };
    let run = |descriptors: u32| {
        let mut few = Command::new("sh");
        let line = format!("ulimit -n {descriptors}; exec \"$0\" run -q -m 32M -- ./program outer");
        few.args(["-c", &line, memfit().to_str().unwrap()]);
        bench.checked(few, &line)
    };
    let ran = run(16);
    let out = String::from_utf8_lossy(&ran.out).into_owned();
    let told = ran.code == Some(1) && out.is_empty() && ran.err.contains("Too many open files");
    assert_contents!(out.is_empty() || out.ends_with("wrong: 0\n"), "{out}{}", ran.err);
    assert!(told || (ran.code == Some(0) && !out.is_empty()), "{out}{}", ran.err);
    say(&format!("few_for_all: {:?} {}", ran.code, ran.err.trim()));
    let ran = run(64);
    let out = String::from_utf8_lossy(&ran.out).into_owned();
    assert_contents!(ran.code == Some(0) && out.ends_with("wrong: 0\n"), "{out}{}", ran.err);
}

#[test]
fn locked_memory() {
    let Some(bench) = program("locked", include_str!("../workloads/locked.c")) else { return };
    for line in ["./program early", "./program late"] {
        let Some(plain) = plainly(&bench, line) else { return };
        // Locked memory does not fit, which memfit may report.
        let mut command = memfit_command();
        command.arg("run");
        let (managed, stats) = bench.managed_by(command, line, BUDGET);
        assert_contents_eq!((managed.code, &managed.out), (Some(0), &plain.out), "{}\n{:#}", managed.err, stats.json);
        assert!(stats.number("/evictions/pages") >= EVICTED, "{:#}", stats.json);
        // The 40 MiB of locked memory are counted.
        assert!(stats.number("/peak/total_bytes") > 40 << 20, "{:#}", stats.json);
    }
}

#[test]
fn reads_past_the_page_cache() {
    let Some(bench) = program("direct", include_str!("../workloads/direct.c")) else { return };
    same(&bench, "./program", SEVERAL);
}

#[test]
fn io_uring_with_registered_buffers() {
    let Some(bench) = program("ring", include_str!("../workloads/ring.c")) else { return };
    same(&bench, "./program", SEVERAL);
}

#[test]
fn memory_that_fork_children_do_not_get() {
    let Some(bench) = program("wiped", include_str!("../workloads/wiped.c")) else { return };
    same(&bench, "./program", FORKS);
}

#[test]
fn parents_that_change_their_memory_just_after_a_fork() {
    let Some(bench) = program("after_fork", include_str!("../workloads/after_fork.c")) else { return };
    same(&bench, "./program", FORKS);
}

/// docs/stats.md has each key of the statistics, and no other.
#[test]
fn statistics_are_documented() {
    let Some(bench) = Bench::new("documented", &[]) else { return };
    // Long enough to be listed.
    let (_, stats) = bench.managed("exec sleep 1", BUDGET);
    let mut keys = BTreeSet::new();
    flatten("", &stats.json, &mut keys);
    let mut documented = BTreeSet::new();
    for row in include_str!("../../../../docs/stats.md").lines().filter(|line| line.starts_with("| `")) {
        documented.insert(row.split('`').nth(1).unwrap().to_owned());
    }
    let sometimes = |key: &String| {
        key == "processes_left_out" || key.starts_with("codecs.") || key == "fault_latency_ns.by_source.*"
    };
    documented.retain(|key| !sometimes(key));
    assert_eq!(keys, documented);
}

/// The keys of all values in an object or in an array of objects. Keys of the sources of page
/// faults count as one, and codecs are left out.
fn flatten(place: &str, value: &serde_json::Value, keys: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(map) if !matches!(place, "codecs" | "fault_latency_ns.by_source") => {
            for (key, value) in map {
                flatten(&if place.is_empty() { key.clone() } else { format!("{place}.{key}") }, value, keys);
            }
        }
        serde_json::Value::Array(rows) if place == "processes" => {
            rows.iter().for_each(|row| flatten(place, row, keys));
        }
        serde_json::Value::Object(_) => {}
        _ => _ = keys.insert(place.to_owned()),
    }
}
