//! The trait and entry of a codec, and the per-thread [`Worker`] that runs all codecs.

use crate::{Dictionaries, CODECS, DICTIONARIES_MAX, MAX_UNIT};
use std::ops::Range;
use std::sync::Arc;

/// One codec with its scratch memory. Object-safe; a virtual call is noise beside the work.
pub trait Codec: Send {
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
    /// This codec with the newest of `count` dictionaries, if it needs one; as long as there is
    /// none, its relative that needs none.
    pub fn newest(self, count: usize) -> CodecId {
        match (entry(self).and_then(|entry| entry.untrained), count) {
            (None, _) => self,
            (Some(relative), 0) => relative,
            (Some(_), _) => self.with(count - 1),
        }
    }

    /// This codec of the first dictionary with another dictionary.
    pub fn with(self, dictionary: usize) -> CodecId {
        assert!(dictionary < DICTIONARIES_MAX, "dictionary {dictionary}");
        CodecId(self.0 + dictionary as u8)
    }

    /// Which dictionary it needs, if any.
    pub(crate) fn dictionary(self) -> Option<usize> {
        let entry = entry(self)?;
        entry.untrained.map(|_| usize::from(self.0 - entry.id.0))
    }

    /// Whether it is one of zstd's: pages that it compresses are samples for a dictionary.
    pub fn is_zstd(self) -> bool {
        entry(self).is_some_and(|entry| entry.family == CodecId::ZSTD)
    }

    /// The name used in schemes and statistics, `None` if no such codec exists. All dictionaries of
    /// a codec share a name.
    pub fn name(self) -> Option<&'static str> {
        entry(self).map(|entry| entry.name)
    }
}

/// One entry of [`CODECS`]. Names, help texts, columns and costs elsewhere come from it.
pub struct CodecEntry {
    /// Stable number.
    pub id: CodecId,
    /// Stable name.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Time to compress a page, ns, for the simulator: the mean of `make bench-codecs` over seven
    /// heaps.
    pub compress_ns: u64,
    /// Time to decompress a page, ns.
    pub decompress_ns: u64,
    /// The codec whose contexts and scratch memory it shares: itself, if it is the first of them.
    pub family: CodecId,
    /// For a codec with trained dictionaries, its relative without one. Such a codec has a number
    /// for each dictionary, and `id` is the first.
    pub untrained: Option<CodecId>,
    /// Makes the family with its scratch memory.
    pub make: fn(&Arc<Dictionaries>) -> Box<dyn Codec>,
}

impl CodecEntry {
    /// All numbers of the codec.
    pub const fn ids(&self) -> Range<u8> {
        let numbers = if self.untrained.is_some() { DICTIONARIES_MAX as u8 } else { 1 };
        self.id.0..self.id.0 + numbers
    }
}

impl PartialEq for CodecEntry {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for CodecEntry {}

impl std::fmt::Debug for CodecEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CodecEntry({})", self.name)
    }
}

/// The codec of this name.
pub fn find(name: &str) -> Option<&'static CodecEntry> {
    CODECS.iter().find(|entry| entry.name == name)
}

fn entry(id: CodecId) -> Option<&'static CodecEntry> {
    CODECS.iter().find(|entry| entry.ids().contains(&id.0))
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
/// use: at most about 1 MiB for the codecs that [`crate::CodecSelector`] weighs. A thread that only
/// decompresses needs less than a fifth of that.
pub struct Worker {
    /// Family of each id, so that a lookup on the fault path is two bounds checks.
    families: [Option<u8>; CODEC_IDS],
    /// Codecs by family, at the number of the family's first codec.
    codecs: [Option<Box<dyn Codec>>; CODEC_IDS],
    dictionaries: Arc<Dictionaries>,
}

/// One more than the largest number of a codec.
pub const CODEC_IDS: usize = {
    let (mut end, mut i) = (0, 0);
    while i < CODECS.len() {
        let ids = CODECS[i].ids();
        end = if ids.end > end { ids.end } else { end };
        i += 1;
    }
    end as usize
};

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
            assert_eq!(find(c.name), Some(c));
            assert_eq!(c.id.name(), Some(c.name));
            assert!(entry(c.family).is_some_and(|first| first.family == c.family), "family of {}", c.name);
            assert!(CODECS[..i].iter().all(|d| !d.ids().contains(&c.id.0) && d.name != c.name));
        }
        assert_eq!(find("none"), None);
        assert_eq!(CodecId(0).name(), None);
        assert_eq!(CodecId(CODEC_IDS as u8).name(), None);
    }

    /// Swap tiers and traces store these numbers, so they never change.
    #[test]
    fn numbers_never_change() {
        let names = [
            "lz4",
            "zstd",
            "word-mask",
            "zstd-fast",
            "zstd-trained",
            "zstd-trained",
            "zstd-trained",
            "lz4hc",
            "lzo",
            "deflate",
            "wkdm",
            "wk4x4",
            "lzrw1",
            "zstd-strong",
            "zstd-strong-trained",
            "zstd-strong-trained",
            "zstd-strong-trained",
        ];
        for (id, name) in (1..).zip(names) {
            assert_eq!(CodecId(id).name(), Some(name), "{id}");
        }
    }

    #[test]
    fn a_new_codec_is_found_and_works() {
        let id = find("dummy").expect("it has a line in CODECS").id;
        let (mut worker, mut packed, mut out) = (Worker::new(), [0; 4096], [0; 4096]);
        let page: [u8; 4096] = std::array::from_fn(|i| (i / 300) as u8);
        let len = worker.compress(id, &page, &mut packed, 4096).expect("it shrinks");
        assert_eq!((worker.decompress(id, &packed[..len], &mut out), out), (Ok(()), page));
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
            [CodecId(0), CodecId::LZ4, CodecId(4), CodecId(8), CodecId(14), CodecId(18)].map(CodecId::dictionary),
            [None; 6]
        );
        assert!(!CodecId::LZO.is_zstd() && CodecId::ZSTD_FAST.is_zstd());
    }
}
