//! The pager around the core: core calls with their effects, the batch of a process, COPY.

use crate::config::Rule;
use crate::kernel::{Errno, Fill};
use crate::stub::{CLOSED, IN_MOVE};
use crate::world::{Actor, World};
use crate::{page, PageNo, BASE, PAGES};
use memfit_core::driver::order::Order;
use memfit_core::{Answer, AreaId, Core, ProcId, Source, Victim};

/// Contiguous pages of a batch and their slots.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Range {
    /// First page.
    pub first: PageNo,
    /// Slot of each page.
    pub slots: Vec<u32>,
    /// The kernel may drop some of the pages, so the stub must write them first.
    pub lazy: bool,
}

/// The pager's state of a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Proc {
    /// Its process number and staging area in the core, once it has them.
    pub id: Option<(u32, u32)>,
    /// The holder of `io`.
    pub io: Option<Actor>,
    /// Number of the newest batch.
    pub number: u32,
    /// The ranges of that batch; each becomes `None` when it is answered or cancelled.
    pub ranges: Vec<Option<Range>>,
    /// The stub has not reported the end of the batch.
    pub busy: bool,
    /// Pages that the pager knows as registered.
    pub regions: [bool; PAGES],
    /// Events that wait for a later event.
    pub order: Order<()>,
    /// Whether it is in the pager's list of processes.
    pub listed: bool,
    /// Its memory is gone, so it gets no more batches.
    pub dead: bool,
    /// It was removed from the core.
    pub removed: bool,
}

impl Proc {
    /// Its process number in the core.
    pub fn core_id(&self) -> ProcId {
        ProcId(self.id.expect("the core knows the process").0)
    }
    /// Its staging area.
    pub fn area(&self) -> AreaId {
        AreaId(self.id.expect("the core knows the process").1)
    }
}

/// Bytes in the places that the core has assigned.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Bytes {
    /// Staging slots by area and index.
    pub staging: std::collections::BTreeMap<(u32, u32), u8>,
    /// Objects in the pool by the offset of their first byte.
    pub pool: std::collections::BTreeMap<u64, u8>,
    /// Objects in the swap tier.
    pub swap: std::collections::BTreeMap<u32, u8>,
}

/// Where the bytes for a page are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Place {
    Word(u8),
    Staged(u32, u32),
    Pooled(u64),
    Swapped(u32),
}

impl From<&Source> for Place {
    fn from(source: &Source) -> Place {
        match *source {
            Source::Zero => Place::Word(0),
            Source::Word(word) => Place::Word(word as u8),
            Source::Staged(slot) => Place::Staged(slot.area.0, slot.index),
            Source::Pooled { ref runs, .. } => Place::Pooled(runs.slot().byte()),
            Source::Swapped { extent, .. } => Place::Swapped(extent.unit),
            Source::File => unreachable!("there are no files in the model"),
        }
    }
}

/// Pages with this value or a greater one are incompressible.
pub const RAW_VALUE: u8 = 12;

impl World<'_> {
    /// Makes a core call, counts the changes of entries and carries out the core's effects.
    pub(crate) fn call<R>(&mut self, name: &'static str, f: impl FnOnce(&mut Core) -> R) -> R {
        let before = self.recording.then(|| self.entries());
        let result = f(&mut self.core);
        if let Some(before) = before {
            self.note_since(before, name);
        }
        let effects = self.core.take_effects();
        for span in effects.spans {
            let frames = u64::from(span.first)..u64::from(span.first + span.frames);
            self.s.bytes.pool.retain(|byte, _| !frames.contains(&(byte / 4096)));
        }
        for (extent, _) in effects.extents {
            self.s.bytes.swap.remove(&extent.unit);
        }
        for slot in effects.punch {
            self.s.bytes.staging.remove(&(slot.area.0, slot.index));
        }
        for area in effects.closed {
            self.s.bytes.staging.retain(|&(a, _), _| a != area.0);
        }
        result
    }

    /// Counts the entries that differ from those in `before`.
    pub(crate) fn note_since(&mut self, before: Vec<memfit_core::Entry>, name: &'static str) {
        for (old, new) in before.into_iter().zip(self.entries()).filter(|(old, new)| self.recording && old != new) {
            self.table.note(name, old, new);
        }
    }

    /// Every entry of every process; those of missing processes are Untracked.
    pub(crate) fn entries(&self) -> Vec<memfit_core::Entry> {
        let mut all = Vec::with_capacity(2 * PAGES);
        for proc in &self.s.procs {
            for i in 0..PAGES as u8 {
                all.push(match proc.id {
                    Some((id, _)) if !proc.removed => self.core.entry(ProcId(id), page(i)),
                    _ => memfit_core::Entry::Untracked,
                });
            }
        }
        all
    }

    /// Collects the answers of the stub. With `cancel`, which needs a closed gate, unanswered
    /// ranges go back to the program and the stub drops them.
    pub(crate) fn collect(&mut self, proc: usize, cancel: bool) -> Result<(), String> {
        let (p, ring) = (&self.s.procs[proc], &self.s.ring);
        if !p.busy || (p.removed && self.changes.keeps(Rule::R22)) {
            return Ok(());
        }
        if ring.fatal {
            return Err("the stub reports a broken invariant".into());
        }
        let (id, number) = (p.core_id(), p.number);
        let done = self.s.ring.finished == number;
        if cancel {
            self.s.ring.cancelled = number;
        }
        for i in 0..self.s.procs[proc].ranges.len() {
            let Some(range) = self.s.procs[proc].ranges[i].clone() else { continue };
            let pages = range.slots.len() as u32;
            let (moved, park) = match self.s.ring.ranges[i].status {
                None if cancel || done => (0, false),
                None => continue,
                Some(errno) => (self.s.ring.ranges[i].moved, errno != Errno::None && errno != Errno::Again),
            };
            self.tick += 1 << 15;
            let tick = self.tick;
            self.call("evicted", |core| {
                core.evicted(id, page(range.first), pages, Answer { moved, dropped: 0, park, file: 0 }, tick)
            });
            self.s.procs[proc].ranges[i] = None;
            self.say(|| format!("takes the answer for {pages} pages at {}: moved {moved:#b}", range.first));
        }
        let p = &mut self.s.procs[proc];
        if done {
            p.busy = false;
            p.ranges.clear();
        }
        Ok(())
    }

    /// Posts a batch; its pages are Evicting until answered.
    pub(crate) fn post(&mut self, proc: usize, victims: Vec<Victim>) {
        let ranges: Vec<Range> = victims
            .into_iter()
            .map(|v| Range { first: (v.first.0 - BASE) as PageNo, slots: v.slots, lazy: v.lazy })
            .flat_map(|r| self.cut(r))
            .collect();
        self.say(|| {
            format!("posts a batch: {:?}", ranges.iter().map(|r| (r.first, r.slots.len())).collect::<Vec<_>>())
        });
        let p = &mut self.s.procs[proc];
        p.number += 1;
        self.s.ring.post(p.number, &ranges);
        p.ranges = ranges.into_iter().map(Some).collect();
        p.busy = true;
    }

    /// Cuts a range if the scenario wants shorter ones than the core gives.
    fn cut(&self, range: Range) -> Vec<Range> {
        let step = if self.scenario.split == 0 { range.slots.len() } else { self.scenario.split };
        let chunks = range.slots.chunks(step).enumerate();
        let part = |(i, slots): (usize, &[u32])| Range {
            first: range.first + (i * step) as u8,
            slots: slots.to_vec(),
            lazy: range.lazy,
        };
        chunks.map(part).collect()
    }

    /// Closes the gate if a batch is in progress. Returns whether it did.
    pub(crate) fn close_gate(&mut self, proc: usize) -> bool {
        let gated = self.s.procs[proc].busy && self.changes.keeps(Rule::R3Gate) && self.changes.keeps(Rule::R3Cancel);
        if gated {
            self.s.ring.gate |= CLOSED;
        }
        gated
    }

    /// Whether the stub is outside of its MOVE, or its process has ended.
    pub(crate) fn gate_clear(&self, proc: usize) -> bool {
        proc != 0 || self.s.ring.gate & IN_MOVE == 0 || self.s.mm[proc].gone
    }

    pub(crate) fn open_gate(&mut self) {
        self.s.ring.gate &= !CLOSED;
    }

    /// Whether an event is unread, or the thread that raised it has not resumed.
    pub(crate) fn event_pending(&self, proc: usize) -> bool {
        self.s.mm[proc].changing > 0
    }

    /// The bytes of a source at this moment.
    pub(crate) fn read_source(&self, source: Place) -> Result<u8, String> {
        let bytes = &self.s.bytes;
        let found = match source {
            Place::Word(word) => Some(word),
            Place::Staged(area, index) => bytes.staging.get(&(area, index)).copied(),
            Place::Pooled(byte) => bytes.pool.get(&byte).copied(),
            Place::Swapped(unit) => bytes.swap.get(&unit).copied(),
        };
        found.ok_or_else(|| format!("the bytes at {source:?} are gone"))
    }

    /// UFFDIO_COPY into a process.
    pub(crate) fn fill(&mut self, proc: usize, first: PageNo, values: &[u8]) -> Fill {
        let fill = self.s.mm[proc].copy(first, values);
        self.say(|| format!("COPY of {values:?} to page {first}: {fill:?}"));
        fill
    }
}
