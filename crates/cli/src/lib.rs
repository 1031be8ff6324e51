//! The command line of memfit, one file per command.
//!
//! `run` turns the options (`args`) into a plan, with `size_parsing`, `swap`, `preload` and
//! `output`. The `launcher` executes it: it starts the pager and the command, then waits, forwards
//! signals and reports. `checks` tests what the kernel must offer; `doctor` prints the results.
//!
//! It is a library so that the launcher can be tested with a pager that misbehaves on purpose.
#![forbid(unsafe_code)]
// It panics if nobody can read standard error: `errors::tell` does not.
#![cfg_attr(not(test), warn(clippy::print_stderr))]

pub mod advise;
pub mod args;
pub mod background;
pub mod checks;
pub mod doctor;
pub mod errors;
pub mod generate;
pub mod guard;
pub mod launcher;
pub mod layout;
pub mod messages;
pub mod output;
pub mod preload;
pub mod report;
pub mod run;
pub mod schemes;
pub mod sim;
pub mod size_parsing;
pub mod stat;
pub mod swap;
pub mod top;
pub mod trace;
pub mod trees;

#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skip;

use args::{Cli, Command};
use clap::Parser;
use errors::Failure;
use memfit_os::process::write_stderr;
use memfit_pager::config::{Config, What};
use std::io::{IsTerminal, Write};

/// Runs the pager in its own process; never returns.
pub type Serve = fn(Config) -> !;

/// The stack of the main thread, bytes, with the arguments and the environment. Without those a
/// release build needs 80 KiB.
const STACK_BYTES: u64 = if cfg!(debug_assertions) { 512 << 10 } else { 256 << 10 };

/// Everything behind `main`: parses the command line and gives the exit status.
///
/// Must be called before anything else: `run` notes the open descriptors and needs a single thread.
#[must_use]
pub fn main_with(serve: Serve) -> i32 {
    let inherited = match run::Inherited::note() {
        Ok(inherited) => inherited,
        Err(failure) => return fail(&failure),
    };
    let stack = inherited.state.raise_stack_limit(STACK_BYTES);
    if stack < STACK_BYTES {
        let (has, needs) = (stack >> 10, STACK_BYTES >> 10);
        return fail(&Failure::here(format!(
            "the hard limit of the stack (ulimit -Hs) is {has} KiB, and memfit needs {needs}; \
             whoever set it must raise it"
        )));
    }
    if let Err(error) = memfit_os::capability::give_up_own() {
        return fail(&Failure::system("give up the capabilities of memfit's file", &error));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return tell(&error),
    };
    let result = match cli.command {
        Command::Run(args) => run::run(&args, inherited, serve),
        Command::Sim(args) => sim::run(&args),
        Command::Advise(args) => advise::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Schemes(args) => schemes::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Bg(args) if args.when_short => background::run(&args.processes, What::LeaveWhenShort),
        Command::Bg(args) => background::run(&args.processes, What::Leave),
        Command::Fg(args) => background::run(&args, What::ComeBack),
        Command::Trace(args) => trace::run(&args.command),
        Command::Report(args) => report::command::run(&args),
        Command::Generate(args) => generate::run(&args),
    };
    result.unwrap_or_else(|failure| fail(&failure))
}

fn fail(failure: &Failure) -> i32 {
    write_stderr(&format!("{failure}\n"));
    failure.code
}

/// Prints clap's help to standard output and its errors, with our prefix, to standard error.
fn tell(error: &clap::Error) -> i32 {
    if !error.use_stderr() {
        let printed = match std::io::stdout().is_terminal() {
            // With colours.
            true => error.print().map_err(|error| Failure::system("write to standard output", &error)),
            false => print(&error.render().to_string()),
        };
        return printed.map_or_else(|failure| fail(&failure), |()| 0);
    }
    // After `--` stands the command: what clap advises would run a program of that name.
    let text = error.render().to_string();
    let lines = text.split_inclusive('\n').filter(|line| !line.starts_with("  tip: to pass '"));
    let text = lines.collect::<String>().replace("\n\n\n", "\n\n");
    match text.strip_prefix("error: ") {
        Some(message) => write_stderr(&format!("memfit: {message}")),
        None => write_stderr(&text),
    }
    error.exit_code()
}

/// Prints to standard output. A closed pipe counts as success: its reader has read enough.
///
/// # Errors
/// A failure when the text cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    print_to_reader(text).map(drop)
}

/// The same. Returns false when the reader has closed.
fn print_to_reader(text: &str) -> Result<bool, Failure> {
    // Rust's runtime opens /dev/null where it was closed, and takes EBADF for success.
    let printed = output::writable(1).and_then(|_| {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    });
    match printed {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::system("write to standard output", &error)),
    }
}
