//! How much of its memory a process has for itself, after a fork.
//!
//! Fork relatives share a page until one of them writes to it, which gives that one a copy. The
//! resident size of each stays the same, so it does not tell. The kernel tells what belongs to a
//! process (its proportional size), but walks all of its page tables for that: some 25 ms per GiB.
//! So a thread of its own measures that, a few times a second. In between, the minor page faults
//! tell about how much has been copied: a process with six relatives can copy a gigabyte in a
//! second. Page faults that the pager serves count as major ones in the kernel.

use crate::clients::Client;
use crate::locks::{rank, Lock};
use memfit_os::procfs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Sender};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Smallest shared memory of a process of which it is asked how much others have of it, bytes.
const SHMEM_SHARED: u64 = 4 << 20;
/// Smallest process whose share is measured, bytes.
const LEAST: u64 = 1 << 20;
/// Bytes of page faults after which it is judged how many of them were copies.
const JUDGED: u64 = 1 << 20;

/// Page faults of a process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Those that nobody served but the kernel, from memory.
    minor: u64,
    /// Those that the pager served.
    served: u64,
}

/// What is known of the anonymous memory of a process.
#[derive(Debug, Clone, Copy)]
pub struct Weighed {
    /// Its anonymous bytes when it was last measured; 0 if it shares none.
    anon: u64,
    /// How many of them were its own.
    own: u64,
    /// Its page faults by then, and at the last look.
    faults: Faults,
    faults_now: Faults,
    /// Part of them that made a copy, in thousandths.
    copying: u64,
}

impl Weighed {
    /// All is its own.
    pub fn alone() -> Weighed {
        let faults = Faults::default();
        Weighed { anon: 0, own: 0, faults, faults_now: faults, copying: 1000 }
    }

    /// A new fork child: all is its parent's. What it allocates and copies later is its own.
    pub fn of_child(anon: u64) -> Weighed {
        Weighed { anon, ..Weighed::alone() }
    }

    /// Whether it may share pages.
    pub fn shares(&self) -> bool {
        self.anon > 0
    }

    /// How many of its `anon` bytes are its own.
    pub fn own(&self, anon: u64) -> u64 {
        (self.without_copies(anon) + self.copied(anon)).min(anon)
    }

    /// The same if it has copied nothing since.
    fn without_copies(&self, anon: u64) -> u64 {
        match anon.checked_sub(self.anon) {
            Some(grown) => self.own + grown,
            None => (u128::from(self.own) * u128::from(anon) / u128::from(self.anon)) as u64,
        }
    }

    /// About how many bytes it has copied since it was measured.
    pub fn copied(&self, anon: u64) -> u64 {
        let written = self.faulted(anon) * self.copying / 1000;
        written.min(anon.saturating_sub(self.without_copies(anon)))
    }

    /// Bytes of its page faults since then, but for new memory.
    fn faulted(&self, anon: u64) -> u64 {
        let since = |of: fn(&Faults) -> u64| of(&self.faults_now).saturating_sub(of(&self.faults)) * 4096;
        let grown = anon.saturating_sub(self.anon).saturating_sub(since(|faults| faults.served));
        since(|faults| faults.minor).saturating_sub(grown)
    }

    /// Its page faults until now.
    pub fn saw(&mut self, faults: Faults) {
        self.faults_now = faults;
    }

    /// The next measurement.
    fn measured(&mut self, anon: u64, own: u64, faults: Faults) {
        self.faults_now = faults;
        let (faulted, gained) = (self.faulted(anon), own.saturating_sub(self.without_copies(anon)));
        if self.shares() && faulted >= JUDGED {
            self.copying = (gained * 1000 / faulted).min(1000);
        }
        (self.anon, self.own, self.faults) = (anon, own, faults);
    }
}

/// Page faults of a process, without those of its stub thread, which writes to shared pages before
/// it takes them.
pub fn faults(client: &Client) -> Option<Faults> {
    let proc = client.proc.lock().clone();
    let served = proc.as_ref().map_or(0, |proc| proc.counters.faults.load(Relaxed));
    let stub = proc.and_then(|proc| proc.stub_thread());
    let of_stub = stub.and_then(|tid| procfs::minor_faults(client.pid, Some(tid))).unwrap_or(0);
    Some(Faults { minor: procfs::minor_faults(client.pid, None)?.saturating_sub(of_stub), served })
}

/// Measures a process. `forks`: there are fork relatives.
fn weigh(client: &Client, forks: bool) {
    let proc = client.proc.lock().clone();
    let unmanaged = proc.as_ref().filter(|proc| proc.family.has_unknown_sharers());
    let Ok(rss) = client.rss.read() else {
        *client.unweighed.lock() = None;
        return;
    };
    // The stub maps its part of staging as well, which counts once, elsewhere.
    let identity = proc.as_ref().and_then(|proc| proc.identity.get());
    let staged = || identity.map_or(0, |identity| identity.segment.allocated_bytes());
    let before = staged();
    let mut shmem = client.rss.shmem();
    shmem = shmem.saturating_sub(before.max(staged()));
    // So do pages of the page cache.
    shmem = shmem.saturating_sub(proc.as_ref().map_or(0, |proc| proc.cached_bytes()));
    client.shmem_mapped.store(shmem, Relaxed);
    let asks = shmem > SHMEM_SHARED || (forks && rss.anon > LEAST) || unmanaged.is_some();
    // The faults first: what is copied meanwhile counts twice, and not never.
    let measured = || Some((faults(client)?, client.rss.proportional()?));
    match if asks { measured() } else { None } {
        Some((faults, own)) => {
            client.weighed.lock().measured(rss.anon, own.anon.min(rss.anon), faults);
            shmem = shmem.min(own.shmem);
            unmanaged.filter(|_| own.alone).inspect(|proc| proc.family.is_alone());
        }
        None => *client.weighed.lock() = Weighed::alone(),
    }
    *client.unweighed.lock() = None;
    client.shmem.store(shmem, Relaxed);
}

/// Whether what a process has for itself can change although it does not run.
pub fn depends_on_others(client: &Client) -> bool {
    let unknown = || client.proc.lock().as_ref().is_some_and(|proc| proc.family.has_unknown_sharers());
    client.shmem_mapped.load(Relaxed) > SHMEM_SHARED || unknown()
}

/// Whether a measurement may walk page tables.
fn may_walk(client: &Client) -> bool {
    depends_on_others(client) || client.rss.shmem() > SHMEM_SHARED
}

/// Processes to be measured.
struct Job {
    clients: Vec<Arc<Client>>,
    /// There are fork relatives.
    forks: bool,
    /// These are all that can have changed.
    all: bool,
}

/// The thread that measures, made when it is first needed.
#[derive(Default)]
pub struct Weigher {
    jobs: Option<Sender<Job>>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    busy: AtomicBool,
    /// Time of the last measurement of all, ns.
    cost: AtomicU64,
    /// When it ended.
    ended: Lock<Option<Instant>, { rank::WEIGHED_ALL }>,
}

impl Weigher {
    /// A measurement is under way.
    pub fn is_busy(&self) -> bool {
        self.state.busy.load(Relaxed)
    }

    /// When all were measured last.
    pub fn ended(&self) -> Option<Instant> {
        *self.state.ended.lock()
    }

    /// How long that took.
    pub fn cost(&self) -> Duration {
        Duration::from_nanos(self.state.cost.load(Relaxed))
    }

    /// Has all these processes measured, which are those that can have changed.
    pub fn weigh(&mut self, clients: Vec<Arc<Client>>, forks: bool) {
        self.give(Job { clients, forks, all: true });
    }

    /// Has new fork children measured. Only if all were measured since each was made: what they
    /// share would count for them and, in whole, for the others.
    pub fn weigh_new(&mut self, clients: Vec<Arc<Client>>) {
        self.give(Job { clients, forks: true, all: false });
    }

    fn give(&mut self, job: Job) {
        // Without sharers it is done at once.
        if self.jobs.is_none() && (job.forks || job.clients.iter().any(|client| may_walk(client))) {
            self.jobs = self.begin();
        }
        self.state.busy.store(true, Relaxed);
        // If there is no thread more, the monitor does it.
        let left = match &self.jobs {
            Some(jobs) => jobs.send(job).err().map(|error| error.0),
            None => Some(job),
        };
        if let Some(job) = left {
            work(&self.state, &job);
        }
    }

    fn begin(&self) -> Option<Sender<Job>> {
        let (jobs, inbox) = mpsc::channel();
        let state = Arc::clone(&self.state);
        let body = move || {
            memfit_os::sched::ask_short_slices();
            inbox.iter().for_each(|job| work(&state, &job));
        };
        std::thread::Builder::new().name("weigh".into()).stack_size(128 << 10).spawn(body).ok()?;
        Some(jobs)
    }
}

fn work(state: &State, job: &Job) {
    let begun = Instant::now();
    job.clients.iter().for_each(|client| weigh(client, job.forks));
    if job.all {
        state.cost.store(begun.elapsed().as_nanos() as u64, Relaxed);
        *state.ended.lock() = Some(Instant::now());
    }
    state.busy.store(false, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Page faults on so many MiB.
    fn faults(minor: u64, served: u64) -> Faults {
        Faults { minor: minor * 256, served: served * 256 }
    }

    #[test]
    fn what_a_fork_child_allocates_or_copies_is_its_own() {
        let mut child = Weighed::of_child(100 * MIB);
        assert_eq!([child.own(100 * MIB), child.own(90 * MIB)], [0, 0]);
        assert_eq!(child.own(103 * MIB), 3 * MIB);
        child.saw(faults(5, 0));
        assert_eq!(child.own(100 * MIB), 5 * MIB, "copies do not show in its size");
        assert_eq!(child.own(103 * MIB), 5 * MIB, "three of them were new memory");
        child.saw(faults(5, 3));
        assert_eq!(child.own(103 * MIB), 8 * MIB, "the pager has served the new memory");
        child.saw(faults(1000, 0));
        assert_eq!([child.own(100 * MIB), child.copied(100 * MIB)], [100 * MIB; 2], "it cannot own more than it has");
    }

    #[test]
    fn a_measurement_tells_how_many_faults_were_copies() {
        let mut process = Weighed::of_child(100 * MIB);
        process.measured(100 * MIB, 20 * MIB, faults(40, 0));
        assert_eq!(process.own(100 * MIB), 20 * MIB);
        process.saw(faults(50, 0));
        assert_eq!(process.own(100 * MIB), 25 * MIB, "half of them");
        process.measured(100 * MIB, 20 * MIB, faults(60, 0));
        process.saw(faults(90, 0));
        assert_eq!(process.own(100 * MIB), 20 * MIB, "it maps and unmaps, and copies nothing");
        process.measured(100 * MIB, 50 * MIB, faults(90, 0));
        process.saw(faults(91, 0));
        assert_eq!(process.own(100 * MIB), 51 * MIB);
        assert_eq!(process.own(50 * MIB), 26 * MIB, "evicted pages are from both kinds");
    }

    #[test]
    fn without_relatives_all_is_its_own() {
        let mut process = Weighed::alone();
        process.saw(faults(7, 0));
        assert!(!process.shares());
        assert_eq!([process.own(MIB), process.copied(MIB)], [MIB, 0]);
    }
}
