//! Per-process reclaim: a process gives up all of its memory at once, in address order (Han et al.
//! 2018, section III, `Per_Process_Reclaim`). Later its working set is brought back together: the
//! pages that it has used of late (Denning 1968).
//!
//! No bit tells which pages a process uses. A page that came by a fault is taken for used, also a
//! neighbour that the fault brought. Of the pages that are to come back together, each return
//! leaves out a quarter, which is on trial: what of it is still outside when the process leaves
//! again was not used, and leaves the working set. So a page leaves it after four returns without
//! use at the latest. Before the first return nothing is known, and all that was resident comes
//! back.
//!
//! The order of the ages does not matter here: all pages leave. In address order a batch has few
//! ranges. A page that did not move (an event was unread, a device uses it) gets two more passes.

use crate::core_call::CoreCall;
use crate::engine::Core;
use crate::evict::{BatchSize, Victim};
use crate::ids::{Page, PageRange, ProcId, PAGE_BYTES, RUN_PAGES};
use crate::table::{Proc as Process, ASIDE};
use alloc::vec::Vec;

/// Passes over the address space.
const PASSES: u8 = 3;
/// Runs that one choice of victims looks at: it holds the core's lock.
const LOOKED_AT: usize = 4096;
/// A background process with fewer pages in memory gives them like the others: 1 MiB.
pub const WORTH_PAGES: u64 = 256;
/// Staging slots of a process that has left whose memory goes back to the kernel in one step.
const RELEASED: usize = 1024;
/// The reclaim of a process ends when no process that leaves has given a page for this long, ms.
const GIVE_UP_MS: u64 = 10_000;
/// Others need not wait for processes that leave when those have given no page for this long, ms.
const STALLED_MS: u64 = 200;
/// At each return but the first, one run in this many is on trial: each run at every fourth return.
/// A larger number would find unused pages later, a smaller one bring back less.
const ON_TRIAL_ONE_IN: u64 = 4;
/// Pause before another pass, unless no run is parked: the first pause of a parked run is 16 ms.
const PASS_PAUSE_MS: u64 = 50;

/// Part of a process's working set. See [`Core::working_set`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkingSet {
    /// Pages to bring back, in ascending order.
    pub ranges: Vec<PageRange>,
    /// Pages on trial: they stay outside until they are touched.
    pub on_trial: u64,
    /// Where to go on, if there is more.
    pub next: Option<Page>,
}

/// How far the reclaim of a process is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessReclaim {
    /// Pages that have left the process so.
    pub pages: u64,
    /// Tick of [`Core::next_step`] at which its first pages were chosen; `None` while it waits for
    /// that, perhaps because others leave first.
    pub begun: Option<u64>,
    /// Tick at which it ended: all that can leave is compressed or written.
    pub ended: Option<u64>,
    /// Number of the run to go on with.
    next: u64,
    passes: u8,
    /// A page did not move in this pass.
    refused: bool,
    /// After the last pass: the wait for the page staged last. It is compressed after all of this
    /// process.
    last: Option<u32>,
    /// It ended because no page moved any more: it is stopped or traced, for instance.
    pub gave_up: bool,
    /// Pages in memory when it ended.
    stayed: u64,
    /// Pages at the last gain, and its tick.
    gained: Option<(u64, u64)>,
    /// Tick at which the last pass ended.
    pass_ended: Option<u64>,
}

impl Core {
    /// Begins to reclaim all of a process, before all others. The caller lets reclaim run
    /// ([`Core::next_step`]). A reclaim under way begins anew.
    pub fn reclaim_process(&mut self, proc: ProcId) {
        self.record(&CoreCall::ReclaimProcess { proc });
        self.begin_reclaim(proc);
    }

    fn begin_reclaim(&mut self, proc: ProcId) {
        self.table.proc_mut(proc).reclaim = Some(ProcessReclaim::default());
        if !self.leaving.contains(&proc) {
            self.leaving.push(proc);
        }
    }

    /// Says whether a process is in the background: when memory is short it leaves as a whole,
    /// before the others give pages. When it is in the foreground again, its working set is found
    /// anew.
    pub fn set_background(&mut self, proc: ProcId, background: bool) {
        self.record(&CoreCall::SetBackground { proc, background });
        let process = self.table.proc_mut(proc);
        if process.background && !background && process.reclaim.is_some() {
            (process.returns, process.judged_to) = (process.returns.wrapping_add(1), 0);
        }
        process.background = background;
        // One that gave up may move again.
        process.reclaim = process.reclaim.filter(|reclaim| !reclaim.gave_up);
    }

    /// Says whether load control lets a process wait ([`crate::load`]): like one in the background
    /// it leaves as a whole when memory is short, even if most of it is outside, and its working
    /// set is found anew when it goes on. It is no victim of the out-of-memory handling.
    pub fn set_held(&mut self, proc: ProcId, held: bool) {
        self.record(&CoreCall::SetHeld { proc, held });
        let process = self.table.proc_mut(proc);
        process.held = held;
        if process.background {
            return;
        }
        if held {
            // It can leave once more.
            process.reclaim = process.reclaim.filter(|reclaim| reclaim.ended.is_none());
            return;
        }
        if process.reclaim.is_some() {
            (process.returns, process.judged_to) = (process.returns.wrapping_add(1), 0);
        }
        self.end_reclaim(proc);
    }

    /// Ends the reclaim of a process: what has left stays outside.
    pub fn stop_process_reclaim(&mut self, proc: ProcId) {
        self.record(&CoreCall::StopProcessReclaim { proc });
        self.end_reclaim(proc);
    }

    fn end_reclaim(&mut self, proc: ProcId) {
        self.leaving.retain(|&leaving| leaving != proc);
        self.table.proc_mut(proc).reclaim = None;
    }

    /// How far the reclaim of a process is; `None` if none was begun, or it was stopped.
    pub fn process_reclaim(&self, proc: ProcId) -> Option<ProcessReclaim> {
        self.table.proc(proc).reclaim
    }

    /// Whether the reclaim of a process has not begun, and others leave first.
    pub fn is_queued_to_leave(&self, proc: ProcId) -> bool {
        let waits = self.process_reclaim(proc).is_some_and(|reclaim| reclaim.begun.is_none());
        waits && self.leaving.first().is_some_and(|&first| first != proc)
    }

    /// Whether processes leave as a whole now.
    pub fn processes_leave(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Whether the pool takes the pages of a process: it has needed enough memory
    /// (`admission.need_permille`). Tuduce and Gross 2005, section 4: a monitor switches
    /// compression on for large applications.
    pub fn is_compressed(&self, proc: ProcId) -> bool {
        self.tunables.scheme.admission.need_permille == 0 || self.table.proc(proc).compressed
    }

    /// The same, by what the process has now.
    pub(crate) fn judge_need(&mut self, proc: ProcId) -> bool {
        let threshold = u64::from(self.tunables.scheme.admission.need_permille);
        let budget = self.tunables.sizes.budget;
        let process = self.table.proc_mut(proc);
        let has = (process.present_pages + process.out_pages) * PAGE_BYTES * 1000;
        process.compressed = has * if process.compressed { 2 } else { 1 } >= threshold * budget;
        process.compressed
    }

    /// Evicted pages of a process.
    pub fn out_pages(&self, proc: ProcId) -> u64 {
        self.table.proc(proc).out_pages
    }

    /// The part of a process's working set that left by [`Core::reclaim_process`] and is outside,
    /// from `from` on. Looks at some of the table only.
    pub fn working_set(&self, proc: ProcId, from: Page) -> WorkingSet {
        let mut set = WorkingSet::default();
        let process = self.table.proc(proc);
        for (looked, (&number, &run)) in process.runs().range(from.run()..).enumerate() {
            if looked == LOOKED_AT {
                set.next = Some(Page(number * RUN_PAGES));
                break;
            }
            let left = self.table.runs[run as usize].left_together;
            if is_on_trial(process, number) {
                set.on_trial += u64::from(left.count_ones());
                continue;
            }
            for page in (0..RUN_PAGES).filter(|i| left >> i & 1 == 1).map(|i| Page(number * RUN_PAGES + i)) {
                match set.ranges.last_mut() {
                    Some(last) if last.first.0 + last.pages == page.0 => last.pages += 1,
                    _ => set.ranges.push(PageRange { first: page, pages: 1 }),
                }
            }
        }
        set
    }

    /// Whether the page belongs to the part that [`Core::working_set`] would return.
    pub(crate) fn left_together(&self, proc: ProcId, page: Page) -> bool {
        let run = self.table.run_of(proc, page);
        run.is_some_and(|run| self.table.runs[run as usize].left_together >> page.index() & 1 == 1)
    }

    /// Victims of the first process to be reclaimed that can take a batch now.
    pub(crate) fn pick_leaving(&mut self, free: &[ProcId], max_pages: usize) -> Option<(ProcId, Vec<Victim>)> {
        for i in 0..self.leaving.len() {
            let proc = self.leaving[i];
            if !free.contains(&proc) || !self.gives(proc) {
                continue;
            }
            let max_pages = max_pages.min(self.staging.room(self.table.proc(proc).area) as usize);
            let runs = if max_pages == 0 { Vec::new() } else { self.next_runs(proc, max_pages) };
            let victims = self.claim(proc, &runs, max_pages);
            let began = self.driver.round_began;
            let reclaim = self.table.proc_mut(proc).reclaim.as_mut();
            if let Some(reclaim) = reclaim.filter(|of| !victims.is_empty() || of.next == u64::MAX) {
                reclaim.begun.get_or_insert(began);
            }
            if !victims.is_empty() {
                return Some((proc, victims));
            }
        }
        None
    }

    /// The next runs of a process in address order, as many as fit into a batch, and their pages
    /// that leave; only the first may be cut. What was on trial in the runs looked at, and was not
    /// touched, leaves the working set.
    fn next_runs(&mut self, proc: ProcId, max_pages: usize) -> Vec<(u32, u16)> {
        let process = self.table.proc(proc);
        let Some(mut reclaim) = process.reclaim else { return Vec::new() };
        let (mut runs, mut batch) = (Vec::new(), BatchSize::default());
        let (mut unused, mut judged_to) = (Vec::new(), process.judged_to);
        let mut next = u64::MAX;
        for (looked, (&number, &run)) in process.runs().range(reclaim.next..).enumerate() {
            // Once only: when the run is looked at again, some of its pages may have left.
            if number >= judged_to {
                judged_to = number + 1;
                if is_on_trial(process, number) {
                    unused.push(run);
                }
            }
            // While it is held, others use what it shares with them.
            let only_held = process.held && !process.background;
            let stays = if only_held { self.table.runs[run as usize].shared } else { 0 };
            let takeable = self.takeable(run) & !stays;
            let parked = !matches!(self.table.runs[run as usize].parked_until, 0 | ASIDE);
            let mut full = false;
            if takeable != 0 && parked {
                reclaim.refused = true;
            } else if takeable != 0 {
                full = !batch.takes(takeable, max_pages);
                runs.push((run, takeable));
            }
            if full && runs.len() > 1 {
                runs.pop();
            }
            // A run that is cut comes again.
            if full || looked == LOOKED_AT {
                next = number;
                break;
            }
        }
        reclaim.next = next;
        let process = self.table.proc_mut(proc);
        (process.reclaim, process.judged_to) = (Some(reclaim), judged_to);
        unused.into_iter().for_each(|run| self.table.runs[run as usize].left_together = 0);
        runs
    }

    /// Notes that a process has given `moved` of `pages` pages.
    pub(crate) fn left(&mut self, proc: ProcId, moved: u64, pages: u32) {
        if let Some(reclaim) = &mut self.table.proc_mut(proc).reclaim {
            reclaim.pages += moved;
            reclaim.refused |= moved < u64::from(pages);
        }
    }

    /// Whether others need not give pages, since a process that leaves does.
    pub(crate) fn a_process_gives(&self) -> bool {
        !self.driver.leaving_stalled && self.leaving.iter().any(|&proc| self.gives(proc))
    }

    /// Whether a process that leaves may have pages to give.
    fn gives(&self, proc: ProcId) -> bool {
        self.table.proc(proc).reclaim.is_some_and(|reclaim| reclaim.last.is_none())
    }

    /// Memory is short: begins to reclaim the process in the background, or held, with the most
    /// pages in memory, unless a process leaves already. One in the background that has more
    /// outside than in memory gives its pages like the others (Han et al.,
    /// `Reclaim_Efficiency_Estimator`, which would kill it), and so does one of which nothing left
    /// the last time, until it has grown. One that is held leaves once: what it has then is shared,
    /// or cannot leave.
    pub(crate) fn let_background_leave(&mut self) {
        if self.tunables.scheme.reclaim.per_process == 0 || self.a_process_gives() {
            return;
        }
        let may_again = |of: &Process, reclaim: ProcessReclaim| {
            let has_more = reclaim.pages > 0 || of.present_pages >= reclaim.stayed + WORTH_PAGES;
            reclaim.ended.is_some() && !reclaim.gave_up && has_more
        };
        let in_background = |of: &Process| {
            of.background && of.present_pages > of.out_pages && of.reclaim.is_none_or(|last| may_again(of, last))
        };
        let pays =
            |of: &Process| of.present_pages > WORTH_PAGES && (in_background(of) || of.held && of.reclaim.is_none());
        let all = self.table.procs.iter().enumerate();
        let worth = all.filter_map(|(i, of)| Some((i, of.as_ref().filter(|of| pays(of))?.present_pages)));
        let Some((i, _)) = worth.max_by_key(|&(i, pages)| (pages, core::cmp::Reverse(i))) else { return };
        self.begin_reclaim(ProcId(i as u32));
    }

    /// Begins and ends passes of the processes that leave.
    pub(crate) fn advance_leaving(&mut self, tick: u64) {
        let mut newest = 0;
        for i in 0..self.leaving.len() {
            let Some(reclaim) = &mut self.table.proc_mut(self.leaving[i]).reclaim else { continue };
            let (_, gained_at) = *reclaim.gained.insert(match reclaim.gained {
                Some(gained) if gained.0 == reclaim.pages => gained,
                _ => (reclaim.pages, tick),
            });
            newest = newest.max(gained_at);
        }
        // They leave one after another: each waits for those before it.
        let without_gain = tick.saturating_sub(newest);
        self.driver.leaving_stalled = !self.leaving.is_empty() && without_gain > STALLED_MS;
        let mut i = 0;
        while let Some(&proc) = self.leaving.get(i) {
            if self.pass_on(proc, tick, without_gain > GIVE_UP_MS) {
                self.leaving.remove(i);
            } else {
                i += 1;
            }
        }
    }

    /// Begins the next pass of a process, if this one is over. True when its reclaim has ended.
    fn pass_on(&mut self, proc: ProcId, tick: u64, give_up: bool) -> bool {
        let process = self.table.proc(proc);
        let Some(mut reclaim) = process.reclaim else { return true };
        if reclaim.next == u64::MAX && process.evicting_pages == 0 && reclaim.last.is_none() {
            let ended = *reclaim.pass_ended.get_or_insert(tick);
            if !reclaim.refused || reclaim.passes + 1 == PASSES {
                reclaim.last = Some(self.objects.await_last_staged());
            } else if process.parked().next().is_none() || tick.saturating_sub(ended) >= PASS_PAUSE_MS {
                (reclaim.next, reclaim.refused, reclaim.pass_ended) = (0, false, None);
                reclaim.passes += 1;
            }
        }
        let area = process.area;
        let done =
            reclaim.last.is_some_and(|last| !self.objects.is_awaited(last)) && self.staging.release(area, RELEASED);
        if done || give_up {
            (reclaim.ended, reclaim.gave_up) = (Some(tick), !done);
            reclaim.stayed = self.table.proc(proc).present_pages;
        }
        self.table.proc_mut(proc).reclaim = Some(reclaim);
        reclaim.ended.is_some()
    }
}

/// Whether the pages of this run stay outside at the last return, to see whether they are used.
fn is_on_trial(process: &Process, run: u64) -> bool {
    process.returns > 1 && run % ON_TRIAL_ONE_IN == u64::from(process.returns) % ON_TRIAL_ONE_IN
}
