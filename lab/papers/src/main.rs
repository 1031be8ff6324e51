//! `memfit-papers`: the figures and tables of five papers, simulated, as a page and as JSON.
#![forbid(unsafe_code)]

use memfit_papers::{differences, json, merged, report, run, Paper, Plan, Recordings, Verdict, PAPERS};
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Instant;

const HELP: &str = "Simulates the figures and tables of five papers, beside their published values

Usage: memfit-papers [OPTIONS]

  --only PAPER     cervera, tuduce, han, salahuddin or ezswap; may be repeated
  --seed N         of all that is by chance [1]
  --seeds N        runs each simulation with N seeds, the first one being that of --seed [10]
  --scale X        sizes are divided by this, beyond each paper's setting [1]
  --quick          small and short, to see that it works
  --out DIR        for report.html and result.json [target/papers-sim]
  --save FILE      writes result.json there as well; with --only, the other papers' results in it stay. A file of other
                   seeds or sizes is not overwritten
  --check FILE     compares with results that were saved, and fails if a number, statement or text differs; without
                   recordings, and without files
  --recordings DIR of real programs, as lab/bench/papers.py record makes them, PAPER/WORKLOAD/CONFIG.memfit; those that
                   are there are simulated beside the others [target/papers-recordings]
  --pages FILE...  looks at the pages of these files as well (ezswap, Fig. 5 and 6)
  --jobs N         threads [as many as there are CPUs]
";

/// The largest seed that a workload takes.
const SEED_MAX: u64 = 1_000_000_000;

struct Args {
    papers: Vec<&'static Paper>,
    plan: Plan,
    seeds: u64,
    out: PathBuf,
    save: Option<PathBuf>,
    check: Option<PathBuf>,
    recordings: PathBuf,
    pages: Vec<String>,
    jobs: usize,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Args>, String> {
    let jobs = available_parallelism().map_or(1, NonZero::get);
    let plan = Plan { seed: 1, scale: 1.0, quick: false };
    let (out, recordings) = (PathBuf::from("target/papers-sim"), PathBuf::from("target/papers-recordings"));
    let (save, check) = (None, None);
    let mut all = Args { papers: Vec::new(), plan, seeds: 10, out, save, check, recordings, pages: Vec::new(), jobs };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        let wrong = |value: String| format!("{arg} {value}: not a number that can be");
        match arg.as_str() {
            "--only" => {
                let name = value()?;
                let paper = PAPERS.iter().find(|paper| paper.name == name);
                all.papers.push(paper.ok_or_else(|| format!("no paper is called {name}"))?);
            }
            "--seed" => {
                let text = value()?;
                all.plan.seed = text.parse().ok().filter(|seed| *seed <= SEED_MAX).ok_or_else(|| wrong(text))?;
            }
            "--seeds" => {
                let text = value()?;
                all.seeds = text.parse().ok().filter(|seeds| (1..=1000).contains(seeds)).ok_or_else(|| wrong(text))?;
            }
            "--scale" => {
                let text = value()?;
                all.plan.scale = text.parse().ok().filter(|x| (1.0..=16.0).contains(x)).ok_or_else(|| wrong(text))?;
            }
            "--quick" => all.plan.quick = true,
            "--out" => all.out = value()?.into(),
            "--recordings" => all.recordings = value()?.into(),
            "--save" => all.save = Some(value()?.into()),
            "--check" => all.check = Some(value()?.into()),
            "--jobs" => {
                let text = value()?;
                all.jobs = text.parse().ok().filter(|jobs| *jobs > 0).ok_or_else(|| wrong(text))?;
            }
            "--pages" => all.pages.extend(args.by_ref()),
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("{arg}: not an option")),
        }
    }
    if all.plan.seed + all.seeds > SEED_MAX + 1 {
        return Err(format!("--seeds {}: the last seed would be above {SEED_MAX}", all.seeds));
    }
    if all.papers.is_empty() {
        all.papers = PAPERS.to_vec();
    }
    Ok(Some(all))
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprint!("memfit-papers: {why}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let done = match &args.check {
        Some(saved) => check(&args, saved),
        None => write(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("memfit-papers: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Compares with saved results.
fn check(args: &Args, saved: &Path) -> Result<(), String> {
    let text = fs::read_to_string(saved).map_err(|error| failed(&saved.display(), error))?;
    let results = simulate(args, &[], &mut Recordings::default());
    let all = differences(&text, &results, &args.plan).map_err(|why| format!("{}: {why}", saved.display()))?;
    all.iter().for_each(|one| println!("{one}"));
    match all.len() {
        0 => {
            println!("{} is what the simulations give", saved.display());
            Ok(())
        }
        count => Err(format!("{}: {count} differences; make papers-sim writes it again", saved.display())),
    }
}

fn simulate(
    args: &Args,
    files: &[(String, Vec<u8>)],
    recordings: &mut Recordings,
) -> Vec<memfit_papers::Result<'static>> {
    let began = Instant::now();
    run(&args.papers, &args.plan, args.seeds, args.jobs, files, recordings, &|done, all| {
        if done % 20 == 0 || done == all {
            eprintln!("{done} of {all} simulations, {:.0} s", began.elapsed().as_secs_f64());
        }
    })
}

fn failed(path: &dyn std::fmt::Display, error: std::io::Error) -> String {
    format!("{path}: {error}")
}

fn write(args: &Args) -> Result<(), String> {
    let read = |path: &String| fs::read(path).map(|bytes| (path.clone(), bytes)).map_err(|error| failed(path, error));
    let files: Vec<(String, Vec<u8>)> = args.pages.iter().map(read).collect::<Result<_, _>>()?;
    let mut recordings =
        Recordings::load(&args.recordings).map_err(|error| failed(&args.recordings.display(), error))?;
    if recordings.all.is_empty() {
        eprintln!("no recordings of real programs in {}: make papers-record makes them", args.recordings.display());
    }
    let results = simulate(args, &files, &mut recordings);
    for why in &recordings.left_out {
        eprintln!("memfit-papers: left out: {why}");
    }
    fs::create_dir_all(&args.out).map_err(|error| failed(&args.out.display(), error))?;
    let put = |path: PathBuf, bytes: &[u8]| fs::write(&path, bytes).map_err(|error| failed(&path.display(), error));
    let mut page = Vec::new();
    report(&results, &args.plan).write(&mut page).expect("memory takes it");
    put(args.out.join("report.html"), &page)?;
    put(args.out.join("result.json"), json(&results, &args.plan).as_bytes())?;
    if let Some(save) = &args.save {
        let text = match fs::read_to_string(save) {
            Ok(saved) => merged(&saved, &results, &args.plan)
                .map_err(|why| format!("{}: it is kept: {why}; remove it, or save elsewhere", save.display()))?,
            Err(_) => json(&results, &args.plan),
        };
        put(save.clone(), text.as_bytes())?;
    }
    for result in &results {
        let counts: Vec<String> = result
            .count()
            .iter()
            .zip(Verdict::ALL)
            .filter(|(count, _)| **count > 0)
            .map(|(count, verdict)| format!("{}: {count}", verdict.name()))
            .collect();
        println!("{:12} {}", result.paper.name, counts.join(", "));
    }
    println!("{}", args.out.join("report.html").display());
    Ok(())
}
