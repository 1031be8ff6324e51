//! The processes whose stubs have spoken: they join, send messages, and leave.

use crate::attach::{attach, cannot_inherit, manage_ready, not_managed, other};
use crate::background;
use crate::bare_children;
use crate::control::Desk;
use crate::detach;
use crate::fork_children;
use crate::forks::{self, Expected};
use crate::idle::Watch;
use crate::leases::{Answers, Progress};
use crate::locks::{rank, Lock};
use crate::monitor::Scan;
use crate::newcomers::{parse, say_bye};
use crate::proc::{Proc, ProcCounters};
use crate::wake::{self, Dormant};
use crate::weigh::Weighed;
use memfit_os::memory::Segment;
use memfit_os::process;
use memfit_os::procfs::{self, RssReader};
use memfit_os::proctree;
use memfit_os::seqpacket;
use memfit_stats::Process;
use memfit_wire::{FromStub, AGAIN, ATTACHED, FORKED, FORKED_AGAIN, LOADED, QUIET, WAITED, WIPES};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Instant;
/// A process whose stub has said hello or greeted.
pub struct Client {
    /// Pid in the pager's namespace.
    pub pid: i32,
    /// When the process started, which identifies it together with its pid; 0 if that is unknown.
    pub started: u64,
    /// Thread id of the stub in its own namespace.
    pub tid: u32,
    /// Made by a fork of a process that had a stub.
    pub forked: bool,
    /// Its parent was paged, as a FORK event reported: it must identify itself by the beacon.
    pub has_beacon: bool,
    /// Memory of it may have been wiped at the fork, whatever its parent says now.
    pub wipes: bool,
    /// The pager has loaded its stub ([`crate::load`]).
    pub loaded: bool,
    /// Nevertheless no paged process seems to have it as a child.
    pub independent: AtomicBool,
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
    /// What is known of the part that is its own.
    pub weighed: Lock<Weighed, { rank::WEIGHED }>,
    /// Since when it is known, until its share is measured.
    pub unweighed: Lock<Option<Instant>, { rank::UNWEIGHED }>,
    /// Shared memory that counts for it, and that it maps, bytes.
    pub shmem: AtomicU64,
    pub shmem_mapped: AtomicU64,
    /// Address space at the last sample, bytes.
    pub mapped: AtomicU64,
    /// Largest anonymous size seen, bytes.
    pub peak: AtomicU64,
    /// For the child of an announced fork, until it is paged.
    pub expected: Lock<Option<Arc<Expected>>, { rank::EXPECTED_OF_CLIENT }>,
    /// Its stub has said [`ATTACHED`], with its userfaultfd, at this time. It waits for its parent
    /// to leave the fork.
    pub ready: Lock<Option<(FromStub, Option<OwnedFd>, Instant)>, { rank::READY }>,
    /// A fork child that waits until it is paged and there is room, and since when.
    pub waits: Lock<Option<Instant>, { rank::CLIENT_WAITS }>,
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
    /// Whether it was told to leave memory: one of the constants of [`crate::background`].
    pub standing: AtomicU32,
    /// When it was last told so, ms.
    pub told_at: AtomicU64,
    /// That was said by name (`memfit bg`, `memfit fg`): it holds.
    pub told: AtomicBool,
    /// It is being detached.
    pub detaching: AtomicBool,
    /// What its stub has answered to [`QUIET`]: see [`detach::REQUESTED`].
    pub quiet: AtomicU32,
    /// What its stub has answered about mappings of files.
    pub answers: Answers,
    /// How far it is with them.
    pub progress: Lock<Progress, { rank::PROGRESS }>,
    /// The socket is closed.
    pub gone: AtomicBool,
}

impl Client {
    /// A client of which only its first message is known.
    pub fn new(socket: OwnedFd, pid: i32, message: &FromStub, rss: RssReader, stage: u32) -> Client {
        let (forked, anon) = (message.flags & FORKED != 0, rss.read().map_or(0, |rss| rss.anon));
        let stat = proctree::read_stat(pid);
        Client {
            pid,
            started: stat.as_ref().map_or(0, |stat| stat.start_ticks),
            tid: message.tid,
            forked,
            has_beacon: message.beacon != 0,
            wipes: message.flags & WIPES != 0,
            loaded: message.flags & LOADED != 0,
            independent: AtomicBool::new(false),
            since: Instant::now(),
            socket: Arc::new(socket),
            dormant: (stage == DORMANT).then(|| Dormant::new(pid, message)),
            stage: AtomicU32::new(stage),
            rss,
            share: AtomicU64::new(if forked { 0 } else { 1000 }),
            weighed: Lock::new(if forked { Weighed::of_child(anon) } else { Weighed::alone() }),
            unweighed: Lock::new(forked.then(Instant::now)),
            shmem: AtomicU64::new(0),
            shmem_mapped: AtomicU64::new(0),
            mapped: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            expected: Lock::new(None),
            ready: Lock::new(None),
            waits: Lock::new(None),
            segment: Lock::new(None),
            proc: Lock::new(None),
            watch: Lock::default(),
            lends: AtomicBool::new(false),
            scan: Lock::new(None),
            comm: stat.map(|stat| stat.comm).unwrap_or_default(),
            standing: AtomicU32::new(background::FOREGROUND),
            told_at: AtomicU64::new(0),
            told: AtomicBool::new(false),
            detaching: AtomicBool::new(false),
            quiet: AtomicU32::new(detach::REQUESTED),
            answers: Answers::default(),
            progress: Lock::default(),
            gone: AtomicBool::new(false),
        }
    }

    /// Whether it is the fork child of a paged process: pages that it has not may be evicted.
    pub fn lacks_pages(&self) -> bool {
        self.has_beacon && (self.proc.lock().is_some() || !self.independent.load(Relaxed))
    }

    /// Whether it is the fork child of a paged process, and nobody has found its userfaultfd yet.
    pub fn is_unnamed(&self) -> bool {
        self.has_beacon && self.proc.lock().is_none()
    }

    /// How many of its `anon` bytes are its own.
    pub fn own(&self, anon: u64) -> u64 {
        let own = self.weighed.lock().own(anon);
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
            compressed: proc.as_ref().is_some_and(|proc| proc.counters.compressed.load(Relaxed)),
            waits: rss.mapped > 0 && proc.as_ref().is_some_and(|proc| proc.held.load(Relaxed)),
            background: self.standing.load(Relaxed) != background::FOREGROUND,
            why_not_paged: None,
        }
    }
}

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

/// Most ended processes in the statistics.
const PAST_MAX: usize = 1000;

/// A process has said hello.
pub fn add_client(desk: &Arc<Desk>, socket: OwnedFd, pid: i32, hello: &FromStub) {
    let Ok(rss) = RssReader::open(pid) else { return say_bye(&socket) };
    // Another process may have its pid by now.
    if !seqpacket::peer_lives(socket.as_fd()) {
        return;
    }
    count_wait(desk, hello);
    let expected = forks::take(&desk.shared, hello.token).filter(|_| hello.token != 0);
    if hello.token != 0 && expected.is_none() {
        // It waits, and lacks the pages that were evicted when it was forked.
        let comm = procfs::comm(pid).unwrap_or_default();
        let why = "it came too late after its fork to be served";
        desk.shared.outbox.announce(format!("killed process {pid} ({comm}): {why}"));
        process::kill(pid);
        return;
    }
    let child = bare_children::with_pid(&desk.shared, pid).filter(|_| hello.flags & LOADED != 0);
    let again = hello.flags & FORKED_AGAIN != 0 || child.as_ref().is_some_and(|child| child.again.load(Relaxed));
    // In a long chain of forks, evictions would give each process its own copy of what all share.
    let stage = if again { REFUSED } else { IDLE };
    let forked = if child.is_some() { FORKED } else { 0 };
    let client = new_client(desk, socket, pid, &FromStub { flags: hello.flags | forked, ..*hello }, rss, stage);
    if let Some(uffd) = child.as_ref().filter(|_| again).and_then(|child| child.uffd.as_fd().try_clone_to_owned().ok())
    {
        fork_children::lend(&client, uffd.as_fd());
    }
    *client.proc.lock() = child;
    *client.expected.lock() = expected;
    if hello.token != 0 {
        if let Err(error) = attach(desk, &client) {
            cannot_inherit(&desk.shared, &client, &error.to_string());
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
    count_wait(desk, greeting);
    // The process may have ended, and its pid may be another's.
    let Ok(process) = seqpacket::peer_descriptor(socket.as_fd()) else { return };
    let Ok(rss) = RssReader::open(pid) else { return };
    let client = new_client(desk, process, pid, greeting, rss, DORMANT);
    // It may run another program by now, which greets for itself.
    if seqpacket::peer_lives(socket.as_fd()) && !wake::runs_another(&client) {
        wake::join(desk, &client);
    }
}

fn count_wait(desk: &Desk, message: &FromStub) {
    if message.flags & WAITED != 0 {
        desk.shared.meters.waited_at_start.fetch_add(1, Relaxed);
    }
}

fn new_client(desk: &Desk, socket: OwnedFd, pid: i32, message: &FromStub, rss: RssReader, stage: u32) -> Arc<Client> {
    desk.detached.lock().why.remove(&pid);
    Arc::new(Client::new(socket, pid, message, rss, stage))
}

/// Handles a message of a stub.
pub fn from_client(desk: &Arc<Desk>, client: &Arc<Client>) {
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
    client.answers.note(&message);
    if message.kind != ATTACHED || client.stage.load(Relaxed) != ATTACHING {
        return;
    }
    let told = client.expected.lock().is_some();
    if message.error != 0 {
        client.stage.store(REFUSED, Relaxed);
        let error = match message.error as i32 {
            // The stub's table is its own, but has the program's limit.
            libc::EMFILE | libc::EBADF => "its limit of open descriptors is below 4: raise its ulimit -n".to_owned(),
            error => std::io::Error::from_raw_os_error(error).to_string(),
        };
        if told {
            return cannot_inherit(&desk.shared, client, &error);
        }
        desk.shared.warn(format!("process {} ({}) cannot be paged: {error}", client.pid, client.comm));
        return;
    }
    *client.ready.lock() = Some((message, packet.fd, Instant::now()));
    manage_ready(desk, client);
}

/// A process that has ended or was detached, for the statistics.
pub struct Past {
    row: Process,
    /// Page faults on what a detached process has outside of memory are served still.
    counters: Option<Arc<ProcCounters>>,
}

impl Past {
    pub fn row(&self) -> Process {
        let faults = self.counters.as_ref().map_or(self.row.faults, |counters| counters.faults.load(Relaxed));
        Process { faults, ..self.row.clone() }
    }
}

/// Keeps the row of such a process.
pub fn remember(desk: &Desk, row: Process, counters: Option<Arc<ProcCounters>>) {
    let mut past = desk.past.lock();
    if past.len() < PAST_MAX {
        past.push(Past { row: Process { resident_bytes: 0, running: false, ..row }, counters });
    } else {
        desk.shared.meters.rows_left_out.fetch_add(1, Relaxed);
    }
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
    let counters = client.proc.lock().as_ref().map(|proc| Arc::clone(&proc.counters));
    remember(desk, client.row(), counters);
    desk.detached.lock().remember_order(client);
    let mut clients = desk.clients.lock();
    clients.retain(|c| !Arc::ptr_eq(c, client));
    desk.shared.room.clients.store(clients.len(), Relaxed);
}
