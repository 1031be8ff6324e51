//! The exec family. The stub takes itself out of the environment of programs that cannot load it.
//!
//! The loader of a 32-bit program would complain about the 64-bit library in `LD_PRELOAD`. So the
//! functions that start programs are interposed. Each looks at the file first. For a 32-bit
//! program, or a script of one, it passes a copy of the environment without the stub and
//! `MEMFIT_*`. It does the same where a filter would kill the program for what its stub does. In
//! all other cases, and when it cannot tell, it passes the arguments unchanged; libc's function
//! then reports the errors.
//!
//! All this can run in a signal handler, with a lock of libc held, or in a vfork child that shares
//! the memory of its suspended parent. So it uses only the stack and raw system calls, and only
//! calls that the loader of every program makes too: no sandbox that lets programs start forbids
//! them.

mod file;
mod filter;
mod next;

pub use filter::{leave_environment, leave_environment_in_child};
pub use next::image;

use core::mem::MaybeUninit;
use file::{at_path, is_32_bit, searched, EMPTY};
use filter::fit;
use next::environ;
pub use next::{returned, Next};

/// A C string, or null.
type Text = *const u8;
/// A null-terminated array of C strings, or null.
type Texts = *const Text;

const AT_EMPTY_PATH: i32 = 0x1000;
const E2BIG: isize = 7;
/// Arguments of `execl` that are passed in registers.
const REGISTERS: usize = 5;
/// Most arguments of `execl` besides those in registers; more give E2BIG.
const STACKED_MAX: usize = 1024;
/// Arguments, with the terminator, for which a small array is enough.
const FEW: usize = 64;

#[unsafe(no_mangle)]
unsafe extern "C" fn execve(path: Text, argv: Texts, envp: Texts) -> i32 {
    // SAFETY: forwards what the caller answers for.
    unsafe { fit(at_path(path), envp, |changed| next::execve(path, argv, changed.unwrap_or(envp))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: Text, argv: Texts) -> i32 {
    // SAFETY: as in `execve`.
    unsafe { fit(at_path(path), environ(), |changed| next::execv(path, argv, changed)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: Text, argv: Texts) -> i32 {
    // SAFETY: as in `execve`.
    unsafe { fit(searched(file), environ(), |changed| next::execvp(file, argv, changed)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(file: Text, argv: Texts, envp: Texts) -> i32 {
    // SAFETY: as in `execve`.
    unsafe { fit(searched(file), envp, |changed| next::execvpe(file, argv, changed.unwrap_or(envp))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(fd: i32, argv: Texts, envp: Texts) -> i32 {
    // SAFETY: as in `execve`.
    unsafe {
        fit(is_32_bit(fd, EMPTY, AT_EMPTY_PATH), envp, |changed| next::fexecve(fd, argv, changed.unwrap_or(envp)))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execveat(directory: i32, path: Text, argv: Texts, envp: Texts, flags: i32) -> i32 {
    // SAFETY: as in `execve`.
    unsafe {
        fit(is_32_bit(directory, path, flags & AT_EMPTY_PATH), envp, |changed| {
            next::execveat(directory, path, argv, changed.unwrap_or(envp), flags)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    pid: *mut i32,
    path: Text,
    actions: *const u8,
    attributes: *const u8,
    argv: Texts,
    envp: Texts,
) -> i32 {
    // SAFETY: as in `execve`.
    unsafe {
        fit(at_path(path), envp, |changed| {
            next::spawn(&next::SPAWN, pid, path, actions, attributes, argv, changed.unwrap_or(envp))
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    pid: *mut i32,
    file: Text,
    actions: *const u8,
    attributes: *const u8,
    argv: Texts,
    envp: Texts,
) -> i32 {
    // SAFETY: as in `execve`.
    unsafe {
        fit(searched(file), envp, |changed| {
            next::spawn(&next::SPAWNP, pid, file, actions, attributes, argv, changed.unwrap_or(envp))
        })
    }
}

/// The variadic arguments on the caller's stack. The words after the terminating null are not
/// arguments and are never read, so there may be fewer than this type says.
#[repr(C)]
struct Stacked([Text; STACKED_MAX]);

// libc's own `execl` and relatives call internal functions, not our `execve`, so they are
// interposed too. In this calling convention a variadic function gets its arguments like a function
// with as many parameters.

#[unsafe(no_mangle)]
unsafe extern "C" fn execl(path: Text, a: Text, b: Text, c: Text, d: Text, e: Text, rest: Stacked) -> i32 {
    let list = List { registers: [a, b, c, d, e], rest: &raw const rest };
    // SAFETY: as in `execve`.
    unsafe { list.with(|argv| fit(at_path(path), environ(), |changed| next::execv(path, argv, changed))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execlp(file: Text, a: Text, b: Text, c: Text, d: Text, e: Text, rest: Stacked) -> i32 {
    let list = List { registers: [a, b, c, d, e], rest: &raw const rest };
    // SAFETY: as in `execve`.
    unsafe { list.with(|argv| fit(searched(file), environ(), |changed| next::execvp(file, argv, changed))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execle(path: Text, a: Text, b: Text, c: Text, d: Text, e: Text, rest: Stacked) -> i32 {
    let list = List { registers: [a, b, c, d, e], rest: &raw const rest };
    // SAFETY: as in `execve`; the environment follows the terminating null.
    unsafe {
        let envp = list.get(list.len() + 1).cast();
        list.with(|argv| fit(at_path(path), envp, |changed| next::execve(path, argv, changed.unwrap_or(envp))))
    }
}

/// The arguments of `execl`.
struct List {
    registers: [Text; REGISTERS],
    rest: *const Stacked,
}

impl List {
    /// # Safety
    /// `rest` is the caller's stack after the arguments in registers, and the caller passed an
    /// argument with this index.
    unsafe fn get(&self, i: usize) -> Text {
        match self.registers.get(i) {
            Some(text) => *text,
            // SAFETY: as the caller promises. Volatile: the compiler must read no other element.
            None => unsafe { self.rest.cast::<Text>().add(i - REGISTERS).read_volatile() },
        }
    }

    /// Number of arguments before the terminating null.
    unsafe fn len(&self) -> usize {
        let mut len = 0;
        // SAFETY: stops at the terminator.
        while !unsafe { self.get(len) }.is_null() {
            len += 1;
        }
        len
    }

    /// Calls `forward` with the arguments as an array.
    unsafe fn with(&self, forward: impl FnOnce(Texts) -> i32) -> i32 {
        // SAFETY: `len` arguments and the terminator exist.
        unsafe {
            match self.len() + 1 {
                all @ 0..=FEW => self.collected::<FEW>(all, forward),
                all @ 0..=STACKED_MAX => self.collected::<STACKED_MAX>(all, forward),
                _ => returned(-E2BIG),
            }
        }
    }

    #[inline(never)]
    unsafe fn collected<const ROOM: usize>(&self, all: usize, forward: impl FnOnce(Texts) -> i32) -> i32 {
        let mut array = [MaybeUninit::<Text>::uninit(); ROOM];
        for (i, place) in array.iter_mut().take(all).enumerate() {
            // SAFETY: as the caller promises.
            place.write(unsafe { self.get(i) });
        }
        forward(array.as_ptr().cast())
    }
}
