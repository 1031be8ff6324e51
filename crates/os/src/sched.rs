//! CPUs, scheduling policy and priority of threads, and the idle time of CPUs.

use std::time::{Duration, Instant};

/// Keeps the calling thread on one CPU. A failure (the CPU is not allowed) changes nothing.
pub fn run_on(cpu: usize) {
    // SAFETY: a zeroed set is valid; the call only reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if cpu < libc::CPU_SETSIZE as usize {
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
        }
    }
}

/// CPUs that a thread may run on.
pub struct Cpus(libc::cpu_set_t);

impl Cpus {
    /// The CPUs of the calling thread.
    pub fn of_this_thread() -> Cpus {
        // SAFETY: a zeroed set is valid; the call fills it.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
            Cpus(set)
        }
    }

    fn count(&self) -> u64 {
        // SAFETY: reads the set.
        unsafe { libc::CPU_COUNT(&self.0) as u64 }
    }

    fn has(&self, cpu: usize) -> bool {
        // SAFETY: reads the set, inside of it.
        cpu < libc::CPU_SETSIZE as usize && unsafe { libc::CPU_ISSET(cpu, &self.0) }
    }

    /// Lets the calling thread run on these CPUs without `except`, unless `except` is the only one.
    pub fn apply(&self, except: Option<usize>) {
        // SAFETY: the set is a copy of a valid one; the call only reads it.
        unsafe {
            let mut set = self.0;
            if let Some(cpu) = except.filter(|&cpu| cpu < libc::CPU_SETSIZE as usize) {
                libc::CPU_CLR(cpu, &mut set);
            }
            let set = if libc::CPU_COUNT(&set) > 0 { &raw const set } else { &raw const self.0 };
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set);
        }
    }
}

/// Whether a thread may leave SCHED_IDLE again, which needs CAP_SYS_NICE or RLIMIT_NICE. Tries it
/// with the calling thread, which stays in that class if not: call it in a thread that ends then.
pub fn may_leave_idle_class() -> bool {
    set_idle_class(true) && set_idle_class(false)
}

/// Gives the calling thread the policy SCHED_IDLE or SCHED_OTHER. A CPU that runs only SCHED_IDLE
/// threads counts as free when the kernel places a thread that wakes, so the woken thread stays on
/// its CPU. Returns false if that is not allowed: see [`may_leave_idle_class`].
pub fn set_idle_class(idle: bool) -> bool {
    let policy = if idle { libc::SCHED_IDLE } else { libc::SCHED_OTHER };
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: changes the calling thread only.
    unsafe { libc::sched_setscheduler(0, policy, &raw const param) == 0 }
}

/// Number of runnable threads of the machine, and number of its CPUs.
pub fn runnable() -> (u64, u64) {
    let running = || crate::procfs::load_field(3)?.split('/').next()?.parse().ok();
    // SAFETY: asks for a number.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    (running().unwrap_or(u64::MAX), cpus.max(1) as u64)
}

/// Share of time in which the CPUs of a thread are idle.
pub struct IdleTime {
    cpus: Cpus,
    since: Instant,
    idle: u64,
}

impl IdleTime {
    /// Starts to measure.
    pub fn new() -> IdleTime {
        let cpus = Cpus::of_this_thread();
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        IdleTime { idle: idle_ticks(&text, &cpus), cpus, since: Instant::now() }
    }

    /// Number of CPUs of the thread.
    pub fn cpus(&self) -> u64 {
        self.cpus.count()
    }

    /// The idle share since the last call that returned one, percent; `None` if less than `window`
    /// has passed. The resolution is 10 ms.
    pub fn percent(&mut self, window: Duration) -> Option<u64> {
        let elapsed = self.since.elapsed();
        if elapsed < window {
            return None;
        }
        let idle = idle_ticks(&std::fs::read_to_string("/proc/stat").ok()?, &self.cpus);
        let ticks = elapsed.as_millis() as u64 / 10 * self.cpus.count();
        let percent = idle.saturating_sub(self.idle) * 100 / ticks.max(1);
        (self.idle, self.since) = (idle, Instant::now());
        Some(percent.min(100))
    }
}

impl Default for IdleTime {
    fn default() -> IdleTime {
        IdleTime::new()
    }
}

/// Ticks in which these CPUs were idle or waited for a device, from /proc/stat.
fn idle_ticks(stat: &str, cpus: &Cpus) -> u64 {
    let of_line = |line: &str| {
        let (cpu, times) = line.strip_prefix("cpu")?.split_once(' ')?;
        let mine = cpus.has(cpu.parse().ok()?);
        let times = times.split_whitespace().skip(3).take(2).filter_map(|t| t.parse::<u64>().ok());
        mine.then(|| times.sum::<u64>())
    };
    stat.lines().filter_map(of_line).sum()
}

/// Has the calling thread run before all ordinary threads (SCHED_FIFO, the lowest priority).
/// Threads that it starts are ordinary ones. Returns false if that is not allowed: it needs
/// CAP_SYS_NICE or RLIMIT_RTPRIO.
pub fn real_time() -> bool {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: changes the calling thread only.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const param) == 0 }
}

/// Has the calling thread run as soon as it is awake: as a real-time thread if it may, else with
/// short slices. Returns whether it is a real-time thread.
pub fn run_first() -> bool {
    let is_real_time = real_time();
    if !is_real_time {
        ask_short_slices();
    }
    is_real_time
}

/// Time slice of a thread with short slices, ns: the shortest that Linux gives.
const SHORT_TURN: u64 = 100_000;

/// `struct sched_attr` of linux/sched/types.h, its first version.
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Makes the calling thread run soon after it wakes: a short time slice (Linux 6.12 runs a thread
/// with a shorter one first; older kernels ignore it) and nice -10, if that is allowed. Threads
/// that it starts inherit both.
pub fn ask_short_slices() {
    ask_short_slices_at(-10, 0);
}

/// The same for a thread after [`real_time`], which may not be able to undo that threads that it
/// starts are ordinary ones. Does nothing in an ordinary thread.
pub fn end_real_time() {
    if !is_real_time() {
        return;
    }
    ask_short_slices_at(-10, libc::SCHED_FLAG_RESET_ON_FORK as u64);
    if is_real_time() {
        // A filter may forbid the one call and not the other.
        let param = libc::sched_param { sched_priority: 0 };
        // SAFETY: changes the calling thread only.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, &raw const param) };
    }
}

/// Whether the calling thread is a real-time thread.
#[must_use]
pub fn is_real_time() -> bool {
    // SAFETY: asks for a number.
    unsafe { libc::sched_getscheduler(0) & !libc::SCHED_RESET_ON_FORK == libc::SCHED_FIFO }
}

/// As [`ask_short_slices`], with the default priority (nice 0).
pub fn ask_short_slices_only() {
    ask_short_slices_at(0, 0);
}

fn ask_short_slices_at(nice: libc::c_int, flags: u64) {
    // SAFETY: changes the calling thread only: on Linux PRIO_PROCESS 0 is a thread.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, nice);
        let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
        let attr = SchedAttr {
            size: size_of::<SchedAttr>() as u32,
            policy: libc::SCHED_OTHER as u32,
            flags,
            nice,
            priority: 0,
            runtime: SHORT_TURN,
            deadline: 0,
            period: 0,
        };
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_that_of_the_cpus_asked_for() {
        // SAFETY: a zeroed set is valid, and CPU 1 is in its range.
        let cpus = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(1, &mut set);
            Cpus(set)
        };
        let stat = "cpu  9 9 9 300 70 9\ncpu0 4 4 4 200 50 4\ncpu1 5 5 5 100 20 5 0 0 0 0\nintr 1 2 3\nctxt 5\n";
        assert_eq!(idle_ticks(stat, &cpus), 120, "idle and waiting for a device");
        assert_eq!(idle_ticks("cpu1 5 5 5\n", &cpus), 0);
        assert_eq!(idle_ticks("", &cpus), 0);
        assert_eq!(cpus.count(), 1);
    }

    #[test]
    fn a_share_of_a_time_that_is_over() {
        let mut idle = IdleTime::new();
        assert_eq!(idle.percent(Duration::from_secs(3600)), None);
        std::thread::sleep(Duration::from_millis(30));
        assert!(idle.percent(Duration::from_millis(20)).is_some_and(|percent| percent <= 100));
        assert_eq!(idle.percent(Duration::from_secs(3600)), None, "from anew");
    }
}
