//! One zone: its blocks and its comp-page entries.

use super::super::Handle;
use super::blocks::Blocks;
use super::chain::Room;
use alloc::vec::Vec;

/// Flag of an entry without page; the rest is the next free entry, or at the end the number of
/// entries.
const FREE: u32 = Handle::RAW_MAX + 1;

/// The tables of a zone. They are allocated and freed with it.
#[derive(Debug)]
pub(super) struct Zone {
    pub blocks: Blocks,
    /// Handle of each entry's page, or `FREE` and the next free entry.
    entries: Vec<u32>,
    free_entry: u32,
    pages: u32,
    /// The zone takes no more pages and is to be emptied.
    pub condemned: bool,
}

impl Zone {
    pub fn new(blocks: u32, entries: u32) -> Zone {
        let table = (1..=entries).map(|next| FREE | next).collect();
        Zone { blocks: Blocks::new(blocks), entries: table, free_entry: 0, pages: 0, condemned: false }
    }

    /// Room for a new page: none without a free entry.
    pub fn room(&self) -> Room {
        if self.condemned || self.pages as usize == self.entries.len() {
            return Room::default();
        }
        Room { blocks: self.blocks.free(), run: self.blocks.longest() }
    }

    /// Number of pages.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Takes the first free entry and the lowest run of `blocks` blocks; both must exist. The
    /// caller then sets the owner of the entry.
    pub fn take(&mut self, blocks: u32) -> (u32, u32) {
        let first = self.blocks.lowest(blocks).expect("the zone has a run that is long enough");
        let entry = self.free_entry;
        self.free_entry = self.entries[entry as usize] & !FREE;
        self.blocks.take(first, blocks);
        self.pages += 1;
        (entry, first)
    }

    /// Sets the owner of an entry.
    pub fn set_owner(&mut self, entry: u32, owner: Handle) {
        self.entries[entry as usize] = owner.raw();
    }

    /// Owner of an entry.
    pub fn owner(&self, entry: u32) -> Option<Handle> {
        let owner = self.entries[entry as usize];
        (owner & FREE == 0).then(|| Handle::from_raw(owner))
    }

    /// Frees an entry and its blocks.
    pub fn put(&mut self, entry: u32, first: u32, blocks: u32) {
        self.blocks.put(first, blocks);
        self.entries[entry as usize] = FREE | self.free_entry;
        self.free_entry = entry;
        self.pages -= 1;
    }

    /// Owners of the pages, in order of entries.
    pub fn owners(&self) -> impl Iterator<Item = Handle> + '_ {
        (0..self.entries.len() as u32).filter_map(|entry| self.owner(entry))
    }

    /// Heap bytes, including the zone itself: zones are boxed.
    pub fn metadata_bytes(&self) -> u64 {
        size_of::<Zone>() as u64 + self.blocks.metadata_bytes() + super::super::table_bytes(&self.entries)
    }

    /// Panics unless the free list has exactly the free entries.
    pub fn check(&self) {
        self.blocks.check();
        assert_eq!(self.owners().count() as u32, self.pages);
        let (mut free, mut next) = (0, self.free_entry);
        while (next as usize) < self.entries.len() {
            assert!(self.owner(next).is_none(), "entry {next} is on the free list");
            free += 1;
            assert!(free <= self.entries.len(), "the free list is a loop");
            next = self.entries[next as usize] & !FREE;
        }
        assert_eq!(free + self.pages as usize, self.entries.len());
    }
}
