//! State of a running thread: its regions, its random numbers, and the functions that all
//! operations use.

use crate::arena::Arena;
use crate::content::{PageBuf, Patch, MAX_PATCHES, PAGE};
use crate::model::{compare, Event, History, Mismatch, PageModel, Prot, Seen, TestRegion};
use crate::ops::OPS;
use crate::ops_heap::Heap;
use crate::ops_io::Io;
use crate::race::Tally;
use crate::report::{self, Who};
use crate::rng::{mix2, Rng};
use crate::status::ThreadStatus;
use crate::sys::{self, Errno, Span};
use crate::world::World;
use std::sync::atomic::Ordering::Relaxed;

/// Most regions of a thread: keeps the number of mappings far below the kernel's limit.
pub const MAX_REGIONS: usize = 400;
/// Pages of the scratch area.
pub const SCRATCH_PAGES: usize = 64;

/// The access to pages that an operation needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Load.
    Read,
    /// Store.
    Write,
}

/// A run of pages of a region of this thread.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Index of the region.
    pub r: usize,
    /// First page.
    pub first: usize,
    /// Number of pages.
    pub count: usize,
}

impl Run {
    /// The page indices.
    pub fn range(self) -> std::ops::Range<usize> {
        self.first..self.first + self.count
    }
}

/// State of a thread.
pub struct Ctx<'w> {
    /// State that the threads of the process share.
    pub world: &'w World,
    /// Identity for reports.
    pub who: Who,
    /// Its counters.
    pub stats: &'static ThreadStatus,
    /// Random numbers of the current operation.
    pub rng: Rng,
    /// Version that the current operation gives to the pages it changes.
    pub version: u32,
    /// Its regions.
    pub regions: Vec<TestRegion>,
    /// Number of pages in them.
    pub mapped: usize,
    /// Limit of that number.
    pub limit: usize,
    /// Its address range.
    pub arena: Arena,
    /// Its heap blocks.
    pub heap: Heap,
    /// Its descriptors.
    pub io: Io,
    /// Its share of the common counters.
    pub tally: Tally,
    /// Page-aligned buffer for transfers.
    pub scratch: Span,
    /// Last operations.
    pub recent: History,
    seed: u64,
    born: u64,
    digest: u64,
    expected: Box<PageBuf>,
    found: Box<PageBuf>,
}

impl<'w> Ctx<'w> {
    /// A thread without regions.
    pub fn new(world: &'w World, thread: usize, arena: Arena) -> Ctx<'w> {
        let who = Who { thread, ..world.who };
        let stats = &who.status.processes[who.process].threads[thread];
        let seed = mix2(world.seed, thread as u64);
        let scratch = Span::map(SCRATCH_PAGES, sys::RW, 0);
        Ctx {
            world,
            who,
            stats,
            rng: Rng::new(seed),
            version: 0,
            regions: Vec::with_capacity(MAX_REGIONS + 8),
            mapped: 0,
            limit: world.plan.region_pages,
            arena,
            heap: Heap::new(world.plan.heap_bytes),
            io: Io::open(&who, &world.opts.dir),
            tally: Tally::new(world),
            scratch: scratch.unwrap_or_else(|e| report::broken(&who, "no scratch memory", &e)),
            recent: History::new(),
            seed,
            born: 0,
            digest: 0,
            expected: Box::new(PageBuf::zeroed()),
            found: Box::new(PageBuf::zeroed()),
        }
    }

    /// Starts operation number `op_no`. Its random numbers depend only on the seed and this number.
    pub fn begin(&mut self, op_no: u64) {
        self.who.op_no = op_no;
        self.rng = Rng::new(mix2(self.seed, op_no));
        self.version += 1;
    }

    /// Runs one operation of kind `op`.
    pub fn perform(&mut self, op: usize) {
        self.who.op = op;
        self.stats.current.store(op as u32 + 1, Relaxed);
        self.digest_in(op as u64);
        (OPS[op].run)(self);
        self.stats.kinds[op].fetch_add(1, Relaxed);
        self.stats.ops.fetch_add(1, Relaxed);
        self.stats.digest.store(self.digest, Relaxed);
        self.stats.pulse();
    }

    fn digest_in(&mut self, n: u64) {
        self.digest = mix2(self.digest, n);
    }

    /// Reports that a system call failed that must not, and ends the process.
    pub fn broken(&self, what: &str, detail: &dyn std::fmt::Display) -> ! {
        report::broken(&self.who, what, detail)
    }

    /// Unwraps the result of a system call that must not fail.
    pub fn must<T>(&self, what: &str, result: Result<T, Errno>) -> T {
        result.unwrap_or_else(|e| self.broken(what, &e))
    }

    /// Counts an operation that the kernel may refuse and has refused.
    pub fn refused(&self) {
        self.stats.refused.fetch_add(1, Relaxed);
    }

    /// Records an event of a run that every execution with the same seed has: it is part of the
    /// digest.
    pub fn note(&mut self, what: &'static str, run: Run) {
        let region = &self.regions[run.r];
        let place = mix2(region.key, u64::from(region.base + run.first as u32));
        self.digest_in(place ^ run.count as u64);
        self.remember(what, run);
    }

    /// Records an event of a run that depends on chance, for example on whether the kernel dropped
    /// lazily freed pages.
    pub fn remember(&mut self, what: &'static str, run: Run) {
        let region = &mut self.regions[run.r];
        let first = region.base + run.first as u32;
        let (op_no, op) = (self.who.op_no, self.who.op as u8);
        let event = Event { op_no, op, what, first, count: run.count as u32, version: self.version };
        region.history.push(event);
        self.recent.push(event);
    }

    /// A key for a new region; the same in every execution with the same seed.
    pub fn new_key(&mut self) -> u64 {
        self.born += 1;
        mix2(self.seed, self.born | 1 << 63)
    }

    /// Adds a region that was just mapped, all zero.
    pub fn add_region(&mut self, span: Span, in_arena: bool) -> usize {
        let key = self.new_key();
        self.regions.push(TestRegion::new(key, span.addr(), span.pages(), in_arena, self.version));
        self.mapped += span.pages();
        self.regions.len() - 1
    }

    /// The memory of a run.
    pub fn span(&self, run: Run) -> Span {
        let region = &self.regions[run.r];
        Span::owned(region.addr, region.len()).sub(run.first, run.count)
    }

    /// All of a region.
    pub fn whole(&self, r: usize) -> Run {
        Run { r, first: 0, count: self.regions[r].len() }
    }

    /// Address ranges that this thread's regions use in its arena.
    pub fn used(&self) -> Vec<(usize, usize)> {
        self.regions.iter().filter(|r| r.in_arena).map(|r| (r.addr, r.end())).collect()
    }

    /// A random region; makes one if there is none.
    pub fn pick_region(&mut self) -> usize {
        if self.regions.is_empty() {
            let pages = self.limit.min(64);
            let span = Span::map(pages, sys::RW, 0);
            let span = self.must("mmap", span);
            return self.add_region(span, false);
        }
        if self.rng.one_in(3) {
            self.rng.below(self.regions.len())
        } else {
            self.rng.skewed(self.regions.len())
        }
    }

    /// A random run of at most `max` pages. Some places are picked far more often than others.
    pub fn pick_run(&mut self, max: usize) -> Run {
        let r = self.pick_region();
        let len = self.regions[r].len();
        let first = if self.rng.one_in(2) { self.rng.below(len) } else { self.rng.skewed(len) };
        let count = self.rng.log_size(max.min(len - first));
        Run { r, first, count }
    }

    /// Sets the protection of a run.
    pub fn set_prot(&mut self, run: Run, prot: Prot) {
        let bits = match prot {
            Prot::ReadWrite => sys::RW,
            Prot::Read => libc::PROT_READ,
            Prot::None => libc::PROT_NONE,
            Prot::Exec => sys::RW | libc::PROT_EXEC,
        };
        self.must("mprotect", self.span(run).protect(bits));
        self.regions[run.r].pages[run.range()].iter_mut().for_each(|p| p.prot = prot);
    }

    /// Sets the protection of each page of a region.
    pub fn set_prots(&mut self, r: usize, prots: &[Prot]) {
        let mut first = 0;
        for same in prots.chunk_by(|a, b| a == b) {
            self.set_prot(Run { r, first, count: same.len() }, same[0]);
            first += same.len();
        }
    }

    /// The protections of a region's pages.
    pub fn prots(&self, r: usize) -> Vec<Prot> {
        self.regions[r].pages.iter().map(|p| p.prot).collect()
    }

    /// Makes a run accessible if it is not.
    pub fn make(&mut self, run: Run, need: Need) {
        let pages = &self.regions[run.r].pages[run.range()];
        let fine = match need {
            Need::Read => pages.iter().all(|p| p.prot.readable()),
            Need::Write => pages.iter().all(|p| p.prot.writable()),
        };
        if !fine {
            self.note("protect RW", run);
            self.set_prot(run, Prot::ReadWrite);
        }
    }

    fn wrong(&self, how: &str, r: usize, i: usize, bad: Mismatch) -> ! {
        report::wrong_page(&self.who, how, &self.regions[r], i, bad, &self.found, &self.recent)
    }

    /// Compares page `i` of region `r` with the bytes at page `at` of `memory`.
    fn check_page(&mut self, r: usize, i: usize, memory: Span, at: usize, how: &str) -> Seen {
        self.stats.pulse();
        self.regions[r].expect(i, &mut self.expected);
        memory.copy_out(at, &mut self.found);
        let lazy = self.regions[r].pages[i].lazy;
        match compare(&self.expected, &self.found, lazy) {
            Ok(seen) => seen,
            Err(bad) => self.wrong(how, r, i, bad),
        }
    }

    /// Compares memory elsewhere, which must be a copy of a run, with the model of that run.
    pub fn check_copy(&mut self, run: Run, copy: Span, how: &str) {
        for (at, i) in run.range().enumerate() {
            self.check_page(run.r, i, copy, at, how);
        }
        self.stats.add_verified(run.count as u64);
    }

    /// Compares the pages of a run with the model. They must be readable.
    pub fn verify(&mut self, run: Run, how: &str) {
        let memory = self.span(run);
        for (at, i) in run.range().enumerate() {
            if self.check_page(run.r, i, memory, at, how) == Seen::Dropped {
                let version = self.version;
                self.regions[run.r].pages[i].drop_bytes(version);
            }
        }
        self.stats.add_verified(run.count as u64);
    }

    /// Compares a few pages of a region; makes them readable first.
    pub fn spot_check(&mut self, r: usize, how: &str) {
        let len = self.regions[r].len();
        for _ in 0..3.min(len) {
            let run = Run { r, first: self.rng.below(len), count: 1 };
            self.make(run, Need::Read);
            self.verify(run, how);
        }
    }

    /// Writes whole pages. They must be writable.
    pub fn write(&mut self, run: Run) {
        self.note("write", run);
        self.write_to(run, self.span(run));
    }

    /// Gives a run new contents in the model, but writes the bytes to `memory`, from where the
    /// caller brings them here.
    pub fn write_to(&mut self, run: Run, memory: Span) {
        for (at, i) in run.range().enumerate() {
            let region = &mut self.regions[run.r];
            region.renew(i, self.version);
            region.expect(i, &mut self.expected);
            memory.copy_in(at, &self.expected);
            self.stats.pulse();
        }
    }

    /// Writes the modelled bytes of a run to `memory`. Its lazy pages then count as having their
    /// old bytes.
    pub fn copy_to(&mut self, run: Run, memory: Span) {
        for (at, i) in run.range().enumerate() {
            self.regions[run.r].expect(i, &mut self.expected);
            memory.copy_in(at, &self.expected);
            self.regions[run.r].pages[i].lazy = false;
        }
    }

    /// Writes a few bytes of a page. It must be writable.
    pub fn patch(&mut self, run: Run) {
        let page = self.regions[run.r].pages[run.first];
        if page.lazy {
            self.patch_lazy(run);
        } else if page.patches >= MAX_PATCHES {
            self.write(run);
        } else {
            self.note("patch", run);
            let region = &mut self.regions[run.r];
            let patch = Patch::new(region.tag(run.first), page.patches + 1);
            region.pages[run.first].patches += 1;
            self.span(run).write_bytes(patch.offset, patch.bytes());
        }
    }

    /// Patches a lazy page. The write ends its lazy state: it has exactly its old bytes or zeros,
    /// with the patch.
    fn patch_lazy(&mut self, run: Run) {
        self.note("patch lazy", run);
        let (memory, i) = (self.span(run), run.first);
        let old = self.regions[run.r].pages[i];
        let fresh = PageModel { prot: old.prot, patches: 1, ..PageModel::zero(self.version) };
        self.regions[run.r].expect(i, &mut self.expected);
        self.regions[run.r].pages[i] = fresh;
        let patch = Patch::new(self.regions[run.r].tag(i), 1);
        memory.write_bytes(patch.offset, patch.bytes());
        patch.apply(&mut self.expected);
        memory.copy_out(0, &mut self.found);
        if self.expected.0 == self.found.0 {
            // The page kept its old bytes. The model has no entry for old bytes with a newer patch,
            // so write the page anew.
            self.remember("rewrite", run);
            self.write_to(run, memory);
        } else {
            self.verify(run, "patched after MADV_FREE");
        }
    }

    /// Drops a region from the model (after it was unmapped).
    pub fn forget(&mut self, r: usize) {
        self.mapped -= self.regions[r].len();
        self.regions.swap_remove(r);
    }

    /// Compares all regions and heap blocks.
    pub fn verify_everything(&mut self, how: &str) {
        for r in 0..self.regions.len() {
            let run = self.whole(r);
            self.make(run, Need::Read);
            self.verify(run, how);
        }
        self.heap.verify_all(&self.who);
    }

    /// Fills the thread's share of memory, so that there is memory to page from the start.
    pub fn prefill(&mut self) {
        self.begin(u64::MAX);
        while self.mapped < self.limit * 85 / 100 && self.regions.len() < MAX_REGIONS / 2 {
            let room = self.limit * 9 / 10 - self.mapped;
            let pages = self.rng.log_size(room.min(2048)).max(room.min(16));
            let span = Span::map(pages, sys::RW, 0);
            let span = self.must("mmap", span);
            let r = self.add_region(span, false);
            self.write(self.whole(r));
        }
    }
}

impl Drop for Ctx<'_> {
    fn drop(&mut self) {
        for region in &self.regions {
            // Errors do not matter: the process ends soon.
            let _ = Span::owned(region.addr, region.pages.len().max(1)).unmap();
        }
        let _ = self.scratch.unmap();
    }
}

/// Bytes of `pages` pages.
pub const fn bytes(pages: usize) -> usize {
    pages * PAGE
}
