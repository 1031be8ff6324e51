//! Zstandard, with reusable contexts and the smallest frame: no magic, content size, checksum or dictionary id.

use crate::{
    codec::{Codec, Corrupt},
    PAGE,
};
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat};

/// The level of `zstd`. Higher ones cost 2 to 10 times the time for a few percent on units this small.
const LEVEL: i32 = 1;
/// The level of `zstd-fast`, which leaves out the Huffman coding of literals. Pages of SQLite, CPython and records become
/// 0.287, 0.166, 0.133 of their size in 13.4, 8.8, 8.6 us and come back in 4.9, 3.7, 2.5; level 1: 0.277, 0.160, 0.133 in 18.1,
/// 13.6, 12.3 us, and back in 7.1, 5.3, 2.7. But text: 0.32 instead of 0.24.
const FAST_LEVEL: i32 = -1;

pub(crate) struct Zstd {
    level: i32,
    /// Two contexts, because zstd frees and re-makes the memory of one that was made for much longer inputs. All three
    /// are made at their first use: most threads need one, and they take hundreds of KiB.
    page: Option<CCtx<'static>>,
    unit: Option<CCtx<'static>>,
    reader: Option<DCtx<'static>>,
}

impl Zstd {
    pub(crate) fn boxed() -> Box<dyn Codec> {
        Box::new(Zstd::new(LEVEL))
    }

    pub(crate) fn boxed_fast() -> Box<dyn Codec> {
        Box::new(Zstd::new(FAST_LEVEL))
    }

    fn new(level: i32) -> Zstd {
        Zstd { level, page: None, unit: None, reader: None }
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
    fn compress(&mut self, src: &[u8], dst: &mut [u8], limit: usize) -> Option<usize> {
        let context = if src.len() <= PAGE { &mut self.page } else { &mut self.unit };
        let context = context.get_or_insert_with(|| writer(self.level));
        // An error here is "does not fit"; compress2 starts a new session each time.
        context.compress2(&mut dst[..limit - 1], src).ok()
    }

    fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), Corrupt> {
        match self.reader.get_or_insert_with(reader).decompress(dst, src) {
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
        let mut zstd = Zstd::new(LEVEL);
        let sizes = |z: &Zstd| [&z.page, &z.unit].map(|context| context.as_ref().map_or(0, |c| c.sizeof()));
        let src: Vec<u8> = (0..MAX_UNIT).map(|i| ((i * i) >> 7) as u8).collect();
        let mut dst = vec![0; MAX_UNIT];
        for len in [PAGE, MAX_UNIT] {
            zstd.compress(&src[..len], &mut dst, MAX_UNIT);
        }
        let before = sizes(&zstd);
        for (len, times) in [(PAGE, 500), (MAX_UNIT, 20), (8, 500), (PAGE, 500)] {
            for _ in 0..times {
                zstd.compress(&src[..len], &mut dst, MAX_UNIT);
                assert_eq!(sizes(&zstd), before, "length {len}");
            }
        }
    }
}
