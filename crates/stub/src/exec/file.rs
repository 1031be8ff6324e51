//! What kind of file will be executed.

use super::filter::{byte, starts_with, value};
use super::next::environ;
use super::Text;
use crate::sys::{self, syscall};
use core::ffi::CStr;
use core::mem::MaybeUninit;

/// Longest path of a searched file, bytes. Small, because a signal stack can be small.
pub const PATH_BYTES: usize = 1024;
/// Bytes of a file by which the kernel tells its kind.
const HEAD_BYTES: usize = 256;
/// glibc's path when there is no `PATH`.
const DEFAULT_PATH: &CStr = c"/bin:/usr/bin";
/// An empty path.
pub const EMPTY: Text = c"".as_ptr().cast();

const PREAD: usize = 17;
const ACCESS: usize = 21;
const OPENAT: usize = 257;
const AT_FDCWD: i32 = -100;

/// Whether the file with this path is a 32-bit program or a script for one.
pub unsafe fn at_path(path: Text) -> bool {
    // SAFETY: the kernel checks the path.
    unsafe { is_32_bit(AT_FDCWD, path, 0) }
}

/// As `at_path` for the file that `execvp` finds.
#[inline(never)]
pub unsafe fn searched(file: Text) -> bool {
    let mut path = [MaybeUninit::uninit(); PATH_BYTES];
    // SAFETY: libc's functions read the name, too.
    unsafe { search(file, &mut path).is_some_and(|path| at_path(path)) }
}

/// Whether the file is a 32-bit program or a script for one. False if that cannot be found out.
pub unsafe fn is_32_bit(directory: i32, path: Text, flags: i32) -> bool {
    let mut head = [MaybeUninit::<u8>::uninit(); HEAD_BYTES];
    // SAFETY: reads only the bytes that were read from the file; terminates the interpreter's name
    // in place.
    unsafe {
        let got = read_head(directory, path, flags, &mut head);
        let head = head.as_mut_ptr().cast::<u8>();
        if got < 3 || byte(head, 0) != b'#' || byte(head, 1) != b'!' {
            return is_elf_32(head, got);
        }
        let blank = |i: usize| matches!(byte(head, i), b' ' | b'\t');
        let Some(from) = (2..got).find(|i| !blank(*i)) else { return false };
        let to = (from..got).find(|i| blank(*i) || matches!(byte(head, *i), b'\n' | 0)).unwrap_or(got);
        if to == HEAD_BYTES {
            return false;
        }
        *head.add(to) = 0;
        let mut interpreter = [MaybeUninit::<u8>::uninit(); HEAD_BYTES];
        let got = read_head(AT_FDCWD, head.add(from), 0, &mut interpreter);
        is_elf_32(interpreter.as_ptr().cast(), got)
    }
}

unsafe fn is_elf_32(head: Text, got: usize) -> bool {
    // SAFETY: `got` bytes are there.
    unsafe { got >= 5 && starts_with(head, b"\x7fELF\x01") }
}

/// Reads the first bytes of a regular file. Returns their number, 0 after any error.
unsafe fn read_head(directory: i32, path: Text, flags: i32, head: &mut [MaybeUninit<u8>; HEAD_BYTES]) -> usize {
    // SAFETY: the kernel checks the path and writes no more than the buffer holds. Only the
    // descriptor that was opened here is closed. O_CLOEXEC | O_NONBLOCK | O_NOCTTY: opening must
    // have no side effect.
    unsafe {
        if path.is_null() || !is_regular(directory, path, flags) {
            return 0;
        }
        let given = flags != 0 && byte(path, 0) == 0;
        let fd = if given { directory as isize } else { syscall!(OPENAT, directory, path, 0o2004400) };
        if fd < 0 {
            return 0;
        }
        let got = syscall!(PREAD, fd, head.as_mut_ptr(), HEAD_BYTES, 0);
        if !given {
            syscall!(sys::CLOSE, fd);
        }
        got.max(0) as usize
    }
}

unsafe fn is_regular(directory: i32, path: Text, flags: i32) -> bool {
    let mut stat = [MaybeUninit::<u32>::uninit(); 36];
    // SAFETY: the kernel checks the path; its struct stat has 144 bytes, and the seventh 32-bit
    // word is the mode.
    unsafe {
        syscall!(sys::NEWFSTATAT, directory, path, stat.as_mut_ptr(), flags) == 0 && stat[6].assume_init() >> 12 == 8
    }
}

/// The file that `execvp` will take: the name itself if it has a slash, else the first executable
/// file in `PATH`.
pub unsafe fn search(file: Text, path: &mut [MaybeUninit<u8>; PATH_BYTES]) -> Option<Text> {
    if file.is_null() {
        return None;
    }
    // SAFETY: C strings end with a null; all writes are within the buffer.
    unsafe {
        let len = (0..=255).find(|i| matches!(byte(file, *i), b'/' | 0))?;
        if byte(file, len) != 0 {
            return Some(file);
        }
        if len == 0 {
            return None;
        }
        let buffer = path.as_mut_ptr().cast::<u8>();
        let mut from = value(environ(), b"PATH=").unwrap_or(DEFAULT_PATH.as_ptr().cast());
        loop {
            let mut end = 0;
            while !matches!(byte(from, end), b':' | 0) {
                end += 1;
            }
            if end + len + 2 <= PATH_BYTES {
                sys::copy(buffer as usize, from as usize, end);
                let slash = usize::from(end > 0);
                *buffer.add(end) = b'/';
                sys::copy(buffer.add(end + slash) as usize, file as usize, len + 1);
                if is_regular(AT_FDCWD, buffer, 0) && syscall!(ACCESS, buffer, 1) == 0 {
                    return Some(buffer);
                }
            }
            if byte(from, end) == 0 {
                return None;
            }
            from = from.add(end + 1);
        }
    }
}
