//! Threads that exist before they are needed.
//!
//! On a busy machine a new thread waits for its first turn on a CPU, up to 60 ms. An ordinary one
//! that slept can wait as well: the kernel first divides the CPUs among sessions and control
//! groups. A real-time thread that slept runs before all ordinary ones.

use crate::sched;
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Mutex;
use std::thread::{Builder, JoinHandle};

type Job = Box<dyn FnOnce() + Send>;

/// Sleeping threads. Each does one job and ends. If it may, it begins its job as a real-time
/// thread, and the job soon makes an ordinary one of it (`sched::end_real_time`).
#[derive(Debug)]
pub struct Standby {
    name: &'static str,
    stack: usize,
    count: usize,
    sleeping: Mutex<VecDeque<Sleeper>>,
}

#[derive(Debug)]
struct Sleeper {
    jobs: Sender<Job>,
    /// Its other end closes when it is about to sleep.
    ready: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Standby {
    /// `count` threads, or as many as can be made, with stacks of `stack` bytes.
    #[must_use]
    pub fn new(name: &'static str, count: usize, stack: usize) -> Standby {
        let standby = Standby { name, stack, count, sleeping: Mutex::default() };
        standby.fill();
        standby
    }

    /// Waits until the threads that were made first are ready.
    pub fn wait_until_ready(&self) {
        let sleeping = self.sleeping.lock().unwrap();
        for thread in sleeping.iter() {
            let _ = thread.ready.recv();
        }
    }

    /// Has a sleeping thread do a job, or a new one if none is left. Another thread takes the place
    /// of the one that sleeps no more.
    ///
    /// # Errors
    /// No more threads can be made.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
        // The oldest one: the youngest may not have had a CPU yet.
        let sleeping = self.sleeping.lock().unwrap().pop_front();
        let Sleeper { jobs, thread, .. } = sleeping.map_or_else(|| self.make(), Ok)?;
        // The thread ends only after a job, so it receives this one.
        let _ = jobs.send(Box::new(job));
        self.fill();
        Ok(thread)
    }

    /// Makes as many threads as are missing, or as can be made.
    fn fill(&self) {
        let missing = self.count.saturating_sub(self.sleeping.lock().unwrap().len());
        for made in (0..missing).map_while(|_| self.make().ok()) {
            self.sleeping.lock().unwrap().push_back(made);
        }
    }

    fn make(&self) -> io::Result<Sleeper> {
        let ((jobs, receiver), (told, ready)) = (channel::<Job>(), channel::<()>());
        let body = move || {
            sched::run_first();
            drop(told);
            if let Ok(job) = receiver.recv() {
                job();
            }
        };
        let thread = Builder::new().name(self.name.into()).stack_size(self.stack).spawn(body)?;
        Ok(Sleeper { jobs, ready, thread })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{probe, procfs};
    use std::collections::HashSet;
    use std::sync::mpsc::channel;

    #[test]
    fn each_job_is_done_by_a_thread_of_its_own() {
        let (done, results) = channel();
        let standby = Standby::new("standby", 2, 64 << 10);
        let jobs: Vec<_> = (0..5)
            .map(|number| {
                let done = done.clone();
                standby.run(move || done.send((number, std::thread::current().id())).unwrap()).unwrap()
            })
            .collect();
        jobs.into_iter().for_each(|job| job.join().unwrap());
        drop(done);
        let (mut numbers, threads): (Vec<i32>, HashSet<_>) = results.iter().unzip();
        numbers.sort_unstable();
        assert_eq!((numbers, threads.len()), (vec![0, 1, 2, 3, 4], 5));
    }

    /// A thread that was just made may not have had a CPU yet.
    #[test]
    fn jobs_are_done_by_those_that_were_made_first() {
        let standby = Standby::new("standby", 2, 64 << 10);
        standby.wait_until_ready();
        let made = procfs::tasks(std::process::id() as i32);
        let may = probe::may_be_real_time();
        for _ in 0..2 {
            let (done, result) = channel();
            let job = move || {
                let before = sched::is_real_time();
                sched::end_real_time();
                done.send((procfs::own_tid(), before, sched::is_real_time())).unwrap();
            };
            let thread = standby.run(job).unwrap();
            let (tid, before, after) = result.recv().unwrap();
            thread.join().unwrap();
            assert!(made.contains(&tid), "{tid} is not in {made:?}");
            assert_eq!((before, after), (may, false));
        }
    }
}
