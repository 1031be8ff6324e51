//! What compressed bytes cost: memory while a page is in the pool, and writes to the swap tier.

use crate::{Worth, PAGE_BYTES};

/// The share of compressed pages that went on to the swap tier is updated after this many of them.
const WINDOW: u64 = 2048;

/// The share is in units of 1 / `WHOLE`. The division of the running mean rounds down: in percent
/// the mean would stay up to 3 below a steady share.
const WHOLE: u64 = 1024;

/// CPU time of the tree for a page fault, with the eviction that makes room for it and without
/// codecs, ns (docs/performance.md, Codecs and pool).
pub const FAULT_NS: u64 = 43_000;

/// The state of memory.
#[derive(Debug, Clone, Copy)]
pub struct Prices {
    /// Time that the memory of a whole page in the pool is worth, ns.
    pub page_ns: u64,
    /// Time that the device of the swap tier takes to write a page, ns.
    pub write_ns: u64,
    /// Pages compressed since the start.
    pub compressed: u64,
    /// Of these, pages that went on to the swap tier.
    pub spilled: u64,
    /// Whether there is a trained dictionary.
    pub trained: bool,
}

/// Running mean of the share of compressed pages that go on to the swap tier: pages leave in
/// bursts.
#[derive(Debug, Default)]
pub struct Spill {
    compressed: u64,
    to_swap: u64,
    share: u64,
}

impl Spill {
    /// What a page's bytes are worth now.
    pub fn worth(&mut self, now: Prices) -> Worth {
        if now.compressed >= self.compressed + WINDOW {
            let share = (now.spilled - self.to_swap) * WHOLE / (now.compressed - self.compressed);
            self.share = (self.share * 3 + share.min(WHOLE)) / 4;
            (self.compressed, self.to_swap) = (now.compressed, now.spilled);
        }
        let writes = now.write_ns * self.share / WHOLE;
        // How a program uses pages that have not come back yet is not known: as if at random.
        Worth { page_ns: now.page_ns + writes, new_page_ns: FAULT_NS + writes, trained: now.trained }
    }
}

/// Time to write a page, for a device that took so long for these bytes, ns.
pub fn page_write_ns(ns: u64, bytes: u64) -> u64 {
    (u128::from(ns) * PAGE_BYTES as u128 / u128::from(bytes.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: Prices = Prices { page_ns: 10_000, write_ns: 80_000, compressed: 0, spilled: 0, trained: false };

    #[test]
    fn pages_that_leave_the_pool_cost_the_time_of_a_write() {
        let (mut spill, mut spilled) = (Spill::default(), 0);
        let mut worth = |windows: u64, share: u64| {
            spilled += WINDOW * share / 100;
            spill.worth(Prices { compressed: windows * WINDOW, spilled, ..PRICES })
        };
        assert_eq!(worth(1, 0), Worth { page_ns: 10_000, new_page_ns: 43_000, trained: false });
        assert_eq!(worth(2, 100), Worth { page_ns: 30_000, new_page_ns: 63_000, trained: false }, "one burst");
        let most = (3..24).map(|i| worth(i, 100)).last().expect("some");
        assert!(most.page_ns > 89_700 && most.page_ns < 90_000, "{most:?}");
        let none = (24..34).map(|i| worth(i, 0)).last().expect("some");
        assert!(none.page_ns < 15_000, "{none:?}");
    }

    #[test]
    fn the_time_of_a_write_is_that_of_a_page() {
        assert_eq!(page_write_ns(1 << 20, 1 << 20), PAGE_BYTES as u64);
        assert_eq!(page_write_ns(0, 0), 0, "nothing was written yet");
    }
}
