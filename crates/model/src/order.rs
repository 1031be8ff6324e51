//! In which order events are handled.
//!
//! The kernel queues an event after it has released the locks of the mappings: events of several threads may be queued
//! in another order than their changes were made. Alone they would be handled as they come.

use crate::config::Rule;
use crate::kernel::Event;
use crate::world::World;
use crate::PageNo;

type Pages = std::ops::Range<usize>;

fn pages_of(first: PageNo, pages: u8) -> Pages {
    usize::from(first)..usize::from(first + pages)
}

/// What an event changes; the place that a REMAP goes to left out.
fn changed(event: &Event) -> Pages {
    match *event {
        Event::Remove { first, pages } | Event::Unmap { first, pages } => pages_of(first, pages),
        Event::Remap { from, pages, .. } => pages_of(from, pages),
        Event::Fork => 0..crate::PAGES,
    }
}

/// The place that a REMAP goes to.
fn target(event: &Event) -> Pages {
    match *event {
        Event::Remap { to, pages, .. } => pages_of(to, pages),
        _ => 0..0,
    }
}

/// Whether an event must stay behind those that wait before it. What leaves a place that a REMAP waits for passes the
/// REMOVEs and FORKs that wait with it: they came when the place was another's already.
fn bound(event: &Event, before: &[Event]) -> bool {
    let meets = |mut pages: Pages| pages.any(|i| changed(event).contains(&i));
    let leaves = matches!(event, Event::Unmap { .. } | Event::Remap { .. });
    let passes = leaves && before.iter().any(|e| meets(target(e)));
    before.iter().any(|e| match e {
        Event::Remove { .. } | Event::Fork => !passes && meets(changed(e)),
        _ => meets(changed(e)) || !passes && meets(target(e)),
    })
}

impl World<'_> {
    /// Handles events in their order, but for those that must wait for one behind them. While one waits, nobody may do
    /// anything by what the pager knows: `io` is held until its time has come.
    pub(crate) fn handle_all(&mut self, proc: usize, events: Vec<Event>) -> Result<(), String> {
        self.s.procs[proc].postponed.extend(events);
        while let Some(i) = self.next_event(proc) {
            let event = self.s.procs[proc].postponed.remove(i);
            self.event(proc, event);
        }
        if self.s.procs[proc].postponed.is_empty() {
            return Ok(());
        }
        let waiting = self.s.procs[proc].postponed.clone();
        self.say(|| format!("postpones {waiting:?}"));
        if !self.event_pending(proc) {
            // Nothing more is to come: what still waits for its target to be left waits in vain.
            self.collect(proc, true)?;
            self.s.procs[proc].postponed.clear();
            waiting.into_iter().for_each(|event| self.event(proc, event));
        }
        Ok(())
    }

    /// The first event that need not wait: its target is free, and none before it waits that it must follow.
    fn next_event(&self, proc: usize) -> Option<usize> {
        let p = &self.s.procs[proc];
        let occupied = |event: &Event| target(event).any(|i| p.regions[i]);
        let waits = |event: &Event| self.changes.keeps(Rule::RemapOrder) && occupied(event);
        let free = |&i: &usize| !waits(&p.postponed[i]) && !bound(&p.postponed[i], &p.postponed[..i]);
        (0..p.postponed.len()).find(free)
    }
}
