//! Space of the swap tier in blocks of 4 KiB, for the swap formats that write whole slots or
//! buffers.

mod region;

use crate::ids::{Extent, PAGE_BYTES};
use alloc::vec::Vec;
use core::ops::Range;
use region::BlockRegion;

/// Bytes of a block.
pub const BLOCK_BYTES: u32 = PAGE_BYTES as u32;
/// Bytes of the unit of an [`Extent`] in a block: objects start at multiples of it.
pub const BLOCK_UNIT_BYTES: u32 = 8;
const UNITS: u32 = BLOCK_BYTES / BLOCK_UNIT_BYTES;
/// Most blocks over all devices: as many as an [`Extent`] can address, 32 GiB.
pub const BLOCKS_MAX: u32 = (1u64 << 32 >> 9) as u32;

/// The extent at this byte of a block, a multiple of [`BLOCK_UNIT_BYTES`].
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

/// Free blocks of the swap tier, and the number of objects in the others.
///
/// A block that was just allocated holds one object: its page, or the write under way. Where
/// several objects share a block, [`BlockMap::take`] adds them after the write, and then the
/// writer's own object is released:
///
/// ```text
/// alloc_run(1) -> block 7: 1     take(7, 3): 4     release(7): 3 objects     3 more releases: free
/// ```
///
/// So after a failed write, or if all objects of the buffer were freed meanwhile, that release is
/// enough.
///
/// Blocks are *reserved* by number before the place of the pages is known (Cervera 1999, rule 3: a
/// page whose compressed size is not known yet may need a whole block). Reserved and used blocks
/// together never exceed the total, or only until the caller of [`BlockMap::lose`] has done what it
/// returns. To allocate a block against a reservation, first end the reservation, then allocate.
///
/// "Lowest" means the lowest suitable block of the first given range that has one. So devices are
/// filled in order of priority if their ranges are given in that order. No run crosses the border
/// of a range, even if the next range has the next number.
///
/// Allocation, release and search take O(log blocks), for runs plus their length. Tables grow as
/// blocks are first used: 2.2 bytes a block.
#[derive(Debug)]
pub struct BlockMap {
    regions: Vec<BlockRegion>,
    total: u32,
    used: u32,
    reserved: u32,
    /// Used blocks that are not free again.
    lost: u32,
    splits: u64,
}

impl BlockMap {
    /// A map of these blocks: one range per device, in order of priority, disjoint, below
    /// [`BLOCKS_MAX`].
    pub fn new(ranges: &[Range<u32>]) -> BlockMap {
        let mut sorted: Vec<&Range<u32>> = ranges.iter().filter(|range| !range.is_empty()).collect();
        let regions: Vec<BlockRegion> = sorted.iter().map(|range| BlockRegion::new(range)).collect();
        sorted.sort_unstable_by_key(|range| range.start);
        assert!(sorted.windows(2).all(|pair| pair[0].end <= pair[1].start), "{ranges:?} overlap");
        assert!(sorted.last().is_none_or(|last| last.end <= BLOCKS_MAX), "{ranges:?} has too high numbers");
        let total = regions.iter().map(BlockRegion::blocks).sum();
        BlockMap { regions, total, used: 0, reserved: 0, lost: 0, splits: 0 }
    }

    /// Allocates the next free block after the last one on that device; it holds one object. `None`
    /// if all blocks are used or reserved.
    ///
    /// Next fit, like the slots of a swap area: pages that leave together become neighbours, and
    /// their writes become one. Devices are used in order of priority; each restarts at its
    /// beginning before the next device is used.
    pub fn alloc(&mut self) -> Option<u32> {
        if !self.has_room(1) {
            return None;
        }
        let block = self.regions.iter_mut().find_map(BlockRegion::take_next);
        self.used += 1;
        Some(block.expect("a block is free"))
    }

    /// Allocates `blocks` blocks in as few contiguous runs as possible, each block with one object.
    /// Takes the lowest run that is long enough; if there is none, the longest runs and the lowest
    /// run for the rest. The result is in order of devices, ascending on each. Empty if there are
    /// not enough blocks.
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

    /// Adds `objects` objects to an allocated block.
    pub fn take(&mut self, block: u32, objects: u16) {
        self.region_mut(block).add(block, objects);
    }

    /// Removes an object from a block. Returns whether it was the last one, so that the block is
    /// free.
    pub fn release(&mut self, block: u32) -> bool {
        let freed = self.region_mut(block).release(block);
        self.used -= u32::from(freed);
        freed
    }

    /// A block with one object cannot be written: the object leaves it, and it is not free again.
    /// Its device has no space for blocks that were never used. Returns how many reservations no
    /// block is left for: the caller ends as many at once.
    #[must_use]
    pub fn lose(&mut self, block: u32) -> u32 {
        self.lost += 1;
        self.total -= self.region_mut(block).cut();
        (self.used + self.reserved).saturating_sub(self.total)
    }

    /// Objects in a block; 0 if it is free.
    pub fn objects(&self, block: u32) -> u16 {
        self.regions.iter().find(|region| region.range().contains(&block)).map_or(0, |region| region.count(block))
    }

    /// Reserves a block. Returns false if none is left.
    pub fn reserve(&mut self) -> bool {
        let room = self.has_room(1);
        self.reserved += u32::from(room);
        room
    }

    /// Ends a reservation: the block is needed now, or not at all.
    pub fn unreserve(&mut self) {
        self.reserved = self.reserved.checked_sub(1).expect("a block is reserved");
    }

    /// Blocks that are not allocated; some of them may be reserved.
    pub fn free_blocks(&self) -> u32 {
        self.total - self.used
    }

    /// Allocated blocks, without those that were lost.
    pub fn used_blocks(&self) -> u32 {
        self.used - self.lost
    }

    /// Runs in excess of one per [`BlockMap::alloc_run`], since the start: seeks due to
    /// fragmentation.
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
