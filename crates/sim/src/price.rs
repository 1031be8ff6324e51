//! Operations of a simulation, and their price on a device.
//!
//! The program waits for its faults: the hand-off, decompression, copies and reads, one after the
//! other. The pager and the device do everything else concurrently. If one of them needs longer
//! than the program with its waits, reclaim cannot keep up, and the program waits for the
//! difference ([`Price::stalled_ns`]). So a run takes as long as the slowest of the three. This is
//! a lower bound.

use crate::cost::CostTable;
use crate::device::{Device, Transfers};
use std::collections::BTreeMap;

/// Pages by codec number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Codings {
    /// Pages compressed, including those that were then stored raw.
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

/// Pages that faults bring in, by source. First reads of pages of files do not count: they cost the
/// same under every scheme.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// A new page of zeros.
    pub zero: u64,
    /// No stored bytes: a repeated word.
    pub filled: u64,
    /// A staging slot.
    pub staged: u64,
    /// The pool.
    pub pool: u64,
    /// The swap tier.
    pub swap: u64,
    /// The file of the page.
    pub file: u64,
}

impl FaultCounts {
    /// All pages.
    pub fn total(&self) -> u64 {
        sum([self.zero, self.filled, self.staged, self.pool, self.swap, self.file])
    }
}

/// Counts of operations in a simulation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Faults.
    pub faults: FaultCounts,
    /// Pages that came in beside a faulting page.
    pub around: FaultCounts,
    /// Pages compressed and decompressed while a fault waited.
    pub waited: Codings,
    /// Pages compressed and decompressed while no program waited.
    pub beside: Codings,
    /// Pages evicted.
    pub evicted_pages: u64,
    /// Estimates of entropy.
    pub entropy_estimates: u64,
    /// Reads of the swap tier that a fault waited for.
    pub swap_reads: Transfers,
    /// Reads of files that a fault waited for, on the same device.
    pub file_reads: Transfers,
    /// Reads that no fault waited for, such as those that clean a log.
    pub beside_reads: Transfers,
    /// Writes to the swap tier.
    pub writes: Transfers,
}

/// Price of a simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// Time that the program waited, ns: for faults, for their reads, and [`Price::stalled_ns`].
    pub program_ns: u64,
    /// Of this, waits because the pager or the device could not keep up, ns.
    pub stalled_ns: u64,
    /// Work of the pager for which the program did not wait, ns.
    pub pager_ns: u64,
    /// Time of all reads, ns. Those that faults waited for ran one after the other, the others as
    /// many at once as the device takes.
    pub device_read_ns: u64,
    /// Time of all writes, ns, as many at once as the device takes.
    pub device_write_ns: u64,
    /// Energy of the device beyond idle, nJ, if it is known.
    pub energy_nj: Option<u64>,
    /// Bytes written, each operation rounded up to the device's unit.
    pub written_bytes: u64,
    /// Days until the device's rated bytes are written at this rate. `None` if it has no rating or
    /// nothing was written.
    pub days_to_rated_writes: Option<f64>,
}

impl Price {
    /// Time of all operations one after the other, ns: the cost in a model without overlap, such as
    /// that of Han et al. (their equation 1). It excludes stalls.
    pub fn operations_ns(&self) -> u64 {
        sum([self.program_ns - self.stalled_ns, self.pager_ns, self.device_write_ns])
    }
}

/// Price of these operations in a run of a program that takes `run_ns` when it never waits.
pub fn price(counts: &Counts, costs: &CostTable, device: &Device, run_ns: u64) -> Price {
    let faults_ns = sum([
        counts.faults.total().saturating_mul(costs.fault_ns),
        placed_ns(&counts.faults, costs, costs.copy_ns),
        placed_ns(&counts.around, costs, costs.around_ns),
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
    // A device with a queue can serve others beside the operation that a fault waits for.
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

/// Time to put these pages into place, ns: those with bytes are copied.
fn placed_ns(pages: &FaultCounts, costs: &CostTable, copy_ns: u64) -> u64 {
    sum([
        pages.zero.saturating_mul(costs.zero_ns),
        pages.filled.saturating_mul(costs.fill_ns),
        sum([pages.staged, pages.pool, pages.swap, pages.file]).saturating_mul(copy_ns),
    ])
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
