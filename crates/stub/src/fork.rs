//! fork where the kernel has no fork events for the pager (an ordinary user).
//!
//! A fork child is not registered, and would read zeros where a page is outside. So what is paged
//! is kept from fork children (MADV_DONTFORK): one that nobody has announced crashes. fork()
//! announces itself: before it the pager lets the child have the memory, takes nothing any more,
//! and notes what is outside; the child waits in its first handler until the pager serves it. What
//! glibc touches in the child before that must be there: it is touched in the parent.

use crate::lock as locked;
use crate::sys::{self, syscall, PAGE};
use crate::{access, agent};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use memfit_wire::{Ring, DOORBELL_PAGES, FORK_BEGINS, FORK_ENDED, GIVE, KEEP};

/// Held by a thread that forks, from before the fork to after it in parent and child, and by the
/// stub's thread while the process becomes a paged one. 0: free, 1: held, 2: held and somebody
/// waits.
static LOCK: AtomicU32 = AtomicU32::new(0);
/// The ring; 0: forks need not be told. Written with the lock held.
static RING: AtomicUsize = AtomicUsize::new(0);
static DOORBELL: AtomicUsize = AtomicUsize::new(0);
/// The pager's number of the fork under way; 0: it was not told.
static TOKEN: AtomicU64 = AtomicU64::new(0);
/// In the child of a paged process: the pager serves its memory.
static READY: AtomicU32 = AtomicU32::new(0);
/// Signals that the forking thread had blocked.
static MASK: AtomicU64 = AtomicU64::new(0);

/// Pages of the stack below the forking thread's that the child may use before it is served.
const STACK_PAGES: usize = 8;
/// Bytes to both sides of `errno` that hold glibc's variables of a thread.
const THREAD_BYTES: usize = 256;
/// Streams touched at most: a chain that is longer is broken.
const STREAMS_MAX: usize = 1 << 20;
/// Offsets in `FILE` on x86-64, part of its ABI: the next stream, the lock; bytes of a lock.
const CHAIN: usize = 0x68;
const STREAM_LOCK: usize = 0x88;
const LOCK_BYTES: usize = 16;

const DONTFORK: i32 = 10;
const DOFORK: i32 = 11;
const HUGEPAGE: i32 = 14;
const NOHUGEPAGE: i32 = 15;
const POPULATE_READ: usize = 22;

sys::weak!(_IO_list_all, memfit_stub_streams);
sys::weak!(_IO_list_lock, memfit_stub_lock_streams);
sys::weak!(_IO_list_unlock, memfit_stub_unlock_streams);
sys::weak!(__errno_location, memfit_stub_thread_errno);

/// Keeps forks out, or waits for one.
pub fn lock() {
    if LOCK.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        while LOCK.swap(2, Acquire) != 0 {
            sys::futex_wait(&LOCK, 2, 1000);
        }
    }
}

/// Lets forks go on.
pub fn unlock() {
    if LOCK.swap(0, Release) == 2 {
        sys::futex_wake(&LOCK);
    }
}

/// The process is paged: its forks are told from now on. With the lock held.
pub fn announce(ring: &'static Ring, doorbell: usize) {
    DOORBELL.store(doorbell, Relaxed);
    RING.store(core::ptr::from_ref(ring) as usize, Release);
}

/// Forks are not told of any more. Keeps them out, until [`unlock`]; false if one is under way.
pub fn hush() -> bool {
    if LOCK.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        return false;
    }
    RING.store(0, Release);
    true
}

/// In the child of a paged process: its memory is served, the thread that came out of fork may go
/// on.
pub fn served() {
    READY.store(1, Release);
    sys::futex_wake(&READY);
}

fn ring() -> Option<&'static Ring> {
    // SAFETY: set by `tell` to a ring that is mapped as long as the process lives.
    unsafe { (RING.load(Acquire) as *const Ring).as_ref() }
}

/// Makes the pager read the doorbell; returns when it has done so. With the lock held.
fn knock(ring: &Ring, what: u32) {
    ring.fork.what.store(what, SeqCst);
    let (first, bytes) = (DOORBELL.load(Relaxed), DOORBELL_PAGES * PAGE);
    // SAFETY: pages of ours, empty or zeros. The thread that reads one waits for the pager.
    unsafe {
        if what == FORK_ENDED {
            core::ptr::read_volatile((first + bytes - PAGE) as *const u8);
        } else {
            syscall!(sys::MADVISE, first, bytes, 4);
            core::ptr::read_volatile(first as *const u8);
        }
    }
}

/// Sets the calling thread's blocked signals; gives what they were.
pub fn set_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: the kernel reads one and writes the other word. SIG_SETMASK.
    unsafe { syscall!(sys::SIGPROCMASK, 2, &raw const mask, &raw mut old, 8) };
    old
}

/// In the forking thread, before all other handlers but those registered before us.
pub extern "C" fn before() {
    // A handler of a signal could fork, and would wait for itself.
    let mask = set_mask(u64::MAX);
    lock();
    MASK.store(mask, Relaxed);
    TOKEN.store(0, Relaxed);
    // The child would have what the stub has open.
    access::enter();
    let Some(ring) = ring() else { return };
    knock(ring, FORK_BEGINS);
    TOKEN.store(ring.fork.token.load(SeqCst), Relaxed);
    // Nothing is taken from here on: what is brought back stays until the child has it.
    touch_stack();
    touch_thread();
    touch_streams();
}

/// In the forking thread, whether there is a child or not.
pub extern "C" fn after_in_parent() {
    access::leave();
    if TOKEN.load(Relaxed) != 0 {
        if let Some(ring) = ring() {
            knock(ring, FORK_ENDED);
        }
    }
    let mask = MASK.load(Relaxed);
    unlock();
    set_mask(mask);
}

/// In the child, before all other handlers but those registered before us: the stub's thread was
/// not inherited, start another; in a told child, wait until the pager serves it, in another one of
/// a paged process until the stub can hold it.
pub extern "C" fn after_in_child() {
    let token = TOKEN.load(Relaxed);
    RING.store(0, Relaxed);
    READY.store(0, Relaxed);
    access::forget();
    // It was not inherited.
    locked::keep(0, 0);
    let started = agent::start(true, token);
    if token != 0 && !started {
        agent::die();
    }
    // In the child of a paged process all that it reads may be elsewhere: until its stub holds the
    // descriptor by which that comes back, it would read zeros when pager and launcher die.
    if started && agent::depends() {
        while READY.load(Acquire) == 0 {
            sys::futex_wait(&READY, 0, 1000);
        }
    }
    let mask = MASK.load(Relaxed);
    // Who waited for it is in the parent.
    LOCK.store(0, Release);
    set_mask(mask);
}

/// Brings pages back, as far as they are mapped and readable. Changes nothing.
pub fn touch(start: usize, bytes: usize) -> bool {
    let from = start & !(PAGE - 1);
    let to = (start + bytes).next_multiple_of(PAGE);
    // SAFETY: MADV_POPULATE_READ reads, and fails where that cannot be done.
    unsafe { syscall!(sys::MADVISE, from, to - from, POPULATE_READ) == 0 }
}

fn touch_stack() {
    let here = 0u8;
    touch_stack_at(&raw const here as usize);
}

/// Pages of a stack that a child may use before it is served.
pub fn touch_stack_at(top: usize) {
    let mut page = top & !(PAGE - 1);
    for _ in 0..STACK_PAGES {
        if !touch(page, PAGE) {
            return;
        }
        page -= PAGE;
    }
}

/// glibc's variables of this thread: they lie where its `errno` does.
fn touch_thread() {
    let location = __errno_location();
    if location != 0 {
        // SAFETY: glibc's function of this type.
        let errno = unsafe { core::mem::transmute::<usize, extern "C" fn() -> *mut i32>(location)() } as usize;
        touch(errno, 1);
        touch(errno - THREAD_BYTES, 1);
        touch(errno + THREAD_BYTES, 1);
    }
}

/// In the child glibc resets the locks of all open streams, which lie anywhere.
fn touch_streams() {
    let (lock, unlock, all) = (_IO_list_lock(), _IO_list_unlock(), _IO_list_all());
    if lock == 0 || unlock == 0 || all == 0 {
        return;
    }
    // SAFETY: glibc's functions of this type, and its list, which changes under this lock only.
    unsafe {
        core::mem::transmute::<usize, extern "C" fn()>(lock)();
        let mut stream = *(all as *const usize);
        for _ in 0..STREAMS_MAX {
            if stream == 0 {
                break;
            }
            // Its flags, the chain and the lock's address.
            touch(stream, STREAM_LOCK + 8);
            touch(*((stream + STREAM_LOCK) as *const usize), LOCK_BYTES);
            stream = *((stream + CHAIN) as *const usize);
        }
        core::mem::transmute::<usize, extern "C" fn()>(unlock)();
    }
}

/// Whether advice is not to be carried out: paged memory has no huge pages, and the mark on it must
/// stay.
pub fn overrules(advice: i32) -> bool {
    (advice == HUGEPAGE || advice == NOHUGEPAGE) && RING.load(Relaxed) != 0
}

/// The program has said whether its forks get a range, and the pager is told: what it keeps from
/// them must stay so, and what it gives them again must not be left open to a child that nobody
/// announces.
pub fn advised(start: usize, bytes: usize, advice: i32) {
    if (advice != DONTFORK && advice != DOFORK) || RING.load(Relaxed) == 0 {
        return;
    }
    let mask = set_mask(u64::MAX);
    lock();
    if let Some(ring) = ring() {
        ring.fork.start.store(start as u64, Relaxed);
        ring.fork.end.store((start + bytes.next_multiple_of(PAGE)) as u64, Relaxed);
        knock(ring, if advice == DONTFORK { KEEP } else { GIVE });
    }
    unlock();
    set_mask(mask);
}
