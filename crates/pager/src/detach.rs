//! Detaching: a process gets all of its memory back, and its stub ends.
//!
//! A thread of the process asks for it, on a connection of its own: before a system call filter
//! comes that would kill the process for a call of the stub thread, or because the pager may not
//! read the process's files in /proc any more (stub/src/seccomp.rs, stub/src/detach.rs). The
//! mappings stay registered and the pager serves their faults until the process ends. But all pages
//! are present, so the process does not depend on the pager any more. It counts towards the budget.
//! A process for which the pager lacks a thread or a descriptor is told to go as well. It has no
//! registered mappings then.

use crate::background::LastOrder;
use crate::clients::{Client, ATTACHING, IDLE, MANAGED, REFUSED};
use crate::control::Desk;
use crate::leases;
use crate::proc::{send_command, Broken, Proc};
use crate::state::Shared;
use crate::wake;
use memfit_core::{Entry, Page};
use memfit_os::procfs;
use memfit_os::proctree::{self, ProcStat};
use memfit_wire::{Command, ALONE, BATCH_RANGES, BYE, CONFINE, DOFORK, FILTERED, QUIET, STAY};
use std::collections::{HashMap, HashSet};
use std::io::{Error, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::Arc;
use std::time::Duration;

/// Time between two polls.
pub const POLL: Duration = Duration::from_millis(1);
/// Pages that are checked under one hold of the core lock, and brought back at a time.
const CHUNK: u64 = 2048;
/// How long a process that gives up rights waits for the kernel's mappings of its files.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(20);
/// Polls after which pages are requested again that have not come.
const REQUESTED_EACH: u32 = 100;

/// [`Client::quiet`]: the stub has not answered; it keeps forks out; it cannot now.
pub const REQUESTED: u32 = 0;
/// See [`REQUESTED`].
pub const IS_QUIET: u32 = 1;
/// See [`REQUESTED`].
pub const FORKS: u32 = 2;

/// Why a process is detached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// A system call filter forbids the stub's work.
    Filtered,
    /// The pager may not read its files in /proc.
    Unreadable,
    /// It must have one thread only, to enter a namespace.
    Alone,
    /// The pager lacks what it needs for it.
    Refused,
}

impl Why {
    /// For messages.
    pub fn text(self) -> &'static str {
        match self {
            Why::Filtered => "it has a system call filter that forbids what taking its pages needs",
            Why::Unreadable => {
                "its user may not look at it: it is not dumpable (PR_SET_DUMPABLE) or has other credentials; with \
                 CAP_SYS_PTRACE it would be paged"
            }
            Why::Alone => "it enters a namespace into which the kernel lets only a process of one thread",
            Why::Refused => "the pager lacks what it needs to page it",
        }
    }
}

/// What is known of processes without a stub.
#[derive(Debug, Default)]
pub struct Detached {
    /// Those that were detached or refused, by pid.
    pub why: HashMap<i32, Why>,
    /// Whether their last programs were in the background, by pid.
    orders: HashMap<i32, LastOrder>,
    /// Commands that the user was warned of.
    told: HashSet<(String, Why)>,
}

impl Detached {
    /// Why this process, or the one that it was forked from, has no stub.
    pub fn of(&self, process: &ProcStat) -> Option<Why> {
        let parent = Some(process.ppid).filter(|_| process.forked);
        self.why.get(&process.pid).or_else(|| self.why.get(&parent?)).copied()
    }

    /// The processes of which something is known.
    pub fn pids(&self) -> Vec<i32> {
        self.why.keys().chain(self.orders.keys()).copied().collect()
    }

    /// Forgets those that do not live any more: other processes can get their pids.
    pub fn forget(&mut self, pids: Vec<i32>, lives: impl Fn(i32) -> bool) {
        for pid in pids.into_iter().filter(|&pid| !lives(pid)) {
            self.why.remove(&pid);
            self.orders.remove(&pid);
        }
    }

    /// Remembers what a process was told whose client is removed: it may run another program.
    pub fn remember_order(&mut self, client: &Client) {
        let lives = || proctree::read_stat(client.pid).is_some_and(|now| now.start_ticks == client.started);
        match LastOrder::of(client).filter(|_| lives()) {
            Some(order) => self.orders.insert(client.pid, order),
            None => self.orders.remove(&client.pid),
        };
    }

    /// What the last program of a process was told.
    pub fn last_order(&self, client: &Client) -> Option<LastOrder> {
        self.orders.get(&client.pid).copied()
    }
}

/// Warns the user, once for each command and reason.
pub fn tell(desk: &Desk, pid: i32, comm: &str, why: Why, was_paged: bool) {
    if desk.detached.lock().told.insert((comm.to_owned(), why)) {
        let what = if was_paged { "no longer paged, still counted" } else { "not paged, but counted" };
        desk.shared.warn(format!("{what}: process {pid} ({comm}): {}", why.text()));
    }
}

/// Handles a process that could not be paged: its stub is not needed.
pub fn refused(desk: &Desk, client: &Client, error: &Error) {
    // A process that is about to end has no memory any more. One that has called exec has new
    // memory, and its new stub will say hello.
    if error.raw_os_error() == Some(libc::ESRCH) || client.rss.read().map_or(true, |rss| rss.mapped == 0) {
        return;
    }
    let why = if error.kind() == ErrorKind::PermissionDenied { Why::Unreadable } else { Why::Refused };
    if why == Why::Unreadable {
        tell(desk, client.pid, &client.comm, why, false);
    } else if !client.forked {
        desk.shared.warn(format!("process {} ({}) cannot be paged: {error}", client.pid, client.comm));
        desk.detached.lock().told.insert((client.comm.clone(), why));
    }
    // Nobody reads the events of its userfaultfd: a fork would wait for ever. The stub closes it. A
    // fork child of a paged process has a fault thread already.
    if why == Why::Unreadable || client.proc.lock().is_none() {
        desk.detached.lock().why.insert(client.pid, why);
        answer(&client.socket, BYE);
    }
}

/// A thread of a process asks to detach it; the answer goes to that thread's socket.
pub fn requested(desk: &Arc<Desk>, socket: OwnedFd, pid: i32, flags: u32) {
    let why = match flags {
        FILTERED => Why::Filtered,
        ALONE => Why::Alone,
        _ => Why::Unreadable,
    };
    let client = desk.clients.lock().iter().rev().find(|c| c.pid == pid && !c.gone.load(Relaxed)).cloned();
    match client {
        // CAP_SYS_PTRACE gives fork events and the right to read such processes.
        Some(client) if why != Why::Unreadable || !desk.fork_events => begin(desk, &client, why, Some(socket)),
        _ => answer(&socket, STAY),
    }
}

/// A process gives up rights: tells its stub thread, which still has them. Before that its mappings
/// of the page cache become the kernel's: processes with more rights use the page cache as well.
pub fn confine(desk: &Arc<Desk>, asker: OwnedFd, pid: i32, flags: u32) {
    let there = |c: &&Arc<Client>| c.pid == pid && c.dormant.is_none() && !c.gone.load(Relaxed);
    let client = desk.clients.lock().iter().rfind(there).cloned();
    let tell = move |client: Option<&Arc<Client>>| {
        let command = Command { kind: CONFINE, flags, ..Command::default() };
        let told = client.is_some_and(|client| send_command(&client.socket, &command, None));
        answer(&asker, if told { STAY } else { BYE });
    };
    let proc = client.as_ref().and_then(|client| client.proc.lock().clone());
    let shares = move |proc: &Arc<Proc>| flags == 0 && proc.files.lock().shared_pages().next().is_some();
    let Some((client, proc)) = client.clone().zip(proc.filter(shares)) else { return tell(client.as_ref()) };
    let (tell, desk) = (Arc::new(tell), Arc::clone(desk));
    let (later, known) = (Arc::clone(&tell), Arc::clone(&client));
    let body = move || {
        leases::give_up(&known, &proc, GIVEN_UP_WITHIN);
        if shares(&proc) && !gone(&proc) {
            let comm = proc.comm.lock().clone();
            desk.shared.warn(format!("process {pid} ({comm}) has given up rights, and still shares pages of files"));
        }
        later(Some(&known));
    };
    if std::thread::Builder::new().name("confine".into()).stack_size(128 << 10).spawn(body).is_err() {
        tell(Some(&client));
    }
}

/// Detaches a process in a thread of its own, then answers the asker.
pub fn begin(desk: &Arc<Desk>, client: &Arc<Client>, why: Why, asker: Option<OwnedFd>) {
    let (desk, client) = (Arc::clone(desk), Arc::clone(client));
    let body = move || {
        let client = wake::current_client(&desk, &client);
        if client.detaching.swap(true, SeqCst) {
            // Another thread was first.
            while !client.gone.load(Relaxed) && client.dormant.is_none() {
                std::thread::sleep(POLL);
            }
        } else {
            detach(&desk, &client, why);
        }
        asker.iter().for_each(|socket| answer(socket, BYE));
    };
    // If there is no thread, the asker's socket closes, and the asker goes on as it is.
    let _ = std::thread::Builder::new().name("detach".into()).stack_size(256 << 10).spawn(body);
}

fn answer(socket: &OwnedFd, kind: u32) {
    send_command(socket, &Command { kind, ..Command::default() }, None);
}

fn detach(desk: &Desk, client: &Client, why: Why) {
    let managed = loop {
        // A fork child of a paged process lacks pages: it is first paged, as soon as it is
        // identified.
        if client.lacks_pages() && client.stage.load(SeqCst) == IDLE && !client.gone.load(Relaxed) {
            std::thread::sleep(POLL);
            continue;
        }
        match client.stage.compare_exchange(IDLE, REFUSED, SeqCst, SeqCst) {
            Err(ATTACHING) if !client.gone.load(Relaxed) => std::thread::sleep(POLL),
            Err(stage) => break stage == MANAGED,
            Ok(_) => break false,
        }
    };
    desk.detached.lock().why.insert(client.pid, why);
    let proc = client.proc.lock().clone();
    if let Some(proc) = proc.filter(|_| managed) {
        // Before the work: the process may end meanwhile.
        let was_paged = proc.counters.evicted.load(Relaxed) > 0;
        let comm = procfs::comm(client.pid).unwrap_or_else(|| client.comm.clone());
        tell(desk, client.pid, &comm, why, was_paged);
        // Without a stub they could not be mapped again. What is left stays in the page cache, and
        // the process is killed when somebody changes the file.
        leases::give_up(client, &proc, leases::LEAST_TIME);
        if !give_back(&desk.shared, client, &proc) {
            return;
        }
        client.stage.store(REFUSED, SeqCst);
        // Nobody tells of its forks any more.
        let procs = desk.shared.procs.lock();
        procs.iter().filter(|p| p.family.is_of(&proc.family)).for_each(|p| p.family.hides());
    }
    answer(&client.socket, BYE);
}

/// Brings all pages back and evicts none any more. False if the process is gone.
fn give_back(shared: &Shared, client: &Client, proc: &Arc<Proc>) -> bool {
    if proc.tells_forks() && !quiet(client, proc) {
        return false;
    }
    proc.detaching.store(true, SeqCst);
    if !drained(shared, proc) {
        return false;
    }
    if proc.tells_forks() {
        // From now on its fork children inherit everything.
        for chunk in proc.to_dofork().chunks(BATCH_RANGES) {
            proc.post_advice(&mut proc.io.lock(), chunk, DOFORK);
            proc.ring_bell();
            if !drained(shared, proc) {
                return false;
            }
        }
    }
    // mremap can move a page to a range that was checked already.
    loop {
        let mut all = true;
        let regions: Vec<(u64, u64)> = proc.regions.lock().iter().collect();
        for (start, end) in regions {
            let mut first = start / 4096;
            while first < end / 4096 {
                let to = (end / 4096).min(first + CHUNK);
                match bring_back(shared, proc, first..to) {
                    Some(none) => all &= none,
                    None => return false,
                }
                first = to;
            }
        }
        if all {
            return true;
        }
    }
}

/// Waits until the stub keeps forks out and none is under way. False if the process is gone.
fn quiet(client: &Client, proc: &Proc) -> bool {
    loop {
        client.quiet.store(REQUESTED, SeqCst);
        answer(&client.socket, QUIET);
        while client.quiet.load(SeqCst) == REQUESTED {
            if gone(proc) {
                return false;
            }
            std::thread::sleep(POLL);
        }
        if client.quiet.load(SeqCst) == IS_QUIET {
            return true;
        }
        std::thread::sleep(POLL);
    }
}

/// Waits until the stub has no batch. False if the process is gone.
pub fn drained(shared: &Shared, proc: &Proc) -> bool {
    loop {
        let mut io = proc.io.lock();
        if let Err(Broken(why)) = proc.collect(shared, &mut io, false) {
            drop(io);
            proc.stop(shared, &why);
            return false;
        }
        if !io.busy {
            return true;
        }
        let number = io.number;
        drop(io);
        proc.wait_finished(number, Duration::from_millis(20));
        if gone(proc) {
            return false;
        }
    }
}

/// Has the fault thread bring these pages back, and waits for that. True if there were none; `None`
/// if the process is gone.
pub fn bring_back(shared: &Shared, proc: &Proc, pages: std::ops::Range<u64>) -> Option<bool> {
    let outside = |pages: &mut dyn Iterator<Item = u64>| -> Option<Vec<u64>> {
        // Only the pager can fill pages of files that were never read. The program can unmap them.
        let files = proc.files.lock().pages();
        let of_file = |page: u64| files.iter().any(|&(first, end)| (first..end).contains(&page));
        let state = shared.lock_for(proc)?;
        let out = |&page: &u64| match state.core.entry(proc.id, Page(page)) {
            Entry::Out(_) | Entry::Loading(_) | Entry::Evicting(_) => true,
            Entry::Untracked | Entry::Filling(_) => of_file(page),
            _ => false,
        };
        Some(pages.filter(out).collect())
    };
    let mut left = outside(&mut pages.into_iter())?;
    let none = left.is_empty();
    let mut polls = 0;
    while !left.is_empty() {
        // The program can drop a page after it has come.
        if polls % REQUESTED_EACH == 0 {
            proc.fetch(left.iter().map(|page| page * 4096).collect());
        }
        polls += 1;
        std::thread::sleep(POLL);
        if gone(proc) {
            return None;
        }
        left = outside(&mut left.into_iter())?;
    }
    Some(none)
}

pub fn gone(proc: &Proc) -> bool {
    proc.dead.load(Relaxed) || proc.removed.load(Relaxed) || proc.uffd.gone()
}
