//! Calls that fill much memory inside of the kernel: a large read, mlock, MAP_POPULATE.
//!
//! The pager has a thread of the program make the stub thread (`greeting`), but only when that
//! thread leaves the kernel. A program of one thread that reads a file of 10 GiB by one call would
//! fill all of it first. So the stub makes its thread before such a call.
//!
//! The functions that read are cancellation points, where a thread can be unwound. So the stub
//! calls libc's function last: the compiler makes a jump of it, and no frame of the stub is left.

use crate::exec::{returned, Next};
use crate::sys::{self, syscall, Iovec};
use crate::{agent, forbidden, greeting};
use core::mem::{size_of, transmute};

/// Bytes from which on a call counts as such a call: the kernel fills them in about 0.2 ms.
pub const LONG: usize = 1 << 20;

/// A call is about to fill `bytes`.
pub fn begin(bytes: usize) {
    if bytes >= LONG && may_need_thread() && greeting::has_greeted() {
        agent::make_now();
    }
}

/// Whether the stub thread may have to be made before a large call. Needs no system call.
fn may_need_thread() -> bool {
    greeting::may_have_greeted() && !forbidden::forbids_thread()
}

/// A call by its number, with the second and third argument of the system call.
pub fn begin_by_number(number: usize, b: usize, c: usize) {
    match number {
        sys::READ | sys::PREAD => begin(c),
        // SAFETY: the caller gives the kernel `c` ranges.
        sys::READV | sys::PREADV | sys::PREADV2 => begin(unsafe { total(b as *const Iovec, c) }),
        sys::MLOCK | sys::MLOCK2 => begin(b),
        _ => {}
    }
}

/// Bytes of all ranges; 0 if there are more than the kernel takes, if they cannot be read, or if
/// their number does not matter.
///
/// # Safety
/// `ranges` are an argument of the program.
unsafe fn total(ranges: *const Iovec, count: usize) -> usize {
    const MOST: usize = 1024;
    if count > MOST || !may_need_thread() || !forbidden::is_readable(ranges as usize, count * size_of::<Iovec>()) {
        return 0;
    }
    // SAFETY: they can be read.
    (0..count).fold(0, |sum: usize, i| sum.saturating_add(unsafe { (*ranges.add(i)).bytes }))
}

/// Looks libc's functions up at the start: see `exec::next`.
pub fn find_all() {
    let all = [
        &READ,
        &PREAD,
        &PREAD64,
        &READ_CHECKED,
        &PREAD_CHECKED,
        &PREAD64_CHECKED,
        &READV,
        &PREADV,
        &PREADV64,
        &PREADV2,
        &PREADV64_2,
        &FREAD,
        &FREAD_UNLOCKED,
        &FREAD_CHECKED,
        &FREAD_UNLOCKED_CHECKED,
    ];
    all.iter().for_each(|next| _ = next.get());
}

/// Converts the result of a system call to the function's result; sets errno.
fn wide(result: isize) -> isize {
    if result < 0 {
        // SAFETY: sets errno.
        unsafe { returned(result) as isize }
    } else {
        result
    }
}

/// libc's function, or the system call where there is none.
macro_rules! reads {
    ($($function:ident $place:ident ($($argument:ident),*) $bytes:expr, $instead:expr;)*) => {$(
        static $place: Next = Next::of(concat!(stringify!($function), "\0"));

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $function($($argument: usize),*) -> isize {
            // SAFETY: the symbol is libc's function, whose arguments and result are words. The
            // system calls check theirs.
            unsafe {
                begin($bytes);
                match $place.get() {
                    0 => wide($instead),
                    next => transmute::<usize, unsafe extern "C" fn($($argument: usize),*) -> isize>(next)($($argument),*),
                }
            }
        }
    )*};
}

// Without libc no stream can be read, so `fread` has no replacement. The high half of an offset is
// the argument after the low one: 0 on 64 bits.
reads!(
    read READ (fd, at, bytes) bytes, syscall!(sys::READ, fd, at, bytes);
    pread PREAD (fd, at, bytes, offset) bytes, syscall!(sys::PREAD, fd, at, bytes, offset);
    pread64 PREAD64 (fd, at, bytes, offset) bytes, syscall!(sys::PREAD, fd, at, bytes, offset);
    __read_chk READ_CHECKED (fd, at, bytes, room) bytes, syscall!(sys::READ, fd, at, bytes.min(room));
    __pread_chk PREAD_CHECKED (fd, at, bytes, offset, room) bytes, syscall!(sys::PREAD, fd, at, bytes.min(room), offset);
    __pread64_chk PREAD64_CHECKED (fd, at, bytes, offset, room) bytes,
        syscall!(sys::PREAD, fd, at, bytes.min(room), offset);
    readv READV (fd, ranges, count) total(ranges as *const Iovec, count), syscall!(sys::READV, fd, ranges, count);
    preadv PREADV (fd, ranges, count, offset) total(ranges as *const Iovec, count),
        syscall!(sys::PREADV, fd, ranges, count, offset);
    preadv64 PREADV64 (fd, ranges, count, offset) total(ranges as *const Iovec, count),
        syscall!(sys::PREADV, fd, ranges, count, offset);
    preadv2 PREADV2 (fd, ranges, count, offset, flags) total(ranges as *const Iovec, count),
        syscall!(sys::PREADV2, fd, ranges, count, offset, 0, flags);
    preadv64v2 PREADV64_2 (fd, ranges, count, offset, flags) total(ranges as *const Iovec, count),
        syscall!(sys::PREADV2, fd, ranges, count, offset, 0, flags);
    fread FREAD (at, size, count, stream) size.saturating_mul(count), 0;
    fread_unlocked FREAD_UNLOCKED (at, size, count, stream) size.saturating_mul(count), 0;
    __fread_chk FREAD_CHECKED (at, room, size, count, stream) size.saturating_mul(count), 0;
    __fread_unlocked_chk FREAD_UNLOCKED_CHECKED (at, room, size, count, stream) size.saturating_mul(count), 0;
);
