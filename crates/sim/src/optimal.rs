//! The optimum, as a yardstick: the fewest misses that any choice of victims can have in a memory
//! of N pages. The page whose next touch is farthest leaves, so the whole workload must be known
//! (MIN: L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM
//! Systems Journal 5(2), 1966; proof: Mattson et al. 1970, see [`crate::lru`]).
//!
//! A miss brings one page. All else is as for plain LRU.

use crate::event_source::{each_event, EventSource, Position};
use crate::lru::{rename, Hits, Pages, Table};
use crate::replay::ReplayError;
use crate::workload::Event;
use std::collections::BinaryHeap;

/// In place of the next touch: there is none before the page is freed.
const NEVER: u32 = u32::MAX;
/// Invalid entries that the heap of victims may have beside as many as there are valid ones.
const HEAP_SPARE: usize = 1024;

/// The touches of a whole workload: 8 bytes each. A page that is touched several times without
/// another in between counts as one touch.
#[derive(Debug, Default)]
pub struct Touches {
    /// Number of each page that is not freed; pages that are never there at the same time can have
    /// the same number.
    table: Table,
    /// Pages so far, and numbers of pages that were freed.
    numbers: u32,
    unused: Vec<u32>,
    /// Touches and frees in order: see [`Op`].
    ops: Vec<Op>,
    last: Option<u32>,
    /// Touches of the page that was touched last: hits in any memory.
    repeated: u64,
}

/// Number of a page times 2, and 1 if it is freed, not touched.
#[derive(Debug, Clone, Copy)]
struct Op(u32);

impl Op {
    fn page(self) -> usize {
        (self.0 >> 1) as usize
    }

    fn frees(self) -> bool {
        self.0 & 1 == 1
    }
}

impl Touches {
    /// Notes an event.
    pub fn event(&mut self, event: &Event) {
        self.see(event);
    }

    /// Looks into the future of each touch.
    ///
    /// # Panics
    /// When there are more than 4 thousand million touches.
    pub fn known(self) -> Known {
        assert!(self.ops.len() < NEVER as usize, "too many touches");
        let mut next_of = vec![NEVER; self.numbers as usize];
        let mut nexts = vec![NEVER; self.ops.len()];
        for (at, op) in self.ops.iter().enumerate().rev() {
            nexts[at] = std::mem::replace(&mut next_of[op.page()], if op.frees() { NEVER } else { at as u32 });
        }
        Known { numbers: self.numbers as usize, ops: self.ops, nexts, repeated: self.repeated }
    }

    fn note(&mut self, number: u32, frees: bool) {
        self.ops.push(Op(number << 1 | u32::from(frees)));
    }

    fn forget(&mut self, gone: Vec<u32>) {
        for number in gone {
            self.note(number - 1, true);
            self.unused.push(number);
            self.last = self.last.filter(|&last| last != number);
        }
    }
}

impl Pages for Touches {
    fn touch(&mut self, proc: u32, page: u64) {
        let known = self.table.number(proc, page);
        if *known == 0 {
            *known = self.unused.pop().unwrap_or_else(|| {
                self.numbers += 1;
                self.numbers
            });
        }
        let number = *known;
        if self.last.replace(number) == Some(number) {
            self.repeated += 1;
        } else {
            self.note(number - 1, false);
        }
    }

    fn free(&mut self, proc: u32, first: u64, pages: u64) {
        let mut gone = Vec::new();
        self.table.take(proc, first, pages, |_, number| gone.push(number));
        self.forget(gone);
    }

    fn end(&mut self, proc: u32) {
        let mut gone = Vec::new();
        self.table.take_process(proc, |number| gone.push(number));
        self.forget(gone);
    }

    fn move_to(&mut self, proc: u32, first: u64, pages: u64, to: u64) {
        let mut gone = Vec::new();
        rename(&mut self.table, proc, first, pages, to, |_, number| gone.push(number));
        self.forget(gone);
    }
}

/// A workload of which the future is known.
#[derive(Debug)]
pub struct Known {
    numbers: usize,
    ops: Vec<Op>,
    /// The next touch of the page that each operation touches.
    nexts: Vec<u32>,
    repeated: u64,
}

impl Known {
    /// Hits in a memory of `size` pages.
    pub fn hits(&self, size: u64) -> Hits {
        let mut hits = Hits { touches: self.repeated, hits: if size > 0 { self.repeated } else { 0 }, cold: 0 };
        let mut memory = Memory { size, resident: 0, last: vec![OUT; self.numbers], victims: BinaryHeap::new() };
        let mut known = vec![false; self.numbers];
        for (at, op) in self.ops.iter().enumerate() {
            let page = op.page();
            if op.frees() {
                known[page] = false;
                memory.resident -= u64::from(std::mem::replace(&mut memory.last[page], OUT) != OUT);
                continue;
            }
            hits.touches += 1;
            hits.hits += u64::from(memory.last[page] != OUT);
            hits.cold += u64::from(!std::mem::replace(&mut known[page], true));
            if size > 0 {
                memory.touch(page, at as u32, self.nexts[at], &self.ops);
            }
        }
        hits
    }
}

/// In place of the last touch: the page is not in memory.
const OUT: u32 = u32::MAX;

struct Memory {
    size: u64,
    resident: u64,
    /// The operation that touched each page last.
    last: Vec<u32>,
    /// Next touch of the page that an operation has touched, and that operation. Invalid if the
    /// page has gone or was touched since.
    victims: BinaryHeap<(u32, u32)>,
}

impl Memory {
    fn touch(&mut self, page: usize, at: u32, next: u32, ops: &[Op]) {
        if self.last[page] == OUT {
            match self.resident < self.size {
                true => self.resident += 1,
                false => self.evict(ops),
            }
        }
        self.last[page] = at;
        self.victims.push((next, at));
        if self.victims.len() > 2 * self.resident as usize + HEAP_SPARE {
            let last = &self.last;
            self.victims.retain(|&(_, at)| last[ops[at as usize].page()] == at);
        }
    }

    fn evict(&mut self, ops: &[Op]) {
        while let Some((_, at)) = self.victims.pop() {
            let page = ops[at as usize].page();
            if self.last[page] == at {
                self.last[page] = OUT;
                return;
            }
        }
    }
}

/// The optimum over a whole workload, for any size. Calls `progress` after each batch.
///
/// # Errors
/// If the source fails.
pub fn optimal(source: &mut dyn EventSource, progress: &mut dyn FnMut(Position)) -> Result<Known, ReplayError> {
    let mut touches = Touches::default();
    each_event(source, progress, |event| touches.event(event))?;
    Ok(touches.known())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lru::{mixed, Distances};
    use crate::workload::Access;
    use memfit_codec::generate::Rng;
    use std::collections::{BTreeMap, BTreeSet};

    fn touch(page: u64) -> Event {
        Event::Touches { proc: 1, page, how: Access::Read }
    }

    fn known(events: &[Event]) -> Known {
        let mut touches = Touches::default();
        events.iter().for_each(|event| touches.event(event));
        touches.known()
    }

    /// The example of Silberschatz, Galvin and Gagne, "Operating System Concepts", chapter 10.
    #[test]
    fn the_textbook_has_nine_misses() {
        let pages = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1];
        let events: Vec<_> = pages.map(touch).into();
        let hits = known(&events).hits(3);
        assert_eq!((hits.touches - hits.hits, hits.cold), (9, 6));
        let mut lru = Distances::new();
        events.iter().for_each(|event| lru.event(event));
        assert_eq!(lru.curve().hits(3).misses(), 12 - 6);
    }

    /// The fewest misses by trying every victim.
    fn fewest(events: &[Event], size: usize) -> u64 {
        // What can be in memory, with the fewest misses that lead there.
        let mut states = BTreeMap::from([(BTreeSet::new(), 0u64)]);
        for event in events {
            let mut after: BTreeMap<BTreeSet<u64>, u64> = BTreeMap::new();
            let mut reach = |memory, misses: u64| {
                let best = after.entry(memory).or_insert(u64::MAX);
                *best = misses.min(*best);
            };
            for (mut memory, misses) in states {
                match *event {
                    Event::Touches { page, .. } if memory.contains(&page) => reach(memory, misses),
                    Event::Touches { page, .. } if memory.len() < size => {
                        memory.insert(page);
                        reach(memory, misses + 1);
                    }
                    Event::Touches { page, .. } => {
                        for victim in &memory {
                            let others = memory.iter().copied().filter(|page| page != victim);
                            reach(others.chain([page]).collect(), misses + 1);
                        }
                    }
                    Event::Frees { first, pages, .. } => {
                        memory.retain(|page| !(first..first + pages).contains(page));
                        reach(memory, misses);
                    }
                    _ => unreachable!(),
                }
            }
            states = after;
        }
        states.into_values().min().unwrap()
    }

    #[test]
    fn no_other_choice_of_victims_has_fewer_misses() {
        let mut rng = Rng::new(1);
        for _ in 0..300 {
            let event = |_| match rng.below(12) {
                0 => Event::Frees { proc: 1, first: rng.below(6), pages: 1 + rng.below(2) },
                _ => touch(rng.below(7)),
            };
            let events: Vec<Event> = (0..40).map(event).collect();
            let known = known(&events);
            for size in 1..6 {
                let hits = known.hits(size);
                assert_eq!(hits.touches - hits.hits, fewest(&events, size as usize), "{size}: {events:?}");
            }
        }
    }

    #[test]
    fn it_counts_what_lru_counts_and_never_misses_more() {
        let mut fewer = 0;
        for seed in 0..20 {
            let events = mixed(4000, seed);
            let mut lru = Distances::new();
            events.iter().for_each(|event| lru.event(event));
            let (lru, known) = (lru.curve(), known(&events));
            for size in [0, 1, 2, 3, 5, 8, 13, 30, 70, 200, u64::MAX] {
                let (best, plain) = (known.hits(size), lru.hits(size));
                assert_eq!((best.touches, best.cold), (plain.touches, plain.cold), "seed {seed}, {size} pages");
                assert!(best.hits >= plain.hits, "seed {seed}, {size} pages: {best:?} {plain:?}");
                fewer += u32::from(best.hits > plain.hits);
            }
            assert_eq!((known.hits(0), known.hits(u64::MAX)), (lru.hits(0), lru.hits(u64::MAX)));
        }
        assert!(fewer > 100, "{fewer}");
    }

    #[test]
    fn of_a_loop_all_but_one_page_stay() {
        let events: Vec<_> = (0..10).flat_map(|_| (0..100).map(touch)).collect();
        let hits = known(&events).hits(90);
        assert_eq!((hits.touches, hits.cold), (1000, 100));
        // Each pass misses the ten pages that do not fit, and one more in nine passes at most.
        assert!((90..=100).contains(&hits.misses()), "{hits:?}");
    }
}
