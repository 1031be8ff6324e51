//! Shared read-only mappings of files: leases, and how such a mapping becomes the file again.
//!
//! A shared mapping shows each change of its file at once. The pager's pages cannot. So the pager
//! fills such a mapping only while it has a read lease on the file: nobody has the file open for
//! writing then. Who opens it for writing, or truncates it, waits in the kernel, and the kernel
//! tells the pager. The pager has the stub of each process map the file itself in place of the
//! pages, and gives the lease back. Only then the other goes on.
//!
//! The kernel waits for `fs.lease-break-time` (45 s). If a stub thread cannot run for so long,
//! since a debugger holds it, or if a fork child has none, its process must not go on: it is killed
//! two seconds before that. A process that only a signal has stopped is none of these.
//!
//! For one process, in this order:
//!
//! 1. The stub keeps out calls that change mappings ([`HOLD`]). None is under way then, so all
//!    their events are in the queue.
//! 2. The pager waits until no event is unread. Its table of mappings is exact then.
//! 3. The stub maps the file, part by part ([`REMAP`]). For the kernel that unmaps the pages: the
//!    pager reads the event, and threads that wait for a page go on.
//! 4. Such calls go on ([`RELEASE`]).

use crate::clients::Client;
use crate::control::Desk;
use crate::files::{FilePart, MappedFile};
use crate::locks::{rank, Lock};
use crate::proc::{send_command, Proc};
use crate::stopped;
use memfit_os::lease::{self, Lease, Waiter};
use memfit_os::maps;
use memfit_os::procfs::{self, Hold};
use memfit_wire::{Command, FromStub, HOLD, PAGE_BYTES, RELEASE, REMAP};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Time between two polls, and after [`SLOW`].
const POLL: Duration = Duration::from_micros(200);
const SLOW_POLL: Duration = Duration::from_millis(10);
/// A stub that has not answered for this long may be stopped.
const SLOW: Duration = Duration::from_millis(20);
/// Time between two checks of all leases, should a signal be lost.
const CHECKED_EACH: Duration = Duration::from_secs(1);
/// Processes are killed this long before the kernel takes a lease back.
const MARGIN: Duration = Duration::from_secs(2);
/// Without that much time for the processes, no lease is taken.
const LEAST_TIME: Duration = Duration::from_secs(3);
/// PROT_WRITE: to the kernel the pager's pages are writable.
const WRITE: u8 = 2;

/// The lease on a file.
#[derive(Debug, Default)]
pub struct Leased {
    lease: Lock<Option<Lease>, { rank::LEASE }>,
    /// It is about to be given back: no mapping is added any more.
    ends: AtomicBool,
}

impl Leased {
    fn ends(&self) -> bool {
        self.ends.load(SeqCst)
    }

    /// Whether a mapping that is known by now may stay: the lease is held, and whoever gives it
    /// back will see the mapping.
    pub fn holds(&self) -> bool {
        let lease = self.lease.lock();
        lease.is_some() && !self.ends()
    }

    fn is_wanted(&self) -> bool {
        self.lease.lock().as_ref().is_some_and(Lease::is_wanted)
    }
}

/// What the stub of a client has answered.
#[derive(Debug, Default)]
pub struct Answers {
    /// [`NOT_ASKED`], [`ASKED`] or [`HOLDS`].
    hold: AtomicU32,
    /// [`UNANSWERED`] or the errno of the last REMAP.
    remap: AtomicU32,
}

const NOT_ASKED: u32 = 0;
const ASKED: u32 = 1;
const HOLDS: u32 = 2;
const UNANSWERED: u32 = u32::MAX;

impl Answers {
    /// The stub has answered HOLD or REMAP.
    pub fn note(&self, message: &FromStub) {
        match message.kind {
            HOLD => self.hold.store(if message.error == 0 { HOLDS } else { NOT_ASKED }, SeqCst),
            REMAP => self.remap.store(message.error, SeqCst),
            _ => {}
        }
    }
}

/// Takes a lease on a file that is not leased yet. `None` if the kernel is to map the file.
pub fn take(desk: &Arc<Desk>, file: &MappedFile) -> Option<()> {
    patience()?;
    let waiter = (*desk.shared.files.waiter.get_or_init(|| start(desk)))?;
    let mut lease = file.leased.lease.lock();
    if file.leased.ends() {
        return None;
    }
    if lease.is_none() {
        *lease = Some(Lease::take(file.file.as_fd(), waiter).ok()?);
    }
    Some(())
}

/// How long the processes may take. `None` if that is too short.
fn patience() -> Option<Duration> {
    lease::break_time()?.checked_sub(MARGIN).filter(|time| *time >= LEAST_TIME)
}

/// Starts the thread that is told of wanted leases. Its id.
fn start(desk: &Arc<Desk>) -> Option<i32> {
    let (tell, told) = mpsc::channel();
    let desk = Arc::downgrade(desk);
    let body = move || {
        let waiter = Waiter::new();
        let _ = tell.send(waiter.id());
        while watch(&desk) {
            waiter.wait(CHECKED_EACH);
        }
    };
    std::thread::Builder::new().name("leases".into()).stack_size(128 << 10).spawn(body).ok()?;
    told.recv().ok()
}

/// Gives wanted leases back, each in a thread of its own: a stopped process delays only its own
/// files. False at the end of the run.
fn watch(desk: &Weak<Desk>) -> bool {
    let Some(desk) = desk.upgrade() else { return false };
    for file in desk.shared.files.all() {
        if file.leased.is_wanted() && !file.leased.ends.swap(true, SeqCst) {
            let (desk, at_hand) = (Arc::clone(&desk), Arc::clone(&file));
            let body = move || give_back(&desk, &at_hand);
            let begun = std::thread::Builder::new().name("lease".into()).stack_size(256 << 10).spawn(body);
            if begun.is_err() {
                // Again at the next check.
                file.leased.ends.store(false, SeqCst);
            }
        }
    }
    true
}

/// All mappings of the file become the kernel's, then somebody may change it.
fn give_back(desk: &Desk, file: &Arc<MappedFile>) {
    let begun = Instant::now();
    let until = begun + patience().unwrap_or_default();
    let mut asked: Vec<Arc<Client>> = Vec::new();
    loop {
        let procs: Vec<Arc<Proc>> = desk.shared.procs.lock().clone();
        let with: Vec<_> = procs.iter().filter(|proc| maps_shared(proc, Some(file))).collect();
        if with.is_empty() {
            break;
        }
        let late = Instant::now() > until;
        for proc in with {
            let client = client_of(desk, proc);
            let result = client.as_ref().map_or(Ok(false), |client| step(desk, client, proc, Some(file)));
            if begun.elapsed() > SLOW && proc.pid().is_some_and(|pid| procfs::hold(pid) == Some(Hold::Stopped)) {
                stopped::run_stub(&desk.shared, proc);
            }
            asked.extend(client.filter(|client| !asked.iter().any(|known| Arc::ptr_eq(known, client))));
            let why = match result {
                Ok(false) if late => {
                    "somebody wants to change a file that it maps, and its mapping cannot be renewed: a \
                                      debugger holds it, or it has no thread of memfit"
                        .into()
                }
                Ok(_) => continue,
                Err(why) => why,
            };
            proc.stop(&desk.shared, &why);
        }
        std::thread::sleep(if begun.elapsed() < SLOW { POLL } else { SLOW_POLL });
    }
    asked.iter().for_each(|client| finish(desk, client, until));
    let mut lease = file.leased.lease.lock();
    *lease = None;
    file.leased.ends.store(false, SeqCst);
}

/// All shared mappings of files of a process become the kernel's: its stub thread is about to end.
/// False if that does not succeed in time; the mappings stay as they are then.
pub fn give_up(desk: &Desk, client: &Client, proc: &Proc) -> bool {
    let until = Instant::now() + LEAST_TIME;
    while maps_shared(proc, None) {
        if !matches!(step(desk, client, proc, None), Ok(done) if done || Instant::now() < until) {
            break;
        }
        std::thread::sleep(POLL);
    }
    finish(desk, client, until);
    !maps_shared(proc, None)
}

/// Whether a living process has a shared mapping of this file, or of any.
fn maps_shared(proc: &Proc, file: Option<&Arc<MappedFile>>) -> bool {
    !proc.removed.load(Relaxed) && !proc.files.lock().shared(file).is_empty() && !proc.uffd.gone()
}

/// The client with the stub thread of a process.
fn client_of(desk: &Desk, proc: &Arc<Proc>) -> Option<Arc<Client>> {
    let clients = desk.clients.lock().clone();
    let is_it = |client: &&Arc<Client>| client.proc.lock().as_ref().is_some_and(|of| Arc::ptr_eq(of, proc));
    clients.iter().rfind(is_it).filter(|client| client.dormant.is_none()).cloned()
}

/// Does what can be done now. True if the mappings are the kernel's; an error if they cannot be.
fn step(desk: &Desk, client: &Client, proc: &Proc, file: Option<&Arc<MappedFile>>) -> Result<bool, String> {
    let _one = desk.remaps.lock();
    match client.answers.hold.load(SeqCst) {
        NOT_ASKED => {
            client.answers.hold.store(ASKED, SeqCst);
            if !send_command(&client.socket, &Command { kind: HOLD, ..Command::default() }, None) {
                client.answers.hold.store(NOT_ASKED, SeqCst);
            }
            Ok(false)
        }
        HOLDS => {
            let Some(parts) = shared_parts(proc, file) else { return Ok(false) };
            let result = parts.iter().try_for_each(|part| remap(client, proc, part));
            release(client);
            result.map(|()| true)
        }
        _ => Ok(false),
    }
}

/// The parts of the mappings, exactly. `None` while an event is unread.
fn shared_parts(proc: &Proc, file: Option<&Arc<MappedFile>>) -> Option<Vec<FilePart>> {
    let _io = proc.io.lock();
    (!proc.event_pending()).then(|| proc.files.lock().shared(file))
}

/// Has the stub map the file in place of a part. The stub keeps out calls that change mappings.
fn remap(client: &Client, proc: &Proc, part: &FilePart) -> Result<(), String> {
    let page_bytes = PAGE_BYTES as u64;
    let (first, last) = (part.first * page_bytes, part.end * page_bytes);
    let failed = |error: std::io::Error| format!("somebody wants to change a file that it maps: {error}");
    let text = procfs::read_memory(client.pid, "maps").map_err(failed)?;
    for (start, end, access) in maps::within(&text, first, last) {
        let command = Command {
            kind: REMAP,
            flags: u32::from(access & !WRITE),
            range: [start, end],
            offset: part.index * page_bytes + start - first,
            ..Command::default()
        };
        client.answers.remap.store(UNANSWERED, SeqCst);
        let fd = part.file.file.as_fd().try_clone_to_owned().map_err(failed)?;
        send_command(&client.socket, &command, Some(&fd));
        let errno = loop {
            match client.answers.remap.load(SeqCst) {
                // The process has ended, and with it the mapping.
                UNANSWERED if client.gone.load(Relaxed) => return Ok(()),
                UNANSWERED => std::thread::sleep(POLL / 4),
                errno => break errno,
            }
        };
        if errno != 0 {
            return Err(failed(std::io::Error::from_raw_os_error(errno as i32)));
        }
        proc.files.lock().cut(start / page_bytes, end / page_bytes);
    }
    // What is left of it is no mapping any more.
    proc.files.lock().cut(part.first, part.end);
    Ok(())
}

fn release(client: &Client) {
    client.answers.hold.store(NOT_ASKED, SeqCst);
    send_command(&client.socket, &Command { kind: RELEASE, ..Command::default() }, None);
}

/// The stub keeps nothing out any more. It may have been asked to when there was nothing left to
/// do.
fn finish(desk: &Desk, client: &Client, until: Instant) {
    while !client.gone.load(Relaxed) && Instant::now() < until {
        let one = desk.remaps.lock();
        match client.answers.hold.load(SeqCst) {
            NOT_ASKED => return,
            HOLDS => return release(client),
            _ => drop(one),
        }
        std::thread::sleep(POLL);
    }
}
