//! One paged process: its userfaultfd, its ring, the batch that its stub works on.

use crate::background::Returning;
use crate::family::Family;
use crate::files::FileRanges;
use crate::forks::Expected;
use crate::locks::{rank, Held, Lock};
use crate::own_uffd::Given;
use crate::quarantine::Proof;
use crate::state::Shared;
use memfit_core::driver::fork::Dontfork;
use memfit_core::driver::fork_changes::Inherited;
use memfit_core::ranges::Ranges;
use memfit_core::{Answer, AreaId, Page, ProcId, Victim};
use memfit_os::event::EventFd;
use memfit_os::maps::{self, Maps, Pagemap};
use memfit_os::memory::{futex_wait, futex_wake, Segment};
use memfit_os::messages::bytes_of;
use memfit_os::procfs;
use memfit_os::proctree::{self, ProcStat};
use memfit_os::uffd::Uffd;
use memfit_wire::{
    Command, Ring, BATCH, BATCH_PAGES, BATCH_RANGES, CLOSED, DONTFORK, IN_MOVE, POPULATE, RING_BYTES, STUB_WAITS,
};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// How long memory can outlive its last process, while others read its maps.
const MEMORY_GOES_WITHIN: Duration = Duration::from_secs(1);

/// Byte offset of a staging slot in its segment.
pub fn slot_offset(index: u32) -> usize {
    RING_BYTES + index as usize * 4096
}

/// What is known of a process once its stub is identified.
#[derive(Debug)]
pub struct Identity {
    /// Pid in the pager's namespace.
    pub pid: i32,
    /// When the process started, clock ticks since boot: another process with this pid has another
    /// value.
    pub start_ticks: u64,
    /// Thread id of the stub in its own namespace.
    pub tid: u32,
    /// The stub's control socket, for doorbells.
    pub socket: Arc<OwnedFd>,
    /// The ring and the staging slots.
    pub segment: Arc<Segment>,
    /// Shows which pages are present.
    pub pagemap: Pagemap,
    /// Shows what is mapped.
    pub maps: Lock<Maps, { rank::MAPS }>,
    /// Its memory was adopted as a whole; what is adopted from now on is newer.
    pub adopted: AtomicBool,
    /// Its droppable memory when it was adopted, where a userfaultfd would take that.
    pub droppable: OnceLock<Vec<(u64, u64)>>,
    /// Address of the reservation; 0 if there is none, or once the stub was told to open it.
    pub reservation: AtomicU64,
    /// Bounce windows that the stub was told to open: bit i is the window of number i.
    pub windows: AtomicU32,
    /// Ranges that are never evicted: the stub's own.
    pub forbidden: Vec<(u64, u64)>,
    /// Arguments and environment, which other processes read without a fault.
    pub arguments: Vec<(u64, u64)>,
    /// The pager has loaded its stub ([`crate::load`]).
    pub loaded: bool,
}

impl Identity {
    /// The process as it is now; `None` if it has ended.
    pub fn process(&self) -> Option<ProcStat> {
        let now = proctree::read_stat(self.pid)?;
        (now.start_ticks == self.start_ticks && !now.is_dead()).then_some(now)
    }
}

/// The batch that the stub works on.
#[derive(Debug, Default)]
pub struct Io {
    /// Number of the newest batch.
    pub number: u32,
    /// Its ranges; `None` once answered or cancelled.
    pub ranges: Vec<Option<Victim>>,
    /// For a batch that evicts nothing but keeps ranges from children: these ranges, and the
    /// generation ([`Dontfork::generation`]) that they are from.
    pub dontfork: Vec<(u64, u64)>,
    pub generation: u32,
    /// The stub has not finished the batch `number`.
    pub busy: bool,
    /// When the batch was posted.
    pub posted: Option<Instant>,
    /// Pages of the newest batch that have left, and whether a call has kept others.
    pub taken: usize,
    pub held_by_call: bool,
    /// Sampled regions with pages that were handed back untried: see `crate::sampling`.
    pub again: Vec<u64>,
}

/// A batch unanswered for this long belongs to a stopped process: nobody waits for it.
pub const STOPPED_AFTER: Duration = Duration::from_millis(50);
/// Bytes of the fork doorbell.
pub const DOORBELL_BYTES: u64 = memfit_wire::DOORBELL_PAGES as u64 * 4096;
/// [`memfit_wire::Range::status`] of a range with a hole.
const HOLE: u32 = 1 + libc::ENOMEM as u32;
/// The same, of a range with a page that is shared, or that a device uses.
const REFUSED: u32 = 1 + libc::EBUSY as u32;
/// The same, where an event is unread.
const UNREAD: u32 = 1 + libc::EAGAIN as u32;
/// The same, of read-only memory while a thread is in a call that changes mappings.
const HELD_BY_CALL: u32 = 1 + memfit_wire::IN_CALL as u32;
/// How long the pager spins for the end of a MOVE: a MOVE takes 2 to 60 us; to sleep and be woken
/// by another CPU takes 40.
const GATE_SPIN: Duration = Duration::from_micros(50);

/// Result of closing the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// No MOVE runs, and none will.
    Closed,
    /// The stub stays inside of a MOVE: somebody has stopped it there.
    Held,
    /// The process died.
    Gone,
    /// Its stub ended inside of a MOVE; its memory goes now, or others have it.
    Ended,
}

/// Why a batch cannot be trusted or a page was not found: the process must die.
#[derive(Debug)]
pub struct Broken(pub String);

/// A process that has a userfaultfd.
pub struct Proc {
    /// Its number in the core.
    pub id: ProcId,
    /// Its staging area.
    pub area: AreaId,
    /// Its userfaultfd.
    pub uffd: Uffd,
    /// Unknown for a fork child until its stub touches the beacon.
    pub identity: OnceLock<Identity>,
    /// Address of the beacon page, 0 if there is none.
    pub beacon: AtomicU64,
    /// The batch. Held while events are read, so that nothing is posted or adopted meanwhile.
    pub io: Lock<Io, { rank::IO }>,
    /// Registered ranges with pages of its own.
    pub regions: Lock<Ranges, { rank::REGIONS }>,
    /// Registered, but nothing of it was adopted yet: an event was pending, or it moved unknown.
    pub unconfirmed: Lock<Ranges, { rank::UNCONFIRMED }>,
    /// Its mappings of files that the pager fills.
    pub files: Lock<FileRanges, { rank::FILE_RANGES }>,
    /// Address of the fork doorbell; 0 if the kernel reports forks.
    pub doorbell: AtomicU64,
    /// An announced fork is under way: nothing is evicted or adopted.
    pub forking: AtomicBool,
    /// It is being detached: nothing is evicted or adopted.
    pub detaching: AtomicBool,
    /// The child of the announced fork under way.
    pub expected: Lock<Option<Arc<Expected>>, { rank::EXPECTED_CHILD }>,
    /// With announced forks: thread descriptors, also of ended threads, which glibc touches in a
    /// fork child.
    pub descriptors: Lock<BTreeSet<Page>, { rank::DESCRIPTORS }>,
    /// What is kept from unannounced fork children.
    pub dontfork: Lock<Dontfork, { rank::DONTFORK }>,
    /// Ranges that fork children have empty (MADV_WIPEONFORK), as last read from it or its parent.
    pub wiped: Lock<Ranges, { rank::WIPED }>,
    /// A fork child whose mappings were not read yet: `wiped` may be wrong, since its parent can
    /// have changed that after the fork.
    pub unsure: AtomicBool,
    /// Threads that bring back a part of a range of [`Proc::given`]: nothing is evicted or adopted
    /// meanwhile.
    pub giving: AtomicU32,
    /// Ranges that the program wants for a userfaultfd of its own.
    pub given: Lock<Given, { rank::GIVEN }>,
    /// How its pages leave quarantine.
    pub proof: Lock<Option<Proof>, { rank::PROOF }>,
    /// Upper ends of its threads' stacks, as address ranges.
    pub stacks: Lock<Vec<(u64, u64)>, { rank::STACKS }>,
    /// Addresses of pages to bring back that nobody has touched.
    pub wanted: Lock<Vec<u64>, { rank::WANTED }>,
    /// Pages that come back together.
    pub returning: Lock<Returning, { rank::RETURNING }>,
    /// Wakes the fault thread to check `dead`, `wanted` and `returning`.
    pub kick: Arc<EventFd>,
    /// The control socket is closed, or the memory is gone: no more batches.
    pub dead: AtomicBool,
    /// It was killed by [`Proc::stop`], and the reason was told.
    stopped: AtomicBool,
    /// Mappings in which there were guard pages (MADV_GUARD_INSTALL) when they were registered.
    pub guarded: Lock<Ranges, { rank::GUARDED }>,
    /// Memory that is read-only could not be opened: a policy forbids it.
    pub closed: AtomicBool,
    /// A tracer lets its stub run while the process is stopped.
    pub stub_runs: AtomicBool,
    /// The core does not know the process any more, and its number may be another's. Set with `io`
    /// and the core's lock held, so whoever holds one of them can rely on it.
    pub removed: AtomicBool,
    /// Load control lets its faults wait.
    pub held: AtomicBool,
    /// Counts for the statistics.
    pub counters: Arc<ProcCounters>,
    /// With fork events: what a fork child has inherited, until its memory is confirmed.
    pub inherited: Lock<Option<Inherited>, { rank::INHERITED }>,
    /// Its own children of that kind, until all changes before their forks are known.
    pub newborn: Lock<Vec<Weak<Proc>>, { rank::NEWBORN }>,
    /// Inode of the network namespace in which its stub, or that of its fork parent, said hello.
    pub network: AtomicU64,
    /// Its fork parent was in another network namespace by then.
    pub made_elsewhere: AtomicBool,
    /// Pid of its fork parent, if that was known; else 0.
    pub parent_pid: AtomicI32,
    /// It is a fork child without a stub, and its pid once the pager has found it; else 0
    /// ([`crate::bare_children`]).
    pub bare: AtomicBool,
    #[allow(missing_docs)]
    pub found: AtomicI32,
    /// It is bare, and its parent was a fork child as well.
    pub again: AtomicBool,
    /// Its fork relatives.
    pub family: Family,
    /// Command name.
    pub comm: Lock<String, { rank::COMM }>,
}

/// Counts of one process.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct ProcCounters {
    pub faults: AtomicU64,
    pub evicted: AtomicU64,
    /// Time from the report of a fault until it was served, of all faults together, ns; not while
    /// the process was held.
    pub waited_ns: AtomicU64,
    /// [`memfit_core::Core::is_compressed`] when it last gave pages.
    pub compressed: AtomicBool,
}

impl Proc {
    /// With a descriptor whose handshake is done.
    pub fn new(id: ProcId, area: AreaId, uffd: Uffd, kick: Arc<EventFd>, family: Family) -> Proc {
        Proc {
            id,
            area,
            uffd,
            identity: OnceLock::new(),
            beacon: AtomicU64::new(0),
            io: Lock::new(Io::default()),
            regions: Lock::default(),
            unconfirmed: Lock::default(),
            files: Lock::default(),
            doorbell: AtomicU64::new(0),
            forking: AtomicBool::new(false),
            detaching: AtomicBool::new(false),
            expected: Lock::default(),
            descriptors: Lock::default(),
            dontfork: Lock::default(),
            wiped: Lock::default(),
            unsure: AtomicBool::new(false),
            giving: AtomicU32::new(0),
            given: Lock::default(),
            proof: Lock::new(None),
            stacks: Lock::new(Vec::new()),
            wanted: Lock::new(Vec::new()),
            returning: Lock::default(),
            kick,
            dead: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            guarded: Lock::default(),
            closed: AtomicBool::new(false),
            stub_runs: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            inherited: Lock::default(),
            newborn: Lock::default(),
            network: AtomicU64::new(0),
            made_elsewhere: AtomicBool::new(false),
            bare: AtomicBool::new(false),
            found: AtomicI32::new(0),
            again: AtomicBool::new(false),
            held: AtomicBool::new(false),
            counters: Arc::default(),
            family,
            comm: Lock::new(String::new()),
            parent_pid: AtomicI32::new(0),
        }
    }

    /// Pid, if known.
    pub fn pid(&self) -> Option<i32> {
        self.identity.get().map(|i| i.pid)
    }

    /// Whether it is a fork child that may be unable to say hello.
    pub fn is_out_of_reach(&self) -> bool {
        self.made_elsewhere.load(Relaxed) && self.identity.get().is_none()
    }

    /// Its stub thread, in the pager's namespace.
    pub fn stub_thread(&self) -> Option<i32> {
        self.identity.get().and_then(|identity| procfs::task(identity.pid, identity.tid))
    }

    /// The ring, once its stub is identified.
    pub fn ring(&self) -> Option<&Ring> {
        self.identity.get().map(|i| i.segment.ring())
    }

    /// The registered range around an address.
    pub fn region_of(&self, address: u64) -> Option<(u64, u64)> {
        self.regions.lock().around(address)
    }

    /// Whether some of a range is registered, adopted or not.
    pub fn overlaps_region(&self, start: u64, end: u64) -> bool {
        self.regions.lock().meets(start, end) || self.unconfirmed.lock().meets(start, end)
    }

    /// Whether there are guard pages in a range.
    pub fn has_guards_in(&self, start: u64, end: u64) -> bool {
        self.identity.get().is_some_and(|identity| matches!(identity.pagemap.first_guard(start, end), Ok(Some(_))))
    }

    /// Whether a page can have been zapped without an event: its mapping has or had guard pages,
    /// and the stub does not see guards that a bare system call installs.
    pub fn may_be_guarded(&self, page: Page) -> bool {
        let at = page.address();
        if self.guarded.lock().around(at).is_some() {
            return true;
        }
        let Some(identity) = self.identity.get() else { return false };
        let mappings = identity.maps.lock().read().map(maps::private_anonymous).unwrap_or_default();
        let mapping = mappings.into_iter().find(|&(start, end)| (start..end).contains(&at));
        mapping.is_some_and(|(start, end)| self.has_guards_in(start, end))
    }

    /// Removes a range from the registered ones.
    pub fn forget_region(&self, start: u64, end: u64) {
        self.regions.lock().cut(start, end);
        self.unconfirmed.lock().cut(start, end);
        self.wiped.lock().cut(start, end);
        self.guarded.lock().cut(start, end);
        self.files.lock().cut(start / 4096, end / 4096);
        if self.tells_forks() {
            self.dontfork.lock().unmapped(start, end);
            self.descriptors.lock().retain(|page| page.address() < start || page.address() >= end);
        }
    }

    /// Adds a range to the registered ones.
    pub fn add_region(&self, start: u64, end: u64) {
        self.regions.lock().add(start, end);
        if self.tells_forks() {
            self.dontfork.lock().registered(start, end);
        }
    }

    /// Registered memory has moved: it is registered in its new place as well.
    pub fn move_region(&self, from: u64, to: u64, len: u64) {
        let mut files = self.files.lock();
        let in_cache = files.shares_some_of(from, from + len);
        files.shift(from / 4096, to / 4096, len / 4096);
        drop(files);
        if in_cache {
            return;
        }
        self.regions.lock().add(to, to + len);
        self.unconfirmed.lock().copy(from, to, len);
        self.wiped.lock().copy(from, to, len);
        if self.guarded.lock().meets(from, from + len) {
            self.guarded.lock().add(to, to + len);
        }
        if self.tells_forks() {
            self.dontfork.lock().moved(from, to, len);
        }
    }

    /// Whether its stub announces forks, because the kernel does not report them.
    pub fn tells_forks(&self) -> bool {
        self.doorbell.load(Relaxed) != 0
    }

    /// Whether an address is on the fork doorbell.
    pub fn is_doorbell(&self, address: u64) -> bool {
        let first = self.doorbell.load(Relaxed);
        first != 0 && (first..first + DOORBELL_BYTES).contains(&address)
    }

    /// Has the fault thread bring these pages back.
    pub fn fetch(&self, addresses: Vec<u64>) {
        self.wanted.lock().extend(addresses);
        self.kick.raise();
    }

    /// Whether a batch can be posted: the stub is identified, idle and alive.
    pub fn idle(&self, io: &Io) -> bool {
        let there = self.identity.get().is_some() && !self.dead.load(Relaxed) && !self.removed.load(Relaxed);
        there && !io.busy && !self.at_rest()
    }

    /// Whether nothing may be evicted from it for now.
    pub fn at_rest(&self) -> bool {
        self.forking.load(Relaxed) || self.detaching.load(Relaxed) || self.giving.load(Relaxed) > 0
    }

    /// Posts a batch. The pages are Evicting until answered. `io` shall be released before
    /// [`Proc::ring_bell`]: the stub that it wakes may take this CPU at once, and the fault thread
    /// needs `io`.
    pub fn post(&self, io: &mut Io, victims: Vec<Victim>) {
        let Some(ring) = self.ring() else { return };
        assert!(victims.len() <= BATCH_RANGES, "a batch of {} ranges", victims.len());
        let (mut slot, populate) = (0u32, self.family.populates());
        for (range, victim) in ring.range.iter().zip(&victims) {
            range.address.store(victim.first.address(), Relaxed);
            range.pages.store(victim.slots.len() as u32, Relaxed);
            range.slot.store(slot, Relaxed);
            range.moved.store(0, Relaxed);
            range.status.store(0, Relaxed);
            range.flags.store(if populate || victim.lazy { POPULATE } else { 0 }, Relaxed);
            for &index in &victim.slots {
                ring.slots[slot as usize].store(index, Relaxed);
                slot += 1;
            }
        }
        assert!(slot as usize <= BATCH_PAGES, "a batch of {slot} pages");
        io.ranges = victims.into_iter().map(Some).collect();
        self.publish(ring, io, io.ranges.len());
    }

    /// Posts a batch that evicts nothing but advises ranges; `flag` is DONTFORK or DOFORK.
    pub fn post_advice(&self, io: &mut Io, ranges: &[(u64, u64)], flag: u32) {
        let Some(ring) = self.ring() else { return };
        for (range, &(start, end)) in ring.range.iter().zip(ranges) {
            range.address.store(start, Relaxed);
            range.pages.store(((end - start) / 4096) as u32, Relaxed);
            range.moved.store(0, Relaxed);
            range.status.store(0, Relaxed);
            range.flags.store(flag, Relaxed);
        }
        io.dontfork = if flag == DONTFORK { ranges.to_vec() } else { Vec::new() };
        io.generation = self.dontfork.lock().posted();
        self.publish(ring, io, ranges.len());
    }

    fn publish(&self, ring: &Ring, io: &mut Io, ranges: usize) {
        io.number = io.number.wrapping_add(1).max(1);
        ring.ranges.store(ranges as u32, Relaxed);
        ring.posted.store(io.number, Release);
        io.busy = true;
        io.posted = Some(Instant::now());
        (io.taken, io.held_by_call) = (0, false);
    }

    /// Wakes the stub for a posted batch.
    pub fn ring_bell(&self) {
        let Some(identity) = self.identity.get() else { return };
        let command = Command { kind: BATCH, ..Command::default() };
        send_command(&identity.socket, &command, None);
    }

    /// Keeps the stub out of MOVE until [`Proc::open_gate`]. Gives up after `limit`, with the gate
    /// open.
    pub fn close_gate_within(&self, limit: Duration) -> Gate {
        let Some(ring) = self.ring() else { return Gate::Closed };
        let mut seen = ring.gate.fetch_or(CLOSED, SeqCst) | CLOSED;
        let (mut spins, mut since) = (0u32, None);
        while seen & IN_MOVE != 0 {
            let mut waited = || since.get_or_insert_with(Instant::now).elapsed();
            if spins % 32 < 31 || waited() <= GATE_SPIN {
                std::hint::spin_loop();
            } else {
                futex_wait(&ring.gate, seen, Duration::from_millis(20).min(limit));
                if self.uffd.gone() {
                    return Gate::Gone;
                }
                if self.dead.load(Relaxed) {
                    return Gate::Ended;
                }
                if waited() > limit && ring.gate.load(SeqCst) & IN_MOVE != 0 {
                    self.open_gate();
                    return Gate::Held;
                }
            }
            spins = spins.wrapping_add(1);
            seen = ring.gate.load(SeqCst);
        }
        Gate::Closed
    }

    /// Lets the stub go on.
    pub fn open_gate(&self) {
        let Some(ring) = self.ring() else { return };
        if ring.gate.fetch_and(!(CLOSED | STUB_WAITS), SeqCst) & STUB_WAITS != 0 {
            futex_wake(&ring.gate);
        }
    }

    /// Collects the answers; returns how many pages were evicted. With `cancel` (the gate must be
    /// closed) the untried ranges return to the program, and the stub drops them.
    pub fn collect(&self, shared: &Shared, io: &mut Held<'_, Io>, cancel: bool) -> Result<usize, Broken> {
        let Some(ring) = self.ring() else { return Ok(0) };
        if !io.busy || self.removed.load(Relaxed) {
            return Ok(0);
        }
        if ring.fatal.load(SeqCst) != 0 {
            return Err(Broken(format!("its stub reports a broken invariant (code {})", ring.fatal.load(SeqCst))));
        }
        let done = ring.finished.load(Acquire) == io.number;
        if cancel {
            ring.cancelled.store(io.number, SeqCst);
        }
        let tick = shared.tick();
        let (mut taken, mut answers) = (0, Vec::new());
        let Io { ranges, again, held_by_call, .. } = &mut **io;
        for (posted, range) in ranges.iter_mut().zip(&ring.range) {
            let Some(victim) = posted else { continue };
            let pages = victim.slots.len() as u32;
            let status = range.status.load(Acquire);
            let valid = victim.all();
            let (moved, park) = match status {
                0 if cancel || done => (0, false),
                0 => continue,
                // With UNREAD and HELD_BY_CALL nothing is wrong with the pages.
                status => (range.moved.load(Relaxed) & valid, !matches!(status, 1 | UNREAD | HELD_BY_CALL)),
            };
            if status == REFUSED {
                self.family.refused();
            } else if status == 1 + memfit_wire::NOT_OPENED as u32 {
                self.closed.store(true, Relaxed);
            }
            *held_by_call |= status == HELD_BY_CALL;
            let dropped = if victim.lazy { !moved & valid & !self.present_mask(victim.first, pages) } else { 0 };
            let file = self.clean_mask(shared, victim, moved);
            if let Some(sampling) = shared.sampling.as_ref().filter(|_| !park && moved != valid) {
                sampling.untried(victim, again);
            }
            if let Some(regions) = &shared.regions {
                regions.took(self, victim, moved);
            }
            answers.push((victim.first, pages, Answer { moved, dropped, park, file }));
            *posted = None;
            taken += (moved | dropped).count_ones() as usize;
            self.counters.evicted.fetch_add(u64::from(moved.count_ones()), Relaxed);
        }
        let mut state = shared.lock();
        for (first, pages, answer) in answers {
            state.core.evicted(self.id, first, pages, answer, tick);
        }
        self.counters.compressed.store(state.core.is_compressed(self.id), Relaxed);
        shared.apply_effects(state);
        io.taken += taken;
        if done {
            if io.held_by_call && io.taken == 0 {
                shared.budget.held_by_call.store(true, Relaxed);
            }
            let posted = std::mem::take(&mut io.dontfork);
            // An unread UNMAP can concern a range that was another mapping when it was kept from
            // children.
            if !posted.is_empty() && !self.event_pending() {
                let mut dontfork = self.dontfork.lock();
                let current = dontfork.is_current(io.generation);
                for ((start, end), range) in posted.into_iter().zip(&ring.range).take_while(|_| current) {
                    // For a range with a hole, an UNMAP is to come.
                    if matches!(range.status.load(Acquire), 1 | HOLE) {
                        dontfork.kept_from_children(start, end);
                    }
                }
            }
            io.busy = false;
            io.ranges.clear();
        }
        Ok(taken)
    }

    /// Mask of the evicted pages that still hold what was read from their file.
    fn clean_mask(&self, shared: &Shared, victim: &Victim, moved: u64) -> u64 {
        let files = self.files.lock();
        if files.is_empty() || moved == 0 {
            return 0;
        }
        let Some(segment) = shared.lock().segments.get(&self.area).cloned() else { return 0 };
        let (mut mask, mut page) = (0, [0; 4096]);
        for (i, &slot) in victim.slots.iter().enumerate().filter(|(i, _)| moved >> i & 1 == 1) {
            let Some((file, index)) = files.at(Page(victim.first.0 + i as u64)) else { continue };
            // The batch's slots belong to the pager until the core has the answer.
            segment.copy_page(slot_offset(slot), &mut page);
            mask |= u64::from(shared.files.is_clean(file, false, index, &page)) << i;
        }
        mask
    }

    /// Bytes of the page cache that are in its page tables.
    pub fn cached_bytes(&self) -> u64 {
        let mapped: Vec<(u64, u64)> = self.files.lock().shared_pages().collect();
        let (Some(identity), mut bytes) = (self.identity.get(), 0) else { return 0 };
        for (first, end) in mapped {
            // What cannot be read counts for the process.
            let _ = identity.pagemap.present(first * 4096, end * 4096, |start, end, _| bytes += end - start);
        }
        bytes
    }

    /// Mask of the pages that are in memory or in the kernel's swap. All, if that cannot be read.
    fn present_mask(&self, first: Page, pages: u32) -> u64 {
        let (start, end) = (first.address(), first.address() + u64::from(pages) * 4096);
        let mut mask = 0;
        let found = |s: u64, e: u64, _| (s..e).step_by(4096).for_each(|at| mask |= 1 << ((at - start) / 4096));
        match self.identity.get().map(|i| i.pagemap.present(start, end, found)) {
            Some(Ok(())) => mask,
            _ => u64::MAX,
        }
    }

    /// Waits until the stub has finished the batch, at most for `limit`.
    pub fn wait_finished(&self, number: u32, limit: Duration) {
        if let Some(ring) = self.ring() {
            let seen = ring.finished.load(Acquire);
            if seen != number {
                futex_wait(&ring.finished, seen, limit);
            }
        }
    }

    /// Whether an event is unread. Only meaningful while `io` is held.
    pub fn event_pending(&self) -> bool {
        self.uffd.event_pending()
    }

    /// Fail-stop: the process cannot go on with right data. Kills it, and others that have its
    /// memory (CLONE_VM), and says why. If its pid is unknown, as that of a fork child before it is
    /// identified, the whole tree ends; returns false then. The tree also ends if the process has
    /// ended and others still use its memory.
    pub fn stop(&self, shared: &Shared, why: &str) -> bool {
        let who = format!("process {} ({})", self.pid().unwrap_or(0), *self.comm.lock());
        if let Some(process) = self.identity.get().and_then(Identity::process) {
            // First: whoever sees the process die asks for the reason. Several threads can find out
            // before it has ended.
            if !self.stopped.swap(true, Relaxed) {
                shared.outbox.announce(format!("killed {who}: {why}"));
            }
            let launcher = std::os::unix::process::parent_id() as i32;
            let mut all = proctree::descendants_by_lists(launcher, |_| false).unwrap_or_default();
            all.retain(|other| procfs::share_memory(other.pid, process.pid) == Some(true));
            all.push(process);
            proctree::kill_all(&all);
            return true;
        }
        if self.pid().is_some() && self.memory_goes() {
            return true;
        }
        shared.fatal(format!("{who}: {why}"));
        false
    }

    /// Whether the memory of a process that has ended goes with it. A reader of /proc/PID/maps
    /// keeps the memory until it has finished.
    pub fn memory_goes(&self) -> bool {
        let until = Instant::now() + MEMORY_GOES_WITHIN;
        while !self.uffd.gone() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.uffd.gone()
    }
}

/// A page of zeros for the kernel to read.
#[repr(align(4096))]
pub struct Zeros<const N: usize>(pub [u8; N]);
/// One page.
pub static ZERO_PAGE: Zeros<4096> = Zeros([0; 4096]);
/// Sixty-four pages: the longest zero-fill run.
pub static ZERO_RUN: Zeros<{ 64 * 4096 }> = Zeros([0; 64 * 4096]);

/// Sends a command with at most one descriptor. False if that fails; a dead stub is noticed
/// elsewhere.
pub fn send_command(socket: &OwnedFd, command: &Command, fd: Option<BorrowedFd<'_>>) -> bool {
    memfit_os::seqpacket::send(socket.as_fd(), bytes_of(command), fd).is_ok()
}
