//! What all threads of the pager share. [`crate::locks`] has the order of its locks.
//!
//! No lock is held over a codec, a disk or a wait for another process, with three exceptions:
//! [`Proc::io`](crate::proc::Proc) of one process while its stub leaves a MOVE, the helper of
//! [`Spare`], which is only tried, and that of [`PageCache::still`].

use crate::budget::{Budget, CpuUse};
use crate::config::OnFull;
use crate::contents::Contents;
use crate::fault::spare::Spare;
use crate::files::Files;
use crate::fork_children::Unnamed;
use crate::forks::Expected;
use crate::frames::FrameBook;
use crate::locks::{rank, Held, Lock};
use crate::meters::Meters;
use crate::outbox::Outbox;
use crate::page_cache::PageCache;
use crate::proc::Proc;
use crate::regions::Regions;
use crate::room::Room;
use crate::sampling::Sampling;
use crate::swap::{Hasher, SwapTier};
use crate::turns::{Turns, OTHERS_TAKE};
use memfit_codec::Dictionaries;
use memfit_core::budget::Sizes;
use memfit_core::pool::{Move, Runs};
use memfit_core::scheme::{Classes, Scheme};
use memfit_core::{AreaId, Compress, Core, Effects, Page, PageRange, ProcId, Tunables};
use memfit_os::memory::{Frames, Segment};
use memfit_os::{maps, procfs};
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Instant;

/// What the core lock protects.
pub struct State {
    /// Takes all decisions.
    pub core: Core,
    /// Which frames of the pool hold memory.
    pub frames: FrameBook,
    /// Staging segments by area.
    pub segments: HashMap<AreaId, Arc<Segment>>,
}

impl State {
    /// Notes which frames the core has freed. The kernel gets their memory when there are many.
    pub fn note_freed_frames(&mut self, memory: &Frames) {
        let freed = self.core.take_freed_frames();
        self.frames.freed(&freed, memory);
    }
}

/// State shared by all threads of the pager.
pub struct Shared {
    /// The core and what belongs to it.
    pub state: Lock<State, { rank::CORE }>,
    /// Bytes of the pool. Written under the core lock; read without it while the core has the
    /// object pinned.
    pub memory: Frames,
    /// The swap tier.
    pub swap: Option<Arc<SwapTier>>,
    /// Hashes the contents of pages.
    pub hasher: Hasher,
    /// Processes that have a userfaultfd.
    pub procs: Lock<Vec<Arc<Proc>>, { rank::PROCS }>,
    /// Fork children that the kernel has reported and whose pid is not known yet.
    pub unnamed: Unnamed,
    turns: Turns,
    /// For how many processes the pager has descriptors.
    pub room: Room,
    /// Children of announced forks whose stub has not said hello yet.
    pub expected: Lock<Vec<Arc<Expected>>, { rank::EXPECTED_CHILDREN }>,
    /// Files whose mappings are paged.
    pub files: Files,
    /// Pages of those that are mapped shared.
    pub cache: PageCache,
    /// The scheme in use.
    pub scheme: Arc<Scheme>,
    /// How much of the budget is in use.
    pub budget: Budget,
    /// Who wants the CPUs.
    pub cpus: CpuUse,
    /// The pager is about to end.
    pub ending: AtomicBool,
    /// Staged pages that go to the swap tier uncompressed.
    pub raw: Lock<Vec<Compress>, { rank::RAW }>,
    /// What fault threads use by turns.
    pub spare: Spare,
    /// Dictionaries of compressed pages, kept to the end.
    pub dictionaries: Arc<Dictionaries>,
    /// Set if accesses to sampled pages are recorded.
    pub sampling: Option<Sampling>,
    /// Set if the run gets a report: what became of the pages of each address region.
    pub regions: Option<Regions>,
    /// Set if the contents of pages are recorded.
    pub contents: Option<Contents>,
    /// When the pager started.
    pub started: Instant,
    /// Names of processes that are never stopped or killed for lack of room.
    pub protect: Vec<String>,
    /// File name of the stub.
    pub stub: String,
    /// Pid of the command; 0 before it has started.
    pub command: AtomicI32,
    /// What was counted and measured.
    pub meters: Meters,
    /// Messages to the launcher and the user.
    pub outbox: Outbox,
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
    /// Shared state with an empty core; the budget in bytes.
    pub fn new(scheme: Scheme, budget: u64, on_full: OnFull, swap: Option<Arc<SwapTier>>) -> std::io::Result<Shared> {
        let sizes = Sizes::new(budget, &scheme);
        let sizes = match on_full {
            OnFull::Fail | OnFull::Reclaim => sizes,
            OnFull::Stop | OnFull::Kill => sizes.one_goes(),
        };
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
            hasher: Hasher::new()?,
            procs: Lock::new(Vec::new()),
            unnamed: Unnamed::default(),
            turns: Turns::default(),
            room: Room::new(),
            expected: Lock::new(Vec::new()),
            files: Files::new(budget)?,
            cache: PageCache::default(),
            scheme,
            budget: Budget::new(sizes),
            cpus: CpuUse::default(),
            ending: AtomicBool::new(false),
            raw: Lock::new(Vec::new()),
            spare: Spare::new(&dictionaries, budget),
            dictionaries,
            sampling: None,
            regions: None,
            contents: None,
            started: Instant::now(),
            protect: Vec::new(),
            stub: String::new(),
            command: AtomicI32::new(0),
            meters: Meters::default(),
            outbox: Outbox::new()?,
        })
    }

    /// Locks the core. Unlock through [`Shared::apply_effects`] after changes of pages or frames.
    pub fn lock(&self) -> Locked<'_> {
        let state = self.turns.lock(&self.state);
        Locked { state, since: Instant::now(), longest: &self.meters.longest_hold }
    }

    /// Locks the core for calls about that process. `None` if it was removed: its number is
    /// nobody's then, or another process's. The process stays as long as the lock is held.
    pub fn lock_for(&self, proc: &Proc) -> Option<Locked<'_>> {
        let state = self.lock();
        (!proc.removed.load(Relaxed)).then_some(state)
    }

    /// [`Shared::apply_effects`] after a part of long work: the threads that wait for the core go
    /// first then.
    pub fn end_part(&self, state: Locked<'_>) {
        self.apply_effects(state);
        self.let_others();
    }

    /// Lets the threads go first that wait for the core. The caller does not hold its lock.
    pub fn let_others(&self) {
        self.turns.let_others(OTHERS_TAKE);
    }

    /// Calls `tell` for a range of a process, part by part: faults of other processes are served in
    /// between. The caller holds the process's `io`.
    pub fn in_parts(&self, proc: ProcId, mut range: PageRange, mut tell: impl FnMut(&mut Core, PageRange)) {
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
            for (from, to, bytes) in step.pieces() {
                self.memory.shift(from, to, bytes);
            }
        }
    }

    /// Reads the bytes of an object in the pool. They stay meanwhile, because it is pinned or being
    /// written.
    pub fn read_pooled(&self, runs: &Runs, out: &mut [u8]) {
        for (at, part) in runs.parts() {
            self.memory.copy_to(at, &mut out[part]);
        }
    }

    /// Carries out the effects of core calls, publishes the totals, unlocks.
    pub fn apply_effects(&self, mut state: Locked<'_>) {
        let Effects { moves, spans, extents, punch, closed } = state.core.take_effects();
        self.move_objects(&state, moves);
        if !spans.is_empty() {
            state.frames.freed(&spans, &self.memory);
        }
        for run in punch.chunk_by(|one, next| one.area == next.area && one.index + 1 == next.index) {
            if let Some(segment) = state.segments.get(&run[0].area) {
                segment.punch(crate::proc::slot_offset(run[0].index), run.len());
            }
        }
        let closed: Vec<_> = closed.iter().filter_map(|area| state.segments.remove(area)).collect();
        let totals = state.core.present_total()
            + u64::from(state.frames.backed_frames)
            + u64::from(state.core.staging_allocated());
        if let Some(swap) = &self.swap {
            swap.set_blocks_in_use(state.core.blocks_in_use().into(), state.core.blocks_free().into());
        }
        self.budget.managed.store(totals * 4096, Relaxed);
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

    /// Whether a process has a name that `--protect` gives: it is not stopped or killed for lack of
    /// room, and does not wait for its turn. A program may change its name. The kernel keeps the
    /// first 15 bytes of it.
    pub fn is_protected(&self, pid: i32) -> bool {
        let comm = if self.protect.is_empty() { None } else { procfs::comm(pid) };
        let Some(comm) = comm else { return false };
        self.protect.iter().any(|name| comm.as_bytes() == &name.as_bytes()[..name.len().min(15)])
    }

    /// Whether anything was ever written to the swap tier.
    pub fn has_swapped(&self) -> bool {
        self.swap.as_ref().is_some_and(|swap| swap.counters.writes.load(Relaxed) > 0)
    }

    /// Bytes of all tables. The core's lock is held only for its own.
    pub fn metadata_bytes(&self) -> u64 {
        let others = self.swap.as_ref().map_or(0, |swap| swap.metadata_bytes()) + self.files.metadata_bytes();
        let state = self.lock();
        state.core.metadata_bytes() + state.frames.metadata_bytes() + others
    }

    /// Bytes of paged processes in memory. What fork relatives share counts once, as in
    /// [`Budget::used`].
    pub fn resident_bytes(&self, core: &Core) -> u64 {
        (core.present_total() * 4096).saturating_sub(self.budget.doubled.load(Relaxed))
    }

    /// Milliseconds since the start: the core's tick.
    pub fn tick(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Whether a fault that needs `pages` must wait: [`Budget::is_short`]. Nobody waits when the
    /// pager ends.
    pub fn must_wait(&self, pages: u64) -> bool {
        self.budget.is_short(pages) && !self.ending.load(Relaxed)
    }

    /// Whether the kernel's accessed bits say which pages are hot.
    pub fn uses_accessed_bits(&self) -> bool {
        self.scheme.reclaim.accessed_bits != 0
    }

    /// Whether read-only memory can be evicted. The kernel does not protect a range both from all
    /// access and from writes alone.
    pub fn takes_read_only(&self) -> bool {
        maps::can_ask() && !self.uses_accessed_bits()
    }

    /// As [`Outbox::warn`].
    pub fn warn(&self, text: String) {
        self.outbox.warn(text);
    }

    /// Ends the run: the tree cannot go on with right data.
    pub fn fatal(&self, text: String) {
        self.ending.store(true, Relaxed);
        self.outbox.fatal(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_now_is_protected() {
        let mut shared = Shared::new(Scheme::default(), 64 << 20, OnFull::Kill, None).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        // The kernel sets the name when spawn has returned.
        while procfs::comm(pid).is_some_and(|comm| comm != "sleep") {
            std::thread::yield_now();
        }
        let none = shared.is_protected(pid);
        shared.protect = vec!["sleep".into()];
        let same = shared.is_protected(pid);
        shared.protect = vec!["slee".into(), "sleeps".into()];
        let others = shared.is_protected(pid);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!([none, same, others, shared.is_protected(pid)], [false, true, false, false]);
    }
}
