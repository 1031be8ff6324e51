//! The fault thread of one process: reads its userfaultfd, reports events to the core, brings pages
//! back.
//!
//! One thread does all of this for a process, so that no event can change the table while a fault
//! of the same process is half served.

mod announced;
mod bring;
mod end;
mod messages;
mod place;
pub mod read_ahead;
pub mod spare;
mod waits;

use crate::background;
use crate::bare_children;
use crate::fork_children;
use crate::locks::Held;
use crate::mutant::{off, Rule};
use crate::proc::{Broken, Io, Proc, ZERO_PAGE};
use crate::state::Shared;
use crate::swap::{Aligned, Have, Reader};
use end::End;
use memfit_codec::{Dictionaries, Worker};
use memfit_core::driver::order::{Event, Order};
use memfit_core::ranges::Ranges;
use memfit_core::{Entry, Extent, Fault, Load, Page, PageRange, Source, Stored};
use memfit_os::event::poll;
use memfit_os::procfs::TaskStat;
use memfit_os::uffd::{Event as Message, Fill, Inbox, Uffd};
use memfit_wire::BATCH_RANGES;
use place::Place;
use read_ahead::ReadAhead;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most faults between two checks of the faulting thread's CPU.
const FOLLOW_EVERY: u32 = 64;

/// Buffers and contexts to put pages together. Fault threads share a few, because there is one
/// thread for each process.
pub struct FaultBuffers {
    worker: Worker,
    page_run: Aligned,
    /// Compressed bytes of one page.
    coded: Box<[u8]>,
}

impl FaultBuffers {
    /// Codec contexts are made at their first use.
    pub fn new(dictionaries: &Arc<Dictionaries>) -> FaultBuffers {
        FaultBuffers {
            worker: Worker::with(dictionaries),
            page_run: Aligned::new(RUN * 4096),
            coded: vec![0; 4096].into(),
        }
    }

    /// Makes room for that many pages: more than [`RUN`] come only from files.
    fn hold(&mut self, pages: usize) {
        if self.page_run.bytes().len() < pages * 4096 {
            self.page_run = Aligned::new(pages * 4096);
        }
    }
}

/// A block of the swap tier: the object for which it was read, its bytes.
type ReadBlock = (Extent, Box<[u8]>);

/// One fault thread.
pub struct Server {
    shared: Arc<Shared>,
    proc: Arc<Proc>,
    /// The bytes of `loads`; `None` if all of them are zeros.
    buffers: Option<FaultBuffers>,
    /// Reads from the swap tier, if there is one.
    reader: Option<Reader>,
    /// Reads of files ahead, once a program wants them.
    read_ahead: Option<ReadAhead>,
    /// Faults that wait for a read.
    reading: Vec<Waiting>,
    inbox: Inbox,
    /// Where the core has the pages of `loads`.
    place: Place,
    loads: Vec<Load>,
    /// Blocks of the swap tier that were read for these loads, if the scheme caches them.
    read_blocks: Vec<ReadBlock>,
    idle_class: bool,
    cpu: Option<usize>,
    /// CPU of the thread that faulted last.
    stat: Option<(u32, TaskStat)>,
    order: Order<Uffd>,
    /// See [`memfit_core::driver::fork_changes::Inherited::suspects`]; of the events since the last
    /// moment without an unread one.
    suspects: Ranges,
    /// The thread whose fault is being served, or that waits for the answer to its notice; else 0.
    served: u32,
    /// Faults that wait for the end of an announced fork.
    postponed: Vec<Waiting>,
    /// Faults that wait for the turn of the process.
    held: Vec<Waiting>,
    /// What of the wait of the fault that is being served was counted already.
    counted: Duration,
    /// Faults until the next check of the faulting thread's CPU.
    until_follow: u32,
    /// When the fault that was served last was read.
    served_last: Instant,
    ahead: Vec<Stored>,
}

/// Most pages that one fault brings back; pages of zeros can be more.
const RUN: usize = 16;

/// A fork child without a stub that has sent no message for this time is looked for.
const BARE_SLEEPS: Duration = Duration::from_millis(40);

/// Longest sleep while faults wait for the turn of the process, ms.
const HELD_MS: i32 = 20;

/// Longest sleep without faults, ms.
const IDLE_MS: i32 = 250;

/// Read buffers are freed after this time without a fault.
const RESTS_AFTER: Duration = Duration::from_secs(1);

/// A MOVE takes less than this, unless its thread is stopped or gets no CPU.
const GATE_HELD: Duration = Duration::from_millis(20);

/// An event was read by accident while the stub was inside of a MOVE: longest wait for its end.
const STRAY_WAITS: Duration = Duration::from_secs(10);

/// Polls for expected events at [`FORK_POLL`], before polls get rarer.
const QUICK_ROUNDS: u32 = 20;

/// Time between two tries while another process fills a page of the page cache.
const OTHERS_FILL: Duration = Duration::from_micros(50);
/// Time between two polls for faults while the program forks.
const FORK_POLL: Duration = Duration::from_micros(50);

/// A fault that waits to be served.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    address: u64,
    tid: u32,
    since: Instant,
    /// A write to a page that is present and write-protected.
    protected: bool,
    /// Nobody waits for the page: it comes back if it can, at most with these other pages.
    optional: Option<PageRange>,
}

impl Waiting {
    /// A fault that was read at `since`; any other message is an event.
    fn of(message: Message, since: Instant) -> Result<Waiting, Event<Uffd>> {
        Err(match message {
            Message::Fault { address, tid, protected, .. } => {
                return Ok(Waiting { address, tid, since, protected, optional: None })
            }
            Message::Fork(child) => Event::Fork(child),
            Message::Remap { from, to, len } => Event::Remap { from, to, len },
            Message::Remove { start, end } => Event::Remove { start, end },
            Message::Unmap { start, end } => Event::Unmap { start, end },
        })
    }

    /// Whether a thread of the program waits for it, and not the pager itself, which has no tid
    /// there.
    fn is_of_program(&self) -> bool {
        self.tid != 0
    }

    /// A page to bring back that nobody has touched.
    fn wanted(address: u64) -> Waiting {
        Waiting { address, tid: 0, since: Instant::now(), protected: false, optional: None }
    }
}

/// Runs until the process's memory is gone.
pub fn run(shared: Arc<Shared>, proc: Arc<Proc>) {
    memfit_os::sched::ask_short_slices_only();
    let mut server = Server {
        shared: Arc::clone(&shared),
        proc: Arc::clone(&proc),
        buffers: None,
        read_blocks: Vec::new(),
        reader: shared.swap.clone().map(|swap| Reader::new(swap, shared.budget.sizes.budget)),
        read_ahead: None,
        reading: Vec::new(),
        inbox: Inbox::default(),
        place: Place::own(&proc),
        loads: Vec::with_capacity(64),
        idle_class: false,
        cpu: None,
        stat: None,
        order: Order::default(),
        suspects: Ranges::default(),
        served: 0,
        postponed: Vec::new(),
        held: Vec::new(),
        counted: Duration::ZERO,
        until_follow: 0,
        served_last: Instant::now(),
        ahead: Vec::new(),
    };
    let end = server.serve();
    let is_ending = || proc.dead.load(Relaxed) && proc.memory_goes();
    if let Some(why) = end.err().and_then(End::broken).filter(|_| !is_ending()) {
        if !bare_children::end(&shared, &proc, &why) && !proc.stop(&shared, &why) {
            return;
        }
        while !proc.uffd.gone() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    crate::attach::remove_process(&shared, &proc);
}

impl Server {
    fn serve(&mut self) -> Result<(), End> {
        let mut waiting = Vec::new();
        if self.proc.bare.load(Relaxed) {
            self.begin_bare(&mut waiting)?;
        }
        loop {
            let wanted = std::mem::take(&mut *self.proc.wanted.lock());
            waiting.extend(wanted.into_iter().map(Waiting::wanted));
            self.find_fork_ended(&mut waiting)?;
            if !self.proc.expected().is_some_and(|fork| fork.may_wait(u32::MAX)) {
                waiting.append(&mut self.postponed);
            }
            self.take_held(&mut waiting);
            // On one CPU the program runs before the wake-up returns, so its next fault may be
            // queued already. If not, it runs on another CPU or waits for something else.
            if self.drain_faults(&mut waiting)? == 0 && waiting.is_empty() {
                match self.next_returning() {
                    Some(returning) => waiting.push(returning),
                    None => self.wait()?,
                }
            }
            self.reap(&mut waiting);
            // In the order in which they were read.
            for fault in std::mem::take(&mut waiting) {
                self.served_last = fault.since;
                self.fault(fault, &mut waiting)?;
            }
            self.served = 0;
            self.leave_cache();
            let now = self.served_last;
            self.read_ahead.iter_mut().for_each(|ahead| _ = ahead.tidy(now, &self.shared.files.counters));
        }
    }

    /// The next of the pages that come back together, if there is room for it. While one of them is
    /// read from the swap tier the others wait.
    fn next_returning(&mut self) -> Option<Waiting> {
        if self.proc.held.load(Relaxed) {
            return None;
        }
        if self.proc.returning.lock().is_wanted() {
            background::find_working_set(&self.shared, &self.proc);
        }
        if !self.proc.returning.lock().is_under_way() || !self.reading.is_empty() {
            return None;
        }
        if self.shared.must_wait(RUN as u64) || self.proc.at_rest() {
            self.proc.returning.lock().no_room();
            return None;
        }
        // Faults are looked for in between.
        for _ in 0..RUN {
            let pages = self.proc.returning.lock().next_pages()?;
            if matches!(self.shared.lock().core.entry(self.proc.id, pages.first), Entry::Out(_)) {
                return Some(Waiting { optional: Some(pages), ..Waiting::wanted(pages.first.address()) });
            }
        }
        None
    }

    /// Waits until there is something to do.
    fn wait(&mut self) -> Result<(), End> {
        let wait = match self.idle_wait() {
            // A fork event ends when the parent runs again, which makes no descriptor readable.
            _ if !self.proc.newborn.lock().is_empty() => 1,
            // One that was detached goes on without its stub.
            _ if self.proc.dead.load(Relaxed) && !self.proc.detaching.load(Relaxed) => 2,
            // Its end can come without a fault.
            _ if self.proc.expected().is_some() => 1,
            // It may end soon, and the user is told why.
            _ if self.proc.is_out_of_reach() => 2,
            // No descriptor tells of room.
            _ if self.proc.returning.lock().is_under_way() => 1,
            // Nor of the end of the pager.
            _ if !self.held.is_empty() => HELD_MS,
            wait => wait,
        };
        let device = self.reader.as_ref().map_or(-1, Reader::fd);
        let fds = [self.proc.uffd.as_raw_fd(), self.proc.kick.as_raw_fd(), device];
        let mut ready = [false; 3];
        if let Some(soon) = self.reader.as_ref().filter(|_| device >= 0).and_then(Reader::answers_within) {
            let start = Instant::now();
            while self.shared.cpus.suffice.load(Relaxed) && start.elapsed() < soon && ready == [false; 3] {
                ready = poll(fds, 0);
            }
        } else {
            self.until_follow = 0;
        }
        if ready == [false; 3] {
            ready = poll(fds, wait);
        }
        let [readable, kicked, answered] = ready;
        if kicked {
            self.proc.kick.clear();
        } else if !readable && !answered && self.proc.uffd.gone() {
            return Err(End::Gone);
        }
        Ok(())
    }

    /// How long to wait for faults, ms.
    fn idle_wait(&mut self) -> i32 {
        let rests = self.served_last.elapsed() > RESTS_AFTER;
        let tidy = |ahead: &mut ReadAhead| ahead.tidy(Instant::now(), &self.shared.files.counters);
        if self.read_ahead.as_mut().is_some_and(tidy) && rests {
            self.read_ahead = None;
        }
        let Some(reader) = &mut self.reader else { return IDLE_MS };
        if self.reading.is_empty() && rests {
            reader.rest();
        }
        if reader.pending() {
            return 1;
        }
        IDLE_MS
    }

    /// Retries the faults whose bytes have arrived.
    fn reap(&mut self, waiting: &mut Vec<Waiting>) {
        // Without a read under way no answer would wake them.
        if self.reader.as_mut().is_some_and(|reader| reader.reap() || !reader.busy()) {
            waiting.append(&mut self.reading);
        }
    }

    /// `Err` if the page's bytes are in the swap tier and not at hand: they are being read, with
    /// those of the pages expected next, at most `limit`. Else, how many pages from this one on can
    /// be filled at once.
    fn read_first(&mut self, page: Page, limit: Option<u64>) -> Result<u32, ()> {
        let swaps = self.shared.has_swapped() && !self.place.is_cache();
        let Some(reader) = self.reader.as_mut().filter(|_| swaps) else { return Ok(u32::MAX) };
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.clear();
        let most = limit.map_or(reader.pages_ahead(), |limit| reader.pages_ahead().min(limit as usize));
        self.shared.lock().core.swapped_ahead(self.proc.id, page, most as u32, &mut ahead);
        // One that cannot be read is for its own fault to report.
        let is_known = |(i, stored): &(usize, &Stored)| match reader.have(**stored) {
            Have::Failed(_) => *i == 0,
            have => have == Have::Ready,
        };
        let known = ahead.iter().enumerate().take_while(is_known).count();
        let answer = match (ahead.len(), known) {
            (0, _) => Ok(u32::MAX),
            (_, 0) => {
                reader.want(&ahead);
                Err(())
            }
            // Later pages are read while the program works on these, and do not replace them.
            (all, known) => {
                ahead[..known].iter().for_each(|&stored| reader.keep(stored));
                // Long reads, not one for the few pages that came into range since the last fault.
                let coming = ahead[known..].iter().take_while(|&&stored| reader.have(stored) == Have::Coming).count();
                if all - known - coming >= most / 2 || known + coming < most / 4 {
                    reader.want(&ahead[known + coming..]);
                }
                Ok(known as u32)
            }
        };
        self.ahead = ahead;
        answer
    }

    /// Serves one fault to its end. Adds faults that are read meanwhile to `more`.
    fn fault(&mut self, fault: Waiting, more: &mut Vec<Waiting>) -> Result<(), End> {
        let page = Page::of(fault.address);
        self.served = fault.tid;
        self.behave();
        self.follow(fault.tid);
        if fault.protected {
            return self.unprotect(fault, more);
        }
        if self.proc.is_doorbell(page.address()) {
            return self.doorbell(fault, more);
        }
        let is_beacon = page.address() == self.proc.beacon.load(Relaxed) && page.0 != 0;
        let stubs_own =
            |i: &crate::proc::Identity| i.forbidden.iter().any(|&(s, e)| fault.address >= s && fault.address < e);
        if self.proc.identity.get().is_some_and(stubs_own) && !is_beacon {
            return self.window_touched(fault);
        }
        let claims = match is_beacon && self.proc.identity.get().is_none() {
            true => fork_children::claims(&self.shared, &self.proc, fault.tid),
            false => Vec::new(),
        };
        if !self.serve_missing(fault, is_beacon, more)? {
            return Ok(());
        }
        if !claims.is_empty() {
            fork_children::name(&self.shared, &self.proc, &claims);
        }
        if fault.is_of_program() {
            self.proc.counters.faults.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Serves a fault on a missing page. False if it fills nothing: the page is a guard page, or
    /// the fault must wait, and is in `reading` or `postponed`.
    fn serve_missing(&mut self, fault: Waiting, is_beacon: bool, more: &mut Vec<Waiting>) -> Result<bool, End> {
        if !is_beacon && self.holds(fault) {
            return Ok(false);
        }
        self.counted = Duration::ZERO;
        loop {
            let Some((page, answer)) = self.ask_core(fault, is_beacon, more)? else { return Ok(false) };
            let source = self.loads.first().map(|load| load.source.clone());
            let done = match answer {
                Fault::Load if fault.optional.is_some() => {
                    // The program may have discarded the page while its bytes were read.
                    if source == Some(Source::Zero) {
                        self.leave_out(0);
                    } else {
                        self.load_optional()?;
                    }
                    true
                }
                Fault::Load => {
                    self.bring_below(page)?;
                    if !self.keep_guards() {
                        self.wake(page, 1);
                        return Ok(false);
                    }
                    self.find_files();
                    self.load(page, fault.since)?
                }
                Fault::Present => {
                    // Another fault may have brought the page, and woken the thread.
                    self.served = 0;
                    self.verify_present(page)?
                }
                // Pages of the page cache.
                Fault::Evicting if self.place.is_cache() => {
                    self.shared.cache.still(|| ());
                    false
                }
                Fault::Busy if self.place.is_cache() => {
                    // The fault thread of another process wakes only that process.
                    std::thread::sleep(OTHERS_FILL);
                    false
                }
                Fault::Evicting => {
                    if !self.drain_batch()? {
                        // Other faults need not wait for this one.
                        self.postponed.push(fault);
                        return Ok(false);
                    }
                    false
                }
                Fault::Busy => true,
            };
            if done {
                self.count_wait(fault);
                self.sampled(page, source, fault.since);
                return Ok(true);
            }
            if off(Rule::EventPending) {
                self.wake(page, 1);
                return Ok(true);
            }
            if self.must_wait(fault) {
                return Ok(false);
            }
            // An event is unread: the table may change, and more faults may come.
            self.drain(more)?;
            if self.proc.uffd.gone() {
                return Err(End::Gone);
            }
        }
    }

    /// Asks the core how to serve a fault on a missing page: the page's number in the core, and the
    /// answer. `None` if the fault must wait for a read; it is in `reading` then.
    fn ask_core(
        &mut self,
        fault: Waiting,
        is_beacon: bool,
        more: &mut Vec<Waiting>,
    ) -> Result<Option<(Page, Fault)>, End> {
        self.place = Place::of(&self.shared, &self.proc, Page::of(fault.address));
        let Ok(mut most) = self.read_first(Page::of(fault.address), fault.optional.map(|pages| pages.pages)) else {
            self.reading.push(fault);
            return Ok(None);
        };
        let alone = !is_beacon && self.throttle(fault, more)?;
        // Events were read meanwhile.
        self.place = Place::of(&self.shared, &self.proc, Page::of(fault.address));
        let page = self.place.in_core(Page::of(fault.address));
        let limit = self.place.limit().unwrap_or_else(|| match self.proc.region_of(fault.address) {
            Some((start, end)) => PageRange::from_addresses(start, end),
            None => PageRange { first: page, pages: 1 },
        });
        let mut limit = fault.optional.map_or(limit, |most| most.within(limit));
        if alone || self.is_unsure(page) {
            (most, limit) = (1, PageRange { first: page, pages: 1 });
        }
        self.loads.clear();
        let mut state = self.shared.lock();
        let most = self.sampling().map_or(most, |sampling| most.min(sampling.most(page)));
        let answer = state.core.fault(self.place.id, page, limit, most, &mut self.loads);
        self.shared.apply_effects(state);
        self.count_brought();
        Ok(Some((page, answer)))
    }

    /// Whether neighbours of this page may not be the process's: see [`fork_children::lacks`].
    fn is_unsure(&self, page: Page) -> bool {
        let unsure = self.proc.unsure.load(Relaxed);
        if unsure {
            fork_children::lacks(&self.shared, &self.proc, page);
        }
        unsure
    }

    /// The program writes to a write-protected page: the stub is taking it from a read-only
    /// mapping, or left it protected. When the mapping is as before, the writer tries again. It
    /// gets SIGSEGV, or another fault if the page is evicted by now.
    fn unprotect(&mut self, fault: Waiting, more: &mut Vec<Waiting>) -> Result<(), End> {
        let (proc, page) = (Arc::clone(&self.proc), Page::of(fault.address));
        loop {
            // With `io` held the page enters no batch.
            let io = proc.io.lock();
            if !matches!(self.shared.lock().core.entry(proc.id, page), Entry::Evicting(_)) {
                match proc.uffd.unprotect(page.address()) {
                    Fill::EventPending(_) => {}
                    Fill::Gone => return Err(End::Gone),
                    Fill::Done => return Ok(()),
                    _ => {
                        proc.uffd.wake(page.address(), 4096);
                        return Ok(());
                    }
                }
                drop(io);
                if self.must_wait(fault) {
                    return Ok(());
                }
                self.drain(more)?;
                if proc.uffd.gone() {
                    return Err(End::Gone);
                }
                continue;
            }
            drop(io);
            if !self.drain_batch()? {
                self.postponed.push(fault);
                return Ok(());
            }
        }
    }

    /// The program has touched the bounce window: some programs read or lock all of their memory.
    /// It finds zeros. The stub cannot mistake that page for a moved one: no MOVE runs now, and the
    /// stub empties the window before the next one.
    fn window_touched(&mut self, fault: Waiting) -> Result<(), End> {
        let (proc, page) = (Arc::clone(&self.proc), Page::of(fault.address));
        let Some(ring) = proc.ring() else { return Ok(()) };
        if !proc.close_gate_within(GATE_HELD).is_closed()? {
            self.postponed.push(fault);
            return Ok(());
        }
        ring.touched.store(1, SeqCst);
        let fill = proc.uffd.copy(page.address(), &ZERO_PAGE.0);
        proc.open_gate();
        match fill {
            Fill::EventPending(_) => {
                self.postponed.push(fault);
                return Ok(());
            }
            Fill::Gone => return Err(End::Gone),
            // The page is present, or the stub has unregistered the window for a moment and the
            // kernel fills it.
            _ => {}
        }
        proc.uffd.wake(page.address(), 4096);
        Ok(())
    }

    /// Records the cost of a served access, if accesses are recorded.
    fn sampled(&self, page: Page, source: Option<Source>, since: Instant) {
        if let (Some(sampling), Some(source)) = (self.sampling(), source) {
            if sampling.faulted(self.proc.id, page, &source, since.elapsed(), self.idle_class) {
                self.shared.budget.want_reclaim();
            }
        }
    }

    /// Has the stub advise the ranges, and waits until it is done.
    fn advise(&mut self, ranges: &[(u64, u64)], flag: u32) -> Result<(), End> {
        for chunk in ranges.chunks(BATCH_RANGES) {
            let proc = Arc::clone(&self.proc);
            let mut io = self.idle_stub()?;
            proc.post_advice(&mut io, chunk, flag);
            drop(io);
            proc.ring_bell();
        }
        self.idle_stub().map(drop)
    }

    /// Waits until the stub has no batch, and returns its lock `io`.
    fn idle_stub(&self) -> Result<Held<'_, Io>, End> {
        loop {
            let mut io = self.proc.io.lock();
            self.proc.collect(&self.shared, &mut io, false)?;
            if !io.busy {
                return Ok(io);
            }
            let number = io.number;
            drop(io);
            self.proc.wait_finished(number, Duration::from_millis(20));
            if self.proc.uffd.gone() {
                return Err(End::Gone);
            }
            if self.proc.dead.load(Relaxed) {
                return Err(Broken("its stub has ended inside of a batch".into()).into());
            }
        }
    }

    /// A fault on a page of the batch: collects the answers and cancels the rest. False if the stub
    /// is stopped inside of a MOVE.
    fn drain_batch(&mut self) -> Result<bool, End> {
        let proc = Arc::clone(&self.proc);
        let mut io = proc.io.lock();
        let gated = io.busy;
        if gated && !proc.close_gate_within(GATE_HELD).is_closed()? {
            return Ok(false);
        }
        // Untried ranges go back as well: their pages are present, and the fault finds them so.
        let result = proc.collect(&self.shared, &mut io, true);
        if gated {
            proc.open_gate();
        }
        result?;
        Ok(true)
    }

    /// Moves this thread into SCHED_IDLE or out of it. When an ordinary thread wakes another one,
    /// the kernel prefers an idle CPU for that: every fault then costs two wake-ups of idle CPUs
    /// (20 us each in a virtual machine) instead of two switches on one. A CPU that runs only
    /// SCHED_IDLE threads counts as idle, so the program's thread goes on where it was, and this
    /// thread runs when that one waits for its next page. Where more threads want a CPU than there
    /// are, this thread would wait too long.
    fn behave(&mut self) {
        let idle_class = self.shared.cpus.idle_class.load(Relaxed);
        if idle_class != self.idle_class {
            self.idle_class = idle_class;
            memfit_os::sched::set_idle_class(idle_class);
        }
    }

    /// Moves this thread to the CPU of the faulting thread: a hand-over on one CPU costs a third of
    /// one between two.
    fn follow(&mut self, tid: u32) {
        if self.until_follow > 0 {
            self.until_follow -= 1;
            return;
        }
        self.until_follow = FOLLOW_EVERY;
        if self.stat.as_ref().is_none_or(|(of, _)| *of != tid) {
            let stat = self.proc.pid().and_then(|pid| TaskStat::open(pid, tid as i32).ok());
            self.stat = stat.map(|stat| (tid, stat));
        }
        match self.stat.as_ref().and_then(|(_, stat)| stat.cpu()) {
            None => self.stat = None,
            Some(cpu) if self.cpu == Some(cpu) => {}
            Some(cpu) => {
                memfit_os::sched::run_on(cpu);
                self.cpu = Some(cpu);
                self.shared.cpus.of_faults.store(cpu + 1, Relaxed);
            }
        }
    }
}
