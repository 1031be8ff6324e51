//! userfaultfd as the pager uses it: with descriptors of other processes.
//!
//! This module gives errnos their meaning. It cannot make userfaultfd safe: registering and filling
//! act on *another* process's memory, and only the pager's page table guards that.

use crate::maps;
use crate::probe::feature;
use memfit_wire::uffd::{
    Api, Continue, Copy, Range, ReadWriteProtect, Register, WriteProtect, ZeroPage, MODE_DONTWAKE,
    REGISTER_MODE_MISSING, REGISTER_MODE_RWP, REGISTER_MODE_WP, RWPROTECT_MODE_RWP, UFFDIO_API, UFFDIO_CONTINUE,
    UFFDIO_COPY, UFFDIO_REGISTER, UFFDIO_RWPROTECT, UFFDIO_UNREGISTER, UFFDIO_WAKE, UFFDIO_WRITEPROTECT,
    UFFDIO_ZEROPAGE, UFFD_API,
};
use memfit_wire::PAGE_BYTES;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

pub use feature::EVENT_FORK;
/// The features that `memfit run` needs.
pub const REQUIRED: u64 = {
    let (mut mask, mut i) = (0, 0);
    while i < feature::REQUIRED.len() {
        mask |= feature::REQUIRED[i].1;
        i += 1;
    }
    mask
};

/// The features by which the kernel tells which pages were accessed (Linux 7.3 and later).
pub const ACCESSES: u64 = feature::RWP | feature::RWP_ASYNC;

/// A message from the kernel.
#[derive(Debug)]
pub enum Event {
    /// A thread waits for a page.
    Fault {
        /// Faulting address.
        address: u64,
        /// Write access.
        write: bool,
        /// The page is present but write-protected ([`Uffd::unprotect`]).
        protected: bool,
        /// Thread id in the process's own PID namespace.
        tid: u32,
    },
    /// The process forked and waits; the descriptor of the child.
    Fork(Uffd),
    /// mremap has moved a range; the caller waits.
    Remap {
        /// Old address.
        from: u64,
        /// New address.
        to: u64,
        /// Bytes.
        len: u64,
    },
    /// A range is about to be zapped; the caller waits.
    Remove {
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
    },
    /// A range was unmapped; the caller waits.
    Unmap {
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
    },
}

/// Result of filling pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// All pages are filled.
    Done,
    /// This many pages were filled; the next page is present already.
    Exists(u64),
    /// This many pages were filled; then an event was unread: read it, then retry.
    EventPending(u64),
    /// This many pages were filled; the next page is not registered memory of the process any more.
    NotMapped(u64),
    /// The process's memory is gone.
    Gone,
    /// No memory, or the memory cgroup of the process is full.
    NoMemory(u64),
}

impl Fill {
    /// `done` pages were filled before the error.
    fn failed(error: &io::Error, done: u64) -> Fill {
        match error.raw_os_error().unwrap_or(0) {
            libc::EEXIST => Fill::Exists(done),
            // After partial progress the kernel returns EAGAIN whatever stopped it.
            libc::EAGAIN => Fill::EventPending(done),
            libc::ESRCH => Fill::Gone,
            libc::ENOMEM => Fill::NoMemory(done),
            _ => Fill::NotMapped(done),
        }
    }
}

/// A userfaultfd of some process.
#[derive(Debug)]
pub struct Uffd {
    fd: OwnedFd,
    /// Address of the page that probes ask about.
    probed: AtomicU64,
    /// It has [`ACCESSES`].
    tells_accesses: AtomicBool,
}

/// Highest page of user space. Every kernel accepts this address, for probes of a process in which
/// no stub page is known.
const HIGHEST_PAGE: u64 = 0x7fff_ffff_e000;

/// The kernel's answer about a page and the userfaultfd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    Registered,
    NotRegistered,
    EventPending,
    Gone,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    arg: [u64; 3],
}

/// Buffer for the messages of one read.
#[derive(Debug)]
pub struct Inbox {
    raw: Vec<[u64; 4]>,
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox { raw: vec![[0; 4]; 64] }
    }
}

impl Uffd {
    /// Takes over a descriptor from a stub.
    ///
    /// # Errors
    /// If it is another file: a call on that could block its thread for ever.
    pub fn received(fd: OwnedFd) -> io::Result<Uffd> {
        let kind = std::fs::read_link(format!("/proc/thread-self/fd/{}", fd.as_raw_fd()))?;
        match kind.as_os_str() == "anon_inode:[userfaultfd]" {
            true => Ok(Uffd::from_fd(fd)),
            false => Err(io::Error::other("its stub sent another file than a userfaultfd")),
        }
    }

    /// Takes over a userfaultfd.
    pub fn from_fd(fd: OwnedFd) -> Uffd {
        // SAFETY: flags of our own descriptor. Without O_NONBLOCK a read could block its thread for
        // ever.
        unsafe {
            libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) | libc::O_NONBLOCK)
        };
        Uffd { fd, probed: AtomicU64::new(HIGHEST_PAGE), tells_accesses: AtomicBool::new(false) }
    }

    /// Sets the page about which [`Uffd::gone`] and [`Uffd::event_pending`] ask: one that the
    /// program does not use.
    pub fn probe_at(&self, page: u64) {
        self.probed.store(page, Relaxed);
    }

    fn request<T>(&self, request: u64, argument: &mut T) -> io::Result<()> {
        ioctl(&self.fd, request, argument)
    }

    /// The UFFDIO_API handshake with these features.
    pub fn handshake(&self, features: u64) -> io::Result<()> {
        self.request(UFFDIO_API, &mut Api { api: UFFD_API, features, ioctls: 0 })?;
        self.tells_accesses.store(features & ACCESSES == ACCESSES, Relaxed);
        Ok(())
    }

    /// Registers a range for missing pages. Idempotent.
    pub fn register(&self, start: u64, len: u64) -> io::Result<()> {
        self.register_for(start, len, REGISTER_MODE_MISSING)
    }

    /// Registers memory of the program: also for accesses if it has [`ACCESSES`], else, where the
    /// stub takes pages of read-only mappings, for write protection.
    pub fn register_memory(&self, start: u64, len: u64) -> io::Result<()> {
        let protects = match self.tells_accesses.load(Relaxed) {
            true => REGISTER_MODE_RWP,
            false if maps::can_ask() => REGISTER_MODE_WP,
            false => 0,
        };
        self.register_for(start, len, REGISTER_MODE_MISSING | protects)
    }

    /// Begins to watch for accesses: until one of these pages that are present now is accessed, it
    /// is not [`maps::Pagemap::accessed`].
    ///
    /// # Errors
    /// `EAGAIN` while an event is unread; when a part was not registered for accesses.
    pub fn watch_accesses(&self, start: u64, len: u64) -> io::Result<()> {
        let range = Range { start, len };
        self.request(UFFDIO_RWPROTECT, &mut ReadWriteProtect { range, mode: RWPROTECT_MODE_RWP })
    }

    fn register_for(&self, start: u64, len: u64, mode: u64) -> io::Result<()> {
        self.request(UFFDIO_REGISTER, &mut Register { range: Range { start, len }, mode, ioctls: 0 })
    }

    /// Unregisters a range: the kernel fills its missing pages itself from now on. Wakes threads
    /// that wait for one.
    ///
    /// # Errors
    /// When no part of it is registered.
    pub fn unregister(&self, start: u64, len: u64) -> io::Result<()> {
        self.request(UFFDIO_UNREGISTER, &mut Range { start, len })
    }

    /// Fills pages at `to` with `bytes` without waking any thread.
    pub fn copy(&self, to: u64, bytes: &[u8]) -> Fill {
        self.fill(to, bytes, MODE_DONTWAKE)
    }

    /// As [`Uffd::copy`], and wakes all threads that wait for a page that it filled.
    pub fn copy_and_wake(&self, to: u64, bytes: &[u8]) -> Fill {
        self.fill(to, bytes, 0)
    }

    fn fill(&self, to: u64, bytes: &[u8], mode: u64) -> Fill {
        let mut copy = Copy { dst: to, src: bytes.as_ptr() as u64, len: bytes.len() as u64, mode, copied: 0 };
        let Err(error) = self.request(UFFDIO_COPY, &mut copy) else { return Fill::Done };
        Fill::failed(&error, copy.copied.max(0) as u64 / PAGE_BYTES as u64)
    }

    /// Maps the kernel's page of zeros at `page` if nothing is there, without waking any thread. A
    /// guard page is something: [`Uffd::copy`] would replace it.
    pub fn zero(&self, page: u64) -> Fill {
        let range = Range { start: page, len: PAGE_BYTES as u64 };
        let mut zero = ZeroPage { range, mode: MODE_DONTWAKE, mapped: 0 };
        let Err(error) = self.request(UFFDIO_ZEROPAGE, &mut zero) else { return Fill::Done };
        Fill::failed(&error, 0)
    }

    /// Removes the write protection of a page, and wakes threads that wait to write to it.
    pub fn unprotect(&self, page: u64) -> Fill {
        let range = Range { start: page, len: PAGE_BYTES as u64 };
        let result = self.request(UFFDIO_WRITEPROTECT, &mut WriteProtect { range, mode: 0 });
        let Err(error) = result else { return Fill::Done };
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Fill::EventPending(0),
            Some(libc::ESRCH) => Fill::Gone,
            _ => Fill::NotMapped(0),
        }
    }

    /// Asks about a page without changing anything: UFFDIO_CONTINUE maps a page of the page cache,
    /// and private anonymous memory has none. (UFFDIO_COPY would fill the page if it were missing.)
    fn probe(&self, at: u64) -> Probe {
        let range = Range { start: at, len: PAGE_BYTES as u64 };
        let result = self.request(UFFDIO_CONTINUE, &mut Continue { range, mode: 0, mapped: 0 });
        let Err(error) = result else { return Probe::Registered };
        match error.raw_os_error() {
            Some(libc::ENOENT) => Probe::NotRegistered,
            Some(libc::EAGAIN) => Probe::EventPending,
            Some(libc::ESRCH) => Probe::Gone,
            // EINVAL: the kernel returns it after it has found that the mapping is registered.
            _ => Probe::Registered,
        }
    }

    /// Whether a page is in a registered mapping. `None` while an event is unread, and when the
    /// memory is gone.
    pub fn is_registered(&self, at: u64) -> Option<bool> {
        match self.probe(at) {
            Probe::Registered => Some(true),
            Probe::NotRegistered => Some(false),
            Probe::EventPending | Probe::Gone => None,
        }
    }

    /// Whether an event is unread.
    pub fn event_pending(&self) -> bool {
        self.probe(self.probed.load(Relaxed)) == Probe::EventPending
    }

    /// Whether the process's memory is gone (exit or exec). False while an event is unread.
    pub fn gone(&self) -> bool {
        self.probe(self.probed.load(Relaxed)) == Probe::Gone
    }

    /// Wakes all threads that wait for a page in the range.
    pub fn wake(&self, start: u64, len: u64) {
        // If it fails, there is no thread to wake.
        let _ = self.request(UFFDIO_WAKE, &mut Range { start, len });
    }

    /// Number of unread page faults, without events.
    pub fn faults_unread(&self) -> usize {
        let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.fd.as_raw_fd())).unwrap_or_default();
        let pending = text.lines().find_map(|line| line.strip_prefix("pending:"));
        pending.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    /// Reads at most `most` messages without waiting. The kernel returns faults before events.
    pub fn read_some(&self, inbox: &mut Inbox, events: &mut Vec<Event>, most: usize) -> io::Result<usize> {
        let room = std::mem::size_of_val(&inbox.raw[..most.min(inbox.raw.len())]);
        // SAFETY: the buffer has `room` bytes.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), inbox.raw.as_mut_ptr().cast(), room) };
        if got < 0 {
            let error = io::Error::last_os_error();
            return if error.raw_os_error() == Some(libc::EAGAIN) { Ok(0) } else { Err(error) };
        }
        let count = got as usize / 32;
        for raw in &inbox.raw[..count] {
            // SAFETY: Message is plain integers of the same size.
            let message: Message = unsafe { std::mem::transmute(*raw) };
            let event = decode(&message);
            if let Some(Event::Fork(child)) = &event {
                child.tells_accesses.store(self.tells_accesses.load(Relaxed), Relaxed);
            }
            events.extend(event);
        }
        Ok(count)
    }
}

fn decode(message: &Message) -> Option<Event> {
    let [a, b, c] = message.arg;
    Some(match message.event {
        // flags, address, ptid
        0x12 => Event::Fault { address: b, write: a & 1 != 0, protected: a & 2 != 0, tid: c as u32 },
        0x13 => {
            // SAFETY: the kernel made this descriptor for us while we read.
            let fd = unsafe { OwnedFd::from_raw_fd(a as u32 as RawFd) };
            set_cloexec(&fd);
            Event::Fork(Uffd::from_fd(fd))
        }
        0x14 => Event::Remap { from: a, to: b, len: c },
        0x15 => Event::Remove { start: a, end: b },
        0x16 => Event::Unmap { start: a, end: b },
        _ => return None,
    })
}

fn set_cloexec(fd: &OwnedFd) {
    // SAFETY: sets a flag of a descriptor that we own.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
}

/// A request of [`memfit_wire::uffd`].
pub(crate) fn ioctl<T>(fd: &OwnedFd, request: u64, argument: &mut T) -> io::Result<()> {
    // SAFETY: each request is called with the struct of which its number has the size; COPY reads
    // bytes that its caller has borrowed.
    match unsafe { libc::ioctl(fd.as_raw_fd(), request as _, std::ptr::from_mut(argument)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Uffd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// `/dev/userfaultfd`, to lend to stubs that cannot make a userfaultfd themselves.
pub fn device() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/userfaultfd")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_write_to_a_protected_page_is_told_from_one_to_a_missing_page() {
        for (flags, is_protected) in [(0u64, false), (1, false), (3, true)] {
            let message = Message { event: 0x12, reserved: [0; 7], arg: [flags, 0x7000, 42] };
            let Some(Event::Fault { address, write, protected, tid }) = decode(&message) else { panic!("no fault") };
            assert_eq!((address, write, protected, tid), (0x7000, flags != 0, is_protected, 42));
        }
    }

    #[test]
    fn no_descriptor_waits_in_a_read() {
        let (one, _other) = UnixStream::pair().unwrap();
        let uffd = Uffd::from_fd(one.into());
        // SAFETY: flags of a live descriptor.
        let flags = unsafe { libc::fcntl(uffd.as_raw_fd(), libc::F_GETFL) };
        assert_ne!(flags & libc::O_NONBLOCK, 0);
    }
}
