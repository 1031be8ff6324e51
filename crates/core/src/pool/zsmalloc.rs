//! Size classes in the manner of Linux's zsmalloc, written from its description.
//!
//! A zspage is `1..=chain_frames` contiguous frames cut into equal slots. Slots have 32, 48, 64, ..
//! 4096 bytes. Each size takes the zspage that uses most of its frames in whole percent, and the
//! shortest of equal ones. Neighbouring sizes whose zspages have equally many frames and slots are
//! one class. With 4 frames these are the 69 classes of the kernel. An object goes to a free slot
//! of the fullest zspage of its class, so that the others run empty; an empty zspage frees its
//! frames at once. Compaction empties the emptiest zspages into the fullest ones.
//!
//! Differences from the kernel: zspages are contiguous in the frame area, so an object that crosses
//! a frame border is still one run of bytes, and reading it needs no copy. Placement uses 8
//! fullness groups, not 4, so that a zspage just a quarter full counts as almost full. The back
//! pointer for compaction is outside the objects.
//!
//! Objects that fill a frame have only a handle and a frame.
//!
//! A [`Unit`] is a zspage, or such a frame. A sealed zspage is in no group: nothing finds it.
//!
//! Metadata per zpage: 8 bytes (handle); unless it fills a frame, 4 per slot (owner) and 16 per
//! zspage; 0.14 per frame; 8 per frame after the first query about a unit. The tables have up to
//! 1/8 slack while they grow, up to 1/2 after they shrank.

mod class;
mod units;

use super::handles::{HandleTable, Place, CLASSES_MAX};
use super::span::SpanAlloc;
use super::{
    table_bytes, Handle, Leaving, Move, Placed, Pool, PoolEntry, PoolFull, PoolParams, PoolUsage, Runs, Slot, Span,
    Unit, UnitView, LEN_MAX,
};
use alloc::{boxed::Box, vec::Vec};
use class::{Class, Layout};
use core::cell::OnceCell;
use units::{Start, UnitIndex};

/// Entry of this pool in [`super::POOLS`].
pub(super) const ENTRY: PoolEntry = PoolEntry {
    name: "zsmalloc",
    help: "size classes 16 bytes apart over chains of contiguous frames; dense; empties frames by compaction",
    leaving: Leaving::ZpagesAndUnits,
    tidies: false,
    compacts: true,
    make: |params| Box::new(Zsmalloc::new(params)),
};

/// Distance between size classes, bytes; also the alignment of slots.
const STEP: u32 = 16;

/// Smallest slot, bytes.
const SLOT_MIN: u32 = 32;

const STEPS: usize = (LEN_MAX / STEP) as usize;
const _: () = assert!(LEN_MAX % STEP == 0 && STEPS <= CLASSES_MAX);

/// The class of objects that fill a frame. It has no zspages: [`Place::zspage`] is the frame.
const WHOLE: u8 = 0;

/// The pool.
struct Zsmalloc {
    /// In descending order of slot size.
    classes: Vec<Class>,
    /// Class of the lengths `(16 * i, 16 * (i + 1)]`.
    class_of: [u8; STEPS],
    handles: HandleTable,
    frames: SpanAlloc,
    limit: u32,
    stored_bytes: u64,
    /// Bytes of the slots in use.
    slot_bytes: u64,
    /// Objects of class [`WHOLE`].
    whole: u64,
    /// Created by the first query about a unit; kept up to date from then on.
    units: OnceCell<UnitIndex>,
}

/// A zspage that compaction could empty.
#[derive(Debug, Clone, Copy)]
struct Source {
    class: usize,
    zspage: u32,
    frames: u32,
    objects: u32,
}

impl Source {
    /// Whether a move frees more frames here than there. On a tie the earlier class wins.
    fn beats(&self, other: &Source) -> bool {
        self.frames * other.objects > other.frames * self.objects
    }
}

impl Zsmalloc {
    fn new(params: &PoolParams) -> Self {
        let mut classes: Vec<Class> = Vec::new();
        let mut class_of = [0; STEPS];
        for step in (0..STEPS).rev() {
            let bytes = ((step as u32 + 1) * STEP).max(SLOT_MIN);
            let new = Layout::choose(bytes, params.chain_frames);
            let same = |old: &Class| (old.layout.frames, old.layout.slots) == (new.frames, new.slots);
            if !classes.last().is_some_and(same) {
                classes.push(Class::new(new));
            }
            class_of[step] = (classes.len() - 1) as u8;
        }
        classes.shrink_to_fit();
        assert_eq!((classes[0].layout.frames, classes[0].layout.slots), (1, 1), "whole frames are class 0");
        let frames = SpanAlloc::new(params.area_frames, params.chain_frames);
        Zsmalloc {
            classes,
            class_of,
            handles: HandleTable::new(),
            frames,
            limit: params.limit_frames,
            stored_bytes: 0,
            slot_bytes: 0,
            whole: 0,
            units: OnceCell::new(),
        }
    }

    fn place_whole(&mut self, len: u32) -> Result<Placed, PoolFull> {
        let grew = self.frames.alloc_within(1, self.limit)?;
        let handle = self.handles.insert(Place { class: WHOLE, slot: 0, len: len as u16, zspage: grew.first });
        if let Some(units) = self.units.get_mut() {
            units.insert(grew.first, Start { class: WHOLE, number: handle.raw() });
        }
        self.stored_bytes += u64::from(len);
        self.whole += 1;
        let runs = Runs::one(Slot { frame: grew.first, offset: 0 }, len);
        Ok(Placed { handle, runs, grew })
    }

    /// Frees the frames of a zspage.
    fn free(&mut self, span: Span) {
        self.frames.free(span);
        if let Some(units) = self.units.get_mut() {
            units.remove(span.first);
        }
    }

    fn units(&self) -> &UnitIndex {
        self.units.get_or_init(|| {
            let mut units = UnitIndex::default();
            self.starts().for_each(|(first, start)| units.insert(first, start));
            units
        })
    }

    /// First frames of all zspages and whole frames, unordered; O(n).
    fn starts(&self) -> impl Iterator<Item = (u32, Start)> + '_ {
        let zspages = (0..).zip(&self.classes).flat_map(|(class, zspages)| {
            zspages.spans().map(move |(number, span)| (span.first, Start { class, number }))
        });
        let whole = self.handles.iter().filter(|(_, place)| place.class == WHOLE);
        zspages.chain(whole.map(|(handle, place)| (place.zspage, Start { class: WHOLE, number: handle.raw() })))
    }

    fn source(&self, class: usize, movable: &dyn Fn(Handle) -> bool) -> Option<Source> {
        let (zspage, objects) = self.classes[class].source(movable)?;
        Some(Source { class, zspage, frames: self.classes[class].layout.frames, objects })
    }

    /// Moves objects out of a zspage, until `out` has `max_moves` moves. Returns the frames if the
    /// zspage is empty then.
    fn empty(&mut self, source: Source, max_moves: usize, out: &mut Vec<Move>) -> Option<Span> {
        let class = &mut self.classes[source.class];
        class.detach(source.zspage);
        for from in 0..class.layout.slots as u16 {
            let Some(handle) = class.owner(source.zspage, from) else { continue };
            if out.len() == max_moves {
                break;
            }
            let (zspage, to) = class.take().expect("the other zspages have room for all of them");
            class.set_owner(zspage, to, handle);
            class.vacate(source.zspage, from);
            let place = self.handles.get(handle);
            self.handles.set(handle, Place { zspage, slot: to, ..place });
            let (from, to) = (class.slot(source.zspage, from), class.slot(zspage, to));
            out.push(Move::of_one(handle, from, to, u32::from(place.len)));
        }
        let span = class.reattach(source.zspage)?;
        self.free(span);
        Some(span)
    }
}

impl Pool for Zsmalloc {
    fn place(&mut self, len: u32) -> Result<Placed, PoolFull> {
        assert!((1..=LEN_MAX).contains(&len), "an object of {len} bytes");
        let class_index = self.class_of[((len - 1) / STEP) as usize];
        if class_index == WHOLE {
            return self.place_whole(len);
        }
        let (zspage, slot, grew) = match self.classes[usize::from(class_index)].take() {
            Some((zspage, slot)) => (zspage, slot, Span::EMPTY),
            None => {
                let span =
                    self.frames.alloc_within(self.classes[usize::from(class_index)].layout.frames, self.limit)?;
                let (zspage, slot) = self.classes[usize::from(class_index)].take_new(span.first);
                if let Some(units) = self.units.get_mut() {
                    units.insert(span.first, Start { class: class_index, number: zspage });
                }
                (zspage, slot, span)
            }
        };
        let handle = self.handles.insert(Place { class: class_index, slot, len: len as u16, zspage });
        let class = &mut self.classes[usize::from(class_index)];
        class.set_owner(zspage, slot, handle);
        self.stored_bytes += u64::from(len);
        self.slot_bytes += u64::from(class.layout.bytes);
        Ok(Placed { handle, runs: Runs::one(class.slot(zspage, slot), len), grew })
    }

    fn runs(&self, handle: Handle) -> Runs {
        let place = self.handles.get(handle);
        if place.class == WHOLE {
            return Runs::one(Slot { frame: place.zspage, offset: 0 }, u32::from(place.len));
        }
        Runs::one(self.classes[usize::from(place.class)].slot(place.zspage, place.slot), u32::from(place.len))
    }

    fn remove(&mut self, handle: Handle) -> Span {
        let place = self.handles.remove(handle);
        self.stored_bytes -= u64::from(place.len);
        let span = if place.class == WHOLE {
            self.whole -= 1;
            Span { first: place.zspage, frames: 1 }
        } else {
            let class = &mut self.classes[usize::from(place.class)];
            assert_eq!(class.owner(place.zspage, place.slot), Some(handle), "the slot belongs to the handle");
            self.slot_bytes -= u64::from(class.layout.bytes);
            let Some(span) = class.put(place.zspage, place.slot) else { return Span::EMPTY };
            span
        };
        self.free(span);
        span
    }

    fn set_limit(&mut self, frames: u32) {
        self.limit = frames;
    }

    fn usage(&self) -> PoolUsage {
        PoolUsage {
            zpages: u64::from(self.handles.live()),
            stored_bytes: self.stored_bytes,
            used_bytes: self.slot_bytes + self.whole * u64::from(LEN_MAX),
            frames: self.frames.used(),
        }
    }

    fn metadata_bytes(&self) -> u64 {
        let classes: u64 = self.classes.iter().map(Class::metadata_bytes).sum();
        let units = self.units.get().map_or(0, UnitIndex::metadata_bytes);
        let fixed = table_bytes(&self.classes) + units + size_of::<Self>() as u64;
        fixed + classes + self.handles.metadata_bytes() + self.frames.metadata_bytes()
    }

    fn frames(&self) -> u32 {
        self.frames.used()
    }

    fn compact(
        &mut self,
        max_moves: usize,
        movable: &dyn Fn(Handle) -> bool,
        out: &mut Vec<Move>,
        freed: &mut Vec<Span>,
    ) {
        let end = out.len().saturating_add(max_moves);
        let mut sources: Vec<Option<Source>> =
            (0..self.classes.len()).map(|class| self.source(class, movable)).collect();
        while out.len() < end {
            let best = sources.iter().flatten().copied();
            let Some(best) = best.reduce(|best, new| if new.beats(&best) { new } else { best }) else { break };
            freed.extend(self.empty(best, end, out));
            sources[best.class] = self.source(best.class, movable);
        }
    }

    fn trim(&mut self) {
        self.handles.trim();
    }

    fn unit(&self, handle: Handle) -> Unit {
        let place = self.handles.get(handle);
        match place.class {
            WHOLE => Unit(place.zspage),
            class => Unit(self.classes[usize::from(class)].first_frame(place.zspage)),
        }
    }

    fn view(&self, unit: Unit) -> UnitView {
        let Start { class, number } = self.units().get(unit);
        let Layout { bytes, frames, slots } = self.classes[usize::from(class)].layout;
        let free = if class == WHOLE { 0 } else { self.classes[usize::from(class)].free_slots(number) };
        UnitView {
            class: (self.classes.len() - 1 - usize::from(class)) as u16,
            zpages: (slots - free) as u16,
            capacity: slots as u16,
            frames: frames as u16,
            free_bytes: free * bytes,
        }
    }

    fn zpages(&self, unit: Unit, out: &mut Vec<Handle>) {
        let Start { class, number } = self.units().get(unit);
        match class {
            WHOLE => out.push(Handle::from_raw(number)),
            class => out.extend(self.classes[usize::from(class)].objects(number).map(|(_, handle)| handle)),
        }
    }

    fn seal(&mut self, unit: Unit, sealed: bool) {
        let Start { class, number } = self.units().get(unit);
        // A whole frame never takes another object and never moves.
        if class != WHOLE {
            self.classes[usize::from(class)].seal(number, sealed);
        }
    }

    fn check(&self) {
        self.frames.check();
        self.handles.check();
        self.classes.iter().for_each(Class::check);
        let mut spans: Vec<Span> = self.classes.iter().flat_map(Class::spans).map(|(_, span)| span).collect();
        let (mut stored_bytes, mut slot_bytes, mut in_slots) = (0, 0, 0);
        for (handle, place) in self.handles.iter() {
            stored_bytes += u64::from(place.len);
            let class = &self.classes[usize::from(place.class)];
            assert!(u32::from(place.len) <= class.layout.bytes, "{place:?} fits");
            if place.class == WHOLE {
                spans.push(Span { first: place.zspage, frames: 1 });
            } else {
                assert_eq!(class.owner(place.zspage, place.slot), Some(handle), "owner of {place:?}");
                slot_bytes += u64::from(class.layout.bytes);
                in_slots += 1;
            }
        }
        assert_eq!((stored_bytes, slot_bytes), (self.stored_bytes, self.slot_bytes));
        assert_eq!(in_slots, self.classes.iter().map(Class::used).sum::<u64>(), "every slot in use has a handle");
        spans.sort_unstable_by_key(|span| span.first);
        assert!(spans.windows(2).all(|pair| pair[0].first + pair[0].frames <= pair[1].first), "zspages overlap");
        assert!(spans.iter().flat_map(|span| span.iter()).all(|frame| self.frames.is_used(frame.0)));
        assert_eq!(spans.iter().map(|span| span.frames).sum::<u32>(), self.frames.used());
        if let Some(units) = self.units.get() {
            let mut starts: Vec<(u32, Start)> = self.starts().collect();
            starts.sort_unstable_by_key(|(first, _)| *first);
            assert!(units.iter().eq(starts), "the index has every unit and no other");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(chain_frames: u32) -> Zsmalloc {
        Zsmalloc::new(&PoolParams { chain_frames, ..PoolParams::new(1 << 20, 1 << 20) })
    }

    #[test]
    fn layouts_by_hand() {
        let layout = |bytes, chain| {
            let Layout { frames, slots, .. } = Layout::choose(bytes, chain);
            (frames, slots)
        };
        assert_eq!(layout(32, 8), (1, 128));
        assert_eq!(layout(2048, 4), (1, 2));
        // 1 frame wastes 33 %, 2 frames nothing.
        assert_eq!(layout(2720, 4), (2, 3));
        // 4 frames have 5 slots, 1 to 3 frames have one slot per frame.
        assert_eq!(layout(3264, 4), (4, 5));
        assert_eq!(layout(3280, 4), (1, 1));
        assert_eq!(layout(3632, 8), (8, 9));
        // 99.0 and 99.8 %: in whole percent 3 frames gain nothing over 2.
        assert_eq!(layout(208, 4), (2, 39));
    }

    /// Size, frames and objects of classes 1 to 69.
    const KERNEL: &str = "\
        32/1/128 48/3/256 64/1/64 80/1/51 96/3/128 112/2/73 128/1/32 144/3/85 160/2/51 176/4/93 192/3/64 208/2/39 \
        224/4/73 240/1/17 256/1/16 272/1/15 288/1/14 304/3/40 320/4/51 336/1/12 352/2/23 368/1/11 384/3/32 400/1/10 \
        416/4/39 432/3/28 448/1/9 464/4/35 480/2/17 496/4/33 512/1/8 528/4/31 544/2/15 560/4/29 576/1/7 592/4/27 \
        608/3/20 624/2/13 640/3/19 672/1/6 704/4/23 720/3/17 736/2/11 768/3/16 816/1/5 848/4/19 864/3/14 896/2/9 \
        944/3/13 960/4/17 1024/1/4 1088/4/15 1104/3/11 1168/2/7 1216/3/10 1248/4/13 1360/1/3 1488/4/11 1536/3/8 \
        1632/2/5 1744/3/7 1808/4/9 2048/1/2 2336/4/7 2448/3/5 2720/2/3 3072/3/4 3264/4/5 4096/1/1";

    /// The class of objects of this length, counted from 1 as in the paper.
    fn number(pool: &mut Zsmalloc, len: u32) -> u16 {
        let handle = pool.place(len).unwrap().handle;
        let number = pool.view(pool.unit(handle)).class + 1;
        pool.remove(handle);
        number
    }

    #[test]
    fn z1_z2_z3_the_69_classes_of_the_kernel() {
        let mut pool = pool(4);
        let rising: Vec<Layout> = pool.classes.iter().rev().map(|class| class.layout).collect();
        let table: Vec<String> =
            rising.iter().map(|Layout { bytes, frames, slots }| format!("{bytes}/{frames}/{slots}")).collect();
        assert_eq!(table, KERNEL.split_whitespace().collect::<Vec<_>>());
        // Each length goes to the smallest class that fits, and the view reports it.
        for len in 1..=LEN_MAX {
            let fits = rising.iter().position(|layout| layout.bytes >= len).unwrap();
            assert_eq!(usize::from(number(&mut pool, len)), fits + 1, "{len} bytes");
        }
        assert_eq!([48, 49].map(|len| number(&mut pool, len)), [2, 3]);
        let saves = |number: usize| 100 - rising[number - 1].bytes * 100 / LEN_MAX;
        assert_eq!([1, 2, 68, 69].map(saves), [100, 99, 21, 0], "percent, rounded up");
    }

    /// Rule 13: classes that a cap of 3072 bytes excludes.
    #[test]
    fn z13_a_cap_of_3072_bytes_shuts_out_the_last_two_classes() {
        let mut pool = pool(4);
        let mut numbers = |lens: std::ops::RangeInclusive<u32>| {
            let mut numbers: Vec<u16> = lens.map(|len| number(&mut pool, len)).collect();
            numbers.dedup();
            numbers
        };
        assert_eq!(numbers(1..=3072), (1..=67).collect::<Vec<_>>());
        assert_eq!(numbers(3073..=LEN_MAX), [68, 69]);
    }

    /// Rules 2 and 10: a full zspage of class 2 has 256 zpages, which must all leave to free 12
    /// KiB.
    #[test]
    fn z2_z10_257_objects_of_class_2_are_two_units() {
        let mut pool = pool(4);
        let placed: Vec<Placed> = (0..257).map(|_| pool.place(48).unwrap()).collect();
        assert_eq!(pool.usage().frames, 6, "24 KiB");
        let units = [&placed[0], &placed[255], &placed[256]].map(|placed| pool.unit(placed.handle));
        assert_eq!(units, [0, 0, 3].map(Unit), "the number of the first frame");
        let full = UnitView { class: 1, zpages: 256, capacity: 256, frames: 3, free_bytes: 0 };
        assert_eq!(pool.view(units[0]), full);
        assert_eq!(pool.view(units[2]), UnitView { zpages: 1, free_bytes: 255 * 48, ..full });
        let mut zpages = Vec::new();
        pool.zpages(units[0], &mut zpages);
        zpages.sort_unstable();
        assert_eq!(zpages, placed[..256].iter().map(|placed| placed.handle).collect::<Vec<_>>());
        for (left, &handle) in zpages.iter().enumerate().rev() {
            let freed = pool.remove(handle);
            assert_eq!(freed, if left == 0 { Span { first: 0, frames: 3 } } else { Span::EMPTY });
        }
        pool.check();
    }

    /// Rules 6 and 7: almost full zspages are used first; at the limit an object that needs a new
    /// zspage is refused.
    #[test]
    fn z6_z7_room_is_looked_for_in_almost_full_zspages_first() {
        let mut pool = pool(4);
        // Class 40: 6 slots of 672 bytes in a frame. Then frame 0 has 1 object (at most a quarter),
        // frame 1 has 5.
        let placed: Vec<Placed> = (0..12).map(|_| pool.place(672).unwrap()).collect();
        for old in placed[1..6].iter().chain(&placed[11..]) {
            assert!(pool.remove(old.handle).is_empty());
        }
        pool.set_limit(2);
        assert_eq!(pool.place(672).unwrap().runs.slot().frame, 1);
        assert_eq!([0; 5].map(|_| pool.place(672).unwrap().runs.slot().frame), [0; 5]);
        assert_eq!(pool.place(672), Err(PoolFull { frames_used: 2, frames_needed: 1, frames_max: 2 }));
        pool.check();
    }

    #[test]
    fn a_whole_frame_is_a_unit() {
        let mut pool = pool(4);
        let handles = [4096, 32, 4096].map(|len| pool.place(len).unwrap().handle);
        let view = UnitView { class: 68, zpages: 1, capacity: 1, frames: 1, free_bytes: 0 };
        assert_eq!(handles.map(|handle| pool.unit(handle)), [0, 1, 2].map(Unit));
        assert_eq!((pool.view(Unit(2)), pool.view(Unit(1)).class), (view, 0));
        let mut zpages = Vec::new();
        pool.zpages(Unit(2), &mut zpages);
        pool.seal(Unit(2), true);
        assert_eq!(zpages, [handles[2]]);
        assert_eq!(pool.remove(handles[2]), Span { first: 2, frames: 1 });
        pool.check();
    }

    #[test]
    fn a_sealed_zspage_takes_nothing_and_stays_where_it_is() {
        let mut pool = pool(1);
        // Frames 0 to 3 with 3 slots each: one object in each of frames 0 to 2, two in frame 3.
        let placed: Vec<Placed> = (0..12).map(|_| pool.place(1360).unwrap()).collect();
        for i in [1, 2, 4, 5, 7, 8, 11] {
            assert!(pool.remove(placed[i].handle).is_empty());
        }
        [0, 3].into_iter().for_each(|frame| pool.seal(Unit(frame), true));
        pool.check();
        // Without the seals, frame 3 as the fullest would get the object of the emptiest.
        let (mut moves, mut freed) = (Vec::new(), Vec::new());
        pool.compact(10, &|_| true, &mut moves, &mut freed);
        assert_eq!(moves.iter().map(|m| (m.from.slot().frame, m.to.slot().frame)).collect::<Vec<_>>(), [(2, 1)]);
        assert_eq!(freed, [Span { first: 2, frames: 1 }]);
        // Frame 1 has room for one more object. The next one needs a new frame although sealed ones
        // have five free slots.
        assert_eq!([0; 2].map(|_| pool.place(1360).unwrap().runs.slot().frame), [1, 2]);
        // Frame 2 alone cannot be emptied: free slots of sealed zspages do not count.
        pool.compact(10, &|_| true, &mut moves, &mut freed);
        assert_eq!(moves.len(), 1);
        // A removal from a sealed zspage makes no room until it is unsealed.
        assert_eq!(pool.remove(placed[9].handle), Span::EMPTY);
        pool.check();
        assert_eq!([0; 3].map(|_| pool.place(1360).unwrap().runs.slot().frame), [2, 2, 4]);
        pool.seal(Unit(3), false);
        pool.check();
        assert_eq!(pool.view(Unit(3)).zpages, 1);
        assert_eq!([0; 4].map(|_| pool.place(1360).unwrap().runs.slot().frame), [3, 3, 4, 4]);
        // The seal ends with the unit.
        assert_eq!(pool.remove(placed[0].handle), Span { first: 0, frames: 1 });
        assert_eq!([0; 2].map(|_| pool.place(1360).unwrap().runs.slot().frame), [0, 0]);
        pool.check();
    }

    #[test]
    fn the_index_costs_nothing_until_somebody_asks() {
        let mut pool = pool(4);
        let mut handles: Vec<Handle> = (0..3000).map(|i| pool.place(40 + i % 4057).unwrap().handle).collect();
        let (without, frames) = (pool.metadata_bytes(), u64::from(pool.usage().frames));
        assert_eq!(handles.iter().filter(|&&handle| pool.unit(handle) == Unit(0)).count(), 9, "40 to 48 bytes");
        assert_eq!(pool.metadata_bytes(), without);
        // The index is built from the existing zpages.
        assert!(handles.iter().all(|&handle| pool.view(pool.unit(handle)).zpages > 0));
        assert!((frames * 8..frames * 10).contains(&(pool.metadata_bytes() - without)));
        pool.check();
        // Placing, removing and moving update it; it shrinks when less is left.
        handles.extend((0..3000).map(|i| pool.place(40 + i % 4057).unwrap().handle));
        pool.check();
        handles.drain(100..).for_each(|handle| assert!(pool.remove(handle).frames <= 4));
        pool.compact(usize::MAX, &|_| true, &mut Vec::new(), &mut Vec::new());
        pool.check();
        handles.drain(..).for_each(|handle| assert!(pool.remove(handle).frames <= 4));
        assert!(pool.units().metadata_bytes() <= 64 * 8);
    }

    #[test]
    #[should_panic(expected = "Unit(1) is not in use")]
    fn a_frame_inside_a_zspage_is_no_unit() {
        let mut pool = pool(4);
        pool.place(48).unwrap();
        pool.view(Unit(1));
    }

    #[test]
    fn classes_hold_what_they_are_for() {
        for chain in 1..=8 {
            let pool = pool(chain);
            for len in 1..=LEN_MAX {
                let class = &pool.classes[usize::from(pool.class_of[((len - 1) / STEP) as usize])];
                assert!(class.layout.bytes >= len);
                assert!(class.layout.bytes * class.layout.slots <= class.layout.frames * super::super::FRAME_BYTES);
            }
            let alike = |pair: &[Class]| {
                (pair[0].layout.frames, pair[0].layout.slots) == (pair[1].layout.frames, pair[1].layout.slots)
            };
            assert!(!pool.classes.windows(2).any(alike), "neighbours that are alike are one class");
        }
    }

    /// The numbers in the module's documentation; `--nocapture` prints them.
    #[test]
    fn metadata_and_waste() {
        // The last row has lengths from 200 to 3263 bytes in an irregular order.
        let rows: [&dyn Fn(u32) -> u32; 9] =
            [&|_| 512, &|_| 1000, &|_| 1365, &|_| 1500, &|_| 2000, &|_| 2700, &|_| 3264, &|_| 4096, &|i| {
                200 + i.wrapping_mul(2_654_435_761) % 3064
            }];
        for chain in [1, 4, 8] {
            let mut pool = pool(chain);
            let empty = pool.metadata_bytes();
            println!("chains of {chain}: {} classes, {empty} bytes of metadata when empty", pool.classes.len());
            for len in rows {
                let handles: Vec<Handle> = (0..20_000).map(|i| pool.place(len(i)).unwrap().handle).collect();
                let usage = pool.usage();
                let mean = usage.stored_bytes / usage.zpages;
                let per_zpage = (pool.metadata_bytes() - empty) as f64 / usage.zpages as f64;
                let waste = 1.0 - usage.stored_bytes as f64 / (usage.frames as f64 * 4096.0);
                println!("  {mean:4} bytes: {per_zpage:4.1} of metadata per zpage, waste {:4.1} %", waste * 100.0);
                assert!(per_zpage < 23.0, "{per_zpage}");
                for handle in handles {
                    pool.remove(handle);
                }
                assert_eq!(pool.usage().frames, 0);
            }
        }
    }
}
