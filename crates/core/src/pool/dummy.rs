//! An example of a new pool that only tests have: this file and its line in [`super::POOLS`]. Each
//! zpage has a frame of its own.

use super::span::SpanAlloc;
use super::{Handle, Leaving, Placed, Pool, PoolEntry, PoolFull, PoolUsage, Runs, Slot, Span};
use std::collections::BTreeMap;

pub(super) const ENTRY: PoolEntry = PoolEntry {
    name: "dummy",
    help: "a frame for each page",
    leaving: Leaving::Zpages,
    tidies: false,
    compacts: false,
    make: |params| {
        let frames = SpanAlloc::new(params.area_frames, 1);
        Box::new(Dummy { frames, lens: BTreeMap::new(), limit: params.limit_frames })
    },
};

struct Dummy {
    frames: SpanAlloc,
    /// Lengths by frame. The frame is the number of the handle.
    lens: BTreeMap<u32, u32>,
    limit: u32,
}

impl Pool for Dummy {
    fn place(&mut self, len: u32) -> Result<Placed, PoolFull> {
        let grew = self.frames.alloc_within(1, self.limit)?;
        self.lens.insert(grew.first, len);
        let runs = Runs::one(Slot { frame: grew.first, offset: 0 }, len);
        Ok(Placed { handle: Handle::from_raw(grew.first), runs, grew })
    }

    fn runs(&self, handle: Handle) -> Runs {
        Runs::one(Slot { frame: handle.raw(), offset: 0 }, self.lens[&handle.raw()])
    }

    fn remove(&mut self, handle: Handle) -> Span {
        let span = Span { first: handle.raw(), frames: 1 };
        self.lens.remove(&handle.raw()).expect("a live handle");
        self.frames.free(span);
        span
    }

    fn set_limit(&mut self, frames: u32) {
        self.limit = frames;
    }

    fn usage(&self) -> PoolUsage {
        let (zpages, frames) = (self.lens.len() as u64, self.frames.used());
        PoolUsage {
            zpages,
            stored_bytes: self.lens.values().copied().map(u64::from).sum(),
            used_bytes: 4096 * zpages,
            frames,
        }
    }

    fn metadata_bytes(&self) -> u64 {
        self.frames.metadata_bytes() + 8 * self.lens.len() as u64
    }
}
