//! Fork children of programs into which the pager has loaded libmemfit.so ([`crate::load`]).
//!
//! Nothing is interposed in such a program. So no handler of a child waits, and no stub of it says
//! hello: the pager serves the child through its userfaultfd. If the child lives for a while, the
//! pager loads the stub into it as well.
//!
//! What the child has must be known before its first message is handled. If no other event of its
//! parent is unread for a moment when the FORK event was read, what its events say later does not
//! concern the child. If not, or if something is wiped in children, the mappings of the child
//! decide, as for other children. The first fault names its process.

use crate::fork_children::{
    beacon_is_there, mappings, read_forks, reconcile_with, with_beacon, Marks, ENDS_WITHIN, TOLD_POLL, TOLD_WITHIN,
};
use crate::proc::{Broken, Proc, ZERO_PAGE};
use crate::state::Shared;
use memfit_core::driver::fork_changes::Told;
use memfit_core::{Entry, PageRange};
use memfit_os::maps::registered;
use memfit_os::procfs;
use memfit_os::proctree::{self, ProcStat};
use memfit_os::uffd::{Event, Fill};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long [`is_quiet`] looks for a moment without an unread event. After that the fault thread of
/// the parent does.
const QUIET_WITHIN: Duration = Duration::from_micros(500);

/// Whether all changes of the parent before the fork are known: no event is unread for a moment.
/// The FORK event itself is over when the thread that has forked runs again.
pub fn is_quiet(parent: &Proc) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < QUIET_WITHIN {
        if !parent.event_pending() {
            return true;
        }
        std::hint::spin_loop();
    }
    false
}

/// Waits until all changes of the parent before the fork are known.
pub fn await_told(proc: &Proc) -> Result<(), Broken> {
    let begun = Instant::now();
    let told = || proc.inherited.lock().as_ref().map_or(Told::All, |inherited| inherited.told);
    while told() == Told::NotYet && !proc.uffd.gone() {
        if begun.elapsed() > TOLD_WITHIN {
            return Err(Broken("its parent changed its memory all the time while it forked".into()));
        }
        std::thread::sleep(TOLD_POLL);
    }
    Ok(())
}

/// What is known before the first message of a child is handled.
pub struct Known {
    unclear: bool,
    /// Its process and mappings, if they decide and were found.
    seen: Option<(i32, Marks)>,
}

/// Looks at the child. `tid`: the thread whose fault is its first message; `None` if that is an
/// event, whose cause the mappings show already.
pub fn look(shared: &Shared, proc: &Proc, tid: Option<u32>) -> Result<Known, Broken> {
    let unclear = is_unclear(shared, proc);
    let decides = unclear || !proc.wiped.lock().is_empty();
    let process = match tid {
        Some(tid) => prove(proc, tid as i32),
        None if decides => last_one(shared, proc),
        None => None,
    };
    proc.found.store(process.as_ref().map_or(0, |process| process.pid), Relaxed);
    let marks = |pid| Ok(mappings(proc, pid)?.map(|text| (pid, Marks::of(&text))));
    let seen = process.filter(|_| decides).map(|process| marks(process.pid)).transpose()?.flatten();
    Ok(Known { unclear, seen })
}

/// The same for a child that has sent no message for a while. `None` if it does so now, or cannot
/// be found without one.
pub fn look_asleep(shared: &Shared, proc: &Proc) -> Result<Option<Known>, Broken> {
    await_told(proc)?;
    let Some(process) = last_one(shared, proc) else { return Ok(None) };
    let marks = mappings(proc, process.pid)?.map(|text| (process.pid, Marks::of(&text)));
    if proc.event_pending() || proc.uffd.faults_unread() > 0 {
        return Ok(None);
    }
    proc.found.store(process.pid, Relaxed);
    Ok(Some(Known { unclear: is_unclear(shared, proc), seen: marks }))
}

/// Corrects the table of the child. `event`: its first message, if it was not a fault.
pub fn begin(shared: &Arc<Shared>, proc: &Arc<Proc>, known: Known, event: Option<&Event>) -> Result<(), Broken> {
    let unclear = || Broken("which changes of its parent it has cannot be determined".into());
    match known.seen {
        Some((pid, marks)) => {
            let mut before = before(marks, event).ok_or_else(unclear)?;
            // It may have advised so itself.
            let of_parent = std::mem::take(&mut *proc.wiped.lock());
            before.wiped = before.wiped.iter().flat_map(|&(start, end)| of_parent.within(start, end)).collect();
            reconcile_with(shared, proc, pid, &before)?;
        }
        None if known.unclear && !proc.uffd.gone() => return Err(unclear()),
        None => disown_wiped(shared, proc),
    }
    *proc.inherited.lock() = None;
    Ok(())
}

/// What the mappings showed before the change that this event tells. `None` if that is not clear.
fn before(mut marks: Marks, event: Option<&Event>) -> Option<Marks> {
    match event {
        Some(&Event::Unmap { start, end }) => {
            // Something has moved there in the same call.
            if marks.registered.meets(start, end) {
                return None;
            }
            marks.registered.add(start, end);
        }
        Some(&Event::Remap { from, to, len }) => {
            let back = |at: u64| at - to + from;
            let moved: Vec<(u64, u64)> = marks.registered.within(to, to + len).collect();
            marks.registered.cut(to, to + len);
            moved.into_iter().for_each(|(start, end)| marks.registered.add(back(start), back(end)));
            for range in marks.wiped.iter_mut().filter(|range| range.0 < to + len && range.1 > to) {
                *range = (back(range.0.max(to)), back(range.1.min(to + len)));
            }
        }
        _ => {}
    }
    Some(marks)
}

/// The process with this id, if it is the one with that userfaultfd: the fork child of the parent,
/// or one in which the beacon appears that the pager fills. A process in a PID namespace tells its
/// id there, which is seldom that of a child of the same parent.
fn prove(proc: &Proc, pid: i32) -> Option<ProcStat> {
    let process = proctree::read_stat(pid).filter(|stat| stat.forked && !stat.is_dead())?;
    if process.ppid == proc.parent_pid.load(Relaxed) {
        return Some(process);
    }
    if beacon_is_there(pid, proc).ok()? {
        return None;
    }
    let filled = matches!(proc.uffd.copy_and_wake(proc.beacon.load(Relaxed), &ZERO_PAGE.0), Fill::Done);
    (filled && beacon_is_there(pid, proc).ok()?).then_some(process)
}

/// What its parent has wiped in children reads as zeros. The advice is taken for older than the
/// fork: the parent's mappings were read just after it.
fn disown_wiped(shared: &Shared, proc: &Proc) {
    let wiped = std::mem::take(&mut *proc.wiped.lock());
    for (start, end) in wiped.iter() {
        let range = PageRange::from_addresses(start, end);
        shared.in_parts(proc.id, range, |core, part| core.disown(proc.id, part));
        proc.files.lock().cut(start / 4096, end.div_ceil(4096));
    }
}

/// Whether it matters which changes of its parent the child has: whether there are some where it
/// has evicted pages, or may be some.
fn is_unclear(shared: &Shared, proc: &Proc) -> bool {
    let inherited = proc.inherited.lock();
    let Some(inherited) = &*inherited else { return false };
    let touched = inherited.changes.iter().flat_map(|change| change.touches());
    let mut evicted = false;
    for (start, end) in touched.filter(|(start, end)| start < end) {
        shared.in_parts(proc.id, PageRange::from_addresses(start, end), |core, part| {
            evicted |= core.pages(proc.id, part).iter().any(|(_, entry)| matches!(entry, Entry::Out(_)));
        });
    }
    evicted || inherited.told != Told::All || !inherited.suspects.is_empty()
}

/// The child with this pid, once the pager knows what it has. The pager can load the stub into it
/// once more, and page it.
pub fn with_pid(shared: &Shared, pid: i32) -> Option<Arc<Proc>> {
    let is_it = |proc: &&Arc<Proc>| proc.bare.load(Relaxed) && proc.found.load(Relaxed) == pid;
    let found = shared.procs.lock().iter().find(is_it).cloned();
    found.filter(|proc| proc.inherited.lock().is_none() && !proc.uffd.gone())
}

/// Kills a child that cannot be served. False if its process cannot be found.
pub fn end(shared: &Arc<Shared>, proc: &Arc<Proc>, why: &str) -> bool {
    if !proc.bare.load(Relaxed) {
        return false;
    }
    let known = Some(proc.found.load(Relaxed)).filter(|&pid| pid != 0).and_then(proctree::read_stat);
    let found = known.or_else(|| by_beacon(shared, proc)).or_else(|| last_one(shared, proc));
    let Some(process) = found else { return proc.uffd.gone() };
    if proctree::kill_exactly(&process) {
        let (pid, comm) = (process.pid, &process.comm);
        shared.outbox.announce(format!("killed process {pid} ({comm}), a fork child: {why}"));
    }
    true
}

/// The process with that userfaultfd, whose events nobody handles any more. `None` also if it has
/// its beacon from its parent.
fn by_beacon(shared: &Arc<Shared>, proc: &Arc<Proc>) -> Option<ProcStat> {
    let _one = shared.unnamed.finding.lock();
    let begun = Instant::now();
    let goes_on = || begun.elapsed() < ENDS_WITHIN && !proc.uffd.gone();
    let before: Vec<i32> = with_beacon(proc)?.into_iter().map(|stat| stat.pid).collect();
    loop {
        read_forks(shared, proc);
        match proc.uffd.copy_and_wake(proc.beacon.load(Relaxed), &ZERO_PAGE.0) {
            Fill::Done => break,
            Fill::EventPending(_) if goes_on() => std::thread::sleep(TOLD_POLL),
            _ => return None,
        }
    }
    // The event comes before the child is in /proc.
    while goes_on() {
        let mut found = with_beacon(proc)?;
        found.retain(|stat| !before.contains(&stat.pid));
        if found.len() == 1 {
            return found.pop();
        }
        std::thread::sleep(TOLD_POLL);
    }
    None
}

/// The only fork child of its parent with registered memory that nobody knows, if there is one.
fn last_one(shared: &Shared, proc: &Proc) -> Option<ProcStat> {
    let launcher = std::os::unix::process::parent_id() as i32;
    let procs = shared.procs.lock().clone();
    let known = |pid| procs.iter().any(|proc| proc.pid() == Some(pid) || proc.found.load(Relaxed) == pid);
    let is_served = |pid| procfs::read_memory(pid, "smaps").is_ok_and(|text| !registered(&text).is_empty());
    let mut others = proctree::descendants_by_lists(launcher, |_| false).ok()?;
    let parent = proc.parent_pid.load(Relaxed);
    others.retain(|stat| stat.forked && !stat.is_dead() && (parent == 0 || stat.ppid == parent) && !known(stat.pid));
    others.retain(|stat| is_served(stat.pid));
    others.pop().filter(|_| others.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(registered: &[(u64, u64)], wiped: &[(u64, u64)]) -> Marks {
        Marks { registered: registered.iter().copied().collect(), wiped: wiped.to_vec() }
    }

    #[test]
    fn a_change_of_the_child_is_taken_back() {
        let seen = |marks, event: &Event| {
            before(marks, Some(event)).map(|marks| (marks.registered.iter().collect::<Vec<_>>(), marks.wiped))
        };
        let (unmap, remap) = (Event::Unmap { start: 20, end: 30 }, Event::Remap { from: 50, to: 80, len: 10 });
        assert_eq!(seen(marks(&[(10, 20), (30, 40)], &[]), &unmap), Some((vec![(10, 40)], vec![])));
        assert_eq!(seen(marks(&[(10, 30)], &[]), &unmap), None, "another mapping has moved there");
        let moved = marks(&[(10, 20), (80, 90)], &[(12, 14), (82, 86)]);
        assert_eq!(seen(moved, &remap), Some((vec![(10, 20), (50, 60)], vec![(12, 14), (52, 56)])));
        let dropped = Event::Remove { start: 12, end: 14 };
        assert_eq!(seen(marks(&[(10, 20)], &[]), &dropped), Some((vec![(10, 20)], vec![])));
    }
}
