//! Selective admission: the pool takes only pages that are worth at least the mean of the pool.
//!
//! Kim, Kim and Seo, "ezswap: Enhanced Compressed Swap Scheme for Mobile Devices", IEEE Access
//! 2019, section III.B:
//!
//! ```text
//! benefit of a page = cost / estimated ratio                                        (equation 1)
//! mean benefit      = capacity * mean cost * hit rate / mean ratio of the pool      (equation 2)
//! ```
//!
//! *Cost* is what a hit in the pool saves: [`COST_FILE`], [`COST_ANONYMOUS`]. A *ratio* is
//! compressed length / original length; for a new page it is estimated from the entropy, for pages
//! in the pool it is known. *Capacity* is the used part of the pool. *Hit rate* is the part of the
//! last 256 pages brought in that came from the pool.
//!
//! The paper leaves some points open. Here:
//!
//! - The ratios in the pool are the real ones; a page that did not compress has the ratio 1.
//! - Capacity is relative to the pool's limit, not to the memory that the pool has. After the limit
//!   was lowered it can exceed 1; it is not clamped, because the pool should shrink then.
//! - A page of entropy 0 is always admitted, and so is any page while the pool is empty or the
//!   window has no hit.
//!
//! The caller decides whether a page that was never offered to the pool counts as a miss
//! (`admission.offered_window`), and what happens to a page that is not admitted.

use crate::pool::FRAME_BYTES;

/// Cost of a clean page of a file that is not in the pool: one read (III.B).
pub const COST_FILE: u64 = 1;
/// Cost of an anonymous page that is not in the pool: one read, and one write, which takes as long
/// as two to four random reads of flash (III.B).
pub const COST_ANONYMOUS: u64 = 4;

/// Pages in the window of the hit rate.
pub const WINDOW_PAGES: u64 = 256;

/// Estimated ratios are in units of 1 / `RATIO_ONE`.
pub const RATIO_ONE: u32 = 1 << 16;

const WORDS: usize = WINDOW_PAGES as usize / u64::BITS as usize;

/// Sums over the pool, updated with every page that enters or leaves it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selective {
    /// One bit a page, 1 for a hit; the newest bit is the highest of the first word.
    window: [u64; WORDS],
    /// Ones in the window, the last [`WINDOW_PAGES`] pages that were brought in.
    hits: u32,
    zpages: u64,
    /// Sum of the zpages' costs.
    cost: u64,
    /// Sum of the zpages' lengths, bytes.
    bytes: u64,
}

/// Length that counts in the mean ratio: at most a page, however an incompressible page is stored.
fn bytes_of(csize_bytes: u32) -> u64 {
    u64::from(csize_bytes.min(FRAME_BYTES))
}

fn cost_of(file: bool) -> u64 {
    if file {
        COST_FILE
    } else {
        COST_ANONYMOUS
    }
}

impl Selective {
    /// A page was requested: `hit` if it came from the pool.
    pub fn paged_in(&mut self, hit: bool) {
        self.hits -= (self.window[WORDS - 1] & 1) as u32;
        for word in (1..WORDS).rev() {
            self.window[word] = self.window[word] >> 1 | self.window[word - 1] << 63;
        }
        self.window[0] = self.window[0] >> 1 | u64::from(hit) << 63;
        self.hits += u32::from(hit);
    }

    /// A zpage of `csize_bytes` bytes has entered the pool.
    pub fn entered(&mut self, csize_bytes: u32, file: bool) {
        self.zpages += 1;
        self.cost += cost_of(file);
        self.bytes += bytes_of(csize_bytes);
    }

    /// A zpage has left the pool.
    pub fn left(&mut self, csize_bytes: u32, file: bool) {
        self.zpages -= 1;
        self.cost -= cost_of(file);
        self.bytes -= bytes_of(csize_bytes);
    }

    /// Whether a page is worth its place. `r_est_65536` is its estimated ratio in 1/65536. The
    /// zpages take `used_bytes` of the pool's `total_bytes`, including the unused ends of their
    /// chunks.
    ///
    /// Exact: instead of dividing, both sides are multiplied by the other's divisor. With fewer
    /// than 2^32 zpages no product comes near 2^128.
    pub fn admits(&self, r_est_65536: u32, file: bool, used_bytes: u64, total_bytes: u64) -> bool {
        let (worth, per) = self.average(used_bytes, total_bytes);
        let ours = u128::from(cost_of(file)) * u128::from(RATIO_ONE / AVERAGE_UNIT) * per;
        ours >= u128::from(r_est_65536) * worth
    }

    /// Equation 2 as a fraction, to be multiplied by [`AVERAGE_UNIT`]. The number of zpages would
    /// divide both the costs and the ratios, so it is left out.
    fn average(&self, used_bytes: u64, total_bytes: u64) -> (u128, u128) {
        let worth = u128::from(used_bytes) * u128::from(self.cost) * u128::from(self.hits);
        (worth, u128::from(total_bytes) * u128::from(self.bytes))
    }

    /// Panics unless the number of hits matches the window and the sums are possible for this
    /// number of zpages.
    pub fn check(&self) {
        assert_eq!(self.hits, self.window.iter().map(|word| word.count_ones()).sum::<u32>());
        assert!((self.zpages * COST_FILE..=self.zpages * COST_ANONYMOUS).contains(&self.cost), "{self:?}");
        assert!((self.zpages..=self.zpages * u64::from(FRAME_BYTES)).contains(&self.bytes), "{self:?}");
    }
}

/// Bytes of a page per page of the window.
const AVERAGE_UNIT: u32 = FRAME_BYTES / WINDOW_PAGES as u32;
const _: () = assert!(RATIO_ONE % AVERAGE_UNIT == 0 && FRAME_BYTES % WINDOW_PAGES as u32 == 0);

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: u64 = 1 << 27;

    fn ratio(r: f64) -> u32 {
        (r * f64::from(RATIO_ONE)) as u32
    }

    /// A pool of 100 zpages of `csize` bytes, with first `hits` hits and then `misses` misses.
    fn pool(csize: u32, file: bool, hits: u32, misses: u32) -> Selective {
        let mut pool = Selective::default();
        (0..100).for_each(|_| pool.entered(csize, file));
        (0..hits).for_each(|_| pool.paged_in(true));
        (0..misses).for_each(|_| pool.paged_in(false));
        pool.check();
        pool
    }

    /// Equations 1 and 2 as printed: benefit of the page, mean benefit.
    fn formula(pool: &Selective, r: u32, file: bool, used: u64, total: u64) -> (f64, f64) {
        let zpages = pool.zpages as f64;
        let (mean_cost, mean_ratio) = (pool.cost as f64 / zpages, pool.bytes as f64 / 4096.0 / zpages);
        let benefit = cost_of(file) as f64 / (f64::from(r) / 65536.0);
        (benefit, used as f64 / total as f64 * mean_cost * (f64::from(pool.hits) / 256.0) / mean_ratio)
    }

    /// A fixed sequence of numbers.
    fn random(mut seed: u64) -> impl FnMut(u64) -> u64 {
        move |end| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % end
        }
    }

    impl Selective {
        /// The mean benefit in 1/1000, rounded.
        fn average_benefit_permille(&self, used_bytes: u64, total_bytes: u64) -> u64 {
            let (worth, per) = self.average(used_bytes, total_bytes);
            if worth == 0 {
                return 0;
            }
            let worth = worth * u128::from(AVERAGE_UNIT) * 1000;
            (worth + per / 2).checked_div(per).map_or(u64::MAX, |benefit| benefit.try_into().unwrap_or(u64::MAX))
        }
    }

    #[test]
    fn s1_s2_s3_s7_vector_of_the_specification() {
        // All anonymous, pool full, half of the requests are hits, ratio a quarter: 1 * 4 * 0.5 /
        // 0.25.
        let pool = pool(1024, false, 128, 128);
        assert_eq!(pool.average_benefit_permille(POOL, POOL), 8000);
        assert!(pool.admits(ratio(0.5), false, POOL, POOL), "4 / 0.5 is 8: equality admits");
        assert!(!pool.admits(ratio(0.5) + 1, false, POOL, POOL));
        assert!(pool.admits(ratio(0.125), true, POOL, POOL), "1 / 0.125 is 8");
        assert!(!pool.admits(ratio(0.125) + 1, true, POOL, POOL));
    }

    #[test]
    fn s1_an_anonymous_page_is_worth_four_of_a_file() {
        assert_eq!((COST_FILE, COST_ANONYMOUS), (1, 4));
        for hits in [50, 256] {
            let pool = pool(1500, false, hits, 0);
            let last = |file| (0..=4 * RATIO_ONE).rfind(|r| pool.admits(*r, file, POOL / 2, POOL)).unwrap();
            let (file, anonymous) = (last(true), last(false));
            assert!(file > 0 && anonymous < 4 * RATIO_ONE && anonymous / 4 == file, "{file} {anonymous}");
        }
        // The same for pages in the pool: with file pages only, the mean is a quarter.
        assert_eq!(pool(1024, true, 128, 128).average_benefit_permille(POOL, POOL), 2000);
    }

    #[test]
    fn s3_averages_are_over_what_is_in_the_pool_now() {
        let mut mixed = pool(1024, false, 256, 0);
        // 100 anonymous pages of 1024 bytes, 100 file pages of 3072: mean cost 2.5, mean ratio 0.5.
        (0..100).for_each(|_| mixed.entered(3072, true));
        assert_eq!(mixed.average_benefit_permille(POOL, POOL), 5000);
        // Without the anonymous pages: 1 / 0.75.
        (0..100).for_each(|_| mixed.left(1024, false));
        assert_eq!(mixed.average_benefit_permille(POOL, POOL), 1333);
        mixed.check();
        // A page that did not compress counts with ratio 1, however it is stored.
        let raw = pool(4200, false, 256, 0);
        assert_eq!(raw.average_benefit_permille(POOL, POOL), 4000);
    }

    #[test]
    fn s4_window_of_256() {
        let mut pool = pool(1024, false, 300, 0);
        assert_eq!(pool.hits, 256);
        (0..64).for_each(|_| pool.paged_in(false));
        assert_eq!(pool.hits, 192);
        // The oldest hits leave first, one bit at a time.
        (0..192).for_each(|_| pool.paged_in(true));
        assert_eq!(pool.hits, 192);
        (0..64).for_each(|done| {
            pool.paged_in(true);
            assert_eq!(pool.hits, 193 + done);
        });
        pool.check();
    }

    #[test]
    fn s4_the_newest_is_the_highest_bit_and_moves_right() {
        let mut pool = Selective::default();
        pool.paged_in(true);
        assert_eq!(pool.window, [1 << 63, 0, 0, 0]);
        pool.paged_in(false);
        assert_eq!(pool.window, [1 << 62, 0, 0, 0]);
        (0..62).for_each(|_| pool.paged_in(false));
        assert_eq!((pool.window, pool.hits), ([1, 0, 0, 0], 1));
        pool.paged_in(false);
        assert_eq!(pool.window, [0, 1 << 63, 0, 0]);
        (0..191).for_each(|_| pool.paged_in(false));
        assert_eq!((pool.window, pool.hits), ([0, 0, 0, 1], 1));
        pool.paged_in(false);
        assert_eq!((pool.window, pool.hits), ([0; 4], 0));
    }

    #[test]
    fn s4_the_count_is_that_of_a_plain_list() {
        let (mut pool, mut list, mut next) =
            (Selective::default(), std::collections::VecDeque::from([false; 256]), random(1));
        for i in 0..5000 {
            let hit = next(1000) < i / 5;
            pool.paged_in(hit);
            list.push_front(hit);
            list.pop_back();
            assert_eq!(pool.hits as usize, list.iter().filter(|hit| **hit).count());
            pool.check();
        }
    }

    #[test]
    fn s5_a_half_empty_pool_asks_for_half() {
        let pool = pool(1024, false, 128, 128);
        assert_eq!(pool.average_benefit_permille(POOL / 2, POOL), 4000);
        assert!(pool.admits(ratio(1.0), false, POOL / 2, POOL) && !pool.admits(ratio(1.0), false, POOL / 2 + 1, POOL));
        assert!(pool.admits(ratio(0.25), true, POOL / 2, POOL) && !pool.admits(ratio(0.25) + 1, true, POOL / 2, POOL));
        // Above the limit the mean is higher than that of a full pool.
        assert_eq!(pool.average_benefit_permille(POOL, POOL / 2), 16_000);
        // Without any room only pages of entropy 0 are admitted.
        assert_eq!(pool.average_benefit_permille(POOL, 0), u64::MAX);
        assert!(!pool.admits(1, false, POOL, 0) && pool.admits(0, true, POOL, 0));
    }

    #[test]
    fn s7_all_is_admitted_without_hits_or_pages_and_what_has_no_entropy_always() {
        let empty = pool(1024, false, 256, 0);
        let (mut emptied, mut fresh) = (empty.clone(), Selective::default());
        (0..100).for_each(|_| emptied.left(1024, false));
        (0..9).for_each(|_| fresh.paged_in(true));
        for (pool, used) in [(&empty, 0), (&emptied, 0), (&fresh, 0), (&pool(1024, false, 0, 0), POOL)] {
            assert_eq!(pool.average_benefit_permille(used, POOL), 0);
            assert!(pool.admits(RATIO_ONE, true, used, POOL) && pool.admits(RATIO_ONE, false, used, POOL));
        }
        let dear = pool(1, false, 256, 0);
        assert!(dear.average_benefit_permille(POOL, POOL) == 16_384_000);
        assert!(dear.admits(0, true, POOL, POOL) && !dear.admits(65, false, POOL, POOL));
        assert!(dear.admits(16, false, POOL, POOL), "4 / (16 / 65536) is 16384: equality");
        assert!(!dear.admits(17, false, POOL, POOL));
    }

    #[test]
    fn s7_is_the_formula_on_random_pools() {
        let mut next = random(2);
        let (mut yes, mut no, mut close) = (0, 0, 0);
        for _ in 0..20_000 {
            let mut pool = Selective::default();
            let longest = 1 + next(4096);
            for _ in 0..1 + next(30) {
                pool.entered(1 + next(longest) as u32, next(4) > 0);
            }
            let rate = next(4);
            for _ in 0..next(300) {
                pool.paged_in(next(3) < rate);
            }
            let total = 1 + next(1 << 31) * next(1 << 10);
            let used = total / 1000 * next(1001);
            let file = next(2) == 0;
            // Half of them near the threshold, if there is one: at most a hundredth above or below.
            let border = formula(&pool, RATIO_ONE, file, used, total);
            let near = (border.0 / border.1 * f64::from(RATIO_ONE) * (0.99 + next(2001) as f64 / 1e5)) as u32;
            let r = if (1..=RATIO_ONE).contains(&near) && next(2) == 0 { near } else { 1 + next(65536) as u32 };
            let (benefit, average) = formula(&pool, r, file, used, total);
            let admitted = pool.admits(r, file, used, total);
            if (benefit - average).abs() > average / 1e6 {
                assert_eq!(admitted, benefit > average, "{pool:?} {r} {file} {used} {total}");
                *(if admitted { &mut yes } else { &mut no }) += 1;
            } else {
                close += 1;
            }
            let permille = pool.average_benefit_permille(used, total) as f64;
            assert!((permille - average * 1000.0).abs() <= 0.5 + average / 1000.0, "{permille} {average}");
        }
        assert!(yes > 2000 && no > 2000 && close < 50, "{yes} {no} {close}");
    }

    /// No product overflows with the largest possible pools.
    #[test]
    fn s7_extremes() {
        let zpages = u64::from(u32::MAX);
        let bytes = zpages * u64::from(FRAME_BYTES);
        let (window, hits, cost) = ([u64::MAX; WORDS], 256, zpages * COST_ANONYMOUS);
        let pool = Selective { window, hits, zpages, cost, bytes };
        pool.check();
        assert_eq!(pool.average_benefit_permille(u64::MAX, u64::MAX), 4000);
        assert!(pool.admits(RATIO_ONE, false, u64::MAX, u64::MAX));
        assert!(!pool.admits(RATIO_ONE, true, u64::MAX, u64::MAX));
        assert!(pool.admits(RATIO_ONE / 4, true, u64::MAX, u64::MAX));
        assert!(!pool.admits(RATIO_ONE / 4 + 1, true, u64::MAX, u64::MAX));
        assert_eq!(pool.average_benefit_permille(u64::MAX, 1), u64::MAX);
    }
}
