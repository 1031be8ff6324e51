//! The swap tier of a simulation: places of objects on the device, and its operations.

use super::Tally;
use crate::device::{Device, Operation, Transfers};
use crate::hash::NumberMap;
use memfit_codec::page_write_ns;
use memfit_core::blocks::{block_of, BLOCK_BYTES, BLOCK_UNIT_BYTES};
use memfit_core::budget::{LOG_BATCH_MIN, LOG_FLUSH, LOG_PADDING, LOG_WRITES, ROOM_AGAIN};
use memfit_core::scheme::SwapFormat;
use memfit_core::swap_log::{byte_in_segment, stored_bytes, SegmentId, SwapLog, SEGMENT_BYTES};
use memfit_core::{Extent, ObjectId, ProcId, Stored};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Writes that may be under way before reclaim waits for the device.
const WRITES: u64 = LOG_WRITES as u64;
/// Most objects that were read ahead and wait for their fault.
const AT_HAND: usize = 1024;

/// The device with the position of its last operation and a clock.
pub struct Disk {
    /// Prices the operations. In a miniature it is slower than the real one, as it stands for all
    /// operations of the whole with those of a sample.
    pub device: Arc<Device>,
    /// The device that the scheme decides for, also in a miniature.
    real: Arc<Device>,
    /// Where the last operation ended, bytes.
    at: u64,
    /// Time at which its last write ends, ns.
    until: u64,
    /// Time of all writes, ns.
    pub write_ns: u64,
    /// All operations since it was read last, if anybody wants them.
    pub log: Option<Vec<Operation>>,
}

impl Disk {
    /// Whether writing a byte takes longer than `ns`.
    pub fn is_slow(&self, ns: u64) -> bool {
        self.batch_write_ns() > ns * u64::from(LOG_FLUSH)
    }

    /// Time of a page in a large write, ns.
    pub fn page_write_ns(&self) -> u64 {
        page_write_ns(self.batch_write_ns(), LOG_FLUSH.into())
    }

    fn batch_write_ns(&self) -> u64 {
        self.real.write_ns(&one(u64::from(LOG_FLUSH), true), 1)
    }

    /// Time of a random read of a page, ns.
    pub fn page_read_ns(&self) -> u64 {
        self.real.read_ns(&one(memfit_core::PAGE_BYTES, false), 1)
    }

    /// Time at which its last write ends, ns.
    #[cfg(test)]
    pub fn until(&self) -> u64 {
        self.until
    }

    fn write(&mut self, at: u64, bytes: u64, now: u64, tally: &mut Tally) -> u64 {
        let ns = self.device.write_ns(&one(bytes, at == self.at), 1);
        tally.writes.add(bytes, at == self.at);
        self.went_to(Operation { at, bytes, write: true });
        self.until = self.until.max(now) + ns;
        self.write_ns += ns;
        // Reclaim waits only for writes beyond the first `WRITES`.
        (self.until - now).saturating_sub(ns * WRITES)
    }

    fn read(&mut self, at: u64, bytes: u64, reads: &mut Transfers) -> u64 {
        let ns = self.device.read_ns(&one(bytes, at == self.at), 1);
        reads.add(bytes, at == self.at);
        self.went_to(Operation { at, bytes, write: false });
        ns
    }

    fn went_to(&mut self, operation: Operation) {
        self.at = operation.at + operation.bytes;
        if let Some(log) = &mut self.log {
            log.push(operation);
        }
    }
}

/// A single operation.
pub fn one(bytes: u64, sequential: bool) -> Transfers {
    let mut one = Transfers::default();
    one.add(bytes, sequential);
    one
}

struct Open {
    segment: SegmentId,
    fill: u32,
    flushed: u32,
}

/// The swap tier.
pub struct Tier {
    pub disk: Disk,
    format: SwapFormat,
    bytes: u64,
    log: SwapLog,
    open: Option<Open>,
    /// It takes no objects at present.
    pub full: bool,
    at_hand: AtHand,
    order: VecDeque<u32>,
    /// Clean copies by process and page.
    copies: NumberMap<(u32, u64), Stored>,
}

/// Objects that were read and wait for their fault, by unit; and their number in each block.
#[derive(Default)]
struct AtHand {
    units: NumberMap<u32, ()>,
    blocks: NumberMap<u32, u32>,
}

impl AtHand {
    fn block(unit: u32) -> u32 {
        unit / (BLOCK_BYTES / BLOCK_UNIT_BYTES)
    }

    fn contains(&self, unit: u32) -> bool {
        self.units.contains_key(&unit)
    }

    fn insert(&mut self, unit: u32) -> bool {
        let new = self.units.insert(unit, ()).is_none();
        *self.blocks.entry(AtHand::block(unit)).or_default() += u32::from(new);
        new
    }

    fn remove(&mut self, unit: u32) {
        if self.units.remove(&unit).is_none() {
            return;
        }
        let block = AtHand::block(unit);
        match self.blocks.get_mut(&block) {
            Some(units) if *units > 1 => *units -= 1,
            _ => _ = self.blocks.remove(&block),
        }
    }

    /// Seldom finds objects: the objects of a block are freed before the block is written again.
    fn remove_block(&mut self, block: u32) {
        if self.blocks.remove(&block).is_some() {
            self.units.retain(|&unit, ()| AtHand::block(unit) != block);
        }
    }
}

impl Tier {
    /// `device` prices the operations; the scheme decides for the `real` one.
    pub fn new(format: SwapFormat, bytes: u64, device: Arc<Device>, real: &Arc<Device>) -> Tier {
        let mut log = SwapLog::new();
        if bytes > 0 && format == SwapFormat::CompressedExtents {
            log.add_device(bytes, false);
        }
        Tier {
            disk: Disk { device, real: Arc::clone(real), at: 0, until: 0, write_ns: 0, log: None },
            format,
            bytes,
            log,
            open: None,
            full: false,
            at_hand: AtHand::default(),
            order: VecDeque::new(),
            copies: NumberMap::default(),
        }
    }

    pub fn exists(&self) -> bool {
        self.bytes > 0
    }

    fn is_log(&self) -> bool {
        self.format == SwapFormat::CompressedExtents
    }

    /// The blocks that the core may assign; none for a log.
    pub fn blocks(&self) -> Vec<Range<u32>> {
        let blocks = (self.bytes / u64::from(BLOCK_BYTES)).min(u64::from(memfit_core::blocks::BLOCKS_MAX)) as u32;
        if self.is_log() || blocks == 0 {
            return Vec::new();
        }
        std::iter::once(0..blocks).collect()
    }

    /// Bytes on the device that hold an object, in whole blocks.
    fn place(&self, stored: &Stored) -> Range<u64> {
        let block = u64::from(BLOCK_BYTES);
        if !self.is_log() {
            let at = u64::from(block_of(stored.extent)) * block;
            return at..at + block;
        }
        let segment = u64::from(SegmentId::of(stored.extent).0) * u64::from(SEGMENT_BYTES);
        let at = segment + u64::from(byte_in_segment(stored.extent));
        let end = at + u64::from(stored_bytes(stored.len.into()));
        at / block * block..end.next_multiple_of(block)
    }

    /// Whether an earlier read brought in the object and no fault has used it.
    pub fn at_hand(&self, extent: Extent) -> bool {
        self.at_hand.contains(extent.unit)
    }

    /// Reads objects; adjacent ones in one operation. Returns how long the fault waits, ns: for the
    /// reads, and for at most one block of the writes under way.
    pub fn read(&mut self, objects: &[Stored], now: u64, tally: &mut Tally) -> u64 {
        let mut places: Vec<Range<u64>> = objects.iter().map(|stored| self.place(stored)).collect();
        places.sort_unstable_by_key(|place| place.start);
        let mut ns = 0;
        let mut run: Option<Range<u64>> = None;
        for place in places {
            match &mut run {
                Some(run) if place.start <= run.end => run.end = run.end.max(place.end),
                _ => {
                    if let Some(run) = run.replace(place) {
                        ns += self.disk.read(run.start, run.end - run.start, &mut tally.reads);
                    }
                }
            }
        }
        if let Some(run) = run {
            ns += self.disk.read(run.start, run.end - run.start, &mut tally.reads);
        }
        for stored in objects {
            if self.at_hand.insert(stored.extent.unit) {
                self.order.push_back(stored.extent.unit);
            }
        }
        while self.order.len() > AT_HAND {
            let oldest = self.order.pop_front().expect("there are some");
            self.at_hand.remove(oldest);
        }
        let busy = self.disk.until.saturating_sub(now);
        ns + busy.min(self.disk.device.write_ns(&one(u64::from(BLOCK_BYTES), false), 1))
    }

    /// Says that objects are appended from `now` on: their writes begin then at the earliest.
    pub fn appends_from(&mut self, now: u64) {
        self.disk.until = self.disk.until.max(now);
    }

    /// Bytes that a batch may append to the open segment; `None` if the tier is full.
    pub fn batch(&mut self, tally: &mut Tally) -> Option<u32> {
        if self.left() < LOG_BATCH_MIN {
            self.close(tally);
        }
        self.room(stored_bytes(BLOCK_BYTES), false, tally).then(|| self.left().saturating_sub(LOG_PADDING))
    }

    fn left(&self) -> u32 {
        self.open.as_ref().map_or(0, |open| SEGMENT_BYTES - open.fill)
    }

    fn room(&mut self, bytes: u32, cleaning: bool, tally: &mut Tally) -> bool {
        if self.left() >= bytes {
            return true;
        }
        self.close(tally);
        let opened = self.log.open(cleaning).or_else(|| {
            self.drop_copies(None);
            self.log.open(cleaning)
        });
        let Some(segment) = opened else { return false };
        self.open = Some(Open { segment, fill: 0, flushed: 0 });
        true
    }

    fn close(&mut self, tally: &mut Tally) {
        self.flush(tally);
        if let Some(open) = self.open.take() {
            self.log.close(open.segment);
        }
    }

    /// Appends an object; `None` if the tier is full.
    pub fn append(
        &mut self,
        object: ObjectId,
        len: u16,
        codec: u8,
        cleaning: bool,
        tally: &mut Tally,
    ) -> Option<Stored> {
        let bytes = stored_bytes(len.into());
        if !self.room(bytes, cleaning, tally) {
            return None;
        }
        let open = self.open.as_mut().expect("room was made");
        let stored = Stored { extent: open.segment.extent(open.fill), len, codec };
        open.fill += bytes;
        let due = open.fill - open.flushed >= LOG_FLUSH;
        self.log.append(stored.extent, object, bytes);
        tally.object_bytes += if cleaning { 0 } else { u64::from(bytes) };
        if due {
            self.flush(tally);
        }
        Some(stored)
    }

    fn flush(&mut self, tally: &mut Tally) {
        let Some(open) = self.open.as_mut().filter(|open| open.fill > open.flushed) else { return };
        let end = open.fill.next_multiple_of(BLOCK_BYTES).min(SEGMENT_BYTES);
        let at = u64::from(open.segment.0) * u64::from(SEGMENT_BYTES) + u64::from(open.flushed);
        let bytes = end - open.flushed;
        (open.fill, open.flushed) = (end, end);
        let now = self.disk.until;
        self.disk.write(at, bytes.into(), now, tally);
    }

    /// Writes the collected objects. Returns how long reclaim must wait for the device, ns.
    pub fn flushed(&mut self, now: u64, tally: &mut Tally) -> u64 {
        self.appends_from(now);
        self.flush(tally);
        let most = WRITES * self.disk.device.write_ns(&one(LOG_FLUSH.into(), true), 1);
        (self.disk.until - now).saturating_sub(most)
    }

    /// Writes whole blocks; adjacent ones in one operation. Returns how long reclaim must wait, ns.
    pub fn write_blocks(&mut self, blocks: &[u32], now: u64, tally: &mut Tally) -> u64 {
        let block = u64::from(BLOCK_BYTES);
        let mut wait = 0;
        for run in blocks.chunk_by(|a, b| a + 1 == *b) {
            let bytes = run.len() as u64 * block;
            wait = self.disk.write(u64::from(run[0]) * block, bytes, now, tally);
            tally.object_bytes += bytes;
        }
        for &block in blocks {
            // Objects that were read ahead from the block are stale.
            self.at_hand.remove_block(block);
        }
        wait
    }

    /// Frees an object in the log. The core has the others.
    pub fn release(&mut self, extent: Extent, len: u16) {
        if self.is_log() {
            self.at_hand.remove(extent.unit);
            self.log.release(extent, stored_bytes(len.into()));
        }
    }

    /// Keeps the bytes of a loaded page as its clean copy.
    pub fn keep_copy(&mut self, proc: ProcId, page: u64, stored: Stored) {
        self.at_hand.remove(stored.extent.unit);
        if let Some(old) = self.copies.insert((proc.0, page), stored) {
            self.release(old.extent, old.len);
        }
    }

    /// Drops the clean copy of a page.
    pub fn drop_copy(&mut self, proc: ProcId, page: u64) {
        if let Some(stored) = self.copies.remove(&(proc.0, page)) {
            self.release(stored.extent, stored.len);
        }
    }

    /// Makes the clean copy of a page the place of this object. `slot`: the raw slot that the core
    /// has kept for it.
    pub fn take_copy(&mut self, proc: ProcId, page: u64, object: ObjectId, slot: Option<Extent>) -> Option<Stored> {
        if self.is_log() != slot.is_none() {
            return None;
        }
        let stored = self.copies.remove(&(proc.0, page))?;
        match slot {
            Some(slot) => assert_eq!(slot, stored.extent, "the slot of the page's last load"),
            None => self.log.adopt(stored.extent, object),
        }
        Some(stored)
    }

    fn drop_copies(&mut self, segment: Option<SegmentId>) {
        let gone = |stored: &Stored| segment.is_none_or(|segment| SegmentId::of(stored.extent) == segment);
        let mut dropped: Vec<Stored> = Vec::new();
        self.copies.retain(|_, stored| {
            let gone = gone(stored);
            dropped.extend(gone.then_some(*stored));
            !gone
        });
        // The order of a map depends on its history.
        dropped.sort_unstable_by_key(|stored| stored.extent.unit);
        dropped.iter().for_each(|stored| self.release(stored.extent, stored.len));
    }

    /// Picks a segment worth cleaning and reads it. Returns it with the objects appended to it.
    pub fn begin_cleaning(&mut self, tally: &mut Tally) -> Option<(SegmentId, Vec<ObjectId>)> {
        if !self.is_log() {
            return None;
        }
        if self.log.scarce() && !self.copies.is_empty() {
            self.drop_copies(None);
        }
        let (segment, objects) = self.log.victim()?;
        self.drop_copies(Some(segment));
        self.disk.read(
            u64::from(segment.0) * u64::from(SEGMENT_BYTES),
            SEGMENT_BYTES.into(),
            &mut tally.cleaning_reads,
        );
        Some((segment, objects))
    }

    /// Ends the cleaning of a segment. Live objects that found no room elsewhere stay in it.
    pub fn cleaned(&mut self, segment: SegmentId) {
        self.log.cleaned(segment, false);
    }

    /// Bytes of the live objects in the log.
    pub fn live_bytes(&self) -> u64 {
        self.log.usage().live_bytes
    }

    pub fn has_room_again(&self) -> bool {
        !self.is_log() || self.log.usage().free_bytes >= ROOM_AGAIN
    }

    pub fn check(&self) {
        self.log.check();
    }
}
