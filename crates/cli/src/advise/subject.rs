//! A workload to give advice for: what its recording can tell, and its simulations.

use super::choice::at_most;
use super::Options;
use crate::errors::Failure;
use crate::sim::contents::unknown;
use crate::sim::curve::{between, find};
use crate::sim::progress::{Part, Progress};
use crate::sim::source::{failed, open, KnownWorkload, Source};
use crate::sim::table::Row;
use crate::sim::{BUDGET_MIN, CLOSER_ROUNDS, CLOSER_STEPS, CURVE_STEPS, SWAP_BYTES};
use memfit_core::budget::Sizes;
use memfit_core::scheme::Scheme;
use memfit_core::PAGE_BYTES;
use memfit_sim::{sweep, threads, Outcome, Residents, Setup, WorkingSet};
use std::sync::Arc;

/// Window of the working set where all touches are known, ns: pages used again within it count.
const WINDOW_NS: u64 = 1_000_000_000;
/// Sampling periods within which a recording sees a page in constant use at least once.
const PERIODS: u64 = 2;
/// Most times that a budget is raised until the working set stays resident: the pool shrinks.
const RAISES: usize = 4;
/// If the contents of less than this share of the pages are known, percent, they count as unknown.
const KNOWN_PERCENT: f64 = 50.0;
/// Memory of memfit itself besides the tables that grow with the programs, bytes, and memory of
/// each process that it does not page: the stack of its thread, data of libraries. Together they
/// were 1.7 to 2.4 MiB in runs of a C program, sort and Python.
const OWN: u64 = 1 << 20;
const PROCESS: u64 = 2 << 20;

const NOTHING_MANAGED: &str =
    "no memory was managed in this run, so it cannot tell what the program wants: it stayed far \
                               below its budget, or could not be paged; memfit run --advise -- COMMAND watches a run \
                               from its beginning";

/// What is known of a workload's touches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Basis {
    /// All of them: the workload is generated.
    Made,
    /// Touches of a sample of the pages, each page at most once a period.
    Accesses {
        /// Sampled share of its pages.
        part: f64,
        /// Number of sampled pages.
        pages: u64,
        /// The period, ms: more frequent touches are not seen.
        period_ms: u32,
    },
    /// Page faults, but no touches of resident pages: only the budget of the run can be judged.
    Faults {
        /// Budget of the run, bytes.
        budget: u64,
    },
}

/// A workload.
pub struct Subject {
    /// Results of the first pass.
    pub known: KnownWorkload,
    /// What is known of its touches.
    pub basis: Basis,
    /// How it uses its pages.
    pub working_set: WorkingSet,
    /// Memory that it needs besides its pages, bytes; `None`: not measured.
    pub besides: Option<u64>,
}

/// A simulation to run.
#[derive(Clone)]
pub struct Wanted {
    /// The scheme.
    pub scheme: Arc<Scheme>,
    /// Budget, bytes.
    pub budget: u64,
    /// Whether there is a swap tier.
    pub swap: bool,
}

impl Subject {
    /// Examines a workload.
    ///
    /// # Errors
    /// When there is no such workload, or its recording tells nothing.
    pub fn examine(name: &str, options: &Options<'_>) -> Result<Subject, Failure> {
        Subject::examine_or(name, options, NOTHING_MANAGED)
    }

    /// `nothing`: what to say of a recording in which no memory was managed.
    ///
    /// # Errors
    /// See [`Subject::examine`].
    pub fn examine_or(name: &str, options: &Options<'_>, nothing: &str) -> Result<Subject, Failure> {
        let progress = Progress::new(options.simulated.quiet);
        let known = KnownWorkload::examine(name, &options.costs, &options.device, SWAP_BYTES, true, &progress)?;
        progress.end();
        if let (0, Source::Recording(path)) = (known.footprint, &known.source) {
            return Err(Failure::here(format!("{path}: {nothing}")));
        }
        let basis = match known.recorded.as_ref().map(|of| (of.sampled, of.budget)) {
            None => Basis::Made,
            Some((Some((sampled, part)), _)) => {
                let pages = (known.footprint as f64 * part).round() as u64;
                Basis::Accesses { part: part.min(1.0), pages, period_ms: sampled.period_ms }
            }
            Some((None, budget)) => Basis::Faults { budget },
        };
        let mut subject = Subject { known, basis, working_set: WorkingSet::default(), besides: None };
        let mut source = subject.source()?;
        // The clock of a recording as a workload shows the time in which its program computed.
        let window_ns = (subject.window_ns() as f64 * subject.computing()) as u64;
        subject.working_set =
            WorkingSet::of(&mut *source, window_ns).map_err(|error| failed(&subject.known.name, &error))?;
        Ok(subject)
    }

    /// Its name in the advice: a command, or the name of a workload.
    pub fn what(&self) -> String {
        match self.command() {
            Some(command) => command.join(" ").replace(memfit_wire::is_unprintable, " "),
            None => self.known.name.clone(),
        }
    }

    /// The recorded command. `None`: no command that can be run.
    pub fn command(&self) -> Option<&[String]> {
        let of = self.known.recorded.as_ref().filter(|of| !of.generated)?;
        Some(&*of.command).filter(|command| !command.is_empty())
    }

    /// Peak of its pages, bytes.
    pub fn footprint(&self) -> u64 {
        self.known.footprint * PAGE_BYTES
    }

    /// Share of its pages that is simulated.
    fn rate(&self) -> f64 {
        match self.basis {
            Basis::Accesses { part, .. } => part,
            Basis::Made | Basis::Faults { .. } => 1.0,
        }
    }

    /// Share of its time in which it computed.
    pub fn computing(&self) -> f64 {
        self.known.recorded.as_ref().map_or(1.0, |of| of.computing)
    }

    /// Window of the working set in its run, ns: pages used again within it count.
    pub fn window_ns(&self) -> u64 {
        match self.basis {
            Basis::Accesses { period_ms, .. } => PERIODS * u64::from(period_ms) * 1_000_000,
            Basis::Made | Basis::Faults { .. } => WINDOW_NS,
        }
    }

    /// Its working set, bytes: the median over the windows, scaled up if pages were sampled.
    pub fn working_set(&self) -> u64 {
        ((self.working_set.most_pages() * PAGE_BYTES) as f64 / self.rate()) as u64
    }

    /// Upper bound of the working set, given the size of the sample, bytes.
    pub fn working_set_at_most(&self) -> u64 {
        at_most(self.working_set(), self.working_set.most_pages(), self.rate()).min(self.footprint())
    }

    /// Whether the contents are known of most pages that were or would be evicted.
    pub fn contents_are_known(&self) -> bool {
        self.working_set.known as f64 * 100.0 >= KNOWN_PERCENT * self.working_set.pages.max(1) as f64
    }

    /// Codecs of a scheme whose sizes of the pages are unknown.
    pub fn unknown_codecs(&self, scheme: &Scheme) -> Vec<&'static str> {
        self.known.recorded.as_ref().map_or_else(Vec::new, |of| unknown(of, scheme))
    }

    /// Memory that it needs besides its pages, under this outcome, bytes.
    pub fn besides(&self, outcome: &Outcome) -> u64 {
        match (self.basis, self.besides) {
            (Basis::Made, _) => 0,
            (_, Some(bytes)) => bytes,
            (_, None) => OWN + PROCESS * self.working_set.processes().max(1) + outcome.tables_bytes,
        }
    }

    fn source(&self) -> Result<Box<dyn memfit_sim::EventSource>, Failure> {
        let of = self.known.recorded.as_ref();
        let only = of.and_then(|of| Some((of.sampled?.0, &of.noted)));
        open(&self.known.source, self.computing(), only)
    }

    /// Runs all these simulations at once; returns rows in their order.
    ///
    /// # Errors
    /// When the recording cannot be read any more.
    pub fn simulate(&self, wanted: &[Wanted], options: &Options<'_>) -> Result<Vec<Row>, Failure> {
        let residents = match self.basis {
            Basis::Faults { .. } => Residents::AsRecorded,
            Basis::Made | Basis::Accesses { .. } => Residents::Simulated,
        };
        let setup = |wanted: &Wanted| Setup {
            scheme: Arc::clone(&wanted.scheme),
            budget: wanted.budget,
            swap_bytes: if wanted.swap { SWAP_BYTES } else { 0 },
            residents,
            rate: self.rate(),
            tables_per_frame: 0,
            costs: Arc::clone(&options.costs),
            device: Arc::clone(&options.device),
        };
        let setups: Vec<Setup> = wanted.iter().map(setup).collect();
        let jobs = options.simulated.jobs.unwrap_or(threads(setups.len()));
        let progress = Progress::new(options.simulated.quiet);
        let part = Part { simulations: setups.len() as u64, events: self.known.events, at_once: false };
        progress.plan(part);
        progress.begin();
        let swept = sweep(&mut *self.source()?, &setups, jobs, &mut |far| progress.show(&self.known.name, part, far));
        progress.end();
        let outcomes = swept.map_err(|error| failed(&self.known.name, &error))?;
        let row = |(wanted, outcome): (&Wanted, Outcome)| Row {
            workload: self.known.name.clone(),
            scheme: wanted.scheme.name.clone(),
            set: String::new(),
            budget: wanted.budget,
            footprint: self.footprint(),
            outcome,
            counted: false,
        };
        Ok(wanted.iter().zip(outcomes).map(row).collect())
    }

    /// Simulates the candidates in a range of budgets, more closely where the bound is crossed.
    ///
    /// # Errors
    /// See [`Subject::simulate`].
    pub fn curves(&self, options: &Options<'_>, bound: f64) -> Result<Vec<Row>, Failure> {
        let budget = |i: u64| (self.footprint() * i / 10).max(BUDGET_MIN);
        let budgets: Vec<u64> = match self.basis {
            Basis::Faults { budget } => vec![budget],
            _ => (1..=CURVE_STEPS).map(budget).collect(),
        };
        let all = |scheme: &Arc<Scheme>, budgets: &[u64]| -> Vec<Wanted> {
            let wanted = |&budget| Wanted { scheme: Arc::clone(scheme), budget, swap: true };
            budgets.iter().map(wanted).collect()
        };
        let wanted: Vec<Wanted> = options.schemes.iter().flat_map(|scheme| all(scheme, &budgets)).collect();
        let mut rows = self.simulate(&wanted, options)?;
        for _ in 0..CLOSER_ROUNDS {
            let found = find(&rows, bound);
            let closer = found.iter().zip(&options.schemes);
            let more: Vec<Wanted> =
                closer.flat_map(|(found, scheme)| all(scheme, &between(found, CLOSER_STEPS))).collect();
            if more.is_empty() {
                break;
            }
            rows.extend(self.simulate(&more, options)?);
        }
        Ok(rows)
    }

    /// Raises the budget of `row` until the working set stays resident. A recording sees a page
    /// only once a period, so the cost of evicting such a page is unknown.
    ///
    /// # Errors
    /// See [`Subject::simulate`].
    pub fn holds_working_set(
        &self,
        scheme: &Arc<Scheme>,
        row: (u64, Outcome),
        options: &Options<'_>,
    ) -> Result<(u64, Outcome), Failure> {
        let (mut budget, mut outcome) = row;
        if !matches!(self.basis, Basis::Accesses { .. }) {
            return Ok((budget, outcome));
        }
        for _ in 0..RAISES {
            let wants = self.least_for_working_set(scheme, budget, outcome.tally.peak_pool_bytes);
            if wants <= budget {
                break;
            }
            budget = wants;
            let wanted = Wanted { scheme: Arc::clone(scheme), budget, swap: true };
            outcome = self.simulate(&[wanted], options)?.remove(0).outcome;
        }
        Ok((budget, outcome))
    }

    fn least_for_working_set(&self, scheme: &Scheme, budget: u64, pool: u64) -> u64 {
        let sizes = Sizes::new(budget, scheme);
        let wants = self.working_set_at_most() + pool + sizes.staging + sizes.calm.high;
        // A budget with room for everything suffices.
        wants.min(budget.max(self.footprint() + sizes.staging + sizes.calm.high))
    }
}
