//! Evicted contents: one object per distinct evicted page, shared by reference count.

use crate::ages::Ages;
use crate::core_call::Decided;
use crate::duel::{Duel, Group, GROUPS};
use crate::grow::reserve_tight;
use crate::ids::{AreaId, Extent, ObjectId, StagingSlot, NIL};
use crate::list::{Linked, Links, List};
use crate::pool::Handle;
use crate::scheme::ReclaimKind;
use alloc::vec::Vec;
use hashbrown::{hash_map::Entry, HashMap};

/// Where an object's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Uncompressed in a staging slot.
    Staged(StagingSlot),
    /// In a staging slot that a codec thread is reading.
    Compressing(StagingSlot),
    /// Stored nowhere: one repeated 8-byte word, by its index in the fill table.
    Filled(u32),
    /// Compressed in the pool.
    Pooled(Handle),
    /// In the pool while the pager writes it to the swap tier.
    Writing(Handle),
    /// In a staging slot while the pager writes it raw to the swap tier.
    WritingRaw(StagingSlot),
    /// In the swap tier.
    Swapped(Extent),
    /// Stored nowhere: a clean page of a file, which a fault reads from the file.
    Dropped,
    /// The same contents as another object, which is stored. Counts as a reference to that.
    Same(ObjectId),
}

/// Packed object, 28 bytes.
#[derive(Debug, Clone, Copy)]
struct Object {
    links: Links,
    refs: u32,
    number: u32,
    /// Hash of the 256 KiB region that the page came from: pages of a region compress alike.
    region: u32,
    area: u16,
    len: u16,
    /// Place, duel group, [`FILE`] and [`FETCHED`].
    tag: u8,
    codec: u8,
    pins: u16,
}

/// Flags in the length of a staged object: the pool does not take it; other processes had the page,
/// too, when it was evicted.
const KEPT_OUT: u16 = 1 << 15;
const SHARED: u16 = 1 << 14;
const FREE: u8 = 15;
/// Mask of the place in the tag.
const PLACE: u8 = 15;
/// Shift of the group in the tag.
const GROUP_SHIFT: u32 = 4;
const GROUP: u8 = 3 << GROUP_SHIFT;
/// A clean page of a file.
const FILE: u8 = 0x40;
/// The page came from the swap tier or from its file when it last came back. In the pool: the
/// object is on probation.
const FETCHED: u8 = 0x80;

impl Object {
    fn place(&self) -> u8 {
        self.tag & PLACE
    }

    fn group(&self) -> usize {
        usize::from((self.tag & GROUP) >> GROUP_SHIFT)
    }

    /// Whether the duel counts the object. It counts only compressed ones: raw objects say nothing
    /// about the order in which pages should leave the pool.
    fn counts(&self) -> bool {
        self.codec != 0
    }

    fn on_probation(&self) -> usize {
        usize::from(self.tag & FETCHED != 0)
    }

    /// Number of its queue while it is in the pool.
    fn queue(&self, raw_queue: bool) -> usize {
        if raw_queue && !self.counts() {
            return RAW_QUEUE;
        }
        1 + 2 * self.group() + self.on_probation()
    }
}

/// How often pages that came back from the swap tier leave again unchanged.
#[derive(Debug, Default)]
struct Pays {
    asked: u32,
    found: u32,
}

/// The counts are halved after this many checked pages.
const PAYS_WINDOW: u32 = 1024;
/// Checks pay if one page in this many is unchanged: a hash takes a tenth of the time of a
/// compression.
const PAYS_EVERY: u32 = 8;
/// While checks do not pay, one region in this many is checked.
const TRIED_EVERY: u32 = 16;

impl Pays {
    fn try_for(&self, region: u32) -> bool {
        self.found * PAYS_EVERY >= self.asked || region % TRIED_EVERY == 0
    }

    fn age(&mut self) {
        if self.asked >= PAYS_WINDOW {
            (self.asked, self.found) = (self.asked / 2, self.found / 2);
        }
    }
}

/// Queues of pooled objects: one for raw objects, and two for each group.
const QUEUES: usize = 2 * GROUPS + 1;
const RAW_QUEUE: usize = 0;
/// Fewest stores that make a turn of the pool. The pools of `chaos` hold few pages.
const TURN_MIN: u64 = if cfg!(test) { 8 } else { 1024 };

/// Pages stored raw in the pool. They save no memory, so each stays only while a refault is likely:
/// between one and two turns of the pool. In a turn the pool takes as many pages as it holds.
#[derive(Debug)]
struct Raw {
    list: List,
    /// The youngest raw object at the start of this turn, and at the start of the previous one;
    /// [`NIL`] if there was none.
    marks: [u32; 2],
    /// Pages stored in this turn.
    stores: u64,
}

impl Raw {
    const EMPTY: Raw = Raw { list: List::EMPTY, marks: [NIL; 2], stores: 0 };
}

/// Added to run numbers, so that this duel samples other runs than the duel of resident pages.
const SAMPLE_OFFSET: u64 = 5 << 32;

/// The object table with its queues.
#[derive(Debug)]
pub(crate) struct Objects {
    all: Vec<Object>,
    /// Head of the list of free entries, linked by `next`.
    free: u32,
    live: u32,
    /// Staged objects, oldest first: the inactive list.
    pub staged: List,
    /// Pooled objects of each group, oldest first: those that stay, and those on probation.
    pooled: [[List; 2]; GROUPS],
    /// Pooled objects that did not compress, oldest first, if they have a queue of their own.
    raw: Option<Raw>,
    /// By queue: the youngest object of those at its old end that need room in the swap tier, or
    /// [`NIL`]. While the tier has none, the search for objects that can leave begins behind it.
    /// So it passes each object once. See [`Objects::needs_room`].
    passed: [u32; QUEUES],
    /// Counts of compressed objects by group; `resident` counts those in the pool.
    groups: [Group; GROUPS],
    duel: Duel,
    copies: Pays,
    pub decided: Decided,
    /// Objects that somebody waits for until they leave staging, and the number of each wait.
    awaited: Vec<(u32, u32)>,
    waits: u32,
    /// Whether the swap tier can keep the copy of a page that was brought back.
    keeps_copies: bool,
    pub fills: FillTable,
    pub contents: ContentTable,
    /// Where pool and resident pages share the budget by what they are worth.
    pub ages: Option<Ages>,
    pub swapped: u64,
    /// Clean pages of files in the pool.
    pub pooled_files: u64,
    pub filled: u64,
}

struct Arena<'a>(&'a mut Vec<Object>);

impl Linked for Arena<'_> {
    fn links(&mut self, i: u32) -> &mut Links {
        &mut self.0[i as usize].links
    }
}

impl Objects {
    /// `raw_queue`: objects that do not compress have a queue of their own in the pool. `ages`:
    /// ages of objects are needed.
    pub fn new(kind: ReclaimKind, keeps_copies: bool, raw_queue: bool, ages: bool) -> Objects {
        let fills = FillTable::default();
        Objects {
            all: Vec::new(),
            free: NIL,
            live: 0,
            staged: List::EMPTY,
            pooled: [[List::EMPTY; 2]; GROUPS],
            raw: raw_queue.then_some(Raw::EMPTY),
            passed: [NIL; QUEUES],
            groups: [Group::default(); GROUPS],
            duel: Duel::of_pool(kind),
            copies: Pays::default(),
            decided: Decided::default(),
            awaited: Vec::new(),
            waits: 0,
            keeps_copies,
            fills,
            contents: ContentTable::default(),
            ages: ages.then(Ages::default),
            swapped: 0,
            pooled_files: 0,
            filled: 0,
        }
    }

    /// Creates an object for a page of `run`, with one reference, at the young end of the staged
    /// queue. `fetched`: the page last came from the swap tier or from its file. `file`: it is a
    /// clean page of a file.
    pub fn create(&mut self, slot: StagingSlot, region: u32, run: u64, fetched: bool, file: bool) -> ObjectId {
        // With the samples of the resident pages, the effects of the two duels could not be told
        // apart.
        let group = self.duel.group(run.wrapping_add(SAMPLE_OFFSET));
        let object = Object {
            links: Links::UNLINKED,
            refs: 1,
            number: 0,
            region,
            area: 0,
            len: 0,
            tag: FREE | group << GROUP_SHIFT | if fetched { FETCHED } else { 0 } | if file { FILE } else { 0 },
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

    /// As [`Objects::place_of`], or `None` if the object has been freed.
    pub fn place_if_live(&self, id: ObjectId) -> Option<Place> {
        (self.all.get(id.0 as usize)?.place() != FREE).then(|| self.place_of(id))
    }

    pub fn place_of(&self, id: ObjectId) -> Place {
        let o = &self.all[id.0 as usize];
        let slot = StagingSlot { area: AreaId(u32::from(o.area)), index: o.number };
        match o.place() {
            0 => Place::Staged(slot),
            1 => Place::Compressing(slot),
            2 => Place::Filled(o.number),
            3 => Place::Pooled(Handle::from_raw(o.number)),
            4 => Place::Writing(Handle::from_raw(o.number)),
            5 => Place::WritingRaw(slot),
            6 => Place::Swapped(Extent { unit: o.number }),
            7 => Place::Dropped,
            8 => Place::Same(ObjectId(o.number)),
            _ => panic!("object {} is free", id.0),
        }
    }

    /// The only function that changes an object's place; it updates queues and counts.
    pub fn place(&mut self, id: ObjectId, place: Place) {
        self.leave(id);
        // Its bytes are read again: the program can change what is staged.
        if let Place::Staged(_) | Place::WritingRaw(_) = place {
            self.contents.forget(id);
        }
        let (tag, number, area) = match place {
            Place::Staged(s) => (0, s.index, s.area.0),
            Place::Compressing(s) => (1, s.index, s.area.0),
            Place::Filled(word) => (2, word, 0),
            Place::Pooled(handle) => (3, handle.raw(), 0),
            Place::Writing(handle) => (4, handle.raw(), 0),
            Place::WritingRaw(s) => (5, s.index, s.area.0),
            Place::Swapped(extent) => (6, extent.unit, 0),
            Place::Dropped => (7, 0, 0),
            Place::Same(other) => (8, other.0, 0),
        };
        self.decided.mix(u64::from(id.0) << 8 | tag as u64, u64::from(number) << 16 ^ u64::from(area));
        let o = &mut self.all[id.0 as usize];
        (o.tag, o.number, o.area) =
            (tag | o.tag & !PLACE, number, u16::try_from(area).expect("under 65536 staging areas"));
        let (group, count, probation) = (o.group(), u64::from(o.counts()), o.on_probation());
        let file = u64::from(o.tag & FILE != 0);
        if !matches!(place, Place::Staged(_) | Place::Compressing(_)) {
            self.left_staging(id);
        }
        let mut arena = Arena(&mut self.all);
        match place {
            Place::Staged(_) => self.staged.push_back(&mut arena, id.0),
            Place::Pooled(_) => {
                match &mut self.raw {
                    Some(raw) if count == 0 => raw.list.push_back(&mut arena, id.0),
                    _ => self.pooled[group][probation].push_back(&mut arena, id.0),
                }
                self.groups[group].resident += count;
                self.groups[group].probation += count * probation as u64;
                self.pooled_files += file;
                self.ages.iter_mut().for_each(|ages| ages.enters(id));
            }
            Place::Swapped(_) => {
                self.groups[group].out += count;
                self.swapped += 1;
            }
            Place::Filled(_) => self.filled += 1,
            Place::Dropped => self.groups[group].out += count,
            _ => {}
        }
    }

    fn leave(&mut self, id: ObjectId) {
        let o = self.all[id.0 as usize];
        let (group, count, probation) = (o.group(), u64::from(o.counts()), o.on_probation());
        let mut arena = Arena(&mut self.all);
        match o.place() {
            0 => self.staged.remove(&mut arena, id.0),
            3 => {
                let passed = &mut self.passed[o.queue(self.raw.is_some())];
                *passed = if *passed == id.0 { o.links.prev } else { *passed };
                match &mut self.raw {
                    Some(raw) if count == 0 => {
                        raw.marks.iter_mut().filter(|mark| **mark == id.0).for_each(|mark| *mark = o.links.prev);
                        raw.list.remove(&mut arena, id.0);
                    }
                    _ => self.pooled[group][probation].remove(&mut arena, id.0),
                }
                self.groups[group].resident -= count;
                self.groups[group].probation -= count * probation as u64;
                self.pooled_files -= u64::from(o.tag & FILE != 0);
                self.ages.iter_mut().for_each(|ages| ages.leaves(id));
            }
            6 => {
                self.groups[group].out -= count;
                self.swapped -= 1;
            }
            2 => self.filled -= 1,
            7 => self.groups[group].out -= count,
            _ => {}
        }
    }

    /// Begins to wait until the object staged last leaves staging. Returns the number of the wait.
    pub fn await_last_staged(&mut self) -> u32 {
        self.waits = self.waits.wrapping_add(1);
        if self.staged.tail != NIL {
            self.awaited.push((self.staged.tail, self.waits));
        }
        self.waits
    }

    /// Whether that object is still staged.
    pub fn is_awaited(&self, wait: u32) -> bool {
        self.awaited.iter().any(|&(_, number)| number == wait)
    }

    fn left_staging(&mut self, id: ObjectId) {
        if !self.awaited.is_empty() {
            self.awaited.retain(|&(awaited, _)| awaited != id.0);
        }
    }

    /// Decides whether a compressed object that enters the pool is on probation: only if its page
    /// last came from the swap tier or from its file.
    pub fn judge(&mut self, id: ObjectId) {
        let o = &mut self.all[id.0 as usize];
        if o.tag & FETCHED != 0 && !self.duel.on_probation(o.group() as u8) {
            o.tag &= !FETCHED;
        }
    }

    /// Whether the swap tier keeps its copy of the object when the page comes back, in case the
    /// page leaves again unchanged. True for raw objects and for those that will not stay in the
    /// pool.
    pub fn keeps(&self, id: ObjectId) -> bool {
        let o = &self.all[id.0 as usize];
        self.keeps_copies && self.keeps_some(o)
    }

    fn keeps_some(&self, o: &Object) -> bool {
        !o.counts() || (self.duel.bimodal(o.group() as u8) && self.copies.try_for(o.region))
    }

    /// Whether the object would leave the pool before the others: its page came from the swap tier,
    /// which may still have a copy.
    pub fn goes_on(&mut self, id: ObjectId) -> bool {
        let o = &self.all[id.0 as usize];
        let goes = self.keeps_copies
            && o.tag & (FETCHED | FILE) == FETCHED
            && self.duel.bimodal(o.group() as u8)
            && self.copies.try_for(o.region);
        self.copies.asked += u32::from(goes);
        self.copies.age();
        goes
    }

    /// The swap tier still has the copy that [`Objects::goes_on`] expected.
    pub fn found(&mut self) {
        self.copies.found += 1;
    }

    /// A fault brings back the page of an object in the swap tier, or of one that was dropped.
    pub fn came_back(&mut self, id: ObjectId) {
        let o = &self.all[id.0 as usize];
        if o.counts() {
            self.duel.came_back(o.group() as u8, &self.groups);
        }
    }

    /// The pool has taken a page and now holds `zpages`.
    pub fn stored(&mut self, zpages: u64) {
        let Some(raw) = &mut self.raw else { return };
        raw.stores += 1;
        if raw.stores >= zpages.max(TURN_MIN) {
            raw.marks = [raw.list.tail, raw.marks[0]];
            raw.stores = 0;
        }
    }

    /// Whether raw objects have a queue of their own in the pool.
    pub fn keeps_raw(&self) -> bool {
        self.raw.is_some()
    }

    /// Objects in the queue of raw objects; 0 without one.
    pub fn raw_pooled(&self) -> u64 {
        self.raw.as_ref().map_or(0, |raw| u64::from(raw.list.len))
    }

    /// The queue of the raw objects, and the youngest of those that have been in the pool for at
    /// least a turn.
    pub fn overdue(&self) -> Option<(usize, u32)> {
        let raw = self.raw.as_ref().filter(|raw| raw.marks[1] != NIL)?;
        Some((RAW_QUEUE, raw.marks[1]))
    }

    /// The queues of pooled objects in the order of writeback: raw objects first, because they save
    /// no memory.
    pub fn queues(&self) -> [usize; QUEUES] {
        let mut queues = [RAW_QUEUE; QUEUES];
        for (i, group) in self.duel.order(&self.groups).into_iter().enumerate() {
            let first = usize::from(self.duel.probation_first(group, &self.groups[usize::from(group)]));
            let of_group = 1 + 2 * usize::from(group);
            (queues[2 * i + 1], queues[2 * i + 2]) = (of_group + first, of_group + 1 - first);
        }
        queues
    }

    /// The oldest object of a queue. `no_room`: without those at its old end that need room in the
    /// swap tier.
    pub fn oldest(&self, queue: usize, no_room: bool) -> u32 {
        match self.passed[queue] {
            passed if no_room && passed != NIL => self.next(passed),
            _ if queue == RAW_QUEUE => self.raw.as_ref().map_or(NIL, |raw| raw.list.head),
            _ => self.pooled.as_flattened()[queue - 1].head,
        }
    }

    /// A pooled object needs room in the swap tier to leave the pool, and this stays so: it is no
    /// page of a file, and has no raw slot.
    pub fn needs_room(&mut self, id: ObjectId) {
        let o = &self.all[id.0 as usize];
        let passed = &mut self.passed[o.queue(self.raw.is_some())];
        if *passed == o.links.prev {
            *passed = id.0;
        }
    }

    /// The objects of which [`Objects::needs_room`] holds for all that are older in their queue,
    /// too.
    pub fn passed(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let older = |&i: &u32| Some(self.all[i as usize].links.prev).filter(|&prev| prev != NIL);
        let marks = self.passed.into_iter().filter(|&passed| passed != NIL);
        marks.flat_map(move |passed| core::iter::successors(Some(passed), older)).map(ObjectId)
    }

    /// Objects in the pool that are not being written back.
    pub fn pooled(&self) -> u64 {
        self.pooled.as_flattened().iter().map(|list| u64::from(list.len)).sum::<u64>() + self.raw_pooled()
    }

    /// As [`Objects::place`], but a staged object goes to the old end of its queue, to be next.
    pub fn place_front(&mut self, id: ObjectId, place: Place) {
        self.place(id, place);
        if let Place::Staged(_) = place {
            let mut arena = Arena(&mut self.all);
            self.staged.remove(&mut arena, id.0);
            self.staged.push_front(&mut arena, id.0);
        }
    }

    /// Whether it is a clean page of a file.
    pub fn is_file(&self, id: ObjectId) -> bool {
        self.all[id.0 as usize].tag & FILE != 0
    }

    /// The pool shall not take this staged object.
    pub fn keep_out(&mut self, id: ObjectId) {
        self.all[id.0 as usize].len |= KEPT_OUT;
    }

    /// Other processes had the page of this staged object, too.
    pub fn was_shared(&mut self, id: ObjectId) {
        self.all[id.0 as usize].len |= SHARED;
    }

    /// Whether other processes had its page, too. The object is staged or being compressed.
    pub fn is_shared(&self, id: ObjectId) -> bool {
        self.all[id.0 as usize].len & SHARED != 0
    }

    /// Whether the pool does not take this object, which is staged or being compressed.
    pub fn is_kept_out(&self, id: ObjectId) -> bool {
        self.all[id.0 as usize].len & KEPT_OUT != 0
    }

    /// Sets codec number and stored length in bytes.
    pub fn set_codec(&mut self, id: ObjectId, codec: u8, len: u16) {
        let o = &mut self.all[id.0 as usize];
        (o.codec, o.len) = (codec, len);
    }

    /// Codec number and stored length in bytes of a pooled or swapped object.
    pub fn codec(&self, id: ObjectId) -> (u8, u16) {
        let o = &self.all[id.0 as usize];
        (o.codec, o.len)
    }

    /// Hash of the region.
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

    /// Keeps an object at its place while a thread reads its bytes without the core lock.
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
        self.left_staging(id);
        self.contents.forget(id);
        let o = &mut self.all[id.0 as usize];
        assert!(o.refs == 0 && o.pins == 0 && o.place() != FREE, "object {} released while in use", id.0);
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
            + self.contents.metadata_bytes()
            + self.ages.as_ref().map_or(0, Ages::metadata_bytes)
    }

    /// All live objects with reference counts, for the invariant check.
    pub fn iter_live(&self) -> impl Iterator<Item = (ObjectId, u32, Place)> + '_ {
        (0..self.all.len() as u32)
            .filter(|&i| self.all[i as usize].place() != FREE)
            .map(|i| (ObjectId(i), self.all[i as usize].refs, self.place_of(ObjectId(i))))
    }

    /// Asserts that queues and counts match the objects; O(objects).
    pub fn check(&self) {
        assert_eq!(self.walk(&self.staged), self.staged.len);
        let mut groups = [Group::default(); GROUPS];
        for (id, _, place) in self.iter_live() {
            let o = &self.all[id.0 as usize];
            let group = &mut groups[o.group()];
            match place {
                Place::Pooled(_) if o.counts() => {
                    group.resident += 1;
                    group.probation += o.on_probation() as u64;
                }
                Place::Swapped(_) | Place::Dropped if o.counts() => group.out += 1,
                _ => {}
            }
        }
        assert_eq!(groups, self.groups, "objects of the groups");
        let is_pooled = |&(_, _, place): &(_, _, Place)| matches!(place, Place::Pooled(_));
        self.ages.iter().for_each(|ages| ages.check(self.iter_live().filter(is_pooled).map(|(id, _, _)| id)));
        if let Some(raw) = &self.raw {
            assert_eq!(self.walk(&raw.list), raw.list.len);
            let counts = |i: u32| self.all[i as usize].counts();
            assert!(!self.ids(&raw.list).any(counts), "what compressed is apart");
            for mark in raw.marks.iter().filter(|mark| **mark != NIL) {
                assert!(self.ids(&raw.list).any(|i| i == *mark), "a mark at an object that is elsewhere");
            }
        }
        for id in self.passed() {
            assert!(matches!(self.place_of(id), Place::Pooled(_)) && !self.is_file(id), "object {} can leave", id.0);
        }
        for (queue, &passed) in self.passed.iter().enumerate() {
            let of_queue = passed == NIL || self.all[passed as usize].queue(self.raw.is_some()) == queue;
            assert!(of_queue, "object {passed} is not in queue {queue}");
        }
        for (group, queues) in self.pooled.iter().enumerate() {
            for (probation, queue) in queues.iter().enumerate() {
                assert_eq!(self.walk(queue), queue.len);
                let mut i = queue.head;
                while i != NIL {
                    let o = &self.all[i as usize];
                    assert_eq!((o.group(), o.on_probation()), (group, probation));
                    i = self.next(i);
                }
            }
        }
    }

    fn walk(&self, list: &List) -> u32 {
        self.ids(list).count() as u32
    }

    fn ids(&self, list: &List) -> impl Iterator<Item = u32> + '_ {
        let some = |i: u32| (i != NIL).then_some(i);
        core::iter::successors(some(list.head), move |&i| some(self.next(i)))
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

/// Hash of the contents of a page. Only equal contents have the same one.
pub type ContentHash = [u32; 3];

/// Stored objects by their contents, as far as these are known: of pages that several processes
/// had when they were evicted.
#[derive(Debug, Default)]
pub(crate) struct ContentTable {
    by_hash: HashMap<ContentHash, u32>,
    by_object: HashMap<u32, ContentHash>,
}

impl ContentTable {
    /// The contents of an object. If another object has them, that one stays known for them.
    pub fn know(&mut self, id: ObjectId, hash: ContentHash) {
        self.forget(id);
        if let Entry::Vacant(free) = self.by_hash.entry(hash) {
            free.insert(id.0);
            self.by_object.insert(id.0, hash);
        }
    }

    /// The object with these contents.
    pub fn find(&self, hash: ContentHash) -> Option<ObjectId> {
        self.by_hash.get(&hash).map(|&id| ObjectId(id))
    }

    pub fn forget(&mut self, id: ObjectId) {
        if self.by_object.is_empty() {
            return;
        }
        if let Some(hash) = self.by_object.remove(&id.0) {
            self.by_hash.remove(&hash);
        }
    }

    pub fn metadata_bytes(&self) -> u64 {
        ((self.by_hash.capacity() + self.by_object.capacity()) * 17) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pooled(objects: &mut Objects, handle: u32, file: bool) -> ObjectId {
        let slot = StagingSlot { area: AreaId(0), index: handle };
        let id = objects.create(slot, 0, 0, false, file);
        objects.set_codec(id, 1, 1000);
        objects.place(id, Place::Pooled(Handle::from_raw(handle)));
        if !file {
            objects.needs_room(id);
        }
        objects.check();
        id
    }

    /// Without room in the swap tier, the search for a page of a file does not look at all older
    /// pages each time.
    #[test]
    fn the_search_for_what_can_leave_passes_an_object_once() {
        let mut objects = Objects::new(ReclaimKind::Fifo, false, false, false);
        let old: Vec<ObjectId> = (0..100).map(|i| pooled(&mut objects, i, false)).collect();
        let queue = objects.queues().into_iter().find(|&queue| objects.oldest(queue, false) != NIL).expect("a queue");
        assert_eq!((objects.oldest(queue, false), objects.oldest(queue, true)), (old[0].0, NIL));
        let file = pooled(&mut objects, 100, true);
        let young: Vec<ObjectId> = (101..105).map(|i| pooled(&mut objects, i, false)).collect();
        let last = pooled(&mut objects, 105, true);
        assert_eq!(objects.oldest(queue, true), file.0);
        objects.place(file, Place::Dropped);
        assert_eq!(objects.oldest(queue, true), young[0].0);
        young.iter().for_each(|&id| objects.needs_room(id));
        assert_eq!(objects.oldest(queue, true), last.0);
        // What was passed leaves.
        for id in [old[0], young[3], young[2]] {
            objects.place(id, Place::Swapped(Extent { unit: 0 }));
            objects.check();
        }
        assert_eq!((objects.oldest(queue, false), objects.oldest(queue, true)), (old[1].0, last.0));
        objects.place(last, Place::Dropped);
        old[1..].iter().chain(&young[..2]).for_each(|&id| objects.place(id, Place::Swapped(Extent { unit: 0 })));
        let again = pooled(&mut objects, 106, true);
        assert_eq!(objects.oldest(queue, true), again.0);
    }
}
