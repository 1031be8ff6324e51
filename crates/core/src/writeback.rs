//! Writeback: objects leave the pool for the swap tier.

use crate::blocks::{self, block_of};
use crate::core_call::CoreCall;
use crate::engine::{movable, Core};
use crate::fault::Stored;
use crate::ids::{Extent, ObjectId, NIL, PAGE_BYTES};
use crate::object::Place;
use crate::pool::{Handle, Runs, Unit, UnitView};
use crate::pool_control::Sealed;
use crate::replacement::{ReplacementMode, Zpage};
use crate::scheme::SwapFormat;
use crate::swap_log::{stored_bytes, SegmentId};
use alloc::{vec, vec::Vec};

/// Most pages of one call if pages are written raw: as many as the kernel reclaims at once
/// (SWAP_CLUSTER_MAX).
const RAW_PAGES: usize = 32;

/// Compressed bytes of clean pages of files that one call drops at most: as much as a write of the
/// log, so that the coldest leave, and not all.
const DROPPED_BYTES: u32 = 64 << 10;

/// Most objects that cannot leave of those that are looked at for one that is due.
const STAYED_MAX: u32 = 1024;

/// When the pool is full, one in AHEAD_PART of its frames leaves at once, at most AHEAD_FRAMES.
const AHEAD_PART: u32 = 64;
const AHEAD_FRAMES: u32 = 16;

/// A pooled object to write to the swap tier. Its bytes stay until [`Core::written`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteBack {
    /// The object with its contents.
    pub object: ObjectId,
    /// Where the bytes are.
    pub runs: Runs,
    /// Codec number.
    pub codec: u8,
    /// Its place in the swap tier, if the swap format uses blocks. A raw slot takes the
    /// decompressed page. A batch takes the whole frame, written once for all of its objects, which
    /// are consecutive.
    pub to: Option<Extent>,
}

impl Core {
    /// Picks the pooled objects that the scheme's replacement mode writes back now, up to
    /// `max_bytes` in the swap tier, and drops clean pages of files instead of writing them. 0 if
    /// the tier takes nothing: then only those leave, and with a policy none. `pressed`: the pool
    /// must give room; otherwise only objects that are due. Returns how many were dropped.
    pub fn pick_writeback(&mut self, pressed: bool, max_bytes: u32, out: &mut Vec<WriteBack>) -> usize {
        self.record(&CoreCall::PickWriteback { pressed, most_bytes: max_bytes });
        let before = self.counters.file_dropped;
        match self.pool_control.mode {
            ReplacementMode::Nobody => {}
            ReplacementMode::Queue(_) if pressed || self.pool_control.wants_room(|| self.pool.usage()) => {
                let queues = self.objects.queues();
                self.pick_single(&queues, NIL, max_bytes, out);
            }
            ReplacementMode::Queue(_) => {
                if let Some((queue, last)) = self.objects.overdue() {
                    self.pick_single(&[queue], last, max_bytes, out);
                }
            }
            ReplacementMode::Policy(_) if max_bytes == 0 => {}
            ReplacementMode::Policy(_) => self.pick_units(max_bytes, out),
        }
        (self.counters.file_dropped - before) as usize
    }

    /// Picks from queues, one after the other. Each gives its oldest objects, up to `last`.
    fn pick_single(&mut self, queues: &[usize], last: u32, max_bytes: u32, out: &mut Vec<WriteBack>) {
        let (mut bytes, mut dropped, mut stayed) = (0, 0, 0);
        let raw = self.pool_control.format() == SwapFormat::RawSlots;
        if raw && self.pool_control.leaving > 0 || max_bytes == 0 && self.objects.pooled_files == 0 {
            return;
        }
        // Then only pages of files can leave, and those that have a raw slot already.
        let mut no_room = max_bytes == 0;
        for &queue in queues {
            let mut i = self.objects.oldest(queue, no_room && last == NIL);
            while i != NIL {
                let (id, next) = (ObjectId(i), self.objects.next(i));
                i = if i == last { NIL } else { next };
                let Place::Pooled(handle) = self.objects.place_of(id) else { continue };
                if self.objects.pinned(id) {
                    continue;
                }
                if self.driver.giving && !self.objects.ages.as_ref().is_some_and(|ages| ages.is_old(id)) {
                    break;
                }
                if self.objects.is_file(id) {
                    dropped += self.pool.len(handle);
                    self.drop_file(id);
                    if dropped >= DROPPED_BYTES {
                        return;
                    }
                    continue;
                }
                if no_room && (max_bytes == 0 || !self.pool_control.has_slot(id)) {
                    self.stays(id);
                    stayed += 1;
                    if last != NIL && stayed == STAYED_MAX {
                        return;
                    }
                    continue;
                }
                let takes = if raw { PAGE_BYTES as u32 } else { stored_bytes(self.pool.len(handle)) };
                if bytes + takes > max_bytes || (raw && out.len() == RAW_PAGES) {
                    return;
                }
                let slot = if raw { self.pool_control.slot(id) } else { None };
                if raw && slot.is_none() {
                    no_room = true;
                    i = if last == NIL { self.objects.oldest(queue, true) } else { i };
                    continue;
                }
                bytes += takes;
                self.pool_control.leaving += u32::from(raw);
                let runs = self.pool.runs(handle);
                self.begin_write(id, handle, runs, slot.map(|slot| blocks::extent(slot, 0)), out);
            }
        }
    }

    /// Notes that a pooled object cannot leave unless the swap tier has room for it.
    pub(crate) fn stays(&mut self, id: ObjectId) {
        if !self.objects.is_file(id) && !self.pool_control.has_slot(id) {
            self.objects.needs_room(id);
        }
    }

    fn begin_write(&mut self, id: ObjectId, handle: Handle, runs: Runs, to: Option<Extent>, out: &mut Vec<WriteBack>) {
        let (codec, _) = self.objects.codec(id);
        self.objects.place(id, Place::Writing(handle));
        out.push(WriteBack { object: id, runs, codec, to });
    }

    /// Drops a clean page of a file, which needs no write (ezswap, rule C8). Returns whether it was
    /// one.
    fn drop_file(&mut self, id: ObjectId) -> bool {
        let Place::Pooled(handle) = self.objects.place_of(id) else { return false };
        let file = self.objects.is_file(id);
        if file {
            self.unpool(id, handle);
            self.objects.place(id, Place::Dropped);
            self.counters.file_dropped += 1;
            self.file_trial.note(false);
        }
        file
    }

    /// Picks whole units, until as many frames leave or are free as are missing. In a log, the last
    /// unit is cut to the room that is left.
    fn pick_units(&mut self, max_bytes: u32, out: &mut Vec<WriteBack>) {
        let mut room = if self.pool_control.format() == SwapFormat::CompressedExtents { max_bytes } else { u32::MAX };
        if room < stored_bytes(PAGE_BYTES as u32) {
            return;
        }
        let mut units = core::mem::take(&mut self.pool_control.due);
        // More frames than are missing, so that not every page has to wait for a write.
        let ahead = (self.pool_control.limit_frames() / AHEAD_PART).clamp(1, AHEAD_FRAMES);
        let wanted = self.pool_control.needed.max(ahead);
        let (frames, dropped) = (self.pool.usage().frames, self.counters.file_dropped);
        while units.is_empty() && room > 0 {
            // A unit with clean pages of files alone is free at once.
            let freed = frames.saturating_sub(self.pool.usage().frames);
            let pages = out.len() + (self.counters.file_dropped - dropped) as usize;
            if self.pool_control.leaving + freed >= wanted || pages >= RAW_PAGES {
                break;
            }
            let ReplacementMode::Policy(policy) = &mut self.pool_control.mode else { return };
            policy.victims(&mut units);
            if units.is_empty() {
                break;
            }
            let before = (out.len(), self.pool.usage().frames);
            self.evict_units(&units, &mut room, out);
            units.clear();
            if before == (out.len(), self.pool.usage().frames) {
                // No unit can leave now.
                break;
            }
        }
        self.evict_units(&units, &mut room, out);
    }

    fn evict_units(&mut self, units: &[Unit], room: &mut u32, out: &mut Vec<WriteBack>) {
        let mut places: Vec<u32> = vec![NIL; units.len()];
        if self.pool_control.format() == SwapFormat::CompressedBatches && !units.is_empty() {
            units.iter().for_each(|unit| self.pool_control.buffer_ended(unit.0));
            places = self.pool_control.blocks_for(units.len() as u32).unwrap_or_else(|| {
                // As many units as there are blocks.
                (0..units.len()).map_while(|_| self.pool_control.blocks_for(1)).flatten().collect()
            });
            units[places.len()..].iter().for_each(|&unit| self.return_unit(unit));
        }
        for (&unit, block) in units.iter().zip(places) {
            self.evict_unit(unit, block, room, out);
        }
    }

    /// Begins to write the objects of a unit. An object that a fault is reading stays behind; the
    /// end of that fault removes it.
    fn evict_unit(&mut self, unit: Unit, block: u32, room: &mut u32, out: &mut Vec<WriteBack>) {
        self.pool.seal(unit, true);
        self.counters.evicted_units += 1;
        let mut handles = Vec::new();
        self.pool.zpages(unit, &mut handles);
        let left = handles.len();
        let files = handles.iter().filter(|handle| self.objects.is_file(self.owners[handle.raw() as usize])).count();
        self.counters.evicted_mixes[left.min(3)][files.min(3)] += 1;
        let frames = u32::from(self.pool.view(unit).frames);
        let (mut writing, mut dropped) = (0, 0);
        for handle in handles {
            let id = self.owners[handle.raw() as usize];
            if self.objects.pinned(id) || !matches!(self.objects.place_of(id), Place::Pooled(_)) {
                continue;
            }
            if self.drop_file(id) {
                dropped += 1;
                continue;
            }
            let runs = self.pool.runs(handle);
            let len = runs.len();
            let to = match self.pool_control.format() {
                SwapFormat::CompressedExtents if stored_bytes(len) > *room => {
                    *room = 0;
                    continue;
                }
                SwapFormat::CompressedExtents => {
                    *room -= stored_bytes(len);
                    None
                }
                SwapFormat::CompressedBatches => Some(blocks::extent(block, u32::from(runs.slot().offset))),
                SwapFormat::RawSlots => match self.pool_control.slot(id) {
                    Some(slot) => Some(blocks::extent(slot, 0)),
                    None => continue,
                },
            };
            writing += 1;
            self.begin_write(id, handle, runs, to, out);
        }
        if block != NIL {
            // The write holds the block until the result of its last object is reported.
            self.pool_control.take_block(block, writing);
        }
        if writing > 0 {
            self.pool_control.leaving += frames;
            self.pool_control.sealed.insert(unit.0, Sealed { writing, block, frames, refused: false, gone: false });
        } else {
            if block != NIL {
                self.pool_control.leave_block(block);
            }
            if dropped < left {
                self.return_unit(unit);
            }
        }
    }

    /// Makes a unit ordinary again that was to be evicted.
    fn return_unit(&mut self, unit: Unit) {
        self.pool.seal(unit, false);
        if self.pool_control.format() == SwapFormat::CompressedBatches {
            self.pool_control.buffer_again(unit.0);
        }
        if let ReplacementMode::Policy(policy) = &mut self.pool_control.mode {
            policy.returned(unit, self.pool.view(unit));
        }
    }

    /// Removes an object from the pool. Returns how many frames became free.
    pub(crate) fn unpool(&mut self, id: ObjectId, handle: Handle) -> u32 {
        let (unit, len) = (self.pool.unit(handle), self.pool.len(handle));
        let before = matches!(self.pool_control.mode, ReplacementMode::Policy(_)).then(|| self.pool.view(unit));
        let mut span = self.pool.remove(handle);
        self.pool_control.full = false;
        let gone = before.map_or_else(|| !span.is_empty() || self.pool.clean(unit), |view| view.zpages == 1);
        if span.is_empty() && gone && !self.pool_control.sealed.contains_key(&unit.0) {
            // It was waiting for a write that is no longer needed (cervera99, 5.13).
            span = self.pool.discard(unit);
        }
        if let Some(sealed) = self.pool_control.sealed.get_mut(&unit.0).filter(|_| gone) {
            sealed.gone = true;
        }
        let file = self.objects.is_file(id);
        if let Some(selective) = &mut self.pool_control.selective {
            selective.left(len, file);
        }
        if !span.is_empty() {
            self.effects.spans.push(span);
            self.pool_control.buffer_ended(unit.0);
        }
        if gone {
            self.pool_control.due.retain(|due| *due != unit);
        }
        if !gone {
            let (objects, owners) = (&self.objects, &self.owners);
            self.pool.tidy(unit, &movable(objects, owners), &mut self.effects.moves);
        }
        if let (ReplacementMode::Policy(policy), Some(before)) = (&mut self.pool_control.mode, before) {
            let view = if gone { UnitView { zpages: 0, ..before } } else { self.pool.view(unit) };
            policy.left(Zpage { handle, len, file }, unit, view);
        }
        span.frames
    }

    /// Removes an object from the swap tier.
    pub(crate) fn unswap(&mut self, id: ObjectId, extent: Extent) {
        match self.pool_control.format() {
            SwapFormat::CompressedExtents => self.effects.extents.push((extent, self.objects.codec(id).1)),
            // The slot is freed with the object.
            SwapFormat::RawSlots => {}
            SwapFormat::CompressedBatches => self.leave_block(block_of(extent)),
        }
    }

    fn leave_block(&mut self, block: u32) {
        let clean = self.pool_control.leave_block(block);
        self.discard(clean);
    }

    /// Frees the frame of a clean buffer that has become useless.
    fn discard(&mut self, clean: Option<Unit>) {
        if let Some(unit) = clean {
            let span = self.pool.discard(unit);
            self.effects.spans.extend((!span.is_empty()).then_some(span));
        }
    }

    /// The write of an object has ended; `None`: it failed. An extent that is not used comes back
    /// as an effect.
    pub fn written(&mut self, id: ObjectId, extent: Option<Extent>) {
        self.record(&CoreCall::Written { object: id, extent });
        self.write_ended(id, extent);
    }

    /// As [`Core::written`] without an extent. Moreover the device refuses the block of the object,
    /// and all that were never used. If the object is in a buffer, the others in it are refused,
    /// too.
    pub fn refused(&mut self, id: ObjectId) {
        self.record(&CoreCall::Refused { object: id });
        match self.objects.place_of(id) {
            Place::Writing(handle) if self.pool_control.format() == SwapFormat::CompressedBatches => {
                let unit = self.pool.unit(handle);
                self.pool_control.sealed.get_mut(&unit.0).into_iter().for_each(|sealed| sealed.refused = true);
            }
            _ => self.pool_control.lose_slot(id),
        }
        self.write_ended(id, None);
    }

    fn write_ended(&mut self, id: ObjectId, extent: Option<Extent>) {
        let place = self.objects.place_of(id);
        let keep = extent.is_some() && self.objects.refs(id) > 0 && !self.objects.pinned(id);
        let raw = (0, PAGE_BYTES as u16);
        let (codec, len) = match place {
            Place::Writing(_) if self.pool_control.format() != SwapFormat::RawSlots => self.objects.codec(id),
            Place::Writing(_) | Place::WritingRaw(_) => raw,
            other => panic!("object {} is not being written but {other:?}", id.0),
        };
        self.counters.swap_failed += u64::from(extent.is_none());
        let unit = match (place, &self.pool_control.mode) {
            (Place::Writing(handle), ReplacementMode::Policy(_)) => Some(self.pool.unit(handle)),
            _ => None,
        };
        let sealed = unit.and_then(|unit| self.pool_control.sealed.get(&unit.0).copied());
        if !keep {
            self.not_kept(extent, len, sealed);
        }
        match (extent, place) {
            _ if self.objects.refs(id) == 0 => self.free_place(id, place),
            (Some(extent), Place::Writing(handle)) if keep => {
                self.counters.evicted_frames += u64::from(self.unpool(id, handle));
                self.swapped(id, extent, codec, len);
            }
            (Some(extent), Place::WritingRaw(slot)) if keep => {
                self.staging.give_back(slot);
                self.swapped(id, extent, codec, len);
            }
            (_, Place::Writing(handle)) => self.objects.place(id, Place::Pooled(handle)),
            (_, Place::WritingRaw(slot)) => self.objects.place(id, Place::Staged(slot)),
            _ => {}
        }
        if unit.is_none() && matches!(place, Place::Writing(_)) && self.pool_control.format() == SwapFormat::RawSlots {
            self.pool_control.leaving -= 1;
        }
        if let Some(unit) = unit.filter(|_| sealed.is_some()) {
            self.unit_written(unit);
        }
    }

    /// Gives back the space of a write that failed or is no longer needed.
    fn not_kept(&mut self, extent: Option<Extent>, len: u16, sealed: Option<Sealed>) {
        match (self.pool_control.format(), extent, sealed) {
            (SwapFormat::CompressedExtents, Some(extent), _) => self.effects.extents.push((extent, len)),
            (SwapFormat::CompressedBatches, _, Some(sealed)) => self.leave_block(sealed.block),
            _ => {}
        }
    }

    /// One write of a unit has ended. After the last one the unit is empty, or ordinary again.
    fn unit_written(&mut self, unit: Unit) {
        let Some(sealed) = self.pool_control.sealed.get_mut(&unit.0) else { return };
        sealed.writing -= 1;
        if sealed.writing > 0 {
            return;
        }
        let Sealed { block, gone, frames, refused, .. } = *sealed;
        self.pool_control.leaving -= frames;
        self.pool_control.sealed.remove(&unit.0);
        let clean = self.pool.clean(unit);
        if clean {
            self.pool_control.cleaned(unit, block);
            self.pool.seal(unit, false);
        }
        // Before the unit reserves a block again: if no other is free, it gets this one.
        if block != NIL && refused {
            let clean = self.pool_control.lose_block(block);
            self.discard(clean);
        } else if block != NIL {
            self.leave_block(block);
        }
        if !clean && !gone {
            self.return_unit(unit);
        }
    }

    /// The object's place in the swap tier, if it is still in this segment and no fault reads it:
    /// only then may it be appended elsewhere.
    pub fn movable(&self, id: ObjectId, segment: SegmentId) -> Option<Stored> {
        let Place::Swapped(extent) = self.objects.place_if_live(id)? else { return None };
        let (codec, len) = self.objects.codec(id);
        let here = SegmentId::of(extent) == segment && !self.objects.pinned(id);
        here.then_some(Stored { extent, len, codec })
    }

    /// The object's bytes were appended again, by cleaning. The place that it does not use comes
    /// back as an effect.
    pub fn relocated(&mut self, id: ObjectId, from: Extent, to: Stored) {
        self.record(&CoreCall::Relocated { object: id, from, to });
        let same = self.objects.place_if_live(id) == Some(Place::Swapped(from)) && !self.objects.pinned(id);
        if same {
            self.objects.place(id, Place::Swapped(to.extent));
        }
        self.effects.extents.push((if same { from } else { to.extent }, to.len));
    }

    fn swapped(&mut self, id: ObjectId, extent: Extent, codec: u8, len: u16) {
        self.objects.set_codec(id, codec, len);
        self.objects.place(id, Place::Swapped(extent));
        self.counters.to_swap += 1;
        self.counters.raw_to_swap += u64::from(codec == 0);
    }
}
