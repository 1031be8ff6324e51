//! Han et al. 2018: routing by the origin of the reclaim.

use super::bench::{anonymous, in_pool, Bench, Contents, Went};
use memfit_core::Origin;

fn background(len: u32) -> Contents {
    Contents { origin: Origin::Background, ..anonymous(len) }
}

/// Rules 1 and 2, and the last check of 2.5.
#[test]
fn background_reclaim_never_touches_the_pool_and_direct_reclaim_never_the_storage() {
    let mut bench = Bench::new("hybrid18", &[], 64, 1000);
    for page in 0..20 {
        assert_eq!(bench.store(page, background(1000)), Went::Swap);
    }
    assert_eq!(bench.core.pool_usage().zpages, 0);
    for page in 20..40 {
        assert_eq!(bench.store(page, anonymous(1000)), Went::Pool);
    }
    let counters = bench.counters();
    assert_eq!((counters.in_advance, counters.to_swap, counters.compressed), (20, 20, 20));
}

/// Rule 4.
#[test]
fn a_process_that_leaves_as_a_whole_goes_to_the_pool() {
    let mut bench = Bench::new("hybrid18", &[], 64, 1000);
    let whole = Contents { origin: Origin::Process, ..anonymous(1000) };
    assert_eq!((bench.store(1, background(1000)), bench.store(2, whole)), (Went::Swap, Went::Pool));
}

/// Rule 6: a fault looks in both places.
#[test]
fn pages_come_back_from_where_they_are() {
    let mut bench = Bench::new("hybrid18", &[], 64, 1000);
    bench.store(1, background(1000));
    bench.store(2, anonymous(1000));
    assert!(!in_pool(&bench.load(1)) && in_pool(&bench.load(2)));
    assert_eq!((bench.core.pool_usage().zpages, bench.core.swapped_total()), (0, 0), "both loads free the copy");
}

/// Rule 6: with no free frame, the least recently used page leaves.
#[test]
fn rule_6_the_longest_unused_page_makes_room() {
    let mut bench = Bench::new("hybrid18", &[], 64, 1000);
    (0..6).for_each(|page| bench.touch(page, false));
    assert_eq!(bench.victims(2, false), [0, 1]);
    bench.load(0);
    assert_eq!(bench.victims(5, false), [2, 3, 4, 5, 0]);
}

/// 5.12: a full pool on direct reclaim, and no process to kill: pages go to storage.
#[test]
fn when_the_pool_is_full_direct_reclaim_goes_to_storage() {
    let mut bench = Bench::new("hybrid18", &[], 4, 1000);
    let went: Vec<Went> = (0..6).map(|page| bench.store(page, anonymous(4096))).collect();
    assert_eq!(went, [Went::Pool, Went::Pool, Went::Pool, Went::Pool, Went::Swap, Went::Swap]);
    assert_eq!(bench.counters().pool_full, 2);
    // Pages leave the pool only by loads.
    assert_eq!(bench.write_back(), 0);
    bench.load(0);
    assert_eq!(bench.store(7, anonymous(4096)), Went::Pool);
}

/// 5.12: full storage on background reclaim: pages go to the pool.
#[test]
fn when_storage_is_full_background_reclaim_goes_to_the_pool() {
    let mut bench = Bench::new("hybrid18", &[], 64, 3);
    let went: Vec<Went> = (0..5).map(|page| bench.store(page, background(1000))).collect();
    assert_eq!(went, [Went::Swap, Went::Swap, Went::Swap, Went::Pool, Went::Pool]);
}

/// The floor closes the pool so that pages go to storage. When storage takes nothing any more, they
/// have nowhere else to go.
#[test]
fn a_pool_that_is_closed_opens_when_storage_takes_nothing() {
    let mut bench = Bench::new("hybrid18", &[], 64, 1000);
    bench.round(0, false);
    assert_eq!(bench.store(0, anonymous(1000)), Went::Swap, "few pages are resident: the pool is closed");
    bench.core.swap_takes(false);
    assert_eq!(bench.store(1, anonymous(1000)), Went::Pool);
}

/// 5.13: incompressible pages are stored raw.
#[test]
fn incompressible_pages_are_kept_raw() {
    let mut bench = Bench::new("hybrid18", &[], 64, 100);
    assert_eq!(bench.store(0, anonymous(4096)), Went::Pool);
    assert_eq!(bench.core.pool_usage().stored_bytes, 4096);
}
