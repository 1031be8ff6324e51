//! The order in which the events of one process are handled.
//!
//! The kernel queues an event after it has released the lock of the address space. So events of
//! several threads can be queued in another order than their changes were made. A mapping can have
//! been moved to a place whose own UNMAP or REMAP is still to come. Then the REMAP waits, and so do
//! later events that change the same pages.
//!
//! The place can also have held memory unknown to the pager: a registered mapping that grew in
//! place, which raises no event. Then the REMAP was handled already when that memory's own UNMAP
//! comes. So an event that takes memory away from the target of such a REMAP waits as well.
//!
//! The *new mapping* is the one that a REMAP has brought to its target. The *old mapping* is what
//! was there before. A waiting event can concern either. Three facts tell them apart:
//!
//! - The thread that moves a mapping goes on when the REMAP is read. So what was read before that
//!   concerns the old mapping.
//! - Each mapping that leaves raises one UNMAP. A REMAP is followed by the UNMAP of its source,
//!   which is *owed* until it is read.
//! - When no event is unread, the pager asks the kernel whether a mapping is there now. One UNMAP
//!   more than the arrivals and the owed ones account for is of the old mapping.
//!
//! If several moves remain, only one of them can be of the new mapping. A page that the pager has
//! evicted from that mapping cannot be in memory where it went. And where no page is evicted at
//! all, the pager forgets what it knows of these places, and its next scan finds what is there.

use crate::ranges::Ranges;
use alloc::{collections::VecDeque, vec::Vec};

type Range = (u64, u64);

/// Most bytes of which the pager asks whether any page is evicted.
const FORGOTTEN_MAX: u64 = 1 << 30;

/// A change of an address space, as the kernel reports it. Ranges are addresses, bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Event<F> {
    /// A range is about to be zapped.
    Remove { start: u64, end: u64 },
    /// A range was unmapped.
    Unmap { start: u64, end: u64 },
    /// mremap has moved a range.
    Remap { from: u64, to: u64, len: u64 },
    /// The process has forked: what the caller knows of the child.
    Fork(F),
}

/// Events that were read and not yet handled, in the order of the kernel's queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Order<F> {
    events: VecDeque<Event<F>>,
    /// Targets of REMAPs that were handled since the last moment without unread events.
    unsure: Ranges,
    owed: Owed,
    /// The program has used MREMAP_DONTUNMAP, which raises no UNMAP: none is owed.
    leaves_behind: bool,
    /// Where parts of new mappings have gone, as their pages say; `None`: they were unmapped.
    gone: Vec<(Range, Option<u64>)>,
}

/// What the pages in memory say about a mapping that may have moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// The mapping has no evicted page: it need not be told apart from another one.
    NoneEvicted,
    /// An evicted page of the mapping is in memory there: another mapping is there.
    Refute,
    /// The mapping can be there.
    Allow,
}

/// What a caller of [`Order::resolve_all`] knows of the address space. No event is unread.
pub trait Now {
    /// Whether the page at an address is in a registered mapping.
    fn is_there(&self, page: u64) -> bool;
    /// What the pages of the range at `at` say about the mapping that has the same size and is at
    /// `from` by the events handled so far.
    fn pages(&self, from: u64, at: u64, bytes: u64) -> Pages;
}

/// Sources of REMAPs that were handled and whose UNMAP is still to come; several can have a page in
/// common.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Owed(Vec<Range>);

impl Owed {
    /// An UNMAP concerns what left first.
    fn pay(&mut self, start: u64, end: u64) {
        let mut left: Ranges = [(start, end)].into_iter().collect();
        let all = core::mem::take(&mut self.0);
        for range in all {
            self.0.extend(left.gaps(range.0, range.1));
            left.cut(range.0, range.1);
        }
    }

    fn at(&self, page: u64) -> usize {
        self.0.iter().filter(|&&range| covers(range, page)).count()
    }

    fn ranges(&self) -> Ranges {
        self.0.iter().copied().collect()
    }
}

/// Which of the waiting events of a page concern the old mapping.
enum OfOld {
    Nothing,
    /// The first UNMAP, and no move.
    Unmap,
    /// The first UNMAP and the first move.
    Both,
    /// The first UNMAP concerns it; a move can be of either mapping.
    UnmapAndPerhapsMove,
    /// It cannot be determined.
    Unclear,
}

/// What to do about events that waited until no event was unread.
#[derive(Debug)]
pub enum Resolved<F> {
    /// Handle the event.
    Handle(Event<F>),
    /// Memory has appeared in this range of which the table has nothing.
    Appeared(u64, u64),
    /// The events of the page at this address can be read in two ways.
    Unclear(u64),
}

impl<F> Default for Order<F> {
    fn default() -> Order<F> {
        let (events, unsure, owed) = (VecDeque::new(), Ranges::default(), Owed::default());
        Order { events, unsure, owed, leaves_behind: false, gone: Vec::new() }
    }
}

impl<F> Order<F> {
    /// Adds an event that was read.
    pub fn push(&mut self, event: Event<F>) {
        self.events.push_back(event);
    }

    /// Whether all events were handled.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether it is worth calling [`Order::all_read`].
    pub fn is_unsure(&self) -> bool {
        !self.unsure.is_empty() || !self.owed.0.is_empty()
    }

    /// No event is unread, and none waits.
    pub fn all_read(&mut self) {
        self.leaves_behind |= !self.owed.0.is_empty();
        self.unsure = Ranges::default();
        self.owed = Owed::default();
    }

    /// Takes the first event that need not wait. `occupied` says whether any of a range belongs to
    /// a registered mapping, by the events handled so far; `alone`, whether a single thread raises
    /// all events.
    pub fn next(&mut self, occupied: impl Fn(u64, u64) -> bool, alone: impl Fn() -> bool) -> Option<Event<F>> {
        let mut i = 0;
        while i < self.events.len() {
            if self.is_bound(i) || target(&self.events[i]).is_some_and(|(start, end)| occupied(start, end)) {
                i += 1;
                continue;
            }
            let parts = self.unsure_parts(&self.events[i]);
            if parts.is_empty() || alone() {
                let event = self.events.remove(i)?;
                self.handled(&event);
                if let Some((start, end)) = target(&event) {
                    self.unsure.add(start, end);
                }
                return Some(event);
            }
            i += usize::from(!self.skip_owed(i, parts));
        }
        None
    }

    /// The waiting events that change the address space.
    fn changes(&self) -> impl Iterator<Item = &Event<F>> {
        self.events.iter().filter(|event| !is_fork(event))
    }

    /// Whether an event must wait for one that was read before it.
    fn is_bound(&self, i: usize) -> bool {
        self.events.range(..i).any(|earlier| ranges(&self.events[i]).any(|range| concerns(earlier, range)))
    }

    /// If all of the unsure `parts` of an UNMAP are owed, takes them out of it: they concern
    /// what had left before. False if the event is as before.
    fn skip_owed(&mut self, i: usize, parts: Vec<(Range, bool)>) -> bool {
        let Event::Unmap { start, end } = self.events[i] else { return false };
        if parts.iter().any(|&(_, owed)| !owed) {
            return false;
        }
        let late: Ranges = parts.into_iter().map(|(part, _)| part).collect();
        late.iter().for_each(|(start, end)| self.owed.pay(start, end));
        self.events.remove(i);
        for (start, end) in late.gaps(start, end).into_iter().rev() {
            self.events.insert(i, Event::Unmap { start, end });
        }
        true
    }

    /// The unsure parts that an event takes away, and whether an UNMAP of each is owed.
    fn unsure_parts(&self, event: &Event<F>) -> Vec<(Range, bool)> {
        match leaves(event) {
            true => self.unsure_within(changed(event)),
            false => Vec::new(),
        }
    }

    fn unsure_within(&self, range: Range) -> Vec<(Range, bool)> {
        let (mut parts, owed) = (Vec::new(), self.owed.ranges());
        for (start, end) in self.unsure.within(range.0, range.1) {
            parts.extend(owed.within(start, end).map(|part| (part, true)));
            parts.extend(owed.gaps(start, end).into_iter().map(|part| (part, false)));
        }
        parts
    }

    /// Notes what has left by an event, and which UNMAP is owed after it. A second move from a
    /// place to which nothing came is of what MREMAP_DONTUNMAP left there: both have one UNMAP.
    fn handled(&mut self, event: &Event<F>) {
        let (start, end) = changed(event);
        match event {
            Event::Remap { .. } if self.leaves_behind => {}
            Event::Remap { .. } => {
                let owed = self.owed.ranges();
                self.owed.0.extend(owed.within(start, end).flat_map(|(s, e)| self.unsure.within(s, e)));
                self.owed.0.extend(owed.gaps(start, end));
            }
            Event::Unmap { .. } => self.owed.pay(start, end),
            _ => return,
        }
        self.unsure.cut(start, end);
    }

    /// The addresses that [`Order::resolve_all`] may ask about.
    pub fn places(&self) -> Vec<u64> {
        let unsure = self.unsure.iter().flat_map(|range| self.unsure_within(range)).map(|(part, _)| part);
        let mut all: Vec<u64> =
            self.changes().flat_map(ranges).chain(unsure).flat_map(|(start, end)| [start, end]).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Takes all waiting events. None is unread.
    pub fn resolve_all(&mut self, now: &impl Now) -> Vec<Resolved<F>> {
        let mut steps = Vec::new();
        let all: Vec<_> = self.changes().map(|event| (changed(event), target(event))).collect();
        while let Some(event) = self.events.pop_front() {
            if let Err(page) = self.resolve(event, now, &mut steps) {
                match self.forget(page, &all, now) {
                    Some(forgotten) => steps.extend(forgotten),
                    None => steps.push(Resolved::Unclear(page)),
                }
            }
        }
        self.gone.clear();
        self.all_read();
        steps
    }

    /// Gives up all events that have to do with a page, if none of their ranges has an evicted
    /// page: what is there now is new to the pager. `all` has the ranges of all events.
    fn forget(&mut self, page: u64, all: &[(Range, Option<Range>)], now: &impl Now) -> Option<Vec<Resolved<F>>> {
        let mut places: Ranges = [(page, page + 1)].into_iter().collect();
        let meets = |places: &Ranges, (own, target): (Range, Option<Range>)| {
            places.meets(own.0, own.1) || target.is_some_and(|target| places.meets(target.0, target.1))
        };
        loop {
            let before = places.clone();
            for &(own, target) in all.iter().filter(|&&ranges| meets(&before, ranges)) {
                core::iter::once(own).chain(target).for_each(|(start, end)| places.add(start, end));
            }
            if places == before {
                break;
            }
        }
        if places.iter().map(|(start, end)| end - start).sum::<u64>() > FORGOTTEN_MAX {
            return None;
        }
        let none_evicted = |(start, end): Range| now.pages(start, start, end - start) == Pages::NoneEvicted;
        if !places.iter().all(none_evicted) {
            return None;
        }
        self.events.retain(|event| is_fork(event) || !meets(&places, (changed(event), target(event))));
        places.iter().for_each(|(start, end)| _ = self.unsure.cut(start, end));
        let unmap = |(start, end)| Resolved::Handle(Event::Unmap { start, end });
        let targets = all.iter().filter_map(|&(_, target)| target);
        let came = targets.filter(|&(start, end)| places.meets(start, end) && now.is_there(start));
        Some(places.iter().map(unmap).chain(came.map(|(start, end)| Resolved::Appeared(start, end))).collect())
    }

    /// An error is a page whose events can be read in two ways.
    fn resolve(&mut self, event: Event<F>, now: &impl Now, steps: &mut Vec<Resolved<F>>) -> Result<(), u64> {
        if let Some(place) = target(&event) {
            loop {
                let late = self.late_for(&event, place, now)?;
                if late.is_empty() {
                    break;
                }
                for event in late {
                    self.resolve(event, now, steps)?;
                }
            }
        }
        let range = changed(&event);
        let is_unmap = matches!(event, Event::Unmap { .. });
        let mut late = Ranges::default();
        for ((start, end), owed) in self.unsure_parts(&event) {
            let part = (start, end);
            let goes = target(&event).map(|(to, _)| to + start - range.0);
            let known = self.gone.iter().find(|(known, _)| *known == part).map(|&(_, to)| to);
            let is_late = match self.of_old(Some(&event), start, now.is_there(start)) {
                _ if known.is_some() && !is_unmap => known != Some(goes),
                OfOld::Nothing => false,
                OfOld::Unmap => is_unmap,
                OfOld::UnmapAndPerhapsMove if is_unmap => true,
                OfOld::UnmapAndPerhapsMove | OfOld::Both | OfOld::Unclear => {
                    let to = match known {
                        Some(to) => to,
                        None => self.goes_to(&event, part, now, steps)?,
                    };
                    is_unmap || goes != to
                }
            };
            if is_late {
                late.add(start, end);
            }
            if is_unmap && owed {
                self.owed.pay(start, end);
            }
        }
        if late.is_empty() {
            self.handled(&event);
            steps.push(Resolved::Handle(event));
            return Ok(());
        }
        let goes = |(start, end): Range| target(&event).map(|(to, _)| (to + start - range.0, to + end - range.0));
        steps.extend(late.iter().filter_map(goes).map(|(start, end)| Resolved::Appeared(start, end)));
        for (start, end) in late.gaps(range.0, range.1) {
            let part = match goes((start, end)) {
                Some((to, _)) => Event::Remap { from: start, to, len: end - start },
                None => Event::Unmap { start, end },
            };
            self.handled(&part);
            steps.push(Resolved::Handle(part));
        }
        Ok(())
    }

    /// Takes the events by which the old mapping left a place. The REMAP `arrival`, which brought
    /// the new one there, is handled next.
    fn late_for(&mut self, arrival: &Event<F>, place: Range, now: &impl Now) -> Result<Vec<Event<F>>, u64> {
        for i in 0..self.events.len() {
            let Event::Unmap { start, end } = self.events[i] else { continue };
            let page = start.max(place.0);
            if page >= end.min(place.1) {
                continue;
            }
            let moves_away = |e: &Event<F>| matches!(e, Event::Remap { .. }) && covers(changed(e), page);
            let moved = || (0..self.events.len()).find(|&at| moves_away(&self.events[at]));
            let moved = match self.of_old(None, page, now.is_there(page)) {
                OfOld::Nothing => continue,
                OfOld::Unmap => None,
                OfOld::Both => {
                    let at = moved().filter(|&at| at < i);
                    at.filter(|&at| self.moved_old(arrival, at, now) != Some(false))
                }
                OfOld::UnmapAndPerhapsMove | OfOld::Unclear => {
                    let at = moved().filter(|&at| at < i && self.count(None, page).moves == 1).ok_or(page)?;
                    self.moved_old(arrival, at, now).ok_or(page)?.then_some(at)
                }
            };
            let unmap = self.events.remove(i);
            return Ok(moved.and_then(|at| self.events.remove(at)).into_iter().chain(unmap).collect());
        }
        Ok(Vec::new())
    }

    /// Whether the event with this number has moved the old mapping away, as far as the pages in
    /// memory tell. If not, it has moved the new one, which `arrival` brought.
    fn moved_old(&self, arrival: &Event<F>, number: usize, now: &impl Now) -> Option<bool> {
        let (event, place) = (&self.events[number], target(arrival)?);
        let (own, to) = (changed(event), target(event)?.0);
        let bytes = own.1 - own.0;
        if place != own || !self.is_alone_at(event, (to, to + bytes), now) {
            return None;
        }
        match (now.pages(own.0, to, bytes), now.pages(changed(arrival).0, to, bytes)) {
            (Pages::Refute, Pages::Refute) => None,
            (Pages::Refute, _) => Some(false),
            (_, Pages::Refute) => Some(true),
            _ => None,
        }
    }

    /// Whether a range is registered, and no other event than this one concerns it.
    fn is_alone_at(&self, event: &Event<F>, range: Range, now: &impl Now) -> bool {
        let mut others = self.changes().filter(|&other| !core::ptr::eq(other, event));
        now.is_there(range.0) && !others.any(|other| concerns(other, range))
    }

    /// Where the part of a new mapping has gone, by what is in memory; `None` if it was unmapped,
    /// or no matter which of the moves was its own. `event` is handled next. An error is a page for
    /// which that is not known.
    fn goes_to(
        &mut self,
        event: &Event<F>,
        part: Range,
        now: &impl Now,
        steps: &mut Vec<Resolved<F>>,
    ) -> Result<Option<u64>, u64> {
        let (bytes, is_there) = (part.1 - part.0, now.is_there(part.0));
        let here: Vec<&Event<F>> =
            core::iter::once(event).chain(self.changes()).filter(|e| overlap(changed(e), part)).collect();
        let whole = |e: &&Event<F>| leaves(e) && covers(changed(e), part.0) && covers(changed(e), part.1 - 1);
        let count = self.count(Some(event), part.0);
        // If what came later has left as well, a move can be of that.
        if !here.iter().all(whole) || count.came > 1 + usize::from(is_there) {
            return Err(part.0);
        }
        let moves = here.iter().filter_map(|e| Some((*e, target(e)?.0 + part.0 - changed(e).0)));
        let seen = |(event, to): (&Event<F>, u64)| match now.pages(part.0, to, bytes) {
            Pages::Refute if !self.is_alone_at(event, (to, to + bytes), now) => (to, Pages::Allow),
            pages => (to, pages),
        };
        let moves: Vec<(u64, Pages)> = moves.map(seen).collect();
        let allowed = moves.iter().filter(|(_, pages)| *pages != Pages::Refute);
        let mut possible: Vec<Option<u64>> = allowed.map(|&(to, _)| Some(to)).collect();
        let stays = match is_there && count.came == 1 {
            // It is there, unless that is what MREMAP_DONTUNMAP left.
            true => count.moves + count.owed <= count.unmaps && now.pages(part.0, part.0, bytes) != Pages::Refute,
            // It was unmapped, if there are as many others that left.
            false => count.moves + count.owed < count.unmaps,
        };
        possible.extend(stays.then_some(None));
        let to = match possible[..] {
            _ if moves.iter().any(|(_, pages)| *pages == Pages::NoneEvicted) => {
                steps.extend(is_there.then_some(Resolved::Appeared(part.0, part.1)));
                None
            }
            [to] => to,
            _ => return Err(part.0),
        };
        self.gone.push((part, to));
        Ok(to)
    }

    /// Counts `event` and those that wait.
    fn count(&self, event: Option<&Event<F>>, page: u64) -> Count {
        let all = || event.into_iter().chain(&self.events);
        let of = |event: &&Event<F>| covers(changed(event), page);
        Count {
            unmaps: all().filter(of).filter(|e| matches!(e, Event::Unmap { .. })).count(),
            moves: all().filter(of).filter(|e| matches!(e, Event::Remap { .. })).count(),
            came: 1 + all().filter_map(target).filter(|&range| covers(range, page)).count(),
            owed: self.owed.at(page),
        }
    }

    /// Which events of a page, among `event` and those that wait, concern the old mapping. The
    /// REMAP of the new one is handled already or next.
    fn of_old(&self, event: Option<&Event<F>>, page: u64, there: bool) -> OfOld {
        let Count { unmaps, moves, came, owed } = self.count(event, page);
        // UNMAPs that neither the arrivals nor the owed ones account for.
        let more = (usize::from(there) + unmaps).checked_sub(came + owed);
        match (more.unwrap_or(0), owed > 0) {
            _ if unmaps == 0 => OfOld::Nothing,
            (0, false) => OfOld::Nothing,
            (0, true) => OfOld::Unmap,
            (1.., _) if moves == 0 => OfOld::Unmap,
            (1, _) if moves == 1 && there && came == 1 => OfOld::Both,
            // If the new mapping has left as well, a move can be of either.
            (1.., true) => OfOld::UnmapAndPerhapsMove,
            (1.., false) => OfOld::Unclear,
        }
    }
}

/// Waiting events of a page.
struct Count {
    unmaps: usize,
    /// Moves away from it.
    moves: usize,
    /// REMAPs that brought a mapping, with the one that is handled already or next.
    came: usize,
    /// UNMAPs of mappings that have moved away from it.
    owed: usize,
}

fn is_fork<F>(event: &Event<F>) -> bool {
    matches!(event, Event::Fork(_))
}

/// The range that an event changes, without the target of a REMAP. A fork concerns all of them: it
/// waits for what was read before it, and what was read after it waits.
fn changed<F>(event: &Event<F>) -> Range {
    match *event {
        Event::Remove { start, end } | Event::Unmap { start, end } => (start, end),
        Event::Remap { from, len, .. } => (from, from + len),
        Event::Fork(_) => (0, u64::MAX),
    }
}

/// The target of a REMAP.
fn target<F>(event: &Event<F>) -> Option<Range> {
    match *event {
        Event::Remap { to, len, .. } => Some((to, to + len)),
        _ => None,
    }
}

/// What it changes, and its target.
fn ranges<F>(event: &Event<F>) -> impl Iterator<Item = Range> {
    core::iter::once(changed(event)).chain(target(event))
}

fn concerns<F>(event: &Event<F>, range: Range) -> bool {
    ranges(event).any(|own| overlap(own, range))
}

/// Whether an event takes memory away from its place.
fn leaves<F>(event: &Event<F>) -> bool {
    matches!(event, Event::Unmap { .. } | Event::Remap { .. })
}

fn covers(range: Range, page: u64) -> bool {
    range.0 <= page && page < range.1
}

fn overlap(a: Range, b: Range) -> bool {
    a.0 < b.1 && b.0 < a.1
}

#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
