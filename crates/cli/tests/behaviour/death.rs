//! Deaths leave no process and no trace. The tests kill pager, launcher and programs at any moment
//! and in any order; terminals, signals and `timeout` do what they do without memfit.
//!
//! `MEMFIT_DEATH_TRIALS` and `MEMFIT_DEATH_SEED` set how many times processes are killed, and when.

use crate::support::contents::{assert_contents, assert_contents_eq};
use crate::support::terminal::Terminal;
use crate::support::tree::{eventually, Members, Traces, Tree};
use crate::support::{memfit, memfit_command, say, sized, skip, Bench};
use memfit_os::process::send_signal;
use memfit_os::proctree::{kill_exactly, read_stat};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

const FULL: &str = "both are full";
const RIGHT: &str = "all pages are right";
/// In the gate, and in `make soak`.
const TRIALS: [u64; 2] = [24, 120];
const FORK_TRIALS: [u64; 2] = [12, 60];
/// Each of two processes fills 40 MB, in a budget of 32 MiB.
const RUN: [&str; 4] = ["run", "-q", "-m", "32M"];

fn bench(name: &str, programs: &[&str]) -> Option<Bench> {
    let bench = Bench::new(name, &[&["gcc"], programs].concat())?;
    bench.compile(&["gcc"], "touch", include_str!("../workloads/touch.c"))?;
    // These files are there before and after the run.
    bench.file("out", "");
    bench.file("err", "");
    Some(bench)
}

fn under_memfit(words: &[&str]) -> Command {
    let mut command = memfit_command();
    command.args(RUN).arg("--").args(words);
    command
}

/// Splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Launcher,
    Pager,
    Command,
    Child,
}
use Who::{Child, Launcher, Pager};

/// All of them, in random order.
fn any_order(random: &mut Random) -> [Who; 4] {
    let mut order = [Launcher, Pager, Who::Command, Child];
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    order
}

/// Kills those that live, and returns them in that order.
fn kill(members: &Members, order: &[Who], random: &mut Random) -> Vec<Who> {
    let mut killed = Vec::new();
    for &who in order {
        let process = match who {
            Launcher => &members.launcher,
            Pager => &members.pager,
            Who::Command => &members.command,
            Child => &members.child,
        };
        if process.as_ref().is_some_and(kill_exactly) {
            killed.push(who);
        }
        std::thread::sleep(Duration::from_micros(random.below(5000)));
    }
    killed
}

/// Waits for a random moment at which to kill, and returns whether both processes are paged then
/// for sure.
fn wait_for_a_moment(tree: &Tree, random: &mut Random) -> (bool, String) {
    match random.below(4) {
        // While everything is being started.
        0 => {
            let delay = Duration::from_micros(random.below(60_000));
            std::thread::sleep(delay);
            (false, format!("after {delay:?}"))
        }
        1 => {
            let delay = Duration::from_millis(random.below(600));
            std::thread::sleep(delay);
            (false, format!("after {delay:?}"))
        }
        _ => {
            eventually("both processes are full", || tree.text().contains(FULL));
            let delay = Duration::from_millis(random.below(150));
            std::thread::sleep(delay);
            (true, format!("{delay:?} after both were full"))
        }
    }
}

/// Time from the last kill to the end of the last process; `None` if one lived on that nobody knew
/// yet.
fn trial(bench: &Bench, seed: u64) -> Option<Duration> {
    let mut random = Random(seed);
    let before = Traces::now(&bench.directory);
    let mut tree = Tree::start(under_memfit(&["./touch", "40"]), &bench.directory, true);
    let (paged, moment) = wait_for_a_moment(&tree, &mut random);
    let count = random.below(4) as usize + 1;
    let order = any_order(&mut random);
    let members = tree.members();
    let first = kill(&members, &order[..count], &mut random);
    let (launcher, pager) = (first.contains(&Launcher), first.contains(&Pager));
    let place = |who| first.iter().position(|killed| *killed == who).unwrap_or(usize::MAX);
    let command_first = place(Who::Command) < place(Launcher);
    let mut context = format!("seed {seed}: {moment} {first:?} of {members:#?} were killed");

    // By design parts of the tree live on here, and the rest is killed in a second round.
    let mut second = Vec::new();
    if !launcher && !pager {
        if command_first {
            assert_eq!(tree.wait(), 128 + 9, "{context}\n{}", tree.errors());
            second = vec![[Child, Pager][random.below(2) as usize], Child, Pager];
        } else {
            second = vec![[Launcher, Pager][random.below(2) as usize]];
        }
    } else if !pager && command_first {
        // The launcher may have ended normally before it was killed.
        second = vec![Pager];
    }
    if !second.is_empty() {
        let mut killed = Vec::new();
        eventually("somebody who can be killed", || {
            killed = kill(&tree.members(), &second, &mut random);
            !killed.is_empty() || tree.alive().is_empty()
        });
        context = format!("{context}\nthen {killed:?}");
        second = killed;
    }

    // A process that starts after pager and launcher have died finds neither. It has all its pages,
    // and lives on.
    let unknown = !paged && [&first[..], &second[..]].concat().contains(&Pager) && launcher;
    let time = match unknown {
        true => tree.wait_within(Duration::from_secs(10)),
        false => Some(tree.wait_for_all(&context)),
    };
    assert!(tree.alive().iter().all(|process| !process.comm.starts_with("memfit")), "{context}\n{:?}", tree.alive());
    let context = format!("{context}\nstandard error: {}", tree.errors());
    assert_contents!(!tree.text().contains("wrong"), "{}\n{context}", tree.text());
    let both = [first, second].concat();
    let killed = |who| both.contains(&who);
    if killed(Pager) && !killed(Launcher) && !killed(Who::Command) {
        assert_eq!(tree.wait(), 1, "{context}");
        assert!(tree.errors().contains("memfit: the pager died"), "{context}");
    }
    if killed(Launcher) && !killed(Pager) && !killed(Who::Command) && paged {
        assert!(tree.errors().contains("memfit: the launcher died"), "{context}");
    }
    let pids = [members.launcher, members.pager].into_iter().flatten().map(|process| process.pid);
    let pids: Vec<i32> = pids.chain([tree.root()]).collect();
    drop(tree);
    before.nothing_added(&bench.directory, &pids, &context);
    time
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

#[test]
fn kills_at_any_moment() {
    let Some(bench) = bench("kills_at_any_moment", &[]) else { return };
    let (trials, seed) = (number("MEMFIT_DEATH_TRIALS", sized(TRIALS[0], TRIALS[1])), number("MEMFIT_DEATH_SEED", 1));
    let start = std::time::Instant::now();
    let mut times: Vec<Duration> = (0..trials).filter_map(|i| trial(&bench, seed * 1_000_000 + i)).collect();
    let unknown = trials - times.len() as u64;
    times.sort_unstable();
    let at = |part: usize| times.get(times.len().saturating_sub(1) * part / 100).copied().unwrap_or_default();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    say(&format!(
        "{:24} {trials} trials in {:.0} s; the last process was gone {:.0} ms after the last kill (median; 95 %: {:.0}, \
         slowest: {:.0}); {unknown} times one lived on that had not been known",
        bench.name,
        start.elapsed().as_secs_f64(),
        ms(at(50)),
        ms(at(95)),
        ms(at(100)),
    ));
}

/// A fork child depends on its userfaultfd before its stub has said hello; at first only pager and
/// launcher hold the descriptor. Both die during forks, at the same moment for the children: the
/// launcher is stopped before the pager is killed.
#[test]
fn kills_in_the_middle_of_forks() {
    let Some(bench) = bench("kills_in_forks", &[]) else { return };
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    let Some(_) = bench.compile(&["gcc"], "forks", include_str!("../workloads/forks_forever.c")) else { return };
    let mut random = Random(number("MEMFIT_DEATH_SEED", 1));
    let trials = number("MEMFIT_DEATH_TRIALS", sized(FORK_TRIALS[0], FORK_TRIALS[1]));
    for trial in 0..trials {
        let mut tree = Tree::start(under_memfit(&["./forks", "40"]), &bench.directory, true);
        eventually("the parent is full", || tree.text().contains("full"));
        std::thread::sleep(Duration::from_micros(random.below(60_000)));
        let members = tree.members();
        let (Some(launcher), Some(pager)) = (&members.launcher, &members.pager) else { panic!("{members:#?}") };
        send_signal(launcher.pid, libc::SIGSTOP, None).unwrap();
        assert!(kill_exactly(pager));
        std::thread::sleep(Duration::from_micros(random.below(3000)));
        assert!(kill_exactly(launcher));
        let context = format!("trial {trial}\n{}", tree.errors());
        tree.wait_for_all(&context);
        assert_contents!(!tree.text().contains("wrong"), "{}\n{context}", tree.text());
    }
    say(&format!("{:24} {trials} trials", bench.name));
}

/// Runs a program that is paged all the time to its end in the given way, and checks that nothing
/// is left.
fn ends(bench: &Bench, what: &str, command: Command, act: impl FnOnce(&mut Tree), code: i32, out: &str) {
    let before = Traces::now(&bench.directory);
    let mut tree = Tree::start(command, &bench.directory, true);
    act(&mut tree);
    assert_eq!(tree.wait(), code, "{what}: {}\n{}", tree.text(), tree.errors());
    tree.wait_for_all(what);
    assert_contents!(!tree.text().contains("wrong"), "{what}: {}", tree.text());
    assert!(tree.text().contains(out), "{what}: {}", tree.text());
    assert!(!tree.errors().contains("died"), "{what}: {}", tree.errors());
    let root = tree.root();
    drop(tree);
    before.nothing_added(&bench.directory, &[root], what);
}

#[test]
fn termination_reaches_the_command() {
    let Some(bench) = bench("termination", &[]) else { return };
    let act = |tree: &mut Tree| {
        eventually("both processes are full", || tree.text().contains(FULL));
        send_signal(tree.root(), libc::SIGTERM, None).unwrap();
    };
    ends(&bench, "SIGTERM to the launcher", under_memfit(&["./touch", "40", "term"]), act, 7, RIGHT);
}

#[test]
fn timeout_outside_and_inside() {
    let Some(bench) = bench("timeout", &["timeout"]) else { return };
    let outside = |options: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(options).arg(memfit()).args(RUN).args(["--", "./touch", "40"]);
        command
    };
    ends(&bench, "timeout memfit run", outside(&["1"]), |_| {}, 124, "");
    ends(&bench, "memfit run timeout", under_memfit(&["timeout", "1", "./touch", "40"]), |_| {}, 124, "");
}

/// A terminal with a program in it; `None`, with a report, where there are no terminals.
fn in_terminal(bench: &Bench, mut command: Command) -> Option<(Terminal, Tree)> {
    let mut terminal = match Terminal::open() {
        Ok(terminal) => terminal,
        Err(reason) => {
            skip(&bench.name, &reason);
            return None;
        }
    };
    command.env("TERM", "dumb").env("PS1", "$ ").env_remove("PROMPT_COMMAND").env_remove("HISTFILE");
    terminal.give_to(&mut command);
    let tree = Tree::start(command, &bench.directory, false);
    Some((terminal, tree))
}

fn interactive_shell() -> Command {
    let mut command = Command::new("bash");
    command.args(["--norc", "--noprofile", "-i"]);
    command
}

fn line(program: &str) -> String {
    format!("'{}' {} -- {program}\n", memfit().display(), RUN.join(" "))
}

#[track_caller]
fn shows(terminal: &mut Terminal, word: &str, times: usize) {
    eventually(word, || terminal.count(word) >= times);
}

#[test]
fn interrupt_from_the_terminal() {
    let Some(bench) = bench("interrupt", &[]) else { return };
    let Some((mut terminal, mut tree)) = in_terminal(&bench, under_memfit(&["./touch", "40"])) else { return };
    shows(&mut terminal, FULL, 1);
    terminal.press("\x03");
    assert_eq!(tree.wait(), 128 + 2, "{}", terminal.text());
    tree.wait_for_all("Ctrl-C");
    assert_eq!(terminal.count("died"), 0, "{}", terminal.text());
}

/// States of launcher, command and child; then that of the pager.
fn states(members: &Members) -> ([char; 3], char) {
    let state = |process: &Option<memfit_os::proctree::ProcStat>| {
        process.as_ref().and_then(|process| read_stat(process.pid)).map_or('-', |now| now.state)
    };
    ([&members.launcher, &members.command, &members.child].map(state), state(&members.pager))
}

#[test]
fn stop_and_continue_from_the_terminal() {
    let Some(bench) = bench("stop_and_continue", &["bash"]) else { return };
    let Some((mut terminal, mut tree)) = in_terminal(&bench, interactive_shell()) else { return };
    terminal.press(&line("./touch 40 term"));
    shows(&mut terminal, FULL, 1);
    let members = tree.members();
    let launcher = members.launcher.clone().unwrap();
    let all_stop = || {
        eventually("launcher, command and child are stopped", || states(&members).0 == ['T'; 3]);
        assert!(matches!(states(&members).1, 'S' | 'R' | 'D'), "the pager: {:?}", states(&members));
    };
    let all_run = || {
        eventually("nobody is stopped", || states(&members).0.iter().all(|state| matches!(state, 'S' | 'R' | 'D')));
    };
    terminal.press("\x1a");
    all_stop();
    shows(&mut terminal, "Stopped", 1);
    // The pager goes on with its work, which must not continue any process.
    std::thread::sleep(Duration::from_millis(500));
    all_stop();
    terminal.press("fg\n");
    all_run();
    // Some work, then stop once more, and continue in the background.
    std::thread::sleep(Duration::from_millis(300));
    terminal.press("\x1a");
    all_stop();
    shows(&mut terminal, "Stopped", 2);
    // SAFETY: signals the job's own process group, whose leader lives.
    assert_eq!(unsafe { libc::kill(-launcher.pgrp, libc::SIGCONT) }, 0);
    all_run();
    terminal.press("fg\n");
    std::thread::sleep(Duration::from_millis(300));
    send_signal(launcher.pid, libc::SIGTERM, None).unwrap();
    shows(&mut terminal, RIGHT, 1);
    terminal.press("echo status $?\n");
    shows(&mut terminal, "status 7", 1);
    terminal.press("exit\n");
    assert_eq!(tree.wait(), 0, "{}", terminal.text());
    tree.wait_for_all("Ctrl-Z");
    let text = terminal.text();
    assert_contents!(!text.contains("wrong"), "{text}");
    assert!(!text.contains("died"), "{text}");
}

/// memfit as the program of a terminal, and as a job of a shell.
#[test]
fn hang_up_of_the_terminal() {
    let Some(bench) = bench("hang_up", &["bash"]) else { return };
    for shell in [false, true] {
        let before = Traces::now(&bench.directory);
        let command = if shell { interactive_shell() } else { under_memfit(&["./touch", "40"]) };
        let Some((mut terminal, mut tree)) = in_terminal(&bench, command) else { return };
        if shell {
            terminal.press(&line("./touch 40"));
        }
        shows(&mut terminal, FULL, 1);
        let members = tree.members();
        terminal.hang_up();
        let context = format!("hang-up, in a shell: {shell}");
        tree.wait_for_all(&context);
        // 128 + SIGHUP, which the kernel sent.
        assert_eq!(tree.wait(), 129, "{context}");
        let pids: Vec<i32> =
            [members.launcher, members.pager].into_iter().flatten().map(|process| process.pid).collect();
        drop(tree);
        before.nothing_added(&bench.directory, &pids, &context);
    }
}

/// As `timeout -s KILL` does. The pager has a process group of its own, and must kill processes of
/// other groups.
#[test]
fn kill_of_the_process_group() {
    let Some(bench) = bench("kill_group", &["setsid"]) else { return };
    let before = Traces::now(&bench.directory);
    let mut command = under_memfit(&["setsid", "-w", "./touch", "40"]);
    command.process_group(0);
    let mut tree = Tree::start(command, &bench.directory, true);
    eventually("both processes are full", || tree.text().contains(FULL));
    // SAFETY: signals the group of our own child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(-tree.root(), libc::SIGKILL) }, 0);
    assert_eq!(tree.wait(), 128 + 9);
    tree.wait_for_all("kill of the process group");
    assert!(tree.errors().contains("memfit: the launcher died"), "{}", tree.errors());
    let root = tree.root();
    drop(tree);
    before.nothing_added(&bench.directory, &[root], "kill of the process group");
}

/// The first process of a PID namespace takes no SIGKILL from itself, and must not see a wrong
/// page.
#[test]
fn first_process_of_a_namespace() {
    let Some(bench) = bench("namespace", &["unshare"]) else { return };
    let words = ["unshare", "--pid", "--fork", "./touch", "40"];
    if !Command::new(words[0]).args(&words[1..3]).arg("true").status().is_ok_and(|status| status.success()) {
        return skip(&bench.name, "no PID namespaces here; root can make them");
    }
    for order in [[Pager, Launcher], [Launcher, Pager]] {
        let mut tree = Tree::start(under_memfit(&words), &bench.directory, true);
        eventually("both processes are full", || tree.text().contains(FULL));
        let members = tree.members();
        assert_eq!(kill(&members, &order, &mut Random(1)), order, "{members:#?}");
        tree.wait_for_all("pager and launcher were killed");
        assert_contents_eq!(tree.text(), format!("{FULL}\n"), "{order:?}");
    }
}
