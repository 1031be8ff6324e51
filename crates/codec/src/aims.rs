//! Selects the aim of compression, little time or few bytes, by memory pressure.

use crate::Aim;

/// Resident share of the budget below which fewer bytes are worth more time, percent: each saved
/// frame is a page in the program's memory, and a fault less. For pages that come back in sequence
/// the second, lower share applies.
const TIGHT_PERCENT: u64 = 80;
const VERY_TIGHT_PERCENT: u64 = 40;
/// The share of compressed pages that went on to the swap tier is updated after this many of them.
const SPILL_WINDOW: u64 = 2048;

/// The state of memory.
pub struct Pressure<Slow> {
    /// Pages in the programs' memory, percent of the budget.
    pub resident_percent: u64,
    /// Whether most evicted pages come back in sequence.
    pub in_sequence: bool,
    /// Pages compressed since the start.
    pub compressed: u64,
    /// Of these, pages that went on to the swap tier.
    pub spilled: u64,
    /// Whether the device of the swap tier is slow; called only if it matters.
    pub slow_device: Slow,
    /// Number of trained dictionaries.
    pub dictionaries: usize,
}

/// Selects the aim, with its running means.
#[derive(Debug, Default)]
pub struct Aims {
    spill: Spill,
}

impl Aims {
    /// The aim for now.
    pub fn update(&mut self, now: &Pressure<impl Fn() -> bool>) -> Aim {
        let (tight, very) = (now.resident_percent < TIGHT_PERCENT, now.resident_percent < VERY_TIGHT_PERCENT);
        let spills = self.spill.update(now.compressed, now.spilled);
        match very || (tight && !now.in_sequence) {
            false => Aim::Fast,
            true if spills && !(now.slow_device)() => Aim::Spill,
            true if now.dictionaries == 0 => Aim::Dense,
            true => Aim::Trained,
        }
    }
}

/// Whether most compressed pages go on to the swap tier.
#[derive(Debug, Default)]
struct Spill {
    compressed: u64,
    to_swap: u64,
    /// Running mean of the share that does, percent: pages leave in bursts.
    percent: u64,
}

impl Spill {
    /// Updates the mean. Both counts are since the start.
    fn update(&mut self, compressed: u64, to_swap: u64) -> bool {
        if compressed >= self.compressed + SPILL_WINDOW {
            let now = (to_swap - self.to_swap) * 100 / (compressed - self.compressed);
            self.percent = (self.percent * 3 + now) / 4;
            (self.compressed, self.to_swap) = (compressed, to_swap);
        }
        self.percent > 50
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_goes_on_when_it_has_for_a_while() {
        let (mut spill, mut to_swap) = (Spill::default(), 0);
        let mut update = |pages: u64, share: u64| {
            to_swap += SPILL_WINDOW * share / 100;
            spill.update(pages * SPILL_WINDOW, to_swap)
        };
        assert!(!update(1, 0) && !update(2, 100), "one burst says nothing");
        assert!((3..8).map(|i| update(i, 90)).last() == Some(true));
        assert!(update(8, 0), "nor does one pause");
        assert!((9..16).map(|i| update(i, 10)).last() == Some(false));
    }

    #[test]
    fn few_bytes_are_worth_time_where_little_is_resident() {
        let aim = |resident_percent, in_sequence, dictionaries| {
            let slow_device = || false;
            let now = Pressure { resident_percent, in_sequence, compressed: 0, spilled: 0, slow_device, dictionaries };
            Aims::default().update(&now)
        };
        assert_eq!(aim(90, false, 1), Aim::Fast);
        assert_eq!(aim(79, false, 1), Aim::Trained);
        assert_eq!(aim(79, false, 0), Aim::Dense);
        assert_eq!(aim(79, true, 0), Aim::Fast, "what comes back in sequence is brought back in one fault");
        assert_eq!(aim(39, true, 0), Aim::Dense);
    }

    #[test]
    fn what_goes_on_to_a_quick_device_asks_for_less() {
        let aim = |slow| {
            let mut aims = Aims::default();
            let mut last = Aim::Fast;
            for i in 0..9 {
                last = aims.update(&Pressure {
                    resident_percent: 30,
                    in_sequence: false,
                    compressed: i * SPILL_WINDOW,
                    spilled: i * SPILL_WINDOW,
                    slow_device: || slow,
                    dictionaries: 1,
                });
            }
            last
        };
        assert_eq!((aim(false), aim(true)), (Aim::Spill, Aim::Trained));
    }
}
