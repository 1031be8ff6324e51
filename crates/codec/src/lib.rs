//! Byte work of memfit: page codecs, same-filled detection, and the choice of a codec per region.
//!
//! A [`Worker`] owns every context and scratch buffer that a thread needs, each made at its first
//! use, so the fault and reclaim paths soon allocate nothing.
//!
//! A new codec is one file and one line in [`CODECS`]. The file has the [`CodecEntry`]; schemes,
//! help texts, statistics, exports, the simulator's costs and the tests use it.
//!
//! Units: all lengths are bytes. A *page* is [`PAGE_BYTES`], a *unit* of compression is 8 bytes to
//! [`MAX_UNIT`], a multiple of 8.

#![deny(unsafe_code)]

#[cfg(test)]
extern crate self as memfit_codec;

mod codec;
mod deflate;
mod dictionary;
#[cfg(test)]
mod dummy;
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
mod worth;
mod zstd;

#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skip;

pub use codec::{find, Codec, CodecEntry, CodecId, Corrupt, Worker, CODEC_IDS};
pub use dictionary::{Dictionaries, DICTIONARIES_MAX, TRAINING_PAGES};
pub use entropy::{entropy, ENTROPY_BYTES, ENTROPY_MAX};
pub use memfit_wire::PAGE_BYTES;
pub use same_filled::{fill, same_filled};
pub use selector::{CodecSelector, Worth};
pub use worth::{page_write_ns, Prices, Spill, FAULT_NS};

/// Longest input of one compression, in bytes: a run of 16 pages.
pub const MAX_UNIT: usize = 16 * PAGE_BYTES;

/// All codecs, in the order of help texts, columns and tests.
pub static CODECS: &[CodecEntry] = &[
    lz4::ENTRY,
    lz4hc::ENTRY,
    lzo::ENTRY,
    lzrw1::ENTRY,
    deflate::ENTRY,
    zstd::ZSTD,
    zstd::FAST,
    zstd::TRAINED,
    zstd::STRONG,
    zstd::STRONG_TRAINED,
    word_mask::ENTRY,
    wkdm::ENTRY,
    wk4x4::ENTRY,
    #[cfg(test)]
    dummy::ENTRY,
];
