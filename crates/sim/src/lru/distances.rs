//! Stack distances: at each touch, the number of pages touched since the last touch of the page,
//! itself included. A memory of that many pages or more hits.
//!
//! The last touch of each page is a mark on an axis of time; a distance is a number of marks (B. T.
//! Bennett and V. J. Kruskal, "LRU stack processing", IBM Journal of Research and Development
//! 19(4), 1975; F. Olken, "Efficient methods for calculating the success function of fixed space
//! replacement policies", LBL-12370, 1981). Marks are bits, counted by blocks of 512 in a Fenwick
//! tree. When the axis is full the marks are compacted at its beginning. So its length is a few
//! times the number of pages, whatever the number of touches.
//!
//! A freed page leaves its mark as a hole: the memories that held the page have a free place. The
//! next touched page that lies deeper than the topmost hole, or is new, fills that hole. Its own
//! old place, if any, becomes a hole, because memories that held the page evicted nothing else.

use super::{rename, Hits, Pages, Table};
use crate::workload::Event;
use std::collections::BinaryHeap;

/// Times of a block: 8 words.
const BLOCK: usize = 512;
/// Shortest axis, times.
const AXIS_MIN: usize = 1 << 14;
/// Length of a compacted axis for each mark.
const AXIS_PER_MARK: usize = 4;

/// Marks on the axis of time.
#[derive(Debug)]
struct Marks {
    words: Vec<u64>,
    /// Fenwick tree over the number of marks in each block.
    tree: Vec<u32>,
    count: u32,
}

impl Marks {
    fn new(times: usize) -> Marks {
        let blocks = times.div_ceil(BLOCK);
        Marks { words: vec![0; blocks * (BLOCK / 64)], tree: vec![0; blocks + 1], count: 0 }
    }

    fn times(&self) -> usize {
        self.words.len() * 64
    }

    fn add(&mut self, time: u32, more: u32) {
        let mut at = time as usize / BLOCK + 1;
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add(more);
            at += at & at.wrapping_neg();
        }
    }

    fn set(&mut self, time: u32) {
        self.words[time as usize / 64] |= 1 << (time % 64);
        self.count += 1;
        self.add(time, 1);
    }

    /// Moves a mark to a later time.
    fn postpone(&mut self, from: u32, to: u32) {
        self.words[from as usize / 64] &= !(1 << (from % 64));
        self.words[to as usize / 64] |= 1 << (to % 64);
        if from as usize / BLOCK != to as usize / BLOCK {
            self.add(from, u32::MAX);
            self.add(to, 1);
        }
    }

    /// Number of marks before a time.
    fn before(&self, time: u32) -> u32 {
        let (mut block, word) = (time as usize / BLOCK, time as usize / 64);
        let first = block * (BLOCK / 64);
        let mut count: u32 = self.words[first..word].iter().map(|word| word.count_ones()).sum();
        count += (self.words[word] & ((1 << (time % 64)) - 1)).count_ones();
        while block > 0 {
            count += self.tree[block];
            block &= block - 1;
        }
        count
    }
}

/// Plain LRU of all sizes at once. Takes memory for the pages that the workload has at a time, and
/// for their distances.
#[derive(Debug)]
pub struct Distances {
    /// Time of each page's last touch, from 1 on.
    table: Table,
    marks: Marks,
    /// Times of the marks without a page.
    holes: BinaryHeap<u32>,
    now: u32,
    /// Touches by distance - 1.
    histogram: Vec<u64>,
    touches: u64,
    cold: u64,
}

impl Default for Distances {
    fn default() -> Distances {
        Distances::new()
    }
}

impl Distances {
    /// No touches.
    pub fn new() -> Distances {
        Distances {
            table: Table::default(),
            marks: Marks::new(AXIS_MIN),
            holes: BinaryHeap::new(),
            now: 1,
            histogram: Vec::new(),
            touches: 0,
            cold: 0,
        }
    }

    /// Handles an event.
    pub fn event(&mut self, event: &Event) {
        self.see(event);
    }

    /// Hits and misses by size, so far.
    pub fn curve(&self) -> Curve {
        let sum = |sum: &mut u64, &touches: &u64| {
            *sum += touches;
            Some(*sum)
        };
        Curve { hits: self.histogram.iter().scan(0, sum).collect(), touches: self.touches, cold: self.cold }
    }

    /// Touches at each distance, from 1 on; cold touches have none.
    pub fn histogram(&self) -> &[u64] {
        &self.histogram
    }

    /// Compacts all marks at the beginning of a new axis.
    fn compact(&mut self) {
        let count = self.marks.count as usize;
        let old = std::mem::replace(&mut self.marks, Marks::new((count * AXIS_PER_MARK).max(AXIS_MIN)));
        let mut sum = 1;
        let firsts = old.words.iter().map(|word| {
            let first = sum;
            sum += word.count_ones();
            first
        });
        let firsts: Vec<u32> = firsts.collect();
        let moved = |time: u32| {
            let word = time as usize / 64;
            firsts[word] + (old.words[word] & ((1 << (time % 64)) - 1)).count_ones()
        };
        self.table.each(|time| *time = moved(*time));
        // The order of the holes is the same.
        let holes = std::mem::take(&mut self.holes).into_vec();
        self.holes = holes.into_iter().map(moved).collect();
        (1..=count as u32).for_each(|time| self.marks.set(time));
        self.now = count as u32 + 1;
    }

    fn note(&mut self, distance: u32) {
        let at = distance as usize - 1;
        if self.histogram.len() <= at {
            self.histogram.resize(at + 1, 0);
        }
        self.histogram[at] += 1;
    }
}

impl Pages for Distances {
    fn touch(&mut self, proc: u32, page: u64) {
        if self.now as usize >= self.marks.times() {
            self.compact();
        }
        self.touches += 1;
        let last = self.table.number(proc, page);
        let time = *last;
        if time != 0 && time + 1 == self.now {
            // The same page again is the topmost one.
            self.note(1);
            return;
        }
        let now = self.now;
        *last = now;
        self.now += 1;
        let hole = self.holes.peek().copied().filter(|&hole| hole > time);
        if time == 0 {
            self.cold += 1;
        } else {
            let distance = self.marks.count - self.marks.before(time);
            self.note(distance);
        }
        match hole {
            Some(hole) => {
                self.holes.pop();
                self.marks.postpone(hole, now);
                if time != 0 {
                    self.holes.push(time);
                }
            }
            None if time == 0 => self.marks.set(now),
            None => self.marks.postpone(time, now),
        }
    }

    fn free(&mut self, proc: u32, first: u64, pages: u64) {
        let holes = &mut self.holes;
        self.table.take(proc, first, pages, |_, time| holes.push(time));
    }

    fn end(&mut self, proc: u32) {
        let holes = &mut self.holes;
        self.table.take_process(proc, |time| holes.push(time));
    }

    fn move_to(&mut self, proc: u32, first: u64, pages: u64, to: u64) {
        let holes = &mut self.holes;
        rename(&mut self.table, proc, first, pages, to, |_, time| holes.push(time));
    }
}

/// Hits of plain LRU at every size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Curve {
    /// By size in pages - 1; larger memories have as many hits as the last.
    hits: Vec<u64>,
    touches: u64,
    cold: u64,
}

impl Curve {
    /// Hits with `size` pages of memory.
    pub fn hits(&self, size: u64) -> Hits {
        let at = size.min(self.hits.len() as u64) as usize;
        let hits = at.checked_sub(1).map_or(0, |at| self.hits[at]);
        Hits { touches: self.touches, hits, cold: self.cold }
    }

    /// The smallest memory in pages in which only cold touches miss.
    pub fn enough(&self) -> u64 {
        self.hits.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Access;
    use memfit_codec::generate::Rng;

    #[test]
    fn the_axis_does_not_grow_with_the_touches() {
        let mut distances = Distances::new();
        let mut rng = Rng::new(1);
        for _ in 0..300_000 {
            distances.event(&Event::Touches { proc: 0, page: rng.below(3000), how: Access::Write });
            if rng.below(100) == 0 {
                distances.event(&Event::Frees { proc: 0, first: rng.below(3000), pages: 10 });
            }
        }
        assert!(distances.marks.times() <= AXIS_MIN, "{} times", distances.marks.times());
        assert!(distances.marks.count <= 3000);
        assert!(distances.holes.len() <= 3000);
        assert!(distances.histogram().len() <= 3000);
        let sum: u64 = distances.histogram().iter().sum();
        assert_eq!(sum + distances.cold, 300_000);
    }
}
