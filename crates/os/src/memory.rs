//! Memory that the pager owns: frames of the pool, segments shared with stubs, futex words.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Brings this process's code into memory and keeps it there, as far as RLIMIT_MEMLOCK lets it:
/// under pressure in a control group the kernel drops clean file pages first, and who frees memory
/// must not wait for a disk.
pub fn keep_code() {
    let text = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, end) in crate::maps::code(&text) {
        let (at, bytes) = (start as *mut libc::c_void, (end - start) as usize);
        // SAFETY: neither changes the contents of the mapping.
        unsafe {
            if libc::mlock(at, bytes) != 0 {
                libc::madvise(at, bytes, libc::MADV_POPULATE_READ);
            }
        }
    }
}

/// What this process gives back goes to the system and not to one of its threads: two heaps for all
/// of them, and each larger piece for itself. By default glibc has eight heaps for each CPU, and
/// what was freed in one is of no use in another.
pub fn keep_no_heaps() {
    // SAFETY: both take numbers.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_PIECE);
    }
}

/// Bytes from which on a piece of memory is mapped for itself.
const LARGE_PIECE: libc::c_int = 64 << 10;

/// This process's memory is in no core dump, and no other process of the user may look into it.
pub fn undumpable() {
    // SAFETY: takes a number.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
}

/// Keeps whole pages in memory, out of core dumps and of children, as far as RLIMIT_MEMLOCK lets
/// it.
pub fn keep_secret(at: *const u8, bytes: usize) {
    let at = at.cast_mut().cast::<libc::c_void>();
    // SAFETY: none of them changes the contents of the mapping.
    unsafe {
        libc::mlock(at, bytes);
        libc::madvise(at, bytes, libc::MADV_DONTDUMP);
        libc::madvise(at, bytes, libc::MADV_DONTFORK);
    }
}

/// Random bytes of the kernel, fit for a key.
///
/// # Errors
/// When it gives none.
pub fn random(out: &mut [u8]) -> io::Result<()> {
    // SAFETY: writes at most so many bytes to a live buffer.
    let got = unsafe { libc::getrandom(out.as_mut_ptr().cast(), out.len(), 0) };
    match usize::try_from(got) {
        Ok(bytes) if bytes == out.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// A reserved range of private memory, touched page by page.
#[derive(Debug)]
pub struct Frames {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory; who may touch which bytes when is decided by the core behind its lock.
unsafe impl Send for Frames {}
// SAFETY: as above.
unsafe impl Sync for Frames {}

impl Frames {
    /// Reserves address space; no memory yet.
    pub fn reserve(bytes: usize) -> io::Result<Frames> {
        let base = map(bytes, -1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE)?;
        // The first touch of a frame takes that frame, and what is given back is given back.
        // SAFETY: a new mapping of our own.
        unsafe { libc::madvise(base.cast(), bytes, libc::MADV_NOHUGEPAGE) };
        Ok(Frames { base, bytes })
    }

    /// Keeps what is in the frames, now and later, out of the kernel's swap.
    ///
    /// # Errors
    /// As mlock2: `ENOMEM` and `EPERM` when RLIMIT_MEMLOCK is less than all of them.
    pub fn lock(&self) -> io::Result<()> {
        lock(self.base, self.bytes)
    }

    /// Bytes `at .. at + len`.
    ///
    /// # Safety
    /// Nobody writes them as long as the slice lives.
    pub unsafe fn read(&self, at: u64, len: usize) -> &[u8] {
        assert!(at as usize + len <= self.bytes, "read outside the frames");
        // SAFETY: inside the mapping; the caller excludes writers.
        unsafe { std::slice::from_raw_parts(self.base.add(at as usize), len) }
    }

    /// Writes bytes at `at`.
    ///
    /// # Safety
    /// Nobody reads or writes there meanwhile.
    pub unsafe fn write(&self, at: u64, bytes: &[u8]) {
        assert!(at as usize + bytes.len() <= self.bytes, "write outside the frames");
        // SAFETY: inside the mapping; the caller excludes others.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at as usize), bytes.len()) };
    }

    /// Moves bytes inside the frames.
    ///
    /// # Safety
    /// Nobody else uses either place meanwhile.
    pub unsafe fn shift(&self, from: u64, to: u64, len: usize) {
        assert!(from as usize + len <= self.bytes && to as usize + len <= self.bytes, "move outside the frames");
        // SAFETY: inside the mapping; the caller excludes others; overlap is allowed.
        unsafe { std::ptr::copy(self.base.add(from as usize), self.base.add(to as usize), len) };
    }

    /// Gives the memory of a page-aligned range back to the system.
    ///
    /// # Safety
    /// Its contents are no longer needed by anybody.
    pub unsafe fn release(&self, at: u64, bytes: u64) {
        assert!((at + bytes) as usize <= self.bytes, "release outside the frames");
        // SAFETY: inside the mapping.
        unsafe { libc::madvise(self.base.add(at as usize).cast(), bytes as usize, MADV_DONTNEED_LOCKED) };
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no slice of it outlives `self`.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// An anonymous file, in memory.
fn anonymous_file(flags: libc::c_uint) -> io::Result<File> {
    // SAFETY: a constant name; the descriptor is ours.
    unsafe {
        let fd = libc::memfd_create(c"memfit".as_ptr(), libc::MFD_CLOEXEC | flags);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(File::from_raw_fd(fd))
    }
}

/// An anonymous file, in memory, with these contents; to be handed on as a descriptor.
///
/// # Errors
/// As the system calls give them.
pub fn file_of(contents: &[u8]) -> io::Result<File> {
    let mut file = anonymous_file(0)?;
    file.write_all(contents)?;
    Ok(file)
}

/// Whether a descriptor's file can be mapped for reading, as a program would.
///
/// # Errors
/// As mmap gives them: `EBADF` and `EACCES` for one that is not open for reading, `ENODEV` for a
/// file that cannot be mapped.
pub fn may_map(file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a new mapping, which is not read, and is given back.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0);
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        libc::munmap(at, 4096);
    }
    Ok(())
}

/// A memfd mapped shared here and in one target.
#[derive(Debug)]
pub struct Segment {
    file: File,
    base: *mut u8,
    bytes: usize,
}

// SAFETY: shared memory that another process may write at any time; it is only accessed through
// atomics and raw copies.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// A new one of zeros. Sealed in size: the target cannot shrink it under us.
    pub fn create(bytes: usize) -> io::Result<Segment> {
        let file = anonymous_file(libc::MFD_ALLOW_SEALING)?;
        file.set_len(bytes as u64)?;
        // SAFETY: seals our own descriptor.
        unsafe {
            libc::fcntl(
                file.as_raw_fd(),
                libc::F_ADD_SEALS,
                libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL,
            )
        };
        let base = map(bytes, file.as_raw_fd(), libc::MAP_SHARED | libc::MAP_NORESERVE)?;
        Ok(Segment { file, base, bytes })
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps what this process has of it, now and later, out of the kernel's swap.
    ///
    /// # Errors
    /// As [`Frames::lock`].
    pub fn lock(&self) -> io::Result<()> {
        lock(self.base, self.bytes)
    }

    /// A structure of atomics at the start.
    ///
    /// # Safety
    /// `T` must consist of atomics only, be valid for any bytes, and fit.
    pub unsafe fn header<T>(&self) -> &T {
        assert!(size_of::<T>() <= self.bytes);
        // SAFETY: the mapping is page aligned and lives as long as `self`; the caller vouches for
        // T.
        unsafe { &*self.base.cast::<T>() }
    }

    /// Bytes of a staging slot. The target can change them at any time: the reader must cope with
    /// bytes that change under it, which copies and codecs do.
    ///
    /// # Safety
    /// The core says that the slot holds a page and that it stays.
    pub unsafe fn page(&self, at: usize) -> &[u8] {
        assert!(at + 4096 <= self.bytes, "slot outside the segment");
        // SAFETY: inside the mapping.
        unsafe { std::slice::from_raw_parts(self.base.add(at), 4096) }
    }

    /// Gives the memory of one page back; it reads as zeros then.
    pub fn punch(&self, at: usize) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: acts on our own file.
        unsafe { libc::fallocate(self.file.as_raw_fd(), mode, at as libc::off_t, 4096) };
    }
}

impl AsRawFd for Segment {
    fn as_raw_fd(&self) -> i32 {
        self.file.as_raw_fd()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: our own mapping.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// A page-aligned buffer that is mapped for itself, so that all of it goes back to the system:
/// glibc's heap keeps what it cuts off for the alignment, and was found to keep 10 MiB of 0.5 in
/// use.
pub struct Aligned {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: owned memory.
unsafe impl Send for Aligned {}

impl Aligned {
    /// So many bytes, zeros.
    ///
    /// # Panics
    /// When there is no memory, or none is asked for.
    pub fn new(bytes: usize) -> Aligned {
        let base = map(bytes, -1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS).expect("memory for a buffer");
        Aligned { base, bytes }
    }

    /// All of it.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: owned, initialised.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.bytes) }
    }

    /// How long it is, bytes.
    #[allow(clippy::len_without_is_empty)] // it never is
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Where it is: for a device.
    pub fn base(&self) -> *mut u8 {
        self.base
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

fn map(bytes: usize, fd: i32, flags: i32) -> io::Result<*mut u8> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(base.cast())
}

/// MADV_DONTNEED that also gives locked memory back, of Linux 5.18.
const MADV_DONTNEED_LOCKED: libc::c_int = 24;

/// Locks pages as they come.
fn lock(base: *mut u8, bytes: usize) -> io::Result<()> {
    // SAFETY: a mapping of our own; its contents stay.
    match unsafe { libc::mlock2(base.cast(), bytes, libc::MLOCK_ONFAULT as libc::c_uint) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits while the word is `seen`, at most so long. The word may be in shared memory.
pub fn futex_wait(word: &AtomicU32, seen: u32, limit: Duration) {
    let timeout = libc::timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    // SAFETY: the word outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, &raw const timeout, 0, 0) };
}

/// Wakes all who wait for the word.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: uses the address only.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX, 0, 0, 0) };
}
