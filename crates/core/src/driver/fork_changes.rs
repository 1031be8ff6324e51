//! Changes that other threads of a process made in its address space while one of them forked:
//! before the child got its copy, or after.
//!
//! The kernel reports the changes, but not the moment of the fork: even where it reports forks,
//! they are not in the order of the events. But the child shows it: paged memory is marked in the
//! parent, and the mark is copied. The mark is the registration or, without fork events, advice
//! (`memfit_wire::DONTFORK`). Changes with common ranges are in order, so one moment between them
//! fits the child's marks. Changes without common ranges are judged separately.

use crate::ranges::Ranges;
use alloc::{collections::BTreeMap, vec, vec::Vec};

type Range = (u64, u64);

/// One change, in addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A mapping was removed.
    Unmapped(u64, u64),
    /// A mapping was moved: from, to, bytes.
    Moved(u64, u64, u64),
    /// A mapping appeared that the pager did not know.
    Came(u64, u64),
}

impl Change {
    /// The ranges that it touches; the second is the target of a move.
    pub fn touches(self) -> [Range; 2] {
        match self {
            Change::Unmapped(start, end) | Change::Came(start, end) => [(start, end), (0, 0)],
            Change::Moved(from, to, len) => [(from, from + len), (to, to + len)],
        }
    }
}

/// What is paged after some of the changes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct View {
    marked: Ranges,
    /// Sources of moves. With MREMAP_DONTUNMAP a mapping stays there.
    unsure: Ranges,
    /// What was marked and unmapped.
    gone: Ranges,
    /// Address of each evicted page, and its address before all changes.
    outside: BTreeMap<u64, u64>,
}

impl View {
    fn apply(&mut self, change: Change) {
        let [(start, end), _] = change.touches();
        let marked: Vec<Range> = self.marked.within(start, end).collect();
        let outside: Vec<(u64, u64)> = self.outside.range(start..end).map(|(&at, &first)| (at, first)).collect();
        self.clear(start, end);
        match change {
            Change::Unmapped(..) => marked.into_iter().for_each(|(s, e)| self.gone.add(s, e)),
            Change::Came(..) => self.marked.add(start, end),
            Change::Moved(from, to, len) => {
                self.clear(to, to + len);
                self.unsure.add(start, end);
                marked.into_iter().for_each(|(s, e)| self.marked.add(s - from + to, e - from + to));
                self.outside.extend(outside.into_iter().map(|(at, first)| (at - from + to, first)));
            }
        }
    }

    fn clear(&mut self, start: u64, end: u64) {
        self.marked.cut(start, end);
        self.unsure.cut(start, end);
        self.gone.cut(start, end);
        self.outside.retain(|at, _| !(start..end).contains(at));
    }

    /// `None` if the child lacks something, or has what was unmapped. Else how many bytes it has in
    /// addition, because a mapping has grown; and those where a mapping must have stayed
    /// (MREMAP_DONTUNMAP), which few programs use.
    fn differs(&self, touched: &Ranges, child: &Ranges) -> Option<(u64, u64)> {
        let sum = |parts: &mut dyn Iterator<Item = Range>| parts.map(|(s, e)| e - s).sum::<u64>();
        if self.gone.iter().any(|(start, end)| child.meets(start, end)) {
            return None;
        }
        let gaps = |whole: &Ranges, of: &Ranges| -> u64 {
            whole.iter().map(|(s, e)| sum(&mut of.gaps(s, e).into_iter())).sum()
        };
        let stays = self.unsure.iter().map(|(s, e)| sum(&mut child.within(s, e))).sum();
        let sure: Ranges = touched.iter().flat_map(|(s, e)| self.unsure.gaps(s, e)).collect();
        let there: Ranges = sure.iter().flat_map(|(s, e)| child.within(s, e).collect::<Vec<_>>()).collect();
        (gaps(&self.marked, child) == 0).then(|| (gaps(&there, &self.marked), stays))
    }
}

/// A number of changes after which the child may have got its copy.
struct Fit {
    /// In the middle of a call; and see [`View::differs`].
    differs: (bool, u64, u64),
    count: usize,
    /// The evicted pages of the child then.
    pages: BTreeMap<u64, u64>,
}

/// Which of the changes were made before the child got its copy.
///
/// `had` is what was marked in the parent before all changes, `child` what is marked in the child.
/// `outside` returns the pages of a range that were evicted before all changes. `touched` says
/// whether the child has a page at the first address although the page that was at the second
/// address before all changes is evicted: then it cannot be that page. The error is an address at
/// which the child's marks do not decide.
pub fn made_before(
    changes: &[Change],
    had: &Ranges,
    child: &Ranges,
    outside: impl Fn(u64, u64) -> Vec<u64>,
    touched: impl Fn(u64, u64) -> bool,
) -> Result<Vec<bool>, u64> {
    let mut before = vec![false; changes.len()];
    for (ranges, members) in groups(changes) {
        let part = |whole: &Ranges| ranges.iter().flat_map(|(s, e)| whole.within(s, e).collect::<Vec<_>>()).collect();
        let pages = ranges.iter().flat_map(|(s, e)| outside(s, e)).map(|at| (at, at)).collect();
        let none = Ranges::default;
        let mut view = View { marked: part(had), unsure: none(), gone: none(), outside: pages };
        let mut fits = Vec::new();
        for count in 0..=members.len() {
            let mut within = false;
            if count > 0 {
                view.apply(changes[members[count - 1]]);
                within = within_a_call(changes, &members[count - 1..]);
            }
            let mut pages = view.outside.clone();
            pages.retain(|&at, _| child.meets(at, at + 1));
            let refuted = pages.iter().any(|(&at, &first)| touched(at, first));
            let fit = view.differs(&ranges, child).filter(|_| !refuted);
            fits.extend(fit.map(|(grown, stays)| Fit { differs: (within, grown, stays), count, pages }));
        }
        let start = ranges.iter().next().map_or(0, |(start, _)| start);
        let best = fits.iter().min_by_key(|fit| fit.differs).ok_or(start)?;
        if fits.iter().any(|other| other.differs == best.differs && other.pages != best.pages) {
            return Err(start);
        }
        members[..best.count].iter().for_each(|&i| before[i] = true);
    }
    Ok(before)
}

/// What a child has from its parent, as known when the FORK event is read. Events of changes before
/// the fork can be queued behind it.
#[derive(Debug)]
pub struct Inherited {
    /// What was registered, and known.
    pub had: Ranges,
    /// What may be registered besides.
    pub also: Ranges,
    /// What the parent kept from children (MADV_DONTFORK, MADV_WIPEONFORK), at the fork or just
    /// after it.
    pub lost: Ranges,
    /// Where evicted memory was unmapped, or from where it was moved, by events that were read
    /// before the FORK event. If the child has it, the change came after the fork, and the table
    /// lacks the child's pages.
    pub suspects: Ranges,
    /// What the parent's events have reported since.
    pub changes: Vec<Change>,
    /// Whether these are all from before the fork.
    pub told: Told,
}

/// Whether all changes of the parent from before the fork are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Events can be unread.
    NotYet,
    /// No event was unread for a moment.
    All,
    /// The parent has ended: nobody will know the changes whose events were unread then.
    Ended,
}

/// Where a child lacks memory that it must have if these changes are all: `had` is what the parent
/// had before them and kept from no child, and `before` says which of them the child has.
pub fn lacks(changes: &[Change], before: &[bool], had: &Ranges, child: &Ranges) -> Option<u64> {
    let carried = had.iter().filter_map(|range| carried(changes, before, 0, range));
    carried.flat_map(|at| at.iter().flat_map(|(s, e)| child.gaps(s, e)).collect::<Vec<_>>()).map(|(at, _)| at).next()
}

/// Whether the first of these changes and the next one seem to be of one call, so that no child has
/// only the first: mremap moves a mapping, and unmaps the place where it was.
fn within_a_call(changes: &[Change], members: &[usize]) -> bool {
    let [first, second, ..] = *members else { return false };
    match (changes[first], changes[second]) {
        (Change::Moved(from, _, len), Change::Unmapped(start, end)) => (start, end) == (from, from + len),
        _ => false,
    }
}

/// Which ranges a child lacks because of advice of its parent, by their addresses before all
/// changes. `lost` is what the parent gave to no child when it was looked at, just after the fork,
/// and perhaps after some of the changes; `child` is what is marked in the child. A range that has
/// moved is missing if the child has it in no place.
pub fn missing(lost: &Ranges, child: &Ranges, changes: &[Change]) -> Ranges {
    let mut missing: Ranges = lost.iter().flat_map(|(start, end)| child.gaps(start, end)).collect();
    for change in changes.iter().rev() {
        if let Change::Moved(from, to, len) = *change {
            let moved: Vec<Range> = missing.within(to, to + len).collect();
            for (start, end) in moved {
                child.gaps(start - to + from, end - to + from).into_iter().for_each(|(s, e)| missing.add(s, e));
            }
        }
    }
    missing
}

/// Whether the child's marks show a change that no event has reported: a range is missing and
/// another is new.
pub fn more_has_changed(changes: &[Change], had: &Ranges, child: &Ranges) -> bool {
    let known: Ranges = changes.iter().flat_map(|change| change.touches()).collect();
    let lacks = |whole: &Ranges, other: &Ranges| {
        let missing = whole.iter().flat_map(|(s, e)| other.gaps(s, e));
        missing.flat_map(|(s, e)| known.gaps(s, e)).next().is_some()
    };
    lacks(had, child) && lacks(child, had)
}

/// Groups of changes with common ranges, each with its ranges.
fn groups(changes: &[Change]) -> Vec<(Ranges, Vec<usize>)> {
    let mut groups: Vec<(Ranges, Vec<usize>)> = Vec::new();
    for (i, change) in changes.iter().enumerate() {
        let mut mine = (change.touches().into_iter().collect::<Ranges>(), vec![i]);
        let (met, apart): (Vec<_>, Vec<_>) =
            groups.drain(..).partition(|(ranges, _)| mine.0.iter().any(|(s, e)| ranges.meets(s, e)));
        groups = apart;
        for (ranges, members) in met {
            ranges.iter().for_each(|(s, e)| mine.0.add(s, e));
            mine.1.extend(members);
        }
        mine.1.sort_unstable();
        groups.push(mine);
    }
    groups
}

/// The address before all changes of what is at `at` after them.
pub fn first_address(changes: &[Change], at: u64) -> u64 {
    changes.iter().rev().fold(at, |at, change| match *change {
        Change::Moved(from, to, len) if (to..to + len).contains(&at) => at - to + from,
        _ => at,
    })
}

/// Where a range is after those of the changes from `since` on that came before the child, as
/// `before` says. `None` if an earlier change of the range came after the child was made.
pub fn carried(changes: &[Change], before: &[bool], since: usize, range: Range) -> Option<Ranges> {
    let mut at: Ranges = [range].into_iter().collect();
    let meets = |change: &Change| change.touches().into_iter().any(|(s, e)| at.meets(s, e));
    if changes[..since].iter().zip(before).any(|(change, &before)| !before && meets(change)) {
        return None;
    }
    for (&change, _) in changes[since..].iter().zip(&before[since..]).filter(|(_, &before)| before) {
        let none = Ranges::default;
        let mut view = View { marked: at, unsure: none(), gone: none(), outside: BTreeMap::new() };
        if let Change::Came(start, end) = change {
            view.clear(start, end);
        } else {
            view.apply(change);
        }
        at = view.marked;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE_BYTES;

    fn ranges(parts: &[Range]) -> Ranges {
        parts.iter().map(|&(s, e)| (s * PAGE_BYTES, e * PAGE_BYTES)).collect()
    }

    fn unmapped(start: u64, end: u64) -> Change {
        Change::Unmapped(start * PAGE_BYTES, end * PAGE_BYTES)
    }

    fn moved(from: u64, to: u64, len: u64) -> Change {
        Change::Moved(from * PAGE_BYTES, to * PAGE_BYTES, len * PAGE_BYTES)
    }

    /// All pages of `had` are evicted; `there` has the pages that the child has.
    fn decided(changes: &[Change], had: &[Range], child: &[Range], there: &[u64]) -> Result<Vec<bool>, u64> {
        let had = ranges(had);
        let outside = |s, e| had.within(s, e).flat_map(|(s, e)| (s..e).step_by(PAGE_BYTES as usize)).collect();
        let touched = |at: u64, _| there.contains(&(at / PAGE_BYTES));
        made_before(changes, &had, &ranges(child), outside, touched).map_err(|at| at / PAGE_BYTES)
    }

    #[test]
    fn what_is_marked_in_the_child_tells() {
        let had = [(10, 20), (30, 40)];
        let both = [unmapped(10, 20), moved(30, 50, 10)];
        assert_eq!(decided(&both, &had, &[(10, 20), (30, 40)], &[]), Ok(vec![false, false]));
        assert_eq!(decided(&both, &had, &[(30, 40)], &[]), Ok(vec![true, false]));
        assert_eq!(decided(&both, &had, &[(10, 20), (50, 60)], &[]), Ok(vec![false, true]), "each for itself");
        assert_eq!(decided(&both, &had, &[(50, 60)], &[]), Ok(vec![true, true]));
        // MREMAP_DONTUNMAP leaves a mapping.
        assert_eq!(decided(&both, &had, &[(30, 40), (50, 60)], &[]), Ok(vec![true, true]));
    }

    #[test]
    fn memory_is_moved_to_a_place_that_another_thread_has_just_left() {
        let had = [(10, 20), (30, 40)];
        let changes = [unmapped(10, 20), moved(30, 10, 10)];
        assert_eq!(decided(&changes, &had, &[(10, 20), (30, 40)], &[]), Ok(vec![false, false]));
        assert_eq!(decided(&changes, &had, &[(30, 40)], &[]), Ok(vec![true, false]));
        assert_eq!(decided(&changes, &had, &[(10, 20)], &[]), Ok(vec![true, true]));
        // A third mapping moves to the place of the second: the marks are the same before and
        // after.
        let had = [(10, 20), (30, 40), (50, 60)];
        let circle = [unmapped(10, 20), moved(30, 10, 10), moved(50, 30, 10), unmapped(50, 60), moved(90, 50, 10)];
        assert_eq!(decided(&circle[..3], &had, &[(10, 20), (30, 40)], &[]), Ok(vec![true; 3]));
        assert_eq!(decided(&circle[..3], &had, &[(10, 20), (50, 60)], &[]), Ok(vec![true, true, false]));
        let circle = [moved(10, 90, 10), moved(30, 10, 10), moved(90, 30, 10)];
        assert_eq!(decided(&circle, &had, &[(10, 20), (30, 40), (50, 60)], &[]), Err(10));
    }

    #[test]
    fn a_page_that_is_there_refutes_that_it_is_outside() {
        let had = [(10, 20), (30, 40)];
        let circle = [moved(10, 90, 10), moved(30, 10, 10), moved(90, 30, 10)];
        let outside =
            |s: u64, e: u64| if (s..e).contains(&(15 * PAGE_BYTES)) { vec![15 * PAGE_BYTES] } else { Vec::new() };
        let child = ranges(&had);
        let there = |page: u64| move |at: u64, _| at == page * PAGE_BYTES;
        assert_eq!(made_before(&circle, &ranges(&had), &child, outside, there(15)), Ok(vec![true; 3]));
        assert_eq!(made_before(&circle, &ranges(&had), &child, outside, there(35)), Ok(vec![false; 3]));
        let both = |at, _| at == 15 * PAGE_BYTES || at == 35 * PAGE_BYTES;
        assert_eq!(made_before(&circle, &ranges(&had), &child, outside, both), Err(10 * PAGE_BYTES));
    }

    #[test]
    fn a_mapping_that_has_grown_does_not_matter() {
        assert_eq!(decided(&[unmapped(10, 30)], &[(10, 20)], &[(10, 30)], &[]), Ok(vec![false]));
        assert_eq!(decided(&[unmapped(10, 30)], &[(10, 20)], &[], &[]), Ok(vec![true]));
        // What the parent kept from the child is not known: neither before nor after fits.
        assert_eq!(decided(&[unmapped(10, 20)], &[(10, 20)], &[(10, 14), (16, 20)], &[]), Err(10));
        let (had, grown, gone) = (ranges(&[(10, 20)]), ranges(&[(10, 30)]), ranges(&[(12, 20)]));
        assert!(!more_has_changed(&[], &had, &grown) && !more_has_changed(&[], &had, &gone));
        let elsewhere = ranges(&[(50, 60)]);
        assert!(more_has_changed(&[], &had, &elsewhere) && !more_has_changed(&[moved(10, 50, 10)], &had, &elsewhere));
    }

    #[test]
    fn mremap_moves_and_unmaps_at_once() {
        // The source has grown by a page, and the child's other mapping lacks one: as after
        // MREMAP_DONTUNMAP, but the source was unmapped.
        let (had, child) = ([(10, 19), (30, 39)], [(10, 20), (30, 39)]);
        let call = [unmapped(30, 40), moved(10, 30, 10), unmapped(10, 20)];
        assert_eq!(decided(&call, &had, &child, &[]), Ok(vec![false; 3]));
        assert_eq!(decided(&call, &had, &[(30, 40)], &[]), Ok(vec![true; 3]));
        assert_eq!(decided(&call[..2], &had, &child, &[]), Ok(vec![true; 2]));
    }

    #[test]
    fn what_a_child_lacks_has_moved_since() {
        let of = |lost: &[Range], child: &[Range], changes: &[Change]| {
            missing(&ranges(lost), &ranges(child), changes).iter().collect::<Vec<_>>()
        };
        let at = |parts: &[Range]| ranges(parts).iter().collect::<Vec<_>>();
        let moves = [moved(10, 30, 10), moved(30, 50, 10)];
        assert_eq!(of(&[(50, 60)], &[], &moves), at(&[(10, 20), (30, 40), (50, 60)]));
        assert_eq!(of(&[(12, 20)], &[(10, 12)], &moves), at(&[(12, 20)]), "looked at before the moves");
        // Advice after the fork.
        assert_eq!(of(&[(50, 60)], &[(10, 20)], &moves), at(&[(30, 40), (50, 60)]));
        assert_eq!(of(&[(50, 60)], &[(50, 60)], &moves), []);
        let (had, child) = (ranges(&[(10, 20)]), Ranges::default());
        let decide = |had: &Ranges| made_before(&moves, had, &child, |_, _| Vec::new(), |_, _| false);
        let mut left = had.clone();
        missing(&ranges(&[(50, 60)]), &child, &moves).iter().for_each(|(s, e)| _ = left.cut(s, e));
        assert_eq!((decide(&had), decide(&left)), (Err(10 * PAGE_BYTES), Ok(vec![false; 2])));
    }

    #[test]
    fn a_parent_can_end_with_an_unread_event() {
        let (had, moves) = (ranges(&[(10, 20), (30, 40)]), [moved(10, 50, 10)]);
        let at = |before, child: &[Range]| lacks(&moves, &[before], &had, &ranges(child)).map(|at| at / PAGE_BYTES);
        assert_eq!(at(true, &[(30, 40), (50, 60)]), None);
        assert_eq!(at(false, &[(10, 20), (30, 40)]), None);
        assert_eq!(at(true, &[(50, 60), (70, 80)]), Some(30), "it moved, and no event was read");
        assert_eq!(lacks(&[], &[], &had, &ranges(&[(10, 20), (30, 35)])), Some(35 * PAGE_BYTES));
    }

    #[test]
    fn a_range_is_carried_along() {
        let changes = [moved(10, 50, 10), unmapped(52, 54), moved(50, 80, 2)];
        let at = |before: [bool; 3], since, range: Range| {
            carried(&changes, &before, since, (range.0 * PAGE_BYTES, range.1 * PAGE_BYTES))
        };
        assert_eq!(at([true; 3], 0, (10, 20)), Some(ranges(&[(54, 60), (80, 82)])));
        assert_eq!(at([true; 3], 1, (50, 51)), Some(ranges(&[(80, 81)])));
        assert_eq!(at([true, false, false], 0, (10, 20)), Some(ranges(&[(50, 60)])));
        assert_eq!(at([false; 3], 1, (50, 51)), None, "the child has the memory where it was");
        assert_eq!(at([false; 3], 1, (30, 31)), Some(ranges(&[(30, 31)])));
    }
}
