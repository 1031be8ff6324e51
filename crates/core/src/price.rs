//! The price of memory in the pool: the time of page faults that the programs would be spared if a
//! page took none.
//!
//! A slower codec makes pages smaller, which leaves frames to the programs. Refault distances tell
//! what these frames save: with W frames more, the programs would have kept the pages that came
//! back before W others had left. W is half of the pool's pages, in whole epochs: a codec can save
//! no more. A page in the pool takes its memory until it comes back, so its price is that of one
//! frame times the pages of the pool. All times are in evictions, so the price needs no clock.

use crate::engine::Core;

/// Epochs whose refaults are counted one by one. As many pages leave in them as are in memory.
pub(crate) const EPOCHS: usize = 8;
/// Counted for a page fault; for a page that another page's fault brings along.
const FAULT: u64 = 64;
const ALONG: u64 = FAULT / 4;
/// At the start the counts are taken to have one refault for each page of the pool, in parts of
/// [`Price::ONE`], of a program that accesses its pages at random. Each frame more spares it one
/// fault for as many evictions as pages are out, so the price of a page is that of one fault.
const ASSUMED: u64 = Price::ONE;
/// Counts decay by one in so many, each time that an eighth of the resident pages has come back: a
/// page stays in the pool for long, so the price is one of the long run.
const DECAY: u64 = 64;
/// Compression is taken to save this part of a page at least, percent.
const LEAST_GAIN: u64 = 10;

/// Most that a page is worth, ns.
const MOST_NS: u64 = 10_000_000;

/// How a page came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Return {
    /// With the fault of another page.
    pub along: bool,
    /// A codec had compressed it: not from staging or a file, and not one repeated word.
    pub compressed: bool,
}

/// Counts of pages that came back.
#[derive(Debug)]
pub(crate) struct Price {
    /// By age in epochs: a page that came along counts less.
    near: [u64; EPOCHS + 1],
    /// Compressed pages of any age, each counted as one fault.
    all: u64,
    assumed: u64,
    /// Pages that came back since the last decay.
    fresh: u64,
}

impl Default for Price {
    fn default() -> Price {
        Price { near: [0; EPOCHS + 1], all: 0, assumed: ASSUMED, fresh: 0 }
    }
}

impl Price {
    /// A page came back, `age` epochs after it left. An epoch has so many evictions.
    pub fn came_back(&mut self, age: u32, how: Return, epoch: u64) {
        if let Some(near) = self.near.get_mut(age as usize) {
            *near += if how.along { ALONG } else { FAULT };
        }
        self.all += if how.compressed { FAULT } else { 0 };
        self.fresh += 1;
        if self.fresh >= epoch {
            self.fresh = 0;
            self.near
                .iter_mut()
                .chain([&mut self.all, &mut self.assumed])
                .for_each(|count| *count -= count.div_ceil(DECAY));
        }
    }

    /// The price of a whole page's memory from its eviction on until it comes back: the cost of a
    /// fault times this, divided by [`Price::ONE`]. The pool has `zpages` in `frames`.
    pub fn of_page(&self, epoch: u64, zpages: u64, frames: u64) -> u64 {
        let epochs = (zpages / 2 / epoch).clamp(1, EPOCHS as u64);
        let half_of_last = self.near[epochs as usize] / 2;
        let near = self.near[..epochs as usize].iter().sum::<u64>() + half_of_last;
        // Each page that stays in memory takes no place in the pool.
        let places = zpages.saturating_sub(frames).max(zpages * LEAST_GAIN / 100).max(1);
        let [near, zpages, window, places] = [near, zpages, epochs * epoch, places].map(u128::from);
        let assumed = u128::from(self.assumed * FAULT) * zpages.max(1) / u128::from(Price::ONE);
        let spared = near * zpages / window + assumed;
        let all = (u128::from(self.all) + assumed).max(1);
        (u128::from(Price::ONE) * spared * zpages.max(1) / (all * places)).try_into().unwrap_or(u64::MAX)
    }

    /// See [`Price::of_page`].
    pub const ONE: u64 = 1024;
}

impl Core {
    /// Time that the memory of a whole page in the pool is worth from its eviction on until it
    /// comes back, ns, 10 ms at most. `fault_ns`: what a page fault costs, with the eviction for
    /// it. With a pool of fixed size, or with a replacement policy, no ages are known; it is
    /// `fault_ns` then.
    pub fn page_worth_ns(&self, fault_ns: u64) -> u64 {
        let Some(ages) = &self.objects.ages else { return fault_ns };
        let usage = self.pool_usage();
        let of_page = ages.page_price(self.present_total(), usage.zpages, usage.frames.into());
        (fault_ns.saturating_mul(of_page) / Price::ONE).min(MOST_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: u64 = 128;
    const FAULTED: Return = Return { along: false, compressed: true };

    fn counted(ages: impl Iterator<Item = u32>, how: Return) -> Price {
        let mut price = Price::default();
        ages.for_each(|age| price.came_back(age, how, EPOCH));
        price
    }

    #[test]
    fn it_is_a_fault_for_pages_that_come_back_at_random() {
        assert_eq!(Price::default().of_page(EPOCH, 4096, 0), Price::ONE, "assumed at first");
        // Of 4096 pages outside, one in 32 comes back in each epoch of 128.
        let mut random = 1u32;
        let ages = (0..100_000).map(|_| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 20) / 128
        });
        let price = counted(ages, FAULTED);
        let of_page = price.of_page(EPOCH, 4096, 0);
        assert!((Price::ONE * 9 / 10..Price::ONE * 11 / 10).contains(&of_page), "{of_page}");
        let gains_places = price.of_page(EPOCH, 4096, 2048);
        assert!(gains_places.abs_diff(2 * of_page) <= 2, "{gains_places}");
    }

    #[test]
    fn it_is_low_where_pages_come_back_late_or_with_others() {
        let late = counted((0..100_000).map(|_| 9), FAULTED);
        assert!(late.of_page(EPOCH, 4096, 2048) < Price::ONE / 20);
        let soon = counted((0..100_000).map(|i| i % 4), FAULTED).of_page(EPOCH, 4096, 2048);
        let along = counted((0..100_000).map(|i| i % 4), Return { along: true, ..FAULTED }).of_page(EPOCH, 4096, 2048);
        assert!(soon > 4 * Price::ONE && (soon / 5..soon / 3).contains(&along), "{soon} {along}");
        assert!(late.of_page(EPOCH, 0, 0) < Price::ONE, "an empty pool");
        assert!(soon > counted((0..100_000).map(|i| i % 4), FAULTED).of_page(EPOCH, 64, 32), "a small pool");
    }

    #[test]
    fn it_follows_a_program_that_changes() {
        let mut price = counted((0..20_000).map(|_| 9), FAULTED);
        let before = price.of_page(EPOCH, 1024, 0);
        (0..2000).for_each(|_| price.came_back(1, FAULTED, EPOCH));
        let soon = price.of_page(EPOCH, 1024, 0);
        (0..20_000).for_each(|_| price.came_back(1, FAULTED, EPOCH));
        let later = price.of_page(EPOCH, 1024, 0);
        assert!(before * 2 < soon && soon * 2 < later, "{before} {soon} {later}");
    }

    #[test]
    fn pages_from_staging_are_spared_and_were_not_compressed() {
        let mut price = counted((0..1000).map(|_| 9), FAULTED);
        let before = price.of_page(EPOCH, 1024, 0);
        (0..1000).for_each(|_| price.came_back(0, Return { compressed: false, ..FAULTED }, EPOCH));
        assert!(price.of_page(EPOCH, 1024, 0) > before && price.all < 1000 * FAULT);
    }
}
