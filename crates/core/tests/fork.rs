//! What the child of an announced fork has of its parent, through the core's public interface.

use memfit_core::driver::fork::{Announced, Child, Lost};
use memfit_core::driver::fork_changes::Change;
use memfit_core::ranges::Ranges;
use memfit_core::scheme::{ReclaimKind, Scheme};
use memfit_core::{Answer, Core, Entry, Page, PageRange, ProcId, PAGE_BYTES};

mod support;

/// Pages 10 to 19 and 30 to 39 of a parent are evicted when its child is announced.
const HAD: [(u64, u64); 2] = [(10, 20), (30, 40)];

struct Forked {
    core: Core,
    child: ProcId,
    fork: Announced,
}

fn ranges(pages: &[(u64, u64)]) -> Ranges {
    pages.iter().map(|&(first, end)| (first * PAGE_BYTES, end * PAGE_BYTES)).collect()
}

fn pages(first: u64, end: u64) -> (u64, u64) {
    (first * PAGE_BYTES, end * PAGE_BYTES)
}

impl Forked {
    fn new() -> Forked {
        let mut scheme = Scheme::default();
        scheme.reclaim.kind = ReclaimKind::Fifo;
        let mut core = support::core(scheme, 4096);
        let (parent, _) = core.add_process(4096);
        for page in HAD.into_iter().flat_map(|(first, end)| first..end) {
            assert!(core.adopt(parent, Page(page), false));
        }
        while let Some((id, victims)) = core.pick_victims(128, 0, &|_| true) {
            for victim in victims {
                let count = victim.slots.len() as u32;
                let answer = Answer { moved: u64::MAX >> (64 - count), ..Answer::default() };
                core.evicted(id, victim.first, count, answer, 0);
            }
        }
        let (child, _) = core.forked(parent, 4096, false);
        core.inherit(child, PageRange::ALL);
        Forked { core, child, fork: Announced::new(ranges(&HAD)) }
    }

    /// All steps for a child that has these ranges, and these pages in memory.
    fn comes(&mut self, has: &[(u64, u64)], there: &[u64]) -> Result<(), Lost> {
        let (marked, lazy) = (ranges(has), Ranges::default());
        let present: Vec<(Page, bool)> = there.iter().map(|&page| (Page(page), false)).collect();
        let (id, fork) = (self.child, &self.fork);
        let child = Child { id, fork, marked: &marked, mine: &marked, present: &present, lazy: &lazy };
        let applied = child.apply_changes(&mut self.core)?;
        child.disown_rest(&mut self.core);
        child.drops(&applied).into_iter().try_for_each(|drop| child.apply_drop(&mut self.core, drop))?;
        child.adopt(&mut self.core, &applied, &present)
    }

    /// The child's pages between two, that are evicted and in memory.
    fn has(&self, first: u64, end: u64) -> (usize, usize) {
        let of = |wanted: fn(&Entry) -> bool| {
            (first..end).filter(|&page| wanted(&self.core.entry(self.child, Page(page)))).count()
        };
        (of(|entry| matches!(entry, Entry::Out(_))), of(|entry| *entry == Entry::Resident))
    }
}

#[test]
fn what_was_evicted_comes_to_the_child() {
    let mut forked = Forked::new();
    forked.comes(&HAD, &[]).unwrap();
    assert_eq!((forked.has(10, 20), forked.has(30, 40)), ((10, 0), (10, 0)));
}

#[test]
fn changes_before_and_after_the_copy() {
    let change = |forked: &mut Forked| {
        forked.fork.changed(Change::Unmapped(10 * PAGE_BYTES, 20 * PAGE_BYTES));
        forked.fork.changed(Change::Moved(30 * PAGE_BYTES, 50 * PAGE_BYTES, 10 * PAGE_BYTES));
        forked.fork.parent_goes_on(true);
    };
    let mut before = Forked::new();
    change(&mut before);
    before.comes(&[(50, 60)], &[]).unwrap();
    assert_eq!((before.has(0, 40), before.has(50, 60)), ((0, 0), (10, 0)));
    let mut after = Forked::new();
    change(&mut after);
    after.comes(&HAD, &[]).unwrap();
    assert_eq!((after.has(10, 20), after.has(30, 40), after.has(50, 60)), ((10, 0), (10, 0), (0, 0)));
}

#[test]
fn a_change_that_nobody_reported_ends_the_child() {
    let mut forked = Forked::new();
    forked.fork.parent_goes_on(false);
    assert_eq!(forked.comes(&[(10, 20), (70, 80)], &[]), Err(Lost::Unreported));
}

#[test]
fn a_circle_that_the_marks_do_not_show_ends_the_child() {
    let mut forked = Forked::new();
    for (from, to) in [(10, 90), (30, 10), (90, 30)] {
        forked.fork.changed(Change::Moved(from * PAGE_BYTES, to * PAGE_BYTES, 10 * PAGE_BYTES));
    }
    assert_eq!(forked.comes(&HAD, &[]), Err(Lost::Unclear(10 * PAGE_BYTES)));
}

#[test]
fn a_drop_came_first_if_the_child_lacks_a_page_that_was_there() {
    // Page 15 was in memory when the child was announced.
    let dropped = |resident: Option<u64>, there: &[u64]| {
        let mut forked = Forked::new();
        forked.core.disown(forked.child, PageRange { first: Page(15), pages: 1 });
        forked.fork.dropped(pages(10, 20), false, resident.map(Page));
        forked.comes(&HAD, there).map(|()| forked.has(10, 20))
    };
    assert_eq!(dropped(Some(15), &[15]), Ok((9, 1)), "the child got its copy before the drop");
    assert_eq!(dropped(Some(15), &[]), Ok((0, 0)), "the drop came first");
    assert_eq!(dropped(None, &[]), Err(Lost::Dropped(10 * PAGE_BYTES)));
    let mut certain = Forked::new();
    certain.fork.dropped(pages(10, 20), true, None);
    assert_eq!(certain.comes(&HAD, &[]).map(|()| certain.has(10, 20)), Ok((0, 0)), "the forking thread waited");
    // It was dropped, and then what is there now moved.
    let mut moved = Forked::new();
    moved.core.disown(moved.child, PageRange { first: Page(35), pages: 1 });
    moved.fork.dropped(pages(30, 36), false, Some(Page(35)));
    moved.fork.changed(Change::Moved(30 * PAGE_BYTES, 50 * PAGE_BYTES, 10 * PAGE_BYTES));
    moved.comes(&[(10, 20), (50, 60)], &[]).unwrap();
    assert_eq!((moved.has(50, 56), moved.has(56, 60)), ((0, 0), (4, 0)));
}

#[test]
fn only_pages_that_were_brought_back_can_be_in_a_child() {
    let mut forked = Forked::new();
    forked.fork.bring_back([Page(12), Page(13)].into_iter());
    forked.fork.not_brought([Page(13)].into_iter());
    assert!(forked.fork.was_brought(Page(12)) && !forked.fork.was_brought(Page(13)));
    forked.comes(&HAD, &[12]).unwrap();
    assert_eq!(forked.has(10, 20), (9, 1));
    let mut touched = Forked::new();
    assert_eq!(touched.comes(&HAD, &[12]), Err(Lost::Touched(12 * PAGE_BYTES)));
    // It was brought back after it had moved.
    let mut moved = Forked::new();
    moved.fork.changed(Change::Moved(30 * PAGE_BYTES, 50 * PAGE_BYTES, 10 * PAGE_BYTES));
    moved.fork.bring_back([Page(52)].into_iter());
    moved.comes(&[(10, 20), (50, 60)], &[52]).unwrap();
    assert_eq!(moved.has(50, 60), (9, 1));
}
