//! The swap tier that the user asked for, checked before anything starts.

use crate::errors::{describe, Failure};
use memfit_os::probe;
use memfit_pager::config::SwapChoice;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What follows a swap tier in RAM.
const IN_RAM_ADVICE: &str = "pages put there would stay in RAM and save nothing; name a directory on a disk, such as \
                             /var/tmp, or use --swap none";

/// The choice for people.
#[must_use]
pub fn place_names(choice: &SwapChoice) -> String {
    match choice {
        SwapChoice::Auto => "chosen automatically".into(),
        SwapChoice::None => "none".into(),
        SwapChoice::Paths(paths) => {
            paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", then ")
        }
    }
}

/// Turns the options into a choice with absolute paths.
///
/// # Errors
/// When a place does not exist, is in RAM, cannot be written, or holds data; when `none` is not alone, or a place is named
/// twice.
pub fn choose(options: &[PathBuf]) -> Result<SwapChoice, Failure> {
    match options {
        [] => return Ok(SwapChoice::Auto),
        [only] if only == Path::new("none") => return Ok(SwapChoice::None),
        _ if options.iter().any(|path| path == Path::new("none")) => {
            return Err(Failure::usage("--swap none has no meaning beside another --swap; leave one of them out"));
        }
        _ => {}
    }
    let mut paths: Vec<PathBuf> = Vec::new();
    for path in options {
        check(path).map_err(|reason| Failure::here(format!("--swap {}: {reason}", path.display())))?;
        let absolute = path.canonicalize().map_err(|error| Failure::system("resolve the path of --swap", &error))?;
        if paths.contains(&absolute) {
            return Err(Failure::usage(format!("--swap {}: it is named twice", path.display())));
        }
        paths.push(absolute);
    }
    Ok(SwapChoice::Paths(paths))
}

/// What to say about a place that is not on this machine.
pub fn remote(path: &Path) -> Option<String> {
    let system = probe::file_system(path).ok().filter(|system| system.remote)?;
    Some(format!(
        "--swap {}: it is on {}: when that does not answer, the program waits for its pages, and when it is gone the \
         program cannot go on",
        path.display(),
        system.name
    ))
}

fn check(path: &Path) -> Result<(), String> {
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err("there is no such directory or file; make it first, or use --swap none".into());
        }
        other => other.map_err(|error| describe(&error))?,
    };
    let kind = metadata.file_type();
    if !kind.is_dir() && !kind.is_file() && !kind.is_block_device() {
        return Err("it is neither a directory nor a file nor a block device".into());
    }
    if !kind.is_block_device() {
        let system = probe::file_system(path).map_err(|error| describe(&error))?;
        if system.in_ram {
            return Err(format!("it is on {}, which is kept in RAM: {IN_RAM_ADVICE}", system.name));
        }
    }
    if kind.is_dir() {
        return probe::can_make_file(path).map_err(|error| {
            format!("no file can be made in it: {}; choose a directory that you may write to", describe(&error))
        });
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if kind.is_block_device() {
        // Of a block device this also asks whether somebody has it mounted.
        options.custom_flags(libc::O_EXCL);
    }
    let file = options.open(path).map_err(|error| format!("it cannot be written: {}", describe(&error)))?;
    if holds_data(file).map_err(|error| describe(&error))? {
        return Err("it holds data, which memfit would overwrite; empty it first, or mark it with mkswap".into());
    }
    Ok(())
}

/// Whether the start of a file or device is neither empty nor zero nor that of a swap area. The pager leaves the first
/// page alone, so a place that was good once stays good.
fn holds_data(file: File) -> io::Result<bool> {
    let mut start = Vec::new();
    file.take(65536).read_to_end(&mut start)?;
    let is_swap_area = start.get(4086..4096) == Some(b"SWAPSPACE2");
    let first_page = &start[..start.len().min(4096)];
    Ok(!is_swap_area && first_page.iter().any(|byte| *byte != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_nothing() {
        assert!(matches!(choose(&[]), Ok(SwapChoice::Auto)));
        assert!(matches!(choose(&["none".into()]), Ok(SwapChoice::None)));
        assert!(choose(&["none".into(), "/".into()]).unwrap_err().message.contains("no meaning beside"));
        assert!(choose(&["/var/tmp".into(), "/var/../var/tmp".into()]).unwrap_err().message.contains("named twice"));
        assert!(
            matches!(choose(&["/var/tmp".into(), "/var".into()]), Ok(SwapChoice::Paths(paths)) if paths.len() == 2)
        );
    }

    #[test]
    fn refuses_what_does_not_exist_or_is_no_place() {
        let reason = |path: &str| choose(&[path.into()]).unwrap_err().message;
        assert!(reason("/nonexistent").starts_with("--swap /nonexistent: there is no such directory"));
        assert!(reason("/dev/null").contains("neither a directory"));
        if Path::new("/dev/shm").is_dir() {
            assert!(reason("/dev/shm").contains("kept in RAM"), "{}", reason("/dev/shm"));
        }
    }

    #[test]
    fn a_file_with_data_is_not_overwritten() {
        let path = std::path::PathBuf::from(format!("/var/tmp/memfit-swap-test-{}", std::process::id()));
        let verdict = |contents: &[u8]| {
            fs::write(&path, contents).unwrap();
            choose(std::slice::from_ref(&path)).map_err(|failure| failure.message)
        };
        assert!(verdict(b"").is_ok());
        assert!(verdict(&[0; 70000]).is_ok());
        assert!(verdict(b"a letter").unwrap_err().contains("holds data"));
        let mut area = vec![7; 8192];
        area[4086..4096].copy_from_slice(b"SWAPSPACE2");
        assert!(verdict(&area).is_ok());
        let mut used = vec![0; 8192];
        used[4096..].fill(9);
        assert!(verdict(&used).is_ok(), "the first page decides");
        fs::remove_file(&path).unwrap();
    }
}
