//! The table of codecs and the per-thread [`Worker`] that runs them.

use crate::{
    deflate::Deflate, lz4::Lz4, lz4hc::Lz4Hc, lzo::Lzo, lzrw1::Lzrw1, wk4x4::Wk4x4, wkdm::WkDm, word_mask::WordMask,
    zstd::Zstd, Dictionaries, DICTIONARIES_MAX, MAX_UNIT,
};
use std::sync::Arc;

/// One codec with its scratch memory. Object-safe; a virtual call is noise beside the work.
pub(crate) trait Codec: Send {
    /// Compresses `src` into `dst` in fewer than `limit` bytes, or gives up. Never allocates.
    ///
    /// `id` is one of those whose entries name this family. [`Worker`] has checked `src.len() <=
    /// MAX_UNIT`, a multiple of 8, not 0, and `0 < limit <= dst.len()`.
    fn compress(&mut self, id: CodecId, src: &[u8], dst: &mut [u8], limit: usize) -> Option<usize>;

    /// Fills `dst` exactly from `src`, which may be anything at all.
    fn decompress(&mut self, id: CodecId, src: &[u8], dst: &mut [u8]) -> Result<(), Corrupt>;
}

/// Number of a codec as stored beside compressed bytes. Numbers are never reused; 0 is no codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodecId(pub u8);

impl CodecId {
    /// LZ4 block format, without a header.
    pub const LZ4: CodecId = CodecId(1);
    /// Zstandard level 1, magicless frames.
    pub const ZSTD: CodecId = CodecId(2);
    /// memfit's word-pattern coder.
    pub const WORD_MASK: CodecId = CodecId(3);
    /// Zstandard level -1, magicless frames.
    pub const ZSTD_FAST: CodecId = CodecId(4);
    /// Zstandard level 1 with the first trained dictionary, magicless frames. Those after it have
    /// the numbers after it.
    pub const ZSTD_TRAINED: CodecId = CodecId(5);
    /// LZ4 block format, by the slower search.
    pub const LZ4HC: CodecId = CodecId(8);
    /// LZO1X, without a header.
    pub const LZO: CodecId = CodecId(9);
    /// DEFLATE, raw.
    pub const DEFLATE: CodecId = CodecId(10);
    /// Wilson and Kaplan's direct-mapped coder.
    pub const WKDM: CodecId = CodecId(11);
    /// Wilson and Kaplan's set-associative coder.
    pub const WK4X4: CodecId = CodecId(12);
    /// Williams' LZRW1.
    pub const LZRW1: CodecId = CodecId(13);
    /// Zstandard at a high level, magicless frames.
    pub const ZSTD_STRONG: CodecId = CodecId(14);
    /// The same with the first trained dictionary. Those after it have the numbers after it.
    pub const ZSTD_STRONG_TRAINED: CodecId = CodecId(15);

    /// Zstandard with this one of the trained dictionaries.
    pub fn trained(dictionary: usize) -> CodecId {
        CodecId::ZSTD_TRAINED.with(dictionary)
    }

    /// This codec with the newest of `count` dictionaries, if it needs one; as long as there is
    /// none, its relative that needs none.
    pub fn newest(self, count: usize) -> CodecId {
        match (self, count) {
            (CodecId::ZSTD_TRAINED, 0) => CodecId::ZSTD,
            (CodecId::ZSTD_STRONG_TRAINED, 0) => CodecId::ZSTD_STRONG,
            (CodecId::ZSTD_TRAINED | CodecId::ZSTD_STRONG_TRAINED, _) => self.with(count - 1),
            _ => self,
        }
    }

    fn with(self, dictionary: usize) -> CodecId {
        assert!(dictionary < DICTIONARIES_MAX, "dictionary {dictionary}");
        CodecId(self.0 + dictionary as u8)
    }

    /// That of the first dictionary, if this is a codec with one.
    fn first_trained(self) -> Option<CodecId> {
        let of = |first: &CodecId| (first.0..first.0 + DICTIONARIES_MAX as u8).contains(&self.0);
        [CodecId::ZSTD_TRAINED, CodecId::ZSTD_STRONG_TRAINED].into_iter().find(of)
    }

    /// Which dictionary it needs, if any.
    pub(crate) fn dictionary(self) -> Option<usize> {
        Some(usize::from(self.0 - self.first_trained()?.0))
    }

    /// Whether it is zstd at the high level.
    pub(crate) fn is_strong(self) -> bool {
        self == CodecId::ZSTD_STRONG || self.first_trained() == Some(CodecId::ZSTD_STRONG_TRAINED)
    }

    /// Whether it is one of zstd's: pages that it compresses are samples for a dictionary.
    pub fn is_zstd(self) -> bool {
        entry(self).is_some_and(|entry| entry.family == CodecId::ZSTD)
    }

    /// The name used in schemes and statistics, `None` if no such codec exists.
    pub fn name(self) -> Option<&'static str> {
        name(self)
    }
}

/// Makes a codec with its scratch memory.
type Make = fn(&Arc<Dictionaries>) -> Box<dyn Codec>;

/// One line of [`CODECS`].
pub struct CodecEntry {
    /// Stable number.
    pub id: CodecId,
    /// Stable name.
    pub name: &'static str,
    /// One line of help.
    pub about: &'static str,
    /// The codec whose contexts and scratch memory it shares: itself, if it is the first of them.
    family: CodecId,
    make: Make,
}

const fn codec(id: CodecId, name: &'static str, about: &'static str, family: CodecId, make: Make) -> CodecEntry {
    CodecEntry { id, name, about, family, make }
}

/// Every codec there is. Order is that of help texts; identity is the id. Ratios and times: `make
/// bench-codecs`.
#[rustfmt::skip]
pub static CODECS: &[CodecEntry] = &[
    codec(CodecId::LZ4, "lz4", "general purpose, fast to decompress", CodecId::LZ4, |_| Lz4::boxed()),
    codec(CodecId::LZ4HC, "lz4hc", "lz4 by a slow search: smaller, as fast to decompress", CodecId::LZ4HC, |_| Lz4Hc::boxed()),
    codec(CodecId::LZO, "lzo", "general purpose, LZO1X as in the kernel", CodecId::LZO, |_| Lzo::boxed()),
    codec(CodecId::LZRW1, "lzrw1", "an early fast one, for comparison", CodecId::LZRW1, |_| Lzrw1::boxed()),
    codec(CodecId::DEFLATE, "deflate", "Huffman codes: small, slow", CodecId::DEFLATE, |_| Deflate::boxed()),
    codec(CodecId::ZSTD, "zstd", "small, several times slower than lz4", CodecId::ZSTD, Zstd::boxed),
    codec(CodecId::ZSTD_FAST, "zstd-fast", "as small as zstd on most binary data, in two thirds of the time",
        CodecId::ZSTD, Zstd::boxed),
    codec(CodecId::ZSTD_TRAINED, "zstd-trained",
        "zstd with a dictionary trained on pages like these: faster, and smaller on some", CodecId::ZSTD, Zstd::boxed),
    codec(CodecId::ZSTD_STRONG, "zstd-strong", "zstd at a high level, for what stays out long", CodecId::ZSTD, Zstd::boxed),
    codec(CodecId::ZSTD_STRONG_TRAINED, "zstd-strong-trained", "the same with a trained dictionary: the smallest",
        CodecId::ZSTD, Zstd::boxed),
    codec(CodecId::WORD_MASK, "word-mask", "integers, pointers, heaps: fastest; weak on text",
        CodecId::WORD_MASK, |_| WordMask::boxed()),
    codec(CodecId::WKDM, "wkdm", "words and pointers, for comparison", CodecId::WKDM, |_| WkDm::boxed()),
    codec(CodecId::WK4X4, "wk4x4", "words and pointers, for comparison: smaller and slower than wkdm",
        CodecId::WK4X4, |_| Wk4x4::boxed()),
];

/// The codec of this name.
pub fn by_name(name: &str) -> Option<CodecId> {
    CODECS.iter().find(|c| c.name == name).map(|c| c.id)
}

/// The name of this codec; all trained dictionaries share one.
pub fn name(id: CodecId) -> Option<&'static str> {
    entry(id).map(|c| c.name)
}

fn entry(id: CodecId) -> Option<&'static CodecEntry> {
    let listed = id.first_trained().unwrap_or(id);
    CODECS.iter().find(|c| c.id == listed)
}

/// Compressed bytes that no compressor made, or a wrong original length, or an unknown codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("compressed page is corrupt")
    }
}

impl std::error::Error for Corrupt {}

/// All contexts and scratch memory of one thread. Each codec's memory is allocated at its first
/// use: at most about 1 MiB for the codecs that [`crate::Aim`] weighs. A thread that only
/// decompresses needs less than a fifth of that.
pub struct Worker {
    /// Family of each id, so that a lookup on the fault path is two bounds checks.
    families: [Option<u8>; CODEC_IDS],
    /// Codecs by family, at the number of the family's first codec.
    codecs: [Option<Box<dyn Codec>>; CODEC_IDS],
    dictionaries: Arc<Dictionaries>,
}

/// One more than the largest number of a codec.
pub const CODEC_IDS: usize = CodecId::ZSTD_STRONG_TRAINED.0 as usize + DICTIONARIES_MAX;

impl Worker {
    /// With every codec but those that need a dictionary.
    pub fn new() -> Worker {
        Worker::with(&Arc::new(Dictionaries::new()))
    }

    /// With every codec; the dictionaries are those of the set now and later.
    pub fn with(dictionaries: &Arc<Dictionaries>) -> Worker {
        Worker {
            families: std::array::from_fn(|id| entry(CodecId(id as u8)).map(|entry| entry.family.0)),
            codecs: Default::default(),
            dictionaries: Arc::clone(dictionaries),
        }
    }

    /// Compresses `src` into the start of `dst` and returns the compressed length in bytes, which
    /// is `< limit`.
    ///
    /// `None`: the result would not be shorter than `limit` bytes (then the contents of `dst` are
    /// unspecified), or the codec's dictionary does not exist.
    ///
    /// # Panics
    ///
    /// Programmer errors: an unknown `codec`, `dst.len() < limit`, or `src` longer than
    /// [`MAX_UNIT`] or no multiple of 8 bytes.
    pub fn compress(&mut self, codec: CodecId, src: &[u8], dst: &mut [u8], limit: usize) -> Option<usize> {
        assert!(src.len() <= MAX_UNIT && src.len() % 8 == 0, "unit of {} bytes", src.len());
        assert!(limit <= dst.len(), "limit {limit} beyond a buffer of {} bytes", dst.len());
        let family = self.find(codec).expect("unknown codec");
        if src.is_empty() || limit == 0 {
            return None;
        }
        let len = family.compress(codec, src, dst, limit)?;
        assert!(len < limit, "codec broke its limit");
        Some(len)
    }

    /// Restores the original into `dst`, whose length is the exact original length in bytes.
    ///
    /// On [`Corrupt`] the contents of `dst` are unspecified. Damaged input may also decode to wrong
    /// bytes without an error: keep a checksum where that matters.
    pub fn decompress(&mut self, codec: CodecId, src: &[u8], dst: &mut [u8]) -> Result<(), Corrupt> {
        if dst.is_empty() || dst.len() > MAX_UNIT || dst.len() % 8 != 0 {
            return Err(Corrupt);
        }
        self.find(codec).ok_or(Corrupt)?.decompress(codec, src, dst)
    }

    #[inline]
    fn find(&mut self, id: CodecId) -> Option<&mut Box<dyn Codec>> {
        let family = (*self.families.get(usize::from(id.0))?)?;
        let made = self.codecs.get_mut(usize::from(family))?;
        Some(made.get_or_insert_with(|| make(CodecId(family), &self.dictionaries)))
    }
}

#[cold]
fn make(family: CodecId, dictionaries: &Arc<Dictionaries>) -> Box<dyn Codec> {
    (entry(family).expect("families are codecs").make)(dictionaries)
}

impl Default for Worker {
    fn default() -> Self {
        Worker::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_are_unique_and_found() {
        for (i, c) in CODECS.iter().enumerate() {
            assert!(c.id.0 > 0, "0 means no codec");
            assert_eq!(by_name(c.name), Some(c.id));
            assert_eq!(c.id.name(), Some(c.name));
            assert!(CODECS[..i].iter().all(|d| d.id != c.id && d.name != c.name));
        }
        assert_eq!(by_name("none"), None);
        assert_eq!(name(CodecId(0)), None);
        // Stored in swap tiers and traces: these numbers never change.
        let ids = [CodecId::LZ4, CodecId::ZSTD, CodecId::WORD_MASK, CodecId::ZSTD_FAST, CodecId::ZSTD_TRAINED];
        assert_eq!(ids.map(|id| id.0), [1, 2, 3, 4, 5]);
        let ids = [CodecId::LZ4HC, CodecId::LZO, CodecId::DEFLATE, CodecId::WKDM, CodecId::WK4X4, CodecId::LZRW1];
        assert_eq!(ids.map(|id| id.0), [8, 9, 10, 11, 12, 13]);
        assert_eq!([CodecId::ZSTD_STRONG, CodecId::ZSTD_STRONG_TRAINED].map(|id| id.0), [14, 15]);
        assert_eq!(CodecId(CODEC_IDS as u8).name(), None);
    }

    #[test]
    fn numbers_of_dictionaries() {
        for (first, without) in
            [(CodecId::ZSTD_TRAINED, CodecId::ZSTD), (CodecId::ZSTD_STRONG_TRAINED, CodecId::ZSTD_STRONG)]
        {
            assert_eq!(first.newest(0), without);
            assert_eq!(without.newest(2), without);
            for number in 0..DICTIONARIES_MAX {
                let id = first.newest(number + 1);
                assert_eq!((id.dictionary(), id.name()), (Some(number), first.name()));
                assert_eq!((id.0, id.is_zstd()), (first.0 + number as u8, true));
            }
        }
        assert_eq!(CodecId::LZ4.newest(1), CodecId::LZ4);
        assert_eq!(
            [CodecId(0), CodecId::LZ4, CodecId(4), CodecId::LZ4HC, CodecId(14), CodecId(18)].map(CodecId::dictionary),
            [None; 6]
        );
        assert!(!CodecId::LZO.is_zstd() && CodecId::ZSTD_FAST.is_zstd());
    }
}
