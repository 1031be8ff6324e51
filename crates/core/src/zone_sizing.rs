//! Sizing of the area of a pool of zones: the rules of Tuduce and Gross, "Adaptive Main Memory
//! Compression", USENIX 2005.
//!
//! The area follows its own free room, not single accesses. `F` is the number of bytes of the area
//! that are in no used block:
//!
//! ```text
//! F < grow_below zones      the area grows by a zone, up to max_zones
//! F > shrink_above zones    the area shrinks by a zone, down to one
//! else                      no change, also if F equals a threshold
//! ```
//!
//! A check comes after a given time or number of stores ([`Every`]), whichever is first, and
//! changes the area by at most one zone. There is no area until a page has been written to swap;
//! from then on there is at least one zone.
//!
//! The paper switches compression on by comparing the free memory of the system with a threshold,
//! for one application at a time, and prints neither. Here nothing is stored without memory
//! pressure, and the whole tree is one application: a page that had to be written shows that memory
//! is short. [`crate::pool::zones`] says what the pool does with a smaller limit; reclaim provides
//! the memory for another zone.

use crate::pool::{PoolUsage, FRAME_BYTES};

/// Interval of the checks.
#[derive(Debug, Clone, Copy)]
pub struct Every {
    /// Longest time between two checks, ms.
    pub ms: u32,
    /// Most stores between two checks.
    pub stores: u32,
}

/// Controls the limit of a pool of zones.
#[derive(Debug, Clone)]
pub struct ZoneSizing {
    /// Frames of a zone.
    zone_frames: u32,
    /// Thresholds, in free zones.
    grow_below: u32,
    shrink_above: u32,
    max_zones: u32,
    every: Every,
    /// Zones of the area; 0 until the area is switched on.
    zones: u32,
    /// Time (ms) and number of stores at the last check.
    checked: (u64, u64),
}

impl ZoneSizing {
    /// No area yet, last check at time 0. `zone_frames`: frames of a zone, as in the pool
    /// ([`crate::pool::zones::zone_frames`]). The thresholds are in zones, `grow_below` less than
    /// `shrink_above`. `max_zones`: most zones of the area; 0 counts as 1.
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

    /// To be called after each store and periodically. Returns the new limit in frames if it
    /// changes. Totals since the start: `now_ms` in ms, `stores` into the pool, `swapped` pages
    /// written to swap.
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

    /// Whether the area may grow further.
    pub fn can_grow(&self) -> bool {
        self.zones < self.max_zones
    }

    /// The new number of zones.
    fn step(&self, swapped: u64, usage: &PoolUsage) -> u32 {
        if self.zones == 0 {
            return u32::from(swapped > 0);
        }
        let zone = i128::from(self.zone_frames) * i128::from(FRAME_BYTES);
        // Negative while a zone that was given up still holds pages.
        let free = i128::from(self.zones) * zone - i128::from(usage.used_bytes);
        if free > i128::from(self.shrink_above) * zone {
            (self.zones - 1).max(1)
        } else if free < i128::from(self.grow_below) * zone {
            (self.zones + 1).min(self.max_zones)
        } else {
            self.zones
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: u64 = 4 << 20;
    const EVERY: Every = Every { ms: 1000, stores: 1024 };

    /// As in the paper: zones of 4 MiB, thresholds of one and four free zones, at most eight zones.
    fn new(zones: u32) -> ZoneSizing {
        ZoneSizing { zones, ..ZoneSizing::new(1024, 1, 4, 8, EVERY) }
    }

    fn used(used_bytes: u64) -> PoolUsage {
        PoolUsage { used_bytes, ..PoolUsage::default() }
    }

    /// The result of a check that is due, with this many bytes in use.
    fn due(sizing: &mut ZoneSizing, used_bytes: u64) -> Option<u32> {
        let now_ms = sizing.checked.0 + u64::from(EVERY.ms);
        sizing.check(now_ms, sizing.checked.1, 1, &used(used_bytes))
    }

    /// Rule 10 and section 2.4: the thresholds are strict; exactly one or four free zones change
    /// nothing.
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
            // Includes pages in a zone that was given up.
            (5 * ZONE + 1, Some(6 * 1024)),
        ] {
            assert_eq!(due(&mut new(5), used_bytes), limit, "{used_bytes} of 5 zones in use");
        }
    }

    /// Rule 10: one zone at a time, even if many more are free or missing.
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

    /// Rule 13 and resolution 5.13: at most the maximum, at least one zone.
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

    /// Rule 16, resolution 5.11: no area until a page was written to swap, then one zone, and never
    /// off again.
    #[test]
    fn z16_off_until_a_page_was_swapped() {
        let mut sizing = ZoneSizing::new(1024, 1, 4, 8, EVERY);
        assert_eq!(sizing.limit(), 0);
        assert_eq!(sizing.check(1000, 0, 0, &used(0)), None);
        assert_eq!(sizing.check(2000, 5000, 0, &used(0)), None);
        // Too early for a check, then in time.
        assert_eq!(sizing.check(2999, 5000, 7, &used(0)), None);
        assert_eq!(sizing.check(3000, 5000, 7, &used(0)), Some(1024));
        assert_eq!(sizing.limit(), 1024);
        // An empty zone is exactly one free zone.
        assert_eq!(sizing.check(4000, 5000, 7, &used(0)), None);
        assert_eq!(sizing.check(5000, 5000, 7, &used(128)), Some(2048));
        assert_eq!(sizing.check(6000, 5000, 7, &used(0)), None);
    }

    /// Resolution 5.11: a check each second or each 1024 stores, whichever comes first; either
    /// restarts both intervals.
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
        // A clock or a count that goes back does no harm.
        assert_eq!(sizing.check(0, 0, 1, &full), None);
    }

    /// The scheme sets both intervals.
    #[test]
    fn z16_checks_as_often_as_wanted() {
        let full = used(100 * ZONE);
        let mut sizing = ZoneSizing { zones: 1, ..ZoneSizing::new(1024, 1, 4, 8, Every { ms: 125, stores: 128 }) };
        assert_eq!(sizing.check(124, 127, 1, &full), None);
        assert_eq!(sizing.check(124, 128, 1, &full), Some(2 * 1024));
        assert_eq!(sizing.check(249, 128, 1, &full), Some(3 * 1024));
    }

    /// Resolution 5.10: the step looks at blocks although entries are exhausted.
    #[test]
    fn z10_free_room_is_in_blocks() {
        let mut sizing = new(2);
        let usage = PoolUsage { zpages: 8000, used_bytes: ZONE, ..PoolUsage::default() };
        assert_eq!(sizing.check(1000, 0, 1, &usage), None);
    }
}
