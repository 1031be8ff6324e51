//! Plain LRU over pages, as a yardstick: the hits of a memory of N pages that evicts the least
//! recently used page and does nothing else. It has no staging, no pool and no read-ahead; all of
//! its memory is for pages.
//!
//! Each process has its own pages: a page shared with a parent becomes the child's own at the
//! child's first touch. Freed pages leave the memory, and their room stays free until another page
//! uses it. Moved pages keep their place in the order.
//!
//! [`Distances`] computes all sizes at once by stack distances (R. L. Mattson, J. Gecsei, D. R.
//! Slutz and I. L. Traiger, "Evaluation techniques for storage hierarchies", IBM Systems Journal
//! 9(2), 1970). [`Lru`] simulates a single size directly.

mod distances;
mod table;

pub use distances::{Curve, Distances};

use crate::event_source::{each_event, EventSource, Position};
use crate::replay::ReplayError;
use crate::workload::Event;
pub(crate) use table::Table;

/// Receives the touches of a workload, of whatever kind.
pub(crate) trait Pages {
    fn touch(&mut self, proc: u32, page: u64);
    fn free(&mut self, proc: u32, first: u64, pages: u64);
    fn end(&mut self, proc: u32);
    fn move_to(&mut self, proc: u32, first: u64, pages: u64, to: u64);

    fn see(&mut self, event: &Event) {
        match *event {
            Event::Touches { proc, page, .. } | Event::Present { proc, page } => self.touch(proc, page),
            Event::Frees { proc, first, pages } => self.free(proc, first, pages),
            Event::Ends { proc } => self.end(proc),
            Event::Moves { proc, first, pages, to } => self.move_to(proc, first, pages, to),
            // `Brought` is no touch: the scheme of the run chose the page, not the program.
            _ => {}
        }
    }
}

/// Moves the numbers of a range of pages to another address and frees the pages that were there.
pub(crate) fn rename(table: &mut Table, proc: u32, first: u64, pages: u64, to: u64, freed: impl FnMut(u64, u32)) {
    let mut moved = Vec::new();
    table.take(proc, first, pages, |page, number| moved.push((page, number)));
    table.take(proc, to, pages, freed);
    for (page, number) in moved {
        *table.number(proc, to + (page - first)) = number;
    }
}

/// Touches by their outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hits {
    /// All touches.
    pub touches: u64,
    /// Touches of pages in memory.
    pub hits: u64,
    /// First touches of pages, also after the page was freed: a miss at any size.
    pub cold: u64,
}

impl Hits {
    /// Touches of pages that had been evicted.
    pub fn misses(&self) -> u64 {
        self.touches - self.hits - self.cold
    }
}

/// A known page in a list from the newest to the oldest page. Number 0 is the head: its `older` is
/// the newest page, its `newer` the oldest.
#[derive(Debug, Clone, Copy)]
struct Link {
    newer: u32,
    older: u32,
}

/// In place of a neighbour: the page is not in memory.
const OUT: u32 = u32::MAX;

/// Plain LRU of one size.
#[derive(Debug)]
pub struct Lru {
    size: u64,
    /// Number of the link of each page.
    table: Table,
    links: Vec<Link>,
    unused: Vec<u32>,
    resident: u64,
    hits: Hits,
}

impl Lru {
    /// An empty memory of `size` pages.
    ///
    /// # Panics
    /// If `size` is 0.
    pub fn new(size: u64) -> Lru {
        assert!(size > 0, "a memory has pages");
        let (table, links) = (Table::default(), vec![Link { newer: 0, older: 0 }]);
        Lru { size, table, links, unused: Vec::new(), resident: 0, hits: Hits::default() }
    }

    /// Handles an event.
    pub fn event(&mut self, event: &Event) {
        self.see(event);
    }

    /// Counts so far.
    pub fn hits(&self) -> Hits {
        self.hits
    }

    fn unlink(&mut self, number: u32) {
        let Link { newer, older } = self.links[number as usize];
        self.links[newer as usize].older = older;
        self.links[older as usize].newer = newer;
    }

    fn link_newest(&mut self, number: u32) {
        let older = self.links[0].older;
        self.links[number as usize] = Link { newer: 0, older };
        self.links[older as usize].newer = number;
        self.links[0].older = number;
    }

    /// Forgets a page that was freed.
    fn forget(&mut self, number: u32) {
        if self.links[number as usize].newer != OUT {
            self.unlink(number);
            self.resident -= 1;
        }
        self.unused.push(number);
    }

    /// Counts another page as resident; evicts the oldest one if the memory is full.
    fn make_room(&mut self) {
        if self.resident < self.size {
            self.resident += 1;
            return;
        }
        let oldest = self.links[0].newer;
        self.unlink(oldest);
        self.links[oldest as usize] = Link { newer: OUT, older: OUT };
    }
}

impl Pages for Lru {
    fn touch(&mut self, proc: u32, page: u64) {
        self.hits.touches += 1;
        let known = self.table.number(proc, page);
        let number = match *known {
            0 => {
                self.hits.cold += 1;
                let number = self.unused.pop().unwrap_or_else(|| {
                    self.links.push(Link { newer: OUT, older: OUT });
                    self.links.len() as u32 - 1
                });
                *known = number;
                self.make_room();
                number
            }
            number if self.links[number as usize].newer == OUT => {
                self.make_room();
                number
            }
            number => {
                self.hits.hits += 1;
                self.unlink(number);
                number
            }
        };
        self.link_newest(number);
    }

    fn free(&mut self, proc: u32, first: u64, pages: u64) {
        let mut gone = Vec::new();
        self.table.take(proc, first, pages, |_, number| gone.push(number));
        gone.into_iter().for_each(|number| self.forget(number));
    }

    fn end(&mut self, proc: u32) {
        let mut gone = Vec::new();
        self.table.take_process(proc, |number| gone.push(number));
        gone.into_iter().for_each(|number| self.forget(number));
    }

    fn move_to(&mut self, proc: u32, first: u64, pages: u64, to: u64) {
        let mut gone = Vec::new();
        rename(&mut self.table, proc, first, pages, to, |_, number| gone.push(number));
        gone.into_iter().for_each(|number| self.forget(number));
    }
}

/// Plain LRU of every size over a whole workload. Calls `progress` after each batch.
///
/// # Errors
/// If the source fails.
pub fn lru(source: &mut dyn EventSource, progress: &mut dyn FnMut(Position)) -> Result<Curve, ReplayError> {
    let mut distances = Distances::new();
    each_event(source, progress, |event| distances.event(event))?;
    Ok(distances.curve())
}

#[cfg(test)]
pub(crate) use tests::mixed;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Access;
    use memfit_codec::generate::Rng;

    fn touch(proc: u32, page: u64) -> Event {
        Event::Touches { proc, page, how: Access::Read }
    }

    /// A naive LRU as reference; the newest page is the last.
    #[derive(Default)]
    struct Plain {
        size: usize,
        memory: Vec<(u32, u64)>,
        known: std::collections::HashSet<(u32, u64)>,
        hits: Hits,
    }

    impl Pages for Plain {
        fn touch(&mut self, proc: u32, page: u64) {
            self.hits.touches += 1;
            self.hits.cold += u64::from(self.known.insert((proc, page)));
            match self.memory.iter().position(|&key| key == (proc, page)) {
                Some(at) => {
                    self.hits.hits += 1;
                    self.memory.remove(at);
                }
                None if self.memory.len() == self.size => _ = self.memory.remove(0),
                None => {}
            }
            self.memory.push((proc, page));
        }

        fn free(&mut self, proc: u32, first: u64, pages: u64) {
            let gone = |key: &(u32, u64)| key.0 == proc && (first..first.saturating_add(pages)).contains(&key.1);
            self.memory.retain(|key| !gone(key));
            self.known.retain(|key| !gone(key));
        }

        fn end(&mut self, proc: u32) {
            self.free(proc, 0, u64::MAX);
        }

        fn move_to(&mut self, proc: u32, first: u64, pages: u64, to: u64) {
            let moved = |key: &(u32, u64)| key.0 == proc && (first..first + pages).contains(&key.1);
            let name = |key: &(u32, u64)| (key.0, u64::MAX / 2 + key.1 - first);
            self.memory.iter_mut().filter(|key| moved(key)).for_each(|key| *key = name(key));
            let known: Vec<_> = self.known.iter().filter(|key| moved(key)).copied().collect();
            self.free(proc, to, pages);
            for key in known {
                self.known.remove(&key);
                self.known.insert((proc, to + key.1 - first));
            }
            let last = u64::MAX / 2;
            self.memory.iter_mut().filter(|key| key.1 >= last).for_each(|key| key.1 = key.1 - last + to);
        }
    }

    /// Touches, frees, moves and ends of three processes.
    pub(crate) fn mixed(events: u64, seed: u64) -> Vec<Event> {
        let mut rng = Rng::new(seed);
        let event = |_| {
            let (proc, page) = (rng.below(3) as u32, rng.below(40) * (1 + rng.below(2) * 700));
            match rng.below(100) {
                0..=3 => Event::Frees { proc, first: page, pages: 1 + rng.below(1500) },
                4 => Event::Ends { proc },
                5..=6 => Event::Moves { proc, first: page, pages: 1 + rng.below(20), to: 100_000 + rng.below(3) * 8 },
                7 => Event::Moves { proc, first: 100_000, pages: 40, to: page },
                8..=9 => Event::Present { proc, page },
                10..=11 => Event::Brought { proc, page },
                _ => touch(proc, page / (1 + rng.below(4))),
            }
        };
        (0..events).map(event).collect()
    }

    #[test]
    fn it_is_what_the_simplest_words_say_whatever_is_freed_and_moved() {
        for seed in 0..20 {
            let events = mixed(4000, seed);
            let mut distances = Distances::new();
            events.iter().for_each(|event| distances.event(event));
            let curve = distances.curve();
            for size in [1, 2, 3, 5, 8, 13, 30, 70, 200] {
                let mut plain = Plain { size, ..Plain::default() };
                let mut lru = Lru::new(size as u64);
                for event in &events {
                    plain.see(event);
                    lru.event(event);
                }
                assert_eq!(lru.hits(), plain.hits, "seed {seed}, {size} pages");
                assert_eq!(curve.hits(size as u64), plain.hits, "seed {seed}, {size} pages");
            }
        }
    }

    #[test]
    fn a_page_that_the_run_brought_beside_another_was_not_touched() {
        let events = [touch(1, 1), Event::Brought { proc: 1, page: 2 }, touch(1, 3), touch(1, 1), touch(1, 2)];
        let (mut lru, mut distances) = (Lru::new(2), Distances::new());
        events.iter().for_each(|event| lru.event(event));
        events.iter().for_each(|event| distances.event(event));
        assert_eq!(lru.hits(), Hits { touches: 4, hits: 1, cold: 3 });
        assert_eq!(distances.curve().hits(2), lru.hits());
    }

    #[test]
    fn a_loop_misses_until_it_fits() {
        let mut distances = Distances::new();
        (0..10).flat_map(|_| 0..100).for_each(|page| distances.event(&touch(1, page)));
        let curve = distances.curve();
        assert_eq!(curve.hits(99), Hits { touches: 1000, hits: 0, cold: 100 });
        assert_eq!(curve.hits(100), Hits { touches: 1000, hits: 900, cold: 100 });
        assert_eq!(curve.hits(0), Hits { touches: 1000, hits: 0, cold: 100 });
        assert_eq!(curve.hits(u64::MAX), curve.hits(100));
        assert_eq!(curve.hits(99).misses(), 900);
    }
}
