//! Replacement: which zpages leave the pool when it needs room.
//!
//! A [`Policy`] works on units ([`crate::pool::Unit`]): the core reports each zpage that is stored
//! in a unit or leaves it, and the policy names the units to evict. A policy sees no bytes and no
//! pool; each call has all that it must know about a unit.
//!
//! A new policy is one file and one line in [`REPLACEMENTS`]. The line gives its name for schemes,
//! help text and the model test in `tests/policy_model.rs`.

#[cfg(test)]
mod dummy;
mod full_buffers;
mod lottery;
mod round_robin;
mod unit_lru;

use crate::pool::{Handle, Leaving, PoolEntry, Unit, UnitView};
use crate::scheme::ReclaimKind;
use alloc::{boxed::Box, vec::Vec};
use core::fmt;

/// A zpage, as a policy sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zpage {
    /// Handle in the pool; invalid after the zpage has left.
    pub handle: Handle,
    /// Bytes.
    pub len: u32,
    /// A clean page of a file: it can be read from there again, so evicting it costs no write.
    pub file: bool,
}

/// Chooses units to evict.
///
/// A unit is *known* from the first zpage stored in it until the last one has left. It is *taken*
/// from the moment when [`Policy::victims`] or [`Policy::due`] names it until it is empty or
/// [`Policy::returned`]. A taken unit is not named again; zpages may still leave it, but none is
/// stored in it.
pub trait Policy: Send {
    /// A zpage was stored in a unit; `view` is the unit's new state.
    fn stored(&mut self, zpage: Zpage, unit: Unit, view: UnitView);

    /// A zpage left its unit; `view` is the unit's new state. Without zpages the unit is forgotten.
    fn left(&mut self, zpage: Zpage, unit: Unit, view: UnitView);

    /// The pool needs room: takes the units to evict now and appends them to `out`. Takes at least
    /// one if there is a known unit that is not taken.
    fn victims(&mut self, out: &mut Vec<Unit>);

    /// Takes units to evict although the pool has room. Called after each stored zpage.
    fn due(&mut self, _out: &mut Vec<Unit>) {}

    /// A taken unit could not be emptied: it is an ordinary one again.
    fn returned(&mut self, unit: Unit, view: UnitView);

    /// Heap bytes of the policy's tables.
    fn metadata_bytes(&self) -> u64;

    /// Panics unless every invariant holds; O(n), for tests.
    fn check(&self) {}
}

/// Parameters of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyParams {
    /// Seed of random choices.
    pub seed: u64,
    /// Most frames of the pool, at its creation.
    pub limit_frames: u32,
    /// Lottery: separate categories for frames that are more than half free, by the same formula.
    pub extra_bins: bool,
    /// Full buffers: share of full buffers, percent of all, at which they are written early.
    pub threshold_percent: u32,
}

impl Default for PolicyParams {
    /// As in the default scheme, for a pool of any size.
    fn default() -> PolicyParams {
        PolicyParams { seed: 1, limit_frames: u32::MAX, extra_bins: false, threshold_percent: 50 }
    }
}

/// Selects the zpages that leave the pool.
pub enum ReplacementMode {
    /// Nothing leaves: pages that do not fit bypass the pool.
    Nobody,
    /// Queues of single zpages, kept with the objects: see `duel`.
    Queue(ReclaimKind),
    /// A policy.
    Policy(Box<dyn Policy>),
}

/// A replacement mode that a scheme may name.
pub struct ReplacementEntry {
    /// Name in schemes.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Whether it works with a pool.
    pub fits: fn(&PoolEntry) -> bool,
    /// Makes an empty one.
    pub make: fn(&PolicyParams) -> ReplacementMode,
}

/// All replacement modes.
pub static REPLACEMENTS: &[ReplacementEntry] = &[
    ReplacementEntry {
        name: "fifo",
        help: "single pages, those first that were stored first",
        fits: SINGLE,
        make: |_| ReplacementMode::Queue(ReclaimKind::Fifo),
    },
    ReplacementEntry {
        name: "bimodal",
        help: "single pages; what came from swap leaves first again, but for one in 32",
        fits: SINGLE,
        make: |_| ReplacementMode::Queue(ReclaimKind::Bimodal),
    },
    ReplacementEntry {
        name: "dueling",
        help: "either of the two, whichever brings fewer pages back from swap on a sample of them",
        fits: SINGLE,
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
        fits: |_| true,
        make: |_| ReplacementMode::Nobody,
    },
    #[cfg(test)]
    dummy::ENTRY,
];

/// Pools from which single zpages can leave.
const SINGLE: fn(&PoolEntry) -> bool = |pool| pool.leaving != Leaving::Units;

/// The replacement mode of that name.
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
