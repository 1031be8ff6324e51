//! Processes in the background: they leave memory as a whole, and come back. `memfit bg` and
//! `memfit fg` tell them.
//!
//! A process that is told to leave is first paged, and all of its memory registered: the monitor
//! does that, however much is free. Then the core reclaims it ([`Core::reclaim_process`]). When it
//! is told to come back, its fault thread brings its working set ([`Core::working_set`]), in
//! address order, while no fault waits. It brings what finds room: no thread waits for these pages.
//!
//! [`Core::reclaim_process`]: memfit_core::Core::reclaim_process
//! [`Core::working_set`]: memfit_core::Core::working_set

use crate::clients::{Client, MANAGED, REFUSED};
use crate::config::{Order, Standing, Told, What};
use crate::control::Desk;
use crate::proc::Proc;
use crate::state::Shared;
use memfit_core::{Page, PageRange};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// It is in the foreground.
pub const FOREGROUND: u32 = 0;
/// It was told to leave at once, and the monitor has not seen to it yet.
pub const TOLD_TO_LEAVE: u32 = 1;
/// It was told to leave when memory is short, and was not paged yet when the monitor last looked.
pub const TOLD_TO_WAIT: u32 = 2;
/// It is in the background, and the core knows it.
pub const BACKGROUND: u32 = 3;

/// When there is no room for this long, the other pages do not come back before they are touched.
const RETURNS_WITHIN: Duration = Duration::from_secs(10);

/// Pages of a process that come back together.
#[derive(Debug, Default)]
pub struct Returning {
    ranges: VecDeque<PageRange>,
    /// They are to come back, and are not known yet.
    wanted: bool,
    begun: Option<Instant>,
    /// When a page was last taken from the list.
    last: Option<Instant>,
    took: Option<Duration>,
    /// Pages that were outside when it was told to come back.
    pages: u64,
    /// Of these, pages that found no room.
    left_out: u64,
    /// Further pages, which stay outside until they are touched.
    on_trial: u64,
}

impl Returning {
    /// The next page, and those of its range that follow.
    pub fn next_pages(&mut self) -> Option<PageRange> {
        let range = self.ranges.front_mut()?;
        self.last = Some(Instant::now());
        let pages = *range;
        *range = PageRange { first: Page(pages.first.0 + 1), pages: pages.pages - 1 };
        if range.pages == 0 {
            self.ranges.pop_front();
            if self.ranges.is_empty() {
                self.end();
            }
        }
        Some(pages)
    }

    /// Whether pages are left.
    pub fn is_under_way(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Whether the pages must be found first.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// There is no room now. After a while that is the end.
    pub fn no_room(&mut self) {
        if self.last.or(self.begun).is_some_and(|last| last.elapsed() > RETURNS_WITHIN) {
            self.end();
        }
    }

    fn begin(&mut self, ranges: VecDeque<PageRange>, on_trial: u64) {
        let pages = ranges.iter().map(|range| range.pages).sum();
        *self = Returning { ranges, begun: Some(Instant::now()), pages, on_trial, ..Returning::default() };
        if pages == 0 {
            self.end();
        }
    }

    /// Pages that have not come back.
    fn rest(&self) -> u64 {
        self.ranges.iter().map(|range| range.pages).sum()
    }

    fn end(&mut self) {
        self.left_out = self.rest();
        self.ranges.clear();
        self.took = self.begun.map(|begun| begun.elapsed());
    }
}

/// What a process was told: it holds for the programs that the process executes.
#[derive(Debug, Clone, Copy)]
pub struct LastOrder {
    /// When the process started.
    started: u64,
    standing: u32,
    told: bool,
    told_at: u64,
}

impl LastOrder {
    /// `None` if the process was told nothing.
    pub fn of(client: &Client) -> Option<LastOrder> {
        let (standing, told) = (client.standing.load(Relaxed), client.told.load(Relaxed));
        // The core does not know the next program.
        let standing = if standing == BACKGROUND { TOLD_TO_WAIT } else { standing };
        let order = LastOrder { started: client.started, standing, told, told_at: client.told_at.load(Relaxed) };
        (told || standing != FOREGROUND).then_some(order)
    }

    /// Tells it the next program of the process.
    pub fn pass_on(self, client: &Client) {
        if self.started == client.started && self.started != 0 {
            client.standing.store(self.standing, Relaxed);
            client.told.store(self.told, Relaxed);
            client.told_at.store(self.told_at, Relaxed);
        }
    }
}

/// Carries out an order, and tells how the process stands now.
pub fn carry_out(desk: &Desk, order: &Order) -> Told {
    let client = desk.clients.lock().iter().rfind(|client| client.pid == order.pid).cloned();
    let Some(client) = client.filter(|client| !client.gone.load(Relaxed)) else { return Told::default() };
    match order.what {
        What::Leave => leave(&desk.shared, &client, TOLD_TO_LEAVE, By::Name),
        What::LeaveWhenShort => leave(&desk.shared, &client, TOLD_TO_WAIT, By::Name),
        What::ComeBack => come_back(&desk.shared, &client, By::Name),
        What::Tell => {}
    }
    Told {
        standing: standing(&desk.shared, &client),
        comm: client.comm.clone(),
        resident_bytes: client.rss.read().map_or(0, |rss| rss.anon),
    }
}

/// Who moves a process to the background and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// An order that names it: it outweighs the rule from then on.
    Name,
    /// The rule of `--background`.
    Rule,
    /// Memory is short outside of the tree, and the process is in the background already.
    Shortage,
}

/// Whether the order or the rule counts. Called with the core's lock held: who comes later sees it.
fn counts(client: &Client, by: By) -> bool {
    match by {
        By::Name => {
            client.told.store(true, Relaxed);
            true
        }
        By::Rule => !client.told.load(Relaxed),
        By::Shortage => client.standing.load(Relaxed) != FOREGROUND,
    }
}

/// The process is in the background from now on; `told` says when it leaves.
pub fn leave(shared: &Shared, client: &Client, told: u32, by: By) {
    let state = shared.lock();
    if !counts(client, by) {
        return;
    }
    client.standing.store(told, Relaxed);
    client.told_at.store(shared.tick(), Relaxed);
    drop(state);
    let proc = client.proc.lock().clone();
    if let Some(proc) = proc {
        *proc.returning.lock() = Returning::default();
    }
}

/// The process is paged. If it was told to leave at once, its memory is registered, and it leaves
/// now.
pub fn begin(shared: &Shared, client: &Client, proc: &Proc) {
    let mut state = shared.lock();
    // It may have been told otherwise meanwhile: its standing changes under the same lock.
    let told = client.standing.load(Relaxed);
    if matches!(told, TOLD_TO_LEAVE | TOLD_TO_WAIT) && !proc.removed.load(Relaxed) {
        client.standing.store(BACKGROUND, Relaxed);
        // One that `--on-full stop` has chosen before stays protected.
        if !state.core.is_background(proc.id) {
            state.core.protect(proc.id, false);
        }
        state.core.set_background(proc.id, true);
        *proc.returning.lock() = Returning::default();
        if told == TOLD_TO_LEAVE {
            state.core.reclaim_process(proc.id);
        }
    }
    shared.apply_effects(state);
    shared.budget.want_reclaim();
}

/// The process is in the foreground from now on, and its working set comes back.
pub fn come_back(shared: &Shared, client: &Client, by: By) {
    let proc = client.proc.lock().clone();
    let mut state = shared.lock();
    if !counts(client, by) {
        return;
    }
    client.standing.store(FOREGROUND, Relaxed);
    let Some(proc) = proc.filter(|proc| !proc.removed.load(Relaxed)) else { return };
    state.core.set_background(proc.id, false);
    state.core.stop_process_reclaim(proc.id);
    shared.apply_effects(state);
    // Load control brings them when its turn comes.
    if !proc.held.load(Relaxed) {
        let (ranges, on_trial) = working_set(shared, &proc);
        proc.returning.lock().begin(ranges, on_trial);
        proc.kick.raise();
    }
}

/// Load control lets a process wait, or go on: then its working set comes back.
pub fn hold(shared: &Shared, proc: &Proc, held: bool) {
    let Some(mut state) = shared.lock_for(proc) else { return };
    state.core.set_held(proc.id, held);
    let wanted = !held && !state.core.is_background(proc.id);
    // The caller, which measures the tree, does not look for the pages itself.
    *proc.returning.lock() = Returning { wanted, ..Returning::default() };
    shared.apply_effects(state);
    proc.kick.raise();
}

/// Finds the pages of a process that goes on.
pub fn find_working_set(shared: &Shared, proc: &Proc) {
    let (ranges, on_trial) = working_set(shared, proc);
    let mut returning = proc.returning.lock();
    // Unless it was told otherwise meanwhile.
    if returning.wanted {
        returning.begin(ranges, on_trial);
    }
}

/// Pages to bring back, and how many are on trial. In parts: the core's lock must stay free for
/// faults.
fn working_set(shared: &Shared, proc: &Proc) -> (VecDeque<PageRange>, u64) {
    let (mut ranges, mut on_trial, mut next) = (VecDeque::new(), 0, Some(Page(0)));
    while let Some(from) = next {
        let Some(state) = shared.lock_for(proc) else { return Default::default() };
        let part = state.core.working_set(proc.id, from);
        shared.end_part(state);
        ranges.extend(part.ranges);
        on_trial += part.on_trial;
        next = part.next;
    }
    (ranges, on_trial)
}

fn standing(shared: &Shared, client: &Arc<Client>) -> Standing {
    let stage = client.stage.load(Relaxed);
    let proc = client.proc.lock().clone().filter(|_| stage == MANAGED);
    match (client.standing.load(Relaxed), proc) {
        _ if stage == REFUSED || client.detaching.load(Relaxed) => Standing::NotPaged,
        (FOREGROUND, None) => Standing::Foreground,
        (FOREGROUND, Some(proc)) => {
            let returning = proc.returning.lock();
            let Returning { pages, left_out, on_trial, .. } = *returning;
            match (returning.begun, returning.took) {
                (None, _) => Standing::Foreground,
                (Some(_), None) => Standing::Returning { pages: pages - returning.rest() },
                (Some(_), Some(took)) => {
                    Standing::Returned { pages: pages - left_out, left_out, on_trial, ms: took.as_millis() as u64 }
                }
            }
        }
        (BACKGROUND, Some(proc)) => {
            let Some(state) = shared.lock_for(&proc) else { return Standing::Unknown };
            match state.core.process_reclaim(proc.id) {
                Some(done) if done.ended.is_some() => {
                    let ms = done.begun.map_or(0, |begun| done.ended.unwrap_or(begun).saturating_sub(begun));
                    Standing::Left { pages: done.pages, ms, gave_up: done.gave_up }
                }
                Some(done) => Standing::Leaving { pages: done.pages, queued: state.core.is_queued_to_leave(proc.id) },
                None => Standing::Waits,
            }
        }
        (TOLD_TO_WAIT, _) => Standing::Waits,
        _ => Standing::Leaving { pages: 0, queued: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OnFull;
    use crate::detach::Detached;
    use crate::family::Family;
    use memfit_core::scheme::Scheme;
    use memfit_os::event::EventFd;
    use memfit_os::procfs::RssReader;
    use memfit_os::seqpacket;
    use memfit_os::uffd::Uffd;
    use memfit_wire::FromStub;

    #[test]
    fn an_order_holds_for_the_next_program_of_its_process() {
        let shared = Shared::new(Scheme::default(), 64 << 20, OnFull::Stop, None).unwrap();
        let pid = std::process::id() as i32;
        let client = || {
            let rss = RssReader::open(pid).unwrap();
            Client::new(seqpacket::pair().unwrap().0, pid, &FromStub::default(), rss, MANAGED)
        };
        let (first, second) = (client(), client());
        assert!(LastOrder::of(&first).is_none());
        leave(&shared, &first, TOLD_TO_LEAVE, By::Name);
        // It has left.
        first.standing.store(BACKGROUND, Relaxed);
        let mut detached = Detached::default();
        detached.remember_order(&first);
        detached.last_order(&second).unwrap().pass_on(&second);
        assert_eq!((second.standing.load(Relaxed), second.told.load(Relaxed)), (TOLD_TO_WAIT, true));
        come_back(&shared, &second, By::Rule);
        assert_eq!(second.standing.load(Relaxed), TOLD_TO_WAIT, "an order outweighs the rule");
        let mut other = client();
        other.started += 1;
        detached.last_order(&other).unwrap().pass_on(&other);
        assert_eq!(other.standing.load(Relaxed), FOREGROUND, "another process has its pid");
        detached.forget(detached.pids(), |_| false);
        assert!(detached.last_order(&second).is_none());
    }

    /// `--on-full stop` protects a process that it has stopped, and one that waits for room.
    #[test]
    fn only_one_that_was_in_the_foreground_loses_its_protection() {
        let shared = Shared::new(Scheme::default(), 64 << 20, OnFull::Stop, None).unwrap();
        let pid = std::process::id() as i32;
        let rss = RssReader::open(pid).unwrap();
        let client = Client::new(seqpacket::pair().unwrap().0, pid, &FromStub::default(), rss, MANAGED);
        let (id, area) = shared.lock().core.add_process(16);
        let uffd = Uffd::from_fd(std::fs::File::open("/dev/null").unwrap().into());
        let proc = Arc::new(Proc::new(id, area, uffd, Arc::new(EventFd::new().unwrap()), Family::default()));
        *client.proc.lock() = Some(Arc::clone(&proc));
        let tell = |told| {
            leave(&shared, &client, told, By::Name);
            begin(&shared, &client, &proc);
            shared.lock().core.pick_oom_victim(0).map(|victim| victim.proc)
        };
        assert_eq!(tell(TOLD_TO_WAIT), Some(id));
        shared.lock().core.protect(id, true);
        assert_eq!([TOLD_TO_LEAVE, TOLD_TO_WAIT].map(&tell), [None; 2]);
        come_back(&shared, &client, By::Name);
        assert_eq!(tell(TOLD_TO_WAIT), Some(id));
    }
}
