//! LZ4 blocks by the reference C library, with a reusable external state.
//!
//! Why C: measured on 4 KiB pages, `lz4_flex` compresses as fast (within 10 % either way) and
//! decompresses most pages as fast, but pages of long runs 2 to 30 times slower; its block API
//! allocates the hash table on each call and wants a worst-case output buffer. Here the state is
//! ours, and the output bound is the caller's limit.

#![allow(unsafe_code)] // foreign functions

use crate::codec::{Codec, CodecEntry, CodecId, Corrupt};
use std::os::raw::{c_char, c_int, c_void};

impl CodecId {
    /// LZ4 block format, without a header.
    pub const LZ4: CodecId = CodecId(1);
}

/// The line of `lz4` in [`crate::CODECS`].
pub(crate) const ENTRY: CodecEntry = CodecEntry {
    id: CodecId::LZ4,
    name: "lz4",
    help: "fast; good on text",
    compress_ns: 4_900,
    decompress_ns: 1_400,
    family: CodecId::LZ4,
    untrained: None,
    make: |_| Box::new(Lz4::new()),
};

/// Bytes of the external state: `LZ4_sizeofState()` of every 1.x release is 16 KiB plus a few
/// words. Checked in `new`.
const STATE_WORDS: usize = (16 * 1024 + 128) / 8;

/// Search effort given up per step; 1 is LZ4's default.
const ACCELERATION: c_int = 1;

// Stable API of liblz4 (lz4.h, "Advanced Functions"), but not declared by lz4-sys.
extern "C" {
    fn LZ4_sizeofState() -> c_int;
    fn LZ4_compress_fast_extState(
        state: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        dst_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
}

struct Lz4 {
    /// `u64` for the 8-byte alignment that LZ4 asks for.
    state: Box<[u64; STATE_WORDS]>,
}

impl Lz4 {
    fn new() -> Lz4 {
        // SAFETY: takes no argument and only returns a constant.
        let need = unsafe { LZ4_sizeofState() };
        assert!(need > 0 && need as usize <= STATE_WORDS * 8, "LZ4 state grew to {need} bytes");
        Lz4 { state: Box::new([0; STATE_WORDS]) }
    }
}

impl Codec for Lz4 {
    fn compress(&mut self, _: CodecId, src: &[u8], dst: &mut [u8], limit: usize) -> Option<usize> {
        let room = &mut dst[..limit - 1];
        // SAFETY: state is aligned and long enough (checked in `new`) and is initialised by the
        // call; both buffers are passed with their true lengths, which fit c_int because units are
        // at most 64 KiB.
        let len = unsafe {
            LZ4_compress_fast_extState(
                self.state.as_mut_ptr().cast(),
                src.as_ptr().cast(),
                room.as_mut_ptr().cast(),
                c_int::try_from(src.len()).ok()?,
                c_int::try_from(room.len()).ok()?,
                ACCELERATION,
            )
        };
        usize::try_from(len).ok().filter(|&len| len > 0)
    }

    fn decompress(&mut self, _: CodecId, src: &[u8], dst: &mut [u8]) -> Result<(), Corrupt> {
        decode(src, dst)
    }
}

/// Fills `dst` exactly from a block of LZ4, whoever made it.
pub(crate) fn decode(src: &[u8], dst: &mut [u8]) -> Result<(), Corrupt> {
    let src_len = c_int::try_from(src.len()).map_err(|_| Corrupt)?;
    let dst_len = c_int::try_from(dst.len()).map_err(|_| Corrupt)?;
    // SAFETY: the bounded decoder reads at most src_len and writes at most dst_len bytes whatever
    // src holds.
    let len = unsafe { lz4_sys::LZ4_decompress_safe(src.as_ptr().cast(), dst.as_mut_ptr().cast(), src_len, dst_len) };
    if len == dst_len {
        Ok(())
    } else {
        Err(Corrupt)
    }
}
