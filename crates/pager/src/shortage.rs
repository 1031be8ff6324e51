//! Why the budget does not hold, in words.

use crate::proc::Proc;
use crate::state::Shared;
use memfit_os::procfs::{self, Hold};
use memfit_os::unevictable;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// Most kinds of memory that a message names.
const KEPT_NAMED: usize = 3;

/// Resident memory cannot be taken away at the moment.
pub fn short(shared: &Shared) -> String {
    let over = over_mib(shared);
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

/// Neither the pool nor the swap tier takes a page; `swap` says what keeps the tier from it.
pub fn hopeless(shared: &Shared, swap: &str) -> String {
    let (over, budget) = (over_mib(shared), shared.sizes.budget >> 20);
    format!(
        "out of memory: the programs are {over} MiB over the budget of {budget} MiB with data that does not compress \
         further, and {swap}; or raise -m"
    )
}

fn over_mib(shared: &Shared) -> i64 {
    -shared.free() >> 20
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
