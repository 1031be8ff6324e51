//! Files that have no name yet.

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
    File::options().write(true).custom_flags(libc::O_TMPFILE).open(directory)
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
