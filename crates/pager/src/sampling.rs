//! Accesses to a sample of the address space, for recordings. Sampled pages are evicted again and
//! again, whether memory is short or not, so that nearly all touches of them are faults.
//!
//! These evictions are like any other: `claim_range`, a batch to the stub, staging. The reclaim
//! thread does them between its rounds, when memory is not short: in passes over the whole sample,
//! and between passes over the pages that came back since ([`Governor::grain`]).
//! `memfit_core::sample` decides what is sampled, and how often.

use crate::locks::{rank, Lock};
use crate::proc::{Proc, STOPPED_AFTER};
use crate::record::Notes;
use crate::state::Shared;
use memfit_core::sample::{region_of, Governor, Limits, Sampled, SampledRegion, REGION_PAGES};
use memfit_core::trace::Note;
use memfit_core::{Core, Page, PageRange, ProcId, Source, Victim};
use memfit_wire::{BATCH_PAGES, BATCH_RANGES};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most sampled pages in the programs and in staging: 16 MiB.
const PAGES: u64 = 4096;
/// Share of the staging slots that samples may take: one in so many. Reclaim needs the others.
const SLOTS_PART: u64 = 2;
/// Cost of a fault besides the time to serve it, us: two context switches, on one CPU or between
/// two CPUs that others want as well.
const SWITCHES_US: u64 = 6;
const SWITCHES_BUSY_US: u64 = 30;
/// First and longest time between two passes over the whole sample, ms.
const PERIOD_MS: u32 = 100;
const PERIOD_MAX_MS: u32 = 1600;
/// Time in faults after which the sampler judges whether that is too much, us.
const CHECK_US: u64 = 20_000;
/// Runs scanned under one hold of the core lock: under 100 us.
const RUNS: usize = 4096;
/// A pass is abandoned after this many periods.
const PASS_PERIODS: u32 = 4;
/// Most pages that are noted as having come back between two passes.
const BACK_MAX: usize = 4096;
/// Time between two batches for a process.
const BETWEEN: Duration = Duration::from_millis(1);
/// Most regions that a process may hand back untried.
const AGAIN_MAX: usize = 64;

/// What all threads share of the sample.
pub struct Sampling {
    threshold: AtomicU32,
    /// Time since the last judgement in faults on sampled pages that only sampling caused, or kept
    /// apart, us.
    faults_us: AtomicU64,
    /// Regions of pages that came back since the last pass, one entry for each page.
    back: Lock<Vec<(ProcId, u64)>, { rank::SAMPLES_BACK }>,
    /// With this many of them they are evicted again.
    grain: AtomicU32,
    /// Most time that faults on sampled pages may take, thousandths.
    permille: u64,
    notes: Notes,
}

impl Sampling {
    /// Begins with a recording, and notes the sample there. Faults on sampled pages may take
    /// `percent` of the time.
    pub fn new(core: &Core, slots: u64, percent: u32, notes: Notes) -> Sampling {
        let sampling = Sampling {
            threshold: AtomicU32::new(0),
            faults_us: AtomicU64::new(0),
            back: Lock::default(),
            grain: AtomicU32::new(u32::MAX),
            permille: u64::from(percent) * 10,
            notes,
        };
        sampling.tell(core, Governor::new(sampling.limits(slots)).sampled());
        sampling
    }

    fn limits(&self, slots: u64) -> Limits {
        Limits {
            pages: PAGES.min(slots / SLOTS_PART).max(REGION_PAGES),
            permille: self.permille,
            period_ms: PERIOD_MS,
            period_max_ms: PERIOD_MAX_MS,
        }
    }

    /// Changes the sample. The caller holds the core lock, which puts the note between the right
    /// calls.
    fn tell(&self, core: &Core, sampled: Sampled) {
        self.threshold.store(sampled.threshold, Relaxed);
        self.notes.note(core, Note::Sampled(sampled));
    }

    /// The sample; without the period.
    pub fn sampled(&self) -> Sampled {
        Sampled { threshold: self.threshold.load(Relaxed), period_ms: 0 }
    }

    /// Most pages that a fault may bring: a sampled page alone, because the touch of a page brought
    /// ahead is not seen.
    pub fn most(&self, page: Page) -> u32 {
        let sampled = self.sampled();
        let next = (region_of(page) + 1) * REGION_PAGES;
        match (sampled.has(page), sampled.has(Page(next))) {
            (true, _) => 1,
            (false, true) => (next - page.0) as u32,
            (false, false) => u32::MAX,
        }
    }

    /// Counts a fault that took the time `served`; `calm`: CPUs suffice. True if it is time to
    /// judge the sum, or to evict pages again.
    pub fn faulted(&self, proc: ProcId, page: Page, source: &Source, served: Duration, calm: bool) -> bool {
        if !self.sampled().has(page) {
            return false;
        }
        let mut back = self.back.lock();
        let due = back.len() + 1 == self.grain.load(Relaxed) as usize;
        if back.len() < BACK_MAX {
            back.push((proc, region_of(page)));
        }
        drop(back);
        if !matches!(source, Source::Staged(_) | Source::Zero) {
            return due;
        }
        let us = served.as_micros() as u64 + if calm { SWITCHES_US } else { SWITCHES_BUSY_US };
        let before = self.faults_us.fetch_add(us, Relaxed);
        due || before / CHECK_US != (before + us) / CHECK_US
    }

    fn is_due(&self) -> bool {
        self.back.lock().len() >= self.grain.load(Relaxed) as usize
    }

    /// Notes that the stub handed a victim back untried; it is tried again.
    pub fn untried(&self, victim: &Victim, again: &mut Vec<u64>) {
        let region = region_of(victim.first);
        if self.sampled().has(victim.first) && again.len() < AGAIN_MAX && !again.contains(&region) {
            again.push(region);
        }
    }
}

/// What a pass still has to evict from one process.
struct Part {
    proc: Arc<Proc>,
    /// Numbers of regions, the next one last.
    regions: Vec<u64>,
    /// How many regions that were handed back untried are tried again.
    tries: usize,
}

impl Part {
    fn of(proc: Arc<Proc>, regions: Vec<u64>) -> Part {
        Part { proc, tries: regions.len() * 2 + 16, regions }
    }
}

/// One pass over all sampled pages, or over some.
struct Pass {
    parts: Vec<Part>,
    since: Instant,
}

/// Evicts the sample, step by step.
pub struct Sampler {
    shared: Arc<Shared>,
    governor: Governor,
    pass: Option<Pass>,
    next: Instant,
    /// Pages that came back are not evicted before this time.
    again: Instant,
    judged: Instant,
    /// Sampled pages at the last pass.
    pages: u64,
}

/// What a step did.
pub struct Step {
    /// When the next one is due.
    pub within: Duration,
    /// There were too few staging slots.
    pub short: bool,
}

impl Sampler {
    /// `None` unless accesses are recorded.
    pub fn new(shared: &Arc<Shared>) -> Option<Sampler> {
        let sampling = shared.sampling.as_ref()?;
        let now = Instant::now();
        let governor = Governor::new(sampling.limits(shared.budget.sizes.staging / 4096));
        Some(Sampler { shared: Arc::clone(shared), governor, pass: None, next: now, again: now, judged: now, pages: 0 })
    }

    /// Begins a pass if one is due, or continues one.
    pub fn step(&mut self) -> Step {
        let shared = Arc::clone(&self.shared);
        let Some(sampling) = &shared.sampling else { return Step { within: Duration::MAX, short: false } };
        if self.pass.is_none() && Instant::now() >= self.next {
            self.begin(sampling);
        } else if self.pass.is_none() && sampling.is_due() && Instant::now() >= self.again {
            self.again(sampling);
        } else if sampling.faults_us.load(Relaxed) >= CHECK_US {
            // Pages that came since the last pass are counted at the next one.
            self.judge(sampling, self.pages);
        }
        let short = self.post();
        let period = Duration::from_millis(self.governor.sampled().period_ms.into());
        if self.pass.as_ref().is_some_and(|pass| pass.parts.is_empty() || pass.since.elapsed() > period * PASS_PERIODS)
        {
            self.pass = None;
        }
        let next = if sampling.is_due() { self.again.min(self.next) } else { self.next };
        let within = match self.pass {
            Some(_) => BETWEEN,
            None => next.saturating_duration_since(Instant::now()).max(BETWEEN),
        };
        Step { within, short }
    }

    /// Adapts the sample to its cost.
    fn judge(&mut self, sampling: &Sampling, pages: u64) {
        let elapsed = self.judged.elapsed();
        self.judged = Instant::now();
        let faults_us = sampling.faults_us.swap(0, Relaxed);
        let before = u64::from(self.governor.sampled().threshold);
        if self.governor.judge(pages, faults_us, elapsed.as_millis() as u64) {
            let state = self.shared.lock();
            sampling.tell(&state.core, self.governor.sampled());
        }
        // An estimate until they are counted again.
        self.pages = pages * u64::from(self.governor.sampled().threshold) / before;
    }

    fn begin(&mut self, sampling: &Sampling) {
        let since = Instant::now();
        let procs: Vec<Arc<Proc>> = self.shared.procs.lock().clone();
        let (mut found, mut pages) = (Vec::new(), 0);
        for proc in procs {
            if proc.identity.get().is_none() {
                continue;
            }
            let regions = self.regions(&proc);
            pages += regions.iter().map(|region| u64::from(region.pages)).sum::<u64>();
            found.push((proc, regions));
        }
        self.judge(sampling, pages);
        let sampled = self.governor.sampled();
        let grain = self.governor.grain(self.pages).min(BACK_MAX as u64);
        sampling.grain.store(grain as u32, Relaxed);
        sampling.back.lock().clear();
        let mut parts = Vec::new();
        for (proc, regions) in found {
            let due = regions.iter().rev().filter(|region| region.takeable > 0 && sampled.has(region.first()));
            let regions: Vec<u64> = due.map(|region| region.number).collect();
            if !regions.is_empty() {
                parts.push(Part::of(proc, regions));
            }
        }
        self.next = since + Duration::from_millis(sampled.period_ms.into());
        self.again = since + Duration::from_micros(self.governor.gap_us());
        self.pass = Some(Pass { parts, since });
    }

    /// Begins a pass over the pages that came back only.
    fn again(&mut self, sampling: &Sampling) {
        let mut back = std::mem::take(&mut *sampling.back.lock());
        back.sort_unstable();
        back.dedup();
        let procs = self.shared.procs.lock();
        let parts = back.chunk_by(|one, other| one.0 == other.0).filter_map(|back| {
            let proc = procs.iter().find(|proc| proc.id == back[0].0)?;
            Some(Part::of(Arc::clone(proc), back.iter().map(|&(_, region)| region).collect()))
        });
        let since = Instant::now();
        self.again = since + Duration::from_micros(self.governor.gap_us());
        self.pass = Some(Pass { parts: parts.collect(), since });
    }

    /// The sampled regions of a process, in chunks: the core lock must stay free for faults.
    fn regions(&self, proc: &Proc) -> Vec<SampledRegion> {
        let (mut regions, mut from) = (Vec::new(), Some(0));
        while let Some(at) = from {
            let Some(state) = self.shared.lock_for(proc) else { return Vec::new() };
            from = state.core.sampled_regions(proc.id, at, RUNS, self.governor.sampled(), &mut regions);
        }
        regions
    }

    /// Posts a batch to each process that can take one. Returns whether staging slots were short.
    fn post(&mut self) -> bool {
        let Some(pass) = &mut self.pass else { return false };
        let (shared, mut short) = (&self.shared, false);
        pass.parts.retain_mut(|part| {
            let proc = &part.proc;
            let Some(mut io) = proc.io.try_lock() else { return true };
            if !proc.idle(&io) {
                // A stopped process does not answer, and one that has ended never will.
                let stopped = io.busy && io.posted.is_some_and(|at| at.elapsed() > STOPPED_AFTER);
                return !stopped && !proc.dead.load(Relaxed) && !proc.removed.load(Relaxed);
            }
            for region in std::mem::take(&mut io.again) {
                if part.tries > 0 && !part.regions.contains(&region) {
                    part.tries -= 1;
                    part.regions.push(region);
                }
            }
            if part.regions.is_empty() {
                return false;
            }
            if !proc.post_dontfork(&mut io) {
                let victims = claim(shared, proc, &mut part.regions);
                if victims.is_empty() {
                    short |= !part.regions.is_empty();
                    return true;
                }
                proc.post(&mut io, victims);
            }
            drop(io);
            proc.ring_bell();
            true
        });
        short
    }
}

/// Claims regions from the last one on, as many as the slots and a batch allow. The caller holds
/// the process's `io`.
fn claim(shared: &Shared, proc: &Proc, regions: &mut Vec<u64>) -> Vec<Victim> {
    let mut victims: Vec<Victim> = Vec::new();
    let mut pages = 0;
    let mut state = shared.lock();
    let free = state.core.usable_slots().saturating_sub(state.core.totals_staged());
    let room = free.min(BATCH_PAGES as u64);
    // Each part of a region with holes is a range.
    while pages + REGION_PAGES <= room && victims.len() + REGION_PAGES as usize / 2 <= BATCH_RANGES {
        let Some(region) = regions.pop() else { break };
        let range = PageRange { first: Page(region * REGION_PAGES), pages: REGION_PAGES };
        let claimed = state.core.claim_range(proc.id, range, REGION_PAGES as usize, shared.tick());
        pages += claimed.iter().map(|victim| victim.slots.len() as u64).sum::<u64>();
        victims.extend(claimed);
    }
    shared.apply_effects(state);
    victims
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_core::sample::hash;

    fn sampling(threshold: u32) -> Sampling {
        Sampling {
            threshold: AtomicU32::new(threshold),
            faults_us: AtomicU64::new(0),
            back: Lock::default(),
            grain: AtomicU32::new(u32::MAX),
            permille: 50,
            notes: Notes::none(),
        }
    }

    #[test]
    fn no_page_of_the_sample_is_brought_ahead() {
        let (mut inside, mut before, mut far) = (0, 0, 0);
        let threshold = memfit_core::sample::EVERYTHING / 4;
        let sampling = sampling(threshold);
        for region in 0..1000 {
            let [here, next] = [region, region + 1].map(|region| hash(region) < threshold);
            let page = Page((region + 1) * REGION_PAGES - 4);
            let most = sampling.most(page);
            inside += u32::from(here);
            before += u32::from(!here && next);
            far += u32::from(!here && !next);
            assert_eq!(
                most,
                if here {
                    1
                } else if next {
                    4
                } else {
                    u32::MAX
                }
            );
        }
        assert!(inside > 100 && before > 100 && far > 100);
    }

    #[test]
    fn faults_of_the_sample_count() {
        let sampling = sampling(memfit_core::sample::EVERYTHING);
        let took = Duration::from_micros(4);
        let faulted = |page, source, calm| sampling.faulted(ProcId(1), Page(page), &source, took, calm);
        let due = (0..4000).filter(|&page| faulted(page, Source::Zero, true)).count();
        assert_eq!((due, sampling.faults_us.load(Relaxed)), (2, 40_000));
        assert!(!faulted(0, Source::Word(0), true));
        assert!(!faulted(0, Source::Zero, false));
        assert_eq!(sampling.faults_us.load(Relaxed), 40_034);
    }

    #[test]
    fn pages_that_came_back_are_taken_again_when_they_are_enough() {
        let sampling = sampling(memfit_core::sample::EVERYTHING);
        sampling.grain.store(10, Relaxed);
        let faulted = |page| sampling.faulted(ProcId(1), Page(page), &Source::Zero, Duration::ZERO, true);
        let due: Vec<u64> = (0..20).filter(|&page| faulted(page)).collect();
        assert!(due == [9] && sampling.is_due(), "{due:?}");
        sampling.back.lock().clear();
        assert!(!sampling.is_due());
        (0..2 * BACK_MAX as u64).for_each(|page| _ = faulted(page));
        assert_eq!(sampling.back.lock().len(), BACK_MAX);
    }

    #[test]
    fn the_bound_follows_the_staging_slots() {
        let sampling = sampling(0);
        assert_eq!([0, 400, 1 << 20].map(|slots| sampling.limits(slots).pages), [16, 200, PAGES]);
    }
}
