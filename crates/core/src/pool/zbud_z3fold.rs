//! `zbud` and `z3fold`: at most two or three zpages share a frame.
//!
//! After the allocators of the kernel under zswap, as described in
//!
//! - J. Kim, C. Kim, E. Seo, *ezswap: Enhanced Compressed Swap Scheme for Mobile Devices*, IEEE
//!   Access 2019 (z3fold, here `Z4` to `Z9`), and
//! - M. Salahuddin, D. Shin, *Selective Rejection Technique for Compressed Object at Compressed
//!   Swap Cache* (zbud).
//!
//! A frame is a unit. It has 64 chunks of 64 bytes, and a zpage takes whole chunks of one frame:
//!
//! ```text
//! zbud     | first zpage ...........            ...... second zpage |    one at each end, the gap between them is free
//! z3fold   | first ....... | second ... | third ....|               |    in the order of storing, the rest is free
//! ```
//!
//! A frame in use is on exactly one list: `buddied` if it has its maximum of zpages, otherwise one
//! of 64 `unbuddied` lists by the number of chunks of its free run. A new zpage goes to the newest
//! frame of the list with the shortest sufficient run, else to a frame of its own. Every change of
//! a frame moves it to the head of its list.
//!
//! Open points of the papers, and differences:
//!
//! - Headers are outside the frames. With `header_chunks` = 1 a frame of `z3fold` has 63 chunks for
//!   zpages as in the kernel. A zpage that needs all 64 gets a frame without a header, alone, so
//!   that a page that did not compress can be stored at all. Such a frame counts as full. `zbud`
//!   has no header; in the kernel it has one of 64 bytes, which leaves 63 chunks.
//! - The caller carries out moves, so the chunks of a removed zpage of `z3fold` are a hole until
//!   [`Pool::tidy`]. A zpage that must stay is skipped, and those behind it move up to its end.
//!   While there is a hole, the frame's list depends on the free chunks behind its last zpage,
//!   which are all that a new zpage can get. Its [`UnitView`] includes the holes, because they show
//!   how dense the frame is. [`Pool::compact`] tidies such frames, and moves nothing between
//!   frames.
//! - A sealed frame is on no list. When it is unsealed it goes to the head of its list.
//! - The lowest free frame is used first.
//!
//! Metadata: 8 bytes per zpage (handle), and 20 (`zbud`) or 24 (`z3fold`) per frame up to the
//! highest in use.

use super::handles::{HandleTable, Place};
use super::span::SpanAlloc;
use super::{
    shrink_loose, table_bytes, Handle, Leaving, Move, Placed, Pool, PoolEntry, PoolFull, PoolParams, PoolUsage, Runs,
    Slot, Span, Unit, UnitView, FRAME_BYTES, LEN_MAX,
};
use crate::grow::reserve_tight;
use crate::list::{Linked, Links, List};
use alloc::{boxed::Box, vec, vec::Vec};
use core::ops::Range;

/// Entry of `zbud` in [`super::POOLS`].
pub(super) const ZBUD: PoolEntry = PoolEntry {
    name: "zbud",
    help: "at most two pages in a frame, one at each end; a frame can be emptied alone",
    leaving: Leaving::ZpagesAndUnits,
    tidies: false,
    compacts: false,
    make: |params| Box::new(FewPerFrame::<2>::new(params, 0)),
};

/// Entry of `z3fold` in [`super::POOLS`].
pub(super) const Z3FOLD: PoolEntry = PoolEntry {
    name: "z3fold",
    help: "at most three pages in a frame, moved together when one leaves; a frame can be emptied alone",
    leaving: Leaving::ZpagesAndUnits,
    tidies: true,
    compacts: false,
    make: |params| Box::new(FewPerFrame::<3>::new(params, params.header_chunks)),
};

/// Bytes in a chunk.
const CHUNK_BYTES: u32 = 64;

/// Chunks in a frame.
const CHUNKS: u32 = FRAME_BYTES / CHUNK_BYTES;

/// Index of the list of frames with their maximum of zpages. The lists before it are the unbuddied
/// ones, by free chunks.
const BUDDIED: usize = CHUNKS as usize;

/// Frames that one [`Pool::compact`] scans for holes.
const LOOK_MAX: usize = 1024;

/// Chunks for `len` bytes.
fn chunks(len: u32) -> u32 {
    len.div_ceil(CHUNK_BYTES)
}

/// Chunks of a zpage in its frame.
fn range(place: Place) -> Range<u32> {
    let first = u32::from(place.slot);
    first..first + chunks(u32::from(place.len))
}

/// A frame; not in use if it has no zpages.
#[derive(Debug, Clone, Copy)]
struct Record<const MOST: usize> {
    /// Neighbours in its list.
    links: Links,
    /// Its zpages in the order of storing; only the first `zpages` entries are valid.
    owners: [Handle; MOST],
    zpages: u8,
    /// Chunks of the zpages.
    used: u8,
    /// Chunks of the free run, which is all that a new zpage can get.
    run: u8,
    sealed: bool,
}

const _: () = assert!(size_of::<Record<2>>() == 20 && size_of::<Record<3>>() == 24);

impl<const MOST: usize> Record<MOST> {
    const UNUSED: Self =
        Record { links: Links::UNLINKED, owners: [Handle(0); MOST], zpages: 0, used: 0, run: 0, sealed: false };

    fn owners(&self) -> &[Handle] {
        &self.owners[..usize::from(self.zpages)]
    }

    fn push(&mut self, owner: Handle, chunks: u32) {
        self.owners[usize::from(self.zpages)] = owner;
        self.zpages += 1;
        self.used += chunks as u8;
    }

    fn take(&mut self, owner: Handle, chunks: u32) {
        let at = self.owners().iter().position(|&other| other == owner).expect("the frame has the zpage");
        self.owners.copy_within(at + 1..usize::from(self.zpages), at);
        self.zpages -= 1;
        self.used -= chunks as u8;
    }

    fn list(&self) -> usize {
        if usize::from(self.zpages) == MOST {
            BUDDIED
        } else {
            usize::from(self.run)
        }
    }
}

impl<const MOST: usize> Linked for Vec<Record<MOST>> {
    fn links(&mut self, i: u32) -> &mut Links {
        &mut self[i as usize].links
    }
}

/// Either pool: at most `MOST` zpages in a frame.
struct FewPerFrame<const MOST: usize> {
    handles: HandleTable,
    frames: SpanAlloc,
    /// By frame; the last record is in use.
    records: Vec<Record<MOST>>,
    /// Frames that are not sealed: unbuddied ones by free chunks, then [`BUDDIED`]. The head is the
    /// newest.
    lists: [List; BUDDIED + 1],
    /// Bit set: this unbuddied list is not empty.
    unbuddied: u64,
    /// Chunks at the start of a frame that only a zpage of a whole frame may use.
    header: u32,
    limit: u32,
    stored_bytes: u64,
    used_chunks: u64,
    /// Where the next [`Pool::compact`] continues its scan for holes.
    look: usize,
}

impl<const MOST: usize> FewPerFrame<MOST> {
    /// Whether the second zpage lies at the end of the frame. Then there is one free run, whichever
    /// zpage leaves.
    const AT_ENDS: bool = MOST == 2;

    fn new(params: &PoolParams, header: u32) -> Self {
        // With more, a zpage of fewer than all chunks could lie where the header is.
        assert!(header <= 1, "a header of {header} chunks");
        FewPerFrame {
            handles: HandleTable::new(),
            frames: SpanAlloc::new(params.area_frames, 1),
            records: Vec::new(),
            lists: [List::EMPTY; BUDDIED + 1],
            unbuddied: 0,
            header,
            limit: params.limit_frames,
            stored_bytes: 0,
            used_chunks: 0,
            look: 0,
        }
    }

    /// Allocates a frame, within the limit. It is on no list.
    fn grow(&mut self) -> Result<Span, PoolFull> {
        let span = self.frames.alloc_within(1, self.limit)?;
        let end = span.first as usize + 1;
        if end > self.records.len() {
            let extra = end - self.records.len();
            reserve_tight(&mut self.records, extra);
            self.records.resize(end, Record::UNUSED);
        }
        Ok(span)
    }

    /// The newest of the frames with the shortest sufficient free run.
    fn fit(&self, chunks: u32) -> Option<u32> {
        // A shift by 64 would act as one by 0.
        let long_enough = u64::MAX.checked_shl(chunks)? & self.unbuddied;
        (long_enough != 0).then(|| self.lists[long_enough.trailing_zeros() as usize].head)
    }

    /// The free run of a frame: the chunks that a new zpage can get.
    fn run(&self, frame: u32) -> Range<u32> {
        let mut run = self.header..CHUNKS;
        for &owner in self.records[frame as usize].owners() {
            let taken = range(self.handles.get(owner));
            if Self::AT_ENDS && taken.end == CHUNKS {
                run.end = taken.start;
            } else {
                run.start = taken.end;
            }
        }
        run
    }

    /// Puts a frame at the head of the list for its present contents.
    fn link(&mut self, frame: u32) {
        let run = self.run(frame).len();
        let record = &mut self.records[frame as usize];
        record.run = run as u8;
        if !record.sealed {
            let list = record.list();
            self.lists[list].push_front(&mut self.records, frame);
            self.mark(list);
        }
    }

    /// Removes a frame from its list, before it changes.
    fn unlink(&mut self, frame: u32) {
        let record = &self.records[frame as usize];
        if !record.sealed {
            let list = record.list();
            self.lists[list].remove(&mut self.records, frame);
            self.mark(list);
        }
    }

    fn mark(&mut self, list: usize) {
        if list != BUDDIED {
            self.unbuddied = self.unbuddied & !(1 << list) | u64::from(self.lists[list].len > 0) << list;
        }
    }

    /// Closes the holes of a frame from its start on, with at most `max_moves` moves.
    fn close(&mut self, frame: u32, max_moves: usize, movable: &dyn Fn(Handle) -> bool, out: &mut Vec<Move>) {
        let record = self.records[frame as usize];
        if Self::AT_ENDS || !self.has_hole(&record) {
            return;
        }
        let (mut end, mut moves) = (self.header, 0);
        for &handle in record.owners() {
            let place = self.handles.get(handle);
            let mut taken = range(place);
            if taken.start > end && moves < max_moves && movable(handle) {
                let to = Place { slot: end as u16, ..place };
                self.handles.set(handle, to);
                out.push(Move::of_one(handle, slot(place), slot(to), u32::from(place.len)));
                moves += 1;
                taken = range(to);
            }
            end = taken.end;
        }
        if CHUNKS - end != u32::from(record.run) {
            self.unlink(frame);
            self.link(frame);
        }
    }

    fn has_hole(&self, record: &Record<MOST>) -> bool {
        record.zpages > 0 && u32::from(record.used) + u32::from(record.run) + self.header < CHUNKS
    }

    fn record(&self, unit: Unit) -> &Record<MOST> {
        let record = self.records.get(unit.0 as usize).filter(|record| record.zpages > 0);
        record.unwrap_or_else(|| panic!("{unit:?} is not in use"))
    }

    /// Panics unless each used frame that is not sealed is on the right list, and no other frame on
    /// any.
    fn check_lists(&self) {
        let mut listed = vec![None; self.records.len()];
        for (number, list) in self.lists.iter().enumerate() {
            let (mut prev, mut next, mut len) = (Links::UNLINKED.prev, list.head, 0);
            while next != Links::UNLINKED.next {
                let record = &self.records[next as usize];
                assert_eq!(record.links.prev, prev, "back link of frame {next}");
                assert_eq!(listed[next as usize].replace(number), None, "frame {next} is on one list only");
                (prev, next, len) = (next, record.links.next, len + 1);
            }
            assert_eq!((prev, len), (list.tail, list.len), "list {number}");
            assert!(number == BUDDIED || (self.unbuddied >> number & 1 == 1) == (len > 0), "bit of list {number}");
        }
        for (frame, record) in self.records.iter().enumerate() {
            let want = (record.zpages > 0 && !record.sealed).then(|| record.list());
            assert_eq!(listed[frame], want, "list of frame {frame}");
        }
    }

    /// Panics unless the zpages of a used frame are at valid places.
    fn check_frame(&self, frame: u32, record: &Record<MOST>) {
        let places = || record.owners().iter().map(|&owner| self.handles.get(owner));
        assert!(places().all(|place| place.zspage == frame), "the zpages of frame {frame} are in it");
        let mut ranges: Vec<Range<u32>> = places().map(range).collect();
        assert_eq!(ranges.iter().map(Range::len).sum::<usize>(), usize::from(record.used), "chunks of frame {frame}");
        assert_eq!(self.run(frame).len(), usize::from(record.run), "free run of frame {frame}");
        if Self::AT_ENDS {
            assert!(ranges.iter().all(|range| range.start == 0 || range.end == CHUNKS), "{ranges:?} of frame {frame}");
            ranges.sort_unstable_by_key(|range| range.start);
        }
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{ranges:?} of frame {frame}");
        assert!(ranges.last().is_some_and(|range| range.end <= CHUNKS), "{ranges:?} of frame {frame}");
        let alone = ranges[0] == (0..CHUNKS);
        assert!(ranges[0].start >= self.header || alone, "{ranges:?} of frame {frame} and its header");
    }
}

fn slot(place: Place) -> Slot {
    Slot { frame: place.zspage, offset: place.slot * CHUNK_BYTES as u16 }
}

impl<const MOST: usize> Pool for FewPerFrame<MOST> {
    fn place(&mut self, len: u32) -> Result<Placed, PoolFull> {
        assert!((1..=LEN_MAX).contains(&len), "an object of {len} bytes");
        let chunks = chunks(len);
        let (frame, grew) = match self.fit(chunks) {
            Some(frame) => {
                self.unlink(frame);
                (frame, Span::EMPTY)
            }
            None => {
                let span = self.grow()?;
                (span.first, span)
            }
        };
        let run = self.run(frame);
        let first = if chunks > run.len() as u32 {
            // A zpage that does not fit behind the header only ever gets a free frame.
            0
        } else if Self::AT_ENDS && run.start > 0 {
            run.end - chunks
        } else {
            run.start
        };
        let place = Place { class: 0, slot: first as u16, len: len as u16, zspage: frame };
        let handle = self.handles.insert(place);
        self.records[frame as usize].push(handle, chunks);
        self.link(frame);
        self.stored_bytes += u64::from(len);
        self.used_chunks += u64::from(chunks);
        Ok(Placed { handle, runs: Runs::one(slot(place), len), grew })
    }

    fn runs(&self, handle: Handle) -> Runs {
        let place = self.handles.get(handle);
        Runs::one(slot(place), u32::from(place.len))
    }

    fn remove(&mut self, handle: Handle) -> Span {
        let place = self.handles.remove(handle);
        let (frame, chunks) = (place.zspage, chunks(u32::from(place.len)));
        self.stored_bytes -= u64::from(place.len);
        self.used_chunks -= u64::from(chunks);
        self.unlink(frame);
        self.records[frame as usize].take(handle, chunks);
        if self.records[frame as usize].zpages > 0 {
            self.link(frame);
            return Span::EMPTY;
        }
        self.records[frame as usize] = Record::UNUSED;
        while self.records.last().is_some_and(|record| record.zpages == 0) {
            self.records.pop();
        }
        shrink_loose(&mut self.records);
        let span = Span { first: frame, frames: 1 };
        self.frames.free(span);
        span
    }

    fn set_limit(&mut self, frames: u32) {
        self.limit = frames;
    }

    fn usage(&self) -> PoolUsage {
        PoolUsage {
            zpages: u64::from(self.handles.live()),
            stored_bytes: self.stored_bytes,
            used_bytes: self.used_chunks * u64::from(CHUNK_BYTES),
            frames: self.frames.used(),
        }
    }

    fn metadata_bytes(&self) -> u64 {
        let tables = self.handles.metadata_bytes() + self.frames.metadata_bytes() + table_bytes(&self.records);
        size_of::<Self>() as u64 + tables
    }

    fn compact(
        &mut self,
        max_moves: usize,
        movable: &dyn Fn(Handle) -> bool,
        out: &mut Vec<Move>,
        _freed: &mut Vec<Span>,
    ) {
        let end = out.len().saturating_add(max_moves);
        // Holes are rare, because the caller tidies: scanning a part of the frames each time is
        // enough.
        for _ in 0..self.records.len().min(LOOK_MAX) {
            if out.len() == end {
                break;
            }
            self.look = (self.look + 1) % self.records.len();
            self.close(self.look as u32, end - out.len(), movable, out);
        }
    }

    fn trim(&mut self) {
        self.handles.trim();
    }

    fn unit(&self, handle: Handle) -> Unit {
        Unit(self.handles.get(handle).zspage)
    }

    fn view(&self, unit: Unit) -> UnitView {
        let record = self.record(unit);
        // The zpage of a frame without a header leaves no room, not negative room.
        let free = (CHUNKS - self.header).saturating_sub(u32::from(record.used));
        UnitView {
            class: 0,
            zpages: u16::from(record.zpages),
            capacity: MOST as u16,
            frames: 1,
            free_bytes: free * CHUNK_BYTES,
        }
    }

    fn zpages(&self, unit: Unit, out: &mut Vec<Handle>) {
        out.extend_from_slice(self.record(unit).owners());
    }

    fn seal(&mut self, unit: Unit, sealed: bool) {
        if self.record(unit).sealed != sealed {
            self.unlink(unit.0);
            self.records[unit.0 as usize].sealed = sealed;
            self.link(unit.0);
        }
    }

    fn tidy(&mut self, unit: Unit, movable: &dyn Fn(Handle) -> bool, out: &mut Vec<Move>) {
        self.record(unit);
        self.close(unit.0, usize::MAX, movable, out);
    }

    fn check(&self) {
        self.frames.check();
        self.handles.check();
        self.check_lists();
        let (mut frames, mut zpages) = (0, 0);
        for (frame, record) in self.records.iter().enumerate().filter(|(_, record)| record.zpages > 0) {
            self.check_frame(frame as u32, record);
            assert!(self.frames.is_used(frame as u32), "frame {frame} is in use");
            frames += 1;
            zpages += u32::from(record.zpages);
        }
        assert_eq!((frames, zpages), (self.frames.used(), self.handles.live()), "frames and zpages");
        let lens = || self.handles.iter().map(|(_, place)| u32::from(place.len));
        assert_eq!(lens().map(u64::from).sum::<u64>(), self.stored_bytes);
        assert_eq!(lens().map(|len| u64::from(chunks(len))).sum::<u64>(), self.used_chunks);
        assert!(self.records.last().is_none_or(|record| record.zpages > 0), "free records at the end are cut off");
    }
}

#[cfg(test)]
mod tests;
