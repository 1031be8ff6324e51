//! Finding the descendants of a process from `/proc`.
//!
//! The tree below a subreaper never loses a member: the kernel gives an orphan to the subreaper,
//! not to init. So a walk over parent ids finds everything that the command ever started, in any
//! session and process group.
//!
//! A pid identifies a process only until it is reaped. So [`ProcStat`] has the start time, and
//! [`kill_descendants`] signals through a pidfd and compares the start time after it has opened the
//! pidfd.

use crate::process::{Pid, PidFd};
use crate::procfs;
use std::collections::HashSet;
use std::fs;
use std::io;

/// The fields of `/proc/PID/stat` that memfit needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcStat {
    /// Process id.
    pub pid: Pid,
    /// Command name, at most 15 bytes, not unique.
    pub comm: String,
    /// State letter: `R`, `S`, `D`, `T`, `t`, `Z`, `X`, `I`.
    pub state: char,
    /// Parent.
    pub ppid: Pid,
    /// Process group.
    pub pgrp: Pid,
    /// Session.
    pub session: Pid,
    /// Controlling terminal as a device number; 0 is none.
    pub tty_nr: i32,
    /// Foreground process group of the terminal; -1 is none.
    pub tpgid: Pid,
    /// Made by fork, without an exec since: it shares its parent's pages until one of them writes.
    pub forked: bool,
    /// Threads that have not been removed, the first one included.
    pub threads: u32,
    /// Clock ticks between boot and the start of the process: together with `pid` it identifies a
    /// process for good.
    pub start_ticks: u64,
}

impl ProcStat {
    /// Whether the process has ended (it may not be reaped yet). The state is that of its first
    /// thread; the others can live on.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') && self.threads < 2
    }

    /// Whether the process is stopped by a job-control signal.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.state == 'T'
    }

    /// Whether the process belongs to the foreground group of its terminal.
    #[must_use]
    pub fn in_foreground(&self) -> bool {
        self.tty_nr != 0 && self.tpgid == self.pgrp
    }
}

/// Parses the contents of `/proc/PID/stat`. `None` if the format is wrong.
///
/// The command name may contain spaces and parentheses, so it ends at the *last* closing one.
#[must_use]
pub fn parse_stat(text: &str) -> Option<ProcStat> {
    let open = text.find('(')?;
    let close = text.rfind(')')?;
    let pid = text.get(..open)?.trim().parse().ok()?;
    let comm = text.get(open + 1..close)?.to_owned();
    // The first of these is field 3, the state.
    let fields: Vec<&str> = text.get(close + 1..)?.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<i64>().ok();
    Some(ProcStat {
        pid,
        comm,
        state: fields.first()?.chars().next()?,
        ppid: Pid::try_from(number(4)?).ok()?,
        pgrp: Pid::try_from(number(5)?).ok()?,
        session: Pid::try_from(number(6)?).ok()?,
        tty_nr: number(7)? as i32,
        tpgid: Pid::try_from(number(8)?).ok()?,
        // PF_FORKNOEXEC.
        forked: number(9)? & 0x40 != 0,
        threads: fields.get(20 - 3)?.parse().ok()?,
        start_ticks: fields.get(22 - 3)?.parse().ok()?,
    })
}

/// Reads one process; `None` when it is gone.
#[must_use]
pub fn read_stat(pid: Pid) -> Option<ProcStat> {
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&String::from_utf8_lossy(&bytes))
}

/// Every process visible in `/proc`, including zombies.
///
/// # Errors
/// When `/proc` cannot be listed (not mounted), or there is no descriptor left to read a process.
pub fn snapshot() -> io::Result<Vec<ProcStat>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<Pid>().ok()) else { continue };
        match fs::read(format!("/proc/{pid}/stat")) {
            Ok(bytes) => all.extend(parse_stat(&String::from_utf8_lossy(&bytes))),
            Err(error) if no_descriptor(&error) => return Err(error),
            // A process may end between the listing and the reading.
            Err(_) => {}
        }
    }
    Ok(all)
}

/// Whether an error says that this process or the machine has no descriptor left.
#[must_use]
pub fn no_descriptor(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// The descendants of `root` in a snapshot, parents before children, without `root` itself and
/// without the pids in `except` and everything below them.
#[must_use]
pub fn descendants_in<'a>(all: &'a [ProcStat], root: Pid, except: &HashSet<Pid>) -> Vec<&'a ProcStat> {
    let mut seen: HashSet<Pid> = except.clone();
    seen.insert(root);
    let mut found: Vec<&ProcStat> = Vec::new();
    let mut parents = vec![root];
    while !parents.is_empty() {
        let mut next = Vec::new();
        for process in all {
            if parents.contains(&process.ppid) && seen.insert(process.pid) {
                next.push(process.pid);
                found.push(process);
            }
        }
        parents = next;
    }
    found
}

/// The living descendants of `root`, parents before children; see [`descendants_in`] for `except`.
///
/// # Errors
/// When `/proc` cannot be listed.
pub fn descendants(root: Pid, except: &HashSet<Pid>) -> io::Result<Vec<ProcStat>> {
    let all = snapshot()?;
    Ok(descendants_in(&all, root, except).into_iter().filter(|process| !process.is_dead()).cloned().collect())
}

/// Whether `pid` is `root` or below it at the moment. A chain of more than 4096 parents counts as
/// not below.
#[must_use]
pub fn is_at_or_below(pid: Pid, root: Pid) -> bool {
    let mut current = pid;
    for _ in 0..4096 {
        if current == root {
            return true;
        }
        match read_stat(current) {
            Some(process) if process.ppid > 0 => current = process.ppid,
            _ => return false,
        }
    }
    false
}

/// The living descendants of `root` but for those that are `known`, at a cost that grows only with
/// the number of processes in the tree; [`descendants`] reads all of `/proc` (some milliseconds).
/// It can miss a child whose sibling ends meanwhile. Falls back to [`descendants`] on kernels
/// without the lists of children.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn descendants_by_lists(root: Pid, known: impl Fn(Pid) -> bool) -> io::Result<Vec<ProcStat>> {
    let Some(mut next) = children(root) else {
        let mut all = descendants(root, &HashSet::new())?;
        all.retain(|process| !known(process.pid));
        return Ok(all);
    };
    let (mut seen, mut found) = (HashSet::from([root]), Vec::new());
    while let Some(pid) = next.pop() {
        if seen.insert(pid) {
            next.extend(children(pid).unwrap_or_default());
            let stat = if known(pid) { None } else { read_stat(pid) };
            found.extend(stat.filter(|process| !process.is_dead()));
        }
    }
    Ok(found)
}

/// The direct children of a process, including zombies, from `/proc/PID/task/TID/children`: some
/// microseconds per thread. `None` if the process is gone or the kernel has no such files.
fn children(pid: Pid) -> Option<Vec<Pid>> {
    let mut children = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let task = task.ok()?.path();
        let text = match fs::read_to_string(task.join("children")) {
            Ok(text) => text,
            // The thread has ended: its children have another parent now.
            Err(_) if !task.exists() => continue,
            Err(_) => return None,
        };
        children.extend(text.split_ascii_whitespace().filter_map(|word| word.parse::<Pid>().ok()));
    }
    Some(children)
}

/// The direct children of this process, including zombies; cheap where the kernel has lists of
/// them.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn own_children() -> io::Result<Vec<Pid>> {
    let me = std::process::id() as Pid;
    match children(me) {
        Some(children) => Ok(children),
        None => Ok(snapshot()?.into_iter().filter(|p| p.ppid == me).map(|p| p.pid).collect()),
    }
}

/// Living processes of any user whose initial environment has `entry` (as `NAME=value`), except for
/// this process.
///
/// Skips processes of other users, whose environment the kernel does not show. Programs can
/// overwrite their environment, so this finds stragglers but proves nothing.
///
/// # Errors
/// When `/proc` cannot be listed.
pub fn with_environment(entry: &[u8]) -> io::Result<Vec<ProcStat>> {
    let me = std::process::id() as Pid;
    let has_entry = |process: &ProcStat| {
        procfs::read_memory_bytes(process.pid, "environ")
            .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|variable| variable == entry))
    };
    Ok(snapshot()?.into_iter().filter(|p| p.pid != me && !p.is_dead() && has_entry(p)).collect())
}

/// Kills `process` if it still is the same process. True when a signal was sent.
#[must_use]
pub fn kill_exactly(process: &ProcStat) -> bool {
    let Ok(pidfd) = PidFd::open(process.pid) else { return false };
    let same = read_stat(process.pid).is_some_and(|now| now.start_ticks == process.start_ticks);
    same && pidfd.signal(libc::SIGKILL).is_ok()
}

/// Kills each of these that still is the same process.
pub fn kill_all(processes: &[ProcStat]) {
    for process in processes {
        let _ = kill_exactly(process);
    }
}

/// Sends SIGKILL once to every living descendant of `root` outside of `except`, and returns those
/// that were alive.
///
/// A process that forks while the list is made escapes one round: call this until it returns
/// nothing.
///
/// # Errors
/// When `/proc` cannot be listed.
pub fn kill_descendants(root: Pid, except: &HashSet<Pid>) -> io::Result<Vec<ProcStat>> {
    let alive = descendants(root, except)?;
    kill_all(&alive);
    Ok(alive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    fn process(pid: Pid, ppid: Pid) -> ProcStat {
        ProcStat {
            pid,
            comm: "x".into(),
            state: 'S',
            ppid,
            pgrp: 1,
            session: 1,
            tty_nr: 0,
            tpgid: -1,
            forked: false,
            threads: 1,
            start_ticks: 7,
        }
    }

    #[test]
    fn parses_a_name_with_parentheses_and_spaces() {
        let line = "42 (a) S (b) T 7 41 40 34816 43 4194304 1 0 0 0 0 0 0 0 20 0 1 0 12345 1000 2 184467 1 1 0 0";
        let stat = parse_stat(line).unwrap();
        assert_eq!(stat.comm, "a) S (b");
        assert_eq!((stat.pid, stat.ppid, stat.pgrp, stat.tty_nr, stat.tpgid), (42, 7, 41, 34816, 43));
        assert_eq!((stat.start_ticks, stat.forked), (12345, false));
        assert!(parse_stat(&line.replace("4194304", "4194368")).unwrap().forked);
        assert!(stat.is_stopped() && !stat.is_dead() && !stat.in_foreground());
        let ended = |threads| ProcStat { state: 'Z', threads, ..stat.clone() }.is_dead();
        assert!(ended(1) && !ended(2), "its first thread has ended, and another one lives");
    }

    #[test]
    fn refuses_what_is_no_stat_line() {
        for text in ["", "1", "1 (", "1 )(", "x (y) S 1 2 3", "1 (y) S 1 2 3"] {
            assert_eq!(parse_stat(text), None, "{text:?}");
        }
    }

    #[test]
    fn finds_a_tree_in_any_order_and_skips_exceptions() {
        let all = [process(9, 5), process(5, 2), process(2, 1), process(3, 1), process(4, 3), process(7, 99)];
        let pids = |root, except: &[Pid]| {
            descendants_in(&all, root, &except.iter().copied().collect()).iter().map(|p| p.pid).collect::<Vec<_>>()
        };
        assert_eq!(pids(1, &[]), [2, 3, 5, 4, 9]);
        assert_eq!(pids(1, &[3]), [2, 5, 9]);
        assert_eq!(pids(5, &[]), [9]);
        assert_eq!(pids(9, &[]), [] as [Pid; 0]);
    }

    #[test]
    fn a_cycle_of_parents_ends() {
        let all = [process(1, 2), process(2, 1)];
        assert_eq!(descendants_in(&all, 1, &HashSet::new()).len(), 1);
    }

    #[test]
    fn sees_and_kills_a_real_grandchild() {
        let mut child = Command::new("sh")
            .args(["-c", "MEMFIT_TEST_MARK=proctree sleep 100 & wait"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let root = child.id() as Pid;
        let sleeper = loop {
            // The shell shows up with the same name until it has called exec.
            if let Some(found) = descendants(root, &HashSet::new()).unwrap().into_iter().find(|p| p.comm == "sleep") {
                break found;
            }
        };
        assert_eq!(sleeper.ppid, root);
        let pids = |found: io::Result<Vec<ProcStat>>| found.unwrap().iter().map(|p| p.pid).collect::<Vec<_>>();
        assert_eq!(pids(descendants_by_lists(root, |_| false)), [sleeper.pid]);
        let below_me = |known| pids(descendants_by_lists(std::process::id() as Pid, |pid| pid == known));
        assert!(below_me(root).contains(&sleeper.pid) && !below_me(root).contains(&root));
        assert!(is_at_or_below(sleeper.pid, root) && is_at_or_below(sleeper.pid, std::process::id() as Pid));
        assert!(!is_at_or_below(root, sleeper.pid));
        assert!(own_children().unwrap().contains(&root));
        // In an exec the kernel gives a process its name before its environment.
        let marked = || with_environment(b"MEMFIT_TEST_MARK=proctree").unwrap().iter().any(|p| p.pid == sleeper.pid);
        let until = Instant::now() + Duration::from_secs(120);
        while !marked() {
            assert!(Instant::now() < until, "never seen by its environment");
        }

        let other = ProcStat { start_ticks: sleeper.start_ticks + 1, ..sleeper.clone() };
        assert!(!kill_exactly(&other), "a reused pid must not be killed");
        while !kill_descendants(root, &HashSet::new()).unwrap().is_empty() {}
        assert!(child.wait().unwrap().code().is_some());
    }
}
