//! Runs real programs with and without memfit, with limits on time, one at a time.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test binary uses its part")]

pub mod cgroup;
pub mod contents;
pub mod known;
pub mod ordinary;
pub mod process;
pub mod recording;
pub mod sampled;
#[path = "../../../../tests/skip.rs"]
mod skip;
pub mod stats;
pub mod terminal;
pub mod tree;
pub mod watch;

use contents::{assert_contents, assert_contents_eq};
use memfit_os::probe;
use ordinary::Ordinary;
use process::{Limits, Ran};
pub(crate) use skip::skip;
use stats::Stats;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Time that one run of a program may take: a few seconds are usual, and only a hang takes longer
/// than this, however busy the machine is.
pub const RUN_TIMEOUT: Duration = Duration::from_secs(300);
/// Messages that depend on the time for which something lasts. On an emulated machine they are no
/// sign of anything: a program waits for memory; young fork children are not paged yet.
const OF_SLOW_MACHINES: [&str; 2] =
    ["page faults wait for memory for more than 10 s: ", "too small for what cannot be taken away at the moment"];
/// Smallest budget that memfit takes.
const BUDGET_MIN: u64 = 16 << 20;
/// What a run must show besides the right output.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Least evicted pages, percent of the natural peak, so that no test passes without paging.
    pub evicted_percent: u64,
    /// Largest peak, percent of the budget.
    pub peak_percent: u64,
}

/// One process: usually the peak is within 2 % of the budget; a busy machine gets some more.
pub const ONE: Bounds = Bounds { evicted_percent: 25, peak_percent: 130 };
/// Several processes or threads that start and grow at the same moment, or are stopped while they
/// hold most of the memory. Usually the peak is within 2 %, but 1.49 times the budget was seen once
/// for processes that are killed and exec in the middle.
pub const SEVERAL: Bounds = Bounds { evicted_percent: 15, peak_percent: 200 };
/// Programs that fork: what fork relatives share is known late, and nothing is evicted during a
/// fork. Usually the peak is within 25 %.
pub const FORKS: Bounds = Bounds { evicted_percent: 15, peak_percent: 400 };

/// A program of Debian's redis-tools that is the server too if it is started by that name.
pub const REDIS: &str = "/usr/bin/redis-check-rdb";
/// The Python interpreter for which Debian installs its modules.
pub const PYTHON: &str = "/usr/bin/python3";

/// Whether new processes may wait at the start socket: filters could kill them for it.
pub fn may_wait_to_start() -> bool {
    let own = std::process::id() as i32;
    memfit_os::procfs::ThreadStatus::of(own, own).and_then(|status| status.filters()) == Some(0)
}

/// A number for the gate, or a larger one for `make soak`.
pub fn sized<T>(gate: T, soak: T) -> T {
    if std::env::var_os("MEMFIT_TEST_SOAK").is_some() {
        soak
    } else {
        gate
    }
}

/// How many times slower than usual this machine is; scripts/kernels sets it for an emulated one.
/// All time limits are multiplied by it, and nothing else changes.
pub fn slowness() -> u32 {
    let factor = std::env::var("MEMFIT_TEST_SLOWNESS").ok();
    factor.map_or(1, |factor| factor.parse().expect("MEMFIT_TEST_SLOWNESS is a number"))
}

/// Writes a line past the capture of the test harness, which hides the output of passing tests.
pub fn say(text: &str) {
    memfit_os::process::write_stderr(&format!("{text}\n"));
}

/// What tests that were killed have left in a directory: the names begin with `prefix`, and end
/// with the pid of a process that is no more.
pub fn left_by_killed(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let is_left = |name: &str| {
        let pid = name.strip_prefix(prefix).and_then(|rest| rest.rsplit('-').next()?.parse::<u32>().ok());
        pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_str().is_some_and(is_left)).map(|entry| entry.path()).collect()
}

/// Removes it. Another test may do so at the same time.
pub fn remove_left_by_killed(directory: &Path, prefix: &str) {
    for path in left_by_killed(directory, prefix) {
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
}

/// The first program of that name in PATH.
pub fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|path| path.is_file())
}

/// A test's own directory, removed at its end.
pub struct Bench {
    pub name: String,
    pub directory: PathBuf,
    /// The user who runs memfit, if not the user of the tests.
    pub user: Option<Ordinary>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Bench {
    /// `None`, with a report, where memfit cannot work or one of the programs is missing.
    pub fn new(name: &str, programs: &[&str]) -> Option<Bench> {
        if let Err(reason) = probe::try_move() {
            skip(name, &format!("no userfaultfd with MOVE here: {reason}"));
            return None;
        }
        if let Some(missing) = programs.iter().find(|program| find(program).is_none()) {
            skip(name, &format!("there is no {missing}; tests/setup installs it"));
            return None;
        }
        assert!(
            memfit().with_file_name("libmemfit.so").is_file(),
            "libmemfit.so is not beside {}: `cargo test` does not build it; run `cargo build --workspace` with the same \
             profile first, or `make test`",
            memfit().display()
        );
        let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
        remove_left_by_killed(all, "");
        let directory = all.join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        Some(Bench { name: name.into(), directory, user: None })
    }

    /// Puts a file into the directory.
    pub fn file(&self, name: &str, contents: &str) -> PathBuf {
        let path = self.directory.join(name);
        fs::write(&path, contents).unwrap();
        path
    }

    /// Compiles a C program in the directory; `None`, with a report, if this compiler cannot
    /// compile any.
    #[track_caller]
    pub fn compile(&self, compiler: &[&str], name: &str, source: &str) -> Option<PathBuf> {
        let output = self.directory.join(name);
        let run = |input: &Path, output: &Path| {
            let mut command = Command::new(compiler[0]);
            command.args(&compiler[1..]).args(["-O1", "-Wall", "-o"]).arg(output).arg(input).arg("-pthread");
            process::run(command, &self.directory, &Limits::of(RUN_TIMEOUT))
        };
        let ran = run(&self.file(&format!("{name}.c"), source), &output);
        if ran.code == Some(0) {
            return Some(output);
        }
        let any = run(&self.file("any.c", "#include <stdio.h>\nint main(void) { return puts(\"\") < 0; }\n"), &output);
        assert!(any.code != Some(0), "{name}.c does not compile:\n{}", ran.err);
        let why = format!("{} does not compile here; tests/setup may help:\n{}", compiler.join(" "), any.err);
        skip(&self.name, &why);
        None
    }

    /// Runs a shell command line without memfit.
    #[track_caller]
    pub fn plain(&self, line: &str) -> Ran {
        self.within(shell(line), line, &Limits { time: RUN_TIMEOUT, peak: true })
    }

    /// Runs a shell command line under memfit, without the summary; the statistics must be sane.
    #[track_caller]
    pub fn managed(&self, line: &str, budget: u64) -> (Ran, Stats) {
        self.managed_with(&[], line, budget)
    }

    /// As `managed`, with more options of `memfit run`.
    #[track_caller]
    pub fn managed_with(&self, options: &[&str], line: &str, budget: u64) -> (Ran, Stats) {
        let mut command = self.memfit();
        command.arg("run").args(options);
        self.managed_by(command, line, budget)
    }

    /// memfit as the user who runs the programs.
    pub fn memfit(&self) -> Command {
        self.user.as_ref().map_or_else(memfit_command, |user| user.command(&[]))
    }

    /// As `managed`; `command` is memfit's command line up to its options.
    #[track_caller]
    pub fn managed_by(&self, mut command: Command, line: &str, budget: u64) -> (Ran, Stats) {
        let file = self.directory.join("stats.json");
        command.args(["-q", "-m", &budget.to_string(), "--stats"]).arg(&file).args(["--", "sh", "-c", line]);
        let mut ran = self.checked(command, line);
        assert!(file.exists(), "no statistics; exit code {:?}: {}", ran.code, ran.err);
        let mut stats = Stats::read(&file, budget);
        fs::remove_file(file).unwrap();
        let of_slow = |line: &&str| OF_SLOW_MACHINES.iter().any(|words| line.contains(words));
        if slowness() > 1 && ran.err.lines().any(|line| of_slow(&line)) {
            say(&format!("{}: {}", self.name, ran.err.trim()));
            ran.err = ran.err.split_inclusive('\n').filter(|line| !of_slow(line)).collect();
            OF_SLOW_MACHINES.iter().for_each(|words| stats.forget_warning(words));
        }
        (ran, stats)
    }

    #[track_caller]
    pub fn checked(&self, command: Command, line: &str) -> Ran {
        self.within(command, line, &Limits::of(RUN_TIMEOUT))
    }

    #[track_caller]
    fn within(&self, command: Command, line: &str, limits: &Limits) -> Ran {
        let ran = process::run(command, &self.directory, limits);
        let seconds = ran.time.as_secs();
        assert!(!ran.timed_out, "{}: not within {seconds} s: {line}\n{}\n{}", self.name, ran.err, ran.hang);
        ran
    }

    /// Asserts that output and `files` are the same with a budget of `percent` of the natural peak
    /// as without memfit.
    #[track_caller]
    pub fn same(&self, line: &str, files: &[&str], percent: u64) {
        self.same_within(line, files, percent, ONE);
    }

    /// As [`Bench::same`], with other bounds.
    #[track_caller]
    pub fn same_within(&self, line: &str, files: &[&str], percent: u64, bounds: Bounds) {
        let plain = self.plain(line);
        assert_eq!(plain.code, Some(0), "without memfit: {line}\n{}", plain.err);
        let expected = self.take(files);
        let budget = (plain.peak * percent / 100).max(BUDGET_MIN);
        let (managed, stats) = self.managed(line, budget);
        let context = format!("{}: {line}\n{}\n{:#}", self.name, managed.err, stats.json);
        self.tell(&plain, &managed, &stats);
        assert_contents!(
            managed.out == plain.out,
            "standard output differs: {}; {context}",
            difference(&plain.out, &managed.out)
        );
        assert_contents_eq!(managed.code, Some(0), "{context}");
        for ((name, expected), found) in files.iter().zip(&expected).zip(self.take(files)) {
            assert_contents!(*expected == found, "{name} differs: {}; {context}", difference(expected, &found));
        }
        assert_eq!(managed.err, plain.err, "standard error differs; {context}");
        stats.no_warnings();
        let least = plain.peak / 4096 * bounds.evicted_percent / 100;
        let evicted = stats.number("/evictions/pages");
        assert!(evicted >= least, "only {evicted} pages were evicted, {least} are wanted; {context}");
        stats.peak_within(bounds.peak_percent);
    }

    /// A redis server saves in a fork child, with half of the memory that it takes; see
    /// workloads/bgsave.py. Prints the peak.
    #[track_caller]
    pub fn same_bgsave(&self) {
        self.file("bgsave.py", include_str!("../workloads/bgsave.py"));
        self.same_within(&format!("{PYTHON} bgsave.py {REDIS} 14000"), &[], 50, FORKS);
    }

    /// The contents of the files that a run made; removes the files.
    fn take(&self, files: &[&str]) -> Vec<Vec<u8>> {
        let take = |name: &&str| {
            let path = self.directory.join(name);
            let contents = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            fs::remove_file(path).unwrap();
            contents
        };
        files.iter().map(take).collect()
    }

    fn tell(&self, plain: &Ran, managed: &Ran, stats: &Stats) {
        let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
        let (peak, budget) = (stats.number("/peak/total_bytes"), stats.number("/budget_bytes"));
        let evicted = stats.number("/evictions/pages") * 4096;
        say(&format!(
            "{:24} natural {:6.1} M in {:4.1} s; budget {:6.1} M: peak {:.3} of it, {:4.0} % evicted, {} faults, {:4.1} s",
            self.name,
            mib(plain.peak),
            plain.time.as_secs_f64(),
            mib(budget),
            peak as f64 / budget as f64,
            evicted as f64 * 100.0 / plain.peak as f64,
            stats.number("/faults/total"),
            managed.time.as_secs_f64(),
        ));
    }
}

fn shell(line: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", line]);
    command
}

/// Where two outputs begin to differ.
fn difference(expected: &[u8], found: &[u8]) -> String {
    let at = expected.iter().zip(found).take_while(|(a, b)| a == b).count();
    let near =
        |bytes: &[u8]| String::from_utf8_lossy(&bytes[at.min(bytes.len())..bytes.len().min(at + 80)]).into_owned();
    let (a, b) = (near(expected), near(found));
    format!("at byte {at} of {} and {}: expected {a:?}, found {b:?}", expected.len(), found.len())
}

/// The program under test.
pub fn memfit() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_memfit"))
}

pub fn memfit_command() -> Command {
    Command::new(memfit())
}
