//! Where the core has the pages of a fault: in the process that faulted, or in the page cache.

use super::{End, Server};
use crate::adopt;
use crate::files::{InCache, MappedFile};
use crate::leases;
use crate::proc::{Broken, Proc};
use crate::sampling::Sampling;
use crate::state::Shared;
use memfit_core::{Entry, Page, PageRange, ProcId};
use memfit_os::uffd::Fill;
use std::sync::Arc;
use std::time::Duration;

/// An address space of the core, and how the program's page numbers become those in there.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its number.
    pub id: ProcId,
    /// Set in the page cache.
    cached: Option<InCache>,
}

impl Place {
    /// The process's own pages.
    pub fn own(proc: &Proc) -> Place {
        Place { id: proc.id, cached: None }
    }

    /// Where the core has a page of the program.
    pub fn of(shared: &Shared, proc: &Proc, page: Page) -> Place {
        let Some(id) = shared.cache.id() else { return Place::own(proc) };
        match proc.files.lock().in_cache(page) {
            Some(cached) => Place { id, cached: Some(cached) },
            None => Place::own(proc),
        }
    }

    /// Whether it is the page cache.
    pub fn is_cache(&self) -> bool {
        self.cached.is_some()
    }

    /// In the page cache: the pages that the program's mapping has of the file.
    pub fn limit(&self) -> Option<PageRange> {
        self.cached.as_ref().map(|cached| cached.pages)
    }

    /// In the page cache: the file of a page, and the page's index in the file.
    pub fn file(&self, page: Page) -> Option<(&Arc<MappedFile>, u64)> {
        let file = &self.cached.as_ref()?.file;
        Some((file, file.cached.get()?.index(page)))
    }

    /// The core's number of a page of the program.
    pub fn in_core(&self, page: Page) -> Page {
        match &self.cached {
            Some(cached) => Page(page.0 - cached.first.0 + cached.pages.first.0),
            None => page,
        }
    }

    /// The other way round.
    pub fn in_program(&self, page: Page) -> Page {
        match &self.cached {
            Some(cached) => Page(page.0 - cached.pages.first.0 + cached.first.0),
            None => page,
        }
    }
}

impl Server {
    /// Keeps no file of the page cache open. What a fault has put back of a file that was given up
    /// meanwhile is forgotten.
    pub(super) fn leave_cache(&mut self) {
        if let Some(cached) = self.place.cached.take() {
            if cached.file.leased.has_ended() {
                self.shared.cache.forget(&self.shared, &cached.file);
            }
        }
        self.place.id = self.proc.id;
    }

    /// Address of a page of the loads in the program.
    pub(super) fn address(&self, page: Page) -> u64 {
        self.place.in_program(page).address()
    }

    /// Wakes the threads that wait for pages of the loads.
    pub(super) fn wake(&self, page: Page, pages: u64) {
        self.proc.uffd.wake(self.address(page), pages * 4096);
    }

    /// Set if accesses are recorded: only those to a process's own pages are.
    pub(super) fn sampling(&self) -> Option<&Sampling> {
        self.shared.sampling.as_ref().filter(|_| !self.place.is_cache())
    }

    /// The table says that the page is present. If it is not, a page was lost: kill the process,
    /// never fill zeros (rule 19). With `io` held, no batch takes the page between the read of the
    /// table and the proof.
    pub(super) fn verify_present(&mut self, page: Page) -> Result<bool, End> {
        if self.place.is_cache() {
            return self.verify_cached(page);
        }
        let proc = Arc::clone(&self.proc);
        let _io = proc.io.lock();
        if self.shared.lock().core.entry(proc.id, page) != Entry::Resident {
            return Ok(false);
        }
        // The fault may be an old one, and the program may have put a guard page there since.
        match self.proc.uffd.zero(page.address()) {
            Fill::Exists(_) | Fill::NotMapped(_) => {
                self.proc.uffd.wake(page.address(), 4096);
                Ok(true)
            }
            Fill::EventPending(_) => Ok(false),
            Fill::NoMemory(_) => {
                std::thread::sleep(Duration::from_millis(1));
                Ok(false)
            }
            Fill::Gone => Err(End::Gone),
            // Its guard was removed, or the kernel dropped the page: it is empty.
            Fill::Done if proc.may_be_guarded(page) || adopt::may_be_dropped(&proc, page) => {
                self.proc.uffd.wake(page.address(), 4096);
                Ok(true)
            }
            Fill::Done => {
                let history = crate::flight::history(self.proc.id.0, page.0);
                let at = page.address();
                let why = format!("page {at:#x} should have been in memory but was not: a page was lost{history}");
                Err(End::Broken(Broken(why)))
            }
        }
    }

    /// As `verify_present`, in the page cache: another process may have brought the page. No page
    /// is evicted between the read of the table and the proof.
    fn verify_cached(&self, page: Page) -> Result<bool, End> {
        let fill = self.shared.cache.still(|| {
            let there = self.shared.lock().core.entry(self.place.id, page) == Entry::Resident;
            there.then(|| self.proc.uffd.zero(self.address(page)))
        });
        match fill {
            None | Some(Fill::EventPending(_)) => Ok(false),
            Some(Fill::Exists(_) | Fill::NotMapped(_)) => {
                self.wake(page, 1);
                Ok(true)
            }
            Some(Fill::NoMemory(_)) => {
                std::thread::sleep(Duration::from_millis(1));
                Ok(false)
            }
            Some(Fill::Gone) => Err(End::Gone),
            Some(Fill::Done) => {
                let history = crate::flight::history(self.place.id.0, page.0);
                Err(self.spoilt(page, format!("page {:#x} was lost{history}", page.0)))
            }
        }
    }

    /// A page of the page cache is not as it should be, for all processes that map its file.
    pub(super) fn spoilt(&self, page: Page, why: String) -> End {
        if let Some((file, _)) = self.place.file(page) {
            leases::spoilt(&self.shared, file);
        }
        Broken(format!("the page cache: {why}")).into()
    }
}
