//! Programs with a userfaultfd of their own.
//!
//! The kernel lets only one userfaultfd have a range, and returns EBUSY to the next. A thread whose
//! UFFDIO_REGISTER was refused asks the pager for the range, on a connection of its own
//! (stub/src/own_uffd.rs). The pager brings all pages of the range back and unregisters it. What
//! another userfaultfd has is not registered again: the kernel refuses that to the pager as well.

use crate::clients::{Client, MANAGED};
use crate::control::Desk;
use crate::detach::{bring_back, drained, gone, POLL};
use crate::locks::Held;
use crate::proc::{send_command, Io, Proc};
use crate::state::Shared;
use memfit_core::ranges::Ranges;
use memfit_core::{Entry, Page, PageRange};
use memfit_wire::{Command, FromStub, BATCH_RANGES, BYE, DOFORK, STAY};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The program registers a range within this time after it got it; then the pager may register it
/// again.
const REGISTERED_WITHIN: Duration = Duration::from_secs(1);
/// Bytes given at a time.
const CHUNK: u64 = 1 << 20;

/// Ranges that the program has asked for, and since when it has had them; `None` while their pages
/// are brought back.
#[derive(Debug, Default)]
pub struct Given(Vec<((u64, u64), Option<Instant>)>);

impl Given {
    fn begin(&mut self, range: (u64, u64)) {
        self.0.push((range, None));
    }

    fn end(&mut self, range: (u64, u64)) {
        let under_way = |one: &&mut ((u64, u64), Option<Instant>)| **one == (range, None);
        self.0.iter_mut().find(under_way).into_iter().for_each(|(_, since)| *since = Some(Instant::now()));
    }

    /// The ranges that it is getting or about to register.
    pub fn now(&mut self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.retain(|(_, since)| since.is_none_or(|since| since.elapsed() < REGISTERED_WITHIN));
        self.0.iter().map(|&(range, _)| range)
    }
}

/// A thread of a process asks for a range; the answer goes to its socket.
pub fn requested(desk: &Arc<Desk>, socket: OwnedFd, pid: i32, request: FromStub) {
    let desk = Arc::clone(desk);
    let answer = move || {
        let kind = if give(&desk, pid, request.segment).is_some() { STAY } else { BYE };
        send_command(&socket, &Command { kind, ..Command::default() }, None);
    };
    // If there is no thread, the asker's socket closes, and the refusal stands.
    let _ = std::thread::Builder::new().name("give".into()).stack_size(256 << 10).spawn(answer);
}

fn give(desk: &Desk, pid: i32, [start, end]: [u64; 2]) -> Option<()> {
    if start >= end || (start | end) % 4096 != 0 {
        return None;
    }
    let managed = |client: &&Arc<Client>| client.pid == pid && client.stage.load(Relaxed) == MANAGED;
    let client = desk.clients.lock().iter().rev().find(managed).cloned()?;
    let proc = client.proc.lock().clone()?;
    // A hole of the page cache would read as zeros. The kernel takes no mapping of a file either.
    if proc.files.lock().shares_some_of(start, end) {
        return None;
    }
    {
        // With `io` held no range is being registered.
        let _io = proc.io.lock();
        proc.given.lock().begin((start, end));
    }
    let given = give_all(&desk.shared, &proc, start, end);
    proc.given.lock().end((start, end));
    given
}

fn give_all(shared: &Shared, proc: &Arc<Proc>, start: u64, end: u64) -> Option<()> {
    let mut registered: Ranges = proc.regions.lock().within(start, end).collect();
    // Its pages are not known yet.
    proc.unconfirmed.lock().within(start, end).for_each(|(s, e)| registered.add(s, e));
    let parts: Vec<(u64, u64)> = registered.iter().collect();
    for &(start, end) in &parts {
        let mut at = start;
        while at < end {
            let to = end.min(at + CHUNK);
            wait_for_room(shared, proc);
            proc.giving.fetch_add(1, Relaxed);
            let given = give_chunk(shared, proc, at, to);
            proc.giving.fetch_sub(1, Relaxed);
            given?;
            at = to;
        }
    }
    if proc.tells_forks() {
        let of_these = |&(s, e): &(u64, u64)| parts.iter().any(|&(start, end)| s >= start && e <= end);
        let dontfork: Vec<(u64, u64)> = proc.to_dofork().into_iter().filter(of_these).collect();
        for chunk in dontfork.chunks(BATCH_RANGES) {
            proc.post_advice(&mut *idle(shared, proc)?, chunk, DOFORK);
            proc.ring_bell();
        }
        drop(idle(shared, proc)?);
    }
    Some(())
}

/// Waits until the process has no batch, no unread event and no fork under way. `None` if it is
/// gone.
fn idle<'a>(shared: &Shared, proc: &'a Arc<Proc>) -> Option<Held<'a, Io>> {
    loop {
        if !drained(shared, proc) || gone(proc) {
            return None;
        }
        let io = proc.io.lock();
        if !io.busy && !proc.event_pending() && !proc.forking.load(Relaxed) {
            return Some(io);
        }
        drop(io);
        std::thread::sleep(POLL);
    }
}

/// Waits until there is room for pages to come back.
fn wait_for_room(shared: &Shared, proc: &Proc) {
    loop {
        let seen = shared.budget.progress();
        if !shared.must_wait(1) || shared.budget.lets_one_pass() || gone(proc) {
            return;
        }
        shared.budget.wait_for_progress(seen);
    }
}

fn give_chunk(shared: &Shared, proc: &Arc<Proc>, start: u64, end: u64) -> Option<()> {
    let pages = start / 4096..end / 4096;
    let range = PageRange::from_addresses(start, end);
    let elsewhere = |entry| matches!(entry, Entry::Out(_) | Entry::Loading(_) | Entry::Evicting(_) | Entry::Filling(_));
    loop {
        bring_back(shared, proc, pages.clone())?;
        // With `io` held nothing is evicted.
        let io = idle(shared, proc)?;
        let mut state = shared.lock_for(proc)?;
        if pages.clone().any(|page| elsewhere(state.core.entry(proc.id, Page(page)))) {
            shared.apply_effects(state);
            continue;
        }
        state.core.disown(proc.id, range);
        shared.apply_effects(state);
        let unregistered = proc.uffd.unregister(start, end - start);
        proc.forget_region(start, end);
        drop(io);
        forget(shared, proc, range)?;
        return unregistered.ok();
    }
}

/// Forgets the pages of a range that is not registered any more. The fault thread may be filling
/// one with zeros: the kernel may have let it, and the core hears of it later. So this repeats
/// until no page is being filled. Otherwise a later batch would take a page that another
/// userfaultfd has. `None` if the process is gone.
fn forget(shared: &Shared, proc: &Proc, range: PageRange) -> Option<()> {
    let (start, end) = (range.first.address(), range.first.address() + range.pages * 4096);
    loop {
        {
            // With `io` held, an mremap that moves other memory here is wholly known or not at all.
            let _io = proc.io.lock();
            let gaps = proc.regions.lock().gaps(start, end);
            let mut state = shared.lock_for(proc)?;
            gaps.iter().for_each(|&(s, e)| state.core.disown(proc.id, PageRange::from_addresses(s, e)));
            let left = gaps.iter().any(|&(s, e)| state.core.tracks(proc.id, PageRange::from_addresses(s, e)));
            shared.apply_effects(state);
            if !left {
                return Some(());
            }
        }
        // The fault thread may need `io`.
        std::thread::sleep(POLL);
        if gone(proc) {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OnFull;
    use crate::family::Family;
    use memfit_core::scheme::Scheme;
    use memfit_core::{Fault, Filled};
    use memfit_os::event::EventFd;
    use memfit_os::uffd::Uffd;
    use std::fs::File;

    /// The kernel has filled the page before the range was given away, and the core hears of it
    /// after that.
    #[test]
    fn a_page_that_was_being_filled_when_its_range_was_given_away_is_forgotten() {
        let shared = Arc::new(Shared::new(Scheme::default(), 64 << 20, OnFull::Fail, None).unwrap());
        let (id, area) = shared.lock().core.add_process(16);
        let uffd = Uffd::from_fd(File::open("/dev/null").unwrap().into());
        let kick = Arc::new(EventFd::new().unwrap());
        let proc = Arc::new(Proc::new(id, area, uffd, kick, Family::default()));
        let (page, range) = (Page(20), PageRange { first: Page(16), pages: 16 });
        let answer = shared.lock().core.fault(id, page, range, 1, &mut Vec::new());
        assert_eq!(answer, Fault::Load);
        // A mapping that the program has moved to the end of the range meanwhile.
        proc.add_region(28 * 4096, 32 * 4096);
        assert!(shared.lock().core.adopt(id, Page(30), false));
        std::thread::scope(|scope| {
            let forgets = scope.spawn(|| forget(&shared, &proc, range));
            std::thread::sleep(10 * POLL);
            assert!(!forgets.is_finished(), "the fault thread has not reported the page yet");
            shared.lock().core.loaded(id, page, Filled::Done);
            assert_eq!(forgets.join().unwrap(), Some(()));
        });
        let state = shared.lock();
        assert_eq!(state.core.entry(id, page), Entry::Untracked);
        assert_eq!(state.core.entry(id, Page(30)), Entry::Resident);
    }
}
