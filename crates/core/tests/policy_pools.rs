//! Every replacement policy beside a real pool of each kind that it works with.
//!
//! The model is the engine in miniature: it stores and removes at random. When the pool is full it
//! asks the policy for victims, seals them, and empties them at once, in part, or later. It checks
//! the named units against the contract of [`Policy`], and the pool's placements against the seals.

use memfit_core::pool::{Handle, Pool, PoolEntry, PoolParams, Unit, UnitView, POOLS};
use memfit_core::replacement::{Policy, PolicyParams, ReplacementEntry, ReplacementMode, Zpage, REPLACEMENTS};
use std::collections::{BTreeMap, BTreeSet};

/// Frames that the pool may use.
const LIMIT_FRAMES: u32 = 150;

/// SplitMix64: the runs must be the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % end as u64) as usize
    }
}

struct Model {
    pool: Box<dyn Pool>,
    policy: Box<dyn Policy>,
    random: Random,
    live: BTreeMap<Handle, Zpage>,
    /// Live zpages of each known unit.
    known: BTreeMap<Unit, u32>,
    taken: BTreeSet<Unit>,
    /// Every unit ever named, in order.
    named: Vec<Unit>,
    returned: u32,
    left_taken: u32,
}

impl Model {
    fn new(pool: &PoolEntry, policy: Box<dyn Policy>, seed: u64) -> Model {
        let pool = (pool.make)(&PoolParams::new(8 * LIMIT_FRAMES, LIMIT_FRAMES));
        let (live, known, taken, named) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new(), Vec::new());
        Model { pool, policy, random: Random(seed), live, known, taken, named, returned: 0, left_taken: 0 }
    }

    fn step(&mut self, growing: bool) {
        match self.random.below(100) {
            0..3 => self.give_back(),
            3..9 => self.ask(),
            9..12 => self.evict_some(),
            n if n < if growing { 40 } else { 65 } => self.remove_any(),
            _ => self.store(),
        }
        self.policy.check();
    }

    fn store(&mut self) {
        let len = match self.random.below(8) {
            0 => 1 + self.random.below(300),
            1 => 3000 + self.random.below(1097),
            n => 400 * n + self.random.below(90),
        } as u32;
        let placed = loop {
            match self.pool.place(len) {
                Ok(placed) => break placed,
                Err(_) => self.make_room(),
            }
        };
        let zpage = Zpage { handle: placed.handle, len, file: self.random.below(3) == 0 };
        let unit = self.pool.unit(placed.handle);
        assert!(!self.taken.contains(&unit), "the pool placed a zpage in {unit:?}, which is sealed");
        self.live.insert(placed.handle, zpage);
        *self.known.entry(unit).or_default() += 1;
        self.policy.stored(zpage, unit, self.pool.view(unit));
        let mut due = Vec::new();
        self.policy.due(&mut due);
        self.take(due);
    }

    /// Empties a taken unit, or takes more units.
    fn make_room(&mut self) {
        if self.taken.is_empty() || self.random.below(2) == 0 {
            self.ask();
        }
        self.evict_some();
    }

    fn ask(&mut self) {
        let mut victims = Vec::new();
        self.policy.victims(&mut victims);
        let none_left = self.known.len() == self.taken.len();
        assert!(!victims.is_empty() || none_left, "a unit is known and not taken, but none was named");
        self.take(victims);
    }

    fn take(&mut self, units: Vec<Unit>) {
        for unit in units {
            assert!(self.known.contains_key(&unit), "{unit:?} is known");
            assert!(self.taken.insert(unit), "{unit:?} was named twice");
            self.pool.seal(unit, true);
            self.named.push(unit);
        }
    }

    fn any_taken(&mut self) -> Option<Unit> {
        let rank = self.random.below(self.taken.len().max(1));
        self.taken.iter().nth(rank).copied()
    }

    /// Removes all or some of the zpages of a taken unit.
    fn evict_some(&mut self) {
        let Some(unit) = self.any_taken() else { return };
        let mut zpages = Vec::new();
        self.pool.zpages(unit, &mut zpages);
        let all = self.random.below(4) > 0;
        let count = if all { zpages.len() } else { self.random.below(zpages.len() + 1) };
        zpages[..count].iter().for_each(|&handle| self.remove(handle));
        assert!(!all || !self.known.contains_key(&unit));
    }

    fn give_back(&mut self) {
        let Some(unit) = self.any_taken() else { return };
        self.pool.seal(unit, false);
        self.taken.remove(&unit);
        self.policy.returned(unit, self.pool.view(unit));
        self.returned += 1;
    }

    fn remove_any(&mut self) {
        let rank = self.random.below(self.live.len().max(1));
        let Some(&handle) = self.live.keys().nth(rank) else { return };
        self.left_taken += u32::from(self.taken.contains(&self.pool.unit(handle)));
        self.remove(handle);
    }

    fn remove(&mut self, handle: Handle) {
        let (unit, zpage) = (self.pool.unit(handle), self.live.remove(&handle).expect("it is live"));
        let before = self.pool.view(unit);
        self.pool.remove(handle);
        let left = self.known.get_mut(&unit).expect("its unit is known");
        *left -= 1;
        let view = match *left {
            0 => UnitView { zpages: 0, ..before },
            _ => {
                self.pool.tidy(unit, &|_| true, &mut Vec::new());
                self.pool.view(unit)
            }
        };
        if view.zpages == 0 {
            self.known.remove(&unit);
            self.taken.remove(&unit);
            if self.pool.clean(unit) {
                self.pool.discard(unit);
            }
        }
        self.policy.left(zpage, unit, view);
    }

    /// Takes everything: repeated calls must come to an end, and must name every unit.
    fn finish(&mut self) {
        while self.known.len() > self.taken.len() {
            self.ask();
        }
        self.ask();
        while !self.live.is_empty() {
            self.evict_some();
        }
        self.policy.check();
        assert!(self.known.is_empty() && self.taken.is_empty());
        assert_eq!(self.pool.usage().frames, 0);
    }
}

/// The policies, each with the pools that it works with.
fn policies() -> impl Iterator<Item = (&'static ReplacementEntry, Vec<&'static PoolEntry>)> {
    let policies = REPLACEMENTS.iter().filter(|entry| policy(entry).is_some());
    policies.map(|entry| (entry, POOLS.iter().filter(|pool| (entry.fits)(pool)).collect()))
}

fn policy(entry: &ReplacementEntry) -> Option<Box<dyn Policy>> {
    match (entry.make)(&PolicyParams { limit_frames: LIMIT_FRAMES, ..PolicyParams::default() }) {
        ReplacementMode::Policy(policy) => Some(policy),
        ReplacementMode::Nobody | ReplacementMode::Queue(_) => None,
    }
}

/// Phases of growth and shrinkage; returns the named units.
fn run(pool: &PoolEntry, entry: &ReplacementEntry, seed: u64) -> Vec<Unit> {
    let mut model = Model::new(pool, policy(entry).expect("it is a policy"), seed);
    for i in 0..6_000 {
        model.step(i / 1_000 % 2 == 0);
    }
    let what = format!("{} with {}", entry.name, pool.name);
    assert!(model.named.len() > 100, "{what}: {} named", model.named.len());
    assert!(model.returned > 20 && model.left_taken > 20, "{what}: {} {}", model.returned, model.left_taken);
    model.finish();
    model.named
}

#[test]
fn random_runs_keep_the_contract() {
    for (entry, pools) in policies() {
        assert!(!pools.is_empty(), "{} has a pool", entry.name);
        for pool in pools {
            (1..=4).for_each(|seed| drop(run(pool, entry, seed)));
        }
    }
}

#[test]
fn the_same_calls_name_the_same_units() {
    for (entry, pools) in policies() {
        assert!(pools.iter().all(|pool| run(pool, entry, 9) == run(pool, entry, 9)), "{}", entry.name);
    }
}
