//! Files that have no name yet, and files that are read and written past the page cache.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A file in a directory to which [`name`] can give a name. The kernel frees it if its last
/// descriptor is closed before.
///
/// # Errors
/// As open gives them: `EOPNOTSUPP`, and others, where the file system has no such files.
pub fn nameless(directory: &Path) -> io::Result<File> {
    File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).open(directory)
}

/// From now on the file is read and written past the page cache.
///
/// # Errors
/// As fcntl gives them: `EINVAL` where the file system cannot do that.
pub fn make_direct(file: &File) -> io::Result<()> {
    let fd = file.as_raw_fd();
    // SAFETY: reads and sets flags of an open file; no pointer is passed.
    match unsafe { libc::fcntl(fd, libc::F_SETFL, libc::fcntl(fd, libc::F_GETFL) | libc::O_DIRECT) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the file is open for writing.
pub fn is_writable(file: &File) -> bool {
    // SAFETY: reads the flags of an open file; no pointer is passed.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    flags >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// Locks the file against other programs that lock it, until the last descriptor of this open file
/// is closed (flock). Where the file system has no locks, nothing is done.
///
/// # Errors
/// `WouldBlock` if another open file of it has the lock.
pub fn lock(file: &File) -> io::Result<()> {
    // SAFETY: locks an open file; no pointer is passed.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

/// Names a nameless file. No other file may have the name.
///
/// # Errors
/// As linkat gives them.
pub fn name(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: two strings that outlive the call.
    match unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
