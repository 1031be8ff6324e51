//! fork. The parent goes on when the pager knows what the child has.
//!
//! Where the kernel reports forks to the pager, the parent waits until the pager has handled the
//! report. The rest is about kernels that report none (without CAP_SYS_PTRACE).
//!
//! A fork child is not registered, and would read zeros where a page is evicted. So paged memory is
//! kept from fork children (MADV_DONTFORK): a child that nobody announced crashes. fork() is
//! announced. Before the fork the pager gives the memory to children, takes nothing more, and notes
//! which pages are evicted. The child waits in its first handler until the pager serves its memory.
//! The parent touches what glibc needs in the child before that.

use crate::forbidden::{forbids, forbids_here, yield_now};
use crate::lock as locked;
use crate::sys::{self, syscall, PAGE_BYTES};
use crate::{access, agent, exec, seccomp, socket, threads};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use memfit_wire::{Ring, DOORBELL_PAGES, FORK_BEGINS, FORK_ENDED, NOTICE_DOFORK, NOTICE_DONTFORK, NO_THREAD};

/// Held by a thread that forks, from before the fork until after it in parent and child, and by the
/// stub thread while the process becomes a paged one. 0: free, 1: held, 2: held with waiters.
static LOCK: AtomicU32 = AtomicU32::new(0);
/// The ring; 0: forks need not be announced. Written with the lock held.
static RING: AtomicUsize = AtomicUsize::new(0);
static DOORBELL: AtomicUsize = AtomicUsize::new(0);
/// The ring of a paged process whose forks the kernel reports; 0: else.
static REPORTED: AtomicUsize = AtomicUsize::new(0);
/// The ring's number of forks before the current one, if it is reported. Written with the lock
/// held.
static FORKS: AtomicU32 = AtomicU32::new(0);
static WAITS: AtomicBool = AtomicBool::new(false);
/// The pager's number of the current fork; 0: not announced.
static TOKEN: AtomicU64 = AtomicU64::new(0);
/// In the child of a paged process: set when the pager serves its memory.
static READY: AtomicU32 = AtomicU32::new(0);
/// The process whose variables these are; a child of vfork has them, too.
static PROCESS: AtomicUsize = AtomicUsize::new(0);
/// Signal mask of the forking thread before the fork. Written with the lock held.
static MASK: AtomicU64 = AtomicU64::new(0);
/// The forking thread has blocked its signals, and restores them. Written with the lock held.
static BLOCKED: AtomicBool = AtomicBool::new(false);

/// The program has marked memory by MADV_WIPEONFORK. Fork children inherit this variable.
static WIPES: AtomicBool = AtomicBool::new(false);

/// Pages of the forking thread's stack that the child may use before the pager serves it.
const STACK_PAGES: usize = 8;
/// Bytes on both sides of `errno` that hold glibc's thread-local variables.
const THREAD_BYTES: usize = 256;
/// How often an announced child tries to start its stub thread, and the time between two tries, ms:
/// under a limit of tasks (pids.max, RLIMIT_NPROC) there may be a place soon.
const TRIES: usize = 200;
const BETWEEN_TRIES: i64 = 10;
/// How long a parent waits at most until the pager has handled the report of its fork, ms. Of a
/// fork that has failed there is no report.
const HANDLED_WITHIN: i64 = 100;
/// How often a thread tries to ring the fork doorbell while others touch it.
const RINGS: usize = 1000;
/// Most streams that are touched: a longer chain is corrupt.
const STREAMS_MAX: usize = 1 << 20;
/// Offsets in `FILE` on x86-64, part of its ABI: the next stream, the lock. Bytes of a lock.
const CHAIN: usize = 0x68;
const STREAM_LOCK: usize = 0x88;
const LOCK_BYTES: usize = 16;

const DONTNEED: i32 = 4;
const DONTFORK: i32 = 10;
const DOFORK: i32 = 11;
const HUGEPAGE: i32 = 14;
const NOHUGEPAGE: i32 = 15;
const POPULATE_READ: usize = 22;
const DONTNEED_LOCKED: i32 = 24;

sys::weak!(_IO_list_all, memfit_stub_streams);
sys::weak!(_IO_list_lock, memfit_stub_lock_streams);
sys::weak!(_IO_list_unlock, memfit_stub_unlock_streams);
sys::weak!(__errno_location, memfit_stub_thread_errno);

/// Keeps forks out; waits for a fork under way.
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

/// The process is paged: announce its forks from now on. With the lock held.
pub fn announce(ring: &'static Ring, doorbell: usize) {
    DOORBELL.store(doorbell, Relaxed);
    RING.store(core::ptr::from_ref(ring) as usize, Release);
}

/// The process is paged, and the kernel reports its forks: parents wait from now on.
pub fn wait_for_reports(ring: &'static Ring) {
    REPORTED.store(core::ptr::from_ref(ring) as usize, Release);
}

/// The process is no longer paged.
pub fn no_reports() {
    REPORTED.store(0, Release);
}

/// Announce no more forks, and keep forks out until [`unlock`]. False if a fork is under way.
pub fn stop_announcing() -> bool {
    if LOCK.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        return false;
    }
    RING.store(0, Release);
    true
}

/// In the child of a paged process: the pager serves its memory, so the thread that forked may go
/// on.
pub fn served() {
    READY.store(1, Release);
    sys::futex_wake(&READY);
}

fn ring() -> Option<&'static Ring> {
    ring_at(&RING)
}

fn ring_at(place: &AtomicUsize) -> Option<&'static Ring> {
    // SAFETY: set to a ring that is mapped as long as the process lives; the child sets it to 0.
    unsafe { (place.load(Acquire) as *const Ring).as_ref() }
}

/// Rings the fork doorbell; returns when the pager has acted on the notice. With the lock held.
///
/// False if the pager does not hear it: something else is mapped there, or a filter keeps the
/// calling thread from emptying the page.
fn knock(ring: &Ring, what: u32) -> bool {
    let fork = &ring.fork;
    let (first, bytes) = (DOORBELL.load(Relaxed), DOORBELL_PAGES * PAGE_BYTES);
    let page = if what == FORK_ENDED { first + bytes - PAGE_BYTES } else { first };
    // SAFETY: asks for a number.
    let thread = if forbids_here(sys::GETTID) { 0 } else { unsafe { syscall!(sys::GETTID) as u32 } };
    fork.thread.store(thread, Relaxed);
    for rings in 1.. {
        let emptied = what == FORK_ENDED || empty(first, bytes);
        fork.what.store(what, SeqCst);
        // SAFETY: our own page, absent or zero. The thread that reads it waits for the pager.
        unsafe { core::ptr::read_volatile(page as *const u8) };
        // An unread notice: another thread had touched the page. It is taken back before the page
        // is emptied again: a pager that has read it reads no events until the fork ends.
        if what == FORK_ENDED || fork.what.compare_exchange(what, 0, SeqCst, SeqCst).is_err() {
            break;
        }
        if !emptied || rings == RINGS {
            return false;
        }
    }
    loop {
        match fork.what.load(SeqCst) {
            0 => return true,
            _ if forbids(sys::FUTEX) => yield_now(),
            seen => sys::futex_wait(&fork.what, seen, 1),
        }
    }
}

/// Empties the doorbell; false if that fails. The program may have locked it by mlockall.
fn empty(first: usize, bytes: usize) -> bool {
    // SAFETY: our own pages, which are absent or zero.
    let done = |advice: i32| unsafe { syscall!(sys::MADVISE, first, bytes, advice) == 0 };
    done(DONTNEED) || done(DONTNEED_LOCKED)
}

/// Called by the constructor, and in each fork child.
pub fn note_process() {
    if !forbids(sys::GETPID) {
        PROCESS.store(sys::pid(), Relaxed);
    }
}

/// See [`PROCESS`].
pub fn process() -> usize {
    PROCESS.load(Relaxed)
}

/// Blocks all signals of the calling thread, and returns its old mask for [`restore_signals`].
/// `None`, and they stay as they are, if a filter of this thread forbids it.
pub fn block_signals() -> Option<u64> {
    (!forbids_here(sys::SIGPROCMASK)).then(|| set_mask(u64::MAX))
}

/// Restores the mask. A thread that has blocked its signals can always do that: a filter that
/// another thread has installed meanwhile is not its own.
pub fn restore_signals(mask: Option<u64>) {
    mask.map(set_mask);
}

/// Sets the calling thread's signal mask; returns the old one.
fn set_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: the kernel reads one word and writes the other one. SIG_SETMASK.
    unsafe { syscall!(sys::SIGPROCMASK, 2, &raw const mask, &raw mut old, 8) };
    old
}

/// In a fork child: whether a signal waits that the program has not blocked.
pub fn signal_waits() -> bool {
    let mut pending = 0u64;
    // SAFETY: the kernel writes one word.
    unsafe { syscall!(sys::SIGPENDING, &raw mut pending, 8) };
    pending & !MASK.load(Relaxed) != 0
}

/// In the forking thread, after all prepare handlers but those registered before the stub's.
pub extern "C" fn before() {
    // A signal handler could fork, and would wait for its own thread. While forks are announced, no
    // filter of a thread that can fork forbids the mask: the process would be detached.
    let mask = match ring() {
        Some(_) => Some(set_mask(u64::MAX)),
        None => block_signals(),
    };
    lock();
    BLOCKED.store(mask.is_some(), Relaxed);
    MASK.store(mask.unwrap_or(u64::MAX), Relaxed);
    TOKEN.store(0, Relaxed);
    // The child would inherit a run that the stub has open.
    access::enter();
    let reported = ring_at(&REPORTED);
    WAITS.store(reported.is_some(), Relaxed);
    if let Some(ring) = reported {
        FORKS.store(ring.forks.load(SeqCst), Relaxed);
    }
    let Some(ring) = ring() else { return };
    // A child that nobody announces lacks paged memory, and crashes.
    if !knock(ring, FORK_BEGINS) {
        return;
    }
    TOKEN.store(ring.fork.token.load(SeqCst), Relaxed);
    // The pager takes nothing from here on: touched pages stay until the child has them.
    touch_stack();
    touch_thread();
    touch_streams();
}

/// In the forking thread, whether or not the fork succeeded.
pub extern "C" fn after_in_parent() {
    access::leave();
    if TOKEN.load(Relaxed) != 0 {
        if let Some(ring) = ring() {
            knock(ring, FORK_ENDED);
        }
    }
    if let Some(ring) = ring_at(&REPORTED).filter(|_| WAITS.load(Relaxed)) {
        wait_for_report(ring);
    }
    let mask = mask_before();
    unlock();
    restore_signals(mask);
}

/// The kernel lets the parent go on as soon as the pager reads the report. What the parent changes
/// then, the pager could take for changes from before the fork.
fn wait_for_report(ring: &Ring) {
    let before = FORKS.load(Relaxed);
    for _ in 0..HANDLED_WITHIN / BETWEEN_TRIES {
        if ring.forks.load(SeqCst) != before || forbids(sys::FUTEX) {
            return;
        }
        sys::futex_wait(&ring.forks, before, BETWEEN_TRIES);
    }
}

/// The mask that the forking thread restores. With the lock held.
fn mask_before() -> Option<u64> {
    BLOCKED.load(Relaxed).then(|| MASK.load(Relaxed))
}

/// In the child, before all other handlers but those registered before the stub's. The child does
/// not inherit the stub thread, so this starts a new one. An announced child waits until the pager
/// serves its memory; any other child of a paged process, until its stub has a userfaultfd.
pub extern "C" fn after_in_child() {
    let token = TOKEN.load(Relaxed);
    RING.store(0, Relaxed);
    REPORTED.store(0, Relaxed);
    READY.store(0, Relaxed);
    note_process();
    access::forget();
    threads::forget();
    seccomp::forget();
    // The child does not inherit the window.
    locked::keep(0, 0);
    let started = agent::start(true, token) || token != 0 && starts_later(token);
    // Pages of a child of a paged process may be evicted. Until its stub holds the userfaultfd
    // through which they come back, they would read as zeros if pager and launcher died.
    if started && agent::depends() {
        while READY.load(Acquire) == 0 {
            sys::futex_wait(&READY, 0, 1000);
        }
    }
    // It reads pages that may be evicted.
    exec::leave_environment_in_child();
    let mask = mask_before();
    // Threads that waited for the lock are in the parent.
    LOCK.store(0, Release);
    restore_signals(mask);
}

/// Tries again to start the stub thread of an announced child, which cannot go on without one.
fn starts_later(token: u64) -> bool {
    for _ in 1..TRIES {
        sys::futex_wait(&READY, 0, BETWEEN_TRIES);
        if agent::start(true, token) {
            return true;
        }
    }
    socket::ask(NO_THREAD, 0, token);
    agent::die()
}

/// Brings back the pages that are mapped and readable. Changes nothing.
pub fn touch(start: usize, bytes: usize) -> bool {
    let from = start & !(PAGE_BYTES - 1);
    let to = (start + bytes).next_multiple_of(PAGE_BYTES);
    // SAFETY: MADV_POPULATE_READ only reads, and fails where it cannot.
    unsafe { syscall!(sys::MADVISE, from, to - from, POPULATE_READ) == 0 }
}

fn touch_stack() {
    let here = 0u8;
    touch_stack_at(&raw const here as usize);
}

/// Touches the pages of a stack that a child may use before the pager serves it.
pub fn touch_stack_at(top: usize) {
    let mut page = top & !(PAGE_BYTES - 1);
    for _ in 0..STACK_PAGES {
        if !touch(page, PAGE_BYTES) {
            return;
        }
        page -= PAGE_BYTES;
    }
}

/// Touches glibc's variables of this thread, which are near its `errno`.
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

/// In the child glibc resets the locks of all open streams, which can be anywhere.
fn touch_streams() {
    let (lock, unlock, all) = (_IO_list_lock(), _IO_list_unlock(), _IO_list_all());
    if lock == 0 || unlock == 0 || all == 0 {
        return;
    }
    // SAFETY: glibc's functions of this type, and its list, which changes only under this lock.
    unsafe {
        core::mem::transmute::<usize, extern "C" fn()>(lock)();
        let mut stream = *(all as *const usize);
        for _ in 0..STREAMS_MAX {
            if stream == 0 {
                break;
            }
            // Its flags, the chain and the address of the lock.
            touch(stream, STREAM_LOCK + 8);
            touch(*((stream + STREAM_LOCK) as *const usize), LOCK_BYTES);
            stream = *((stream + CHAIN) as *const usize);
        }
        core::mem::transmute::<usize, extern "C" fn()>(unlock)();
    }
}

/// Whether advice must not be carried out: paged memory has no huge pages, and the mark on it
/// (MADV_NOHUGEPAGE) must stay.
pub fn overrules(advice: i32) -> bool {
    (advice == HUGEPAGE || advice == NOHUGEPAGE) && RING.load(Relaxed) != 0
}

/// The program is about to mark memory by MADV_WIPEONFORK.
pub fn wipe() {
    WIPES.store(true, Relaxed);
}

/// See [`WIPES`].
pub fn wipes() -> bool {
    WIPES.load(Relaxed)
}

/// Tells the pager that the program has set or unset MADV_DONTFORK on a range. What the program
/// keeps from children must stay kept, and what it gives them must not reach a child that nobody
/// announces.
pub fn advised(start: usize, bytes: usize, advice: i32) {
    if advice != DONTFORK && advice != DOFORK {
        return;
    }
    let mask = block_signals();
    // While the process becomes a paged one, the stub thread holds the lock: the pager may have
    // read the process's mappings before this advice.
    lock();
    if let Some(ring) = ring() {
        ring.fork.start.store(start as u64, Relaxed);
        ring.fork.end.store((start + bytes.next_multiple_of(PAGE_BYTES)) as u64, Relaxed);
        knock(ring, if advice == DONTFORK { NOTICE_DONTFORK } else { NOTICE_DOFORK });
    }
    unlock();
    restore_signals(mask);
}
