//! One size class: zspages cut into slots of one size, grouped by fullness.

use super::super::handles::SLOTS_MAX;
use super::super::{shrink_loose, table_bytes, Handle, Slot, Span, FRAME_BYTES};
use crate::grow::reserve_tight;
use alloc::{vec, vec::Vec};

/// Fullness groups of zspages with at least one free and one used slot: group `g` is filled from
/// `g` eighths to less than `g + 1` eighths. With up to 8 slots the order is exact. Full zspages
/// are in no group, because no search needs them.
const GROUPS: usize = 8;

/// Zspages of the emptiest group that are examined for one to empty.
const LOOK_MAX: usize = 8;

/// End of a list of zspages.
const NIL: u32 = u32::MAX;

/// Stands in `prev` of a sealed zspage, which is in no group.
const SEALED: u32 = u32::MAX - 1;

/// Flag of an owner that is the number of the next free slot instead of a handle.
const FREE: u32 = Handle::RAW_MAX + 1;

/// Division of a zspage into slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes in a slot.
    pub bytes: u32,
    /// Frames in a zspage.
    pub frames: u32,
    /// Slots in a zspage.
    pub slots: u32,
}

impl Layout {
    /// The layout for slots of `bytes` that uses most of a zspage of at most `chain_frames` frames,
    /// in whole percent as in the kernel; of equal ones the shortest, which is easiest to empty.
    pub fn choose(bytes: u32, chain_frames: u32) -> Layout {
        let layouts = (1..=chain_frames).map(|frames| Layout { bytes, frames, slots: frames * FRAME_BYTES / bytes });
        let best = layouts.reduce(|best, new| if new.percent() > best.percent() { new } else { best });
        best.expect("a zspage has at least one frame")
    }

    /// Used part of a zspage, percent, rounded down.
    fn percent(self) -> u32 {
        self.slots * self.bytes * 100 / (self.frames * FRAME_BYTES)
    }
}

/// A run of frames, or (`used` = 0) a free record.
#[derive(Debug, Clone, Copy)]
struct Zspage {
    first_frame: u32,
    /// Neighbours in its group, or in the list of free records.
    prev: u32,
    next: u32,
    used: u16,
    /// First free slot, or the number of slots if there is none.
    free_slot: u16,
}

/// The zspages of one slot size.
#[derive(Debug)]
pub(super) struct Class {
    pub layout: Layout,
    zspages: Vec<Zspage>,
    /// `slots` entries per zspage: the handle of the object, or `FREE` and the next free slot.
    owners: Vec<u32>,
    heads: [u32; GROUPS],
    free_head: u32,
    live: u32,
    /// Free slots of sealed zspages.
    sealed_free: u32,
    /// Used slots of all zspages.
    used: u64,
}

impl Class {
    pub fn new(layout: Layout) -> Self {
        assert!(layout.slots >= 1 && layout.slots <= SLOTS_MAX, "{layout:?}");
        let (zspages, owners) = (Vec::new(), Vec::new());
        Class { layout, zspages, owners, heads: [NIL; GROUPS], free_head: NIL, live: 0, sealed_free: 0, used: 0 }
    }

    /// Takes a free slot of the fullest zspage that has one and is not sealed. The caller must set
    /// its owner next.
    pub fn take(&mut self) -> Option<(u32, u16)> {
        let zspage = *self.heads.iter().rev().find(|head| **head != NIL)?;
        Some((zspage, self.take_in(zspage)))
    }

    /// Adds a zspage and takes its first slot. The caller must set its owner next.
    pub fn take_new(&mut self, first_frame: u32) -> (u32, u16) {
        let zspage = if self.free_head != NIL {
            let index = self.free_head;
            self.unlink_free(index);
            index
        } else {
            reserve_tight(&mut self.zspages, 1);
            reserve_tight(&mut self.owners, self.layout.slots as usize);
            self.zspages.push(Zspage { first_frame, prev: NIL, next: NIL, used: 0, free_slot: 0 });
            self.owners.resize(self.owners.len() + self.layout.slots as usize, FREE);
            self.zspages.len() as u32 - 1
        };
        let record = &mut self.zspages[zspage as usize];
        (record.first_frame, record.free_slot) = (first_frame, 0);
        let owners = self.owner_index(zspage, 0);
        for (slot, owner) in self.owners[owners..][..self.layout.slots as usize].iter_mut().enumerate() {
            *owner = FREE | (slot as u32 + 1);
        }
        self.live += 1;
        (zspage, self.take_in(zspage))
    }

    /// Sets the owner of a slot that was taken.
    pub fn set_owner(&mut self, zspage: u32, slot: u16, owner: Handle) {
        let index = self.owner_index(zspage, slot);
        self.owners[index] = owner.raw();
    }

    /// Frees a slot. Returns the span of its zspage if that was its last used slot.
    pub fn put(&mut self, zspage: u32, slot: u16) -> Option<Span> {
        self.unlink(zspage);
        self.vacate(zspage, slot);
        self.reattach(zspage)
    }

    /// Seals or unseals a used zspage. A sealed one is in no group: nothing is placed in it, and
    /// compaction moves nothing out of it or into it.
    pub fn seal(&mut self, zspage: u32, sealed: bool) {
        if sealed == self.is_sealed(zspage) {
            return;
        }
        let free = self.free_slots(zspage);
        if sealed {
            self.unlink(zspage);
            self.zspages[zspage as usize].prev = SEALED;
            self.sealed_free += free;
        } else {
            self.zspages[zspage as usize].prev = NIL;
            self.sealed_free -= free;
            self.link(zspage);
        }
    }

    /// Removes a zspage from its group, so that [`Class::take`] does not find it.
    pub fn detach(&mut self, zspage: u32) {
        self.unlink(zspage);
    }

    /// Frees a slot of a detached or sealed zspage.
    pub fn vacate(&mut self, zspage: u32, slot: u16) {
        let index = self.owner_index(zspage, slot);
        let record = &mut self.zspages[zspage as usize];
        assert!(record.used > 0 && self.owners[index] & FREE == 0, "slot {slot} of zspage {zspage} is free already");
        self.owners[index] = FREE | u32::from(record.free_slot);
        record.free_slot = slot;
        record.used -= 1;
        self.used -= 1;
        self.sealed_free += u32::from(self.is_sealed(zspage));
    }

    /// Ends [`Class::detach`]: puts the zspage back into a group, or frees it if it is empty.
    pub fn reattach(&mut self, zspage: u32) -> Option<Span> {
        if self.zspages[zspage as usize].used == 0 {
            return Some(self.release(zspage));
        }
        self.link(zspage);
        None
    }

    /// The emptiest zspage near the front of the emptiest group whose objects are all movable, and
    /// the number of its objects. `None` if the other zspages have no room for them.
    pub fn source(&self, movable: &dyn Fn(Handle) -> bool) -> Option<(u32, u32)> {
        let slots = u64::from(self.layout.slots);
        if u64::from(self.live) * slots - self.used - u64::from(self.sealed_free) < slots {
            return None;
        }
        let head = *self.heads.iter().find(|head| **head != NIL)?;
        let candidates = self.list(head).take(LOOK_MAX);
        let candidates = candidates.filter(|&zspage| self.objects(zspage).all(|(_, owner)| movable(owner)));
        let best = candidates.min_by_key(|&zspage| self.zspages[zspage as usize].used)?;
        Some((best, u32::from(self.zspages[best as usize].used)))
    }

    /// Used slots of a zspage and their owners.
    pub fn objects(&self, zspage: u32) -> impl Iterator<Item = (u16, Handle)> + '_ {
        let owners = self.owners[self.owner_index(zspage, 0)..][..self.layout.slots as usize].iter().enumerate();
        owners.filter(|(_, owner)| **owner & FREE == 0).map(|(slot, owner)| (slot as u16, Handle::from_raw(*owner)))
    }

    /// Owner of a slot.
    pub fn owner(&self, zspage: u32, slot: u16) -> Option<Handle> {
        let owner = self.owners[self.owner_index(zspage, slot)];
        (owner & FREE == 0).then(|| Handle::from_raw(owner))
    }

    /// Position of a slot.
    pub fn slot(&self, zspage: u32, slot: u16) -> Slot {
        let byte = u32::from(slot) * self.layout.bytes;
        let frame = self.zspages[zspage as usize].first_frame + byte / FRAME_BYTES;
        Slot { frame, offset: (byte % FRAME_BYTES) as u16 }
    }

    /// Used slots.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// First frame of a zspage.
    pub fn first_frame(&self, zspage: u32) -> u32 {
        self.zspages[zspage as usize].first_frame
    }

    /// Free slots of a zspage.
    pub fn free_slots(&self, zspage: u32) -> u32 {
        self.layout.slots - u32::from(self.zspages[zspage as usize].used)
    }

    /// All zspages and their spans, unordered.
    pub fn spans(&self) -> impl Iterator<Item = (u32, Span)> + '_ {
        let live = (0..).zip(&self.zspages).filter(|(_, record)| record.used > 0);
        live.map(|(zspage, record)| (zspage, Span { first: record.first_frame, frames: self.layout.frames }))
    }

    /// Heap bytes.
    pub fn metadata_bytes(&self) -> u64 {
        table_bytes(&self.zspages) + table_bytes(&self.owners)
    }

    /// Panics unless counts, lists and owners agree.
    pub fn check(&self) {
        let mut listed = vec![None; self.zspages.len()];
        let groups = self.heads.iter().enumerate().map(|(group, &head)| (Some(group), head));
        for (group, head) in groups.chain([(None, self.free_head)]) {
            let mut prev = NIL;
            for zspage in self.list(head) {
                assert_eq!(self.zspages[zspage as usize].prev, prev, "back link of zspage {zspage}");
                assert_eq!(listed[zspage as usize], None, "zspage {zspage} is in one list only");
                listed[zspage as usize] = Some(group);
                prev = zspage;
            }
        }
        let (mut live, mut used, mut sealed_free) = (0, 0, 0);
        for (record, (zspage, list)) in self.zspages.iter().zip((0..).zip(&listed)) {
            let want = match record.used {
                0 => Some(None),
                _ if self.is_sealed(zspage) => None,
                used => self.group(used).map(Some),
            };
            assert_eq!(*list, want, "list of zspage {zspage} with {} slots in use", record.used);
            if self.is_sealed(zspage) {
                sealed_free += self.free_slots(zspage);
            }
            if record.used > 0 {
                live += 1;
                used += u64::from(record.used);
                self.check_slots(zspage, record);
            }
        }
        assert_eq!((live, used, sealed_free), (self.live, self.used, self.sealed_free));
        assert_eq!(self.owners.len(), self.zspages.len() * self.layout.slots as usize);
        assert!(self.zspages.last().is_none_or(|record| record.used > 0), "free records at the end are cut off");
    }

    fn check_slots(&self, zspage: u32, record: &Zspage) {
        assert_eq!(self.objects(zspage).count(), usize::from(record.used), "used slots of zspage {zspage}");
        let (mut free, mut slot) = (0, u32::from(record.free_slot));
        while slot < self.layout.slots {
            free += 1;
            assert!(free <= self.layout.slots, "the free slots of zspage {zspage} are a loop");
            let owner = self.owners[self.owner_index(zspage, slot as u16)];
            assert!(owner & FREE != 0, "slot {slot} of zspage {zspage} is free");
            slot = owner & !FREE;
        }
        assert_eq!(free + u32::from(record.used), self.layout.slots, "slots of zspage {zspage}");
    }

    fn owner_index(&self, zspage: u32, slot: u16) -> usize {
        zspage as usize * self.layout.slots as usize + usize::from(slot)
    }

    fn is_sealed(&self, zspage: u32) -> bool {
        self.zspages[zspage as usize].prev == SEALED
    }

    /// The group of a zspage with `used` used slots; `None` if it is full or empty.
    fn group(&self, used: u16) -> Option<usize> {
        let used = u32::from(used);
        (used > 0 && used < self.layout.slots).then(|| (used * GROUPS as u32 / self.layout.slots) as usize)
    }

    fn take_in(&mut self, zspage: u32) -> u16 {
        let record = self.zspages[zspage as usize];
        let slot = record.free_slot;
        let next = self.owners[self.owner_index(zspage, slot)];
        assert!(next & FREE != 0, "slot {slot} of zspage {zspage} is in use already");
        // Most takes change neither the group nor the place in its list: one zspage is filled
        // repeatedly.
        let moves = self.group(record.used) != self.group(record.used + 1);
        if moves {
            self.unlink(zspage);
        }
        let record = &mut self.zspages[zspage as usize];
        record.used += 1;
        record.free_slot = (next & !FREE) as u16;
        self.used += 1;
        if moves {
            self.link(zspage);
        }
        slot
    }

    /// Puts an empty zspage on the list of free records, and cuts free records off the end of the
    /// tables.
    fn release(&mut self, zspage: u32) -> Span {
        let span = Span { first: self.zspages[zspage as usize].first_frame, frames: self.layout.frames };
        self.live -= 1;
        if self.is_sealed(zspage) {
            self.sealed_free -= self.layout.slots;
        }
        // This also ends a seal.
        self.link_at(zspage, self.free_head);
        self.free_head = zspage;
        while self.zspages.last().is_some_and(|record| record.used == 0) {
            self.unlink_free(self.zspages.len() as u32 - 1);
            self.zspages.pop();
        }
        self.owners.truncate(self.zspages.len() * self.layout.slots as usize);
        shrink_loose(&mut self.zspages);
        shrink_loose(&mut self.owners);
        span
    }

    /// Puts a zspage at the head of its group, unless it is sealed.
    fn link(&mut self, zspage: u32) {
        if self.is_sealed(zspage) {
            return;
        }
        if let Some(group) = self.group(self.zspages[zspage as usize].used) {
            self.link_at(zspage, self.heads[group]);
            self.heads[group] = zspage;
        }
    }

    fn unlink(&mut self, zspage: u32) {
        if self.is_sealed(zspage) {
            return;
        }
        if let Some(group) = self.group(self.zspages[zspage as usize].used) {
            let next = self.cut(zspage);
            if self.heads[group] == zspage {
                self.heads[group] = next;
            }
        }
    }

    fn unlink_free(&mut self, zspage: u32) {
        let next = self.cut(zspage);
        if self.free_head == zspage {
            self.free_head = next;
        }
    }

    fn link_at(&mut self, zspage: u32, head: u32) {
        let record = &mut self.zspages[zspage as usize];
        (record.prev, record.next) = (NIL, head);
        if head != NIL {
            self.zspages[head as usize].prev = zspage;
        }
    }

    /// Links the neighbours of a zspage; returns the next one.
    fn cut(&mut self, zspage: u32) -> u32 {
        let Zspage { prev, next, .. } = self.zspages[zspage as usize];
        if prev != NIL {
            self.zspages[prev as usize].next = next;
        }
        if next != NIL {
            self.zspages[next as usize].prev = prev;
        }
        next
    }

    fn list(&self, head: u32) -> impl Iterator<Item = u32> + '_ {
        let one = |zspage: u32| (zspage != NIL).then_some(zspage);
        core::iter::successors(one(head), move |&zspage| one(self.zspages[zspage as usize].next))
    }
}
