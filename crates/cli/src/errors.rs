//! Failures that end memfit, and their messages.
//!
//! A message says what was wrong, where, and what to do next. Exit status: 2 if the command line is
//! wrong on any machine, 1 if the operation failed here and now, 126 and 127 as in a shell if the
//! command cannot run.

pub use memfit_os::describe;
use memfit_os::exec::ExecError;
use memfit_os::process::write_stderr;
use memfit_os::proctree::no_descriptor;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// What to do when no descriptor is left.
pub const RAISE_LIMIT: &str = "raise the limit of open descriptors: ulimit -n";
/// What to do when the kernel starts no further process or thread.
pub const RAISE_TASKS: &str = "raise ulimit -u or pids.max";

/// Prints a line to standard error. If nobody can read that, memfit goes on.
pub fn tell(text: &str) {
    write_stderr(&format!("memfit: {}\n", printable(text)));
}

/// A text of several lines that cannot drive the terminal: a part of it can be another's.
fn printable(text: &str) -> String {
    text.replace(|c| c != '\n' && memfit_wire::is_unprintable(c), " ")
}

/// A reason to end.
#[derive(Debug)]
pub struct Failure {
    /// Exit status.
    pub code: i32,
    /// The text without prefix; more lines are allowed.
    pub message: String,
}

impl Failure {
    /// The command line is wrong (2).
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: 2, message: message.into() }
    }

    /// It cannot be done here (1).
    pub fn here(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }

    /// A system call of ours failed (1): `what` was tried.
    pub fn system(what: &str, error: &io::Error) -> Self {
        let next = if no_descriptor(error) { format!("; {RAISE_LIMIT}") } else { String::new() };
        Self::here(format!("cannot {what}: {}{next}", describe(error)))
    }

    /// As [`Failure::system`], of a call that starts a process.
    pub fn start(what: &str, error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Self::here(format!("cannot {what}: {}; {RAISE_TASKS}", describe(error))),
            _ => Self::system(what, error),
        }
    }

    /// The command could not be executed (126 or 127).
    pub fn command(program: &OsStr, error: ExecError) -> Self {
        let name = program.to_string_lossy();
        let file = error.file.as_deref().unwrap_or(Path::new(program));
        let shown = file.to_string_lossy();
        if error.is_not_found() {
            if error.file.is_some() {
                let message = format!("cannot execute {shown}: the interpreter that it names is missing; install that");
                return Self { code: 127, message };
            }
            let next = if name.contains('/') {
                "there is no such file; check the path"
            } else {
                "no directory of PATH has it; check the name, or give a path"
            };
            return Self { code: 127, message: format!("command not found: {name}: {next}") };
        }
        let reason = describe(&io::Error::from_raw_os_error(error.errno));
        let next = match error.errno {
            libc::EACCES => return Self { code: 126, message: denied(&shown, fs::metadata(file)) },
            libc::ENOEXEC => "; it is no program for this machine".into(),
            _ => String::new(),
        };
        Self { code: 126, message: format!("cannot execute {name}: {reason}{next}") }
    }
}

/// Why a file may not be executed. `there`: what the file is.
fn denied(name: &str, there: io::Result<fs::Metadata>) -> String {
    let why = match there {
        Ok(file) if file.is_dir() => "it is a directory".to_owned(),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            "Permission denied; you may not search a directory on the way to it: namei -l shows which".to_owned()
        }
        _ => format!("Permission denied; if it is a program, make it executable: chmod +x {name}"),
    };
    format!("cannot execute {name}: {why}")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memfit: {}", printable(&self.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_do_not_drive_the_terminal() {
        let failure = Failure::here("a\u{1b}[2J\u{202e}b\r\n  fix: none");
        assert_eq!(failure.to_string(), "memfit: a [2J b \n  fix: none");
    }

    #[test]
    fn command_failures_have_the_codes_of_a_shell() {
        let of = |name: &str, errno, file: Option<&str>| {
            Failure::command(OsStr::new(name), ExecError { errno, file: file.map(Into::into) })
        };
        let failure = |name: &str, errno| of(name, errno, None);
        let not_found = failure("sl", libc::ENOENT);
        assert_eq!(not_found.code, 127);
        assert!(not_found.to_string().starts_with("memfit: command not found: sl: no directory of PATH"));
        assert!(failure("./sl", libc::ENOENT).message.ends_with("there is no such file; check the path"));
        let lacks = of("sl", libc::ENOENT, Some("/opt/sl"));
        assert_eq!(lacks.code, 127);
        assert!(lacks.message.starts_with("cannot execute /opt/sl: the interpreter"), "{lacks}");
        assert!(of("sl", libc::EACCES, Some("/opt/sl")).message.ends_with("chmod +x /opt/sl"));
        let denied = failure("./data", libc::EACCES);
        assert_eq!(denied.code, 126);
        assert_eq!(
            denied.message,
            "cannot execute ./data: Permission denied; if it is a program, make it executable: chmod +x ./data"
        );
        assert_eq!(failure("/etc", libc::EACCES).message, "cannot execute /etc: it is a directory");
        let unreachable = super::denied("/root/x", Err(io::Error::from_raw_os_error(libc::EACCES)));
        assert!(unreachable.contains("may not search a directory") && !unreachable.contains("chmod"), "{unreachable}");
        assert_eq!(failure("x", libc::E2BIG).code, 126);
    }
}
