//! Every pool against a model: a map of what was stored, and a frame area of real bytes.
//!
//! The model writes a pattern into the slot of each placed object, copies bytes for each move, and
//! checks them. An overlap or a lost move shows as a wrong byte, a frame freed too early as poison.
//! After each step it also checks the units: each object is in one, and the views match.

use memfit_core::pool::{
    find, Handle, Move, Pool, PoolEntry, PoolFull, PoolParams, Runs, Slot, Span, Unit, LEN_MAX, POOLS,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const FRAME: usize = 4096;
const POISON: u8 = 0xdd;

#[derive(Debug, Clone)]
enum Op {
    Place(u32),
    /// Removes the live object at this rank, modulo their number, and tidies its unit. Objects
    /// whose handle is divisible by the second number stay.
    Remove(usize, u32),
    /// Seals or unseals the unit of the object at this rank.
    Seal(usize),
    /// Makes at most this many moves; objects whose handle is divisible by the second number stay.
    Compact(usize, u32),
    Limit(u32),
}

#[derive(Debug, Clone, Copy)]
struct Object {
    len: u32,
    seed: u32,
}

struct Model {
    pool: Box<dyn Pool>,
    objects: BTreeMap<Handle, Object>,
    frames: BTreeSet<u32>,
    bytes: Vec<u8>,
    limit: u32,
    area: u32,
    placed: u32,
    moves: u64,
    tidied: u64,
    full: u64,
    sealed: BTreeSet<Unit>,
    /// Units that were sealed when their last object left, and still are.
    clean: BTreeSet<Unit>,
}

fn stays(handle: Handle, stay: u32) -> bool {
    stay != 0 && handle.raw() % stay == 0
}

fn pattern(object: Object) -> impl Iterator<Item = u8> {
    (0..object.len).map(move |i| (object.seed.wrapping_mul(0x9e37_79b9).wrapping_add(i.wrapping_mul(31)) >> 7) as u8)
}

impl Model {
    fn new(entry: &PoolEntry, chain_frames: u32, limit_frames: u32, area_frames: u32) -> Model {
        let header_chunks = chain_frames % 2;
        let params =
            PoolParams { chain_frames, header_chunks, zone_frames: 8, ..PoolParams::new(area_frames, limit_frames) };
        let pool = (entry.make)(&params);
        let bytes = vec![POISON; area_frames as usize * FRAME];
        let (objects, frames) = (BTreeMap::new(), BTreeSet::new());
        Model {
            pool,
            objects,
            frames,
            bytes,
            limit: limit_frames,
            area: area_frames,
            placed: 0,
            moves: 0,
            tidied: 0,
            full: 0,
            sealed: BTreeSet::new(),
            clean: BTreeSet::new(),
        }
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Place(len) => self.place(len),
            Op::Remove(rank, stay) => self.remove(rank, stay),
            Op::Seal(rank) => self.seal(rank),
            Op::Compact(max, stay) => {
                self.compact(max, stay);
                self.pool.trim();
            }
            Op::Limit(frames) => {
                self.limit = frames;
                self.pool.set_limit(frames);
            }
        }
        self.pool.check();
        self.check_units();
        let usage = self.pool.usage();
        assert!(usage.stored_bytes <= usage.used_bytes && usage.used_bytes <= u64::from(usage.frames) * FRAME as u64);
        assert_eq!(usage.frames as usize, self.frames.len());
        assert_eq!(usage.zpages as usize, self.objects.len());
        assert_eq!(usage.stored_bytes, self.objects.values().map(|object| u64::from(object.len)).sum::<u64>());
    }

    fn place(&mut self, len: u32) {
        let before = self.pool.usage();
        let placed = match self.pool.place(len) {
            Ok(placed) => placed,
            Err(PoolFull { frames_used, frames_needed, frames_max }) => {
                self.full += 1;
                assert_eq!(frames_used, before.frames);
                assert!(frames_needed >= 1);
                let beyond_limit = frames_max == self.limit && frames_used + frames_needed > self.limit;
                assert!(beyond_limit || frames_max == self.area, "no reason to be full");
                assert_eq!(self.pool.usage(), before, "a refusal changes nothing");
                return;
            }
        };
        for frame in placed.grew.iter() {
            assert!(frame.0 < self.area && self.frames.insert(frame.0), "{frame:?} was in use");
        }
        assert!(placed.grew.is_empty() || self.frames.len() as u32 <= self.limit, "the pool grew beyond its limit");
        let object = Object { len, seed: self.placed };
        self.placed += 1;
        assert!(self.objects.insert(placed.handle, object).is_none(), "the handle was in use");
        assert_eq!((&self.pool.runs(placed.handle), self.pool.len(placed.handle)), (&placed.runs, len));
        let unit = self.pool.unit(placed.handle);
        assert!(!self.sealed.contains(&unit), "its unit is sealed");
        assert!(!self.clean.contains(&unit), "it is read");
        let mut bytes = pattern(object);
        for (at, part) in placed.runs.parts() {
            let at = self.range(at, part.len());
            self.bytes[at].iter_mut().zip(&mut bytes).for_each(|(byte, new)| *byte = new);
        }
    }

    fn at(&self, rank: usize) -> Option<Handle> {
        self.objects.keys().nth(rank % self.objects.len().max(1)).copied()
    }

    fn remove(&mut self, rank: usize, stay: u32) {
        let Some(handle) = self.at(rank) else { return };
        self.verify(handle);
        let unit = self.pool.unit(handle);
        let view = self.pool.view(unit);
        let span = self.pool.remove(handle);
        self.objects.remove(&handle);
        self.release(span);
        if view.zpages == 1 {
            let sealed = self.sealed.remove(&unit);
            if sealed && self.pool.clean(unit) {
                // A thread reads it: its frame is not given away.
                self.pool.seal(unit, true);
                assert!(span.is_empty(), "a clean unit keeps its frame");
                self.clean.insert(unit);
                return;
            }
            // The last object of a zone frees the zone, although its view has no frames.
            let alone = view.frames > 0;
            assert!(!alone || span.frames == u32::from(view.frames), "all frames of an empty unit are free");
            return;
        }
        assert!(span.is_empty(), "frames of a unit in use became free");
        let (before, mut moves) = (self.places(), Vec::new());
        self.pool.tidy(unit, &|handle| !stays(handle, stay), &mut moves);
        self.carry_out(&before, &moves, stay);
        assert!(moves.iter().all(|step| self.pool.unit(step.handle) == unit), "only its own objects are moved");
        moves.iter().for_each(|step| self.verify(step.handle));
        self.tidied += moves.len() as u64;
    }

    fn seal(&mut self, rank: usize) {
        // Each call also discards the lowest clean unit.
        if let Some(unit) = self.clean.pop_first() {
            assert!(self.pool.clean(unit));
            self.pool.seal(unit, false);
            let span = self.pool.discard(unit);
            assert_eq!(span.frames, 1, "its frame is free");
            self.release(span);
        }
        let Some(handle) = self.at(rank) else { return };
        let unit = self.pool.unit(handle);
        let sealed = self.sealed.insert(unit) || !self.sealed.remove(&unit);
        self.pool.seal(unit, sealed);
    }

    fn compact(&mut self, max: usize, stay: u32) {
        let (before, mut moves, mut freed) = (self.places(), Vec::new(), Vec::new());
        let units = self.units();
        self.pool.compact(max, &|handle| !stays(handle, stay), &mut moves, &mut freed);
        assert!(moves.len() <= max);
        self.carry_out(&before, &moves, stay);
        self.moves += moves.len() as u64;
        freed.into_iter().for_each(|span| self.release(span));
        self.verify_all();
        let (old, now) = (units, self.units());
        assert!(now.iter().zip(&old).all(|(now, old)| now == old || !self.sealed.contains(&now.0)), "a unit is sealed");
        self.sealed.retain(|unit| now.iter().any(|(other, _)| other == unit));
    }

    /// Each object with its unit, in order of handles.
    fn units(&self) -> Vec<(Unit, Handle)> {
        self.objects.keys().map(|&handle| (self.pool.unit(handle), handle)).collect()
    }

    fn places(&self) -> BTreeMap<Handle, Runs> {
        self.objects.keys().map(|&handle| (handle, self.pool.runs(handle))).collect()
    }

    /// Copies the bytes of the moves, and checks that no other object changed its place.
    fn carry_out(&mut self, before: &BTreeMap<Handle, Runs>, moves: &[Move], stay: u32) {
        let mut places = before.clone();
        for step in moves {
            let Move { handle, from, to } = step;
            assert!(!stays(*handle, stay), "{handle:?} was not to be moved");
            assert_eq!([from.len(), to.len()], [self.objects[handle].len; 2]);
            let old = places.insert(*handle, to.clone());
            assert_eq!(old.as_ref(), Some(from), "{handle:?} moves from where it is");
            for (from, to, bytes) in step.pieces() {
                let (source, target) = (self.range(from, bytes), self.range(to, bytes));
                self.bytes.copy_within(source, target.start);
            }
        }
        assert_eq!(places, self.places(), "places change by moves");
    }

    /// Each object is in one unit, and the views of the units match.
    fn check_units(&self) {
        let mut objects = self.units();
        objects.sort_unstable();
        let (mut frames, mut sealed, mut zpages) = (0, 0, Vec::new());
        for objects in objects.chunk_by(|a, b| a.0 == b.0) {
            let unit = objects[0].0;
            zpages.clear();
            self.pool.zpages(unit, &mut zpages);
            zpages.sort_unstable();
            assert!(zpages.iter().eq(objects.iter().map(|(_, handle)| handle)), "{unit:?} has {zpages:?}");
            let view = self.pool.view(unit);
            assert_eq!(usize::from(view.zpages), objects.len(), "{unit:?}");
            assert!(view.zpages <= view.capacity, "{unit:?}: {view:?}");
            frames += usize::from(view.frames);
            sealed += usize::from(self.sealed.contains(&unit));
        }
        assert!(frames <= self.frames.len(), "units share frames");
        assert_eq!(sealed, self.sealed.len(), "a seal ends with its unit");
    }

    /// Bytes in the area; all of them must be in frames in use.
    fn range(&self, at: u64, bytes: usize) -> std::ops::Range<usize> {
        let start = at as usize;
        let end = start + bytes;
        for frame in start / FRAME..=(end - 1) / FRAME {
            assert!(self.frames.contains(&(frame as u32)), "{at} + {bytes} is in frames in use");
        }
        start..end
    }

    fn release(&mut self, span: Span) {
        for frame in span.iter() {
            assert!(self.frames.remove(&frame.0), "{frame:?} was not in use");
            self.bytes[frame.byte() as usize..][..FRAME].fill(POISON);
        }
    }

    fn verify(&self, handle: Handle) {
        let object = self.objects[&handle];
        let runs = self.pool.runs(handle);
        assert_eq!(runs.len(), object.len);
        let bytes = runs.parts().flat_map(|(at, part)| &self.bytes[self.range(at, part.len())]);
        assert!(bytes.copied().eq(pattern(object)), "bytes of {handle:?}");
    }

    fn verify_all(&self) {
        self.objects.keys().for_each(|&handle| self.verify(handle));
    }

    fn finish(mut self) {
        self.verify_all();
        while !self.objects.is_empty() {
            self.remove(self.placed as usize % 7, 0);
        }
        while !self.clean.is_empty() {
            self.seal(0);
        }
        self.pool.check();
        let usage = self.pool.usage();
        assert_eq!((usage.frames, usage.zpages, usage.stored_bytes), (0, 0, 0));
        assert!(self.frames.is_empty());
    }
}

/// Typical compressed lengths: mostly a fifth to three quarters of a page, some tiny ones and some
/// incompressible.
fn len() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 800..3000u32, 2 => 1..200u32, 1 => 3000..=LEN_MAX, 1 => Just(LEN_MAX), 2 => Just(1360u32)]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => len().prop_map(Op::Place),
        8 => (any::<usize>(), 0..5u32).prop_map(|(rank, stay)| Op::Remove(rank, stay)),
        1 => any::<usize>().prop_map(Op::Seal),
        1 => (0..40usize, 0..5u32).prop_map(|(max, stay)| Op::Compact(max, stay)),
        1 => (0..80u32).prop_map(Op::Limit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_operations(
        pool in 0..POOLS.len(),
        chain_frames in 1..=8u32,
        area in 40..200u32,
        ops in prop::collection::vec(op(), 1..250),
    ) {
        let mut model = Model::new(&POOLS[pool], chain_frames, 60, area);
        ops.iter().for_each(|op| model.step(op));
        model.finish();
    }
}

/// SplitMix64: the long run must be the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % end
    }

    fn op(&mut self, growing: bool) -> Op {
        let remove = if growing { 30 } else { 70 };
        match self.below(1000) {
            0..20 => Op::Compact(self.below(200) as usize, self.below(6) as u32),
            20..26 => Op::Limit(50 + self.below(650) as u32),
            26..40 => Op::Seal(self.below(u64::MAX) as usize),
            _ if self.below(100) < remove => Op::Remove(self.below(u64::MAX) as usize, self.below(6) as u32),
            _ => Op::Place(match self.below(10) {
                0 => 1 + self.below(200) as u32,
                1 => LEN_MAX - self.below(1000) as u32,
                _ => 600 + self.below(2600) as u32,
            }),
        }
    }
}

/// Phases of growth and shrinkage, so that tables are cut, frames are fragmented and limits are
/// met.
#[test]
fn long_seeded_run() {
    for (entry, chain_frames) in POOLS.iter().flat_map(|entry| [1, 4, 8].map(|chain| (entry, chain))) {
        let mut random = Random(u64::from(chain_frames));
        let mut model = Model::new(entry, chain_frames, 600, 1400);
        for i in 0..6_000 {
            model.step(&random.op(i / 1_500 % 2 == 0));
        }
        let Model { moves, tidied, full, .. } = model;
        assert!(full > 50, "{}: {full} refusals", entry.name);
        assert!(moves > 25 || !entry.compacts, "{}: {moves} moves", entry.name);
        assert!((tidied > 50) == entry.tidies, "{}: {tidied} moves in units", entry.name);
        model.finish();
    }
}

/// Compaction without a limit leaves less than a zspage of free slots in every class.
#[test]
fn compaction_is_complete() {
    for entry in POOLS.iter().filter(|entry| entry.compacts) {
        let mut model = Model::new(entry, 4, 2000, 4000);
        (0..1000).for_each(|_| model.place(1360));
        let dense = model.pool.usage().frames;
        for rank in 0..750 {
            model.remove(rank, 0);
        }
        model.step(&Op::Compact(usize::MAX, 0));
        assert!(model.pool.usage().frames <= dense / 4 + 4, "{} frames of {dense}", model.pool.usage().frames);
        // Small steps have the same result.
        (0..750).for_each(|_| model.place(1360));
        for rank in 0..750 {
            model.remove(rank, 0);
        }
        (0..1000).for_each(|_| model.compact(1, 0));
        model.pool.check();
        assert!(model.pool.usage().frames <= dense / 4 + 4, "{} frames of {dense}", model.pool.usage().frames);
        model.finish();
    }
}

/// Metadata also shrinks with the contents.
#[test]
fn metadata_shrinks() {
    for entry in POOLS {
        // The smallest zones that a scheme may have.
        let mut pool = (entry.make)(&PoolParams { zone_frames: 64, ..PoolParams::new(1 << 20, 1 << 20) });
        let empty = pool.metadata_bytes();
        let handles: Vec<Handle> = (0..50_000).map(|i| pool.place(600 + i % 2600).unwrap().handle).collect();
        let full = pool.metadata_bytes() - empty;
        // Zones have a link for each block: 15 of 128 bytes in a page here.
        assert!(full / 50_000 < if entry.name == "zones" { 84 } else { 24 }, "{full} bytes");
        handles[..49_000].iter().for_each(|&handle| assert!(pool.remove(handle).frames <= 64));
        pool.trim();
        pool.check();
        handles[49_000..].iter().for_each(|&handle| assert!(pool.remove(handle).frames <= 64));
        assert!(pool.metadata_bytes() - empty < full / 4, "{} of {full} bytes", pool.metadata_bytes());
    }
}

/// Objects of 1360 bytes in frames of three slots, by (frame, slot).
struct Thirds {
    pool: Box<dyn Pool>,
    at: BTreeMap<(u32, u16), Handle>,
}

impl Thirds {
    fn place(&mut self) -> (u32, u16, Span) {
        let placed = self.pool.place(1360).unwrap();
        let (frame, third) = (placed.runs.slot().frame, placed.runs.slot().offset / 1360);
        self.at.insert((frame, third), placed.handle);
        self.pool.check();
        (frame, third, placed.grew)
    }

    fn remove(&mut self, frame: u32, third: u16) -> Span {
        let freed = self.pool.remove(self.at.remove(&(frame, third)).unwrap());
        self.pool.check();
        freed
    }
}

/// Where zsmalloc puts each object, worked out by hand. The comments give the used slots of frames
/// 0, 1, 2.
#[test]
fn zsmalloc_fills_the_fullest() {
    let entry = find("zsmalloc").unwrap();
    let pool = (entry.make)(&PoolParams { chain_frames: 1, ..PoolParams::new(100, 3) });
    let mut thirds = Thirds { pool, at: BTreeMap::new() };
    let (one, none) = (|first| Span { first, frames: 1 }, Span::EMPTY);
    // 0 0 0 -> 3 3 1: one frame after the other.
    for i in 0..7 {
        let grew = if i % 3 == 0 { one(i / 3) } else { none };
        assert_eq!(thirds.place(), (i / 3, (i % 3) as u16, grew));
    }
    // 3 2 1: the hole in frame 1 comes before frame 2.
    assert_eq!(thirds.remove(1, 1), none);
    assert_eq!(thirds.place(), (1, 1, none));
    // 2 1 1: frame 0 first. 3 1 1: of equal frames the one that became so last, frame 1; in it the
    // newest hole.
    assert_eq!([thirds.remove(0, 0), thirds.remove(1, 0), thirds.remove(1, 2)], [none; 3]);
    assert_eq!([thirds.place(), thirds.place()], [(0, 0, none), (1, 2, none)]);
    // 3 2 1: three more fit, a fourth would need a fourth frame.
    assert_eq!([thirds.place(), thirds.place(), thirds.place()], [(1, 0, none), (2, 1, none), (2, 2, none)]);
    let full = thirds.pool.place(1360).unwrap_err();
    assert_eq!(full, PoolFull { frames_used: 3, frames_needed: 1, frames_max: 3 });
    assert_eq!(full.to_string(), "pool is full: 3 frames in use, 1 more needed, at most 3");
    // 2 3 1 -> 3 3 0: compaction moves the only object of frame 2 to the hole of frame 0, unless it
    // is not movable.
    assert_eq!([thirds.remove(0, 1), thirds.remove(2, 0), thirds.remove(2, 2)], [none; 3]);
    let (handle, mut moves, mut freed) = (thirds.at[&(2, 1)], Vec::new(), Vec::new());
    thirds.pool.compact(10, &|_| false, &mut moves, &mut freed);
    assert!(moves.is_empty() && freed.is_empty());
    thirds.pool.compact(10, &|_| true, &mut moves, &mut freed);
    let (from, to) = (Slot { frame: 2, offset: 1360 }, Slot { frame: 0, offset: 1360 });
    assert_eq!(moves, [Move::of_one(handle, from, to, 1360)]);
    assert_eq!((freed.as_slice(), thirds.pool.runs(handle)), ([one(2)].as_slice(), Runs::one(to, 1360)));
    // 3 3 0 -> 3 0 0: an empty frame is freed at once, and the lowest free frame is used next.
    assert_eq!([thirds.remove(1, 1), thirds.remove(1, 0), thirds.remove(1, 2)], [none, none, one(1)]);
    assert_eq!(thirds.place(), (1, 0, one(1)));
}

/// A dead handle must not be taken for a live one.
#[test]
#[should_panic(expected = "is dead")]
fn zsmalloc_knows_dead_handles() {
    let entry = find("zsmalloc").unwrap();
    let mut pool = (entry.make)(&PoolParams::new(100, 100));
    let dead = pool.place(100).unwrap().handle;
    pool.place(100).unwrap();
    pool.remove(dead);
    pool.remove(dead);
}
