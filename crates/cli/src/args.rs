//! The command line: one definition for parsing, help, manual pages and completions.

use crate::size::{self, Size};
use crate::top::view::Sort;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Fit any program into the memory you have.
///
/// memfit runs an unmodified program, and all that it starts, within a memory budget: pages in excess are compressed,
/// and what does not compress goes to a disk.
#[derive(Debug, Parser)]
#[command(name = "memfit", version, max_term_width = 100, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command, and all that it starts, within a memory budget
    ///
    /// The exit status is that of the command: its code, or 128+n if signal n killed it. 127 says that the command was
    /// not found and 126 that it cannot be executed, 2 that the command line of memfit is wrong, 1 that memfit failed.
    Run(RunArgs),
    /// Tell what this machine can do, and how to fix what it cannot
    ///
    /// The exit status is 0 if `memfit run` can work here, else 1.
    Doctor(DoctorArgs),
    /// List the schemes and what can be chosen in them, or print one as TOML
    Schemes(SchemesArgs),
    /// Show the running trees of this user once
    Stat(StatArgs),
    /// Watch a running tree: budget, faults, compression, swap, processes
    ///
    /// On a terminal it fills the screen; ? shows the keys and what the numbers mean. Elsewhere, and with --iterations, it
    /// prints a line an interval for each tree; the rates of the first line are averages since the start of the tree.
    ///
    /// The exit status is 0 when the trees have ended, nobody reads any more or you leave, and 1 when there is no tree.
    Top(TopArgs),
    /// Write the manual pages or the completions of a shell
    #[command(name = "__generate", hide = true)]
    Generate(GenerateArgs),
}

/// `memfit run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Budget of the whole tree: bytes with K, M, G, T (powers of 1024), or % of the cgroup memory limit or RAM
    ///
    /// Without this option it is 90 % of the memory limit of the control group if there is one, else 75 % of RAM.
    #[arg(short, long, value_name = "SIZE|PCT", value_parser = size::parse)]
    pub memory: Option<Size>,

    /// How pages are kept: the name of a preset or a TOML file
    #[arg(short, long, value_name = "NAME|FILE", value_hint = ValueHint::FilePath)]
    pub scheme: Option<String>,

    /// Change a number of the scheme; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_override)]
    pub set: Vec<String>,

    /// Where pages go that RAM cannot hold even compressed: a directory on a disk, a file, or 'none'
    ///
    /// In a directory memfit makes a file that only it can see and that vanishes with it. A file or device of yours is
    /// overwritten. Without this option memfit chooses a directory on a disk. Given several times, each place is used when
    /// those before it are full.
    #[arg(long, value_name = "DIR|FILE|none", value_hint = ValueHint::AnyPath)]
    pub swap: Vec<PathBuf>,

    /// Largest size of the swap tier, of each place if there are several; written as the budget
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub swap_size: Option<Size>,

    /// What the swap device is rated to take in writes, such as 9T: the statistics tell how many days that lasts
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub endurance: Option<Size>,

    /// Write final statistics to FILE as JSON
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub stats: Option<PathBuf>,

    /// Print no summary and no notes; errors and warnings remain
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Print how the run is set up
    #[arg(short, long)]
    pub verbose: bool,

    /// Run the command unmanaged, with a warning, where the kernel lacks what memfit needs
    #[arg(long)]
    pub best_effort: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// `memfit doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// `memfit schemes`
#[derive(Debug, Args)]
pub struct SchemesArgs {
    /// The preset to print
    pub name: Option<String>,
}

/// `memfit stat`
#[derive(Debug, Args)]
pub struct StatArgs {
    /// Print JSON, an array with one object a tree
    #[arg(long)]
    pub json: bool,
    /// List the running processes of each tree, too
    #[arg(short, long)]
    pub processes: bool,
}

/// `memfit top`
#[derive(Debug, Args)]
pub struct TopArgs {
    /// The tree to begin with: the process number that memfit stat shows, or that of any of its processes
    #[arg(value_name = "PID")]
    pub pid: Option<i32>,

    /// Time between two looks, at least 0.1
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    pub interval: Duration,

    /// What the processes are sorted by at first
    #[arg(short, long, value_name = "KEY", value_enum, default_value_t = Sort::Resident)]
    pub sort: Sort,

    /// Print so many times instead of showing a screen
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: Option<u64>,
}

/// `memfit __generate`
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// What to write.
    pub what: Generated,
    /// An existing directory.
    pub directory: PathBuf,
}

/// What [`GenerateArgs`] can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Generated {
    /// Manual pages, one a command.
    Man,
    /// Completions of bash.
    Bash,
    /// Completions of zsh.
    Zsh,
    /// Completions of fish.
    Fish,
}

fn parse_override(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((key, _)) if !key.trim().is_empty() => Ok(text.to_owned()),
        _ => Err("write it as KEY=VALUE".into()),
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "write seconds, such as 0.5 or 2")?;
    // Also not what is no number.
    if !(0.1..=86_400.0).contains(&seconds) {
        return Err("it is at least 0.1 and at most 86400 seconds".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// The definition as clap's builder.
#[must_use]
pub fn definition() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str]) -> Result<RunArgs, clap::Error> {
        let words = ["memfit", "run"].iter().chain(words);
        match Cli::try_parse_from(words)?.command {
            Command::Run(args) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        definition().debug_assert();
    }

    #[test]
    fn the_command_keeps_its_own_options() {
        for words in [&["-q", "--", "ls", "-q", "--json", "--"][..], &["-q", "ls", "-q", "--json", "--"]] {
            assert_eq!(run(words).unwrap().command, ["ls", "-q", "--json", "--"]);
        }
        assert!(run(&["--", "-weird"]).is_ok());
        assert!(run(&["--bogus", "ls"]).is_err());
        assert!(run(&[]).is_err());
        assert!(run(&["-q", "-v", "ls"]).is_err());
    }

    #[test]
    fn intervals_are_sane() {
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "nan", "inf", "1e9", "x", ""] {
            assert!(parse_interval(text).is_err(), "{text}");
        }
    }

    #[test]
    fn overrides_need_a_key() {
        assert_eq!(run(&["--set", "pool.max=3", "--set", "a=", "ls"]).unwrap().set, ["pool.max=3", "a="]);
        assert!(run(&["--set", "x", "ls"]).is_err());
        assert!(run(&["--set", "=3", "ls"]).is_err());
    }
}
