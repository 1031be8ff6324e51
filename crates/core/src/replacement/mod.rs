//! Replacement: which zpages leave the pool when it needs room.
//!
//! A [`Policy`] works on units ([`crate::pool::Unit`]): it hears of each zpage that is stored in
//! one or leaves it, and names the units to be evicted. It sees no bytes and no pool: what it must
//! know of a unit comes with the call.
//!
//! A new policy is one file and one line in [`REPLACEMENTS`]; the line gives it a name in schemes,
//! help text and the model test in `tests/policy_model.rs`.

mod full_buffers;
mod lottery;
mod round_robin;
mod unit_lru;

use crate::pool::{Handle, Unit, UnitView};
use crate::scheme::ReclaimKind;
use std::fmt;

/// A zpage, as a policy sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zpage {
    /// Its name in the pool; dead after it has left.
    pub handle: Handle,
    /// Bytes.
    pub len: u32,
    /// A clean page of a file: it can be read there again, so that evicting it costs no write.
    pub file: bool,
}

/// Chooses units to evict.
///
/// A unit is *known* from the first zpage stored in it until the last one has left, and *taken*
/// from the moment when [`Policy::victims`] or [`Policy::due`] names it until it is empty or
/// [`Policy::returned`]. A taken unit is not named again; zpages may still leave it, but none is
/// stored.
pub trait Policy: Send {
    /// A zpage was stored in a unit, which is now as `view` says.
    fn stored(&mut self, zpage: Zpage, unit: Unit, view: UnitView);

    /// A zpage left its unit, which is now as `view` says; with no zpages left it is forgotten.
    fn left(&mut self, zpage: Zpage, unit: Unit, view: UnitView);

    /// Room is needed: takes the units to be evicted now, at least one if any is known that is not
    /// taken, and appends them to `out`.
    fn victims(&mut self, out: &mut Vec<Unit>);

    /// Takes units to be evicted though no room is needed yet. Asked after each zpage that was
    /// stored.
    fn due(&mut self, _out: &mut Vec<Unit>) {}

    /// A taken unit could not be emptied: it is as any other again.
    fn returned(&mut self, unit: Unit, view: UnitView);

    /// Heap bytes of its tables.
    fn metadata_bytes(&self) -> u64;

    /// Panics unless every invariant holds; O(n), for tests.
    fn check(&self);
}

/// What a policy is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyParams {
    /// Seed of random choices.
    pub seed: u64,
    /// Frames of the pool at most, when it is made.
    pub limit_frames: u32,
    /// Lottery: categories beyond half of a frame free, by the same formula.
    pub extra_bins: bool,
    /// Full buffers: part of all buffers that is full when they are written early, percent.
    pub threshold_percent: u32,
}

impl Default for PolicyParams {
    /// As in the default scheme, for a pool of any size.
    fn default() -> PolicyParams {
        PolicyParams { seed: 1, limit_frames: u32::MAX, extra_bins: false, threshold_percent: 50 }
    }
}

/// What chooses the zpages that leave the pool.
pub enum ReplacementMode {
    /// Nothing: what does not fit goes elsewhere.
    Nobody,
    /// Queues of single zpages, kept with the objects: see `duel`.
    Queue(ReclaimKind),
    /// A policy.
    Policy(Box<dyn Policy>),
}

/// A replacement that a scheme may name.
pub struct ReplacementEntry {
    /// Name in schemes.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Names of the pools that it works with; empty for all.
    pub pools: &'static [&'static str],
    /// Makes it, without anything known.
    pub make: fn(&PolicyParams) -> ReplacementMode,
}

/// Every replacement.
pub static REPLACEMENTS: &[ReplacementEntry] = &[
    ReplacementEntry {
        name: "oldest",
        help: "single pages, those first that were stored first",
        pools: SINGLE,
        make: |_| ReplacementMode::Queue(ReclaimKind::SecondChance),
    },
    ReplacementEntry {
        name: "bimodal",
        help: "single pages; what came from swap leaves first again, but for one in 32",
        pools: SINGLE,
        make: |_| ReplacementMode::Queue(ReclaimKind::Bimodal),
    },
    ReplacementEntry {
        name: "dueling",
        help: "either of the two, whichever brings fewer pages back from swap on a sample of them",
        pools: SINGLE,
        make: |_| ReplacementMode::Queue(ReclaimKind::Dueling),
    },
    unit_lru::ENTRY,
    round_robin::BY_LIST,
    round_robin::BY_CLASS,
    round_robin::BY_GROUP,
    lottery::ENTRY,
    full_buffers::ENTRY,
    ReplacementEntry {
        name: "none",
        help: "nothing leaves: when the pool is full, new pages go elsewhere",
        pools: &[],
        make: |_| ReplacementMode::Nobody,
    },
];

/// The pools from which single zpages can leave.
const SINGLE: &[&str] = &["zsmalloc", "zbud", "z3fold", "zones"];

/// The replacement of that name.
pub fn find(name: &str) -> Option<&'static ReplacementEntry> {
    REPLACEMENTS.iter().find(|entry| entry.name == name)
}

impl PartialEq for ReplacementEntry {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ReplacementEntry {}

impl fmt::Debug for ReplacementEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplacementEntry({})", self.name)
    }
}
