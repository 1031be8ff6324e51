//! `memfit run --advise`: advice at the end of a run, from its recording.

use super::files::toml;
use super::subject::Subject;
use super::words::text;
use super::{advise, Options};
use crate::args::RunArgs;
use crate::errors::{tell, Failure};
use crate::output::{OutputFile, RecordFile};
use memfit_os::process::write_stderr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

/// State that is prepared before the run.
pub struct AtEnd {
    /// Where the recording can be read.
    path: String,
    /// Keeps an unlinked recording alive.
    recording: Option<File>,
    /// Where the advice goes, if not to standard error.
    output: Option<OutputFile>,
    quiet: bool,
}

impl AtEnd {
    /// Makes an unlinked recording if the user asked for none, and opens the file for the advice.
    ///
    /// # Errors
    /// When one of the two cannot be made.
    pub fn prepare(file: Option<&Path>, args: &RunArgs, record: &mut Option<RecordFile>) -> Result<AtEnd, Failure> {
        let output = file.map(|path| OutputFile::open("--advise", path)).transpose()?;
        let (path, recording) = match &args.record {
            Some(path) => (path.to_string_lossy().into_owned(), None),
            None => {
                let (to_write, to_read) = RecordFile::nameless("--advise")?;
                *record = Some(to_write);
                // Opening it again by this name begins at its start.
                (format!("/proc/self/fd/{}", to_read.as_raw_fd()), Some(to_read))
            }
        };
        Ok(AtEnd { path, recording, output, quiet: args.quiet })
    }

    /// Prints or writes the advice. An error here is only printed: the exit status is that of the
    /// run. `peak`: peak memory of the run, bytes.
    pub fn tell(self, peak: Option<u64>) {
        let AtEnd { path, recording, output, quiet } = self;
        let told = || -> Result<(), Failure> {
            let target = output.as_ref().map(|output| output.target().to_owned());
            let options = Options::of_run(quiet, target.as_deref())?;
            let mut subject = Subject::examine(&path, &options)?;
            if recording.is_some() {
                subject.known.name = subject.what();
            }
            subject.besides = peak.map(|peak| peak.saturating_sub(subject.footprint()));
            let advice = advise(vec![subject], &options)?;
            match output {
                Some(output) => output.finish(toml(&advice, &options).as_bytes())?,
                None => write_stderr(&text(&advice, &options)),
            }
            Ok(())
        };
        if let Err(failure) = told() {
            // The user does not know a file of that name.
            let own = recording.as_ref().map_or_else(String::new, |_| format!("{path}: "));
            let why = failure.message.strip_prefix(&own).unwrap_or(&failure.message);
            tell(&format!("--advise: no advice can be given: {why}"));
        }
    }
}
