//! The rules `Z4` to `Z9`, checked by hand. Lists are written from head to tail; a frame is its
//! number.

use super::super::{find, POOLS};
use super::*;

fn zbud(limit: u32) -> FewPerFrame<2> {
    FewPerFrame::new(&PoolParams::new(1 << 16, limit), 0)
}

fn z3fold(limit: u32) -> FewPerFrame<3> {
    FewPerFrame::new(&PoolParams::new(1 << 16, limit), 0)
}

/// Chunks to bytes.
fn bytes(chunks: u32) -> u32 {
    chunks * CHUNK_BYTES
}

impl<const MOST: usize> FewPerFrame<MOST> {
    /// Places a zpage of `chunks` chunks; returns its frame and first chunk, too.
    fn put(&mut self, chunks: u32) -> (Handle, (u32, u32)) {
        let placed = self.place(bytes(chunks)).unwrap();
        self.check();
        (placed.handle, self.at(placed.handle))
    }

    fn puts<const N: usize>(&mut self, chunks: [u32; N]) -> [Handle; N] {
        chunks.map(|chunks| self.put(chunks).0)
    }

    /// Frame and first chunk.
    fn at(&self, handle: Handle) -> (u32, u32) {
        let slot = self.runs(handle).slot();
        (slot.frame, u32::from(slot.offset) / CHUNK_BYTES)
    }

    fn list(&self, number: usize) -> Vec<u32> {
        let next = |frame: u32| Some(frame).filter(|&frame| frame != Links::UNLINKED.next);
        std::iter::successors(next(self.lists[number].head), |&frame| next(self.records[frame as usize].links.next))
            .collect()
    }

    /// The lists that are not empty.
    fn lists(&self) -> Vec<(usize, Vec<u32>)> {
        (0..=BUDDIED).map(|number| (number, self.list(number))).filter(|(_, frames)| !frames.is_empty()).collect()
    }

    /// Removes a zpage and tidies its frame; zpages in `stay` are not movable. Returns the moves:
    /// zpage, old and new first chunk.
    fn drop_zpage(&mut self, handle: Handle, stay: &[Handle]) -> Vec<(Handle, u32, u32)> {
        let unit = self.unit(handle);
        let mut moves = Vec::new();
        if self.remove(handle).is_empty() {
            self.check();
            self.tidy(unit, &|handle| !stay.contains(&handle), &mut moves);
        }
        self.check();
        let chunk = |slot: Slot| u32::from(slot.offset) / CHUNK_BYTES;
        for step in &moves {
            assert_eq!(step.to, self.runs(step.handle), "it is where it was moved to");
            assert_eq!(step.from.slot().frame, step.to.slot().frame, "nothing moves from frame to frame");
        }
        moves.iter().map(|step| (step.handle, chunk(step.from.slot()), chunk(step.to.slot()))).collect()
    }

    fn free_chunks(&self, frame: u32) -> u32 {
        let free = self.view(Unit(frame)).free_bytes;
        assert_eq!(free % CHUNK_BYTES, 0);
        free / CHUNK_BYTES
    }
}

#[test]
fn z4_a_zpage_takes_whole_chunks() {
    for name in ["zbud", "z3fold"] {
        for (len, chunks) in
            [(1, 1), (63, 1), (64, 1), (65, 2), (1000, 16), (2048, 32), (4032, 63), (4033, 64), (4096, 64)]
        {
            let mut pool = (find(name).unwrap().make)(&PoolParams::new(100, 100));
            let handle = pool.place(len).unwrap().handle;
            let usage = pool.usage();
            assert_eq!(
                (usage.stored_bytes, usage.used_bytes),
                (u64::from(len), u64::from(chunks * 64)),
                "{name} {len}"
            );
            assert_eq!(pool.view(pool.unit(handle)).free_bytes, (64 - chunks) * 64, "{name} {len}");
        }
    }
}

#[test]
fn z5_z3fold_has_at_most_three_in_a_frame_one_behind_the_other() {
    let mut pool = z3fold(100);
    let places = [1, 2, 3, 4].map(|chunks| pool.put(chunks).1);
    // 58 chunks are free, but the fourth goes to another frame.
    assert_eq!(places, [(0, 0), (0, 1), (0, 3), (1, 0)]);
    // No zpage crosses the end of a frame: 41 do not fit beside 20 and 4, 40 do.
    let places = [20, 41, 40].map(|chunks| pool.put(chunks).1);
    assert_eq!(places, [(1, 4), (2, 0), (1, 24)]);
    let view = pool.view(Unit(0));
    assert_eq!(view, UnitView { class: 0, zpages: 3, capacity: 3, frames: 1, free_bytes: 58 * 64 });
}

#[test]
fn zbud_rule_16_has_at_most_two_in_a_frame_one_at_each_end() {
    let mut pool = zbud(100);
    let (first, at_start) = pool.put(3);
    let (second, at_end) = pool.put(5);
    assert_eq!([at_start, at_end], [(0, 0), (0, 59)]);
    // 56 chunks are free, but the third goes to another frame.
    assert_eq!(pool.put(1).1, (1, 0));
    assert_eq!(pool.view(Unit(0)), UnitView { class: 0, zpages: 2, capacity: 2, frames: 1, free_bytes: 56 * 64 });
    // Whichever zpage leaves, the free chunks are one run and nothing moves. Frame 1 is full.
    pool.puts([62]);
    assert_eq!(pool.drop_zpage(first, &[]), []);
    assert_eq!(pool.lists(), [(59, vec![0]), (BUDDIED, vec![1])]);
    let (first, at) = pool.put(59);
    assert_eq!((at, pool.free_chunks(0)), ((0, 0), 0));
    assert_eq!(pool.drop_zpage(second, &[]), []);
    assert_eq!(pool.put(5).1, (0, 59));
    let mut zpages = Vec::new();
    pool.zpages(Unit(0), &mut zpages);
    assert_eq!((zpages.len(), zpages[0]), (2, first));
}

#[test]
fn z6_a_frame_is_on_one_list_by_its_free_chunks() {
    let mut pool = z3fold(100);
    // One zpage: 63 free, 1 free, none free. A page that did not compress is in list 0.
    pool.puts([1]);
    assert_eq!(pool.lists(), [(63, vec![0])]);
    pool.puts([64]);
    assert_eq!(pool.lists(), [(0, vec![1]), (63, vec![0])]);
    // Two zpages, then three: buddied, although 22 chunks are free.
    pool.puts([20]);
    assert_eq!(pool.lists(), [(0, vec![1]), (43, vec![0])]);
    pool.puts([21]);
    assert_eq!(pool.lists(), [(0, vec![1]), (BUDDIED, vec![0])]);
    assert_eq!(pool.free_chunks(0), 22);
    // Two zpages without a free chunk between them are not buddied either.
    pool.puts([40, 24]);
    assert_eq!(pool.lists(), [(0, vec![2, 1]), (BUDDIED, vec![0])]);
}

#[test]
fn z6_two_are_buddied_in_zbud() {
    let mut pool = zbud(100);
    pool.puts([20]);
    assert_eq!(pool.lists(), [(44, vec![0])]);
    pool.puts([21]);
    assert_eq!(pool.lists(), [(BUDDIED, vec![0])]);
    pool.puts([64]);
    assert_eq!(pool.lists(), [(0, vec![1]), (BUDDIED, vec![0])]);
}

#[test]
fn z7_the_shortest_run_that_is_long_enough_is_taken() {
    let mut pool = z3fold(100);
    // 64 - 44 = 20, 30, 25 and 20 free.
    let handles = [44, 34, 39, 44].map(|chunks| pool.put(chunks));
    assert_eq!(handles.map(|(_, at)| at), [(0, 0), (1, 0), (2, 0), (3, 0)]);
    assert_eq!(pool.lists(), [(20, vec![3, 0]), (25, vec![2]), (30, vec![1])]);
    // An exact fit: the head of list 20. Then list 25, since 20 is too short; then the next, 30.
    assert_eq!(pool.put(20).1, (3, 44));
    assert_eq!(pool.put(21).1, (2, 39));
    assert_eq!(pool.put(21).1, (1, 34));
    assert_eq!(pool.lists(), [(0, vec![3]), (4, vec![2]), (9, vec![1]), (20, vec![0])]);
    // No frame has 21: the lowest free frame.
    assert_eq!(pool.put(21).1, (4, 0));
}

#[test]
fn z7_a_full_pool_refuses_what_fits_in_no_frame() {
    // At the limit, or without a free frame in the area: then zbud must refuse as well (rule 16).
    for (limit, area) in [(2, 100), (100, 2)] {
        for name in ["zbud", "z3fold"] {
            let mut pool = (find(name).unwrap().make)(&PoolParams::new(area, limit));
            pool.place(bytes(40)).unwrap();
            pool.place(bytes(40)).unwrap();
            let full = PoolFull { frames_used: 2, frames_needed: 1, frames_max: 2 };
            assert_eq!(pool.place(bytes(25)), Err(full));
            assert_eq!(pool.place(bytes(24)).unwrap().runs.slot().frame, 1);
            // A limit below the use drops nothing, and used frames are filled.
            pool.set_limit(0);
            assert_eq!(pool.place(bytes(24)).unwrap().runs.slot().frame, 0);
            assert!(pool.place(bytes(1)).is_err());
            pool.check();
        }
    }
}

#[test]
fn z8_a_frame_goes_to_the_head_of_its_new_list() {
    let mut pool = z3fold(100);
    pool.puts([40, 40, 40]);
    assert_eq!(pool.lists(), [(24, vec![2, 1, 0])]);
    // The head is used and becomes the newest of list 9; the next one becomes the newest of that.
    let [d, e] = pool.puts([15, 15]);
    assert_eq!([pool.at(d), pool.at(e)], [(2, 40), (1, 40)]);
    assert_eq!(pool.lists(), [(9, vec![1, 2]), (24, vec![0])]);
    // A removal makes frame 2 the newest of list 24 again, before frame 0.
    assert_eq!(pool.drop_zpage(d, &[]), []);
    assert_eq!(pool.lists(), [(9, vec![1]), (24, vec![2, 0])]);
    // Buddied frames are in order, too: first 1, then 2; then 1 again, after it has lost a zpage
    // and got another.
    let [f, _, _] = pool.puts([9, 10, 10]);
    assert_eq!(pool.lists(), [(24, vec![0]), (BUDDIED, vec![2, 1])]);
    assert_eq!(pool.drop_zpage(e, &[]), [(f, 55, 40)]);
    assert_eq!(pool.lists(), [(15, vec![1]), (24, vec![0]), (BUDDIED, vec![2])]);
    pool.puts([15]);
    assert_eq!(pool.lists(), [(24, vec![0]), (BUDDIED, vec![1, 2])]);
}

#[test]
fn z9_free_chunks_are_one_run_at_the_end() {
    // Which of three zpages leaves, how the others move, and how many chunks are free then.
    for (leaves, free) in [(0, 34), (1, 44), (2, 34)] {
        let mut pool = z3fold(100);
        let [a, b, c] = pool.puts([10, 20, 10]);
        let moves = [vec![(b, 10, 0), (c, 30, 20)], vec![(c, 30, 10)], vec![]];
        assert_eq!(pool.drop_zpage([a, b, c][leaves], &[]), moves[leaves]);
        assert_eq!((pool.free_chunks(0), pool.lists()), (free, vec![(free as usize, vec![0])]));
        // The whole run can be used.
        assert_eq!(pool.put(free).1, (0, 64 - free));
    }
}

#[test]
fn z9_a_move_may_overlap_itself() {
    let mut pool = z3fold(100);
    let [a, b] = pool.puts([5, 50]);
    let mut moves = Vec::new();
    assert_eq!(pool.remove(a), Span::EMPTY);
    pool.tidy(Unit(0), &|_| true, &mut moves);
    let (from, to) = (Slot { frame: 0, offset: 320 }, Slot { frame: 0, offset: 0 });
    assert_eq!(moves, [Move::of_one(b, from, to, 3200)]);
}

#[test]
fn z9_an_empty_frame_is_free_and_the_lowest_is_used_next() {
    let mut pool = z3fold(100);
    let handles = pool.puts([64, 64, 64, 64]);
    for frame in [2, 0, 1] {
        assert_eq!(pool.remove(handles[frame]), Span { first: frame as u32, frames: 1 });
        pool.check();
    }
    assert_eq!(pool.lists(), [(0, vec![3])]);
    let placed = pool.place(4096).unwrap();
    assert_eq!((placed.runs.slot().frame, placed.grew), (0, Span { first: 0, frames: 1 }));
    assert_eq!([pool.put(64).1, pool.put(64).1, pool.put(64).1], [(1, 0), (2, 0), (4, 0)]);
}

#[test]
fn holes_before_what_must_stay_are_closed_later() {
    let mut pool = z3fold(100);
    let [a, b, c] = pool.puts([10, 20, 16]);
    // No other zpage may move: 18 chunks are free at the end, 28 in all. The list depends on the
    // usable chunks.
    assert_eq!(pool.drop_zpage(a, &[b, c]), []);
    assert_eq!((pool.free_chunks(0), pool.lists()), (28, vec![(18, vec![0])]));
    assert_eq!(pool.put(19).1, (1, 0));
    assert_eq!(pool.put(18).1, (0, 46));
    // The next removal closes the hole as far as possible: b stays, so the others move up to its
    // end only.
    let d = pool.records[0].owners[2];
    assert_eq!(pool.drop_zpage(c, &[b]), [(d, 46, 30)]);
    assert_eq!((pool.free_chunks(0), pool.list(16)), (26, vec![0]));
    // Compaction closes the rest, in single moves if limited to one, and then has nothing to do.
    let mut moves = Vec::new();
    pool.compact(0, &|_| true, &mut moves, &mut Vec::new());
    pool.compact(9, &|_| false, &mut moves, &mut Vec::new());
    assert_eq!(moves, []);
    pool.compact(1, &|_| true, &mut moves, &mut Vec::new());
    pool.check();
    assert_eq!((moves.len(), pool.at(b), pool.at(d)), (1, (0, 0), (0, 30)));
    for _ in 0..3 {
        pool.compact(9, &|_| true, &mut moves, &mut Vec::new());
    }
    pool.check();
    assert_eq!((moves.len(), pool.at(b), pool.at(d), pool.list(26)), (2, (0, 0), (0, 20), vec![0]));
}

#[test]
fn compaction_looks_at_a_part_of_the_frames_each_time() {
    let mut pool = z3fold(3000);
    for _ in 0..3000 {
        let [a, _] = [20, 44].map(|chunks| pool.place(bytes(chunks)).unwrap().handle);
        pool.remove(a);
    }
    let closed = [(); 4].map(|()| {
        let mut moves = Vec::new();
        pool.compact(usize::MAX, &|_| true, &mut moves, &mut Vec::new());
        moves.len()
    });
    pool.check();
    assert_eq!((closed, pool.list(20).len()), ([LOOK_MAX, LOOK_MAX, 3000 - 2 * LOOK_MAX, 0], 3000));
}

#[test]
fn sealed_frames_take_nothing() {
    let mut pool = z3fold(100);
    let [_, b] = pool.puts([40, 10]);
    pool.puts([40]);
    pool.seal(Unit(0), true);
    pool.seal(Unit(0), true);
    pool.check();
    assert_eq!(pool.lists(), [(24, vec![1])]);
    // 14 chunks are free in it: it would be used if it were not sealed.
    assert_eq!(pool.put(14).1, (1, 40));
    assert_eq!(pool.drop_zpage(b, &[]), []);
    assert_eq!((pool.put(24).1, pool.view(Unit(0)).zpages), ((2, 0), 1));
    // Unsealed, it is the newest with 24 free chunks.
    pool.seal(Unit(0), false);
    assert_eq!(pool.list(24), [0]);
    assert_eq!(pool.put(24).1, (0, 40));
    // The seal ends with the unit: the frame can be used again.
    pool.seal(Unit(2), true);
    let mut zpages = Vec::new();
    pool.zpages(Unit(2), &mut zpages);
    assert_eq!(pool.remove(zpages[0]), Span { first: 2, frames: 1 });
    assert_eq!([pool.put(50).1, pool.put(14).1], [(2, 0), (2, 50)]);
}

#[test]
fn bounds_of_density() {
    // 256 frames are 1 MiB. Even with the smallest zpages: 512 in zbud, 768 in z3fold.
    for (name, most) in [("zbud", 512), ("z3fold", 768)] {
        for len in [1, 64, 1300] {
            let mut pool = (find(name).unwrap().make)(&PoolParams::new(1024, 256));
            let stored = std::iter::from_fn(|| pool.place(len).ok()).count();
            assert_eq!((stored, pool.usage().frames), (most, 256), "{name}, {len} bytes");
        }
    }
}

#[test]
fn arithmetic_of_selective_admission() {
    for name in ["zbud", "z3fold"] {
        // 200 zpages, half of ratio 1 and half of 0.5, take 150 frames, in either order.
        for raw_first in [false, true] {
            let mut pool = (find(name).unwrap().make)(&PoolParams::new(1000, 150));
            for i in 0..200 {
                pool.place(if (i % 2 == 0) == raw_first { 4096 } else { 2048 }).unwrap();
            }
            let usage = pool.usage();
            assert_eq!((usage.frames, usage.used_bytes), (150, 150 * 4096));
            assert!(pool.place(2048).is_err());
        }
        // With ratio 0.5 only, the same frames hold 300.
        let mut pool = (find(name).unwrap().make)(&PoolParams::new(1000, 150));
        assert_eq!(std::iter::from_fn(|| pool.place(2048).ok()).count(), 300);
    }
}

#[test]
fn a_header_takes_a_chunk_unless_a_zpage_needs_them_all() {
    let mut pool = FewPerFrame::<3>::new(&PoolParams { header_chunks: 1, ..PoolParams::new(100, 100) }, 1);
    // 63 chunks behind the header; two halves of a frame no longer fit.
    assert_eq!([pool.put(32).1, pool.put(32).1, pool.put(31).1], [(0, 1), (1, 1), (1, 33)]);
    assert_eq!([pool.free_chunks(0), pool.free_chunks(1)], [31, 0]);
    assert_eq!(pool.lists(), [(0, vec![1]), (31, vec![0])]);
    // 63 chunks fit with the header, 64 without it. Both fill the frame.
    let ([fits, whole], used) = (pool.puts([63, 64]), u64::from(bytes(32 + 32 + 31 + 63 + 64)));
    assert_eq!([pool.at(fits), pool.at(whole)], [(2, 1), (3, 0)]);
    assert_eq!([pool.free_chunks(2), pool.free_chunks(3)], [0, 0]);
    assert_eq!((pool.list(0), pool.usage().used_bytes), (vec![3, 2, 1], used));
    // Tidying does not use the header.
    let mut zpages = Vec::new();
    pool.zpages(Unit(1), &mut zpages);
    assert_eq!(pool.drop_zpage(zpages[0], &[]), [(zpages[1], 33, 1)]);
    assert_eq!(pool.drop_zpage(fits, &[]), []);
    assert_eq!(pool.put(64).1, (2, 0));
    // Made from a scheme; zbud has no header.
    let params = PoolParams { header_chunks: 1, ..PoolParams::new(100, 100) };
    let offset = |name| (find(name).unwrap().make)(&params).place(100).unwrap().runs.slot().offset;
    assert_eq!([offset("zbud"), offset("z3fold")], [0, 64]);
}

#[test]
fn both_are_in_the_table_after_zsmalloc() {
    let names: Vec<&str> = POOLS.iter().map(|entry| entry.name).collect();
    assert_eq!(names[..3], ["zsmalloc", "zbud", "z3fold"]);
}

/// Nothing moves between frames, so the records end with the highest used frame; the handles are
/// cut as well.
#[test]
fn metadata_follows_the_contents() {
    let mut pool = z3fold(1 << 16);
    let empty = pool.metadata_bytes();
    let handles: Vec<Handle> = (0..30_000).map(|_| pool.place(1300).unwrap().handle).collect();
    let full = pool.metadata_bytes() - empty;
    assert!((30_000 * 16..30_000 * 19).contains(&full), "{full}");
    for &handle in &handles[3_000..] {
        pool.remove(handle);
    }
    pool.trim();
    pool.check();
    let left = pool.metadata_bytes() - empty;
    assert!(left < full / 4, "{left} of {full}");
}

#[test]
#[should_panic(expected = "Unit(1) is not in use")]
fn units_must_be_in_use() {
    let mut pool = zbud(10);
    let [_, b, _] = pool.puts([64, 64, 64]);
    pool.remove(b);
    pool.view(Unit(1));
}

#[test]
#[should_panic(expected = "is dead")]
fn dead_handles_are_known() {
    let mut pool = z3fold(10);
    let [a, _] = pool.puts([1, 1]);
    pool.remove(a);
    pool.remove(a);
}
