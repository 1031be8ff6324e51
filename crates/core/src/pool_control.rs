//! State of the pool's control: what leaves the pool, how large the pool may be, and where objects
//! are in the swap tier.
//!
//! The calls that change it are in `reclaim` and `writeback`.

use crate::admission::Selective;
use crate::blocks::{block_of, BlockMap, BLOCK_BYTES};
use crate::engine::Tunables;
use crate::ids::{ObjectId, Page, PageRange, ProcId, NIL};
use crate::object::{Objects, Place};
use crate::pool::zones::zone_size;
use crate::pool::{Pool, PoolUsage, Unit};
use crate::replacement::ReplacementMode;
use crate::scheme::{AdmissionKind, Scheme, Sizing, SizingKind, SwapFormat};
use crate::swap_cache::SwapCache;
use crate::zone_sizing::{Every, ZoneSizing};
use alloc::{sync::Arc, vec::Vec};
use hashbrown::{HashMap, HashSet};

/// A unit whose zpages are being written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sealed {
    /// Number of writes under way.
    pub writing: u32,
    /// The block for the whole unit, if the swap format is batches; else [`NIL`].
    pub block: u32,
    /// Frames that will become free.
    pub frames: u32,
    /// The device cannot write the block.
    pub refused: bool,
    /// The unit is empty.
    pub gone: bool,
}

/// Buffers that have been written and still hold their bytes (cervera99, rule 13).
#[derive(Debug, Default)]
struct Clean {
    /// By block: frame, and number of threads that read it.
    by_block: HashMap<u32, (u32, u32)>,
    /// Block by frame.
    by_frame: HashMap<u32, u32>,
}

pub(crate) struct PoolControl {
    scheme: Arc<Scheme>,
    /// Whether the swap tier takes pages now.
    pub swap: bool,
    pub mode: ReplacementMode,
    /// Programs wait for a CPU: see [`PoolControl::cap`].
    pub busy: bool,
    /// The pool takes no zpages for now.
    pub closed: bool,
    /// Mean benefit of the pool, for admission by entropy.
    pub selective: Option<Selective>,
    sizing: Option<ZoneSizing>,
    limit: u32,
    /// Space of the swap tier, if the swap format uses blocks.
    blocks: BlockMap,
    /// Raw slots: the block of each object, or [`NIL`].
    slots: Vec<u32>,
    cache: SwapCache,
    /// Batches: frames of dirty buffers that have reserved a block.
    dirty: HashSet<u32>,
    pub sealed: HashMap<u32, Sealed>,
    clean: Clean,
    /// If read blocks are cached: reads of blocks that are under way, without those of clean
    /// buffers.
    reading: HashMap<u32, u32>,
    /// Units to write although the pool has room.
    pub due: Vec<Unit>,
    /// Frames that were missing for the last zpage that did not fit.
    pub needed: u32,
    /// A zpage did not fit, and nothing has left the pool since.
    pub full: bool,
    /// It was not the pool that lacked room: anything that is freed may remove the obstacle.
    pub blocked: bool,
    /// Frames of units, or single zpages, that are being written back.
    pub leaving: u32,
    stores: u64,
    tick: u64,
}

impl PoolControl {
    pub fn new(tunables: &Tunables, mode: ReplacementMode) -> PoolControl {
        let scheme = Arc::clone(&tunables.scheme);
        let sizing = (scheme.sizing.kind == SizingKind::Zones).then(|| {
            let zone = zone_size(&scheme.pool.params(tunables.area_frames, tunables.pool_frames));
            let Sizing { grow_below_zones: grow, shrink_above_zones: shrink, check_ms, check_stores, .. } =
                scheme.sizing;
            let every = Every { ms: check_ms, stores: check_stores };
            ZoneSizing::new(zone, grow, shrink, tunables.pool_frames / zone.0, every)
        });
        let limit = if sizing.is_some() { 0 } else { tunables.pool_frames };
        let selective = (scheme.admission.kind == AdmissionKind::Entropy).then(Selective::default);
        PoolControl {
            scheme,
            swap: tunables.swap,
            mode,
            busy: false,
            closed: false,
            selective,
            sizing,
            limit,
            blocks: BlockMap::new(&tunables.blocks),
            slots: Vec::new(),
            cache: SwapCache::default(),
            dirty: HashSet::new(),
            sealed: HashMap::new(),
            clean: Clean::default(),
            reading: HashMap::new(),
            due: Vec::new(),
            needed: 0,
            full: false,
            blocked: false,
            leaving: 0,
            stores: 0,
            tick: 0,
        }
    }

    /// Closes the pool to new zpages, or opens it again. While it is closed, new pages go to the
    /// swap tier if it takes them. Without effect if the swap format is batches.
    pub fn close(&mut self, closed: bool) {
        self.closed = closed;
        if !closed {
            self.unblock();
        }
    }

    /// An obstacle other than the pool's own room may be gone.
    pub fn unblock(&mut self) {
        if core::mem::take(&mut self.blocked) {
            self.full = false;
        }
    }

    pub fn format(&self) -> SwapFormat {
        self.scheme.swap_format.kind
    }

    pub fn limit_frames(&self) -> u32 {
        self.limit
    }

    /// An object is created: with raw slots it gets its slot now, as in the kernel (ezswap, rule
    /// Z1).
    pub fn reserve(&mut self, id: ObjectId) {
        if self.format() == SwapFormat::RawSlots {
            let block = self.blocks.alloc().or_else(|| self.cache.give_up());
            self.set_slot(id, block.unwrap_or(NIL));
        }
    }

    fn set_slot(&mut self, id: ObjectId, block: u32) {
        let i = id.0 as usize;
        if self.slots.len() <= i {
            let missing = i + 1 - self.slots.len();
            crate::grow::reserve_tight(&mut self.slots, missing);
            self.slots.resize(i + 1, NIL);
        }
        self.slots[i] = block;
    }

    /// The same for an object whose page leaves memory: it gets the slot that was kept for it, if
    /// there is one.
    pub fn reserve_for(&mut self, id: ObjectId, proc: ProcId, page: Page) {
        match self.cache.leaves(proc, page, id) {
            Some(block) => self.set_slot(id, block),
            None => self.reserve(id),
        }
    }

    /// Whether the slots of pages that come back are kept: not if more than half of all slots are
    /// taken (in the kernel `vm_swap_full`).
    pub fn keeps_slots(&self) -> bool {
        self.format() == SwapFormat::RawSlots && self.blocks.free_blocks() >= self.blocks.used_blocks()
    }

    /// The page of an object is in memory again, and the object is about to go: its raw slot is
    /// kept, if it has the page's bytes.
    pub fn keep_slot(&mut self, id: ObjectId, place: Place, proc: ProcId, page: Page) {
        let has = matches!(place, Place::Swapped(_)) || self.cache.has(id);
        if has && self.keeps_slots() {
            let block = core::mem::replace(&mut self.slots[id.0 as usize], NIL);
            self.cache.ends(id);
            if let Some(other) = self.cache.came(proc, page, block) {
                self.blocks.release(other);
            }
        }
    }

    /// The slots of pages that are unmapped are free.
    pub fn give_slots(&mut self, proc: ProcId, range: PageRange) {
        for block in self.cache.unmapped(proc, range) {
            self.blocks.release(block);
            self.unblock();
        }
    }

    /// The slot of a staged object, if it still has the bytes that its page had when it last came
    /// back.
    pub fn kept_slot(&self, id: ObjectId) -> Option<u32> {
        self.cache.has(id).then(|| self.slots[id.0 as usize])
    }

    /// The object leaves staging: its slot will be written, or is its place. Returns the slot, if
    /// it still has the bytes that the page had.
    pub fn leaves_staging(&mut self, id: ObjectId) -> Option<u32> {
        self.cache.ends(id).then(|| self.slots[id.0 as usize])
    }

    /// The object is gone.
    pub fn unreserve(&mut self, id: ObjectId) {
        self.cache.ends(id);
        if let Some(block) = self.slots.get_mut(id.0 as usize).map(|slot| core::mem::replace(slot, NIL)) {
            if block != NIL {
                self.blocks.release(block);
            }
        }
    }

    /// The raw slot of an object. If none was free at its creation, tries again.
    pub fn slot(&mut self, id: ObjectId) -> Option<u32> {
        if !self.has_slot(id) {
            self.reserve(id);
        }
        self.slots.get(id.0 as usize).copied().filter(|&slot| slot != NIL)
    }

    /// Whether the object has a raw slot already.
    pub fn has_slot(&self, id: ObjectId) -> bool {
        self.slots.get(id.0 as usize).is_some_and(|&slot| slot != NIL)
    }

    /// The raw slot of an object cannot be written: the object needs another one.
    pub fn lose_slot(&mut self, id: ObjectId) {
        if self.format() != SwapFormat::RawSlots {
            return;
        }
        if let Some(block) = self.slots.get_mut(id.0 as usize).map(|slot| core::mem::replace(slot, NIL)) {
            if block != NIL {
                // Nobody reserves slots.
                let _ = self.blocks.lose(block);
            }
        }
    }

    /// The block of a buffer cannot be written, and its objects have left it. Reservations of dirty
    /// buffers for which no block is left end. Returns the same as [`PoolControl::leave_block`].
    pub fn lose_block(&mut self, block: u32) -> Option<Unit> {
        let broken = self.blocks.lose(block) as usize;
        if broken > 0 {
            let mut frames: Vec<u32> = self.dirty.iter().copied().collect();
            frames.sort_unstable();
            frames.iter().rev().take(broken).for_each(|&frame| self.buffer_ended(frame));
        }
        self.forget_clean(block)
    }

    /// Whether the swap tier can take a page raw.
    pub fn takes_raw(&mut self, id: ObjectId) -> bool {
        match self.format() {
            _ if !self.swap => false,
            SwapFormat::CompressedExtents => true,
            SwapFormat::RawSlots => self.slot(id).is_some(),
            SwapFormat::CompressedBatches => false,
        }
    }

    /// Whether the pool may take another page. With batches, a whole block must be free for it,
    /// however little it will need, and the table of pages must have room (cervera99, rules 1 to
    /// 3).
    pub fn may_store(&mut self, objects: u64) -> bool {
        if self.format() != SwapFormat::CompressedBatches {
            return !self.closed;
        }
        let total = u64::from(self.blocks.free_blocks() + self.blocks.used_blocks());
        let room = objects * 100 <= total * u64::from(self.scheme.swap_format.virtual_percent);
        let certain = self.blocks.reserve();
        if certain {
            self.blocks.unreserve();
        }
        room && certain
    }

    /// A zpage was stored at the start of a buffer: the frame's old contents are gone, and the
    /// buffer will need a block.
    pub fn buffer_begun(&mut self, frame: u32) {
        if self.format() != SwapFormat::CompressedBatches {
            return;
        }
        self.frame_reused(frame);
        self.buffer_again(frame);
    }

    /// A frame does not hold the contents of a block any more.
    fn frame_reused(&mut self, frame: u32) {
        if let Some(block) = self.clean.by_frame.remove(&frame) {
            self.clean.by_block.remove(&block);
        }
    }

    /// A buffer is being written or is gone.
    pub fn buffer_ended(&mut self, frame: u32) {
        if self.dirty.remove(&frame) {
            self.blocks.unreserve();
        }
    }

    /// The buffer goes on as a dirty one.
    pub fn buffer_again(&mut self, frame: u32) {
        if self.blocks.reserve() {
            self.dirty.insert(frame);
        }
    }

    /// Blocks for `buffers` buffers, contiguous if there is such a run.
    pub fn blocks_for(&mut self, buffers: u32) -> Option<Vec<u32>> {
        let runs = self.blocks.alloc_run(buffers);
        (!runs.is_empty()).then(|| runs.into_iter().flatten().collect())
    }

    /// `objects` objects are in a block.
    pub fn take_block(&mut self, block: u32, objects: u32) {
        self.blocks.take(block, objects as u16);
    }

    /// An object has left its block. Returns the clean buffer that has become useless.
    pub fn leave_block(&mut self, block: u32) -> Option<Unit> {
        if !self.blocks.release(block) {
            return None;
        }
        self.forget_clean(block)
    }

    fn forget_clean(&mut self, block: u32) -> Option<Unit> {
        let (frame, _) = self.clean.by_block.remove(&block)?;
        self.clean.by_frame.remove(&frame);
        Some(Unit(frame))
    }

    /// All contents of a buffer are in this block.
    pub fn cleaned(&mut self, unit: Unit, block: u32) {
        self.clean.by_block.insert(block, (unit.0, 0));
        self.clean.by_frame.insert(unit.0, block);
    }

    /// The frame that still holds the bytes of an object in the swap tier.
    pub fn clean_frame(&self, extent: crate::ids::Extent) -> Option<u32> {
        if self.clean.by_block.is_empty() {
            return None;
        }
        self.clean.by_block.get(&block_of(extent)).map(|&(frame, _)| frame)
    }

    /// Whether blocks that are read become clean buffers.
    pub fn caches_reads(&self) -> bool {
        self.format() == SwapFormat::CompressedBatches && self.scheme.swap_format.cache_reads != 0
    }

    /// Whether a block that was just read becomes a clean buffer. Not if its contents may change
    /// hands: it is free, being written, in a buffer already, or being read by another thread.
    pub fn caches(&self, block: u32) -> bool {
        let is_written = || self.sealed.values().any(|sealed| sealed.block == block);
        self.caches_reads()
            && self.blocks.objects(block) > 0
            && !self.clean.by_block.contains_key(&block)
            && !self.reading.contains_key(&block)
            && !is_written()
    }

    /// A clean buffer gets the contents of a block that was read.
    pub fn cached(&mut self, unit: Unit, block: u32) {
        self.frame_reused(unit.0);
        self.cleaned(unit, block);
    }

    /// A thread begins to read an object that is in the swap tier; returns its clean buffer if it
    /// has one and this is the first reader.
    pub fn read_begins(&mut self, extent: crate::ids::Extent) -> Option<Unit> {
        let block = block_of(extent);
        let Some((frame, readers)) = self.clean.by_block.get_mut(&block) else {
            if self.caches_reads() {
                *self.reading.entry(block).or_default() += 1;
            }
            return None;
        };
        *readers += 1;
        (*readers == 1).then_some(Unit(*frame))
    }

    /// A thread has finished reading it; returns the clean buffer if it was the last reader.
    pub fn read_ends(&mut self, extent: crate::ids::Extent) -> Option<Unit> {
        let block = block_of(extent);
        if let Some(reads) = self.reading.get_mut(&block) {
            *reads -= 1;
            if *reads == 0 {
                self.reading.remove(&block);
            }
            return None;
        }
        let (frame, readers) = self.clean.by_block.get_mut(&block)?;
        assert!(*readers > 0, "nobody reads the buffer at frame {frame}");
        *readers -= 1;
        (*readers == 0).then_some(Unit(*frame))
    }

    /// A zpage was stored.
    pub fn stored(&mut self, pool: &mut dyn Pool) {
        self.stores += 1;
        self.resize(pool);
    }

    /// Checks whether the pool shall grow or shrink.
    pub fn adapt(&mut self, tick: u64, pool: &mut dyn Pool) {
        self.tick = tick;
        self.resize(pool);
    }

    fn resize(&mut self, pool: &mut dyn Pool) {
        let Some(sizing) = &mut self.sizing else { return };
        if let Some(limit) = sizing.check(self.tick, self.stores, &pool.usage()) {
            self.full = false;
            self.limit = limit;
            pool.set_limit(limit);
        }
    }

    /// A page did not fit.
    pub fn missed(&mut self) {
        self.sizing.iter_mut().for_each(ZoneSizing::missed);
    }

    /// A page did not fit, and nothing else takes it: the pool grows at once, if it may.
    pub fn grow_now(&mut self, pool: &mut dyn Pool) {
        if let Some(sizing) = &mut self.sizing {
            sizing.missed();
            sizing.make_due();
        }
        self.resize(pool);
    }

    /// Whether the pool may become larger later.
    pub fn can_grow(&self) -> bool {
        self.sizing.as_ref().is_some_and(ZoneSizing::can_grow)
    }

    /// Whether the pool shall give pages to the swap tier although the next page has room.
    pub fn wants_room(&self, usage: impl Fn() -> PoolUsage) -> bool {
        if !self.due.is_empty() {
            return true;
        }
        let reserve = u64::from(self.scheme.sizing.reserve_pages);
        if reserve == 0 || self.can_grow() {
            return false;
        }
        let usage = usage();
        let free = (u64::from(self.limit) * u64::from(BLOCK_BYTES)).saturating_sub(usage.used_bytes);
        usage.zpages > 0 && free * usage.zpages < reserve * usage.used_bytes
    }

    /// Longest zpage that is worth its room, bytes.
    pub fn cap(&self) -> u32 {
        let admission = &self.scheme.admission;
        if self.busy && self.swap {
            admission.max_len.min(admission.busy_max_len)
        } else {
            admission.max_len
        }
    }

    /// Whether the pool keeps a zpage of `len` bytes.
    pub fn keeps_len(&self, len: u32, usage: impl Fn() -> PoolUsage) -> bool {
        let admission = &self.scheme.admission;
        if admission.kind != AdmissionKind::SizeCap || len <= self.cap() {
            return true;
        }
        if admission.cap_below_percent == 100 {
            return false;
        }
        let total = u64::from(self.limit) * u64::from(BLOCK_BYTES);
        let free = total.saturating_sub(usage().used_bytes);
        free * 100 >= total * u64::from(admission.cap_below_percent)
    }

    /// Blocks of the swap tier that are in use; each of the others can be had.
    pub fn blocks_in_use(&self) -> u32 {
        self.blocks.used_blocks() - self.cache.kept() as u32
    }

    /// Blocks that can be had, if the device writes them.
    pub fn blocks_free(&self) -> u32 {
        self.blocks.free_blocks() + self.cache.kept() as u32
    }

    /// Raw slots that are kept for pages in memory.
    pub fn slots_kept(&self) -> usize {
        self.cache.kept()
    }

    pub fn metadata_bytes(&self) -> u64 {
        let policy = if let ReplacementMode::Policy(policy) = &self.mode { policy.metadata_bytes() } else { 0 };
        let maps = self.clean.by_block.capacity() * 12 + self.clean.by_frame.capacity() * 8;
        let tables = self.slots.capacity() * 4 + self.dirty.capacity() * 4 + self.sealed.capacity() * 12 + maps;
        policy + self.blocks.metadata_bytes() + self.cache.metadata_bytes() + tables as u64
    }

    /// Asserts that blocks and units match the objects; O(objects).
    pub fn check(&self, objects: &Objects) {
        self.blocks.check();
        if let ReplacementMode::Policy(policy) = &self.mode {
            policy.check();
        }
        self.selective.iter().for_each(Selective::check);
        assert!(!objects.passed().any(|id| self.has_slot(id)), "an object with a raw slot was passed");
        let mut in_blocks: HashMap<u32, u32> = HashMap::new();
        for (id, _, place) in objects.iter_live() {
            match (self.format(), place) {
                (SwapFormat::RawSlots, Place::Swapped(extent)) => {
                    assert_eq!(self.slots[id.0 as usize], block_of(extent), "object {} is in its slot", id.0);
                }
                (SwapFormat::CompressedBatches, Place::Swapped(extent)) => {
                    *in_blocks.entry(block_of(extent)).or_default() += 1;
                }
                _ => {}
            }
        }
        if self.format() == SwapFormat::RawSlots {
            let slots = self.slots.iter().filter(|&&slot| slot != NIL).count();
            assert_eq!((slots + self.cache.kept()) as u32, self.blocks.used_blocks(), "slots of objects and pages");
        }
        for id in self.cache.objects() {
            let place = objects.place_if_live(id);
            assert!(matches!(place, Some(Place::Staged(_) | Place::Compressing(_))), "object {} is {place:?}", id.0);
        }
        assert!(self.clean.by_block.keys().all(|block| in_blocks.contains_key(block)), "clean buffers of nobody");
        assert_eq!(self.clean.by_block.len(), self.clean.by_frame.len());
    }
}
