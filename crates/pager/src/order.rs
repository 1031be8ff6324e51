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
//! Such an event can concern the mapping before or the one that came: the thread that moved it goes
//! on as soon as the REMAP is read. Therefore all wait until no event is unread. Then the pager
//! asks the kernel whether a mapping is there now. Each UNMAP is of a mapping that was there: one
//! UNMAP more than the arrivals account for is of the mapping before.

use crate::ranges::Ranges;
use memfit_os::uffd::Event;
use std::collections::VecDeque;

type Range = (u64, u64);

/// Events that were read and not yet handled, in the order of the kernel's queue.
#[derive(Default)]
pub struct Order {
    events: VecDeque<Event>,
    /// Targets of REMAPs that were handled since the last moment without unread events.
    unsure: Ranges,
}

/// What to do when all events are read.
#[derive(Debug)]
pub enum Step {
    /// Handle the event.
    Handle(Event),
    /// Memory has appeared in this range of which the table has nothing.
    Came(u64, u64),
    /// The events of the page at this address can be read in two ways.
    Unclear(u64),
}

impl Order {
    /// Adds an event that was read.
    pub fn push(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Whether all events were handled.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether it is worth calling [`Order::all_read`].
    pub fn is_unsure(&self) -> bool {
        !self.unsure.is_empty()
    }

    /// No event is unread, and none waits.
    pub fn all_read(&mut self) {
        self.unsure = Ranges::default();
    }

    /// Takes the first event that need not wait. `occupied` says whether any of a range belongs to
    /// a registered mapping, by the events handled so far; `alone`, whether a single thread raises
    /// all events.
    pub fn next(&mut self, occupied: impl Fn(u64, u64) -> bool, alone: impl Fn() -> bool) -> Option<Event> {
        let free = |&i: &usize| {
            let event = &self.events[i];
            let unsure = leaves(event) && self.unsure.meets(changed(event).0, changed(event).1) && !alone();
            let meets = |range: Range| overlap(changed(event), range);
            let bound = self.events.range(..i).any(|e| meets(changed(e)) || target(e).is_some_and(meets));
            !unsure && !bound && !target(event).is_some_and(|(start, end)| occupied(start, end))
        };
        let i = (0..self.events.len()).find(free)?;
        let event = self.events.remove(i)?;
        if let Some((start, end)) = target(&event) {
            self.unsure.add(start, end);
        }
        Some(event)
    }

    /// The addresses that [`Order::rest`] may ask about.
    pub fn places(&self) -> Vec<u64> {
        let ranges = self.events.iter().flat_map(|event| std::iter::once(changed(event)).chain(target(event)));
        let mut all: Vec<u64> = ranges.chain(self.unsure.iter()).flat_map(|(start, end)| [start, end]).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Takes all events; none is unread. `there` says whether the page at an address is in a
    /// registered mapping now.
    pub fn rest(&mut self, there: impl Fn(u64) -> bool) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some(event) = self.events.pop_front() {
            self.resolve(event, &there, &mut steps);
        }
        self.all_read();
        steps
    }

    fn resolve(&mut self, event: Event, there: &impl Fn(u64) -> bool, steps: &mut Vec<Step>) {
        while let Some(place) = target(&event) {
            match self.late_for(place, there) {
                Ok(late) if late.is_empty() => break,
                Ok(late) => late.into_iter().for_each(|event| self.resolve(event, there, steps)),
                Err(unclear) => {
                    steps.push(unclear);
                    break;
                }
            }
        }
        let range = changed(&event);
        let unsure: Vec<Range> =
            if leaves(&event) { self.unsure.within(range.0, range.1).collect() } else { Vec::new() };
        let mut late = Ranges::default();
        for (start, end) in unsure {
            match self.is_late(Some(&event), start, there(start)) {
                Ok(true) => late.add(start, end),
                Ok(false) => {}
                Err(unclear) => steps.push(unclear),
            }
            if matches!(event, Event::Unmap { .. }) {
                self.unsure.cut(start, end);
            }
        }
        if late.is_empty() {
            return steps.push(Step::Handle(event));
        }
        let goes = |(start, end): Range| target(&event).map(|(to, _)| (to + start - range.0, to + end - range.0));
        steps.extend(late.iter().filter_map(goes).map(|(start, end)| Step::Came(start, end)));
        for (start, end) in late.gaps(range.0, range.1) {
            steps.push(Step::Handle(match goes((start, end)) {
                Some((to, _)) => Event::Remap { from: start, to, len: end - start },
                None => Event::Unmap { start, end },
            }));
        }
    }

    /// Takes the events by which the mapping before left a place. The REMAP that came there
    /// afterwards is handled next.
    fn late_for(&mut self, place: Range, there: &impl Fn(u64) -> bool) -> Result<Vec<Event>, Step> {
        for i in 0..self.events.len() {
            let Event::Unmap { start, end } = self.events[i] else { continue };
            let page = start.max(place.0);
            if page < end.min(place.1) && self.is_late(None, page, there(page))? {
                let covers = |e: &Event| matches!(e, Event::Remap { .. }) && covers(changed(e), page);
                let moved = (0..i).find(|&at| covers(&self.events[at]));
                let unmap = self.events.remove(i);
                return Ok(moved.and_then(|at| self.events.remove(at)).into_iter().chain(unmap).collect());
            }
        }
        Ok(Vec::new())
    }

    /// Whether the first UNMAP of a page, among `event` and those that wait, is of a mapping that
    /// left the page before a REMAP came there, which is handled already or next. If there is a
    /// move away from the page, the same holds for it.
    fn is_late(&self, event: Option<&Event>, page: u64, there: bool) -> Result<bool, Step> {
        let all = || event.into_iter().chain(&self.events);
        let of = |event: &&Event| covers(changed(event), page);
        let unmaps = all().filter(of).filter(|e| matches!(e, Event::Unmap { .. })).count();
        let came = 1 + all().filter_map(target).filter(|&range| covers(range, page)).count();
        if unmaps == 0 || usize::from(there) + unmaps != came + 1 {
            return Ok(false);
        }
        // If the mapping that came has left as well, a move can be of either mapping.
        let moves = all().filter(of).filter(|e| matches!(e, Event::Remap { .. })).count();
        if moves == 0 || (moves, unmaps) == (1, 1) {
            Ok(true)
        } else {
            Err(Step::Unclear(page))
        }
    }
}

/// The range that an event changes, without the target of a REMAP.
fn changed(event: &Event) -> Range {
    match *event {
        Event::Remove { start, end } | Event::Unmap { start, end } => (start, end),
        Event::Remap { from, len, .. } => (from, from + len),
        Event::Fork(_) => (0, u64::MAX),
        Event::Fault { .. } => (0, 0),
    }
}

/// The target of a REMAP.
fn target(event: &Event) -> Option<Range> {
    match *event {
        Event::Remap { to, len, .. } => Some((to, to + len)),
        _ => None,
    }
}

/// Whether an event takes memory away from its place.
fn leaves(event: &Event) -> bool {
    matches!(event, Event::Unmap { .. } | Event::Remap { .. })
}

fn covers(range: Range, page: u64) -> bool {
    range.0 <= page && page < range.1
}

fn overlap(a: Range, b: Range) -> bool {
    a.0 < b.1 && b.0 < a.1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(events: impl IntoIterator<Item = Event>) -> Order {
        Order { events: events.into_iter().collect(), ..Order::default() }
    }

    const A: Range = (0x1000, 0x2000);
    const B: Range = (0x3000, 0x4000);
    const C: Range = (0x5000, 0x6000);

    fn remap(from: Range, to: Range) -> Event {
        Event::Remap { from: from.0, to: to.0, len: from.1 - from.0 }
    }

    /// What is done when all is read and some places are occupied at first. Before that, nothing
    /// is.
    fn resolved(events: impl IntoIterator<Item = Event>, occupied: &[Range], there: &[Range]) -> String {
        let mut order = order(events);
        let next = order.next(|start, end| occupied.iter().any(|&place| overlap(place, (start, end))), || false);
        assert!(next.is_none(), "{next:x?} does not wait");
        let places = order.places();
        let there = |at| {
            assert!(places.contains(&at), "{at:#x} is not in {places:x?}");
            there.iter().any(|&place| covers(place, at))
        };
        format!("{:x?}", order.rest(there))
    }

    #[test]
    fn a_move_waits_until_its_place_was_left() {
        assert_eq!(resolved([remap(A, B), unmap(B)], &[A, B], &[B]), handled([unmap(B), remap(A, B)]));
        let moved = [remap(A, B), remap(B, C), unmap(B)];
        assert_eq!(resolved(moved, &[A, B, C], &[B, C]), handled([remap(B, C), unmap(B), remap(A, B)]));
    }

    #[test]
    fn in_a_chain_of_moves_the_last_place_is_left_first() {
        let events = [remap(A, B), remap(B, C), unmap(B), unmap(C)];
        assert_eq!(resolved(events, &[A, B, C], &[B, C]), handled([unmap(C), remap(B, C), unmap(B), remap(A, B)]));
    }

    #[test]
    fn what_changes_the_moved_pages_stays_behind_the_move() {
        let remove = || Event::Remove { start: A.0, end: A.1 };
        let events = [remap(A, B), remove(), unmap(B)];
        assert_eq!(resolved(events, &[A, B], &[B]), handled([unmap(B), remap(A, B), remove()]));
    }

    #[test]
    fn the_memory_that_came_may_leave_as_well() {
        let events = [remap(A, B), unmap(B), unmap(B)];
        assert_eq!(resolved(events, &[A, B], &[]), handled([unmap(B), remap(A, B), unmap(B)]));
        // Nothing was there: the place is taken for occupied in vain.
        let events = [remap(A, B), remap(B, C), unmap(B)];
        assert_eq!(resolved(events, &[A, B, C], &[C]), handled([remap(A, B), remap(B, C), unmap(B)]));
        let unclear = resolved([remap(A, B), remap(B, C), unmap(B), unmap(B)], &[A, B, C], &[C]);
        assert!(unclear.starts_with("[Unclear(3000)"), "{unclear}");
    }

    #[test]
    fn others_do_not_wait() {
        let mut order = order([remap(A, B), unmap(C)]);
        let next = order.next(|start, end| overlap(B, (start, end)), || false);
        assert_eq!(format!("{next:x?}"), format!("{:x?}", Some(unmap(C))));
    }

    fn unmap(range: Range) -> Event {
        Event::Unmap { start: range.0, end: range.1 }
    }

    /// What is done about `later`, read after memory was moved from `A` to `B`, where nothing was
    /// known.
    fn after_a_move_to_b(later: impl IntoIterator<Item = Event>, there: bool) -> String {
        let mut order = order([remap(A, B)]);
        assert!(order.next(|_, _| false, || false).is_some());
        later.into_iter().for_each(|event| order.push(event));
        while let Some(event) = order.next(|_, _| false, || false) {
            assert!(!leaves(&event) || !overlap(changed(&event), B), "{event:?} does not wait");
        }
        format!("{:x?}", order.rest(|_| there))
    }

    fn handled(events: impl IntoIterator<Item = Event>) -> String {
        format!("{:x?}", events.into_iter().map(Step::Handle).collect::<Vec<_>>())
    }

    #[test]
    fn what_had_left_the_place_before_does_not_touch_what_is_there_now() {
        assert_eq!(after_a_move_to_b([unmap(B)], true), "[]");
        let wide = (B.0 - 0x1000, B.1 + 0x1000);
        let around = [(wide.0, B.0), (B.1, wide.1)].map(unmap);
        assert_eq!(after_a_move_to_b([unmap(wide)], true), handled(around));
        assert_eq!(after_a_move_to_b([remap(B, C), unmap(B)], true), format!("{:x?}", [Step::Came(C.0, C.1)]));
    }

    #[test]
    fn what_leaves_the_place_after_the_move_takes_the_pages_along() {
        assert_eq!(after_a_move_to_b([unmap(B)], false), handled([unmap(B)]));
        assert_eq!(after_a_move_to_b([remap(B, C), unmap(B)], false), handled([remap(B, C), unmap(B)]));
        // MREMAP_DONTUNMAP.
        assert_eq!(after_a_move_to_b([remap(B, C)], true), handled([remap(B, C)]));
    }

    #[test]
    fn both_before_and_after_the_move() {
        assert_eq!(after_a_move_to_b([unmap(B), unmap(B)], false), handled([unmap(B)]));
    }

    #[test]
    fn whose_move_it_was_may_not_be_known() {
        for moves in [vec![remap(B, C)], vec![remap(B, C), remap(B, A)]] {
            let steps = after_a_move_to_b(moves.into_iter().chain([unmap(B), unmap(B)]), false);
            assert!(steps.starts_with("[Unclear(3000)"), "{steps}");
        }
    }

    #[test]
    fn nothing_waits_after_a_moment_without_unread_events() {
        let mut order = order([remap(A, B)]);
        order.next(|_, _| false, || false);
        order.push(unmap(B));
        assert!(order.next(|_, _| false, || false).is_none());
        order.all_read();
        assert!(order.next(|_, _| false, || false).is_some());
    }

    #[test]
    fn a_single_thread_raises_its_events_in_order() {
        let mut order = order([remap(A, B), unmap(A), remap(B, A)]);
        assert_eq!((0..4).filter(|_| order.next(|_, _| false, || true).is_some()).count(), 3);
    }
}
