//! The figures and tables of five papers, simulated and compared with the published values.
//!
//! Each paper has its own file with its published values, its simulations and its [`Statement`]s;
//! [`PAPERS`] lists them. A seed determines all results, which are the same on every machine.
#![forbid(unsafe_code)]

mod arm;
mod cervera;
mod chart;
mod contents;
mod ezswap;
mod han;
mod lab;
mod one_computer;
mod page;
mod phone;
mod recorded;
mod salahuddin;
mod saved;
mod statement;
mod tuduce;

pub use chart::{Chart, Kind};
pub use lab::{simulate_all, Job, Plan, Runs};
pub use page::report;
pub use recorded::{Live, Recording, Recordings};
pub use saved::{differences, json, merged};
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
    /// Our numbers: of each name the middle of all seeds.
    pub numbers: Numbers,
    /// Our numbers by seed.
    pub seeds: Vec<Numbers>,
    /// Figures in addition to [`Paper::charts`].
    pub more: Vec<Chart>,
    /// The same numbers from recordings of real programs, as far as there are any.
    pub recorded: Numbers,
    /// Those recordings.
    pub recordings: Vec<Recording>,
}

impl Result<'_> {
    /// Number of statements with each verdict, in the order of [`Verdict::ALL`].
    pub fn count(&self) -> [usize; Verdict::ALL.len()] {
        Verdict::ALL.map(|verdict| self.paper.statements.iter().filter(|s| s.verdict(&self.seeds) == verdict).count())
    }
}

/// Simulates these papers, with `plan`'s seed and as many after it as `seeds` says, and the
/// recordings of their programs on `threads` threads. Statements are judged by the numbers with six
/// digits, as they are saved. Pages of `files` are measured in addition to
/// generated ones. Calls `progress` with the number of simulations done and of all.
pub fn run<'a>(
    papers: &[&'a Paper],
    plan: &Plan,
    seeds: u64,
    threads: usize,
    files: &[(String, Vec<u8>)],
    recordings: &mut Recordings,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Vec<Result<'a>> {
    let real: Vec<Job> = papers.iter().flat_map(|paper| recordings.jobs(paper, plan)).collect();
    let jobs = |plan: &Plan| -> Vec<Job> { papers.iter().flat_map(|paper| (paper.jobs)(plan)).collect() };
    let of_a_seed = jobs(plan).len();
    let all = of_a_seed * seeds as usize + real.len();
    let mut by_seed: Vec<Vec<Numbers>> = papers.iter().map(|_| Vec::new()).collect();
    for seed in 0..seeds {
        let plan = Plan { seed: plan.seed + seed, ..*plan };
        let before = of_a_seed * seed as usize;
        let runs = simulate_all(&jobs(&plan), threads, &|done| progress(before + done, all));
        by_seed.iter_mut().zip(papers).for_each(|(seeds, paper)| seeds.push((paper.derive)(&plan, &runs).rounded()));
    }
    let real = simulate_all(&real, threads, &|done| progress(of_a_seed * seeds as usize + done, all));
    let of = |(paper, seeds): (&&'a Paper, Vec<Numbers>)| {
        let mut numbers = Numbers::middle(&seeds);
        let more = match paper.name {
            "ezswap" => contents::of_files(files, &mut numbers),
            _ => Vec::new(),
        };
        let recordings: Vec<Recording> = recordings.of(paper).cloned().collect();
        let recorded = match recordings.is_empty() {
            true => Numbers::new(),
            false => (paper.derive)(&recorded::live(paper, plan), &real).without(paper.recorded.without).rounded(),
        };
        Result { paper, numbers, seeds, more, recorded, recordings }
    };
    papers.iter().zip(by_seed).map(of).collect()
}
