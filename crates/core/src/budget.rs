//! Sizes derived from the budget and the scheme, and other numbers of reclaim that the pager and
//! the simulator share.

use crate::blocks::BLOCK_BYTES;
use crate::engine::Tunables;
use crate::ids::PAGE_BYTES;
use crate::pool::PoolUsage;
use crate::scheme::{AdmissionKind, Scheme, SizingKind};
use crate::swap_log::SEGMENT_BYTES;
use alloc::{sync::Arc, vec::Vec};
use core::ops::Range;

/// Pages compressed between two checks of the free memory.
pub const COMPRESS_CHUNK: usize = 32;
/// Moves of one step of compaction: it holds the pager's core lock for 20 us.
pub const COMPACT_MOVES: usize = 32;
/// Waste per frame above which compaction pays, bytes: a move costs a tenth of an eviction, and no
/// fault later.
const WASTE: u64 = 256;
/// While the pool can give, at least one in this many bytes of the floor must be evictable pages.
const SQUEEZED: u64 = 2;
/// Device time per byte, ns, at and above which the smallest result is worth its time even on the
/// way out: the trained rule saves 102 bytes of a page for 4100 ns more in both directions
/// (lab/bench/README.md), and a byte is written and read.
pub const SLOW_DEVICE_NS: u64 = 20;

/// Most writes to the swap tier's log under way at once.
pub const LOG_WRITES: usize = 4;
/// Bytes of the log that are written at once while more follow.
pub const LOG_FLUSH: u32 = 128 << 10;
/// A batch does not start in a segment of the log with fewer bytes left.
pub const LOG_BATCH_MIN: u32 = 32 << 10;
/// Most bytes that the writes of a segment lose by ending at whole blocks.
pub const LOG_PADDING: u32 = (SEGMENT_BYTES / LOG_FLUSH + 1) * BLOCK_BYTES;
/// A full swap tier takes pages again when this many bytes are free.
pub const ROOM_AGAIN: u64 = 1 << 20;

/// Whether compaction of the pool frees enough to pay.
pub fn compaction_pays(pool: &PoolUsage) -> bool {
    let frames = u64::from(pool.frames);
    frames > 0 && pool.stored_bytes + frames * WASTE <= frames * PAGE_BYTES
}

/// Sizes derived from the budget and the scheme, bytes.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Sizes {
    pub budget: u64,
    pub calm: Marks,
    /// While unregistered memory grows fast.
    pub fast_growth: Marks,
    /// Below this many free bytes, processes are attached, so that it costs no time later.
    pub attach: u64,
    /// Below this many free bytes, their memory is registered and adopted.
    pub register: u64,
    /// Excess over the budget at which something must be done if neither pool nor tier takes a
    /// page.
    pub far_over: u64,
    /// Resident pages below this are not evicted.
    pub floor: u64,
    /// The floor while the pool is dense.
    pub dense_floor: u64,
    pub staging: u64,
    /// Pages that reclaim must gain in 50 ms to be worth waiting for.
    pub pace_pages: u32,
}

/// Watermarks: free bytes of the budget.
#[derive(Debug, Clone, Copy)]
pub struct Marks {
    /// Background reclaim starts below this.
    pub low: u64,
    /// Background reclaim stops at this.
    pub high: u64,
    /// Below this, a fault waits for reclaim.
    pub min: u64,
}

/// How much memory is free, from the least.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Level {
    /// The budget is exceeded by so much that something is done if nothing more can be stored.
    FarOver,
    /// The budget is exceeded by so much that the user is warned if that lasts.
    Over,
    /// Below the min watermark: programs wait for reclaim.
    BelowMin,
    BelowLow,
    BelowHigh,
    #[default]
    Enough,
}

/// All levels, in their order.
pub const LEVELS: [Level; 6] =
    [Level::FarOver, Level::Over, Level::BelowMin, Level::BelowLow, Level::BelowHigh, Level::Enough];

/// Excess over the budget that is worth a warning, bytes and percent, whichever is more: less is
/// under way.
const OVER_BYTES: u64 = 1 << 20;
const OVER_PERCENT: u64 = 2;
/// Excess at which the run is ended if neither pool nor tier takes a page, percent.
const FAR_OVER_PERCENT: u64 = 20;
/// The same if one process is stopped or killed instead, percent and bytes, whichever is more. It
/// costs less than the run, and a control group's limit may be near.
const ONE_GOES_PERCENT: u64 = 5;
const ONE_GOES_BYTES: u64 = 2 * OVER_BYTES;

/// Pages that reclaim must gain in 50 ms to be worth waiting for.
const PACE_PAGES: u32 = 64;

/// Free share of the budget below which processes are attached, percent.
const ATTACH_PERCENT: u64 = 65;
/// Used share of the budget, percent, from which on commit pressure counts. Below it, memfit leaves
/// programs alone, whatever they map.
const COMMIT_PERCENT: u64 = 12;
/// Time for the pager to find and register memory, milliseconds. It sleeps for up to 100 between
/// two samples, and then waited for a CPU for up to 210 (docs/design/budget.md, Throttle).
const REGISTERED_MS: u64 = 350;

impl Sizes {
    /// From the budget and the scheme's percentages.
    pub fn new(budget: u64, scheme: &Scheme) -> Sizes {
        let percent = |p: u32| budget / 100 * u64::from(p);
        let low = percent(scheme.sizing.low_percent);
        let register = (budget / 8).max(16 << 20).min(budget / 3);
        Sizes {
            budget,
            calm: Marks { low, high: percent(scheme.sizing.high_percent), min: low / 2 },
            fast_growth: Marks { low: register / 4 * 3, high: register / 8 * 7, min: register / 2 },
            attach: budget / 100 * ATTACH_PERCENT,
            register,
            far_over: budget / 100 * FAR_OVER_PERCENT,
            floor: percent(scheme.sizing.resident_floor_percent),
            dense_floor: percent(scheme.sizing.dense_floor_percent),
            staging: percent(scheme.reclaim.staging_percent).max(64 * PAGE_BYTES),
            pace_pages: PACE_PAGES,
        }
    }

    /// The same where one process is to be stopped or killed before the run is ended.
    #[must_use]
    pub fn one_goes(self) -> Sizes {
        let far_over = (self.budget / 100 * ONE_GOES_PERCENT).max(ONE_GOES_BYTES).min(self.far_over);
        Sizes { far_over, ..self }
    }

    /// Whether the budget is exceeded by so much that the run is ended if nothing else helps.
    pub fn ends(&self, over: u64) -> bool {
        over > self.budget / 100 * FAR_OVER_PERCENT
    }

    /// How much it means that `free` bytes of the budget are free; `marks` are the watermarks in
    /// force.
    pub fn level(&self, marks: &Marks, free: i64) -> Level {
        let over = |bytes: u64| free < -(bytes as i64);
        let percent = |percent| self.budget / 100 * percent;
        match free {
            _ if over(self.far_over) => Level::FarOver,
            _ if over(percent(OVER_PERCENT).max(OVER_BYTES)) => Level::Over,
            _ if free < marks.min as i64 => Level::BelowMin,
            _ if free < marks.low as i64 => Level::BelowLow,
            _ if free < marks.high as i64 => Level::BelowHigh,
            _ => Level::Enough,
        }
    }
}

impl Sizes {
    /// Whether memory must be registered now because the tree could exceed the budget before the
    /// pager can register it. `empty`: bytes that its mappings can still take; `rate`: bytes that
    /// the tree fills in a second.
    pub fn commit_pressure(&self, free: i64, empty: u64, rate: u64) -> bool {
        let fillable = rate / 1000 * REGISTERED_MS;
        let below = (self.budget / 100 * (100 - COMMIT_PERCENT)).min(fillable);
        free < below as i64 && free < empty as i64
    }

    /// Whether the resident pages are at their floor: then only the pool can give. `present`: bytes
    /// of pages that can be evicted; `unmanaged`: of memory that the core does not know of.
    /// `gives`: the pool can write to the swap tier.
    pub fn below_floor(&self, present: u64, unmanaged: u64, pool: &PoolUsage, gives: bool) -> bool {
        let floor = if pool.zpages >= u64::from(pool.frames) * 2 { self.dense_floor } else { self.floor };
        // Much of `unmanaged` can be pages that can never be evicted. Then programs would have
        // too little room for returning pages, and would wait for the same pages for ever.
        let squeezed = present < floor / SQUEEZED && u64::from(pool.frames) * PAGE_BYTES > floor && gives;
        squeezed || present + unmanaged <= floor
    }
}

/// Fewest staging bytes of a miniature: a batch must find some slots.
const MINIATURE_STAGING: u64 = 16 * PAGE_BYTES;

impl Sizes {
    /// All sizes scaled by `rate`, for a simulation of a sample of the pages.
    #[must_use]
    pub fn miniature(&self, rate: f64) -> Sizes {
        let smaller = |bytes: u64| (bytes as f64 * rate) as u64;
        let marks =
            |marks: Marks| Marks { low: smaller(marks.low), high: smaller(marks.high), min: smaller(marks.min) };
        Sizes {
            budget: smaller(self.budget),
            calm: marks(self.calm),
            fast_growth: marks(self.fast_growth),
            attach: smaller(self.attach),
            register: smaller(self.register),
            far_over: smaller(self.far_over),
            floor: smaller(self.floor),
            dense_floor: smaller(self.dense_floor),
            staging: smaller(self.staging).max(MINIATURE_STAGING),
            pace_pages: (smaller(self.pace_pages.into()) as u32).max(1),
        }
    }
}

/// Largest size of the pool, bytes.
fn pool_bytes(budget: u64, sizes: &Sizes, scheme: &Scheme) -> u64 {
    let most = budget - sizes.dense_floor.min(budget / 2);
    match scheme.sizing.kind {
        _ if scheme.admission.kind == AdmissionKind::None => 0,
        SizingKind::Adaptive => most,
        SizingKind::Fixed | SizingKind::Zones => (budget / 1000 * u64::from(scheme.sizing.pool_permille)).min(most),
    }
}

impl Tunables {
    /// For a core with this scheme and these sizes. `blocks`: those of the swap tier, if the swap
    /// format uses blocks.
    pub fn new(scheme: &Arc<Scheme>, sizes: &Sizes, swap: bool, blocks: Vec<Range<u32>>) -> Tunables {
        let pool_frames = (pool_bytes(sizes.budget, sizes, scheme) / PAGE_BYTES) as u32;
        Tunables {
            scheme: Arc::clone(scheme),
            sizes: *sizes,
            staging_slots: (sizes.staging / PAGE_BYTES) as u32,
            pool_frames,
            area_frames: pool_frames.saturating_mul(2).max(64),
            swap,
            blocks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_goes_before_the_run_ends() {
        let run = Sizes::new(100 << 20, &Scheme::default());
        let one = run.one_goes();
        let level = |sizes: &Sizes, over: i64| sizes.level(&sizes.calm, -over << 20);
        assert_eq!([4, 6, 19, 21].map(|over| level(&one, over) == Level::FarOver), [false, true, true, true]);
        assert_eq!([4, 6, 19, 21].map(|over| level(&run, over) == Level::FarOver), [false, false, false, true]);
        assert_eq!([19 << 20, 21 << 20].map(|over| one.ends(over)), [false, true]);
        let small = [5, 16, 30].map(|mib| Sizes::new(mib << 20, &Scheme::default()).one_goes().far_over >> 10);
        assert_eq!(small, [1023, 2048, 2048], "the tree is measured to a megabyte or so");
    }

    #[test]
    fn commit_pressure_counts_while_the_pager_could_be_too_late() {
        let scheme = Scheme::default();
        const RATE: u64 = 4 << 30;
        let holds = |budget: u64, used: u64, empty: u64| {
            let free = (budget - used) as i64;
            Sizes::new(budget << 20, &scheme).commit_pressure(free << 20, empty << 20, RATE)
        };
        assert!(holds(128, 20, 1000), "a small budget is filled at once");
        assert!(!holds(128, 20, 100), "all of it fits");
        assert!(!holds(128, 10, 1000), "a program that has just begun");
        assert!(!holds(8192, 2300, 100_000), "nothing fills 5.7 GiB in 350 ms");
        assert!(holds(8192, 7200, 100_000));
    }
}
