//! Programs that must be alone in their process for a moment: the kernel lets only a single thread into another user
//! namespace. So the stub's thread ends before such a call and starts anew after it, as long as the process is not paged.

use crate::agent;
use crate::exec::returned;
use crate::sys::{self, syscall};

const NEW_USER: i32 = 0x1000_0000;

/// Makes the call `change` with the stub's thread gone, if that can be.
///
/// # Safety
/// As `change`.
unsafe fn alone(change: impl Fn() -> isize) -> i32 {
    let stopped = agent::stop();
    let result = change();
    if stopped {
        agent::start(false, 0);
    }
    // SAFETY: sets errno.
    unsafe { returned(result) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unshare(flags: i32) -> i32 {
    // SAFETY: forwards what the caller answers for; sets errno.
    unsafe {
        if flags & NEW_USER == 0 {
            return returned(syscall!(sys::UNSHARE, flags));
        }
        alone(|| syscall!(sys::UNSHARE, flags))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn setns(fd: i32, kind: i32) -> i32 {
    // SAFETY: as in `unshare`.
    unsafe {
        if kind & NEW_USER == 0 {
            return returned(syscall!(sys::SETNS, fd, kind));
        }
        alone(|| syscall!(sys::SETNS, fd, kind))
    }
}
