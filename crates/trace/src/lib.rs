//! A recorded run as a file: see docs/trace.md for each byte.
//!
//! A file is a head, blocks, and an end. Each is checked by a CRC-32 of its own, so that a file
//! that was cut is good up to the last whole block, and what is damaged is found where it is.
//! Numbers are little-endian.
#![forbid(unsafe_code)]

mod head;
mod read;
mod tape;
mod write;

pub use head::{Head, HeadError};
pub use read::{Block, ReadError, Reader, Reason};
pub use tape::{Filled, Tape, BLOCK_BYTES};
pub use write::{Begins, Writer};

/// The first bytes of a file.
pub const MAGIC: [u8; 8] = *b"memfit\x00T";
/// The version of memfit that this is, as heads name it.
pub const MEMFIT: &str = env!("CARGO_PKG_VERSION");
/// The format that this version writes, and the only one that it reads.
pub const VERSION: u16 = 2;
/// Bytes of a page, in every file so far.
pub const PAGE_BYTES: u32 = 4096;
/// Most bytes of a head's text, and of a block before compression: what a reader must have room
/// for.
pub const HEAD_MAX: u32 = 1 << 20;
/// As many bytes of calls as are kept together at most.
pub const BLOCK_MAX: u32 = 1 << 20;

/// Bytes before those of a block: its kind, three zeros, lengths of what is stored and of the
/// calls, number of calls, number of the first one, hash of what was decided before it, time.
const BLOCK_HEAD: usize = 40;
/// A block of calls.
const CALLS: u8 = b'C';
/// The end of a run that was recorded to its end.
const END: u8 = b'E';
