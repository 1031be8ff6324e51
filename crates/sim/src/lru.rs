//! Plain LRU over pages, as a yardstick: what a memory of so many pages would hit that always gives
//! up the page which was used least recently, and does nothing else. It has no staging, no pool and
//! no read-ahead, and all of its memory is for pages.
//!
//! A page is a page of a process: what a child shares with its parent is a page of its own from its
//! first touch on. Pages that are freed leave the memory, and what was theirs is free until it is
//! used again; pages that are moved keep their place in the order.
//!
//! [`Distances`] has all sizes at once, by stack distances (R. L. Mattson, J. Gecsei, D. R. Slutz
//! and I. L. Traiger, "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2),
//! 1970). [`Lru`] is one size, done as one would do it.

mod distances;
mod table;

pub use distances::{Curve, Distances};

use crate::event_source::{Batch, EventSource, Far};
use crate::replay::ReplayError;
use crate::workload::Event;
pub(crate) use table::Table;

/// What takes the touches of a workload, whatever they are for.
trait Pages {
    fn touch(&mut self, proc: u32, page: u64);
    fn free(&mut self, proc: u32, first: u64, pages: u64);
    fn end(&mut self, proc: u32);
    fn move_to(&mut self, proc: u32, first: u64, pages: u64, to: u64);

    fn see(&mut self, event: &Event) {
        match *event {
            Event::Touches { proc, page, .. } | Event::Present { proc, page } | Event::Brought { proc, page } => {
                self.touch(proc, page);
            }
            Event::Frees { proc, first, pages } => self.free(proc, first, pages),
            Event::Ends { proc } => self.end(proc),
            Event::Moves { proc, first, pages, to } => self.move_to(proc, first, pages, to),
            _ => {}
        }
    }
}

/// Numbers of pages of a range that belong to others from now on; what was there before is freed.
fn rename(table: &mut Table, proc: u32, first: u64, pages: u64, to: u64, freed: impl FnMut(u64, u32)) {
    let mut moved = Vec::new();
    table.take(proc, first, pages, |page, number| moved.push((page, number)));
    table.take(proc, to, pages, freed);
    for (page, number) in moved {
        *table.number(proc, to + (page - first)) = number;
    }
}

/// Touches by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hits {
    /// All of them.
    pub touches: u64,
    /// Of pages that were in memory.
    pub hits: u64,
    /// Of pages that were never there, or not since they were freed: a miss at any size.
    pub cold: u64,
}

impl Hits {
    /// Of pages that were there and had been given up.
    pub fn misses(&self) -> u64 {
        self.touches - self.hits - self.cold
    }
}

/// A page that is known. Number 0 is the head of the list: next to it are the pages that were used
/// last and longest ago.
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
    /// Numbers of links.
    table: Table,
    links: Vec<Link>,
    unused: Vec<u32>,
    resident: u64,
    hits: Hits,
}

impl Lru {
    /// An empty memory of so many pages.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(size: u64) -> Lru {
        assert!(size > 0, "a memory has pages");
        let (table, links) = (Table::default(), vec![Link { newer: 0, older: 0 }]);
        Lru { size, table, links, unused: Vec::new(), resident: 0, hits: Hits::default() }
    }

    /// What happens next.
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

    /// A page is not known any more.
    fn forget(&mut self, number: u32) {
        if self.links[number as usize].newer != OUT {
            self.unlink(number);
            self.resident -= 1;
        }
        self.unused.push(number);
    }

    /// One more page is to be in memory.
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

/// Plain LRU of every size, over a whole workload. `progress` is called now and then.
///
/// # Errors
/// When the source ends by one.
pub fn lru(source: &mut dyn EventSource, progress: &mut dyn FnMut(Far)) -> Result<Curve, ReplayError> {
    let mut distances = Distances::new();
    let (mut batch, mut events) = (Batch::default(), 0);
    while source.fill(&mut batch)? {
        batch.events.iter().for_each(|event| distances.event(event));
        events += batch.events.len() as u64;
        progress(Far { events, share: source.share() });
    }
    Ok(distances.curve())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::How;
    use memfit_codec::generate::Rng;

    fn touch(proc: u32, page: u64) -> Event {
        Event::Touches { proc, page, how: How::Read }
    }

    /// What LRU does, in the simplest words: the newest page is the last one.
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

    fn mixed(events: u64, seed: u64) -> Vec<Event> {
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
