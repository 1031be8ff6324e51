//! Reclaim, as in the pager's reclaim thread. Here a write completes as soon as it begins.

use super::{Machine, Residents};
use memfit_codec::{Choice, CodecId, Pressure};
use memfit_core::budget::{compaction_pays, COMPACT_MOVES, COMPRESS_CHUNK, SLOW_DEVICE_NS};
use memfit_core::scheme::SwapFormat;
use memfit_core::{Coded, Compress, ObjectId, Origin, Placed, WriteBack, PAGE_BYTES};

/// Most pages of a batch.
const BATCH_PAGES: u64 = 256;
/// Rounds without gain in a row after which reclaim gives up.
const HOPELESS: u32 = 4;

impl Machine {
    /// Frees memory. Background reclaim does as much as the time that has passed allows. If too
    /// little is free, the program waits for reclaim.
    pub(super) fn balance(&mut self) {
        if self.residents == Residents::AsRecorded {
            return self.balance_pool();
        }
        let mut idle = 0;
        loop {
            let free = self.free();
            let marks = self.sizes.calm;
            if free >= marks.high as i64 {
                self.reclaiming = false;
            } else if free < marks.low as i64 {
                self.reclaiming = true;
            }
            if !self.reclaiming || idle >= HOPELESS {
                return;
            }
            let now = self.times.program;
            let direct = free < marks.min as i64;
            if self.reclaim_until > now {
                if !direct {
                    return;
                }
                self.times.waits += self.reclaim_until - now;
                self.times.program = self.reclaim_until;
                self.tally.waits += 1;
            } else {
                self.reclaim_until = now;
            }
            let origin = if direct { Origin::Direct } else { Origin::Background };
            idle = if self.round(origin) { 0 } else { idle + 1 };
        }
    }

    /// Frees memory when the recording decides which pages are resident: only staging and the pool
    /// can shrink. The pool shrinks only when the budget is exceeded by more than the low
    /// watermark: the recorded run exceeded its budget at moments, and the pool need not make up
    /// for that.
    fn balance_pool(&mut self) {
        let allowed = -(self.sizes.calm.low as i64);
        for _ in 0..HOPELESS {
            let over = self.free() < allowed;
            if !over && !self.slots_short() {
                return;
            }
            let now = self.times.program;
            if over && self.reclaim_until > now {
                self.times.waits += self.reclaim_until - now;
                self.times.program = self.reclaim_until;
                self.tally.waits += 1;
            }
            self.reclaim_until = self.reclaim_until.max(now);
            let origin = if over { Origin::Direct } else { Origin::Background };
            self.compress_for(COMPRESS_CHUNK, origin);
            self.core.adapt(self.tick());
            let over = self.free() < allowed;
            if over || self.core.wants_room() {
                self.make_pool_smaller(over);
            }
            self.clean();
        }
    }

    /// Does one round. Returns whether it made progress.
    fn round(&mut self, origin: Origin) -> bool {
        let mut gained = self.compact();
        let below_floor = self.below_floor();
        if !below_floor {
            gained += self.take_away();
        }
        if self.slots_short() || (gained == 0 && self.core.totals_staged() > 0) {
            gained += self.compress_for(COMPRESS_CHUNK, origin);
        }
        self.core.adapt(self.tick());
        if below_floor || self.core.wants_room() {
            gained += self.make_pool_smaller(below_floor);
        }
        gained += self.clean();
        gained > 0
    }

    /// Whether the resident pages are at their floor, so that only the pool can shrink.
    fn below_floor(&mut self) -> bool {
        let present = self.core.present_total() * PAGE_BYTES;
        let gives = self.tier.exists() && !self.tier.full;
        let below = self.sizes.below_floor(present, 0, &self.core.pool_usage(), gives);
        if self.core.overflows() {
            self.core.close_pool(below);
            return false;
        }
        below
    }

    pub(super) fn slots_short(&self) -> bool {
        let cap = self.sizes.staging / PAGE_BYTES;
        self.core.totals_staged() + BATCH_PAGES.min(cap / 2) > cap
    }

    /// Evicts a batch of the oldest pages. Returns how many.
    fn take_away(&mut self) -> usize {
        let most = u64::from(self.scheme.reclaim.batch_pages).min(BATCH_PAGES) as usize;
        let Some((id, victims)) = self.core.pick_victims(most, self.tick(), &|_| true) else { return 0 };
        let mut pages = 0;
        for victim in &victims {
            self.taken(id, victim.first.0, victim.slots.len() as u32);
            pages += victim.slots.len();
        }
        self.apply_effects();
        pages
    }

    pub(super) fn compress(&mut self, most: usize) -> usize {
        self.compress_for(most, Origin::Direct)
    }

    /// Compresses the oldest staged pages. Returns how many left staging or a full pool.
    fn compress_for(&mut self, most: usize, origin: Origin) -> usize {
        if self.core.pool_is_full() {
            return self.make_pool_smaller(true);
        }
        let mut picked = std::mem::take(&mut self.lists.picked);
        picked.clear();
        self.core.pick_compress(most, &mut picked);
        let counters = self.core.counters();
        let aim = self.aims.update(&Pressure {
            resident_percent: self.core.present_total() * PAGE_BYTES * 100 / self.sizes.budget,
            in_sequence: self.core.in_sequence(),
            compressed: counters.compressed,
            spilled: counters.to_swap - counters.raw_to_swap,
            slow_device: || self.tier.disk.is_slow(SLOW_DEVICE_NS),
            dictionaries: 0,
        });
        let mut done = 0;
        for &item in &picked {
            match self.compress_one(item, origin, aim) {
                Placed::Swap => done += usize::from(self.write_raw(item.object)),
                // Make room at once for the pages that follow: here a write frees its memory
                // immediately.
                Placed::Full => done += self.make_pool_smaller(true),
                Placed::Nothing | Placed::Pool { .. } => done += 1,
            }
        }
        self.lists.picked = picked;
        done
    }

    fn compress_one(&mut self, item: Compress, origin: Origin, aim: memfit_codec::Aim) -> Placed {
        let goes_on = self.core.goes_on(item.object);
        let (content, home, page) = self.objects[item.object.0 as usize];
        let content = *self.contents.get(content);
        let word = content.word.filter(|_| self.scheme.codec.same_filled != 0);
        if word.is_none() && self.core.wants_offer() {
            let estimate = self.core.wants_estimate().then(|| {
                self.tally.estimates += 1;
                content.estimate()
            });
            if estimate.is_some() {
                self.reclaims(self.costs.entropy_ns);
            }
            if let Some(placed) = self.core.offer(item.object, origin, estimate) {
                self.apply_effects();
                return placed;
            }
        }
        let coded = match word {
            Some(word) => Coded::Word(word),
            None => {
                let copy = |machine: &mut Machine| machine.tier.take_copy(home, page, item.object);
                let clean = if goes_on { copy(self) } else { None };
                match clean {
                    Some(stored) => Coded::Stored(stored),
                    None => match self.encode(&content, item.region, aim) {
                        Coded::Incompressible if !goes_on => copy(self).map_or(Coded::Incompressible, Coded::Stored),
                        coded => coded,
                    },
                }
            }
        };
        _ = self.core.take_freed_frames();
        let placed = self.core.compressed(item.object, coded);
        self.apply_effects();
        placed
    }

    /// Compresses with the scheme's codec, or with the best of those that the selector chooses.
    fn encode(&mut self, content: &crate::contents::Content, region: u32, aim: memfit_codec::Aim) -> Coded {
        let limit = self.core.len_max() as u16;
        let key = u64::from(region);
        let choice = self.codec.map_or_else(|| self.selector.choose(key, aim), Choice::Use);
        let auto = self.codec.is_none();
        let mut best: Option<(CodecId, u16)> = None;
        let codecs: &[CodecId] = match &choice {
            Choice::Skip => &[],
            Choice::Use(codec) => std::slice::from_ref(codec),
            Choice::Sample(codecs) => codecs,
        };
        let mut ns = 0;
        for &codec in codecs {
            self.tally.compressions[usize::from(codec.0)] += 1;
            ns += self.costs.codec(codec.0).compress_ns;
            let len = content.len(codec).filter(|&len| len <= limit);
            if auto {
                self.selector.record(key, codec, PAGE_BYTES as usize, len.map(usize::from));
            }
            if let Some(len) = len.filter(|&len| best.is_none_or(|(_, l)| len < l)) {
                best = Some((codec, len));
            }
        }
        self.reclaims(ns);
        let Some((codec, len)) = best else { return Coded::Incompressible };
        self.tally.coded_bytes.0 += PAGE_BYTES;
        self.tally.coded_bytes.1 += u64::from(len);
        Coded::Bytes { codec: codec.0, len: len.into() }
    }

    /// Frees frames: by compaction if it pays, otherwise by writeback to the swap tier.
    fn make_pool_smaller(&mut self, pressed: bool) -> usize {
        match self.compact() {
            0 => self.write_back(pressed),
            frames => frames,
        }
    }

    fn compact(&mut self) -> usize {
        let before = self.core.pool_usage();
        if !compaction_pays(&before) && before.frames <= self.core.pool_limit() {
            return 0;
        }
        let moves = self.core.compact(COMPACT_MOVES).len() as u64;
        self.reclaims(moves * self.costs.stage_ns);
        self.apply_effects();
        before.frames.saturating_sub(self.core.pool_frames()) as usize
    }

    /// Writes the coldest objects of the pool to the swap tier. Returns how many left the pool.
    fn write_back(&mut self, pressed: bool) -> usize {
        if !self.tier.exists() {
            return 0;
        }
        let mut victims = std::mem::take(&mut self.lists.victims);
        victims.clear();
        if self.wants_log() {
            let Some(bytes) = self.tier.batch(&mut self.tally) else {
                self.swap_full();
                return 0;
            };
            self.core.pick_writeback(pressed, bytes, &mut victims);
            self.apply_effects();
            for victim in &victims {
                let stored = self.tier.append(victim.object, victim.len as u16, victim.codec, false, &mut self.tally);
                self.written(victim.object, stored.map(|stored| stored.extent));
            }
            self.flush();
        } else {
            self.core.pick_writeback(pressed, u32::MAX, &mut victims);
            self.apply_effects();
            self.write_blocks(&victims);
        }
        let left = victims.len();
        self.lists.victims = victims;
        left
    }

    /// Writes whole slots, or whole buffers with all of their objects.
    fn write_blocks(&mut self, victims: &[WriteBack]) {
        let raw = self.scheme.swap_format.kind == SwapFormat::RawSlots;
        let mut blocks: Vec<u32> = Vec::new();
        for victim in victims {
            let extent = victim.to.expect("it has a place");
            let block = memfit_core::blocks::block_of(extent);
            if raw && victim.codec != 0 {
                self.tally.decompressions[usize::from(victim.codec)] += 1;
                self.reclaims(self.costs.codec(victim.codec).decompress_ns);
            }
            if blocks.last() != Some(&block) {
                blocks.push(block);
            }
        }
        let ns = self.tier.write_blocks(&blocks, self.reclaim_until, &mut self.tally);
        self.waits_for_device(ns);
        for victim in victims {
            self.written(victim.object, victim.to);
        }
    }

    /// Writes a staged page uncompressed. Returns whether it left staging.
    fn write_raw(&mut self, object: ObjectId) -> bool {
        let extent = if self.wants_log() {
            let stored = self.tier.append(object, PAGE_BYTES as u16, 0, false, &mut self.tally);
            if stored.is_none() {
                self.swap_full();
            }
            self.flush();
            stored.map(|stored| stored.extent)
        } else {
            let block = self.core.block_of(object);
            if let Some(block) = block {
                let ns = self.tier.write_blocks(&[block], self.reclaim_until, &mut self.tally);
                self.waits_for_device(ns);
            }
            block.map(|block| memfit_core::blocks::extent(block, 0))
        };
        self.written(object, extent);
        extent.is_some()
    }

    fn written(&mut self, object: ObjectId, extent: Option<memfit_core::Extent>) {
        self.core.written(object, extent);
        self.apply_effects();
    }

    /// Writes the collected objects to the device.
    fn flush(&mut self) {
        let ns = self.tier.flushed(self.reclaim_until, &mut self.tally);
        self.waits_for_device(ns);
    }

    /// Delays reclaim: it waits for the device.
    fn waits_for_device(&mut self, ns: u64) {
        self.reclaim_until += ns;
    }

    fn swap_full(&mut self) {
        if !self.tier.full {
            self.tier.full = true;
            self.core.swap_takes(false);
        }
    }

    /// Cleans a segment with many holes, if that pays: appends its live objects anew. Returns how
    /// many.
    fn clean(&mut self) -> usize {
        let Some((segment, objects)) = self.tier.begin_cleaning(&mut self.tally) else {
            self.no_longer_full();
            return 0;
        };
        let mut moved = 0;
        for object in objects {
            let Some(stored) = self.core.movable(object, segment) else { continue };
            let Some(to) = self.tier.append(object, stored.len, stored.codec, true, &mut self.tally) else { break };
            self.core.relocated(object, stored.extent, to);
            self.apply_effects();
            moved += 1;
        }
        self.flush();
        self.tier.cleaned(segment);
        self.no_longer_full();
        moved
    }

    fn no_longer_full(&mut self) {
        if self.tier.full && self.tier.has_room_again() {
            self.tier.full = false;
            self.core.swap_takes(true);
        }
    }
}
