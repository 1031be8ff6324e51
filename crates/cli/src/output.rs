//! A result file that appears whole or not at all.

use crate::errors::{describe, Failure};
use memfit_os::files;
use memfit_os::process::{lasting, random_bytes, was_closed};
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Seek, Write};
use std::os::fd::RawFd;
use std::os::unix::fs::{fchown, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Symbolic links that a path may lead through, as in the kernel.
const LINKS_MAX: usize = 40;

/// Where a path leads.
enum Destination {
    /// An open file of this process, as `/dev/stdout` and `/dev/fd/3` name it.
    Descriptor(RawFd),
    /// An open file of another process, in `/proc`.
    OfAnother,
    /// What the last symbolic link names, whether it exists or not.
    Path(PathBuf),
}

impl Destination {
    fn of(path: &Path) -> io::Result<Self> {
        let own = Path::new("/proc").join(std::process::id().to_string());
        let mut path = path.to_owned();
        for _ in 0..LINKS_MAX {
            let Ok(named) = fs::read_link(&path) else { return Ok(Self::Path(path)) };
            let place = fs::canonicalize(directory(&path)).unwrap_or_default();
            if place.starts_with("/proc") && place.ends_with("fd") {
                let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
                return Ok(number.filter(|_| place.starts_with(&own)).map_or(Self::OfAnother, Self::Descriptor));
            }
            path = path.parent().unwrap_or(Path::new("")).join(named);
        }
        Err(io::Error::from_raw_os_error(libc::ELOOP))
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|directory| *directory != Path::new("")).unwrap_or(Path::new("."))
}

/// Whether a path leads to this file.
fn is_at(file: &Metadata, path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (file.dev(), file.ino()))
}

/// By what two paths of one regular file are known.
#[derive(PartialEq, Eq)]
enum Identity {
    /// Device and inode.
    Existing(u64, u64),
    /// Directory and name.
    New(PathBuf, OsString),
}

impl Identity {
    /// `None` for what is no regular file, and for what cannot exist.
    fn of(path: &Path) -> Option<Self> {
        match fs::metadata(path) {
            Ok(file) => file.is_file().then(|| Self::Existing(file.dev(), file.ino())),
            Err(_) => {
                let Destination::Path(target) = Destination::of(path).ok()? else { return None };
                Some(Self::New(fs::canonicalize(directory(&target)).ok()?, target.file_name()?.to_owned()))
            }
        }
    }
}

/// Refuses an output that would replace an input or another output. `outputs`: option and path;
/// `inputs`: what it is, and its path or a name that is no path. Devices, pipes and standard output
/// can take several texts.
///
/// # Errors
/// A wrong usage that names the options.
pub fn distinct<'a>(
    outputs: &[(&str, Option<&Path>)],
    inputs: impl IntoIterator<Item = (&'static str, &'a Path)>,
) -> Result<(), Failure> {
    // A text is added to what an open file has.
    let is_added =
        |path: &Path| matches!(Destination::of(path), Ok(Destination::Descriptor(_) | Destination::OfAnother));
    let standard = |path| if path == Path::new("-") { Path::new("/dev/stdout") } else { path };
    let mut known: Vec<(&str, &Path, Identity)> = Vec::new();
    for (option, path) in outputs.iter().filter_map(|&(option, path)| Some((option, standard(path?)))) {
        let Some(identity) = Identity::of(path) else { continue };
        let same = known.iter().find(|(_, _, other)| *other == identity);
        if let Some((other, at, _)) = same.filter(|(_, at, _)| !is_added(at) || !is_added(path)) {
            return Err(Failure::usage(format!(
                "{other} {} and {option} {}: this is one file; give each of them a name of its own",
                at.display(),
                path.display()
            )));
        }
        known.push((option, path, identity));
    }
    for (what, path) in inputs {
        // What does not exist is a name of something built in.
        let Some(identity @ Identity::Existing(..)) = Identity::of(path) else { continue };
        if let Some((option, at, _)) = known.iter().find(|(_, _, output)| *output == identity) {
            return Err(Failure::usage(format!("{option} {}: this is {what}; name another file", at.display())));
        }
    }
    Ok(())
}

/// A file that is written at the end of a run; the start checks that it can be written.
///
/// A regular file is written beside its final place and renamed. Until it is complete it has no
/// name, so that nothing is left if memfit is killed. Anything else that already exists (a
/// terminal, a pipe, `/dev/null`) is written directly, as it cannot be replaced. So is an open file
/// of memfit, such as its standard output, also if that is a regular file.
#[derive(Debug)]
pub struct OutputFile {
    target: PathBuf,
    /// The name that the complete file has until it is renamed.
    temporary: Option<PathBuf>,
    /// It has that name already: the file system has no files without one. Removed unless renamed.
    named: bool,
    file: File,
}

impl OutputFile {
    /// Opens it; `option` is named in messages.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn open(option: &str, path: &Path) -> Result<Self, Failure> {
        no_dash(option, path)?;
        Self::try_open(path).map_err(|error| refused(option, path, &error))
    }

    fn try_open(path: &Path) -> io::Result<Self> {
        let directly = |file| Self { target: path.to_owned(), temporary: None, named: false, file };
        let existing = fs::metadata(path);
        let target = match (Destination::of(path), &existing) {
            // A copy of the descriptor, because the launcher gives up its standard output.
            (Ok(Destination::Descriptor(number)), _) => return writable(number).map(directly),
            (_, Ok(there)) if there.is_dir() => return Err(io::Error::other("it is a directory")),
            (Ok(Destination::Path(target)), Ok(there)) if there.is_file() && is_at(there, &target) => target,
            // A device, a pipe, or an open file of another process.
            (_, Ok(_)) => return OpenOptions::new().append(true).open(path).map(directly),
            (Ok(Destination::Path(target)), Err(_)) => target,
            (Ok(Destination::OfAnother), Err(_)) => return Err(io::ErrorKind::NotFound.into()),
            (Err(error), Err(_)) => return Err(error),
        };
        let name = target.file_name().ok_or_else(|| io::Error::other("it has no file name"))?;
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{:08x}", u32::from_ne_bytes(random_bytes()?)));
        let temporary = target.with_file_name(hidden);
        let directory = directory(&temporary);
        // The first one shows that a file there can be named later, and so.
        let first = files::nameless(directory).and_then(|file| files::name(&file, &temporary));
        let nameless = first.and_then(|()| fs::remove_file(&temporary)).and_then(|()| files::nameless(directory));
        let (file, named) = match nameless {
            Ok(file) => (file, false),
            Err(_) => (OpenOptions::new().read(true).write(true).create_new(true).open(&temporary)?, true),
        };
        let output = Self { target, temporary: Some(temporary), named, file };
        if let Ok(existing) = existing {
            output.keep_access(&existing)?;
        }
        Ok(output)
    }

    /// Gives the file the owner, if that is allowed, and the permissions of the one that it
    /// replaces.
    fn keep_access(&self, existing: &Metadata) -> io::Result<()> {
        let (owner, group) = (existing.uid(), existing.gid());
        // Without the right to give it away, the group may still be one of the user's.
        let _ = fchown(&self.file, Some(owner), Some(group)).or_else(|_| fchown(&self.file, None, Some(group)));
        let now = self.file.metadata()?;
        // Not for another group.
        let mode = existing.mode() & if now.gid() == group { 0o777 } else { 0o707 };
        match now.mode() & 0o777 == mode {
            // Some file systems know one mode only.
            true => Ok(()),
            false => self.file.set_permissions(Permissions::from_mode(mode)),
        }
    }

    /// Writes the contents and renames the file to its final path.
    ///
    /// # Errors
    /// When that fails; no file is left then.
    pub fn finish(mut self, contents: &[u8]) -> Result<(), Failure> {
        match self.file.write_all(contents) {
            Ok(()) => self.place(),
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// The final path.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// For contents that are too large for memory: write them here in pieces.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Renames the file, with all that was written to it, to its final path. Where the one that is
    /// there cannot be replaced (a mount point, another user's in a sticky directory), it gets the
    /// contents.
    ///
    /// # Errors
    /// When that fails; the message says where the file is then.
    pub fn place(self) -> Result<(), Failure> {
        self.rename(true)
    }

    /// `whole`: nobody writes to it later.
    fn rename(mut self, whole: bool) -> Result<(), Failure> {
        let Some(temporary) = self.temporary.take() else { return Ok(()) };
        if !self.named {
            files::name(&self.file, &temporary).map_err(|error| self.failure(&error))?;
        }
        let Err(error) = fs::rename(&temporary, &self.target) else { return Ok(()) };
        let cannot = matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EPERM | libc::EACCES));
        if whole && cannot && self.copy_to_target().is_ok() {
            let _ = fs::remove_file(&temporary);
            return Ok(());
        }
        let why = self.failure(&error).message;
        Err(Failure::here(format!("{why}; the file is {}", temporary.display())))
    }

    fn copy_to_target(&mut self) -> io::Result<()> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let mut target = OpenOptions::new().write(true).custom_flags(flags).open(&self.target)?;
        if !target.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.file.rewind()?;
        let bytes = io::copy(&mut self.file, &mut target)?;
        target.set_len(bytes)
    }

    /// Why it could not be written.
    pub fn failure(&self, error: &io::Error) -> Failure {
        Failure::system(&format!("write {}", self.target.display()), error)
    }
}

/// A file that is written during the run and is useful even if the run ends early: it replaces an
/// existing file when the run has begun.
#[derive(Debug)]
pub struct RecordFile {
    file: Option<File>,
    /// The file that gets its name when the run begins; an unlinked one gets none.
    output: Option<OutputFile>,
}

impl RecordFile {
    /// Opens it; `option` is named in messages.
    ///
    /// # Errors
    /// When it cannot be written to.
    pub fn open(option: &str, path: &Path) -> Result<Self, Failure> {
        let output = OutputFile::open(option, path)?;
        let file = output.file.try_clone().map_err(|error| refused(option, path, &error))?;
        Ok(Self { file: Some(file), output: Some(output) })
    }

    /// An unlinked temporary file, and another handle of it. The kernel frees it when the last
    /// handle closes, however memfit ends.
    ///
    /// # Errors
    /// When no file can be made in the directory for temporary files.
    pub fn nameless(option: &str) -> Result<(Self, File), Failure> {
        let directory = std::env::temp_dir();
        let without_name =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE | libc::O_EXCL).open(&directory);
        let file = without_name.or_else(|_| {
            let path = directory.join(format!(".memfit-{:016x}", u64::from_ne_bytes(random_bytes()?)));
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
            fs::remove_file(path)?;
            Ok(file)
        });
        let both = file.and_then(|file: File| Ok((file.try_clone()?, file)));
        let (to_write, to_read) = both.map_err(|error: io::Error| {
            let (reason, directory) = (describe(&error), directory.display());
            let advice = "set TMPDIR to a directory that you may write to";
            Failure::here(format!("{option}: no temporary file can be made in {directory}: {reason}; {advice}"))
        })?;
        Ok((Self { file: Some(to_write), output: None }, to_read))
    }

    /// Another handle of a regular file. Its path may name the recording of another run when this
    /// one ends.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn handle(&self) -> io::Result<Option<File>> {
        let replaces = self.output.as_ref().filter(|output| output.temporary.is_some());
        replaces.map(|output| output.file.try_clone()).transpose()
    }

    /// Hands the file over to its writer.
    pub fn take(&mut self) -> Option<File> {
        self.file.take()
    }

    /// The run has begun: the file gets its name.
    ///
    /// # Errors
    /// When that fails.
    pub fn keep(self) -> Result<(), Failure> {
        self.output.map_or(Ok(()), |output| output.rename(false))
    }
}

/// A copy of a descriptor of this process.
///
/// # Errors
/// When it cannot be written to, or was closed when this process started.
pub fn writable(number: RawFd) -> io::Result<File> {
    if was_closed(number) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    let file = File::from(lasting(number).try_clone_to_owned()?);
    match files::is_writable(&file) {
        true => Ok(file),
        false => Err(io::Error::other("it is open for reading only")),
    }
}

/// Refuses `-`: an option that cannot write to standard output must not make a file of that name.
fn no_dash(option: &str, path: &Path) -> Result<(), Failure> {
    match path.as_os_str() == "-" {
        true => Err(Failure::usage(format!(
            "{option} -: it is not written to standard output; name a file, or ./- if it shall have that name"
        ))),
        false => Ok(()),
    }
}

fn refused(option: &str, path: &Path, error: &io::Error) -> Failure {
    let reason = describe(error);
    Failure::here(format!(
        "{option} {}: cannot be written: {reason}; give a file in a directory that exists and that you may write to",
        path.display()
    ))
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take().filter(|_| self.named) {
            let _ = fs::remove_file(temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, IntoRawFd};

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("memfit-output-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn names(directory: &Path) -> Vec<String> {
        fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn appears_at_the_end_and_leaves_nothing() {
        let directory = directory("end");
        let path = directory.join("stats.json");
        let output = OutputFile::open("--stats", &path).unwrap();
        assert!(!path.exists());
        if files::nameless(&directory).is_ok() {
            assert_eq!(names(&directory), [""; 0], "would be left by a run that is killed");
        }
        output.finish(b"{}\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"{}\n");
        drop(OutputFile::open("--stats", &path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"{}\n", "an unfinished run keeps the old file");
        assert_eq!(names(&directory), ["stats.json"]);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn follows_links_and_writes_devices() {
        let directory = directory("links");
        let (file, link) = (directory.join("file"), directory.join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        OutputFile::open("--stats", &link).unwrap().finish(b"new").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert!(link.is_symlink());
        fs::remove_dir_all(directory).unwrap();
        OutputFile::open("--stats", Path::new("/dev/null")).unwrap().finish(b"x").unwrap();
        assert!(!Path::new("/dev/null").is_file());
    }

    #[test]
    fn an_open_file_of_another_process_is_written_where_it_is() {
        let directory = directory("another");
        let path = directory.join("log");
        fs::write(&path, "old\n").unwrap();
        let log = OpenOptions::new().append(true).open(&path).unwrap();
        let mut other = std::process::Command::new("sleep").arg("60").stdout(log).spawn().unwrap();
        let place = PathBuf::from(format!("/proc/{}/fd/1", other.id()));
        let written = OutputFile::open("--stats", &place).and_then(|output| output.finish(b"new\n"));
        let two = distinct(&[("--a", Some(&place)), ("--b", Some(&place))], []);
        other.kill().unwrap();
        other.wait().unwrap();
        written.unwrap();
        two.unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old\nnew\n");
        assert_eq!(names(&directory), ["log"]);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_cannot_be_replaced_gets_the_contents() {
        let directory = directory("copy");
        let path = directory.join("file");
        fs::write(&path, "an old and longer text").unwrap();
        let mut output = OutputFile::open("--stats", &path).unwrap();
        output.file().write_all(b"new").unwrap();
        output.copy_to_target().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        drop(output);
        std::os::unix::fs::symlink("elsewhere", directory.join("link")).unwrap();
        let mut output = OutputFile::open("--stats", &directory.join("file")).unwrap();
        output.target = directory.join("link");
        assert!(output.copy_to_target().is_err(), "somebody has put a link there");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_file_is_replaced_by_one_with_its_permissions() {
        let directory = directory("mode");
        let path = directory.join("file");
        fs::write(&path, "old").unwrap();
        for mode in [0o600, 0o640, 0o444] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            OutputFile::open("--stats", &path).unwrap().finish(b"new").unwrap();
            let now = fs::metadata(&path).unwrap();
            assert_eq!((now.mode() & 0o777, now.len()), (mode, 3));
        }
        let _ = std::os::unix::fs::chown(&path, Some(65534), Some(65534));
        let owner = fs::metadata(&path).unwrap().uid();
        OutputFile::open("--stats", &path).unwrap().finish(b"new").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().uid(), owner);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_link_to_a_file_that_is_not_there_stays_one() {
        let directory = directory("dangling");
        fs::create_dir(directory.join("below")).unwrap();
        std::os::unix::fs::symlink("below/link", directory.join("link")).unwrap();
        std::os::unix::fs::symlink("../file", directory.join("below/link")).unwrap();
        OutputFile::open("--stats", &directory.join("link")).unwrap().finish(b"new").unwrap();
        assert!(directory.join("link").is_symlink() && directory.join("below/link").is_symlink());
        assert_eq!(fs::read(directory.join("file")).unwrap(), b"new");
        std::os::unix::fs::symlink("loop", directory.join("loop")).unwrap();
        let error = OutputFile::open("--stats", &directory.join("loop")).unwrap_err();
        assert!(error.message.contains("Too many levels of symbolic links"), "{error}");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn an_open_file_is_written_where_it_is() {
        let directory = directory("open");
        let path = directory.join("log");
        fs::write(&path, "old\n").unwrap();
        let log = OpenOptions::new().append(true).open(&path).unwrap();
        for name in ["/dev/fd", "/proc/self/fd"] {
            let name = PathBuf::from(format!("{name}/{}", log.as_raw_fd()));
            let link = directory.join("link");
            std::os::unix::fs::symlink(&name, &link).unwrap();
            OutputFile::open("--stats", &name).unwrap().finish(b"new\n").unwrap();
            let mut record = RecordFile::open("--record", &link).unwrap();
            record.take().unwrap().write_all(b"recorded\n").unwrap();
            record.keep().unwrap();
            fs::remove_file(link).unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), "old\nnew\nrecorded\nnew\nrecorded\n".as_bytes());
        let read_only = File::open(&path).unwrap();
        let name = PathBuf::from(format!("/dev/fd/{}", read_only.as_raw_fd()));
        let error = OutputFile::open("--stats", &name).unwrap_err();
        assert!(error.message.contains("it is open for reading only"), "{error}");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_recording_gets_its_name_when_the_run_begins() {
        let directory = directory("record");
        let path = directory.join("run.memfit");
        fs::write(&path, "earlier").unwrap();
        drop(RecordFile::open("--record", &path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"earlier", "of a run that did not begin");
        let mut record = RecordFile::open("--record", &path).unwrap();
        let mut file = record.take().unwrap();
        file.write_all(b"first ").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"earlier");
        let again = format!("/proc/self/fd/{}", record.handle().unwrap().unwrap().into_raw_fd());
        record.keep().unwrap();
        file.write_all(b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first second");
        assert_eq!(names(&directory), ["run.memfit"]);
        let mut other = RecordFile::open("--record", &path).unwrap();
        other.take().unwrap().write_all(b"other").unwrap();
        other.keep().unwrap();
        file.write_all(b" third").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"other", "two runs do not write into one file");
        assert_eq!(fs::read(again).unwrap(), b"first second third");
        let device = RecordFile::open("--record", Path::new("/dev/null")).unwrap();
        assert!(device.handle().unwrap().is_none());
        device.keep().unwrap();
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn one_file_is_not_two_outputs_and_no_input() {
        let directory = directory("distinct");
        let (file, new, link) = (directory.join("file"), directory.join("new"), directory.join("below/../link"));
        fs::create_dir(directory.join("below")).unwrap();
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink("new", directory.join("link")).unwrap();
        let two = |one: &Path, other: &Path| distinct(&[("--a", Some(one)), ("--b", None), ("--c", Some(other))], []);
        for (one, other) in [(&file, &file), (&new, &new), (&new, &link), (&link, &new)] {
            let failure = two(one, other).unwrap_err();
            assert_eq!(failure.code, 2);
            assert!(failure.message.contains("--a ") && failure.message.contains("--c "), "{failure}");
            assert!(failure.message.ends_with("this is one file; give each of them a name of its own"), "{failure}");
        }
        two(&file, &new).unwrap();
        for standard in ["-", "/dev/null"].map(Path::new) {
            two(standard, standard).unwrap();
            distinct(&[("--a", Some(standard))], [("a workload", standard)]).unwrap();
        }
        // A name that no file has is that of something built in.
        distinct(&[("--a", Some(&new))], [("a workload", &*new)]).unwrap();
        let log = OpenOptions::new().append(true).open(&file).unwrap();
        let open = PathBuf::from(format!("/dev/fd/{}", log.as_raw_fd()));
        two(&open, &open).unwrap();
        assert!(two(&open, &file).is_err(), "the second one would replace the first");
        let failure = distinct(&[("--a", Some(&file))], [("a workload", &*new), ("a scheme", &*file)]).unwrap_err();
        assert!(failure.message.ends_with("/file: this is a scheme; name another file"), "{failure}");
        distinct(&[("--a", Some(&new))], [("a workload", &*file), ("a scheme", Path::new("memfit"))]).unwrap();
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn refuses_before_the_start() {
        for path in ["/nonexistent/stats", "/", "/proc/stats", ""] {
            let error = OutputFile::open("--stats", Path::new(path)).unwrap_err();
            assert_eq!(error.code, 1);
            assert!(error.message.starts_with(&format!("--stats {path}: cannot be written: ")), "{error}");
        }
        let directory = directory("long");
        let path = directory.join("x".repeat(250));
        let error = OutputFile::open("--stats", &path).unwrap_err();
        assert!(error.message.contains("cannot be written: "), "{error}");
        fs::remove_dir(directory).unwrap();
        let dash = Path::new("-");
        for error in [OutputFile::open("--parquet", dash).unwrap_err(), RecordFile::open("--record", dash).unwrap_err()]
        {
            assert_eq!(error.code, 2);
            assert!(error.message.contains("it is not written to standard output"), "{error}");
        }
        assert!(!dash.exists());
    }
}
