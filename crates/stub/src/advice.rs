//! madvise and process_madvise, where the pager must know of the call.
//!
//! MADV_GUARD_INSTALL (Linux 6.13) zaps pages, and the kernel raises no userfaultfd event for it.
//! After MADV_GUARD_REMOVE the pager would fill evicted pages where zeros belong, and it would not
//! know that present pages are gone. So the stub makes three calls instead of one:
//!
//! 1. MADV_GUARD_INSTALL keeps all threads out of the range.
//! 2. MADV_DONTNEED raises the event by which the pager forgets the pages. It leaves guards alone.
//! 3. MADV_GUARD_INSTALL puts guards back: before the pager had read the event, fault-around could
//!    fill pages of the range, and a fill replaces a guard.

use crate::exec::returned;
use crate::forbidden::{forbids, is_readable};
use crate::reservation::up_to_unused;
use crate::space::unused_in;
use crate::sys::{self, syscall, Iovec, PAGE_BYTES};
use crate::{access, file_map, fills, fork};
use core::mem::size_of;

const DONTNEED: i32 = 4;
const REMOVE: i32 = 9;
const DONTFORK: i32 = 10;
const DOFORK: i32 = 11;
const WIPEONFORK: i32 = 18;
const POPULATE_READ: i32 = 22;
const POPULATE_WRITE: i32 = 23;
const GUARD_INSTALL: i32 = 102;
const NO_MEMORY: isize = -sys::ENOMEM;

/// Advice for the memory of this process. Returns the result of the system call.
///
/// # Safety
/// As madvise.
pub unsafe fn advise(start: usize, bytes: usize, advice: i32) -> isize {
    if fork::overrules(advice) {
        return 0;
    }
    // As the kernel for a mapping by a descriptor that is read-only. Other processes have these
    // pages, too.
    if advice == REMOVE && file_map::is_shared(start, bytes) {
        return -sys::EACCES;
    }
    if advice == WIPEONFORK {
        fork::wipe();
    }
    if matches!(advice, POPULATE_READ | POPULATE_WRITE) {
        fills::begin(bytes);
    }
    // SAFETY: forwards what the caller answers for.
    let result = up_to_unused(start, bytes, |bytes| unsafe { syscall!(sys::MADVISE, start, bytes, advice) });
    if advice == GUARD_INSTALL {
        // SAFETY: the caller asks for this.
        unsafe { tell_guards(start, bytes, result) };
    } else if result == 0 {
        fork::advised(start, bytes, advice);
    }
    result
}

/// After guards were installed, perhaps only in a part of the range: raises the event for them.
///
/// # Safety
/// The caller has asked for guards in this range.
unsafe fn tell_guards(start: usize, bytes: usize, result: isize) {
    let whole = bytes.checked_next_multiple_of(PAGE_BYTES);
    // The kernel has refused what is no range of pages, and done nothing.
    let Some(end) = whole.and_then(|bytes| start.checked_add(bytes)).filter(|_| start % PAGE_BYTES == 0) else {
        return;
    };
    // SAFETY: as the caller promises: where there is a guard, there are no contents.
    unsafe {
        if result == 0 {
            drop_guarded(start, end);
        } else {
            guard_again(start, unused_in(start, bytes).unwrap_or(end));
        }
    }
}

/// Steps 2 and 3 for guards that are there.
///
/// # Safety
/// The caller has asked for guards in this range, and all of it has them.
unsafe fn drop_guarded(start: usize, end: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        syscall!(sys::MADVISE, start, end - start, DONTNEED);
        syscall!(sys::MADVISE, start, end - start, GUARD_INSTALL);
    }
}

/// After an error: the kernel stops at the first mapping that cannot have guards, and skips holes.
/// Goes from mapping to mapping.
///
/// # Safety
/// The caller has asked for guards in this range.
unsafe fn guard_again(start: usize, end: usize) {
    const HERE: isize = -100;
    // SAFETY: as the caller promises. A path with a null; our own descriptor; O_CLOEXEC.
    unsafe {
        let maps = match forbids(sys::OPENAT) || forbids(sys::IOCTL) {
            true => -1,
            false => syscall!(sys::OPENAT, HERE, c"/proc/self/maps".as_ptr(), 0o2000000) as i32,
        };
        let mut at = start;
        while at < end {
            let (from, to) = match access::ask_next(maps, at) {
                Ok(Some(mapping)) => (mapping.start.max(at), mapping.end.min(end)),
                Ok(None) => break,
                Err(_) => {
                    guard_unknown(at, end);
                    break;
                }
            };
            if from >= end || !guard_mapped(from, to) {
                break;
            }
            at = to;
        }
        if maps >= 0 {
            syscall!(sys::CLOSE, maps);
        }
    }
}

/// The same where /proc does not tell the mappings. Finds the longest part of the range in which
/// the kernel meets holes only.
///
/// # Safety
/// As [`guard_again`].
unsafe fn guard_unknown(start: usize, end: usize) {
    // SAFETY: as the caller promises.
    let guards = |pages: usize| unsafe {
        matches!(syscall!(sys::MADVISE, start, pages * PAGE_BYTES, GUARD_INSTALL), 0 | NO_MEMORY)
    };
    let (mut least, mut more) = (0, (end - start) / PAGE_BYTES + 1);
    while more - least > 1 {
        let middle = least + (more - least) / 2;
        match guards(middle) {
            true => least = middle,
            false => more = middle,
        }
    }
    if least > 0 {
        // SAFETY: as the caller promises. Like the kernel, both calls skip holes.
        unsafe { drop_guarded(start, start + least * PAGE_BYTES) };
    }
}

/// The same for a part of one mapping. False if the kernel stopped here.
///
/// # Safety
/// As [`guard_again`].
unsafe fn guard_mapped(start: usize, end: usize) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        if syscall!(sys::MADVISE, start, end - start, GUARD_INSTALL) == 0 {
            drop_guarded(start, end);
            return true;
        }
        // Another thread may have unmapped a part of it, or memory is short.
        (start..end).step_by(PAGE_BYTES).all(|page| {
            let result = syscall!(sys::MADVISE, page, PAGE_BYTES, GUARD_INSTALL);
            if result == 0 {
                drop_guarded(page, page + PAGE_BYTES);
            }
            result == 0 || result == -sys::ENOMEM
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn madvise(start: usize, bytes: usize, advice: i32) -> i32 {
    // SAFETY: forwards what the caller answers for; sets errno.
    unsafe { returned(advise(start, bytes, advice)) }
}

/// As process_madvise. The kernel takes the advice that matters here for the calling process only,
/// and only since Linux 6.13.
///
/// # Safety
/// As process_madvise.
pub unsafe fn advise_process(pidfd: usize, ranges: usize, count: usize, advice: usize, flags: usize) -> isize {
    const MOST: usize = 1024;
    /// Most bytes that the kernel takes in one call.
    const MOST_BYTES: usize = 0x7fff_f000;
    // SAFETY: forwards what the caller answers for. If the kernel has done anything, it has read
    // the ranges. Linux takes MADV_REMOVE for the calling process only.
    unsafe {
        let range = |i| {
            let Iovec { base, bytes } = *(ranges as *const Iovec).add(i);
            (base, bytes)
        };
        let what = advice as i32;
        let overruled = fork::overrules(what);
        let looks = (what == REMOVE || overruled) && count <= MOST;
        if looks && is_readable(ranges, count * size_of::<Iovec>()) {
            if overruled {
                // Without ranges the kernel only says whether it takes this advice for the process.
                let taken = syscall!(sys::PROCESS_MADVISE, pidfd, ranges, 0, advice, flags);
                let sum = (0..count).fold(0usize, |sum, i| sum.saturating_add(range(i).1));
                return if taken < 0 { taken } else { sum.min(MOST_BYTES) as isize };
            }
            if (0..count).map(range).any(|(start, bytes)| file_map::is_shared(start, bytes)) {
                return -sys::EACCES;
            }
        }
        if what == WIPEONFORK {
            fork::wipe();
        }
        let done = syscall!(sys::PROCESS_MADVISE, pidfd, ranges, count, advice, flags);
        if matches!(what, GUARD_INSTALL | DONTFORK | DOFORK) && done > 0 {
            let mut left = done as usize;
            for (start, bytes) in (0..count).map(range) {
                if left == 0 {
                    break;
                }
                match what {
                    GUARD_INSTALL => tell_guards(start, bytes.min(left), 0),
                    _ => fork::advised(start, bytes.min(left), what),
                }
                left -= bytes.min(left);
            }
        }
        done
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn process_madvise(pidfd: i32, ranges: usize, count: usize, advice: i32, flags: u32) -> isize {
    // SAFETY: forwards what the caller answers for; sets errno.
    match unsafe { advise_process(pidfd as usize, ranges, count, advice as usize, flags as usize) } {
        error @ -4095..=-1 => {
            // SAFETY: sets errno.
            unsafe { returned(error) as isize }
        }
        done => done,
    }
}
