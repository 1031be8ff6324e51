//! What must hold at the end of a random program.

use super::{at, World};
use crate::trace::Decoder;
use crate::{Core, Fault, Filled, PageRange, Placed};

impl World {
    /// Ends everything that is under way.
    fn quiet(&mut self) {
        for p in 0..self.procs.len() {
            self.end_load(p);
        }
        while !(self.compressing.is_empty() && self.raw.is_empty() && self.chosen.is_empty() && self.flights.is_empty())
        {
            self.compress();
            self.write_raw();
            self.begin_write();
            self.land();
        }
    }

    fn verify_all(&mut self) {
        for p in 0..self.procs.len() {
            for number in self.procs[p].pages.keys().copied().collect::<Vec<_>>() {
                let mut loads = Vec::new();
                let (id, page) = (self.procs[p].id, at(number));
                if self.core.fault(id, page, PageRange { first: page, pages: 1 }, 1, &mut loads) == Fault::Load {
                    self.verify(&loads[0], Some(self.procs[p].pages[&number]));
                    self.core.loaded(id, page, Filled::Retry);
                    self.apply_effects();
                }
            }
        }
    }

    pub(super) fn finish(&mut self) {
        self.fail = 0;
        self.quiet();
        self.core.check();
        self.verify_all();
        self.goes_on();
        self.verify_all();
        assert_eq!(self.core.pool_control.leaving, 0, "frames that leave");
        assert!(self.core.pool_control.sealed.is_empty());
        while let Some(proc) = self.procs.pop() {
            self.core.remove_process(proc.id);
            self.apply_effects();
        }
        self.core.check();
        let usage = self.core.pool_usage();
        assert_eq!((usage.zpages, usage.frames), (0, 0), "frames of nobody");
        assert!(self.in_use.iter().all(|used| !used), "frames not freed");
        assert_eq!((self.core.blocks_in_use(), self.core.totals_staged()), (0, 0));
        assert!(self.log.is_empty(), "extents of nobody");
        assert!(!self.core.pool_is_full(), "full, and nothing is in it");
        let all = self.core.blocks_free();
        assert!(self.refuses || self.log() || all == self.tier_blocks(), "blocks were lost");
        assert!(all == 0 || self.core.pool_control.blocks_for(all).is_some(), "blocks are reserved for nobody");
    }

    /// With nothing under way and a working device, staged pages find a place as long as blocks are
    /// free.
    fn goes_on(&mut self) {
        for round in 0.. {
            for number in 0..self.pages as u64 {
                self.evict(0, number);
            }
            let before = self.core.totals_staged();
            if before == 0 || (!self.log() && self.core.blocks_free() <= 16) {
                return;
            }
            assert!(round < 100, "{before} pages are staged, and none goes on");
            self.pick(1);
            let placed = self.compress();
            if placed.is_none() || placed == Some(Placed::Full) {
                self.write_back();
            }
            self.quiet();
            self.core.check();
            if self.core.totals_staged() < before {
                return;
            }
        }
    }

    /// The recorded calls give the same decisions.
    pub(super) fn replay(&self) {
        let record = self.record.lock().unwrap();
        let mut again = Core::new(self.core.tunables.clone());
        again.hash_decisions();
        let mut decoder = Decoder::new(&record.bytes);
        let mut last = String::new();
        while let Some(asked) = decoder.call().expect("what was encoded") {
            let decided = record.decided[again.number() as usize];
            assert_eq!(again.decided(), decided, "call {}: {last}", again.number());
            last = format!("{asked:?}");
            again.replay(&asked);
        }
        again.check();
        assert_eq!((again.number(), again.decided()), (self.core.number(), self.core.decided()));
        assert_eq!(format!("{:?}", again.counters()), format!("{:?}", self.core.counters()));
    }
}
