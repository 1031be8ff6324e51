//! Failures that end memfit, and their messages.
//!
//! A message says what was wrong, where, and what to do next. Exit status: 2 if the command line is
//! wrong on any machine, 1 if the operation failed here and now, 126 and 127 as in a shell if the
//! command cannot run.

pub use memfit_os::describe;
use memfit_os::exec::ExecError;
use memfit_os::process::write_stderr;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;

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
        Self::here(format!("cannot {what}: {}", describe(error)))
    }

    /// The command could not be executed (126 or 127).
    pub fn command(program: &OsStr, error: ExecError) -> Self {
        let name = program.to_string_lossy();
        if error.is_not_found() {
            let next = if name.contains('/') {
                "there is no such file, or its interpreter is missing; check the path"
            } else {
                "no directory of PATH has it; check the name, or give a path"
            };
            return Self { code: 127, message: format!("command not found: {name}: {next}") };
        }
        let reason = describe(&io::Error::from_raw_os_error(error.errno));
        let next = match error.errno {
            libc::EACCES => return Self { code: 126, message: denied(&name, fs::metadata(program)) },
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
        let failure = |name: &str, errno| Failure::command(OsStr::new(name), ExecError { errno });
        let not_found = failure("sl", libc::ENOENT);
        assert_eq!(not_found.code, 127);
        assert!(not_found.to_string().starts_with("memfit: command not found: sl: no directory of PATH"));
        assert!(failure("./sl", libc::ENOENT).message.contains("interpreter"));
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
