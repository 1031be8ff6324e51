//! The writer of the reclaim thread: to the log, or to blocks.

use super::{BlockWriter, SwapTier, Writer, Written};
use std::sync::Arc;

/// The writer for the tier's layout.
pub enum Output {
    /// Appends objects.
    Log(Writer),
    /// Writes the blocks that the core chooses.
    Blocks(BlockWriter),
}

impl Output {
    /// A writer for this tier.
    pub fn new(tier: Arc<SwapTier>) -> Output {
        match tier.is_log() {
            true => Output::Log(Writer::new(tier)),
            false => Output::Blocks(BlockWriter::new(tier)),
        }
    }

    /// The writer of the log.
    pub fn log(&mut self) -> Option<&mut Writer> {
        match self {
            Output::Log(writer) => Some(writer),
            Output::Blocks(_) => None,
        }
    }

    /// Whether any device still takes writes.
    pub fn usable(&self) -> bool {
        match self {
            Output::Log(writer) => writer.usable(),
            Output::Blocks(writer) => writer.usable(),
        }
    }

    /// Whether writes are under way.
    pub fn busy(&self) -> bool {
        match self {
            Output::Log(writer) => writer.busy(),
            Output::Blocks(writer) => writer.busy(),
        }
    }

    /// Whether a segment is being cleaned.
    pub fn cleaning(&self) -> bool {
        matches!(self, Output::Log(writer) if writer.cleaning())
    }

    /// Writes what has been collected.
    pub fn flush(&mut self) {
        match self {
            Output::Log(writer) => writer.flush(),
            Output::Blocks(writer) => writer.flush(),
        }
    }

    /// The writes that have ended since the last call.
    pub fn reap(&mut self) -> Vec<Written> {
        match self {
            Output::Log(writer) => writer.reap(),
            Output::Blocks(writer) => writer.reap(),
        }
    }

    /// Waits until a write has ended, at most `ms` milliseconds.
    pub fn wait(&mut self, ms: i32) {
        match self {
            Output::Log(writer) => writer.wait(ms),
            Output::Blocks(writer) => writer.wait(ms),
        }
    }
}
