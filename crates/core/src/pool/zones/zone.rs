//! One zone: its blocks and its comp-page entries.

use super::super::Handle;
use super::blocks::Blocks;
use super::chain::Room;

/// Marks an entry that has no page; the rest is the next free entry, or the number of entries at
/// the end.
const FREE: u32 = Handle::RAW_MAX + 1;

/// The tables of a zone. They come and go with its memory.
#[derive(Debug)]
pub(super) struct Zone {
    pub blocks: Blocks,
    /// Handle of each entry's page, or `FREE` and the next free entry.
    entries: Vec<u32>,
    free_entry: u32,
    pages: u32,
    /// Takes no more pages: it is to be emptied.
    pub condemned: bool,
}

impl Zone {
    pub fn new(blocks: u32, entries: u32) -> Zone {
        let table = (1..=entries).map(|next| FREE | next).collect();
        Zone { blocks: Blocks::new(blocks), entries: table, free_entry: 0, pages: 0, condemned: false }
    }

    /// What it has for a new page: nothing without a free entry.
    pub fn room(&self) -> Room {
        if self.condemned || self.pages as usize == self.entries.len() {
            return Room::default();
        }
        Room { blocks: self.blocks.free(), run: self.blocks.longest() }
    }

    /// Pages in it.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Takes the first free entry and the lowest run of so many blocks, both of which there are;
    /// the entry is the caller's to fill.
    pub fn take(&mut self, blocks: u32) -> (u32, u32) {
        let first = self.blocks.lowest(blocks).expect("the zone has a run that is long enough");
        let entry = self.free_entry;
        self.free_entry = self.entries[entry as usize] & !FREE;
        self.blocks.take(first, blocks);
        self.pages += 1;
        (entry, first)
    }

    /// Says whose entry that is.
    pub fn set_owner(&mut self, entry: u32, owner: Handle) {
        self.entries[entry as usize] = owner.raw();
    }

    /// Whose entry that is.
    pub fn owner(&self, entry: u32) -> Option<Handle> {
        let owner = self.entries[entry as usize];
        (owner & FREE == 0).then(|| Handle::from_raw(owner))
    }

    /// Gives an entry and its blocks back.
    pub fn put(&mut self, entry: u32, first: u32, blocks: u32) {
        self.blocks.put(first, blocks);
        self.entries[entry as usize] = FREE | self.free_entry;
        self.free_entry = entry;
        self.pages -= 1;
    }

    /// The pages, in order of entries.
    pub fn owners(&self) -> impl Iterator<Item = Handle> + '_ {
        (0..self.entries.len() as u32).filter_map(|entry| self.owner(entry))
    }

    /// Heap bytes, its own included: zones are boxed.
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
