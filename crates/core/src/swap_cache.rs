//! Raw slots keep the bytes of pages that are in memory, as in the kernel's swap cache. A page that
//! leaves again unchanged needs no write then, and a changed one is written to the same slot.
//!
//! A slot is kept from the end of a load until the page has left again, or is unmapped. When no
//! slot is free, a kept one is given to another page. There is no dirty bit here, so the caller
//! compares contents ([`Core::kept_slot`]).
//!
//! [`Core::kept_slot`]: crate::Core::kept_slot

use crate::ids::{ObjectId, Page, PageRange, ProcId};
use alloc::{collections::BTreeMap, vec::Vec};
use hashbrown::HashSet;

#[derive(Debug, Default)]
pub(crate) struct SwapCache {
    /// Slots of pages that are in memory.
    of_pages: BTreeMap<(u32, Page), u32>,
    /// Staged objects whose slot still has the bytes that it had when their page came back.
    staged: HashSet<ObjectId>,
}

impl SwapCache {
    /// The page has come back from this slot. Returns the slot that was kept for it before.
    pub fn came(&mut self, proc: ProcId, page: Page, slot: u32) -> Option<u32> {
        self.of_pages.insert((proc.0, page), slot)
    }

    /// The page leaves again, as this object. Returns its slot.
    pub fn leaves(&mut self, proc: ProcId, page: Page, object: ObjectId) -> Option<u32> {
        let slot = self.of_pages.remove(&(proc.0, page))?;
        self.staged.insert(object);
        Some(slot)
    }

    /// Whether the object's slot still has the bytes of its page as they were.
    pub fn has(&self, object: ObjectId) -> bool {
        self.staged.contains(&object)
    }

    /// The object leaves staging, or is gone. Returns whether its slot had these bytes.
    pub fn ends(&mut self, object: ObjectId) -> bool {
        self.staged.remove(&object)
    }

    /// Gives up the slot of the page with the lowest address of the first process that has one.
    pub fn give_up(&mut self) -> Option<u32> {
        self.of_pages.pop_first().map(|(_, slot)| slot)
    }

    /// Pages are unmapped. Returns their slots.
    pub fn unmapped(&mut self, proc: ProcId, range: PageRange) -> Vec<u32> {
        let end = Page(range.end());
        let pages = self.of_pages.range((proc.0, range.first)..(proc.0, end));
        let pages: Vec<_> = pages.map(|(&page, _)| page).collect();
        pages.iter().filter_map(|page| self.of_pages.remove(page)).collect()
    }

    /// Slots of pages that are in memory.
    pub fn kept(&self) -> usize {
        self.of_pages.len()
    }

    /// Objects that [`SwapCache::has`] is true of.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.staged.iter().copied()
    }

    /// Heap bytes, estimated: a B-tree is at least half full.
    pub fn metadata_bytes(&self) -> u64 {
        (self.of_pages.len() * 2 * size_of::<((u32, Page), u32)>() + self.staged.capacity() * 5) as u64
    }
}
