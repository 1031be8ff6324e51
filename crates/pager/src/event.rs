//! eventfd: wakes a thread that polls.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::time::Duration;

/// A counter that makes a descriptor readable.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// At zero.
    pub fn new() -> io::Result<EventFd> {
        // SAFETY: makes a descriptor.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours.
        Ok(EventFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes it readable.
    pub fn raise(&self) {
        let one = 1u64;
        // SAFETY: eight bytes of a live variable.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Makes it unreadable again.
    pub fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes of a live variable.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

/// Descriptors kept for the moment when no other can be had: without one a fork event cannot be read, and the parent would
/// wait in its fork for ever; nor could a process be found and told, or killed.
#[derive(Debug)]
pub struct Spare(Mutex<Vec<EventFd>>);

/// A fork event, what wakes a thread, a connection, files of /proc while a process is looked for; for a few at once.
const SPARE: usize = 12;
/// A process needs so many descriptors to be served.
const NEEDED: u64 = 12;
/// Between two tries when none are left.
const RETRY: Duration = Duration::from_millis(10);

impl Spare {
    /// All of them.
    pub fn new() -> io::Result<Spare> {
        Ok(Spare(Mutex::new((0..SPARE).map(|_| EventFd::new()).collect::<io::Result<_>>()?)))
    }

    /// What wakes the thread of a fork child, and whether there is room for all else that it takes to serve one.
    pub fn for_child(&self) -> (EventFd, bool) {
        loop {
            self.refill();
            if let Ok(new) = EventFd::new() {
                // The lowest free number tells how many are in use.
                let limit = memfit_os::process::descriptor_limit().map_or(u64::MAX, |(soft, _)| soft);
                let room = new.as_raw_fd() as u64 + NEEDED <= limit;
                return (new, room);
            }
            if let Some(one) = self.0.lock().unwrap().pop() {
                return (one, false);
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Makes room for so many descriptors, or waits a moment for somebody else to give one back.
    pub fn give_up(&self, count: usize) {
        let mut kept = self.0.lock().unwrap();
        if kept.is_empty() {
            drop(kept);
            return std::thread::sleep(RETRY);
        }
        let left = kept.len().saturating_sub(count);
        kept.truncate(left);
    }

    /// Takes back what was given up, as far as there is room.
    pub fn refill(&self) {
        let mut kept = self.0.lock().unwrap();
        while kept.len() < SPARE {
            let Ok(more) = EventFd::new() else { break };
            kept.push(more);
        }
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Waits until one of two descriptors is readable; says which.
pub fn poll2(a: RawFd, b: RawFd, ms: i32) -> (bool, bool) {
    let [a, b] = poll([a, b], ms);
    (a, b)
}

/// Waits until one of the descriptors is readable; says which. -1 is none.
pub fn poll<const N: usize>(fds: [RawFd; N], ms: i32) -> [bool; N] {
    let mut fds = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: live pollfds.
    let got = unsafe { libc::poll(fds.as_mut_ptr(), N as libc::nfds_t, ms) };
    fds.map(|fd| got > 0 && fd.revents != 0)
}
