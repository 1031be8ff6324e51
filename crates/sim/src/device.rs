//! Devices that hold a swap tier or files, and the cost of an operation.
//!
//! An operation takes a fixed time, which is different if it continues where the last one ended,
//! and a time for each byte. Up to [`Device::queue_depth`] fixed times pass at once; bytes are
//! transferred one after the other. docs/devices.md lists what this model leaves out.
//!
//! A device is a TOML file in `devices` and a line in [`DEVICES`].

use crate::fields::{find, Absent, Embedded, Key, Problem, TableError, Values};

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

fn keys() -> Vec<Key> {
    use Absent::{Empty, Means, Wrong};
    let mut keys = vec![
        Key::new("unit_bytes", 1, 1 << 30, Means(512), "smallest unit of transfer, bytes"),
        Key::new("queue_depth", 1, 1 << 16, Means(1), "operations that pass at once"),
    ];
    for section in ["read", "write"] {
        let mut add = |name: &str, max, absent, help| {
            keys.push(Key::new(&format!("{section}.{name}"), 0, max, absent, help));
        };
        add("random_ns", LONGEST_NS, Wrong, "fixed time of an operation, ns");
        add("sequential_ns", LONGEST_NS, Wrong, "fixed time of one that begins where the last one ended, ns");
        add("transfer_4k_ns", LONGEST_NS, Wrong, "time for each 4096 bytes, ns");
        add("operation_nj", 1 << 50, Empty, "energy of an operation that is not sequential, nJ");
        add("byte_pj", 1 << 50, Empty, "energy of a byte, pJ");
    }
    keys.push(Key::new("wear.rated_bytes", 1, 1 << 62, Empty, "bytes that may be written in its life"));
    keys.push(Key::new("wear.amplification_percent", 1, 100_000, Means(100), "bytes that wear it for 100 written"));
    keys
}

impl Device {
    /// Reads a device from TOML.
    ///
    /// # Errors
    /// What is wrong, where, and what is allowed.
    pub fn parse(text: &str) -> Result<Device, TableError> {
        let values = Values::read(text, &keys())?;
        let costs = |section: &str| Costs {
            random_ns: values.number(&format!("{section}.random_ns")),
            sequential_ns: values.number(&format!("{section}.sequential_ns")),
            transfer_4k_ns: values.number(&format!("{section}.transfer_4k_ns")),
        };
        let energy = |section: &str| {
            let operation_nj = values.optional(&format!("{section}.operation_nj"));
            let byte_pj = values.optional(&format!("{section}.byte_pj"));
            (operation_nj, byte_pj)
        };
        let energy = match (energy("read"), energy("write")) {
            ((None, None), (None, None)) => None,
            ((Some(operation_nj), Some(byte_pj)), (Some(write_nj), Some(write_pj))) => {
                let write = Energy { operation_nj: write_nj, byte_pj: write_pj };
                Some((Energy { operation_nj, byte_pj }, write))
            }
            _ => {
                let why = "energy takes `operation_nj` and `byte_pj` in both `read` and `write`, or none of them";
                return Err(TableError::of_all(Problem::Impossible { why: why.to_owned() }));
            }
        };
        Ok(Device {
            name: values.text("name"),
            summary: values.text("summary"),
            source: values.text("source"),
            unit_bytes: values.number("unit_bytes"),
            queue_depth: values.number("queue_depth"),
            read: costs("read"),
            write: costs("write"),
            energy,
            rated_bytes: values.optional("wear.rated_bytes"),
            amplification_percent: values.number("wear.amplification_percent"),
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
