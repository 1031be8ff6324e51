//! `memfit bg` and `memfit fg`: processes that leave memory as a whole, and come back.

use crate::support::cgroup::Cgroup;
use crate::support::contents::wrong;
use crate::support::stats::live;
use crate::support::terminal::Terminal;
use crate::support::tree::{eventually, Tree};
use crate::support::{memfit, memfit_command, skip, Bench, PYTHON};
use memfit_os::process::send_signal;
use memfit_os::procfs::RssReader;
use memfit_os::proctree;
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::Duration;

/// Size of the data that a program holds.
const MIB: u64 = 60;
/// What stays of a program: the stack, and pages that its threads and the kernel touch meanwhile.
const STAYS: u64 = 12 << 20;
/// Nothing is short of memory.
const BUDGET: &str = "1G";

/// A program that holds data, and waits to be told to verify them.
struct Held {
    bench: Bench,
    tree: Tree,
    pid: i32,
}

impl Held {
    fn start(bench: Option<Bench>, rounds: u32) -> Option<Held> {
        Held::start_with(bench, rounds, "", &[])
    }

    /// With injected faults of the swap tier, and options.
    fn start_with(bench: Option<Bench>, rounds: u32, faults: &str, options: &[&str]) -> Option<Held> {
        let bench = bench?;
        let command = bench.memfit();
        Some(Held::start_by(command, bench, rounds, faults, options))
    }

    /// `command` is memfit's command line up to its options. With injected faults the program rests
    /// for good: it would end if it touched a page that cannot be read.
    fn start_by(mut command: Command, bench: Bench, rounds: u32, faults: &str, options: &[&str]) -> Held {
        bench.file("blocks.py", include_str!("../workloads/blocks.py"));
        bench.file("held.py", include_str!("../workloads/held.py"));
        command.args(["run", "-q", "-m", BUDGET]).args(options);
        command.args(["--", PYTHON, "held.py", &MIB.to_string(), &rounds.to_string()]);
        let pause = if faults.is_empty() { "0.1" } else { "3600" };
        command.env("MEMFIT_SWAP_FAULTS", faults).env("PAUSE", pause);
        let tree = Tree::start(command, &bench.directory, true);
        eventually("the program has its data", || tree.text().contains("ready"));
        let pid = tree.members().command.expect("it waits").pid;
        eventually("it rests", || proctree::read_stat(pid).is_some_and(|stat| stat.state == 'S'));
        Held { bench, tree, pid }
    }

    /// What `memfit stat` says of it.
    fn row(&self) -> Value {
        row_of(self.tree.root(), self.pid).expect("it runs")
    }

    fn resident(&self) -> u64 {
        RssReader::open(self.pid).and_then(|rss| rss.read()).map_or(0, |rss| rss.anon)
    }

    /// Runs `memfit bg` or `memfit fg`; what it says.
    #[track_caller]
    fn tell(&self, what: &str) -> String {
        let out = self.bench.memfit().args(what.split(' ')).arg(self.pid.to_string()).output().unwrap();
        let text = [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert_eq!(out.status.code(), Some(0), "{what}: {text}{}", self.tree.errors());
        text
    }

    #[track_caller]
    fn leaves(&self) {
        let said = self.tell("bg");
        assert!(said.contains(" left in ") && said.contains("/s; "), "{said}");
        let stays = self.resident();
        assert!(stays < STAYS, "{stays} bytes stay: {said}");
    }

    #[track_caller]
    fn comes_back(&self) {
        let said = self.tell("fg");
        assert!(said.contains(" came back in ") && !said.contains("no room"), "{said}");
        let resident = self.resident();
        assert!(resident > MIB << 20, "{resident} bytes came back: {said}");
    }

    /// Has it verify its data.
    #[track_caller]
    fn is_right(&self, round: u32) {
        fs::write(self.bench.directory.join(format!("go{round}")), "").unwrap();
        let said = format!("round {round} ");
        eventually("it has verified its data", || self.tree.text().contains(&said));
        let text = self.tree.text();
        if !text.contains(&format!("{said}right")) {
            wrong(&text);
        }
    }

    #[track_caller]
    fn ends(mut self) {
        assert_eq!((self.tree.wait(), self.tree.errors().as_str()), (0, ""));
    }
}

/// What a run says of one of its processes.
fn row_of(root: i32, pid: i32) -> Option<Value> {
    live(memfit_command(), root)?["processes"].as_array()?.iter().find(|row| row["pid"] == pid).cloned()
}

#[test]
fn a_process_leaves_and_comes_back() {
    let Some(held) = Held::start(Bench::new("background", &[PYTHON]), 3) else { return };
    held.leaves();
    assert_eq!(held.row()["background"], true);
    held.comes_back();
    assert_eq!(held.row()["background"], false);
    let tree = live(memfit_command(), held.tree.root()).expect("it runs");
    let count = |key: &str| tree["faults"][key].as_u64().unwrap();
    let of_processes: u64 =
        tree["processes"].as_array().unwrap().iter().map(|row| row["faults"].as_u64().unwrap()).sum();
    assert!(count("total") <= of_processes && count("brought_pages") > MIB << 8, "{of_processes}: {tree:#}");
    let faults = held.row()["faults"].as_u64();
    held.is_right(0);
    let since = held.row()["faults"].as_u64().unwrap() - faults.unwrap();
    assert!(since < 500, "{since} faults: its pages had come back");
    held.leaves();
    // What is not told to come back comes when it is touched.
    held.is_right(1);
    // From the second time on, a part stays outside, to see whether it is used.
    held.leaves();
    let said = held.tell("fg");
    assert!(said.contains(" stay outside as a trial and come when they are touched"), "{said}");
    let resident = held.resident();
    assert!(resident > MIB << 19 && resident < (MIB * 15) << 16, "{resident} bytes came back: {said}");
    held.is_right(2);
    held.ends();
}

/// Its next program, of which the pager hears anew, is in the background as well.
#[test]
fn a_process_stays_in_the_background_over_an_exec() {
    let Some(bench) = Bench::new("background_exec", &[PYTHON]) else { return };
    bench.file("blocks.py", include_str!("../workloads/blocks.py"));
    bench.file("held.py", include_str!("../workloads/held.py"));
    let mut command = bench.memfit();
    let line = format!("echo waits; until test -e exec; do sleep 0.02; done; exec {PYTHON} held.py 1 1");
    command.args(["run", "-q", "-m", BUDGET, "--", "sh", "-c", &line]).env("PAUSE", "0.1");
    let tree = Tree::start(command, &bench.directory, true);
    eventually("it waits", || tree.text().contains("waits"));
    let pid = tree.members().command.expect("it waits").pid;
    let held = Held { bench, tree, pid };
    held.tell("bg -w");
    assert_eq!(held.row()["background"], true);
    fs::write(held.bench.directory.join("exec"), "").unwrap();
    eventually("the next program runs", || held.tree.text().contains("ready"));
    eventually("it is in the background", || {
        row_of(held.tree.root(), pid).is_some_and(|row| row["comm"] == "python3" && row["background"] == true)
    });
    held.is_right(0);
    held.ends();
}

/// `memfit stat` names a tree by the process of `memfit run`, whose descendants are the programs.
#[test]
fn a_tree_is_named_by_its_run() {
    let Some(held) = Held::start(Bench::new("background_run", &[PYTHON]), 1) else { return };
    let tell = |words: &[&str]| {
        let root = held.tree.root().to_string();
        let out = held.bench.memfit().args(words).arg(root).output().unwrap();
        (out.status.code(), [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat())
    };
    let (code, said) = tell(&["bg"]);
    assert!(code == Some(1) && said.contains("this is memfit run itself; name one of its processes"), "{said}");
    let (code, said) = tell(&["bg", "-c"]);
    assert!(
        code == Some(0) && said.contains(&format!("{} (python3): ", held.pid)) && said.contains(" left in "),
        "{said}"
    );
    let (code, said) = tell(&["fg", "-c"]);
    assert!(code == Some(0) && said.contains(" came back in "), "{said}");
    held.is_right(0);
    held.ends();
}

#[test]
fn a_process_of_an_ordinary_user() {
    let Some(held) = Held::start(Bench::ordinary("background_ordinary", &[PYTHON]), 1) else { return };
    held.leaves();
    held.comes_back();
    held.leaves();
    held.is_right(0);
    held.ends();
}

/// Its stub can do nothing then: the pager lets it run alone.
#[test]
fn a_stopped_process_leaves() {
    let Some(held) = Held::start(Bench::new("background_stopped", &[PYTHON]), 1) else { return };
    held.leaves();
    held.comes_back();
    let stopped = || proctree::read_stat(held.pid).is_some_and(|stat| stat.state == 'T');
    send_signal(held.pid, libc::SIGSTOP, None).unwrap();
    eventually("it is stopped", stopped);
    held.leaves();
    assert!(stopped());
    send_signal(held.pid, libc::SIGCONT, None).unwrap();
    held.is_right(0);
    held.ends();
}

/// Nobody waits for the pages that come back. Those that cannot be read stay where they are.
#[test]
fn pages_that_cannot_be_read_do_not_end_the_process() {
    let bench = Bench::new("background_unread", &[PYTHON]);
    // The pool would keep some of these pages.
    let options = ["--set", "admission.raw_percent=0"];
    let Some(held) = Held::start_with(bench, 1, "seed=5,read-eio=1000", &options) else { return };
    if !cfg!(debug_assertions) {
        return skip(&held.bench.name, "only debug builds inject faults");
    }
    held.leaves();
    let swapped = || live(memfit_command(), held.tree.root()).and_then(|tree| tree["now"]["swap_bytes"].as_u64());
    assert!(swapped() > Some(0), "blocks that do not compress are in the swap tier: {:?}", swapped());
    held.tell("fg");
    let resident = held.resident();
    assert!(resident > MIB << 19, "the others have come back: {resident} bytes");
    assert!(proctree::read_stat(held.pid).is_some_and(|stat| !stat.is_dead()), "{}", held.tree.errors());
    assert!(swapped() > Some(0), "the pages are still there");
}

#[test]
fn processes_that_cannot_be_told() {
    let Some(held) = Held::start(Bench::new("background_others", &[PYTHON]), 1) else { return };
    let (pid, own) = (held.pid.to_string(), std::process::id().to_string());
    let out = held.bench.memfit().args(["bg", &own, &pid]).output().unwrap();
    let (said, error) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(1));
    assert!(said.contains(" left in "), "the other one leaves all the same: {said}");
    assert!(error.starts_with(&format!("memfit: process {own}: no tree of yours has it")), "{error}");
    held.is_right(0);
    held.ends();
}

#[test]
fn an_idle_process_is_in_the_background_until_it_runs() {
    let bench = Bench::new("background_idle", &[PYTHON]);
    let Some(held) = Held::start_with(bench, 2, "", &["--background", "idle=1"]) else { return };
    for round in 0..2 {
        eventually("it is idle", || held.row()["background"] == true);
        if round == 0 {
            held.is_right(0);
            eventually("it has run", || held.row()["background"] == false);
        }
    }
    // What is said by name holds.
    held.tell("fg");
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(held.row()["background"], false);
    held.is_right(1);
    held.ends();
}

/// A shell with job control in a terminal of its own.
#[test]
fn jobs_are_in_the_background_as_the_shell_says() {
    let Some(bench) = Bench::new("background_jobs", &[PYTHON, "bash"]) else { return };
    let mut terminal = match Terminal::open() {
        Ok(terminal) => terminal,
        Err(why) => return skip(&bench.name, &why),
    };
    bench.file("blocks.py", include_str!("../workloads/blocks.py"));
    bench.file("held.py", include_str!("../workloads/held.py"));
    let mut command = bench.memfit();
    command.args(["run", "-q", "-m", BUDGET, "--background", "jobs", "--", "bash", "--norc", "-i"]);
    command.env("TERM", "dumb");
    terminal.give_to(&mut command);
    let mut tree = Tree::start(command, &bench.directory, false);
    let held = format!("{PYTHON} held.py {MIB} 1");
    terminal.press(&format!("{held} & echo $! > held.pid\n"));
    eventually("the job has its data", || terminal.text().contains("ready"));
    let pid = fs::read_to_string(bench.directory.join("held.pid")).unwrap().trim().parse().unwrap();
    let standing = |tree: &Tree| row_of(tree.root(), pid).map(|row| row["background"] == true);
    eventually("the job is in the background", || standing(&tree) == Some(true));
    terminal.press("fg\n");
    eventually("the job is in the foreground", || standing(&tree) == Some(false));
    fs::write(bench.directory.join("go0"), "").unwrap();
    eventually("it has verified its data", || terminal.text().contains("round 0 "));
    if !terminal.text().contains("round 0 right") {
        wrong(&terminal.text());
    }
    terminal.press("exit\n");
    assert_eq!(tree.wait(), 0, "{}", terminal.text());
}

/// A shell in a shell gives the terminal to what it runs, and waits for it.
#[test]
fn who_waits_for_the_foreground_is_no_background_job() {
    let Some(bench) = Bench::new("background_nested", &[PYTHON, "bash"]) else { return };
    let mut terminal = match Terminal::open() {
        Ok(terminal) => terminal,
        Err(why) => return skip(&bench.name, &why),
    };
    // It has a child in a process group of its own, as the only job in the background.
    bench.file("job.py", include_str!("../workloads/job.py"));
    let mut command = bench.memfit();
    command.args(["run", "-q", "-m", BUDGET, "--background", "jobs", "--", "bash", "--norc", "-i"]);
    command.env("TERM", "dumb");
    terminal.give_to(&mut command);
    let mut tree = Tree::start(command, &bench.directory, false);
    terminal.press("bash --norc -i\n");
    terminal.press(&format!("echo $$ > shell; {PYTHON} job.py\n"));
    let read = |name: &str| fs::read_to_string(bench.directory.join(name)).ok()?.trim().parse().ok();
    eventually("all run", || read("shell").is_some() && read("child").is_some());
    let is_job = |name: &str| row_of(tree.root(), read(name).unwrap()).map(|row| row["background"] == true);
    eventually("the child is in the background", || is_job("child") == Some(true));
    assert_eq!(is_job("shell"), Some(false), "{}", terminal.text());
    fs::write(bench.directory.join("go"), "").unwrap();
    eventually("it has ended", || terminal.text().contains("job ends"));
    terminal.press("exit\nexit\n");
    assert_eq!(tree.wait(), 0, "{}", terminal.text());
}

/// Three processes that do not fit into memory together. The second one is in the background: the
/// pages of the first are older, and stay all the same.
#[test]
fn when_memory_is_short_the_background_leaves_first() {
    let Some(bench) = Bench::new("background_short", &[PYTHON]) else { return };
    bench.file("blocks.py", include_str!("../workloads/blocks.py"));
    bench.file("held.py", include_str!("../workloads/held.py"));
    let start = |name: &str, mib: u32| format!("{PYTHON} held.py {mib} 1 > {name}.out & echo $! > {name}.pid");
    let wait = |name: &str| format!("while [ ! -e {name} ]; do sleep 0.05; done");
    let steps = [
        start("first", 45),
        wait("second"),
        start("background", 45),
        wait("third"),
        start("last", 55),
        "wait".to_owned(),
    ];
    let mut command = bench.memfit();
    command.args(["run", "-q", "-m", "150M", "--", "sh", "-c", &steps.join("; ").replace("&;", "&")]);
    let mut tree = Tree::start(command, &bench.directory, true);
    let read = |name: &str| fs::read_to_string(bench.directory.join(name)).unwrap_or_default();
    let touch = |name: &str| fs::write(bench.directory.join(name), "").unwrap();
    let ready = |name: &str| eventually(name, || read(&format!("{name}.out")).contains("ready"));
    let resident = |name: &str| {
        let pid = read(&format!("{name}.pid")).trim().parse().unwrap();
        RssReader::open(pid).and_then(|rss| rss.read()).map_or(0, |rss| rss.anon)
    };
    ready("first");
    touch("second");
    ready("background");
    let out = bench.memfit().args(["bg", "--when-short", read("background.pid").trim()]).output().unwrap();
    assert!(String::from_utf8_lossy(&out.stdout).contains("leaves when memory is short"), "{out:?}");
    assert!(resident("background") > 45 << 20, "memory is not short yet");
    touch("third");
    ready("last");
    eventually("the background has left", || resident("background") < STAYS);
    // Some of its pages leave before the background begins to.
    assert!(resident("first") > 24 << 20, "{} of the first stay", resident("first"));
    touch("go0");
    assert_eq!((tree.wait(), tree.errors().as_str()), (0, ""));
    for name in ["first", "background", "last"] {
        let said = read(&format!("{name}.out"));
        if !said.contains("round 0 right") {
            wrong(&said);
        }
    }
}

/// All of a tree is told again and again while it works and its memory changes.
#[test]
fn processes_that_work_leave_and_come_back() {
    let Some(bench) = Bench::new("background_work", &[]) else { return };
    let torture = memfit().with_file_name("memfit-torture");
    if !torture.is_file() {
        return skip(&bench.name, "memfit-torture is not built");
    }
    let line = format!(
        "{} --threads 2 --processes 2 --size 32M --ops 30000 --verify-all-at-end --stall 120 --seed 606 --dir {}; exit $?",
        torture.display(),
        bench.directory.display()
    );
    let mut command = memfit_command();
    command.args(["run", "-q", "-m", "256M", "--", "sh", "-c", &line]);
    let mut tree = Tree::start(command, &bench.directory, true);
    let (mut told, mut turn, mut said) = (0, 0, String::new());
    while tree.code().is_none() {
        let Some(command) = tree.members().command else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        let mut memfit = memfit_command();
        memfit.args([["bg", "fg"][turn % 2], "--children", &command.pid.to_string()]);
        turn += 1;
        // Some of them may have ended by now.
        let out = memfit.output().unwrap();
        said = [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        told += said.matches(" left in ").count();
    }
    if tree.code() != Some(0) {
        wrong(&format!("{:?}: {}{}", tree.code(), tree.text(), tree.errors()));
    }
    assert!(told > 0, "{told} have left in {turn} turns: {said}");
}

/// Memory that others in the control group share, and the size of the file that one of them writes.
const SHARED: u64 = 120 << 20;
const WRITTEN_MIB: u64 = 180;

/// The budget has room.
#[test]
fn a_background_process_leaves_when_others_lack_memory() {
    let Some(bench) = Bench::new("bg_pressure", &[PYTHON]) else { return };
    let groups = match Cgroup::of_memory(SHARED).and_then(|limited| {
        // On a hybrid system the limit is in another hierarchy than the count.
        let counted = if limited.is_of_version_2() { None } else { Some(Cgroup::of_pressure()?) };
        Ok([Some(limited), counted])
    }) {
        Ok(groups) => groups,
        Err(reason) => return skip(&bench.name, &reason),
    };
    // A shell that joins all groups.
    let shell = || {
        let mut joined = Command::new("env");
        for group in groups.iter().flatten() {
            let shell = group.shell();
            joined.arg(shell.get_program()).args(shell.get_args());
        }
        joined
    };
    bench.file("file_writer.py", include_str!("../workloads/file_writer.py"));
    let mut command = shell();
    command.arg(memfit());
    let mut held = Held::start_by(command, bench, 1, "", &[]);
    assert!(held.tell("bg -w").contains("leaves when memory is short"));
    let mut command = shell();
    let file = held.bench.directory.join("written");
    command.args([PYTHON, "file_writer.py"]).arg(&file).arg(WRITTEN_MIB.to_string());
    let others = Tree::start_in(command, &held.bench.directory);
    eventually("it leaves", || held.resident() < MIB << 19);
    drop(others);
    held.is_right(0);
    assert_eq!(held.tree.wait(), 0);
    let said = held.tree.errors();
    let wanted = [
        "memory is short in the control group: tasks waited for it ",
        &format!("({}), in the background, leaves", held.pid),
    ];
    assert!(wanted.iter().all(|words| said.contains(words)), "{said}");
}
