//! The calls into the core, with all that a replay needs to make the core decide the same again.
//!
//! [`core_calls`] has one entry for each call: its number in a recording, its name, its arguments,
//! and how a replay makes it. The enum, the names, the bytes of recordings and the columns of
//! exports are derived from it. The core passes each call to its [`Recorder`]s before it carries it
//! out. It can keep a running hash of its decisions ([`Core::decided`]), so that a replay can be
//! compared with its run after any number of calls.

use crate::driver::Seen;
use crate::engine::Core;
use crate::evict::Answer;
use crate::fault::{Filled, Stored};
use crate::ids::{Extent, ObjectId, Page, PageRange, ProcId};
use crate::object::ContentHash;
use crate::reclaim::{Coded, Origin};
use crate::trace::{Damaged, Decoder};
use alloc::{boxed::Box, vec::Vec};

/// Visitor of the arguments of a call, in order, each with its name and by its kind.
#[allow(missing_docs, unused_variables)]
pub trait Fields {
    fn proc(&mut self, name: &'static str, proc: ProcId) {}
    fn page(&mut self, name: &'static str, page: Page) {}
    fn range(&mut self, name: &'static str, range: PageRange) {}
    /// The mapping of the preceding page argument.
    fn limit(&mut self, name: &'static str, limit: PageRange) {}
    fn object(&mut self, name: &'static str, object: ObjectId) {}
    fn tick(&mut self, name: &'static str, tick_ms: u64) {}
    fn small(&mut self, name: &'static str, number: u32) {}
    /// `u32::MAX`: no limit.
    fn most(&mut self, name: &'static str, most: u32) {}
    /// Number of pages of the answer that follows.
    fn pages(&mut self, name: &'static str, pages: u32) {}
    /// Answer about as many pages as the preceding argument says.
    fn answer(&mut self, name: &'static str, answer: Answer) {}
    fn flag(&mut self, name: &'static str, flag: bool) {}
    fn filled(&mut self, name: &'static str, filled: Filled) {}
    fn origin(&mut self, name: &'static str, origin: Origin) {}
    fn estimate(&mut self, name: &'static str, estimate: Option<u32>) {}
    fn seen(&mut self, name: &'static str, seen: Seen) {}
    fn coded(&mut self, name: &'static str, coded: Coded) {}
    fn extent(&mut self, name: &'static str, extent: Extent) {}
    fn written(&mut self, name: &'static str, extent: Option<Extent>) {}
    fn stored(&mut self, name: &'static str, stored: Stored) {}
    fn list(&mut self, name: &'static str, pages: &[Page]) {}
    fn procs(&mut self, name: &'static str, procs: &[ProcId]) {}
    fn hash(&mut self, name: &'static str, hash: ContentHash) {}
}

macro_rules! core_calls {
    ($(
        $(#[$doc:meta])*
        $number:literal $name:ident $Call:ident { $($field:ident: $type:ty = $kind:ident),* }
            |$core:ident| $replay:expr;
    )*) => {
        /// One call with all of its arguments. Ticks are milliseconds.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum CoreCall<'a> {
            $($(#[$doc])* $Call { $($field: $type),* },)*
        }

        /// Names of the calls, each at its number in a recording.
        pub const CALL_NAMES: [&str; [$($number),*].len()] = {
            let (names, numbers) = ([$(stringify!($name)),*], [$($number),*]);
            let mut i = 0;
            while i < numbers.len() {
                assert!(numbers[i] == i, "calls are in the order of their numbers");
                i += 1;
            }
            names
        };

        impl<'a> CoreCall<'a> {
            /// Number in a recording, an index of [`CALL_NAMES`].
            pub fn kind(&self) -> usize {
                match self {
                    $(CoreCall::$Call { .. } => $number,)*
                }
            }

            /// Its name.
            pub fn name(&self) -> &'static str {
                CALL_NAMES[self.kind()]
            }

            /// Passes the arguments to a visitor, in order.
            pub fn fields(&self, to: &mut impl Fields) {
                match *self {
                    $(CoreCall::$Call { $($field),* } => {
                        $(to.$kind(stringify!($field), $field);)*
                    })*
                }
            }

            pub(crate) fn read(number: u8, from: &'a mut Decoder<'_>) -> Result<CoreCall<'a>, Damaged> {
                Ok(match number {
                    $($number => {
                        $(let $field = from.$kind()?;)*
                        CoreCall::$Call { $($field),* }
                    })*
                    _ => return Err(Damaged::Wrong),
                })
            }
        }

        impl Core {
            /// Replays a recorded call. The calls that follow contain what the pager did with the
            /// answer.
            pub fn replay(&mut self, call: &CoreCall<'_>) {
                match *call {
                    $(CoreCall::$Call { $($field),* } => {
                        let $core = &mut *self;
                        _ = $replay;
                    })*
                }
                // The pager takes them under the same lock or the next.
                _ = self.take_effects();
            }
        }
    };
}

core_calls! {
    0 add_process AddProcess { slots: u32 = small }
        |core| core.add_process(slots);
    1 remove_process RemoveProcess { proc: ProcId = proc }
        |core| core.remove_process(proc);
    2 adopt Adopt { proc: ProcId = proc, page: Page = page, zero: bool = flag }
        |core| core.adopt(proc, page, zero);
    /// `free`: the processes that can take a batch.
    3 pick_victims PickVictims { most: u32 = small, tick: u64 = tick, free: &'a [ProcId] = procs }
        |core| core.pick_victims(most as usize, tick, &|proc| free.contains(&proc));
    4 claim_range ClaimRange { proc: ProcId = proc, range: PageRange = range, most: u32 = small, tick: u64 = tick }
        |core| core.claim_range(proc, range, most as usize, tick);
    5 evicted Evicted { proc: ProcId = proc, first: Page = page, pages: u32 = pages, answer: Answer = answer, tick: u64 = tick }
        |core| core.evicted(proc, first, pages, answer, tick);
    6 pin Pin { proc: ProcId = proc, pages: &'a [Page] = list }
        |core| core.pin(proc, pages.iter().copied());
    7 unpark Unpark { proc: ProcId = proc }
        |core| core.unpark(proc);
    8 fault Fault { proc: ProcId = proc, page: Page = page, limit: PageRange = limit, most: u32 = most }
        |core| core.fault(proc, page, limit, most, &mut Vec::new());
    9 swapped_ahead SwappedAhead { proc: ProcId = proc, page: Page = page, most: u32 = small }
        |core| core.swapped_ahead(proc, page, most, &mut Vec::new());
    10 read_elsewhere ReadElsewhere { pages: u32 = small }
        |core| core.read_elsewhere(pages);
    11 loaded Loaded { proc: ProcId = proc, page: Page = page, filled: Filled = filled }
        |core| core.loaded(proc, page, filled);
    12 removed Removed { proc: ProcId = proc, range: PageRange = range }
        |core| core.removed(proc, range);
    13 unmapped Unmapped { proc: ProcId = proc, range: PageRange = range }
        |core| core.unmapped(proc, range);
    14 disown Disown { proc: ProcId = proc, range: PageRange = range }
        |core| core.disown(proc, range);
    15 remapped Remapped { proc: ProcId = proc, from: PageRange = range, to: Page = page }
        |core| core.remapped(proc, from, to);
    16 forked Forked { parent: ProcId = proc, slots: u32 = small, present: bool = flag }
        |core| core.forked(parent, slots, present);
    17 begin_proof BeginProof { proc: ProcId = proc }
        |core| core.begin_proof(proc);
    18 end_zap_pending EndZapPending { proc: ProcId = proc, epoch: u32 = small }
        |core| core.end_zap_pending(proc, epoch);
    19 end_quarantine EndQuarantine { proc: ProcId = proc, page: Page = page, epoch: u32 = small, present: bool = flag }
        |core| core.end_quarantine(proc, page, epoch, present);
    20 pick_compress PickCompress { most: u32 = small }
        |core| core.pick_compress(most as usize, &mut Vec::new());
    21 goes_on GoesOn { object: ObjectId = object }
        |core| core.goes_on(object);
    22 offer Offer { object: ObjectId = object, origin: Origin = origin, estimate: Option<u32> = estimate }
        |core| core.offer(object, origin, estimate);
    23 compressed Compressed { object: ObjectId = object, coded: Coded = coded }
        |core| core.compressed(object, coded);
    24 compact Compact { most: u32 = small }
        |core| core.compact(most as usize);
    25 next_step NextStep { tick: u64 = tick, seen: Seen = seen }
        |core| core.next_step(tick, seen);
    26 swap_takes SwapTakes { takes: bool = flag }
        |core| core.swap_takes(takes);
    27 pick_writeback PickWriteback { pressed: bool = flag, most_bytes: u32 = small }
        |core| core.pick_writeback(pressed, most_bytes, &mut Vec::new());
    28 block_of BlockOf { object: ObjectId = object }
        |core| core.block_of(object);
    29 written Written { object: ObjectId = object, extent: Option<Extent> = written }
        |core| core.written(object, extent);
    30 relocated Relocated { object: ObjectId = object, from: Extent = extent, to: Stored = stored }
        |core| core.relocated(object, from, to);
    31 inherit Inherit { child: ProcId = proc, range: PageRange = range }
        |core| core.inherit(child, range);
    32 not_compressed NotCompressed { object: ObjectId = object }
        |core| core.not_compressed(object);
    33 reclaim_process ReclaimProcess { proc: ProcId = proc }
        |core| core.reclaim_process(proc);
    34 stop_process_reclaim StopProcessReclaim { proc: ProcId = proc }
        |core| core.stop_process_reclaim(proc);
    35 set_background SetBackground { proc: ProcId = proc, background: bool = flag }
        |core| core.set_background(proc, background);
    36 protect Protect { proc: ProcId = proc, protected: bool = flag }
        |core| core.protect(proc, protected);
    37 pick_oom_victim PickOomVictim { least_pages: u32 = small }
        |core| core.pick_oom_victim(least_pages);
    /// `looked_at`: how many pages, from the first on.
    38 observed Observed { proc: ProcId = proc, first: Page = page, looked_at: u32 = small, accessed: &'a [Page] = list }
        |core| core.observed(proc, PageRange { first, pages: u64::from(looked_at) }, accessed);
    /// `shared`: bit i is page i from `first` on, the pages of a run.
    39 shares Shares { proc: ProcId = proc, first: Page = page, shared: u32 = small }
        |core| core.shares(proc, first, shared);
    40 shares_nothing SharesNothing { proc: ProcId = proc }
        |core| core.shares_nothing(proc);
    41 claim_shared ClaimShared { proc: ProcId = proc, range: PageRange = range, tick: u64 = tick }
        |core| core.claim_shared(proc, range, tick);
    /// `free`: as in `pick_victims`.
    42 pick_shared PickShared { most: u32 = small, tick: u64 = tick, free: &'a [ProcId] = procs }
        |core| core.pick_shared(most as usize, tick, &|proc| free.contains(&proc));
    43 same_as SameAs { object: ObjectId = object, hash: ContentHash = hash }
        |core| core.same_as(object, hash);
    44 refused Refused { object: ObjectId = object }
        |core| core.refused(object);
    45 set_held SetHeld { proc: ProcId = proc, held: bool = flag }
        |core| core.set_held(proc, held);
    46 cache_read CacheRead { extent: Extent = extent }
        |core| core.cache_read(extent);
}

/// Receives each call with its number, from 1 on, and the hash of the decisions before it.
pub type Recorder = Box<dyn FnMut(u64, u64, &CoreCall<'_>) + Send>;

impl Core {
    /// Passes all calls from now on to `recorder`, in addition to the others.
    pub fn add_recorder(&mut self, recorder: Recorder) {
        self.recorders.push(recorder);
    }

    /// Removes all recorders.
    pub fn end_recording(&mut self) {
        self.recorders.clear();
    }

    pub(crate) fn record(&mut self, call: &CoreCall<'_>) {
        self.number += 1;
        let decided = self.decided();
        for recorder in &mut self.recorders {
            recorder(self.number, decided, call);
        }
    }

    /// The process that was added last; meaningless before the first one.
    pub fn last_process(&self) -> ProcId {
        self.last_process
    }

    /// How many pages refer to an object.
    pub fn refs(&self, object: ObjectId) -> u32 {
        self.objects.refs(object)
    }

    /// Number of calls so far.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Begins to hash all decisions: each change of an entry of the page table and of the place of
    /// an object, and each step of reclaim.
    pub fn hash_decisions(&mut self) {
        for decided in [&mut self.table.decided, &mut self.objects.decided, &mut self.driver.decided] {
            decided.on = true;
        }
    }

    /// Hash of all decisions since [`Core::hash_decisions`]. Comparable only within one version of
    /// memfit.
    pub fn decided(&self) -> u64 {
        let [table, objects, driver] = [&self.table.decided, &self.objects.decided, &self.driver.decided];
        table.hash ^ objects.hash.rotate_left(32) ^ driver.hash.rotate_left(16)
    }
}

/// A running hash, if switched on.
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
