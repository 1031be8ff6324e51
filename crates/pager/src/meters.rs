//! Counters and times that belong to no process and not to the core; [`crate::stats`] makes
//! statistics of them.

use crate::stats::Latency;
use memfit_codec::CODEC_IDS;
use std::sync::atomic::AtomicU64;

/// Counters and times of a run.
#[derive(Debug, Default)]
pub struct Meters {
    /// Fault latencies.
    pub latency: Latency,
    /// Evicted pages that the pager itself wanted back, also in a detach and at a fork. They count
    /// when the core is asked for them: a few may not be filled then.
    pub brought: AtomicU64,
    /// Those of them that the core counts as pages that came with the page of a fault.
    pub brought_along: AtomicU64,
    /// Pages and bytes by codec number.
    pub codecs: [CodecCount; CODEC_IDS],
    /// Longest time that the core lock was held, ns.
    pub longest_hold: AtomicU64,
    /// The longest time that the monitor slept too long, ns.
    pub longest_delay: AtomicU64,
    /// Its longest sample, ns.
    pub longest_sample: AtomicU64,
    /// Processes that were killed for lack of room.
    pub killed: AtomicU64,
    /// Processes that were stopped for lack of room.
    pub stopped: AtomicU64,
    /// Times that load control held a process.
    pub held: AtomicU64,
    /// Times that a new process had to wait before its program ran.
    pub waited_at_start: AtomicU64,
    /// Processes that left because memory was short outside of the tree.
    pub left_for_others: AtomicU64,
    /// Ended processes whose rows the statistics have not kept.
    pub rows_left_out: AtomicU64,
}

/// Pages and bytes of one codec.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct CodecCount {
    pub pages: AtomicU64,
    pub in_bytes: AtomicU64,
    pub out_bytes: AtomicU64,
}
