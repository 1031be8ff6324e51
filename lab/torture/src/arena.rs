//! An address range of one thread, reserved without access, in which the thread chooses the
//! addresses of mappings.
//!
//! It is far below the addresses that the kernel gives to new mappings (top down), so no other mmap
//! takes a hole that a test leaves in it for a moment. If that happens all the same, the arena
//! never uses the hole again.

use crate::content::PAGE;
use crate::rng::Rng;
use crate::sys::{Errno, Span};

/// The range, and the parts of it that other mappings took.
pub struct Arena {
    span: Span,
    lost: Vec<(usize, usize)>,
}

const LOW: usize = 0x1000_0000_0000;

/// Reserves address space for a process.
pub fn reserve(pages: usize, seed: u64) -> Result<Span, Errno> {
    let mut rng = Rng::new(seed);
    let flags = libc::MAP_NORESERVE;
    for _ in 0..16 {
        let hint = LOW + rng.below(1 << 18) * (1 << 26);
        match Span::map_at(hint, pages, libc::PROT_NONE, flags | libc::MAP_FIXED_NOREPLACE) {
            Err(Errno(libc::EEXIST)) => {}
            other => return other,
        }
    }
    Span::map(pages, libc::PROT_NONE, flags)
}

impl Arena {
    /// An arena in a part of a reserved range.
    pub fn new(span: Span) -> Arena {
        Arena { span, lost: Vec::new() }
    }

    /// Whether the range is inside, disjoint from all `used` ranges, and not lost.
    pub fn is_free(&self, addr: usize, pages: usize, used: &[(usize, usize)]) -> bool {
        let end = addr + pages * PAGE;
        let apart = |&(from, to): &(usize, usize)| to <= addr || end <= from;
        addr >= self.span.addr()
            && end <= self.span.addr() + self.span.len()
            && used.iter().all(apart)
            && self.lost.iter().all(apart)
    }

    /// A random free place for `pages` pages.
    pub fn find(&self, pages: usize, used: &[(usize, usize)], rng: &mut Rng) -> Option<usize> {
        let room = self.span.pages().checked_sub(pages)?;
        (0..64).map(|_| self.span.addr() + rng.below(room + 1) * PAGE).find(|&at| self.is_free(at, pages, used))
    }

    /// Maps zero pages at a free place (over the reservation).
    pub fn map(&self, addr: usize, pages: usize, prot: i32, flags: i32) -> Result<Span, Errno> {
        Span::map_at(addr, pages, prot, flags | libc::MAP_FIXED)
    }

    /// Reserves a range again that was just unmapped or moved away.
    pub fn fill_hole(&mut self, hole: Span) {
        let flags = libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        if Span::map_at(hole.addr(), hole.pages(), libc::PROT_NONE, flags).is_err() {
            self.lost.push((hole.addr(), hole.addr() + hole.len()));
        }
    }

    /// Turns pages that are still mapped back into a reservation.
    pub fn reserve_again(&self, span: Span) -> Result<(), Errno> {
        Span::map_at(span.addr(), span.pages(), libc::PROT_NONE, libc::MAP_NORESERVE | libc::MAP_FIXED).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_only_free_places() {
        let span = reserve(256, 1).unwrap();
        let mut arena = Arena::new(span);
        let at = |page: usize| span.addr() + page * PAGE;
        let used = [(at(0), at(100)), (at(110), at(256))];
        let mut rng = Rng::new(1);
        for _ in 0..50 {
            if let Some(addr) = arena.find(5, &used, &mut rng) {
                assert!(addr >= at(100) && addr + 5 * PAGE <= at(110));
            }
        }
        assert!(arena.is_free(at(100), 10, &used));
        assert!(!arena.is_free(at(100), 11, &used) && !arena.is_free(at(256), 1, &[]));
        // A hole that another mapping took is lost.
        arena.fill_hole(span.sub(100, 4));
        assert!(!arena.is_free(at(102), 1, &used) && arena.is_free(at(104), 6, &used));
        span.unmap().unwrap();
    }
}
