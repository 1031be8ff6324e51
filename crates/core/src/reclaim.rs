//! Objects leave staging: for the pool, or raw for the swap tier.

use crate::blocks::block_of;
use crate::core_call::CoreCall;
use crate::engine::Core;
use crate::fault::Stored;
use crate::grow::reserve_tight;
use crate::ids::{ObjectId, StagingSlot, NIL, PAGE_BYTES};
use crate::object::{ContentHash, Place};
use crate::pool::{Runs, Span};
use crate::replacement::{ReplacementMode, Zpage};
use crate::scheme::{AdmissionKind, Classes, RoutingKind, SwapFormat};
use alloc::vec::Vec;

/// A staged page to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compress {
    /// The object with its contents.
    pub object: ObjectId,
    /// Where the bytes are; they stay until [`Core::compressed`].
    pub slot: StagingSlot,
    /// Hash of its 256 KiB region: pages of a region compress alike.
    pub region: u32,
    /// Other processes had the page, too: hash its contents for [`Core::same_as`].
    pub shared: bool,
}

/// Result of the codec for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coded {
    /// One repeated word.
    Word(u64),
    /// `len` bytes by codec number `codec`.
    Bytes {
        /// Codec number, not 0.
        codec: u8,
        /// Bytes.
        len: u32,
    },
    /// The swap tier still has these contents, and no other object refers to them there. Raw slots:
    /// [`Core::kept_slot`] has them.
    Stored(Stored),
    /// The result is too long to be of use.
    Incompressible,
}

/// Where the caller must put the coded bytes before it releases the core lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placed {
    /// Nowhere: the page is same-filled or clean, its contents are stored already, it was dropped,
    /// or is gone. It has left staging.
    Nothing,
    /// Nowhere: a fault reads the page, and it stays staged.
    Refaulted,
    /// Copy the coded bytes (or, for [`Coded::Incompressible`], the page) into the pool. `grew`
    /// says which frames came into use.
    Pool {
        /// Where.
        runs: Runs,
        /// New frames.
        grew: Span,
        /// With it units of the pool became due. Compress no further: the next write-back takes
        /// them.
        due: bool,
    },
    /// Write the page raw to the swap tier, then call [`Core::written`].
    Swap,
    /// The pool is at its limit: write back first, then offer the page again.
    Full,
}

/// Why a page was evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Background reclaim keeps memory free.
    Background,
    /// A program waits for memory.
    Direct,
    /// A process gives up all of its pages ([`Core::reclaim_process`]).
    Process,
}

impl Core {
    /// The oldest staged pages, up to `max`.
    pub fn pick_compress(&mut self, max: usize, out: &mut Vec<Compress>) {
        self.record(&CoreCall::PickCompress { most: max.saturating_sub(out.len()) as u32 });
        let mut i = self.objects.staged.head;
        while i != NIL && out.len() < max {
            let (id, next) = (ObjectId(i), self.objects.next(i));
            if let (Place::Staged(slot), false) = (self.objects.place_of(id), self.objects.pinned(id)) {
                self.objects.place(id, Place::Compressing(slot));
                let shared = self.objects.is_shared(id);
                out.push(Compress { object: id, slot, region: self.objects.region(id), shared });
            }
            i = next;
        }
    }

    /// Whether a staged page came from the swap tier, and would soon go there again or has its raw
    /// slot still. Then look whether its bytes are there ([`Coded::Stored`]) before anything else.
    pub fn goes_on(&mut self, id: ObjectId) -> bool {
        self.record(&CoreCall::GoesOn { object: id });
        self.objects.goes_on(id) || self.pool_control.kept_slot(id).is_some()
    }

    /// Whether the scheme can make [`Core::offer`] decide anything.
    pub fn wants_offer(&self) -> bool {
        let scheme = &self.tunables.scheme;
        self.pool_control.selective.is_some()
            || scheme.admission.kind == AdmissionKind::None
            || scheme.routing.kind == RoutingKind::ByOrigin
            || scheme.classes == Classes::FileDropped
            || scheme.admission.need_permille > 0
            || self.tries_files()
    }

    /// Whether pages of files go to the pool as long as they are wanted there.
    fn tries_files(&self) -> bool {
        self.tunables.scheme.classes == Classes::FilePooled
            && matches!(self.pool_control.mode, ReplacementMode::Queue(_))
    }

    /// Whether [`Core::offer`] needs an estimate of this page's compressed size.
    pub fn wants_estimate(&self, id: ObjectId) -> bool {
        self.pool_control.selective.is_some() && !self.is_not_pooled(id)
    }

    /// Whether the page is of a file, and the scheme drops such pages.
    fn is_not_pooled(&self, id: ObjectId) -> bool {
        self.objects.is_file(id) && self.tunables.scheme.classes != Classes::FilePooled
    }

    /// Longest useful result of a codec, bytes.
    pub fn len_max(&self) -> u32 {
        let admission = &self.tunables.scheme.admission;
        match (admission.kind, admission.cap_below_percent) {
            (AdmissionKind::SizeCap, 100) => self.pool_control.cap(),
            _ => PAGE_BYTES as u32 - 1,
        }
    }

    /// The contents of a picked page that other processes had, too. If they are stored already, the
    /// page leaves staging. `None`: compress it.
    pub fn same_as(&mut self, id: ObjectId, hash: ContentHash) -> Option<Placed> {
        self.record(&CoreCall::SameAs { object: id, hash });
        let Place::Compressing(slot) = self.objects.place_of(id) else {
            panic!("object {} is not being compressed", id.0)
        };
        // A page of a file can be dropped, and then comes back from there.
        if self.objects.refs(id) == 0 || self.objects.pinned(id) || self.objects.is_file(id) {
            return None;
        }
        let Some(other) = self.objects.contents.find(hash).filter(|&other| other != id) else {
            self.objects.contents.know(id, hash);
            return None;
        };
        // One that waits to be stored can be refused by the pool.
        let place = self.objects.place_of(other);
        if !matches!(place, Place::Pooled(_) | Place::Writing(_) | Place::Swapped(_)) || self.objects.refs(other) == 0 {
            return None;
        }
        self.pool_control.leaves_staging(id);
        self.staging.give_back(slot);
        self.objects.add_ref(other);
        self.objects.set_codec(id, 0, 0);
        self.objects.place(id, Place::Same(other));
        self.counters.same += 1;
        Some(Placed::Nothing)
    }

    /// Decides about a picked page before it is compressed. `None`: compress it, then call
    /// [`Core::compressed`]. Otherwise the decision is final. `estimate` is the entropy of the
    /// page's first bytes, in 65536ths of the largest possible entropy.
    pub fn offer(&mut self, id: ObjectId, origin: Origin, estimate: Option<u32>) -> Option<Placed> {
        self.record(&CoreCall::Offer { object: id, origin, estimate });
        let Place::Compressing(slot) = self.objects.place_of(id) else {
            panic!("object {} is not being compressed", id.0)
        };
        if self.objects.refs(id) == 0 || self.objects.pinned(id) {
            return None;
        }
        let scheme = &self.tunables.scheme;
        let (admission, routing) = (scheme.admission.kind, scheme.routing.kind);
        let file = self.objects.is_file(id);
        let in_advance = routing == RoutingKind::ByOrigin && origin == Origin::Background && !file;
        let not_pooled = self.is_not_pooled(id);
        let by_entropy = match (&self.pool_control.selective, estimate) {
            (Some(selective), Some(estimate)) if !not_pooled => {
                let total = u64::from(self.pool_control.limit_frames()) * PAGE_BYTES;
                !selective.admits(estimate, file, self.pool.usage().used_bytes, total)
            }
            _ => false,
        };
        let unwanted = file && self.tries_files() && !self.file_trial.admits();
        let by_need = !in_advance && !by_entropy && !file && self.objects.is_kept_out(id);
        let left_out = in_advance || by_entropy || not_pooled || unwanted || by_need;
        if !left_out && admission != AdmissionKind::None {
            return None;
        }
        let placed = self.leave_out(id, slot)?;
        self.counters.by_need += u64::from(by_need);
        self.counters.in_advance += u64::from(in_advance);
        self.counters.by_entropy += u64::from(by_entropy);
        Some(placed)
    }

    /// Keeps a staged page out of the pool: drops a clean page of a file, and sends any other raw
    /// to the swap tier. `None` if the tier does not take it.
    fn leave_out(&mut self, id: ObjectId, slot: StagingSlot) -> Option<Placed> {
        self.pool_control.leaves_staging(id);
        if self.objects.is_file(id) {
            self.staging.give_back(slot);
            self.objects.place(id, Place::Dropped);
            self.counters.file_dropped += 1;
            return Some(Placed::Nothing);
        }
        self.pool_control.takes_raw(id).then(|| {
            self.objects.place(id, Place::WritingRaw(slot));
            Placed::Swap
        })
    }

    /// The codec has finished a page.
    pub fn compressed(&mut self, id: ObjectId, coded: Coded) -> Placed {
        self.record(&CoreCall::Compressed { object: id, coded });
        let undone = !self.effects.spans.is_empty() || !self.effects.moves.is_empty();
        assert!(!undone, "freed frames were not taken, or bytes not moved, before a placement");
        let Place::Compressing(slot) = self.objects.place_of(id) else {
            panic!("object {} is not being compressed", id.0)
        };
        let wanted = self.objects.pinned(id);
        if self.objects.refs(id) == 0 || wanted {
            self.counters.wasted += 1;
            // A raw slot is the object's in any case.
            if let (Coded::Stored(stored), true) = (coded, self.pool_control.format() != SwapFormat::RawSlots) {
                self.effects.extents.push((stored.extent, stored.len));
            }
            // Either a fault is reading the slot, or the page is gone.
            if wanted {
                self.objects.place(id, Place::Staged(slot));
                return Placed::Refaulted;
            }
            self.free_place(id, Place::Compressing(slot));
            return Placed::Nothing;
        }
        let kept = self.pool_control.leaves_staging(id);
        match coded {
            Coded::Word(word) => {
                let word = self.objects.fills.intern(word);
                self.staging.give_back(slot);
                self.objects.place(id, Place::Filled(word));
                self.counters.filled += 1;
                Placed::Nothing
            }
            Coded::Bytes { codec, len } => self.put_into_pool(id, slot, codec, len),
            Coded::Stored(stored) => {
                let raw = self.pool_control.format() == SwapFormat::RawSlots;
                assert!(!raw || kept == Some(block_of(stored.extent)), "object {} is not in {stored:?}", id.0);
                self.staging.give_back(slot);
                self.objects.set_codec(id, stored.codec, stored.len);
                if stored.codec != 0 {
                    self.objects.found();
                }
                self.objects.place(id, Place::Swapped(stored.extent));
                self.counters.clean += 1;
                Placed::Nothing
            }
            Coded::Incompressible => self.put_raw_into_pool(id, slot),
        }
    }

    /// The rest of the picked pages are not compressed now, because the pool has become full. They
    /// wait in front of the others, in their order.
    pub fn give_back(&mut self, rest: &[Compress]) {
        rest.iter().rev().for_each(|item| self.not_compressed(item.object));
    }

    pub(crate) fn not_compressed(&mut self, id: ObjectId) {
        self.record(&CoreCall::NotCompressed { object: id });
        let Place::Compressing(slot) = self.objects.place_of(id) else {
            panic!("object {} is not being compressed", id.0)
        };
        if self.objects.refs(id) == 0 && !self.objects.pinned(id) {
            return self.free_place(id, Place::Compressing(slot));
        }
        self.objects.place_front(id, Place::Staged(slot));
    }

    /// An incompressible page: admission by size leaves it out, unless the pool has few raw pages.
    /// Otherwise it takes a frame.
    fn put_raw_into_pool(&mut self, id: ObjectId, slot: StagingSlot) -> Placed {
        let len = PAGE_BYTES as u32;
        let (control, pool) = (&self.pool_control, &self.pool);
        if !control.keeps_len(len, || pool.usage()) {
            let share = u64::from(self.tunables.scheme.admission.raw_percent);
            if self.objects.keeps_raw()
                && !control.full
                && self.objects.raw_pooled() * 100 < pool.usage().zpages * share
            {
                return self.put_into_pool(id, slot, 0, len);
            }
            if let Some(placed) = self.leave_out(id, slot) {
                self.counters.incompressible += 1;
                return placed;
            }
        }
        self.put_into_pool(id, slot, 0, len)
    }

    fn put_into_pool(&mut self, id: ObjectId, staging: StagingSlot, codec: u8, len: u32) -> Placed {
        let (control, pool) = (&self.pool_control, &self.pool);
        if codec != 0 && !control.keeps_len(len, || pool.usage()) {
            // Known only after compression (zsmalloc-sr, rule 15).
            if let Some(placed) = self.leave_out(id, staging) {
                self.counters.incompressible += 1;
                return placed;
            }
        }
        let mut placed = self.find_room(len);
        if matches!(placed, Err(Some(_))) && self.pool_control.can_grow() && !self.pool_control.takes_raw(id) {
            // Nothing takes the page, so the pool does not wait for its next check.
            self.pool_control.grow_now(&mut *self.pool);
            placed = self.find_room(len);
        }
        let placed = match placed {
            Ok(placed) => placed,
            Err(missing) => return self.no_room(id, staging, missing),
        };
        let index = placed.handle.raw() as usize;
        if self.owners.len() <= index {
            let missing = index + 1 - self.owners.len();
            reserve_tight(&mut self.owners, missing);
            self.owners.resize(index + 1, ObjectId(NIL));
        }
        self.owners[index] = id;
        self.staging.give_back(staging);
        self.objects.set_codec(id, codec, len as u16);
        self.objects.judge(id);
        self.objects.place(id, Place::Pooled(placed.handle));
        let raw = codec == 0;
        self.counters.compressed += u64::from(!raw);
        self.counters.incompressible += u64::from(raw);
        self.counters.stored_raw += u64::from(raw);
        self.stays(id);
        let due = self.stored_in_pool(id, &placed, len);
        Placed::Pool { runs: placed.runs, grew: placed.grew, due }
    }

    /// Frames that are missing if there is none; `None` if the obstacle is another one.
    fn find_room(&mut self, len: u32) -> Result<crate::pool::Placed, Option<u32>> {
        if !self.pool_control.may_store(self.objects.live()) {
            return Err(None);
        }
        self.pool.place(len).map_err(|full| {
            let missing = (full.frames_used + full.frames_needed).saturating_sub(self.pool_control.limit_frames());
            Some(missing.max(1))
        })
    }

    /// Whether units of the pool became due.
    fn stored_in_pool(&mut self, id: ObjectId, placed: &crate::pool::Placed, len: u32) -> bool {
        let file = self.objects.is_file(id);
        let unit = self.pool.unit(placed.handle);
        let slot = placed.runs.slot();
        if slot.offset == 0 {
            self.pool_control.buffer_begun(slot.frame);
        }
        if let Some(selective) = &mut self.pool_control.selective {
            selective.entered(len, file);
        }
        let before = self.pool_control.due.len();
        if let ReplacementMode::Policy(policy) = &mut self.pool_control.mode {
            policy.stored(Zpage { handle: placed.handle, len, file }, unit, self.pool.view(unit));
            policy.due(&mut self.pool_control.due);
            // From now on their contents stay as they will be written.
            self.pool_control.due[before..].iter().for_each(|&due| self.pool.seal(due, true));
        }
        self.pool_control.stored(&mut *self.pool);
        self.objects.stored(self.pool.usage().zpages);
        self.pool_control.due.len() > before
    }

    /// The pool has no room: if nothing ever leaves it, a new page bypasses it, else the page
    /// waits.
    fn no_room(&mut self, id: ObjectId, staging: StagingSlot, missing: Option<u32>) -> Placed {
        let waits = !matches!(self.pool_control.mode, ReplacementMode::Nobody) && self.pool_control.limit_frames() > 0;
        if !waits {
            if let Some(placed) = self.leave_out(id, staging) {
                self.counters.pool_full += 1;
                return placed;
            }
        }
        self.objects.place_front(id, Place::Staged(staging));
        self.pool_control.full = true;
        self.pool_control.missed();
        self.pool_control.blocked = !waits || missing.is_none();
        self.pool_control.needed = missing.unwrap_or(1);
        Placed::Full
    }
}
