//! A machine that runs a workload under a scheme. The core decides as in the pager; the machine
//! counts and prices what the pager would do.
//!
//! Two clocks stand for two CPUs: one of the programs, one of reclaim. Reclaim works in the
//! background until its clock has caught up with the programs'. A program that finds too little
//! memory free waits for reclaim. Programs run one after the other, in the order of the workload. A
//! fault waits for its read and for at most one block of the writes under way. Reclaim waits for
//! writes when more of them are under way than the pager allows. Not modelled: several CPUs for the
//! programs, threads, the kernel's page cache, and the memory of the pager itself (some MiB).

mod fault;
mod reclaim;
mod shadow;
mod tier;

use crate::contents::{ContentId, Contents};
use crate::cost::CostTable;
use crate::device::{Device, Operation, Transfers};
use crate::event_source::Batch;
use crate::hash::NumberMap;
use crate::workload::Event;
use memfit_codec::{CodecId, CodecSelector, Spill, CODEC_IDS};
use memfit_core::budget::Sizes;
use memfit_core::scheme::{Scheme, SwapFormat};
use memfit_core::swap_log::SEGMENT_BYTES;
use memfit_core::{
    Answer, Compress, Core, Counters, Load, Page, PageRange, ProcId, Stored, Tunables, WriteBack, PAGE_BYTES,
};
use shadow::ShadowPages;
use std::sync::Arc;
use tier::Tier;

/// Who decides which pages are resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residents {
    /// The scheme evicts within the budget; touches bring pages back.
    Simulated,
    /// The recorded run decides at each moment which pages are evicted and brought back. The scheme
    /// decides only where evicted pages go.
    AsRecorded,
}

/// The parameters of a machine.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The scheme that decides.
    pub scheme: Arc<Scheme>,
    /// Budget of all programs, bytes.
    pub budget: u64,
    /// Size of the swap tier, bytes; 0: no tier.
    pub swap_bytes: u64,
    /// Who decides which pages are resident.
    pub residents: Residents,
    /// Share of the programs' pages that the workload has; 1: all. Below 1 the run is a miniature:
    /// the budget and the swap tier are scaled by it, costs by its inverse, and counts are scaled
    /// back up (Waldspurger et al., USENIX ATC 2017). The scheme decides by the costs of the whole.
    pub rate: f64,
    /// Bytes that the tables of another implementation of the scheme take for each frame of its
    /// pool, charged to the budget. Those of memfit are not charged in a simulation; see
    /// [`Outcome::tables_bytes`](crate::Outcome).
    pub tables_per_frame: u64,
    /// Costs of operations in RAM.
    pub costs: Arc<CostTable>,
    /// The device of the swap tier.
    pub device: Arc<Device>,
}

/// Pages brought in at faults, by source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct BySource {
    pub zero: u64,
    pub filled: u64,
    pub staged: u64,
    pub pool: u64,
    pub swap: u64,
    pub file: u64,
}

impl BySource {
    /// All pages.
    pub fn total(&self) -> u64 {
        self.evicted() + self.zero
    }

    /// Pages that had been evicted.
    pub fn evicted(&self) -> u64 {
        self.major() + self.staged
    }

    /// Pages that had been evicted and had left staging.
    pub fn major(&self) -> u64 {
        self.filled + self.pool + self.swap + self.file
    }
}

/// Counts of a simulation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Touches of pages.
    pub touches: u64,
    /// Touches that caused a fault, by the source of the page.
    pub faults: BySource,
    /// Pages that came in beside a faulting page, by source.
    pub around: BySource,
    /// Pages evicted.
    pub evicted: u64,
    /// Pages that each codec compressed or tried to compress, by codec number.
    pub compressions: [u64; CODEC_IDS + 1],
    /// Pages that each codec decompressed for a fault, by codec number.
    pub decompressions: [u64; CODEC_IDS + 1],
    /// Pages that each codec decompressed so that they could be written raw, by codec number.
    pub decompressed_to_write: [u64; CODEC_IDS + 1],
    /// Bytes of the pages that were compressed successfully: before, after.
    pub coded_bytes: (u64, u64),
    /// Estimates of entropy.
    pub estimates: u64,
    /// Reads of the swap tier that a fault waited for.
    pub reads: Transfers,
    /// Reads of the swap tier by the cleaning of its log.
    pub cleaning_reads: Transfers,
    /// Writes to the swap tier.
    pub writes: Transfers,
    /// Bytes of the objects in these writes, without padding and without copies by the cleaning.
    /// Block formats count whole blocks.
    pub object_bytes: u64,
    /// Of `faults.zero`, pages read from files for the first time: they cost nothing here, because
    /// they cost the same under every scheme.
    pub file_first: u64,
    /// The same of `around.zero`.
    pub file_first_around: u64,
    /// Reads of pages of files that were dropped.
    pub file_reads: Transfers,
    /// Times that a program waited for reclaim.
    pub waits: u64,
    /// Pages brought in while the memory in use exceeded the budget.
    pub over_budget: u64,
    /// Peak of memory in use, bytes.
    pub peak_bytes: u64,
    /// Peak of the pool's frames, bytes.
    pub peak_pool_bytes: u64,
    /// Peak of the swap tier, bytes: live objects of a log, blocks in use of the other formats.
    pub peak_swap_bytes: u64,
}

impl Tally {
    /// All counts times `factor`: scales those of a sample up to the whole.
    #[must_use]
    pub fn times(&self, factor: f64) -> Tally {
        let more = |n: u64| (n as f64 * factor).round() as u64;
        let by = |by: BySource| BySource {
            zero: more(by.zero),
            filled: more(by.filled),
            staged: more(by.staged),
            pool: more(by.pool),
            swap: more(by.swap),
            file: more(by.file),
        };
        Tally {
            touches: more(self.touches),
            faults: by(self.faults),
            around: by(self.around),
            evicted: more(self.evicted),
            compressions: self.compressions.map(more),
            decompressions: self.decompressions.map(more),
            decompressed_to_write: self.decompressed_to_write.map(more),
            coded_bytes: (more(self.coded_bytes.0), more(self.coded_bytes.1)),
            estimates: more(self.estimates),
            reads: self.reads.times(factor),
            cleaning_reads: self.cleaning_reads.times(factor),
            writes: self.writes.times(factor),
            object_bytes: more(self.object_bytes),
            file_first: more(self.file_first),
            file_first_around: more(self.file_first_around),
            file_reads: self.file_reads.times(factor),
            waits: more(self.waits),
            over_budget: more(self.over_budget),
            peak_bytes: more(self.peak_bytes),
            peak_pool_bytes: more(self.peak_pool_bytes),
            peak_swap_bytes: more(self.peak_swap_bytes),
        }
    }
}

/// Times, ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Run time of the programs with all of their waits.
    pub program: u64,
    /// Of this: computing.
    pub computes: u64,
    /// Of this: waiting for pages.
    pub faults: u64,
    /// Of `faults`: waiting for the device.
    pub reads: u64,
    /// Of this: waiting for reclaim.
    pub waits: u64,
    /// CPU time of reclaim, on another CPU.
    pub reclaim: u64,
    /// Time in which the device writes.
    pub writes: u64,
}

/// A mark that the workload has reached, and the state at that moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// Number of the mark.
    pub mark: u32,
    /// Time of the programs, ns.
    pub at: u64,
    /// Faults so far on pages that had left staging ([`BySource::major`]).
    pub faults: u64,
    /// Pages in the pool.
    pub zpages: u64,
    /// Frames of the pool.
    pub frames: u64,
}

/// The smallest swap tier of a miniature, bytes: a log cleans whole segments, and needs free ones.
const MINIATURE_SWAP: u64 = 16 * SEGMENT_BYTES as u64;
/// Most marks kept.
const MARKS_MAX: usize = 1 << 16;

/// A running simulation.
pub struct Machine {
    core: Core,
    scheme: Arc<Scheme>,
    sizes: Sizes,
    tables_per_frame: u64,
    residents: Residents,
    contents: Contents,
    /// Names of the contents that came with batches, by their number there.
    learnt: Vec<ContentId>,
    /// For the clocks only: in a miniature these are higher than those of the whole.
    costs: Arc<CostTable>,
    /// By object number: the content, and the process and page that were evicted.
    objects: Vec<(ContentId, ProcId, u64)>,
    /// The core's process numbers by the workload's.
    procs: NumberMap<u32, ProcId>,
    last_proc: Option<(u32, ProcId)>,
    shadows: Vec<Option<ShadowPages>>,
    tier: Tier,
    selector: CodecSelector,
    spill: Spill,
    /// The codec of the scheme; `None` if the scheme selects it automatically.
    codec: Option<CodecId>,
    tally: Tally,
    times: Times,
    /// Time at which reclaim finishes its current work, ns.
    reclaim_until: u64,
    reached: Vec<Reached>,
    lists: Lists,
}

/// Buffers for results of core calls, kept to avoid allocation.
#[derive(Default)]
struct Lists {
    loads: Vec<Load>,
    wanted: Vec<Stored>,
    picked: Vec<Compress>,
    victims: Vec<WriteBack>,
}

impl Machine {
    /// A machine without processes.
    pub fn new(setup: &Setup, contents: Contents) -> Machine {
        let Setup { scheme, budget, swap_bytes, residents, costs, device, rate, tables_per_frame } = setup;
        let (mut sizes, mut priced, mut costs) = (Sizes::new(*budget, scheme), Arc::clone(device), Arc::clone(costs));
        let mut swap_bytes = *swap_bytes;
        if *rate < 1.0 {
            sizes = sizes.miniature(*rate);
            swap_bytes = swap_bytes.min(((swap_bytes as f64 * rate) as u64).max(MINIATURE_SWAP));
            (priced, costs) = (Arc::new(priced.times(1.0 / rate)), Arc::new(costs.times(1.0 / rate)));
        }
        let tier = Tier::new(scheme.swap_format.kind, swap_bytes, priced, device);
        let core = Core::new(Tunables::new(scheme, &sizes, tier.exists(), tier.blocks()));
        Machine {
            core,
            scheme: Arc::clone(scheme),
            sizes,
            tables_per_frame: *tables_per_frame,
            residents: *residents,
            contents,
            learnt: Vec::new(),
            costs,
            objects: Vec::new(),
            procs: NumberMap::default(),
            last_proc: None,
            shadows: Vec::new(),
            tier,
            selector: CodecSelector::new(*budget / PAGE_BYTES),
            spill: Spill::default(),
            codec: scheme.codec.kind.map(CodecId),
            tally: Tally::default(),
            times: Times::default(),
            reclaim_until: 0,
            reached: Vec::new(),
            lists: Lists::default(),
        }
    }

    /// Carries out an event.
    pub fn event(&mut self, event: Event) {
        match event {
            Event::Touches { proc, page, how } => {
                let id = self.id(proc);
                self.touch(id, page, how);
            }
            Event::Computes { ns } => {
                self.times.program += ns;
                self.times.computes += ns;
                self.balance();
            }
            Event::Starts { proc } => {
                let (id, _) = self.core.add_process((self.sizes.staging / PAGE_BYTES) as u32);
                self.started(proc, id, ShadowPages::new());
            }
            Event::Ends { proc } => self.ends(proc),
            Event::Forks { parent, child, present } => self.forks(parent, child, present),
            Event::Maps { proc, first, pages, kind } => {
                let id = self.id(proc);
                self.shadow(id).map(first, pages, kind);
            }
            Event::Present { proc, page } => {
                let id = self.id(proc);
                self.present(id, page);
            }
            Event::Brought { proc, page } => {
                let id = self.id(proc);
                self.brought(id, page);
            }
            Event::Leaves { proc, page, content, file, same, .. } => {
                let id = self.id(proc);
                let content = content.map(|ContentId(n)| self.learnt[n as usize]);
                self.leaves(id, page, content, file, same);
            }
            Event::Frees { proc, first, pages } => {
                let id = self.id(proc);
                self.forget(id, first, pages);
                self.core.unmapped(id, range(first, pages));
                self.apply_effects();
            }
            Event::Moves { proc, first, pages, to } => {
                let id = self.id(proc);
                let mut copied = Vec::new();
                self.shadow(id).remap(first, pages, to, |page| copied.push(page));
                copied.into_iter().for_each(|page| self.tier.drop_copy(id, page));
                self.core.remapped(id, range(first, pages), Page(to));
                self.apply_effects();
            }
            // A recorded run has the evictions that followed.
            Event::LeavesWhole { .. } | Event::Background { .. } if self.residents == Residents::AsRecorded => {}
            Event::LeavesWhole { proc, leaves } => {
                let id = self.id(proc);
                match leaves {
                    true => self.core.reclaim_process(id),
                    false => self.core.stop_process_reclaim(id),
                }
                self.balance();
            }
            Event::Background { proc, background } => {
                let id = self.id(proc);
                self.core.set_background(id, background);
            }
            Event::Reaches { mark } => {
                if self.reached.len() < MARKS_MAX {
                    let usage = self.core.pool_usage();
                    let (zpages, frames) = (usage.zpages, u64::from(usage.frames));
                    let faults = self.tally.faults.major();
                    self.reached.push(Reached { mark, at: self.times.program, faults, zpages, frames });
                }
            }
        }
    }

    fn ends(&mut self, proc: u32) {
        let id = self.id(proc);
        self.forget(id, 0, u64::MAX);
        self.core.remove_process(id);
        self.procs.remove(&proc);
        self.last_proc = None;
        self.shadows[id.0 as usize] = None;
        self.apply_effects();
    }

    fn forks(&mut self, parent: u32, child: u32, present: bool) {
        let from = self.id(parent);
        let slots = (self.sizes.staging / PAGE_BYTES) as u32;
        let (id, _) = self.core.forked(from, slots, present);
        self.core.inherit(id, PageRange::ALL);
        let mut shadow = self.shadow(from).clone();
        shadow.inherited(present);
        self.started(child, id, shadow);
        self.apply_effects();
    }

    /// Takes over the contents of a batch and carries out its events.
    pub fn batch(&mut self, batch: &Batch) {
        for &content in &batch.contents {
            let content = self.contents.intern(content);
            self.learnt.push(content);
        }
        batch.events.iter().for_each(|&event| self.event(event));
    }

    fn started(&mut self, proc: u32, id: ProcId, shadow: ShadowPages) {
        self.procs.insert(proc, id);
        self.last_proc = None;
        let index = id.0 as usize;
        if self.shadows.len() <= index {
            self.shadows.resize_with(index + 1, || None);
        }
        self.shadows[index] = Some(shadow);
    }

    /// # Panics
    /// If the workload has not started the process.
    fn id(&mut self, proc: u32) -> ProcId {
        match self.last_proc {
            Some((last, id)) if last == proc => id,
            _ => {
                let id = *self.procs.get(&proc).unwrap_or_else(|| panic!("process {proc} was not started"));
                self.last_proc = Some((proc, id));
                id
            }
        }
    }

    fn shadow(&mut self, id: ProcId) -> &mut ShadowPages {
        self.shadows[id.0 as usize].as_mut().expect("a started process has shadow pages")
    }

    /// Forgets the contents of pages and drops their clean copies.
    fn forget(&mut self, id: ProcId, first: u64, pages: u64) {
        let (shadows, tier) = (&mut self.shadows, &mut self.tier);
        let shadow = shadows[id.0 as usize].as_mut().expect("a started process has shadow pages");
        shadow.forget(first, pages, |page| tier.drop_copy(id, page));
    }

    /// Notes that the recorded run evicts a page. If residency follows it, evicts the page.
    fn leaves(&mut self, id: ProcId, page: u64, content: Option<ContentId>, file: bool, same: bool) {
        let info = self.shadow(id).page(page);
        info.file = file;
        let before = info.content();
        if let Some(content) = content {
            info.written = true;
            info.holds(content);
        }
        // The clean copy in the swap tier stays valid unless the content has changed. A recording
        // has no contents, but what is known of them: in a log, where copies are kept for pages
        // that do not compress, what is known alike is taken for the same.
        let alike = content.is_none_or(|content| before == Some(content)) && self.wants_log();
        if !same && !alike && std::mem::take(&mut self.shadow(id).page(page).copied) {
            self.tier.drop_copy(id, page);
        }
        if self.residents == Residents::Simulated || !self.shadow(id).page(page).resident {
            return;
        }
        // The recorded run may have had more room in staging.
        self.make_room_in_staging();
        let victims = self.core.claim_range(id, range(page, 1), 1, 0);
        for victim in &victims {
            self.taken(id, victim.first.0, victim.slots.len() as u32);
        }
        self.apply_effects();
        self.balance();
    }

    /// Moves the pages of a victim into staging.
    fn taken(&mut self, id: ProcId, first: u64, pages: u32) {
        let (mut moved, mut file) = (0, 0);
        for i in 0..pages {
            let shadow = self.shadow(id);
            let page = first + u64::from(i);
            let info = shadow.page(page);
            info.resident = false;
            file |= u64::from(info.file) << i;
            if shadow.shared > 0 {
                shadow.unshare(page);
            }
            moved |= 1u64 << i;
        }
        self.core.evicted(id, Page(first), pages, Answer { moved, file, ..Answer::default() }, self.tick());
        for page in first..first + u64::from(pages) {
            let content = self.content_of(id, page);
            if let memfit_core::Entry::Out(object) = self.core.entry(id, Page(page)) {
                let index = object.0 as usize;
                if self.objects.len() <= index {
                    self.objects.resize(index + 1, (ContentId(0), ProcId(0), 0));
                }
                self.objects[index] = (content, id, page);
            }
        }
        self.tally.evicted += u64::from(pages);
        self.reclaims(self.costs.evict_ns() * u64::from(pages));
    }

    /// The content of a page.
    fn content_of(&mut self, id: ProcId, page: u64) -> ContentId {
        let (shadows, contents) = (&mut self.shadows, &mut self.contents);
        let shadow = shadows[id.0 as usize].as_mut().expect("it has shadow pages");
        let info = *shadow.page(page);
        if let Some(content) = info.content() {
            return content;
        }
        let kind = match shadow.mapping(page) {
            Some((_, _, kind)) if info.written || info.file => Some(kind),
            _ => None,
        };
        let content = match kind {
            Some(kind) if kind != crate::workload::UNKNOWN => contents.sample(kind, page ^ u64::from(id.0) << 48),
            // The page left before its content was recorded: assume that it is incompressible.
            Some(_) => contents.noise(),
            None => contents.zeros(),
        };
        shadow.page(page).holds(content);
        content
    }

    /// Time of the programs in ms: the core's tick.
    fn tick(&self) -> u64 {
        self.times.program / 1_000_000
    }

    /// Adds work to the clock of reclaim.
    fn reclaims(&mut self, ns: u64) {
        self.times.reclaim += ns;
        self.reclaim_until += ns;
    }

    /// Carries out the core's effects: frees extents of the swap tier.
    fn apply_effects(&mut self) {
        let tier = &mut self.tier;
        self.core.apply_effects(|extent, len| tier.release(extent, len));
    }

    /// Memory in use, bytes.
    fn used(&self) -> u64 {
        let pages =
            self.core.present_total() + u64::from(self.core.pool_frames()) + u64::from(self.core.staging_allocated());
        // A page shared with the parent counts once, in the parent.
        let shared: u64 = self.shadows.iter().flatten().map(|shadow| shadow.shared).sum();
        (pages - shared) * PAGE_BYTES + u64::from(self.core.pool_frames()) * self.tables_per_frame
    }

    /// Bytes of the budget that are free.
    fn free(&self) -> i64 {
        self.sizes.budget as i64 - self.used() as i64
    }

    /// Counts of the machine so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Counts of the core so far.
    pub fn counters(&self) -> &Counters {
        self.core.counters()
    }

    /// The core, to set a recorder, and the budget.
    pub(crate) fn recording(&mut self) -> (&mut Core, u64) {
        (&mut self.core, self.sizes.budget)
    }

    /// The core.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// Times so far.
    pub fn times(&self) -> Times {
        Times { writes: self.tier.disk.write_ns, ..self.times }
    }

    /// From now on keeps the operations of the swap tier for [`Machine::take_operations`].
    pub fn log_operations(&mut self) {
        self.tier.disk.log.get_or_insert_default();
    }

    /// Appends the operations of the swap tier since the last call, in their order.
    pub fn take_operations(&mut self, to: &mut Vec<Operation>) {
        if let Some(log) = &mut self.tier.disk.log {
            to.append(log);
        }
    }

    /// Marks reached so far.
    pub fn reached(&self) -> &[Reached] {
        &self.reached
    }

    /// Asserts the invariants that hold between two events; O(pages).
    pub fn check(&mut self) {
        self.core.check();
        self.tier.check();
    }

    fn wants_log(&self) -> bool {
        self.scheme.swap_format.kind == SwapFormat::CompressedExtents
    }
}

fn range(first: u64, pages: u64) -> PageRange {
    // The core computes `first + pages`, which must not overflow.
    PageRange { first: Page(first), pages: pages.min((u64::MAX >> 12) - first.min(u64::MAX >> 12)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Spec;

    /// A device is not busy while nobody writes, whatever it wrote earlier.
    #[test]
    fn writes_begin_when_reclaim_makes_them() {
        for preset in ["memfit", "swap"] {
            let setup = Setup {
                scheme: Arc::new(memfit_scheme::preset(preset, &[]).unwrap().unwrap()),
                budget: 4 << 20,
                swap_bytes: 256 << 20,
                residents: Residents::Simulated,
                rate: 1.0,
                tables_per_frame: 0,
                costs: Arc::new(CostTable::find("measured").unwrap()),
                device: Arc::new(Device::find("hdd-2005").unwrap()),
            };
            let mut machine = Machine::new(&setup, Contents::new());
            let spec = Spec::parse("uniform:pages=24M,accesses=6000,contents=f=0.50,touch_ns=200000").unwrap();
            let mut checked = 0;
            for event in spec.make() {
                let (begins, written) = (machine.times.program, machine.tier.disk.write_ns);
                let was_idle = machine.reclaim_until <= begins;
                machine.event(event);
                let writes = machine.tier.disk.write_ns - written;
                if was_idle && writes > 0 {
                    let until = machine.tier.disk.until();
                    assert!(until >= begins + writes, "{preset}: from {begins} on {writes} ns, until {until}");
                    checked += 1;
                }
            }
            assert!(checked > 10, "{preset}: {checked} writes");
        }
    }
}
