//! `memfit run --advise`: advice at the end of a run, from its recording.

use super::files::{command_line, toml};
use super::subject::Subject;
use super::words::{headline, text};
use super::{advise, Options};
use crate::args::RunArgs;
use crate::errors::{tell, Failure};
use crate::layout::wrapped;
use crate::output::{OutputFile, RecordFile};
use memfit_os::process::write_stderr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

/// A watched run registers memory from its beginning, however far below its budget it stays.
const NOTHING_MANAGED: &str =
    "no memory was managed in this run: the command ended too soon, used too little memory to \
                               judge (no budget is less than 16M), or could not be paged";

/// State that is prepared before the run.
pub struct AtEnd {
    /// The path of the recording, if the user asked for one.
    name: Option<String>,
    /// The recording, unless it is a device or a pipe.
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
        let recording = match record {
            Some(record) => record.handle().map_err(|error| Failure::system("keep the recording open", &error))?,
            None => {
                let (to_write, to_read) = RecordFile::nameless("--advise")?;
                *record = Some(to_write);
                Some(to_read)
            }
        };
        let name = args.record.as_ref().map(|path| path.to_string_lossy().into_owned());
        Ok(AtEnd { name, recording, output, quiet: args.quiet })
    }

    /// Prints the advice, or writes it to the file and prints its command line. An error here is
    /// only printed: the exit status is that of the run. `peak`: peak memory of the run, bytes.
    pub fn tell(self, peak: Option<u64>) {
        let AtEnd { name, recording, output, quiet } = self;
        // Opening it again by this name begins at its start.
        let again = recording.as_ref().map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
        let path = again.or_else(|| name.clone()).unwrap_or_default();
        let told = || -> Result<(), Failure> {
            let target = output.as_ref().map(|output| output.target().to_owned());
            let options = Options::of_run(quiet, target.as_deref())?;
            let mut subject = Subject::examine_or(&path, &options, NOTHING_MANAGED)?;
            subject.known.name = name.clone().unwrap_or_else(|| subject.what());
            subject.besides = peak.map(|peak| peak.saturating_sub(subject.footprint()));
            let advice = advise(vec![subject], &options)?;
            match output {
                Some(output) => {
                    output.finish(toml(&advice, &options).as_bytes())?;
                    if !quiet {
                        write_stderr(&format!(
                            "{}\n\n  {}\n",
                            wrapped(&headline(&advice), 0),
                            command_line(&advice, &options)
                        ));
                    }
                }
                None => write_stderr(&text(&advice, &options)),
            }
            Ok(())
        };
        if let Err(failure) = told() {
            // The user does not know a file of that name.
            let why = match name {
                Some(name) => failure.message.replace(&path, &name),
                None => failure.message.replacen(&format!("{path}: "), "", 1),
            };
            tell(&format!("--advise: no advice can be given: {why}"));
        }
    }
}
