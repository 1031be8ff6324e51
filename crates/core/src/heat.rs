//! Pages that the program uses all the time.
//!
//! Page faults do not show which resident pages are used. A page that is always in use has no
//! faults, so it looks old, and leaves before pages that are used less. That shows only after it
//! has left: it comes back at once. So each time that a page leaves because it is the oldest is a
//! *probe*. If a thread soon faults on the page, the page is *hot*: it has a chance to stay when it
//! is the oldest again. After two such probes in a row it has three chances, after three or more
//! seven.
//!
//! A probe costs a fault. As in exponential back-off, probes of a page become rarer, up to a limit.
//! A page that is not used any more stays until it has no chance left.
//!
//! Where the kernel tells which pages are used ([`crate::observe`]), that gives and takes the
//! chances instead.

use crate::ids::RUN_PAGES;

/// Periods in which as many pages leave as are in memory.
const TURNOVER: u16 = 16;
/// Least pages of a period: one batch must not be several of them.
pub(crate) const PERIOD_MIN: u64 = memfit_wire::BATCH_PAGES as u64;
/// A page came back quickly if it did so in the period in which it left, or in the next one. Of
/// pages that are all used equally often, few come back so soon.
const QUICK: u16 = 1;
/// Probes in a row after which a page has as many chances as it may have.
const PASSED_MAX: u32 = 3;
/// Most chances of a page.
pub(crate) const CHANCES_MAX: u32 = (1 << PASSED_MAX) - 1;

/// Mask of the chances of a page.
const CHANCES: u64 = 15;
/// Most chances of a page whose accessed bit is looked at. With more, pages that were used often
/// once stay for too long.
const OBSERVED_MAX: u32 = 3;

/// Counts evictions in periods, modulo 2^16.
#[derive(Debug, Default)]
pub(crate) struct Periods {
    now: u16,
    evictions: u64,
}

impl Periods {
    /// A page has left; so many pages are in memory and outside.
    pub fn count(&mut self, resident: u64, out: u64) {
        self.evictions += 1;
        // Where few pages are outside, each of them comes back soon, hot or not.
        if self.evictions >= (resident.min(out) / u64::from(TURNOVER)).max(PERIOD_MIN) {
            self.evictions = 0;
            self.now = self.now.wrapping_add(1);
        }
    }

    pub fn now(&self) -> u16 {
        self.now
    }
}

/// What is known of the pages of a run. Bit i of a mask is page i.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heat {
    /// Pages whose probe is under way.
    probed: u16,
    /// The period in which these have left.
    left: u16,
    /// The period in which the run last had a new chance, or lost one.
    counted: u16,
    /// Probes in a row after which each page came back quickly; two bits each.
    passed: u32,
    /// Chances of each page; four bits each.
    chances: u64,
    /// Pages on which a thread has faulted and that are not there yet.
    asked: u16,
    /// Pages that came back although no thread had asked for them, since the last look.
    brought: u16,
}

impl Heat {
    /// Pages of the run are about to leave because they are the oldest. Probes of other pages of
    /// the run end: those that came back quickly would have done so by now, or it is not known.
    pub fn probe(&mut self, pages: u16, now: u16) {
        let late = !self.is_quick(now);
        indices(self.probed & !pages).filter(|_| late).for_each(|index| self.forget(index));
        (self.probed, self.left) = (pages, now);
        indices(pages).for_each(|index| self.set_chances(index, 0));
    }

    /// A page has left.
    pub fn leave(&mut self, index: usize, now: u16) {
        if self.probed >> index & 1 == 1 {
            self.left = now;
        }
    }

    /// A thread faults on a page that had left. `most`: most chances, up to [`CHANCES_MAX`].
    pub fn faulted(&mut self, index: usize, now: u16, most: u32) {
        if self.probed >> index & 1 == 1 {
            let before = self.passed >> (2 * index) & 3;
            let passed = if self.is_quick(now) { (before + 1).min(PASSED_MAX) } else { 0 };
            self.forget(index);
            self.passed |= passed << (2 * index);
            self.set_chances(index, ((1 << passed) - 1).min(most));
            if passed > 0 {
                self.counted = now;
            }
        }
        self.asked |= 1 << index;
    }

    /// A page has come back.
    pub fn come(&mut self, index: usize) {
        self.end_probe(index);
        let page = 1 << index;
        self.brought = self.brought & !page | page & !self.asked;
        self.asked &= !page;
    }

    /// A look has shown which of these pages were accessed; returns those that were used. The bit
    /// of a page that came back unasked tells nothing before the next look.
    pub fn observe(&mut self, pages: u16, accessed: u16) -> u16 {
        let used = pages & accessed & !self.brought;
        self.brought &= !pages;
        for index in indices(pages) {
            let before = self.chances_of(index);
            let after = if used >> index & 1 == 1 { (before + 1).min(OBSERVED_MAX) } else { before.saturating_sub(1) };
            self.set_chances(index, after);
        }
        used
    }

    /// A page has come back, or has stayed, although no thread asked for it: its probe ends without
    /// a result.
    pub fn end_probe(&mut self, index: usize) {
        self.probed &= !(1 << index);
    }

    /// The page has other contents from now on.
    pub fn forget(&mut self, index: usize) {
        self.end_probe(index);
        self.asked &= !(1 << index);
        self.brought &= !(1 << index);
        self.passed &= !(3 << (2 * index));
        self.set_chances(index, 0);
    }

    /// Pages that have a chance to stay.
    pub fn hot(&self) -> u16 {
        if self.chances == 0 {
            return 0;
        }
        let hot = (0..RUN_PAGES as usize).filter(|&index| self.chances_of(index) != 0);
        hot.fold(0, |mask, index| mask | 1 << index)
    }

    /// The run is the oldest, and its hot pages stay. Each loses a chance; but a chance lasts for a
    /// turnover, however often the run is the oldest meanwhile.
    pub fn stay(&mut self, now: u16) {
        if now.wrapping_sub(self.counted) >= TURNOVER {
            self.counted = now;
            indices(self.hot()).for_each(|index| self.chances -= 1 << (4 * index));
        }
    }

    fn is_quick(&self, now: u16) -> bool {
        now.wrapping_sub(self.left) <= QUICK
    }

    fn chances_of(&self, index: usize) -> u32 {
        (self.chances >> (4 * index) & CHANCES) as u32
    }

    fn set_chances(&mut self, index: usize, chances: u32) {
        self.chances = self.chances & !(CHANCES << (4 * index)) | u64::from(chances) << (4 * index);
    }
}

fn indices(pages: u16) -> impl Iterator<Item = usize> {
    (0..RUN_PAGES as usize).filter(move |index| pages >> index & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Page 3 leaves and comes back so many periods later; returns how often it stays then, if its
    /// run is the oldest once in a turnover.
    fn probe(heat: &mut Heat, now: &mut u16, periods: u16, most: u32) -> usize {
        heat.probe(1 << 3, *now);
        assert_eq!(heat.hot(), 0);
        heat.leave(3, *now);
        *now = now.wrapping_add(periods);
        heat.faulted(3, *now, most);
        let mut stays = || {
            let hot = heat.hot();
            heat.stay(*now);
            heat.stay(*now);
            *now = now.wrapping_add(TURNOVER);
            hot == 1 << 3
        };
        *stays().then(|| (1..).take_while(|_| stays()).count()).get_or_insert(0)
    }

    #[test]
    fn what_always_comes_back_at_once_leaves_more_rarely() {
        let (mut heat, mut now) = (Heat::default(), 65_000);
        let all: Vec<usize> = (0..5).map(|_| probe(&mut heat, &mut now, 1, CHANCES_MAX)).collect();
        assert_eq!(all, [1, 3, 7, 7, 7]);
        assert_eq!(probe(&mut heat, &mut now, 2, CHANCES_MAX), 0, "it came back late");
        assert_eq!(probe(&mut heat, &mut now, 0, CHANCES_MAX), 1, "it begins anew");
        assert_eq!(probe(&mut heat, &mut now, 0, 2), 2, "at most so many");
        assert_eq!(probe(&mut heat, &mut now, 0, 0), 0, "switched off");
        assert_eq!(probe(&mut heat, &mut now, 7, CHANCES_MAX), 0);
        assert!(now < 65_000, "the count of periods may overflow");
    }

    #[test]
    fn pages_of_a_run_are_judged_alone() {
        let mut heat = Heat::default();
        heat.probe(u16::MAX, 0);
        [2, 5, 15].into_iter().for_each(|index| heat.faulted(index, 1, 7));
        heat.faulted(9, 200, 7);
        heat.end_probe(7);
        heat.faulted(7, 1, 7);
        assert_eq!(heat.hot(), 1 << 2 | 1 << 5 | 1 << 15);
        heat.faulted(2, 1, 7);
        assert_eq!(heat.hot(), 1 << 2 | 1 << 5 | 1 << 15, "it has not left again");
        heat.probe(1 << 5, 1);
        heat.forget(15);
        assert_eq!(heat.hot(), 1 << 2);
        heat.stay(1 + TURNOVER);
        assert_eq!(heat.hot(), 0);
    }

    #[test]
    fn a_probe_is_not_passed_later_because_a_neighbour_leaves() {
        let mut heat = Heat::default();
        heat.probe(1 << 4, 10);
        heat.faulted(4, 10, 7);
        for (left, neighbour) in [(20, 30), (40, 41)] {
            heat.probe(1 << 4, left);
            heat.probe(1 << 6, neighbour);
            heat.faulted(4, neighbour, 7);
            assert_eq!(heat.hot(), 0, "it left before the neighbour");
        }
    }

    #[test]
    fn looks_give_and_take_chances() {
        let mut heat = Heat::default();
        let all = 0b1111;
        heat.observe(all, 0b0001);
        assert_eq!(heat.hot(), 0b0001);
        (0..9).for_each(|_| _ = heat.observe(all, 0b0011));
        let mut unused = || {
            heat.observe(all, 0);
            heat.hot()
        };
        assert_eq!([unused(), unused(), unused()], [0b0011, 0b0011, 0], "three chances, one less by each look");
        heat.observe(0b0110, u16::MAX);
        assert_eq!(heat.hot(), 0b0110, "the look was at these");
        heat.observe(0b0100, 0);
        assert_eq!(heat.hot(), 0b0010);
    }

    #[test]
    fn what_was_brought_along_shows_in_the_look_after_the_next() {
        let mut heat = Heat::default();
        heat.probe(0b11, 0);
        heat.faulted(0, 0, 0);
        [0, 1].into_iter().for_each(|index| heat.come(index));
        heat.observe(0b11, 0b11);
        assert_eq!(heat.hot(), 0b01, "only the first was asked for");
        heat.observe(0b11, 0b11);
        assert_eq!(heat.hot(), 0b11);
    }

    #[test]
    fn a_period_is_a_part_of_what_is_in_memory_or_outside() {
        let count = |resident, out, pages| {
            let mut periods = Periods::default();
            (0..pages).for_each(|_| periods.count(resident, out));
            periods.now()
        };
        assert_eq!([15_999, 16_000].map(|pages| count(256_000, 400_000, pages)), [0, 1]);
        assert_eq!([7_999, 8_000].map(|pages| count(256_000, 128_000, pages)), [0, 1]);
        assert_eq!(count(0, 0, PERIOD_MIN * 65_537), 1);
    }
}
