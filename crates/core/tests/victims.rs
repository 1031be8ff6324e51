//! The choice of victims, through the core's public interface.

use memfit_core::scheme::{ReclaimKind, Scheme};
use memfit_core::{
    Answer, Core, Entry, Fault, Filled, Page, PageRange, ProcId, Victim, BATCH_PAGES, BATCH_VICTIMS, RUN_PAGES,
};
use std::collections::VecDeque;

mod support;

fn core() -> Core {
    with_staging(4096)
}

fn with_staging(staging_slots: u32) -> Core {
    let mut scheme = Scheme::default();
    scheme.reclaim.kind = ReclaimKind::Fifo;
    support::core(scheme, staging_slots)
}

fn process(core: &mut Core, pages: impl Iterator<Item = u64>) -> ProcId {
    let (id, _) = core.add_process(4096);
    pages.for_each(|page| assert!(core.adopt(id, Page(page), false)));
    id
}

/// Takes all victims that the core names; returns how many pages each process lost.
fn take_all(core: &mut Core, processes: usize) -> Vec<u64> {
    let mut lost = vec![0; processes];
    while let Some((id, victims)) = core.pick_victims(128, 0, &|_| true) {
        for victim in victims {
            let pages = victim.slots.len() as u32;
            lost[id.0 as usize] += u64::from(pages);
            core.evicted(id, victim.first, pages, Answer { moved: u64::MAX >> (64 - pages), ..Answer::default() }, 0);
        }
    }
    lost
}

/// All pages of a batch leave; returns them. `of_files`: they are pages of a file.
fn leave(core: &mut Core, id: ProcId, victims: &[Victim], of_files: bool) -> Vec<u64> {
    let pages = |victim: &Victim| victim.first.0..victim.first.0 + victim.slots.len() as u64;
    for victim in victims {
        let moved = u64::MAX >> (64 - victim.slots.len());
        let file = if of_files { moved } else { 0 };
        core.evicted(id, victim.first, victim.slots.len() as u32, Answer { moved, file, ..Answer::default() }, 0);
    }
    victims.iter().flat_map(pages).collect()
}

/// Takes one batch; returns its pages.
fn batch(core: &mut Core, most: usize) -> Vec<u64> {
    let Some((id, victims)) = core.pick_victims(most, 0, &|_| true) else { return Vec::new() };
    leave(core, id, &victims, false)
}

/// A thread touches a page that is not in memory.
fn touch(core: &mut Core, process: ProcId, page: u64, filled: Filled) {
    let mut loads = Vec::new();
    let alone = PageRange { first: Page(page), pages: 1 };
    assert_eq!(core.fault(process, Page(page), alone, 1, &mut loads), Fault::Load);
    core.loaded(process, Page(page), filled);
}

#[test]
fn the_oldest_leave_first_where_a_batch_is_larger_than_what_is_free_in_staging() {
    let mut core = with_staging(24);
    // Higher pages are older.
    process(&mut core, (0..8).rev().flat_map(|run| run * RUN_PAGES..(run + 1) * RUN_PAGES));
    let run = |run: u64| (run * RUN_PAGES..(run + 1) * RUN_PAGES).collect::<Vec<_>>();
    assert_eq!(batch(&mut core, 128), run(7));
    assert_eq!(batch(&mut core, 128), run(6)[..8], "of the first one a part has to do");
    assert!(batch(&mut core, 128).is_empty(), "all slots are in use");
}

#[test]
fn the_oldest_leave_first_where_there_are_more_ranges_than_a_batch_takes() {
    let mut core = core();
    let pages: Vec<u64> = (0..200).map(|i| i * RUN_PAGES + i % RUN_PAGES).collect();
    process(&mut core, pages.iter().rev().copied());
    for newest in [136, 72, 8] {
        assert_eq!(batch(&mut core, 128), pages[newest..newest + BATCH_VICTIMS]);
    }
    assert_eq!(batch(&mut core, 128), pages[..8]);
}

#[test]
fn a_process_with_nothing_but_pinned_pages_does_not_protect_the_others() {
    let mut core = core();
    // The oldest run of all is pinned.
    let first = process(&mut core, 1000..1002);
    core.pin(first, (1000..1002).map(Page));
    process(&mut core, 2000..2100);
    assert_eq!(take_all(&mut core, 2), [0, 100]);
}

#[test]
fn pinned_pages_of_many_threads_do_not_protect_the_rest_of_their_process() {
    let mut core = core();
    // 600 threads, each with a pinned page in a run of its own, older than everything else.
    let pinned = (0..600).map(|i| 16 * RUN_PAGES + i * RUN_PAGES);
    let process = process(&mut core, pinned.clone().chain(100_000..100_050));
    core.pin(process, pinned.map(Page));
    let mut lost = 0;
    // Passing so many runs takes more than one call.
    for _ in 0..10 {
        lost += take_all(&mut core, 1)[0];
    }
    assert_eq!(lost, 50);
    assert_eq!(core.present_pages(process), 600);
}

#[test]
fn parked_runs_do_not_hide_the_rest_and_are_tried_again() {
    let mut core = core();
    // 600 runs that cannot be moved (a device uses them), older than everything else.
    let process = process(&mut core, (0..600 * RUN_PAGES).chain(100_000..100_050));
    let mut refused = 0;
    while refused < 600 * RUN_PAGES {
        let (_, victims) = core.pick_victims(128, 0, &|_| true).unwrap();
        for victim in victims {
            refused += victim.slots.len() as u64;
            let answer = Answer { park: true, ..Answer::default() };
            core.evicted(process, victim.first, victim.slots.len() as u32, answer, 0);
        }
    }
    assert_eq!(take_all(&mut core, 1), [50], "what is behind them");
    assert_eq!(core.totals(0).parked, 600 * RUN_PAGES);
    let again = |core: &mut Core, tick| core.pick_victims(128, tick, &|_| true).map(|(_, victims)| victims[0].first.0);
    assert_eq!(again(&mut core, 15), None);
    assert_eq!(again(&mut core, 16), Some(0), "the oldest first");
    assert_eq!(core.totals(16).parked, 0);
    core.check();
}

#[test]
fn parts_of_a_range_cover_it_and_have_so_many_runs_each() {
    let mut core = core();
    let pages = [3, 5 * RUN_PAGES, 6 * RUN_PAGES + 15, 900 * RUN_PAGES, 901 * RUN_PAGES];
    let process = process(&mut core, pages.into_iter());
    let mut range = PageRange { first: Page(3), pages: 1 << 40 };
    let (end, mut firsts) = (range.end(), Vec::new());
    while range.pages > 0 {
        let part = core.first_part(process, range, 2);
        assert_eq!(part.first, range.first, "what has no pages is covered, too");
        firsts.push(part.first.0);
        core.removed(process, part);
        range = PageRange { first: Page(part.end()), pages: end - part.end() };
    }
    assert_eq!(firsts, [3, 6 * RUN_PAGES, 901 * RUN_PAGES]);
    assert_eq!(core.begin_proof(process).1, pages.map(Page));
    core.unmapped(process, PageRange { first: Page(0), pages: 6 * RUN_PAGES });
    assert_eq!(core.begin_proof(process).1, pages.map(Page)[2..]);
    assert!(!core.tracks(process, PageRange { first: Page(0), pages: 6 * RUN_PAGES + 15 }));
    assert!(core.tracks(process, PageRange { first: Page(6 * RUN_PAGES + 15), pages: 1 }));
}

/// Of few pages on probation none leaves early. But they must not stay for ever while new memory
/// comes and goes.
#[test]
fn what_is_on_probation_leaves_when_it_is_the_oldest() {
    let mut scheme = Scheme::default();
    scheme.reclaim.kind = ReclaimKind::Bimodal;
    let mut core = support::core(scheme, 4096);
    let process = process(&mut core, 0..100 * RUN_PAGES);
    let (_, victims) = core.pick_victims(RUN_PAGES as usize, 0, &|_| true).unwrap();
    assert_eq!((victims[0].first, victims[0].slots.len()), (Page(0), RUN_PAGES as usize));
    // It does not move, as a page that comes back from the pool: it goes on probation.
    core.evicted(process, Page(0), RUN_PAGES as u32, Answer::default(), 0);
    for run in 100..300 {
        (run * RUN_PAGES..(run + 1) * RUN_PAGES).for_each(|page| assert!(core.adopt(process, Page(page), false)));
        assert_eq!(batch(&mut core, RUN_PAGES as usize).len(), RUN_PAGES as usize);
    }
    assert!(matches!(core.entry(process, Page(0)), Entry::Out(_)), "200 runs left, 100 were older or as old");
}

/// Runs that programs use all the time.
const HOT_RUNS: u64 = 20;

/// How programs use their memory: `programs` is 1 or 2. The first of two has only hot runs. There
/// are 200 runs more; one after the other is used when it has been outside for 60 others.
struct Use {
    programs: usize,
    batch: usize,
    of_files: bool,
}

const ONE: Use = Use { programs: 1, batch: RUN_PAGES as usize, of_files: false };

impl Use {
    fn process(&self, core: &mut Core, pages: std::ops::Range<u64>) -> ProcId {
        if !self.of_files {
            return process(core, pages);
        }
        let (id, _) = core.add_process(4096);
        pages.for_each(|page| touch(core, id, page, Filled::Read));
        id
    }

    /// Takes a batch; the process that it is of, and its victims.
    fn pick(&self, core: &mut Core, tick: u64, but: Option<ProcId>) -> Option<(ProcId, Vec<Victim>)> {
        core.pick_victims(self.batch, tick, &|id| Some(id) != but)
    }

    /// As the pager does, chooses a batch of each process while those of the others are under way.
    /// Returns how many hot pages left of 64,000 pages, and how often hot pages stayed.
    fn hot_pages_that_leave(&self, scheme: Scheme) -> (usize, u64) {
        let mut core = support::core(scheme, 4096);
        let sizes = if self.programs == 1 { vec![200 + HOT_RUNS] } else { vec![HOT_RUNS, 200] };
        let ids: Vec<ProcId> = sizes.into_iter().map(|runs| self.process(&mut core, 0..runs * RUN_PAGES)).collect();
        let (mut left, mut all, mut outside) = (0, 0, VecDeque::new());
        for tick in 0.. {
            let first = self.pick(&mut core, tick, None).expect("victims");
            let second = self.pick(&mut core, tick, Some(first.0));
            for (id, victims) in [Some(first), second].into_iter().flatten() {
                let pages = leave(&mut core, id, &victims, self.of_files);
                all += pages.len();
                let is_hot = |&page: &u64| id == ids[0] && page < HOT_RUNS * RUN_PAGES;
                let (hot, others): (Vec<u64>, Vec<u64>) = pages.into_iter().partition(is_hot);
                left += hot.len();
                hot.into_iter().for_each(|page| touch(&mut core, id, page, Filled::Done));
                outside.extend(others.into_iter().map(|page| (id, page)));
            }
            let due = outside.len().saturating_sub(60 * RUN_PAGES as usize);
            outside.drain(..due).for_each(|(id, page)| touch(&mut core, id, page, Filled::Done));
            if all >= 64_000 {
                break;
            }
        }
        core.check();
        (left, core.counters().spared)
    }
}

fn with_chances(hot_chances: u32) -> Scheme {
    let mut scheme = Scheme::default();
    (scheme.reclaim.hot_chances, scheme.reclaim.file_age) = (hot_chances, 4);
    scheme
}

#[test]
fn what_is_always_in_use_is_probed_more_rarely() {
    for how in [
        ONE,
        Use { batch: 8 * RUN_PAGES as usize, ..ONE },
        Use { programs: 2, ..ONE },
        Use { programs: 2, batch: 8 * RUN_PAGES as usize, ..ONE },
        Use { of_files: true, ..ONE },
    ] {
        let Use { programs, batch, of_files } = how;
        let context = format!("{programs} programs, batches of {batch} pages, files: {of_files}");
        let (without, none) = how.hot_pages_that_leave(with_chances(0));
        let (with, stayed) = how.hot_pages_that_leave(with_chances(7));
        assert!(without > 4000 && none == 0, "{context}: {without} left, {none} stayed");
        assert!(with * 3 < without, "{context}: {with} pages left, {without} if none is hot");
        assert!(stayed > 1000, "{context}: {stayed} stayed");
    }
}

/// Whatever the pages have shown, full batches are found: in both processes, and beside runs that
/// are pinned.
#[test]
fn there_are_victims_where_all_pages_are_hot() {
    let mut core = support::core(Scheme::default(), 4096);
    let processes = [0, 1].map(|_| process(&mut core, 0..300 * RUN_PAGES));
    processes.into_iter().for_each(|id| core.pin(id, (0..40 * RUN_PAGES).map(Page)));
    let mut lost = [0; 2];
    for tick in 0..3000 {
        let (id, victims) = core.pick_victims(128, tick, &|_| true).expect("pages that are not pinned");
        let pages = leave(&mut core, id, &victims, false);
        lost[id.0 as usize] += pages.len();
        pages.into_iter().for_each(|page| touch(&mut core, id, page, Filled::Done));
    }
    core.check();
    assert!(core.counters().spared > 3000, "{}", core.counters().spared);
    assert!(lost.iter().all(|&pages| pages > 100_000), "{lost:?}");
}

/// Of a process whose pages are all hot, none leaves while another has a batch under way that may
/// have older pages: for a while.
#[test]
fn hot_pages_wait_for_other_processes_but_not_for_ever() {
    let mut core = support::core(Scheme::default(), 4096);
    let hot = process(&mut core, 0..20 * RUN_PAGES);
    for tick in 0..100 {
        let (_, victims) = core.pick_victims(128, tick, &|_| true).unwrap();
        let pages = leave(&mut core, hot, &victims, false);
        pages.into_iter().for_each(|page| touch(&mut core, hot, page, Filled::Done));
    }
    let other = process(&mut core, 0..20 * RUN_PAGES);
    let alone = |id: ProcId| id != other;
    let found: Vec<bool> = (100..140).map(|tick| core.pick_victims(16, tick, &alone).is_some()).collect();
    assert_eq!(found, [[false; 20], [true; 20]].concat());
    let (id, _) = core.pick_victims(16, 140, &|_| true).unwrap();
    assert_eq!(id, other);
    assert!(core.pick_victims(16, 141, &alone).is_none(), "it waits again");
}

fn with_bits() -> Core {
    let mut scheme = Scheme::default();
    scheme.reclaim.accessed_bits = 1;
    support::core(scheme, 4096)
}

/// A look is due when a quarter has left. A page stays while looks show it as used, and leaves when
/// they do not; a look at a range says nothing of others.
#[test]
fn pages_with_accessed_bits_stay() {
    let mut core = with_bits();
    let id = process(&mut core, 0..40 * RUN_PAGES);
    let used: Vec<Page> = (0..40 * RUN_PAGES).filter(|page| page % 5 == 0).map(Page).collect();
    let all = PageRange { first: Page(0), pages: 40 * RUN_PAGES };
    (0..3).for_each(|_| core.observed(id, all, &used));
    let mut left = Vec::new();
    while left.len() < 512 {
        left.extend(batch(&mut core, 32));
    }
    assert!(left.iter().all(|page| page % 5 != 0), "{left:?}");
    let quarter = (core.present_total() / 4).max(BATCH_PAGES as u64);
    let due = [quarter, quarter - 1].map(|left| core.is_look_due(core.counters().evicted - left));
    assert_eq!(due, [true, false]);
    // Of the first half no page was used any more.
    let half = PageRange { first: Page(0), pages: 20 * RUN_PAGES };
    (0..4).for_each(|_| core.observed(id, half, &[]));
    left.clear();
    while left.len() < 64 {
        left.extend(batch(&mut core, 32));
    }
    assert!(left.iter().all(|&page| page < 20 * RUN_PAGES), "{left:?}");
    // What is left was used, and leaves only because nothing else is left.
    assert!(!batch(&mut core, 128).is_empty());
    core.check();
}

/// The pages of a process that does nothing any more leave although all were hot: looks at it are
/// due while others give pages.
#[test]
fn what_was_hot_in_an_idle_process_leaves() {
    let mut core = with_bits();
    let [idle, busy] = [0, 1].map(|_| process(&mut core, 0..40 * RUN_PAGES));
    let all = PageRange { first: Page(0), pages: 40 * RUN_PAGES };
    let everything: Vec<Page> = (0..40 * RUN_PAGES).map(Page).collect();
    (0..3).for_each(|_| core.observed(idle, all, &everything));
    let (mut then, mut left) = (core.counters().evicted, 0);
    for _ in 0..100 {
        let (id, victims) = core.pick_victims(64, 0, &|_| true).unwrap();
        let pages = leave(&mut core, id, &victims, false);
        left += if id == idle { pages.len() } else { 0 };
        pages.into_iter().filter(|_| id == busy).for_each(|page| touch(&mut core, busy, page, Filled::Done));
        if core.is_look_due(then) {
            then = core.counters().evicted;
            core.observed(idle, all, &[]);
            core.observed(busy, all, &[]);
        }
    }
    assert_eq!(left, 640);
}

#[test]
fn a_look_finds_the_next_known_page() {
    let mut core = with_bits();
    let id = process(&mut core, [40, 70].into_iter());
    let next = |page| core.next_known(id, Page(page)).map(|page| page.0);
    assert_eq!([0, 33, 47, 48, 80].map(next), [Some(32), Some(33), Some(47), Some(64), None]);
}

/// A fault on a page that left makes it hot only where no bits are looked at.
#[test]
fn accessed_bits_replace_what_faults_show() {
    let mut core = with_bits();
    let id = process(&mut core, 0..40 * RUN_PAGES);
    for _ in 0..200 {
        let pages = batch(&mut core, 128);
        pages.into_iter().for_each(|page| touch(&mut core, id, page, Filled::Done));
    }
    assert_eq!(core.counters().spared, 0);
}

#[test]
fn of_a_range_its_own_pages_are_claimed_from_the_upper_end() {
    let mut core = core();
    let id = process(&mut core, 0..4 * RUN_PAGES);
    core.pin(id, [Page(20)].into_iter());
    let mut claim = |first, pages, most| {
        let victims = core.claim_range(id, PageRange { first: Page(first), pages }, most, 0);
        let pages = |victim: Victim| victim.first.0..victim.first.0 + victim.slots.len() as u64;
        victims.into_iter().flat_map(pages).collect::<Vec<_>>()
    };
    assert_eq!(claim(5, 1, 1), [5]);
    assert_eq!(claim(4, 4, 9), [4, 6, 7]);
    assert_eq!(claim(14, 10, 6), [17, 18, 19, 21, 22, 23]);
    assert_eq!(claim(40, 9, 0), []);
}

/// Which pages of a run stay when it is the oldest again: those on which a thread faulted.
#[test]
fn only_what_a_thread_asks_for_is_hot() {
    let mut core = support::core(Scheme::default(), 4096);
    let id = process(&mut core, 0..100 * RUN_PAGES);
    let (_, victims) = core.pick_victims(RUN_PAGES as usize, 0, &|_| true).unwrap();
    let first = victims[0].first.0;
    assert_eq!((victims.len(), victims[0].slots.len(), first % RUN_PAGES), (1, RUN_PAGES as usize, 0));
    let moved = !(1 << 7) & 0xffff;
    core.evicted(id, Page(first), RUN_PAGES as u32, Answer { moved, ..Answer::default() }, 0);
    touch(&mut core, id, first + 3, Filled::Done);
    touch(&mut core, id, first + 4, Filled::Done);
    let mut loads = Vec::new();
    let two = PageRange { first: Page(first + 5), pages: 2 };
    assert_eq!(core.fault(id, two.first, two, 2, &mut loads), Fault::Load);
    loads.iter().for_each(|load| core.loaded(id, load.page, Filled::Done));
    touch(&mut core, id, first + 8, Filled::Retry);
    touch(&mut core, id, first + 8, Filled::Done);
    touch(&mut core, id, first + 9, Filled::Done);
    core.removed(id, PageRange { first: Page(first + 9), pages: 1 });
    touch(&mut core, id, first + 9, Filled::Done);
    let mut stayed = Vec::new();
    for tick in 1..200 {
        let pages = batch(&mut core, RUN_PAGES as usize);
        if pages[0] / RUN_PAGES == first / RUN_PAGES {
            stayed = (0..RUN_PAGES).filter(|&page| core.entry(id, Page(first + page)) == Entry::Resident).collect();
            break;
        }
        assert!(tick < 150, "it never was the oldest");
    }
    assert_eq!((stayed, loads.len()), (vec![3, 4, 5, 8], 2), "6 came along, 7 did not leave, 9 has other contents");
}

#[test]
fn a_range_that_moves_in_parts_moves_as_at_once() {
    let moved = |parts: &[u64]| {
        let mut core = core();
        let id = process(&mut core, 5..75);
        batch(&mut core, 20);
        core.removed(id, PageRange { first: Page(40), pages: 8 });
        // At the target are pages of a mapping that is gone.
        (1000..1010).for_each(|page| assert!(core.adopt(id, Page(page), false)));
        let (from, to) = (3, 1001);
        parts.iter().fold(0, |at, &pages| {
            core.remapped(id, PageRange { first: Page(from + at), pages }, Page(to + at));
            at + pages
        });
        core.check();
        core.pages(id, PageRange::ALL)
    };
    let at_once = moved(&[70]);
    assert_eq!(at_once.len(), 1 + 2 + 68, "before the target, behind the source, moved");
    assert_eq!(moved(&[13, 16, 16, 25]), at_once);
    assert_eq!(moved(&[1; 70]), at_once);
}
