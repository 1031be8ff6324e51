//! The figures and tables of five papers, simulated and compared with the published values.
//!
//! Each paper has its own file with its published values, its simulations and its [`Statement`]s;
//! [`PAPERS`] lists them. A seed determines all results, which are the same on every machine.
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
    /// Its subject.
    pub title: &'static str,
    /// Its authors, title and publication.
    pub source: &'static str,
    /// The size and the devices of its simulation.
    pub setting: &'static str,
    /// How the simulation differs from the paper.
    pub differs: &'static [&'static str],
    /// What it claims.
    pub statements: &'static [Statement],
    /// Its published values, by the names of our numbers: a file of `lab/published`.
    pub published: &'static str,
    /// Its simulations.
    pub jobs: fn(&Plan) -> Vec<Job>,
    /// Derives our numbers from the simulations.
    pub derive: fn(&Plan, &Runs) -> Numbers,
    /// Its figures and tables.
    pub charts: fn() -> Vec<Chart>,
    /// Its recorded programs.
    pub recorded: Live,
}

impl Paper {
    /// Its published values; the middle of a range.
    pub fn published(&self) -> Numbers {
        Numbers::from_toml(self.published)
    }
}

/// All papers.
pub static PAPERS: &[&Paper] = &[&cervera::PAPER, &tuduce::PAPER, &han::PAPER, &salahuddin::PAPER, &ezswap::PAPER];

/// The results for a paper.
pub struct Result<'a> {
    /// The paper.
    pub paper: &'a Paper,
    /// Our numbers.
    pub numbers: Numbers,
    /// Figures in addition to [`Paper::charts`].
    pub more: Vec<Chart>,
    /// The same numbers from recordings of real programs, as far as there are any.
    pub recorded: Numbers,
    /// Those recordings.
    pub recordings: Vec<Recording>,
}

impl Result<'_> {
    /// Numbers of statements that hold, do not hold, cannot be had.
    pub fn count(&self) -> (usize, usize, usize) {
        let of = |wanted| self.paper.statements.iter().filter(|s| s.verdict(&self.numbers) == wanted).count();
        (of(Verdict::Holds), of(Verdict::Fails), of(Verdict::CannotBeHad))
    }
}

/// Simulates these papers and the recordings of their programs on `threads` threads. Pages of
/// `files` are measured in addition to generated ones. Calls `progress` with the number of
/// simulations done and of all.
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
