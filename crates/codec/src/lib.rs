//! Byte work of memfit: page codecs, same-filled detection, and the choice of a codec per region.
//!
//! A [`Worker`] owns every context and scratch buffer that a thread needs, each made at its first
//! use, so the fault and reclaim paths soon allocate nothing. Codecs live in [`CODECS`]; adding a
//! line there gives a codec its name, its place in the tests and in the table of `make
//! bench-codecs`.
//!
//! Units: all lengths are bytes. A *page* is 4096 bytes, a *unit* of compression is 8 bytes to
//! [`MAX_UNIT`], a multiple of 8.

#![deny(unsafe_code)]

mod aims;
mod codec;
mod deflate;
mod dictionary;
mod entropy;
pub mod generate;
mod lz;
mod lz4;
mod lz4hc;
mod lzo;
mod lzrw1;
mod same_filled;
mod selector;
mod wk;
mod wk4x4;
mod wkdm;
mod word_mask;
mod zstd;

pub use aims::{Aims, Pressure};
pub use codec::{by_name, name, CodecEntry, CodecId, Corrupt, Worker, CODECS, CODEC_IDS};
pub use dictionary::{Dictionaries, DICTIONARIES_MAX, TRAINING_PAGES};
pub use entropy::{entropy, ENTROPY_BYTES, ENTROPY_MAX};
pub use same_filled::{fill, same_filled};
pub use selector::{Aim, Choice, CodecSelector};

/// Size of a page in bytes.
pub const PAGE: usize = 4096;

/// Longest input of one compression, in bytes: a run of 16 pages.
pub const MAX_UNIT: usize = 16 * PAGE;
