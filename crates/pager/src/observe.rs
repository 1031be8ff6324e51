//! Looks at accessed bits (`reclaim.accessed_bits`, Linux 7.3): which pages the programs have used.
//!
//! The pager protects the resident pages of a process from all access (UFFDIO_RWPROTECT). The
//! kernel takes the protection off a page that is accessed, without a message. A scan of the page
//! table then tells which pages were accessed, and the pager protects all of them again. An access
//! between the two is not seen.

use crate::proc::Proc;
use crate::state::Shared;
use memfit_core::ranges::Ranges;
use memfit_core::{Page, PageRange};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Bytes that are looked at in one go.
const PART: u64 = 16 << 20;
/// Longest time for looks in one sample of the monitor. The next sample goes on.
const LOOK_FOR: Duration = Duration::from_millis(2);

/// What is known of the looks at one process.
struct Look {
    proc: Weak<Proc>,
    /// The address at which the look under way goes on.
    next: Option<u64>,
    /// The core's count of evicted pages when the last look began.
    then: u64,
    /// What the last look has protected, and what the look under way has: accessed bits of other
    /// memory say nothing yet.
    before: Ranges,
    now: Ranges,
}

/// The looks at all paged processes, by their numbers in the core.
#[derive(Default)]
pub struct Looks {
    of: HashMap<u32, Look>,
    /// Number of the process at which the time for looks was over.
    last: u32,
}

impl Looks {
    /// Looks at the processes for which it is time, in parts.
    pub fn sample(&mut self, shared: &Shared) {
        if !shared.uses_accessed_bits() {
            return;
        }
        let mut procs = shared.procs.lock().clone();
        // Each process gets its turn.
        procs.sort_by_key(|proc| proc.id.0);
        let first = procs.partition_point(|proc| proc.id.0 < self.last);
        procs.rotate_left(first);
        self.of.retain(|_, look| look.proc.strong_count() > 0);
        let begun = Instant::now();
        for proc in procs {
            let look = self.of.entry(proc.id.0).or_insert_with(|| Look::at(&proc));
            if !look.proc.ptr_eq(&Arc::downgrade(&proc)) {
                *look = Look::at(&proc);
            }
            if !look.go_on(shared, &proc, begun) {
                self.last = proc.id.0 + 1;
                return;
            }
        }
        self.last = 0;
    }
}

impl Look {
    fn at(proc: &Arc<Proc>) -> Look {
        let (before, now) = Default::default();
        Look { proc: Arc::downgrade(proc), next: None, then: 0, before, now }
    }

    /// Goes on with a look, or begins one if it is due. False if the time for looks is over.
    fn go_on(&mut self, shared: &Shared, proc: &Proc, begun: Instant) -> bool {
        if self.next.is_none() {
            let Some(state) = shared.lock_for(proc) else { return true };
            if !state.core.is_look_due(self.then) {
                return true;
            }
            (self.next, self.then) = (Some(0), state.core.counters().evicted);
        }
        let regions: Vec<(u64, u64)> = proc.regions.lock().within(self.next.unwrap_or(0), u64::MAX).collect();
        for (mut start, end) in regions {
            while let Some(known) = next_known(shared, proc, start).filter(|&known| known < end) {
                start = end.min(known + PART);
                self.look(shared, proc, known, start);
                if begun.elapsed() > LOOK_FOR {
                    self.next = Some(start);
                    return false;
                }
            }
        }
        self.next = None;
        self.before = std::mem::take(&mut self.now);
        true
    }

    /// Looks at a part. One that changes now is left out.
    fn look(&mut self, shared: &Shared, proc: &Proc, start: u64, end: u64) {
        let Some(identity) = proc.identity.get() else { return };
        let mut used = Vec::new();
        let note = |from: u64, to: u64| used.extend((Page::of(from).0..Page::of(to).0).map(Page));
        if identity.pagemap.accessed(start, end, note).is_err() || proc.uffd.watch_accesses(start, end - start).is_err()
        {
            return;
        }
        self.now.add(start, end);
        let Some(mut state) = shared.lock_for(proc) else { return };
        for (start, end) in self.before.within(start, end) {
            let [from, to] = [start, end].map(|at| used.partition_point(|page| page.address() < at));
            state.core.observed(proc.id, PageRange::from_addresses(start, end), &used[from..to]);
        }
    }
}

fn next_known(shared: &Shared, proc: &Proc, start: u64) -> Option<u64> {
    shared.lock_for(proc)?.core.next_known(proc.id, Page::of(start)).map(Page::address)
}
