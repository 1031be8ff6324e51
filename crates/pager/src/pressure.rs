//! Memory that is short outside of the tree. The kernel counts for how long tasks wait for memory
//! (PSI). While they wait much, processes in the background leave, one after another, though the
//! tree's budget has room.
//!
//! Two counts are looked at: that of the control group that limits the memory of the pager, and
//! that of the machine. Both include tasks that wait because of a limit of their own. So a count
//! decides only while the group has used most of its limit, or the machine has little memory left.

use crate::background::{self, By, BACKGROUND, FOREGROUND, TOLD_TO_LEAVE};
use crate::clients::{Client, MANAGED, REFUSED};
use crate::state::Shared;
use memfit_core::{PAGE_BYTES, WORTH_PAGES};
use memfit_os::limits::{self, PressureSource};
use memfit_os::proctree;
use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Memory is short when tasks wait for it for more than this share of the time, percent. Android's
/// low-memory killer begins at 7 (`ro.lmk.psi_partial_stall_ms`: 70 ms of a second).
const SHORT_PERCENT: u64 = 10;
/// A process that was told to leave is waited for until it is paged, for so long at the most, ms:
/// one that is stopped is not paged before it goes on.
const BEGINS_WITHIN_MS: u64 = 5000;

/// The counts at the last sample.
#[derive(Default)]
pub struct Pressure {
    /// Empty while no process is in the background.
    counts: Vec<Count>,
    last: Option<Instant>,
    /// Processes whose leaving the user was told of.
    told: HashSet<i32>,
}

#[derive(Clone)]
struct Count {
    source: PressureSource,
    waited: Duration,
    at: Instant,
}

impl Count {
    /// For which share of the time since the last sample tasks waited, percent.
    fn percent(&self, before: &[Count]) -> u64 {
        let Some(before) = before.iter().find(|before| before.source.path() == self.source.path()) else { return 0 };
        let (waited, passed) = (self.waited.saturating_sub(before.waited), self.at - before.at);
        (waited.as_micros() * 100 / passed.as_micros().max(1)) as u64
    }
}

impl Pressure {
    /// Whether it is time for a sample, which looks up files of processes.
    pub fn is_due(&self) -> bool {
        self.last.is_none_or(|last| last.elapsed() >= SAMPLE_EVERY)
    }

    /// Lets a process in the background leave, if it is time to look and memory is short.
    pub fn sample(&mut self, shared: &Shared, clients: &[Arc<Client>]) {
        let leaves = shared.scheme.reclaim.per_process != 0;
        if !leaves || !clients.iter().any(|client| is_in_background(client)) {
            self.last = None;
            self.counts.clear();
            return;
        }
        if !self.is_due() {
            return;
        }
        self.last = Some(Instant::now());
        // The limit can change, and the group that has it.
        let counted = |source: PressureSource| Some(Count { waited: source.waited()?, at: Instant::now(), source });
        let counts = limits::pressure_sources().filter_map(counted).collect();
        let before = std::mem::replace(&mut self.counts, counts);
        let mut all = self.counts.iter().map(|count| (count, count.percent(&before)));
        let short = all.find(|(count, percent)| *percent > SHORT_PERCENT && count.source.is_nearly_used());
        let Some((count, percent)) = short else { return };
        if let Some(client) = next_to_leave(shared, clients) {
            background::leave(shared, client, TOLD_TO_LEAVE, By::Shortage);
            shared.meters.left_for_others.fetch_add(1, Relaxed);
            if self.told.insert(client.pid) {
                shared.outbox.announce(message(count.source.place(), percent, client));
            }
        }
    }
}

fn is_in_background(client: &Client) -> bool {
    client.standing.load(Relaxed) != FOREGROUND && !client.gone.load(Relaxed)
}

/// The process in the background with most in memory; none while one leaves.
fn next_to_leave<'a>(shared: &Shared, clients: &'a [Arc<Client>]) -> Option<&'a Arc<Client>> {
    let mut largest: Option<(u64, &Arc<Client>)> = None;
    for client in clients.iter().filter(|client| is_in_background(client)) {
        let standing = client.standing.load(Relaxed);
        let stage = client.stage.load(Relaxed);
        let is_never_paged = stage == REFUSED || client.independent.load(Relaxed);
        if is_never_paged || client.detaching.load(Relaxed) {
            continue;
        }
        if standing == TOLD_TO_LEAVE {
            if is_awaited(client, shared.tick()) {
                return None;
            }
            continue;
        }
        if stage != MANAGED && proctree::read_stat(client.pid).is_none_or(|stat| stat.is_stopped()) {
            continue;
        }
        let mut outside = 0;
        if let Some(proc) = client.proc.lock().clone().filter(|_| standing == BACKGROUND) {
            let Some(state) = shared.lock_for(&proc) else { continue };
            match state.core.process_reclaim(proc.id) {
                Some(reclaim) if reclaim.ended.is_none() => return None,
                Some(reclaim) if reclaim.gave_up => continue,
                _ => outside = state.core.out_pages(proc.id) * PAGE_BYTES,
            }
        }
        let inside = client.rss.read().map_or(0, |rss| rss.anon);
        // One that has more outside gives its pages like the others.
        let worth = inside > outside.max(WORTH_PAGES * PAGE_BYTES);
        if worth && largest.is_none_or(|(most, _)| inside > most) {
            largest = Some((inside, client));
        }
    }
    largest.map(|(_, client)| client)
}

/// Whether a process that was told to leave begins soon, if it has not begun.
fn is_awaited(client: &Client, now: u64) -> bool {
    let told_at = client.told_at.load(Relaxed);
    client.stage.load(Relaxed) == MANAGED || now.saturating_sub(told_at) < BEGINS_WITHIN_MS
}

fn message(place: &str, percent: u64, client: &Client) -> String {
    format!(
        "memory is short {place}: tasks waited for it {percent} % of the last second; {} ({}), in the background, leaves",
        client.comm, client.pid
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::background::TOLD_TO_WAIT;
    use crate::clients::IDLE;
    use crate::config::OnFull;
    use memfit_core::scheme::Scheme;
    use memfit_os::process::send_signal;
    use memfit_os::procfs::RssReader;
    use memfit_os::seqpacket;
    use memfit_wire::FromStub;

    /// In the background, and as large as this process.
    fn client(pid: i32) -> Arc<Client> {
        let rss = RssReader::open(std::process::id() as i32).unwrap();
        let client = Client::new(seqpacket::pair().unwrap().0, pid, &FromStub::default(), rss, IDLE);
        client.standing.store(TOLD_TO_WAIT, Relaxed);
        Arc::new(client)
    }

    #[test]
    fn one_that_cannot_be_paged_now_keeps_nobody_from_leaving() {
        let shared = Shared::new(Scheme::default(), 64 << 20, OnFull::Fail, None).unwrap();
        let large = std::hint::black_box(vec![1u8; 4 << 20]);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (stopped, other) = (client(child.id() as i32), client(std::process::id() as i32));
        let next = |clients: &[&Arc<Client>]| {
            let clients: Vec<_> = clients.iter().map(|client| Arc::clone(client)).collect();
            next_to_leave(&shared, &clients).map(|client| client.pid)
        };
        assert_eq!(next(&[&stopped]), Some(stopped.pid));
        send_signal(stopped.pid, libc::SIGSTOP, None).unwrap();
        while proctree::read_stat(stopped.pid).is_some_and(|stat| !stat.is_stopped()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let chosen = [next(&[&stopped]), next(&[&stopped, &other])];
        stopped.stage.store(MANAGED, Relaxed);
        let managed = next(&[&stopped]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((chosen, managed), ([None, Some(other.pid)], Some(stopped.pid)));
        // It was told by name.
        stopped.standing.store(TOLD_TO_LEAVE, Relaxed);
        stopped.told_at.store(1000, Relaxed);
        assert!(is_awaited(&stopped, 99_000), "it is paged, and leaves");
        stopped.stage.store(IDLE, Relaxed);
        assert_eq!([5999, 6000].map(|now| is_awaited(&stopped, now)), [true, false]);
        drop(large);
    }

    #[test]
    fn the_share_is_that_of_the_time_between_two_samples() {
        let (ms, start) = (Duration::from_millis(1), Instant::now());
        let count =
            |waited, at| Count { source: PressureSource::of_machine(), waited: ms * waited, at: start + ms * at };
        let percent = |from, to: (u32, u32)| count(to.0, to.1).percent(from);
        assert_eq!(percent(&[], (5000, 0)), 0, "nothing to compare with");
        let before = [count(5000, 0)];
        assert_eq!(percent(&before, (5000, 1000)), 0);
        assert_eq!(percent(&before, (5250, 1000)), 25);
        assert_eq!(percent(&before, (5200, 2000)), 10, "of two seconds");
        assert_eq!(percent(&before, (10, 1000)), 0, "counted anew");
    }
}
