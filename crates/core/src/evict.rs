//! Eviction: adoption of present pages, choice of victims, results of a batch.

use crate::core_call::CoreCall;
use crate::engine::Core;
use crate::entry::{evictable, BatchSlot, Entry};
use crate::ids::{Page, PageRange, ProcId, StagingSlot, NIL, RUN_PAGES};
use crate::scheme::ReclaimKind;
use crate::table::{Age, Proc, Run, ASIDE, FILES};
use alloc::collections::BinaryHeap;
use alloc::{vec, vec::Vec};
use core::cmp::Reverse;

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

impl Victim {
    /// A bit for each page, as in an [`Answer`].
    pub fn all(&self) -> u64 {
        u64::MAX >> (64 - self.slots.len())
    }
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

/// Runs of a queue without a page that may leave, pinned or hot, that a scan passes before it gives
/// up.
const SCAN_RUNS: u32 = 512;
/// First back-off of a parked run, ticks (milliseconds).
const PARK_TICKS: u64 = 16;
/// The back-off doubles up to `PARK_TICKS << PARK_DOUBLINGS` (16 s).
const PARK_DOUBLINGS: u8 = 10;

/// Longest wait for a process with older pages, or with pages of files, ticks.
const WAIT_TICKS: u64 = 20;

/// How much is in a batch.
#[derive(Default)]
pub(crate) struct BatchSize {
    pages: usize,
    victims: usize,
}

impl BatchSize {
    /// Adds these pages of a run. False if that is more than a batch of so many pages can have.
    pub fn takes(&mut self, pages: u16, max_pages: usize) -> bool {
        self.pages += pages.count_ones() as usize;
        self.victims += (pages & !(pages << 1)).count_ones() as usize;
        self.pages <= max_pages && self.victims <= BATCH_VICTIMS
    }
}

/// Selects one queue in each process.
#[derive(Clone, Copy)]
struct Queue {
    group: usize,
    probation: usize,
}

impl Core {
    /// Makes a present page of a registered range evictable. `zero`: it is the kernel's zero page,
    /// which a fork child may lack, or one that the kernel may drop; a fault there then gives
    /// zeros. If a zap of the range is pending, the page is quarantined. Returns false if the table
    /// had the page already.
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
        let procs = self.processes(may);
        self.record(&CoreCall::PickVictims { most: max_pages as u32, tick, free: &procs });
        procs.iter().for_each(|&proc| self.table.unpark(proc, tick));
        if core::mem::take(&mut self.driver.chooses) {
            // The next choice of this round leaves out those that give now.
            self.driver.open.clone_from(&procs);
        }
        if let Some(found) = self.pick_leaving(&procs, max_pages) {
            return Some(found);
        }
        if self.driver.only_leaving {
            return None;
        }
        let found = self.pick_in_turn(&procs, max_pages, tick);
        if found.is_some() {
            self.waits_to_share = None;
        }
        found
    }

    /// The processes for which `may` holds, in order.
    pub(crate) fn processes(&self, may: &dyn Fn(ProcId) -> bool) -> Vec<ProcId> {
        let all = self.table.procs.iter().enumerate();
        let there = all.filter(|(_, proc)| proc.is_some()).map(|(id, _)| ProcId(id as u32));
        there.filter(|&proc| may(proc)).collect()
    }

    /// Victims by group and age.
    fn pick_in_turn(&mut self, procs: &[ProcId], max_pages: usize, tick: u64) -> Option<(ProcId, Vec<Victim>)> {
        let files_first = self.files_first();
        if files_first && !procs.is_empty() && self.may_wait_for_files(procs, tick) {
            return None;
        }
        let groups = self.table.duel.order(&self.table.groups);
        let files = |wanted| (files_first == wanted).then_some(FILES);
        let groups: Vec<u8> = files(true).into_iter().chain(groups).chain(files(false)).collect();
        let spared = self.counters.spared;
        let found = self.pick_of(&groups, procs, max_pages, false);
        if found.is_some() || self.counters.spared == spared {
            self.waits_for_others = None;
            return found;
        }
        // Hot pages were all that was found.
        if self.may_wait_for_others(procs, tick) {
            return None;
        }
        self.pick_of(&groups, procs, max_pages, true)
    }

    /// Victims of the first of these groups that has some; `hot`: hot pages, too.
    fn pick_of(
        &mut self,
        groups: &[u8],
        procs: &[ProcId],
        max_pages: usize,
        hot: bool,
    ) -> Option<(ProcId, Vec<Victim>)> {
        for &group in groups {
            let queues = [0, 1].map(|probation| Queue { group: usize::from(group), probation });
            let pages = self.table.groups[usize::from(group)];
            let probation_first =
                self.table.duel.probation_first(group, &pages) || self.is_probation_older(queues, procs);
            for queue in [queues[usize::from(probation_first)], queues[usize::from(!probation_first)]] {
                let found = self.pick_from(queue, procs, max_pages, hot);
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
        may_wait(&mut self.waits_for_files, tick)
    }

    /// Whether to wait because other processes, which have a batch under way, may have older pages
    /// than these, whose pages are all hot. The wait is limited, since such a process may be
    /// stopped.
    fn may_wait_for_others(&mut self, procs: &[ProcId], tick: u64) -> bool {
        if !self.others_have_runs(procs) {
            self.waits_for_others = None;
            return false;
        }
        may_wait(&mut self.waits_for_others, tick)
    }

    /// Whether shared pages wait because other processes, which have a batch under way, may have
    /// pages of their own to give. Limited like the waits above, until some leave again.
    pub(crate) fn may_wait_to_share(&mut self, procs: &[ProcId], tick: u64) -> bool {
        let recent = |since: u64| tick.wrapping_sub(since) < WAIT_TICKS;
        self.waits_for_files.is_some_and(recent)
            || self.others_have_runs(procs) && may_wait(&mut self.waits_to_share, tick)
    }

    /// Whether a process that is none of these has runs in its queues.
    fn others_have_runs(&self, procs: &[ProcId]) -> bool {
        let has_runs = |proc: &Proc| proc.queued() > 0;
        let mut others =
            self.table.procs.iter().enumerate().filter(|(id, _)| procs.binary_search(&ProcId(*id as u32)).is_err());
        others.any(|(_, proc)| proc.as_ref().is_some_and(has_runs))
    }

    fn pick_from(
        &mut self,
        queue: Queue,
        procs: &[ProcId],
        max_pages: usize,
        hot: bool,
    ) -> Option<(ProcId, Vec<Victim>)> {
        self.pass_over(queue, procs, hot);
        let is_due = |&(_, proc): &(u64, ProcId)| self.due(self.head(proc, queue), hot) != 0;
        let (_, proc) = procs.iter().filter_map(|&proc| self.oldest(proc, queue)).filter(is_due).min()?;
        let max_pages = max_pages.min(self.staging.room(self.table.proc(proc).area) as usize);
        let runs = self.choose_runs(proc, queue, max_pages, hot);
        let victims = self.claim(proc, &runs, max_pages);
        for (run, due) in runs {
            let claimed = due & !self.takeable(run);
            self.table.probe(run, claimed);
        }
        (!victims.is_empty()).then_some((proc, victims))
    }

    /// Whether the oldest run of a group is on probation. Few runs on probation may stay for a
    /// while, but not for longer than those that are not.
    fn is_probation_older(&self, queues: [Queue; 2], procs: &[ProcId]) -> bool {
        let [other, probation] =
            queues.map(|queue| procs.iter().filter_map(|&proc| self.oldest(proc, queue)).map(|(stamp, _)| stamp).min());
        probation.is_some_and(|probation| other.is_some_and(|other| probation < other))
    }

    fn head(&self, proc: ProcId, queue: Queue) -> u32 {
        self.table.proc(proc).queues[queue.group][queue.probation].head
    }

    /// Age stamp of the oldest run of a process's queue, with the process.
    fn oldest(&self, proc: ProcId, queue: Queue) -> Option<(u64, ProcId)> {
        let head = self.head(proc, queue);
        (head != NIL).then(|| (self.table.runs[head as usize].stamp, proc))
    }

    /// Claims the resident pages of a range out of turn, up to `max_pages` from its upper end: the
    /// stack of a thread that must be made to wait.
    pub fn claim_range(&mut self, proc: ProcId, range: PageRange, max_pages: usize, tick: u64) -> Vec<Victim> {
        self.record(&CoreCall::ClaimRange { proc, range, most: max_pages as u32, tick });
        let mut runs: Vec<(u32, u16)> = Vec::new();
        let mut left = max_pages;
        for (run, of_range) in self.table.runs_in(proc, range).into_iter().rev() {
            if self.table.runs[run as usize].may_leave(tick) {
                let mut claimed = self.takeable(run) & of_range;
                while claimed.count_ones() as usize > left {
                    claimed &= claimed - 1;
                }
                left -= claimed.count_ones() as usize;
                runs.push((run, claimed));
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
        let pinned = self.table.proc(proc).pinned.get(&number);
        resident & !pinned.copied().unwrap_or(0)
    }

    /// While no page of the oldest run of these processes is due, moves that run to the young end,
    /// up to [`SCAN_RUNS`] runs and once around the queue. A hot run of one process does not pass
    /// before an older run of another.
    fn pass_over(&mut self, queue: Queue, procs: &[ProcId], hot: bool) {
        let newest = self.table.newest();
        let mut heads: BinaryHeap<_> = procs.iter().filter_map(|&proc| self.oldest(proc, queue)).map(Reverse).collect();
        for _ in 0..SCAN_RUNS {
            let Some(Reverse((oldest, proc))) = heads.pop() else { return };
            let head = self.head(proc, queue);
            if oldest > newest || self.due(head, hot) != 0 {
                return;
            }
            let takeable = self.takeable(head);
            match (takeable & !self.table.runs[head as usize].shared).count_ones() {
                0 if takeable != 0 => self.table.park(head, ASIDE),
                0 => self.table.requeue(head),
                pages => {
                    self.table.keep(head, !self.observes());
                    self.counters.spared += u64::from(pages);
                }
            }
            heads.extend(self.oldest(proc, queue).map(Reverse));
        }
    }

    /// Pages of a run that leave when it is the oldest: those that the process has alone; `hot`:
    /// hot ones, too.
    fn due(&self, run: u32, hot: bool) -> u16 {
        let Run { shared, heat, .. } = &self.table.runs[run as usize];
        let stay = if hot { 0 } else { heat.hot() };
        self.takeable(run) & !stay & !shared
    }

    /// Most chances that a page gets because it came back at once. None with strict FIFO, and none
    /// where accessed bits tell what is hot.
    pub(crate) fn hot_chances(&self) -> u32 {
        let reclaim = &self.tunables.scheme.reclaim;
        if reclaim.kind == ReclaimKind::Fifo || self.observes() {
            0
        } else {
            reclaim.hot_chances
        }
    }

    /// The oldest runs with pages that are due, as many as fit into a batch whole, and these pages;
    /// only the first may be cut. A run that does not fit must not be among them: runs are claimed
    /// in address order, and those at the upper end would never leave, however old.
    fn choose_runs(&self, proc: ProcId, queue: Queue, max_pages: usize, hot: bool) -> Vec<(u32, u16)> {
        let (mut runs, mut i) = (Vec::new(), self.head(proc, queue));
        let (mut batch, mut passed) = (BatchSize::default(), 0);
        while i != NIL && batch.pages < max_pages && passed < SCAN_RUNS {
            let due = self.due(i, hot);
            if due != 0 {
                if !batch.takes(due, max_pages) && !runs.is_empty() {
                    break;
                }
                runs.push((i, due));
            } else {
                passed += 1;
            }
            i = self.table.runs[i as usize].links.next;
        }
        // Neighbours in address order make longer moves.
        runs.sort_by_key(|&(i, _)| self.table.runs[i as usize].number);
        runs
    }

    /// Claims these pages of runs: bit i of the mask is page i of the run.
    pub(crate) fn claim(&mut self, proc: ProcId, runs: &[(u32, u16)], max_pages: usize) -> Vec<Victim> {
        let area = self.table.proc(proc).area;
        let mut victims: Vec<Victim> = Vec::new();
        let mut pages = 0;
        for &(run, pages_of_run) in runs {
            let number = self.table.runs[run as usize].number;
            for index in (0..RUN_PAGES).filter(|index| pages_of_run >> index & 1 == 1) {
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
        let compressed = self.judge_need(proc);
        let before = self.counters.evicted;
        let shared = self.shared_among(proc, first, pages);
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
                let resident = self.table.present_total;
                self.objects.ages.iter_mut().for_each(|ages| ages.evicted(object, resident));
                if !compressed {
                    self.objects.keep_out(object);
                }
                if shared >> i & 1 == 1 {
                    self.objects.was_shared(object);
                }
                if !file {
                    self.pool_control.reserve_for(object, proc, page);
                }
                self.table.set(proc, page, Entry::Out(object));
                self.table.left(proc, page);
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
                self.table.end_probe(proc, page);
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
                self.driver.refused = true;
                self.driver.refusals += 1;
                let until = tick + (PARK_TICKS << r.park_count);
                r.park_count = (r.park_count + 1).min(PARK_DOUBLINGS);
                self.counters.parked_runs += 1;
                self.table.park(run, until);
            }
        }
    }

    /// Whether other runs may be able to move: of the processes that could give pages in this
    /// round, some are queued, and fewer have refused of late than there are, without those set
    /// aside.
    pub(crate) fn others_had_no_turn(&self) -> bool {
        let open = || self.driver.open.iter().filter_map(|proc| self.table.procs.get(proc.0 as usize)?.as_ref());
        let queued: u64 = open().map(Proc::queued).sum();
        let Some(more) = self.driver.refusals.checked_sub(queued) else { return queued > 0 };
        // No further than needed: it can be all memory.
        queued > 0 && open().flat_map(Proc::parked).take(more as usize).count() as u64 == more
    }

    /// Sets the pages of a process that must stay in memory. Pinned pages that are evicted already
    /// come back when a thread faults on them.
    pub fn pin(&mut self, proc: ProcId, pages: impl Iterator<Item = Page>) {
        let pages: Vec<Page> = pages.collect();
        self.record(&CoreCall::Pin { proc, pages: &pages });
        let pinned = &mut self.table.proc_mut(proc).pinned;
        pinned.clear();
        for page in pages {
            *pinned.entry(page.run()).or_default() |= 1 << page.index();
        }
    }

    /// Ends the parking of all runs of a process: what they waited for has happened. They are the
    /// next to leave.
    pub fn unpark(&mut self, proc: ProcId) {
        self.record(&CoreCall::Unpark { proc });
        let parked = self.table.parked_until(proc, ASIDE - 1);
        parked.into_iter().rev().for_each(|run| self.table.queue_again(run));
        let runs: Vec<u32> = self.table.proc(proc).runs().values().copied().collect();
        for run in runs {
            self.table.runs[run as usize].park_count = 0;
        }
    }
}

/// Whether a wait that began at `since`, or begins now, may go on.
fn may_wait(since: &mut Option<u64>, tick: u64) -> bool {
    tick.wrapping_sub(*since.get_or_insert(tick)) < WAIT_TICKS
}

/// Hash of the 256 KiB region of a page: equal for its pages, and rarely equal for others.
fn region(proc: ProcId, page: Page) -> u32 {
    let key = ((u64::from(proc.0) << 48) ^ (page.0 / 64)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (key >> 32) as u32
}
