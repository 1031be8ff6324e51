//! Tables for pandas, polars, DuckDB and other tools. A recorded run becomes a table with a row for
//! each call and a column for each kind of argument, or a table with a row for each page whose
//! contents were recorded. Other tables can be written by [`Parquet`].
//!
//! [`COLUMNS`] and [`CONTENTS_COLUMNS`] list the columns; docs/trace.md explains them. Memory is
//! bounded by a block of the recording and, for Parquet, a row group.
#![forbid(unsafe_code)]

mod columns;
mod contents;
mod csv;
mod group;
mod row;

pub use columns::{Column, Type, COLUMNS};
pub use contents::CONTENTS_COLUMNS;
pub use group::{Parquet, GROUP_ROWS, GROUP_TEXT_BYTES};
pub use row::Value;

use memfit_core::trace::{Damaged, Decoder, Item, Note};
use memfit_core::PAGE_BYTES;
use memfit_trace::{Block, ReadError, Reader};
use row::Row;
use std::fmt;
use std::io::{self, Read, Write};

/// File format of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Apache Parquet, compressed by zstd.
    Parquet,
    /// Comma-separated text, with the names of the columns in the first line.
    Csv,
}

/// What a row of the table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// A call.
    Calls,
    /// A page whose contents were recorded.
    Contents,
}

/// Result of an export.
#[derive(Debug)]
pub struct Exported {
    /// Number of rows.
    pub rows: u64,
    /// Where the recording was cut, if it was.
    pub cut: Option<ReadError>,
}

/// Why an export failed. The partial table is not usable.
#[derive(Debug)]
pub enum ExportError {
    /// The recording is damaged, or cannot be read.
    Read(ReadError),
    /// An unsupported page size, bytes.
    PageBytes(u32),
    /// A valid block whose bytes are not valid calls; its offset in bytes.
    Calls(u64, Damaged),
    /// The table cannot be written.
    Write(io::Error),
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExportError::Read(error) => error.fmt(f),
            ExportError::PageBytes(bytes) => {
                write!(f, "it has pages of {bytes} bytes, and this version knows {PAGE_BYTES}")
            }
            ExportError::Calls(offset, damaged) => write!(f, "the block at byte {offset} holds no calls: {damaged:?}"),
            ExportError::Write(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        ExportError::Write(error)
    }
}

/// A table that takes one row after the other.
trait Table {
    fn row(&mut self, row: &Row) -> io::Result<()>;
    /// Writes what is buffered.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// Writes all calls of a recording, or all contents, to `out`, up to the end or to where the
/// recording was cut.
///
/// # Errors
/// When the recording is damaged before its end, or the table cannot be written.
pub fn export<R: Read, W: Write + Send>(
    reader: &mut Reader<R>,
    of: Rows,
    format: Format,
    out: W,
) -> Result<Exported, ExportError> {
    if u64::from(reader.head().page_bytes) != PAGE_BYTES {
        return Err(ExportError::PageBytes(reader.head().page_bytes));
    }
    let (what, columns) = match of {
        Rows::Calls => ("call", &COLUMNS[..]),
        Rows::Contents => ("contents", &CONTENTS_COLUMNS[..]),
    };
    let mut table: Box<dyn Table + '_> = match format {
        Format::Parquet => Box::new(group::Recorded::new(out, what, columns, reader.head())?),
        Format::Csv => Box::new(csv::Csv::new(out, columns)?),
    };
    let (mut rows, mut row) = (0, Row::default());
    let cut = loop {
        let offset = reader.offset();
        match reader.block() {
            Ok(Some(Block::Calls { begins, calls, bytes })) => {
                let wrong = |damaged| ExportError::Calls(offset, damaged);
                let mut decoder = Decoder::new(bytes);
                let (mut number, end) = (begins.first, begins.first + u64::from(calls));
                while let Some(item) = decoder.item().map_err(wrong)? {
                    let here = match (&item, of) {
                        (Item::Call(asked), Rows::Calls) => {
                            row.fill(number, begins.at_ns, asked);
                            true
                        }
                        (Item::Note(Note::Contents(contents)), Rows::Contents) => {
                            row.fill_contents(number, begins.at_ns, contents);
                            true
                        }
                        _ => false,
                    };
                    if here {
                        table.row(&row)?;
                        rows += 1;
                    }
                    number += u64::from(matches!(item, Item::Call(_)));
                }
                if number != end {
                    return Err(ExportError::Calls(offset, if number < end { Damaged::Short } else { Damaged::Wrong }));
                }
            }
            Ok(Some(Block::End(_))) => {}
            Ok(None) => break None,
            Err(error) if error.is_cut() => break Some(error),
            Err(error) => return Err(ExportError::Read(error)),
        }
    };
    table.finish()?;
    Ok(Exported { rows, cut })
}
