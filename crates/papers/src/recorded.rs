//! Recordings of real programs, in place of those that are made up.
//!
//! `bench/papers.py record` writes them, each of a program under a scheme:
//! `PAPER/WORKLOAD/CONFIG.memfit`, with the names of the simulations that they stand beside, blanks
//! as `_`. A recording is simulated under its own scheme in its own budget, with the pages in
//! memory that were there then: so the order of faults and the sizes of pages are those of the run,
//! and what is computed is what the paper's device and processor make of it.

use crate::lab::{Job, Load, Plan, Watched};
use crate::Paper;
use memfit_codec::CodecId;
use memfit_core::scheme::Scheme;
use memfit_sim::cost::CostTable;
use memfit_sim::{first_look, Batch, Event, EventSource, Recorded, Residents, Setup};
use memfit_trace::Reader;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a name ends with.
const ENDS: &str = "memfit";
/// Swap that is never full: the programs ran with as much as they needed.
const SWAP_BYTES: u64 = 16 << 30;
/// What a page of the machine that records costs, for the share of a run's time that was waiting.
const COSTS: &str = "measured";
const DEVICE: &str = "ssd-nvme";
/// Events between two looks at all counts.
const LOOK_EVERY: u64 = 4096;
/// In place of a mark of the workload: a look at all counts.
pub const LOOKED: u32 = u32::MAX - 1;
/// Marks: the second program begins, and ends. A fork child that is on its way to a program of its
/// own is none.
const SECOND_BEGINS: u32 = 0;
const SECOND_ENDS: u32 = 1;

/// How the programs that are recorded differ from those that are made up.
pub struct Live {
    /// Their sizes are those of the paper's setting divided by this.
    pub scale: f64,
    /// How else.
    pub differs: &'static [&'static str],
    /// What numbers that no recording can tell begin with.
    pub without: &'static [&'static str],
}

/// A recording that can be used.
#[derive(Debug, Clone)]
pub struct Recording {
    /// Short name of the paper.
    pub paper: String,
    /// Workload and configuration, as simulations are called.
    pub name: (String, String),
    /// What was run.
    pub command: String,
    /// Its scheme and its budget in bytes.
    pub scheme: Arc<Scheme>,
    /// See there.
    pub budget: u64,
    /// With a swap tier.
    swap: bool,
    /// Time of the run, ns.
    pub run_ns: u64,
    /// Of this: its programs computed.
    pub computing_ns: f64,
    /// Calls, each of which was replayed with the same decision.
    pub calls: u64,
    /// Where it was cut.
    pub end: Option<String>,
    bytes: Arc<Vec<u8>>,
}

/// Those of a directory.
#[derive(Debug, Default)]
pub struct Recordings {
    /// By paper and name.
    pub all: Vec<Recording>,
    /// Files that cannot be used, and why.
    pub left_out: Vec<String>,
}

impl Recordings {
    /// Reads all that are there; none if there is no such directory.
    ///
    /// # Errors
    /// When it cannot be read.
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
        // A program computes as long under each scheme; waiting that is not priced, and other
        // programs, only add to it.
        let mut least: HashMap<(String, String), f64> = HashMap::new();
        let of = |recording: &Recording| (recording.paper.clone(), recording.name.0.clone());
        for recording in &out.all {
            let ns = least.entry(of(recording)).or_insert(recording.computing_ns);
            *ns = ns.min(recording.computing_ns);
        }
        out.all.iter_mut().for_each(|recording| recording.computing_ns = least[&of(recording)]);
        Ok(out)
    }

    /// Those of a paper.
    pub fn of<'a>(&'a self, paper: &'a Paper) -> impl Iterator<Item = &'a Recording> {
        self.all.iter().filter(|recording| recording.paper == paper.name)
    }

    /// Simulations of a paper's recordings. Those that would stand beside none are left out.
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

/// What is wanted of a paper's recordings: programs of their own size.
pub fn live(paper: &Paper, plan: &Plan) -> Plan {
    Plan { scale: paper.recorded.scale, quick: false, ..*plan }
}

/// All recordings below a folder, in the order of their names.
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
        first_look(reader, &costs, &device, SWAP_BYTES, None, &mut |_| {}).map_err(|error| error.to_string())?;
    if first.sampled.is_some() {
        return Err("it has the touches of a sample, and not all faults: record it without --record-access".into());
    }
    let tunables = head.tunables().map_err(|error| error.to_string())?;
    // Where programs and their inputs lie is of no interest.
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
    /// Its simulation on the device and the processor of the one that it stands beside.
    fn job(&self, beside: &Setup) -> Job {
        let setup = Setup {
            scheme: Arc::clone(&self.scheme),
            budget: self.budget,
            swap_bytes: if self.swap { SWAP_BYTES } else { 0 },
            residents: Residents::AsRecorded,
            rate: 1.0,
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

/// How many times as long a processor computes as that of the machine that records: as many times
/// as its LZO takes.
fn slower(costs: &CostTable) -> f64 {
    let lzo = |costs: &CostTable| costs.codec(CodecId::LZO.0).compress_ns as f64;
    lzo(costs) / lzo(&crate::lab::costs(COSTS))
}

/// A recording as a workload.
#[derive(Debug, Clone)]
pub struct Played {
    bytes: Arc<Vec<u8>>,
    /// Time that is computed for each ns that has passed in the run.
    computing: f64,
}

impl Played {
    /// Does all of it.
    ///
    /// # Panics
    /// If it is not what was replayed when it was read.
    pub fn run(&self, watched: &mut Watched<'_>) {
        let reader = Reader::new(&self.bytes[..]).expect("it was read before");
        let mut source = Recorded::new(reader, 1.0).expect("it was replayed before");
        let (mut batch, mut count, mut started) = (Batch::default(), 0, Vec::new());
        while source.fill(&mut batch).expect("it was replayed before") {
            let events = std::mem::take(&mut batch.events);
            // What its pages hold.
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
                if count % LOOK_EVERY == 0 {
                    watched.mark(LOOKED);
                }
            }
        }
    }
}
