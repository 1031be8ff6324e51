//! Asynchronous reads and writes of one thread: io_uring or, where that is not allowed, one call
//! after the other.

use crate::memory::Aligned;
use io_uring::{opcode, types, IoUring};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

/// Most transfers under way at once; more wait in the ring's queue.
const DEPTH: u32 = 32;
/// Token of an operation whose result is ignored.
const NOBODY: u64 = u64::MAX;

/// A token, and the bytes transferred, perhaps fewer than wanted.
pub type Completed = (u64, io::Result<usize>);

/// A transfer between a device and a range of a buffer.
#[derive(Debug, Clone)]
pub struct Request {
    /// Comes back with the result.
    pub token: u64,
    /// To the device, or from it.
    pub write: bool,
    /// The device.
    pub fd: RawFd,
    /// Byte on the device.
    pub offset: u64,
    /// The buffer. It stays until the result is there.
    pub buffer: Arc<Aligned>,
    /// First byte of the range.
    pub at: usize,
    /// Bytes.
    pub len: usize,
}

impl Request {
    /// Performs it in this thread.
    ///
    /// # Errors
    /// As pread and pwrite.
    pub fn perform(&self) -> io::Result<usize> {
        let base = self.buffer.at(self.at, self.len);
        loop {
            // SAFETY: inside the buffer, to which there are no references while it is shared.
            let got = unsafe {
                match self.write {
                    true => libc::pwrite64(self.fd, base.cast(), self.len, self.offset as i64),
                    false => libc::pread64(self.fd, base.cast(), self.len, self.offset as i64),
                }
            };
            match usize::try_from(got) {
                Ok(got) => return Ok(got),
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }
}

/// The transfers of one thread.
pub struct Transfers {
    ring: Option<IoUring>,
    /// Under way in the ring. They hold their buffers.
    under_way: Vec<Request>,
    /// How many of these the kernel does not have yet.
    queued: usize,
}

impl Transfers {
    /// Uses a ring if the kernel allows one.
    pub fn new() -> Transfers {
        Transfers { ring: IoUring::new(DEPTH).ok(), under_way: Vec::new(), queued: 0 }
    }

    /// One call after the other.
    pub fn without_ring() -> Transfers {
        Transfers { ring: None, under_way: Vec::new(), queued: 0 }
    }

    /// Takes a transfer, which begins at the next [`Transfers::start`] at the latest. Returns its
    /// result if there is no ring.
    pub fn submit(&mut self, request: Request) -> Option<Completed> {
        if self.queued == DEPTH as usize {
            self.start();
        }
        let (token, queued) = (request.token, self.enqueue(&request));
        if !queued {
            return Some((token, request.perform()));
        }
        self.under_way.push(request);
        self.queued += 1;
        None
    }

    fn enqueue(&mut self, request: &Request) -> bool {
        let Some(ring) = &mut self.ring else { return false };
        let (fd, len) = (types::Fd(request.fd), request.len as u32);
        let base = request.buffer.at(request.at, request.len);
        let entry = match request.write {
            true => opcode::Write::new(fd, base, len).offset(request.offset).build(),
            false => opcode::Read::new(fd, base, len).offset(request.offset).build(),
        };
        // SAFETY: `under_way` holds the buffer until the kernel has answered.
        unsafe { ring.submission().push(&entry.user_data(request.token)) }.is_ok()
    }

    /// Begins all transfers taken so far with one system call.
    pub fn start(&mut self) {
        if self.queued > 0 {
            self.push();
        }
    }

    /// As [`Transfers::start`]. The kernel also takes what it could not take before.
    pub fn push(&mut self) {
        if let Some(ring) = &mut self.ring {
            let _ = ring.submit();
            self.queued = 0;
        }
    }

    /// Begins to allocate space of a file without holding up this thread: that can take as long as
    /// a commit of the journal. The result is ignored. A write allocates what is missing, or fails.
    pub fn allocate(&mut self, fd: RawFd, range: Range<u64>) {
        let Some(ring) = &mut self.ring else { return };
        let entry = opcode::Fallocate::new(types::Fd(fd), range.end - range.start).offset(range.start).build();
        // SAFETY: no memory of ours belongs to it.
        if unsafe { ring.submission().push(&entry.user_data(NOBODY)) }.is_ok() {
            let _ = ring.submit();
        }
    }

    /// The next result.
    pub fn completed(&mut self) -> Option<Completed> {
        let entry = self.ring.as_mut()?.completion().find(|entry| entry.user_data() != NOBODY)?;
        let token = entry.user_data();
        let at = self.under_way.iter().position(|request| request.token == token);
        let request = at.map(|at| self.under_way.swap_remove(at));
        let result = match (entry.result(), request) {
            (bytes, _) if bytes >= 0 => Ok(bytes as usize),
            // The kernel had no thread for it (pids.max, RLIMIT_NPROC).
            (errno, Some(request)) if errno == -libc::ECANCELED => request.perform(),
            (errno, _) => Err(io::Error::from_raw_os_error(-errno)),
        };
        Some((token, result))
    }

    /// Readable when there are results; -1 without a ring.
    pub fn fd(&self) -> RawFd {
        self.ring.as_ref().map_or(-1, |ring| ring.as_raw_fd())
    }

    /// Whether nothing is under way.
    pub fn idle(&self) -> bool {
        self.under_way.is_empty()
    }
}

impl Default for Transfers {
    fn default() -> Transfers {
        Transfers::new()
    }
}

impl Drop for Transfers {
    fn drop(&mut self) {
        // A device may still write into these buffers: they are never used again.
        if !self.under_way.is_empty() {
            std::mem::forget((std::mem::take(&mut self.under_way), self.ring.take()));
        }
    }
}
