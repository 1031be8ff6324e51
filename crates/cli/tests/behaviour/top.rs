//! `memfit top` over trees that are paged: on a terminal of the test's own, and into a pipe.

use crate::support::stats::live;
use crate::support::terminal::Terminal;
use crate::support::tree::{eventually, Tree};
use crate::support::{memfit, memfit_command, skip, Bench, PYTHON};
use memfit_cli::trees::{self, Question};
use memfit_os::process::send_signal;
use memfit_os::proctree::read_stat;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

/// The end of a screen program: shows the cursor again, and the former screen.
const LEFT: &str = "\x1b[?25h\x1b[?1049l";

/// A program that works on more memory than its budget, and the number by which top knows it.
fn paged(name: &str) -> Option<(Bench, Tree, String)> {
    let bench = Bench::new(name, &[PYTHON])?;
    bench.file("blocks.py", include_str!("../workloads/blocks.py"));
    bench.file("big.py", include_str!("../workloads/big.py"));
    let mut command = memfit_command();
    command.args(["run", "-q", "-m", "32M", "--", PYTHON, "big.py", "1", "40", "1000000"]);
    let tree = Tree::start(command, &bench.directory, true);
    let pid = tree.root().to_string();
    eventually("the program is paged", || {
        let ours = live(memfit_command(), pid.parse().unwrap());
        ours.is_some_and(|tree| tree["faults"]["pool"].as_u64() > Some(0))
    });
    Some((bench, tree, pid))
}

fn top(arguments: &[&str]) -> Command {
    let mut command = memfit_command();
    command.arg("top").args(arguments);
    command
}

/// Starts a program in a terminal; `None`, with a report, where there are no terminals.
fn in_terminal(bench: &Bench, mut command: Command) -> Option<(Terminal, Tree, String)> {
    let mut terminal = match Terminal::open() {
        Ok(terminal) => terminal,
        Err(reason) => {
            skip(&bench.name, &reason);
            return None;
        }
    };
    terminal.resize(80, 24);
    command
        .env("TERM", "xterm")
        .env("PS1", "$ ")
        .env_remove("PROMPT_COMMAND")
        .env_remove("HISTFILE")
        .env_remove("NO_COLOR");
    let before = terminal.settings();
    terminal.give_to(&mut command);
    let program = Tree::start(command, &bench.directory, false);
    Some((terminal, program, before))
}

#[track_caller]
fn shows(terminal: &mut Terminal, word: &str) {
    eventually(word, || terminal.shows(word));
}

#[test]
fn a_screen_over_a_paged_program() {
    let Some((bench, tree, pid)) = paged("top_screen") else { return };
    let Some((mut terminal, mut screen, before)) = in_terminal(&bench, top(&["-d", "0.1", &pid])) else { return };
    // Words of the header, legend, faults, facts and processes; the last one is in the row of
    // python.
    for word in ["budget 32.0M", "resident", "staged", "FAULTS", "p99", "ratio", "no errors", "RESIDENT", "python3\n"] {
        shows(&mut terminal, word);
    }
    assert_ne!(terminal.settings(), before, "no echo, keys at once");
    assert!(terminal.count("\x1b[38;5;") > 0, "colours");
    terminal.press("?");
    shows(&mut terminal, "WHAT THE NUMBERS MEAN");
    terminal.press(" ");
    // The first space only closed the help; the next one pauses.
    terminal.press(" ");
    shows(&mut terminal, "PAUSED");
    // top sends only changes, except with Ctrl-L.
    terminal.press(" f\x0c");
    shows(&mut terminal, "FAULTSv");
    terminal.press("+\x0c");
    shows(&mut terminal, "every 0.2 s");
    terminal.resize(160, 50);
    shows(&mut terminal, "MEMORY");
    send_signal(tree.root(), libc::SIGTERM, None).unwrap();
    // Linux 6.15 and later tell how it ended.
    shows(&mut terminal, "ended");
    assert_eq!(terminal.count(LEFT), 0);
    terminal.press("q");
    assert_eq!(screen.wait(), 0, "{}", terminal.text());
    let text = terminal.text();
    let after = text.split(LEFT).nth(1).unwrap_or_else(|| panic!("the screen was not left: {text:?}"));
    assert!(after.contains(&format!("memfit: tree {pid} ended")), "{after:?}");
    assert_eq!(terminal.settings(), before);
}

/// Other tests and users may run trees meanwhile.
#[test]
fn tab_goes_from_tree_to_tree() {
    let Some(bench) = Bench::new("top_tab", &["sleep"]) else { return };
    let sleeper = |seconds: &str| {
        let mut command = memfit_command();
        command.args(["run", "-q", "-m", "32M", "--", "sleep", seconds]);
        Tree::start(command, &bench.directory, true)
    };
    let (_one, _two) = (sleeper("7771"), sleeper("7772"));
    eventually("two trees", || trees::running().unwrap().len() >= 2);
    let Some((mut terminal, mut screen, _)) = in_terminal(&bench, top(&[])) else { return };
    for command in ["sleep 7771", "sleep 7772"] {
        eventually(command, || {
            std::thread::sleep(Duration::from_millis(100));
            terminal.press("\t");
            terminal.shows(command)
        });
    }
    terminal.press("q");
    assert_eq!(screen.wait(), 0, "{}", terminal.text());
}

#[test]
fn the_terminal_is_put_back_after_every_end() {
    let Some((bench, tree, pid)) = paged("top_ends") else { return };
    type End = fn(&mut Terminal, i32);
    let ends: [(End, i32); 5] = [
        (|terminal, _| terminal.press("\x1b"), 0),
        (|terminal, _| terminal.press("\x03"), 0),
        (|_, pid| send_signal(pid, libc::SIGTERM, None).unwrap(), 128 + libc::SIGTERM),
        (|_, pid| send_signal(pid, libc::SIGINT, None).unwrap(), 128 + libc::SIGINT),
        (|_, pid| send_signal(pid, libc::SIGUSR1, None).unwrap(), 128 + libc::SIGUSR1),
    ];
    for (i, (end, code)) in ends.into_iter().enumerate() {
        let Some((mut terminal, mut screen, before)) = in_terminal(&bench, top(&[&pid])) else { return };
        shows(&mut terminal, "FAULTS/S");
        end(&mut terminal, screen.root());
        assert_eq!(screen.wait(), code, "end {i}: {}", terminal.text());
        assert_eq!((terminal.count(LEFT), terminal.settings()), (1, before), "end {i}");
    }
    // The other side of the terminal has closed.
    let Some((mut terminal, mut screen, _)) = in_terminal(&bench, top(&[&pid])) else { return };
    shows(&mut terminal, "FAULTS/S");
    terminal.hang_up();
    screen.wait();
    drop(tree);
}

#[test]
fn stops_and_goes_on_as_a_job() {
    let Some((bench, tree, pid)) = paged("top_job") else { return };
    let mut shell = Command::new("bash");
    shell.args(["--norc", "--noprofile", "--noediting", "-i"]);
    let Some((mut terminal, mut shell, before)) = in_terminal(&bench, shell) else { return };
    terminal.press(&format!("'{}' top {pid}\n", memfit().display()));
    shows(&mut terminal, "FAULTS/S");
    let job = tree_of_shell(&shell);
    terminal.press("\x1a");
    shows(&mut terminal, "Stopped");
    assert_eq!((terminal.count(LEFT), terminal.settings()), (1, before.clone()));
    // In the background it must not touch the terminal, and stops again.
    send_signal(job, libc::SIGCONT, None).unwrap();
    eventually("it is stopped again", || read_stat(job).is_some_and(|stat| stat.is_stopped()));
    assert_eq!(terminal.settings(), before);
    let seen = terminal.count("FAULTS/S");
    terminal.press("fg\n");
    eventually("the screen is drawn again", || terminal.count("FAULTS/S") > seen);
    assert_ne!(terminal.settings(), before);
    terminal.press("q");
    eventually("the screen is left", || terminal.count(LEFT) == 2);
    terminal.press("echo status $?\n");
    shows(&mut terminal, "status 0");
    terminal.press("exit\n");
    assert_eq!(shell.wait(), 0, "{}", terminal.text());
    drop(tree);
}

/// The job that a shell has started.
#[track_caller]
fn tree_of_shell(shell: &Tree) -> i32 {
    let alive = shell.alive();
    let job = alive.iter().find(|process| process.ppid == shell.root());
    job.unwrap_or_else(|| panic!("no job: {alive:?}")).pid
}

#[test]
fn lines_into_a_pipe() {
    let Some((bench, tree, pid)) = paged("top_lines") else { return };
    let output = top(&["-n", "3", "--interval", "0.1", &pid]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((output.status.code(), lines.len()), (Some(0), 4), "{text}");
    assert!(output.stderr.is_empty() && !text.contains('\x1b'), "{text}");
    assert_eq!(lines[0][..3], ["UP", "PID", "BUDGET"]);
    assert!(
        lines[1..].iter().all(|line| line[1] == pid && line[2] == "32.0M" && line.len() == lines[0].len()),
        "{text}"
    );

    // By the number of a process of the tree.
    let command = tree.members().command.unwrap().pid.to_string();
    let output = top(&["-n", "1", &command]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(&format!(" {pid} ")), "{output:?}");

    // What a brief request leaves out.
    let ours = trees::running().unwrap().into_iter().find(|tree| tree.pid() == pid).unwrap();
    let ask = |question| ours.ask_and_wait::<Value>(question).unwrap().unwrap();
    let [brief, all] = [Question::Brief, Question::All].map(ask);
    assert!(brief["now"]["pages"].is_null() && all["now"]["pages"]["staged"].is_u64(), "{brief:#}");
    assert!(brief["now"]["total_bytes"].is_u64() && brief["processes"].is_array(), "{brief:#}");

    // The reader ends.
    let line = format!("('{}' top -d 0.1 {pid}; echo status $? >&2) | head -n 1", memfit().display());
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "status 0\n", "{output:?}");

    // The tree ends.
    let follower = top(&["-d", "0.1", &pid]);
    let mut follower = Tree::start(follower, &bench.directory, true);
    eventually("a line", || follower.text().lines().count() > 1);
    send_signal(tree.root(), libc::SIGTERM, None).unwrap();
    assert_eq!(follower.wait(), 0);
    assert!(follower.errors().starts_with(&format!("memfit: tree {pid} ended")), "{}", follower.errors());
}
