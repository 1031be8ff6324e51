//! What page faults wait for: room in the budget, and the turn of their process.

use super::{spare, End, Server, Waiting};
use memfit_os::event::poll2;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Longest wait for reclaim of one fault in a process that shares pages by fork. A shared page is
/// freed only when it has been evicted from all sharers; that can take longer than anybody would
/// wait, and until then each of them counts.
const SHARED_WAIT_MAX: Duration = Duration::from_secs(2);
/// When one fault has waited this long for reclaim, the user is warned. The fault waits on: the
/// budget is a promise, and reclaim reports when it can free nothing.
const STALL: Duration = Duration::from_secs(10);
const STALLED: &str =
    "page faults wait for memory for more than 10 s: the programs use more at once than the budget holds; raise -m";
/// Longest sleep of a fault thread whose process is held, ms: nothing wakes it when the pager ends.
const HELD_POLL_MS: i32 = 20;

impl Server {
    /// Whether a fault of this thread waits for the process's turn. Not in a system call: there the
    /// thread can have a lock of the kernel that processes outside of the tree need.
    pub(super) fn is_held(&self, tid: u32) -> bool {
        let in_call = |pid| memfit_os::procfs::in_system_call(pid, tid as i32);
        self.proc.held.load(Relaxed) && self.proc.pid().and_then(in_call) == Some(false)
    }

    /// Load control lets this process wait. Reads events meanwhile, as [`Server::throttle`] does.
    pub(super) fn wait_for_turn(&mut self, more: &mut Vec<Waiting>) -> Result<(), End> {
        while self.proc.held.load(Relaxed) && !self.proc.at_rest() && !self.shared.ending.load(Relaxed) {
            let (readable, kicked) = poll2(self.proc.uffd.as_raw_fd(), self.proc.kick.as_raw_fd(), HELD_POLL_MS);
            if kicked {
                self.proc.kick.clear();
            }
            if self.proc.dead.load(Relaxed) || self.proc.uffd.gone() {
                return Err(End::Gone);
            }
            if readable {
                self.drain(more)?;
                // It goes on until that thread has its page.
                if more.iter().any(|fault| !self.is_held(fault.tid)) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Waits for room in the budget. Reads events meanwhile: an unread one would block evictions
    /// from this process, and the room might have to come from there. True: there is no room, and
    /// the fault goes on for its own page alone.
    pub(super) fn throttle(&mut self, more: &mut Vec<Waiting>) -> Result<bool, End> {
        let begun = Instant::now();
        // Nothing is evicted from a process that forks, so its own faults would wait in vain.
        while !self.proc.at_rest() {
            let seen = self.shared.budget.progress();
            let long_enough = || begun.elapsed() > SHARED_WAIT_MAX && self.proc.family.shares();
            if !self.shared.must_wait(1) || long_enough() {
                break;
            }
            if self.shared.budget.lets_one_pass() {
                return Ok(true);
            }
            if begun.elapsed() > STALL {
                self.shared.warn(STALLED.into());
            }
            let waits = Instant::now();
            if !spare::help(&self.shared) {
                self.shared.budget.wait_for_progress(seen);
            }
            // Load control must not take the process for an idle one meanwhile.
            self.proc.counters.waited_ns.fetch_add(waits.elapsed().as_nanos() as u64, Relaxed);
            // What it has becomes free only when this thread goes.
            if self.proc.dead.load(Relaxed) || self.proc.uffd.gone() {
                return Err(End::Gone);
            }
            let (readable, _) = poll2(self.proc.uffd.as_raw_fd(), -1, 0);
            if readable {
                self.drain(more)?;
            }
        }
        Ok(false)
    }
}
