//! The options of `memfit run` about the swap tier.

use crate::errors::Failure;
use crate::size_parsing::{self, human, Size};
use crate::swap::SWAP_BYTES_MIN;
use clap::{Args, ValueHint};
use std::path::{Path, PathBuf};

/// The swap tier of a run.
#[derive(Debug, Args)]
pub struct SwapArgs {
    /// Where pages go that RAM cannot hold even compressed: a directory on a disk, a file, or
    /// 'none'
    ///
    /// In a directory memfit makes a file that only it can see and that vanishes with it. A file or
    /// device of yours is overwritten, unless it holds data or is in use: then memfit refuses it.
    /// memfit looks for data with blkid and in the first and the last MiB only. Without this option
    /// memfit chooses a directory on a disk. Given several times, each place is used when those
    /// before it are full.
    #[arg(id = "swap", long = "swap", value_name = "DIR|FILE|none", value_hint = ValueHint::AnyPath)]
    pub places: Vec<PathBuf>,

    /// Overwrite the files and devices of --swap even if they hold data
    #[arg(long = "swap-overwrite", requires = "swap")]
    pub overwrite: bool,

    /// Largest size of the swap tier, of each place if there are several; 4M at least
    ///
    /// Written as the budget: a percentage is of the cgroup memory limit or RAM, not of the disk.
    /// By default half of the free space of the place's file system, shared by the places on it, or
    /// the space that a file has, if that is more; or a whole block device; at most 64 GiB. All
    /// places together have at most 256 GiB, or 32 GiB if the scheme's swap_format is raw-slots or
    /// compressed-batches.
    #[arg(long = "swap-size", value_name = "SIZE", value_parser = size_parsing::parse)]
    size: Option<Size>,

    /// Most bytes that this run writes to the swap tier in 24 hours, such as 20G: flash wears out
    ///
    /// An eighth of them may be written at once, the rest evenly over the day. When no more may be
    /// written, pages stay in RAM. If the programs do not fit then, --on-full says what happens.
    /// Each run counts by itself.
    #[arg(long = "swap-writes", value_name = "SIZE", value_parser = size_parsing::parse)]
    writes: Option<Size>,

    /// Keep the pool in RAM: the kernel must not write it to its own swap
    ///
    /// It takes CAP_IPC_LOCK, or RLIMIT_MEMLOCK (ulimit -l) larger than the budget.
    #[arg(long)]
    pub lock_pool: bool,

    /// What the swap device is rated to take in writes, such as 9T: the statistics tell how many
    /// days that lasts
    #[arg(long, value_name = "SIZE", value_parser = size_parsing::parse)]
    endurance: Option<Size>,
}

/// The least that may be written in a day: less is not worth a swap tier.
const LEAST_WRITES: u64 = 16 << 20;

impl SwapArgs {
    /// Largest size of each place, bytes; a percentage is of `base_bytes`.
    ///
    /// # Errors
    /// It is too small, or there shall be no swap tier.
    pub fn size(&self, base_bytes: u64) -> Result<Option<u64>, Failure> {
        let Some(size) = self.size else { return Ok(None) };
        self.is_not_none("--swap-size")?;
        match size.resolve(base_bytes) {
            0 => Err(Failure::usage("--swap-size 0: to run without a swap tier use --swap none")),
            bytes if bytes < SWAP_BYTES_MIN => Err(Failure::usage(format!(
                "--swap-size {size}: it is too small; the least is {}: use --swap-size 4M or more, or --swap none",
                human(SWAP_BYTES_MIN)
            ))),
            bytes => Ok(Some(bytes)),
        }
    }

    /// Whether the user gives the size.
    pub fn has_size(&self) -> bool {
        self.size.is_some()
    }

    /// Most bytes that may be written in 24 hours.
    ///
    /// # Errors
    /// It is no number of bytes, or too small, or there shall be no swap tier.
    pub fn writes(&self) -> Result<Option<u64>, Failure> {
        let Some(size) = self.writes else { return Ok(None) };
        self.is_not_none("--swap-writes")?;
        match size {
            Size::Bytes(bytes) if bytes >= LEAST_WRITES => Ok(Some(bytes)),
            size => Err(Failure::usage(format!(
                "--swap-writes {size}: it is the number of bytes in 24 hours, 16M or more; to write none use --swap none"
            ))),
        }
    }

    /// Bytes that the device is rated to take.
    ///
    /// # Errors
    /// It is no number of bytes.
    pub fn endurance(&self) -> Result<Option<u64>, Failure> {
        match self.endurance {
            None => Ok(None),
            Some(Size::Bytes(bytes)) if bytes > 0 => Ok(Some(bytes)),
            Some(size) => Err(Failure::usage(format!("--endurance {size}: it is a number of bytes, such as 9T"))),
        }
    }

    fn is_not_none(&self, option: &str) -> Result<(), Failure> {
        match self.places.iter().any(|path| path == Path::new("none")) {
            true => Err(Failure::usage(format!("{option} has no meaning with --swap none; leave one of them out"))),
            false => Ok(()),
        }
    }
}
