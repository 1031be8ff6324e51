//! Finds out which signals were sent to this process's whole process group.
//!
//! A signal does not say whether `kill` was called for a process or for its group. So a child that
//! blocks all signals and does nothing stays in the group. Nobody knows the child's pid, so a
//! signal that is pending there was sent to the group. The kernel goes through a group from its
//! newest member to its oldest, so the child gets a signal before this process.

use crate::process::{kill, set_name, Pid};
use std::{fs, io};

/// Name of the child in `ps`.
pub const NAME: &str = "memfit-sigprobe";

/// The child; it ends with its parent.
#[derive(Debug)]
pub struct SignalProbe(Pid);

/// Some signals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SignalSet(u64);

impl SignalSet {
    /// Whether a signal is one of them.
    #[must_use]
    pub fn has(self, signal: i32) -> bool {
        self.0 >> (signal - 1) & 1 == 1
    }

    /// Those and others.
    #[must_use]
    pub fn and(self, others: SignalSet) -> SignalSet {
        SignalSet(self.0 | others.0)
    }

    /// Those but one.
    #[must_use]
    pub fn without(self, signal: i32) -> SignalSet {
        SignalSet(self.0 & !(1 << (signal - 1)))
    }
}

impl SignalProbe {
    /// Starts the child.
    ///
    /// # Errors
    /// As `clone` gives them.
    pub fn start() -> io::Result<SignalProbe> {
        // SAFETY: asks for a number.
        let parent = unsafe { libc::getpid() };
        let (flags, unused): (libc::c_long, libc::c_long) = (libc::SIGCHLD.into(), 0);
        // SAFETY: a fork; the child makes only bare system calls, so locks that other threads hold
        // do not matter.
        match unsafe { libc::syscall(libc::SYS_clone, flags, unused, unused, unused, unused) } {
            -1 => Err(io::Error::last_os_error()),
            0 => stand_by(parent),
            pid => Ok(SignalProbe(pid as Pid)),
        }
    }

    /// Pid of the child.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.0
    }

    /// The signals that were sent to the group since the start. They are not counted: after one was
    /// seen, start a new child to see the next of the same kind.
    #[must_use]
    pub fn seen(&self) -> SignalSet {
        pending(self.0)
    }
}

/// The signals that wait in a process which blocks them.
#[must_use]
pub fn pending(pid: Pid) -> SignalSet {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    SignalSet(pending.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0))
}

impl Drop for SignalProbe {
    /// In a container nobody else may reap it.
    fn drop(&mut self) {
        kill(self.0);
        // SAFETY: waits for our own child, which is about to end; a null status is allowed.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
    }
}

/// Main function of the child.
fn stand_by(parent: Pid) -> ! {
    // SAFETY: plain numbers, and a set that lives; changes only this process, whose descriptors are
    // copies.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
    }
    set_name(c"memfit-sigprobe");
    // The parent may have died before the prctl.
    // SAFETY: asks for a number; waits for a signal, of which only SIGKILL is not blocked.
    while unsafe { libc::getppid() } == parent {
        // SAFETY: as above.
        unsafe { libc::pause() };
    }
    crate::process::exit_now(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::send_signal;

    #[test]
    fn sees_what_it_is_sent() {
        let signal_probe = SignalProbe::start().unwrap();
        assert_eq!(signal_probe.seen(), SignalSet::default());
        // The child has this name only after it has blocked all signals.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while fs::read_to_string(format!("/proc/{}/comm", signal_probe.pid())).unwrap().trim() != NAME {
            assert!(std::time::Instant::now() < deadline);
            std::thread::yield_now();
        }
        send_signal(signal_probe.pid(), libc::SIGUSR1, None).unwrap();
        assert!(signal_probe.seen().has(libc::SIGUSR1) && !signal_probe.seen().has(libc::SIGUSR2));
        assert_eq!(signal_probe.seen().without(libc::SIGUSR1), SignalSet::default());
        let pid = signal_probe.pid();
        drop(signal_probe);
        // SAFETY: asks about our own child; a null status is allowed.
        assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, -1, "it is reaped");
    }
}
