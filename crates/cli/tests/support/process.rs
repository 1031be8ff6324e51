//! Runs a program with a time limit: its output, its peak of anonymous memory, and where it hangs.

use memfit_os::procfs::{self, RssReader};
use memfit_os::proctree::{self, ProcStat};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time between two samples of the sizes.
const SAMPLE: Duration = Duration::from_millis(10);

/// Size above which to ask what a process shares with its relatives, bytes.
const SHARED_MAYBE: u64 = 8 << 20;

pub struct Limits {
    /// On a machine of usual speed.
    pub time: Duration,
    /// Whether to measure the peak: that takes a part of a CPU, and slows a paged program.
    pub peak: bool,
}

impl Limits {
    pub fn of(time: Duration) -> Limits {
        Limits { time, peak: false }
    }
}

/// What a program did.
pub struct Ran {
    pub code: Option<i32>,
    pub out: Vec<u8>,
    pub err: String,
    pub time: Duration,
    /// Peak of the anonymous memory of the tree, as sampled, bytes; 0 if it was not measured.
    pub peak: u64,
    pub timed_out: bool,
    /// What all threads did at the time limit.
    pub hang: String,
}

/// Kills the command when the thread that starts it ends, so that nothing is left when a test is
/// killed for taking too long. memfit ends its tree then.
pub fn dies_with_this_thread(command: &mut Command) {
    let die = || {
        // SAFETY: a plain system call on the child itself.
        match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: it makes one system call, allocates nothing and takes no lock.
    unsafe { command.pre_exec(die) };
}

/// Runs a command to its end or its time limit, which kills its tree. The environment is small and
/// the same everywhere, so that outputs can be compared.
pub fn run(mut command: Command, directory: &Path, limits: &Limits) -> Ran {
    let (out, err) = (directory.join("stdout"), directory.join("stderr"));
    command.current_dir(directory).stdin(Stdio::null());
    command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
    for name in ["MEMFIT_SOCKET", "MEMFIT_PID", "MEMFIT_STUB", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME"] {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C").env("PYTHONHASHSEED", "0").env("PYTHONDONTWRITEBYTECODE", "1").process_group(0);
    dies_with_this_thread(&mut command);
    let time = limits.time * super::slowness();
    let start = Instant::now();
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let root = child.id() as i32;
    let mut sizes = Sizes::default();
    let mut hang = String::new();
    let mut timed_out = false;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if limits.peak {
            sizes.sample(&tree_by_lists(root));
        }
        if !timed_out && start.elapsed() > time {
            timed_out = true;
            let tree = tree_of(root);
            hang = report(&tree);
            kill(root, &tree);
        }
        std::thread::sleep(SAMPLE);
    };
    Ran {
        code: status.code(),
        out: fs::read(out).unwrap(),
        err: String::from_utf8_lossy(&fs::read(err).unwrap()).into_owned(),
        time: start.elapsed(),
        peak: sizes.peak,
        timed_out,
        hang,
    }
}

/// The program and its living descendants.
fn tree_of(root: i32) -> Vec<ProcStat> {
    let Ok(all) = proctree::snapshot() else { return Vec::new() };
    let below: HashSet<i32> = proctree::descendants_in(&all, root, &HashSet::new()).iter().map(|p| p.pid).collect();
    all.into_iter().filter(|p| p.pid == root || below.contains(&p.pid)).filter(|p| !p.is_dead()).collect()
}

/// The same, at a cost that grows with the tree alone. A process whose sibling is just ending can
/// be missing.
fn tree_by_lists(root: i32) -> Vec<ProcStat> {
    let below = proctree::descendants_by_lists(root, |_| false).unwrap_or_default();
    proctree::read_stat(root).into_iter().chain(below).collect()
}

fn kill(root: i32, tree: &[ProcStat]) {
    for process in tree.iter().filter(|process| process.pid != root) {
        let _ = proctree::kill_exactly(process);
    }
    // SAFETY: our own child, not yet waited for, leads this group.
    unsafe { libc::kill(-root, libc::SIGKILL) };
}

#[derive(Default)]
struct Sizes {
    readers: HashMap<(i32, u64), RssReader>,
    peak: u64,
}

impl Sizes {
    fn sample(&mut self, tree: &[ProcStat]) {
        let mut sum = 0;
        for process in tree {
            let key = (process.pid, process.start_ticks);
            let reader = match self.readers.entry(key) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => match RssReader::open(process.pid) {
                    Ok(reader) => new.insert(reader),
                    Err(_) => continue,
                },
            };
            let mut anon = reader.read().map_or(0, |rss| rss.anon);
            if tree.len() > 1 && anon > SHARED_MAYBE {
                // Pages that fork children share count once.
                anon = reader.proportional().map_or(anon, |own| own.anon);
            }
            sum += anon;
        }
        self.readers.retain(|key, _| tree.iter().any(|process| process.pid == key.0));
        self.peak = self.peak.max(sum);
    }
}

/// What each thread of the tree waits for.
fn report(tree: &[ProcStat]) -> String {
    let mut text = String::from("at the end of the time:\n");
    if let Ok(stat) = Command::new(env!("CARGO_BIN_EXE_memfit")).arg("stat").output() {
        text.push_str(&String::from_utf8_lossy(&stat.stdout));
    }
    for process in tree {
        let _ = writeln!(text, "{} {} (child of {})", process.pid, process.comm, process.ppid);
        for tid in procfs::tasks(process.pid) {
            let read = |name: &str| fs::read_to_string(format!("/proc/{}/task/{tid}/{name}", process.pid));
            let state = procfs::task_state(process.pid, tid).unwrap_or('?');
            let (name, channel) = (read("comm").unwrap_or_default(), read("wchan").unwrap_or_default());
            let stack = read("stack").unwrap_or_default();
            let frames: Vec<_> = stack.lines().take(6).filter_map(|line| line.split_whitespace().nth(1)).collect();
            let _ = writeln!(text, "  {tid} {} {state} {channel} {}", name.trim(), frames.join(" < "));
        }
    }
    text
}
