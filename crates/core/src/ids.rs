//! Newtypes of page, process, slot and object numbers. None of them is an address or a pointer.

/// Bytes in a page, to count with addresses.
pub const PAGE_BYTES: u64 = memfit_wire::PAGE_BYTES as u64;
/// Pages in a run, the unit of victim selection (64 KiB, aligned).
pub const RUN_PAGES: u64 = 16;
/// "No index": the end of a list.
pub(crate) const NIL: u32 = u32::MAX;

/// A paged process: an address space with a userfaultfd. Numbers are reused after
/// [`crate::Core::remove_process`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcId(pub u32);

/// Virtual page number: address / [`PAGE_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page(pub u64);

impl Page {
    /// The page that holds an address.
    pub fn of(address: u64) -> Page {
        Page(address / PAGE_BYTES)
    }
    /// Address of its first byte.
    pub fn address(self) -> u64 {
        self.0 * PAGE_BYTES
    }
    /// The run it belongs to.
    pub(crate) fn run(self) -> u64 {
        self.0 / RUN_PAGES
    }
    /// Its place in the run, 0..16.
    pub(crate) fn index(self) -> usize {
        (self.0 % RUN_PAGES) as usize
    }
}

/// Pages `first .. first + pages`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRange {
    /// First page.
    pub first: Page,
    /// Number of pages.
    pub pages: u64,
}

impl PageRange {
    /// All pages of an address space.
    pub const ALL: PageRange = PageRange { first: Page(0), pages: u64::MAX / PAGE_BYTES };

    /// From byte addresses, `end` exclusive; both page aligned.
    pub fn from_addresses(start: u64, end: u64) -> PageRange {
        PageRange { first: Page::of(start), pages: end.saturating_sub(start).div_ceil(PAGE_BYTES) }
    }
    /// One past the last page.
    pub fn end(self) -> u64 {
        self.first.0 + self.pages
    }
    /// The part of it that is in `outer`.
    #[must_use]
    pub fn within(self, outer: PageRange) -> PageRange {
        let first = self.first.max(outer.first);
        PageRange { first, pages: self.end().min(outer.end()).saturating_sub(first.0) }
    }
}

/// A staging area: the shared segment in which the stub of one process puts evicted pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AreaId(pub u32);

/// One 4 KiB slot of a staging area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StagingSlot {
    /// The area.
    pub area: AreaId,
    /// Index in the area; byte offset is `index *` [`PAGE_BYTES`].
    pub index: u32,
}

/// An evicted page's contents, wherever they are. Shared by the page entries of several
/// processes after a fork. Numbers are reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectId(pub u32);

/// A place in the swap tier. [`crate::swap_log`] or, by the swap format, [`crate::blocks`] knows
/// its device and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Offset in units of the one or the other.
    pub unit: u32,
}
