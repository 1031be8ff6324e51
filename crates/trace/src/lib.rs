//! The file of a recorded run; docs/trace.md describes each byte.
//!
//! A file is a head, blocks, and an end. Each part has a CRC-32 of its own. So a file that was cut
//! is good up to its last complete block, and a reader finds damage where it is. Numbers are
//! little-endian.
#![forbid(unsafe_code)]

mod head;
mod read;
mod shorten;
mod tape;
mod write;

pub use head::{Head, HeadError};
pub use read::{Block, ReadError, Reader, Reason};
pub use shorten::{fitting, shorten_words};
pub use tape::{Filled, Tape, BLOCK_BYTES};
pub use write::{Begins, Writer};

/// The first bytes of a file.
pub const MAGIC: [u8; 8] = *b"memfit\x00T";
/// The version of this memfit, as in heads.
pub const MEMFIT: &str = env!("CARGO_PKG_VERSION");
/// The format that this version writes, and the only one that it reads.
pub const VERSION: u16 = 4;
/// Most bytes of a head's text: the buffer that a reader needs.
pub const HEAD_MAX: u32 = 1 << 20;
/// Most bytes of the calls of a block before compression.
pub const BLOCK_MAX: u32 = 1 << 20;

/// Bytes of a block's header: kind, three zeros, length of the stored bytes and of the calls,
/// number of calls, number of the first call, hash of the decisions before it, time.
const BLOCK_HEAD: usize = 40;
/// A block of calls.
const CALLS: u8 = b'C';
/// The end of a run that was recorded to its end.
const END: u8 = b'E';
