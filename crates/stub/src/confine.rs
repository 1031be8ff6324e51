//! Programs that give up rights: other credentials, another root or namespace, a filter for the
//! calling thread only.
//!
//! All threads share memory: whoever breaks into the process can use the rights of each thread. So
//! the stub thread gives up the same: it installs a filter that allows only its work. Which other
//! rights it keeps does not matter then. A process without a stub thread has nothing to give up: a
//! later stub thread starts with the rights that the program has by then. If it starts while the
//! program is about to give some up, it confines itself.
//!
//! The kernel refuses a filter for all threads (TSYNC) if one of them has a filter of its own. So
//! `seccomp` detaches the process before such a call.

use crate::exec::{returned, Next};
use crate::forbidden::{is_guest, yield_now};
use crate::seccomp::{Instruction, Program, ALLOW, WORK};
use crate::sys::{self, syscall, ENOSYS};
use crate::{agent, file_map, fork, socket};
use core::sync::atomic::{fence, AtomicBool, AtomicU32, Ordering::*};
use memfit_wire::{CONFINE, FILTERED, NO_NEW_PRIVILEGES, STAY};

/// The stub thread has a filter of its own.
static CONFINED: AtomicBool = AtomicBool::new(false);
/// The stub thread could not install one.
static FAILED: AtomicBool = AtomicBool::new(false);
/// Counts the requests that the stub thread has answered.
static ANSWERED: AtomicU32 = AtomicU32::new(0);
/// Number of threads that are about to give up rights.
static GIVING_UP: AtomicU32 = AtomicU32::new(0);
/// Number of threads that are about to set PR_SET_NO_NEW_PRIVS.
static LOSING_PRIVILEGES: AtomicU32 = AtomicU32::new(0);
/// The pager may not have read the hello yet.
const TRIES: u32 = 100;

/// Lives as long as the call that gives up rights.
#[must_use]
pub struct Change(&'static AtomicU32);

impl Change {
    /// A stub thread that says hello after this sees the count. The caller sees any that said hello
    /// before.
    fn begin(count: &'static AtomicU32) -> Change {
        count.fetch_add(1, Relaxed);
        fence(SeqCst);
        Change(count)
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Release);
    }
}

/// For a new stub thread; `forked`: of a new process, in which no other thread gives up rights.
pub fn forget(forked: bool) {
    CONFINED.store(false, Relaxed);
    FAILED.store(false, Relaxed);
    if forked {
        GIVING_UP.store(0, Relaxed);
        LOSING_PRIVILEGES.store(0, Relaxed);
    }
}

/// In a stub thread that has said hello. False if it keeps rights that the program gives up.
pub fn start() -> bool {
    fence(SeqCst);
    match [&GIVING_UP, &LOSING_PRIVILEGES].map(|count| count.load(Acquire)) {
        [0, 0] => true,
        [0, _] => confine(NO_NEW_PRIVILEGES),
        _ => confine(0),
    }
}

/// The program can give up rights at any moment, and nothing tells the stub.
pub fn always() {
    GIVING_UP.store(1, Relaxed);
}

/// Whether the stub thread has a filter of its own.
pub fn is_confined() -> bool {
    agent::is_there() && CONFINED.load(Acquire)
}

/// The program is about to give up rights. On return the stub thread cannot use them any more, nor
/// can one that says hello before the result is dropped. (One that was cloned before this and says
/// hello after that keeps them.)
pub fn begin() -> Change {
    let change = Change::begin(&GIVING_UP);
    if !is_guest() {
        file_map::keep_apart();
    }
    let mask = fork::block_signals();
    // The answer to another thread's request may have come first.
    while agent::has_said_hello() && !CONFINED.load(Acquire) {
        if !tell(0) || FAILED.load(Acquire) {
            agent::detach(FILTERED);
            break;
        }
    }
    fork::restore_signals(mask);
    change
}

/// The program is about to set PR_SET_NO_NEW_PRIVS: programs that it starts gain no rights.
pub fn without_new_privileges() -> Change {
    let change = Change::begin(&LOSING_PRIVILEGES);
    let mask = fork::block_signals();
    if agent::has_said_hello() && !CONFINED.load(Acquire) {
        tell(NO_NEW_PRIVILEGES);
    }
    fork::restore_signals(mask);
    change
}

/// Asks the stub thread by way of the pager, because only the pager can reach it. True when it has
/// answered a request, or has ended.
fn tell(flags: u32) -> bool {
    let before = ANSWERED.load(Acquire);
    for _ in 0..TRIES {
        if socket::ask(CONFINE, flags, 0) == STAY {
            while ANSWERED.load(Acquire) == before && agent::is_there() {
                sys::futex_wait(&ANSWERED, before, 100);
            }
            return true;
        }
        if !agent::is_there() {
            return true;
        }
        yield_now();
    }
    false
}

/// In the stub thread: carries out the request.
pub fn obey(flags: u32) {
    let confined = confine(flags);
    if flags & NO_NEW_PRIVILEGES == 0 {
        FAILED.store(!confined, Release);
    }
    ANSWERED.fetch_add(1, Release);
    sys::futex_wake(&ANSWERED);
}

/// Confines the calling stub thread.
fn confine(flags: u32) -> bool {
    const NEW_PRIVILEGES: usize = 38;
    const SET_SECCOMP: usize = 22;
    // Its filter forbids a second one.
    if CONFINED.load(Relaxed) {
        return true;
    }
    // SAFETY: changes the calling thread only; the program of the filter lives through the call.
    let confined = unsafe {
        let mut result = syscall!(sys::PRCTL, NEW_PRIVILEGES, 1, 0, 0, 0);
        if flags & NO_NEW_PRIVILEGES == 0 && result == 0 {
            let (code, len) = filter();
            let program = Program { len, filter: code.as_ptr() };
            result = syscall!(sys::PRCTL, SET_SECCOMP, 2, &raw const program);
        }
        result == 0
    };
    if confined && flags & NO_NEW_PRIVILEGES == 0 {
        CONFINED.store(true, Release);
    }
    confined
}

/// Most instructions of the filter.
const ROOM: usize = 112;
pub const LOAD: u16 = 0x20;
pub const IS: u16 = 0x15;
pub const RETURN: u16 = 0x06;
/// ERRNO with EPERM.
const REFUSE: u32 = 0x0005_0001;

/// The filter allows the calls of [`WORK`] and those for the start and the end of the thread;
/// signals only to its own process; limits and process_vm_readv only of its own process.
fn filter() -> ([Instruction; ROOM], u16) {
    const NUMBER: u32 = 0;
    const ARCH: u32 = 4;
    const X86_64: u32 = 0xc000_003e;
    const MORE: [usize; 4] = [sys::SIGACTION, sys::SIGPROCMASK, sys::SCHED_YIELD, sys::USERFAULTFD];
    let mut code = [Instruction { code: RETURN, jump_true: 0, jump_false: 0, k: REFUSE }; ROOM];
    let mut len = 0;
    let mut put = |code_: u16, jump_true: u8, jump_false: u8, k: u32| {
        code[len] = Instruction { code: code_, jump_true, jump_false, k };
        len += 1;
    };
    let argument = |which: u32| 16 + 8 * which;
    put(LOAD, 0, 0, ARCH);
    put(IS, 1, 0, X86_64);
    put(RETURN, 0, 0, REFUSE);
    put(LOAD, 0, 0, NUMBER);
    for number in WORK.iter().map(|call| call.0).chain(MORE).filter(|number| *number != sys::PRLIMIT) {
        put(IS, 0, 1, number as u32);
        put(RETURN, 0, 0, ALLOW);
    }
    // SAFETY: asks for a number.
    let pid = unsafe { syscall!(sys::GETPID) } as u32;
    for number in [sys::KILL, sys::TGKILL, sys::PROCESS_VM_READV] {
        put(IS, 0, 4, number as u32);
        put(LOAD, 0, 0, argument(0));
        put(IS, 0, 1, pid);
        put(RETURN, 0, 0, ALLOW);
        put(RETURN, 0, 0, REFUSE);
    }
    // prlimit: pid 0 (this process), and a null pointer to new limits.
    put(IS, 0, 10, sys::PRLIMIT as u32);
    for half in [argument(0), argument(2), argument(2) + 4] {
        put(LOAD, 0, 0, half);
        put(IS, 1, 0, 0);
        put(RETURN, 0, 0, REFUSE);
    }
    put(RETURN, 0, 0, ALLOW);
    put(RETURN, 0, 0, REFUSE);
    (code, len as u16)
}

/// libc's function, after the stub thread has given up its rights.
macro_rules! gives_up {
    ($($function:ident $place:ident ($($argument:ident),*)),*) => {$(
        static $place: Next = Next::of(concat!(stringify!($function), "\0"));

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $function($($argument: usize),*) -> i32 {
            // SAFETY: the symbol is libc's function, whose arguments are words at most.
            unsafe {
                let next = $place.get();
                if next == 0 {
                    return returned(-ENOSYS);
                }
                let _change = begin();
                core::mem::transmute::<usize, unsafe extern "C" fn($($argument: usize),*) -> i32>(next)($($argument),*)
            }
        }
    )*};
}
gives_up!(
    chroot CHROOT (path),
    pivot_root PIVOT_ROOT (new, old),
    capset CAPSET (header, data),
    setgroups SETGROUPS (count, groups),
    setfsuid SETFSUID (id),
    setfsgid SETFSGID (id)
);
