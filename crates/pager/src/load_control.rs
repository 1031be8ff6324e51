//! Load control: measures how much processes work and wait for pages, and holds those that the core
//! names (`memfit_core::load`).

use crate::background;
use crate::proc::Proc;
use crate::state::Shared;
use memfit_core::load::{LoadControl, Progress};
use memfit_core::ProcId;
use memfit_os::procfs;
use memfit_os::sched::IdleTime;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two steps.
const EVERY: Duration = Duration::from_millis(100);
/// CPU time that a process has for each of its faults and evictions, ns: the kernel's part of a
/// fault, and its stub thread (docs/performance.md, Where the time of a page fault goes).
const FAULT_CPU_NS: u64 = 4000;
const EVICTION_CPU_NS: u64 = 5000;
/// What a program waits for a page besides the pager's work: two switches between threads, ns.
const SWITCHES_NS: u64 = 14_000;

/// What a process had done when it was looked at last.
#[derive(Debug, Clone, Copy)]
struct Seen {
    cpu: Option<Duration>,
    faults: u64,
    evicted: u64,
    waited_ns: u64,
}

impl Seen {
    fn of(proc: &Proc) -> Seen {
        let cpu = proc.pid().and_then(procfs::cpu_clock);
        let counters = &proc.counters;
        Seen {
            cpu,
            faults: counters.faults.load(Relaxed),
            evicted: counters.evicted.load(Relaxed),
            waited_ns: counters.waited_ns.load(Relaxed),
        }
    }
}

/// Whether the kernel tells what its threads do, which decides which faults may wait. Asked only of
/// a process that waits for pages.
fn can_be_held(proc: &Proc, waited_ns: u64, elapsed: Duration) -> bool {
    u128::from(waited_ns) * 10 < elapsed.as_nanos()
        || proc.pid().is_some_and(|pid| procfs::in_system_call(pid, pid).is_some())
}

/// The monitor's part of load control.
pub struct LoadTurns {
    control: LoadControl,
    last: Instant,
    idle: IdleTime,
    seen: HashMap<ProcId, Seen>,
}

impl LoadTurns {
    /// Nobody is held.
    pub fn new(turn_ms: u64) -> LoadTurns {
        LoadTurns {
            control: LoadControl::new(turn_ms),
            last: Instant::now(),
            idle: IdleTime::new(),
            seen: HashMap::new(),
        }
    }

    /// Whether it is time for a step, which looks up files of processes.
    pub fn is_due(&self, shared: &Shared) -> bool {
        self.last.elapsed() >= EVERY && !self.control.is_off() && !shared.procs.lock().is_empty()
    }

    /// Does a step, if it is time.
    pub fn sample(&mut self, shared: &Shared) {
        if !self.is_due(shared) {
            return;
        }
        let elapsed = self.last.elapsed();
        self.last = Instant::now();
        let procs: Vec<Arc<Proc>> = shared.procs.lock().clone();
        let seen: HashMap<ProcId, Seen> = procs.iter().map(|proc| (proc.id, Seen::of(proc))).collect();
        let before = std::mem::replace(&mut self.seen, seen);
        let progress = |proc: &Arc<Proc>| {
            let (now, then) = (self.seen.get(&proc.id)?, before.get(&proc.id)?);
            let faults = now.faults.saturating_sub(then.faults);
            let paging = faults * FAULT_CPU_NS + now.evicted.saturating_sub(then.evicted) * EVICTION_CPU_NS;
            let worked = now.cpu?.saturating_sub(then.cpu?).as_nanos() as u64;
            let waited_ns = now.waited_ns.saturating_sub(then.waited_ns) + faults * SWITCHES_NS;
            let worked_ns = worked.saturating_sub(paging);
            // One that does nothing is not held: its name is not read.
            let is_protected = || worked_ns + waited_ns > 0 && proc.pid().is_some_and(|pid| shared.is_protected(pid));
            let exempt = is_protected() || !can_be_held(proc, waited_ns, elapsed);
            Some(Progress { proc: proc.id, worked_ns, waited_ns, exempt })
        };
        let all: Vec<Progress> = procs.iter().filter_map(progress).collect();
        // Another process has the number by now, and starts unheld.
        procs.iter().filter(|proc| !proc.held.load(Relaxed)).for_each(|proc| self.control.forget(proc.id));
        let idle = if self.control.holds_any() { self.idle.percent(EVERY / 2).unwrap_or(0) } else { 0 };
        self.control.step(elapsed.as_millis() as u64, idle, &all);
        shared.meters.held.store(self.control.count(), Relaxed);
        for proc in &procs {
            let held = self.control.holds(proc.id);
            if proc.held.swap(held, Relaxed) != held {
                background::hold(shared, proc, held);
            }
        }
    }
}
