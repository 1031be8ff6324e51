//! Shared by WKdm and WK4x4, the compressors of Wilson and Kaplan for pages of words and pointers.
//!
//! P. R. Wilson, S. F. Kaplan, Y. Smaragdakis, "The Case for Compressed Caching in Virtual Memory
//! Systems", USENIX 1999, section 2; S. F. Kaplan, "Compressed Caching and Modern Virtual Memory
//! Simulation", thesis, 1999, chapter 2. A word of 32 bits is compared with a dictionary of 16
//! recently seen words: it is zero, equals one of them, shares its upper 22 bits, or is new.
//! Constants of the paper: words of 32 bits, 16 entries, 22 and 10 bits, tags of 2 bits. The two
//! coders differ in how a word finds its entries ([`Entries`]).
//!
//! # Format
//!
//! Four streams follow each other; all lengths follow from the original length and the tags.
//!
//! | stream | content |
//! |---|---|
//! | tags | 2 bits a word, low bits first: 0 zero, 1 upper bits match, 2 new, 3 equal |
//! | indices | 4 bits for each tag 1 and 3, low bits first: which entry |
//! | low bits | 10 bits for each tag 1, three in each little-endian word of 32 bits |
//! | words | 4 bytes for each tag 2, little-endian |
//!
//! Deviations from the authors' code: no header of lengths (12 to 16 bytes), streams packed in the
//! order of the words, and the order of the streams.

use crate::{codec::Corrupt, lz::word32, MAX_UNIT};

const MAX_WORDS: usize = MAX_UNIT / 4;
/// Low bits of a word that need not match.
const LOW_BITS: u32 = 10;
const LOW: u32 = (1 << LOW_BITS) - 1;
/// Initial value of all entries: any word except zero, which has its own tag.
pub(crate) const PRELOADED: u32 = 1;

const ZERO: u8 = 0;
const PARTIAL: u8 = 1;
const NEW: u8 = 2;
const EQUAL: u8 = 3;

/// The dictionary of one unit: 16 words.
pub(crate) trait Entries {
    fn new() -> Self;

    /// The best entry to compare with, 0 to 15: of the entries where `word` may be, one that equals
    /// it, else one that shares its upper bits, else any.
    fn find(&self, word: u32) -> usize;

    fn at(&self, index: usize) -> u32;

    /// `word` equals the entry or shares its upper bits, and replaces it.
    fn seen(&mut self, index: usize, word: u32);

    /// `word` is new.
    fn insert(&mut self, word: u32);
}

/// A hash of the upper 22 bits of a word. The authors look up 8 of them in a table of random
/// numbers; this hash uses all 22 (Fibonacci hashing).
#[inline]
pub(crate) fn hash(word: u32) -> u32 {
    (word >> LOW_BITS).wrapping_mul(0x9e37_79b1)
}

/// Whether the upper 22 bits are equal.
#[inline]
pub(crate) fn alike(a: u32, b: u32) -> bool {
    (a ^ b) >> LOW_BITS == 0
}

/// Streams of one unit, unpacked.
pub(crate) struct Streams {
    tags: Box<[u8; MAX_WORDS]>,
    indices: Box<[u8; MAX_WORDS + 1]>,
    low_bits: Box<[u16; MAX_WORDS + 2]>,
    words: Box<[u32; MAX_WORDS]>,
}

/// Lengths of the streams for given tags, as counts of items.
struct Sizes {
    indices: usize,
    partial: usize,
    new: usize,
}

impl Sizes {
    fn bytes(&self, words: usize) -> usize {
        words.div_ceil(4) + self.indices.div_ceil(2) + self.partial.div_ceil(3) * 4 + self.new * 4
    }
}

impl Streams {
    pub(crate) fn new() -> Streams {
        Streams {
            tags: Box::new([0; MAX_WORDS]),
            indices: Box::new([0; MAX_WORDS + 1]),
            low_bits: Box::new([0; MAX_WORDS + 2]),
            words: Box::new([0; MAX_WORDS]),
        }
    }

    pub(crate) fn compress<E: Entries>(&mut self, src: &[u8], dst: &mut [u8], limit: usize) -> Option<usize> {
        let mut entries = E::new();
        let mut sizes = Sizes { indices: 0, partial: 0, new: 0 };
        let count = src.len() / 4;
        let mut tags = self.tags[..count].chunks_mut(64);
        for chunk in src.chunks(256) {
            let tags = tags.next()?;
            for (tag, word) in tags.iter_mut().zip(chunk.chunks_exact(4)) {
                let word = word32(word, 0);
                if word == 0 {
                    *tag = ZERO;
                    continue;
                }
                let index = entries.find(word);
                let entry = entries.at(index);
                if entry == word {
                    *tag = EQUAL;
                } else if alike(entry, word) {
                    *tag = PARTIAL;
                    self.low_bits[sizes.partial] = (word & LOW) as u16;
                    sizes.partial += 1;
                } else {
                    *tag = NEW;
                    self.words[sizes.new] = word;
                    sizes.new += 1;
                    entries.insert(word);
                    continue;
                }
                self.indices[sizes.indices] = index as u8;
                sizes.indices += 1;
                entries.seen(index, word);
            }
            if sizes.bytes(count) >= limit {
                return None;
            }
        }
        self.pack(count, &sizes, dst)
    }

    fn pack(&mut self, count: usize, sizes: &Sizes, dst: &mut [u8]) -> Option<usize> {
        let (tags, rest) = dst.split_at_mut(count.div_ceil(4));
        for (packed, four) in tags.iter_mut().zip(self.tags[..count].chunks(4)) {
            *packed = four.iter().rev().fold(0, |bits, tag| bits << 2 | tag);
        }
        self.indices[sizes.indices] = 0;
        let (indices, rest) = rest.split_at_mut(sizes.indices.div_ceil(2));
        for (packed, two) in indices.iter_mut().zip(self.indices.chunks(2)) {
            *packed = two[0] | two[1] << 4;
        }
        self.low_bits[sizes.partial..sizes.partial + 2].fill(0);
        let (low_bits, rest) = rest.split_at_mut(sizes.partial.div_ceil(3) * 4);
        for (packed, three) in low_bits.chunks_exact_mut(4).zip(self.low_bits.chunks(3)) {
            let bits = three.iter().rev().fold(0, |bits, low| bits << LOW_BITS | u32::from(*low));
            packed.copy_from_slice(&bits.to_le_bytes());
        }
        for (packed, word) in rest.chunks_exact_mut(4).zip(&self.words[..sizes.new]) {
            packed.copy_from_slice(&word.to_le_bytes());
        }
        Some(sizes.bytes(count))
    }

    pub(crate) fn decompress<E: Entries>(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), Corrupt> {
        let count = dst.len() / 4;
        self.unpack(src, count)?;
        let mut entries = E::new();
        let (mut indices, mut low_bits, mut words) = (0, 0, 0);
        for (tag, out) in self.tags[..count].iter().zip(dst.chunks_exact_mut(4)) {
            let word = match *tag {
                ZERO => 0,
                NEW => {
                    let word = self.words[words];
                    words += 1;
                    entries.insert(word);
                    word
                }
                tag => {
                    let index = usize::from(self.indices[indices]);
                    indices += 1;
                    let mut word = entries.at(index);
                    if tag == PARTIAL {
                        word = word & !LOW | u32::from(self.low_bits[low_bits]);
                        low_bits += 1;
                    }
                    entries.seen(index, word);
                    word
                }
            };
            out.copy_from_slice(&word.to_le_bytes());
        }
        Ok(())
    }

    /// Splits `src` into the streams. After `Ok` each is as long as the tags require.
    fn unpack(&mut self, src: &[u8], count: usize) -> Result<(), Corrupt> {
        let (packed, rest) = src.split_at_checked(count.div_ceil(4)).ok_or(Corrupt)?;
        for (four, packed) in self.tags.chunks_exact_mut(4).zip(packed) {
            four.iter_mut().enumerate().for_each(|(i, tag)| *tag = packed >> (2 * i) & 3);
        }
        let tags = &self.tags[..count];
        let of = |wanted: u8| tags.iter().filter(|&&tag| tag == wanted).count();
        let (partial, new) = (of(PARTIAL), of(NEW));
        let sizes = Sizes { indices: partial + of(EQUAL), partial, new };
        if src.len() != sizes.bytes(count) {
            return Err(Corrupt);
        }
        let (packed, rest) = rest.split_at_checked(sizes.indices.div_ceil(2)).ok_or(Corrupt)?;
        for (two, packed) in self.indices.chunks_exact_mut(2).zip(packed) {
            (two[0], two[1]) = (packed & 15, packed >> 4);
        }
        let (packed, rest) = rest.split_at_checked(partial.div_ceil(3) * 4).ok_or(Corrupt)?;
        for (three, packed) in self.low_bits.chunks_exact_mut(3).zip(packed.chunks_exact(4)) {
            let bits = word32(packed, 0);
            three.iter_mut().zip(0..).for_each(|(low, i)| *low = (bits >> (LOW_BITS * i) & LOW) as u16);
        }
        for (word, packed) in self.words.iter_mut().zip(rest.chunks_exact(4)) {
            *word = word32(packed, 0);
        }
        Ok(())
    }
}
