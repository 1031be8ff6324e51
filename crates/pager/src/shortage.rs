//! Why the budget does not hold, in words.

use crate::proc::Proc;
use crate::state::Shared;
use memfit_os::procfs::{self, Hold};
use memfit_os::unevictable;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// Most kinds of memory that a message names.
const KEPT_NAMED: usize = 3;

/// What keeps pages out of the swap tier.
pub enum Tier {
    Missing,
    Full,
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
            "the budget is {over} MiB too small for what cannot be taken away at the moment{}; raise -m, or allow a swap \
             tier with --swap DIR",
            kept(&procs)
        ),
    }
}

/// The tree is `over` bytes over the budget, and neither the pool nor the swap tier takes a page.
pub fn hopeless(budget: u64, over: u64, tier: &Tier) -> String {
    let (over, budget) = (over >> 20, budget >> 20);
    let tier = match tier {
        Tier::Missing => "there is no swap tier: allow one with --swap DIR, or raise -m",
        Tier::Full => "the swap tier is full: raise --swap-size, name another place with --swap, or raise -m",
        Tier::Spent => {
            "the swap tier may not be written to before some time has passed: raise --swap-writes, or raise -m"
        }
        Tier::Failed => {
            "the swap tier takes no writes since the error above: raise -m, or name another place with --swap"
        }
    };
    format!(
        "the programs are {over} MiB over the budget of {budget} MiB with data that does not compress further, and \
         {tier}"
    )
}

/// The largest kinds of memory that cannot be evicted, in words.
fn kept(procs: &[Arc<Proc>]) -> String {
    let mut all = Vec::new();
    for (proc, pid) in procs.iter().filter_map(|proc| Some((proc, proc.pid()?))) {
        let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
        let of_proc = unevictable::kept(&smaps, proc.closed.load(Relaxed)).into_iter();
        all.extend(of_proc.map(|(kind, bytes)| (bytes >> 20, kind, pid)));
    }
    all.retain(|&(mebibytes, ..)| mebibytes > 0);
    all.sort_by_key(|&(mebibytes, ..)| std::cmp::Reverse(mebibytes));
    let of = |&(mebibytes, kind, pid): &(u64, unevictable::Kept, i32)| {
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
