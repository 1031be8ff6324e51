//! Compression of staged pages into the pool, by the reclaim thread and by waiting faults.

use crate::state::Shared;
use crate::swap::Aligned;
use crate::trainer::Trainer;
use memfit_codec::{CodecId, CodecSelector, Dictionaries, Prices, Spill, Worker, Worth, FAULT_NS};
use memfit_core::driver::Done;
use memfit_core::trace::Whose;
use memfit_core::{Coded, Compress, Extent, ObjectId, Origin, Placed, Stored, PAGE_BYTES};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// Buffers and contexts for one thread at a time.
pub struct Compressor {
    worker: Worker,
    dictionaries: Arc<Dictionaries>,
    /// Trains dictionaries: only in the compressor of the reclaim thread.
    trainer: Option<Trainer>,
    selector: CodecSelector,
    page: Aligned,
    coded: Box<[u8]>,
    second: Box<[u8]>,
    picked: Vec<Compress>,
    worth: Worth,
    spill: Spill,
}

impl Compressor {
    /// Makes buffers and contexts. The budget is in bytes.
    pub fn new(dictionaries: &Arc<Dictionaries>, budget: u64, trainer: Option<Trainer>) -> Compressor {
        Compressor {
            worker: Worker::with(dictionaries),
            dictionaries: Arc::clone(dictionaries),
            trainer,
            selector: CodecSelector::new(budget / PAGE_BYTES),
            page: Aligned::new(4096),
            coded: vec![0; 8192].into(),
            second: vec![0; 8192].into(),
            picked: Vec::new(),
            worth: Worth { page_ns: 0, new_page_ns: 0, trained: false },
            spill: Spill::default(),
        }
    }

    /// Compresses up to `max` of the oldest staged pages. Adds those that go to the swap tier
    /// uncompressed to `Shared::raw`.
    pub fn compress(&mut self, shared: &Shared, max: usize, origin: Origin) -> Done {
        let mut picked = std::mem::take(&mut self.picked);
        picked.clear();
        let mut state = shared.lock();
        if state.core.pool_is_full() {
            self.picked = picked;
            return Done { gained: 0, blocked: true };
        }
        state.core.pick_compress(max, &mut picked);
        let counters = state.core.counters();
        self.worth = self.spill.worth(Prices {
            page_ns: state.core.page_worth_ns(FAULT_NS),
            write_ns: shared.swap.as_ref().map_or(0, |swap| swap.page_write_ns()),
            compressed: counters.compressed,
            spilled: counters.to_swap - counters.raw_to_swap,
            trained: self.dictionaries.count() > 0,
        });
        shared.apply_effects(state);
        let mut done = Done::default();
        let (mut tried, mut writes) = (0, false);
        while let Some(&item) = picked.get(tried).filter(|_| !done.blocked && !writes) {
            tried += 1;
            match self.compress_one(shared, item, origin) {
                Placed::Swap => shared.raw.lock().push(item),
                Placed::Full => done.blocked = true,
                Placed::Pool { due, .. } => {
                    done.gained += 1;
                    writes = due;
                }
                Placed::Nothing => done.gained += 1,
                Placed::Refaulted => {}
            }
        }
        if tried < picked.len() {
            let mut state = shared.lock();
            state.core.give_back(&picked[tried..]);
            shared.apply_effects(state);
        }
        self.picked = picked;
        done
    }

    fn compress_one(&mut self, shared: &Shared, item: Compress, origin: Origin) -> Placed {
        let mut state = shared.lock();
        let (goes_on, slot) = (state.core.goes_on(item.object), state.core.kept_slot(item.object));
        let (wants_estimate, offers) = (state.core.wants_estimate(item.object), state.core.wants_offer());
        let len_max = state.core.len_max() as usize;
        // An area is closed only when no page is staged in it.
        let segment = Arc::clone(state.segments.get(&item.slot.area).expect("the area of a staged page is open"));
        drop(state);
        // A codec works on a copy: the program could change its shared segment meanwhile.
        // The core keeps the slot until `compressed`.
        segment.copy_page(crate::proc::slot_offset(item.slot.index), self.page.bytes());
        if let Some(contents) = shared.contents.as_ref().filter(|contents| contents.all) {
            let whose = Whose::Object(item.object);
            let held = contents.examine(whose, self.page.bytes(), &mut self.worker, &mut self.second);
            contents.note(&shared.lock().core, held);
        }
        let word = memfit_codec::same_filled(self.page.bytes()).filter(|_| shared.scheme.codec.same_filled != 0);
        if word.is_none() && item.shared {
            let label = shared.hasher.label(self.page.bytes());
            let mut state = shared.lock();
            let placed = state.core.same_as(item.object, label);
            shared.apply_effects(state);
            if let Some(placed) = placed {
                return placed;
            }
        }
        let clean = if word.is_none() && goes_on { self.stored(shared, item.object, slot) } else { None };
        if word.is_none() && clean.is_none() && offers {
            let estimate = wants_estimate.then(|| memfit_codec::entropy(self.page.bytes()));
            let mut state = shared.lock();
            let placed = state.core.offer(item.object, origin, estimate);
            shared.apply_effects(state);
            if let Some(placed) = placed {
                return placed;
            }
        }
        let coded = match word {
            Some(word) => Coded::Word(word),
            None => match clean.map_or_else(|| self.encode(shared, item.region, len_max), Coded::Stored) {
                Coded::Incompressible if !goes_on => {
                    self.stored(shared, item.object, None).map_or(Coded::Incompressible, Coded::Stored)
                }
                coded => coded,
            },
        };
        let mut state = shared.lock();
        state.note_freed_frames(&shared.memory);
        let placed = state.core.compressed(item.object, coded);
        if let Placed::Pool { runs, grew, .. } = &placed {
            state.frames.grew(*grew);
            let bytes = match coded {
                Coded::Bytes { len, .. } => &self.coded[..len as usize],
                _ => &*self.page.bytes(),
            };
            // The core gave this place to this object alone, and its lock is held.
            for (at, part) in runs.parts() {
                shared.memory.write(at, &bytes[part]);
            }
        }
        // A page for which there is no room is compressed again later, and counts then. One that
        // was wanted meanwhile has not left.
        let counts = !matches!(placed, Placed::Full | Placed::Refaulted);
        if let Some(regions) = shared.regions.as_ref().filter(|_| counts) {
            regions.became(item.slot, &coded);
        }
        shared.apply_effects(state);
        if let (Coded::Bytes { codec, len }, true) = (coded, counts) {
            let count = &shared.meters.codecs[usize::from(codec)];
            count.pages.fetch_add(1, Relaxed);
            count.in_bytes.fetch_add(4096, Relaxed);
            count.out_bytes.fetch_add(u64::from(len), Relaxed);
        }
        placed
    }

    /// Where the swap tier still has the contents of `self.page`. `slot`: the raw slot that may
    /// have them.
    fn stored(&mut self, shared: &Shared, object: ObjectId, slot: Option<Extent>) -> Option<Stored> {
        let swap = shared.swap.as_ref().filter(|_| shared.has_swapped())?;
        let Some(extent) = slot else { return swap.copy_of(self.page.bytes(), object) };
        let raw = Stored { extent, len: PAGE_BYTES as u16, codec: 0 };
        swap.slot_has(extent, self.page.bytes()).then_some(raw)
    }

    /// Compresses `self.page` into `self.coded` with the scheme's codec.
    fn encode(&mut self, shared: &Shared, region: u32, len_max: usize) -> Coded {
        let (limit, newest) = (len_max + 1, self.dictionaries.count());
        let (page, worker) = (&*self.page.bytes(), &mut self.worker);
        let (coded, other) = (&mut self.coded, &mut self.second);
        let mut best: Option<(CodecId, usize)> = None;
        let mut compress = |codec: CodecId| {
            let real = codec.newest(newest);
            let len = worker.compress(real, page, other, limit);
            if let Some(len) = len.filter(|&len| best.is_none_or(|(_, l)| len < l)) {
                best = Some((real, len));
                std::mem::swap(coded, other);
            }
            len
        };
        match shared.scheme.codec.kind {
            Some(fixed) => _ = compress(CodecId(fixed)),
            None => self.selector.compress(region.into(), self.worth, limit, compress),
        }
        let Some((codec, len)) = best else { return Coded::Incompressible };
        if codec.is_zstd() {
            if let Some(trainer) = &mut self.trainer {
                trainer.saw(page, &self.dictionaries);
            }
        }
        Coded::Bytes { codec: codec.0, len: len as u32 }
    }
}
