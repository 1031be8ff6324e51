//! Anonymous memory that is registered from its first page on.
//!
//! The pager finds new mappings by scans, and a program that fills many small ones is faster. So
//! once a process is paged, plain anonymous mappings come out of a reservation that the pager has
//! registered: mprotect opens its next part, which stays registered. Each address is given out
//! once. When all are used, and for all other mappings, the kernel chooses the address.

use crate::access::{changing_if, replaces};
use crate::exec::returned;
use crate::space::{self, placed, PLAIN, RLIMIT_AS};
use crate::sys::{self, syscall, PAGE_BYTES};
use crate::{file_map, fills};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The pager finds larger mappings in time, because they are few.
const LARGEST: usize = 64 << 20;

const PRIVATE_ANONYMOUS: i32 = 0x22;
/// MAP_NORESERVE and MAP_STACK make no difference here.
const HARMLESS: i32 = 0x4000 | 0x20000;
const NO_ACCESS: i32 = 0;
const READ_ONLY: i32 = 1;
const READ_WRITE: i32 = 3;

const POPULATE: i32 = 0x8000;

/// Nothing more is given out.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Makes the reservation, or finds the one that a fork child inherited. `None` under a limit of the
/// address space, which belongs to the program.
pub fn reserve() -> Option<[u64; 2]> {
    PLAIN.reserve().map(|[start, end]| [start as u64, end as u64])
}

/// The pager has registered the reservation: give out mappings from it.
pub fn open() {
    PLAIN.open();
}

/// A filter forbids mprotect, or future mappings are locked: let the kernel make mappings from now
/// on.
pub fn close() {
    CLOSED.store(true, Relaxed);
}

/// Whether mappings are given out no more.
pub fn is_closed() -> bool {
    CLOSED.load(Relaxed)
}

/// Sets or reads a limit, of this process or another one.
///
/// # Safety
/// As prlimit64.
unsafe fn limit(pid: i32, resource: usize, new: *const [usize; 2], old: *mut [usize; 2]) -> i32 {
    // SAFETY: forwards what the caller answers for; sets errno.
    unsafe {
        if resource == RLIMIT_AS && !new.is_null() && (pid == 0 || pid as isize == syscall!(sys::GETPID)) {
            space::give_back();
        }
        returned(syscall!(sys::PRLIMIT, pid, resource, new, old))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn setrlimit(resource: i32, new: *const [usize; 2]) -> i32 {
    // SAFETY: as in `limit`.
    unsafe { limit(0, resource as usize, new, core::ptr::null_mut()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn setrlimit64(resource: i32, new: *const [usize; 2]) -> i32 {
    // SAFETY: as in `limit`.
    unsafe { limit(0, resource as usize, new, core::ptr::null_mut()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn prlimit(pid: i32, resource: i32, new: *const [usize; 2], old: *mut [usize; 2]) -> i32 {
    // SAFETY: as in `limit`.
    unsafe { limit(pid, resource as usize, new, old) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn prlimit64(pid: i32, resource: i32, new: *const [usize; 2], old: *mut [usize; 2]) -> i32 {
    // SAFETY: as in `limit`.
    unsafe { limit(pid, resource as usize, new, old) }
}

/// Gives out the next part of the reservation, with this access.
fn take(bytes: usize, prot: i32) -> Option<usize> {
    if is_closed() || bytes == 0 || bytes > LARGEST {
        return None;
    }
    let bytes = bytes.next_multiple_of(PAGE_BYTES);
    let at = PLAIN.take(bytes)?;
    // SAFETY: addresses of the reservation that nobody else has or will get.
    (prot == NO_ACCESS || unsafe { syscall!(sys::MPROTECT, at, bytes, prot) } == 0).then_some(at)
}

/// A call of mmap with these flags.
pub fn replacing(at: usize, bytes: usize, flags: i32, call: impl FnOnce() -> isize) -> isize {
    const NO_REPLACE: i32 = 0x10_0000;
    if replaces(flags) && flags & NO_REPLACE == 0 {
        placed(at, bytes);
        file_map::forget(at, bytes);
    }
    changing_if(replaces(flags), call)
}

/// A call of shmat. It replaces existing mappings only with SHM_REMAP.
pub fn attaching(id: usize, at: usize, flags: i32, call: impl FnOnce() -> isize) -> isize {
    const SHM_REMAP: i32 = 0o40000;
    const IPC_STAT: usize = 2;
    let replaces = flags & SHM_REMAP != 0;
    if replaces {
        // struct shmid64_ds: the length is the seventh word.
        let mut status = [0usize; 14];
        // SAFETY: the kernel writes 112 bytes.
        unsafe { syscall!(sys::SHMCTL, id, IPC_STAT, status.as_mut_ptr()) };
        placed(at, status[6]);
    }
    changing_if(replaces, call)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(addr: usize, bytes: usize, prot: i32, flags: i32, fd: i32, offset: usize) -> usize {
    if addr == 0 && (prot == READ_WRITE || prot == NO_ACCESS) && flags & !HARMLESS == PRIVATE_ANONYMOUS {
        if let Some(at) = take(bytes, prot) {
            return at;
        }
    }
    if flags & POPULATE != 0 {
        fills::begin(bytes);
    }
    if addr == 0 && prot == READ_ONLY && fd >= 0 {
        // SAFETY: as mmap.
        if let Some(at) = unsafe { file_map::of_file(bytes, flags, fd, offset) } {
            return at;
        }
    }
    // SAFETY: forwards what the caller answers for.
    match replacing(addr, bytes, flags, || unsafe { syscall!(sys::MMAP, addr, bytes, prot, flags, fd, offset) }) {
        // SAFETY: sets errno.
        error @ ..0 => unsafe { returned(error) as usize },
        at => at as usize,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn shmat(id: i32, addr: usize, flags: i32) -> usize {
    // SAFETY: forwards what the caller answers for.
    match attaching(id as usize, addr, flags, || unsafe { syscall!(sys::SHMAT, id, addr, flags) }) {
        // SAFETY: sets errno.
        error @ -4095..=-1 => unsafe { returned(error) as isize as usize },
        at => at as usize,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(addr: usize, bytes: usize, prot: i32, flags: i32, fd: i32, offset: usize) -> usize {
    // SAFETY: as in `mmap`.
    unsafe { mmap(addr, bytes, prot, flags, fd, offset) }
}
