//! The block that is being filled.

use crate::write::Begins;
use memfit_core::trace::{Encoder, Note};
use memfit_core::CoreCall;

/// Bytes of calls from which on a block is full.
pub const BLOCK_BYTES: usize = 32 << 10;

/// Calls that belong together, and the notes between them.
#[derive(Debug)]
pub struct Filled {
    /// Where they begin.
    pub begins: Begins,
    /// How many.
    pub calls: u32,
    /// Encoded.
    pub bytes: Vec<u8>,
}

/// Collects calls to blocks.
#[derive(Debug, Default)]
pub struct Tape {
    encoder: Encoder,
    begins: Begins,
    calls: u32,
    bytes: Vec<u8>,
}

impl Tape {
    /// Takes a call; `begins` says where the block begins if it is the first of one. Whether the
    /// block is full.
    pub fn call(&mut self, begins: impl FnOnce() -> Begins, asked: &CoreCall<'_>) -> bool {
        self.begin(begins);
        self.encoder.call(&mut self.bytes, asked);
        self.calls += 1;
        self.bytes.len() >= BLOCK_BYTES
    }

    /// Takes a note, which has no number: if a block begins with it, then at the call that comes
    /// next. Whether the block is full.
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

    /// Calls of the block, and when it began, ns.
    pub fn state(&self) -> (u32, u64) {
        (self.calls, self.begins.at_ns)
    }

    /// What was collected, if it was anything; a new block begins.
    pub fn take(&mut self) -> Option<Filled> {
        if self.bytes.is_empty() {
            return None;
        }
        self.encoder = Encoder::default();
        let bytes = std::mem::take(&mut self.bytes);
        Some(Filled { begins: self.begins, calls: std::mem::take(&mut self.calls), bytes })
    }
}
