//! The page cache: pages of the files that processes map shared and read-only.
//!
//! The pager keeps the pages of a file in a memfd, which the processes map in place of the file. It
//! fills the memfd when one of them faults. So a page is in memory once for all processes, has one
//! object in the pool, and stays when they end. To the core the page cache is one process, in which
//! each file has its own range of page numbers.
//!
//! To evict needs no stub: nobody can write to the memfd, so the reclaim thread copies a page and
//! punches a hole, and the kernel takes the page out of all mappings. A process that maps a memfd
//! writably by system calls of its own could change the pages of others, and one that maps it
//! without a registration could fill a hole with zeros. If a page is not as it was read, the
//! processes that map the file are killed. Programs of another user have another memfd
//! ([`crate::files`]), and before a process gives up rights its mappings become the kernel's
//! ([`crate::detach::confine`]).
//!
//! A file stays in the page cache as long as its lease is held ([`crate::leases`]).

use crate::files::{Hashes, MappedFile};
use crate::leases;
use crate::locks::{rank, Held, Lock};
use crate::proc::slot_offset;
use crate::state::Shared;
use memfit_core::{Answer, AreaId, Core, Page, PageRange, ProcId, Victim, PAGE_BYTES};
use memfit_os::memory::{Segment, SparseFile};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Between the page numbers of two files: no run has pages of both, and no window reaches from one
/// into the other.
const GAP: u64 = 1 << 10;
/// Most pages of a victim.
const VICTIM_PAGES: usize = 64;
/// Time between two tries to forget a page that is being filled, and after which there is none: the
/// fault fills nothing any more, since nobody maps the file.
const POLL: Duration = Duration::from_millis(1);
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(5);

/// The page cache of a run.
pub struct PageCache {
    place: OnceLock<Place>,
    /// Held from the choice of pages until they are evicted, with a buffer for them. Who has it
    /// finds no page Evicting.
    io: Lock<Box<[u8]>, { rank::CACHE_IO }>,
    /// The files in it, by their first page number.
    files: Lock<BTreeMap<u64, Arc<MappedFile>>, { rank::CACHED_FILES }>,
    /// The next page number to give out.
    next: AtomicU64,
    /// Evicted pages that reclaim has not counted yet.
    evicted: AtomicU64,
}

/// Its place in the core.
#[derive(Debug)]
struct Place {
    id: ProcId,
    area: AreaId,
    segment: Arc<Segment>,
}

/// What the page cache has of a file.
#[derive(Debug)]
pub struct Cached {
    /// Processes map this.
    pub memfd: SparseFile,
    /// Page number of the file's first page in the core.
    first: u64,
    /// Pages of the file; and without one that is a part of a page.
    pages: u64,
    whole: u64,
    /// Hash of each page as it was read.
    pub hashes: Hashes,
}

impl Cached {
    /// Page number of a page of the file.
    pub fn number(&self, index: u64) -> u64 {
        self.first + index
    }

    /// The page of the file with a page number.
    pub fn index(&self, page: Page) -> u64 {
        page.0 - self.first
    }

    /// One past the page number of the last page.
    pub fn end(&self) -> u64 {
        self.first + self.pages
    }

    /// The same without a page that only a part of the file's bytes fills.
    pub fn whole_end(&self) -> u64 {
        self.first + self.whole
    }
}

impl Default for PageCache {
    fn default() -> PageCache {
        PageCache {
            place: OnceLock::new(),
            io: Lock::default(),
            files: Lock::default(),
            next: AtomicU64::new(GAP),
            evicted: AtomicU64::new(0),
        }
    }
}

impl PageCache {
    /// Its number in the core, once a file was in it.
    pub fn id(&self) -> Option<ProcId> {
        self.place.get().map(|place| place.id)
    }

    /// Its pages in memory, bytes.
    pub fn resident_bytes(&self, core: &Core) -> u64 {
        self.id().map_or(0, |id| core.present_pages(id) * PAGE_BYTES)
    }

    /// Takes a file in, whose lease is held.
    ///
    /// # Errors
    /// When the kernel gives no memory file.
    pub fn take(&self, shared: &Shared, lock: bool, file: &Arc<MappedFile>) -> io::Result<()> {
        if self.place.get().is_none() {
            let slots = (shared.budget.sizes.staging / PAGE_BYTES) as u32;
            let segment = Arc::new(Segment::create(slot_offset(slots))?);
            if lock {
                segment.lock()?;
            }
            // Another file may be the first one at this moment.
            let _io = self.io.lock();
            self.place.get_or_init(|| {
                let mut state = shared.lock();
                let (id, area) = state.core.add_process(slots);
                state.segments.insert(area, Arc::clone(&segment));
                shared.apply_effects(state);
                Place { id, area, segment }
            });
        }
        if file.cached.get().is_none() {
            let bytes = file.file.metadata()?.len();
            let pages = bytes.div_ceil(PAGE_BYTES);
            let memfd = SparseFile::create(&file.name(), pages * PAGE_BYTES)?;
            let first = self.next.fetch_add(pages.next_multiple_of(GAP) + GAP, Relaxed);
            // Another thread may be faster.
            let whole = bytes / PAGE_BYTES;
            let _ = file.cached.set(Cached { memfd, first, pages, whole, hashes: Hashes::default() });
        }
        if let Some(cached) = file.cached.get() {
            self.files.lock().insert(cached.first, Arc::clone(file));
        }
        Ok(())
    }

    /// The files in it, in the order in which they came first.
    pub fn files(&self) -> Vec<Arc<MappedFile>> {
        self.files.lock().values().cloned().collect()
    }

    /// The file of a page number, and the page's index in the file.
    fn at(&self, page: Page) -> Option<(Arc<MappedFile>, u64)> {
        let files = self.files.lock();
        let (&first, file) = files.range(..=page.0).next_back()?;
        let end = file.cached.get().map_or(0, Cached::end);
        (page.0 < end).then(|| (Arc::clone(file), page.0 - first))
    }

    /// Gives up all pages of a file, which may change from now on. No process maps it any more, and
    /// none will.
    pub fn forget(&self, shared: &Shared, file: &Arc<MappedFile>) {
        shared.files.forget(file);
        let (Some(cached), Some(id)) = (file.cached.get(), self.id()) else { return };
        let range = PageRange { first: Page(cached.first), pages: cached.pages };
        let begun = Instant::now();
        loop {
            let io = self.io.lock();
            shared.in_parts(id, range, |core, part| core.disown(id, part));
            let _ = cached.memfd.punch(0, cached.pages * PAGE_BYTES);
            drop(io);
            // A fault that began when the file was mapped may still fill a page.
            if !shared.lock().core.tracks(id, range) || begun.elapsed() > FORGOTTEN_WITHIN {
                break;
            }
            std::thread::sleep(POLL);
        }
        self.remove(file);
    }

    /// Removes a file that has no pages.
    pub fn remove(&self, file: &MappedFile) {
        if let Some(cached) = file.cached.get() {
            self.files.lock().remove(&cached.first);
        }
    }

    /// Calls `check` while no page is evicted.
    pub fn still<T>(&self, check: impl FnOnce() -> T) -> T {
        let _io = self.io.lock();
        check()
    }

    /// To choose pages of it and evict them. `None` while it is in use, or if nothing was in it
    /// yet.
    pub fn idle(&self) -> Option<Idle<'_>> {
        let place = self.place.get()?;
        Some(Idle { cache: self, place, bytes: self.io.try_lock()? })
    }

    /// Pages that were evicted since the last call.
    pub fn take_evicted(&self) -> usize {
        self.evicted.swap(0, Relaxed) as usize
    }
}

/// The page cache, of which nobody else evicts or forgets pages.
pub struct Idle<'a> {
    cache: &'a PageCache,
    place: &'a Place,
    bytes: Held<'a, Box<[u8]>>,
}

impl Idle<'_> {
    /// Its number in the core.
    pub fn id(&self) -> ProcId {
        self.place.id
    }

    /// Evicts pages that the core has chosen.
    pub fn evict(mut self, shared: &Arc<Shared>, victims: &[Victim]) {
        if self.bytes.is_empty() {
            *self.bytes = vec![0; VICTIM_PAGES * PAGE_BYTES as usize].into();
        }
        let (mut answers, mut pages, mut spoilt) = (Vec::new(), 0, None);
        for victim in victims {
            let file = self.cache.at(victim.first);
            let answer = file.as_ref().and_then(|(file, index)| self.copy_out(shared, file, *index, victim));
            if answer.is_none() {
                spoilt = file.map(|(file, _)| file).or(spoilt);
            }
            let answer = answer.unwrap_or(Answer { park: true, ..Answer::default() });
            pages += u64::from(answer.moved.count_ones());
            answers.push((victim.first, victim.slots.len() as u32, answer));
        }
        let tick = shared.tick();
        let mut state = shared.lock();
        for (first, pages, answer) in answers {
            state.core.evicted(self.place.id, first, pages, answer, tick);
        }
        shared.apply_effects(state);
        self.cache.evicted.fetch_add(pages, Relaxed);
        drop(self);
        if let Some(file) = spoilt {
            leases::spoilt(shared, &file);
        }
    }

    /// Copies pages to their slots and takes them out of the memfd. `None` if one is not as it was
    /// read, or has not gone.
    fn copy_out(&mut self, shared: &Shared, file: &MappedFile, index: u64, victim: &Victim) -> Option<Answer> {
        let (place, cached) = (self.place, file.cached.get()?);
        let (at, pages) = (index * PAGE_BYTES, victim.slots.len() as u64);
        let bytes = &mut self.bytes[..victim.slots.len() * PAGE_BYTES as usize];
        cached.memfd.read(at, bytes).ok()?;
        for (i, (page, &slot)) in bytes.chunks(PAGE_BYTES as usize).zip(&victim.slots).enumerate() {
            if !shared.files.is_clean(file, true, index + i as u64, page) {
                return None;
            }
            place.segment.write_page(slot_offset(slot), page);
        }
        if let Some(regions) = &shared.regions {
            regions.took_cached(place.id, place.area, victim);
        }
        // Of a huge page in use the kernel keeps the part, which reads as zeros.
        if !cached.memfd.punch(at, pages * PAGE_BYTES) || cached.memfd.has(at, pages) {
            return None;
        }
        Some(Answer { moved: victim.all(), dropped: 0, park: false, file: victim.all() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OnFull;
    use memfit_core::scheme::Scheme;
    use memfit_core::{Entry, Filled};
    use std::fs::File;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::fs::FileExt;

    /// A run with a file of 40 pages in its page cache.
    fn cache() -> (Arc<Shared>, Arc<MappedFile>) {
        let shared = Arc::new(Shared::new(Scheme::default(), 64 << 20, OnFull::Fail, None).unwrap());
        let contents: Vec<u8> = (0..40 * PAGE_BYTES).map(|i| (i / 7) as u8).collect();
        let fd = OwnedFd::from(memfit_os::memory::file_of(&contents).unwrap());
        let file = shared.files.open(&fd, 0).unwrap();
        shared.cache.take(&shared, false, &file).unwrap();
        (shared, file)
    }

    /// Fills pages as the fault thread does; `change` may spoil their bytes.
    fn fill(shared: &Shared, file: &MappedFile, indices: std::ops::Range<u64>, change: impl Fn(&mut [u8])) {
        let (cached, id) = (file.cached.get().unwrap(), shared.cache.id().unwrap());
        let memfd = File::from(cached.memfd.as_fd().try_clone_to_owned().unwrap());
        let mut bytes = crate::swap::Aligned::new(PAGE_BYTES as usize);
        for index in indices {
            shared.files.read(file, true, index, bytes.bytes()).unwrap();
            change(bytes.bytes());
            memfd.write_all_at(bytes.bytes(), index * PAGE_BYTES).unwrap();
            let (page, mut loads) = (Page(cached.number(index)), Vec::new());
            let mut state = shared.lock();
            state.core.fault(id, page, PageRange { first: page, pages: 1 }, 1, &mut loads);
            state.core.loaded(id, page, Filled::Read);
            shared.apply_effects(state);
        }
    }

    fn evict(shared: &Arc<Shared>) -> usize {
        let idle = shared.cache.idle().unwrap();
        let mut state = shared.lock();
        let picked = state.core.pick_victims(64, 0, &|id| id == idle.id());
        shared.apply_effects(state);
        idle.evict(shared, &picked.unwrap().1);
        shared.cache.take_evicted()
    }

    #[test]
    fn evicted_pages_are_in_staging_and_not_in_the_memfd() {
        let (shared, file) = cache();
        let (cached, id) = (file.cached.get().unwrap(), shared.cache.id().unwrap());
        fill(&shared, &file, 0..32, |_| {});
        let evicted = evict(&shared);
        assert!(evicted > 0 && !shared.ending.load(Relaxed));
        let (mut there, mut read) = ([0; 4096], crate::swap::Aligned::new(4096));
        for index in 0..32 {
            cached.memfd.read(index * PAGE_BYTES, &mut there).unwrap();
            shared.files.read(&file, true, index, read.bytes()).unwrap();
            let is_out = matches!(shared.lock().core.entry(id, Page(cached.number(index))), Entry::Out(_));
            assert_eq!(there[..], if is_out { [0; 4096] } else { read.bytes().try_into().unwrap() }, "page {index}");
        }
        assert!(shared.lock().core.totals_staged() == evicted as u64);
    }

    #[test]
    fn a_file_with_a_page_that_somebody_has_changed_is_given_up() {
        let (shared, file) = cache();
        let waiter = memfit_os::lease::Waiter::new();
        let path = std::path::Path::new("/var/tmp").join(format!("memfit-cached-{}", std::process::id()));
        std::fs::write(&path, b"leased").unwrap();
        let lease = memfit_os::lease::Lease::take(File::open(&path).unwrap().as_fd(), waiter.id());
        std::fs::remove_file(&path).unwrap();
        let Ok(lease) = lease else { return crate::skip::skip("a_file_with_a_page", "no lease on a file in /var/tmp") };
        file.leased.set(lease);
        fill(&shared, &file, 0..32, |page| page[9] ^= 1);
        assert_eq!(evict(&shared), 0);
        while !shared.cache.files().is_empty() {
            std::thread::sleep(POLL);
        }
        assert!(!file.leased.holds() && !shared.ending.load(Relaxed));
    }

    #[test]
    fn nothing_is_left_of_a_file_that_may_change() {
        let (shared, file) = cache();
        let (cached, id) = (file.cached.get().unwrap(), shared.cache.id().unwrap());
        fill(&shared, &file, 0..40, |_| {});
        evict(&shared);
        shared.cache.forget(&shared, &file);
        let state = shared.lock();
        assert_eq!((state.core.present_pages(id), state.core.totals_staged()), (0, 0));
        drop(state);
        let mut all = vec![1; 40 * 4096];
        cached.memfd.read(0, &mut all).unwrap();
        assert!(all.iter().all(|&byte| byte == 0) && shared.cache.files().is_empty());
    }
}
