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
/// Nor before so many samples of the tree have ended after that: the first may have begun before.
const SAMPLES: u64 = 2;
/// While a process is stopped, the next one is not before the tree has grown by this part of its
/// budget.
const GROWN_PART: u64 = 20;
/// A process with less than this part of the budget is not worth it.
const WORTH_PART: u64 = 64;
/// Faults wait for so long at the most for each process to be stopped or killed: longer than it
/// takes to choose it.
const HELD_FOR: Duration = Duration::from_secs(1);
/// A stopped process goes on after this time at the latest: others may wait for it.
const STOPPED_FOR: Duration = Duration::from_secs(60);

/// What was done for lack of room.
pub struct Oom {
    on_full: OnFull,
    /// A process that ends, and since when. Its memory must not wait for the next act.
    ending: Option<(Weak<Proc>, Instant)>,
    /// Nothing is done before so many samples of the tree.
    not_before: u64,
    stopped: Vec<Stopped>,
    /// Processes that were stopped and go on; the core protects them until there is room.
    waited: Vec<Arc<Proc>>,
    /// How far the tree was over its budget when a process was stopped last, bytes.
    stopped_at: u64,
    /// Nothing more can be done.
    given_up: bool,
    /// There was nobody in the background, and no room since.
    nobody: bool,
    /// Since when faults have waited for the next process to go, and when they had to last.
    held: Option<(Instant, Instant)>,
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
            not_before: 0,
            stopped: Vec::new(),
            waited: Vec::new(),
            stopped_at: 0,
            given_up: false,
            nobody: false,
            held: None,
        }
    }

    /// The tree is `over` bytes over its budget.
    pub fn act(&mut self, shared: &Shared, over: u64, tier: &Tier) {
        if self.given_up || self.grows_less(shared, over) || self.waits(shared) {
            return;
        }
        let why = shortage::hopeless(shared.budget.sizes.budget, over, tier);
        let done = match self.on_full {
            OnFull::Fail => None,
            OnFull::Reclaim => {
                self.given_up = true;
                Some("goes on over the budget".into())
            }
            OnFull::Stop | OnFull::Kill => match find(shared, self.on_full) {
                // The next act looks again.
                Found::One(choice) if came_back(shared, &choice.proc) => return,
                Found::One(choice) => {
                    (self.nobody, self.held) = (false, None);
                    self.stop_or_kill(shared, choice, over)
                }
                Found::Ending(Some(proc)) => return self.ending = Some((proc, Instant::now())),
                Found::Ending(None) => return self.not_before = shared.budget.samples.load(Relaxed) + SAMPLES,
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
    /// or killed. Otherwise programs would grow on until it has ended. The swap tier takes nothing.
    /// `hopeless`: the tree is so far over, and reclaim gains nothing. `over`: bytes over the
    /// budget.
    pub fn holds(&mut self, shared: &Shared, hopeless: bool, over: u64) -> bool {
        self.see_end(shared);
        let goes = matches!(self.on_full, OnFull::Stop | OnFull::Kill) && !self.nobody && !self.given_up;
        goes && !self.grows_less(shared, over) && self.may_hold(hopeless, Instant::now())
    }

    /// A wait that had to be at times counts as one.
    fn may_hold(&mut self, hopeless: bool, now: Instant) -> bool {
        self.held = self.held.filter(|&(_, last)| now - last <= HELD_FOR);
        if hopeless {
            let (since, last) = self.held.get_or_insert((now, now));
            *last = now;
            return now - *since <= HELD_FOR;
        }
        self.held.is_none_or(|(since, _)| now - since <= HELD_FOR)
    }

    /// What is stopped gives nothing, but no longer grows.
    fn grows_less(&self, shared: &Shared, over: u64) -> bool {
        !self.stopped.is_empty() && over < self.stopped_at + shared.budget.sizes.budget / GROWN_PART
    }

    /// Notes that a process has ended.
    fn see_end(&mut self, shared: &Shared) {
        let Some((proc, since)) = &self.ending else { return };
        let gone = proc.upgrade().is_none_or(|proc| proc.removed.load(Relaxed));
        if gone || since.elapsed() > ENDS_WITHIN {
            self.ending = None;
            self.held = None;
            self.not_before = shared.budget.samples.load(Relaxed) + SAMPLES;
        }
    }

    /// Whether a process may still be ending, or the tree was not measured since.
    fn waits(&mut self, shared: &Shared) -> bool {
        self.see_end(shared);
        self.ending.is_some() || shared.budget.samples.load(Relaxed) < self.not_before
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
            (self.nobody, self.held) = (false, None);
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
/// on.
fn find(shared: &Shared, on_full: OnFull) -> Found {
    let mut spared = Vec::new();
    let found = find_other(shared, on_full, &mut spared);
    let mut state = shared.lock();
    for proc in spared.iter().filter(|proc| !proc.removed.load(Relaxed)) {
        state.core.protect(proc.id, false);
    }
    found
}

/// `spared`: those that may not be stopped or killed now. They are protected meanwhile.
fn find_other(shared: &Shared, on_full: OnFull, spared: &mut Vec<Arc<Proc>>) -> Found {
    let least = (shared.budget.sizes.budget / PAGE_BYTES / WORTH_PART) as u32;
    loop {
        // All that the core can choose, which does not change meanwhile.
        let procs = shared.procs.lock();
        let mut state = shared.lock();
        let Some(victim) = state.core.pick_oom_victim(least) else { return Found::Nobody };
        let of = |id: ProcId| procs.iter().find(|proc| proc.id == id && !proc.removed.load(Relaxed)).cloned();
        let proc = of(victim.proc);
        state.core.protect(victim.proc, true);
        drop((state, procs));
        let Some(proc) = proc else { return Found::Ending(None) };
        let Some(pid) = proc.pid() else {
            spared.push(proc);
            continue;
        };
        let process = PidFd::open(pid);
        // Its pid could be another's once it has ended.
        if proc.dead.load(Relaxed) || proc.uffd.gone() {
            return Found::Ending(Some(Arc::downgrade(&proc)));
        }
        let title = format!("{} ({pid})", procfs::comm(pid).unwrap_or_default());
        match process {
            Ok(process) if may(shared, on_full, pid) => return Found::One(Choice { proc, process, title, victim }),
            _ => spared.push(proc),
        }
    }
}

/// Whether a process was brought to the foreground after it was chosen.
fn came_back(shared: &Shared, proc: &Proc) -> bool {
    let mut state = shared.lock();
    let came = !proc.removed.load(Relaxed) && !state.core.is_background(proc.id);
    if came {
        state.core.protect(proc.id, false);
    }
    came
}

/// Whether a process may be stopped or killed. Not the command: its end ends the run, and the shell
/// above the launcher would take its stop for job control.
fn may(shared: &Shared, on_full: OnFull, pid: i32) -> bool {
    // What somebody else has stopped does not grow, and is not ours to continue.
    let stopped = || proctree::read_stat(pid).is_some_and(|stat| stat.is_stopped());
    pid != shared.command.load(Relaxed) && !shared.is_protected(pid) && (on_full != OnFull::Stop || !stopped())
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
        let mut oom = Oom::new(OnFull::Kill);
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        assert!(oom.may_hold(false, at(0)), "from there on they wait");
        assert!([10, 600, 1009].map(|ms| oom.may_hold(true, at(ms))) == [true; 3]);
        assert!(!oom.may_hold(true, at(1011)));
        // Also when it was not hopeless for a moment.
        assert!(!oom.may_hold(false, at(1500)) && !oom.may_hold(true, at(1600)));
        assert!(oom.may_hold(false, at(2700)) && oom.may_hold(true, at(2710)), "the next time they wait again");
    }

    #[test]
    fn faults_wait_only_where_somebody_goes() {
        let shared = |on_full| Shared::new(memfit_core::scheme::Scheme::default(), 64 << 20, on_full, None).unwrap();
        for (on_full, waits) in
            [(OnFull::Fail, false), (OnFull::Reclaim, false), (OnFull::Stop, true), (OnFull::Kill, true)]
        {
            let shared = shared(on_full);
            let mut oom = Oom::new(on_full);
            assert_eq!(oom.holds(&shared, true, 4 << 20), waits, "{on_full:?}");
            oom.nobody = true;
            assert!(!oom.holds(&shared, true, 4 << 20), "{on_full:?}: nobody is in the background");
        }
        // Beyond 5 % of the budget a fault waits although reclaim is stuck.
        let shared = shared(OnFull::Kill);
        shared.budget.stuck.store(true, Relaxed);
        shared.budget.holds.store(true, Relaxed);
        for (over, waits) in [(0, false), (3 << 20, false), (4 << 20, true)] {
            shared.budget.unmanaged.store((64 << 20) + over, Relaxed);
            assert_eq!(shared.budget.is_short(1), waits, "{over} bytes over");
        }
        shared.budget.holds.store(false, Relaxed);
        assert!(!shared.budget.is_short(1));
    }

    #[test]
    fn nobody_else_goes_before_the_tree_is_measured() {
        let shared = Shared::new(memfit_core::scheme::Scheme::default(), 64 << 20, OnFull::Kill, None).unwrap();
        let mut oom = Oom::new(OnFull::Kill);
        assert!(!oom.waits(&shared));
        // A process that has ended.
        oom.ending = Some((Weak::new(), Instant::now()));
        let waits = [0, 1, 1].map(|samples| {
            shared.budget.samples.fetch_add(samples, Relaxed);
            oom.waits(&shared)
        });
        assert_eq!(waits, [true, true, false]);
    }
}
