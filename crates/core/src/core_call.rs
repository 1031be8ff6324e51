//! What is asked of the core, call by call: all that a replay needs to make it decide the same
//! again.
//!
//! The core tells a [`Recorder`] of each call before it does anything about it. [`Core::replay`]
//! does a recorded call. What the core decides can go into a running hash ([`Core::decided`]), so
//! that a replay can be compared with its run at any number of calls.

use crate::engine::Core;
use crate::evict::Answer;
use crate::fault::{Filled, Stored};
use crate::ids::{Extent, ObjectId, Page, PageRange, ProcId};
use crate::reclaim::{Coded, Origin};

/// One call with all of its arguments. Ticks are milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CoreCall<'a> {
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
    EndZapPending {
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
    "end_zap_pending",
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

impl CoreCall<'_> {
    /// Its number in a recording, an index of [`CALL_NAMES`].
    pub fn kind(&self) -> usize {
        match self {
            CoreCall::AddProcess { .. } => 0,
            CoreCall::RemoveProcess { .. } => 1,
            CoreCall::Adopt { .. } => 2,
            CoreCall::PickVictims { .. } => 3,
            CoreCall::ClaimRange { .. } => 4,
            CoreCall::Evicted { .. } => 5,
            CoreCall::Pin { .. } => 6,
            CoreCall::Unpark { .. } => 7,
            CoreCall::Fault { .. } => 8,
            CoreCall::SwappedAhead { .. } => 9,
            CoreCall::ReadElsewhere { .. } => 10,
            CoreCall::Loaded { .. } => 11,
            CoreCall::Removed { .. } => 12,
            CoreCall::Unmapped { .. } => 13,
            CoreCall::Disown { .. } => 14,
            CoreCall::Remapped { .. } => 15,
            CoreCall::Forked { .. } => 16,
            CoreCall::BeginProof { .. } => 17,
            CoreCall::EndZapPending { .. } => 18,
            CoreCall::EndQuarantine { .. } => 19,
            CoreCall::PickCompress { .. } => 20,
            CoreCall::GoesOn { .. } => 21,
            CoreCall::Offer { .. } => 22,
            CoreCall::Compressed { .. } => 23,
            CoreCall::Compact { .. } => 24,
            CoreCall::SetBusy { .. } => 25,
            CoreCall::ClosePool { .. } => 26,
            CoreCall::Look { .. } => 27,
            CoreCall::SwapTakes { .. } => 28,
            CoreCall::PickWriteback { .. } => 29,
            CoreCall::BlockOf { .. } => 30,
            CoreCall::Written { .. } => 31,
            CoreCall::Relocated { .. } => 32,
            CoreCall::Inherit { .. } => 33,
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        CALL_NAMES[self.kind()]
    }
}

/// Takes the calls as they come, with their numbers, the first is 1, and the hash of what was
/// decided before.
pub type Recorder = Box<dyn FnMut(u64, u64, &CoreCall<'_>) + Send>;

impl Core {
    /// Sends every call from now on to `recorder`.
    pub fn set_recorder(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    /// Sends no more.
    pub fn end_recording(&mut self) {
        self.recorder = None;
    }

    pub(crate) fn record(&mut self, call: &CoreCall<'_>) {
        self.number += 1;
        let decided = self.decided();
        if let Some(recorder) = &mut self.recorder {
            recorder(self.number, decided, call);
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

    /// Begins to hash all decisions: each entry of the page table that changes, and each place of
    /// an object.
    pub fn hash_decisions(&mut self) {
        (self.table.decided.on, self.objects.decided.on) = (true, true);
    }

    /// The hash of all decisions since [`Core::hash_decisions`]. Of one version of memfit: what is
    /// mixed in may change.
    pub fn decided(&self) -> u64 {
        self.table.decided.hash ^ self.objects.decided.hash.rotate_left(32)
    }

    /// Does a recorded call again. What a pager would do about the answer is done already: it is in
    /// the calls that follow.
    pub fn replay(&mut self, call: &CoreCall<'_>) {
        match *call {
            CoreCall::AddProcess { slots } => _ = self.add_process(slots),
            CoreCall::RemoveProcess { proc } => self.remove_process(proc),
            CoreCall::Adopt { proc, page, zero } => _ = self.adopt(proc, page, zero),
            CoreCall::PickVictims { most, tick, free } => {
                _ = self.pick_victims(most as usize, tick, &|proc| free.contains(&proc));
            }
            CoreCall::ClaimRange { proc, range, most, tick } => _ = self.claim_range(proc, range, most as usize, tick),
            CoreCall::Evicted { proc, first, pages, answer, tick } => self.evicted(proc, first, pages, answer, tick),
            CoreCall::Pin { proc, pages } => self.pin(proc, pages.iter().copied()),
            CoreCall::Unpark { proc } => self.unpark(proc),
            CoreCall::Fault { proc, page, limit, most } => _ = self.fault(proc, page, limit, most, &mut Vec::new()),
            CoreCall::SwappedAhead { proc, page, most } => self.swapped_ahead(proc, page, most, &mut Vec::new()),
            CoreCall::ReadElsewhere { pages } => self.read_elsewhere(pages),
            CoreCall::Loaded { proc, page, filled } => self.loaded(proc, page, filled),
            CoreCall::Removed { proc, range } => self.removed(proc, range),
            CoreCall::Unmapped { proc, range } => self.unmapped(proc, range),
            CoreCall::Disown { proc, range } => self.disown(proc, range),
            CoreCall::Remapped { proc, from, to } => self.remapped(proc, from, to),
            CoreCall::Forked { parent, slots, present } => _ = self.forked(parent, slots, present),
            CoreCall::BeginProof { proc } => _ = self.begin_proof(proc),
            CoreCall::EndZapPending { proc, epoch } => self.end_zap_pending(proc, epoch),
            CoreCall::EndQuarantine { proc, page, epoch, present } => self.end_quarantine(proc, page, epoch, present),
            CoreCall::PickCompress { most } => self.pick_compress(most as usize, &mut Vec::new()),
            CoreCall::GoesOn { object } => _ = self.goes_on(object),
            CoreCall::Offer { object, origin, estimate } => _ = self.offer(object, origin, estimate),
            CoreCall::Compressed { object, coded } => _ = self.compressed(object, coded),
            CoreCall::Compact { most } => _ = self.compact(most as usize),
            CoreCall::SetBusy { busy } => self.set_busy(busy),
            CoreCall::ClosePool { closed } => self.close_pool(closed),
            CoreCall::Look { tick } => self.look(tick),
            CoreCall::SwapTakes { takes } => self.swap_takes(takes),
            CoreCall::PickWriteback { pressed, most_bytes } => {
                self.pick_writeback(pressed, most_bytes, &mut Vec::new());
            }
            CoreCall::BlockOf { object } => _ = self.block_of(object),
            CoreCall::Written { object, extent } => self.written(object, extent),
            CoreCall::Relocated { object, from, to } => self.relocated(object, from, to),
            CoreCall::Inherit { child, range } => self.inherit(child, range),
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
