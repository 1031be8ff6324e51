//! Messages of the userfaultfd: read in batches, put in order, applied; and when they must stay
//! unread.

use super::{End, Server, Waiting, BARE_SLEEPS, FORK_POLL, GATE_HELD, HELD_MS, QUICK_ROUNDS, STRAY_WAITS};
use crate::bare_children;
use crate::fork_children;
use crate::locks::Held;
use crate::mutant::{off, Rule};
use crate::proc::{Broken, Io, Proc};
use crate::state::Shared;
use memfit_core::driver::fork_changes::{Change, Told};
use memfit_core::driver::order::{Event, Now, Pages, Resolved};
use memfit_core::ranges::Ranges;
use memfit_core::{Core, Entry, Page, PageRange};
use memfit_os::event::{poll, poll2};
use memfit_os::memory::futex_wake;
use memfit_os::uffd::{Event as Message, Uffd};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Weak};
use std::time::Instant;

impl Server {
    /// As `drain`, but events stay unread until an announced fork has ended: see [`forks`].
    pub(super) fn drain_faults(&mut self, waiting: &mut Vec<Waiting>) -> Result<usize, End> {
        if self.proc.expected().is_none() {
            return self.drain(waiting);
        }
        let unread = self.proc.uffd.faults_unread();
        if unread == 0 {
            // An event would make the descriptor readable.
            std::thread::sleep(FORK_POLL);
            return Ok(0);
        }
        let (mut messages, since) = (Vec::new(), Instant::now());
        let count = self.receive(&mut messages, unread)?;
        let proc = Arc::clone(&self.proc);
        let mut io = proc.io.lock();
        self.sort_out(messages, waiting, &mut io, since)?;
        Ok(count)
    }

    /// Waits for the first message of a fork child without a stub, and finds out what it has.
    pub(super) fn begin_bare(&mut self, waiting: &mut Vec<Waiting>) -> Result<(), End> {
        let proc = Arc::clone(&self.proc);
        while !proc.uffd.gone() && proc.inherited.lock().is_some() {
            self.try_to_begin_bare(waiting)?;
        }
        Ok(())
    }

    fn try_to_begin_bare(&mut self, waiting: &mut Vec<Waiting>) -> Result<(), End> {
        let proc = Arc::clone(&self.proc);
        let (begun, mut look_at) = (Instant::now(), BARE_SLEEPS);
        while !proc.uffd.gone() && poll([proc.uffd.as_raw_fd()], HELD_MS) == [false] {
            if begun.elapsed() > look_at {
                look_at *= 2;
                if let Some(known) = bare_children::look_asleep(&self.shared, &proc)? {
                    return Ok(bare_children::begin(&self.shared, &proc, known, None)?);
                }
            }
        }
        bare_children::await_told(&proc)?;
        let (mut messages, since, is_event) = (Vec::new(), Instant::now(), proc.event_pending());
        let unread = proc.uffd.faults_unread();
        if !is_event && unread > 0 {
            self.receive(&mut messages, unread)?;
        }
        let tid = messages.iter().find_map(|message| match *message {
            Message::Fault { tid, .. } => Some(tid),
            _ => None,
        });
        if !is_event && tid.is_none() {
            // The thread that had touched a page was interrupted, or has ended.
            return Ok(());
        }
        let known = bare_children::look(&self.shared, &proc, tid)?;
        if is_event && !proc.uffd.gone() {
            // It has waited for this: the mappings were as after this change.
            self.receive(&mut messages, 1)?;
        }
        bare_children::begin(&self.shared, &proc, known, messages.first())?;
        let mut io = proc.io.lock();
        self.sort_out(messages, waiting, &mut io, since)
    }

    /// Reads at most `most` messages. A fork event needs a descriptor for the child, and stays
    /// unread without one.
    fn receive(&mut self, messages: &mut Vec<Message>, most: usize) -> Result<usize, End> {
        loop {
            match self.proc.uffd.read_some(&mut self.inbox, messages, most) {
                Ok(count) => return Ok(count),
                Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => {
                    std::thread::sleep(crate::room::RETRY);
                }
                Err(error) => return Err(Broken(format!("cannot read its userfaultfd: {error}")).into()),
            }
        }
    }

    /// Reads all messages: handles events, and adds faults to `waiting`. Returns how many messages
    /// there were.
    pub(super) fn drain(&mut self, waiting: &mut Vec<Waiting>) -> Result<usize, End> {
        let proc = Arc::clone(&self.proc);
        let mut io = proc.io.lock();
        let gated = io.busy && !off(Rule::Gate);
        if gated && !proc.close_gate_within(GATE_HELD).is_closed()? {
            return self.read_faults(waiting, io);
        }
        let result = self.read_all(waiting, &mut io);
        if gated {
            proc.open_gate();
        }
        if (!self.suspects.is_empty() || !proc.newborn.lock().is_empty()) && !proc.event_pending() {
            self.suspects = Ranges::default();
            fork_children::all_told(&self.shared, &proc, Told::All);
        }
        result
    }

    /// The stub stands still inside of a MOVE: a tracer has stopped it, and may itself wait for a
    /// page now. So only faults are read, which do not change the address space. The kernel returns
    /// them before events, which must wait.
    fn read_faults(&mut self, waiting: &mut Vec<Waiting>, mut io: Held<'_, Io>) -> Result<usize, End> {
        let (unread, since, mut messages) = (self.proc.uffd.faults_unread(), Instant::now(), Vec::new());
        if unread == 0 {
            drop(io);
            std::thread::sleep(FORK_POLL);
            return Ok(0);
        }
        let count = self.receive(&mut messages, unread)?;
        let mut strays = Vec::new();
        for message in messages {
            match Waiting::of(message, since) {
                Ok(fault) => waiting.push(fault),
                Err(other) => strays.push(other),
            }
        }
        if strays.is_empty() {
            return Ok(count);
        }
        // A signal has taken the thread out of its fault since the faults were counted, and an
        // event came in its place. The state of the memory that it concerns is unknown until the
        // stub has left its MOVE.
        let said = format!("{:?} came while its stub was stopped inside of a move", strays[0]);
        strays.into_iter().for_each(|event| self.order.push(event));
        if !self.proc.close_gate_within(STRAY_WAITS).is_closed()? {
            return Err(Broken(said).into());
        }
        self.proc.collect(&self.shared, &mut io, true)?;
        let read = self.read_all(waiting, &mut io);
        self.proc.open_gate();
        read.map(|more| count + more)
    }

    /// Reads until no event waits for another one. Until then the picture of the address space is
    /// wrong, and `io` and the gate keep all threads from acting on it.
    fn read_all(&mut self, waiting: &mut Vec<Waiting>, io: &mut Held<'_, Io>) -> Result<usize, End> {
        let (mut count, mut rounds) = (0, 0);
        loop {
            let mut events = Vec::new();
            let since = Instant::now();
            count += self.receive(&mut events, usize::MAX)?;
            self.sort_out(events, waiting, io, since)?;
            if self.order.is_empty() && !self.order.is_unsure() {
                return Ok(count);
            }
            let pending = self.proc.event_pending();
            if self.order.is_empty() {
                if !pending {
                    self.order.all_read();
                }
                return Ok(count);
            }
            if let Some(there) = if pending { None } else { self.registered_places() } {
                self.proc.collect(&self.shared, io, true)?;
                let steps = self.order.resolve_all(&Kernel { there, shared: &self.shared, proc: &self.proc });
                steps.into_iter().try_for_each(|step| self.step(step))?;
                return Ok(count);
            }
            // The thread that raised the last event may not have run since, which makes nothing
            // readable.
            rounds += 1;
            poll2(self.proc.uffd.as_raw_fd(), -1, i32::from(rounds > QUICK_ROUNDS));
            if rounds <= QUICK_ROUNDS {
                std::thread::sleep(FORK_POLL);
            }
            if self.proc.uffd.gone() {
                return Err(End::Gone);
            }
        }
    }

    fn sort_out(
        &mut self,
        messages: Vec<Message>,
        waiting: &mut Vec<Waiting>,
        io: &mut Held<'_, Io>,
        since: Instant,
    ) -> Result<(), End> {
        if messages.iter().any(|message| !matches!(message, Message::Fault { .. })) {
            let remap = messages.iter().any(|message| matches!(message, Message::Remap { .. }));
            let drain = !(off(Rule::Gate) || (off(Rule::DrainBatch) && remap));
            self.proc.collect(&self.shared, io, drain)?;
        }
        // In the order of the queue, which is nearly that of the changes to the address space: what
        // was moved before a fork must move before the child gets its copy. Faults are served after
        // all events: a page that is filled before its FORK is read would be missing in the child.
        for message in messages {
            if off(Rule::EventsFirst) && !waiting.is_empty() {
                while let Some(fault) = waiting.pop() {
                    self.fault(fault, &mut Vec::new())?;
                }
            }
            match Waiting::of(message, since) {
                Ok(fault) => waiting.push(fault),
                Err(event) => {
                    crate::flight::note(|| format!("process {} reads {event:x?}", self.proc.id.0));
                    self.order.push(event);
                }
            }
        }
        let proc = Arc::clone(&self.proc);
        // Grown memory is in no known region, but may have pages that the core knows.
        let shared = Arc::clone(&self.shared);
        let tracks = |start, end| shared.lock().core.tracks(proc.id, PageRange::from_addresses(start, end));
        let occupied = |start, end| proc.overlaps_region(start, end) || tracks(start, end);
        // Besides that thread there is the stub. It changes nothing registered but mappings of
        // files, while no call of the program changes mappings.
        let alone = || proc.pid().is_some_and(|pid| matches!(memfit_os::procfs::threads(pid), 1..=2));
        while let Some(event) = self.order.next(occupied, alone) {
            self.apply(event);
        }
        Ok(())
    }

    /// Which of the places that decide the order of events are registered; `None` if another event
    /// came meanwhile.
    fn registered_places(&self) -> Option<Vec<u64>> {
        let uffd = &self.proc.uffd;
        let ask = |at: u64| uffd.is_registered(at).map(|there| there.then_some(at));
        let there: Option<Vec<Option<u64>>> = self.order.places().into_iter().map(ask).collect();
        there.filter(|_| !self.proc.event_pending()).map(|places| places.into_iter().flatten().collect())
    }

    fn step(&mut self, step: Resolved<Uffd>) -> Result<(), End> {
        crate::flight::note(|| format!("process {}: all is read: {step:x?}", self.proc.id.0));
        match step {
            Resolved::Handle(event) => self.apply(event),
            Resolved::Appeared(start, end) => {
                self.changed(Change::Came(start, end));
                let (id, range) = (self.proc.id, PageRange::from_addresses(start, end));
                self.shared.in_parts(id, range, |core, part| core.unmapped(id, part));
                // The next scan adopts it.
                self.proc.unconfirmed.lock().add(start, end);
            }
            Resolved::Unclear(at) => {
                let why = format!(
                    "several threads moved memory to and from {at:#x} at once, and the order cannot be determined"
                );
                return Err(Broken(why).into());
            }
        }
        Ok(())
    }

    fn apply(&mut self, event: Event<Uffd>) {
        crate::flight::note(|| format!("process {} handles {event:x?}", self.proc.id.0));
        match event {
            Event::Fork(child) => {
                let last = self.order.is_empty();
                fork_children::forked(&self.shared, &self.proc, child, self.suspects.clone(), last);
                if let Some(ring) = self.proc.ring() {
                    ring.forks.fetch_add(1, SeqCst);
                    futex_wake(&ring.forks);
                }
                self.shared.unnamed.wait_for_few();
            }
            other => {
                self.suspect(&other);
                self.event(&other);
            }
        }
    }

    /// A thread that was about to fork can have released the address space and not queued its event
    /// yet, when another thread changes the address space and queues its own. An event is pending
    /// then.
    fn suspect(&mut self, event: &Event<Uffd>) {
        let (start, end) = match *event {
            Event::Unmap { start, end } => (start, end),
            Event::Remap { from, len, .. } => (from, from + len),
            Event::Remove { .. } | Event::Fork(_) => return,
        };
        if !self.proc.event_pending() {
            return;
        }
        let (proc, mut evicted) = (&self.proc, false);
        self.shared.in_parts(proc.id, PageRange::from_addresses(start, end), |core, part| {
            evicted |= core.pages(proc.id, part).iter().any(|(_, entry)| matches!(entry, Entry::Out(_)));
        });
        if evicted {
            self.suspects.add(start, end);
        }
    }

    /// Notes a change that fork children may have, or not.
    fn changed(&self, change: Change) {
        if let Some(expected) = self.proc.expected() {
            expected.changed(change);
        }
        for child in self.proc.newborn.lock().iter().filter_map(Weak::upgrade) {
            if let Some(inherited) = &mut *child.inherited.lock() {
                inherited.changes.push(change);
            }
        }
    }

    fn event(&self, event: &Event<Uffd>) {
        let (proc, id) = (&self.proc, self.proc.id);
        if let Some(expected) = proc.expected() {
            if let Event::Remove { start, end } = *event {
                if !proc.is_doorbell(start) {
                    expected.dropped((start, end), self.served, |skip| {
                        let mut found = None;
                        self.shared.in_parts(id, PageRange::from_addresses(start, end), |core, part| {
                            let wanted = |&(page, entry): &(Page, Entry)| entry == Entry::Resident && !skip(page);
                            found = found.or_else(|| core.pages(id, part).into_iter().find(wanted));
                        });
                        found.map(|(page, _)| page)
                    });
                }
            }
        }
        match *event {
            Event::Unmap { start, end } => self.changed(Change::Unmapped(start, end)),
            Event::Remap { from, to, len } => self.changed(Change::Moved(from, to, len)),
            _ => {}
        }
        let parts = |start, end, tell: &dyn Fn(&mut Core, PageRange)| {
            self.shared.in_parts(id, PageRange::from_addresses(start, end), tell);
        };
        match *event {
            // The stub empties the doorbell for its next notice.
            Event::Remove { start, .. } if proc.is_doorbell(start) => {}
            Event::Remove { start, end } => {
                parts(start, end, &|core, part| core.removed(id, part));
                if off(Rule::Quarantine) {
                    let mut state = self.shared.lock();
                    let (epoch, pages) = state.core.begin_proof(id);
                    pages.into_iter().for_each(|page| state.core.end_quarantine(id, page, epoch, true));
                    self.shared.apply_effects(state);
                }
            }
            Event::Unmap { start, end } => {
                parts(start, end, &|core, part| core.unmapped(id, part));
                proc.forget_region(start, end);
            }
            Event::Remap { from, to, len } => {
                // The ranges do not overlap: mremap refuses that.
                let target = |part: PageRange| Page(part.first.0 - Page::of(from).0 + Page::of(to).0);
                parts(from, from + len, &|core, part| core.remapped(id, part, target(part)));
                // The kernel moves the registration along.
                proc.move_region(from, to, len);
            }
            Event::Fork(_) => {}
        }
    }
}

/// The address space at a moment without unread events.
struct Kernel<'a> {
    /// Places in registered mappings.
    there: Vec<u64>,
    shared: &'a Shared,
    proc: &'a Proc,
}

impl Now for Kernel<'_> {
    fn is_there(&self, page: u64) -> bool {
        self.there.contains(&page)
    }

    fn pages(&self, from: u64, at: u64, bytes: u64) -> Pages {
        let mut evicted: Vec<u64> = Vec::new();
        self.shared.in_parts(self.proc.id, PageRange::from_addresses(from, from + bytes), |core, part| {
            let pages = core.pages(self.proc.id, part).into_iter();
            let out =
                pages.filter(|(_, entry)| matches!(entry, Entry::Out(_) | Entry::Loading(_) | Entry::Evicting(_)));
            evicted.extend(out.map(|(page, _)| page.address()));
        });
        if evicted.is_empty() {
            return Pages::NoneEvicted;
        }
        // A guard page can look like one in memory.
        let Some(identity) = self.proc.identity.get().filter(|_| !self.proc.has_guards_in(at, at + bytes)) else {
            return Pages::Allow;
        };
        let mut refuted = false;
        let _ = identity.pagemap.present(at, at + bytes, |start, end, _| {
            refuted |= evicted.iter().any(|page| (start..end).contains(&(page - from + at)));
        });
        if refuted {
            Pages::Refute
        } else {
            Pages::Allow
        }
    }
}
