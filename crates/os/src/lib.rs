//! The system call layer of memfit: system calls with their errnos translated.

pub mod capability;
pub mod event;
pub mod exec;
pub mod files;
pub mod image;
pub mod inject;
pub mod lease;
pub mod limits;
pub mod maps;
pub mod memory;
pub mod messages;
pub mod probe;
pub mod process;
pub mod procfs;
pub mod proctree;
pub mod program;
pub mod sched;
pub mod seqpacket;
pub mod signal_probe;
pub mod standby;
pub mod transfer;
pub mod uffd;
pub mod unevictable;

#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skip;

use std::io;

/// The system's text for an error, without Rust's "(os error 2)".
#[must_use]
pub fn describe(error: &io::Error) -> String {
    without_numbers(error.to_string())
}

/// A text without the numbers of the errors in it.
#[must_use]
pub fn without_numbers(mut text: String) -> String {
    while let Some(start) = text.find(" (os error ") {
        let Some(length) = text[start..].find(')') else { break };
        text.replace_range(start..=start + length, "");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_numbers_in_descriptions() {
        assert_eq!(describe(&io::Error::from_raw_os_error(libc::ENOENT)), "No such file or directory");
        assert_eq!(describe(&io::Error::other("x")), "x");
        let error = io::Error::from_raw_os_error(libc::EIO);
        let two = format!("cannot write: {error}; cannot read: {error}: raise -m");
        assert_eq!(without_numbers(two), "cannot write: Input/output error; cannot read: Input/output error: raise -m");
        assert_eq!(without_numbers("x (os error 5".into()), "x (os error 5");
    }
}
