//! Reads and writes of the swap tier by one thread, with what tests inject, and their repetition
//! after errors that may pass.

use super::fault_injection::{Faults, Plan};
use super::Counters;
use crate::locks::{rank, Lock};
use memfit_os::event::poll2;
use memfit_os::memory::Aligned;
use memfit_os::transfer::{Completed, Request, Transfers};
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for a device when the thread ends.
const FINISH_WITHIN: Duration = Duration::from_secs(10);

/// The transfers of one thread.
pub struct Engine {
    transfers: Transfers,
    done: VecDeque<Completed>,
    /// Tests only: failures to inject, and finished transfers whose results are held back.
    faults: Option<Faults>,
    held: Vec<(Instant, Completed)>,
}

impl Engine {
    /// Without failures, but for those of the environment.
    pub fn new() -> Engine {
        let forced = cfg!(debug_assertions) && std::env::var_os("MEMFIT_NO_IO_URING").is_some();
        let transfers = if forced { Transfers::without_ring() } else { Transfers::new() };
        Engine { transfers, done: VecDeque::new(), faults: Faults::from_environment(), held: Vec::new() }
    }

    /// Also without those of the environment, which are meant for the swap tier.
    pub fn without_faults() -> Engine {
        let mut engine = Engine::new();
        engine.faults = None;
        engine
    }

    /// With failures as in `MEMFIT_SWAP_FAULTS`, for this engine alone.
    #[cfg(test)]
    pub fn with_faults(faults: &str) -> Engine {
        let mut engine = Engine::new();
        engine.faults = Some(Faults::parse(faults));
        engine
    }

    /// Takes a transfer, which begins at the next [`Engine::start`] at the latest.
    fn submit(&mut self, request: &Request) {
        let Request { token, write, len, .. } = *request;
        let now = match self.faults.as_mut().map_or(Plan::Normal, |faults| faults.plan(write, len)) {
            Plan::Normal => self.transfers.submit(request.clone()),
            Plan::Fail(errno) => Some((token, Err(io::Error::from_raw_os_error(errno)))),
            Plan::Short => {
                let len = (len / 2 / 4096 * 4096).max(4096);
                Some((token, Request { len, ..request.clone() }.perform()))
            }
            Plan::Flip(at) => {
                let result = request.perform();
                if !write {
                    request.buffer.flip(request.at + at % len, at % 8);
                }
                Some((token, result))
            }
            Plan::Stall(until) => {
                self.held.push((until, (token, request.perform())));
                None
            }
        };
        self.done.extend(now);
    }

    /// Begins all transfers taken so far with one system call.
    pub fn start(&mut self) {
        self.transfers.start();
    }

    /// As [`Transfers::allocate`].
    pub fn allocate(&mut self, fd: RawFd, range: std::ops::Range<u64>) {
        self.transfers.allocate(fd, range);
    }

    /// The next result: bytes transferred, perhaps fewer than wanted.
    pub fn completed(&mut self) -> Option<Completed> {
        if let Some(done) = self.done.pop_front() {
            return Some(done);
        }
        if let Some(i) = self.held.iter().position(|(until, _)| *until <= Instant::now()) {
            return Some(self.held.swap_remove(i).1);
        }
        self.transfers.completed()
    }

    /// Readable when there are results; -1 if the caller must ask [`Engine::pending`].
    pub fn fd(&self) -> RawFd {
        self.transfers.fd()
    }

    /// Whether there are, or will be, results that make no descriptor readable.
    pub fn pending(&self) -> bool {
        !self.done.is_empty() || !self.held.is_empty() || self.transfers.unsent()
    }

    /// Whether nothing is under way and no result waits.
    pub fn idle(&self) -> bool {
        self.transfers.idle() && !self.pending()
    }

    /// Waits for a result, at most `ms` milliseconds.
    pub fn wait(&mut self, ms: i32) {
        self.transfers.start();
        if !self.done.is_empty() || self.idle() {
            return;
        }
        let ms = if self.pending() { ms.min(2) } else { ms };
        poll2(self.fd(), -1, ms);
    }
}

impl Drop for Engine {
    /// Waits until nothing is under way: a device may write into the buffers until it has answered.
    /// If it does not answer, they are never freed.
    fn drop(&mut self) {
        let give_up = Instant::now() + FINISH_WITHIN;
        while !self.transfers.idle() && Instant::now() < give_up {
            self.wait(100);
            while self.completed().is_some() {}
        }
    }
}

/// A transfer that may take several requests.
#[derive(Debug)]
pub struct Transfer {
    /// What is left of it.
    rest: Request,
    retries: u32,
    began: Began,
}

/// When the transfers of all threads that wait for the device began.
#[derive(Debug, Default)]
pub struct UnderWay(Lock<Vec<Option<Instant>>, { rank::UNDER_WAY }>);

/// One such transfer, until it is dropped.
#[derive(Debug)]
struct Began {
    under_way: Arc<UnderWay>,
    place: usize,
    since: Instant,
}

impl Began {
    fn now(under_way: &Arc<UnderWay>) -> Began {
        let mut since = under_way.0.lock();
        let place = since.iter().position(Option::is_none).unwrap_or(since.len());
        if place == since.len() {
            since.push(None);
        }
        let now = Instant::now();
        since[place] = Some(now);
        Began { under_way: Arc::clone(under_way), place, since: now }
    }
}

impl Drop for Began {
    fn drop(&mut self) {
        self.under_way.0.lock()[self.place] = None;
    }
}

impl UnderWay {
    /// How long the oldest transfer has waited.
    pub fn longest(&self) -> Option<Duration> {
        self.0.lock().iter().flatten().map(Instant::elapsed).max()
    }
}

/// Outcome of one request of a [`Transfer`].
#[derive(Debug)]
pub enum Progress {
    /// All bytes were transferred.
    Done,
    /// The rest is under way.
    More,
    /// The transfer failed.
    Failed(io::Error),
}

/// How often a read or write that failed with EIO is repeated.
const RETRIES: u32 = 1;
/// How long one is repeated that the kernel cannot take, or that a signal interrupted.
const REPEATS_FOR: Duration = Duration::from_secs(10);

impl Transfer {
    /// Begins a transfer. [`Transfer::answered`] takes its results.
    pub fn begin(engine: &mut Engine, request: Request, counters: &Counters) -> Transfer {
        let (count, bytes) = match request.write {
            true => (&counters.writes, &counters.write_bytes),
            false => (&counters.reads, &counters.read_bytes),
        };
        count.fetch_add(1, Relaxed);
        bytes.fetch_add(request.len as u64, Relaxed);
        let began = Began::now(&counters.under_way);
        engine.submit(&request);
        Transfer { rest: request, retries: 0, began }
    }

    /// Its buffer.
    pub fn into_buffer(self) -> Arc<Aligned> {
        self.rest.buffer
    }

    /// How long the transfer has been under way.
    pub fn since(&self) -> Duration {
        self.began.since.elapsed()
    }

    /// Token of its results.
    pub fn token(&self) -> u64 {
        self.rest.token
    }

    /// Handles the result of one of its requests.
    pub fn answered(&mut self, engine: &mut Engine, result: io::Result<usize>, counters: &Counters) -> Progress {
        match result {
            Ok(bytes) if bytes >= self.rest.len => return Progress::Done,
            Ok(0) => return self.failed(io::ErrorKind::UnexpectedEof.into(), counters),
            Ok(bytes) => {
                self.rest.at += bytes;
                self.rest.offset += bytes as u64;
                self.rest.len -= bytes;
            }
            Err(error)
                if self.since() < REPEATS_FOR && matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => {}
            Err(error) if self.retries < RETRIES && error.raw_os_error() == Some(libc::EIO) => {
                counters.errors.fetch_add(1, Relaxed);
                self.retries += 1;
            }
            Err(error) => return self.failed(error, counters),
        }
        engine.submit(&self.rest);
        Progress::More
    }

    fn failed(&self, error: io::Error, counters: &Counters) -> Progress {
        counters.errors.fetch_add(1, Relaxed);
        Progress::Failed(error)
    }
}
