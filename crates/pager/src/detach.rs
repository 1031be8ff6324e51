//! Processes that are not to be paged any more: they get all of their memory back, and their stub
//! ends.
//!
//! A thread of the process asks for it, on a connection of its own, before a system call filter
//! would make the stub's thread the death of the process, or because we cannot look at the process
//! from now on (stub/src/seccomp.rs, stub/src/detach.rs). What is registered stays so, and its
//! faults are served, until the process ends; but all of it is there, so that it does not depend on
//! us any more. It counts towards the budget.

use crate::control::{Client, Desk, ATTACHING, IDLE, MANAGED, REFUSED};
use crate::proc::{send_command, Broken, Proc};
use crate::state::Shared;
use crate::wake;
use memfit_core::{Entry, Page};
use memfit_os::procfs;
use memfit_os::proctree::ProcStat;
use memfit_wire::{Command, ALONE, BATCH_RANGES, BYE, CONFINE, DOFORK, FILTERED, QUIET, STAY};
use std::collections::{HashMap, HashSet};
use std::io::{Error, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::Arc;
use std::time::Duration;

/// Time between two looks at what is awaited.
pub const LOOK: Duration = Duration::from_millis(1);
/// Pages looked at under one hold of the core's lock, and brought back at a time.
const CHUNK: u64 = 2048;

/// [`Client::quiet`]: the stub has not answered, keeps forks out, cannot now.
pub const REQUESTED: u32 = 0;
/// See [`REQUESTED`].
pub const IS_QUIET: u32 = 1;
/// See [`REQUESTED`].
pub const FORKS: u32 = 2;

/// Why a process is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// A filter of system calls.
    Filtered,
    /// We may not read its files in /proc.
    Unreadable,
    /// It must have one thread only.
    Alone,
}

impl Why {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Why::Filtered => "it has a system call filter that forbids what taking its pages needs",
            Why::Unreadable => {
                "its user may not look at it: it is not dumpable (PR_SET_DUMPABLE) or has other credentials; with \
                 CAP_SYS_PTRACE it would be paged"
            }
            Why::Alone => "it enters a namespace into which the kernel lets only a process of one thread",
        }
    }
}

/// Processes without a stub of which we know why.
#[derive(Debug, Default)]
pub struct Detached {
    /// Those that are left, or were refused.
    pub why: HashMap<i32, Why>,
    /// Commands of which the user knows it.
    told: HashSet<(String, Why)>,
}

impl Detached {
    /// Why this process, or the one that it was forked from, has none.
    pub fn of(&self, process: &ProcStat) -> Option<Why> {
        let parent = Some(process.ppid).filter(|_| process.forked);
        self.why.get(&process.pid).or_else(|| self.why.get(&parent?)).copied()
    }
}

/// Says it, once for each command.
pub fn tell(desk: &Desk, pid: i32, comm: &str, why: Why, since: &str) {
    if desk.detached.lock().unwrap().told.insert((comm.to_owned(), why)) {
        desk.shared.warn(format!("not paged{since}, but counted: process {pid} ({comm}): {}", why.text()));
    }
}

/// A process could not be paged; its stub is not needed.
pub fn refused(desk: &Desk, client: &Client, error: &Error) {
    // One that is about to end has no memory any more, and one that has called exec has other
    // memory, whose stub will say hello.
    if error.raw_os_error() == Some(libc::ESRCH) || client.rss.read().map_or(true, |rss| rss.mapped == 0) {
        return;
    }
    if error.kind() == ErrorKind::PermissionDenied {
        desk.detached.lock().unwrap().why.insert(client.pid, Why::Unreadable);
        tell(desk, client.pid, &client.comm, Why::Unreadable, "");
        answer(&client.socket, BYE);
    } else if !client.forked {
        desk.shared.warn(format!("process {} ({}) cannot be paged: {error}", client.pid, client.comm));
    }
}

/// A thread of a process asks for it; the answer goes to its socket.
pub fn requested(desk: &Arc<Desk>, socket: OwnedFd, pid: i32, flags: u32) {
    let why = match flags {
        FILTERED => Why::Filtered,
        ALONE => Why::Alone,
        _ => Why::Unreadable,
    };
    let client = desk.clients.lock().unwrap().iter().rev().find(|c| c.pid == pid && !c.gone.load(Relaxed)).cloned();
    match client {
        // CAP_SYS_PTRACE is the right to both.
        Some(client) if why != Why::Unreadable || !desk.fork_events => begin(desk, &client, why, Some(socket)),
        _ => answer(&socket, STAY),
    }
}

/// A process gives up rights: its stub is told, which has them as well.
pub fn confine(desk: &Desk, asker: &OwnedFd, pid: i32, flags: u32) {
    let there = |c: &&Arc<Client>| c.pid == pid && c.dormant.is_none() && !c.gone.load(Relaxed);
    let client = desk.clients.lock().unwrap().iter().rfind(there).cloned();
    let command = Command { kind: CONFINE, flags, ..Command::default() };
    let told = client.is_some_and(|client| send_command(&client.socket, &command, None));
    answer(asker, if told { STAY } else { BYE });
}

/// Leaves a process, and tells the one who asked when that is done.
pub fn begin(desk: &Arc<Desk>, client: &Arc<Client>, why: Why, asker: Option<OwnedFd>) {
    let (desk, client) = (Arc::clone(desk), Arc::clone(client));
    let body = move || {
        let client = wake::current_client(&desk, &client);
        if client.detaching.swap(true, SeqCst) {
            // Another thread was first.
            while !client.gone.load(Relaxed) && client.dormant.is_none() {
                std::thread::sleep(LOOK);
            }
        } else {
            detach(&desk, &client, why);
        }
        asker.iter().for_each(|socket| answer(socket, BYE));
    };
    // Without a thread the asker's socket is closed, and it goes on as it is.
    let _ = std::thread::Builder::new().name("detach".into()).stack_size(256 << 10).spawn(body);
}

fn answer(socket: &OwnedFd, kind: u32) {
    send_command(socket, &Command { kind, ..Command::default() }, None);
}

fn detach(desk: &Desk, client: &Client, why: Why) {
    let managed = loop {
        // The fork child of a paged process lacks pages, and is paged as soon as it is known.
        if client.has_beacon && client.stage.load(SeqCst) == IDLE && !client.gone.load(Relaxed) {
            std::thread::sleep(LOOK);
            continue;
        }
        match client.stage.compare_exchange(IDLE, REFUSED, SeqCst, SeqCst) {
            Err(ATTACHING) if !client.gone.load(Relaxed) => std::thread::sleep(LOOK),
            Err(stage) => break stage == MANAGED,
            Ok(_) => break false,
        }
    };
    desk.detached.lock().unwrap().why.insert(client.pid, why);
    let proc = client.proc.lock().unwrap().clone();
    if let Some(proc) = proc.filter(|_| managed) {
        // Said first: it may end meanwhile.
        let since = if proc.counters.evicted.load(Relaxed) > 0 { " any more" } else { "" };
        let comm = procfs::comm(client.pid).unwrap_or_else(|| client.comm.clone());
        tell(desk, client.pid, &comm, why, since);
        if !give_back(&desk.shared, client, &proc) {
            return;
        }
        client.stage.store(REFUSED, SeqCst);
    }
    answer(&client.socket, BYE);
}

/// Brings everything back, and takes nothing any more. False if the process is gone.
fn give_back(shared: &Shared, client: &Client, proc: &Arc<Proc>) -> bool {
    if proc.tells_forks() && !quiet(client, proc) {
        return false;
    }
    proc.detaching.store(true, SeqCst);
    if !drained(shared, proc) {
        return false;
    }
    if proc.tells_forks() {
        // From now on its fork children get all, as everybody's do.
        for chunk in proc.to_dofork().chunks(BATCH_RANGES) {
            proc.post_advice(&mut proc.io.lock().unwrap(), chunk, DOFORK);
            proc.ring_bell();
            if !drained(shared, proc) {
                return false;
            }
        }
    }
    // A page can move, by mremap, to where we have looked already.
    loop {
        let mut all = true;
        let regions: Vec<(u64, u64)> = proc.regions.lock().unwrap().iter().collect();
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

/// Forks are kept out, and none is under way.
fn quiet(client: &Client, proc: &Proc) -> bool {
    loop {
        client.quiet.store(REQUESTED, SeqCst);
        answer(&client.socket, QUIET);
        while client.quiet.load(SeqCst) == REQUESTED {
            if gone(proc) {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        if client.quiet.load(SeqCst) == IS_QUIET {
            return true;
        }
        std::thread::sleep(LOOK);
    }
}

/// Waits until the stub has nothing to do.
pub fn drained(shared: &Shared, proc: &Proc) -> bool {
    loop {
        let mut io = proc.io.lock().unwrap();
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

/// Lets the fault thread bring these pages back, and waits for that; whether there were none.
/// `None` if the process is gone.
pub fn bring_back(shared: &Shared, proc: &Proc, pages: std::ops::Range<u64>) -> Option<bool> {
    // Nobody else could fill what was never read of them.
    let files = proc.files.lock().unwrap().pages();
    let of_file = |page: u64| files.iter().any(|&(first, end)| (first..end).contains(&page));
    let outside = |pages: &mut dyn Iterator<Item = u64>| -> Option<Vec<u64>> {
        let state = shared.lock();
        let out = |&page: &u64| match state.core.entry(proc.id, Page(page)) {
            Entry::Out(_) | Entry::Loading(_) | Entry::Evicting(_) => true,
            Entry::Untracked | Entry::Filling(_) => of_file(page),
            _ => false,
        };
        // Its number in the core may be another's.
        (!proc.removed.load(Relaxed)).then(|| pages.filter(out).collect())
    };
    let mut left = outside(&mut pages.into_iter())?;
    let none = left.is_empty();
    if !none {
        proc.fetch(left.iter().map(|page| page * 4096).collect());
    }
    while !left.is_empty() {
        std::thread::sleep(LOOK);
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
