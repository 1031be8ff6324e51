//! Whole trees under one budget: processes are born, change, die and outlive each other, and the
//! pager frees what they had.

use crate::support::contents::{assert_contents, assert_contents_eq};
use crate::support::known::program;
use crate::support::stats::live;
use crate::support::tree::{eventually, Tree};
use crate::support::{memfit, memfit_command, say, skip, Bench, FORKS, ONE, PYTHON, SEVERAL};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;
const BLOCKS: &str = include_str!("../workloads/blocks.py");

fn python(name: &str) -> Option<Bench> {
    let bench = Bench::new(name, &[PYTHON])?;
    bench.file("blocks.py", BLOCKS);
    bench.file("big.py", include_str!("../workloads/big.py"));
    Some(bench)
}

/// What fork relatives share counts once in each part of the budget, as in what is used.
#[test]
fn shared_pages_are_resident_once() {
    let Some(bench) = python("resident_once") else { return };
    let forks = "import os, time\ndata = os.urandom(44 << 20)\nfor i in range(5):\n    if os.fork() == 0:\n        \
                 time.sleep(3600)\nprint('ready', flush=True)\ntime.sleep(3600)\n";
    bench.file("forks.py", forks);
    let mut command = memfit_command();
    command.args(["run", "-q", "-m", "60M", "--", PYTHON, "forks.py"]);
    let tree = Tree::start(command, &bench.directory, true);
    eventually("the children live", || tree.text().contains("ready"));
    let mut last = Value::Null;
    eventually("the parts are what is used", || {
        let Some(ours) = live(memfit_command(), tree.root()) else { return false };
        last = ours["now"].clone();
        let bytes = |key: &str| last[key].as_u64().unwrap();
        let parts = ["resident_bytes", "staged_bytes", "pool_bytes", "metadata_bytes"].map(bytes);
        let paged = ours["evictions"]["pages"].as_u64() > Some(0);
        paged && bytes("resident_bytes") > 20 * MIB && parts.iter().sum::<u64>() <= bytes("total_bytes")
    });
}

/// After processes have ended in every way the pager holds nothing of them, and the next ones have
/// the whole budget.
#[test]
fn what_ended_is_free_again() {
    let Some(bench) = python("ended_is_free") else { return };
    bench.file(
        "crash.py",
        "import os, blocks\nm = blocks.build(3, 22)\nblocks.churn(m, 1, 1)\nos.kill(os.getpid(), 9)\n",
    );
    let forks = "import os, blocks\nm = blocks.build(5, 18)\nfor i in range(3):\n    pid = os.fork()\n    if pid == 0:\n        \
                 blocks.churn(m, i, 1)\n        os._exit(0)\n    blocks.churn(m, 7, 1)\n    os.waitpid(pid, 0)\n";
    bench.file("forks.py", forks);
    bench.file("look.py", include_str!("../workloads/look.py"));
    let look = |file: &str| format!("{PYTHON} look.py {} crash.py {file}", memfit().display());
    let all = format!(
        "{PYTHON} big.py 1 22 1; {PYTHON} crash.py; sh -c '{PYTHON} big.py 2 14 1; exec {PYTHON} big.py 3 18 1'; {PYTHON} forks.py"
    );
    let line = format!("{all}; {}; {all}; {}", look("first.json"), look("second.json"));
    let (ran, stats) = bench.managed(&line, 20 * MIB);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let mut metadata = Vec::new();
    for name in ["first.json", "second.json"] {
        let text = fs::read_to_string(bench.directory.join(name)).unwrap();
        let ours: Value = serde_json::from_str(&text).unwrap();
        // Two shells and look.py live on.
        for key in ["staged", "filled", "pooled", "swapped", "quarantined", "evicting"] {
            let pages = ours["now"]["pages"][key].as_u64().unwrap();
            assert!(pages < 64, "{name}: {pages} pages are {key}: {:#}", ours["now"]);
        }
        for key in ["pool_bytes", "swap_bytes"] {
            let bytes = ours["now"][key].as_u64().unwrap();
            assert!(bytes < MIB, "{name}: {key} {bytes}: {:#}", ours["now"]);
        }
        metadata.push(ours["now"]["metadata_bytes"].as_u64().unwrap());
    }
    say(&format!("ended_is_free: metadata {metadata:?} bytes"));
    assert!(metadata[1] < metadata[0] * 3 / 2, "the tables grow: {metadata:?}");
    stats.peak_within(SEVERAL.peak_percent);
}

#[test]
fn a_chain_of_200_forks() {
    let Some(bench) = Bench::new("fork_chain", &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc"], "fork_chain", include_str!("../workloads/fork_chain.c")) else { return };
    // The first one fills more than the budget before it forks.
    let (ran, stats) = bench.managed("./fork_chain 200 20", 16 * MIB);
    assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"200 levels: right\n"[..]), "{}\n{:#}", ran.err, stats.json);
    assert!(stats.number("/evictions/pages") > 1000, "{:#}", stats.json);
}

#[test]
fn a_thousand_children() {
    let Some(bench) = Bench::new("thousand_children", &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc"], "children", include_str!("../workloads/children.c")) else { return };
    bench.same_within("./children", &[], 65, FORKS);
}

#[test]
fn a_thousand_children_of_an_ordinary_user() {
    let Some(bench) = Bench::ordinary("ordinary_children", &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc"], "children", include_str!("../workloads/children.c")) else { return };
    bench.same_within("./children", &[], 65, FORKS);
}

/// The run returns when the command ends. The pager serves what lives on to its end, and then ends.
fn daemon(bench: &Bench) {
    let Some(_) = bench.compile(&["gcc"], "daemon", include_str!("../workloads/daemon.c")) else { return };
    let (go, done) = (bench.directory.join("go"), bench.directory.join("done"));
    let (ran, stats) = bench.managed("./daemon go done", 24 * MIB);
    assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"started\n"[..]), "{}", ran.err);
    assert_eq!(ran.err, "");
    assert!(!done.exists(), "the daemon waits");
    let pid = stats.number("/pid") as i32;
    eventually("the daemon is paged", || {
        live(bench.memfit(), pid).is_some_and(|tree| tree["evictions"]["pages"].as_u64() > Some(6000))
    });
    fs::write(go, "").unwrap();
    eventually("the daemon is done", || done.exists());
    assert_contents_eq!(fs::read_to_string(done).unwrap(), "0 wrong\n", "the daemon");
    let pager_of = |p: &memfit_os::proctree::ProcStat| {
        let words = fs::read(format!("/proc/{}/cmdline", p.pid)).unwrap_or_default();
        p.comm.starts_with("memfit") && String::from_utf8_lossy(&words).contains("./daemon go done")
    };
    eventually("the pager goes", || {
        !memfit_os::proctree::snapshot().unwrap().iter().any(|p| p.pid == pid || pager_of(p))
    });
}

#[test]
fn daemons_outlive_the_command() {
    let Some(bench) = Bench::new("daemon", &["gcc"]) else { return };
    daemon(&bench);
}

#[test]
fn daemons_of_an_ordinary_user() {
    let Some(bench) = Bench::ordinary("ordinary_daemon", &["gcc"]) else { return };
    daemon(&bench);
}

/// A process that the pager cannot reach runs on when the command and the pager have ended.
#[test]
fn daemons_out_of_reach_outlive_the_pager() {
    let Some(bench) = program("daemon_out_of_reach", include_str!("../workloads/filtered.c")) else { return };
    if bench.plain("./program network").out != b"network: 0\n" {
        return skip(&bench.name, "no network namespace is allowed here");
    }
    let (ran, _) = bench.managed("./program network exec wait fill check > said 2>&1 &", 64 * MIB);
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
    let said = || fs::read_to_string(bench.directory.join("said")).unwrap_or_default();
    eventually("the daemon is done", || said() == "network: 0\nwrong: 0\n");
}

/// Processes outside of the tree that have its environment outlive the run: a small one alone, a
/// paged one with the pager, which serves it to its end.
#[test]
fn processes_of_others_outlive_the_run() {
    let Some(bench) = Bench::new("processes_of_others", &["gcc"]) else { return };
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    let Some(program) = bench.compile(&["gcc"], "non_descendant", include_str!("../workloads/non_descendant.c")) else {
        return;
    };
    let is_there = |name: &str| bench.directory.join(name).exists();
    for all in [&[("small", "1")][..], &[("small", "1"), ("large", "56")]] {
        let script =
            "echo $MEMFIT_SOCKET $LD_PRELOAD > new; mv new environment; until test -e end; do sleep 0.02; done";
        let mut command = memfit_command();
        command.args(["run", "-q", "-m", "32M", "--stats", "stats.json", "--", "sh", "-c", script]);
        let mut tree = Tree::start(command, &bench.directory, true);
        eventually("the tree's environment", || is_there("environment"));
        let text = fs::read_to_string(bench.directory.join("environment")).unwrap();
        let (socket, preload) = text.trim().split_once(' ').unwrap();
        let start = |&(name, size): &(&str, &str)| {
            let mut command = std::process::Command::new(&program);
            command.args([name, size]).env("MEMFIT_SOCKET", socket).env("LD_PRELOAD", preload);
            Tree::start_in(command, &bench.directory)
        };
        let mut others: Vec<Tree> = all.iter().map(start).collect();
        eventually("they are full", || all.iter().all(|(name, _)| is_there(&format!("full.{name}"))));
        bench.file("end", "");
        assert_eq!(tree.wait(), 0, "{}", tree.errors());
        assert_eq!(tree.errors(), "");
        let stats: Value =
            serde_json::from_slice(&fs::read(bench.directory.join("stats.json")).unwrap()).expect("statistics");
        let paged = stats["evictions"]["pages"].as_u64().unwrap();
        assert_eq!(paged > 1000, all.len() > 1, "{stats:#}");
        bench.file("go", "");
        for (other, (name, _)) in others.iter_mut().zip(all) {
            assert_eq!(other.wait(), 0, "{name}");
            let found = fs::read_to_string(bench.directory.join(format!("done.{name}"))).unwrap();
            assert_contents_eq!(found, "0 wrong\n", "{name}");
        }
        tree.wait_for_all("the pager goes");
        drop(tree);
        for name in ["environment", "end", "go", "full.small", "full.large", "done.small", "done.large"] {
            let _ = fs::remove_file(bench.directory.join(name));
        }
    }
}

/// The pager refuses a process of another user that got the environment from somewhere: it runs on,
/// and is not counted in the budget.
#[test]
fn another_user_does_not_join() {
    let Some(bench) = Bench::open_to_all("another_user", &["gcc"]) else { return };
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    let Some(program) = bench.compile(&["gcc"], "non_descendant", include_str!("../workloads/non_descendant.c")) else {
        return;
    };
    let script = "echo $MEMFIT_SOCKET $LD_PRELOAD > new; mv new environment; until test -e end; do sleep 0.02; done";
    let user = bench.user.as_ref().expect("there is a place open to all");
    let command = user.command(&["run", "-q", "-m", "32M", "--stats", "stats.json", "--", "sh", "-c", script]);
    let mut tree = Tree::start(command, &bench.directory, true);
    eventually("the tree's environment", || bench.directory.join("environment").exists());
    let text = fs::read_to_string(bench.directory.join("environment")).unwrap();
    let (socket, preload) = text.trim().split_once(' ').unwrap();
    let start = |name: &str, uid: u32| {
        let mut command = std::process::Command::new(&program);
        command.args([name, "1"]).env("MEMFIT_SOCKET", socket).env("LD_PRELOAD", preload).uid(uid);
        Tree::start_in(command, &bench.directory)
    };
    let mut others = [start("own", 0), start("other", 65534)];
    eventually("they are full", || ["own", "other"].iter().all(|n| bench.directory.join(format!("full.{n}")).exists()));
    // A program does not wait for an answer to its greeting.
    eventually("the pager has read the greeting", || {
        let Some(ours) = live(memfit_command(), tree.root()) else { return false };
        ours["processes"].as_array().unwrap().iter().any(|row| row["pid"] == others[0].root())
    });
    bench.file("end", "");
    bench.file("go", "");
    assert_eq!(tree.wait(), 0, "{}", tree.errors());
    others.iter_mut().for_each(|other| assert_eq!(other.wait(), 0));
    let text = fs::read(bench.directory.join("stats.json")).unwrap();
    let stats: Value = serde_json::from_slice(&text).expect("statistics");
    let known = |pid: i32| stats["processes"].as_array().unwrap().iter().any(|row| row["pid"] == pid);
    let pids = others.each_ref().map(Tree::root);
    assert_eq!(pids.map(known), [true, false], "{stats:#}");
}

/// The C sources of a library that the build of memfit has fetched.
fn c_project() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME")
        .map_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cargo"), PathBuf::from);
    let registries = fs::read_dir(home.join("registry/src")).ok()?.flatten();
    let packages = registries.filter_map(|r| fs::read_dir(r.path()).ok()).flat_map(|all| all.flatten());
    let mut zstd: Vec<PathBuf> =
        packages.map(|p| p.path().join("zstd/lib")).filter(|p| p.join("zstd.h").is_file()).collect();
    zstd.sort();
    zstd.pop()
}

#[test]
fn make_with_two_jobs() {
    let Some(bench) = Bench::new("make_with_two_jobs", &["gcc", "make", "ar"]) else { return };
    let Some(source) = c_project() else {
        return skip("make_with_two_jobs", "there are no sources of zstd in cargo's registry");
    };
    let makefile = format!(
        "S := {}\nFILES := $(filter-out %zstd_lazy.c %zstd_opt.c %fast.c,$(wildcard $S/common/*.c $S/compress/*.c))\n\
         OBJECTS := $(notdir $(FILES:.c=.o))\nVPATH := $S/common:$S/compress\nlib.a: $(OBJECTS)\n\t@ar rcD $@ $^\n\
         %.o: %.c\n\t@$(CC) -O1 -g -DZSTD_DISABLE_ASM -I$S -c -o $@ $<\nclean:\n\t@rm -f *.o\n",
        source.display()
    );
    bench.file("Makefile", &makefile);
    bench.same_within("make -s -j2 lib.a && make -s clean", &["lib.a"], 60, SEVERAL);
}

/// A run inside of another shares the outer budget.
#[test]
fn nested_runs_share_the_outer_budget() {
    let Some(bench) = python("nested_runs") else { return };
    let memfit = memfit();
    let inner = format!("{} run -q -m 1G -- {PYTHON} big.py 1 50 1", memfit.display());
    let plain = bench.plain(&format!("{PYTHON} big.py 1 50 1"));
    let (ran, stats) = bench.managed(&inner, 48 * MIB);
    assert_contents!(
        (ran.code, &ran.out) == (Some(0), &plain.out),
        "{} {}",
        ran.err,
        String::from_utf8_lossy(&ran.out)
    );
    assert!(stats.number("/evictions/pages") > 1000, "{:#}", stats.json);
    stats.peak_within(ONE.peak_percent);
    let named =
        stats.json["processes"].as_array().unwrap().iter().any(|p| p["comm"].as_str().unwrap().starts_with("python3"));
    assert!(named, "{:#}", stats.json["processes"]);
}

/// A server of many processes with shared memory that runs as another user: PostgreSQL refuses
/// root.
#[test]
fn postgresql() {
    let Some(bench) = Bench::open_to_all("postgresql", &["setpriv"]) else { return };
    // Debian has a directory for each version.
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let programs = versions.map(|version| version.path().join("bin"));
    let Some(bin) = programs.filter(|bin| bin.join("postgres").is_file()).max() else {
        return skip("postgresql", "there is no PostgreSQL");
    };
    if memfit_os::process::effective_uid() != 0 {
        return skip("postgresql", "only root can become PostgreSQL's user");
    }
    bench.file("server.sh", include_str!("../workloads/postgresql.sh"));
    let data = bench.directory.join("data");
    let script = |what: &str| format!("sh server.sh {} {} {what}", bin.display(), data.display());
    let made = bench.plain(&script("init"));
    assert_eq!(made.code, Some(0), "{}", made.err);
    let line = script("serve");
    let plain = bench.plain(&line);
    assert_eq!(plain.code, Some(0), "{}", plain.err);
    // Without a limit the servers take about 150 MiB together; 15 of them have nearly 1 MiB each
    // that cannot be evicted.
    let budget = 96 * MIB;
    let (ran, stats) = bench.managed(&line, budget);
    let out = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_contents_eq!((ran.code, out(&ran.out)), (Some(0), out(&plain.out)), "{}\n{:#}", ran.err, stats.json);
    let (peak, paged) = (stats.number("/peak/total_bytes"), stats.number("/evictions/pages"));
    say(&format!("postgresql: budget {} MiB, peak {} MiB, {paged} pages evicted", budget / MIB, peak / MIB));
    assert!(paged > 500, "{:#}", stats.json);
}

/// The kernel does not wait for pages when it writes a core dump, so evicted pages are zeros there,
/// and memfit says so.
#[test]
fn core_dumps_are_told() {
    let Some(bench) = Bench::new("core_dumps", &["gcc"]) else { return };
    let Some(program) = bench.compile(&["gcc"], "abort", include_str!("../workloads/abort.c")) else { return };
    let line = "ulimit -c unlimited && exec ./abort";
    bench.plain(line);
    let cores = || {
        fs::read_dir(&bench.directory)
            .unwrap()
            .flatten()
            .filter(|f| f.file_name().to_string_lossy().starts_with("core"))
    };
    if cores().count() == 0 {
        return skip("core_dumps", "the kernel writes no core dumps into the directory of the program here");
    }
    cores().for_each(|core| fs::remove_file(core.path()).unwrap());
    let (ran, stats) = bench.managed(line, 24 * MIB);
    assert_eq!(ran.code, Some(128 + libc::SIGABRT), "{} {}", program.display(), ran.err);
    assert!(stats.number("/evictions/pages") > 1000, "{:#}", stats.json);
    let told = ran.err.starts_with("memfit: the core dump of process ") && ran.err.lines().count() == 1;
    assert!(told, "{}", ran.err);
    let core = cores().next().expect("a core dump");
    let bytes = core.metadata().unwrap().len();
    assert!(bytes < 200 << 20, "it has {bytes} bytes: mappings of memfit are in it");
    let dump = fs::read(core.path()).unwrap();
    // The program's bytes count up, modulo 251. A few differ at the beginning of each page.
    let is_whole = |page: &&[u8]| page[32..].windows(2).all(|b| b[1] == ((u16::from(b[0]) + 1) % 251) as u8);
    let (whole, empty) = (
        dump.chunks_exact(4096).filter(is_whole).count(),
        dump.chunks_exact(4096).filter(|p| p.iter().all(|&b| b == 0)).count(),
    );
    let pages = (48 * MIB / 4096) as usize;
    assert!(whole < pages - 1000 && whole + empty >= pages, "{whole} pages are whole, {empty} zeros");
}

/// Process ids of another namespace are those of other processes.
#[test]
fn proc_of_another_pid_namespace_is_refused() {
    let unshare = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--fork", "--pid"]).args(words).stdin(Stdio::null());
        command.output()
    };
    if !unshare(&["true"]).is_ok_and(|out| out.status.success()) {
        return skip("proc_of_another_pid_namespace", "no PID namespaces here; root can make them");
    }
    let memfit = memfit_command().get_program().to_str().unwrap().to_owned();
    let out = unshare(&[&memfit, "run", "true"]).unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("/proc: shows the processes of another PID namespace"), "{said}");
    assert!(said.contains("unshare --mount-proc"), "{said}");
}

/// Programs that give up rights or start in new namespaces are paged like others.
#[test]
fn rights_given_up_and_namespaces() {
    let Some(bench) = Bench::open_to_all("namespaces", &[PYTHON, "setpriv", "unshare"]) else { return };
    bench.file("blocks.py", BLOCKS);
    bench.file("big.py", include_str!("../workloads/big.py"));
    if memfit_os::process::effective_uid() != 0 {
        return skip("namespaces", "only root can make them, and give up rights");
    }
    let plain = bench.plain(&format!("{PYTHON} big.py 1 44 1"));
    let drop = "setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs";
    let ways = [
        drop,
        "unshare --mount --uts --ipc",
        "unshare --pid --fork --mount-proc",
        "unshare --user --map-root-user --pid --fork",
        "unshare --net",
        "setsid -w",
    ];
    for way in ways {
        // The kernel makes no user namespace for a program in a chroot.
        let allowed = Command::new("sh").args(["-c", &format!("{way} true")]).stdin(Stdio::null()).status();
        if !allowed.is_ok_and(|status| status.success()) {
            skip("namespaces", &format!("{way}: is not allowed here"));
            continue;
        }
        // Where the build is closed to others, so are these Python modules.
        let line = format!("{way} {PYTHON} -c 'import sys; sys.argv = [0, 1, 44, 1]; exec(sys.stdin.read())' < all.py");
        bench.file(
            "all.py",
            &format!(
                "{BLOCKS}\n{}",
                include_str!("../workloads/big.py").replace("import blocks", "blocks = sys.modules[__name__]")
            ),
        );
        let (ran, stats) = bench.managed(&line, 32 * MIB);
        let out = String::from_utf8_lossy(&ran.out);
        assert_contents!((ran.code, &ran.out) == (Some(0), &plain.out), "{way}: {out} {}", ran.err);
        let paged = stats.number("/evictions/pages");
        say(&format!("namespaces: {way}: {paged} pages evicted"));
        assert!(paged > 1000, "{way}: {:#}", stats.json);
    }
}
