//! Replays recorded core calls on a core of the same scheme: it must decide the same.

use memfit_core::trace::{Damaged, Decoder};
use memfit_core::{Core, Counters};
use memfit_trace::{Begins, Block, HeadError, ReadError, Reader, MEMFIT};
use std::fmt;
use std::io::Read;

/// Result of a replay.
#[derive(Debug)]
pub struct Replay {
    /// Calls replayed.
    pub calls: u64,
    /// Number of the last call up to which all decisions were compared equal. It is less than
    /// `calls`, by the last whole block, only if the recording was cut or is damaged.
    pub compared: u64,
    /// Time of the run up to its end, ns; if it was cut, up to the beginning of its last block.
    pub run_ns: u64,
    /// Counts of the replayed core.
    pub counters: Counters,
    /// Where and why the recording breaks off.
    pub cut: Option<ReadError>,
}

/// Why a recording cannot be replayed.
#[derive(Debug)]
pub enum ReplayError {
    /// This other version of memfit recorded it, and may decide differently or make calls that are
    /// invalid here.
    Version(String),
    /// No core can be made from its head.
    Head(HeadError),
    /// It is damaged, or the system failed to read it.
    Read(ReadError),
    /// A complete block holds invalid calls; offset of the block in bytes.
    Calls(u64, Damaged),
    /// Between these two calls the core decided differently from the run.
    Diverged {
        /// Number of the last call up to which the decisions were the same.
        after: u64,
        /// Number of the first call before which they differed.
        before: u64,
    },
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Version(other) => write!(
                f,
                "it was recorded by memfit {other}, and this is memfit {MEMFIT}: only the same version decides the same again"
            ),
            ReplayError::Head(error) => error.fmt(f),
            ReplayError::Read(error) => error.fmt(f),
            ReplayError::Calls(offset, damaged) => write!(f, "the block at byte {offset} holds no calls: {damaged:?}"),
            ReplayError::Diverged { after, before } => write!(
                f,
                "the replay decides otherwise than the run, between calls {after} and {before}: it was recorded by another build of \
                 memfit {MEMFIT}, or this is a bug"
            ),
        }
    }
}

/// Replays a recording up to its end, or up to where it was cut.
///
/// # Errors
/// If it cannot be replayed, or if the core decides differently.
pub fn replay<R: Read>(reader: &mut Reader<R>) -> Result<Replay, ReplayError> {
    if reader.head().memfit != MEMFIT {
        return Err(ReplayError::Version(reader.head().memfit.clone()));
    }
    let mut core = Core::new(reader.head().tunables().map_err(ReplayError::Head)?);
    core.hash_decisions();
    let (mut same, mut run_ns) = (0, 0);
    let cut = loop {
        let offset = reader.offset();
        match reader.block() {
            Ok(None) => break None,
            Err(error) => break Some(error),
            Ok(Some(block)) => {
                let begins = begins(&block);
                if (core.number() + 1, core.decided()) != (begins.first, begins.decided) {
                    return Err(ReplayError::Diverged { after: same, before: begins.first });
                }
                (same, run_ns) = (core.number(), begins.at_ns);
                if let Block::Calls { bytes, calls, .. } = block {
                    let wrong = |damaged| ReplayError::Calls(offset, damaged);
                    let mut decoder = Decoder::new(bytes);
                    for _ in 0..calls {
                        let asked = decoder.call().map_err(wrong)?.ok_or(wrong(Damaged::Short))?;
                        core.replay(&asked);
                    }
                }
            }
        }
    };
    Ok(Replay { calls: core.number(), compared: same, run_ns, counters: core.counters().clone(), cut })
}

pub(crate) fn begins(block: &Block<'_>) -> Begins {
    match block {
        Block::Calls { begins, .. } | Block::End(begins) => *begins,
    }
}
