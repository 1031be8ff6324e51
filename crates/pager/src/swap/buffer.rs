//! Page-aligned memory for I/O that goes past the page cache.

use std::alloc::Layout;

/// What O_DIRECT wants offsets, lengths and buffers to be multiples of, bytes.
pub const ALIGN: usize = 4096;

/// A page-aligned buffer.
pub struct Aligned {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: owned memory.
unsafe impl Send for Aligned {}

impl Aligned {
    /// Zeroed bytes.
    pub fn new(bytes: usize) -> Aligned {
        // SAFETY: the layout is not of size zero; null is caught.
        let base = unsafe { std::alloc::alloc_zeroed(Layout::from_size_align(bytes, ALIGN).expect("a valid layout")) };
        assert!(!base.is_null(), "no memory for an I/O buffer");
        Aligned { base, bytes }
    }

    /// All of it.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: owned, initialised.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.bytes) }
    }

    /// How long it is, bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Where it is: for a device.
    pub fn base(&self) -> *mut u8 {
        self.base
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { std::alloc::dealloc(self.base, Layout::from_size_align(self.bytes, ALIGN).expect("a valid layout")) };
    }
}
