//! What page faults wait for: room in the budget, and the turn of their process.

use super::{spare, End, Server, Waiting};
use memfit_os::event::poll2;
use memfit_os::procfs;
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
/// Whether a thread faults in an instruction of its own, and not in a system call.
fn is_own_access(pid: i32, tid: u32) -> bool {
    let of = |tid| procfs::in_system_call(pid, tid);
    // In a PID namespace of its own the thread has another number.
    of(tid as i32).or_else(|| of(procfs::task(pid, tid)?)) == Some(false)
}

impl Server {
    /// Whether a fault waits for the turn of its process; then it is kept in `held`. Not one in a
    /// system call: there the thread can have a lock of the kernel that processes outside of the
    /// tree need.
    pub(super) fn holds(&mut self, fault: Waiting) -> bool {
        if !fault.is_of_program()
            || !self.turn_is_off()
            || !self.proc.pid().is_some_and(|pid| is_own_access(pid, fault.tid))
        {
            return false;
        }
        // A thread that a signal has interrupted faults again.
        self.held.retain(|held| held.tid != fault.tid);
        self.held.push(fault);
        true
    }

    /// Adds the faults that have waited for the turn, if it has come.
    pub(super) fn take_held(&mut self, waiting: &mut Vec<Waiting>) {
        if !self.held.is_empty() && !self.turn_is_off() {
            let since = Instant::now();
            waiting.extend(self.held.drain(..).map(|fault| Waiting { since, ..fault }));
        }
    }

    /// Load control lets this process wait.
    fn turn_is_off(&self) -> bool {
        self.proc.held.load(Relaxed) && !self.proc.at_rest() && !self.shared.ending.load(Relaxed)
    }

    /// Counts how long a program has waited for a page, but for what is counted already.
    pub(super) fn count_wait(&self, fault: Waiting) {
        if fault.is_of_program() {
            let waited = fault.since.elapsed().saturating_sub(self.counted);
            self.proc.counters.waited_ns.fetch_add(waited.as_nanos() as u64, Relaxed);
        }
    }

    /// Waits for room in the budget. Reads events meanwhile: an unread one would block evictions
    /// from this process, and the room might have to come from there. True: there is no room, and
    /// the fault goes on for its own page alone.
    pub(super) fn throttle(&mut self, fault: Waiting, more: &mut Vec<Waiting>) -> Result<bool, End> {
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
            // Counted at once: load control must not take the process for an idle one meanwhile.
            let waited = waits.elapsed();
            if fault.is_of_program() {
                self.proc.counters.waited_ns.fetch_add(waited.as_nanos() as u64, Relaxed);
            }
            self.counted += waited;
            // What it has becomes free only when this thread goes.
            if self.proc.uffd.gone() {
                return Err(End::Gone);
            }
            // Another process has its memory (vfork), and nothing is evicted from it any more.
            if self.proc.dead.load(Relaxed) {
                return Ok(true);
            }
            let (readable, _) = poll2(self.proc.uffd.as_raw_fd(), -1, 0);
            if readable {
                self.drain(more)?;
            }
        }
        Ok(false)
    }
}
