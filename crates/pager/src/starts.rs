//! The start socket, to which each new process connects before its program runs.
//!
//! Processes that start at the same time fill memory before the pager can attach them. So while
//! little memory is free, few may be new at a time, and the next ones wait in `connect`. For that
//! the listener's queue holds one connection. When the pager has accepted a process, it connects
//! itself: that fills the queue, and closes the socket. To open it, the pager accepts its own
//! connection. A process that comes alone waits for nothing, not even for an answer.

use crate::clients::{Client, MANAGED, REFUSED};
use crate::config::start_socket_name;
use crate::control::Desk;
use crate::monitor::ATTACH_BYTES;
use crate::wake;
use memfit_os::procfs::{self, RssReader};
use memfit_os::proctree::{self, ProcStat};
use memfit_os::seqpacket::{self, BACKLOG};
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many processes may be new at a time. A fork child that calls exec starts twice.
const NEW_AT_ONCE: usize = 2;
/// A process with little memory is no longer new after so much CPU time, so long after it was
/// accepted, or when it sleeps: `cat` that waits for its input.
const SMALL_CPU: Duration = Duration::from_millis(3);
const SMALL_AFTER: Duration = Duration::from_millis(20);
/// One that is to be attached counts as new for so long: a debugger may prevent it.
const ATTACHED_WITHIN: Duration = Duration::from_millis(500);
/// The socket opens so long after a process was accepted in any case.
const NEXT_WITHIN: Duration = Duration::from_millis(100);
/// How often the pager looks whether it may open: at first, and after so long.
const POLL_SOON_MS: i32 = 1;
const OPENS_SOON: Duration = Duration::from_millis(10);
const POLL_MS: i32 = 4;

/// Little memory is free from now on: one connection may wait to be accepted. The monitor calls it.
pub fn limit(desk: &Desk) {
    seqpacket::set_backlog(desk.config.start_listener, 0);
}

/// Opens and closes the start socket. Belongs to the control thread.
#[derive(Debug, Default)]
pub struct Starts {
    /// Processes that were accepted and may still be new.
    new: Vec<(i32, Instant)>,
    /// When one was accepted last.
    accepted: Option<Instant>,
    /// The pager's own connection: the socket is closed.
    closed: Option<OwnedFd>,
    /// Any number of connections may wait to be accepted.
    loose: bool,
}

impl Starts {
    /// Whether the socket is closed.
    pub fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Time after which to look whether the socket may open again, ms.
    pub fn poll_ms(&self) -> Option<i32> {
        let soon = self.accepted.is_some_and(|at| at.elapsed() < OPENS_SOON);
        self.is_closed().then_some(if soon { POLL_SOON_MS } else { POLL_MS })
    }

    /// Opens the socket if it is time. Returns the listener, -1 while it is closed.
    pub fn listener(&mut self, desk: &Desk) -> RawFd {
        if self.is_closed() && !self.must_close(desk) {
            // The connection is still in the queue, and is not kept when it is accepted.
            self.closed = None;
        }
        if self.is_closed() {
            return -1;
        }
        self.loose &= !is_tight(desk);
        // Not at once: all who wait would start together.
        if !self.loose && !is_tight(desk) && !self.has_accepted_lately() {
            seqpacket::set_backlog(desk.config.start_listener, BACKLOG);
            self.loose = true;
            if is_tight(desk) {
                limit(desk);
            }
        }
        desk.config.start_listener
    }

    /// A process was accepted. That wakes the next one, so the socket is closed before anything
    /// else. If that one has connected all the same, it is accepted as well.
    pub fn accepted(&mut self, desk: &Desk, pid: i32) {
        let now = Instant::now();
        self.accepted = Some(now);
        if !is_tight(desk) {
            return self.new.clear();
        }
        self.closed = seqpacket::connect_abstract(&start_socket_name(&desk.config.socket_name)).ok();
        self.new.retain(|&(known, _)| known != pid);
        self.new.push((pid, now));
    }

    fn must_close(&mut self, desk: &Desk) -> bool {
        self.new.retain(|&(pid, at)| Seen::of(desk, pid, at).is_new());
        let many = self.new.len() >= NEW_AT_ONCE || desk.shared.must_wait(1);
        many && is_tight(desk) && self.has_accepted_lately() && !desk.shared.ending.load(Relaxed)
    }

    fn has_accepted_lately(&self) -> bool {
        self.accepted.is_some_and(|at| at.elapsed() < NEXT_WITHIN)
    }
}

fn is_tight(desk: &Desk) -> bool {
    desk.shared.budget.tight_lately.load(SeqCst)
}

/// What is known of a process that was accepted.
#[derive(Debug, Clone, Copy)]
struct Seen {
    since: Duration,
    /// It has ended, or runs another program, which connects for itself.
    over: bool,
    /// It is attached, or cannot be.
    known: bool,
    sleeps: bool,
    cpu: Duration,
    anon: u64,
}

impl Seen {
    /// `at`: when it was accepted.
    fn of(desk: &Desk, pid: i32, at: Instant) -> Seen {
        // Its client is younger, or not known yet: one that is older is the program before exec.
        let is_its = |client: &&Arc<Client>| client.pid == pid && client.since > at;
        let client = desk.clients.lock().iter().rfind(is_its).cloned();
        let (cpu, stat) = (procfs::cpu_clock(pid), proctree::read_stat(pid));
        let over = match &client {
            Some(client) => client.gone.load(Relaxed) || wake::runs_another(client),
            // Its stub thread may not have said hello yet.
            None => stat.as_ref().is_none_or(ProcStat::is_dead),
        };
        let is_known = |client: &Client| matches!(client.stage.load(Relaxed), MANAGED | REFUSED);
        Seen {
            since: at.elapsed(),
            over: over || cpu.is_none(),
            known: client.as_ref().is_some_and(|client| is_known(client)),
            sleeps: stat.is_some_and(|stat| stat.state == 'S'),
            cpu: cpu.unwrap_or_default(),
            anon: RssReader::open(pid).and_then(|rss| rss.read()).map_or(0, |rss| rss.anon),
        }
    }

    /// Whether it may fill memory unseen: it has just begun, or is to be attached.
    fn is_new(self) -> bool {
        let begins = self.since < SMALL_AFTER && self.cpu < SMALL_CPU && !self.sleeps;
        let is_attached_soon = self.since < ATTACHED_WITHIN && self.anon >= ATTACH_BYTES;
        !self.over && !self.known && (begins || is_attached_soon)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_new_until_it_is_attached_or_known_to_be_small() {
        let ms = Duration::from_millis;
        let begins = Seen { since: ms(1), over: false, known: false, sleeps: false, cpu: ms(1), anon: 0 };
        assert!(begins.is_new());
        assert!(!Seen { over: true, ..begins }.is_new() && !Seen { known: true, ..begins }.is_new());
        assert!(!Seen { cpu: ms(4), ..begins }.is_new(), "it has run and is small");
        assert!(!Seen { since: ms(21), ..begins }.is_new() && !Seen { sleeps: true, ..begins }.is_new());
        let large = Seen { since: ms(21), cpu: ms(9), anon: ATTACH_BYTES, ..begins };
        assert!(large.is_new(), "it is to be attached");
        assert!(!Seen { since: ms(501), ..large }.is_new(), "something prevents that");
    }
}
