//! Single values of one process from /proc. Files that are read often stay open.

use memfit_wire::PAGE_BYTES;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most reads of a list of threads.
const TASK_READS: u32 = 8;
/// How often the threads of a process without memory are counted at most: see
/// [`RssReader::sample`].
const EMPTY_AGAIN: Duration = Duration::from_millis(100);

/// Resident sizes of a process, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rss {
    /// Anonymous pages.
    pub anon: u64,
    /// Pages of files and of shared memory.
    pub shared: u64,
    /// Address space.
    pub mapped: u64,
    /// Private writable mappings and stacks: the size to which `anon` can grow without a new
    /// mapping.
    pub data: u64,
}

/// Resident sizes in which a page that several processes have counts in parts, bytes.
#[derive(Debug, Clone, Copy)]
pub struct Proportional {
    /// Anonymous pages.
    pub anon: u64,
    /// Shared memory.
    pub shmem: u64,
    /// No anonymous page is another process's as well.
    pub alone: bool,
}

/// Opens a file of `/proc/PID` that shows the memory of a process, such as `smaps`.
///
/// A thread that has ended shows no memory. If it was the first thread, and others live, this is
/// the file of one of them. Such a file can fail with ESRCH (`maps`, `smaps`, `statm`) once that
/// thread ends, too: open it again.
///
/// # Errors
/// When the process is gone, or this process may not open the file.
pub fn open_memory(pid: i32, name: &str) -> io::Result<File> {
    let open = || File::open(format!("{}/{name}", living(pid)));
    for _ in 1..TASK_READS {
        match open() {
            // The thread has ended just now.
            Err(error) if error.kind() == io::ErrorKind::NotFound && threads(pid) > 0 => {}
            opened => return opened,
        }
    }
    open()
}

/// Directory in /proc of a thread that lives; that of the process if none does.
pub(crate) fn living(pid: i32) -> String {
    match living_task(pid) {
        Some(tid) if tid != pid => format!("/proc/{pid}/task/{tid}"),
        _ => format!("/proc/{pid}"),
    }
}

/// A thread of a process that lives: the first one, if it does.
fn living_task(pid: i32) -> Option<i32> {
    let lives = |tid: &i32| !has_ended(pid, *tid);
    if lives(&pid) {
        return Some(pid);
    }
    (threads(pid) > 1).then(|| tasks(pid).into_iter().find(lives))?
}

/// Whether there is no such thread any more, not even as a zombie. Needs no descriptor.
pub fn is_gone(tid: i32) -> bool {
    // SAFETY: signal 0 only asks.
    let failed = unsafe { libc::syscall(libc::SYS_tkill, tid, 0) } != 0;
    failed && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Contents of such a file; none when all threads of the process have ended.
///
/// # Errors
/// As [`open_memory`].
pub fn read_memory_bytes(pid: i32, name: &str) -> io::Result<Vec<u8>> {
    for _ in 0..TASK_READS {
        let mut bytes = Vec::new();
        match open_memory(pid, name)?.read_to_end(&mut bytes) {
            Ok(0) if threads(pid) > 1 => {}
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            read => return read.map(|_| bytes),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ESRCH))
}

/// Text of such a file; empty when all threads of the process have ended.
///
/// # Errors
/// As [`open_memory`].
pub fn read_memory(pid: i32, name: &str) -> io::Result<String> {
    read_memory_bytes(pid, name).map(text_of)
}

/// Text of a /proc file with names in it, see [`text_of`].
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read(path).map(text_of)
}

/// Contents of a /proc file as text. Names of files, sockets and mounts can be any bytes. So can
/// those of programs and threads, which the kernel cuts after 15 bytes.
pub fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn has_ended(pid: i32, tid: i32) -> bool {
    task_state(pid, tid).is_none_or(|state| matches!(state, 'Z' | 'X'))
}

/// Reads resident sizes repeatedly, in 2 us each.
#[derive(Debug)]
pub struct RssReader {
    pid: i32,
    statm: Mutex<File>,
    /// Since when it has no memory, or when its threads were counted last.
    asked: Mutex<Option<Instant>>,
}

impl RssReader {
    /// Opens the file of a process.
    pub fn open(pid: i32) -> io::Result<RssReader> {
        Ok(RssReader { pid, statm: Mutex::new(open_memory(pid, "statm")?), asked: Mutex::new(None) })
    }

    /// As [`RssReader::read`], for a thread that runs before ordinary ones and reads often. A
    /// process without memory has ended, most likely, and its parent may take it out of /proc at
    /// this moment. A thread that looks up its files then waits for the parent without sleeping,
    /// and may keep it from its CPU. So such a process is looked at again once in 100 ms.
    pub fn sample(&self) -> io::Result<Rss> {
        let read = sizes(&self.statm.lock().unwrap_or_else(PoisonError::into_inner));
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if read.as_ref().is_ok_and(|sizes| sizes.mapped > 0) {
            *asked = None;
            return read;
        }
        if asked.get_or_insert_with(Instant::now).elapsed() < EMPTY_AGAIN {
            return read;
        }
        *asked = Some(Instant::now());
        drop(asked);
        self.read()
    }

    /// The current sizes: zeros when all threads have ended, an error when the process is gone.
    pub fn read(&self) -> io::Result<Rss> {
        let mut statm = self.statm.lock().unwrap_or_else(PoisonError::into_inner);
        let mut read = sizes(&statm);
        for _ in 1..TASK_READS {
            if read.as_ref().is_ok_and(|sizes| sizes.mapped > 0) || threads(self.pid) < 2 {
                break;
            }
            *statm = open_memory(self.pid, "statm")?;
            read = sizes(&statm);
        }
        read
    }

    /// Resident shared memory (tmpfs, memfd, MAP_SHARED | MAP_ANONYMOUS), bytes.
    pub fn shmem(&self) -> u64 {
        read_memory(self.pid, "status").map_or(0, |text| field_kib(&text, "RssShmem:"))
    }

    /// Proportional set sizes (anonymous, shared memory): a page that n processes map counts as 1/n
    /// in each. Walks the page tables: milliseconds per GiB.
    pub fn proportional(&self) -> Option<Proportional> {
        let text = read_memory(self.pid, "smaps_rollup").ok()?;
        let [anon, all, shmem] = ["Pss_Anon:", "Anonymous:", "Pss_Shmem:"].map(|key| field_kib(&text, key));
        Some(Proportional { anon, shmem, alone: anon == all })
    }
}

/// The sizes in an open statm.
fn sizes(statm: &File) -> io::Result<Rss> {
    let mut buffer = [0u8; 128];
    let got = statm.read_at(&mut buffer, 0)?;
    let text = std::str::from_utf8(&buffer[..got]).unwrap_or("");
    let mut pages = text.split(' ').map(|n| n.parse::<u64>().unwrap_or(0) * PAGE_BYTES as u64);
    let (mapped, resident, shared) = (pages.next(), pages.next(), pages.next());
    let (Some(mapped), Some(resident), Some(shared)) = (mapped, resident, shared) else {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    };
    // Skips text and lib.
    let data = pages.nth(2).unwrap_or(0);
    Ok(Rss { anon: resident.saturating_sub(shared), shared, mapped, data })
}

/// A field in KiB of a /proc file, in bytes; 0 if it is missing.
fn field_kib(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|l| l.strip_prefix(key));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Number of threads of a process; 0 if it is unknown.
pub fn threads(pid: i32) -> u64 {
    // "." and ".." count as links as well.
    fs::metadata(format!("/proc/{pid}/task")).map_or(0, |task| task.nlink().saturating_sub(2))
}

/// The id that was given last to a task in the pid namespace of this process. Tasks in namespaces
/// inside of it have one here, too.
pub fn newest_task() -> Option<u64> {
    load_field(4)?.parse().ok()
}

/// A field of /proc/loadavg, the first one being 0.
pub(crate) fn load_field(n: usize) -> Option<String> {
    fs::read_to_string("/proc/loadavg").ok()?.split_ascii_whitespace().nth(n).map(str::to_owned)
}

/// Thread ids of a process, and possibly of some that have just ended. The kernel's list is cut at
/// a thread that ends while the list is read. So it is read again, at most `TASK_READS` times,
/// until it has not changed and is as long as the link count of the directory says.
pub fn tasks(pid: i32) -> Vec<i32> {
    all_tasks(pid).0
}

/// As [`tasks`], and whether these are all.
pub fn all_tasks(pid: i32) -> (Vec<i32>, bool) {
    let path = format!("/proc/{pid}/task");
    let (mut all, mut last, mut whole) = (Vec::new(), Vec::new(), false);
    for _ in 0..TASK_READS {
        let Ok(entries) = fs::read_dir(&path) else { break };
        let tasks: Vec<i32> = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect();
        all.extend_from_slice(&tasks);
        whole = !tasks.is_empty() && tasks == last && tasks.len() as u64 >= threads(pid);
        if whole {
            break;
        }
        last = tasks;
    }
    all.sort_unstable();
    all.dedup();
    (all, whole)
}

/// The thread of a process with this id in the PID namespace of the process.
pub fn task(pid: i32, namespace_tid: u32) -> Option<i32> {
    let own_id = |tid: i32| {
        let status = read_text(format!("/proc/{pid}/task/{tid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_ascii_whitespace().last()?.parse().ok()
    };
    tasks(pid).into_iter().find(|&tid| own_id(tid) == Some(namespace_tid))
}

fn stat_of(pid: i32, tid: i32) -> Option<String> {
    read_text(format!("/proc/{pid}/task/{tid}/stat")).ok()
}

/// The one-letter state of a thread (`R`, `S`, `D`, `T`, ...).
pub fn task_state(pid: i32, tid: i32) -> Option<char> {
    stat_field(&stat_of(pid, tid)?, 3)?.chars().next()
}

/// Time that a thread has spent in user mode, in clock ticks of 10 ms. `None` when it is gone.
pub fn user_ticks(pid: i32, tid: i32) -> Option<u64> {
    stat_field(&stat_of(pid, tid)?, 14)?.parse().ok()
}

/// CPU time of a thread. `None` when it is gone, or the kernel does not count it.
pub fn cpu_time(pid: i32, tid: i32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Time that all threads of a process have spent on CPUs, without a file. `None` when it is gone.
pub fn cpu_clock(pid: i32) -> Option<Duration> {
    // As `clock_getcpuclockid` makes it, which asks the kernel once more whether there is such a
    // process.
    const CPUCLOCK_SCHED: libc::clockid_t = 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time.
    let failed = unsafe { libc::clock_gettime(!pid << 3 | CPUCLOCK_SCHED, &raw mut time) } != 0;
    (!failed).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Exit status, in the form of `wait`, of a process's first thread that has ended and was not
/// reaped.
pub fn zombie_status(pid: i32) -> Option<u32> {
    let stat = stat_of(pid, pid)?;
    (stat_field(&stat, 3)? == "Z").then(|| stat_field(&stat, 52)?.parse().ok())?
}

/// Thread id of the calling thread.
pub fn own_tid() -> i32 {
    // SAFETY: always allowed.
    unsafe { libc::gettid() }
}

/// /proc/PID/task/TID/stat of a thread, kept open: to read it needs no lookup.
#[derive(Debug)]
pub struct TaskStat(File);

impl TaskStat {
    /// Opens the file of a thread.
    pub fn open(pid: i32, tid: i32) -> io::Result<TaskStat> {
        File::open(format!("/proc/{pid}/task/{tid}/stat")).map(TaskStat)
    }

    /// The CPU on which the thread ran last; `None` once it is gone.
    pub fn cpu(&self) -> Option<usize> {
        self.field(39)
    }

    /// Its one-letter state; `None` once it is gone.
    pub fn state(&self) -> Option<char> {
        self.field(3)
    }

    /// Where the stack of its process's first thread began, as [`start_stack`].
    pub fn start_stack(&self) -> Option<u64> {
        self.field(28).filter(|at| *at != 0)
    }

    fn field<T: FromStr>(&self, n: usize) -> Option<T> {
        let mut buffer = [0; 1024];
        let len = self.0.read_at(&mut buffer, 0).ok()?;
        stat_field(&String::from_utf8_lossy(&buffer[..len]), n)?.parse().ok()
    }
}

/// Whether a thread that sleeps is inside a system call, and not in a page fault of its own
/// instructions. `None` when it is gone, without permission, or if the kernel does not tell.
pub fn in_system_call(pid: i32, tid: i32) -> Option<bool> {
    let text = read_text(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    Some(text.split_whitespace().next()? != "-1")
}

/// Number of the system call in which the first thread of a process sleeps. `None` as above, or
/// while it runs.
pub fn system_call(pid: i32) -> Option<i64> {
    let text = read_text(format!("/proc/{pid}/syscall")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Minor page faults of a process, or of one of its threads: those that no userfaultfd served, and
/// for which no file was read. `None` when it is gone.
pub fn minor_faults(pid: i32, tid: Option<i32>) -> Option<u64> {
    let path = tid.map_or_else(|| format!("/proc/{pid}/stat"), |tid| format!("/proc/{pid}/task/{tid}/stat"));
    stat_field(&read_text(path).ok()?, 10)?.parse().ok()
}

/// Field `n` (from 1) of a stat line; the command name in parentheses may hold anything.
fn stat_field(stat: &str, n: usize) -> Option<&str> {
    let rest = &stat[stat.rfind(')')? + 1..];
    rest.split_ascii_whitespace().nth(n.checked_sub(3)?)
}

/// What keeps a process from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// A signal stopped it.
    Stopped,
    /// A debugger or tracer with this pid (0 if it is in another namespace) is attached.
    Traced(i32),
}

/// Whether a process is stopped or traced. `None` also if it is gone.
pub fn hold(pid: i32) -> Option<Hold> {
    held(&read_memory(pid, "status").ok()?)
}

/// The same from the text of /proc/PID/status.
fn held(status: &str) -> Option<Hold> {
    let value = |key| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let state = value("State:")?;
    match value("TracerPid:")?.parse() {
        Ok(tracer) if tracer != 0 || state.starts_with('t') => Some(Hold::Traced(tracer)),
        _ => state.starts_with('T').then_some(Hold::Stopped),
    }
}

/// Whether two processes share their memory (vfork, clone with CLONE_VM). `None` where the kernel
/// does not say, and if one has ended.
pub fn share_memory(one: i32, other: i32) -> Option<bool> {
    const KCMP_VM: libc::c_int = 1;
    // A thread that has ended has no memory, as has any other such thread.
    let (one, other) = (living_task(one)?, living_task(other)?);
    // SAFETY: only compares.
    match unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) } {
        0 => Some(true),
        order @ 1.. if order < 4 => Some(false),
        _ => None,
    }
}

/// Pid of the tracer of a process, 0 without one. `None` when the process is gone.
pub fn tracer(pid: i32) -> Option<i32> {
    let text = read_memory(pid, "status").ok()?;
    text.lines().find_map(|line| line.strip_prefix("TracerPid:"))?.trim().parse().ok()
}

/// User of a process. `None` when the process is gone, or has another user's rights (setuid).
pub fn user(pid: i32) -> Option<u32> {
    let text = read_text(format!("/proc/{pid}/status")).ok()?;
    let mut ids = text.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_ascii_whitespace();
    let (real, effective): (u32, u32) = (ids.next()?.parse().ok()?, ids.next()?.parse().ok()?);
    (real == effective).then_some(effective)
}

/// Whether this is a thread of the calling process, or a thread that has ended.
pub fn is_own_thread(tid: i32) -> bool {
    let is_there = |path: String| fs::exists(path).unwrap_or(false);
    is_there(format!("/proc/self/task/{tid}")) || !is_there(format!("/proc/{tid}"))
}

/// What /proc/PID/task/TID/status said of a thread.
#[derive(Debug)]
pub struct ThreadStatus(String);

impl ThreadStatus {
    /// `None` when the thread is gone.
    pub fn of(pid: i32, tid: i32) -> Option<ThreadStatus> {
        read_text(format!("/proc/{pid}/task/{tid}/status")).ok().map(ThreadStatus)
    }

    fn value(&self, key: &str) -> Option<&str> {
        Some(self.0.lines().find_map(|line| line.strip_prefix(key))?.trim())
    }

    /// Its state, as [`task_state`].
    pub fn state(&self) -> Option<char> {
        self.value("State:")?.chars().next()
    }

    /// The signals that it blocks, as a mask.
    pub fn blocked_signals(&self) -> Option<u64> {
        u64::from_str_radix(self.value("SigBlk:")?, 16).ok()
    }

    /// Number of its system call filters; `u64::MAX` in strict mode, which allows next to nothing.
    pub fn filters(&self) -> Option<u64> {
        // A kernel without filters has no such lines.
        let number = |key| self.value(key).map_or(Some(0), |text| text.parse().ok());
        if number("Seccomp:")? == 1 {
            Some(u64::MAX)
        } else {
            number("Seccomp_filters:")
        }
    }
}

/// Inode of the network namespace of a process; 0 if it cannot be seen.
pub fn network(pid: i32) -> u64 {
    fs::metadata(format!("{}/ns/net", living(pid))).map_or(0, |found| found.ino())
}

/// Command name of a process.
pub fn comm(pid: i32) -> Option<String> {
    Some(read_text(format!("/proc/{pid}/comm")).ok()?.trim_end().to_string())
}

/// Addresses of a process's arguments, and of its environment: `ps` and others read them. A program
/// can name any addresses (PR_SET_MM), so ranges longer than execve makes them are left out.
pub fn arguments(pid: i32) -> Vec<(u64, u64)> {
    read_memory(pid, "stat").map_or_else(|_| Vec::new(), |stat| argument_ranges(&stat))
}

fn argument_ranges(stat: &str) -> Vec<(u64, u64)> {
    /// The most that execve takes for both together, bytes.
    const MOST: u64 = 6 << 20;
    let field = |n| stat_field(stat, n)?.parse::<u64>().ok();
    let range = |n| Some((field(n)?, field(n + 1)?));
    let is_one = |&(start, end): &(u64, u64)| start != 0 && start < end && end - start <= MOST;
    [48, 50].into_iter().filter_map(range).filter(is_one).collect()
}

/// What only one program has: when its process started, in clock ticks since boot, and where the
/// stack of its first thread began, which is random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    start_ticks: u64,
    start_stack: u64,
}

/// The program of a process. `None` when it is gone, or without permission.
pub fn program(pid: i32) -> Option<Program> {
    let stat = read_memory(pid, "stat").ok()?;
    let field = |n| stat_field(&stat, n)?.parse::<u64>().ok();
    Some(Program { start_ticks: field(22)?, start_stack: field(28).filter(|at| *at != 0)? })
}

/// Where the stack of a process's first thread began. `None` when it is gone, or without
/// permission.
pub fn start_stack(pid: i32) -> Option<u64> {
    program(pid).map(|program| program.start_stack)
}

/// Address of the robust futex list head of a thread. It is in glibc's `struct pthread`, so it
/// shows where the thread pointer is. `None` without permission or list.
pub fn robust_list(tid: i32) -> Option<u64> {
    let (mut head, mut len) = (0u64, 0usize);
    // SAFETY: the kernel writes the two words.
    let failed = unsafe { libc::syscall(libc::SYS_get_robust_list, tid, &raw mut head, &raw mut len) } != 0;
    (!failed && head != 0).then_some(head)
}

/// Whether this process may read the mappings of a process and the lists of its threads. True also
/// when it is gone.
pub fn may_inspect(pid: i32) -> bool {
    let (mut head, mut len) = (0u64, 0usize);
    // SAFETY: the kernel writes the two words.
    let failed = unsafe { libc::syscall(libc::SYS_get_robust_list, pid, &raw mut head, &raw mut len) } != 0;
    !failed || io::Error::last_os_error().raw_os_error() != Some(libc::EPERM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_resident_sizes_of_itself() {
        let rss = RssReader::open(std::process::id() as i32).unwrap().read().unwrap();
        assert!(rss.anon > 0 && rss.data > rss.anon && rss.mapped > rss.data);
    }

    #[test]
    fn names_are_any_bytes() {
        assert_eq!(text_of(b"1-2 /a\n".to_vec()), "1-2 /a\n");
        assert_eq!(text_of(b"1-2 /\xff\n3-4 /b\n".to_vec()), "1-2 /\u{fffd}\n3-4 /b\n");
    }

    #[test]
    fn finds_fields_behind_an_odd_command_name() {
        assert_eq!(stat_field("12 (a) b)) S 1 2 3", 3), Some("S"));
        assert_eq!(stat_field("12 (a) b)) S 1 2 3", 4), Some("1"));
    }

    #[test]
    fn ranges_that_execve_cannot_have_made_are_no_arguments() {
        let stat = |fields: [u64; 4]| {
            let fields = fields.map(|field| field.to_string()).join(" ");
            format!("7 (a) S {}{fields} 0\n", "0 ".repeat(44))
        };
        let usual = stat([0x7ffc_0000_1000, 0x7ffc_0000_1010, 0x7ffc_0000_1010, 0x7ffc_0000_2000]);
        let both = vec![(0x7ffc_0000_1000, 0x7ffc_0000_1010), (0x7ffc_0000_1010, 0x7ffc_0000_2000)];
        assert_eq!(argument_ranges(&usual), both);
        // PR_SET_MM has moved the arguments to the heap, and named an end far above.
        let moved = stat([0x5555_0000_0000, 0x7ffc_0000_1010, 0x7ffc_0000_1010, 0x7ffc_0000_2000]);
        assert_eq!(argument_ranges(&moved), both[1..]);
        assert_eq!(argument_ranges(&stat([0, 0, 9, 3])), []);
        assert_eq!(argument_ranges("7 (a) S"), []);
    }

    #[test]
    fn a_thread_that_reads_is_in_a_system_call() {
        assert_eq!(in_system_call(std::process::id() as i32, std::process::id() as i32), Some(true));
        assert_eq!(in_system_call(i32::MAX, i32::MAX), None);
    }

    #[test]
    fn tells_who_holds_a_process() {
        let status = |state, tracer| format!("Name:\tx\nState:\t{state}\nTgid:\t9\nTracerPid:\t{tracer}\nUid:\t0\n");
        assert_eq!(held(&status("S (sleeping)", 0)), None);
        assert_eq!(held(&status("R (running)", 77)), Some(Hold::Traced(77)));
        assert_eq!(held(&status("t (tracing stop)", 0)), Some(Hold::Traced(0)));
        assert_eq!(held(&status("T (stopped)", 0)), Some(Hold::Stopped));
        assert_eq!(held(""), None);
        assert_eq!(hold(std::process::id() as i32), None);
    }

    #[test]
    fn tells_whose_memory_is_the_same() {
        let own = std::process::id() as i32;
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = (share_memory(own, own), share_memory(own, child.id() as i32));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(found, (Some(true), Some(false)) | (None, None)), "{found:?}");
    }

    #[test]
    fn a_process_that_waits_takes_no_time() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id() as i32;
        while task_state(pid, pid) != Some('S') || comm(pid).as_deref() != Some("cat") {}
        let mut before = None;
        while std::mem::replace(&mut before, cpu_clock(pid)) != cpu_clock(pid) {}
        assert!(before.is_some());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(cpu_clock(pid), None);
        assert!(cpu_clock(std::process::id() as i32) < cpu_clock(std::process::id() as i32));
    }

    #[test]
    fn finds_its_own_environment() {
        let [_, (start, end)] = arguments(std::process::id() as i32)[..] else { panic!("two ranges") };
        let path = std::env::var_os("PATH").unwrap();
        // SAFETY: the kernel says that this is our own memory, which only we change.
        let all = unsafe { std::slice::from_raw_parts(start as *const u8, (end - start) as usize) };
        let wanted = [b"PATH=", path.as_encoded_bytes()].concat();
        assert!(all.windows(wanted.len()).any(|w| w == wanted));
    }

    #[test]
    fn finds_the_robust_list_of_a_thread() {
        let tid = own_tid();
        assert!(robust_list(tid).is_some() && may_inspect(tid));
        let pid = std::process::id() as i32;
        assert!(tasks(pid).contains(&tid) && task(pid, tid as u32) == Some(tid) && task(pid, 1 << 30).is_none());
    }
}
