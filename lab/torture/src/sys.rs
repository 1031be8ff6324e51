//! System calls on ranges of pages, and access to their bytes without Rust references to them.

use crate::content::{PageBuf, PAGE};
use std::sync::atomic::{AtomicU64, Ordering};

/// An errno value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // No strerror: this is also printed where allocation is not allowed.
        let name = match self.0 {
            libc::EFAULT => "EFAULT",
            libc::ENOMEM => "ENOMEM",
            libc::EINVAL => "EINVAL",
            libc::EAGAIN => "EAGAIN",
            libc::EEXIST => "EEXIST",
            libc::EIO => "EIO",
            libc::EPERM => "EPERM",
            libc::ENOSPC => "ENOSPC",
            _ => "errno",
        };
        write!(f, "{name} ({})", self.0)
    }
}

/// The calling thread's errno.
pub fn errno() -> Errno {
    // SAFETY: __errno_location always returns the address of the thread's errno.
    Errno(unsafe { *libc::__errno_location() })
}

fn check(result: libc::c_int) -> Result<(), Errno> {
    if result == 0 {
        Ok(())
    } else {
        Err(errno())
    }
}

/// Read and write.
pub const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;
const ANON: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// A range of whole pages that this program mapped for its tests.
///
/// No Rust object lives in such memory and no reference to it is kept; only copies and atomic
/// operations access it. So changing its mapping cannot break Rust's rules: at worst an access
/// raises a signal, which is a failed test. A `Span` must not be used after its range was unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    addr: usize,
    len: usize,
}

impl Span {
    /// A range of this program's test memory: part of a live region or of a reserved address range.
    pub fn owned(addr: usize, pages: usize) -> Span {
        assert!(addr % PAGE == 0 && addr >= 0x10000, "not a test range: {addr:#x}");
        Span { addr, len: pages * PAGE }
    }

    /// Maps new private zero pages at an address that the kernel chooses.
    pub fn map(pages: usize, prot: i32, flags: i32) -> Result<Span, Errno> {
        Span::map_at(0, pages, prot, flags)
    }

    /// Maps at a given address (with one of the FIXED flags) or near it.
    pub fn map_at(addr: usize, pages: usize, prot: i32, flags: i32) -> Result<Span, Errno> {
        let len = pages * PAGE;
        // SAFETY: a new anonymous mapping; with MAP_FIXED the caller's range is test memory, see
        // `Span`.
        let got = unsafe { libc::mmap(addr as *mut _, len, prot, ANON | flags, -1, 0) };
        if got == libc::MAP_FAILED {
            return Err(errno());
        }
        Ok(Span { addr: got as usize, len })
    }

    /// First address.
    pub fn addr(self) -> usize {
        self.addr
    }

    /// Length, bytes.
    pub fn len(self) -> usize {
        self.len
    }

    /// Length, pages.
    pub fn pages(self) -> usize {
        self.len / PAGE
    }

    /// First address as a pointer for system calls.
    pub fn ptr(self) -> *mut libc::c_void {
        self.addr as *mut _
    }

    /// A part of the range, in pages.
    pub fn sub(self, first: usize, count: usize) -> Span {
        assert!(first + count <= self.pages(), "part outside of the range");
        Span { addr: self.addr + first * PAGE, len: count * PAGE }
    }

    /// munmap.
    pub fn unmap(self) -> Result<(), Errno> {
        // SAFETY: test memory, see `Span`.
        check(unsafe { libc::munmap(self.ptr(), self.len) })
    }

    /// mprotect.
    pub fn protect(self, prot: i32) -> Result<(), Errno> {
        // SAFETY: test memory, see `Span`.
        check(unsafe { libc::mprotect(self.ptr(), self.len, prot) })
    }

    /// madvise.
    pub fn advise(self, advice: i32) -> Result<(), Errno> {
        // SAFETY: test memory, see `Span`.
        check(unsafe { libc::madvise(self.ptr(), self.len, advice) })
    }

    /// Names the mappings (Linux 5.17), or takes their name away.
    pub fn name(self, name: Option<&std::ffi::CStr>) -> Result<(), Errno> {
        let name = name.map_or(std::ptr::null(), |name| name.as_ptr());
        // SAFETY: test memory, see `Span`; the kernel reads the name, and changes no byte.
        check(unsafe { libc::prctl(libc::PR_SET_VMA, libc::PR_SET_VMA_ANON_NAME, self.addr, self.len, name) })
    }

    /// mlock and munlock.
    pub fn lock_and_unlock(self) -> Result<(), Errno> {
        // SAFETY: test memory, see `Span`; locking changes no byte.
        check(unsafe { libc::mlock(self.ptr(), self.len) })?;
        // SAFETY: as above.
        check(unsafe { libc::munlock(self.ptr(), self.len) })
    }

    /// mremap to `pages` pages; `target` matters only with MREMAP_FIXED.
    pub fn remap(self, pages: usize, flags: i32, target: usize) -> Result<Span, Errno> {
        let len = pages * PAGE;
        // SAFETY: both ranges are test memory, see `Span`.
        let got = unsafe { libc::mremap(self.ptr(), self.len, len, flags, target as *mut libc::c_void) };
        if got == libc::MAP_FAILED {
            return Err(errno());
        }
        Ok(Span { addr: got as usize, len })
    }

    /// Whether the first page is mapped.
    pub fn is_mapped(self) -> bool {
        let mut present = 0u8;
        // SAFETY: mincore writes one byte for one page.
        unsafe { libc::mincore(self.ptr(), PAGE, &mut present) == 0 }
    }

    /// Copies page `i` to a buffer.
    pub fn copy_out(self, i: usize, buf: &mut PageBuf) {
        let from = self.sub(i, 1).addr as *const u8;
        // SAFETY: test memory of one page; the buffer is a page of our own and does not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, buf.bytes_mut().as_mut_ptr(), PAGE) };
    }

    /// Writes the whole page `i`.
    pub fn copy_in(self, i: usize, buf: &PageBuf) {
        self.write_bytes(i * PAGE, buf.bytes());
    }

    /// Writes bytes at an offset in bytes.
    pub fn write_bytes(self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len, "write outside of the range");
        // SAFETY: inside test memory; `bytes` is a Rust object and so does not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (self.addr + offset) as *mut u8, bytes.len()) };
    }

    fn with_word<T>(self, word: usize, f: impl FnOnce(&AtomicU64) -> T) -> T {
        assert!(word * 8 < self.len, "word outside of the range");
        // SAFETY: aligned, inside test memory, only accessed atomically while the reference lives
        // (by convention of the callers); the reference does not leave this function.
        f(unsafe { &*((self.addr + word * 8) as *const AtomicU64) })
    }

    /// Loads a word.
    pub fn load(self, word: usize) -> u64 {
        self.with_word(word, |w| w.load(Ordering::SeqCst))
    }

    /// Stores a word.
    pub fn store(self, word: usize, value: u64) {
        self.with_word(word, |w| w.store(value, Ordering::SeqCst));
    }

    /// Adds to a word; returns the old value.
    pub fn fetch_add(self, word: usize, n: u64) -> u64 {
        self.with_word(word, |w| w.fetch_add(n, Ordering::SeqCst))
    }
}

/// Nanoseconds of the monotonic clock, the same in every process.
pub fn now_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// Kernel thread id of the caller.
pub fn gettid() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::gettid() }
}

/// Ends the process without exit handlers.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes any code and does not return.
    unsafe { libc::_exit(code) }
}

/// Has the kernel kill this process when the parent thread ends, and exits if that has happened
/// already.
pub fn die_with_parent(parent: i32) {
    // SAFETY: prctl with an integer argument.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // SAFETY: getppid cannot fail.
    if unsafe { libc::getppid() } != parent {
        exit_now(1);
    }
}

/// Blocks or unblocks signals for the calling thread and for what it starts.
pub fn hold_signals(signals: &[i32], hold: bool) {
    let how = if hold { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    // SAFETY: a zeroed set is a valid place for sigemptyset; sigaddset writes to it,
    // pthread_sigmask reads it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(how, &set, std::ptr::null_mut());
    }
}

/// Installs a signal handler with SA_SIGINFO.
pub fn on_signal(signal: i32, flags: i32, handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void)) {
    // SAFETY: a zeroed sigaction is valid; the handler has the type that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | flags;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}
