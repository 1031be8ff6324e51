//! Executes a command as a shell would: search in PATH, script fallback, and errors that reach the
//! caller.
//!
//! Everything that allocates memory is done before the fork.

use crate::process::{exit_now, InheritedState, Pid};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::ptr;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Why a command could not be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecError {
    /// The `errno` of the most informative attempt.
    pub errno: i32,
    /// The file of that attempt, if it is there.
    pub file: Option<PathBuf>,
}

impl ExecError {
    /// Whether there is no such command (as opposed to one that cannot run).
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self.errno, libc::ENOENT | libc::ENOTDIR)
    }
}

/// An attempt that failed: its `errno`, and the number of the candidate if that file is there.
#[derive(Clone, Copy)]
struct Failed {
    errno: i32,
    candidate: Option<usize>,
}

impl Failed {
    const BYTES: usize = 8;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let candidate = self.candidate.map_or(-1, |candidate| candidate as i32);
        (u64::from(self.errno as u32) << 32 | u64::from(candidate as u32)).to_ne_bytes()
    }

    fn from_bytes(bytes: [u8; Self::BYTES]) -> Failed {
        let both = u64::from_ne_bytes(bytes);
        Failed { errno: (both >> 32) as i32, candidate: usize::try_from(both as i32).ok() }
    }
}

/// A command, prepared so that a forked child can execute it without allocating memory.
pub struct Executable {
    /// Files to try, in the order of PATH.
    candidates: Vec<CString>,
    /// They are in directories of PATH.
    searched: bool,
    argv: Vec<CString>,
    envp: Vec<CString>,
}

/// NULL-terminated array of pointers into strings.
struct Pointers(Vec<*const libc::c_char>);

impl Pointers {
    fn new<'a>(strings: impl IntoIterator<Item = &'a CStr>) -> Self {
        let pointers = strings.into_iter().map(CStr::as_ptr).chain([ptr::null()]);
        Self(pointers.collect())
    }
}

impl Executable {
    /// Whether the file that will be executed is a 32-bit ELF program.
    #[must_use]
    pub fn is_32_bit(&self) -> bool {
        let mut header = [0; 5];
        let Some(file) = self.candidates.iter().find(|file| is_executable(file)) else { return false };
        // Without waiting: another file, such as a named pipe, may have taken its place.
        let path = OsStr::from_bytes(file.to_bytes());
        let file = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        file.is_ok_and(|mut file| io::Read::read_exact(&mut file, &mut header).is_ok()) && header == *b"\x7fELF\x01"
    }

    /// `command` is the program and its arguments; the program is looked up in `path` if it has no
    /// slash.
    ///
    /// # Errors
    /// When a string holds a NUL byte or the command is empty.
    pub fn new(
        command: &[OsString],
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        path: Option<&OsStr>,
    ) -> io::Result<Self> {
        let program = command.first().ok_or_else(|| io::Error::other("the command is empty"))?;
        let argv = command.iter().map(|word| Ok(CString::new(word.as_bytes())?)).collect::<io::Result<_>>()?;
        let variable = |(mut name, value): (OsString, OsString)| {
            name.push("=");
            name.push(value);
            Ok(CString::new(name.into_vec())?)
        };
        let envp = environment.into_iter().map(variable).collect::<io::Result<_>>()?;
        let searched = !program.as_bytes().contains(&b'/');
        Ok(Self { candidates: candidates(program, path)?, searched, argv, envp })
    }

    fn error(&self, failed: Failed) -> ExecError {
        let file = failed.candidate.and_then(|candidate| self.candidates.get(candidate));
        ExecError { errno: failed.errno, file: file.map(|file| OsStr::from_bytes(file.to_bytes()).into()) }
    }

    /// Replaces this process. Returns only on failure.
    #[must_use]
    pub fn execute(&self, inherited: &InheritedState) -> ExecError {
        let prepared = self.prepare();
        inherited.restore();
        self.error(prepared.execute())
    }

    /// Starts the command in a child, in the same process group and with the inherited state, as if
    /// this process had become the command. The kernel kills the command when this thread ends
    /// first: a command that has not said hello yet is known to no other process.
    ///
    /// `forked` is called with its pid while it has this process's signal mask and waits.
    ///
    /// The outer error is memfit's (no process, no pipe), the inner one that of the command.
    ///
    /// # Errors
    /// As `fork` and `pipe2` give them.
    pub fn spawn(&self, inherited: &InheritedState, forked: impl FnOnce(Pid)) -> io::Result<Result<Pid, ExecError>> {
        let prepared = self.prepare();
        let (reader, writer) = pipe()?;
        let (waits, resume) = pipe()?;
        let mut byte = 0u8;
        // SAFETY: no arguments; it cannot fail.
        let parent = unsafe { libc::getpid() };
        // SAFETY: the child only makes async-signal-safe calls and allocates nothing.
        let pid = check(unsafe { libc::fork() })?;
        if pid == 0 {
            // SAFETY: plain numbers.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::getppid() != parent {
                    exit_now(127);
                }
            }
            // SAFETY: the buffer is valid for one byte.
            unsafe { libc::read(waits.as_raw_fd(), (&raw mut byte).cast(), 1) };
            inherited.restore();
            let error = prepared.execute().to_bytes();
            // SAFETY: the buffer is valid. A write of eight bytes into an empty pipe is never
            // partial.
            unsafe { libc::write(writer.as_raw_fd(), error.as_ptr().cast(), error.len()) };
            exit_now(127);
        }
        drop(writer);
        forked(pid);
        // SAFETY: the buffer is valid for one byte. `waits` is open here too, so this cannot fail.
        unsafe { libc::write(resume.as_raw_fd(), (&raw const byte).cast(), 1) };
        let mut error = [0; Failed::BYTES];
        let count = io::Read::read(&mut fs::File::from(reader), &mut error)?;
        if count == error.len() {
            // SAFETY: reaps the child, which is about to end; a null status is allowed.
            unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
            return Ok(Err(self.error(Failed::from_bytes(error))));
        }
        Ok(Ok(pid))
    }

    fn prepare(&self) -> Prepared<'_> {
        let shell = c"/bin/sh";
        let arguments = self.argv.iter().skip(1).map(CString::as_c_str);
        let scripts = self
            .candidates
            .iter()
            .map(|file| Pointers::new([shell, file.as_c_str()].into_iter().chain(arguments.clone())))
            .collect();
        Prepared {
            candidates: &self.candidates,
            searched: self.searched,
            scripts,
            argv: Pointers::new(self.argv.iter().map(CString::as_c_str)),
            envp: Pointers::new(self.envp.iter().map(CString::as_c_str)),
        }
    }
}

/// A pipe: its end to read and its end to write.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array is valid for two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: new descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Whether this user may execute a file.
fn is_executable(file: &CStr) -> bool {
    let is_file = fs::metadata(OsStr::from_bytes(file.to_bytes())).is_ok_and(|found| found.is_file());
    // SAFETY: a NUL-terminated path.
    is_file && unsafe { libc::faccessat(libc::AT_FDCWD, file.as_ptr(), libc::X_OK, libc::AT_EACCESS) } == 0
}

fn candidates(program: &OsStr, path: Option<&OsStr>) -> io::Result<Vec<CString>> {
    let bytes = program.as_bytes();
    if bytes.contains(&b'/') {
        return Ok(vec![CString::new(bytes)?]);
    }
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let path = path.map_or(&b"/bin:/usr/bin"[..], OsStrExt::as_bytes);
    let file = |directory: &[u8]| {
        // An empty entry of PATH is the current directory.
        let directory = if directory.is_empty() { b"." } else { directory };
        Ok(CString::new([directory, b"/", bytes].concat())?)
    };
    path.split(|byte| *byte == b':').map(file).collect()
}

/// Whether the next file of PATH is tried after this error, as `execvp` does: also if a file server
/// does not answer.
fn goes_on(errno: i32) -> bool {
    matches!(errno, libc::ENOENT | libc::ENOTDIR | libc::EACCES | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT)
}

/// How much a failed attempt says about why the command does not run. A directory of PATH that may
/// not be searched says nothing.
fn weight(errno: i32, is_there: bool) -> u8 {
    match (errno, is_there) {
        (libc::EACCES, true) => 3,
        (libc::EACCES | libc::ENOENT | libc::ENOTDIR, false) => 0,
        // Its interpreter is missing.
        (libc::ENOENT | libc::ENOTDIR, true) => 1,
        _ => 2,
    }
}

fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Async-signal-safe.
fn is_there(file: &CStr) -> bool {
    // SAFETY: all zeros is a valid value of this struct of numbers.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a NUL-terminated path and a struct that is valid for writing.
    unsafe { libc::stat(file.as_ptr(), &mut found) == 0 }
}

/// Whether a shell may run this file, for which the kernel knows no format: a program for another
/// machine is no script. bash decides like this. Async-signal-safe.
fn is_script(file: &CStr) -> bool {
    let mut head = [0; 128];
    // SAFETY: a NUL-terminated path; the buffer is valid for its length; the descriptor is closed
    // once.
    let count = unsafe {
        let fd = libc::open(file.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK);
        if fd == -1 {
            // A shell that may read no script says so.
            return *libc::__errno_location() == libc::EACCES;
        }
        let count = libc::read(fd, head.as_mut_ptr().cast(), head.len());
        libc::close(fd);
        count
    };
    looks_like_script(&head[..count.max(0) as usize])
}

fn looks_like_script(head: &[u8]) -> bool {
    let mut first_line = head.iter().take_while(|byte| **byte != b'\n');
    !head.starts_with(b"\x7fELF") && first_line.all(|byte| *byte != 0)
}

struct Prepared<'a> {
    candidates: &'a [CString],
    searched: bool,
    /// For each candidate, the arguments of a shell that runs it as a script.
    scripts: Vec<Pointers>,
    argv: Pointers,
    envp: Pointers,
}

impl Prepared<'_> {
    /// Tries the candidates like `execvp`. Async-signal-safe.
    fn execute(&self) -> Failed {
        let (mut worst, mut heaviest) = (Failed { errno: libc::ENOENT, candidate: None }, 0);
        for (number, (file, script)) in self.candidates.iter().zip(&self.scripts).enumerate() {
            let errno = self.attempt(file, script);
            let is_there = is_there(file);
            let failed = Failed { errno, candidate: is_there.then_some(number) };
            if !goes_on(errno) {
                return failed;
            }
            let weight = weight(errno, is_there || !self.searched);
            if weight > heaviest {
                (worst, heaviest) = (failed, weight);
            }
        }
        worst
    }

    /// Tries one; gives its `errno`.
    fn attempt(&self, file: &CStr, script: &Pointers) -> i32 {
        // SAFETY: all arrays end with NULL and point to strings owned by the `Executable` behind
        // `self`.
        unsafe { libc::execve(file.as_ptr(), self.argv.0.as_ptr(), self.envp.0.as_ptr()) };
        let errno = last_errno();
        if errno != libc::ENOEXEC || !is_script(file) {
            return errno;
        }
        // A script without `#!`. SAFETY: as above; the first word is a constant.
        unsafe { libc::execve(c"/bin/sh".as_ptr(), script.0.as_ptr(), self.envp.0.as_ptr()) };
        last_errno()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_up_like_execvp() {
        let look = |program: &str, path: Option<&str>| {
            let found = candidates(OsStr::new(program), path.map(OsStr::new)).unwrap();
            found.into_iter().map(|file| file.into_string().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(look("ls", Some("/a::/b/")), ["/a/ls", "./ls", "/b//ls"]);
        assert_eq!(look("./ls", Some("/a")), ["./ls"]);
        assert_eq!(look("ls", None), ["/bin/ls", "/usr/bin/ls"]);
        assert!(look("", Some("/a")).is_empty());
    }

    #[test]
    fn refuses_nul_bytes_and_nothing() {
        assert!(Executable::new(&[], [], None).is_err());
        assert!(Executable::new(&["a\0b".into()], [], None).is_err());
        assert!(Executable::new(&["a".into()], [("x".into(), "\0".into())], None).is_err());
    }

    #[test]
    fn the_first_executable_file_is_judged_and_a_named_pipe_holds_nobody_up() {
        use std::os::unix::fs::PermissionsExt;
        let place = std::env::temp_dir().join(format!("memfit-exec-{}", std::process::id()));
        let directory = |name: &str| {
            let directory = place.join(name);
            fs::create_dir_all(&directory).unwrap();
            directory
        };
        let write = |name: &str, class: u8, mode: u32| {
            let file = directory(name).join("command");
            fs::write(&file, [b"\x7fELF", &[class][..]].concat()).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        };
        write("data", 1, 0o644);
        write("narrow", 1, 0o755);
        write("wide", 2, 0o755);
        let pipe = CString::new(directory("pipe").join("command").into_os_string().into_vec()).unwrap();
        // SAFETY: a NUL-terminated path.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o755) }, 0);
        let is_32_bit = |names: &[&str]| {
            let path = std::env::join_paths(names.iter().map(|name| place.join(name))).unwrap();
            Executable::new(&["command".into()], [], Some(&path)).unwrap().is_32_bit()
        };
        let found =
            [&["pipe"][..], &["pipe", "narrow"], &["data", "wide"], &["narrow", "wide"], &["none"]].map(is_32_bit);
        fs::remove_dir_all(&place).unwrap();
        assert_eq!(found, [false, true, false, true, false]);
    }

    #[test]
    fn a_file_server_that_does_not_answer_ends_no_search() {
        for errno in [libc::ENOENT, libc::ENOTDIR, libc::EACCES, libc::ESTALE, libc::ENODEV, libc::ETIMEDOUT] {
            assert!(goes_on(errno), "{errno}");
        }
        assert!(!goes_on(libc::E2BIG) && !goes_on(libc::ETXTBSY));
    }

    #[test]
    fn exec_failures_are_told_apart() {
        let signals = InheritedState::note().unwrap();
        let run = |program: &str| Executable::new(&[program.into()], [], Some(OsStr::new("/nonexistent"))).unwrap();
        let error = run("memfit-no-such-command").spawn(&signals, |_| {}).unwrap().unwrap_err();
        assert!(error.is_not_found());
        let error = run("/proc/self/status").spawn(&signals, |_| {}).unwrap().unwrap_err();
        assert_eq!(error.errno, libc::EACCES);
        assert!(!error.is_not_found());
    }

    #[test]
    fn a_program_for_another_machine_is_no_script() {
        for script in [&b""[..], b"echo x\n", b"echo \xff\n\0\0"] {
            assert!(looks_like_script(script), "{script:?}");
        }
        assert!(!looks_like_script(b"\x7fELF\n") && !looks_like_script(b"MZ\x90\0\x03\n"));
    }

    #[test]
    fn the_attempt_that_says_most_is_told() {
        assert!(weight(libc::EACCES, true) > weight(libc::ETIMEDOUT, false));
        assert!(weight(libc::ETIMEDOUT, false) > weight(libc::ENOENT, true));
        assert!(weight(libc::ENOENT, true) > 0, "an interpreter is missing");
        assert_eq!([libc::EACCES, libc::ENOENT, libc::ENOTDIR].map(|errno| weight(errno, false)), [0; 3]);
        for candidate in [None, Some(0), Some(7)] {
            let back = Failed::from_bytes(Failed { errno: 13, candidate }.to_bytes());
            assert_eq!((back.errno, back.candidate), (13, candidate));
        }
    }
}
