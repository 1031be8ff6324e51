//! `memfit bg` and `memfit fg`: a process of a running tree leaves memory as a whole, and comes
//! back.

use crate::args::ProcessArgs;
use crate::errors::{self, describe, Failure};
use crate::size_parsing::human;
use crate::trees::{self, Tree};
use memfit_core::PAGE_BYTES;
use memfit_os::proctree;
use memfit_pager::config::{Order, Standing, Told, What};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Time between two questions how far it is.
const POLL: Duration = Duration::from_millis(20);
/// A process that makes no progress for so long is left to its pager.
const PATIENCE: Duration = Duration::from_secs(15);

/// Tells the processes, waits for them, and prints a line for each.
///
/// # Errors
/// When trees cannot be listed. What fails for one process is reported on standard error and gives
/// exit status 1.
pub fn run(args: &ProcessArgs, what: What) -> Result<i32, Failure> {
    let mut pids = all_pids(args)?;
    let trees = trees::running()?;
    // With their descendants, those of memfit run itself are the programs of its tree.
    pids.retain(|&pid| !args.children || !is_launcher(&trees, pid));
    let mut code = 0;
    // All are told first: their pages leave one process after another.
    let told: Vec<_> = pids.iter().map(|&pid| (pid, tell(&trees, Order { pid, what }))).collect();
    for (pid, found) in told {
        match found.and_then(|tree| wait(tree, pid)) {
            Ok(line) => crate::print(&format!("{line}\n"))?,
            // A descendant that ends meanwhile, or is none of the tree's.
            Err(Trouble::Gone(_)) if !args.pids.contains(&pid) => {}
            Err(Trouble::Gone(why) | Trouble::Other(why)) => {
                errors::tell(&format!("process {pid}: {why}"));
                code = 1;
            }
        }
    }
    Ok(code)
}

/// Why a process does not do what it was told.
#[derive(Debug, PartialEq, Eq)]
enum Trouble {
    /// No tree has it.
    Gone(String),
    Other(String),
}

/// The processes that are named, each once, with their descendants if those are wanted.
fn all_pids(args: &ProcessArgs) -> Result<Vec<i32>, Failure> {
    let mut pids = args.pids.clone();
    if args.children {
        let all = proctree::snapshot().map_err(|error| Failure::system("list the processes", &error))?;
        let below = args.pids.iter().flat_map(|&pid| proctree::descendants_in(&all, pid, &HashSet::new()));
        pids.extend(below.map(|process| process.pid));
    }
    let mut seen = HashSet::new();
    pids.retain(|&pid| seen.insert(pid));
    Ok(pids)
}

/// Whether this is the process of `memfit run` itself, by which `memfit stat` names the tree.
fn is_launcher(trees: &[Tree], pid: i32) -> bool {
    trees.iter().any(|tree| tree.pid() == pid.to_string())
}

/// Passes an order to the tree of its process.
fn tell(trees: &[Tree], order: Order) -> Result<&Tree, Trouble> {
    if is_launcher(trees, order.pid) {
        let advice = "name one of its processes, which memfit stat -p lists, or use -c for all of them";
        return Err(Trouble::Other(format!("this is memfit run itself; {advice}")));
    }
    let mut silent = None;
    for tree in trees {
        match tree.order(order) {
            Ok(Some(told)) if told.standing != Standing::Unknown => return Ok(tree),
            Ok(_) => {}
            Err(error) => silent = Some(format!("the pager of {} does not answer: {}", tree.pid(), describe(&error))),
        }
    }
    Err(silent.map_or_else(|| Trouble::Gone(unknown(trees, order.pid)), Trouble::Other))
}

/// Why no pager has a process.
fn unknown(trees: &[Tree], pid: i32) -> String {
    let is_above = |tree: &&Tree| tree.pid().parse().is_ok_and(|launcher| proctree::is_at_or_below(pid, launcher));
    match trees.iter().find(is_above) {
        Some(tree) => {
            format!(
                "the pager of memfit run ({}) does not have it; memfit stat -p says why, if that is known",
                tree.pid()
            )
        }
        None => "no tree of yours has it; memfit stat -p lists those that can be named".into(),
    }
}

/// Waits until a process has left or has come back; the line about it.
fn wait(tree: &Tree, pid: i32) -> Result<String, Trouble> {
    let (mut last, mut since) = (Standing::Unknown, Instant::now());
    loop {
        let told = match tree.order(Order { pid, what: What::Tell }) {
            Ok(Some(told)) => told,
            Ok(None) => return Err(Trouble::Gone("it has ended".into())),
            Err(error) => return Err(Trouble::Other(format!("its pager does not answer: {}", describe(&error)))),
        };
        if let Some(line) = line(pid, &told)? {
            return Ok(line);
        }
        // The pager gives up, too, when none of those before it moves.
        let queued = matches!(told.standing, Standing::Leaving { queued: true, .. });
        if queued || told.standing != last {
            (last, since) = (told.standing, Instant::now());
        } else if since.elapsed() > PATIENCE {
            return Err(Trouble::Other("no page has moved for 15 s: it may be stopped. The order stands".into()));
        }
        std::thread::sleep(POLL);
    }
}

/// What there is to say about a process; `None` while it is not done.
fn line(pid: i32, told: &Told) -> Result<Option<String>, Trouble> {
    let comm = told.comm.replace(memfit_wire::is_unprintable, " ");
    let rate = |pages: u64, ms: u64| human(pages * PAGE_BYTES * 1000 / ms.max(1));
    let size = |pages: u64| human(pages * PAGE_BYTES);
    Ok(Some(match told.standing {
        Standing::Unknown => return Err(Trouble::Gone("it has ended".into())),
        Standing::NotPaged => {
            return Err(Trouble::Other(format!("{comm} cannot be paged: the warnings of its run say why")))
        }
        Standing::Leaving { .. } | Standing::Returning { .. } => return Ok(None),
        Standing::Foreground => format!("{pid} ({comm}): in the foreground"),
        Standing::Waits => format!("{pid} ({comm}): leaves when memory is short"),
        Standing::Left { pages, gave_up: true, .. } => {
            let text = "left; the rest has not moved for 10 s: it may be stopped, or traced by a debugger";
            return Err(Trouble::Other(format!("{} {text}", size(pages))));
        }
        Standing::Left { pages, ms, .. } => {
            let (seconds, stays) = (ms as f64 / 1000.0, human(told.resident_bytes));
            format!("{pid} ({comm}): {} left in {seconds:.2} s, {}/s; {stays} stay", size(pages), rate(pages, ms))
        }
        Standing::Returned { pages: 0, left_out: 0, on_trial: 0, .. } => {
            format!("{pid} ({comm}): nothing is outside that left at once")
        }
        Standing::Returned { pages, left_out, on_trial, ms } => {
            let (seconds, came) = (ms as f64 / 1000.0, size(pages));
            let rest = [(left_out, "found no room"), (on_trial, "stay outside as a trial")];
            let rest: String = rest
                .iter()
                .filter(|(pages, _)| *pages > 0)
                .map(|(pages, why)| format!("; {} {why} and come when they are touched", size(*pages)))
                .collect();
            format!("{pid} ({comm}): {came} came back in {seconds:.2} s, {}/s{rest}", rate(pages, ms))
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(standing: Standing) -> Result<Option<String>, Trouble> {
        line(7, &Told { standing, comm: "a\nb".into(), resident_bytes: 2 << 20 })
    }

    #[test]
    fn a_process_of_a_tree_without_stub_is_not_unknown() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (own, pid) = (std::process::id(), child.id() as i32);
        let of_ours = unknown(&[Tree::of_launcher(1 << 30), Tree::of_launcher(own)], pid);
        let of_others = unknown(&[Tree::of_launcher(1 << 30), Tree::of_launcher(child.id())], own as i32);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(of_ours.starts_with(&format!("the pager of memfit run ({own}) does not have it")), "{of_ours}");
        assert!(of_others.starts_with("no tree of yours has it"), "{of_others}");
    }

    #[test]
    fn lines() {
        let left = said(Standing::Left { pages: 25_600, ms: 500, gave_up: false }).unwrap().unwrap();
        assert_eq!(left, "7 (a b): 100 MiB left in 0.50 s, 200 MiB/s; 2 MiB stay");
        let back = said(Standing::Returned { pages: 256, left_out: 256, on_trial: 0, ms: 0 }).unwrap().unwrap();
        assert!(back.starts_with("7 (a b): 1 MiB came back in 0.00 s, "), "{back}");
        assert!(back.ends_with("/s; 1 MiB found no room and come when they are touched"), "{back}");
        let back = said(Standing::Returned { pages: 256, left_out: 0, on_trial: 512, ms: 0 }).unwrap().unwrap();
        assert!(back.ends_with("/s; 2 MiB stay outside as a trial and come when they are touched"), "{back}");
        assert_eq!(said(Standing::Leaving { pages: 3, queued: false }), Ok(None));
        let trouble = |standing| match said(standing) {
            Err(Trouble::Other(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(trouble(Standing::NotPaged).contains("cannot be paged"));
        assert!(trouble(Standing::Left { pages: 256, ms: 10_001, gave_up: true }).starts_with("1 MiB left; the rest"));
        assert!(matches!(said(Standing::Unknown), Err(Trouble::Gone(_))));
    }
}
