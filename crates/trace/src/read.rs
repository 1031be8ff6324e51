//! Reads a file block by block, up to its end or to damage.

use crate::write::Begins;
use crate::{Head, BLOCK_HEAD, BLOCK_MAX, CALLS, END, HEAD_MAX, MAGIC, VERSION};
use std::fmt;
use std::io::{self, Read};
use zstd_safe::DCtx;

/// A part of a file after its head.
#[derive(Debug, PartialEq, Eq)]
pub enum Block<'a> {
    /// Calls, for [`memfit_core::trace::Decoder`].
    Calls {
        /// Its position in the run.
        begins: Begins,
        /// Number of calls.
        calls: u32,
        /// The encoded calls.
        bytes: &'a [u8],
    },
    /// The end of a run that was recorded completely.
    End(Begins),
}

/// What is wrong with a file.
#[derive(Debug)]
pub enum Reason {
    /// The file is empty.
    Empty,
    /// The file does not begin like a recorded run.
    NoTrace,
    /// A version of the format that this version does not read.
    Version(u32),
    /// The file is cut.
    Truncated,
    /// A checksum does not match, or a value is impossible.
    Damaged,
    /// Bytes follow the end.
    Longer,
    /// The system failed to read it.
    Io(io::Error),
}

/// Why a file cannot be read, and where.
#[derive(Debug)]
pub struct ReadError {
    /// Offset of the part that cannot be read, bytes.
    pub offset: u64,
    /// The reason.
    pub reason: Reason,
}

impl ReadError {
    /// Whether the file is cut: what comes before is good. Otherwise the file is damaged, or cannot
    /// be read.
    pub fn is_cut(&self) -> bool {
        matches!(self.reason, Reason::Truncated)
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::Empty => return f.write_str("the file is empty"),
            // The head is read as a whole, and blocks follow it.
            Reason::Truncated if self.offset == 0 => {
                return f.write_str("the file is cut within its head, and has nothing of the run")
            }
            Reason::NoTrace => return f.write_str("this is no recorded run: memfit run --record makes one"),
            Reason::Version(version) => {
                return write!(f, "version {version} of the format, and this memfit reads {VERSION}")
            }
            Reason::Truncated => f.write_str("the file is cut"),
            Reason::Damaged => f.write_str("the file is damaged"),
            Reason::Longer => f.write_str("there is more behind the end of the run"),
            Reason::Io(error) => write!(f, "{error}"),
        }?;
        write!(f, ", at byte {}", self.offset)
    }
}

/// Reads a file or another source of bytes.
pub struct Reader<R> {
    from: R,
    /// Offset of the next part, bytes.
    offset: u64,
    head: Head,
    context: DCtx<'static>,
    stored: Vec<u8>,
    raw: Vec<u8>,
    ended: bool,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Appends up to `more` bytes; returns how many.
fn take(from: &mut impl Read, bytes: &mut Vec<u8>, more: usize) -> io::Result<usize> {
    from.by_ref().take(more as u64).read_to_end(bytes)
}

impl<R: Read> Reader<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// When the head is missing or damaged.
    pub fn new(mut from: R) -> Result<Reader<R>, ReadError> {
        let wrong = |reason| ReadError { offset: 0, reason };
        let mut bytes = Vec::new();
        let mut more = |bytes: &mut Vec<u8>, count: usize| match take(&mut from, bytes, count) {
            Ok(read) if read == count => Ok(()),
            Ok(_) if bytes.is_empty() => Err(wrong(Reason::Empty)),
            Ok(_) if !bytes.starts_with(&MAGIC[..bytes.len().min(MAGIC.len())]) => Err(wrong(Reason::NoTrace)),
            Ok(_) => Err(wrong(Reason::Truncated)),
            Err(error) => Err(wrong(Reason::Io(error))),
        };
        more(&mut bytes, 16)?;
        if bytes[..8] != MAGIC {
            return Err(wrong(Reason::NoTrace));
        }
        let (version, text) = (u32_at(&bytes, 8), u32_at(&bytes, 12));
        if version != u32::from(VERSION) {
            return Err(wrong(Reason::Version(version)));
        }
        if text > HEAD_MAX {
            return Err(wrong(Reason::Damaged));
        }
        more(&mut bytes, text as usize + 4)?;
        let (checked, crc) = bytes.split_at(bytes.len() - 4);
        let head = serde_json::from_slice::<Head>(&checked[16..]);
        let (true, Ok(mut head)) = (crc32fast::hash(checked) == u32_at(crc, 0), head) else {
            return Err(wrong(Reason::Damaged));
        };
        // It is printed: somebody else's recording must not control the terminal.
        head.memfit = head.memfit.replace(memfit_wire::is_unprintable, " ");
        let offset = bytes.len() as u64;
        let context = DCtx::create();
        Ok(Reader { from, offset, head, context, stored: Vec::new(), raw: Vec::new(), ended: false })
    }

    /// The head of the recording.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Offset of the next part, bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next part; `None` after the end.
    ///
    /// # Errors
    /// When the part is cut or damaged; all parts before it are good.
    pub fn block(&mut self) -> Result<Option<Block<'_>>, ReadError> {
        let offset = self.offset;
        let wrong = |reason| ReadError { offset, reason };
        self.stored.clear();
        let read = take(&mut self.from, &mut self.stored, BLOCK_HEAD).map_err(|error| wrong(Reason::Io(error)))?;
        match (self.ended, read) {
            (true, 0) => return Ok(None),
            (true, _) => return Err(wrong(Reason::Longer)),
            (false, BLOCK_HEAD) => {}
            (false, _) => return Err(wrong(Reason::Truncated)),
        }
        let part = &self.stored;
        let (kind, length, raw, calls) = (part[0], u32_at(part, 4), u32_at(part, 8), u32_at(part, 12));
        let begins = Begins { first: u64_at(part, 16), decided: u64_at(part, 24), at_ns: u64_at(part, 32) };
        // Each call has at least one byte.
        let possible = matches!((kind, length, raw), (CALLS, 1.., 1..=BLOCK_MAX) | (END, 0, 0)) && calls <= raw;
        if !possible || length as usize > zstd_safe::compress_bound(BLOCK_MAX as usize) {
            return Err(wrong(Reason::Damaged));
        }
        let rest = length as usize + 4;
        let read = take(&mut self.from, &mut self.stored, rest).map_err(|error| wrong(Reason::Io(error)))?;
        if read < rest {
            return Err(wrong(Reason::Truncated));
        }
        let (checked, crc) = self.stored.split_at(BLOCK_HEAD + length as usize);
        if crc32fast::hash(checked) != u32_at(crc, 0) {
            return Err(wrong(Reason::Damaged));
        }
        self.offset += self.stored.len() as u64;
        if kind == END {
            self.ended = true;
            return Ok(Some(Block::End(begins)));
        }
        self.raw.clear();
        self.raw.reserve(raw as usize);
        match self.context.decompress(&mut self.raw, &checked[BLOCK_HEAD..]) {
            Ok(length) if length == raw as usize => {}
            _ => return Err(wrong(Reason::Damaged)),
        }
        Ok(Some(Block::Calls { begins, calls, bytes: &self.raw }))
    }
}
