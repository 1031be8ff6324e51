//! `memfit report`: makes a page from a JSON description.

use crate::args::ReportArgs;
use crate::errors::Failure;
use crate::output::{distinct, OutputFile};
use memfit_report::Report;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// Makes the page.
///
/// # Errors
/// When the description cannot be read or is invalid, or the page cannot be written.
pub fn run(args: &ReportArgs) -> Result<i32, Failure> {
    let name = if is_stdin(&args.page) { "standard input".into() } else { args.page.display().to_string() };
    distinct(&[("--output", Some(&args.output))], [("the description", &*args.page)])?;
    let text = read(&args.page).map_err(|error| Failure::system(&format!("read {name}"), &error))?;
    let report = Report::from_json(&text).map_err(|wrong| {
        Failure::here(format!("{name} does not describe a page: {wrong}; docs/report.md has the form"))
    })?;
    let output = OutputFile::open("--output", &args.output)?;
    let mut page = Vec::new();
    report.write(&mut page).expect("memory takes all that is written");
    output.finish(&page)?;
    Ok(0)
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !is_stdin(path) {
        return fs::read(path);
    }
    let mut text = Vec::new();
    io::stdin().lock().read_to_end(&mut text)?;
    Ok(text)
}
