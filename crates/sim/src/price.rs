//! What a simulation did, and what that costs on a device.
//!
//! The program waits for its faults: the hand-off, what is decompressed and copied for them, and
//! reads, one after the other. Everything else is done beside it, by the pager and by the device.
//! Each of the two takes its time as well; when one needs longer than the program with its waits,
//! reclaim cannot keep up, there is no room, and the program waits for the difference
//! ([`Price::stalled_ns`]). So a run takes as long as the slowest of the three, which is the least
//! that it can take.

use crate::cost::CostTable;
use crate::device::{Device, Transfers};
use std::collections::BTreeMap;

/// Pages by the number of the codec that had to do with them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Codings {
    /// Pages compressed, those that then were kept as they are with them.
    pub compressed: BTreeMap<u8, u64>,
    /// Pages decompressed.
    pub decompressed: BTreeMap<u8, u64>,
}

impl Codings {
    /// Counts pages compressed.
    pub fn compress(&mut self, codec: u8, pages: u64) {
        *self.compressed.entry(codec).or_default() += pages;
    }

    /// Counts pages decompressed.
    pub fn decompress(&mut self, codec: u8, pages: u64) {
        *self.decompressed.entry(codec).or_default() += pages;
    }

    fn cost_ns(&self, costs: &CostTable) -> u64 {
        let compress =
            self.compressed.iter().map(|(codec, pages)| pages.saturating_mul(costs.codec(*codec).compress_ns));
        let decompress =
            self.decompressed.iter().map(|(codec, pages)| pages.saturating_mul(costs.codec(*codec).decompress_ns));
        sum(compress.chain(decompress))
    }
}

/// Faults by where their page was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Nowhere yet: zeros.
    pub zero: u64,
    /// Nowhere: a repeated word.
    pub filled: u64,
    /// In staging.
    pub staged: u64,
    /// In the pool.
    pub pool: u64,
    /// In the swap tier.
    pub swap: u64,
    /// In its file.
    pub file: u64,
}

impl FaultCounts {
    /// All.
    pub fn total(&self) -> u64 {
        sum([self.zero, self.filled, self.staged, self.pool, self.swap, self.file])
    }
}

/// Operations that a simulation did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Faults.
    pub faults: FaultCounts,
    /// Pages that came along with a fault.
    pub around_pages: u64,
    /// Pages compressed and decompressed while a fault waited.
    pub waited: Codings,
    /// Pages compressed and decompressed while nobody waited.
    pub beside: Codings,
    /// Pages taken out of programs.
    pub evicted_pages: u64,
    /// Estimates of entropy.
    pub entropy_estimates: u64,
    /// Reads of the swap tier that a fault waited for.
    pub swap_reads: Transfers,
    /// Reads of files that a fault waited for. They are on the same device.
    pub file_reads: Transfers,
    /// Reads that nobody waited for, such as those of a log that makes room.
    pub beside_reads: Transfers,
    /// Writes.
    pub writes: Transfers,
}

/// What a simulation costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// What the program waited, ns: for faults, for their reads, and [`Price::stalled_ns`].
    pub program_ns: u64,
    /// Of this, what it waited because pager or device could not keep up, ns.
    pub stalled_ns: u64,
    /// What the pager worked while the program did not wait for it, ns.
    pub pager_ns: u64,
    /// Time of all reads, ns: one after the other those that faults waited for, the others as many
    /// at once as the device takes.
    pub device_read_ns: u64,
    /// Time of all writes, ns, as many at once as the device takes.
    pub device_write_ns: u64,
    /// Energy of the device beyond that of an idle one, nJ, if it is known.
    pub energy_nj: Option<u64>,
    /// Bytes written, in units of the device.
    pub written_bytes: u64,
    /// Days until what the device is rated for is written if it goes on like this, if it is rated
    /// and anything was written.
    pub days_to_rated_writes: Option<f64>,
}

impl Price {
    /// Time of all operations one after the other, ns: what a model without any overlap, such as
    /// that of Han et al. (their equation 1), takes for the cost. It leaves the stalls out.
    pub fn operations_ns(&self) -> u64 {
        sum([self.program_ns - self.stalled_ns, self.pager_ns, self.device_write_ns])
    }
}

/// What these operations cost, in a run of a program that takes `run_ns` when it waits for nothing.
pub fn price(counts: &Counts, costs: &CostTable, device: &Device, run_ns: u64) -> Price {
    let faults_ns = sum([
        counts.faults.total().saturating_mul(costs.fault_ns),
        counts.faults.zero.saturating_mul(costs.zero_ns),
        counts.faults.filled.saturating_mul(costs.fill_ns),
        copied(&counts.faults).saturating_mul(costs.copy_ns),
        counts.around_pages.saturating_mul(costs.around_ns),
        counts.waited.cost_ns(costs),
    ]);
    let pager_ns = sum([
        counts.evicted_pages.saturating_mul(costs.evict_ns()),
        counts.entropy_estimates.saturating_mul(costs.entropy_ns),
        counts.beside.cost_ns(costs),
    ]);
    let (waited, writes) = (both(&counts.swap_reads, &counts.file_reads), &counts.writes);
    let waited_ns = device.read_ns(&waited, 1);
    let device_write_ns = device.write_ns(writes, u64::MAX);
    let reads = both(&waited, &counts.beside_reads);
    // A device that takes several operations at once is not blocked by the one that a fault waits
    // for.
    let busy_ns = device.read_ns(&reads, u64::MAX).saturating_add(device_write_ns);
    let length_ns = sum([run_ns, faults_ns, waited_ns]);
    let stalled_ns = busy_ns.max(pager_ns).saturating_sub(length_ns);
    let written_bytes = writes.padded_bytes(device.unit_bytes);
    Price {
        program_ns: sum([faults_ns, waited_ns, stalled_ns]),
        stalled_ns,
        pager_ns,
        device_read_ns: waited_ns.saturating_add(device.read_ns(&counts.beside_reads, u64::MAX)),
        device_write_ns,
        energy_nj: device.energy_nj(&reads, writes),
        written_bytes,
        days_to_rated_writes: device.days_to_rated_writes(written_bytes, length_ns.saturating_add(stalled_ns)),
    }
}

/// Faults whose page was copied into place.
fn copied(faults: &FaultCounts) -> u64 {
    sum([faults.staged, faults.pool, faults.swap, faults.file])
}

fn both(one: &Transfers, other: &Transfers) -> Transfers {
    Transfers {
        operations: one.operations.saturating_add(other.operations),
        sequential: one.sequential.saturating_add(other.sequential),
        bytes: one.bytes.saturating_add(other.bytes),
    }
}

fn sum(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}
