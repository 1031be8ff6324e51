//! Memory that the program may not write, and calls that must not meet it while the stub has it
//! open.
//!
//! A page moves only out of a mapping that may be written. So the stub gives a run of pages of a
//! read-only mapping write access for the microseconds of its MOVE, and takes it away again. Before
//! that it write-protects the pages by userfaultfd: who writes to one waits for the pager, and gets
//! SIGSEGV when the access is as it was.
//!
//! Calls of the program that change mappings, or copy them (fork), would see the wrong access, or
//! have theirs overwritten. Those made by libc's functions keep the stub out meanwhile, and wait
//! where it was first. They count themselves instead of taking a lock: a handler of a signal can
//! make such a call in the middle of another one. The stub never waits for them. A bare system call
//! passes by: then the range can keep the access that it had before that call, or be written in
//! this moment.
//!
//! A call that is left by `longjmp` from such a handler keeps the stub out for good: read-only
//! memory stays, then.

use crate::agent;
use crate::sys::{self, syscall};
use core::hint::spin_loop;
use core::mem::size_of;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

/// PROT_READ, PROT_WRITE, PROT_EXEC.
const READ: usize = 1;
pub const WRITE: usize = 2;
pub const EXECUTE: usize = 4;
const MAP_FIXED: i32 = 0x10;
/// MAP_SHARED of what [`ask`] says.
const SHARED: u64 = 8;

/// How many threads of the program are in such a call, with or without [`WANTED`]; or [`OPEN`],
/// with or without [`SLEEPER`].
static CALLS: AtomicU32 = AtomicU32::new(0);
/// The stub has something open.
const OPEN: u32 = 1 << 31;
/// And somebody sleeps until it has not.
const SLEEPER: u32 = 1 << 30;
/// The stub waits for a moment without such calls: those that begin wait as well, but not for long.
/// (One may be made by a handler in the middle of another one.)
const WANTED: u32 = 1 << 29;
/// Looks of the stub before it says so: most calls take a few microseconds. How often it sleeps
/// after that, at most a millisecond each.
const TRIES: u32 = 50;
const WAITS: u32 = 3;
/// Looks of a thread of the program while the stub waits; and while something is open, before it
/// sleeps.
const PATIENCE: u32 = 10_000;
const SPINS: u32 = 2000;
/// How often it sleeps, 100 ms each, before it doubts that the stub is there.
const SLEEPS: u32 = 3;
/// Tries to give memory the access that it had: the kernel may have no memory for it now.
const CLOSE_TRIES: u32 = 1000;

/// What is executed must not be made writable: a filter could kill the program for the call.
static EXECUTED_STAYS: AtomicBool = AtomicBool::new(false);
/// The call that makes pages exclusive could do so; and whether the stub is about to make it.
static SHARED_STAYS: AtomicBool = AtomicBool::new(false);
static UNSHARING: AtomicBool = AtomicBool::new(false);

/// Makes a call that changes mappings.
pub fn changing<T>(call: impl FnOnce() -> T) -> T {
    enter();
    let result = call();
    leave();
    result
}

/// The same for a call that changes them only if `changes` holds.
pub fn changing_if<T>(changes: bool, call: impl FnOnce() -> T) -> T {
    if changes {
        changing(call)
    } else {
        call()
    }
}

/// Whether flags of mmap replace what is there.
pub fn replaces(flags: i32) -> bool {
    flags & MAP_FIXED != 0
}

/// Keeps the stub out until [`leave`].
pub fn enter() {
    let (mut patience, mut spins, mut sleeps) = (PATIENCE, 0, 0);
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
        } else if seen & SLEEPER != 0 || CALLS.compare_exchange(seen, seen | SLEEPER, Relaxed, Relaxed).is_ok() {
            sys::futex_wait(&CALLS, seen | SLEEPER, 100);
            sleeps += 1;
            // A child by a bare system call has a copy of the word, and no stub.
            if sleeps > SLEEPS && !agent::is_there() {
                let _ = CALLS.compare_exchange(seen | SLEEPER, 0, Relaxed, Relaxed);
            }
        }
    }
}

/// See [`enter`].
pub fn leave() {
    if CALLS.fetch_sub(1, Release) == WANTED + 1 {
        sys::futex_wake(&CALLS);
    }
}

/// A fork child: its thread alone goes on.
pub fn forget() {
    CALLS.store(0, Relaxed);
}

/// In the stub: keeps such calls out until [`end`]; false if there is one.
fn begin() -> bool {
    let opened = |calls: u32| CALLS.compare_exchange(calls, OPEN, Acquire, Relaxed).is_ok();
    for _ in 0..TRIES {
        if opened(0) {
            return true;
        }
        spin_loop();
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

fn end() {
    if CALLS.swap(0, Release) & SLEEPER != 0 {
        sys::futex_wake(&CALLS);
    }
}

/// A filter will not let memory that is executed be made writable: when this returns none is open,
/// nor will be.
pub fn keep_executed() {
    EXECUTED_STAYS.store(true, Relaxed);
    changing(|| ());
}

/// A filter will not let pages be made exclusive: when this returns nobody does so.
pub fn keep_shared() {
    SHARED_STAYS.store(true, SeqCst);
    while UNSHARING.load(SeqCst) && agent::is_there() {
        // SAFETY: lets others run.
        unsafe { syscall!(sys::SCHED_YIELD) };
    }
}

/// A mapping.
#[derive(Clone, Copy)]
pub struct Mapping {
    pub start: usize,
    pub end: usize,
    /// PROT_* bits.
    pub access: usize,
    /// It is private and anonymous.
    plain: bool,
}

impl Mapping {
    /// Whether pages leave it when it is open, and not before.
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
    /// Bits as those of PROT_*, and [`SHARED`].
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
pub const WRITE_PROTECT: usize = 0xc018_aa06;

/// The mapping of an address. `maps` is /proc/PID/maps of this process, or -1.
pub fn ask(maps: i32, address: usize) -> Option<Mapping> {
    let mut query = Query { size: size_of::<Query>() as u64, address: address as u64, ..Query::default() };
    // SAFETY: a valid procmap_query.
    if maps < 0 || unsafe { syscall!(sys::IOCTL, maps, PROCMAP_QUERY, &raw mut query) } != 0 {
        return None;
    }
    let plain = query.access & SHARED == 0 && query.inode == 0 && query.device == [0; 2];
    let (start, end) = (query.start as usize, query.end as usize);
    Some(Mapping { start, end, access: query.access as usize & 7, plain })
}

/// A run of pages of a read-only mapping that may be written for the moment, by nobody but the
/// stub.
pub struct Opened {
    uffd: i32,
    maps: i32,
    start: usize,
    bytes: usize,
    /// As it was.
    mapping: Mapping,
}

/// What came of opening.
pub enum Opening {
    Open(Opened),
    /// It is no read-only mapping; the address at which it ends, or one behind the run.
    No(usize),
    /// The errno; EAGAIN: not now.
    Failed(i32),
}

/// What came of closing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// All is as it was.
    Whole,
    /// The run is a mapping of its own now. Its memory was never promised by the kernel's
    /// accounting (it is filled, but the program could never write there), and is now.
    Split,
    /// It could not be closed.
    Never,
}

impl Opened {
    /// Opens as much of a run as is in the mapping of its first page.
    pub fn open(uffd: i32, maps: i32, start: usize, bytes: usize) -> Opening {
        let ask = || ask(maps, start).filter(|mapping| mapping.start <= start);
        if !begin() {
            return match ask() {
                Some(mapping) if mapping.is_read_only() => Opening::Failed(sys::EAGAIN),
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
            return Err(sys::EACCES);
        }
        let bytes = bytes.min(mapping.end - start);
        let opened = Opened { uffd, maps, start, bytes, mapping };
        let protected = opened.protect(true);
        if protected != 0 {
            return Err(-protected as i32);
        }
        // SAFETY: the program's own memory, which nobody can write to as long as it is protected.
        let result = unsafe { syscall!(sys::MPROTECT, start, bytes, opened.access()) };
        if result != 0 {
            opened.protect(false);
            return Err(-result as i32);
        }
        Ok(opened)
    }

    /// As long as it is open.
    pub fn access(&self) -> usize {
        self.mapping.access | WRITE
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn protect(&self, on: bool) -> isize {
        let argument = [self.start as u64, self.bytes as u64, u64::from(on)];
        // SAFETY: struct uffdio_writeprotect; changes no byte.
        unsafe { syscall!(sys::IOCTL, self.uffd, WRITE_PROTECT, argument.as_ptr()) }
    }

    /// Gives it the access that it had. `empty`: no page of it is left. `look`: say whether it
    /// stays split.
    pub fn close(self, empty: bool, look: bool) -> Closed {
        let Opened { maps, start, bytes, mapping, .. } = self;
        let closed = self.close_pages();
        // Only now: who waits to write must find it closed. A failure leaves the protection to the
        // pager, which takes it off when it stops somebody.
        if !empty {
            self.protect(false);
        }
        let beyond = mapping.start < start || mapping.end > start + bytes;
        let is_split = || ask(maps, start).is_some_and(|now| now.start == start && now.end == start + bytes);
        let answer = match closed {
            false => Closed::Never,
            true if look && beyond && is_split() => Closed::Split,
            true => Closed::Whole,
        };
        end();
        answer
    }

    fn close_pages(&self) -> bool {
        // SAFETY: the access that it had.
        let close = |at: usize, bytes: usize| unsafe { syscall!(sys::MPROTECT, at, bytes, self.mapping.access) } == 0;
        for _ in 0..CLOSE_TRIES {
            if close(self.start, self.bytes) {
                return true;
            }
            // SAFETY: lets others run; the kernel may have no memory for the moment.
            unsafe { syscall!(sys::SCHED_YIELD) };
        }
        // By a bare system call a part of it may be gone.
        let mut pages = (self.start..self.start + self.bytes).step_by(sys::PAGE);
        pages.all(|page| close(page, sys::PAGE) || ask(self.maps, page).is_none_or(|now| now.start > page))
    }
}

/// Makes present pages exclusive that were shared by a fork, without writing: to read a byte of
/// them by this call copies those that are still shared. Where that is not allowed they stay
/// shared.
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
        from[count] = [address + page * sys::PAGE, 1];
        count += 1;
    }
    let to = [bytes.as_mut_ptr() as usize, count];
    // SAFETY: as many bytes as there are ranges of one byte, of this process.
    unsafe {
        let own = syscall!(sys::GETPID);
        syscall!(sys::PROCESS_VM_READV, own, to.as_ptr(), 1, from.as_ptr(), count, 0)
    };
}
