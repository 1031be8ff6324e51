//! `memfit trace`: recorded runs. docs/trace.md says what is in them.

mod contents;
mod export;
mod generate;
mod info;
mod verify;

use crate::args::TraceCommand;
use crate::errors::Failure;
use memfit_trace::{ReadError, Reader, Reason};
use std::fs::{self, File};
use std::path::Path;

/// Does it, and gives the exit status.
///
/// # Errors
/// When it cannot be done. Of several files each is looked at, and what is wrong with one is told
/// at once.
pub fn run(command: &TraceCommand) -> Result<i32, Failure> {
    match command {
        TraceCommand::Info(args) => info::run(args),
        TraceCommand::Verify(args) => verify::run(args),
        TraceCommand::Export(args) => export::run(args),
        TraceCommand::Generate(args) => generate::run(args),
    }
}

/// Opens a recording and reads its head. Blocks are read whole: there is nothing to buffer.
pub(crate) fn open(path: &Path) -> Result<Reader<File>, Failure> {
    let cannot = |error| Failure::system(&format!("read {}", path.display()), &error);
    if fs::metadata(path).map_err(cannot)?.is_dir() {
        return Err(Failure::here(format!("{}: it is a directory; give the file of a recorded run", path.display())));
    }
    Reader::new(File::open(path).map_err(cannot)?).map_err(|error| unreadable(path, &error))
}

/// A file that is no recording, or not what was written.
fn unreadable(path: &Path, error: &ReadError) -> Failure {
    match &error.reason {
        Reason::Io(cause) => {
            let what = format!("read {} at byte {}", path.display(), error.offset);
            Failure::system(&what, cause)
        }
        _ => Failure::here(format!("{}: {error}", path.display())),
    }
}

/// What is said of a recording whose end is missing.
fn cut(error: &ReadError, length: Option<u64>) -> String {
    let of = length.map_or(String::new(), |length| format!(" of {length}"));
    format!("cut at byte {}{of}: the run was killed or goes on, or the file took no more", error.offset)
}

/// Bytes of a file.
pub(crate) fn length(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|data| data.len())
}

/// A number with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        let texts = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
    }
}
