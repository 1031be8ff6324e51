//! What the monitor looks for rarely, because it costs much: processes without a stub, who has the
//! memory of whom, and what fork relatives share.

use super::{Monitor, SHARED_TAKEN};
use crate::adopt;
use crate::clients::{self, Client};
use crate::detach;
use crate::proc::send_command;
use crate::state::Shared;
use crate::wake;
use crate::weigh;
use memfit_os::procfs::{self, RssReader};
use memfit_os::proctree::{self, ProcStat};
use memfit_os::program;
use memfit_os::signal_probe;
use memfit_stats::Process;
use memfit_wire::{Command, ALL_ENDED};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two searches for processes without a stub and measurements of proportional sizes.
/// The shorter one holds after a fork and when a process left that could have shared pages; it is
/// also how long a fork child must live to be measured.
const SLOW_SAMPLE: Duration = Duration::from_millis(250);
const SOON: Duration = Duration::from_millis(20);
/// A fork child, or a program with a stub, says hello within this time, or it cannot: it is in
/// another network namespace, for instance.
const COMES_AT_ALL: Duration = Duration::from_secs(2);
/// The longest wait at the start socket.
const STARTS_WITHIN: Duration = Duration::from_secs(20);
/// Smallest of these processes that is reported, bytes.
const TOLD_BYTES: u64 = 1 << 20;
/// Most names of such processes in one warning, and in all warnings of a run.
const NAMES_AT_ONCE: usize = 5;
const NAMES_MAX: usize = 20;
/// A program without a stub this long after its start will have none.
const STUB_COMES: Duration = Duration::from_millis(200);
/// A hello takes less CPU time than this. On a busy machine it can come late.
const HELLO_TAKES: Duration = Duration::from_millis(10);
/// How long the monitor waits for a process that gets no CPU.
const COMES_WITHOUT_CPU: Duration = Duration::from_secs(60);

/// A process of the tree whose stub has not said hello, or that has none.
pub(super) struct Unmanaged {
    rss: RssReader,
    since: Instant,
    /// It may wait at the start socket.
    connects: bool,
    /// Made by fork, without an exec since: what it has is its parent's, and its stub may be on its
    /// way.
    forked: bool,
    /// Its row in the statistics, once it is known why it is not paged.
    pub(super) row: Option<Process>,
}

impl Unmanaged {
    /// Bytes that count.
    pub(super) fn bytes(&self) -> Option<u64> {
        let anon = self.rss.read().ok()?.anon;
        Some(if self.forked && self.age() < COMES_AT_ALL { 0 } else { anon })
    }

    /// Whether it has memory. The size of one that nobody has waited for reads as zeros.
    pub(super) fn lives(&self) -> bool {
        self.rss.read().is_ok_and(|rss| rss.mapped > 0)
    }

    /// Its row at this moment, if it is known why it is not paged.
    fn row_now(&mut self) -> Option<Process> {
        let row = self.row.as_mut()?;
        let bytes = self.rss.read().ok()?.anon;
        row.resident_bytes = bytes;
        row.peak_total_bytes = row.peak_total_bytes.max(bytes);
        Some(row.clone())
    }

    /// Time for which it could have said hello.
    fn age(&self) -> Duration {
        self.since.elapsed().saturating_sub(if self.connects { STARTS_WITHIN } else { Duration::ZERO })
    }
}

impl Monitor {
    /// The slow sample, if it is due, or the measurement of new fork children.
    pub(super) fn measure_rarely(&mut self, clients: &[Arc<Client>]) {
        if self.slow_sample_due(clients) {
            let start = Instant::now();
            let ordinary = self.as_ordinary_thread();
            self.slow_sample(clients);
            drop(ordinary);
            self.slow_cost = start.elapsed();
            self.last_slow = Some(Instant::now());
            self.last_clients = clients.len();
            self.last_shared = shared_evictions(&self.desk.shared);
        } else if !self.weigher.is_busy() {
            // A child that was made while all were measured: what its relatives have less since
            // then is the child's.
            let ended = self.weigher.ended();
            let is_missing = |c: &&Arc<Client>| is_unweighed(c) && ended.is_some_and(|ended| c.since < ended);
            let new: Vec<Arc<Client>> = clients.iter().filter(is_missing).cloned().collect();
            if !new.is_empty() && self.last_slow.is_some_and(|at| at.elapsed() < SLOW_SAMPLE / 2) {
                self.weigher.weigh_new(new);
            }
        }
    }

    fn slow_sample_due(&self, clients: &[Arc<Client>]) -> bool {
        let Some(since) = self.last_slow.map(|at| at.elapsed()) else { return true };
        let sharers = clients.iter().any(|c| c.forked) || self.shared_before;
        let taken = || shared_evictions(&self.desk.shared) > self.last_shared + SHARED_TAKEN;
        let changed = || {
            clients.len() < self.last_clients
                || clients.iter().any(|client| is_unweighed(client))
                || taken()
                || self.copied
        };
        let cost = || self.slow_cost + self.weigher.cost();
        since > SLOW_SAMPLE || (sharers && !self.weigher.is_busy() && since > SOON.max(cost() * 10) && changed())
    }

    /// Rare and expensive: unmanaged processes, shared memory, proportional sizes after forks,
    /// quarantine.
    fn slow_sample(&mut self, clients: &[Arc<Client>]) {
        let desk = Arc::clone(&self.desk);
        let now = Instant::now();
        let since = now - std::mem::replace(&mut self.slow_begun, now);
        let has_run = |client: &Client| client.watch.lock().ran_within(since, now);
        let run: Vec<Arc<Client>> = clients.iter().filter(|client| has_run(client)).cloned().collect();
        wake::forget_others(&desk, &run);
        crate::quarantine::begin(&desk.shared);
        let sharers = self.find_unmanaged(clients);
        run.iter().for_each(|client| end_with_program(client));
        if !self.weigher.is_busy() {
            // Once more after the last child has left: its parent's pages are its own again.
            let forks = clients.iter().any(|c| c.forked) || self.shared_before;
            self.shared_before = clients.iter().any(|c| c.forked);
            // What it shares changes with its relatives, and with those who map the same.
            let changes = |c: &&Arc<Client>| forks || has_run(c) || weigh::depends_on_others(c);
            self.weigher.weigh(clients.iter().filter(changes).cloned().collect(), forks);
        }
        crate::quarantine::release(&desk.shared, sharers.as_deref());
    }

    /// The launcher's group-signal probe, which has no memory of its own. A program can have its
    /// name.
    fn is_signal_probe(&self, process: &ProcStat) -> bool {
        let launcher = self.desk.config.launcher_pid;
        let file = |pid: i32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        process.comm == signal_probe::NAME && process.ppid == launcher && file(process.pid) == file(launcher)
    }

    /// The processes of the tree without those that are `known`, which are clients. When the
    /// launcher has ended, those below clients and below processes without a stub.
    fn others(&self, known: &HashSet<i32>) -> io::Result<Vec<ProcStat>> {
        let below = |root| proctree::descendants_by_lists(root, |pid| known.contains(&pid));
        if !self.desk.launcher_ended.load(Relaxed) {
            return below(self.desk.config.launcher_pid);
        }
        // The size cannot be read of another process with that pid.
        let unmanaged = self.unmanaged.iter().filter(|(_, unmanaged)| unmanaged.bytes().is_some());
        let unmanaged: Vec<i32> = unmanaged.map(|(&pid, _)| pid).collect();
        let mut found: Vec<ProcStat> = unmanaged.iter().filter_map(|&pid| proctree::read_stat(pid)).collect();
        for &root in known.iter().chain(&unmanaged) {
            found.extend(below(root)?);
        }
        found.retain(|process| !process.is_dead() && !known.contains(&process.pid));
        found.sort_unstable_by_key(|process| process.pid);
        found.dedup_by_key(|process| process.pid);
        Ok(found)
    }

    /// Returns who may have the memory of a client, as pairs of pids: the client, the other one.
    /// `None` if the tree cannot be listed.
    fn find_unmanaged(&mut self, clients: &[Arc<Client>]) -> Option<Vec<(i32, i32)>> {
        let served = clients.iter().filter(|client| !client.gone.load(Relaxed)).map(|client| client.pid);
        let known: HashSet<i32> = served.chain([std::process::id() as i32]).collect();
        let others = self.others(&known).ok()?;
        crate::forks::forget_lost(&self.desk.shared, &others);
        let (mut names, mut children) = (Vec::new(), Vec::new());
        let (mut seen, mut sharers) = (HashMap::new(), Vec::new());
        clients.iter().for_each(|client| client.lends.store(false, Relaxed));
        for process in &others {
            if self.is_signal_probe(process) || shares_memory(process, clients, &mut sharers) {
                continue;
            }
            let old = self.unmanaged.remove(&process.pid).filter(|old| old.forked == process.forked);
            let Some(mut unmanaged) = old.or_else(|| {
                let rss = RssReader::open(process.pid).ok()?;
                Some(Unmanaged { rss, since: Instant::now(), connects: false, forked: process.forked, row: None })
            }) else {
                continue;
            };
            unmanaged.connects = procfs::system_call(process.pid) == Some(libc::SYS_connect);
            let waited = unmanaged.age();
            // A small process is not worth a warning: `unshare` that waits for its child, for
            // instance.
            let large = || unmanaged.bytes().is_some_and(|bytes| bytes >= TOLD_BYTES);
            let left = self.desk.detached.lock().of(process);
            let has_run = || {
                let time = procfs::cpu_clock(process.pid);
                waited >= COMES_WITHOUT_CPU || time.is_none_or(|time| time >= HELLO_TAKES)
            };
            let late = || {
                waited >= STUB_COMES && !unmanaged.forked && adopt::is_without_stub(process.pid, &self.desk.shared.stub)
            };
            let why = if let Some(why) = left {
                if large() {
                    detach::tell(&self.desk, process.pid, &process.comm, why, false);
                }
                Some(why.text().to_owned())
            } else if late() || (waited >= COMES_AT_ALL && large() && has_run()) {
                // To find it out takes several reads.
                let known = unmanaged.row.as_ref().filter(|row| row.comm == process.comm);
                let why = known.and_then(|row| row.why_not_paged.clone());
                let why = why.unwrap_or_else(|| why_unreached(process.pid, &self.desk.shared));
                let of_client = unmanaged.forked && clients.iter().any(|client| client.pid == process.ppid);
                // One that has ended meanwhile has shown no reason.
                let shows = unmanaged.lives();
                match of_client {
                    _ if !shows => {}
                    true => children.push((process.comm.clone(), process.comm.clone())),
                    false => names.push((process.comm.clone(), format!("{} ({why})", process.comm))),
                }
                shows.then_some(why)
            } else {
                None
            };
            if let Some(why) = why {
                let row = unmanaged.row.get_or_insert_default();
                let (comm, why_not_paged) = (process.comm.clone(), Some(why));
                *row = Process { pid: process.pid, comm, why_not_paged, running: true, ..row.clone() };
            }
            seen.insert(process.pid, unmanaged);
        }
        let ended = std::mem::replace(&mut self.unmanaged, seen).into_values().filter(|old| !old.lives());
        ended.filter_map(|old| old.row).for_each(|row| clients::remember(&self.desk, row));
        *self.desk.unpaged.lock() = self.unmanaged.values_mut().filter_map(Unmanaged::row_now).collect();
        let shared = &self.desk.shared;
        tell_of(shared, names, &mut self.unmanaged_told, |names| format!("not paged, but counted: {names}"));
        tell_of(shared, children, &mut self.children_told, |names| {
            format!(
                "counted as if they shared nothing: fork children of {names} have not come to the pager within \
                 {COMES_AT_ALL:?} (the machine is busy, or a network namespace keeps them away)"
            )
        });
        Some(sharers)
    }
}

/// Why a process has not come to the pager, as far as that shows.
fn why_unreached(pid: i32, shared: &Shared) -> String {
    let other_network = || procfs::network(pid) != procfs::network(std::process::id() as i32);
    match program::without(pid, &shared.stub) {
        Some(without) => without.to_string(),
        None if other_network() => "in another network namespace".into(),
        None => "its stub has not come to the pager".into(),
    }
}

/// Warns of each name once, with some of them at a time: `names` has each with its text. After many
/// names it is silent.
fn tell_of(shared: &Shared, names: Vec<(String, String)>, told: &mut BTreeSet<String>, text: impl Fn(&str) -> String) {
    let room = NAMES_AT_ONCE.min(NAMES_MAX - told.len());
    let new = names.into_iter().filter(|(name, _)| told.insert(name.clone())).take(room);
    let new: Vec<String> = new.map(|(_, text)| text).collect();
    if !new.is_empty() {
        shared.warn(text(&new.join(", ")));
    }
}

/// Whether a fork child lives long enough for a measurement, and was not measured yet.
fn is_unweighed(client: &Client) -> bool {
    client.unweighed.lock().is_some_and(|at| at.elapsed() > SOON)
}

/// Ends the process of a program that has ended without it (a bare SYS_exit of its only thread, or
/// a filter that kills one): the stub thread is the last one then, and ends with the status of the
/// first.
fn end_with_program(client: &Client) {
    if client.dormant.is_some() || procfs::threads(client.pid) != 2 {
        return;
    }
    if let Some(status) = procfs::zombie_status(client.pid) {
        send_command(&client.socket, &Command { kind: ALL_ENDED, flags: status, ..Command::default() }, None);
    }
}

/// Whether a process has the memory of another one, which counts it: its parent's, for vfork and
/// most others, or, when that has ended, that of one of the same size. A client that lends it is to
/// know, and both are noted in `sharers`; the parent also if the kernel does not say whether it
/// lends its memory.
fn shares_memory(process: &proctree::ProcStat, clients: &[Arc<Client>], sharers: &mut Vec<(i32, i32)>) -> bool {
    let with_parent = procfs::share_memory(process.pid, process.ppid);
    let parent = clients.iter().find(|client| client.pid == process.ppid);
    let as_large = || {
        let mapped = RssReader::open(process.pid).and_then(|rss| rss.read()).ok()?.mapped;
        let as_large = |client: &&Arc<Client>| client.rss.read().is_ok_and(|rss| rss.mapped == mapped);
        let lends = |client: &&Arc<Client>| procfs::share_memory(process.pid, client.pid) == Some(true);
        clients.iter().filter(|_| mapped > 0).filter(as_large).find(lends)
    };
    let has_parents = with_parent == Some(true);
    let lender = parent.filter(|_| has_parents).or_else(as_large);
    lender.inspect(|client| client.lends.store(true, Relaxed));
    let may_lend = lender.or_else(|| parent.filter(|_| process.forked && with_parent.is_none()));
    // A parent is listed before its children, and can have another process's memory itself.
    let of_parent = || sharers.iter().find(|&&(_, sharer)| has_parents && sharer == process.ppid).map(|pair| pair.0);
    let of = may_lend.map(|client| client.pid).or_else(of_parent);
    sharers.extend(of.map(|lender| (lender, process.pid)));
    lender.is_some() || has_parents
}

/// Evicted pages of processes that share some after a fork.
fn shared_evictions(shared: &Shared) -> u64 {
    let procs = shared.procs.lock();
    procs.iter().filter(|p| p.family.shares()).map(|p| p.counters.evicted.load(Relaxed)).sum()
}
