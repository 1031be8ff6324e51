//! Fault-around: which neighbours come with a page. `streams.rs` decides how many.

use super::bench::{anonymous, file, in_pool, Bench, Contents};
use memfit_core::Source;
use std::ops::Range;

const PAGES: Range<u64> = 0..100;

/// Neighbouring pages in the pool; page 91 has other contents.
fn bench(overrides: &[&str], other: Contents) -> Bench {
    let common = &["swap_format=raw-slots", "admission.raw_percent=0"];
    let mut bench = Bench::new("memfit", &[common, overrides].concat(), 256, 10_000);
    bench.stride = 1;
    for page in PAGES.rev() {
        bench.store(page, if page == 91 { other } else { anonymous(1000) });
    }
    bench
}

/// The pages that a fault brings, in the order of the core's answer.
fn fault(bench: &mut Bench, page: u64, limit: Range<u64>, most: u32) -> Vec<u64> {
    bench.fault(page, limit, most).into_iter().map(|(page, _)| page).collect()
}

/// The faults of a reader that goes downwards.
fn descend(bench: &mut Bench, pages: Range<u64>, limit: Range<u64>, most: u32) -> Vec<Vec<u64>> {
    let mut faults: Vec<Vec<u64>> = Vec::new();
    for page in pages.rev() {
        if !faults.concat().contains(&page) {
            faults.push(fault(bench, page, limit.clone(), most));
        }
    }
    faults
}

/// The faulting page, and this many pages below it.
fn with_below(page: u64, below: u64) -> Vec<u64> {
    [page].into_iter().chain(page - below..page).collect()
}

#[test]
fn pages_below_are_told_last_and_in_ascending_order() {
    let mut bench = bench(&[], anonymous(1000));
    let expected = [(99, 0), (98, 0), (97, 1), (95, 1), (93, 3), (89, 3), (85, 7)].map(|(at, n)| with_below(at, n));
    assert_eq!(descend(&mut bench, 78..100, PAGES, u32::MAX), expected, "they double like those above");
    // Two pages are skipped. After a fault on one of them, skipped pages come along.
    assert_eq!(fault(&mut bench, 75, PAGES, u32::MAX), with_below(75, 3));
    assert_eq!(fault(&mut bench, 76, PAGES, u32::MAX), [76, 77]);
    assert_eq!(fault(&mut bench, 69, PAGES, u32::MAX), [&[69, 70, 71], &with_below(69, 3)[1..]].concat());
    assert_eq!(bench.counters().around_pages, 1 + 1 + 3 + 3 + 7 + 3 + 1 + 2 + 3);
}

#[test]
fn not_more_than_what_is_registered_and_asked_for() {
    let (mut first, mut second) = (bench(&[], anonymous(1000)), bench(&[], anonymous(1000)));
    let faults = descend(&mut first, 92..100, 92..100, u32::MAX);
    assert_eq!(faults[4], [93, 92], "nothing below the registered range");
    descend(&mut second, 94..100, PAGES, u32::MAX);
    assert_eq!(fault(&mut second, 93, PAGES, 3), [93, 91, 92]);
    assert_eq!(fault(&mut second, 90, PAGES, 1), [90]);
}

#[test]
fn pages_in_memory_on_a_device_and_of_files_are_not_brought_from_above() {
    let mut resident = bench(&[], anonymous(1000));
    resident.load(91);
    let mut swapped = bench(&[], anonymous(4096));
    assert!(matches!(swapped.source(91), Source::Swapped { .. }));
    let mut dropped = bench(&["classes=file-dropped"], file(4096));
    assert_eq!(dropped.source(91), Source::File);
    for (what, bench) in [("resident", &mut resident), ("swapped", &mut swapped), ("of a file", &mut dropped)] {
        let faults = descend(bench, 92..100, PAGES, u32::MAX);
        assert_eq!(faults[4], [93, 92], "page 91 is {what}: {faults:?}");
        assert!(in_pool(&bench.source(90)));
    }
}

#[test]
fn a_fault_that_is_asked_about_again_brings_the_same() {
    let mut bench = bench(&[], anonymous(1000));
    descend(&mut bench, 94..100, PAGES, u32::MAX);
    let first = bench.begin_fault(93, PAGES, u32::MAX);
    first.iter().for_each(|&(page, _)| bench.retry_load(page));
    assert_eq!(bench.fault(93, PAGES, u32::MAX), first);
}
