//! The state of a run, and one step of it.

use crate::cell::Cell;
use crate::config::{Changes, Init, Scenario};
use crate::fault::FaultThread;
use crate::kernel::{Mm, Pte};
use crate::pager::{Bytes, Proc};
use crate::program::{Pc, Thread};
use crate::reclaim;
use crate::rescan::{Proof, Scan};
use crate::stub::{Ring, Stub};
use crate::table::Transitions;
use crate::{page, PageNo, PAGES};
use memfit_core::budget::Sizes;
use memfit_core::scheme::{ReclaimKind, Scheme};
use memfit_core::{Answer, Coded, Core, Placed, Tunables};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

/// An actor that makes steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Actor {
    /// A thread of the program.
    Thread(u8),
    /// The fault thread of a process.
    Fault(u8),
    /// The stub of process 0.
    Stub,
    /// The pager's reclaim thread.
    Reclaim,
    /// The pager's monitor thread: looks for new memory.
    Rescan,
    /// The pager's monitor thread: ends quarantines.
    Proof,
    /// The kernel's reclaim.
    Kernel,
}

/// A possible next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The actor.
    pub actor: Actor,
    /// The outcome, if the step has several.
    pub variant: u8,
    /// The step may never happen, so no actor may depend on it.
    pub optional: bool,
}

/// How many jobs optional actors may still begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub struct Left {
    pub posts: u8,
    pub compress: u8,
    pub writes: u8,
    pub rescans: u8,
    pub proofs: u8,
    pub drops: u8,
}

/// The whole state except the core.
#[derive(Debug, Clone, Hash, Default)]
#[allow(missing_docs)]
pub struct State {
    pub mm: [Mm; 2],
    pub threads: Vec<Thread>,
    pub signals: u8,
    pub child_managed: bool,
    pub child_known: bool,
    pub stub: Stub,
    pub ring: Ring,
    pub procs: [Proc; 2],
    pub faults: [FaultThread; 2],
    pub reclaim: reclaim::Pc,
    pub scan: Scan,
    pub proof: Proof,
    pub left: Left,
    pub bytes: Bytes,
    /// Hidden state of the core: proofs begun, and the last faults it was asked about (for
    /// streams).
    pub proofs_begun: u8,
    pub asked: Vec<u8>,
}

/// A run.
pub struct World<'a> {
    /// The real core.
    pub core: Core,
    /// The rest of the state.
    pub s: State,
    pub(crate) scenario: &'a Scenario,
    pub(crate) changes: &'a Changes,
    pub(crate) tick: u64,
    pub(crate) table: Transitions,
    /// Whether to count transitions; off while a prefix is run again.
    pub recording: bool,
    trace: Option<Vec<String>>,
    actor: Actor,
}

impl<'a> World<'a> {
    /// The initial state of a scenario.
    pub fn new(scenario: &'a Scenario, changes: &'a Changes, trace: bool) -> World<'a> {
        let scheme = scheme(scenario.around);
        let tunables = Tunables {
            sizes: Sizes::new(1 << 20, &scheme),
            scheme,
            staging_slots: 2 * PAGES as u32,
            pool_frames: 16,
            area_frames: 32,
            swap: scenario.writes > 0,
            blocks: Vec::new(),
        };
        let mut world = World {
            core: Core::new(tunables),
            s: State::default(),
            scenario,
            changes,
            tick: 1 << 15,
            table: Transitions::default(),
            recording: false,
            trace: trace.then(Vec::new),
            actor: Actor::Kernel,
        };
        world.set_up();
        world
    }

    fn set_up(&mut self) {
        let (id, area) = self.core.add_process(PAGES as u32);
        let proc = &mut self.s.procs[0];
        (proc.id, proc.listed) = (Some((id.0, area.0)), true);
        for i in 0..PAGES as u8 {
            self.set_up_page(i);
        }
        for i in 0..PAGES as u8 {
            if let Init::Resident(_) = self.scenario.at(i) {
                self.core.adopt(id, page(i), false);
            }
        }
        let _ = self.core.take_effects();
        for script in 0..self.scenario.threads.len() as u8 {
            self.s.threads.push(Thread { proc: 0, script, at: 0, pc: Pc::Ready });
        }
        let s = self.scenario;
        self.s.left = Left {
            posts: s.posts,
            compress: s.compress,
            writes: s.writes,
            rescans: s.rescans,
            proofs: s.proofs,
            drops: s.drops,
        };
    }

    fn set_up_page(&mut self, number: u8) {
        let i = usize::from(number);
        let init = self.scenario.at(number);
        if init == Init::Hole {
            return;
        }
        // Neighbours of the same kind share a mapping.
        let plain = matches!(init, Init::Plain(_));
        if i > 0 && self.s.mm[0].vma[i - 1].is_some_and(|v| v.registered != plain) {
            self.s.mm[0].vma[i] = self.s.mm[0].vma[i - 1];
        } else {
            self.s.mm[0].map(number, 1, !plain);
        }
        self.s.procs[0].regions[i] = !plain && init != Init::Grown;
        let (value, present) = match init {
            Init::Plain(v) | Init::Resident(v) => (v, true),
            Init::Staged(v) | Init::Pooled(v) => (v, false),
            Init::Empty | Init::Grown | Init::Hole => (0, false),
        };
        self.s.mm[0].cell[i] = Cell::of(value);
        self.s.mm[0].pte[i] = present.then_some(Pte::of(value));
        if let Init::Staged(v) | Init::Pooled(v) = init {
            self.evict(number, v, matches!(init, Init::Pooled(_)));
        }
    }

    fn evict(&mut self, number: u8, value: u8, pool: bool) {
        let (id, area) = (self.s.procs[0].core_id(), self.s.procs[0].area());
        self.core.adopt(id, page(number), false);
        let (_, victims) = self.core.pick_victims(1, 1, &|_| true).expect("one page is resident");
        let slot = victims[0].slots[0];
        self.core.evicted(id, page(number), 1, Answer { moved: 1, ..Answer::default() }, 1);
        self.s.bytes.staging.insert((area.0, slot), value);
        if pool {
            let mut out = Vec::new();
            self.core.pick_compress(PAGES, &mut out);
            for item in out {
                let value = self.s.bytes.staging[&(area.0, item.slot.index)];
                if let Placed::Pool { runs, .. } =
                    self.core.compressed(item.object, Coded::Bytes { codec: 1, len: 100 })
                {
                    self.s.bytes.pool.insert(runs.slot().byte(), value);
                }
            }
        }
    }

    /// Adds a line to the trace.
    pub(crate) fn say(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{}: {}", World::name_of(self.actor), text()));
        }
    }

    /// The trace so far.
    pub fn trace(&self) -> &[String] {
        self.trace.as_deref().unwrap_or(&[])
    }

    /// All possible next steps.
    pub fn choices(&self) -> Vec<Choice> {
        let mut all = Vec::new();
        let mut add = |actor, variants: u8, optional| {
            all.extend((0..variants).map(|variant| Choice { actor, variant, optional }));
        };
        for t in 0..self.s.threads.len() as u8 {
            add(Actor::Thread(t), u8::from(self.thread_enabled(t)), false);
        }
        for p in 0..2 {
            add(Actor::Fault(p), u8::from(self.fault_enabled(usize::from(p))), false);
        }
        if self.stub_enabled() {
            add(Actor::Stub, self.stub_variants(), false);
        }
        if self.s.reclaim == reclaim::Pc::Idle {
            add(Actor::Reclaim, self.jobs().len() as u8, true);
        } else {
            add(Actor::Reclaim, 1, false);
        }
        let idle = self.s.scan == Scan::Idle;
        if self.scan_enabled() {
            add(Actor::Rescan, self.scannable().len() as u8, idle);
        }
        add(Actor::Proof, u8::from(self.proof_enabled()), !matches!(self.s.proof, Proof::LetGo(..)));
        add(Actor::Kernel, if self.s.left.drops > 0 { self.lazy_pages().len() as u8 } else { 0 }, true);
        all
    }

    /// Pages that the kernel may drop; those of the window from [`PAGES`] on.
    fn lazy_pages(&self) -> Vec<usize> {
        let lazy = |pte: &Option<Pte>| pte.is_some_and(|p| p.lazy);
        let mm = &self.s.mm[0];
        let all = mm.pte.iter().chain(&mm.window).enumerate();
        all.filter(|(_, pte)| lazy(pte)).map(|(i, _)| i).collect()
    }

    /// Makes a step. An error is a violation.
    pub fn step(&mut self, choice: Choice) -> Result<(), String> {
        self.actor = choice.actor;
        match choice.actor {
            Actor::Thread(t) => self.step_thread(t),
            Actor::Fault(p) => self.step_fault(usize::from(p)),
            Actor::Stub => self.step_stub(choice.variant),
            Actor::Reclaim => self.step_reclaim(choice.variant),
            Actor::Rescan => {
                self.step_scan(choice.variant);
                Ok(())
            }
            Actor::Proof => {
                self.step_proof();
                Ok(())
            }
            Actor::Kernel => {
                self.drop_lazy(usize::from(choice.variant));
                Ok(())
            }
        }
    }

    fn drop_lazy(&mut self, which: usize) {
        let i = self.lazy_pages()[which];
        self.s.left.drops -= 1;
        self.say(
            || if i < PAGES { format!("drops the free page {i}") } else { "drops a free page of the window".into() },
        );
        let mm = &mut self.s.mm[0];
        if i < PAGES {
            mm.pte[i] = None;
        } else {
            mm.window[i - PAGES] = None;
        }
    }

    /// A hash of the state, including the visible state of the core.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.s.hash(&mut hasher);
        for entry in self.entries() {
            entry.hash(&mut hasher);
        }
        for id in self.s.procs.iter().filter(|p| !p.removed).filter_map(|p| p.id) {
            (0..PAGES as PageNo)
                .for_each(|i| self.core.zap_pending_since(memfit_core::ProcId(id.0), page(i)).hash(&mut hasher));
        }
        let t = self.core.totals(0);
        (t.staged, t.inactive, t.pooled, t.filled, t.swapped, t.objects).hash(&mut hasher);
        hasher.finish()
    }

    /// Whether every process has ended and was removed.
    pub fn over(&self) -> bool {
        let procs = self.s.procs.iter().all(|p| p.id.is_none() || p.removed);
        procs && self.s.threads.iter().all(|t| t.pc == Pc::Ended)
    }

    /// Checks the end of a run, when no actor can go on: everything has ended, and nothing is left.
    pub fn check_end(&self) -> Result<(), String> {
        if !self.over() {
            let stuck: Vec<String> = self.s.threads.iter().map(|t| format!("{:?}", t.pc)).collect();
            return Err(format!("nobody can go on; the program's threads are {stuck:?}"));
        }
        let (t, pool) = (self.core.totals(0), self.core.pool_usage());
        let left = [t.staged, t.staging_allocated, t.objects, pool.zpages, u64::from(pool.frames)];
        let bytes = [self.s.bytes.staging.len(), self.s.bytes.pool.len(), self.s.bytes.swap.len()];
        if left != [0; 5] || bytes != [0; 3] {
            return Err(format!(
                "left after the exit: slots, memory, objects, zpages, frames {left:?}; bytes {bytes:?}"
            ));
        }
        Ok(())
    }
}

/// Made once for each fault-around window, because a search starts many runs.
fn scheme(around: u8) -> Arc<Scheme> {
    static MADE: Mutex<BTreeMap<u8, Arc<Scheme>>> = Mutex::new(BTreeMap::new());
    let make = || {
        let mut scheme = Scheme::default();
        scheme.reclaim.kind = ReclaimKind::Fifo;
        scheme.replacement.kind = memfit_core::replacement::find("fifo").expect("it is in the table");
        scheme.pool.chain_frames = 1;
        (scheme.fault.around_pages, scheme.fault.zero_run_pages) = (around.into(), around.into());
        Arc::new(scheme)
    };
    Arc::clone(MADE.lock().unwrap().entry(around).or_insert_with(make))
}
