//! The table of codecs and the per-thread [`Worker`] that runs them.

use crate::{lz4::Lz4, word_mask::WordMask, zstd::Zstd, MAX_UNIT};

/// One codec with its scratch memory. Object-safe; a virtual call is noise beside the work.
pub(crate) trait Codec: Send {
    /// Compresses `src` into `dst` in fewer than `limit` bytes, or gives up. Never allocates.
    ///
    /// [`Worker`] has checked `src.len() <= MAX_UNIT`, a multiple of 8, not 0, and `0 < limit <= dst.len()`.
    fn compress(&mut self, src: &[u8], dst: &mut [u8], limit: usize) -> Option<usize>;

    /// Fills `dst` exactly from `src`, which may be anything at all.
    fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), Corrupt>;
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

    /// The name used in schemes and statistics, `None` if no such codec exists.
    pub fn name(self) -> Option<&'static str> {
        name(self)
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
    make: fn() -> Box<dyn Codec>,
}

/// Every codec there is. Order is that of help texts; identity is the id.
pub static CODECS: &[CodecEntry] = &[
    CodecEntry { id: CodecId::LZ4, name: "lz4", about: "general purpose, fast to decompress", make: Lz4::boxed },
    CodecEntry { id: CodecId::ZSTD, name: "zstd", about: "best ratio, several times slower", make: Zstd::boxed },
    CodecEntry {
        id: CodecId::ZSTD_FAST,
        name: "zstd-fast",
        about: "as small as zstd on most binary data, in two thirds of the time",
        make: Zstd::boxed_fast,
    },
    CodecEntry {
        id: CodecId::WORD_MASK,
        name: "word-mask",
        about: "integers, pointers, heaps: fastest; weak on text",
        make: WordMask::boxed,
    },
];

/// The codec of this name.
pub fn by_name(name: &str) -> Option<CodecId> {
    CODECS.iter().find(|c| c.name == name).map(|c| c.id)
}

/// The name of this codec.
pub fn name(id: CodecId) -> Option<&'static str> {
    CODECS.iter().find(|c| c.id == id).map(|c| c.name)
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
    /// Indexed by id, so that a lookup on the fault path is one bounds check.
    codecs: Box<[Option<Box<dyn Codec>>]>,
}

impl Worker {
    /// With every codec.
    pub fn new() -> Worker {
        let top = CODECS.iter().map(|c| c.id.0).max().unwrap_or(0);
        let mut codecs: Vec<Option<Box<dyn Codec>>> = (0..=top).map(|_| None).collect();
        for entry in CODECS {
            codecs[usize::from(entry.id.0)] = Some((entry.make)());
        }
        Worker { codecs: codecs.into_boxed_slice() }
    }

    /// Compresses `src` into the start of `dst` and returns the compressed length in bytes, which is `< limit`.
    ///
    /// `None`: `src` did not get below `limit` bytes (what `dst` then holds is unspecified).
    ///
    /// # Panics
    ///
    /// Programmer errors: an unknown `codec`, `dst.len() < limit`, or `src` longer than [`MAX_UNIT`] or no multiple
    /// of 8 bytes.
    pub fn compress(&mut self, codec: CodecId, src: &[u8], dst: &mut [u8], limit: usize) -> Option<usize> {
        assert!(src.len() <= MAX_UNIT && src.len() % 8 == 0, "unit of {} bytes", src.len());
        assert!(limit <= dst.len(), "limit {limit} beyond a buffer of {} bytes", dst.len());
        let codec = self.find(codec).expect("unknown codec");
        if src.is_empty() || limit == 0 {
            return None;
        }
        let len = codec.compress(src, dst, limit)?;
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
        self.find(codec).ok_or(Corrupt)?.decompress(src, dst)
    }

    fn find(&mut self, id: CodecId) -> Option<&mut Box<dyn Codec>> {
        self.codecs.get_mut(usize::from(id.0))?.as_mut()
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
        let ids = [CodecId::LZ4, CodecId::ZSTD, CodecId::WORD_MASK, CodecId::ZSTD_FAST];
        assert_eq!(ids.map(|id| id.0), [1, 2, 3, 4]);
    }
}
