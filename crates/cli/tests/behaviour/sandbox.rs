//! Sandboxes around memfit, and sandboxes that programs make for themselves. A program that cannot
//! be paged any more is detached: it goes on with all of its memory, is counted, and memfit names
//! it with the reason.

use crate::support::contents::assert_contents_eq;
use crate::support::known::program;
use crate::support::process::Ran;
use crate::support::stats::Stats;
use crate::support::{memfit_command, say, skip, Bench, FORKS};
use std::process::Command;

/// Most programs here fill 56 MiB.
const BUDGET: u64 = 32 << 20;
/// Least evicted pages of a program that is paged.
const EVICTED: u64 = 2000;
/// Gives up all rights once more, in namespaces where the user keeps its id; memfit is the first
/// process there.
const CONTAINER: [&str; 17] = [
    "unshare",
    "--user",
    "--map-current-user",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--ipc",
    "--uts",
    "--keep-caps",
    "setpriv",
    "--bounding-set=-all",
    "--inh-caps=-all",
    "--ambient-caps=-all",
    "--no-new-privs",
    "--",
];
/// Root without the rights to look at processes of others, as in containers.
const WEAK_ROOT: [&str; 3] = ["setpriv", "--bounding-set=-sys_ptrace,-sys_admin,-perfmon", "--inh-caps=-all"];
const UNREADABLE: &str = "its user may not look at it";
const FILTERED: &str = "it has a system call filter";

fn compiled(bench: &Bench) {
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    bench.compile(&["gcc"], "unreadable", include_str!("../workloads/unreadable.c")).expect("it compiles");
    bench.compile(&["gcc"], "filtered", include_str!("../workloads/filtered.c")).expect("it compiles");
    bench.compile(&["gcc"], "container", include_str!("../workloads/container.c")).expect("it compiles");
}

/// A bench of root, in a place that all can read, for programs that become other users; `ordinary`
/// makes one of an ordinary user.
fn open_to_all(name: &str) -> Option<Bench> {
    let bench = Bench::open_to_all(name, &["gcc", "setpriv", "unshare"])?;
    compiled(&bench);
    Some(bench)
}

fn ordinary(name: &str) -> Option<Bench> {
    let bench = Bench::ordinary(name, &["gcc", "setpriv", "unshare"])?;
    compiled(&bench);
    Some(bench)
}

fn text(ran: &Ran) -> String {
    String::from_utf8_lossy(&ran.out).into_owned()
}

/// What becomes of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Paged to its end.
    Paged,
    /// Paged at first, then detached, for this reason.
    Left(&'static str),
    /// Never paged; memfit gives the reason if the program lives long enough.
    Never(&'static str),
}

/// Asserts that the program does the same as without memfit, and has that fate.
#[track_caller]
fn same(bench: &Bench, around: Command, line: &str, fate: Fate) {
    let plain = bench.plain(line);
    assert_eq!(plain.code, Some(0), "without memfit: {line}: {} {}", text(&plain), plain.err);
    compare(bench, &plain, around, line, fate);
}

#[track_caller]
fn compare(bench: &Bench, plain: &Ran, around: Command, line: &str, fate: Fate) {
    let (ran, stats): (Ran, Stats) = bench.managed_by(around, line, BUDGET);
    let context = format!("{}: {line}: {fate:?}\n{}\n{:#}", bench.name, ran.err, stats.json);
    assert_contents_eq!((ran.code, text(&ran)), (plain.code, text(plain)), "{context}");
    let (evicted, peak) = (stats.number("/evictions/pages"), stats.number("/peak/total_bytes"));
    say(&format!("{:24} {line}: {evicted} pages evicted, peak {} MiB", bench.name, peak >> 20));
    // A child that ends at once is in no row, nor is a fault in which the process was killed.
    if !line.contains("fork") {
        let rows = stats.json["processes"].as_array().expect("rows");
        let counted: u64 = rows.iter().filter_map(|row| row["faults"].as_u64()).sum();
        assert!(counted + 20 >= stats.number("/faults/total"), "faults in no process's row: {context}");
    }
    match fate {
        Fate::Paged => {
            assert!(evicted >= EVICTED, "{context}");
            assert_eq!(ran.err, "", "{context}");
            stats.peak_within(FORKS.peak_percent);
        }
        Fate::Left(why) => {
            // How many depends on who gets the CPUs before the program is detached.
            assert!(evicted > 0, "{context}");
            let told = ran.err.starts_with("memfit: no longer paged, still counted: process ") && ran.err.contains(why);
            assert!(told && ran.err.lines().count() == 1, "{context}");
            assert!(peak > 50 << 20, "counted: {context}");
        }
        Fate::Never(why) => {
            let told = ran.err.starts_with("memfit: not paged, but counted: process ") && ran.err.contains(why);
            assert!(ran.err.is_empty() || told && ran.err.lines().count() == 1, "{context}");
            assert_eq!(evicted, 0, "{context}");
        }
    }
}

/// memfit's command line up to its options, as the bench's user, or root.
fn run(bench: &Bench, around: &[&str]) -> Command {
    match &bench.user {
        Some(user) => user.command_in(around, &["run"]),
        None => {
            let mut command = memfit_command();
            command.arg("run");
            command
        }
    }
}

#[test]
fn in_namespaces_without_rights() {
    let Some(bench) = ordinary("container") else { return };
    let user = bench.user.as_ref().expect("an ordinary user runs it");
    let doctor = bench.checked(user.command_in(&CONTAINER, &["doctor"]), "memfit doctor");
    if doctor.code != Some(0) {
        return skip(&bench.name, &format!("memfit cannot run there: {} {}", text(&doctor), doctor.err));
    }
    for (line, fate) in [
        ("./unreadable", Fate::Paged),
        ("./filtered fill check more fork threads check", Fate::Paged),
        ("./unreadable late", Fate::Left(UNREADABLE)),
        ("./filtered fill check filter=work,kill,all check fork threads check", Fate::Left(FILTERED)),
        // The stub cannot ask whether its thread has ended.
        (
            "./filtered fill check filter=noask,errno check filter=work,kill,all check fork threads check",
            Fate::Left(FILTERED),
        ),
    ] {
        same(&bench, run(&bench, &CONTAINER), line, fate);
    }
}

/// The abstract socket is not visible in another network namespace; the path is, and must be gone
/// at the end.
fn another_network(bench: &Bench) {
    let ways = ["unshare --user --map-root-user --net", "unshare --user --net --mount --pid --fork"];
    if !ways.iter().all(|way| bench.plain(&format!("{way} true")).code == Some(0)) {
        return skip(&bench.name, "no network namespaces here");
    }
    let places = || {
        let listed = std::fs::read_dir("/tmp").into_iter().flatten().flatten();
        let names = listed.map(|entry| entry.file_name().to_string_lossy().into_owned());
        // Directories of memfit itself end in a random number.
        let random = |name: &str| name.rsplit('-').next().is_some_and(|last| last.len() == 16);
        names.filter(|name| name.starts_with("memfit-") && random(name)).collect::<std::collections::BTreeSet<_>>()
    };
    let before = places();
    for way in ways {
        same(bench, run(bench, &[]), &format!("{way} ./filtered fill check fork threads exec fill check"), Fate::Paged);
    }
    // Those of other runs may come and go.
    let made = &places() - &before;
    let alive = |name: &String| {
        let pid = name.split('-').nth(2).and_then(|pid| pid.parse().ok());
        pid.is_some_and(|pid| memfit_os::proctree::read_stat(pid).is_some())
    };
    assert!(made.iter().all(alive), "left: {made:?}");
}

#[test]
fn in_another_network_namespace() {
    let Some(bench) = open_to_all("another_network") else { return };
    another_network(&bench);
}

#[test]
fn an_ordinary_user_in_another_network_namespace() {
    let Some(bench) = ordinary("ordinary_network") else { return };
    another_network(&bench);
}

/// An ordinary user's pager may not look at a process that is not dumpable.
#[test]
fn programs_that_nobody_may_look_at() {
    let Some(bench) = ordinary("unreadable") else { return };
    same(&bench, run(&bench, &[]), "./unreadable early", Fate::Never(UNREADABLE));
    same(&bench, run(&bench, &[]), "./unreadable late", Fate::Left(UNREADABLE));
    same(&bench, run(&bench, &[]), "./unreadable bare", Fate::Left(UNREADABLE));
}

/// Nor may root without that right (as in containers) look at processes of other users, or at those
/// that become other users.
#[test]
fn programs_of_other_users() {
    let Some(bench) = open_to_all("other_users") else { return };
    if memfit_os::process::effective_uid() != 0 {
        return skip(&bench.name, "only root can become another user");
    }
    same(&bench, run(&bench, &WEAK_ROOT), "./unreadable user", Fate::Left(UNREADABLE));
    let other = "setpriv --reuid=65534 --regid=65534 --clear-groups ./filtered fill check fork threads check";
    same(&bench, run(&bench, &WEAK_ROOT), other, Fate::Never(UNREADABLE));
    // With that right they are paged.
    for how in ["early", "late", "bare", "user"] {
        same(&bench, run(&bench, &[]), &format!("./unreadable {how}"), Fate::Paged);
    }
}

/// A filter that a paged program installs by a bare system call, for all threads: the stub's next
/// call ends the process, or the stub does.
#[test]
fn filters_that_nobody_sees() {
    let Some(bench) = open_to_all("unseen_filters") else { return };
    for action in ["kill", "errno"] {
        let line = format!("exec ./filtered fill check filter=few,{action},all,bare check more check");
        assert_eq!(bench.plain(&line).code, Some(0));
        let (ran, stats) = bench.managed_by(run(&bench, &[]), &line, BUDGET);
        let context = format!("{line}: {:?} {}\n{:#}", ran.code, ran.err, stats.json);
        assert!(stats.number("/evictions/pages") > 0, "{context}");
        // The stub and the pager see at the same time that it cannot go on: who is first decides
        // whether a message says so.
        let told = ran.err.is_empty() || ran.err.starts_with("memfit: killed process ");
        let ended = action == "kill" && ran.code == Some(128 + libc::SIGSYS) || ran.code == Some(137);
        assert!(ended && told && ran.err.lines().count() <= 1, "{context}");
    }
}

/// A program in a network namespace that nobody has told the pager of runs as without memfit.
#[test]
fn programs_out_of_reach() {
    let Some(bench) = open_to_all("programs_out_of_reach") else { return };
    let line = "./filtered network exec fill wait check";
    let plain = bench.plain(line);
    if plain.code != Some(0) || text(&plain).contains("network: -") {
        return skip(&bench.name, &format!("network: not possible here: {}", text(&plain)));
    }
    let (ran, stats) = bench.managed_by(run(&bench, &[]), line, BUDGET);
    let context = format!("{}\n{:#}", ran.err, stats.json);
    assert_contents_eq!((ran.code, text(&ran)), (Some(0), text(&plain)), "{context}");
    assert!(
        ran.err.starts_with("memfit: not paged, but counted: filtered (") && ran.err.lines().count() == 1,
        "{context}"
    );
    assert!(ran.err.contains("(in another network namespace)"), "{context}");
    assert_eq!(stats.number("/evictions/pages"), 0, "{context}");
    assert!(stats.number("/peak/total_bytes") > 50 << 20, "counted: {context}");
}

/// Fork children of a paged process that hides from the pager, by bare system calls.
#[test]
fn fork_children_out_of_reach() {
    let Some(bench) = open_to_all("out_of_reach") else { return };
    for (how, why) in [("network", "another network namespace"), ("landlock", "")] {
        // The message comes a moment after the child's end.
        let line = format!("./filtered fill check {how} fork check && sleep 1");
        let plain = bench.plain(&line);
        if plain.code != Some(0) || text(&plain).contains(&format!("{how}: -")) {
            skip(&bench.name, &format!("{how}: not possible here: {}", text(&plain)));
            continue;
        }
        let (ran, stats) = bench.managed_by(run(&bench, &[]), &line, BUDGET);
        let context = format!("{line}: {:?} {}\n{}\n{:#}", ran.code, text(&ran), ran.err, stats.json);
        assert_contents_eq!(
            (ran.code, text(&ran)),
            (Some(0), text(&plain).replace("child: 0", "child: -1")),
            "{context}"
        );
        assert_eq!(ran.err.lines().count(), usize::from(!why.is_empty()), "{context}");
        assert!(ran.err.contains(why), "{context}");
    }
}

/// Filters that programs install, before and after they are paged, for one thread and for all, the
/// stub thread included.
fn filters(bench: &Bench) {
    let never = Fate::Never(FILTERED);
    for (line, fate) in [
        // For the calling thread, which cannot fork then: the stub thread goes on, with a filter of
        // its own.
        ("fill check filter=few,kill check more check", Fate::Paged),
        ("filter=few,kill fill check more check", Fate::Paged),
        // The stub has not seen the filter: no stub thread is made.
        ("filter=few,kill,bare fill check more check", never),
        ("fill check filter=few,kill,all check more check", Fate::Left(FILTERED)),
        ("filter=few,trap,all fill check more check", never),
        ("fill check filter=few,errno,all check more check", Fate::Left(FILTERED)),
        // The stubs of children would be killed.
        ("fill check filter=work,kill check more fork threads check", Fate::Left(FILTERED)),
        ("filter=work,trap,all fill check more fork threads check", never),
        ("fill check filter=work,errno,all check more fork threads check", Fate::Left(FILTERED)),
        // The stub cannot connect to the pager in the usual way.
        ("fill check files filter=few,kill,all check more check", Fate::Left(FILTERED)),
        // All calls that the stub needs are allowed.
        ("fill check filter=most,errno,all check more fork threads check", Fate::Paged),
        ("filter=most,kill,all fill check more fork threads check", Fate::Paged),
        ("filter=most,errno exec fill check more fork threads check", Fate::Paged),
        // Calls that the stub does without: shared or executed pages stay then.
        ("fill protect check filter=most,kill,all check fork threads check", Fate::Paged),
        ("fill code check filter=noexec,kill,all check fork threads check", Fate::Paged),
        ("fill code check filter=noexec,errno check fork threads check", Fate::Paged),
        // Calls that libc's functions do not make, but the stub's do.
        ("filter=few,kill fill read check", Fate::Paged),
        ("fill check strict read check", Fate::Paged),
        ("fill check filter=noids,kill check stacks read check", Fate::Left(FILTERED)),
        // Calls that the kernel refuses change nothing.
        ("fill check refused check fork threads check", Fate::Paged),
        ("garbage fill check fork threads check", Fate::Paged),
    ] {
        same(bench, run(bench, &[]), &format!("exec ./filtered {line}"), fate);
    }
    // Programs that are started under a filter and know nothing of it, and small ones.
    for line in [
        "filter=most,kill exec fill check more fork threads check",
        "filter=most,kill exec fill protect check fork threads check",
        "filter=path,kill exec",
        "filter=nosocket,kill system",
        "fill check filter=nosocket,kill check system",
        "filter=noids,kill stacks",
        "strict read",
    ] {
        let line = format!("./filtered {line}");
        let (ran, stats) = bench.managed_by(run(bench, &[]), &line, BUDGET);
        let plain = text(&bench.plain(&line));
        assert_contents_eq!((ran.code, text(&ran)), (Some(0), plain), "{line}: {}\n{:#}", ran.err, stats.json);
    }
    // The filter of a child that shares its parent's memory is not its parent's.
    same(bench, run(bench, &[]), "./filtered vfork fill check fork exec fill check", Fate::Paged);
}

#[test]
fn filters_of_programs() {
    let Some(bench) = open_to_all("filters") else { return };
    filters(&bench);
}

/// Perl frees the environment that it has made for itself when it ends.
#[test]
fn filters_of_perl_programs() {
    let Some(bench) = Bench::open_to_all("perl_filters", &["perl"]) else { return };
    bench.file("filter.pl", include_str!("../workloads/filter.pl"));
    for line in ["exec perl filter.pl", "exec perl filter.pl own"] {
        let plain = bench.plain(line);
        let (ran, stats) = bench.managed_by(run(&bench, &[]), line, BUDGET);
        assert_eq!(plain.code, Some(0), "without memfit: {}", plain.err);
        let context = format!("{line}: {}\n{:#}", ran.err, stats.json);
        assert_contents_eq!((ran.code, text(&ran), &ran.err), (plain.code, text(&plain), &plain.err), "{context}");
    }
}

/// A thread takes the stub out of the environment while another one forks.
#[test]
fn filters_while_another_thread_forks() {
    let Some(bench) = program("leaves", include_str!("../workloads/leaves.c")) else { return };
    let (ran, stats) = bench.managed("./program", BUDGET);
    assert_contents_eq!((ran.code, text(&ran)), (Some(0), "wrong: 0\n".into()), "{}\n{:#}", ran.err, stats.json);
}

#[test]
fn filters_of_an_ordinary_users_programs() {
    let Some(bench) = ordinary("ordinary_filters") else { return };
    filters(&bench);
}

/// Another thread unmaps and drops pages of a file while all that are missing are brought back.
#[test]
fn a_detach_ends_while_a_file_is_unmapped() {
    let Some(bench) = program("unmaps", include_str!("../workloads/unmaps.c")) else { return };
    let line = "./program data 48 4";
    let plain = text(&bench.plain(line));
    assert_eq!(plain, "child: 0\n".repeat(4));
    let (ran, stats) = bench.managed_with(&["--files"], line, 96 << 20);
    assert_contents_eq!((ran.code, text(&ran)), (Some(0), plain), "{}\n{:#}", ran.err, stats.json);
    assert!(ran.err.contains(FILTERED) && ran.err.lines().count() == 1, "{}", ran.err);
    assert!(stats.number("/files/read_bytes") > 96 << 20, "the missing pages were read: {:#}", stats.json);
}

/// A container engine's filter around memfit forbids userfaultfd(2); /dev/userfaultfd is open, or
/// it is not.
#[test]
fn in_a_container_engines_filter() {
    let Some(bench) = ordinary("engine") else { return };
    let user = bench.user.as_ref().expect("an ordinary user runs it");
    for line in ["./unreadable", "./filtered fill check more fork threads check"] {
        same(&bench, run(&bench, &["./container"]), line, Fate::Paged);
    }
    let refused = |words: &[&str]| {
        let memfit = user.place().join("memfit");
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "./container"]);
        command.arg(memfit).args(words);
        bench.checked(command, "memfit, without the device")
    };
    let fix = "start the container with --device /dev/userfaultfd";
    let ran = refused(&["run", "--", "./filtered", "fill"]);
    assert_eq!((ran.code, text(&ran)), (Some(1), String::new()), "{}", ran.err);
    assert!(ran.err.contains("a system call filter forbids it") && ran.err.contains(fix), "{}", ran.err);
    let ran = refused(&["doctor"]);
    let words = text(&ran).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(ran.code == Some(1) && words.contains(fix), "{}", text(&ran));
    let ran = refused(&["run", "--best-effort", "--", "./filtered", "fill", "check"]);
    assert_contents_eq!((ran.code, &*text(&ran)), (Some(0), "wrong: 0\n"), "{}", ran.err);
}

/// As root without CAP_SYS_PTRACE, as in containers of that engine.
#[test]
fn in_a_container_engines_filter_as_root() {
    let Some(bench) = open_to_all("engine_root") else { return };
    if memfit_os::process::effective_uid() != 0 {
        return skip(&bench.name, "only root has rights to give up");
    }
    let around = [&WEAK_ROOT[..], &["./container"]].concat();
    same(&bench, run(&bench, &around), "./filtered fill check more fork threads check", Fate::Paged);
}
