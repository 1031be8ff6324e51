//! Recordings of real programs in place of generated workloads.
//!
//! `lab/bench/papers.py record` writes them, each of a program under a scheme:
//! `PAPER/WORKLOAD/CONFIG.memfit`. The names are those of the corresponding simulation, with blanks
//! as `_`. A recording is simulated under its own scheme, in its own budget, with the resident
//! pages that it had. So the order of faults and the sizes of pages are those of the run. The
//! paper's device and processor determine the times.

use crate::lab::{Job, Load, Plan, Watched};
use crate::Paper;
use memfit_codec::CodecId;
use memfit_core::scheme::Scheme;
use memfit_sim::cost::CostTable;
use memfit_sim::{first_pass, Batch, Event, EventSource, Recorded, Residents, Setup};
use memfit_trace::Reader;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Extension of recordings.
const ENDS: &str = "memfit";
/// Swap that is never full: the programs ran with as much as they needed.
const SWAP_BYTES: u64 = 16 << 30;
/// Costs and device of the recording machine, to estimate how long the run waited.
const COSTS: &str = "measured";
const DEVICE: &str = "ssd-nvme";
/// Events between two notes of all counts.
const NOTE_EVERY: u64 = 4096;
/// In place of a mark of the workload: a periodic note of all counts.
pub const NOTED: u32 = u32::MAX - 1;
/// Marks: the second program begins, and ends. A fork child on its way to exec does not count as a
/// program.
const SECOND_BEGINS: u32 = 0;
const SECOND_ENDS: u32 = 1;

/// How the recorded programs differ from the generated ones.
pub struct Live {
    /// Additional divisor of the sizes in the paper's setting.
    pub scale: f64,
    /// Other differences.
    pub differs: &'static [&'static str],
    /// Prefixes of the numbers that recordings cannot give.
    pub without: &'static [&'static str],
}

/// A recording that can be used.
#[derive(Debug, Clone)]
pub struct Recording {
    /// Short name of the paper.
    pub paper: String,
    /// Workload and configuration, as in the names of simulations.
    pub name: (String, String),
    /// The command that ran.
    pub command: String,
    /// Its scheme.
    pub scheme: Arc<Scheme>,
    /// Its budget, bytes.
    pub budget: u64,
    /// Whether it had a swap tier.
    swap: bool,
    /// Time of the run, ns.
    pub run_ns: u64,
    /// Of this, time in which its programs computed, ns.
    pub computing_ns: f64,
    /// Number of calls, all replayed with the same decision.
    pub calls: u64,
    /// Where it was cut, if it was.
    pub end: Option<String>,
    bytes: Arc<Vec<u8>>,
}

/// The recordings in a directory.
#[derive(Debug, Default)]
pub struct Recordings {
    /// The usable recordings, sorted by path.
    pub all: Vec<Recording>,
    /// Files that cannot be used, with the reason.
    pub left_out: Vec<String>,
}

impl Recordings {
    /// Reads all recordings in a directory; none if it does not exist.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn load(folder: &Path) -> io::Result<Recordings> {
        let mut out = Recordings::default();
        for path in files(folder)? {
            match read(folder, &path) {
                Ok(recording) => out.all.push(recording),
                Err(why) => {
                    out.left_out.push(format!("{}: {why}", path.strip_prefix(folder).unwrap_or(&path).display()))
                }
            }
        }
        // A program computes for the same time under each scheme; unpriced waiting and other
        // programs only add to it. So the least time counts.
        let mut least: HashMap<(String, String), f64> = HashMap::new();
        let of = |recording: &Recording| (recording.paper.clone(), recording.name.0.clone());
        for recording in &out.all {
            let ns = least.entry(of(recording)).or_insert(recording.computing_ns);
            *ns = ns.min(recording.computing_ns);
        }
        out.all.iter_mut().for_each(|recording| recording.computing_ns = least[&of(recording)]);
        Ok(out)
    }

    /// The recordings of a paper.
    pub fn of<'a>(&'a self, paper: &'a Paper) -> impl Iterator<Item = &'a Recording> {
        self.all.iter().filter(|recording| recording.paper == paper.name)
    }

    /// Simulations of a paper's recordings. Removes recordings that correspond to no simulation.
    pub fn jobs(&mut self, paper: &Paper, plan: &Plan) -> Vec<Job> {
        let beside: HashMap<_, _> =
            (paper.jobs)(&live(paper, plan)).into_iter().map(|job| (job.name, job.setup)).collect();
        let (mut jobs, left_out) = (Vec::new(), &mut self.left_out);
        self.all.retain(|recording| {
            let setup = match recording.paper == paper.name {
                true => beside.get(&recording.name),
                false => return true,
            };
            match setup {
                Some(setup) => jobs.push(recording.job(setup)),
                None => {
                    let (workload, config) = &recording.name;
                    left_out.push(format!("{}/{workload}/{config}: there is no simulation of that name", paper.name));
                }
            }
            setup.is_some()
        });
        jobs
    }
}

/// The plan for a paper's recordings, with programs of their own size.
pub fn live(paper: &Paper, plan: &Plan) -> Plan {
    Plan { scale: paper.recorded.scale, quick: false, ..*plan }
}

/// All recordings below a folder, sorted by path.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    let mut out = Vec::new();
    for path in paths {
        match path.is_dir() {
            true => out.extend(files(&path)?),
            false if path.extension().is_some_and(|ends| ends == ENDS) => out.push(path),
            false => {}
        }
    }
    Ok(out)
}

fn read(folder: &Path, path: &Path) -> Result<Recording, String> {
    let below = path.strip_prefix(folder).unwrap_or(path).with_extension("");
    let names: Vec<String> = below.iter().map(|part| part.to_string_lossy().replace('_', " ")).collect();
    let [paper, workload, config] = names.try_into().map_err(|_| format!("not PAPER/WORKLOAD/CONFIG.{ENDS}"))?;
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    let reader = Reader::new(&bytes[..]).map_err(|error| error.to_string())?;
    let head = reader.head().clone();
    let (costs, device) = (crate::lab::costs(COSTS), crate::lab::device(DEVICE));
    let first =
        first_pass(reader, &costs, &device, SWAP_BYTES, None, &mut |_| {}).map_err(|error| error.to_string())?;
    if first.sampled.is_some() {
        return Err("it has the touches of a sample, and not all faults: record it without --record-access".into());
    }
    let tunables = head.tunables().map_err(|error| error.to_string())?;
    // Paths of programs and inputs do not matter.
    let words = head.command.iter().map(|word| word.rsplit('/').next().unwrap_or(word));
    let command: Vec<&str> = words.map(|word| if word.contains('\n') { "..." } else { word }).collect();
    Ok(Recording {
        paper,
        name: (workload, config),
        command: command.join(" "),
        scheme: tunables.scheme,
        budget: head.budget_bytes,
        swap: tunables.swap,
        run_ns: first.run_ns,
        computing_ns: first.run_ns as f64 * first.computing,
        calls: first.calls,
        end: first.end,
        bytes: Arc::new(bytes),
    })
}

impl Recording {
    /// Its simulation with the device and the processor of the corresponding one.
    fn job(&self, beside: &Setup) -> Job {
        let setup = Setup {
            scheme: Arc::clone(&self.scheme),
            budget: self.budget,
            swap_bytes: if self.swap { SWAP_BYTES } else { 0 },
            residents: Residents::AsRecorded,
            rate: 1.0,
            tables_per_frame: 0,
            costs: Arc::clone(&beside.costs),
            device: Arc::clone(&beside.device),
        };
        let computing = self.computing_ns / self.run_ns.max(1) as f64 * slower(&beside.costs);
        Job {
            name: self.name.clone(),
            load: Load::Recorded(Played { bytes: Arc::clone(&self.bytes), computing }),
            setup,
        }
    }
}

/// How many times slower a processor is than that of the recording machine, by its time for LZO.
fn slower(costs: &CostTable) -> f64 {
    let lzo = |costs: &CostTable| costs.codec(CodecId::LZO.0).compress_ns as f64;
    lzo(costs) / lzo(&crate::lab::costs(COSTS))
}

/// A recording as a workload.
#[derive(Debug, Clone)]
pub struct Played {
    bytes: Arc<Vec<u8>>,
    /// Computing time for each ns that passed in the run.
    computing: f64,
}

impl Played {
    /// Runs the whole recording.
    ///
    /// # Panics
    /// If replaying differs from the replay when it was read.
    pub fn run(&self, watched: &mut Watched<'_>) {
        let reader = Reader::new(&self.bytes[..]).expect("it was read before");
        let mut source = Recorded::new(reader, 1.0).expect("it was replayed before");
        let (mut batch, mut count, mut started) = (Batch::default(), 0, Vec::new());
        while source.fill(&mut batch).expect("it was replayed before") {
            let events = std::mem::take(&mut batch.events);
            // Adds the contents of the batch; its events follow below.
            watched.machine.batch(&batch);
            for event in events {
                let ends = matches!(event, Event::Ends { proc } if started.get(1) == Some(&proc));
                if ends {
                    watched.mark(SECOND_ENDS);
                }
                watched.event(match event {
                    Event::Computes { ns } => Event::Computes { ns: (ns as f64 * self.computing) as u64 },
                    event => event,
                });
                if let Event::Starts { proc } = event {
                    started.push(proc);
                    if started.len() == 2 {
                        watched.mark(SECOND_BEGINS);
                    }
                }
                count += 1;
                if count % NOTE_EVERY == 0 {
                    watched.mark(NOTED);
                }
            }
        }
    }
}
