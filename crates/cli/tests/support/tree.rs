//! A run of memfit with its whole tree. Each process has a mark in its environment, so the tree is
//! found whichever process dies.

use memfit_os::proctree::{self, ProcStat};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time for what usually takes milliseconds: only a hang takes longer.
fn limit() -> Duration {
    Duration::from_secs(120) * super::slowness()
}

/// Waits until the condition holds.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let limit = limit();
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// Living members of a tree, as far as they have been started.
#[derive(Debug)]
pub struct Members {
    pub launcher: Option<ProcStat>,
    pub pager: Option<ProcStat>,
    pub command: Option<ProcStat>,
    /// A child of the command.
    pub child: Option<ProcStat>,
}

/// A process of ours and all that it starts; killed when it goes out of scope.
pub struct Tree {
    pub out: PathBuf,
    pub err: PathBuf,
    root: Child,
    status: Option<ExitStatus>,
    entry: String,
}

impl Tree {
    /// Starts a command with its mark. With `own_output` its output goes to files in the directory.
    pub fn start(mut command: Command, directory: &Path, own_output: bool) -> Tree {
        let (out, err) = (directory.join("out"), directory.join("err"));
        if own_output {
            command.stdin(Stdio::null()).stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        }
        for name in ["MEMFIT_SOCKET", "MEMFIT_PID", "MEMFIT_STUB", "LD_PRELOAD"] {
            command.env_remove(name);
        }
        Tree::start_marked(command, directory, out, err)
    }

    /// Starts a command as it is, with its mark and without output.
    pub fn start_in(mut command: Command, directory: &Path) -> Tree {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Tree::start_marked(command, directory, PathBuf::new(), PathBuf::new())
    }

    fn start_marked(mut command: Command, directory: &Path, out: PathBuf, err: PathBuf) -> Tree {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let value = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        command.env("MEMFIT_TEST_TREE", &value).env("LC_ALL", "C").current_dir(directory);
        super::process::dies_with_this_thread(&mut command);
        let root = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Tree { out, err, root, status: None, entry: format!("MEMFIT_TEST_TREE={value}") }
    }

    /// Pid of the started process.
    pub fn root(&self) -> i32 {
        self.root.id() as i32
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.out).unwrap()).into_owned()
    }

    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.err).unwrap()).into_owned()
    }

    /// All living processes of the tree.
    pub fn alive(&self) -> Vec<ProcStat> {
        proctree::with_environment(self.entry.as_bytes()).unwrap()
    }

    /// The members of a run whose launcher is the started process or below it.
    pub fn members(&self) -> Members {
        let alive = self.alive();
        let pager = alive.iter().find(|process| process.comm == "memfit-pager").cloned();
        let launcher = match &pager {
            Some(pager) => alive.iter().find(|process| process.pid == pager.ppid),
            None => alive.iter().find(|process| process.pid == self.root() && process.comm == "memfit"),
        };
        let below = |parent: &ProcStat| {
            alive.iter().find(|process| process.ppid == parent.pid && !process.comm.starts_with("memfit")).cloned()
        };
        let command = launcher.and_then(below);
        let child = command.as_ref().and_then(below);
        Members { launcher: launcher.cloned(), pager, command, child }
    }

    /// Exit code of the started process, as a shell would give it; `None` while it lives.
    pub fn code(&mut self) -> Option<i32> {
        if self.status.is_none() {
            self.status = self.root.try_wait().unwrap();
        }
        self.status.map(|status| status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
    }

    /// Waits for the end of the started process.
    #[track_caller]
    pub fn wait(&mut self) -> i32 {
        eventually("the end of what was started", || self.code().is_some());
        self.code().unwrap_or(-1)
    }

    /// Waits until no process is left, and returns the time that it took.
    #[track_caller]
    pub fn wait_for_all(&mut self, context: &str) -> Duration {
        let time = self.wait_within(limit());
        let left = || self.alive().iter().map(what_it_does).collect::<String>();
        time.unwrap_or_else(|| panic!("left after {:?}:\n{}{context}", limit(), left()))
    }

    /// As `wait_for_all`; `None` if a process is left. A process in exec has no environment for a
    /// moment, so two scans must find none.
    pub fn wait_within(&mut self, limit: Duration) -> Option<Duration> {
        let start = Instant::now();
        let mut gone_after = None;
        while start.elapsed() < limit {
            if self.code().is_none() || !self.alive().is_empty() {
                gone_after = None;
            } else if *gone_after.get_or_insert_with(|| start.elapsed()) + Duration::from_millis(10) < start.elapsed() {
                return gone_after;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let deadline = Instant::now() + limit();
        while Instant::now() < deadline {
            let alive = self.alive();
            if alive.is_empty() {
                break;
            }
            proctree::kill_all(&alive);
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.root.wait();
    }
}

fn what_it_does(process: &ProcStat) -> String {
    let channel = fs::read_to_string(format!("/proc/{}/wchan", process.pid)).unwrap_or_default();
    format!("{} {} (child of {}) {} in {channel}\n", process.pid, process.comm, process.ppid, process.state)
}

/// What a run could leave behind.
#[derive(Debug)]
pub struct Traces {
    descriptors: BTreeSet<String>,
    files: BTreeSet<String>,
    mounts: BTreeSet<String>,
    cgroups: BTreeSet<String>,
    sockets: BTreeSet<String>,
}

impl Traces {
    /// The present state. Other programs use this machine too: only names with memfit in them
    /// count.
    pub fn now(directory: &Path) -> Traces {
        let ours = |text: &String| text.contains("memfit");
        let shared = ["/tmp", "/var/tmp", "/dev/shm", "/run"].map(Path::new);
        let files = shared.into_iter().flat_map(names).filter(ours).chain(names(directory)).collect();
        let lines = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let mounts = lines("/proc/self/mounts").lines().map(str::to_owned).collect();
        let sockets = lines("/proc/net/unix");
        let sockets = sockets.lines().filter_map(|line| line.split_once('@')).map(|(_, name)| name.to_owned());
        let mut cgroups = BTreeSet::new();
        below(Path::new("/sys/fs/cgroup"), 0, &mut cgroups);
        Traces {
            descriptors: fs::read_dir("/proc/self/fd").unwrap().flatten().map(|entry| shown(&entry.path())).collect(),
            files,
            mounts,
            cgroups: cgroups.into_iter().filter(ours).collect(),
            sockets: sockets.filter(ours).collect(),
        }
    }

    /// What is there now and was not before. `ids`: pids of the run; everything that memfit makes
    /// in shared places has one of them in its name.
    fn added(&self, directory: &Path, ids: &[i32]) -> Vec<String> {
        let now = Traces::now(directory);
        let new =
            |before: &BTreeSet<String>, now: BTreeSet<String>| now.difference(before).cloned().collect::<Vec<_>>();
        let of_the_run = |text: &String| {
            text.starts_with(&*directory.to_string_lossy())
                || text.split(|c: char| !c.is_ascii_digit()).any(|number| ids.iter().any(|id| id.to_string() == number))
        };
        let named = [new(&self.files, now.files), new(&self.cgroups, now.cgroups), new(&self.sockets, now.sockets)];
        let mut all: Vec<String> = named.concat().into_iter().filter(of_the_run).collect();
        all.extend(new(&self.descriptors, now.descriptors));
        all.extend(new(&self.mounts, now.mounts).into_iter().filter(|line| line.contains("memfit")));
        all
    }

    /// Asserts that nothing has been added. Waits a while for other threads of this test and for
    /// the kernel to clean up.
    #[track_caller]
    pub fn nothing_added(&self, directory: &Path, ids: &[i32], context: &str) {
        let deadline = Instant::now() + limit();
        loop {
            let added = self.added(directory, ids);
            if added.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "left: {added:#?}\n{context}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn names(directory: &Path) -> Vec<String> {
    let listed = fs::read_dir(directory).into_iter().flatten().flatten();
    listed.map(|entry| entry.path().to_string_lossy().into_owned()).collect()
}

/// A descriptor and its target, so that a reused number shows.
fn shown(path: &Path) -> String {
    let target = fs::read_link(path).map(|target| target.to_string_lossy().into_owned()).unwrap_or_default();
    // The listing itself.
    if target.starts_with("/proc/") {
        return String::new();
    }
    format!("{} {target}", path.display())
}

fn below(directory: &Path, depth: u32, found: &mut BTreeSet<String>) {
    let listed = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in listed.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        found.insert(entry.path().to_string_lossy().into_owned());
        if depth < 6 {
            below(&entry.path(), depth + 1, found);
        }
    }
}
