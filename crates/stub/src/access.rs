//! Read-only memory of the program, and libc calls that must not run while the stub has some of it
//! open.
//!
//! MOVE takes pages only out of a writable mapping. So the stub *opens* a run of pages of a
//! read-only mapping: it gives the run write access for the microseconds of its MOVE, and takes the
//! access away again. Before that it write-protects the pages by userfaultfd. A thread that writes
//! to one waits for the pager, and gets SIGSEGV when the run is closed.
//!
//! Calls of the program that change mappings, or copy them (fork), would see the wrong access, or
//! the stub would overwrite theirs. So libc's functions for them keep the stub out, and wait while
//! it has a run open, or maps files again (`file_map`). They increment a counter instead of taking
//! a lock, because a signal handler can make such a call in the middle of another one. The stub
//! never waits long for them. A bare system call is not seen: the range can then keep the access
//! that it had before that call, or be writable for this moment.
//!
//! If a signal handler leaves such a call by `longjmp`, the stub stays out for good: pages of
//! read-only memory then stay, and a process with a file that somebody wants to change is killed.

use crate::agent;
use crate::forbidden::{forbids, yield_now};
use crate::sys::{self, syscall};
use core::hint::spin_loop;
use core::mem::size_of;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use memfit_wire::uffd::{Range, WriteProtect, UFFDIO_WRITEPROTECT, WRITEPROTECT_MODE_WP};
use memfit_wire::{IN_CALL, NOT_OPENED};

/// PROT_READ, PROT_WRITE, PROT_EXEC.
const READ: usize = 1;
pub const WRITE: usize = 2;
pub const EXECUTE: usize = 4;
const MAP_FIXED: i32 = 0x10;
/// MAP_SHARED in the answer of [`ask`].
const SHARED: u64 = 8;

/// Number of threads of the program in such a call, with or without [`WANTED`]; or [`OPEN`], with
/// or without [`SLEEPER`].
static CALLS: AtomicU32 = AtomicU32::new(0);
/// The stub has a run open.
const OPEN: u32 = 1 << 31;
/// A thread sleeps until the stub has closed the run.
const SLEEPER: u32 = 1 << 30;
/// The stub waits for a moment without such calls. New calls wait as well, but not for long: a
/// handler can make one in the middle of another one.
const WANTED: u32 = 1 << 29;
/// Polls of the stub before it sets [`WANTED`] (most calls take a few microseconds), and its sleeps
/// after that, at most 1 ms each.
const TRIES: u32 = 50;
const WAITS: u32 = 3;
/// Polls of a thread of the program while the stub waits, and while a run is open before the thread
/// sleeps.
const PATIENCE: u32 = 10_000;
const SPINS: u32 = 2000;
/// Sleeps of that thread, 100 ms each, before it checks whether there is a stub thread.
const SLEEPS: u32 = 3;
/// The same for turns of a thread that must not sleep, of a microsecond or less.
const TURNS: u32 = 1_000_000;
/// Attempts to restore the access of a run: the kernel can be out of memory for a moment.
const CLOSE_TRIES: u32 = 1000;

/// Executable memory must not be made writable: a filter could kill the program for the call.
static EXECUTED_STAYS: AtomicBool = AtomicBool::new(false);
/// A filter could kill the program for the call in [`unshare`].
static SHARED_STAYS: AtomicBool = AtomicBool::new(false);
/// The stub is about to make that call.
static UNSHARING: AtomicBool = AtomicBool::new(false);

/// Makes a call that changes mappings.
pub fn changing<T>(call: impl FnOnce() -> T) -> T {
    enter();
    let result = call();
    leave();
    result
}

/// The same for a call that changes mappings only if `changes` holds.
pub fn changing_if<T>(changes: bool, call: impl FnOnce() -> T) -> T {
    if changes {
        changing(call)
    } else {
        call()
    }
}

/// Whether these flags of mmap replace existing mappings.
pub fn replaces(flags: i32) -> bool {
    flags & MAP_FIXED != 0
}

/// Keeps the stub out until [`leave`].
pub fn enter() {
    let (mut patience, mut spins, mut sleeps, mut turns) = (PATIENCE, 0, 0, 0);
    loop {
        let seen = CALLS.load(Relaxed);
        if seen & WANTED != 0 {
            if patience > 0 {
                patience -= 1;
                spin_loop();
            } else {
                CALLS.fetch_and(!WANTED, Relaxed);
            }
        } else if seen & OPEN == 0 {
            if CALLS.compare_exchange_weak(seen, seen + 1, Acquire, Relaxed).is_ok() {
                return;
            }
        } else if spins < SPINS {
            spins += 1;
            spin_loop();
        } else if forbids(sys::FUTEX) {
            yield_now();
            turns += 1;
            if turns > TURNS && !agent::is_there() {
                let _ = CALLS.compare_exchange(seen, 0, Relaxed, Relaxed);
            }
        } else if seen & SLEEPER != 0 || CALLS.compare_exchange(seen, seen | SLEEPER, Relaxed, Relaxed).is_ok() {
            sys::futex_wait(&CALLS, seen | SLEEPER, 100);
            sleeps += 1;
            // A child by a bare system call has a copy of the word, and no stub thread.
            if sleeps > SLEEPS && !agent::is_there() {
                let _ = CALLS.compare_exchange(seen | SLEEPER, 0, Relaxed, Relaxed);
            }
        }
    }
}

/// See [`enter`].
pub fn leave() {
    // A signal handler inside of such a call can fork: no call is under way in the child.
    let one_less = |seen: u32| (seen & !(OPEN | SLEEPER | WANTED) != 0).then(|| seen - 1);
    // The stub does not sleep long.
    if CALLS.fetch_update(Release, Relaxed, one_less) == Ok(WANTED + 1) && !forbids(sys::FUTEX) {
        sys::futex_wake(&CALLS);
    }
}

/// In a fork child, which has only the thread that forked.
pub fn forget() {
    CALLS.store(0, Relaxed);
    UNSHARING.store(false, Relaxed);
}

/// In the stub: keeps such calls out until [`end`]. False if one is under way; with `waits`, if it
/// is still under way after some milliseconds.
pub fn begin(waits: bool) -> bool {
    let opened = |calls: u32| CALLS.compare_exchange(calls, OPEN, Acquire, Relaxed).is_ok();
    for _ in 0..TRIES {
        if opened(0) {
            return true;
        }
        spin_loop();
    }
    if !waits {
        return false;
    }
    CALLS.fetch_or(WANTED, Relaxed);
    for _ in 0..WAITS {
        match CALLS.load(Relaxed) {
            calls @ (0 | WANTED) if opened(calls) => return true,
            calls => sys::futex_wait(&CALLS, calls, 1),
        }
    }
    CALLS.fetch_and(!WANTED, Relaxed);
    false
}

/// Lets such calls go on.
pub fn end() {
    if CALLS.swap(0, Release) & SLEEPER != 0 {
        sys::futex_wake(&CALLS);
    }
}

/// A filter forbids to make executable memory writable: on return no such run is open or will be.
pub fn keep_executed() {
    EXECUTED_STAYS.store(true, Relaxed);
    changing(|| ());
}

/// A filter forbids the call in [`unshare`]: when this returns, the stub no longer makes it.
pub fn keep_shared() {
    SHARED_STAYS.store(true, SeqCst);
    while UNSHARING.load(SeqCst) && agent::is_there() {
        yield_now();
    }
}

/// A mapping of this process.
#[derive(Clone, Copy)]
pub struct Mapping {
    pub start: usize,
    pub end: usize,
    /// PROT_* bits.
    pub access: usize,
    /// Private and anonymous.
    plain: bool,
}

impl Mapping {
    /// Whether its pages can be moved only while they are open.
    pub fn is_read_only(&self) -> bool {
        self.plain && self.access & (READ | WRITE) == READ
    }
}

/// struct procmap_query.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    /// PROT_* bits and [`SHARED`].
    access: u64,
    page_bytes: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_bytes: u32,
    build_id_bytes: u32,
    name: u64,
    build_id: u64,
}

/// PROCMAP_QUERY (Linux 6.11).
pub const PROCMAP_QUERY: usize = 0xc068_6611;

/// The mapping that contains an address. `maps` is /proc/PID/maps of this process, or -1.
pub fn ask(maps: i32, address: usize) -> Option<Mapping> {
    query(maps, address, 0).ok()
}

/// The same, or the next mapping above the address; `None` if there is no such one either. The
/// error is that of the call.
pub fn ask_next(maps: i32, address: usize) -> Result<Option<Mapping>, isize> {
    const COVERING_OR_NEXT: u64 = 0x10;
    const NO_MAPPING: isize = -2;
    match query(maps, address, COVERING_OR_NEXT) {
        Err(NO_MAPPING) => Ok(None),
        found => found.map(Some),
    }
}

fn query(maps: i32, address: usize, flags: u64) -> Result<Mapping, isize> {
    let mut query = Query { size: size_of::<Query>() as u64, flags, address: address as u64, ..Query::default() };
    const NO_FILE: isize = -9;
    if maps < 0 {
        return Err(NO_FILE);
    }
    // SAFETY: a valid procmap_query.
    let result = unsafe { syscall!(sys::IOCTL, maps, PROCMAP_QUERY, &raw mut query) };
    if result != 0 {
        return Err(result);
    }
    let plain = query.access & SHARED == 0 && query.inode == 0 && query.device == [0; 2];
    let (start, end) = (query.start as usize, query.end as usize);
    Ok(Mapping { start, end, access: query.access as usize & 7, plain })
}

/// A run of pages of a read-only mapping that is writable for the moment, but only for the stub.
pub struct Opened {
    uffd: i32,
    maps: i32,
    start: usize,
    bytes: usize,
    /// The mapping before it was opened.
    mapping: Mapping,
}

/// Result of [`Opened::open`].
pub enum Opening {
    Open(Opened),
    /// Not a read-only mapping; the address at which it ends, or the end of the run.
    No(usize),
    /// The errno. EAGAIN: an event is unread; [`IN_CALL`].
    Failed(i32),
}

/// Result of [`Opened::close`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// The mapping is as before.
    Whole,
    /// The run stays a mapping of its own. The kernel now counts it as committed memory, which it
    /// did not while the program could never write there.
    Split,
    /// The access could not be restored.
    Never,
}

impl Opened {
    /// Opens the part of the run that is in the mapping of its first page. `in_call`: calls that
    /// change mappings have been waited for in vain; not again then.
    pub fn open(uffd: i32, maps: i32, start: usize, bytes: usize, in_call: &mut bool) -> Opening {
        let ask = || ask(maps, start).filter(|mapping| mapping.start <= start);
        if !begin(!*in_call) {
            *in_call = true;
            return match ask() {
                Some(mapping) if mapping.is_read_only() => Opening::Failed(IN_CALL),
                mapping => Opening::No(mapping.map_or(start + bytes, |mapping| mapping.end)),
            };
        }
        let opening = match ask() {
            Some(mapping) if mapping.is_read_only() => match Self::try_open(uffd, maps, start, bytes, mapping) {
                Ok(opened) => return Opening::Open(opened),
                Err(errno) => Opening::Failed(errno),
            },
            mapping => Opening::No(mapping.map_or(start + bytes, |mapping| mapping.end)),
        };
        end();
        opening
    }

    fn try_open(uffd: i32, maps: i32, start: usize, bytes: usize, mapping: Mapping) -> Result<Opened, i32> {
        if mapping.access & EXECUTE != 0 && EXECUTED_STAYS.load(Relaxed) {
            return Err(NOT_OPENED);
        }
        let bytes = bytes.min(mapping.end - start);
        let opened = Opened { uffd, maps, start, bytes, mapping };
        let protected = opened.protect(true);
        if protected != 0 {
            return Err(-protected as i32);
        }
        // SAFETY: the program's own memory, which no thread can write to while it is protected.
        let result = unsafe { syscall!(sys::MPROTECT, start, bytes, opened.access()) };
        if result != 0 {
            opened.protect(false);
            return Err(-result as i32);
        }
        Ok(opened)
    }

    /// The access while it is open.
    pub fn access(&self) -> usize {
        self.mapping.access | WRITE
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn protect(&self, on: bool) -> isize {
        let range = Range { start: self.start as u64, len: self.bytes as u64 };
        let argument = WriteProtect { range, mode: if on { WRITEPROTECT_MODE_WP } else { 0 } };
        // SAFETY: changes no byte.
        unsafe { syscall!(sys::IOCTL, self.uffd, UFFDIO_WRITEPROTECT, &raw const argument) }
    }

    /// Restores the access. `empty`: no page of the run is left. `check`: find out whether it stays
    /// split.
    pub fn close(self, empty: bool, check: bool) -> Closed {
        let Opened { maps, start, bytes, mapping, .. } = self;
        let closed = self.close_pages();
        // After that: a thread that waits to write must find the run closed. If this fails, the
        // pager removes the protection when a write meets it.
        if !empty {
            self.protect(false);
        }
        let beyond = mapping.start < start || mapping.end > start + bytes;
        let is_split = || ask(maps, start).is_some_and(|now| now.start == start && now.end == start + bytes);
        let answer = match closed {
            false => Closed::Never,
            true if check && beyond && is_split() => Closed::Split,
            true => Closed::Whole,
        };
        end();
        answer
    }

    fn close_pages(&self) -> bool {
        // SAFETY: restores the access of before.
        let close = |at: usize, bytes: usize| unsafe { syscall!(sys::MPROTECT, at, bytes, self.mapping.access) } == 0;
        for _ in 0..CLOSE_TRIES {
            if close(self.start, self.bytes) {
                return true;
            }
            // SAFETY: lets others run; the kernel may have no memory for the moment.
            unsafe { syscall!(sys::SCHED_YIELD) };
        }
        // A bare system call may have unmapped a part of it.
        let mut pages = (self.start..self.start + self.bytes).step_by(sys::PAGE_BYTES);
        pages.all(|page| close(page, sys::PAGE_BYTES) || ask(self.maps, page).is_none_or(|now| now.start > page))
    }
}

/// Makes present pages exclusive that a fork shared, without a write: process_vm_readv of one byte
/// makes the kernel copy a page that is still shared. Where a filter forbids the call, the pages
/// stay shared.
pub fn unshare(address: usize, present: u64) {
    UNSHARING.store(true, SeqCst);
    if !SHARED_STAYS.load(SeqCst) {
        unshare_now(address, present);
    }
    UNSHARING.store(false, SeqCst);
}

fn unshare_now(address: usize, present: u64) {
    const PAGES: usize = 64;
    let (mut bytes, mut from, mut count) = ([0u8; PAGES], [[0usize; 2]; PAGES], 0);
    for page in (0..PAGES).filter(|page| present >> page & 1 == 1) {
        from[count] = [address + page * sys::PAGE_BYTES, 1];
        count += 1;
    }
    let to = [bytes.as_mut_ptr() as usize, count];
    // SAFETY: of this process; there is one byte of room for each range of one byte.
    unsafe {
        let own = syscall!(sys::GETPID);
        syscall!(sys::PROCESS_VM_READV, own, to.as_ptr(), 1, from.as_ptr(), count, 0)
    };
}
