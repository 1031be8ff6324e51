//! The control thread: it polls stubs, newcomers and the launcher.

use crate::attach::manage_ready;
use crate::clients::{from_client, Client, Past, ATTACHING, IDLE, MANAGED, REFUSED};
use crate::config::{Config, FromPager, ToPager};
use crate::detach::Detached;
use crate::fork_children;
use crate::forks;
use crate::load::Library;
use crate::locks::{rank, Lock};
use crate::netns_fallback::NetnsFallback;
use crate::newcomers::{say_bye, Newcomers};
use crate::record::Recording;
use crate::state::Shared;
use crate::timeline::Timeline;
use memfit_os::event::poll_each;
use memfit_os::memory::file_of;
use memfit_os::process::{self, PidFd};
use memfit_os::proctree::{self, ProcStat};
use memfit_os::seqpacket;
use memfit_os::standby::Standby;
use memfit_stats::Process;
use memfit_wire::SOCKET_VARIABLE;
use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A device is reported when a transfer takes longer.
const SILENT_AFTER: Duration = Duration::from_secs(3);

/// Longest sleep of the control thread, which also checks what makes no descriptor readable, ms;
/// and while a process must be found and killed.
const POLL_MS: i32 = 200;
const DOOMED_POLL_MS: i32 = 20;

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
    /// The launcher has ended, and another process can have its pid.
    pub launcher_ended: AtomicBool,
    /// Set when the command has ended.
    pub ended: Lock<Option<ToPager>, { rank::ALL_ENDED }>,
    /// Set when the tree has ended and no other process is paged.
    pub over: AtomicBool,
    /// Clients that ended, for the statistics.
    pub past: Lock<Vec<Past>, { rank::PAST }>,
    /// Processes without a stub whose reason is known.
    pub detached: Lock<Detached, { rank::DETACHED }>,
    /// Rows of processes that are not clients, as the monitor has seen them last.
    pub unpaged: Lock<Vec<Process>, { rank::UNPAGED }>,
    /// Threads that have stub threads made (see [`crate::wake`]).
    pub wakers: Standby,
    /// For programs whose dynamic linker does not load it.
    pub library: Library,
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
        launcher_open = false;
        desk.launcher_ended.store(true, Relaxed);
        if !launcher_left_in_order(desk) {
            return abandon(desk);
        }
    }
    loop {
        tell_silence(&desk.shared);
        deliver(desk, launcher_open);
        // Nobody else is left who would end the tree.
        if !launcher_open && desk.shared.ending.load(Relaxed) {
            return abandon(desk);
        }
        let clients: Vec<Arc<Client>> = desk.clients.lock().clone();
        clients.iter().for_each(|client| manage_ready(desk, client));
        fork_children::release_independent(desk, &clients);
        fork_children::end_doomed(&desk.shared);
        let open = |fd: RawFd| if launcher_open { fd } else { -1 };
        let watch = alive.as_ref().map_or(-1, |fd| fd.as_fd().as_raw_fd());
        let [listener, netns_fallback, starts] = newcomers.listeners(desk);
        let fixed =
            [listener, desk.shared.outbox.event.as_raw_fd(), open(launcher), open(watch), netns_fallback, starts];
        let all = fixed.into_iter().chain(newcomers.pending()).chain(clients.iter().map(|c| c.socket.as_raw_fd()));
        let wait = if desk.shared.unnamed.doomed() == 0 { POLL_MS } else { DOOMED_POLL_MS };
        let wait = newcomers.starts.poll_ms().unwrap_or(wait);
        let readable = poll_each(all, wait);
        if readable[1] {
            desk.shared.outbox.event.clear();
        }
        let left = readable[2] && !from_launcher(desk, launcher);
        if left || readable[3] {
            launcher_open = false;
            desk.launcher_ended.store(true, Relaxed);
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
        if readable[5] {
            newcomers.accept_new(desk);
        }
        let nobody_is_served = || {
            desk.ended.lock().is_some()
                && desk.clients.lock().is_empty()
                && desk.shared.procs.lock().is_empty()
                && forks::none_expected(&desk.shared)
                && desk.shared.unnamed.doomed() == 0
        };
        if desk.over.load(Relaxed) || nobody_is_served() {
            deliver(desk, launcher_open);
            newcomers.dismiss(desk);
            // Also for a guard, which has the launcher's end of the socket.
            return send_to_launcher(launcher, &FromPager::Done);
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
    for message in desk.shared.outbox.take() {
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
        Ok(ToPager::Started { pid }) => desk.shared.command.store(pid, Relaxed),
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
        client.lacks_pages() || client.stage.compare_exchange(IDLE, REFUSED, SeqCst, SeqCst).is_err() || {
            say_bye(&client.socket);
            false
        }
    });
    let attached =
        |client: &Arc<Client>| client.lacks_pages() || matches!(client.stage.load(SeqCst), ATTACHING | MANAGED);
    let procs = desk.shared.procs.lock().clone();
    clients.iter().any(attached)
        || desk.shared.unnamed.doomed() > 0
        || procs.iter().any(|proc| proc.pid().map_or_else(|| !proc.uffd.gone(), lives))
}

/// The launcher is gone: whether it had told that the command has ended. What it told last may
/// still be unread.
fn launcher_left_in_order(desk: &Arc<Desk>) -> bool {
    let launcher = desk.config.to_launcher;
    while poll_each([launcher].into_iter(), 0)[0] && from_launcher(desk, launcher) {}
    desk.ended.lock().is_some()
}

/// The launcher died, and only the pager holds the descriptors; or it has left, and the run cannot
/// go on. So the tree must end before the pager. That includes processes without a stub and those
/// whose stub has not said hello yet.
fn abandon(desk: &Desk) {
    let launcher_died = !desk.shared.ending.swap(true, Relaxed);
    desk.netns_fallback.close();
    let clients: Vec<Arc<Client>> = desk.clients.lock().clone();
    let mut tree: Vec<ProcStat> = clients.iter().filter_map(|client| proctree::read_stat(client.pid)).collect();
    // The search below takes time.
    proctree::kill_all(&tree);
    let entry = format!("{SOCKET_VARIABLE}={}", desk.config.socket_name);
    let mut killed = !clients.is_empty() || !desk.past.lock().is_empty();
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut quiet = 0;
    // A process that calls exec just now shows no environment: search twice.
    while quiet < 2 && Instant::now() < deadline {
        tree = members(tree, &entry);
        proctree::kill_all(&tree);
        killed |= !tree.is_empty();
        // A process that has ended and waits for its parent has no memory.
        let ended = tree.is_empty() && clients.iter().all(|c| c.rss.read().map_or(0, |rss| rss.mapped) == 0);
        quiet = if ended { quiet + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(3));
    }
    if killed && launcher_died {
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
