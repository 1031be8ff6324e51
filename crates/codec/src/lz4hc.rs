//! LZ4 blocks by the slower search of the reference C library (`LZ4_compress_HC`): smaller, and as
//! fast to decompress.

#![allow(unsafe_code)] // foreign functions

use crate::{
    codec::{Codec, CodecEntry, CodecId, Corrupt},
    lz4,
};
use std::os::raw::{c_char, c_int, c_void};

/// The line of `lz4hc` in [`crate::CODECS`].
pub(crate) const ENTRY: CodecEntry = CodecEntry {
    id: CodecId(8),
    name: "lz4hc",
    help: "lz4 by a slow search: smaller, as fast to decompress",
    compress_ns: 55_800,
    decompress_ns: 1_200,
    family: CodecId(8),
    untrained: None,
    make: |_| Box::new(Lz4Hc { state: None }),
};

/// The library's default, and the kernel's: hash chains of up to 256 candidates.
const LEVEL: c_int = 9;

// Stable API of liblz4, except `fastReset`, which static builds such as lz4-sys's export; lz4-sys
// does not declare it.
extern "C" {
    fn LZ4_sizeofStateHC() -> c_int;
    fn LZ4_initStreamHC(buffer: *mut c_void, size: usize) -> *mut c_void;
    fn LZ4_compress_HC_extStateHC_fastReset(
        state: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        dst_capacity: c_int,
        level: c_int,
    ) -> c_int;
}

struct Lz4Hc {
    /// 256 KiB, made by the first compression; `u64` for the alignment that LZ4 asks for.
    state: Option<Box<[u64]>>,
}

fn new_state() -> Box<[u64]> {
    // SAFETY: takes no argument and only returns a constant.
    let bytes = unsafe { LZ4_sizeofStateHC() };
    let mut state = vec![0u64; usize::try_from(bytes).expect("a size").div_ceil(8)].into_boxed_slice();
    // SAFETY: the buffer has the length given, at least what the library asks for, and is aligned.
    let made = unsafe { LZ4_initStreamHC(state.as_mut_ptr().cast(), state.len() * 8) };
    assert!(!made.is_null(), "LZ4 refuses a state of {bytes} bytes");
    state
}

impl Codec for Lz4Hc {
    fn compress(&mut self, _: CodecId, src: &[u8], dst: &mut [u8], limit: usize) -> Option<usize> {
        let state = self.state.get_or_insert_with(new_state);
        let room = &mut dst[..limit - 1];
        // SAFETY: `state` was initialised by the library and is used by nobody else (what it
        // remembers of earlier buffers it does not follow: each call starts anew); both buffers are
        // passed with their true lengths.
        let len = unsafe {
            LZ4_compress_HC_extStateHC_fastReset(
                state.as_mut_ptr().cast(),
                src.as_ptr().cast(),
                room.as_mut_ptr().cast(),
                c_int::try_from(src.len()).ok()?,
                c_int::try_from(room.len()).ok()?,
                LEVEL,
            )
        };
        usize::try_from(len).ok().filter(|&len| len > 0)
    }

    fn decompress(&mut self, _: CodecId, src: &[u8], dst: &mut [u8]) -> Result<(), Corrupt> {
        lz4::decode(src, dst)
    }
}
