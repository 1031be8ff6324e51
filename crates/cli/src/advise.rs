//! `memfit advise`: recommends a budget, scheme and swap tier for a program, and says what smaller
//! budgets cost and why.
//!
//! Simulations give the answer: for each candidate scheme, the smallest budget that keeps the
//! slowdown within the bound, from the curves of `memfit sim --curve`. Several recordings count as
//! runs of one program, which gets the budget of the most demanding run.

mod at_end;
mod choice;
mod files;
mod subject;
#[cfg(test)]
mod tests;
mod words;

pub use at_end::AtEnd;

use crate::args::{AdviseArgs, Simulated};
use crate::errors::{tell, Failure};
use crate::output::{distinct, OutputFile};
use crate::run::BUDGET_MIN_BYTES;
use crate::sim::curve::{find, Found};
use crate::sim::page;
use crate::sim::table::Row;
use crate::sim::{one_on_stdout, two_of_a_name, BUDGET_MIN};
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

/// The default candidates: memfit's own scheme, compressed RAM alone and before a swap device, and
/// a swap device alone.
const SCHEMES: [&str; 4] = ["memfit", "zram", "zswap-zsmalloc", "swap"];
/// Smaller budgets whose costs are shown, percent of the advised one.
const LESS_PERCENT: [u64; 2] = [75, 50];
/// Most times that the advised budget is raised because it misses the bound, and by which part.
const RAISES: usize = 4;
const RAISE_PART: u64 = 32;

/// The options of an advice.
pub struct Options<'a> {
    /// The bound of the slowdown, and how to simulate.
    pub simulated: Simulated,
    /// Candidates; the first one is advised unless another is clearly better.
    pub schemes: Vec<Arc<Scheme>>,
    /// The name or file of each, as for `-s`.
    pub names: Vec<String>,
    /// Costs of the operations in RAM.
    pub costs: Arc<CostTable>,
    /// Device of the swap tier.
    pub device: Arc<Device>,
    /// File that gets the scheme as TOML, for the command line.
    pub toml: Option<&'a Path>,
}

impl<'a> Options<'a> {
    /// The defaults, for `memfit run --advise`.
    ///
    /// # Errors
    /// When a built-in table cannot be read.
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
                return Err(two_of_a_name(name, &scheme.name));
            }
            schemes.push(Arc::new(scheme));
        }
        Ok(Options { simulated: simulated.clone(), schemes, names, costs, device, toml })
    }
}

/// A budget, and its cost.
pub struct Cost {
    /// Percent of the advised budget; `None`: this budget has room for all pages.
    pub percent: Option<u64>,
    /// Bytes.
    pub budget: u64,
    /// Result of the simulation.
    pub outcome: Outcome,
}

/// The needs of one of the workloads.
pub struct Need {
    /// The workload.
    pub subject: Subject,
    /// The budget, bytes; has room for all pages if no smaller one keeps the bound.
    pub budget: u64,
    /// The smallest budget that keeps the bound in the simulation, bytes.
    pub by_bound: Option<u64>,
    /// The working set needs more than that.
    pub raised: bool,
    /// The simulated budget, bytes, without memory that is not paged.
    pub simulated: u64,
    /// Result of that simulation.
    pub outcome: Outcome,
    /// The smallest budgets, by scheme.
    pub found: Vec<Found>,
    /// All simulations of this workload.
    pub rows: Vec<Row>,
}

impl Need {
    /// Memory that it needs besides its pages, bytes.
    fn besides(&self) -> u64 {
        self.subject.besides(&self.outcome)
    }

    /// Peak of its pages and of that memory, bytes.
    fn has(&self) -> u64 {
        self.subject.footprint() + self.besides()
    }

    /// Budget in which no page must be evicted, bytes: includes what the scheme keeps free.
    fn all(&self, scheme: &Scheme) -> u64 {
        whole(self.has() * 100 / (100 - u64::from(scheme.sizing.high_percent)))
    }
}

/// The advice.
pub struct Advice {
    /// Bound of the slowdown, percent.
    pub slowdown: f64,
    /// The advised scheme.
    pub scheme: Arc<Scheme>,
    /// The advised budget, bytes.
    pub budget: u64,
    /// The device that was simulated.
    pub device: Arc<Device>,
    /// The workloads, the most demanding first.
    pub needs: Vec<Need>,
    /// Costs of several budgets for the first workload.
    pub costs: Vec<Cost>,
    /// Slowdown factor in that budget without a swap tier, if the pages fit and it keeps the bound.
    pub without_swap: Option<f64>,
    /// Peak of the pool, bytes.
    pub pool: u64,
    /// Peak of the swap tier, bytes.
    pub swap: u64,
    /// The contents of its pages.
    pub contents: Contents,
}

impl Advice {
    /// The most demanding workload.
    pub fn worst(&self) -> &Need {
        &self.needs[0]
    }

    /// Size of the swap tier, bytes; `None`: nothing is written there.
    pub fn swap_size(&self) -> Option<u64> {
        swap_size(self.swap, self.scheme.swap_format.kind)
    }

    /// Peak memory of the most demanding workload, bytes.
    pub fn has(&self) -> u64 {
        self.worst().has()
    }

    /// Budget in which no page must be evicted, bytes.
    pub fn all(&self) -> u64 {
        self.worst().all(&self.scheme)
    }

    /// Whether the advised budget is smaller than that.
    pub fn saves(&self) -> bool {
        self.budget < self.all()
    }
}

/// Advises, and writes the requested files.
///
/// # Errors
/// When the command line is wrong, a recording cannot be used or says too little, or a file cannot
/// be written.
pub fn run(args: &AdviseArgs) -> Result<i32, Failure> {
    one_on_stdout(&[("--toml", &args.toml), ("--json", &args.json)])?;
    let is_stdout = |path: &Path| path.as_os_str() == "-";
    let file = args.toml.as_deref().filter(|path| !is_stdout(path));
    let options = Options::new(&args.simulated, &args.scheme, file)?;
    let outputs = [("--toml", &args.toml), ("--json", &args.json), ("--report", &args.report)];
    let outputs = outputs.map(|(option, path)| (option, path.as_deref()));
    distinct(&outputs, args.simulated.inputs(&args.workloads, &args.scheme))?;
    let open = |option, path: &Option<PathBuf>| match path.as_deref() {
        Some(path) if !is_stdout(path) => OutputFile::open(option, path).map(Some),
        _ => Ok(None),
    };
    let files = [open("--toml", &args.toml)?, open("--json", &args.json)?];
    let page = args.report.as_deref().map(|path| OutputFile::open("--report", path)).transpose()?;
    let mut subjects = Vec::new();
    for name in &args.workloads {
        subjects.push(Subject::examine(name, &options)?);
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

/// One advice for all these workloads.
fn advise(mut subjects: Vec<Subject>, options: &Options<'_>) -> Result<Advice, Failure> {
    leave_out_what_cannot_tell(&mut subjects);
    let mut curves = Vec::new();
    for subject in subjects {
        let rows = subject.curves(options, options.simulated.bound())?;
        curves.push((subject, find(&rows, options.simulated.bound()), rows));
    }
    let found: Vec<&[Found]> = curves.iter().map(|(_, found, _)| &**found).collect();
    // If the contents of pages are unknown, no recorded fact tells the schemes apart.
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
    let mut budget = needs[0].budget;
    let mut peaks = in_common(&mut needs, budget, &scheme, options)?;
    // Between two budgets that keep the bound can be one that does not.
    for _ in 0..RAISES {
        let misses = |need: &Need| {
            let slowdown = need.outcome.slowdown().unwrap_or(1.0);
            need.by_bound.is_some() && slowdown > options.simulated.bound()
        };
        if !needs.iter().any(misses) || needs.iter().any(|need| matches!(need.subject.basis, Basis::Faults { .. })) {
            break;
        }
        budget = whole(budget + budget / RAISE_PART);
        peaks = in_common(&mut needs, budget, &scheme, options)?;
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

/// Simulates each workload in the common budget: its pool and swap tier have other sizes there.
/// Returns the results without a swap tier.
fn in_common(
    needs: &mut [Need],
    budget: u64,
    scheme: &Arc<Scheme>,
    options: &Options<'_>,
) -> Result<Vec<Outcome>, Failure> {
    let mut without_swap = Vec::new();
    for need in needs {
        let wanted = |budget, swap| Wanted { scheme: Arc::clone(scheme), budget, swap };
        let simulated = match need.subject.basis {
            Basis::Faults { budget } => budget,
            _ => budget.saturating_sub(need.besides()).max(BUDGET_MIN),
        };
        let rows = need.subject.simulate(&[wanted(simulated, true), wanted(simulated, false)], options)?;
        let [with, without] = <[Row; 2]>::try_from(rows).unwrap_or_else(|_| unreachable!("two were wanted"));
        (need.simulated, need.outcome) = (simulated, with.outcome);
        without_swap.push(without.outcome);
    }
    Ok(without_swap)
}

/// Leaves out recordings without accesses, which say nothing of other budgets, unless all are so.
fn leave_out_what_cannot_tell(subjects: &mut Vec<Subject>) {
    let blind = |subject: &Subject| matches!(subject.basis, Basis::Faults { .. });
    if subjects.iter().all(blind) {
        return;
    }
    for subject in subjects.iter().filter(|subject| blind(subject)) {
        tell(&format!(
            "{}: is left out: it can judge the budget of its run alone; record it with --record-access",
            subject.known.name
        ));
    }
    subjects.retain(|subject| !blind(subject));
}

/// The needs of one workload under the chosen scheme.
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
    let raised = by_bound.is_some_and(|bound| simulated > bound) && subject.working_set_at_most() > 0;
    let mut need = Need { subject, budget: 0, by_bound, raised, simulated, outcome, found, rows };
    let budget = match (need.subject.basis, by_bound) {
        // The budget of the recorded run, which includes memory that is not paged.
        (Basis::Faults { budget }, Some(_)) => whole(budget),
        (Basis::Faults { .. }, None) => need.all(scheme),
        _ => at_most_all(&need, scheme, options)?,
    };
    need.budget = budget.max(BUDGET_MIN_BYTES);
    Ok(need)
}

/// The simulated budget with what is not paged, or the one with room for all pages if that is less
/// and the program is as quick there: watermarks and tables of a small sample take more.
fn at_most_all(need: &Need, scheme: &Arc<Scheme>, options: &Options<'_>) -> Result<u64, Failure> {
    let (wants, all) = (whole(need.simulated + need.besides()), need.all(scheme));
    if all >= wants {
        return Ok(if need.by_bound.is_some() { wants } else { all });
    }
    let budget = all.saturating_sub(need.besides()).max(BUDGET_MIN);
    let row = need.subject.simulate(&[Wanted { scheme: Arc::clone(scheme), budget, swap: true }], options)?.remove(0);
    let slowdowns = (row.outcome.slowdown(), need.outcome.slowdown());
    Ok(choice::of_two(wants, all, slowdowns, options.simulated.bound()))
}

/// The costs of the advised budget and of others.
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
