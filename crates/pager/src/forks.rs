//! Forks that the kernel does not report, because an ordinary user gets no fork events: the stub
//! announces them.
//!
//! Before the fork the stub leaves a notice. From then on nothing is evicted, registered mappings
//! are given to fork children, and the evicted pages are noted for the child ([`Expected`]). The
//! child waits until its stub has said hello with the number of the fork. Then its memory is
//! registered, and the note has what the child lacks. An unannounced fork meets
//! [`Dontfork`](memfit_core::driver::fork::Dontfork): the child lacks what is paged, and crashes
//! rather than reads zeros.
//!
//! Other threads of the parent can change its memory meanwhile, before or after the moment at which
//! the child got its copy. So their events stay unread until the fork has ended: a thread that
//! drops memory waits that long before it does. Only for a fault that cannot be served otherwise
//! does the pager read them earlier. The child is served when all changes of the address space are
//! known: [`memfit_core::driver::fork`] decides what the child has.

use crate::family::Family;
use crate::locks::{rank, Lock};
use crate::proc::{Broken, Identity, Io, Proc};
use crate::state::Shared;
use memfit_core::driver::fork::{Announced, Child, Lost};
use memfit_core::driver::fork_changes::Change;
use memfit_core::ranges::Ranges;
use memfit_core::{AreaId, Core, Page, PageRange, ProcId};
use memfit_os::maps::{self, Mapping};
use memfit_os::{procfs, proctree};
use memfit_wire::{BATCH_RANGES, DONTFORK};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long after the announcement of a fork the faults of other threads wait for its end. Then the
/// pager reads events for them: such a thread may hold a lock that the forking thread needs.
const FAULTS_WAIT: Duration = Duration::from_millis(10);
/// Largest range in one advice: the count of pages is a u32.
const ADVICE_BYTES: u64 = 1 << 42;
/// Pages handled under one hold of the core lock.
const CHUNK: usize = 256;
/// How long a child waits until its parent has left the fork and the changes of other threads are
/// known. A stopped parent takes longer.
pub const PARENT_IS_THROUGH: Duration = Duration::from_millis(500);
/// How long after the end of a fork its child may give no sign of life before the pager checks
/// whether there is one.
const CHILD_COMES: Duration = Duration::from_secs(1);

/// The child of an announced fork, before it has said hello.
#[derive(Debug)]
pub struct Expected {
    /// The number that it will say in its hello.
    pub token: u64,
    /// Its number in the core, whose table has the evicted pages for it.
    pub id: ProcId,
    /// Its staging area.
    pub area: AreaId,
    /// It shares pages with them as soon as it is there.
    pub family: Family,
    parent: Weak<Proc>,
    /// The thread that forks, 0 if unknown, and the children that it had.
    forker: u32,
    children: Option<String>,
    descriptors: BTreeSet<Page>,
    since: Instant,
    /// What has happened in the parent since it was made.
    window: Lock<Window, { rank::FORK_WINDOW }>,
}

#[derive(Debug)]
struct Window {
    fork: Announced,
    ended: Option<Instant>,
}

impl Expected {
    /// Whether a fault of that thread must wait.
    pub fn may_wait(&self, tid: u32) -> bool {
        tid != 0 && tid != self.forker && self.since.elapsed() < FAULTS_WAIT
    }

    /// As [`Announced::bring_back`].
    pub fn bring_back(&self, pages: impl Iterator<Item = Page>) {
        self.window.lock().fork.bring_back(pages);
    }

    /// As [`Announced::not_brought`].
    pub fn not_brought(&self, pages: impl Iterator<Item = Page>) {
        self.window.lock().fork.not_brought(pages);
    }

    /// A range of the parent is about to be zapped. The thread `served` certainly waits since
    /// before the pager read that event; 0: none does. `resident` finds a page of the range in
    /// memory, except those that its argument excludes.
    pub fn dropped(
        &self,
        range: (u64, u64),
        served: u32,
        resident: impl FnOnce(&dyn Fn(Page) -> bool) -> Option<Page>,
    ) {
        let fork = &mut self.window.lock().fork;
        // What is read after the fork's end happened after it.
        if fork.has_ended() {
            return;
        }
        let resident_page = resident(&|page| fork.was_brought(page));
        // The forking thread has waited since it faulted or left its notice, and there is no child.
        let now = || self.parent.upgrade().and_then(|parent| children(&parent, self.forker));
        let before = served != 0 && served == self.forker && self.children.is_some() && self.children == now();
        fork.dropped(range, before, resident_page);
    }

    /// The parent's address space was changed.
    pub fn changed(&self, change: Change) {
        self.window.lock().fork.changed(change);
    }

    /// The parent has left the fork.
    pub fn ended(&self) {
        let mut window = self.window.lock();
        window.fork.end();
        window.ended = Some(Instant::now());
    }

    /// As [`Announced::parent_goes_on`].
    pub fn parent_goes_on(&self, complete: bool) {
        self.window.lock().fork.parent_goes_on(complete);
    }

    /// Whether the child, ready since that time, must wait for its parent.
    pub fn waits_for_parent(&self, ready: Instant) -> bool {
        let lives = || self.parent.upgrade().is_some_and(|parent| !parent.removed.load(Relaxed));
        self.window.lock().fork.waits_for_parent() && ready.elapsed() < PARENT_IS_THROUGH && lives()
    }
}

impl Proc {
    /// The child of the announced fork under way.
    pub fn expected(&self) -> Option<Arc<Expected>> {
        if !self.forking.load(Relaxed) {
            return None;
        }
        self.expected.lock().clone()
    }

    /// Posts a DONTFORK batch if there are open ranges. The caller rings the bell when `io` is
    /// free. The process must be idle.
    pub fn post_dontfork(&self, io: &mut Io) -> bool {
        let open = self.open_pieces();
        if open.is_empty() {
            return false;
        }
        self.post_advice(io, &open[..open.len().min(BATCH_RANGES)], DONTFORK);
        true
    }

    /// Ranges that are not kept from fork children yet.
    pub fn open_pieces(&self) -> Vec<(u64, u64)> {
        pieces(self.dontfork.lock().open().iter())
    }

    /// Ranges kept from fork children that the program would have given them: those that the stub
    /// kept, what has grown out of them since, and what was kept by mistake because another mapping
    /// had taken its place.
    pub fn to_dofork(&self) -> Vec<(u64, u64)> {
        let Some(identity) = self.identity.get() else { return Vec::new() };
        let smaps = procfs::read_memory(identity.pid, "smaps").unwrap_or_default();
        let mut own = self.dontfork.lock().kept().clone();
        identity.forbidden.iter().for_each(|&(s, e)| own.add(s, e));
        let plain: Ranges = maps::private_anonymous(&smaps).into_iter().collect();
        let kept = maps::not_in_children(&smaps).into_iter();
        if smaps.is_empty() {
            // The pager may not read smaps any more; what is registered was kept from children.
            let regions: Vec<_> = self.regions.lock().iter().collect();
            return pieces(regions.into_iter().flat_map(|(s, e)| own.gaps(s, e)));
        }
        let parts: Vec<_> = kept.flat_map(|(s, e)| plain.within(s, e).collect::<Vec<_>>()).collect();
        pieces(parts.into_iter().flat_map(|(s, e)| own.gaps(s, e)))
    }

    /// The registered memory that has the mark and comes to fork children.
    fn marked(&self) -> Ranges {
        let (dontfork, regions) = (self.dontfork.lock(), self.regions.lock());
        dontfork.marked(&regions)
    }

    /// After a fork: all must be kept from children again, as whole mappings, so that none is
    /// split.
    pub fn reopen_dontfork(&self, identity: &Identity) {
        let all = match identity.maps.lock().read() {
            Ok(text) => maps::private_anonymous(text),
            Err(_) => Vec::new(),
        };
        let mut dontfork = self.dontfork.lock();
        let regions = self.regions.lock();
        let ranges = all.into_iter().filter(|&(s, e)| regions.meets(s, e)).chain(regions.iter());
        dontfork.reopen(ranges, &identity.forbidden);
    }

    /// The program keeps a range from its fork children.
    pub fn keep_from_children(&self, start: u64, end: u64) {
        self.dontfork.lock().keep(start, end);
    }

    /// The program gives a range to its fork children, which has undone the stub's DONTFORK.
    pub fn give_to_children(&self, start: u64, end: u64) {
        let mut dontfork = self.dontfork.lock();
        dontfork.give((start, end), self.regions.lock().within(start, end));
    }
}

/// The children of a thread, as the kernel lists them.
fn children(parent: &Proc, tid: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{}/task/{tid}/children", parent.pid()?)).ok()
}

/// Splits ranges into parts that fit into one advice each.
fn pieces(ranges: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let cut = |(start, end): (u64, u64)| {
        let at = (start..end).step_by(ADVICE_BYTES as usize);
        at.map(move |s| (s, end.min(s + ADVICE_BYTES)))
    };
    ranges.flat_map(cut).collect()
}

/// Where thread descriptors are, also of ended threads: a new thread starts there unseen by the
/// pager.
pub fn descriptors_in(mappings: &[Mapping]) -> impl Iterator<Item = u64> {
    maps::ends_of_stacks(mappings).into_iter().flat_map(|end| end / 4096 - 2..end / 4096)
}

/// Pages that glibc touches in a fork child before any fork handler of the stub, though not in the
/// parent: its own variables and the descriptors of ended threads.
pub fn used_by_libc(proc: &Proc) -> Vec<Page> {
    let Some(identity) = proc.identity.get() else { return Vec::new() };
    let descriptors = proc.descriptors.lock().clone();
    let mut maps = identity.maps.lock();
    let Ok(text) = maps.read() else { return Vec::new() };
    let data = maps::data_of_libc(text).into_iter().flat_map(|(s, e)| s / 4096..e / 4096);
    data.chain(descriptors_in(&maps::evictable(text))).map(Page).chain(descriptors).collect()
}

/// Notes what the child of an announced fork will lack. Called by the parent's fault thread, with
/// the batch drained.
pub fn expect(shared: &Shared, parent: &Arc<Proc>, forker: u32) -> Arc<Expected> {
    // It does not fail for eight bytes.
    let token = memfit_os::process::random_bytes().map_or(0, u64::from_ne_bytes);
    // Nothing is adopted meanwhile.
    let _io = parent.io.lock();
    let mut state = shared.lock();
    let (id, area) = state.core.forked(parent.id, (shared.budget.sizes.staging / 4096) as u32, false);
    shared.apply_effects(state);
    shared.in_parts(parent.id, PageRange::ALL, |core, part| core.inherit(id, part));
    let expected = Arc::new(Expected {
        token: token.max(1),
        id,
        area,
        family: parent.family.of_child(),
        parent: Arc::downgrade(parent),
        forker,
        children: children(parent, forker),
        descriptors: parent.descriptors.lock().clone(),
        since: Instant::now(),
        window: Lock::new(Window { fork: Announced::new(parent.marked()), ended: None }),
    });
    *parent.expected.lock() = Some(Arc::clone(&expected));
    shared.expected.lock().push(Arc::clone(&expected));
    expected
}

/// Takes the expected child with this number: it has come.
pub fn take(shared: &Shared, token: u64) -> Option<Arc<Expected>> {
    let mut all = shared.expected.lock();
    let i = all.iter().position(|e| e.token == token)?;
    Some(all.swap_remove(i))
}

/// The child will not come, or cannot go on.
pub fn forget(shared: &Shared, expected: &Expected) {
    shared.in_parts(expected.id, PageRange::ALL, |core, part| core.disown(expected.id, part));
    let mut state = shared.lock();
    state.core.remove_process(expected.id);
    shared.apply_effects(state);
    shared.outbox.wake_control();
}

/// The kernel gives this announced child no stub thread, so it ends.
pub fn without_thread(shared: &Shared, pid: i32, token: u64) {
    let Some(expected) = take(shared, token) else { return };
    let comm = memfit_os::procfs::comm(pid).unwrap_or_default();
    let fix = "raise ulimit -u or pids.max";
    shared.outbox.announce(format!("killed process {pid} ({comm}), a fork child: no thread for memfit in it; {fix}"));
    forget(shared, &expected);
}

/// Forgets children that never were, or died before they named themselves: a fork can fail. There
/// is none as long as one of the `unknown` processes of the tree may be one.
pub fn forget_lost(shared: &Shared, unknown: &[proctree::ProcStat]) {
    let over = |e: &Arc<Expected>| {
        let window = e.window.lock();
        let gone = || e.parent.upgrade().is_none_or(|p| p.removed.load(Relaxed));
        window.ended.is_some_and(|at| at.elapsed() > CHILD_COMES) || gone()
    };
    let lost: Vec<Arc<Expected>> = {
        let mut all = shared.expected.lock();
        if !all.iter().any(over) || unknown.iter().any(|process| process.forked) {
            return;
        }
        let (lost, kept) = all.drain(..).partition(over);
        *all = kept;
        lost
    };
    lost.iter().for_each(|expected| forget(shared, expected));
}

/// The child has come: registers what it inherited, and corrects its table. After an error it
/// cannot go on with right data.
///
/// Other threads of the parent could change its memory during the fork, before or after the moment
/// at which the child got its copy. Paged memory is marked ([`memfit_wire::DONTFORK`]), and the
/// mark shows whether a mapping is the old one.
pub fn inherit(shared: &Arc<Shared>, proc: &Arc<Proc>, identity: &Identity, expected: &Expected) -> Result<(), Broken> {
    let broken = |what: &str, error: std::io::Error| Broken(format!("its memory cannot be {what} after fork: {error}"));
    let smaps = procfs::read_memory(identity.pid, "smaps").map_err(|e| broken("looked at", e))?;
    let lazy: Ranges = maps::lazily_freed(&smaps).into_iter().collect();
    let marked = marked(&smaps, &identity.forbidden);
    let mut mine = marked.clone();
    for (start, end) in maps::wiped_in_children(&smaps) {
        mine.cut(start, end);
    }
    let window = expected.window.lock();
    for (start, end) in mine.iter() {
        proc.uffd.register_memory(start, end - start).map_err(|e| broken("registered", e))?;
    }
    let mut present = Vec::new();
    for (start, end) in mine.iter() {
        let found = |s: u64, e: u64, zero| present.extend((s..e).step_by(4096).map(|at| (Page::of(at), zero)));
        identity.pagemap.present(start, end, found).map_err(|e| broken("looked at", e))?;
    }
    let child = Child { id: proc.id, fork: &window.fork, marked: &marked, mine: &mine, present: &present, lazy: &lazy };
    let applied = with_core(shared, |core| child.apply_changes(core))?;
    with_core(shared, |core| {
        child.disown_rest(core);
        Ok(())
    })?;
    for drop in child.drops(&applied) {
        with_core(shared, |core| child.apply_drop(core, drop))?;
    }
    for pages in present.chunks(CHUNK) {
        with_core(shared, |core| child.adopt(core, &applied, pages))?;
        shared.let_others();
    }
    drop(window);
    // Until its share is measured, all that it has counts as its parent's.
    let state = shared.lock();
    shared.budget.doubled.fetch_add(state.core.present_pages(proc.id) * 4096, Relaxed);
    shared.apply_effects(state);
    *proc.regions.lock() = mine;
    *proc.descriptors.lock() = expected.descriptors.clone();
    proc.reopen_dontfork(identity);
    if let Some(parent) = expected.parent.upgrade().filter(|p| !p.removed.load(Relaxed)) {
        let guarded = parent.guarded.lock().clone();
        *proc.guarded.lock() = guarded;
    }
    Ok(())
}

/// One step for a fork child, under one hold of the core lock.
pub fn with_core<T>(shared: &Shared, step: impl FnOnce(&mut Core) -> Result<T, Lost>) -> Result<T, Broken> {
    let mut state = shared.lock();
    let result = step(&mut state.core);
    shared.apply_effects(state);
    result.map_err(|lost| Broken(lost.to_string()))
}

/// The paged memory that a fork child has, wiped or not. Without the stub's own, which may lie
/// where something was.
fn marked(smaps: &str, forbidden: &[(u64, u64)]) -> Ranges {
    let plain: Ranges = maps::private_anonymous(smaps).into_iter().collect();
    let marked = maps::without_huge_pages(smaps).into_iter();
    let mut out: Ranges = marked.flat_map(|(s, e)| plain.within(s, e).collect::<Vec<_>>()).collect();
    for &(start, end) in forbidden {
        out.cut(start, end);
    }
    out
}

/// Notes what the program keeps from its fork children when it is first paged.
pub fn kept_by_program(proc: &Proc, pid: i32) {
    let text = procfs::read_memory(pid, "smaps").unwrap_or_default();
    proc.dontfork.lock().kept_before(maps::not_in_children(&text).into_iter().collect());
}

/// Whether no child is expected any more.
pub fn none_expected(shared: &Shared) -> bool {
    shared.expected.lock().is_empty()
}
