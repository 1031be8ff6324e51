//! Evicted contents: one object per distinct evicted page, shared by reference count.

use crate::grow::reserve_tight;
use crate::ids::{AreaId, Extent, ObjectId, StagingSlot, NIL};
use crate::list::{Linked, Links, List};
use crate::pool::Handle;
use std::collections::HashMap;

/// Where an object's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Uncompressed in a staging slot.
    Staged(StagingSlot),
    /// In a staging slot that a codec thread is reading.
    Compressing(StagingSlot),
    /// Nowhere: one repeated 8-byte word, by number in the fill table.
    Filled(u32),
    /// Compressed in the pool.
    Pooled(Handle),
    /// In the pool while the pager writes it to the swap tier.
    Writing(Handle),
    /// In a staging slot while the pager writes it raw to the swap tier.
    WritingRaw(StagingSlot),
    /// In the swap tier.
    Swapped(Extent),
}

/// Packed object, 28 bytes.
#[derive(Debug, Clone, Copy)]
struct Object {
    links: Links,
    refs: u32,
    number: u32,
    /// Which 256 KiB region it came from, hashed: pages of a region compress alike.
    region: u32,
    area: u16,
    len: u16,
    tag: u8,
    codec: u8,
    pins: u16,
}

const FREE: u8 = u8::MAX;

/// The object table with its queues.
#[derive(Debug)]
pub(crate) struct Objects {
    all: Vec<Object>,
    /// First of the free ones, which are linked by `next`.
    free: u32,
    live: u32,
    /// Staged objects, oldest first: the inactive list.
    pub staged: List,
    /// Pooled objects, oldest first.
    pub pooled: List,
    pub fills: FillTable,
    pub swapped: u64,
    pub filled: u64,
}

struct Arena<'a>(&'a mut Vec<Object>);

impl Linked for Arena<'_> {
    fn links(&mut self, i: u32) -> &mut Links {
        &mut self.0[i as usize].links
    }
}

impl Objects {
    pub fn new() -> Objects {
        let fills = FillTable::default();
        Objects {
            all: Vec::new(),
            free: NIL,
            live: 0,
            staged: List::EMPTY,
            pooled: List::EMPTY,
            fills,
            swapped: 0,
            filled: 0,
        }
    }

    /// A new object with one reference, at the young end of its queue.
    pub fn create(&mut self, slot: StagingSlot, region: u32) -> ObjectId {
        let object = Object {
            links: Links::UNLINKED,
            refs: 1,
            number: 0,
            region,
            area: 0,
            len: 0,
            tag: FREE,
            codec: 0,
            pins: 0,
        };
        let i = if self.free == NIL {
            reserve_tight(&mut self.all, 1);
            self.all.push(object);
            self.all.len() as u32 - 1
        } else {
            let i = self.free;
            self.free = self.all[i as usize].links.next;
            self.all[i as usize] = object;
            i
        };
        self.live += 1;
        let id = ObjectId(i);
        self.place(id, Place::Staged(slot));
        id
    }

    /// As [`Objects::place_of`], for a number that may be free by now.
    pub fn place_if_live(&self, id: ObjectId) -> Option<Place> {
        (self.all.get(id.0 as usize)?.tag != FREE).then(|| self.place_of(id))
    }

    pub fn place_of(&self, id: ObjectId) -> Place {
        let o = &self.all[id.0 as usize];
        let slot = StagingSlot { area: AreaId(u32::from(o.area)), index: o.number };
        match o.tag {
            0 => Place::Staged(slot),
            1 => Place::Compressing(slot),
            2 => Place::Filled(o.number),
            3 => Place::Pooled(Handle::from_raw(o.number)),
            4 => Place::Writing(Handle::from_raw(o.number)),
            5 => Place::WritingRaw(slot),
            6 => Place::Swapped(Extent { unit: o.number }),
            _ => panic!("object {} is free", id.0),
        }
    }

    /// The one place where an object's place changes: queues and counts follow it.
    pub fn place(&mut self, id: ObjectId, place: Place) {
        self.leave(id);
        let (tag, number, area) = match place {
            Place::Staged(s) => (0, s.index, s.area.0),
            Place::Compressing(s) => (1, s.index, s.area.0),
            Place::Filled(word) => (2, word, 0),
            Place::Pooled(handle) => (3, handle.raw(), 0),
            Place::Writing(handle) => (4, handle.raw(), 0),
            Place::WritingRaw(s) => (5, s.index, s.area.0),
            Place::Swapped(extent) => (6, extent.unit, 0),
        };
        let o = &mut self.all[id.0 as usize];
        (o.tag, o.number, o.area) = (tag, number, u16::try_from(area).expect("under 65536 staging areas"));
        let mut arena = Arena(&mut self.all);
        match place {
            Place::Staged(_) => self.staged.push_back(&mut arena, id.0),
            Place::Pooled(_) => self.pooled.push_back(&mut arena, id.0),
            Place::Swapped(_) => self.swapped += 1,
            Place::Filled(_) => self.filled += 1,
            _ => {}
        }
    }

    fn leave(&mut self, id: ObjectId) {
        let tag = self.all[id.0 as usize].tag;
        let mut arena = Arena(&mut self.all);
        match tag {
            0 => self.staged.remove(&mut arena, id.0),
            3 => self.pooled.remove(&mut arena, id.0),
            6 => self.swapped -= 1,
            2 => self.filled -= 1,
            _ => {}
        }
    }

    /// As [`Objects::place`] for a staged object, but at the old end of its queue: it is next again.
    pub fn place_front(&mut self, id: ObjectId, place: Place) {
        self.place(id, place);
        if let Place::Staged(_) = place {
            let mut arena = Arena(&mut self.all);
            self.staged.remove(&mut arena, id.0);
            self.staged.push_front(&mut arena, id.0);
        }
    }

    /// Codec number and stored length, bytes.
    pub fn set_codec(&mut self, id: ObjectId, codec: u8, len: u16) {
        let o = &mut self.all[id.0 as usize];
        (o.codec, o.len) = (codec, len);
    }

    /// Codec number and stored length in bytes of a pooled or swapped object.
    pub fn codec(&self, id: ObjectId) -> (u8, u16) {
        let o = &self.all[id.0 as usize];
        (o.codec, o.len)
    }

    /// The region hash.
    pub fn region(&self, id: ObjectId) -> u32 {
        self.all[id.0 as usize].region
    }

    pub fn add_ref(&mut self, id: ObjectId) {
        self.all[id.0 as usize].refs += 1;
    }

    /// Returns how many references are left.
    pub fn drop_ref(&mut self, id: ObjectId) -> u32 {
        let o = &mut self.all[id.0 as usize];
        assert!(o.refs > 0, "object {} has no reference to drop", id.0);
        o.refs -= 1;
        o.refs
    }

    pub fn refs(&self, id: ObjectId) -> u32 {
        self.all[id.0 as usize].refs
    }

    /// While pinned an object does not change its place: a thread reads its bytes without the lock.
    pub fn pin(&mut self, id: ObjectId) {
        self.all[id.0 as usize].pins += 1;
    }

    pub fn unpin(&mut self, id: ObjectId) {
        let o = &mut self.all[id.0 as usize];
        assert!(o.pins > 0, "object {} is not pinned", id.0);
        o.pins -= 1;
    }

    pub fn pinned(&self, id: ObjectId) -> bool {
        self.all[id.0 as usize].pins > 0
    }

    pub fn release(&mut self, id: ObjectId) {
        self.leave(id);
        let o = &mut self.all[id.0 as usize];
        assert!(o.refs == 0 && o.pins == 0 && o.tag != FREE, "object {} released while in use", id.0);
        o.tag = FREE;
        o.links = Links { prev: NIL, next: self.free };
        self.free = id.0;
        self.live -= 1;
    }

    /// The next younger object in the same queue.
    pub fn next(&self, id: u32) -> u32 {
        self.all[id as usize].links.next
    }

    /// Objects that exist.
    pub fn live(&self) -> u64 {
        u64::from(self.live)
    }

    /// Bytes that the table itself takes.
    pub fn metadata_bytes(&self) -> u64 {
        (self.all.capacity() * size_of::<Object>() + self.fills.words.capacity() * 16) as u64
    }

    /// All live objects with reference counts, for the invariant check.
    pub fn iter_live(&self) -> impl Iterator<Item = (ObjectId, u32, Place)> + '_ {
        (0..self.all.len() as u32)
            .filter(|&i| self.all[i as usize].tag != FREE)
            .map(|i| (ObjectId(i), self.all[i as usize].refs, self.place_of(ObjectId(i))))
    }

    /// Length of a queue by walking it, for the invariant check.
    pub fn walk(&self, list: &List) -> u32 {
        let (mut i, mut n) = (list.head, 0);
        while i != NIL {
            n += 1;
            i = self.next(i);
        }
        n
    }
}

/// Words of same-filled pages, each stored once.
#[derive(Debug, Default)]
pub(crate) struct FillTable {
    words: Vec<(u64, u32)>,
    free: Vec<u32>,
    by_word: HashMap<u64, u32>,
}

impl FillTable {
    pub fn intern(&mut self, word: u64) -> u32 {
        if let Some(&i) = self.by_word.get(&word) {
            self.words[i as usize].1 += 1;
            return i;
        }
        let i = match self.free.pop() {
            Some(i) => {
                self.words[i as usize] = (word, 1);
                i
            }
            None => {
                self.words.push((word, 1));
                self.words.len() as u32 - 1
            }
        };
        self.by_word.insert(word, i);
        i
    }

    pub fn word(&self, i: u32) -> u64 {
        self.words[i as usize].0
    }

    pub fn release(&mut self, i: u32) {
        let (word, refs) = &mut self.words[i as usize];
        *refs -= 1;
        if *refs == 0 {
            self.by_word.remove(word);
            self.free.push(i);
        }
    }
}
