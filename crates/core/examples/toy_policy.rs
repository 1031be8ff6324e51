//! A replacement policy defined outside of the core: it evicts the unit with the fewest bytes to
//! write first.
//!
//!     cargo run -p memfit-core --example toy_policy
//!
//! In the core it would be this file in `src/replacement/` and a line in `REPLACEMENTS`. Then
//! schemes can name it, `memfit schemes` lists it, and the model tests run it.

use memfit_core::pool::{PoolParams, Unit, UnitView, POOLS};
use memfit_core::replacement::{find, Policy, PolicyParams, ReplacementMode, Zpage};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of each known unit, and the taken units.
#[derive(Default)]
struct FewestBytes {
    bytes: BTreeMap<Unit, u32>,
    taken: BTreeSet<Unit>,
}

impl Policy for FewestBytes {
    fn stored(&mut self, zpage: Zpage, unit: Unit, _: UnitView) {
        *self.bytes.entry(unit).or_default() += zpage.len;
    }
    fn left(&mut self, zpage: Zpage, unit: Unit, view: UnitView) {
        *self.bytes.get_mut(&unit).expect("it is known") -= zpage.len;
        if view.zpages == 0 {
            self.bytes.remove(&unit);
            self.taken.remove(&unit);
        }
    }
    fn victims(&mut self, out: &mut Vec<Unit>) {
        let free = self.bytes.iter().filter(|(unit, _)| !self.taken.contains(unit));
        if let Some((&unit, _)) = free.min_by_key(|(_, bytes)| **bytes) {
            self.taken.insert(unit);
            out.push(unit);
        }
    }
    fn returned(&mut self, unit: Unit, _: UnitView) {
        self.taken.remove(&unit);
    }
    fn metadata_bytes(&self) -> u64 {
        (self.bytes.len() * size_of::<(Unit, u32)>()) as u64
    }
    fn check(&self) {
        assert!(self.taken.iter().all(|unit| self.bytes.contains_key(unit)));
    }
}

/// Stores pages of many lengths in a pool of 64 frames; returns how many bytes had to leave.
fn written(mut policy: Box<dyn Policy>) -> u64 {
    let z3fold = POOLS.iter().find(|pool| pool.name == "z3fold").expect("a pool");
    let mut pool = (z3fold.make)(&PoolParams::new(128, 64));
    let (mut lens, mut written) = (BTreeMap::new(), 0);
    for page in 0..10_000u32 {
        let len = 200 + page.wrapping_mul(2_654_435_761) % 3000;
        while pool.usage().frames == 64 {
            let (mut victims, mut zpages) = (Vec::new(), Vec::new());
            policy.victims(&mut victims);
            pool.zpages(victims[0], &mut zpages);
            for handle in zpages {
                let (before, len) = (pool.view(victims[0]), lens.remove(&handle).expect("it is stored"));
                written += u64::from(len);
                pool.remove(handle);
                let view = UnitView { zpages: before.zpages - 1, ..before };
                policy.left(Zpage { handle, len, file: false }, victims[0], view);
            }
        }
        let handle = pool.place(len).expect("there is room").handle;
        lens.insert(handle, len);
        let unit = pool.unit(handle);
        policy.stored(Zpage { handle, len, file: false }, unit, pool.view(unit));
    }
    policy.check();
    written
}

fn main() {
    let ReplacementMode::Policy(lru) = (find("unit-lru").expect("a replacement").make)(&PolicyParams::default()) else {
        unreachable!("it is a policy")
    };
    let (lru, ours) = (written(lru), written(Box::<FewestBytes>::default()));
    println!("bytes that left for 10000 pages: unit-lru {lru}, fewest-bytes {ours}");
}
