//! Detects that a thread makes no progress, and reports where it hangs.

use crate::ops::OPS;
use crate::report::{RawOut, Who, EXIT_STALL};
use crate::status::{ProcessStatus, ThreadStatus};
use crate::sys;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

/// For each thread of a process its last beat, and the time at which it was seen.
pub struct Watchdog {
    seen: Vec<(u64, u64)>,
    limit_ns: u64,
}

impl Watchdog {
    /// A watchdog for `threads` threads.
    pub fn new(seconds: f64, threads: usize) -> Watchdog {
        Watchdog { seen: vec![(0, sys::now_ns()); threads], limit_ns: (seconds * 1e9) as u64 }
    }

    /// Restarts the time limit: time spent stopped or starting does not count.
    pub fn forgive(&mut self) {
        let now = sys::now_ns();
        self.seen.iter_mut().for_each(|s| s.1 = now);
    }

    /// A thread without progress for too long, if any.
    pub fn hung(&mut self, status: &ProcessStatus) -> Option<usize> {
        self.hung_at(sys::now_ns(), status)
    }

    fn hung_at(&mut self, now: u64, status: &ProcessStatus) -> Option<usize> {
        for (i, (beat, at)) in self.seen.iter_mut().enumerate() {
            let thread = &status.threads[i];
            let current = thread.beat.load(Relaxed);
            if current != *beat || thread.done.load(Relaxed) != 0 {
                (*beat, *at) = (current, now);
            }
            if now.saturating_sub(*at) > self.limit_ns {
                return Some(i);
            }
        }
        None
    }

    /// Ends the process with a report if a thread hangs.
    pub fn check(&mut self, status: &ProcessStatus, pid: u32, who: &Who) {
        if let Some(i) = self.hung(status) {
            report_hang(pid, who.process, i, &status.threads[i]);
            who.status.errors.fetch_add(1, Relaxed);
            let mut out = RawOut::new();
            let _ = who.status.write_json(&mut out, who.seed);
            out.flush(1);
            sys::exit_now(EXIT_STALL);
        }
    }
}

/// Prints where each thread of a process is.
pub fn report_hang(pid: u32, process: usize, i: usize, thread: &ThreadStatus) {
    let mut out = RawOut::new();
    let op = (thread.current.load(Relaxed) as usize).checked_sub(1).and_then(|op| OPS.get(op));
    let (name, ops) = (op.map_or("-", |o| o.name), thread.ops.load(Relaxed));
    let _ = writeln!(out, "torture: HANG: process {process} (pid {pid}) thread {i} after {ops} ops, in {name}");
    out.flush(2);
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return };
    for task in tasks.flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let status = read("status");
        let state = status.lines().find(|l| l.starts_with("State")).unwrap_or("");
        let (comm, wchan, syscall) = (read("comm"), read("wchan"), read("syscall"));
        let tid = task.file_name();
        let _ = writeln!(
            out,
            "  task {} {} {state} wchan {} syscall {}",
            tid.to_string_lossy(),
            comm.trim(),
            wchan.trim(),
            syscall.trim()
        );
        for line in read("stack").lines() {
            let _ = writeln!(out, "      {line}");
        }
        out.flush(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Status;

    #[test]
    fn a_thread_without_pulse_is_noticed() {
        let (status, _) = Status::create().unwrap();
        let process = &status.processes[0];
        let mut dog = Watchdog::new(600.0, 2);
        let start = sys::now_ns();
        let at = |seconds: u64| start + seconds * 1_000_000_000;
        process.threads[0].pulse();
        assert_eq!(dog.hung_at(at(400), process), None);
        process.threads[0].pulse();
        assert_eq!(dog.hung_at(at(700), process), Some(1));
        process.threads[1].done.store(1, Relaxed);
        assert_eq!(dog.hung_at(at(1400), process), Some(0));
        dog.forgive();
        assert_eq!(dog.hung(process), None);
    }
}
