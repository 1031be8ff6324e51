//! What all threads of the pager share. [`crate::locks`] has the order of its locks.
//!
//! No lock is held over a codec, a disk or a wait for another process, with two exceptions:
//! [`Proc::io`](crate::proc::Proc) of one process while its stub leaves a MOVE, and `helper`, which
//! is only tried.

use crate::compress::Compressor;
use crate::config::FromPager;
use crate::contents::Contents;
use crate::fault::FaultBuffers;
use crate::files::Files;
use crate::fork_children::Unnamed;
use crate::forks::Expected;
use crate::frames::FrameBook;
use crate::locks::{rank, Held, Lock};
use crate::proc::Proc;
use crate::regions::Regions;
use crate::room::Room;
use crate::sampling::Sampling;
use crate::stats::Latency;
use crate::swap::SwapTier;
use crate::turns::{Turns, OTHERS_TAKE};
use memfit_codec::{Dictionaries, CODEC_IDS};
use memfit_core::budget::{Marks, Sizes};
use memfit_core::pool::Move;
use memfit_core::scheme::{Classes, Scheme};
use memfit_core::{AreaId, Compress, Core, Effects, Origin, Page, PageRange, ProcId, Tunables};
use memfit_os::memory::{Frames, Segment};
use memfit_stats::Memory;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// What the core lock protects.
pub struct State {
    /// Takes all decisions.
    pub core: Core,
    /// Which frames of the pool hold memory.
    pub frames: FrameBook,
    /// Staging segments by area.
    pub segments: HashMap<AreaId, Arc<Segment>>,
}

/// Fault buffers kept for reuse: about as many faults are served at once.
const FAULT_BUFFERS: usize = 4;
/// Pages that a waiting fault compresses before it checks for room again: under 100 us.
const HELP_PAGES: usize = 4;

/// State shared by all threads of the pager.
pub struct Shared {
    /// The core and what belongs to it.
    pub state: Lock<State, { rank::CORE }>,
    /// Bytes of the pool. Written under the core lock; read without it while the core has the
    /// object pinned.
    pub memory: Frames,
    /// The swap tier.
    pub swap: Option<Arc<SwapTier>>,
    /// Processes that have a userfaultfd.
    pub procs: Lock<Vec<Arc<Proc>>, { rank::PROCS }>,
    /// Fork children that the kernel has reported and whose pid is not known yet.
    pub unnamed: Unnamed,
    /// Longest time that the core lock was held, ns.
    pub longest_hold: AtomicU64,
    /// The longest time that the monitor slept too long, and the longest sample, ns.
    pub longest_delay: AtomicU64,
    pub longest_sample: AtomicU64,
    turns: Turns,
    /// For how many processes the pager has descriptors.
    pub room: Room,
    /// Children of announced forks whose stub has not said hello yet.
    pub expected: Lock<Vec<Arc<Expected>>, { rank::EXPECTED_CHILDREN }>,
    /// Files whose mappings are paged.
    pub files: Files,
    /// The scheme in use.
    pub scheme: Arc<Scheme>,
    /// Sizes in use.
    pub sizes: Sizes,
    /// Bytes of the tree and the pager that the core does not know of; set by the monitor.
    pub unmanaged: AtomicU64,
    /// Bytes that the core knows of: present pages, staging, frames.
    pub managed: AtomicU64,
    /// Bytes that `managed` counts twice because processes share pages after a fork; set by the
    /// monitor.
    pub doubled: AtomicU64,
    /// The largest values that the monitor has seen, without those of the swap tier.
    pub peak: Lock<Memory<u64>, { rank::PEAK }>,
    /// Reclaim makes no progress at the moment: faults do not wait for it.
    pub stuck: AtomicBool,
    /// No more threads want a CPU than there are CPUs.
    pub cpus_suffice: AtomicBool,
    /// Programs wait for a CPU: see `Monitor::judge_contention`.
    pub cpus_full: AtomicBool,
    /// CPUs suffice, and fault threads may leave SCHED_IDLE again: see `fault::Server::behave`.
    pub idle_class: AtomicBool,
    /// The CPU on which faults are served, plus one; 0 if unknown.
    pub fault_cpu: AtomicUsize,
    /// Unregistered memory grows fast and little is free: the fast-growth watermarks hold.
    pub fast_growth: AtomicBool,
    /// Throttle: the tree is over its budget, or unregistered memory has just grown. Faults wait.
    pub braking: AtomicBool,
    /// Commit pressure: programs have mapped more than can fit. New mappings are registered early.
    pub commit_pressure: AtomicBool,
    /// The pager is about to end.
    pub ending: AtomicBool,
    /// Staged pages that go to the swap tier uncompressed.
    pub raw: Lock<Vec<Compress>, { rank::RAW }>,
    /// Fault buffers that no fault thread uses now.
    fault_buffers: Lock<Vec<FaultBuffers>, { rank::FAULT_BUFFERS }>,
    /// For waiting faults: one at a time compresses.
    helper: Lock<Compressor, { rank::HELPER }>,
    /// Dictionaries of compressed pages, kept to the end.
    pub dictionaries: Arc<Dictionaries>,
    /// Set if accesses to sampled pages are recorded.
    pub sampling: Option<Sampling>,
    /// Set if the run gets a report: what became of the pages of each address region.
    pub regions: Option<Regions>,
    /// Set if the contents of pages are recorded.
    pub contents: Option<Contents>,
    /// Fault latencies.
    pub latency: Latency,
    /// When the pager started.
    pub started: Instant,
    /// Warnings given so far.
    pub warnings: Lock<Vec<String>, { rank::WARNINGS }>,
    /// Pages and bytes by codec number.
    pub codecs: [CodecCount; CODEC_IDS],
    reclaim: Signal,
    progress: Signal,
    outbox: Lock<Vec<FromPager>, { rank::OUTBOX }>,
    /// Wakes the control thread for the outbox.
    pub outbox_event: memfit_os::event::EventFd,
}

/// Pages and bytes of one codec.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct CodecCount {
    pub pages: AtomicU64,
    pub in_bytes: AtomicU64,
    pub out_bytes: AtomicU64,
}

/// A counter that one thread raises and others wait for.
#[derive(Debug, Default)]
struct Signal {
    count: Mutex<u64>,
    raised: Condvar,
    waiting: AtomicU32,
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
        self.waiting.fetch_add(1, Relaxed);
        let (count, _) = self.raised.wait_timeout(count, limit).unwrap();
        self.waiting.fetch_sub(1, Relaxed);
        *count
    }

    fn now(&self) -> u64 {
        *self.count.lock().unwrap()
    }
}

/// Runs of 64 KiB that the core handles under one hold of its lock.
const PART_RUNS: usize = 64;

/// The locked core; notes how long the lock was held.
pub struct Locked<'a> {
    state: Held<'a, State>,
    since: Instant,
    longest: &'a AtomicU64,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let held = self.since.elapsed().as_nanos() as u64;
        if held > self.longest.load(Relaxed) {
            self.longest.fetch_max(held, Relaxed);
        }
    }
}

impl Shared {
    /// Shared state with an empty core.
    pub fn new(scheme: Scheme, budget: u64, swap: Option<Arc<SwapTier>>) -> std::io::Result<Shared> {
        let sizes = Sizes::new(budget, &scheme);
        let dictionaries = Arc::new(Dictionaries::new());
        let scheme = Arc::new(scheme);
        let blocks = swap.as_ref().map_or_else(Vec::new, |swap| swap.blocks());
        let tunables = Tunables::new(&scheme, &sizes, swap.is_some(), blocks);
        let area_frames = tunables.area_frames;
        let core = Core::new(tunables);
        let state = State { core, frames: FrameBook::new(area_frames), segments: HashMap::new() };
        Ok(Shared {
            state: Lock::new(state),
            memory: Frames::reserve(area_frames as usize * 4096)?,
            swap,
            procs: Lock::new(Vec::new()),
            unnamed: Unnamed::default(),
            longest_hold: AtomicU64::new(0),
            longest_delay: AtomicU64::new(0),
            longest_sample: AtomicU64::new(0),
            turns: Turns::default(),
            room: Room::new(),
            expected: Lock::new(Vec::new()),
            files: Files::new()?,
            scheme,
            sizes,
            unmanaged: AtomicU64::new(0),
            managed: AtomicU64::new(0),
            doubled: AtomicU64::new(0),
            peak: Lock::default(),
            stuck: AtomicBool::new(false),
            cpus_suffice: AtomicBool::new(false),
            cpus_full: AtomicBool::new(false),
            idle_class: AtomicBool::new(false),
            fault_cpu: AtomicUsize::new(0),
            fast_growth: AtomicBool::new(false),
            braking: AtomicBool::new(false),
            commit_pressure: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            raw: Lock::new(Vec::new()),
            fault_buffers: Lock::new(Vec::new()),
            helper: Lock::new(Compressor::new(&dictionaries, None)),
            dictionaries,
            sampling: None,
            regions: None,
            contents: None,
            latency: Latency::default(),
            started: Instant::now(),
            warnings: Lock::new(Vec::new()),
            codecs: Default::default(),
            reclaim: Signal::default(),
            progress: Signal::default(),
            outbox: Lock::new(Vec::new()),
            outbox_event: memfit_os::event::EventFd::new()?,
        })
    }

    /// Locks the core. Unlock through [`Shared::apply_effects`] after changes of pages or frames.
    pub fn lock(&self) -> Locked<'_> {
        let state = self.turns.lock(&self.state);
        Locked { state, since: Instant::now(), longest: &self.longest_hold }
    }

    /// [`Shared::apply_effects`] after a part of long work: the threads that wait for the core go
    /// first then.
    pub fn end_part(&self, state: Locked<'_>) {
        self.apply_effects(state);
        self.turns.let_others(OTHERS_TAKE);
    }

    /// Calls `tell` for a range of a process, part by part: faults of other processes are served in
    /// between. The caller holds the process's `io`.
    pub fn in_parts(&self, proc: ProcId, mut range: PageRange, tell: impl Fn(&mut Core, PageRange)) {
        while range.pages > 0 {
            let mut state = self.lock();
            let part = state.core.first_part(proc, range, PART_RUNS);
            tell(&mut state.core, part);
            self.end_part(state);
            range = PageRange { first: Page(part.end()), pages: range.pages - part.pages };
        }
    }

    /// Moves bytes of objects that the core has moved. Nobody has them pinned, and the core's lock
    /// is held.
    pub fn move_objects(&self, _: &Locked<'_>, moves: Vec<Move>) {
        for step in moves {
            self.memory.shift(step.from.byte(), step.to.byte(), step.len as usize);
        }
    }

    /// Carries out the effects of core calls, publishes the totals, unlocks.
    pub fn apply_effects(&self, mut state: Locked<'_>) {
        let Effects { moves, spans, extents, punch, closed } = state.core.take_effects();
        self.move_objects(&state, moves);
        if !spans.is_empty() {
            state.frames.freed(&spans, &self.memory);
        }
        for slot in punch {
            if let Some(segment) = state.segments.get(&slot.area) {
                segment.punch(crate::proc::slot_offset(slot.index));
            }
        }
        let closed: Vec<_> = closed.iter().filter_map(|area| state.segments.remove(area)).collect();
        let totals = state.core.present_total()
            + u64::from(state.frames.backed_frames)
            + u64::from(state.core.staging_allocated());
        if let Some(swap) = &self.swap {
            swap.set_blocks_in_use(u64::from(state.core.blocks_in_use()));
        }
        self.managed.store(totals * 4096, Relaxed);
        drop(state);
        drop(closed);
        if let Some(swap) = &self.swap {
            for (extent, len) in extents {
                swap.free(extent, len);
            }
        }
    }

    /// Whether mappings of files are paged as well.
    pub fn takes_files(&self) -> bool {
        self.scheme.classes != Classes::Anonymous
    }

    /// Whether anything was ever written to the swap tier.
    pub fn has_swapped(&self) -> bool {
        self.swap.as_ref().is_some_and(|swap| swap.counters.writes.load(Relaxed) > 0)
    }

    /// Raises the peaks to what is in use now.
    pub fn raise_peak(&self, memory: &Memory<u64>) {
        let mut peak = self.peak.lock();
        *peak = peak.zip(memory, u64::max);
    }

    /// Bytes of all tables. The core's lock is held only for its own.
    pub fn metadata_bytes(&self) -> u64 {
        let others = self.swap.as_ref().map_or(0, |swap| swap.metadata_bytes()) + self.files.metadata_bytes();
        let state = self.lock();
        state.core.metadata_bytes() + state.frames.metadata_bytes() + others
    }

    /// Bytes in use, by the newest figures.
    pub fn used(&self) -> u64 {
        self.unmanaged.load(Relaxed) + self.managed.load(Relaxed).saturating_sub(self.doubled.load(Relaxed))
    }

    /// Bytes left of the budget; negative when over it.
    pub fn free(&self) -> i64 {
        self.sizes.budget as i64 - self.used() as i64
    }

    /// The watermarks in force.
    pub fn marks(&self) -> Marks {
        if self.fast_growth.load(Relaxed) {
            self.sizes.fast_growth
        } else {
            self.sizes.calm
        }
    }

    /// Milliseconds since the start: the core's tick.
    pub fn tick(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Wakes the reclaim thread.
    pub fn want_reclaim(&self) {
        self.reclaim.raise();
    }

    /// The reclaim thread sleeps until [`Shared::want_reclaim`] or for `limit`; returns the count.
    pub fn wait_for_work(&self, seen: u64, limit: Duration) -> u64 {
        self.reclaim.wait(seen, limit)
    }

    /// Reclaim freed something, or found that it cannot: wakes waiting faults.
    pub fn made_progress(&self) {
        self.progress.raise();
    }

    /// Direct reclaim: whether a fault that needs `pages` must wait. Wakes reclaim below the low
    /// watermark.
    pub fn must_wait(&self, pages: u64) -> bool {
        let left = self.free() - (pages * 4096) as i64;
        let marks = self.marks();
        if left < marks.low as i64 {
            self.want_reclaim();
        }
        let short = left < marks.min as i64 || self.braking.load(Relaxed);
        short && !self.stuck.load(Relaxed) && !self.ending.load(Relaxed)
    }

    /// The count of [`Shared::made_progress`].
    pub fn progress(&self) -> u64 {
        self.progress.now()
    }

    /// Waits until reclaim makes progress after the count `seen`, at most 2 ms.
    pub fn wait_for_progress(&self, seen: u64) {
        self.progress.wait(seen, Duration::from_millis(2));
    }

    /// Direct reclaim: a waiting fault compresses staged pages, on the CPU that its program does
    /// not use meanwhile. False if little is staged, another fault does it, or no page left
    /// staging.
    pub fn help(&self) -> bool {
        let state = self.lock();
        let few = state.core.totals_staged() < self.sizes.staging / 4096 / 2;
        drop(state);
        if few {
            return false;
        }
        let Some(mut helper) = self.helper.try_lock() else { return false };
        helper.compress(self, HELP_PAGES, Origin::Direct).gained > 0
    }

    /// The fault buffers used last, which the CPU's caches may still hold, or new ones.
    pub fn take_buffers(&self) -> FaultBuffers {
        let kept = self.fault_buffers.lock().pop();
        kept.unwrap_or_else(|| FaultBuffers::new(&self.dictionaries))
    }

    /// Keeps the buffers for the next fault, or drops them.
    pub fn return_buffers(&self, buffers: FaultBuffers) {
        let mut fault_buffers = self.fault_buffers.lock();
        if fault_buffers.len() < FAULT_BUFFERS {
            fault_buffers.push(buffers);
        }
    }

    /// Queues a message for the launcher.
    pub fn tell(&self, message: FromPager) {
        self.outbox.lock().push(message);
        self.outbox_event.raise();
    }

    /// Warns the user with one line on the terminal, once per text.
    pub fn warn(&self, text: String) {
        let mut warnings = self.warnings.lock();
        if warnings.contains(&text) || warnings.len() > 50 {
            return;
        }
        warnings.push(text.clone());
        drop(warnings);
        self.tell(FromPager::Warning { text });
    }

    /// Ends the run: the tree cannot go on with right data.
    pub fn fatal(&self, text: String) {
        self.ending.store(true, Relaxed);
        self.tell(FromPager::Fatal { text });
    }

    /// Takes the messages that wait for the launcher.
    pub fn take_outbox(&self) -> Vec<FromPager> {
        std::mem::take(&mut self.outbox.lock())
    }
}
