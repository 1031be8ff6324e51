//! Zstandard, with reusable contexts and the smallest frame: no magic, content size, checksum or
//! dictionary id.

use crate::{
    codec::{Codec, CodecEntry, CodecId, Corrupt},
    Dictionaries, PAGE_BYTES,
};
use std::sync::Arc;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat};

impl CodecId {
    /// Level 1, magicless frames.
    pub const ZSTD: CodecId = CodecId(2);
    /// Level -1, magicless frames.
    pub const ZSTD_FAST: CodecId = CodecId(4);
    /// Level 1 with the first trained dictionary, magicless frames.
    pub const ZSTD_TRAINED: CodecId = CodecId(5);
    /// A high level, magicless frames.
    pub const ZSTD_STRONG: CodecId = CodecId(14);
    /// The same with the first trained dictionary.
    pub const ZSTD_STRONG_TRAINED: CodecId = CodecId(15);
}

/// The line of `zstd` in [`crate::CODECS`].
pub(crate) const ZSTD: CodecEntry = CodecEntry {
    id: CodecId::ZSTD,
    name: "zstd",
    help: "slow; small on most contents",
    compress_ns: 15_100,
    decompress_ns: 5_900,
    family: CodecId::ZSTD,
    untrained: None,
    make: |dictionaries| Box::new(Zstd::new(Arc::clone(dictionaries))),
};

/// The line of `zstd-fast` in [`crate::CODECS`].
pub(crate) const FAST: CodecEntry = CodecEntry {
    id: CodecId::ZSTD_FAST,
    name: "zstd-fast",
    help: "as small as zstd on most binary data, in two thirds of the time; poor on text",
    compress_ns: 9_900,
    decompress_ns: 4_000,
    ..ZSTD
};

/// The line of `zstd-trained` in [`crate::CODECS`].
pub(crate) const TRAINED: CodecEntry = CodecEntry {
    id: CodecId::ZSTD_TRAINED,
    name: "zstd-trained",
    help: "zstd with a dictionary trained on the tree's own pages; zstd until there is one",
    compress_ns: 12_800,
    decompress_ns: 5_100,
    untrained: Some(CodecId::ZSTD),
    ..ZSTD
};

/// The line of `zstd-strong` in [`crate::CODECS`].
pub(crate) const STRONG: CodecEntry = CodecEntry {
    id: CodecId::ZSTD_STRONG,
    name: "zstd-strong",
    help: "zstd at a high level: a little smaller, several times slower to compress",
    compress_ns: 306_600,
    decompress_ns: 6_200,
    ..ZSTD
};

/// The line of `zstd-strong-trained` in [`crate::CODECS`].
pub(crate) const STRONG_TRAINED: CodecEntry = CodecEntry {
    id: CodecId::ZSTD_STRONG_TRAINED,
    name: "zstd-strong-trained",
    help: "the same with such a dictionary: the smallest",
    compress_ns: 202_700,
    decompress_ns: 6_100,
    untrained: Some(CodecId::ZSTD_STRONG),
    ..ZSTD
};

/// The level of `zstd`. Higher ones cost 2 to 10 times the time for a few percent on units this
/// small.
const LEVEL: i32 = 1;
/// The level of `zstd-fast`, which leaves out the Huffman coding of literals. Pages of SQLite,
/// CPython and records become 0.287, 0.166, 0.133 of their size in 13.4, 8.8, 8.6 us and come back
/// in 4.9, 3.7, 2.5; level 1: 0.277, 0.160, 0.133 in 18.1, 13.6, 12.3 us, and back in 7.1, 5.3,
/// 2.7. But text: 0.32 instead of 0.24.
const FAST_LEVEL: i32 = -1;

/// The level of `zstd-strong`, by the heaps of seven programs (pages without one of a single word).
/// Ratio with a dictionary, and without: level 1 0.260, 0.236; 3 0.253, 0.237; 6 0.222, 0.232; 9
/// 0.220, 0.232; 12 0.215, 0.220; 15 0.206, 0.215; 19 0.204, 0.214. Without, in units of 16 and 64
/// KiB: level 1 0.212, 0.206; 6 0.208, 0.205; 12 0.196, 0.198; 19 0.188, 0.176. Level 12 takes
/// about three times as long as 6, and 19 three to four times as long as 12, for a few percent.
const STRONG_LEVEL: i32 = 12;

/// All contexts are made at their first use: most threads need one, and they take hundreds of KiB.
struct Zstd {
    plain: Writer,
    fast: Writer,
    strong: Writer,
    trained: Trained,
    strong_trained: Trained,
    reader: Option<DCtx<'static>>,
    /// Behind the contexts that refer to them, so that it is dropped after them.
    dictionaries: Arc<Dictionaries>,
}

/// Two contexts, because zstd frees and re-makes the memory of one that was made for much longer
/// inputs.
struct Writer {
    level: i32,
    page: Option<CCtx<'static>>,
    unit: Option<CCtx<'static>>,
}

impl Writer {
    fn new(level: i32) -> Writer {
        Writer { level, page: None, unit: None }
    }

    fn context(&mut self, len: usize) -> &mut CCtx<'static> {
        let context = if len <= PAGE_BYTES { &mut self.page } else { &mut self.unit };
        context.get_or_insert_with(|| writer(self.level))
    }
}

/// For pages with a dictionary: the context, and which dictionary it refers to.
struct Trained {
    level: i32,
    context: Option<(usize, CCtx<'static>)>,
}

impl Trained {
    /// The context that refers to this dictionary; `None` if there is no such dictionary.
    fn context(&mut self, dictionaries: &Dictionaries, number: usize) -> Option<&mut CCtx<'static>> {
        let dictionary = dictionaries.get(number)?;
        let (known, context) = self.context.get_or_insert_with(|| (usize::MAX, writer(self.level)));
        if *known != number {
            let digested = match self.level {
                STRONG_LEVEL => dictionary.strong(STRONG_LEVEL),
                _ => &dictionary.write,
            };
            // The set keeps it in place as long as the context is there.
            context.ref_cdict(digested).ok()?;
            *known = number;
        }
        Some(context)
    }
}

impl Zstd {
    fn new(dictionaries: Arc<Dictionaries>) -> Zstd {
        let [plain, fast, strong] = [LEVEL, FAST_LEVEL, STRONG_LEVEL].map(Writer::new);
        let [trained, strong_trained] = [LEVEL, STRONG_LEVEL].map(|level| Trained { level, context: None });
        Zstd { plain, fast, strong, trained, strong_trained, reader: None, dictionaries }
    }
}

fn writer(level: i32) -> CCtx<'static> {
    let mut context = CCtx::create();
    for parameter in [
        CParameter::CompressionLevel(level),
        CParameter::Format(FrameFormat::Magicless),
        CParameter::ContentSizeFlag(false),
        CParameter::ChecksumFlag(false),
        CParameter::DictIdFlag(false),
    ] {
        context.set_parameter(parameter).expect("parameter known to the bundled zstd");
    }
    context
}

fn reader() -> DCtx<'static> {
    let mut context = DCtx::create();
    context.set_parameter(DParameter::Format(FrameFormat::Magicless)).expect("magicless frames");
    context
}

impl Codec for Zstd {
    fn compress(&mut self, id: CodecId, src: &[u8], dst: &mut [u8], limit: usize) -> Option<usize> {
        let strong = id == CodecId::ZSTD_STRONG || STRONG_TRAINED.ids().contains(&id.0);
        let context = match id.dictionary() {
            Some(number) if src.len() <= PAGE_BYTES => {
                let trained = if strong { &mut self.strong_trained } else { &mut self.trained };
                trained.context(&self.dictionaries, number)?
            }
            // What is long enough needs no dictionary, and can be read with it all the same.
            Some(number) if self.dictionaries.get(number).is_none() => return None,
            None if id == CodecId::ZSTD_FAST => self.fast.context(src.len()),
            _ if strong => self.strong.context(src.len()),
            _ => self.plain.context(src.len()),
        };
        // An error here is "does not fit"; compress2 starts a new session each time.
        context.compress2(&mut dst[..limit - 1], src).ok()
    }

    fn decompress(&mut self, id: CodecId, src: &[u8], dst: &mut [u8]) -> Result<(), Corrupt> {
        let reader = self.reader.get_or_insert_with(reader);
        let result = match id.dictionary() {
            Some(number) => {
                let dictionary = self.dictionaries.get(number).ok_or(Corrupt)?;
                reader.decompress_using_ddict(dst, src, &dictionary.read)
            }
            None => reader.decompress(dst, src),
        };
        match result {
            Ok(len) if len == dst.len() => Ok(()),
            _ => Err(Corrupt),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_UNIT;

    #[test]
    #[cfg_attr(miri, ignore = "foreign code")]
    fn contexts_keep_their_memory() {
        let mut zstd = Zstd::new(Arc::default());
        let sizes = |z: &Zstd| [&z.plain.page, &z.plain.unit].map(|context| context.as_ref().map_or(0, |c| c.sizeof()));
        let src: Vec<u8> = (0..MAX_UNIT).map(|i| ((i * i) >> 7) as u8).collect();
        let mut dst = vec![0; MAX_UNIT];
        for len in [PAGE_BYTES, MAX_UNIT] {
            zstd.compress(CodecId::ZSTD, &src[..len], &mut dst, MAX_UNIT);
        }
        let before = sizes(&zstd);
        for (len, times) in [(PAGE_BYTES, 500), (MAX_UNIT, 20), (8, 500), (PAGE_BYTES, 500)] {
            for _ in 0..times {
                zstd.compress(CodecId::ZSTD, &src[..len], &mut dst, MAX_UNIT);
                assert_eq!(sizes(&zstd), before, "length {len}");
            }
        }
    }
}
