//! The way out of quarantine.
//!
//! A page present at a REMOVE event may be zapped at any later moment, until the thread that raised
//! the event has left its madvise. A page that is absent has been zapped: it is out of quarantine
//! at once. What is still present when every thread has been seen outside of its madvise stays
//! (MADV_FREE, or it was zapped and filled again by a fault that we did not need to serve). A
//! thread is outside
//!
//! - in an interruptible sleep, stopped, or ended: between the event and the zap it sleeps
//!   interruptibly nowhere;
//! - when it has run in user mode for longer than the zap of all these pages takes: the kernel
//!   counts user time by samples, and time in the kernel could appear as user time, but a zap has
//!   no more time than it takes.

use crate::proc::Proc;
use crate::state::Shared;
use memfit_core::Page;
use memfit_os::procfs;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};

/// Pages in quarantine below which nobody looks.
const WORTH_PAGES: u64 = 64;
/// A zap takes less CPU time for a page: 50 to 250 ns are usual. Clock ticks are 10 ms.
const ZAPPED_PER_TICK: u64 = 10_000;
/// Least user time that proves something, clock ticks.
const TICKS_MIN: u64 = 5;

/// One process whose quarantine is being proved.
struct Proof {
    proc: Weak<Proc>,
    epoch: u32,
    /// Those that were present at the last look, in order of address.
    pages: Vec<Page>,
    /// Threads not seen outside madvise yet, and the user time that each had, clock ticks.
    suspects: Vec<(i32, u64)>,
    /// So much more proves that a thread is outside.
    ticks: u64,
}

/// Pages that are looked at and told of under one hold of the core's lock.
const CHUNK_PAGES: usize = 256;

static PROOFS: Mutex<Option<HashMap<u32, Proof>>> = Mutex::new(None);

/// One step of the proofs of all processes.
pub fn release(shared: &Arc<Shared>) {
    let procs: Vec<Arc<Proc>> = shared.procs.lock().unwrap().clone();
    let mut proofs = PROOFS.lock().unwrap();
    let proofs = proofs.get_or_insert_with(HashMap::new);
    // Numbers are reused: the proof belongs to this process, not to its number.
    proofs.retain(|_, proof| procs.iter().any(|p| std::ptr::eq(Arc::as_ptr(p), proof.proc.as_ptr())));
    for proc in &procs {
        let Some(identity) = proc.identity.get() else { continue };
        let mut state = shared.lock();
        if proc.removed.load(Relaxed) {
            continue;
        }
        let quarantined = state.core.quarantined_pages(proc.id) >= WORTH_PAGES;
        let zap_pending = state.core.has_zap_pending(proc.id);
        match proofs.get(&proc.id.0) {
            None if quarantined || zap_pending => {
                let (epoch, pages) = state.core.begin_proof(proc.id);
                drop(state);
                let suspect = |tid| Some((tid, procfs::user_ticks(identity.pid, tid)?));
                let suspects = procfs::tasks(identity.pid).into_iter().filter_map(suspect).collect();
                let ticks = TICKS_MIN + pages.len() as u64 / ZAPPED_PER_TICK;
                proofs.insert(proc.id.0, Proof { proc: Arc::downgrade(proc), epoch, pages, suspects, ticks });
            }
            _ => drop(state),
        }
        let Some(proof) = proofs.get_mut(&proc.id.0) else { continue };
        let ticks = proof.ticks;
        proof.suspects.retain(|&(tid, before)| !outside(identity.pid, tid, before + ticks));
        if !proof.suspects.is_empty() {
            let pages = std::mem::take(&mut proof.pages);
            proof.pages = let_zapped_go(shared, proc, pages, proof.epoch);
            continue;
        }
        let_go(shared, proc, &proof.pages, proof.epoch);
        proofs.remove(&proc.id.0);
    }
}

/// Whether a thread is certainly not between a REMOVE event and its zap; `proves` is user time that
/// it can have only outside.
fn outside(pid: i32, tid: i32, proves: u64) -> bool {
    matches!(procfs::task_state(pid, tid), None | Some('S' | 'T' | 't' | 'Z' | 'X'))
        || procfs::user_ticks(pid, tid).is_none_or(|ticks| ticks >= proves)
}

/// Pages that are absent have been zapped. Gives those that are present.
fn let_zapped_go(shared: &Arc<Shared>, proc: &Arc<Proc>, pages: Vec<Page>, epoch: u32) -> Vec<Page> {
    let Some(identity) = proc.identity.get() else { return pages };
    // No new event makes a page zap-pending meanwhile. One that a fault fills is out of quarantine
    // already, and the core leaves it.
    let _io = proc.io.lock().unwrap();
    if proc.removed.load(Relaxed) {
        return pages;
    }
    let (mut left, mut rest) = (Vec::new(), &pages[..]);
    while let Some(first) = rest.first() {
        let together = rest.iter().enumerate().take_while(|&(i, page)| page.0 == first.0 + i as u64).count();
        let (run, after) = rest.split_at(together.min(CHUNK_PAGES));
        rest = after;
        let mut present = Vec::new();
        let found = |start: u64, end: u64, _| present.extend((start / 4096..end / 4096).map(Page));
        if identity.pagemap.present(first.address(), first.address() + run.len() as u64 * 4096, found).is_err() {
            left.extend_from_slice(run);
            continue;
        }
        let mut state = shared.lock();
        for &page in run.iter().filter(|page| present.binary_search(page).is_err()) {
            state.core.end_quarantine(proc.id, page, epoch, false);
        }
        shared.apply_effects(state);
        left.extend(present);
    }
    left
}

fn let_go(shared: &Arc<Shared>, proc: &Arc<Proc>, pages: &[Page], epoch: u32) {
    let Some(identity) = proc.identity.get() else { return };
    // A new event in between would make pages zap-pending again: none is read while this is held.
    let _io = proc.io.lock().unwrap();
    if proc.removed.load(Relaxed) || proc.event_pending() {
        return;
    }
    shared.lock().core.end_zap_pending(proc.id, epoch);
    for chunk in pages.chunks(CHUNK_PAGES) {
        let mut state = shared.lock();
        for &page in chunk {
            if let Ok(present) = identity.pagemap.is_present(page.address()) {
                state.core.end_quarantine(proc.id, page, epoch, present);
            }
        }
        shared.apply_effects(state);
    }
}
