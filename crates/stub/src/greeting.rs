//! A process without a thread of ours: most are never paged, and then nothing of them is another's.
//!
//! The constructor, and in a fork child the first handler, tell the pager that the process is
//! there, and where a thread of the program can make ours (see [`GREETING`]). Where the pager could
//! not have it do so, the thread is made at once: if somebody traces the process, or ptrace is
//! forbidden.

use crate::access;
use crate::agent::{self, Start};
use crate::socket;
use crate::sys::{self, syscall};
use core::mem::zeroed;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use memfit_wire::{FromStub, AGAIN, FORKED, GREETING};

/// The thread must be made at once.
static AT_ONCE: AtomicBool = AtomicBool::new(false);
/// Where the stack of its first thread began: that of another program is elsewhere.
static START_STACK: AtomicUsize = AtomicUsize::new(0);
/// System call filters of the process.
static FILTERS: AtomicUsize = AtomicUsize::new(0);
/// The process that has greeted, and is not left.
static PROCESS: AtomicUsize = AtomicUsize::new(0);
static FORKED_CHILD: AtomicBool = AtomicBool::new(false);

/// Called once, by the constructor. `at_once`: the user's machine does not let the pager have
/// threads made.
pub fn begin(at_once: bool, start_stack: usize) {
    START_STACK.store(start_stack, Relaxed);
    let status = status();
    AT_ONCE.store(at_once || status.is_none_or(|[tracer, _]| tracer != 0), Relaxed);
    let filters = status.map_or(0, |[_, filters]| filters);
    FILTERS.store(filters, Relaxed);
    // What it forbids is not known here. (Where one forbids to make executed memory, there is
    // none.)
    if filters > 0 || status.is_none() {
        access::keep_shared();
    }
}

/// Tells the pager; false if the thread must be made now.
pub fn send(forked: bool, start: &Start) -> bool {
    PROCESS.store(0, Relaxed);
    FORKED_CHILD.store(forked, Relaxed);
    if AT_ONCE.load(Relaxed) || !say(start, 0) {
        return false;
    }
    // SAFETY: asks for a number.
    PROCESS.store(unsafe { syscall!(sys::GETPID) } as usize, Relaxed);
    true
}

/// Whether the process is a fork child.
pub fn is_forked() -> bool {
    FORKED_CHILD.load(Relaxed)
}

/// A filter was added that lets the thread be made, and do its work.
pub fn add_filter() {
    FILTERS.fetch_add(1, Relaxed);
    if is_alone() {
        say(&Start::here(), AGAIN);
    }
}

/// Whether the calling process has greeted. (A child by vfork has our variables.)
pub fn is_alone() -> bool {
    // SAFETY: asks for a number.
    PROCESS.load(Relaxed) == unsafe { syscall!(sys::GETPID) } as usize && !agent::is_there()
}

fn say(start: &Start, flags: u32) -> bool {
    // Never waits for the pager: the thread could.
    let Some(connection) = socket::connect_now() else { return false };
    // SAFETY: all-zero is a valid FromStub.
    let mut greeting: FromStub = unsafe { zeroed() };
    greeting.kind = GREETING;
    greeting.flags = flags | if FORKED_CHILD.load(Relaxed) { FORKED } else { 0 };
    greeting.entry = start.entry as u64;
    greeting.token = START_STACK.load(Relaxed) as u64;
    greeting.stack = [start.stack_pointer as u64, start.thread_pointer as u64];
    greeting.filters = FILTERS.load(Relaxed) as u64;
    let said = socket::send(connection, &mut greeting, None);
    // SAFETY: our own descriptor.
    unsafe { syscall!(sys::CLOSE, connection) };
    said
}

/// Who traces the process, 0 if nobody does, and how many system call filters it has.
fn status() -> Option<[usize; 2]> {
    const KEYS: [&[u8]; 2] = [b"TracerPid:", b"Seccomp_filters:"];
    const HERE: isize = -100;
    let (mut found, mut buffer) = ([0usize; 2], [0u8; 512]);
    // SAFETY: a path with a null, a buffer of its length, a descriptor of our own. O_CLOEXEC.
    let fd = unsafe { syscall!(sys::OPENAT, HERE, c"/proc/self/status".as_ptr(), 0o2000000) };
    if fd < 0 {
        return None;
    }
    // Where in its line a byte is, and the keys that the line begins with so far.
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
