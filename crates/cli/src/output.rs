//! A result file that appears whole or not at all.

use crate::errors::{describe, Failure};
use memfit_os::files;
use memfit_os::process::random_bytes;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that is written at the end of a run; the start checks that it can be written.
///
/// A regular file is written beside its final place and renamed. Until it is complete it has no
/// name, so that nothing is left if memfit is killed. Anything else that already exists (a
/// terminal, a pipe, `/dev/null`) is written directly, as it cannot be replaced.
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
        let existing = fs::metadata(path);
        if existing.as_ref().is_ok_and(fs::Metadata::is_dir) {
            return Err(io::Error::other("it is a directory"));
        }
        if existing.as_ref().is_ok_and(|metadata| !metadata.is_file()) {
            let file = OpenOptions::new().write(true).open(path)?;
            return Ok(Self { target: path.to_owned(), temporary: None, named: false, file });
        }
        // A symbolic link stays one: the file that it names is replaced.
        let target = if existing.is_ok() { path.canonicalize()? } else { path.to_owned() };
        let name = target.file_name().ok_or_else(|| io::Error::other("it has no file name"))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{:08x}", u32::from_ne_bytes(random_bytes()?)));
        let temporary = target.with_file_name(hidden);
        let directory = temporary.parent().filter(|directory| *directory != Path::new("")).unwrap_or(Path::new("."));
        // The first one shows that a file there can be named later, and so.
        let first = files::nameless(directory).and_then(|file| files::name(&file, &temporary));
        let nameless = first.and_then(|()| fs::remove_file(&temporary)).and_then(|()| files::nameless(directory));
        let (file, named) = match nameless {
            Ok(file) => (file, false),
            Err(_) => (OpenOptions::new().write(true).create_new(true).open(&temporary)?, true),
        };
        Ok(Self { target, temporary: Some(temporary), named, file })
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

    /// Renames the file, with all that was written to it, to its final path.
    ///
    /// # Errors
    /// When that fails; no file is left then.
    pub fn place(mut self) -> Result<(), Failure> {
        let Some(temporary) = self.temporary.take() else { return Ok(()) };
        if !self.named {
            files::name(&self.file, &temporary).map_err(|error| self.failure(&error))?;
        }
        fs::rename(&temporary, &self.target).map_err(|error| {
            let _ = fs::remove_file(&temporary);
            self.failure(&error)
        })
    }

    /// Why it could not be written.
    pub fn failure(&self, error: &io::Error) -> Failure {
        Failure::system(&format!("write {}", self.target.display()), error)
    }
}

/// A file that is written during the run and is useful even if the run ends early. Opening it
/// truncates an existing file.
#[derive(Debug)]
pub struct RecordFile {
    file: Option<File>,
    /// Path of the file if we made it: removed if the run never begins.
    new: Option<PathBuf>,
}

impl RecordFile {
    /// Opens it; `option` is named in messages.
    ///
    /// # Errors
    /// When it cannot be written to.
    pub fn open(option: &str, path: &Path) -> Result<Self, Failure> {
        no_dash(option, path)?;
        let new = OpenOptions::new().write(true).create_new(true).open(path);
        let known = |_| OpenOptions::new().write(true).create(true).truncate(true).open(path);
        let is_new = new.is_ok();
        let file = new.or_else(known).map_err(|error| refused(option, path, &error))?;
        Ok(Self { file: Some(file), new: is_new.then(|| path.to_owned()) })
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
        Ok((Self { file: Some(to_write), new: None }, to_read))
    }

    /// Hands the file over to its writer.
    pub fn take(&mut self) -> Option<File> {
        self.file.take()
    }

    /// The run has begun: the file stays.
    pub fn keep(mut self) {
        self.new = None;
    }
}

impl Drop for RecordFile {
    fn drop(&mut self) {
        if let Some(new) = self.new.take() {
            let _ = fs::remove_file(new);
        }
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
