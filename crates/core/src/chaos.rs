//! The core under every scheme, with page contents: a small pager that does everything in random
//! order and lets writes fail.

use crate::blocks::{block_of, byte_in_block};
use crate::budget::{Sizes, LEVELS};
use crate::driver::Seen;
use crate::pool::{Move, Runs, Slot, Span};
use crate::sample::{mix, SPLITMIX_STEP};
use crate::scheme::{ReclaimKind, Scheme, SwapFormat, AXES, NUMBERS};
use crate::trace::Encoder;
use crate::{
    Answer, Coded, Compress, Core, Effects, Entry, Extent, Fault, Filled, Load, ObjectId, Origin, Page, PageRange,
    Placed, ProcId, Source, StagingSlot, Stored, Tunables, Victim, WriteBack, RUN_PAGES,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

mod end;
mod runs;

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        let random = mix(self.0);
        self.0 = self.0.wrapping_add(SPLITMIX_STEP);
        (random % end.max(1) as u64) as usize
    }
    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Contents of a page; they determine its compressed length.
type Content = u64;

fn len_of(content: Content) -> u32 {
    match content % 11 {
        0 => 4096,
        1 => 1 + (content / 11 % 300) as u32,
        2 => 3000 + (content / 11 % 1000) as u32,
        n => (n * 300 + content / 11 % 97) as u32,
    }
}

fn coded(content: Content, len: u32) -> Vec<u8> {
    (0..len).map(|i| (content.wrapping_mul(0x9e37_79b9).wrapping_add(u64::from(i) * 131) >> 3) as u8).collect()
}

/// A write under way.
struct Flight {
    block: u32,
    bytes: Vec<u8>,
    items: Vec<(ObjectId, Extent)>,
}

struct Proc {
    id: ProcId,
    pages: BTreeMap<u64, Content>,
    loads: Vec<(Load, Option<Content>)>,
}

#[derive(Default)]
struct Record {
    encoder: Encoder,
    bytes: Vec<u8>,
    decided: Vec<u64>,
}

struct World {
    core: Core,
    /// All core calls so far, as in a recording.
    record: Arc<Mutex<Record>>,
    scheme: Arc<Scheme>,
    random: Random,
    memory: Vec<u8>,
    in_use: Vec<bool>,
    staging: HashMap<(u32, u32), Content>,
    blocks: HashMap<u32, Vec<u8>>,
    /// Log: the bytes at each extent.
    log: HashMap<u32, Vec<u8>>,
    /// Contents of each object when it was put into the pool.
    held: HashMap<u32, Content>,
    next_extent: u32,
    procs: Vec<Proc>,
    compressing: Vec<Compress>,
    raw: Vec<Compress>,
    chosen: VecDeque<WriteBack>,
    flights: Vec<Flight>,
    next_content: Content,
    tick: u64,
    fail: usize,
    /// The device can be full or broken.
    refuses: bool,
    pages: usize,
    stats: HashMap<&'static str, u64>,
}

const PAGES_MAX: u64 = 400;
/// First block of the second device.
const FAR: u32 = 64 * 100;

/// Used pages of a run; they are neighbours.
const NEIGHBOURS: u64 = 4;

fn at(number: u64) -> Page {
    Page(number / NEIGHBOURS * RUN_PAGES + number % NEIGHBOURS)
}

/// The number of a page, if it is one of the used pages.
fn number_of(page: Page) -> Option<u64> {
    let number = page.0 / RUN_PAGES * NEIGHBOURS + page.0 % RUN_PAGES;
    (page.0 % RUN_PAGES < NEIGHBOURS).then_some(number)
}

/// A preset with overrides. The crate `scheme` reads them, but for another build of this crate than
/// that with its tests.
fn scheme(preset: &str, overrides: &[&str]) -> Scheme {
    let file = format!("{}/../../schemes/{preset}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(file).expect("a preset");
    let (mut scheme, mut section) = (Scheme::default(), "");
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')).chain(overrides.iter().copied()) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((key, value)) = line.split_once('=') {
            let (key, value) = (key.trim(), value.trim().trim_matches('"'));
            let of =
                |full: &str| full == key || full.strip_prefix(section).is_some_and(|rest| rest == format!(".{key}"));
            if let Some(number) = NUMBERS.iter().find(|number| of(number.key)) {
                assert!(number.set(&mut scheme, value.parse().expect("a number")), "{line}");
            } else if let Some(axis) = AXES.iter().find(|axis| of(&format!("{}.kind", axis.name)) || axis.name == key) {
                assert!(axis.choose(&mut scheme, value), "{line}");
            } else {
                assert!(section.is_empty() || of("codec.kind"), "{line}");
            }
        }
    }
    scheme
}

impl World {
    fn new(preset: &str, overrides: &[&str], frames: u32, blocks: u32, seed: u64) -> World {
        let mut scheme = scheme(preset, overrides);
        let observes = seed % 3 == 0 && scheme.reclaim.kind != ReclaimKind::Fifo;
        scheme.reclaim.accessed_bits = observes.into();
        let scheme = Arc::new(scheme);
        let log = scheme.swap_format.kind == SwapFormat::CompressedExtents;
        let tier = if log { Vec::new() } else { vec![0..blocks / 2, FAR..FAR + blocks.div_ceil(2)] };
        let area_frames = frames * 2 + 64;
        let mut core = Core::new(Tunables {
            scheme: Arc::clone(&scheme),
            sizes: Sizes::new(1 << 20, &scheme),
            staging_slots: 48,
            pool_frames: frames,
            area_frames,
            swap: true,
            blocks: tier,
        });
        let record: Arc<Mutex<Record>> = Arc::default();
        let written = Arc::clone(&record);
        core.hash_decisions();
        core.add_recorder(Box::new(move |_, decided, asked| {
            let Record { encoder, bytes, decided: all } = &mut *written.lock().unwrap();
            encoder.call(bytes, asked);
            all.push(decided);
        }));
        let mut world = World {
            core,
            record,
            scheme,
            random: Random(seed),
            memory: vec![0xee; area_frames as usize * 4096],
            in_use: vec![false; area_frames as usize],
            staging: HashMap::new(),
            blocks: HashMap::new(),
            log: HashMap::new(),
            held: HashMap::new(),
            next_extent: 0,
            procs: Vec::new(),
            compressing: Vec::new(),
            raw: Vec::new(),
            chosen: VecDeque::new(),
            flights: Vec::new(),
            next_content: 1,
            tick: 0,
            fail: 6,
            refuses: seed % 3 == 1,
            pages: 200,
            stats: HashMap::new(),
        };
        world.add_proc();
        world
    }

    fn count(&mut self, what: &'static str) {
        *self.stats.entry(what).or_default() += 1;
    }

    fn log(&self) -> bool {
        self.scheme.swap_format.kind == SwapFormat::CompressedExtents
    }

    fn add_proc(&mut self) {
        let (id, _) = self.core.add_process(64);
        self.procs.push(Proc { id, pages: BTreeMap::new(), loads: Vec::new() });
    }

    fn freed(&mut self, spans: &[Span]) {
        for frame in spans.iter().flat_map(|s| s.iter()) {
            assert!(std::mem::replace(&mut self.in_use[frame.0 as usize], false), "{frame:?} freed twice");
            self.memory[frame.byte() as usize..][..4096].fill(0xdd);
        }
    }

    fn apply_effects(&mut self) {
        let Effects { moves, spans, extents, .. } = self.core.take_effects();
        for step in moves {
            self.count("moves");
            self.carry_out(&step);
        }
        self.freed(&spans);
        for (extent, _) in extents {
            assert!(self.log.remove(&extent.unit).is_some(), "{extent:?} freed twice");
        }
    }

    fn carry_out(&mut self, step: &Move) {
        for (from, to, len) in step.pieces() {
            self.memory.copy_within(from as usize..from as usize + len, to as usize);
        }
    }

    fn read(&self, runs: &Runs) -> Vec<u8> {
        runs.parts().flat_map(|(at, part)| &self.memory[at as usize..][..part.len()]).copied().collect()
    }

    fn slot_key(slot: StagingSlot) -> (u32, u32) {
        (slot.area.0, slot.index)
    }

    /// The bytes of a load's source; `None` for a page of a file.
    fn bytes(&self, source: &Source) -> Option<Vec<u8>> {
        Some(match *source {
            Source::Zero => Vec::new(),
            Source::Word(word) => return Some(word.to_le_bytes().to_vec()),
            Source::Staged(slot) => {
                let content = self.staging[&World::slot_key(slot)];
                coded(content, 4096)
            }
            Source::Pooled { ref runs, .. } => self.read(runs),
            Source::File => return None,
            Source::Swapped { extent, len, .. } if self.log() => self.log[&extent.unit][..usize::from(len)].to_vec(),
            Source::Swapped { extent, len, .. } => {
                let block = &self.blocks[&block_of(extent)];
                block[byte_in_block(extent) as usize..][..usize::from(len)].to_vec()
            }
        })
    }

    fn verify(&self, load: &Load, content: Option<Content>) {
        let Some(content) = content else {
            assert_eq!(load.source, Source::Zero, "page {:?} had nothing", load.page);
            return;
        };
        match (&load.source, self.bytes(&load.source)) {
            (Source::Zero, _) => panic!("page {:?} reads as zeros", load.page),
            (Source::File, _) => assert!(is_file(content), "an anonymous page {:?} was dropped", load.page),
            (source, Some(bytes)) => {
                assert_eq!(bytes, coded(content, bytes.len() as u32), "page {:?} from {source:?}", load.page);
                assert!([4096, len_of(content) as usize].contains(&bytes.len()), "{source:?}");
            }
            (_, None) => unreachable!(),
        }
    }

    fn begin_load(&mut self, p: usize, number: u64) {
        if !self.procs[p].loads.is_empty() {
            return;
        }
        let id = self.procs[p].id;
        let limit = PageRange { first: Page(0), pages: PAGES_MAX * RUN_PAGES };
        let mut loads = Vec::new();
        let most = if self.random.one_in(2) { u32::MAX } else { 1 + self.random.below(4) as u32 };
        if self.core.fault(id, at(number), limit, most, &mut loads) == Fault::Load {
            let all: Vec<_> = loads
                .iter()
                .map(|load| {
                    let content = number_of(load.page).and_then(|number| self.procs[p].pages.get(&number));
                    (load.clone(), content.copied())
                })
                .collect();
            if all.iter().any(|(load, _)| load.page < at(number)) {
                self.count("below");
            }
            for (load, content) in &all {
                if number_of(load.page).is_some() {
                    self.verify(load, *content);
                }
            }
            self.procs[p].loads = all;
            self.count("loads");
        }
        self.apply_effects();
    }

    fn end_load(&mut self, p: usize) {
        let loads = std::mem::take(&mut self.procs[p].loads);
        let id = self.procs[p].id;
        for (load, content) in loads {
            let ours = number_of(load.page);
            if ours.is_some() {
                self.verify(&load, content);
            }
            let Some(number) = ours.filter(|_| !self.random.one_in(6)) else {
                self.core.loaded(id, load.page, Filled::Retry);
                continue;
            };
            let file = content.is_some_and(is_file);
            self.core.loaded(id, load.page, if file { Filled::Read } else { Filled::Done });
            if load.source == Source::Zero {
                let content = self.fresh();
                self.procs[p].pages.insert(number, content);
            }
            if let Source::Swapped { extent, .. } = load.source {
                self.cache_read(extent);
            }
        }
        self.apply_effects();
    }

    fn grew(&mut self, span: Span) {
        for frame in span.iter() {
            assert!(!std::mem::replace(&mut self.in_use[frame.0 as usize], true), "{frame:?} is in use");
        }
    }

    fn cache_read(&mut self, extent: Extent) {
        let freed = self.core.take_freed_frames();
        self.freed(&freed);
        let Some((frame, grew)) = self.core.cache_read(extent) else { return };
        self.grew(grew);
        let block = &self.blocks[&block_of(extent)];
        self.memory[frame as usize * 4096..][..4096].copy_from_slice(block);
        self.count("cached");
    }

    fn fresh(&mut self) -> Content {
        self.next_content += 1;
        self.next_content
    }

    /// Evicts a page.
    fn evict(&mut self, p: usize, number: u64) {
        let (id, page) = (self.procs[p].id, at(number));
        if self.core.entry(id, page) != Entry::Resident {
            return;
        }
        if self.random.one_in(4) {
            // The program has written to the page.
            let content = self.fresh();
            self.procs[p].pages.insert(number, content);
        }
        let victims = self.core.claim_range(id, PageRange { first: page, pages: 1 }, 1, self.tick);
        let Some(victim) = victims.first() else { return };
        // Another page of the run may have been taken instead.
        let taken = number_of(victim.first).expect("a page that is used");
        let moved = u64::from(!self.random.one_in(8));
        let content = self.procs[p].pages[&taken];
        let area = self.area(id);
        if moved == 1 {
            self.staging.insert((area, victim.slots[0]), content);
        }
        let answer = Answer { moved, file: moved & u64::from(is_file(content)), ..Answer::default() };
        let first = victim.first;
        self.core.evicted(id, first, 1, answer, self.tick);
        self.apply_effects();
    }

    /// A process is told to leave as a whole, or to stay. A batch takes some pages.
    fn leave(&mut self, p: usize) {
        let id = self.procs[p].id;
        match self.random.below(7) {
            0 | 1 => {
                self.core.stop_process_reclaim(id);
                let set = self.core.working_set(id, Page(0));
                let outside = |page: u64| {
                    let entry = self.core.entry(id, Page(page));
                    matches!(entry, Entry::Out(_) | Entry::Loading(_))
                };
                assert!(set.ranges.iter().all(|range| (range.first.0..range.end()).all(outside)), "{set:?}");
            }
            2 | 3 => self.core.reclaim_process(id),
            4 => {
                let (background, protected) = (self.random.one_in(2), self.random.one_in(2));
                self.core.set_background(id, background);
                self.core.set_held(id, self.random.one_in(4));
                self.core.protect(id, protected);
                let victim = self.core.pick_oom_victim(1);
                assert!(victim.is_none_or(|victim| self.core.is_background(victim.proc)));
                assert!(!protected || victim.is_none_or(|victim| victim.proc != id));
            }
            5 if self.core.observes() => {
                let (first, pages) = (self.random.below(16) as u64, self.random.below(64) as u64);
                let range = PageRange { first: Page(first), pages: 1 + pages };
                let used: Vec<Page> =
                    (range.first.0..range.end()).filter(|_| self.random.one_in(2)).map(Page).collect();
                self.core.observed(id, range, &used);
            }
            _ => {}
        }
        let most = 1 + self.random.below(40);
        if let Some((id, victims)) = self.core.pick_victims(most, self.tick, &|_| true) {
            let p = self.procs.iter().position(|proc| proc.id == id).expect("the core knows only these");
            victims.iter().for_each(|victim| self.answer(p, victim));
        }
        self.apply_effects();
    }

    /// A look at which pages of a process others have, and evictions of such pages from all.
    fn share(&mut self, p: usize, number: u64) {
        let (id, first) = (self.procs[p].id, Page(at(number).run() * RUN_PAGES));
        let mut taken = Vec::new();
        match self.random.below(16) {
            0..14 => {
                let shared = 1 + self.random.below(15) as u32;
                for page in (0..NEIGHBOURS).filter(|i| shared >> i & 1 == 1).map(|i| Page(first.0 + i)) {
                    self.have_one_page(p, page);
                }
                self.procs.iter().for_each(|proc| _ = self.core.shares(proc.id, first, shared));
                let range = PageRange { first, pages: RUN_PAGES };
                let leaves = self.random.one_in(2);
                let all = self.procs.iter().filter(|_| leaves);
                taken.extend(all.map(|proc| (proc.id, self.core.claim_shared(proc.id, range, self.tick))));
            }
            14 => taken.extend(self.core.pick_shared(1 + self.random.below(40), self.tick, &|_| true)),
            _ => self.core.shares_nothing(id),
        }
        for (id, victims) in taken {
            let p = self.procs.iter().position(|proc| proc.id == id).expect("the core knows only these");
            victims.iter().for_each(|victim| self.answer(p, victim));
            self.count("shared");
        }
        self.apply_effects();
    }

    /// All who have a page in memory have that of process `p`.
    fn have_one_page(&mut self, p: usize, page: Page) {
        let number = number_of(page).expect("a page that is used");
        let in_memory = |core: &Core, id| core.entry(id, page) == Entry::Resident;
        if !in_memory(&self.core, self.procs[p].id) {
            return;
        }
        let content = self.procs[p].pages[&number];
        for proc in self.procs.iter_mut().filter(|proc| in_memory(&self.core, proc.id)) {
            proc.pages.insert(number, content);
        }
    }

    fn answer(&mut self, p: usize, victim: &Victim) {
        let (id, mut answer) = (self.procs[p].id, Answer::default());
        let area = self.area(id);
        for (i, &slot) in victim.slots.iter().enumerate().filter(|_| !self.random.one_in(8)) {
            let page = number_of(Page(victim.first.0 + i as u64)).expect("a page that is used");
            let content = self.procs[p].pages[&page];
            answer.moved |= 1 << i;
            answer.file |= u64::from(is_file(content)) << i;
            self.staging.insert((area, slot), content);
        }
        self.core.evicted(id, victim.first, victim.slots.len() as u32, answer, self.tick);
    }

    fn area(&self, id: ProcId) -> u32 {
        self.core.table.proc(id).area.0
    }

    fn pick(&mut self, max: usize) {
        if self.core.pool_is_full() {
            return;
        }
        self.core.pick_compress(max, &mut self.compressing);
        self.apply_effects();
    }

    fn compress(&mut self) -> Option<Placed> {
        if self.compressing.is_empty() {
            return None;
        }
        let i = self.random.below(self.compressing.len());
        let item = self.compressing.swap_remove(i);
        if self.random.one_in(16) {
            self.core.give_back(&[item]);
            self.apply_effects();
            return None;
        }
        let content = self.staging[&World::slot_key(item.slot)];
        let len = len_of(content);
        if item.shared {
            let placed = self.core.same_as(item.object, [content as u32, (content >> 32) as u32, 7]);
            self.apply_effects();
            if placed.is_some() {
                self.count("same");
                return placed;
            }
        }
        let clean = self.clean_slot(item.object, content);
        let origin = if self.random.one_in(2) { Origin::Direct } else { Origin::Background };
        let estimate = self.core.wants_estimate(item.object).then(|| (len * 16).min(65536));
        let offers = self.core.wants_offer() && clean.is_none();
        let offered = if offers { self.core.offer(item.object, origin, estimate) } else { None };
        self.apply_effects();
        let placed = offered.unwrap_or_else(|| {
            let coded_as = match len {
                _ if clean.is_some() => Coded::Stored(clean.expect("it is there")),
                len if len >= 4096 || len > self.core.len_max() => Coded::Incompressible,
                len => Coded::Bytes { codec: 1, len },
            };
            let freed = self.core.take_freed_frames();
            self.freed(&freed);
            let placed = self.core.compressed(item.object, coded_as);
            if let Placed::Pool { runs, grew, .. } = &placed {
                self.grew(*grew);
                let bytes = coded(content, if matches!(coded_as, Coded::Bytes { .. }) { len } else { 4096 });
                for (at, part) in runs.parts() {
                    self.memory[at as usize..][..part.len()].copy_from_slice(&bytes[part]);
                }
                self.held.insert(item.object.0, content);
            }
            self.apply_effects();
            placed
        });
        match placed {
            Placed::Swap => self.raw.push(item),
            Placed::Full => self.count("full"),
            Placed::Pool { .. } => self.count("pooled"),
            Placed::Nothing | Placed::Refaulted => {}
        }
        Some(placed)
    }

    /// The raw slot of a staged page, if it was kept and the page is unchanged.
    fn clean_slot(&mut self, object: ObjectId, content: Content) -> Option<Stored> {
        let (goes_on, kept) = (self.core.goes_on(object), self.core.kept_slot(object));
        assert!(kept.is_none() || goes_on && !self.log(), "{kept:?}");
        let extent = kept?;
        let same = self.blocks[&block_of(extent)] == coded(content, 4096);
        self.count(if same { "clean" } else { "changed" });
        same.then_some(Stored { extent, len: 4096, codec: 0 })
    }

    fn write_back(&mut self) -> usize {
        if !self.chosen.is_empty() {
            return 0;
        }
        let mut victims = Vec::new();
        let bytes = if self.log() { 1 << 14 } else { u32::MAX };
        let pressed = self.core.pool_is_full() || self.random.one_in(4);
        if !pressed && self.core.objects.overdue().is_some() {
            self.count("due");
        }
        self.core.pick_writeback(pressed, bytes, &mut victims);
        self.apply_effects();
        if self.log() {
            let taken: u32 = victims.iter().map(|v| crate::swap_log::stored_bytes(v.runs.len())).sum();
            assert!(taken <= bytes, "{taken} bytes for a batch of {bytes}");
        }
        let count = victims.len();
        self.chosen.extend(victims);
        count
    }

    /// Begins to write the next chosen objects.
    fn begin_write(&mut self) {
        let Some(first) = self.chosen.front().cloned() else { return };
        let flight = match self.scheme.swap_format.kind {
            SwapFormat::CompressedBatches => {
                let block = block_of(first.to.unwrap());
                let same = self.chosen.iter().take_while(|v| block_of(v.to.unwrap()) == block).count();
                let items: Vec<_> = self.chosen.drain(..same).collect();
                let bytes = self.read(&Runs::one(Slot { frame: first.runs.slot().frame, offset: 0 }, 4096));
                Flight { block, bytes, items: items.iter().map(|v| (v.object, v.to.unwrap())).collect() }
            }
            SwapFormat::RawSlots => {
                self.chosen.pop_front();
                let content = self.owner_content(&first);
                Flight {
                    block: block_of(first.to.unwrap()),
                    bytes: content,
                    items: vec![(first.object, first.to.unwrap())],
                }
            }
            SwapFormat::CompressedExtents => {
                self.chosen.pop_front();
                self.next_extent += 1;
                let bytes = self.read(&first.runs);
                self.log.insert(self.next_extent, bytes.clone());
                Flight { block: 0, bytes, items: vec![(first.object, Extent { unit: self.next_extent })] }
            }
        };
        self.begin_flight(flight);
    }

    fn begin_flight(&mut self, flight: Flight) {
        if !self.log() {
            let there = self.core.tunables.blocks.iter().any(|device| device.contains(&flight.block));
            assert!(there, "block {} is on no device", flight.block);
            assert!(self.flights.iter().all(|f| f.block != flight.block), "block {} twice at once", flight.block);
            // The block's old contents are garbage from here on.
            self.blocks.insert(flight.block, vec![0xcc; 4096]);
        }
        self.count("writes");
        self.flights.push(flight);
    }

    /// The page, decompressed.
    fn owner_content(&self, victim: &WriteBack) -> Vec<u8> {
        let content = self.held[&victim.object.0];
        assert_eq!(self.read(&victim.runs), coded(content, victim.runs.len()), "bytes of {victim:?}");
        coded(content, 4096)
    }

    fn write_raw(&mut self) {
        if self.raw.is_empty() {
            return;
        }
        let item = self.raw.remove(0);
        let content = self.staging[&World::slot_key(item.slot)];
        let bytes = coded(content, 4096);
        if self.log() {
            self.next_extent += 1;
            self.log.insert(self.next_extent, bytes.clone());
            return self.begin_flight(Flight {
                block: 0,
                bytes,
                items: vec![(item.object, Extent { unit: self.next_extent })],
            });
        }
        match self.core.block_of(item.object) {
            Some(block) => {
                let items = vec![(item.object, crate::blocks::extent(block, 0))];
                self.begin_flight(Flight { block, bytes, items });
            }
            None => {
                self.core.written(item.object, None);
                self.apply_effects();
            }
        }
    }

    fn land(&mut self) {
        if self.flights.is_empty() {
            return;
        }
        let i = self.random.below(self.flights.len());
        let Flight { block, bytes, items } = self.flights.swap_remove(i);
        let fails = self.fail > 0 && self.random.one_in(self.fail);
        if !self.log() {
            self.blocks.insert(block, if fails { vec![0xbb; 4096] } else { bytes });
        }
        let refused = fails && self.refuses && !self.log() && self.random.one_in(8);
        for (object, extent) in items {
            match refused {
                true => self.core.refused(object),
                false => self.core.written(object, (!fails).then_some(extent)),
            }
            if fails && self.log() {
                self.log.remove(&extent.unit);
            }
        }
        self.apply_effects();
    }

    fn step(&mut self) {
        self.tick += 1;
        let p = self.random.below(self.procs.len());
        let number = self.random.below(self.pages) as u64;
        match self.random.below(138) {
            0..30 => self.evict(p, number),
            30..42 => {
                let resident = self.procs[p].pages.contains_key(&number);
                if resident || self.procs[p].pages.len() < self.pages {
                    self.begin_load(p, number);
                }
            }
            42..54 => self.end_load(p),
            54..60 => self.pick(4),
            60..76 => {
                if self.compress() == Some(Placed::Full) {
                    self.write_back();
                }
            }
            76..80 => self.begin_write(),
            80..86 => self.land(),
            86..89 => self.write_raw(),
            89..91 => {
                if self.core.wants_room() || self.random.one_in(4) {
                    self.write_back();
                }
            }
            91..93 => {
                let moves = self.core.compact(8);
                for step in moves {
                    self.carry_out(&step);
                }
                self.apply_effects();
            }
            93 => {
                let facts = self.random.below(256) as u8;
                let (level, unmanaged) = (LEVELS[self.random.below(6)], self.random.below(512) as u32);
                let (gained, read_us) = (self.random.below(2) as u32, self.random.below(200) as u32);
                let seen = Seen::of(level, gained, unmanaged, facts, read_us);
                for _ in 0..=self.random.below(12) {
                    self.core.next_step(self.tick, seen);
                }
                self.apply_effects();
            }
            94 => self.fork(p),
            95 if self.random.one_in(2) => self.unmap(p, number),
            96 if self.random.one_in(2) => self.remap(p, number),
            97 => self.remove(p, number),
            98 if self.procs.len() > 1 && self.random.one_in(4) => self.exit(p),
            98..110 => (0..8).for_each(|i| self.evict(p, number + i)),
            110..116 => {
                self.pick(8);
                self.compress();
            }
            116..120 => {
                self.begin_load(p, number);
                self.end_load(p);
            }
            120..124 => {
                // Downwards through a run.
                for number in (number / NEIGHBOURS * NEIGHBOURS..=number).rev() {
                    self.begin_load(p, number);
                    self.end_load(p);
                }
            }
            124..127 => self.land(),
            127 => self.leave(p),
            128..130 => self.begin_write(),
            _ => self.share(p, number),
        }
    }

    fn fork(&mut self, p: usize) {
        if self.procs.len() >= 3 || !self.procs[p].loads.is_empty() {
            return;
        }
        let (id, _) = self.core.forked(self.procs[p].id, 64, true);
        self.core.inherit(id, PageRange::ALL);
        let pages = self.procs[p].pages.clone();
        self.procs.push(Proc { id, pages, loads: Vec::new() });
        self.apply_effects();
    }

    fn unmap(&mut self, p: usize, number: u64) {
        if !self.procs[p].loads.is_empty() {
            return;
        }
        let first = number / NEIGHBOURS * NEIGHBOURS;
        let range = PageRange { first: at(first), pages: RUN_PAGES * (1 + self.random.below(4) as u64) };
        self.core.unmapped(self.procs[p].id, range);
        self.procs[p].pages.retain(|&n, _| !(range.first.0..range.end()).contains(&at(n).0));
        self.apply_effects();
    }

    /// mremap of a run, to where another one may be.
    fn remap(&mut self, p: usize, number: u64) {
        let [from, to] = [number, self.random.below(self.pages) as u64].map(|n| n / NEIGHBOURS * NEIGHBOURS);
        if !self.procs[p].loads.is_empty() || from == to {
            return;
        }
        self.core.remapped(self.procs[p].id, PageRange { first: at(from), pages: RUN_PAGES }, at(to));
        let pages = &mut self.procs[p].pages;
        for i in 0..NEIGHBOURS {
            pages.remove(&(to + i));
            if let Some(content) = pages.remove(&(from + i)) {
                pages.insert(to + i, content);
            }
        }
        self.apply_effects();
    }

    fn remove(&mut self, p: usize, number: u64) {
        if !self.procs[p].loads.is_empty() {
            return;
        }
        let id = self.procs[p].id;
        let out = |core: &Core, n: u64| matches!(core.entry(id, at(n)), Entry::Out(_));
        if out(&self.core, number) {
            self.core.removed(id, PageRange { first: at(number), pages: 1 });
            // No thread is inside of the call any more.
            let (epoch, _) = self.core.begin_proof(id);
            self.core.end_zap_pending(id, epoch);
            self.procs[p].pages.remove(&number);
        }
        self.apply_effects();
    }

    fn exit(&mut self, p: usize) {
        let proc = self.procs.swap_remove(p);
        self.core.remove_process(proc.id);
        self.apply_effects();
    }

    fn tier_blocks(&self) -> u32 {
        self.core.tunables.blocks.iter().map(|r| r.end - r.start).sum()
    }
}

/// One page in four is of a file.
fn is_file(content: Content) -> bool {
    content % 4 == 3 && FILES.with(|files| files.get())
}

thread_local! {
    static FILES: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}
