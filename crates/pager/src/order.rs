//! In which order the events of one process are handled.
//!
//! The kernel queues an event after it has released the lock of the address space: events of several
//! threads can be queued in another order than their changes were made. A mapping can have been moved
//! to a place whose own UNMAP or REMAP is still to come. Then the REMAP waits until the place was left,
//! and behind it what changes the same pages.

use memfit_os::uffd::Event;
use std::collections::VecDeque;

type Range = (u64, u64);

/// Events that were read and not yet handled, in the order of the kernel's queue.
#[derive(Default)]
pub struct Order(VecDeque<Event>);

impl Order {
    /// Adds one that was read.
    pub fn push(&mut self, event: Event) {
        self.0.push_back(event);
    }

    /// Whether all were handled.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the first event that need not wait. `occupied` says whether some of a range belongs to a
    /// registered mapping, as far as the events handled so far tell.
    pub fn next(&mut self, occupied: impl Fn(u64, u64) -> bool) -> Option<Event> {
        let free = |&i: &usize| {
            let event = &self.0[i];
            !target(event).is_some_and(|(start, end)| occupied(start, end)) && !self.bound(i)
        };
        let i = (0..self.0.len()).find(free)?;
        self.0.remove(i)
    }

    /// Takes all, in order: nothing more is to come, so what still waits for its target to be left
    /// waits in vain.
    pub fn rest(&mut self) -> impl Iterator<Item = Event> {
        std::mem::take(&mut self.0).into_iter()
    }

    /// Whether event `i` must stay behind one of those before it. What leaves a place that a REMAP waits
    /// for passes the REMOVEs and FORKs that wait with it: they came when the place was another's already.
    fn bound(&self, i: usize) -> bool {
        let (event, before) = (&self.0[i], || self.0.range(..i));
        let meets = |range: Range| overlap(changed(event), range);
        let leaves = matches!(event, Event::Unmap { .. } | Event::Remap { .. });
        let passes = leaves && before().filter_map(target).any(meets);
        before().any(|e| match e {
            Event::Remove { .. } | Event::Fork(_) => !passes && meets(changed(e)),
            _ => meets(changed(e)) || !passes && target(e).is_some_and(meets),
        })
    }
}

/// What an event changes; the place that a REMAP goes to left out.
fn changed(event: &Event) -> Range {
    match *event {
        Event::Remove { start, end } | Event::Unmap { start, end } => (start, end),
        Event::Remap { from, len, .. } => (from, from + len),
        Event::Fork(_) => (0, u64::MAX),
        Event::Fault { .. } => (0, 0),
    }
}

/// Where a REMAP moves something to.
fn target(event: &Event) -> Option<Range> {
    match *event {
        Event::Remap { to, len, .. } => Some((to, to + len)),
        _ => None,
    }
}

fn overlap(a: Range, b: Range) -> bool {
    a.0 < b.1 && b.0 < a.1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is taken, with the places that are registered before: an event leaves its own behind and
    /// enters its target.
    fn taken(mut order: Order, mut places: Vec<Range>) -> Vec<Range> {
        let mut out = Vec::new();
        while let Some(event) = order.next(|start, end| places.iter().any(|&p| overlap(p, (start, end)))) {
            places.retain(|&p| !overlap(p, changed(&event)));
            places.extend(target(&event));
            out.push(changed(&event));
        }
        out
    }

    fn order(events: impl IntoIterator<Item = Event>) -> Order {
        Order(events.into_iter().collect())
    }

    const A: Range = (0x1000, 0x2000);
    const B: Range = (0x3000, 0x4000);
    const C: Range = (0x5000, 0x6000);

    fn remap(from: Range, to: Range) -> Event {
        Event::Remap { from: from.0, to: to.0, len: from.1 - from.0 }
    }

    #[test]
    fn a_move_waits_until_its_place_was_left() {
        let events = [remap(A, B), Event::Unmap { start: B.0, end: B.1 }];
        assert_eq!(taken(order(events), vec![A, B]), [B, A]);
    }

    #[test]
    fn in_a_chain_of_moves_the_last_place_is_left_first() {
        let events = [remap(A, B), remap(B, C), Event::Unmap { start: C.0, end: C.1 }];
        assert_eq!(taken(order(events), vec![A, B, C]), [C, B, A]);
    }

    #[test]
    fn what_changes_the_moved_pages_stays_behind_the_move() {
        let events = [remap(A, B), Event::Remove { start: A.0, end: A.1 }, Event::Unmap { start: B.0, end: B.1 }];
        assert_eq!(taken(order(events), vec![A, B]), [B, A, A]);
    }

    #[test]
    fn others_do_not_wait() {
        let events = [remap(A, B), Event::Remove { start: C.0, end: C.1 }];
        assert_eq!(taken(order(events), vec![A, B, C]), [C]);
    }
}
