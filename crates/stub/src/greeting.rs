//! A process without a stub thread: most processes are never paged, and then never have one.
//!
//! The constructor, and in a fork child the first handler, tells the pager that the process exists
//! and where a thread of the program can make the stub thread (see [`GREETING`]). If the pager
//! could not have it made, because another process traces this one or ptrace is forbidden, the stub
//! makes its thread at once.

use crate::access;
use crate::agent::{self, Start};
use crate::forbidden::forbids;
use crate::fork;
use crate::socket;
use crate::sys::{self, syscall};
use core::mem::zeroed;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use memfit_wire::{FromStub, AGAIN, FORKED, GREETING, WAITED};

/// The stub thread must be made at once.
static AT_ONCE: AtomicBool = AtomicBool::new(false);
/// Where the stack of the first thread began; another program in this process has another address.
static START_STACK: AtomicUsize = AtomicUsize::new(0);
/// Number of system call filters of the process.
static FILTERS: AtomicUsize = AtomicUsize::new(0);
/// The process that has greeted and is not detached.
static PROCESS: AtomicUsize = AtomicUsize::new(0);
static FORKED_CHILD: AtomicBool = AtomicBool::new(false);
/// The process may wait at the start socket.
static MAY_WAIT: AtomicBool = AtomicBool::new(false);
/// It had to wait there, and has not told the pager.
static MUST_TELL: AtomicBool = AtomicBool::new(false);

/// Called once, by the constructor. `at_once`: on this machine the pager cannot have threads made.
pub fn begin(at_once: bool, start_stack: usize) {
    START_STACK.store(start_stack, Relaxed);
    let status = status();
    AT_ONCE.store(at_once || status.is_none_or(|[tracer, _]| tracer != 0), Relaxed);
    let filters = status.map_or(0, |[_, filters]| filters);
    FILTERS.store(filters, Relaxed);
    MAY_WAIT.store(status.is_some() && filters == 0, Relaxed);
    // These filters are unknown: they may forbid the call. (A filter that forbids executable memory
    // needs no such care: then the program has none.)
    if filters > 0 || status.is_none() {
        access::keep_shared();
    }
}

/// Greets the pager, and waits first while the pager lets nobody start. False if the thread must be
/// made now.
pub fn send(forked: bool, start: &Start) -> bool {
    PROCESS.store(0, Relaxed);
    FORKED_CHILD.store(forked, Relaxed);
    // A fork child has all signals blocked.
    let (started, waited) = socket::start(MAY_WAIT.load(Relaxed), || forked && fork::signal_waits());
    if AT_ONCE.load(Relaxed) {
        MUST_TELL.store(waited, Relaxed);
        started.into_iter().for_each(socket::close);
        return false;
    }
    let Some(connection) = started.or_else(socket::connect_now) else { return false };
    if !say(connection, start, if waited { WAITED } else { 0 }) {
        return false;
    }
    // SAFETY: asks for a number.
    PROCESS.store(unsafe { syscall!(sys::GETPID) } as usize, Relaxed);
    true
}

/// The process does not wait at the start socket: a filter may forbid the calls of a wait, or the
/// program runs already.
pub fn never_wait() {
    MAY_WAIT.store(false, Relaxed);
}

/// The flag for a hello that is not preceded by a greeting.
pub fn waited() -> u32 {
    if MUST_TELL.swap(false, Relaxed) {
        WAITED
    } else {
        0
    }
}

pub fn is_forked() -> bool {
    FORKED_CHILD.load(Relaxed)
}

/// The program has added a filter that lets the stub thread be made and do its work.
pub fn add_filter() {
    FILTERS.fetch_add(1, Relaxed);
    never_wait();
    if has_greeted() {
        socket::connect_now().map(|connection| say(connection, &Start::here(), AGAIN));
    }
}

/// The process is detached.
pub fn forget() {
    PROCESS.store(0, Relaxed);
}

/// Whether the calling process, or the parent of this vfork child, may have greeted and have no
/// stub thread. Needs no system call.
pub fn may_have_greeted() -> bool {
    PROCESS.load(Relaxed) != 0 && !agent::has_thread()
}

/// Whether the calling process (not a vfork child of it) has greeted and has no stub thread.
pub fn has_greeted() -> bool {
    may_have_greeted() && !forbids(sys::GETPID) && PROCESS.load(Relaxed) == sys::pid() && !agent::is_there()
}

fn say(connection: i32, start: &Start, flags: u32) -> bool {
    // SAFETY: all-zero is a valid FromStub.
    let mut greeting: FromStub = unsafe { zeroed() };
    greeting.kind = GREETING;
    greeting.flags = flags | if FORKED_CHILD.load(Relaxed) { FORKED } else { 0 };
    greeting.entry = start.entry as u64;
    greeting.token = START_STACK.load(Relaxed) as u64;
    greeting.stack = [start.stack_pointer as u64, start.thread_pointer as u64];
    greeting.filters = FILTERS.load(Relaxed) as u64;
    let said = socket::send(connection, &mut greeting, None);
    socket::close(connection);
    said
}

/// The tracer of the process (0: none) and its number of system call filters.
fn status() -> Option<[usize; 2]> {
    const KEYS: [&[u8]; 2] = [b"TracerPid:", b"Seccomp_filters:"];
    const HERE: isize = -100;
    let (mut found, mut buffer) = ([0usize; 2], [0u8; 512]);
    // SAFETY: a path with a null, a buffer of its length, our own descriptor. O_CLOEXEC.
    let fd = unsafe { syscall!(sys::OPENAT, HERE, c"/proc/self/status".as_ptr(), 0o2000000) };
    if fd < 0 {
        return None;
    }
    // Position in the line, and the keys that the line matches so far.
    let (mut column, mut fits, mut whole) = (0, [true; 2], false);
    loop {
        // SAFETY: as above.
        let got = unsafe { syscall!(sys::READ, fd, buffer.as_mut_ptr(), buffer.len()) };
        let Some(bytes) = usize::try_from(got).ok().and_then(|got| buffer.get(..got)).filter(|bytes| !bytes.is_empty())
        else {
            break;
        };
        for &byte in bytes {
            if byte == b'\n' {
                (column, fits) = (0, [true; 2]);
                continue;
            }
            for (key, (fits, value)) in KEYS.iter().zip(fits.iter_mut().zip(&mut found)) {
                match key.get(column) {
                    Some(expected) => *fits &= *expected == byte,
                    None if *fits && byte.is_ascii_digit() => {
                        *value = value.wrapping_mul(10).wrapping_add(usize::from(byte - b'0'));
                        whole |= key[0] == b'T';
                    }
                    None => {}
                }
            }
            column += 1;
        }
    }
    // SAFETY: as above.
    unsafe { syscall!(sys::CLOSE, fd) };
    whole.then_some(found)
}
