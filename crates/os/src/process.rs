//! Processes: the pager's clone, waiting, signals, inherited descriptors.
//!
//! The launcher has a single thread while it starts others, so the child of a clone or fork may do
//! ordinary work. This module keeps no state but the signal dispositions at the start.

use crate::capability;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Process id.
pub type Pid = i32;

/// Whether SIGPIPE was ignored when this process started. Rust's runtime ignores it before `main`,
/// so this is read earlier; the command gets the inherited disposition.
static SIGPIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);
/// The standard descriptors that were closed then, one bit for each. The runtime opens `/dev/null`
/// there; the command finds them closed.
static CLOSED_STANDARD: AtomicU8 = AtomicU8::new(0);

extern "C" fn note_start() {
    let ignored = disposition(libc::SIGPIPE).is_ok_and(|action| action.sa_sigaction == libc::SIG_IGN);
    SIGPIPE_WAS_IGNORED.store(ignored, Ordering::Relaxed);
    // SAFETY: F_GETFD only reads a flag.
    let closed = (0..3).filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } == -1);
    CLOSED_STANDARD.store(closed.fold(0, |all, fd| all | 1 << fd), Ordering::Relaxed);
}

#[used]
#[link_section = ".init_array"]
static NOTE_START: extern "C" fn() = note_start;

/// Whether a standard descriptor was closed when this process started.
#[must_use]
pub fn was_closed(fd: RawFd) -> bool {
    (0..3).contains(&fd) && CLOSED_STANDARD.load(Ordering::Relaxed) >> fd & 1 == 1
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Effective user id of this process.
#[must_use]
pub fn effective_uid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether a user is root or that of this process: nobody else can act in its name.
#[must_use]
pub fn is_root_or_own(uid: u32) -> bool {
    uid == 0 || uid == effective_uid()
}

/// Makes this process the parent of every orphan below it.
///
/// # Errors
/// As `prctl` gives them.
pub fn become_subreaper() -> io::Result<()> {
    // SAFETY: takes plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }).map(drop)
}

/// Names the calling thread; the name of the main thread is the name of the process in `ps`. Cut at
/// 15 bytes.
pub fn set_name(name: &CStr) {
    // SAFETY: `name` is NUL-terminated and the kernel copies at most 16 bytes. It cannot fail with
    // a valid pointer.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// Random bytes from the kernel.
///
/// # Errors
/// As `getrandom` gives them.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    crate::memory::random(&mut bytes)?;
    Ok(bytes)
}

/// Exit status of a child of [`spawn_sharing_descriptors`] for which there is no thread.
pub const NO_THREAD: i32 = 71;

/// Clones this process with a *shared descriptor table* (everything else is copied) and runs `body`
/// in the child; the child ends with status 1 if that returns, and with [`NO_THREAD`] if it cannot
/// begin.
///
/// The raw clone leaves glibc's cached id of the child's main thread stale, so `body` runs in a new
/// thread of the child while the main one waits. The child leads a session of its own, so that no
/// terminal stops it. It ignores the signals that are sent to whole process groups, such as SIGTERM
/// at shutdown, because it has to outlive the programs that it serves.
///
/// # Errors
/// When this process has more than one thread (in the copy a lock of another thread would be held
/// for ever), or as `clone` and `/proc` give them.
pub fn spawn_sharing_descriptors(
    name: &CStr,
    inherited: &InheritedState,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<Pid> {
    let threads = fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!("{threads} threads are running, not one")));
    }
    let flags = libc::c_long::from(libc::CLONE_FILES | libc::SIGCHLD);
    let unused: libc::c_long = 0;
    // SAFETY: without CLONE_VM this is a fork: the child goes on with a copy of this stack (stack
    // argument 0). With a single thread no other thread holds a lock, so the child may use the
    // allocator. The remaining arguments are unused with these flags.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, unused, unused, unused, unused) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: no arguments; a fresh child is never a group leader, so it cannot fail.
            unsafe { libc::setsid() };
            set_name(name);
            ignore_group_signals();
            raise_soft_limits();
            inherited.restore_mask();
            let Ok(worker) = std::thread::Builder::new().name("main".into()).spawn(body) else { exit_now(NO_THREAD) };
            let _ = worker.join();
            exit_now(1)
        }
        pid => Ok(pid as Pid),
    }
}

/// Changes `oom_score_adj` of a process, in thousandths of all memory: the kernel's OOM killer
/// chooses the process later (`by` < 0) or sooner. Sooner is always allowed, later only with
/// CAP_SYS_RESOURCE.
///
/// # Errors
/// When that is not allowed, or the process is gone.
pub fn move_oom_score(pid: Pid, by: i32) -> io::Result<()> {
    let path = format!("/proc/{pid}/oom_score_adj");
    let now: i32 = std::fs::read_to_string(&path)?.trim().parse().map_err(io::Error::other)?;
    // -1000 would exempt the process.
    std::fs::write(path, (now + by).clamp(-999, 1000).to_string())
}

/// Whether this process leads its session.
#[must_use]
pub fn leads_session() -> bool {
    // SAFETY: both only read numbers.
    unsafe { libc::getsid(0) == libc::getpid() }
}

/// Ends this process without running destructors or exit handlers.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: always allowed.
    unsafe { libc::_exit(code) }
}

fn ignore_group_signals() {
    let ignored = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGPIPE,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGXFSZ,
    ];
    for signal in ignored {
        // SAFETY: SIG_IGN is a valid disposition of these signals.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Raises soft limits that the user set for the programs (`ulimit -v`, `-f`, `-n`, `-t`) to the
/// hard ones: the pager maps, writes and opens on behalf of all programs.
fn raise_soft_limits() {
    for resource in [
        libc::RLIMIT_NOFILE,
        libc::RLIMIT_AS,
        libc::RLIMIT_DATA,
        libc::RLIMIT_FSIZE,
        libc::RLIMIT_CPU,
        libc::RLIMIT_MEMLOCK,
    ] {
        if let Ok((_, hard)) = resource_limit(resource) {
            set_limit(resource, hard, hard);
        }
    }
}

#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

/// Sets a limit. A failure leaves the old one, which is no worse. Async-signal-safe.
fn set_limit(resource: Resource, soft: u64, hard: u64) {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: `limit` is a valid struct.
    unsafe { libc::setrlimit(resource, &limit) };
}

fn resource_limit(resource: Resource) -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writing.
    check(unsafe { libc::getrlimit(resource, &mut limit) })?;
    Ok((limit.rlim_cur, limit.rlim_max))
}

/// Soft and hard limit of open descriptors of this process.
///
/// # Errors
/// As `getrlimit` gives them.
pub fn descriptor_limit() -> io::Result<(u64, u64)> {
    resource_limit(libc::RLIMIT_NOFILE)
}

/// Soft limit of the address space of this process, which programs inherit, bytes; `None` if there
/// is none.
#[must_use]
pub fn address_space_limit() -> Option<u64> {
    let (soft, _) = resource_limit(libc::RLIMIT_AS).ok()?;
    (soft != libc::RLIM_INFINITY).then_some(soft)
}

/// Whether this process may lock any amount of memory: CAP_IPC_LOCK, or no limit.
#[must_use]
pub fn may_lock_memory() -> bool {
    let unlimited = |(_, hard): (u64, u64)| hard == libc::RLIM_INFINITY;
    capability::has(capability::CAP_IPC_LOCK) || resource_limit(libc::RLIMIT_MEMLOCK).is_ok_and(unlimited)
}

/// Version of the glibc that this process runs with, such as `2.36`; `None` with another library.
#[must_use]
pub fn libc_version() -> Option<String> {
    #[cfg(target_env = "gnu")]
    // SAFETY: returns a string that lives for ever.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_str().ok().map(str::to_owned);
    #[cfg(not(target_env = "gnu"))]
    let version = None;
    version
}

fn disposition(signal: libc::c_int) -> io::Result<libc::sigaction> {
    // SAFETY: all zeros is a valid sigaction (default action, empty mask).
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: a null new action only asks; `action` is valid for writing.
    check(unsafe { libc::sigaction(signal, ptr::null(), &mut action) })?;
    Ok(action)
}

/// What this process inherited and changes for itself: signal mask and dispositions, timers, and
/// the limits of descriptors and of the stack.
#[derive(Clone, Copy)]
pub struct InheritedState {
    mask: libc::sigset_t,
    sigchld: libc::sigaction,
    timers: Timers,
    /// Soft and hard limit.
    descriptors: (u64, u64),
    stack: (u64, u64),
}

impl InheritedState {
    /// Notes the state of this process without changing it.
    ///
    /// # Errors
    /// As the system calls give them.
    pub fn note() -> io::Result<Self> {
        let sigchld = disposition(libc::SIGCHLD)?;
        // SAFETY: all zeros is a valid set; a null new set only asks.
        let mut mask: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: `mask` is valid for writing.
        check(unsafe { libc::sigprocmask(libc::SIG_BLOCK, ptr::null(), &mut mask) })?;
        let (descriptors, stack) = (descriptor_limit()?, resource_limit(libc::RLIMIT_STACK)?);
        Ok(Self { mask, sigchld, timers: Timers::NONE, descriptors, stack })
    }

    /// Takes the timers from this process: none of them expires before the command has it.
    pub fn take_timers(&mut self) {
        self.timers = Timers::take();
    }

    /// Whether a signal would do to the command what its default action is. If not, it is ignored
    /// or blocked.
    #[must_use]
    pub fn obeys(&self, signal: i32) -> bool {
        // SAFETY: the set came from the kernel.
        let is_blocked = unsafe { libc::sigismember(&self.mask, signal) } == 1;
        !is_blocked && disposition(signal).is_ok_and(|action| action.sa_sigaction != libc::SIG_IGN)
    }

    /// Raises a soft limit of the stack below `wanted` bytes, as far as this process may. Returns
    /// the limit that holds then.
    #[must_use]
    pub fn raise_stack_limit(&self, wanted: u64) -> u64 {
        let (soft, hard) = self.stack;
        if soft >= wanted {
            return soft;
        }
        set_limit(libc::RLIMIT_STACK, wanted.min(hard), hard);
        // Only root may raise the hard one.
        set_limit(libc::RLIMIT_STACK, wanted, hard.max(wanted));
        resource_limit(libc::RLIMIT_STACK).map_or(soft, |(now, _)| now)
    }

    /// Raises the soft limit of descriptors to the hard one, for a process that shares its table
    /// with another one, which fills it.
    pub fn raise_descriptor_limit(&self) {
        set_limit(libc::RLIMIT_NOFILE, self.descriptors.1, self.descriptors.1);
    }

    /// Restores the mask only.
    pub fn restore_mask(&self) {
        // SAFETY: the set came from the kernel.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.mask, ptr::null_mut()) };
    }

    /// Restores everything, for the command. Async-signal-safe.
    pub(crate) fn restore(&self) {
        let sigpipe = if SIGPIPE_WAS_IGNORED.load(Ordering::Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: valid dispositions; one of them came from the kernel.
        unsafe {
            libc::signal(libc::SIGPIPE, sigpipe);
            libc::sigaction(libc::SIGCHLD, &self.sigchld, ptr::null_mut());
        }
        set_limit(libc::RLIMIT_NOFILE, self.descriptors.0, self.descriptors.1);
        set_limit(libc::RLIMIT_STACK, self.stack.0, self.stack.1);
        for fd in (0..3).filter(|fd| was_closed(*fd)) {
            // Not closed at once: if the command cannot be executed, this process goes on. SAFETY:
            // changes a flag of `/dev/null`, which the runtime has opened there.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        self.restore_mask();
        self.timers.start();
    }
}

/// The timers of `alarm` and `setitimer`: `exec` keeps them, a fork child has none. Each has an
/// interval and the time until it expires.
#[derive(Clone, Copy)]
struct Timers([[libc::timeval; 2]; 3]);

impl Timers {
    const NONE: Timers = Timers([[libc::timeval { tv_sec: 0, tv_usec: 0 }; 2]; 3]);

    /// Takes them from this process, which has none from here on.
    fn take() -> Timers {
        let mut taken = Timers::NONE;
        for (which, (old, none)) in taken.0.iter_mut().zip(&Timers::NONE.0).enumerate() {
            // SAFETY: both are laid out like `struct itimerval`, and `old` is valid for writing. A
            // failure leaves no timer.
            unsafe { libc::syscall(libc::SYS_setitimer, which, none, old) };
        }
        taken
    }

    /// Starts them in this process. Async-signal-safe.
    fn start(&self) {
        for (which, timer) in self.0.iter().enumerate() {
            // SAFETY: laid out like `struct itimerval`; no old value is wanted.
            unsafe { libc::syscall(libc::SYS_setitimer, which, timer, ptr::null_mut::<libc::timeval>()) };
        }
    }
}

/// A signal that the launcher received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// Signal number.
    pub signal: i32,
    /// Whether a process sent it (kill, tgkill, sigqueue) and not the kernel (terminal, child,
    /// limit).
    pub from_process: bool,
    /// The sender; 0 when it is outside of this PID namespace or not a process.
    pub sender: Pid,
    /// The value from `sigqueue`.
    pub value: Option<i32>,
}

/// Descriptor for all signals that a process can wait for.
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Blocks all signals but those of a crash, to read them from the descriptor. Also sets SIGCHLD
    /// to its default: if a parent had made this process ignore it, the kernel would reap our
    /// children itself.
    ///
    /// # Errors
    /// As the system calls give them.
    pub fn take_over() -> io::Result<Self> {
        let crash =
            [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];
        // SAFETY: all zeros is a valid set, and the calls below get valid pointers to it and valid
        // signal numbers.
        let set = unsafe {
            let mut set: libc::sigset_t = mem::zeroed();
            libc::sigfillset(&mut set);
            for signal in crash {
                libc::sigdelset(&mut set, signal);
            }
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            set
        };
        // SAFETY: `set` is valid.
        check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &set, ptr::null_mut()) })?;
        // SAFETY: `set` is valid; -1 asks for a new descriptor.
        let fd = check(unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) })?;
        // SAFETY: a new descriptor that nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The descriptor, for polling.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }

    /// The next signal, if there is one.
    #[must_use]
    pub fn next_signal(&self) -> Option<Arrived> {
        // SAFETY: all zeros is a valid value of this struct of numbers.
        let mut info: libc::signalfd_siginfo = unsafe { mem::zeroed() };
        let size = size_of_val(&info);
        // SAFETY: the buffer is valid for `size` bytes.
        let count = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut info).cast(), size) };
        if count != size as isize {
            return None;
        }
        let from_process = matches!(info.ssi_code, libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL);
        Some(Arrived {
            signal: info.ssi_signo as i32,
            from_process,
            sender: if from_process { info.ssi_pid as Pid } else { 0 },
            value: (info.ssi_code == libc::SI_QUEUE).then_some(info.ssi_int),
        })
    }
}

/// Sends a signal, with a value if there is one.
///
/// # Errors
/// As `kill` and `sigqueue` give them.
pub fn send_signal(pid: Pid, signal: i32, value: Option<i32>) -> io::Result<()> {
    let result = match value {
        // SAFETY: plain numbers.
        None => unsafe { libc::kill(pid, signal) },
        Some(value) => {
            let value = libc::sigval { sival_ptr: ptr::without_provenance_mut(value as u32 as usize) };
            // SAFETY: plain numbers; the kernel does not follow the pointer.
            unsafe { libc::sigqueue(pid, signal, value) }
        }
    };
    check(result).map(drop)
}

/// Kills a process of the tree. One that is gone already needs no signal.
pub fn kill(pid: Pid) {
    let _ = send_signal(pid, libc::SIGKILL, None);
}

/// Takes over a descriptor that another process has made for this one in their common table.
pub fn take_over(fd: RawFd) -> OwnedFd {
    // SAFETY: nobody else in this process knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A descriptor that stays open as long as this process lives.
pub fn lasting(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: its owner never closes it.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Stops this process until it gets SIGCONT.
pub fn stop_self() {
    // SAFETY: plain numbers.
    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
}

/// A handle on a process that stays valid when the pid is reused.
pub struct PidFd(OwnedFd);

impl From<OwnedFd> for PidFd {
    fn from(pidfd: OwnedFd) -> PidFd {
        PidFd(pidfd)
    }
}

impl PidFd {
    /// Opens the process that has this pid now.
    ///
    /// # Errors
    /// As `pidfd_open` gives them; `ESRCH` when there is none.
    pub fn open(pid: Pid) -> io::Result<Self> {
        // SAFETY: plain numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor (close-on-exec by definition) that nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
    }

    /// Sends a signal to it.
    ///
    /// # Errors
    /// As `pidfd_send_signal` gives them.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        let null = ptr::null::<libc::siginfo_t>();
        // SAFETY: an own descriptor and numbers; a null siginfo means "as kill would".
        let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, null, 0) };
        check(result as libc::c_int).map(drop)
    }

    /// How the process ended, if it has ended and its parent has reaped it. Only Linux 6.15 and
    /// later tell this to processes other than the parent.
    #[must_use]
    pub fn end(&self) -> Option<Change> {
        // First version of struct pidfd_info: mask, control group, eleven ids, exit status.
        const WORDS: usize = 16;
        const PIDFD_GET_INFO: libc::c_ulong = 0xC000_FF0B | ((WORDS * 4) as libc::c_ulong) << 16;
        const PIDFD_INFO_EXIT: u32 = 1 << 3;
        let mut info = [0u32; WORDS];
        info[0] = PIDFD_INFO_EXIT;
        // SAFETY: the kernel reads and writes the number of bytes in the request, which is the size
        // of the array.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), PIDFD_GET_INFO, info.as_mut_ptr()) };
        if result != 0 || info[0] & PIDFD_INFO_EXIT == 0 {
            return None;
        }
        let status = info[WORDS - 1] as libc::c_int;
        Some(if libc::WIFEXITED(status) {
            Change::Exited(libc::WEXITSTATUS(status))
        } else {
            Change::Killed(libc::WTERMSIG(status))
        })
    }

    /// The descriptor; it becomes readable when the process has ended.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }
}

/// What happened to a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It ended with this code.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
    /// This signal killed it, and its memory was written to a core dump.
    Dumped(i32),
    /// This signal stopped it.
    Stopped(i32),
}

/// Reaps one ended child, or reports one that stopped. `None` if there is no news. Does not block.
#[must_use]
pub fn next_child_change() -> Option<(Pid, Change)> {
    let options = libc::WEXITED | libc::WSTOPPED | libc::WNOHANG;
    // SAFETY: all zeros is a valid siginfo; `waitid` fills it and leaves the pid 0 when there is
    // nothing.
    let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
    // SAFETY: `info` is valid for writing.
    check(unsafe { libc::waitid(libc::P_ALL, 0, &mut info, options) }).ok()?;
    // SAFETY: after waitid these two fields are the valid ones.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    let change = match info.si_code {
        libc::CLD_EXITED => Change::Exited(status),
        libc::CLD_KILLED => Change::Killed(status),
        libc::CLD_DUMPED => Change::Dumped(status),
        _ => Change::Stopped(status),
    };
    (pid != 0).then_some((pid, change))
}

/// Whether this process has any child, including zombies.
#[must_use]
pub fn has_children() -> bool {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: a null siginfo is allowed; nothing is reaped with WNOWAIT.
    unsafe { libc::waitid(libc::P_ALL, 0, ptr::null_mut(), options) == 0 }
}

/// The descriptors that were open when this process started, except for the three standard ones.
///
/// Launcher and pager must not keep them open: a reader that waits for the end of a pipe would wait
/// for them too.
pub struct InheritedDescriptors(Vec<RawFd>);

impl InheritedDescriptors {
    /// Notes them. Call it before anything else opens a descriptor that is to stay open.
    #[must_use]
    pub fn note() -> Self {
        let listed = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let mut fds: Vec<RawFd> = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        // The listing itself used a descriptor, closed by now. SAFETY: F_GETFD only reads a flag.
        fds.retain(|fd| *fd > 2 && unsafe { libc::fcntl(*fd, libc::F_GETFD) } != -1);
        Self(fds)
    }

    /// Closes them in this process, and so in every process that shares its descriptor table.
    pub fn close(&mut self) {
        for fd in self.0.drain(..) {
            // SAFETY: it was open before `main`, so it has no owner in this program, and it is
            // closed only once.
            unsafe { libc::close(fd) };
        }
    }
}

/// Replaces standard descriptors (0, 1, 2) by `/dev/null`; if that cannot be opened they stay.
pub fn detach_standard(fds: &[RawFd]) {
    let Ok(null) = fs::OpenOptions::new().read(true).write(true).open("/dev/null") else { return };
    for fd in fds.iter().filter(|fd| (0..=2).contains(*fd)) {
        // SAFETY: the standard descriptors have no owner that closes them, and they stay open.
        unsafe { libc::dup2(null.as_raw_fd(), *fd) };
    }
}

/// Writes to standard error without the runtime's buffers and locks; ignores failures.
pub fn write_stderr(text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        // SAFETY: the buffer is valid for its length.
        match unsafe { libc::write(2, rest.as_ptr().cast(), rest.len()) } {
            count if count > 0 => rest = &rest[count as usize..],
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_becomes_a_sooner_victim() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let score = || std::fs::read_to_string(format!("/proc/{}/oom_score_adj", child.id())).unwrap();
        let before: i32 = score().trim().parse().unwrap();
        move_oom_score(child.id() as Pid, 100).unwrap();
        let after: i32 = score().trim().parse().unwrap();
        assert_eq!(after, (before + 100).min(1000));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(move_oom_score(child.id() as Pid, 100).is_err());
    }

    #[test]
    fn does_not_clone_with_threads() {
        let signals = InheritedState::note().unwrap();
        let error = std::thread::scope(|scope| {
            scope.spawn(|| spawn_sharing_descriptors(c"never", &signals, || {}).unwrap_err()).join().unwrap()
        });
        assert!(error.to_string().contains("threads"), "{error}");
    }

    #[test]
    fn pidfd_of_nobody() {
        assert!(PidFd::open(Pid::MAX).is_err());
        assert!(PidFd::open(std::process::id() as Pid).unwrap().signal(0).is_ok());
    }

    #[test]
    fn how_a_process_ended() {
        let mut command = std::process::Command::new("sh");
        let mut child = command.args(["-c", "read line; exit 7"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let handle = PidFd::open(child.id() as Pid).unwrap();
        assert_eq!(handle.end(), None, "it lives");
        drop(child.stdin.take());
        child.wait().unwrap();
        // Older kernels report nothing.
        assert!(matches!(handle.end(), None | Some(Change::Exited(7))), "{:?}", handle.end());
    }

    #[test]
    fn random_is_not_constant() {
        assert_ne!(random_bytes::<16>().unwrap(), random_bytes::<16>().unwrap());
    }
}
