//! Workloads by name: recordings and programs that are made up.

use crate::errors::{describe, Failure};
use memfit_core::sample::Sampled;
use memfit_core::scheme::Scheme;
use memfit_sim::cost::CostTable;
use memfit_sim::device::Device;
use memfit_sim::generate::{find, Spec, WORKLOADS};
use memfit_sim::{first_look, footprint, Feed, Recorded, ReplayError};
use std::path::Path;
use std::sync::Arc;

/// A workload that was named.
pub enum Source {
    /// Path of a recording.
    Recording(String),
    /// Name and parameters of one that is made.
    Generator(String),
}

/// What is known of a recording.
pub struct Of {
    /// The command that was recorded.
    pub command: Vec<String>,
    /// Its scheme.
    pub scheme: Arc<Scheme>,
    /// Its budget, bytes.
    pub budget: u64,
    /// Share of its time in which it computed.
    pub computing: f64,
    /// What was sampled of its touches, and the share of its pages that this is.
    pub sampled: Option<(Sampled, f64)>,
    /// It ends early.
    pub cut: bool,
}

/// What is known of it before it is simulated.
pub struct Known {
    /// As it was named.
    pub name: String,
    /// Where its events come from.
    pub source: Source,
    /// Pages that it needs.
    pub footprint: u64,
    /// If it was recorded.
    pub recorded: Option<Of>,
}

/// A feed of the workload, from its beginning.
///
/// # Errors
/// When there can be none.
pub fn open(source: &Source, computing: f64, only: Option<Sampled>) -> Result<Box<dyn Feed>, Failure> {
    match source {
        Source::Recording(path) => {
            let recorded = Recorded::new(crate::trace::open(Path::new(path))?, computing);
            Ok(Box::new(recorded.map_err(|error| failed(path, &error))?.of_sample(only)))
        }
        Source::Generator(spec) => {
            let spec = Spec::parse(spec).map_err(|error| Failure::usage(error.to_string()))?;
            Ok(Box::new(spec.make()))
        }
    }
}

/// A recording that cannot be used.
pub fn failed(path: &str, error: &ReplayError) -> Failure {
    Failure::here(format!("{path}: {error}"))
}

impl Known {
    /// Looks at what was named. `size`: what one needs that is made up is wanted, for which it runs once more.
    ///
    /// # Errors
    /// When there is no such thing, or it cannot be used.
    pub fn look(
        name: &str,
        costs: &Arc<CostTable>,
        device: &Arc<Device>,
        swap_bytes: u64,
        size: bool,
    ) -> Result<Known, Failure> {
        let made = find(name.split(':').next().unwrap_or(name)).is_some();
        if !Path::new(name).exists() && made {
            let source = Source::Generator(name.to_owned());
            let footprint = match size {
                true => footprint(&mut *open(&source, 1.0, None)?).map_err(|error| failed(name, &error))?,
                false => 0,
            };
            return Ok(Known { name: name.to_owned(), source, footprint, recorded: None });
        }
        if let Err(error) = std::fs::metadata(name) {
            let names = WORKLOADS.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
            return Err(Failure::usage(format!(
                "{name}: {}; give a recording of memfit run --record, or a workload that can be made: {names}",
                describe(&error)
            )));
        }
        let recording = crate::trace::open(Path::new(name))?;
        let head = recording.head().clone();
        let first = first_look(recording, costs, device, swap_bytes).map_err(|error| failed(name, &error))?;
        if let Some(end) = &first.end {
            eprintln!("memfit: {name}: {end}");
        }
        let tunables = head.tunables().map_err(|error| failed(name, &ReplayError::Head(error)))?;
        let sampled = match first.sampled {
            Some(sampled) => {
                let some = open(&Source::Recording(name.to_owned()), 1.0, Some(sampled))?;
                let pages = footprint(&mut *{ some }).map_err(|error| failed(name, &error))?;
                Some((sampled, pages as f64 / first.footprint.max(1) as f64)).filter(|&(_, rate)| rate > 0.0)
            }
            None => None,
        };
        let recorded = Some(Of {
            command: head.command,
            scheme: tunables.scheme,
            budget: head.budget_bytes,
            computing: first.computing,
            sampled,
            cut: first.end.is_some(),
        });
        let source = Source::Recording(name.to_owned());
        Ok(Known { name: name.to_owned(), source, footprint: first.footprint, recorded })
    }
}
