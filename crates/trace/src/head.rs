//! The head of a file: everything that a core is made from, and information about the run.

use crate::{shorten_words, HEAD_MAX, MEMFIT};
use memfit_core::budget::Sizes;
use memfit_core::{Tunables, PAGE_BYTES};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Most bytes of the command in a head; the other fields have the rest.
const COMMAND_MAX: usize = HEAD_MAX as usize / 2;

/// The JSON text at the beginning of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The version of memfit that recorded it.
    pub memfit: String,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// The scheme as TOML, with all values.
    pub scheme: String,
    /// The budget, bytes.
    pub budget_bytes: u64,
    /// As in [`Tunables`].
    pub staging_slots: u32,
    /// As in [`Tunables`].
    pub pool_frames: u32,
    /// As in [`Tunables`].
    pub area_frames: u32,
    /// As in [`Tunables`].
    pub swap: bool,
    /// As in [`Tunables`]: pairs of the first block and the block after the last one.
    pub blocks: Vec<[u32; 2]>,
    /// Seconds since 1970 when the run began; 0: a simulation was recorded.
    pub started: u64,
    /// The command; of a long one the beginning.
    pub command: Vec<String>,
}

/// Why no core can be made from a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadError {
    /// An unsupported page size, bytes.
    PageBytes(u32),
    /// This version does not accept the scheme; the reason.
    Scheme(String),
    /// Sizes that contradict each other.
    Sizes,
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeadError::PageBytes(bytes) => {
                write!(f, "it has pages of {bytes} bytes, and this version knows {PAGE_BYTES}")
            }
            HeadError::Scheme(why) => write!(f, "its scheme cannot be used: {why}"),
            HeadError::Sizes => f.write_str("its sizes contradict each other"),
        }
    }
}

impl Head {
    /// The head for a core that is about to start.
    pub fn of(tunables: &Tunables, budget_bytes: u64, mut command: Vec<String>, started: u64) -> Head {
        shorten_words(&mut command, COMMAND_MAX);
        Head {
            memfit: MEMFIT.into(),
            page_bytes: PAGE_BYTES as u32,
            scheme: memfit_scheme::to_toml(&tunables.scheme),
            budget_bytes,
            staging_slots: tunables.staging_slots,
            pool_frames: tunables.pool_frames,
            area_frames: tunables.area_frames,
            swap: tunables.swap,
            blocks: tunables.blocks.iter().map(|range| [range.start, range.end]).collect(),
            started,
            command,
        }
    }

    /// Whether a simulation was recorded, and not a run.
    pub fn is_generated(&self) -> bool {
        self.started == 0
    }

    /// The tunables for a core that makes the same decisions.
    ///
    /// # Errors
    /// If no such core can be made.
    pub fn tunables(&self) -> Result<Tunables, HeadError> {
        if u64::from(self.page_bytes) != PAGE_BYTES {
            return Err(HeadError::PageBytes(self.page_bytes));
        }
        let scheme = memfit_scheme::parse(&self.scheme, &[]).map_err(|error| HeadError::Scheme(error.to_string()))?;
        if self.pool_frames > self.area_frames || self.blocks.iter().any(|[first, end]| first > end) {
            return Err(HeadError::Sizes);
        }
        Ok(Tunables {
            sizes: Sizes::new(self.budget_bytes, &scheme),
            scheme: Arc::new(scheme),
            staging_slots: self.staging_slots,
            pool_frames: self.pool_frames,
            area_frames: self.area_frames,
            swap: self.swap,
            blocks: self.blocks.iter().map(|&[first, end]| first..end).collect(),
        })
    }
}
