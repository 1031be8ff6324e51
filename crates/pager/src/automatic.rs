//! Which processes are in the background without being told (`--background`): those that are not in
//! the foreground of their terminal, and those that have not used the CPU for a while.
//!
//! An order by `memfit bg` or `memfit fg` outweighs this for its process.

use crate::background::{self, By, FOREGROUND, TOLD_TO_WAIT};
use crate::clients::Client;
use crate::config::Automatic;
use crate::state::Shared;
use memfit_os::procfs;
use memfit_os::proctree::{self, ProcStat};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// A process that uses more than one part in this many of a CPU is not idle.
const BUSY_PART: u32 = 100;
/// Nor is one with more faults between two samples: it waits for its pages.
const BUSY_FAULTS: u64 = 8;

/// What was seen at the last sample.
pub struct UseSampler {
    which: Automatic,
    last: Option<Instant>,
    uses: HashMap<i32, Use>,
}

/// What a process has used.
#[derive(Debug, Clone, Copy)]
struct Use {
    /// CPU time of the program, without its stub.
    cpu: Duration,
    faults: u64,
    at: Instant,
    /// When it last was not idle.
    busy: Instant,
    /// Its stub thread.
    stub: Option<i32>,
}

impl Use {
    /// A process that is seen for the first time may have run just now.
    fn new(cpu: Duration, faults: u64, now: Instant) -> Use {
        Use { cpu, faults, at: now, busy: now, stub: None }
    }

    /// For how long it has been idle.
    fn idle(&mut self, cpu: Duration, faults: u64, now: Instant) -> Duration {
        let ran = cpu.saturating_sub(self.cpu) > (now - self.at) / BUSY_PART;
        if ran || faults.saturating_sub(self.faults) > BUSY_FAULTS {
            self.busy = now;
        }
        (self.cpu, self.faults, self.at) = (cpu, faults, now);
        now - self.busy
    }
}

impl UseSampler {
    /// Nothing was seen yet.
    pub fn new(which: Automatic) -> UseSampler {
        UseSampler { which, last: None, uses: HashMap::new() }
    }

    /// Whether it is time for a sample, which looks up files of processes.
    pub fn is_due(&self) -> bool {
        let off = !self.which.jobs && self.which.idle.is_none();
        !off && self.last.is_none_or(|last| last.elapsed() >= SAMPLE_EVERY)
    }

    /// Samples the processes, if it is time, and moves them to the background and back.
    pub fn sample(&mut self, shared: &Shared, clients: &[Arc<Client>]) {
        if !self.is_due() {
            return;
        }
        let now = Instant::now();
        self.last = Some(now);
        let living: Vec<&Arc<Client>> = clients.iter().filter(|client| !client.gone.load(Relaxed)).collect();
        self.uses.retain(|pid, _| living.iter().any(|client| client.pid == *pid));
        let stats: HashMap<i32, ProcStat> = match self.which.jobs {
            true => living.iter().filter_map(|client| Some((client.pid, proctree::read_stat(client.pid)?))).collect(),
            false => HashMap::new(),
        };
        let jobs = Jobs::of(&stats, proctree::read_stat);
        for client in living {
            let job = stats.get(&client.pid).is_some_and(|stat| jobs.is_background(stat));
            let idle = self.which.idle.is_some_and(|least| self.idle(client, now) >= least);
            match (job || idle, client.standing.load(Relaxed) != FOREGROUND) {
                (true, false) => background::leave(shared, client, TOLD_TO_WAIT, By::Rule),
                (false, true) => background::come_back(shared, client, By::Rule),
                _ => {}
            }
        }
    }

    fn idle(&mut self, client: &Client, now: Instant) -> Duration {
        let Some(all) = procfs::cpu_clock(client.pid) else { return Duration::ZERO };
        let proc = client.proc.lock().clone();
        let faults = proc.as_ref().map_or(0, |proc| proc.counters.faults.load(Relaxed));
        let used = self.uses.entry(client.pid).or_insert_with(|| Use::new(all, faults, now));
        if proc.as_ref().is_some_and(|proc| proc.held.load(Relaxed)) {
            // It would work, but must wait for its turn.
            used.busy = now;
        }
        // The stub works for the pager.
        let time = |tid: i32| procfs::cpu_time(client.pid, tid);
        if used.stub.and_then(time).is_none() {
            used.stub = proc.and_then(|proc| proc.stub_thread());
        }
        used.idle(all.saturating_sub(used.stub.and_then(time).unwrap_or_default()), faults, now)
    }
}

/// What is in the foreground of terminals.
#[derive(Debug, Default)]
struct Jobs {
    /// Terminals with a process of the tree in the foreground.
    terminals: HashSet<i32>,
    /// Process groups of the ancestors of such processes on the same terminal.
    waiting: HashSet<i32>,
}

impl Jobs {
    /// `read`: for processes of which the tree has no stub.
    fn of(stats: &HashMap<i32, ProcStat>, read: impl Fn(i32) -> Option<ProcStat>) -> Jobs {
        let (mut jobs, mut ancestors) = (Jobs::default(), HashSet::new());
        for stat in stats.values().filter(|stat| stat.in_foreground()) {
            jobs.terminals.insert(stat.tty_nr);
            let mut pid = stat.ppid;
            while ancestors.insert(pid) {
                let parent = stats.get(&pid).cloned().or_else(|| read(pid));
                let Some(parent) = parent.filter(|parent| parent.tty_nr == stat.tty_nr) else { break };
                jobs.waiting.insert(parent.pgrp);
                pid = parent.ppid;
            }
        }
        jobs
    }

    /// A job that is not in the foreground of its terminal, while another one of the tree is: where
    /// none is, nobody would gain by it. A shell that leads its session is no job. Nor is the job
    /// of an ancestor of what is in the foreground: another shell, or a debugger, waits for its
    /// child, and the rest of its pipeline shows what both print.
    fn is_background(&self, stat: &ProcStat) -> bool {
        let is_job = stat.tty_nr != 0 && stat.session != stat.pid && !self.waiting.contains(&stat.pgrp);
        is_job && !stat.in_foreground() && self.terminals.contains(&stat.tty_nr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Of a process with this session, terminal, process group and foreground group.
    fn stat(pid: i32, ppid: i32, [session, tty_nr, pgrp, tpgid]: [i32; 4]) -> ProcStat {
        let text = format!("{pid} (job) S {ppid} {pgrp} {session} {tty_nr} {tpgid} 0 {}", "0 ".repeat(14));
        proctree::parse_stat(&text).unwrap()
    }

    #[test]
    fn who_runs_or_waits_for_pages_is_not_idle() {
        let start = Instant::now();
        let mut seen = Use::new(MS * 70, 5, start);
        let mut sample = |cpu_ms, faults, ms| seen.idle(MS * cpu_ms, faults, start + MS * ms).as_millis();
        assert_eq!(sample(72, 9, 500), 500, "2 ms of 500, 4 faults");
        assert_eq!(sample(74, 9, 1000), 1000);
        assert_eq!(sample(80, 9, 1500), 0, "6 ms of 500");
        assert_eq!(sample(80, 9, 2500), 1000);
        assert_eq!(sample(80, 18, 3000), 0, "it waits for its pages");
        assert_eq!(sample(0, 0, 3500), 500, "the pid is another's");
    }

    #[test]
    fn jobs_are_in_the_background_of_others_of_the_tree() {
        let of_session = |session, tty_nr, pgrp, tpgid| stat(7, 1, [session, tty_nr, pgrp, tpgid]);
        let stat = |tty_nr, pgrp, tpgid| of_session(1, tty_nr, pgrp, tpgid);
        let shows = |of: ProcStat, ttys: &[i32]| {
            Jobs { terminals: ttys.iter().copied().collect(), ..Jobs::default() }.is_background(&of)
        };
        assert!(shows(stat(5, 20, 30), &[5]));
        assert!(!shows(stat(5, 30, 30), &[5]), "it is in the foreground");
        assert!(!shows(stat(5, 20, 30), &[6]), "what is in the foreground is none of the tree");
        assert!(!shows(stat(0, 20, -1), &[5]), "it has no terminal");
        assert!(!shows(of_session(7, 5, 7, 30), &[5]), "it is the shell");
    }

    #[test]
    fn who_waits_for_a_child_in_the_foreground_is_no_background_job() {
        // A shell of another session, one in it, what that one runs, of which the tree has no
        // stub, the rest of its pipeline, and the child of it in the foreground; and a job.
        let (outer, inner, runs) =
            (stat(9, 1, [9, 6, 9, 9]), stat(10, 9, [1, 5, 10, 30]), stat(20, 10, [1, 5, 20, 30]));
        let tee = stat(21, 10, [1, 5, 20, 30]);
        let (front, job) = (stat(30, 20, [1, 5, 30, 30]), stat(40, 10, [1, 5, 40, 30]));
        let stats = [&inner, &tee, &front, &job].map(|stat| (stat.pid, stat.clone())).into();
        let jobs = Jobs::of(&stats, |pid| [&outer, &runs].into_iter().find(|stat| stat.pid == pid).cloned());
        assert_eq!((&jobs.terminals, &jobs.waiting), (&[5].into(), &[10, 20].into()));
        assert_eq!([&inner, &tee, &job].map(|stat| jobs.is_background(stat)), [false, false, true]);
        let jobs = Jobs::of(&stats, |_| None);
        assert_eq!(
            [&inner, &job, &front].map(|stat| jobs.is_background(stat)),
            [true, true, false],
            "no parent is known"
        );
        let stats = [&inner, &runs, &front, &job].map(|stat| (stat.pid, stat.clone())).into();
        let jobs = Jobs::of(&stats, |_| None);
        assert_eq!([&inner, &runs, &job].map(|stat| jobs.is_background(stat)), [false, false, true]);
    }
}
