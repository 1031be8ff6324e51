//! Writes blocks of the swap tier. Used by the reclaim thread.
//!
//! The core chooses the blocks. Adjacent blocks that are added one after the other go out in one
//! write, the others each in their own; all begin together. An object's memory stays in use until
//! its block is on the device.

use super::blocks::{Blocks, BLOCK, IN_SEGMENT};
use super::engine::{Engine, Progress, Transfer};
use super::writer::{Item, Written};
use super::{Aligned, SwapTier, SEGMENT};
use memfit_core::swap_log::SegmentId;
use memfit_os::transfer::Request;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Instant;

/// Most writes under way at once.
const WRITES: usize = 32;
/// Memory for blocks that are collected or under way, bytes.
const BYTES: usize = 1 << 20;
/// A run of this length is written from the buffer that collected it, bytes. A shorter one is
/// copied into a buffer of its length: that is cheaper than to keep the large one for as long as
/// the device takes.
const LONG: usize = SEGMENT / 2;

/// Adjacent blocks of a segment, being collected.
struct Run {
    blocks: Range<u32>,
    items: Vec<Item>,
}

struct Flight {
    transfer: Transfer,
    run: Run,
}

/// Writes of one thread.
pub struct BlockWriter {
    tier: Arc<SwapTier>,
    engine: Engine,
    run: Option<Run>,
    /// Collects the run.
    buffer: Option<Aligned>,
    flights: Vec<Flight>,
    /// Memory of the flights, bytes.
    held: usize,
    next_token: u64,
    ended: Vec<Written>,
    /// Since when writes are under way.
    busy_since: Instant,
}

impl BlockWriter {
    /// A writer without collected blocks.
    ///
    /// # Panics
    /// If the tier is a log.
    pub fn new(tier: Arc<SwapTier>) -> BlockWriter {
        blocks(&tier);
        BlockWriter {
            tier,
            engine: Engine::new(),
            run: None,
            buffer: None,
            flights: Vec::new(),
            held: 0,
            next_token: 0,
            ended: Vec::new(),
            busy_since: Instant::now(),
        }
    }

    /// Whether any block can be added now. If not, one can when a write has ended.
    pub fn ready(&self) -> bool {
        // The block may end the collected run, and begin another.
        let (run, bytes) = self.run.as_ref().map_or((0, 0), |run| (1, buffer_bytes(run)));
        self.flights.len() + run < WRITES && self.held + bytes + SEGMENT <= BYTES
    }

    /// Adds a block: its bytes, at most a page, and the objects in them. If the device refuses the
    /// block, its items come back at the next [`BlockWriter::reap`].
    ///
    /// # Panics
    /// If it was not [`BlockWriter::ready`], if a write of the block is under way, or an object is
    /// not within the bytes.
    pub fn add(&mut self, block: u32, bytes: &[u8], items: Vec<Item>) {
        assert!(self.ready(), "there is room");
        let objects = items.iter().map(|item| u64::from(item.stored.len)).sum();
        let refused = blocks(&self.tier).refuses(block);
        if refused.is_some() {
            self.ended.push(Written { items, error: refused, device: None });
            return;
        }
        if self.run.as_ref().is_some_and(|run| block != run.blocks.end || block % IN_SEGMENT == 0) {
            self.begin();
        }
        let run = self.run.get_or_insert_with(|| Run { blocks: block..block, items: Vec::new() });
        let start = run.blocks.len() * BLOCK;
        let buffer = self.buffer.get_or_insert_with(|| Aligned::new(SEGMENT));
        let out = &mut buffer.bytes()[start..start + BLOCK];
        out[..bytes.len()].copy_from_slice(bytes);
        out[bytes.len()..].fill(0);
        let stored = items.iter().map(|item| item.stored);
        blocks(&self.tier).seal(&self.tier.cipher, block, stored, bytes.len(), out);
        run.blocks.end += 1;
        run.items.extend(items);
        self.tier.counters.object_bytes.fetch_add(objects, Relaxed);
    }

    /// Begins to write what has been collected.
    pub fn flush(&mut self) {
        self.begin();
        self.engine.start();
    }

    /// Ends the collected run: its write begins at the next [`Engine::start`].
    fn begin(&mut self) {
        let Some(run) = self.run.take() else { return };
        let len = run.blocks.len() * BLOCK;
        let mut collected = self.buffer.take().expect("the run is in it");
        let buffer = if buffer_bytes(&run) == SEGMENT {
            collected
        } else {
            let mut own = Aligned::new(len);
            own.bytes().copy_from_slice(&collected.bytes()[..len]);
            self.buffer = Some(collected);
            own
        };
        let segment = SegmentId(run.blocks.start / IN_SEGMENT);
        if let Some((fd, range)) = self.tier.to_allocate(segment) {
            self.engine.allocate(fd, range);
        }
        let (fd, offset) = self.tier.place(segment);
        let offset = offset + u64::from(run.blocks.start % IN_SEGMENT) * BLOCK as u64;
        self.held += buffer.len();
        let request = Request { token: self.next_token, write: true, fd, offset, buffer: Arc::new(buffer), at: 0, len };
        self.next_token += 1;
        if self.flights.is_empty() {
            self.busy_since = Instant::now();
        }
        let transfer = Transfer::begin(&mut self.engine, request, &self.tier.counters);
        self.flights.push(Flight { transfer, run });
    }

    /// The writes that have ended since the last call.
    pub fn reap(&mut self) -> Vec<Written> {
        while let Some((token, result)) = self.engine.completed() {
            let Some(i) = self.flights.iter().position(|f| f.transfer.token() == token) else { continue };
            match self.flights[i].transfer.answered(&mut self.engine, result, &self.tier.counters) {
                Progress::More => {}
                Progress::Done => self.landed(i, None),
                Progress::Failed(error) => self.landed(i, Some(error)),
            }
        }
        self.engine.start();
        std::mem::take(&mut self.ended)
    }

    fn landed(&mut self, flight: usize, error: Option<io::Error>) {
        let Flight { run, transfer } = self.flights.swap_remove(flight);
        // A device that is never idle would not count otherwise.
        let busy = std::mem::replace(&mut self.busy_since, Instant::now()).elapsed();
        let bytes = if error.is_none() { run.blocks.len() * BLOCK } else { 0 };
        self.tier.counters.wrote(bytes as u64, busy);
        let buffer = transfer.into_buffer();
        self.held -= buffer.len();
        if self.buffer.is_none() && buffer.len() == SEGMENT {
            self.buffer = Arc::into_inner(buffer);
        }
        let (device, _) = blocks(&self.tier).place(SegmentId(run.blocks.start / IN_SEGMENT));
        blocks(&self.tier).ended(run.blocks, error.as_ref());
        self.ended.push(Written { items: run.items, error, device: Some(device) });
    }

    /// Whether any block can still be written.
    pub fn usable(&self) -> bool {
        blocks(&self.tier).total() > 0
    }

    /// Whether writes are under way.
    pub fn busy(&self) -> bool {
        !self.flights.is_empty()
    }

    /// Waits until a write has ended, at most `ms` milliseconds.
    pub fn wait(&mut self, ms: i32) {
        self.engine.wait(ms);
    }
}

fn blocks(tier: &SwapTier) -> &Blocks {
    tier.blocks.as_ref().expect("the tier of a writer of blocks has them")
}

/// Bytes of the buffer that a run is written from.
fn buffer_bytes(run: &Run) -> usize {
    match run.blocks.len() * BLOCK {
        LONG.. => SEGMENT,
        short => short,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swap::{Have, Layout, Reader};
    use memfit_core::blocks::extent;
    use memfit_core::{ObjectId, Stored};
    use std::collections::HashMap;
    use std::path::Path;

    fn tier(bytes: u64) -> Arc<SwapTier> {
        let mut tier = SwapTier::new(1000, Layout::Blocks).unwrap();
        tier.add(Path::new("/var/tmp"), bytes).unwrap();
        Arc::new(tier)
    }

    fn with_faults(tier: &Arc<SwapTier>, faults: &str) -> BlockWriter {
        let mut writer = BlockWriter::new(Arc::clone(tier));
        writer.engine = Engine::with_faults(faults);
        writer
    }

    fn page(number: u32, version: u32) -> Vec<u8> {
        (0..4096).map(|i| (i * 31 + i / 256 + number * 7 + version * 3) as u8).collect()
    }

    /// An uncompressed page, alone in its block.
    fn raw(block: u32) -> Stored {
        Stored { extent: extent(block, 0), len: 4096, codec: 0 }
    }

    fn item(object: u32, stored: Stored) -> Item {
        Item { object: ObjectId(object), stored, from: None }
    }

    /// Gives the writer one page for each block, in this order, and waits for the end.
    fn write(writer: &mut BlockWriter, blocks: impl IntoIterator<Item = u32>, version: u32) -> Vec<Written> {
        let mut ended = Vec::new();
        for block in blocks {
            while !writer.ready() {
                writer.wait(100);
                ended.extend(writer.reap());
            }
            writer.add(block, &page(block, version), vec![item(block, raw(block))]);
        }
        finish(writer, ended)
    }

    fn finish(writer: &mut BlockWriter, mut ended: Vec<Written>) -> Vec<Written> {
        writer.flush();
        while writer.busy() {
            writer.wait(100);
            ended.extend(writer.reap());
        }
        ended.extend(writer.reap());
        ended
    }

    /// Writes the blocks without an error, and returns how many writes and bytes that took.
    fn written(writer: &mut BlockWriter, blocks: impl IntoIterator<Item = u32>, version: u32) -> (u64, u64) {
        let counters = || {
            let counters = &writer.tier.counters;
            (counters.writes.load(Relaxed), counters.write_bytes.load(Relaxed))
        };
        let before = counters();
        let ended = write(writer, blocks, version);
        assert!(ended.iter().all(|written| written.error.is_none()), "{ended:?}");
        let after = (writer.tier.counters.writes.load(Relaxed), writer.tier.counters.write_bytes.load(Relaxed));
        (after.0 - before.0, after.1 - before.1)
    }

    /// Objects of several codecs packed into a block, and its bytes.
    fn packed(block: u32, lens: &[u16]) -> (Vec<Item>, Vec<u8>) {
        let (mut items, mut bytes) = (Vec::new(), Vec::new());
        for (i, &len) in lens.iter().enumerate() {
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            let stored = Stored { extent: extent(block, bytes.len() as u32), len, codec: 1 + i as u8 % 3 };
            items.push(item(block * 100 + i as u32, stored));
            bytes.extend(&page(block * 100 + i as u32, 0)[..usize::from(len)]);
        }
        (items, bytes)
    }

    fn reads(tier: &SwapTier) -> u64 {
        tier.counters.reads.load(Relaxed)
    }

    /// ezswap Z1, tuduce 9: a page goes to its slot uncompressed, and takes exactly that.
    #[test]
    fn tuduce_9_whole_pages_come_back_in_any_order() {
        let tier = tier(64 << 20);
        let mut writer = BlockWriter::new(Arc::clone(&tier));
        let all: Vec<u32> = (0..2000).map(|i| i * 1237 % 2000).collect();
        let (writes, bytes) = written(&mut writer, all.iter().copied(), 0);
        assert_eq!((writes, bytes), (2000, 2000 * 4096), "none of them was next to the one before");
        assert_eq!(tier.counters.object_bytes.load(Relaxed), 2000 * 4096);
        assert_eq!(tier.counters.under_way.longest(), None, "all has been answered");
        assert!(tier.counters.write_ns.load(Relaxed) > 0);
        let mut reader = Reader::new(Arc::clone(&tier), 256 << 20);
        for block in (0..2000).rev() {
            assert_eq!(reader.fetch(raw(block)).unwrap(), page(block, 0), "block {block}");
        }
        let on_disk = on_disk(&tier, 1234, 4096);
        assert_ne!(on_disk, page(1234, 0), "nobody else can read it");
    }

    fn on_disk(tier: &SwapTier, block: u32, bytes: usize) -> Vec<u8> {
        use std::os::unix::fs::FileExt;
        let mut aligned = Aligned::new(bytes);
        tier.files[0].file.read_exact_at(aligned.bytes(), u64::from(block) * 4096).unwrap();
        aligned.bytes().to_vec()
    }

    /// cervera 8: adjacent blocks go out in one operation; never over the border of a segment, and
    /// not backwards.
    #[test]
    fn cervera_8_adjacent_blocks_are_one_write() {
        let tier = tier(64 << 20);
        let mut writer = BlockWriter::new(Arc::clone(&tier));
        let page = 4096;
        assert_eq!(written(&mut writer, 16..24, 0), (1, 8 * page), "8 full buffers, one request");
        assert_eq!(written(&mut writer, 64..128, 0), (1, 64 * page));
        assert_eq!(written(&mut writer, 100..164, 1), (2, 64 * page));
        assert_eq!(written(&mut writer, 0..1000, 2), (16, 1000 * page));
        assert_eq!(written(&mut writer, [7, 6, 5], 3), (3, 3 * page));
        assert_eq!(written(&mut writer, [10, 11, 13, 14, 15, 20], 4), (3, 6 * page));
        written(&mut writer, 30..31, 5);
        assert_eq!(written(&mut writer, 31..32, 5), (1, page), "the one before was sent off");
        let mut reader = Reader::new(Arc::clone(&tier), 256 << 20);
        for (blocks, version) in
            [(0..5, 2), (5..8, 3), (10..12, 4), (13..16, 4), (20..21, 4), (30..32, 5), (32..1000, 2)]
        {
            for block in blocks {
                assert_eq!(reader.fetch(raw(block)).unwrap(), super::tests::page(block, version), "block {block}");
            }
        }
    }

    #[test]
    fn devices_follow_one_another_and_no_write_goes_over_the_border() {
        let directory = Path::new("/var/tmp");
        let existing = directory.join(format!("memfit-blocks-test-{}", std::process::id()));
        std::fs::write(&existing, b"signature").unwrap();
        let mut tier = SwapTier::new(1000, Layout::Blocks).unwrap();
        tier.add(&existing, 2 * SEGMENT as u64).unwrap();
        tier.add(directory, SEGMENT as u64).unwrap();
        let tier = Arc::new(tier);
        assert_eq!(tier.blocks(), [64..128, 128..192], "the first segment of a file that was there is not ours");
        let mut writer = BlockWriter::new(Arc::clone(&tier));
        assert_eq!(written(&mut writer, 120..136, 0).0, 2);
        let mut reader = Reader::new(Arc::clone(&tier), 256 << 20);
        for block in 120..136 {
            assert_eq!(reader.fetch(raw(block)).unwrap(), page(block, 0));
        }
        assert!(std::fs::read(&existing).unwrap().starts_with(b"signature\0"));
        std::fs::remove_file(existing).unwrap();
    }

    #[test]
    fn several_objects_share_a_block() {
        let tier = tier(64 << 20);
        let mut writer = BlockWriter::new(Arc::clone(&tier));
        let mut stored = HashMap::new();
        // Blocks with room for a list, without it (4090 bytes), and with one object that leaves
        // none.
        for (block, lens) in
            [(3, &[1000u16, 1000, 1000, 1000] as &[u16]), (4, &[1; 400]), (5, &[2048, 2042]), (6, &[4095]), (9, &[1])]
        {
            let (items, bytes) = packed(block, lens);
            stored.extend(items.iter().map(|item| (item.object.0, item.stored)));
            writer.add(block, &bytes, items);
        }
        let ended = finish(&mut writer, Vec::new());
        // Two writes were under way, and either can end first.
        let mut items: Vec<usize> = ended.iter().map(|written| written.items.len()).collect();
        items.sort_unstable();
        assert_eq!(items, [1, 4 + 400 + 2 + 1]);
        let mut reader = Reader::new(Arc::clone(&tier), 256 << 20);
        for (&object, &stored) in &stored {
            assert_eq!(reader.fetch(stored).unwrap(), &page(object, 0)[..usize::from(stored.len)], "object {object}");
        }
    }

    /// cervera 15: the rest of a block that was read is thrown away.
    #[test]
    fn cervera_15_a_second_page_of_a_block_is_a_second_read() {
        let tier = tier(64 << 20);
        let mut writer = BlockWriter::new(Arc::clone(&tier));
        let (items, bytes) = packed(8, &[1000; 4]);
        let [a, b, c, _] = [0, 1, 2, 3].map(|i| items[i].stored);
        writer.add(8, &bytes, items);
        finish(&mut writer, Vec::new());
        let mut reader = Reader::new(Arc::clone(&tier), 256 << 20);
        let contents = |i: u32| page(800 + i, 0)[..1000].to_vec();
        assert_eq!(reader.fetch(a).unwrap(), contents(0));
        assert_eq!(reader.fetch(b).unwrap(), contents(1));
        assert_eq!((reads(&tier), tier.counters.read_bytes.load(Relaxed)), (2, 2 * 4096));
        assert_eq!(reader.have(b), Have::Absent, "it was fetched");
        reader.want(&[a]);
        assert_eq!(reader.have(b), Have::Absent, "nobody asked for it");
        assert_eq!(reader.fetch(b).unwrap(), contents(1));
        assert_ne!(reader.have(a), Have::Absent);
        assert_eq!(reader.fetch(a).unwrap(), contents(0));
        assert_eq!(reads(&tier), 4);
        // Requested together, they are read together.
        reader.want(&[c, a]);
        assert_eq!(reader.fetch(a).unwrap(), contents(0));
        assert_eq!(reader.fetch(c).unwrap(), contents(2));
        assert_eq!(reads(&tier), 5);
    }

    #[test]
    fn wanted_neighbours_are_read_at_once_and_what_lies_between_is_not() {
        let tier = tier(64 << 20);
        written(&mut BlockWriter::new(Arc::clone(&tier)), 0..128, 0);
        let mut reader = Reader::new(Arc::clone(&tier), 256 << 20);
        for (blocks, reads_of_it) in [((32..64).collect::<Vec<u32>>(), 1), (vec![70, 69, 68], 1), (vec![1, 3, 5], 3)] {
            let before = (reads(&tier), tier.counters.read_bytes.load(Relaxed));
            reader.want(&blocks.iter().map(|&block| raw(block)).collect::<Vec<_>>());
            for &block in &blocks {
                assert_ne!(reader.have(raw(block)), Have::Absent);
                assert_eq!(reader.fetch(raw(block)).unwrap(), page(block, 0));
            }
            assert_eq!(reads(&tier) - before.0, reads_of_it, "{blocks:?}");
            assert_eq!(tier.counters.read_bytes.load(Relaxed) - before.1, blocks.len() as u64 * 4096);
        }
    }

    #[test]
    fn a_block_written_again_does_not_give_what_it_had() {
        let tier = tier(SEGMENT as u64);
        let mut writer = BlockWriter::new(Arc::clone(&tier));
        let mut reader = Reader::new(Arc::clone(&tier), 256 << 20);
        for version in 0..40 {
            written(&mut writer, 0..64, version);
            // Read before it is written again, and asked for after that.
            let ahead: Vec<Stored> = (0..8).map(raw).collect();
            reader.want(&ahead);
            while reader.busy() {
                reader.reap();
                reader.wait(100);
            }
            assert!(ahead.iter().all(|&stored| reader.have(stored) == Have::Ready));
            written(&mut writer, [2, 3], version + 100);
            assert!([2, 3].iter().all(|&block| reader.have(raw(block)) == Have::Absent), "version {version}");
            for block in 0..8 {
                let version = if [2, 3].contains(&block) { version + 100 } else { version };
                assert_eq!(reader.fetch(raw(block)).unwrap(), page(block, version), "block {block}");
            }
        }
        assert_eq!(tier.counters.errors.load(Relaxed), 0, "no bytes were taken for what they are not");
    }

    #[test]
    fn a_read_that_began_while_the_block_was_written_is_of_no_use() {
        let tier = tier(SEGMENT as u64);
        written(&mut BlockWriter::new(Arc::clone(&tier)), 0..4, 0);
        let mut writer = with_faults(&tier, "stall-at=1,stall-ms=50");
        writer.add(1, &page(1, 1), vec![item(1, raw(1))]);
        writer.flush();
        let mut reader = Reader::new(Arc::clone(&tier), 256 << 20);
        reader.want(&[raw(1)]);
        assert_eq!(reader.have(raw(1)), Have::Absent);
        assert_eq!(reader.fetch(raw(0)).unwrap(), page(0, 0), "its neighbour is as it was");
        assert!(finish(&mut writer, Vec::new())[0].error.is_none());
        assert_eq!(reader.have(raw(1)), Have::Absent);
        assert_eq!(reader.fetch(raw(1)).unwrap(), page(1, 1));
        assert_eq!(tier.counters.errors.load(Relaxed), 0);
    }

    #[test]
    fn another_place_length_or_codec_is_noticed() {
        let tier = tier(64 << 20);
        let mut writer = BlockWriter::new(Arc::clone(&tier));
        let (items, bytes) = packed(5, &[1000, 800]);
        let right = items[1].stored;
        writer.add(5, &bytes, items);
        finish(&mut writer, Vec::new());
        // So full that there is no list of its objects.
        let (items, bytes) = packed(8, &[2048, 2042]);
        let unlisted = items[1].stored;
        writer.add(8, &bytes, items);
        written(&mut writer, [6, 7], 0);
        let mut reader = Reader::new(Arc::clone(&tier), 256 << 20);
        let at = |block, byte| extent(block, byte);
        for wrong in [
            Stored { len: right.len - 1, ..right },
            Stored { len: 4000, ..right },
            Stored { codec: 1, ..right },
            Stored { extent: at(5, 1008), ..right },
            raw(5),
            raw(8),
            Stored { len: 2049, ..unlisted },
            Stored { codec: 1, ..raw(6) },
            Stored { len: 4095, ..raw(6) },
            Stored { extent: at(6, 8), len: 4088, codec: 0 },
            Stored { extent: at(6, 8), ..raw(6) },
        ] {
            assert!(reader.fetch(wrong).unwrap_err().contains("other bytes"), "{wrong:?}");
        }
        written(&mut writer, [100], 0);
        assert!(reader.fetch(raw(99)).unwrap_err().contains("other bytes"), "nothing was ever written there");
        assert_eq!(reader.fetch(right).unwrap(), &page(501, 0)[..800], "and the right one still is");
        assert_eq!(reader.fetch(raw(6)).unwrap(), page(6, 0));
    }

    #[test]
    fn what_the_device_mixes_up_or_damages_is_noticed() {
        use std::os::unix::fs::FileExt;
        let tier = tier(64 << 20);
        let mut writer = BlockWriter::new(Arc::clone(&tier));
        written(&mut writer, 0..4, 0);
        let old = on_disk(&tier, 3, 4096);
        written(&mut writer, [3], 1);
        let put = |block: u32, bytes: &[u8]| {
            let mut aligned = Aligned::new(4096);
            aligned.bytes().copy_from_slice(bytes);
            tier.files[0].file.write_all_at(aligned.bytes(), u64::from(block) * 4096).unwrap();
        };
        let (right, other) = (on_disk(&tier, 0, 4096), on_disk(&tier, 1, 4096));
        let mut flipped = right.clone();
        flipped[4095] ^= 1;
        let mut reader = Reader::new(Arc::clone(&tier), 256 << 20);
        for wrong in [&flipped, &other, &vec![0; 4096]] {
            put(0, wrong);
            assert!(reader.fetch(raw(0)).unwrap_err().contains("other bytes"));
        }
        put(0, &right);
        assert_eq!(reader.fetch(raw(0)).unwrap(), page(0, 0));
        put(3, &old);
        assert!(reader.fetch(raw(3)).unwrap_err().contains("other bytes"), "an older write");
    }

    #[test]
    fn a_device_that_fails_gives_the_objects_back_and_gets_no_more() {
        let tier = tier(64 << 20);
        written(&mut BlockWriter::new(Arc::clone(&tier)), 0..10, 0);
        let mut writer = with_faults(&tier, "write-eio=1000");
        assert!(writer.usable());
        let ended = write(&mut writer, [20, 21, 30], 0);
        assert_eq!(ended.iter().map(|written| written.items.len()).sum::<usize>(), 3);
        assert!(ended.iter().all(|written| written.error.as_ref().unwrap().raw_os_error() == Some(libc::EIO)));
        assert!(!writer.usable() && tier.free_bytes() == 0);
        assert_eq!(tier.blocks(), []);
        let writes = tier.counters.writes.load(Relaxed);
        let ended = write(&mut writer, [5], 1);
        assert_eq!((ended.len(), ended[0].items[0].object), (1, ObjectId(5)));
        assert!(ended[0].error.is_some());
        assert_eq!(tier.counters.writes.load(Relaxed), writes, "it is not asked again");
        let mut reader = Reader::new(Arc::clone(&tier), 256 << 20);
        assert_eq!(reader.fetch(raw(5)).unwrap(), page(5, 0), "what it has can be read");
    }

    #[test]
    fn a_full_device_takes_the_blocks_that_it_has() {
        let tier = tier(64 << 20);
        let mut writer = BlockWriter::new(Arc::clone(&tier));
        written(&mut writer, (0..10).chain([12]), 0);
        let mut full = with_faults(&tier, "write-enospc=1000");
        let ended = write(&mut full, 100..110, 0);
        assert_eq!((ended.len(), ended[0].items.len()), (1, 10));
        assert_eq!(ended[0].error.as_ref().unwrap().raw_os_error(), Some(libc::ENOSPC));
        assert_eq!(ended[0].device, Some(0));
        assert!(writer.usable());
        assert_eq!(tier.blocks(), [0..10, 12..13]);
        tier.set_blocks_in_use(5, 6);
        assert_eq!(tier.free_bytes(), 6 * 4096);
        let ended = write(&mut writer, [8, 9, 10, 11], 1);
        let failed: Vec<u32> =
            ended.iter().filter(|w| w.error.is_some()).flat_map(|w| &w.items).map(|i| i.object.0).collect();
        assert_eq!(failed, [10, 11]);
        let told = |w: &&Written| w.error.is_some() && w.device.is_some();
        assert_eq!(ended.iter().filter(told).count(), 0, "that was known");
        let mut reader = Reader::new(Arc::clone(&tier), 256 << 20);
        assert_eq!(reader.fetch(raw(9)).unwrap(), page(9, 1));
    }

    #[test]
    fn trouble_that_passes_is_got_over() {
        let tier = tier(64 << 20);
        let mut writer = with_faults(&tier, "seed=3,short=300,stall=20,stall-ms=20");
        written(&mut writer, (0..600).chain((600..1200).step_by(2)), 0);
        let mut reader = Reader::new(Arc::clone(&tier), 256 << 20);
        for block in (0..600).chain((600..1200).step_by(2)) {
            assert_eq!(reader.fetch(raw(block)).unwrap(), page(block, 0), "block {block}");
        }
    }

    #[test]
    fn so_many_writes_and_bytes_are_under_way_at_most() {
        let tier = tier(64 << 20);
        let stalling = || with_faults(&tier, "stall=1000,stall-ms=100");
        let fill = |writer: &mut BlockWriter, blocks: &mut dyn Iterator<Item = u32>| {
            let mut taken = 0;
            while writer.ready() {
                let block = blocks.next().unwrap();
                writer.add(block, &page(block, 0), vec![item(block, raw(block))]);
                taken += 1;
            }
            assert!(writer.busy(), "something ends, and then there is room");
            let memory = writer.held + writer.buffer.as_ref().map_or(0, Aligned::len);
            assert!(memory <= BYTES, "{memory} bytes");
            (taken, writer.flights.len())
        };
        let mut scattered = stalling();
        assert_eq!(fill(&mut scattered, &mut (0..4000).step_by(2)), (32, 31));
        assert_eq!(finish(&mut scattered, Vec::new()).len(), 32);
        assert_eq!(scattered.held, 0);
        let mut long = stalling();
        let (taken, flights) = fill(&mut long, &mut (4096..8000));
        assert!((3 * 64 + 1..=4 * 64).contains(&taken) && flights == 3, "{taken} blocks in {flights} writes");
        assert_eq!(finish(&mut long, Vec::new()).iter().map(|w| w.items.len()).sum::<usize>(), taken);
        assert!(long.ready());
    }

    #[test]
    fn a_tier_of_blocks_frees_nothing_and_counts_what_the_core_says() {
        let tier = tier(64 << 20);
        let blocks = (64 << 20) / 4096;
        assert_eq!((tier.used_bytes(), tier.live_bytes(), tier.free_bytes()), (0, 0, blocks * 4096));
        written(&mut BlockWriter::new(Arc::clone(&tier)), 0..3, 0);
        tier.set_blocks_in_use(3, blocks - 3);
        assert_eq!((tier.used_bytes(), tier.live_bytes()), (3 * 4096, 3 * 4096));
        assert_eq!(tier.free_bytes(), (blocks - 3) * 4096);
        tier.free(raw(2).extent, 4096);
        assert_eq!(tier.used_bytes(), 3 * 4096);
        tier.set_blocks_in_use(1, blocks - 1);
        assert_eq!(tier.counters.peak_bytes.load(Relaxed), 3 * 4096);
        assert!((64 * 24..65 * 32).contains(&tier.metadata_bytes()), "{} for a segment", tier.metadata_bytes());
        tier.leaves(raw(1), &page(1, 0));
        tier.leaves(raw(2), &page(2, 0));
        tier.stays(raw(2).extent);
        assert!(tier.slot_has(raw(1).extent, &page(1, 0)) && tier.slot_has(raw(2).extent, &page(2, 0)));
        assert!(!tier.slot_has(raw(1).extent, &page(1, 1)), "the page was changed");
        assert!(!tier.slot_has(raw(0).extent, &page(0, 0)), "it was never read");
        assert_eq!(tier.copy_of(&page(2, 0), ObjectId(9)), None, "the core alone gives slots to objects");
        written(&mut BlockWriter::new(Arc::clone(&tier)), 1..2, 0);
        assert!(!tier.slot_has(raw(1).extent, &page(1, 0)), "it was written since, though the same");
        // Nobody who takes it for a log can damage it.
        let mut log = crate::swap::Writer::new(Arc::clone(&tier));
        assert_eq!(log.room(100, false), crate::swap::Room::No);
        assert!(!log.usable());
        log.begin_cleaning();
        assert!(!log.cleaning());
    }
}
