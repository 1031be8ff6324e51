//! LZO1X-1 of the C library, if liblzo2 is installed: for comparison only. memfit does not use it.

#![allow(unsafe_code)] // foreign functions

use std::ffi::{c_char, c_int, c_void, CStr};

extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_NOW: c_int = 2;
/// `LZO1X_1_MEM_COMPRESS` is 16384 pointers.
const WORK_WORDS: usize = 16384;

type Compress = unsafe extern "C" fn(*const u8, usize, *mut u8, *mut usize, *mut c_void) -> c_int;
type Decompress = unsafe extern "C" fn(*const u8, usize, *mut u8, *mut usize, *mut c_void) -> c_int;

/// The library and its working memory.
pub struct LibLzo {
    compress: Compress,
    decompress: Decompress,
    work: Vec<u64>,
    room: Vec<u8>,
}

impl LibLzo {
    /// `None` if the library is not installed.
    pub fn open() -> Option<LibLzo> {
        // SAFETY: terminated strings; loading this library runs no code of ours.
        let library = unsafe { dlopen(c"liblzo2.so.2".as_ptr(), RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        let symbol = |name: &CStr| {
            // SAFETY: an open library and a terminated string.
            let found = unsafe { dlsym(library, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        let (compress, decompress) = (symbol(c"lzo1x_1_compress")?, symbol(c"lzo1x_decompress_safe")?);
        // SAFETY: lzo1x.h declares both so; lzo_uint is as long as a pointer on 64-bit Linux.
        let (compress, decompress) = unsafe {
            (
                std::mem::transmute::<*mut c_void, Compress>(compress),
                std::mem::transmute::<*mut c_void, Decompress>(decompress),
            )
        };
        Some(LibLzo { compress, decompress, work: vec![0; WORK_WORDS], room: Vec::new() })
    }

    /// Compresses `src`; the bytes are valid until the next call.
    pub fn compress(&mut self, src: &[u8]) -> &[u8] {
        // The library's worst case.
        self.room.resize(src.len() + src.len() / 16 + 64 + 3, 0);
        let mut len = 0;
        // SAFETY: the buffers have the lengths given and that of the worst case; `work` has the
        // size that LZO1X-1 needs.
        let result = unsafe {
            (self.compress)(src.as_ptr(), src.len(), self.room.as_mut_ptr(), &mut len, self.work.as_mut_ptr().cast())
        };
        assert_eq!(result, 0, "LZO1X-1 always succeeds");
        &self.room[..len]
    }

    /// Whether `src` restores exactly `dst.len()` bytes, into `dst`.
    pub fn decompress(&self, src: &[u8], dst: &mut [u8]) -> bool {
        let mut len = dst.len();
        // SAFETY: the bounded decoder reads and writes within the lengths given.
        let result =
            unsafe { (self.decompress)(src.as_ptr(), src.len(), dst.as_mut_ptr(), &mut len, std::ptr::null_mut()) };
        result == 0 && len == dst.len()
    }
}
