//! A control group around one run, of version 1 or 2, with a limit of memory or of tasks; removed
//! whatever happens. In version 2 the controller stays enabled in the root group: the kernel does
//! not tell whether another program has come to use it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Beginning of the names of our groups; the pid of the test follows.
const PREFIX: &str = "memfit-test-";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

pub struct Cgroup {
    path: PathBuf,
    version: Version,
}

impl Cgroup {
    /// A new group with a memory limit, bytes, and no swap. An error says why there can be none
    /// here.
    pub fn of_memory(limit: u64) -> Result<Cgroup, String> {
        if fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() > 1) {
            return Err("swap is on, and the kernel would use it".into());
        }
        let group = Cgroup::new("memory")?;
        let file = if group.version == Version::One { "memory.limit_in_bytes" } else { "memory.max" };
        group.limit(file, limit)?;
        if group.version == Version::Two {
            let _ = fs::write(group.path.join("memory.swap.max"), "0");
        }
        Ok(group)
    }

    /// A new group of version 2 for which the kernel counts waits for memory, and no limit.
    pub fn of_pressure() -> Result<Cgroup, String> {
        let parent = mounted(None).ok_or("no control groups of version 2 are mounted")?;
        let group = Cgroup::below(&parent, Version::Two)?;
        match group.path.join("memory.pressure").exists() {
            true => Ok(group),
            false => Err("the kernel does not count waits for memory (PSI)".into()),
        }
    }

    /// Whether its limits and counts are those of version 2.
    pub fn is_of_version_2(&self) -> bool {
        self.version == Version::Two
    }

    /// A new group with a limit of tasks: processes and threads.
    pub fn of_tasks(limit: u64) -> Result<Cgroup, String> {
        let group = Cgroup::new("pids")?;
        group.allow_tasks(limit)?;
        Ok(group)
    }

    /// Changes the limit of tasks.
    pub fn allow_tasks(&self, limit: u64) -> Result<(), String> {
        self.limit("pids.max", limit)
    }

    /// Its tasks now.
    pub fn tasks(&self) -> u64 {
        self.number("pids.current")
    }

    fn new(controller: &str) -> Result<Cgroup, String> {
        let (parent, version) = hierarchy(controller)?;
        Cgroup::below(&parent, version)
    }

    fn below(parent: &Path, version: Version) -> Result<Cgroup, String> {
        super::left_by_killed(parent, PREFIX).iter().for_each(|path| remove(path));
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| none_in(parent, &error))?;
        Ok(Cgroup { path, version })
    }

    fn limit(&self, file: &str, limit: u64) -> Result<(), String> {
        fs::write(self.path.join(file), limit.to_string()).map_err(|error| none_in(&self.path, &error))
    }

    /// A command that joins the group, then becomes `program`; its arguments follow.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = self.shell();
        command.arg(program);
        command
    }

    /// A shell that joins the group, then becomes the program that its arguments name.
    pub fn shell(&self) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 0 >\"$0\"/cgroup.procs && exec \"$@\""]).arg(&self.path);
        command
    }

    /// How many processes the kernel killed for want of memory.
    pub fn oom_kills(&self) -> u64 {
        let file = if self.version == Version::One { "memory.oom_control" } else { "memory.events" };
        self.counted(file, "oom_kill").expect("the kernel counts its kills")
    }

    /// How often the limit was hit; the kernel then reclaims file pages first.
    pub fn limit_met(&self) -> u64 {
        match self.version {
            Version::One => self.number("memory.failcnt"),
            Version::Two => self.counted("memory.events", "max").unwrap_or(0),
        }
    }

    /// How many tasks the kernel refused for the limit.
    pub fn tasks_refused(&self) -> u64 {
        self.counted("pids.events", "max").unwrap_or(0)
    }

    /// The number in the line of a file that begins with a key.
    fn counted(&self, file: &str, key: &str) -> Option<u64> {
        let text = fs::read_to_string(self.path.join(file)).ok()?;
        text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
    }

    /// Peak size, with file pages and kernel memory, bytes.
    pub fn peak(&self) -> u64 {
        self.number(if self.version == Version::One { "memory.max_usage_in_bytes" } else { "memory.peak" })
    }

    fn number(&self, file: &str) -> u64 {
        fs::read_to_string(self.path.join(file)).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn none_in(place: &Path, error: &io::Error) -> String {
    format!("no control group in {}: {error}; root can make one", place.display())
}

/// The directory where groups of a controller are made.
fn hierarchy(controller: &str) -> Result<(PathBuf, Version), String> {
    if let Some(at) = mounted(Some(controller)) {
        return Ok((at, Version::One));
    }
    let at = mounted(None).ok_or("no control groups are mounted")?;
    let has = |file: &str| {
        fs::read_to_string(at.join(file)).is_ok_and(|text| text.split_whitespace().any(|word| word == controller))
    };
    if !has("cgroup.controllers") {
        return Err(format!("the control groups here have no {controller} controller"));
    }
    if !has("cgroup.subtree_control") {
        fs::write(at.join("cgroup.subtree_control"), format!("+{controller}")).map_err(|error| {
            format!("control groups of {controller} cannot be enabled: {error}; root can, outside a container")
        })?;
    }
    Ok((at, Version::Two))
}

/// Where the hierarchy of version 1 with this controller is mounted; `None`: that of version 2.
fn mounted(controller: Option<&str>) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        match (&fields[..], controller) {
            ([_, at, "cgroup", options, ..], Some(name)) if options.split(',').any(|option| option == name) => Some(at),
            ([_, at, "cgroup2", ..], None) => Some(at),
            _ => None,
        }
        .map(PathBuf::from)
    })
}

/// Kills what is left in the group, which is ours alone, and removes it.
fn remove(path: &Path) {
    for _ in 0..100 {
        for pid in fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default().lines() {
            if let Ok(pid) = pid.parse::<i32>() {
                // SAFETY: a process of our own group; the list is fresh.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
        if fs::remove_dir(path).is_ok() || !path.exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    super::say(&format!("{} could not be removed", path.display()));
}
