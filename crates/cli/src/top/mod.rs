//! `memfit top`: watches the running trees of this user.
//!
//! On a terminal it shows a screen (`live`), elsewhere it prints lines (`follow`). Modules without
//! input and output compute what is shown: `sample` parses answers and computes rates, `view`
//! handles keys, `draw` and `help` make a picture (`canvas`), `plain` a line, and `units` formats
//! numbers. Only `terminal` touches the terminal.
//!
//! Each interval it sends one request to one pager: the brief one, whose cost does not grow with
//! the memory of the tree.

pub mod canvas;
pub mod draw;
mod follow;
pub mod help;
mod live;
pub mod plain;
pub mod sample;
pub mod terminal;
pub mod units;
pub mod view;

use crate::args::TopArgs;
use crate::errors::Failure;
use crate::trees::{self, Question, Tree};
use memfit_os::process::{Change, Pid, PidFd};
use memfit_stats::Stats;

/// Shows trees until the user leaves or none is left.
///
/// # Errors
/// When there is no tree, or the terminal cannot be used.
pub fn run(args: &TopArgs) -> Result<i32, Failure> {
    let trees = choose(args.pid)?;
    // The user can ask for a number of lines on a terminal, too.
    if terminal::is_here() && args.iterations.is_none() {
        live::run(args, trees)
    } else {
        follow::run(args, trees)
    }
}

/// All trees, or the tree of that process.
fn choose(pid: Option<Pid>) -> Result<Vec<Tree>, Failure> {
    let trees = trees::running()?;
    if trees.is_empty() {
        return Err(Failure::here("no tree of yours is running; start one with: memfit run -m SIZE -- COMMAND"));
    }
    let Some(pid) = pid else { return Ok(trees) };
    let is_it = |tree: &&Tree| {
        let has = |stats: Stats| stats.processes.iter().any(|process| process.pid == pid && process.running);
        tree.pid() == pid.to_string() || tree.ask_and_wait(Question::Brief).is_ok_and(|answer| answer.is_some_and(has))
    };
    match trees.iter().find(is_it) {
        Some(tree) => Ok(vec![tree.clone()]),
        None => {
            let pids: Vec<&str> = trees.iter().map(Tree::pid).collect();
            let message = format!("process {pid} belongs to no tree of yours; running: {}", pids.join(", "));
            Err(Failure::here(message))
        }
    }
}

/// Watches the end of a tree's launcher, whose exit status is that of the command.
struct Ending(Option<PidFd>);

impl Ending {
    fn of(tree: &Tree) -> Self {
        Self(tree.pid().parse().ok().and_then(|pid| PidFd::open(pid).ok()))
    }

    /// "ended", and how, if the kernel reports it.
    fn told(&self) -> String {
        match self.0.as_ref().and_then(PidFd::end) {
            None => "ended".into(),
            Some(Change::Exited(code)) => format!("ended with exit status {code}"),
            Some(Change::Killed(signal) | Change::Dumped(signal) | Change::Stopped(signal)) => {
                format!("killed by signal {signal}")
            }
        }
    }
}
