//! What the tests of the core's public interface share.

use memfit_core::budget::Sizes;
use memfit_core::scheme::Scheme;
use memfit_core::{Core, Tunables};
use std::sync::Arc;

/// A core with a budget of 1 GiB, a pool that never fills, and no swap tier yet.
pub fn core(scheme: Scheme, staging_slots: u32) -> Core {
    let (pool_frames, area_frames) = (1 << 16, 1 << 17);
    let (sizes, scheme) = (Sizes::new(1 << 30, &scheme), Arc::new(scheme));
    Core::new(Tunables { scheme, sizes, staging_slots, pool_frames, area_frames, swap: false, blocks: Vec::new() })
}
