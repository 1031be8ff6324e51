//! Appends objects to the swap tier, and cleans its segments. Used by the reclaim thread.
//!
//! Objects are collected in the buffer of an open segment, and written in pieces of at least
//! [`LOG_FLUSH`] while more follow. An object's memory stays in use until its piece is on the
//! device.

use super::engine::{Engine, Progress, Transfer};
use super::{span, Aligned, SwapTier, ALIGN, SEGMENT};
use memfit_core::budget::{LOG_BATCH_MIN, LOG_FLUSH, LOG_PADDING, LOG_WRITES};
use memfit_core::swap_log::{stored_bytes, SegmentId};
use memfit_core::{ObjectId, Stored};
use memfit_os::transfer::Request;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Instant;

/// Whether an object can be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Yes.
    Yes,
    /// Not before a write has ended.
    Later,
    /// All devices are full, or none takes writes.
    No,
}

/// An object that is being written.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    /// The object.
    pub object: ObjectId,
    /// Where it will be.
    pub stored: Stored,
    /// If it is cleaned: where it was in the swap tier, and in which use of that segment.
    pub from: Option<(Stored, u64)>,
}

/// A finished write.
#[derive(Debug)]
pub struct Written {
    /// The objects in it.
    pub items: Vec<Item>,
    /// Why it failed, if it did.
    pub error: Option<io::Error>,
    /// The number of its device. `None`: nothing was asked of the device, since an earlier write
    /// failed.
    pub device: Option<usize>,
}

struct Open {
    segment: SegmentId,
    sequence: u64,
    /// Opened for cleaning, in a tier that is nearly full.
    reserved: bool,
    buffer: Arc<Aligned>,
    fill: usize,
    flushed: usize,
    items: Vec<Item>,
}

struct Flight {
    transfer: Transfer,
    segment: SegmentId,
    items: Vec<Item>,
    bytes: usize,
}

/// A segment whose live objects are appended elsewhere.
struct Cleaning {
    segment: SegmentId,
    sequence: u64,
    buffer: Arc<Aligned>,
    /// `None` when it has been read.
    read: Option<Transfer>,
    objects: Vec<ObjectId>,
    /// Objects appended elsewhere that are not on the device yet.
    left: usize,
    /// Its bytes were read again, because an object did not open.
    reread: bool,
    bad: bool,
}

/// Writes of one thread.
pub struct Writer {
    // Dropped before the tier, whose files its transfers use.
    engine: Engine,
    tier: Arc<SwapTier>,
    open: Option<Open>,
    flights: Vec<Flight>,
    spare: Vec<Arc<Aligned>>,
    cleaning: Option<Cleaning>,
    next_token: u64,
    ended: Vec<Written>,
    scratch: Box<[u8]>,
    sealed: Box<[u8]>,
    /// Since when writes are under way.
    busy_since: Instant,
}

impl Writer {
    /// A writer without an open segment.
    pub fn new(tier: Arc<SwapTier>) -> Writer {
        Writer {
            tier,
            engine: Engine::new(),
            open: None,
            flights: Vec::new(),
            spare: Vec::new(),
            cleaning: None,
            next_token: 0,
            ended: Vec::new(),
            scratch: vec![0; 4096].into(),
            sealed: vec![0; stored_bytes(4096) as usize].into(),
            busy_since: Instant::now(),
        }
    }

    /// Whether an object of `len` bytes can be added now. Opens a segment for it if needed.
    pub fn room(&mut self, len: u16, cleaning: bool) -> Room {
        // A segment opened for cleaning takes no other objects, or there would be no space to clean
        // with.
        let kept = !cleaning && self.open.as_ref().is_some_and(|open| open.reserved) && self.tier.log().exhausted();
        if kept {
            return Room::No;
        }
        if self.left() >= stored_bytes(u32::from(len)) {
            return Room::Yes;
        }
        if self.flights.len() >= LOG_WRITES {
            return Room::Later;
        }
        self.close();
        let reserved = cleaning && self.tier.log().exhausted();
        let opened = self.tier.log().open(cleaning);
        let Some(segment) = opened.or_else(|| self.tier.drop_copies(None).then(|| self.tier.log().open(cleaning))?)
        else {
            return Room::No;
        };
        let sequence = self.tier.log().sequence(segment);
        if let Some((fd, range)) = self.tier.opened(segment) {
            self.engine.allocate(fd, range);
        }
        let buffer = self.spare.pop().unwrap_or_else(|| Arc::new(Aligned::new(SEGMENT)));
        self.open = Some(Open { segment, sequence, reserved, buffer, fill: 0, flushed: 0, items: Vec::new() });
        Room::Yes
    }

    /// Bytes that the open segment has left.
    fn left(&self) -> u32 {
        self.open.as_ref().map_or(0, |open| (SEGMENT - open.fill) as u32)
    }

    /// As [`Writer::room`], for a batch: how many bytes its objects may take in the swap tier.
    pub fn batch(&mut self) -> Result<u32, Room> {
        if self.left() < LOG_BATCH_MIN && self.flights.len() < LOG_WRITES {
            self.close();
        }
        match self.room(4096, false) {
            Room::Yes => Ok(self.left().saturating_sub(LOG_PADDING)),
            other => Err(other),
        }
    }

    /// Adds an object, for which there is room.
    pub fn add(&mut self, object: ObjectId, codec: u8, bytes: &[u8], from: Option<(Stored, u64)>) {
        let len = u16::try_from(bytes.len()).expect("an object is at most a page");
        let open = self.open.as_mut().expect("room was made");
        let stored = Stored { extent: open.segment.extent(open.fill as u32), len, codec };
        let (start, end) = span(stored);
        assert!(start == open.fill && end <= SEGMENT, "room was made");
        let sealed = &mut self.sealed[..end - start];
        self.tier.seal_object(stored, open.sequence, bytes, sealed);
        // What is under way ends at `flushed`.
        open.buffer.write(start, sealed);
        open.fill = end;
        open.items.push(Item { object, stored, from });
        self.tier.log().append(stored.extent, object, (end - start) as u32);
        let count = if from.is_some() { &self.tier.counters.cleaned_bytes } else { &self.tier.counters.object_bytes };
        count.fetch_add((end - start) as u64, Relaxed);
        if open.fill - open.flushed >= LOG_FLUSH as usize {
            self.flush();
        }
    }

    /// Begins to write what has been collected.
    pub fn flush(&mut self) {
        let Some(open) = self.open.as_mut().filter(|open| !open.items.is_empty()) else { return };
        let end = open.fill.next_multiple_of(ALIGN);
        open.buffer.write(open.fill, &[0; ALIGN][..end - open.fill]);
        let (fd, offset) = self.tier.place(open.segment);
        let offset = offset + open.flushed as u64;
        let (token, buffer, len) = (self.next_token, Arc::clone(&open.buffer), end - open.flushed);
        let request = Request { token, write: true, fd, offset, buffer, at: open.flushed, len };
        self.next_token += 1;
        if self.flights.is_empty() {
            self.busy_since = Instant::now();
        }
        let transfer = Transfer::begin(&mut self.engine, request, &self.tier.counters);
        self.engine.start();
        (open.fill, open.flushed) = (end, end);
        let items = std::mem::take(&mut open.items);
        self.flights.push(Flight { transfer, segment: open.segment, items, bytes: len });
        if SEGMENT - end < ALIGN {
            self.close();
        }
    }

    fn close(&mut self) {
        self.flush();
        if let Some(open) = self.open.take() {
            self.tier.log().close(open.segment);
            self.keep(open.buffer);
        }
    }

    fn keep(&mut self, buffer: Arc<Aligned>) {
        if Arc::strong_count(&buffer) == 1 && self.spare.is_empty() {
            self.spare.push(buffer);
        }
    }

    /// The writes that have ended since the last call.
    pub fn reap(&mut self) -> Vec<Written> {
        while let Some((token, result)) = self.engine.completed() {
            if let Some(i) = self.flights.iter().position(|f| f.transfer.token() == token) {
                match self.flights[i].transfer.answered(&mut self.engine, result, &self.tier.counters) {
                    Progress::More => {}
                    Progress::Done => self.landed(i, None),
                    Progress::Failed(error) => self.landed(i, Some(error)),
                }
            } else if let Some(cleaning) = &mut self.cleaning {
                let Some(read) = cleaning.read.as_mut().filter(|read| read.token() == token) else { continue };
                match read.answered(&mut self.engine, result, &self.tier.counters) {
                    Progress::More => {}
                    Progress::Done => cleaning.read = None,
                    // The last segment of a file may be incomplete.
                    Progress::Failed(error) if error.kind() == io::ErrorKind::UnexpectedEof => cleaning.read = None,
                    Progress::Failed(_) => (cleaning.read, cleaning.bad) = (None, true),
                }
            }
        }
        self.engine.start();
        std::mem::take(&mut self.ended)
    }

    fn landed(&mut self, flight: usize, error: Option<io::Error>) {
        let Flight { transfer, segment, items, bytes } = self.flights.swap_remove(flight);
        // A device that is never idle would not count otherwise.
        let busy = std::mem::replace(&mut self.busy_since, Instant::now()).elapsed();
        self.tier.counters.wrote(if error.is_none() { bytes as u64 } else { 0 }, busy);
        self.not_left(&items);
        if let Some(error) = &error {
            self.lost(segment, error);
        }
        let (device, _) = self.tier.log().place(segment);
        self.ended.push(Written { items, error, device: Some(device.0 as usize) });
        self.keep(transfer.into_buffer());
    }

    /// These objects are not on their way any more: the cleaning does not wait for them.
    fn not_left(&mut self, items: &[Item]) {
        if let Some(cleaning) = &mut self.cleaning {
            let own = |item: &&Item| item.from.is_some_and(|(_, sequence)| sequence == cleaning.sequence);
            cleaning.left -= items.iter().filter(own).count();
        }
    }

    /// A write to the segment failed: nothing more goes there and, depending on the error, nothing
    /// more to its device.
    fn lost(&mut self, segment: SegmentId, error: &io::Error) {
        if self.open.as_ref().is_some_and(|open| open.segment == segment) {
            // What is in the buffer fails with it.
            let Open { items, buffer, .. } = self.open.take().expect("it is open");
            self.not_left(&items);
            if !items.is_empty() {
                let error = error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
                self.ended.push(Written { items, error: Some(error), device: None });
            }
            self.tier.log().close(segment);
            self.keep(buffer);
        }
        let mut log = self.tier.log();
        log.spoilt(segment);
        let (device, _) = log.place(segment);
        match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => log.full(device),
            _ => log.broken(device),
        }
    }

    /// Whether any device still takes writes.
    pub fn usable(&self) -> bool {
        self.tier.log().usable()
    }

    /// Whether writes are under way.
    pub fn busy(&self) -> bool {
        !self.flights.is_empty() || self.cleaning.as_ref().is_some_and(|c| c.read.is_some())
    }

    /// Waits until a write has ended, at most `ms` milliseconds.
    pub fn wait(&mut self, ms: i32) {
        self.engine.wait(ms);
    }

    /// Begins to clean a segment if that pays.
    pub fn begin_cleaning(&mut self) {
        if self.cleaning.is_some() {
            return;
        }
        let scarce = self.tier.log().scarce();
        if scarce {
            self.tier.drop_copies(None);
        }
        let mut log = self.tier.log();
        let Some((segment, objects)) = log.victim() else { return };
        let sequence = log.sequence(segment);
        drop(log);
        self.tier.drop_copies(Some(segment));
        let buffer = Arc::new(Aligned::new(SEGMENT));
        let read = Some(self.begin_read(segment, Arc::clone(&buffer)));
        self.cleaning = Some(Cleaning { segment, sequence, buffer, read, objects, left: 0, reread: false, bad: false });
    }

    fn begin_read(&mut self, segment: SegmentId, buffer: Arc<Aligned>) -> Transfer {
        let (fd, offset) = self.tier.place(segment);
        let request = Request { token: self.next_token, write: false, fd, offset, buffer, at: 0, len: SEGMENT };
        self.next_token += 1;
        let read = Transfer::begin(&mut self.engine, request, &self.tier.counters);
        self.engine.start();
        read
    }

    /// The segment that was read for cleaning, and up to `max` of its objects that are still to be
    /// appended: the core says which of them are live.
    pub fn next_to_clean(&mut self, max: usize) -> Option<(SegmentId, Vec<ObjectId>)> {
        let cleaning = self.cleaning.as_mut().filter(|c| c.read.is_none())?;
        if cleaning.bad {
            cleaning.objects.clear();
        }
        let from = cleaning.objects.len() - cleaning.objects.len().min(max);
        let objects = cleaning.objects.split_off(from);
        if objects.is_empty() {
            if cleaning.left == 0 {
                self.end_cleaning();
            } else {
                self.flush();
            }
            return None;
        }
        Some((cleaning.segment, objects))
    }

    /// The objects that are left stay where they are.
    fn end_cleaning(&mut self) {
        if let Some(Cleaning { segment, bad, .. }) = self.cleaning.take() {
            self.tier.log().cleaned(segment, bad);
        }
    }

    /// Puts back objects of [`Writer::next_to_clean`] for which there is no room now.
    pub fn clean_later(&mut self, objects: impl Iterator<Item = ObjectId>) {
        if let Some(cleaning) = &mut self.cleaning {
            cleaning.objects.extend(objects);
        }
    }

    /// Appends an object of the segment that is being cleaned. False if there is no room now: if
    /// no write is under way that could make some, the cleaning ends. False also if the segment is
    /// read once more, because the object does not open.
    pub fn append_again(&mut self, object: ObjectId, stored: Stored) -> bool {
        match self.room(stored.len, true) {
            Room::Yes => {}
            Room::No if self.flights.is_empty() => {
                self.end_cleaning();
                return false;
            }
            _ => return false,
        }
        let Some(cleaning) = &mut self.cleaning else { return false };
        let (start, end) = span(stored);
        let mut scratch = std::mem::take(&mut self.scratch);
        let buffer = Arc::get_mut(&mut cleaning.buffer).expect("the read has ended");
        let bytes = &buffer.bytes()[start..end];
        let opens = self.tier.open_object(stored, cleaning.sequence, bytes, &mut scratch).is_some();
        if opens {
            cleaning.left += 1;
            let from = Some((stored, cleaning.sequence));
            self.add(object, stored.codec, &scratch[..usize::from(stored.len)], from);
        }
        self.scratch = scratch;
        opens || !self.reads_again()
    }

    /// An object of the segment that is being cleaned does not open. Whether its bytes are read
    /// once more. If not, it stays where it is: a fault will report the error.
    fn reads_again(&mut self) -> bool {
        self.tier.counters.errors.fetch_add(1, Relaxed);
        let Some(mut cleaning) = self.cleaning.take() else { return false };
        let again = !std::mem::replace(&mut cleaning.reread, true);
        if again {
            cleaning.read = Some(self.begin_read(cleaning.segment, Arc::clone(&cleaning.buffer)));
        }
        cleaning.bad |= !again;
        self.cleaning = Some(cleaning);
        again
    }

    /// Whether a segment is being cleaned.
    pub fn cleaning(&self) -> bool {
        self.cleaning.is_some()
    }

    /// Whether the segment is in the same use as when this object was read from it.
    pub fn unchanged(&self, stored: Stored, sequence: u64) -> bool {
        self.tier.sequence_of(stored.extent) == sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swap::{Have, Layout, Reader};
    use memfit_core::Extent;
    use std::collections::HashMap;
    use std::path::Path;
    use std::time::Duration;

    /// A tier on a disk, which a temporary directory need not be.
    fn tier(bytes: u64) -> Arc<SwapTier> {
        let mut tier = SwapTier::new(1000, Layout::Log).unwrap();
        tier.add(Path::new("/var/tmp"), bytes).unwrap();
        Arc::new(tier)
    }

    fn contents(object: u32, version: u32) -> Vec<u8> {
        let len = 1 + (object * 613 + version * 97) % 4096;
        (0..len).map(|i| (i * 31 + object * 7 + version) as u8).collect()
    }

    fn write(writer: &mut Writer, objects: &[(u32, u32)]) -> HashMap<u32, Stored> {
        let mut stored = HashMap::new();
        let mut take = |writer: &mut Writer, wait: bool| {
            if wait {
                writer.wait(100);
            }
            for written in writer.reap() {
                assert!(written.error.is_none(), "{:?}", written.error);
                stored.extend(written.items.iter().map(|item| (item.object.0, item.stored)));
            }
        };
        for &(object, version) in objects {
            let bytes = contents(object, version);
            while writer.room(bytes.len() as u16, false) == Room::Later {
                take(writer, true);
            }
            writer.add(ObjectId(object), 3, &bytes, None);
        }
        writer.flush();
        while writer.busy() {
            take(writer, true);
        }
        take(writer, false);
        stored
    }

    #[test]
    fn the_time_of_writes_counts_while_the_device_is_never_idle() {
        let tier = tier(64 << 20);
        let mut writer = Writer::new(Arc::clone(&tier));
        let bytes = vec![7; 4096];
        for object in 0..20_000 {
            while writer.room(4096, false) == Room::Later {
                writer.wait(100);
                let landed = !writer.reap().is_empty();
                assert!(!landed || tier.counters.write_ns.load(Relaxed) > 0);
                if landed && writer.busy() {
                    return;
                }
            }
            if writer.room(4096, false) == Room::No {
                return;
            }
            writer.add(ObjectId(object), 3, &bytes, None);
        }
    }

    #[test]
    fn a_device_that_was_slow_can_be_fast_again() {
        let tier = tier(64 << 20);
        let write = |mib: u64, ms_per_mib| {
            (0..mib).for_each(|_| tier.counters.wrote(1 << 20, Duration::from_millis(ms_per_mib)));
        };
        write(2048, 50);
        assert!(tier.is_slow(20));
        write(2048, 1);
        assert!(!tier.is_slow(5));
    }

    #[test]
    fn gives_back_what_was_written_in_any_order() {
        let tier = tier(64 << 20);
        let mut writer = Writer::new(Arc::clone(&tier));
        let objects: Vec<(u32, u32)> = (0..2000).map(|object| (object, 0)).collect();
        let stored = write(&mut writer, &objects);
        assert_eq!(stored.len(), objects.len());
        assert_eq!(tier.counters.under_way.longest(), None, "all has been answered");
        let mut reader = Reader::new(Arc::clone(&tier), 256 << 20);
        for i in 0..2000u32 {
            let object = i * 1237 % 2000;
            assert_eq!(reader.fetch(stored[&object]).unwrap(), contents(object, 0), "object {object}");
        }
        let run: Vec<Stored> = (100..160).map(|object| stored[&object]).collect();
        reader.rest();
        let before = tier.counters.reads.load(Relaxed);
        reader.want(&run);
        for object in 100..160 {
            assert_ne!(reader.have(stored[&object]), Have::Absent);
            assert_eq!(reader.fetch(stored[&object]).unwrap(), contents(object, 0));
        }
        let reads = tier.counters.reads.load(Relaxed) - before;
        assert!(reads <= 3, "{reads} reads for sixty neighbours");
    }

    #[test]
    fn another_place_or_length_is_noticed() {
        let tier = tier(64 << 20);
        let stored = write(&mut Writer::new(Arc::clone(&tier)), &[(5, 0), (6, 0)]);
        let mut reader = Reader::new(tier, 256 << 20);
        let right = stored[&5];
        for wrong in [
            Stored { len: right.len - 1, ..right },
            Stored { codec: 1, ..right },
            Stored { extent: Extent { unit: right.extent.unit + 1 }, len: 40, ..right },
        ] {
            assert!(reader.fetch(wrong).unwrap_err().contains("other bytes"));
        }
        assert_eq!(reader.fetch(right).unwrap(), contents(5, 0), "and the right one still is");
    }

    #[test]
    fn a_segment_used_again_does_not_give_what_it_had() {
        let tier = tier(4 * SEGMENT as u64);
        let mut writer = Writer::new(Arc::clone(&tier));
        let mut reader = Reader::new(Arc::clone(&tier), 256 << 20);
        for version in 0..40 {
            let objects: Vec<(u32, u32)> = (0..80).map(|object| (object, version)).collect();
            let stored = write(&mut writer, &objects);
            for (&object, &stored) in &stored {
                assert_eq!(reader.fetch(stored).unwrap(), contents(object, version), "version {version}");
            }
            // An open segment would keep its objects' space for ever.
            writer.close();
            stored.values().for_each(|stored| tier.free(stored.extent, stored.len));
        }
        assert_eq!(tier.live_bytes(), 0);
    }

    #[test]
    fn cleaning_keeps_what_is_live() {
        let tier = tier(1 << 30);
        let mut writer = Writer::new(Arc::clone(&tier));
        let objects: Vec<(u32, u32)> = (0..40_000).map(|object| (object, 0)).collect();
        let mut stored = write(&mut writer, &objects);
        for object in (0..40_000).filter(|object| object % 5 != 0) {
            let gone = stored.remove(&object).unwrap();
            tier.free(gone.extent, gone.len);
        }
        let before = tier.used_bytes();
        loop {
            writer.begin_cleaning();
            if !writer.cleaning() {
                break;
            }
            while let Some((segment, objects)) = writer.next_to_clean(100) {
                for object in objects {
                    let here = stored.get(&object.0).filter(|stored| SegmentId::of(stored.extent) == segment).copied();
                    if let Some(here) = here {
                        assert!(writer.append_again(object, here));
                    }
                }
            }
            writer.flush();
            writer.wait(100);
            for item in writer.reap().into_iter().flat_map(|written| written.items) {
                let (from, sequence) = item.from.unwrap();
                assert!(writer.unchanged(from, sequence));
                tier.free(from.extent, from.len);
                stored.insert(item.object.0, item.stored);
            }
        }
        let (used, live) = (tier.used_bytes(), tier.live_bytes());
        assert!(used < before && used <= 2 * live + (33 << 20), "{used} of {before}, {live} live");
        let mut reader = Reader::new(tier, 256 << 20);
        for (&object, &stored) in &stored {
            assert_eq!(reader.fetch(stored).unwrap(), contents(object, 0));
        }
    }

    /// A tier of `segments` segments that is full, with one segment in four full of holes; and the
    /// objects in it.
    fn full_with_holes(segments: u64) -> (Arc<SwapTier>, Writer, HashMap<u32, Stored>) {
        let tier = tier(segments * SEGMENT as u64);
        let mut writer = Writer::new(Arc::clone(&tier));
        let mut stored = HashMap::new();
        while !tier.log().exhausted() {
            let first = stored.len() as u32;
            stored.extend(write(&mut writer, &(first..first + 20).map(|object| (object, 0)).collect::<Vec<_>>()));
        }
        let number = |stored: &Stored| SegmentId::of(stored.extent).0;
        for object in 0..stored.len() as u32 {
            if number(&stored[&object]) % 4 == 1 && object % 2 == 0 {
                let gone = stored.remove(&object).unwrap();
                tier.free(gone.extent, gone.len);
            }
        }
        (tier, writer, stored)
    }

    /// Begins to clean a segment; returns its live objects when it has been read. From then on
    /// every write fails with ENOSPC.
    fn cleaned_without_space(writer: &mut Writer, stored: &HashMap<u32, Stored>) -> Vec<(ObjectId, Stored)> {
        writer.begin_cleaning();
        assert!(writer.cleaning());
        while writer.busy() {
            writer.wait(100);
            assert!(writer.reap().is_empty());
        }
        writer.engine = Engine::with_faults("write-enospc=1000");
        let (segment, objects) = writer.next_to_clean(usize::MAX).unwrap();
        let live = objects.into_iter().filter_map(|object| Some((object, *stored.get(&object.0)?)));
        live.filter(|(_, stored)| SegmentId::of(stored.extent) == segment).collect()
    }

    /// A device can read wrong once. What stays wrong is left where it is.
    #[test]
    fn cleaning_reads_a_damaged_segment_once_more() {
        for damages in [1, 2] {
            let (tier, mut writer, stored) = full_with_holes(16);
            let mut live = cleaned_without_space(&mut writer, &stored);
            writer.engine = Engine::new();
            for _ in 0..damages {
                let cleaning = writer.cleaning.as_mut().unwrap();
                Arc::get_mut(&mut cleaning.buffer).unwrap().bytes().fill(0);
                let (object, stored) = live.pop().unwrap();
                if !writer.append_again(object, stored) {
                    writer.clean_later([object].into_iter());
                    live.push((object, stored));
                }
                while writer.busy() {
                    assert_eq!(writer.next_to_clean(1), None, "not before it is read");
                    writer.wait(100);
                    assert!(writer.reap().is_empty());
                }
            }
            assert_eq!(tier.counters.errors.load(Relaxed), damages);
            assert_eq!(writer.cleaning.as_ref().unwrap().bad, damages == 2);
            if damages == 1 {
                assert!(live.iter().all(|(object, stored)| writer.append_again(*object, *stored)));
                assert_eq!(writer.cleaning.as_ref().unwrap().left, live.len());
            }
        }
    }

    #[test]
    fn cleaning_ends_when_the_device_cannot_grow() {
        let (tier, mut writer, stored) = full_with_holes(16);
        let live = cleaned_without_space(&mut writer, &stored);
        assert!(writer.append_again(live[0].0, live[0].1));
        writer.flush();
        while writer.busy() {
            writer.wait(100);
            for Written { items, error, .. } in writer.reap() {
                assert_eq!(error.unwrap().raw_os_error(), Some(libc::ENOSPC));
                items.iter().for_each(|item| tier.free(item.stored.extent, item.stored.len));
            }
        }
        assert!(!writer.append_again(live[1].0, live[1].1));
        writer.clean_later(live[1..].iter().map(|(object, _)| *object));
        assert!(!writer.cleaning(), "there is no segment for what is left");
        writer.begin_cleaning();
        assert!(!writer.cleaning());
        let mut reader = Reader::new(tier, 256 << 20);
        live.iter().for_each(|(object, stored)| assert_eq!(reader.fetch(*stored).unwrap(), contents(object.0, 0)));
    }

    /// Some objects are in the write that fails, the others still in the buffer.
    #[test]
    fn cleaning_ends_when_its_segment_is_lost_with_the_buffer() {
        let (tier, mut writer, stored) = full_with_holes(16);
        let live = cleaned_without_space(&mut writer, &stored);
        let sent = live.len() / 2;
        for (i, (object, stored)) in live.iter().enumerate() {
            if i == sent {
                writer.flush();
            }
            assert!(writer.append_again(*object, *stored));
        }
        let mut ended = Vec::new();
        while ended.is_empty() {
            writer.wait(100);
            ended = writer.reap();
        }
        assert_eq!(ended.iter().map(|written| written.items.len()).sum::<usize>(), live.len());
        ended.iter().flat_map(|written| &written.items).for_each(|i| tier.free(i.stored.extent, i.stored.len));
        assert_eq!(writer.next_to_clean(1), None);
        assert!(!writer.cleaning(), "nothing is on its way");
    }
}
