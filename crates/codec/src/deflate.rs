//! DEFLATE (RFC 1951), raw, by libdeflate: LZ77 and Huffman codes, on a whole unit at a time.
//!
//! Why libdeflate: it takes whole buffers, stops where the room ends, decodes into an exact slice,
//! and allocates only when its contexts are made; zlib's relatives (zlib-rs, miniz_oxide) stream.

use crate::codec::{Codec, CodecEntry, CodecId, Corrupt};
use libdeflater::{CompressionLvl, Compressor, Decompressor};

/// The line of `deflate` in [`crate::CODECS`].
pub(crate) const ENTRY: CodecEntry = CodecEntry {
    id: CodecId(10),
    name: "deflate",
    help: "Huffman codes: small, slow",
    compress_ns: 52_800,
    decompress_ns: 7_700,
    family: CodecId(10),
    untrained: None,
    make: |_| Box::new(Deflate { writer: None, reader: None }),
};

/// zlib's default, and the kernel's.
const LEVEL: i32 = 6;

/// Contexts are made at their first use.
struct Deflate {
    writer: Option<Compressor>,
    reader: Option<Decompressor>,
}

fn writer() -> Compressor {
    Compressor::new(CompressionLvl::new(LEVEL).expect("a level of libdeflate"))
}

impl Codec for Deflate {
    fn compress(&mut self, _: CodecId, src: &[u8], dst: &mut [u8], limit: usize) -> Option<usize> {
        // The only error is "does not fit".
        self.writer.get_or_insert_with(writer).deflate_compress(src, &mut dst[..limit - 1]).ok()
    }

    fn decompress(&mut self, _: CodecId, src: &[u8], dst: &mut [u8]) -> Result<(), Corrupt> {
        match self.reader.get_or_insert_with(Decompressor::new).deflate_decompress(src, dst) {
            Ok(len) if len == dst.len() => Ok(()),
            _ => Err(Corrupt),
        }
    }
}
