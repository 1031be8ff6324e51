//! Programs that lock all of their memory.
//!
//! `mlockall` would lock the bounce window, too. A locked window takes only locked pages, cannot be
//! emptied, and is filled by the kernel. So in a paged process the stub locks current mappings
//! without filling them (MCL_ONFAULT) and unlocks the window again. An evicted page comes back when
//! it is touched, and stays then.

use crate::exec::returned;
use crate::map;
use crate::sys::{self, syscall};
use core::sync::atomic::{AtomicUsize, Ordering::*};

const CURRENT: i32 = 1;
const FUTURE: i32 = 2;
const ON_FAULT: i32 = 4;

/// The bounce window; 0 bytes before the process is attached.
static WINDOW: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Sets the mapping that stays unlocked.
pub fn keep(window: usize, bytes: usize) {
    WINDOW.store(window, Relaxed);
    BYTES.store(bytes, Release);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlockall(flags: i32) -> i32 {
    let bytes = BYTES.load(Acquire);
    // SAFETY: locks memory as the program asks; unlocks a mapping of ours; sets errno.
    unsafe {
        if bytes == 0 || flags & CURRENT == 0 || flags & !(CURRENT | FUTURE | ON_FAULT) != 0 {
            let result = syscall!(sys::MLOCKALL, flags);
            if result == 0 && flags & (CURRENT | FUTURE) == FUTURE {
                // The reservation is not locked, and what is given out of it would not be either.
                map::close();
            }
            return returned(result);
        }
        let mut result = syscall!(sys::MLOCKALL, CURRENT | ON_FAULT);
        syscall!(sys::MUNLOCK, WINDOW.load(Relaxed), bytes);
        if result == 0 && flags & FUTURE != 0 {
            result = syscall!(sys::MLOCKALL, flags & !CURRENT);
        }
        returned(result)
    }
}
