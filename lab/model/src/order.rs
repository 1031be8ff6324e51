//! The order in which events are handled: the pager's own [`Order`] between the model's kernel and
//! its table.

use crate::config::Rule;
use crate::kernel::{Event, Mm};
use crate::world::World;
use crate::{page, PageNo, BASE, PAGES};
use memfit_core::driver::order::{self, Now, Pages, Resolved};
use memfit_core::{Core, Entry, Page, ProcId, PAGE_BYTES};

fn address(number: PageNo) -> u64 {
    page(number).address()
}

/// The page of the model at an address, if it is one.
fn number(address: u64) -> Option<PageNo> {
    let number = (address / PAGE_BYTES).checked_sub(BASE)?;
    (number < PAGES as u64).then_some(number as PageNo)
}

fn of_kernel(event: Event) -> order::Event<()> {
    match event {
        Event::Remove { first, pages } => order::Event::Remove { start: address(first), end: address(first + pages) },
        Event::Unmap { first, pages } => order::Event::Unmap { start: address(first), end: address(first + pages) },
        Event::Remap { from, to, pages } => {
            order::Event::Remap { from: address(from), to: address(to), len: u64::from(pages) * PAGE_BYTES }
        }
        Event::Fork => order::Event::Fork(()),
    }
}

fn to_kernel(event: &order::Event<()>) -> Event {
    let first = |at| number(at).expect("the model has this page");
    let pages = |bytes| (bytes / PAGE_BYTES) as u8;
    match *event {
        order::Event::Remove { start, end } => Event::Remove { first: first(start), pages: pages(end - start) },
        order::Event::Unmap { start, end } => Event::Unmap { first: first(start), pages: pages(end - start) },
        order::Event::Remap { from, to, len } => Event::Remap { from: first(from), to: first(to), pages: pages(len) },
        order::Event::Fork(()) => Event::Fork,
    }
}

/// The address space at a moment without unread events.
struct AllRead<'a> {
    mm: &'a Mm,
    core: &'a Core,
    id: ProcId,
}

impl Now for AllRead<'_> {
    fn is_there(&self, address: u64) -> bool {
        number(address).is_some_and(|number| self.mm.registered(number))
    }

    fn pages(&self, from: u64, at: u64, bytes: u64) -> Pages {
        let out = |entry| matches!(entry, Entry::Out(_) | Entry::Loading(_) | Entry::Evicting(_));
        let all = (0..bytes).step_by(PAGE_BYTES as usize);
        let evicted: Vec<u64> = all.filter(|by| out(self.core.entry(self.id, Page::of(from + by)))).collect();
        let present = |by: u64| number(at + by).is_some_and(|number| self.mm.pte[usize::from(number)].is_some());
        match () {
            () if evicted.is_empty() => Pages::NoneEvicted,
            () if evicted.into_iter().any(present) => Pages::Refute,
            () => Pages::Allow,
        }
    }
}

impl World<'_> {
    /// Handles events in their order, except those that must wait for a later event. While one
    /// waits, the fault thread keeps `io`, so that no thread acts on the pager's old picture.
    pub(crate) fn handle_all(&mut self, proc: usize, events: Vec<Event>) -> Result<(), String> {
        if !self.changes.keeps(Rule::RemapOrder) {
            events.into_iter().for_each(|event| self.event(proc, event));
            return Ok(());
        }
        events.into_iter().for_each(|event| self.s.procs[proc].order.push(of_kernel(event)));
        while let Some(event) = self.next_event(proc) {
            self.event(proc, event);
        }
        let pending = self.event_pending(proc);
        if self.s.procs[proc].order.is_empty() {
            if !pending {
                self.s.procs[proc].order.all_read();
            }
            return Ok(());
        }
        self.say(|| "waits for the events that explain those that were read".into());
        if !pending {
            // No more events will come, so the events that still wait are handled now.
            self.collect(proc, true)?;
            let id = self.s.procs[proc].core_id();
            let now = AllRead { mm: &self.s.mm[proc], core: &self.core, id };
            let steps = self.s.procs[proc].order.resolve_all(&now);
            steps.iter().for_each(|step| self.resolved(proc, step));
        }
        Ok(())
    }

    fn resolved(&mut self, proc: usize, step: &Resolved<()>) {
        if self.s.mm[proc].gone {
            return;
        }
        match step {
            Resolved::Handle(event) => self.event(proc, to_kernel(event)),
            &Resolved::Appeared(start, end) => {
                (start..end).step_by(PAGE_BYTES as usize).filter_map(number).for_each(|page| self.came(proc, page));
            }
            Resolved::Unclear(address) => {
                self.say(|| format!("cannot tell what left {address:#x} first: kills the process"));
                self.end_process(proc as u8);
            }
        }
    }

    /// Takes the first event that need not wait.
    fn next_event(&mut self, proc: usize) -> Option<Event> {
        let keeps = self.changes.keeps(Rule::Grown);
        let p = &mut self.s.procs[proc];
        let (id, regions, core) = (p.core_id(), p.regions, &self.core);
        let tracked = |number| keeps && core.entry(id, page(number)) != Entry::Untracked;
        let occupied = |start: u64, end: u64| {
            let mut numbers = (start..end).step_by(PAGE_BYTES as usize).filter_map(number);
            numbers.any(|number| regions[usize::from(number)] || tracked(number))
        };
        p.order.next(occupied, || !keeps).map(|event| to_kernel(&event))
    }
}
