//! In which order events are handled.
//!
//! The kernel queues an event after it has released the locks of the mappings: events of several
//! threads may be queued in another order than their changes were made. Alone they would be handled
//! as they come.

use crate::config::Rule;
use crate::kernel::Event;
use crate::world::World;
use crate::{page, PageNo, PAGES};
use memfit_core::Entry;

type Pages = std::ops::Range<usize>;

fn pages_of(first: PageNo, pages: u8) -> Pages {
    usize::from(first)..usize::from(first + pages)
}

/// What an event changes; the place that a REMAP goes to left out.
fn changed(event: &Event) -> Pages {
    match *event {
        Event::Remove { first, pages } | Event::Unmap { first, pages } => pages_of(first, pages),
        Event::Remap { from, pages, .. } => pages_of(from, pages),
        Event::Fork => 0..PAGES,
    }
}

/// The place that a REMAP goes to.
fn target(event: &Event) -> Pages {
    match *event {
        Event::Remap { to, pages, .. } => pages_of(to, pages),
        _ => 0..0,
    }
}

/// Whether it takes memory away from where it was.
fn leaves(event: &Event) -> bool {
    matches!(event, Event::Unmap { .. } | Event::Remap { .. })
}

fn covers(pages: Pages, page: usize) -> bool {
    pages.contains(&page)
}

impl World<'_> {
    /// Handles events in their order, but for those that must wait for one behind them. While one
    /// waits, nobody may do anything by what the pager knows: `io` is held until its time has come.
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
            // Nothing more is to come: what still waits for its target to be left waits in vain.
            self.collect(proc, true)?;
            while !self.s.procs[proc].postponed.is_empty() {
                let event = self.s.procs[proc].postponed.remove(0);
                self.resolve_event(proc, event);
            }
            self.s.procs[proc].unsure = [false; PAGES];
        }
        Ok(())
    }

    /// Handles an event when all are read.
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

    /// Takes the events by which a mapping had left a place before the REMAP that is to be handled
    /// next came there.
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

    /// Whether the first UNMAP of a page is of what was there before the mapping that came. The
    /// process is killed if that cannot be told.
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

    /// The first event that need not wait: its target is free, and none before it waits that it
    /// must follow.
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
