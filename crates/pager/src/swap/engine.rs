//! Asynchronous I/O of one thread: io_uring or, where that is not allowed, one call after the
//! other.

use super::fault_injection::{Faults, Plan};
use super::Counters;
use crate::event::poll2;
use crate::locks::{rank, Lock};
use io_uring::{opcode, types, IoUring};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most requests under way at once; more wait in the ring's queue.
const DEPTH: u32 = 32;

/// Token of a request whose result is ignored.
const NOBODY: u64 = u64::MAX;
/// Longest wait for a device when the thread ends.
const FINISH_WITHIN: Duration = Duration::from_secs(10);

/// One transfer.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Comes back with the result.
    pub token: u64,
    /// To the device, or from it.
    pub write: bool,
    /// The device.
    pub fd: RawFd,
    /// Byte on the device.
    pub offset: u64,
    /// The memory, which must stay until the result is there.
    pub base: *mut u8,
    /// Bytes.
    pub len: usize,
}

/// Transfers of one thread.
pub struct Engine {
    ring: Option<IoUring>,
    /// Under way in the ring.
    under_way: Vec<Request>,
    /// How many of these the kernel does not have yet.
    queued: usize,
    done: VecDeque<(u64, io::Result<usize>)>,
    /// Tests only: failures to inject, and finished requests whose results are held back.
    faults: Option<Faults>,
    held: Vec<(Instant, u64, io::Result<usize>)>,
}

// SAFETY: the addresses in it are those of buffers that belong to the same owner.
unsafe impl Send for Engine {}

impl Engine {
    /// Uses a ring if the kernel allows one.
    pub fn new() -> Engine {
        let forced = cfg!(debug_assertions) && std::env::var_os("MEMFIT_NO_IO_URING").is_some();
        let ring = if forced { None } else { IoUring::new(DEPTH).ok() };
        Engine {
            ring,
            under_way: Vec::new(),
            queued: 0,
            done: VecDeque::new(),
            faults: Faults::from_environment(),
            held: Vec::new(),
        }
    }

    /// Without a ring: one call after the other.
    pub fn without_ring() -> Engine {
        Engine { ring: None, under_way: Vec::new(), queued: 0, done: VecDeque::new(), faults: None, held: Vec::new() }
    }

    /// With failures as in `MEMFIT_SWAP_FAULTS`, for this engine alone.
    #[cfg(test)]
    pub fn with_faults(faults: &str) -> Engine {
        Engine { faults: Some(Faults::parse(faults)), ..Engine::new() }
    }

    /// Takes a transfer, which begins at the next [`Engine::start`] at the latest.
    ///
    /// # Safety
    /// The memory must stay until the result is taken from [`Engine::completed`], and nobody else
    /// may use it if it is read into.
    pub unsafe fn submit(&mut self, request: Request) {
        match self.faults.as_mut().map_or(Plan::Normal, |faults| faults.plan(request.write)) {
            Plan::Normal => {}
            Plan::Fail(errno) => {
                self.done.push_back((request.token, Err(io::Error::from_raw_os_error(errno))));
                return;
            }
            Plan::Short => {
                // SAFETY: as the caller promises, for a part of it.
                let result = unsafe { at_once(&Request { len: (request.len / 2 / 4096 * 4096).max(4096), ..request }) };
                self.done.push_back((request.token, result));
                return;
            }
            Plan::Flip(at) => {
                // SAFETY: as the caller promises.
                let result = unsafe { at_once(&request) };
                if !request.write {
                    // SAFETY: inside of the caller's memory.
                    unsafe { *request.base.add(at % request.len) ^= 1 << (at % 8) };
                }
                self.done.push_back((request.token, result));
                return;
            }
            Plan::Stall(until) => {
                // SAFETY: as the caller promises.
                let result = unsafe { at_once(&request) };
                self.held.push((until, request.token, result));
                return;
            }
        }
        // SAFETY: as the caller promises.
        if !unsafe { self.enqueue(&request) } {
            // SAFETY: as above.
            let result = unsafe { at_once(&request) };
            self.done.push_back((request.token, result));
        }
    }

    /// # Safety
    /// As [`Engine::submit`].
    unsafe fn enqueue(&mut self, request: &Request) -> bool {
        if self.queued == DEPTH as usize {
            self.start();
        }
        let Some(ring) = &mut self.ring else { return false };
        let (fd, len) = (types::Fd(request.fd), request.len as u32);
        let entry = if request.write {
            opcode::Write::new(fd, request.base, len).offset(request.offset).build()
        } else {
            opcode::Read::new(fd, request.base, len).offset(request.offset).build()
        };
        // SAFETY: the caller keeps the memory.
        let pushed = unsafe { ring.submission().push(&entry.user_data(request.token)) }.is_ok();
        if !pushed {
            return false;
        }
        self.under_way.push(*request);
        self.queued += 1;
        true
    }

    /// Begins all transfers taken so far with one system call.
    pub fn start(&mut self) {
        if let (Some(ring), 1..) = (&mut self.ring, self.queued) {
            // What the kernel does not take now it takes at the next call, or during a wait.
            let _ = ring.submit();
            self.queued = 0;
        }
    }

    /// Begins to allocate space of a file without holding up this thread: that can take as long as
    /// a commit of the journal. The result is ignored. A write allocates what is missing, or fails.
    pub fn allocate(&mut self, fd: RawFd, range: std::ops::Range<u64>) {
        let Some(ring) = &mut self.ring else { return };
        let entry = opcode::Fallocate::new(types::Fd(fd), range.end - range.start).offset(range.start).build();
        // SAFETY: no memory of ours belongs to it.
        if unsafe { ring.submission().push(&entry.user_data(NOBODY)) }.is_ok() {
            let _ = ring.submit();
        }
    }

    /// The next result: bytes transferred, perhaps fewer than requested.
    pub fn completed(&mut self) -> Option<(u64, io::Result<usize>)> {
        if let Some(done) = self.done.pop_front() {
            return Some(done);
        }
        if let Some(i) = self.held.iter().position(|(until, ..)| *until <= Instant::now()) {
            let (_, token, result) = self.held.swap_remove(i);
            return Some((token, result));
        }
        let entry = self.ring.as_mut()?.completion().find(|entry| entry.user_data() != NOBODY)?;
        let token = entry.user_data();
        let at = self.under_way.iter().position(|request| request.token == token);
        let request = at.map(|at| self.under_way.swap_remove(at));
        let result = match (entry.result(), request) {
            (bytes, _) if bytes >= 0 => Ok(bytes as usize),
            // The kernel had no thread for it (pids.max, RLIMIT_NPROC).
            // SAFETY: the owner keeps the memory until it has the result.
            (errno, Some(request)) if errno == -libc::ECANCELED => unsafe { at_once(&request) },
            (errno, _) => Err(io::Error::from_raw_os_error(-errno)),
        };
        Some((token, result))
    }

    /// Readable when there are results; -1 if the caller must ask [`Engine::pending`].
    pub fn fd(&self) -> RawFd {
        self.ring.as_ref().map_or(-1, |ring| ring.as_raw_fd())
    }

    /// Whether there are, or will be, results that make no descriptor readable.
    pub fn pending(&self) -> bool {
        !self.done.is_empty() || !self.held.is_empty()
    }

    /// Whether nothing is under way and no result waits.
    pub fn idle(&self) -> bool {
        self.under_way.is_empty() && !self.pending()
    }

    /// Waits for a result, at most `ms` milliseconds.
    pub fn wait(&mut self, ms: i32) {
        self.queued = 0;
        if let Some(ring) = &mut self.ring {
            let _ = ring.submit();
        }
        if !self.done.is_empty() || self.idle() {
            return;
        }
        let ms = if self.held.is_empty() { ms } else { ms.min(2) };
        poll2(self.fd(), -1, ms);
    }
}

impl Engine {
    /// For the end of the owner: waits until nothing is under way, because a device may write into
    /// the memory until it has answered. False if it does not answer; then the memory must never be
    /// used again.
    pub fn finish(&mut self) -> bool {
        let give_up = Instant::now() + FINISH_WITHIN;
        while !self.under_way.is_empty() && Instant::now() < give_up {
            self.wait(100);
            while self.completed().is_some() {}
        }
        self.under_way.is_empty()
    }
}

/// Performs the transfer in this thread.
///
/// # Safety
/// As [`Engine::submit`].
unsafe fn at_once(request: &Request) -> io::Result<usize> {
    let Request { fd, base, len, offset, write, .. } = *request;
    loop {
        // SAFETY: the caller's memory.
        let got = unsafe {
            match write {
                true => libc::pwrite64(fd, base.cast(), len, offset as i64),
                false => libc::pread64(fd, base.cast(), len, offset as i64),
            }
        };
        match got {
            0.. => return Ok(got as usize),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// A transfer that may take several requests.
#[derive(Debug)]
pub struct Transfer {
    /// What is left of it.
    rest: Request,
    done: usize,
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

impl Transfer {
    /// Begins a transfer.
    ///
    /// # Safety
    /// As [`Engine::submit`], until [`Transfer::answered`] says `Done` or `Failed`.
    pub unsafe fn begin(engine: &mut Engine, request: Request, counters: &Counters) -> Transfer {
        let (count, bytes) = match request.write {
            true => (&counters.writes, &counters.write_bytes),
            false => (&counters.reads, &counters.read_bytes),
        };
        count.fetch_add(1, Relaxed);
        bytes.fetch_add(request.len as u64, Relaxed);
        let began = Began::now(&counters.under_way);
        // SAFETY: as the caller promises.
        unsafe { engine.submit(request) };
        Transfer { rest: request, done: 0, retries: 0, began }
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
                self.done += bytes;
                // SAFETY: inside of the memory, since fewer bytes came than it has.
                self.rest.base = unsafe { self.rest.base.add(bytes) };
                self.rest.offset += bytes as u64;
                self.rest.len -= bytes;
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => {}
            Err(error) if self.retries < RETRIES && error.raw_os_error() == Some(libc::EIO) => {
                counters.errors.fetch_add(1, Relaxed);
                self.retries += 1;
            }
            Err(error) => return self.failed(error, counters),
        }
        // SAFETY: the memory stays until the end of the transfer.
        unsafe { engine.submit(self.rest) };
        Progress::More
    }

    fn failed(&self, error: io::Error, counters: &Counters) -> Progress {
        counters.errors.fetch_add(1, Relaxed);
        Progress::Failed(error)
    }
}
