//! Anonymous memory that is registered from its first page on.
//!
//! The pager finds new mappings by scans, and a program that fills many small ones is faster. So
//! once a process is paged, plain anonymous mappings come out of a reservation that the pager has
//! registered: mprotect opens its next part, which stays registered. Each address is given out
//! once. When all are used, and for all other mappings, the kernel chooses the address.

use crate::access::{changing_if, replaces};
use crate::exec::returned;
use crate::fills;
use crate::reservation;
use crate::socket;
use crate::sys::{self, syscall, PAGE_BYTES};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use memfit_wire::{FromStub, FILE, STAY};

/// Address space of the reservation: 16 GiB. It takes no memory.
const RESERVATION: usize = 16 << 30;
/// The pager finds larger mappings in time, because they are few.
const LARGEST: usize = 64 << 20;

const PRIVATE_ANONYMOUS: i32 = 0x22;
/// MAP_NORESERVE and MAP_STACK make no difference here.
const HARMLESS: i32 = 0x4000 | 0x20000;
const NO_ACCESS: i32 = 0;
const READ_WRITE: i32 = 3;
const RLIMIT_AS: usize = 9;

const READ_ONLY: i32 = 1;
const PRIVATE: i32 = 2;
const POPULATE: i32 = 0x8000;
/// Also MAP_NORESERVE.
const HARMLESS_OF_FILES: i32 = 0x4000 | POPULATE;

/// The scheme pages clean pages of files.
static FILES: AtomicBool = AtomicBool::new(false);
/// Address space for file mappings, bytes. Each address is given out once: otherwise the pager
/// could apply an event of an old mapping to a new one.
const FILES_RESERVATION: usize = 64 << 30;
static FILES_BASE: AtomicUsize = AtomicUsize::new(0);
/// The next address to give out.
static FILES_NEXT: AtomicUsize = AtomicUsize::new(0);
/// Behind all that the program has placed in this reservation.
static FILES_PLACED: AtomicUsize = AtomicUsize::new(0);

/// The reservation; 0 while there is none.
static BASE: AtomicUsize = AtomicUsize::new(0);
/// The next address to give out; 0 before the reservation is opened.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Behind all that the program has placed in the reservation.
static PLACED: AtomicUsize = AtomicUsize::new(0);
/// Nothing more is given out of it.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Makes the reservation, or finds the one that a fork child inherited. `None` under a limit of the
/// address space, which belongs to the program.
pub fn reserve() -> Option<[u64; 2]> {
    if BASE.load(Relaxed) == 0 {
        BASE.store(addresses(RESERVATION)?, Relaxed);
    }
    let base = BASE.load(Relaxed) as u64;
    Some([base, base + RESERVATION as u64])
}

/// Address space without access. `None` under a limit of the address space.
fn addresses(bytes: usize) -> Option<usize> {
    let mut limit = [0usize; 2];
    // SAFETY: a new mapping without access; the limit is two words. PROT_NONE, MAP_NORESERVE.
    unsafe {
        syscall!(sys::PRLIMIT, 0, RLIMIT_AS, 0, limit.as_mut_ptr());
        if limit[0] != usize::MAX {
            return None;
        }
        let at = syscall!(sys::MMAP, 0, bytes, 0, PRIVATE_ANONYMOUS | 0x4000, usize::MAX, 0);
        (at > 0).then_some(at as usize)
    }
}

/// The pager has registered the reservation: give out mappings from it.
pub fn open() {
    let _ = NEXT.compare_exchange(0, BASE.load(SeqCst), SeqCst, SeqCst);
    skip_placed(&NEXT, &PLACED);
}

/// A filter forbids mprotect: let the kernel make mappings from now on.
pub fn close() {
    CLOSED.store(true, Relaxed);
}

/// The program limits its address space, which our reservations must not use up. Unmaps what was
/// not given out, and gives nothing out from now on.
fn give_back() {
    for (base, next, bytes) in [(&BASE, &NEXT, RESERVATION), (&FILES_BASE, &FILES_NEXT, FILES_RESERVATION)] {
        let base = base.load(Relaxed);
        if base == 0 {
            continue;
        }
        let end = base + bytes;
        let next = next.swap(end, Relaxed).max(base);
        if next < end {
            // SAFETY: addresses of the reservation that nobody has or will get.
            unsafe { syscall!(sys::MUNMAP, next, end - next) };
        }
    }
}

/// Sets or reads a limit, of this process or another one.
///
/// # Safety
/// As prlimit64.
unsafe fn limit(pid: i32, resource: usize, new: *const [usize; 2], old: *mut [usize; 2]) -> i32 {
    // SAFETY: forwards what the caller answers for; sets errno.
    unsafe {
        if resource == RLIMIT_AS && !new.is_null() && (pid == 0 || pid as isize == syscall!(sys::GETPID)) {
            give_back();
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
    if NEXT.load(Relaxed) == 0 || CLOSED.load(Relaxed) || bytes == 0 || bytes > LARGEST {
        return None;
    }
    let bytes = bytes.next_multiple_of(PAGE_BYTES);
    let end = BASE.load(Relaxed) + RESERVATION;
    let at = NEXT.fetch_update(Relaxed, Relaxed, |at| (at + bytes <= end).then_some(at + bytes)).ok()?;
    // SAFETY: addresses of the reservation that nobody else has or will get.
    (prot == NO_ACCESS || unsafe { syscall!(sys::MPROTECT, at, bytes, prot) } == 0).then_some(at)
}

/// The first address of a range that is in a reservation and was not given out.
pub fn unused_in(at: usize, bytes: usize) -> Option<usize> {
    let end = at.checked_add(bytes)?;
    let of = |base: &AtomicUsize, next: &AtomicUsize, all: usize| {
        let base = base.load(Relaxed);
        // 0 before the reservation is opened.
        let unused = next.load(Relaxed).max(base);
        (base != 0 && unused < base + all && at < base + all && end > unused).then_some(unused.max(at))
    };
    of(&BASE, &NEXT, RESERVATION).or_else(|| of(&FILES_BASE, &FILES_NEXT, FILES_RESERVATION))
}

/// The program maps something at an address of its choice, which looks free to it. Of a reservation
/// only what is behind it is given out from now on.
pub fn placed(at: usize, bytes: usize) {
    // A mapping of huge TLB pages is longer than the call says.
    const LONGEST_PAGE: usize = 2 << 20;
    if bytes == 0 || at % PAGE_BYTES != 0 {
        return;
    }
    let end = at.saturating_add(bytes).saturating_add(LONGEST_PAGE - 1) & !(LONGEST_PAGE - 1);
    let reserved = [(&BASE, &NEXT, &PLACED, RESERVATION), (&FILES_BASE, &FILES_NEXT, &FILES_PLACED, FILES_RESERVATION)];
    for (base, next, placed, all) in reserved {
        let base = base.load(SeqCst);
        if base != 0 && at < base + all && end > base {
            placed.fetch_max(end.min(base + all), SeqCst);
            skip_placed(next, placed);
        }
    }
}

/// Addresses of a reservation that is open are given out only behind what the program has placed.
fn skip_placed(next: &AtomicUsize, placed: &AtomicUsize) {
    let placed = placed.load(SeqCst);
    let _ = next.fetch_update(SeqCst, SeqCst, |at| (at != 0 && at < placed).then_some(placed));
}

/// A call of mmap with these flags.
pub fn replacing(at: usize, bytes: usize, flags: i32, call: impl FnOnce() -> isize) -> isize {
    const NO_REPLACE: i32 = 0x10_0000;
    if replaces(flags) && flags & NO_REPLACE == 0 {
        placed(at, bytes);
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

/// From now on the pager fills read-only private mappings of files.
pub fn take_files() {
    FILES.store(true, Relaxed);
}

/// A mapping of a file that the pager fills. To the kernel it is anonymous, and its pages can be
/// taken like all others. It is writable, because only then its pages can be moved; if the program
/// writes to a page, the pager notices and keeps it.
///
/// # Safety
/// As mmap.
unsafe fn of_file(bytes: usize, fd: i32, offset: usize) -> Option<usize> {
    if FILES_BASE.load(Acquire) == 0 {
        let base = addresses(FILES_RESERVATION)?;
        match FILES_BASE.compare_exchange(0, base, AcqRel, Acquire) {
            Ok(_) => {
                FILES_NEXT.store(base, SeqCst);
                skip_placed(&FILES_NEXT, &FILES_PLACED);
            }
            // SAFETY: nobody knows of this mapping.
            Err(_) => _ = unsafe { syscall!(sys::MUNMAP, base, FILES_RESERVATION) },
        }
    }
    let (whole, end) = (bytes.checked_next_multiple_of(PAGE_BYTES)?, FILES_BASE.load(Acquire) + FILES_RESERVATION);
    let next = |at: usize| (at != 0 && whole <= end - at).then(|| at + whole);
    let at = FILES_NEXT.fetch_update(AcqRel, Acquire, next).ok()?;
    // SAFETY: addresses of the reservation that nobody else has or will get. MAP_NORESERVE,
    // MAP_FIXED.
    let mapped = unsafe { syscall!(sys::MMAP, at, whole, READ_WRITE, PRIVATE_ANONYMOUS | 0x4010, usize::MAX, 0) };
    if mapped < 0 {
        return None;
    }
    // SAFETY: all-zero is a valid message.
    let mut request: FromStub = unsafe { core::mem::zeroed() };
    (request.kind, request.token) = (FILE, offset as u64);
    request.segment = [at as u64, (at + whole) as u64];
    if socket::ask_with(&mut request, Some(fd)) == STAY {
        return Some(at);
    }
    // SAFETY: nobody knows of this mapping.
    unsafe { syscall!(sys::MUNMAP, at, whole) };
    None
}

/// Whether the address is in a file mapping that the pager fills.
fn is_of_file(at: usize) -> bool {
    let base = FILES_BASE.load(Relaxed);
    base != 0 && (base..base + FILES_RESERVATION).contains(&at)
}

/// To the kernel a mapping of a file is anonymous: the part by which it grew, or what
/// MREMAP_DONTUNMAP left behind, would read as zeros.
#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(at: usize, bytes: usize, new_bytes: usize, flags: i32, to: usize) -> usize {
    const DONT_UNMAP: i32 = 4;
    if is_of_file(at) && (new_bytes > bytes.next_multiple_of(PAGE_BYTES) || flags & DONT_UNMAP != 0) {
        // ENOMEM. SAFETY: sets errno.
        return unsafe { returned(-12) as usize };
    }
    // SAFETY: forwards what the caller answers for.
    match unsafe { reservation::remap(at, bytes, new_bytes, flags, to) } {
        // SAFETY: sets errno.
        error @ ..0 => unsafe { returned(error) as usize },
        at => at as usize,
    }
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
    let of_file = fd >= 0 && flags & !HARMLESS_OF_FILES == PRIVATE && prot == READ_ONLY && offset % PAGE_BYTES == 0;
    if addr == 0 && of_file && bytes > 0 && FILES.load(Relaxed) && !CLOSED.load(Relaxed) {
        // SAFETY: as mmap.
        if let Some(at) = unsafe { self::of_file(bytes, fd, offset) } {
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
