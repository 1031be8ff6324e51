//! Buffers of one frame that are filled from the front, in the manner of Cervera, Cortes and
//! Becerra, "Improving Application Performance through Swap Compression" (USENIX/FREENIX 1999).
//! Rules have the numbers of our notes on it, whose open points are 5.1 to 5.15.
//!
//! A zpage is appended to the oldest dirty buffer with room for it, behind the last zpage (rule 4);
//! it never lies in two buffers (rule 5). If none has room, the pool takes a fresh frame up to the
//! limit, then the clean buffer that was cleaned longest ago.
//!
//! ```text
//!            place                    last zpage left
//!   unused ---------> dirty ----------------------------------> unused
//!                       |  ^
//!          seal(true)   |  |  seal(false): it could not be written; its age is as before
//!                       v  |
//!                     sealed ---------> clean ----------------> unused
//!                     last zpage left:   |  ^     discard
//!                     all are on the     |  |
//!                     device        place|  | (as sealed)
//!                                        v  |
//!                                       dirty
//! ```
//!
//! * **dirty**: takes zpages. When all of them have left it is free at once, without a write. The
//!   room of a zpage that left is not used again before that (rule 17).
//! * **sealed**: is being written and takes no zpages.
//! * **clean**: has no zpages. Its contents are on the device, but faults can still read them here
//!   (rule 13) until the frame is used again. [`Pool::take_clean`] makes one of a block that was
//!   read. A clean buffer that is sealed is being read and is
//!   not used again until it is unsealed; it keeps its place in the queue. The owner knows which
//!   bytes a clean buffer holds. A [`Placed`] at offset 0 of that frame tells it that they are
//!   gone.
//!
//! **Limit below the use.** If more frames are in use than the limit allows, a buffer whose zpages
//! have left becomes free instead of clean. Buffers that are clean already may still be used for
//! new zpages, since that takes no memory; otherwise a pool with only clean frames would be full
//! for ever. To shrink at once, discard them.
//!
//! Deviations: a zpage starts at a multiple of 8 bytes, the unit of places on the device (at most 7
//! bytes lost). Finding the buffer is O(log buffers). Removing a zpage takes as many steps as
//! zpages were appended to its buffer after it: at most 511, and none in the order of
//! [`Pool::zpages`].
//!
//! Metadata: 12 bytes per zpage, 12 per frame, 6.2 per dirty buffer; the last doubles when many
//! buffers have gone. The tables have up to 1/8 of slack.

mod age;

use super::handles::{HandleTable, Place};
use super::span::SpanAlloc;
use super::{
    shrink_loose, table_bytes, Handle, Leaving, Placed, Pool, PoolEntry, PoolFull, PoolParams, PoolUsage, Runs, Slot,
    Span, Unit, UnitView, FRAME_BYTES, LEN_MAX,
};
use crate::blocks::BLOCK_UNIT_BYTES;
use crate::grow::reserve_tight;
use crate::ids::NIL;
use crate::list::{Linked, Links, List};
use age::AgeOrder;
use alloc::{boxed::Box, vec::Vec};

/// Entry of this pool in [`super::POOLS`].
pub(super) const ENTRY: PoolEntry = PoolEntry {
    name: "buffers",
    help: "buffers of one frame, filled from the front and written whole; readable until they are used again",
    leaving: Leaving::Units,
    tidies: false,
    compacts: false,
    make: |params| Box::new(Buffers::new(params)),
};

/// Units in a buffer: zpages start at multiples of [`BLOCK_UNIT_BYTES`].
const UNITS: u16 = (FRAME_BYTES / BLOCK_UNIT_BYTES) as u16;

/// A frame.
#[derive(Debug, Clone, Copy)]
struct Buffer {
    /// In a clean buffer: neighbours in the queue of clean buffers. Otherwise see
    /// [`Buffer::newest`] and [`Buffer::position`].
    links: Links,
    /// Where the next zpage would start, in units of 8 bytes; 0: the frame is not in use.
    filled: u16,
    /// Live zpages, and the flag `SEALED`.
    zpages: u16,
}

const SEALED: u16 = 1 << 15;

impl Buffer {
    const UNUSED: Buffer = Buffer { links: Links::UNLINKED, filled: 0, zpages: 0 };

    /// In a buffer with zpages: the zpage appended last.
    fn newest(&mut self) -> &mut u32 {
        &mut self.links.prev
    }

    /// In a buffer with zpages: its position in the order of age.
    fn position(&mut self) -> &mut u32 {
        &mut self.links.next
    }

    fn zpages(self) -> u16 {
        self.zpages & !SEALED
    }

    fn is_sealed(self) -> bool {
        self.zpages & SEALED != 0
    }

    fn set_sealed(&mut self, sealed: bool) {
        self.zpages = self.zpages & !SEALED | if sealed { SEALED } else { 0 };
    }

    fn is_used(self) -> bool {
        self.filled > 0
    }

    fn is_clean(self) -> bool {
        self.is_used() && self.zpages() == 0
    }

    /// Units behind the last zpage.
    fn room(self) -> u16 {
        UNITS - self.filled
    }
}

/// Buffers by frame number.
#[derive(Debug)]
struct Table(Vec<Buffer>);

impl Linked for Table {
    fn links(&mut self, i: u32) -> &mut Links {
        &mut self.0[i as usize].links
    }
}

/// The pool.
struct Buffers {
    handles: HandleTable,
    /// By handle: the zpage appended to the same buffer just before, or `NIL`.
    older: Vec<u32>,
    buffers: Table,
    /// Buffers with zpages; sealed ones without room.
    ages: AgeOrder,
    /// Clean buffers; the one cleaned longest ago is first.
    clean: List,
    frames: SpanAlloc,
    limit: u32,
    stored_bytes: u64,
    /// Units up to the last zpage, summed over all buffers with zpages.
    filled: u64,
}

impl Buffers {
    fn new(params: &PoolParams) -> Self {
        Buffers {
            handles: HandleTable::new(),
            older: Vec::new(),
            buffers: Table(Vec::new()),
            ages: AgeOrder::new(),
            clean: List::EMPTY,
            frames: SpanAlloc::new(params.area_frames, 1),
            limit: params.limit_frames,
            stored_bytes: 0,
            filled: 0,
        }
    }

    fn get(&self, unit: Unit) -> Buffer {
        let buffer = self.buffers.0.get(unit.0 as usize).copied().unwrap_or(Buffer::UNUSED);
        assert!(buffer.is_used(), "{unit:?} is not in use");
        buffer
    }

    /// A fresh frame, or that of the oldest clean buffer. It is in no list.
    fn frame(&mut self) -> Result<(u32, Span), PoolFull> {
        let (frame, grew) = match self.frames.alloc_within(1, self.limit) {
            Ok(span) => (span.first, span),
            Err(full) => {
                let frame = self.oldest_clean().ok_or(full)?;
                self.clean.remove(&mut self.buffers, frame);
                (frame, Span::EMPTY)
            }
        };
        let table = &mut self.buffers.0;
        if frame as usize >= table.len() {
            let extra = frame as usize + 1 - table.len();
            reserve_tight(table, extra);
            table.resize(frame as usize + 1, Buffer::UNUSED);
        }
        Ok((frame, grew))
    }

    /// A new empty buffer, the youngest dirty one.
    fn start(&mut self) -> Result<(u32, Span), PoolFull> {
        let (frame, grew) = self.frame()?;
        let table = &mut self.buffers.0;
        let position = self.ages.push(frame, |frame, position| *table[frame as usize].position() = position);
        table[frame as usize] = Buffer { links: Links { prev: NIL, next: position }, filled: 0, zpages: 0 };
        Ok((frame, grew))
    }

    /// The clean buffer cleaned longest ago that is not being read. The walk passes only buffers
    /// that are being read, which are few.
    fn oldest_clean(&self) -> Option<u32> {
        let one = |frame: u32| (frame != NIL).then_some(frame);
        let mut queue =
            core::iter::successors(one(self.clean.head), |&frame| one(self.buffers.0[frame as usize].links.next));
        queue.find(|&frame| !self.buffers.0[frame as usize].is_sealed())
    }

    /// Removes a zpage from the list of its buffer.
    fn unchain(&mut self, handle: Handle, frame: u32) {
        let older = self.older[handle.raw() as usize];
        let newest = self.buffers.0[frame as usize].newest();
        if *newest == handle.raw() {
            *newest = older;
            return;
        }
        let mut younger = *newest;
        while self.older[younger as usize] != handle.raw() {
            younger = self.older[younger as usize];
        }
        self.older[younger as usize] = older;
    }

    /// Frees the frame of a buffer that has no zpages and is in no list.
    fn free(&mut self, frame: u32) -> Span {
        let table = &mut self.buffers.0;
        table[frame as usize] = Buffer::UNUSED;
        while table.last().is_some_and(|last| !last.is_used()) {
            table.pop();
        }
        shrink_loose(table);
        let span = Span { first: frame, frames: 1 };
        self.frames.free(span);
        span
    }

    /// Cuts the second table of handles to the length of the first.
    fn cut_older(&mut self) {
        self.older.truncate(self.handles.end() as usize);
        shrink_loose(&mut self.older);
    }
}

impl Pool for Buffers {
    fn place(&mut self, len: u32) -> Result<Placed, PoolFull> {
        assert!((1..=LEN_MAX).contains(&len), "an object of {len} bytes");
        let units = len.div_ceil(BLOCK_UNIT_BYTES) as u16;
        let (frame, grew) = match self.ages.oldest(units) {
            Some(frame) => (frame, Span::EMPTY),
            None => self.start()?,
        };
        let buffer = &mut self.buffers.0[frame as usize];
        let at = buffer.filled;
        let handle = self.handles.insert(Place { class: 0, slot: at, len: len as u16, zspage: frame });
        let older = core::mem::replace(buffer.newest(), handle.raw());
        buffer.filled += units;
        buffer.zpages += 1;
        self.ages.set_room(*buffer.position(), buffer.room());
        if handle.raw() as usize == self.older.len() {
            reserve_tight(&mut self.older, 1);
            self.older.push(older);
        } else {
            self.older[handle.raw() as usize] = older;
        }
        self.filled += u64::from(units);
        self.stored_bytes += u64::from(len);
        let slot = Slot { frame, offset: at * BLOCK_UNIT_BYTES as u16 };
        Ok(Placed { handle, runs: Runs::one(slot, len), grew })
    }

    fn runs(&self, handle: Handle) -> Runs {
        let place = self.handles.get(handle);
        Runs::one(Slot { frame: place.zspage, offset: place.slot * BLOCK_UNIT_BYTES as u16 }, u32::from(place.len))
    }

    /// Returns no frame if the buffer becomes clean: see [`Pool::clean`].
    fn remove(&mut self, handle: Handle) -> Span {
        let Place { zspage: frame, len, .. } = self.handles.remove(handle);
        self.unchain(handle, frame);
        self.cut_older();
        self.stored_bytes -= u64::from(len);
        let buffer = &mut self.buffers.0[frame as usize];
        buffer.zpages -= 1;
        if buffer.zpages() > 0 {
            return Span::EMPTY;
        }
        self.filled -= u64::from(buffer.filled);
        self.ages.remove(*buffer.position());
        if !buffer.is_sealed() || self.frames.used() > self.limit {
            return self.free(frame);
        }
        buffer.set_sealed(false);
        self.clean.push_back(&mut self.buffers, frame);
        Span::EMPTY
    }

    fn set_limit(&mut self, frames: u32) {
        self.limit = frames;
    }

    fn usage(&self) -> PoolUsage {
        PoolUsage {
            zpages: u64::from(self.handles.live()),
            stored_bytes: self.stored_bytes,
            used_bytes: self.filled * u64::from(BLOCK_UNIT_BYTES),
            frames: self.frames.used(),
        }
    }

    fn metadata_bytes(&self) -> u64 {
        let tables = table_bytes(&self.older) + table_bytes(&self.buffers.0) + self.ages.metadata_bytes();
        tables + self.handles.metadata_bytes() + self.frames.metadata_bytes() + size_of::<Self>() as u64
    }

    // No `compact`: as in the paper, buffers are not compacted (rule 17).

    fn trim(&mut self) {
        self.handles.trim();
        self.cut_older();
    }

    fn unit(&self, handle: Handle) -> Unit {
        Unit(self.handles.get(handle).zspage)
    }

    fn view(&self, unit: Unit) -> UnitView {
        let buffer = self.get(unit);
        let room = if buffer.is_clean() { UNITS } else { buffer.room() };
        let free_bytes = u32::from(room) * BLOCK_UNIT_BYTES;
        UnitView { class: 0, zpages: buffer.zpages(), capacity: UNITS, frames: 1, free_bytes }
    }

    /// The zpages appended last come first, so that each is removed in one step.
    fn zpages(&self, unit: Unit, out: &mut Vec<Handle>) {
        let mut buffer = self.get(unit);
        if buffer.is_clean() {
            return;
        }
        let one = |raw: u32| (raw != NIL).then_some(raw);
        let chain = core::iter::successors(one(*buffer.newest()), |&raw| one(self.older[raw as usize]));
        out.extend(chain.map(Handle::from_raw));
    }

    fn seal(&mut self, unit: Unit, sealed: bool) {
        let mut buffer = self.get(unit);
        buffer.set_sealed(sealed);
        self.buffers.0[unit.0 as usize] = buffer;
        if !buffer.is_clean() {
            self.ages.set_room(*buffer.position(), if sealed { 0 } else { buffer.room() });
        }
    }

    fn clean(&self, unit: Unit) -> bool {
        self.buffers.0.get(unit.0 as usize).is_some_and(|buffer| buffer.is_clean())
    }

    fn take_clean(&mut self) -> Option<(Unit, Span)> {
        let (frame, grew) = self.frame().ok()?;
        self.buffers.0[frame as usize] = Buffer { filled: UNITS, ..Buffer::UNUSED };
        self.clean.push_back(&mut self.buffers, frame);
        Some((Unit(frame), grew))
    }

    fn discard(&mut self, unit: Unit) -> Span {
        let buffer = self.get(unit);
        assert!(buffer.is_clean(), "{unit:?} has zpages");
        if buffer.is_sealed() {
            return Span::EMPTY;
        }
        self.clean.remove(&mut self.buffers, unit.0);
        self.free(unit.0)
    }

    fn check(&self) {
        self.frames.check();
        self.handles.check();
        self.ages.check();
        assert_eq!(self.older.len(), self.handles.end() as usize);
        assert!(self.buffers.0.last().is_none_or(|last| last.is_used()), "unused frames at the end are cut off");
        let stored: u64 = self.handles.iter().map(|(_, place)| u64::from(place.len)).sum();
        assert_eq!(stored, self.stored_bytes);
        let (mut used, mut clean, mut zpages, mut filled) = (0, 0, 0, 0);
        for (frame, mut buffer) in (0..).zip(self.buffers.0.iter().copied()) {
            assert_eq!(buffer.is_used(), self.frames.is_used(frame), "frame {frame}: {buffer:?}");
            used += u32::from(buffer.is_used());
            clean += u32::from(buffer.is_clean());
            if buffer.is_used() && !buffer.is_clean() {
                zpages += self.check_chain(frame);
                filled += u64::from(buffer.filled);
                let room = if buffer.is_sealed() { 0 } else { buffer.room() };
                assert_eq!(self.ages.at(*buffer.position()), (frame, room), "{buffer:?}");
            }
        }
        assert_eq!((used, clean), (self.frames.used(), self.clean.len));
        assert_eq!((zpages, filled), (self.handles.live(), self.filled));
        assert_eq!(self.ages.live() + clean, used, "a buffer with zpages has an age");
        let (mut prev, mut frame, mut queued) = (NIL, self.clean.head, 0);
        while frame != NIL {
            let buffer = self.buffers.0[frame as usize];
            assert!(buffer.is_clean() && buffer.links.prev == prev && queued < clean, "{buffer:?} in the queue");
            (prev, frame, queued) = (frame, buffer.links.next, queued + 1);
        }
        assert_eq!((prev, queued), (self.clean.tail, clean));
    }
}

impl Buffers {
    /// Panics unless the zpages of a buffer are its own and do not overlap. Returns their number.
    fn check_chain(&self, frame: u32) -> u32 {
        let buffer = self.buffers.0[frame as usize];
        let (mut handles, mut end) = (Vec::new(), buffer.filled);
        self.zpages(Unit(frame), &mut handles);
        assert_eq!(handles.len(), usize::from(buffer.zpages()), "zpages of {buffer:?}");
        for &handle in &handles {
            let place = self.handles.get(handle);
            let units = u32::from(place.len).div_ceil(BLOCK_UNIT_BYTES) as u16;
            assert!(place.zspage == frame && place.slot + units <= end, "{place:?} in frame {frame} before {end}");
            end = place.slot;
        }
        handles.len() as u32
    }
}

#[cfg(test)]
mod tests;
