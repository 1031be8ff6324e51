//! Bringing pages back: puts the bytes of a fault's loads together and copies them into the
//! program.

use super::{End, FaultBuffers, ReadBlock, Server};
use crate::files::MappedFile;
use crate::mutant::{off, Rule};
use crate::proc::{Broken, ZERO_RUN};
use crate::state::{Locked, Shared};
use crate::stats::SourceKind;
use memfit_codec::{CodecId, Worker};
use memfit_core::{Entry, Extent, Filled, Load, Page, Source, Stored, PAGE_BYTES};
use memfit_os::uffd::Fill;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most pages that one fault reads from a file: 256 KiB, where the time of a read is mostly that of
/// its bytes.
const FILE_RUN: usize = 64;

impl Server {
    /// Fills the pages of `self.loads`. True if the faulting page, the first one, is present.
    pub(super) fn load(&mut self, page: Page, since: Instant) -> Result<bool, End> {
        if self.loads.iter().any(|load| load.source != Source::Zero) {
            let mut buffers = self.shared.spare.take(&self.shared.dictionaries);
            self.read_blocks.clear();
            let begun = matches!(self.loads[0].source, Source::Swapped { .. }).then(Instant::now);
            if let Err(error) = self.gather(&mut buffers) {
                // Other processes can have pages of the page cache.
                self.leave_out(0);
                return Err(error);
            }
            begun.iter().for_each(|begun| self.shared.meters.latency.read(begun.elapsed()));
            self.buffers = Some(buffers);
            self.read_on();
        }
        let answer = self.bring(page, since);
        if let Some(buffers) = self.buffers.take() {
            self.shared.spare.put_back(buffers);
        }
        answer
    }

    /// Brings the pages below the faulting one, if any are among the loads, and leaves the others
    /// in `self.loads`. They come first: the program runs on as soon as it has the faulting page.
    pub(super) fn bring_below(&mut self, page: Page) -> Result<(), End> {
        let Some(first) = self.loads.iter().position(|load| load.page < page) else { return Ok(()) };
        let below = self.loads.split_off(first);
        let above = std::mem::replace(&mut self.loads, below);
        let result = self.load_optional();
        self.loads = above;
        if result.is_err() {
            self.leave_out(0);
        }
        result
    }

    /// Fills the pages of `self.loads`, which no thread waits for, and leaves out what cannot be
    /// brought. After an error only the pages below the failed one are brought; else they reach up
    /// to the faulting page.
    pub(super) fn load_optional(&mut self) -> Result<(), End> {
        self.keep_sampled();
        let guarded = self.loads.is_empty() || !matches!(self.first_guard(), Ok(None));
        if guarded {
            self.leave_out(0);
            return Ok(());
        }
        let mut buffers = self.shared.spare.take(&self.shared.dictionaries);
        self.read_blocks.clear();
        let mut next = 0;
        while next < self.loads.len() {
            match self.gather_from(next, &mut buffers) {
                Ok(pages) => next += pages,
                Err(_) => self.leave_out(next),
            }
        }
        self.buffers = Some(buffers);
        let result = if self.loads.is_empty() { Ok(()) } else { self.copy_below() };
        if let Some(buffers) = self.buffers.take() {
            self.shared.spare.put_back(buffers);
        }
        result
    }

    fn copy_below(&mut self) -> Result<(), End> {
        let mut from = 0;
        let mut fill = self.copy(from, false);
        // The kernel refuses a range that begins before its mapping as a whole.
        while fill == Fill::NotMapped(0) && self.loads.len() - from > 1 {
            let half = (self.loads.len() - from).div_ceil(2);
            self.retry_later(from..from + half);
            from += half;
            fill = self.copy(from, false);
        }
        self.finish(fill, from).map(drop)
    }

    /// Leaves out the pages up to the last one whose first touch shall be sampled.
    fn keep_sampled(&mut self) {
        let Some(sampling) = self.sampling() else { return };
        let unseen = self.loads.iter().rposition(|load| sampling.most(load.page) == 1).map_or(0, |last| last + 1);
        self.retry_later(0..unseen);
        self.loads.drain(..unseen);
    }

    /// Counts the loads, if there are any, where the pager itself wants the page.
    pub(super) fn count_brought(&self) {
        if self.served != 0 {
            return;
        }
        let pages = self.loads.iter().filter(|load| load.source != Source::Zero).count() as u64;
        let meters = &self.shared.meters;
        meters.brought.fetch_add(pages, Relaxed);
        meters.brought_along.fetch_add(pages.saturating_sub(1), Relaxed);
    }

    fn bring(&mut self, page: Page, since: Instant) -> Result<bool, End> {
        let kind = SourceKind::of(&self.loads[0].source);
        // One ioctl less: the COPY of a single page wakes its thread. That thread may take this CPU
        // at once, so the core may get the report only when it waits again.
        let alone = self.loads.len() == 1;
        let waited = since.elapsed();
        let mut fill = self.copy(0, alone);
        // The kernel refuses a range that ends behind its mapping as a whole.
        while fill == Fill::NotMapped(0) && self.loads.len() > 1 {
            self.leave_out(self.loads.len() / 2);
            fill = self.copy(0, false);
        }
        let awake = alone && fill == Fill::Done;
        let filled = self.finish(fill, 0)?;
        // A page that the pager wants for itself is no fault.
        if filled > 0 && self.served != 0 {
            self.shared.meters.latency.record(kind, if awake { waited } else { since.elapsed() });
        }
        if filled > 0 && !awake {
            // No lock is held here: the woken thread takes this CPU at once if this thread is
            // SCHED_IDLE.
            self.wake(page, filled as u64);
        }
        Ok(filled > 0)
    }

    /// Reports to the core what became of the loads from `from` on, and goes on after pages that
    /// were present already. Returns how many pages from the first on are present now.
    pub(super) fn finish(&mut self, fill: Fill, from: usize) -> Result<usize, End> {
        let count = self.loads.len();
        let (done, exists) = match fill {
            Fill::Done => (count - from, false),
            // The mutant takes a page that could not be filled now for present.
            Fill::EventPending(0) if off(Rule::EventPending) => (1, false),
            Fill::Exists(n) => (n as usize, true),
            Fill::EventPending(n) | Fill::NotMapped(n) | Fill::NoMemory(n) => (n as usize, false),
            Fill::Gone => (0, false),
        };
        // The page was evicted, but the program has one there. Only an unread event explains that.
        // In the page cache nothing explains a page that this thread did not fill.
        let outside = |load: &Load| match self.shared.lock().core.entry(self.place.id, load.page) {
            Entry::Loading(_) => true,
            Entry::Filling(_) => self.place.is_cache(),
            _ => false,
        };
        let doubled = self.loads.get(from + done).filter(|load| exists && outside(load)).map(|load| load.page);
        let exists = exists && doubled.is_none();
        let reached = from + done + usize::from(exists);
        let again = reached < count && (done > 0 || exists) && fill != Fill::Gone;
        self.announce(from);
        let mut state = self.shared.lock();
        for (i, load) in self.loads[from..count].iter().enumerate() {
            let outcome = match i {
                i if i < done && load.source == Source::File => Filled::Read,
                i if i < done => Filled::Done,
                i if i == done && exists => Filled::Exists,
                _ if again => break,
                _ => Filled::Retry,
            };
            state.core.loaded(self.place.id, load.page, outcome);
            if let (Source::Swapped { extent, .. }, Filled::Done) = (&load.source, outcome) {
                cache_read(&self.shared, &mut state, *extent, &self.read_blocks);
            }
        }
        self.shared.apply_effects(state);
        self.recall(from);
        if let Some(expected) = self.proc.expected() {
            expected.not_brought(self.loads[from..count].iter().skip(done).map(|load| load.page));
        }
        if let Some(page) = doubled.filter(|_| !self.proc.event_pending()) {
            let (at, history) = (self.address(page), crate::flight::history(self.place.id.0, page.0));
            let why = format!("page {at:#x} was outside, but the program had another page there{history}");
            return Err(if self.place.is_cache() { self.spoilt(page, why) } else { Broken(why).into() });
        }
        match fill {
            Fill::Gone => return Err(End::Gone),
            Fill::NotMapped(0) if from == 0 => {
                // Unmapped meanwhile: the thread retries and sees what is there now.
                self.wake(self.loads[0].page, 1);
            }
            Fill::NoMemory(_) => std::thread::sleep(Duration::from_millis(1)),
            _ => {}
        }
        if !again {
            return Ok(reached.max(usize::from(matches!(fill, Fill::NotMapped(_)) && from == 0)));
        }
        let next = self.copy(reached, false);
        self.finish(next, reached)
    }

    /// The swap tier may keep its copies of the loaded pages: see `swap::copies`.
    fn announce(&mut self, from: usize) {
        let (Some(swap), Some(buffers)) = (&self.shared.swap, &mut self.buffers) else { return };
        for (i, load) in self.loads.iter().enumerate().skip(from) {
            if let Source::Swapped { extent, len, codec, keep: true } = load.source {
                swap.leaves(Stored { extent, len, codec }, &buffers.page_run.bytes()[i * 4096..(i + 1) * 4096]);
            }
        }
    }

    /// Takes [`Server::announce`] back for the copies that the core did not free.
    fn recall(&self, from: usize) {
        let Some(swap) = &self.shared.swap else { return };
        for load in &self.loads[from..] {
            if let Source::Swapped { extent, keep: true, .. } = load.source {
                swap.stays(extent);
            }
        }
    }

    /// Fills the pages of the loads from `from` on, with zeros or with the bytes from `gather`.
    /// `wake`: the COPY also wakes the threads that wait for them.
    pub(super) fn copy(&mut self, from: usize, wake: bool) -> Fill {
        let (at, len) = (self.address(self.loads[from].page), (self.loads.len() - from) * 4096);
        if let Some(expected) = self.proc.expected() {
            expected.bring_back(self.loads[from..].iter().map(|load| load.page));
        }
        let bytes = match &mut self.buffers {
            None => &ZERO_RUN.0[..len],
            Some(buffers) => &buffers.page_run.bytes()[from * 4096..][..len],
        };
        let fill = if wake { self.proc.uffd.copy_and_wake(at, bytes) } else { self.proc.uffd.copy(at, bytes) };
        match fill {
            // A guard page.
            Fill::Exists(n) if !self.is_in_memfd(self.loads.get(from + n as usize)) => Fill::NotMapped(n),
            fill => fill,
        }
    }

    /// Whether the page of a load is there; true for a process's own pages.
    fn is_in_memfd(&self, load: Option<&Load>) -> bool {
        let file = load.and_then(|load| self.place.file(load.page));
        file.is_none_or(|(file, index)| file.cached.get().is_none_or(|cached| cached.memfd.has(index * PAGE_BYTES, 1)))
    }

    /// Leaves out the first guard page and what follows it: a COPY would replace it. False if that
    /// is the faulting page. Its fault is an old one: a thread that a signal interrupts in a fault
    /// faults again, and the program may have put a guard page there between the answers to its two
    /// faults. One evicted page alone is not looked at: libc's call drops it before the guard is
    /// there for good.
    pub(super) fn keep_guards(&mut self) -> bool {
        if self.loads.len() < 2 && self.loads.first().is_none_or(|load| load.source != Source::Zero) {
            return true;
        }
        // Where the kernel cannot say, only the faulting page is filled.
        let guard = self.first_guard().unwrap_or(Some(1));
        if let Some(guard) = guard {
            self.leave_out(guard);
        }
        guard != Some(0)
    }

    /// Index of the first guard page among the loads. An error if the kernel cannot say.
    fn first_guard(&self) -> io::Result<Option<usize>> {
        let (first, count) = (self.address(self.loads[0].page), self.loads.len() as u64);
        let identity = self.proc.identity.get().ok_or(io::ErrorKind::NotFound)?;
        let guard = identity.pagemap.first_guard(first, first + count * 4096)?;
        Ok(guard.map(|guard| ((guard - first) / 4096) as usize))
    }

    /// Loads that would be zeros are read from a file where one is mapped.
    pub(super) fn find_files(&mut self) {
        if !self.place.is_cache() && self.proc.files.lock().is_empty() {
            return;
        }
        let mut loads = std::mem::take(&mut self.loads);
        let mut new = 0;
        for load in &mut loads {
            if load.source == Source::Zero && self.file_of(load.page).is_some() {
                load.source = Source::File;
                new += 1;
            }
        }
        self.loads = loads;
        let any = self.loads.iter().any(|load| load.source == Source::File);
        let rest = if any { self.loads.split_off(self.loads.len().min(FILE_RUN)) } else { Vec::new() };
        if any {
            let mut state = self.shared.lock();
            rest.iter().for_each(|load| state.core.loaded(self.place.id, load.page, Filled::Retry));
            state.core.read_elsewhere(new.min(FILE_RUN as u32));
            self.shared.apply_effects(state);
        }
    }

    /// The file of a page of the loads, and the page's index in it.
    pub(super) fn file_of(&self, page: Page) -> Option<(Arc<MappedFile>, u64)> {
        let found = |(file, index): (&Arc<MappedFile>, u64)| (Arc::clone(file), index);
        match self.place.is_cache() {
            true => self.place.file(page).map(found),
            false => self.proc.files.lock().at(page).map(found),
        }
    }

    /// How many loads from `first` on are successive pages of one file.
    fn file_run(&self, first: usize) -> Result<usize, End> {
        let (file, index) = self.file_of(self.loads[first].page).ok_or_else(unknown_file)?;
        let follows = |(i, load): (usize, &Load)| {
            let next =
                || self.file_of(load.page).is_some_and(|(f, at)| Arc::ptr_eq(&f, &file) && at == index + i as u64);
            load.source == Source::File && next()
        };
        Ok(self.loads[first..].iter().enumerate().take_while(|&(i, load)| follows((i, load))).count())
    }

    /// Reads that many pages of the file into the run buffer.
    fn read_file(&self, first: usize, pages: usize, buffers: &mut FaultBuffers) -> Result<(), End> {
        let page = self.loads[first].page;
        let (file, index) = self.file_of(page).ok_or_else(unknown_file)?;
        let out = &mut buffers.page_run.bytes()[first * 4096..(first + pages) * 4096];
        self.shared.files.read(&file, self.place.is_cache(), index, out).map_err(|error| {
            Broken(format!("cannot read page {:#x} from its file: {error}", self.address(page))).into()
        })
    }

    /// Puts the bytes of all loads into the run buffer. If a page after the first cannot be read,
    /// it and the following ones are left out: the program has not touched them.
    fn gather(&mut self, buffers: &mut FaultBuffers) -> Result<(), End> {
        buffers.hold(self.loads.len());
        let mut next = 0;
        while next < self.loads.len() {
            match self.gather_from(next, buffers) {
                Ok(pages) => next += pages,
                Err(error) if next == 0 => return Err(error),
                Err(_) => self.leave_out(next),
            }
        }
        Ok(())
    }

    /// Puts the bytes of load `i`, and of those read together with it, into the run buffer. Returns
    /// how many loads these are.
    fn gather_from(&mut self, i: usize, buffers: &mut FaultBuffers) -> Result<usize, End> {
        let load = &self.loads[i];
        if load.source == Source::File {
            let pages = self.file_run(i)?;
            let ahead = self.take_read_ahead(i, pages, buffers)?;
            if ahead > 0 {
                return Ok(ahead);
            }
            return match self.read_file(i, pages, buffers) {
                // The first page alone may be readable.
                Err(_) if i == 0 && pages > 1 => self.read_file(i, 1, buffers).map(|()| 1),
                result => result.map(|()| pages),
            };
        }
        let out = &mut buffers.page_run.bytes()[i * 4096..(i + 1) * 4096];
        match &load.source {
            Source::Zero => out.fill(0),
            Source::Word(word) => memfit_codec::fill(out, *word),
            Source::File => {}
            Source::Staged(slot) => {
                let segment = self.shared.lock().segments.get(&slot.area).cloned();
                let segment = segment.ok_or_else(|| Broken("a staging area is gone".into()))?;
                // The core has pinned the object: the slot holds it until `loaded`.
                segment.copy_page(crate::proc::slot_offset(slot.index), out);
            }
            Source::Pooled { runs, codec } => {
                // The core has pinned the object: its bytes stay until `loaded`.
                let bytes = &mut buffers.coded[..runs.len() as usize];
                self.shared.read_pooled(runs, bytes);
                decode(&mut buffers.worker, *codec, bytes, out, load.page)?;
            }
            &Source::Swapped { extent, len, codec, .. } => {
                let reader = self.reader.as_mut().ok_or_else(|| Broken("there is no swap tier".into()))?;
                let bytes = reader
                    .fetch(Stored { extent, len, codec })
                    .map_err(|error| Broken(format!("cannot read page {:#x} back: {error}", load.page.address())))?;
                decode(&mut buffers.worker, codec, bytes, out, load.page)?;
                if self.shared.scheme.swap_format.cache_reads != 0 {
                    self.read_blocks.push((extent, reader.block().into()));
                }
            }
        }
        Ok(1)
    }

    /// Leaves out the loads from `from` on.
    pub(super) fn leave_out(&mut self, from: usize) {
        if from < self.loads.len() {
            self.retry_later(from..self.loads.len());
            self.loads.truncate(from);
        }
    }

    /// Reports to the core that these loads are not served now.
    fn retry_later(&self, loads: Range<usize>) {
        let mut state = self.shared.lock();
        self.loads[loads].iter().for_each(|load| state.core.loaded(self.place.id, load.page, Filled::Retry));
        self.shared.apply_effects(state);
    }
}

/// Makes the block of an object that was read a buffer of the pool, if the scheme does so and its
/// bytes are among `blocks`.
fn cache_read(shared: &Shared, state: &mut Locked<'_>, extent: Extent, blocks: &[ReadBlock]) {
    let Some((_, bytes)) = blocks.iter().find(|(of, _)| *of == extent) else { return };
    state.note_freed_frames(&shared.memory);
    if let Some((frame, grew)) = state.core.cache_read(extent) {
        state.frames.grew(grew);
        // The core gave this frame to this block alone, and its lock is held.
        shared.memory.write(u64::from(frame) * PAGE_BYTES, bytes);
    }
}

pub(super) fn unknown_file() -> Broken {
    Broken("the file of an evicted page is no longer known".into())
}

fn decode(worker: &mut Worker, codec: u8, bytes: &[u8], out: &mut [u8], page: Page) -> Result<(), Broken> {
    if codec == 0 && bytes.len() == out.len() {
        out.copy_from_slice(bytes);
        return Ok(());
    }
    worker
        .decompress(CodecId(codec), bytes, out)
        .map_err(|_| Broken(format!("the compressed bytes of page {:#x} are damaged", page.address())))
}
