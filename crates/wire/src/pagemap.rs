//! The kernel's scan of a page table, `PAGEMAP_SCAN` (linux/fs.h, Linux 6.7), as far as memfit uses
//! it. Addresses are bytes.
#![allow(missing_docs)]

/// The request for ioctl, on a descriptor of /proc/PID/pagemap.
pub const PAGEMAP_SCAN: u64 = 0xc060_6610;
pub const PAGE_IS_PRESENT: u64 = 1 << 3;
pub const PAGE_IS_SWAPPED: u64 = 1 << 4;
pub const PAGE_IS_PFNZERO: u64 = 1 << 5;
/// Linux 6.15.
pub const PAGE_IS_GUARD: u64 = 1 << 8;
/// Linux 7.3: registered with [`REGISTER_MODE_RWP`](crate::uffd::REGISTER_MODE_RWP), and not
/// protected now.
pub const PAGE_IS_ACCESSED: u64 = 1 << 9;

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    pub categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
pub struct Scan {
    pub size: u64,
    pub flags: u64,
    pub start: u64,
    pub end: u64,
    pub walk_end: u64,
    /// Address of an array of [`Region`].
    pub vec: u64,
    pub vec_len: u64,
    pub max_pages: u64,
    pub category_inverted: u64,
    pub category_mask: u64,
    pub category_anyof_mask: u64,
    pub return_mask: u64,
}
