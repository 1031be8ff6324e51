//! How much of the budget is in use, and the threads that wait for memory.

use crate::locks::{rank, Lock};
use memfit_core::budget::{Marks, Sizes};
use memfit_stats::Memory;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// The budget. The monitor measures, reclaim frees, and fault threads wait.
#[derive(Debug)]
pub struct Budget {
    /// Sizes in use.
    pub sizes: Sizes,
    /// Bytes of the tree and the pager that the core does not know of; set by the monitor.
    pub unmanaged: AtomicU64,
    /// Bytes that the core knows of: present pages, staging, frames. Set with the effects of core
    /// calls.
    pub managed: AtomicU64,
    /// Bytes that `managed` counts twice because processes share pages after a fork; measured by
    /// the monitor. At a fork, the threads that serve it add what the child has.
    pub doubled: AtomicU64,
    /// The largest values that were seen, without those of the swap tier.
    pub peak: Lock<Memory<u64>, { rank::PEAK }>,
    /// Samples of the tree that have ended.
    pub samples: AtomicU64,
    /// Reclaim makes no progress at the moment: faults do not wait for it.
    pub stuck: AtomicBool,
    /// Faults wait all the same from [`Sizes::far_over`] on: a process is about to be stopped or
    /// killed.
    pub holds: AtomicBool,
    /// A batch has gained nothing, because a thread is in a call that changes mappings and
    /// read-only memory cannot leave meanwhile: see [`Budget::lets_one_pass`].
    pub held_by_call: AtomicBool,
    /// Unregistered memory grows fast and little is free: the fast-growth watermarks hold.
    pub fast_growth: AtomicBool,
    /// Throttle: the tree is over its budget, or unregistered memory has just grown. Faults wait.
    pub braking: AtomicBool,
    /// Commit pressure: programs have mapped more than can fit. New mappings are registered early.
    pub commit_pressure: AtomicBool,
    /// New memory was to be registered at once within the last moment: new processes wait for each
    /// other.
    pub tight_lately: AtomicBool,
    reclaim: Signal,
    progress: Signal,
}

/// A counter that threads raise and others wait for.
#[derive(Debug, Default)]
struct Signal {
    count: Mutex<u64>,
    raised: Condvar,
}

impl Signal {
    fn raise(&self) {
        let mut count = self.count.lock().unwrap();
        *count += 1;
        self.raised.notify_all();
    }

    /// Waits until the count differs from `seen`; returns the count.
    fn wait(&self, seen: u64, limit: Duration) -> u64 {
        let count = self.count.lock().unwrap();
        if *count != seen {
            return *count;
        }
        let (count, _) = self.raised.wait_timeout(count, limit).unwrap();
        *count
    }

    fn now(&self) -> u64 {
        *self.count.lock().unwrap()
    }
}

impl Budget {
    /// Nothing is in use.
    pub fn new(sizes: Sizes) -> Budget {
        Budget {
            sizes,
            unmanaged: AtomicU64::new(0),
            managed: AtomicU64::new(0),
            doubled: AtomicU64::new(0),
            peak: Lock::default(),
            samples: AtomicU64::new(0),
            stuck: AtomicBool::new(false),
            holds: AtomicBool::new(false),
            held_by_call: AtomicBool::new(false),
            fast_growth: AtomicBool::new(false),
            braking: AtomicBool::new(false),
            commit_pressure: AtomicBool::new(false),
            tight_lately: AtomicBool::new(false),
            reclaim: Signal::default(),
            progress: Signal::default(),
        }
    }

    /// Raises the peaks to what is in use now.
    pub fn raise_peak(&self, memory: &Memory<u64>) {
        let mut peak = self.peak.lock();
        *peak = peak.zip(memory, u64::max);
    }

    /// Bytes in use, by the newest figures.
    pub fn used(&self) -> u64 {
        self.unmanaged.load(Relaxed) + self.managed.load(Relaxed).saturating_sub(self.doubled.load(Relaxed))
    }

    /// Bytes left of the budget; negative when over it.
    pub fn free(&self) -> i64 {
        self.sizes.budget as i64 - self.used() as i64
    }

    /// Whether new memory is to be registered at once.
    pub fn is_tight(&self) -> bool {
        self.free() < self.sizes.register as i64 || self.commit_pressure.load(Relaxed)
    }

    /// The watermarks in force.
    pub fn marks(&self) -> Marks {
        if self.fast_growth.load(Relaxed) {
            self.sizes.fast_growth
        } else {
            self.sizes.calm
        }
    }

    /// Wakes the reclaim thread.
    pub fn want_reclaim(&self) {
        self.reclaim.raise();
    }

    /// The reclaim thread sleeps until [`Budget::want_reclaim`] or for `limit`; returns the count.
    pub fn wait_for_work(&self, seen: u64, limit: Duration) -> u64 {
        self.reclaim.wait(seen, limit)
    }

    /// Reclaim freed something, or found that it cannot, or a process has ended: wakes waiting
    /// faults.
    pub fn made_progress(&self) {
        self.progress.raise();
    }

    /// Direct reclaim: whether there is too little for a fault that needs `pages`, and it is worth
    /// waiting. Wakes reclaim below the low watermark.
    pub fn is_short(&self, pages: u64) -> bool {
        let free = self.free();
        let left = free - (pages * 4096) as i64;
        let marks = self.marks();
        if left < marks.low as i64 {
            self.want_reclaim();
        }
        let short = left < marks.min as i64 || self.braking.load(Relaxed);
        // The fault that goes beyond this is let go: somebody is chosen only from there on.
        let held = free < -(self.sizes.far_over as i64) && self.holds.load(Relaxed);
        short && (held || !self.stuck.load(Relaxed))
    }

    /// Whether one fault goes on over the budget. It may be in the call that keeps memory from
    /// leaving, or the thread in the call may wait for its thread. Then it would wait for ever.
    pub fn lets_one_pass(&self) -> bool {
        self.held_by_call.load(Relaxed) && self.held_by_call.swap(false, Relaxed)
    }

    /// The count of [`Budget::made_progress`].
    pub fn progress(&self) -> u64 {
        self.progress.now()
    }

    /// Waits until reclaim makes progress after the count `seen`, at most 2 ms.
    pub fn wait_for_progress(&self, seen: u64) {
        self.progress.wait(seen, Duration::from_millis(2));
    }
}

/// Who wants the CPUs. The monitor judges; fault threads and reclaim act by it.
#[derive(Debug, Default)]
pub struct CpuUse {
    /// No more threads want a CPU than there are CPUs.
    pub suffice: AtomicBool,
    /// Programs wait for a CPU: see `Monitor::judge_contention`.
    pub full: AtomicBool,
    /// Fault threads run in SCHED_IDLE: see `fault::Server::behave`.
    pub idle_class: AtomicBool,
    /// The CPU on which faults are served, plus one; 0 if unknown. Set by fault threads.
    pub of_faults: AtomicUsize,
}
