//! The codec, pool and policy that only tests have, each one file and one line in its table. Pages
//! pass through them in the core; a scheme names pool and policy.

use super::{Scheme, AXES};
use crate::budget::Sizes;
use crate::{Answer, Coded, Core, Extent, Fault, Filled, Page, PageRange, Placed, ProcId, Source, Tunables, RUN_PAGES};
use memfit_codec::{Codec, CodecId, Dictionaries, PAGE_BYTES};
use std::collections::HashMap;
use std::sync::Arc;

#[path = "../../../codec/src/dummy.rs"]
mod codec;

const FRAMES: u32 = 8;
const PAGES: u64 = 40;

struct World {
    core: Core,
    proc: ProcId,
    codec: Box<dyn Codec>,
    /// The pool's frames.
    memory: Vec<u8>,
    /// The swap tier.
    log: HashMap<u32, Vec<u8>>,
}

fn at(number: u64) -> Page {
    Page(number * RUN_PAGES)
}

/// Runs of equal bytes; their lengths depend on the page.
fn content(number: u64) -> [u8; PAGE_BYTES] {
    std::array::from_fn(|i| (number as usize * 7 + i / (40 + number as usize)) as u8)
}

impl World {
    fn new(scheme: Scheme) -> World {
        let codec = (codec::ENTRY.make)(&Arc::new(Dictionaries::new()));
        let (area_frames, swap) = (2 * FRAMES, true);
        let (sizes, scheme) = (Sizes::new(1 << 20, &scheme), Arc::new(scheme));
        let tunables =
            Tunables { scheme, sizes, staging_slots: 64, pool_frames: FRAMES, area_frames, swap, blocks: Vec::new() };
        let mut core = Core::new(tunables);
        let (proc, _) = core.add_process(64);
        World { core, proc, codec, memory: vec![0; area_frames as usize * PAGE_BYTES], log: HashMap::new() }
    }

    fn load(&mut self, number: u64) -> Source {
        let (limit, mut loads) = (PageRange { first: at(number), pages: 1 }, Vec::new());
        assert_eq!(self.core.fault(self.proc, at(number), limit, 1, &mut loads), Fault::Load);
        loads[0].source.clone()
    }

    fn loaded(&mut self, number: u64) {
        self.core.loaded(self.proc, at(number), Filled::Done);
        self.core.take_effects();
        self.core.check();
    }

    /// The program writes a page; the page is evicted and goes to the pool.
    fn store(&mut self, number: u64, codec: CodecId) {
        assert_eq!(self.load(number), Source::Zero);
        self.loaded(number);
        assert_eq!(self.core.claim_range(self.proc, PageRange { first: at(number), pages: 1 }, 1, 0).len(), 1);
        self.core.evicted(self.proc, at(number), 1, Answer { moved: 1, ..Answer::default() }, 0);
        loop {
            let mut picked = Vec::new();
            self.core.pick_compress(1, &mut picked);
            let mut packed = [0; PAGE_BYTES];
            let len = self.codec.compress(codec, &content(number), &mut packed, PAGE_BYTES).expect("it shrinks");
            match self.core.compressed(picked[0].object, Coded::Bytes { codec: codec.0, len: len as u32 }) {
                Placed::Pool { runs, .. } => {
                    self.memory[runs.slot().byte() as usize..][..len].copy_from_slice(&packed[..len]);
                    return self.core.check();
                }
                Placed::Full => self.write_back(),
                other => panic!("{other:?}"),
            }
        }
    }

    fn write_back(&mut self) {
        let mut victims = Vec::new();
        self.core.pick_writeback(true, 1 << 20, &mut victims);
        assert!(!victims.is_empty(), "the policy gives room");
        for victim in victims {
            let (unit, from) = (self.log.len() as u32 + 1, victim.runs.slot().byte() as usize);
            self.log.insert(unit, self.memory[from..from + victim.runs.len() as usize].to_vec());
            self.core.written(victim.object, Some(Extent { unit }));
        }
        self.core.take_effects();
    }

    /// The bytes of a refaulted page, and whether they were in the swap tier.
    fn bytes(&mut self, number: u64) -> ([u8; PAGE_BYTES], bool) {
        let (packed, codec, swapped) = match self.load(number) {
            Source::Pooled { runs, codec } => {
                (self.memory[runs.slot().byte() as usize..][..runs.len() as usize].to_vec(), codec, false)
            }
            Source::Swapped { extent, codec, .. } => (self.log[&extent.unit].clone(), codec, true),
            other => panic!("{other:?}"),
        };
        let mut page = [0; PAGE_BYTES];
        self.codec.decompress(CodecId(codec), &packed, &mut page).expect("what was compressed");
        self.loaded(number);
        (page, swapped)
    }
}

#[test]
fn a_new_codec_pool_and_policy_are_run() {
    let mut scheme = Scheme::default();
    for (axis, choice) in [("pool", "dummy"), ("replacement", "dummy"), ("admission", "all")] {
        let axis = AXES.iter().find(|found| found.name == axis).expect("an axis");
        assert!(axis.choose(&mut scheme, choice), "{} has no {choice}", axis.name);
        assert_eq!(axis.chosen(&scheme).name, choice);
    }
    assert!((scheme.replacement.kind.fits)(scheme.pool.kind));
    let mut world = World::new(scheme);
    (0..PAGES).for_each(|number| world.store(number, codec::ENTRY.id));
    let mut swapped = 0;
    for number in 0..PAGES {
        let (page, from_swap) = world.bytes(number);
        assert!(page == content(number), "page {number} came back as another");
        swapped += u32::from(from_swap);
    }
    assert!((PAGES as u32 - FRAMES..PAGES as u32).contains(&swapped), "{swapped} pages from the swap tier");
}
