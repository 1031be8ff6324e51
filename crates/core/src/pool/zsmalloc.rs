//! Size classes in the manner of Linux' zsmalloc, made from its description.
//!
//! A zspage is `1..=chain_frames` contiguous frames cut into equal slots; each size class picks the length that wastes
//! least. Classes are 16 bytes apart; neighbours whose zspages would have as many frames and slots are one class. An
//! object goes to a free slot of the fullest zspage of its class, so that the others run empty; an empty zspage gives
//! its frames back at once. Compaction empties the emptiest zspages into the fullest ones.
//!
//! What differs from the kernel: zspages are contiguous in the frame area, so an object that crosses a frame border is
//! still one run of bytes and needs no copy to be read; there are 8 fullness groups, not 4; the back pointer that
//! compaction needs is beside the objects, not inside them. There is no write-back from the pool.
//!
//! Objects that fill a frame need none of this: they have a handle and a frame.
//!
//! Metadata per zpage: 8 bytes (handle), + 4 per slot (owner) and 16 per zspage unless it fills a frame, + 0.14 per
//! frame. The tables have up to 1/8 slack while they grow, up to 1/2 after they shrank.

mod class;

use super::handles::{HandleTable, Place, CLASSES_MAX};
use super::span::SpanAlloc;
use super::{
    table_bytes, Handle, Move, Placed, Pool, PoolEntry, PoolFull, PoolParams, PoolUsage, Slot, Span, Unit, UnitView, LEN_MAX,
};
use class::{Class, Layout};

/// The line of this pool in [`super::POOLS`].
pub(super) const ENTRY: PoolEntry = PoolEntry {
    name: "zsmalloc",
    help: "size classes 16 bytes apart over chains of contiguous frames; dense; empties frames by compaction",
    compacts: true,
    make: |params| Box::new(Zsmalloc::new(params)),
};

/// Distance between size classes, bytes; also the alignment of slots.
const STEP: u32 = 16;

const STEPS: usize = (LEN_MAX / STEP) as usize;
const _: () = assert!(LEN_MAX % STEP == 0 && STEPS <= CLASSES_MAX);

/// The class of objects that get a frame of their own. It has no zspages: [`Place::zspage`] is the frame.
const WHOLE: u8 = 0;

/// The pool.
struct Zsmalloc {
    /// In falling order of slot size.
    classes: Vec<Class>,
    /// Class of the lengths `(16 * i, 16 * (i + 1)]`.
    class_of: [u8; STEPS],
    handles: HandleTable,
    frames: SpanAlloc,
    limit: u32,
    stored_bytes: u64,
    /// Objects of class [`WHOLE`].
    whole: u64,
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
    /// Whether a move frees more frames here than there; equal ones are taken in order of classes.
    fn beats(&self, other: &Source) -> bool {
        self.frames * other.objects > other.frames * self.objects
    }
}

impl Zsmalloc {
    fn new(params: &PoolParams) -> Self {
        let mut classes: Vec<Class> = Vec::new();
        let mut class_of = [0; STEPS];
        for step in (0..STEPS).rev() {
            let new = Layout::choose((step as u32 + 1) * STEP, params.chain_frames);
            let same = |old: &Class| (old.layout.frames, old.layout.slots) == (new.frames, new.slots);
            if !classes.last().is_some_and(same) {
                classes.push(Class::new(new));
            }
            class_of[step] = (classes.len() - 1) as u8;
        }
        classes.shrink_to_fit();
        assert_eq!((classes[0].layout.frames, classes[0].layout.slots), (1, 1), "whole frames are class 0");
        let frames = SpanAlloc::new(params.area_frames, params.chain_frames);
        Zsmalloc { classes, class_of, handles: HandleTable::new(), frames, limit: params.limit_frames, stored_bytes: 0, whole: 0 }
    }

    /// Frames for a new zspage, within the limit.
    fn grow(&mut self, frames_needed: u32) -> Result<Span, PoolFull> {
        let frames_used = self.frames.used();
        if frames_used.saturating_add(frames_needed) > self.limit {
            return Err(PoolFull { frames_used, frames_needed, frames_max: self.limit });
        }
        let frames_max = self.frames.area();
        self.frames.alloc(frames_needed).ok_or(PoolFull { frames_used, frames_needed, frames_max })
    }

    fn place_whole(&mut self, len: u32) -> Result<Placed, PoolFull> {
        let grew = self.grow(1)?;
        let handle = self.handles.insert(Place { class: WHOLE, slot: 0, len: len as u16, zspage: grew.first });
        self.stored_bytes += u64::from(len);
        self.whole += 1;
        Ok(Placed { handle, slot: Slot { frame: grew.first, offset: 0 }, grew })
    }

    fn source(&self, class: usize, movable: &dyn Fn(Handle) -> bool) -> Option<Source> {
        let (zspage, objects) = self.classes[class].source(movable)?;
        Some(Source { class, zspage, frames: self.classes[class].layout.frames, objects })
    }

    /// Moves objects out of a zspage, at most `max_moves`; the frames if it is empty then.
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
            out.push(Move { handle, from, to, len: u32::from(place.len) });
        }
        let span = class.reattach(source.zspage)?;
        self.frames.free(span);
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
                let span = self.grow(self.classes[usize::from(class_index)].layout.frames)?;
                let (zspage, slot) = self.classes[usize::from(class_index)].take_new(span.first);
                (zspage, slot, span)
            }
        };
        let handle = self.handles.insert(Place { class: class_index, slot, len: len as u16, zspage });
        let class = &mut self.classes[usize::from(class_index)];
        class.set_owner(zspage, slot, handle);
        self.stored_bytes += u64::from(len);
        Ok(Placed { handle, slot: class.slot(zspage, slot), grew })
    }

    fn slot(&self, handle: Handle) -> (Slot, u32) {
        let place = self.handles.get(handle);
        if place.class == WHOLE {
            return (Slot { frame: place.zspage, offset: 0 }, u32::from(place.len));
        }
        (self.classes[usize::from(place.class)].slot(place.zspage, place.slot), u32::from(place.len))
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
            let Some(span) = class.put(place.zspage, place.slot) else { return Span::EMPTY };
            span
        };
        self.frames.free(span);
        span
    }

    fn set_limit(&mut self, frames: u32) {
        self.limit = frames;
    }

    fn usage(&self) -> PoolUsage {
        let classes: u64 = self.classes.iter().map(Class::metadata_bytes).sum();
        let fixed = table_bytes(&self.classes) + size_of::<Self>() as u64;
        let in_slots = |class: &Class| class.used() * u64::from(class.layout.bytes);
        PoolUsage {
            zpages: u64::from(self.handles.live()),
            stored_bytes: self.stored_bytes,
            used_bytes: self.classes.iter().map(in_slots).sum::<u64>() + self.whole * u64::from(LEN_MAX),
            frames: self.frames.used(),
            metadata_bytes: fixed + classes + self.handles.metadata_bytes() + self.frames.metadata_bytes(),
        }
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
        self.handles.trim();
    }

    fn unit(&self, _handle: Handle) -> Unit {
        unimplemented!()
    }

    fn view(&self, _unit: Unit) -> UnitView {
        unimplemented!()
    }

    fn zpages(&self, _unit: Unit, _out: &mut Vec<Handle>) {
        unimplemented!()
    }

    fn seal(&mut self, _unit: Unit, _sealed: bool) {
        unimplemented!()
    }

    fn check(&self) {
        self.frames.check();
        self.handles.check();
        self.classes.iter().for_each(Class::check);
        let mut spans: Vec<Span> = self.classes.iter().flat_map(Class::spans).collect();
        let (mut stored_bytes, mut in_slots) = (0, 0);
        for (handle, place) in self.handles.iter() {
            stored_bytes += u64::from(place.len);
            let class = &self.classes[usize::from(place.class)];
            assert!(u32::from(place.len) <= class.layout.bytes, "{place:?} fits");
            if place.class == WHOLE {
                spans.push(Span { first: place.zspage, frames: 1 });
            } else {
                assert_eq!(class.owner(place.zspage, place.slot), Some(handle), "owner of {place:?}");
                in_slots += 1;
            }
        }
        assert_eq!(stored_bytes, self.stored_bytes);
        assert_eq!(in_slots, self.classes.iter().map(Class::used).sum::<u64>(), "every slot in use has a handle");
        spans.sort_unstable_by_key(|span| span.first);
        assert!(spans.windows(2).all(|pair| pair[0].first + pair[0].frames <= pair[1].first), "zspages overlap");
        assert!(spans.iter().flat_map(|span| span.iter()).all(|frame| self.frames.is_used(frame.0)));
        assert_eq!(spans.iter().map(|span| span.frames).sum::<u32>(), self.frames.used());
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
        assert_eq!(layout(16, 8), (1, 256));
        assert_eq!(layout(2048, 4), (1, 2));
        // 1 frame wastes 33 %, 2 none.
        assert_eq!(layout(2720, 4), (2, 3));
        // 4 frames have 5 slots, 1 to 3 frames as many slots as frames.
        assert_eq!(layout(3264, 4), (4, 5));
        assert_eq!(layout(3280, 4), (1, 1));
        assert_eq!(layout(3632, 8), (8, 9));
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
            let keys = pool.classes.iter().map(|class| (class.layout.frames, class.layout.slots));
            assert_eq!(keys.collect::<std::collections::BTreeSet<_>>().len(), pool.classes.len());
        }
    }

    /// The figures of the module's documentation; `--nocapture` shows them.
    #[test]
    fn metadata_and_waste() {
        // The last row has lengths from 200 to 3263 bytes in an irregular order.
        let rows: [&dyn Fn(u32) -> u32; 9] =
            [&|_| 512, &|_| 1000, &|_| 1365, &|_| 1500, &|_| 2000, &|_| 2700, &|_| 3264, &|_| 4096, &|i| {
                200 + i.wrapping_mul(2_654_435_761) % 3064
            }];
        for chain in [1, 4, 8] {
            let mut pool = pool(chain);
            let empty = pool.usage().metadata_bytes;
            println!("chains of {chain}: {} classes, {empty} bytes of metadata when empty", pool.classes.len());
            for len in rows {
                let handles: Vec<Handle> = (0..20_000).map(|i| pool.place(len(i)).unwrap().handle).collect();
                let usage = pool.usage();
                let mean = usage.stored_bytes / usage.zpages;
                let per_zpage = (usage.metadata_bytes - empty) as f64 / usage.zpages as f64;
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
