//! The monitor thread: measures the tree, decides when to attach and when to scan for new memory.

mod census;

use self::census::Unmanaged;
use crate::adopt::{self, Extent};
use crate::attach::attach_or_warn;
use crate::automatic::UseSampler;
use crate::background;
use crate::clients::{Client, DORMANT, IDLE, MANAGED, REFUSED};
use crate::control::Desk;
use crate::detach::{self, Why};
use crate::fork_children;
use crate::idle::{self, Turns};
use crate::load_control::LoadTurns;
use crate::observe::Looks;
use crate::pressure::Pressure;
use crate::proc::Proc;
use crate::starts;
use crate::state::Shared;
use crate::stats;
use crate::tasks::{NewestTask, Threads};
use crate::timeline::Bytes;
use crate::wake;
use crate::weigh::{self, Weigher};
use memfit_os::procfs::{self, Rss, RssReader};
use memfit_os::sched::IdleTime;
use memfit_stats::Memory;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::mpsc::Sender;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Fastest growth of a tree, bytes per second and CPU, and the most CPUs that fill memory at once.
/// They set the pace of the samples and the bound of commit pressure.
const FILL_RATE: u64 = 2 << 30;
const FILL_CPUS: u64 = 4;
/// Shortest and longest sleep between samples.
const SLEEP_MIN: Duration = Duration::from_millis(1);
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Longest sleep while a process is new, because it may fill memory at any moment; and as a part of
/// its age, because it may end soon, and its largest size is part of the peak.
const SLEEP_YOUNG: Duration = Duration::from_millis(4);
const SLEEP_AGE_PART: u32 = 8;
/// Longest sleep while accesses are recorded: touches of new memory before it is found are not
/// seen.
const SLEEP_SAMPLING: Duration = Duration::from_millis(10);
/// Smallest process that is attached, bytes.
pub const ATTACH_BYTES: u64 = 256 << 10;
/// Pages evicted from fork relatives, or copied by them, after which their shares are measured
/// again.
const SHARED_TAKEN: u64 = 512;
/// Growth of unregistered memory that counts as fast between two samples, or as worth a scan since
/// the last one. The kernel counts pages by CPU, and `statm` misses up to 32 pages of each: bytes,
/// and bytes for each CPU (16 at most).
const GROWTH_BYTES: u64 = 512 << 10;
const GROWTH_BYTES_CPU: u64 = 128 << 10;
/// How long the fast-growth watermarks hold after such growth.
const FAST_GROWTH_FOR: Duration = Duration::from_millis(100);
/// How long new processes wait for each other after little was free: what shared pages count for
/// changes by leaps while processes fork.
const TIGHT_FOR: Duration = Duration::from_millis(250);
/// Time between two counts of the threads that want a CPU, and how long fault threads stay ordinary
/// ones after there were too many.
const JUDGE_EVERY: Duration = Duration::from_millis(20);
/// The CPUs are full when they were idle for less than `IDLE_PERCENT` of the window, until they are
/// idle for more than `IDLE_AGAIN_PERCENT`: what is done about it leaves them some idle time.
const IDLE_PERCENT: u64 = 15;
const IDLE_AGAIN_PERCENT: u64 = 50;
const IDLE_WINDOW: Duration = Duration::from_millis(200);
const CONTENDED_FOR: Duration = Duration::from_millis(500);
/// If scans take longer than this, the program is throttled for the scan when there is little room.
const LONG_SCAN: Duration = Duration::from_micros(300);
/// Time between two checks for new threads.
const THREADS_EVERY: Duration = Duration::from_millis(5);
/// A process whose scan took 1 ms is scanned again after this many ms at the earliest; the second
/// after its unregistered memory has grown.
const PACE: u32 = 24;
const GROWN_PACE: u32 = 4;

/// Longest sleep by the age of the youngest process.
fn longest_sleep(youngest: Duration) -> Duration {
    (youngest / SLEEP_AGE_PART).clamp(SLEEP_YOUNG, SLEEP_MAX)
}

/// What the monitor remembers.
struct Monitor {
    desk: Arc<Desk>,
    /// It runs before all ordinary threads.
    real_time: bool,
    since: Instant,
    own: RssReader,
    launcher: Option<RssReader>,
    cpus: u64,
    /// Processes of the tree without a stub.
    unmanaged: HashMap<i32, Unmanaged>,
    /// Names of these processes, and of fork children that have not come, that the user was told.
    unmanaged_told: BTreeSet<String>,
    children_told: BTreeSet<String>,
    turns: Turns,
    last_sample: Instant,
    /// When the last slow sample began, and ended.
    slow_begun: Instant,
    last_slow: Option<Instant>,
    slow_cost: Duration,
    /// Processes at the last slow sample, and whether there were fork children among them.
    last_clients: usize,
    /// Pages evicted from fork relatives by then.
    last_shared: u64,
    /// They have copied more than that since they were last measured.
    copied: bool,
    weigher: Weigher,
    shared_before: bool,
    last_total: u64,
    fast_growth_until: Instant,
    tight_until: Instant,
    last_judged: Instant,
    idle: IdleTime,
    runnable: f64,
    full_until: Instant,
    /// Set by a thread that has tried it: on full CPUs that can take long.
    may_be_idle_class: Arc<AtomicBool>,
    /// Threads that want a CPU, without fault threads: a running mean.
    wanted_cpus: f64,
    contended_until: Instant,
    uses: UseSampler,
    pressure: Pressure,
    looks: Looks,
    load: LoadTurns,
    newest_task: NewestTask,
    /// The newest task of the machine at the last search for processes without a stub.
    searched_task: Option<u64>,
    /// The tree has had a program into which the pager loads the stub.
    has_loaded: bool,
}

/// The last scan of a process for unregistered memory: when, what it found, what it cost.
#[derive(Clone, Copy)]
pub struct Scan {
    at: Instant,
    unmanaged: u64,
    mapped: u64,
    data: u64,
    cost: Duration,
    again: bool,
    pieces_wait: bool,
    threads: Threads,
    /// When they were looked at, and the CPU time of the process then.
    threads_at: Instant,
    cpu: Option<Duration>,
}

/// The monitor is an ordinary thread as long as this lives.
struct Ordinary;

impl Drop for Ordinary {
    fn drop(&mut self) {
        memfit_os::sched::real_time();
    }
}

/// Runs until the pager ends. `ready` is told just before the first sample.
pub fn run(desk: Arc<Desk>, ready: Sender<()>) {
    // A late sample can let memory exceed the budget. A thread with short slices can still wait for
    // 200 ms: the kernel shares CPUs among sessions and control groups first.
    let real_time = memfit_os::sched::run_first();
    let Ok(own) = RssReader::open(std::process::id() as i32) else { return };
    let launcher = RssReader::open(desk.config.launcher_pid).ok();
    let now = Instant::now();
    let mut monitor = Monitor {
        real_time,
        may_be_idle_class: Arc::default(),
        fast_growth_until: now,
        tight_until: now,
        last_judged: now,
        idle: IdleTime::new(),
        runnable: 0.0,
        full_until: now,
        wanted_cpus: 0.0,
        contended_until: now,
        uses: UseSampler::new(desk.config.automatic),
        pressure: Pressure::default(),
        looks: Looks::default(),
        load: LoadTurns::new(desk.config.turn_ms),
        newest_task: NewestTask::default(),
        searched_task: None,
        has_loaded: false,
        weigher: Weigher::default(),
        desk,
        since: now,
        own,
        launcher,
        cpus: memfit_os::probe::usable_cores() as u64,
        unmanaged: HashMap::new(),
        unmanaged_told: BTreeSet::new(),
        children_told: BTreeSet::new(),
        turns: Turns::default(),
        last_sample: now,
        slow_begun: now,
        last_slow: None,
        slow_cost: Duration::ZERO,
        last_clients: 0,
        last_shared: 0,
        copied: false,
        shared_before: false,
        last_total: 0,
    };
    let may_be_idle_class = Arc::clone(&monitor.may_be_idle_class);
    let probe = move || may_be_idle_class.store(memfit_os::sched::may_leave_idle_class(), Relaxed);
    // Without a thread for it, the answer stays no.
    let _ = std::thread::Builder::new().name("idle class".into()).stack_size(64 << 10).spawn(probe);
    let _ = ready.send(());
    while !monitor.desk.shared.ending.load(Relaxed) {
        let start = Instant::now();
        let sleep = monitor.sample();
        monitor.looks.sample(&monitor.desk.shared);
        let end = Instant::now();
        std::thread::sleep(sleep);
        let shared = &monitor.desk.shared;
        shared.meters.longest_sample.fetch_max((end - start).as_nanos() as u64, Relaxed);
        shared.meters.longest_delay.fetch_max(end.elapsed().saturating_sub(sleep).as_nanos() as u64, Relaxed);
    }
}

impl Monitor {
    fn sample(&mut self) -> Duration {
        let desk = Arc::clone(&self.desk);
        let shared = &desk.shared;
        let clients: Vec<Arc<Client>> = desk.clients.lock().clone();
        self.measure_rarely(&clients);
        self.judge_sched_class();
        if self.uses.is_due() || self.pressure.is_due() || self.load.is_due(shared) {
            let _ordinary = self.as_ordinary_thread();
            self.uses.sample(shared, &clients);
            self.pressure.sample(shared, &clients);
            self.load.sample(shared);
        }
        let managed_before = shared.budget.managed.load(Relaxed);
        let (mut total, mut empty) = (self.own_bytes(), 0);
        // A process counts once, however often it says hello; the last hello is from its stub after
        // an exec.
        let mut seen = HashSet::new();
        let newest = clients.iter().enumerate().rev().filter(|(_, client)| seen.insert(client.pid));
        let now = Instant::now();
        let turn = self.turns.next(clients.len(), now - std::mem::replace(&mut self.last_sample, now));
        let mut sizes: Vec<(&Arc<Client>, Rss)> =
            newest.filter_map(|(i, client)| Some((client, idle::size(client, turn(i), now)?))).collect();
        // The oldest are attached first.
        sizes.reverse();
        let copied: u64 = sizes.iter().map(|(client, rss)| copied_bytes(client, rss, now)).sum();
        self.copied = copied > SHARED_TAKEN * 4096;
        for &(client, ref rss) in &sizes {
            total += client.own(rss.anon) + client.shmem.load(Relaxed);
            empty += empty_bytes(client, rss);
            client.peak.fetch_max(rss.anon, Relaxed);
            client.mapped.store(rss.mapped, Relaxed);
        }
        let unknown = self.sample_unmanaged(&clients);
        // The pager's own figure includes the frames.
        total += unknown + staged_and_cached(shared);
        shared.budget.doubled.store(doubled_bytes(shared, &clients), Relaxed);
        let managed =
            managed_before.min(shared.budget.managed.load(Relaxed)).saturating_sub(shared.budget.doubled.load(Relaxed));
        let unmanaged = total.saturating_sub(managed);
        let grew = unmanaged > shared.budget.unmanaged.swap(unmanaged, Relaxed) + self.growth_bytes();
        shared.budget.samples.fetch_add(1, Relaxed);
        let free = shared.budget.free();
        if grew && free < shared.budget.sizes.register as i64 {
            self.fast_growth_until = Instant::now() + FAST_GROWTH_FOR;
        }
        let fast_growth = Instant::now() < self.fast_growth_until;
        shared.budget.fast_growth.store(fast_growth, Relaxed);
        self.note_peaks(total, &sizes, unknown);
        let grown = total.saturating_sub(std::mem::replace(&mut self.last_total, total));
        // Four times the growth since the last sample must fit.
        let pressure = free < (shared.budget.sizes.register.max(grown * 4)) as i64;
        let braking = free < 0 || (grew && pressure);
        shared.budget.braking.store(braking, Relaxed);
        if braking {
            // First of all: the scan for new memory takes long when there is much of it.
            let procs = shared.procs.lock().clone();
            procs.iter().for_each(|proc| adopt::throttle_stacks(shared, proc));
        }
        let fill_rate = FILL_RATE * self.cpus.min(FILL_CPUS);
        let commit_pressure = shared.sampling.is_some() || shared.budget.sizes.commit_pressure(free, empty, fill_rate);
        shared.budget.commit_pressure.store(commit_pressure, Relaxed);
        let scans = pressure || commit_pressure;
        self.attach_children(&clients, scans);
        let attaches = scans || free < shared.budget.sizes.attach as i64;
        self.attach_and_rescan(&sizes, attaches, scans);
        if attaches {
            self.load_stubs();
        }
        if free < shared.budget.marks().low as i64 {
            shared.budget.want_reclaim();
        }
        self.sleep(&clients, fill_rate)
    }

    /// For work that looks up files of processes that may be ending. The kernel then waits, without
    /// sleeping, for the thread that takes the process out of /proc. If this thread keeps that one
    /// from its CPU, both stand still for a second.
    fn as_ordinary_thread(&self) -> Option<Ordinary> {
        self.real_time.then(memfit_os::sched::end_real_time).map(|()| Ordinary)
    }

    /// Time until the next sample: less than the programs need to fill half of what is free.
    fn sleep(&self, clients: &[Arc<Client>], fill_rate: u64) -> Duration {
        let shared = &self.desk.shared;
        let headroom = shared.budget.free().max(0) as u64;
        let youngest = clients.last().map_or(self.since, |client| client.since).elapsed();
        let longest = if shared.sampling.is_some() { SLEEP_SAMPLING } else { SLEEP_MAX };
        let longest = longest_sleep(youngest).min(longest);
        Duration::from_secs_f64(headroom as f64 / fill_rate as f64 / 2.0).clamp(SLEEP_MIN, longest)
    }

    fn own_bytes(&self) -> u64 {
        let own = self.own.read().map_or(0, |r| r.anon);
        own + self.launcher.as_ref().and_then(|l| l.read().ok()).map_or(0, |r| r.anon)
    }

    fn growth_bytes(&self) -> u64 {
        GROWTH_BYTES + GROWTH_BYTES_CPU * self.cpus.min(16)
    }

    /// Attaches processes that have grown (`attaches`), and scans for memory to register (`scans`).
    /// Does both for a process that was told to leave memory, however much is free.
    fn attach_and_rescan(&mut self, sizes: &[(&Arc<Client>, Rss)], attaches: bool, scans: bool) {
        for &(client, _) in sizes.iter().filter(|(client, _)| waits(client)) {
            client.proc.lock().clone().iter().for_each(|proc| background::begin(&self.desk.shared, client, proc));
        }
        // Accesses are recorded from the beginning.
        let least = if self.desk.shared.sampling.is_some() { 0 } else { ATTACH_BYTES };
        let leaves = |client: &Client| client.standing.load(Relaxed) == background::TOLD_TO_LEAVE;
        // One without memory has ended, most likely, and its files are not looked up here.
        let chosen = |(client, rss): &&(&Arc<Client>, Rss)| rss.mapped > 0 && (attaches || leaves(client));
        for &(client, ref rss) in sizes.iter().filter(chosen) {
            let not_drained = || client.watch.lock().not_drained;
            let leaves = leaves(client);
            let least = if leaves { 0 } else { least };
            match client.stage.load(Relaxed) {
                IDLE if rss.anon >= least && !client.is_unnamed() => attach_or_warn(&self.desk, client),
                DORMANT if rss.anon >= least => wake::begin(&self.desk, client),
                MANAGED if client.detaching.load(Relaxed) || (!leaves && !not_drained()) => {}
                // It has not asked to be detached, and its new threads would stay unknown.
                MANAGED if !self.desk.fork_events && !procfs::may_inspect(client.pid) => {
                    detach::begin(&self.desk, client, Why::Unreadable, None);
                }
                MANAGED if scans || leaves => {
                    let proc = client.proc.lock().clone();
                    let settled = proc.as_ref().is_some_and(|proc| self.scan(client, proc, rss));
                    client.watch.lock().not_drained = !settled;
                    if let Some(proc) = proc.filter(|_| leaves && settled) {
                        background::begin(&self.desk.shared, client, &proc);
                    }
                }
                _ => {}
            }
        }
    }

    /// Attaches fork children of paged processes. Such a child has a userfaultfd and holds pages of
    /// its parent: shared pages can be evicted from both or not at all. `tight`: little memory is
    /// free.
    fn attach_children(&mut self, clients: &[Arc<Client>], tight: bool) {
        let now = Instant::now();
        if tight {
            self.tight_until = now + TIGHT_FOR;
        }
        let lately = now < self.tight_until;
        let known = &self.desk.shared.budget.tight_lately;
        // The flag first: the control thread looks at it after it has opened the socket.
        if !known.swap(lately, SeqCst) && lately {
            starts::limit(&self.desk);
        }
        for client in clients.iter().filter(|c| c.forked && c.stage.load(Relaxed) == IDLE) {
            if client.proc.lock().is_some() {
                let _ordinary = self.as_ordinary_thread();
                attach_or_warn(&self.desk, client);
            }
        }
        fork_children::let_go_on(&self.desk.shared, clients);
    }

    /// Scans for new memory and threads, if there may be some. False if that is still to be done.
    fn scan(&mut self, client: &Client, proc: &Arc<Proc>, rss: &Rss) -> bool {
        let growth = self.growth_bytes();
        let shared = &self.desk.shared;
        let unmanaged = rss.anon.saturating_sub(present_bytes(shared, proc));
        let (mut threads, cpu) = (None, client.watch.lock().cpu());
        let mut known = client.scan.lock();
        // What leaves, leaves as a whole; accesses are recorded from the beginning.
        let leaves = client.standing.load(Relaxed) == background::TOLD_TO_LEAVE;
        let which = if leaves || shared.sampling.is_some() { Extent::Whole } else { Extent::Grown };
        if let Some(last) = known.as_mut() {
            let grown = unmanaged > last.unmanaged + growth;
            let whole = which == Extent::Whole && last.pieces_wait;
            let mut due = grown || rss.mapped != last.mapped || last.again || whole;
            if !due && cpu != last.cpu {
                if last.threads_at.elapsed() <= THREADS_EVERY {
                    return false;
                }
                // A thread on the stack of an ended one maps nothing, and must be pinned all the
                // same.
                let now = Instant::now();
                last.threads_at = now;
                // This sample has read the CPU time before: who makes a thread from now on gains
                // some until the next one.
                let steady = self.newest_task.steady(self.last_sample);
                if last.threads.may_differ(steady, now) {
                    let listed = Threads::list(proc, steady, now);
                    due = listed.differ(&last.threads);
                    if !due {
                        last.threads = listed;
                    }
                    threads = Some(listed);
                }
                // If the scan must wait for its turn, the threads are listed again.
                if !due {
                    last.cpu = cpu;
                }
            }
            // Scans of a process with thousands of mappings must not take all the time.
            let emergency = shared.budget.fast_growth.load(Relaxed) && grown;
            let pace = if grown { GROWN_PACE } else { PACE };
            if !due || (last.at.elapsed() < last.cost * pace && !emergency) {
                return !due;
            }
        }
        if shared.budget.fast_growth.load(Relaxed) && known.is_some_and(|last| last.cost > LONG_SCAN) {
            shared.budget.braking.store(true, Relaxed);
            adopt::throttle_stacks(shared, proc);
        }
        let start = Instant::now();
        // Before the scan: a thread that starts during it is new at the next one.
        let threads = threads.unwrap_or_else(|| Threads::list(proc, self.newest_task.steady(self.last_sample), start));
        let found = adopt::rescan(shared, proc, which);
        let unmanaged = rss.anon.saturating_sub(present_bytes(shared, proc));
        let cost = start.elapsed();
        *known = Some(Scan {
            at: Instant::now(),
            unmanaged,
            mapped: rss.mapped,
            data: rss.data,
            cost,
            again: found.again,
            pieces_wait: found.pieces_wait,
            threads,
            threads_at: Instant::now(),
            cpu,
        });
        !found.again
    }

    /// Decides whether fault threads may be SCHED_IDLE, and may poll for a device. Not when more
    /// threads want a CPU than there are: fault threads or programs would then wait long for
    /// theirs.
    fn judge_sched_class(&mut self) {
        let shared = Arc::clone(&self.desk.shared);
        let elapsed = self.last_judged.elapsed();
        if elapsed < JUDGE_EVERY {
            return;
        }
        self.last_judged = Instant::now();
        let (running, cpus) = memfit_os::sched::runnable();
        // A SCHED_IDLE fault thread stays runnable while its program runs; this thread runs as
        // well.
        let procs = shared.procs.lock().len() as u64;
        let wanted = running.saturating_sub(procs + 1);
        self.judge_contention(running, procs);
        self.wanted_cpus = (self.wanted_cpus * 3.0 + wanted as f64) / 4.0;
        if self.wanted_cpus > cpus as f64 + 0.5 {
            self.contended_until = Instant::now() + CONTENDED_FOR;
        }
        let enough = Instant::now() >= self.contended_until;
        shared.cpus.suffice.store(enough, Relaxed);
        shared.cpus.idle_class.store(enough && self.may_be_idle_class.load(Relaxed), Relaxed);
    }

    /// Decides whether programs wait for a CPU: more threads want one than there are, fault threads
    /// left out; or there are more processes than CPUs, and the CPUs have next to no idle time. A
    /// single program waits for its pages, not for a CPU.
    fn judge_contention(&mut self, running: u64, procs: u64) {
        let (shared, cpus) = (&self.desk.shared, self.idle.cpus());
        let wanted = running.saturating_sub(procs.min(cpus) + 1);
        let full = shared.cpus.full.load(Relaxed);
        self.runnable = (self.runnable * 3.0 + wanted as f64) / 4.0;
        let least = if full { IDLE_AGAIN_PERCENT } else { IDLE_PERCENT };
        let no_idle_time = self.idle.percent(IDLE_WINDOW).is_some_and(|percent| percent < least);
        if self.runnable > cpus as f64 + 0.5 || (procs > cpus && no_idle_time) {
            self.full_until = Instant::now() + CONTENDED_FOR;
        }
        shared.cpus.full.store(Instant::now() < self.full_until, Relaxed);
    }

    /// `unmanaged`: bytes of processes without a stub.
    fn note_peaks(&self, total: u64, sizes: &[(&Arc<Client>, Rss)], unmanaged: u64) {
        let shared = &self.desk.shared;
        let timeline = self.desk.timeline.as_ref().map(|timeline| timeline.lock());
        if let Some(mut timeline) = timeline {
            shared.budget.raise_peak(&Memory { total_bytes: total, ..Memory::default() });
            if timeline.wants(total) {
                let seen = sizes.iter().map(|(c, rss)| (c.pid, &*c.comm, c.own(rss.anon) + c.shmem.load(Relaxed)));
                timeline.add(bytes(shared, total), seen, unmanaged);
            } else if let Some(swap) = &shared.swap {
                timeline.swap_in_use(swap.used_bytes());
            }
            let now = shared.started.elapsed().as_nanos() as u64;
            if timeline.is_due(now) {
                timeline.close(now, stats::counts(shared));
            }
        }
        let state = shared.lock();
        let (staging, backed) = (state.core.staging_allocated(), u64::from(state.frames.backed_frames) * 4096);
        let resident = shared.resident_bytes(&state.core);
        drop(state);
        shared.budget.raise_peak(&Memory {
            total_bytes: total,
            // It is newer than the total.
            resident_bytes: resident.min(total),
            staged_bytes: u64::from(staging) * 4096,
            pool_bytes: backed,
            metadata_bytes: shared.metadata_bytes(),
            swap_bytes: 0,
        });
    }
}

/// Whether a process is paged now that was told to leave when memory is short.
fn waits(client: &Client) -> bool {
    client.standing.load(Relaxed) == background::TOLD_TO_WAIT && client.stage.load(Relaxed) == MANAGED
}

/// Where memory is now. `total`: bytes that the budget counts.
pub fn bytes(shared: &Shared, total: u64) -> Bytes {
    let state = shared.lock();
    let (usage, swapped) = (state.core.pool_usage(), state.core.swapped_total() * 4096);
    let (staged, pool) = (state.core.staging_allocated(), u64::from(state.frames.backed_frames) * 4096);
    let resident = shared.resident_bytes(&state.core);
    drop(state);
    let swap = shared.swap.as_ref();
    Bytes {
        total,
        resident,
        unmanaged: 0,
        staged: u64::from(staged) * 4096,
        pool,
        metadata: shared.metadata_bytes(),
        swap: swap.map_or(0, |s| s.used_bytes()),
        pooled: usage.zpages * 4096,
        swapped,
    }
}

/// Bytes that a process has copied from its fork relatives since it was last measured.
fn copied_bytes(client: &Client, rss: &Rss, now: Instant) -> u64 {
    if rss.mapped == 0 || !client.weighed.lock().shares() {
        return 0;
    }
    let ran = client.watch.lock().ran_within(Duration::ZERO, now);
    let faults = if ran { weigh::faults(client) } else { None };
    let mut weighed = client.weighed.lock();
    faults.into_iter().for_each(|faults| weighed.saw(faults));
    weighed.copied(rss.anon)
}

/// Bytes that the process can fill without another mapping and without a fault that the pager sees.
fn empty_bytes(client: &Client, rss: &Rss) -> u64 {
    match (client.stage.load(Relaxed), *client.scan.lock()) {
        (MANAGED, Some(scan)) => rss.data.saturating_sub(scan.data),
        (REFUSED, _) => 0,
        _ if client.is_unnamed() => 0,
        _ => rss.data.saturating_sub(rss.anon),
    }
}

/// Bytes of staging and of the page cache, which several processes map and which count once.
fn staged_and_cached(shared: &Shared) -> u64 {
    let state = shared.lock();
    u64::from(state.core.staging_allocated()) * 4096 + shared.cache.resident_bytes(&state.core)
}

/// Bytes that the core counts once for each process, though fork relatives share them.
fn doubled_bytes(shared: &Shared, clients: &[Arc<Client>]) -> u64 {
    let mut procs = shared.procs.lock().clone();
    procs.retain(|proc| proc.family.shares());
    if procs.is_empty() {
        return 0;
    }
    let share = |c: &Arc<Client>| Some((Arc::as_ptr(c.proc.lock().as_ref()?), c.share.load(Relaxed)));
    let shares: HashMap<_, u64> = clients.iter().filter_map(share).collect();
    // A fork child that has not named itself has nothing of its own yet.
    let own = |proc| shares.get(&Arc::as_ptr(proc)).copied().unwrap_or(0);
    procs.iter().map(|proc| present_bytes(shared, proc) * (1000 - own(proc)) / 1000).sum()
}

/// Bytes of the process that the core knows to be present; 0 once it is gone.
fn present_bytes(shared: &Shared, proc: &Proc) -> u64 {
    shared.lock_for(proc).map_or(0, |state| state.core.present_pages(proc.id) * 4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_at_often_enough_for_its_peak() {
        let ms = |ms| longest_sleep(Duration::from_millis(ms)).as_millis();
        assert_eq!([0, 30, 120, 800, 10_000].map(ms), [4, 4, 15, 100, 100]);
        assert_eq!(longest_sleep(Duration::MAX), SLEEP_MAX);
        // From its start on, at most the last eighth of its life may be missing, or 4 ms.
        let mut at = Duration::ZERO;
        while at < Duration::from_secs(1) {
            let sleep = longest_sleep(at);
            assert!(sleep <= at / SLEEP_AGE_PART || sleep == SLEEP_YOUNG);
            at += sleep;
        }
    }
}
