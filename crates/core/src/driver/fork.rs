//! What a fork child has of its parent. Other threads of the parent can change its memory, before
//! or after the moment at which the child got its copy.
//!
//! Where the kernel reports no forks, the stub announces them. Before the fork the table of the
//! child gets what is evicted in the parent, and [`Announced`] notes what other threads do
//! meanwhile. When the child is there, [`Child`] corrects its table by what its memory shows. Where
//! the kernel reports a fork, [`apply_made`] does that for the changes that were reported late.

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
    /// Registered, but not kept from fork children yet.
    open: Ranges,
    /// What the program itself keeps from fork children.
    kept: Ranges,
    /// What the stub has kept from children: it has the mark. All evicted pages are in it.
    marked: Ranges,
    /// Opened since the DONTFORK batch was posted: the batch does not close it.
    late: Ranges,
    /// Changes when `open` loses ranges that may be in a batch.
    generation: u32,
}

impl Dontfork {
    /// What the program kept from its children before it was paged.
    pub fn kept_before(&mut self, kept: Ranges) {
        self.kept = kept;
    }

    /// A range was registered.
    pub fn registered(&mut self, start: u64, end: u64) {
        for (s, e) in self.kept.gaps(start, end) {
            self.open.add(s, e);
            self.late.add(s, e);
        }
    }

    /// The program keeps a range from its fork children.
    pub fn keep(&mut self, start: u64, end: u64) {
        self.kept.add(start, end);
        self.open.cut(start, end);
        self.generation += 1;
    }

    /// The program gives a range to its fork children, which has undone the stub's DONTFORK.
    /// `registered` are the parts of it that are paged.
    pub fn give(&mut self, (start, end): (u64, u64), registered: impl Iterator<Item = (u64, u64)>) {
        self.kept.cut(start, end);
        registered.for_each(|(s, e)| self.registered(s, e));
    }

    /// After a fork, all of these must be kept from children again.
    pub fn reopen(&mut self, ranges: impl Iterator<Item = (u64, u64)>, never: &[(u64, u64)]) {
        self.open = ranges.flat_map(|(s, e)| self.kept.gaps(s, e)).collect();
        never.iter().for_each(|&(s, e)| _ = self.open.cut(s, e));
        self.generation += 1;
    }

    /// What is not kept from fork children yet. While there is any, nothing is evicted.
    pub fn open(&self) -> &Ranges {
        &self.open
    }

    /// What the program itself keeps from fork children.
    pub fn kept(&self) -> &Ranges {
        &self.kept
    }

    /// The memory among `registered` that has the mark and comes to fork children.
    pub fn marked(&self, registered: &Ranges) -> Ranges {
        let mut marked: Ranges =
            self.marked.iter().flat_map(|(s, e)| registered.within(s, e).collect::<Vec<_>>()).collect();
        self.kept.iter().for_each(|(s, e)| _ = marked.cut(s, e));
        marked
    }

    /// Whether a batch posted in this generation still says what is kept.
    pub fn is_current(&self, generation: u32) -> bool {
        generation == self.generation
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
    /// The parent goes on.
    goes_on: bool,
    /// All changes before the fork's end are known, because no event was unread for a moment.
    complete: bool,
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
    /// made. `resident_page`: a page of it that is in memory and was not brought back.
    ///
    /// # Panics
    /// If the fork has ended: what is dropped then is of no matter.
    pub fn dropped(&mut self, (start, end): (u64, u64), before: bool, resident_page: Option<Page>) {
        assert!(!self.ended, "dropped after the fork");
        self.dropped.push(Dropped { start, end, changes: self.changes.len(), before, resident_page });
    }

    /// The parent's address space was changed.
    pub fn changed(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// The parent has left the fork.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Whether the parent has left the fork.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// The parent goes on; `complete`: no event was unread for a moment.
    pub fn parent_goes_on(&mut self, complete: bool) {
        (self.goes_on, self.complete) = (true, complete);
    }

    /// Whether the child waits for its parent.
    pub fn waits_for_parent(&self) -> bool {
        !self.goes_on
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

/// A range of the parent that was about to be zapped at the moment of the fork. If the zap came
/// first, the child needs nothing of it; else it needs all.
#[derive(Debug, Clone, Copy)]
pub struct Drop {
    range: PageRange,
    /// Whether the zap came first: a page that was in memory shows that. `None`: it cannot be told.
    was_first: Option<bool>,
}

impl Child<'_> {
    /// First step: applies the changes that the child has to its table.
    ///
    /// # Errors
    /// The child cannot go on.
    pub fn apply_changes(&self, core: &mut Core) -> Result<Applied, Lost> {
        let Announced { changes, marked, complete, .. } = self.fork;
        if !complete && fork_changes::more_has_changed(changes, marked, self.marked) {
            return Err(Lost::Unreported);
        }
        let touched = |at, first| self.is_present(Page::of(at)) && !self.fork.brought.contains(&Page::of(first).0);
        let before = apply_made(core, self.id, changes, marked, self.marked, touched)?;
        let made = changes.iter().zip(&before).filter(|(_, &before)| before).map(|(&change, _)| change).collect();
        Ok(Applied { before, made })
    }

    /// Second step: takes out of the table what the child lacks.
    pub fn disown_rest(&self, core: &mut Core) {
        for (start, end) in self.mine.gaps(0, ADDRESSES_END) {
            core.disown(self.id, PageRange::from_addresses(start, end));
        }
    }

    /// The ranges for the third step: the child may lack them.
    pub fn drops(&self, applied: &Applied) -> Vec<Drop> {
        let mut drops = Vec::new();
        for &Dropped { start, end, changes, before, resident_page } in &self.fork.dropped {
            let carried = |range| fork_changes::carried(&self.fork.changes, &applied.before, changes, range);
            let Some(now) = carried((start, end)) else { continue };
            let resident_page = resident_page.and_then(|page| {
                let now = carried((page.address(), page.address() + PAGE_BYTES))?;
                let (start, _) = now.iter().next()?;
                Some(Page::of(start))
            });
            let was_first = match resident_page {
                _ if before => Some(true),
                Some(page) => Some(!self.is_present(page)),
                None => None,
            };
            let parts = now.iter().flat_map(|(s, e)| self.mine.within(s, e).collect::<Vec<_>>());
            drops.extend(parts.map(|(s, e)| Drop { range: PageRange::from_addresses(s, e), was_first }));
        }
        drops
    }

    /// Third step, for each of [`Child::drops`].
    ///
    /// # Errors
    /// The child cannot go on.
    pub fn apply_drop(&self, core: &mut Core, drop: Drop) -> Result<(), Lost> {
        let Some(page) = all_out(core, self.id, drop.range).next() else { return Ok(()) };
        match drop.was_first {
            Some(false) => {}
            Some(true) => core.disown(self.id, drop.range),
            None => return Err(Lost::Dropped(page.address())),
        }
        Ok(())
    }

    /// Fourth step, for all of [`Child::present`]: the child has these pages.
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
    let tracked = core.table.tracked(id, range).into_iter();
    tracked.filter(|(_, entry)| matches!(entry, Entry::Out(_))).map(|(page, _)| page)
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
        assert!(dontfork.is_current(posted), "the rest is kept from children");
        assert_eq!(dontfork.open.iter().collect::<Vec<_>>(), [(0x4000, 0x5000), (0x9000, 0xa000)]);
        assert_eq!(dontfork.marked.iter().collect::<Vec<_>>(), [(0x1000, 0x4000), (0x5000, 0x9000)]);
        dontfork.moved(0x1000, 0x2_0000, 0x1000);
        dontfork.unmapped(0x1000, 0x2000);
        assert!(dontfork.marked.meets(0x2_0000, 0x2_1000) && !dontfork.marked.meets(0x1000, 0x2000));
    }

    #[test]
    fn a_range_given_to_children_during_dontfork_stays_open() {
        let mut dontfork = Dontfork::default();
        dontfork.registered(0x1000, 0x9000);
        let posted = dontfork.posted();
        dontfork.give((0x2000, 0x4000), [(0x2000, 0x3000)].into_iter());
        assert!(dontfork.is_current(posted));
        dontfork.kept_from_children(0x1000, 0x9000);
        assert_eq!(dontfork.open().iter().collect::<Vec<_>>(), [(0x2000, 0x3000)], "the stub's DONTFORK is undone");
        dontfork.keep(0x2000, 0x3000);
        assert!(dontfork.open().is_empty() && !dontfork.is_current(posted));
        let all: Ranges = [(0, 0x1_0000)].into_iter().collect();
        assert_eq!(dontfork.marked(&all).iter().collect::<Vec<_>>(), [(0x1000, 0x2000), (0x3000, 0x9000)]);
        dontfork.reopen([(0x1000, 0x9000)].into_iter(), &[(0x8000, 0x9000)]);
        assert_eq!(dontfork.open().iter().collect::<Vec<_>>(), [(0x1000, 0x2000), (0x3000, 0x8000)]);
    }
}
