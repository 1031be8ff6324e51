//! Which signals were sent to our whole process group.
//!
//! `kill` tells nobody whether it was called for a process or for its group. So a child stays in
//! the group that blocks all signals and does nothing: what is pending there was sent to the group,
//! as nobody knows the child. The kernel goes through a group from its newest member to the oldest,
//! so the child has a signal before us.

use crate::process::{send_signal, set_name, Pid};
use std::{fs, io};

/// Name of the child in `ps`.
pub const NAME: &str = "memfit-sigprobe";

/// The child; it ends with us.
#[derive(Debug)]
pub struct SignalProbe(Pid);

impl SignalProbe {
    /// Starts one.
    ///
    /// # Errors
    /// As `clone` gives them.
    pub fn start() -> io::Result<SignalProbe> {
        // SAFETY: asks for a number.
        let parent = unsafe { libc::getpid() };
        let (flags, unused): (libc::c_long, libc::c_long) = (libc::SIGCHLD.into(), 0);
        // SAFETY: a fork; the child makes bare system calls only, whatever other threads of ours
        // held locks.
        match unsafe { libc::syscall(libc::SYS_clone, flags, unused, unused, unused, unused) } {
            -1 => Err(io::Error::last_os_error()),
            0 => stand_by(parent),
            pid => Ok(SignalProbe(pid as Pid)),
        }
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.0
    }

    /// Whether a signal was sent to the group since it was started. It knows of only one of each
    /// kind: then start another.
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
        let _ = send_signal(self.0, libc::SIGKILL, None);
    }
}

/// What the child does.
fn stand_by(parent: Pid) -> ! {
    // SAFETY: plain numbers, and a set that lives; changes this process alone, whose descriptors
    // are copies.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
    }
    set_name(c"memfit-sigprobe");
    // It may have died before.
    // SAFETY: asks for a number; waits for a signal, of which none comes but the last one.
    while unsafe { libc::getppid() } == parent {
        // SAFETY: as above.
        unsafe { libc::pause() };
    }
    crate::process::exit_now(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_what_it_is_sent() {
        let signal_probe = SignalProbe::start().unwrap();
        assert!(!signal_probe.has_seen(libc::SIGUSR1));
        // What blocks it is the child's first act.
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
