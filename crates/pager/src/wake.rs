//! Makes the stub threads of processes that have none yet, when these are to be paged.
//!
//! Most processes of a tree are never paged. So a stub only sends a greeting, which says where a
//! thread of the program can make the stub thread (wire: `GREETING`). When the monitor wants the
//! process to be paged, a thread of the pager has a thread of the program make it
//! (`memfit_os::inject`). The stub thread says hello, and is asked to attach the process as any
//! other.

use crate::attach::attach_or_warn;
use crate::background::LastOrder;
use crate::clients::{remove_client, Client, ATTACHING, DORMANT, IDLE, REFUSED, WAKING};
use crate::control::Desk;
use crate::detach::{self, Why};
use crate::locks::{rank, Lock};
use memfit_os::inject::{Asked, Call, Failure};
use memfit_os::procfs::{self, TaskStat};
use memfit_os::sched;
use memfit_wire::{FromStub, CLONE_FLAGS, ENTRY_MARK};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most threads tried in one attempt.
const THREADS_MAX: usize = 8;
/// Time between two attempts: after the first failure; at most; where the reason will last.
const AGAIN: Duration = Duration::from_millis(1);
const AGAIN_MAX: Duration = Duration::from_millis(16);
const AGAIN_LATER: Duration = Duration::from_millis(250);
/// Refusals after which the pager gives up.
const REFUSALS: u32 = 3;
/// The user is warned of what is in the way after this time: debuggers trace their children for a
/// moment.
const TOLD_AFTER: Duration = Duration::from_secs(1);
/// A new stub thread says hello within this time, also on a busy machine.
const HELLO_WITHIN: Duration = Duration::from_secs(60);
/// A stub reports a filter within this time.
const FILTER_TOLD_WITHIN: Duration = Duration::from_secs(1);
/// Longest time for which a thread is held so.
pub const HELD_AT_MOST: Duration = Duration::from_millis(250);
/// Time between two polls.
const POLL: Duration = Duration::from_millis(1);

/// The content of a greeting.
#[derive(Debug)]
pub struct Dormant {
    /// Address of the instruction that makes the thread.
    pub entry: u64,
    stack_pointer: u64,
    thread_pointer: u64,
    /// Where the stack of the process's first thread began.
    start_stack: u64,
    /// Of its first thread.
    stat: Option<TaskStat>,
    /// System call filters of the process that its stub has seen.
    filters: AtomicU64,
    /// Since when the process has had others.
    unseen_filter: Lock<Option<Instant>, { rank::UNSEEN_FILTER }>,
    /// When to try again, and how long to wait after that.
    next: Lock<(Instant, Duration), { rank::WAKE_NEXT }>,
    /// Since when something has been in the way; `told` once the user was warned.
    hindered: Lock<Option<Instant>, { rank::HINDERED }>,
    told: AtomicBool,
    /// Refused attempts without a visible tracer.
    refusals: AtomicU32,
}

impl Dormant {
    /// From the greeting of a process.
    pub fn new(pid: i32, greeting: &FromStub) -> Dormant {
        let [stack_pointer, thread_pointer] = greeting.stack;
        Dormant {
            entry: greeting.entry,
            stack_pointer,
            thread_pointer,
            start_stack: greeting.token,
            stat: TaskStat::open(pid, pid).ok(),
            filters: AtomicU64::new(greeting.filters),
            unseen_filter: Lock::default(),
            next: Lock::new((Instant::now(), AGAIN)),
            hindered: Lock::new(None),
            told: AtomicBool::new(false),
            refusals: AtomicU32::new(0),
        }
    }

    /// The stub has seen one more filter.
    pub fn add_filter(&self, filters: u64) {
        self.filters.store(filters, Relaxed);
        *self.unseen_filter.lock() = None;
    }

    /// Whether the stub may still report a filter that the process has: it does so just after the
    /// filter was added, and the program may wait for a CPU.
    fn may_report_filter(&self) -> bool {
        self.unseen_filter.lock().get_or_insert_with(Instant::now).elapsed() < FILTER_TOLD_WITHIN
    }

    fn is_due(&self) -> bool {
        Instant::now() >= self.next.lock().0
    }

    fn wait(&self, least: Duration) {
        let mut next = self.next.lock();
        let wait = next.1.max(least);
        *next = (Instant::now() + wait, (next.1 * 2).min(AGAIN_MAX));
    }
}

/// Starts a thread that has the stub thread made, if an attempt is due.
pub fn begin(desk: &Arc<Desk>, client: &Arc<Client>) {
    let Some(dormant) = client.dormant.as_ref().filter(|dormant| dormant.is_due()) else { return };
    if client.stage.compare_exchange(DORMANT, WAKING, SeqCst, SeqCst).is_err() {
        return;
    }
    let (waker, sleeper) = (Arc::clone(desk), Arc::clone(client));
    let body = move || {
        if let Some(dormant) = &sleeper.dormant {
            wake(&waker, &sleeper, dormant);
        }
    };
    if desk.wakers.run(body).is_err() {
        dormant.wait(AGAIN_LATER);
        client.stage.store(DORMANT, SeqCst);
    }
}

fn wake(desk: &Arc<Desk>, client: &Arc<Client>, dormant: &Dormant) {
    let sleep_on = |least| {
        dormant.wait(least);
        client.stage.store(DORMANT, SeqCst);
    };
    // Before all else: it may fill memory while this thread waits for a CPU.
    let mut first = stop_first(desk, client, dormant);
    sched::end_real_time();
    let made = make_thread(desk, client, dormant, &mut first);
    if let Some(first) = first {
        first.release();
    }
    let why = match made {
        Ok(()) => return wait_for_hello(desk, client),
        Err(Hindrance::Filter) if dormant.may_report_filter() || runs_another(client) => {
            return sleep_on(Duration::ZERO);
        }
        Err(Hindrance::Filter) => {
            client.stage.store(REFUSED, SeqCst);
            desk.detached.lock().why.insert(client.pid, Why::Filtered);
            return detach::tell(desk, client.pid, &client.comm, Why::Filtered, false);
        }
        Err(Hindrance::Thread(Failure::NotNow)) => return sleep_on(Duration::ZERO),
        Err(Hindrance::Thread(Failure::Other)) => {
            // Without a stub it counts as an unmanaged process.
            client.stage.store(REFUSED, SeqCst);
            return remove_client(desk, client);
        }
        Err(Hindrance::Thread(Failure::Refused)) => match procfs::tracer(client.pid) {
            // A tracer may just have let go.
            Some(0) if dormant.refusals.fetch_add(1, Relaxed) < REFUSALS => return sleep_on(Duration::ZERO),
            Some(0) | None => {
                client.stage.store(REFUSED, SeqCst);
                return detach::refused(desk, client, &io::Error::from(io::ErrorKind::PermissionDenied));
            }
            // A thread of the pager that has given up lets go when it ends.
            Some(tracer) if procfs::is_own_thread(tracer) => return sleep_on(Duration::ZERO),
            Some(tracer) => format!("process {tracer} traces it"),
        },
        Err(Hindrance::Thread(Failure::Call(error))) => format!("it cannot have another thread: {error}"),
    };
    let since = *dormant.hindered.lock().get_or_insert_with(Instant::now);
    if since.elapsed() > TOLD_AFTER && !dormant.told.swap(true, Relaxed) {
        let who = format!("process {} ({})", client.pid, client.comm);
        desk.shared.warn(format!("not paged for now, but counted: {who}: {why}"));
    }
    sleep_on(AGAIN_LATER);
}

/// Why no stub thread could be made.
enum Hindrance {
    /// The program's thread could not make it.
    Thread(Failure),
    /// A filter that the stub has not seen: it could kill the program for the call.
    Filter,
}

/// Asks the first thread of a process to stop if it runs. Looks up no file of it: this is a
/// real-time thread (see `RssReader::sample`). A filter that its stub has not seen could kill it
/// for the way out of a stop.
fn stop_first(desk: &Desk, client: &Client, dormant: &Dormant) -> Option<Asked> {
    if dormant.unseen_filter.lock().is_some() {
        return None;
    }
    let runs = dormant.stat.as_ref().and_then(TaskStat::state) == Some('R');
    runs.then(|| Asked::to_stop(&desk.wakers, (client.pid, client.pid)).ok())?
}

/// Threads of a process that can be asked to stop. Running ones come first, because no system call
/// of theirs is interrupted, then the first thread of the process; before all it, if it was asked.
pub fn threads_to_stop(pid: i32, first_is_asked: bool) -> Vec<i32> {
    let rank = |&tid: &i32| match procfs::task_state(pid, tid) {
        _ if first_is_asked && tid == pid => 0,
        Some('R') => 1,
        Some('S') if tid == pid => 2,
        Some('S') => 3,
        _ => 4,
    };
    let mut threads: Vec<(i32, i32)> = procfs::tasks(pid).iter().map(|tid| (rank(tid), *tid)).collect();
    threads.retain(|&(rank, _)| rank < 4);
    threads.sort_by_key(|&(rank, _)| rank);
    threads.into_iter().map(|(_, tid)| tid).take(THREADS_MAX).collect()
}

/// All running threads stay stopped until the process is paged: they could fill the budget before.
/// `first`: its first thread, if that ran and was asked to stop.
fn make_thread(
    desk: &Arc<Desk>,
    client: &Arc<Client>,
    dormant: &Dormant,
    first: &mut Option<Asked>,
) -> Result<(), Hindrance> {
    let call = Call {
        instruction: dormant.entry,
        mark: ENTRY_MARK,
        number: libc::SYS_clone as u64,
        arguments: [CLONE_FLAGS as u64, dormant.stack_pointer, 0, 0, dormant.thread_pointer, u64::from(client.forked)],
        filters: dormant.filters.load(Relaxed),
        start_stack: dormant.start_stack,
    };
    let mut last = Hindrance::Thread(Failure::NotNow);
    for tid in threads_to_stop(client.pid, first.is_some()) {
        match procfs::ThreadStatus::of(client.pid, tid).and_then(|status| status.filters()) {
            Some(filters) if filters == call.filters => {}
            Some(_) => {
                last = Hindrance::Filter;
                continue;
            }
            None => continue,
        }
        let (waker, sleeper, begun) = (Arc::clone(desk), Arc::clone(client), Instant::now());
        let held = move || is_held(&waker, &sleeper, begun);
        let asked = first.take_if(|_| tid == client.pid);
        let asked = asked.map_or_else(|| Asked::to_stop(&desk.wakers, (client.pid, tid)), Ok);
        match asked.and_then(|asked| asked.call(call, held)) {
            Ok(_) => return Ok(()),
            Err(Failure::NotNow) => last = Hindrance::Thread(Failure::NotNow),
            Err(failure) => return Err(Hindrance::Thread(failure)),
        }
    }
    Err(last)
}

/// Whether the threads of a process stay stopped: until it is paged, which takes some milliseconds.
/// Not for ever: the stub thread can depend on a lock that one of them has.
fn is_held(desk: &Desk, client: &Client, begun: Instant) -> bool {
    if begun.elapsed() > HELD_AT_MOST {
        return false;
    }
    // With the hello another client takes its place.
    let same = |c: &&Arc<Client>| c.pid == client.pid && !c.gone.load(Relaxed);
    let stage = desk.clients.lock().iter().rfind(same).map(|now| now.stage.load(Relaxed));
    matches!(stage, Some(WAKING | IDLE | ATTACHING))
}

/// The stub thread exists. Waits until it says hello, which makes its process another client.
fn wait_for_hello(desk: &Desk, client: &Client) {
    let begun = Instant::now();
    while !client.gone.load(Relaxed) {
        if begun.elapsed() > HELLO_WITHIN {
            client.stage.store(REFUSED, SeqCst);
            let who = format!("process {} ({})", client.pid, client.comm);
            return desk.shared.warn(format!("not paged, but counted: {who}: its stub cannot reach the pager"));
        }
        std::thread::sleep(POLL);
    }
}

/// Removes processes that run another program by now, which has not greeted: their memory counts as
/// that of unmanaged processes.
pub fn forget_others(desk: &Desk, clients: &[Arc<Client>]) {
    let others = clients.iter().filter(|client| client.stage.load(Relaxed) == DORMANT && runs_another(client));
    others.for_each(|client| remove_client(desk, client));
}

/// Whether a process runs another program than the one that greeted.
pub fn runs_another(client: &Client) -> bool {
    let Some(dormant) = &client.dormant else { return false };
    let now = dormant.stat.as_ref().map_or_else(|| procfs::start_stack(client.pid), TaskStat::start_stack);
    now.is_some_and(|now| now != dormant.start_stack)
}

/// The client of the same process once no stub thread is being made for it. If the process has no
/// stub thread, none will be made.
pub fn current_client(desk: &Desk, client: &Arc<Client>) -> Arc<Client> {
    while client.stage.compare_exchange(DORMANT, REFUSED, SeqCst, SeqCst) == Err(WAKING) && !client.gone.load(Relaxed) {
        std::thread::sleep(POLL);
    }
    let clients = desk.clients.lock();
    let same = |c: &&Arc<Client>| c.pid == client.pid && !c.gone.load(Relaxed);
    if client.gone.load(Relaxed) { clients.iter().rfind(same).unwrap_or(client) } else { client }.clone()
}

/// Adds a process. If its stub thread was made for a dormant client, the new client takes over what
/// was known of the process. A dormant client of an earlier program of the process has ended.
pub fn join(desk: &Arc<Desk>, client: &Arc<Client>) {
    let mut clients = desk.clients.lock();
    // An exec makes another client of the process, before or after the removal of the earlier one.
    let earlier = clients.iter().rfind(|c| c.pid == client.pid).map(|earlier| LastOrder::of(earlier));
    let order = earlier.unwrap_or_else(|| desk.detached.lock().last_order(client));
    order.into_iter().for_each(|order| order.pass_on(client));
    let old = clients.iter().rfind(|c| c.pid == client.pid && c.dormant.is_some()).cloned();
    let made = old.as_ref().filter(|old| old.stage.load(SeqCst) == WAKING && client.dormant.is_none());
    if let Some(old) = made {
        client.peak.store(old.peak.load(Relaxed), Relaxed);
        client.share.store(old.share.load(Relaxed), Relaxed);
        client.shmem.store(old.shmem.load(Relaxed), Relaxed);
        client.shmem_mapped.store(old.shmem_mapped.load(Relaxed), Relaxed);
        let (weighed, unweighed) = (*old.weighed.lock(), *old.unweighed.lock());
        *client.weighed.lock() = weighed;
        *client.unweighed.lock() = unweighed;
        // Other threads that look for the process find one of the two.
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
