//! Why the budget does not hold, in words.

use crate::adopt;
use crate::proc::Proc;
use crate::state::Shared;
use memfit_os::procfs::{self, Hold, RssReader};
use memfit_os::proctree;
use memfit_os::unevictable::{self, Kept};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// Most kinds of memory that a message names.
const KEPT_NAMED: usize = 3;
/// Of so many of the largest processes the mappings are read. That takes longer for large ones, and
/// reclaim waits meanwhile: the message comes once.
const LOOKED_AT: usize = 16;

/// What gives the swap tier more room.
pub const MORE_SWAP: &str = "raise --swap-size, or name another place with --swap";
/// The same where a file system or device had no space.
pub const MORE_DISK: &str = "free space on its disk, or name another place with --swap";

/// What keeps pages out of the swap tier.
pub enum Tier {
    Missing,
    /// `disk`: a file system or device had no space, so that a larger size of the tier is no help.
    Full {
        disk: bool,
    },
    /// Writes to it have failed, and the user was told why.
    Failed,
    /// As much was written to it as may be for now.
    Spent,
}

/// The tree is `over` bytes over the budget, and resident memory cannot be taken away at the
/// moment.
pub fn short(shared: &Shared, over: u64) -> String {
    let over = over >> 20;
    let procs: Vec<Arc<Proc>> = shared.procs.lock().clone();
    match held(&procs) {
        Some(held) => format!(
            "the programs are {over} MiB over the budget, because {held}: its pages cannot be taken away as they should \
             until that ends"
        ),
        None => format!(
            "the budget is {over} MiB too small for what cannot be taken away at the moment{}; {}",
            kept(shared, &procs),
            advice(shared.swap.is_some())
        ),
    }
}

/// What gives the programs more room.
fn advice(has_tier: bool) -> &'static str {
    if has_tier {
        "raise -m"
    } else {
        "raise -m, or allow a swap tier with --swap DIR"
    }
}

/// The tree is `over` bytes over the budget, and neither the pool nor the swap tier takes a page,
/// or the programs have no more than their floor in memory.
pub fn hopeless(budget: u64, over: u64, tier: &Tier) -> String {
    let (over, budget) = (over >> 20, budget >> 20);
    let tier = match tier {
        Tier::Missing => "there is no swap tier: allow one with --swap DIR, or raise -m".into(),
        Tier::Full { disk } => {
            format!("the swap tier is full: {}, or raise -m", if *disk { MORE_DISK } else { MORE_SWAP })
        }
        Tier::Spent => {
            "the swap tier may not be written to before some time has passed: raise --swap-writes, or raise -m".into()
        }
        Tier::Failed => {
            "the swap tier takes no writes since the error above: raise -m, or name another place with --swap".into()
        }
    };
    format!(
        "the programs are {over} MiB over the budget of {budget} MiB, none of their pages can leave memory, and {tier}"
    )
}

/// The largest kinds of memory that cannot be evicted, in words. Also of processes that are not
/// paged: one that has shared memory alone never is.
fn kept(shared: &Shared, procs: &[Arc<Proc>]) -> String {
    let launcher = std::os::unix::process::parent_id() as i32;
    let own = std::process::id() as i32;
    let tree = proctree::descendants_by_lists(launcher, |pid| pid == own).unwrap_or_default();
    let resident = |pid| RssReader::open(pid).ok()?.read().map(|rss| rss.anon + rss.shared).ok();
    let mut sizes: Vec<(u64, i32)> =
        tree.iter().filter_map(|process| Some((resident(process.pid)?, process.pid))).collect();
    sizes.sort_unstable_by_key(|&(bytes, _)| std::cmp::Reverse(bytes));
    let mut all = Vec::new();
    for &(_, pid) in sizes.iter().take(LOOKED_AT) {
        let smaps = procfs::read_memory(pid, "smaps").unwrap_or_default();
        let closed = procs.iter().any(|proc| proc.pid() == Some(pid) && proc.closed.load(Relaxed));
        let kept = if adopt::is_without_stub(pid, &shared.stub) {
            // The budget does not count its shared memory.
            vec![(Kept::NotPaged, unevictable::private(&smaps))]
        } else {
            unevictable::kept(&smaps, closed)
        };
        all.extend(kept.into_iter().map(|(kind, bytes)| (bytes >> 20, kind, pid)));
    }
    all.retain(|&(mebibytes, ..)| mebibytes > 0);
    all.sort_by_key(|&(mebibytes, ..)| std::cmp::Reverse(mebibytes));
    let of = |&(mebibytes, kind, pid): &(u64, Kept, i32)| {
        format!("{mebibytes} MiB {kind} of {} ({pid})", procfs::comm(pid).unwrap_or_default())
    };
    let named: Vec<String> = all.iter().take(KEPT_NAMED).map(of).collect();
    if named.is_empty() {
        String::new()
    } else {
        format!(" ({})", named.join(", "))
    }
}

/// Names a process that is stopped or traced, and its stub with it.
fn held(procs: &[Arc<Proc>]) -> Option<String> {
    let named = |pid| match procfs::comm(pid) {
        Some(comm) => format!("{comm} ({pid})"),
        None => "another program".into(),
    };
    procs.iter().filter_map(|proc| proc.identity.get()).find_map(|identity| match procfs::hold(identity.pid)? {
        Hold::Stopped => Some(format!("{} is stopped", named(identity.pid))),
        Hold::Traced(tracer) => Some(format!("{} is traced by {}", named(identity.pid), named(tracer))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_tier_is_advised_where_there_is_none() {
        assert!(advice(false).contains("--swap DIR"));
        assert_eq!(advice(true), "raise -m");
    }

    #[test]
    fn a_larger_size_is_not_advised_where_the_disk_is_full() {
        let [larger, other] = [false, true].map(|disk| hopeless(64 << 20, 8 << 20, &Tier::Full { disk }));
        assert!(larger.contains("raise --swap-size") && larger.ends_with("or raise -m"), "{larger}");
        assert!(!other.contains("--swap-size") && other.ends_with("or raise -m"), "{other}");
    }
}
