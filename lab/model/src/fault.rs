//! The fault thread of a process, as in the pager's `fault.rs`: reads messages, handles events,
//! serves faults.

use crate::config::Rule;
use crate::kernel::{Event, Fill, Message};
use crate::pager::Place;
use crate::program::Pc as ThreadPc;
use crate::world::{Actor, World};
use crate::{page, range, PageNo, BASE, PAGES};
use memfit_core::{Entry, Fault, Filled, PageRange};

/// Position of the fault thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Pc {
    /// Polls.
    #[default]
    Idle,
    /// Before `drain`, in the loop of a fault, takes `io` and closes the gate.
    Drain,
    /// Reads one message, once the stub is outside of its MOVE.
    Read,
    /// Before it asks the core about the fault.
    Ask,
    /// Before a COPY.
    Copy,
    /// Before it reports the result of the COPY to the core.
    Finish(Fill),
    /// Before the COPY that verifies a page that should be present.
    Verify,
    /// Before `drain_batch` takes `io` and closes the gate.
    DrainBatch,
    /// Waits for the stub to leave its MOVE.
    Collect,
    /// The memory is gone.
    Gone,
    /// Before it removes the process.
    Remove,
    /// Ended.
    Ended,
}

/// The thread's variables.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FaultThread {
    /// Position in its loop.
    pub pc: Pc,
    read: Vec<Message>,
    waiting: Vec<PageNo>,
    serving: Option<PageNo>,
    loads: Vec<(PageNo, Place)>,
    /// The faulting page and the pages above it, while `loads` has the pages below it.
    above: Vec<(PageNo, Place)>,
    values: Vec<u8>,
    from: u8,
    /// Events that a broken rule postpones.
    late: Vec<Event>,
}

impl World<'_> {
    pub(crate) fn fault_enabled(&self, proc: usize) -> bool {
        let (p, mm) = (&self.s.procs[proc], &self.s.mm[proc]);
        let free = p.io.is_none();
        match self.s.faults[proc].pc {
            Pc::Idle => p.id.is_some() && (mm.gone || (mm.readable() && free)),
            // Otherwise it would find the same event pending again.
            Pc::Drain => free && (mm.readable() || mm.changing == 0 || mm.gone || !self.s.faults[proc].late.is_empty()),
            // While events wait, only a further message or the end of all pending events matters.
            Pc::Read if self.waits_locked(proc) => mm.readable() || mm.changing == 0 || mm.gone,
            Pc::Read | Pc::Collect => self.gate_clear(proc),
            Pc::DrainBatch | Pc::Remove => free,
            Pc::Verify => free || !self.changes.keeps(Rule::VerifyLocked),
            // Without rule 5 it spins until the event is handled, which no thread does.
            Pc::Ask if mm.changing > 0 && !self.changes.keeps(Rule::R5Retry) => false,
            Pc::Ended => false,
            _ => true,
        }
    }

    pub(crate) fn step_fault(&mut self, proc: usize) -> Result<(), String> {
        let gone = self.s.mm[proc].gone;
        match self.s.faults[proc].pc {
            Pc::Idle if gone => self.s.faults[proc].pc = Pc::Gone,
            Pc::Idle | Pc::Drain => self.begin_io(proc, Pc::Read),
            Pc::Read => self.read_message(proc)?,
            Pc::Ask => self.ask(proc),
            Pc::Copy => self.copy_loads(proc)?,
            Pc::Finish(fill) => self.finish(proc, fill),
            Pc::Verify => self.verify(proc)?,
            Pc::DrainBatch => self.begin_io(proc, Pc::Collect),
            Pc::Collect => {
                self.collect(proc, true)?;
                self.end_io(proc);
                self.s.faults[proc].pc = Pc::Drain;
            }
            Pc::Gone => {
                self.say(|| "finds the memory gone".into());
                (self.s.procs[proc].dead, self.s.procs[proc].listed) = (true, false);
                self.s.faults[proc] = FaultThread { pc: Pc::Remove, ..FaultThread::default() };
            }
            Pc::Remove => {
                self.say(|| "removes the process".into());
                let id = self.s.procs[proc].core_id();
                let before = self.entries();
                self.s.procs[proc].removed = true;
                self.call("remove_process", |core| core.remove_process(id));
                self.note_since(before, "remove_process");
                self.s.faults[proc].pc = Pc::Ended;
            }
            Pc::Ended => {}
        }
        Ok(())
    }

    fn begin_io(&mut self, proc: usize, then: Pc) {
        self.s.procs[proc].io = Some(Actor::Fault(proc as u8));
        let gated = proc == 0 && self.close_gate(proc);
        self.say(|| format!("takes io{}", if gated { ", closes the gate" } else { "" }));
        self.s.faults[proc].pc = then;
    }

    fn end_io(&mut self, proc: usize) {
        if proc == 0 {
            self.open_gate();
        }
        self.s.procs[proc].io = None;
    }

    fn read_message(&mut self, proc: usize) -> Result<(), String> {
        if let Some((message, thread)) = self.s.mm[proc].read() {
            self.say(|| format!("reads {message:?}"));
            if let Message::Event(_) = message {
                let t = &mut self.s.threads[usize::from(thread)];
                if let ThreadPc::InEvent(after) = t.pc {
                    t.pc = ThreadPc::Resume(after);
                }
            }
            self.s.faults[proc].read.push(message);
            return Ok(());
        }
        self.sort_out(proc)?;
        if self.waits_locked(proc) && !self.s.mm[proc].gone {
            return Ok(());
        }
        self.end_io(proc);
        let in_fault = self.s.faults[proc].serving.is_some();
        if self.s.mm[proc].gone {
            self.s.faults[proc].pc = Pc::Gone;
        } else if in_fault {
            self.s.faults[proc].pc = Pc::Ask;
        } else {
            self.next_fault(proc);
        }
        Ok(())
    }

    /// Whether events wait for a later event, so that the fault thread keeps `io`.
    fn waits_locked(&self, proc: usize) -> bool {
        !self.s.procs[proc].order.is_empty() && self.changes.keeps(Rule::RemapLocked)
    }

    fn sort_out(&mut self, proc: usize) -> Result<(), String> {
        let f = &mut self.s.faults[proc];
        let mut events = std::mem::take(&mut f.late);
        let mut faults = Vec::new();
        for message in std::mem::take(&mut f.read) {
            match message {
                Message::Fault(page) => faults.push(page),
                Message::Event(event) => events.push(event),
            }
        }
        let fresh = !faults.is_empty();
        f.waiting.append(&mut faults);
        if fresh && !self.changes.keeps(Rule::R20) {
            self.s.faults[proc].late = events;
            return Ok(());
        }
        if self.drains_first(&events) {
            self.collect(proc, true)?;
        }
        let is_fork = |e: &Event| *e == Event::Fork;
        if !self.changes.keeps(Rule::R20Fork) {
            let (late, now) = events.into_iter().partition(is_fork);
            (self.s.faults[proc].late, events) = if fresh { (late, now) } else { (Vec::new(), [now, late].concat()) };
        } else if !self.changes.keeps(Rule::R20Hoist) {
            let (forks, others): (Vec<_>, Vec<_>) = events.into_iter().partition(is_fork);
            events = [forks, others].concat();
        }
        self.handle_all(proc, events)
    }

    fn drains_first(&self, events: &[Event]) -> bool {
        let broken = |event: &Event| match event {
            Event::Remap { .. } => !self.changes.keeps(Rule::R6),
            Event::Fork => !self.changes.keeps(Rule::R11),
            _ => false,
        };
        !events.is_empty() && self.changes.keeps(Rule::R3Cancel) && !events.iter().any(broken)
    }

    pub(crate) fn event(&mut self, proc: usize, event: Event) {
        self.say(|| format!("handles {event:?}"));
        let id = self.s.procs[proc].core_id();
        match event {
            Event::Remove { first, pages } if !self.changes.keeps(Rule::R8) => {
                for i in first..first + pages {
                    if matches!(self.core.entry(id, page(i)), Entry::Out(_)) {
                        self.call("removed", |core| core.removed(id, range(i, 1)));
                    }
                }
            }
            Event::Remove { first, pages } => {
                self.call("removed", |core| core.removed(id, range(first, pages)));
                if !self.changes.keeps(Rule::ZapPending) {
                    let (newest, _) = self.call("begin_proof", |core| core.begin_proof(id));
                    self.call("end_zap_pending", |core| core.end_zap_pending(id, newest));
                }
            }
            Event::Unmap { first, pages } => {
                self.call("unmapped", |core| core.unmapped(id, range(first, pages)));
                self.set_regions(proc, first, pages, false);
            }
            Event::Remap { from, to, pages } => {
                self.call("remapped", |core| core.remapped(id, range(from, pages), page(to)));
                // The kernel keeps the registration of moved memory.
                self.set_regions(proc, to, pages, true);
            }
            Event::Fork => self.forked(),
        }
    }

    /// Memory without known pages was moved to this page.
    pub(crate) fn came(&mut self, proc: usize, number: PageNo) {
        let id = self.s.procs[proc].core_id();
        self.call("unmapped", |core| core.unmapped(id, range(number, 1)));
        self.set_regions(proc, number, 1, true);
    }

    fn set_regions(&mut self, proc: usize, first: PageNo, pages: u8, registered: bool) {
        let first = usize::from(first);
        self.s.procs[proc].regions[first..first + usize::from(pages)].fill(registered);
    }

    fn forked(&mut self) {
        let parent = self.s.procs[0].core_id();
        let before = self.entries();
        let (id, area) = self.call("forked", |core| {
            let made = core.forked(parent, PAGES as u32, true);
            core.inherit(made.0, PageRange::ALL);
            made
        });
        let regions = self.s.procs[0].regions;
        let child = &mut self.s.procs[1];
        (child.id, child.regions, child.listed) = (Some((id.0, area.0)), regions, true);
        self.note_since(before, "forked");
    }

    /// Ends the current fault and begins with the fault that was read last.
    fn next_fault(&mut self, proc: usize) {
        let f = &mut self.s.faults[proc];
        f.loads.clear();
        f.above.clear();
        f.values.clear();
        f.from = 0;
        f.serving = f.waiting.pop();
        f.pc = match (f.serving, f.late.is_empty()) {
            (Some(_), _) => Pc::Ask,
            (None, true) => Pc::Idle,
            (None, false) => Pc::Drain,
        };
    }

    fn faulting(&self, proc: usize) -> PageNo {
        self.s.faults[proc].serving.expect("a fault is being served")
    }

    fn ask(&mut self, proc: usize) {
        let number = self.faulting(proc);
        let (id, limit) = (self.s.procs[proc].core_id(), self.region_of(proc, number));
        let mut loads = Vec::new();
        let answer = self.call("fault", |core| core.fault(id, page(number), limit, u32::MAX, &mut loads));
        if self.scenario.around > 1 {
            let asked = &mut self.s.asked;
            asked.push(number);
            asked.drain(..asked.len().saturating_sub(4));
        }
        self.say(|| format!("asks the core about page {number}: {answer:?} {}", loads.len()));
        let f = &mut self.s.faults[proc];
        f.loads = loads.iter().map(|l| ((l.page.0 - BASE) as PageNo, (&l.source).into())).collect();
        // The pages below come first, by a COPY of their own.
        if let Some(below) = f.loads.iter().position(|&(page, _)| page < number) {
            let below = f.loads.split_off(below);
            f.above = std::mem::replace(&mut f.loads, below);
        }
        (f.from, f.pc) = match answer {
            Fault::Load => (0, Pc::Copy),
            Fault::Present => (0, Pc::Verify),
            Fault::Evicting => (0, Pc::DrainBatch),
            Fault::Busy => return self.next_fault(proc),
        };
    }

    fn region_of(&self, proc: usize, number: PageNo) -> PageRange {
        let regions = &self.s.procs[proc].regions;
        let i = usize::from(number);
        if !regions[i] {
            return range(number, 1);
        }
        let start = (0..=i).rev().take_while(|&j| regions[j]).last().unwrap_or(i);
        let end = (i..PAGES).take_while(|&j| regions[j]).last().unwrap_or(i);
        range(start as PageNo, (end + 1 - start) as u8)
    }

    fn copy_loads(&mut self, proc: usize) -> Result<(), String> {
        let f = &self.s.faults[proc];
        let from = usize::from(f.from);
        let mut values = f.values.clone();
        if from == 0 {
            values = f.loads.iter().map(|&(_, place)| self.read_source(place)).collect::<Result<_, _>>()?;
        }
        let (first, alone) = (f.loads[from].0, f.above.is_empty() && f.loads.len() == 1);
        let fill = self.fill(proc, first, &values[from..]);
        if alone && fill == Fill::Done {
            self.say(|| format!("wakes page {first} with the copy"));
            self.wake(proc as u8, first, 1);
        }
        let f = &mut self.s.faults[proc];
        (f.values, f.pc) = (values, Pc::Finish(fill));
        Ok(())
    }

    /// Reports the results of the loads from `from` on to the core.
    fn finish(&mut self, proc: usize, mut fill: Fill) {
        let below = !self.s.faults[proc].above.is_empty();
        let awake = !below && self.s.faults[proc].loads.len() == 1 && fill == Fill::Done;
        if fill == Fill::Again(0) && !self.changes.keeps(Rule::R5Done) {
            fill = Fill::Done;
        }
        let f = &self.s.faults[proc];
        let (from, count) = (usize::from(f.from), f.loads.len());
        let (done, exists) = match fill {
            Fill::Done => (count - from, false),
            Fill::Exists => (0, true),
            Fill::Again(n) => (usize::from(n), false),
            Fill::NotMapped | Fill::Gone => (0, false),
        };
        let reached = from + done + usize::from(exists);
        let again = reached < count && (done > 0 || exists);
        let (id, loads) = (self.s.procs[proc].core_id(), f.loads.clone());
        self.call("loaded", |core| {
            for (i, &(number, _)) in loads[from..].iter().enumerate() {
                let outcome = match i {
                    i if i < done => Filled::Done,
                    i if i == done && exists => Filled::Exists,
                    _ if again => break,
                    _ => Filled::Retry,
                };
                core.loaded(id, page(number), outcome);
            }
        });
        let lost = fill == Fill::NotMapped && from == 0;
        let above = if again { Vec::new() } else { std::mem::take(&mut self.s.faults[proc].above) };
        if fill == Fill::Gone {
            self.call("loaded", |core| {
                above.iter().for_each(|&(number, _)| core.loaded(id, page(number), Filled::Retry));
            });
            self.s.faults[proc].pc = Pc::Gone;
        } else if again {
            (self.s.faults[proc].from, self.s.faults[proc].pc) = (reached as u8, Pc::Copy);
        } else if below {
            let f = &mut self.s.faults[proc];
            f.values.clear();
            (f.loads, f.from, f.pc) = (above, 0, Pc::Copy);
        } else if reached > 0 || lost {
            let pages = reached.max(1);
            if !awake {
                self.say(|| format!("wakes {pages} pages at {}", loads[0].0));
                self.wake(proc as u8, loads[0].0, pages as u8);
            }
            self.next_fault(proc);
        } else {
            self.retry(proc);
        }
    }

    fn retry(&mut self, proc: usize) {
        self.s.faults[proc].pc = if self.changes.keeps(Rule::R5Retry) { Pc::Drain } else { Pc::Ask };
    }

    /// Verifies a page that the table has as Resident. If it is absent, a page was lost. `io` is
    /// held so that no batch takes the page between the look at the table and the COPY.
    fn verify(&mut self, proc: usize) -> Result<(), String> {
        let number = self.faulting(proc);
        let entry = self.core.entry(self.s.procs[proc].core_id(), page(number));
        if self.changes.keeps(Rule::VerifyLocked) && entry != Entry::Resident {
            self.retry(proc);
            return Ok(());
        }
        match self.fill(proc, number, &[0]) {
            Fill::Exists | Fill::NotMapped => {
                self.wake(proc as u8, number, 1);
                self.next_fault(proc);
            }
            Fill::Again(_) => self.retry(proc),
            Fill::Gone => self.s.faults[proc].pc = Pc::Gone,
            Fill::Done => {
                return Err(format!("page {number} of process {proc} should have been in memory: a page was lost"))
            }
        }
        Ok(())
    }
}
