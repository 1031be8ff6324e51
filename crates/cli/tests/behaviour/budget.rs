//! The budget seen from outside: launcher, pager and program run in a memory control group of 1.05
//! times the budget, and the kernel must kill none of them. The data compress well, so RAM alone
//! suffices.

use crate::support::cgroup::Cgroup;
use crate::support::contents::assert_contents_eq;
use crate::support::watch::Watch;
use crate::support::{memfit, say, skip, Bench, PYTHON};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Limit of the control group, percent of the budget: the rest is for page tables, thread stacks
/// and files.
const LIMIT_PERCENT: u64 = 105;
const MIB: u64 = 1 << 20;

/// Loss of a CPU for longer than this excuses a kill: the program then fills 20 MB and more.
const LOST: Duration = Duration::from_millis(10);
/// Most runs that are excused so; after them the machine counts as unfit for the test.
const ATTEMPTS: u32 = 5;

#[track_caller]
fn holds(bench: &Bench, line: &str, budget: u64) {
    // The kernel charges pages of files to the group that reads them first, which is tested below.
    for file in [memfit(), memfit().with_file_name("libmemfit.so")] {
        fs::read(file).unwrap();
    }
    let command = |group: &Cgroup| {
        let mut command = group.command(&memfit());
        command.args(["run", "-q", "-m", &budget.to_string(), "--", "sh", "-c", line]);
        command
    };
    holds_within(bench, line, budget * LIMIT_PERCENT / 100, command);
}

/// Nothing is killed in a control group with this limit, where `command` runs the line with memfit.
#[track_caller]
fn holds_within(bench: &Bench, line: &str, limit: u64, command: impl Fn(&Cgroup) -> Command) {
    let plain = bench.plain(line);
    assert_eq!(plain.code, Some(0), "{}", plain.err);
    assert!(plain.peak > limit * 10 / 7, "a natural peak of {} does not test a limit of {limit}", plain.peak);
    let mib = |bytes: u64| bytes as f64 / MIB as f64;
    for _ in 0..ATTEMPTS {
        let group = match Cgroup::of_memory(limit) {
            Ok(group) => group,
            Err(reason) => return skip(&bench.name, &reason),
        };
        let command = command(&group);
        let watch = Watch::start();
        let ran = bench.checked(command, line);
        let (lost, kills) = (watch.stop(), group.oom_kills());
        say(&format!(
            "{:24} natural {:6.1} M; group's limit {:6.1} M: its peak {:6.1} M, met {} times; {kills} killed, {:4.1} s; \
             a CPU was lost for {:.1} ms",
            bench.name,
            mib(plain.peak),
            mib(limit),
            mib(group.peak()),
            group.limit_met(),
            ran.time.as_secs_f64(),
            lost.as_secs_f64() * 1e3,
        ));
        if kills != 0 && lost > LOST {
            say(&format!("{}: once more, since the machine took a CPU away", bench.name));
            continue;
        }
        assert_eq!(kills, 0, "killed by the kernel: {line}: {:?}\n{}", ran.code, ran.err);
        assert_contents_eq!((ran.code, &ran.out), (Some(0), &plain.out), "{}", ran.err);
        assert_eq!(ran.err, plain.err);
        return;
    }
    skip(&bench.name, &format!("in {ATTEMPTS} attempts the machine took CPUs away for more than {LOST:?}"));
}

fn c_program(name: &str, source: &str, mib: u64, budget: u64) {
    let Some(bench) = Bench::new(name, &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc"], name, source) else { return };
    holds(&bench, &format!("./{name} {mib}"), budget);
}

#[test]
fn memset() {
    c_program("memset", include_str!("../workloads/memset.c"), 280, 128 * MIB);
}

#[test]
fn small_memset() {
    c_program("small_memset", include_str!("../workloads/memset.c"), 160, 64 * MIB);
}

#[test]
fn many_small_mappings() {
    c_program("many_small_mappings", include_str!("../workloads/mappings.c"), 220, 128 * MIB);
}

#[test]
fn python_growth() {
    let Some(bench) = Bench::new("python_growth", &[PYTHON]) else { return };
    bench.file("growth.py", include_str!("../workloads/growth.py"));
    holds(&bench, &format!("{PYTHON} growth.py 210"), 128 * MIB);
}

#[test]
fn processes_that_grow_together() {
    let Some(bench) = Bench::new("grow_together", &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc"], "memset", include_str!("../workloads/memset.c")) else { return };
    holds(
        &bench,
        "rm -f filled; for i in 1 2 3 4; do ./memset 110 4 & p=\"$p $!\"; done; for i in $p; do wait $i || exit 1; done",
        128 * MIB,
    );
}

/// The kernel charges memfit's code to a new container, too, since nobody has read it before.
#[test]
fn default_budget_in_a_new_container() {
    let Some(bench) = Bench::new("new_container", &[PYTHON]) else { return };
    bench.file("growth.py", include_str!("../workloads/growth.py"));
    let copies = [memfit(), memfit().with_file_name("libmemfit.so")].map(|from| {
        let to = bench.directory.join(from.file_name().unwrap());
        fs::copy(&from, &to).unwrap();
        to
    });
    let line = format!("{PYTHON} growth.py 120");
    holds_within(&bench, &line, 48 * MIB, |group| {
        copies.iter().for_each(|copy| forget(copy));
        let mut command = group.command(&copies[0]);
        command.args(["run", "-q", "--", "sh", "-c", &line]);
        command
    });
}

/// Drops a file from the page cache.
fn forget(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    // SAFETY: only advice.
    let result = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(result, 0);
}
