//! State that the threads of a process share, and how its memory is divided.

use crate::content::PAGE;
use crate::opts::Opts;
use crate::race::{CounterArea, RaceArea};
use crate::report::{self, Who};
use crate::rng::mix2;
use crate::shared::Shared;
use crate::sys::{Errno, Span};
use std::sync::RwLock;

/// Division of the memory.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Pages of one thread's regions.
    pub region_pages: usize,
    /// Bytes of one thread's heap blocks.
    pub heap_bytes: usize,
    /// Bytes of stack that one thread may use in an operation.
    pub stack_bytes: usize,
    /// Pages of regions that threads share.
    pub shared_pages: usize,
    /// Slots of the race area.
    pub race_slots: usize,
    /// Pages of counters.
    pub counter_pages: usize,
    /// Pages of address space reserved for one thread.
    pub arena_pages: usize,
}

impl Plan {
    /// Divides `size` bytes. A sixth is left for the program itself, page buffers, the model and
    /// the waste of the allocator.
    pub fn new(size: usize, threads: usize) -> Plan {
        let pages = size / PAGE * 5 / 6 - threads * crate::ctx::SCRATCH_PAGES;
        let per_thread = pages * 3 / 4 / threads;
        Plan {
            region_pages: per_thread,
            heap_bytes: pages * PAGE / 20 / threads,
            stack_bytes: (per_thread * PAGE / 32).min(1 << 20),
            shared_pages: pages / 20,
            race_slots: (pages / 20 / 8 / threads).max(2) * threads,
            counter_pages: (pages / 30).clamp(4, 4096),
            arena_pages: per_thread * 6,
        }
    }
}

/// The common state of a process.
pub struct World {
    /// Options.
    pub opts: Opts,
    /// Identity for reports that concern no particular thread.
    pub who: Who,
    /// Seed of this process since its last restart.
    pub seed: u64,
    /// Shares of memory.
    pub plan: Plan,
    /// Reserved addresses of all threads.
    pub arena: Span,
    /// Regions that threads share under locks.
    pub shared: Vec<RwLock<Shared>>,
    /// Race area.
    pub race: RaceArea,
    /// Counters.
    pub counters: CounterArea,
}

impl World {
    /// Maps everything.
    pub fn new(opts: Opts, who: Who) -> World {
        let seed = mix2(mix2(opts.seed, who.process as u64), u64::from(who.life));
        let plan = Plan::new(opts.size, opts.threads);
        fn must<T>(who: &Who, result: Result<T, Errno>) -> T {
            result.unwrap_or_else(|e| report::broken(who, "mapping memory at the start", &e))
        }
        World {
            seed,
            plan,
            arena: must(&who, crate::arena::reserve(plan.arena_pages * opts.threads, seed)),
            shared: must(&who, Shared::create(plan.shared_pages, mix2(seed, 101))),
            race: must(&who, RaceArea::new(plan.race_slots, mix2(seed, 102))),
            counters: must(&who, CounterArea::new(plan.counter_pages, opts.threads)),
            who,
            opts,
        }
    }

    /// Compares everything that threads share, after they have ended; returns the number of pages.
    pub fn verify_all(&self) -> usize {
        let mut pages = self.counters.verify_all(&self.who) + self.race.verify_all(&self.who);
        for shared in &self.shared {
            pages += shared.read().map_or(0, |s| s.verify_all(&self.who));
        }
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_stays_inside_its_size() {
        for threads in [1, 2, 7, 16] {
            for size in [32 << 20, 64 << 20, 256 << 20, 1 << 30] {
                let plan = Plan::new(size, threads);
                let pages = threads * (plan.region_pages + crate::ctx::SCRATCH_PAGES)
                    + plan.shared_pages
                    + plan.race_slots * 8
                    + plan.counter_pages;
                let bytes = pages * PAGE + threads * (plan.heap_bytes + plan.stack_bytes);
                assert!(bytes <= size * 95 / 100, "{threads} {size} {plan:?}");
                assert!(plan.region_pages > 64);
            }
        }
    }
}
