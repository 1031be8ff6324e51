//! The way out of quarantine.
//!
//! A page present at a REMOVE event may be zapped at any later moment, until the thread that raised
//! the event has left its madvise. That thread sleeps interruptibly nowhere in between: once every
//! thread that lived at the event has been seen in an interruptible sleep, stopped, or ended, what
//! is still present stays (MADV_FREE, or it was zapped and filled again by a fault we did not need to
//! serve).

use crate::proc::Proc;
use crate::state::Shared;
use memfit_core::Page;
use memfit_os::procfs;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};

/// Pages in quarantine below which nobody looks.
const WORTH_PAGES: u64 = 64;

/// One process whose quarantine is being proved.
struct Proof {
    proc: Weak<Proc>,
    epoch: u32,
    pages: Vec<Page>,
    /// Threads not seen outside madvise yet.
    suspects: Vec<i32>,
}

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
        let doubted = state.core.doubts(proc.id);
        match proofs.get(&proc.id.0) {
            None if quarantined || doubted => {
                let (epoch, pages) = state.core.begin_proof(proc.id);
                drop(state);
                proofs.insert(
                    proc.id.0,
                    Proof { proc: Arc::downgrade(proc), epoch, pages, suspects: procfs::tasks(identity.pid) },
                );
            }
            _ => drop(state),
        }
        let Some(proof) = proofs.get_mut(&proc.id.0) else { continue };
        proof.suspects.retain(|&tid| !outside(identity.pid, tid));
        if proof.suspects.is_empty() {
            let_go(shared, proc, &proof.pages, proof.epoch);
            proofs.remove(&proc.id.0);
        }
    }
}

/// Whether a thread is certainly not between a REMOVE event and its zap.
fn outside(pid: i32, tid: i32) -> bool {
    matches!(procfs::task_state(pid, tid), None | Some('S' | 'T' | 't' | 'Z' | 'X'))
}

fn let_go(shared: &Arc<Shared>, proc: &Arc<Proc>, pages: &[Page], epoch: u32) {
    let Some(identity) = proc.identity.get() else { return };
    // A new event in between would put pages under new doubt: none is read while this is held.
    let _io = proc.io.lock().unwrap();
    if proc.removed.load(Relaxed) || proc.event_pending() {
        return;
    }
    shared.lock().core.end_doubts(proc.id, epoch);
    for chunk in pages.chunks(256) {
        let mut state = shared.lock();
        for &page in chunk {
            if let Ok(present) = identity.pagemap.is_present(page.address()) {
                state.core.end_quarantine(proc.id, page, epoch, present);
            }
        }
        shared.settle(state);
    }
}
