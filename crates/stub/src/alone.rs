//! Programs that need a process with a single thread for a moment. The kernel lets only such a
//! process enter another user or time namespace, or unshare what threads share. Where that call
//! fails, the process is detached, which ends the stub thread, and the call is repeated.
//!
//! Also: programs that enter another network namespace, where the pager's abstract name does not
//! exist, or forbid themselves abstract names by Landlock.

use crate::exec::{returned, Next};
use crate::sys::{self, syscall};
use crate::{agent, confine, detach, fork, socket};
use core::mem::size_of;
use memfit_wire::{ALONE, NETNS_FALLBACK};

const EINVAL: isize = 22;
const EUSERS: isize = 87;
const NEW_NET: i32 = 0x4000_0000;
/// CLONE_VM.
const SHARES_MEMORY: i32 = 0x100;

/// Makes the pager reachable by a path, for processes that cannot use its abstract name.
pub fn lose_abstract_names() {
    socket::ask(NETNS_FALLBACK, 0, 0);
}

/// The process enters another network namespace if these flags say so. Flags of 0 (setns) allow any
/// kind of namespace.
pub fn unshare_network(flags: i32) {
    if flags & NEW_NET != 0 || flags == 0 {
        lose_abstract_names();
    }
}

/// Makes the call `change`. The kernel refuses it with EINVAL or EUSERS to a process of several
/// threads; if the stub thread is the only other one, the process is detached and the call
/// repeated. Without /proc that is done for any number of threads, and the call can fail again. If
/// the stub thread stays, it must not keep the rights that the program gives up.
///
/// # Safety
/// As `change`.
unsafe fn alone(change: impl Fn() -> isize) -> isize {
    let giving_up = confine::begin();
    let mut result = change();
    if (result == -EINVAL || result == -EUSERS) && agent::is_there() && agent::threads().is_none_or(|all| all == 2) {
        let paged = agent::is_paged();
        if detach::ask(ALONE) {
            result = change();
            // A stub thread that starts from here on has the rights of now.
            drop(giving_up);
            if !paged {
                agent::start_again();
            }
        }
    }
    result
}

/// libc's `clone`, which runs a function on another stack.
pub static CLONE: Next = Next::new(c"clone");
type Function = extern "C" fn(usize) -> i32;
type Clone = unsafe extern "C" fn(Function, usize, i32, usize, usize, usize, usize) -> i32;

/// What a child with its own memory runs.
struct Start {
    function: Function,
    argument: usize,
}

/// Entry of such a child, on the stack that the program has given.
extern "C" fn begin(start: usize) -> i32 {
    // SAFETY: the child has a copy of its parent's memory, in which the caller of clone still has
    // this value on its stack.
    let Start { function, argument } = unsafe { (start as *const Start).read() };
    fork::after_in_child();
    agent::exit_thread(function(argument) as usize)
}

/// The flags say which of the last three arguments exist; they are passed on unchanged. A child
/// with its own memory counts as a fork child.
#[unsafe(no_mangle)]
unsafe extern "C" fn clone(
    function: Function,
    stack: usize,
    flags: i32,
    argument: usize,
    parent: usize,
    tls: usize,
    child: usize,
) -> i32 {
    if flags & NEW_NET != 0 {
        unshare_network(flags);
    }
    let next = CLONE.get();
    if next == 0 {
        // SAFETY: sets errno.
        return unsafe { returned(-38) };
    }
    // SAFETY: the symbol is libc's function of this type; forwards what the caller answers for. The
    // seventh argument is on the stack in libc's convention as in ours, and is only passed on.
    unsafe {
        let next = core::mem::transmute::<usize, Clone>(next);
        if flags & SHARES_MEMORY != 0 || stack == 0 {
            return next(function, stack, flags, argument, parent, tls, child);
        }
        let start = Start { function, argument };
        fork::before();
        fork::touch_stack_at(stack);
        fork::touch(&raw const start as usize, size_of::<Start>());
        let result = next(begin, stack, flags, &raw const start as usize, parent, tls, child);
        fork::after_in_parent();
        result
    }
}

/// The same by a bare system call, on the caller's stack.
///
/// # Safety
/// `call` makes a child. If the child has its own memory, `call` returns in it as well.
pub unsafe fn fork_by(call: impl Fn() -> isize) -> isize {
    fork::before();
    match call() {
        0 => {
            fork::after_in_child();
            0
        }
        result => {
            fork::after_in_parent();
            result
        }
    }
}

/// libc's `_Fork` (glibc 2.34): a fork without the handlers of the program's libraries.
pub static FORK: Next = Next::new(c"_Fork");

#[unsafe(no_mangle)]
unsafe extern "C" fn _Fork() -> i32 {
    let next = FORK.get();
    // SAFETY: the symbol is libc's function of this type, which sets errno and makes a child with
    // its own memory; so does the system call. A program for an older libc looks for the symbol.
    unsafe {
        if next == 0 {
            return returned(fork_by(|| syscall!(sys::FORK)));
        }
        let next = core::mem::transmute::<usize, unsafe extern "C" fn() -> i32>(next);
        fork_by(|| next() as isize) as i32
    }
}

/// Child by clone or clone3 with these flags and this stack, as bubblewrap makes its namespaces.
///
/// # Safety
/// As `call`, which makes the child.
pub unsafe fn clone_by(flags: usize, stack: usize, call: impl Fn() -> isize) -> isize {
    if flags & NEW_NET as usize != 0 {
        unshare_network(NEW_NET);
    }
    match flags & SHARES_MEMORY as usize == 0 && stack == 0 {
        // SAFETY: as the caller promises.
        true => unsafe { fork_by(call) },
        false => call(),
    }
}

/// unshare, from libc's function or `syscall`.
///
/// # Safety
/// As unshare.
pub unsafe fn leave_namespaces(flags: i32) -> isize {
    if flags & NEW_NET != 0 {
        unshare_network(flags);
    }
    // SAFETY: forwards what the caller answers for.
    unsafe { alone(|| syscall!(sys::UNSHARE, flags)) }
}

/// setns, from libc's function or `syscall`.
///
/// # Safety
/// As setns.
pub unsafe fn enter_namespace(fd: i32, kind: i32) -> isize {
    unshare_network(kind);
    // SAFETY: forwards what the caller answers for.
    unsafe { alone(|| syscall!(sys::SETNS, fd, kind)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unshare(flags: i32) -> i32 {
    // SAFETY: as above; sets errno.
    unsafe { returned(leave_namespaces(flags)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn setns(fd: i32, kind: i32) -> i32 {
    // SAFETY: as above; sets errno.
    unsafe { returned(enter_namespace(fd, kind)) }
}
