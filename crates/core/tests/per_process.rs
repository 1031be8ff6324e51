//! Per-process reclaim, through the core's public interface.

use memfit_core::budget::{Level, Sizes};
use memfit_core::driver::{Seen, Step};
use memfit_core::scheme::Scheme;
use memfit_core::{
    Answer, Coded, Compress, Core, Entry, Fault, Filled, OomVictim, Origin, Page, PageRange, Placed, ProcId, Tunables,
    Victim, RUN_PAGES,
};
use std::sync::Arc;

/// Nothing is short.
fn enough() -> Seen {
    Seen { level: Level::Enough, evicts: true, tier_writable: true, tier_has_space: true, ..Seen::default() }
}

/// A core and what carries its steps out. Nothing is short of memory.
struct Run {
    core: Core,
    tick: u64,
    /// Pages that do not move, and whether the stub says that they will not for a while.
    stuck: Vec<u64>,
    parks: bool,
    /// Pages in the order in which they left, with their process.
    left: Vec<(ProcId, u64)>,
    batches: usize,
    origins: Vec<Origin>,
}

impl Run {
    fn new() -> Run {
        Run::with_staging(64)
    }

    fn with_staging(staging_slots: u32) -> Run {
        Run::with_scheme(staging_slots, Scheme::default())
    }

    fn with_scheme(staging_slots: u32, scheme: Scheme) -> Run {
        let (sizes, scheme) = (Sizes::new(16 << 20, &scheme), Arc::new(scheme));
        let tunables = Tunables {
            sizes,
            scheme,
            staging_slots,
            pool_frames: 4096,
            area_frames: 8192,
            swap: true,
            blocks: Vec::new(),
        };
        Run {
            core: Core::new(tunables),
            tick: 100,
            stuck: Vec::new(),
            parks: false,
            left: Vec::new(),
            batches: 0,
            origins: Vec::new(),
        }
    }

    fn process(&mut self, pages: impl Iterator<Item = u64>) -> ProcId {
        let (id, _) = self.core.add_process(self.core.tunables().staging_slots);
        pages.for_each(|page| assert!(self.core.adopt(id, Page(page), false)));
        id
    }

    /// Carries steps out until reclaim sleeps; at most so many.
    fn until_sleep(&mut self, most: usize) -> bool {
        let mut gained = 0;
        for _ in 0..most {
            let step = self.core.next_step(self.tick, Seen { gained, ..enough() });
            gained = match step {
                Step::Sleep => return true,
                Step::Evict => self.evict(),
                Step::Compress { most, origin } => {
                    self.origins.push(origin);
                    self.compress(most as usize)
                }
                Step::WriteBack { pressed } => {
                    assert!(!pressed, "the pool need not become smaller");
                    0
                }
                Step::RoundEnds { .. } => {
                    self.tick += 1;
                    0
                }
                _ => 0,
            };
            _ = self.core.take_effects();
        }
        false
    }

    fn evict(&mut self) -> u32 {
        let Some((id, victims)) = self.core.pick_victims(128, self.tick, &|_| true) else { return 0 };
        self.batches += 1;
        victims.iter().map(|victim| self.answer(id, victim)).sum()
    }

    fn answer(&mut self, id: ProcId, victim: &Victim) -> u32 {
        let mut answer = Answer::default();
        for (i, page) in (victim.first.0..).take(victim.slots.len()).enumerate() {
            if !self.stuck.contains(&page) {
                answer.moved |= 1 << i;
                self.left.push((id, page));
            }
        }
        answer.park = self.parks && answer.moved.count_ones() < victim.slots.len() as u32;
        self.core.evicted(id, victim.first, victim.slots.len() as u32, answer, self.tick);
        answer.moved.count_ones()
    }

    fn compress(&mut self, most: usize) -> u32 {
        let mut picked: Vec<Compress> = Vec::new();
        self.core.pick_compress(most, &mut picked);
        for item in &picked {
            let placed = self.core.compressed(item.object, Coded::Bytes { codec: 1, len: 1000 });
            assert!(matches!(placed, Placed::Pool { .. }), "{placed:?}");
            _ = self.core.take_effects();
        }
        picked.len() as u32
    }

    /// The page comes back by a fault.
    fn touch(&mut self, id: ProcId, page: u64) {
        let (limit, mut loads) = (PageRange { first: Page(page), pages: 1 }, Vec::new());
        assert!(matches!(self.core.fault(id, Page(page), limit, 1, &mut loads), Fault::Load));
        self.core.loaded(id, Page(page), Filled::Done);
    }

    fn together(&self, id: ProcId) -> Vec<u64> {
        let set = self.core.working_set(id, Page(0));
        assert_eq!(set.next, None);
        set.ranges.iter().flat_map(|range| range.first.0..range.end()).collect()
    }

    /// The process leaves as a whole, and all of it is out at the end.
    fn leave(&mut self, id: ProcId) {
        self.core.set_background(id, true);
        self.core.reclaim_process(id);
        assert!(self.until_sleep(2000));
    }

    /// It is in the foreground again. Brings back its working set; returns the numbers of its runs,
    /// and how many pages are on trial.
    fn come_back(&mut self, id: ProcId) -> (Vec<u64>, u64) {
        self.core.set_background(id, false);
        self.core.stop_process_reclaim(id);
        let (pages, on_trial) = (self.together(id), self.core.working_set(id, Page(0)).on_trial);
        pages.iter().for_each(|&page| self.touch(id, page));
        let mut runs: Vec<u64> = pages.iter().map(|page| page / RUN_PAGES).collect();
        runs.dedup();
        (runs, on_trial)
    }
}

#[test]
fn a_process_leaves_as_a_whole_in_address_order_and_others_stay() {
    let mut run = Run::new();
    let older = run.process(0..40);
    let leaves = run.process((0..200).rev());
    run.core.reclaim_process(leaves);
    assert!(run.until_sleep(1000));
    assert_eq!(run.left, (0..200).map(|page| (leaves, page)).collect::<Vec<_>>());
    let done = run.core.process_reclaim(leaves).unwrap();
    assert_eq!((done.pages, run.core.totals_staged()), (200, 0), "all are compressed");
    assert!(done.begun == Some(100) && done.ended.is_some(), "{done:?}");
    assert!(run.origins.iter().all(|&origin| origin == Origin::Process), "{:?}", run.origins);
    assert_eq!(run.core.process_reclaim(older), None);
    // Reclaim is over: what comes back stays.
    run.touch(leaves, 7);
    assert!(run.until_sleep(50));
    assert_eq!(run.left.len(), 200);
}

#[test]
fn a_batch_is_full_but_for_the_last_one() {
    let mut run = Run::with_staging(1024);
    let leaves = run.process(0..40 * RUN_PAGES);
    run.core.reclaim_process(leaves);
    assert!(run.until_sleep(2000));
    assert_eq!((run.left.len(), run.batches), (640, 5));
}

#[test]
fn pages_that_do_not_move_are_tried_three_times() {
    let mut run = Run::new();
    let leaves = run.process(0..64);
    run.stuck = vec![20, 21];
    run.core.reclaim_process(leaves);
    assert!(run.until_sleep(1000), "its end does not wait for them");
    assert_eq!((run.left.len(), run.batches), (62, 3));
    // One that moves later does so in a later pass.
    run.core.reclaim_process(leaves);
    run.stuck = vec![20];
    assert!(run.until_sleep(1000));
    assert_eq!(run.left[62..], [(leaves, 21)]);
    assert_eq!(run.core.process_reclaim(leaves).map(|done| done.pages), Some(1));
}

#[test]
fn what_left_together_and_is_still_outside_is_known() {
    let mut run = Run::new();
    let leaves = run.process((0..40).chain(100..110));
    run.core.reclaim_process(leaves);
    assert!(run.until_sleep(1000));
    run.touch(leaves, 3);
    run.core.unmapped(leaves, PageRange { first: Page(100), pages: 4 });
    assert_eq!(run.together(leaves), (0..3).chain(4..40).chain(104..110).collect::<Vec<_>>());
    // It leaves alone: the others may be old by now.
    run.core.stop_process_reclaim(leaves);
    let victims = run.core.claim_range(leaves, PageRange { first: Page(3), pages: 1 }, 1, run.tick);
    run.answer(leaves, &victims[0]);
    assert!(!run.together(leaves).contains(&3));
}

/// mremap moves it, and leaves no empty runs where other pages were.
#[test]
fn what_left_together_is_known_where_it_moved() {
    let mut run = Run::new();
    let leaves = run.process((0..8).chain(40 * RUN_PAGES..43 * RUN_PAGES));
    run.core.reclaim_process(leaves);
    assert!(run.until_sleep(1000));
    let from = PageRange { first: Page(0), pages: 4 * RUN_PAGES };
    run.core.remapped(leaves, from, Page(40 * RUN_PAGES + 3));
    run.core.check();
    let start = 40 * RUN_PAGES;
    // Of the pages that were there, those in front and behind stay.
    let moved = (start..start + 3).chain(start + 3..start + 11);
    assert_eq!(run.together(leaves), moved.collect::<Vec<_>>());
    let all = PageRange { first: Page(0), pages: 100 * RUN_PAGES };
    assert_eq!(run.core.first_part(leaves, all, 1), all, "one run has pages");
}

/// The number of an object is used again: another page that is staged under it is not waited for.
#[test]
fn the_reclaim_of_a_process_waits_for_no_later_page() {
    let mut run = Run::new();
    let (leaves, other) = (run.process(0..4), run.process(0..40));
    run.core.reclaim_process(leaves);
    let mut page = 0;
    let mut reuse = |run: &mut Run| {
        // The page staged last comes back, and another one is staged in its place.
        match page {
            0 => run.touch(leaves, 3),
            _ => run.touch(other, page),
        }
        page += 1;
        let range = PageRange { first: Page(page), pages: 1 };
        run.core.claim_range(other, range, 1, run.tick).iter().for_each(|victim| _ = run.answer(other, victim));
    };
    for _ in 0..200 {
        match run.core.next_step(run.tick, enough()) {
            Step::Evict => _ = run.evict(),
            Step::Compress { .. } => reuse(&mut run),
            Step::RoundEnds { .. } => run.tick += 1,
            _ => {}
        }
        _ = run.core.take_effects();
        if run.core.process_reclaim(leaves).is_some_and(|reclaim| reclaim.ended.is_some()) {
            return;
        }
    }
    panic!("it waits for pages of another process");
}

/// Runs 0 to 9 come back together; only 0 to 2 are used.
#[test]
fn what_is_on_trial_and_not_touched_leaves_the_working_set() {
    let mut run = Run::with_staging(256);
    let id = run.process(0..10 * RUN_PAGES);
    run.leave(id);
    assert_eq!(run.come_back(id), ((0..10).collect(), 0), "nothing is known yet");
    let mut rounds = Vec::new();
    for _ in 0..5 {
        run.leave(id);
        rounds.push(run.come_back(id));
        for page in 0..3 * RUN_PAGES {
            if run.core.entry(id, Page(page)) != Entry::Resident {
                run.touch(id, page);
            }
        }
    }
    let run_pages = |runs: u64| runs * RUN_PAGES;
    assert_eq!(rounds[0], (vec![0, 1, 3, 4, 5, 7, 8, 9], run_pages(2)), "2 and 6 are on trial");
    assert_eq!(rounds[1], (vec![0, 1, 2, 4, 5, 8, 9], run_pages(2)), "3 and 7 are on trial, 6 is forgotten");
    assert_eq!(rounds[2], (vec![1, 2, 5, 9], run_pages(3)), "0, 4 and 8 are on trial");
    assert_eq!(rounds[3], (vec![0, 2], run_pages(3)), "1, 5 and 9 are on trial");
    assert_eq!(rounds[4], (vec![0, 1], run_pages(1)), "2 is on trial again");
}

/// A page that found no room when the process came back, or a process that leaves again in the
/// background, says nothing about use.
#[test]
fn only_what_was_on_trial_is_judged_and_once() {
    let mut run = Run::with_staging(256);
    let id = run.process(0..8 * RUN_PAGES);
    run.leave(id);
    run.come_back(id);
    run.leave(id);
    // It comes back, and no page finds room; of run 2, which is on trial, one page is touched.
    run.core.set_background(id, false);
    run.core.stop_process_reclaim(id);
    run.touch(id, 2 * RUN_PAGES + 5);
    run.leave(id);
    let runs =
        |pages: Vec<u64>| pages.into_iter().map(|page| page / RUN_PAGES).collect::<std::collections::BTreeSet<_>>();
    // In the background it touches a page, and leaves again.
    run.touch(id, 0);
    run.core.reclaim_process(id);
    assert!(run.until_sleep(2000));
    run.core.set_background(id, false);
    let set = run.together(id);
    assert_eq!(runs(set.clone()), [0, 1, 2, 4, 5].into(), "6 is forgotten, 3 and 7 are on trial");
    assert_eq!(set.iter().filter(|&page| page / RUN_PAGES == 2).count(), 1, "the one that was touched");
    assert_eq!(set.iter().filter(|&page| page / RUN_PAGES == 0).count(), 16);
}

/// It is moved to the background, memory is not short, and it is moved back.
#[test]
fn a_return_without_having_left_judges_nothing() {
    let mut run = Run::with_staging(256);
    let id = run.process(0..8 * RUN_PAGES);
    run.leave(id);
    run.come_back(id);
    run.leave(id);
    assert_eq!(run.come_back(id).0, [0, 1, 3, 4, 5, 7]);
    run.core.set_background(id, true);
    assert_eq!(run.come_back(id), (vec![], 2 * RUN_PAGES), "2 and 6 are on trial still");
}

#[test]
fn a_process_that_is_not_free_does_not_keep_reclaim_awake_for_ever() {
    let mut run = Run::new();
    let (leaves, stays) = (run.process(0..64), run.process(0..64));
    run.core.reclaim_process(leaves);
    let steps = |run: &mut Run| {
        let mut steps = Vec::new();
        while !matches!(steps.last(), Some(Step::Pause { .. } | Step::Sleep)) {
            let step = run.core.next_step(run.tick, enough());
            if step == Step::Evict {
                assert_eq!(run.core.pick_victims(128, run.tick, &|id| id == stays), None, "the others need not leave");
            }
            steps.push(step);
        }
        steps
    };
    assert!(steps(&mut run).contains(&Step::Evict));
    run.tick += 10_000;
    assert!(steps(&mut run).contains(&Step::Evict));
    run.tick += 1;
    assert_eq!(steps(&mut run).last(), Some(&Step::Sleep));
    let done = run.core.process_reclaim(leaves).unwrap();
    assert!(done.ended.is_some() && done.gave_up, "{done:?}");
}

#[test]
fn a_process_that_ends_is_not_reclaimed() {
    let mut run = Run::new();
    let leaves = run.process(0..64);
    run.core.reclaim_process(leaves);
    run.core.remove_process(leaves);
    assert!(run.until_sleep(10));
    let other = run.process(0..10);
    assert!(run.until_sleep(10) && run.left.is_empty());
    assert_eq!(run.core.process_reclaim(other), None);
}

/// The first pages that leave in rounds at this level, until nothing more does.
fn short(run: &mut Run, level: Level) {
    let mut gained = 0;
    for _ in 0..1000 {
        gained = match run.core.next_step(run.tick, Seen { level, gained, ..enough() }) {
            Step::Evict => run.evict(),
            Step::Compress { most, .. } => run.compress(most as usize),
            _ => 0,
        };
        _ = run.core.take_effects();
    }
}

#[test]
fn when_memory_is_short_the_largest_background_process_leaves_first() {
    let mut run = Run::with_staging(1024);
    let foreground = run.process(0..2000);
    let (small, large) = (run.process(0..300), run.process((0..500).rev()));
    run.core.set_background(small, true);
    run.core.set_background(large, true);
    assert!(run.until_sleep(50) && run.left.is_empty(), "memory is not short");
    short(&mut run, Level::BelowLow);
    let mut order: Vec<ProcId> = run.left.iter().map(|&(proc, _)| proc).collect();
    order.dedup();
    assert_eq!(order, [large, small, foreground]);
    assert_eq!(run.left[..500], (0..500).map(|page| (large, page)).collect::<Vec<_>>());
}

#[test]
fn a_background_process_is_like_the_others_without_per_process_reclaim() {
    let mut scheme = Scheme::default();
    scheme.reclaim.per_process = 0;
    let mut run = Run::with_scheme(1024, scheme);
    let foreground = run.process(0..2000);
    let background = run.process(0..500);
    run.core.set_background(background, true);
    short(&mut run, Level::BelowLow);
    assert_eq!(run.left.first().map(|&(proc, _)| proc), Some(foreground), "its pages are the oldest");
    assert_eq!(run.core.process_reclaim(background), None);
    // The user can still say so.
    run.core.reclaim_process(background);
    assert!(run.until_sleep(2000));
    assert_eq!(run.core.process_reclaim(background).map(|done| done.ended.is_some()), Some(true));
}

#[test]
fn a_background_process_with_more_outside_than_in_memory_is_like_the_others() {
    let mut run = Run::with_staging(1024);
    let background = run.process(0..600);
    run.core.reclaim_process(background);
    assert!(run.until_sleep(2000));
    let others = run.process(0..2000);
    (0..290).for_each(|page| run.touch(background, page));
    run.core.set_background(background, true);
    run.left.clear();
    short(&mut run, Level::BelowLow);
    assert!(run.left.iter().take(200).any(|&(proc, _)| proc == others), "it does not leave first");
    assert_eq!(run.core.process_reclaim(background).map(|done| done.pages), Some(600));
}

/// It begins to leave again only if something left the last time.
#[test]
fn a_background_process_of_which_nothing_leaves_spares_nobody() {
    let mut run = Run::with_staging(1024);
    let (background, others) = (run.process(0..300), run.process(1000..3000));
    (run.stuck, run.parks) = ((0..300).collect(), true);
    run.core.set_background(background, true);
    // It gives up after 200 ms without gain.
    for _ in 0..15 {
        short(&mut run, Level::BelowLow);
        run.tick += 10;
    }
    assert!(run.left.iter().any(|&(proc, _)| proc == others), "{:?}", run.core.process_reclaim(background));
}

/// It was told to leave when nothing of it could.
#[test]
fn a_background_process_that_has_grown_leaves_again() {
    for (grown, first) in [(255, 1), (256, 0)] {
        let mut run = Run::with_staging(1024);
        let both = [run.process(0..300), run.process(1000..3000)];
        let background = both[0];
        run.stuck = (0..300).collect();
        run.core.set_background(background, true);
        run.core.reclaim_process(background);
        assert!(run.until_sleep(2000));
        let done = run.core.process_reclaim(background).unwrap();
        assert!(done.ended.is_some() && done.pages == 0 && !done.gave_up, "{done:?}");
        (300..300 + grown).for_each(|page| assert!(run.core.adopt(background, Page(page), false)));
        short(&mut run, Level::BelowLow);
        assert_eq!(run.left.first().map(|&(proc, _)| proc), Some(both[first]), "{grown} pages");
    }
}

/// Load control lets it wait: then it touches none of its pages.
#[test]
fn a_held_process_leaves_first_and_is_no_victim() {
    let mut run = Run::with_staging(1024);
    let held = run.process(0..600);
    run.core.reclaim_process(held);
    assert!(run.until_sleep(2000));
    run.process(0..2000);
    (0..270).for_each(|page| run.touch(held, page));
    run.core.set_held(held, true);
    assert_eq!(run.core.pick_oom_victim(1), None);
    run.left.clear();
    short(&mut run, Level::BelowLow);
    assert_eq!(run.left[..270], (0..270).map(|page| (held, page)).collect::<Vec<_>>());
    // It leaves once: what it has after that cannot leave, or is used.
    (0..270).for_each(|page| run.touch(held, page));
    run.left.clear();
    short(&mut run, Level::BelowLow);
    assert_ne!(run.left.first().map(|&(proc, _)| proc), Some(held));
    run.core.set_held(held, false);
    assert_eq!(run.core.process_reclaim(held), None);
    // Pages that left by themselves are not of the set.
    assert_eq!(run.together(held), (270..600).collect::<Vec<_>>());
    // One in the background stays there.
    run.core.set_held(held, true);
    run.core.set_background(held, true);
    run.core.set_held(held, false);
    assert!(run.core.pick_oom_victim(1).is_some());
}

/// What it has outside counts as well: that is what fills the pool.
#[test]
fn the_background_process_with_most_pages_makes_room() {
    let mut run = Run::with_staging(1024);
    run.process(0..900);
    let (small, large) = (run.process(0..300), run.process(0..500));
    assert_eq!(run.core.pick_oom_victim(1), None, "nobody is in the background");
    run.core.set_background(small, true);
    run.core.set_background(large, true);
    run.core.reclaim_process(large);
    assert!(run.until_sleep(2000));
    let victim = |proc, present_pages, out_pages| Some(OomVictim { proc, present_pages, out_pages });
    assert_eq!(run.core.pick_oom_victim(500), victim(large, 0, 500));
    assert_eq!(run.core.pick_oom_victim(501), None, "it is not worth it");
    run.core.protect(large, true);
    assert_eq!(run.core.pick_oom_victim(1), victim(small, 300, 0));
    run.core.set_background(small, false);
    assert_eq!(run.core.pick_oom_victim(1), None);
    run.core.protect(large, false);
    assert_eq!(run.core.pick_oom_victim(1), victim(large, 0, 500));
}

/// A device uses the page for a moment.
#[test]
fn a_parked_run_is_tried_again_after_its_pause() {
    let mut run = Run::new();
    let leaves = run.process(0..64);
    (run.stuck, run.parks) = (vec![20], true);
    run.core.reclaim_process(leaves);
    assert!(!run.until_sleep(40));
    run.stuck.clear();
    assert!(run.until_sleep(2000));
    assert_eq!(run.core.process_reclaim(leaves).map(|done| (done.pages, done.gave_up)), Some((64, false)));
}

/// The first has so much that the second waits for longer than a process that does not move.
#[test]
fn a_process_that_waits_for_others_does_not_give_up() {
    let mut run = Run::new();
    let (first, second) = (run.process(0..640), run.process(0..64));
    run.core.reclaim_process(first);
    run.core.reclaim_process(second);
    for _ in 0..40 {
        run.tick += 2000;
        assert!(
            run.until_sleep(20) || run.core.process_reclaim(second).unwrap().ended.is_none() || run.left.len() == 704
        );
    }
    assert!(run.until_sleep(1000));
    for (process, pages) in [(first, 640), (second, 64)] {
        assert_eq!(run.core.process_reclaim(process).map(|done| (done.pages, done.gave_up)), Some((pages, false)));
    }
}

#[test]
fn a_process_begins_when_its_first_pages_are_chosen() {
    let mut run = Run::with_staging(1024);
    let (first, second, empty) = (run.process(0..640), run.process(0..64), run.process(0..0));
    [first, second, empty].into_iter().for_each(|process| run.core.reclaim_process(process));
    let queued = |run: &Run| [first, second, empty].map(|process| run.core.is_queued_to_leave(process));
    assert_eq!(queued(&run), [false, true, true], "none stands before the first, though it has not begun");
    assert!(!run.until_sleep(20));
    assert_eq!(queued(&run), [false, true, true]);
    let begun = |run: &Run, process| run.core.process_reclaim(process).and_then(|reclaim| reclaim.begun);
    assert_eq!([first, second].map(|process| begun(&run, process)), [Some(100), None]);
    assert!(run.until_sleep(2000));
    let ended = run.core.process_reclaim(first).unwrap().ended;
    assert!(begun(&run, second) > Some(100) && begun(&run, second) <= ended, "{:?}", run.core.process_reclaim(second));
    assert_eq!(queued(&run), [false; 3]);
    let (begun, ended) = (begun(&run, empty), run.core.process_reclaim(empty).unwrap().ended);
    assert!(begun.is_some() && begun <= ended, "{begun:?} {ended:?}");
}
