//! Writes a file block by block. After each call the file is complete up to there.

use crate::{Head, BLOCK_HEAD, BLOCK_MAX, CALLS, END, HEAD_MAX, MAGIC, VERSION};
use std::io::{self, Write};
use zstd_safe::CCtx;

/// zstd level. The tables of zstd count towards the budget of the recorded run: those of level 3
/// took half a megabyte, for files less than 10 % smaller.
const LEVEL: i32 = 1;

/// Position of a block in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Begins {
    /// Number of its first call; for the end, number of the call after the last one.
    pub first: u64,
    /// Hash of all decisions before it.
    pub decided: u64,
    /// Time since the run began, ns.
    pub at_ns: u64,
}

/// Writes to a file or another sink.
pub struct Writer<W> {
    out: W,
    context: CCtx<'static>,
    stored: Vec<u8>,
    /// Bytes written so far.
    pub written: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the head.
    ///
    /// # Errors
    /// If no reader would take so long a head. Errors of `out`.
    pub fn new(mut out: W, head: &Head) -> io::Result<Writer<W>> {
        let text = serde_json::to_vec(head)?;
        if text.len() > HEAD_MAX as usize {
            let why = format!("its head has {} bytes, and {HEAD_MAX} are the most", text.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut bytes = Vec::with_capacity(text.len() + 20);
        bytes.extend(MAGIC);
        bytes.extend(u32::from(VERSION).to_le_bytes());
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text);
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        out.write_all(&bytes)?;
        Ok(Writer { out, context: CCtx::create(), stored: Vec::new(), written: bytes.len() as u64 })
    }

    /// Writes a block of `calls` calls; the encoder must have started anew with its first call.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn block(&mut self, begins: Begins, calls: u32, bytes: &[u8]) -> io::Result<()> {
        assert!(!bytes.is_empty() && bytes.len() <= BLOCK_MAX as usize, "a block of {} bytes", bytes.len());
        self.stored.clear();
        self.stored.reserve(zstd_safe::compress_bound(bytes.len()));
        self.context
            .compress(&mut self.stored, bytes, LEVEL)
            .map_err(|code| io::Error::other(zstd_safe::get_error_name(code)))?;
        let stored = std::mem::take(&mut self.stored);
        let answer = self.part(CALLS, begins, calls, bytes.len() as u32, &stored);
        self.stored = stored;
        answer
    }

    /// Writes the end, and returns `out`.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn end(mut self, begins: Begins) -> io::Result<W> {
        self.part(END, begins, 0, 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn part(&mut self, kind: u8, begins: Begins, calls: u32, raw: u32, stored: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(BLOCK_HEAD + stored.len() + 4);
        bytes.extend([kind, 0, 0, 0]);
        [stored.len() as u32, raw, calls].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        [begins.first, begins.decided, begins.at_ns].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        bytes.extend(stored);
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        self.written += bytes.len() as u64;
        // One write per part: a reader finds complete parts, except for one that is being written.
        self.out.write_all(&bytes)
    }
}
