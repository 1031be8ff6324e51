//! Devices that hold a swap tier or files, and the cost of an operation.
//!
//! An operation takes a fixed time, which is different if it continues where the last one ended,
//! and a time for each byte. Up to [`Device::queue_depth`] fixed times pass at once; bytes are
//! transferred one after the other. docs/devices.md lists what this model leaves out.
//!
//! A device is a TOML file in `devices` and a line in [`DEVICES`].

use crate::table_file::{self, find, text, Embedded, TableError, Whole};
use serde::Deserialize;

/// Number of bytes to which [`Costs::transfer_4k_ns`] refers.
pub const TRANSFER_BYTES: u64 = 4096;

macro_rules! embedded {
    ($folder:literal, $($name:literal)+) => {
        &[$(Embedded { name: $name, text: include_str!(concat!("../", $folder, "/", $name, ".toml")) }),+]
    };
}
pub(crate) use embedded;

/// Every built-in device.
pub static DEVICES: &[Embedded] = embedded!("devices",
    "hdd-1999"
    "hdd-2005"
    "sd-a1"
    "emmc-ezswap"
    "emmc-han"
    "emmc-5.1"
    "ufs-3.1"
    "ssd-sata"
    "ssd-nvme"
    "zram-han"
);

/// Costs of operations in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// Fixed time of a random operation, ns.
    pub random_ns: u64,
    /// Fixed time of an operation that begins where the last one ended, ns.
    pub sequential_ns: u64,
    /// Time for 4096 bytes, ns. With this unit the rate in a data sheet fits a whole number: 4096
    /// ns are 1 GB/s.
    pub transfer_4k_ns: u64,
}

/// Energy of operations in one direction beyond that of the idle device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Energy {
    /// Energy of a random operation, nJ.
    pub operation_nj: u64,
    /// Energy of a byte, pJ.
    pub byte_pj: u64,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Name on the command line.
    pub name: String,
    /// Description in one line.
    pub summary: String,
    /// Origin of the numbers.
    pub source: String,
    /// Smallest unit of transfer, bytes. A smaller operation costs as much as one unit.
    pub unit_bytes: u64,
    /// Operations whose fixed times pass at once, if no one waits for each of them.
    pub queue_depth: u64,
    /// Costs of reads.
    pub read: Costs,
    /// Costs of writes.
    pub write: Costs,
    /// Energy of reads and of writes, if it is known.
    pub energy: Option<(Energy, Energy)>,
    /// Bytes that may be written over its life; `None` if it does not wear.
    pub rated_bytes: Option<u64>,
    /// Bytes of wear for each 100 bytes written, beyond what the rating assumes.
    pub amplification_percent: u64,
}

/// An operation of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// First byte.
    pub at: u64,
    /// Bytes.
    pub bytes: u64,
    /// Whether it writes.
    pub write: bool,
}

/// Operations in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Number of operations.
    pub operations: u64,
    /// Of these, operations that began where the last one ended.
    pub sequential: u64,
    /// Bytes of all operations.
    pub bytes: u64,
}

impl Transfers {
    /// Counts an operation.
    pub fn add(&mut self, bytes: u64, sequential: bool) {
        self.operations += 1;
        self.sequential += u64::from(sequential);
        self.bytes += bytes;
    }

    /// All counts times `factor`.
    #[must_use]
    pub fn times(&self, factor: f64) -> Transfers {
        let more = |n: u64| (n as f64 * factor).round() as u64;
        Transfers { operations: more(self.operations), sequential: more(self.sequential), bytes: more(self.bytes) }
    }

    /// Operations that are not sequential.
    pub fn random(&self) -> u64 {
        self.operations.saturating_sub(self.sequential)
    }

    /// Bytes transferred in units of a device. Exact if each operation is smaller than a unit, or
    /// if all are whole units.
    pub fn padded_bytes(&self, unit_bytes: u64) -> u64 {
        self.bytes.max(self.operations.saturating_mul(unit_bytes))
    }
}

/// One day.
const LONGEST_NS: u64 = 86_400_000_000_000;

type Ns = Whole<0, LONGEST_NS>;
type Joules = Whole<0, { 1 << 50 }>;

/// A device as its file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(deserialize_with = "text")]
    name: String,
    #[serde(deserialize_with = "text")]
    summary: String,
    #[serde(deserialize_with = "text")]
    source: String,
    unit_bytes: Option<Whole<1, { 1 << 30 }>>,
    queue_depth: Option<Whole<1, { 1 << 16 }>>,
    read: Direction,
    write: Direction,
    #[serde(default)]
    wear: Wear,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct Direction {
    random_ns: Ns,
    sequential_ns: Ns,
    transfer_4k_ns: Ns,
    operation_nj: Option<Joules>,
    byte_pj: Option<Joules>,
}

impl Direction {
    fn costs(&self) -> Costs {
        let Direction { random_ns, sequential_ns, transfer_4k_ns, .. } = self;
        Costs { random_ns: random_ns.0, sequential_ns: sequential_ns.0, transfer_4k_ns: transfer_4k_ns.0 }
    }

    fn energy(&self) -> Option<Energy> {
        Some(Energy { operation_nj: self.operation_nj?.0, byte_pj: self.byte_pj?.0 })
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct Wear {
    rated_bytes: Option<Whole<1, { 1 << 62 }>>,
    amplification_percent: Option<Whole<1, 100_000>>,
}

impl Device {
    /// Reads a device from TOML.
    ///
    /// # Errors
    /// What is wrong, where, and what is allowed.
    pub fn parse(text: &str) -> Result<Device, TableError> {
        let File { name, summary, source, unit_bytes, queue_depth, read, write, wear } = table_file::read(text)?;
        let energy = read.energy().zip(write.energy());
        let given = [read.operation_nj, read.byte_pj, write.operation_nj, write.byte_pj];
        if energy.is_none() && given.iter().any(Option::is_some) {
            let why = "energy takes `operation_nj` and `byte_pj` in both `read` and `write`, or none of them";
            return Err(TableError(why.into()));
        }
        Ok(Device {
            name,
            summary,
            source,
            unit_bytes: unit_bytes.map_or(512, |bytes| bytes.0),
            queue_depth: queue_depth.map_or(1, |depth| depth.0),
            read: read.costs(),
            write: write.costs(),
            energy,
            rated_bytes: wear.rated_bytes.map(|bytes| bytes.0),
            amplification_percent: wear.amplification_percent.map_or(100, |percent| percent.0),
        })
    }

    /// The device of this name, or of the file at this path. A path contains a `/` or ends in
    /// `.toml`.
    ///
    /// # Errors
    /// If no device has the name, with the names that exist; if the file cannot be read; and the
    /// errors of [`Device::parse`].
    pub fn find(name_or_path: &str) -> Result<Device, TableError> {
        find("device", name_or_path, DEVICES, Device::parse)
    }

    /// The same device with all times multiplied by `factor`.
    #[must_use]
    pub fn times(&self, factor: f64) -> Device {
        let more = |ns: u64| (ns as f64 * factor) as u64;
        let slower = |costs: &Costs| Costs {
            random_ns: more(costs.random_ns),
            sequential_ns: more(costs.sequential_ns),
            transfer_4k_ns: more(costs.transfer_4k_ns),
        };
        Device { read: slower(&self.read), write: slower(&self.write), ..self.clone() }
    }

    /// Time of reads, ns. `at_once` of them overlap, as far as the device allows.
    pub fn read_ns(&self, reads: &Transfers, at_once: u64) -> u64 {
        self.time_ns(&self.read, reads, at_once)
    }

    /// Time of writes, ns. `at_once` of them overlap, as far as the device allows.
    pub fn write_ns(&self, writes: &Transfers, at_once: u64) -> u64 {
        self.time_ns(&self.write, writes, at_once)
    }

    fn time_ns(&self, costs: &Costs, transfers: &Transfers, at_once: u64) -> u64 {
        let fixed = u128::from(transfers.random()) * u128::from(costs.random_ns)
            + u128::from(transfers.sequential) * u128::from(costs.sequential_ns);
        let bytes = u128::from(transfers.padded_bytes(self.unit_bytes));
        let transfer = bytes * u128::from(costs.transfer_4k_ns) / u128::from(TRANSFER_BYTES);
        let all = fixed / u128::from(at_once.clamp(1, self.queue_depth)) + transfer;
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// Energy of these reads and writes beyond that of the idle device, nJ, if it is known.
    pub fn energy_nj(&self, reads: &Transfers, writes: &Transfers) -> Option<u64> {
        let (read, write) = self.energy?;
        let of = |energy: Energy, transfers: &Transfers| {
            let bytes = u128::from(transfers.padded_bytes(self.unit_bytes)) * u128::from(energy.byte_pj) / 1000;
            u128::from(transfers.random()) * u128::from(energy.operation_nj) + bytes
        };
        Some(u64::try_from(of(read, reads) + of(write, writes)).unwrap_or(u64::MAX))
    }

    /// Days until the rated bytes are written at this rate. `None` if the device has no rating or
    /// nothing was written.
    pub fn days_to_rated_writes(&self, written_bytes: u64, in_ns: u64) -> Option<f64> {
        const DAY_NS: f64 = 86_400e9;
        let rated = self.rated_bytes? as f64;
        let worn = written_bytes as f64 * self.amplification_percent as f64 / 100.0;
        (written_bytes > 0).then(|| rated / worn * (in_ns as f64 / DAY_NS))
    }
}
