//! The choice of victims, through the core's own interface.

use memfit_core::scheme::{ReclaimKind, Scheme};
use memfit_core::{Answer, Core, Fault, Filled, Page, PageRange, ProcId, Tunables, RUN_PAGES};
use std::sync::Arc;

fn core() -> Core {
    let mut scheme = Scheme::default();
    scheme.reclaim.kind = ReclaimKind::SecondChance;
    let (pool_frames, area_frames) = (1 << 16, 1 << 17);
    let scheme = Arc::new(scheme);
    Core::new(Tunables { scheme, staging_slots: 4096, pool_frames, area_frames, swap: false, blocks: Vec::new() })
}

fn process(core: &mut Core, pages: impl Iterator<Item = u64>) -> ProcId {
    let (id, _) = core.add_process(4096);
    pages.for_each(|page| assert!(core.adopt(id, Page(page), false)));
    id
}

/// Takes all that is offered; returns how many pages each process lost.
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

#[test]
fn a_process_with_nothing_but_pinned_pages_does_not_shield_the_others() {
    let mut core = core();
    // The oldest run of all is pinned.
    let first = process(&mut core, 1000..1002);
    core.pin(first, (1000..1002).map(Page));
    process(&mut core, 2000..2100);
    assert_eq!(take_all(&mut core, 2), [0, 100]);
}

#[test]
fn pinned_pages_of_many_threads_do_not_shield_the_rest_of_their_process() {
    let mut core = core();
    // 600 threads, each with a pinned page in a run of its own, older than everything else.
    let pinned = (0..600).map(|i| 16 * RUN_PAGES + i * RUN_PAGES);
    let process = process(&mut core, pinned.clone().chain(100_000..100_050));
    core.pin(process, pinned.map(Page));
    let mut lost = 0;
    // Passing over so many takes more than one call.
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
