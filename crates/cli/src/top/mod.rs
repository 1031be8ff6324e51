//! `memfit top`: the running trees of this user, again and again.
//!
//! On a terminal it is a screen (`live`), elsewhere lines (`follow`). What is shown is computed
//! apart from all input and output: `sample` reads answers and makes rates of them, `view` is what
//! keys do, `draw` and `help` make a picture of it (`canvas`), `plain` a line, with numbers written
//! by `units`. Only `terminal` touches the terminal.
//!
//! One question an interval goes to one pager; it is the brief one, whose cost does not grow with
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

/// Shows them until the user leaves or there is nothing more to see.
///
/// # Errors
/// When there is no tree, or the terminal cannot be used.
pub fn run(args: &TopArgs) -> Result<i32, Failure> {
    let trees = choose(args.pid)?;
    // A number of lines can be wanted on a terminal, too.
    if terminal::is_here() && args.iterations.is_none() {
        live::run(args, trees)
    } else {
        follow::run(args, trees)
    }
}

/// All trees, or the one of that process.
fn choose(pid: Option<Pid>) -> Result<Vec<Tree>, Failure> {
    let trees = trees::running()?;
    if trees.is_empty() {
        return Err(Failure::here("no tree of yours is running; start one with: memfit run -m SIZE -- COMMAND"));
    }
    let Some(pid) = pid else { return Ok(trees) };
    let is_it = |tree: &&Tree| {
        let has = |answer: serde_json::Value| {
            let processes = answer["processes"].as_array().cloned().unwrap_or_default();
            processes.iter().any(|process| process["pid"] == pid && process["running"] == true)
        };
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

    /// "ended", and how, if the kernel tells.
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
