//! What fault threads use by turns.

use super::FaultBuffers;
use crate::compress::Compressor;
use crate::locks::{rank, Lock};
use crate::state::Shared;
use memfit_codec::Dictionaries;
use memfit_core::Origin;
use std::sync::Arc;

/// Fault buffers kept for reuse: about as many faults are served at once. One is kept for each of
/// these bytes of the budget, since it takes a quarter of a MiB with its contexts, within a least
/// and a greatest number.
const BUDGET_BYTES: u64 = 16 << 20;
const BUFFERS_MIN: u64 = 4;
const BUFFERS_MAX: u64 = 16;
/// Pages that a waiting fault compresses before it checks for room again: under 100 us.
const HELP_PAGES: usize = 4;

/// Buffers that no fault thread uses now, and a compressor.
pub struct Spare {
    buffers: Lock<Vec<FaultBuffers>, { rank::FAULT_BUFFERS }>,
    /// Most of them.
    kept: usize,
    /// For waiting faults: one at a time compresses.
    helper: Lock<Compressor, { rank::HELPER }>,
}

impl Spare {
    /// No buffers yet. The budget is in bytes.
    pub fn new(dictionaries: &Arc<Dictionaries>, budget: u64) -> Spare {
        let kept = (budget / BUDGET_BYTES).clamp(BUFFERS_MIN, BUFFERS_MAX) as usize;
        Spare { buffers: Lock::new(Vec::new()), kept, helper: Lock::new(Compressor::new(dictionaries, budget, None)) }
    }

    /// The buffers used last, which the CPU's caches may still hold, or new ones.
    pub fn take(&self, dictionaries: &Arc<Dictionaries>) -> FaultBuffers {
        let kept = self.buffers.lock().pop();
        kept.unwrap_or_else(|| FaultBuffers::new(dictionaries))
    }

    /// Keeps the buffers for the next fault, or drops them.
    pub fn put_back(&self, buffers: FaultBuffers) {
        let mut all = self.buffers.lock();
        if all.len() < self.kept {
            all.push(buffers);
        }
    }
}

/// Direct reclaim: a waiting fault compresses staged pages, on the CPU that its program does not
/// use meanwhile. False if little is staged, another fault does it, or no page left staging.
pub fn help(shared: &Shared) -> bool {
    let state = shared.lock();
    let few = state.core.totals_staged() < shared.budget.sizes.staging / 4096 / 2;
    drop(state);
    if few {
        return false;
    }
    let Some(mut helper) = shared.spare.helper.try_lock() else { return false };
    helper.compress(shared, HELP_PAGES, Origin::Direct).gained > 0
}
