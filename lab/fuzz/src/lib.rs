//! What the fuzz targets share.

use memfit_codec::PAGE_BYTES;
use std::ops::{Deref, DerefMut};
use std::ptr;

/// Bytes that end where the memory ends: the first access past them is a crash, also one by C code
/// that no sanitizer has seen. The byte before the first may be accessible.
pub struct Guarded {
    mapping: *mut u8,
    mapped: usize,
    offset: usize,
    len: usize,
}

impl Guarded {
    /// `len` zero bytes.
    pub fn new(len: usize) -> Guarded {
        let room = len.next_multiple_of(PAGE_BYTES);
        let mapped = room + PAGE_BYTES;
        // SAFETY: a new anonymous mapping, of which the last page loses its access.
        let mapping = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let mapping = libc::mmap(ptr::null_mut(), mapped, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(mapping, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(mapping.byte_add(room), PAGE_BYTES, libc::PROT_NONE), 0);
            mapping.cast()
        };
        Guarded { mapping, mapped, offset: room - len, len }
    }

    /// A copy.
    pub fn of(bytes: &[u8]) -> Guarded {
        let mut guarded = Guarded::new(bytes.len());
        guarded.copy_from_slice(bytes);
        guarded
    }

    /// Other contents and another length, in the same mapping, which must be large enough.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.mapped - PAGE_BYTES);
        (self.offset, self.len) = (self.mapped - PAGE_BYTES - len, len);
    }
}

impl Deref for Guarded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: inside the accessible part of the mapping, which lives as long as self.
        unsafe { std::slice::from_raw_parts(self.mapping.add(self.offset), self.len) }
    }
}

impl DerefMut for Guarded {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and self is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.add(self.offset), self.len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: our own mapping, no longer borrowed.
        unsafe { libc::munmap(self.mapping.cast(), self.mapped) };
    }
}

/// A page from a fuzzer's bytes. A control byte for each 32-bit word says what it is: zero, a word
/// from up to 63 words before, such a word with other low bytes, or a new one. So short inputs give
/// pages that compress, by every way that a coder may know. With 0xff in front the rest is the
/// page, as it is.
pub fn page(data: &[u8]) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    if let Some((0xff, raw)) = data.split_first() {
        let len = raw.len().min(PAGE_BYTES);
        page[..len].copy_from_slice(&raw[..len]);
        return page;
    }
    let mut bytes = data.iter().copied();
    for at in (0..PAGE_BYTES).step_by(4) {
        let Some(control) = bytes.next() else { break };
        let mut word = [0; 4];
        let back = usize::from(control >> 2) * 4;
        if control % 4 != 0 && control % 4 != 3 && (4..=at).contains(&back) {
            word.copy_from_slice(&page[at - back..at - back + 4]);
        }
        let fresh = match control % 4 {
            2 => 1 + at / 4 % 2,
            3 => 4,
            _ => 0,
        };
        word.iter_mut().take(fresh).for_each(|byte| *byte = bytes.next().unwrap_or(0));
        page[at..at + 4].copy_from_slice(&word);
    }
    page
}
