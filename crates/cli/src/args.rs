//! The command line: one definition for parsing, help, manual pages and completions.

mod shortage;
mod swap;

pub use shortage::{OnFullArg, ShortageArgs};
pub use swap::SwapArgs;

use crate::errors::Failure;
use crate::size_parsing::{self, Size};
use crate::top::view::Sort;
use clap::builder::NonEmptyStringValueParser;
use clap::{value_parser, Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use memfit_codec::{CodecEntry, CODECS};
use memfit_pager::config::Automatic;
use memfit_sim::cost::CostTable;
use memfit_sim::device::Device;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Fit any program into the memory you have.
///
/// memfit runs an unmodified program, and all that it starts, within a memory budget: pages in
/// excess are compressed, and what does not compress goes to a disk.
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
    /// The exit status is that of the command: its code, or 128+n if signal n killed it. 127 says
    /// that the command was not found and 126 that it cannot be executed, 2 that the command line
    /// of memfit is wrong, 1 that memfit failed. When the command ends before its children, memfit
    /// run ends with it: status, summary and statistics are those of that moment, and the children
    /// run on within the budget.
    Run(RunArgs),
    /// Simulate recorded runs, or workloads that are made, under any scheme and in any budget
    ///
    /// The same code decides as in a run; devices and codecs are counted and priced instead of
    /// used. docs/workloads.md lists the workloads that can be made, docs/devices.md the devices
    /// and costs.
    Sim(SimArgs),
    /// Say what budget, scheme and swap tier a program wants, what it would cost with less, and why
    ///
    /// The answer is simulated, from recordings of memfit run --record FILE --record-access. memfit
    /// run --advise does both at once. Of several recordings the one that wants most decides.
    Advise(AdviseArgs),
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
    /// On a terminal it fills the screen; ? shows the keys and what the numbers mean. Elsewhere,
    /// and with --iterations, it prints a line an interval for each tree; the rates of the first
    /// line are averages since the start of the tree.
    ///
    /// The exit status is 0 when the trees have ended, nobody reads any more or you leave, and 1
    /// when there is no tree.
    Top(TopArgs),
    /// Take all of the memory of processes at once: they are in the background now
    ///
    /// The processes run on. What they touch comes back page by page, and memfit fg brings back the
    /// rest. Their pages go to the pool, and from there to the swap tier as far as the pool has no
    /// room. Until memfit fg they stay in the background: when memory is short, the one with most
    /// in memory leaves again as a whole, before other processes give pages. Memory is short when
    /// little of the budget is free. It is also short when the machine, or the control group, has
    /// less than a tenth left, and tasks waited for it for more than 10 % of the last second.
    ///
    /// The exit status is 0 when all processes have left or been marked. It is 1 when one cannot be
    /// paged, is none of a running tree of this user, or has pages that do not move for 10 s.
    Bg(BackgroundArgs),
    /// Bring back what processes use of the memory that memfit bg took
    ///
    /// At the first time all pages come back, as far as they find room. From then on a quarter of
    /// them, another one each time, stays outside as a trial. Pages of it that the process has not
    /// touched when it leaves again are no longer brought back. What stays outside comes back when
    /// it is touched.
    Fg(ProcessArgs),
    /// Tell what recorded runs hold, replay them, or write them as tables
    ///
    /// `memfit run --record FILE` records a run. The exit status is 1 for a recording that is
    /// damaged or cannot be read, that decides otherwise when it is replayed, and for a table that
    /// cannot be written. A recording that ends early, as that of a run that was killed, is good up
    /// to there.
    Trace(TraceArgs),
    /// Make an HTML page of figures and tables that a JSON file describes
    ///
    /// For results of your own, such as of several runs, to look like the pages of --report.
    /// docs/report.md has the form.
    Report(ReportArgs),
    /// Write the manual pages or the completions of a shell
    #[command(name = "__generate", hide = true)]
    Generate(GenerateArgs),
}

/// `memfit run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Budget of the whole tree: bytes with K, M, G, T (powers of 1024), or % of the cgroup memory
    /// limit or RAM
    ///
    /// Without this option it is 90 % of the memory limit of the control group if there is one,
    /// after about 3M are deducted for memfit's code, else 75 % of RAM.
    #[arg(short, long, value_name = "SIZE|PCT", value_parser = size_parsing::parse, allow_hyphen_values = true)]
    pub memory: Option<Size>,

    /// How pages are kept: the name of a preset, or a TOML file, whose path contains a / or ends in
    /// .toml
    #[arg(short, long, value_name = "NAME|FILE", value_hint = ValueHint::FilePath)]
    pub scheme: Option<String>,

    /// Change a number of the scheme; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_override)]
    pub set: Vec<String>,

    /// Page read-only mappings of files as well
    ///
    /// Their pages are in the budget then, and the pool keeps them compressed, so that they are
    /// read again less often. It is for programs that map more data than there is memory and access
    /// them at random: databases, indexes, arrays, above all on a disk that is slow or allows few
    /// operations a second. It needs CAP_SYS_PTRACE. A shared mapping becomes the kernel's when
    /// somebody opens the file for writing. The same as --set classes=file-pooled; it changes
    /// nothing if the scheme pages files anyway.
    #[arg(long)]
    pub files: bool,

    /// Where pages go.
    #[command(flatten)]
    pub swap: SwapArgs,

    /// When memory is not enough.
    #[command(flatten)]
    pub shortage: ShortageArgs,

    /// Which processes are in the background without memfit bg: 'jobs' that are not in the
    /// foreground of their terminal, or those that have been idle for some seconds, 'idle=30'
    ///
    /// When memory is short, a process in the background leaves as a whole, before others give
    /// pages; when it is in the foreground again, it comes back. An order by memfit bg or memfit fg
    /// outweighs this for its process. A process is idle that uses less than 1 % of a CPU and waits
    /// for no pages. A job is in the background only while another process of the tree is in the
    /// foreground of its terminal.
    #[arg(long, value_name = "jobs|idle=SECONDS,...", value_delimiter = ',', value_parser = parse_background)]
    pub background: Vec<Automatic>,

    /// Write final statistics to FILE as JSON, also when memfit has to end the run
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub stats: Option<PathBuf>,

    /// Write what the run did to FILE at the end, as a page for a browser: memory, faults,
    /// compression and swap over time
    ///
    /// The page is one HTML file that needs nothing else. It is also written when the command fails
    /// or is killed, or when memfit has to end the run.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,

    /// Record every decision of the run to FILE, for memfit trace
    ///
    /// It can be read up to its last second also when the run is killed. When the file takes no
    /// more, the recording ends there and the run goes on, with a warning. It holds page numbers,
    /// sizes, times and the command, no contents of memory but the word of pages that repeat one.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub record: Option<PathBuf>,

    /// Record accesses, too: nearly all touches of a sample of the pages, for simulations in other
    /// budgets
    ///
    /// Sampled pages are taken out of the programs several times a second, also when the memory
    /// would suffice, and all processes are paged from their beginning: this costs more time than a
    /// recording alone, and more than no recording. PERCENT, 1 to 100, is the most of the time that
    /// the faults on sampled pages may take, 5 if it is left out: with more, more pages are
    /// sampled, and looked at more often.
    #[arg(long, requires = "record", value_name = "PERCENT", num_args = 0..=1, require_equals = true,
          value_parser = value_parser!(u32).range(1..=100))]
    pub record_access: Option<Option<u32>>,

    /// Record what pages hold, too, when they are compressed: a hash, and what each of several
    /// codecs makes of them
    ///
    /// Without codecs all but the slowest ones; 'all' are all. Those of the scheme are always among
    /// them. With --record-access sampled pages are looked at, too, with 2 % of a CPU at most;
    /// without this option those alone, by the codecs of the scheme. The hash says which pages of
    /// the run hold the same, and nothing else; but who has a page in mind can compare the lengths.
    /// Each page takes the time of all codecs.
    #[arg(
        long, requires = "record", value_name = "CODEC,...", num_args = 0..=1, require_equals = true,
        default_missing_value = USUAL_CODECS.as_str(), value_parser = parse_codecs
    )]
    pub record_contents: Option<Codecs>,

    /// Say at the end what budget, scheme and swap tier the command wants: on standard error, or as
    /// TOML in FILE
    ///
    /// With FILE the budget and the command line are printed, and the reasons are in the file. Its
    /// accesses are recorded, as --record-access=20 does, and simulated when it has ended, as
    /// memfit advise does. That tells most in a budget that is never reached.
    #[arg(long, value_name = "FILE.toml", num_args = 0..=1, require_equals = true, value_hint = ValueHint::FilePath)]
    pub advise: Option<Option<PathBuf>>,

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

/// Codecs, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Codecs(pub Vec<&'static CodecEntry>);

/// Defaults of a simulation, percent and names.
const SLOWDOWN: f64 = 10.0;
const DEVICE: &str = "ssd-nvme";
const COSTS: &str = "measured";

/// All but those that take more than 50 us a page.
static USUAL_CODECS: LazyLock<String> = LazyLock::new(|| {
    let usual = CODECS.iter().filter(|codec| codec.compress_ns <= 50_000).map(|codec| codec.name);
    usual.collect::<Vec<_>>().join(",")
});

/// Options of the simulations in `memfit sim` and `memfit advise`.
#[derive(Debug, Clone, Args)]
pub struct Simulated {
    /// How much slower than without a limit a program may be, percent
    #[arg(long, value_name = "PCT", default_value_t = SLOWDOWN, value_parser = parse_slowdown)]
    pub slowdown: f64,

    /// Device of the swap tier: its name, or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = DEVICE)]
    pub device: String,

    /// What is done in RAM, and how long it takes: its name, or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = COSTS)]
    pub costs: String,

    /// Threads; without this option one a CPU
    #[arg(short, long, value_name = "N", value_parser = parse_jobs)]
    pub jobs: Option<usize>,

    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
}

impl Default for Simulated {
    fn default() -> Simulated {
        Simulated { slowdown: SLOWDOWN, device: DEVICE.into(), costs: COSTS.into(), jobs: None, quiet: false }
    }
}

impl Simulated {
    /// The longest time a program may take, as a factor of its time without a limit.
    pub fn bound(&self) -> f64 {
        1.0 + self.slowdown / 100.0
    }

    /// Workloads, schemes and tables that may be files.
    pub fn inputs<'a>(
        &'a self,
        workloads: &'a [String],
        schemes: &'a [String],
    ) -> impl Iterator<Item = (&'static str, &'a Path)> {
        let workloads = workloads.iter().map(|name| ("a workload", name));
        let schemes = schemes.iter().map(|name| ("a scheme", name));
        let tables = [("the device", &self.device), ("the table of costs", &self.costs)];
        workloads.chain(schemes).chain(tables).map(|(what, name)| (what, Path::new(name)))
    }

    /// Finds the costs and the device by their names.
    ///
    /// # Errors
    /// When there is none of that name, or a file does not describe one.
    pub fn find(&self) -> Result<(Arc<CostTable>, Arc<Device>), Failure> {
        let device = Device::find(&self.device).map_err(|error| Failure::usage(format!("--device: {error}")))?;
        let costs = CostTable::find(&self.costs).map_err(|error| Failure::usage(format!("--costs: {error}")))?;
        Ok((Arc::new(costs), Arc::new(device)))
    }
}

/// `memfit bg`
#[derive(Debug, Args)]
pub struct BackgroundArgs {
    /// See there.
    #[command(flatten)]
    pub processes: ProcessArgs,

    /// Only mark them: they leave when memory is short
    #[arg(short, long)]
    pub when_short: bool,
}

/// Which processes.
#[derive(Debug, Args)]
pub struct ProcessArgs {
    /// Processes of running trees; memfit stat -p lists them. With -c also memfit run itself
    #[arg(required = true, value_name = "PID", value_parser = value_parser!(i32).range(1..))]
    pub pids: Vec<i32>,

    /// Their descendants as well; those that end meanwhile are no failure
    #[arg(short, long)]
    pub children: bool,
}

/// `memfit sim`
#[derive(Debug, Args)]
pub struct SimArgs {
    /// Recordings of memfit run --record, or workloads that are made, such as
    /// zipf:pages=100000,skew=0.8
    #[arg(required = true, value_name = "RECORDING|WORKLOAD", value_hint = ValueHint::FilePath)]
    pub workloads: Vec<String>,

    /// Schemes to compare: presets or TOML files, 'lru' or 'optimal'
    ///
    /// Without this option a recording has its own, and a workload that is made the preset memfit.
    /// 'lru' and 'optimal' are yardsticks and no schemes: the faults of plain LRU, and the fewest
    /// that any choice of victims can have, if all of the budget were for pages, any number of
    /// pages. Of a recording they know only what the run has faulted on. See docs/yardsticks.md.
    #[arg(short, long, value_name = "NAME|FILE,...", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub scheme: Vec<String>,

    /// Budgets: bytes with K, M, G, T, or % of what the workload needs
    ///
    /// Without this option that of the recording, or 50%.
    #[arg(short, long, value_name = "SIZE|PCT,...", value_delimiter = ',', value_parser = size_parsing::parse_of_need)]
    pub memory: Vec<Size>,

    /// Numbers of the schemes to try, in all combinations; may be repeated
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = parse_override)]
    pub set: Vec<String>,

    /// Which pages are in the programs' memory: as in the recorded run at each moment, or what the
    /// scheme leaves there
    ///
    /// A recording has the faults of its run, but no touches of pages that were in memory. So its
    /// replay is exact only with the pages in memory that were there, whatever the budget: then the
    /// schemes differ in what becomes of the others. With 'simulated' touches in between are
    /// missing, and a smaller budget looks better than it is.
    #[arg(long, value_enum, value_name = "WHICH")]
    pub residents: Option<ResidentsArg>,

    /// Size of the swap tier in bytes, 4M at least; 0: there is none, as memfit run --swap none
    #[arg(long, value_name = "SIZE", value_parser = size_parsing::parse)]
    pub swap_size: Option<Size>,

    /// Write all columns to FILE as JSON; - is standard output
    ///
    /// `rows` has them. With --curve there is also `smallest`, with an object for each workload and
    /// scheme: workload, scheme, set, budget_bytes (the smallest budget that is quick enough, null
    /// if none is) and fails_bytes (the largest smaller one, which is not, null if there is none).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,

    /// Write all columns to FILE as CSV; - is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub csv: Option<PathBuf>,

    /// Write all columns to FILE as Apache Parquet
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub parquet: Option<PathBuf>,

    /// Simulate a range of budgets, and look for the smallest that keeps the programs quick enough:
    /// see --slowdown
    ///
    /// Without -m the range is 10 % to 120 % of what the workload needs.
    #[arg(long)]
    pub curve: bool,

    /// Write the results to FILE as an HTML page with figures
    #[arg(long, value_name = "FILE.html", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,

    /// See there.
    #[command(flatten)]
    pub simulated: Simulated,
}

/// `memfit advise`
#[derive(Debug, Args)]
pub struct AdviseArgs {
    /// Recordings of memfit run --record, or workloads that are made, such as
    /// zipf:pages=100000,skew=0.8
    #[arg(required = true, value_name = "RECORDING|WORKLOAD", value_hint = ValueHint::FilePath)]
    pub workloads: Vec<String>,

    /// Schemes to choose from, presets or TOML files: the first one, unless another needs clearly
    /// less
    ///
    /// Without this option memfit, zram, zswap-zsmalloc and swap.
    #[arg(short, long, value_name = "NAME|FILE,...", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub scheme: Vec<String>,

    /// Write the scheme, with the advice as comments, to FILE as TOML for memfit run -s; - is
    /// standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub toml: Option<PathBuf>,

    /// Write the advice to FILE as JSON; - is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,

    /// Write the curves behind it to FILE as an HTML page with figures
    #[arg(long, value_name = "FILE.html", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,

    /// See there.
    #[command(flatten)]
    pub simulated: Simulated,
}

/// Which pages are resident in a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ResidentsArg {
    /// As in the recorded run at each moment.
    Recorded,
    /// What the scheme leaves there.
    Simulated,
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
    /// List the running processes of each tree, too, the largest first
    ///
    /// FAULTS and EVICTED count from the beginning of the run: EVICTED is the size of all pages
    /// that left the process, each as often as it left.
    #[arg(short, long)]
    pub processes: bool,
}

/// `memfit top`
#[derive(Debug, Args)]
pub struct TopArgs {
    /// The tree to begin with: the process number that memfit stat shows, or that of any of its
    /// processes
    #[arg(value_name = "PID", value_parser = value_parser!(i32).range(1..))]
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

/// `memfit trace`
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// What to do with recordings.
    #[command(subcommand)]
    pub command: TraceCommand,
}

/// The commands of [`TraceArgs`].
#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true)]
pub enum TraceCommand {
    /// Tell what recordings hold, and whether they are whole
    ///
    /// Command, version, scheme, budget, time, processes, calls by kind, bytes. One that was cut
    /// says at which byte.
    Info(TraceInfoArgs),
    /// Replay recordings, and compare each decision with that of the run
    ///
    /// Only the version of memfit that recorded a run decides the same again; a recording of
    /// another one is refused.
    Verify(TraceVerifyArgs),
    /// Write a recording as a table, Parquet or CSV, a row for each call
    ///
    /// docs/trace.md has the columns. The table appears whole or not at all; that of a recording
    /// that was cut ends where it was cut, with a warning.
    Export(TraceExportArgs),
    /// Simulate a workload that is made, and record that
    ///
    /// The recording is like one of memfit run --record. docs/workloads.md lists the workloads.
    Generate(TraceGenerateArgs),
}

/// `memfit trace info`
#[derive(Debug, Args)]
pub struct TraceInfoArgs {
    /// Recordings
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,

    /// Print JSON, an array with one object a file
    #[arg(long)]
    pub json: bool,
}

/// `memfit trace verify`
#[derive(Debug, Args)]
pub struct TraceVerifyArgs {
    /// Recordings
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
}

/// `memfit trace export`
#[derive(Debug, Args)]
pub struct TraceExportArgs {
    /// The recording
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// A row for each page whose contents were recorded, and not for each call: see memfit run
    /// --record-contents
    #[arg(long)]
    pub contents: bool,

    /// The table: OUT.parquet or OUT.csv
    #[arg(short, long, value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,

    /// What to write, whatever the name of OUT is
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub format: Option<TableFormat>,
}

/// `memfit trace generate`
#[derive(Debug, Args)]
pub struct TraceGenerateArgs {
    /// The workload, such as zipf:pages=100000,skew=0.8
    pub workload: String,

    /// The recording
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,

    /// How pages are kept: the name of a preset or a TOML file
    #[arg(short, long, value_name = "NAME|FILE", default_value = "memfit")]
    pub scheme: String,

    /// Change a number of the scheme; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_override)]
    pub set: Vec<String>,

    /// Budget: bytes with K, M, G, T, or % of what the workload needs
    #[arg(short, long, value_name = "SIZE|PCT", default_value = "50%", value_parser = size_parsing::parse_of_need)]
    pub memory: Size,
}

/// What [`TraceExportArgs`] can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// Apache Parquet, for pandas, polars, DuckDB
    Parquet,
    /// Comma-separated text
    Csv,
}

/// `memfit report`
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// What the page shows; - is standard input
    #[arg(value_name = "PAGE.json", value_hint = ValueHint::FilePath)]
    pub page: PathBuf,

    /// The page: one HTML file that needs nothing else
    #[arg(short, long, value_name = "FILE.html", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
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

fn parse_codecs(text: &str) -> Result<Codecs, String> {
    let mut codecs = Vec::new();
    for name in text.split(',') {
        let names = || CODECS.iter().map(|codec| codec.name).collect::<Vec<_>>().join(", ");
        let meant: Vec<&CodecEntry> = CODECS.iter().filter(|codec| name == "all" || codec.name == name).collect();
        if meant.is_empty() {
            return Err(format!("there is no codec '{name}'; there are: all, {}", names()));
        }
        codecs.extend(meant.into_iter().filter(|codec| !codecs.contains(codec)).collect::<Vec<_>>());
    }
    Ok(Codecs(codecs))
}

fn parse_background(text: &str) -> Result<Automatic, String> {
    if text == "jobs" {
        return Ok(Automatic { jobs: true, idle: None });
    }
    let seconds = text.strip_prefix("idle=").ok_or("write jobs, or idle=SECONDS")?.parse::<f64>();
    let seconds = seconds.ok().filter(|seconds| (1.0..=1e6).contains(seconds));
    let idle = seconds.ok_or("the time is from 1 to 1000000 seconds, such as idle=30")?;
    Ok(Automatic { jobs: false, idle: Some(Duration::from_secs_f64(idle)) })
}

fn parse_slowdown(text: &str) -> Result<f64, String> {
    let percent =
        text.strip_suffix('%').unwrap_or(text).parse().ok().filter(|percent| (0.1..=10_000.0).contains(percent));
    percent.ok_or_else(|| "it is a percentage from 0.1 to 10000, such as 10".into())
}

fn parse_jobs(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|jobs| (1..=1024).contains(jobs)).ok_or_else(|| "it is a number from 1 to 1024".into())
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "write seconds, such as 0.5 or 2")?;
    // False for NaN as well.
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
mod tests;
