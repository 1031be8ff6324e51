//! How large the area of a pool of zones is: the rules of Tuduce and Gross, "Adaptive Main Memory
//! Compression", USENIX 2005.
//!
//! The area follows its own free room, not the single accesses. With `F` = bytes of the area that
//! are in no used block:
//!
//! ```text
//! F < grow_below zones      the area gets a zone, up to max_zones
//! F > shrink_above zones    the area gives a zone, down to one
//! else                      nothing: also if F is exactly as large
//! ```
//!
//! That is looked at after so much time or so many stores ([`Every`]), whichever comes first, and
//! changes the area by a zone at most. There is no area until a page has been written to swap; then
//! there is one zone, and from then on never less than one.
//!
//! The paper compares what the system has free with a threshold to switch compression on, for one
//! application at a time, and prints neither. Here nothing is stored without pressure, and all
//! programs of the tree are one application: a page that had to be written says that memory is
//! short. What the pool does with a smaller limit is said in [`crate::pool::zones`]; where the
//! memory for a further zone comes from is the affair of reclaim.

use crate::pool::{PoolUsage, FRAME_BYTES};

/// How often is looked.
#[derive(Debug, Clone, Copy)]
pub struct Every {
    /// Longest time between two checks, ms.
    pub ms: u32,
    /// Most stores between them.
    pub stores: u32,
}

/// Steers the limit of a pool of zones.
#[derive(Debug, Clone)]
pub struct ZoneSizing {
    /// Frames of a zone.
    zone_frames: u32,
    /// Free zones.
    grow_below: u32,
    shrink_above: u32,
    max_zones: u32,
    every: Every,
    /// Zones of the area; 0 until it is switched on.
    zones: u32,
    /// Time and number of stores of the last check.
    checked: (u64, u64),
}

impl ZoneSizing {
    /// Without an area, as if just checked at time 0. Zones are of `zone_frames` frames, which must
    /// be those of the pool ([`crate::pool::zones::zone_frames`]); the thresholds are in zones,
    /// `grow_below` less than `shrink_above`; the area is of at most `max_zones`, 0 as 1, and is
    /// looked at that often.
    pub fn new(zone_frames: u32, grow_below: u32, shrink_above: u32, max_zones: u32, every: Every) -> ZoneSizing {
        assert!(
            zone_frames > 0 && grow_below < shrink_above,
            "grow below {grow_below}, shrink above {shrink_above} zones"
        );
        ZoneSizing {
            zone_frames,
            grow_below,
            shrink_above,
            max_zones: max_zones.max(1),
            every,
            zones: 0,
            checked: (0, 0),
        }
    }

    /// The limit, frames.
    pub fn limit(&self) -> u32 {
        self.zones.saturating_mul(self.zone_frames)
    }

    /// To be called after each store and from time to time; answers the new limit in frames when it
    /// changes. Since the start: `now_ms` in ms, `stores` into the pool, `swapped` pages written to
    /// swap.
    pub fn check(&mut self, now_ms: u64, stores: u64, swapped: u64, usage: &PoolUsage) -> Option<u32> {
        let (last_ms, last_stores) = self.checked;
        let (ms, stored) = (now_ms.saturating_sub(last_ms), stores.saturating_sub(last_stores));
        if ms < self.every.ms.into() && stored < self.every.stores.into() {
            return None;
        }
        self.checked = (now_ms, stores);
        let zones = self.step(swapped, usage);
        if zones == self.zones {
            return None;
        }
        self.zones = zones;
        Some(self.limit())
    }

    /// Whether it may be larger still.
    pub fn can_grow(&self) -> bool {
        self.zones < self.max_zones
    }

    /// How many zones there shall be.
    fn step(&self, swapped: u64, usage: &PoolUsage) -> u32 {
        if self.zones == 0 {
            return u32::from(swapped > 0);
        }
        let zone = i128::from(self.zone_frames) * i128::from(FRAME_BYTES);
        // Less than none is free while a zone that was given up still holds pages.
        let free = i128::from(self.zones) * zone - i128::from(usage.used_bytes);
        if free > i128::from(self.shrink_above) * zone {
            (self.zones - 1).max(1)
        } else if free < i128::from(self.grow_below) * zone {
            (self.zones + 1).min(self.max_zones)
        } else {
            self.zones
        }
    }

    /// Pages that the area has entries for and does not hold, with so many entries for each frame.
    /// The rules go by blocks alone; where this is small while blocks are free, `entries_per_frame`
    /// is less than pages compress to.
    pub fn free_entries(&self, entries_per_frame: u32, usage: &PoolUsage) -> u64 {
        (u64::from(self.limit()) * u64::from(entries_per_frame)).saturating_sub(usage.zpages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: u64 = 4 << 20;
    const EVERY: Every = Every { ms: 1000, stores: 1024 };

    /// As in the paper: zones of 4 MiB, less than one or more than four free; up to eight.
    fn new(zones: u32) -> ZoneSizing {
        ZoneSizing { zones, ..ZoneSizing::new(1024, 1, 4, 8, EVERY) }
    }

    fn used(used_bytes: u64) -> PoolUsage {
        PoolUsage { used_bytes, ..PoolUsage::default() }
    }

    /// The answer of a check that is due, with so many bytes in use.
    fn due(sizing: &mut ZoneSizing, used_bytes: u64) -> Option<u32> {
        let now_ms = sizing.checked.0 + u64::from(EVERY.ms);
        sizing.check(now_ms, sizing.checked.1, 1, &used(used_bytes))
    }

    /// Rule 10 and section 2.4: strictly less and strictly more; exactly one zone or four zones
    /// free are left as they are.
    #[test]
    fn z10_thresholds_are_strict() {
        for (used_bytes, limit) in [
            (ZONE, None),
            (ZONE - 1, Some(4 * 1024)),
            (ZONE + 1, None),
            (0, Some(4 * 1024)),
            (4 * ZONE, None),
            (4 * ZONE + 1, Some(6 * 1024)),
            (4 * ZONE - 1, None),
            (5 * ZONE, Some(6 * 1024)),
            // What is in a zone that was given up.
            (5 * ZONE + 1, Some(6 * 1024)),
        ] {
            assert_eq!(due(&mut new(5), used_bytes), limit, "{used_bytes} of 5 zones in use");
        }
    }

    /// Rule 10: a zone at a time, though much more is free or missing.
    #[test]
    fn z10_one_step_per_check() {
        let mut sizing = new(8);
        let limits: Vec<Option<u32>> = (0..5).map(|_| due(&mut sizing, 0)).collect();
        // Until four are free, which is not more than four.
        assert_eq!(limits, [Some(7 * 1024), Some(6 * 1024), Some(5 * 1024), Some(4 * 1024), None]);
    }

    /// Rule 11: with a threshold of three zones it shrinks earlier.
    #[test]
    fn z11_shrink_above_three() {
        let mut sizing = ZoneSizing { zones: 5, ..ZoneSizing::new(1024, 1, 3, 8, EVERY) };
        assert_eq!(due(&mut sizing, ZONE * 3 / 2), Some(4 * 1024));
        assert_eq!(due(&mut new(5), ZONE * 3 / 2), None);
    }

    /// Rule 13 and resolution 5.13: not more than the maximum, not less than one zone.
    #[test]
    fn z13_maximum_and_minimum() {
        let mut sizing = new(7);
        assert_eq!([due(&mut sizing, 7 * ZONE), due(&mut sizing, 8 * ZONE)], [Some(8 * 1024), None]);
        let mut sizing = ZoneSizing { zones: 1, ..ZoneSizing::new(64, 0, 1, 0, EVERY) };
        assert_eq!(due(&mut sizing, 0), None);
        sizing.zones = 2;
        assert_eq!([due(&mut sizing, 0), due(&mut sizing, 0)], [Some(64), None]);
        // Nothing is free, which is not less than nothing.
        assert_eq!(due(&mut sizing, 64 * 4096), None);
    }

    /// Rule 16, resolution 5.11: nothing until a page was written to swap, then one zone, and never
    /// off again.
    #[test]
    fn z16_off_until_a_page_was_swapped() {
        let mut sizing = ZoneSizing::new(1024, 1, 4, 8, EVERY);
        assert_eq!(sizing.limit(), 0);
        assert_eq!(sizing.check(1000, 0, 0, &used(0)), None);
        assert_eq!(sizing.check(2000, 5000, 0, &used(0)), None);
        // Not due yet, then it is.
        assert_eq!(sizing.check(2999, 5000, 7, &used(0)), None);
        assert_eq!(sizing.check(3000, 5000, 7, &used(0)), Some(1024));
        assert_eq!(sizing.limit(), 1024);
        // An empty zone is exactly one zone free.
        assert_eq!(sizing.check(4000, 5000, 7, &used(0)), None);
        assert_eq!(sizing.check(5000, 5000, 7, &used(128)), Some(2048));
        assert_eq!(sizing.check(6000, 5000, 7, &used(0)), None);
    }

    /// Resolution 5.11: a check each second or each 1024 stores, whichever comes first; either
    /// begins both anew.
    #[test]
    fn z16_checks_by_time_and_stores() {
        let full = used(100 * ZONE);
        let mut sizing = new(1);
        assert_eq!(sizing.check(999, 1023, 1, &full), None);
        assert_eq!(sizing.check(999, 1024, 1, &full), Some(2 * 1024));
        assert_eq!(sizing.check(1500, 1025, 1, &full), None);
        assert_eq!(sizing.check(1998, 2047, 1, &full), None);
        assert_eq!(sizing.check(1999, 1025, 1, &full), Some(3 * 1024));
        assert_eq!(sizing.check(1999, 2048, 1, &full), None);
        assert_eq!(sizing.check(1999, 2049, 1, &full), Some(4 * 1024));
        // Neither a clock nor a count that goes back does harm.
        assert_eq!(sizing.check(0, 0, 1, &full), None);
    }

    /// Both are the scheme's.
    #[test]
    fn z16_checks_as_often_as_wanted() {
        let full = used(100 * ZONE);
        let mut sizing = ZoneSizing { zones: 1, ..ZoneSizing::new(1024, 1, 4, 8, Every { ms: 125, stores: 128 }) };
        assert_eq!(sizing.check(124, 127, 1, &full), None);
        assert_eq!(sizing.check(124, 128, 1, &full), Some(2 * 1024));
        assert_eq!(sizing.check(249, 128, 1, &full), Some(3 * 1024));
    }

    /// Resolution 5.10: the step goes by blocks, though entries are out; how many entries are free
    /// can be asked.
    #[test]
    fn z10_free_room_is_in_blocks() {
        let mut sizing = new(2);
        let usage = PoolUsage { zpages: 8000, used_bytes: ZONE, ..PoolUsage::default() };
        assert_eq!(sizing.check(1000, 0, 1, &usage), None);
        assert_eq!(sizing.free_entries(4, &usage), 192);
        assert_eq!(sizing.free_entries(2, &usage), 0);
    }
}
