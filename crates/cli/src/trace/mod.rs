//! `memfit trace`: works with recorded runs. docs/trace.md describes their format.

mod contents;
mod export;
mod generate;
mod info;
mod verify;

use crate::args::TraceCommand;
use crate::errors::{tell, Failure};
use memfit_trace::{ReadError, Reader, Reason, MEMFIT};
use std::fs::{self, File};
use std::path::Path;

/// Runs the command and returns the exit status.
///
/// # Errors
/// When the command fails. With several files, an error in one is printed at once, and the others
/// are read as well.
pub fn run(command: &TraceCommand) -> Result<i32, Failure> {
    match command {
        TraceCommand::Info(args) => info::run(args),
        TraceCommand::Verify(args) => verify::run(args),
        TraceCommand::Export(args) => export::run(args),
        TraceCommand::Generate(args) => generate::run(args),
    }
}

/// Opens a recording and reads its head. A buffer would gain nothing: blocks are read whole.
pub(crate) fn open(path: &Path) -> Result<Reader<File>, Failure> {
    let cannot = |error| Failure::system(&format!("read {}", path.display()), &error);
    if fs::metadata(path).map_err(cannot)?.is_dir() {
        return Err(Failure::here(format!("{}: it is a directory; give the file of a recorded run", path.display())));
    }
    Reader::new(File::open(path).map_err(cannot)?).map_err(|error| unreadable(path, &error))
}

/// Does something that replays a recording. The core panics at an impossible call: then prints what
/// that means for a recording, and exits.
pub(crate) fn explaining_panics<T>(path: &Path, work: impl FnOnce() -> T) -> T {
    let path = path.display().to_string();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload().downcast_ref::<String>().map(String::as_str);
        let why = text.or(info.payload().downcast_ref::<&str>().copied()).unwrap_or("no reason was given");
        let place = info.location().map_or(String::new(), |place| format!(" ({}:{})", place.file(), place.line()));
        tell(&format!(
            "{path}: the replay comes to a call that is impossible in it: it was recorded by another build of memfit \
             {MEMFIT}, or this is a bug: {why}{place}"
        ));
        std::process::exit(1);
    }));
    let done = work();
    std::panic::set_hook(before);
    done
}

/// The failure for a file that is no recording, or is damaged.
fn unreadable(path: &Path, error: &ReadError) -> Failure {
    match &error.reason {
        Reason::Io(cause) => {
            let what = format!("read {} at byte {}", path.display(), error.offset);
            Failure::system(&what, cause)
        }
        _ => Failure::here(format!("{}: {error}", path.display())),
    }
}

/// Describes a recording whose end is missing.
fn cut(error: &ReadError, length: Option<u64>) -> String {
    let of = length.map_or(String::new(), |length| format!(" of {length}"));
    format!("cut at byte {}{of}: the run was killed or goes on, or the file took no more", error.offset)
}

/// Size of a regular file, bytes.
pub(crate) fn length(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|data| data.len())
}

/// A number with commas between its thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
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
