//! Forks that the kernel does not report, because an ordinary user gets no fork events: the stub
//! announces them.
//!
//! Before the fork the stub leaves a notice. From then on nothing is evicted, registered mappings
//! are given to fork children, and the evicted pages are noted for the child ([`Expected`]). The
//! child waits until its stub has said hello with the number of the fork. Then its memory is
//! registered, and the note has what the child lacks. An unannounced fork meets [`Dontfork`]: the
//! child lacks what is paged, and crashes rather than reads zeros.
//!
//! Other threads of the parent can change its memory meanwhile, before or after the moment at which
//! the child got its copy. So their events stay unread until the fork has ended: a thread that
//! drops memory waits that long before it does. Only for a fault that cannot be served otherwise
//! does the pager read them earlier. The child is served when all changes of the address space are
//! known: [`fork_changes`] says which of them the child has.

use crate::family::Family;
use crate::fork_changes::{self, Change};
use crate::locks::{rank, Lock};
use crate::proc::{Broken, Identity, Io, Proc};
use crate::state::Shared;
use memfit_core::ranges::Ranges;
use memfit_core::{AreaId, Core, Entry, Page, PageRange, ProcId};
use memfit_os::maps::{self, Mapping};
use memfit_os::proctree;
use memfit_wire::{BATCH_RANGES, DONTFORK};
use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long a fault of another thread waits for the end of a fork before the pager reads events for
/// it. That thread may hold a lock that the forking thread needs.
const FAULTS_WAIT: Duration = Duration::from_millis(10);
/// End of the addresses of programs.
const ADDRESSES_END: u64 = 1 << 56;
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

/// Which memory of a process is kept from fork children, and which is not yet.
#[derive(Debug, Default)]
pub struct Dontfork {
    /// Registered, but not kept from fork children yet: while there is any, nothing is evicted from
    /// the process.
    pub open: Ranges,
    /// What the program itself keeps from fork children.
    kept: Ranges,
    /// What the stub has kept from children: it has the mark. All evicted pages are in it.
    marked: Ranges,
    /// Registered since the DONTFORK batch was posted: it may not be part of that.
    late: Ranges,
    /// Changes when `open` loses ranges that may be in a batch.
    pub generation: u32,
}

impl Dontfork {
    /// A range was registered.
    pub fn registered(&mut self, start: u64, end: u64) {
        for (s, e) in self.kept.gaps(start, end) {
            self.open.add(s, e);
            self.late.add(s, e);
        }
    }

    /// The open ranges are posted as a DONTFORK batch. Returns the generation.
    pub fn posted(&mut self) -> u32 {
        self.late = Ranges::default();
        self.generation
    }

    /// A range of the posted batch is kept from children now.
    pub fn kept_from_children(&mut self, start: u64, end: u64) {
        for (s, e) in self.late.gaps(start, end) {
            self.open.cut(s, e);
            self.marked.add(s, e);
        }
    }

    /// A range is no longer the mapping that it was.
    pub fn unmapped(&mut self, start: u64, end: u64) {
        if self.open.cut(start, end) {
            self.generation += 1;
        }
        self.kept.cut(start, end);
        self.marked.cut(start, end);
    }

    /// A mapping was moved. The kernel moves its advice along; advice that is still to be given is
    /// to be given there.
    pub fn moved(&mut self, from: u64, to: u64, len: u64) {
        for ranges in [&mut self.open, &mut self.kept, &mut self.marked] {
            ranges.copy(from, to, len);
        }
    }
}

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
    /// The thread that forks, and the children that it had.
    forker: u32,
    children: Option<String>,
    descriptors: BTreeSet<Page>,
    /// What was marked in the parent at the fork.
    marked: Ranges,
    since: Instant,
    /// What has happened in the parent since, until the fork had ended: some of it before there was
    /// a child.
    window: Lock<Window, { rank::FORK_WINDOW }>,
}

#[derive(Debug, Default)]
struct Window {
    /// Pages brought back, by their addresses before all changes.
    brought: HashSet<u64>,
    /// Ranges that the program dropped.
    dropped: Vec<Dropped>,
    /// Changes of the parent's address space.
    changes: Vec<Change>,
    ended: Option<Instant>,
    /// Set when the parent goes on: true if all changes before its fork's end are known, because no
    /// event was unread for a moment.
    told: Option<bool>,
}

/// A range that another thread was about to drop while the parent forked.
#[derive(Debug, Clone, Copy)]
struct Dropped {
    start: u64,
    end: u64,
    /// How many changes came before.
    changes: usize,
    /// It was certainly dropped before the child was made.
    before: bool,
    /// A page of it that was in memory when the child was expected.
    resident_page: Option<Page>,
}

impl Expected {
    /// Whether a fault of that thread must wait.
    pub fn may_wait(&self, tid: u32) -> bool {
        tid != 0 && tid != self.forker && self.since.elapsed() < FAULTS_WAIT
    }

    /// Pages are about to be brought back in the parent. Called before the COPY: the thread that
    /// waits for a page may have forked before this thread runs again.
    pub fn bring_back(&self, pages: impl Iterator<Item = Page>) {
        let Window { brought, changes, .. } = &mut *self.window.lock();
        brought.extend(pages.map(|page| Page::of(fork_changes::first_address(changes, page.address())).0));
    }

    /// These pages could not be brought back.
    pub fn not_brought(&self, pages: impl Iterator<Item = Page>) {
        let Window { brought, changes, .. } = &mut *self.window.lock();
        for page in pages {
            brought.remove(&Page::of(fork_changes::first_address(changes, page.address())).0);
        }
    }

    /// A range of the parent is about to be zapped; the fault of the thread `served` made the pager
    /// read that event. `resident` finds a page of the range that is in memory, except those that
    /// its argument excludes. What is read after the fork's end happened after it.
    pub fn dropped(
        &self,
        (start, end): (u64, u64),
        served: u32,
        resident: impl FnOnce(&dyn Fn(Page) -> bool) -> Option<Page>,
    ) {
        let mut window = self.window.lock();
        if window.ended.is_some() {
            return;
        }
        // A page that was brought back may be in the parent alone.
        let first = |page: Page| Page::of(fork_changes::first_address(&window.changes, page.address()));
        let resident_page = resident(&|page| window.brought.contains(&first(page).0));
        // The forking thread has waited since it faulted, and there is no child.
        let now = || self.parent.upgrade().and_then(|parent| children(&parent, self.forker));
        let before = served == self.forker && self.children.is_some() && self.children == now();
        let changes = window.changes.len();
        window.dropped.push(Dropped { start, end, changes, before, resident_page });
    }

    /// The parent's address space was changed.
    pub fn changed(&self, change: Change) {
        self.window.lock().changes.push(change);
    }

    /// The parent has left the fork.
    pub fn ended(&self) {
        self.window.lock().ended = Some(Instant::now());
    }

    /// The parent goes on; `all`: no event was unread for a moment.
    pub fn told(&self, all: bool) {
        self.window.lock().told = Some(all);
    }

    /// Whether the child, ready since that time, must wait for its parent.
    pub fn waits_for_parent(&self, ready: Instant) -> bool {
        let lives = || self.parent.upgrade().is_some_and(|parent| !parent.removed.load(Relaxed));
        self.window.lock().told.is_none() && ready.elapsed() < PARENT_IS_THROUGH && lives()
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
        pieces(self.dontfork.lock().open.iter())
    }

    /// Ranges kept from fork children that the program would have given them: those that the stub
    /// kept, what has grown out of them since, and what was kept by mistake because another mapping
    /// had taken its place.
    pub fn to_dofork(&self) -> Vec<(u64, u64)> {
        let Some(identity) = self.identity.get() else { return Vec::new() };
        let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", identity.pid)).unwrap_or_default();
        let mut own = self.dontfork.lock().kept.clone();
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
        let mut marked: Ranges =
            dontfork.marked.iter().flat_map(|(s, e)| regions.within(s, e).collect::<Vec<_>>()).collect();
        for (start, end) in dontfork.kept.iter() {
            marked.cut(start, end);
        }
        marked
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
        let parts = all.into_iter().filter(|&(s, e)| regions.meets(s, e)).chain(regions.iter());
        let parts: Vec<_> = parts.flat_map(|(s, e)| dontfork.kept.gaps(s, e)).collect();
        dontfork.open = parts.into_iter().collect();
        for &(s, e) in &identity.forbidden {
            dontfork.open.cut(s, e);
        }
        dontfork.generation += 1;
    }

    /// The program keeps a range from its fork children.
    pub fn keep_from_children(&self, start: u64, end: u64) {
        let mut dontfork = self.dontfork.lock();
        dontfork.kept.add(start, end);
        dontfork.open.cut(start, end);
        dontfork.generation += 1;
    }

    /// The program gives a range to its fork children, which has undone the stub's DONTFORK.
    pub fn give_to_children(&self, start: u64, end: u64) {
        let mut dontfork = self.dontfork.lock();
        dontfork.kept.cut(start, end);
        let parts: Vec<_> = self.regions.lock().within(start, end).collect();
        parts.into_iter().for_each(|(s, e)| dontfork.open.add(s, e));
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
    data.chain(descriptors_in(&maps::evictable(text, "/"))).map(Page).chain(descriptors).collect()
}

/// Notes what the child of an announced fork will lack. Called by the parent's fault thread, with
/// the batch drained.
pub fn expect(shared: &Shared, parent: &Arc<Proc>, forker: u32) -> Arc<Expected> {
    // It does not fail for eight bytes.
    let token = memfit_os::process::random_bytes().map_or(0, u64::from_ne_bytes);
    // Nothing is adopted meanwhile.
    let _io = parent.io.lock();
    let mut state = shared.lock();
    let (id, area) = state.core.forked(parent.id, (shared.sizes.staging / 4096) as u32, false);
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
        marked: parent.marked(),
        since: Instant::now(),
        window: Lock::default(),
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
    let mut state = shared.lock();
    state.core.remove_process(expected.id);
    shared.apply_effects(state);
    shared.outbox_event.raise();
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
    let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", identity.pid)).map_err(|e| broken("looked at", e))?;
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
    let before = changes(shared, proc, expected, &window, &marked, &present)?;
    let mut state = shared.lock();
    for (start, end) in mine.gaps(0, ADDRESSES_END) {
        state.core.disown(proc.id, PageRange::from_addresses(start, end));
    }
    shared.apply_effects(state);
    for range in &window.dropped {
        let carried = |start, end| fork_changes::carried(&window.changes, &before, range.changes, (start, end));
        let Some(now) = carried(range.start, range.end) else { continue };
        let resident_page = range.resident_page.and_then(|page| {
            let now = carried(page.address(), page.address() + 4096)?;
            let (start, _) = now.iter().next()?;
            Some(Page::of(start))
        });
        for (s, e) in now.iter().flat_map(|(s, e)| mine.within(s, e).collect::<Vec<_>>()) {
            dropped(shared, proc, PageRange::from_addresses(s, e), (range.before, resident_page), &present)?;
        }
    }
    let made: Vec<Change> = window.changes.iter().zip(&before).filter(|(_, &before)| before).map(|(&c, _)| c).collect();
    for chunk in present.chunks(CHUNK) {
        let mut state = shared.lock();
        for &(page, zero) in chunk {
            let at = page.address();
            let first = || Page::of(fork_changes::first_address(&made, at)).0;
            if matches!(state.core.entry(proc.id, page), Entry::Out(_)) {
                // Brought back in the parent before there was a child: the child has it, too. Else
                // it is a new, empty page.
                if !window.brought.contains(&first()) {
                    shared.apply_effects(state);
                    return Err(Broken(format!("page {at:#x} was touched in a fork child before it could be served")));
                }
                state.core.disown(proc.id, PageRange { first: page, pages: 1 });
            }
            state.core.adopt(proc.id, page, zero || lazy.meets(at, at + 1));
        }
        shared.end_part(state);
    }
    drop(window);
    // Until its share is measured, all that it has counts as its parent's.
    let state = shared.lock();
    shared.doubled.fetch_add(state.core.present_pages(proc.id) * 4096, Relaxed);
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

/// Applies to the child's table the changes that the child has, and returns which these are.
fn changes(
    shared: &Shared,
    proc: &Proc,
    expected: &Expected,
    window: &Window,
    marked: &Ranges,
    present: &[(Page, bool)],
) -> Result<Vec<bool>, Broken> {
    if window.told != Some(true) && fork_changes::more_has_changed(&window.changes, &expected.marked, marked) {
        return Err(Broken("another thread of its parent changed its address space while it was forked".into()));
    }
    let touched = |at, first| is_present(present, Page::of(at)) && !window.brought.contains(&Page::of(first).0);
    apply_made(shared, proc, &window.changes, &expected.marked, marked, touched)
}

/// As [`fork_changes::made_before`]; also applies those changes to the child's table.
pub fn apply_made(
    shared: &Shared,
    proc: &Proc,
    changes: &[Change],
    had: &Ranges,
    has: &Ranges,
    touched: impl Fn(u64, u64) -> bool,
) -> Result<Vec<bool>, Broken> {
    let mut state = shared.lock();
    let outside =
        |start, end| all_out(&state.core, proc.id, PageRange::from_addresses(start, end)).map(Page::address).collect();
    let before = fork_changes::made_before(changes, had, has, outside, touched);
    for (change, _) in changes.iter().zip(before.iter().flatten()).filter(|(_, &before)| before) {
        match *change {
            Change::Unmapped(start, end) | Change::Came(start, end) => {
                state.core.disown(proc.id, PageRange::from_addresses(start, end));
            }
            Change::Moved(from, to, len) => {
                state.core.remapped(proc.id, PageRange::from_addresses(from, from + len), Page::of(to));
            }
        }
    }
    shared.apply_effects(state);
    before.map_err(|at| Broken(format!("another thread of its parent changed what is at {at:#x} while it was forked")))
}

fn is_present(present: &[(Page, bool)], page: Page) -> bool {
    present.binary_search_by_key(&page.0, |p| p.0 .0).is_ok()
}

/// A range of the parent was about to be zapped at the moment of the fork. If the zap came first,
/// the child needs nothing of it; else it needs all. A page that was in memory shows which.
fn dropped(
    shared: &Shared,
    proc: &Proc,
    range: PageRange,
    (before, resident_page): (bool, Option<Page>),
    present: &[(Page, bool)],
) -> Result<(), Broken> {
    let mut state = shared.lock();
    let Some(page) = all_out(&state.core, proc.id, range).next() else { return Ok(()) };
    let result = match resident_page {
        Some(resident_page) if !before && is_present(present, resident_page) => Ok(()),
        None if !before => {
            let at = page.address();
            Err(Broken(format!("another thread of its parent dropped page {at:#x} while it was forked")))
        }
        _ => {
            state.core.disown(proc.id, range);
            Ok(())
        }
    };
    shared.apply_effects(state);
    result
}

/// The evicted pages of a range.
fn all_out(core: &Core, proc: ProcId, range: PageRange) -> impl Iterator<Item = Page> + '_ {
    let pages = (range.first.0..range.end()).map(Page);
    pages.filter(move |&page| matches!(core.entry(proc, page), Entry::Out(_)))
}

/// Notes what the program keeps from its fork children when it is first paged.
pub fn kept_by_program(proc: &Proc, pid: i32) {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
    proc.dontfork.lock().kept = maps::not_in_children(&text).into_iter().collect();
}

/// Whether no child is expected any more.
pub fn none_expected(shared: &Shared) -> bool {
    shared.expected.lock().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_registered_during_dontfork_stays_open() {
        let mut dontfork = Dontfork::default();
        dontfork.registered(0x1000, 0x9000);
        let posted = dontfork.posted();
        dontfork.registered(0x9000, 0xa000);
        dontfork.registered(0x4000, 0x5000);
        dontfork.kept_from_children(0x1000, 0x9000);
        assert_eq!(dontfork.generation, posted, "the rest is kept from children");
        assert_eq!(dontfork.open.iter().collect::<Vec<_>>(), [(0x4000, 0x5000), (0x9000, 0xa000)]);
        assert_eq!(dontfork.marked.iter().collect::<Vec<_>>(), [(0x1000, 0x4000), (0x5000, 0x9000)]);
        dontfork.moved(0x1000, 0x2_0000, 0x1000);
        dontfork.unmapped(0x1000, 0x2000);
        assert!(dontfork.marked.meets(0x2_0000, 0x2_1000) && !dontfork.marked.meets(0x1000, 0x2000));
    }
}
