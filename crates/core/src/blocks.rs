//! Space of the swap tier in blocks of 4 KiB, for the formats that write whole slots or buffers.

mod region;

use crate::ids::Extent;
use region::BlockRegion;
use std::ops::Range;

/// Bytes of a block.
pub const BLOCK_BYTES: u32 = 4096;
/// Bytes of the unit of an [`Extent`] in a block: objects start at its multiples.
pub const BLOCK_UNIT_BYTES: u32 = 8;
const UNITS: u32 = BLOCK_BYTES / BLOCK_UNIT_BYTES;
/// Most blocks over all devices: what an [`Extent`] can name, 32 GiB.
pub const BLOCKS_MAX: u32 = (1u64 << 32 >> 9) as u32;

/// The place at this byte of a block, a multiple of [`BLOCK_UNIT_BYTES`].
pub fn extent(block: u32, byte: u32) -> Extent {
    Extent { unit: block * UNITS + byte / BLOCK_UNIT_BYTES }
}

/// The block that holds an object.
pub fn block_of(extent: Extent) -> u32 {
    extent.unit / UNITS
}

/// Offset of an object in its block, bytes.
pub fn byte_in_block(extent: Extent) -> u32 {
    extent.unit % UNITS * BLOCK_UNIT_BYTES
}

/// Which blocks of the swap tier are free, and how many objects are in the others.
///
/// A block that was handed out holds one object: the page it was taken for, or the write under way.
/// Where several objects share a block, [`BlockMap::take`] adds them when it has been written, and
/// then the writer's own is released:
///
/// ```text
/// alloc_run(1) -> block 7: 1     take(7, 3): 4     release(7): 3 objects     3 more releases: free
/// ```
///
/// So a write that failed, or that of a buffer all of whose objects were freed meanwhile, needs
/// nothing but that release.
///
/// Places are *reserved* by number before anybody knows where the pages will lie (Cervera 1999,
/// rule 3: a page whose compressed size is not known yet may need a whole block). Reserved and used
/// blocks together are never more than there are: to hand out a block against a reservation, first
/// end the reservation, then allocate.
///
/// "Lowest" means: of the first range given that has what is needed, its lowest block. So devices
/// are filled in order of priority if their ranges are given so. No run crosses the border of a
/// range, even if the next one has the next number.
///
/// Handing out, releasing and searching are O(log blocks), for runs plus their length. Tables grow
/// as blocks are first used: 2.2 bytes a block.
#[derive(Debug)]
pub struct BlockMap {
    regions: Vec<BlockRegion>,
    total: u32,
    used: u32,
    reserved: u32,
    splits: u64,
}

impl BlockMap {
    /// For these blocks: one range per device, in order of priority, disjoint, below
    /// [`BLOCKS_MAX`].
    pub fn new(ranges: &[Range<u32>]) -> BlockMap {
        let mut sorted: Vec<&Range<u32>> = ranges.iter().filter(|range| !range.is_empty()).collect();
        let regions: Vec<BlockRegion> = sorted.iter().map(|range| BlockRegion::new(range)).collect();
        sorted.sort_unstable_by_key(|range| range.start);
        assert!(sorted.windows(2).all(|pair| pair[0].end <= pair[1].start), "{ranges:?} overlap");
        assert!(sorted.last().is_none_or(|last| last.end <= BLOCKS_MAX), "{ranges:?} has too high numbers");
        let total = regions.iter().map(BlockRegion::blocks).sum();
        BlockMap { regions, total, used: 0, reserved: 0, splits: 0 }
    }

    /// Hands out the next free block after the one handed out last on that device; it holds one
    /// object. `None` if all blocks are used or reserved.
    ///
    /// Next fit, as the slots of a swap area are handed out: pages that leave together become
    /// neighbours, and their writes one. Devices are used in order of priority, each from the start
    /// again before the next one.
    pub fn alloc(&mut self) -> Option<u32> {
        if !self.has_room(1) {
            return None;
        }
        let block = self.regions.iter_mut().find_map(BlockRegion::take_next);
        self.used += 1;
        Some(block.expect("a block is free"))
    }

    /// Hands out `blocks` blocks in as few contiguous runs as possible, each block with one object:
    /// the lowest run that is long enough; if there is none, the longest ones and the lowest run
    /// that takes the rest. They come in rising order on each device, and in order of devices.
    /// Empty if not all of them can be had.
    pub fn alloc_run(&mut self, blocks: u32) -> Vec<Range<u32>> {
        let mut runs: Vec<(usize, Range<u32>)> = Vec::new();
        if !self.has_room(blocks) {
            return Vec::new();
        }
        let mut left = blocks;
        while left > 0 {
            let (region, run) = self.first_run(left).unwrap_or_else(|| self.longest_run());
            self.regions[region].take_run(run.start, run.end - run.start);
            left -= run.end - run.start;
            runs.push((region, run));
        }
        self.used += blocks;
        self.splits += runs.len().saturating_sub(1) as u64;
        runs.sort_unstable_by_key(|(region, run)| (*region, run.start));
        runs.into_iter().map(|(_, run)| run).collect()
    }

    /// Adds `objects` objects to a block that was handed out.
    pub fn take(&mut self, block: u32, objects: u16) {
        self.region_mut(block).add(block, objects);
    }

    /// Takes one object from a block; whether it was the last one, so that the block is free.
    pub fn release(&mut self, block: u32) -> bool {
        let freed = self.region_mut(block).release(block);
        self.used -= u32::from(freed);
        freed
    }

    /// Objects in a block; 0 if it is free.
    pub fn objects(&self, block: u32) -> u16 {
        self.regions.iter().find(|region| region.range().contains(&block)).map_or(0, |region| region.count(block))
    }

    /// Sets a block aside that will be handed out later; whether there was one.
    pub fn reserve(&mut self) -> bool {
        let room = self.has_room(1);
        self.reserved += u32::from(room);
        room
    }

    /// Ends a reservation: the block is needed now, or not at all.
    pub fn unreserve(&mut self) {
        self.reserved = self.reserved.checked_sub(1).expect("a block is reserved");
    }

    /// Blocks, free and used.
    pub fn total_blocks(&self) -> u32 {
        self.total
    }

    /// Blocks that were not handed out; [`BlockMap::reserved_blocks`] of them are spoken for.
    pub fn free_blocks(&self) -> u32 {
        self.total - self.used
    }

    /// Blocks with an object.
    pub fn used_blocks(&self) -> u32 {
        self.used
    }

    /// Reservations that have not ended.
    pub fn reserved_blocks(&self) -> u32 {
        self.reserved
    }

    /// Runs handed out beyond one for each [`BlockMap::alloc_run`], since the start: seeks that
    /// fragmentation costs.
    pub fn splits(&self) -> u64 {
        self.splits
    }

    /// Heap bytes.
    pub fn metadata_bytes(&self) -> u64 {
        let regions: u64 = self.regions.iter().map(BlockRegion::metadata_bytes).sum();
        regions + (self.regions.capacity() * size_of::<BlockRegion>()) as u64
    }

    /// Panics unless every invariant holds; O(blocks), for tests.
    pub fn check(&self) {
        self.regions.iter().for_each(BlockRegion::check);
        assert_eq!(self.regions.iter().map(BlockRegion::used).sum::<u32>(), self.used);
        assert!(
            u64::from(self.used) + u64::from(self.reserved) <= u64::from(self.total),
            "more is promised than there is"
        );
    }

    fn has_room(&self, blocks: u32) -> bool {
        blocks <= self.total - self.used - self.reserved
    }

    fn first_run(&mut self, blocks: u32) -> Option<(usize, Range<u32>)> {
        let find = |(i, region): (usize, &mut BlockRegion)| Some((i, region.first_run(blocks)?));
        let (region, start) = self.regions.iter_mut().enumerate().find_map(find)?;
        Some((region, start..start + blocks))
    }

    /// The lowest of the longest free runs.
    fn longest_run(&mut self) -> (usize, Range<u32>) {
        let longest = self.regions.iter_mut().map(BlockRegion::longest).max().unwrap_or(0);
        self.first_run(longest).expect("a block is free")
    }

    fn region_mut(&mut self, block: u32) -> &mut BlockRegion {
        let region = self.regions.iter_mut().find(|region| region.range().contains(&block));
        region.unwrap_or_else(|| panic!("block {block} is on no device"))
    }
}

#[cfg(test)]
mod tests;
