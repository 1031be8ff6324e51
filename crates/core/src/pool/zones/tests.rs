//! The rules of the scheme by number, checked by hand.

use super::super::{Unit, UnitView};
use super::*;

/// A pool of zones of 4 MiB in blocks of 128 bytes, as in the paper's preset.
fn of_zones(zones: u32, entries_per_frame: u32) -> Zones {
    Zones::new(&PoolParams { entries_per_frame, ..PoolParams::new(zones * 1024, zones * 1024) })
}

/// Zones of one frame in four blocks of 1024 bytes, small enough to be shown as a whole.
fn tiny(area: u32, limit: u32, entries_per_frame: u32) -> Zones {
    let params = PoolParams { zone_frames: 1, block_bytes: 1024, entries_per_frame, ..PoolParams::new(area, 9) };
    let mut pool = Zones::new(&params);
    pool.set_limit(limit);
    pool
}

/// Places a page of `blocks` blocks of 1024 bytes, less a byte.
fn place(pool: &mut Zones, blocks: u32) -> Placed {
    let placed = pool.place(blocks * 1024 - 1).expect("there is room");
    pool.check();
    placed
}

/// The zones as text: `.` is a free block, and each page has the letter of its handle.
fn picture(pool: &Zones) -> String {
    let mut zones: Vec<(u32, Vec<u8>)> =
        pool.chain.iter().map(|zone| (zone, vec![b'.'; pool.blocks_per_zone() as usize])).collect();
    for (handle, place) in pool.handles.iter() {
        let home = pool.unpack(place);
        let (_, blocks) = zones.iter_mut().find(|(zone, _)| *zone == home.zone).expect("its zone is in the chain");
        pool.zone(home.zone).blocks(home.first).for_each(|block| blocks[block as usize] = b'a' + handle.raw() as u8);
    }
    zones.into_iter().map(|(_, blocks)| String::from_utf8(blocks).expect("letters")).collect::<Vec<_>>().join(" ")
}

fn remove(pool: &mut Zones, letter: char) -> Span {
    let freed = pool.remove(Handle::from_raw(letter as u32 - 'a' as u32));
    pool.check();
    freed
}

/// Moves as letters, and the freed spans.
fn compact(pool: &mut Zones, max_moves: usize, stay: &str) -> (String, Vec<Span>) {
    let letter = |handle: Handle| (b'a' + handle.raw() as u8) as char;
    let (mut out, mut freed) = (Vec::new(), Vec::new());
    pool.compact(max_moves, &|handle| !stay.contains(letter(handle)), &mut out, &mut freed);
    pool.check();
    for step in &out {
        assert_eq!(step.from.len(), step.to.len());
        let all = |runs: &Runs| runs.parts().flat_map(|(at, part)| at..at + part.len() as u64).collect::<Vec<_>>();
        let (old, new) = (all(&step.from), all(&step.to));
        assert!(old.iter().all(|byte| !new.contains(byte)), "{step:?} overlaps");
    }
    (out.into_iter().map(|step| letter(step.handle)).collect(), freed)
}

fn at(byte: u32) -> Slot {
    Slot { frame: byte / FRAME_BYTES, offset: (byte % FRAME_BYTES) as u16 }
}

/// Rules 1, 3, 5 and section 2.4: pages of 2049 bytes take 17 blocks of 128, and 1927 of them fill
/// a zone except for 9 blocks.
#[test]
fn z1_pages_of_2049_bytes() {
    let mut pool = of_zones(1, 4);
    for page in 0..1927u32 {
        let placed = pool.place(2049).unwrap();
        assert_eq!(placed.runs, Runs::one(at(page * 17 * 128), 2049));
        assert_eq!(placed.grew, if page == 0 { Span { first: 0, frames: 1024 } } else { Span::EMPTY });
    }
    let full = pool.place(2049).unwrap_err();
    assert_eq!(full, PoolFull { frames_used: 1024, frames_needed: 1024, frames_max: 1024 });
    assert_eq!(pool.zone(0).free(), 9);
    let usage = pool.usage();
    assert_eq!((usage.zpages, usage.frames), (1927, 1024));
    assert_eq!((usage.stored_bytes, usage.used_bytes), (1927 * 2049, 1927 * 17 * 128));
    // A page for which the 9 blocks are enough gets them.
    assert_eq!(pool.place(9 * 128 + 1), Err(full));
    assert_eq!(pool.place(9 * 128).unwrap().runs, Runs::one(at(1927 * 17 * 128), 9 * 128));
    pool.check();
}

/// Rule 2 and section 2.4: pages of 100 bytes run out of entries long before blocks.
#[test]
fn z2_entries_run_out_first() {
    for (entries_per_frame, pages) in [(4, 4096u32), (9, 9216)] {
        let mut pool = of_zones(1, entries_per_frame);
        (0..pages).for_each(|_| assert!(pool.place(100).is_ok()));
        assert!(pool.place(100).is_err());
        assert_eq!((pool.zone(0).used(), pool.zone(0).free()), (pages, 32_768 - pages));
        assert_eq!(pool.usage().used_bytes, u64::from(pages) * 128);
        // A freed entry is used again; a zone without entries counts as one without blocks.
        pool.remove(Handle::from_raw(77));
        assert_eq!(pool.place(4096).unwrap().handle, Handle::from_raw(77));
        assert!(pool.place(1).is_err());
        pool.check();
    }
}

/// Rules 2 and 5: the first zone of the chain with room, however much room others have.
#[test]
fn z2_first_fit_from_the_beginning_of_the_chain() {
    let mut pool = tiny(9, 9, 4);
    for blocks in [3, 2, 4, 1, 1] {
        place(&mut pool, blocks);
    }
    assert_eq!(picture(&pool), "aaad bbe. cccc");
    place(&mut pool, 2);
    assert_eq!(picture(&pool), "aaad bbe. cccc ff..");
    remove(&mut pool, 'a');
    remove(&mut pool, 'b');
    // Freed: a first, then b. So b's number is used first, then a's, then the letters after them.
    assert_eq!(picture(&pool), "...d ..e. cccc ff..");
    for blocks in [2, 2, 1, 1, 1] {
        place(&mut pool, blocks);
    }
    assert_eq!(picture(&pool), "bbgd aaeh cccc ffi.");
    // Two entries to a zone: the third page goes to the next zone although there are blocks.
    let mut pool = tiny(9, 9, 2);
    for blocks in [1, 1, 1, 3] {
        place(&mut pool, blocks);
    }
    assert_eq!(picture(&pool), "ab.. cddd");
}

/// Rule 6: blocks and entry go back when a page leaves.
#[test]
fn z6_a_load_gives_blocks_and_entry_back() {
    let mut pool = tiny(1, 1, 2);
    place(&mut pool, 1);
    place(&mut pool, 3);
    assert!(pool.place(1).is_err());
    assert_eq!(remove(&mut pool, 'b'), Span::EMPTY);
    assert_eq!((pool.zone(0).free(), pool.zone(0).pages()), (3, 1));
    place(&mut pool, 3);
    assert_eq!(picture(&pool), "abbb");
}

/// Rule 12: the zone with the fewest used blocks is emptied into the others by first fit.
#[test]
fn z12_shrink_deletes_the_zone_with_the_fewest_used_blocks() {
    let mut pool = tiny(9, 4, 4);
    for blocks in [3, 2, 1, 3, 1, 1, 1, 3] {
        place(&mut pool, blocks);
    }
    assert_eq!(picture(&pool), "aaac bbef dddg hhh.");
    assert_eq!([remove(&mut pool, 'c'), remove(&mut pool, 'd')], [Span::EMPTY; 2]);
    assert_eq!(picture(&pool), "aaa. bbef ...g hhh.");
    let before: Vec<(Handle, u32)> =
        pool.handles.iter().map(|(handle, place)| (handle, u32::from(place.len))).collect();
    // A limit equal to the use condemns no zone; one frame less does.
    pool.set_limit(4);
    assert_eq!(pool.condemned, 0);
    pool.set_limit(3);
    assert!(pool.zone(2).condemned && pool.condemned == 1);
    pool.check();
    let (moves, freed) = compact(&mut pool, usize::MAX, "");
    assert_eq!((moves.as_str(), freed), ("g", vec![Span { first: 2, frames: 1 }]));
    assert_eq!(picture(&pool), "aaag bbef hhh.");
    // Nothing else has moved, and handles stay; so does any order kept by handle, such as LRU.
    let after: Vec<(Handle, u32)> = pool.handles.iter().map(|(handle, place)| (handle, u32::from(place.len))).collect();
    assert_eq!(before, after);
    assert_eq!(pool.usage().frames, 3);
    // Rules 13 and 14: the next zone has the memory and number of the deleted one, but is the last
    // of the chain.
    pool.set_limit(4);
    assert_eq!(place(&mut pool, 4).grew, Span { first: 2, frames: 1 });
    assert_eq!(picture(&pool), "aaag bbef hhh. dddd");
}

/// Resolution 5.16: of zones with equally many used blocks the later one of the chain, whatever its
/// number.
#[test]
fn z12_ties_go_to_the_later_zone() {
    let mut pool = tiny(9, 9, 4);
    for blocks in [4, 3, 3, 3] {
        place(&mut pool, blocks);
    }
    remove(&mut pool, 'a');
    place(&mut pool, 3);
    assert_eq!(picture(&pool), "bbb. ccc. ddd. aaa.");
    let condemned = |pool: &Zones| pool.chain.iter().map(|zone| pool.zone(zone).condemned).collect::<Vec<_>>();
    pool.set_limit(2);
    assert_eq!(condemned(&pool), [false, false, true, true]);
    // Pardons come in the opposite order.
    pool.set_limit(3);
    assert_eq!(condemned(&pool), [false, false, false, true]);
    pool.set_limit(0);
    assert_eq!(condemned(&pool), [true; 4]);
    assert!(pool.place(1).is_err());
    // When a zone runs empty, one zone less is in excess.
    pool.set_limit(3);
    assert_eq!(remove(&mut pool, 'b'), Span { first: 1, frames: 1 });
    assert_eq!(condemned(&pool), [false; 3]);
}

/// Rules 12 and 15, resolution 5.17: pages that do not fit elsewhere stay, until pages leave or the
/// limit rises.
#[test]
fn z12_what_does_not_fit_stays() {
    let mut pool = tiny(9, 3, 4);
    for blocks in [3, 3, 2, 1, 1] {
        place(&mut pool, blocks);
    }
    assert_eq!(picture(&pool), "aaad bbbe cc..");
    pool.set_limit(2);
    assert!(pool.place(1).is_err(), "a condemned zone takes no page");
    assert_eq!(compact(&mut pool, usize::MAX, ""), (String::new(), vec![]));
    // After the limit rises the zone takes pages again.
    pool.set_limit(3);
    place(&mut pool, 1);
    assert_eq!(picture(&pool), "aaad bbbe ccf.");
    pool.set_limit(2);
    // Room for one of two pages: the smaller one moves, although it is the second.
    remove(&mut pool, 'd');
    assert_eq!(compact(&mut pool, usize::MAX, ""), ("f".into(), vec![]));
    assert_eq!(picture(&pool), "aaaf bbbe cc..");
    // Room for both, but one is not movable, or no moves are allowed.
    remove(&mut pool, 'b');
    assert_eq!(compact(&mut pool, usize::MAX, "c"), (String::new(), vec![]));
    assert_eq!(compact(&mut pool, 0, ""), (String::new(), vec![]));
    assert_eq!(compact(&mut pool, 1, ""), ("c".into(), vec![Span { first: 2, frames: 1 }]));
    assert_eq!(picture(&pool), "aaaf cc.e");
}

/// Moves never exceed the maximum, and the next call continues.
#[test]
fn z12_in_steps() {
    let mut pool = tiny(9, 2, 4);
    for _ in 0..8 {
        place(&mut pool, 1);
    }
    "bcdh".chars().for_each(|letter| assert!(remove(&mut pool, letter).is_empty()));
    assert_eq!(picture(&pool), "a... efg.");
    pool.set_limit(1);
    // The first zone has fewer used blocks: it is condemned, not the last.
    assert_eq!(compact(&mut pool, usize::MAX, "a"), (String::new(), vec![]));
    remove(&mut pool, 'f');
    remove(&mut pool, 'g');
    // The condemned zone stays the same, although it is the fuller one now.
    assert_eq!(compact(&mut pool, 1, ""), ("a".into(), vec![Span { first: 0, frames: 1 }]));
    assert_eq!(picture(&pool), "e.a.");
    let mut pool = tiny(9, 2, 4);
    for _ in 0..7 {
        place(&mut pool, 1);
    }
    "abc".chars().for_each(|letter| assert!(remove(&mut pool, letter).is_empty()));
    remove(&mut pool, 'g');
    pool.set_limit(1);
    assert_eq!(compact(&mut pool, usize::MAX, ""), ("d".into(), vec![Span { first: 0, frames: 1 }]));
    assert_eq!(picture(&pool), "efd.");
}

/// Rule 13: the pool grows by whole zones, and only if the limit has room for one.
#[test]
fn z13_grows_by_whole_zones() {
    let mut pool = of_zones(3, 4);
    pool.set_limit(0);
    let full = PoolFull { frames_used: 0, frames_needed: 1024, frames_max: 0 };
    assert_eq!(pool.place(1), Err(full));
    pool.set_limit(2047);
    let first = pool.place(4096).unwrap();
    assert_eq!(first.grew, Span { first: 0, frames: 1024 });
    (1..1024).for_each(|_| assert!(pool.place(4096).unwrap().grew.is_empty()));
    assert_eq!(pool.place(1), Err(PoolFull { frames_used: 1024, frames_needed: 1024, frames_max: 2047 }));
    pool.set_limit(2048);
    assert_eq!(pool.place(1).unwrap().grew, Span { first: 1024, frames: 1024 });
    // The area ends before the limit.
    pool.set_limit(u32::MAX);
    (0..2047).for_each(|_| assert!(pool.place(4096).is_ok()));
    assert_eq!(pool.place(4096), Err(PoolFull { frames_used: 3072, frames_needed: 1024, frames_max: 3072 }));
    pool.check();
}

/// Rule 14: tables are allocated and freed with the zones; the removal that empties a zone frees
/// it.
#[test]
fn z14_tables_go_with_the_zone() {
    let mut pool = of_zones(8, 4);
    let empty = pool.metadata_bytes();
    let handles: Vec<Handle> = (0..8 * 1024).map(|_| pool.place(4096).unwrap().handle).collect();
    let full = pool.metadata_bytes();
    // Entries and links of each zone.
    assert!(full > 8 * (4096 * 4 + 32_768 * 4) + 8 * 8192);
    let freed = |pool: &mut Zones, handles: &[Handle]| -> Vec<Span> {
        handles.iter().map(|handle| pool.remove(*handle)).filter(|span| !span.is_empty()).collect()
    };
    assert_eq!(freed(&mut pool, &handles[1024..2048]), [Span { first: 1024, frames: 1024 }]);
    assert_eq!(pool.usage().frames, 7 * 1024);
    assert!(pool.metadata_bytes() < full - (4096 * 4 + 32_768 * 4));
    pool.check();
    freed(&mut pool, &handles[..1024]);
    assert_eq!(freed(&mut pool, &handles[2048..]).len(), 6);
    assert_eq!(pool.usage().frames, 0);
    assert!(pool.metadata_bytes() < empty + 1000, "{} bytes", pool.metadata_bytes());
    pool.check();
}

/// A limit or an area below a zone makes smaller zones; a limit of 0 does not change their size.
#[test]
fn zones_that_are_smaller_than_asked() {
    let frames = |area, limit| zone_size(&PoolParams::new(area, limit)).0;
    assert_eq!([frames(4096, 2048), frames(4096, 0), frames(4096, 700), frames(300, 700)], [1024, 1024, 700, 300]);
    let mut pool = Zones::new(&PoolParams::new(2000, 700));
    assert_eq!(pool.place(1).unwrap().grew, Span { first: 0, frames: 700 });
    (1..700).for_each(|_| assert!(pool.place(4096).is_ok()));
    assert!(pool.place(4096).is_err());
    pool.check();
    // No more entries than blocks, nor than numbers for them.
    let entries = |zone_frames, block_bytes| {
        let params =
            PoolParams { zone_frames, block_bytes, entries_per_frame: 64, ..PoolParams::new(1 << 15, 1 << 15) };
        Zones::new(&params).entries
    };
    assert_eq!([entries(64, 4096), entries(64, 64), entries(16_384, 32)], [64, 4096, ENTRIES_MAX]);
    assert_eq!(ENTRIES_MAX, 524_288);
}

/// Rule 3 and resolution 5.10: the blocks of a page are linked, so that each free block is of use.
/// Those freed last are taken first.
#[test]
fn z3_the_blocks_of_a_page_are_linked() {
    let mut pool = tiny(9, 1, 4);
    for _ in 0..4 {
        place(&mut pool, 1);
    }
    remove(&mut pool, 'a');
    remove(&mut pool, 'c');
    assert_eq!(picture(&pool), ".b.d");
    let mut linked = Runs::one(at(2048), 1024);
    linked.push(at(0), 1023);
    assert_eq!(place(&mut pool, 2).runs, linked);
    assert_eq!(picture(&pool), "cbcd");
    assert_eq!(pool.runs(Handle::from_raw(2)), linked);
    // Blocks that follow each other in memory are one run.
    remove(&mut pool, 'b');
    remove(&mut pool, 'c');
    let mut linked = Runs::one(at(2048), 1024);
    linked.push(at(0), 2047);
    assert_eq!((place(&mut pool, 3).runs, picture(&pool).as_str()), (linked, "cccd"));
}

/// Rule 12: a page that moves out of a condemned zone is cut as the free blocks of the other are.
#[test]
fn z12_a_page_moves_to_scattered_blocks() {
    let mut pool = tiny(9, 2, 4);
    for blocks in [1, 1, 1, 1, 2] {
        place(&mut pool, blocks);
    }
    remove(&mut pool, 'a');
    remove(&mut pool, 'c');
    assert_eq!(picture(&pool), ".b.d ee..");
    pool.set_limit(1);
    let (mut out, mut freed) = (Vec::new(), Vec::new());
    pool.compact(1, &|_| true, &mut out, &mut freed);
    pool.check();
    assert_eq!((picture(&pool).as_str(), freed), ("ebed", vec![Span { first: 1, frames: 1 }]));
    assert_eq!(out[0].pieces().collect::<Vec<_>>(), [(4096, 2048, 1024), (5120, 0, 1023)]);
}

/// Rule 12: of several condemned zones the one with the fewest used blocks is emptied first,
/// because that is quickest.
#[test]
fn z12_the_emptiest_condemned_zone_first() {
    let mut pool = tiny(9, 3, 4);
    for blocks in [3, 1, 2, 1, 1, 1] {
        place(&mut pool, blocks);
    }
    remove(&mut pool, 'b');
    remove(&mut pool, 'c');
    assert_eq!(picture(&pool), "aaa. ..de f...");
    pool.set_limit(1);
    assert_eq!(compact(&mut pool, usize::MAX, ""), ("f".into(), vec![Span { first: 2, frames: 1 }]));
    assert_eq!(picture(&pool), "aaaf ..de");
}

/// Each zpage is a unit.
#[test]
fn units_are_single_zpages() {
    let mut pool = of_zones(1, 4);
    let handles = [100, 200, 300].map(|len| pool.place(len).unwrap().handle);
    let unit = pool.unit(handles[1]);
    assert_eq!(unit, Unit(handles[1].raw()));
    let mut zpages = Vec::new();
    pool.zpages(unit, &mut zpages);
    assert_eq!(zpages, [handles[1]]);
    assert_eq!(pool.view(unit), UnitView { class: 0, zpages: 1, capacity: 1, frames: 0, free_bytes: 0 });
    pool.seal(unit, true);
    assert_eq!(pool.runs(handles[2]), Runs::one(at(384), 300));
}

/// Equation 1 of the paper: bytes of the block table, two `int` for each block, and of the
/// comp-page table, six fields for each entry, of a zone of `zone_bytes`. The size of an entry, 24
/// bytes, is not printed but follows from its fields.
fn printed_overhead(zone_bytes: u64, block_bytes: u64, entries_per_frame: u64) -> (u64, u64) {
    const INT: u64 = 4;
    let entries = entries_per_frame * zone_bytes / u64::from(FRAME_BYTES);
    (2 * INT * zone_bytes / block_bytes, 6 * INT * entries)
}

/// Equation 1, and its results for zones of 4 MiB: block table, entry table, percent.
#[test]
fn eq1_printed_overhead() {
    let zone = 4 << 20;
    for (block, entries, block_table, entry_table, percent) in [
        (128, 4, 262_144, 98_304, "8.6"),
        (128, 9, 262_144, 221_184, "11.5"),
        (128, 14, 262_144, 344_064, "14.5"),
        (64, 4, 524_288, 98_304, "14.8"),
        (64, 14, 524_288, 344_064, "20.7"),
        (1024, 4, 32_768, 98_304, "3.1"),
        (1024, 14, 32_768, 344_064, "9.0"),
    ] {
        assert_eq!(printed_overhead(zone, block, entries), (block_table, entry_table));
        assert_eq!(format!("{:.1}", (block_table + entry_table) as f64 * 100.0 / zone as f64), percent);
        // The tables here take less than that; with a page for every entry, too.
        let params =
            PoolParams { block_bytes: block as u32, entries_per_frame: entries as u32, ..PoolParams::new(1024, 1024) };
        let mut pool = Zones::new(&params);
        pool.place(1).unwrap();
        let ours = pool.metadata_bytes();
        while pool.place(1).is_ok() {}
        let full = pool.metadata_bytes();
        assert!(2 * ours < block_table + entry_table && full < block_table + entry_table, "{ours} and {full} bytes");
        println!(
            "blocks of {block}, {entries} entries per frame: {percent} % printed, here {:.2} %, with every entry used \
             {:.2} %",
            ours as f64 * 100.0 / zone as f64,
            full as f64 * 100.0 / zone as f64
        );
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % end as u64) as usize
    }
}

/// Rule 2 and resolution 5.10: a page that a zone has the blocks for is never refused, however the
/// free ones lie.
#[test]
fn z2_a_zone_is_used_to_its_last_block() {
    let mut pool = of_zones(1, 4);
    let (mut random, mut live): (_, Vec<Handle>) = (Random(1), Vec::new());
    for _ in 0..20_000 {
        let len = 600 + random.below(2600) as u32;
        while pool.zones.first().is_some_and(|_| pool.zone(0).free() < pool.blocks_of(len)) {
            assert!(pool.place(len).is_err());
            pool.remove(live.swap_remove(random.below(live.len())));
        }
        live.push(pool.place(len).unwrap().handle);
    }
    pool.check();
    let several = live.iter().filter(|handle| pool.runs(**handle).parts().count() > 1).count();
    assert!(several * 2 > live.len(), "{several} of {} pages are in several runs", live.len());
}
