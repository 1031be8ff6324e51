//! Shared read-only mappings of files: leases, and how such a mapping becomes the file again.
//!
//! A shared mapping shows each change of its file at once. The pager's pages cannot. So the pager
//! fills such a mapping only while it has a read lease on the file: nobody has the file open for
//! writing then. Whoever opens it for writing, or truncates it by its path, waits in the kernel,
//! and the kernel tells the pager. The pager has the stub of each process map the file itself in
//! place of the pages, and gives the lease back. Only then the writer continues.
//!
//! The kernel waits for `fs.lease-break-time` (45 s). If a stub thread cannot run for so long,
//! since a debugger holds it, or if a fork child has none, its process must not go on: it is killed
//! two seconds before that. A process that only a signal has stopped is none of these.
//!
//! For one process, in this order:
//!
//! 1. The stub keeps out calls of libc that change mappings ([`HOLD`]). None is under way then, so
//!    all their events are in the queue. Calls inside of libc are not seen: they change libc's own
//!    mappings.
//! 2. The pager waits until no event is unread. Its table of mappings is exact then.
//! 3. The stub maps the file, part by part ([`REMAP`]). For the kernel that unmaps the pages: the
//!    pager reads the event, and threads that wait for a page go on.
//! 4. Such calls go on ([`RELEASE`]).
//!
//! No thread waits for an answer of a stub: each step is tried again until it is done.

use crate::clients::Client;
use crate::control::Desk;
use crate::files::MappedFile;
use crate::locks::{rank, Lock};
use crate::proc::{send_command, Proc};
use crate::state::Shared;
use crate::stopped;
use memfit_core::PAGE_BYTES;
use memfit_os::lease::{self, Lease, Waiter};
use memfit_os::maps;
use memfit_os::procfs::{self, Hold};
use memfit_wire::{Command, FromStub, HOLD, RELEASE, REMAP};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
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
pub const LEAST_TIME: Duration = Duration::from_secs(3);
/// How long the pager waits for a stub that is to keep out nothing any more.
const RELEASED_WITHIN: Duration = Duration::from_secs(1);
/// Time after a fork within which the pager knows the child's pid.
const NAMED_WITHIN: Duration = Duration::from_secs(10);
/// Most files in the page cache, before some that no process maps are given up.
const UNMAPPED_MOST: usize = 64;
/// PROT_WRITE, which a mapping of the memfd can have against the will of the stub.
const WRITE: u8 = 2;

/// The lease on a file.
#[derive(Debug, Default)]
pub struct Leased(Lock<State, { rank::LEASE }>);

#[derive(Debug, Default)]
enum State {
    #[default]
    None,
    Held(Lease),
    /// It is about to be given back: no mapping is added any more.
    Ends(Lease),
    /// It was given back. Whoever maps the file later gets a new one.
    Ended,
}

impl Leased {
    /// Whether a mapping that is known by now may stay: the lease is held, and whoever gives it
    /// back will see the mapping.
    pub fn holds(&self) -> bool {
        matches!(*self.0.lock(), State::Held(_))
    }

    /// Begins to give the lease back if `may` holds: no mapping is added any more. False if it does
    /// not, or that has begun.
    fn begins_to_end(&self, may: impl Fn(&Lease) -> bool) -> bool {
        let mut state = self.0.lock();
        match std::mem::take(&mut *state) {
            State::Held(lease) if may(&lease) => {
                *state = State::Ends(lease);
                true
            }
            other => {
                *state = other;
                false
            }
        }
    }

    fn goes_on(&self) {
        let mut state = self.0.lock();
        *state = match std::mem::take(&mut *state) {
            State::Ends(lease) => State::Held(lease),
            other => other,
        };
    }

    fn end(&self) {
        *self.0.lock() = State::Ended;
    }

    /// Whether it was given back.
    pub fn has_ended(&self) -> bool {
        matches!(*self.0.lock(), State::Ended)
    }

    #[cfg(test)]
    pub fn set(&self, lease: Lease) {
        *self.0.lock() = State::Held(lease);
    }
}

/// What the stub of a client has answered.
#[derive(Debug, Default)]
pub struct Answers {
    /// [`UNANSWERED`] or the errno.
    hold: AtomicU32,
    remap: AtomicU32,
}

const UNANSWERED: u32 = u32::MAX;

impl Answers {
    /// The stub has answered HOLD or REMAP.
    pub fn note(&self, message: &FromStub) {
        match message.kind {
            HOLD => self.hold.store(message.error, SeqCst),
            REMAP => self.remap.store(message.error, SeqCst),
            _ => {}
        }
    }
}

/// How far the stub of a client is.
#[derive(Debug, Default)]
pub enum Progress {
    /// Nothing was asked.
    #[default]
    Idle,
    /// HOLD was sent.
    Asked,
    /// The stub keeps calls out, and has these pieces to map. `sent`: REMAP of the last one was
    /// sent.
    Holds { pieces: Vec<Piece>, sent: bool },
}

/// A piece of a mapping that has one access (PROT_*).
#[derive(Debug)]
pub struct Piece {
    start: u64,
    end: u64,
    access: u32,
    file: Arc<MappedFile>,
    /// Byte of the file.
    offset: u64,
}

/// Takes a lease on a file that is not leased yet. `None` if the kernel is to map the file.
pub fn take(desk: &Arc<Desk>, file: &MappedFile) -> Option<()> {
    patience()?;
    let waiter = (*desk.shared.files.waiter.get_or_init(|| start(desk)))?;
    let mut state = file.leased.0.lock();
    match *state {
        State::Ends(_) | State::Ended => return None,
        State::Held(_) => {}
        State::None => *state = State::Held(Lease::take(file.file.as_fd(), waiter).ok()?),
    }
    Some(())
}

/// How long the processes may take. `None` if that is too short.
fn patience() -> Option<Duration> {
    lease::break_time()?.checked_sub(MARGIN).filter(|time| *time >= LEAST_TIME)
}

/// The same for a lease that is held, however short it is.
fn time_to_give_back(limit: Duration) -> Duration {
    limit.saturating_sub(MARGIN).max(limit / 2)
}

/// Starts the thread that is told of wanted leases. Its id.
fn start(desk: &Arc<Desk>) -> Option<i32> {
    let (tell, told) = mpsc::channel();
    let desk = Arc::downgrade(desk);
    let body = move || {
        let (waiter, mut late) = (Waiter::new(), Vec::new());
        let _ = tell.send(waiter.id());
        while watch(&desk, &mut late) {
            waiter.wait(CHECKED_EACH);
        }
    };
    std::thread::Builder::new().name("leases".into()).stack_size(128 << 10).spawn(body).ok()?;
    told.recv().ok()
}

/// Gives wanted leases back, each in a thread of its own: a stopped process delays only its own
/// files. If no thread can be made, in this one, after the others; `late`: who is still to be
/// released then. False at the end of the run.
fn watch(desk: &Weak<Desk>, late: &mut Vec<Asked>) -> bool {
    let Some(desk) = desk.upgrade() else { return false };
    let mut wanted = desk.shared.files.all();
    wanted.retain(|file| file.leased.begins_to_end(Lease::is_wanted));
    let begun = Instant::now();
    let in_thread = |file: &Arc<MappedFile>| {
        let (desk, file) = (Arc::clone(&desk), Arc::clone(file));
        let body = move || release_all(give_back(&desk, &file, begun));
        std::thread::Builder::new().name("lease".into()).stack_size(256 << 10).spawn(body).is_ok()
    };
    wanted.retain(|file| !in_thread(file));
    late.extend(wanted.iter().flat_map(|file| give_back(&desk, file, begun)));
    late.retain(|asked| !released(&asked.client));
    // The space of a deleted file becomes free only when nobody has it open.
    let deleted = |file: &Arc<MappedFile>| file.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0);
    let mut files = desk.shared.cache.files();
    files.retain(|file| deleted(file) && all_with(&desk.shared, file).is_empty());
    files.iter().for_each(|file| give_up_unmapped(&desk.shared, file));
    true
}

/// All mappings of the file become the kernel's, then somebody may change it, who waits since
/// `begun`. Returns who is to be released.
fn give_back(desk: &Desk, file: &Arc<MappedFile>, begun: Instant) -> Vec<Asked> {
    // The limit may be shorter than it was when the lease was taken.
    let until = begun + lease::break_time().map_or(LEAST_TIME, time_to_give_back);
    let mut asked: Vec<Asked> = Vec::new();
    loop {
        let with = all_with(&desk.shared, file);
        release_others(&mut asked, &with);
        if with.is_empty() {
            break;
        }
        for proc in with {
            let client = client_of(desk, &proc);
            let done = client.as_ref().map_or(Ok(false), |client| step(client, &proc, Some(file)));
            let new = client.filter(|client| !asked.iter().any(|known| Arc::ptr_eq(&known.client, client)));
            asked.extend(new.map(|client| Asked { client, proc: Arc::clone(&proc) }));
            if begun.elapsed() > SLOW && proc.pid().is_some_and(|pid| procfs::hold(pid) == Some(Hold::Stopped)) {
                stopped::run_stub(&desk.shared, &proc);
            }
            if Instant::now() > until && !matches!(done, Ok(true)) {
                let why = match done {
                    Err(error) => error.to_string(),
                    Ok(_) => "a debugger holds it, it was frozen, or it has no thread of memfit".into(),
                };
                let what = "somebody wants to change a file that it maps, and its mapping cannot be renewed";
                proc.stop(&desk.shared, &format!("{what}: {why}"));
            }
        }
        std::thread::sleep(if begun.elapsed() < SLOW { POLL } else { SLOW_POLL });
    }
    desk.shared.cache.forget(&desk.shared, file);
    file.leased.end();
    asked
}

/// Gives up files that no process maps, if there are many, or if descriptors are short.
pub fn make_room(shared: &Shared) {
    let files = shared.cache.files();
    let is_short = !shared.room_for_file();
    if files.len() <= UNMAPPED_MOST && !is_short {
        return;
    }
    let unmapped: Vec<_> = files.into_iter().filter(|file| all_with(shared, file).is_empty()).collect();
    // Those that came first go first.
    let most = if is_short { unmapped.len() / 2 } else { UNMAPPED_MOST };
    unmapped.iter().take(unmapped.len() - most.min(unmapped.len())).for_each(|file| give_up_unmapped(shared, file));
}

/// Gives a file up that no process maps.
fn give_up_unmapped(shared: &Shared, file: &Arc<MappedFile>) {
    if !file.leased.begins_to_end(|_| true) {
        if file.leased.has_ended() {
            shared.cache.remove(file);
        }
        return;
    }
    // A process may have mapped it meanwhile; from here on none does.
    if all_with(shared, file).is_empty() {
        shared.cache.forget(shared, file);
        file.leased.end();
    } else {
        file.leased.goes_on();
    }
}

/// A page of the page cache is not as it was read: kills the processes that map its file, and gives
/// the file up.
pub fn spoilt(shared: &Arc<Shared>, file: &Arc<MappedFile>) {
    if !file.leased.begins_to_end(|_| true) {
        return;
    }
    let (owned, bad) = (Arc::clone(shared), Arc::clone(file));
    let body = move || {
        let why = format!("it maps {}, and somebody has changed memfit's copy of that file", bad.name());
        let (begun, mut stopped) = (Instant::now(), Vec::new());
        loop {
            let mut with = all_with(&owned, &bad);
            if with.is_empty() {
                break;
            }
            // Of a new fork child the pid is not known yet. If it stays unknown, the run ends.
            with.retain(|proc| !stopped.iter().any(|known| Arc::ptr_eq(known, proc)));
            with.retain(|proc| proc.pid().is_some() || begun.elapsed() > NAMED_WITHIN);
            with.iter().for_each(|proc| _ = proc.stop(&owned, &why));
            stopped.append(&mut with);
            std::thread::sleep(SLOW_POLL);
        }
        owned.cache.forget(&owned, &bad);
        bad.leased.end();
    };
    if std::thread::Builder::new().name("spoilt".into()).stack_size(128 << 10).spawn(body).is_err() {
        shared.fatal(format!("somebody has changed memfit's copy of {}", file.name()));
    }
}

/// A stub that was frozen or stopped meanwhile answers when it goes on. It keeps calls out from
/// then until it is released.
fn release_all(mut asked: Vec<Asked>) {
    let begun = Instant::now();
    loop {
        asked.retain(|asked| !released(&asked.client));
        if asked.is_empty() {
            return;
        }
        std::thread::sleep(if begun.elapsed() < SLOW { POLL } else { SLOW_POLL });
    }
}

/// A client that was asked to keep calls out, and its process.
struct Asked {
    client: Arc<Client>,
    proc: Arc<Proc>,
}

/// Calls go on at once in the processes that do not map the file any more: the others may take as
/// long as the kernel waits.
fn release_others(asked: &mut Vec<Asked>, with: &[Arc<Proc>]) {
    asked.retain(|asked| with.iter().any(|proc| Arc::ptr_eq(proc, &asked.proc)) || !released(&asked.client));
}

/// All shared mappings of files of a process become the kernel's: its stub thread is about to end,
/// or to lose its rights.
/// What is left after that time stays as it is.
pub fn give_up(client: &Client, proc: &Proc, within: Duration) {
    let until = Instant::now() + within;
    while maps_shared(proc, None) && Instant::now() < until {
        let _ = step(client, proc, None);
        std::thread::sleep(POLL);
    }
    finish(client);
}

/// The processes with a shared mapping of a file. While the table of one is read, none of its forks
/// is half done; and a fork child is in the list before the fork ends. So the list is read again
/// until it has no new one.
fn all_with(shared: &Shared, file: &Arc<MappedFile>) -> Vec<Arc<Proc>> {
    let mut seen: Vec<Arc<Proc>> = Vec::new();
    loop {
        let procs: Vec<Arc<Proc>> = shared.procs.lock().clone();
        let new = |proc: &&Arc<Proc>| !seen.iter().any(|known| Arc::ptr_eq(known, proc));
        let new: Vec<Arc<Proc>> = procs.iter().filter(new).cloned().collect();
        if new.is_empty() {
            return Vec::new();
        }
        let with: Vec<Arc<Proc>> = new.iter().filter(|proc| maps_shared(proc, Some(file))).cloned().collect();
        if !with.is_empty() {
            return with;
        }
        seen.extend(new);
    }
}

/// Whether a living process has a shared mapping of this file, or of any.
fn maps_shared(proc: &Proc, file: Option<&Arc<MappedFile>>) -> bool {
    let _io = proc.io.lock();
    !proc.removed.load(Relaxed) && !proc.files.lock().shared(file).is_empty() && !proc.uffd.gone()
}

/// The client with the stub thread of a process.
fn client_of(desk: &Desk, proc: &Arc<Proc>) -> Option<Arc<Client>> {
    let clients = desk.clients.lock().clone();
    let is_it = |client: &&Arc<Client>| client.proc.lock().as_ref().is_some_and(|of| Arc::ptr_eq(of, proc));
    clients.iter().rfind(is_it).filter(|client| client.dormant.is_none()).cloned()
}

/// Does what can be done now. True if the mappings are the kernel's; an error if something is to be
/// tried again.
fn step(client: &Client, proc: &Proc, file: Option<&Arc<MappedFile>>) -> io::Result<bool> {
    let mut progress = client.progress.lock();
    let next = match &mut *progress {
        Progress::Idle => {
            client.answers.hold.store(UNANSWERED, SeqCst);
            if send(client, HOLD) {
                *progress = Progress::Asked;
            }
            return Ok(false);
        }
        Progress::Asked => match client.answers.hold.load(SeqCst) {
            UNANSWERED => return Ok(false),
            0 => match pieces(client, proc, file)? {
                Some(pieces) => Progress::Holds { pieces, sent: false },
                None => return Ok(false),
            },
            // A call is under way.
            _ => Progress::Idle,
        },
        Progress::Holds { pieces, sent } => match (pieces.last(), *sent) {
            (None, _) if send(client, RELEASE) => Progress::Idle,
            (None, _) => return Ok(false),
            (Some(piece), false) => {
                client.answers.remap.store(UNANSWERED, SeqCst);
                *sent = piece.send(client);
                return Ok(false);
            }
            (Some(piece), true) => {
                let errno = match client.answers.remap.load(SeqCst) {
                    UNANSWERED => return Ok(false),
                    errno => errno,
                };
                *sent = false;
                if errno != 0 {
                    return Err(io::Error::from_raw_os_error(errno as i32));
                }
                proc.files.lock().cut(piece.start / PAGE_BYTES, piece.end / PAGE_BYTES);
                pieces.pop();
                return Ok(false);
            }
        },
    };
    *progress = next;
    Ok(matches!(*progress, Progress::Idle) && !maps_shared(proc, file))
}

/// What is to be mapped again, exactly; `None` while an event is unread. The stub keeps out calls
/// that change mappings.
fn pieces(client: &Client, proc: &Proc, file: Option<&Arc<MappedFile>>) -> io::Result<Option<Vec<Piece>>> {
    let _io = proc.io.lock();
    if proc.event_pending() {
        return Ok(None);
    }
    let text = procfs::read_memory(client.pid, "maps")?;
    let mut files = proc.files.lock();
    let mut out = Vec::new();
    for part in files.shared(file) {
        let (first, last) = (part.first * PAGE_BYTES, part.end * PAGE_BYTES);
        let mut at = first;
        for (start, end, access) in maps::within(&text, first, last) {
            // Where there is no mapping there is nothing to do.
            files.cut(at / PAGE_BYTES, start / PAGE_BYTES);
            at = end;
            let offset = part.index * PAGE_BYTES + start - first;
            let access = u32::from(access & !WRITE);
            out.push(Piece { start, end, access, file: Arc::clone(&part.file), offset });
        }
        files.cut(at / PAGE_BYTES, part.end);
    }
    Ok(Some(out))
}

impl Piece {
    fn send(&self, client: &Client) -> bool {
        let Piece { start, end, access, offset, .. } = *self;
        let command = Command { kind: REMAP, flags: access, range: [start, end], offset, ..Command::default() };
        send_command(&client.socket, &command, Some(self.file.file.as_fd()))
    }
}

fn send(client: &Client, kind: u32) -> bool {
    send_command(&client.socket, &Command { kind, ..Command::default() }, None)
}

/// Waits until the stub keeps nothing out any more, at most [`RELEASED_WITHIN`].
fn finish(client: &Client) {
    let until = Instant::now() + RELEASED_WITHIN;
    while !released(client) && Instant::now() < until {
        std::thread::sleep(POLL);
    }
}

/// Sends RELEASE if the stub keeps calls out. False if that is to be tried again: the stub has not
/// yet answered HOLD, or does not read its messages.
fn released(client: &Client) -> bool {
    let mut progress = client.progress.lock();
    let free = match *progress {
        _ if client.gone.load(Relaxed) => true,
        Progress::Idle => true,
        Progress::Asked => match client.answers.hold.load(SeqCst) {
            UNANSWERED => false,
            0 => send(client, RELEASE),
            _ => true,
        },
        Progress::Holds { .. } => send(client, RELEASE),
    };
    if free {
        *progress = Progress::Idle;
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::MANAGED;
    use crate::family::Family;
    use memfit_core::{AreaId, ProcId};
    use memfit_os::event::EventFd;
    use memfit_os::uffd::Uffd;
    use memfit_os::{messages, seqpacket};
    use memfit_wire::FromStub;
    use std::os::fd::OwnedFd;

    #[test]
    fn a_lowered_limit_leaves_the_processes_time() {
        let seconds = [45, 5, 4, 2].map(|limit| time_to_give_back(Duration::from_secs(limit)).as_secs());
        assert_eq!(seconds, [43, 3, 2, 1]);
    }

    /// A process whose stub is the other end of the socket.
    fn asked(progress: Progress) -> (Asked, OwnedFd) {
        let (ours, stub) = seqpacket::pair().unwrap();
        let pid = std::process::id() as i32;
        let rss = procfs::RssReader::open(pid).unwrap();
        let client = Client::new(ours, pid, &FromStub::default(), rss, MANAGED);
        client.answers.hold.store(UNANSWERED, SeqCst);
        *client.progress.lock() = progress;
        let uffd = Uffd::from_fd(std::fs::File::open("/dev/null").unwrap().into());
        let kick = Arc::new(EventFd::new().unwrap());
        let proc = Proc::new(ProcId(0), AreaId(0), uffd, kick, Family::default());
        (Asked { client: Arc::new(client), proc: Arc::new(proc) }, stub)
    }

    /// Whether a stub was sent RELEASE, and nothing else.
    fn was_released(stub: &OwnedFd) -> bool {
        let release = Command { kind: RELEASE, ..Command::default() };
        match seqpacket::receive(stub.as_fd()) {
            Ok(Some(packet)) => {
                assert_eq!(packet.bytes, messages::bytes_of(&release));
                true
            }
            Ok(None) => panic!("the pager has closed the socket"),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                false
            }
        }
    }

    fn holds() -> Progress {
        Progress::Holds { pieces: Vec::new(), sent: false }
    }

    #[test]
    fn a_process_whose_mapping_is_the_files_does_not_wait_for_others() {
        let (done, stub) = asked(holds());
        let (others, others_stub) = asked(holds());
        let (unasked, unasked_stub) = asked(Progress::Idle);
        let with = [Arc::clone(&others.proc)];
        let _open = [&done, &others, &unasked].map(|asked| Arc::clone(&asked.client));
        let mut all = vec![done, others, unasked];
        release_others(&mut all, &with);
        assert_eq!([&stub, &others_stub, &unasked_stub].map(was_released), [true, false, false]);
        assert!(all.len() == 1 && Arc::ptr_eq(&all[0].proc, &with[0]));
    }

    #[test]
    fn a_stub_that_answers_late_is_released_then() {
        for late_ms in [0, 1500] {
            let (late, stub) = asked(Progress::Asked);
            let client = Arc::clone(&late.client);
            let mut all = vec![late];
            release_others(&mut all, &[]);
            assert!(!was_released(&stub) && all.len() == 1);
            let releases = std::thread::spawn(move || release_all(all));
            // It was stopped meanwhile.
            std::thread::sleep(Duration::from_millis(late_ms));
            client.answers.note(&FromStub { kind: HOLD, ..FromStub::default() });
            releases.join().unwrap();
            assert!(was_released(&stub) && matches!(*client.progress.lock(), Progress::Idle));
        }
    }
}
