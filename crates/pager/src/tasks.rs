//! Whether a process can have new threads.
//!
//! The monitor must find each new thread: what the kernel touches at a thread's exit stays in
//! memory (`adopt`). To list the threads of a process takes 20 us, which is much for each of many
//! processes that run. But a new thread takes a new task id, so no process has a new thread
//! while the machine has made no task.

use crate::proc::Proc;
use memfit_os::procfs;
use std::time::{Duration, Instant};

/// The kernel gives a task its id before others can list it. So lists count as complete only when
/// no task has been made for so long.
const STEADY_AFTER: Duration = Duration::from_millis(100);
/// A checkpoint that is restored chooses its task ids. So the threads of a process that runs are
/// listed again after this time in any case.
const LIST_AGAIN: Duration = Duration::from_millis(250);

/// The newest task id of the machine, as far as the pager's pid namespace shows it.
#[derive(Debug, Default)]
pub struct NewestTask {
    /// False if `/proc/loadavg` is not the kernel's, but that of a container's file system, which
    /// is seconds old. Tried before the first read.
    is_told: Option<bool>,
    read: Option<Instant>,
    id: Option<u64>,
    /// When it had this value first.
    since: Option<Instant>,
}

impl NewestTask {
    /// Its value, if all tasks that have ids can be listed. It is not older than `moment`, so it
    /// has the id of any thread that was made before.
    pub fn steady(&mut self, moment: Instant) -> Option<u64> {
        let now = Instant::now();
        if self.read.is_none_or(|read| read < moment) {
            let is_told = *self.is_told.get_or_insert_with(thread_changes_id);
            self.see(procfs::newest_task().filter(|_| is_told), now);
        }
        self.steady_at(now)
    }

    fn see(&mut self, id: Option<u64>, now: Instant) {
        if id != self.id {
            (self.id, self.since) = (id, Some(now));
        }
        self.read = Some(now);
    }

    fn steady_at(&self, now: Instant) -> Option<u64> {
        self.id.filter(|_| self.since.is_some_and(|since| now.duration_since(since) >= STEADY_AFTER))
    }
}

/// Makes a thread, to see whether the newest task changes.
fn thread_changes_id() -> bool {
    let before = procfs::newest_task();
    let made = std::thread::Builder::new().spawn(|| {}).map(std::thread::JoinHandle::join).is_ok();
    made && procfs::newest_task() != before
}

/// The threads of a process, when they were listed last.
#[derive(Debug, Clone, Copy)]
pub struct Threads {
    /// A number that changes with the set of threads, and when one of them sets its robust list:
    /// only that shows where its descriptor is.
    set: u64,
    listed: Instant,
    /// The newest task of that moment, if all threads were listed and each had its robust list.
    newest: Option<u64>,
}

impl Threads {
    /// Lists them. `steady` is [`NewestTask::steady`], from before the list is read.
    pub fn list(proc: &Proc, steady: Option<u64>, now: Instant) -> Threads {
        let (tasks, all) = proc.pid().map(procfs::all_tasks).unwrap_or_default();
        let (mut set, mut without) = (0, 0);
        for tid in tasks {
            let list = procfs::robust_list(tid);
            set ^= mix(mix(tid as u64 + 1) ^ list.unwrap_or(0));
            without += u32::from(list.is_none());
        }
        // The stub's thread never has one.
        Threads { set, listed: now, newest: steady.filter(|_| all && without <= 1) }
    }

    /// Whether the process can have other threads now.
    pub fn may_differ(&self, steady: Option<u64>, now: Instant) -> bool {
        self.newest.is_none() || self.newest != steady || now.duration_since(self.listed) >= LIST_AGAIN
    }

    /// Whether these are others.
    pub fn differ(&self, others: &Threads) -> bool {
        self.set != others.set
    }
}

fn mix(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn lists_are_complete_some_time_after_the_last_new_task() {
        let (mut newest, start) = (NewestTask::default(), Instant::now());
        let at = |ms: u32| start + MS * ms;
        assert_eq!(newest.steady_at(start), None);
        newest.see(Some(7), at(0));
        newest.see(Some(7), at(99));
        assert_eq!((newest.steady_at(at(99)), newest.steady_at(at(100))), (None, Some(7)));
        newest.see(Some(8), at(200));
        assert_eq!((newest.steady_at(at(299)), newest.steady_at(at(300))), (None, Some(8)));
        newest.see(None, at(400));
        assert_eq!(newest.steady_at(at(900)), None, "the machine does not tell");
    }

    #[test]
    fn this_machine_tells_of_a_new_task_or_is_not_believed() {
        let mut newest = NewestTask::default();
        newest.steady(Instant::now());
        let (before, read) = (newest.id, newest.read.unwrap());
        assert_eq!(before.is_some(), newest.is_told.unwrap());
        std::thread::spawn(|| {}).join().unwrap();
        newest.steady(read);
        assert_eq!((newest.id, newest.read), (before, Some(read)), "it is no older than that");
        newest.steady(Instant::now());
        assert!(newest.read > Some(read) && (newest.id != before || newest.is_told == Some(false)));
    }

    #[test]
    fn threads_are_listed_again_after_a_new_task_or_some_time() {
        let start = Instant::now();
        let listed = |newest| Threads { set: 1, listed: start, newest };
        assert!(listed(None).may_differ(Some(7), start), "one had no robust list, or tasks were being made");
        assert!(!listed(Some(7)).may_differ(Some(7), start + MS * 249));
        assert!(listed(Some(7)).may_differ(Some(7), start + MS * 250));
        assert!(listed(Some(7)).may_differ(Some(8), start) && listed(Some(7)).may_differ(None, start));
    }
}
