//! WK4x4: the coder of Wilson and Kaplan with a set-associative dictionary; see [`crate::wk`] for
//! papers and format.
//!
//! Four sets of four words. Each set is in the order of last use; the hash of a word's upper 22
//! bits selects the set. A new word replaces the least recently used one. An index is 4 · set +
//! place in that order.

use crate::{
    codec::{Codec, CodecEntry, CodecId, Corrupt},
    wk::{alike, hash, Entries, Streams, PRELOADED},
};

/// The line of `wk4x4` in [`crate::CODECS`].
pub(crate) const ENTRY: CodecEntry = CodecEntry {
    id: CodecId(12),
    name: "wk4x4",
    help: "their set-associative one: smaller, slower",
    compress_ns: 7_900,
    decompress_ns: 6_300,
    family: CodecId(12),
    untrained: None,
    make: |_| Box::new(Wk4x4(Streams::new())),
};

const SETS_LOG: u32 = 2;
const WAYS: usize = 4;

struct SetAssociative([u32; WAYS << SETS_LOG]);

impl SetAssociative {
    fn set(word: u32) -> usize {
        (hash(word) >> (32 - SETS_LOG)) as usize * WAYS
    }

    /// Puts `word` at the front of its set; the words before `index` move back by one, and the one
    /// at `index` is gone.
    #[inline]
    fn move_to_front(&mut self, index: usize, word: u32) {
        let front = index - index % WAYS;
        self.0.copy_within(front..index, front + 1);
        self.0[front] = word;
    }
}

impl Entries for SetAssociative {
    fn new() -> SetAssociative {
        SetAssociative([PRELOADED; WAYS << SETS_LOG])
    }

    #[inline]
    fn find(&self, word: u32) -> usize {
        let first = SetAssociative::set(word);
        let set = &self.0[first..first + WAYS];
        let place = set.iter().position(|&entry| entry == word);
        first + place.or_else(|| set.iter().position(|&entry| alike(entry, word))).unwrap_or(0)
    }

    #[inline]
    fn at(&self, index: usize) -> u32 {
        self.0[index & 15]
    }

    #[inline]
    fn seen(&mut self, index: usize, word: u32) {
        self.move_to_front(index & 15, word);
    }

    #[inline]
    fn insert(&mut self, word: u32) {
        self.move_to_front(SetAssociative::set(word) + WAYS - 1, word);
    }
}

struct Wk4x4(Streams);

impl Codec for Wk4x4 {
    fn compress(&mut self, _: CodecId, src: &[u8], dst: &mut [u8], limit: usize) -> Option<usize> {
        self.0.compress::<SetAssociative>(src, dst, limit)
    }

    fn decompress(&mut self, _: CodecId, src: &[u8], dst: &mut [u8]) -> Result<(), Corrupt> {
        self.0.decompress::<SetAssociative>(src, dst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_keeps_the_four_used_last() {
        let mut words = (1u32..).map(|i| i << 10).filter(|&word| SetAssociative::set(word) == 8);
        let [a, b, c, d, e] = std::array::from_fn(|_| words.next().unwrap());
        let mut entries = SetAssociative::new();
        [a, b, c, d].into_iter().for_each(|word| entries.insert(word));
        assert_eq!(entries.0[8..12], [d, c, b, a]);
        let index = entries.find(b | 5);
        assert_eq!((index, entries.at(index)), (10, b), "upper bits");
        entries.seen(index, b | 5);
        assert_eq!(entries.0[8..12], [b | 5, d, c, a]);
        entries.insert(e);
        assert_eq!(entries.0[8..12], [e, b | 5, d, c]);
        assert_eq!(entries.find(b | 5), 9, "equal");
        assert_eq!(entries.0[..8], [PRELOADED; 8]);
    }
}
