//! `memfit run`: turns the options into a plan and checks it before anything starts.

use crate::advise::AtEnd;
use crate::args::RunArgs;
use crate::checks::{self, Check, Status};
use crate::errors::{tell, Failure};
use crate::launcher::{self, Plan};
use crate::output::{distinct, OutputFile, RecordFile};
use crate::preload::{self, FALLBACK_VARIABLE, PID_VARIABLE, SOCKET_VARIABLE};
use crate::size_parsing::{human, Size};
use crate::{swap, Serve};
use memfit_core::scheme::{Classes, Scheme};
use memfit_os::exec::Executable;
use memfit_os::limits::{self, CgroupLimit};
use memfit_os::probe::{self, feature};
use memfit_os::process::{self, InheritedDescriptors, InheritedState};
use memfit_os::{procfs, seqpacket};
use memfit_pager::config::{Automatic, SwapChoice};
use memfit_pager::places::{places, SwapPlace};
use memfit_scheme::PRESETS;
use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// The smallest accepted budget, bytes. Staging, the pager's own memory and the program's loader
/// use most of it.
pub const BUDGET_MIN_BYTES: u64 = 16 << 20;
/// Default limit of the time that page faults on sampled pages may take, percent: with
/// `--record-access`, and with `--advise`, which needs more samples.
const ACCESS_PERCENT: u32 = 5;
const ADVICE_PERCENT: u32 = 20;
/// Default budget, percent of the control group's limit without memfit's code. The rest is for page
/// tables, files and the kernel.
const CGROUP_PERCENT: u64 = 90;
/// The part of memfit's code that a run uses and keeps in memory, percent: 2.8 of 5.8 MiB in a
/// release build.
const CODE_USED_PERCENT: u64 = 50;
/// Default budget, percent of RAM. The rest is for other programs.
const RAM_PERCENT: u64 = 75;

/// How long a nested run waits for room in the queue of a pager whose launcher it cannot see.
const FULL_QUEUE_LASTS: Duration = Duration::from_secs(5);
const FULL_QUEUE_POLL: Duration = Duration::from_millis(20);

/// What this process inherited from its parent and hands on to the command.
pub struct Inherited {
    /// Signals, timers and limits.
    pub state: InheritedState,
    /// Open files.
    pub descriptors: InheritedDescriptors,
}

impl Inherited {
    /// Reads it; must be called before anything else.
    ///
    /// # Errors
    /// When the system calls fail.
    pub fn note() -> Result<Self, Failure> {
        let state = InheritedState::note().map_err(|error| Failure::system("read the signal mask", &error))?;
        Ok(Self { state, descriptors: InheritedDescriptors::note() })
    }
}

/// Runs the command and gives its exit status.
///
/// # Errors
/// When the command could not be run, or the run had to be ended.
pub fn run(args: &RunArgs, mut inherited: Inherited, serve: Serve) -> Result<i32, Failure> {
    inherited.state.take_timers();
    if outer_run_lives(args) {
        note(args, "joins the run that it is started in, whose budget holds; its own options are not used");
        tell_not_written(args, "this run joins another one; give the option to that one");
        return Err(execute(args, &inherited, env_with_stub()));
    }
    files_are_distinct(args)?;
    let missing = checks::kernel().into_iter().find(|check| check.status == Status::Missing);
    if let Some(check) = missing.as_ref().filter(|_| args.best_effort) {
        return Err(unmanaged(args, &inherited, check));
    }
    // A wrong command line is told before what this machine lacks.
    let budget = Budget::choose(args.memory)?;
    let swap_size = args.swap.size(budget.base_bytes)?;
    let (swap_writes, endurance) = (args.swap.writes()?, args.swap.endurance()?);
    if let Some(check) = missing {
        return Err(refusal(&check));
    }
    // The pager fills our descriptor table.
    inherited.state.raise_descriptor_limit();
    let swap = swap::choose(&args.swap.places, args.swap.overwrite)?;
    if let SwapChoice::Paths(paths) = &swap {
        paths.iter().filter_map(|path| swap::remote(path)).for_each(|text| note(args, &text));
    }
    let scheme = scheme_with_files(args)?;
    let stub = preload::find_stub()?;
    let stats = args.stats.as_deref().map(|path| OutputFile::open("--stats", path)).transpose()?;
    let report = args.report.as_deref().map(|path| OutputFile::open("--report", path)).transpose()?;
    let mut record = args.record.as_deref().map(|path| RecordFile::open("--record", path)).transpose()?;
    let advice = args.advise.as_ref().map(|file| AtEnd::prepare(file.as_deref(), args, &mut record)).transpose()?;
    let record_access = match (args.record_access, &advice) {
        (Some(percent), _) => Some(percent.unwrap_or(ACCESS_PERCENT)),
        (None, Some(_)) => Some(ADVICE_PERCENT),
        (None, None) => None,
    };
    let turn_ms = args.shortage.turn_ms(&scheme);
    tell_setup(args, &budget, &swap, &places(&swap, swap_size, scheme.swap_format.kind));
    let state = inherited.state;
    let ended = launcher::run(Plan {
        budget_bytes: budget.bytes,
        scheme,
        swap,
        swap_size,
        swap_writes,
        lock_pool: args.swap.lock_pool,
        endurance,
        on_full: args.shortage.on_full.into(),
        protect: args.shortage.protect.clone(),
        turn_ms,
        automatic: automatic(&args.background),
        quiet: args.quiet,
        verbose: args.verbose,
        command: args.command.clone(),
        stub,
        stats,
        report,
        record,
        record_access,
        record_contents: args.record_contents.clone().map_or(Vec::new(), |codecs| codecs.0),
        advise: advice.is_some(),
        inherited,
        serve,
    })?;
    if let Some(advice) = advice.filter(|_| ended.wholly) {
        // Advice can take a while, and no command is left to forward signals to.
        state.restore_mask();
        advice.tell(ended.peak);
    }
    Ok(ended.code)
}

/// Replaces this process by the command, without a budget; gives the failure.
fn unmanaged(args: &RunArgs, inherited: &Inherited, check: &Check) -> Failure {
    tell(&format!("runs the command unmanaged, without a budget: {}: {}", check.name, check.detail));
    tell_not_written(args, "the command runs unmanaged");
    execute(args, inherited, env::vars_os().collect())
}

/// No output replaces another one, or what the run needs.
fn files_are_distinct(args: &RunArgs) -> Result<(), Failure> {
    let advice = args.advise.as_ref().and_then(Option::as_deref);
    let (stats, report, record) = (args.stats.as_deref(), args.report.as_deref(), args.record.as_deref());
    let scheme = args.scheme.as_deref().map(|name| ("the scheme", Path::new(name)));
    distinct(
        &[("--stats", stats), ("--report", report), ("--record", record), ("--advise", advice)],
        args.swap.places.iter().map(|place| ("a place of --swap", &**place)).chain(scheme),
    )
}

/// The budget and where it comes from.
#[derive(Debug, PartialEq, Eq)]
struct Budget {
    bytes: u64,
    /// What 100 % means, bytes.
    base_bytes: u64,
    /// Name of the base, for messages.
    base: String,
}

impl Budget {
    fn choose(option: Option<Size>) -> Result<Self, Failure> {
        let ram_bytes = limits::total_ram_bytes()
            .ok_or_else(|| Failure::here("the kernel does not tell the amount of RAM; is /proc mounted?"))?;
        let default = option.is_none();
        let code_used = if default { memfit_os::memory::code_bytes() / 100 * CODE_USED_PERCENT } else { 0 };
        Self::from(option, ram_bytes, limits::cgroup_limit(), code_used)
    }

    fn from(option: Option<Size>, ram_bytes: u64, limit: Option<CgroupLimit>, code_used: u64) -> Result<Self, Failure> {
        let (base_bytes, base, default_percent, kept) = match limit {
            Some(limit) if limit.bytes < ram_bytes => {
                (limit.bytes, format!("the control group's limit of {}", human(limit.bytes)), CGROUP_PERCENT, code_used)
            }
            _ => (ram_bytes, format!("{} of RAM", human(ram_bytes)), RAM_PERCENT, 0),
        };
        let default = base_bytes.saturating_sub(kept) / 100 * default_percent;
        let bytes = option.map_or(default, |size| size.resolve(base_bytes));
        if bytes < BUDGET_MIN_BYTES {
            let least = human(BUDGET_MIN_BYTES);
            return Err(Failure::usage(match option {
                Some(size) => format!(
                    "-m {size}: a budget of {} is too small to start with; the least is {least}: use -m 16M or more",
                    human(bytes)
                ),
                None => format!(
                    "{default_percent} % of {base} is less than {least}, the least budget; raise that limit, or set a \
                     budget with -m 16M or more"
                ),
            }));
        }
        Ok(Self { bytes, base_bytes, base })
    }
}

/// All of them together; of several times the shortest.
fn automatic(all: &[Automatic]) -> Automatic {
    Automatic { jobs: all.iter().any(|of| of.jobs), idle: all.iter().filter_map(|of| of.idle).min() }
}

/// The preset of that name, or the file, with overrides.
pub(crate) fn scheme(name: &str, overrides: &[String]) -> Result<Scheme, Failure> {
    let is_file = name.contains('/') || Path::new(name).extension().is_some_and(|extension| extension == "toml");
    let text = match PRESETS.iter().find(|preset| preset.name == name) {
        Some(preset) if !is_file => preset.text.to_owned(),
        _ if is_file => std::fs::read_to_string(name)
            .map_err(|error| Failure::system(&format!("read the scheme {name}"), &error))?,
        _ => {
            let names = PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ");
            let file =
                if Path::new(name).exists() { format!("the file of that name is ./{name}; ") } else { String::new() };
            let advice = "the path of a file contains a / or ends in .toml";
            return Err(Failure::usage(format!("there is no scheme {name}; {file}there are: {names}; {advice}")));
        }
    };
    scheme_of(name, &text, overrides)
}

/// The scheme of this text, with overrides. Says which names in it are old.
pub(crate) fn scheme_of(name: &str, text: &str, overrides: &[String]) -> Result<Scheme, Failure> {
    let mut notes = Vec::new();
    let scheme = memfit_scheme::parse_noting(text, overrides, &mut notes)
        .map_err(|error| Failure::usage(format!("scheme {name}: {error}")))?;
    for note in notes {
        tell(&format!("scheme {name}: {note}"));
    }
    Ok(scheme)
}

/// The scheme of the options.
fn scheme_with_files(args: &RunArgs) -> Result<Scheme, Failure> {
    let name = args.scheme.as_deref().unwrap_or("memfit");
    let chosen = scheme(name, &args.set)?;
    let has_files = chosen.classes != Classes::Anonymous;
    if (args.files || has_files) && !probe::can_enable(feature::EVENT_FORK) {
        let what = if args.files { "--files".into() } else { format!("scheme {name}") };
        note(args, &format!("{what}: without CAP_SYS_PTRACE the kernel keeps the pages of files"));
    }
    if !args.files || has_files {
        return Ok(chosen);
    }
    scheme_of(name, &memfit_scheme::to_toml(&chosen), &["classes=file-pooled".into()])
}

fn note(args: &RunArgs, text: &str) {
    if !args.quiet {
        tell(text);
    }
}

/// Warns, also with --quiet: the user expects these files.
fn tell_not_written(args: &RunArgs, why: &str) {
    for (option, path, what) in [
        ("--stats", &args.stats, "no statistics are written"),
        ("--report", &args.report, "no page is written"),
        ("--record", &args.record, "nothing is recorded"),
    ] {
        if let Some(path) = path {
            tell(&format!("{option} {}: {what}: {why}", path.display()));
        }
    }
    if args.advise.is_some() {
        tell(&format!("--advise: no advice is given: {why}"));
    }
}

fn tell_setup(args: &RunArgs, budget: &Budget, swap: &SwapChoice, places: &[SwapPlace]) {
    if budget.bytes > budget.base_bytes {
        let (own, base) = (human(budget.bytes), &budget.base);
        note(args, &format!("the budget of {own} exceeds {base}: the kernel may run out of memory first"));
    }
    let scheme = args.scheme.as_deref().unwrap_or("memfit");
    swap::small(places, args.swap.has_size(), scheme).iter().for_each(|text| note(args, text));
    if args.verbose {
        let mut swap = swap::place_names(swap);
        if !places.is_empty() {
            swap = format!("{swap}, {}", swap::sizes(places));
        }
        let share = percent(budget.bytes as f64 * 100.0 / budget.base_bytes as f64);
        let bytes = human(budget.bytes);
        note(args, &format!("budget {bytes} ({share} of {}), scheme {scheme}, swap {swap}", budget.base));
    }
}

/// Two digits of small shares.
fn percent(share: f64) -> String {
    match share {
        ..0.095 => "less than 0.1 %".into(),
        ..9.95 => format!("{share:.1} %"),
        _ => format!("{share:.0} %"),
    }
}

fn refusal(check: &Check) -> Failure {
    let fix = check.fix.as_deref().unwrap_or("see memfit doctor");
    Failure::here(format!(
        "cannot run: {}: {}\n  fix: {fix}\n  memfit doctor tells more; --best-effort runs the command without a budget",
        check.name, check.detail
    ))
}

/// Whether this process belongs to the tree of a pager that still listens.
fn outer_run_lives(args: &RunArgs) -> bool {
    let Some(name) = env::var(SOCKET_VARIABLE).ok().filter(|name| !name.is_empty()) else { return false };
    let launcher_lives = || {
        let user = env::var(PID_VARIABLE).ok().and_then(|pid| procfs::user(pid.parse().ok()?));
        user.is_some_and(process::is_root_or_own)
    };
    let mut is_full = false;
    let mut lives = |connect: &dyn Fn() -> io::Result<OwnedFd>| {
        let deadline = Instant::now() + FULL_QUEUE_LASTS;
        loop {
            match connect() {
                // As for the stub: any user can bind the name of a pager that has ended.
                Ok(socket) => break seqpacket::peer(socket.as_fd()).is_ok_and(|(uid, _)| process::is_root_or_own(uid)),
                // The queue is full: the pager's, or that of another user who has taken the name.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && launcher_lives() => break true,
                // From another PID namespace nobody can see the launcher.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                    std::thread::sleep(FULL_QUEUE_POLL);
                }
                Err(error) => {
                    is_full |= error.kind() == io::ErrorKind::WouldBlock;
                    break false;
                }
            }
        }
    };
    // In another network namespace the abstract name is unknown.
    let place = env::var_os(FALLBACK_VARIABLE).map(|place| Path::new(&place).join("s"));
    let joins =
        lives(&|| seqpacket::connect_abstract(&name)) || place.is_some_and(|at| lives(&|| seqpacket::connect_at(&at)));
    if is_full && !joins {
        note(args, "the pager of the outer run does not answer; this run has a budget of its own");
    }
    joins
}

/// Our environment with the stub preloaded, even if a process between the outer run and this one
/// removed it.
fn env_with_stub() -> Vec<(OsString, OsString)> {
    match preload::find_stub() {
        Ok(stub) => preload::environment(&stub, &[]),
        Err(_) => env::vars_os().collect(),
    }
}

/// Replaces this process by the command; gives the failure.
fn execute(args: &RunArgs, inherited: &Inherited, environment: Vec<(OsString, OsString)>) -> Failure {
    match Executable::new(&args.command, environment, env::var_os("PATH").as_deref()) {
        Ok(executable) => Failure::command(&args.command[0], executable.execute(&inherited.state)),
        Err(error) => Failure::system("prepare the command", &error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(bytes: u64) -> Option<CgroupLimit> {
        Some(CgroupLimit { bytes, source: "/x".into() })
    }

    #[test]
    fn default_budgets() {
        let bytes = |ram: u64, limit| Budget::from(None, ram, limit, 0).unwrap().bytes;
        assert_eq!(bytes(100 << 30, None), (100 << 30) / 100 * 75);
        assert_eq!(bytes(100 << 30, limit(10 << 30)), (10 << 30) / 100 * 90);
        let with_code = Budget::from(None, 100 << 30, limit(100 << 20), 10 << 20).unwrap().bytes;
        assert_eq!(with_code, (90 << 20) / 100 * 90);
        assert_eq!(bytes(100 << 30, limit(200 << 30)), (100 << 30) / 100 * 75, "a limit above RAM limits nothing");
    }

    #[test]
    fn percentages_are_of_the_same_base() {
        let half = Some(Size::Percent(50.0));
        assert_eq!(Budget::from(half, 8 << 30, limit(2 << 30), 3 << 20).unwrap().bytes, 1 << 30);
        assert_eq!(Budget::from(half, 8 << 30, None, 3 << 20).unwrap().bytes, 4 << 30);
    }

    #[test]
    fn small_shares_are_not_nothing() {
        assert_eq!([0.01, 0.2, 9.94, 75.0].map(percent), ["less than 0.1 %", "0.2 %", "9.9 %", "75 %"]);
    }

    #[test]
    fn too_small_to_start() {
        let error = |option, ram, limit| Budget::from(option, ram, limit, 0).unwrap_err();
        let small = error(Some(Size::Bytes(BUDGET_MIN_BYTES - 1)), 8 << 30, None);
        assert_eq!(small.code, 2);
        assert!(small.message.contains("the least is 16 MiB"), "{small}");
        assert!(error(Some(Size::Percent(0.1)), 8 << 30, None).message.starts_with("-m 0.1%: a budget of 8.2 MiB"));
        assert!(error(None, 8 << 30, limit(10 << 20)).message.contains("control group's limit of 10 MiB"));
        assert!(Budget::from(Some(Size::Bytes(BUDGET_MIN_BYTES)), 8 << 30, None, 0).is_ok());
    }

    #[test]
    fn a_scheme_is_a_preset_or_a_file() {
        assert_eq!(scheme("zram", &[]).unwrap().name, "zram");
        let error = scheme("zramm", &[]).unwrap_err();
        assert!(
            error.code == 2 && error.message.contains("there is no scheme zramm; there are: memfit, swap"),
            "{error}"
        );
        let error = scheme("/proc/version", &[]).unwrap_err();
        assert!(error.code == 2 && error.message.starts_with("scheme /proc/version: line 1: "), "{error}");
        assert!(scheme("nonexistent.toml", &[]).unwrap_err().message.contains("No such file"));
    }
}
