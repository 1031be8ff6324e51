//! Processes that the pager cannot read in /proc any more.
//!
//! Without CAP_SYS_PTRACE the pager cannot read /proc of a process that is not dumpable: the
//! program has called `prctl(PR_SET_DUMPABLE, 0)`, or has changed its credentials. The pager would
//! not see new threads, or what memory a fork child has. So the process gets all of its memory back
//! and is detached: see [`agent::detach`].

use crate::exec::{returned, Next};
use crate::forbidden::forbids;
use crate::sys::{self, syscall, ENOSYS};
use crate::{agent, confine, fork};
use memfit_wire::UNREADABLE;

const GET_DUMPABLE: usize = 3;

/// Asks the pager to detach the process, with signals blocked.
pub fn ask(why: u32) -> bool {
    let mask = fork::block_signals();
    let left = agent::detach(why);
    fork::restore_signals(mask);
    left
}

/// After a change of credentials.
fn ask_if_unreadable() {
    // SAFETY: asks for a number.
    if !forbids(sys::PRCTL) && unsafe { syscall!(sys::PRCTL, GET_DUMPABLE) } != 1 {
        ask(UNREADABLE);
    }
}

/// Functions that change credentials and have only ids as arguments. libc's functions do the work,
/// for all threads that libc knows.
macro_rules! changes {
    ($($function:ident $place:ident ($($id:ident),*)),*) => {$(
        static $place: Next = Next::of(concat!(stringify!($function), "\0"));

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $function($($id: u32),*) -> i32 {
            // SAFETY: the symbol is libc's function of this type.
            unsafe {
                let next = $place.get();
                if next == 0 {
                    return returned(-ENOSYS);
                }
                let next: unsafe extern "C" fn($($id: u32),*) -> i32 = core::mem::transmute(next);
                let _change = confine::begin();
                let result = next($($id),*);
                if result == 0 {
                    ask_if_unreadable();
                }
                result
            }
        }
    )*};
}
changes!(
    setuid SETUID (id),
    setgid SETGID (id),
    seteuid SETEUID (id),
    setegid SETEGID (id),
    setreuid SETREUID (real, effective),
    setregid SETREGID (real, effective),
    setresuid SETRESUID (real, effective, saved),
    setresgid SETRESGID (real, effective, saved)
);
