//! System calls that interposed functions make and libc's own functions do not.
//!
//! Most functions of the stub make such a call now and then: to find out whether the process has a
//! stub thread, or to wait for it. A program that forbids itself the call must not be killed for
//! it. So each filter that the program installs is asked about these calls first, and the functions
//! do without what it forbids.

use crate::seccomp::{call, Call, Program, AT, FD, MAKE};
use crate::sys::{self, syscall};
use crate::{access, fork};
use core::hint::spin_loop;
use core::sync::atomic::{AtomicUsize, Ordering::*};

const CALLS: [Call; 18] = [
    call(sys::GETPID, [0; 3]),
    call(sys::GETTID, [0; 3]),
    call(sys::TGKILL, [4321, 4321, 0]),
    call(sys::SCHED_YIELD, [0; 3]),
    call(sys::FUTEX, [AT, 0, 1]),
    call(sys::FUTEX, [AT, 1, 1]),
    call(sys::STAT, [AT, AT, 0]),
    Call(sys::SIGPROCMASK, [2, AT, AT, 8, 0, 0], false),
    call(sys::OPENAT, [usize::MAX - 99, AT, 0o2000000]),
    call(sys::IOCTL, [FD, access::PROCMAP_QUERY, AT]),
    call(sys::PRCTL, [GET_SECCOMP, 0, 0]),
    call(sys::SOCKET, [1, 0o2000005, 0]),
    call(sys::CONNECT, [FD, AT, 40]),
    call(sys::SENDMSG, [FD, AT, 0x4000]),
    call(sys::RECVMSG, [FD, AT, 0x4000_0000]),
    call(sys::FCNTL, [FD, sys::DUP_CLOEXEC, sys::STANDARD]),
    MAKE,
    // The last one: only `is_readable` makes it.
    Call(sys::SIGPROCMASK, [NOTHING, AT, 0, WORD, 0, 0], false),
];
const GET_SECCOMP: usize = 21;
/// No such change of the signal mask: the kernel reads the new mask, and returns EINVAL.
const NOTHING: usize = usize::MAX;
/// Bytes of a signal mask.
const WORD: usize = 8;

/// Those that filters forbid, by their place in the table; [`THREAD`]; and how often filters were
/// added, in the upper half.
static FORBIDDEN: AtomicUsize = AtomicUsize::new(0);
/// A filter forbids calls that make the stub thread, or calls of that thread.
const THREAD: usize = 1 << 31;
const ONE_MORE: usize = 1 << 32;

/// What was known before a filter was added, and after that.
pub struct Added(usize, usize);

/// A filter is about to be installed that forbids some of these calls. `thread`: and some of those
/// that make the stub thread, or of that thread.
pub fn add(program: &Program, thread: bool) -> Added {
    let forbidden = CALLS.iter().enumerate().filter(|(_, call)| !program.allows(call));
    let forbidden = forbidden.fold(if thread { THREAD } else { 0 }, |all, (at, _)| all | 1 << at);
    let after = |before: usize| before.wrapping_add(ONE_MORE) | forbidden;
    let before = FORBIDDEN.fetch_update(Relaxed, Relaxed, |before| Some(after(before))).unwrap_or_default();
    Added(before, after(before))
}

/// The kernel has not installed that filter. If another one was added meanwhile, all stays.
pub fn take_back(added: &Added) {
    let _ = FORBIDDEN.compare_exchange(added.1, added.0, Relaxed, Relaxed);
}

/// Whether the calling thread has a filter, or is in strict mode. False if it must not ask.
pub fn is_filtered() -> bool {
    // SAFETY: asks for a number.
    !forbids(sys::PRCTL) && unsafe { syscall!(sys::PRCTL, GET_SECCOMP) } != 0
}

/// Whether one of these calls must not be made.
pub fn forbids(number: usize) -> bool {
    let forbidden = FORBIDDEN.load(Relaxed);
    let is_one = |at: usize| forbidden >> at & 1 == 1 && CALLS[at].0 == number;
    forbidden != 0 && (0..CALLS.len() - 1).any(is_one)
}

/// Whether the calling thread must not make one of these calls: a filter forbids it, and the thread
/// has one, or must not ask.
pub fn forbids_here(number: usize) -> bool {
    forbids(number) && (forbids(sys::PRCTL) || is_filtered())
}

/// Whether the stub thread must not be made by a thread of the program.
pub fn forbids_thread() -> bool {
    FORBIDDEN.load(Relaxed) & THREAD != 0
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
/// not, where a read by the stub would be a SIGSEGV. True if that cannot be found out. The caller's
/// own stack needs no call: many programs have small vectors there.
pub fn is_readable(at: usize, bytes: usize) -> bool {
    const EFAULT: isize = 14;
    let Some(end) = at.checked_add(bytes.max(WORD)) else { return false };
    let page_of = |at: usize| at & !(sys::PAGE_BYTES - 1);
    let in_one = page_of(at) == page_of(end - 1);
    let on_stack = in_one && page_of(at) == page_of(&raw const end as usize);
    if bytes == 0 || on_stack || FORBIDDEN.load(Relaxed) >> (CALLS.len() - 1) & 1 == 1 {
        return true;
    }
    // SAFETY: the kernel checks the address, and changes nothing.
    let read = |at| unsafe { syscall!(sys::SIGPROCMASK, NOTHING, at, 0, WORD) } != -EFAULT;
    // The kernel takes null for no mask.
    at != 0 && (at..end).step_by(sys::PAGE_BYTES).all(read) && (in_one || read(end - WORD))
}

/// Whether the calling process is not the one whose variables these are, but a child that shares
/// its memory (vfork). What such a child does to itself must not be noted here.
pub fn is_guest() -> bool {
    let process = fork::process();
    process != 0 && !forbids(sys::GETPID) && process != sys::pid()
}
