//! Memfit's own scheme: raw pages stay in the pool while they are a small part of it
//! (`admission.raw_percent`).

use super::bench::{anonymous, in_pool, Bench, Went};

const RAW: u32 = 4096;

/// With at most a quarter of raw pages, and space on a tier of blocks.
fn bench(overrides: &[&str]) -> Bench {
    Bench::new("memfit", &[&["swap_format=raw-slots", "admission.raw_percent=25"], overrides].concat(), 64, 10_000)
}

#[test]
fn raw_pages_stay_while_they_are_few() {
    let mut bench = bench(&[]);
    assert_eq!(bench.store(0, anonymous(RAW)), Went::Swap, "where nothing compresses, none");
    (1..31).for_each(|page| assert_eq!(bench.store(page, anonymous(1000)), Went::Pool));
    // n of 30 + n are less than a quarter up to the tenth raw page.
    (100..110).for_each(|page| assert_eq!(bench.store(page, anonymous(RAW)), Went::Pool, "{page}"));
    assert_eq!(bench.store(110, anonymous(RAW)), Went::Swap);
    assert_eq!((bench.counters().stored_raw, bench.counters().raw_to_swap), (10, 2));
    bench.load(105);
    assert_eq!(bench.store(111, anonymous(RAW)), Went::Pool, "one has left");
}

#[test]
fn with_0_none_stays() {
    let mut bench = bench(&["admission.raw_percent=0"]);
    (1..31).for_each(|page| assert_eq!(bench.store(page, anonymous(1000)), Went::Pool));
    assert_eq!(bench.store(100, anonymous(RAW)), Went::Swap);
}

/// A turn is at least 1024 stores. Pages that were not loaded in a whole turn leave, and no others.
#[test]
fn raw_pages_leave_after_a_turn_of_the_pool() {
    let mut bench = bench(&[]);
    (0..30).for_each(|page| assert_eq!(bench.store(page, anonymous(1000)), Went::Pool));
    (100..104).for_each(|page| assert_eq!(bench.store(page, anonymous(RAW)), Went::Pool));
    let turn = |bench: &mut Bench, stores| {
        (0..stores).for_each(|i| {
            bench.load(i % 30);
            assert_eq!(bench.store(i % 30, anonymous(1000)), Went::Pool);
        });
    };
    turn(&mut bench, 1024 - 34);
    // Loaded and stored again: it is the youngest now. The mark was on it.
    bench.load(103);
    assert_eq!(bench.store(103, anonymous(RAW)), Went::Pool);
    turn(&mut bench, 1022);
    assert_eq!(bench.written, [], "one whole turn is not over for any of them");
    turn(&mut bench, 2);
    assert_eq!(bench.written.len(), 3, "those of before the first turn");
    assert!([100, 101, 102].iter().all(|&page| !in_pool(&bench.source(page))) && in_pool(&bench.source(103)));
    turn(&mut bench, 1024);
    assert_eq!(bench.written.len(), 4);
    assert!((0..30).all(|page| in_pool(&bench.source(page))));
}

/// When the pool must give room, raw pages leave first: each of them saves only a read.
#[test]
fn raw_pages_make_room_first() {
    let mut bench = bench(&[]);
    (0..30).for_each(|page| assert_eq!(bench.store(page, anonymous(1000)), Went::Pool));
    (100..104).for_each(|page| assert_eq!(bench.store(page, anonymous(RAW)), Went::Pool));
    bench.under_way = Some(Vec::new());
    bench.write_back();
    let victims = bench.under_way.take().unwrap();
    let lens: Vec<u32> = victims.iter().map(|victim| victim.runs.len()).collect();
    assert_eq!(lens[..5], [RAW, RAW, RAW, RAW, 1000]);
    // One write fails: this page is the newest raw page now.
    bench.end_write(&victims[0], false);
    victims[1..].iter().for_each(|victim| bench.end_write(victim, true));
    bench.core.check();
    assert!(in_pool(&bench.source(100)) && !in_pool(&bench.source(101)));
}
