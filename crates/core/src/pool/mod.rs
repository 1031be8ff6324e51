//! Pools: placement of compressed pages in 4 KiB frames.
//!
//! A pool places objects by size and never sees their bytes. Its owner (the pager, or the
//! simulator) has a *frame area*: a contiguous range of virtual addresses cut into frames, of which
//! only the frames in use are backed by memory. The pool decides which bytes of the area an object
//! gets, which frames come into use for it and which become free.
//!
//! ```text
//! frame area   | frame 0 | frame 1 | frame 2 | frame 3 | ...
//!              |<------ zspage ---------->|               a span of frames cut into equal slots
//!              | slot | slot | slot | slot|               a slot may run over a frame border
//! ```
//!
//! Terms: a *zpage* is one compressed page. Its [`Handle`] identifies it while it lives; its
//! [`Runs`] change only in [`Pool::compact`] and [`Pool::tidy`]. Everything is by index: no
//! pointers, clock or randomness, so the same calls give the same answers.
//!
//! A new pool is one file and one line in [`POOLS`]; its [`PoolEntry`] gives it a name in schemes,
//! help text and the model test in `tests/pool_model.rs`.

pub mod buffers;
#[cfg(test)]
mod dummy;
mod handles;
mod runs;
pub mod span;
mod zbud_z3fold;
pub mod zones;
pub mod zsmalloc;

use crate::ids::PAGE_BYTES;
use crate::scheme::Scheme;
use alloc::{boxed::Box, vec::Vec};
use core::fmt;

pub use runs::{Move, Runs};

/// Bytes in a frame.
pub const FRAME_BYTES: u32 = PAGE_BYTES as u32;

/// Longest object that a pool takes, bytes: a page that did not compress at all.
pub const LEN_MAX: u32 = FRAME_BYTES;

/// Number of a 4 KiB frame in the frame area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame(pub u32);

impl Frame {
    /// Distance of the frame's first byte from the start of the frame area, bytes.
    pub fn byte(self) -> u64 {
        u64::from(self.0) * u64::from(FRAME_BYTES)
    }
}

/// Contiguous frames; may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// First frame; meaningless if the span is empty.
    pub first: u32,
    /// Number of frames.
    pub frames: u32,
}

impl Span {
    /// No frames.
    pub const EMPTY: Span = Span { first: 0, frames: 0 };

    /// Whether there is no frame in it.
    pub fn is_empty(self) -> bool {
        self.frames == 0
    }

    /// The frames, in rising order.
    pub fn iter(self) -> impl Iterator<Item = Frame> {
        (self.first..self.first + self.frames).map(Frame)
    }
}

/// A position in the frame area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The frame.
    pub frame: u32,
    /// Bytes from the start of that frame, below [`FRAME_BYTES`].
    pub offset: u16,
}

impl Slot {
    /// Distance from the start of the frame area, bytes.
    pub fn byte(self) -> u64 {
        Frame(self.frame).byte() + u64::from(self.offset)
    }
}

/// Identifies a zpage while it lives; afterwards the number may be reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(u32);

impl Handle {
    /// Largest value of [`Handle::raw`]: one bit is free for packed tables.
    pub const RAW_MAX: u32 = (1 << 31) - 1;

    /// The number, for packed tables.
    pub fn raw(self) -> u32 {
        self.0
    }

    /// The handle of a number from [`Handle::raw`].
    pub fn from_raw(raw: u32) -> Handle {
        assert!(raw <= Handle::RAW_MAX, "{raw} is no handle");
        Handle(raw)
    }
}

/// Result of a successful [`Pool::place`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Handle of the new zpage.
    pub handle: Handle,
    /// Where its bytes go.
    pub runs: Runs,
    /// Frames that came into use for it, often none.
    pub grew: Span,
}

/// No room for an object: neither a free slot nor frames for a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolFull {
    /// Frames in use.
    pub frames_used: u32,
    /// Contiguous frames that were needed in addition.
    pub frames_needed: u32,
    /// The limit; or the size of the frame area, if that has no such span below the limit.
    pub frames_max: u32,
}

impl fmt::Display for PoolFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PoolFull { frames_used, frames_needed, frames_max } = self;
        write!(f, "pool is full: {frames_used} frames in use, {frames_needed} more needed, at most {frames_max}")
    }
}

impl core::error::Error for PoolFull {}

/// Contents of a pool and their cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolUsage {
    /// Live zpages.
    pub zpages: u64,
    /// Sum of their lengths, as given to [`Pool::place`].
    pub stored_bytes: u64,
    /// Bytes that they occupy, including the unused end of each slot, chunk or block.
    pub used_bytes: u64,
    /// Frames in use.
    pub frames: u32,
}

/// What an eviction frees as a whole: zpages that share frames and cannot be freed alone. Its
/// number is that of its first frame. Where zpages share nothing, each is a unit and has its
/// handle's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unit(pub u32);

/// State of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnitView {
    /// Size class, from 0; 0 in pools without classes.
    pub class: u16,
    /// Live zpages.
    pub zpages: u16,
    /// Most zpages of a unit of this kind.
    pub capacity: u16,
    /// Frames that become free when it is empty.
    pub frames: u16,
    /// Bytes that a new zpage could have, or would leave free; whole chunks in pools that count in
    /// chunks.
    pub free_bytes: u32,
}

/// Places objects in frames. The default methods are right for a pool that moves nothing and in
/// which each zpage is a unit of its own.
///
/// A dead handle or a length out of range is a bug of the caller; every method panics on it if it
/// can detect it.
pub trait Pool: Send {
    /// Finds room for an object of `len` bytes, `1..=`[`LEN_MAX`].
    fn place(&mut self, len: u32) -> Result<Placed, PoolFull>;

    /// Where the bytes of an object are.
    fn runs(&self, handle: Handle) -> Runs;

    /// Bytes of an object.
    fn len(&self, handle: Handle) -> u32 {
        self.runs(handle).len()
    }

    /// Removes an object. The returned frames became free: their memory may go back to the kernel.
    fn remove(&mut self, handle: Handle) -> Span;

    /// Sets how many frames may be in use. A limit below the present use drops nothing: then
    /// [`Pool::place`] only fills free slots of frames in use.
    fn set_limit(&mut self, frames: u32);

    /// Totals; O(1).
    fn usage(&self) -> PoolUsage;

    /// Heap bytes of the pool's own tables, slack included; O(number of tables), not O(zpages).
    fn metadata_bytes(&self) -> u64;

    /// The frames of [`Pool::usage`] alone.
    fn frames(&self) -> u32 {
        self.usage().frames
    }

    /// Moves objects together so that frames become free, with at most `max_moves` moves. A pool
    /// that moves nothing keeps the default.
    ///
    /// The pool's tables have the new positions at once. The caller carries out the moves in the
    /// order of `out` before any other call that depends on bytes, and only then frees the frames
    /// in `freed`. Objects for which `movable` returns false stay. Both vectors are appended to.
    fn compact(
        &mut self,
        _max_moves: usize,
        _movable: &dyn Fn(Handle) -> bool,
        _out: &mut Vec<Move>,
        _freed: &mut Vec<Span>,
    ) {
    }

    /// Makes the pool's tables smaller if few zpages are left of many. Moves nothing. O(1) for each
    /// removal since the last call.
    fn trim(&mut self) {}

    /// The unit of a zpage. A pool whose zpages share units implements this and the next three
    /// methods.
    fn unit(&self, handle: Handle) -> Unit {
        Unit(handle.raw())
    }

    /// State of a unit in use.
    fn view(&self, unit: Unit) -> UnitView {
        self.runs(Handle::from_raw(unit.0));
        UnitView { zpages: 1, capacity: 1, ..UnitView::default() }
    }

    /// The zpages of a unit in use, appended to `out`.
    fn zpages(&self, unit: Unit, out: &mut Vec<Handle>) {
        out.push(Handle::from_raw(unit.0));
    }

    /// Seals a unit for its eviction, or unseals it. No zpage is placed in a sealed unit. The seal
    /// ends with the unit.
    fn seal(&mut self, _unit: Unit, _sealed: bool) {}

    /// Whether the unit is clean: it has no zpages, but its frame keeps its former contents
    /// readable until [`Pool::place`] gives the frame to a new zpage, at offset 0. False for a
    /// frame that is not in use.
    ///
    /// A unit becomes clean when the last zpage leaves it while it is sealed. Sealing a clean unit
    /// means that a thread reads it: its frame is not reused until it is unsealed.
    fn clean(&self, _unit: Unit) -> bool {
        false
    }

    /// Takes a frame for a clean unit, whose contents are not those of zpages that have left: a
    /// frame within the limit, or that of the oldest clean unit. Returns the unit, and the frame if
    /// it came into use. `None` if there is no such frame, or the pool has no clean units.
    fn take_clean(&mut self) -> Option<(Unit, Span)> {
        None
    }

    /// Frees the frame of a clean unit; does nothing if the unit is sealed.
    fn discard(&mut self, _unit: Unit) -> Span {
        Span::EMPTY
    }

    /// After a removal from a unit that is still in use: moves its zpages together, if the pool
    /// does that within units. As [`Pool::compact`], but for one unit.
    fn tidy(&mut self, _unit: Unit, _movable: &dyn Fn(Handle) -> bool, _out: &mut Vec<Move>) {}

    /// Panics unless every invariant holds; O(n), for tests.
    fn check(&self) {}
}

/// Parameters of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolParams {
    /// Frames in the frame area. With spans of up to `chain_frames` frames, `chain_frames *
    /// limit_frames + 64` frames can never be too fragmented (see [`span`]); twice the limit is
    /// ample in practice. This is address space, not memory.
    pub area_frames: u32,
    /// Initial limit, frames; see [`Pool::set_limit`].
    pub limit_frames: u32,
    /// Most contiguous frames that share slots, `1..=`[`span::SPAN_MAX`]. Longer zspages waste less
    /// at their end, but become empty more rarely.
    pub chain_frames: u32,
    /// Zones: bytes of a block, a power of two from 32 to 4096.
    pub block_bytes: u32,
    /// Zones: frames of a zone.
    pub zone_frames: u32,
    /// Zones: entries for zpages of a zone, per frame.
    pub entries_per_frame: u32,
    /// z3fold: chunks of 64 bytes for the header of a frame.
    pub header_chunks: u32,
}

impl PoolParams {
    /// An area and a limit in frames; the rest as in the default scheme.
    pub fn new(area_frames: u32, limit_frames: u32) -> PoolParams {
        Scheme::default().pool.params(area_frames, limit_frames)
    }
}

/// The parts of a pool that can leave it separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// Zpages; units are single zpages.
    Zpages,
    /// Zpages, and the frames or zspages that are the units.
    ZpagesAndUnits,
    /// Units, which are written whole.
    Units,
}

/// A pool that a scheme may name.
pub struct PoolEntry {
    /// Name in schemes.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// What can leave it. The replacements and the swap format that fit it follow from this.
    pub leaving: Leaving,
    /// Whether [`Pool::tidy`] moves zpages within a unit.
    pub tidies: bool,
    /// Whether [`Pool::compact`] moves zpages between frames until less than a unit's worth of room
    /// is left.
    pub compacts: bool,
    /// Makes an empty pool.
    pub make: fn(&PoolParams) -> Box<dyn Pool>,
}

/// All pools.
pub static POOLS: &[PoolEntry] = &[
    zsmalloc::ENTRY,
    zbud_z3fold::ZBUD,
    zbud_z3fold::Z3FOLD,
    zones::ENTRY,
    buffers::ENTRY,
    #[cfg(test)]
    dummy::ENTRY,
];

/// The pool of that name.
pub fn find(name: &str) -> Option<&'static PoolEntry> {
    POOLS.iter().find(|entry| entry.name == name)
}

impl PartialEq for PoolEntry {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for PoolEntry {}

impl fmt::Debug for PoolEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolEntry({})", self.name)
    }
}

/// Gives memory back when less than half of a table is used. The remaining slack makes the next
/// growth cheap.
fn shrink_loose<T>(table: &mut Vec<T>) {
    if table.capacity() > 2 * table.len() + 64 {
        table.shrink_to(table.len() + table.len() / 8);
    }
}

/// Heap bytes of a table.
fn table_bytes<T>(table: &Vec<T>) -> u64 {
    (table.capacity() * size_of::<T>()) as u64
}
