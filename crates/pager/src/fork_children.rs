//! Fork children of paged processes, where the kernel reports forks.
//!
//! The FORK event gives the pager the child's userfaultfd, but no pid. The child's stub says hello,
//! and the kernel says the pid. The *beacon* shows which of them belong together: a page of the
//! parent that is never present. The child's stub touches it, and the fault comes on the child's
//! userfaultfd. The page that the pager fills through that userfaultfd appears in the child's
//! memory and in no other. The pager believes nothing that a program says of itself.

use crate::attach::{cannot_inherit, FaultThread};
use crate::bare_children;
use crate::clients::{Client, ATTACHING, IDLE, MANAGED, REFUSED};
use crate::control::Desk;
use crate::forks::with_core;
use crate::locks::{rank, Lock};
use crate::proc::{send_command, Broken, Proc, ZERO_PAGE};
use crate::room;
use crate::state::Shared;
use memfit_core::driver::fork;
use memfit_core::driver::fork_changes::{self, Inherited, Told};
use memfit_core::ranges::Ranges;
use memfit_core::{Core, Page, PageRange};
use memfit_os::maps::{not_inherited, wiped_in_children, Pagemap};
use memfit_os::procfs;
use memfit_os::proctree::{self, ProcStat};
use memfit_os::uffd::{Event, Fill, Inbox, Uffd};
use memfit_wire::{Command, INDEPENDENT, LEND, STAY, WAIT};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

/// A fork child whose parent could not be paged has no userfaultfd this long after its hello.
const NAMED_WITHIN: Duration = Duration::from_millis(100);
/// How long the fault on a beacon waits for the hello, which the stub sends first.
const HELLO_WITHIN: Duration = Duration::from_secs(5);
/// How often it looks for the hello at least.
const POLLS: u32 = 50;
/// How long a fork child waits at most until it is paged and there is room.
const WAITS_AT_MOST: Duration = Duration::from_millis(250);
/// Above all addresses of programs.
const ADDRESSES: u64 = 1 << 56;
/// Most fork children that may wait to be killed before their parent goes on, and how long it waits
/// at most.
const DOOMED_MAX: usize = 4;
pub const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// Time between two checks whether the process still lives.
const POLL: Duration = Duration::from_millis(20);
/// How long a child waits at most until all changes of its parent before the fork are known, and
/// how often it looks.
pub const TOLD_WITHIN: Duration = Duration::from_secs(10);
pub const TOLD_POLL: Duration = Duration::from_micros(200);
/// When its mappings are read for the first time meanwhile; then after twice as long each.
const LOOK_FIRST: Duration = Duration::from_millis(2);

/// Fork children whose pid and userfaultfd are not matched yet.
#[derive(Default)]
pub struct Unnamed {
    /// Stubs that have said hello.
    clients: Lock<Vec<Arc<Client>>, { rank::FORK_CLIENTS }>,
    came: Condvar,
    /// Processes that cannot be served.
    doomed: Lock<Vec<Doomed>, { rank::DOOMED }>,
    /// Held by a thread that finds a child by its beacon (`bare_children`).
    pub finding: Lock<(), { rank::FINDING }>,
    /// How many there are, also while [`end_doomed`] has them: a parent that forks must not take
    /// that for none. Each has a descriptor, and without one nobody can be found and killed.
    doomed_count: AtomicUsize,
    /// Children that have a name and are not paged yet.
    new: AtomicUsize,
}

/// A fork child for which there was no thread or descriptor. Its page faults would wait for ever.
struct Doomed {
    proc: Arc<Proc>,
    why: String,
    /// It has touched a page, so it is in the list of processes. The FORK event comes before that.
    seen: bool,
    /// Set when its beacon is filled: the processes that had their beacon before.
    before: Option<Vec<i32>>,
    /// Set when it is found.
    process: Option<ProcStat>,
    /// The user was told.
    told: bool,
}

impl Unnamed {
    /// How many processes must be killed.
    pub fn doomed(&self) -> usize {
        self.doomed_count.load(Relaxed)
    }

    /// Waits until there are few: each has a descriptor that is not counted. Called by the fault
    /// thread of the parent.
    pub fn wait_for_few(&self) {
        let begun = Instant::now();
        while self.doomed() > DOOMED_MAX && begun.elapsed() < ENDS_WITHIN {
            std::thread::sleep(room::RETRY / 10);
        }
    }

    /// A stub has said hello and will touch its beacon.
    pub fn add(&self, client: &Arc<Client>) {
        let mut clients = self.clients.lock();
        clients.retain(|c| !c.gone.load(Relaxed) && c.proc.lock().is_none());
        clients.push(Arc::clone(client));
        self.came.notify_all();
    }
}

/// The stubs whose thread `tid` may have touched the beacon of a process. Called before the page is
/// filled. Waits for one; empty if the program touched the page by itself.
pub fn claims(shared: &Shared, proc: &Proc, tid: u32) -> Vec<Arc<Client>> {
    let (begun, mut polls) = (Instant::now(), 0);
    let mut clients = shared.unnamed.clients.lock();
    loop {
        let found: Vec<_> = clients.iter().filter(|client| may_be(client, proc, tid)).cloned().collect();
        // If the pager stood still, the control thread has time to read the hello.
        let enough = begun.elapsed() > HELLO_WITHIN && polls >= POLLS;
        if !found.is_empty() || enough || proc.uffd.gone() {
            return found;
        }
        clients = clients.wait(&shared.unnamed.came, POLL);
        polls += 1;
    }
}

/// Whether a stub's process can be the one with that userfaultfd: the thread belongs to it, it is a
/// child of the parent, and its beacon is not present yet.
fn may_be(client: &Client, proc: &Proc, tid: u32) -> bool {
    let open = !client.gone.load(Relaxed) && client.proc.lock().is_none();
    open && procfs::task(client.pid, tid).is_some()
        && proctree::read_stat(client.pid).is_some_and(|stat| is_child(&stat, proc.parent_pid.load(Relaxed)))
        && beacon_is_there(client.pid, proc).is_ok_and(|there| !there)
}

/// Whether a process can be a fork child of another one, by its parent: an orphan has another
/// parent, and a child made with CLONE_PARENT has its parent's.
fn is_child(stat: &ProcStat, parent: i32) -> bool {
    if parent == 0 || stat.ppid == parent {
        return true;
    }
    proctree::read_stat(parent).is_none_or(|of| of.is_dead() || of.ppid == stat.ppid)
}

pub fn beacon_is_there(pid: i32, proc: &Proc) -> io::Result<bool> {
    Pagemap::open(pid)?.is_present(proc.beacon.load(Relaxed))
}

/// The beacon was filled: the process that has it now is the one with that userfaultfd. Its stub
/// gets the userfaultfd, too. The process waits for that, because nobody else would hold the
/// descriptor if pager and launcher died.
pub fn name(shared: &Arc<Shared>, proc: &Arc<Proc>, claims: &[Arc<Client>]) {
    let mut clients = shared.unnamed.clients.lock();
    let mut theirs = claims.iter().filter(|client| beacon_is_there(client.pid, proc).is_ok_and(|there| there));
    let (Some(client), None) = (theirs.next(), theirs.next()) else { return };
    clients.retain(|c| !Arc::ptr_eq(c, client));
    drop(clients);
    if client.wipes {
        proc.unsure.store(true, Relaxed);
    }
    if let Err(Broken(why)) = reconcile(shared, proc, client.pid) {
        return cannot_inherit(shared, client, &why);
    }
    // Before the monitor can attach it.
    if client.stage.load(Relaxed) == IDLE && must_wait(shared) {
        *client.waits.lock() = Some(Instant::now());
        shared.meters.waited_at_start.fetch_add(1, Relaxed);
    }
    *client.proc.lock() = Some(Arc::clone(proc));
    if let Ok(uffd) = proc.uffd.as_fd().try_clone_to_owned() {
        lend(client, uffd.as_fd());
    }
}

/// Lends a userfaultfd to a stub. A fork child that need not wait for anything else goes on.
pub fn lend(client: &Client, uffd: BorrowedFd<'_>) {
    let flags = if client.waits.lock().is_some() { WAIT } else { 0 };
    send_command(&client.socket, &Command { kind: LEND, flags, ..Command::default() }, Some(uffd));
}

/// Whether a new fork child waits until it is paged and there is room: if page faults wait, or if
/// little is free and it is not the only new one. A shell that makes them one after another would
/// take twice as long; several that are made at once would fill memory while the pager attaches
/// them.
fn must_wait(shared: &Shared) -> bool {
    let others = shared.unnamed.new.fetch_add(1, Relaxed);
    shared.budget.tight_lately.load(Relaxed) && !shared.ending.load(Relaxed) && (others > 0 || shared.must_wait(1))
}

/// Lets fork children go on that are paged, one at a time if there is room, or that have waited
/// long enough.
pub fn let_go_on(shared: &Shared, clients: &[Arc<Client>]) {
    let (mut room, mut new) = (shared.budget.free() >= 0 || !shared.must_wait(1), 0);
    for client in clients.iter().filter(|client| client.has_beacon && !client.gone.load(Relaxed)) {
        let stage = client.stage.load(Relaxed);
        new += usize::from(matches!(stage, IDLE | ATTACHING) && client.proc.lock().is_some());
        let mut waits = client.waits.lock();
        let Some(since) = *waits else { continue };
        let goes = match stage {
            MANAGED => std::mem::replace(&mut room, false),
            stage => stage == REFUSED,
        };
        let enough = goes || since.elapsed() > WAITS_AT_MOST;
        if enough && send_command(&client.socket, &Command { kind: STAY, ..Command::default() }, None) {
            *waits = None;
        }
    }
    shared.unnamed.new.store(new, Relaxed);
}

/// Kills fork children that cannot be served, as soon as their processes are known.
pub fn end_doomed(shared: &Arc<Shared>) {
    let doomed = std::mem::take(&mut *shared.unnamed.doomed.lock());
    let mut left: Vec<Doomed> = Vec::new();
    for mut child in doomed {
        if child.proc.uffd.gone() {
            crate::attach::remove_process(shared, &child.proc);
            // Its descriptor is closed.
            drop(child);
            shared.unnamed.doomed_count.fetch_sub(1, Relaxed);
            continue;
        }
        // One after the other: a process is found by what has changed.
        let sought = left.iter().any(|other| other.before.is_some() && other.process.is_none());
        if child.process.is_none() && !sought {
            child.process = find(shared, &mut child);
        }
        if let Some(process) = &child.process {
            if proctree::kill_exactly(process) && !std::mem::replace(&mut child.told, true) {
                let (pid, comm, why) = (process.pid, &process.comm, &child.why);
                let what = format!("killed process {pid} ({comm}), a fork child: cannot serve its memory: {why}");
                shared.outbox.announce(what);
            }
        }
        left.push(child);
    }
    shared.unnamed.doomed.lock().append(&mut left);
}

/// The process with that userfaultfd, by its beacon: filled once, and searched until it is found.
fn find(shared: &Arc<Shared>, child: &mut Doomed) -> Option<ProcStat> {
    let proc = &child.proc;
    child.seen |= read_forks(shared, proc);
    if !child.seen {
        return None;
    }
    if child.before.is_none() {
        let before = with_beacon(proc)?.into_iter().map(|stat| stat.pid).collect();
        if !matches!(proc.uffd.copy_and_wake(proc.beacon.load(Relaxed), &ZERO_PAGE.0), Fill::Done) {
            return None;
        }
        child.before = Some(before);
    }
    let before = child.before.as_ref()?;
    let named: Vec<i32> = shared.procs.lock().iter().filter_map(|proc| proc.pid()).collect();
    let mut found = with_beacon(proc)?;
    found.retain(|stat| !before.contains(&stat.pid) && !named.contains(&stat.pid));
    // Another child may have got its beacon meanwhile: it will be identified, or end.
    if found.len() == 1 && !proc.uffd.gone() {
        found.pop()
    } else {
        None
    }
}

/// Reads the events of a process that will be killed: an unread one keeps the beacon from being
/// filled. Only its forks matter. Returns whether it has touched a page.
pub fn read_forks(shared: &Arc<Shared>, proc: &Arc<Proc>) -> bool {
    let (mut inbox, mut events, mut touched) = (Inbox::default(), Vec::new(), false);
    let _ = proc.uffd.read_some(&mut inbox, &mut events, usize::MAX);
    for event in events {
        match event {
            Event::Fork(uffd) => forked(shared, proc, uffd, Ranges::default(), false),
            Event::Fault { .. } => touched = true,
            _ => {}
        }
    }
    touched
}

/// The fork children of its parent that have their beacon. `None` if no descriptor is left to
/// check.
pub fn with_beacon(proc: &Proc) -> Option<Vec<ProcStat>> {
    let parent = proc.parent_pid.load(Relaxed);
    let mut children = proctree::snapshot().ok()?;
    children.retain(|stat| stat.forked && !stat.is_dead() && is_child(stat, parent));
    let mut found = Vec::new();
    for stat in children {
        match beacon_is_there(stat.pid, proc) {
            Ok(true) => found.push(stat),
            Err(error) if proctree::no_descriptor(&error) => return None,
            // It may have ended.
            Ok(false) | Err(_) => {}
        }
    }
    Some(found)
}

/// Releases fork children that wait because their parent seemed to be paged, when it could not be.
pub fn release_independent(desk: &Desk, clients: &[Arc<Client>]) {
    let is_new = |c: &Arc<Client>| !c.independent.load(Relaxed) && c.since.elapsed() > NAMED_WITHIN;
    let waits = |c: &&Arc<Client>| is_new(c) && c.is_unnamed();
    let mut waiting = clients.iter().filter(waits).peekable();
    let known = |proc: &Arc<Proc>| proc.identity.get().is_some() || proc.bare.load(Relaxed);
    let all_known = || desk.shared.unnamed.doomed() == 0 && desk.shared.procs.lock().iter().all(known);
    if waiting.peek().is_some() && all_known() {
        for client in waiting {
            let command = Command { kind: STAY, flags: INDEPENDENT, ..Command::default() };
            client.independent.store(send_command(&client.socket, &command, None), Relaxed);
        }
    }
}

/// A FORK event: the child has what the parent has. Called by the parent's fault thread, with the
/// batch drained. The parent goes on since the event was read. `suspects`: where evicted memory was
/// unmapped, or from where it was moved, perhaps after the fork.
/// `last`: no event was read after it.
pub fn forked(shared: &Arc<Shared>, parent: &Arc<Proc>, uffd: Uffd, suspects: Ranges, last: bool) {
    let bare = parent.bare.load(Relaxed) || parent.identity.get().is_some_and(|identity| identity.loaded);
    let quiet = bare && last && bare_children::is_quiet(parent);
    let regions = parent.regions.lock().clone();
    let parent_pid = parent.pid().unwrap_or_else(|| parent.found.load(Relaxed));
    let text = Some(parent_pid).filter(|&pid| pid != 0).and_then(|pid| procfs::read_memory(pid, "smaps").ok());
    let own: Ranges = parent.identity.get().into_iter().flat_map(|own| own.forbidden.iter().copied()).collect();
    let mut also = parent.unconfirmed.lock().clone();
    own.iter().for_each(|(start, end)| also.add(start, end));
    parent.files.lock().shared_pages().for_each(|(first, end)| also.add(first * 4096, end * 4096));
    let (lost, wiped): (Ranges, Ranges) = match &text {
        Some(text) => {
            let registered: Ranges = memfit_os::maps::registered(text).into_iter().collect();
            registered.iter().for_each(|(start, end)| also.add(start, end));
            // Not only in its regions: these lack what has grown, and where memory was just moved.
            let counts = |&(s, e): &(u64, u64)| registered.meets(s, e);
            let parts =
                |all: Vec<(u64, u64)>| all.into_iter().filter(counts).flat_map(|(s, e)| own.gaps(s, e)).collect();
            (parts(not_inherited(text)), parts(wiped_in_children(text)))
        }
        None => {
            let wiped = parent.wiped.lock().clone();
            (wiped.clone(), wiped)
        }
    };
    let mut state = shared.lock();
    let (id, area) = state.core.forked(parent.id, (shared.budget.sizes.staging / 4096) as u32, true);
    shared.apply_effects(state);
    let inherit = |core: &mut Core, part| {
        let before = core.present_pages(id);
        core.inherit(id, part);
        // Until its share is measured, all that it has counts as its parent's.
        shared.budget.doubled.fetch_add((core.present_pages(id) - before) * 4096, Relaxed);
    };
    shared.in_parts(parent.id, PageRange::ALL, inherit);
    // The child's stub has no other page yet.
    uffd.probe_at(parent.beacon.load(Relaxed));
    let thread = if shared.room_for_paged() { FaultThread::make() } else { Err(room::full()) };
    // One that is killed needs none of its own.
    let kick = if thread.is_ok() { Arc::new(room::event()) } else { Arc::clone(&parent.kick) };
    let child = Arc::new(Proc::new(id, area, uffd, kick, parent.family.of_child()));
    child.bare.store(bare, Relaxed);
    child.again.store(bare && (parent.bare.load(Relaxed) || parent.parent_pid.load(Relaxed) != 0), Relaxed);
    child.parent_pid.store(parent_pid, Relaxed);
    let (known, now) = (parent.network.load(Relaxed), parent.pid().map_or(0, procfs::network));
    child.network.store(known, Relaxed);
    child.made_elsewhere.store(!bare && known != 0 && now != 0 && known != now, Relaxed);
    child.unsure.store(!bare && (!lost.is_empty() || text.is_none()), Relaxed);
    *child.wiped.lock() = wiped;
    let files = parent.files.lock().clone();
    *child.files.lock() = files;
    *child.regions.lock() = regions.clone();
    let (changes, told) = (Vec::new(), if quiet { Told::All } else { Told::NotYet });
    *child.inherited.lock() = Some(Inherited { had: regions, also, lost, suspects, changes, told });
    if !quiet {
        parent.newborn.lock().push(Arc::downgrade(&child));
    }
    child.beacon.store(parent.beacon.load(Relaxed), Relaxed);
    let comm = parent.comm.lock().clone();
    *child.comm.lock() = comm;
    let guarded = parent.guarded.lock().clone();
    *child.guarded.lock() = guarded;
    match thread {
        Ok(thread) => {
            // Before its thread serves it, which removes a child that has ended.
            shared.procs.lock().push(Arc::clone(&child));
            thread.serve(shared, &child);
        }
        Err(error) => {
            let why = error.to_string();
            let doomed = Doomed { proc: child, why, seen: false, before: None, process: None, told: false };
            shared.unnamed.doomed_count.fetch_add(1, Relaxed);
            shared.unnamed.doomed.lock().push(doomed);
            shared.outbox.wake_control();
        }
    }
}

/// All changes before the forks of a process are known, or it has ended.
pub fn all_told(shared: &Shared, parent: &Proc, told: Told) {
    for child in parent.newborn.lock().drain(..).filter_map(|child| child.upgrade()) {
        if let Some(inherited) = &mut *child.inherited.lock() {
            inherited.told = told;
        }
    }
    shared.outbox.wake_control();
}

/// A page is touched before [`reconcile`]: a child without fork handlers. It counts as wiped if it
/// is in its parent now. A page that the child did not inherit has no fault.
pub fn lacks(shared: &Shared, proc: &Proc, page: Page) {
    let at = page.address();
    if proc.wiped.lock().meets(at, at + 4096) {
        proc.files.lock().cut(page.0, page.0 + 1);
        shared.in_parts(proc.id, PageRange { first: page, pages: 1 }, |core, part| core.disown(proc.id, part));
    }
}

/// The mappings of a child (the text of its smaps). `None` if it has ended.
pub fn mappings(proc: &Proc, pid: i32) -> Result<Option<String>, Broken> {
    match procfs::read_memory(pid, "smaps") {
        Ok(text) => Ok(Some(text)),
        Err(_) if proc.uffd.gone() => Ok(None),
        Err(error) => Err(Broken(format!("its mappings cannot be read after a fork: {error}"))),
    }
}

/// Waits until all changes of the parent before the fork are known. There may be no moment without
/// an unread event for long, as when other threads of the parent fork all the time. If the child
/// has what its table says, there were no such changes.
fn wait_until_told(proc: &Proc, pid: i32) -> Result<(), Broken> {
    let (begun, mut look_at) = (Instant::now(), LOOK_FIRST);
    let told = || proc.inherited.lock().as_ref().is_none_or(|all| all.told != Told::NotYet);
    while !told() && !proc.uffd.gone() {
        if begun.elapsed() > TOLD_WITHIN {
            return Err(Broken("its parent changed its memory all the time while it forked".into()));
        }
        if begun.elapsed() > look_at {
            look_at *= 2;
            let Some(text) = mappings(proc, pid)? else { return Ok(()) };
            let registered: Ranges = memfit_os::maps::registered(&text).into_iter().collect();
            if proc.inherited.lock().as_ref().is_none_or(|all| has_all(all, &registered)) {
                return Ok(());
            }
        }
        std::thread::sleep(TOLD_POLL);
    }
    Ok(())
}

/// Whether a child has registered what its parent had, and nothing else. It may lack what its
/// parent kept from it.
fn has_all(inherited: &Inherited, registered: &Ranges) -> bool {
    let kept = |(start, end): (u64, u64)| inherited.lost.gaps(start, end).is_empty();
    let lacks = |(start, end)| registered.gaps(start, end).into_iter().any(|range| !kept(range));
    let mut known = inherited.had.clone();
    inherited.also.iter().for_each(|(start, end)| known.add(start, end));
    let more = |(start, end)| !known.gaps(start, end).is_empty();
    inherited.changes.is_empty() && !inherited.had.iter().any(lacks) && !registered.iter().any(more)
}

/// The process of a child is known, and waits in its fork handler: what it has is found out before
/// it changes anything. Its parent went on when the FORK event was read. So a change of the parent
/// that is known now, of its address space or of what it gives to children, may be one from before
/// the fork or from after it; and one from before may be known later. The child's own mappings
/// decide. Called by the child's fault thread.
fn reconcile(shared: &Arc<Shared>, proc: &Arc<Proc>, pid: i32) -> Result<(), Broken> {
    wait_until_told(proc, pid)?;
    let decides = |inherited: &Inherited| {
        !inherited.changes.is_empty() || inherited.told == Told::Ended || proc.unsure.load(Relaxed)
    };
    if !proc.inherited.lock().as_ref().is_some_and(decides) {
        return match proc.inherited.lock().take() {
            Some(inherited) => check_suspects(proc, &inherited),
            None => Ok(()),
        };
    }
    let Some(text) = mappings(proc, pid)? else { return Ok(()) };
    reconcile_with(shared, proc, pid, &Marks::of(&text))
}

/// Fails if the child has memory that was taken out of its table, perhaps wrongly.
fn check_suspects(proc: &Proc, inherited: &Inherited) -> Result<(), Broken> {
    let mut suspects = inherited.suspects.iter().flat_map(|(start, end)| inherited.had.gaps(start, end));
    match suspects.find(|&(start, _)| proc.uffd.is_registered(start) == Some(true)) {
        Some((start, _)) => Err(Broken(fork::Lost::Unclear(start).to_string())),
        None => Ok(()),
    }
}

/// What the mappings of a child show, as at the fork.
pub struct Marks {
    pub registered: Ranges,
    /// What reads as zeros in a child.
    pub wiped: Vec<(u64, u64)>,
}

impl Marks {
    /// From the text of its smaps.
    pub fn of(text: &str) -> Marks {
        let registered = memfit_os::maps::registered(text).into_iter().collect();
        Marks { registered, wiped: wiped_in_children(text) }
    }
}

/// As [`reconcile`], once all changes are known.
pub fn reconcile_with(shared: &Arc<Shared>, proc: &Arc<Proc>, pid: i32, marks: &Marks) -> Result<(), Broken> {
    let Some(inherited) = proc.inherited.lock().take() else { return Ok(()) };
    check_suspects(proc, &inherited)?;
    let ended = inherited.told == Told::Ended;
    let Marks { registered, wiped } = marks;
    let Inherited { mut had, changes, lost, .. } = inherited;
    let mut made = Vec::new();
    if !changes.is_empty() {
        // Memory that has grown is in no region, but has pages.
        let pages = |core: &mut Core, part| core.pages(proc.id, part).into_iter().map(|(page, _)| page.address());
        for (start, end) in changes.iter().flat_map(|change| change.touches()) {
            let range = PageRange::from_addresses(start, end);
            shared.in_parts(proc.id, range, |core, part| pages(core, part).for_each(|at| had.add(at, at + 4096)));
        }
    }
    let missing = fork_changes::missing(&lost, registered, &changes);
    missing.iter().for_each(|(start, end)| _ = had.cut(start, end));
    if !changes.is_empty() {
        let pagemap = Pagemap::open(pid).map_err(|error| Broken(format!("its memory cannot be looked at: {error}")))?;
        let touched = |at, _| pagemap.is_present(at).unwrap_or(false);
        made = with_core(shared, |core| fork::apply_made(core, proc.id, &changes, &had, registered, touched))?;
        let changes = changes.iter().zip(&made).filter(|&(_, made)| *made);
        changes.for_each(|(change, _)| proc.files.lock().change(*change));
    }
    if let Some(at) = fork_changes::lacks(&changes, &made, &had, registered).filter(|_| ended) {
        return Err(Broken(format!("its parent ended while another thread changed its memory, perhaps at {at:#x}")));
    }
    // Now that all is where the child has it.
    let gaps = registered.gaps(0, ADDRESSES);
    for &(start, end) in gaps.iter().chain(wiped) {
        let range = PageRange::from_addresses(start, end);
        shared.in_parts(proc.id, range, |core, part| core.disown(proc.id, part));
        proc.files.lock().cut(start / 4096, end.div_ceil(4096));
    }
    // For a child of this one that is made before it is attached.
    gaps.into_iter().for_each(|(start, end)| _ = proc.regions.lock().cut(start, end));
    *proc.wiped.lock() = wiped.iter().copied().collect();
    proc.unsure.store(false, Relaxed);
    Ok(())
}

/// A fork child is attached: what its table says of ranges that it did not inherit, or has replaced
/// since, must not be believed. What it inherited is still registered. False if it changes its
/// address space all the time.
pub fn confirm(shared: &Arc<Shared>, proc: &Arc<Proc>, pid: i32) -> bool {
    for _ in 0..100 {
        let io = proc.io.lock();
        let Ok(text) = procfs::read_memory(pid, "smaps") else { return false };
        if proc.removed.load(Relaxed) {
            return false;
        }
        // An unread event would move or unmap what the table still has elsewhere.
        if proc.event_pending() {
            drop(io);
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let registered: Ranges = memfit_os::maps::registered(&text).into_iter().collect();
        let gaps = registered.gaps(0, ADDRESSES);
        for &(start, end) in &gaps {
            proc.files.lock().cut(start / 4096, end.div_ceil(4096));
        }
        for (start, end) in gaps {
            let gap = PageRange::from_addresses(start, end);
            shared.in_parts(proc.id, gap, |core, part| core.disown(proc.id, part));
        }
        let mut own = registered;
        for (first, end) in proc.files.lock().shared_pages() {
            own.cut(first * 4096, end * 4096);
        }
        *proc.regions.lock() = own;
        return true;
    }
    false
}
