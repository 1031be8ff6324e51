//! A weighted lottery over frames, by how full they are and what they hold.
//!
//! Kim, Kim and Seo, "ezswap: Enhanced Compressed Swap Scheme for Mobile Devices", IEEE Access
//! 2019, section III.C: each frame belongs to a category by its number of zpages, how many of them
//! are clean pages of files, and its share of free space. A frame is cheaper to lose if its zpages
//! are few and large, and cost little to evict and to read again. So the weight of a category is
//! the reciprocal of the benefit (equation 1 there, see `admission`) of its fullest frame, times
//! 10 000 (figure 7). A category has its number of frames times its weight as tickets (equation 4).
//! The policy draws one ticket of all; the victim is the tail of the list of its category. The
//! heaviest category does not always lose, which leaves new frames time to fill up.
//!
//! Each stored zpage gets a stamp from a global counter, and a frame has the sum of its zpages'
//! stamps. A frame that enters a list goes to the head if its sum is larger (younger) than the mean
//! of the frames there, otherwise to the tail.
//!
//! Open points of the paper. Here:
//!
//! - Frames that are more than half free belong to the last category of their row; with
//!   `extra_bins` the formula continues for them. Frames with three zpages have one category in any
//!   case.
//! - Columns include their upper bound.
//! - A frame with exactly the mean of the stamps goes to the tail. In an empty list, both ends are
//!   the same.
//! - The draw is from 0 up to, but not including, the sum of all tickets, by a seeded generator.
//! - The sums are outside the frames, and these lists have no part in placement.
//!
//! Metadata: 24 bytes per frame, 8 per zpage.

use super::{Policy, PolicyParams, ReplacementEntry, ReplacementMode, Zpage};
use crate::admission::{COST_ANONYMOUS, COST_FILE};
use crate::grow::reserve_tight;
use crate::list::{Linked, Links, List};
use crate::pool::{Unit, UnitView, FRAME_BYTES};
use crate::sample::{mix, SPLITMIX_STEP};
use alloc::{boxed::Box, vec::Vec};

/// Entry of this policy in [`super::REPLACEMENTS`].
pub(super) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "lottery",
    help: "frames by lot, with more tickets for those with few, large pages that cost little to bring back",
    fits: |pool| pool.name == "z3fold",
    make: |params| ReplacementMode::Policy(Box::new(Lottery::new(params))),
};

/// Most zpages of a frame.
const ZPAGES_MAX: usize = 3;

/// Columns of the rows of one, two and three zpages, up to a whole free frame; and the number of
/// columns in the paper.
const COLUMNS: [usize; ZPAGES_MAX] = [8, 4, 1];
const PRINTED: [usize; ZPAGES_MAX] = [4, 2, 1];

/// Categories, including those of frames more than half free.
const CATEGORIES: usize = 2 * COLUMNS[0] + 3 * COLUMNS[1] + 4 * COLUMNS[2];

/// Values of [`Frame::list`] for a frame that is not known, or taken.
const UNKNOWN: u8 = u8::MAX;
const TAKEN: u8 = u8::MAX - 1;

/// No stamp: the zpage is not known.
const NO_STAMP: u64 = u64::MAX;

/// Tickets per frame of each category: `W` of equation 4.
const WEIGHTS: [u64; CATEGORIES] = weights();

/// Weight of `n` zpages, `f` of them of files, with at least `free` of `of` parts free; halves are
/// rounded up.
const fn weight(n: u64, f: u64, free: u64, of: u64) -> u64 {
    let cost = COST_ANONYMOUS * (n - f) + COST_FILE * f;
    // The mean ratio of the zpages is (of - free) / of / n.
    let (above, below) = (10_000 * (of - free), of * n * cost);
    (2 * above + below) / (2 * below)
}

const fn weights() -> [u64; CATEGORIES] {
    let mut weights = [0; CATEGORIES];
    let (mut n, mut at) = (1, 0);
    while n <= ZPAGES_MAX {
        let (mut f, columns) = (0, COLUMNS[n - 1]);
        while f <= n {
            let mut column = 0;
            while column < columns {
                weights[at] = weight(n as u64, f as u64, column as u64, columns as u64);
                (at, column) = (at + 1, column + 1);
            }
            f += 1;
        }
        n += 1;
    }
    weights
}

/// Category of `n` zpages, `f` of them of files, with `free_bytes` bytes free.
fn category(n: usize, f: usize, free_bytes: u32, extra_bins: bool) -> usize {
    assert!(
        (1..=ZPAGES_MAX).contains(&n) && f <= n && free_bytes <= FRAME_BYTES,
        "{n} zpages, {f}, {free_bytes} bytes"
    );
    let (columns, before) = (COLUMNS[n - 1], [0, 2 * COLUMNS[0], 2 * COLUMNS[0] + 3 * COLUMNS[1]][n - 1]);
    let column = free_bytes.saturating_sub(1) as usize * columns / FRAME_BYTES as usize;
    let last = if extra_bins { columns } else { PRINTED[n - 1] } - 1;
    before + f * columns + column.min(last)
}

/// A frame, indexed by its number.
#[derive(Debug, Clone, Copy)]
struct Frame {
    /// Sum of the stamps of its zpages.
    stamps: u64,
    links: Links,
    zpages: u8,
    /// Clean pages of files among them.
    files: u8,
    /// Its category, [`UNKNOWN`] or [`TAKEN`].
    list: u8,
}

const NO_FRAME: Frame = Frame { stamps: 0, links: Links::UNLINKED, zpages: 0, files: 0, list: UNKNOWN };

impl Linked for Vec<Frame> {
    fn links(&mut self, i: u32) -> &mut Links {
        &mut self[i as usize].links
    }
}

/// One category. The head of its list is the youngest.
#[derive(Debug, Clone, Copy)]
struct Category {
    list: List,
    /// Sum of the `stamps` of its frames.
    stamps: u128,
    tickets: u64,
}

/// SplitMix64.
#[derive(Debug)]
struct Random(u64);

impl Random {
    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        let random = mix(self.0);
        self.0 = self.0.wrapping_add(SPLITMIX_STEP);
        ((u128::from(random) * u128::from(end)) >> 64) as u64
    }
}

/// The policy.
struct Lottery {
    extra_bins: bool,
    /// Zpages stored so far.
    clock: u64,
    /// By handle number.
    stamps: Vec<u64>,
    frames: Vec<Frame>,
    categories: [Category; CATEGORIES],
    /// Sum over all categories.
    tickets: u64,
    random: Random,
}

impl Lottery {
    fn new(params: &PolicyParams) -> Lottery {
        Lottery {
            extra_bins: params.extra_bins,
            clock: 0,
            stamps: Vec::new(),
            frames: Vec::new(),
            categories: [Category { list: List::EMPTY, stamps: 0, tickets: 0 }; CATEGORIES],
            tickets: 0,
            random: Random(params.seed),
        }
    }

    /// A frame that is known.
    fn frame(&mut self, unit: Unit) -> &mut Frame {
        let frame = &mut self.frames[unit.0 as usize];
        assert!(frame.list != UNKNOWN, "{unit:?} is not known");
        frame
    }

    /// Puts a frame that is in no list into the list of its category.
    fn link(&mut self, unit: Unit, view: UnitView) {
        let extra_bins = self.extra_bins;
        let frame = self.frame(unit);
        assert_eq!(u16::from(frame.zpages), view.zpages, "zpages of {unit:?}");
        let index = category(usize::from(frame.zpages), usize::from(frame.files), view.free_bytes, extra_bins);
        frame.list = index as u8;
        let stamps = u128::from(frame.stamps);
        let category = &mut self.categories[index];
        if stamps * u128::from(category.list.len) > category.stamps {
            category.list.push_front(&mut self.frames, unit.0);
        } else {
            category.list.push_back(&mut self.frames, unit.0);
        }
        category.stamps += stamps;
        category.tickets += WEIGHTS[index];
        self.tickets += WEIGHTS[index];
    }

    /// Removes a frame from its list, if it is in one. Its stamps must be unchanged since it was
    /// put there.
    fn unlink(&mut self, unit: Unit) {
        let Frame { list, stamps, .. } = *self.frame(unit);
        if list == TAKEN {
            return;
        }
        let index = usize::from(list);
        let category = &mut self.categories[index];
        category.list.remove(&mut self.frames, unit.0);
        category.stamps -= u128::from(stamps);
        category.tickets -= WEIGHTS[index];
        self.tickets -= WEIGHTS[index];
    }

    /// Draws a ticket and returns its category; there must be a ticket.
    fn draw(&mut self) -> usize {
        let mut ticket = self.random.below(self.tickets);
        for (index, category) in self.categories.iter().enumerate() {
            match ticket.checked_sub(category.tickets) {
                Some(beyond) => ticket = beyond,
                None => return index,
            }
        }
        unreachable!("the tickets are those of the categories")
    }
}

impl Policy for Lottery {
    fn stored(&mut self, zpage: Zpage, unit: Unit, view: UnitView) {
        let stamp = entry(&mut self.stamps, zpage.handle.raw(), NO_STAMP);
        assert!(*stamp == NO_STAMP, "{:?} is known", zpage.handle);
        *stamp = self.clock;
        if entry(&mut self.frames, unit.0, NO_FRAME).list != UNKNOWN {
            self.unlink(unit);
        }
        let frame = &mut self.frames[unit.0 as usize];
        assert!(frame.list != TAKEN, "{unit:?} is being evicted");
        // Any real category: `link` sets the right one.
        frame.list = 0;
        frame.stamps += self.clock;
        frame.zpages += 1;
        frame.files += u8::from(zpage.file);
        self.clock += 1;
        self.link(unit, view);
    }

    fn left(&mut self, zpage: Zpage, unit: Unit, view: UnitView) {
        self.unlink(unit);
        let stamp = core::mem::replace(&mut self.stamps[zpage.handle.raw() as usize], NO_STAMP);
        assert!(stamp != NO_STAMP, "{:?} is not known", zpage.handle);
        let frame = self.frame(unit);
        frame.stamps -= stamp;
        frame.zpages -= 1;
        frame.files -= u8::from(zpage.file);
        if frame.zpages == 0 {
            *frame = NO_FRAME;
        } else if frame.list != TAKEN {
            self.link(unit, view);
        }
        cut(&mut self.stamps, |stamp| *stamp == NO_STAMP);
        cut(&mut self.frames, |frame| frame.list == UNKNOWN);
    }

    fn victims(&mut self, out: &mut Vec<Unit>) {
        if self.tickets == 0 {
            return;
        }
        let victim = Unit(self.categories[self.draw()].list.tail);
        self.unlink(victim);
        self.frame(victim).list = TAKEN;
        out.push(victim);
    }

    fn returned(&mut self, unit: Unit, view: UnitView) {
        assert!(self.frame(unit).list == TAKEN, "{unit:?} was not taken");
        self.link(unit, view);
    }

    fn metadata_bytes(&self) -> u64 {
        (self.stamps.capacity() * size_of::<u64>() + self.frames.capacity() * size_of::<Frame>()) as u64
    }

    fn check(&self) {
        let (mut listed, mut tickets) = (0, 0);
        for (index, category) in self.categories.iter().enumerate() {
            let (mut stamps, mut len, mut prev, mut next) = (0, 0, Links::UNLINKED.prev, category.list.head);
            while next != Links::UNLINKED.next {
                let frame = &self.frames[next as usize];
                assert_eq!((usize::from(frame.list), frame.links.prev), (index, prev), "{frame:?}");
                stamps += u128::from(frame.stamps);
                len += 1;
                (prev, next) = (next, frame.links.next);
            }
            assert_eq!((category.list.len, category.list.tail, category.stamps), (len, prev, stamps));
            assert_eq!(category.tickets, u64::from(len) * WEIGHTS[index], "tickets of category {index}");
            listed += len;
            tickets += category.tickets;
        }
        assert_eq!(self.tickets, tickets);
        let known = || self.frames.iter().filter(|frame| frame.list != UNKNOWN);
        assert_eq!(known().filter(|frame| frame.list != TAKEN).count(), listed as usize);
        assert!(known().all(|frame| frame.zpages > 0 && frame.files <= frame.zpages));
        let stamps = || self.stamps.iter().filter(|stamp| **stamp != NO_STAMP);
        assert!(stamps().all(|stamp| *stamp < self.clock));
        assert_eq!(known().map(|frame| usize::from(frame.zpages)).sum::<usize>(), stamps().count());
        assert_eq!(known().map(|frame| frame.stamps).sum::<u64>(), stamps().sum::<u64>());
    }
}

/// The entry with this number; fills the table with `blank` up to it.
fn entry<T: Copy>(table: &mut Vec<T>, number: u32, blank: T) -> &mut T {
    let number = number as usize;
    if number >= table.len() {
        reserve_tight(table, number + 1 - table.len());
        table.resize(number + 1, blank);
    }
    &mut table[number]
}

/// Cuts blank entries off the end, and gives memory back when less than half of the table is used.
fn cut<T>(table: &mut Vec<T>, is_blank: impl Fn(&T) -> bool) {
    while table.last().is_some_and(&is_blank) {
        table.pop();
    }
    if table.capacity() > 2 * table.len() + 64 {
        table.shrink_to(table.len() + table.len() / 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NIL;
    use crate::pool::Handle;

    /// Bytes of a chunk, the unit of free space.
    const CHUNK: u32 = 64;

    fn lottery(extra_bins: bool) -> Lottery {
        Lottery::new(&PolicyParams { extra_bins, seed: 7, ..PolicyParams::default() })
    }

    fn view(zpages: u16, free_chunks: u32) -> UnitView {
        UnitView { class: 0, zpages, capacity: 3, frames: 1, free_bytes: free_chunks * CHUNK }
    }

    fn zpage(handle: u32, file: bool) -> Zpage {
        Zpage { handle: Handle::from_raw(handle), len: 1000, file }
    }

    /// Stores zpages `10 * unit` and up, until the unit is in category (n, f) with `free_chunks`
    /// free chunks.
    fn fill(policy: &mut Lottery, unit: u32, n: u16, f: u16, free_chunks: u32) {
        for i in 0..n {
            policy.stored(zpage(10 * unit + u32::from(i), i < f), Unit(unit), view(i + 1, free_chunks));
        }
        policy.check();
    }

    /// Frames of a category, the youngest first.
    fn order(policy: &Lottery, index: usize) -> Vec<u32> {
        let (mut out, mut next) = (Vec::new(), policy.categories[index].list.head);
        while next != NIL {
            out.push(next);
            next = policy.frames[next as usize].links.next;
        }
        out
    }

    fn weight_of(n: usize, f: usize, free_chunks: u32, extra_bins: bool) -> u64 {
        WEIGHTS[category(n, f, free_chunks * CHUNK, extra_bins)]
    }

    #[test]
    fn c2_the_18_weights_as_printed() {
        let columns = |n, f, chunks: &[u32]| chunks.iter().map(|c| weight_of(n, f, *c, false)).collect::<Vec<_>>();
        assert_eq!(columns(1, 0, &[8, 16, 24, 32]), [2500, 2188, 1875, 1563]);
        assert_eq!(columns(1, 1, &[8, 16, 24, 32]), [10_000, 8750, 7500, 6250]);
        assert_eq!(columns(2, 0, &[16, 32]), [625, 469]);
        assert_eq!(columns(2, 1, &[16, 32]), [1000, 750]);
        assert_eq!(columns(2, 2, &[16, 32]), [2500, 1875]);
        assert_eq!([0, 1, 2, 3].map(|f| weight_of(3, f, 20, false)), [278, 370, 556, 1111]);
        // The example in the paper: one page of a file and one anonymous page, 30 % free.
        assert_eq!(WEIGHTS[category(2, 1, FRAME_BYTES * 3 / 10, false)], 750);
    }

    #[test]
    fn c1_eighteen_categories_or_all() {
        for (extra_bins, count) in [(false, 18), (true, CATEGORIES)] {
            let mut seen = std::collections::BTreeSet::new();
            for n in 1..=3 {
                for f in 0..=n {
                    seen.extend((0..=64).map(|chunks| category(n, f, chunks * CHUNK, extra_bins)));
                }
            }
            assert_eq!(seen.len(), count);
        }
    }

    #[test]
    fn c1_bounds_of_the_columns_are_inclusive() {
        // The numbers of free chunks at which each row changes its category, for each f.
        let bounds = |n, f, extra_bins| {
            let of = |chunks: u32| category(n, f, chunks * CHUNK, extra_bins);
            (1..=64).filter(|chunks| of(*chunks) != of(*chunks - 1)).collect::<Vec<_>>()
        };
        for f in 0..=3 {
            assert_eq!(bounds(3, f, false), []);
            assert_eq!(bounds(3, f, true), []);
        }
        for f in 0..=2 {
            // 16 chunks are 25 %, 32 are 50 %.
            assert_eq!(bounds(2, f, false), [17]);
            assert_eq!(bounds(2, f, true), [17, 33, 49]);
        }
        for f in 0..=1 {
            assert_eq!(bounds(1, f, false), [9, 17, 25]);
            assert_eq!(bounds(1, f, true), [9, 17, 25, 33, 41, 49, 57]);
        }
        // Exact to the byte, not only in whole chunks.
        assert_ne!(category(1, 0, 512, false), category(1, 0, 513, false));
        assert_eq!(category(1, 0, 449, false), category(1, 0, 512, false));
    }

    /// 5.1: more than half of a frame free.
    #[test]
    fn c1_more_than_half_free() {
        for chunks in [33, 50, 63] {
            assert_eq!([weight_of(1, 0, chunks, false), weight_of(1, 1, chunks, false)], [1563, 6250]);
            assert_eq!([0, 1, 2].map(|f| weight_of(2, f, chunks, false)), [469, 750, 1875]);
        }
        let extra = |n, f, chunks: &[u32]| chunks.iter().map(|c| weight_of(n, f, *c, true)).collect::<Vec<_>>();
        assert_eq!(extra(1, 0, &[32, 40, 48, 56, 64]), [1563, 1250, 938, 625, 313]);
        assert_eq!(extra(1, 1, &[32, 40, 48, 56, 64]), [6250, 5000, 3750, 2500, 1250]);
        assert_eq!(extra(2, 0, &[32, 48, 64]), [469, 313, 156]);
        assert_eq!(extra(2, 1, &[32, 48, 64]), [750, 500, 250]);
        assert_eq!(extra(2, 2, &[32, 48, 64]), [1875, 1250, 625]);
    }

    #[test]
    fn c2_likelier_with_less_free_with_fewer_zpages_and_with_more_of_files() {
        for extra_bins in [false, true] {
            for (n, chunks) in (1..=3).flat_map(|n| (0..=64).map(move |chunks| (n, chunks))) {
                for f in 0..=n {
                    let own = weight_of(n, f, chunks, extra_bins);
                    assert!(chunks == 0 || own <= weight_of(n, f, chunks - 1, extra_bins));
                    assert!(f == 0 || own > weight_of(n, f - 1, chunks, extra_bins));
                    // Compared with one more zpage, of either kind. The extra categories of two
                    // zpages go below those of three.
                    if n < 3 && (!extra_bins || chunks <= 32) {
                        assert!(own > weight_of(n + 1, f, chunks, extra_bins));
                        assert!(own > weight_of(n + 1, f + 1, chunks, extra_bins));
                    }
                }
            }
        }
        assert!(weight_of(1, 0, 0, false) > weight_of(1, 0, 20, false));
    }

    /// C3: the shares of 100 000 draws match the tickets.
    #[test]
    fn c3_the_draw_is_fair() {
        let mut policy = lottery(false);
        let mut unit = 0;
        for (n, f, chunks, frames) in [(1, 0, 0, 7), (1, 1, 30, 2), (2, 1, 20, 11), (3, 0, 4, 40), (3, 3, 9, 5)] {
            for _ in 0..frames {
                fill(&mut policy, unit, n, f, chunks);
                unit += 1;
            }
        }
        // 7 * 2500 + 2 * 6250 + 11 * 750 + 40 * 278 + 5 * 1111.
        assert_eq!(policy.tickets, 17_500 + 12_500 + 8250 + 11_120 + 5555);
        let (draws, mut drawn) = (100_000, [0u32; CATEGORIES]);
        (0..draws).for_each(|_| drawn[policy.draw()] += 1);
        let mut chi_square = 0.0;
        for (index, category) in policy.categories.iter().enumerate() {
            let expected = f64::from(draws) * category.tickets as f64 / policy.tickets as f64;
            if category.tickets == 0 {
                assert_eq!(drawn[index], 0, "category {index} is empty");
            } else {
                chi_square += (f64::from(drawn[index]) - expected).powi(2) / expected;
            }
        }
        // Four degrees of freedom: one seed in a thousand would exceed 18.5.
        assert!(chi_square < 18.5, "{chi_square}");
    }

    #[test]
    fn c3_the_ends_of_the_range() {
        let mut random = Random(3);
        let mut seen = [0; 5];
        (0..1000).for_each(|_| seen[random.below(5) as usize] += 1);
        assert!(seen.iter().all(|times| (150..250).contains(times)), "{seen:?}");
        assert!((0..100).all(|_| random.below(1) == 0));
    }

    #[test]
    fn c3_the_tail_is_the_victim_and_the_seed_decides_which_list() {
        let victims = |seed| {
            let mut policy = Lottery::new(&PolicyParams { seed, ..PolicyParams::default() });
            (0..5).for_each(|unit| fill(&mut policy, unit, 1, 0, 0));
            (5..10).for_each(|unit| fill(&mut policy, unit, 1, 1, 0));
            let mut out = Vec::new();
            (0..11).for_each(|_| policy.victims(&mut out));
            policy.check();
            out.iter().map(|unit| unit.0).collect::<Vec<_>>()
        };
        // In both lists each frame went to the head in turn, so each list gives its oldest frame,
        // which has the lowest number.
        for seed in 1..20 {
            let out = victims(seed);
            assert_eq!(out.len(), 10, "all, and each once");
            assert!(
                out.iter().filter(|unit| **unit < 5).is_sorted() && out.iter().filter(|unit| **unit >= 5).is_sorted()
            );
            assert_eq!(out, victims(seed));
        }
        assert!((2..20).any(|seed| victims(seed) != victims(1)));
        // Four times the weight: the first victim is usually a frame of file pages.
        let files = (0..1000).filter(|seed| victims(*seed)[0] >= 5).count();
        assert!((760..840).contains(&files), "{files} of 1000");
    }

    #[test]
    fn c4_c5_stamps_and_their_sums() {
        let mut policy = lottery(false);
        fill(&mut policy, 0, 2, 0, 10);
        fill(&mut policy, 1, 3, 0, 10);
        // Stamps 0 and 1; 2, 3 and 4: the counter is read before it is incremented.
        assert_eq!((policy.frames[0].stamps, policy.frames[1].stamps, policy.clock), (1, 9, 5));
        policy.left(zpage(11, false), Unit(1), view(2, 30));
        assert_eq!(policy.frames[1].stamps, 6);
        // The handle is used again, with the next stamp.
        policy.stored(zpage(11, false), Unit(0), view(3, 5));
        assert_eq!((policy.frames[0].stamps, policy.clock), (6, 6));
        policy.left(zpage(0, false), Unit(0), view(2, 9));
        policy.left(zpage(1, false), Unit(0), view(1, 20));
        assert_eq!(policy.frames[0].stamps, 5);
        policy.check();
    }

    #[test]
    fn c6_each_change_moves_the_frame_to_the_list_of_its_state() {
        let mut policy = lottery(false);
        let (unit, mut last) = (Unit(4), None);
        let mut is_in = |policy: &Lottery, n: usize, f: usize, chunks: u32| {
            policy.check();
            let index = category(n, f, chunks * CHUNK, false);
            assert_eq!(order(policy, index), [4]);
            assert_eq!(policy.tickets, WEIGHTS[index]);
            assert_ne!(last.replace(index), Some(index), "the number of zpages has changed, so the category has");
        };
        policy.stored(zpage(0, false), unit, view(1, 30));
        is_in(&policy, 1, 0, 30);
        policy.stored(zpage(1, true), unit, view(2, 12));
        is_in(&policy, 2, 1, 12);
        policy.stored(zpage(2, true), unit, view(3, 0));
        is_in(&policy, 3, 2, 0);
        policy.left(zpage(0, false), unit, view(2, 34));
        is_in(&policy, 2, 2, 34);
        policy.left(zpage(2, true), unit, view(1, 46));
        is_in(&policy, 1, 1, 46);
        policy.left(zpage(1, true), unit, view(0, 64));
        policy.check();
        assert_eq!((policy.tickets, policy.metadata_bytes() < 4096), (0, true));
        let mut out = Vec::new();
        policy.victims(&mut out);
        assert!(out.is_empty());
    }

    #[test]
    fn c7_younger_than_the_mean_to_the_head() {
        let mut policy = lottery(false);
        let lone = category(1, 0, 0, false);
        // Frame 9 has stamps 0 and 2, frame 8 has 1 and 3; then frames 0, 1 and 2 have one stamp
        // each: 4, 5 and 6.
        for (i, unit) in [(0, 9), (1, 8), (2, 9), (3, 8)] {
            policy.stored(zpage(100 + i, false), Unit(unit), view(1 + (i / 2) as u16, 0));
        }
        (0..3).for_each(|unit| fill(&mut policy, unit, 1, 0, 0));
        // Into the empty list; 5 > 4; 6 > 4.5.
        assert_eq!(order(&policy, lone), [2, 1, 0]);
        // Frame 9 keeps stamp 0, below the mean of 4, 5 and 6; frame 8 keeps stamp 3, below the
        // mean of 4, 5, 6 and 0.
        policy.left(zpage(102, false), Unit(9), view(1, 0));
        assert_eq!(order(&policy, lone), [2, 1, 0, 9]);
        policy.left(zpage(101, false), Unit(8), view(1, 0));
        assert_eq!(order(&policy, lone), [2, 1, 0, 9, 8]);
        policy.check();
        let mut out = Vec::new();
        (0..3).for_each(|_| policy.victims(&mut out));
        assert_eq!(out, [8, 9, 0].map(Unit));
    }

    #[test]
    fn c7_equal_to_the_mean_to_the_tail() {
        let mut policy = lottery(false);
        // Frame 1 has stamps 1 and 3; frames 0 and 2 have stamps equal to their numbers.
        for (handle, unit, zpages) in [(0, 0, 1), (1, 1, 1), (2, 2, 1), (3, 1, 2)] {
            policy.stored(zpage(handle, false), Unit(unit), view(zpages, 0));
        }
        let lone = category(1, 0, 0, false);
        assert_eq!(order(&policy, lone), [2, 0]);
        policy.left(zpage(3, false), Unit(1), view(1, 0));
        assert_eq!(order(&policy, lone), [2, 0, 1]);
        // A returned frame is inserted like any other: 1 against 0 and 2, 2 against 0 and 1.
        let mut out = Vec::new();
        (0..3).for_each(|_| policy.victims(&mut out));
        assert_eq!(out, [1, 0, 2].map(Unit));
        [0, 1, 2].iter().for_each(|unit| policy.returned(Unit(*unit), view(1, 0)));
        assert_eq!(order(&policy, lone), [2, 1, 0]);
        policy.check();
    }

    /// C8: the owner empties taken frames. Their sums stay right meanwhile, and no draw finds them.
    #[test]
    fn c8_taken_frames() {
        let mut policy = lottery(false);
        fill(&mut policy, 0, 3, 1, 0);
        fill(&mut policy, 1, 1, 0, 0);
        let mut out = Vec::new();
        (0..2).for_each(|_| policy.victims(&mut out));
        policy.victims(&mut out);
        assert_eq!(out.len(), 2);
        assert_eq!(policy.tickets, 0);
        policy.left(zpage(0, true), Unit(0), view(2, 20));
        policy.left(zpage(10, false), Unit(1), view(0, 64));
        policy.check();
        // The zpages with stamps 1 and 2 are left in frame 0.
        policy.returned(Unit(0), view(2, 20));
        assert_eq!((policy.frames[0].stamps, policy.tickets), (3, 469));
        // Frame 1 was forgotten and starts anew.
        fill(&mut policy, 1, 1, 1, 0);
        assert_eq!(policy.tickets, 469 + 10_000);
    }

    #[test]
    #[should_panic(expected = "is being evicted")]
    fn a_taken_frame_takes_no_zpage() {
        let mut policy = lottery(false);
        fill(&mut policy, 0, 1, 0, 0);
        policy.victims(&mut Vec::new());
        policy.stored(zpage(1, false), Unit(0), view(2, 0));
    }

    #[test]
    #[should_panic(expected = "was not taken")]
    fn only_taken_frames_return() {
        let mut policy = lottery(false);
        fill(&mut policy, 0, 1, 0, 0);
        policy.returned(Unit(0), view(1, 0));
    }
}
