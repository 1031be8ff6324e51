//! Lines instead of a screen: one per tree and interval, until the trees or the reader have ended.

use super::sample::{shown, Rates};
use super::{plain, Ending};
use crate::args::TopArgs;
use crate::errors::{describe, tell, Failure};
use crate::print_to_reader;
use crate::trees::{self, Question, Tree};
use memfit_stats::Stats;
use std::collections::BTreeMap;
use std::time::Instant;

/// A tree that is followed.
struct Followed {
    last: Option<Stats>,
    ending: Ending,
}

/// Prints the lines; the rates of a tree's first line are averages since its start.
///
/// # Errors
/// When nothing can be printed.
pub fn run(args: &TopArgs, trees: Vec<Tree>) -> Result<i32, Failure> {
    let new = |tree: &Tree| Followed { last: None, ending: Ending::of(tree) };
    let mut followed: BTreeMap<Tree, Followed> = trees.iter().map(|tree| (tree.clone(), new(tree))).collect();
    let mut code = 0;
    // That the reader has closed is a normal end.
    if !print_to_reader(&plain::head())? {
        return Ok(0);
    }
    let mut next = Instant::now();
    for iteration in 1u64.. {
        let mut ended = Vec::new();
        for (tree, state) in &mut followed {
            match tree.ask_and_wait(Question::Brief) {
                Ok(Some(answer)) => {
                    let stats = shown(answer);
                    let rates = Rates::between(state.last.as_ref(), &stats);
                    if !print_to_reader(&plain::row(tree.pid(), &stats, &rates))? {
                        return Ok(code);
                    }
                    state.last = Some(stats);
                }
                Ok(None) => ended.push(tree.clone()),
                Err(error) => {
                    tell(&format!("the pager of {} does not answer: {}", tree.pid(), describe(&error)));
                    code = 1;
                }
            }
        }
        for tree in ended {
            if let Some(state) = followed.remove(&tree) {
                tell(&format!("tree {} {}", tree.pid(), state.ending.told()));
            }
        }
        if args.iterations == Some(iteration) {
            break;
        }
        // After a stop (Ctrl-Z) missed intervals are not made up for.
        next = (next + args.interval).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        if args.pid.is_none() {
            for tree in trees::running()? {
                followed.entry(tree.clone()).or_insert_with(|| new(&tree));
            }
        }
        if followed.is_empty() {
            break;
        }
    }
    Ok(code)
}
