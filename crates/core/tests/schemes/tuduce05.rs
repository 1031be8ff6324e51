//! Tuduce and Gross 2005: zones.

use super::bench::{anonymous, extent, in_pool, Bench, Went};
use memfit_core::Source;

/// The pages of small programs, too: those here have few.
const ALL: &str = "admission.need_permille=0";

/// A pool of at most four zones of 64 frames.
fn small(more: &[&str]) -> Bench {
    let zones = [ALL, "pool.zone_kib=256"];
    Bench::new("tuduce05", &zones.iter().chain(more).copied().collect::<Vec<_>>(), 256, 10_000)
}

/// Rule 16: no area at first; the first check in a round for lack of memory creates the first zone.
#[test]
fn compression_begins_when_memory_is_short() {
    let mut bench = small(&[]);
    bench.round(0, false);
    assert_eq!(bench.store(0, anonymous(1000)), Went::Swap);
    bench.round(2000, false);
    assert_eq!(bench.core.pool_limit(), 64);
    assert_eq!(bench.store(1, anonymous(1000)), Went::Pool);
    assert_eq!(bench.core.pool_usage().frames, 64, "a zone's memory is taken as a whole");
}

/// Rule 16: compression is switched on for one application, when its need passes a threshold, and
/// off when it needs half as much. A thousandth of a budget of 1 GiB is 263 pages.
#[test]
fn rule_16_compression_is_for_programs_that_need_much() {
    let fixed = ["sizing=fixed", "pool.zone_kib=256", "admission.need_permille=1"];
    let mut bench = Bench::new("tuduce05", &fixed, 128, 10_000);
    let store = |bench: &mut Bench, pages: std::ops::Range<u64>, went| {
        pages.for_each(|page| assert_eq!(bench.store(page, anonymous(1000)), went, "page {page}"));
    };
    store(&mut bench, 0..262, Went::Swap);
    store(&mut bench, 262..300, Went::Pool);
    bench.unmap(0..169);
    store(&mut bench, 0..1, Went::Pool);
    bench.unmap(169..170);
    store(&mut bench, 1..2, Went::Pool);
    assert!(bench.is_compressed());
    bench.unmap(170..172);
    store(&mut bench, 2..3, Went::Swap);
    assert!(!bench.is_compressed());
    assert_eq!(bench.counters().by_need, 263);
    // Without a swap tier there is no other place.
    let mut bench = Bench::new("tuduce05", &fixed, 128, 0);
    assert_eq!(bench.store(0, anonymous(1000)), Went::Pool);
}

/// Rules 10 and 13: with less than a zone free the area grows, by one zone per check.
#[test]
fn the_area_grows_with_its_load() {
    let mut bench = small(&[]);
    bench.round(0, false);
    bench.store(0, anonymous(1000));
    let mut limits = Vec::new();
    for second in 2..8 {
        bench.round(second * 1000, false);
        limits.push(bench.core.pool_limit() / 64);
        bench.store(second, anonymous(1000));
    }
    // The first zone has less than a whole zone free as soon as it holds a page.
    assert_eq!(limits[..3], [1, 2, 2]);
}

/// Rules 8 and 9, and resolution 5.12: the oldest pages leave for the disk, decompressed, until
/// there is room for 64 more.
#[test]
fn a_reserve_is_kept_when_it_cannot_grow() {
    let mut bench = Bench::new("tuduce05", &[ALL, "sizing=fixed", "pool.zone_kib=256"], 64, 10_000);
    for page in 0..300 {
        assert_eq!(bench.store(page, anonymous(1024)), Went::Pool);
    }
    let in_pool_now: Vec<u64> = (0..300).filter(|&page| in_pool(&bench.source(page))).collect();
    let first = in_pool_now[0];
    assert!(first > 0 && in_pool_now == (first..300).collect::<Vec<_>>(), "the oldest left, in order");
    assert!(in_pool_now.len() <= 256 - 32, "{} of 256", in_pool_now.len());
    let Source::Swapped { len, codec, .. } = bench.source(0) else { panic!("the first page left") };
    assert_eq!((len, codec), (4096, 0));
    let _ = extent(&bench.source(0));
}

/// 5.14: incompressible pages go straight to disk.
#[test]
fn incompressible_pages_go_to_disk() {
    let mut bench = Bench::new("tuduce05", &[ALL, "sizing=fixed", "pool.zone_kib=256"], 64, 100);
    assert_eq!(bench.store(0, anonymous(4096)), Went::Swap);
    assert_eq!(bench.store(1, anonymous(4095)), Went::Pool);
}

/// 5.14, the switch: the page is stored raw, in four blocks of 1 KiB.
#[test]
fn t5_14_incompressible_pages_may_be_stored_raw() {
    let mut bench = Bench::new("tuduce05", &[ALL, "sizing=fixed", "pool.zone_kib=256", "admission=all"], 128, 100);
    assert_eq!(bench.store(0, anonymous(4096)), Went::Pool);
    assert_eq!((bench.core.pool_usage().zpages, bench.core.pool_usage().used_bytes), (1, 4096));
}

/// Rules 10 and 12 together: when the load goes away, so does zone after zone, one per check, while
/// more than four are free.
#[test]
fn rule_12_the_area_shrinks_when_its_load_is_gone() {
    let mut bench = Bench::new("tuduce05", &[ALL, "pool.zone_kib=256"], 512, 10_000);
    bench.round(0, false);
    (0..4).for_each(|page| _ = bench.store(page, anonymous(4000)));
    let mut second = 1;
    for page in 4..600 {
        bench.store(page, anonymous(4000));
        if page % 32 == 0 {
            second += 1;
            bench.round(second * 1000, false);
        }
    }
    let zones = |bench: &Bench| bench.core.pool_limit() / 64;
    assert_eq!(zones(&bench), 8, "as large as it may be");
    let kept: Vec<u64> = (0..600).filter(|&page| in_pool(&bench.source(page))).step_by(30).collect();
    (0..600).filter(|page| !kept.contains(page)).for_each(|page| bench.free(page));
    let limits: Vec<u32> = (1..8)
        .map(|i| {
            bench.round((second + i) * 1000, false);
            while !bench.core.compact(1000).is_empty() {}
            zones(&bench)
        })
        .collect();
    assert_eq!(
        limits,
        [7, 6, 5, 4, 4, 4, 4],
        "what is left takes a quarter of a zone: of five more than four are free, of four less"
    );
    assert!(bench.core.pool_usage().frames <= 4 * 64);
    assert!(kept.iter().all(|&page| in_pool(&bench.source(page))), "they moved to the zones that stay");
}

/// Rules 4 and 5.15: a page that was loaded and stored again is the newest.
#[test]
fn rule_4_the_page_stored_last_leaves_last() {
    let mut bench = Bench::new("tuduce05", &[ALL, "sizing=fixed", "pool.zone_kib=256"], 64, 10_000);
    (0..150).for_each(|page| _ = bench.store(page, anonymous(1024)));
    (0..10).for_each(|page| {
        bench.load(page);
        bench.store(page, anonymous(1024));
    });
    (150..260).for_each(|page| _ = bench.store(page, anonymous(1024)));
    assert!((0..10).all(|page| in_pool(&bench.source(page))), "they were used since");
    assert!((10..20).all(|page| !in_pool(&bench.source(page))), "older, though stored later at first");
}

/// The paper's disk takes what does not fit until the next check. Where no tier does, the area
/// grows at once, as far as it may.
#[test]
fn without_room_in_a_tier_the_area_grows_at_once() {
    let mut bench = small(&[]);
    bench.round(0, false);
    bench.round(1000, false);
    assert_eq!(bench.store(0, anonymous(4000)), Went::Pool);
    (1..200).for_each(|page| _ = bench.store(page, anonymous(4000)));
    assert_eq!(bench.core.pool_limit(), 64, "the tier takes pages");
    // The second tier has as many blocks as there are pages in the first zone.
    for blocks in [0, 64] {
        let mut bench = Bench::new("tuduce05", &[ALL, "pool.zone_kib=256"], 256, blocks);
        let went: Vec<Went> = (0..320).map(|page| bench.store(page, anonymous(4000))).collect();
        let stays = went.iter().filter(|&&went| went == Went::Pool).count();
        assert_eq!((bench.core.pool_limit(), stays), (256, 256), "{blocks} blocks: {went:?}");
        let gone = went.iter().filter(|&&went| went == Went::Swap).count();
        assert_eq!(
            (gone, went.last()),
            (blocks as usize, Some([Went::Waits, Went::Pool][usize::from(blocks > 0)]).as_ref())
        );
    }
}

/// A full tier takes a page for each slot that becomes free, and those that have one already.
#[test]
fn pages_with_a_slot_leave_from_behind_those_without() {
    let mut bench = Bench::new("tuduce05", &[ALL, "sizing=fixed", "pool.zone_kib=256"], 64, 10);
    let in_pool_now = |bench: &mut Bench| (0..31).filter(|&page| in_pool(&bench.source(page))).collect::<Vec<_>>();
    (0..30).for_each(|page| assert_eq!(bench.store(page, anonymous(1000)), Went::Pool));
    bench.unmap(0..1);
    assert_eq!(bench.store(30, anonymous(1000)), Went::Pool);
    assert_eq!((bench.write_back(), bench.write_back()), (10, 0));
    assert_eq!(in_pool_now(&mut bench), (10..30).collect::<Vec<_>>(), "the last page had the slot of the first");
    bench.unmap(3..5);
    assert_eq!((bench.write_back(), bench.write_back()), (2, 0));
    assert_eq!(in_pool_now(&mut bench), (12..30).collect::<Vec<_>>());
}

/// A page that waits for room is no more pages.
#[test]
fn incompressible_pages_count_when_they_leave_staging() {
    let mut bench = Bench::new("tuduce05", &[ALL, "sizing=fixed", "pool.zone_kib=256", "admission=all"], 64, 0);
    let stored = (0..70).take_while(|&page| bench.store(page, anonymous(4096)) == Went::Pool).count() as u64;
    assert!((60..65).contains(&stored), "{stored} in 64 frames");
    let counters = bench.counters();
    assert_eq!((counters.incompressible, counters.stored_raw, counters.compressed), (stored, stored, 0));
}
