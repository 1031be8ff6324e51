//! `memfit advise`: what budget, scheme and swap tier a program wants, what it would cost with
//! less, and why.
//!
//! The answer comes from simulations: of each scheme to choose from the smallest budget that keeps
//! the program quick enough, by the curves of `memfit sim --curve`. Several recordings are of one
//! program, which gets what the worst of them wants.

mod at_end;
mod choice;
mod files;
mod subject;
#[cfg(test)]
mod tests;
mod words;

pub use at_end::AtEnd;

use crate::args::{AdviseArgs, Simulated};
use crate::errors::Failure;
use crate::output::OutputFile;
use crate::run::BUDGET_MIN_BYTES;
use crate::sim::curve::{find, Found};
use crate::sim::page;
use crate::sim::table::Row;
use crate::sim::BUDGET_MIN;
use choice::{contents, in_swap, most_evicted, swap_size, whole, Contents};
use files::{json, toml};
use memfit_core::scheme::Scheme;
use memfit_sim::cost::CostTable;
use memfit_sim::device::Device;
use memfit_sim::Outcome;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use subject::{Basis, Subject, Wanted};
use words::text;

/// What a user would choose from: everything of ours, compressed RAM alone or before a swap device,
/// and a swap device alone.
const SCHEMES: [&str; 4] = ["memfit", "zram", "zswap-zsmalloc", "swap"];
/// Smaller budgets that are told of, percent of the one that is advised.
const LESS_PERCENT: [u64; 2] = [75, 50];

/// What is asked.
pub struct Options<'a> {
    /// On what it is simulated, and how much slower the program may be.
    pub simulated: Simulated,
    /// What may be advised; the first one unless another is clearly better.
    pub schemes: Vec<Arc<Scheme>>,
    /// What is done in RAM.
    pub costs: Arc<CostTable>,
    /// Where the swap tier is.
    pub device: Arc<Device>,
    /// The scheme's TOML, for the command line.
    pub toml: Option<&'a Path>,
}

impl<'a> Options<'a> {
    /// Those of a run: everything as it is without options.
    ///
    /// # Errors
    /// None that is built in can be read.
    pub fn of_run(quiet: bool, toml: Option<&'a Path>) -> Result<Options<'a>, Failure> {
        Options::new(&Simulated { quiet, ..Simulated::default() }, &[], toml)
    }

    fn new(simulated: &Simulated, schemes: &[String], toml: Option<&'a Path>) -> Result<Options<'a>, Failure> {
        let (costs, device) = simulated.find()?;
        let names = match schemes.is_empty() {
            true => SCHEMES.iter().map(|name| (*name).to_owned()).collect(),
            false => schemes.to_vec(),
        };
        let mut schemes: Vec<Arc<Scheme>> = Vec::new();
        for name in &names {
            let scheme = crate::run::scheme(name, &[])?;
            if schemes.iter().any(|other| other.name == scheme.name) {
                return Err(Failure::usage(format!("-s {name}: there are two schemes of the name {}", scheme.name)));
            }
            schemes.push(Arc::new(scheme));
        }
        Ok(Options { simulated: simulated.clone(), schemes, costs, device, toml })
    }
}

/// A budget, and what it costs.
pub struct Cost {
    /// What it is of the advised budget, percent; `None`: it has room for everything.
    pub percent: Option<u64>,
    /// Bytes.
    pub budget: u64,
    /// What came of it.
    pub outcome: Outcome,
}

/// What one of the workloads wants.
pub struct Need {
    /// Which.
    pub subject: Subject,
    /// The budget, bytes; all that it has if no smaller one keeps the bound.
    pub budget: u64,
    /// Bytes that the bound alone would want, in the simulation.
    pub by_bound: Option<u64>,
    /// It was simulated in this budget, bytes: without what is needed besides.
    pub simulated: u64,
    /// What came of that.
    pub outcome: Outcome,
    /// By scheme: the smallest budgets.
    pub found: Vec<Found>,
    /// All that was simulated.
    pub rows: Vec<Row>,
}

impl Need {
    /// Bytes that it needs besides its pages.
    fn besides(&self) -> u64 {
        self.subject.besides(&self.outcome)
    }

    /// Bytes that it has at most.
    fn has(&self) -> u64 {
        self.subject.footprint() + self.besides()
    }

    /// Bytes with which nothing needs to be paged: with what the scheme keeps free.
    fn all(&self, scheme: &Scheme) -> u64 {
        whole(self.has() * 100 / (100 - u64::from(scheme.sizing.high_percent)))
    }
}

/// The answer.
pub struct Advice {
    /// How much slower it may be, percent.
    pub slowdown: f64,
    /// What decides.
    pub scheme: Arc<Scheme>,
    /// Budget, bytes.
    pub budget: u64,
    /// The device that was simulated.
    pub device: Arc<Device>,
    /// Each workload, the one that wants most first.
    pub needs: Vec<Need>,
    /// What budgets cost the first one.
    pub costs: Vec<Cost>,
    /// Time in terms of that without a limit, in that budget without a swap tier, if all fits.
    pub without_swap: Option<f64>,
    /// Most that was in the pool, bytes.
    pub pool: u64,
    /// Most that was in the swap tier, bytes.
    pub swap: u64,
    /// What its pages hold.
    pub contents: Contents,
}

impl Advice {
    /// The workload that wants most.
    pub fn worst(&self) -> &Need {
        &self.needs[0]
    }

    /// Size of the swap tier, bytes; `None`: nothing goes there.
    pub fn swap_size(&self) -> Option<u64> {
        swap_size(self.swap)
    }

    /// Bytes that it has at most.
    pub fn has(&self) -> u64 {
        self.worst().has()
    }

    /// Bytes with which nothing needs to be paged.
    pub fn all(&self) -> u64 {
        self.worst().all(&self.scheme)
    }

    /// Whether it makes sense to give it less than everything.
    pub fn saves(&self) -> bool {
        self.budget < self.all()
    }
}

/// Advises, and writes what was asked for.
///
/// # Errors
/// When the command line is wrong, a recording cannot be used or cannot tell, or a file cannot be
/// written.
pub fn run(args: &AdviseArgs) -> Result<i32, Failure> {
    let is_stdout = |path: &Path| path.as_os_str() == "-";
    let file = args.toml.as_deref().filter(|path| !is_stdout(path));
    let options = Options::new(&args.simulated, &args.scheme, file)?;
    let open = |option, path: &Option<PathBuf>| match path.as_deref() {
        Some(path) if !is_stdout(path) => OutputFile::open(option, path).map(Some),
        _ => Ok(None),
    };
    let files = [open("--toml", &args.toml)?, open("--json", &args.json)?];
    let page = args.report.as_deref().map(|path| OutputFile::open("--report", path)).transpose()?;
    let mut subjects = Vec::new();
    for name in &args.workloads {
        subjects.push(Subject::look(name, &options)?);
    }
    let advice = advise(subjects, &options)?;
    let mut printed = false;
    for (file, (path, made)) in
        files.into_iter().zip([(&args.toml, toml(&advice, &options)), (&args.json, json(&advice, &options))])
    {
        match (file, path) {
            (Some(file), _) => file.finish(made.as_bytes())?,
            (None, Some(_)) => {
                printed = true;
                crate::print(&made)?;
            }
            (None, None) => {}
        }
    }
    if let Some(file) = page {
        file.finish(&figures(&advice, &options)?)?;
    }
    if !printed {
        crate::print(&text(&advice, &options))?;
    }
    Ok(0)
}

fn figures(advice: &Advice, options: &Options<'_>) -> Result<Vec<u8>, Failure> {
    let rows: Vec<Row> = advice.needs.iter().flat_map(|need| &need.rows).cloned().collect();
    let found: Vec<Found> = advice.needs.iter().flat_map(|need| need.found.clone()).collect();
    let facts = vec![
        ("advice".into(), words::headline(advice)),
        ("device".into(), format!("{}: {}", options.device.name, options.device.summary)),
        ("costs in RAM".into(), format!("{}: {}", options.costs.name, options.costs.summary)),
        ("memfit".into(), env!("CARGO_PKG_VERSION").into()),
    ];
    let mut bytes = Vec::new();
    let written = page::page(&rows, &found, options.simulated.bound(), facts).write(&mut bytes);
    written.map_err(|error| Failure::system("write the page", &error))?;
    Ok(bytes)
}

/// What these want together.
fn advise(mut subjects: Vec<Subject>, options: &Options<'_>) -> Result<Advice, Failure> {
    leave_out_what_cannot_tell(&mut subjects);
    let mut curves = Vec::new();
    for subject in subjects {
        let rows = subject.curves(options, options.simulated.bound())?;
        curves.push((subject, find(&rows, options.simulated.bound()), rows));
    }
    let found: Vec<&[Found]> = curves.iter().map(|(_, found, _)| &**found).collect();
    // Where nobody knows what pages hold, schemes differ by nothing that is known.
    let known = curves.iter().all(|(subject, ..)| subject.contents_are_known());
    let sizes = |scheme: &Arc<Scheme>| curves.iter().all(|(subject, ..)| subject.unknown_codecs(scheme).is_empty());
    let judged: Vec<bool> = options.schemes.iter().map(|scheme| known && sizes(scheme)).collect();
    let chosen = choice::scheme(&found, &judged);
    let scheme = Arc::clone(&options.schemes[chosen]);
    let mut needs = Vec::new();
    for (subject, found, rows) in curves {
        needs.push(need(subject, found, rows, chosen, &scheme, options)?);
    }
    needs.sort_by_key(|need| std::cmp::Reverse(need.budget));
    let budget = needs[0].budget;
    // In the budget of the worst each of them has its own pool and swap tier.
    let mut peaks = Vec::new();
    for need in &mut needs {
        let wanted = |budget, swap| Wanted { scheme: Arc::clone(&scheme), budget, swap };
        let simulated = match need.subject.basis {
            Basis::Faults { budget } => budget,
            _ => budget.saturating_sub(need.besides()).max(BUDGET_MIN),
        };
        let rows = need.subject.simulate(&[wanted(simulated, true), wanted(simulated, false)], options)?;
        let [with, without] = <[Row; 2]>::try_from(rows).unwrap_or_else(|_| unreachable!("two were wanted"));
        (need.simulated, need.outcome) = (simulated, with.outcome);
        peaks.push(without.outcome);
    }
    let most = |of: fn(&Outcome) -> u64| needs.iter().map(|need| of(&need.outcome)).max().unwrap_or(0);
    let (pool, swap) = (most(|o| o.tally.peak_pool_bytes), most(in_swap));
    let fits = peaks.iter().all(|outcome| outcome.tally.over_budget == 0);
    let slowest = peaks.iter().filter_map(Outcome::slowdown).fold(1.0, f64::max);
    let without_swap = (fits && slowest <= options.simulated.bound()).then_some(slowest);
    let costs = costs(&needs[0], budget, &scheme, options)?;
    let contents = contents(&needs[0].subject, most_evicted(&needs[0].rows, &scheme.name));
    let device = Arc::clone(&options.device);
    let slowdown = options.simulated.slowdown;
    Ok(Advice { slowdown, scheme, budget, device, needs, costs, without_swap, pool, swap, contents })
}

/// Recordings without accesses say nothing of other budgets: beside others that do they are left
/// out.
fn leave_out_what_cannot_tell(subjects: &mut Vec<Subject>) {
    let blind = |subject: &Subject| matches!(subject.basis, Basis::Faults { .. });
    if subjects.iter().all(blind) {
        return;
    }
    for subject in subjects.iter().filter(|subject| blind(subject)) {
        eprintln!(
            "memfit: {}: is left out: it can judge the budget of its run alone; record it with --record-access",
            subject.known.name
        );
    }
    subjects.retain(|subject| !blind(subject));
}

/// What one of them wants under the scheme that was chosen.
fn need(
    subject: Subject,
    found: Vec<Found>,
    rows: Vec<Row>,
    chosen: usize,
    scheme: &Arc<Scheme>,
    options: &Options<'_>,
) -> Result<Need, Failure> {
    let by_bound = found[chosen].budget;
    let of = |budget| {
        let row = rows.iter().find(|row| row.scheme == scheme.name && row.budget == budget);
        row.map(|row| row.outcome.clone()).expect("what was found was simulated")
    };
    let most = rows.iter().map(|row| row.budget).max().expect("something was simulated");
    let (simulated, outcome) = match by_bound {
        Some(budget) => subject.holds_working_set(scheme, (budget, of(budget)), options)?,
        None => (most, of(most)),
    };
    if matches!(subject.basis, Basis::Faults { .. }) && outcome.slowdown().is_none() {
        return Err(Failure::here(format!(
            "{}: it does not tell how long the program computed, so nobody knows what its faults are in terms of that; memfit run \
             --advise -- COMMAND watches a run",
            subject.known.name
        )));
    }
    let mut need = Need { subject, budget: 0, by_bound, simulated, outcome, found, rows };
    let all = need.all(scheme);
    let budget = match (need.subject.basis, by_bound) {
        // It was the budget of a run, with all that belongs to it.
        (Basis::Faults { budget }, Some(_)) => whole(budget),
        (_, Some(_)) => whole(simulated + need.besides()).min(all),
        (_, None) => all,
    };
    need.budget = budget.max(BUDGET_MIN_BYTES);
    Ok(need)
}

/// What the advised budget and others cost.
fn costs(need: &Need, budget: u64, scheme: &Arc<Scheme>, options: &Options<'_>) -> Result<Vec<Cost>, Failure> {
    let advised = Cost { percent: Some(100), budget, outcome: need.outcome.clone() };
    if let Basis::Faults { budget } = need.subject.basis {
        return Ok(vec![Cost { budget, ..advised }]);
    }
    let besides = need.besides();
    let less = LESS_PERCENT.map(|percent| (percent, whole(budget * percent / 100)));
    let less = less.into_iter().filter(|&(_, bytes)| bytes >= BUDGET_MIN_BYTES.max(besides + BUDGET_MIN));
    let less: Vec<(u64, u64)> = less.collect();
    let wanted = |&(_, bytes): &(u64, u64)| Wanted { scheme: Arc::clone(scheme), budget: bytes - besides, swap: true };
    let rows = need.subject.simulate(&less.iter().map(wanted).collect::<Vec<_>>(), options)?;
    let cost =
        |((percent, budget), row): ((u64, u64), Row)| Cost { percent: Some(percent), budget, outcome: row.outcome };
    let own = need.rows.iter().filter(|row| row.scheme == scheme.name);
    let all = own.max_by_key(|row| row.budget).map(|row| Cost {
        percent: None,
        budget: need.all(scheme),
        outcome: row.outcome.clone(),
    });
    let all = all.filter(|all| all.budget > budget);
    Ok(all.into_iter().chain([advised]).chain(less.into_iter().zip(rows).map(cost)).collect())
}
