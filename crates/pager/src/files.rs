//! Read-only mappings of files whose pages are in the budget (schemes with `classes` = file-dropped
//! or file-pooled).
//!
//! To the kernel a private one is anonymous and empty: the stub makes it instead of the mapping
//! that the program requested, and the pager fills it from the file. So its pages are evicted like
//! all others. A page that still holds what was read is *clean*: it can be dropped and read again.
//! A keyed hash of the contents shows whether a page is clean. So a program that writes there
//! (after mprotect, or by mistake) loses nothing: that page is an anonymous one from then on.
//!
//! A shared one is a mapping of a memfd of the page cache ([`crate::page_cache`]), and becomes the
//! kernel's before the file can change ([`crate::leases`]).
//!
//! Differences of a private mapping from one by the kernel: a write by mistake raises no SIGSEGV;
//! pages beyond the end of the file are zeros and raise no SIGBUS; /proc shows no file name; only
//! pages that are read after a change of the file show it, which POSIX leaves open.

use crate::clients::{Client, DORMANT, IDLE, MANAGED, REFUSED};
use crate::control::Desk;
use crate::fault::read_ahead;
use crate::leases::{self, Leased};
use crate::locks::{rank, Lock};
use crate::page_cache::Cached;
use crate::proc::{send_command, Proc};
use crate::swap::{Counters, Hash, Hasher};
use crate::wake;
use memfit_core::driver::fork_changes::Change;
use memfit_core::{Page, PageRange, PAGE_BYTES};
use memfit_os::maps::{self, FileAt};
use memfit_os::{lease, procfs};
use memfit_wire::{Command, FromStub, BYE, FILE_MAPPED, SHARED_FILE, STAY};
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// If a process is not paged within this time, the kernel maps its file.
const PAGED_WITHIN: Duration = Duration::from_secs(2);
/// A process says hello within this time, or never.
const KNOWN_WITHIN: Duration = Duration::from_millis(100);
/// Time between two polls.
const POLL: Duration = Duration::from_micros(200);
/// Largest file, pages.
const FILE_PAGES_MAX: u64 = 1 << 24;
/// Hashes that are kept together: a program that reads a few pages of a large file must not cost
/// the budget a table of all its pages.
const HASHES: usize = 64;

/// A file whose pages are mapped.
#[derive(Debug)]
pub struct MappedFile {
    /// A file description of the pager's own: one of the program could have a lock, which must not
    /// outlive the program's.
    pub file: File,
    /// Reads past the kernel's page cache, which the budget does not count, if the file system can.
    direct: Option<File>,
    /// Hash of each page of a private mapping as it was read last.
    hashes: Hashes,
    /// For shared mappings.
    pub leased: Leased,
    /// The same: its place in the page cache.
    pub cached: OnceLock<Cached>,
}

type HashChunk = [Option<Hash>; HASHES];

/// Hashes of a file's pages, by their index: chunks of [`HASHES`].
#[derive(Debug, Default)]
pub struct Hashes(Lock<BTreeMap<u64, Box<HashChunk>>, { rank::FILE_HASHES }>);

impl Hashes {
    /// `index`: of the first page.
    fn set(&self, index: u64, new: impl Iterator<Item = Hash>) {
        let mut all = self.0.lock();
        for (at, hash) in (index..).zip(new) {
            let (chunk, within) = chunk_of(at);
            all.entry(chunk).or_insert_with(|| Box::new([None; HASHES]))[within] = Some(hash);
        }
    }

    fn get(&self, index: u64) -> Option<Hash> {
        let (chunk, within) = chunk_of(index);
        self.0.lock().get(&chunk)?[within]
    }

    fn bytes(&self) -> usize {
        self.0.lock().len() * (size_of::<HashChunk>() + 2 * size_of::<(u64, Box<HashChunk>)>())
    }
}

/// The chunk of a page's hash, and the place in it.
fn chunk_of(index: u64) -> (u64, usize) {
    (index / HASHES as u64, (index % HASHES as u64) as usize)
}

impl MappedFile {
    /// The hashes of its pages in the page cache, or of those in private mappings.
    fn hashes(&self, cached: bool) -> &Hashes {
        self.cached.get().filter(|_| cached).map_or(&self.hashes, |cached| &cached.hashes)
    }

    /// For reads past the kernel's page cache, if the file system can.
    pub fn direct_fd(&self) -> Option<RawFd> {
        self.direct.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Its name, without the directory, as far as that is known.
    pub fn name(&self) -> String {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", self.file.as_raw_fd())).unwrap_or_default();
        path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }
}

/// Pages of a shared mapping: where they are in the page cache.
#[derive(Debug, Clone)]
pub struct InCache {
    /// The file. The mapping can become the kernel's at any moment, while a fault on it is served.
    pub file: Arc<MappedFile>,
    /// Number in the page cache of the mapping's first page, and of the pages behind it that the
    /// file has.
    pub pages: PageRange,
    /// The mapping's first page.
    pub first: Page,
}

/// A shared mapping or a part of it.
#[derive(Debug, Clone)]
pub struct FilePart {
    /// First page.
    pub first: u64,
    /// One past the last page.
    pub end: u64,
    /// The file.
    pub file: Arc<MappedFile>,
    /// Page of the file at the first page.
    pub index: u64,
}

/// Pages of a mapping, in one file.
#[derive(Debug, Clone)]
struct Mapped {
    end: u64,
    file: Arc<MappedFile>,
    /// Page of the file at the mapping's first page.
    index: u64,
    shared: bool,
}

/// The file mappings of a process, by first page.
#[derive(Debug, Clone, Default)]
pub struct FileRanges(BTreeMap<u64, Mapped>);

impl FileRanges {
    /// The file of a page, and the page's index in the file.
    pub fn at(&self, page: Page) -> Option<(&Arc<MappedFile>, u64)> {
        let (&first, mapped) = self.0.range(..=page.0).next_back()?;
        (page.0 < mapped.end).then(|| (&mapped.file, mapped.index + page.0 - first))
    }

    /// Where a page of a shared mapping is in the page cache.
    pub fn in_cache(&self, page: Page) -> Option<InCache> {
        let (&first, mapped) = self.0.range(..=page.0).next_back()?;
        let cached = mapped.file.cached.get().filter(|_| mapped.shared && page.0 < mapped.end)?;
        let at = cached.number(mapped.index);
        let pages = (mapped.end - first).min(cached.end().saturating_sub(at));
        let file = Arc::clone(&mapped.file);
        Some(InCache { file, pages: PageRange { first: Page(at), pages }, first: Page(first) })
    }

    /// Whether some of a range is mapped shared. In bytes.
    pub fn shares_some_of(&self, start: u64, end: u64) -> bool {
        self.shared_pages().any(|(first, last)| first * PAGE_BYTES < end && last * PAGE_BYTES > start)
    }

    /// The shared mappings: first page and one past the last page, in order.
    pub fn shared_pages(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().filter(|(_, mapped)| mapped.shared).map(|(&first, mapped)| (first, mapped.end))
    }

    /// First page and one past the last page of each mapping, in order.
    pub fn pages(&self) -> Vec<(u64, u64)> {
        self.0.iter().map(|(&first, mapped)| (first, mapped.end)).collect()
    }

    /// The shared mappings of this file, or of any.
    pub fn shared(&self, of: Option<&Arc<MappedFile>>) -> Vec<FilePart> {
        let wanted = |mapped: &Mapped| mapped.shared && of.is_none_or(|file| Arc::ptr_eq(file, &mapped.file));
        let all = self.0.iter().filter(|(_, mapped)| wanted(mapped)).map(|(&first, mapped)| (first, mapped.clone()));
        all.map(|(first, Mapped { end, file, index, .. })| FilePart { first, end, file, index }).collect()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, first: u64, mapped: Mapped) {
        self.cut(first, mapped.end);
        self.0.insert(first, mapped);
    }

    /// Removes the pages from `start` to before `end`, and returns them.
    fn take(&mut self, start: u64, end: u64) -> Vec<(u64, Mapped)> {
        let from = self.0.range(..start).next_back().map_or(start, |(&first, _)| first);
        let hit: Vec<u64> = self.0.range(from..end.max(from)).map(|(&first, _)| first).collect();
        let mut out = Vec::new();
        for first in hit {
            let mapped = self.0[&first].clone();
            if mapped.end <= start {
                continue;
            }
            self.0.remove(&first);
            if first < start {
                self.0.insert(first, Mapped { end: start, ..mapped.clone() });
            }
            if mapped.end > end {
                self.0.insert(end, Mapped { index: mapped.index + end - first, ..mapped.clone() });
            }
            let cut = first.max(start);
            out.push((cut, Mapped { end: mapped.end.min(end), index: mapped.index + cut - first, ..mapped }));
        }
        out
    }

    /// Removes the pages from `start` to before `end`.
    pub fn cut(&mut self, start: u64, end: u64) {
        self.take(start, end);
    }

    /// The address space has changed. In bytes.
    pub fn change(&mut self, change: Change) {
        match change {
            Change::Unmapped(start, end) | Change::Came(start, end) => self.cut(start / 4096, end.div_ceil(4096)),
            Change::Moved(from, to, len) => self.shift(from / 4096, to / 4096, len / 4096),
        }
    }

    /// mremap: the pages from `from` on are now at `to`.
    pub fn shift(&mut self, from: u64, to: u64, pages: u64) {
        let moved = self.take(from, from + pages);
        self.cut(to, to + pages);
        for (first, mapped) in moved {
            self.0.insert(first - from + to, Mapped { end: mapped.end - from + to, ..mapped });
        }
    }
}

/// What tells one file from another. A file system with snapshots (bcachefs), or one that passes
/// several on (9p, virtiofs), gives the same device and number to files that differ: then they have
/// changed at different times. A program of another user that disturbs the page cache disturbs only
/// its own user's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FileKey {
    user: u32,
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl FileKey {
    fn of(metadata: &Metadata, user: u32) -> FileKey {
        FileKey {
            user,
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

type OpenFiles = HashMap<FileKey, Weak<MappedFile>>;

/// All files, with the hashes of what was read.
pub struct Files {
    open: Lock<OpenFiles, { rank::OPEN_FILES }>,
    hasher: Hasher,
    /// The thread that is told of wanted leases, once it was needed; `None` if it could not start.
    pub waiter: OnceLock<Option<i32>>,
    /// Reads, and their bytes.
    pub counters: Counters,
    /// Memory for [`crate::fault::read_ahead`].
    pub ahead: Arc<read_ahead::Memory>,
}

impl Files {
    /// No files yet. The budget is in bytes.
    ///
    /// # Errors
    /// When the kernel has no random bytes.
    pub fn new(budget: u64) -> io::Result<Files> {
        Ok(Files {
            open: Lock::default(),
            hasher: Hasher::new()?,
            waiter: OnceLock::new(),
            counters: Counters::default(),
            ahead: Arc::new(read_ahead::Memory::of(budget)),
        })
    }

    /// The file of a program's descriptor: a regular file that this descriptor may read and map.
    /// The pager may have other rights than the program, so it opens nothing before that is
    /// checked. `user`: the program's.
    pub fn open(&self, fd: &OwnedFd, user: u32) -> io::Result<Arc<MappedFile>> {
        let file = File::from(fd.try_clone()?);
        let metadata = file.metadata()?;
        if !metadata.file_type().is_file() || metadata.len() / PAGE_BYTES >= FILE_PAGES_MAX {
            return Err(io::ErrorKind::Unsupported.into());
        }
        memfit_os::memory::may_map(file.as_fd())?;
        let key = FileKey::of(&metadata, user);
        let known = |open: &OpenFiles| open.get(&key).and_then(Weak::upgrade);
        if let Some(known) = known(&self.open.lock()) {
            return Ok(known);
        }
        // The same file, which may be read, and once more past the kernel's page cache. O_NONBLOCK:
        // does not wait for the holder of a lease.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let open = |flags| OpenOptions::new().read(true).custom_flags(flags | libc::O_NONBLOCK).open(&path);
        let (again, direct) = (open(0), open(libc::O_DIRECT).ok());
        // A private mapping keeps the program's description if there is no other way.
        let file = again.unwrap_or(file);
        let (hashes, leased, cached) = (Hashes::default(), Leased::default(), OnceLock::new());
        let mapped = Arc::new(MappedFile { file, direct, hashes, leased, cached });
        // No lock was held over the open: a file system can take as long as it likes.
        let mut open = self.open.lock();
        if let Some(known) = known(&open) {
            return Ok(known);
        }
        open.retain(|_, file| file.strong_count() > 0);
        open.insert(key, Arc::downgrade(&mapped));
        Ok(mapped)
    }

    /// How many are mapped now.
    pub fn count(&self) -> usize {
        self.open.lock().values().filter(|file| file.strong_count() > 0).count()
    }

    /// Those that are mapped now.
    pub fn all(&self) -> Vec<Arc<MappedFile>> {
        self.open.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Fills whole pages with those of the file from `index` on, and zeros beyond its end. `out` is
    /// aligned as for O_DIRECT. `cached`: for the page cache.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&self, file: &MappedFile, cached: bool, index: u64, out: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        let mut direct = file.direct.as_ref();
        while done < out.len() {
            let offset = index * PAGE_BYTES + done as u64;
            match direct.unwrap_or(&file.file).read_at(&mut out[done..], offset) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // O_DIRECT fails at this offset or at all, or behind an incomplete last page.
                Err(_) if direct.is_some() => direct = None,
                Err(error) => return Err(error),
            }
            if done % PAGE_BYTES as usize != 0 {
                direct = None;
            }
        }
        out[done..].fill(0);
        self.counters.reads.fetch_add(1, Relaxed);
        self.counters.read_bytes.fetch_add(done as u64, Relaxed);
        // In private mappings pages beyond the end are the program's own, like any page of zeros.
        let known = if cached { out.len() } else { done.next_multiple_of(PAGE_BYTES as usize) };
        self.has_read(file, cached, index, &out[..known]);
        Ok(())
    }

    /// Notes what pages of the file hold, from `index` on.
    pub fn has_read(&self, file: &MappedFile, cached: bool, index: u64, pages: &[u8]) {
        let hashes = pages.chunks(PAGE_BYTES as usize).map(|page| self.hasher.hash(page));
        file.hashes(cached).set(index, hashes);
    }

    /// Whether a page still holds what was read from the file. `cached`: it is in the page cache.
    pub fn is_clean(&self, file: &MappedFile, cached: bool, index: u64, page: &[u8]) -> bool {
        file.hashes(cached).get(index) == Some(self.hasher.hash(page))
    }

    /// Nobody maps this file from here on: whoever maps it later gets a new one.
    pub fn forget(&self, file: &Arc<MappedFile>) {
        self.open.lock().retain(|_, known| !std::ptr::eq(known.as_ptr(), Arc::as_ptr(file)));
    }

    /// Bytes of the tables, and of what was read ahead.
    pub fn metadata_bytes(&self) -> u64 {
        let open = self.open.lock();
        let hashes = |file: &Weak<MappedFile>| {
            let cached = |file: &MappedFile| file.cached.get().map_or(0, |cached| cached.hashes.bytes());
            file.upgrade().map_or(0, |file| file.hashes.bytes() + cached(&file))
        };
        open.values().map(hashes).sum::<usize>() as u64 + self.ahead.taken()
    }
}

/// A thread of a program wants a mapping to be filled from a file: see [`memfit_wire::FILE`].
pub fn requested(desk: &Arc<Desk>, socket: OwnedFd, peer: (u32, i32), request: FromStub, fd: Option<OwnedFd>) {
    let desk = Arc::clone(desk);
    let answer = move || {
        let taken = fd.and_then(|fd| take(&desk, peer, &request, &fd));
        let kind = if taken.is_some() { STAY } else { BYE };
        let to_map = taken.as_ref().filter(|_| request.flags == SHARED_FILE).and_then(|file| file.cached.get());
        send_command(&socket, &Command { kind, ..Command::default() }, to_map.map(|cached| cached.memfd.as_fd()));
    };
    // In a thread, because it may have to wait for the control thread.
    let _ = std::thread::Builder::new().name("file".into()).stack_size(128 << 10).spawn(answer);
}

/// The file of the request, if the pager does what is requested.
fn take(desk: &Arc<Desk>, (uid, pid): (u32, i32), request: &FromStub, fd: &OwnedFd) -> Option<Arc<MappedFile>> {
    let [start, end] = request.segment;
    let whole = [start, end, request.token].iter().all(|at| at % PAGE_BYTES == 0);
    // With announced forks, pages that were never read would be missing in a child.
    let takes = desk.shared.takes_files() && desk.fork_events;
    if !whole || start >= end || !takes {
        return None;
    }
    let shared = request.flags & SHARED_FILE != 0;
    // A mapping by a descriptor that can write could become writable.
    if shared && !lease::is_read_only(fd.as_fd()) {
        return None;
    }
    let mapped = shared && request.flags & FILE_MAPPED != 0;
    if !mapped {
        leases::make_room(&desk.shared);
        desk.shared.room_for_file().then_some(())?;
    }
    let file = desk.shared.files.open(fd, uid).ok()?;
    // As the kernel: on files of others only root takes a lease.
    if shared && uid != 0 && file.file.metadata().ok()?.uid() != uid {
        return None;
    }
    if shared && !mapped {
        leases::take(desk, &file)?;
        desk.shared.cache.take(&desk.shared, desk.config.lock_pool, &file).ok()?;
        // It may have been given up meanwhile.
        if file.leased.has_ended() {
            desk.shared.cache.remove(&file);
        }
        return file.leased.holds().then_some(file);
    }
    let (client, proc) = paged(desk, pid)?;
    let give_up = Instant::now() + PAGED_WITHIN;
    loop {
        let io = proc.io.lock();
        // Of a process that is being detached the mappings are given up.
        if proc.removed.load(Relaxed) || client.detaching.load(SeqCst) || Instant::now() > give_up {
            return None;
        }
        // An unread event can concern what was mapped there before.
        if proc.event_pending() || proc.at_rest() {
            drop(io);
            std::thread::sleep(POLL);
            continue;
        }
        let index = request.token / PAGE_BYTES;
        match shared {
            true => fill_shared(&proc, &file, (start, end), index)?,
            false => fill_private(&proc, &file, (start, end), index)?,
        }
        return Some(file);
    }
}

/// The mapping of the memfd is filled from now on. The program has no access to it yet.
fn fill_shared(proc: &Proc, file: &Arc<MappedFile>, (start, end): (u64, u64), index: u64) -> Option<()> {
    let cached = file.cached.get()?;
    let (device, inode) = cached.memfd.number().ok()?;
    let text = procfs::read_memory(proc.pid()?, "maps").ok()?;
    if maps::file_at(&text, start, end) != Some(FileAt { device, inode, offset: index * PAGE_BYTES }) {
        return None;
    }
    proc.uffd.register(start, end - start).ok()?;
    let (first, end) = (start / PAGE_BYTES, end / PAGE_BYTES);
    proc.files.lock().add(first, Mapped { end, file: Arc::clone(file), index, shared: true });
    // Whoever gives the lease back, or has, may not have seen the mapping.
    if !file.leased.holds() {
        proc.files.lock().cut(first, end);
        return None;
    }
    Some(())
}

/// The same of an empty mapping.
fn fill_private(proc: &Proc, file: &Arc<MappedFile>, (start, end): (u64, u64), index: u64) -> Option<()> {
    proc.uffd.register_memory(start, end - start).ok()?;
    // After mlockall the kernel fills each new mapping at once, with zeros.
    let mut empty = true;
    proc.identity.get()?.pagemap.present(start, end, |_, _, _| empty = false).ok()?;
    if !empty {
        return None;
    }
    let mapped = Mapped { end: end / PAGE_BYTES, file: Arc::clone(file), index, shared: false };
    proc.files.lock().add(start / PAGE_BYTES, mapped);
    proc.add_region(start, end);
    Some(())
}

/// The process, which is attached now if it is not.
fn paged(desk: &Arc<Desk>, pid: i32) -> Option<(Arc<Client>, Arc<Proc>)> {
    let begun = Instant::now();
    while begun.elapsed() < PAGED_WITHIN {
        let of_pid = |client: &&Arc<Client>| client.pid == pid && !client.gone.load(Relaxed);
        let client = desk.clients.lock().iter().rfind(of_pid).cloned();
        match client.as_ref().map(|client| client.stage.load(Relaxed)) {
            Some(MANAGED) => {
                let proc = client.as_ref().and_then(|client| client.proc.lock().clone());
                return client.zip(proc);
            }
            Some(REFUSED) => return None,
            // A new process may not have said hello yet; a detached one never will.
            None if begun.elapsed() > KNOWN_WITHIN => return None,
            Some(IDLE) => {
                client.iter().for_each(|client| _ = crate::attach::attach(desk, client));
            }
            Some(DORMANT) => client.iter().for_each(|client| wake::begin(desk, client)),
            _ => {}
        }
        std::thread::sleep(POLL);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (Files, Arc<MappedFile>) {
        let files = Files::new(64 << 20).unwrap();
        // The tests of a process run at once.
        let number = memfit_os::process::random_bytes::<8>().unwrap();
        let path = std::env::temp_dir().join(format!("memfit-files-{:016x}", u64::from_ne_bytes(number)));
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i * 7) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let fd = OwnedFd::from(File::open(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        let mapped = files.open(&fd, 1).unwrap();
        assert!(Arc::ptr_eq(&mapped, &files.open(&fd, 1).unwrap()), "one for all who map it");
        assert!(!Arc::ptr_eq(&mapped, &files.open(&fd, 2).unwrap()), "one for each user");
        (files, mapped)
    }

    #[test]
    fn only_what_the_program_may_read_and_map_itself_is_taken() {
        let files = Files::new(64 << 20).unwrap();
        let opened = |path: &str, flags: i32, write: bool| {
            let mut options = OpenOptions::new();
            options.read(!write).write(write).custom_flags(flags);
            files.open(&OwnedFd::from(options.open(path).unwrap()), 0).map_err(|error| error.raw_os_error())
        };
        let path = std::env::temp_dir().join(format!("memfit-files-{}", std::process::id()));
        std::fs::write(&path, "text").unwrap();
        let path = path.to_str().unwrap();
        let known = opened(path, 0, false).unwrap();
        // As a file of the same number in a snapshot.
        std::fs::write(path, "another text").unwrap();
        assert!(!Arc::ptr_eq(&known, &opened(path, 0, false).unwrap()), "it has changed");
        assert_eq!(opened(path, libc::O_PATH, false).unwrap_err(), Some(libc::EBADF), "not open for reading");
        assert_eq!(opened(path, 0, true).unwrap_err(), Some(libc::EACCES), "open for writing only");
        std::fs::remove_file(path).unwrap();
        // A read takes this for a file like any other, and may wait for ever.
        assert_eq!(opened("/proc/self/status", 0, false).unwrap_err(), Some(libc::ENODEV));
        assert_eq!(opened("/dev/zero", 0, false).unwrap_err(), None, "no regular file");
        let (pipe, _writer) = std::io::pipe().unwrap();
        assert!(files.open(&OwnedFd::from(pipe), 0).is_err(), "reading it would wait for ever");
    }

    #[test]
    fn reads_pass_the_kernels_page_cache_where_they_can() {
        let path = format!("/var/tmp/memfit-direct-{}", std::process::id());
        std::fs::write(&path, [7; 4096]).unwrap();
        let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path);
        let mapped = Files::new(64 << 20).unwrap().open(&OwnedFd::from(File::open(&path).unwrap()), 0).unwrap();
        std::fs::remove_file(&path).unwrap();
        if let Err(error) = &direct {
            crate::skip::skip("reads_pass_the_kernels_page_cache", &format!("no O_DIRECT in /var/tmp: {error}"));
        }
        assert_eq!(mapped.direct_fd().is_some(), direct.is_ok());
    }

    #[test]
    fn pages_are_those_of_the_file_and_zeros_behind_its_end() {
        let (files, file) = file();
        let mut out = crate::swap::Aligned::new(4 * 4096);
        files.read(&file, false, 1, out.bytes()).unwrap();
        let right = |i: usize| if i < 10_000 - 4096 { ((i + 4096) * 7) as u8 } else { 0 };
        assert!(out.bytes().iter().enumerate().all(|(i, &byte)| byte == right(i)));
        assert!(files.is_clean(&file, false, 1, &out.bytes()[..4096]));
        assert!(!files.is_clean(&file, false, 2, &out.bytes()[..4096]), "another page");
        assert!(!files.is_clean(&file, false, 0, &out.bytes()[..4096]), "never read");
        out.bytes()[100] ^= 1;
        assert!(!files.is_clean(&file, false, 1, &out.bytes()[..4096]));
    }

    #[test]
    fn hashes_take_room_for_what_was_read() {
        let (files, file) = file();
        let page = [7; 4096];
        for index in [63, 64, FILE_PAGES_MAX - 1] {
            assert!(!files.is_clean(&file, false, index, &page));
            files.has_read(&file, false, index, &page);
            assert!(files.is_clean(&file, false, index, &page));
        }
        assert!(!files.is_clean(&file, false, 62, &page) && !files.is_clean(&file, false, 65, &page));
        assert!(files.metadata_bytes() - files.ahead.taken() < 4096);
    }

    #[test]
    fn ranges_follow_unmapping_and_moving() {
        let (_files, file) = file();
        let mut ranges = FileRanges::default();
        ranges.add(100, Mapped { end: 120, file: Arc::clone(&file), index: 5, shared: false });
        let at = |ranges: &FileRanges, page| ranges.at(Page(page)).map(|(_, index)| index);
        assert_eq!([99, 100, 119, 120].map(|page| at(&ranges, page)), [None, Some(5), Some(24), None]);
        ranges.cut(104, 108);
        assert_eq!([103, 104, 107, 108].map(|page| at(&ranges, page)), [Some(8), None, None, Some(13)]);
        ranges.shift(102, 502, 10);
        assert_eq!([101, 102, 111, 112].map(|page| at(&ranges, page)), [Some(6), None, None, Some(17)]);
        assert_eq!(
            [501, 502, 503, 504, 508, 511, 512].map(|page| at(&ranges, page)),
            [None, Some(7), Some(8), None, Some(13), Some(16), None]
        );
        // As the changes that a fork child has of its parent.
        ranges.change(Change::Moved(502 << 12, 202 << 12, 2 << 12));
        ranges.change(Change::Unmapped(203 << 12, 204 << 12));
        ranges.change(Change::Came(508 << 12, 512 << 12));
        assert_eq!([202, 203, 502, 508].map(|page| at(&ranges, page)), [Some(7), None, None, None]);
        ranges.cut(0, 1000);
        assert!(ranges.is_empty());
    }
}
