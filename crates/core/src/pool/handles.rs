//! The handle table: 8 bytes per zpage with its place.

use super::{shrink_loose, table_bytes, Handle, LEN_MAX};
use crate::grow::reserve_tight;
use alloc::vec::Vec;

/// Number of size classes that an entry can encode.
pub(super) const CLASSES_MAX: usize = 1 << CLASS_BITS;
/// Number of slots of a zspage that an entry can encode.
pub(super) const SLOTS_MAX: u32 = 1 << SLOT_BITS;

const CLASS_BITS: u32 = 8;
const SLOT_BITS: u32 = 11;
const LEN_BITS: u32 = 13;
const _: () = assert!(CLASS_BITS + SLOT_BITS + LEN_BITS == u32::BITS && LEN_MAX < 1 << LEN_BITS);

/// End of the list of free entries.
const NIL: u32 = u32::MAX;

/// Place of an object, in terms of its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Size class.
    pub class: u8,
    /// Slot in the zspage.
    pub slot: u16,
    /// Length of the object, bytes, never 0.
    pub len: u16,
    /// Zspage of that class.
    pub zspage: u32,
}

/// A packed [`Place`]. A length of 0 marks a free entry, whose `zspage` is the next free one.
#[derive(Debug, Clone, Copy)]
struct Entry {
    zspage: u32,
    bits: u32,
}

impl Entry {
    fn pack(place: Place) -> Entry {
        let (len, slot) = (u32::from(place.len), u32::from(place.slot));
        debug_assert!((1..=LEN_MAX).contains(&len) && slot < SLOTS_MAX, "{place:?}");
        Entry { zspage: place.zspage, bits: u32::from(place.class) << (SLOT_BITS + LEN_BITS) | slot << LEN_BITS | len }
    }

    fn unpack(self) -> Place {
        Place {
            class: (self.bits >> (SLOT_BITS + LEN_BITS)) as u8,
            slot: (self.bits >> LEN_BITS & (SLOTS_MAX - 1)) as u16,
            len: self.len() as u16,
            zspage: self.zspage,
        }
    }

    fn len(self) -> u32 {
        self.bits & ((1 << LEN_BITS) - 1)
    }

    fn is_free(self) -> bool {
        self.len() == 0
    }
}

/// A slab of places with a list of free entries.
#[derive(Debug)]
pub(super) struct HandleTable {
    entries: Vec<Entry>,
    free_head: u32,
    live: u32,
    /// Removals since the last [`HandleTable::trim`].
    removed: u32,
}

impl HandleTable {
    pub fn new() -> Self {
        HandleTable { entries: Vec::new(), free_head: NIL, live: 0, removed: 0 }
    }

    pub fn live(&self) -> u32 {
        self.live
    }

    pub fn insert(&mut self, place: Place) -> Handle {
        let entry = Entry::pack(place);
        self.live += 1;
        if self.free_head != NIL {
            let index = self.free_head;
            self.free_head = self.entries[index as usize].zspage;
            self.entries[index as usize] = entry;
            return Handle(index);
        }
        let handle = Handle::from_raw(self.entries.len() as u32);
        reserve_tight(&mut self.entries, 1);
        self.entries.push(entry);
        handle
    }

    pub fn get(&self, handle: Handle) -> Place {
        let entry = self.entries[handle.0 as usize];
        assert!(!entry.is_free(), "{handle:?} is dead");
        entry.unpack()
    }

    /// Changes the place of a live object.
    pub fn set(&mut self, handle: Handle, place: Place) {
        let entry = &mut self.entries[handle.0 as usize];
        assert!(!entry.is_free(), "{handle:?} is dead");
        *entry = Entry::pack(place);
    }

    pub fn remove(&mut self, handle: Handle) -> Place {
        let place = self.get(handle);
        self.entries[handle.0 as usize] = Entry { zspage: self.free_head, bits: 0 };
        self.free_head = handle.0;
        self.live -= 1;
        self.removed += 1;
        if self.live == 0 {
            *self = HandleTable::new();
        }
        place
    }

    /// Cuts free entries off the end, and sorts the free list so that low entries are used first
    /// and the next trim finds more. Runs only after enough removals, so it is O(1) per removal.
    pub fn trim(&mut self) {
        if (self.removed as usize) < self.entries.len() / 4 || self.live as usize > self.entries.len() / 2 {
            return;
        }
        let end = self.entries.iter().rposition(|entry| !entry.is_free()).map_or(0, |last| last + 1);
        self.entries.truncate(end);
        self.free_head = NIL;
        for (index, entry) in self.entries.iter_mut().enumerate().rev().filter(|(_, entry)| entry.is_free()) {
            entry.zspage = self.free_head;
            self.free_head = index as u32;
        }
        shrink_loose(&mut self.entries);
        self.removed = 0;
    }

    /// One more than the highest handle number that is live or will be used again.
    pub fn end(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Live handles and their places, in order of handles.
    pub fn iter(&self) -> impl Iterator<Item = (Handle, Place)> + '_ {
        let live = self.entries.iter().enumerate().filter(|(_, entry)| !entry.is_free());
        live.map(|(index, entry)| (Handle(index as u32), entry.unpack()))
    }

    pub fn metadata_bytes(&self) -> u64 {
        table_bytes(&self.entries)
    }

    /// Panics unless the free list has exactly the free entries.
    pub fn check(&self) {
        let (mut free, mut next) = (0, self.free_head);
        while next != NIL {
            assert!(self.entries[next as usize].is_free(), "entry {next} is on the free list");
            free += 1;
            assert!(free <= self.entries.len(), "the free list is a loop");
            next = self.entries[next as usize].zspage;
        }
        assert_eq!(free + self.live as usize, self.entries.len());
        assert_eq!(self.iter().count(), self.live as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(zspage: u32) -> Place {
        Place { class: 255, slot: 2047, len: 4096, zspage }
    }

    #[test]
    fn packing_keeps_extremes() {
        for p in [place(u32::MAX), Place { class: 0, slot: 0, len: 1, zspage: 0 }] {
            assert_eq!(Entry::pack(p).unpack(), p);
        }
        assert_eq!(size_of::<Entry>(), 8);
    }

    #[test]
    fn trim_cuts_the_end_and_prefers_low_entries() {
        let mut table = HandleTable::new();
        let handles: Vec<Handle> = (0..1000).map(|i| table.insert(place(i))).collect();
        for &h in &handles[10..] {
            table.remove(h);
        }
        table.remove(handles[3]);
        table.remove(handles[7]);
        table.trim();
        table.check();
        assert_eq!(table.entries.len(), 10);
        assert!(table.metadata_bytes() < 1000);
        assert_eq!(
            [table.insert(place(1)), table.insert(place(2)), table.insert(place(3))].map(Handle::raw),
            [3, 7, 10]
        );
        assert_eq!(table.get(handles[9]), place(9));
    }

    #[test]
    #[should_panic(expected = "Handle(0) is dead")]
    fn dead_handle() {
        let mut table = HandleTable::new();
        let dead = table.insert(place(0));
        table.insert(place(1));
        table.remove(dead);
        table.get(dead);
    }
}
