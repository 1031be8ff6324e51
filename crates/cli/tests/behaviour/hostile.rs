//! Hostile processes: other users of the machine, and programs of the tree.

use crate::support::cgroup::Cgroup;
use crate::support::contents::assert_contents_eq;
use crate::support::known::{ordinary_program, program, same, BUDGET};
use crate::support::tree::{eventually, Tree};
use crate::support::{memfit, memfit_command, skip, Bench, FORKS};
use memfit_os::capability::{CAP_SYS_ADMIN, CAP_SYS_PTRACE};
use memfit_os::proctree;
use memfit_wire::{SOCKET_VARIABLE, START_PREFIX};
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Waits for `go`, then fills twice the budget and checks it.
const SCRIPT: &str =
    "echo $MEMFIT_SOCKET > new; mv new socket; until test -e go; do sleep 0.02; done; exec ./worked 60 12";

/// Forks as many children as its argument says, all at once.
const MANY: &str = include_str!("../workloads/many_children.c");

/// Descriptors that the script's process and one more may take meanwhile.
const PAGED: usize = 14;

struct Run {
    bench: Bench,
    tree: Tree,
    socket: String,
    pager: i32,
}

/// A run that waits for `go`. `before`: shell code that comes first.
fn begin(bench: Bench, before: &str) -> Option<Run> {
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    bench.compile(&["gcc"], "worked", include_str!("../workloads/checked.c"))?;
    bench.compile(&["gcc"], "knocks", include_str!("../workloads/knocks.c"))?;
    let memfit = memfit_command().get_program().to_str().unwrap().to_owned();
    let budget = BUDGET.to_string();
    let mut command = Command::new("sh");
    let line = format!("{before} exec {memfit} run -q -m {budget} --stats stats.json -- sh -c '{SCRIPT}'");
    command.args(["-c", &line]);
    let tree = Tree::start(command, &bench.directory, true);
    eventually("the tree's socket", || bench.directory.join("socket").exists());
    let socket = fs::read_to_string(bench.directory.join("socket")).unwrap().trim().to_owned();
    let pager = tree.members().pager.expect("the pager runs").pid;
    Some(Run { bench, tree, socket, pager })
}

impl Run {
    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pager)).unwrap().count()
    }

    /// Connects `count` times, and stays connected until [`end`].
    fn knock(&self, uid: Option<u32>, count: u32, fds: u32) -> (Child, String) {
        self.knock_at(&self.socket, uid, count, fds)
    }

    fn knock_at(&self, socket: &str, uid: Option<u32>, count: u32, fds: u32) -> (Child, String) {
        let mut command = Command::new(self.bench.directory.join("knocks"));
        command.args([socket, &count.to_string(), &fds.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        uid.into_iter().for_each(|uid| _ = command.uid(uid));
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        let out = child.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut said).unwrap();
        (child, said)
    }

    /// Asserts that the program does its work all the same.
    fn ends_well(mut self, words: &[&str]) {
        self.bench.file("go", "");
        assert_eq!(self.tree.wait(), 0, "{}", self.tree.errors());
        assert_contents_eq!(self.tree.text(), "wrong: 0\n", "{}", self.tree.errors());
        let stats: serde_json::Value =
            serde_json::from_slice(&fs::read(self.bench.directory.join("stats.json")).unwrap()).unwrap();
        assert!(stats["evictions"]["pages"].as_u64().unwrap() > 2000, "{stats:#}");
        let said = self.tree.errors();
        assert!(said.is_empty() || words.contains(&&*said), "{said}\n{stats:#}");
    }
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn another_user_cannot_take_the_pagers_descriptors() {
    if memfit_os::process::effective_uid() != 0 {
        return skip("another_user_cannot_take_the_pagers_descriptors", "only root can become another user");
    }
    let Some(run) = Bench::open_to_all("knocks_of_another", &["gcc"]).and_then(|bench| begin(bench, "")) else {
        return;
    };
    let before = run.descriptors();
    for fds in [0, 2, 20] {
        let (child, said) = run.knock(Some(65534), 400, fds);
        assert_eq!(said, "connected 400\n");
        // The pager keeps none of these connections, and no descriptor that came with them.
        eventually("the descriptors are closed", || run.descriptors() <= before + PAGED);
        end(child);
    }
    let (child, said) = run.knock_at(&format!("{START_PREFIX}{}", run.socket), Some(65534), 400, 2);
    assert_eq!(said, "connected 400\n");
    eventually("the descriptors of the start socket are closed", || run.descriptors() <= before + PAGED);
    end(child);
    run.ends_well(&[]);
}

/// The right to see physical addresses would go to the stubs, which other users may control.
#[test]
fn the_pager_cannot_see_physical_addresses() {
    if !memfit_os::capability::has(CAP_SYS_PTRACE) {
        return skip("the_pager_cannot_see_physical_addresses", "without CAP_SYS_PTRACE it keeps CAP_SYS_ADMIN");
    }
    let Some(run) = Bench::new("no_admin", &["gcc"]).and_then(|bench| begin(bench, "")) else { return };
    let threads: Vec<_> = fs::read_dir(format!("/proc/{}/task", run.pager)).unwrap().map(|t| t.unwrap()).collect();
    // The first thread only waits for the others.
    let others = threads.iter().filter(|thread| *thread.file_name() != *run.pager.to_string());
    assert!(others.clone().count() >= 3);
    for status in others.map(|thread| fs::read_to_string(thread.path().join("status")).unwrap()) {
        for set in ["CapEff:", "CapPrm:"] {
            let line = status.lines().find_map(|line| line.strip_prefix(set)).unwrap();
            let set = u64::from_str_radix(line.trim(), 16).unwrap();
            assert_eq!(set >> CAP_SYS_ADMIN & 1, 0, "{status}");
        }
    }
    run.ends_well(&[]);
}

/// Binds a name, and prints how many bytes a stub sends.
const LISTENS: &str = "import socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind('\\0' + sys.argv[1])
listener.listen()
print('listens', flush=True)
print(len(listener.accept()[0].recv(4096)), flush=True)
";

/// The pager has ended, and another user has bound its name: programs that know the name tell that
/// user nothing.
#[test]
fn a_stub_obeys_no_listener_of_another_user() {
    if memfit_os::process::effective_uid() != 0 {
        return skip("a_stub_obeys_no_listener_of_another_user", "only root can become another user");
    }
    let Some(bench) = Bench::open_to_all("listener_of_another", &["python3"]) else { return };
    for (uid, believed) in [(65534, false), (0, true)] {
        let name = format!("memfit-test-{}-{uid}", std::process::id());
        let mut listener = Command::new("/usr/bin/python3");
        listener.args(["-c", LISTENS, &name]).uid(uid).stdout(Stdio::piped());
        let mut listener = listener.spawn().unwrap();
        let mut said = std::io::BufReader::new(listener.stdout.take().unwrap());
        let mut line = || {
            let mut line = String::new();
            std::io::BufRead::read_line(&mut said, &mut line).unwrap();
            line
        };
        assert_eq!(line(), "listens\n");
        let mut program = Command::new("sleep");
        program.arg("60").current_dir(&bench.directory);
        program.env("LD_PRELOAD", memfit().with_file_name("libmemfit.so")).env(SOCKET_VARIABLE, &name);
        let mut program = program.spawn().unwrap();
        let bytes: usize = line().trim().parse().unwrap();
        assert_eq!(bytes > 0, believed, "the listener of user {uid} got {bytes} bytes");
        program.kill().unwrap();
        program.wait().unwrap();
        listener.wait().unwrap();
    }
}

#[test]
fn connections_of_the_own_user_are_bounded() {
    let Some(run) = Bench::new("knocks_of_its_own", &["gcc"]).and_then(|bench| begin(bench, "")) else { return };
    let before = run.descriptors();
    let (child, said) = run.knock(None, 400, 0);
    assert_eq!(said, "connected 400\n");
    eventually("some are accepted", || run.descriptors() > before + 100);
    assert!(run.descriptors() < before + 300, "{} descriptors more", run.descriptors() - before);
    end(child);
    // Until then the pager may refuse the program as well.
    eventually("they are given back", || run.descriptors() <= before + PAGED);
    run.ends_well(&[]);
}

/// The pager neither fails nor spins, and goes on when descriptors are free again.
#[test]
fn a_pager_without_a_descriptor_left_waits() {
    let Some(run) = Bench::new("knocks_with_few", &["gcc"]).and_then(|bench| begin(bench, "ulimit -n 64 &&")) else {
        return;
    };
    let before = run.descriptors();
    let (child, said) = run.knock(None, 400, 0);
    assert!(said.starts_with("connected"), "{said}");
    eventually("there is no room for more", || run.descriptors() > before + 3);
    let ticks = || memfit_os::procfs::user_ticks(run.pager, run.pager).unwrap();
    let (start, used) = (std::time::Instant::now(), ticks());
    eventually("a second goes by", || start.elapsed().as_secs() >= 1);
    // A second has a hundred ticks.
    assert!(ticks() - used < 50, "its control thread turned for {} ticks of a second", ticks() - used);
    end(child);
    eventually("they are given back", || run.descriptors() <= before + PAGED);
    assert!(proctree::read_stat(run.pager).is_some_and(|pager| !pager.is_dead()));
    // The pager may have refused some of the script's own processes as well.
    let words =
        "memfit: not paged, but counted: processes for which the pager has no descriptor left: raise ulimit -n\n";
    run.ends_well(&[words]);
}

/// The parent goes on, and so do the children for which there was room; none reads a wrong byte.
#[test]
fn fork_children_for_whom_there_is_no_descriptor_die_alone() {
    let Some(bench) = program("many_children", MANY) else { return };
    for limit in [70, 200] {
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {limit}; exec \"$@\"");
        command.args(["-c", &script, "sh", memfit().to_str().unwrap(), "run"]);
        let (ran, stats) = bench.managed_by(command, "exec ./program 30", BUDGET);
        assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"wrong: 0\n"[..]), "{}\n{:#}", ran.err, stats.json);
        assert!(ran.err.contains("a fork child: ") && ran.err.contains("no descriptor left"), "{}", ran.err);
    }
    // With descriptors for all no child dies. What they share exceeds the budget, and no process
    // waits for ever.
    let (ran, stats) = bench.managed("./program 30", BUDGET);
    assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"wrong: 0\n"[..]), "{}\n{:#}", ran.err, stats.json);
    assert!(ran.err.contains("killed: 0, not forked: 0"), "{}", ran.err);
}

/// With a limit of tasks the pager lacks threads, and the kernel some for writes to the swap tier.
#[test]
fn fork_children_for_whom_there_is_no_thread_die_alone() {
    let Some(bench) = program("many_tasks", MANY) else { return };
    // The first one leaves room for the program's fault thread and little more.
    for limit in [16, 30, 45, 70] {
        let group = match Cgroup::of_tasks(limit) {
            Ok(group) => group,
            Err(why) => return skip("fork_children_for_whom_there_is_no_thread_die_alone", &why),
        };
        let mut command = group.command(&memfit());
        command.arg("run");
        let (ran, stats) = bench.managed_by(command, "exec ./program 30", BUDGET);
        assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"wrong: 0\n"[..]), "{}\n{:#}", ran.err, stats.json);
        assert!(group.tasks_refused() > 0, "the limit of {limit} was not met\n{}", ran.err);
        let mut killed = ran.err.lines().filter(|line| line.contains("killed process"));
        assert!(killed.all(|line| line.contains("cannot start a thread")), "{}", ran.err);
        assert!(!ran.err.contains("swap tier"), "{}", ran.err);
    }
}

/// A fork of a process with a userfaultfd waits until somebody has read its event. A process
/// without a fault thread can fork all the same.
#[test]
fn a_process_for_which_there_is_no_thread_runs_alone() {
    const LINE: &str = "mkfifo go; : >ready; read line <go; exec ./program fill wait check fork check";
    let Some(bench) = program("no_fault_thread", include_str!("../workloads/filtered.c")) else { return };
    let [go, ready] = ["go", "ready"].map(|name| bench.directory.join(name));
    // With room for three threads there are successors of two that have its stub thread made, and
    // that one.
    for room in 1..9 {
        let group = match Cgroup::of_tasks(1000) {
            Ok(group) => group,
            Err(why) => return skip("a_process_for_which_there_is_no_thread_runs_alone", &why),
        };
        for file in [&go, &ready] {
            let _ = fs::remove_file(file);
        }
        let mut command = group.command(&memfit());
        command.args(["run", "-q", "-m", "32M", "--", "sh", "-c", LINE]);
        let mut tree = Tree::start(command, &bench.directory, true);
        eventually("the program waits", || ready.exists());
        eventually("all threads of the pager have begun", || {
            let tasks = group.tasks();
            (0..10).all(|_| {
                std::thread::sleep(Duration::from_millis(10));
                group.tasks() == tasks
            })
        });
        group.allow_tasks(group.tasks() + room).unwrap();
        // Once the program reads from it.
        let open = || fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&go);
        eventually("the program is told", || open().and_then(|mut go| go.write_all(b"go\n")).is_ok());
        // Where nothing is left for its child, the program fails.
        if tree.wait() == 0 {
            assert_contents_eq!(tree.text(), "wrong: 0\nchild: 0\nwrong: 0\n", "{}", tree.errors());
            if tree.errors().contains("cannot be paged: the pager cannot start a thread") {
                return assert_eq!(tree.errors().lines().count(), 1, "{}", tree.errors());
            }
        }
    }
    panic!("no process lacked a fault thread");
}

/// Without fork events a child cannot be served without a thread of its own.
#[test]
fn fork_children_that_get_no_thread_die_alone() {
    let Some(bench) = ordinary_program("many_threads", MANY) else { return };
    // A served child takes three tasks: itself, its stub's, and the pager's for it. So one of a few
    // limits leaves room for the first alone.
    for limit in 20..30 {
        let group = match Cgroup::of_tasks(limit) {
            Ok(group) => group,
            Err(why) => return skip("fork_children_that_get_no_thread_die_alone", &why),
        };
        let (mut command, user) = (group.shell(), bench.memfit());
        command.arg(user.get_program()).args(user.get_args()).arg("run");
        let (ran, stats) = bench.managed_by(command, "exec ./program 30", BUDGET);
        assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"wrong: 0\n"[..]), "{}\n{:#}", ran.err, stats.json);
        assert!(group.tasks_refused() > 0, "the limit of {limit} was not met\n{}", ran.err);
        let killed = ran.err.matches("killed process").count();
        assert!(ran.err.contains(&format!("killed: {killed}, ")), "each of them is named\n{}", ran.err);
        if ran.err.contains("no thread for memfit in it") {
            return;
        }
    }
    panic!("no child lacked a thread of its own");
}

/// A userfaultfd gives access to all of a process's memory.
#[test]
fn a_process_cannot_take_the_userfaultfd_of_another() {
    let Some(bench) = program("thief", include_str!("../workloads/thief.c")) else { return };
    same(&bench, &format!("./program {} {}", memfit_wire::MAGIC, memfit_wire::VERSION), FORKS);
}

/// A process hands its connection to the pager to another one, and runs another program by then:
/// perhaps one with more rights.
#[test]
fn a_process_cannot_stand_for_another_program() {
    let Some(bench) = program("impostor", include_str!("../workloads/impostor.c")) else { return };
    let line = format!("env -u LD_PRELOAD ./program {} {}; wait", memfit_wire::MAGIC, memfit_wire::VERSION);
    let (ran, _) = bench.managed(&line, 64 << 20);
    let out = String::from_utf8_lossy(&ran.out).into_owned();
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_contents_eq!((ran.code, &*lines), (Some(0), &["lent: 0", "lives"][..]), "{}", ran.err);
    assert!(ran.err.contains("its userfaultfd is that of another process"), "{}", ran.err);
}
