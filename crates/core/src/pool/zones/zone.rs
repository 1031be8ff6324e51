//! One zone: its blocks and its comp-page entries.

use super::super::{table_bytes, Handle};
use crate::ids::NIL;
use alloc::vec::Vec;

/// Flag of an entry without page; the rest is the next free entry, or at the end the number of
/// entries.
const FREE: u32 = Handle::RAW_MAX + 1;

/// The tables of a zone. They are allocated and freed with it.
#[derive(Debug)]
pub(super) struct Zone {
    /// The next block of each: in the list of free blocks, or of the same page; [`NIL`] at the end.
    links: Vec<u32>,
    free_block: u32,
    used: u32,
    /// Handle of each entry's page, or `FREE` and the next free entry.
    entries: Vec<u32>,
    free_entry: u32,
    pages: u32,
    /// The zone takes no more pages and is to be emptied.
    pub condemned: bool,
}

impl Zone {
    pub fn new(blocks: u32, entries: u32) -> Zone {
        let links = (1..blocks).chain([NIL]).collect();
        let table = (1..=entries).map(|next| FREE | next).collect();
        Zone { links, free_block: 0, used: 0, entries: table, free_entry: 0, pages: 0, condemned: false }
    }

    /// Free blocks that a new page may have: none without a free entry.
    pub fn room(&self) -> u32 {
        if self.condemned || self.pages as usize == self.entries.len() {
            return 0;
        }
        self.free()
    }

    /// Blocks in use.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Free blocks.
    pub fn free(&self) -> u32 {
        self.links.len() as u32 - self.used
    }

    /// Number of pages.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Takes the first free entry and the first `blocks` free blocks; both must exist. Returns the
    /// entry and the first block. The caller then sets the owner of the entry.
    pub fn take(&mut self, blocks: u32) -> (u32, u32) {
        assert!((1..=self.free()).contains(&blocks), "{blocks} of {} blocks", self.free());
        let (entry, first) = (self.free_entry, self.free_block);
        self.free_entry = self.entries[entry as usize] & !FREE;
        let last = self.blocks(first).nth(blocks as usize - 1).expect("there are as many");
        self.free_block = core::mem::replace(&mut self.links[last as usize], NIL);
        self.used += blocks;
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

    /// The blocks from `first` on, as they are linked.
    pub fn blocks(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        let some = |block: u32| Some(block).filter(|&block| block != NIL);
        core::iter::successors(some(first), move |&block| some(self.links[block as usize]))
    }

    /// Frees an entry and its blocks.
    pub fn put(&mut self, entry: u32, first: u32) {
        let (count, last) = self.blocks(first).fold((0, first), |(count, _), block| (count + 1, block));
        self.links[last as usize] = core::mem::replace(&mut self.free_block, first);
        self.used -= count;
        self.entries[entry as usize] = FREE | self.free_entry;
        self.free_entry = entry;
        self.pages -= 1;
    }

    /// Owners of the pages, in order of entries.
    fn owners(&self) -> impl Iterator<Item = Handle> + '_ {
        (0..self.entries.len() as u32).filter_map(|entry| self.owner(entry))
    }

    /// Heap bytes, including the zone itself: zones are boxed.
    pub fn metadata_bytes(&self) -> u64 {
        size_of::<Zone>() as u64 + table_bytes(&self.links) + table_bytes(&self.entries)
    }

    /// Panics unless the free lists have exactly what is free. `firsts`: the first blocks of the
    /// zone's pages.
    pub fn check(&self, firsts: impl Iterator<Item = u32>) {
        let mut seen = alloc::vec![false; self.links.len()];
        for (free, first) in core::iter::once((true, self.free_block)).chain(firsts.map(|first| (false, first))) {
            // The list of free blocks may be empty, that of a page not.
            assert!(first != NIL || free, "a page without blocks");
            for block in self.blocks(first) {
                assert!(!core::mem::replace(&mut seen[block as usize], true), "block {block} is in two lists");
            }
            if free {
                assert_eq!(seen.iter().filter(|seen| **seen).count() as u32, self.free());
            }
        }
        assert!(seen.iter().all(|seen| *seen), "a block is in no list");
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
