//! Sizing of the area of a pool of zones: the rules of Tuduce and Gross, "Adaptive Main Memory
//! Compression", USENIX 2005.
//!
//! The area follows its own free room, not single accesses. `F` is what can still take pages,
//! bytes: the free blocks, but no more than the pages of the present mean size that the free
//! comp-page entries can name. It is 0 if a page did not fit since the last check: free blocks and
//! free entries may be those of different zones, which take no page.
//!
//! ```text
//! F < grow_below zones      the area grows by a zone, up to max_zones
//! F > shrink_above zones    the area shrinks by a zone, down to one
//! else                      no change, also if F equals a threshold
//! ```
//!
//! A check comes after a given time or number of stores ([`Every`]), whichever is first, and
//! changes the area by at most one zone. There is no area until the first check; from then on there
//! is at least one zone. In the paper a disk takes the pages that do not fit. Where no swap tier
//! takes such a page, it makes the next check due ([`ZoneSizing::make_due`]).
//!
//! The paper switches compression on by comparing the free memory of the system with a threshold,
//! which it does not print. Here that is the low watermark: checks come in rounds of reclaim only.
//! Which processes are compressed says [`crate::Core::is_compressed`].
//! [`crate::pool::zones`] says what the pool does with a smaller limit; reclaim provides the memory
//! for another zone.

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
    /// Comp-page entries of a zone.
    zone_entries: u32,
    /// Thresholds, in free zones.
    grow_below: u32,
    shrink_above: u32,
    max_zones: u32,
    every: Every,
    /// Zones of the area; 0 until the area is switched on.
    zones: u32,
    /// Time (ms) and number of stores at the last check.
    checked: (u64, u64),
    /// A page did not fit since then.
    missed: bool,
    /// The next check is due.
    due: bool,
}

impl ZoneSizing {
    /// No area yet, last check at time 0. Frames and entries of a zone are those of the pool
    /// ([`crate::pool::zones::zone_size`]). The thresholds are in zones, `grow_below` less than
    /// `shrink_above`. `max_zones`: most zones of the area; 0 counts as 1.
    pub fn new(
        (zone_frames, zone_entries): (u32, u32),
        grow_below: u32,
        shrink_above: u32,
        max_zones: u32,
        every: Every,
    ) -> ZoneSizing {
        assert!(
            zone_frames > 0 && grow_below < shrink_above,
            "grow below {grow_below}, shrink above {shrink_above} zones"
        );
        ZoneSizing {
            zone_frames,
            zone_entries,
            grow_below,
            shrink_above,
            max_zones: max_zones.max(1),
            every,
            zones: 0,
            checked: (0, 0),
            missed: false,
            due: false,
        }
    }

    /// A page did not fit.
    pub fn missed(&mut self) {
        self.missed = true;
    }

    /// The next check does not wait for its time.
    pub fn make_due(&mut self) {
        self.due = true;
    }

    /// The limit, frames.
    pub fn limit(&self) -> u32 {
        self.zones.saturating_mul(self.zone_frames)
    }

    /// To be called after each store and periodically, while memory is short. Returns the new limit
    /// in frames if it changes. Totals since the start: `now_ms` in ms, `stores` into the pool.
    pub fn check(&mut self, now_ms: u64, stores: u64, usage: &PoolUsage) -> Option<u32> {
        let (last_ms, last_stores) = self.checked;
        let (ms, stored) = (now_ms.saturating_sub(last_ms), stores.saturating_sub(last_stores));
        if ms < self.every.ms.into() && stored < self.every.stores.into() && !self.due {
            return None;
        }
        self.checked = (now_ms, stores);
        let zones = self.step(usage);
        (self.missed, self.due) = (false, false);
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
    fn step(&self, usage: &PoolUsage) -> u32 {
        if self.zones == 0 {
            return 1;
        }
        let zone = i128::from(self.zone_frames) * i128::from(FRAME_BYTES);
        // Negative while a zone that was given up still holds pages.
        let of_all = |of_a_zone: i128, used: u64| i128::from(self.zones) * of_a_zone - i128::from(used);
        let mut free = of_all(zone, usage.used_bytes);
        if usage.zpages > 0 {
            let entries = of_all(self.zone_entries.into(), usage.zpages);
            free = free.min(entries * i128::from(usage.used_bytes) / i128::from(usage.zpages));
        }
        if self.missed {
            free = free.min(0);
        }
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
        ZoneSizing { zones, ..ZoneSizing::new((1024, 4096), 1, 4, 8, EVERY) }
    }

    fn used(used_bytes: u64) -> PoolUsage {
        PoolUsage { used_bytes, ..PoolUsage::default() }
    }

    /// The result of a check that is due, with this many bytes in use.
    fn due(sizing: &mut ZoneSizing, used_bytes: u64) -> Option<u32> {
        let now_ms = sizing.checked.0 + u64::from(EVERY.ms);
        sizing.check(now_ms, sizing.checked.1, &used(used_bytes))
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
        let mut sizing = ZoneSizing { zones: 5, ..ZoneSizing::new((1024, 4096), 1, 3, 8, EVERY) };
        assert_eq!(due(&mut sizing, ZONE * 3 / 2), Some(4 * 1024));
        assert_eq!(due(&mut new(5), ZONE * 3 / 2), None);
    }

    /// Rule 13 and resolution 5.13: at most the maximum, at least one zone.
    #[test]
    fn z13_maximum_and_minimum() {
        let mut sizing = new(7);
        assert_eq!([due(&mut sizing, 7 * ZONE), due(&mut sizing, 8 * ZONE)], [Some(8 * 1024), None]);
        let mut sizing = ZoneSizing { zones: 1, ..ZoneSizing::new((64, 256), 0, 1, 0, EVERY) };
        assert_eq!(due(&mut sizing, 0), None);
        sizing.zones = 2;
        assert_eq!([due(&mut sizing, 0), due(&mut sizing, 0)], [Some(64), None]);
        // Nothing is free, which is not less than nothing.
        assert_eq!(due(&mut sizing, 64 * 4096), None);
    }

    /// Rule 16, resolution 5.11: no area until the first check, then one zone, and never off again.
    #[test]
    fn z16_off_until_memory_is_short() {
        let mut sizing = new(0);
        assert_eq!(sizing.limit(), 0);
        // Too early for a check, then in time.
        assert_eq!(sizing.check(999, 0, &used(0)), None);
        assert_eq!(sizing.check(1000, 0, &used(0)), Some(1024));
        assert_eq!(sizing.limit(), 1024);
        // An empty zone is exactly one free zone.
        assert_eq!(sizing.check(2000, 0, &used(0)), None);
        assert_eq!(sizing.check(3000, 0, &used(128)), Some(2048));
        assert_eq!(sizing.check(4000, 0, &used(0)), None);
    }

    /// Resolution 5.11: a check each second or each 1024 stores, whichever comes first; either
    /// restarts both intervals.
    #[test]
    fn z16_checks_by_time_and_stores() {
        let full = used(100 * ZONE);
        let mut sizing = new(1);
        assert_eq!(sizing.check(999, 1023, &full), None);
        assert_eq!(sizing.check(999, 1024, &full), Some(2 * 1024));
        assert_eq!(sizing.check(1500, 1025, &full), None);
        assert_eq!(sizing.check(1998, 2047, &full), None);
        assert_eq!(sizing.check(1999, 1025, &full), Some(3 * 1024));
        assert_eq!(sizing.check(1999, 2048, &full), None);
        assert_eq!(sizing.check(1999, 2049, &full), Some(4 * 1024));
        // A clock or a count that goes back does no harm.
        assert_eq!(sizing.check(0, 0, &full), None);
    }

    /// The scheme sets both intervals.
    #[test]
    fn z16_checks_as_often_as_wanted() {
        let full = used(100 * ZONE);
        let mut sizing = ZoneSizing { zones: 1, every: Every { ms: 125, stores: 128 }, ..new(1) };
        assert_eq!(sizing.check(124, 127, &full), None);
        assert_eq!(sizing.check(124, 128, &full), Some(2 * 1024));
        assert_eq!(sizing.check(249, 128, &full), Some(3 * 1024));
    }

    /// Resolution 5.10: blocks are free for as many pages as there are entries. Two zones have 8192
    /// entries, four have 16,384; a page has 512 bytes.
    #[test]
    fn z10_free_room_is_what_can_take_pages() {
        for (zones, zpages, limit) in [
            (2, 0, None),
            // Half of the blocks are free, and 192 entries: 96 KiB.
            (2, 8000, Some(3 * 1024)),
            // As many entries as pages that fill a zone, and no more.
            (4, 8192, None),
            (4, 8193, Some(5 * 1024)),
            // The blocks are what is short.
            (2, 16_000, Some(3 * 1024)),
        ] {
            let usage = PoolUsage { zpages, used_bytes: zpages * 512, ..PoolUsage::default() };
            assert_eq!(new(zones).check(1000, 0, &usage), limit, "{zpages} pages in {zones} zones");
        }
        let mut sizing = new(4);
        sizing.missed();
        assert_eq!(due(&mut sizing, ZONE), Some(5 * 1024), "a page found no zone");
        assert_eq!(due(&mut sizing, ZONE), None);
    }
}
