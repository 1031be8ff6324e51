//! What the monitor looks for rarely, because it costs much: processes without a stub, who has the
//! memory of whom, and what fork relatives share.

use super::{Monitor, SHARED_TAKEN};
use crate::adopt;
use crate::bare_children;
use crate::clients::{self, Client};
use crate::detach;
use crate::idle::RESTS_AFTER;
use crate::load::{self, Attempts};
use crate::proc::send_command;
use crate::state::Shared;
use crate::wake;
use crate::weigh;
use memfit_os::maps;
use memfit_os::procfs::{self, Rss, RssReader};
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
/// The same at the start of the run, and how long that is.
const AT_START: Duration = Duration::from_millis(2);
const NEW_RUN: Duration = Duration::from_millis(200);
/// A slow sample that took 1 ms is followed by the next after this many ms at the earliest.
const SLOW_PART: u32 = 4;
/// The same if each new task of the machine causes one.
const OFTEN_PART: u32 = 20;
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

/// The open statm of a process, which [`crate::room`] counts.
struct Sizes {
    reader: RssReader,
    shared: Arc<Shared>,
}

impl Sizes {
    fn new(reader: RssReader, shared: &Arc<Shared>) -> Sizes {
        shared.room.unmanaged.fetch_add(1, Relaxed);
        Sizes { reader, shared: Arc::clone(shared) }
    }
}

impl Drop for Sizes {
    fn drop(&mut self) {
        self.shared.room.unmanaged.fetch_sub(1, Relaxed);
    }
}

/// A process of the tree whose stub has not said hello, or that has none.
pub(super) struct Unmanaged {
    /// `None` while descriptors are short: then only the slow sample reads its sizes.
    sizes: Option<Sizes>,
    last: Rss,
    /// Together with its pid it identifies the process.
    started: u64,
    since: Instant,
    /// It may wait at the start socket.
    connects: bool,
    /// Made by fork, without an exec since.
    forked: bool,
    /// Its stub may be on its way, and as many anonymous bytes are its parent's until then.
    awaited: bool,
    inherited: u64,
    /// It has called exec, and no client was found that lends it memory.
    has_own_memory: bool,
    /// Set if it can get the stub from the pager.
    loads: Option<Arc<Attempts>>,
    /// Its command name.
    comm: String,
    /// Its row in the statistics, once it is known why it is not paged.
    row: Option<Process>,
}

impl Unmanaged {
    /// `parent`: anonymous bytes of its parent, if they are known.
    fn new(process: &ProcStat, rss: Rss, parent: Option<u64>) -> Unmanaged {
        Unmanaged {
            sizes: None,
            last: rss,
            started: process.start_ticks,
            since: Instant::now(),
            connects: false,
            forked: process.forked,
            awaited: process.forked,
            inherited: parent.unwrap_or(rss.anon).min(rss.anon),
            has_own_memory: false,
            loads: None,
            comm: process.comm.clone(),
            row: None,
        }
    }

    /// After an exec the pager can try again what has failed.
    fn forget_failure(&mut self, process: &ProcStat) {
        let has_failed = self.loads.as_ref().is_some_and(|attempts| attempts.is_over());
        if has_failed && self.comm != process.comm {
            self.loads = None;
        }
        self.comm.clone_from(&process.comm);
    }

    /// Whether this is the process, in the same program as far as that shows.
    fn is(&self, process: &ProcStat) -> bool {
        self.started == process.start_ticks && self.forked == process.forked
    }

    /// Reads its sizes, and keeps the file open if there are descriptors. Looks up its files.
    fn measure(&mut self, pid: i32, shared: &Arc<Shared>) -> io::Result<()> {
        let keeps = shared.room_for_unmanaged();
        self.last = match &self.sizes {
            Some(sizes) => sizes.reader.read()?,
            None => {
                let reader = RssReader::open(pid)?;
                let rss = reader.read()?;
                self.sizes = keeps.then(|| Sizes::new(reader, shared));
                rss
            }
        };
        if !keeps {
            self.sizes = None;
            let what = "the memory of processes without libmemfit.so is measured only each 250 ms";
            shared.warn(format!("{what}: the pager has few descriptors left: raise ulimit -n"));
        }
        Ok(())
    }

    /// Bytes that count now; `None` once it is gone. Looks up no file of one that is ending.
    fn sample(&mut self) -> Option<u64> {
        if let Some(sizes) = &self.sizes {
            self.last = sizes.reader.sample().ok()?;
        }
        Some(self.counted())
    }

    /// Bytes that count. Until its stub comes, a fork child has what is its parent's for nothing.
    fn counted(&self) -> u64 {
        let inherited = if self.awaited && self.age() < COMES_AT_ALL { self.inherited } else { 0 };
        self.last.anon.saturating_sub(inherited)
    }

    /// Whether it has memory. The size of one that nobody has waited for reads as zeros.
    fn lives(&self, pid: i32) -> bool {
        let now = || RssReader::open(pid).and_then(|reader| reader.read());
        let read = self.sizes.as_ref().map_or_else(now, |sizes| sizes.reader.read());
        read.is_ok_and(|rss| rss.mapped > 0)
    }

    /// Its row at this moment, if it is known why it is not paged.
    fn row_now(&mut self) -> Option<Process> {
        let bytes = self.last.anon;
        let row = self.row.as_mut()?;
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
        since > self.search_pause(since, clients.is_empty())
            || (sharers && !self.weigher.is_busy() && since > SOON.max(cost() * 10) && changed())
    }

    /// Time between two searches. A program into which the pager loads the stub can fill memory as
    /// soon as it runs: the command itself, or a new process of a tree that has such programs.
    fn search_pause(&self, since: Duration, no_client: bool) -> Duration {
        let often = SOON.max(self.slow_cost * OFTEN_PART);
        let new = || procfs::newest_task().is_none_or(|task| Some(task) != self.searched_task);
        let is_new_run = self.since.elapsed() < NEW_RUN;
        if is_new_run && no_client && load::is_possible(&self.desk) {
            return AT_START.max(self.slow_cost * SLOW_PART);
        }
        match (is_new_run || self.has_loaded) && since > often && load::is_possible(&self.desk) && new() {
            true => often,
            false => SLOW_SAMPLE.max(self.slow_cost * SLOW_PART),
        }
    }

    /// Rare and expensive: unmanaged processes, shared memory, proportional sizes after forks,
    /// quarantine.
    fn slow_sample(&mut self, clients: &[Arc<Client>]) {
        let desk = Arc::clone(&self.desk);
        let now = Instant::now();
        let since = now - std::mem::replace(&mut self.slow_begun, now);
        self.searched_task = procfs::newest_task();
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
        let same = |(&pid, known): (&i32, &Unmanaged)| {
            proctree::read_stat(pid).filter(|process| process.start_ticks == known.started)
        };
        let mut found: Vec<ProcStat> = self.unmanaged.iter().filter_map(same).collect();
        let unmanaged: Vec<i32> = found.iter().map(|process| process.pid).collect();
        for &root in known.iter().chain(&unmanaged) {
            found.extend(below(root)?);
        }
        found.retain(|process| !process.is_dead() && !known.contains(&process.pid));
        found.sort_unstable_by_key(|process| process.pid);
        found.dedup_by_key(|process| process.pid);
        Ok(found)
    }

    /// Bytes of all that count now.
    pub(super) fn sample_unmanaged(&mut self, clients: &[Arc<Client>]) -> u64 {
        let mut all = 0;
        self.unmanaged.retain(|&pid, unmanaged| {
            // It may have said hello since it was found.
            if clients.iter().any(|c| c.pid == pid && !c.gone.load(Relaxed)) {
                return false;
            }
            let bytes = unmanaged.sample();
            all += bytes.unwrap_or(0);
            if bytes.is_none() {
                unmanaged.row.take().into_iter().for_each(|row| clients::remember(&self.desk, row, None));
            }
            bytes.is_some()
        });
        all
    }

    /// Gives the stub to programs that do not load it themselves, and have grown.
    pub(super) fn load_stubs(&self) {
        let large = self.unmanaged.iter().filter(|(_, unmanaged)| unmanaged.last.anon >= super::ATTACH_BYTES);
        for (&pid, unmanaged) in large {
            unmanaged.loads.iter().for_each(|attempts| load::begin(&self.desk, pid, attempts));
        }
    }

    /// Returns who may have the memory of a client, as pairs of pids: the client, the other one.
    /// `None` if the tree cannot be listed.
    fn find_unmanaged(&mut self, clients: &[Arc<Client>]) -> Option<Vec<(i32, i32)>> {
        let desk = Arc::clone(&self.desk);
        let served = clients.iter().filter(|client| !client.gone.load(Relaxed)).map(|client| client.pid);
        let known: HashSet<i32> = served.chain([std::process::id() as i32]).collect();
        let remembered = desk.detached.lock().pids();
        let others = self.others(&known).ok()?;
        let listed: HashSet<i32> = others.iter().map(|process| process.pid).chain(known).collect();
        desk.detached.lock().forget(remembered, |pid| listed.contains(&pid));
        crate::forks::forget_lost(&desk.shared, &others);
        let mut names = Names::default();
        let (mut seen, mut sharers) = (HashMap::new(), Vec::new());
        let lent = clients.iter().filter(|client| client.lends.swap(false, Relaxed));
        let lent: HashSet<i32> = lent.map(|client| client.pid).collect();
        for process in &others {
            let old = self.unmanaged.remove(&process.pid).filter(|old| old.is(process));
            let lenders =
                Lenders { clients, lent: &lent, is_alone: old.as_ref().is_some_and(|old| old.has_own_memory) };
            if self.is_signal_probe(process) || lenders.share_with(process, &mut sharers) {
                continue;
            }
            let Some(mut unmanaged) = old.or_else(|| begin(process, clients, &seen)) else { continue };
            unmanaged.has_own_memory = !process.forked;
            unmanaged.forget_failure(process);
            // A process that is known to have no stub passes none on.
            unmanaged.awaited &= seen.get(&process.ppid).is_none_or(|parent| parent.row.is_none());
            // Without a descriptor its last sizes count.
            let _ = unmanaged.measure(process.pid, &desk.shared);
            unmanaged.connects = procfs::system_call(process.pid) == Some(libc::SYS_connect);
            let is_child = process.forked && bare_children::with_pid(&desk.shared, process.pid).is_some();
            let has_own = || !process.forked || is_child || has_own_memory(process);
            let was_refused = desk.detached.lock().of(process).is_some();
            if unmanaged.loads.is_none() && !was_refused && load::suits(process.pid, &desk) && has_own() {
                unmanaged.loads = Some(Arc::default());
                // No stub comes by itself, and nothing that it has is another one's.
                unmanaged.awaited &= is_child;
                self.has_loaded = true;
            }
            // It depends on the pager, and must end with it. Most that live for a moment call exec.
            if is_child && unmanaged.since.elapsed() > SOON {
                unmanaged.loads.iter().for_each(|attempts| load::begin(&desk, process.pid, attempts));
            }
            if let Some(why) = self.why_not_paged(process, &unmanaged, clients, &mut names) {
                let row = unmanaged.row.get_or_insert_default();
                let (comm, why_not_paged) = (process.comm.clone(), Some(why));
                *row = Process { pid: process.pid, comm, why_not_paged, running: true, ..row.clone() };
            }
            seen.insert(process.pid, unmanaged);
        }
        let ended = std::mem::replace(&mut self.unmanaged, seen).into_iter().filter(|(pid, old)| !old.lives(*pid));
        ended.filter_map(|(_, old)| old.row).for_each(|row| clients::remember(&desk, row, None));
        *desk.unpaged.lock() = self.unmanaged.values_mut().filter_map(Unmanaged::row_now).collect();
        self.tell_unmanaged(names);
        Some(sharers)
    }

    /// Why a process is not paged, once that is known. Notes whom the user is to be told of.
    fn why_not_paged(
        &self,
        process: &ProcStat,
        unmanaged: &Unmanaged,
        clients: &[Arc<Client>],
        names: &mut Names,
    ) -> Option<String> {
        let waited = unmanaged.age();
        // A small process is not worth a warning: `unshare` that waits for its child, for instance.
        let large = unmanaged.counted() >= TOLD_BYTES;
        let left = self.desk.detached.lock().of(process);
        if let Some(why) = left {
            if large {
                detach::tell(&self.desk, process.pid, &process.comm, why, false);
            }
            return Some(why.text().to_owned());
        }
        let has_run = || {
            let time = procfs::cpu_clock(process.pid);
            waited >= COMES_WITHOUT_CPU || time.is_none_or(|time| time >= HELLO_TAKES)
        };
        let failed = unmanaged.loads.as_ref().map(|attempts| attempts.failed());
        if failed == Some(None) {
            return None;
        }
        let late =
            || waited >= STUB_COMES && !unmanaged.forked && adopt::is_without_stub(process.pid, &self.desk.shared.stub);
        let lost = || waited >= COMES_AT_ALL && large && has_run();
        if !late() && !lost() {
            return None;
        }
        // To find it out takes several reads.
        let known = unmanaged.row.as_ref().filter(|row| row.comm == process.comm);
        let why = known.and_then(|row| row.why_not_paged.clone());
        let why = why.unwrap_or_else(|| {
            let why = why_unreached(process.pid, &self.desk.shared);
            failed.flatten().map_or(why.clone(), |failed| format!("{why}, and {failed}"))
        });
        // One that has ended meanwhile has shown no reason.
        unmanaged.lives(process.pid).then_some(())?;
        match unmanaged.forked && clients.iter().any(|client| client.pid == process.ppid) {
            true => names.children.push((process.comm.clone(), process.comm.clone())),
            false => names.others.push((process.comm.clone(), format!("{} ({why})", process.comm))),
        }
        Some(why)
    }

    fn tell_unmanaged(&mut self, names: Names) {
        let shared = &self.desk.shared;
        tell_of(shared, names.others, &mut self.unmanaged_told, |names| format!("not paged, but counted: {names}"));
        tell_of(shared, names.children, &mut self.children_told, |names| {
            format!(
                "counted as if they shared nothing: fork children of {names} have not come to the pager within \
                 {COMES_AT_ALL:?} (the machine is busy, or a network namespace keeps them away)"
            )
        });
    }
}

/// Processes that the user is to be told of, each with its text.
#[derive(Default)]
struct Names {
    /// Fork children of clients.
    children: Vec<(String, String)>,
    others: Vec<(String, String)>,
}

/// A process that is seen for the first time. `seen`: those before it, its parent among them.
fn begin(process: &ProcStat, clients: &[Arc<Client>], seen: &HashMap<i32, Unmanaged>) -> Option<Unmanaged> {
    let rss = RssReader::open(process.pid).and_then(|rss| rss.read()).ok()?;
    let parent = seen.get(&process.ppid);
    let of_client = || clients.iter().rfind(|client| client.pid == process.ppid)?.rss.read().ok();
    let parent = parent.map(|parent| parent.last).or_else(of_client);
    Some(Unmanaged::new(process, rss, parent.map(|rss| rss.anon)))
}

/// Whether a fork child that has not called exec has memory of its own, and none that is registered
/// for its parent.
fn has_own_memory(process: &ProcStat) -> bool {
    let is_registered = || {
        let text = procfs::read_memory(process.pid, "smaps");
        text.map_or(true, |text| !maps::registered(&text).is_empty())
    };
    procfs::share_memory(process.pid, process.ppid) == Some(false) && !is_registered()
}

/// Why a process has not come to the pager, as far as that shows.
fn why_unreached(pid: i32, shared: &Shared) -> String {
    match program::without(pid, &shared.stub) {
        Some(without) => without.to_string(),
        None if load::is_memfit(pid) => "memfit pages no memory of its own".into(),
        None if load::is_in_other_network(pid) => "in another network namespace".into(),
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

/// Who may lend a process memory.
struct Lenders<'a> {
    clients: &'a [Arc<Client>],
    /// Those that lent some at the last slow sample.
    lent: &'a HashSet<i32>,
    /// Nobody but its parent can.
    is_alone: bool,
}

impl Lenders<'_> {
    /// Whether a process has the memory of another one, which counts it: its parent's, for vfork
    /// and most others, or, when that has ended, that of one of the same size. A client that lends
    /// it is to know, and both are noted in `sharers`; the parent also if the kernel does not say
    /// whether it lends its memory.
    fn share_with(&self, process: &ProcStat, sharers: &mut Vec<(i32, i32)>) -> bool {
        let with_parent = procfs::share_memory(process.pid, process.ppid);
        let parent = self.clients.iter().find(|client| client.pid == process.ppid);
        let has_parents = with_parent == Some(true);
        let asks = !self.is_alone || with_parent != Some(false);
        let lender = parent.filter(|_| has_parents).or_else(|| if asks { self.as_large(process.pid) } else { None });
        lender.inspect(|client| client.lends.store(true, Relaxed));
        let may_lend = lender.or_else(|| parent.filter(|_| process.forked && with_parent.is_none()));
        // A parent is listed before its children, and can have another process's memory itself.
        let of_parent =
            || sharers.iter().find(|&&(_, sharer)| has_parents && sharer == process.ppid).map(|pair| pair.0);
        let of = may_lend.map(|client| client.pid).or_else(of_parent);
        sharers.extend(of.map(|lender| (lender, process.pid)));
        lender.is_some() || has_parents
    }

    /// The client of the same size that shares its memory with a process.
    fn as_large(&self, pid: i32) -> Option<&Arc<Client>> {
        let mapped = RssReader::open(pid).and_then(|rss| rss.read()).ok()?.mapped;
        let now = Instant::now();
        let as_large = |client: &&Arc<Client>| {
            // The size of one at rest is as it was.
            let changes = || client.watch.lock().ran_within(RESTS_AFTER, now);
            match self.lent.contains(&client.pid) || changes() {
                true => client.rss.read().is_ok_and(|rss| rss.mapped == mapped),
                false => client.mapped.load(Relaxed) == mapped,
            }
        };
        let lends = |client: &&Arc<Client>| procfs::share_memory(pid, client.pid) == Some(true);
        self.clients.iter().filter(|_| mapped > 0).filter(as_large).find(lends)
    }
}

/// Evicted pages of processes that share some after a fork.
fn shared_evictions(shared: &Shared) -> u64 {
    let procs = shared.procs.lock();
    procs.iter().filter(|p| p.family.shares()).map(|p| p.counters.evicted.load(Relaxed)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn child(anon: u64, parent: Option<u64>, awaited: bool) -> Unmanaged {
        let stat = proctree::read_stat(std::process::id() as i32).unwrap();
        let rss = Rss { anon: anon * MIB, ..Rss::default() };
        Unmanaged { awaited, ..Unmanaged::new(&stat, rss, parent.map(|mib| mib * MIB)) }
    }

    #[test]
    fn a_fork_child_counts_with_what_its_parent_has_not() {
        let counts = |child: &Unmanaged| child.counted() / MIB;
        let mut of_client = child(100, Some(100), true);
        assert_eq!(counts(&of_client), 0, "all is its parent's, and its stub comes");
        of_client.last.anon = 130 * MIB;
        assert_eq!(counts(&of_client), 30, "it has grown");
        of_client.since -= COMES_AT_ALL;
        assert_eq!(counts(&of_client), 130, "its stub does not come");
        assert_eq!(counts(&child(120, Some(8), true)), 112, "it had grown when it was found");
        assert_eq!(counts(&child(120, None, true)), 0, "nobody knows its parent");
        assert_eq!(counts(&child(120, Some(100), false)), 120, "its parent has no stub, so no stub comes");
    }

    #[test]
    fn nobody_is_taken_for_another_process_of_the_same_pid() {
        let mut stat = proctree::read_stat(std::process::id() as i32).unwrap();
        let known = Unmanaged::new(&stat, Rss::default(), None);
        assert!(known.is(&stat));
        stat.start_ticks += 1;
        assert!(!known.is(&stat));
    }
}
