//! Pages that fork relatives share: looks at which these are, and evictions from all of them at
//! once. The rules are the core's (`memfit_core::sharing`).

use crate::proc::Proc;
use crate::state::Shared;
use memfit_core::{Page, PageRange, ProcId, Victim, BATCH_PAGES, BATCH_VICTIMS, RUN_PAGES};
use memfit_os::maps::Sharers;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Bytes of a run, and runs that are looked at under one hold of the core lock.
const RUN_BYTES: u64 = RUN_PAGES * 4096;
const RUNS: u64 = 128;
/// Pages that a look must find, so that shared pages stay for the moment.
const WORTH: u64 = 64;
/// Pages that are worth another look at once: it takes less time than their eviction.
const PAYS: u64 = 1024;
/// The time between other looks, in times that one took.
const PACE: u32 = 3;

/// The looks of the reclaim thread.
#[derive(Default)]
pub struct Looks {
    /// Processes with relatives that were looked at, by their addresses.
    sharing: BTreeMap<usize, Weak<Proc>>,
    ended: Option<Instant>,
    cost: Duration,
    /// Pages that the last look found in runs that were set aside, and that can leave now.
    found: u64,
}

/// What can leave when the core has found nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Pages that one process has alone: a look has found some.
    Others,
    /// Shared pages.
    Shared,
    /// Nobody shares pages.
    Nothing,
}

impl Looks {
    /// Looks if a process with relatives is new. Tells the core of those that share no more.
    pub fn begin(&mut self, shared: &Shared, procs: &[Arc<Proc>]) {
        self.sharing.retain(|_, proc| {
            let Some(proc) = proc.upgrade() else { return false };
            let shares = proc.family.shares();
            if let Some(mut state) = shared.lock_for(&proc).filter(|_| !shares) {
                state.core.shares_nothing(proc.id);
                shared.apply_effects(state);
            }
            shares
        });
        let address = |proc: &Arc<Proc>| Arc::as_ptr(proc) as usize;
        let is_new = |proc: &&Arc<Proc>| {
            !self.sharing.contains_key(&address(proc)) && proc.identity.get().is_some() && proc.family.shares()
        };
        let new: Vec<_> = procs.iter().filter(is_new).map(|proc| (address(proc), Arc::downgrade(proc))).collect();
        if !new.is_empty() && self.is_due() {
            self.sharing.extend(new);
            self.look(shared);
        }
    }

    /// The core has found no victims among pages that one process has alone.
    pub fn judge(&mut self, shared: &Shared) -> Found {
        if self.sharing.is_empty() {
            return Found::Nothing;
        }
        let looks = self.found >= PAYS || self.is_due();
        if looks {
            self.look(shared);
        }
        match looks && self.found >= WORTH {
            true => Found::Others,
            false => Found::Shared,
        }
    }

    fn is_due(&self) -> bool {
        self.ended.is_none_or(|ended| ended.elapsed() > self.cost * PACE)
    }

    fn look(&mut self, shared: &Shared) {
        let begun = Instant::now();
        self.found = self.sharing.values().filter_map(|proc| look(shared, &*proc.upgrade()?)).sum();
        self.cost = begun.elapsed();
        self.ended = Some(Instant::now());
    }
}

/// Tells the core which pages of a process others have, too. Returns how many pages can leave that
/// could not before.
fn look(shared: &Shared, proc: &Proc) -> Option<u64> {
    let identity = proc.identity.get()?;
    let regions: Vec<(u64, u64)> = proc.regions.lock().iter().collect();
    let mut found = 0;
    for (start, end) in regions {
        let mut at = start;
        while at < end {
            let next = shared.lock_for(proc)?.core.next_known(proc.id, Page(at / 4096));
            let Some(known) = next.map(|page| page.address() / RUN_BYTES * RUN_BYTES).filter(|&at| at < end) else {
                break;
            };
            at = (known + RUNS * RUN_BYTES).min(end);
            let sharers = identity.pagemap.sharers(known, (at - known).div_ceil(4096) as usize).ok()?;
            let mut state = shared.lock_for(proc)?;
            // The last relative may have ended meanwhile: what was read is wrong then.
            if !proc.family.shares() {
                return None;
            }
            for (run, first) in sharers.chunks(RUN_PAGES as usize).zip((known / 4096..).step_by(RUN_PAGES as usize)) {
                let Some(before) = state.core.sharing(proc.id, Page(first)) else { continue };
                let has = |of| (0..run.len()).filter(|&i| run[i] == of).fold(0, |mask, i| mask | 1 << i);
                let (many, alone): (u16, u16) = (has(Sharers::Many), has(Sharers::None));
                // Nothing was seen of what lies behind the range.
                let unseen = u16::MAX.checked_shl(run.len() as u32).unwrap_or(0);
                let many = many | before.shared & unseen;
                let changed = (before.shared ^ many) & before.takeable != 0;
                if changed || before.aside && alone & before.takeable != 0 {
                    found += u64::from(state.core.shares(proc.id, Page(first), many.into()));
                }
            }
            shared.apply_effects(state);
        }
    }
    Some(found)
}

/// Adds to the batch of a process those of its relatives among `free`, the processes that can take
/// one: the shared pages of the batch leave all of them.
pub fn join<'a>(shared: &Shared, free: impl Iterator<Item = &'a Proc>, batches: &mut Vec<(ProcId, Vec<Victim>)>) {
    let (mut proc, mut relatives) = (None, Vec::new());
    free.for_each(|one| if one.id == batches[0].0 { proc = Some(one) } else { relatives.push(one) });
    let Some(proc) = proc.filter(|proc| proc.family.shares()) else { return };
    let (mut state, tick) = (shared.lock(), shared.tick());
    let range = |victim: &Victim| PageRange { first: victim.first, pages: victim.slots.len() as u64 };
    let ranges = batches[0].1.iter().map(range);
    let shares = |range: &PageRange| state.core.shared_among(proc.id, range.first, range.pages as u32) != 0;
    let ranges: Vec<PageRange> = ranges.filter(shares).collect();
    for relative in relatives.into_iter().filter(|one| one.family.is_of(&proc.family)) {
        let (mut victims, mut pages) = (Vec::new(), 0);
        for range in &ranges {
            // A range can become several victims, each of a page and a gap.
            let most = range.pages as usize;
            if victims.len() + most.div_ceil(2) > BATCH_VICTIMS || pages + most > BATCH_PAGES {
                break;
            }
            let claimed = state.core.claim_shared(relative.id, *range, tick);
            pages += claimed.iter().map(|victim| victim.slots.len()).sum::<usize>();
            victims.extend(claimed);
        }
        if !victims.is_empty() {
            batches.push((relative.id, victims));
        }
    }
    shared.apply_effects(state);
}
