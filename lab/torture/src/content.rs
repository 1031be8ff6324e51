//! Contents of pages: a pure function of region key, page index, version and number of patches.
//!
//! Contents are not stored: a page's [`Tag`] and its few bytes of model are enough to build them
//! again.

use crate::rng::{mix, mix2, Rng};

/// Bytes in a page.
pub const PAGE: usize = 4096;
/// 8-byte words in a page.
pub const WORDS: usize = PAGE / 8;
/// After this many partial writes a page is rewritten whole, which bounds the cost of building it.
pub const MAX_PATCHES: u8 = 12;
/// Longest partial write.
pub const PATCH_BYTES: usize = 200;

/// Bytes of one page, aligned like one.
#[derive(Clone)]
#[repr(C, align(4096))]
pub struct PageBuf(pub [u64; WORDS]);

impl PageBuf {
    /// All zero.
    pub const fn zeroed() -> PageBuf {
        PageBuf([0; WORDS])
    }

    /// The bytes, in memory order.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: an array of u64 is PAGE initialised bytes without padding, and u8 has no
        // alignment.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), PAGE) }
    }

    /// The bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; every bit pattern is a valid u64; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), PAGE) }
    }

    /// Whether every byte is zero.
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|&w| w == 0)
    }
}

/// Identity of a page's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Key of the region in which the page was first written.
    pub region: u64,
    /// Index of the page in that region, unchanged by later splits and moves.
    pub page: u32,
    /// Number of the write; unique within a thread.
    pub version: u32,
}

impl Tag {
    fn seed(self) -> u64 {
        mix2(self.region, u64::from(self.page) << 32 | u64::from(self.version))
    }
}

/// Kind of contents. The kinds cover every way in which memfit stores a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// All zero.
    Zero,
    /// One 8-byte word repeated.
    Word,
    /// Numbers below 256 in 8-byte words.
    SmallInts,
    /// Addresses near each other, some null.
    Pointers,
    /// Texts from a small vocabulary.
    Text,
    /// Random and constant stretches alternate.
    HalfRandom,
    /// Incompressible.
    Random,
}

const KINDS: [Kind; 16] = [
    Kind::Zero,
    Kind::Word,
    Kind::Word,
    Kind::SmallInts,
    Kind::SmallInts,
    Kind::SmallInts,
    Kind::Pointers,
    Kind::Pointers,
    Kind::Pointers,
    Kind::Text,
    Kind::Text,
    Kind::Text,
    Kind::HalfRandom,
    Kind::HalfRandom,
    Kind::Random,
    Kind::Random,
];

/// The kind of a whole-page write: mostly the region's preferred kind, else any.
pub fn kind_for(tag: Tag) -> Kind {
    let own = tag.seed();
    let pick = if own % 4 == 0 { own >> 8 } else { mix(tag.region) };
    KINDS[(pick % 16) as usize]
}

const VOCABULARY: [&[u8; 8]; 16] = [
    b"the page",
    b" of the ",
    b"and then",
    b" memory ",
    b"is not a",
    b", which ",
    b"process ",
    b"to be in",
    b"for all ",
    b"kernel. ",
    b"with one",
    b"another ",
    b" budget ",
    b"written ",
    b"before: ",
    b"\nand so ",
];

fn text_word(bits: u64) -> u64 {
    u64::from_ne_bytes(*VOCABULARY[(bits >> 60) as usize])
}

/// Builds the page as it is after the whole-page write.
pub fn fill_base(buf: &mut PageBuf, tag: Tag, kind: Kind) {
    let seed = tag.seed();
    let mut rng = Rng::new(seed);
    let words = &mut buf.0;
    match kind {
        Kind::Zero => words.fill(0),
        Kind::Word => words.fill(seed),
        Kind::SmallInts => words.iter_mut().for_each(|w| *w = rng.next() & 0xFF),
        Kind::Pointers => {
            let base = 0x7F00_0000_0000 | (seed & 0xFF_FFF0_0000);
            words.iter_mut().for_each(|w| {
                let r = rng.next();
                *w = if r & 3 == 0 { 0 } else { base | (r >> 44 & 0xF_FFF0) };
            });
        }
        Kind::Text => words.iter_mut().for_each(|w| *w = text_word(rng.next())),
        Kind::HalfRandom => {
            words.iter_mut().enumerate().for_each(|(i, w)| *w = if i & 16 == 0 { rng.next() } else { seed });
        }
        Kind::Random => words.iter_mut().for_each(|w| *w = rng.next()),
    }
}

/// One partial write.
pub struct Patch {
    /// First byte in the page.
    pub offset: usize,
    len: usize,
    bytes: [u8; PATCH_BYTES],
}

impl Patch {
    /// The `n`-th patch of a page (counted from 1).
    pub fn new(tag: Tag, n: u8) -> Patch {
        let mut rng = Rng::new(mix2(tag.seed(), u64::from(n)));
        let len = rng.log_size(PATCH_BYTES);
        let offset = rng.below(PAGE - len + 1);
        let mut bytes = [0; PATCH_BYTES];
        for chunk in bytes[..len].chunks_mut(8) {
            chunk.copy_from_slice(&rng.next().to_ne_bytes()[..chunk.len()]);
        }
        Patch { offset, len, bytes }
    }

    /// The bytes to write at `offset`.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Writes the patch into a page image.
    pub fn apply(&self, buf: &mut PageBuf) {
        buf.bytes_mut()[self.offset..self.offset + self.len].copy_from_slice(self.bytes());
    }
}

/// Builds the page as it is after the whole-page write and `patches` partial writes.
pub fn fill(buf: &mut PageBuf, tag: Tag, kind: Kind, patches: u8) {
    fill_base(buf, tag, kind);
    for n in 1..=patches {
        Patch::new(tag, n).apply(buf);
    }
}

/// Word `index` of the stream `seed`: the contents of small objects (heap blocks, stack frames).
pub fn stream_word(seed: u64, index: usize) -> u64 {
    let kind = seed & 3;
    match kind {
        0 => mix2(seed, index as u64),
        1 => mix2(seed, index as u64) & 0x3F,
        2 => text_word(mix2(seed, index as u64)),
        _ => seed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: Tag = Tag { region: 0x1234_5678, page: 5, version: 9 };
    const ALL: [Kind; 7] =
        [Kind::Zero, Kind::Word, Kind::SmallInts, Kind::Pointers, Kind::Text, Kind::HalfRandom, Kind::Random];

    fn build(tag: Tag, kind: Kind, patches: u8) -> PageBuf {
        let mut buf = PageBuf([!0; WORDS]);
        fill(&mut buf, tag, kind, patches);
        buf
    }

    #[test]
    fn content_is_pure() {
        for kind in ALL {
            for patches in [0, 1, MAX_PATCHES] {
                assert_eq!(build(TAG, kind, patches).0, build(TAG, kind, patches).0);
            }
        }
    }

    #[test]
    fn every_part_of_the_tag_counts() {
        let others = [Tag { region: 1, ..TAG }, Tag { page: 6, ..TAG }, Tag { version: 10, ..TAG }];
        for kind in &ALL[1..] {
            for other in others {
                assert_ne!(build(TAG, *kind, 0).0, build(other, *kind, 0).0, "{kind:?}");
            }
        }
    }

    #[test]
    fn kinds_look_as_named() {
        assert!(build(TAG, Kind::Zero, 0).is_zero());
        assert!(!build(TAG, Kind::Zero, 1).is_zero());
        let word = build(TAG, Kind::Word, 0);
        assert!(word.0.iter().all(|&w| w == word.0[0]));
        assert!(build(TAG, Kind::SmallInts, 0).0.iter().all(|&w| w < 256));
        assert!(build(TAG, Kind::Pointers, 0).0.iter().all(|&w| w == 0 || w >> 40 == 0x7F));
        assert!(build(TAG, Kind::Text, 0).bytes().is_ascii());
    }

    #[test]
    fn all_kinds_are_chosen() {
        let mut seen = [0u32; 7];
        for region in 0..200 {
            for page in 0..20 {
                seen[kind_for(Tag { region, page, version: 1 }) as usize] += 1;
            }
        }
        assert!(seen.iter().all(|&n| n > 50), "{seen:?}");
    }

    #[test]
    fn patches_stay_inside_and_change_only_their_bytes() {
        for n in 1..=MAX_PATCHES {
            for page in 0..200 {
                let tag = Tag { page, ..TAG };
                let patch = Patch::new(tag, n);
                assert!(!patch.bytes().is_empty() && patch.offset + patch.bytes().len() <= PAGE);
                let (before, mut after) = (build(tag, Kind::Random, n - 1), build(tag, Kind::Random, n - 1));
                patch.apply(&mut after);
                let end = patch.offset + patch.bytes().len();
                assert_eq!(before.bytes()[..patch.offset], after.bytes()[..patch.offset]);
                assert_eq!(before.bytes()[end..], after.bytes()[end..]);
                assert_eq!(after.0, build(tag, Kind::Random, n).0);
            }
        }
    }
}
