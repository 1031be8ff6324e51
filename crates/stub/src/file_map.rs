//! Read-only mappings of files that the pager fills.
//!
//! To the kernel a private one is anonymous, and its pages can be taken like all others. It is
//! writable, because only then its pages can be moved; if the program writes to a page, the pager
//! notices and keeps it.
//!
//! A shared one is a mapping of a memfd, in which the pager keeps the pages of the file for all
//! processes. A fault in a mapping that is not registered would fill a hole of the memfd with
//! zeros, for all of them. So the mapping has no access until the pager has registered it.
//!
//! A shared mapping must show each change of the file. The pager has a lease on the file, and is
//! told before anybody can open it for writing. By then this thread maps the file itself in place
//! of the memfd, while no call of the program changes mappings.

use crate::access;
use crate::exec::returned;
use crate::map::is_closed;
use crate::reservation;
use crate::socket;
use crate::space::{PRIVATE_FILES, SHARED_FILES};
use crate::sys::{self, syscall, PAGE_BYTES};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use memfit_wire::{Command, FromStub, FILE, FILE_MAPPED, SHARED_FILE, SHARED_FILE_LEAST, STAY};

const SHARED: i32 = 1;
const PRIVATE: i32 = 2;
/// MAP_NORESERVE and MAP_POPULATE.
const HARMLESS: i32 = 0x4000 | 0x8000;
const NO_ACCESS: usize = 0;
/// MADV_NOHUGEPAGE, and the answer of a kernel without huge pages.
const NO_HUGE_PAGES: usize = 15;
const NO_SUCH_ADVICE: isize = -(sys::EINVAL as isize);
const READ_ONLY: usize = 1;
const READ_WRITE: usize = 3;

/// The pager fills such mappings.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// This program has given up rights: it shares no pages with programs that may have them.
static KEEPS_APART: AtomicBool = AtomicBool::new(false);

/// From now on the kernel maps shared mappings.
pub fn keep_apart() {
    KEEPS_APART.store(true, SeqCst);
}

/// From now on the pager fills read-only mappings of files.
pub fn take_files() {
    TAKEN.store(true, Relaxed);
}

/// Most shared mappings that the pager fills in one process.
const SHARED_MOST: usize = 64;
/// Those that it fills now: start and end. A start of 0 is free, and [`BUSY`] about to be written.
static FILLED: [[AtomicUsize; 2]; SHARED_MOST] = [const { [const { AtomicUsize::new(0) }; 2] }; SHARED_MOST];
const BUSY: usize = 1;

/// A shared mapping, in the table of those that the pager fills. `None` if the table is full.
fn note_shared(at: usize, bytes: usize) -> Option<()> {
    let free = |entry: &&[AtomicUsize; 2]| entry[0].compare_exchange(0, BUSY, AcqRel, Relaxed).is_ok();
    let [start, end] = FILLED.iter().find(free)?;
    end.store(at + bytes, Relaxed);
    start.store(at, Release);
    Some(())
}

fn filled(at: usize, bytes: usize) -> impl Iterator<Item = &'static [AtomicUsize; 2]> {
    FILLED.iter().filter(move |[start, end]| {
        let first = start.load(Acquire);
        first > BUSY && at < end.load(Relaxed) && at.saturating_add(bytes) > first
    })
}

/// Something else is mapped in a range.
pub fn forget(at: usize, bytes: usize) {
    if SHARED_FILES.meets(at, bytes) {
        filled(at, bytes).for_each(|[start, _]| start.store(0, Release));
    }
}

/// A read-only mapping that the pager fills; `None` if the kernel is to map the file.
///
/// # Safety
/// As mmap without an address.
pub unsafe fn of_file(bytes: usize, flags: i32, fd: i32, offset: usize) -> Option<usize> {
    let (space, shared) = match flags & !HARMLESS {
        PRIVATE => (&PRIVATE_FILES, false),
        SHARED if bytes >= SHARED_FILE_LEAST && !KEEPS_APART.load(SeqCst) => (&SHARED_FILES, true),
        _ => return None,
    };
    if bytes == 0 || offset % PAGE_BYTES != 0 || !TAKEN.load(Relaxed) || is_closed() {
        return None;
    }
    space.reserve()?;
    space.open();
    let whole = bytes.checked_next_multiple_of(PAGE_BYTES)?;
    let at = space.take(whole)?;
    // SAFETY: all-zero is a valid message.
    let mut request: FromStub = unsafe { core::mem::zeroed() };
    (request.kind, request.token) = (FILE, offset as u64);
    request.segment = [at as u64, (at + whole) as u64];
    // SAFETY: addresses of the reservation that nobody else has or will get.
    let filled = unsafe {
        match shared {
            true => note_shared(at, whole).is_some() && fill_shared(&mut request, fd),
            false => map_over(at, whole, READ_WRITE) >= 0 && socket::ask_with(&mut request, Some(fd)) == STAY,
        }
    };
    if filled {
        return Some(at);
    }
    forget(at, whole);
    // SAFETY: nobody knows of this mapping.
    unsafe { map_over(at, whole, NO_ACCESS) };
    None
}

/// Maps the pager's memfd of a file at the range of the request. False if the pager does not fill
/// it.
///
/// # Safety
/// Nobody else has the range.
unsafe fn fill_shared(request: &mut FromStub, fd: i32) -> bool {
    let (at, bytes) = (request.segment[0], request.segment[1] - request.segment[0]);
    let mut memfd = -1;
    request.flags = SHARED_FILE;
    if socket::ask_for(request, Some(fd), &mut memfd) != STAY || memfd < 0 {
        return false;
    }
    request.flags = SHARED_FILE | FILE_MAPPED;
    // SAFETY: as the caller promises. MAP_SHARED, MAP_FIXED. A huge page would fill holes.
    unsafe {
        let mapped = syscall!(sys::MMAP, at, bytes, NO_ACCESS, 0x11, memfd, request.token);
        socket::close(memfd);
        if mapped < 0
            || !matches!(syscall!(sys::MADVISE, at, bytes, NO_HUGE_PAGES), NO_SUCH_ADVICE | 0)
            || socket::ask_with(request, Some(fd)) != STAY
            || KEEPS_APART.load(SeqCst)
        {
            return false;
        }
        // The pager may have the file itself mapped from here on, with the access of that moment.
        access::changing(|| syscall!(sys::MPROTECT, at, bytes, READ_ONLY)) == 0
    }
}

/// munmap. The addresses of a reservation for files stay reserved: what the kernel would map there
/// later is none of the pager's.
///
/// # Safety
/// As munmap.
pub unsafe fn unmap(at: usize, bytes: usize) -> isize {
    let reserved = PRIVATE_FILES.contains(at, bytes) || SHARED_FILES.contains(at, bytes);
    if !reserved || at % PAGE_BYTES != 0 || bytes == 0 {
        // SAFETY: as the caller promises.
        return unsafe { syscall!(sys::MUNMAP, at, bytes) };
    }
    let whole = bytes.next_multiple_of(PAGE_BYTES);
    for [start, end] in filled(at, whole) {
        if start.load(Relaxed) >= at && end.load(Relaxed) <= at + whole {
            start.store(0, Release);
        }
    }
    // SAFETY: as the caller promises.
    if unsafe { map_over(at, whole, NO_ACCESS) } < 0 {
        -sys::ENOMEM
    } else {
        0
    }
}

/// Maps empty private memory in place of what is there.
///
/// # Safety
/// As munmap.
unsafe fn map_over(at: usize, bytes: usize, access: usize) -> isize {
    // SAFETY: as the caller promises. MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE, MAP_FIXED.
    unsafe { syscall!(sys::MMAP, at, bytes, access, 0x4032, usize::MAX, 0) }
}

/// Whether a range meets a shared mapping that the pager fills.
pub fn is_shared(at: usize, bytes: usize) -> bool {
    SHARED_FILES.meets(at, bytes) && filled(at, bytes).next().is_some()
}

/// The error of a call (mprotect, pkey_mprotect, mseal) after which such a mapping could not become
/// the file's. The kernel gives no write access to a mapping by a descriptor that is read-only
/// (EACCES), but would give it to one of the memfd, whose descriptor can write: a userfaultfd takes
/// no other.
pub fn refuses(number: usize, at: usize, bytes: usize, access: usize) -> Option<isize> {
    const WRITE_OR_EXECUTE: usize = 6;
    let error = match number {
        sys::MSEAL => sys::EPERM,
        _ if access & WRITE_OR_EXECUTE != 0 => sys::EACCES,
        _ => return None,
    };
    is_shared(at, bytes).then_some(-error)
}

/// In the stub thread: maps the file itself in place of the pager's pages. Returns 0 or an errno.
///
/// # Safety
/// The range is a mapping that the pager fills from this file, and no call of the program changes
/// mappings.
pub unsafe fn map_again(command: &Command, fd: i32) -> u32 {
    let [start, end] = command.range;
    if start >= end || !SHARED_FILES.contains(start as usize, (end - start) as usize) {
        return sys::EINVAL as u32;
    }
    let (bytes, offset) = (end - start, command.offset);
    // SAFETY: as the caller promises. MAP_SHARED, MAP_FIXED.
    let mapped = unsafe { syscall!(sys::MMAP, start, bytes, command.flags, 0x11, fd, offset) };
    if mapped < 0 {
        return -mapped as u32;
    }
    forget(start as usize, bytes as usize);
    0
}

/// To the kernel a private mapping of a file is anonymous: the part by which it grew, or what
/// MREMAP_DONTUNMAP left behind, would read as zeros. A shared one stays where it is, so that it
/// can be mapped again.
fn stays(at: usize, bytes: usize, new_bytes: usize, flags: i32) -> bool {
    const FIXED: i32 = 2;
    const DONT_UNMAP: i32 = 4;
    let grows = new_bytes > bytes.next_multiple_of(PAGE_BYTES);
    let moves = flags & DONT_UNMAP != 0;
    PRIVATE_FILES.meets(at, 1) && (grows || moves) || is_shared(at, 1) && (grows || moves || flags & FIXED != 0)
}

/// # Safety
/// As mremap.
pub unsafe fn remap(at: usize, bytes: usize, new_bytes: usize, flags: i32, to: usize) -> isize {
    if stays(at, bytes, new_bytes, flags) {
        return -sys::ENOMEM;
    }
    // SAFETY: forwards what the caller answers for.
    unsafe { reservation::remap(at, bytes, new_bytes, flags, to) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(at: usize, bytes: usize, new_bytes: usize, flags: i32, to: usize) -> usize {
    // SAFETY: forwards what the caller answers for.
    match unsafe { remap(at, bytes, new_bytes, flags, to) } {
        // SAFETY: sets errno.
        error @ ..0 => unsafe { returned(error) as usize },
        at => at as usize,
    }
}
