//! Leases on files (`F_SETLEASE`): the kernel tells before anybody can change a file.
//!
//! A read lease is given on a file that nobody has open for writing. Whoever opens it for writing,
//! or truncates it by its path, waits until the lease is given back, for at most [`break_time`].
//! `O_NONBLOCK` gets EWOULDBLOCK instead. An open with `O_RDONLY | O_TRUNC` does not wait: the
//! kernel does not take it for a change.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::ptr;
use std::time::Duration;

/// Names in [`crate::probe::file_system`] of those whose files neither another machine nor another
/// file system below (overlay) can change.
const LOCAL: [&str; 6] = ["ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs"];

/// A read lease. Dropped, it is given back.
#[derive(Debug)]
pub struct Lease(File);

impl Lease {
    /// A lease on the file of a descriptor. When somebody wants to change the file, the kernel
    /// sends SIGIO to the thread `waiter`.
    ///
    /// # Errors
    /// As `fcntl` gives them: `EAGAIN` while somebody has the file open for writing, `EACCES` for a
    /// file of another user without CAP_LEASE. `Unsupported` on file systems whose files can be
    /// changed past this one.
    pub fn take(file: BorrowedFd<'_>, waiter: i32) -> io::Result<Lease> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let system = crate::probe::file_system(&path)?;
        if !LOCAL.contains(&&*system.name) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // The lease belongs to this open file: it ends when the file is closed.
        let own = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        #[repr(C)]
        struct Owner {
            kind: i32,
            id: i32,
        }
        const SET_OWNER: i32 = 15;
        const THREAD: i32 = 0;
        let owner = Owner { kind: THREAD, id: waiter };
        // SAFETY: a valid struct f_owner_ex.
        check(unsafe { libc::fcntl(own.as_raw_fd(), SET_OWNER, &raw const owner) })?;
        // SAFETY: changes no memory.
        check(unsafe { libc::fcntl(own.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) })?;
        Ok(Lease(own))
    }

    /// Whether somebody waits to change the file, or the lease is gone.
    pub fn is_wanted(&self) -> bool {
        // SAFETY: changes no memory.
        unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_GETLEASE) != libc::F_RDLCK }
    }
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Whether a descriptor can only read.
pub fn is_read_only(file: BorrowedFd<'_>) -> bool {
    // SAFETY: changes no memory.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    flags >= 0 && flags & libc::O_ACCMODE == libc::O_RDONLY
}

/// How long the kernel waits for a lease before it takes it back. `None` if it does not tell.
pub fn break_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/sys/fs/lease-break-time").ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

/// The thread that is told of wanted leases.
#[derive(Debug)]
pub struct Waiter(libc::sigset_t);

impl Waiter {
    /// The calling thread, which blocks SIGIO from now on.
    pub fn new() -> Waiter {
        // SAFETY: all zeros is a valid set, and the calls get valid pointers to it.
        unsafe {
            let mut set: libc::sigset_t = mem::zeroed();
            libc::sigaddset(&mut set, libc::SIGIO);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut());
            Waiter(set)
        }
    }

    /// Its thread id.
    pub fn id(&self) -> i32 {
        crate::procfs::own_tid()
    }

    /// Waits until a lease is wanted, or that long.
    pub fn wait(&self, at_most: Duration) {
        let time = libc::timespec { tv_sec: at_most.as_secs() as libc::time_t, tv_nsec: at_most.subsec_nanos().into() };
        // SAFETY: a valid set and time; no information is asked for.
        unsafe { libc::sigtimedwait(&self.0, ptr::null_mut(), &time) };
    }
}

impl Default for Waiter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::sync::mpsc;
    use std::time::Instant;

    #[test]
    fn who_opens_the_file_for_writing_waits_for_the_lease() {
        let number = crate::process::random_bytes::<8>().unwrap();
        let path = std::path::Path::new("/var/tmp").join(format!("memfit-lease-{:016x}", u64::from_ne_bytes(number)));
        std::fs::write(&path, b"before").unwrap();
        let file = File::open(&path).unwrap();
        let writer = || OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path);
        let waiter = Waiter::new();
        let open = writer().unwrap();
        let refused = Lease::take(file.as_fd(), waiter.id()).map(|_| ()).map_err(|error| error.raw_os_error());
        drop(open);
        let lease = match (refused, Lease::take(file.as_fd(), waiter.id())) {
            (Err(Some(libc::EAGAIN)), Ok(lease)) => lease,
            (_, Err(error)) if !matches!(error.raw_os_error(), Some(libc::EAGAIN)) => {
                let test = "who_opens_the_file_for_writing_waits_for_the_lease";
                crate::skip::skip(test, &format!("no lease on a file in /var/tmp: {error}"));
                return std::fs::remove_file(&path).unwrap();
            }
            other => panic!("{other:?}"),
        };
        assert!(is_read_only(file.as_fd()) && !lease.is_wanted());
        assert_eq!(writer().unwrap_err().raw_os_error(), Some(libc::EWOULDBLOCK));
        waiter.wait(Duration::from_secs(60));
        assert!(lease.is_wanted());
        let (done, ended) = mpsc::channel();
        let waiting = path.clone();
        let thread = std::thread::spawn(move || {
            std::fs::write(&waiting, b"after").unwrap();
            done.send(()).unwrap();
        });
        assert!(ended.recv_timeout(Duration::from_millis(50)).is_err(), "the writer must wait");
        let begun = Instant::now();
        drop(lease);
        ended.recv().unwrap();
        thread.join().unwrap();
        assert!(begun.elapsed() < break_time().unwrap(), "the lease was not given back");
        std::fs::remove_file(&path).unwrap();
    }
}
