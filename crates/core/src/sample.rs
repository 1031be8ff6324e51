//! Sampling: which part of the address space is watched when a run is recorded with its accesses,
//! and how much of it.
//!
//! The pager evicts the pages of sampled regions again and again. So nearly all touches of them are
//! faults, and a recording contains faults. A region is 16 pages, aligned. It is sampled if the
//! [`hash`] of its number is below a threshold: without randomness, and equally in all processes,
//! so that a fork child samples what its parent samples. A simulation of the sampled regions only,
//! in a budget reduced to the sampled share ([`Sampled::rate`]), is a miniature of the run (SHARDS:
//! Waldspurger et al., FAST 2015).
//!
//! The threshold never rises ([`Governor`]), so that a region that is sampled at the end was
//! sampled all the time.

use crate::engine::Core;
use crate::entry::{evictable, Entry};
use crate::ids::{Page, ProcId, RUN_PAGES};
use crate::object::Place;
use alloc::vec::Vec;

/// Pages of a region.
pub const REGION_PAGES: u64 = RUN_PAGES;
/// The threshold that samples everything: one more than the largest [`hash`].
pub const EVERYTHING: u32 = 1 << 24;
/// Number of the region of a page: its address / 64 KiB.
pub fn region_of(page: Page) -> u64 {
    page.0 / REGION_PAGES
}

/// Increment of the state of splitmix64: 2^64 divided by the golden ratio.
pub const SPLITMIX_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// First output of splitmix64 (Steele, Lea and Flood, OOPSLA 2014) from this state: a pseudo-random
/// function of `n`.
pub fn mix(n: u64) -> u64 {
    let mixed = n.wrapping_add(SPLITMIX_STEP);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Hash of a region's number: the upper 24 bits of [`mix`].
pub fn hash(region: u64) -> u32 {
    (mix(region) >> 40) as u32
}

/// What is sampled, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampled {
    /// A region is sampled if its [`hash`] is below this.
    pub threshold: u32,
    /// Longest time between two passes over the sampled pages, ms. Several touches of a page
    /// between two passes count as one. An earlier pass begins when [`Governor::grain`] pages have
    /// come back.
    pub period_ms: u32,
}

impl Sampled {
    /// Whether a page is in a sampled region.
    pub fn has(&self, page: Page) -> bool {
        hash(region_of(page)) < self.threshold
    }

    /// Sampled share of the address space, 0 to 1.
    pub fn rate(&self) -> f64 {
        f64::from(self.threshold.min(EVERYTHING)) / f64::from(EVERYTHING)
    }
}

/// Limits of sampling.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most sampled pages that are in the programs or staged.
    pub pages: u64,
    /// Most time spent in faults on sampled pages, in thousandths of elapsed time, in the long run.
    pub permille: u64,
    /// First time between two passes, ms.
    pub period_ms: u32,
    /// Longest time between two passes, ms.
    pub period_max_ms: u32,
}

/// If faults take too long, fewer pages are sampled; but with fewer than one in FEW_PART of the
/// allowed pages, the passes become rarer instead.
const FEW_PART: u64 = 4;
/// With fewer than one in LEAST_PART of the allowed pages the sample stays, whatever its faults
/// take: a smaller one would tell nothing.
const LEAST_PART: u64 = 8;
/// Shortest time between two passes: the period divided by this.
const GAP_PART: u32 = 16;
/// With the first period, a pass begins when one sampled page in this many has come back; with
/// longer periods, more may come back.
const GRAIN_PART: u64 = 16;
/// After a change, the allowance restarts at the full allowance divided by this.
const CONVERGE_PART: u64 = 4;
/// The full allowance is what is earned in this many seconds.
const AHEAD_S: u64 = 4;

/// Controls how much is sampled.
///
/// Too many pages halve the threshold. The time of faults is paid from an allowance that grows with
/// elapsed time, up to the amount of a few seconds, so that a program may fill its memory first.
/// When the allowance is used up, the threshold halves or the period doubles.
#[derive(Debug, Clone)]
pub struct Governor {
    limits: Limits,
    now: Sampled,
    /// In microseconds.
    allowance: u64,
}

impl Governor {
    /// Samples everything at first.
    pub fn new(limits: Limits) -> Governor {
        let now = Sampled { threshold: EVERYTHING, period_ms: limits.period_ms };
        Governor { limits, now, allowance: Self::most(&limits) }
    }

    fn most(limits: &Limits) -> u64 {
        limits.permille * AHEAD_S * 1000
    }

    /// The present sampling.
    pub fn sampled(&self) -> Sampled {
        self.now
    }

    /// Number of returned pages that starts a pass, with `pages` sampled pages in the programs or
    /// staged. A pass cannot see the order in which the returned pages were touched, nor repeated
    /// touches.
    pub fn grain(&self, pages: u64) -> u64 {
        let longer = u64::from(self.now.period_ms / self.limits.period_ms.max(1)).max(1);
        (pages * longer / GRAIN_PART).max(1)
    }

    /// Shortest time between two passes, us.
    pub fn gap_us(&self) -> u64 {
        u64::from(self.now.period_ms) * 1000 / u64::from(GAP_PART)
    }

    /// Adapts the sampling. `pages`: sampled pages in the programs or staged; `faults_us`: time of
    /// faults on sampled pages in the last `elapsed_ms` ms. Returns whether the sampling has
    /// changed.
    pub fn judge(&mut self, pages: u64, faults_us: u64, elapsed_ms: u64) -> bool {
        let before = self.now;
        let mut pages = pages;
        while pages > self.limits.pages && self.now.threshold > 1 {
            self.now.threshold /= 2;
            pages /= 2;
        }
        let earned = self.limits.permille.saturating_mul(elapsed_ms);
        let allowance = self.allowance.saturating_add(earned).min(Self::most(&self.limits));
        self.allowance = allowance.saturating_sub(faults_us);
        if faults_us > allowance {
            let rarer = pages < self.limits.pages / FEW_PART && self.now.period_ms < self.limits.period_max_ms;
            if rarer {
                self.now.period_ms = (self.now.period_ms * 2).min(self.limits.period_max_ms);
            } else if pages >= self.limits.pages / LEAST_PART {
                self.now.threshold = (self.now.threshold / 2).max(1);
            }
            // It takes a while and some faults until the smaller sample can be judged.
            self.allowance = Self::most(&self.limits) / CONVERGE_PART;
        }
        self.now != before
    }
}

/// A sampled region of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampledRegion {
    /// Number of the region: address / 64 KiB.
    pub number: u64,
    /// Pages in the program, in a batch or staged.
    pub pages: u32,
    /// Of these, pages that can be evicted now.
    pub takeable: u32,
}

impl SampledRegion {
    /// First page.
    pub fn first(&self) -> Page {
        Page(self.number * REGION_PAGES)
    }
}

impl Core {
    /// Appends the sampled regions of a process that have pages, from region `from` on, in order.
    /// Scans at most `most` runs. Returns the region to continue from, or `None` at the end.
    pub fn sampled_regions(
        &self,
        proc: ProcId,
        from: u64,
        most: usize,
        sampled: Sampled,
        out: &mut Vec<SampledRegion>,
    ) -> Option<u64> {
        // A region is a run.
        let runs = self.table.proc(proc).runs().range(from..);
        for (read, (&number, &index)) in runs.enumerate() {
            if read >= most {
                return Some(number);
            }
            if hash(number) >= sampled.threshold {
                continue;
            }
            let entries = (0..RUN_PAGES as usize).map(|i| self.table.entry_in(index, i));
            let (mut pages, mut takeable) = (0, 0);
            for entry in entries {
                takeable += u32::from(evictable(entry));
                pages += u32::from(self.is_near(entry));
            }
            if pages > 0 {
                out.push(SampledRegion { number, pages, takeable });
            }
        }
        None
    }

    /// Whether the page occupies uncompressed RAM, or is about to.
    fn is_near(&self, entry: Entry) -> bool {
        match entry {
            Entry::Out(object) => {
                matches!(self.objects.place_of(object), Place::Staged(_) | Place::Compressing(_))
            }
            Entry::Untracked | Entry::Quarantined(_) => false,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With faults of 10 us this allows 5000 a second.
    const LIMITS: Limits = Limits { pages: 4096, permille: 50, period_ms: 100, period_max_ms: 1600 };

    fn judged(governor: &mut Governor, pages: u64, faults: u64) -> (u32, u32) {
        governor.judge(pages, faults * 10, u64::from(governor.sampled().period_ms));
        let Sampled { threshold, period_ms } = governor.sampled();
        (EVERYTHING / threshold, period_ms)
    }

    #[test]
    fn the_hash_is_as_documented_and_even() {
        // The first outputs of splitmix64 with these states.
        assert_eq!([0, 1].map(hash), [0xe2_20a8, 0x91_0a2d]);
        let below = |threshold| (0x1_fc00_0000..0x1_fc01_0000).filter(|&region| hash(region) < threshold).count();
        assert_eq!(below(EVERYTHING), 1 << 16);
        let eighth = below(EVERYTHING / 8);
        assert!((7900..8500).contains(&eighth), "{eighth} of 65536");
        let sampled = Sampled { threshold: EVERYTHING / 8, period_ms: 100 };
        assert!((sampled.rate() - 0.125).abs() < 1e-9);
        assert!((0..REGION_PAGES).all(|page| sampled.has(Page(page)) == sampled.has(Page(0))));
    }

    #[test]
    fn a_small_tree_that_rests_is_sampled_whole() {
        let mut governor = Governor::new(LIMITS);
        for _ in 0..1000 {
            assert_eq!(judged(&mut governor, 4096, 400), (1, 100));
        }
    }

    #[test]
    fn pages_above_the_limit_halve_the_sample_at_once() {
        let mut governor = Governor::new(LIMITS);
        assert_eq!(judged(&mut governor, 4097, 0), (2, 100));
        assert_eq!(judged(&mut governor, 2048, 0), (2, 100));
        assert_eq!(judged(&mut governor, 4096 * 512, 0), (1024, 100));
        assert_eq!(judged(&mut governor, 0, 0), (1024, 100), "it never rises");
    }

    #[test]
    fn a_program_may_fill_its_memory_before_its_faults_count() {
        let mut governor = Governor::new(LIMITS);
        assert_eq!(judged(&mut governor, 4096, 20_000), (1, 100));
        assert_eq!(judged(&mut governor, 4096, 501), (2, 100), "all is spent");
    }

    /// Every sampled page is touched in every period.
    #[test]
    fn faults_converge_within_the_budget_and_leave_a_sample() {
        for all in [2_000u64, 20_000, 1_000_000] {
            let mut governor = Governor::new(LIMITS);
            let mut pages = all;
            for _ in 0..100 {
                let (part, _) = judged(&mut governor, pages, pages);
                pages = all / u64::from(part);
            }
            let a_second = pages * 1000 / u64::from(governor.sampled().period_ms);
            assert!(
                a_second <= 5000 && pages >= LIMITS.pages / FEW_PART / 2,
                "{all}: {pages} pages, {a_second} a second"
            );
            let sampled = governor.sampled();
            (0..100).for_each(|_| _ = judged(&mut governor, pages, pages));
            assert_eq!(governor.sampled(), sampled);
        }
    }

    #[test]
    fn a_small_sample_stays() {
        let mut governor = Governor::new(LIMITS);
        (0..100).for_each(|_| _ = judged(&mut governor, 500, 100_000));
        assert_eq!(judged(&mut governor, 500, 100_000), (1, 1600));
        assert_eq!(judged(&mut governor, 600, 100_000), (2, 1600));
    }

    #[test]
    fn what_came_back_is_taken_again_the_later_the_longer_the_period() {
        let mut governor = Governor::new(LIMITS);
        assert_eq!([0, 8, 160, 4096].map(|pages| governor.grain(pages)), [1, 1, 10, 256]);
        assert_eq!(governor.gap_us(), 6250);
        (0..100).for_each(|_| _ = judged(&mut governor, 100, 100_000));
        assert_eq!((governor.sampled().period_ms, governor.grain(160), governor.gap_us()), (1600, 160, 100_000));
    }

    #[test]
    fn nothing_overflows() {
        let mut governor = Governor::new(LIMITS);
        for _ in 0..64 {
            governor.judge(u64::MAX, u64::MAX, u64::MAX);
        }
        assert!(governor.sampled().threshold >= 1 && governor.sampled().period_ms <= 1600);
    }

    #[test]
    fn regions_are_found_a_part_at_a_time() {
        let scheme = std::sync::Arc::new(crate::scheme::Scheme::default());
        let (staging_slots, pool_frames, area_frames) = (64, 64, 128);
        let (blocks, sizes) = (Vec::new(), crate::budget::Sizes::new(1 << 30, &scheme));
        let mut core =
            Core::new(crate::Tunables { scheme, sizes, staging_slots, pool_frames, area_frames, swap: false, blocks });
        let (proc, _) = core.add_process(64);
        for page in [16, 17, 31, 32 + 15, 160] {
            core.adopt(proc, Page(page), false);
        }
        let all = Sampled { threshold: EVERYTHING, period_ms: 100 };
        let mut whole = Vec::new();
        assert_eq!(core.sampled_regions(proc, 0, 100, all, &mut whole), None);
        let found: Vec<_> = whole.iter().map(|r| (r.number, r.pages, r.takeable)).collect();
        assert_eq!(found, [(1, 3, 3), (2, 1, 1), (10, 1, 1)]);
        let (mut parts, mut from) = (Vec::new(), Some(0));
        while let Some(at) = from {
            from = core.sampled_regions(proc, at, 1, all, &mut parts);
        }
        assert_eq!(parts, whole);
        let some = Sampled { threshold: hash(2) + 1, period_ms: 100 };
        parts.clear();
        core.sampled_regions(proc, 0, 100, some, &mut parts);
        assert!(parts.iter().all(|r| hash(r.number) <= hash(2)) && parts.contains(&whole[1]));
        // Evicted pages are still near, and cannot be evicted again.
        let victims = core.claim_range(proc, crate::PageRange { first: Page(16), pages: 16 }, 16, 0);
        for victim in victims {
            let pages = victim.slots.len() as u32;
            let answer = crate::Answer { moved: u64::MAX >> (64 - pages), ..Default::default() };
            core.evicted(proc, victim.first, pages, answer, 0);
        }
        parts.clear();
        core.sampled_regions(proc, 0, 100, all, &mut parts);
        assert_eq!((parts[0].pages, parts[0].takeable), (3, 0));
    }
}
