//! libc's functions that the stub's symbols hide, and replacements for missing ones.

use super::file::{self, EMPTY};
use super::{Text, Texts, AT_EMPTY_PATH};
use crate::sys::{syscall, ENOSYS};
use core::arch::global_asm;
use core::ffi::CStr;
use core::mem::{transmute, MaybeUninit};
use core::ptr::null;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use memfit_wire::PAGE_BYTES;

const SYS_EXECVE: usize = 59;
const SYS_EXECVEAT: usize = 322;
const ENOENT: isize = 2;

// Weak symbols of the program's libc: functions that return their addresses, null if missing.
macro_rules! weak {
    ($($name:literal $symbol:literal),*) => {
        global_asm!($(
            concat!(".weak ", $symbol), concat!(".globl ", $name), concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ": mov rax, [rip + ", $symbol, "@GOTPCREL]"), "ret",
            concat!(".size ", $name, ", . - ", $name),
        )*);
    };
}
weak!(
    "memfit_exec_dlsym" "dlsym",
    "memfit_exec_dlopen" "dlopen",
    "memfit_exec_libc_dlopen" "__libc_dlopen_mode",
    "memfit_exec_libc_dlsym" "__libc_dlsym",
    "memfit_exec_errno" "__errno_location",
    "memfit_exec_environ" "environ"
);
// Start and end of this library in memory.
global_asm!(
    ".hidden __ehdr_start",
    ".hidden _end",
    ".globl memfit_exec_start",
    ".hidden memfit_exec_start",
    "memfit_exec_start: lea rax, [rip + __ehdr_start]",
    "ret",
    ".globl memfit_exec_end",
    ".hidden memfit_exec_end",
    "memfit_exec_end: lea rax, [rip + _end]",
    "ret",
);

unsafe extern "C" {
    fn memfit_exec_dlsym() -> usize;
    fn memfit_exec_dlopen() -> usize;
    fn memfit_exec_libc_dlopen() -> usize;
    fn memfit_exec_libc_dlsym() -> usize;
    fn memfit_exec_errno() -> usize;
    fn memfit_exec_environ() -> usize;
    fn memfit_exec_start() -> usize;
    fn memfit_exec_end() -> usize;
}

/// Where this library lies in memory, in whole pages, `end` exclusive.
pub fn image() -> [u64; 2] {
    // SAFETY: they only return an address.
    let (start, end) = unsafe { (memfit_exec_start(), memfit_exec_end()) };
    [(start / PAGE_BYTES * PAGE_BYTES) as u64, (end.div_ceil(PAGE_BYTES) * PAGE_BYTES) as u64]
}

type Execve = unsafe extern "C" fn(Text, Texts, Texts) -> i32;
type Execv = unsafe extern "C" fn(Text, Texts) -> i32;
type Fexecve = unsafe extern "C" fn(i32, Texts, Texts) -> i32;
type Spawn = unsafe extern "C" fn(*mut i32, Text, *const u8, *const u8, Texts, Texts) -> i32;

pub unsafe fn execve(path: Text, argv: Texts, envp: Texts) -> i32 {
    // SAFETY: the symbol has this type; the caller answers for the arguments.
    unsafe {
        match EXECVE.get() {
            0 => returned(syscall!(SYS_EXECVE, path, argv, envp)),
            next => transmute::<usize, Execve>(next)(path, argv, envp),
        }
    }
}

pub unsafe fn execv(path: Text, argv: Texts, changed: Option<Texts>) -> i32 {
    // SAFETY: as in `execve`.
    unsafe {
        match (EXECV.get(), changed) {
            (next, None) if next != 0 => transmute::<usize, Execv>(next)(path, argv),
            _ => execve(path, argv, changed.unwrap_or(environ())),
        }
    }
}

pub unsafe fn execvp(file: Text, argv: Texts, changed: Option<Texts>) -> i32 {
    // SAFETY: as in `execve`.
    unsafe {
        match (EXECVP.get(), changed) {
            (next, None) if next != 0 => transmute::<usize, Execv>(next)(file, argv),
            _ => execvpe(file, argv, changed.unwrap_or(environ())),
        }
    }
}

pub unsafe fn execvpe(file: Text, argv: Texts, envp: Texts) -> i32 {
    // SAFETY: as in `execve`.
    unsafe {
        match EXECVPE.get() {
            0 => execve_found(file, argv, envp),
            next => transmute::<usize, Execve>(next)(file, argv, envp),
        }
    }
}

/// For a libc without `execvpe` (before 2011). Here, scripts without `#!` fail.
#[cold]
#[inline(never)]
unsafe fn execve_found(file: Text, argv: Texts, envp: Texts) -> i32 {
    let mut path = [MaybeUninit::uninit(); file::PATH_BYTES];
    // SAFETY: as in `execve`.
    unsafe { file::search(file, &mut path).map_or_else(|| returned(-ENOENT), |path| execve(path, argv, envp)) }
}

pub unsafe fn fexecve(fd: i32, argv: Texts, envp: Texts) -> i32 {
    // SAFETY: as in `execve`.
    unsafe {
        match FEXECVE.get() {
            0 => execveat(fd, EMPTY, argv, envp, AT_EMPTY_PATH),
            next => transmute::<usize, Fexecve>(next)(fd, argv, envp),
        }
    }
}

/// libc's function makes the bare system call, too.
pub unsafe fn execveat(directory: i32, path: Text, argv: Texts, envp: Texts, flags: i32) -> i32 {
    // SAFETY: the kernel checks the arguments.
    unsafe { returned(syscall!(SYS_EXECVEAT, directory, path, argv, envp, flags)) }
}

pub unsafe fn spawn(
    next: &Next,
    pid: *mut i32,
    path: Text,
    actions: *const u8,
    attributes: *const u8,
    argv: Texts,
    envp: Texts,
) -> i32 {
    // SAFETY: as in `execve`. There is no replacement: actions and attributes are libc's own types.
    unsafe {
        match next.get() {
            0 => ENOSYS as i32,
            next => transmute::<usize, Spawn>(next)(pid, path, actions, attributes, argv, envp),
        }
    }
}

/// A function of libc that a symbol of the stub hides.
pub struct Next {
    name: &'static CStr,
    /// Its address, or one of the constants below.
    at: AtomicUsize,
}

impl Next {
    const UNKNOWN: usize = 0;
    const MISSING: usize = 1;

    /// The function with this name.
    pub const fn new(name: &'static CStr) -> Next {
        Next { name, at: AtomicUsize::new(Next::UNKNOWN) }
    }

    /// The same for a name with a trailing null, for macros.
    pub const fn of(name: &'static str) -> Next {
        match CStr::from_bytes_with_nul(name.as_bytes()) {
            Ok(name) => Next::new(name),
            Err(_) => panic!("the only null must be the last byte"),
        }
    }

    /// The address; 0 if there is none.
    pub fn get(&self) -> usize {
        match self.at.load(Relaxed) {
            // Only in constructors that run before this library's.
            Next::UNKNOWN => self.find(),
            Next::MISSING => 0,
            at => at,
        }
    }

    /// As [`Next::get`], for a function of a library that the program may load later.
    pub fn get_late(&self) -> usize {
        match self.get() {
            0 => self.find(),
            at => at,
        }
    }

    #[cold]
    fn find(&self) -> usize {
        type Dlsym = unsafe extern "C" fn(usize, Text) -> usize;
        type Dlopen = unsafe extern "C" fn(Text, u32) -> usize;
        // RTLD_LAZY | RTLD_NOLOAD.
        const LOADED: u32 = 5;
        // RTLD_NEXT = -1, __RTLD_DLOPEN = 1 << 31. With glibc before 2.34, programs without libdl
        // have no `dlsym`, but libc has `__libc_dlsym`, and threads are in a library of their own.
        // A program's own `dlsym` may find the symbol after the program, which is the stub's: then
        // libc is asked.
        // SAFETY: the symbols, if present, are functions of these types.
        let at = unsafe {
            let name = self.name.as_ptr().cast();
            let wrong = |at: usize| at == 0 || (memfit_exec_start()..memfit_exec_end()).contains(&at);
            let dlsym = memfit_exec_dlsym();
            let mut at = if dlsym == 0 { 0 } else { transmute::<usize, Dlsym>(dlsym)(usize::MAX, name) };
            let (private, public) =
                ((memfit_exec_libc_dlopen(), memfit_exec_libc_dlsym()), (memfit_exec_dlopen(), dlsym));
            for ((dlopen, dlsym), mode) in [(private, 1 << 31 | LOADED), (public, LOADED)] {
                for library in [c"libc.so.6", c"libpthread.so.0"] {
                    if wrong(at) && dlopen != 0 && dlsym != 0 {
                        let library = transmute::<usize, Dlopen>(dlopen)(library.as_ptr().cast(), mode);
                        at = if library == 0 { 0 } else { transmute::<usize, Dlsym>(dlsym)(library, name) };
                    }
                }
            }
            if wrong(at) {
                0
            } else {
                at
            }
        };
        self.at.store(if at == 0 { Next::MISSING } else { at }, Relaxed);
        at
    }
}

static EXECVE: Next = Next::new(c"execve");
static EXECV: Next = Next::new(c"execv");
static EXECVP: Next = Next::new(c"execvp");
static EXECVPE: Next = Next::new(c"execvpe");
static FEXECVE: Next = Next::new(c"fexecve");
pub static SPAWN: Next = Next::new(c"posix_spawn");
pub static SPAWNP: Next = Next::new(c"posix_spawnp");

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = find_all;

/// Looks all functions up at the start: dlsym takes locks, which a vfork child or a signal handler
/// must not.
extern "C" fn find_all() {
    for next in [
        &EXECVE,
        &EXECV,
        &EXECVP,
        &EXECVPE,
        &FEXECVE,
        &SPAWN,
        &SPAWNP,
        &crate::alone::CLONE,
        &crate::alone::FORK,
        &crate::threads::CREATE,
        &crate::own_uffd::IOCTL,
        &crate::seccomp::SYSCALL,
    ] {
        next.get();
    }
    crate::fills::find_all();
    crate::task_links::find_all();
}

/// Converts the result of a system call to a C function's result; sets errno.
pub unsafe fn returned(result: isize) -> i32 {
    // SAFETY: the symbol, if present, is the function that returns the address of errno.
    unsafe {
        let errno = memfit_exec_errno();
        if result < 0 && errno != 0 {
            *transmute::<usize, extern "C" fn() -> *mut i32>(errno)() = -result as i32;
        }
    }
    if result < 0 {
        -1
    } else {
        result as i32
    }
}

/// The program's current environment; null if there is none.
pub unsafe fn environ() -> Texts {
    // SAFETY: the symbol, if present, is a variable of this type.
    unsafe { (memfit_exec_environ() as *const Texts).as_ref().map_or(null(), |environ| *environ) }
}
