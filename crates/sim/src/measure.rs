//! Measures a workload before it is simulated.

use crate::contents::Contents;
use crate::cost::CostTable;
use crate::device::Device;
use crate::event_source::{Batch, EventSource, Position};
use crate::hash::NumberMap;
use crate::machine::{Machine, Residents, Setup};
use crate::recorded::{Recorded, RecordedContents};
use crate::replay::ReplayError;
use crate::workload::Event;
use memfit_core::sample::Sampled;
use memfit_trace::Reader;
use std::io::Read;
use std::sync::Arc;

/// Least share of a run's time that counts as computing, because the modelled costs are not those
/// of the machine that ran it.
const COMPUTING_MIN: f64 = 0.05;

/// Most pages that a workload has at once, pages of files included: the memory in which nothing
/// would be evicted.
#[derive(Debug, Default)]
pub struct Footprint {
    /// A bit for each page, by process and by page / 64.
    live: NumberMap<u32, NumberMap<u64, u64>>,
    now: u64,
    most: u64,
    events: u64,
}

impl Footprint {
    /// Counts an event.
    pub fn see(&mut self, event: &Event) {
        self.events += 1;
        match *event {
            Event::Touches { proc, page, .. } | Event::Present { proc, page } | Event::Brought { proc, page } => {
                self.add(proc, page);
            }
            Event::Frees { proc, first, pages } => self.free(proc, first, first.saturating_add(pages), |_| {}),
            Event::Moves { proc, first, pages, to } => {
                let mut moved = Vec::new();
                self.free(proc, first, first.saturating_add(pages), |page| moved.push(page));
                self.free(proc, to, to.saturating_add(pages), |_| {});
                moved.into_iter().for_each(|page| self.add(proc, page - first + to));
            }
            Event::Ends { proc } => {
                let words = self.live.remove(&proc).unwrap_or_default();
                self.now -= words.values().map(|bits| u64::from(bits.count_ones())).sum::<u64>();
            }
            _ => {}
        }
    }

    fn add(&mut self, proc: u32, page: u64) {
        let bits = self.live.entry(proc).or_default().entry(page / 64).or_default();
        self.now += u64::from(*bits >> (page % 64) & 1 == 0);
        *bits |= 1 << (page % 64);
        self.most = self.most.max(self.now);
    }

    /// `each` gets the pages that were there.
    fn free(&mut self, proc: u32, first: u64, end: u64, mut each: impl FnMut(u64)) {
        let Some(words) = self.live.get_mut(&proc) else { return };
        let gone: Vec<u64> = match (end - first) / 64 > words.len() as u64 {
            true => words.keys().copied().collect(),
            false => (first / 64..=end / 64).collect(),
        };
        for word in gone {
            let Some(bits) = words.get_mut(&word) else { continue };
            let inside = (0..64).filter(|bit| (first..end).contains(&(word * 64 + bit)));
            let mask: u64 = inside.fold(0, |mask, bit| mask | 1 << bit);
            self.now -= u64::from((*bits & mask).count_ones());
            (0..64).filter(|bit| *bits & mask & 1 << bit != 0).for_each(|bit| each(word * 64 + bit));
            *bits &= !mask;
            if *bits == 0 {
                words.remove(&word);
            }
        }
    }

    /// The footprint so far, pages.
    pub fn pages(&self) -> u64 {
        self.most
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }
}

/// The footprint of a whole workload. Calls `progress` after each batch.
///
/// # Errors
/// If the source fails.
pub fn footprint(source: &mut dyn EventSource, progress: &mut dyn FnMut(Position)) -> Result<Footprint, ReplayError> {
    let mut footprint = Footprint::default();
    let mut batch = Batch::default();
    while source.fill(&mut batch)? {
        batch.events.iter().for_each(|event| footprint.see(event));
        progress(Position { events: footprint.events(), share: source.share() });
    }
    Ok(footprint)
}

/// Result of a first pass over a recording.
#[derive(Debug, Clone)]
pub struct FirstPass {
    /// Most managed pages that its programs had at once.
    pub footprint: u64,
    /// Events of the workload, without those of computing time.
    pub events: u64,
    /// Share of its time in which the programs computed, 0 to 1. They waited for pages for the
    /// rest, by the given costs.
    pub computing: f64,
    /// Calls replayed with the recorded decisions.
    pub calls: u64,
    /// Time of the run, ns.
    pub run_ns: u64,
    /// The pages that the run samples, by the last note.
    pub sampled: Option<Sampled>,
    /// Recorded contents.
    pub noted: RecordedContents,
    /// A message about how the recording ended, if there is one.
    pub end: Option<String>,
}

/// Simulates a recorded run under its own scheme, to estimate how much of its time was waiting.
/// `length`: bytes of the recording, if known. Calls `progress` after each batch.
///
/// # Errors
/// If the recording cannot be replayed.
pub fn first_pass<R: Read + Send>(
    reader: Reader<R>,
    costs: &Arc<CostTable>,
    device: &Arc<Device>,
    swap_bytes: u64,
    length: Option<u64>,
    progress: &mut dyn FnMut(Position),
) -> Result<FirstPass, ReplayError> {
    let tunables = reader.head().tunables().map_err(ReplayError::Head)?;
    let budget = reader.head().budget_bytes;
    let mut recorded = Recorded::new(reader, 0.0)?.of_length(length);
    let setup = Setup {
        scheme: tunables.scheme,
        budget,
        swap_bytes: if tunables.swap { swap_bytes } else { 0 },
        residents: Residents::AsRecorded,
        rate: 1.0,
        tables_per_frame: 0,
        costs: Arc::clone(costs),
        device: Arc::clone(device),
    };
    let mut machine = Machine::new(&setup, Contents::new());
    let mut batch = Batch::default();
    let mut footprint = Footprint::default();
    while recorded.fill(&mut batch)? {
        machine.batch(&batch);
        batch.events.iter().for_each(|event| footprint.see(event));
        progress(Position { events: footprint.events(), share: recorded.share() });
    }
    let run_ns = recorded.run_ns();
    let (calls, end) = (recorded.calls(), recorded.end());
    let waiting = machine.times().program;
    let computing = match run_ns {
        0 => 1.0,
        _ => (1.0 - waiting as f64 / run_ns as f64).max(COMPUTING_MIN),
    };
    let (footprint, events) = (footprint.pages(), footprint.events());
    let (sampled, noted) = (recorded.sampled(), recorded.noted().clone());
    Ok(FirstPass { footprint, events, computing, calls, run_ns, sampled, noted, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_move_count_where_they_are() {
        let mut footprint = Footprint::default();
        (0..100).for_each(|page| footprint.see(&Event::Present { proc: 1, page }));
        footprint.see(&Event::Present { proc: 1, page: 1010 });
        // The page that was there is gone.
        footprint.see(&Event::Moves { proc: 1, first: 50, pages: 50, to: 1000 });
        assert_eq!((footprint.now, footprint.most), (100, 101));
        footprint.see(&Event::Frees { proc: 1, first: 50, pages: 50 });
        assert_eq!(footprint.now, 100);
        footprint.see(&Event::Moves { proc: 1, first: 1000, pages: 50, to: 1010 });
        footprint.see(&Event::Frees { proc: 1, first: 0, pages: 1010 });
        assert_eq!((footprint.now, footprint.pages()), (50, 101));
        footprint.see(&Event::Ends { proc: 1 });
        assert_eq!(footprint.now, 0);
    }
}
