//! Memory that the pager owns: frames of the pool, segments shared with stubs, futex words.

use crate::procfs;
use memfit_wire::{Ring, PAGE_BYTES};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Locks each page of this process's code when it is first used, as far as RLIMIT_MEMLOCK allows.
/// Under memory pressure in a control group the kernel drops clean file pages first, and the
/// process that frees memory must not wait for a disk. Code that is never used stays out: in a
/// container the kernel charges it to whoever reads it first.
pub fn keep_code() {
    for (start, end) in code() {
        // If a limit forbids it, the code stays as it is: to load all of it now would charge twice
        // as much, and the kernel would drop it again.
        let (at, bytes) = (start as *mut libc::c_void, (end - start) as usize);
        // SAFETY: does not change the contents of the mapping.
        unsafe { libc::mlock2(at, bytes, libc::MLOCK_ONFAULT as libc::c_uint) };
    }
}

/// Bytes of this process's code, with that of its libraries.
#[must_use]
pub fn code_bytes() -> u64 {
    code().into_iter().map(|(start, end)| end - start).sum()
}

fn code() -> Vec<(u64, u64)> {
    crate::maps::code(&procfs::read_text("/proc/self/maps").unwrap_or_default())
}

/// Makes freed memory go back to the system instead of staying in glibc's arenas: two arenas for
/// all threads, and a mapping of its own for each larger allocation. By default glibc has eight
/// arenas per CPU, and memory freed in one is of no use in another.
pub fn keep_no_heaps() {
    // SAFETY: both take numbers.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_PIECE);
    }
}

/// Bytes from which on an allocation gets a mapping of its own.
const LARGE_PIECE: libc::c_int = 64 << 10;

/// Keeps this process's memory out of core dumps, and other processes of the user from reading it.
pub fn undumpable() {
    // SAFETY: takes a number.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
}

/// Overwrites a secret with zeros. Nothing reads them again, so the compiler would drop plain
/// stores.
pub fn wipe(secret: &mut [u8]) {
    for byte in secret {
        // SAFETY: a live variable.
        unsafe { std::ptr::write_volatile(byte, 0) };
    }
}

/// Locks whole pages, as far as RLIMIT_MEMLOCK allows, and keeps them out of core dumps and fork
/// children.
pub fn keep_secret(at: *const u8, bytes: usize) {
    let at = at.cast_mut().cast::<libc::c_void>();
    // SAFETY: none of them changes the contents of the mapping.
    unsafe {
        libc::mlock(at, bytes);
        libc::madvise(at, bytes, libc::MADV_DONTDUMP);
        libc::madvise(at, bytes, libc::MADV_DONTFORK);
    }
}

/// Random bytes from the kernel, fit for a key.
///
/// # Errors
/// When the kernel gives fewer.
pub fn random(out: &mut [u8]) -> io::Result<()> {
    // SAFETY: writes at most `out.len()` bytes to a live buffer.
    let got = unsafe { libc::getrandom(out.as_mut_ptr().cast(), out.len(), 0) };
    match usize::try_from(got) {
        Ok(bytes) if bytes == out.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// A reserved range of private memory. A page takes memory from its first write on.
///
/// The methods copy, and lend no references. Who uses which bytes is decided by the core, not by
/// the compiler: if it were wrong, a copy would be torn, and the checksum or the codec would find
/// that. Copies by relaxed atomics would be sound by the letter as well, and take 0.4 us a page
/// more.
#[derive(Debug)]
pub struct Frames {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory; the core, behind its lock, decides which thread may access which bytes.
unsafe impl Send for Frames {}
// SAFETY: as above.
unsafe impl Sync for Frames {}

impl Frames {
    /// Reserves address space, without memory.
    pub fn reserve(bytes: usize) -> io::Result<Frames> {
        let base = map(bytes, -1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE)?;
        // A huge page would take memory for more than one frame, and keep memory that was released.
        // SAFETY: a new mapping of our own.
        unsafe { libc::madvise(base.cast(), bytes, libc::MADV_NOHUGEPAGE) };
        Ok(Frames { base, bytes })
    }

    /// Keeps the current and future contents of the frames out of the kernel's swap.
    ///
    /// # Errors
    /// As mlock2: `ENOMEM` and `EPERM` when RLIMIT_MEMLOCK is less than the whole range.
    pub fn lock(&self) -> io::Result<()> {
        lock(self.base, self.bytes)
    }

    /// Copies the bytes from `at` on into `out`.
    pub fn copy_to(&self, at: u64, out: &mut [u8]) {
        assert!(within(at, out.len(), self.bytes), "read outside the frames");
        // SAFETY: inside the mapping, of which there are no references, and `out` is other memory.
        // Bytes that another thread writes meanwhile come torn: the core decides who uses which.
        unsafe { std::ptr::copy_nonoverlapping(self.base.add(at as usize), out.as_mut_ptr(), out.len()) };
    }

    /// Writes bytes at `at`.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        assert!(within(at, bytes.len(), self.bytes), "write outside the frames");
        // SAFETY: as in `copy_to`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at as usize), bytes.len()) };
    }

    /// Moves bytes inside the frames.
    pub fn shift(&self, from: u64, to: u64, len: usize) {
        assert!(within(from, len, self.bytes) && within(to, len, self.bytes), "move outside the frames");
        // SAFETY: as in `copy_to`; overlap is allowed.
        unsafe { std::ptr::copy(self.base.add(from as usize), self.base.add(to as usize), len) };
    }

    /// Gives the memory of a page-aligned range back to the system. It then reads as zeros.
    pub fn release(&self, at: u64, bytes: u64) {
        assert!(within(at, bytes as usize, self.bytes), "release outside the frames");
        // SAFETY: inside the mapping, of which there are no references.
        unsafe { libc::madvise(self.base.add(at as usize).cast(), bytes as usize, MADV_DONTNEED_LOCKED) };
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which there are no references.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// An anonymous file, in memory.
fn anonymous_file(name: &CStr, flags: libc::c_uint) -> io::Result<File> {
    // SAFETY: a name that ends with a null; the descriptor is ours.
    unsafe {
        let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | flags);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(File::from_raw_fd(fd))
    }
}

/// An anonymous file in memory with these contents, to be passed on as a descriptor.
///
/// # Errors
/// As the system calls give them.
pub fn file_of(contents: &[u8]) -> io::Result<File> {
    let mut file = anonymous_file(c"memfit", 0)?;
    file.write_all(contents)?;
    Ok(file)
}

/// An anonymous file of this size, which is sealed.
fn sealed(name: &CStr, bytes: u64) -> io::Result<File> {
    let file = anonymous_file(name, libc::MFD_ALLOW_SEALING)?;
    file.set_len(bytes)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: seals our own descriptor.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// Frees the memory of a range of an anonymous file. False if the kernel refuses that.
fn punch(file: &File, at: u64, bytes: u64) -> bool {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: acts on our own file.
    unsafe { libc::fallocate(file.as_raw_fd(), mode, at as libc::off_t, bytes as libc::off_t) == 0 }
}

/// A memfd that is mapped in programs only. Its holes read as zeros.
#[derive(Debug)]
pub struct SparseFile(File);

/// Longest part of a file's name in the name of its memfd, bytes. The kernel takes 249 in all.
const NAME_MAX: usize = 200;

impl SparseFile {
    /// One without pages. Its size, in bytes, is sealed. `name`: shown in /proc/PID/maps.
    ///
    /// # Errors
    /// As memfd_create and ftruncate give them.
    pub fn create(name: &str, bytes: u64) -> io::Result<SparseFile> {
        let name: Vec<u8> = name.bytes().filter(|&byte| byte != 0).take(NAME_MAX).collect();
        let name = CString::new([b"memfit:", &name[..]].concat()).unwrap_or_default();
        sealed(&name, bytes).map(SparseFile)
    }

    /// Fills `out` with the bytes from `at` on.
    ///
    /// # Errors
    /// When the range ends behind the file.
    pub fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, at)
    }

    /// Takes the pages of a range out of the file, and of all mappings. False if the kernel refuses
    /// that.
    #[must_use]
    pub fn punch(&self, at: u64, bytes: u64) -> bool {
        bytes == 0 || punch(&self.0, at, bytes)
    }

    /// Whether a range of whole pages has one that is not a hole. True if the kernel cannot say.
    #[must_use]
    pub fn has(&self, at: u64, pages: u64) -> bool {
        // SAFETY: changes only the position of a descriptor of which the position is not used.
        let next = unsafe { libc::lseek(self.0.as_raw_fd(), at as libc::off_t, libc::SEEK_DATA) };
        match u64::try_from(next) {
            Ok(next) => next < at + pages * PAGE_BYTES as u64,
            // No data up to the end.
            Err(_) => io::Error::last_os_error().raw_os_error() != Some(libc::ENXIO),
        }
    }

    /// Its device and inode number, as in /proc/PID/maps.
    ///
    /// # Errors
    /// As fstat gives them.
    pub fn number(&self) -> io::Result<(u64, u64)> {
        let metadata = self.0.metadata()?;
        Ok((metadata.dev(), metadata.ino()))
    }
}

impl AsFd for SparseFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether a program could map a descriptor's file for reading.
///
/// # Errors
/// As mmap gives them: `EBADF` and `EACCES` for a descriptor that is not open for reading, `ENODEV`
/// for a file that cannot be mapped.
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

/// A memfd that is mapped shared here and in one program.
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
    /// A new segment of zeros. Its size is sealed, so the program cannot shrink it.
    pub fn create(bytes: usize) -> io::Result<Segment> {
        let file = sealed(c"memfit", bytes as u64)?;
        let base = map(bytes, file.as_raw_fd(), libc::MAP_SHARED | libc::MAP_NORESERVE)?;
        Ok(Segment { file, base, bytes })
    }

    /// Size, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of it that have memory.
    pub fn allocated_bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.blocks() * 512)
    }

    /// Keeps the pages of the segment that this process maps, now and later, out of the kernel's
    /// swap.
    ///
    /// # Errors
    /// As [`Frames::lock`].
    pub fn lock(&self) -> io::Result<()> {
        lock(self.base, self.bytes)
    }

    /// The ring at its start.
    pub fn ring(&self) -> &Ring {
        assert!(size_of::<Ring>() <= self.bytes, "the segment is too small for a ring");
        // SAFETY: a ring consists of atomics and is valid for any bytes; the mapping is page
        // aligned and lives as long as `self`.
        unsafe { &*self.base.cast::<Ring>() }
    }

    /// Copies the page at a byte of the segment. The program can change it meanwhile.
    pub fn copy_page(&self, at: usize, out: &mut [u8]) {
        assert!(within(at as u64, out.len(), self.bytes) && out.len() == PAGE_BYTES, "no page of the segment");
        // SAFETY: inside the mapping, of which the only reference is the ring, and `out` is other
        // memory. Bytes that the program writes meanwhile come torn.
        unsafe { std::ptr::copy_nonoverlapping(self.base.add(at), out.as_mut_ptr(), PAGE_BYTES) };
    }

    /// Fills the page at a byte of the segment.
    pub fn write_page(&self, at: usize, page: &[u8]) {
        assert!(within(at as u64, page.len(), self.bytes) && page.len() == PAGE_BYTES, "no page of the segment");
        // SAFETY: as in `copy_page`.
        unsafe { std::ptr::copy_nonoverlapping(page.as_ptr(), self.base.add(at), PAGE_BYTES) };
    }

    /// Frees the memory of so many pages; they then read as zeros.
    pub fn punch(&self, at: usize, pages: usize) {
        punch(&self.file, at as u64, (pages * PAGE_BYTES) as u64);
    }
}

impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: our own mapping.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// A page-aligned buffer with a mapping of its own, so that all of it goes back to the system.
/// glibc's heap keeps what it cuts off for the alignment: measured 10 MiB kept with 0.5 MiB in use.
///
/// Transfers share it with its owner, who has a reference to its bytes only when none is under way.
pub struct Aligned {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: owned memory.
unsafe impl Send for Aligned {}
// SAFETY: a shared buffer is accessed by raw copies only.
unsafe impl Sync for Aligned {}

impl Aligned {
    /// A buffer of `bytes` zeros.
    ///
    /// # Panics
    /// When there is no memory, or `bytes` is 0.
    pub fn new(bytes: usize) -> Aligned {
        let base = map(bytes, -1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS).expect("memory for a buffer");
        Aligned { base, bytes }
    }

    /// The whole buffer.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: owned, initialised, and not shared.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.bytes) }
    }

    /// Writes bytes at `at`, where no transfer is under way.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(within(at as u64, bytes.len(), self.bytes), "write outside the buffer");
        // SAFETY: inside the mapping. There are no references to it while it is shared. A transfer
        // under way would take torn bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at), bytes.len()) };
    }

    /// Inverts a bit, as a device may do that fails.
    pub fn flip(&self, at: usize, bit: usize) {
        assert!(at < self.bytes, "bit outside the buffer");
        // SAFETY: inside the mapping, to which there are no references while it is shared.
        unsafe { *self.base.add(at) ^= 1 << (bit % 8) };
    }

    /// Length, bytes.
    #[allow(clippy::len_without_is_empty)] // it never is
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Address of a range, for a device.
    pub(crate) fn at(&self, at: usize, len: usize) -> *mut u8 {
        assert!(within(at as u64, len, self.bytes), "transfer outside the buffer");
        // SAFETY: inside the mapping.
        unsafe { self.base.add(at) }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

impl std::fmt::Debug for Aligned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes)
    }
}

/// Whether `len` bytes from `at` on are within `bytes`.
fn within(at: u64, len: usize, bytes: usize) -> bool {
    at.checked_add(len as u64).is_some_and(|end| end <= bytes as u64)
}

fn map(bytes: usize, fd: i32, flags: i32) -> io::Result<*mut u8> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(base.cast())
}

/// MADV_DONTNEED that also frees locked memory, Linux 5.18.
const MADV_DONTNEED_LOCKED: libc::c_int = 24;

/// Locks pages when they become present (MLOCK_ONFAULT).
fn lock(base: *mut u8, bytes: usize) -> io::Result<()> {
    // SAFETY: a mapping of our own; its contents stay.
    match unsafe { libc::mlock2(base.cast(), bytes, libc::MLOCK_ONFAULT as libc::c_uint) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits while the word is `seen`, at most `limit`. The word may be in shared memory.
pub fn futex_wait(word: &AtomicU32, seen: u32, limit: Duration) {
    let timeout = libc::timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    // SAFETY: the word outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, &raw const timeout, 0, 0) };
}

/// Wakes all threads that wait for the word.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: uses the address only.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX, 0, 0, 0) };
}
