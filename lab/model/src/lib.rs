//! Model check of the page-state machine.
//!
//! The decisions are the real ones: every step drives [`memfit_core::Core`]. This crate models, as
//! small atomic steps, what the core cannot see: the program's threads, the kernel's page tables
//! and userfaultfd queues, the stub with its gate, and the pager's threads with their locks.
//! [`search::explore`] tries the orders of these steps, with a bound on preemptions. It stops at
//! the first order that
//!
//! * lets the program read a value that no order of its own calls explains,
//! * makes the pager stop with "a page was lost", or the core panic,
//! * leaves a thread waiting forever, or leaves memory behind after the last exit.
//!
//! [`config::Rule`] switches off one rule at a time in the modelled pager or stub. The search must
//! then find a violation.
//!
//! Simplifications: memory is sequentially consistent; one page holds one small number; a process
//! is one run of [`PAGES`] pages; system calls are split where the kernel drops its locks; codecs
//! and disks never fail. Not modelled: faults that wait for free memory, the throttle, pins,
//! MADV_POPULATE_WRITE of shared pages, ranges that fork does not inherit, mremap onto a mapping,
//! batches of a fork child.
#![forbid(unsafe_code)]

pub mod cell;
pub mod config;
mod fault;
pub mod kernel;
mod order;
mod pager;
pub mod program;
mod reclaim;
mod rescan;
pub mod scenarios;
pub mod search;
mod stub;
pub mod table;
pub mod world;

/// Pages of a process in the model.
pub const PAGES: usize = 6;
/// Number of the first page of a process; a run starts there.
pub const BASE: u64 = 0x100;

/// A page of the model, 0..[`PAGES`].
pub type PageNo = u8;

/// The core's number of a page.
pub fn page(number: PageNo) -> memfit_core::Page {
    memfit_core::Page(BASE + u64::from(number))
}

/// The core's form of a range.
pub fn range(first: PageNo, pages: u8) -> memfit_core::PageRange {
    memfit_core::PageRange { first: page(first), pages: u64::from(pages) }
}
