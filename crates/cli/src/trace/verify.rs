//! `memfit trace verify`: replays recordings and compares all decisions.

use super::{cut, explaining_panics, grouped, length, open, unreadable};
use crate::args::TraceVerifyArgs;
use crate::errors::{tell, Failure};
use memfit_sim::replay;
use std::path::Path;
use std::time::Instant;

/// Replays each file.
///
/// # Errors
/// When nothing can be printed. An error in a file is printed and gives exit status 1.
pub fn run(args: &TraceVerifyArgs) -> Result<i32, Failure> {
    let mut code = 0;
    for path in &args.files {
        match verify(path) {
            Ok(text) => crate::print(&text)?,
            Err(failure) => {
                tell(&failure.message);
                code = 1;
            }
        }
    }
    Ok(code)
}

fn verify(path: &Path) -> Result<String, Failure> {
    let mut reader = open(path)?;
    let start = Instant::now();
    let replayed = explaining_panics(path, || replay(&mut reader));
    let replay = replayed.map_err(|error| Failure::here(format!("{}: {error}", path.display())))?;
    let same = format!("every decision is the same, {} calls", grouped(replay.compared));
    let time = format!("{:.1} s", start.elapsed().as_secs_f64());
    let after = match replay.calls - replay.compared {
        0 => String::new(),
        calls => format!("; for its last {} calls there is nothing to compare", grouped(calls)),
    };
    match &replay.cut {
        None => Ok(format!("{}: {same}, in {time}\n", path.display())),
        Some(error) if error.is_cut() => {
            Ok(format!("{}: {same}, in {time}; {}{after}\n", path.display(), cut(error, length(path))))
        }
        Some(error) => Err(Failure::here(format!("{}; up to there {same}{after}", unreadable(path, error).message))),
    }
}
