//! Addresses of the reservations that were not given out yet.
//!
//! The kernel has them mapped without access, but a program must not see them: where its range goes
//! beyond its own mapping, the result must be as for unmapped addresses. The functions here handle
//! the part of a range that is the program's, and report the rest as a hole. (A bare system call
//! still finds the reservation.)

use crate::access::changing;
use crate::exec::returned;
use crate::file_map::{refuses, unmap};
use crate::fills;
use crate::space::{placed, unused_in};
use crate::sys::{self, syscall, PAGE_BYTES};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

const EAGAIN: isize = 11;
const EFAULT: isize = 14;

/// Makes a call for the part of a range that is the program's, and returns ENOMEM if the range goes
/// beyond it. For a range with a hole the kernel does the same, up to the hole.
pub fn up_to_unused(at: usize, bytes: usize, call: impl Fn(usize) -> isize) -> isize {
    let Some(unused) = unused_in(at, bytes) else { return call(bytes) };
    match if unused > at { call(unused - at) } else { 0 } {
        error @ ..0 => error,
        _ => -sys::ENOMEM,
    }
}

/// mprotect, pkey_mprotect or mseal.
///
/// # Safety
/// As that call.
unsafe fn protect(number: usize, at: usize, bytes: usize, how: usize, key: i32) -> i32 {
    // SAFETY: forwards what the caller answers for; sets errno.
    let call = |bytes| unsafe { syscall!(number, at, bytes, how, key) };
    let made = || changing(|| up_to_unused(at, bytes, call));
    // SAFETY: sets errno.
    unsafe { returned(refuses(number, at, bytes, how).unwrap_or_else(made)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(at: usize, bytes: usize, prot: i32) -> i32 {
    // SAFETY: as in `protect`.
    unsafe { protect(sys::MPROTECT, at, bytes, prot as usize, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pkey_mprotect(at: usize, bytes: usize, prot: i32, key: i32) -> i32 {
    // SAFETY: as in `protect`.
    unsafe { protect(sys::PKEY_MPROTECT, at, bytes, prot as usize, key) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mseal(at: usize, bytes: usize, flags: usize) -> i32 {
    // SAFETY: as in `protect`.
    unsafe { protect(sys::MSEAL, at, bytes, flags, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlock(at: usize, bytes: usize) -> i32 {
    fills::begin(bytes);
    // SAFETY: as in `protect`.
    unsafe { returned(up_to_unused(at, bytes, |bytes| syscall!(sys::MLOCK, at, bytes))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlock2(at: usize, bytes: usize, flags: u32) -> i32 {
    fills::begin(bytes);
    // SAFETY: as in `protect`.
    unsafe { returned(up_to_unused(at, bytes, |bytes| syscall!(sys::MLOCK2, at, bytes, flags))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mincore(at: usize, bytes: usize, there: *mut u8) -> i32 {
    // SAFETY: as in `protect`.
    unsafe { returned(up_to_unused(at, bytes, |bytes| syscall!(sys::MINCORE, at, bytes, there))) }
}

/// munmap. Does not unmap what is behind the program's own mapping: those addresses will be given
/// out.
///
/// # Safety
/// As munmap.
pub unsafe fn unmap_own(at: usize, bytes: usize) -> isize {
    let is_range = at % PAGE_BYTES == 0 && bytes != 0 && at <= ADDRESSES && bytes <= ADDRESSES - at;
    // SAFETY: as the caller promises. The kernel refuses what is no range of pages.
    changing(|| unsafe {
        match unused_in(at, bytes) {
            _ if !is_range => syscall!(sys::MUNMAP, at, bytes),
            Some(unused) if unused <= at => 0,
            Some(unused) => syscall!(sys::MUNMAP, at, unused - at),
            None => unmap(at, bytes),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(at: usize, bytes: usize) -> i32 {
    // SAFETY: as in `protect`.
    unsafe { returned(unmap_own(at, bytes)) }
}

/// The kernel moves several mappings by one mremap (Linux 6.17).
static MOVES_SEVERAL: AtomicBool = AtomicBool::new(false);

/// Asks for the version of the kernel once: a filter of the program could forbid it later.
pub fn ask_kernel() {
    MOVES_SEVERAL.store(sys::is_at_least(6, 17), Relaxed);
}

/// mremap of the program's own mappings. A call that moves several mappings ends at one that is
/// registered with a userfaultfd: those before it have moved then, and another thread may get their
/// place. So each mapping is moved by a call of its own.
///
/// # Safety
/// As mremap.
pub unsafe fn remap(at: usize, bytes: usize, new_bytes: usize, flags: i32, to: usize) -> isize {
    const FIXED: i32 = 2;
    const MOVES_TO: i32 = 1 | FIXED;
    if unused_in(at, bytes).is_some() {
        return -EFAULT;
    }
    if flags & FIXED != 0 {
        placed(to, new_bytes);
    }
    let pages = bytes.saturating_add(PAGE_BYTES - 1) & !(PAGE_BYTES - 1);
    let same = pages == new_bytes.saturating_add(PAGE_BYTES - 1) & !(PAGE_BYTES - 1);
    let fits = pages <= ADDRESSES && at.abs_diff(to) >= pages && at.max(to) <= ADDRESSES - pages;
    let several = flags & MOVES_TO == MOVES_TO && pages > PAGE_BYTES && same && fits && MOVES_SEVERAL.load(Relaxed);
    // SAFETY: forwards what the caller answers for; the kernel uses the fifth argument only if the
    // flags say so.
    changing(|| unsafe {
        match several {
            true => one_by_one(at, pages, flags, to),
            false => syscall!(sys::MREMAP, at, bytes, new_bytes, flags, to),
        }
    })
}

/// Calls that fail because memfit has just split a mapping: it registers a part, or keeps one from
/// fork children.
const SPLITS_MAX: u32 = 100;

/// # Safety
/// As mremap with a new address.
unsafe fn one_by_one(at: usize, bytes: usize, flags: i32, to: usize) -> isize {
    let (mut done, mut splits) = (0, 0);
    while done < bytes {
        let (from, rest) = (at + done, bytes - done);
        let known = mapped(from, rest);
        // The kernel skips holes, but not one at the beginning.
        if known == 0 && (done > 0 || splits > 0) && is_hole(from) {
            done += PAGE_BYTES;
            continue;
        }
        let part = if known > 0 { known } else { unknown(from, rest) };
        // SAFETY: as the caller promises, part by part.
        match unsafe { syscall!(sys::MREMAP, from, part, part, flags, to + done) } {
            error if error == -EFAULT && known > 0 && splits < SPLITS_MAX => splits += 1,
            error @ ..0 => return error,
            _ => done += part,
        }
    }
    to as isize
}

/// All addresses of a process, but for those above 47 bits, which it must ask for.
const ADDRESSES: usize = 0x7fff_ffff_f000;

/// Length of the part of a range, from its start on, that is in one mapping; 0 if its start is in
/// none, or in one of which the kernel does not tell that.
fn mapped(at: usize, bytes: usize) -> usize {
    if is_in_one(at, bytes) {
        return bytes;
    }
    if !is_in_one(at, PAGE_BYTES) {
        return 0;
    }
    // One page is in one mapping, and all are not.
    let (mut least, mut more) = (1, bytes / PAGE_BYTES);
    while more - least > 1 {
        let middle = (least + more) / 2;
        match is_in_one(at, middle * PAGE_BYTES) {
            true => least = middle,
            false => more = middle,
        }
    }
    least * PAGE_BYTES
}

/// Length of the part of a range, from its start on, of which the kernel does not tell that it is
/// in one mapping: huge TLB pages, memory of devices. memfit registers no such mapping.
fn unknown(at: usize, bytes: usize) -> usize {
    let known = |page: &usize| is_in_one(*page, PAGE_BYTES);
    let end = (at..at + bytes).step_by(PAGE_BYTES).skip(1).find(known);
    end.map_or(bytes, |end| end - at)
}

/// Whether a range is in one mapping that may grow. None can grow to this size where it is: the
/// kernel refuses that (ENOMEM; EAGAIN for locked memory), and before it a range of several
/// mappings.
fn is_in_one(at: usize, bytes: usize) -> bool {
    // SAFETY: a mapping that could grow after all, into addresses above 47 bits, loses that again.
    unsafe {
        let answer = syscall!(sys::MREMAP, at, bytes, ADDRESSES, 0, 0);
        if answer > 0 {
            syscall!(sys::MUNMAP, at + bytes, ADDRESSES - bytes);
        }
        answer > 0 || answer == -sys::ENOMEM || answer == -EAGAIN
    }
}

/// Whether nothing is mapped at a page.
fn is_hole(at: usize) -> bool {
    let mut there = 0u8;
    // SAFETY: the kernel writes one byte for one page.
    unsafe { syscall!(sys::MINCORE, at, PAGE_BYTES, &raw mut there) == -sys::ENOMEM }
}
