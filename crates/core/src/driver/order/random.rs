//! Random threads over a small address space whose events are queued late, as the kernel queues
//! them. At each moment without unread events, what the pager knows must fit what is there.
//!
//! The assumptions of docs/design/events.md hold: mappings grow into a place, and stay behind a
//! move (MREMAP_DONTUNMAP), only when no event is unread.

use super::{Now, Order, Pages};
use crate::PAGE_BYTES;
use std::collections::{HashSet, VecDeque};

const PLACES: usize = 5;
const THREADS: usize = 4;

type Event = super::Event<()>;
type Resolved = super::Resolved<()>;

/// A registered mapping of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mapping {
    id: u32,
    owner: usize,
    page: PageState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageState {
    Untouched,
    Present,
    Evicted,
}

/// The kernel's side.
#[derive(Default)]
struct World {
    places: [Option<Mapping>; PLACES],
    /// Events of each thread that are not queued yet: it waits for each of them.
    to_queue: [VecDeque<Event>; THREADS],
    /// Queued events with their threads.
    queue: VecDeque<(usize, Event)>,
    waits: [bool; THREADS],
    next_id: u32,
    /// Only this thread runs, until no event is unread.
    alone: Option<usize>,
}

/// What the pager knows.
#[derive(Default)]
struct Table {
    /// The mapping whose page the table has.
    known: [Option<u32>; PLACES],
    registered: [bool; PLACES],
    /// Mappings whose page is evicted.
    evicted: HashSet<u32>,
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % end
    }
}

/// Places do not touch.
fn address(place: usize) -> u64 {
    (2 * place as u64 + 1) * PAGE_BYTES
}

fn place_of(address: u64) -> usize {
    (address / PAGE_BYTES / 2) as usize
}

fn unmap(place: usize) -> Event {
    Event::Unmap { start: address(place), end: address(place) + PAGE_BYTES }
}

impl World {
    fn is_pending(&self) -> bool {
        !self.queue.is_empty() || self.to_queue.iter().any(|events| !events.is_empty())
    }

    /// One step of a thread: the next event, or a change of its own memory.
    fn step(&mut self, thread: usize, calm: bool, random: &mut Random) {
        if self.waits[thread] || self.alone.is_some_and(|alone| alone != thread) {
            return;
        }
        if let Some(event) = self.to_queue[thread].pop_front() {
            self.queue.push_back((thread, event));
            self.waits[thread] = true;
            return;
        }
        let (from, to) = (random.below(PLACES), random.below(PLACES));
        let own = |mapping: Option<Mapping>| mapping.is_none_or(|mapping| mapping.owner == thread);
        match (self.places[from], random.below(8)) {
            // It grows into the place, which raises no event.
            (None, 0..4) if calm => {
                let page = if random.below(4) == 0 { PageState::Untouched } else { PageState::Present };
                self.places[from] = Some(Mapping { id: self.next_id, owner: thread, page });
                self.next_id += 1;
            }
            (Some(mapping), 0..2) if mapping.owner == thread => {
                self.places[from] = None;
                self.to_queue[thread].push_back(unmap(from));
            }
            (Some(mapping), 2..7) if mapping.owner == thread && from != to && own(self.places[to]) => {
                if self.places[to].is_some() {
                    self.to_queue[thread].push_back(unmap(to));
                }
                self.places[to] = Some(mapping);
                self.to_queue[thread].push_back(Event::Remap { from: address(from), to: address(to), len: PAGE_BYTES });
                if calm && random.below(4) == 0 {
                    // MREMAP_DONTUNMAP. All is read before others go on.
                    self.alone = Some(thread);
                    let left = Mapping { id: self.next_id, owner: thread, page: PageState::Untouched };
                    self.places[from] = Some(left);
                    self.next_id += 1;
                } else {
                    self.places[from] = None;
                    self.to_queue[thread].push_back(unmap(from));
                }
            }
            (Some(mapping), 7) if mapping.owner == thread && mapping.page == PageState::Untouched => {
                self.places[from].as_mut().unwrap().page = PageState::Present;
            }
            _ => {}
        }
    }
}

impl Table {
    fn apply(&mut self, step: &Resolved) -> Result<(), u64> {
        match *step {
            Resolved::Handle(Event::Unmap { start, end }) => {
                for place in (0..PLACES).filter(|&place| (start..end).contains(&address(place))) {
                    (self.known[place], self.registered[place]) = (None, false);
                }
            }
            Resolved::Handle(Event::Remap { from, to, .. }) => {
                self.known[place_of(to)] = self.known[place_of(from)].take();
                self.registered[place_of(to)] = true;
            }
            Resolved::Appeared(start, _) => {
                (self.known[place_of(start)], self.registered[place_of(start)]) = (None, true);
            }
            Resolved::Unclear(at) => return Err(at),
            Resolved::Handle(_) => unreachable!(),
        }
        Ok(())
    }
}

struct Both<'a>(&'a World, &'a Table);

impl Now for Both<'_> {
    fn is_there(&self, page: u64) -> bool {
        let place = place_of(page);
        place < PLACES && address(place) == page && self.0.places[place].is_some()
    }

    fn pages(&self, from: u64, at: u64, bytes: u64) -> Pages {
        assert_eq!(bytes, PAGE_BYTES);
        match self.1.known[place_of(from)] {
            Some(id) if self.1.evicted.contains(&id) => {
                let there = self.0.places[place_of(at)];
                let present = there.is_some_and(|mapping| mapping.page == PageState::Present);
                if present {
                    Pages::Refute
                } else {
                    Pages::Allow
                }
            }
            _ => Pages::NoneEvicted,
        }
    }
}

/// What the pager knows, at a moment without unread events.
fn check(world: &World, table: &Table) {
    for place in 0..PLACES {
        let (there, known) = (world.places[place], table.known[place]);
        if let Some(mapping) = there.filter(|mapping| mapping.page == PageState::Evicted) {
            assert_eq!(known, Some(mapping.id), "place {place}: an evicted page is lost");
        }
        if let Some(id) = known.filter(|id| table.evicted.contains(id)) {
            assert_eq!(there.map(|mapping| mapping.id), Some(id), "place {place}: another mapping would get its page");
        } else if known.is_some() {
            let present = there.is_some_and(|mapping| mapping.page == PageState::Present);
            assert!(present, "place {place}: a page is taken for present: {there:?}");
        }
    }
}

/// What the pager does at such a moment: it adopts and evicts pages and serves faults.
fn work(world: &mut World, table: &mut Table, random: &mut Random) {
    let place = random.below(PLACES);
    let Some(mapping) = world.places[place].as_mut() else { return };
    table.registered[place] = true;
    match (mapping.page, random.below(3)) {
        (PageState::Present, 0..2) => {
            table.known[place] = Some(mapping.id);
            table.evicted.insert(mapping.id);
            mapping.page = PageState::Evicted;
        }
        (PageState::Present, _) => table.known[place] = Some(mapping.id),
        (PageState::Evicted, 0) => {
            table.evicted.remove(&mapping.id);
            mapping.page = PageState::Present;
        }
        _ => {}
    }
}

/// Runs until the events can be read in two ways, or to the end. Returns whether they could, and
/// how many moments were checked.
fn run(seed: u64) -> (bool, usize) {
    let (mut world, mut table, mut order) = (World::default(), Table::default(), Order::default());
    let (mut random, mut checked) = (Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), 0);
    for step in 0..1500 {
        // One thread gets no CPU for a while.
        let stalled = step / 30 % (THREADS + 1);
        let thread = random.below(THREADS);
        if random.below(4) > 0 {
            if thread != stalled || random.below(8) == 0 {
                let calm = order.is_empty() && !world.is_pending();
                world.step(thread, calm, &mut random);
            }
            continue;
        }
        for _ in 0..random.below(4) {
            let Some((thread, event)) = world.queue.pop_front() else { break };
            world.waits[thread] = false;
            order.push(event);
        }
        let occupied =
            |table: &Table, start: u64| table.registered[place_of(start)] || table.known[place_of(start)].is_some();
        while let Some(event) = order.next(|start, _| occupied(&table, start), || false) {
            table.apply(&Resolved::Handle(event)).expect("it is clear");
        }
        if world.is_pending() {
            continue;
        }
        if !order.is_empty() {
            for step in order.resolve_all(&Both(&world, &table)) {
                if table.apply(&step).is_err() {
                    return (true, checked);
                }
            }
        }
        order.all_read();
        world.alone = None;
        check(&world, &table);
        checked += 1;
        work(&mut world, &mut table, &mut random);
    }
    (false, checked)
}

#[test]
fn what_is_known_fits_what_is_there() {
    let runs: Vec<(bool, usize)> = (1..=3000).map(run).collect();
    let unclear = runs.iter().filter(|(unclear, _)| *unclear).count();
    let checked: usize = runs.iter().map(|(_, checked)| checked).sum();
    println!("{checked} moments, {unclear} of {} runs ended unclear", runs.len());
    assert!(checked > 50_000, "{checked} moments");
    assert!(unclear < runs.len() / 4, "{unclear} of {} runs ended unclear", runs.len());
}
