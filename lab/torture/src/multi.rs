//! The supervisor of several processes: starts, stops, kills and restarts workers, and collects
//! their exit statuses.

use crate::opts::Opts;
use crate::report::{EXIT_BROKEN, EXIT_MISMATCH, EXIT_OK, EXIT_STALL};
use crate::rng::{mix2, Rng};
use crate::status::Status;
use crate::sys;
use crate::watchdog::{report_hang, Watchdog};
use crate::worker::{EXIT_AGAIN, REQUESTS};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

struct Worker {
    child: Child,
    watchdog: Watchdog,
    /// SIGKILL was sent, and it has not ended yet.
    killed: bool,
    /// Time at which to continue it, if it is stopped.
    resume_at: u64,
    finished: bool,
}

/// The supervisor's state.
struct Supervisor<'a> {
    opts: &'a Opts,
    status: &'static Status,
    status_fd: i32,
    workers: Vec<Worker>,
    rng: Rng,
    next_stop: u64,
    next_exit: u64,
}

const MS: u64 = 1_000_000;

/// Path of the program's own file; the link in /proc if the file has no name any more.
pub fn own_path() -> PathBuf {
    std::env::current_exe().ok().filter(|p| p.exists()).unwrap_or_else(|| "/proc/self/exe".into())
}

fn start(opts: &Opts, index: usize, status_fd: i32) -> Result<Worker, String> {
    let child = Command::new(own_path())
        .args(std::env::args_os().skip(1))
        .arg(format!("--worker={index}"))
        .arg(format!("--status-fd={status_fd}"))
        .spawn()
        .map_err(|e| format!("cannot start a worker: {e}"))?;
    let watchdog = Watchdog::new(opts.stall, opts.threads);
    Ok(Worker { child, watchdog, killed: false, resume_at: 0, finished: false })
}

impl Worker {
    fn signal(&self, signal: i32) {
        // SAFETY: our own child, not yet waited for, so its pid is not reused.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }
}

impl Supervisor<'_> {
    /// Whether workers may still be disturbed: near the deadline they may not, so that they finish
    /// in time.
    fn may_disturb(&self, now: u64) -> bool {
        let deadline = self.status.deadline_ns.load(SeqCst);
        self.opts.ops.is_some() || now + 300 * MS < deadline
    }

    /// A worker that runs and is not about to end; a stopped one only if `stopped`.
    fn pick(&mut self, stopped: bool) -> Option<usize> {
        let n = self.workers.len();
        let start = self.rng.below(n);
        let fits = |w: &Worker| !w.finished && !w.killed && (stopped || w.resume_at == 0);
        (0..n).map(|i| (start + i) % n).find(|&i| fits(&self.workers[i]))
    }

    fn resume(&mut self, now: u64) {
        for worker in self.workers.iter_mut().filter(|w| w.resume_at != 0 && w.resume_at <= now) {
            worker.signal(libc::SIGCONT);
            worker.resume_at = 0;
            worker.watchdog.forgive();
        }
    }

    fn stop_one(&mut self, now: u64) {
        self.next_stop = now + self.rng.range(50, 500) as u64 * MS;
        if let Some(i) = self.pick(false) {
            self.workers[i].signal(libc::SIGSTOP);
            self.workers[i].resume_at = now + self.rng.range(50, 500) as u64 * MS;
            self.status.stops.fetch_add(1, SeqCst);
        }
    }

    fn end_one(&mut self, now: u64) {
        self.next_exit = now + self.rng.range(100, 1500) as u64 * MS;
        let Some(i) = self.pick(true) else { return };
        let (signal, counter) = match self.rng.below(3) {
            0 => (libc::SIGKILL, &self.status.kills),
            1 => (libc::SIGUSR1, &self.status.execs),
            _ => (libc::SIGUSR2, &self.status.exits),
        };
        counter.fetch_add(1, SeqCst);
        self.workers[i].killed = signal == libc::SIGKILL;
        self.workers[i].signal(signal);
        self.workers[i].watchdog.forgive();
    }

    /// Handles the end of a worker: `Some` exit status to leave with, or `None` to go on. Restarts
    /// a worker whose end the supervisor caused.
    fn ended(&mut self, i: usize, ended: ExitStatus) -> Result<Option<i32>, String> {
        let worker = &mut self.workers[i];
        match (ended.code(), ended.signal()) {
            (Some(EXIT_OK), _) => worker.finished = true,
            (Some(EXIT_AGAIN), _) => *worker = start(self.opts, i, self.status_fd)?,
            (_, Some(libc::SIGKILL)) if worker.killed => *worker = start(self.opts, i, self.status_fd)?,
            (Some(code), _) => return Ok(Some(code)),
            (None, signal) => {
                eprintln!("torture: FAILED: process {i} was killed by signal {}", signal.unwrap_or(0));
                return Ok(Some(EXIT_BROKEN));
            }
        }
        Ok(None)
    }

    fn collect(&mut self) -> Result<Option<i32>, String> {
        for i in 0..self.workers.len() {
            if self.workers[i].finished {
                continue;
            }
            let ended = self.workers[i].child.try_wait().map_err(|e| format!("wait: {e}"))?;
            if let Some(code) = ended.map(|e| self.ended(i, e)).transpose()?.flatten() {
                return Ok(Some(code));
            }
        }
        Ok(self.workers.iter().all(|w| w.finished).then_some(EXIT_OK))
    }

    fn check_hangs(&mut self) -> Option<i32> {
        for (i, worker) in self.workers.iter_mut().enumerate().filter(|(_, w)| !w.finished && w.resume_at == 0) {
            let process = &self.status.processes[i];
            if let Some(thread) = worker.watchdog.hung(process) {
                report_hang(worker.child.id(), i, thread, &process.threads[thread]);
                return Some(EXIT_STALL);
            }
        }
        None
    }

    fn work(&mut self) -> Result<i32, String> {
        loop {
            std::thread::sleep(Duration::from_millis(10));
            let now = sys::now_ns();
            self.resume(now);
            if let Some(code) = self.collect()? {
                return Ok(code);
            }
            if let Some(code) = self.check_hangs() {
                return Ok(code);
            }
            if self.opts.stop_cont && now >= self.next_stop && self.may_disturb(now) {
                self.stop_one(now);
            }
            if self.opts.exits && now >= self.next_exit && self.may_disturb(now) {
                self.end_one(now);
            }
        }
    }

    fn kill_all(&mut self) {
        for worker in self.workers.iter_mut().filter(|w| !w.finished) {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

/// Runs all workers to the end; returns the exit status.
pub fn supervise(opts: &Opts, status: &'static Status, status_fd: i32) -> i32 {
    sys::hold_signals(&REQUESTS, true); // Workers inherit this.
    let rng = Rng::new(mix2(opts.seed, 7777));
    let (next_stop, next_exit) = (sys::now_ns() + 100 * MS, sys::now_ns() + 200 * MS);
    let mut all = Supervisor { opts, status, status_fd, workers: Vec::new(), rng, next_stop, next_exit };
    let result = (0..opts.processes)
        .try_for_each(|i| start(opts, i, status_fd).map(|w| all.workers.push(w)))
        .and_then(|()| all.work());
    all.kill_all();
    let code = result.unwrap_or_else(|message| {
        eprintln!("torture: {message}");
        EXIT_BROKEN
    });
    // A forked child may have failed after its parent was killed.
    if code == EXIT_OK && status.errors.load(SeqCst) > 0 {
        return EXIT_MISMATCH;
    }
    code
}
