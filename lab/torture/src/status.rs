//! Counters in shared memory. They survive death and exec of a worker, and show whether it makes
//! progress.

use crate::ops::{MAX_OPS, OPS};
use crate::sys::{self, Errno};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Most threads in a process.
pub const MAX_THREADS: usize = 32;
/// Most worker processes.
pub const MAX_PROCESSES: usize = 64;

/// Counters of one thread, which only this thread writes.
#[repr(C)]
pub struct ThreadStatus {
    /// Operations finished, over all lives of the process.
    pub ops: AtomicU64,
    /// Pages compared and found right.
    pub verified: AtomicU64,
    /// Counts progress, for the watchdog.
    pub beat: AtomicU64,
    /// Hash over the operations, to compare two executions with one seed.
    pub digest: AtomicU64,
    /// Number of operations of each kind.
    pub kinds: [AtomicU64; MAX_OPS],
    /// Number of operations that the kernel may refuse and has refused.
    pub refused: AtomicU64,
    /// 1 + index of the current operation.
    pub current: AtomicU32,
    /// 1 when the thread has finished.
    pub done: AtomicU32,
}

impl ThreadStatus {
    /// Reports progress.
    pub fn pulse(&self) {
        self.beat.fetch_add(1, Relaxed);
    }

    /// Counts `pages` pages as compared and right.
    pub fn add_verified(&self, pages: u64) {
        self.verified.fetch_add(pages, Relaxed);
        self.pulse();
    }
}

/// Counters of one worker process.
#[repr(C)]
pub struct ProcessStatus {
    /// Number of its starts, including exec of itself.
    pub lives: AtomicU32,
    /// Number of its child processes (fork, spawn).
    pub children: AtomicU32,
    /// Its threads.
    pub threads: [ThreadStatus; MAX_THREADS],
}

/// All counters.
#[repr(C)]
pub struct Status {
    /// Monotonic time of the start, ns.
    pub start_ns: AtomicU64,
    /// Monotonic time of the end, ns; 0: none.
    pub deadline_ns: AtomicU64,
    /// Failures of any process.
    pub errors: AtomicU64,
    /// Number of processes killed and started again. Likewise told to exit, told to exec, stopped.
    pub kills: AtomicU32,
    /// See `kills`.
    pub exits: AtomicU32,
    /// See `kills`.
    pub execs: AtomicU32,
    /// See `kills`.
    pub stops: AtomicU32,
    /// The workers.
    pub processes: [ProcessStatus; MAX_PROCESSES],
}

impl Status {
    /// Maps new counters; also returns the descriptor with which a child can map them.
    pub fn create() -> Result<(&'static Status, i32), Errno> {
        // SAFETY: a constant name; no MFD_CLOEXEC, because it is meant to be inherited.
        let fd = unsafe { libc::memfd_create(c"status".as_ptr(), 0) };
        // SAFETY: plain call on our own descriptor.
        if fd < 0 || unsafe { libc::ftruncate(fd, size_of::<Status>() as i64) } != 0 {
            return Err(sys::errno());
        }
        Ok((Status::attach(fd)?, fd))
    }

    /// Maps inherited counters.
    pub fn attach(fd: i32) -> Result<&'static Status, Errno> {
        let len = size_of::<Status>();
        // SAFETY: a new shared mapping of a file of that size.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, sys::RW, libc::MAP_SHARED, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(sys::errno());
        }
        // SAFETY: never unmapped; page aligned; all fields are atomics, for which any bytes are
        // valid.
        Ok(unsafe { &*at.cast() })
    }

    /// Sum of a counter over all threads of all processes.
    pub fn sum(&self, field: impl Fn(&ThreadStatus) -> &AtomicU64) -> u64 {
        self.processes.iter().flat_map(|p| &p.threads).map(|t| field(t).load(Relaxed)).sum()
    }

    /// Hash over all threads' operations.
    pub fn digest(&self) -> u64 {
        self.processes.iter().flat_map(|p| &p.threads).fold(0, |h, t| h ^ t.digest.load(Relaxed))
    }

    /// Writes the result as one line of JSON.
    pub fn write_json(&self, out: &mut impl std::fmt::Write, seed: u64) -> std::fmt::Result {
        let seconds = (sys::now_ns() - self.start_ns.load(Relaxed)) as f64 / 1e9;
        let total = self.sum(|t| &t.ops);
        write!(out, "{{\"schema\":1,\"seed\":{seed},\"ops\":{{")?;
        let mut comma = "";
        for (i, op) in OPS.iter().enumerate() {
            let n = self.sum(|t| &t.kinds[i]);
            if n > 0 {
                write!(out, "{comma}\"{}\":{n}", op.name)?;
                comma = ",";
            }
        }
        write!(out, "}},\"total_ops\":{total},\"verified_pages\":{}", self.sum(|t| &t.verified))?;
        write!(out, ",\"refused\":{},\"errors\":{}", self.sum(|t| &t.refused), self.errors.load(Relaxed))?;
        write!(out, ",\"seconds\":{seconds:.3},\"digest\":\"{:016x}\"", self.digest())?;
        let [kills, exits, execs, stops] =
            [&self.kills, &self.exits, &self.execs, &self.stops].map(|n| n.load(Relaxed));
        writeln!(out, ",\"kills\":{kills},\"exits\":{exits},\"execs\":{execs},\"stops\":{stops}}}")
    }

    /// Writes the result as text.
    pub fn write_summary(&self, out: &mut impl std::fmt::Write) -> std::fmt::Result {
        let seconds = (sys::now_ns() - self.start_ns.load(Relaxed)) as f64 / 1e9;
        let total = self.sum(|t| &t.ops);
        let verified = self.sum(|t| &t.verified);
        write!(out, "torture: {total} ops in {seconds:.1} s ({:.0}/s)", total as f64 / seconds.max(1e-3))?;
        write!(out, ", {verified} pages verified, {} errors:", self.errors.load(Relaxed))?;
        for (i, op) in OPS.iter().enumerate() {
            let n = self.sum(|t| &t.kinds[i]);
            if n > 0 {
                write!(out, " {}={n}", op.name)?;
            }
        }
        writeln!(out)
    }
}
