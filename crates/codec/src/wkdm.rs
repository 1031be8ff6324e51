//! WKdm: the coder of Wilson and Kaplan with a direct-mapped dictionary; see [`crate::wk`] for
//! papers and format.
//!
//! The hash of a word's upper 22 bits gives its only place; a word replaces the entry there.

use crate::{
    codec::{Codec, CodecEntry, CodecId, Corrupt},
    wk::{hash, Entries, Streams, PRELOADED},
};

impl CodecId {
    /// Wilson and Kaplan's direct-mapped coder.
    pub const WKDM: CodecId = CodecId(11);
}

/// The line of `wkdm` in [`crate::CODECS`].
pub(crate) const ENTRY: CodecEntry = CodecEntry {
    id: CodecId::WKDM,
    name: "wkdm",
    help: "Wilson and Kaplan's coder of words and pointers, for comparison",
    compress_ns: 4_200,
    decompress_ns: 3_800,
    family: CodecId::WKDM,
    untrained: None,
    make: |_| Box::new(WkDm(Streams::new())),
};

const ENTRIES_LOG: u32 = 4;

struct DirectMapped([u32; 1 << ENTRIES_LOG]);

impl Entries for DirectMapped {
    fn new() -> DirectMapped {
        DirectMapped([PRELOADED; 1 << ENTRIES_LOG])
    }

    #[inline]
    fn find(&self, word: u32) -> usize {
        (hash(word) >> (32 - ENTRIES_LOG)) as usize
    }

    #[inline]
    fn at(&self, index: usize) -> u32 {
        self.0[index & 15]
    }

    #[inline]
    fn seen(&mut self, index: usize, word: u32) {
        self.0[index & 15] = word;
    }

    #[inline]
    fn insert(&mut self, word: u32) {
        self.0[self.find(word)] = word;
    }
}

struct WkDm(Streams);

impl Codec for WkDm {
    fn compress(&mut self, _: CodecId, src: &[u8], dst: &mut [u8], limit: usize) -> Option<usize> {
        self.0.compress::<DirectMapped>(src, dst, limit)
    }

    fn decompress(&mut self, _: CodecId, src: &[u8], dst: &mut [u8]) -> Result<(), Corrupt> {
        self.0.decompress::<DirectMapped>(src, dst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: zero, new, equal, upper bits, new, zero.
    #[test]
    fn golden_bytes() {
        let words: [u32; 6] = [0, 0x1234_5678, 0x1234_5678, 0x1234_5401, 0xdead_beef, 0];
        let src: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let slot = (hash(0x1234_5678) >> 28) as u8;
        assert_ne!(slot, (hash(0xdead_beef) >> 28) as u8);
        let mut wkdm = WkDm(Streams::new());
        let mut out = [0; 24];
        let len = wkdm.compress(CodecId::WKDM, &src, &mut out, 24).unwrap();
        let tags = [2 << 2 | 3 << 4 | 1 << 6, 2];
        let wanted = [&tags[..], &[slot | slot << 4], &[1, 0, 0, 0], &src[4..8], &src[16..20]].concat();
        assert_eq!(out[..len], wanted);
        let mut back = [0; 24];
        assert_eq!(wkdm.decompress(CodecId::WKDM, &wanted, &mut back), Ok(()));
        assert_eq!(back[..], src);
    }
}
