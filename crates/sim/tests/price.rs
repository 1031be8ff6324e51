//! Prices against the numbers in papers, and the waits of the model.

use memfit_sim::cost::CostTable;
use memfit_sim::device::{Device, Transfers, DEVICES};
use memfit_sim::price::{price, Codings, Counts, FaultCounts, Price};

const LZO: u8 = 9;
const ZSTD_STRONG: u8 = 14;
const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

fn transfers(operations: u64, sequential: u64, each: u64) -> Transfers {
    Transfers { operations, sequential, bytes: operations * each }
}

fn device(name: &str) -> Device {
    Device::find(name).unwrap()
}

fn costs(name: &str) -> CostTable {
    CostTable::find(name).unwrap()
}

fn han(counts: &Counts) -> Price {
    price(counts, &costs("han18"), &device("emmc-han"), 1000 * SECOND)
}

/// The five operations of Han et al.: pages from files, in from and out to storage, out of and in
/// to zRAM.
fn operations(fi: u64, si: u64, so: u64, zi: u64, zo: u64) -> Counts {
    let mut counts = Counts {
        faults: FaultCounts { file: fi, swap: si, pool: zi, ..FaultCounts::default() },
        file_reads: transfers(fi, 0, 4096),
        swap_reads: transfers(si, 0, 4096),
        writes: transfers(so, 0, 4096),
        evicted_pages: so + zo,
        ..Counts::default()
    };
    counts.waited.decompress(LZO, zi);
    counts.beside.compress(LZO, zo);
    counts
}

/// Milliseconds with this many decimals, rounded.
fn ms(ns: u64, decimals: usize) -> String {
    format!("{:.decimals$}", ns as f64 / 1e6)
}

#[test]
fn han_3_to_6_a_page() {
    let cost = |counts: Counts| ms(han(&counts).operations_ns(), 4);
    assert_eq!(cost(operations(1, 0, 0, 0, 0)), "0.1953");
    assert_eq!(cost(operations(0, 1, 0, 0, 0)), "0.1953");
    assert_eq!(cost(operations(0, 0, 1, 0, 0)), "0.3906");
    assert_eq!(cost(operations(0, 0, 0, 1, 0)), "0.0390");
    assert_eq!(cost(operations(0, 0, 0, 0, 1)), "0.0781");
}

#[test]
fn han_8_10_12_16_schemes() {
    let cost = |counts: Counts| ms(han(&counts).operations_ns(), 2);
    assert_eq!(cost(operations(1000, 0, 0, 0, 0)), "195.30", "equation 8, no swap");
    assert_eq!(cost(operations(1000, 100, 200, 0, 0)), "292.95", "equation 10, storage");
    assert_eq!(cost(operations(1000, 0, 0, 500, 600)), "261.66", "equation 12, zRAM");
    assert_eq!(cost(operations(1000, 100, 200, 500, 600)), "359.31", "equation 16, hybrid");
}

#[test]
fn han_14_zswap_compresses_what_it_reads_and_decompresses_what_it_writes() {
    let mut counts = operations(1000, 100, 200, 500, 600);
    counts.beside.compress(LZO, 100);
    counts.beside.decompress(LZO, 200);
    assert_eq!(ms(han(&counts).operations_ns(), 1), "374.9");
}

#[test]
fn han_who_waits_for_what() {
    let priced = han(&operations(1000, 100, 200, 500, 600));
    assert_eq!(priced.program_ns, 1100 * 195_300 + 500 * 39_000, "reads and what is decompressed");
    assert_eq!(priced.device_read_ns, 1100 * 195_300);
    assert_eq!(priced.pager_ns, 600 * 78_100);
    assert_eq!(priced.device_write_ns, 200 * 390_600);
    assert_eq!(priced.stalled_ns, 0);
}

#[test]
fn han_zram_as_a_device_costs_what_it_costs_as_a_pool() {
    let (zram, pool) = (device("zram-han"), costs("han18").codec(LZO));
    assert_eq!(zram.read_ns(&transfers(10, 0, 4096), 1), 10 * pool.decompress_ns);
    assert_eq!(zram.write_ns(&transfers(10, 0, 4096), 1), 10 * pool.compress_ns);
}

#[test]
fn han_wear() {
    let days = |bytes: u64| {
        let writes = Transfers { operations: bytes / 4096, sequential: 0, bytes };
        let counts = Counts { writes, ..Counts::default() };
        let priced = price(&counts, &costs("han18"), &device("emmc-han"), 2 * DAY);
        assert_eq!(priced.written_bytes, bytes);
        priced.days_to_rated_writes.unwrap()
    };
    const GB: u64 = 1 << 30;
    assert_eq!(days(9 * GB / 2), 4096.0, "hybrid: 4.5 GB in 48 hours");
    assert_eq!(days(29 * GB) as u64, 635, "zSWAP: 29 GB");
}

/// Random reads, each of which makes room by a write. Tuduce and Gross give sizes, accesses and
/// seconds of their benchmark `rand` without compression, on the G5 with 1 GB. Linux writes some of
/// the pages several at once, so the time lies between the two bounds.
#[test]
fn tuduce_rand_without_compression() {
    for (gb, accesses, seconds) in
        [(1.2, 200_000.0, 538.62), (1.4, 1_200_000.0, 5_484.75), (1.8, 6_000_000.0, 47_617.38)]
    {
        let misses = (accesses * (1.0 - 1.0 / gb)) as u64;
        let waited = |sequential| {
            let counts = Counts {
                faults: FaultCounts { swap: misses, ..FaultCounts::default() },
                swap_reads: transfers(misses, 0, 4096),
                writes: transfers(misses, sequential, 4096),
                ..Counts::default()
            };
            price(&counts, &costs("measured"), &device("hdd-2005"), 0).program_ns as f64 / 1e9
        };
        let (least, most) = (waited(misses), waited(0));
        assert!(least < seconds && seconds < most, "{gb} GB: {least:.0} < {seconds} < {most:.0}");
    }
}

/// Cervera et al. pay one seek for all full buffers: 8 of 4 KiB for 32 pages, compared with 32
/// single pages.
#[test]
fn cervera_one_seek_for_many_pages() {
    let (disk, lzo) = (device("hdd-1999"), costs("cervera99").codec(LZO));
    let plain = disk.write_ns(&transfers(32, 0, 4096), 1);
    let cleaning = disk.write_ns(&transfers(1, 0, 8 * 4096), 1) + 32 * lzo.compress_ns;
    assert!(cleaning * 15 < plain, "{cleaning} ns against {plain}");
    // A page found in the cache, compared with one read from the disk.
    assert!(disk.read_ns(&transfers(1, 0, 4096), 1) > 200 * lzo.decompress_ns);
}

/// ezswap assumes a cost of 1 for a page that needs a read to come back, and of 4 for one that
/// needs a write first.
#[test]
fn ezswap_an_anonymous_page_costs_four_times_a_clean_one() {
    let (emmc, page) = (device("emmc-ezswap"), transfers(1, 0, 4096));
    let read = emmc.read_ns(&page, 1);
    let both = read + emmc.write_ns(&page, 1);
    assert!(both.abs_diff(4 * read) < 4, "{both} ns against {read}");
}

/// Operations of 4 KiB a second, one at a time and as many at once as the device takes. All rates
/// one at a time are the published ones except those of ufs-3.1. All rates at once are published
/// except three: the queue depth, common to both directions, is chosen for the writes. So reads of
/// ssd-sata come to half of the published 98 000 and those of ssd-nvme to nine tenths of a million.
#[test]
fn published_rates() {
    let thousand = transfers(1000, 0, 4096);
    for (name, reads, writes, reads_at_once, writes_at_once) in [
        ("sd-a1", 1_500, 500, 1_500, 500),
        ("emmc-5.1", 11_000, 13_000, 11_000, 13_000),
        ("ufs-3.1", 11_000, 8_129, 100_000, 70_000),
        ("ssd-sata", 13_000, 36_000, 47_100, 85_200),
        ("ssd-nvme", 22_000, 60_000, 913_000, 1_000_000),
    ] {
        let device = device(name);
        let rates = [
            (device.read_ns(&thousand, 1), reads),
            (device.write_ns(&thousand, 1), writes),
            (device.read_ns(&thousand, u64::MAX), reads_at_once),
            (device.write_ns(&thousand, u64::MAX), writes_at_once),
        ];
        for (ns, expected) in rates {
            let a_second = 1000 * SECOND / ns;
            assert!(a_second.abs_diff(expected) * 200 < expected, "{name}: {a_second} a second, not {expected}");
        }
    }
}

#[test]
fn a_program_waits_for_a_device_that_is_slower_than_it() {
    let counts = Counts { writes: transfers(1000, 0, 4096), ..Counts::default() };
    let writing = 1000 * (1_590_400 + 409_600);
    let of = |run_ns| price(&counts, &costs("measured"), &device("sd-a1"), run_ns);
    assert_eq!((of(writing).program_ns, of(writing).stalled_ns), (0, 0), "the run is as long as the writes");
    assert_eq!((of(SECOND).program_ns, of(SECOND).stalled_ns), (SECOND, SECOND), "half as long");
    assert_eq!(of(0).operations_ns(), writing, "the stall is no operation");
}

#[test]
fn a_program_waits_for_a_pager_that_is_slower_than_it() {
    let measured = costs("measured");
    let mut counts = Counts { entropy_estimates: 10, evicted_pages: 1000, ..Counts::default() };
    counts.beside.compress(ZSTD_STRONG, 1000);
    counts.beside.compress(0, 1000);
    let work = 10 * measured.entropy_ns + 1000 * (measured.evict_ns() + measured.codec(ZSTD_STRONG).compress_ns);
    let priced = price(&counts, &measured, &device("ssd-nvme"), 1_000_000);
    assert_eq!((priced.pager_ns, priced.stalled_ns, priced.program_ns), (work, work - 1_000_000, work - 1_000_000));
}

#[test]
fn each_fault_costs_its_source() {
    let (measured, disk) = (costs("measured"), device("hdd-1999"));
    let of = |faults: FaultCounts| price(&Counts { faults, ..Counts::default() }, &measured, &disk, 0).program_ns;
    let none = FaultCounts::default();
    for (faults, work) in [
        (FaultCounts { zero: 2, ..none }, measured.zero_ns),
        (FaultCounts { filled: 2, ..none }, measured.fill_ns),
        (FaultCounts { staged: 2, ..none }, measured.copy_ns),
        (FaultCounts { pool: 2, ..none }, measured.copy_ns),
        (FaultCounts { swap: 2, ..none }, measured.copy_ns),
        (FaultCounts { file: 2, ..none }, measured.copy_ns),
    ] {
        assert_eq!(of(faults), 2 * (measured.fault_ns + work), "{faults:?}");
    }
    let of = |around: FaultCounts| price(&Counts { around, ..Counts::default() }, &measured, &disk, 0).program_ns;
    assert_eq!(of(FaultCounts { staged: 1, pool: 1, swap: 1, file: 1, ..none }), 4 * measured.around_ns);
    assert_eq!(of(FaultCounts { zero: 3, filled: 2, ..none }), 3 * measured.zero_ns + 2 * measured.fill_ns);
}

#[test]
fn small_transfers_count_as_units() {
    let mut small = Transfers::default();
    small.add(100, false);
    small.add(200, true);
    assert_eq!((small.operations, small.random(), small.bytes), (2, 1, 300));
    assert_eq!(device("sd-a1").read_ns(&small, 1), 257_067 + 2 * 409_600);
    let counts = Counts { writes: small, ..Counts::default() };
    assert_eq!(price(&counts, &costs("measured"), &device("emmc-5.1"), DAY).written_bytes, 8192);
}

#[test]
fn reads_that_nobody_waits_for_are_the_devices_time() {
    let (han18, ssd, reads) = (costs("han18"), device("ssd-sata"), transfers(1000, 0, 4096));
    let beside = price(&Counts { beside_reads: reads, ..Counts::default() }, &han18, &ssd, SECOND);
    assert_eq!((beside.program_ns, beside.device_read_ns), (0, ssd.read_ns(&reads, 5)));
    let waited = price(&Counts { swap_reads: reads, ..Counts::default() }, &han18, &ssd, SECOND);
    assert_eq!((waited.program_ns, waited.device_read_ns), (ssd.read_ns(&reads, 1), ssd.read_ns(&reads, 1)));
}

#[test]
fn energy_and_wear_where_they_are_known() {
    let counts = Counts { swap_reads: transfers(3, 1, 4096), writes: transfers(2, 2, 4096), ..Counts::default() };
    let of = |name| price(&counts, &costs("han18"), &device(name), SECOND);
    assert_eq!(of("hdd-2005").energy_nj, Some(2 * 44_310_000), "sequential operations do not seek");
    assert_eq!(of("ssd-sata").energy_nj, None);
    assert_eq!(of("hdd-2005").days_to_rated_writes, None);
    assert!(of("ssd-sata").days_to_rated_writes.is_some());
    let worn_twice = Device { amplification_percent: 200, ..device("ssd-sata") };
    assert_eq!(worn_twice.days_to_rated_writes(300_000_000_000_000, DAY), Some(1.0));
}

#[test]
fn the_largest_counts_do_not_overflow() {
    let most = Transfers { operations: u64::MAX, sequential: u64::MAX / 2, bytes: u64::MAX };
    let mut codings = Codings::default();
    codings.compress(ZSTD_STRONG, u64::MAX);
    codings.decompress(255, u64::MAX);
    let counts = Counts {
        faults: FaultCounts { zero: u64::MAX, filled: 1, staged: 1, pool: 1, swap: u64::MAX, file: 1 },
        around: FaultCounts { zero: u64::MAX, swap: u64::MAX, ..FaultCounts::default() },
        waited: codings.clone(),
        beside: codings,
        evicted_pages: u64::MAX,
        entropy_estimates: u64::MAX,
        swap_reads: most,
        file_reads: most,
        beside_reads: most,
        writes: most,
    };
    for entry in DEVICES {
        let priced = price(&counts, &costs("measured"), &device(entry.name), u64::MAX);
        assert_eq!((priced.program_ns, priced.operations_ns()), (u64::MAX, u64::MAX));
    }
}
