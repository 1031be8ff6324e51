//! The core: one object that takes every decision, one numbered call at a time.

use crate::blocks;
use crate::budget::Sizes;
use crate::core_call::{CoreCall, Recorder};
use crate::driver::Driver;
use crate::entry::Entry;
use crate::file_trial::FileTrial;
use crate::ids::{AreaId, Extent, ObjectId, Page, PageRange, ProcId, StagingSlot};
use crate::object::{Objects, Place};
use crate::pool::{Handle, Move, Pool, PoolUsage, Span};
use crate::pool_control::PoolControl;
use crate::replacement::ReplacementMode;
use crate::scheme::{AdmissionKind, ReclaimKind, Scheme, SizingKind, SwapFormat};
use crate::staging::Staging;
use crate::streams::Streams;
use crate::table::Table;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::ops::Range;

/// The scheme, and what follows from it and from the budget.
#[derive(Debug, Clone)]
pub struct Tunables {
    /// `schemes/memfit.toml` has units and defaults.
    pub scheme: Arc<Scheme>,
    /// The budget and what follows from it.
    pub sizes: Sizes,
    /// Staging slots (4 KiB each) over all processes.
    pub staging_slots: u32,
    /// Frames (4 KiB) that the pool may use.
    pub pool_frames: u32,
    /// Frames of the pool's address space: see [`crate::pool::PoolParams`].
    pub area_frames: u32,
    /// Whether there is a swap tier.
    pub swap: bool,
    /// Blocks of the swap tier, if the scheme's swap format uses blocks.
    pub blocks: Vec<Range<u32>>,
}

/// What the pager must do after a call, in addition to the call's own answer.
#[derive(Debug, Default)]
pub struct Effects {
    /// Bytes to move within the pool: at once, before anything else, and in this order.
    pub moves: Vec<Move>,
    /// Frames of the pool that became free.
    pub spans: Vec<Span>,
    /// Swap space that became free, with the stored length in bytes.
    pub extents: Vec<(Extent, u16)>,
    /// Staging slots whose memory goes back to the kernel.
    pub punch: Vec<StagingSlot>,
    /// Staging areas to close: their process is gone and no object is left in them.
    pub closed: Vec<AreaId>,
}

/// Counts since the start; pages unless said otherwise.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct Counters {
    pub faults: u64,
    pub faults_zero: u64,
    pub faults_staged: u64,
    pub faults_filled: u64,
    pub faults_pool: u64,
    pub faults_swap: u64,
    pub faults_file: u64,
    /// Faults on a page that another fault had already brought back.
    pub faults_present: u64,
    pub around_pages: u64,
    pub zero_run_pages: u64,
    pub evicted: u64,
    pub not_moved: u64,
    pub parked_runs: u64,
    /// Pages whose contents were stored already.
    pub same: u64,
    /// Hot pages that stayed when their run was the oldest.
    pub spared: u64,
    /// Pages that a look at the accessed bits showed as used.
    pub accessed: u64,
    pub filled: u64,
    pub compressed: u64,
    /// Pages that do not compress, or not enough, and went elsewhere or into the pool as they are.
    pub incompressible: u64,
    /// Of `incompressible`, pages stored raw in the pool.
    pub stored_raw: u64,
    /// Not compressed: rejected by entropy.
    pub by_entropy: u64,
    /// Not compressed: the process needs too little memory.
    pub by_need: u64,
    /// Not compressed: evicted by background reclaim, under a scheme that routes by origin.
    pub in_advance: u64,
    /// Not stored in the pool because it was full.
    pub pool_full: u64,
    pub to_swap: u64,
    /// Frames of the pool freed by writeback.
    pub evicted_frames: u64,
    /// Units (frames, zspages, buffers) that a policy chose to leave the pool.
    pub evicted_units: u64,
    /// Of these, by the number of zpages in them (more than three count as three), and by that of
    /// pages of files among these.
    pub evicted_mixes: [[u64; 4]; 4],
    /// Blocks that were read and became clean buffers.
    pub cached_reads: u64,
    /// Clean pages of files that were dropped, before or after the pool, without a write.
    pub file_dropped: u64,
    /// Of `to_swap`, pages written raw.
    pub raw_to_swap: u64,
    /// Pages that needed no write because the swap tier still had their contents.
    pub clean: u64,
    pub swap_failed: u64,
    /// Evicted pages whose contents the program discarded (munmap, MADV_DONTNEED, exit).
    pub dropped: u64,
    pub adopted: u64,
    pub quarantined: u64,
    pub unquarantined: u64,
    pub remapped: u64,
    pub forks: u64,
    /// Compressions in vain: the page refaulted or was dropped meanwhile.
    pub wasted: u64,
    pub compaction_moves: u64,
    /// COPY found a page present that the table had as evicted.
    pub unexpected_present: u64,
}

/// The decisions of memfit. No bytes, clocks, threads or system calls.
pub struct Core {
    pub(crate) table: Table,
    pub(crate) objects: Objects,
    pub(crate) staging: Staging,
    pub(crate) pool: Box<dyn Pool>,
    pub(crate) pool_control: PoolControl,
    /// By handle: the object whose zpage it is.
    pub(crate) owners: Vec<ObjectId>,
    pub(crate) streams: Vec<Streams>,
    /// The tick since which reclaim waits for pages of files, which are to leave first.
    pub(crate) waits_for_files: Option<u64>,
    pub(crate) file_trial: FileTrial,
    /// The tick since which reclaim waits for processes that may have pages that are not hot.
    pub(crate) waits_for_others: Option<u64>,
    /// The tick since which shared pages wait for others to leave.
    pub(crate) waits_to_share: Option<u64>,
    pub(crate) tunables: Tunables,
    pub(crate) effects: Effects,
    pub(crate) counters: Counters,
    pub(crate) driver: Driver,
    /// Processes that are to leave as a whole, in the order in which they were told.
    pub(crate) leaving: Vec<ProcId>,
    /// Calls so far.
    pub(crate) number: u64,
    pub(crate) recorders: Vec<Recorder>,
    pub(crate) last_process: ProcId,
}

impl Core {
    /// An empty core with the pool and the replacement mode of the scheme.
    pub fn new(tunables: Tunables) -> Core {
        let scheme = Arc::clone(&tunables.scheme);
        let pool = scheme.pool.make(tunables.area_frames, tunables.pool_frames);
        let mode = scheme.replacement.make(tunables.pool_frames);
        Core::with(tunables, pool, mode)
    }

    /// An empty core with a given pool and replacement mode.
    pub fn with(tunables: Tunables, mut pool: Box<dyn Pool>, mode: ReplacementMode) -> Core {
        let queue = match &mode {
            ReplacementMode::Queue(kind) => *kind,
            ReplacementMode::Nobody | ReplacementMode::Policy(_) => ReclaimKind::Fifo,
        };
        let copies = tunables.scheme.swap_format.kind == SwapFormat::CompressedExtents;
        let admission = &tunables.scheme.admission;
        let raw_queue = matches!(mode, ReplacementMode::Queue(_))
            && admission.kind == AdmissionKind::SizeCap
            && admission.raw_percent > 0;
        let shares = tunables.scheme.sizing.kind == SizingKind::Adaptive;
        let ages = shares && matches!(mode, ReplacementMode::Queue(_));
        let pool_control = PoolControl::new(&tunables, mode);
        pool.set_limit(pool_control.limit_frames());
        Core {
            table: Table::new(tunables.scheme.reclaim.kind),
            objects: Objects::new(queue, copies, raw_queue, ages),
            staging: Staging::new(tunables.staging_slots),
            pool,
            pool_control,
            owners: Vec::new(),
            streams: Vec::new(),
            file_trial: FileTrial::default(),
            waits_for_files: None,
            waits_for_others: None,
            waits_to_share: None,
            tunables,
            effects: Effects::default(),
            counters: Counters::default(),
            driver: Driver::default(),
            leaving: Vec::new(),
            number: 0,
            recorders: Vec::new(),
            last_process: ProcId(0),
        }
    }

    /// The tunables that the core was made from.
    pub fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    /// A new process with an empty table and a staging area of `slots` slots.
    pub fn add_process(&mut self, slots: u32) -> (ProcId, AreaId) {
        self.record(&CoreCall::AddProcess { slots });
        self.new_process(slots)
    }

    pub(crate) fn new_process(&mut self, slots: u32) -> (ProcId, AreaId) {
        let area = self.staging.add_area(slots);
        let proc = self.table.add_proc(area);
        self.last_process = proc;
        if self.streams.len() <= proc.0 as usize {
            self.streams.resize_with(proc.0 as usize + 1, Streams::default);
        }
        self.streams[proc.0 as usize] = Streams::default();
        (proc, area)
    }

    /// Frees everything of a process that is gone. Its batch must have been drained.
    pub fn remove_process(&mut self, proc: ProcId) {
        self.record(&CoreCall::RemoveProcess { proc });
        for (page, entry) in self.table.tracked(proc, PageRange::ALL) {
            self.forget(proc, page, entry);
        }
        self.table.prune(proc, PageRange::ALL);
        self.pool_control.give_slots(proc, PageRange::ALL);
        self.leaving.retain(|&leaving| leaving != proc);
        let area = self.table.proc(proc).area;
        self.table.procs[proc.0 as usize] = None;
        self.staging.orphan(area);
        self.collect();
    }

    /// Drops an entry in any state; for processes that are gone and ranges that are unmapped.
    pub(crate) fn forget(&mut self, proc: ProcId, page: Page, entry: Entry) {
        match entry {
            Entry::Out(object) => {
                self.counters.dropped += 1;
                self.drop_ref(object);
            }
            Entry::Loading(object) => {
                self.read_ends(object);
                self.drop_ref(object);
            }
            Entry::Evicting(slot) => {
                let area = self.table.proc(proc).area;
                self.staging.give_back(StagingSlot { area, index: slot.index() });
            }
            Entry::Untracked | Entry::Resident | Entry::Lazy | Entry::Quarantined(_) | Entry::Filling(_) => {}
        }
        self.table.set(proc, page, Entry::Untracked);
    }

    /// Drops a reference. The last one frees the place, unless a codec or a write still uses it:
    /// then the call that reports its end frees it.
    pub(crate) fn drop_ref(&mut self, id: ObjectId) {
        if self.objects.drop_ref(id) > 0 {
            return;
        }
        match self.objects.place_of(id) {
            Place::Compressing(_) | Place::Writing(_) | Place::WritingRaw(_) => {}
            place => self.free_place(id, place),
        }
    }

    pub(crate) fn free_place(&mut self, id: ObjectId, place: Place) {
        match place {
            Place::Staged(slot) | Place::Compressing(slot) | Place::WritingRaw(slot) => self.staging.give_back(slot),
            Place::Filled(word) => self.objects.fills.release(word),
            Place::Pooled(handle) | Place::Writing(handle) => _ = self.unpool(id, handle),
            Place::Swapped(extent) => self.unswap(id, extent),
            Place::Dropped => {}
            Place::Same(other) => self.drop_ref(other),
        }
        self.pool_control.unreserve(id);
        self.pool_control.unblock();
        self.objects.release(id);
    }

    /// Moves zpages out of nearly empty zspages. The pager copies the bytes in the order given,
    /// before it releases the core lock.
    pub fn compact(&mut self, max_moves: usize) -> Vec<Move> {
        self.record(&CoreCall::Compact { most: max_moves as u32 });
        let mut moves = Vec::new();
        let (objects, owners) = (&self.objects, &self.owners);
        // A policy keeps track of which zpage is in which unit, so nothing may move.
        if !matches!(self.pool_control.mode, ReplacementMode::Policy(_)) {
            self.pool.compact(max_moves, &movable(objects, owners), &mut moves, &mut self.effects.spans);
        }
        self.counters.compaction_moves += moves.len() as u64;
        moves
    }

    pub(crate) fn collect(&mut self) {
        self.effects.punch.append(&mut self.staging.punch);
        self.effects.closed.append(&mut self.staging.closed);
    }

    /// Returns the pending effects and empties the list.
    pub fn take_effects(&mut self) -> Effects {
        self.collect();
        core::mem::take(&mut self.effects)
    }

    /// As [`Core::take_effects`], for a caller that only has to free swap space: calls `freed` for
    /// each extent with its length in bytes. Keeps the capacity of the lists.
    pub fn apply_effects(&mut self, mut freed: impl FnMut(Extent, u16)) {
        self.collect();
        let Effects { moves, spans, extents, punch, closed } = &mut self.effects;
        extents.drain(..).for_each(|(extent, len)| freed(extent, len));
        moves.clear();
        spans.clear();
        punch.clear();
        closed.clear();
    }

    /// Returns only the freed frames. To be called before a call that places a page, under the same
    /// lock: otherwise the pager could give frames back that are in use again.
    pub fn take_freed_frames(&mut self) -> Vec<Span> {
        core::mem::take(&mut self.effects.spans)
    }

    /// State of a page.
    pub fn entry(&self, proc: ProcId, page: Page) -> Entry {
        self.table.get(proc, page)
    }

    /// The slot of a staged page that no codec and no write uses. The answer holds until the next
    /// call.
    pub fn staged(&self, proc: ProcId, page: Page) -> Option<StagingSlot> {
        match self.entry(proc, page) {
            Entry::Out(object) => match self.objects.place_of(object) {
                Place::Staged(slot) => Some(slot),
                _ => None,
            },
            _ => None,
        }
    }

    /// Counts since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether the pool has no room for another page. Until something leaves the pool, compressing
    /// is in vain.
    pub fn pool_is_full(&self) -> bool {
        self.pool_control.full
    }

    /// Whether the pool shall give pages to the swap tier although the next page has room.
    pub fn wants_room(&self) -> bool {
        self.pool_control.wants_room(|| self.pool.usage())
            || (self.pool_control.swap && self.objects.overdue().is_some())
    }

    /// The block of the swap tier for an object that is being written raw.
    pub fn block_of(&mut self, id: ObjectId) -> Option<u32> {
        self.record(&CoreCall::BlockOf { object: id });
        self.pool_control.slot(id)
    }

    /// The raw slot that still has the bytes of a staged page as they were when it last came back.
    /// The caller compares them: if they are the same, [`Coded::Stored`](crate::Coded::Stored)
    /// saves the write.
    pub fn kept_slot(&self, id: ObjectId) -> Option<Extent> {
        self.pool_control.kept_slot(id).map(|block| blocks::extent(block, 0))
    }

    /// Blocks of the swap tier in use, without those that are kept for pages in memory.
    pub fn blocks_in_use(&self) -> u32 {
        self.pool_control.blocks_in_use()
    }

    /// Blocks of the swap tier that pages can get, without those that the device refused
    /// ([`Core::refused`]).
    pub fn blocks_free(&self) -> u32 {
        self.pool_control.blocks_free()
    }

    /// Raw slots that are kept for pages in memory.
    pub fn slots_kept(&self) -> usize {
        self.pool_control.slots_kept()
    }

    /// Frames that the pool may use now.
    pub fn pool_limit(&self) -> u32 {
        self.pool_control.limit_frames()
    }

    /// Use of the pool.
    pub fn pool_usage(&self) -> PoolUsage {
        self.pool.usage()
    }

    /// Frames of the pool in use: O(1) in most pools.
    pub fn pool_frames(&self) -> u32 {
        self.pool.frames()
    }

    /// Pages in the memory of a process in registered ranges.
    pub fn present_pages(&self, proc: ProcId) -> u64 {
        self.table.proc(proc).present_pages
    }

    /// Pages that wait for a proof that the program's zap is over.
    pub fn quarantined_pages(&self, proc: ProcId) -> u64 {
        self.table.proc(proc).quarantined_pages
    }

    /// Present pages over all processes.
    pub fn present_total(&self) -> u64 {
        self.table.present_total
    }

    /// Objects in the swap tier.
    pub fn swapped_total(&self) -> u64 {
        self.objects.swapped
    }

    /// Staging slots that hold memory.
    pub fn staging_allocated(&self) -> u32 {
        self.staging.allocated
    }

    /// Staging slots in use.
    pub fn totals_staged(&self) -> u64 {
        u64::from(self.staging.in_use)
    }

    /// Most staging slots that shall hold a page.
    pub fn usable_slots(&self) -> u64 {
        u64::from(self.staging.usable())
    }

    /// Says whether the swap tier takes pages now. While it does not, incompressible pages go to
    /// the pool.
    pub fn swap_takes(&mut self, takes: bool) {
        self.record(&CoreCall::SwapTakes { takes });
        self.pool_control.swap = takes;
        if !takes {
            // It was closed so that pages go to the swap tier.
            self.pool_control.close(false);
        }
        self.pool_control.unblock();
    }

    /// Totals for statistics; O(runs).
    pub fn totals(&self, tick: u64) -> Totals {
        Totals {
            staged: u64::from(self.staging.in_use),
            quarantined: self.table.procs.iter().flatten().map(|p| p.quarantined_pages).sum(),
            evicting: self.table.procs.iter().flatten().map(|p| p.evicting_pages).sum(),
            parked: self.table.parked_pages(tick),
            staging_allocated: u64::from(self.staging.allocated),
            inactive: u64::from(self.objects.staged.len),
            pooled: self.objects.pooled(),
            filled: self.objects.filled,
            swapped: self.objects.swapped,
            objects: self.objects.live(),
            metadata_bytes: self.metadata_bytes(),
        }
    }

    /// Bytes of the core's own tables.
    pub fn metadata_bytes(&self) -> u64 {
        let owners = self.owners.capacity() as u64 * 4;
        let pool = self.pool.metadata_bytes() + self.pool_control.metadata_bytes();
        self.table.metadata_bytes() + self.objects.metadata_bytes() + pool + owners
    }

    /// Asserts all invariants; O(pages).
    pub fn check(&self) {
        self.table.check();
        self.pool.check();
        let mut refs = hashbrown::HashMap::<ObjectId, u32>::new();
        let mut evicting = 0;
        for (i, proc) in self.table.procs.iter().enumerate() {
            let Some(proc) = proc else { continue };
            evicting += proc.evicting_pages;
            for (_, entry) in self.table.tracked(ProcId(i as u32), PageRange::ALL) {
                if let Entry::Out(object) | Entry::Loading(object) = entry {
                    *refs.entry(object).or_default() += 1;
                }
            }
        }
        for (_, _, place) in self.objects.iter_live() {
            if let Place::Same(other) = place {
                *refs.entry(other).or_default() += 1;
            }
        }
        let (mut slots, mut zpages) = (evicting, 0);
        for (id, count, place) in self.objects.iter_live() {
            assert_eq!(refs.get(&id).copied().unwrap_or(0), count, "references of object {}", id.0);
            match place {
                Place::Staged(_) | Place::Compressing(_) | Place::WritingRaw(_) => slots += 1,
                Place::Pooled(_) | Place::Writing(_) => zpages += 1,
                _ => {}
            }
        }
        assert_eq!(slots, u64::from(self.staging.in_use), "staging slots in use");
        self.staging.check();
        assert_eq!(zpages, self.pool.usage().zpages, "zpages");
        self.objects.check();
        self.pool_control.check(&self.objects);
    }
}

/// Whether a zpage may be moved: no fault reads it and it is not being written back.
pub(crate) fn movable<'a>(objects: &'a Objects, owners: &'a [ObjectId]) -> impl Fn(Handle) -> bool + 'a {
    |handle| {
        let id = owners[handle.raw() as usize];
        !objects.pinned(id) && matches!(objects.place_of(id), Place::Pooled(_))
    }
}

/// Pages by place, over all processes.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct Totals {
    pub staged: u64,
    pub quarantined: u64,
    pub evicting: u64,
    /// Resident pages of parked runs.
    pub parked: u64,
    pub staging_allocated: u64,
    pub inactive: u64,
    pub pooled: u64,
    pub filled: u64,
    pub swapped: u64,
    pub objects: u64,
    /// Bytes of the core's own tables.
    pub metadata_bytes: u64,
}
