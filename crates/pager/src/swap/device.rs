//! Opening the files and devices of the swap tier.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a place for segments. Returns the file, the bytes that it may use, and whether its first
/// segment must stay as it is.
pub fn open(path: &Path, max_bytes: u64) -> io::Result<(File, u64, bool)> {
    if path.is_dir() {
        return Ok((unlinked(path)?, max_bytes, false));
    }
    let mut file = existing(path)?;
    let bytes = match file.metadata()?.file_type().is_block_device() {
        true => file.seek(SeekFrom::End(0))?.min(max_bytes),
        false => max_bytes,
    };
    Ok((file, bytes, true))
}

fn unlinked(directory: &Path) -> io::Result<File> {
    let open = |flags| {
        File::options().read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE | flags).open(directory)
    };
    match open(libc::O_DIRECT).or_else(|_| open(0)) {
        Ok(file) => Ok(file),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)) => {
            named(directory)
        }
        Err(error) => Err(error),
    }
}

/// For file systems without O_TMPFILE: creates a file and unlinks it at once.
fn named(directory: &Path) -> io::Result<File> {
    let path = directory.join(format!(".memfit-swap-{}", std::process::id()));
    let open =
        |flags| File::options().read(true).write(true).create_new(true).mode(0o600).custom_flags(flags).open(&path);
    let file = open(libc::O_DIRECT).or_else(|_| open(0))?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn existing(path: &Path) -> io::Result<File> {
    // O_EXCL: nobody can mount the device, and no other run can use it.
    let alone = if std::fs::metadata(path)?.file_type().is_block_device() { libc::O_EXCL } else { 0 };
    let open = |flags| File::options().read(true).write(true).custom_flags(flags | alone).open(path);
    open(libc::O_DIRECT).or_else(|_| open(0))
}
