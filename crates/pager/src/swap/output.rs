//! What the reclaim thread writes with: to the log, or to blocks.

use super::{BlockWriter, SwapTier, Writer, Written};
use std::sync::Arc;

/// The one that belongs to the tier's layout.
pub enum Output {
    /// Objects are appended.
    Log(Writer),
    /// Blocks are written where the core says.
    Blocks(BlockWriter),
}

impl Output {
    /// Nothing to write yet.
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

    /// Whether any device takes writes still.
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

    /// What has ended since the last call.
    pub fn reap(&mut self) -> Vec<Written> {
        match self {
            Output::Log(writer) => writer.reap(),
            Output::Blocks(writer) => writer.reap(),
        }
    }

    /// Waits until something has ended, so many milliseconds at most.
    pub fn wait(&mut self, ms: i32) {
        match self {
            Output::Log(writer) => writer.wait(ms),
            Output::Blocks(writer) => writer.wait(ms),
        }
    }
}
