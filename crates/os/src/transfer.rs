//! Asynchronous reads and writes of one thread: io_uring or, where that is not allowed, one call
//! after the other.

use crate::memory::Aligned;
use io_uring::{opcode, types, IoUring};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

/// Entries of the submission queue. More transfers can be under way.
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
    unsent: bool,
}

impl Transfers {
    /// Uses a ring if the kernel allows one.
    pub fn new() -> Transfers {
        Transfers { ring: IoUring::new(DEPTH).ok(), under_way: Vec::new(), unsent: false }
    }

    /// One call after the other.
    pub fn without_ring() -> Transfers {
        Transfers { ring: None, under_way: Vec::new(), unsent: false }
    }

    /// Takes a transfer, which begins at the next [`Transfers::start`] at the latest. Returns its
    /// result if there is no ring, or no room in it.
    ///
    /// # Panics
    /// Another transfer under way has the same token.
    pub fn submit(&mut self, request: Request) -> Option<Completed> {
        let token = request.token;
        assert!(token != NOBODY && self.under_way.iter().all(|other| other.token != token), "two transfers {token}");
        if !self.enqueue(&request) {
            // The queue is full.
            self.start();
            if !self.enqueue(&request) {
                return Some((token, request.perform()));
            }
        }
        self.under_way.push(request);
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

    /// Begins all transfers taken so far with one system call. The kernel may leave some of them
    /// for later: see [`Transfers::unsent`].
    pub fn start(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        let queue = ring.submission();
        // Results that did not fit into the completion queue come with the next system call.
        let calls = !queue.is_empty() || queue.cq_overflow();
        drop(queue);
        if calls {
            let _ = ring.submit();
            self.unsent = !ring.submission().is_empty();
        }
    }

    /// Whether the kernel has refused to take all transfers. Each call of [`Transfers::start`] and
    /// [`Transfers::completed`] tries again.
    pub fn unsent(&self) -> bool {
        self.unsent
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
        self.start();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::poll;
    use std::io::Write;
    use std::time::{Duration, Instant};

    const PAGE: usize = 4096;

    /// The kernel keeps the results that do not fit into the completion queue.
    #[test]
    fn more_transfers_than_the_ring_has_entries_are_all_answered() {
        let mut file = tempfile();
        (0..200u8).for_each(|block| file.write_all(&[block; PAGE]).unwrap());
        for mut transfers in [Transfers::new(), Transfers::without_ring()] {
            let buffers: Vec<_> = (0..200).map(|_| Arc::new(Aligned::new(PAGE))).collect();
            let mut answers = Vec::new();
            for (block, buffer) in buffers.iter().enumerate() {
                let (token, offset, buffer) = (block as u64, (block * PAGE) as u64, Arc::clone(buffer));
                let request = Request { token, write: false, fd: file.as_raw_fd(), offset, buffer, at: 0, len: PAGE };
                answers.extend(transfers.submit(request));
            }
            transfers.start();
            let give_up = Instant::now() + Duration::from_secs(60);
            while answers.len() < 200 {
                assert!(Instant::now() < give_up, "{} of 200 are answered", answers.len());
                match transfers.completed() {
                    Some(answer) => answers.push(answer),
                    None => _ = poll([transfers.fd()], 100),
                }
            }
            assert!(transfers.idle() && answers.iter().all(|(_, result)| matches!(result, Ok(PAGE))));
            for (block, buffer) in buffers.into_iter().enumerate() {
                let mut buffer = Arc::into_inner(buffer).expect("no transfer holds it");
                assert!(buffer.bytes().iter().all(|&byte| usize::from(byte) == block), "block {block}");
            }
        }
    }

    fn tempfile() -> std::fs::File {
        let path = std::env::temp_dir().join(format!("memfit-transfer-{}", std::process::id()));
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }
}
