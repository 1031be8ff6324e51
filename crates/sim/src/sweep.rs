//! Several machines that get the same events.

use crate::contents::Contents;
use crate::event_source::{Batch, EventSource, Position};
use crate::machine::{Machine, Reached, Setup, Tally, Times};
use crate::price::{price, Codings, Counts, FaultCounts};
use crate::replay::ReplayError;
use memfit_core::Counters;
use std::num::NonZero;
use std::sync::mpsc::sync_channel;
use std::sync::Arc;
use std::thread;

/// Most batches queued for a thread.
const WAITING: usize = 4;

/// Result of a machine.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Counts, scaled up to the whole if the run was a miniature.
    pub tally: Tally,
    /// Counts of the core.
    pub counters: Counters,
    /// Times.
    pub times: Times,
    /// Marks of the workload that were reached.
    pub reached: Vec<Reached>,
    /// Pages and frames of the pool at the end.
    pub pool: (u64, u64),
    /// Bytes of the core's own tables at the end; the simulated budget does not include them.
    pub tables_bytes: u64,
    /// Time of all operations one after the other, ns: the cost of Han et al. 2018, equation 1.
    pub operations_ns: u64,
    /// Energy of the device beyond idle, nJ, if it is known.
    pub energy_nj: Option<u64>,
    /// Days until the device's rated bytes are written at this rate. `None` if it has no rating or
    /// nothing was written.
    pub days_to_rated_writes: Option<f64>,
}

impl Outcome {
    fn of(machine: &Machine, setup: &Setup) -> Outcome {
        let (tally, times) = (machine.tally().times(1.0 / setup.rate), machine.times());
        let usage = machine.core().pool_usage();
        let price = price(&counts(&tally), &setup.costs, &setup.device, times.computes);
        let written = price.written_bytes;
        Outcome {
            tally,
            counters: machine.counters().clone(),
            times,
            reached: machine.reached().to_vec(),
            pool: ((usage.zpages as f64 / setup.rate) as u64, (f64::from(usage.frames) / setup.rate) as u64),
            tables_bytes: (machine.core().metadata_bytes() as f64 / setup.rate) as u64,
            operations_ns: price.operations_ns(),
            energy_nj: price.energy_nj,
            days_to_rated_writes: setup.device.days_to_rated_writes(written, times.program),
        }
    }

    /// Run time relative to the run time with all pages in memory; `None` if the program never
    /// computes.
    pub fn slowdown(&self) -> Option<f64> {
        (self.times.computes > 0).then(|| self.times.program as f64 / self.times.computes as f64)
    }

    /// Compression ratio: size after / size before.
    pub fn ratio(&self) -> Option<f64> {
        let (before, after) = self.tally.coded_bytes;
        (before > 0).then(|| after as f64 / before as f64)
    }
}

/// Counts of a machine in the form that [`price`] takes.
pub fn counts(tally: &Tally) -> Counts {
    let of = |by: &crate::machine::BySource, file_first: u64| FaultCounts {
        zero: by.zero.saturating_sub(file_first),
        filled: by.filled,
        staged: by.staged,
        pool: by.pool,
        swap: by.swap,
        file: by.file,
    };
    let by_codec = |pages: &[u64]| (0..).zip(pages.iter().copied()).filter(|&(_, pages)| pages > 0).collect();
    Counts {
        faults: of(&tally.faults, tally.file_first),
        around: of(&tally.around, tally.file_first_around),
        waited: Codings { decompressed: by_codec(&tally.decompressions), ..Codings::default() },
        beside: Codings {
            compressed: by_codec(&tally.compressions),
            decompressed: by_codec(&tally.decompressed_to_write),
        },
        evicted_pages: tally.evicted,
        entropy_estimates: tally.estimates,
        swap_reads: tally.reads,
        file_reads: tally.file_reads,
        beside_reads: tally.cleaning_reads,
        writes: tally.writes,
    }
}

/// Number of threads worth starting for this many machines.
pub fn threads(machines: usize) -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(machines).max(1)
}

/// Runs a machine for each setup on `threads` threads. Calls `progress` after each batch.
///
/// # Errors
/// If the source fails.
pub fn sweep(
    source: &mut dyn EventSource,
    setups: &[Setup],
    threads: usize,
    progress: &mut dyn FnMut(Position),
) -> Result<Vec<Outcome>, ReplayError> {
    let threads = threads.clamp(1, setups.len().max(1));
    thread::scope(|scope| {
        let mut inputs = Vec::new();
        let mut handles = Vec::new();
        for number in 0..threads {
            let (input, batches) = sync_channel::<Arc<Batch>>(WAITING);
            inputs.push(input);
            handles.push(scope.spawn(move || {
                let own = || setups.iter().skip(number).step_by(threads);
                let mut machines: Vec<Machine> = own().map(|setup| Machine::new(setup, Contents::new())).collect();
                for batch in batches {
                    machines.iter_mut().for_each(|machine| machine.batch(&batch));
                }
                machines.iter().zip(own()).map(|(machine, setup)| Outcome::of(machine, setup)).collect::<Vec<_>>()
            }));
        }
        let mut events = 0;
        let mut batch = Batch::default();
        let fed = loop {
            match source.fill(&mut batch) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
            events += batch.events.len() as u64;
            let full = Arc::new(batch.hand_over());
            if inputs.iter().any(|input| input.send(Arc::clone(&full)).is_err()) {
                // The thread has panicked; the join below passes the panic on.
                break Ok(());
            }
            progress(Position { events, share: source.share() });
        };
        drop(inputs);
        let mut parts: Vec<_> = handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).into_iter())
            .collect();
        fed?;
        Ok((0..setups.len()).map(|i| parts[i % threads].next().expect("one for each setup")).collect())
    })
}
