//! Building blocks of workloads: regions of pages, their contents, processes in turns, and the time
//! that programs compute.

use crate::contents::kind;
use crate::workload::{Access, Event, Workload};
use memfit_codec::generate::Rng;
use std::ops::ControlFlow;

/// First page of a process: 1 MiB.
const BASE: u64 = 256;
/// Regions begin at multiples of this, with at least as many pages between them. So fault-around in
/// one region never brings in pages of another.
const ALIGN: u64 = 64;
/// Touches whose time is reported in one event.
const SLICE: u64 = 256;
/// Neighbours with the same kind of content in a mix.
const RUN: u64 = 8;

/// Contiguous pages of a process with the same use.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamRegion {
    pub(super) proc: u32,
    pub(super) first: u64,
    pub(super) pages: u64,
}

impl StreamRegion {
    /// The first region of a process.
    pub(super) fn new(proc: u32, pages: u64) -> StreamRegion {
        StreamRegion { proc, first: BASE, pages }
    }

    /// Another region of the process, above this one.
    pub(super) fn next(&self, pages: u64) -> StreamRegion {
        let first = (self.first + self.pages).next_multiple_of(ALIGN) + ALIGN;
        StreamRegion { proc: self.proc, first, pages }
    }

    /// A touch of page `page` of the region.
    pub(super) fn touch(&self, page: u64, how: Access) -> Event {
        debug_assert!(page < self.pages, "page {page} of {}", self.pages);
        Event::Touches { proc: self.proc, page: self.first + page, how }
    }

    pub(super) fn read(&self, page: u64) -> Event {
        self.touch(page, Access::Read)
    }

    pub(super) fn write(&self, page: u64) -> Event {
        self.touch(page, Access::Write)
    }

    /// Maps the region with one kind of content.
    pub(super) fn maps(&self, kind: u16) -> Event {
        Event::Maps { proc: self.proc, first: self.first, pages: self.pages, kind }
    }

    pub(super) fn frees(&self) -> Event {
        Event::Frees { proc: self.proc, first: self.first, pages: self.pages }
    }

    /// Writes every page once, in order.
    pub(super) fn fill(self) -> impl Iterator<Item = Event> + Send {
        (0..self.pages).map(move |page| self.write(page))
    }

    /// Reads every page once, in order.
    pub(super) fn walk(self) -> impl Iterator<Item = Event> + Send {
        (0..self.pages).map(move |page| self.read(page))
    }
}

/// The generator of this name.
///
/// # Panics
/// If there is none: an error in a table.
pub(super) fn named(name: &str) -> u16 {
    kind(name).unwrap_or_else(|| panic!("no generator is called {name}"))
}

/// Kinds of content in parts of the pages. Of as many runs of [`RUN`] pages as there are parts,
/// each kind has as many as its share, in random order. So with few parts the shares hold for small
/// regions, too.
#[derive(Debug, Clone)]
pub(super) struct Mix(Vec<u16>);

impl Mix {
    /// From pairs of parts and names of generators.
    pub(super) fn new(parts: &[(usize, &str)]) -> Mix {
        Mix(parts.iter().flat_map(|&(count, name)| std::iter::repeat_n(named(name), count)).collect())
    }

    /// Maps a region with this mix.
    pub(super) fn maps(&self, region: StreamRegion, rng: &mut Rng) -> Vec<Event> {
        let (mut out, mut start, mut current) = (Vec::new(), 0, None);
        let mut maps = |start, end, kind| {
            out.push(StreamRegion { first: region.first + start, pages: end - start, ..region }.maps(kind));
        };
        let mut deck = self.0.clone();
        for run in 0..region.pages.div_ceil(RUN) {
            let card = (run % deck.len() as u64) as usize;
            if card == 0 {
                shuffle(&mut deck, rng);
            }
            let kind = deck[card];
            if let Some(before) = current.replace(kind).filter(|&before| before != kind) {
                maps(start, run * RUN, before);
                start = run * RUN;
            }
        }
        if let Some(kind) = current {
            maps(start, region.pages, kind);
        }
        out
    }
}

/// Puts items in random order (Fisher and Yates).
pub(super) fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for end in (2..=items.len()).rev() {
        items.swap(end - 1, rng.below(end as u64) as usize);
    }
}

/// The greatest common divisor; of 0 and a number, that number.
pub(super) fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// A separate random generator for a part of a workload.
pub(super) fn part(rng: &mut Rng) -> Rng {
    Rng::new(rng.next())
}

/// A random event with a given probability.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share(u64);

impl Share {
    /// Probability in per cent.
    pub(super) fn percent(percent: f64) -> Share {
        Share((percent / 100.0 * (1u64 << 32) as f64) as u64)
    }

    /// Whether it happens this time.
    pub(super) fn next(self, rng: &mut Rng) -> bool {
        rng.next() >> 32 < self.0
    }
}

/// Decides randomly which touches are writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writes(Share);

impl Writes {
    /// Probability of a write in per cent.
    pub(super) fn percent(percent: f64) -> Writes {
        Writes(Share::percent(percent))
    }

    /// Kind of the next touch.
    pub(super) fn how(self, rng: &mut Rng) -> Access {
        if self.0.next(rng) {
            Access::Write
        } else {
            Access::Read
        }
    }
}

/// A process from its start to its end, with its mappings at the start.
pub(super) fn process(
    proc: u32,
    maps: Vec<Event>,
    body: impl Iterator<Item = Event> + Send,
) -> impl Iterator<Item = Event> + Send {
    // Nested to the right, so that `next` passes few links of the chain for the body, which has
    // nearly all events.
    let start = std::iter::once(Event::Starts { proc }).chain(maps);
    start.chain(body.chain([Event::Ends { proc }]))
}

/// A buffer of a few hundred events made ahead. This is several times faster than single events,
/// which every link of a chain of iterators passes on in memory.
struct Ahead {
    ready: Vec<Event>,
    at: usize,
}

impl Ahead {
    fn new() -> Ahead {
        Ahead { ready: Vec::with_capacity(SLICE as usize + 2), at: 0 }
    }

    /// The next event in the buffer.
    #[inline]
    fn next(&mut self) -> Option<Event> {
        let event = self.ready.get(self.at).copied();
        self.at += 1;
        event
    }

    /// Refills the buffer with at most `count` events, as far as they fit; `push` adds each.
    /// Returns false at the end of `events`.
    fn refill(
        &mut self,
        events: &mut impl Iterator<Item = Event>,
        count: usize,
        mut push: impl FnMut(&mut Vec<Event>, Event),
    ) -> bool {
        let (ready, end) = (&mut self.ready, count.min(SLICE as usize));
        ready.clear();
        self.at = 0;
        let stopped = events.try_for_each(|event| {
            push(ready, event);
            if ready.len() < end {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        stopped.is_break()
    }
}

/// Processes in turns: each runs for `slice` events at a time, until it ends.
pub(super) struct Turns<I> {
    all: Vec<I>,
    /// The current process, and how many events it has left.
    now: (usize, u64),
    slice: u64,
    ahead: Ahead,
}

impl<I> Turns<I> {
    pub(super) fn new(all: Vec<I>, slice: u64) -> Turns<I> {
        Turns { all, now: (0, slice), slice, ahead: Ahead::new() }
    }
}

impl<I: Iterator<Item = Event>> Iterator for Turns<I> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ahead.next() {
                return Some(event);
            }
            let (who, left) = self.now;
            let count = usize::try_from(left).unwrap_or(usize::MAX);
            if !self.ahead.refill(self.all.get_mut(who)?, count, Vec::push) {
                // The next process has moved to its place.
                self.all.remove(who);
                self.now = (if who < self.all.len() { who } else { 0 }, self.slice);
                continue;
            }
            let left = left - self.ahead.ready.len() as u64;
            self.now = if left > 0 { (who, left) } else { ((who + 1) % self.all.len(), self.slice) };
        }
    }
}

/// Events, with the time that touches take the program, and the names of marks.
struct Stream<I, M> {
    events: I,
    touch_ns: u64,
    /// Touches since the last event of time.
    touches: u64,
    ahead: Ahead,
    mark: M,
}

impl<I: Iterator<Item = Event>, M> Stream<I, M> {
    fn refill(&mut self) {
        let (touch_ns, touches) = (self.touch_ns, &mut self.touches);
        let computes = |touches: &mut u64| Event::Computes { ns: std::mem::take(touches) * touch_ns };
        self.ahead.refill(&mut self.events, usize::MAX, |ready, event| match event {
            Event::Touches { .. } => {
                ready.push(event);
                *touches += 1;
                if *touches == SLICE && touch_ns > 0 {
                    ready.push(computes(touches));
                }
            }
            // The time of touches before a mark belongs before the mark.
            Event::Reaches { .. } | Event::Ends { .. } if *touches > 0 && touch_ns > 0 => {
                ready.extend([computes(touches), event]);
            }
            _ => ready.push(event),
        });
    }
}

impl<I: Iterator<Item = Event>, M> Iterator for Stream<I, M> {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        self.ahead.next().or_else(|| {
            self.refill();
            self.ahead.next()
        })
    }
}

impl<I, M> Workload for Stream<I, M>
where
    I: Iterator<Item = Event> + Send,
    M: Fn(u32) -> String + Send,
{
    fn mark(&self, mark: u32) -> String {
        (self.mark)(mark)
    }
}

/// A workload from events, the program's own time for each touch (ns), and the names of marks.
pub(super) fn workload(
    events: impl Iterator<Item = Event> + Send + 'static,
    touch_ns: u64,
    mark: impl Fn(u32) -> String + Send + 'static,
) -> Box<dyn Workload> {
    // After the end, `next` keeps returning `None`.
    Box::new(Stream { events: events.fuse(), touch_ns, touches: 0, ahead: Ahead::new(), mark })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_lie_apart() {
        let first = StreamRegion::new(3, 100);
        let second = first.next(5);
        assert_eq!((second.proc, second.first, second.pages), (3, 448, 5));
        assert!(second.first >= first.first + first.pages + ALIGN);
    }

    #[test]
    fn mixes_have_their_shares_and_cover_the_region() {
        let mix = Mix::new(&[(4, "zero"), (6, "text")]);
        for pages in [1, 7, 8, 9, 80, 803] {
            let region = StreamRegion::new(1, pages);
            let (mut at, mut zeros) = (region.first, 0);
            for event in mix.maps(region, &mut Rng::new(5)) {
                let Event::Maps { proc: 1, first, pages, kind: k } = event else { panic!("{event:?}") };
                assert_eq!(first, at);
                at += pages;
                zeros += if Some(k) == kind("zero") { pages } else { 0 };
            }
            assert_eq!(at, region.first + pages);
            if pages == 80 {
                assert_eq!(zeros, 32);
            }
        }
    }

    #[test]
    fn processes_take_turns_until_all_have_ended() {
        let program = |proc, pages| process(proc, vec![], StreamRegion::new(proc, pages).fill());
        let order = |slice| {
            Turns::new(vec![program(0, 3), program(1, 1), program(2, 2)], slice)
                .map(|event| match event {
                    Event::Starts { proc } | Event::Ends { proc } | Event::Touches { proc, .. } => proc.to_string(),
                    _ => unreachable!(),
                })
                .collect::<String>()
        };
        assert_eq!(order(2), "001122001220");
        assert_eq!(order(100), "000001112222");
        assert_eq!(Turns::<std::vec::IntoIter<Event>>::new(vec![], 1).next(), None);
    }

    #[test]
    fn time_is_told_in_slices_and_before_marks() {
        let region = StreamRegion::new(0, SLICE + 10);
        let told = |ns| {
            workload(region.fill().chain([Event::Reaches { mark: 1 }]), ns, |_| String::new())
                .enumerate()
                .filter_map(|(i, event)| match event {
                    Event::Computes { ns } => Some((i as u64, ns)),
                    _ => None,
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(told(3), [(SLICE, 3 * SLICE), (SLICE + 11, 30)]);
        assert_eq!(told(0), []);
    }
}
