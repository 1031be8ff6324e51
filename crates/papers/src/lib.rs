//! The figures and tables of five papers, simulated: what each prints, beside what the simulator
//! makes of it.
//!
//! Each paper has its own file with its published values, its simulations and its [`Statement`]s;
//! [`PAPERS`] lists them. Everything follows from a seed, and is the same on every machine.
#![forbid(unsafe_code)]

mod cervera;
mod chart;
mod contents;
mod ezswap;
mod han;
mod lab;
mod page;
mod phone;
mod recorded;
mod salahuddin;
mod statement;
mod tuduce;

pub use chart::{Chart, Kind};
pub use lab::{simulate_all, Job, Plan, Runs};
pub use page::{json, markdown, report};
pub use recorded::{Live, Recording, Recordings};
pub use statement::{Judge, Numbers, Statement, Verdict};

/// A paper.
pub struct Paper {
    /// Short name.
    pub name: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// At which size and on which devices it is simulated.
    pub setting: &'static str,
    /// How the simulation differs from the paper.
    pub differs: &'static [&'static str],
    /// What it says.
    pub statements: &'static [Statement],
    /// Its values, by the names of ours.
    pub published: fn() -> Numbers,
    /// What is to be simulated.
    pub jobs: fn(&Plan) -> Vec<Job>,
    /// Our values.
    pub derive: fn(&Plan, &Runs) -> Numbers,
    /// Its figures and tables.
    pub charts: fn() -> Vec<Chart>,
    /// Its programs, as they are recorded.
    pub recorded: Live,
}

/// All of them.
pub static PAPERS: &[&Paper] = &[&cervera::PAPER, &tuduce::PAPER, &han::PAPER, &salahuddin::PAPER, &ezswap::PAPER];

/// What came of a paper.
pub struct Result<'a> {
    /// Which.
    pub paper: &'a Paper,
    /// Our values.
    pub numbers: Numbers,
    /// Figures beside those of [`Paper::charts`].
    pub more: Vec<Chart>,
    /// The same values of real programs, as far as there are recordings.
    pub recorded: Numbers,
    /// Those recordings.
    pub recordings: Vec<Recording>,
}

impl Result<'_> {
    /// Statements that hold, do not hold, cannot be had.
    pub fn count(&self) -> (usize, usize, usize) {
        let of = |wanted| self.paper.statements.iter().filter(|s| s.verdict(&self.numbers) == wanted).count();
        (of(Verdict::Holds), of(Verdict::Fails), of(Verdict::CannotBeHad))
    }
}

/// Simulates these papers on so many threads, and what was recorded of their programs. `files`:
/// pages of these are looked at as well as those that are made. `progress` is told how many
/// simulations are done, and of how many.
pub fn run<'a>(
    papers: &[&'a Paper],
    plan: &Plan,
    threads: usize,
    files: &[(String, Vec<u8>)],
    recordings: &mut Recordings,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Vec<Result<'a>> {
    let jobs: Vec<Job> = papers.iter().flat_map(|paper| (paper.jobs)(plan)).collect();
    let real: Vec<Job> = papers.iter().flat_map(|paper| recordings.jobs(paper, plan)).collect();
    let all = jobs.len() + real.len();
    let runs = simulate_all(&jobs, threads, &|done| progress(done, all));
    let real = simulate_all(&real, threads, &|done| progress(jobs.len() + done, all));
    let of = |paper: &&'a Paper| {
        let mut numbers = (paper.derive)(plan, &runs);
        let more = match paper.name {
            "ezswap" => contents::of_files(files, &mut numbers),
            _ => Vec::new(),
        };
        let recordings: Vec<Recording> = recordings.of(paper).cloned().collect();
        let recorded = match recordings.is_empty() {
            true => Numbers::new(),
            false => (paper.derive)(&recorded::live(paper, plan), &real).without(paper.recorded.without),
        };
        Result { paper, numbers, more, recorded, recordings }
    };
    papers.iter().map(of).collect()
}
