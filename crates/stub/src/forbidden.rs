//! System calls that interposed functions make and libc's own functions do not.
//!
//! Most functions of the stub make such a call now and then: to find out whether the process has a
//! stub thread, or to wait for it. A program that forbids itself the call must not be killed for
//! it. So each filter that the program installs is asked about these calls first, and the functions
//! do without what it forbids.

use crate::seccomp::{call, Call, Program, AT, FD};
use crate::sys::{self, syscall};
use crate::{access, fork};
use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

const CALLS: [Call; 10] = [
    call(sys::GETPID, [0; 3]),
    call(sys::GETTID, [0; 3]),
    call(sys::TGKILL, [4321, 4321, 0]),
    call(sys::SCHED_YIELD, [0; 3]),
    call(sys::FUTEX, [AT, 0, 1]),
    call(sys::FUTEX, [AT, 1, 1]),
    call(sys::STAT, [AT, AT, 0]),
    call(sys::SIGPROCMASK, [2, AT, AT]),
    call(sys::OPENAT, [usize::MAX - 99, AT, 0o2000000]),
    call(sys::IOCTL, [FD, access::PROCMAP_QUERY, AT]),
];

/// Those that a filter forbids, by their place in the table.
static FORBIDDEN: AtomicUsize = AtomicUsize::new(0);
/// A filter forbids calls that make the stub thread, or calls of that thread.
static THREAD: AtomicBool = AtomicBool::new(false);

/// A filter is about to be installed that forbids some of these calls. `thread`: and some of those
/// that make the stub thread, or of that thread.
pub fn add(program: &Program, thread: bool) {
    let forbidden = CALLS.iter().enumerate().filter(|(_, call)| !program.permits(call));
    FORBIDDEN.fetch_or(forbidden.fold(0, |all, (at, _)| all | 1 << at), Relaxed);
    THREAD.fetch_or(thread, Relaxed);
}

/// Whether one of these calls must not be made.
pub fn forbids(number: usize) -> bool {
    let forbidden = FORBIDDEN.load(Relaxed);
    let is_one = |at: usize| forbidden >> at & 1 == 1 && CALLS[at].0 == number;
    forbidden != 0 && (0..CALLS.len()).any(is_one)
}

/// Whether the stub thread must not be made by a thread of the program.
pub fn forbids_thread() -> bool {
    THREAD.load(Relaxed)
}

/// Lets others run.
pub fn yield_now() {
    if forbids(sys::SCHED_YIELD) {
        spin_loop();
    } else {
        // SAFETY: no arguments.
        unsafe { syscall!(sys::SCHED_YIELD) };
    }
}

/// Whether memory can be read that the program names in an argument. The kernel answers EFAULT if
/// not, where a read by the stub would be a SIGSEGV. True if that cannot be found out.
pub fn is_readable(at: usize, bytes: usize) -> bool {
    const EFAULT: isize = 14;
    const WORD: usize = 8;
    // No such change of the signal mask: the kernel reads the new mask, and returns EINVAL.
    const NOTHING: isize = -1;
    let Some(end) = at.checked_add(bytes.max(WORD)) else { return false };
    if bytes == 0 || forbids(sys::SIGPROCMASK) {
        return true;
    }
    // SAFETY: the kernel checks the address, and changes nothing.
    let read = |at| unsafe { syscall!(sys::SIGPROCMASK, NOTHING, at, 0, WORD) } != -EFAULT;
    // The kernel takes null for no mask.
    at != 0 && (at..end).step_by(sys::PAGE_BYTES).all(read) && read(end - WORD)
}

/// Whether the calling process is not the one whose variables these are, but a child that shares
/// its memory (vfork). What such a child does to itself must not be noted here.
pub fn is_guest() -> bool {
    let process = fork::process();
    process != 0 && !forbids(sys::GETPID) && process != sys::pid()
}
