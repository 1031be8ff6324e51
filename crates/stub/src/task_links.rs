//! Programs that ask whether they have a single thread, by the link count of `/proc/self/task`.
//!
//! Chromium ends if a new process of it has more. It asks before it confines itself, so that the
//! confinement holds for all that the process does. The stub thread confines itself with the
//! program (`confine`), so libc's functions do not count it. That does not hold for a filter that
//! the program installs by a bare system call, with or without this module.

use crate::agent;
use crate::exec::{returned, Next};
use crate::sys::{self, syscall};
use core::mem::transmute;

/// Mode of a directory that everybody may read and enter.
const TASK_DIRECTORY: u32 = 0o040_555;
/// Links of such a directory: two, and one for each thread.
const LINKS: u64 = 2;
/// Size of a block of the proc file system, bytes. Its directories have a size of 0.
const BLOCK_BYTES: u64 = 1024;
/// Reads that a start or an end of the stub thread may disturb.
const TRIES: u32 = 8;
/// AT_FDCWD.
const HERE: isize = -100;
/// AT_SYMLINK_NOFOLLOW.
const NOFOLLOW: usize = 0x100;

/// What libc's function filled in, in x86-64's layout.
trait Status {
    fn mode(&self) -> u32;
    /// Size of the file and of a block, bytes.
    fn sizes(&self) -> (u64, u64);
    fn links(&self) -> u64;
    fn set_links(&mut self, links: u64);

    /// Whether it is a directory as those of threads in the proc file system.
    fn is_of_threads(&self) -> bool {
        self.mode() == TASK_DIRECTORY && self.sizes() == (0, BLOCK_BYTES) && self.links() > LINKS
    }
}

/// struct stat: device, inode, link count, mode and user, group, device, size, block size.
#[repr(C)]
struct Stat {
    start: [u64; 2],
    links: u64,
    mode: u32,
    owner: [u32; 3],
    device: u64,
    size: u64,
    block: u64,
}

impl Status for Stat {
    fn mode(&self) -> u32 {
        self.mode
    }

    fn sizes(&self) -> (u64, u64) {
        (self.size, self.block)
    }

    fn links(&self) -> u64 {
        self.links
    }

    fn set_links(&mut self, links: u64) {
        self.links = links;
    }
}

/// struct statx: mask and block size, attributes, link count, user and group, mode, inode, size.
#[repr(C)]
struct Statx {
    mask: u32,
    block: u32,
    attributes: u64,
    links: u32,
    owner: [u32; 2],
    mode: u16,
    inode: u64,
    size: u64,
}

impl Status for Statx {
    fn mode(&self) -> u32 {
        self.mode.into()
    }

    fn sizes(&self) -> (u64, u64) {
        (self.size, self.block.into())
    }

    fn links(&self) -> u64 {
        u64::from(self.links)
    }

    fn set_links(&mut self, links: u64) {
        self.links = links as u32;
    }
}

/// Makes the call, and takes the stub thread out of the link count if the path is that of the
/// process's threads.
///
/// # Safety
/// `path` and `status` are what the program gave to `call`, which returns 0 if it has read and
/// filled them.
unsafe fn without_stub<T: Status>(path: *const u8, status: *mut T, call: impl Fn() -> i32) -> i32 {
    let mut before = 0;
    for tries in 0..TRIES {
        let result = call();
        // SAFETY: the call has filled it, and read the path.
        let asks = result == 0 && unsafe { (*status).is_of_threads() && is_of_self(path) };
        if !asks {
            return result;
        }
        // The thread may have come or gone during the call.
        let now = agent::stub_threads();
        if tries > 0 && now == before {
            // SAFETY: as above.
            unsafe { (*status).set_links((*status).links().saturating_sub(now).max(LINKS + 1)) };
            return result;
        }
        before = now;
    }
    call()
}

/// Whether a path is `self/task`, or ends in it: the programs open `/proc` first.
///
/// # Safety
/// The path is a C string or null.
unsafe fn is_of_self(path: *const u8) -> bool {
    const END: &[u8] = b"self/task";
    if path.is_null() {
        return false;
    }
    // SAFETY: up to the terminator.
    let mut path = unsafe {
        let mut bytes = 0;
        while *path.add(bytes) != 0 {
            bytes += 1;
        }
        core::slice::from_raw_parts(path, bytes)
    };
    while let Some(shorter) = path.strip_suffix(b"/") {
        path = shorter;
    }
    path.strip_suffix(END).is_some_and(|before| matches!(before.last(), None | Some(b'/')))
}

/// libc's function, or the system call where there is none.
macro_rules! functions {
    ($($function:ident $place:ident ($($argument:ident),*) $path:ident $status:ident: $type:ty, $instead:expr;)*) => {
        $(
            static $place: Next = Next::of(concat!(stringify!($function), "\0"));

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $function($($argument: usize),*) -> i32 {
                // SAFETY: the symbol is libc's function, whose arguments are words; the program
                // answers for them. The system calls check theirs.
                unsafe {
                    without_stub($path as *const u8, $status as *mut $type, || match $place.get() {
                        0 => returned($instead),
                        next => transmute::<usize, unsafe extern "C" fn($($argument: usize),*) -> i32>(next)($($argument),*),
                    })
                }
            }
        )*

        /// Looks libc's functions up, at the start of the program.
        pub fn find_all() {
            [$(&$place),*].iter().for_each(|next| _ = next.get());
        }
    };
}

// Those with underscores are what programs call that were linked with glibc before 2.33.
functions!(
    stat STAT (path, status) path status: Stat, syscall!(sys::NEWFSTATAT, HERE, path, status, 0);
    stat64 STAT64 (path, status) path status: Stat, syscall!(sys::NEWFSTATAT, HERE, path, status, 0);
    lstat LSTAT (path, status) path status: Stat,
        syscall!(sys::NEWFSTATAT, HERE, path, status, NOFOLLOW);
    lstat64 LSTAT64 (path, status) path status: Stat,
        syscall!(sys::NEWFSTATAT, HERE, path, status, NOFOLLOW);
    fstatat FSTATAT (directory, path, status, flags) path status: Stat, syscall!(sys::NEWFSTATAT, directory, path, status, flags);
    fstatat64 FSTATAT64 (directory, path, status, flags) path status: Stat, syscall!(sys::NEWFSTATAT, directory, path, status, flags);
    __xstat XSTAT (version, path, status) path status: Stat, syscall!(sys::NEWFSTATAT, HERE, path, status, 0);
    __xstat64 XSTAT64 (version, path, status) path status: Stat, syscall!(sys::NEWFSTATAT, HERE, path, status, 0);
    __lxstat LXSTAT (version, path, status) path status: Stat,
        syscall!(sys::NEWFSTATAT, HERE, path, status, NOFOLLOW);
    __lxstat64 LXSTAT64 (version, path, status) path status: Stat,
        syscall!(sys::NEWFSTATAT, HERE, path, status, NOFOLLOW);
    __fxstatat FXSTATAT (version, directory, path, status, flags) path status: Stat,
        syscall!(sys::NEWFSTATAT, directory, path, status, flags);
    __fxstatat64 FXSTATAT64 (version, directory, path, status, flags) path status: Stat,
        syscall!(sys::NEWFSTATAT, directory, path, status, flags);
    statx STATX (directory, path, flags, mask, status) path status: Statx, syscall!(sys::STATX, directory, path, flags, mask, status);
);
