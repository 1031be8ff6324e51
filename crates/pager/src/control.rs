//! The control thread: stubs, the launcher, one-shot questions; and the life of paged processes.

use crate::adopt;
use crate::config::{Config, FromPager, ToPager};
use crate::detach::{self, Detached};
use crate::family::Family;
use crate::fault;
use crate::fork_children;
use crate::forks::{self, Expected};
use crate::idle::Watch;
use crate::locks::{rank, Lock};
use crate::monitor::Scan;
use crate::mutant::{off, Rule};
use crate::netns_fallback::NetnsFallback;
use crate::newcomers::{parse, say_bye, Newcomers};
use crate::proc::{send_command, slot_offset, Broken, Identity, Proc, ProcCounters, DOORBELL_BYTES};
use crate::record::Recording;
use crate::room;
use crate::state::Shared;
use crate::timeline::Timeline;
use crate::wake::{self, Dormant};
use memfit_core::PageRange;
use memfit_os::event::{poll_each, EventFd};
use memfit_os::maps::{self, Maps, Pagemap};
use memfit_os::memory::{file_of, Segment};
use memfit_os::process::{self, PidFd};
use memfit_os::procfs::{self, RssReader};
use memfit_os::proctree::{self, ProcStat};
use memfit_os::seqpacket;
use memfit_os::standby::Standby;
use memfit_os::uffd::{self, Uffd};
use memfit_stats::Process;
use memfit_wire::{
    Command, FromStub, AGAIN, ANNOUNCE_FORKS, ATTACH, ATTACHED, FORKED, FORKED_AGAIN, LEND, MAPS, PAGEMAP, QUIET,
    SERVED, SOCKET_VARIABLE, WITH_DEVICE, WITH_UFFD,
};
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A process whose stub has said hello or greeted.
pub struct Client {
    /// Pid in the pager's namespace.
    pub pid: i32,
    /// Thread id of the stub in its own namespace.
    pub tid: u32,
    /// Made by a fork of a process that had a stub.
    pub forked: bool,
    /// Its parent was paged, as a FORK event reported: it must identify itself by the beacon.
    pub has_beacon: bool,
    /// When the pager first heard of it.
    pub since: Instant,
    /// Its control socket. For a dormant client, a descriptor of the process, readable at its end.
    pub socket: Arc<OwnedFd>,
    /// Set if its stub has no thread yet.
    pub dormant: Option<Dormant>,
    /// [`IDLE`] or one of the constants after it.
    pub stage: AtomicU32,
    /// Resident sizes.
    pub rss: RssReader,
    /// Unshared part of its anonymous pages at the last sample, in thousandths.
    pub share: AtomicU64,
    /// Its anonymous bytes when its share was last measured, and how many of them were its own. A
    /// new fork child owns nothing: all is its parent's. What it allocates later is its own.
    pub weighed: Lock<(u64, u64), { rank::WEIGHED }>,
    /// Since when it is known, until its share is measured.
    pub unweighed: Lock<Option<Instant>, { rank::UNWEIGHED }>,
    /// Shared memory that counts for it, bytes.
    pub shmem: AtomicU64,
    /// Address space at the last sample, bytes.
    pub mapped: AtomicU64,
    /// Largest anonymous size seen, bytes.
    pub peak: AtomicU64,
    /// For the child of an announced fork, until it is paged.
    pub expected: Lock<Option<Arc<Expected>>, { rank::EXPECTED_OF_CLIENT }>,
    /// Its stub has said [`ATTACHED`], with its userfaultfd, at this time. It waits for its parent
    /// to leave the fork.
    ready: Lock<Option<(FromStub, Option<OwnedFd>, Instant)>, { rank::READY }>,
    /// Segment sent with ATTACH.
    pub segment: Lock<Option<Arc<Segment>>, { rank::SEGMENT }>,
    /// Set once it has a userfaultfd.
    pub proc: Lock<Option<Arc<Proc>>, { rank::CLIENT_PROC }>,
    /// What the monitor has seen of it.
    pub watch: Lock<Watch, { rank::WATCH }>,
    /// A process that is no client uses its memory.
    pub lends: AtomicBool,
    /// The monitor's last scan of it.
    pub scan: Lock<Option<Scan>, { rank::SCAN }>,
    /// Command name at hello.
    pub comm: String,
    /// It is being detached.
    pub detaching: AtomicBool,
    /// What its stub has answered to [`QUIET`]: see [`detach::REQUESTED`].
    pub quiet: AtomicU32,
    /// The socket is closed.
    pub gone: AtomicBool,
}

impl Client {
    /// How many of its `anon` bytes are its own.
    pub fn own(&self, anon: u64) -> u64 {
        let (then, own) = *self.weighed.lock();
        let own = if anon >= then { own + anon - then } else { own * anon / then };
        self.share.store(own * 1000 / anon.max(1), Relaxed);
        own
    }

    /// Its figures now.
    pub fn row(&self) -> Process {
        let proc = self.proc.lock().clone();
        let count = |of: fn(&ProcCounters) -> &AtomicU64| proc.as_ref().map_or(0, |p| of(&p.counters).load(Relaxed));
        let rss = self.rss.read().unwrap_or_default();
        Process {
            pid: self.pid,
            comm: self.comm.clone(),
            peak_total_bytes: self.peak.load(Relaxed),
            resident_bytes: rss.anon,
            faults: count(|c| &c.faults),
            evicted_pages: count(|c| &c.evicted),
            paged: proc.is_some(),
            running: rss.mapped > 0,
        }
    }
}

/// A device is reported when a transfer takes longer.
const SILENT_AFTER: Duration = Duration::from_secs(3);

/// Most ended processes in the statistics.
const PAST_MAX: usize = 1000;

/// Longest sleep of the control thread, which also checks what makes no descriptor readable, ms;
/// and while a process must be found and killed.
const POLL_MS: i32 = 200;
const DOOMED_POLL_MS: i32 = 20;

/// Not attached.
pub const IDLE: u32 = 0;
/// ATTACH was sent.
pub const ATTACHING: u32 = 1;
/// It is paged.
pub const MANAGED: u32 = 2;
/// It cannot be attached.
pub const REFUSED: u32 = 3;
/// Its stub has no thread yet.
pub const DORMANT: u32 = 4;
/// Its stub thread is being made.
pub const WAKING: u32 = 5;

/// What the control and monitor threads share.
pub struct Desk {
    /// The pager's state.
    pub shared: Arc<Shared>,
    /// Processes with a stub.
    pub clients: Lock<Vec<Arc<Client>>, { rank::CLIENTS }>,
    /// `/dev/userfaultfd`, if it can be opened.
    pub device: Option<OwnedFd>,
    /// The kernel reports forks (CAP_SYS_PTRACE).
    pub fork_events: bool,
    /// Socket for processes of other network namespaces.
    pub netns_fallback: NetnsFallback,
    /// Set when the command has ended.
    pub ended: Lock<Option<ToPager>, { rank::ALL_ENDED }>,
    /// Set when the tree has ended and no other process is paged.
    pub over: AtomicBool,
    /// Clients that ended, for the statistics.
    pub past: Lock<Vec<Process>, { rank::PAST }>,
    /// Processes without a stub whose reason is known.
    pub detached: Lock<Detached, { rank::DETACHED }>,
    /// Threads that have stub threads made (see [`crate::wake`]).
    pub wakers: Standby,
    /// Set if the run is recorded.
    pub recording: Option<Recording>,
    /// Set if the run gets a report. Its lock comes before all others.
    pub timeline: Option<Lock<Timeline, { rank::TIMELINE }>>,
    /// From the launcher.
    pub config: Config,
}

/// Runs until the pager may end.
pub fn run(desk: &Arc<Desk>) {
    memfit_os::sched::ask_short_slices();
    let launcher = desk.config.to_launcher;
    let mut newcomers = Newcomers::default();
    let mut launcher_open = true;
    // The shared descriptor table keeps the launcher's end of the socket open, so only the pid
    // shows its death.
    let alive = PidFd::open(desk.config.launcher_pid).ok();
    // The launcher may have died before, and its pid may be another's.
    if std::os::unix::process::parent_id() != desk.config.launcher_pid as u32 {
        return abandon(desk);
    }
    loop {
        tell_silence(&desk.shared);
        deliver(desk, launcher_open);
        let clients: Vec<Arc<Client>> = desk.clients.lock().clone();
        clients.iter().for_each(|client| manage_ready(desk, client));
        fork_children::release_independent(desk, &clients);
        fork_children::end_doomed(&desk.shared);
        let open = |fd: RawFd| if launcher_open { fd } else { -1 };
        let watch = alive.as_ref().map_or(-1, |fd| fd.as_fd().as_raw_fd());
        let [listener, netns_fallback] = newcomers.listeners([desk.config.listener, desk.netns_fallback.as_raw_fd()]);
        let fixed = [listener, desk.shared.outbox_event.as_raw_fd(), open(launcher), open(watch), netns_fallback];
        let all = fixed.into_iter().chain(newcomers.pending()).chain(clients.iter().map(|c| c.socket.as_raw_fd()));
        let wait = if desk.shared.unnamed.doomed() == 0 { POLL_MS } else { DOOMED_POLL_MS };
        let readable = poll_each(all, wait);
        if readable[1] {
            desk.shared.outbox_event.clear();
        }
        let left = readable[2] && !from_launcher(desk, launcher);
        if left || readable[3] {
            launcher_open = false;
            if !launcher_left_in_order(desk) {
                return abandon(desk);
            }
        }
        let (first, count) = (fixed.len(), newcomers.pending().count());
        for (client, _) in clients.iter().zip(&readable[first + count..]).filter(|(_, &readable)| readable) {
            from_client(desk, client);
        }
        newcomers.read(desk, &readable[first..first + count]);
        for (i, listener) in [(0, listener), (4, netns_fallback)] {
            if readable[i] {
                newcomers.accept(desk, listener);
            }
        }
        if desk.over.load(Relaxed) {
            deliver(desk, launcher_open);
            return newcomers.dismiss(desk);
        }
        if desk.ended.lock().is_some()
            && desk.clients.lock().is_empty()
            && desk.shared.procs.lock().is_empty()
            && forks::none_expected(&desk.shared)
            && desk.shared.unnamed.doomed() == 0
        {
            deliver(desk, launcher_open);
            return newcomers.dismiss(desk);
        }
    }
}

/// Warns if the device does not answer. Done by this thread, because a thread that needs the device
/// may be the one that waits.
fn tell_silence(shared: &Shared) {
    let longest = shared.swap.as_ref().and_then(|swap| swap.counters.under_way.longest());
    if longest.is_some_and(|waited| waited > SILENT_AFTER) {
        shared.warn("the swap tier does not answer; programs wait for pages that are there, or for memory".into());
    }
}

/// Sends the queued messages to the launcher.
fn deliver(desk: &Desk, open: bool) {
    for message in desk.shared.take_outbox() {
        if open {
            send_to_launcher(desk.config.to_launcher, &message);
        }
    }
}

/// Longest message sent as a packet, bytes: far below the kernel's bound of a send buffer
/// (`net.core.wmem_default`, 208 KiB).
const PACKET_BYTES: usize = 32 << 10;

/// Sends one message; retries for 0.5 s if the launcher does not keep up.
pub fn send_to_launcher(fd: RawFd, message: &FromPager) {
    let Ok(text) = serde_json::to_vec(message) else { return };
    let socket = process::lasting(fd);
    let large = if text.len() > PACKET_BYTES { file_of(&text).ok() } else { None };
    let packet = if large.is_some() { b"{}" } else { &text[..] };
    for _ in 0..100 {
        match seqpacket::send(socket, packet, large.as_ref().map(AsFd::as_fd)) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(5))
            }
            _ => return,
        }
    }
}

/// False when the launcher is gone.
fn from_launcher(desk: &Arc<Desk>, fd: RawFd) -> bool {
    let socket = process::lasting(fd);
    let packet = match seqpacket::receive(socket) {
        Ok(Some(packet)) => packet,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return true,
        _ => return false,
    };
    match serde_json::from_slice(&packet.bytes) {
        Ok(message @ ToPager::CommandExited { wait_for_stats, .. }) => {
            if wait_for_stats {
                let (course, stats, summary) = crate::stats::report(desk, &message);
                deliver(desk, true);
                if let Some(course) = course {
                    send_to_launcher(fd, &FromPager::Course(course));
                }
                send_to_launcher(fd, &FromPager::Stats { stats, summary });
            }
            *desk.ended.lock() = Some(message);
        }
        Ok(ToPager::TreeEnded) if serves_others(desk) => send_to_launcher(fd, &FromPager::Serves),
        Ok(ToPager::TreeEnded) => desk.over.store(true, Relaxed),
        _ => {}
    }
    true
}

/// The tree has ended: whether processes are paged that inherited only its environment. Clients
/// that are not attached are told to go on alone.
fn serves_others(desk: &Desk) -> bool {
    let lives = |pid: i32| proctree::read_stat(pid).is_some_and(|process| !process.is_dead());
    let mut clients = desk.clients.lock().clone();
    clients.retain(|client| lives(client.pid));
    // A client that is not attached now will never be. The fork child of a paged process needs the
    // pager all the same.
    clients.retain(|client| {
        client.has_beacon || client.stage.compare_exchange(IDLE, REFUSED, SeqCst, SeqCst).is_err() || {
            say_bye(&client.socket);
            false
        }
    });
    let attached = |client: &Arc<Client>| client.has_beacon || matches!(client.stage.load(SeqCst), ATTACHING | MANAGED);
    let procs = desk.shared.procs.lock().clone();
    clients.iter().any(attached)
        || desk.shared.unnamed.doomed() > 0
        || procs.iter().any(|proc| proc.pid().map_or_else(|| !proc.uffd.gone(), lives))
}

fn launcher_left_in_order(desk: &Desk) -> bool {
    desk.ended.lock().is_some()
}

/// The launcher died: only the pager holds the descriptors, so the tree must end before the pager.
/// That includes processes without a stub and those whose stub has not said hello yet.
fn abandon(desk: &Desk) {
    desk.shared.ending.store(true, Relaxed);
    desk.netns_fallback.close();
    let clients: Vec<Arc<Client>> = desk.clients.lock().clone();
    let mut tree: Vec<ProcStat> = clients.iter().filter_map(|client| proctree::read_stat(client.pid)).collect();
    let entry = format!("{SOCKET_VARIABLE}={}", desk.config.socket_name);
    let mut killed = !clients.is_empty() || !desk.past.lock().is_empty();
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut quiet = 0;
    // A process that calls exec just now shows no environment: search twice.
    while quiet < 2 && Instant::now() < deadline {
        for client in &clients {
            process::kill(client.pid);
        }
        tree = members(tree, &entry);
        for process in &tree {
            let _ = proctree::kill_exactly(process);
        }
        killed |= !tree.is_empty();
        // A process that has ended and waits for its parent has no memory.
        let ended = tree.is_empty() && clients.iter().all(|c| c.rss.read().map_or(0, |rss| rss.mapped) == 0);
        quiet = if ended { quiet + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(3));
    }
    if killed {
        // The pager shares standard error with the launcher, which cannot write there any more.
        process::write_stderr("memfit: the launcher died; the command and all that it started were killed\n");
    }
}

/// The living among `known`, their descendants, and all with the entry in their environment.
fn members(known: Vec<ProcStat>, entry: &str) -> Vec<ProcStat> {
    let Ok(all) = proctree::snapshot() else { return Vec::new() };
    let same = |one: &ProcStat, other: &ProcStat| (one.pid, one.start_ticks) == (other.pid, other.start_ticks);
    let mut found: Vec<ProcStat> = all.iter().filter(|p| known.iter().any(|k| same(k, p))).cloned().collect();
    for root in found.clone() {
        found.extend(proctree::descendants_in(&all, root.pid, &HashSet::new()).into_iter().cloned());
    }
    found.extend(proctree::with_environment(entry.as_bytes()).unwrap_or_default());
    found.retain(|process| !process.is_dead());
    found.sort_unstable_by_key(|process| process.pid);
    found.dedup_by_key(|process| process.pid);
    found
}

/// A process has said hello.
pub fn add_client(desk: &Arc<Desk>, socket: OwnedFd, pid: i32, hello: &FromStub) {
    let Ok(rss) = RssReader::open(pid) else { return say_bye(&socket) };
    // Another process may have its pid by now.
    if !seqpacket::peer_lives(socket.as_fd()) {
        return;
    }
    let expected = forks::take(&desk.shared, hello.token).filter(|_| hello.token != 0);
    if hello.token != 0 && expected.is_none() {
        // It waits, and lacks the pages that were evicted when it was forked.
        let comm = procfs::comm(pid).unwrap_or_default();
        desk.shared.warn(format!("killed process {pid} ({comm}): it came too late after its fork to be served"));
        process::kill(pid);
        return;
    }
    // In a long chain of forks, evictions would give each process its own copy of what all share.
    let stage = if hello.flags & FORKED_AGAIN == 0 { IDLE } else { REFUSED };
    let client = new_client(desk, socket, pid, hello, rss, stage);
    *client.expected.lock() = expected;
    if hello.token != 0 {
        if let Err(error) = attach(desk, &client) {
            cannot_inherit(desk, &client, &error.to_string());
        }
    } else if client.has_beacon {
        desk.shared.unnamed.add(&client);
    }
    wake::join(desk, &client);
}

/// A process has greeted: its stub has no thread yet. A repeated greeting reports one more filter.
pub fn add_dormant(desk: &Arc<Desk>, socket: &OwnedFd, pid: i32, greeting: &FromStub) {
    let known = desk.clients.lock().iter().rfind(|c| c.pid == pid && !c.gone.load(Relaxed)).cloned();
    let known = known.as_ref().and_then(|client| client.dormant.as_ref());
    if let Some(dormant) = known.filter(|dormant| greeting.flags & AGAIN != 0 && dormant.entry == greeting.entry) {
        return dormant.add_filter(greeting.filters);
    }
    // The process may have ended, and its pid may be another's.
    let Ok(process) = seqpacket::peer_descriptor(socket.as_fd()) else { return };
    let Ok(rss) = RssReader::open(pid) else { return };
    if seqpacket::peer_lives(socket.as_fd()) {
        wake::join(desk, &new_client(desk, process, pid, greeting, rss, DORMANT));
    }
}

fn new_client(desk: &Desk, socket: OwnedFd, pid: i32, message: &FromStub, rss: RssReader, stage: u32) -> Arc<Client> {
    desk.detached.lock().why.remove(&pid);
    let (forked, anon) = (message.flags & FORKED != 0, rss.read().map_or(0, |rss| rss.anon));
    Arc::new(Client {
        pid,
        tid: message.tid,
        forked,
        has_beacon: message.beacon != 0,
        since: Instant::now(),
        socket: Arc::new(socket),
        dormant: (stage == DORMANT).then(|| Dormant::new(message)),
        stage: AtomicU32::new(stage),
        rss,
        share: AtomicU64::new(if forked { 0 } else { 1000 }),
        weighed: Lock::new((if forked { anon } else { 0 }, 0)),
        unweighed: Lock::new(forked.then(Instant::now)),
        shmem: AtomicU64::new(0),
        mapped: AtomicU64::new(0),
        peak: AtomicU64::new(0),
        expected: Lock::new(None),
        ready: Lock::new(None),
        segment: Lock::new(None),
        proc: Lock::new(None),
        watch: Lock::default(),
        lends: AtomicBool::new(false),
        scan: Lock::new(None),
        comm: procfs::comm(pid).unwrap_or_default(),
        detaching: AtomicBool::new(false),
        quiet: AtomicU32::new(detach::REQUESTED),
        gone: AtomicBool::new(false),
    })
}

fn from_client(desk: &Arc<Desk>, client: &Arc<Client>) {
    if client.dormant.is_some() {
        return remove_client(desk, client);
    }
    let packet = match seqpacket::receive(client.socket.as_fd()) {
        Ok(Some(packet)) => packet,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
        // No descriptor is left for the one that came with the message.
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData && client.stage.load(Relaxed) == ATTACHING => {
            return not_managed(desk, client, &other("there is no descriptor left for its memory".into()));
        }
        _ => return remove_client(desk, client),
    };
    let Some(message) = parse(&packet.bytes) else { return remove_client(desk, client) };
    if message.kind == QUIET {
        client.quiet.store(if message.error == 0 { detach::IS_QUIET } else { detach::FORKS }, Relaxed);
    }
    if message.kind != ATTACHED || client.stage.load(Relaxed) != ATTACHING {
        return;
    }
    let told = client.expected.lock().is_some();
    if message.error != 0 {
        client.stage.store(REFUSED, Relaxed);
        let error = std::io::Error::from_raw_os_error(message.error as i32);
        if told {
            return cannot_inherit(desk, client, &error.to_string());
        }
        desk.shared.warn(format!("process {} ({}) cannot be paged: {error}", client.pid, client.comm));
        return;
    }
    *client.ready.lock() = Some((message, packet.fd, Instant::now()));
    manage_ready(desk, client);
}

/// Begins to page a process whose stub is ready. A fork child is served once all changes are known
/// that its parent made meanwhile.
fn manage_ready(desk: &Arc<Desk>, client: &Arc<Client>) {
    let mut ready = client.ready.lock();
    if ready.is_none() {
        return;
    }
    let expected = client.expected.lock().clone();
    let child = client.proc.lock().clone();
    let waits = |since| match &expected {
        Some(expected) => expected.waits_for_parent(since),
        None => child.as_ref().is_some_and(|child| fork_children::waits_for_parent(child, since)),
    };
    let Some((message, fd, _)) = ready.take_if(|(_, _, since)| !waits(*since)) else { return };
    drop(ready);
    match manage(desk, client, &message, fd) {
        Ok(()) => client.stage.store(MANAGED, Relaxed),
        Err(error) => not_managed(desk, client, &error),
    }
}

/// The stub is ready, but its process cannot be paged.
fn not_managed(desk: &Arc<Desk>, client: &Arc<Client>, error: &std::io::Error) {
    if client.expected.lock().is_some() {
        return cannot_inherit(desk, client, &error.to_string());
    }
    client.stage.store(REFUSED, Relaxed);
    if !desk.fork_events {
        // Its announced forks wait for an answer.
        send_command(&client.socket, &Command { kind: SERVED, ..Command::default() }, None);
    }
    detach::refused(desk, client, error);
}

/// A fork child cannot be served, so it cannot go on with right data: kills it.
fn cannot_inherit(desk: &Desk, client: &Client, why: &str) {
    client.stage.store(REFUSED, Relaxed);
    if client.rss.read().is_ok_and(|rss| rss.mapped > 0) {
        desk.shared.warn(format!("killed process {} ({}): {why}", client.pid, client.comm));
    }
    process::kill(client.pid);
}

/// A process or its stub has ended.
pub fn remove_client(desk: &Desk, client: &Arc<Client>) {
    client.gone.store(true, Relaxed);
    if let Some(expected) = client.expected.lock().take() {
        forks::forget(&desk.shared, &expected);
    }
    if let Some(proc) = client.proc.lock().as_ref() {
        proc.dead.store(true, Relaxed);
        proc.kick.raise();
    }
    let mut past = desk.past.lock();
    if past.len() < PAST_MAX {
        past.push(Process { resident_bytes: 0, running: false, ..client.row() });
    }
    let mut clients = desk.clients.lock();
    clients.retain(|c| !Arc::ptr_eq(c, client));
    desk.shared.room.clients.store(clients.len(), Relaxed);
}

/// As [`attach`]; warns the user if that fails.
pub fn attach_or_warn(desk: &Desk, client: &Arc<Client>) {
    if let Err(error) = attach(desk, client) {
        desk.shared.warn(format!("process {} ({}) cannot be paged: {error}", client.pid, client.comm));
    }
}

/// Asks a stub to make what paging needs.
pub fn attach(desk: &Desk, client: &Arc<Client>) -> std::io::Result<()> {
    let known = client.proc.lock().clone();
    // The descriptors of a fork child were counted when its userfaultfd came.
    if known.is_none() && !desk.shared.room_for_paged() {
        return Err(room::full());
    }
    let slots = (desk.shared.sizes.staging / 4096) as usize;
    let segment = Arc::new(Segment::create(slot_offset(slots as u32))?);
    if desk.config.lock_pool {
        segment.lock().map_err(|error| other(format!("--lock-pool: its staging: {error}")))?;
    }
    let fd = process::duplicate(segment.as_raw_fd())?;
    let known = known.map(|proc| process::duplicate(proc.uffd.as_raw_fd())).transpose()?;
    if client.stage.compare_exchange(IDLE, ATTACHING, SeqCst, SeqCst).is_err() {
        // It is being detached.
        return Ok(());
    }
    let mut command = Command { kind: ATTACH, flags: 0, segment_bytes: segment.bytes() as u64 };
    let lend = Command { kind: LEND, ..Command::default() };
    if let Some(uffd) = &known {
        command.flags = WITH_UFFD;
        send_command(&client.socket, &lend, Some(uffd));
    } else if let Some(device) = &desk.device {
        command.flags = WITH_DEVICE;
        send_command(&client.socket, &lend, Some(device));
    }
    // If it cannot be opened, the process will not be paged: see `identity`.
    if let Ok(pagemap) = Pagemap::open(client.pid).and_then(|pagemap| pagemap.as_fd().try_clone_to_owned()) {
        send_command(&client.socket, &Command { kind: PAGEMAP, ..Command::default() }, Some(&pagemap));
    }
    if maps::can_ask() {
        let maps = File::open(format!("/proc/{}/maps", client.pid)).map(OwnedFd::from);
        if let Ok(maps) = maps {
            send_command(&client.socket, &Command { kind: MAPS, ..Command::default() }, Some(&maps));
        }
    }
    if !desk.fork_events {
        command.flags |= ANNOUNCE_FORKS;
    }
    if off(Rule::Window) {
        command.flags |= memfit_wire::TRUST_MOVE;
    }
    *client.segment.lock() = Some(segment);
    send_command(&client.socket, &command, Some(&fd));
    Ok(())
}

/// The stub is ready: gives the process its place in the core and its fault thread.
fn manage(desk: &Arc<Desk>, client: &Arc<Client>, message: &FromStub, fd: Option<OwnedFd>) -> std::io::Result<()> {
    let shared = &desk.shared;
    let segment = client.segment.lock().clone().ok_or_else(|| std::io::Error::other("no segment"))?;
    let identity = identity(client, message, &segment)?;
    // The userfaultfd of a fork child came with its parent's event.
    let known = client.proc.lock().clone();
    let fresh = known.is_none();
    let expected = client.expected.lock().clone();
    let proc = match known {
        Some(proc) => proc,
        None => {
            let uffd = Uffd::from_fd(fd.ok_or_else(|| std::io::Error::other("the stub sent no descriptor"))?);
            let features = uffd::REQUIRED | if desk.fork_events { uffd::EVENT_FORK } else { 0 };
            uffd.handshake(features)?;
            let family = expected.as_ref().map_or_else(Family::default, |e| e.family.of_child());
            let (id, area) = expected.as_ref().map(|e| (e.id, e.area)).unwrap_or_else(|| {
                let mut state = shared.lock();
                let numbers = state.core.add_process((shared.sizes.staging / 4096) as u32);
                shared.apply_effects(state);
                numbers
            });
            Arc::new(Proc::new(id, area, uffd, Arc::new(EventFd::new()?), family))
        }
    };
    proc.uffd.probe_at(message.window[0]);
    register(&proc.uffd, message.window[0], message.window[1] - message.window[0])?;
    if message.beacon != 0 {
        register(&proc.uffd, message.beacon, 4096)?;
        proc.beacon.store(message.beacon, Relaxed);
    }
    if message.doorbell != 0 {
        register(&proc.uffd, message.doorbell, DOORBELL_BYTES)?;
        proc.doorbell.store(message.doorbell, Relaxed);
    }
    shared.lock().segments.insert(proc.area, segment);
    *proc.comm.lock() = client.comm.clone();
    match &expected {
        Some(expected) => forks::inherit(shared, &proc, &identity, expected).map_err(|Broken(why)| other(why))?,
        None if !fresh => match fork_children::confirm(shared, &proc, client.pid) {
            Ok(true) => {}
            Ok(false) => return Err(other("its address space could not be confirmed after fork".into())),
            Err(Broken(why)) => {
                cannot_inherit(desk, client, &why);
                return Err(other(why));
            }
        },
        None if fresh && !desk.fork_events => forks::kept_by_program(&proc, client.pid),
        None => {}
    }
    let _ = proc.identity.set(identity);
    *client.proc.lock() = Some(Arc::clone(&proc));
    if fresh {
        shared.procs.lock().push(Arc::clone(&proc));
        if let Err(error) = start_fault_thread(shared, &proc) {
            *client.proc.lock() = None;
            remove_process(shared, &proc);
            return Err(error);
        }
    }
    *client.expected.lock() = None;
    if !desk.fork_events {
        send_command(&client.socket, &Command { kind: SERVED, flags: ANNOUNCE_FORKS, ..Command::default() }, None);
    }
    if shared.free() < shared.sizes.register as i64 || shared.commit_pressure.load(Relaxed) {
        adopt::rescan(shared, &proc);
        shared.want_reclaim();
    } else {
        adopt::stacks(shared, &proc);
    }
    Ok(())
}

/// When the memory is gone the kernel returns ENOMEM here, and ESRCH everywhere else. The size of
/// the process does not show it: after an exec the process has other memory.
fn register(uffd: &Uffd, start: u64, bytes: u64) -> std::io::Result<()> {
    uffd.register(start, bytes).map_err(|error| match uffd.gone() {
        true => std::io::Error::from_raw_os_error(libc::ESRCH),
        false => error,
    })
}

fn other(why: String) -> std::io::Error {
    std::io::Error::other(why)
}

fn identity(client: &Client, message: &FromStub, segment: &Arc<Segment>) -> std::io::Result<Identity> {
    let pages = |at: u64, bytes: u64| (at, if at == 0 { 0 } else { at + bytes });
    let ranges = [message.stack, message.segment, message.window].map(|[s, e]| (s, e));
    Ok(Identity {
        pid: client.pid,
        tid: client.tid,
        socket: Arc::clone(&client.socket),
        segment: Arc::clone(segment),
        pagemap: Pagemap::open(client.pid)?,
        maps: Lock::new(Maps::open(client.pid)?),
        frees_lazily: OnceLock::new(),
        droppable: OnceLock::new(),
        reservation: AtomicU64::new(message.reservation[0]),
        windows: AtomicU32::new(1),
        forbidden: ranges
            .into_iter()
            .chain([pages(message.beacon, 4096), pages(message.doorbell, DOORBELL_BYTES)])
            .collect(),
        arguments: procfs::arguments(client.pid),
    })
}

/// Starts the thread that serves the process's faults and events.
pub fn start_fault_thread(shared: &Arc<Shared>, proc: &Arc<Proc>) -> std::io::Result<()> {
    let (shared, proc) = (Arc::clone(shared), Arc::clone(proc));
    let thread = std::thread::Builder::new().name("fault".into()).stack_size(256 << 10);
    thread.spawn(move || fault::run(shared, proc)).map_err(|error| room::no_thread(&error))?;
    Ok(())
}

/// The process's memory is gone: frees everything that belongs to it.
pub fn remove_process(shared: &Arc<Shared>, proc: &Arc<Proc>) {
    proc.dead.store(true, Relaxed);
    fork_children::all_told(shared, proc);
    let mut others = shared.procs.lock();
    others.retain(|p| !Arc::ptr_eq(p, proc));
    let relatives: Vec<Arc<Proc>> = others.iter().filter(|p| p.family.is_of(&proc.family)).cloned().collect();
    drop(others);
    let _io = proc.io.lock();
    shared.in_parts(proc.id, PageRange::ALL, |core, part| core.disown(proc.id, part));
    let mut state = shared.lock();
    proc.removed.store(true, Relaxed);
    state.core.remove_process(proc.id);
    proc.family.leave();
    for relative in relatives.iter().filter(|relative| !relative.removed.load(Relaxed)) {
        state.core.unpark(relative.id);
    }
    let nothing_swapped = state.core.swapped_total() == 0;
    shared.apply_effects(state);
    if let Some(swap) = shared.swap.as_ref().filter(|_| nothing_swapped) {
        swap.forget_copies();
    }
    shared.made_progress();
    shared.outbox_event.raise();
}

/// `/dev/userfaultfd` as a descriptor to lend.
pub fn open_device() -> Option<OwnedFd> {
    uffd::device().ok().map(|f: File| f.into())
}
