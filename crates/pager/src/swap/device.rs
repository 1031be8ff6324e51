//! Opening the files and devices of the swap tier.

use memfit_os::files::{self, make_direct};
use memfit_os::process::random_bytes;
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

/// For file systems without O_TMPFILE: creates a file and unlinks it at once. The name cannot be
/// guessed, because others may write to the directory. An open with O_DIRECT would create the file
/// also where it fails.
fn named(directory: &Path) -> io::Result<File> {
    let path = directory.join(format!(".memfit-swap-{:016x}", u64::from_ne_bytes(random_bytes()?)));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    // Without it transfers go by the page cache.
    let _ = make_direct(&file);
    Ok(file)
}

fn existing(path: &Path) -> io::Result<File> {
    // O_EXCL: nobody can mount the device, and no other run can use it.
    let is_device = std::fs::metadata(path)?.file_type().is_block_device();
    let alone = if is_device { libc::O_EXCL } else { 0 };
    let open = |flags| File::options().read(true).write(true).custom_flags(flags | alone).open(path);
    let file = open(libc::O_DIRECT).or_else(|_| open(0))?;
    if !is_device {
        files::lock(&file).map_err(|_| io::Error::other("it is in use by another run of memfit"))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;
    use std::process::Command;

    /// Set in the process that runs a test in a mount namespace of its own, to a directory.
    const MOUNTED: &str = "MEMFIT_TEST_MOUNTED";

    fn directory() -> PathBuf {
        let number = u64::from_ne_bytes(random_bytes().unwrap());
        let path = PathBuf::from(format!("/var/tmp/memfit-device-{number:016x}"));
        std::fs::create_dir(&path).unwrap();
        path
    }

    /// Makes a file and uses it; its directory is empty then.
    fn no_name_is_left(directory: &Path) {
        let file = named(directory).unwrap();
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0, "the file has no name");
        let mut bytes = crate::swap::Aligned::new(4096);
        bytes.bytes().fill(7);
        file.write_all_at(bytes.bytes(), 4096).unwrap();
        bytes.bytes().fill(0);
        file.read_exact_at(bytes.bytes(), 4096).unwrap();
        assert!(bytes.bytes().iter().all(|&byte| byte == 7));
    }

    #[test]
    fn a_file_is_used_by_one_run_at_a_time() {
        let directory = directory();
        let path = directory.join("swap");
        std::fs::write(&path, "").unwrap();
        let first = open(&path, 1 << 20).unwrap();
        assert_eq!(open(&path, 1 << 20).unwrap_err().to_string(), "it is in use by another run of memfit");
        drop(first);
        assert!(open(&path, 1 << 20).is_ok());
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn no_name_is_left_where_files_have_one() {
        let directory = directory();
        no_name_is_left(&directory);
        std::fs::remove_dir(directory).unwrap();
    }

    /// As on ramfs.
    #[test]
    fn no_name_is_left_where_no_file_is_direct() {
        if let Some(mounted) = std::env::var_os(MOUNTED) {
            let probe = Path::new(&mounted).join("probe");
            let opened = File::options().write(true).create(true).custom_flags(libc::O_DIRECT).open(&probe);
            assert_eq!(opened.unwrap_err().raw_os_error(), Some(libc::EINVAL));
            std::fs::remove_file(probe).unwrap();
            return no_name_is_left(Path::new(&mounted));
        }
        let directory = directory();
        let mounted = |then: &str| {
            let script = format!("mount -t ramfs none \"${MOUNTED}\" && {then}");
            let test = "swap::device::tests::no_name_is_left_where_no_file_is_direct";
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", &script, "sh"]).arg(std::env::current_exe().unwrap());
            command.args(["--exact", test]).env(MOUNTED, &directory).output()
        };
        match mounted("true") {
            Ok(tried) if tried.status.success() => {
                let ran = mounted("\"$@\"").unwrap();
                assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
            }
            _ => {
                let test = "no_name_is_left_where_no_file_is_direct";
                crate::skip::skip(test, "no file system can be mounted here; root can");
            }
        }
        std::fs::remove_dir(directory).unwrap();
    }
}
