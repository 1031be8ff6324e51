//! Events in batches, so that several machines can be fed at once.

use crate::contents::{Content, Contents};
use crate::replay::ReplayError;
use crate::workload::{Event, Workload};

/// Most events of a batch.
pub const BATCH: usize = 1 << 14;

/// Some events, and the contents that are named in them for the first time.
#[derive(Debug, Default)]
pub struct Batch {
    /// In their order.
    pub events: Vec<Event>,
    /// Those with the numbers that follow the last batch's.
    pub contents: Vec<Content>,
    known: usize,
}

impl Batch {
    /// For the next events.
    pub fn clear(&mut self) {
        self.events.clear();
        self.contents.clear();
    }

    /// What is in it, to be used elsewhere; it is empty then.
    pub fn hand_over(&mut self) -> Batch {
        let (events, contents) = (std::mem::take(&mut self.events), std::mem::take(&mut self.contents));
        self.events.reserve(BATCH);
        Batch { events, contents, known: self.known }
    }

    /// Takes what is new in `contents`, of which it has seen the rest.
    pub fn learn(&mut self, contents: &Contents) {
        self.contents.extend(contents.since(self.known));
        self.known = contents.count();
    }
}

/// How far a source was used.
#[derive(Debug, Clone, Copy)]
pub struct Far {
    /// Events so far.
    pub events: u64,
    /// As [`EventSource::share`] says.
    pub share: Option<f64>,
}

/// Where events come from.
pub trait EventSource: Send {
    /// Puts the next ones into the batch. False at the end.
    ///
    /// # Errors
    /// When there is no telling what comes next.
    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReplayError>;

    /// Share of what it has that was handed out, if it knows, 0 to 1.
    fn share(&self) -> Option<f64> {
        None
    }

    /// What is to be said about the end.
    fn end(&self) -> Option<String> {
        None
    }
}

impl<W: Workload + ?Sized> EventSource for Box<W> {
    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReplayError> {
        batch.clear();
        batch.events.extend(self.by_ref().take(BATCH));
        Ok(!batch.events.is_empty())
    }
}
