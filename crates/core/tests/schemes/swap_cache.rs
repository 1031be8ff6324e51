//! Raw slots are kept while their page is in memory, as in the kernel's swap cache.

use super::bench::{anonymous, Bench, Contents, Went};
use memfit_core::Source;

/// The compressed length plays no role: plain swap has no pool.
fn changed() -> Contents {
    anonymous(4096)
}

fn unchanged() -> Contents {
    Contents { unchanged: true, ..changed() }
}

/// Slots in use, and slots that are kept.
fn slots(bench: &Bench) -> (u32, usize) {
    (bench.core.blocks_in_use(), bench.core.slots_kept())
}

#[test]
fn an_unchanged_page_needs_no_write_and_a_changed_one_goes_to_its_slot() {
    let mut bench = Bench::new("swap", &[], 8, 100);
    assert_eq!((bench.store(1, changed()), bench.store(2, changed())), (Went::Swap, Went::Swap));
    bench.load(1);
    assert_eq!(slots(&bench), (1, 1), "the slot of page 1 is kept");
    assert_eq!(bench.store(1, unchanged()), Went::Kept);
    assert_eq!(bench.written.len(), 2);
    bench.load(1);
    assert_eq!(bench.store(1, changed()), Went::Swap);
    assert_eq!(bench.written, [bench.written[0], bench.written[1], bench.written[0]], "the same slot");
    bench.load(1);
    assert_eq!(bench.store(1, unchanged()), Went::Kept, "the slot has the new bytes");
    assert_eq!(slots(&bench), (2, 0));
}

/// The page has not left staging: its slot is as it was.
#[test]
fn a_page_that_comes_back_from_staging_keeps_its_slot() {
    let mut bench = Bench::new("swap", &[], 8, 100);
    bench.store(1, changed());
    bench.load(1);
    assert_eq!(bench.victims(1, false), [1]);
    assert!(matches!(bench.load(1), Source::Staged(_)));
    assert_eq!(bench.store(1, unchanged()), Went::Kept);
    assert_eq!(slots(&bench), (1, 0));
}

/// The kernel's `vm_swap_full`.
#[test]
fn no_slot_is_kept_while_more_than_half_are_in_use() {
    let mut bench = Bench::new("swap", &[], 8, 4);
    (0..3).for_each(|page| assert_eq!(bench.store(page, changed()), Went::Swap));
    bench.load(0);
    assert_eq!(slots(&bench), (2, 0));
    assert_eq!(bench.store(0, unchanged()), Went::Swap);
    bench.load(0);
    bench.load(1);
    assert_eq!(slots(&bench), (1, 1), "with two slots in use, that of page 1 is kept");
    assert_eq!(bench.store(1, unchanged()), Went::Kept);
}

#[test]
fn a_slot_is_taken_from_a_page_in_memory_when_none_is_free() {
    let mut bench = Bench::new("swap", &[], 8, 4);
    (0..2).for_each(|page| assert_eq!(bench.store(page, changed()), Went::Swap));
    (0..2).for_each(|page| _ = bench.load(page));
    assert_eq!(slots(&bench), (0, 2));
    (2..5).for_each(|page| assert_eq!(bench.store(page, changed()), Went::Swap, "page {page}"));
    assert_eq!(bench.written[4], bench.written[0], "that of the page with the lowest address");
    assert_eq!(bench.store(1, unchanged()), Went::Kept);
    assert_ne!(bench.store(0, unchanged()), Went::Kept);
}

/// A device without space for more blocks takes those that it has.
#[test]
fn a_slot_that_the_device_refuses_is_not_tried_again() {
    let mut bench = Bench::new("swap", &[], 8, 100);
    (0..3).for_each(|page| assert_eq!(bench.store(page, changed()), Went::Swap));
    bench.refuses = true;
    assert_eq!(bench.store(3, changed()), Went::Pool);
    assert_eq!((bench.written.len(), slots(&bench)), (4, (3, 0)), "it was tried once");
    bench.refuses = false;
    bench.free(1);
    assert_eq!(bench.store(4, changed()), Went::Swap);
    assert_eq!(bench.written[4], bench.written[1], "that slot is free");
    assert_eq!(bench.store(5, changed()), Went::Pool);
}

#[test]
fn an_unmapped_page_gives_its_slot_back() {
    let mut bench = Bench::new("swap", &[], 8, 100);
    bench.store(1, changed());
    bench.load(1);
    assert_eq!(slots(&bench), (0, 1));
    bench.free(1);
    assert_eq!(slots(&bench), (0, 0));
    assert_eq!(bench.store(1, unchanged()), Went::Swap, "another page at the same place");
}

/// Under zswap a page that came from the device is dropped in the same way: the pool need not take
/// it again.
#[test]
fn a_clean_page_does_not_go_to_the_pool_again() {
    let mut bench = Bench::new("zswap-zbud", &[], 2, 100);
    (0..8).for_each(|page| assert_eq!(bench.store(page, anonymous(1500)), Went::Pool));
    assert!(matches!(bench.load(0), Source::Swapped { .. }), "the oldest was written back");
    let zpages = bench.core.pool_usage().zpages;
    assert_eq!(bench.store(0, Contents { unchanged: true, ..anonymous(1500) }), Went::Kept);
    assert_eq!(bench.core.pool_usage().zpages, zpages);
    bench.load(0);
    assert_eq!(bench.store(0, anonymous(1500)), Went::Pool);
}
