//! Serving page faults: which pages come back, and from where.

use crate::blocks::{block_of, byte_in_block};
use crate::core_call::CoreCall;
use crate::engine::Core;
use crate::entry::{Entry, Unfilled};
use crate::ids::{Extent, ObjectId, Page, PageRange, ProcId, StagingSlot};
use crate::object::Place;
use crate::pool::{Runs, Slot, Span};
use crate::price::Return;
use crate::replacement::ReplacementMode;
use crate::streams::Window;
use crate::table::Age;
use alloc::vec::Vec;
use core::ops::Range;

/// Where the bytes of a page are that must be filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The page was never touched: zeros.
    Zero,
    /// A staging slot, uncompressed.
    Staged(StagingSlot),
    /// One repeated word.
    Word(u64),
    /// Compressed in the pool: `codec` 0 is raw.
    Pooled {
        /// Where.
        runs: Runs,
        /// Codec number.
        codec: u8,
    },
    /// Nowhere: the page must be read from its file.
    File,
    /// In the swap tier.
    Swapped {
        /// Where.
        extent: Extent,
        /// Bytes.
        len: u16,
        /// Codec number.
        codec: u8,
        /// The swap tier shall keep them: the page may leave again unchanged. See
        /// [`Core::goes_on`].
        keep: bool,
    },
}

/// One page to fill. The source stays valid until [`Core::loaded`] is called for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// The page.
    pub page: Page,
    /// Where its bytes are.
    pub source: Source,
}

/// How to serve a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Fill the pages listed.
    Load,
    /// The table says that the page is in the program: verify it, then wake the program.
    Present,
    /// The page is in a batch: drain the batch, then ask again.
    Evicting,
    /// Another fault on the same page is being served.
    Busy,
}

/// Result of filling a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// The page was filled.
    Done,
    /// The page was filled with the contents of its file.
    Read,
    /// A page was there already.
    Exists,
    /// The page was not filled; its entry becomes what it was before the fault.
    Retry,
}

/// An object in the swap tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Where.
    pub extent: Extent,
    /// Bytes.
    pub len: u16,
    /// Codec number; 0 is raw.
    pub codec: u8,
}

/// Pages read ahead from the swap tier for each page of the window.
const READ_AHEAD: u32 = 8;

impl Core {
    /// Serves a fault at `page`, inside the registered range `limit`: adds the pages to fill to
    /// `loads`. First come the faulting page and those above it, then those below it; each of the
    /// two parts is contiguous and in ascending order. At most `most` pages: those whose bytes the
    /// pager has at hand, or 1 if each touch shall be seen. The pager must answer each page by
    /// [`Core::loaded`], in any order.
    pub fn fault(&mut self, proc: ProcId, page: Page, limit: PageRange, most: u32, loads: &mut Vec<Load>) -> Fault {
        self.record(&CoreCall::Fault { proc, page, limit, most });
        let entry = self.table.get(proc, page);
        let answer = match entry {
            Entry::Untracked => self.fill_zero(proc, page, limit, most, loads),
            Entry::Out(object) => self.bring_back(proc, page, object, limit, most, loads),
            Entry::Quarantined(_) | Entry::Lazy => {
                self.table.set(proc, page, Entry::Filling(Unfilled::of(entry)));
                loads.push(Load { page, source: Source::Zero });
                self.counters.faults_zero += 1;
                Fault::Load
            }
            Entry::Resident => {
                self.counters.faults_present += 1;
                Fault::Present
            }
            Entry::Evicting(_) => Fault::Evicting,
            Entry::Loading(_) | Entry::Filling(_) => Fault::Busy,
        };
        self.counters.faults += u64::from(answer == Fault::Load);
        answer
    }

    fn window(&mut self, proc: ProcId, page: Page, max: u32, zeros: bool) -> Window {
        let table = &self.table;
        self.streams[proc.0 as usize].window(page.0, max, zeros, |pages| table.all_resident(proc, pages))
    }

    fn fill_zero(&mut self, proc: ProcId, page: Page, limit: PageRange, most: u32, loads: &mut Vec<Load>) -> Fault {
        let max = self.tunables.scheme.fault.zero_run_pages.min(most.max(1));
        let window = self.window(proc, page, max, true);
        for number in page.0..(page.0 + u64::from(window.ahead)).min(limit.end().max(page.0 + 1)) {
            if self.table.get(proc, Page(number)) != Entry::Untracked {
                break;
            }
            self.table.set(proc, Page(number), Entry::Filling(Unfilled::of(Entry::Untracked)));
            loads.push(Load { page: Page(number), source: Source::Zero });
            self.counters.zero_run_pages += u64::from(number > page.0);
        }
        self.counters.faults_zero += 1;
        Fault::Load
    }

    /// Adds the places of `page` and of the pages after it in the swap tier, for the pager to read
    /// before it calls [`Core::fault`]. The longer a sequential pass has lasted, the more pages, up
    /// to `most`. Adds nothing if `page` is not in the swap tier.
    pub fn swapped_ahead(&mut self, proc: ProcId, page: Page, most: u32, out: &mut Vec<Stored>) {
        self.record(&CoreCall::SwappedAhead { proc, page, most });
        if self.stored(proc, page).is_some() {
            let window = self.window(proc, page, self.tunables.scheme.fault.around_pages, false);
            // Two pages can be one object of the program that crosses a page border: no sequence.
            let far = window.ahead > 2 && !window.down;
            let pages = if far { (window.ahead * READ_AHEAD).min(most) } else { window.ahead };
            self.swapped_run(proc, page, pages, out);
        }
    }

    /// The same for up to `pages` pages, without regard to streams.
    pub fn swapped_run(&self, proc: ProcId, page: Page, pages: u32, out: &mut Vec<Stored>) {
        let entries = self.table.entries(proc, page, pages);
        out.extend(entries.filter_map(|entry| self.stored_as(entry)));
    }

    /// Runs of pages that only their file has, each the first page number and one past the last.
    /// Pages that nobody has touched are such ones if they are those of a file.
    pub fn only_in_file(&self, proc: ProcId, range: PageRange) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (page, entry) in (range.first.0..).zip(self.table.entries(proc, range.first, range.pages as u32)) {
            let only = match entry {
                Entry::Untracked => true,
                Entry::Out(object) => self.source(object) == Source::File,
                _ => false,
            };
            match runs.last_mut() {
                Some(run) if only && run.end == page => run.end += 1,
                _ if only => runs.push(page..page + 1),
                _ => {}
            }
        }
        runs
    }

    fn stored(&self, proc: ProcId, page: Page) -> Option<Stored> {
        self.stored_as(self.table.get(proc, page))
    }

    fn stored_as(&self, entry: Entry) -> Option<Stored> {
        let Entry::Out(object) = entry else { return None };
        match self.source(object) {
            Source::Swapped { extent, len, codec, .. } => Some(Stored { extent, len, codec }),
            _ => None,
        }
    }

    fn bring_back(
        &mut self,
        proc: ProcId,
        page: Page,
        object: ObjectId,
        limit: PageRange,
        most: u32,
        loads: &mut Vec<Load>,
    ) -> Fault {
        let source = self.source(object);
        match source {
            Source::Zero | Source::Word(_) => self.counters.faults_filled += 1,
            Source::Staged(_) => self.counters.faults_staged += 1,
            Source::Pooled { .. } => self.counters.faults_pool += 1,
            Source::Swapped { .. } => self.counters.faults_swap += 1,
            Source::File => self.counters.faults_file += 1,
        }
        self.table.faulted(proc, page, self.hot_chances());
        let from_swap = matches!(source, Source::Swapped { .. });
        let before = loads.len();
        // For a page in the swap tier `swapped_ahead` has asked for the window already; asking
        // again does not shorten the stream.
        let max = self.tunables.scheme.fault.around_pages.min(most.max(1));
        let window = self.window(proc, page, max, false);
        for number in page.0..(page.0 + u64::from(window.ahead)).min(limit.end().max(page.0 + 1)) {
            let Entry::Out(object) = self.table.get(proc, Page(number)) else { break };
            let source = self.source(object);
            // A fault served from RAM does not wait for a device because of a neighbour.
            if matches!(source, Source::Swapped { .. }) && !from_swap {
                break;
            }
            self.begin_load(proc, Page(number), object, source, loads);
        }
        let below = loads.len();
        for number in (page.0.saturating_sub(window.behind.into()).max(limit.first.0)..page.0).rev() {
            let Entry::Out(object) = self.table.get(proc, Page(number)) else { break };
            let source = self.source(object);
            if matches!(source, Source::Swapped { .. } | Source::File) {
                break;
            }
            self.begin_load(proc, Page(number), object, source, loads);
        }
        loads[below..].reverse();
        self.counters.around_pages += (loads.len() - before - 1) as u64;
        Fault::Load
    }

    fn begin_load(&mut self, proc: ProcId, page: Page, object: ObjectId, source: Source, loads: &mut Vec<Load>) {
        let refers = object;
        let object = match self.objects.place_of(object) {
            Place::Same(other) => {
                self.objects.add_ref(other);
                other
            }
            _ => object,
        };
        let swapped = matches!(source, Source::Swapped { .. });
        let pooled = matches!(source, Source::Pooled { .. });
        let resident = self.present_total();
        if let Some(ages) = &mut self.objects.ages {
            // Pages that are brought along cost little.
            if loads.is_empty() && (pooled || swapped || matches!(source, Source::File)) {
                ages.faulted(refers, pooled);
            }
            let how = Return { along: !loads.is_empty(), compressed: pooled || swapped };
            ages.came_back(refers, how, resident);
        }
        self.objects.pin(object);
        self.read_begins(object, &source);
        self.table.set(proc, page, Entry::Loading(object));
        if refers != object {
            self.drop_ref(refers);
        }
        let read = swapped || source == Source::File;
        if read || pooled {
            self.table.came_back(proc, page, read);
        }
        if read {
            self.objects.came_back(object);
        }
        loads.push(Load { page, source });
    }

    fn source(&self, id: ObjectId) -> Source {
        let (codec, len) = self.objects.codec(id);
        match self.objects.place_of(id) {
            Place::Staged(slot) | Place::Compressing(slot) | Place::WritingRaw(slot) => Source::Staged(slot),
            Place::Filled(word) => Source::Word(self.objects.fills.word(word)),
            Place::Pooled(handle) | Place::Writing(handle) => Source::Pooled { runs: self.pool.runs(handle), codec },
            Place::Swapped(extent) => match self.pool_control.clean_frame(extent) {
                Some(frame) => {
                    let slot = Slot { frame, offset: byte_in_block(extent) as u16 };
                    Source::Pooled { runs: Runs::one(slot, u32::from(len)), codec }
                }
                None => {
                    let keep = self.objects.keeps(id) || self.pool_control.keeps_slots();
                    Source::Swapped { extent, len, codec, keep }
                }
            },
            Place::Dropped => Source::File,
            Place::Same(other) => self.source(other),
        }
    }

    /// Programs read `pages` pages from files that the core does not know. Taken literally, each is
    /// a request that the pool could not answer (ezswap 5.11); with `admission.offered_window` they
    /// do not count.
    pub fn read_elsewhere(&mut self, pages: u32) {
        self.record(&CoreCall::ReadElsewhere { pages });
        if let Some(selective) =
            self.pool_control.selective.as_mut().filter(|_| self.tunables.scheme.admission.offered_window == 0)
        {
            (0..pages).for_each(|_| selective.paged_in(false));
        }
    }

    /// A thread begins to read an object's bytes. A request for a page is a hit or a miss of the
    /// pool (ezswap, rule S4).
    fn read_begins(&mut self, id: ObjectId, source: &Source) {
        if let Some(selective) = &mut self.pool_control.selective {
            match source {
                Source::Pooled { .. } => selective.paged_in(true),
                Source::Swapped { .. } | Source::File => selective.paged_in(false),
                Source::Zero | Source::Word(_) | Source::Staged(_) => {}
            }
        }
        if matches!(source, Source::Pooled { .. }) && self.objects.is_file(id) {
            self.file_trial.note(true);
        }
        if let Place::Swapped(extent) = self.objects.place_of(id) {
            if let Some(unit) = self.pool_control.read_begins(extent) {
                self.pool.seal(unit, true);
            }
        }
    }

    pub(crate) fn read_ends(&mut self, id: ObjectId) {
        self.objects.unpin(id);
        if let Place::Swapped(extent) = self.objects.place_of(id) {
            if let Some(unit) = self.pool_control.read_ends(extent) {
                self.pool.seal(unit, false);
            }
        }
    }

    /// The whole block of an object was read, and its bytes are at hand: right after
    /// [`Core::loaded`], before the lock is given back. Returns the frame of the pool that takes
    /// them, and the same frame if it came into use. Until that is used again, the other objects
    /// of the block are read there.
    ///
    /// `None` if the scheme caches no reads, or no buffer is clean. Then dirty ones are due, so
    /// that later blocks find one (Cervera 1999, section 2.4: a read may have to clean a buffer).
    pub fn cache_read(&mut self, extent: Extent) -> Option<(u32, Span)> {
        self.record(&CoreCall::CacheRead { extent });
        let block = block_of(extent);
        if !self.pool_control.caches(block) {
            return None;
        }
        let Some((unit, grew)) = self.pool.take_clean() else {
            self.clean_some();
            return None;
        };
        self.pool_control.cached(unit, block);
        self.counters.cached_reads += 1;
        Some((unit.0, grew))
    }

    /// Units become due as if the pool had no room for a zpage.
    fn clean_some(&mut self) {
        let due = &mut self.pool_control.due;
        if let (ReplacementMode::Policy(policy), true) = (&mut self.pool_control.mode, due.is_empty()) {
            policy.victims(due);
            due.iter().for_each(|&unit| self.pool.seal(unit, true));
        }
    }

    /// Result of filling one page of a fault's list.
    pub fn loaded(&mut self, proc: ProcId, page: Page, filled: Filled) {
        self.record(&CoreCall::Loaded { proc, page, filled });
        let mut file = filled == Filled::Read;
        match (self.table.get(proc, page), filled) {
            (Entry::Loading(object), Filled::Retry) => {
                self.read_ends(object);
                self.table.set(proc, page, Entry::Out(object));
            }
            (Entry::Loading(object), _) => {
                self.counters.unexpected_present += u64::from(filled == Filled::Exists);
                let staged = matches!(self.source(object), Source::Staged(_));
                let age = if staged { Age::Young } else { Age::Back };
                self.table.come(proc, page);
                self.read_ends(object);
                file = self.objects.is_file(object);
                self.table.set_aged(proc, page, self.table.entry_when_filled(proc, page), age);
                if self.objects.refs(object) == 1 {
                    let place = self.objects.place_of(object);
                    self.pool_control.keep_slot(object, place, proc, page);
                }
                self.drop_ref(object);
            }
            (Entry::Filling(before), Filled::Retry) => self.table.set(proc, page, before.entry()),
            (Entry::Filling(_), Filled::Done | Filled::Read) => {
                if self.observes() {
                    self.table.come(proc, page);
                }
                self.table.set(proc, page, self.table.entry_when_filled(proc, page))
            }
            // The page was present: its contents can be older than a pending zap. memfit did not
            // fill it, so the program may have freed it before the registration (MADV_FREE).
            (Entry::Filling(before), Filled::Exists) => {
                let entry = match (before.entry(), self.table.found(proc, page)) {
                    (Entry::Untracked, Entry::Resident) => Entry::Lazy,
                    (Entry::Untracked, found) => found,
                    (before, _) => before,
                };
                self.table.set(proc, page, entry);
            }
            (entry, _) => panic!("page {:#x} was being filled but is {entry:?}", page.address()),
        }
        if filled != Filled::Retry && self.tunables.scheme.reclaim.file_age > 1 {
            self.table.is_of_file(proc, page, file);
        }
        let p = self.table.proc_mut(proc);
        if p.coming_pages == 0 {
            p.zap_pending.end();
        }
    }
}
