//! Pages that fork relatives share, through the core's public interface.

use memfit_core::scheme::{ReclaimKind, Scheme};
use memfit_core::{
    Answer, Coded, Compress, Core, Fault, Filled, Load, Page, PageRange, Placed, ProcId, Sharing, Source, Victim,
    RUN_PAGES,
};

mod support;

/// Pages of each process.
const PAGES: u64 = 4 * RUN_PAGES;
const HASH: [u32; 3] = [1, 2, 3];

/// A parent and its child, which have the same pages.
struct Family {
    core: Core,
    parent: ProcId,
    child: ProcId,
}

impl Family {
    fn new() -> Family {
        let mut scheme = Scheme::default();
        scheme.reclaim.kind = ReclaimKind::Fifo;
        let mut core = support::core(scheme, 4096);
        core.swap_takes(true);
        let (parent, _) = core.add_process(4096);
        let (child, _) = core.add_process(4096);
        for process in [parent, child] {
            (0..PAGES).for_each(|page| assert!(core.adopt(process, Page(page), false)));
        }
        Family { core, parent, child }
    }

    /// All pages of both but these are shared.
    fn shares_all_but(&mut self, alone: &[u64]) {
        for process in [self.parent, self.child] {
            for run in 0..PAGES / RUN_PAGES {
                let shared = (0..RUN_PAGES).filter(|i| !alone.contains(&(run * RUN_PAGES + i)));
                let mask = shared.fold(0, |mask, i| mask | 1 << i);
                self.core.shares(process, Page(run * RUN_PAGES), mask);
            }
        }
    }

    /// Takes victims; returns their pages.
    fn take(&mut self, process: ProcId, victims: &[Victim]) -> Vec<u64> {
        for victim in victims {
            let moved = u64::MAX >> (64 - victim.slots.len());
            let answer = Answer { moved, ..Answer::default() };
            self.core.evicted(process, victim.first, victim.slots.len() as u32, answer, 0);
        }
        victims.iter().flat_map(|victim| victim.first.0..victim.first.0 + victim.slots.len() as u64).collect()
    }

    /// Takes all that `pick_victims` chooses: the pages of each process.
    fn take_all(&mut self) -> [Vec<u64>; 2] {
        let mut left = [Vec::new(), Vec::new()];
        while let Some((process, victims)) = self.core.pick_victims(64, 0, &|_| true) {
            let pages = self.take(process, &victims);
            left[usize::from(process == self.child)].extend(pages);
        }
        left.iter_mut().for_each(|pages| pages.sort_unstable());
        left
    }

    /// Takes a page of a process, whoever has it.
    fn take_one(&mut self, process: ProcId, page: u64) {
        let victims = self.core.claim_range(process, one(page), 1, 0);
        assert_eq!(self.take(process, &victims), [page]);
    }

    fn pick(&mut self) -> Compress {
        let mut picked = Vec::new();
        self.core.pick_compress(1, &mut picked);
        picked[0]
    }

    fn store(&mut self, item: Compress) -> Placed {
        self.core.compressed(item.object, Coded::Bytes { codec: 1, len: 1000 })
    }

    fn fault(&mut self, process: ProcId, page: u64) -> Load {
        let mut loads = Vec::new();
        assert_eq!(self.core.fault(process, Page(page), one(page), 1, &mut loads), Fault::Load);
        loads.remove(0)
    }

    fn zpages(&self) -> u64 {
        self.core.pool_usage().zpages
    }
}

fn one(page: u64) -> PageRange {
    PageRange { first: Page(page), pages: 1 }
}

/// Pages of one process alone leave, the others of their runs stay, and runs with no other pages
/// are set aside.
#[test]
fn what_one_process_has_alone_leaves_first() {
    let mut family = Family::new();
    family.shares_all_but(&[3, 17, 18]);
    assert_eq!(family.take_all(), [vec![3, 17, 18], vec![3, 17, 18]]);
    let known = [0, 16, 32].map(|page| family.core.sharing(family.child, Page(page)));
    let aside = |shared| Some(Sharing { shared, takeable: shared, aside: true });
    assert_eq!(known, [aside(!(1 << 3)), aside(!0b110), aside(!0)]);
    family.core.check();
}

/// While a process is held, its relatives use what they share with it.
#[test]
fn a_held_process_leaves_without_what_it_shares() {
    let mut family = Family::new();
    family.shares_all_but(&[3, 17]);
    let leaves = |family: &mut Family| {
        family.core.reclaim_process(family.child);
        let (process, victims) = family.core.pick_victims(64, 0, &|_| true).unwrap();
        assert_eq!(process, family.child);
        family.take(process, &victims)
    };
    family.core.set_held(family.child, true);
    assert_eq!(leaves(&mut family), [3, 17]);
    family.core.set_background(family.child, true);
    let rest: Vec<u64> = (0..PAGES).filter(|page| ![3, 17].contains(page)).collect();
    assert_eq!(leaves(&mut family), rest, "the user has said so");
    family.core.check();
}

/// A copy that the process has made since then is found by the next look. A page that comes back is
/// the process's alone.
#[test]
fn a_run_with_a_page_of_its_own_leaves_again() {
    let mut family = Family::new();
    family.shares_all_but(&[3]);
    family.take_all();
    family.core.shares(family.child, Page(16), !(1 << 5) & 0xffff);
    assert_eq!(family.take_all(), [vec![], vec![16 + 5]]);
    family.fault(family.parent, 3);
    family.core.loaded(family.parent, Page(3), Filled::Done);
    assert_eq!(family.take_all(), [vec![3], vec![]]);
    family.core.shares_nothing(family.parent);
    assert_eq!(family.take_all()[0].len() as u64, PAGES - 1);
    family.core.check();
}

/// When nothing else is left, shared pages leave all relatives that have them.
#[test]
fn shared_pages_leave_all_relatives() {
    let mut family = Family::new();
    family.shares_all_but(&[]);
    assert_eq!(family.take_all(), [vec![], vec![]]);
    let (process, victims) = family.core.pick_shared(RUN_PAGES as usize, 0, &|_| true).expect("shared pages");
    let pages = family.take(process, &victims);
    assert_eq!(pages.len() as u64, RUN_PAGES);
    let relative = if process == family.parent { family.child } else { family.parent };
    let range = PageRange { first: Page(pages[0]), pages: RUN_PAGES };
    assert_eq!(family.core.shared_among(relative, range.first, 16), 0xffff);
    let victims = family.core.claim_shared(relative, range, 0);
    assert_eq!(family.take(relative, &victims), pages);
    assert_eq!(family.core.shared_among(relative, range.first, 16), 0, "what has left is not shared");
    family.core.check();
}

/// While another process that has a batch under way may have other pages, shared ones stay for a
/// moment, and no longer, if it never answers.
#[test]
fn shared_pages_wait_for_others() {
    let mut family = Family::new();
    family.shares_all_but(&[]);
    let (other, _) = family.core.add_process(64);
    assert!(family.core.adopt(other, Page(0), false));
    let mut at = |tick| {
        while family.core.pick_victims(64, tick, &|process| process != other).is_some() {}
        family.core.pick_shared(4, tick, &|process| process != other).is_some()
    };
    assert_eq!([100, 110, 119, 120, 121].map(&mut at), [false, false, false, true, true]);
}

/// Pages that cannot leave are not counted as found, however often they are looked at.
#[test]
fn pinned_pages_are_not_found() {
    let mut family = Family::new();
    family.core.pin(family.child, [Page(3)].into_iter());
    family.shares_all_but(&[]);
    family.take_all();
    for _ in 0..2 {
        assert_eq!(family.core.shares(family.child, Page(0), !(1 << 3) & 0xffff), 0);
        assert_eq!(family.core.shares(family.child, Page(16), !(0b11) & 0xffff), 2);
        family.core.shares(family.child, Page(16), 0xffff);
        family.take_all();
    }
    family.core.check();
}

/// A clean page of a file can be dropped, so nobody refers to its bytes.
#[test]
fn pages_of_files_are_not_compared() {
    let mut family = Family::new();
    family.shares_all_but(&[]);
    for process in [family.parent, family.child] {
        let victims = family.core.claim_range(process, one(7), 1, 0);
        let answer = Answer { moved: 1, file: 1, ..Answer::default() };
        family.core.evicted(process, victims[0].first, 1, answer, 0);
    }
    for _ in 0..2 {
        let item = family.pick();
        assert_eq!(family.core.same_as(item.object, HASH), None);
        family.store(item);
    }
    assert_eq!(family.zpages(), 2);
}

/// Equal contents are stored once. Each page comes back from there, in any order, and the bytes go
/// with the last.
#[test]
fn equal_contents_are_stored_once() {
    for child_first in [false, true] {
        let mut family = Family::new();
        let (parent, child) = (family.parent, family.child);
        family.shares_all_but(&[]);
        [parent, child].into_iter().for_each(|process| family.take_one(process, 7));
        let item = family.pick();
        assert!(item.shared);
        assert_eq!(family.core.same_as(item.object, HASH), None, "these contents are new");
        assert!(matches!(family.store(item), Placed::Pool { .. }));
        let item = family.pick();
        assert_eq!(family.core.same_as(item.object, HASH), Some(Placed::Nothing));
        assert_eq!((family.zpages(), family.core.counters().same), (1, 1));
        family.core.check();
        let order = if child_first { [child, parent] } else { [parent, child] };
        let sources = order.map(|process| {
            let load = family.fault(process, 7);
            family.core.check();
            family.core.loaded(process, Page(7), Filled::Done);
            family.core.check();
            load.source
        });
        assert!(matches!(sources[0], Source::Pooled { .. }));
        assert_eq!(sources[0], sources[1]);
        assert_eq!(family.zpages(), 0);
        // Nothing remembers the contents.
        family.shares_all_but(&[]);
        family.take_one(parent, 9);
        let item = family.pick();
        assert_eq!(family.core.same_as(item.object, HASH), None);
    }
}

/// Pages that were not shared are not compared, nor are contents that are not stored yet.
#[test]
fn only_stored_contents_of_shared_pages_are_compared() {
    let mut family = Family::new();
    family.take_one(family.parent, 7);
    assert!(!family.pick().shared);
    family.shares_all_but(&[]);
    [family.parent, family.child].into_iter().for_each(|process| family.take_one(process, 9));
    let (first, second) = (family.pick(), family.pick());
    assert_eq!(family.core.same_as(first.object, HASH), None);
    assert_eq!(family.core.same_as(second.object, HASH), None, "the first one is not stored");
    family.store(first);
    family.store(second);
    assert_eq!(family.zpages(), 2);
    family.core.check();
}

/// What is staged can change until it is compressed: what was known of it is forgotten when it
/// waits again.
#[test]
fn contents_that_wait_again_are_forgotten() {
    let mut family = Family::new();
    family.shares_all_but(&[]);
    [family.parent, family.child].into_iter().for_each(|process| family.take_one(process, 7));
    let item = family.pick();
    assert_eq!(family.core.same_as(item.object, HASH), None);
    family.core.give_back(&[item]);
    let again = family.pick();
    assert_eq!(again.object, item.object);
    assert_eq!(family.core.same_as(again.object, [4, 5, 6]), None);
    family.store(again);
    let other = family.pick();
    assert_eq!(family.core.same_as(other.object, HASH), None, "nothing stored has these contents");
    family.core.check();
}

/// A batch has at most so many victims, however small they are.
#[test]
fn a_batch_of_single_pages_is_not_too_long() {
    let mut family = Family::new();
    let (process, _) = family.core.add_process(4096);
    let pages = 20 * RUN_PAGES;
    (0..pages).step_by(2).for_each(|page| assert!(family.core.adopt(process, Page(page), false)));
    for process in [family.parent, family.child, process] {
        (0..pages).step_by(16).for_each(|page| _ = family.core.shares(process, Page(page), 0xffff));
    }
    family.take_all();
    let (_, victims) = family.core.pick_shared(256, 0, &|one| one == process).expect("shared pages");
    assert_eq!(victims.len(), memfit_core::BATCH_VICTIMS);
}

/// The bytes that two pages have go to the swap tier, and both come back from there.
#[test]
fn equal_contents_are_written_once() {
    let mut family = Family::new();
    let (parent, child) = (family.parent, family.child);
    family.shares_all_but(&[]);
    [parent, child].into_iter().for_each(|process| family.take_one(process, 7));
    let item = family.pick();
    family.core.same_as(item.object, HASH);
    family.store(item);
    let mut victims = Vec::new();
    family.core.pick_writeback(true, 1 << 20, &mut victims);
    assert_eq!(victims.len(), 1);
    let item = family.pick();
    assert_eq!(family.core.same_as(item.object, HASH), Some(Placed::Nothing), "it is being written");
    let extent = memfit_core::Extent { unit: 77 };
    family.core.written(victims[0].object, Some(extent));
    for process in [parent, child] {
        let load = family.fault(process, 7);
        assert!(matches!(load.source, Source::Swapped { extent: at, .. } if at == extent), "{load:?}");
        family.core.loaded(process, Page(7), Filled::Done);
        family.core.check();
    }
    let mut freed = Vec::new();
    family.core.apply_effects(|extent, _| freed.push(extent));
    assert_eq!(freed, [extent]);
}
