//! What the run was: all that a core is made from, and what a reader wants to know.

use crate::{MEMFIT, PAGE_BYTES};
use memfit_core::scheme::Scheme;
use memfit_core::Tunables;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// The text at the beginning of a file, JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The version of memfit that recorded it.
    pub memfit: String,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// The scheme, TOML, with everything that was set.
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
    /// As in [`Tunables`]: first block, and the one after the last.
    pub blocks: Vec<[u32; 2]>,
    /// Seconds since 1970 when the run began.
    pub started: u64,
    /// The command.
    pub command: Vec<String>,
}

/// A head that no core can be made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadError {
    /// Pages of another size.
    PageBytes(u32),
    /// The scheme is not one that this version knows: why.
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
    /// Of a core that is about to begin.
    pub fn of(tunables: &Tunables, budget_bytes: u64, command: Vec<String>, started: u64) -> Head {
        Head {
            memfit: MEMFIT.into(),
            page_bytes: PAGE_BYTES,
            scheme: tunables.scheme.to_toml(),
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

    /// What a core is made from that shall decide the same.
    ///
    /// # Errors
    /// If there can be no such core.
    pub fn tunables(&self) -> Result<Tunables, HeadError> {
        if self.page_bytes != PAGE_BYTES {
            return Err(HeadError::PageBytes(self.page_bytes));
        }
        let scheme = Scheme::parse(&self.scheme, &[]).map_err(|error| HeadError::Scheme(error.to_string()))?;
        if self.pool_frames > self.area_frames || self.blocks.iter().any(|[first, end]| first > end) {
            return Err(HeadError::Sizes);
        }
        Ok(Tunables {
            scheme: Arc::new(scheme),
            staging_slots: self.staging_slots,
            pool_frames: self.pool_frames,
            area_frames: self.area_frames,
            swap: self.swap,
            blocks: self.blocks.iter().map(|&[first, end]| first..end).collect(),
        })
    }
}
