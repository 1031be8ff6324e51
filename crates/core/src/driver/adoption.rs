//! Which new memory of a process is adopted: reported to the core as evictable.
//!
//! A range of the address space is registered by what the maps said before, and by the time of its
//! registration the program can have unmapped a part of it and mapped something else there. That is
//! not registered. A page evicted from it would read as zeros later.

use alloc::vec::Vec;

/// Addresses from the first to one past the last.
pub type Range = (u64, u64);
/// A range of present pages, and whether they are the kernel's zero page.
pub type Present = (u64, u64, bool);

/// Size from which a piece beside registered memory is registered by itself, bytes.
const PIECE_BYTES: u64 = 1 << 20;

/// Which of the ranges `fresh` are registered now; all in order of address.
///
/// The kernel does not merge a registered mapping with one beside it that is not. If the program
/// has accessed both, the kernel does not merge them later either. So a heap that grows by small
/// steps would get a mapping for each scan, until the kernel allows the process no more of them.
/// Small pieces beside registered memory wait, and the kernel merges the next steps with them. At
/// most `most` bytes wait, the smallest pieces first.
pub fn due(fresh: Vec<Range>, most: u64, is_registered: impl Fn(u64) -> bool) -> Vec<Range> {
    let size = |&(start, end): &Range| end - start;
    let is_small = |range: &&Range| size(range) < PIECE_BYTES;
    let adjoins = |range: &&Range| is_registered(range.0.saturating_sub(1)) || is_registered(range.1);
    let mut small: Vec<Range> = fresh.iter().filter(is_small).filter(adjoins).copied().collect();
    small.sort_unstable_by_key(size);
    let mut bytes = 0;
    let fit = small.iter().take_while(|piece| {
        bytes += size(piece);
        bytes <= most
    });
    let mut wait: Vec<Range> = fit.copied().collect();
    wait.sort_unstable();
    fresh.into_iter().filter(|range| wait.binary_search(range).is_err()).collect()
}

/// The parts of the registered ranges `fresh`, and of the `present` pages in them, that lie in
/// registered mappings.
///
/// `mappings` are those of now, read after the pages were seen. A mapping is registered as a whole
/// or not at all, so `is_registered` is asked about one of its present pages; one that is
/// registered now was so when its pages were seen. A mapping without a present page is trusted:
/// there is nothing to evict, and the question would mark it as one with pages (`anon_vma`), so
/// that a core dump would have all of it. `present` must have no page that the core knows: a batch
/// could take it before the question. All are in order of address.
pub fn confirmed(
    mappings: impl Iterator<Item = Range>,
    fresh: &[Range],
    present: &[Present],
    mut is_registered: impl FnMut(u64) -> bool,
) -> (Vec<Range>, Vec<Present>) {
    let (mut regions, mut pages) = (Vec::new(), Vec::new());
    let (mut present, mut fresh) = (present, fresh);
    for (start, end) in mappings {
        while present.first().is_some_and(|page| page.1 <= start) {
            present = &present[1..];
        }
        let inside = present.iter().take_while(|page| page.0 < end);
        let inside: Vec<Present> = inside.map(|&(s, e, zero)| (s.max(start), e.min(end), zero)).collect();
        if inside.first().is_some_and(|&(at, ..)| !is_registered(at)) {
            continue;
        }
        pages.extend(inside);
        while fresh.first().is_some_and(|range| range.1 <= start) {
            fresh = &fresh[1..];
        }
        let covered = fresh.iter().take_while(|range| range.0 < end);
        regions.extend(covered.map(|&(s, e)| (s.max(start), e.min(end))));
    }
    (regions, pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is confirmed of the registered range 10 to 40, and where the question was asked.
    fn of(mappings: &[Range], present: &[Present], registered: &[u64]) -> (Vec<Range>, Vec<Present>, Vec<u64>) {
        let mut asked = Vec::new();
        let is_registered = |at| {
            asked.push(at);
            registered.contains(&at)
        };
        let (regions, pages) = confirmed(mappings.iter().copied(), &[(10, 40)], present, is_registered);
        (regions, pages, asked)
    }

    #[test]
    fn small_pieces_beside_registered_memory_wait() {
        const KIB: u64 = 1024;
        let registered = |at| (1000 * KIB..2000 * KIB).contains(&at);
        let (below, above) = ((999 * KIB, 1000 * KIB), (2000 * KIB, 2008 * KIB));
        let (apart, large) = ((10 * KIB, 11 * KIB), (2000 * KIB, 3024 * KIB));
        let of = |fresh: &[Range], most| due(fresh.to_vec(), most, registered);
        assert_eq!(of(&[apart, below, above], 9 * KIB), [apart]);
        assert_eq!(of(&[apart, below, above], 8 * KIB), [apart, above], "the larger one");
        assert_eq!(of(&[below, above], 0), [below, above]);
        assert_eq!(of(&[large], u64::MAX), [large]);
        assert_eq!(of(&[(2000 * KIB, 3023 * KIB)], u64::MAX), []);
    }

    #[test]
    fn one_present_page_tells_for_its_mapping() {
        let present = [(12, 14, false), (15, 16, true), (25, 35, false)];
        let (regions, pages, asked) = of(&[(10, 20), (20, 30), (30, 40)], &present, &[12, 30]);
        assert_eq!(asked, [12, 25, 30]);
        assert_eq!(regions, [(10, 20), (30, 40)], "what is mapped from 20 to 30 is another mapping");
        assert_eq!(pages, [(12, 14, false), (15, 16, true), (30, 35, false)]);
    }

    #[test]
    fn a_mapping_without_pages_is_trusted_and_a_hole_is_nothing() {
        assert_eq!(of(&[(10, 20), (30, 50)], &[], &[]), (vec![(10, 20), (30, 40)], vec![], vec![]));
        // Pages in a hole have gone since they were seen.
        let (regions, pages, asked) = of(&[(10, 20)], &[(22, 24, false), (38, 39, false)], &[]);
        assert_eq!((regions, pages, asked), (vec![(10, 20)], vec![], vec![]));
    }

    #[test]
    fn a_mapping_of_several_ranges() {
        let (regions, pages) =
            confirmed([(0, 100)].into_iter(), &[(10, 20), (30, 40)], &[(32, 33, false)], |at| at == 32);
        assert_eq!((regions, pages), (vec![(10, 20), (30, 40)], vec![(32, 33, false)]));
    }
}
