//! An example of a new codec that only tests have: this file and its line in `CODECS`. It writes a
//! run of equal bytes as a length of at most 255 and the byte.
//!
//! A test of `memfit-core` includes this file, so it names the crate from outside.

use memfit_codec::{Codec, CodecEntry, CodecId, Corrupt};

pub(crate) const ENTRY: CodecEntry = CodecEntry {
    id: CodecId(31),
    name: "dummy",
    help: "counts equal bytes in a row",
    compress_ns: 9_000,
    decompress_ns: 1_000,
    family: CodecId(31),
    untrained: None,
    make: |_| Box::new(Dummy),
};

struct Dummy;

impl Codec for Dummy {
    fn compress(&mut self, _: CodecId, src: &[u8], dst: &mut [u8], limit: usize) -> Option<usize> {
        let runs = src.chunk_by(|a, b| a == b).flat_map(|equal| equal.chunks(255));
        let mut len = 0;
        for run in runs {
            dst[..limit - 1].get_mut(len..len + 2)?.copy_from_slice(&[run.len() as u8, run[0]]);
            len += 2;
        }
        Some(len)
    }

    fn decompress(&mut self, _: CodecId, src: &[u8], dst: &mut [u8]) -> Result<(), Corrupt> {
        let mut rest = dst;
        for run in src.chunks(2) {
            let &[count, byte] = run else { return Err(Corrupt) };
            let (filled, after) = rest.split_at_mut_checked(usize::from(count)).ok_or(Corrupt)?;
            filled.fill(byte);
            rest = after;
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(Corrupt)
        }
    }
}
