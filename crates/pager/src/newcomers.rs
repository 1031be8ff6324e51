//! Connections: who may speak to the pager, and the first message of each.
//!
//! Anybody on the machine can connect to an abstract socket. So the pager asks the kernel who has
//! connected before it reads a byte or takes a descriptor. It keeps a bounded number of connections
//! that have said nothing yet. If it has no descriptor for another one, it leaves that in the
//! kernel's queue for a moment.

use crate::clients::{add_client, add_dormant};
use crate::control::Desk;
use crate::netns_fallback::NetnsFallback;
use crate::proc::send_command;
use crate::starts::Starts;
use crate::stats::Question;
use crate::{background, detach, files, forks, own_uffd};
use memfit_os::messages::from_stub;
use memfit_os::{process, proctree, seqpacket};
use memfit_stats::Stats;
use memfit_wire::{
    Command, FromStub, BYE, CONFINE, DETACH, FILE, GREETING, HELLO, MAGIC, NETNS_FALLBACK, NO_THREAD, OWN_UFFD, STAY,
    VERSION,
};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most connections that are accepted before the pager looks for other work.
const ACCEPTED_AT_ONCE: usize = 64;
/// Time for which processes of another user are accepted before that: to find out that one is not
/// in the tree takes long if it is below thousands of others.
const OTHERS_TAKE: Duration = Duration::from_millis(2);
/// Most connections that have said nothing yet.
const PENDING_MAX: usize = 256;
/// Such a connection is dropped after this time: a peer says at once what it wants, unless it is
/// stopped.
const PENDING_FOR: Duration = Duration::from_secs(60);
/// When there are too many, those older than this are dropped.
const PENDING_FOR_WHEN_FULL: Duration = Duration::from_secs(5);
/// How long nobody is accepted when there is no descriptor for another connection.
const PAUSE: Duration = Duration::from_millis(200);

/// A stub says hello as soon as it is connected.
const HELLO_FOLLOWS: Duration = Duration::from_millis(20);

/// A connection that has said nothing yet.
struct Pending {
    socket: OwnedFd,
    pid: i32,
    since: Instant,
}

/// What became of a connection.
enum Accepted {
    /// This process may speak.
    Process(i32),
    /// It was the pager's own.
    Pager,
    /// The peer may not speak.
    Other,
    /// There is no descriptor for it: it still waits, if there is one.
    Full,
    /// Nobody waits, accepting failed, or too many have said nothing yet.
    Nobody,
}

/// All connections that have said nothing yet.
#[derive(Default)]
pub struct Newcomers {
    pending: Vec<Pending>,
    paused: Option<Instant>,
    /// Opens and closes the start socket.
    pub starts: Starts,
}

impl Newcomers {
    /// The listeners to poll, -1 where nobody can be accepted: the socket with the pager's name,
    /// that for other network namespaces, and the start socket.
    pub fn listeners(&mut self, desk: &Desk) -> [RawFd; 3] {
        if self.paused.is_some_and(|since| since.elapsed() < PAUSE) || self.pending.len() >= PENDING_MAX {
            return [-1; 3];
        }
        self.paused = None;
        [desk.config.listener, desk.netns_fallback.as_raw_fd(), self.starts.listener(desk)]
    }

    /// The pending connections, for the same poll.
    pub fn pending(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.pending.iter().map(|pending| pending.socket.as_raw_fd())
    }

    /// Reads the first message of those that are `ready`, in the order of [`Newcomers::pending`].
    pub fn read(&mut self, desk: &Arc<Desk>, ready: &[bool]) {
        if ready.contains(&true) {
            // Their descriptors are free now, or belong to a client.
            self.paused = None;
        }
        let all = std::mem::take(&mut self.pending);
        for (pending, &ready) in all.into_iter().zip(ready) {
            if ready {
                first_message(desk, pending);
            } else {
                self.pending.push(pending);
            }
        }
        self.expire();
    }

    fn expire(&mut self) {
        let limit = if self.pending.len() < PENDING_MAX { PENDING_FOR } else { PENDING_FOR_WHEN_FULL };
        let stopped = |pid| proctree::read_stat(pid).is_some_and(|process| matches!(process.state, 'T' | 't'));
        self.pending.retain(|pending| {
            let keep = pending.since.elapsed() < limit || (stopped(pending.pid) && limit == PENDING_FOR);
            if !keep {
                say_bye(&pending.socket);
            }
            keep
        });
    }

    /// Accepts peers that wait and may speak. The others are told to go on alone, and nothing is
    /// read from them. Accepts few at a time: another user who connects again and again must not
    /// keep the pager from its other work. False if nobody waits any more.
    pub fn accept(&mut self, desk: &Desk, listener: RawFd) -> bool {
        let (heard, begun) = (self.pending.len(), Instant::now());
        let mut more = true;
        for _ in 0..ACCEPTED_AT_ONCE {
            match self.accept_one(desk, listener) {
                // Those accepted now are heard first: some may be gone.
                Accepted::Full if self.pending.len() > heard => break,
                // One at a time: it can take a moment, while clients wait.
                Accepted::Full => more = turn_away(desk, listener),
                Accepted::Nobody => more = false,
                Accepted::Other if begun.elapsed() > OTHERS_TAKE => {}
                Accepted::Process(_) | Accepted::Pager | Accepted::Other => continue,
            }
            break;
        }
        // Who says something here has greeted before, on the start socket, and is heard in that
        // order.
        let accepted = self.pending.split_off(heard);
        self.accept_new(desk);
        self.pending.extend(accepted);
        more
    }

    /// Accepts new processes until the start socket is closed.
    pub fn accept_new(&mut self, desk: &Desk) {
        let (heard, begun) = (self.pending.len(), Instant::now());
        let listener = self.starts.listener(desk);
        if listener < 0 {
            return;
        }
        for _ in 0..PENDING_MAX {
            match self.accept_one(desk, listener) {
                Accepted::Process(pid) => self.starts.accepted(desk, pid),
                Accepted::Pager => {}
                Accepted::Full if self.pending.len() == heard => {
                    turn_away(desk, listener);
                    return;
                }
                Accepted::Other if begun.elapsed() < OTHERS_TAKE => {}
                Accepted::Full | Accepted::Nobody | Accepted::Other => return,
            }
            if self.starts.is_closed() {
                return;
            }
        }
    }

    fn accept_one(&mut self, desk: &Desk, listener: RawFd) -> Accepted {
        if self.pending.len() >= PENDING_MAX {
            return Accepted::Nobody;
        }
        if !desk.shared.room_for_client(self.pending.len()) {
            return Accepted::Full;
        }
        let socket = match seqpacket::accept(listener, false) {
            Ok(socket) => socket,
            Err(error) => {
                let error = error.raw_os_error();
                if matches!(error, Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)) {
                    // The listener stays readable, and would be polled without end.
                    self.paused = Some(Instant::now());
                }
                return Accepted::Nobody;
            }
        };
        match seqpacket::peer(socket.as_fd()) {
            // The connection that closed the start socket.
            Ok((_, pid)) if pid == std::process::id() as i32 => Accepted::Pager,
            Ok((uid, pid)) if process::is_root_or_own(uid) || may_join(desk, uid, pid) => {
                self.pending.push(Pending { socket, pid, since: Instant::now() });
                Accepted::Process(pid)
            }
            _ => {
                say_bye(&socket);
                Accepted::Other
            }
        }
    }

    /// The orderly end: a process that came too late goes on alone. Otherwise it would be killed
    /// without a word.
    pub fn dismiss(mut self, desk: &Desk) {
        self.pending.drain(..).for_each(|pending| say_bye(&pending.socket));
        let listeners = [desk.config.listener, desk.netns_fallback.as_raw_fd(), desk.config.start_listener];
        for listener in listeners.into_iter().filter(|fd| *fd >= 0) {
            seqpacket::close_to_others(listener);
            loop {
                let more = self.accept(desk, listener);
                self.pending.drain(..).for_each(|pending| say_bye(&pending.socket));
                if !more {
                    break;
                }
            }
        }
        NetnsFallback::close(&desk.netns_fallback);
    }
}

/// Accepts one connection that cannot be kept, and answers it: the process goes on alone. The fork
/// child of a paged process depends on the pager, and is killed. False if nobody waits.
fn turn_away(desk: &Desk, listener: RawFd) -> bool {
    let Ok(socket) = seqpacket::accept(listener, true) else { return false };
    let peer = seqpacket::peer(socket.as_fd()).ok().filter(|&(uid, pid)| may_join(desk, uid, pid));
    let said = peer.and_then(|_| seqpacket::receive_within(socket.as_fd(), HELLO_FOLLOWS).ok().flatten());
    let said = said.and_then(|packet| parse(&packet.bytes));
    if let (Some((_, pid)), Some(lost)) = (peer, said.filter(|said| said.kind == NO_THREAD)) {
        forks::without_thread(&desk.shared, pid, lost.token);
    }
    let hello = said.filter(|message| matches!(message.kind, HELLO | GREETING));
    if let (Some((_, pid)), Some(hello)) = (peer, hello) {
        let comm = memfit_os::procfs::comm(pid).unwrap_or_default();
        let depends = hello.kind == HELLO && (hello.beacon != 0 || hello.token != 0);
        let why = "the pager has no descriptor left: raise ulimit -n";
        if depends {
            desk.shared.outbox.announce(format!("killed process {pid} ({comm}), a fork child: {why}"));
            seqpacket::kill_peer(socket.as_fd());
        } else {
            // One warning for all of them.
            desk.shared.warn(format!("not paged, but counted: processes for which {why}"));
        }
    }
    say_bye(&socket);
    true
}

/// Tells a stub to go on alone.
pub fn say_bye(socket: &OwnedFd) {
    send_command(socket, &Command { kind: BYE, ..Command::default() }, None);
}

/// Opens the socket for other network namespaces. The control thread then listens there, too.
pub fn open_netns_fallback(desk: &Desk) {
    if let Err(error) = desk.netns_fallback.open() {
        let place = &desk.config.fallback_dir;
        desk.shared.warn(format!("programs in other network namespaces cannot be paged: {place}: {error}"));
    }
    desk.shared.outbox.event.raise();
}

/// Handles a stub's hello, a request or a question.
fn first_message(desk: &Arc<Desk>, Pending { socket, .. }: Pending) {
    let Ok((uid, pid)) = seqpacket::peer(socket.as_fd()) else { return };
    let packet = match seqpacket::receive(socket.as_fd()) {
        Ok(Some(packet)) => packet,
        Ok(None) => return,
        // A truncated message, or one with too many descriptors, is not from a stub.
        Err(_) => return say_bye(&socket),
    };
    match parse(&packet.bytes) {
        Some(_) if !may_join(desk, uid, pid) => say_bye(&socket),
        // It has handed its end to another process, and its pid may be a stranger's.
        Some(_) if !seqpacket::peer_lives(socket.as_fd()) => say_bye(&socket),
        Some(hello) if hello.kind == HELLO => add_client(desk, socket, pid, &hello),
        Some(greeting) if greeting.kind == GREETING => add_dormant(desk, &socket, pid, &greeting),
        Some(request) if request.kind == NETNS_FALLBACK => {
            open_netns_fallback(desk);
            send_command(&socket, &Command { kind: STAY, ..Command::default() }, None);
        }
        Some(request) if request.kind == NO_THREAD => {
            forks::without_thread(&desk.shared, pid, request.token);
            say_bye(&socket);
        }
        Some(request) if request.kind == FILE => files::requested(desk, socket, (uid, pid), request, packet.fd),
        Some(request) if request.kind == OWN_UFFD => own_uffd::requested(desk, socket, pid, request),
        Some(request) if request.kind == CONFINE => detach::confine(desk, socket, pid, request.flags),
        Some(request) if request.kind == DETACH => detach::requested(desk, socket, pid, request.flags),
        None if packet.bytes.starts_with(b"{") => {
            if process::is_root_or_own(uid) {
                let question: Question = serde_json::from_slice(&packet.bytes).unwrap_or_default();
                if let Some(order) = &question.order {
                    let told = serde_json::to_vec(&background::carry_out(desk, order)).unwrap_or_default();
                    let _ = seqpacket::send(socket.as_fd(), &told, None);
                    return;
                }
                let mut answer = crate::stats::live(desk, &question);
                let send = |answer: &Stats| seqpacket::send(socket.as_fd(), &serde_json::to_vec(answer)?, None);
                if send(&answer).is_err() {
                    crate::stats::shorten(&mut answer);
                    let _ = send(&answer);
                }
            }
        }
        _ => say_bye(&socket),
    }
}

fn may_join(desk: &Desk, uid: u32, pid: i32) -> bool {
    let launcher = if desk.launcher_ended.load(Relaxed) { 0 } else { desk.config.launcher_pid };
    may_join_below(launcher, uid, pid)
}

/// Processes of another user may join only if they are in the tree, which may have changed its
/// user. Others could take memory of the budget, and get the right to a userfaultfd. A process
/// outside of the pager's PID namespace has pid 0, as far as the pager can see: a signal to that
/// goes to the pager's own group.
fn may_join_below(launcher: i32, uid: u32, pid: i32) -> bool {
    pid > 0 && (uid == process::effective_uid() || proctree::is_at_or_below(pid, launcher))
}

/// Parses a message of a stub.
pub fn parse(bytes: &[u8]) -> Option<FromStub> {
    let message = from_stub(bytes)?;
    (message.magic == MAGIC && message.version == VERSION).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_joins_whose_pid_is_unknown() {
        let (own, uid) = (std::process::id() as i32, process::effective_uid());
        let others = uid.wrapping_add(1);
        assert!(may_join_below(1, uid, own) && may_join_below(own, others, own));
        assert!(!may_join_below(own, others, 1), "another user's, outside of the tree");
        assert!(!may_join_below(own, uid, 0) && !may_join_below(0, uid, 0));
    }
}
