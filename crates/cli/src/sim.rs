//! `memfit sim`: recorded runs and generated programs under any scheme, in any budget.

pub mod contents;
pub mod curve;
pub mod page;
pub mod progress;
pub mod source;
pub mod table;

use crate::args::{ResidentsArg, SimArgs};
use crate::errors::Failure;
use crate::output::{distinct, OutputFile};
use crate::size_parsing::{human, Size};
use crate::swap::SWAP_BYTES_MIN;
use curve::Found;
use memfit_core::PAGE_BYTES;
use memfit_sim::cost::CostTable;
use memfit_sim::device::Device;
use memfit_sim::lru::{lru, Hits};
use memfit_sim::optimal::optimal;
use memfit_sim::{sweep, threads, BySource, Outcome, Residents, Setup};
use progress::{Part, Progress};
use source::{failed, open, KnownWorkload, RecordingInfo, Sample};
use std::path::PathBuf;
use std::sync::Arc;
use table::Row;

/// Size of the swap tier if none is given: more than any workload here has.
pub const SWAP_BYTES: u64 = 16 << 30;
/// Budget of a generated workload, percent of what it needs.
const BUDGET_PERCENT: f64 = 50.0;
/// Smallest budget that is simulated, bytes: staging alone takes 256 KiB.
pub const BUDGET_MIN: u64 = 1 << 20;
/// First budgets of a curve, in steps of a tenth of what the workload needs. They exceed it,
/// because watermarks and metadata take memory too.
pub const CURVE_STEPS: u64 = 12;
/// Parts into which each round divides the interval around the answer, and rounds: the result is
/// exact to a 36th of a first step.
pub const CLOSER_STEPS: u64 = 6;
/// See [`CLOSER_STEPS`].
pub const CLOSER_ROUNDS: usize = 2;
/// What schemes are compared with: counts of pages, without a pool and without times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Yardstick {
    /// Plain LRU.
    Lru,
    /// The fewest faults that any choice of victims can have.
    Optimal,
}

impl Yardstick {
    /// Of what stands in place of the name of a scheme.
    fn of(name: &str) -> Option<Yardstick> {
        match name {
            "lru" => Some(Yardstick::Lru),
            "optimal" => Some(Yardstick::Optimal),
            _ => None,
        }
    }
}

/// Most rows of a sweep.
const ROWS_MAX: usize = 100_000;

/// Runs the simulations and writes their results.
///
/// # Errors
/// When the command line is wrong, or a recording cannot be used.
pub fn run(args: &SimArgs) -> Result<i32, Failure> {
    let (costs, device) = args.simulated.find()?;
    let swap_bytes = match args.swap_size {
        None => SWAP_BYTES,
        Some(Size::Bytes(bytes)) if bytes == 0 || bytes >= SWAP_BYTES_MIN => bytes,
        Some(Size::Bytes(bytes)) => {
            let (size, least) = (human(bytes), human(SWAP_BYTES_MIN));
            return Err(Failure::usage(format!(
                "--swap-size {size}: it is too small; the least is {least}: use --swap-size 4M or more, or 0 for no swap tier"
            )));
        }
        Some(size) => return Err(Failure::usage(format!("--swap-size {size}: it is a number of bytes, such as 4G"))),
    };
    one_on_stdout(&[("--json", &args.json), ("--csv", &args.csv)])?;
    let sets = combinations(&args.set)?;
    let outputs = Outputs::open(args)?;
    let bound = args.simulated.bound();
    let progress = Progress::new(args.simulated.quiet);
    let sim = Sim { args, sets, costs, device, swap_bytes, progress };
    let mut all = Vec::new();
    for name in &args.workloads {
        let known = sim.examine(name)?;
        sim.warn(&known)?;
        let called = sim.setups(&known)?;
        if let Some(text) = contents::missing(&known, &called) {
            sim.progress.say(&format!("memfit: {name}: {text}"));
        }
        sim.plan(&known, &called);
        all.push((known, called));
    }
    sim.progress.begin();
    let (mut rows, mut found) = (Vec::new(), Vec::new());
    for (known, called) in &all {
        let mut own = sim.simulate(known, called)?;
        if args.curve {
            let (closer, answers) = sim.closer(known, called, own, bound)?;
            own = closer;
            found.extend(answers);
        }
        rows.extend(own);
    }
    sim.progress.end();
    outputs.write(&sim, &rows, &found)?;
    Ok(0)
}

/// Where the results go.
struct Outputs {
    json: Option<OutputFile>,
    csv: Option<OutputFile>,
    page: Option<OutputFile>,
    parquet: Option<OutputFile>,
}

fn is_stdout(path: &Option<PathBuf>) -> bool {
    path.as_ref().is_some_and(|path| path.as_os_str() == "-")
}

/// Refuses two texts for standard output, where nobody could tell them apart.
///
/// # Errors
/// When more than one of these options has `-`.
pub fn one_on_stdout(options: &[(&str, &Option<PathBuf>)]) -> Result<(), Failure> {
    let names: Vec<&str> = options.iter().filter(|(_, path)| is_stdout(path)).map(|(name, _)| *name).collect();
    match names.len() {
        0 | 1 => Ok(()),
        _ => Err(Failure::usage(format!(
            "{}: only one of them can be written to standard output; name a file for the other",
            names.iter().map(|name| format!("{name} -")).collect::<Vec<_>>().join(" and ")
        ))),
    }
}

impl Outputs {
    fn open(args: &SimArgs) -> Result<Outputs, Failure> {
        let outputs =
            [("--json", &args.json), ("--csv", &args.csv), ("--report", &args.report), ("--parquet", &args.parquet)];
        let outputs = outputs.map(|(option, path)| (option, path.as_deref()));
        distinct(&outputs, args.simulated.inputs(&args.workloads, &args.scheme))?;
        let file =
            |option, path: &Option<PathBuf>| path.as_deref().map(|path| OutputFile::open(option, path)).transpose();
        let text = |option, path| if is_stdout(path) { Ok(None) } else { file(option, path) };
        Ok(Outputs {
            json: text("--json", &args.json)?,
            csv: text("--csv", &args.csv)?,
            page: file("--report", &args.report)?,
            parquet: file("--parquet", &args.parquet)?,
        })
    }

    fn write(self, sim: &Sim<'_>, rows: &[Row], found: &[Found]) -> Result<(), Failure> {
        let (args, bound) = (sim.args, sim.args.simulated.bound());
        let json = args.json.as_ref().map(|_| (self.json, table::json(rows, args.curve.then_some(found))));
        let csv = args.csv.as_ref().map(|_| (self.csv, table::csv(rows)));
        for (file, text) in json.into_iter().chain(csv) {
            match file {
                Some(file) => file.finish(text.as_bytes())?,
                None => crate::print(&text)?,
            }
        }
        let facts = vec![
            ("device".into(), format!("{}: {}", sim.device.name, sim.device.summary)),
            ("costs in RAM".into(), format!("{}: {}", sim.costs.name, sim.costs.summary)),
            ("memfit".into(), env!("CARGO_PKG_VERSION").into()),
        ];
        if let Some(mut file) = self.parquet {
            table::parquet(rows, file.file(), &facts).map_err(|error| file.failure(&error))?;
            file.place()?;
        }
        if let Some(file) = self.page {
            let mut bytes = Vec::new();
            let written = page::page(rows, found, bound, facts).write(&mut bytes);
            written.map_err(|error| Failure::system("write the page", &error))?;
            file.finish(&bytes)?;
        }
        if !is_stdout(&args.json) && !is_stdout(&args.csv) {
            crate::print(&table::text(rows))?;
            for found in found {
                let which = if args.workloads.len() > 1 { format!("{}: ", found.workload) } else { String::new() };
                crate::print(&format!("{which}{}\n", found.says(bound)))?;
            }
        }
        Ok(())
    }
}

/// The failure for schemes that the results could not tell apart. `given`: the second one, as in
/// `-s`.
pub fn two_of_a_name(given: &str, name: &str) -> Failure {
    Failure::usage(format!(
        "-s {given}: there are two schemes of the name {name}: leave one out, or change the name in its file"
    ))
}

/// Every combination of the values of `--set KEY=VALUE,VALUE`.
fn combinations(sets: &[String]) -> Result<Vec<Vec<String>>, Failure> {
    let mut all: Vec<Vec<String>> = vec![Vec::new()];
    for set in sets {
        let (key, values) = set.split_once('=').expect("the command line wants KEY=VALUE");
        all = all
            .iter()
            .flat_map(|before| {
                values.split(',').map(|value| {
                    let mut with = before.clone();
                    with.push(format!("{key}={value}"));
                    with
                })
            })
            .collect();
        if all.len() > ROWS_MAX {
            return Err(Failure::usage(format!("--set: more than {ROWS_MAX} combinations")));
        }
    }
    Ok(all)
}

/// How to simulate a workload with its touches, when its recording has none.
fn with_touches(recorded: &RecordingInfo) -> String {
    match recorded.generated {
        true => format!("it is generated: simulate the workload itself, {}", recorded.command.join(" ")),
        false => "record it with --record-access".into(),
    }
}

/// A setup, and its names in the results.
struct NamedSetup {
    setup: Setup,
    scheme: String,
    set: String,
    /// This in place of the scheme.
    yardstick: Option<Yardstick>,
}

impl NamedSetup {
    fn label(&self) -> String {
        table::label(&self.scheme, &self.set)
    }
}

/// What all workloads share.
struct Sim<'a> {
    args: &'a SimArgs,
    sets: Vec<Vec<String>>,
    costs: Arc<CostTable>,
    device: Arc<Device>,
    swap_bytes: u64,
    progress: Progress,
}

impl Sim<'_> {
    fn examine(&self, name: &str) -> Result<KnownWorkload, Failure> {
        let args = self.args;
        let wanted = args.memory.is_empty() || args.memory.iter().any(|size| matches!(size, Size::Percent(_)));
        let Sim { costs, device, swap_bytes, progress, .. } = self;
        // A generated workload runs twice if its footprint or its progress is wanted.
        let size = wanted || args.report.is_some() || progress.is_shown();
        KnownWorkload::examine(name, costs, device, *swap_bytes, size, progress)
    }

    fn residents(&self, known: &KnownWorkload) -> Result<Residents, Failure> {
        match (self.args.residents, &known.recorded) {
            (Some(ResidentsArg::Recorded), None) => {
                Err(Failure::usage(format!("{}: was not recorded: leave --residents out", known.name)))
            }
            (Some(ResidentsArg::Recorded), Some(_)) | (None, Some(RecordingInfo { sampled: None, .. })) => {
                Ok(Residents::AsRecorded)
            }
            (Some(ResidentsArg::Simulated), _) | (None, _) => Ok(Residents::Simulated),
        }
    }

    /// The sample whose touches are simulated, and its share of all pages.
    fn sample<'a>(&self, known: &'a KnownWorkload) -> Result<(Option<Sample<'a>>, f64), Failure> {
        let simulated = self.residents(known)? == Residents::Simulated;
        Ok(match &known.recorded {
            Some(RecordingInfo { sampled: Some((sampled, rate)), noted, .. }) if simulated => {
                (Some((*sampled, noted)), rate.min(1.0))
            }
            _ => (None, 1.0),
        })
    }

    /// Warns about what a recording cannot tell.
    fn warn(&self, known: &KnownWorkload) -> Result<(), Failure> {
        let simulated = self.residents(known)? == Residents::Simulated;
        match &known.recorded {
            Some(info @ RecordingInfo { sampled: None, .. }) if simulated => self.progress.say(&format!(
                "memfit: {}: has no touches of pages that were in memory, so that all costs are too low; {}",
                known.name,
                with_touches(info)
            )),
            Some(info @ RecordingInfo { sampled: None, .. }) if self.args.curve || !self.args.memory.is_empty() => {
                self.progress.say(&format!(
                    "memfit: {}: the pages in memory are those of the run in every budget, as the recording has no touches \
                     of them; {}",
                    known.name,
                    with_touches(info)
                ));
            }
            _ => {}
        }
        Ok(())
    }

    fn budgets(&self, known: &KnownWorkload) -> Result<Vec<u64>, Failure> {
        let args = self.args;
        let percent = |percent: f64| Size::Percent(percent).resolve(known.footprint * PAGE_BYTES);
        let no_scheme = !args.scheme.is_empty() && args.scheme.iter().all(|name| Yardstick::of(name).is_some());
        let least = if no_scheme { PAGE_BYTES } else { BUDGET_MIN };
        let mut budgets: Vec<u64> = match &known.recorded {
            _ if !args.memory.is_empty() => {
                args.memory.iter().map(|size| size.resolve(known.footprint * PAGE_BYTES)).collect()
            }
            _ if args.curve => (1..=CURVE_STEPS).map(|i| percent(10.0 * i as f64).max(least)).collect(),
            Some(RecordingInfo { budget, .. }) => vec![*budget],
            None => vec![percent(BUDGET_PERCENT).max(least)],
        };
        if args.memory.is_empty() {
            budgets.dedup();
        }
        match budgets.iter().find(|&&budget| budget < least) {
            Some(small) => {
                Err(Failure::usage(format!("-m: {} is too small: at least {}", human(*small), human(least))))
            }
            None => Ok(budgets),
        }
    }

    /// Every scheme with each combination of settings, in every budget.
    fn setups(&self, known: &KnownWorkload) -> Result<Vec<NamedSetup>, Failure> {
        let (residents, budgets) = (self.residents(known)?, self.budgets(known)?);
        let (_, rate) = self.sample(known)?;
        let own = known.recorded.as_ref().map(|of| Arc::clone(&of.scheme));
        let names = if self.args.scheme.is_empty() { vec![String::new()] } else { self.args.scheme.clone() };
        let none = vec![Vec::new()];
        let mut all = Vec::new();
        for name in &names {
            let (given, yardstick, before) = (name, Yardstick::of(name), all.len());
            for set in if yardstick.is_some() { &none } else { &self.sets } {
                let name = if yardstick.is_some() { "memfit" } else { name };
                let scheme = match (name, &own) {
                    ("", Some(own)) => crate::run::scheme_of(&own.name, &memfit_scheme::to_toml(own), set)?,
                    ("", None) => crate::run::scheme("memfit", set)?,
                    (name, _) => crate::run::scheme(name, set)?,
                };
                let scheme = Arc::new(scheme);
                let called = if yardstick.is_some() { given } else { &scheme.name };
                if all[..before].iter().any(|other: &NamedSetup| other.scheme == *called) {
                    return Err(two_of_a_name(given, called));
                }
                for &budget in &budgets {
                    let setup = Setup {
                        scheme: Arc::clone(&scheme),
                        budget,
                        swap_bytes: self.swap_bytes,
                        residents,
                        rate,
                        tables_per_frame: 0,
                        costs: Arc::clone(&self.costs),
                        device: Arc::clone(&self.device),
                    };
                    all.push(NamedSetup { setup, scheme: called.clone(), set: set.join(" "), yardstick });
                }
            }
        }
        if all.len() > ROWS_MAX {
            return Err(Failure::usage(format!("more than {ROWS_MAX} combinations of schemes, numbers and sizes")));
        }
        Ok(all)
    }

    /// The work of these simulations: of the schemes, and of each yardstick.
    fn parts(known: &KnownWorkload, called: &[NamedSetup]) -> [Part; 3] {
        [None, Some(Yardstick::Lru), Some(Yardstick::Optimal)].map(|yardstick| {
            let simulations = called.iter().filter(|called| called.yardstick == yardstick).count() as u64;
            let events = if simulations > 0 { known.events } else { 0 };
            Part { simulations, events, at_once: yardstick.is_some() }
        })
    }

    fn plan(&self, known: &KnownWorkload, called: &[NamedSetup]) {
        Self::parts(known, called).into_iter().for_each(|part| self.progress.plan(part));
        if self.args.curve {
            self.progress.plan(Self::closer_at_most(known, called));
        }
    }

    /// The most work that the closer search can take.
    fn closer_at_most(known: &KnownWorkload, called: &[NamedSetup]) -> Part {
        let mut names: Vec<String> = called.iter().map(NamedSetup::label).collect();
        names.sort_unstable();
        names.dedup();
        let simulations = CLOSER_ROUNDS as u64 * (CLOSER_STEPS - 1) * names.len() as u64;
        Part { simulations, events: known.events, at_once: false }
    }

    fn simulate(&self, known: &KnownWorkload, called: &[NamedSetup]) -> Result<Vec<Row>, Failure> {
        let computing = known.recorded.as_ref().map_or(1.0, |of| of.computing);
        let (only, rate) = self.sample(known)?;
        let setups: Vec<Setup> =
            called.iter().filter(|called| called.yardstick.is_none()).map(|called| called.setup.clone()).collect();
        let jobs = self.args.simulated.jobs.unwrap_or(threads(setups.len()));
        let [machines, plain_lru, optimum] = Self::parts(known, called);
        let progress = &self.progress;
        let mut outcomes = Vec::new();
        if !setups.is_empty() {
            let mut source = open(&known.source, computing, only)?;
            let swept = sweep(&mut *source, &setups, jobs, &mut |far| progress.show(&known.name, machines, far));
            outcomes = swept.map_err(|error| failed(&known.name, &error))?;
            progress.done(machines);
        }
        let wants = |yardstick| called.iter().any(|called| called.yardstick == Some(yardstick));
        let (mut curve, mut future) = (None, None);
        // One run of its own gives all sizes.
        if wants(Yardstick::Lru) {
            let mut source = open(&known.source, computing, only)?;
            let seen = lru(&mut *source, &mut |far| progress.show(&known.name, plain_lru, far));
            curve = Some(seen.map_err(|error| failed(&known.name, &error))?);
            progress.done(plain_lru);
        }
        if wants(Yardstick::Optimal) {
            let mut source = open(&known.source, computing, only)?;
            let seen = optimal(&mut *source, &mut |far| progress.show(&known.name, optimum, far));
            future = Some(seen.map_err(|error| failed(&known.name, &error))?);
            progress.done(optimum);
        }
        let hits = |called: &NamedSetup| {
            let pages = (called.setup.budget as f64 * rate) as u64 / PAGE_BYTES;
            match called.yardstick? {
                Yardstick::Lru => curve.as_ref().map(|curve| curve.hits(pages)),
                Yardstick::Optimal => future.as_ref().map(|future| future.hits(pages)),
            }
        };
        let mut outcomes = outcomes.into_iter();
        let outcomes = called.iter().map(|called| match hits(called) {
            Some(hits) => counted(hits, rate),
            None => outcomes.next().expect("one for each setup"),
        });
        let row = |(called, outcome): (&NamedSetup, _)| Row {
            workload: known.name.clone(),
            scheme: called.scheme.clone(),
            set: called.set.clone(),
            budget: called.setup.budget,
            footprint: known.footprint * PAGE_BYTES,
            outcome,
            counted: called.yardstick.is_some(),
        };
        Ok(called.iter().zip(outcomes).map(row).collect())
    }

    /// Simulates more budgets where the bound is crossed.
    fn closer(
        &self,
        known: &KnownWorkload,
        first: &[NamedSetup],
        mut rows: Vec<Row>,
        bound: f64,
    ) -> Result<(Vec<Row>, Vec<Found>), Failure> {
        let mut spare = Self::closer_at_most(known, first);
        for _ in 0..CLOSER_ROUNDS {
            let mut more = Vec::new();
            for found in curve::find(&rows, bound) {
                let is_it = |called: &&NamedSetup| (&called.scheme, &called.set) == (&found.scheme, &found.set);
                let Some(like) = first.iter().find(is_it) else { continue };
                more.extend(curve::between(&found, CLOSER_STEPS).into_iter().map(|budget| NamedSetup {
                    setup: Setup { budget, ..like.setup.clone() },
                    scheme: like.scheme.clone(),
                    set: like.set.clone(),
                    yardstick: like.yardstick,
                }));
            }
            if more.is_empty() {
                break;
            }
            // The actual work replaces the planned one.
            let planned = Part { simulations: more.len() as u64, ..spare };
            spare.simulations -= planned.simulations;
            self.progress.give_up(planned);
            Self::parts(known, &more).into_iter().for_each(|part| self.progress.plan(part));
            rows.extend(self.simulate(known, &more)?);
        }
        self.progress.give_up(spare);
        let found = curve::find(&rows, bound);
        let place = |row: &Row| found.iter().position(|found| found.is_of(row));
        rows.sort_by_key(|row| (place(row), row.budget));
        Ok((rows, found))
    }
}

/// Converts the hits and misses of a yardstick into an outcome.
fn counted(hits: Hits, rate: f64) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.tally.touches = hits.touches;
    // A yardstick does not know the source of a refault.
    outcome.tally.faults = BySource { zero: hits.cold, swap: hits.misses(), ..BySource::default() };
    outcome.tally = outcome.tally.times(1.0 / rate);
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_several_keys_are_combined() {
        let sets = ["a=1,2".to_owned(), "b=x,y,z".to_owned(), "c=7".to_owned()];
        let all = combinations(&sets).unwrap();
        assert_eq!(all.len(), 6);
        assert_eq!(all[0], ["a=1", "b=x", "c=7"]);
        assert_eq!(all[5], ["a=2", "b=z", "c=7"]);
        assert_eq!(combinations(&[]).unwrap(), [Vec::<String>::new()]);
        let many: Vec<String> = (0..20).map(|i| format!("k{i}=1,2")).collect();
        assert_eq!(combinations(&many).unwrap_err().code, 2);
    }
}
