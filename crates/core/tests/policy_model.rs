//! Every policy against a model: a store of units, filled as the pools fill them, without bytes.
//!
//! Two policies with the same seed get the same calls, and must give the same answers. The named
//! units are checked against the contract of `Policy`: only units that are known and not taken,
//! none twice, and at least one when room is needed.

use memfit_core::pool::{find, Handle, Unit, UnitView, FRAME_BYTES};
use memfit_core::replacement::{Policy, PolicyParams, ReplacementEntry, ReplacementMode, Zpage, REPLACEMENTS};
use proptest::prelude::*;

/// How the units of a pool are filled.
#[derive(Debug, Clone, Copy)]
enum Filling {
    /// Frames of at most this many zpages, in whole chunks; room is used again.
    Chunks(u16),
    /// Equal slots, by class.
    Slots(&'static [Slots]),
    /// Frames that are filled from start to end; room is not used again.
    Appended,
}

/// Units of slots of one size.
#[derive(Debug, Clone, Copy)]
struct Slots {
    class: u16,
    bytes: u32,
    slots: u16,
    frames: u16,
}

const fn slots(class: u16, bytes: u32, slots: u16, frames: u16) -> Slots {
    Slots { class, bytes, slots, frames }
}

/// How pools fill their units. `policy_pools` runs the pools themselves, new ones too.
const KINDS: &[(&str, Filling)] = &[
    ("zbud", Filling::Chunks(2)),
    ("z3fold", Filling::Chunks(3)),
    (
        "zsmalloc",
        Filling::Slots(&[
            slots(1, 48, 256, 3),
            slots(30, 512, 8, 1),
            slots(50, 1360, 3, 1),
            slots(62, 2720, 3, 2),
            slots(66, 3264, 5, 4),
            slots(68, 4096, 1, 1),
        ]),
    ),
    ("buffers", Filling::Appended),
];

const CHUNK: u32 = 64;
/// Alignment of appended zpages, bytes.
const ALIGN: u32 = 8;
/// The first entry of `out`: answers are appended to it.
const MARK: Unit = Unit(u32::MAX - 1);

#[derive(Debug, Clone)]
enum Op {
    /// Stores into the first of a few units from this rank on that have room, or into a new one.
    Store {
        rank: usize,
        len: u32,
        file: bool,
    },
    /// Removes the live zpage at this rank.
    Leave(usize),
    Victims,
    /// Removes this many zpages from the taken unit at this rank; returns the unit if it is not
    /// empty then.
    Finish(usize, usize),
}

#[derive(Debug)]
struct Held {
    /// Index into the slots of the kind, or 0.
    class: usize,
    zpages: Vec<Zpage>,
    /// Bytes of a frame that were appended.
    appended: u32,
    taken: bool,
}

struct Model {
    name: &'static str,
    policies: [Box<dyn Policy>; 2],
    filling: Filling,
    units: Vec<Option<Held>>,
    free_units: Vec<usize>,
    /// Unit index of each live zpage; `Handle::raw` is that of `Zpage`.
    live: Vec<(Zpage, usize)>,
    free_handles: Vec<u32>,
    handles: u32,
    taken: Vec<usize>,
    /// Check after every step; otherwise the caller does.
    checks: bool,
    /// What happened, to show that the run has tested something.
    victims: u64,
    due: u64,
    returned: u64,
    reused: u64,
}

/// A policy of this entry, if it makes one.
fn policy(entry: &ReplacementEntry, params: &PolicyParams) -> Option<Box<dyn Policy>> {
    match (entry.make)(params) {
        ReplacementMode::Policy(policy) => Some(policy),
        ReplacementMode::Nobody | ReplacementMode::Queue(_) => None,
    }
}

/// Every policy with the units of every pool that it works with.
fn models(params: &PolicyParams) -> Vec<Model> {
    let mut models = Vec::new();
    for entry in REPLACEMENTS.iter().filter(|entry| policy(entry, params).is_some()) {
        for (_, filling) in KINDS.iter().filter(|(pool, _)| (entry.fits)(find(pool).expect("a pool"))) {
            let policies = [0; 2].map(|_| policy(entry, params).expect("it made one before"));
            models.push(Model::new(entry.name, policies, *filling));
        }
    }
    assert!(!models.is_empty(), "there is no policy");
    models
}

impl Filling {
    /// Distance between units, in frames.
    fn stride(self) -> u32 {
        match self {
            Filling::Slots(classes) => classes.iter().map(|slots| u32::from(slots.frames)).max().expect("classes"),
            Filling::Chunks(_) | Filling::Appended => 1,
        }
    }
}

impl Model {
    fn new(name: &'static str, policies: [Box<dyn Policy>; 2], filling: Filling) -> Model {
        let (units, free_units, live, free_handles) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (handles, taken, checks) = (0, Vec::new(), true);
        let (victims, due, returned, reused) = (0, 0, 0, 0);
        Model {
            name,
            policies,
            filling,
            units,
            free_units,
            live,
            free_handles,
            handles,
            taken,
            checks,
            victims,
            due,
            returned,
            reused,
        }
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Store { rank, len, file } => self.store(rank, len, file),
            Op::Leave(rank) => {
                if !self.live.is_empty() {
                    self.leave(rank % self.live.len());
                }
            }
            Op::Victims => self.victims(),
            Op::Finish(rank, count) => self.finish_one(rank, count),
        }
        if self.checks {
            self.policies.iter().for_each(|policy| policy.check());
        }
    }

    fn unit(&self, index: usize) -> Unit {
        Unit(index as u32 * self.filling.stride())
    }

    fn held(&mut self, index: usize) -> &mut Held {
        self.units[index].as_mut().expect("a unit in use")
    }

    fn view(&self, index: usize) -> UnitView {
        let held = self.units[index].as_ref().expect("a unit in use");
        let zpages = held.zpages.len() as u16;
        let (class, capacity, frames, free_bytes) = match self.filling {
            Filling::Chunks(capacity) => {
                let used: u32 = held.zpages.iter().map(|zpage| zpage.len.next_multiple_of(CHUNK)).sum();
                (0, capacity, 1, FRAME_BYTES - used)
            }
            Filling::Slots(classes) => {
                let Slots { class, bytes, slots, frames } = classes[held.class];
                (class, slots, frames, u32::from(slots - zpages) * bytes)
            }
            Filling::Appended => (0, (FRAME_BYTES / ALIGN) as u16, 1, FRAME_BYTES - held.appended),
        };
        UnitView { class, zpages, capacity, frames, free_bytes }
    }

    fn class(&self, len: u32) -> usize {
        match self.filling {
            Filling::Slots(classes) => {
                classes.iter().position(|slots| slots.bytes >= len).expect("a class for each length")
            }
            Filling::Chunks(_) | Filling::Appended => 0,
        }
    }

    fn has_room(&self, index: usize, len: u32) -> bool {
        let Some(held) = &self.units[index] else { return false };
        let view = self.view(index);
        let bytes = match self.filling {
            Filling::Chunks(_) => len.next_multiple_of(CHUNK),
            Filling::Slots(_) => len,
            Filling::Appended => len.next_multiple_of(ALIGN),
        };
        !held.taken && held.class == self.class(len) && view.zpages < view.capacity && bytes <= view.free_bytes
    }

    fn store(&mut self, rank: usize, len: u32, file: bool) {
        let tried = (0..4.min(self.units.len())).map(|i| (rank % self.units.len() + i) % self.units.len());
        let index = tried.into_iter().find(|index| self.has_room(*index, len)).unwrap_or_else(|| {
            let index = self.free_units.pop().unwrap_or(self.units.len());
            if index == self.units.len() {
                self.units.push(None);
            } else {
                self.reused += 1;
            }
            self.units[index] = Some(Held { class: self.class(len), zpages: Vec::new(), appended: 0, taken: false });
            index
        });
        let raw = self.free_handles.pop().unwrap_or_else(|| {
            self.handles += 1;
            self.handles - 1
        });
        let zpage = Zpage { handle: Handle::from_raw(raw), len, file };
        self.live.push((zpage, index));
        let held = self.held(index);
        held.zpages.push(zpage);
        held.appended += len.next_multiple_of(ALIGN);
        let (unit, view) = (self.unit(index), self.view(index));
        self.policies.iter_mut().for_each(|policy| policy.stored(zpage, unit, view));
        let named = self.asked(|policy, out| policy.due(out));
        self.due += named as u64;
    }

    /// Removes the live zpage at this index.
    fn leave(&mut self, at: usize) {
        let (zpage, index) = self.live.swap_remove(at);
        self.held(index).zpages.retain(|other| *other != zpage);
        let (unit, view) = (self.unit(index), self.view(index));
        self.policies.iter_mut().for_each(|policy| policy.left(zpage, unit, view));
        self.free_handles.push(zpage.handle.raw());
        if view.zpages == 0 {
            self.units[index] = None;
            self.free_units.push(index);
            self.taken.retain(|taken| *taken != index);
        }
    }

    fn victims(&mut self) {
        let any = self.units.iter().flatten().any(|held| !held.taken);
        let named = self.asked(|policy, out| policy.victims(out));
        self.victims += named as u64;
        assert!(named > 0 || !any, "{}: no victim, though there are units", self.name);
    }

    /// Takes the units that both policies name; returns their number.
    fn asked(&mut self, mut ask: impl FnMut(&mut dyn Policy, &mut Vec<Unit>)) -> usize {
        let [first, second] = self.policies.each_mut().map(|policy| {
            let mut out = vec![MARK];
            ask(policy.as_mut(), &mut out);
            out
        });
        assert_eq!(first, second, "{}: the same seed and calls, other answers", self.name);
        assert_eq!(first[0], MARK, "{}: answers are appended", self.name);
        for unit in &first[1..] {
            let stride = self.filling.stride();
            let index = (unit.0 / stride) as usize;
            let held = self.units.get_mut(index).and_then(Option::as_mut).filter(|_| unit.0 % stride == 0);
            let held = held.unwrap_or_else(|| panic!("{}: {unit:?} is not known", self.name));
            assert!(!held.taken, "{}: {unit:?} is taken already", self.name);
            held.taken = true;
            self.taken.push(index);
        }
        first.len() - 1
    }

    fn finish_one(&mut self, rank: usize, count: usize) {
        let Some(&index) = self.taken.get(rank % self.taken.len().max(1)) else { return };
        for _ in 0..count.min(self.held(index).zpages.len()) {
            let zpage = *self.held(index).zpages.last().expect("as many as that");
            let at = self.live.iter().rposition(|(other, _)| *other == zpage).expect("it is live");
            self.leave(at);
        }
        if self.units[index].is_some() {
            self.held(index).taken = false;
            self.taken.retain(|taken| *taken != index);
            let (unit, view) = (self.unit(index), self.view(index));
            self.policies.iter_mut().for_each(|policy| policy.returned(unit, view));
            self.returned += 1;
        }
    }

    /// All remaining units can be taken, each once; then all zpages leave.
    fn finish(mut self) {
        while self.units.iter().flatten().any(|held| !held.taken) {
            self.victims();
        }
        self.victims();
        while !self.live.is_empty() {
            self.leave(self.live.len() - 1);
        }
        for policy in &mut self.policies {
            policy.check();
            let mut out = Vec::new();
            policy.victims(&mut out);
            policy.due(&mut out);
            assert!(out.is_empty(), "{}: {out:?} of an empty pool", self.name);
        }
    }
}

/// Compressed lengths, over all classes.
fn len() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 400..3000u32, 2 => 1..400u32, 1 => 3000..=FRAME_BYTES, 1 => Just(1360u32)]
}

fn op() -> impl Strategy<Value = Op> {
    let store = (any::<usize>(), len(), any::<bool>()).prop_map(|(rank, len, file)| Op::Store { rank, len, file });
    prop_oneof![
        10 => store,
        6 => any::<usize>().prop_map(Op::Leave),
        2 => Just(Op::Victims),
        2 => (any::<usize>(), prop_oneof![3 => Just(usize::MAX), 1 => 0..4usize]).prop_map(|(r, n)| Op::Finish(r, n)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_operations(
        seed in any::<u64>(),
        limit_frames in 1..60u32,
        extra_bins in any::<bool>(),
        threshold_percent in 1..=100u32,
        ops in prop::collection::vec(op(), 1..200),
    ) {
        for mut model in models(&PolicyParams { seed, limit_frames, extra_bins, threshold_percent }) {
            ops.iter().for_each(|op| model.step(op));
            model.finish();
        }
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

    fn rank(&mut self) -> usize {
        self.below(u64::MAX) as usize
    }

    fn store(&mut self) -> Op {
        let len = match self.below(10) {
            0 => 1 + self.below(200) as u32,
            1 => FRAME_BYTES - self.below(1000) as u32,
            _ => 400 + self.below(2600) as u32,
        };
        Op::Store { rank: self.rank(), len, file: self.below(3) == 0 }
    }

    fn op(&mut self, growing: bool) -> Op {
        match self.below(100) {
            0..4 => Op::Victims,
            4..9 => Op::Finish(self.rank(), if self.below(3) == 0 { self.below(4) as usize } else { usize::MAX }),
            _ if self.below(100) < if growing { 25 } else { 60 } => Op::Leave(self.rank()),
            _ => self.store(),
        }
    }
}

/// Phases of growth and shrinkage, so that units and handles are used again.
#[test]
fn long_seeded_run() {
    for (seed, extra_bins) in [(1, false), (2, true)] {
        let params = PolicyParams { seed, limit_frames: 400, extra_bins, ..PolicyParams::default() };
        for mut model in models(&params) {
            let mut random = Random(seed);
            for i in 0..8_000 {
                model.step(&random.op(i / 1_500 % 2 == 0));
            }
            let Model { name, victims, due, returned, reused, .. } = &model;
            println!("{name}: {victims} victims, {due} due, {returned} returned, {reused} units used again");
            assert!(*victims + *due > 200 && *returned > 10 && *reused > 100, "{name}: too little happened");
            model.finish();
        }
    }
}

/// Asks a policy until nothing is left: it names each unit once, and loses no returned one.
#[test]
fn every_unit_is_named() {
    for mut model in models(&PolicyParams { limit_frames: 1 << 20, ..PolicyParams::default() }) {
        let mut random = Random(3);
        (0..2_000).for_each(|_| model.step(&random.store()));
        for round in 0..3 {
            let units = model.units.iter().flatten().count();
            while model.taken.len() < units {
                model.step(&Op::Victims);
            }
            // No more units, and no panic.
            model.step(&Op::Victims);
            assert_eq!(model.taken.len(), units, "{} in round {round}", model.name);
            (0..units).for_each(|_| model.step(&Op::Finish(random.rank(), usize::from(round == 1))));
        }
        model.finish();
    }
}

/// Metadata shrinks to nothing with the contents.
#[test]
fn memory_goes_back_when_all_have_left() {
    for mut model in models(&PolicyParams { limit_frames: 1 << 20, ..PolicyParams::default() }) {
        let empty = model.policies[0].metadata_bytes();
        model.checks = false;
        let mut random = Random(4);
        (0..40_000).for_each(|_| model.step(&random.store()));
        let full = model.policies[0].metadata_bytes();
        let (units, zpages) = (model.units.len() as u64, model.live.len() as u64);
        assert!(full > empty + 4 * units, "{}: {full} bytes for {units} units", model.name);
        // Units have frame numbers, and not every frame is the first of a unit.
        let most = empty + (units * u64::from(model.filling.stride()) * 32 + zpages * 16) * 9 / 8 + 4096;
        assert!(full < most, "{}: {full} bytes for {units} units of {zpages} zpages", model.name);
        while !model.live.is_empty() {
            model.leave(random.below(model.live.len() as u64) as usize);
        }
        let after = model.policies[0].metadata_bytes();
        assert!(after <= empty + 8192, "{}: {after} bytes, {empty} at first and {full} at most", model.name);
        model.finish();
    }
}
