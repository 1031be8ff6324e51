//! Accessed bits: which resident pages the programs have used. Linux 7.3 and later tell them, and
//! the pager looks from time to time (`reclaim.accessed_bits`).
//!
//! Each look gives a chance to stay to a page that was accessed since the look before, and takes
//! one from a page that was not: see [`crate::heat`]. This is aging: a page that is used often
//! outlasts a page that was used once.

use crate::core_call::CoreCall;
use crate::engine::Core;
use crate::heat::PERIOD_MIN;
use crate::ids::{Page, PageRange, ProcId, RUN_PAGES};

/// Looks in the time in which as many pages leave as are in memory. More looks tell less: fewer
/// pages are accessed between two of them, and each access to a protected page costs a fault.
const LOOKS: u64 = 4;

impl Core {
    /// Whether accessed bits say which pages are hot.
    pub(crate) fn observes(&self) -> bool {
        self.tunables.scheme.reclaim.accessed_bits != 0
    }

    /// Whether it is time for a look, if the last one began when [`crate::Counters::evicted`] was
    /// `then`. Pages of other processes count: those of a process that does nothing grow cold, too.
    pub fn is_look_due(&self, then: u64) -> bool {
        self.counters.evicted - then >= (self.table.present_total / LOOKS).max(PERIOD_MIN)
    }

    /// The first page from this one on of which the table may know something.
    pub fn next_known(&self, proc: ProcId, page: Page) -> Option<Page> {
        let (&number, _) = self.table.proc(proc).runs().range(page.run()..).next()?;
        Some(Page(page.0.max(number * RUN_PAGES)))
    }

    /// A look has shown which pages of a range were accessed since the look before, in the order of
    /// their addresses.
    pub fn observed(&mut self, proc: ProcId, range: PageRange, accessed: &[Page]) {
        self.record(&CoreCall::Observed { proc, first: range.first, looked_at: range.pages as u32, accessed });
        let mut rest = accessed;
        for (run, of_range) in self.table.runs_in(proc, range) {
            let number = self.table.runs[run as usize].number;
            rest = &rest[rest.partition_point(|page| page.run() < number)..];
            let (here, later) = rest.split_at(rest.partition_point(|page| page.run() == number));
            rest = later;
            let accessed = here.iter().fold(0, |mask, page| mask | 1 << page.index());
            let pages = self.takeable(run) & of_range;
            let used = self.table.runs[run as usize].heat.observe(pages, accessed);
            self.counters.accessed += u64::from(used.count_ones());
        }
    }
}
