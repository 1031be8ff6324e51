//! Forks that the stub announces: its notices in the ring, and what the fault thread does for them.

use super::{End, Server, Waiting, FORK_POLL};
use crate::forks;
use crate::proc::ZERO_PAGE;
use memfit_core::{Entry, Page};
use memfit_os::uffd::Fill;
use memfit_wire::{Ring, DOFORK, DONTFORK, FORK_BEGINS, FORK_ENDED, NOTICE_DOFORK, NOTICE_DONTFORK, NOTICE_READ};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time that the pager reads changes of other threads at a fork's end, if an event is
/// always unread.
const CHANGES_TOLD: Duration = Duration::from_millis(50);

impl Server {
    /// A thread touched the fork doorbell: it left a notice in the ring, and waits; or it reads all
    /// of the program's memory.
    pub(super) fn doorbell(&mut self, fault: Waiting, more: &mut Vec<Waiting>) -> Result<(), End> {
        let page = Page::of(fault.address);
        // The thread that faulted may have gone on: the fault of another one has filled the page.
        self.served = 0;
        let acted = self.act_on_notice(more)?;
        loop {
            match self.proc.uffd.copy(page.address(), &ZERO_PAGE.0) {
                // A thread that waits for the answer has not forked, so events are of no matter.
                Fill::EventPending(_) if !acted && self.must_wait(fault) => return Ok(()),
                Fill::EventPending(_) => {
                    self.drain(more)?;
                }
                Fill::NoMemory(_) => std::thread::sleep(Duration::from_millis(1)),
                Fill::Gone => return Err(End::Gone),
                Fill::Done | Fill::Exists(_) | Fill::NotMapped(_) => break,
            }
            if self.proc.uffd.gone() {
                return Err(End::Gone);
            }
        }
        if acted {
            self.answer();
        }
        self.proc.uffd.wake(page.address(), 4096);
        Ok(())
    }

    /// Whether a fault must wait for the end of an announced fork: to serve it, the pager would
    /// have to read events. It is postponed then.
    pub(super) fn must_wait(&mut self, fault: Waiting) -> bool {
        let waits = self.proc.expected().is_some_and(|fork| fork.may_wait(fault.tid));
        if waits {
            self.postponed.push(fault);
        }
        waits
    }

    /// The pager has acted on the notice: its thread goes on.
    fn answer(&mut self) {
        self.served = 0;
        if let Some(ring) = self.proc.ring() {
            ring.fork.what.store(0, SeqCst);
        }
    }

    /// Acts on the notice in the ring, and returns true, if there is an unread one. Its thread
    /// waits until [`Server::answer`].
    fn act_on_notice(&mut self, more: &mut Vec<Waiting>) -> Result<bool, End> {
        let proc = Arc::clone(&self.proc);
        let Some(fork) = proc.ring().map(|ring| &ring.fork) else { return Ok(false) };
        let what = fork.what.load(SeqCst);
        // The thread may take it back: see `knock` in the stub.
        let read = |what: u32| fork.what.compare_exchange(what, what | NOTICE_READ, SeqCst, SeqCst).is_ok();
        if what == 0 || !read(what) {
            return Ok(false);
        }
        let (start, end) = (fork.start.load(Relaxed) & !4095, fork.end.load(Relaxed) & !4095);
        let end = end.max(start);
        match what {
            FORK_BEGINS if !proc.forking.load(Relaxed) => {
                let token = self.fork_begins(fork.thread.load(Relaxed), more)?;
                fork.token.store(token, SeqCst);
            }
            FORK_ENDED => self.fork_ended(more)?,
            NOTICE_DONTFORK => proc.keep_from_children(start, end),
            NOTICE_DOFORK => {
                proc.give_to_children(start, end);
                self.dontfork_all()?;
            }
            _ => {}
        }
        Ok(true)
    }

    /// The thread that forked meets no fault if another one has touched the doorbell meanwhile. So
    /// the pager looks for its notice until it is there.
    pub(super) fn find_fork_ended(&mut self, more: &mut Vec<Waiting>) -> Result<(), End> {
        let is_there = |ring: &Ring| ring.fork.what.load(SeqCst) == FORK_ENDED;
        if self.proc.expected().is_some() && self.proc.ring().is_some_and(is_there) && self.act_on_notice(more)? {
            self.answer();
        }
        Ok(())
    }

    /// A fork is announced. Nothing is evicted from here to its end, so the child has everything
    /// that is present after this. Returns the fork's token.
    fn fork_begins(&mut self, forker: u32, more: &mut Vec<Waiting>) -> Result<u64, End> {
        let proc = Arc::clone(&self.proc);
        proc.forking.store(true, SeqCst);
        while !self.drain_batch()? {}
        self.drain(more)?;
        self.advise(&proc.to_dofork(), DOFORK)?;
        for page in forks::used_by_libc(&proc) {
            while matches!(self.shared.lock().core.entry(proc.id, page), Entry::Out(_)) {
                self.fault(Waiting::wanted(page.address()), more)?;
                self.wait_for_reads(more);
            }
        }
        self.drain(more)?;
        let token = forks::expect(&self.shared, &proc, forker).token;
        // Events that are read until the answer come before the fork: its thread waits.
        self.served = forker;
        Ok(token)
    }

    /// Waits until a read has ended.
    fn wait_for_reads(&mut self, more: &mut Vec<Waiting>) {
        if let Some(reader) = self.reader.as_mut().filter(|reader| reader.busy()) {
            reader.wait(100);
        }
        self.reap(more);
    }

    /// The fork has ended. Events of changes that other threads made before it may be readable only
    /// now: the kernel queues an event after its change.
    fn fork_ended(&mut self, more: &mut Vec<Waiting>) -> Result<(), End> {
        if let Some(expected) = self.proc.expected() {
            expected.ended();
            let ended = Instant::now();
            let complete = loop {
                let count = self.drain(more)?;
                if !self.proc.event_pending() {
                    break true;
                }
                if self.proc.uffd.gone() {
                    return Err(End::Gone);
                }
                if ended.elapsed() > CHANGES_TOLD {
                    break false;
                }
                if count == 0 {
                    std::thread::sleep(FORK_POLL);
                }
            };
            expected.parent_goes_on(complete);
            *self.proc.expected.lock() = None;
            self.shared.outbox.wake_control();
        }
        if let Some(identity) = self.proc.identity.get() {
            self.proc.reopen_dontfork(identity);
        }
        self.dontfork_all()?;
        self.proc.forking.store(false, SeqCst);
        self.shared.budget.want_reclaim();
        Ok(())
    }

    /// Keeps open ranges from children (dontfork). The pager retries what fails before the next
    /// eviction.
    fn dontfork_all(&mut self) -> Result<(), End> {
        let open = self.proc.open_pieces();
        self.advise(&open, DONTFORK)
    }
}
