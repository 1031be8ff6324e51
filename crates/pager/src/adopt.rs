//! Adoption: finds unregistered memory of a process, registers it, and reports the present pages to
//! the core.

use crate::forks;
use crate::locks::{rank, Held, Lock};
use crate::mutant::{off, Rule};
use crate::proc::{send_command, Identity, Proc, STOPPED_AFTER};
use crate::regions::Use;
use crate::state::Shared;
use memfit_core::driver::adoption::{self, Present, Range};
use memfit_core::{Entry, Page, PageRange};
use memfit_os::maps::{self, evictable, Mapping, Maps};
use memfit_os::{probe, procfs};
use memfit_wire::{Command, BATCH_PAGES, BATCH_RANGES, OPEN, OPEN_WINDOW, PTHREAD_BYTES, ROBUST_LIST, WINDOWS};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Duration;

/// Upper part of the main stack that the throttle evicts.
const STACK_BYTES: u64 = 128 << 10;

/// Largest mapping that counts as a thread's stack: 8 MiB are usual.
const STACK_MAPPING_MAX: u64 = 16 << 20;
/// Smallest reserved mapping that is registered: malloc's arenas and a runtime's heap are larger,
/// guard pages smaller.
const RESERVED_BYTES: u64 = 64 << 10;

/// Pages of present ranges that are checked or adopted under one hold of the core lock.
const PART_PAGES: u64 = 1024;

/// Part of the budget that may be in small pieces which are not registered yet.
const PIECES_PART: u64 = 32;

/// Result of one scan.
#[derive(Debug, Default, Clone, Copy)]
pub struct Found {
    /// Bytes registered.
    pub registered: u64,
    /// Pages adopted.
    pub adopted: u64,
    /// An event was pending: scan again soon.
    pub again: bool,
    /// Small pieces were not registered.
    pub pieces_wait: bool,
}

/// Registers and adopts what is new. Waits for at most one read of the process's fault thread.
pub fn rescan(shared: &Arc<Shared>, proc: &Arc<Proc>, extent: Extent) -> Found {
    let found = take_in(shared, proc, extent);
    if let Some(identity) = proc.identity.get() {
        // Registered like all reserved memory: from now on new mappings can come out of it.
        let at = identity.reservation.load(Relaxed);
        if at != 0 && proc.region_of(at).is_some() && identity.reservation.swap(0, Relaxed) != 0 {
            send_command(&identity.socket, &Command { kind: OPEN, ..Command::default() }, None);
        }
    }
    found
}

/// As [`rescan`], but only for the stacks of its threads, so that [`throttle_stacks`] works before
/// other memory is registered. Stacks cause few faults.
pub fn stacks(shared: &Arc<Shared>, proc: &Arc<Proc>) -> Found {
    take_in(shared, proc, Extent::Stacks)
}

fn is_stack(mapping: &Mapping, stacks: &[Range]) -> bool {
    let meets = |stack: &Range| stack.0 < mapping.end && stack.1 > mapping.start;
    mapping.stack || (mapping.end - mapping.start <= STACK_MAPPING_MAX && stacks.iter().any(meets))
}

/// Which new mappings a scan registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Those of stacks.
    Stacks,
    /// All but small pieces that can wait, see [`adoption::due`].
    Grown,
    /// All.
    Whole,
}

/// Registers and adopts new mappings.
fn take_in(shared: &Arc<Shared>, proc: &Arc<Proc>, extent: Extent) -> Found {
    let all = extent != Extent::Stacks;
    let mut found = Found::default();
    let Some(identity) = proc.identity.get() else { return found };
    let mut mappings = {
        let mut maps = identity.maps.lock();
        match maps.read() {
            Ok(text) => takeable(text, takes_read_only(shared, proc)),
            Err(_) => return found,
        }
    };
    // Without `io`: the kernel walks all pages for it.
    droppable(identity);
    // Held throughout: no event is read between registration and adoption. What was unmapped since
    // the maps were read cannot be registered, or is another mapping that may be registered.
    let _io = proc.io.lock();
    if proc.removed.load(Relaxed) {
        return found;
    }
    // Before a fork the pages that the child will have are noted already. With an event pending, a
    // mapping that is registered now could not be adopted, and would be one that nobody knows.
    let unread = || proc.event_pending() && !off(Rule::AdoptPending);
    if proc.at_rest() || unread() {
        return Found { again: true, ..found };
    }
    open_windows(identity, &mappings);
    pin_threads(shared, proc, identity.pid, &mappings);
    {
        let stacks = proc.stacks.lock();
        if let Some(regions) = &shared.regions {
            let used = |m: &Mapping| match m.heap {
                true => Some((m.start, m.end, Use::Heap)),
                false => is_stack(m, &stacks).then_some((m.start, m.end, Use::Stack)),
            };
            regions.mapped(proc.id, mappings.iter().filter_map(used).collect());
        }
        mappings.retain(|m| all || is_stack(m, &stacks));
    }
    let mut fresh = fresh_parts(proc, identity, &mappings);
    if extent == Extent::Grown {
        let parts = fresh.len();
        fresh = adoption::due(fresh, small_pieces(shared), |at| proc.region_of(at).is_some());
        found.pieces_wait = fresh.len() < parts;
    }
    fresh.retain(|&(start, end)| proc.uffd.register_memory(start, end - start).is_ok());
    found.registered = fresh.iter().map(|(start, end)| end - start).sum();
    // Before the scan of the pages: what the kernel drops after it is in one of these mappings.
    let lazy = freed_lazily(identity, &fresh, all);
    let mut pages = Vec::new();
    for &(start, end) in &fresh {
        let _ = identity.pagemap.present(start, end, |s, e, zero| unknown(shared, proc, s, e, zero, &mut pages));
    }
    let (regions, pages) = confirmed(shared, proc, &identity.maps, fresh, &pages);
    // An unmapping that began after the scan has an event pending now: the pages seen may be gone.
    if unread() {
        let mut unconfirmed = proc.unconfirmed.lock();
        regions.into_iter().for_each(|(start, end)| unconfirmed.add(start, end));
        return Found { again: true, ..found };
    }
    for (start, end) in regions {
        proc.add_region(start, end);
        if proc.has_guards_in(start, end) {
            proc.guarded.lock().add(start, end);
        }
    }
    found.adopted = adopt(shared, proc, &pages, &lazy);
    identity.adopted.fetch_or(all, Relaxed);
    found
}

/// Reports present pages to the core; returns how many it adopts. In parts: the core lock must stay
/// free for faults. One range can be the whole memory of a process.
fn adopt(shared: &Shared, proc: &Proc, pages: &[Present], lazy: &[Range]) -> u64 {
    let (mut state, mut room, mut adopted) = (shared.lock(), PART_PAGES, 0);
    for &(start, end, zero) in pages {
        let zero = zero || lazy.iter().any(|&(s, e)| s < end && e > start);
        for page in start / 4096..end / 4096 {
            if room == 0 {
                shared.end_part(state);
                (state, room) = (shared.lock(), PART_PAGES);
            }
            room -= 1;
            adopted += u64::from(state.core.adopt(proc.id, Page(page), zero));
        }
    }
    shared.end_part(state);
    adopted
}

/// The parts of the mappings that are not registered yet and shall be.
fn fresh_parts(proc: &Proc, identity: &Identity, mappings: &[Mapping]) -> Vec<Range> {
    let never: Vec<Range> = identity.forbidden.iter().chain(droppable(identity)).copied().collect();
    mappings
        .iter()
        .filter(|m| !m.reserved || opens_unseen(identity, m))
        .flat_map(|m| uncovered(proc, &never, m.start, m.end).into_iter().map(move |part| (m, part)))
        .filter(|&(m, part)| m.writable() || m.reserved || holds_memory(identity, part))
        .map(|(_, part)| part)
        .collect()
}

/// Most bytes of a process that can wait in small pieces.
fn small_pieces(shared: &Shared) -> u64 {
    shared.budget.sizes.budget / PIECES_PART / shared.procs.lock().len().max(1) as u64
}

/// Whether the stub takes pages of read-only memory: not where nothing keeps it apart from calls
/// that change mappings.
fn takes_read_only(shared: &Shared, proc: &Proc) -> bool {
    shared.takes_read_only() && proc.identity.get().is_some_and(|identity| !identity.loaded)
}

/// The mappings whose pages can be evicted.
fn takeable(maps: &str, takes_read_only: bool) -> Vec<Mapping> {
    let mut found = evictable(maps);
    found.retain(|mapping| !mapping.read_only() || takes_read_only);
    found
}

/// Whether a part of a read-only mapping is worth registering: pages that were never written there
/// take no memory as long as the kernel serves them.
fn holds_memory(identity: &Identity, (start, end): Range) -> bool {
    identity.pagemap.holds_memory(start, end).unwrap_or(false)
}

/// Has the stub open bounce windows for each kind of access that the program's memory has. (The
/// stub opens the one for read-only memory by itself.)
fn open_windows(identity: &Identity, mappings: &[Mapping]) {
    for (number, access) in WINDOWS.into_iter().enumerate() {
        let wanted = || mappings.iter().any(|mapping| usize::from(mapping.access) == access);
        if identity.windows.load(Relaxed) >> number & 1 == 0 && wanted() {
            identity.windows.fetch_or(1 << number, Relaxed);
            let command = Command { kind: OPEN_WINDOW, flags: number as u32, ..Command::default() };
            send_command(&identity.socket, &command, None);
        }
    }
}

/// Where the program can have freed pages with MADV_FREE before the registration: the kernel may
/// drop them at any moment, without an event. When `all` of a process is adopted for the first
/// time, the kernel says in which mappings they are. It walks all pages of the process for that, so
/// else each `fresh` range counts as one of them.
fn freed_lazily(identity: &Identity, fresh: &[Range], all: bool) -> Vec<Range> {
    let first = all && !fresh.is_empty() && !identity.adopted.load(Relaxed);
    let smaps = || procfs::read_memory(identity.pid, "smaps").ok();
    match first.then(smaps).flatten() {
        Some(text) => maps::lazily_freed(&text),
        None => fresh.to_vec(),
    }
}

/// Droppable memory, which the kernel drops instead of writing it to swap. Searched once, when a
/// process is adopted: the kernel walks all pages of the process for it. Later droppable mappings
/// are paged like other memory, see [`may_be_dropped`].
fn droppable(identity: &Identity) -> &[Range] {
    if !probe::takes_droppable() {
        return &[];
    }
    let smaps = || procfs::read_memory(identity.pid, "smaps").unwrap_or_default();
    identity.droppable.get_or_init(|| maps::droppable(&smaps()))
}

/// Whether the kernel can have dropped a page without an event, or the page's mapping is gone with
/// the whole process. False if smaps cannot be read: then the page was lost.
pub fn may_be_dropped(proc: &Proc, page: Page) -> bool {
    let Some(identity) = proc.identity.get().filter(|_| probe::takes_droppable()) else { return false };
    let Ok(text) = procfs::read_memory(identity.pid, "smaps") else { return false };
    let among = |found: Vec<Range>| found.iter().any(|&(start, end)| (start..end).contains(&page.address()));
    among(maps::droppable(&text)) || !among(maps::in_smaps(&text))
}

/// Whether a process runs without the `stub`, a file name. A process whose loader has not mapped
/// libc yet may still get it; one that has both will say hello as soon as it runs.
pub fn is_without_stub(pid: i32, stub: &str) -> bool {
    let text = procfs::read_memory(pid, "maps").unwrap_or_default();
    let maps = |library: &str| maps::has_file(&text, library);
    let loading = text.lines().any(|line| line.contains("/ld-linux")) && !maps("libc.so.6");
    !(loading || maps(stub) && maps("libc.so.6"))
}

/// Adds the parts of a present range that are untracked to `out`. Others may be in a batch.
fn unknown(shared: &Shared, proc: &Proc, start: u64, end: u64, zero: bool, out: &mut Vec<Present>) {
    let (mut state, mut room, from) = (shared.lock(), PART_PAGES, out.len());
    for page in start / 4096..end / 4096 {
        if room == 0 {
            shared.end_part(state);
            (state, room) = (shared.lock(), PART_PAGES);
        }
        room -= 1;
        if state.core.entry(proc.id, Page(page)) != Entry::Untracked {
            continue;
        }
        match out[from..].last_mut() {
            Some(last) if last.1 == page * 4096 => last.1 += 4096,
            _ => out.push((page * 4096, (page + 1) * 4096, zero)),
        }
    }
}

/// Whether a reserved mapping is worth registering. Otherwise a part of it that mprotect opens
/// later, and every step of a heap that grows in it, would be an unregistered mapping of its own.
/// Pages that it holds already stay unknown, so it must hold none.
fn opens_unseen(identity: &Identity, mapping: &Mapping) -> bool {
    let mut empty = true;
    mapping.end - mapping.start >= RESERVED_BYTES
        && identity.pagemap.present(mapping.start, mapping.end, |_, _, _| empty = false).is_ok()
        && empty
}

/// As [`adoption::confirmed`], with the maps as they are now.
fn confirmed(
    shared: &Shared,
    proc: &Proc,
    maps: &Lock<Maps, { rank::MAPS }>,
    fresh: Vec<Range>,
    pages: &[Present],
) -> (Vec<Range>, Vec<Present>) {
    if fresh.is_empty() {
        return Default::default();
    }
    let mut maps = maps.lock();
    let Ok(text) = maps.read() else { return Default::default() };
    let mappings =
        takeable(text, takes_read_only(shared, proc)).into_iter().map(|mapping| (mapping.start, mapping.end));
    adoption::confirmed(mappings, &fresh, pages, |at| proc.uffd.is_registered(at) == Some(true))
}

/// Parts of a range that are neither registered nor forbidden nor given to the program itself.
fn uncovered(proc: &Proc, forbidden: &[(u64, u64)], start: u64, end: u64) -> Vec<(u64, u64)> {
    let mut taken: Vec<(u64, u64)> = forbidden.iter().copied().filter(|&(s, e)| s < end && e > start).collect();
    {
        taken.extend(proc.regions.lock().within(start, end));
        taken.extend(proc.given.lock().now().filter(|&(s, e)| s < end && e > start));
    }
    taken.sort_unstable();
    let (mut out, mut at) = (Vec::new(), start);
    for (s, e) in taken {
        if s > at {
            out.push((at, s.min(end)));
        }
        at = at.max(e);
    }
    if at < end {
        out.push((at, end));
    }
    out
}

/// Pins the pages around each thread pointer (rule 2): at a thread's exit the kernel touches
/// `struct pthread` and serves no userfault for it. Notes where the stacks are.
fn pin_threads(shared: &Arc<Shared>, proc: &Proc, pid: i32, mappings: &[Mapping]) {
    let mut pages = Vec::new();
    let mut stacks: Vec<(u64, u64)> =
        mappings.iter().filter(|m| m.stack).map(|m| (m.end.saturating_sub(STACK_BYTES).max(m.start), m.end)).collect();
    for tid in procfs::tasks(pid) {
        let Some(head) = procfs::robust_list(tid) else { continue };
        let descriptor = head.saturating_sub(ROBUST_LIST as u64);
        let (start, end) = (descriptor / 4096, (descriptor + PTHREAD_BYTES as u64) / 4096);
        pages.extend((start..=end).map(Page));
        if tid != pid {
            stacks.push(((start * 4096).saturating_sub(STACK_BYTES / 4), start * 4096));
        }
    }
    if off(Rule::Pins) {
        pages.clear();
    }
    if proc.tells_forks() {
        let mut known = proc.descriptors.lock();
        known.extend(pages.iter().copied());
        pages = known.iter().copied().collect();
    }
    // A thread that starts now may be seen too late.
    pages.extend(forks::descriptors_in(mappings).map(Page).filter(|_| !off(Rule::Pins)));
    // ps and the like read these without a fault that the pager could serve.
    let arguments = proc.identity.get().map_or(&[][..], |identity| &identity.arguments);
    pages.extend(arguments.iter().flat_map(|(s, e)| s / 4096..e.div_ceil(4096)).map(Page));
    *proc.stacks.lock() = stacks;
    let mut state = shared.lock();
    let out = |page: &Page| matches!(state.core.entry(proc.id, *page), Entry::Out(_) | Entry::Evicting(_));
    let gone: Vec<u64> = pages.iter().filter(|page| out(page)).map(|page| page.address()).collect();
    state.core.pin(proc.id, pages.into_iter());
    drop(state);
    if !gone.is_empty() {
        proc.fetch(gone);
    }
}

/// Longest time that one throttle waits for the process's stub.
const THROTTLE_WAIT: Duration = Duration::from_millis(2);

/// Throttles a process: evicts the tops of its threads' stacks. The threads fault at once, and the
/// faults wait for room (`fault::Server::throttle`). Nothing else can slow a program that fills
/// unregistered memory faster than the pager evicts. Returns when the stacks are evicted, or after
/// a moment: a stopped process does not answer, but does not grow either.
pub fn throttle_stacks(shared: &Arc<Shared>, proc: &Arc<Proc>) {
    let Some(mut io) = soon(&proc.io) else { return };
    if io.busy && io.posted.is_some_and(|at| at.elapsed() < STOPPED_AFTER) {
        // Its fault thread needs `io` to read events.
        let number = io.number;
        drop(io);
        proc.wait_finished(number, THROTTLE_WAIT);
        let Some(again) = soon(&proc.io) else { return };
        io = again;
        // Reclaim finds the same error and handles it.
        let _ = proc.collect(shared, &mut io, false);
    }
    if !proc.idle(&io) {
        return;
    }
    if proc.post_dontfork(&mut io) {
        let number = io.number;
        drop(io);
        proc.ring_bell();
        proc.wait_finished(number, THROTTLE_WAIT);
        return;
    }
    let stacks = proc.stacks.lock().clone();
    let mut victims = Vec::new();
    let mut room = BATCH_PAGES;
    let mut state = shared.lock();
    for (start, end) in stacks {
        let claimed =
            state.core.claim_range(proc.id, PageRange::from_addresses(start, end), room.min(32), shared.tick());
        room -= claimed.iter().map(|v| v.slots.len()).sum::<usize>();
        victims.extend(claimed);
        if room == 0 || victims.len() + 32 > BATCH_RANGES {
            break;
        }
    }
    shared.apply_effects(state);
    if !victims.is_empty() {
        proc.post(&mut io, victims);
        let number = io.number;
        // Its fault thread needs `io` to read events.
        drop(io);
        proc.ring_bell();
        proc.wait_finished(number, THROTTLE_WAIT);
    }
}

/// The lock, unless it is held for longer than a read of events takes.
fn soon<T, const RANK: u8>(lock: &Lock<T, RANK>) -> Option<Held<'_, T>> {
    for _ in 0..10 {
        if let Some(held) = lock.try_lock() {
            return Some(held);
        }
        std::thread::sleep(Duration::from_micros(20));
    }
    None
}
