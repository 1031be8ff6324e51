//! Pages that several processes have since a fork. The pager looks from time to time which pages
//! these are.
//!
//! The memory of such a page becomes free when all of them have lost it. If it leaves one process
//! alone, that frees nothing, and the process gets a page of its own when it wants it back. So the
//! pages of one process alone leave first. Runs with no others are set aside: in the queue they
//! would hide the runs behind them. Shared pages leave when all else has left, and all processes
//! give them at the same time.

use crate::core_call::CoreCall;
use crate::engine::Core;
use crate::evict::{BatchSize, Victim};
use crate::ids::{Page, PageRange, ProcId};
use crate::table::{Run, ASIDE};
use alloc::vec::Vec;

/// Runs among which the oldest are chosen.
const LOOKED_AT: usize = 512;

/// What is known of the pages of a run. Bit i: its page i.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sharing {
    /// Other processes have the page, too.
    pub shared: u16,
    /// It is in memory and can be evicted.
    pub takeable: u16,
    /// The run is set aside.
    pub aside: bool,
}

impl Run {
    /// Whether it may leave out of turn: it is not parked, or set aside.
    pub fn may_leave(&self, tick: u64) -> bool {
        self.parked_until <= tick || self.parked_until == ASIDE
    }
}

impl Core {
    /// What is known of a run, by its first page. `None` if the table does not know the run.
    pub fn sharing(&self, proc: ProcId, first: Page) -> Option<Sharing> {
        let run = self.table.run_of(proc, first)?;
        let Run { shared, parked_until, .. } = self.table.runs[run as usize];
        Some(Sharing { shared, takeable: self.takeable(run), aside: parked_until == ASIDE })
    }

    /// Which of up to 64 pages are shared: bit i is page i from `first` on.
    pub fn shared_among(&self, proc: ProcId, first: Page, pages: u32) -> u64 {
        let is_shared = |i: &u64| {
            let page = Page(first.0 + i);
            let run = self.table.run_of(proc, page);
            run.is_some_and(|run| self.table.runs[run as usize].shared >> page.index() & 1 == 1)
        };
        (0..u64::from(pages.min(64))).filter(is_shared).fold(0, |mask, i| mask | 1 << i)
    }

    /// Resident pages of the runs that are set aside, of all processes.
    pub fn pages_aside(&self) -> u64 {
        self.table.procs.iter().flatten().map(|proc| proc.pages_aside).sum()
    }

    /// A look has shown which pages of a run other processes have, too: bit i of `shared` is page
    /// i. Returns how many pages can leave that could not before.
    pub fn shares(&mut self, proc: ProcId, first: Page, shared: u32) -> u32 {
        self.record(&CoreCall::Shares { proc, first, shared });
        let Some(run) = self.table.run_of(proc, first) else { return 0 };
        self.table.share(run, shared as u16);
        let Run { shared, parked_until, .. } = self.table.runs[run as usize];
        let alone = self.takeable(run) & !shared;
        if parked_until != ASIDE || alone == 0 {
            return 0;
        }
        self.table.queue_again(run);
        alone.count_ones()
    }

    /// Nobody else has pages of a process any more.
    pub fn shares_nothing(&mut self, proc: ProcId) {
        self.record(&CoreCall::SharesNothing { proc });
        let mut runs: Vec<u32> = self.table.proc(proc).runs().values().copied().collect();
        // Each goes before the others: the youngest first.
        runs.sort_by_key(|&run| core::cmp::Reverse(self.table.runs[run as usize].stamp));
        for run in runs {
            self.table.share(run, 0);
            if self.table.runs[run as usize].parked_until == ASIDE {
                self.table.queue_again(run);
            }
        }
    }

    /// Victims among the runs that are set aside, when [`Core::pick_victims`] has found none: old
    /// ones of the process that has most, of those for which `may` holds. Waits a little for
    /// processes that have a batch under way, and may have other pages.
    pub fn pick_shared(
        &mut self,
        max_pages: usize,
        tick: u64,
        may: &dyn Fn(ProcId) -> bool,
    ) -> Option<(ProcId, Vec<Victim>)> {
        let mut procs = self.processes(may);
        self.record(&CoreCall::PickShared { most: max_pages as u32, tick, free: &procs });
        if self.driver.only_leaving || self.may_wait_to_share(&procs, tick) {
            return None;
        }
        procs.sort_by_key(|&proc| core::cmp::Reverse(self.table.proc(proc).pages_aside));
        procs.into_iter().find_map(|proc| {
            let room = max_pages.min(self.staging.room(self.table.proc(proc).area) as usize);
            let runs = self.old_runs_aside(proc, room);
            let victims = self.claim(proc, &runs, room);
            (!victims.is_empty()).then_some((proc, victims))
        })
    }

    /// The oldest runs that are set aside, among some of them, for a batch of so many pages: in
    /// order of address.
    fn old_runs_aside(&self, proc: ProcId, room: usize) -> Vec<(u32, u16)> {
        let takeable = self.table.aside(proc).map(|run| (run, self.takeable(run))).filter(|&(_, pages)| pages != 0);
        let mut runs: Vec<(u32, u16)> = takeable.take(LOOKED_AT).collect();
        runs.sort_by_key(|&(run, _)| self.table.runs[run as usize].stamp);
        let mut batch = BatchSize::default();
        let fit = runs.iter().take_while(|&&(_, pages)| batch.takes(pages, room)).count();
        // The first one may be cut.
        runs.truncate(fit.max(1));
        runs.sort_by_key(|&(run, _)| self.table.runs[run as usize].number);
        runs
    }

    /// Claims the shared pages of a range out of turn, since they leave a relative now.
    pub fn claim_shared(&mut self, proc: ProcId, range: PageRange, tick: u64) -> Vec<Victim> {
        self.record(&CoreCall::ClaimShared { proc, range, tick });
        let mut runs: Vec<(u32, u16)> = Vec::new();
        for (run, of_range) in self.table.runs_in(proc, range) {
            let pages = self.takeable(run) & of_range & self.table.runs[run as usize].shared;
            if pages != 0 && self.table.runs[run as usize].may_leave(tick) {
                runs.push((run, pages));
            }
        }
        self.claim(proc, &runs, range.pages as usize)
    }
}
