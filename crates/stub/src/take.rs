//! Taking runs of pages away: MOVE into the bounce window, copy into staging, empty the window.
//!
//! The window is registered on the process's own userfaultfd, so that a MOVE fails while an event
//! is unread. Emptying it must raise no event. So the stub unregisters the window for the
//! MADV_DONTNEED, which costs 2 us for a whole window.
//!
//! A run of a read-only mapping is opened for its MOVE: see [`crate::access`].

use crate::access::{self, Closed, Opened, Opening};
use crate::agent::die;
use crate::sys::{self, syscall, PAGE_BYTES};
use crate::threads;
use core::mem::size_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use memfit_wire::pagemap::{Region, Scan, PAGEMAP_SCAN, PAGE_IS_PRESENT, PAGE_IS_SWAPPED};
use memfit_wire::uffd::{
    self, Move, Register, MODE_DONTWAKE, REGISTER_MODE_MISSING, UFFDIO_MOVE, UFFDIO_REGISTER, UFFDIO_UNREGISTER,
};
use memfit_wire::{
    Range, Ring, BATCH_PAGES, BATCH_RANGES, CLOSED, DESCRIPTOR, DOFORK, DONTFORK, FATAL_ACCESS, FATAL_BATCH,
    FATAL_FLUSH, FATAL_WINDOW, IN_CALL, IN_MOVE, NOT_OPENED, POPULATE, RING_BYTES, STUB_WAITS, WINDOWS, WINDOW_PAGES,
};

/// State for taking pages, made when the pager attaches the process.
pub struct Taker {
    pub socket: i32,
    pub uffd: i32,
    /// /proc/PID/pagemap of this process, or -1.
    pub pagemap: i32,
    /// /proc/PID/maps of this process, or -1: then the stub takes no pages of read-only mappings.
    pub maps: i32,
    pub ring: &'static Ring,
    /// Address and bytes of the segment; the ring is at its start.
    pub segment: usize,
    pub segment_bytes: usize,
    /// Address of the first window.
    pub window: usize,
    /// Pages of each window in use.
    pub used: [usize; WINDOWS.len()],
    /// Bit i: window i is open (has its access).
    pub opened: u32,
    /// The window to try first: the last one that was tried.
    pub likely: usize,
    /// The last page that was tried is in a read-only mapping.
    pub read_only: bool,
    /// A thread of the program was in a call that changes mappings: this batch does not wait for
    /// the end of such a call again.
    pub in_call: bool,
    /// Number of opened runs, and how many of those that were checked stayed split from their
    /// mapping.
    pub opens: u32,
    pub splits: u32,
    /// Test builds only: believe MOVE's return value.
    pub trust_move: bool,
}

const DONTNEED: usize = 4;
/// Attempts to empty the window: a thread that reads or locks all memory can touch its pages
/// meanwhile.
const FLUSHES_MAX: u32 = 10_000;

/// One of [`SPLITS_CHECK`] opened runs is checked for [`Closed::Split`]. After [`SPLITS_MAX`] such
/// runs, about 2000 in all, no more are opened: the kernel allows a process 65 530 mappings.
const SPLITS_CHECK: u32 = 16;
const SPLITS_MAX: u32 = 125;

/// A range that is being moved.
struct Moves {
    address: usize,
    /// Address for its first page in each window.
    bases: [usize; WINDOWS.len()],
    /// Number of pages that have been tried, moved or not.
    done: usize,
    /// Bit masks of the pages that moved, by window.
    moved: [u64; WINDOWS.len()],
    /// See [`Moves::fail`]; 0: none.
    error: i32,
    /// Bit mask of the windows that were unlocked for this range.
    unlocked: u32,
}

impl Moves {
    /// The first error counts, or that a call is under way: the pager must know that.
    fn fail(&mut self, errno: i32) {
        if self.error == 0 || errno == IN_CALL {
            self.error = errno;
        }
    }
}

/// What follows a MOVE that failed.
enum Next {
    /// The page that is next in [`Moves`].
    Page,
    /// Nothing more of this range.
    Stop,
    /// The window cannot tell what moved.
    Fatal,
}

/// Result for pages that may be in a read-only mapping.
enum ReadOnly {
    /// They are not; the page of the range at which their mapping ends.
    No(usize),
    /// They have been tried.
    Done,
    /// No more pages can be moved now.
    Stop,
    /// [`Ring::fatal`] is set.
    Fatal,
}

impl Taker {
    /// Carries out the posted batch. Stops early when the pager cancels it.
    pub fn run_batch(&mut self) {
        let ring = self.ring;
        let number = ring.posted.load(Acquire);
        if ring.finished.load(Relaxed) == number {
            return;
        }
        self.in_call = false;
        let ranges = (ring.ranges.load(Relaxed) as usize).min(BATCH_RANGES);
        for range in &ring.range[..ranges] {
            let pages = range.pages.load(Relaxed) as usize;
            let flags = range.flags.load(Relaxed);
            if flags & (DONTFORK | DOFORK) != 0 {
                if !self.enter(number) {
                    break;
                }
                Self::dontfork(range, pages, flags);
                self.leave();
                continue;
            }
            if self.pagemap < 0 {
                // The program had no descriptor left when it came: nobody could see what moved.
                range.status.store(1 + sys::EMFILE as u32, Release);
                continue;
            }
            if self.used.iter().any(|used| used + pages > WINDOW_PAGES) {
                self.flush(1);
            }
            if flags & POPULATE != 0 {
                let error = self.populate(range.address.load(Relaxed) as usize, pages);
                if error != 0 {
                    range.status.store(1 + error as u32, Release);
                    continue;
                }
            }
            if !self.enter(number) {
                break;
            }
            if ring.touched.swap(0, SeqCst) != 0 {
                self.flush(0);
            }
            self.take(range, pages);
            self.leave();
            if ring.fatal.load(Relaxed) != 0 {
                break;
            }
        }
        self.flush(1);
        ring.finished.store(number, Release);
        sys::futex_wake(&ring.finished);
    }

    /// Keeps a range from fork children (MADV_DONTFORK, 10), or gives it to them (MADV_DOFORK, 11).
    /// A kept range also gets MADV_NOHUGEPAGE (15) for good, which has no other use there: by this
    /// mark the pager recognizes the mapping in a child.
    fn dontfork(range: &Range, pages: usize, flags: u32) {
        let (start, bytes) = (range.address.load(Relaxed), pages * PAGE_BYTES);
        // SAFETY: changes no byte.
        let result = unsafe {
            if flags & DONTFORK != 0 {
                let kept = syscall!(sys::MADVISE, start, bytes, 10);
                let marked = syscall!(sys::MADVISE, start, bytes, 15);
                if kept != 0 {
                    kept
                } else {
                    marked
                }
            } else {
                syscall!(sys::MADVISE, start, bytes, 11)
            }
        };
        range.status.store((1 - result) as u32, Release);
    }

    /// Makes the present pages of a range exclusive to the program and dirty, so that the kernel
    /// cannot drop one on the way. Runs outside of the gate, because it can fault. Returns 0 or the
    /// errno: MADV_POPULATE_WRITE (23) stops at the first page that it cannot write, and nothing
    /// behind that page may be moved.
    fn populate(&self, address: usize, pages: usize) -> i32 {
        let Some(present) = self.scan(address, pages.min(WINDOW_PAGES)) else { return 0 };
        let mut at = 0;
        while at < pages {
            let run = (!(present >> at)).trailing_zeros() as usize;
            if run > 0 {
                // SAFETY: writes no byte.
                let result = unsafe { syscall!(sys::MADVISE, address + at * PAGE_BYTES, run * PAGE_BYTES, 23) };
                // MADV_POPULATE_WRITE refuses a read-only mapping. A page there that the kernel
                // may drop stays once it has moved.
                if result == -(sys::EINVAL as isize) && self.maps >= 0 {
                    access::unshare(address, present);
                    return 0;
                }
                if result < 0 {
                    return -result as i32;
                }
            }
            at += run + 1;
        }
        0
    }

    /// Passes the gate; waits while it is closed. False if the batch is cancelled.
    fn enter(&self, number: u32) -> bool {
        let gate = &self.ring.gate;
        loop {
            let seen = gate.fetch_or(IN_MOVE, SeqCst);
            if self.ring.cancelled.load(SeqCst) == number {
                self.leave();
                return false;
            }
            if seen & CLOSED == 0 {
                return true;
            }
            self.leave();
            let now = gate.load(SeqCst);
            if now & CLOSED != 0 && gate.compare_exchange(now, now | STUB_WAITS, SeqCst, SeqCst).is_ok() {
                sys::futex_wait(gate, now | STUB_WAITS, 100);
                // After the death of the pager nobody opens the gate.
                if sys::is_hung_up(self.socket) {
                    die();
                }
            }
        }
    }

    fn leave(&self) {
        if self.ring.gate.fetch_and(!IN_MOVE, SeqCst) & CLOSED != 0 {
            sys::futex_wake(&self.ring.gate);
        }
    }

    /// Moves one range and publishes the result. Each page goes to the window with the access of
    /// its mapping. The window decides what moved, never the return value: after an internal retry
    /// the kernel does not report all pages that it moved (rule 3a).
    fn take(&mut self, range: &Range, pages: usize) {
        let (address, first) = (range.address.load(Relaxed) as usize, range.slot.load(Relaxed) as usize);
        if pages == 0 || self.used.iter().any(|used| pages > WINDOW_PAGES - used) || first + pages > BATCH_PAGES {
            self.ring.fatal.store(FATAL_BATCH, SeqCst);
            return;
        }
        let bases = core::array::from_fn(|which| self.window(which) + self.used[which] * PAGE_BYTES);
        let mut moves = Moves { address, bases, done: 0, moved: [0; WINDOWS.len()], error: 0, unlocked: 0 };
        threads::moving(true);
        let told = self.move_up_to(&mut moves, pages, None);
        threads::moving(false);
        if !told {
            return;
        }
        let Moves { bases, moved, error, .. } = moves;
        for which in 0..WINDOWS.len() {
            if !self.copy_out(bases[which], first, pages, moved[which]) {
                self.ring.fatal.store(FATAL_BATCH, SeqCst);
                return;
            }
            if moved[which] != 0 {
                self.used[which] += pages;
            }
        }
        range.moved.store(moved.iter().fold(0, |all, moved| all | moved), Relaxed);
        range.status.store(1 + error as u32, Release);
    }

    /// Moves the pages of a range from the first untried one up to `end`. `open` is the window for
    /// a run that is open; other pages go to whichever window accepts them. Stops while an event is
    /// unread. False if the window cannot tell what moved.
    fn move_up_to(&mut self, moves: &mut Moves, end: usize, open: Option<usize>) -> bool {
        // Windows that refused the next page.
        let mut refused = 0;
        let mut ask = self.read_only;
        // The page at which the stub last asked for the mapping, and the page at which that mapping
        // ends: the kernel refuses a whole MOVE that goes beyond it.
        let (mut asked, mut mapped) = (usize::MAX, end);
        while moves.done < end {
            if ask && open.is_none() {
                (ask, asked) = (false, moves.done);
                match self.take_read_only(moves, end) {
                    ReadOnly::No(upto) => {
                        self.read_only = false;
                        mapped = upto;
                    }
                    ReadOnly::Done => {
                        self.read_only = true;
                        continue;
                    }
                    ReadOnly::Stop => break,
                    ReadOnly::Fatal => return false,
                }
            }
            let (done, which) = (moves.done, open.unwrap_or(self.likely));
            let to = moves.bases[which] + done * PAGE_BYTES;
            let upto = if done < mapped { mapped.min(end) } else { end };
            let upto = done + threads::takable(moves.address + done * PAGE_BYTES, upto - done);
            if upto == done {
                moves.fail(DESCRIPTOR);
                moves.done += 1;
                continue;
            }
            let (reported, errno) = self.move_pages(to, moves.address + done * PAGE_BYTES, upto - done);
            for i in done..done + reported {
                moves.moved[which] |= 1 << i;
            }
            let done = done + reported;
            moves.done = done;
            if reported > 0 {
                refused = 0;
            }
            if done == upto {
                continue;
            }
            if errno == sys::EINVAL && open.is_none() && self.maps >= 0 && asked != done {
                ask = true;
                continue;
            }
            // A locked window takes only locked pages.
            if errno == sys::EINVAL && moves.unlocked >> which & 1 == 0 {
                moves.unlocked |= 1 << which;
                // SAFETY: our own window.
                unsafe { syscall!(sys::MUNLOCK, self.window(which), WINDOW_PAGES * PAGE_BYTES) };
                continue;
            }
            match self.failed(moves, end, (which, open), errno, &mut refused) {
                Next::Page => {}
                Next::Stop => break,
                Next::Fatal => return false,
            }
        }
        true
    }

    /// A MOVE to a window failed at the next page: finds out what moved unreported. `refused` are
    /// the windows that refused this page.
    fn failed(
        &mut self,
        moves: &mut Moves,
        end: usize,
        (which, open): (usize, Option<usize>),
        errno: i32,
        refused: &mut u32,
    ) -> Next {
        if cfg!(feature = "mutants") && self.trust_move {
            moves.error = errno;
            if errno == sys::EAGAIN {
                return Next::Stop;
            }
            moves.done += 1;
            return Next::Page;
        }
        let done = moves.done;
        let Some(found) = self.scan(moves.bases[which] + done * PAGE_BYTES, end - done) else {
            self.ring.fatal.store(FATAL_WINDOW, SeqCst);
            return Next::Fatal;
        };
        if errno == sys::EINVAL && found == 0 {
            if open.is_some() {
                // The kernel refuses every page of this mapping.
                moves.fail(errno);
                moves.done = end;
                return Next::Stop;
            }
            *refused |= 1u32 << which;
            let other = self.opened & !*refused;
            if other != 0 {
                self.likely = other.trailing_zeros() as usize;
                return Next::Page;
            }
        }
        moves.moved[which] |= found << done;
        moves.fail(errno);
        if found & 1 == 0 && errno == sys::EAGAIN {
            // An event is unread: nothing moves before the pager has read it.
            return Next::Stop;
        }
        // Go on after the page that failed, and after pages behind it that moved unreported.
        moves.done += 1;
        *refused = 0;
        while moves.done < end && moves.moved[which] >> moves.done & 1 == 1 {
            moves.done += 1;
        }
        Next::Page
    }

    /// If the next page is in a read-only mapping: moves the pages of the range in that mapping.
    fn take_read_only(&mut self, moves: &mut Moves, end: usize) -> ReadOnly {
        let from = moves.done;
        let (address, bytes) = (moves.address + from * PAGE_BYTES, (end - from) * PAGE_BYTES);
        let opened = match Opened::open(self.uffd, self.maps, address, bytes, &mut self.in_call) {
            Opening::Open(opened) => opened,
            Opening::No(address) => return ReadOnly::No((address - moves.address) / PAGE_BYTES),
            Opening::Failed(errno) => {
                moves.fail(errno);
                moves.done = end;
                return if matches!(errno, sys::EAGAIN | IN_CALL) { ReadOnly::Stop } else { ReadOnly::Done };
            }
        };
        let upto = from + opened.bytes() / PAGE_BYTES;
        let (mut known, mut left) = (true, true);
        match WINDOWS.iter().position(|access| *access == opened.access()) {
            Some(which) if self.open_window(which) => {
                known = self.move_up_to(moves, upto, Some(which));
                let all = moves.moved[which] >> from;
                left = all.trailing_ones() < (upto - from) as u32;
            }
            _ => {
                moves.fail(NOT_OPENED);
                moves.done = upto;
            }
        }
        self.opens = self.opens.wrapping_add(1);
        match opened.close(!left, self.opens % SPLITS_CHECK == 0) {
            Closed::Whole => {}
            Closed::Split => {
                self.splits += 1;
                if self.splits >= SPLITS_MAX {
                    self.maps = -1;
                }
            }
            Closed::Never => {
                self.ring.fatal.store(FATAL_ACCESS, SeqCst);
                return ReadOnly::Fatal;
            }
        }
        match known {
            false => ReadOnly::Fatal,
            true if moves.done < upto => ReadOnly::Stop,
            true => ReadOnly::Done,
        }
    }

    /// Gives a window its access, because the program has memory with that access. Returns whether
    /// the window is open. If the kernel refuses, it stays closed, and such memory is not taken.
    pub fn open_window(&mut self, which: usize) -> bool {
        let Some(access) = WINDOWS.get(which) else { return false };
        if self.opened >> which & 1 == 1 {
            return true;
        }
        // SAFETY: our own mapping.
        if unsafe { syscall!(sys::MPROTECT, self.window(which), WINDOW_PAGES * PAGE_BYTES, *access) } == 0 {
            self.opened |= 1 << which;
            self.empty(self.window(which));
        }
        self.opened >> which & 1 == 1
    }

    fn window(&self, which: usize) -> usize {
        self.window + which * WINDOW_PAGES * PAGE_BYTES
    }

    /// Number of pages that the kernel reports as moved, and the errno if these are not all.
    fn move_pages(&self, to: usize, from: usize, pages: usize) -> (usize, i32) {
        let mut arg =
            Move { dst: to as u64, src: from as u64, len: (pages * PAGE_BYTES) as u64, mode: MODE_DONTWAKE, moved: 0 };
        // SAFETY: the argument is a valid uffdio_move; the destination is our own empty window.
        let result = unsafe { syscall!(sys::IOCTL, self.uffd, UFFDIO_MOVE, &raw mut arg) };
        if result == 0 {
            return (pages, 0);
        }
        let reported = if arg.moved > 0 { arg.moved as usize / PAGE_BYTES } else { 0 };
        (reported.min(pages), if result < 0 { -result as i32 } else { sys::EAGAIN })
    }

    /// Mask of the pages, of up to 64, that are present or in the kernel's swap. (mincore counts
    /// pages in the kernel's swap as absent.)
    fn scan(&self, at: usize, pages: usize) -> Option<u64> {
        let mut found = [Region::default(); WINDOW_PAGES / 2];
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            start: at as u64,
            end: (at + pages * PAGE_BYTES) as u64,
            vec: found.as_mut_ptr() as u64,
            vec_len: found.len() as u64,
            category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            ..Scan::default()
        };
        // SAFETY: a valid pm_scan_arg. A new range begins at most at every second page, so there is
        // room.
        let ranges = unsafe { syscall!(sys::IOCTL, self.pagemap, PAGEMAP_SCAN as usize, &raw mut scan) };
        if ranges < 0 {
            return None;
        }
        let mut mask = 0;
        for range in found.iter().take(ranges as usize) {
            let first = (range.start as usize - at) / PAGE_BYTES;
            for page in first..first + (range.end - range.start) as usize / PAGE_BYTES {
                mask |= 1u64.checked_shl(page as u32).unwrap_or(0);
            }
        }
        Some(mask)
    }

    /// Copies the moved pages to their staging slots. False if a slot is outside of the segment.
    fn copy_out(&self, base: usize, first: usize, pages: usize, moved: u64) -> bool {
        for i in 0..pages {
            if moved >> i & 1 == 0 {
                continue;
            }
            let at = RING_BYTES + self.ring.slots[first + i].load(Relaxed) as usize * PAGE_BYTES;
            if at + PAGE_BYTES > self.segment_bytes {
                return false;
            }
            // SAFETY: the source is a present page of the window, the destination a slot inside of
            // the segment that the pager reserved for it.
            unsafe { sys::copy(self.segment + at, base + i * PAGE_BYTES, PAGE_BYTES) };
        }
        true
    }

    /// Empties each open window that has at least `least` pages in use.
    fn flush(&mut self, least: usize) {
        for which in 0..WINDOWS.len() {
            if self.opened >> which & 1 == 1 && self.used[which] >= least {
                self.empty(self.window(which));
                self.used[which] = 0;
            }
        }
    }

    /// Empties a window without an event. A thread of the program that reads or locks all of its
    /// memory can fill or lock a page meanwhile: then again.
    fn empty(&self, window: usize) {
        let (start, len) = (window as u64, (WINDOW_PAGES * PAGE_BYTES) as u64);
        for _ in 0..FLUSHES_MAX {
            let mut register = Register { range: uffd::Range { start, len }, mode: REGISTER_MODE_MISSING, ioctls: 0 };
            // SAFETY: all act on our own window only, whose contents are in staging. Locked memory
            // cannot be dropped.
            let failed = unsafe {
                syscall!(sys::IOCTL, self.uffd, UFFDIO_UNREGISTER, &raw const register.range) != 0 || {
                    if syscall!(sys::MADVISE, window, WINDOW_PAGES * PAGE_BYTES, DONTNEED) != 0 {
                        syscall!(sys::MUNLOCK, window, WINDOW_PAGES * PAGE_BYTES);
                        syscall!(sys::MADVISE, window, WINDOW_PAGES * PAGE_BYTES, DONTNEED);
                    }
                    syscall!(sys::IOCTL, self.uffd, UFFDIO_REGISTER, &raw mut register) != 0
                }
            };
            match self.scan(window, WINDOW_PAGES) {
                Some(0) if !failed => return,
                Some(_) if !failed => {}
                _ => break,
            }
        }
        self.ring.fatal.store(FATAL_FLUSH, SeqCst);
    }
}
