//! Kim, Kim and Seo 2019: zswap, and its three parts.

use super::bench::{anonymous, extent, file, in_pool, Bench, Contents, Went};
use memfit_core::blocks::block_of;
use memfit_core::{Filled, Page, PageRange, Source};

/// Rules Z1, Z10 and Z11: each page has its slot from its eviction on; the frame with the oldest
/// last store leaves as a whole; a load removes the page.
#[test]
fn zswap_by_hand() {
    let mut bench = Bench::new("zswap-z3fold", &[], 2, 100);
    // 1280 bytes are 20 of 64 chunks: three in a frame.
    for page in 0..6 {
        assert_eq!(bench.store(page, anonymous(1280)), Went::Pool);
    }
    assert_eq!(bench.core.blocks_in_use(), 6, "slots of pages that only the pool has");
    assert_eq!(bench.store(6, anonymous(1280)), Went::Pool);
    let sources: Vec<bool> = (0..7).map(|page| in_pool(&bench.source(page))).collect();
    assert_eq!(sources, [false, false, false, true, true, true, true]);
    assert_eq!(bench.written, [0, 1, 2]);
    let source = bench.load(1);
    assert_eq!(block_of(extent(&source)), 1);
    let Source::Swapped { len, codec, .. } = source else { unreachable!() };
    assert_eq!((len, codec), (4096, 0), "5.17: a normal page is written");
    bench.load(4);
    assert_eq!((bench.core.pool_usage().zpages, bench.core.blocks_in_use()), (3, 5));
}

/// 5.14: without an admission test, a page that does not compress takes a frame.
#[test]
fn incompressible_pages_are_stored_raw_without_sa() {
    let mut bench = Bench::new("zswap-z3fold", &[], 8, 100);
    assert_eq!(bench.store(0, anonymous(4096)), Went::Pool);
    assert_eq!((bench.core.pool_usage().frames, bench.core.pool_usage().used_bytes), (1, 4096));
    assert_eq!((bench.counters().incompressible, bench.counters().stored_raw), (1, 1));
}

/// Baseline `swap`: nothing is compressed, and slots of neighbours are neighbours.
#[test]
fn swap_alone() {
    let mut bench = Bench::new("swap", &[], 0, 100);
    for page in 0..10 {
        assert_eq!(bench.store(page, anonymous(100)), Went::Swap);
    }
    assert_eq!(bench.written, (0..10).collect::<Vec<_>>());
    assert_eq!(bench.counters().compressed, 0);
}

/// A2: without APA a clean page of a file is dropped without I/O. With APA it is offered like any
/// other (A3), and dropped if it is not admitted (S8).
#[test]
fn pages_of_files() {
    let mut without = Bench::new("ca+sa", &[], 8, 100);
    assert_eq!(without.store(0, file(1000)), Went::Dropped);
    assert_eq!(without.load(0), Source::File);
    assert_eq!(without.store(1, anonymous(1000)), Went::Pool);
    assert_eq!(without.estimates, 1, "what is dropped in any case is not looked at");
    let mut with = Bench::new("apa", &[], 8, 100);
    assert_eq!(with.store(0, file(1000)), Went::Pool);
    assert_eq!(with.store(1, anonymous(1000)), Went::Pool);
    assert_eq!(with.core.pool_usage().frames, 1, "in one frame");
    assert_eq!(with.core.blocks_in_use(), 1, "only the anonymous page has a slot");
    assert!(in_pool(&with.load(0)), "A5: from the pool, and out of it");
    assert_eq!(with.core.pool_usage().zpages, 1);
}

/// Without a policy of its own the pool gives its coldest pages: of files as many at once as a
/// write of the log takes, also where the swap tier takes nothing.
#[test]
fn the_coldest_pages_of_files_are_dropped_not_all() {
    let mut bench = Bench::new("memfit", &["classes=file-pooled"], 400, 100);
    (0..200).for_each(|page| assert_eq!(bench.store(page, file(1000)), Went::Pool));
    let mut written = Vec::new();
    for bytes in [0, 64 << 10] {
        let dropped = bench.core.pick_writeback(true, bytes, &mut written);
        assert_eq!((dropped, written.len()), (66, 0), "65,536 bytes of objects of 1000");
    }
    (200..210).for_each(|page| assert_eq!(bench.store(page, anonymous(1000)), Went::Pool));
    assert_eq!(bench.core.pick_writeback(true, 0, &mut written), 66);
    assert_eq!(bench.core.pick_writeback(true, 0, &mut written), 2, "no file is left");
    assert!(written.is_empty() && bench.core.pool_usage().zpages == 10, "anonymous pages stay");
    assert_eq!(bench.load(0), Source::File);
    assert!(in_pool(&bench.load(205)));
}

/// Also where anonymous pages lie between them.
#[test]
fn pages_of_files_leave_from_among_anonymous_ones() {
    let mut bench = Bench::new("memfit", &["classes=file-pooled"], 400, 0);
    let is_file = |page: u64| page % 50 > 40;
    for page in 0..300 {
        let contents = if is_file(page) { file(1000) } else { anonymous(1000) };
        assert_eq!(bench.store(page, contents), Went::Pool);
    }
    let mut written = Vec::new();
    assert_eq!(bench.core.pick_writeback(true, 0, &mut written), 54);
    assert_eq!(bench.store(300, file(1000)), Went::Pool);
    bench.free(299);
    bench.free(200);
    bench.core.check();
    assert_eq!(bench.core.pick_writeback(true, 0, &mut written), 1);
    assert_eq!(bench.core.pick_writeback(true, 0, &mut written), 0);
    bench.core.check();
    let left = (0..299).filter(|&page| page != 200 && !in_pool(&bench.source(page)));
    assert!(left.eq((0..299).filter(|&page| is_file(page))) && written.is_empty());
}

/// Frames of file pages alone are free at once. They count, so that a full pool keeps most of them.
#[test]
fn a_policy_gives_a_part_of_a_pool_of_files() {
    for preset in ["apa", "apa+ca"] {
        let mut bench = Bench::new(preset, &[], 600, 100);
        (0..1700).for_each(|page| assert_eq!(bench.store(page, file(1280)), Went::Pool));
        let mut written = Vec::new();
        let (before, frames) = (bench.counters().file_dropped, bench.core.pool_usage().frames);
        let dropped = bench.core.pick_writeback(true, u32::MAX, &mut written);
        // A 64th of the pool is 9 frames, three pages in each.
        let freed = frames - bench.core.pool_usage().frames;
        assert_eq!((dropped as u64, written.len()), (bench.counters().file_dropped - before, 0));
        assert!((25..=33).contains(&dropped) && (9..=11).contains(&freed), "{preset}: {dropped} pages, {freed} frames");
    }
    let mut bench = Bench::new("apa", &[], 4000, 100);
    (0..4000).for_each(|page| assert_eq!(bench.store(page, file(1280)), Went::Pool));
    let dropped = bench.core.pick_writeback(true, u32::MAX, &mut Vec::new());
    assert!((32..35).contains(&dropped), "{dropped} pages: no more than are written at once");
}

/// A6: of pages that are read together, the pages that the pool does not have are read from the
/// file.
#[test]
fn a6_a_partial_hit() {
    let mut bench = Bench::new("apa", &[], 16, 100);
    bench.stride = 1;
    // Three in a frame. Those stored first make room for others.
    for page in (4..7).chain(100..148).chain(0..4).chain(7..13) {
        assert_eq!(bench.store(page, file(1280)), Went::Pool);
    }
    let faults = bench.load_in_sequence(0, 13);
    let mixed = |fault: &Vec<Source>| fault.contains(&Source::File) && fault.iter().any(in_pool);
    assert!(faults.iter().any(mixed), "at once: {faults:?}");
    let sources: Vec<bool> = faults.concat().iter().map(in_pool).collect();
    assert_eq!(sources, (0..13).map(|page| !(4..7).contains(&page)).collect::<Vec<_>>(), "each page once");
}

/// A0: pages of files leave before anonymous ones that are older, but not before all of them.
#[test]
fn a0_pages_of_files_age_faster() {
    let mut same = Bench::new("ezswap", &["reclaim.file_age=1"], 8, 100);
    (0..12).for_each(|page| same.touch(page, page % 2 == 1));
    assert_eq!(same.victims(12, true), (0..12).collect::<Vec<_>>(), "all by their age");
    let mut faster = Bench::new("ezswap", &["reclaim.file_age=3"], 8, 100);
    (0..12).for_each(|page| faster.touch(page, page % 2 == 1));
    // The ages of file pages are 11, 9, 7, 5, 3 and 1, and count three times; the others are 12,
    // 10, 8, 6, 4 and 2.
    assert_eq!(faster.victims(12, true), [1, 3, 5, 7, 0, 2, 9, 4, 6, 8, 11, 10]);
    // The program has written to the page: it comes back as an anonymous page and ages as one.
    faster.touch(20, true);
    assert_eq!(faster.victims(1, false), [20]);
    faster.load(20);
    faster.touch(21, true);
    assert_eq!(faster.victims(2, true), [21, 20]);
}

/// A0: the process with file pages has a batch already; others wait a moment, but not for ever.
#[test]
fn a0_who_has_no_pages_of_files_waits_a_moment() {
    let mut bench = Bench::new("ezswap", &["reclaim.file_age=100"], 8, 100);
    (0..4).for_each(|page| bench.touch(page, page != 0));
    let (other, _) = bench.core.add_process(64);
    let loaded = (other, Page(0), PageRange { first: Page(0), pages: 1 });
    bench.core.fault(loaded.0, loaded.1, loaded.2, 1, &mut Vec::new());
    bench.core.loaded(loaded.0, loaded.1, Filled::Done);
    let mut pick =
        |tick, busy: bool| bench.core.pick_victims(1, tick, &|id| id == other || !busy).map(|(id, _)| id == other);
    assert_eq!(pick(5, true), None);
    assert_eq!(pick(24, true), None, "less than 20 ms");
    assert_eq!(pick(24, false), Some(false), "a page of a file");
    assert_eq!((pick(30, true), pick(49, true)), (None, None), "from anew");
    assert_eq!(pick(50, true), Some(true), "it may be stopped");
}

/// C8: the anonymous zpages of a victim are written, those of files dropped.
#[test]
fn a_victim_with_both_kinds() {
    let mut bench = Bench::new("apa", &[], 1, 100);
    bench.store(0, anonymous(1280));
    bench.store(1, file(1280));
    bench.store(2, anonymous(1280));
    assert_eq!(bench.store(3, anonymous(1280)), Went::Pool);
    assert_eq!(bench.source(1), Source::File);
    assert_eq!([0, 2].map(|page| block_of(extent(&bench.source(page)))), [0, 1]);
    let counters = bench.counters();
    assert_eq!(
        (counters.to_swap, counters.file_dropped, counters.evicted_units, counters.evicted_frames),
        (2, 1, 1, 1)
    );
    assert_eq!(counters.evicted_mixes[3], [0, 1, 0, 0], "three zpages, one of a file");
}

fn estimated(estimate: u32) -> Contents {
    Contents { estimate, ..anonymous(2048) }
}

/// S3 to S8: before the first request the pool's benefit is 0 and every page is admitted; when all
/// requests are hits, a page must be worth the mean.
#[test]
fn selective_admission_by_hand() {
    let mut bench = Bench::new("ca+sa", &["replacement=unit-lru"], 4, 1000);
    // Pages of half a frame: two in each, 8 in all.
    for page in 0..8 {
        assert_eq!(bench.store(page, estimated(65536)), Went::Pool, "an empty window of hits admits all");
    }
    for i in 0..256 {
        assert!(in_pool(&bench.load(i % 8)));
        assert_eq!(bench.store(i % 8, estimated(1)), Went::Pool);
    }
    assert!(in_pool(&bench.load(0)));
    // Capacity 7/8, AvgCost 4, HitRate 1, AvgRatio 1/2: AverageBenefit 7. 4 / r must reach it: r up
    // to 4/7, 37449.1 of 65536.
    let before = bench.counters();
    assert_eq!(bench.store(0, estimated(37450)), Went::Swap);
    let after = bench.counters();
    assert_eq!(
        (after.by_entropy - before.by_entropy, after.compressed),
        (1, before.compressed),
        "S7: and not compressed"
    );
    assert_eq!(bench.store(20, estimated(37449)), Went::Pool);
    // Now it is full: AverageBenefit 8, r up to 1/2, equality admits (S7).
    assert_eq!(bench.store(21, estimated(32769)), Went::Swap);
    assert_eq!(bench.store(22, estimated(32768)), Went::Pool, "another frame leaves for it");
    assert_eq!(bench.store(23, estimated(0)), Went::Pool, "5.8: no entropy at all is admitted untested");
}

/// A full pool whose last 256 requests were hits: its mean benefit is 8.
fn worth_eight(preset: &str, overrides: &[&str]) -> Bench {
    let mut bench = Bench::new(preset, &[&["replacement=unit-lru"], overrides].concat(), 4, 1000);
    bench.stride = 1;
    (0..8).for_each(|page| assert_eq!(bench.store(page, estimated(65536)), Went::Pool));
    for i in 0..256 {
        bench.load(i % 8);
        bench.store(i % 8, estimated(1));
    }
    bench
}

/// 5.11: requests for pages that were never offered to the pool are misses; with the switch they do
/// not count.
#[test]
fn t5_11_pages_that_were_never_offered() {
    for (window, went) in [("admission.offered_window=0", Went::Pool), ("admission.offered_window=1", Went::Swap)] {
        let mut bench = worth_eight("ca+sa", &[window]);
        assert_eq!(bench.store(20, estimated(65536)), Went::Swap, "its benefit is 4");
        bench.core.read_elsewhere(256);
        assert_eq!(bench.store(21, estimated(65536)), went, "{window}");
    }
}

/// 5.21: pages read ahead count as page-ins, too.
#[test]
fn t5_21_pages_read_ahead_count() {
    let refused = |bench: &mut Bench| {
        (100..356).for_each(|page| assert_eq!(bench.store(page, estimated(65536)), Went::Swap));
    };
    let mut bench = worth_eight("ca+sa", &[]);
    refused(&mut bench);
    let faults = bench.load_in_sequence(100, 256).len() as u64;
    assert!((32..40).contains(&faults), "{faults} faults with a window of 8 pages");
    assert_eq!(bench.store(400, estimated(65536)), Went::Pool, "no hits among the last 256");
    let mut bench = worth_eight("ca+sa", &[]);
    refused(&mut bench);
    (0..faults).for_each(|i| _ = bench.load(355 - i));
    assert_eq!(bench.store(400, estimated(65536)), Went::Swap, "as many faults, and a page for each");
}

/// S1: a page of a file is worth a quarter.
#[test]
fn pages_of_files_are_worth_less() {
    let mut bench = worth_eight("ezswap", &[]);
    let of_file = |estimate| Contents { file: true, ..estimated(estimate) };
    // AverageBenefit 8: 1 / r reaches it up to 1/8.
    assert_eq!(bench.store(30, of_file(8193)), Went::Dropped);
    assert_eq!(bench.store(31, of_file(8192)), Went::Pool);
}
