//! Sizes that follow from the budget and the scheme.

use crate::engine::Tunables;
use crate::ids::PAGE_BYTES;
use crate::scheme::{AdmissionKind, Scheme, SizingKind};
use std::ops::Range;
use std::sync::Arc;

/// Sizes that follow from the budget and the scheme, bytes.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Sizes {
    pub budget: u64,
    pub calm: Marks,
    /// While memory that is not registered yet grows fast.
    pub hurried: Marks,
    /// Below this much, processes get their userfaultfd and segment, so that no time is lost later.
    pub arm: u64,
    /// Below this much, their memory is registered and adopted.
    pub engage: u64,
    /// Below this much, the same if what is mapped cannot fit.
    pub promise: u64,
    /// Resident pages below this are not taken.
    pub floor: u64,
    /// The same while the pool is dense.
    pub dense_floor: u64,
    pub staging: u64,
}

/// Watermarks: bytes of the budget that are free.
#[derive(Debug, Clone, Copy)]
pub struct Marks {
    /// Background reclaim starts below this.
    pub low: u64,
    /// And stops at this.
    pub high: u64,
    /// A fault waits for reclaim below this.
    pub min: u64,
}

/// Free share of the budget below which processes are armed, percent.
const ARM_PERCENT: u64 = 65;
/// Used share of the budget from which on memory is registered because there is more of it than can fit,
/// percent: what runs far below its budget is left alone, whatever it maps.
const PROMISE_PERCENT: u64 = 12;

impl Sizes {
    /// From the budget and the scheme's percentages.
    pub fn new(budget: u64, scheme: &Scheme) -> Sizes {
        let percent = |p: u32| budget / 100 * u64::from(p);
        let low = percent(scheme.sizing.low_percent);
        let engage = (budget / 8).max(16 << 20).min(budget / 3);
        Sizes {
            budget,
            calm: Marks { low, high: percent(scheme.sizing.high_percent), min: low / 2 },
            hurried: Marks { low: engage / 4 * 3, high: engage / 8 * 7, min: engage / 2 },
            arm: budget / 100 * ARM_PERCENT,
            engage,
            promise: budget / 100 * (100 - PROMISE_PERCENT),
            floor: percent(scheme.sizing.resident_floor_percent),
            dense_floor: percent(scheme.sizing.dense_floor_percent),
            staging: percent(scheme.reclaim.staging_percent).max(64 * 4096),
        }
    }
}

/// Fewest pages of staging in a miniature: a batch must find some.
const MINIATURE_STAGING: u64 = 16 * PAGE_BYTES;

impl Sizes {
    /// All of them smaller by this factor, for a simulation of a sample of the pages.
    #[must_use]
    pub fn miniature(&self, rate: f64) -> Sizes {
        let smaller = |bytes: u64| (bytes as f64 * rate) as u64;
        let marks =
            |marks: Marks| Marks { low: smaller(marks.low), high: smaller(marks.high), min: smaller(marks.min) };
        Sizes {
            budget: smaller(self.budget),
            calm: marks(self.calm),
            hurried: marks(self.hurried),
            arm: smaller(self.arm),
            engage: smaller(self.engage),
            promise: smaller(self.promise),
            floor: smaller(self.floor),
            dense_floor: smaller(self.dense_floor),
            staging: smaller(self.staging).max(MINIATURE_STAGING),
        }
    }
}

/// Most that the pool may take, bytes.
fn pool_bytes(budget: u64, sizes: &Sizes, scheme: &Scheme) -> u64 {
    let most = budget - sizes.dense_floor.min(budget / 2);
    match scheme.sizing.kind {
        _ if scheme.admission.kind == AdmissionKind::Nothing => 0,
        SizingKind::Adaptive => most,
        SizingKind::Fixed | SizingKind::Zones => (budget / 1000 * u64::from(scheme.sizing.pool_permille)).min(most),
    }
}

impl Tunables {
    /// For a core of a scheme in a budget. `blocks`: of the swap tier, if the scheme's format is one of blocks.
    pub fn new(scheme: &Arc<Scheme>, sizes: &Sizes, swap: bool, blocks: Vec<Range<u32>>) -> Tunables {
        let pool_frames = (pool_bytes(sizes.budget, sizes, scheme) / PAGE_BYTES) as u32;
        Tunables {
            scheme: Arc::clone(scheme),
            staging_slots: (sizes.staging / PAGE_BYTES) as u32,
            pool_frames,
            area_frames: pool_frames.saturating_mul(2).max(64),
            swap,
            blocks,
        }
    }
}
