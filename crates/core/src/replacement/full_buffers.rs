//! Full buffers leave together, in the manner of Cervera, Cortes and Becerra, "Improving
//! Application Performance through Swap Compression" (USENIX/FREENIX 1999). Rules have the numbers
//! of our notes on it, whose open points are 5.1 to 5.15.
//!
//! A buffer is *full* if it has less free space than the mean compressed length of the last 100
//! pages (rule 7). When the pool needs room, all full buffers leave at once, in one contiguous
//! write (rule 8); if none is full, the buffer with most data leaves (rule 9). Full buffers leave
//! early when they are a given part of all buffers (rule 10), but not while others are being
//! written (rule 11). The caller decides who waits for the write (rule 12).
//!
//! Each page changes the mean, and with it the set of full buffers. Free space is counted in units
//! of 8 bytes, as in the pool, so there are 513 amounts of it. Each amount has a list of the
//! buffers with that much; the full ones are those in the lists below a bound. Their number is
//! updated when the bound moves, by the lengths of the lists that it passes. After the first 100
//! pages it moves by at most 6 lists per page.
//!
//! Choices where the paper says nothing: before the first page the mean is 2048 bytes (5.9). Full
//! buffers are named in order of age. Of buffers with equally much data, the one that has had it
//! longest leaves. The part that must be full is relative to the frames that the pool may have at
//! its creation, rounded up and at least one (5.11).
//!
//! Metadata: 16 bytes per frame up to the highest used one, and 6 KiB.

use super::{Policy, PolicyParams, ReplacementEntry, ReplacementMode, Zpage};
use crate::blocks::BLOCK_UNIT_BYTES;
use crate::grow::reserve_tight;
use crate::list::{Linked, Links, List};
use crate::pool::{Leaving, Unit, UnitView, FRAME_BYTES};
use alloc::{boxed::Box, vec::Vec};

/// Entry of this policy in [`super::REPLACEMENTS`].
pub(super) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "full-buffers",
    help: "all buffers with less room than the last 100 pages took on average, together; else the fullest one",
    fits: |pool| pool.leaving == Leaving::Units,
    make: |params| ReplacementMode::Policy(Box::new(FullBuffers::new(params))),
};

/// Pages in the mean.
const PAGES: usize = 100;

/// The mean before the first page, bytes.
const AVERAGE_FIRST: u32 = 2048;

/// Amounts of free space: `0..=FRAME_BYTES` in units of 8 bytes.
const AMOUNTS: usize = (FRAME_BYTES / BLOCK_UNIT_BYTES) as usize + 1;

/// Mean length of the last pages.
#[derive(Debug)]
struct Average {
    lens: [u16; PAGES],
    /// Number of valid entries, and index of the next one to write.
    pages: usize,
    next: usize,
    sum: u32,
}

impl Average {
    fn new() -> Self {
        Average { lens: [0; PAGES], pages: 0, next: 0, sum: 0 }
    }

    fn add(&mut self, len: u32) {
        self.sum = self.sum + len - u32::from(self.lens[self.next]);
        self.lens[self.next] = len as u16;
        self.next = (self.next + 1) % PAGES;
        self.pages = (self.pages + 1).min(PAGES);
    }

    /// The smallest amount of free space that is not less than the mean; exact, without rounding of
    /// the mean.
    fn bound(&self) -> usize {
        let (sum, pages) = if self.pages == 0 { (AVERAGE_FIRST, 1) } else { (self.sum, self.pages as u32) };
        sum.div_ceil(pages * BLOCK_UNIT_BYTES) as usize
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    Waiting,
    Taken,
}

#[derive(Debug, Clone, Copy)]
struct Buffer {
    /// Neighbours in the list of buffers with as much free space.
    links: Links,
    /// Number of buffers that became known earlier, modulo 2^32.
    born: u32,
    /// Free space, in units of 8 bytes.
    free: u16,
    state: State,
}

impl Buffer {
    const UNKNOWN: Buffer = Buffer { links: Links::UNLINKED, born: 0, free: 0, state: State::Unknown };
}

/// Buffers by unit number.
#[derive(Debug)]
struct Table(Vec<Buffer>);

impl Linked for Table {
    fn links(&mut self, i: u32) -> &mut Links {
        &mut self.0[i as usize].links
    }
}

/// The policy.
struct FullBuffers {
    buffers: Table,
    /// Waiting buffers by free space; in each list the one that has had it longest is first.
    lists: Box<[List; AMOUNTS]>,
    average: Average,
    /// Waiting buffers with less free space than this are full.
    bound: usize,
    full: u32,
    waiting: u32,
    taken: u32,
    born: u32,
    /// Number of full buffers at which they leave early.
    due_at: u32,
}

impl FullBuffers {
    fn new(params: &PolicyParams) -> Self {
        let part = u64::from(params.threshold_percent) * u64::from(params.limit_frames);
        let average = Average::new();
        FullBuffers {
            buffers: Table(Vec::new()),
            lists: Box::new([List::EMPTY; AMOUNTS]),
            bound: average.bound(),
            average,
            full: 0,
            waiting: 0,
            taken: 0,
            born: 0,
            due_at: u32::try_from(part.div_ceil(100)).unwrap_or(u32::MAX).max(1),
        }
    }

    fn get(&mut self, unit: Unit) -> &mut Buffer {
        &mut self.buffers.0[unit.0 as usize]
    }

    fn state(&self, unit: Unit) -> State {
        self.buffers.0.get(unit.0 as usize).map_or(State::Unknown, |buffer| buffer.state)
    }

    /// Puts a buffer on the list of its free space.
    fn wait(&mut self, unit: Unit, view: UnitView) {
        let free = amount(view);
        let buffer = self.get(unit);
        (buffer.state, buffer.free) = (State::Waiting, free as u16);
        self.lists[free].push_back(&mut self.buffers, unit.0);
        self.waiting += 1;
        self.full += u32::from(free < self.bound);
    }

    /// Takes a waiting buffer off its list.
    fn leave(&mut self, unit: Unit) {
        let free = usize::from(self.get(unit).free);
        self.lists[free].remove(&mut self.buffers, unit.0);
        self.waiting -= 1;
        self.full -= u32::from(free < self.bound);
    }

    fn take(&mut self, unit: Unit) {
        self.leave(unit);
        self.get(unit).state = State::Taken;
        self.taken += 1;
    }

    fn take_full(&mut self, out: &mut Vec<Unit>) {
        let start = out.len();
        for free in 0..self.bound {
            while self.lists[free].len > 0 {
                let unit = Unit(self.lists[free].head);
                self.take(unit);
                out.push(unit);
            }
        }
        // The difference to `self.born` is right even after `born` has wrapped.
        out[start..]
            .sort_unstable_by_key(|unit| u32::MAX - self.born.wrapping_sub(self.buffers.0[unit.0 as usize].born));
    }

    fn forget(&mut self, unit: Unit) {
        match self.state(unit) {
            State::Waiting => self.leave(unit),
            State::Taken => self.taken -= 1,
            State::Unknown => panic!("{unit:?} is not known"),
        }
        *self.get(unit) = Buffer::UNKNOWN;
        let table = &mut self.buffers.0;
        while table.last().is_some_and(|last| last.state == State::Unknown) {
            table.pop();
        }
        if table.capacity() > 2 * table.len() + 64 {
            table.shrink_to(table.len() + table.len() / 8);
        }
    }
}

/// Free space as an index of lists.
fn amount(view: UnitView) -> usize {
    ((view.free_bytes / BLOCK_UNIT_BYTES) as usize).min(AMOUNTS - 1)
}

impl Policy for FullBuffers {
    fn stored(&mut self, zpage: Zpage, unit: Unit, view: UnitView) {
        self.average.add(zpage.len);
        let bound = self.average.bound();
        let passed = |from: usize, to: usize| self.lists[from..to.max(from)].iter().map(|list| list.len).sum::<u32>();
        self.full = self.full + passed(self.bound, bound) - passed(bound, self.bound);
        self.bound = bound;
        match self.state(unit) {
            State::Unknown => {
                let (table, end) = (&mut self.buffers.0, unit.0 as usize + 1);
                if end > table.len() {
                    let extra = end - table.len();
                    reserve_tight(table, extra);
                    table.resize(end, Buffer::UNKNOWN);
                }
                table[unit.0 as usize].born = self.born;
                self.born = self.born.wrapping_add(1);
            }
            State::Waiting => self.leave(unit),
            State::Taken => panic!("{unit:?} is being evicted"),
        }
        self.wait(unit, view);
    }

    fn left(&mut self, _zpage: Zpage, unit: Unit, view: UnitView) {
        if view.zpages == 0 {
            self.forget(unit);
        } else if self.state(unit) == State::Waiting && usize::from(self.get(unit).free) != amount(view) {
            self.leave(unit);
            self.wait(unit, view);
        }
    }

    fn victims(&mut self, out: &mut Vec<Unit>) {
        if self.full > 0 {
            return self.take_full(out);
        }
        if let Some(most_data) = self.lists.iter().find(|list| list.len > 0) {
            let unit = Unit(most_data.head);
            self.take(unit);
            out.push(unit);
        }
    }

    fn due(&mut self, out: &mut Vec<Unit>) {
        if self.taken == 0 && self.full >= self.due_at {
            self.take_full(out);
        }
    }

    fn returned(&mut self, unit: Unit, view: UnitView) {
        assert_eq!(self.state(unit), State::Taken, "{unit:?} was not taken");
        self.taken -= 1;
        self.wait(unit, view);
    }

    fn metadata_bytes(&self) -> u64 {
        let table = self.buffers.0.capacity() * size_of::<Buffer>();
        (table + size_of::<[List; AMOUNTS]>() + size_of::<Self>()) as u64
    }

    fn check(&self) {
        let sum: u32 = self.average.lens.iter().map(|len| u32::from(*len)).sum();
        assert_eq!((sum, self.bound), (self.average.sum, self.average.bound()));
        let count = |state| self.buffers.0.iter().filter(|buffer| buffer.state == state).count() as u32;
        assert_eq!((count(State::Waiting), count(State::Taken)), (self.waiting, self.taken));
        assert!(self.buffers.0.last().is_none_or(|last| last.state != State::Unknown));
        let (mut full, mut waiting) = (0, 0);
        for (free, list) in self.lists.iter().enumerate() {
            let (mut unit, mut len) = (list.head, 0);
            while len < list.len {
                let buffer = self.buffers.0[unit as usize];
                assert_eq!((buffer.state, usize::from(buffer.free)), (State::Waiting, free), "unit {unit}");
                (unit, len) = (buffer.links.next, len + 1);
            }
            assert_eq!(unit, Links::UNLINKED.next, "the list of {free} ends");
            waiting += len;
            full += if free < self.bound { len } else { 0 };
        }
        assert_eq!((full, waiting), (self.full, self.waiting));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{Handle, Pool, PoolParams, Span};

    fn policy(limit_frames: u32, threshold_percent: u32) -> FullBuffers {
        FullBuffers::new(&PolicyParams { limit_frames, threshold_percent, ..PolicyParams::default() })
    }

    fn view(zpages: u16, free_bytes: u32) -> UnitView {
        UnitView { class: 0, zpages, capacity: 512, frames: 1, free_bytes }
    }

    fn zpage(len: u32) -> Zpage {
        Zpage { handle: Handle::from_raw(0), len, file: false }
    }

    /// Stores a zpage; afterwards the buffer has `free_bytes` of room.
    fn store(policy: &mut FullBuffers, len: u32, unit: u32, free_bytes: u32) {
        policy.stored(zpage(len), Unit(unit), view(1, free_bytes));
        policy.check();
    }

    fn leave(policy: &mut FullBuffers, unit: u32, zpages: u16, free_bytes: u32) {
        policy.left(zpage(1), Unit(unit), view(zpages, free_bytes));
        policy.check();
    }

    fn victims(policy: &mut FullBuffers) -> Vec<u32> {
        let mut out = Vec::new();
        policy.victims(&mut out);
        policy.check();
        out.iter().map(|unit| unit.0).collect()
    }

    fn due(policy: &mut FullBuffers) -> Vec<u32> {
        let mut out = Vec::new();
        policy.due(&mut out);
        policy.check();
        out.iter().map(|unit| unit.0).collect()
    }

    #[test]
    fn rule_7_and_5_9_average_of_the_last_hundred() {
        let mut average = Average::new();
        assert_eq!(average.bound(), 2048 / 8);
        average.add(1000);
        assert_eq!(average.bound(), 125);
        // Of 1000 and 1001: 1000 free bytes are less than 1000.5.
        average.add(1001);
        assert_eq!(average.bound(), 126);
        (0..98).for_each(|_| average.add(1000));
        assert_eq!(average.bound(), 126);
        // The 1000 and then the 1001 drop out of the last hundred.
        average.add(1000);
        assert_eq!(average.bound(), 126);
        average.add(1000);
        assert_eq!(average.bound(), 125);
        average.add(4096);
        assert_eq!(average.bound(), (99 * 1000 + 4096u32).div_ceil(800) as usize);
    }

    /// A buffer becomes full without any event of its own.
    #[test]
    fn rule_7_full_is_less_room_than_the_average() {
        let mut policy = policy(100, 100);
        store(&mut policy, 1000, 0, 1000);
        store(&mut policy, 1000, 1, 992);
        assert_eq!(policy.full, 1);
        store(&mut policy, 1004, 2, 3000);
        assert_eq!(policy.full, 2, "1000 is less than 1001.3");
        (0..50).for_each(|_| store(&mut policy, 100, 2, 3000));
        assert_eq!(policy.full, 0);
        (0..50).for_each(|_| store(&mut policy, 4000, 2, 3000));
        assert_eq!(policy.full, 2);
        (0..48).for_each(|_| store(&mut policy, 4000, 2, 3000));
        // Now 98 pages of 4000 bytes, and two of 100.
        assert_eq!(policy.full, 3);
    }

    #[test]
    fn rule_8_all_full_buffers_oldest_first() {
        let mut policy = policy(100, 100);
        for unit in [5, 2, 7, 0] {
            store(&mut policy, 1000, unit, 3096);
        }
        for (unit, free_bytes) in [(7, 8), (0, 1000), (2, 900), (5, 96)] {
            store(&mut policy, 1000, unit, free_bytes);
        }
        assert_eq!(victims(&mut policy), [5, 2, 7]);
        // Taken buffers are not named again until they are returned, with their old age.
        store(&mut policy, 1000, 9, 0);
        policy.returned(Unit(2), view(2, 900));
        assert_eq!(victims(&mut policy), [2, 9]);
        assert_eq!(victims(&mut policy), [0]);
        assert_eq!(victims(&mut policy), []);
    }

    #[test]
    fn rule_9_the_one_with_most_data_if_none_is_full() {
        let mut policy = policy(100, 100);
        for (unit, free_bytes) in [(0, 3000), (1, 1504), (2, 1096), (3, 1096), (4, 1200)] {
            store(&mut policy, 1000, unit, free_bytes);
        }
        assert_eq!([victims(&mut policy), victims(&mut policy), victims(&mut policy)], [[2], [3], [4]]);
        // A returned buffer, and one that became empty.
        policy.returned(Unit(3), view(1, 1096));
        leave(&mut policy, 2, 0, 0);
        leave(&mut policy, 4, 1, 1200);
        assert_eq!([victims(&mut policy), victims(&mut policy), victims(&mut policy)], [[3], [1], [0]]);
        assert_eq!(victims(&mut policy), []);
    }

    #[test]
    fn rule_10_and_5_11_threshold_rounded_up_and_at_least_one() {
        for (limit, percent, due_at) in [(16, 50, 8), (16, 51, 9), (10, 1, 1), (150, 1, 2), (16, 0, 1), (0, 50, 1)] {
            let mut policy = policy(limit, percent);
            for unit in 1..due_at {
                store(&mut policy, 1000, unit, 96);
                assert_eq!(due(&mut policy), [], "{unit} of {limit}, {percent} percent");
            }
            store(&mut policy, 1000, due_at, 96);
            assert_eq!(due(&mut policy), (1..=due_at).collect::<Vec<_>>());
        }
        // As good as no limit.
        assert_eq!(policy(u32::MAX, 50).due_at, 1 << 31);
    }

    /// Only full buffers are due, although there is room; and all of them (5.12).
    #[test]
    fn rule_10_and_5_12_due_takes_all_full_ones() {
        let mut policy = policy(4, 50);
        store(&mut policy, 1000, 0, 1000);
        store(&mut policy, 1000, 1, 1000);
        store(&mut policy, 1000, 2, 1000);
        assert_eq!(due(&mut policy), []);
        // The mean makes all of them full at once.
        store(&mut policy, 1400, 3, 2696);
        assert_eq!(due(&mut policy), [0, 1, 2]);
        assert_eq!(due(&mut policy), []);
    }

    #[test]
    fn rule_11_no_second_cleaning_meanwhile() {
        let mut policy = policy(2, 50);
        store(&mut policy, 1000, 0, 96);
        assert_eq!(due(&mut policy), [0]);
        store(&mut policy, 1000, 1, 96);
        assert_eq!(due(&mut policy), []);
        leave(&mut policy, 0, 2, 96);
        assert_eq!(due(&mut policy), []);
        leave(&mut policy, 0, 0, 0);
        assert_eq!(due(&mut policy), [1]);
        // `victims` names full buffers nevertheless.
        store(&mut policy, 1000, 0, 96);
        assert_eq!(due(&mut policy), []);
        assert_eq!(victims(&mut policy), [0]);
    }

    /// The order of age survives a wrap of the counter of births.
    #[test]
    fn births_wrap() {
        let mut policy = policy(100, 100);
        policy.born = u32::MAX - 1;
        for unit in [3, 1, 2, 0] {
            store(&mut policy, 1000, unit, 96);
        }
        assert_eq!(victims(&mut policy), [3, 1, 2, 0]);
    }

    #[test]
    fn memory_follows_the_buffers() {
        let mut policy = policy(1 << 20, 100);
        let empty = policy.metadata_bytes();
        assert_eq!((size_of::<Buffer>(), empty < 7000), (16, true), "{empty} bytes");
        (0..100_000).for_each(|unit| policy.stored(zpage(1000), Unit(unit), view(1, 96)));
        assert!(policy.metadata_bytes() < 100_000 * 18 + empty);
        (0..100_000).for_each(|unit| policy.left(zpage(1000), Unit(unit), view(0, 0)));
        policy.check();
        assert!(policy.metadata_bytes() < empty + 2000);
    }

    #[test]
    #[should_panic(expected = "Unit(3) is not known")]
    fn unknown_units_do_not_leave() {
        leave(&mut policy(1, 1), 3, 0, 0);
    }

    /// Check of 2.5: 16 buffers and pages of 1000 bytes, 4 per buffer. With a threshold of one
    /// half, the first cleaning begins when the 8th buffer is full, and takes 8 buffers with 32
    /// pages. Meanwhile the next buffers are filled, and then the clean ones again.
    #[test]
    fn cleaning_with_the_pool() {
        let make = crate::pool::find("buffers").unwrap().make;
        let (mut pool, mut policy) = (make(&PoolParams::new(64, 16)), policy(16, 50));
        let (mut out, mut cleaned) = (Vec::new(), Vec::new());
        for page in 1..=80 {
            let handle = pool.place(1000).unwrap().handle;
            let unit = pool.unit(handle);
            policy.stored(Zpage { handle, len: 1000, file: false }, unit, pool.view(unit));
            policy.due(&mut out);
            policy.check();
            if !out.is_empty() {
                let zpages = clean(&mut *pool, &mut policy, &out);
                let units: Vec<u32> = out.drain(..).map(|unit| unit.0).collect();
                cleaned.push((page, units, zpages));
            }
        }
        let (low, high): (Vec<u32>, Vec<u32>) = ((0..8).collect(), (8..16).collect());
        assert_eq!(cleaned, [(32, low, 32), (64, high, 32)]);
        assert_eq!((pool.usage().frames, pool.usage().zpages), (16, 16));
        assert_eq!((0..16).filter(|&frame| pool.clean(Unit(frame))).count(), 12);
    }

    /// Evicts the chosen units; returns the number of zpages that left.
    fn clean(pool: &mut dyn Pool, policy: &mut FullBuffers, units: &[Unit]) -> usize {
        let mut count = 0;
        for &unit in units {
            pool.seal(unit, true);
            let mut zpages = Vec::new();
            pool.zpages(unit, &mut zpages);
            count += zpages.len();
            for handle in zpages {
                let len = pool.len(handle);
                assert_eq!(pool.remove(handle), Span::EMPTY);
                policy.left(Zpage { handle, len, file: false }, unit, pool.view(unit));
            }
        }
        policy.check();
        count
    }

    /// Random calls: the full buffers match a scan of all buffers.
    #[test]
    fn long_seeded_run() {
        let mut seed = 7u64;
        let mut below = |end: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((seed >> 33) % end) as u32
        };
        let mut policy = policy(80, 5);
        // By unit: age, zpages, free bytes, taken; the lengths of all pages.
        let mut units: Vec<Option<(u32, u16, u32, bool)>> = vec![None; 100];
        let (mut lens, mut by_average, mut by_data, mut early) = (Vec::new(), 0, 0, 0);
        for age in 0..60_000 {
            let unit = below(100);
            let known = units[unit as usize];
            match (below(12), known) {
                (_, Some((_, _, free, true))) if free % 4 == 0 => {
                    policy.returned(Unit(unit), view(1, free));
                    units[unit as usize].as_mut().unwrap().3 = false;
                }
                (0..7, None | Some((.., false))) => {
                    let (born, zpages, free, _) = known.unwrap_or((age, 0, 4096, false));
                    let len = (1 + below(1 + 2 * u64::from(age / 50 % 400 * 5).min(2047))).min(free);
                    if len > 0 {
                        let free = free - len.next_multiple_of(8);
                        policy.stored(zpage(len), Unit(unit), view(zpages + 1, free));
                        units[unit as usize] = Some((born, zpages + 1, free, false));
                        lens.push(len);
                    }
                }
                (7..11, Some((born, zpages, free, taken))) => {
                    policy.left(zpage(1), Unit(unit), view(zpages - 1, free));
                    units[unit as usize] = (zpages > 1).then_some((born, zpages - 1, free, taken));
                }
                _ => {}
            }
            policy.check();
            let last = &lens[lens.len().saturating_sub(100)..];
            let (sum, pages) = (last.iter().sum::<u32>(), last.len() as u32);
            let waiting = (0..).zip(&units).filter_map(|(unit, known)| (*known).map(|known| (unit, known)));
            let waiting: Vec<_> = waiting.filter(|(_, known)| !known.3).collect();
            let mut full: Vec<_> = waiting.iter().filter(|(_, known)| known.2 * pages < sum).collect();
            full.sort_unstable_by_key(|(_, known)| known.0);
            assert_eq!(policy.full as usize, full.len());
            let is_due = full.len() >= 4 && units.iter().flatten().all(|known| !known.3);
            let named = if below(200) == 0 { victims(&mut policy) } else { due(&mut policy) };
            let all: Vec<u32> = full.iter().map(|(unit, _)| *unit).collect();
            match named.as_slice() {
                [] => assert!(!is_due),
                [one] if full.is_empty() => {
                    by_data += 1;
                    let free = units[*one as usize].unwrap().2;
                    assert!(waiting.iter().all(|(_, known)| known.2 >= free));
                }
                named => {
                    (by_average, early) = (by_average + 1, early + u32::from(is_due));
                    assert_eq!(named, all);
                }
            }
            named.iter().for_each(|unit| units[*unit as usize].as_mut().unwrap().3 = true);
        }
        assert!(by_average > 100 && by_data > 10 && early > 20, "{by_average} {by_data} {early}");
    }
}
