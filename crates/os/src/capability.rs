//! Capabilities of this process, and whether its programs have them, too.

use crate::procfs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bit of CAP_SYS_ADMIN.
pub const CAP_SYS_ADMIN: u32 = 21;
/// Bit of CAP_SYS_PTRACE.
pub const CAP_SYS_PTRACE: u32 = 19;
/// Bit of CAP_IPC_LOCK.
pub const CAP_IPC_LOCK: u32 = 14;

const VERSION_3: u32 = 0x2008_0522;

/// Set by [`give_up_own`].
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Sets of capabilities, from /proc/PID/status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sets {
    permitted: u64,
    effective: u64,
    ambient: u64,
    root: bool,
}

impl Sets {
    fn of(status: &str) -> Sets {
        let words = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().split_whitespace()
        };
        let set = |name| words(name).next().and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
        // Real and effective user.
        let root = words("Uid:").take(2).any(|user| user == "0");
        Sets { permitted: set("CapPrm:"), effective: set("CapEff:"), ambient: set("CapAmb:"), root }
    }

    /// Of the calling thread.
    fn own() -> Sets {
        Sets::of(&procfs::read_text("/proc/thread-self/status").unwrap_or_default())
    }

    /// Capabilities that a program does not have which this process executes: `setcap` has given
    /// them to this program's file.
    fn only_own(&self) -> u64 {
        if self.root {
            0
        } else {
            self.permitted & !self.ambient
        }
    }
}

/// Whether the calling thread holds a capability (bit number) in its effective set. In a user
/// namespace of its own that is a right over the namespace, and the kernel may require one over the
/// whole system.
#[must_use]
pub fn has(bit: u32) -> bool {
    Sets::own().effective >> bit & 1 == 1
}

/// Gives up the capabilities that `setcap` gave to the file of this program. The programs that it
/// starts do not have them, and a userfaultfd is made with the rights of the program that it is
/// for. The kernel protects the files in /proc of a process with such capabilities; that ends, too.
/// Must be called while the process has one thread.
///
/// # Errors
/// As `capset` gives them.
pub fn give_up_own() -> io::Result<()> {
    let sets = Sets::own();
    if sets.only_own() == 0 {
        return Ok(());
    }
    keep(sets.permitted & !sets.only_own())?;
    // SAFETY: takes a number.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) };
    GIVEN_UP.store(true, Ordering::Relaxed);
    Ok(())
}

/// Gives up one capability for good, for this thread and those that it starts.
///
/// # Errors
/// As `capset` gives them.
pub fn give_up(bit: u32) -> io::Result<()> {
    let sets = Sets::own();
    match sets.permitted >> bit & 1 {
        0 => Ok(()),
        _ => keep(sets.permitted & !(1 << bit)),
    }
}

/// Gives up all capabilities but these.
fn keep(kept: u64) -> io::Result<()> {
    let header = [VERSION_3, 0];
    // Effective, permitted, inheritable, of the lower 32 capabilities, then of the others.
    let data = [kept as u32, kept as u32, kept as u32, (kept >> 32) as u32, (kept >> 32) as u32, (kept >> 32) as u32];
    // SAFETY: a header and two structures of three words, as version 3 has them.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Whether this process had capabilities of its own and gave them up.
#[must_use]
pub fn gave_up() -> bool {
    GIVEN_UP.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_do_not_inherit() {
        let status = |uid: &str, permitted: &str, ambient: &str| {
            Sets::of(&format!("Name:\tmemfit\nUid:\t{uid}\nCapInh:\t0\nCapPrm:\t{permitted}\nCapEff:\t{permitted}\nCapAmb:\t{ambient}\n"))
        };
        assert_eq!(status("1000\t1000\t1000\t1000", "0000000000080000", "0").only_own(), 1 << CAP_SYS_PTRACE);
        assert_eq!(status("1000\t1000\t1000\t1000", "80001", "80000").only_own(), 1);
        assert_eq!(status("0\t0\t0\t0", "1ffffffffff", "0").only_own(), 0);
        assert_eq!(status("1000\t1000\t1000\t1000", "0", "0").only_own(), 0);
        assert_eq!(Sets::of(""), Sets::default());
    }

    #[test]
    fn a_thread_has_capabilities_of_its_own() {
        let before = has(CAP_SYS_PTRACE);
        let given_up = || {
            give_up(CAP_SYS_PTRACE).unwrap();
            has(CAP_SYS_PTRACE)
        };
        assert!(!std::thread::spawn(given_up).join().unwrap());
        assert_eq!(has(CAP_SYS_PTRACE), before);
    }
}
