//! Space of the swap tier in fixed blocks of 4 KiB, and what is needed to open one.
//!
//! The core chooses which block is written ([`memfit_core::blocks`]). All 4096 bytes of a block
//! belong to its objects, so this table has the tag and the number of the write that sealed the
//! block: 24 bytes for each block of a segment that was ever written to. Once a raw slot of the
//! segment was read, each has 16 bytes more for a hash.
//!
//! A write gets its number before it begins, and no number is used twice. So the number serves as
//! the nonce and as a time. Bytes that were read when the last number was `n` are current if the
//! number of their block is not above `n` and no write of the block was under way.
//!
//! The tag proves that these bytes were the last ones written there, not that an object begins at a
//! given byte. So the table notes what a block holds as well: one uncompressed page, or objects
//! listed in the padding. Where they leave no room for a list, only the borders of the block are
//! checked.

use super::cipher::{Cipher, Label, TAG_BYTES};
use super::copies::Hash;
use super::SEGMENT;
use crate::locks::{rank, Held, Lock};
use memfit_core::blocks::{block_of, byte_in_block, BLOCKS_MAX, BLOCK_BYTES, BLOCK_UNIT_BYTES};
use memfit_core::swap_log::{SegmentId, SEGMENT_BYTES};
use memfit_core::Stored;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Blocks of a segment. No read or write crosses its border.
pub const IN_SEGMENT: u32 = SEGMENT_BYTES / BLOCK_BYTES;
/// Bytes of a block.
pub const BLOCK: usize = BLOCK_BYTES as usize;
/// Bytes of an object in the list of a block.
const ENTRY: usize = size_of::<u32>();

/// What a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// Objects that are not listed.
    Unlisted,
    /// This number of objects, listed in the block's last bytes.
    Listed(u16),
    /// One uncompressed page.
    Page,
}

/// What opens a block. The number of its last write takes 48 bits, 0 if there was none; what it
/// holds takes the rest.
#[derive(Clone, Copy)]
struct Seal {
    tag: [u8; TAG_BYTES],
    number: [u16; 3],
    holds: u16,
}

const _: () = assert!(size_of::<Seal>() == 24);
const PAGE: u16 = u16::MAX;

impl Seal {
    const NONE: Seal = Seal { tag: [0; TAG_BYTES], number: [0; 3], holds: 0 };

    fn new(number: u64, holds: Holds, tag: [u8; TAG_BYTES]) -> Seal {
        assert!(number < 1 << 48, "more was written than a device can take");
        let holds = match holds {
            Holds::Unlisted => 0,
            Holds::Listed(objects) => objects,
            Holds::Page => PAGE,
        };
        Seal { tag, number: [0, 16, 32].map(|shift| (number >> shift) as u16), holds }
    }

    fn number(&self) -> u64 {
        self.number.iter().rev().fold(0, |sum, &part| sum << 16 | u64::from(part))
    }

    fn holds(&self) -> Holds {
        match self.holds {
            0 => Holds::Unlisted,
            PAGE => Holds::Page,
            objects => Holds::Listed(objects),
        }
    }
}

/// The blocks of a segment. The masks have a bit for each.
struct Segment {
    seals: [Seal; IN_SEGMENT as usize],
    /// Hashes of the pages that were read from blocks since these were last written; none until the
    /// first read of a raw slot.
    read: Option<Box<[Option<Hash>; IN_SEGMENT as usize]>>,
    /// Blocks whose last write succeeded: the device has space for them.
    arrived: u64,
    /// Blocks with a write under way.
    under_way: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Good,
    /// Takes only blocks that it has space for already.
    Full,
    /// Takes no writes any more.
    Broken,
}

struct Device {
    /// Number of its first segment, and how many it has.
    first: u32,
    segments: u32,
    /// The first segment must stay as it is.
    reserved: bool,
}

impl Device {
    fn blocks(&self) -> Range<u32> {
        let end = self.first + self.segments;
        (self.first + u32::from(self.reserved)).min(end) * IN_SEGMENT..end * IN_SEGMENT
    }
}

#[derive(Default)]
struct State {
    /// The last write number used.
    number: u64,
    /// By device.
    conditions: Vec<Condition>,
    segments: Vec<Option<Box<Segment>>>,
    /// How many segments are allocated.
    made: usize,
    /// How many of them have hashes.
    hashed: usize,
}

/// Place of a block in the tables: its segment, its index there, its bit in the masks.
fn place(block: u32) -> (usize, usize, u64) {
    let (segment, i) = (block / IN_SEGMENT, block % IN_SEGMENT);
    (segment as usize, i as usize, 1 << i)
}

impl State {
    fn segment(&self, number: usize) -> Option<&Segment> {
        self.segments.get(number)?.as_deref()
    }

    fn segment_mut(&mut self, number: usize) -> &mut Segment {
        if self.segments.len() <= number {
            self.segments.resize_with(number + 1, || None);
        }
        let made = &mut self.made;
        self.segments[number].get_or_insert_with(|| {
            *made += 1;
            Box::new(Segment { seals: [Seal::NONE; IN_SEGMENT as usize], read: None, arrived: 0, under_way: 0 })
        })
    }

    fn has_space(&self, block: u32) -> bool {
        let (segment, _, bit) = place(block);
        self.segment(segment).is_some_and(|s| s.arrived & bit != 0)
    }

    /// Those of these blocks for which their device has space, as runs.
    fn with_space(&self, blocks: Range<u32>) -> Vec<Range<u32>> {
        let mut out: Vec<Range<u32>> = Vec::new();
        for block in blocks.filter(|&block| self.has_space(block)) {
            match out.last_mut().filter(|last| last.end == block) {
                Some(last) => last.end += 1,
                None => out.push(block..block + 1),
            }
        }
        out
    }

    fn usable(&self, devices: &[Device]) -> Vec<Range<u32>> {
        let of = |(device, condition): (&Device, &Condition)| match condition {
            Condition::Good => vec![device.blocks()],
            Condition::Full => self.with_space(device.blocks()),
            Condition::Broken => Vec::new(),
        };
        devices.iter().zip(&self.conditions).flat_map(of).filter(|blocks| !blocks.is_empty()).collect()
    }
}

/// The blocks of all devices.
#[derive(Default)]
pub struct Blocks {
    devices: Vec<Device>,
    state: Lock<State, { rank::BLOCKS }>,
    /// Blocks that hold objects, as the core counts.
    in_use: AtomicU64,
    /// Blocks that objects can get, as the core counts.
    free: AtomicU64,
    /// Blocks that can be used.
    total: AtomicU64,
}

impl Blocks {
    fn state(&self) -> Held<'_, State> {
        self.state.lock()
    }

    /// Adds a device with the whole segments in `bytes`. The first of them stays as it is if
    /// `reserved`.
    pub fn add_device(&mut self, bytes: u64, reserved: bool) {
        let first = self.devices.last().map_or(0, |last| last.first + last.segments);
        let most = BLOCKS_MAX / IN_SEGMENT - first;
        let segments = (bytes / u64::from(SEGMENT_BYTES)).min(u64::from(most)) as u32;
        let device = Device { first, segments, reserved };
        self.total.fetch_add(device.blocks().len() as u64, Relaxed);
        self.free.fetch_add(device.blocks().len() as u64, Relaxed);
        self.devices.push(device);
        self.state().conditions.push(Condition::Good);
    }

    fn device_of(&self, segment: u32) -> usize {
        self.devices.iter().rposition(|d| d.first <= segment).expect("a device before the segment")
    }

    /// The device of a segment, and the byte on it where the segment starts.
    pub fn place(&self, segment: SegmentId) -> (usize, u64) {
        let device = self.device_of(segment.0);
        (device, u64::from(segment.0 - self.devices[device].first) * u64::from(SEGMENT_BYTES))
    }

    /// Blocks that can be written now.
    pub fn usable(&self) -> Vec<Range<u32>> {
        self.state().usable(&self.devices)
    }

    /// How many blocks can be used.
    pub fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// Blocks that hold objects.
    pub fn in_use(&self) -> u64 {
        self.in_use.load(Relaxed)
    }

    /// Blocks that objects can get. Not what is unused: a block on a broken device can hold an
    /// object, and others there can be had no more.
    pub fn free(&self) -> u64 {
        self.free.load(Relaxed).min(self.total())
    }

    /// Notes how many blocks hold objects and how many can be had, as the core counts.
    pub fn set_in_use(&self, blocks: u64, free: u64) {
        self.in_use.store(blocks, Relaxed);
        self.free.store(free, Relaxed);
    }

    /// Why the block cannot be written.
    pub fn refuses(&self, block: u32) -> Option<io::Error> {
        let device = self.device_of(block / IN_SEGMENT);
        let state = self.state();
        match state.conditions[device] {
            Condition::Broken => Some(io::Error::from_raw_os_error(libc::EIO)),
            Condition::Full if !state.has_space(block) => Some(io::Error::from_raw_os_error(libc::ENOSPC)),
            _ => None,
        }
    }

    /// Encrypts a block for a write that begins now. `out` begins with `used` bytes of these
    /// objects; the rest is zero. What was read of the block before is out of date from here on.
    ///
    /// If a write of the block is under way: nobody could say which of the two lands last.
    pub fn seal(
        &self,
        cipher: &Cipher,
        block: u32,
        objects: impl ExactSizeIterator<Item = Stored>,
        used: usize,
        out: &mut [u8],
    ) {
        let (segment, i, bit) = place(block);
        let mut state = self.state();
        state.number += 1;
        let number = state.number;
        let s = state.segment_mut(segment);
        assert!(s.under_way & bit == 0, "block {block} is written twice at once");
        s.under_way |= bit;
        s.read.iter_mut().for_each(|read| read[i] = None);
        drop(state);
        let holds = list(block, objects, used, out);
        let tag = cipher.seal(label(block, number), out);
        self.state().segment_mut(segment).seals[i] = Seal::new(number, holds, tag);
    }

    /// Decrypts the block in `bytes` into `out`, which is as long. Returns where its object is.
    pub fn open(&self, cipher: &Cipher, stored: Stored, bytes: &[u8], out: &mut [u8]) -> Option<Range<usize>> {
        let (block, start) = (block_of(stored.extent), byte_in_block(stored.extent) as usize);
        let (segment, i, _) = place(block);
        let seal = self.state().segment(segment)?.seals[i];
        let object = start..start + usize::from(stored.len);
        let page = stored == Stored { extent: memfit_core::blocks::extent(block, 0), len: BLOCK as u16, codec: 0 };
        if seal.number() == 0 || object.end > BLOCK || page != (seal.holds() == Holds::Page) {
            return None;
        }
        let out = &mut out[..BLOCK];
        out.copy_from_slice(bytes);
        if !cipher.open(label(block, seal.number()), seal.tag, out) {
            return None;
        }
        if let Holds::Listed(count) = seal.holds() {
            let list = out[BLOCK - usize::from(count) * ENTRY..].chunks_exact(ENTRY);
            if !list.into_iter().any(|listed| listed == entry(stored)) {
                return None;
            }
        }
        Some(object)
    }

    /// A write of these blocks of a segment has ended.
    pub fn ended(&self, blocks: Range<u32>, error: Option<&io::Error>) {
        let (segment, i, _) = place(blocks.start);
        let mask = u64::MAX >> (IN_SEGMENT as usize - blocks.len()) << i;
        let mut state = self.state();
        let s = state.segment_mut(segment);
        s.under_way &= !mask;
        match error {
            None => s.arrived |= mask,
            Some(_) => s.arrived &= !mask,
        }
        let condition = &mut state.conditions[self.device_of(segment as u32)];
        match error.map(io::Error::raw_os_error) {
            None => {}
            Some(Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG)) if *condition == Condition::Good => {
                *condition = Condition::Full;
            }
            Some(Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG)) => {}
            Some(_) => *condition = Condition::Broken,
        }
        if *condition != Condition::Good {
            let total = state.usable(&self.devices).iter().map(|blocks| blocks.len() as u64).sum();
            self.total.store(total, Relaxed);
        }
    }

    /// A page with this hash was read from a block, which still holds it.
    pub fn was_read(&self, block: u32, hash: Hash) {
        let (segment, i, bit) = place(block);
        let mut state = self.state();
        let segment = state.segment_mut(segment);
        if segment.under_way & bit == 0 {
            let first = segment.read.is_none();
            segment.read.get_or_insert_with(|| Box::new([None; IN_SEGMENT as usize]))[i] = Some(hash);
            state.hashed += usize::from(first);
        }
    }

    /// The hash of the page that was last read from a block, if the block was not written since.
    pub fn last_read(&self, block: u32) -> Option<Hash> {
        let (segment, i, _) = place(block);
        self.state().segment(segment)?.read.as_ref()?[i]
    }

    /// The number of the last write of a block.
    pub fn number(&self, block: u32) -> u64 {
        let (segment, i, _) = place(block);
        self.state().segment(segment).map_or(0, |s| s.seals[i].number())
    }

    /// The time of a read of these bytes of a segment that begins now. It does not show the blocks
    /// whose number is higher when they are fetched. With a write under way there, it shows none
    /// (0).
    pub fn time(&self, segment: SegmentId, bytes: Range<usize>) -> u64 {
        debug_assert!(bytes.end <= SEGMENT && !bytes.is_empty());
        let (first, end) = (bytes.start / BLOCK, bytes.end.div_ceil(BLOCK));
        let mask = u64::MAX >> (IN_SEGMENT as usize - (end - first)) << first;
        let state = self.state();
        let torn = state.segment(segment.0 as usize).is_some_and(|s| s.under_way & mask != 0);
        if torn {
            0
        } else {
            state.number
        }
    }

    /// Bytes of the tables.
    pub fn metadata_bytes(&self) -> u64 {
        let state = self.state();
        let hashes = state.hashed * size_of::<[Option<Hash>; IN_SEGMENT as usize]>();
        (state.segments.capacity() * size_of::<usize>() + state.made * size_of::<Segment>() + hashes) as u64
    }
}

fn label(block: u32, number: u64) -> Label {
    Label { sequence: number, unit: memfit_core::blocks::extent(block, 0).unit, codec: 0 }
}

/// The list entry of an object.
fn entry(stored: Stored) -> [u8; ENTRY] {
    let unit = byte_in_block(stored.extent) / BLOCK_UNIT_BYTES;
    (unit << 21 | u32::from(stored.len) << 8 | u32::from(stored.codec)).to_le_bytes()
}

/// Lists the objects of a block in its padding if there is room. Returns what the block holds.
fn list(block: u32, objects: impl ExactSizeIterator<Item = Stored>, used: usize, out: &mut [u8]) -> Holds {
    let count = objects.len();
    let start = BLOCK.saturating_sub(count * ENTRY);
    let fits = used <= start && count < usize::from(PAGE);
    let mut holds = if fits && count > 0 { Holds::Listed(count as u16) } else { Holds::Unlisted };
    for (i, stored) in objects.enumerate() {
        let end = byte_in_block(stored.extent) as usize + usize::from(stored.len);
        assert!(block_of(stored.extent) == block && end <= used, "an object is not in block {block}");
        if fits {
            out[start + i * ENTRY..][..ENTRY].copy_from_slice(&entry(stored));
        } else if usize::from(stored.len) == BLOCK && stored.codec == 0 {
            holds = Holds::Page;
        }
    }
    holds
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn two_devices() -> Blocks {
        let mut blocks = Blocks::default();
        blocks.add_device(MIB, true);
        blocks.add_device(MIB + 5000, false);
        blocks
    }

    fn begun(blocks: &Blocks, block: u32) {
        blocks.seal(&Cipher::new().unwrap(), block, std::iter::empty(), 0, &mut [0; BLOCK]);
    }

    #[test]
    fn a_seal_takes_24_bytes_and_keeps_what_it_was_made_of() {
        for (number, holds) in [
            (1, Holds::Unlisted),
            (0xffff, Holds::Listed(1)),
            (0x1_0000_0000, Holds::Listed(512)),
            ((1 << 48) - 1, Holds::Page),
        ] {
            let seal = Seal::new(number, holds, [7; TAG_BYTES]);
            assert_eq!((seal.number(), seal.holds()), (number, holds));
        }
        assert_eq!(Seal::NONE.number(), 0);
    }

    #[test]
    fn blocks_are_numbered_through_the_devices_in_whole_segments() {
        let blocks = two_devices();
        // The first segment of the first device is reserved; what follows the last whole segment of
        // a device is not used.
        assert_eq!(blocks.usable(), [64..256, 256..512]);
        assert_eq!(blocks.total(), 192 + 256);
        assert_eq!(blocks.place(SegmentId(3)), (0, 3 * SEGMENT as u64));
        assert_eq!(blocks.place(SegmentId(5)), (1, SEGMENT as u64));
        let mut large = Blocks::default();
        large.add_device(16 << 30, false);
        large.add_device(1 << 40, false);
        large.add_device(1 << 40, true);
        assert_eq!(large.usable(), [0..BLOCKS_MAX / 2, BLOCKS_MAX / 2..BLOCKS_MAX], "no more than an extent can name");
        let mut small = Blocks::default();
        small.add_device(SEGMENT as u64, true);
        assert_eq!(small.usable(), []);
    }

    #[test]
    fn a_full_device_takes_what_arrived_there_and_a_broken_one_nothing() {
        let blocks = two_devices();
        let written = [64..66, 70..71, 128..192, 300..301];
        for run in &written {
            run.clone().for_each(|block| begun(&blocks, block));
            blocks.ended(run.clone(), None);
        }
        begun(&blocks, 71);
        assert!(blocks.refuses(71).is_none());
        blocks.ended(71..72, Some(&io::Error::from_raw_os_error(libc::ENOSPC)));
        assert_eq!(blocks.usable(), [64..66, 70..71, 128..192, 256..512]);
        assert_eq!(blocks.total(), 2 + 1 + 64 + 256);
        assert_eq!(blocks.refuses(71).unwrap().raw_os_error(), Some(libc::ENOSPC));
        assert!(blocks.refuses(70).is_none() && blocks.refuses(511).is_none());
        begun(&blocks, 191);
        blocks.ended(191..192, Some(&io::Error::from_raw_os_error(libc::EDQUOT)));
        assert_eq!(blocks.usable()[2], 128..191, "what did not arrive may have lost its space");
        begun(&blocks, 300);
        blocks.ended(300..301, Some(&io::Error::from_raw_os_error(libc::EIO)));
        assert_eq!((blocks.usable().len(), blocks.total()), (3, 66));
        assert_eq!(blocks.refuses(300).unwrap().raw_os_error(), Some(libc::EIO));
        begun(&blocks, 64);
        blocks.ended(64..65, Some(&io::ErrorKind::UnexpectedEof.into()));
        assert_eq!((blocks.usable(), blocks.total()), (vec![], 0));
        begun(&blocks, 64);
        blocks.ended(64..65, Some(&io::Error::from_raw_os_error(libc::ENOSPC)));
        assert_eq!(blocks.usable(), [], "broken it stays");
    }

    #[test]
    fn a_read_is_of_the_time_when_it_began_and_of_none_while_a_write_is_under_way() {
        let blocks = two_devices();
        let time = |block: usize| blocks.time(SegmentId(1), block * BLOCK..(block + 1) * BLOCK);
        begun(&blocks, 64);
        assert_eq!(time(0), 0, "the bytes could be of before or after");
        assert_eq!(blocks.time(SegmentId(1), 0..SEGMENT), 0);
        assert_eq!(time(1), 1, "a neighbour does not mind");
        assert_eq!(blocks.time(SegmentId(1), BLOCK..SEGMENT), 1);
        blocks.ended(64..65, None);
        let before = time(0);
        assert!(blocks.number(64) <= before);
        begun(&blocks, 65);
        assert!(blocks.number(64) <= before && blocks.number(65) > before);
        assert_eq!(blocks.time(SegmentId(1), 0..SEGMENT), 0);
        assert_eq!((blocks.number(66), blocks.number(4000)), (0, 0));
    }

    #[test]
    #[should_panic(expected = "written twice at once")]
    fn a_block_is_not_written_twice_at_once() {
        let blocks = two_devices();
        begun(&blocks, 64);
        begun(&blocks, 64);
    }

    #[test]
    fn tables_grow_with_what_is_written() {
        let mut blocks = Blocks::default();
        blocks.add_device(32 << 30, false);
        assert_eq!(blocks.metadata_bytes(), 0);
        (0..200).for_each(|block| begun(&blocks, block));
        let bytes = blocks.metadata_bytes();
        assert!((4 * 64 * 24..4 * 64 * 25).contains(&bytes), "{bytes} for four segments");
        let hash = crate::swap::Hasher::new().unwrap().hash(&[1; BLOCK]);
        (0..200).for_each(|block| blocks.ended(block..block + 1, None));
        (0..3).for_each(|block| blocks.was_read(block, hash));
        assert_eq!(blocks.metadata_bytes(), bytes + 64 * 16, "hashes for one of them");
    }
}
