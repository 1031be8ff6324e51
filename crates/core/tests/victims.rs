//! The choice of victims, through the core's public interface.

use memfit_core::budget::Sizes;
use memfit_core::scheme::{ReclaimKind, Scheme};
use memfit_core::{Answer, Core, Fault, Filled, Page, PageRange, ProcId, Tunables, Victim, BATCH_VICTIMS, RUN_PAGES};
use std::sync::Arc;

fn core() -> Core {
    with_staging(4096)
}

fn with_staging(staging_slots: u32) -> Core {
    let mut scheme = Scheme::default();
    scheme.reclaim.kind = ReclaimKind::Fifo;
    let (pool_frames, area_frames) = (1 << 16, 1 << 17);
    let (sizes, scheme) = (Sizes::new(1 << 30, &scheme), Arc::new(scheme));
    Core::new(Tunables { scheme, sizes, staging_slots, pool_frames, area_frames, swap: false, blocks: Vec::new() })
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

/// Takes one batch; returns its pages.
fn batch(core: &mut Core, most: usize) -> Vec<u64> {
    let Some((id, victims)) = core.pick_victims(most, 0, &|_| true) else { return Vec::new() };
    let pages = |victim: &Victim| victim.first.0..victim.first.0 + victim.slots.len() as u64;
    for victim in &victims {
        let moved = u64::MAX >> (64 - victim.slots.len());
        core.evicted(id, victim.first, victim.slots.len() as u32, Answer { moved, ..Answer::default() }, 0);
    }
    victims.iter().flat_map(pages).collect()
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
fn faults_in_sequence_are_told_from_random_ones() {
    let mut core = core();
    let process = process(&mut core, 0..4000);
    let mut next = 0;
    let mut pass = |core: &mut Core, faults: u64, step: u64| {
        for _ in 0..faults {
            take_all(core, 1);
            let mut loads = Vec::new();
            assert_eq!(
                core.fault(process, Page(next), PageRange { first: Page(0), pages: 4000 }, u32::MAX, &mut loads),
                Fault::Load
            );
            loads.iter().for_each(|load| core.loaded(process, load.page, Filled::Done));
            next = (next + step.max(loads.len() as u64)) % 4000;
        }
    };
    pass(&mut core, 200, 0);
    assert!(core.in_sequence());
    pass(&mut core, 200, 997);
    assert!(!core.in_sequence());
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
