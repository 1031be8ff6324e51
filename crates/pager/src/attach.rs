//! The life of a paged process: from the request to its stub until its memory is gone.

use crate::adopt;
use crate::clients::{Client, ATTACHING, IDLE, MANAGED, REFUSED};
use crate::control::Desk;
use crate::detach;
use crate::family::Family;
use crate::fault;
use crate::fork_children;
use crate::forks::{self, Expected};
use crate::leases;
use crate::locks::Lock;
use crate::mutant::{off, Rule};
use crate::ownership;
use crate::proc::{send_command, slot_offset, Broken, Identity, Proc, DOORBELL_BYTES};
use crate::room;
use crate::state::Shared;
use memfit_core::driver::fork_changes::Told;
use memfit_core::PageRange;
use memfit_os::event::EventFd;
use memfit_os::maps::{Maps, Pagemap};
use memfit_os::memory::Segment;
use memfit_os::uffd::{self, Uffd};
use memfit_os::{procfs, proctree, seqpacket};
use memfit_wire::{Command, FromStub, ANNOUNCE_FORKS, ATTACH, LEND, MAPS, PAGEMAP, SERVED, WITH_DEVICE, WITH_UFFD};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, OnceLock};
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
        leases::make_room(&desk.shared);
        if !desk.shared.room_for_paged() {
            return Err(room::full());
        }
    }
    let slots = (desk.shared.budget.sizes.staging / 4096) as usize;
    let segment = Arc::new(Segment::create(slot_offset(slots as u32))?);
    if desk.config.lock_pool {
        segment.lock().map_err(|error| other(format!("--lock-pool: its staging: {error}")))?;
    }
    let fd = segment.as_fd().try_clone_to_owned()?;
    let known = known.map(|proc| proc.uffd.as_fd().try_clone_to_owned()).transpose()?;
    if client.stage.compare_exchange(IDLE, ATTACHING, SeqCst, SeqCst).is_err() {
        // It is being detached.
        return Ok(());
    }
    let mut command = Command { kind: ATTACH, segment_bytes: segment.bytes() as u64, ..Command::default() };
    if let Some(uffd) = &known {
        command.flags = WITH_UFFD;
        fork_children::lend(client, uffd.as_fd());
    } else if let Some(device) = &desk.device {
        command.flags = WITH_DEVICE;
        lend(client, LEND, device.as_fd());
    }
    if !desk.fork_events {
        command.flags |= ANNOUNCE_FORKS;
    }
    if off(Rule::Window) {
        command.flags |= memfit_wire::TRUST_MOVE;
    }
    *client.segment.lock() = Some(segment);
    send_command(&client.socket, &command, Some(fd.as_fd()));
    Ok(())
}

fn lend(client: &Client, kind: u32, fd: BorrowedFd<'_>) -> bool {
    send_command(&client.socket, &Command { kind, ..Command::default() }, Some(fd))
}

/// Begins to page a process whose stub is ready. A fork child is served once all changes are known
/// that its parent made meanwhile.
pub fn manage_ready(desk: &Arc<Desk>, client: &Arc<Client>) {
    let mut ready = client.ready.lock();
    if ready.is_none() {
        return;
    }
    let expected = client.expected.lock().clone();
    let waits = |since| expected.as_ref().is_some_and(|expected| expected.waits_for_parent(since));
    let Some((message, fd, _)) = ready.take_if(|(_, _, since)| !waits(*since)) else { return };
    drop(ready);
    match manage(desk, client, &message, fd) {
        Ok(()) => client.stage.store(MANAGED, Relaxed),
        // Its place in the core may be taken back already: see `manage`.
        Err(error) if expected.is_some() => cannot_inherit(&desk.shared, client, &error.to_string()),
        Err(error) => not_managed(desk, client, &error),
    }
}

/// The stub is ready, but its process cannot be paged.
pub fn not_managed(desk: &Arc<Desk>, client: &Arc<Client>, error: &std::io::Error) {
    if client.expected.lock().is_some() {
        return cannot_inherit(&desk.shared, client, &error.to_string());
    }
    client.stage.store(REFUSED, Relaxed);
    if !desk.fork_events {
        // Its announced forks wait for an answer.
        send_command(&client.socket, &Command { kind: SERVED, ..Command::default() }, None);
    }
    detach::refused(desk, client, error);
}

/// A fork child cannot be served, so it cannot go on with right data: kills it.
pub fn cannot_inherit(shared: &Shared, client: &Client, why: &str) {
    client.stage.store(REFUSED, Relaxed);
    if client.rss.read().is_ok_and(|rss| rss.mapped > 0) {
        shared.outbox.announce(format!("killed process {} ({}): {why}", client.pid, client.comm));
    }
    seqpacket::kill_peer(client.socket.as_fd());
}

/// The stub is ready: gives the process its place in the core and its fault thread.
fn manage(desk: &Arc<Desk>, client: &Arc<Client>, message: &FromStub, fd: Option<OwnedFd>) -> std::io::Result<()> {
    let shared = &desk.shared;
    let segment = client.segment.lock().clone().ok_or_else(|| std::io::Error::other("no segment"))?;
    let (identity, mut later_maps) = identity(client, message, &segment)?;
    let mut take_over = |uffd: &Uffd| {
        register_own(uffd, message)?;
        let proved = ownership::prove(uffd, message.window[0], [&mut identity.maps.lock(), &mut later_maps]);
        // After an exec the process has other memory.
        proved.map_err(|error| if uffd.gone() { gone() } else { error })?;
        let lent = lend(client, PAGEMAP, identity.pagemap.as_fd());
        if shared.takes_read_only() && !client.loaded {
            lend(client, MAPS, later_maps.as_fd());
        }
        // Its stub has ended.
        lent.then_some(()).ok_or_else(gone)
    };
    // The userfaultfd of a fork child came with its parent's event.
    let known = client.proc.lock().clone();
    let expected = client.expected.lock().clone();
    let (proc, new_thread) = match known {
        Some(proc) => {
            take_over(&proc.uffd)?;
            (proc, None)
        }
        None => {
            // Before the userfaultfd reports forks: they wait until somebody reads that.
            let thread = FaultThread::make()?;
            let fd = fd.ok_or_else(|| std::io::Error::other("the stub sent no descriptor"))?;
            (new_proc(desk, expected.as_ref(), fd, take_over)?, Some(thread))
        }
    };
    let fresh = new_thread.is_some();
    if message.beacon != 0 {
        proc.beacon.store(message.beacon, Relaxed);
    }
    proc.doorbell.store(message.doorbell, Relaxed);
    shared.lock().segments.insert(proc.area, segment);
    *proc.comm.lock() = client.comm.clone();
    match &expected {
        Some(expected) => forks::inherit(shared, &proc, &identity, expected).map_err(|Broken(why)| other(why))?,
        None if !fresh && !fork_children::confirm(shared, &proc, client.pid) => {
            return Err(other("its address space could not be confirmed after fork".into()));
        }
        None if fresh && !desk.fork_events => forks::kept_by_program(&proc, client.pid),
        None => {}
    }
    proc.network.store(procfs::network(client.pid), Relaxed);
    let _ = proc.identity.set(identity);
    proc.bare.store(false, Relaxed);
    *client.proc.lock() = Some(Arc::clone(&proc));
    // From here on its place in the core is the process's, not the expected child's.
    *client.expected.lock() = None;
    if let Some(thread) = new_thread {
        shared.procs.lock().push(Arc::clone(&proc));
        thread.serve(shared, &proc);
    }
    if !desk.fork_events {
        send_command(&client.socket, &Command { kind: SERVED, flags: ANNOUNCE_FORKS, ..Command::default() }, None);
    }
    if shared.budget.is_tight() {
        adopt::rescan(shared, &proc, adopt::Extent::Grown);
        shared.budget.want_reclaim();
    } else {
        adopt::stacks(shared, &proc);
    }
    Ok(())
}

/// A process with the userfaultfd that its stub sent, after `take_over` of that.
fn new_proc(
    desk: &Desk,
    expected: Option<&Arc<Expected>>,
    fd: OwnedFd,
    take_over: impl FnOnce(&Uffd) -> std::io::Result<()>,
) -> std::io::Result<Arc<Proc>> {
    let shared = &desk.shared;
    let kick = Arc::new(EventFd::new()?);
    let uffd = Uffd::received(fd)?;
    let forks = if desk.fork_events { uffd::EVENT_FORK } else { 0 };
    let accesses = if shared.uses_accessed_bits() { uffd::ACCESSES } else { 0 };
    uffd.handshake(uffd::REQUIRED | forks | accesses)?;
    take_over(&uffd)?;
    // Nothing fails from here on that would leave the number taken.
    let family = expected.map_or_else(Family::default, |e| e.family.of_child());
    let (id, area) = expected.map(|e| (e.id, e.area)).unwrap_or_else(|| {
        let mut state = shared.lock();
        let numbers = state.core.add_process((shared.budget.sizes.staging / 4096) as u32);
        shared.apply_effects(state);
        numbers
    });
    Ok(Arc::new(Proc::new(id, area, uffd, kick, family)))
}

/// Registers what the stub has mapped for the pager.
fn register_own(uffd: &Uffd, message: &FromStub) -> std::io::Result<()> {
    let (start, end) = ownership::checked_window(message.window)?;
    uffd.probe_at(start);
    register(uffd, start, end - start)?;
    if message.beacon != 0 {
        register(uffd, message.beacon, 4096)?;
    }
    if message.doorbell != 0 {
        register(uffd, message.doorbell, DOORBELL_BYTES)?;
    }
    Ok(())
}

/// When the memory is gone the kernel returns ENOMEM here, and ESRCH everywhere else. The size of
/// the process does not show it: after an exec the process has other memory.
fn register(uffd: &Uffd, start: u64, bytes: u64) -> std::io::Result<()> {
    uffd.register(start, bytes).map_err(|error| match uffd.gone() {
        true => gone(),
        false => error,
    })
}

pub fn other(why: String) -> std::io::Error {
    std::io::Error::other(why)
}

fn gone() -> std::io::Error {
    std::io::Error::from_raw_os_error(libc::ESRCH)
}

/// What is known of the process that has the client's pid now, and its mappings once more, opened
/// last: see [`ownership`].
fn identity(client: &Client, message: &FromStub, segment: &Arc<Segment>) -> std::io::Result<(Identity, Maps)> {
    let pages = |at: u64, bytes: u64| (at, if at == 0 { 0 } else { at.saturating_add(bytes) });
    let ranges = [message.stack, message.segment, message.window, message.image].map(|[s, e]| (s, e));
    let maps = Maps::open(client.pid)?;
    let identity = Identity {
        pid: client.pid,
        start_ticks: proctree::read_stat(client.pid).ok_or_else(gone)?.start_ticks,
        tid: client.tid,
        socket: Arc::clone(&client.socket),
        segment: Arc::clone(segment),
        pagemap: Pagemap::open(client.pid)?,
        maps: Lock::new(maps),
        adopted: AtomicBool::new(false),
        droppable: OnceLock::new(),
        reservation: AtomicU64::new(message.reservation[0]),
        windows: AtomicU32::new(1),
        forbidden: ranges
            .into_iter()
            .chain([pages(message.beacon, 4096), pages(message.doorbell, DOORBELL_BYTES)])
            .collect(),
        arguments: procfs::arguments(client.pid),
        loaded: client.loaded,
    };
    Ok((identity, Maps::open(client.pid)?))
}

/// A thread that waits for the process whose faults and events it will serve.
pub struct FaultThread(Sender<(Arc<Shared>, Arc<Proc>)>);

impl FaultThread {
    /// Makes one. If it gets no process, it ends when this is dropped.
    pub fn make() -> std::io::Result<FaultThread> {
        let (process, told) = channel();
        let body = move || {
            if let Ok((shared, proc)) = told.recv() {
                fault::run(shared, proc);
            }
        };
        let thread = std::thread::Builder::new().name("fault".into()).stack_size(256 << 10);
        thread.spawn(body).map_err(|error| room::no_thread(&error))?;
        Ok(FaultThread(process))
    }

    /// Has it serve a process.
    pub fn serve(self, shared: &Arc<Shared>, proc: &Arc<Proc>) {
        // It waits for this, so it receives it.
        let _ = self.0.send((Arc::clone(shared), Arc::clone(proc)));
    }
}

/// The process's memory is gone: frees everything that belongs to it.
pub fn remove_process(shared: &Arc<Shared>, proc: &Arc<Proc>) {
    proc.dead.store(true, Relaxed);
    if proc.is_out_of_reach() {
        shared.warn(format!(
            "a fork child of {} has ended: its parent has entered another network namespace unseen, from where a child \
             cannot reach the pager",
            proc.comm.lock()
        ));
    }
    fork_children::all_told(shared, proc, Told::Ended);
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
        if !relative.family.shares() {
            state.core.shares_nothing(relative.id);
        }
    }
    let nothing_swapped = state.core.swapped_total() == 0;
    shared.apply_effects(state);
    if let Some(swap) = shared.swap.as_ref().filter(|_| nothing_swapped) {
        swap.forget_copies();
    }
    shared.budget.made_progress();
    shared.outbox.wake_control();
}

/// `/dev/userfaultfd` as a descriptor to lend.
pub fn open_device() -> Option<OwnedFd> {
    uffd::device().ok().map(OwnedFd::from)
}
