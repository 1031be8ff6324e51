//! Programs with a userfaultfd of their own: the pager first unregisters the range for them.

use crate::exec::{returned, Next};
use crate::socket;
use crate::sys::{self, syscall};
use memfit_wire::uffd::UFFDIO_REGISTER;
use memfit_wire::{FromStub, OWN_UFFD, STAY};

const EBUSY: isize = 16;
/// Requests for the range: on an overloaded machine the pager can have registered it again.
const TRIES: u32 = 5;

/// # Safety
/// As ioctl.
pub unsafe fn control(fd: usize, request: usize, argument: usize) -> isize {
    // SAFETY: forwards what the caller answers for.
    let call = || unsafe { syscall!(sys::IOCTL, fd, request, argument) };
    let mut result = call();
    for _ in 0..TRIES {
        if result != -EBUSY || request as u32 != UFFDIO_REGISTER as u32 {
            break;
        }
        // SAFETY: all-zero is a valid message; the kernel has read the argument, a struct that
        // begins with a range.
        let (mut wish, [start, bytes]) = unsafe { (core::mem::zeroed::<FromStub>(), *(argument as *const [u64; 2])) };
        (wish.kind, wish.segment) = (OWN_UFFD, [start, start.wrapping_add(bytes)]);
        if socket::ask_with(&mut wish, None) != STAY {
            break;
        }
        result = call();
    }
    result
}

/// The next function of that name: that of libc, or of another preloaded library, which may have
/// made the descriptor.
pub static IOCTL: Next = Next::new(c"ioctl");

#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: i32, request: usize, argument: usize) -> i32 {
    type Ioctl = unsafe extern "C" fn(i32, usize, usize) -> i32;
    let next = if request as u32 == UFFDIO_REGISTER as u32 { 0 } else { IOCTL.get() };
    // SAFETY: the symbol is a function of this type; forwards what the caller answers for; sets
    // errno.
    unsafe {
        match next {
            0 => returned(control(fd as usize, request, argument)),
            next => core::mem::transmute::<usize, Ioctl>(next)(fd, request, argument),
        }
    }
}
