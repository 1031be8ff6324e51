//! `memfit __generate`: manual pages and completions from the definition of the command line.

use crate::args::{definition, GenerateArgs, Generated};
use crate::errors::Failure;
use clap_complete::{generate_to, Shell};
use memfit_codec::CODECS;
use memfit_scheme::PRESETS;
use memfit_sim::cost::COSTS;
use memfit_sim::device::DEVICES;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes the files.
///
/// # Errors
/// When the directory cannot be written.
pub fn run(args: &GenerateArgs) -> Result<i32, Failure> {
    let shell = match args.what {
        Generated::Man => None,
        Generated::Bash => Some(Shell::Bash),
        Generated::Zsh => Some(Shell::Zsh),
        Generated::Fish => Some(Shell::Fish),
    };
    let written = match shell {
        None => manual_pages(&args.directory),
        Some(Shell::Bash) => generate_to(Shell::Bash, &mut visible(), "memfit", &args.directory).and_then(add_names),
        Some(shell) => generate_to(shell, &mut visible(), "memfit", &args.directory).map(drop),
    };
    let what = || format!("write to {}", args.directory.display());
    written.map(|()| 0).map_err(|error| Failure::system(&what(), &error))
}

/// The definition without its hidden commands, which nobody should complete or read about.
fn visible() -> clap::Command {
    let full = definition();
    let (shown, bare): (Vec<_>, _) =
        (full.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect(), bare(&full));
    bare.subcommands(shown)
}

fn bare(full: &clap::Command) -> clap::Command {
    let about = full.get_about().cloned().unwrap_or_default();
    let long_about = full.get_long_about().cloned().unwrap_or_default();
    clap::Command::new("memfit")
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .long_about(long_about)
        .subcommand_required(true)
        .disable_help_subcommand(true)
}

/// Adds what clap's completion of bash does not know: where the command of `memfit run` begins, and
/// the names of schemes, devices, costs and codecs.
fn add_names(script: PathBuf) -> io::Result<()> {
    let mut all = definition();
    all.build();
    let run = all.find_subcommand("run").expect("there is a command run");
    let valued = run.get_opts().filter(|option| !option.is_require_equals_set());
    let words = valued.flat_map(|option| {
        let short = option.get_short().map(|short| format!("-{short}"));
        short.into_iter().chain(option.get_long().map(|long| format!("--{long}")))
    });
    let words = words.collect::<Vec<_>>().join(" | ");
    let list = |names: &mut dyn Iterator<Item = &'static str>| names.collect::<Vec<_>>().join(" ");
    let text = include_str!("generate/names.bash")
        .replace("@VALUED@", &words)
        .replace("@SCHEMES@", &list(&mut PRESETS.iter().map(|preset| preset.name)))
        .replace("@DEVICES@", &list(&mut DEVICES.iter().map(|device| device.name)))
        .replace("@COSTS@", &list(&mut COSTS.iter().map(|costs| costs.name)))
        .replace("@CODECS@", &list(&mut CODECS.iter().map(|codec| codec.name)));
    OpenOptions::new().append(true).open(script)?.write_all(text.as_bytes())
}

fn manual_pages(directory: &Path) -> io::Result<()> {
    let mut all = visible();
    all.build();
    manual_page(&all, directory)
}

/// The page of a command, and those of its commands. The synopsis is the usage of `--help`: clap's
/// own has options without their values.
fn manual_page(command: &clap::Command, directory: &Path) -> io::Result<()> {
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        manual_page(command, directory)?;
    }
    let mut command = command.clone();
    let usage = command.render_usage().to_string();
    let command = command.override_usage(usage.trim_start_matches("Usage: ").to_owned());
    let page = clap_mangen::Man::new(command).source(concat!("memfit ", env!("CARGO_PKG_VERSION")));
    page.generate_to(directory).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_pages_and_completions_without_hidden_commands() {
        let directory = std::env::temp_dir().join(format!("memfit-generate-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        for what in [Generated::Man, Generated::Bash, Generated::Zsh, Generated::Fish] {
            run(&GenerateArgs { what, directory: directory.clone() }).unwrap();
        }
        for (file, text) in [
            ("memfit.1", "Fit any program"),
            ("memfit-run.1", "Budget"),
            ("memfit-run.1", "report"),
            ("memfit-doctor.1", "json"),
            ("memfit-top.1", "interval"),
            ("memfit-trace.1", "recorded runs"),
            ("memfit-trace-export.1", "Parquet"),
            ("memfit-trace-generate.1", "workload"),
            ("memfit-sim.1", "slowdown"),
            ("memfit-report.1", "PAGE.json"),
            ("memfit.bash", "verify"),
            ("memfit.bash", "swap"),
            ("_memfit", "best-effort"),
            ("memfit.fish", "doctor"),
        ] {
            let content = std::fs::read_to_string(directory.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
            assert!(content.contains(text), "{file}");
            // memfit trace generate is another command, and not hidden.
            assert!(!content.replace("__trace__subcmd__generate", "").contains("__generate"), "{file}");
        }
        let page = std::fs::read_to_string(directory.join("memfit-run.1")).unwrap();
        assert!(page.contains(concat!("\"memfit ", env!("CARGO_PKG_VERSION"), "\"")), "{page}");
        assert!(page.contains(" [OPTIONS] <COMMAND>...\n"), "{page}");
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(run(&GenerateArgs { what: Generated::Man, directory }).unwrap_err().code, 1);
    }
}
