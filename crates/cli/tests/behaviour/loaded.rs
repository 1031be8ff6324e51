//! Programs whose dynamic linker does not load libmemfit.so: the pager loads it into them. They can
//! fill all of their memory before it finds them.

use super::torture::{torture, SOAK, STALLED};
use crate::support::contents::assert_contents_eq;
use crate::support::known::same;
use crate::support::tree::{eventually, Tree};
use crate::support::{memfit, memfit_command, say, sized, skip, Bench, FORKS};
use memfit_os::capability::{self, CAP_SYS_PTRACE};
use memfit_os::process::send_signal;
use memfit_os::proctree::kill_exactly;
use std::time::Duration;

/// Whether the pager can load it here; if not, that is reported.
fn is_possible(name: &str) -> bool {
    let possible = capability::has(CAP_SYS_PTRACE) && memfit_os::inject::is_allowed();
    if !possible {
        skip(name, "the pager loads libmemfit.so into programs only with CAP_SYS_PTRACE");
    }
    possible
}

fn bench(name: &str, compiler: &[&str], source: &str) -> Option<Bench> {
    let bench = Bench::new(name, &[compiler[0]]).filter(|_| is_possible(name))?;
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    bench.compile(compiler, "program", source)?;
    Some(bench)
}

/// It verifies its memory.
const MIX: &str = include_str!("../workloads/mix.c");

#[test]
fn static_programs() {
    let Some(bench) = bench("loaded_static", &["gcc", "-static"], MIX) else { return };
    bench.same_within("./program 40 5 rand", &[], 60, FORKS);
}

#[test]
fn musl_programs() {
    for (name, compiler) in [("loaded_musl", &["musl-gcc"][..]), ("loaded_static_musl", &["musl-gcc", "-static"])] {
        let Some(bench) = bench(name, compiler, MIX) else { return };
        bench.same_within("./program 40 5 rand", &[], 60, FORKS);
    }
}

/// As sudo, cron and others start programs.
#[test]
fn programs_with_another_environment() {
    let Some(bench) = bench("loaded_env", &["gcc"], MIX) else { return };
    bench.same_within("exec env -i ./program 40 5 rand", &[], 60, FORKS);
}

/// Its stub sees the pager's abstract socket nowhere. No function of `unshare` is interposed that
/// would tell the pager.
#[test]
fn programs_in_another_network_namespace() {
    let name = "loaded_network";
    let Some(bench) = bench(name, &["gcc"], MIX) else { return };
    if bench.plain("unshare --net true").code != Some(0) {
        return skip(name, "no network namespaces here");
    }
    bench.same_within("exec env -i unshare --net ./program 40 5 rand", &[], 60, FORKS);
}

#[test]
fn static_programs_that_are_stopped_meanwhile() {
    let source = include_str!("../workloads/stopped_at_load.c");
    let Some(bench) = bench("loaded_stopped", &["gcc", "-static"], source) else { return };
    same(&bench, "./program", FORKS);
}

/// The last program limits its address space: the stub must not have 16 GiB of it reserved for
/// functions that it interposes in other programs.
#[test]
fn static_programs_that_execute_others_meanwhile() {
    let Some(bench) = bench("loaded_execs", &["gcc", "-static"], include_str!("../workloads/execs.c")) else { return };
    same(&bench, "./program", FORKS);
}

#[test]
fn static_programs_whose_first_thread_has_ended() {
    let source = include_str!("../workloads/first_ends.c");
    let Some(bench) = bench("loaded_first", &["gcc", "-static"], source) else { return };
    for sizes in ["0 60", "60 0"] {
        same(&bench, &format!("./program {sizes}"), FORKS);
    }
}

/// Two pagers find the program of the inner run, whose environment names neither.
#[test]
fn a_static_program_of_a_run_in_a_run() {
    let Some(bench) = bench("loaded_nested", &["gcc", "-static"], MIX) else { return };
    let pids = "for stub in $(cat /proc/$!/task/*/comm); do echo $stub; done";
    let inner = format!("./program 40 12 rand & sleep 2; {pids}; wait $!");
    let line = format!("exec env -i {} run -q -m 24M -- env -i /bin/sh -c '{inner}'", memfit().display());
    let (ran, _) = bench.managed(&line, 64 << 20);
    let out = String::from_utf8_lossy(&ran.out);
    assert_contents_eq!((ran.code, &*out), (Some(0), "program\nmemfit-stub\nright\n"), "{}", ran.err);
    let named = "not paged, but counted: memfit-pager (memfit pages no memory of its own)";
    assert!(ran.err.contains(named), "{}", ran.err);
}

/// Several at a time, one after the other.
#[test]
fn static_programs_of_a_script() {
    let Some(bench) = bench("loaded_script", &["gcc", "-static"], MIX) else { return };
    bench.same_within("./program 40 3 rand && ./program 40 3 rand & ./program 40 5 rand; wait $!", &[], 60, FORKS);
}

/// Parent, children and grandchildren verify and change their memory while threads of the parent
/// change theirs.
#[test]
fn forks_of_static_programs() {
    let source = include_str!("../workloads/fork_threads.c");
    let Some(bench) = bench("loaded_forks", &["gcc", "-static"], source) else { return };
    bench.same_within("./program", &[], 60, FORKS);
}

#[test]
fn memory_that_children_of_static_programs_do_not_get() {
    let Some(bench) = bench("loaded_wiped", &["gcc", "-static"], include_str!("../workloads/wiped.c")) else { return };
    same(&bench, "./program", FORKS);
    // The children have the library when they look for their holes.
    same(&bench, "./program waits", FORKS);
}

/// By fork, vfork and posix_spawn.
#[test]
fn many_children_of_a_static_program() {
    let source = include_str!("../workloads/children.c");
    let Some(bench) = bench("loaded_children", &["gcc", "-static"], source) else { return };
    bench.same_within("./program", &[], 60, FORKS);
}

/// Its parent and grandparent are small, and never paged.
#[test]
fn a_static_daemon() {
    let source = include_str!("../workloads/static_daemon.c");
    let Some(bench) = bench("loaded_daemon", &["gcc", "-static"], source) else { return };
    same(&bench, "./program", FORKS);
}

/// No guard pages: nothing tells the pager of those.
#[test]
fn torture_without_interposed_functions() {
    if !is_possible("loaded_torture") {
        return;
    }
    let Some(bench) = Bench::new("loaded_torture", &[]) else { return };
    let mut evicted = 0;
    for (ops, mode) in
        [(3000, "--threads 3 --seed 11 --mix guard=0"), (700, "--threads 2 --forks --seed 12 --mix guard=0")]
    {
        let ops = sized(ops, ops * SOAK);
        let common = "--size 96M --verify-all-at-end --stall 120";
        let line = format!(
            "exec env -u LD_PRELOAD {} {common} --ops {ops} {mode} --dir {}",
            torture().display(),
            bench.directory.display()
        );
        let (ran, stats) = bench.managed(&line, 40 << 20);
        let out = String::from_utf8_lossy(&ran.out);
        say(&format!("torture without interposed functions, {mode}: exit {:?}", ran.code));
        assert_ne!(ran.code, Some(STALLED), "{mode}: {}", ran.err);
        assert_contents_eq!((ran.code, &*ran.err), (Some(0), ""), "{mode}: {out}\n{:#}", stats.json);
        evicted += stats.number("/evictions/pages");
    }
    assert!(evicted > 0);
}

/// Pager and launcher die at the same moment while a fork child of a static program sleeps. Nobody
/// goes on with wrong data.
#[test]
fn children_end_with_the_pager() {
    let source = include_str!("../workloads/sleeping_child.c");
    let Some(bench) = bench("loaded_death", &["gcc", "-static"], source) else { return };
    bench.file("out", "");
    bench.file("err", "");
    let mut command = memfit_command();
    command.args(["run", "-q", "-m", "32M", "--", "./program"]);
    let mut tree = Tree::start(command, &bench.directory, true);
    eventually("the child sleeps", || tree.text().contains("child sleeps"));
    // The pager loads the library into a child that lives for a while.
    let stubs = || tree.members().child.is_some_and(|child| memfit_os::procfs::threads(child.pid) == 2);
    eventually("the child has a stub thread", stubs);
    let members = tree.members();
    let (Some(launcher), Some(pager)) = (&members.launcher, &members.pager) else { panic!("{members:#?}") };
    send_signal(launcher.pid, libc::SIGSTOP, None).unwrap();
    assert!(kill_exactly(pager));
    std::thread::sleep(Duration::from_millis(1));
    assert!(kill_exactly(launcher));
    tree.wait_for_all("pager and launcher were killed");
    assert!(!tree.text().contains("verified"), "{}", tree.text());
}

/// Where the library cannot be opened, the program runs without it, and is named.
#[test]
fn a_program_that_cannot_open_the_library() {
    let source = include_str!("../workloads/worked.c");
    let Some(bench) = bench("loaded_chroot", &["gcc", "-static"], source) else { return };
    let (ran, _) = bench.managed("exec chroot . /program 24 24", 32 << 20);
    let named = "not paged, but counted: program (static, and libmemfit.so cannot be loaded into it: No such file";
    assert_contents_eq!((ran.code, &*ran.out), (Some(7), &b"0 wrong\n"[..]), "{}", ran.err);
    assert!(ran.err.contains(named), "{}", ran.err);
}

/// What the program finds under the library's path is something else: another file, or a pipe that
/// nobody writes to.
#[test]
fn a_program_that_sees_another_file_there() {
    let name = "loaded_other";
    let Some(bench) = bench(name, &["gcc", "-static"], include_str!("../workloads/worked.c")) else { return };
    if bench.plain("unshare --mount true && mkfifo pipe").code != Some(0) {
        return skip(name, "no mount namespaces here");
    }
    let stub = memfit().with_file_name("libmemfit.so");
    for other in ["program", "pipe"] {
        let line =
            format!("exec unshare --mount sh -c 'mount --bind {other} {} && exec ./program 24 24'", stub.display());
        let (ran, _) = bench.managed(&line, 32 << 20);
        let named = "program (static, and libmemfit.so cannot be loaded into it: it finds another file there";
        assert_contents_eq!((ran.code, &*ran.out), (Some(7), &b"0 wrong\n"[..]), "{other}: {}", ran.err);
        assert!(ran.err.contains(named), "{other}: {}", ran.err);
    }
}
