//! Salahuddin and Shin: the original zsmalloc, zbud, and zsmalloc with writeback and a cap.

use super::bench::{anonymous, in_pool, Bench, Went};

/// Rules 13 and 15, and the first check of 2.8.
#[test]
fn the_cap_is_3072_bytes_and_found_after_compression() {
    let mut bench = Bench::new("zsmalloc-sr", &[], 64, 100);
    assert_eq!(bench.store(0, anonymous(3072)), Went::Pool);
    assert_eq!(bench.store(1, anonymous(3073)), Went::Swap);
    assert_eq!(bench.counters().incompressible, 1);
}

/// 5.5: the switch to a cap that holds only when room is scarce.
#[test]
fn a_cap_may_hold_only_while_little_is_free() {
    let mut bench = Bench::new("zsmalloc-sr", &["admission.cap_below_percent=50"], 8, 100);
    // 3264 bytes: five slots in four frames. Half of the pool is free until the bytes of more than
    // four frames are used.
    let went: Vec<Went> = (0..7).map(|page| bench.store(page, anonymous(3200))).collect();
    assert_eq!(went[..6], [Went::Pool; 6]);
    assert_eq!(went[6], Went::Swap);
}

/// Rule 7.
#[test]
fn the_original_refuses_when_it_is_full_and_keeps_what_it_has() {
    let mut bench = Bench::new("zswap-zsmalloc", &[], 4, 100);
    let went: Vec<Went> = (0..12).map(|page| bench.store(page, anonymous(2048))).collect();
    assert_eq!(went[..8], [Went::Pool; 8]);
    assert_eq!(went[8..], [Went::Swap; 4]);
    assert!((0..8).all(|page| in_pool(&bench.source(page))), "frozen with old pages");
    assert_eq!(bench.counters().evicted_units, 0);
}

/// Rules 8 to 12: the oldest zspage of the only class leaves; all of its objects are written, each
/// to its own slot, decompressed.
#[test]
fn a_full_pool_writes_its_oldest_zspage_back() {
    let mut bench = Bench::new("zsmalloc-sr", &[], 4, 100);
    // 2048 bytes: zspages of one frame with two objects.
    for page in 0..9 {
        assert_eq!(bench.store(page, anonymous(2048)), Went::Pool, "page {page}");
    }
    assert_eq!(bench.counters().evicted_units, 1);
    assert_eq!(bench.counters().to_swap, 2);
    let sources: Vec<bool> = (0..9).map(|page| in_pool(&bench.source(page))).collect();
    assert_eq!(sources, [false, false, true, true, true, true, true, true, true]);
    // Slots are allocated at eviction (rule Z1 of ezswap), in order.
    assert_eq!(bench.written, [0, 1]);
}

/// Rule 16.
#[test]
fn zbud_evicts_the_frame_stored_to_longest_ago() {
    let mut bench = Bench::new("zswap-zbud", &[], 2, 100);
    for page in 0..4 {
        bench.store(page, anonymous(1000));
    }
    // Two frames with two pages each; a load does not make a frame newer.
    bench.load(0);
    assert_eq!(bench.store(10, anonymous(1000)), Went::Pool, "in the place that came free");
    assert_eq!(bench.store(11, anonymous(1000)), Went::Pool);
    let sources: Vec<bool> = [1, 2, 3, 10, 11].map(|page| in_pool(&bench.source(page))).to_vec();
    assert_eq!(sources, [true, false, false, true, true], "the second frame was the oldest by then");
}

/// 2.8: at most two or three zpages in a frame.
#[test]
fn density_of_the_frames() {
    for (preset, in_frame) in [("zswap-zbud", 2), ("zswap-z3fold", 3)] {
        let mut bench = Bench::new(preset, &[], 100, 1000);
        (0..120).for_each(|page| assert_eq!(bench.store(page, anonymous(64)), Went::Pool));
        let usage = bench.core.pool_usage();
        assert_eq!(usage.zpages, u64::from(usage.frames) * in_frame, "{preset}");
    }
}

/// 5.8: a zspage of several frames needs them all at once.
#[test]
fn as_many_frames_leave_as_the_new_zspage_needs() {
    let mut bench = Bench::new("zsmalloc-sr", &[], 6, 100);
    // 2048 bytes: a frame for two. 2700 bytes: two frames for three.
    (0..12).for_each(|page| assert_eq!(bench.store(page, anonymous(2048)), Went::Pool));
    bench.under_way = Some(Vec::new());
    assert_eq!(bench.store(20, anonymous(2700)), Went::Waits);
    assert_eq!(bench.counters().evicted_units, 2, "both at once, and no more while they are being written");
    bench.under_way.take().unwrap().into_iter().for_each(|write| bench.end_write(&write, true));
    assert_eq!(bench.counters().evicted_frames, 2);
}

/// `admission.busy_max_len`: while programs wait for a CPU, longer results go raw to the swap tier,
/// if one takes them. The schemes of papers have no such cap.
#[test]
fn the_cap_is_lower_while_programs_wait_for_a_cpu() {
    let mut bench = Bench::new("zsmalloc-sr", &["admission.busy_max_len=2048"], 64, 100);
    assert_eq!(bench.core.len_max(), 3072);
    assert_eq!(bench.store(0, anonymous(3000)), Went::Pool);
    bench.round(0, true);
    assert_eq!(bench.core.len_max(), 2048);
    assert_eq!(bench.store(1, anonymous(2048)), Went::Pool);
    assert_eq!(bench.store(2, anonymous(2049)), Went::Swap);
    bench.round(0, false);
    assert_eq!(bench.store(3, anonymous(3000)), Went::Pool);
    let mut alone = Bench::new("memfit", &[], 64, 0);
    alone.round(0, true);
    assert_eq!((alone.core.len_max(), alone.store(0, anonymous(3000))), (3264, Went::Pool));
    let mut others = Bench::new("zsmalloc-sr", &[], 64, 100);
    others.round(0, true);
    assert_eq!(others.core.len_max(), 3072);
}

/// A page over the cap for which there is no other place counts as compressed.
#[test]
fn pages_over_the_cap_are_counted_once() {
    let mut bench = Bench::new("zsmalloc-sr", &["admission.cap_below_percent=50"], 64, 0);
    (0..50).for_each(|page| assert_eq!(bench.store(page, anonymous(3500)), Went::Pool));
    assert_eq!((bench.counters().incompressible, bench.counters().compressed), (0, 50));
}
