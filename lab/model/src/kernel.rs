//! The kernel's side of one process: page tables, mappings, the userfaultfd with its queues.
//!
//! Follows Linux 6.18. The fault queue is read before the event queue. An event is pending from the
//! change of the mappings until the thread that raised it resumes; COPY and MOVE fail with EAGAIN
//! meanwhile. MOVE checks the registration of its destination only.

use crate::cell::Cell;
use crate::{PageNo, PAGES};
use std::collections::VecDeque;

/// A page in the program's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pte {
    /// Its contents.
    pub value: u8,
    /// Freed by MADV_FREE and not written since: the kernel may drop it.
    pub lazy: bool,
    /// Shared with a fork relative: MOVE returns EBUSY.
    pub shared: bool,
    /// A mapping of the zero page; fork does not copy it.
    pub zero: bool,
}

impl Pte {
    /// A private page.
    pub fn of(value: u8) -> Pte {
        Pte { value, lazy: false, shared: false, zero: false }
    }
}

/// The mapping at a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Vma {
    /// Identifies the mapping.
    pub id: u8,
    /// Registered with the process's userfaultfd.
    pub registered: bool,
    /// PROT_READ only.
    pub read_only: bool,
}

/// An event of the userfaultfd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Event {
    Remove { first: PageNo, pages: u8 },
    Unmap { first: PageNo, pages: u8 },
    Remap { from: PageNo, to: PageNo, pages: u8 },
    Fork,
}

/// A message that the pager reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Message {
    Fault(PageNo),
    Event(Event),
}

/// Result of a COPY.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Fill {
    Done,
    Exists,
    /// EAGAIN after this many pages: an event is pending, or a later page was present.
    Again(u8),
    NotMapped,
    Gone,
}

/// Why a MOVE stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Errno {
    None,
    Again,
    Busy,
    NoEntry,
    Invalid,
    Exists,
}

/// The memory of a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Mm {
    /// Mappings.
    pub vma: [Option<Vma>; PAGES],
    /// Page table.
    pub pte: [Option<Pte>; PAGES],
    /// The values that the program may read.
    pub cell: [Cell; PAGES],
    /// Number of events raised whose threads have not resumed.
    pub changing: u8,
    /// Unread faults, with their threads.
    pub faults: VecDeque<(PageNo, u8)>,
    /// Unread events, with their threads.
    pub events: VecDeque<(Event, u8)>,
    /// The stub's bounce window.
    pub window: [Option<Pte>; PAGES],
    /// All threads have ended.
    pub gone: bool,
    next_vma: u8,
}

fn span(first: PageNo, pages: u8) -> std::ops::Range<usize> {
    usize::from(first)..usize::from(first) + usize::from(pages)
}

impl Mm {
    /// Maps pages with contents zero.
    pub fn map(&mut self, first: PageNo, pages: u8, registered: bool) {
        self.next_vma += 1;
        for i in span(first, pages) {
            self.vma[i] = Some(Vma { id: self.next_vma, registered, read_only: false });
            self.pte[i] = None;
            self.cell[i] = Cell::of(0);
        }
    }

    /// Whether a page of the range is registered.
    pub fn any_registered(&self, first: PageNo, pages: u8) -> bool {
        span(first, pages).any(|i| self.registered(i as PageNo))
    }

    /// Whether a page is registered.
    pub fn registered(&self, page: PageNo) -> bool {
        self.vma[usize::from(page)].is_some_and(|v| v.registered)
    }

    /// Removes the mapping. Returns whether an UNMAP event must follow.
    pub fn unmap(&mut self, first: PageNo, pages: u8) -> bool {
        let event = self.any_registered(first, pages);
        for i in span(first, pages) {
            (self.vma[i], self.pte[i]) = (None, None);
        }
        self.changing += u8::from(event);
        event
    }

    /// mremap. Returns whether REMAP and UNMAP events must follow; both are pending already.
    pub fn remap(&mut self, from: PageNo, to: PageNo, pages: u8) -> bool {
        let event = self.any_registered(from, pages);
        self.next_vma += 1;
        for (f, t) in span(from, pages).zip(span(to, pages)) {
            self.vma[t] = self.vma[f].take().map(|v| Vma { id: self.next_vma, ..v });
            self.pte[t] = self.pte[f].take();
            self.cell[t] = self.cell[f].elsewhere();
        }
        self.changing += 2 * u8::from(event);
        event
    }

    /// A MADV_DONTNEED or MADV_FREE reaches the page tables.
    pub fn zap(&mut self, first: PageNo, pages: u8, free: bool) {
        for i in span(first, pages).filter(|&i| self.vma[i].is_some()) {
            match (&mut self.pte[i], free) {
                (Some(pte), true) => pte.lazy |= !pte.shared,
                (pte, _) => *pte = None,
            }
            self.cell[i].removal_ends(free);
        }
    }

    /// A removal begins. Returns whether a REMOVE event must be read before the zap.
    pub fn removal_begins(&mut self, first: PageNo, pages: u8) -> bool {
        for i in span(first, pages) {
            self.cell[i].removal_begins();
        }
        let event = self.any_registered(first, pages);
        self.changing += u8::from(event);
        event
    }

    /// Makes the memory of a fork child.
    pub fn fork(&mut self) -> Mm {
        for pte in self.pte.iter_mut().flatten() {
            pte.shared = true;
        }
        let cell = self.cell.map(Cell::elsewhere);
        let pte = self.pte.map(|pte| pte.filter(|p| !p.zero));
        let child = Mm { vma: self.vma, pte, cell, next_vma: self.next_vma, ..Mm::default() };
        self.changing += u8::from(child.vma.iter().flatten().any(|v| v.registered));
        child
    }

    /// UFFDIO_COPY. All pages must lie in one registered mapping.
    pub fn copy(&mut self, first: PageNo, values: &[u8]) -> Fill {
        if self.gone {
            return Fill::Gone;
        }
        if self.changing > 0 {
            return Fill::Again(0);
        }
        let all = span(first, values.len() as u8);
        let vma = self.vma[all.start];
        if all.end > PAGES || !vma.is_some_and(|v| v.registered) || self.vma[all.clone()].iter().any(|v| *v != vma) {
            return Fill::NotMapped;
        }
        for (done, i) in all.enumerate() {
            if self.pte[i].is_some() {
                return if done == 0 { Fill::Exists } else { Fill::Again(done as u8) };
            }
            self.pte[i] = Some(Pte::of(values[done]));
        }
        Fill::Done
    }

    /// UFFDIO_MOVE of `pages` pages into the window at `to`. Returns the number of pages moved and
    /// what stopped it.
    pub fn take(&mut self, first: PageNo, pages: u8, to: usize) -> (u8, Errno) {
        if self.changing > 0 {
            return (0, Errno::Again);
        }
        let all = span(first, pages);
        let vmas = &self.vma[all.clone()];
        if vmas.iter().any(Option::is_none) {
            return (0, Errno::NoEntry);
        }
        if vmas.iter().flatten().any(|v| v.read_only) {
            return (0, Errno::Invalid);
        }
        for (done, i) in all.enumerate() {
            let errno = match (self.pte[i], self.window[to + done]) {
                (_, Some(_)) => Errno::Exists,
                (None, _) => Errno::NoEntry,
                (Some(pte), _) if pte.shared => Errno::Busy,
                _ => Errno::None,
            };
            if errno != Errno::None {
                // After partial progress the kernel returns EAGAIN, whatever the reason.
                return (done as u8, if done > 0 { Errno::Again } else { errno });
            }
            self.window[to + done] = self.pte[i].take();
        }
        (pages, Errno::None)
    }

    /// Reads the next message, faults first, and its thread, which an event must resume.
    pub fn read(&mut self) -> Option<(Message, u8)> {
        if let Some((page, thread)) = self.faults.pop_front() {
            return Some((Message::Fault(page), thread));
        }
        let (event, thread) = self.events.pop_front()?;
        Some((Message::Event(event), thread))
    }

    /// Whether poll reports something to read.
    pub fn readable(&self) -> bool {
        !self.faults.is_empty() || !self.events.is_empty()
    }
}
