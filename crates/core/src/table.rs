//! The page table: the state of each page of each process.
//!
//! A run holds sixteen entries of 4 bytes. A B-tree per process, keyed by run number, finds the
//! runs, so that operations on ranges (munmap, mremap) cost only what they cover.

use crate::core_call::Decided;
use crate::duel::{Duel, Group, GROUPS};
use crate::entry::{coming, evictable, evicting, out, present, quarantined, Entry, Packed};
use crate::grow::reserve_tight;
use crate::heat::{Heat, Periods};
use crate::ids::{AreaId, Page, PageRange, ProcId, NIL, RUN_PAGES};
use crate::list::{Linked, Links, List};
use crate::per_process::ProcessReclaim;
use crate::scheme::ReclaimKind;
use crate::zap_pending::ZapPending;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cell::Cell;

/// The group of runs with pages of files, if those age faster; in addition to the duel's groups.
pub(crate) const FILES: u8 = GROUPS as u8;
const QUEUES: usize = GROUPS + 1;

/// In [`Run::parked_until`]: set aside ([`crate::sharing`]).
pub(crate) const ASIDE: u64 = u64::MAX;

/// Sixteen contiguous pages, aligned.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub proc: ProcId,
    /// Run number: address / 64 KiB.
    pub number: u64,
    entries: [Packed; RUN_PAGES as usize],
    pub links: Links,
    /// Age: the table's clock when the run was last queued.
    pub stamp: u64,
    /// The run is parked until this tick (after EBUSY and the like), or [`ASIDE`]; 0 if it is not
    /// parked.
    pub parked_until: u64,
    /// Back-off exponent of the parking.
    pub park_count: u8,
    /// Number of Resident and Lazy entries. While it is not 0, the run is either queued or parked.
    pub resident: u8,
    /// Which queues of its process it belongs to.
    pub group: u8,
    pub probation: bool,
    /// Bit i: page i came from the swap tier or from its file when it last came back.
    fetched: u16,
    /// Bit i: page i is of its process's working set. It left when the process was reclaimed as a
    /// whole, and is outside since then.
    pub left_together: u16,
    /// Bit i: page i is resident, and other processes have it, too.
    pub shared: u16,
    /// Which of its pages come back as soon as they leave.
    pub heat: Heat,
}

/// Where a run is queued when one of its pages becomes resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// At the young end: new memory, or memory that refaulted from staging.
    Young,
    /// The page came back from the pool or the swap tier, or did not move: the run's group decides.
    Back,
}

/// A process's part of the table.
#[derive(Debug)]
pub(crate) struct Proc {
    runs: BTreeMap<u64, u32>,
    /// The run that was looked up last: faults often ask for the same run again.
    found: Cell<(u64, u32)>,
    /// Runs with resident pages by group, oldest first: those not on probation, and those on
    /// probation.
    pub queues: [[List; 2]; QUEUES],
    /// Parked runs by tick: not queued, because there they would hide the runs behind them.
    parked: BTreeSet<(u64, u32)>,
    /// Resident pages of runs that are set aside.
    pub pages_aside: u64,
    /// Entries that are Resident, Lazy, Quarantined or Evicting: pages in the program's memory.
    pub present_pages: u64,
    pub quarantined_pages: u64,
    /// Numbers of runs that have, or had, a quarantined page.
    quarantined_runs: BTreeSet<u64>,
    pub evicting_pages: u64,
    pub area: AreaId,
    /// Pages that must stay: the kernel needs them at thread exit, where it serves no userfault. By
    /// the number of their run: bit i is its page i.
    pub pinned: BTreeMap<u64, u16>,
    /// Incremented whenever a proof begins.
    pub epoch: u32,
    pub zap_pending: ZapPending,
    /// In a fork child: its parent, and whether the child inherits the pages that are in memory,
    /// too.
    pub inherits: Option<(ProcId, bool)>,
    /// Entries that are Loading or Filling.
    pub coming_pages: u64,
    /// Its reclaim as a whole, if it was told to leave.
    pub reclaim: Option<ProcessReclaim>,
    /// It leaves as a whole when memory is short.
    pub background: bool,
    /// Load control lets it wait.
    pub held: bool,
    /// How often it came to the foreground again.
    pub returns: u32,
    /// Runs below this number are judged, if they were on trial at its last return.
    pub judged_to: u64,
    /// It is not chosen by [`Core::pick_oom_victim`](crate::Core::pick_oom_victim).
    pub protected: bool,
    /// Entries that are Out.
    pub out_pages: u64,
    /// The pool takes its pages ([`Core::is_compressed`](crate::Core::is_compressed)).
    pub compressed: bool,
}

/// Run number that stands for "none".
const NO_RUN: u64 = u64::MAX;

impl Proc {
    /// How many runs are queued.
    pub fn queued(&self) -> u64 {
        self.queues.as_flattened().iter().map(|queue| u64::from(queue.len)).sum()
    }

    /// Runs that are parked, without those that are set aside.
    pub fn parked(&self) -> impl Iterator<Item = u32> + '_ {
        self.parked.range(..(ASIDE, 0)).map(|&(_, run)| run)
    }

    /// All runs, by number.
    pub fn runs(&self) -> &BTreeMap<u64, u32> {
        &self.runs
    }

    fn run(&self, number: u64) -> Option<u32> {
        let (found, run) = self.found.get();
        if found == number {
            return Some(run);
        }
        let run = *self.runs.get(&number)?;
        self.found.set((number, run));
        Some(run)
    }

    fn add_run(&mut self, number: u64, run: u32) {
        self.runs.insert(number, run);
        self.found.set((number, run));
    }

    fn remove_run(&mut self, number: u64) -> Option<u32> {
        self.found.set((NO_RUN, NIL));
        self.runs.remove(&number)
    }
}

/// All runs of all processes.
#[derive(Debug)]
pub(crate) struct Table {
    pub runs: Vec<Run>,
    free: Vec<u32>,
    pub procs: Vec<Option<Proc>>,
    /// Sum of the processes' present pages.
    pub present_total: u64,
    pub groups: [Group; QUEUES],
    pub duel: Duel,
    periods: Periods,
    clock: u64,
    pub decided: Decided,
}

/// First value of the clock. A run put before the oldest one gets a smaller stamp.
const FIRST_STAMP: u64 = 1 << 40;

struct RunArena<'a>(&'a mut Vec<Run>);

impl Linked for RunArena<'_> {
    fn links(&mut self, i: u32) -> &mut Links {
        &mut self.0[i as usize].links
    }
}

impl Table {
    pub fn new(kind: ReclaimKind) -> Table {
        Table {
            runs: Vec::new(),
            free: Vec::new(),
            procs: Vec::new(),
            present_total: 0,
            groups: [Group::default(); QUEUES],
            duel: Duel::of_resident(kind),
            periods: Periods::default(),
            clock: FIRST_STAMP,
            decided: Decided::default(),
        }
    }

    pub fn proc(&self, id: ProcId) -> &Proc {
        self.procs[id.0 as usize].as_ref().expect("process is in the table")
    }

    pub fn proc_mut(&mut self, id: ProcId) -> &mut Proc {
        self.procs[id.0 as usize].as_mut().expect("process is in the table")
    }

    pub fn add_proc(&mut self, area: AreaId) -> ProcId {
        let proc = Proc {
            runs: BTreeMap::new(),
            found: Cell::new((NO_RUN, NIL)),
            queues: [[List::EMPTY; 2]; QUEUES],
            parked: BTreeSet::new(),
            pages_aside: 0,
            present_pages: 0,
            quarantined_pages: 0,
            quarantined_runs: BTreeSet::new(),
            evicting_pages: 0,
            area,
            pinned: BTreeMap::new(),
            epoch: 0,
            zap_pending: ZapPending::default(),
            inherits: None,
            coming_pages: 0,
            reclaim: None,
            background: false,
            held: false,
            returns: 0,
            judged_to: 0,
            protected: false,
            out_pages: 0,
            compressed: false,
        };
        match self.procs.iter().position(Option::is_none) {
            Some(i) => {
                self.procs[i] = Some(proc);
                ProcId(i as u32)
            }
            None => {
                self.procs.push(Some(proc));
                ProcId(self.procs.len() as u32 - 1)
            }
        }
    }

    pub fn get(&self, proc: ProcId, page: Page) -> Entry {
        self.run_of(proc, page).map_or(Entry::Untracked, |run| self.entry_in(run, page.index()))
    }

    /// The entries of `pages` pages, in order.
    pub fn entries(&self, proc: ProcId, first: Page, pages: u32) -> impl Iterator<Item = Entry> + '_ {
        let of = self.proc(proc);
        let mut known: Option<(u64, Option<u32>)> = None;
        (first.0..first.0 + u64::from(pages)).map(move |number| {
            let page = Page(number);
            let run = match known {
                Some((last, run)) if last == page.run() => run,
                _ => known.insert((page.run(), of.run(page.run()))).1,
            };
            run.map_or(Entry::Untracked, |run| self.entry_in(run, page.index()))
        })
    }

    /// Whether all of these pages are in the program's memory and can be evicted.
    pub fn all_resident(&self, proc: ProcId, pages: core::ops::Range<u64>) -> bool {
        let (first, last) = (Page(pages.start).run(), Page(pages.end.saturating_sub(1)).run());
        (first..=last).all(|number| {
            let Some(run) = self.proc(proc).run(number) else { return false };
            let all = pages.start.max(number * RUN_PAGES)..pages.end.min((number + 1) * RUN_PAGES);
            all.into_iter().all(|page| evictable(self.entry_in(run, Page(page).index())))
        })
    }

    /// The entry of a page that was just filled.
    pub fn entry_when_filled(&self, proc: ProcId, page: Page) -> Entry {
        self.proc(proc).zap_pending.of(page).map_or(Entry::Resident, |_| Entry::Lazy)
    }

    /// The entry of a page that was found in the program's memory; its contents can be older than a
    /// REMOVE.
    pub fn found(&self, proc: ProcId, page: Page) -> Entry {
        self.proc(proc).zap_pending.of(page).map_or(Entry::Resident, Entry::Quarantined)
    }

    pub fn run_of(&self, proc: ProcId, page: Page) -> Option<u32> {
        self.proc(proc).run(page.run())
    }

    pub fn entry_in(&self, run: u32, index: usize) -> Entry {
        self.runs[run as usize].entries[index].get()
    }

    /// Changes an entry. A page that becomes resident makes its run young.
    pub fn set(&mut self, proc: ProcId, page: Page, new: Entry) {
        self.set_aged(proc, page, new, Age::Young);
    }

    /// The only function that changes an entry; it updates counts and queues.
    ///
    /// # Panics
    /// If no such transition exists: the page's bytes would be nowhere, or in two places.
    pub fn set_aged(&mut self, proc: ProcId, page: Page, new: Entry, age: Age) {
        let run = match self.run_of(proc, page) {
            Some(run) => run,
            None if new == Entry::Untracked => return,
            None => self.new_run(proc, page.run()),
        };
        let old = self.entry_in(run, page.index());
        assert!(old.may_become(new), "page {:#x} cannot become {new:?}: it is {old:?}", page.address());
        let packed = Packed::new(new);
        self.decided.mix(u64::from(proc.0) << 52 ^ page.0, packed.0.into());
        self.runs[run as usize].entries[page.index()] = packed;
        if !evictable(new) && evicting(new) == 0 {
            self.runs[run as usize].shared &= !(1 << page.index());
        }
        if out(new) == 0 && coming(new) == 0 {
            self.runs[run as usize].left_together &= !(1 << page.index());
        }
        if matches!(new, Entry::Untracked | Entry::Quarantined(_) | Entry::Filling(_)) {
            self.runs[run as usize].heat.forget(page.index());
        }
        let p = self.proc_mut(proc);
        p.present_pages = p.present_pages + present(new) - present(old);
        p.quarantined_pages = p.quarantined_pages + quarantined(new) - quarantined(old);
        if quarantined(new) == 1 {
            p.quarantined_runs.insert(page.run());
        }
        p.evicting_pages = p.evicting_pages + evicting(new) - evicting(old);
        p.coming_pages = p.coming_pages + coming(new) - coming(old);
        p.out_pages = p.out_pages + out(new) - out(old);
        self.present_total = self.present_total + present(new) - present(old);
        let Run { group, probation, .. } = self.runs[run as usize];
        let pages = &mut self.groups[usize::from(group)];
        pages.out = pages.out + out(new) - out(old);
        match (evictable(old), evictable(new)) {
            (false, true) => {
                pages.resident += 1;
                pages.probation += u64::from(probation);
                self.runs[run as usize].resident += 1;
                self.came(run, age);
            }
            (true, false) => {
                pages.resident -= 1;
                pages.probation -= u64::from(probation);
                self.runs[run as usize].resident -= 1;
                if self.runs[run as usize].parked_until == ASIDE {
                    self.proc_mut(proc).pages_aside -= 1;
                }
                if self.runs[run as usize].resident == 0 {
                    self.take_out(run);
                }
            }
            _ => {}
        }
    }

    /// A page of the run has become resident.
    fn came(&mut self, run: u32, age: Age) {
        let Run { proc, group, probation, resident, parked_until, .. } = self.runs[run as usize];
        let aside = parked_until == ASIDE;
        if aside {
            // It has others than shared ones now, or a shared one could not leave.
            self.proc_mut(proc).pages_aside += 1;
            self.forget_parked(run);
        }
        match age {
            Age::Young => self.enqueue(run, false),
            Age::Back if resident == 1 || aside => {
                let probation = self.duel.on_probation(group);
                self.enqueue(run, probation);
            }
            Age::Back if probation || !self.duel.bimodal(group) => self.enqueue(run, probation),
            // A neighbour that stayed resident says nothing about this page.
            Age::Back => {}
        }
    }

    /// Moves the run of a page that has come to the group of file pages, or out of it. In a mixed
    /// run the last page that came decides.
    pub fn is_of_file(&mut self, proc: ProcId, page: Page, file: bool) {
        let Some(run) = self.run_of(proc, page) else { return };
        let Run { number, group, probation, resident, .. } = self.runs[run as usize];
        if (group == FILES) == file {
            return;
        }
        let to = if file { FILES } else { self.duel.group(number) };
        let parked = self.runs[run as usize].parked_until != 0;
        if resident > 0 && !parked {
            self.unqueue(run);
        }
        let outside = self.runs[run as usize].entries.iter().map(|entry| out(entry.get())).sum::<u64>();
        let pages = u64::from(resident);
        for (of, come) in [(group, false), (to, true)] {
            let Group { resident, probation: on_probation, out } = &mut self.groups[usize::from(of)];
            let count = |sum: &mut u64, pages| *sum = if come { *sum + pages } else { *sum - pages };
            count(resident, pages);
            count(on_probation, if probation { pages } else { 0 });
            count(out, outside);
        }
        self.runs[run as usize].group = to;
        if resident > 0 && !parked {
            self.enqueue(run, probation);
        }
    }

    /// Notes which pages of a run, of those in memory, other processes have, too.
    pub fn share(&mut self, run: u32, shared: u16) {
        let run = &mut self.runs[run as usize];
        let present = |&i: &usize| evictable(run.entries[i].get()) || evicting(run.entries[i].get()) == 1;
        let present = (0..RUN_PAGES as usize).filter(present).fold(0, |mask, i| mask | 1 << i);
        run.shared = shared & present;
    }

    /// Stamp of the run that was queued last.
    pub fn newest(&self) -> u64 {
        self.clock
    }

    /// Age of the oldest run of a queue, in runs queued since then.
    pub fn age(&self, head: u32) -> u64 {
        if head == NIL {
            0
        } else {
            self.clock - self.runs[head as usize].stamp + 1
        }
    }

    /// A page comes back from the pool or, with `fetched`, from the swap tier or from its file.
    pub fn came_back(&mut self, proc: ProcId, page: Page, fetched: bool) {
        if let Some(run) = self.run_of(proc, page) {
            let r = &mut self.runs[run as usize];
            let bit = 1 << page.index();
            r.fetched = if fetched { r.fetched | bit } else { r.fetched & !bit };
            self.duel.came_back(r.group, &self.groups);
        }
    }

    /// Notes that the page, which the process uses, left when it was reclaimed as a whole.
    pub fn leaves_together(&mut self, proc: ProcId, page: Page) {
        if let Some(run) = self.run_of(proc, page) {
            self.runs[run as usize].left_together |= 1 << page.index();
            // The pager brings it back, whether a thread asks for it or not.
            self.runs[run as usize].heat.end_probe(page.index());
        }
    }

    /// Pages of a run are about to leave because they are the oldest.
    pub fn probe(&mut self, run: u32, pages: u16) {
        let now = self.periods.now();
        self.runs[run as usize].heat.probe(pages, now);
    }

    /// A page has left.
    pub fn left(&mut self, proc: ProcId, page: Page) {
        self.periods.count(self.present_total, self.groups.iter().map(|group| group.out).sum());
        let now = self.periods.now();
        if let Some(run) = self.run_of(proc, page) {
            self.runs[run as usize].heat.leave(page.index(), now);
        }
    }

    /// A thread faults on a page that had left, and the page comes back. `most`: see
    /// [`Heat::faulted`].
    pub fn faulted(&mut self, proc: ProcId, page: Page, most: u32) {
        let now = self.periods.now();
        if let Some(run) = self.run_of(proc, page) {
            self.runs[run as usize].heat.faulted(page.index(), now, most);
        }
    }

    /// A page has come back.
    pub fn come(&mut self, proc: ProcId, page: Page) {
        if let Some(run) = self.run_of(proc, page) {
            self.runs[run as usize].heat.come(page.index());
        }
    }

    /// A page has stayed in memory, although it was to leave: that shows nothing.
    pub fn end_probe(&mut self, proc: ProcId, page: Page) {
        if let Some(run) = self.run_of(proc, page) {
            self.runs[run as usize].heat.end_probe(page.index());
        }
    }

    /// Whether the page came from the swap tier or from its file when it last came back.
    pub fn fetched(&self, proc: ProcId, page: Page) -> bool {
        self.run_of(proc, page).is_some_and(|run| self.runs[run as usize].fetched >> page.index() & 1 == 1)
    }

    /// Moves a run with resident pages to the young end of its queue.
    pub fn requeue(&mut self, run: u32) {
        self.enqueue(run, self.runs[run as usize].probation);
    }

    /// The same for a run whose hot pages stay: it is on probation no more. `costs`: that takes a
    /// chance from each of them.
    pub fn keep(&mut self, run: u32, costs: bool) {
        if costs {
            let now = self.periods.now();
            self.runs[run as usize].heat.stay(now);
        }
        self.enqueue(run, false);
    }

    /// Puts a run with resident pages at the young end of a queue of its group, unless it is
    /// parked.
    fn enqueue(&mut self, run: u32, probation: bool) {
        if self.runs[run as usize].parked_until != 0 {
            return;
        }
        if self.queued(run) {
            self.unqueue(run);
        }
        self.clock += 1;
        let stamp = self.clock;
        let r = &mut self.runs[run as usize];
        let before = core::mem::replace(&mut r.probation, probation);
        r.stamp = stamp;
        let (proc, group, pages) = (r.proc, usize::from(r.group), u64::from(r.resident));
        match (before, probation) {
            (false, true) => self.groups[group].probation += pages,
            (true, false) => self.groups[group].probation -= pages,
            _ => {}
        }
        let mut queue = self.proc(proc).queues[group][usize::from(probation)];
        queue.push_back(&mut RunArena(&mut self.runs), run);
        self.proc_mut(proc).queues[group][usize::from(probation)] = queue;
    }

    fn queued(&self, run: u32) -> bool {
        let r = &self.runs[run as usize];
        r.links != Links::UNLINKED
            || self.proc(r.proc).queues[usize::from(r.group)][usize::from(r.probation)].head == run
    }

    fn unqueue(&mut self, run: u32) {
        let Run { proc, group, probation, .. } = self.runs[run as usize];
        let mut queue = self.proc(proc).queues[usize::from(group)][usize::from(probation)];
        queue.remove(&mut RunArena(&mut self.runs), run);
        self.proc_mut(proc).queues[usize::from(group)][usize::from(probation)] = queue;
    }

    /// Takes a run out of its queue or out of the parked runs.
    fn take_out(&mut self, run: u32) {
        if self.runs[run as usize].parked_until == 0 {
            return self.unqueue(run);
        }
        self.forget_parked(run);
    }

    /// Ends the parking of a run; does not queue it.
    fn forget_parked(&mut self, run: u32) {
        let Run { proc, parked_until, resident, .. } = self.runs[run as usize];
        self.proc_mut(proc).parked.remove(&(parked_until, run));
        if parked_until == ASIDE {
            self.proc_mut(proc).pages_aside -= u64::from(resident);
        }
        self.runs[run as usize].parked_until = 0;
    }

    /// Parks a run with resident pages until a tick.
    pub fn park(&mut self, run: u32, until: u64) {
        self.take_out(run);
        let r = &mut self.runs[run as usize];
        r.parked_until = until.max(1);
        let (proc, key, pages) = (r.proc, (r.parked_until, run), u64::from(r.resident));
        self.proc_mut(proc).parked.insert(key);
        if until == ASIDE {
            self.proc_mut(proc).pages_aside += pages;
        }
    }

    /// The runs of a process that are set aside.
    pub fn aside(&self, proc: ProcId) -> impl Iterator<Item = u32> + '_ {
        self.proc(proc).parked.range((ASIDE, 0)..).map(|&(_, run)| run)
    }

    /// Ends the parking of runs whose tick has come. Puts them at the young end of their queues:
    /// they may refuse again, and must not be in front of those that were not tried yet.
    pub fn unpark(&mut self, proc: ProcId, tick: u64) {
        for run in self.parked_until(proc, tick) {
            self.forget_parked(run);
            self.requeue(run);
        }
    }

    /// The runs that are parked until this tick or less, oldest first.
    pub fn parked_until(&self, proc: ProcId, tick: u64) -> Vec<u32> {
        let mut parked: Vec<u32> = self.proc(proc).parked.range(..=(tick, u32::MAX)).map(|&(_, run)| run).collect();
        parked.sort_by_key(|&run| self.runs[run as usize].stamp);
        parked
    }

    /// Puts a parked run at the old end of its queue.
    pub fn queue_again(&mut self, run: u32) {
        self.forget_parked(run);
        let Run { proc, group, probation, stamp, .. } = self.runs[run as usize];
        let mut queue = self.proc(proc).queues[usize::from(group)][usize::from(probation)];
        let before = if queue.head == NIL { u64::MAX } else { self.runs[queue.head as usize].stamp };
        self.runs[run as usize].stamp = stamp.min(before - 1);
        queue.push_front(&mut RunArena(&mut self.runs), run);
        self.proc_mut(proc).queues[usize::from(group)][usize::from(probation)] = queue;
    }

    fn new_run(&mut self, proc: ProcId, number: u64) -> u32 {
        let run = Run {
            proc,
            number,
            entries: [Packed::new(Entry::Untracked); RUN_PAGES as usize],
            links: Links::UNLINKED,
            stamp: 0,
            parked_until: 0,
            park_count: 0,
            resident: 0,
            group: self.duel.group(number),
            probation: false,
            fetched: 0,
            left_together: 0,
            shared: 0,
            heat: Heat::default(),
        };
        let i = match self.free.pop() {
            Some(i) => {
                self.runs[i as usize] = run;
                i
            }
            None => {
                reserve_tight(&mut self.runs, 1);
                self.runs.push(run);
                self.runs.len() as u32 - 1
            }
        };
        self.proc_mut(proc).add_run(number, i);
        i
    }

    /// Drops the runs of the range whose entries are all Untracked.
    pub fn prune(&mut self, proc: ProcId, range: PageRange) {
        if range.pages == 0 {
            return;
        }
        let (first, last) = (range.first.run(), Page(range.end() - 1).run());
        let empty: Vec<u64> = self
            .proc(proc)
            .runs
            .range(first..=last)
            .filter(|(_, &run)| self.runs[run as usize].entries.iter().all(|e| e.get() == Entry::Untracked))
            .map(|(&number, _)| number)
            .collect();
        for number in empty {
            if let Some(run) = self.proc_mut(proc).remove_run(number) {
                self.free.push(run);
            }
        }
    }

    /// Pages of the range that are not Untracked, in address order.
    pub fn tracked(&self, proc: ProcId, range: PageRange) -> Vec<(Page, Entry)> {
        let mut out = Vec::new();
        if range.pages == 0 {
            return out;
        }
        let (first, last) = (range.first.run(), Page(range.end() - 1).run());
        for (&number, &run) in self.proc(proc).runs.range(first..=last) {
            for index in 0..RUN_PAGES {
                let page = Page(number * RUN_PAGES + index);
                let entry = self.entry_in(run, index as usize);
                if page >= range.first && page.0 < range.end() && entry != Entry::Untracked {
                    out.push((page, entry));
                }
            }
        }
        out
    }

    /// The runs of the range in address order, each with its pages of the range: bit i is page i.
    pub fn runs_in(&self, proc: ProcId, range: PageRange) -> Vec<(u32, u16)> {
        if range.pages == 0 {
            return Vec::new();
        }
        let (first, last) = (range.first.run(), Page(range.end() - 1).run());
        let of_range = |number: u64| {
            let pages = (0..RUN_PAGES).filter(|i| (range.first.0..range.end()).contains(&(number * RUN_PAGES + i)));
            pages.fold(0, |mask, i| mask | 1 << i)
        };
        self.proc(proc).runs.range(first..=last).map(|(&number, &run)| (run, of_range(number))).collect()
    }

    /// Whether any page of the range is not Untracked.
    pub fn tracks(&self, proc: ProcId, range: PageRange) -> bool {
        if range.pages == 0 {
            return false;
        }
        let (first, last) = (range.first.run(), Page(range.end() - 1).run());
        self.proc(proc).runs.range(first..=last).any(|(&number, &run)| {
            let of_range = |index: &u64| (range.first.0..range.end()).contains(&(number * RUN_PAGES + index));
            (0..RUN_PAGES).filter(of_range).any(|index| self.entry_in(run, index as usize) != Entry::Untracked)
        })
    }

    /// The start of a range that covers `runs` runs of the process; the whole range if it has no
    /// more.
    pub fn first_part(&self, proc: ProcId, range: PageRange, runs: usize) -> PageRange {
        if range.pages == 0 {
            return range;
        }
        let (first, last) = (range.first.run(), Page(range.end() - 1).run());
        match self.proc(proc).runs.range(first..=last).nth(runs.max(1)) {
            Some((&next, _)) => PageRange { first: range.first, pages: next * RUN_PAGES - range.first.0 },
            None => range,
        }
    }

    /// The quarantined pages, in address order.
    pub fn quarantined(&mut self, proc: ProcId) -> Vec<Page> {
        let runs = core::mem::take(&mut self.proc_mut(proc).quarantined_runs);
        let mut pages = Vec::new();
        let mut has_one = |number: &u64| {
            let Some(run) = self.proc(proc).run(*number) else { return false };
            let before = pages.len();
            let of_run = (0..RUN_PAGES as usize).filter(|&i| matches!(self.entry_in(run, i), Entry::Quarantined(_)));
            pages.extend(of_run.map(|index| Page(number * RUN_PAGES + index as u64)));
            pages.len() > before
        };
        let runs = runs.into_iter().filter(|number| has_one(number)).collect();
        self.proc_mut(proc).quarantined_runs = runs;
        pages
    }

    /// Resident pages in parked runs, without those that are set aside.
    pub fn parked_pages(&self, tick: u64) -> u64 {
        let parked = self.procs.iter().flatten().flat_map(|p| p.parked.range((tick + 1, 0)..(ASIDE, 0)));
        parked.map(|&(_, run)| u64::from(self.runs[run as usize].resident)).sum()
    }

    /// Bytes that the table itself takes.
    pub fn metadata_bytes(&self) -> u64 {
        let tree: usize = self.procs.iter().flatten().map(|p| p.runs.len() * 20).sum();
        (self.runs.capacity() * size_of::<Run>() + tree + self.free.capacity() * 4) as u64
    }

    /// Asserts every invariant of the table; O(pages).
    pub fn check(&self) {
        assert_eq!(self.present_total, self.procs.iter().flatten().map(|p| p.present_pages).sum::<u64>());
        let mut groups = [Group::default(); QUEUES];
        for (id, proc) in self.procs.iter().enumerate().filter_map(|(i, p)| Some((i, p.as_ref()?))) {
            let (mut present_pages, mut quarantined_pages, mut evicting_pages) = (0, 0, 0);
            let (mut queued, mut coming_pages) = (0, 0);
            let (mut parked, mut pages_aside) = (0, 0);
            let (found, run) = proc.found.get();
            assert!(found == NO_RUN || proc.runs.get(&found) == Some(&run), "run {found} was found where it is not");
            for (&number, &run) in &proc.runs {
                let r = &self.runs[run as usize];
                assert_eq!((r.proc.0 as usize, r.number), (id, number));
                let count = |f: fn(Entry) -> bool| r.entries.iter().filter(|e| f(e.get())).count() as u64;
                assert_eq!(count(evictable), u64::from(r.resident));
                present_pages += count(|e| present(e) == 1);
                let of_run = count(|e| quarantined(e) == 1);
                assert!(of_run == 0 || proc.quarantined_runs.contains(&number));
                quarantined_pages += of_run;
                evicting_pages += count(|e| evicting(e) == 1);
                coming_pages += count(|e| coming(e) == 1);
                let is_parked = proc.parked.contains(&(r.parked_until, run));
                assert_eq!(is_parked, r.parked_until != 0);
                assert!(!is_parked || r.resident > 0);
                parked += usize::from(is_parked);
                pages_aside += if r.parked_until == ASIDE { u64::from(r.resident) } else { 0 };
                let shared = |i: &usize| r.shared >> i & 1 == 1;
                let may_share = |i: usize| evictable(r.entries[i].get()) || evicting(r.entries[i].get()) == 1;
                assert!((0..RUN_PAGES as usize).filter(shared).all(may_share), "a page that is gone is not shared");
                queued += u32::from(r.resident > 0 && !is_parked);
                let group = &mut groups[usize::from(r.group)];
                group.resident += u64::from(r.resident);
                group.probation += if r.probation { u64::from(r.resident) } else { 0 };
                group.out += count(|e| out(e) == 1);
            }
            assert_eq!(present_pages, proc.present_pages);
            assert_eq!(quarantined_pages, proc.quarantined_pages);
            assert_eq!(evicting_pages, proc.evicting_pages);
            assert_eq!(coming_pages, proc.coming_pages);
            assert_eq!(parked, proc.parked.len());
            assert_eq!(pages_aside, proc.pages_aside);
            let lens = proc.queues.as_flattened().iter().map(|queue| queue.len);
            assert_eq!(queued, lens.sum());
            for (group, queues) in proc.queues.iter().enumerate() {
                for (probation, queue) in queues.iter().enumerate() {
                    let (mut i, mut seen, mut stamp) = (queue.head, 0, 0);
                    while i != NIL {
                        let r = &self.runs[i as usize];
                        assert_eq!((usize::from(r.group), usize::from(r.probation)), (group, probation));
                        assert!(r.stamp > stamp, "queue is in order of age");
                        stamp = r.stamp;
                        seen += 1;
                        i = r.links.next;
                    }
                    assert_eq!(seen, queue.len);
                }
            }
        }
        assert_eq!(groups, self.groups, "pages of the groups");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ObjectId;

    #[test]
    #[should_panic(expected = "cannot become Out(ObjectId(7)): it is Resident")]
    fn a_page_leaves_only_in_a_batch() {
        let mut table = Table::new(ReclaimKind::Fifo);
        let proc = table.add_proc(AreaId(0));
        table.set(proc, Page(5), Entry::Resident);
        table.set(proc, Page(5), Entry::Out(ObjectId(7)));
    }
}
