//! Eviction from stopped programs.
//!
//! A signal that stops a process stops its stub thread as well, so a batch gets no answer. A thread
//! of the pager then traces that one thread and lets it run, until the process goes on or ends. If
//! the pager may not trace it, or a debugger traces the stub thread, the memory of the process
//! stays.

use crate::proc::Proc;
use crate::state::Shared;
use memfit_os::inject;
use memfit_os::procfs::{self, Hold};
use std::cell::Cell;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two checks whether the process is still stopped.
const POLL: Duration = Duration::from_millis(20);

/// A batch gets no answer, and the process is stopped: lets its stub run.
pub fn run_stub(shared: &Arc<Shared>, proc: &Arc<Proc>) {
    let Some(identity) = proc.identity.get() else { return };
    let pid = identity.pid;
    if proc.stub_runs.swap(true, SeqCst) {
        return;
    }
    let (shared, tracer_of) = (Arc::clone(shared), Arc::clone(proc));
    let tid = identity.tid;
    let body = move || {
        let polled = Cell::new(Instant::now());
        let stopped = || {
            if polled.get().elapsed() >= POLL {
                polled.set(Instant::now());
                return procfs::hold(pid) == Some(Hold::Stopped);
            }
            true
        };
        let wanted = || !shared.ending.load(Relaxed) && !tracer_of.dead.load(Relaxed) && stopped();
        if let Some(task) = procfs::task(pid, tid) {
            // On failure the stub stays stopped; reclaim tries again with the batch.
            let _ = inject::let_run(task, wanted);
        }
        tracer_of.stub_runs.store(false, SeqCst);
    };
    if std::thread::Builder::new().name("tracer".into()).stack_size(128 << 10).spawn(body).is_err() {
        proc.stub_runs.store(false, SeqCst);
    }
}
