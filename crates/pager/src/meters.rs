//! What all threads of the pager count and measure; [`crate::stats`] makes statistics of it.

use crate::stats::Latency;
use memfit_codec::CODEC_IDS;
use std::sync::atomic::AtomicU64;

/// Counters and times of a run.
#[derive(Debug, Default)]
pub struct Meters {
    /// Fault latencies.
    pub latency: Latency,
    /// Pages and bytes by codec number.
    pub codecs: [CodecCount; CODEC_IDS],
    /// Longest time that the core lock was held, ns.
    pub longest_hold: AtomicU64,
    /// The longest time that the monitor slept too long, and the longest sample, ns.
    pub longest_delay: AtomicU64,
    pub longest_sample: AtomicU64,
}

/// Pages and bytes of one codec.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct CodecCount {
    pub pages: AtomicU64,
    pub in_bytes: AtomicU64,
    pub out_bytes: AtomicU64,
}
