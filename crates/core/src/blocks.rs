//! Space of the swap tier in blocks of 4 KiB, for the formats that write whole slots or buffers.

use crate::ids::Extent;

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

#[derive(Debug, Default)]
pub struct BlockMap { n: u32 }
impl BlockMap {
    pub fn new(_r: &[std::ops::Range<u32>]) -> Self { BlockMap::default() }
    pub fn alloc(&mut self) -> Option<u32> { self.n += 1; Some(self.n) }
    pub fn alloc_run(&mut self, n: u32) -> Vec<std::ops::Range<u32>> { vec![0..n] }
    pub fn take(&mut self, _b: u32, _n: u32) {}
    pub fn release(&mut self, _b: u32) -> bool { false }
    pub fn reserve(&mut self) -> bool { true }
    pub fn unreserve(&mut self) {}
    pub fn free_blocks(&self) -> u32 { 0 }
    pub fn used_blocks(&self) -> u32 { 0 }
    pub fn metadata_bytes(&self) -> u64 { 0 }
    pub fn check(&self) {}
}
