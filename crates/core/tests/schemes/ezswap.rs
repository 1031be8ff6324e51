//! Kim, Kim and Seo 2019: zswap, and its three parts.

use super::bench::{anonymous, extent, file, in_pool, Bench, Contents, Went};
use memfit_core::blocks::block_of;
use memfit_core::Source;

/// Rules Z1, Z10 and Z11: each page has its slot from its eviction on; the frame stored to longest ago leaves whole; a load
/// takes the page out.
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

/// 5.14: with no test before it, a page that does not compress takes a frame.
#[test]
fn incompressible_pages_are_stored_raw_without_sa() {
    let mut bench = Bench::new("zswap-z3fold", &[], 8, 100);
    assert_eq!(bench.store(0, anonymous(4096)), Went::Pool);
    assert_eq!((bench.core.pool_usage().frames, bench.core.pool_usage().used_bytes), (1, 4096));
}

/// Baseline `swap`: nothing is compressed, slots of neighbours are neighbours.
#[test]
fn swap_alone() {
    let mut bench = Bench::new("swap", &[], 0, 100);
    for page in 0..10 {
        assert_eq!(bench.store(page, anonymous(100)), Went::Swap);
    }
    assert_eq!(bench.written, (0..10).collect::<Vec<_>>());
    assert_eq!(bench.counters().compressed, 0);
}

/// A2: without APA a clean page of a file is dropped without I/O; with it it is offered as any other (A3), and one that is not
/// admitted is dropped (S8).
#[test]
fn pages_of_files() {
    let mut without = Bench::new("ca+sa", &[], 8, 100);
    assert_eq!(without.store(0, file(1000)), Went::Dropped);
    assert_eq!(without.load(0), Source::File);
    let mut with = Bench::new("apa", &[], 8, 100);
    assert_eq!(with.store(0, file(1000)), Went::Pool);
    assert_eq!(with.store(1, anonymous(1000)), Went::Pool);
    assert_eq!(with.core.pool_usage().frames, 1, "in one frame");
    assert_eq!(with.core.blocks_in_use(), 1, "only the anonymous page has a slot");
    assert!(in_pool(&with.load(0)), "A5: from the pool, and out of it");
    assert_eq!(with.core.pool_usage().zpages, 1);
}

/// C8: of a victim the anonymous zpages are written, those of files dropped.
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
    assert_eq!((counters.to_swap, counters.file_dropped, counters.evicted_units, counters.evicted_frames), (2, 1, 1, 1));
}

fn estimated(len: u32, ratio_percent: u32) -> Contents {
    Contents { estimate: 65536 / 100 * ratio_percent, ..anonymous(len) }
}

/// S3 to S8: while nothing was asked of the pool, its benefit is 0 and all is admitted; with every request a hit and the pool
/// full, a page must be worth what the mean is.
#[test]
fn selective_admission_by_hand() {
    let mut bench = Bench::new("ca+sa", &["replacement=unit-lru"], 4, 1000);
    // Pages of half a frame: two in each, 8 in all.
    for page in 0..8 {
        assert_eq!(bench.store(page, estimated(2048, 100)), Went::Pool, "an empty window of hits admits");
    }
    // Half of the window: 128 hits. Each hit takes its page out, which comes back while the bar is still low.
    let mut hits = 0;
    while hits < 128 {
        assert!(in_pool(&bench.load(hits % 8)));
        assert_eq!(bench.store(hits % 8, estimated(2048, 1)), Went::Pool);
        hits += 1;
    }
    // Capacity 1, AvgCost 4, HitRate 1/2, AvgRatio 1/2: AverageBenefit 4. An anonymous page is worth 4 / r: any r up to 1.
    let kept = |percent: u32| 4 * 100 >= 4 * percent;
    assert!(kept(100));
    assert_eq!(bench.store(20, estimated(2048, 100)), Went::Pool);
    // 256 hits: AverageBenefit 8, r up to 1/2.
    for i in 0..256 {
        let page = [2, 3, 4, 5, 6, 7, 20][i % 7];
        if in_pool(&bench.source(page)) {
            bench.load(page);
            bench.store(page, estimated(2048, 1));
        }
    }
    let before = bench.counters();
    assert_eq!(bench.store(30, estimated(2048, 51)), Went::Swap, "worth less");
    assert_eq!(bench.counters().not_worth, before.not_worth + 1);
    assert_eq!(bench.counters().compressed, before.compressed, "S7: only admitted pages are compressed");
    assert_eq!(bench.store(31, estimated(2048, 0)), Went::Pool, "S6: no entropy is infinite benefit");
}
