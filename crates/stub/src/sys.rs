//! Raw system calls of x86-64 Linux. The stub calls no libc function, because a thread may hold any
//! lock of libc.

use crate::forbidden::forbids;
use core::arch::asm;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use memfit_wire::far;

pub use memfit_wire::PAGE_BYTES;

/// The kernel does not have the system call.
pub const ENOSYS: isize = 38;

/// struct iovec: a range of memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Iovec {
    /// Its address.
    pub base: usize,
    /// Its length.
    pub bytes: usize,
}

/// One system call with up to six arguments; a negative result is `-errno`.
///
/// # Safety
/// As the system call: pointers must be valid for what the kernel does with them.
pub unsafe fn call(number: usize, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel keeps all registers but rax, rcx and r11; the caller answers for the
    // arguments.
    unsafe {
        asm!("syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

macro_rules! syscall {
    ($number:expr $(, $arg:expr)*) => {{
        let given = [$($arg as usize),*];
        let mut args = [0usize; 6];
        let mut i = 0;
        while i < given.len() {
            args[i] = given[i];
            i += 1;
        }
        $crate::sys::call($number, args)
    }};
    ($number:expr) => { $crate::sys::call($number, [0; 6]) };
}
pub(crate) use syscall;

/// A function `$name()` that returns the address of the program's symbol of that name: 0 where
/// there is none.
macro_rules! weak {
    ($name:ident, $getter:ident) => {
        core::arch::global_asm!(
            concat!(".weak ", stringify!($name)),
            concat!(".globl ", stringify!($getter)),
            concat!(".hidden ", stringify!($getter)),
            concat!(stringify!($getter), ": mov rax, [rip + ", stringify!($name), "@GOTPCREL]"),
            "ret",
        );
        #[allow(non_snake_case, reason = "the symbol's name")]
        fn $name() -> usize {
            unsafe extern "C" {
                fn $getter() -> usize;
            }
            // SAFETY: reads an address that the loader has filled in.
            unsafe { $getter() }
        }
    };
}
pub(crate) use weak;

/// F_DUPFD_CLOEXEC.
pub const DUP_CLOEXEC: usize = 1030;
/// The descriptors below this one are standard input, output and error.
pub const STANDARD: usize = 3;

pub const READ: usize = 0;
pub const WRITE: usize = 1;
pub const SIGRETURN: usize = 15;
pub const PREAD: usize = 17;
pub const READV: usize = 19;
pub const PREADV: usize = 295;
pub const PREADV2: usize = 327;
pub const MMAP: usize = 9;
pub const MPROTECT: usize = 10;
pub const MREMAP: usize = 25;
pub const MUNMAP: usize = 11;
pub const SIGACTION: usize = 13;
pub const SIGPROCMASK: usize = 14;
pub const SIGPENDING: usize = 127;
pub const IOCTL: usize = 16;
pub const MINCORE: usize = 27;
pub const MADVISE: usize = 28;
pub const GETPID: usize = 39;
pub const SOCKET: usize = 41;
pub const CONNECT: usize = 42;
pub const SCHED_YIELD: usize = 24;
pub const FCNTL: usize = 72;
pub const SETSOCKOPT: usize = 54;
pub const GETSOCKOPT: usize = 55;
pub const GETRESUID: usize = 118;
pub const RECVFROM: usize = 45;
pub const SENDMSG: usize = 46;
pub const RECVMSG: usize = 47;
pub const EXIT: usize = 60;
pub const KILL: usize = 62;
pub const GETPRIORITY: usize = 140;
pub const MLOCK: usize = 149;
pub const MUNLOCK: usize = 150;
pub const MLOCKALL: usize = 151;
pub const PRCTL: usize = 157;
pub const GETTID: usize = 186;
pub const FUTEX: usize = 202;
pub const EXIT_GROUP: usize = 231;
pub const TGKILL: usize = 234;
pub const OPENAT: usize = 257;
pub const UNSHARE: usize = 272;
pub const SETNS: usize = 308;
pub const PROCESS_MADVISE: usize = 440;
pub const SCHED_SETATTR: usize = 314;
pub const PRLIMIT: usize = 302;
pub const USERFAULTFD: usize = 323;
pub const MLOCK2: usize = 325;
pub const LANDLOCK_RESTRICT_SELF: usize = 446;
pub const MSEAL: usize = 462;
pub const SHMAT: usize = 30;
pub const SHMCTL: usize = 31;
pub const PROCESS_VM_READV: usize = 310;
pub const PKEY_MPROTECT: usize = 329;
pub const UNAME: usize = 63;
pub const UNLINKAT: usize = 263;
pub const RMDIR: usize = 84;
pub const SECCOMP: usize = 317;
pub const CLONE: usize = 56;
pub const FORK: usize = 57;
pub const CLONE3: usize = 435;
pub const EXECVE: usize = 59;
pub const EXECVEAT: usize = 322;
pub const CLOSE: usize = 3;
pub const STAT: usize = 4;
pub const NEWFSTATAT: usize = 262;
pub const STATX: usize = 332;
pub const CHDIR: usize = 80;
pub const CLOSE_RANGE: usize = 436;

/// Calls by which a thread gives up rights: setuid, setgid, setreuid, setregid, setgroups,
/// setresuid, setresgid, setfsuid, setfsgid, capset, pivot_root, chroot, landlock_restrict_self.
pub const GIVE_UP: [usize; 13] = [105, 106, 113, 114, 116, 117, 119, 122, 123, 126, 155, 161, 446];

pub const EACCES: isize = 13;
pub const ENOMEM: isize = 12;
pub const EPERM: isize = 1;
pub const EAGAIN: i32 = 11;
pub const EMFILE: i32 = 24;
pub const EINTR: i32 = 4;
pub const EINVAL: i32 = 22;

/// Runs `body` in a thread that has a copy of the process's descriptor table, and waits until it
/// has ended. The thread has the stack and the thread pointer of the caller, which stands still
/// meanwhile. False if no thread can be made.
///
/// # Safety
/// `body` uses no thread-local variable, and `argument` is valid for it.
pub unsafe fn with_own_descriptors(body: extern "C" fn(*mut u8), argument: *mut u8) -> bool {
    // CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_VFORK | CLONE_THREAD | CLONE_SYSVSEM.
    const FLAGS: usize = 0x100 | 0x200 | 0x800 | 0x4000 | 0x1_0000 | 0x4_0000;
    let (all, mut old) = ([u64::MAX], [0u64]);
    // SAFETY: the caller's registers are its own, and its stack is left alone above the place of
    // this call. No signal handler runs on the shared stack: all signals are blocked.
    unsafe {
        syscall!(SIGPROCMASK, 2, all.as_ptr(), old.as_mut_ptr(), 8);
        let result: isize;
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov rdi, r12",
            "call r13",
            "mov eax, {exit}",
            "xor edi, edi",
            "syscall",
            "ud2",
            "2:",
            exit = const EXIT,
            inlateout("rax") CLONE as isize => result,
            in("rdi") FLAGS, in("rsi") 0, in("rdx") 0, in("r10") 0, in("r8") 0,
            in("r12") argument, in("r13") body,
            lateout("rcx") _, lateout("r11") _,
        );
        syscall!(SIGPROCMASK, 2, old.as_ptr(), 0, 8);
        result > 0
    }
}

/// Anonymous private memory that fork children do not inherit, or `None`. `place` as for [`map`].
pub fn map_private(place: &AtomicUsize, bytes: usize) -> Option<usize> {
    // MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE.
    let at = map(place, bytes, 0x4022, usize::MAX);
    if at < 0 {
        return None;
    }
    // SAFETY: our own mapping; MADV_DONTFORK = 10.
    unsafe { syscall!(MADVISE, at, bytes, 10) };
    Some(at as usize)
}

/// An address for a mapping of the stub. It is as random as the addresses of the stack and this
/// library.
fn far_away(place: &AtomicUsize) -> usize {
    far(core::ptr::from_ref(&place) as usize ^ (core::ptr::from_ref(place) as usize) << 16)
}

/// Makes a new mapping, and returns its address or `-errno`. The mapping is empty and not locked,
/// even if the program has locked its future mappings (MCL_FUTURE). The kernel fills a locked
/// mapping as soon as it is readable, so this one is unlocked while it has no access. It is at the
/// address in `place` if that is free, or far away if that is 0; the address is stored there. So a
/// mapping of a fork child is where its parent's is, and not in a hole that the program keeps from
/// its children (MADV_DONTFORK).
pub fn map(place: &AtomicUsize, bytes: usize, flags: usize, fd: usize) -> isize {
    // SAFETY: a new mapping; nothing of the program's is touched. PROT_NONE, then PROT_READ |
    // PROT_WRITE.
    unsafe {
        let wanted = match place.load(Relaxed) {
            0 => far_away(place),
            at => at,
        };
        let at = syscall!(MMAP, wanted, bytes, 0, flags, fd, 0);
        if at < 0 {
            return at;
        }
        syscall!(MUNLOCK, at, bytes);
        match syscall!(MPROTECT, at, bytes, 3) {
            error @ ..0 => {
                syscall!(MUNMAP, at, bytes);
                error
            }
            _ => {
                place.store(at as usize, Relaxed);
                at
            }
        }
    }
}

/// The process that calls: a child of vfork is one of its own.
pub fn pid() -> usize {
    // SAFETY: asks for a number.
    unsafe { syscall!(GETPID) as usize }
}

/// Whether this process has a thread with this number. `None` if a filter refuses the question.
pub fn has_thread(tid: usize) -> Option<bool> {
    const NO_SUCH_THREAD: isize = -3;
    if forbids(GETPID) || forbids(TGKILL) {
        return None;
    }
    // SAFETY: signal 0 only asks whether the thread exists.
    match unsafe { syscall!(TGKILL, pid(), tid, 0) } {
        0 => Some(true),
        NO_SUCH_THREAD => Some(false),
        _ => None,
    }
}

/// Waits while `*word == seen`, at most `ms` milliseconds. The word may be in shared memory.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, seen: u32, ms: i64) {
    let timeout = [ms / 1000, (ms % 1000) * 1_000_000];
    // SAFETY: the word outlives the call; a futex wait writes nothing.
    unsafe { syscall!(FUTEX, word.as_ptr(), 0, seen, timeout.as_ptr(), 0, 0) };
}

/// Whether the other end of a SOCK_SEQPACKET socket is gone and all of its messages are read.
pub fn is_hung_up(socket: i32) -> bool {
    let mut byte = [0u8; 1];
    // SAFETY: a buffer of its length; MSG_PEEK | MSG_DONTWAIT. 104 is ECONNRESET.
    let got = unsafe { syscall!(RECVFROM, socket, byte.as_mut_ptr(), 1, 2 | 0x40, 0, 0) };
    got == 0 || got == -104
}

/// Wakes all threads that wait for the word.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32) {
    // SAFETY: a futex wake only uses the address.
    unsafe { syscall!(FUTEX, word.as_ptr(), 1, i32::MAX, 0, 0, 0) };
}

/// Requests a time slice of 100 us, the shortest, so that the thread runs soon after it wakes even
/// if the program keeps all CPUs busy. Linux before 6.12 ignores it.
pub fn short_turns() {
    // First version of struct sched_attr: size and policy, flags, nice and priority, runtime, two
    // more.
    let mut attr = [48u64, 0, 0, 100_000, 0, 0];
    // SAFETY: changes this thread only; the kernel reads 48 bytes.
    unsafe {
        let nice = 20 - syscall!(GETPRIORITY, 0, 0);
        attr[2] = nice as u32 as u64;
        syscall!(SCHED_SETATTR, 0, attr.as_ptr(), 0);
    }
}

/// Whether the kernel has at least this version.
pub fn is_at_least(major: u32, minor: u32) -> bool {
    // struct utsname: six strings of 65 bytes; the third one is the version.
    let mut names = [0u8; 6 * 65];
    // SAFETY: the kernel writes 390 bytes.
    unsafe { syscall!(UNAME, names.as_mut_ptr()) };
    let mut numbers = [0u32; 2];
    let mut which = 0;
    for &byte in &names[2 * 65..] {
        match byte {
            b'0'..=b'9' => numbers[which] = numbers[which].wrapping_mul(10).wrapping_add(u32::from(byte - b'0')),
            b'.' if which == 0 => which = 1,
            _ => break,
        }
    }
    numbers >= [major, minor]
}

/// Copies pages without calling memcpy of a libc.
///
/// # Safety
/// `from` is readable and `to` writable for `bytes`; they do not overlap, or `to` is the lower one.
pub unsafe fn copy(to: usize, from: usize, bytes: usize) {
    // SAFETY: as the caller promises; rep movsb changes only rdi, rsi, rcx.
    unsafe {
        asm!("rep movsb", inout("rdi") to => _, inout("rsi") from => _, inout("rcx") bytes => _,
            options(nostack, preserves_flags));
    }
}
