//! Workloads by name: recordings and generated programs.

use super::progress::Progress;
use crate::errors::{describe, Failure};
use memfit_core::sample::Sampled;
use memfit_core::scheme::Scheme;
use memfit_sim::cost::CostTable;
use memfit_sim::device::Device;
use memfit_sim::generate::{find, Spec, WORKLOADS};
use memfit_sim::{first_pass, footprint, EventSource, Recorded, RecordedContents, ReplayError};
use std::path::Path;
use std::sync::Arc;

/// Where the events of a workload come from.
pub enum Source {
    /// Path of a recording.
    Recording(String),
    /// Name and parameters of a generated workload.
    Generator(String),
}

/// What is known of a recording.
pub struct RecordingInfo {
    /// The command that was recorded.
    pub command: Vec<String>,
    /// A simulation of a generated workload was recorded, and not a run.
    pub generated: bool,
    /// Its scheme.
    pub scheme: Arc<Scheme>,
    /// Its budget, bytes.
    pub budget: u64,
    /// Share of its time in which the program computed.
    pub computing: f64,
    /// How its touches were sampled, and the sampled share of its pages.
    pub sampled: Option<(Sampled, f64)>,
    /// The recorded contents.
    pub noted: RecordedContents,
    /// The recording ends early.
    pub cut: bool,
}

/// The sample to which a replay is limited, and the recorded contents.
pub type Sample<'a> = (Sampled, &'a RecordedContents);

/// What is known of a workload before its simulation.
pub struct KnownWorkload {
    /// Its name on the command line.
    pub name: String,
    /// Where its events come from.
    pub source: Source,
    /// Pages that it needs; 0: not determined.
    pub footprint: u64,
    /// Number of its events, exact or estimated; 0: not determined.
    pub events: u64,
    /// For a recorded workload.
    pub recorded: Option<RecordingInfo>,
}

/// Opens the workload at its beginning.
///
/// # Errors
/// When it cannot be opened.
pub fn open(source: &Source, computing: f64, only: Option<Sample<'_>>) -> Result<Box<dyn EventSource>, Failure> {
    match source {
        Source::Recording(path) => {
            let path_name = Path::new(path);
            let recorded = Recorded::new(crate::trace::open(path_name)?, computing);
            let recorded = recorded.map_err(|error| failed(path, &error))?.of_length(crate::trace::length(path_name));
            Ok(Box::new(match only {
                Some((sampled, noted)) => recorded.of_sample(sampled, noted.kept().into()),
                None => recorded,
            }))
        }
        Source::Generator(spec) => {
            let spec = Spec::parse(spec).map_err(|error| Failure::usage(error.to_string()))?;
            Ok(Box::new(spec.make()))
        }
    }
}

/// The failure for a recording that cannot be used.
pub fn failed(path: &str, error: &ReplayError) -> Failure {
    Failure::here(format!("{path}: {error}"))
}

impl KnownWorkload {
    /// Examines a named workload. `size`: determine what a generated one needs, which takes a run
    /// of it.
    ///
    /// # Errors
    /// When there is no such workload, or it cannot be used.
    pub fn examine(
        name: &str,
        costs: &Arc<CostTable>,
        device: &Arc<Device>,
        swap_bytes: u64,
        size: bool,
        progress: &Progress,
    ) -> Result<KnownWorkload, Failure> {
        let made = find(name.split(':').next().unwrap_or(name)).is_some();
        if !Path::new(name).exists() && made {
            let source = Source::Generator(name.to_owned());
            let (footprint, events) = match size {
                true => needs(name, &source, None, progress)?,
                false => (0, 0),
            };
            return Ok(KnownWorkload { name: name.to_owned(), source, footprint, events, recorded: None });
        }
        let data = std::fs::metadata(name).map_err(|error| {
            let names = WORKLOADS.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
            Failure::usage(format!(
                "{name}: {}; give a recording of memfit run --record, or a workload that can be made: {names}",
                describe(&error)
            ))
        })?;
        if !data.is_file() && !data.is_dir() {
            return Err(Failure::usage(format!(
                "{name}: it is no regular file; a simulation reads a recording several times: write it to a file, and \
                 give that"
            )));
        }
        let recording = crate::trace::open(Path::new(name))?;
        let head = recording.head().clone();
        let length = crate::trace::length(Path::new(name));
        let shows = &mut |far| progress.first_pass(name, far);
        let replays = || first_pass(recording, costs, device, swap_bytes, length, shows);
        let first = crate::trace::explaining_panics(Path::new(name), replays);
        let first = first.map_err(|error| failed(name, &error))?;
        if let Some(end) = &first.end {
            progress.say(&format!("memfit: {name}: {end}"));
        }
        let tunables = head.tunables().map_err(|error| failed(name, &ReplayError::Head(error)))?;
        let source = Source::Recording(name.to_owned());
        let sampled = match first.sampled {
            Some(sampled) => {
                let (pages, _) = needs(name, &source, Some((sampled, &first.noted)), progress)?;
                Some((sampled, pages as f64 / first.footprint.max(1) as f64)).filter(|&(_, rate)| rate > 0.0)
            }
            None => None,
        };
        let recorded = Some(RecordingInfo {
            generated: head.is_generated(),
            command: head.command,
            scheme: tunables.scheme,
            budget: head.budget_bytes,
            computing: first.computing,
            sampled,
            noted: first.noted,
            cut: first.end.is_some(),
        });
        Ok(KnownWorkload { name: name.to_owned(), source, footprint: first.footprint, events: first.events, recorded })
    }
}

/// Peak of a workload's pages, and the number of its events.
fn needs(name: &str, source: &Source, only: Option<Sample<'_>>, progress: &Progress) -> Result<(u64, u64), Failure> {
    let mut source = open(source, 1.0, only)?;
    let need = footprint(&mut *source, &mut |far| progress.first_pass(name, far));
    let need = need.map_err(|error| failed(name, &error))?;
    Ok((need.pages(), need.events()))
}
