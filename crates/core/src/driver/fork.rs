//! What a fork child has of its parent, where the kernel reports no forks and the stub announces
//! them.
//!
//! Before the fork the table of the child gets what is evicted in the parent. Other threads of the
//! parent can change its memory meanwhile, before or after the moment at which the child got its
//! copy. [`Announced`] notes what they did. When the child is there, [`Child`] corrects its table
//! by what its memory shows.

use super::fork_changes::{self, Change};
use crate::engine::Core;
use crate::entry::Entry;
use crate::ids::{Page, PageRange, ProcId, PAGE_BYTES};
use crate::ranges::Ranges;
use alloc::{collections::BTreeSet, vec::Vec};
use core::fmt;

/// End of the addresses of programs.
const ADDRESSES_END: u64 = 1 << 56;

/// Which memory of a process is kept from fork children, and which is not yet.
#[derive(Debug, Default)]
pub struct Dontfork {
    /// Registered, but not kept from fork children yet: while there is any, nothing is evicted from
    /// the process.
    pub open: Ranges,
    /// What the program itself keeps from fork children.
    pub kept: Ranges,
    /// What the stub has kept from children: it has the mark. All evicted pages are in it.
    pub marked: Ranges,
    /// Registered since the DONTFORK batch was posted: it may not be part of that.
    late: Ranges,
    /// Changes when `open` loses ranges that may be in a batch.
    pub generation: u32,
}

impl Dontfork {
    /// A range was registered.
    pub fn registered(&mut self, start: u64, end: u64) {
        for (s, e) in self.kept.gaps(start, end) {
            self.open.add(s, e);
            self.late.add(s, e);
        }
    }

    /// The open ranges are posted as a DONTFORK batch. Returns the generation.
    pub fn posted(&mut self) -> u32 {
        self.late = Ranges::default();
        self.generation
    }

    /// A range of the posted batch is kept from children now.
    pub fn kept_from_children(&mut self, start: u64, end: u64) {
        for (s, e) in self.late.gaps(start, end) {
            self.open.cut(s, e);
            self.marked.add(s, e);
        }
    }

    /// A range is no longer the mapping that it was.
    pub fn unmapped(&mut self, start: u64, end: u64) {
        if self.open.cut(start, end) {
            self.generation += 1;
        }
        self.kept.cut(start, end);
        self.marked.cut(start, end);
    }

    /// A mapping was moved. The kernel moves its advice along; advice that is still to be given is
    /// to be given there.
    pub fn moved(&mut self, from: u64, to: u64, len: u64) {
        for ranges in [&mut self.open, &mut self.kept, &mut self.marked] {
            ranges.copy(from, to, len);
        }
    }
}

/// What happens in a process from the announcement of a fork on, until the fork has ended: some of
/// it before there is a child.
#[derive(Debug, Default)]
pub struct Announced {
    /// What was marked in the parent at the announcement.
    marked: Ranges,
    /// Pages brought back, by their addresses before all changes.
    brought: BTreeSet<u64>,
    /// Ranges that the program dropped.
    dropped: Vec<Dropped>,
    /// Changes of the parent's address space.
    changes: Vec<Change>,
    ended: bool,
    /// Set when the parent goes on: true if all changes before its fork's end are known, because no
    /// event was unread for a moment.
    told: Option<bool>,
}

/// A range that another thread was about to drop while the parent forked.
#[derive(Debug, Clone, Copy)]
struct Dropped {
    start: u64,
    end: u64,
    /// How many changes came before.
    changes: usize,
    /// It was certainly dropped before the child was made.
    before: bool,
    /// A page of it that was in memory when the child was expected.
    resident_page: Option<Page>,
}

impl Announced {
    /// `marked` is what the stub has kept from children.
    pub fn new(marked: Ranges) -> Announced {
        Announced { marked, ..Announced::default() }
    }

    fn first(&self, page: Page) -> u64 {
        Page::of(fork_changes::first_address(&self.changes, page.address())).0
    }

    /// Pages are about to be brought back in the parent. Called before the COPY: the thread that
    /// waits for a page may have forked before its caller runs again.
    pub fn bring_back(&mut self, pages: impl Iterator<Item = Page>) {
        for page in pages {
            let first = self.first(page);
            self.brought.insert(first);
        }
    }

    /// These pages could not be brought back.
    pub fn not_brought(&mut self, pages: impl Iterator<Item = Page>) {
        for page in pages {
            let first = self.first(page);
            self.brought.remove(&first);
        }
    }

    /// Whether a page was brought back, so that it can be in the parent alone.
    pub fn was_brought(&self, page: Page) -> bool {
        self.brought.contains(&self.first(page))
    }

    /// A range of the parent is about to be zapped. `before`: that is certainly before the child is
    /// made. `resident_page`: a page of it that is in memory and was not brought back. What comes
    /// after the fork's end happened after it.
    pub fn dropped(&mut self, (start, end): (u64, u64), before: bool, resident_page: Option<Page>) {
        if !self.ended {
            self.dropped.push(Dropped { start, end, changes: self.changes.len(), before, resident_page });
        }
    }

    /// The parent's address space was changed.
    pub fn changed(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// The parent has left the fork.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// The parent goes on; `all`: no event was unread for a moment.
    pub fn tell(&mut self, all: bool) {
        self.told = Some(all);
    }

    /// Whether the parent goes on.
    pub fn is_told(&self) -> bool {
        self.told.is_some()
    }
}

/// Why a fork child cannot go on with right data. Addresses are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// A change of the parent's address space that no event has reported.
    Unreported,
    /// What the child shows at this address fits before and after a change.
    Unclear(u64),
    /// This page was dropped in the parent before or after the child got its copy.
    Dropped(u64),
    /// The child has used this page before it could be served.
    Touched(u64),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parent = "another thread of its parent";
        match self {
            Lost::Unreported => write!(f, "{parent} changed its address space while it was forked"),
            Lost::Unclear(at) => write!(f, "{parent} changed what is at {at:#x} while it was forked"),
            Lost::Dropped(at) => write!(f, "{parent} dropped page {at:#x} while it was forked"),
            Lost::Touched(at) => write!(f, "page {at:#x} was touched in a fork child before it could be served"),
        }
    }
}

/// A fork child that waits for its table.
#[derive(Debug)]
pub struct Child<'a> {
    /// Its number in the core.
    pub id: ProcId,
    /// What has happened in its parent.
    pub fork: &'a Announced,
    /// The memory that has the mark in the child.
    pub marked: &'a Ranges,
    /// That of it whose contents the child has: not what the kernel wipes in children.
    pub mine: &'a Ranges,
    /// The pages of it that are in memory, in order of address, and whether each is the zero page.
    pub present: &'a [(Page, bool)],
    /// Pages that the kernel may drop (MADV_FREE).
    pub lazy: &'a Ranges,
}

/// The changes that the child has, as [`Child::apply_changes`] has found.
#[derive(Debug)]
pub struct Applied {
    /// For each change of the parent.
    before: Vec<bool>,
    /// Those that the child has.
    made: Vec<Change>,
}

impl Child<'_> {
    /// First step: applies the changes that the child has to its table, and takes out of it what
    /// the child lacks.
    ///
    /// # Errors
    /// The child cannot go on.
    pub fn apply_changes(&self, core: &mut Core) -> Result<Applied, Lost> {
        let Announced { changes, marked, told, .. } = self.fork;
        if *told != Some(true) && fork_changes::more_has_changed(changes, marked, self.marked) {
            return Err(Lost::Unreported);
        }
        let touched = |at, first| self.is_present(Page::of(at)) && !self.fork.brought.contains(&Page::of(first).0);
        let before = apply_made(core, self.id, changes, marked, self.marked, touched)?;
        for (start, end) in self.mine.gaps(0, ADDRESSES_END) {
            core.disown(self.id, PageRange::from_addresses(start, end));
        }
        let made = changes.iter().zip(&before).filter(|(_, &before)| before).map(|(&change, _)| change).collect();
        Ok(Applied { before, made })
    }

    /// How many ranges were dropped in the parent.
    pub fn drops(&self) -> usize {
        self.fork.dropped.len()
    }

    /// Second step, for each of [`Child::drops`]: a range of the parent was about to be zapped at
    /// the moment of the fork. If the zap came first, the child needs nothing of it; else it needs
    /// all. A page that was in memory shows which.
    ///
    /// # Errors
    /// The child cannot go on.
    pub fn apply_drop(&self, core: &mut Core, applied: &Applied, number: usize) -> Result<(), Lost> {
        let dropped = self.fork.dropped[number];
        let carried = |range| fork_changes::carried(&self.fork.changes, &applied.before, dropped.changes, range);
        let Some(now) = carried((dropped.start, dropped.end)) else { return Ok(()) };
        let resident_page = dropped.resident_page.and_then(|page| {
            let now = carried((page.address(), page.address() + PAGE_BYTES))?;
            let (start, _) = now.iter().next()?;
            Some(Page::of(start))
        });
        for (start, end) in now.iter().flat_map(|(s, e)| self.mine.within(s, e).collect::<Vec<_>>()) {
            let range = PageRange::from_addresses(start, end);
            let Some(page) = all_out(core, self.id, range).next() else { continue };
            match resident_page {
                Some(resident_page) if !dropped.before && self.is_present(resident_page) => {}
                None if !dropped.before => return Err(Lost::Dropped(page.address())),
                _ => core.disown(self.id, range),
            }
        }
        Ok(())
    }

    /// Third step, for all of [`Child::present`]: the child has these pages.
    ///
    /// # Errors
    /// The child cannot go on.
    pub fn adopt(&self, core: &mut Core, applied: &Applied, pages: &[(Page, bool)]) -> Result<(), Lost> {
        for &(page, zero) in pages {
            let at = page.address();
            if matches!(core.entry(self.id, page), Entry::Out(_)) {
                // Brought back in the parent before there was a child: the child has it, too. Else
                // it is a new, empty page.
                let first = Page::of(fork_changes::first_address(&applied.made, at)).0;
                if !self.fork.brought.contains(&first) {
                    return Err(Lost::Touched(at));
                }
                core.disown(self.id, PageRange { first: page, pages: 1 });
            }
            core.adopt(self.id, page, zero || self.lazy.meets(at, at + 1));
        }
        Ok(())
    }

    fn is_present(&self, page: Page) -> bool {
        self.present.binary_search_by_key(&page, |&(present, _)| present).is_ok()
    }
}

/// Applies those changes to the child's table that the child has, and returns which these are. The
/// arguments are as those of [`fork_changes::made_before`].
///
/// # Errors
/// The child cannot go on.
pub fn apply_made(
    core: &mut Core,
    id: ProcId,
    changes: &[Change],
    had: &Ranges,
    has: &Ranges,
    touched: impl Fn(u64, u64) -> bool,
) -> Result<Vec<bool>, Lost> {
    let outside = |start, end| all_out(core, id, PageRange::from_addresses(start, end)).map(Page::address).collect();
    let before = fork_changes::made_before(changes, had, has, outside, touched).map_err(Lost::Unclear)?;
    for (change, _) in changes.iter().zip(&before).filter(|(_, &before)| before) {
        match *change {
            Change::Unmapped(start, end) | Change::Came(start, end) => {
                core.disown(id, PageRange::from_addresses(start, end));
            }
            Change::Moved(from, to, len) => {
                core.remapped(id, PageRange::from_addresses(from, from + len), Page::of(to));
            }
        }
    }
    Ok(before)
}

/// The evicted pages of a range.
fn all_out(core: &Core, id: ProcId, range: PageRange) -> impl Iterator<Item = Page> + '_ {
    let pages = (range.first.0..range.end()).map(Page);
    pages.filter(move |&page| matches!(core.entry(id, page), Entry::Out(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_registered_during_dontfork_stays_open() {
        let mut dontfork = Dontfork::default();
        dontfork.registered(0x1000, 0x9000);
        let posted = dontfork.posted();
        dontfork.registered(0x9000, 0xa000);
        dontfork.registered(0x4000, 0x5000);
        dontfork.kept_from_children(0x1000, 0x9000);
        assert_eq!(dontfork.generation, posted, "the rest is kept from children");
        assert_eq!(dontfork.open.iter().collect::<Vec<_>>(), [(0x4000, 0x5000), (0x9000, 0xa000)]);
        assert_eq!(dontfork.marked.iter().collect::<Vec<_>>(), [(0x1000, 0x4000), (0x5000, 0x9000)]);
        dontfork.moved(0x1000, 0x2_0000, 0x1000);
        dontfork.unmapped(0x1000, 0x2000);
        assert!(dontfork.marked.meets(0x2_0000, 0x2_1000) && !dontfork.marked.meets(0x1000, 0x2000));
    }
}
