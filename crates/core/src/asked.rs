//! What is asked of the core, call by call: all that a replay needs to make it decide the same again.
//!
//! The core tells a [`Recorder`] of each call before it does anything about it. [`Core::again`] does a recorded call. What the core
//! decides can go into a running hash ([`Core::decided`]), so that a replay can be compared with its run at any number of calls.

use crate::engine::Core;
use crate::evict::Answer;
use crate::fault::{Filled, Stored};
use crate::ids::{Extent, ObjectId, Page, PageRange, ProcId};
use crate::reclaim::{Coded, Origin};

/// One call with all of its arguments. Ticks are milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Asked<'a> {
    AddProcess {
        slots: u32,
    },
    RemoveProcess {
        proc: ProcId,
    },
    Adopt {
        proc: ProcId,
        page: Page,
        zero: bool,
    },
    /// `free`: the processes that may give a batch.
    PickVictims {
        most: u32,
        tick: u64,
        free: &'a [ProcId],
    },
    ClaimRange {
        proc: ProcId,
        range: PageRange,
        most: u32,
        tick: u64,
    },
    Evicted {
        proc: ProcId,
        first: Page,
        pages: u32,
        answer: Answer,
        tick: u64,
    },
    Pin {
        proc: ProcId,
        pages: &'a [Page],
    },
    Unpark {
        proc: ProcId,
    },
    Fault {
        proc: ProcId,
        page: Page,
        limit: PageRange,
        most: u32,
    },
    SwappedAhead {
        proc: ProcId,
        page: Page,
        most: u32,
    },
    ReadElsewhere {
        pages: u32,
    },
    Loaded {
        proc: ProcId,
        page: Page,
        filled: Filled,
    },
    Removed {
        proc: ProcId,
        range: PageRange,
    },
    Unmapped {
        proc: ProcId,
        range: PageRange,
    },
    Disown {
        proc: ProcId,
        range: PageRange,
    },
    Remapped {
        proc: ProcId,
        from: PageRange,
        to: Page,
    },
    Forked {
        parent: ProcId,
        slots: u32,
        present: bool,
    },
    BeginProof {
        proc: ProcId,
    },
    EndDoubts {
        proc: ProcId,
        epoch: u32,
    },
    EndQuarantine {
        proc: ProcId,
        page: Page,
        epoch: u32,
        present: bool,
    },
    PickCompress {
        most: u32,
    },
    GoesOn {
        object: ObjectId,
    },
    Offer {
        object: ObjectId,
        origin: Origin,
        estimate: Option<u32>,
    },
    Compressed {
        object: ObjectId,
        coded: Coded,
    },
    Compact {
        most: u32,
    },
    SetBusy {
        busy: bool,
    },
    ClosePool {
        closed: bool,
    },
    Look {
        tick: u64,
    },
    SwapTakes {
        takes: bool,
    },
    PickWriteback {
        pressed: bool,
        most_bytes: u32,
    },
    BlockOf {
        object: ObjectId,
    },
    Written {
        object: ObjectId,
        extent: Option<Extent>,
    },
    Relocated {
        object: ObjectId,
        from: Extent,
        to: Stored,
    },
    Inherit {
        child: ProcId,
        range: PageRange,
    },
}

/// Names of the calls, each at its number in a recording.
pub const CALL_NAMES: [&str; 34] = [
    "add_process",
    "remove_process",
    "adopt",
    "pick_victims",
    "claim_range",
    "evicted",
    "pin",
    "unpark",
    "fault",
    "swapped_ahead",
    "read_elsewhere",
    "loaded",
    "removed",
    "unmapped",
    "disown",
    "remapped",
    "forked",
    "begin_proof",
    "end_doubts",
    "end_quarantine",
    "pick_compress",
    "goes_on",
    "offer",
    "compressed",
    "compact",
    "set_busy",
    "close_pool",
    "look",
    "swap_takes",
    "pick_writeback",
    "block_of",
    "written",
    "relocated",
    "inherit",
];

impl Asked<'_> {
    /// Its number in a recording, an index of [`CALL_NAMES`].
    pub fn kind(&self) -> usize {
        match self {
            Asked::AddProcess { .. } => 0,
            Asked::RemoveProcess { .. } => 1,
            Asked::Adopt { .. } => 2,
            Asked::PickVictims { .. } => 3,
            Asked::ClaimRange { .. } => 4,
            Asked::Evicted { .. } => 5,
            Asked::Pin { .. } => 6,
            Asked::Unpark { .. } => 7,
            Asked::Fault { .. } => 8,
            Asked::SwappedAhead { .. } => 9,
            Asked::ReadElsewhere { .. } => 10,
            Asked::Loaded { .. } => 11,
            Asked::Removed { .. } => 12,
            Asked::Unmapped { .. } => 13,
            Asked::Disown { .. } => 14,
            Asked::Remapped { .. } => 15,
            Asked::Forked { .. } => 16,
            Asked::BeginProof { .. } => 17,
            Asked::EndDoubts { .. } => 18,
            Asked::EndQuarantine { .. } => 19,
            Asked::PickCompress { .. } => 20,
            Asked::GoesOn { .. } => 21,
            Asked::Offer { .. } => 22,
            Asked::Compressed { .. } => 23,
            Asked::Compact { .. } => 24,
            Asked::SetBusy { .. } => 25,
            Asked::ClosePool { .. } => 26,
            Asked::Look { .. } => 27,
            Asked::SwapTakes { .. } => 28,
            Asked::PickWriteback { .. } => 29,
            Asked::BlockOf { .. } => 30,
            Asked::Written { .. } => 31,
            Asked::Relocated { .. } => 32,
            Asked::Inherit { .. } => 33,
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        CALL_NAMES[self.kind()]
    }
}

/// Takes the calls as they come, with their numbers, the first is 1, and the hash of what was decided before.
pub type Recorder = Box<dyn FnMut(u64, u64, &Asked<'_>) + Send>;

impl Core {
    /// Sends every call from now on to `recorder`.
    pub fn set_recorder(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    /// Sends no more.
    pub fn end_recording(&mut self) {
        self.recorder = None;
    }

    pub(crate) fn asked(&mut self, asked: &Asked<'_>) {
        self.number += 1;
        let decided = self.decided();
        if let Some(recorder) = &mut self.recorder {
            recorder(self.number, decided, asked);
        }
    }

    /// The process that was made last. Of no meaning before there was one.
    pub fn last_process(&self) -> ProcId {
        self.last_process
    }

    /// How many pages refer to an object.
    pub fn refs(&self, object: ObjectId) -> u32 {
        self.objects.refs(object)
    }

    /// Calls so far.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Begins to hash all decisions: each entry of the page table that changes, and each place of an object.
    pub fn hash_decisions(&mut self) {
        (self.table.decided.on, self.objects.decided.on) = (true, true);
    }

    /// The hash of all decisions since [`Core::hash_decisions`]. Of one version of memfit: what is mixed in may change.
    pub fn decided(&self) -> u64 {
        self.table.decided.hash ^ self.objects.decided.hash.rotate_left(32)
    }

    /// Does a recorded call again. What a pager would do about the answer is done already: it is in the calls that follow.
    pub fn again(&mut self, asked: &Asked<'_>) {
        match *asked {
            Asked::AddProcess { slots } => _ = self.add_process(slots),
            Asked::RemoveProcess { proc } => self.remove_process(proc),
            Asked::Adopt { proc, page, zero } => _ = self.adopt(proc, page, zero),
            Asked::PickVictims { most, tick, free } => {
                _ = self.pick_victims(most as usize, tick, &|proc| free.contains(&proc));
            }
            Asked::ClaimRange { proc, range, most, tick } => _ = self.claim_range(proc, range, most as usize, tick),
            Asked::Evicted { proc, first, pages, answer, tick } => self.evicted(proc, first, pages, answer, tick),
            Asked::Pin { proc, pages } => self.pin(proc, pages.iter().copied()),
            Asked::Unpark { proc } => self.unpark(proc),
            Asked::Fault { proc, page, limit, most } => _ = self.fault(proc, page, limit, most, &mut Vec::new()),
            Asked::SwappedAhead { proc, page, most } => self.swapped_ahead(proc, page, most, &mut Vec::new()),
            Asked::ReadElsewhere { pages } => self.read_elsewhere(pages),
            Asked::Loaded { proc, page, filled } => self.loaded(proc, page, filled),
            Asked::Removed { proc, range } => self.removed(proc, range),
            Asked::Unmapped { proc, range } => self.unmapped(proc, range),
            Asked::Disown { proc, range } => self.disown(proc, range),
            Asked::Remapped { proc, from, to } => self.remapped(proc, from, to),
            Asked::Forked { parent, slots, present } => _ = self.forked(parent, slots, present),
            Asked::BeginProof { proc } => _ = self.begin_proof(proc),
            Asked::EndDoubts { proc, epoch } => self.end_doubts(proc, epoch),
            Asked::EndQuarantine { proc, page, epoch, present } => self.end_quarantine(proc, page, epoch, present),
            Asked::PickCompress { most } => self.pick_compress(most as usize, &mut Vec::new()),
            Asked::GoesOn { object } => _ = self.goes_on(object),
            Asked::Offer { object, origin, estimate } => _ = self.offer(object, origin, estimate),
            Asked::Compressed { object, coded } => _ = self.compressed(object, coded),
            Asked::Compact { most } => _ = self.compact(most as usize),
            Asked::SetBusy { busy } => self.set_busy(busy),
            Asked::ClosePool { closed } => self.close_pool(closed),
            Asked::Look { tick } => self.look(tick),
            Asked::SwapTakes { takes } => self.swap_takes(takes),
            Asked::PickWriteback { pressed, most_bytes } => {
                self.pick_writeback(pressed, most_bytes, &mut Vec::new());
            }
            Asked::BlockOf { object } => _ = self.block_of(object),
            Asked::Written { object, extent } => self.written(object, extent),
            Asked::Relocated { object, from, to } => self.relocated(object, from, to),
            Asked::Inherit { child, range } => self.inherit(child, range),
        }
        // The pager takes them in the same locked section or the next.
        _ = self.take_effects();
    }
}

/// A running hash, if it is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Decided {
    on: bool,
    hash: u64,
}

impl Decided {
    pub fn mix(&mut self, whose: u64, what: u64) {
        if self.on {
            let mixed = (self.hash.rotate_left(23) ^ whose).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mixed = (mixed ^ mixed >> 29 ^ what).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            self.hash = mixed ^ mixed >> 32;
        }
    }
}
