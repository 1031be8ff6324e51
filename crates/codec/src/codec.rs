//! The table of codecs and the per-thread [`Worker`] that runs them.

use crate::{lz4::Lz4, word_mask::WordMask, zstd::Zstd, Dictionaries, DICTIONARIES_MAX, MAX_UNIT};
use std::sync::Arc;

/// One codec with its scratch memory. Object-safe; a virtual call is noise beside the work.
pub(crate) trait Codec: Send {
    /// Compresses `src` into `dst` in fewer than `limit` bytes, or gives up. Never allocates.
    ///
    /// `id` is one of those whose entries name this family. [`Worker`] has checked `src.len() <= MAX_UNIT`, a multiple of 8,
    /// not 0, and `0 < limit <= dst.len()`.
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
    /// Zstandard level 1 with the first trained dictionary, magicless frames. Those after it have the numbers after it.
    pub const ZSTD_TRAINED: CodecId = CodecId(5);

    /// Zstandard with this one of the trained dictionaries.
    pub fn trained(dictionary: usize) -> CodecId {
        assert!(dictionary < DICTIONARIES_MAX, "dictionary {dictionary}");
        CodecId(Self::ZSTD_TRAINED.0 + dictionary as u8)
    }

    /// Which dictionary it needs, if any.
    pub(crate) fn dictionary(self) -> Option<usize> {
        let number = usize::from(self.0.checked_sub(Self::ZSTD_TRAINED.0)?);
        (number < DICTIONARIES_MAX).then_some(number)
    }

    /// The name used in schemes and statistics, `None` if no such codec exists.
    pub fn name(self) -> Option<&'static str> {
        name(self)
    }
}

/// Codecs that share contexts and scratch memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Lz4,
    Zstd,
    WordMask,
}

impl Family {
    const COUNT: usize = 3;

    fn make(self, dictionaries: &Arc<Dictionaries>) -> Box<dyn Codec> {
        match self {
            Family::Lz4 => Lz4::boxed(),
            Family::Zstd => Zstd::boxed(Arc::clone(dictionaries)),
            Family::WordMask => WordMask::boxed(),
        }
    }
}

/// One line of [`CODECS`].
pub struct CodecEntry {
    /// Stable number.
    pub id: CodecId,
    /// Stable name.
    pub name: &'static str,
    /// One line of help.
    pub about: &'static str,
    family: Family,
}

/// Every codec there is. Order is that of help texts; identity is the id.
pub static CODECS: &[CodecEntry] = &[
    CodecEntry { id: CodecId::LZ4, name: "lz4", about: "general purpose, fast to decompress", family: Family::Lz4 },
    CodecEntry { id: CodecId::ZSTD, name: "zstd", about: "best ratio, several times slower", family: Family::Zstd },
    CodecEntry {
        id: CodecId::ZSTD_FAST,
        name: "zstd-fast",
        about: "as small as zstd on most binary data, in two thirds of the time",
        family: Family::Zstd,
    },
    CodecEntry {
        id: CodecId::ZSTD_TRAINED,
        name: "zstd-trained",
        about: "zstd with a dictionary trained on pages like these: smaller and faster than without",
        family: Family::Zstd,
    },
    CodecEntry {
        id: CodecId::WORD_MASK,
        name: "word-mask",
        about: "integers, pointers, heaps: fastest; weak on text",
        family: Family::WordMask,
    },
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
    let listed = if id.dictionary().is_some() { CodecId::ZSTD_TRAINED } else { id };
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

/// All contexts and scratch memory of one thread. What a codec needs is made when it is first used: at most about 1 MiB,
/// and a thread that only decompresses needs less than a fifth of that.
pub struct Worker {
    /// Family of each id, so that a lookup on the fault path is one bounds check.
    families: [Option<Family>; IDS],
    codecs: [Box<dyn Codec>; Family::COUNT],
}

/// One more than the largest id.
const IDS: usize = CodecId::ZSTD_TRAINED.0 as usize + DICTIONARIES_MAX;

impl Worker {
    /// With every codec but those that need a dictionary.
    pub fn new() -> Worker {
        Worker::with(&Arc::new(Dictionaries::new()))
    }

    /// With every codec; the dictionaries are those of the set now and later.
    pub fn with(dictionaries: &Arc<Dictionaries>) -> Worker {
        Worker {
            families: std::array::from_fn(|id| entry(CodecId(id as u8)).map(|entry| entry.family)),
            codecs: [Family::Lz4, Family::Zstd, Family::WordMask].map(|family| family.make(dictionaries)),
        }
    }

    /// Compresses `src` into the start of `dst` and returns the compressed length in bytes, which is `< limit`.
    ///
    /// `None`: `src` did not get below `limit` bytes (what `dst` then holds is unspecified), or the codec's dictionary is
    /// not there.
    ///
    /// # Panics
    ///
    /// Programmer errors: an unknown `codec`, `dst.len() < limit`, or `src` longer than [`MAX_UNIT`] or no multiple
    /// of 8 bytes.
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
    /// On [`Corrupt`] the contents of `dst` are unspecified. Damaged input may also decode to wrong bytes without an
    /// error: keep a [`crate::checksum`] where that matters.
    pub fn decompress(&mut self, codec: CodecId, src: &[u8], dst: &mut [u8]) -> Result<(), Corrupt> {
        if dst.is_empty() || dst.len() > MAX_UNIT || dst.len() % 8 != 0 {
            return Err(Corrupt);
        }
        self.find(codec).ok_or(Corrupt)?.decompress(codec, src, dst)
    }

    fn find(&mut self, id: CodecId) -> Option<&mut Box<dyn Codec>> {
        let family = (*self.families.get(usize::from(id.0))?)?;
        Some(&mut self.codecs[family as usize])
    }
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
        assert_eq!(CodecId::trained(DICTIONARIES_MAX - 1).name(), Some("zstd-trained"));
        assert_eq!(CodecId(IDS as u8).name(), None);
    }
}
