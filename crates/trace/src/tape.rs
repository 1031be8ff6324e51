//! Collects calls and notes for the next block.

use crate::write::Begins;
use memfit_core::trace::{Encoder, Note};
use memfit_core::CoreCall;

/// Bytes of encoded calls from which on a block is full.
pub const BLOCK_BYTES: usize = 32 << 10;

/// A block of calls, and the notes between them.
#[derive(Debug)]
pub struct Filled {
    /// Its position in the run.
    pub begins: Begins,
    /// Number of calls.
    pub calls: u32,
    /// Encoded calls and notes.
    pub bytes: Vec<u8>,
}

/// Collects calls and notes into blocks.
#[derive(Debug, Default)]
pub struct Tape {
    encoder: Encoder,
    begins: Begins,
    calls: u32,
    bytes: Vec<u8>,
}

impl Tape {
    /// Adds a call. `begins` gives the position of a block that begins with it. Returns whether the
    /// block is full.
    pub fn call(&mut self, begins: impl FnOnce() -> Begins, asked: &CoreCall<'_>) -> bool {
        self.begin(begins);
        self.encoder.call(&mut self.bytes, asked);
        self.calls += 1;
        self.bytes.len() >= BLOCK_BYTES
    }

    /// Adds a note, which has no number of its own: a block that begins with it has the position of
    /// the next call. Returns whether the block is full.
    pub fn note(&mut self, begins: impl FnOnce() -> Begins, note: Note) -> bool {
        self.begin(begins);
        self.encoder.note(&mut self.bytes, note);
        self.bytes.len() >= BLOCK_BYTES
    }

    fn begin(&mut self, begins: impl FnOnce() -> Begins) {
        if self.bytes.is_empty() {
            self.begins = begins();
            self.bytes.reserve(BLOCK_BYTES + 1024);
        }
    }

    /// Number of calls in the block, and the time of its beginning, ns.
    pub fn state(&self) -> (u32, u64) {
        (self.calls, self.begins.at_ns)
    }

    /// The collected block, if it is not empty; begins a new one.
    pub fn take(&mut self) -> Option<Filled> {
        if self.bytes.is_empty() {
            return None;
        }
        self.encoder = Encoder::default();
        let bytes = std::mem::take(&mut self.bytes);
        Some(Filled { begins: self.begins, calls: std::mem::take(&mut self.calls), bytes })
    }
}
