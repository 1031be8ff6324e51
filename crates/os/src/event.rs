//! eventfd wakes a thread that polls; poll.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// A counter that makes a descriptor readable.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A counter at zero.
    ///
    /// # Errors
    /// No descriptor is left.
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

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Waits until one of two descriptors is readable, at most `ms` milliseconds; returns which are.
pub fn poll2(a: RawFd, b: RawFd, ms: i32) -> (bool, bool) {
    let [a, b] = poll([a, b], ms);
    (a, b)
}

/// Waits until one of the descriptors is readable, at most `ms` milliseconds; returns which are. -1
/// is none.
pub fn poll<const N: usize>(fds: [RawFd; N], ms: i32) -> [bool; N] {
    let mut fds = fds.map(watched);
    let _ = poll_all(&mut fds, ms);
    fds.map(is_readable)
}

/// As [`poll`], for any number of descriptors.
pub fn poll_each(fds: impl Iterator<Item = RawFd>, ms: i32) -> Vec<bool> {
    let mut fds: Vec<libc::pollfd> = fds.map(watched).collect();
    let _ = poll_all(&mut fds, ms);
    fds.into_iter().map(is_readable).collect()
}

/// Waits until one of the descriptors is readable (or its other end is closed), at most `timeout`.
///
/// # Errors
/// As `poll` gives them; an interruption returns all false.
pub fn wait_readable<const N: usize>(fds: [BorrowedFd<'_>; N], timeout: Option<Duration>) -> io::Result<[bool; N]> {
    let mut fds = fds.map(|fd| watched(fd.as_raw_fd()));
    // Rounded up, so that a loop with a deadline does not spin through its last millisecond.
    let ms = timeout.map_or(-1, |time| i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
    poll_all(&mut fds, ms)?;
    Ok(fds.map(is_readable))
}

fn watched(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

fn is_readable(fd: libc::pollfd) -> bool {
    fd.revents != 0
}

/// After an error, and an interruption, none is readable.
fn poll_all(fds: &mut [libc::pollfd], ms: i32) -> io::Result<()> {
    // SAFETY: a live array of its length.
    if unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, ms) } >= 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        error => Err(error),
    }
}
