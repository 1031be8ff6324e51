//! The order in which events are handled.
//!
//! The kernel queues an event after it has released the lock of the mappings. So events of several
//! threads can be queued in another order than their changes were made. The events of a single
//! thread come in order.

use crate::config::Rule;
use crate::kernel::Event;
use crate::world::World;
use crate::{page, PageNo, PAGES};
use memfit_core::Entry;

type Pages = std::ops::Range<usize>;

fn pages_of(first: PageNo, pages: u8) -> Pages {
    usize::from(first)..usize::from(first + pages)
}

/// Pages that an event changes, without the target of a REMAP.
fn changed(event: &Event) -> Pages {
    match *event {
        Event::Remove { first, pages } | Event::Unmap { first, pages } => pages_of(first, pages),
        Event::Remap { from, pages, .. } => pages_of(from, pages),
        Event::Fork => 0..PAGES,
    }
}

/// The target of a REMAP.
fn target(event: &Event) -> Pages {
    match *event {
        Event::Remap { to, pages, .. } => pages_of(to, pages),
        _ => 0..0,
    }
}

/// Whether the event takes memory away from its place.
fn leaves(event: &Event) -> bool {
    matches!(event, Event::Unmap { .. } | Event::Remap { .. })
}

fn covers(pages: Pages, page: usize) -> bool {
    pages.contains(&page)
}

impl World<'_> {
    /// Handles events in their order, except those that must wait for a later event. While one
    /// waits, the fault thread keeps `io`, so that no thread acts on the pager's old picture.
    pub(crate) fn handle_all(&mut self, proc: usize, events: Vec<Event>) -> Result<(), String> {
        self.s.procs[proc].postponed.extend(events);
        while let Some(i) = self.next_event(proc) {
            let event = self.s.procs[proc].postponed.remove(i);
            if self.changes.keeps(Rule::Grown) {
                target(&event).for_each(|i| self.s.procs[proc].unsure[i] = true);
            }
            self.event(proc, event);
        }
        if self.s.procs[proc].postponed.is_empty() {
            if !self.event_pending(proc) {
                self.s.procs[proc].unsure = [false; PAGES];
            }
            return Ok(());
        }
        let waiting = self.s.procs[proc].postponed.clone();
        self.say(|| format!("postpones {waiting:?}"));
        if !self.event_pending(proc) {
            // No more events will come, so the events that still wait are handled now.
            self.collect(proc, true)?;
            while !self.s.procs[proc].postponed.is_empty() {
                let event = self.s.procs[proc].postponed.remove(0);
                self.resolve_event(proc, event);
            }
            self.s.procs[proc].unsure = [false; PAGES];
        }
        Ok(())
    }

    /// Handles an event after all events were read.
    fn resolve_event(&mut self, proc: usize, event: Event) {
        if self.changes.keeps(Rule::RemapOrder) {
            while let Some(late) = self.late_for(proc, target(&event)) {
                late.into_iter().for_each(|event| self.resolve_event(proc, event));
            }
        }
        let mut late = [false; PAGES];
        for i in changed(&event).filter(|_| leaves(&event)) {
            late[i] = self.s.procs[proc].unsure[i] && self.is_late(proc, Some(&event), i);
            if let Event::Unmap { .. } = event {
                self.s.procs[proc].unsure[i] = false;
            }
        }
        if self.s.mm[proc].gone {
            return;
        }
        if !late.contains(&true) {
            return self.event(proc, event);
        }
        self.say(|| format!("finds that {event:?} is of what was there before"));
        for (i, late) in changed(&event).map(|i| (i as PageNo, late[i])) {
            match event {
                Event::Remap { from, to, .. } if late => self.came(proc, to + i - from),
                Event::Remap { from, to, .. } => {
                    self.event(proc, Event::Remap { from: i, to: to + i - from, pages: 1 })
                }
                _ if late => {}
                _ => self.event(proc, Event::Unmap { first: i, pages: 1 }),
            }
        }
    }

    /// Removes and returns the events by which an earlier mapping left a place before the REMAP
    /// that is handled next came there.
    fn late_for(&mut self, proc: usize, place: Pages) -> Option<Vec<Event>> {
        for at in 0..self.s.procs[proc].postponed.len() {
            let event = self.s.procs[proc].postponed[at];
            let Some(page) = place.clone().find(|&i| is_unmap(&event) && changed(&event).contains(&i)) else {
                continue;
            };
            if self.is_late(proc, None, page) {
                let waiting = &mut self.s.procs[proc].postponed;
                let moved = |e: &Event| !target(e).is_empty() && covers(changed(e), page);
                let moved = waiting[..at].iter().position(moved);
                let unmap = waiting.remove(at);
                return Some(moved.map(|at| waiting.remove(at)).into_iter().chain([unmap]).collect());
            }
        }
        None
    }

    /// Whether the first UNMAP of a page belongs to the mapping that was there before the REMAP. If
    /// the events do not tell, kills the process.
    fn is_late(&mut self, proc: usize, event: Option<&Event>, page: usize) -> bool {
        if self.s.mm[proc].gone {
            return false;
        }
        let there = self.s.mm[proc].registered(page as PageNo);
        let all = || event.into_iter().chain(&self.s.procs[proc].postponed);
        let of = |e: &&Event| covers(changed(e), page);
        let unmaps = all().filter(of).filter(|e| is_unmap(e)).count();
        let came = 1 + all().filter(|e| covers(target(e), page)).count();
        if unmaps == 0 || usize::from(there) + unmaps != came + 1 {
            return false;
        }
        let moves = all().filter(of).filter(|e| !target(e).is_empty()).count();
        if moves == 0 || (moves, unmaps) == (1, 1) {
            return true;
        }
        self.say(|| format!("cannot tell what left page {page} first: kills the process"));
        self.end_process(proc as u8);
        false
    }

    /// Index of the first event that need not wait: its target is free, and it changes no page of a
    /// waiting event ahead of it.
    fn next_event(&self, proc: usize) -> Option<usize> {
        let p = &self.s.procs[proc];
        let tracked = |i: usize| {
            self.changes.keeps(Rule::Grown) && self.core.entry(p.core_id(), page(i as PageNo)) != Entry::Untracked
        };
        let occupied = |event: &Event| target(event).any(|i| p.regions[i] || tracked(i));
        let unsure = |event: &Event| leaves(event) && changed(event).any(|i| p.unsure[i]);
        let waits = |event: &Event| unsure(event) || (self.changes.keeps(Rule::RemapOrder) && occupied(event));
        let met = |event: &Event, by: &Event| changed(event).any(|i| covers(changed(by), i) || covers(target(by), i));
        let free = |&at: &usize| {
            let event = &p.postponed[at];
            !waits(event) && !p.postponed[..at].iter().any(|by| met(event, by))
        };
        (0..p.postponed.len()).find(free)
    }
}

fn is_unmap(event: &Event) -> bool {
    matches!(event, Event::Unmap { .. })
}
