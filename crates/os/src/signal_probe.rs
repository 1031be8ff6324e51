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

    /// Whether a signal was sent to the group since the start. Pending signals are not counted:
    /// after one was seen, start a new child to see the next of the same kind.
    #[must_use]
    pub fn has_seen(&self, signal: i32) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap_or_default();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        let mask = pending.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
        mask >> (signal - 1) & 1 == 1
    }
}

impl Drop for SignalProbe {
    fn drop(&mut self) {
        kill(self.0);
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
        assert!(!signal_probe.has_seen(libc::SIGUSR1));
        // The child has this name only after it has blocked all signals.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while fs::read_to_string(format!("/proc/{}/comm", signal_probe.pid())).unwrap().trim() != NAME {
            assert!(std::time::Instant::now() < deadline);
            std::thread::yield_now();
        }
        send_signal(signal_probe.pid(), libc::SIGUSR1, None).unwrap();
        assert!(signal_probe.has_seen(libc::SIGUSR1) && !signal_probe.has_seen(libc::SIGUSR2));
        let pid = signal_probe.pid();
        drop(signal_probe);
        let mut status = 0;
        // SAFETY: waits for our own child.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    }
}
