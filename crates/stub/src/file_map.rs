//! Read-only mappings of files that the pager fills.
//!
//! To the kernel such a mapping is anonymous, and its pages can be taken like all others. It is
//! writable, because only then its pages can be moved; if the program writes to a page, the pager
//! notices and keeps it.
//!
//! A shared mapping must show each change of the file. The pager has a lease on the file, and is
//! told before anybody can open it for writing. By then this thread maps the file itself in place
//! of the pages, while no call of the program changes mappings.

use crate::exec::returned;
use crate::map::is_closed;
use crate::reservation;
use crate::socket;
use crate::space::{PRIVATE_FILES, SHARED_FILES};
use crate::sys::{self, syscall, PAGE_BYTES};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use memfit_wire::{Command, FromStub, FILE, SHARED_FILE, SHARED_FILE_LEAST, STAY};

const SHARED: i32 = 1;
const PRIVATE: i32 = 2;
/// MAP_NORESERVE and MAP_POPULATE.
const HARMLESS: i32 = 0x4000 | 0x8000;
const READ_WRITE: i32 = 3;

/// The pager fills such mappings.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// From now on the pager fills read-only mappings of files.
pub fn take_files() {
    TAKEN.store(true, Relaxed);
}

/// A read-only mapping that the pager fills; `None` if the kernel is to map the file.
///
/// # Safety
/// As mmap without an address.
pub unsafe fn of_file(bytes: usize, flags: i32, fd: i32, offset: usize) -> Option<usize> {
    let (space, shared) = match flags & !HARMLESS {
        PRIVATE => (&PRIVATE_FILES, false),
        SHARED if bytes >= SHARED_FILE_LEAST => (&SHARED_FILES, true),
        _ => return None,
    };
    if bytes == 0 || offset % PAGE_BYTES != 0 || !TAKEN.load(Relaxed) || is_closed() {
        return None;
    }
    space.reserve()?;
    space.open();
    let whole = bytes.checked_next_multiple_of(PAGE_BYTES)?;
    let at = space.take(whole)?;
    // SAFETY: addresses of the reservation that nobody else has or will get. MAP_PRIVATE,
    // MAP_ANONYMOUS, MAP_NORESERVE, MAP_FIXED.
    let mapped = unsafe { syscall!(sys::MMAP, at, whole, READ_WRITE, 0x4032, usize::MAX, 0) };
    if mapped < 0 {
        return None;
    }
    // SAFETY: all-zero is a valid message.
    let mut request: FromStub = unsafe { core::mem::zeroed() };
    (request.kind, request.token) = (FILE, offset as u64);
    request.flags = if shared { SHARED_FILE } else { 0 };
    request.segment = [at as u64, (at + whole) as u64];
    if socket::ask_with(&mut request, Some(fd)) == STAY {
        return Some(at);
    }
    // SAFETY: nobody knows of this mapping.
    unsafe { syscall!(sys::MUNMAP, at, whole) };
    None
}

/// Whether a range meets a shared mapping of a file. The kernel gives no write access to one whose
/// descriptor is read-only (EACCES), but would give it to the pager's pages.
pub fn is_shared(at: usize, bytes: usize) -> bool {
    SHARED_FILES.meets(at, bytes)
}

/// In the stub thread: maps the file itself in place of the pager's pages. Returns 0 or an errno.
///
/// # Safety
/// The range is a mapping that the pager fills from this file, and no call of the program changes
/// mappings.
pub unsafe fn map_again(command: &Command, fd: i32) -> u32 {
    let [start, end] = command.range;
    if start >= end || !is_shared(start as usize, (end - start) as usize) {
        return sys::EINVAL as u32;
    }
    let (bytes, offset) = (end - start, command.offset);
    // SAFETY: as the caller promises. MAP_SHARED, MAP_FIXED.
    let mapped = unsafe { syscall!(sys::MMAP, start, bytes, command.flags, 0x11, fd, offset) };
    if mapped < 0 {
        -mapped as u32
    } else {
        0
    }
}

/// To the kernel a mapping of a file is anonymous: the part by which it grew, or what
/// MREMAP_DONTUNMAP left behind, would read as zeros. A shared one stays where it is, so that it
/// can be mapped again.
fn stays(at: usize, bytes: usize, new_bytes: usize, flags: i32) -> bool {
    const FIXED: i32 = 2;
    const DONT_UNMAP: i32 = 4;
    let grows = new_bytes > bytes.next_multiple_of(PAGE_BYTES);
    let moves = flags & DONT_UNMAP != 0;
    PRIVATE_FILES.meets(at, 1) && (grows || moves)
        || SHARED_FILES.meets(at, 1) && (grows || moves || flags & FIXED != 0)
}

/// # Safety
/// As mremap.
pub unsafe fn remap(at: usize, bytes: usize, new_bytes: usize, flags: i32, to: usize) -> isize {
    const ENOMEM: isize = 12;
    if stays(at, bytes, new_bytes, flags) {
        return -ENOMEM;
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
