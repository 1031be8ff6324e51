//! The swap tier that the user asked for, checked before anything starts.

use crate::errors::{describe, Failure};
use crate::size_parsing::human;
use memfit_os::{files, probe};
use memfit_pager::config::SwapChoice;
use memfit_pager::places::SwapPlace;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The smallest swap tier, bytes: the log needs free segments of 256 KiB to make room.
pub const SWAP_BYTES_MIN: u64 = 4 << 20;
/// The end of a message about a swap tier in RAM.
const IN_RAM_ADVICE: &str = "pages put there would stay in RAM and save nothing; name a directory on a disk, such as \
                             /var/tmp, or use --swap none";

/// The choice as text.
#[must_use]
pub fn place_names(choice: &SwapChoice) -> String {
    match choice {
        SwapChoice::Auto => match probe::default_swap_directory() {
            Some(path) => format!("in {}, chosen automatically", path.display()),
            None => "none, as no directory on a disk has room".into(),
        },
        SwapChoice::None => "none".into(),
        SwapChoice::Paths(paths) => {
            paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", then ")
        }
    }
}

/// Turns the options into a choice with absolute paths.
///
/// # Errors
/// When a place does not exist, is in RAM, cannot be written, is in use, or holds data that may not
/// be overwritten; when `none` is not alone, or a place is named twice.
pub fn choose(options: &[PathBuf], overwrite: bool) -> Result<SwapChoice, Failure> {
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
        check(path, overwrite).map_err(|reason| Failure::here(format!("--swap {}: {reason}", path.display())))?;
        let absolute = path.canonicalize().map_err(|error| Failure::system("resolve the path of --swap", &error))?;
        if paths.contains(&absolute) {
            return Err(Failure::usage(format!("--swap {}: it is named twice", path.display())));
        }
        paths.push(absolute);
    }
    Ok(SwapChoice::Paths(paths))
}

/// Sizes of the places, in their order.
#[must_use]
pub fn sizes(places: &[SwapPlace]) -> String {
    places.iter().map(|place| human(place.bytes)).collect::<Vec<_>>().join(" + ")
}

/// The notes about places that are smaller than the user may think. `given`: their size is that of
/// --swap-size.
pub fn small(places: &[SwapPlace], given: bool, scheme: &str) -> Vec<String> {
    let all: u64 = places.iter().map(|place| place.bytes).sum();
    let of = |place: &SwapPlace| {
        let (path, bytes) = (place.path.display(), human(place.bytes));
        let cut = place.bytes < place.wanted && (given || place.bytes < SWAP_BYTES_MIN);
        match cut {
            true => Some(format!(
                "swap in {path}: {bytes} of {} are used, as scheme {scheme} uses at most {} in all",
                human(place.wanted),
                human(all)
            )),
            false if place.bytes < SWAP_BYTES_MIN => Some(format!(
                "swap in {path}: its default size is {bytes}, as little is free there: too little to take pages; free \
                 space there, or name another place with --swap"
            )),
            false => None,
        }
    };
    places.iter().filter_map(of).collect()
}

/// The note about a place on a remote file system.
pub fn remote(path: &Path) -> Option<String> {
    let system = probe::file_system(path).ok().filter(|system| system.remote)?;
    Some(format!(
        "--swap {}: it is on {}: when that does not answer, the program waits for its pages, and when it is gone the \
         program cannot go on",
        path.display(),
        system.name
    ))
}

fn check(path: &Path, overwrite: bool) -> Result<(), String> {
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
        // The kernel refuses this for a device that is mounted, or part of an array or a volume
        // group, or a swap area in use.
        options.custom_flags(libc::O_EXCL);
    }
    let file = options.open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => "it is in use: mounted, or part of an array, a volume group or the kernel's swap".into(),
        _ => format!("it cannot be written: {}", describe(&error)),
    })?;
    if !kind.is_block_device() {
        // The pager locks the file for the run. This lock ends with this function.
        files::lock(&file).map_err(|_| "it is in use by another run of memfit; name another file")?;
    }
    if overwrite {
        return Ok(());
    }
    let what = contents(&file, path, kind.is_block_device()).map_err(|error| describe(&error))?;
    if let Some(what) = what {
        return Err(format!(
            "it holds {what}, which memfit would overwrite; empty it first, mark it with mkswap, or say --swap-overwrite"
        ));
    }
    // Ignore an error: the pager reports a place that cannot be written, and without a mark the
    // next run checks the place again.
    let _ = mark(&file);
    Ok(())
}

/// The mark at the start of a place that memfit may overwrite again. The pager does not use the
/// first page.
const MARK: &[u8] = b"memfit swap tier\n";

/// Marks a place as one of memfit's, unless it has a mark.
fn mark(file: &File) -> io::Result<()> {
    let mut first = [0; MARK.len()];
    match file.read_at(&mut first, 0)? {
        read if first[..read].iter().any(|byte| *byte != 0) => Ok(()),
        _ => file.write_all_at(MARK, 0),
    }
}

/// Bytes that are examined at each end of a file or device. Nearly all signatures that libblkid
/// knows lie there.
const EXAMINED: u64 = 1 << 20;

/// What a file or device holds; `None` if it is empty, a swap area, or a tier of an earlier run.
fn contents(mut file: &File, path: &Path, device: bool) -> io::Result<Option<String>> {
    let bytes = file.seek(SeekFrom::End(0))?;
    let mut read = |from: u64| -> io::Result<Vec<u8>> {
        let mut part = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        file.by_ref().take(EXAMINED).read_to_end(&mut part)?;
        Ok(part)
    };
    let start = read(0)?;
    let marked = start.get(4086..4096) == Some(b"SWAPSPACE2") || start.starts_with(MARK);
    match signature(path) {
        Signature::None | Signature::Unknown if marked => return Ok(None),
        Signature::Known(name) if marked && name == "swap" => return Ok(None),
        Signature::Known(name) => return Ok(Some(format!("data ({name})"))),
        Signature::Unknown if device => {
            return Ok(Some("what memfit cannot tell, since there is no blkid (of util-linux)".into()));
        }
        Signature::None | Signature::Unknown => {}
    }
    let holds_data = |part: &[u8]| part.iter().any(|byte| *byte != 0);
    let end = read(bytes.saturating_sub(EXAMINED))?;
    Ok((holds_data(&start) || holds_data(&end)).then(|| "data".to_owned()))
}

/// What libblkid recognises at a place.
enum Signature {
    /// Nothing.
    None,
    /// The name of a file system, a member of an array, a partition table.
    Known(String),
    /// blkid could not be run, or failed.
    Unknown,
}

/// Asks blkid, which reads the contents and ignores its cache (-p).
fn signature(path: &Path) -> Signature {
    let tools = ["blkid", "/usr/sbin/blkid", "/sbin/blkid"];
    let asked = tools.iter().find_map(|tool| Command::new(tool).args(["-p", "-o", "export"]).arg(path).output().ok());
    let Some(answer) = asked else { return Signature::Unknown };
    let said = String::from_utf8_lossy(&answer.stdout).into_owned();
    let value = |key: &str| said.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
    match answer.status.code() {
        Some(0) => match value("TYPE=").or_else(|| value("PTTYPE=")) {
            Some(name) => Signature::Known(name),
            // blkid prints other properties of a device as well.
            None => Signature::None,
        },
        Some(2) => Signature::None,
        Some(8) => Signature::Known("several signatures".into()),
        _ => Signature::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_nothing() {
        assert!(matches!(choose(&[], false), Ok(SwapChoice::Auto)));
        assert!(matches!(choose(&["none".into()], false), Ok(SwapChoice::None)));
        assert!(choose(&["none".into(), "/".into()], false).unwrap_err().message.contains("no meaning beside"));
        assert!(choose(&["/var/tmp".into(), "/var/../var/tmp".into()], false)
            .unwrap_err()
            .message
            .contains("named twice"));
        assert!(
            matches!(choose(&["/var/tmp".into(), "/var".into()], false), Ok(SwapChoice::Paths(paths)) if paths.len() == 2)
        );
    }

    #[test]
    fn places_that_are_small_are_told() {
        let place = |wanted, bytes| SwapPlace { path: "/a".into(), wanted, bytes };
        let told = |places: &[SwapPlace], given| small(places, given, "swap").join("; ");
        const GIB: u64 = 1 << 30;
        assert_eq!(told(&[place(GIB, GIB)], true), "");
        assert_eq!(told(&[place(64 * GIB, 32 * GIB)], false), "", "the default is no wish");
        let cut = "swap in /a: 32 GiB of 64 GiB are used, as scheme swap uses at most 32 GiB in all";
        assert_eq!(told(&[place(64 * GIB, 32 * GIB)], true), cut);
        let two = told(&[place(32 * GIB, 32 * GIB), place(GIB, 0)], false);
        assert!(two.starts_with("swap in /a: 0 B of 1 GiB are used"), "{two}");
        assert!(told(&[place(1 << 20, 1 << 20)], false).contains("too little to take pages"));
    }

    #[test]
    fn refuses_what_does_not_exist_or_is_no_place() {
        let reason = |path: &str| choose(&[path.into()], false).unwrap_err().message;
        assert!(reason("/nonexistent").starts_with("--swap /nonexistent: there is no such directory"));
        assert!(reason("/dev/null").contains("neither a directory"));
        if Path::new("/dev/shm").is_dir() {
            assert!(reason("/dev/shm").contains("kept in RAM"), "{}", reason("/dev/shm"));
        }
    }

    #[test]
    fn a_file_that_another_run_uses_is_refused() {
        let path = std::path::PathBuf::from(format!("/var/tmp/memfit-swap-used-{}", std::process::id()));
        let file = File::create_new(&path).unwrap();
        files::lock(&file).unwrap();
        for overwrite in [false, true] {
            let failure = choose(std::slice::from_ref(&path), overwrite).unwrap_err();
            assert!(failure.message.contains("it is in use by another run of memfit"), "{failure}");
            assert_eq!(failure.code, 1);
        }
        assert_eq!(file.metadata().unwrap().len(), 0, "it got no mark");
        drop(file);
        assert!(choose(std::slice::from_ref(&path), false).is_ok());
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_with_data_is_not_overwritten() {
        let path = std::path::PathBuf::from(format!("/var/tmp/memfit-swap-test-{}", std::process::id()));
        let judge = |contents: &[u8], overwrite| {
            fs::write(&path, contents).unwrap();
            choose(std::slice::from_ref(&path), overwrite).map_err(|failure| failure.message)
        };
        let verdict = |contents: &[u8]| judge(contents, false);
        assert!(verdict(b"").is_ok());
        assert!(verdict(&[0; 70000]).is_ok());
        assert!(verdict(b"a letter").unwrap_err().contains("holds data"));
        let mut area = vec![7; 8192];
        area[4086..4096].copy_from_slice(b"SWAPSPACE2");
        assert!(verdict(&area).is_ok());
        let mut used = vec![0; 8192];
        used[4096..].fill(9);
        assert!(verdict(&used).unwrap_err().contains("holds data"), "behind the first page, too");
        assert!(judge(&used, true).is_ok(), "by an explicit word");
        let mut left = vec![0; 8192];
        left[..MARK.len()].copy_from_slice(MARK);
        left[4096..].fill(9);
        assert!(verdict(&left).is_ok(), "what a run has left");
        assert!(verdict(&[]).is_ok() && fs::read(&path).unwrap() == MARK);
        let mut late = vec![0; 8 << 20];
        late[(8 << 20) - 5000] = 1;
        assert!(verdict(&late).unwrap_err().contains("holds data"), "and at the end");
        // A member of an array (md, format 1.0) can have any other signature at its start.
        let sectors = 16u64 << 11;
        let superblock = (sectors - 16) & !7;
        let mut member = vec![0; (sectors * 512) as usize];
        let at = superblock as usize * 512;
        member[at..at + 4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
        member[at + 4] = 1;
        member[at + 144..at + 152].copy_from_slice(&superblock.to_le_bytes());
        member[4086..4096].copy_from_slice(b"SWAPSPACE2");
        if matches!(signature(&path), Signature::Unknown) {
            crate::skip::skip("a_file_with_data_is_not_overwritten", "there is no blkid");
        } else {
            assert!(verdict(&member).unwrap_err().contains("linux_raid_member"), "{:?}", verdict(&member));
        }
        fs::remove_file(&path).unwrap();
    }
}
