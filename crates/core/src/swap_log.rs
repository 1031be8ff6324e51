//! Space of the swap tier: a log of segments over one or several devices.
//!
//! Objects are appended to an open segment. A freed object leaves a hole; a segment without live
//! objects is used again. When the holes are larger than the live data, the segment with the fewest
//! live bytes is cleaned: its live objects are appended again, which frees it (Rosenblum and
//! Ousterhout 1992, section 3; the greedy choice, because objects here are as cold as their
//! neighbours). While a device can still grow, growing is cheaper.
//!
//! The module has no bytes and no I/O: the pager reports its writes.

use crate::ids::{Extent, ObjectId};
use alloc::{vec, vec::Vec};

/// Bytes of a segment.
pub const SEGMENT_BYTES: u32 = 256 << 10;
/// Bytes of the unit of an [`Extent`]: objects start at multiples of it.
pub const UNIT_BYTES: u32 = 64;
/// Bytes that the pager writes before each object: its authentication tag.
pub const HEAD_BYTES: u32 = 16;
/// Most segments over all devices: as many as an [`Extent`] can address, 256 GiB.
pub const SEGMENTS_MAX: u32 = (1u64 << 32 >> 12) as u32;
/// Segments that only cleaning may open: it must fill one before it frees another.
const FOR_CLEANING: u32 = 2;
/// Bytes of holes that are not cleaned while there is space.
const HOLES_ALLOWED: u64 = 32 << 20;
/// Live part above which cleaning a segment does not pay, percent. At 80 %, cleaning reads five
/// bytes and writes four to gain one.
const CLEAN_BELOW: u64 = 80;
/// The same when space is scarce: better slow than full.
const CLEAN_BELOW_SCARCE: u64 = 95;

/// A file or block device of the tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceId(pub u32);

/// A segment; numbers count over all devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SegmentId(pub u32);

impl SegmentId {
    /// The segment that holds an object.
    pub fn of(extent: Extent) -> SegmentId {
        SegmentId(extent.unit / (SEGMENT_BYTES / UNIT_BYTES))
    }

    /// The extent at this byte of the segment, a multiple of [`UNIT_BYTES`].
    pub fn extent(self, byte: u32) -> Extent {
        Extent { unit: self.0 * (SEGMENT_BYTES / UNIT_BYTES) + byte / UNIT_BYTES }
    }
}

/// Offset of an object in its segment, bytes.
pub fn byte_in_segment(extent: Extent) -> u32 {
    extent.unit % (SEGMENT_BYTES / UNIT_BYTES) * UNIT_BYTES
}

/// Bytes that an object of `len` bytes takes on a device: with its tag, in whole units.
pub fn stored_bytes(len: u32) -> u32 {
    (HEAD_BYTES + len).next_multiple_of(UNIT_BYTES)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Free,
    /// Being appended to.
    Open,
    Closed,
    /// Its live objects are being appended elsewhere.
    Cleaning,
    /// Never used again: its device failed, or an object in it could not be read.
    Retired,
}

#[derive(Debug)]
struct Segment {
    condition: Condition,
    /// Retire the segment when it is empty.
    bad: bool,
    /// Bytes of live objects.
    live: u32,
    /// Number of this use of the segment; unique.
    sequence: u64,
    /// Objects appended in this use, in order; some may have left since, so users must check their
    /// places.
    objects: Vec<ObjectId>,
    /// Units of the objects, from the start of the segment.
    units: Vec<u16>,
}

impl Segment {
    /// Bytes of the lists.
    fn listed(&self) -> u64 {
        (self.objects.capacity() * size_of::<ObjectId>() + self.units.capacity() * size_of::<u16>()) as u64
    }

    const FRESH: Segment = Segment {
        condition: Condition::Free,
        bad: false,
        live: 0,
        sequence: 0,
        objects: Vec::new(),
        units: Vec::new(),
    };
}

#[derive(Debug)]
struct Device {
    /// Number of its first segment.
    first: u32,
    /// Most segments.
    limit: u32,
    /// Segments that have been used so far.
    segments: Vec<Segment>,
    free: Vec<u32>,
    /// The device takes no more writes.
    broken: bool,
}

impl Device {
    /// Segments that can be opened.
    fn openable(&self) -> u32 {
        match self.broken {
            true => 0,
            false => self.limit - self.segments.len() as u32 + self.free.len() as u32,
        }
    }
}

/// Totals over all devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogUsage {
    /// Bytes of segments that are not free.
    pub used_bytes: u64,
    /// Bytes of live objects.
    pub live_bytes: u64,
    /// Bytes of segments that can still be opened.
    pub free_bytes: u64,
}

/// All space of the tier.
#[derive(Debug, Default)]
pub struct SwapLog {
    devices: Vec<Device>,
    sequence: u64,
    live_bytes: u64,
    used: u32,
    metadata: u64,
}

impl SwapLog {
    /// Without devices; takes nothing.
    pub fn new() -> SwapLog {
        SwapLog::default()
    }

    /// Adds a device, which is used when those before it are full. It holds the whole segments that
    /// fit into `bytes`. With `reserved`, its first segment is never written.
    pub fn add_device(&mut self, bytes: u64, reserved: bool) -> DeviceId {
        let first = self.devices.last().map_or(0, |last| last.first + last.limit);
        let limit = (bytes / u64::from(SEGMENT_BYTES)).min(u64::from(SEGMENTS_MAX - first)) as u32;
        let kept = Segment { condition: Condition::Retired, ..Segment::FRESH };
        let segments = if reserved && limit > 0 { vec![kept] } else { Vec::new() };
        self.devices.push(Device { first, limit, segments, free: Vec::new(), broken: false });
        DeviceId(self.devices.len() as u32 - 1)
    }

    fn device_of(&self, segment: SegmentId) -> usize {
        self.devices.iter().rposition(|d| d.first <= segment.0).expect("a device before the segment")
    }

    fn at(&self, segment: SegmentId) -> &Segment {
        let device = &self.devices[self.device_of(segment)];
        &device.segments[(segment.0 - device.first) as usize]
    }

    fn at_mut(&mut self, segment: SegmentId) -> &mut Segment {
        let device = self.device_of(segment);
        let device = &mut self.devices[device];
        &mut device.segments[(segment.0 - device.first) as usize]
    }

    /// The device of a segment, and the byte on it where the segment starts.
    pub fn place(&self, segment: SegmentId) -> (DeviceId, u64) {
        let device = self.device_of(segment);
        let number = segment.0 - self.devices[device].first;
        (DeviceId(device as u32), u64::from(number) * u64::from(SEGMENT_BYTES))
    }

    fn openable(&self) -> u32 {
        self.devices.iter().map(Device::openable).sum()
    }

    /// Opens a segment to append to. `None` if there is none, or only those for cleaning.
    pub fn open(&mut self, cleaning: bool) -> Option<SegmentId> {
        if !cleaning && self.exhausted() {
            return None;
        }
        let device = self.devices.iter_mut().find(|device| device.openable() > 0)?;
        let number = device.free.pop().unwrap_or_else(|| {
            device.segments.push(Segment::FRESH);
            device.first + device.segments.len() as u32 - 1
        });
        self.sequence += 1;
        self.used += 1;
        let sequence = self.sequence;
        let segment = self.at_mut(SegmentId(number));
        *segment = Segment { condition: Condition::Open, sequence, ..Segment::FRESH };
        Some(SegmentId(number))
    }

    /// An object was appended to an open segment; `bytes` includes tag and padding.
    pub fn append(&mut self, extent: Extent, object: ObjectId, bytes: u32) {
        let s = self.at_mut(SegmentId::of(extent));
        assert_eq!(s.condition, Condition::Open, "the segment takes objects");
        let unit = (byte_in_segment(extent) / UNIT_BYTES) as u16;
        assert!(s.units.last().is_none_or(|&last| last < unit), "objects are appended in order");
        s.live += bytes;
        assert!(s.live <= SEGMENT_BYTES, "a segment is longer than it can be");
        let before = s.listed();
        s.objects.push(object);
        s.units.push(unit);
        let grown = s.listed() - before;
        self.metadata += grown;
        self.live_bytes += u64::from(bytes);
    }

    /// The bytes at an extent belong to another object now.
    pub fn adopt(&mut self, extent: Extent, object: ObjectId) {
        let unit = (byte_in_segment(extent) / UNIT_BYTES) as u16;
        let s = self.at_mut(SegmentId::of(extent));
        let place = s.units.binary_search(&unit).expect("an object is there");
        s.objects[place] = object;
    }

    /// Closes a segment: nothing more is appended.
    pub fn close(&mut self, segment: SegmentId) {
        let s = self.at_mut(segment);
        assert_eq!(s.condition, Condition::Open, "segment {} is open", segment.0);
        s.condition = Condition::Closed;
        let before = s.listed();
        s.objects.shrink_to_fit();
        s.units.shrink_to_fit();
        let given = before - s.listed();
        self.metadata -= given;
        self.free_if_empty(segment);
    }

    /// An object is no longer needed there; `bytes` as given to [`SwapLog::append`].
    pub fn release(&mut self, extent: Extent, bytes: u32) {
        let id = SegmentId::of(extent);
        let s = self.at_mut(id);
        assert!(s.live >= bytes && s.condition != Condition::Free, "segment {} has no such object", id.0);
        s.live -= bytes;
        self.live_bytes -= u64::from(bytes);
        self.free_if_empty(id);
    }

    fn free_if_empty(&mut self, id: SegmentId) {
        let index = self.device_of(id);
        let device = &mut self.devices[index];
        let s = &mut device.segments[(id.0 - device.first) as usize];
        if s.live > 0 || !matches!(s.condition, Condition::Closed | Condition::Cleaning) {
            return;
        }
        let listed = s.listed();
        (s.objects, s.units) = (Vec::new(), Vec::new());
        s.condition = if s.bad || device.broken { Condition::Retired } else { Condition::Free };
        if s.condition == Condition::Free {
            device.free.push(id.0);
        }
        self.metadata -= listed;
        self.used -= 1;
    }

    /// Number of the segment's present use: bytes read in another use are stale.
    pub fn sequence(&self, segment: SegmentId) -> u64 {
        self.at(segment).sequence
    }

    /// Whether only cleaning may open a segment.
    pub fn exhausted(&self) -> bool {
        self.openable() <= FOR_CLEANING
    }

    /// Whether little unused space is left.
    pub fn scarce(&self) -> bool {
        self.openable() <= FOR_CLEANING + self.used / 16
    }

    /// Chooses the segment to clean, if cleaning pays and a segment can be opened for its live
    /// objects; returns it with the objects that were appended to it. It is not chosen again until
    /// [`SwapLog::cleaned`].
    pub fn victim(&mut self) -> Option<(SegmentId, Vec<ObjectId>)> {
        if self.openable() == 0 {
            return None;
        }
        let usage = self.usage();
        let holes = usage.used_bytes - usage.live_bytes;
        let scarce = self.scarce() && holes * 100 > usage.used_bytes * (100 - CLEAN_BELOW_SCARCE);
        let below = if scarce { CLEAN_BELOW_SCARCE } else { CLEAN_BELOW };
        if !scarce && holes <= usage.live_bytes + HOLES_ALLOWED {
            return None;
        }
        let closed = self.devices.iter_mut().flat_map(|device| {
            let first = device.first;
            let numbered = device.segments.iter_mut().enumerate().map(move |(i, s)| (first + i as u32, s));
            numbered.filter(|(_, s)| s.condition == Condition::Closed && !s.bad)
        });
        let (number, s) = closed.min_by_key(|(_, s)| s.live)?;
        if u64::from(s.live) * 100 > u64::from(SEGMENT_BYTES) * below {
            return None;
        }
        s.condition = Condition::Cleaning;
        Some((SegmentId(number), s.objects.clone()))
    }

    /// The cleaning has ended; objects that are still live stay. With `bad` the segment is not used
    /// again.
    pub fn cleaned(&mut self, segment: SegmentId, bad: bool) {
        let s = self.at_mut(segment);
        if s.condition == Condition::Cleaning {
            s.condition = Condition::Closed;
            s.bad |= bad;
            self.free_if_empty(segment);
        }
    }

    /// Writes to this segment failed: it is retired once it is empty.
    pub fn spoilt(&mut self, segment: SegmentId) {
        self.at_mut(segment).bad = true;
    }

    /// The device cannot grow further.
    pub fn full(&mut self, device: DeviceId) {
        let device = &mut self.devices[device.0 as usize];
        device.limit = device.segments.len() as u32;
    }

    /// The device takes no more writes.
    pub fn broken(&mut self, device: DeviceId) {
        self.devices[device.0 as usize].broken = true;
    }

    /// Whether any device takes writes.
    pub fn usable(&self) -> bool {
        self.devices.iter().any(|device| !device.broken)
    }

    /// Totals over all devices.
    pub fn usage(&self) -> LogUsage {
        let bytes = |segments: u32| u64::from(segments) * u64::from(SEGMENT_BYTES);
        LogUsage {
            used_bytes: bytes(self.used),
            live_bytes: self.live_bytes,
            free_bytes: bytes(self.openable().saturating_sub(FOR_CLEANING)),
        }
    }

    /// Bytes of the log's own tables.
    pub fn metadata_bytes(&self) -> u64 {
        let segments: usize = self.devices.iter().map(|device| device.segments.capacity()).sum();
        self.metadata + (segments * size_of::<Segment>()) as u64
    }

    /// Asserts all invariants; O(segments).
    pub fn check(&self) {
        let segments = || self.devices.iter().flat_map(|device| &device.segments);
        let in_use = |s: &&Segment| !matches!(s.condition, Condition::Free | Condition::Retired);
        assert_eq!(segments().filter(in_use).count() as u32, self.used, "segments in use");
        assert_eq!(segments().map(|s| u64::from(s.live)).sum::<u64>(), self.live_bytes, "live bytes");
        assert_eq!(segments().map(Segment::listed).sum::<u64>(), self.metadata, "bytes of the lists");
        assert!(segments().all(|s| in_use(&s) || (s.live == 0 && s.objects.is_empty())));
        for device in &self.devices {
            assert!(device.segments.len() as u32 <= device.limit);
            let free = device.segments.iter().filter(|s| s.condition == Condition::Free).count();
            assert_eq!(free, device.free.len(), "free segments");
            for &number in &device.free {
                assert_eq!(device.segments[(number - device.first) as usize].condition, Condition::Free);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = SEGMENT_BYTES as u64;

    /// Fills a segment with `objects` objects of 4 KiB.
    fn filled(log: &mut SwapLog, objects: u32) -> Option<SegmentId> {
        let segment = log.open(false)?;
        (0..objects).for_each(|i| log.append(segment.extent(i * 4096), ObjectId(i), 4096));
        log.close(segment);
        log.check();
        Some(segment)
    }

    #[test]
    fn an_empty_segment_is_used_again_in_a_new_sequence() {
        let mut log = SwapLog::new();
        log.add_device(4 * SEGMENT, false);
        let first = filled(&mut log, 2).unwrap();
        let before = log.sequence(first);
        log.release(first.extent(0), 4096);
        assert_eq!(log.usage().used_bytes, SEGMENT);
        log.release(first.extent(4096), 4096);
        log.check();
        assert_eq!(log.usage(), LogUsage { used_bytes: 0, live_bytes: 0, free_bytes: 2 * SEGMENT });
        assert_eq!(filled(&mut log, 1), Some(first));
        assert!(log.sequence(first) > before);
        assert!(filled(&mut log, 1).is_some());
        assert_eq!(log.open(false), None, "the rest is for cleaning");
        assert!(log.open(true).is_some());
    }

    #[test]
    fn devices_follow_one_another_and_an_extent_names_its_own() {
        let mut log = SwapLog::new();
        let (a, b) = (log.add_device(2 * SEGMENT, true), log.add_device(9 * SEGMENT, false));
        let first = filled(&mut log, 1).unwrap();
        assert_eq!(log.place(first), (a, SEGMENT), "the first segment of the first device is not ours");
        let second = filled(&mut log, 1).unwrap();
        assert_eq!(log.place(second), (b, 0));
        let extent = second.extent(8192);
        assert_eq!((SegmentId::of(extent), byte_in_segment(extent)), (second, 8192));
        log.broken(b);
        assert_eq!(log.open(true), None);
        assert!(log.usable());
        log.release(second.extent(0), 4096);
        log.release(first.extent(0), 4096);
        log.check();
        assert_eq!(log.open(true), Some(first), "what a broken device gets back is not used again");
    }

    #[test]
    fn cleaning_asks_for_those_that_objects_belong_to_now() {
        let mut log = SwapLog::new();
        log.add_device(20 * SEGMENT, false);
        let segments: Vec<SegmentId> = std::iter::from_fn(|| filled(&mut log, 64)).collect();
        (0..60).for_each(|o| log.release(segments[2].extent(o * 4096), 4096));
        log.adopt(segments[2].extent(61 * 4096), ObjectId(777));
        let (victim, objects) = log.victim().unwrap();
        assert_eq!((victim, objects[61], objects.len()), (segments[2], ObjectId(777), 64));
    }

    #[test]
    fn a_full_device_takes_what_it_has_already() {
        let mut log = SwapLog::new();
        let device = log.add_device(100 * SEGMENT, false);
        let segments: Vec<SegmentId> = (0..6).map(|_| filled(&mut log, 1).unwrap()).collect();
        log.full(device);
        assert_eq!(log.open(true), None);
        segments.iter().for_each(|s| log.release(s.extent(0), 4096));
        assert_eq!(log.usage().free_bytes, 4 * SEGMENT);
    }

    #[test]
    fn nothing_is_cleaned_while_no_segment_can_be_opened() {
        let mut log = SwapLog::new();
        let device = log.add_device(100 * SEGMENT, false);
        let segments: Vec<SegmentId> = (0..6).map(|_| filled(&mut log, 64).unwrap()).collect();
        log.full(device);
        for segment in &segments {
            (0..32).for_each(|o| log.release(segment.extent(o * 4096), 4096));
        }
        assert_eq!(log.victim(), None, "its live objects could go nowhere");
        (32..64).for_each(|o| log.release(segments[5].extent(o * 4096), 4096));
        let (victim, _) = log.victim().unwrap();
        assert_eq!(log.open(true), Some(segments[5]));
        assert_ne!(victim, segments[5]);
    }

    #[test]
    fn cleans_the_emptiest_segment_when_holes_are_most_of_it() {
        let mut log = SwapLog::new();
        log.add_device(1 << 40, false);
        let segments: Vec<SegmentId> = (0..300).map(|_| filled(&mut log, 64).unwrap()).collect();
        assert_eq!(log.victim(), None, "no holes");
        for (i, segment) in segments.iter().enumerate() {
            (0..if i == 7 { 60 } else { 30 }).for_each(|o| log.release(segment.extent(o * 4096), 4096));
        }
        assert_eq!(log.victim(), None, "the device can grow");
        for segment in &segments[50..] {
            (30..50).for_each(|o| log.release(segment.extent(o * 4096), 4096));
        }
        let (victim, objects) = log.victim().unwrap();
        assert_eq!((victim, objects.len()), (segments[7], 64));
        (60..64).for_each(|o| log.release(victim.extent(o * 4096), 4096));
        log.cleaned(victim, false);
        log.check();
        assert_eq!(filled(&mut log, 1), Some(victim), "it is free, although it was being cleaned");
    }

    #[test]
    fn cleans_what_pays_when_space_is_scarce_and_retires_what_is_bad() {
        let mut log = SwapLog::new();
        log.add_device(20 * SEGMENT, false);
        let segments: Vec<SegmentId> = std::iter::from_fn(|| filled(&mut log, 64)).collect();
        assert_eq!(segments.len(), 18);
        (0..8).for_each(|o| log.release(segments[3].extent(o * 4096), 4096));
        assert_eq!(log.victim(), None, "nearly all is live");
        for segment in &segments {
            (8..32).for_each(|o| log.release(segment.extent(o * 4096), 4096));
        }
        let (victim, _) = log.victim().unwrap();
        assert_eq!(victim, segments[3]);
        log.cleaned(victim, true);
        (32..64).for_each(|o| log.release(victim.extent(o * 4096), 4096));
        log.check();
        assert_ne!(log.open(true), Some(victim));
        assert_ne!(log.victim().map(|(s, _)| s), Some(victim));
    }
}
