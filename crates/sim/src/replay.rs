//! The same calls to a core of the same scheme: it must decide the same.

use memfit_core::trace::{Damaged, Decoder};
use memfit_core::{Core, Counters};
use memfit_trace::{Begins, Block, HeadError, ReadError, Reader, MEMFIT};
use std::fmt;
use std::io::Read;

/// What came of a replay.
#[derive(Debug)]
pub struct Replay {
    /// Calls that were done again.
    pub calls: u64,
    /// Those up to which all decisions were the same: all of them, but for the last block of a
    /// recording that was cut.
    pub compared: u64,
    /// Time of the run that they took, ns; that of the last block's beginning if it was cut.
    pub run_ns: u64,
    /// Counts of the replayed core.
    pub counters: Counters,
    /// Where and why the recording ends before its end.
    pub cut: Option<ReadError>,
}

/// A recording that cannot be replayed.
#[derive(Debug)]
pub enum ReplayError {
    /// Another version of memfit recorded it, this one: it may decide otherwise, or hold calls for
    /// impossible.
    Version(String),
    /// No core can be made for it.
    Head(HeadError),
    /// Calls that none are, in a block that is whole; its offset in bytes.
    Calls(u64, Damaged),
    /// The core has decided otherwise than in the run, between these two calls.
    Diverged {
        /// Of the last call up to which all was the same.
        after: u64,
        /// Of the first one before which it was not.
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
            ReplayError::Calls(offset, damaged) => write!(f, "the block at byte {offset} holds no calls: {damaged:?}"),
            ReplayError::Diverged { after, before } => write!(
                f,
                "the replay decides otherwise than the run, between calls {after} and {before}: it was recorded by another build of \
                 memfit {MEMFIT}, or this is a bug"
            ),
        }
    }
}

/// Replays a recording up to its end, or to where it was cut.
///
/// # Errors
/// When it cannot be replayed, or is not as it was.
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
