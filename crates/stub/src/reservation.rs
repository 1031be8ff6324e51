//! Addresses of the reservations that were not given out yet.
//!
//! The kernel has them mapped without access, but a program must not see them: where its range goes
//! beyond its own mapping, the result must be as for unmapped addresses. The functions here handle
//! the part of a range that is the program's, and report the rest as a hole. (A bare system call
//! still finds the reservation.)

use crate::access::changing;
use crate::exec::returned;
use crate::fills;
use crate::map::unused_in;
use crate::sys::{self, syscall, PAGE_BYTES};

const ENOMEM: isize = 12;
const EFAULT: isize = 14;

/// Makes a call for the part of a range that is the program's, and returns ENOMEM if the range goes
/// beyond it. For a range with a hole the kernel does the same, up to the hole.
pub fn up_to_unused(at: usize, bytes: usize, call: impl Fn(usize) -> isize) -> isize {
    let Some(unused) = unused_in(at, bytes) else { return call(bytes) };
    match if unused > at { call(unused - at) } else { 0 } {
        error @ ..0 => error,
        _ => -ENOMEM,
    }
}

/// A call that changes the access of a range, or seals it.
fn protect(at: usize, bytes: usize, call: impl Fn(usize) -> isize) -> isize {
    changing(|| up_to_unused(at, bytes, call))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(at: usize, bytes: usize, prot: i32) -> i32 {
    // SAFETY: forwards what the caller answers for; sets errno.
    unsafe { returned(protect(at, bytes, |bytes| syscall!(sys::MPROTECT, at, bytes, prot))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pkey_mprotect(at: usize, bytes: usize, prot: i32, key: i32) -> i32 {
    // SAFETY: as in `mprotect`.
    unsafe { returned(protect(at, bytes, |bytes| syscall!(sys::PKEY_MPROTECT, at, bytes, prot, key))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mseal(at: usize, bytes: usize, flags: usize) -> i32 {
    // SAFETY: as in `mprotect`.
    unsafe { returned(protect(at, bytes, |bytes| syscall!(sys::MSEAL, at, bytes, flags))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlock(at: usize, bytes: usize) -> i32 {
    fills::begin(bytes);
    // SAFETY: as in `mprotect`.
    unsafe { returned(up_to_unused(at, bytes, |bytes| syscall!(sys::MLOCK, at, bytes))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlock2(at: usize, bytes: usize, flags: u32) -> i32 {
    fills::begin(bytes);
    // SAFETY: as in `mprotect`.
    unsafe { returned(up_to_unused(at, bytes, |bytes| syscall!(sys::MLOCK2, at, bytes, flags))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mincore(at: usize, bytes: usize, there: *mut u8) -> i32 {
    // SAFETY: as in `mprotect`.
    unsafe { returned(up_to_unused(at, bytes, |bytes| syscall!(sys::MINCORE, at, bytes, there))) }
}

/// Does not unmap what is behind the program's own mapping: those addresses will be given out.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(at: usize, bytes: usize) -> i32 {
    // SAFETY: as in `mprotect`.
    unsafe {
        returned(match unused_in(at, bytes) {
            Some(unused) if unused <= at => 0,
            Some(unused) => changing(|| syscall!(sys::MUNMAP, at, unused - at)),
            None => changing(|| syscall!(sys::MUNMAP, at, bytes)),
        })
    }
}

/// mremap of the program's own mappings. Linux 6.17 and later move several mappings at once, but
/// not those registered with a userfaultfd: these are moved one by one.
///
/// # Safety
/// As mremap.
pub unsafe fn remap(at: usize, bytes: usize, new_bytes: usize, flags: i32, to: usize) -> isize {
    const MOVES_TO: i32 = 1 | 2;
    if unused_in(at, bytes).is_some() {
        return -EFAULT;
    }
    // SAFETY: forwards what the caller answers for; the kernel uses the fifth argument only if the
    // flags say so.
    unsafe {
        let result = changing(|| syscall!(sys::MREMAP, at, bytes, new_bytes, flags, to));
        let several = flags & MOVES_TO == MOVES_TO && bytes == new_bytes && bytes > PAGE_BYTES;
        if result != -EFAULT || !several || !sys::is_at_least(6, 17) {
            return result;
        }
        changing(|| one_by_one(at, bytes, flags, to))
    }
}

/// # Safety
/// As mremap with a new address.
unsafe fn one_by_one(at: usize, bytes: usize, flags: i32, to: usize) -> isize {
    let bytes = bytes.next_multiple_of(PAGE_BYTES);
    let (mut done, mut first) = (0, true);
    while done < bytes {
        let mut part = bytes - done;
        loop {
            // SAFETY: as the caller promises, part by part.
            match unsafe { syscall!(sys::MREMAP, at + done, part, part, flags, to + done) } {
                0.. => break,
                // More than one mapping, or a hole.
                error if error == -EFAULT && part > PAGE_BYTES => part = (part / 2).next_multiple_of(PAGE_BYTES),
                // The kernel skips holes, but not one at the beginning.
                error if error == -EFAULT && !first => break,
                error => return error,
            }
        }
        first = false;
        done += part;
    }
    to as isize
}
