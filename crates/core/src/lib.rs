//! All decisions of memfit: page table, pools, replacement policies, schemes. The crate has no I/O,
//! page contents, clocks, threads or randomness. So the same calls give the same answers, and a
//! recorded run can be replayed.
//!
//! [`Core`] is the entry point. The pager reports what happened (a page fault, an event, the answer
//! to a batch, the result of a codec) and carries out the answers and [`Effects`]. The pager's core
//! lock makes the calls a sequence.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod admission;
mod ages;
pub mod blocks;
pub mod budget;
#[cfg(test)]
mod chaos;
mod core_call;
pub mod driver;
mod duel;
mod engine;
mod entry;
mod events;
mod evict;
mod fault;
mod file_trial;
mod grow;
mod heat;
mod ids;
mod list;
pub mod load;
mod object;
mod observe;
mod oom;
mod per_process;
pub mod pool;
mod pool_control;
mod price;
pub mod ranges;
mod reclaim;
pub mod replacement;
pub mod sample;
pub mod scheme;
mod sharing;
mod staging;
mod streams;
mod swap_cache;
pub mod swap_log;
mod table;
pub mod trace;
mod writeback;
mod zap_pending;
mod zone_sizing;

pub use core_call::{CoreCall, Fields, Recorder, CALL_NAMES};
pub use engine::{Core, Counters, Effects, Totals, Tunables};
pub use entry::{BatchSlot, Entry, Unfilled};
pub use evict::{Answer, Victim, BATCH_PAGES, BATCH_VICTIMS, VICTIM_PAGES};
pub use fault::{Fault, Filled, Load, Source, Stored};
pub use ids::{AreaId, Extent, ObjectId, Page, PageRange, ProcId, StagingSlot, PAGE_BYTES, RUN_PAGES};
pub use object::ContentHash;
pub use oom::OomVictim;
pub use per_process::{ProcessReclaim, WorkingSet, WORTH_PAGES};
pub use reclaim::{Coded, Compress, Origin, Placed};
pub use sharing::Sharing;
pub use writeback::WriteBack;
