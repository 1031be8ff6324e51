//! How many processes the pager has descriptors for.
//!
//! The pager takes a process on only if there are descriptors for all that it may need. So some are
//! always left for what must not fail: a fork event, a connection that is turned away, a look into
//! /proc for a process that must be killed.

use crate::state::Shared;
use memfit_os::event::EventFd;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Descriptors that a paged process takes: userfaultfd, wake-up, segment, pagemap, maps, a thread's
/// stat, an io_uring for the swap tier and one for files; and the userfaultfd of a child, which a
/// FORK event brings.
const PAGED: usize = 9;
/// Descriptors of each process with a stub: its socket, statm, and the stat of its first thread.
const CLIENT: usize = 3;
/// Descriptors of each file whose mappings the pager fills: one for the kernel's page cache, one
/// past it, the lease, the memfd.
const FILE: usize = 4;
/// Descriptors that are left free.
const RESERVED: usize = 16;
/// Time between two tries when a descriptor is missing all the same.
pub const RETRY: Duration = Duration::from_millis(10);

/// Counts of what takes descriptors.
#[derive(Debug)]
pub struct Room {
    /// Descriptors of the pager itself, and the limit.
    base: usize,
    limit: usize,
    /// Processes with a stub.
    pub clients: AtomicUsize,
    /// Processes without one whose statm is open.
    pub unmanaged: AtomicUsize,
}

impl Room {
    /// Counts the descriptors that are open now.
    pub fn new() -> Room {
        let base = std::fs::read_dir("/proc/self/fd").map_or(32, Iterator::count);
        let limit = memfit_os::process::descriptor_limit().map_or(usize::MAX, |(soft, _)| soft as usize);
        Room { base, limit, clients: AtomicUsize::new(0), unmanaged: AtomicUsize::new(0) }
    }
}

impl Shared {
    /// Whether another process can be paged.
    pub fn room_for_paged(&self) -> bool {
        self.descriptors_left() >= PAGED + CLIENT
    }

    /// Whether another process can be taken on, beside so many connections that have said nothing
    /// yet.
    pub fn room_for_client(&self, pending: usize) -> bool {
        self.descriptors_left() >= CLIENT + pending
    }

    /// Whether mappings of another file can be filled.
    pub fn room_for_file(&self) -> bool {
        self.descriptors_left() >= FILE + PAGED + CLIENT
    }

    /// Whether a process without a stub may have a descriptor for good. A quarter of all is left
    /// for those that need some.
    pub fn room_for_unmanaged(&self) -> bool {
        self.descriptors_left() >= self.room.limit / 4
    }

    fn descriptors_left(&self) -> usize {
        let Room { base, limit, clients, unmanaged } = &self.room;
        let unmanaged = unmanaged.load(Relaxed);
        let paged = self.procs.lock().len() * PAGED + self.unnamed.doomed();
        let files = self.files.count() * FILE;
        limit.saturating_sub(base + RESERVED + clients.load(Relaxed) * CLIENT + unmanaged + paged + files)
    }
}

/// An eventfd to wake a thread. Waits for a descriptor, of which some are left free for it.
pub fn event() -> EventFd {
    loop {
        match EventFd::new() {
            Ok(event) => return event,
            Err(_) => std::thread::sleep(RETRY),
        }
    }
}

/// The error when no descriptor is left.
pub fn full() -> io::Error {
    io::Error::other("the pager has no descriptor left: raise ulimit -n")
}

/// The error when the kernel gives no thread.
pub fn no_thread(error: &io::Error) -> io::Error {
    io::Error::other(format!("the pager cannot start a thread: {error}; raise ulimit -u or pids.max"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OnFull;
    use memfit_core::scheme::Scheme;

    #[test]
    fn processes_without_a_stub_leave_descriptors_to_others() {
        let mut shared = Shared::new(Scheme::default(), 64 << 20, OnFull::Stop, None).unwrap();
        (shared.room.base, shared.room.limit) = (20, 110);
        let mut open = 0;
        while shared.room_for_unmanaged() {
            open += 1;
            shared.room.unmanaged.store(open, Relaxed);
        }
        assert_eq!(open, 110 - 20 - RESERVED - 110 / 4 + 1);
        assert!(shared.room_for_paged());
        shared.room.unmanaged.store(90, Relaxed);
        assert!(!shared.room_for_paged(), "they are counted");
    }
}
