//! Address space that the stub has reserved, and gives out part by part.
//!
//! Each address is given out once: otherwise the pager could apply an event of an old mapping to a
//! new one. A fork child goes on where its parent was.

use crate::sys::{self, syscall, PAGE_BYTES};
use core::sync::atomic::{AtomicUsize, Ordering::*};

pub const RLIMIT_AS: usize = 9;

/// A reservation.
pub struct Space {
    /// Its first address; 0 while there is none.
    base: AtomicUsize,
    /// The next address to give out; 0 before it is opened.
    next: AtomicUsize,
    /// Behind all that the program has placed in it.
    placed: AtomicUsize,
    bytes: usize,
}

/// Plain anonymous memory: 16 GiB. It takes no memory.
pub static PLAIN: Space = Space::of(16 << 30);
/// Private mappings of files that the pager fills.
pub static PRIVATE_FILES: Space = Space::of(64 << 30);
/// Shared ones.
pub static SHARED_FILES: Space = Space::of(64 << 30);
static ALL: [&Space; 3] = [&PLAIN, &PRIVATE_FILES, &SHARED_FILES];

impl Space {
    const fn of(bytes: usize) -> Space {
        Space { base: AtomicUsize::new(0), next: AtomicUsize::new(0), placed: AtomicUsize::new(0), bytes }
    }

    /// Makes the reservation if there is none. `None` under a limit of the address space.
    pub fn reserve(&self) -> Option<[usize; 2]> {
        if self.base.load(Acquire) == 0 {
            let base = addresses(self.bytes)?;
            if self.base.compare_exchange(0, base, AcqRel, Acquire).is_err() {
                // SAFETY: nobody knows of this mapping.
                unsafe { syscall!(sys::MUNMAP, base, self.bytes) };
            }
        }
        let base = self.base.load(Acquire);
        Some([base, base + self.bytes])
    }

    /// Parts of it may be given out from now on.
    pub fn open(&self) {
        let _ = self.next.compare_exchange(0, self.base.load(SeqCst), SeqCst, SeqCst);
        self.skip_placed();
    }

    /// Gives out whole pages.
    pub fn take(&self, bytes: usize) -> Option<usize> {
        let end = self.base.load(Acquire) + self.bytes;
        let next = |at: usize| (at != 0 && bytes <= end - at).then(|| at + bytes);
        self.next.fetch_update(AcqRel, Acquire, next).ok()
    }

    /// Whether a range meets what was given out.
    pub fn meets(&self, at: usize, bytes: usize) -> bool {
        let (base, next) = (self.base.load(Relaxed), self.next.load(Relaxed));
        base != 0 && at < next && at.saturating_add(bytes) > base
    }

    /// Whether a range is a part of what was given out.
    pub fn contains(&self, at: usize, bytes: usize) -> bool {
        let (base, next) = (self.base.load(Relaxed), self.next.load(Relaxed));
        base != 0 && at >= base && at.checked_add(bytes).is_some_and(|end| end <= next)
    }

    /// Addresses of a reservation that is open are given out only behind what the program has
    /// placed.
    fn skip_placed(&self) {
        let placed = self.placed.load(SeqCst);
        let _ = self.next.fetch_update(SeqCst, SeqCst, |at| (at != 0 && at < placed).then_some(placed));
    }
}

/// Address space without access. `None` under a limit of the address space.
fn addresses(bytes: usize) -> Option<usize> {
    let mut limit = [0usize; 2];
    // SAFETY: a new mapping without access; the limit is two words. PROT_NONE; MAP_PRIVATE,
    // MAP_ANONYMOUS and MAP_NORESERVE.
    unsafe {
        syscall!(sys::PRLIMIT, 0, RLIMIT_AS, 0, limit.as_mut_ptr());
        if limit[0] != usize::MAX {
            return None;
        }
        let at = syscall!(sys::MMAP, 0, bytes, 0, 0x4022, usize::MAX, 0);
        (at > 0).then_some(at as usize)
    }
}

/// The program limits its address space, which our reservations must not use up. Unmaps what was
/// not given out, and gives nothing out from now on.
pub fn give_back() {
    for space in ALL {
        let base = space.base.load(Relaxed);
        if base == 0 {
            continue;
        }
        let end = base + space.bytes;
        let next = space.next.swap(end, Relaxed).max(base);
        if next < end {
            // SAFETY: addresses of the reservation that nobody has or will get.
            unsafe { syscall!(sys::MUNMAP, next, end - next) };
        }
    }
}

/// The first address of a range that is in a reservation and was not given out.
pub fn unused_in(at: usize, bytes: usize) -> Option<usize> {
    let end = at.checked_add(bytes)?;
    ALL.iter().find_map(|space| {
        let base = space.base.load(Relaxed);
        // 0 before the reservation is opened.
        let unused = space.next.load(Relaxed).max(base);
        let beyond = base + space.bytes;
        (base != 0 && unused < beyond && at < beyond && end > unused).then_some(unused.max(at))
    })
}

/// The program maps something at an address of its choice, which looks free to it. Of a reservation
/// only what is behind it is given out from now on.
pub fn placed(at: usize, bytes: usize) {
    // A mapping of huge TLB pages is longer than the call says.
    const LONGEST_PAGE: usize = 2 << 20;
    if bytes == 0 || at % PAGE_BYTES != 0 {
        return;
    }
    let end = at.saturating_add(bytes).saturating_add(LONGEST_PAGE - 1) & !(LONGEST_PAGE - 1);
    for space in ALL {
        let base = space.base.load(SeqCst);
        let beyond = base + space.bytes;
        if base != 0 && at < beyond && end > base {
            space.placed.fetch_max(end.min(beyond), SeqCst);
            space.skip_placed();
        }
    }
}
