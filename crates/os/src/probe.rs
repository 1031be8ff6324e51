//! What this kernel and this user's rights allow. Where possible it is tried, not derived from
//! version numbers.
//!
//! Every probe leaves the process as it was. None takes more than some microseconds, so that each
//! run can make the probes that it depends on.

use crate::describe;
use crate::maps::Pagemap;
use crate::procfs::read_text;
use crate::sched;
use crate::uffd::ioctl;
use memfit_wire::uffd::{
    Api, Move, Range, Register, REGISTER_MODE_MISSING, UFFDIO_API, UFFDIO_MOVE, UFFDIO_REGISTER, UFFD_API,
    USERFAULTFD_IOC_NEW,
};
use std::ffi::{CStr, CString};
use std::fmt;
use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

/// Feature bits of `UFFDIO_API`, from the kernel's `userfaultfd.h`.
pub mod feature {
    /// A fork event carries the child's descriptor.
    pub const EVENT_FORK: u64 = 1 << 1;
    /// mremap raises an event.
    pub const EVENT_REMAP: u64 = 1 << 2;
    /// madvise that drops pages raises an event.
    pub const EVENT_REMOVE: u64 = 1 << 3;
    /// munmap raises an event.
    pub const EVENT_UNMAP: u64 = 1 << 6;
    /// A page fault message carries the thread id.
    pub const THREAD_ID: u64 = 1 << 8;
    /// UFFDIO_MOVE.
    pub const MOVE: u64 = 1 << 16;
    /// Memory can be protected from all access.
    pub const RWP: u64 = 1 << 17;
    /// The kernel itself takes that protection off when a page is accessed.
    pub const RWP_ASYNC: u64 = 1 << 18;
    /// The features that memfit needs, with their names; [`crate::uffd::REQUIRED`] is the mask.
    pub const REQUIRED: [(&str, u64); 5] = [
        ("MOVE", MOVE),
        ("EVENT_REMAP", EVENT_REMAP),
        ("EVENT_REMOVE", EVENT_REMOVE),
        ("EVENT_UNMAP", EVENT_UNMAP),
        ("THREAD_ID", THREAD_ID),
    ];
}

/// Release and version of the running kernel, such as `6.8.0-45-generic` and `(6, 8)`.
#[must_use]
pub fn kernel_version() -> (String, (u32, u32)) {
    // setarch(8) can have uname(2) say an old version; in a sandbox there may be no /proc/sys.
    let file = fs::read_to_string("/proc/sys/kernel/osrelease");
    let release = file.map_or_else(|_| release_by_uname(), |text| text.trim().to_owned());
    let version = parse_release(&release);
    (release, version)
}

fn release_by_uname() -> String {
    // SAFETY: all zeros is a valid value of this struct of bytes.
    let mut name: libc::utsname = unsafe { mem::zeroed() };
    // SAFETY: valid for writing.
    unsafe { libc::uname(&mut name) };
    // SAFETY: the kernel terminates the text with a NUL, or nothing was written.
    unsafe { CStr::from_ptr(name.release.as_ptr()) }.to_string_lossy().into_owned()
}

fn parse_release(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The right that allowed a userfaultfd which also serves page faults inside of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UffdAccess {
    /// CAP_SYS_PTRACE (root has it).
    Capability,
    /// `vm.unprivileged_userfaultfd` is 1: everybody has the right.
    Sysctl,
    /// `/dev/userfaultfd` can be opened.
    Device,
}

/// Why no userfaultfd can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UffdDenied {
    /// The kernel was built without userfaultfd.
    NotBuilt,
    /// This user has no right to make one.
    NoPermission,
    /// A seccomp filter, as in containers, refuses the call or may do so, and the device is missing
    /// or not open to this user.
    Filtered,
    /// Another `errno`.
    Other(i32),
}

/// Makes a userfaultfd, by the first way that works.
///
/// # Errors
/// [`UffdDenied`] says what to repair.
pub fn open_userfaultfd() -> Result<(OwnedFd, UffdAccess), UffdDenied> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: plain numbers.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    if fd >= 0 {
        // SAFETY: a new descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        return Ok((fd, if sysctl_allows() { UffdAccess::Sysctl } else { UffdAccess::Capability }));
    }
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    if let Some(fd) = from_device(flags) {
        return Ok((fd, UffdAccess::Device));
    }
    Err(match errno {
        libc::ENOSYS if is_filtered() => UffdDenied::Filtered,
        libc::ENOSYS => UffdDenied::NotBuilt,
        libc::EPERM if is_filtered() => UffdDenied::Filtered,
        libc::EPERM => UffdDenied::NoPermission,
        other => UffdDenied::Other(other),
    })
}

fn sysctl_allows() -> bool {
    fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").is_ok_and(|text| text.trim() == "1")
}

/// Whether the calling thread has a seccomp filter.
fn is_filtered() -> bool {
    let status = read_text("/proc/thread-self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}

fn from_device(flags: libc::c_int) -> Option<OwnedFd> {
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd").ok()?;
    // SAFETY: this request takes the flags as its value.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW as _, flags) };
    // SAFETY: a new descriptor that nobody else owns.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The `UFFDIO_API` handshake with the wanted features; returns all features of the kernel. Once
/// per descriptor.
///
/// # Errors
/// `EINVAL` when a wanted feature is unknown, `EPERM` when it needs a right (EVENT_FORK).
pub fn handshake(uffd: &OwnedFd, wanted: u64) -> io::Result<u64> {
    let mut api = Api { api: UFFD_API, features: wanted, ioctls: 0 };
    ioctl(uffd, UFFDIO_API, &mut api)?;
    Ok(api.features)
}

/// All userfaultfd features of this kernel.
///
/// # Errors
/// As [`open_userfaultfd`].
pub fn known_features() -> Result<u64, UffdDenied> {
    let (uffd, _) = open_userfaultfd()?;
    handshake(&uffd, 0).map_err(|error| UffdDenied::Other(error.raw_os_error().unwrap_or(0)))
}

/// Whether a descriptor with these features can be made. With [`feature::EVENT_FORK`]: whether this
/// process has CAP_SYS_PTRACE in the first user namespace.
#[must_use]
pub fn can_enable(features: u64) -> bool {
    open_userfaultfd().is_ok_and(|(uffd, _)| handshake(&uffd, features).is_ok())
}

/// An anonymous private mapping of whole pages, unmapped when dropped.
struct Pages {
    start: *mut u8,
    len: usize,
}

impl Pages {
    fn new(len: usize) -> io::Result<Self> {
        Self::of_type(len, libc::MAP_PRIVATE)
    }

    /// `kind`: a type of MAP_TYPE.
    fn of_type(len: usize, kind: libc::c_int) -> io::Result<Self> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, kind | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: start.cast(), len })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing borrows from it.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

fn page_bytes() -> usize {
    // SAFETY: plain number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Why a page of this process could not be moved.
#[derive(Debug)]
pub enum MoveFailed {
    /// There is no userfaultfd.
    Denied(UffdDenied),
    /// This step failed.
    Step(&'static str, io::Error),
    /// The page did not arrive, or did not leave: the first bytes there.
    Data(u8, u8),
}

impl MoveFailed {
    /// The kernel's error.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Denied(UffdDenied::Other(errno)) => Some(*errno),
            Self::Step(_, error) => error.raw_os_error(),
            Self::Denied(_) | Self::Data(..) => None,
        }
    }
}

impl fmt::Display for MoveFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(UffdDenied::Other(errno)) => {
                write!(f, "userfaultfd: {}", describe(&io::Error::from_raw_os_error(*errno)))
            }
            Self::Denied(denied) => write!(f, "userfaultfd: {denied:?}"),
            Self::Step(name, error) => write!(f, "{name}: {}", describe(error)),
            Self::Data(arrived, left) => {
                write!(f, "UFFDIO_MOVE: the data did not move ({arrived:#x}, {left:#x})")
            }
        }
    }
}

/// Moves one page of this process and checks the data.
///
/// # Errors
/// The failed step with the kernel's error, or that the data differed.
pub fn try_move() -> Result<(), MoveFailed> {
    let step = MoveFailed::Step;
    let (uffd, _) = open_userfaultfd().map_err(MoveFailed::Denied)?;
    handshake(&uffd, feature::MOVE).map_err(|error| step("UFFDIO_API with MOVE", error))?;
    let page = page_bytes();
    let source = Pages::new(page).map_err(|error| step("mmap", error))?;
    let target = Pages::new(page).map_err(|error| step("mmap", error))?;
    let (src, dst, len) = (source.start as u64, target.start as u64, page as u64);
    // SAFETY: the page is mapped writable.
    unsafe { ptr::write_bytes(source.start, 0xA5, page) };
    let mut register = Register { range: Range { start: dst, len }, mode: REGISTER_MODE_MISSING, ioctls: 0 };
    ioctl(&uffd, UFFDIO_REGISTER, &mut register).map_err(|error| step("UFFDIO_REGISTER", error))?;
    let mut request = Move { dst, src, len, mode: 0, moved: 0 };
    ioctl(&uffd, UFFDIO_MOVE, &mut request).map_err(|error| step("UFFDIO_MOVE", error))?;
    drop(uffd); // Unregisters: reading cannot hang, whatever happened.

    // SAFETY: both pages are mapped readable; volatile because the kernel changed them behind the
    // compiler's back.
    let (arrived, left) = unsafe { (target.start.add(page - 1).read_volatile(), source.start.read_volatile()) };
    if (arrived, left) != (0xA5, 0) {
        return Err(MoveFailed::Data(arrived, left));
    }
    Ok(())
}

/// Whether the kernel registers MAP_DROPPABLE memory, whose pages it drops without an event, with a
/// userfaultfd. Linux 6.11 to 6.16 do; older kernels have no such memory. Tried once; true where it
/// cannot be tried.
#[must_use]
pub fn takes_droppable() -> bool {
    const MAP_DROPPABLE: libc::c_int = 8;
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let Ok(pages) = Pages::of_type(page_bytes(), MAP_DROPPABLE) else { return false };
        let Ok((uffd, _)) = open_userfaultfd() else { return true };
        let (start, len) = (pages.start as u64, pages.len as u64);
        let mut register = Register { range: Range { start, len }, mode: REGISTER_MODE_MISSING, ioctls: 0 };
        handshake(&uffd, 0).is_err() || ioctl(&uffd, UFFDIO_REGISTER, &mut register).is_ok()
    })
}

/// Whether `PAGEMAP_SCAN` (Linux 6.7) finds a page of this process.
#[must_use]
pub fn can_scan_pagemap() -> bool {
    let page = page_bytes();
    let (Ok(pagemap), Ok(pages)) = (Pagemap::open(std::process::id() as i32), Pages::new(2 * page)) else {
        return false;
    };
    // SAFETY: the second page is mapped writable.
    unsafe { pages.start.add(page).write_volatile(1) };
    let start = pages.start as u64;
    let mut found = Vec::new();
    let asked = pagemap.present(start, start + pages.len as u64, |from, to, _| found.push((from, to)));
    asked.is_ok() && found == [(start + page as u64, start + pages.len as u64)]
}

/// Mode of transparent huge pages: `always`, `madvise` or `never`; `None` if the kernel has none.
#[must_use]
pub fn transparent_huge_pages() -> Option<String> {
    let text = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    bracketed(&text).map(str::to_owned)
}

fn bracketed(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(chosen, _)| chosen)
}

/// Yama's restriction of ptrace (0 none, 1 own children, 2 administrator, 3 nobody); `None` without
/// Yama.
#[must_use]
pub fn yama_ptrace_scope() -> Option<u32> {
    fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

/// Whether a thread of this process may run before all ordinary threads.
#[must_use]
pub fn may_be_real_time() -> bool {
    // It changes the thread that asks.
    std::thread::spawn(sched::real_time).join().unwrap_or(false)
}

/// Whether memory that is read-only and executable can be made writable for a moment. SELinux and
/// `PR_SET_MDWE` can forbid it.
#[must_use]
pub fn may_open_executable() -> bool {
    let page = page_bytes();
    let Ok(pages) = Pages::new(page) else { return true };
    let access = |access| {
        // SAFETY: the page is ours, nobody reads, writes or executes it.
        unsafe { libc::mprotect(pages.start.cast(), page, access) == 0 }
    };
    access(libc::PROT_READ | libc::PROT_EXEC) && access(libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC)
}

/// Files and devices that the kernel swaps to.
#[must_use]
pub fn kernel_swap() -> Vec<String> {
    let text = read_text("/proc/swaps").unwrap_or_default();
    text.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().next()).map(str::to_owned).collect()
}

/// Number of processors that this process may use.
#[must_use]
pub fn usable_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The file system of a directory or file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    /// Its type, such as `ext4`; a hexadecimal magic number when unknown.
    pub name: String,
    /// Whether it keeps data in RAM, so that it is no place for a swap tier.
    pub in_ram: bool,
    /// Whether another machine or a program serves it, which may stop answering.
    pub remote: bool,
    /// Bytes that this user can still write.
    pub free_bytes: u64,
}

const KNOWN: [(u64, &str); 21] = [
    (0x00C3_6400, "ceph"),
    (0x5346_414F, "afs"),
    (0xEF53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0xF2F5_2010, "f2fs"),
    (0x2FC1_2FC1, "zfs"),
    (0xCA45_1A4E, "bcachefs"),
    (0x794C_7630, "overlay"),
    (0x4D44, "vfat"),
    (0x2011_BAB0, "exfat"),
    (0x7366_746E, "ntfs3"),
    (0x6969, "nfs"),
    (0xFF53_4D42, "cifs"),
    (0xFE53_4D42, "smb2"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "fuse"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58F6, "ramfs"),
    (0x9584_58F6, "hugetlbfs"),
    (0x6462_6720, "debugfs"),
];

const REMOTE: [&str; 7] = ["nfs", "cifs", "smb2", "9p", "fuse", "ceph", "afs"];
const IN_RAM: [&str; 4] = ["tmpfs", "ramfs", "hugetlbfs", "debugfs"];

/// The file system that `path` lies on.
///
/// # Errors
/// As `statfs` gives them.
pub fn file_system(path: &Path) -> io::Result<FileSystem> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    statfs(&path)
}

fn statfs(path: &CStr) -> io::Result<FileSystem> {
    // SAFETY: all zeros is a valid value of this struct of numbers.
    let mut info: libc::statfs = unsafe { mem::zeroed() };
    // SAFETY: a NUL-terminated path and a valid struct.
    if unsafe { libc::statfs(path.as_ptr(), &mut info) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Sign-extended on some targets: the magic number has 32 bits.
    let magic = info.f_type as u64 & 0xFFFF_FFFF;
    let name = KNOWN.iter().find(|(number, _)| *number == magic).map(|(_, name)| (*name).to_owned());
    let name = name.unwrap_or_else(|| format!("{magic:#x}"));
    let in_ram = IN_RAM.contains(&name.as_str());
    let remote = REMOTE.contains(&name.as_str());
    Ok(FileSystem { name, in_ram, remote, free_bytes: (info.f_bavail as u64).saturating_mul(info.f_bsize as u64) })
}

/// Whether an unlinked file can be made in `directory`; tries it.
///
/// # Errors
/// As the system gives them.
pub fn can_make_file(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let unnamed = options.clone().custom_flags(libc::O_TMPFILE).open(directory);
    match unnamed.map_err(|error| (error.raw_os_error(), error)) {
        Ok(_) => return Ok(()),
        // Not every file system has unnamed files.
        Err((Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT | libc::EINVAL), _)) => {}
        Err((_, error)) => return Err(error),
    }
    let file = directory.join(format!(".memfit-probe-{}", std::process::id()));
    options.create_new(true).open(&file)?;
    fs::remove_file(&file)
}

/// The directory for the swap tier when the user names none. It is the first of `/var/tmp`,
/// `$TMPDIR`, `$XDG_CACHE_HOME`, `~/.cache`, `/tmp` and the current directory that is on a disk and
/// writable; one with less than 1 GiB free only if all have less.
#[must_use]
pub fn default_swap_directory() -> Option<PathBuf> {
    let from = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let places = [
        Some("/var/tmp".into()),
        from("TMPDIR"),
        from("XDG_CACHE_HOME"),
        from("HOME").map(|home| home.join(".cache")),
        Some("/tmp".into()),
        std::env::current_dir().ok(),
    ];
    let mut usable: Vec<(PathBuf, u64)> = Vec::new();
    for place in places.into_iter().flatten() {
        match file_system(&place) {
            Ok(system) if !system.in_ram && can_make_file(&place).is_ok() => usable.push((place, system.free_bytes)),
            _ => {}
        }
    }
    let roomy = usable.iter().position(|(_, free_bytes)| *free_bytes >= 1 << 30);
    (!usable.is_empty()).then(|| usable.swap_remove(roomy.unwrap_or(0)).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases() {
        assert_eq!(parse_release("6.8.0-45-generic"), (6, 8));
        assert_eq!(parse_release("6.18-rc1"), (6, 18));
        assert_eq!(parse_release(""), (0, 0));
        assert!(kernel_version().1 >= (3, 0));
    }

    #[test]
    fn chosen_mode_is_in_brackets() {
        assert_eq!(bracketed("always [madvise] never\n"), Some("madvise"));
        assert_eq!(bracketed("always"), None);
    }

    #[test]
    fn a_page_moves_where_the_kernel_can() {
        if known_features().is_ok_and(|known| known & feature::MOVE != 0) {
            try_move().unwrap();
        } else {
            assert!(try_move().is_err());
        }
    }

    #[test]
    fn pagemap_scan_agrees_with_the_version() {
        if kernel_version().1 >= (6, 7) {
            assert!(can_scan_pagemap());
        }
    }

    #[test]
    fn knows_where_memory_is() {
        if Path::new("/dev/shm").is_dir() {
            assert!(file_system(Path::new("/dev/shm")).unwrap().in_ram);
        }
        assert!(file_system(Path::new("/nonexistent")).is_err());
        assert!(can_make_file(Path::new("/nonexistent")).is_err());
        let directory = default_swap_directory().expect("this test needs a disk");
        assert!(!file_system(&directory).unwrap().in_ram);
        assert!(can_make_file(&directory).is_ok());
    }
}
