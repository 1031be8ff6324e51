//! The stub with its gate and batch, as in `take.rs`; each step is one atomic access or system
//! call.

use crate::config::Rule;
use crate::kernel::{Errno, Pte};
use crate::pager::Range;
use crate::world::World;
use crate::{PageNo, PAGES};

/// Gate bit: the stub is inside a MOVE.
pub const IN_MOVE: u8 = 1;
/// Gate bit: the pager reads events.
pub const CLOSED: u8 = 2;
/// Stands for the stub's thread in the fault queue; only events use the thread.
const FAULTS: u8 = u8::MAX;

/// A range in the shared segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RingRange {
    /// The range that the pager posted.
    pub posted: Range,
    /// The answer: which pages are in their slots.
    pub moved: u64,
    /// `None` before the answer; then why not all pages moved.
    pub status: Option<Errno>,
}

/// The ring at the start of the shared segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub struct Ring {
    pub gate: u8,
    pub posted: u32,
    pub finished: u32,
    pub cancelled: u32,
    pub fatal: bool,
    pub ranges: Vec<RingRange>,
}

impl Ring {
    pub(crate) fn post(&mut self, number: u32, ranges: &[Range]) {
        self.ranges = ranges.iter().map(|r| RingRange { posted: r.clone(), moved: 0, status: None }).collect();
        self.posted = number;
    }
}

/// Position of the stub in its loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Pc {
    /// Waits for the doorbell.
    #[default]
    Idle,
    /// Before MADV_POPULATE_WRITE, outside the gate, because it may fault.
    Populate,
    /// Sleeps in that fault.
    InFault(PageNo),
    /// Before it sets IN_MOVE.
    Enter,
    /// Before the check of `cancelled`; true if the gate was closed.
    Check(bool),
    /// Waits for the gate to open.
    Shut,
    /// Before a MOVE.
    Move,
    /// Before the scan of the window, after a MOVE with this errno.
    Scan(Errno),
    /// Before the copy to the slots.
    Copy,
    /// Before the answer is published.
    Publish,
    /// Before it clears IN_MOVE and goes on to the next range.
    Leave,
    /// Before the window is emptied.
    Flush,
    /// Before `finished` is set.
    Finish,
    /// Ended with its process.
    Dead,
}

/// The stub's variables.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Stub {
    /// Position in its loop.
    pub pc: Pc,
    number: u32,
    range: u8,
    done: u8,
    moved: u64,
    error: Option<Errno>,
    used: u8,
}

impl Stub {
    /// A fault on these pages was served.
    pub fn wake(&mut self, first: PageNo, pages: u8) {
        if matches!(self.pc, Pc::InFault(p) if p >= first && p < first + pages) {
            self.pc = Pc::Populate;
        }
    }
    /// The stub's process ends.
    pub fn kill(&mut self) {
        *self = Stub { pc: Pc::Dead, ..Stub::default() };
    }
}

impl World<'_> {
    pub(crate) fn stub_enabled(&self) -> bool {
        match self.s.stub.pc {
            Pc::Idle => self.s.ring.posted != self.s.ring.finished,
            Pc::Shut => self.s.ring.gate & CLOSED == 0,
            Pc::Dead | Pc::InFault(_) => false,
            _ => true,
        }
    }

    /// Number of outcomes of the next step: a MOVE may misreport.
    pub(crate) fn stub_variants(&self) -> u8 {
        if self.s.stub.pc != Pc::Move || !self.scenario.misreport {
            return 1;
        }
        self.pages_left() + 1
    }

    fn pages_left(&self) -> u8 {
        let stub = &self.s.stub;
        self.s.ring.ranges[usize::from(stub.range)].posted.slots.len() as u8 - stub.done
    }

    pub(crate) fn step_stub(&mut self, variant: u8) -> Result<(), String> {
        match self.s.stub.pc {
            Pc::Idle => {
                self.s.stub = Stub { number: self.s.ring.posted, ..Stub::default() };
                self.say(|| "begins its batch".into());
                self.next_range(0);
            }
            Pc::Populate => self.populate(),
            Pc::Enter => {
                let closed = self.s.ring.gate & CLOSED != 0;
                self.s.ring.gate |= IN_MOVE;
                self.say(|| format!("sets IN_MOVE, gate {}", if closed { "closed" } else { "open" }));
                self.s.stub.pc = Pc::Check(closed);
            }
            Pc::Check(closed) => self.check_cancelled(closed),
            Pc::Shut => self.s.stub.pc = Pc::Enter,
            Pc::Move => self.move_pages(variant),
            Pc::Scan(errno) => self.scan(errno),
            Pc::Copy => self.copy_out()?,
            Pc::Publish => self.publish(),
            Pc::Leave => {
                self.s.ring.gate &= !IN_MOVE;
                let next = self.s.stub.range + 1;
                self.next_range(next);
            }
            Pc::Flush => {
                self.say(|| "empties its window".into());
                self.s.mm[0].window = [None; PAGES];
                self.s.stub.pc = Pc::Finish;
            }
            Pc::Finish => {
                self.say(|| "is done with its batch".into());
                self.s.ring.finished = self.s.stub.number;
                self.s.stub = Stub::default();
            }
            Pc::Dead | Pc::InFault(_) => {}
        }
        Ok(())
    }

    fn next_range(&mut self, range: u8) {
        let stub = &mut self.s.stub;
        (stub.range, stub.done, stub.moved, stub.error) = (range, 0, 0, None);
        stub.pc = match self.s.ring.ranges.get(usize::from(range)) {
            Some(r) if r.posted.lazy && self.changes.keeps(Rule::Populate) => Pc::Populate,
            Some(_) => Pc::Enter,
            None => Pc::Flush,
        };
    }

    /// Writes the pages of a range without changing them. Stops at the first page that cannot be
    /// written; MOVE will not move it.
    fn populate(&mut self) {
        let Range { first, slots, .. } = &self.s.ring.ranges[usize::from(self.s.stub.range)].posted;
        let pages = *first..first + slots.len() as PageNo;
        self.say(|| format!("populates pages {pages:?}"));
        let mm = &mut self.s.mm[0];
        self.s.stub.pc = Pc::Enter;
        for number in pages {
            let i = usize::from(number);
            match mm.vma[i] {
                None => return,
                Some(vma) if vma.read_only => return,
                Some(vma) if vma.registered && mm.pte[i].is_none() => {
                    mm.faults.push_back((number, FAULTS));
                    self.s.stub.pc = Pc::InFault(number);
                    return;
                }
                Some(_) => mm.pte[i] = Some(Pte::of(mm.pte[i].map_or(0, |pte| pte.value))),
            }
        }
    }

    fn check_cancelled(&mut self, closed: bool) {
        if self.s.ring.cancelled == self.s.stub.number {
            self.say(|| "finds the batch cancelled".into());
            self.s.ring.gate &= !IN_MOVE;
            self.s.stub.pc = Pc::Flush;
        } else if closed {
            self.s.ring.gate &= !IN_MOVE;
            self.s.stub.pc = Pc::Shut;
        } else {
            self.s.stub.pc = Pc::Move;
        }
    }

    /// `variant` pages are moved but not reported.
    fn move_pages(&mut self, variant: u8) {
        let left = self.pages_left();
        let stub = &self.s.stub;
        let first = self.s.ring.ranges[usize::from(stub.range)].posted.first + stub.done;
        let (mut moved, mut errno) = self.s.mm[0].take(first, left, usize::from(stub.used + stub.done));
        if variant > 0 && errno == Errno::None {
            moved -= variant;
            errno = if moved > 0 { Errno::Again } else { Errno::Exists };
            self.say(|| {
                format!("MOVE of {left} pages at {first}: {moved} reported, {variant} moved unreported, {errno:?}")
            });
        } else {
            self.say(|| format!("MOVE of {left} pages at {first}: {moved}, {errno:?}"));
        }
        self.note_moved(moved, errno);
    }

    fn note_moved(&mut self, reported: PageNo, errno: Errno) {
        let (left, trust) = (self.pages_left(), !self.changes.keeps(Rule::R3a));
        let stub = &mut self.s.stub;
        stub.moved |= ((1 << reported) - 1) << stub.done;
        stub.done += reported;
        stub.pc = if reported == left { Pc::Copy } else { Pc::Scan(errno) };
        if trust && reported < left {
            stub.error.get_or_insert(errno);
            stub.done += 1;
            stub.pc = if reported + 1 == left || errno == Errno::Again { Pc::Copy } else { Pc::Move };
        }
    }

    fn scan(&mut self, errno: Errno) {
        let left = self.pages_left();
        let base = usize::from(self.s.stub.used + self.s.stub.done);
        let found: u64 = (0..usize::from(left)).map(|i| u64::from(self.s.mm[0].window[base + i].is_some()) << i).sum();
        self.say(|| format!("scans its window: {found:#b} of {left} pages"));
        let stub = &mut self.s.stub;
        stub.moved |= found << stub.done;
        stub.error.get_or_insert(errno);
        if found & 1 == 0 && errno == Errno::Again {
            stub.pc = Pc::Copy;
            return;
        }
        let pages = stub.done + left;
        stub.done += 1;
        while stub.done < pages && stub.moved >> stub.done & 1 == 1 {
            stub.done += 1;
        }
        stub.pc = if stub.done < pages { Pc::Move } else { Pc::Copy };
    }

    fn copy_out(&mut self) -> Result<(), String> {
        let stub = &self.s.stub;
        let (moved, used) = (stub.moved, usize::from(stub.used));
        let slots = self.s.ring.ranges[usize::from(stub.range)].posted.slots.clone();
        let area = self.s.procs[0].area().0;
        for (i, &slot) in slots.iter().enumerate().filter(|(i, _)| moved >> i & 1 == 1) {
            let value = match self.s.mm[0].window[used + i] {
                Some(pte) => pte.value,
                None => return Err("the stub reads a page of its window that is not there any more".into()),
            };
            self.s.bytes.staging.insert((area, slot), value);
        }
        self.say(|| format!("copies {moved:#b} to the slots {slots:?}"));
        self.s.stub.pc = Pc::Publish;
        Ok(())
    }

    fn publish(&mut self) {
        let stub = &mut self.s.stub;
        let range = &mut self.s.ring.ranges[usize::from(stub.range)];
        range.moved = stub.moved;
        range.status = Some(stub.error.unwrap_or(Errno::None));
        stub.used += range.posted.slots.len() as u8;
        stub.pc = Pc::Leave;
        self.say(|| "publishes the answer".into());
    }
}
