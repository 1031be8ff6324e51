//! Processes whose stub has no thread yet: they get it when they are to be paged.
//!
//! Most processes of a tree are never paged. So a stub only greets, and the pager knows where a
//! thread of the program can make the stub's (wire: `GREETING`). When the monitor wants the process
//! to be paged, a thread of ours has one of the program's make it (`memfit_os::inject`); it says
//! hello, and the process is asked to be paged as any other.

use crate::control::{attach_or_warn, remove_client, Client, Desk, DORMANT, REFUSED, WAKING};
use crate::detach::{self, Why};
use memfit_os::inject::{self, Call, Failure};
use memfit_os::procfs;
use memfit_wire::{FromStub, CLONE_FLAGS, ENTRY_MARK};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Threads tried at a time.
const THREADS_MAX: usize = 8;
/// Time between two attempts: after the first that failed, at most, and where the reason will not
/// go away at once.
const AGAIN: Duration = Duration::from_millis(1);
const AGAIN_MAX: Duration = Duration::from_millis(16);
const AGAIN_LATER: Duration = Duration::from_millis(250);
/// So many refusals are an answer.
const REFUSALS: u32 = 3;
/// What is in the way is told after so long: debuggers trace their children for a moment.
const TOLD_AFTER: Duration = Duration::from_secs(1);
/// A thread that was made says hello within this, unless it gets no CPU.
const HELLO_WITHIN: Duration = Duration::from_secs(60);
/// Time between two looks at what is awaited.
const LOOK: Duration = Duration::from_millis(1);

/// What a greeting has told.
#[derive(Debug)]
pub struct Dormant {
    /// Of the instruction by which the thread is made.
    pub entry: u64,
    stack_pointer: u64,
    thread_pointer: u64,
    /// Where the stack of its first thread began.
    start_stack: u64,
    /// System call filters of the process that its stub has seen.
    pub filters: AtomicU64,
    /// When to try again, and how long to wait after that.
    next: Mutex<(Instant, Duration)>,
    /// Since when something has been in the way, and whether the user knows it.
    hindered: Mutex<Option<Instant>>,
    told: AtomicBool,
    /// Attempts that were refused with nobody to be seen who traces it.
    refusals: AtomicU32,
}

impl Dormant {
    /// As greeted.
    pub fn new(greeting: &FromStub) -> Dormant {
        let [stack_pointer, thread_pointer] = greeting.stack;
        Dormant {
            entry: greeting.entry,
            stack_pointer,
            thread_pointer,
            start_stack: greeting.token,
            filters: AtomicU64::new(greeting.filters),
            next: Mutex::new((Instant::now(), AGAIN)),
            hindered: Mutex::new(None),
            told: AtomicBool::new(false),
            refusals: AtomicU32::new(0),
        }
    }

    fn is_due(&self) -> bool {
        Instant::now() >= self.next.lock().unwrap().0
    }

    fn wait(&self, least: Duration) {
        let mut next = self.next.lock().unwrap();
        let wait = next.1.max(least);
        *next = (Instant::now() + wait, (next.1 * 2).min(AGAIN_MAX));
    }
}

/// Has the thread made, if that is to be tried now.
pub fn begin(desk: &Arc<Desk>, client: &Arc<Client>) {
    let Some(dormant) = client.dormant.as_ref().filter(|dormant| dormant.is_due()) else { return };
    if client.stage.compare_exchange(DORMANT, WAKING, SeqCst, SeqCst).is_err() {
        return;
    }
    let (desk, sleeper) = (Arc::clone(desk), Arc::clone(client));
    let body = move || {
        if let Some(dormant) = &sleeper.dormant {
            wake(&desk, &sleeper, dormant);
        }
    };
    if std::thread::Builder::new().name("wake".into()).stack_size(256 << 10).spawn(body).is_err() {
        dormant.wait(AGAIN_LATER);
        client.stage.store(DORMANT, SeqCst);
    }
}

fn wake(desk: &Desk, client: &Arc<Client>, dormant: &Dormant) {
    let sleep_on = |least| {
        dormant.wait(least);
        client.stage.store(DORMANT, SeqCst);
    };
    let why = match make_thread(client, dormant) {
        Ok(()) => return wait_for_hello(desk, client),
        Err(Hindrance::Filter) => {
            client.stage.store(REFUSED, SeqCst);
            desk.detached.lock().unwrap().why.insert(client.pid, Why::Filtered);
            return detach::tell(desk, client.pid, &client.comm, Why::Filtered, "");
        }
        Err(Hindrance::Thread(Failure::NotNow)) => return sleep_on(Duration::ZERO),
        Err(Hindrance::Thread(Failure::Other)) => {
            // Without a stub it is counted as one of those.
            client.stage.store(REFUSED, SeqCst);
            return remove_client(desk, client);
        }
        Err(Hindrance::Thread(Failure::Refused)) => match procfs::tracer(client.pid) {
            // One may just have let go.
            Some(0) if dormant.refusals.fetch_add(1, Relaxed) < REFUSALS => return sleep_on(Duration::ZERO),
            Some(0) | None => {
                client.stage.store(REFUSED, SeqCst);
                return detach::refused(desk, client, &io::Error::from(io::ErrorKind::PermissionDenied));
            }
            // A thread of ours that has given up lets go when it has ended.
            Some(tracer) if procfs::is_own_thread(tracer) => return sleep_on(Duration::ZERO),
            Some(tracer) => format!("process {tracer} traces it"),
        },
        Err(Hindrance::Thread(Failure::Call(error))) => format!("it cannot have another thread: {error}"),
    };
    let since = *dormant.hindered.lock().unwrap().get_or_insert_with(Instant::now);
    if since.elapsed() > TOLD_AFTER && !dormant.told.swap(true, Relaxed) {
        let who = format!("process {} ({})", client.pid, client.comm);
        desk.shared.warn(format!("not paged for now, but counted: {who}: {why}"));
    }
    sleep_on(AGAIN_LATER);
}

/// Why no thread could be made.
enum Hindrance {
    /// Of the thread that should have made it.
    Thread(Failure),
    /// A filter that the stub has not seen, which could kill the program for the call.
    Filter,
}

/// By a thread that runs: it is in no system call, so that none is interrupted. Else by the first.
fn make_thread(client: &Client, dormant: &Dormant) -> Result<(), Hindrance> {
    let mut threads = procfs::tasks(client.pid);
    let rank = |&tid: &i32| match procfs::task_state(client.pid, tid) {
        Some('R') => 0,
        Some('S') if tid == client.pid => 1,
        Some('S') => 2,
        _ => 3,
    };
    threads.sort_by_cached_key(rank);
    let call = Call {
        instruction: dormant.entry,
        mark: ENTRY_MARK,
        number: libc::SYS_clone as u64,
        arguments: [CLONE_FLAGS as u64, dormant.stack_pointer, 0, 0, dormant.thread_pointer, u64::from(client.forked)],
    };
    let mut last = Hindrance::Thread(Failure::NotNow);
    for tid in threads.into_iter().take(THREADS_MAX).take_while(|tid| rank(tid) < 3) {
        match procfs::filters(client.pid, tid) {
            Some(filters) if filters == dormant.filters.load(Relaxed) => {}
            Some(_) => {
                last = Hindrance::Filter;
                continue;
            }
            None => continue,
        }
        match inject::call(tid, &call) {
            Ok(_) => return Ok(()),
            Err(Failure::NotNow) => last = Hindrance::Thread(Failure::NotNow),
            Err(failure) => return Err(Hindrance::Thread(failure)),
        }
    }
    Err(last)
}

/// The thread is there. When it says hello, its process is another client.
fn wait_for_hello(desk: &Desk, client: &Client) {
    let begun = Instant::now();
    while !client.gone.load(Relaxed) {
        if begun.elapsed() > HELLO_WITHIN {
            client.stage.store(REFUSED, SeqCst);
            let who = format!("process {} ({})", client.pid, client.comm);
            return desk.shared.warn(format!("not paged, but counted: {who}: its stub cannot reach the pager"));
        }
        std::thread::sleep(LOOK);
    }
}

/// Processes that run another program by now, which has not greeted, are nobody's: what they have
/// is counted as that of those without a stub.
pub fn forget_others(desk: &Desk, clients: &[Arc<Client>]) {
    for client in clients.iter().filter(|client| client.stage.load(Relaxed) == DORMANT) {
        let began = client.dormant.as_ref().map(|dormant| dormant.start_stack);
        if procfs::start_stack(client.pid).is_some_and(|stack| began.is_some_and(|began| began != stack)) {
            remove_client(desk, client);
        }
    }
}

/// What is the client of the same process when no thread of it is being made; if it has none, none
/// will be made.
pub fn current_client(desk: &Desk, client: &Arc<Client>) -> Arc<Client> {
    while client.stage.compare_exchange(DORMANT, REFUSED, SeqCst, SeqCst) == Err(WAKING) && !client.gone.load(Relaxed) {
        std::thread::sleep(LOOK);
    }
    let clients = desk.clients.lock().unwrap();
    let same = |c: &&Arc<Client>| c.pid == client.pid && !c.gone.load(Relaxed);
    if client.gone.load(Relaxed) { clients.iter().rfind(same).unwrap_or(client) } else { client }.clone()
}

/// Adds a process to those that are known. Its thread may be the one that was made for it: then
/// what was known of the process is this client's from now on. One that was greeted by another
/// program of the same process has ended.
pub fn join(desk: &Arc<Desk>, client: &Arc<Client>) {
    let mut clients = desk.clients.lock().unwrap();
    let old = clients.iter().rfind(|c| c.pid == client.pid && c.dormant.is_some()).cloned();
    let made = old.as_ref().filter(|old| old.stage.load(SeqCst) == WAKING && client.dormant.is_none());
    if let Some(old) = made {
        client.peak.store(old.peak.load(Relaxed), Relaxed);
        client.share.store(old.share.load(Relaxed), Relaxed);
        client.shmem.store(old.shmem.load(Relaxed), Relaxed);
        *client.weighed.lock().unwrap() = *old.weighed.lock().unwrap();
        *client.unweighed.lock().unwrap() = *old.unweighed.lock().unwrap();
        // Who looks for the process finds one of the two.
        old.gone.store(true, Relaxed);
        clients.retain(|c| !Arc::ptr_eq(c, old));
    }
    clients.push(Arc::clone(client));
    desk.shared.room.clients.store(clients.len(), Relaxed);
    drop(clients);
    match (&old, made.is_some()) {
        (_, true) => attach_or_warn(desk, client),
        (Some(old), false) => remove_client(desk, old),
        (None, _) => {}
    }
}
