//! Eviction: adoption of present pages, choice of victims, results of a batch.

use crate::core_call::CoreCall;
use crate::engine::Core;
use crate::entry::{evictable, BatchSlot, Entry};
use crate::ids::{Page, PageRange, ProcId, StagingSlot, NIL, RUN_PAGES};
use crate::table::{Age, Run, FILES};
use alloc::{vec, vec::Vec};

/// Most pages of one [`Victim`]: one MOVE call, one mask of 64 bits.
pub const VICTIM_PAGES: usize = 64;

/// Most [`Victim`]s of one batch.
pub const BATCH_VICTIMS: usize = 64;
/// Most pages of a batch.
pub const BATCH_PAGES: usize = memfit_wire::BATCH_PAGES;

/// Contiguous pages to evict, with the staging slot of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Victim {
    /// First page.
    pub first: Page,
    /// Slot indices in the process's area, one per page; 1..=64.
    pub slots: Vec<u32>,
    /// The kernel may drop some of the pages at any moment, also before the MOVE: the stub must
    /// write to them first.
    pub lazy: bool,
}

/// Result for the pages of a [`Victim`]: bit i is its page i.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answer {
    /// Pages that are in their slots now.
    pub moved: u64,
    /// Pages of a lazy victim that the kernel has dropped: they read as zeros.
    pub dropped: u64,
    /// Parks the runs of the pages that did not move.
    pub park: bool,
    /// Moved pages that are pages of a file and unchanged from it.
    pub file: u64,
}

/// Pinned runs of a queue that a scan passes before it gives up.
const SCAN_RUNS: u32 = 256;
/// First back-off of a parked run, ticks (milliseconds).
const PARK_TICKS: u64 = 16;
/// The back-off doubles up to `PARK_TICKS << PARK_DOUBLINGS` (16 s).
const PARK_DOUBLINGS: u8 = 10;

/// Longest wait for a process with pages of files, ticks.
const FILES_WITHIN: u64 = 20;

/// Selects one queue in each process.
#[derive(Clone, Copy)]
struct Queue {
    group: usize,
    probation: usize,
}

impl Core {
    /// Makes a present page of a registered range evictable. `zero`: it is the kernel's zero page,
    /// which a fork child may lack; a fault there then gives zeros. If a zap of the range is
    /// pending, the page is quarantined. Returns false if the table had the page already.
    pub fn adopt(&mut self, proc: ProcId, page: Page, zero: bool) -> bool {
        self.record(&CoreCall::Adopt { proc, page, zero });
        if self.table.get(proc, page) != Entry::Untracked {
            return false;
        }
        let entry = match self.table.found(proc, page) {
            Entry::Resident if zero => Entry::Lazy,
            found => found,
        };
        self.table.set(proc, page, entry);
        self.counters.adopted += 1;
        true
    }

    /// Chooses victims of up to `max_pages` pages, all of one process for which `may` holds. The
    /// group of runs with the largest resident part comes first, in it the runs on probation if
    /// they shall leave first. Of the processes, the one with the oldest run gives its oldest runs.
    /// The victims become Evicting and hold their slots.
    pub fn pick_victims(
        &mut self,
        max_pages: usize,
        tick: u64,
        may: &dyn Fn(ProcId) -> bool,
    ) -> Option<(ProcId, Vec<Victim>)> {
        let all = 0..self.table.procs.len() as u32;
        let procs: Vec<ProcId> =
            all.map(ProcId).filter(|p| self.table.procs[p.0 as usize].is_some() && may(*p)).collect();
        self.record(&CoreCall::PickVictims { most: max_pages as u32, tick, free: &procs });
        procs.iter().for_each(|&proc| self.table.unpark(proc, tick));
        if let Some(found) = self.pick_leaving(&procs, max_pages) {
            return Some(found);
        }
        if self.driver.only_leaving {
            return None;
        }
        let files_first = self.files_first();
        if files_first && !procs.is_empty() && self.may_wait_for_files(&procs, tick) {
            return None;
        }
        let groups = self.table.duel.order(&self.table.groups);
        let files = |wanted| (files_first == wanted).then_some(FILES);
        for group in files(true).into_iter().chain(groups).chain(files(false)) {
            let pages = self.table.groups[usize::from(group)];
            let probation_first = self.table.duel.probation_first(group, &pages);
            for probation in [probation_first, !probation_first] {
                let queue = Queue { group: usize::from(group), probation: usize::from(probation) };
                let found = self.pick_from(queue, &procs, max_pages);
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// Whether the oldest run of file pages leaves first: its age counts `file_age` times.
    fn files_first(&self) -> bool {
        if self.table.groups[usize::from(FILES)].resident == 0 {
            return false;
        }
        let oldest = |groups: core::ops::Range<usize>| {
            let procs = self.table.procs.iter().flatten();
            let queues = procs.flat_map(|proc| proc.queues[groups.clone()].as_flattened());
            queues.map(|queue| self.table.age(queue.head)).max().unwrap_or(0)
        };
        let files = usize::from(FILES);
        let faster = u64::from(self.tunables.scheme.reclaim.file_age);
        oldest(files..files + 1).saturating_mul(faster) >= oldest(0..files)
    }

    /// Whether to wait because all processes with pages of files have a batch under way: older
    /// pages elsewhere need not leave instead. The wait is limited, since such a process may be
    /// stopped.
    fn may_wait_for_files(&mut self, procs: &[ProcId], tick: u64) -> bool {
        let has_files = |&p: &ProcId| self.table.proc(p).queues[usize::from(FILES)].iter().any(|queue| queue.len > 0);
        if procs.iter().any(has_files) {
            self.waits_for_files = None;
            return false;
        }
        let since = *self.waits_for_files.get_or_insert(tick);
        tick.wrapping_sub(since) < FILES_WITHIN
    }

    fn pick_from(&mut self, queue: Queue, procs: &[ProcId], max_pages: usize) -> Option<(ProcId, Vec<Victim>)> {
        let mut oldest = None;
        for &p in procs {
            self.pass_pinned(p, queue);
            oldest = [oldest, self.oldest(p, queue).map(|stamp| (stamp, p))].into_iter().flatten().min();
        }
        let (_, proc) = oldest?;
        let max_pages = max_pages.min(self.staging.room(self.table.proc(proc).area) as usize);
        let runs = self.choose_runs(proc, queue, max_pages);
        let victims = self.claim(proc, &runs, max_pages);
        victims.iter().any(|victim| !victim.slots.is_empty()).then_some((proc, victims))
    }

    fn head(&self, proc: ProcId, queue: Queue) -> u32 {
        self.table.proc(proc).queues[queue.group][queue.probation].head
    }

    /// Claims the resident pages of a range out of turn, up to `max_pages` from its upper end: the
    /// stack of a thread that must be made to wait.
    pub fn claim_range(&mut self, proc: ProcId, range: PageRange, max_pages: usize, tick: u64) -> Vec<Victim> {
        self.record(&CoreCall::ClaimRange { proc, range, most: max_pages as u32, tick });
        let mut runs: Vec<u32> = Vec::new();
        let mut pages = 0;
        for (page, entry) in self.table.tracked(proc, range).into_iter().rev() {
            if pages == max_pages {
                break;
            }
            let Some(run) = self.table.run_of(proc, page) else { continue };
            if evictable(entry) && self.table.runs[run as usize].parked_until <= tick {
                pages += 1;
                if runs.last() != Some(&run) {
                    runs.push(run);
                }
            }
        }
        runs.reverse();
        self.claim(proc, &runs, max_pages)
    }

    /// Pages of a run that are evictable and not pinned: bit i is its page i.
    pub(crate) fn takeable(&self, run: u32) -> u16 {
        let Run { proc, number, .. } = self.table.runs[run as usize];
        let resident = (0..RUN_PAGES as usize).filter(|&i| evictable(self.table.entry_in(run, i)));
        let resident = resident.fold(0, |mask, i| mask | 1 << i);
        let (first, end) = (number * RUN_PAGES, (number + 1) * RUN_PAGES);
        let pinned = self.table.proc(proc).pinned.range(Page(first)..Page(end));
        pinned.fold(resident, |mask, page| mask & !(1 << page.index()))
    }

    /// Moves runs whose pages are all pinned from the old end of the queue to the young one. At the
    /// old end they would make their process the next victim for ever.
    fn pass_pinned(&mut self, proc: ProcId, queue: Queue) {
        for _ in 0..SCAN_RUNS {
            let head = self.head(proc, queue);
            if head == NIL || self.takeable(head) != 0 {
                return;
            }
            self.table.requeue(head);
        }
    }

    /// Age stamp of the oldest run, if one of its pages can be taken.
    fn oldest(&self, proc: ProcId, queue: Queue) -> Option<u64> {
        let head = self.head(proc, queue);
        (head != NIL && self.takeable(head) != 0).then(|| self.table.runs[head as usize].stamp)
    }

    /// The oldest runs, as many as fit into a batch whole; only the first may be cut. A run that
    /// does not fit must not be among them: runs are claimed in address order, and those at the
    /// upper end would never leave, however old.
    fn choose_runs(&self, proc: ProcId, queue: Queue, max_pages: usize) -> Vec<u32> {
        let (mut runs, mut i) = (Vec::new(), self.head(proc, queue));
        let (mut pages, mut victims, mut pinned) = (0, 0, 0);
        while i != NIL && pages < max_pages && pinned < SCAN_RUNS {
            let run = &self.table.runs[i as usize];
            let takeable = self.takeable(i);
            if takeable != 0 {
                pages += takeable.count_ones() as usize;
                victims += (takeable & !(takeable << 1)).count_ones() as usize;
                if (pages > max_pages || victims > BATCH_VICTIMS) && !runs.is_empty() {
                    break;
                }
                runs.push(i);
            } else {
                pinned += 1;
            }
            i = run.links.next;
        }
        // Neighbours in address order make longer moves.
        runs.sort_by_key(|&i| self.table.runs[i as usize].number);
        runs
    }

    pub(crate) fn claim(&mut self, proc: ProcId, runs: &[u32], max_pages: usize) -> Vec<Victim> {
        let area = self.table.proc(proc).area;
        let mut victims: Vec<Victim> = Vec::new();
        let mut pages = 0;
        for &run in runs {
            let (number, takeable) = (self.table.runs[run as usize].number, self.takeable(run));
            for index in (0..RUN_PAGES).filter(|index| takeable >> index & 1 == 1) {
                if pages >= max_pages {
                    break;
                }
                let (page, entry) = (Page(number * RUN_PAGES + index), self.table.entry_in(run, index as usize));
                let Some(slot) = self.staging.take(area) else { return victims };
                let lazy = entry == Entry::Lazy;
                self.table.set(proc, page, Entry::Evicting(BatchSlot::new(slot.index, lazy)));
                pages += 1;
                match victims.last_mut() {
                    Some(v) if v.first.0 + v.slots.len() as u64 == page.0 && v.slots.len() < VICTIM_PAGES => {
                        v.slots.push(slot.index);
                        v.lazy |= lazy;
                    }
                    _ => victims.push(Victim { first: page, slots: vec![slot.index], lazy }),
                }
            }
        }
        victims
    }

    /// Result for pages `first .. first + pages` of a batch. Pages that did not move are still in
    /// the program.
    pub fn evicted(&mut self, proc: ProcId, first: Page, pages: u32, answer: Answer, tick: u64) {
        self.record(&CoreCall::Evicted { proc, first, pages, answer, tick });
        let Answer { moved, dropped, park, file } = answer;
        let area = self.table.proc(proc).area;
        let leaves = self.leaving.contains(&proc);
        let before = self.counters.evicted;
        for i in 0..pages {
            let page = Page(first.0 + u64::from(i));
            let entry = self.table.get(proc, page);
            let Entry::Evicting(batch_slot) = entry else {
                panic!("page {:#x} was in a batch but is {entry:?}", page.address())
            };
            let slot = StagingSlot { area, index: batch_slot.index() };
            if moved >> i & 1 == 1 {
                let fetched = self.table.fetched(proc, page);
                let file = file >> i & 1 == 1;
                let object = self.objects.create(slot, region(proc, page), page.run(), fetched, file);
                if !file {
                    self.pool_control.reserve_for(object, proc, page);
                }
                self.table.set(proc, page, Entry::Out(object));
                if leaves {
                    self.table.leaves_together(proc, page);
                }
                self.counters.evicted += 1;
            } else {
                self.staging.give_back(slot);
                let entry = match batch_slot.was_lazy() {
                    false => Entry::Resident,
                    true if dropped >> i & 1 == 1 => Entry::Untracked,
                    true => Entry::Lazy,
                };
                self.table.set_aged(proc, page, entry, Age::Back);
                self.counters.not_moved += 1;
            }
        }
        if leaves {
            self.left(proc, self.counters.evicted - before, pages);
        }
        self.park_runs(proc, first, pages, park, tick);
    }

    fn park_runs(&mut self, proc: ProcId, first: Page, pages: u32, park: bool, tick: u64) {
        for number in first.run()..=Page(first.0 + u64::from(pages) - 1).run() {
            let Some(run) = self.table.run_of(proc, Page(number * RUN_PAGES)) else { continue };
            let r = &mut self.table.runs[run as usize];
            if !park {
                r.park_count = 0;
            } else if r.resident > 0 {
                let until = tick + (PARK_TICKS << r.park_count);
                r.park_count = (r.park_count + 1).min(PARK_DOUBLINGS);
                self.counters.parked_runs += 1;
                self.table.park(run, until);
            }
        }
    }

    /// Sets the pages of a process that must stay in memory. Pinned pages that are evicted already
    /// come back when a thread faults on them.
    pub fn pin(&mut self, proc: ProcId, pages: impl Iterator<Item = Page>) {
        let pages: Vec<Page> = pages.collect();
        self.record(&CoreCall::Pin { proc, pages: &pages });
        self.table.proc_mut(proc).pinned = pages.into_iter().collect();
    }

    /// Ends the parking of all runs of a process: what they waited for has happened.
    pub fn unpark(&mut self, proc: ProcId) {
        self.record(&CoreCall::Unpark { proc });
        self.table.unpark(proc, u64::MAX);
        let runs: Vec<u32> = self.table.proc(proc).runs().values().copied().collect();
        for run in runs {
            self.table.runs[run as usize].park_count = 0;
        }
    }
}

/// Hash of the 256 KiB region of a page: equal for its pages, and rarely equal for others.
fn region(proc: ProcId, page: Page) -> u32 {
    let key = ((u64::from(proc.0) << 48) ^ (page.0 / 64)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (key >> 32) as u32
}
