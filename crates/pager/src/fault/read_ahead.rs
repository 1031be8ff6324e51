//! Read-ahead of files in the page cache: the pieces that a sequential reader wants next are read
//! while it works on the pages that it has.
//!
//! Only pages of the page cache are read ahead: their file cannot change while its lease is held,
//! and a file whose lease has ended is another one from then on ([`crate::leases`]). So the bytes
//! of a piece do not become out of date.

use super::bring::unknown_file;
use super::{End, FaultBuffers, Server};
use crate::files::MappedFile;
use crate::swap::{Aligned, Counters, Engine, Progress, Transfer};
use memfit_core::{Page, PageRange, Source, PAGE_BYTES};
use memfit_os::transfer::Request;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most pages of a piece (256 KiB).
const PIECE_PAGES: u64 = 64;
const PIECE_BYTES: usize = PIECE_PAGES as usize * PAGE_BYTES as usize;
/// Most pieces of one process, which may be under way at the same time.
const PIECES: usize = 4;
/// Memory of the pieces of all processes: this share of the budget.
const SHARE_OF_BUDGET: usize = 64;
/// Pages of a fault that show a sequential reader.
const SEQUENTIAL: usize = 16;
/// How far the next pieces are from the pages of the fault, pages.
const REACH: u64 = 256;
/// A piece that nobody has wanted for so long is given up; or for so long, if another reader needs
/// its memory.
const UNWANTED: Duration = Duration::from_secs(30);
const STALE: Duration = Duration::from_secs(1);
/// Time between two looks whether a process that waits for a device has ended.
const WAIT: Duration = Duration::from_millis(100);

/// Memory of the pieces of all processes, bytes.
#[derive(Debug)]
pub struct Memory {
    taken: AtomicUsize,
    most: usize,
}

impl Memory {
    /// For a budget in bytes.
    pub fn of(budget: u64) -> Memory {
        Memory { taken: AtomicUsize::new(0), most: budget as usize / SHARE_OF_BUDGET }
    }

    /// Bytes of all pieces.
    pub fn taken(&self) -> u64 {
        self.taken.load(Relaxed) as u64
    }

    fn take(self: &Arc<Memory>) -> Option<Buffer> {
        let more = |taken| Some(taken + PIECE_BYTES).filter(|&taken| taken <= self.most);
        self.taken.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Buffer { bytes: Arc::new(Aligned::new(PIECE_BYTES)), of: Arc::clone(self) })
    }
}

/// Memory of one piece.
struct Buffer {
    bytes: Arc<Aligned>,
    of: Arc<Memory>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.of.taken.fetch_sub(PIECE_BYTES, Relaxed);
    }
}

enum Condition {
    Coming(Transfer),
    Ready,
    /// It could not be read: the fault that wants it reads again, and reports the error.
    Failed,
}

/// Pages of a file that are being read or were read.
struct Piece {
    condition: Condition,
    file: Arc<MappedFile>,
    /// Pages of the file.
    pages: Range<u64>,
    buffer: Buffer,
    used: Instant,
}

impl Piece {
    fn covers(&self, file: &Arc<MappedFile>, index: u64) -> bool {
        Arc::ptr_eq(&self.file, file) && self.pages.contains(&index)
    }
}

/// The pieces of one process.
pub struct ReadAhead {
    engine: Engine,
    memory: Arc<Memory>,
    pieces: Vec<Piece>,
    /// How many there may be: one more for each that was used, and one after one that was not. So
    /// little is read in vain.
    most: usize,
    /// Of pieces that are not needed any more.
    unused: Vec<Buffer>,
    next_token: u64,
    /// Whether the last fault took pages of a piece.
    took: bool,
    /// When pieces were given up last.
    tidied: Instant,
    /// The device or the file system does not read in the background: no more pieces.
    fails: bool,
}

impl ReadAhead {
    /// `None` where the kernel allows no reads in the background.
    fn new(memory: &Arc<Memory>) -> Option<ReadAhead> {
        ReadAhead::with(Engine::without_faults(), memory)
    }

    fn with(engine: Engine, memory: &Arc<Memory>) -> Option<ReadAhead> {
        (engine.fd() >= 0).then(|| ReadAhead {
            engine,
            memory: Arc::clone(memory),
            pieces: Vec::new(),
            most: 1,
            unused: Vec::new(),
            next_token: 0,
            took: false,
            tidied: Instant::now(),
            fails: false,
        })
    }

    /// Waits for the page if it is being read, until `ends`.
    fn wait_for(
        &mut self,
        file: &Arc<MappedFile>,
        index: u64,
        counters: &Counters,
        ends: impl Fn() -> bool,
    ) -> Result<(), End> {
        loop {
            self.reap(counters);
            let coming = |piece: &Piece| piece.covers(file, index) && matches!(piece.condition, Condition::Coming(_));
            if !self.pieces.iter().any(coming) {
                return Ok(());
            }
            let begun = Instant::now();
            self.engine.wait(WAIT.as_millis() as i32);
            if begun.elapsed() >= WAIT && ends() {
                return Err(End::Gone);
            }
        }
    }

    /// Copies pages of the file that were read ahead to `out`, and returns how many, from the first
    /// one on.
    fn take(&mut self, file: &Arc<MappedFile>, index: u64, out: &mut [u8]) -> usize {
        let Some(i) = self.pieces.iter().position(|piece| piece.covers(file, index)) else { return 0 };
        let piece = &mut self.pieces[i];
        let pages = (piece.pages.end - index).min(out.len() as u64 / PAGE_BYTES);
        let from = (index - piece.pages.start) * PAGE_BYTES;
        let range = from as usize..(from + pages * PAGE_BYTES) as usize;
        // The transfer has given its reference back.
        let bytes = Arc::get_mut(&mut piece.buffer.bytes).filter(|_| matches!(piece.condition, Condition::Ready));
        let got = bytes.map(|bytes| out[..range.len()].copy_from_slice(&bytes.bytes()[range])).is_some();
        (self.took, piece.used) = (self.took || got, Instant::now());
        if !got || index + pages == piece.pages.end {
            self.most = (self.most + usize::from(got)).min(PIECES);
            self.unused.push(self.pieces.swap_remove(i).buffer);
        }
        if got {
            pages as usize
        } else {
            0
        }
    }

    /// Takes a read of these pages of the file, which no piece has; at most [`PIECE_PAGES`]. False
    /// if there is no room.
    fn want(&mut self, file: &Arc<MappedFile>, fd: RawFd, pages: Range<u64>, counters: &Counters) -> bool {
        if self.pieces.len() >= self.most {
            return false;
        }
        let Some(buffer) = self.unused.pop().or_else(|| self.memory.take()) else { return false };
        self.next_token += 1;
        let request = Request {
            token: self.next_token,
            write: false,
            fd,
            offset: pages.start * PAGE_BYTES,
            buffer: Arc::clone(&buffer.bytes),
            at: 0,
            len: ((pages.end - pages.start) * PAGE_BYTES) as usize,
        };
        let condition = Condition::Coming(Transfer::begin(&mut self.engine, request, counters));
        self.pieces.push(Piece { condition, file: Arc::clone(file), pages, buffer, used: Instant::now() });
        true
    }

    fn reap(&mut self, counters: &Counters) {
        while let Some((token, result)) = self.engine.completed() {
            let of = |piece: &&mut Piece| matches!(&piece.condition, Condition::Coming(t) if t.token() == token);
            let Some(piece) = self.pieces.iter_mut().find(of) else { continue };
            let Condition::Coming(transfer) = &mut piece.condition else { continue };
            match transfer.answered(&mut self.engine, result, counters) {
                Progress::More => {}
                Progress::Done => piece.condition = Condition::Ready,
                Progress::Failed(_) => {
                    piece.condition = Condition::Failed;
                    self.fails = true;
                }
            }
        }
        self.engine.start();
    }

    /// Gives up pieces that nobody has wanted for a while, and those of files that may change. A
    /// reader wants pages of `file` next, if it is known.
    fn give_up(&mut self, reader: Option<(&Arc<MappedFile>, &Range<u64>)>) {
        self.tidied = Instant::now();
        let wanted = |piece: &Piece| {
            let overlaps = |pages: &Range<u64>| piece.pages.start < pages.end && pages.start < piece.pages.end;
            reader.is_some_and(|(file, pages)| Arc::ptr_eq(file, &piece.file) && overlaps(pages))
        };
        let full = reader.is_some() && self.pieces.len() >= self.most;
        let given_up = |piece: &Piece| {
            let age = piece.used.elapsed();
            let unwanted = !wanted(piece) && (age > UNWANTED || full && age > STALE);
            !matches!(piece.condition, Condition::Coming(_)) && (unwanted || piece.file.leased.has_ended())
        };
        while let Some(i) = self.pieces.iter().position(given_up) {
            self.unused.push(self.pieces.swap_remove(i).buffer);
            self.most = 1;
        }
    }

    /// Whether the reader of the last fault goes on in order.
    fn goes_on(&mut self, fault_pages: usize) -> bool {
        let goes_on = std::mem::take(&mut self.took) || fault_pages >= SEQUENTIAL;
        goes_on && !self.fails
    }

    /// Whether another piece may begin for a reader that wants these pages next.
    fn has_room(&mut self, file: &Arc<MappedFile>, pages: &Range<u64>, counters: &Counters) -> bool {
        self.reap(counters);
        self.give_up(Some((file, pages)));
        self.pieces.len() < self.most
    }

    /// Keeps nothing that is not needed. `now`: the time. Returns whether nothing is left.
    pub fn tidy(&mut self, now: Instant, counters: &Counters) -> bool {
        if now.saturating_duration_since(self.tidied) > STALE {
            self.reap(counters);
            self.give_up(None);
            self.unused.clear();
        }
        self.pieces.is_empty()
    }

    /// Begins to read these runs of the file, each its first page and one past the last one.
    fn begin(&mut self, file: &Arc<MappedFile>, runs: &[Range<u64>], counters: &Counters) {
        let Some(fd) = file.direct_fd() else { return };
        for run in runs {
            let mut at = run.start;
            while at < run.end {
                if let Some(piece) = self.pieces.iter().find(|piece| piece.covers(file, at)) {
                    at = piece.pages.end;
                    continue;
                }
                let behind = |piece: &&Piece| Arc::ptr_eq(&piece.file, file) && piece.pages.start > at;
                let next = self.pieces.iter().filter(behind).map(|piece| piece.pages.start).min();
                let end = run.end.min(at + PIECE_PAGES).min(next.unwrap_or(u64::MAX));
                if !self.want(file, fd, at..end, counters) {
                    return;
                }
                at = end;
            }
        }
    }
}

impl Server {
    /// Puts the bytes of loads from `first` on into the run buffer if they were read ahead. Returns
    /// of how many.
    pub(super) fn take_read_ahead(
        &mut self,
        first: usize,
        pages: usize,
        buffers: &mut FaultBuffers,
    ) -> Result<usize, End> {
        let (file, index) = self.file_of(self.loads[first].page).ok_or_else(unknown_file)?;
        let Some(ahead) = self.read_ahead.as_mut().filter(|_| self.place.is_cache()) else { return Ok(0) };
        ahead.wait_for(&file, index, &self.shared.files.counters, || self.proc.uffd.gone())?;
        let out = &mut buffers.page_run.bytes()[first * 4096..(first + pages) * 4096];
        let got = ahead.take(&file, index, out);
        self.shared.files.has_read(&file, true, index, &out[..got * 4096]);
        Ok(got)
    }

    /// If the program reads a file of the page cache in order, begins to read what follows the
    /// loads. The program waits meanwhile: where it shares this CPU, this thread runs only when the
    /// program waits again.
    pub(super) fn read_on(&mut self) {
        let Some((file, last)) = self.loads.last().and_then(|load| self.place.file(load.page)) else { return };
        let (Some(limit), Some(cached)) = (self.place.limit(), file.cached.get()) else { return };
        if self.loads[0].source != Source::File {
            return;
        }
        if self.read_ahead.is_none() && self.loads.len() >= SEQUENTIAL {
            self.read_ahead = ReadAhead::new(&self.shared.files.ahead);
        }
        let counters = &self.shared.files.counters;
        let Some(ahead) = &mut self.read_ahead else { return };
        let next = cached.number(last + 1);
        let end = (next + REACH).min(limit.end()).min(cached.whole_end()).max(next);
        let pages = last + 1..last + 1 + (end - next);
        if !ahead.goes_on(self.loads.len()) || !ahead.has_room(file, &pages, counters) {
            return;
        }
        let range = PageRange { first: Page(next), pages: end - next };
        let mut runs = self.shared.lock().core.only_in_file(self.place.id, range);
        runs.iter_mut().for_each(|run| *run = cached.index(Page(run.start))..cached.index(Page(run.end)));
        ahead.begin(file, &runs, counters);
        ahead.engine.start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use std::fs::File;
    use std::os::fd::OwnedFd;

    const PAGES: u64 = 300;

    /// A file of so many pages, each of which differs from the others; `None` where there are no
    /// reads past the kernel's page cache.
    fn file(test: &str) -> Option<(Files, Arc<MappedFile>)> {
        let files = Files::new(64 << 20).unwrap();
        let path = format!("/var/tmp/memfit-ahead-{}-{test}", std::process::id());
        let bytes: Vec<u8> = (0..PAGES).flat_map(page).collect();
        std::fs::write(&path, bytes).unwrap();
        let mapped = files.open(&OwnedFd::from(File::open(&path).unwrap()), 0).unwrap();
        std::fs::remove_file(&path).unwrap();
        if mapped.direct_fd().is_none() {
            crate::skip::skip(test, "no O_DIRECT in /var/tmp");
            return None;
        }
        Some((files, mapped))
    }

    fn page(number: u64) -> Vec<u8> {
        (0..PAGE_BYTES).map(|i| (number * 31 + i / 9) as u8).collect()
    }

    fn take(ahead: &mut ReadAhead, files: &Files, file: &Arc<MappedFile>, index: u64, pages: u64) -> u64 {
        let mut out = vec![0; (pages * PAGE_BYTES) as usize];
        assert!(ahead.wait_for(file, index, &files.counters, || false).is_ok());
        let got = ahead.take(file, index, &mut out) as u64;
        let right: Vec<u8> = (index..index + got).flat_map(page).collect();
        assert_eq!(out[..right.len()], right, "{got} pages from {index} on");
        got
    }

    #[test]
    fn a_reader_gets_each_page_of_the_file_from_pieces_in_order() {
        let Some((files, file)) = file("a_reader_gets_each_page") else { return };
        let Some(mut ahead) = ReadAhead::new(&files.ahead) else {
            return crate::skip::skip("a_reader_gets_each_page", "no io_uring");
        };
        assert!(!ahead.goes_on(SEQUENTIAL - 1) && ahead.goes_on(SEQUENTIAL));
        let (mut at, mut got) = (0, 0);
        while at < PAGES {
            // As the core answers: pages 80 to 99 are in memory.
            let runs = [at..80, at.max(100)..(at + 200).min(PAGES)].into_iter().filter(|run| run.start < run.end);
            let runs: Vec<Range<u64>> = runs.collect();
            ahead.begin(&file, &runs, &files.counters);
            ahead.engine.start();
            assert!(ahead.pieces.len() <= PIECES && files.ahead.taken() <= 64 << 14);
            at += if (80..100).contains(&at) { 100 - at } else { take(&mut ahead, &files, &file, at, 16).max(1) };
            got += u64::from(std::mem::take(&mut ahead.took));
        }
        assert!(got >= (PAGES - 20) / 16, "{got} faults were served by pieces");
        assert_eq!(files.counters.read_bytes.load(Relaxed), (PAGES - 20) * PAGE_BYTES, "each page once");
        drop(ahead);
        assert_eq!(files.ahead.taken(), 0);
    }

    #[test]
    fn a_reader_that_goes_elsewhere_has_little_read_in_vain() {
        let Some((files, file)) = file("a_reader_that_goes_elsewhere") else { return };
        let Some(mut ahead) = ReadAhead::new(&files.ahead) else {
            return crate::skip::skip("a_reader_that_goes_elsewhere", "no io_uring");
        };
        let begin = |ahead: &mut ReadAhead, pages: Range<u64>| {
            ahead.begin(&file, std::slice::from_ref(&pages), &files.counters);
            ahead.engine.start();
            ahead.pieces.len()
        };
        assert_eq!(begin(&mut ahead, 0..PAGES), 1);
        assert_eq!(take(&mut ahead, &files, &file, 0, PIECE_PAGES), PIECE_PAGES);
        assert_eq!(begin(&mut ahead, 64..PAGES), 2, "one was used");
        while ahead.pieces.iter().any(|piece| matches!(piece.condition, Condition::Coming(_))) {
            ahead.reap(&files.counters);
        }
        let pages = 192..256;
        assert!(!ahead.has_room(&file, &pages, &files.counters), "they may still be wanted");
        ahead.pieces.iter_mut().for_each(|piece| piece.used -= STALE * 2);
        assert!(!ahead.has_room(&file, &(70..80), &files.counters), "this reader wants one of them");
        assert_eq!(ahead.pieces.len(), 1);
        assert!(ahead.has_room(&file, &pages, &files.counters));
        assert_eq!(begin(&mut ahead, pages), 1);
    }

    #[test]
    fn what_cannot_be_read_is_left_to_the_fault() {
        let Some((files, file)) = file("what_cannot_be_read") else { return };
        let engine = Engine::with_faults("read-eio=1000");
        let Some(mut ahead) = ReadAhead::with(engine, &files.ahead) else {
            return crate::skip::skip("what_cannot_be_read", "no io_uring");
        };
        ahead.begin(&file, &[0..PAGES / 2, PAGES / 2..PAGES], &files.counters);
        ahead.engine.start();
        assert_eq!(ahead.pieces.len(), 1);
        assert_eq!(take(&mut ahead, &files, &file, 0, 16), 0);
        assert_eq!(take(&mut ahead, &files, &file, PAGES - 1, 1), 0, "no piece has it");
        assert!(!ahead.goes_on(SEQUENTIAL), "it does not try again");
    }

    #[test]
    fn all_pieces_take_a_small_part_of_the_budget() {
        let Some((files, file)) = file("all_pieces_take_a_small_part") else { return };
        let mut readers: Vec<ReadAhead> = (0..3).map_while(|_| ReadAhead::new(&files.ahead)).collect();
        for ahead in &mut readers {
            ahead.most = PIECES;
            ahead.begin(&file, &[0..PAGES / 2, PAGES / 2..PAGES], &files.counters);
            ahead.engine.start();
        }
        let pieces: Vec<usize> = readers.iter().map(|ahead| ahead.pieces.len()).collect();
        assert!(pieces.is_empty() || pieces == [4, 0, 0], "{pieces:?}: 1 MiB for a budget of 64 MiB");
    }
}
