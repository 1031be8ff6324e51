//! Threads that exist before they are needed.
//!
//! On a busy machine a new thread waits milliseconds for its first turn on a CPU; a thread that
//! slept runs at once (with short slices, see `sched::ask_short_slices`).

use crate::sched;
use std::io;
use std::sync::mpsc::{channel, Sender};
use std::sync::Mutex;
use std::thread::{Builder, JoinHandle};

type Job = Box<dyn FnOnce() + Send>;

/// Sleeping threads. Each does one job and ends.
#[derive(Debug)]
pub struct Standby {
    name: &'static str,
    stack: usize,
    sleeping: Mutex<Vec<(Sender<Job>, JoinHandle<()>)>>,
}

impl Standby {
    /// `count` threads, or as many as can be made, with stacks of `stack` bytes.
    #[must_use]
    pub fn new(name: &'static str, count: usize, stack: usize) -> Standby {
        let standby = Standby { name, stack, sleeping: Mutex::default() };
        let threads = (0..count).map_while(|_| standby.make().ok()).collect();
        *standby.sleeping.lock().unwrap() = threads;
        standby
    }

    /// Has a sleeping thread do a job, or a new one if none is left. Another thread takes the place
    /// of the one that sleeps no more.
    ///
    /// # Errors
    /// No more threads can be made.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
        let sleeping = self.sleeping.lock().unwrap().pop();
        let (sender, thread) = sleeping.map_or_else(|| self.make(), Ok)?;
        // The thread ends only after a job, so it receives this one.
        let _ = sender.send(Box::new(job));
        // Without a successor the next job gets a new thread.
        if let Ok(next) = self.make() {
            self.sleeping.lock().unwrap().push(next);
        }
        Ok(thread)
    }

    fn make(&self) -> io::Result<(Sender<Job>, JoinHandle<()>)> {
        let (sender, receiver) = channel::<Job>();
        let body = move || {
            sched::ask_short_slices();
            if let Ok(job) = receiver.recv() {
                job();
            }
        };
        Ok((sender, Builder::new().name(self.name.into()).stack_size(self.stack).spawn(body)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let (mut numbers, mut threads): (Vec<i32>, Vec<_>) = results.iter().unzip();
        numbers.sort_unstable();
        threads.dedup();
        assert_eq!((numbers, threads.len()), (vec![0, 1, 2, 3, 4], 5));
    }
}
