//! How pages leave quarantine.
//!
//! A page present at a REMOVE event may be zapped at any moment, until the thread that raised the
//! event has left its madvise. An absent page has been zapped: it leaves quarantine at once. Pages
//! that are still present when every thread has been seen outside of its madvise stay: they were
//! freed with MADV_FREE, or zapped and then filled by a fault that the pager did not need to serve.
//! The threads are those of the process, and of others that have its memory (clone with CLONE_VM).
//! A thread is outside
//!
//! - in an interruptible sleep, stopped, or ended: between the event and the zap it sleeps
//!   interruptibly nowhere;
//! - when it has run in user mode for longer than the zap of all these pages takes. The kernel
//!   counts user time by samples, so time in the kernel could appear as user time, but only as long
//!   as the zap lasts.

use crate::proc::{Identity, Proc};
use crate::state::Shared;
use memfit_core::Page;
use memfit_os::procfs;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// Fewer quarantined pages are not worth a proof.
const WORTH_PAGES: u64 = 64;
/// Pages zapped in a clock tick (10 ms), a low estimate: 50 to 250 ns of CPU time a page are usual.
const ZAPPED_PER_TICK: u64 = 10_000;
/// Least user time that is a proof, clock ticks.
const TICKS_MIN: u64 = 5;

/// The proof for a process, in [`Proc::proof`].
pub struct Proof {
    epoch: u32,
    /// Pages that were present at the last scan, in order of address.
    pages: Vec<Page>,
    /// Threads not seen outside of madvise yet, with the user time of each when they were listed,
    /// clock ticks. `None` before that.
    suspects: Option<Vec<(i32, u64)>>,
    /// Additional user time that proves that a thread is outside, clock ticks.
    ticks: u64,
}

/// Pages that are handled under one hold of the core lock.
const CHUNK_PAGES: usize = 256;

/// Begins the proofs of processes that have enough in quarantine. Threads are listed after that:
/// one that comes later cannot have raised an event before.
pub fn begin(shared: &Arc<Shared>) {
    let procs: Vec<Arc<Proc>> = shared.procs.lock().clone();
    for proc in &procs {
        let mut proof = proc.proof.lock();
        if proof.is_none() {
            *proof = begun(shared, proc);
        }
    }
}

fn begun(shared: &Arc<Shared>, proc: &Arc<Proc>) -> Option<Proof> {
    proc.identity.get()?;
    let mut state = shared.lock_for(proc)?;
    if state.core.quarantined_pages(proc.id) < WORTH_PAGES && !state.core.has_zap_pending(proc.id) {
        return None;
    }
    let (epoch, pages) = state.core.begin_proof(proc.id);
    let ticks = TICKS_MIN + pages.len() as u64 / ZAPPED_PER_TICK;
    Some(Proof { epoch, pages, suspects: None, ticks })
}

/// One step of the proofs of all processes. `sharers` has pairs of pids: a process, and another one
/// that may have its memory. `None`: they are unknown, and no suspects are listed.
pub fn release(shared: &Arc<Shared>, sharers: Option<&[(i32, i32)]>) {
    let procs: Vec<Arc<Proc>> = shared.procs.lock().clone();
    for proc in &procs {
        let mut proof = proc.proof.lock();
        let (Some(identity), Some(under_way)) = (proc.identity.get(), &mut *proof) else { continue };
        if under_way.suspects.is_none() {
            under_way.suspects = sharers.and_then(|sharers| suspects(identity, sharers));
        }
        let ticks = under_way.ticks;
        if let Some(suspects) = &mut under_way.suspects {
            suspects.retain(|&(tid, before)| !outside(tid, before + ticks));
        }
        if under_way.suspects.as_ref().is_some_and(Vec::is_empty) {
            let_go(shared, proc, &under_way.pages, under_way.epoch);
            *proof = None;
        } else {
            let pages = std::mem::take(&mut under_way.pages);
            under_way.pages = let_zapped_go(shared, proc, pages, under_way.epoch);
        }
    }
}

/// All threads that can be inside of madvise on the memory of a process. `None` if they cannot be
/// listed, or the process has ended and its memory may be in use by others.
fn suspects(identity: &Identity, sharers: &[(i32, i32)]) -> Option<Vec<(i32, u64)>> {
    identity.process()?;
    let sharers = sharers.iter().filter(|&&(lender, _)| lender == identity.pid).map(|&(_, sharer)| sharer);
    let mut suspects = Vec::new();
    for pid in [identity.pid].into_iter().chain(sharers) {
        let (tasks, whole) = procfs::all_tasks(pid);
        if !whole && !procfs::is_gone(pid) {
            return None;
        }
        // User time that cannot be read is 0, the least.
        suspects.extend(tasks.into_iter().map(|tid| (tid, procfs::user_ticks(tid, tid).unwrap_or(0))));
    }
    Some(suspects)
}

/// Whether a thread is certainly not between a REMOVE event and its zap. It is not if its total
/// user time has reached `proves` clock ticks.
fn outside(tid: i32, proves: u64) -> bool {
    match procfs::task_state(tid, tid) {
        None => procfs::is_gone(tid),
        Some('S' | 'T' | 't' | 'Z' | 'X') => true,
        Some(_) => procfs::user_ticks(tid, tid).is_some_and(|ticks| ticks >= proves),
    }
}

/// Ends the quarantine of absent pages: they have been zapped. Returns those that are present.
fn let_zapped_go(shared: &Arc<Shared>, proc: &Arc<Proc>, pages: Vec<Page>, epoch: u32) -> Vec<Page> {
    let Some(identity) = proc.identity.get() else { return pages };
    // With `io` held no new event makes a page zap-pending. A page that a fault fills meanwhile has
    // left quarantine already, and the core ignores it here.
    let _io = proc.io.lock();
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
    // With `io` held no event is read that makes pages zap-pending again.
    let _io = proc.io.lock();
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
        shared.end_part(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OnFull;
    use crate::family::Family;
    use crate::locks::Lock;
    use memfit_core::scheme::Scheme;
    use memfit_core::{PageRange, ProcId};
    use memfit_os::event::EventFd;
    use memfit_os::maps::{Maps, Pagemap};
    use memfit_os::memory::Segment;
    use memfit_os::uffd::Uffd;
    use std::os::fd::OwnedFd;
    use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
    use std::sync::OnceLock;

    fn process(shared: &Arc<Shared>) -> Arc<Proc> {
        let (id, area) = shared.lock().core.add_process(16);
        let kick = Arc::new(EventFd::new().unwrap());
        let proc = Arc::new(Proc::new(id, area, Uffd::from_fd(null()), kick, Family::default()));
        proc.identity.set(identity()).ok().unwrap();
        shared.procs.lock().push(Arc::clone(&proc));
        proc
    }

    fn null() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    /// That of this process.
    fn identity() -> Identity {
        let pid = std::process::id() as i32;
        Identity {
            pid,
            start_ticks: memfit_os::proctree::read_stat(pid).unwrap().start_ticks,
            tid: 1,
            socket: Arc::new(null()),
            segment: Arc::new(Segment::create(1 << 20).unwrap()),
            pagemap: Pagemap::open(pid).unwrap(),
            maps: Lock::new(Maps::open(pid).unwrap()),
            adopted: AtomicBool::new(false),
            droppable: OnceLock::new(),
            reservation: AtomicU64::new(0),
            windows: AtomicU32::new(1),
            forbidden: Vec::new(),
            arguments: Vec::new(),
            loaded: false,
        }
    }

    /// Pages that are worth a proof.
    fn quarantine(shared: &Shared, proc: ProcId) {
        let pages = PageRange { first: Page(16), pages: 2 * WORTH_PAGES };
        let mut state = shared.lock();
        (16..pages.end()).for_each(|page| assert!(state.core.adopt(proc, Page(page), false)));
        state.core.removed(proc, pages);
        assert!(state.core.quarantined_pages(proc) >= WORTH_PAGES);
    }

    /// The process can end between two steps of the thread that proves.
    #[test]
    fn no_proof_begins_for_a_process_that_was_removed() {
        let shared = Arc::new(Shared::new(Scheme::default(), 64 << 20, OnFull::Fail, None).unwrap());
        let proc = process(&shared);
        assert!(shared.lock_for(&proc).is_some());
        crate::attach::remove_process(&shared, &proc);
        assert!(shared.procs.lock().is_empty());
        assert!(shared.lock_for(&proc).is_none());
        assert!(begun(&shared, &proc).is_none());
        // The number is another process's now, with much in quarantine.
        let (other, _) = shared.lock().core.add_process(16);
        assert_eq!(other, proc.id);
        quarantine(&shared, other);
        assert!(begun(&shared, &proc).is_none());
    }

    /// A process made by clone with CLONE_VM can be in madvise on the same memory.
    #[test]
    fn threads_of_other_processes_with_the_same_memory_are_suspects() {
        let shared = Arc::new(Shared::new(Scheme::default(), 64 << 20, OnFull::Fail, None).unwrap());
        let proc = process(&shared);
        let mut other = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let (own, other_pid) = (std::process::id() as i32, other.id() as i32);
        let of = |sharers: &[(i32, i32)]| suspects(proc.identity.get().unwrap(), sharers);
        let (with, of_another) = (of(&[(own, other_pid)]), of(&[(1, other_pid)]));
        other.kill().unwrap();
        other.wait().unwrap();
        let has =
            |found: &Option<Vec<(i32, u64)>>, wanted| found.as_ref().unwrap().iter().any(|&(tid, _)| tid == wanted);
        assert!(has(&with, other_pid) && !has(&of_another, other_pid) && has(&of_another, own));
    }

    /// Nobody knows who else has the memory of a process that has ended.
    #[test]
    fn no_proof_ends_for_a_process_that_has_ended() {
        let shared = Arc::new(Shared::new(Scheme::default(), 64 << 20, OnFull::Fail, None).unwrap());
        let proc = process(&shared);
        quarantine(&shared, proc.id);
        begin(&shared);
        assert!(suspects(proc.identity.get().unwrap(), &[]).is_some());
        let ended = Identity { start_ticks: 1, ..identity() };
        assert!(suspects(&ended, &[]).is_none(), "another process has its pid");
        release(&shared, None);
        assert!(proc.proof.lock().is_some());
    }
}
