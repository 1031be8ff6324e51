//! From staging to the pool, and from the pool to the swap tier.

use crate::engine::{Call, Core};
use crate::fault::Stored;
use crate::grow::reserve_tight;
use crate::ids::{Extent, ObjectId, StagingSlot, NIL};
use crate::object::Place;
use crate::pool::{Slot, Span};
use crate::swap_log::{stored_bytes, SegmentId};

/// A staged page to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compress {
    /// Its contents.
    pub object: ObjectId,
    /// Where the bytes are; they stay until [`Core::compressed`].
    pub slot: StagingSlot,
    /// Names its 256 KiB region: pages of a region compress alike.
    pub region: u32,
}

/// What the codec made of a page.
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
    /// The swap tier has these contents still, and nobody else refers to them there.
    Stored(Stored),
    /// Did not get small enough.
    Incompressible,
}

/// Where the caller must put the coded bytes, before it releases the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// Nothing to put: same-filled, dropped meanwhile, or wanted meanwhile.
    Nothing,
    /// Copy the coded bytes (or, for [`Coded::Incompressible`], the page) to this slot. `grew` says
    /// which frames came into use.
    Pool {
        /// Where.
        slot: Slot,
        /// New frames.
        grew: Span,
    },
    /// Write the page raw to the swap tier, then call [`Core::written`].
    Swap,
    /// The pool is at its limit: write back first, then offer the page again.
    Full,
}

/// A pooled object to write to the swap tier. Its bytes stay until [`Core::written`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteBack {
    /// Its contents.
    pub object: ObjectId,
    /// Where the bytes are.
    pub slot: Slot,
    /// Bytes.
    pub len: u32,
}

impl Core {
    /// The oldest staged pages, up to `max`.
    pub fn pick_compress(&mut self, max: usize, out: &mut Vec<Compress>) {
        let mut i = self.objects.staged.head;
        while i != NIL && out.len() < max {
            let (id, next) = (ObjectId(i), self.objects.next(i));
            if let (Place::Staged(slot), false) = (self.objects.place_of(id), self.objects.pinned(id)) {
                self.objects.place(id, Place::Compressing(slot));
                out.push(Compress { object: id, slot, region: self.objects.region(id) });
            }
            i = next;
        }
    }

    /// Whether a staged page would go on to the swap tier soon, and came from there: then it is worth to look whether its bytes
    /// are there still ([`Coded::Stored`]) before it is compressed.
    pub fn goes_on(&mut self, id: ObjectId) -> bool {
        self.objects.goes_on(id)
    }

    /// The codec is done with a page.
    pub fn compressed(&mut self, id: ObjectId, coded: Coded) -> Placed {
        let len = if let Coded::Bytes { len, .. } = coded { len } else { 0 };
        self.trace(Call::Compressed { object: id.0, len });
        assert!(self.effects.spans.is_empty(), "freed frames were not taken before a placement");
        let Place::Compressing(slot) = self.objects.place_of(id) else {
            panic!("object {} is not being compressed", id.0)
        };
        let wanted = self.objects.pinned(id);
        if self.objects.refs(id) == 0 || wanted {
            self.counters.wasted += 1;
            if let Coded::Stored(stored) = coded {
                self.effects.extents.push((stored.extent, stored.len));
            }
            // A fault is reading the slot, or nobody will ever again.
            match wanted {
                true => self.objects.place(id, Place::Staged(slot)),
                false => self.free_place(id, Place::Compressing(slot)),
            }
            return Placed::Nothing;
        }
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
                self.staging.give_back(slot);
                self.objects.set_codec(id, stored.codec, stored.len);
                if stored.codec != 0 {
                    self.objects.found();
                }
                self.objects.place(id, Place::Swapped(stored.extent));
                self.counters.clean += 1;
                Placed::Nothing
            }
            Coded::Incompressible if self.tunables.swap => {
                self.objects.place(id, Place::WritingRaw(slot));
                self.counters.incompressible += 1;
                Placed::Swap
            }
            Coded::Incompressible => {
                self.counters.incompressible += 1;
                self.put_into_pool(id, slot, 0, crate::ids::PAGE_BYTES as u32)
            }
        }
    }

    fn put_into_pool(&mut self, id: ObjectId, staging: StagingSlot, codec: u8, len: u32) -> Placed {
        let Ok(placed) = self.pool.place(len) else {
            self.objects.place_front(id, Place::Staged(staging));
            return Placed::Full;
        };
        let index = placed.handle.raw() as usize;
        if self.owners.len() <= index {
            let missing = index + 1 - self.owners.len();
            reserve_tight(&mut self.owners, missing);
            self.owners.resize(index + 1, NIL);
        }
        self.owners[index] = id.0;
        self.staging.give_back(staging);
        self.objects.set_codec(id, codec, len as u16);
        self.objects.judge(id);
        self.objects.place(id, Place::Pooled(placed.handle));
        self.counters.compressed += u64::from(codec != 0);
        Placed::Pool { slot: placed.slot, grew: placed.grew }
    }

    /// The pooled objects that shall leave first, up to `max_bytes` in the swap tier: of the group of runs that has most
    /// in the pool, what is on probation before the rest if that shall leave first, the oldest of them.
    pub fn pick_writeback(&mut self, max_bytes: u32, out: &mut Vec<WriteBack>) {
        let mut bytes = 0;
        for mut i in self.objects.oldest_pooled() {
            while i != NIL {
                let (id, next) = (ObjectId(i), self.objects.next(i));
                i = next;
                let Place::Pooled(handle) = self.objects.place_of(id) else { continue };
                if self.objects.pinned(id) {
                    continue;
                }
                let (slot, len) = self.pool.slot(handle);
                if bytes + stored_bytes(len) > max_bytes {
                    return;
                }
                bytes += stored_bytes(len);
                self.trace(Call::WriteBack { object: id.0 });
                self.objects.place(id, Place::Writing(handle));
                out.push(WriteBack { object: id, slot, len });
            }
        }
    }

    /// The write of an object ended: `None` if it failed. An extent that is not kept comes back as an
    /// effect.
    pub fn written(&mut self, id: ObjectId, extent: Option<Extent>) {
        let place = self.objects.place_of(id);
        let keep = extent.is_some() && self.objects.refs(id) > 0 && !self.objects.pinned(id);
        self.trace(Call::Written { object: id.0, kept: keep });
        let (codec, len) = match place {
            Place::Writing(_) => self.objects.codec(id),
            Place::WritingRaw(_) => (0, crate::ids::PAGE_BYTES as u16),
            other => panic!("object {} is not being written but {other:?}", id.0),
        };
        self.counters.swap_failed += u64::from(extent.is_none());
        if !keep {
            if let Some(extent) = extent {
                self.effects.extents.push((extent, len));
            }
        }
        match (extent, place) {
            _ if self.objects.refs(id) == 0 => self.free_place(id, place),
            (Some(extent), Place::Writing(handle)) if keep => {
                self.unpool(handle);
                self.swapped(id, extent, codec, len);
            }
            (Some(extent), Place::WritingRaw(slot)) if keep => {
                self.staging.give_back(slot);
                self.swapped(id, extent, codec, len);
            }
            (_, Place::Writing(handle)) => self.objects.place(id, Place::Pooled(handle)),
            (_, Place::WritingRaw(slot)) => self.objects.place(id, Place::Staged(slot)),
            _ => {}
        }
    }

    /// The object in the swap tier at this place, if it is still there and nobody reads it: it may be appended elsewhere.
    pub fn movable(&self, id: ObjectId, segment: SegmentId) -> Option<Stored> {
        let Place::Swapped(extent) = self.objects.place_if_live(id)? else { return None };
        let (codec, len) = self.objects.codec(id);
        let here = SegmentId::of(extent) == segment && !self.objects.pinned(id);
        here.then_some(Stored { extent, len, codec })
    }

    /// The object's bytes were appended anew. Whichever of the two places it is not in comes back as an effect.
    pub fn relocated(&mut self, id: ObjectId, from: Extent, to: Stored) {
        let same = self.objects.place_if_live(id) == Some(Place::Swapped(from)) && !self.objects.pinned(id);
        self.trace(Call::Relocated { object: id.0, kept: same });
        if same {
            self.objects.place(id, Place::Swapped(to.extent));
        }
        self.effects.extents.push((if same { from } else { to.extent }, to.len));
    }

    fn swapped(&mut self, id: ObjectId, extent: Extent, codec: u8, len: u16) {
        self.objects.set_codec(id, codec, len);
        self.objects.place(id, Place::Swapped(extent));
        self.counters.to_swap += 1;
        self.counters.raw_to_swap += u64::from(codec == 0);
    }
}
