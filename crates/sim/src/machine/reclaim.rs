//! Prices the steps of reclaim that the core decides about. Here a write completes as soon as it
//! begins.

use super::{Machine, Residents};
use memfit_codec::{CodecId, Prices, Worth, FAULT_NS};
use memfit_core::budget::{Level, COMPACT_MOVES, SLOW_DEVICE_NS};
use memfit_core::driver::{Done, Seen, Step};
use memfit_core::scheme::{Classes, SwapFormat};
use memfit_core::{Coded, Compress, ObjectId, Origin, Placed, WriteBack, PAGE_BYTES};

/// Rounds and sleeps in a row that free no staging slot, before staging is taken for full.
const IN_VAIN: u32 = 4;

impl Machine {
    /// Frees memory. Background reclaim does as much as the time that has passed allows. If too
    /// little is free, the program waits for reclaim.
    pub(super) fn balance(&mut self) {
        loop {
            let level = self.level();
            if self.core.reclaim_sleeps() && level >= Level::BelowHigh && !self.core.processes_leave() {
                return;
            }
            let now = self.times.program;
            if self.reclaim_until <= now {
                self.reclaim_until = now;
            } else if level <= Level::BelowMin && !self.core.is_stuck() {
                self.times.waits += self.reclaim_until - now;
                self.times.program = self.reclaim_until;
                self.tally.waits += 1;
            } else {
                return;
            }
            if self.reclaim() {
                return;
            }
        }
    }

    /// Goes on to the end of a round. Returns whether reclaim sleeps now.
    fn reclaim(&mut self) -> bool {
        let mut done = Done::default();
        loop {
            let step = self.next_step(&done);
            match step {
                Step::Sleep => return true,
                Step::RoundEnds { .. } => return false,
                Step::Pause { us } => {
                    self.reclaim_until += u64::from(us) * 1000;
                    return false;
                }
                _ => done = self.carry_out(step),
            }
        }
    }

    /// Goes on until staging has room for a batch, or cannot get any.
    pub(super) fn make_room_in_staging(&mut self) {
        let mut in_vain = 0;
        while self.core.slots_short() && in_vain < IN_VAIN {
            let staged = self.core.totals_staged();
            self.reclaim();
            in_vain = if self.core.totals_staged() < staged { 0 } else { in_vain + 1 };
        }
    }

    fn next_step(&mut self, done: &Done) -> Step {
        let seen = Seen {
            level: self.level(),
            gained: done.gained,
            blocked: done.blocked,
            unmanaged: 0,
            evicts: self.residents == Residents::Simulated,
            tier_writable: self.tier.exists(),
            tier_has_space: self.tier.exists() && !self.tier.full,
            tier_slow: self.tier.disk.is_slow(SLOW_DEVICE_NS),
            tier_busy: false,
            cpus_full: false,
            answer_late: false,
            read_us: self.tier.disk.page_read_ns().div_ceil(1000) as u32,
        };
        let step = self.core.next_step(self.reclaim_until / 1_000_000, seen);
        self.apply_effects();
        step
    }

    fn carry_out(&mut self, step: Step) -> Done {
        match step {
            Step::Compact => return self.compact(),
            Step::Evict => return Done::gained(self.take_away()),
            Step::Compress { most, origin } => return self.compress(most as usize, origin),
            Step::WriteBack { pressed } => return Done::gained(self.write_back(pressed)),
            Step::Clean => self.clean(),
            Step::Flush => self.flush(),
            // Writes and the answers to batches have come at once, and these end a round.
            Step::WriteRaw | Step::Reap | Step::Collect | Step::WaitForBatch | Step::WaitForDevice => {}
            Step::Sleep | Step::RoundEnds { .. } | Step::Pause { .. } => {}
        }
        Done::default()
    }

    /// How much memory is free. When the recording decides which pages are resident, only staging
    /// and the pool can shrink. The pool shrinks only when the budget is exceeded by more than the
    /// low watermark: the recorded run exceeded its budget at moments, and the pool need not make
    /// up for that.
    fn level(&self) -> Level {
        let (free, marks) = (self.free(), &self.sizes.calm);
        match self.residents {
            Residents::Simulated => self.sizes.level(marks, free),
            Residents::AsRecorded if free < -(marks.low as i64) => Level::BelowMin,
            Residents::AsRecorded if self.core.slots_short() => Level::BelowLow,
            Residents::AsRecorded => Level::Enough,
        }
    }

    /// Evicts a batch of the oldest pages. Returns how many.
    fn take_away(&mut self) -> usize {
        let most = self.scheme.reclaim.batch_pages as usize;
        let Some((id, victims)) = self.core.pick_victims(most, self.tick(), &|_| true) else { return 0 };
        let mut pages = 0;
        for victim in &victims {
            self.taken(id, victim.first.0, victim.slots.len() as u32);
            pages += victim.slots.len();
        }
        self.apply_effects();
        pages
    }

    /// Compresses the oldest staged pages.
    fn compress(&mut self, most: usize, origin: Origin) -> Done {
        if self.core.pool_is_full() {
            return Done { gained: 0, blocked: true };
        }
        let mut picked = std::mem::take(&mut self.lists.picked);
        picked.clear();
        self.core.pick_compress(most, &mut picked);
        let counters = self.core.counters();
        let worth = self.spill.worth(Prices {
            page_ns: self.core.page_worth_ns(FAULT_NS),
            write_ns: self.tier.disk.page_write_ns(),
            compressed: counters.compressed,
            spilled: counters.to_swap - counters.raw_to_swap,
            trained: false,
        });
        let mut done = Done::default();
        let (mut tried, mut writes) = (0, false);
        while let Some(&item) = picked.get(tried).filter(|_| !done.blocked && !writes) {
            tried += 1;
            match self.compress_one(item, origin, worth) {
                Placed::Swap => done.gained += u32::from(self.write_raw(item.object)),
                Placed::Full => done.blocked = true,
                Placed::Pool { due, .. } => {
                    done.gained += 1;
                    writes = due;
                }
                Placed::Nothing => done.gained += 1,
                Placed::Refaulted => {}
            }
        }
        self.core.give_back(&picked[tried..]);
        self.apply_effects();
        self.lists.picked = picked;
        done
    }

    fn compress_one(&mut self, item: Compress, origin: Origin, worth: Worth) -> Placed {
        let (goes_on, slot) = (self.core.goes_on(item.object), self.core.kept_slot(item.object));
        let (content, home, page) = self.objects[item.object.0 as usize];
        let content = *self.contents.get(content);
        let word = content.word.filter(|_| self.scheme.codec.same_filled != 0);
        let copy = |machine: &mut Machine| machine.tier.take_copy(home, page, item.object, slot);
        let clean = if word.is_none() && goes_on { copy(self) } else { None };
        if word.is_none() && clean.is_none() && self.core.wants_offer() {
            let estimate = self.core.wants_estimate(item.object).then(|| {
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
            None => match clean {
                Some(stored) => Coded::Stored(stored),
                None => match self.encode(&content, item.region, worth) {
                    Coded::Incompressible if !goes_on => copy(self).map_or(Coded::Incompressible, Coded::Stored),
                    coded => coded,
                },
            },
        };
        _ = self.core.take_freed_frames();
        let placed = self.core.compressed(item.object, coded);
        self.apply_effects();
        placed
    }

    /// Compresses with the scheme's codec, or with the best of those that the selector chooses.
    fn encode(&mut self, content: &crate::contents::Content, region: u32, worth: Worth) -> Coded {
        let limit = self.core.len_max() as u16;
        let (tally, costs) = (&mut self.tally, &self.costs);
        let (mut best, mut ns): (Option<(CodecId, u16)>, u64) = (None, 0);
        let mut compress = |codec: CodecId| {
            tally.compressions[usize::from(codec.0)] += 1;
            ns += costs.codec(codec.0).compress_ns;
            let len = content.len(codec).filter(|&len| len <= limit);
            if let Some(len) = len.filter(|&len| best.is_none_or(|(_, l)| len < l)) {
                best = Some((codec, len));
            }
            len.map(usize::from)
        };
        // Without the sizes that other codecs gave, the choice of the run stands.
        match self.codec.or_else(|| content.only()) {
            Some(fixed) => _ = compress(fixed),
            None => self.selector.compress(region.into(), worth, limit.into(), compress),
        }
        self.reclaims(ns);
        let Some((codec, len)) = best else { return Coded::Incompressible };
        self.tally.coded_bytes.0 += PAGE_BYTES;
        self.tally.coded_bytes.1 += u64::from(len);
        Coded::Bytes { codec: codec.0, len: len.into() }
    }

    fn compact(&mut self) -> Done {
        let before = self.core.pool_frames();
        let moves = self.core.compact(COMPACT_MOVES).len() as u64;
        self.reclaims(moves * self.costs.stage_ns);
        self.apply_effects();
        Done { gained: before.saturating_sub(self.core.pool_frames()), blocked: moves == 0 }
    }

    /// Writes the coldest objects of the pool to the swap tier. Returns how many left the pool.
    fn write_back(&mut self, pressed: bool) -> usize {
        if !self.tier.exists() {
            return self.drop_files(pressed);
        }
        let mut victims = std::mem::take(&mut self.lists.victims);
        victims.clear();
        let mut left = 0;
        if self.wants_log() {
            self.tier.appends_from(self.reclaim_until);
            let Some(bytes) = self.tier.batch(&mut self.tally) else {
                self.swap_full();
                return self.drop_files(pressed);
            };
            left += self.core.pick_writeback(pressed, bytes, &mut victims);
            self.apply_effects();
            for victim in &victims {
                let stored =
                    self.tier.append(victim.object, victim.runs.len() as u16, victim.codec, false, &mut self.tally);
                left += usize::from(stored.is_some());
                self.written(victim.object, stored.map(|stored| stored.extent));
            }
            self.flush();
        } else {
            left += self.core.pick_writeback(pressed, u32::MAX, &mut victims);
            self.apply_effects();
            self.write_blocks(&victims);
            left += victims.len();
        }
        self.lists.victims = victims;
        left
    }

    /// The swap tier takes nothing: clean pages of files can still leave the pool. Returns how many
    /// did.
    fn drop_files(&mut self, pressed: bool) -> usize {
        if self.scheme.classes == Classes::Anonymous {
            return 0;
        }
        let dropped = self.core.pick_writeback(pressed, 0, &mut Vec::new());
        self.apply_effects();
        dropped
    }

    /// Writes whole slots, or whole buffers with all of their objects.
    fn write_blocks(&mut self, victims: &[WriteBack]) {
        let raw = self.scheme.swap_format.kind == SwapFormat::RawSlots;
        let mut blocks: Vec<u32> = Vec::new();
        for victim in victims {
            let extent = victim.to.expect("it has a place");
            let block = memfit_core::blocks::block_of(extent);
            if raw && victim.codec != 0 {
                self.tally.decompressed_to_write[usize::from(victim.codec)] += 1;
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
            self.tier.appends_from(self.reclaim_until);
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

    /// Cleans a segment with many holes, if that pays: appends its live objects anew.
    fn clean(&mut self) {
        let Some((segment, objects)) = self.tier.begin_cleaning(&mut self.tally) else {
            return self.no_longer_full();
        };
        self.tier.appends_from(self.reclaim_until);
        for object in objects {
            let Some(stored) = self.core.movable(object, segment) else { continue };
            let Some(to) = self.tier.append(object, stored.len, stored.codec, true, &mut self.tally) else { break };
            self.core.relocated(object, stored.extent, to);
            self.apply_effects();
        }
        self.flush();
        self.tier.cleaned(segment);
        self.no_longer_full();
    }

    fn no_longer_full(&mut self) {
        if self.tier.full && self.tier.has_room_again() {
            self.tier.full = false;
            self.core.swap_takes(true);
        }
    }
}
