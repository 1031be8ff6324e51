//! Cervera, Cortes and Becerra 1999: a write cache of buffers.

use super::bench::{anonymous, extent, in_pool, Bench, Went};
use memfit_core::blocks::{block_of, byte_in_block};
use memfit_core::Source;

/// 2.5: 16 buffers, pages of 1000 bytes, four in each (rules 4 to 8, 10): the first cleaning starts
/// when the eighth buffer is full, and writes eight adjacent blocks with 32 pages.
#[test]
fn the_first_cleaning_by_hand() {
    let mut bench = Bench::new("cervera99", &[], 16, 1000);
    for page in 0..31 {
        assert_eq!(bench.store(page, anonymous(1000)), Went::Pool);
    }
    assert!(bench.written.is_empty());
    bench.store(31, anonymous(1000));
    assert_eq!(bench.written, (0..8).collect::<Vec<_>>());
    assert_eq!(bench.counters().to_swap, 32);
    // Rule 13: still readable in the cache.
    assert!((0..32).all(|page| in_pool(&bench.source(page))));
}

/// Rules 13 to 15: a clean buffer is readable until it is used again, oldest first (5.6); then the
/// block is read.
#[test]
fn clean_buffers_are_used_again() {
    let mut bench = Bench::new("cervera99", &[], 16, 1000);
    (0..64).for_each(|page| assert_eq!(bench.store(page, anonymous(1000)), Went::Pool));
    assert_eq!(bench.core.pool_usage().frames, 16);
    // All sixteen are clean. The next page takes the first of them.
    assert_eq!(bench.store(64, anonymous(1000)), Went::Pool);
    let source = bench.source(0);
    assert_eq!((block_of(extent(&source)), byte_in_block(extent(&source))), (0, 0));
    let source = bench.source(3);
    assert_eq!((block_of(extent(&source)), byte_in_block(extent(&source))), (0, 3000));
    assert!(in_pool(&bench.source(4)), "the next buffer is still there");
    let Source::Swapped { len, codec, .. } = bench.load(1) else { panic!("it was read from its block") };
    assert_eq!((len, codec), (1000, 1), "compressed");
}

/// A buffer that is being read is not used again.
#[test]
fn a_buffer_with_a_reader_stays() {
    let mut bench = Bench::new("cervera99", &[], 2, 1000);
    (0..8).for_each(|page| assert_eq!(bench.store(page, anonymous(1000)), Went::Pool));
    assert!(in_pool(&bench.begin_load(0)));
    // The other buffer is taken.
    bench.store(8, anonymous(1000));
    assert!(!in_pool(&bench.source(4)) && in_pool(&bench.source(1)));
    bench.end_load(0);
}

/// Section 2.4, the authors' first prototype: a block that was read takes the oldest clean buffer,
/// and its other pages are found there.
#[test]
fn a_block_that_was_read_can_be_cached() {
    let mut bench = Bench::new("cervera99", &["swap_format.cache_reads=1"], 4, 1000);
    (0..32).for_each(|page| assert_eq!(bench.store(page, anonymous(1000)), Went::Pool));
    let cached = |bench: &mut Bench, page| {
        let read = extent(&bench.load(page));
        bench.core.cache_read(read).map(|(_, grew)| grew.frames)
    };
    assert!(in_pool(&bench.source(16)) && !in_pool(&bench.source(1)));
    assert_eq!(cached(&mut bench, 0), Some(0), "the pool has all of its frames");
    assert!(in_pool(&bench.source(1)) && !in_pool(&bench.source(16)), "the oldest of the four has made room");
    assert!(in_pool(&bench.source(20)));
    // The next block takes the buffer after that. Nobody reads it meanwhile.
    let (other, read) = (bench.begin_load(5), extent(&bench.load(4)));
    assert!(!in_pool(&other) && bench.core.cache_read(read).is_none(), "another thread reads the block");
    bench.end_load(5);
    assert_eq!(cached(&mut bench, 6), Some(0));
    // The last page of a block takes it along.
    (1..4).for_each(|page| _ = bench.load(page));
    assert_eq!(bench.core.pool_usage().frames, 3);
    assert_eq!(cached(&mut bench, 8), Some(1), "a fresh frame");
    bench.core.check();
}

/// If all buffers are dirty, a read has some cleaned, but waits for none.
#[test]
fn a_read_has_buffers_cleaned() {
    let overrides = ["swap_format.cache_reads=1", "replacement.threshold_percent=100"];
    let mut bench = Bench::new("cervera99", &overrides, 2, 1000);
    (0..8).for_each(|page| assert_eq!(bench.store(page, anonymous(1000)), Went::Pool));
    // Both buffers are clean. Two pages make them dirty, and only one of them full.
    [(8, 1000), (9, 3200)].into_iter().for_each(|(page, len)| _ = bench.store(page, anonymous(len)));
    let (read, written) = (extent(&bench.load(0)), bench.written.len());
    assert!(!bench.core.wants_room());
    assert!(bench.core.cache_read(read).is_none() && bench.core.wants_room());
    bench.write_back();
    assert_eq!(bench.written.len(), written + 1, "the full one");
    let read = extent(&bench.load(1));
    assert!(bench.core.cache_read(read).is_some() && in_pool(&bench.source(2)));
}

/// Rules 16 and 17: the block is freed with its last page.
#[test]
fn the_last_page_frees_its_block() {
    let mut bench = Bench::new("cervera99", &[], 16, 1000);
    (0..32).for_each(|page| _ = bench.store(page, anonymous(1000)));
    assert_eq!(bench.core.blocks_in_use(), 8);
    (0..3).for_each(|page| bench.free(page));
    assert_eq!(bench.core.blocks_in_use(), 8);
    bench.free(3);
    assert_eq!(bench.core.blocks_in_use(), 7);
    // 5.13: its clean buffer is freed, too.
    assert_eq!(bench.core.pool_usage().frames, 7);
}

/// 5.13: a dirty buffer whose pages are all freed is dropped without a write.
#[test]
fn what_is_freed_in_time_is_never_written() {
    let mut bench = Bench::new("cervera99", &[], 16, 1000);
    (0..20).for_each(|page| _ = bench.store(page, anonymous(1000)));
    (0..20).for_each(|page| bench.free(page));
    assert_eq!((bench.written.len(), bench.core.pool_usage().frames, bench.core.blocks_in_use()), (0, 0, 0));
}

/// 2.5: with all ratios above one half no buffer holds two pages.
#[test]
fn no_gain_above_one_half() {
    let mut bench = Bench::new("cervera99", &[], 16, 1000);
    (0..100).for_each(|page| assert_eq!(bench.store(page, anonymous(2056)), Went::Pool));
    assert_eq!(bench.counters().to_swap as usize, bench.written.len());
}

/// Rules 1 to 3: a page is accepted only if a whole block is certain for it (5.14), and if the
/// table of pages has room.
#[test]
fn a_full_device_refuses() {
    let mut bench = Bench::new("cervera99", &[], 4, 6);
    let went: Vec<Went> = (0..14).map(|page| bench.store(page, anonymous(4000))).collect();
    assert!(went[..6].iter().all(|&went| went == Went::Pool), "{went:?}");
    assert!(went[6..].iter().all(|&went| went == Went::Waits), "{went:?}");
    let mut table = Bench::new("cervera99", &[], 64, 8);
    let taken = (0..40).filter(|&page| table.store(page, anonymous(100)) == Went::Pool).count();
    assert_eq!(taken, 16, "pages for twice the size of the device");
}

/// Rule 18: a page that is freed while its buffer is being written is gone after the write.
#[test]
fn freed_while_it_is_written() {
    let mut bench = Bench::new("cervera99", &[], 16, 1000);
    bench.under_way = Some(Vec::new());
    (0..32).for_each(|page| _ = bench.store(page, anonymous(1000)));
    let writes = bench.under_way.take().unwrap();
    assert_eq!(writes.len(), 32);
    (0..4).for_each(|page| bench.free(page));
    assert_eq!(bench.core.blocks_in_use(), 8, "until then its block is held");
    writes.into_iter().for_each(|write| bench.end_write(&write, true));
    assert_eq!(bench.core.blocks_in_use(), 7);
    bench.core.check();
}

/// Rule 2: no page is freed while its block is being read; the thread that unmaps it waits.
#[test]
#[should_panic(expected = "was not drained")]
fn rule_2_not_freed_while_it_is_read() {
    let mut bench = Bench::new("cervera99", &[], 4, 1000);
    (0..20).for_each(|page| _ = bench.store(page, anonymous(1000)));
    assert!(!in_pool(&bench.begin_load(0)), "its block is being read");
    bench.free(0);
}

/// A failed write changes nothing.
#[test]
fn a_write_that_fails() {
    let mut bench = Bench::new("cervera99", &[], 16, 1000);
    bench.under_way = Some(Vec::new());
    (0..32).for_each(|page| _ = bench.store(page, anonymous(1000)));
    let writes = bench.under_way.take().unwrap();
    writes.into_iter().for_each(|write| bench.end_write(&write, false));
    bench.core.check();
    assert!((0..32).all(|page| in_pool(&bench.source(page))));
    assert_eq!((bench.core.blocks_in_use(), bench.counters().to_swap), (0, 0));
}

/// A device without space for more blocks takes those that it has.
#[test]
fn blocks_that_the_device_refuses_are_not_tried_again() {
    let mut bench = Bench::new("cervera99", &["replacement.threshold_percent=100"], 16, 1000);
    (0..4).for_each(|page| bench.store_only(page, anonymous(4000)));
    bench.write_back();
    assert_eq!((bench.counters().to_swap, bench.core.blocks_in_use(), bench.core.blocks_free()), (4, 4, 996));
    // Two pages in each buffer; those of the first are freed while it is written.
    (10..16).for_each(|page| bench.store_only(page, anonymous(2000)));
    bench.under_way = Some(Vec::new());
    bench.write_back();
    let writes = bench.under_way.replace(Vec::new()).unwrap();
    assert_eq!(writes.len(), 6);
    (10..12).for_each(|page| bench.free(page));
    writes.iter().for_each(|write| bench.refuse(write));
    bench.core.check();
    assert!((12..16).all(|page| in_pool(&bench.source(page))));
    assert_eq!((bench.core.blocks_in_use(), bench.core.blocks_free()), (4, 0));
    assert_eq!(bench.write_back(), 0, "no block is left");
    assert_eq!(bench.store(20, anonymous(2000)), Went::Waits);
    // A block that the device has is free.
    bench.load(2);
    bench.under_way = None;
    bench.written.clear();
    bench.write_back();
    assert_eq!((bench.written.as_slice(), bench.core.blocks_free()), (&[2][..], 0));
    bench.core.check();
}

#[test]
fn due_buffers_that_got_empty() {
    let mut bench = Bench::new("cervera99", &[], 16, 1000);
    (0..32).for_each(|page| bench.store_only(page, anonymous(1000)));
    (0..4).for_each(|page| bench.free(page));
    bench.write_back();
    bench.core.check();
}

#[test]
fn due_buffers_that_got_empty_and_were_begun_again() {
    let mut bench = Bench::new("cervera99", &[], 16, 1000);
    (0..32).for_each(|page| bench.store_only(page, anonymous(1000)));
    (0..4).for_each(|page| bench.free(page));
    bench.store_only(40, anonymous(1000));
    bench.under_way = Some(Vec::new());
    bench.write_back();
    let under_way = bench.under_way.take().unwrap();
    under_way.into_iter().for_each(|victim| bench.end_write(&victim, false));
    bench.core.check();
}

/// 5.14: a buffer whose write failed has a reserved block again, before a new page can get that
/// block.
#[test]
fn a_write_that_fails_on_a_full_device() {
    let mut bench = Bench::new("cervera99", &["replacement.threshold_percent=100"], 4, 2);
    (0..2).for_each(|page| bench.store_only(page, anonymous(4000)));
    bench.under_way = Some(Vec::new());
    bench.write_back();
    let writes = bench.under_way.take().unwrap();
    assert_eq!(writes.len(), 2);
    bench.end_write(&writes[0], false);
    bench.end_write(&writes[1], false);
    assert_eq!(bench.store(2, anonymous(4000)), Went::Waits, "both blocks are promised");
    bench.write_back();
    assert_eq!(bench.counters().to_swap, 2);
}

/// Buffers that get a block are written, although there is none for the others.
#[test]
fn not_all_buffers_have_a_block() {
    let mut bench = Bench::new("cervera99", &["replacement.threshold_percent=100"], 4, 3);
    // Two pages in a buffer; one is being read while it is written, and stays.
    for page in 0..2 {
        bench.store_only(page, anonymous(2000));
    }
    bench.store_only(2, anonymous(4000));
    bench.store_only(3, anonymous(4000));
    bench.begin_load(1);
    bench.write_back();
    // Blocks 0 to 2 are in use; the buffer of page 1 has no block any more.
    assert_eq!((bench.counters().to_swap, bench.core.blocks_in_use()), (3, 3));
    bench.retry_load(1);
    bench.free(2);
    // One block is free, for page 1 or another page.
    bench.store(4, anonymous(4000));
    bench.write_back();
    bench.write_back();
    assert_eq!((bench.counters().to_swap, bench.core.blocks_in_use()), (4, 3));
}
