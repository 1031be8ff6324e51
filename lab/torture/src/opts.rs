//! Command line.

use crate::ops::{MAX_OPS, OPS};
use crate::status::{MAX_PROCESSES, MAX_THREADS};
use std::path::PathBuf;

/// What to corrupt on purpose, without the model's knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corrupt {
    /// One byte of a page.
    Page,
    /// A whole page becomes zero.
    Lost,
    /// A whole page goes back to an older version.
    Stale,
    /// One increment of a shared counter.
    Counter,
    /// One word of a page in the race area.
    Race,
    /// One byte of a heap block.
    Heap,
    /// One byte of a region shared between threads.
    Shared,
}

const CORRUPT: [(&str, Corrupt); 7] = [
    ("page", Corrupt::Page),
    ("lost", Corrupt::Lost),
    ("stale", Corrupt::Stale),
    ("counter", Corrupt::Counter),
    ("race", Corrupt::Race),
    ("heap", Corrupt::Heap),
    ("shared", Corrupt::Shared),
];

/// Parsed options.
#[derive(Clone, Debug)]
pub struct Opts {
    /// Seed of all random choices.
    pub seed: u64,
    /// Time to run, unless `ops` is given.
    pub seconds: f64,
    /// Operations per thread.
    pub ops: Option<u64>,
    /// Threads per process.
    pub threads: usize,
    /// Worker processes.
    pub processes: usize,
    /// Bytes per process.
    pub size: usize,
    /// Compare every page before a thread ends.
    pub verify_all: bool,
    /// The supervisor stops and continues workers.
    pub stop_cont: bool,
    /// Workers are killed, exit and exec.
    pub exits: bool,
    /// Use a supervisor and workers even for one process.
    pub supervise: bool,
    /// Abort on a mismatch.
    pub abort: bool,
    /// Seconds without progress that count as a hang.
    pub stall: f64,
    /// Directory for temporary files.
    pub dir: PathBuf,
    /// Weight of each kind of operation.
    pub weights: [u32; MAX_OPS],
    /// Corrupt something on purpose.
    pub corrupt: Option<Corrupt>,
    /// Index and status descriptor, if this is a worker.
    pub worker: Option<(usize, i32)>,
}

/// The command line asks for this.
pub enum Command {
    /// A run.
    Run(Box<Opts>),
    /// The help text.
    Help,
    /// Exit at once (used as the child of the spawn operation).
    Noop,
}

/// The help text.
pub fn help() -> String {
    let mut ops = String::new();
    for op in &OPS {
        ops.push_str(&format!("  {:<11} {:>5}  {}\n", op.name, op.weight, op.help));
    }
    format!(
        "Changes its memory and mappings at random, knows what every byte must be, and checks.

memfit-torture [OPTIONS]
  --seed N              seed of all random choices (default 1)
  --seconds S           run so long (default 5)
  --ops N               run N operations per thread instead
  --threads T           threads per process (default 2)
  --processes P         processes (default 1)
  --size SIZE           bytes per process, K, M or G (default 256M; 16M at least)
  --mix LIST            weights, as read=10,write=0,...; \"only,\" in front sets all others to 0
  --forks               fork children that check what they inherit (gives fork its weight)
  --stop-cont           stop random processes for a while
  --exits               kill, exit, exec and restart random processes
  --supervise           separate supervisor even for one process
  --verify-all-at-end   check every page at the end
  --abort               abort on a mismatch, for a core file
  --stall S             seconds without progress that count as a hang (default 60)
  --dir DIR             for temporary files (default: the system's)

Exit status: 0 all verified, 2 usage, 3 wrong data, 4 no progress, 5 crash or a system call that must work failed.
Prints one line for people and one of JSON at the end.

Operations and default weights:
{ops}"
    )
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{name}: not a number: {text}"))
}

/// Bytes with an optional binary suffix.
pub fn size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let n: usize = number("--size", digits)?;
    n.checked_mul(1 << shift).ok_or_else(|| format!("--size: too large: {text}"))
}

fn mix(weights: &mut [u32; MAX_OPS], list: &str) -> Result<(), String> {
    for item in list.split(',') {
        if item == "only" {
            weights.fill(0);
            continue;
        }
        let (name, weight) = item.split_once('=').ok_or_else(|| format!("--mix: expected NAME=WEIGHT: {item}"))?;
        let i = OPS.iter().position(|op| op.name == name).ok_or_else(|| format!("--mix: no operation {name}"))?;
        weights[i] = number("--mix", weight)?;
    }
    Ok(())
}

impl Opts {
    fn defaults() -> Opts {
        let mut weights = [0; MAX_OPS];
        OPS.iter().zip(&mut weights).for_each(|(op, w)| *w = op.weight);
        Opts {
            seed: 1,
            seconds: 5.0,
            ops: None,
            threads: 2,
            processes: 1,
            size: 256 << 20,
            verify_all: false,
            stop_cont: false,
            exits: false,
            supervise: false,
            abort: false,
            stall: 60.0,
            dir: std::env::temp_dir(),
            weights,
            corrupt: None,
            worker: None,
        }
    }

    fn check(self) -> Result<Opts, String> {
        if !(1..=MAX_THREADS).contains(&self.threads) {
            return Err(format!("--threads: 1 to {MAX_THREADS}"));
        }
        if !(1..=MAX_PROCESSES).contains(&self.processes) {
            return Err(format!("--processes: 1 to {MAX_PROCESSES}"));
        }
        if self.size < 16 << 20 || self.size / self.threads < 2 << 20 {
            return Err("--size: at least 16M, and 2M per thread".into());
        }
        if self.weights.iter().all(|&w| w == 0) {
            return Err("--mix: no operation left".into());
        }
        Ok(self)
    }

    /// Whether a supervisor is needed.
    pub fn supervised(&self) -> bool {
        self.processes > 1 || self.stop_cont || self.exits || self.supervise
    }
}

/// Parses the arguments after the program's name.
pub fn parse(args: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut opts = Opts::defaults();
    let mut worker = (None, None);
    let mut args = args.peekable();
    while let Some(arg) = args.next() {
        let (name, inline) = match arg.split_once('=') {
            Some((name, value)) => (name.to_string(), Some(value.to_string())),
            None => (arg.clone(), None),
        };
        let mut value = || inline.clone().or_else(|| args.next()).ok_or_else(|| format!("{name}: needs a value"));
        match name.as_str() {
            "-h" | "--help" => return Ok(Command::Help),
            "--noop" => return Ok(Command::Noop),
            "--seed" => opts.seed = number(&name, &value()?)?,
            "--seconds" => opts.seconds = number(&name, &value()?)?,
            "--ops" => opts.ops = Some(number(&name, &value()?)?),
            "--threads" => opts.threads = number(&name, &value()?)?,
            "--processes" => opts.processes = number(&name, &value()?)?,
            "--size" => opts.size = size(&value()?)?,
            "--mix" => mix(&mut opts.weights, &value()?)?,
            "--forks" => mix(&mut opts.weights, "fork=20")?,
            "--verify-all-at-end" => opts.verify_all = true,
            "--stop-cont" => opts.stop_cont = true,
            "--exits" => opts.exits = true,
            "--supervise" => opts.supervise = true,
            "--abort" => opts.abort = true,
            "--stall" => opts.stall = number(&name, &value()?)?,
            "--dir" => opts.dir = value()?.into(),
            "--corrupt-one" => opts.corrupt = Some(corrupt(inline.as_deref().unwrap_or("page"))?),
            "--worker" => worker.0 = Some(number(&name, &value()?)?),
            "--status-fd" => worker.1 = Some(number(&name, &value()?)?),
            _ => return Err(format!("unknown option {arg}")),
        }
    }
    opts.worker = worker.0.zip(worker.1);
    Ok(Command::Run(Box::new(opts.check()?)))
}

fn corrupt(name: &str) -> Result<Corrupt, String> {
    let found = CORRUPT.iter().find(|(n, _)| *n == name);
    found.map(|(_, c)| *c).ok_or_else(|| format!("--corrupt-one: not known: {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str) -> Result<Opts, String> {
        match parse(line.split_whitespace().map(String::from))? {
            Command::Run(opts) => Ok(*opts),
            _ => Err("not a run".into()),
        }
    }

    #[test]
    fn both_spellings_of_values() {
        let opts = run("--seed 9 --size=64M --threads 3 --corrupt-one=counter").unwrap();
        assert_eq!((opts.seed, opts.size, opts.threads), (9, 64 << 20, 3));
        assert_eq!(opts.corrupt, Some(Corrupt::Counter));
        assert_eq!(run("--corrupt-one --seed 2").unwrap().seed, 2);
    }

    #[test]
    fn mixes() {
        let opts = run("--mix only,read=3,counter=1").unwrap();
        assert_eq!(opts.weights.iter().sum::<u32>(), 4);
        assert!(run("--mix nosuch=1").is_err());
        assert!(run("--mix only").is_err());
    }

    #[test]
    fn bad_usage_is_refused() {
        for line in ["--size 1M", "--threads 0", "--processes 1000", "--seed", "--seed x", "--what"] {
            assert!(run(line).is_err(), "{line}");
        }
        assert!(size("99999999999G").is_err());
    }
}
