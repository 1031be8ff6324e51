//! From the pool to the swap tier.

use crate::asked::Asked;
use crate::blocks::{self, block_of};
use crate::engine::{movable, Call, Core};
use crate::fault::Stored;
use crate::ids::{Extent, ObjectId, NIL, PAGE_BYTES};
use crate::object::Place;
use crate::pool::{Handle, Slot, Unit, UnitView};
use crate::replacement::{Chooser, Zpage};
use crate::scheme::SwapFormat;
use crate::store::Sealed;
use crate::swap_log::{stored_bytes, SegmentId};

/// Pages that one call chooses at most, if each is written as it is: as many as the kernel reclaims at once
/// (SWAP_CLUSTER_MAX).
const RAW_PAGES: usize = 32;

/// Frames that leave the pool at once when it is full: one in so many, and so many at most.
const AHEAD_PART: u32 = 64;
const AHEAD_FRAMES: u32 = 16;

/// A pooled object to write to the swap tier. Its bytes stay until [`Core::written`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteBack {
    /// Its contents.
    pub object: ObjectId,
    /// Where the bytes are.
    pub slot: Slot,
    /// Bytes.
    pub len: u32,
    /// Codec number.
    pub codec: u8,
    /// Where it shall be, if the format is one of blocks. Raw slots get the page decompressed; batches the whole frame, once for
    /// all objects in it, which follow each other.
    pub to: Option<Extent>,
}

impl Core {
    /// The pooled objects that shall leave now, up to `max_bytes` in the swap tier: as the scheme's replacement says. `pressed`:
    /// the pool must give room; otherwise only what is due.
    pub fn pick_writeback(&mut self, pressed: bool, max_bytes: u32, out: &mut Vec<WriteBack>) {
        self.asked(&Asked::PickWriteback { pressed, most_bytes: max_bytes });
        match self.store.chooser {
            Chooser::Nobody => {}
            Chooser::Queue(_) if pressed || self.store.wants_room(|| self.pool.usage()) => {
                let heads = self.objects.oldest_pooled();
                self.pick_single(&heads, NIL, max_bytes, out);
            }
            Chooser::Queue(_) => {
                if let Some((first, last)) = self.objects.overdue() {
                    self.pick_single(&[first], last, max_bytes, out);
                }
            }
            Chooser::Policy(_) => self.pick_units(max_bytes, out),
        }
    }

    /// From the heads of queues, one after the other: of the group of runs that has most in the pool, what is on probation before the
    /// rest if that shall leave first, the oldest of them. Up to `last`.
    fn pick_single(&mut self, heads: &[u32], last: u32, max_bytes: u32, out: &mut Vec<WriteBack>) {
        let mut bytes = 0;
        let raw = self.store.format() == SwapFormat::RawSlots;
        if raw && self.store.leaving > 0 {
            return;
        }
        for &head in heads {
            let mut i = head;
            while i != NIL {
                let (id, next) = (ObjectId(i), self.objects.next(i));
                i = if i == last { NIL } else { next };
                let Place::Pooled(handle) = self.objects.place_of(id) else { continue };
                if self.objects.pinned(id) || self.drop_file(id) {
                    continue;
                }
                let (slot, len) = self.pool.slot(handle);
                let takes = if raw { PAGE_BYTES as u32 } else { stored_bytes(len) };
                if bytes + takes > max_bytes || (raw && out.len() == RAW_PAGES) {
                    return;
                }
                let to = match raw {
                    true => match self.store.slot(id) {
                        Some(slot) => Some(blocks::extent(slot, 0)),
                        // There was none left: it stays.
                        None => continue,
                    },
                    false => None,
                };
                bytes += takes;
                self.store.leaving += u32::from(raw);
                self.begin_write(id, handle, slot, len, to, out);
            }
        }
    }

    fn begin_write(
        &mut self,
        id: ObjectId,
        handle: Handle,
        slot: Slot,
        len: u32,
        to: Option<Extent>,
        out: &mut Vec<WriteBack>,
    ) {
        self.trace(Call::WriteBack { object: id.0 });
        let (codec, _) = self.objects.codec(id);
        self.objects.place(id, Place::Writing(handle));
        out.push(WriteBack { object: id, slot, len, codec, to });
    }

    /// A clean page of a file need not be written: it is dropped (ezswap, rule C8). Whether it was one.
    fn drop_file(&mut self, id: ObjectId) -> bool {
        let Place::Pooled(handle) = self.objects.place_of(id) else { return false };
        let file = self.objects.is_file(id);
        if file {
            self.unpool(id, handle);
            self.objects.place(id, Place::Dropped);
            self.counters.file_dropped += 1;
        }
        file
    }

    /// Whole units, until as many frames leave as are missing. Of the last one, in a log, what there is room for.
    fn pick_units(&mut self, max_bytes: u32, out: &mut Vec<WriteBack>) {
        let mut room = if self.store.format() == SwapFormat::CompressedExtents { max_bytes } else { u32::MAX };
        if room < stored_bytes(PAGE_BYTES as u32) {
            return;
        }
        let mut units = std::mem::take(&mut self.store.due);
        // Some more than are missing, so that not each page has to wait for a write of its own.
        let ahead = (self.store.limit_frames() / AHEAD_PART).clamp(1, AHEAD_FRAMES);
        let wanted = self.store.needed.max(ahead);
        while units.is_empty() && self.store.leaving < wanted && out.len() < RAW_PAGES && room > 0 {
            let Chooser::Policy(policy) = &mut self.store.chooser else { return };
            policy.victims(&mut units);
            if units.is_empty() {
                break;
            }
            let before = (out.len(), self.pool.usage().frames);
            self.evict_units(&units, &mut room, out);
            units.clear();
            if before == (out.len(), self.pool.usage().frames) {
                // Nothing that could leave now.
                break;
            }
        }
        self.evict_units(&units, &mut room, out);
    }

    fn evict_units(&mut self, units: &[Unit], room: &mut u32, out: &mut Vec<WriteBack>) {
        let mut places: Vec<u32> = vec![NIL; units.len()];
        if self.store.format() == SwapFormat::CompressedBatches && !units.is_empty() {
            units.iter().for_each(|unit| self.store.buffer_ended(unit.0));
            places = self.store.blocks_for(units.len() as u32).unwrap_or_else(|| {
                // As many as can.
                (0..units.len()).map_while(|_| self.store.blocks_for(1)).flatten().collect()
            });
            units[places.len()..].iter().for_each(|&unit| self.return_unit(unit));
        }
        for (&unit, block) in units.iter().zip(places) {
            self.evict_unit(unit, block, room, out);
        }
    }

    /// Begins to write what is in a unit. What somebody reads just now stays behind, and leaves by that.
    fn evict_unit(&mut self, unit: Unit, block: u32, room: &mut u32, out: &mut Vec<WriteBack>) {
        self.pool.seal(unit, true);
        self.counters.evicted_units += 1;
        let mut handles = Vec::new();
        self.pool.zpages(unit, &mut handles);
        let left = handles.len();
        let frames = u32::from(self.pool.view(unit).frames);
        let (mut writing, mut dropped) = (0, 0);
        for handle in handles {
            let id = ObjectId(self.owners[handle.raw() as usize]);
            if self.objects.pinned(id) || !matches!(self.objects.place_of(id), Place::Pooled(_)) {
                continue;
            }
            if self.drop_file(id) {
                dropped += 1;
                continue;
            }
            let (slot, len) = self.pool.slot(handle);
            let to = match self.store.format() {
                SwapFormat::CompressedExtents if stored_bytes(len) > *room => {
                    *room = 0;
                    continue;
                }
                SwapFormat::CompressedExtents => {
                    *room -= stored_bytes(len);
                    None
                }
                SwapFormat::CompressedBatches => Some(blocks::extent(block, u32::from(slot.offset))),
                SwapFormat::RawSlots => match self.store.slot(id) {
                    Some(slot) => Some(blocks::extent(slot, 0)),
                    None => continue,
                },
            };
            writing += 1;
            self.begin_write(id, handle, slot, len, to, out);
        }
        if block != NIL {
            // What it was handed out for, the write, keeps it until the last object is told of.
            self.store.take_block(block, writing);
        }
        if writing > 0 {
            self.store.leaving += frames;
            self.store.sealed.insert(unit.0, Sealed { writing, block, frames, gone: false });
        } else {
            if block != NIL {
                self.store.leave_block(block);
            }
            if dropped < left {
                self.return_unit(unit);
            }
        }
    }

    /// A unit that was to be evicted is one like any other again.
    fn return_unit(&mut self, unit: Unit) {
        self.pool.seal(unit, false);
        if self.store.format() == SwapFormat::CompressedBatches {
            self.store.buffer_again(unit.0);
        }
        if let Chooser::Policy(policy) = &mut self.store.chooser {
            policy.returned(unit, self.pool.view(unit));
        }
    }

    /// An object leaves the pool. Returns how many frames became free by that.
    pub(crate) fn unpool(&mut self, id: ObjectId, handle: Handle) -> u32 {
        let (unit, len) = (self.pool.unit(handle), self.pool.slot(handle).1);
        let before = matches!(self.store.chooser, Chooser::Policy(_)).then(|| self.pool.view(unit));
        let mut span = self.pool.remove(handle);
        self.store.full = false;
        let gone = !span.is_empty() || self.pool.clean(unit);
        if span.is_empty() && gone && !self.store.sealed.contains_key(&unit.0) {
            // It was to be written, and need not be any more (cervera99, 5.13).
            span = self.pool.discard(unit);
        }
        if let Some(sealed) = self.store.sealed.get_mut(&unit.0).filter(|_| gone) {
            sealed.gone = true;
        }
        let file = self.objects.is_file(id);
        if let Some(selective) = &mut self.store.selective {
            selective.left(len, file);
        }
        if !span.is_empty() {
            self.effects.spans.push(span);
            self.store.buffer_ended(unit.0);
        }
        if gone {
            self.store.due.retain(|due| *due != unit);
        }
        if !gone {
            let (objects, owners) = (&self.objects, &self.owners);
            self.pool.tidy(unit, &movable(objects, owners), &mut self.effects.moves);
        }
        if let (Chooser::Policy(policy), Some(before)) = (&mut self.store.chooser, before) {
            let view = if gone { UnitView { zpages: 0, ..before } } else { self.pool.view(unit) };
            policy.left(Zpage { handle, len, file }, unit, view);
        }
        span.frames
    }

    /// An object leaves the swap tier.
    pub(crate) fn unswap(&mut self, id: ObjectId, extent: Extent) {
        match self.store.format() {
            SwapFormat::CompressedExtents => self.effects.extents.push((extent, self.objects.codec(id).1)),
            // The slot goes with the object.
            SwapFormat::RawSlots => {}
            SwapFormat::CompressedBatches => self.leave_block(block_of(extent)),
        }
    }

    fn leave_block(&mut self, block: u32) {
        if let Some(unit) = self.store.leave_block(block) {
            let span = self.pool.discard(unit);
            self.effects.spans.extend((!span.is_empty()).then_some(span));
        }
    }

    /// The write of an object ended: `None` if it failed. An extent that is not kept comes back as an
    /// effect.
    pub fn written(&mut self, id: ObjectId, extent: Option<Extent>) {
        self.asked(&Asked::Written { object: id, extent });
        let place = self.objects.place_of(id);
        let keep = extent.is_some() && self.objects.refs(id) > 0 && !self.objects.pinned(id);
        self.trace(Call::Written { object: id.0, kept: keep });
        let raw = (0, PAGE_BYTES as u16);
        let (codec, len) = match place {
            Place::Writing(_) if self.store.format() != SwapFormat::RawSlots => self.objects.codec(id),
            Place::Writing(_) | Place::WritingRaw(_) => raw,
            other => panic!("object {} is not being written but {other:?}", id.0),
        };
        self.counters.swap_failed += u64::from(extent.is_none());
        let unit = match (place, &self.store.chooser) {
            (Place::Writing(handle), Chooser::Policy(_)) => Some(self.pool.unit(handle)),
            _ => None,
        };
        let sealed = unit.and_then(|unit| self.store.sealed.get(&unit.0).copied());
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
        if unit.is_none() && matches!(place, Place::Writing(_)) && self.store.format() == SwapFormat::RawSlots {
            self.store.leaving -= 1;
        }
        if let Some(unit) = unit.filter(|_| sealed.is_some()) {
            self.unit_written(unit);
        }
    }

    /// What was written is of no use, or nothing was.
    fn not_kept(&mut self, extent: Option<Extent>, len: u16, sealed: Option<Sealed>) {
        match (self.store.format(), extent, sealed) {
            (SwapFormat::CompressedExtents, Some(extent), _) => self.effects.extents.push((extent, len)),
            (SwapFormat::CompressedBatches, _, Some(sealed)) => self.leave_block(sealed.block),
            _ => {}
        }
    }

    /// One write less of a unit; after the last one it is empty, or one like any other again.
    fn unit_written(&mut self, unit: Unit) {
        let Some(sealed) = self.store.sealed.get_mut(&unit.0) else { return };
        sealed.writing -= 1;
        if sealed.writing > 0 {
            return;
        }
        let Sealed { block, gone, frames, .. } = *sealed;
        self.store.leaving -= frames;
        self.store.sealed.remove(&unit.0);
        let clean = self.pool.clean(unit);
        if clean {
            self.store.cleaned(unit, block);
            self.pool.seal(unit, false);
        }
        // Before the unit wants one again: if there is no other, it is this one.
        if block != NIL {
            self.leave_block(block);
        }
        if !clean && !gone {
            self.return_unit(unit);
        }
    }

    /// The object in the swap tier at this place, if it is still there and nobody reads it: it may be appended elsewhere.
    pub fn movable(&self, id: ObjectId, segment: SegmentId) -> Option<Stored> {
        let Place::Swapped(extent) = self.objects.place_if_live(id)? else { return None };
        let (codec, len) = self.objects.codec(id);
        let here = SegmentId::of(extent) == segment && !self.objects.pinned(id);
        here.then_some(Stored { extent, len, codec })
    }

    /// The object's bytes were appended anew. Whichever of the two places it is not in comes back as an effect.
    pub fn relocated(&mut self, id: ObjectId, from: Extent, to: Stored) {
        self.asked(&Asked::Relocated { object: id, from, to });
        let same = self.objects.place_if_live(id) == Some(Place::Swapped(from)) && !self.objects.pinned(id);
        self.trace(Call::Relocated { object: id.0, kept: same });
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
