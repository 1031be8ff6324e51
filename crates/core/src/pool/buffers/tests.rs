//! Rules checked by hand, and random calls against a model that looks at every buffer.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

fn pool(limit_frames: u32) -> Buffers {
    Buffers::new(&PoolParams::new(1000, limit_frames))
}

/// Places a zpage; returns handle, frame, offset, and whether the frame was fresh.
fn place(pool: &mut Buffers, len: u32) -> (Handle, u32, u16, bool) {
    let Placed { handle, runs, grew } = pool.place(len).unwrap();
    let slot = runs.slot();
    pool.check();
    assert!(grew.is_empty() || grew == Span { first: slot.frame, frames: 1 });
    (handle, slot.frame, slot.offset, !grew.is_empty())
}

/// As `place`, without the handle.
fn at(pool: &mut Buffers, len: u32) -> (u32, u16, bool) {
    let (_, frame, offset, fresh) = place(pool, len);
    (frame, offset, fresh)
}

fn fill<const N: usize>(pool: &mut Buffers, lens: [u32; N]) {
    for len in lens {
        place(pool, len);
    }
}

fn zpages(pool: &Buffers, frame: u32) -> Vec<Handle> {
    let mut out = Vec::new();
    pool.zpages(Unit(frame), &mut out);
    out
}

/// Writes a buffer: seals it, then removes all of its zpages.
fn write(pool: &mut Buffers, frame: u32) -> Span {
    pool.seal(Unit(frame), true);
    let spans: Vec<Span> = zpages(pool, frame).into_iter().map(|handle| pool.remove(handle)).collect();
    pool.check();
    let (last, others) = spans.split_last().unwrap();
    assert!(others.iter().all(|span| span.is_empty()));
    *last
}

#[test]
fn rule_4_zpages_are_appended() {
    let mut pool = pool(2);
    let (first, ..) = place(&mut pool, 1001);
    assert_eq!(pool.runs(first), Runs::one(Slot { frame: 0, offset: 0 }, 1001));
    // The next multiple of 8.
    assert_eq!(at(&mut pool, 7), (0, 1008, false));
    assert_eq!(at(&mut pool, 3080), (0, 1016, false));
    assert_eq!(pool.usage().used_bytes, 4096);
    assert_eq!(pool.usage().stored_bytes, 1001 + 7 + 3080);
    assert_eq!(at(&mut pool, 1), (1, 0, true));
    assert_eq!(pool.usage().used_bytes, 4096 + 8);
    assert_eq!(pool.view(Unit(1)), UnitView { class: 0, zpages: 1, capacity: 512, frames: 1, free_bytes: 4088 });
    assert_eq!(pool.view(Unit(0)).free_bytes, 0);
}

/// With all ratios above one half no buffer ever holds two pages: a gain of exactly 1 (checks of
/// 2.5).
#[test]
fn rule_5_zpages_are_never_split() {
    let mut pool = pool(16);
    for i in 0..16 {
        assert_eq!(at(&mut pool, 2049 + i * 100), (i, 0, true));
    }
    let usage = pool.usage();
    assert_eq!((usage.frames, usage.zpages), (16, 16));
    assert_eq!(pool.place(2049), Err(PoolFull { frames_used: 16, frames_needed: 1, frames_max: 16 }));
    // 5.10: a page that did not compress has a buffer to itself.
    pool.set_limit(17);
    assert_eq!(at(&mut pool, 4096), (16, 0, true));
    assert_eq!(pool.view(Unit(16)).free_bytes, 0);
}

/// First fit by age: the oldest buffer with room, not the fullest and not the lowest frame.
#[test]
fn rule_5_5_first_fit_in_order_of_age() {
    let mut pool = pool(4);
    let (old, ..) = place(&mut pool, 3000);
    assert_eq!(at(&mut pool, 2000), (1, 0, true));
    assert_eq!(at(&mut pool, 2500), (2, 0, true));
    assert_eq!(at(&mut pool, 1500), (1, 2000, false));
    assert_eq!(at(&mut pool, 1096), (0, 3000, false));
    // Frame 0 becomes the youngest.
    pool.remove(zpages(&pool, 0)[0]);
    assert_eq!(pool.remove(old), Span { first: 0, frames: 1 });
    assert_eq!(at(&mut pool, 4000), (0, 0, true));
    assert_eq!(at(&mut pool, 90), (1, 3504, false));
    assert_eq!(at(&mut pool, 503), (2, 2504, false));
    assert_eq!(at(&mut pool, 96), (1, 3600, false));
    assert_eq!(at(&mut pool, 1080), (2, 3008, false));
    assert_eq!(at(&mut pool, 400), (1, 3696, false));
    assert_eq!(at(&mut pool, 96), (0, 4000, false));
}

/// Nothing fits if every buffer is dirty and none has room; after a cleaning there is a clean one.
#[test]
fn rule_6_full_until_a_buffer_was_cleaned() {
    let mut pool = pool(2);
    fill(&mut pool, [4000, 3000]);
    let full = PoolFull { frames_used: 2, frames_needed: 1, frames_max: 2 };
    assert_eq!(pool.place(1200), Err(full));
    // A buffer that is being written takes nothing, although it has room.
    pool.seal(Unit(1), true);
    assert_eq!(
        pool.place(96),
        Ok(Placed { handle: Handle(2), runs: Runs::one(Slot { frame: 0, offset: 4000 }, 96), grew: Span::EMPTY })
    );
    assert_eq!(pool.place(96), Err(full));
    assert_eq!(write(&mut pool, 1), Span::EMPTY);
    assert_eq!(at(&mut pool, 1200), (1, 0, false));
}

/// A buffer that could not be written keeps its age.
#[test]
fn unsealed_buffers_keep_their_age() {
    let mut pool = pool(3);
    fill(&mut pool, [3000; 3]);
    pool.seal(Unit(0), true);
    assert_eq!(at(&mut pool, 500), (1, 3000, false));
    pool.seal(Unit(0), false);
    pool.check();
    assert_eq!(at(&mut pool, 500), (0, 3000, false));
    assert_eq!([at(&mut pool, 500), at(&mut pool, 500)], [(0, 3504, false), (1, 3504, false)]);
}

#[test]
fn rule_13_a_cleaned_buffer_stays_until_it_is_used_again() {
    let mut pool = pool(2);
    let (kept, ..) = place(&mut pool, 3000);
    place(&mut pool, 1000);
    assert!(!pool.clean(Unit(0)) && !pool.clean(Unit(1)));
    assert_eq!(write(&mut pool, 0), Span::EMPTY);
    assert!(pool.clean(Unit(0)));
    let usage = pool.usage();
    assert_eq!((usage.frames, usage.zpages, usage.used_bytes), (1, 0, 0));
    assert_eq!(pool.view(Unit(0)), UnitView { class: 0, zpages: 0, capacity: 512, frames: 1, free_bytes: 4096 });
    assert!(zpages(&pool, 0).is_empty());
    // A fresh frame comes before a clean buffer.
    assert_eq!(at(&mut pool, 3000), (1, 0, true));
    assert!(pool.clean(Unit(0)));
    assert_eq!(at(&mut pool, 3000), (0, 0, false));
    assert!(!pool.clean(Unit(0)));
    // 5.13: a clean buffer without pages on the device is given up; then its frame is fresh again.
    write(&mut pool, 0);
    assert_eq!(pool.discard(Unit(0)), Span { first: 0, frames: 1 });
    assert!(!pool.clean(Unit(0)) && !pool.clean(Unit(999)));
    pool.check();
    assert_eq!(at(&mut pool, 3000), (0, 0, true));
    assert_eq!(kept.raw(), 0);
}

#[test]
fn rule_5_6_cleaned_longest_ago_first() {
    let mut pool = pool(4);
    fill(&mut pool, [3000; 4]);
    for frame in [2, 0, 3, 1] {
        write(&mut pool, frame);
    }
    assert_eq!(at(&mut pool, 3000), (2, 0, false));
    // A thread reads buffer 0, which keeps its place in the queue.
    pool.seal(Unit(0), true);
    assert_eq!(at(&mut pool, 3000), (3, 0, false));
    assert_eq!(pool.discard(Unit(0)), Span::EMPTY);
    assert!(pool.clean(Unit(0)));
    pool.seal(Unit(0), false);
    pool.check();
    assert_eq!([at(&mut pool, 3000), at(&mut pool, 3000)], [(0, 0, false), (1, 0, false)]);
    assert_eq!(pool.place(3000), Err(PoolFull { frames_used: 4, frames_needed: 1, frames_max: 4 }));
    // A buffer that is used again starts with a new age.
    assert_eq!([at(&mut pool, 1096), at(&mut pool, 1096)], [(2, 3000, false), (3, 3000, false)]);
}

#[test]
fn clean_buffers_that_are_read_are_not_used_again() {
    let mut pool = pool(1);
    place(&mut pool, 100);
    write(&mut pool, 0);
    pool.seal(Unit(0), true);
    assert_eq!(pool.place(100), Err(PoolFull { frames_used: 1, frames_needed: 1, frames_max: 1 }));
    pool.seal(Unit(0), false);
    assert_eq!(at(&mut pool, 100), (0, 0, false));
}

/// Also 2.5: three of four pages free nothing, the fourth frees the buffer; if it is dirty, without
/// a write (5.13).
#[test]
fn rule_17_room_is_free_with_the_last_zpage() {
    let mut pool = pool(2);
    let handles: Vec<Handle> = (0..4).map(|_| place(&mut pool, 1000).0).collect();
    for &handle in &handles[1..] {
        assert_eq!(pool.remove(handle), Span::EMPTY);
        pool.check();
    }
    assert_eq!(pool.view(Unit(0)), UnitView { class: 0, zpages: 1, capacity: 512, frames: 1, free_bytes: 96 });
    assert_eq!(at(&mut pool, 1000), (1, 0, true));
    assert_eq!(pool.usage().used_bytes, 5000);
    assert_eq!(pool.remove(handles[0]), Span { first: 0, frames: 1 });
    assert_eq!(pool.usage().used_bytes, 1000);
    assert_eq!(at(&mut pool, 3500), (0, 0, true));
}

#[test]
fn zpages_of_a_unit() {
    let mut pool = pool(2);
    let handles: Vec<Handle> = (0..4).map(|_| place(&mut pool, 1000).0).collect();
    assert_eq!(zpages(&pool, 0), [handles[3], handles[2], handles[1], handles[0]]);
    pool.remove(handles[2]);
    pool.remove(handles[0]);
    assert_eq!(zpages(&pool, 0), [handles[3], handles[1]]);
    assert_eq!(pool.unit(handles[1]), Unit(0));
}

/// A limit below the use drops nothing. Buffers written then are not kept; clean ones may still be
/// used.
#[test]
fn limits_below_the_use() {
    let mut pool = pool(3);
    fill(&mut pool, [4000; 3]);
    write(&mut pool, 0);
    pool.set_limit(2);
    assert_eq!(at(&mut pool, 4000), (0, 0, false));
    assert_eq!(pool.place(4000), Err(PoolFull { frames_used: 3, frames_needed: 1, frames_max: 2 }));
    assert_eq!(write(&mut pool, 1), Span { first: 1, frames: 1 });
    assert!(!pool.clean(Unit(1)));
    assert_eq!(write(&mut pool, 2), Span::EMPTY);
    assert!(pool.clean(Unit(2)));
    pool.set_limit(0);
    assert_eq!(pool.discard(Unit(2)), Span { first: 2, frames: 1 });
    assert_eq!(pool.usage().frames, 1);
}

#[test]
#[should_panic(expected = "Unit(0) has zpages")]
fn dirty_buffers_are_not_discarded() {
    let mut pool = pool(1);
    place(&mut pool, 1);
    pool.discard(Unit(0));
}

#[test]
#[should_panic(expected = "Handle(0) is dead")]
fn dead_handles() {
    let mut pool = pool(1);
    let (dead, ..) = place(&mut pool, 1);
    place(&mut pool, 1);
    pool.remove(dead);
    pool.remove(dead);
}

/// The numbers in the module's documentation; `--nocapture` prints them.
#[test]
fn metadata() {
    for len in [100, 1000, 2000, 3000] {
        let mut pool = Buffers::new(&PoolParams::new(1 << 20, 1 << 20));
        let empty = pool.metadata_bytes();
        let handles: Vec<Handle> = (0..50_000).map(|_| pool.place(len).unwrap().handle).collect();
        let usage = pool.usage();
        let (zpages, bytes) = (usage.zpages as f64, (pool.metadata_bytes() - empty) as f64);
        println!("{len} bytes: {:.1} of metadata per zpage", bytes / zpages);
        assert!(bytes < 1.13 * (12.0 * zpages + 18.4 * f64::from(usage.frames)) + 1000.0, "{bytes} bytes");
        // The older half of the buffers goes: no table grows when as many come again.
        for &handle in &handles[..25_000] {
            pool.remove(handle);
            pool.place(len).unwrap();
        }
        assert!(((pool.metadata_bytes() - empty) as f64) < 1.4 * bytes, "{} bytes", pool.metadata_bytes());
        pool.check();
    }
}

#[derive(Debug, Clone)]
enum Op {
    Place(u32),
    /// The live zpage at this rank.
    Remove(usize),
    /// Seals or unseals the used buffer at this rank.
    Seal(usize, bool),
    /// Removes all zpages of the used buffer at this rank, which may be sealed first.
    Empty(usize, bool),
    /// Discards the buffer at this rank, if it is clean.
    Discard(usize),
    Limit(u32),
    Trim,
}

#[derive(Debug, Default)]
struct Model {
    /// In order of age: frame, end of the last zpage, sealed, live zpages.
    dirty: Vec<(u32, u32, bool, u32)>,
    /// In order of cleaning: frame, sealed.
    clean: VecDeque<(u32, bool)>,
    objects: BTreeMap<Handle, u32>,
    limit: u32,
}

impl Model {
    fn used(&self) -> Vec<u32> {
        self.dirty.iter().map(|dirty| dirty.0).chain(self.clean.iter().map(|clean| clean.0)).collect()
    }

    /// Frame and offset of the next zpage, and whether the frame is fresh.
    fn place(&mut self, len: u32) -> Option<(u32, u32, bool)> {
        let len = len.next_multiple_of(8);
        if let Some((frame, end, _, zpages)) = self.dirty.iter_mut().find(|d| !d.2 && d.1 + len <= FRAME_BYTES) {
            *end += len;
            *zpages += 1;
            return Some((*frame, *end - len, false));
        }
        let used = self.used();
        let fresh = (0..).find(|frame| !used.contains(frame)).unwrap();
        let (frame, fresh) = if (used.len() as u32) < self.limit {
            (fresh, true)
        } else {
            let i = self.clean.iter().position(|clean| !clean.1)?;
            (self.clean.remove(i).unwrap().0, false)
        };
        self.dirty.push((frame, len, false, 1));
        Some((frame, 0, fresh))
    }

    /// Whether the frame becomes free.
    fn remove(&mut self, handle: Handle) -> bool {
        let frame = self.objects.remove(&handle).unwrap();
        let over = self.used().len() as u32 > self.limit;
        let i = self.dirty.iter().position(|dirty| dirty.0 == frame).unwrap();
        self.dirty[i].3 -= 1;
        if self.dirty[i].3 > 0 {
            return false;
        }
        let (.., sealed, _) = self.dirty.remove(i);
        if sealed && !over {
            self.clean.push_back((frame, false));
        }
        !sealed || over
    }

    fn seal(&mut self, frame: u32, sealed: bool) {
        self.dirty.iter_mut().filter(|dirty| dirty.0 == frame).for_each(|dirty| dirty.2 = sealed);
        self.clean.iter_mut().filter(|clean| clean.0 == frame).for_each(|clean| clean.1 = sealed);
    }
}

fn remove(pool: &mut Buffers, model: &mut Model, handle: Handle) {
    let frame = model.objects[&handle];
    let span = if model.remove(handle) { Span { first: frame, frames: 1 } } else { Span::EMPTY };
    assert_eq!(pool.remove(handle), span);
}

fn step(pool: &mut Buffers, model: &mut Model, op: &Op) {
    let used = model.used();
    let unit = |rank: usize| (!used.is_empty()).then(|| Unit(used[rank % used.len()]));
    match *op {
        Op::Place(len) => {
            let placed = pool.place(len);
            let place = |placed: &Placed| {
                (placed.runs.slot().frame, u32::from(placed.runs.slot().offset), !placed.grew.is_empty())
            };
            let got = placed.as_ref().map(place).ok();
            assert_eq!(got, model.place(len));
            placed.into_iter().for_each(|placed| {
                assert!(model.objects.insert(placed.handle, placed.runs.slot().frame).is_none());
            });
        }
        Op::Remove(rank) => {
            let handle = model.objects.keys().nth(rank % model.objects.len().max(1)).copied();
            handle.into_iter().for_each(|handle| remove(pool, model, handle));
        }
        Op::Seal(rank, sealed) => unit(rank).into_iter().for_each(|unit| {
            pool.seal(unit, sealed);
            model.seal(unit.0, sealed);
        }),
        Op::Empty(rank, sealed) => unit(rank).into_iter().for_each(|unit| {
            pool.seal(unit, sealed);
            model.seal(unit.0, sealed);
            zpages(pool, unit.0).into_iter().for_each(|handle| remove(pool, model, handle));
        }),
        Op::Discard(rank) => unit(rank).filter(|unit| pool.clean(*unit)).into_iter().for_each(|unit| {
            let i = model.clean.iter().position(|clean| clean.0 == unit.0).expect("it is clean");
            let (_, sealed) = model.clean[i];
            if !sealed {
                model.clean.remove(i);
            }
            assert_eq!(pool.discard(unit).is_empty(), sealed);
        }),
        Op::Limit(frames) => {
            pool.set_limit(frames);
            model.limit = frames;
        }
        Op::Trim => pool.trim(),
    }
    pool.check();
    assert!(model.clean.iter().all(|clean| pool.clean(Unit(clean.0)) && pool.view(Unit(clean.0)).zpages == 0));
    for &(frame, end, _, live) in &model.dirty {
        let view = pool.view(Unit(frame));
        assert_eq!((view.zpages, view.free_bytes), (live as u16, FRAME_BYTES - end));
        assert!(!pool.clean(Unit(frame)));
        assert!(zpages(pool, frame).iter().all(|handle| model.objects[handle] == frame));
    }
    let usage = pool.usage();
    assert_eq!(usage.frames as usize, model.used().len());
    assert_eq!(usage.used_bytes, model.dirty.iter().map(|dirty| u64::from(dirty.1)).sum::<u64>());
}

fn op() -> impl Strategy<Value = Op> {
    let len = prop_oneof![4 => 500..3000u32, 1 => 1..100u32, 1 => 3000..=LEN_MAX];
    prop_oneof![
        16 => len.prop_map(Op::Place),
        4 => any::<usize>().prop_map(Op::Remove),
        3 => any::<(usize, bool)>().prop_map(|(rank, sealed)| Op::Seal(rank, sealed)),
        3 => any::<(usize, bool)>().prop_map(|(rank, sealed)| Op::Empty(rank, sealed)),
        1 => any::<usize>().prop_map(Op::Discard),
        1 => (0..60u32).prop_map(Op::Limit),
        1 => Just(Op::Trim),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_calls(limit in 1..60u32, ops in prop::collection::vec(op(), 1..600)) {
        let (mut pool, mut model) = (pool(limit), Model { limit, ..Model::default() });
        ops.iter().for_each(|op| step(&mut pool, &mut model, op));
    }
}

/// The order of age alone, over all sizes of its tree and many renumberings.
#[test]
fn order_of_age_against_a_plain_list() {
    let mut seed = 1u64;
    let mut below = |end: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    let mut ages = AgeOrder::new();
    let (mut list, mut positions): (Vec<(u32, u16)>, BTreeMap<u32, u32>) = Default::default();
    let mut renumbered = 0;
    for i in 0..30_000u32 {
        // The number of buffers rises and falls, up to several thousand.
        if below(10) < if i / 6000 % 2 == 0 { 8 } else { 2 } || list.is_empty() {
            let mut moves = Vec::new();
            let position = ages.push(i, |frame, position| moves.push((frame, position)));
            renumbered += usize::from(!moves.is_empty());
            positions.extend(moves);
            positions.insert(i, position);
            let room = below(513) as u16;
            ages.set_room(position, room);
            list.push((i, room));
        } else if below(4) > 0 {
            let (frame, _) = list.remove(below(list.len() as u64) as usize);
            ages.remove(positions.remove(&frame).unwrap());
        } else {
            let at = below(list.len() as u64) as usize;
            list[at].1 = below(513) as u16;
            ages.set_room(positions[&list[at].0], list[at].1);
        }
        // Mostly large, so that the answer is deep in the list.
        let span = 1 << below(10);
        let need = 512 - below(span) as u16;
        assert_eq!(ages.oldest(need), list.iter().find(|(_, room)| *room >= need).map(|(frame, _)| *frame));
        if i % 50 == 0 {
            ages.check();
        }
    }
    assert!(renumbered >= 3, "{renumbered} renumberings");
    list.into_iter().for_each(|(frame, _)| ages.remove(positions[&frame]));
    assert_eq!((ages.live(), ages.oldest(1)), (0, None));
    assert!(ages.metadata_bytes() < 1000);
}
