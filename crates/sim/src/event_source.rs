//! Events in batches, so that one source can feed several machines.

use crate::contents::{Content, Contents};
use crate::replay::ReplayError;
use crate::workload::{Event, Workload};

/// Most events of a batch.
pub const BATCH: usize = 1 << 14;

/// Events, and the contents that occur in them for the first time.
#[derive(Debug, Default)]
pub struct Batch {
    /// Events in their order.
    pub events: Vec<Event>,
    /// New contents; their numbers follow those of the last batch.
    pub contents: Vec<Content>,
    known: usize,
}

impl Batch {
    /// Empties the batch for the next events.
    pub fn clear(&mut self) {
        self.events.clear();
        self.contents.clear();
    }

    /// Takes the events and contents out; the batch is empty afterwards.
    pub fn hand_over(&mut self) -> Batch {
        let (events, contents) = (std::mem::take(&mut self.events), std::mem::take(&mut self.contents));
        self.events.reserve(BATCH);
        Batch { events, contents, known: self.known }
    }

    /// Adds the contents in `contents` that earlier batches did not have.
    pub fn learn(&mut self, contents: &Contents) {
        self.contents.extend(contents.since(self.known));
        self.known = contents.count();
    }
}

/// Progress through a source.
#[derive(Debug, Clone, Copy)]
pub struct Position {
    /// Events so far.
    pub events: u64,
    /// See [`EventSource::share`].
    pub share: Option<f64>,
}

/// A source of events.
pub trait EventSource: Send {
    /// Fills the batch with the next events. Returns false at the end.
    ///
    /// # Errors
    /// If the next events cannot be determined.
    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReplayError>;

    /// Share of the source that was handed out, 0 to 1, if it is known.
    fn share(&self) -> Option<f64> {
        None
    }

    /// A message about how the source ended, if there is one.
    fn end(&self) -> Option<String> {
        None
    }
}

/// Calls `each` for all events of a source, and `progress` after each batch.
///
/// # Errors
/// If the source fails.
pub fn each_event(
    source: &mut dyn EventSource,
    progress: &mut dyn FnMut(Position),
    mut each: impl FnMut(&Event),
) -> Result<(), ReplayError> {
    let (mut batch, mut events) = (Batch::default(), 0);
    while source.fill(&mut batch)? {
        batch.events.iter().for_each(&mut each);
        events += batch.events.len() as u64;
        progress(Position { events, share: source.share() });
    }
    Ok(())
}

impl<W: Workload + ?Sized> EventSource for Box<W> {
    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReplayError> {
        batch.clear();
        batch.events.extend(self.by_ref().take(BATCH));
        Ok(!batch.events.is_empty())
    }
}
