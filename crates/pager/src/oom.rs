//! What is done when the programs do not fit: the tree is far over its budget, and neither the pool
//! nor the swap tier takes a page. `--on-full` chooses. Only processes in the background are
//! stopped or killed, never the command itself, and the core names the one
//! ([`Core::pick_oom_victim`]). Each act is told to the user, with the numbers that led to it.
//!
//! [`Core::pick_oom_victim`]: memfit_core::Core::pick_oom_victim

use crate::config::OnFull;
use crate::proc::Proc;
use crate::shortage::{self, Tier};
use crate::state::Shared;
use memfit_core::{OomVictim, ProcId, PAGE_BYTES};
use memfit_os::process::PidFd;
use memfit_os::{procfs, proctree};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Nobody else is chosen while a process may still be ending.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// Nor this long after one has ended: the monitor measures the tree meanwhile.
const MEASURED_WITHIN: Duration = Duration::from_millis(200);
/// While a process is stopped, the next one is not before the tree has grown by this part of its
/// budget.
const GROWN_PART: u64 = 20;
/// A process with less than this part of the budget is not worth it.
const WORTH_PART: u64 = 64;
/// Faults wait for so long at the most until a process is stopped or killed: longer than it takes
/// to choose it, and to measure the tree after one before it has ended.
const HELD_FOR: Duration = Duration::from_secs(1);
/// A stopped process goes on after this time at the latest: others may wait for it.
const STOPPED_FOR: Duration = Duration::from_secs(60);

/// What was done for lack of room.
pub struct Oom {
    on_full: OnFull,
    /// A process that ends, and since when. Its memory must not wait for the next act.
    ending: Option<(Weak<Proc>, Instant)>,
    /// Nothing is done before this time.
    not_before: Option<Instant>,
    stopped: Vec<Stopped>,
    /// Processes that were stopped and go on; the core protects them until there is room.
    waited: Vec<Arc<Proc>>,
    /// How far the tree was over its budget when a process was stopped last, bytes.
    stopped_at: u64,
    /// Nothing more can be done.
    given_up: bool,
    /// There was nobody in the background, and no room since.
    nobody: bool,
    /// Since when the tree is so far over its budget that somebody is chosen; until there is room,
    /// or a process has ended.
    far_since: Option<Instant>,
}

struct Stopped {
    proc: Arc<Proc>,
    process: PidFd,
    since: Instant,
}

/// A process that can be stopped or killed.
struct Choice {
    proc: Arc<Proc>,
    process: PidFd,
    /// Its name and pid.
    title: String,
    victim: OomVictim,
}

/// What was found in the background.
enum Found {
    One(Choice),
    /// A process that ends by itself; `None` if it is about to leave the core.
    Ending(Option<Weak<Proc>>),
    Nobody,
}

impl Oom {
    /// Nothing was done yet.
    pub fn new(on_full: OnFull) -> Oom {
        Oom {
            on_full,
            ending: None,
            not_before: None,
            stopped: Vec::new(),
            waited: Vec::new(),
            stopped_at: 0,
            given_up: false,
            nobody: false,
            far_since: None,
        }
    }

    /// The tree is `over` bytes over its budget.
    pub fn act(&mut self, shared: &Shared, over: u64, tier: &Tier) {
        let budget = shared.budget.sizes.budget;
        // What is stopped gives nothing, but no longer grows.
        let held = !self.stopped.is_empty() && over < self.stopped_at + budget / GROWN_PART;
        if self.given_up || held || self.waits() {
            return;
        }
        let why = shortage::hopeless(budget, over, tier);
        let done = match self.on_full {
            OnFull::Fail => None,
            OnFull::Reclaim => {
                self.given_up = true;
                Some("goes on over the budget".into())
            }
            OnFull::Stop | OnFull::Kill => match find(shared, self.on_full) {
                Found::One(choice) => self.stop_or_kill(shared, choice, over),
                Found::Ending(Some(proc)) => return self.ending = Some((proc, Instant::now())),
                Found::Ending(None) => return self.not_before = Some(Instant::now() + MEASURED_WITHIN),
                // Perhaps somebody goes to the background in time.
                Found::Nobody if !shared.budget.sizes.ends(over) => return self.nobody = true,
                Found::Nobody => None,
            },
        };
        match (done, self.on_full) {
            (Some(done), _) => return shared.outbox.announce(format!("out of memory: {why}; {done}")),
            (None, OnFull::Stop | OnFull::Kill) => {
                let none = "there is no process in the background that may be stopped or killed: see memfit bg, or \
                            --background";
                shared.fatal(format!("out of memory: {why}; {none}"));
            }
            (None, _) => shared.fatal(format!("out of memory: {why}")),
        }
        self.given_up = true;
    }

    /// Whether faults wait while the tree is so far over its budget that a process is to be stopped
    /// or killed, although reclaim gains nothing. Otherwise programs would grow on until the
    /// process has ended. `far`: it is.
    pub fn holds(&mut self, far: bool) -> bool {
        if far {
            self.far_since.get_or_insert_with(Instant::now);
        }
        let waited = self.far_since.is_some_and(|since| since.elapsed() > HELD_FOR);
        matches!(self.on_full, OnFull::Stop | OnFull::Kill) && !self.nobody && !self.given_up && !waited
    }

    /// Whether a process may still be ending, or the tree was not measured since.
    fn waits(&mut self) -> bool {
        let Some((proc, since)) = &self.ending else { return self.not_before.is_some_and(|at| Instant::now() < at) };
        let gone = proc.upgrade().is_none_or(|proc| proc.removed.load(Relaxed));
        if gone || since.elapsed() > ENDS_WITHIN {
            self.ending = None;
            self.far_since = None;
            self.not_before = Some(Instant::now() + MEASURED_WITHIN);
        }
        true
    }

    /// What was done.
    fn stop_or_kill(&mut self, shared: &Shared, choice: Choice, over: u64) -> Option<String> {
        let Choice { proc, process, title, victim } = choice;
        let (verbs, signal, counter) = match self.on_full {
            OnFull::Stop => (("stopped", "stop"), libc::SIGSTOP, &shared.meters.stopped),
            _ => (("killed", "kill"), libc::SIGKILL, &shared.meters.killed),
        };
        let sent = process.signal(signal);
        if sent.is_ok() {
            counter.fetch_add(1, Relaxed);
            match self.on_full {
                OnFull::Stop => {
                    self.stopped_at = over;
                    self.stopped.push(Stopped { proc, process, since: Instant::now() });
                }
                _ => self.ending = Some((Arc::downgrade(&proc), Instant::now())),
            }
        }
        Some(told(verbs, &title, victim, sent))
    }

    /// Lets a stopped process go on: one that is in the foreground now or has waited long, or the
    /// one that was stopped first if there is `room`. One that has only waited long is not stopped
    /// again before there was room.
    pub fn go_on(&mut self, shared: &Shared, room: bool) {
        if room {
            (self.nobody, self.far_since) = (false, None);
        }
        if self.stopped.is_empty() && self.waited.is_empty() {
            return;
        }
        let mut state = shared.lock();
        let gone = |proc: &Proc| proc.removed.load(Relaxed);
        if room {
            for proc in self.waited.drain(..).filter(|proc| !gone(proc)) {
                state.core.protect(proc.id, false);
            }
        }
        let goes = |one: &Stopped| {
            gone(&one.proc) || !state.core.is_background(one.proc.id) || one.since.elapsed() > STOPPED_FOR
        };
        let goes = self.stopped.iter().position(goes).or((room && !self.stopped.is_empty()).then_some(0));
        drop(state);
        if let Some(i) = goes {
            let Stopped { proc, process, .. } = self.stopped.remove(i);
            self.waited.push(proc);
            // It fails for one that has ended.
            let _ = process.signal(libc::SIGCONT);
        }
    }

    /// Lets all of them go on.
    pub fn end(&mut self, shared: &Shared) {
        while !self.stopped.is_empty() {
            self.go_on(shared, true);
        }
    }
}

/// The core's choice among the processes that may be stopped or killed. It is protected from then
/// on, as those are that may not.
fn find(shared: &Shared, on_full: OnFull) -> Found {
    let procs = shared.procs.lock().clone();
    let least = (shared.budget.sizes.budget / PAGE_BYTES / WORTH_PART) as u32;
    loop {
        let mut state = shared.lock();
        let Some(victim) = state.core.pick_oom_victim(least) else { return Found::Nobody };
        let of = |id: ProcId| procs.iter().find(|proc| proc.id == id && !proc.removed.load(Relaxed)).cloned();
        let proc = of(victim.proc);
        state.core.protect(victim.proc, true);
        drop(state);
        let Some(proc) = proc else { return Found::Ending(None) };
        let Some(pid) = proc.pid() else { continue };
        let process = PidFd::open(pid);
        // Its pid could be another's once it has ended.
        if proc.dead.load(Relaxed) || proc.uffd.gone() {
            return Found::Ending(Some(Arc::downgrade(&proc)));
        }
        let title = format!("{} ({pid})", procfs::comm(pid).unwrap_or_default());
        if let (Ok(process), true) = (process, may(shared, on_full, pid)) {
            return Found::One(Choice { proc, process, title, victim });
        }
    }
}

/// Whether a process may be stopped or killed. Not the command: its end ends the run, and the shell
/// above the launcher would take its stop for job control.
fn may(shared: &Shared, on_full: OnFull, pid: i32) -> bool {
    let named = procfs::comm(pid).is_some_and(|comm| shared.is_protected(&comm));
    // What somebody else has stopped does not grow, and is not ours to continue.
    let stopped = || proctree::read_stat(pid).is_some_and(|stat| stat.is_stopped());
    pid != shared.command.load(Relaxed) && !named && (on_full != OnFull::Stop || !stopped())
}

fn told((done, verb): (&str, &str), title: &str, victim: OomVictim, sent: io::Result<()>) -> String {
    let mib = |pages: u64| (pages * PAGE_BYTES) >> 20;
    let (inside, outside) = (mib(victim.present_pages), mib(victim.out_pages));
    let which =
        format!("{title}, the largest process in the background: {inside} MiB in memory, {outside} MiB outside of it");
    match sent {
        Ok(()) => format!("{done} {which}"),
        Err(error) => format!("could not {verb} {which}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_wait_for_a_kill_but_not_for_ever() {
        let mut kill = Oom::new(OnFull::Kill);
        assert!(kill.holds(false), "from there on they wait");
        assert!(kill.holds(true));
        kill.far_since = Some(Instant::now().checked_sub(HELD_FOR * 2).unwrap());
        assert!(!kill.holds(true));
        assert!(!kill.holds(false) && !kill.holds(true), "nothing has changed");
        kill.far_since = None;
        assert!(kill.holds(true));
        kill.nobody = true;
        assert!(!kill.holds(true), "nobody can be killed");
        assert!(![OnFull::Fail, OnFull::Reclaim].map(|on_full| Oom::new(on_full).holds(true)).contains(&true));
    }
}
