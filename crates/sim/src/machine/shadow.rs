//! The simulator's state of each page of a process: 8 bytes a page, in chunks of 512 pages.

use crate::contents::ContentId;
use crate::hash::NumberMap;
use std::collections::BTreeMap;

/// Pages of a chunk, as in a leaf of the page table.
const CHUNK: u64 = 512;

/// State of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// Number of the content × 2, plus 1 while the page is shared with a parent, which counts it.
    content: u32,
    /// In the program's memory, as in the core's table. Most touches read only this field.
    pub resident: bool,
    /// Written since it was mapped or freed. If not, an anonymous page holds zeros.
    pub written: bool,
    /// The swap tier keeps a clean copy: the bytes from which the page was last loaded.
    pub copied: bool,
    /// A clean page of a file.
    pub file: bool,
}

impl Info {
    const NONE: u32 = u32::MAX << 1;
    const NEW: Info = Info { content: Info::NONE, resident: false, written: false, copied: false, file: false };

    /// The content, if it is known.
    pub fn content(&self) -> Option<ContentId> {
        (self.content & !1 != Info::NONE).then_some(ContentId(self.content >> 1))
    }

    fn shared(&self) -> bool {
        self.content & 1 == 1
    }

    /// Marks the page written. Returns whether it had a clean copy, which is stale now.
    pub fn write(&mut self) -> bool {
        if !self.written {
            // The page no longer holds zeros or the bytes of the file.
            (self.written, self.file, self.content) = (true, false, Info::NONE | self.content & 1);
        }
        std::mem::take(&mut self.copied)
    }

    /// Sets the content.
    pub fn holds(&mut self, content: ContentId) {
        self.content = content.0 << 1 | self.content & 1;
    }
}

/// A mapping; `kind` is the generator of what is written into it.
#[derive(Debug, Clone, Copy)]
struct Mapping {
    end: u64,
    kind: u16,
}

/// The pages of a process.
#[derive(Clone)]
pub struct ShadowPages {
    chunks: Vec<Box<[Info; CHUNK as usize]>>,
    index: NumberMap<u64, u32>,
    last: (u64, u32),
    /// Number of pages shared with the parent of a fork.
    pub shared: u64,
    /// By first page, without overlap.
    mappings: BTreeMap<u64, Mapping>,
}

impl ShadowPages {
    /// A process without pages.
    pub fn new() -> ShadowPages {
        ShadowPages {
            chunks: Vec::new(),
            index: NumberMap::default(),
            last: (u64::MAX, 0),
            shared: 0,
            mappings: BTreeMap::new(),
        }
    }

    /// State of a page; creates it if the page is new.
    pub fn page(&mut self, page: u64) -> &mut Info {
        let (chunk, at) = (page / CHUNK, (page % CHUNK) as usize);
        if self.last.0 != chunk {
            let chunks = &mut self.chunks;
            let new = || {
                chunks.push(Box::new([Info::NEW; CHUNK as usize]));
                chunks.len() as u32 - 1
            };
            self.last = (chunk, *self.index.entry(chunk).or_insert_with(new));
        }
        &mut self.chunks[self.last.1 as usize][at]
    }

    /// Ends the sharing of a page, because it is evicted or written.
    pub fn unshare(&mut self, page: u64) {
        let info = self.page(page);
        if info.shared() {
            info.content &= !1;
            self.shared -= 1;
        }
    }

    /// Forgets the contents of pages. Calls `forgotten` for each page that was not new.
    fn take(&mut self, first: u64, pages: u64, mut forgotten: impl FnMut(u64, Info)) {
        let end = first.saturating_add(pages);
        let mut known: Vec<u64> = match pages / CHUNK > self.index.len() as u64 {
            true => self.index.keys().copied().collect(),
            false => {
                (first / CHUNK..=(end.max(1) - 1) / CHUNK).filter(|chunk| self.index.contains_key(chunk)).collect()
            }
        };
        // The order of a map depends on its history.
        known.sort_unstable();
        for chunk in known {
            for page in (chunk * CHUNK).max(first)..((chunk + 1) * CHUNK).min(end) {
                let info = std::mem::replace(self.page(page), Info::NEW);
                self.shared -= u64::from(info.shared());
                if info != Info::NEW {
                    forgotten(page, info);
                }
            }
        }
    }

    /// Forgets the contents of pages. Calls `copied` for each page that has a clean copy.
    pub fn forget(&mut self, first: u64, pages: u64, mut copied: impl FnMut(u64)) {
        self.take(first, pages, |page, info| {
            if info.copied {
                copied(page);
            }
        });
    }

    /// Turns a clone of the parent's state into the child's. Clean copies stay with the parent. If
    /// not `present`, no page is resident.
    pub fn inherited(&mut self, present: bool) {
        self.shared = 0;
        for info in self.chunks.iter_mut().flat_map(|chunk| chunk.iter_mut()) {
            info.copied = false;
            info.resident &= present;
            info.content = info.content & !1 | u32::from(info.resident);
            self.shared += u64::from(info.resident);
        }
    }

    /// Moves pages and mappings to `to` and forgets the pages that were there. Calls `copied` for
    /// each page of both ranges that had a clean copy.
    pub fn remap(&mut self, first: u64, pages: u64, to: u64, mut copied: impl FnMut(u64)) {
        let end = first.saturating_add(pages);
        let mappings: Vec<(u64, Mapping)> =
            self.mappings.range(first..end).map(|(&start, &mapping)| (start, mapping)).collect();
        let whole = self.mapping(first);
        let mut moved = Vec::new();
        self.take(first, pages, |page, info| moved.push((page, info)));
        moved.iter().filter(|(_, info)| info.copied).for_each(|&(page, _)| copied(page));
        self.forget(to, pages, &mut copied);
        self.unmap(first, pages);
        if let Some((_, _, kind)) = whole {
            self.map(to, pages, kind);
        }
        for (start, Mapping { end: old, kind }) in mappings {
            self.map(to.saturating_add(start - first), old.min(end) - start, kind);
        }
        for (page, info) in moved {
            self.shared += u64::from(info.shared());
            *self.page(to.saturating_add(page - first)) = Info { copied: false, ..info };
        }
    }

    /// Maps memory; replaces older mappings of the range.
    pub fn map(&mut self, first: u64, pages: u64, kind: u16) {
        self.unmap(first, pages);
        self.mappings.insert(first, Mapping { end: first.saturating_add(pages), kind });
    }

    /// Removes the mappings of a range.
    pub fn unmap(&mut self, first: u64, pages: u64) {
        let end = first.saturating_add(pages);
        let before = self.mappings.range(..first).next_back().map(|(&start, &mapping)| (start, mapping));
        if let Some((start, Mapping { end: old, kind })) = before.filter(|(_, mapping)| mapping.end > first) {
            self.mappings.insert(start, Mapping { end: first, kind });
            self.mappings.insert(first, Mapping { end: old, kind });
        }
        let inside: Vec<(u64, Mapping)> = self.mappings.range(first..end).map(|(&start, &m)| (start, m)).collect();
        for (start, Mapping { end: old, kind }) in inside {
            self.mappings.remove(&start);
            if old > end {
                self.mappings.insert(end, Mapping { end: old, kind });
            }
        }
    }

    /// First page, end and kind of the mapping that has the page.
    pub fn mapping(&self, page: u64) -> Option<(u64, u64, u16)> {
        let (&first, mapping) = self.mappings.range(..=page).next_back()?;
        (page < mapping.end).then_some((first, mapping.end, mapping.kind))
    }

    /// Bytes that the page states take.
    #[cfg(test)]
    pub fn bytes(&self) -> u64 {
        self.chunks.len() as u64 * CHUNK * size_of::<Info>() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_takes_eight_bytes() {
        assert_eq!(size_of::<Info>(), 8);
        let mut shadow = ShadowPages::new();
        (0..10_000).for_each(|page| shadow.page(page * 3).resident = true);
        assert!(shadow.bytes() <= 30_000 * 8 + 4096, "{}", shadow.bytes());
    }

    #[test]
    fn mappings_are_cut_and_replaced() {
        let mut shadow = ShadowPages::new();
        shadow.map(10, 20, 1);
        shadow.map(15, 5, 2);
        assert_eq!(shadow.mapping(14), Some((10, 15, 1)));
        assert_eq!(shadow.mapping(15), Some((15, 20, 2)));
        assert_eq!(shadow.mapping(29), Some((20, 30, 1)));
        assert_eq!(shadow.mapping(30), None);
        shadow.unmap(12, 13);
        assert_eq!(shadow.mapping(11), Some((10, 12, 1)));
        assert_eq!(shadow.mapping(12), None);
        assert_eq!(shadow.mapping(25), Some((25, 30, 1)));
        shadow.unmap(0, u64::MAX);
        assert_eq!(shadow.mapping(11), None);
    }

    #[test]
    fn what_is_forgotten_is_new() {
        let mut shadow = ShadowPages::new();
        for page in [0, 511, 512, 1 << 40] {
            *shadow.page(page) = Info { copied: true, written: true, ..Info::NEW };
        }
        let mut copies = Vec::new();
        shadow.forget(511, 2, |page| copies.push(page));
        assert_eq!(copies, [511, 512]);
        assert_eq!(*shadow.page(511), Info::NEW);
        copies.clear();
        shadow.forget(0, u64::MAX, |page| copies.push(page));
        assert_eq!(copies, [0, 1 << 40]);
    }

    #[test]
    fn a_range_moves_in_the_memory_of_its_known_pages() {
        let mut shadow = ShadowPages::new();
        let (wide, to) = (1 << 21, 1 << 40);
        shadow.map(0, wide, 1);
        for page in [3, 700, wide - 1, to + 9] {
            *shadow.page(page) = Info { copied: page != 700, written: true, ..Info::NEW };
        }
        let before = shadow.bytes();
        let mut copies = Vec::new();
        shadow.remap(0, wide, to, |page| copies.push(page));
        assert_eq!(copies, [3, wide - 1, to + 9]);
        for page in [3, 700, wide - 1] {
            assert_eq!(*shadow.page(page), Info::NEW);
            assert_eq!(*shadow.page(to + page), Info { written: true, ..Info::NEW });
        }
        assert_eq!(*shadow.page(to + 9), Info::NEW);
        assert_eq!((shadow.mapping(0), shadow.mapping(to + 5)), (None, Some((to, to + wide, 1))));
        assert!(shadow.bytes() <= 2 * before, "{} bytes, {before} before", shadow.bytes());
        // A range that ends beyond the last page.
        shadow.remap(to, u64::MAX, 5, |_| {});
        assert_eq!(*shadow.page(5 + 700), Info { written: true, ..Info::NEW });
    }
}
