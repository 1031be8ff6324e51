//! Comma-separated text. No value contains a comma, a quote or a newline, so nothing is quoted.

use crate::columns::Column;
use crate::row::{Row, Value};
use crate::Table;
use std::io::{self, BufWriter, Write};

pub struct Csv<W: Write> {
    out: BufWriter<W>,
    line: Vec<u8>,
}

impl<W: Write> Csv<W> {
    /// Writes the header line.
    pub fn new(out: W, columns: &[Column]) -> io::Result<Self> {
        let mut out = BufWriter::with_capacity(1 << 16, out);
        writeln!(out, "{}", columns.iter().map(|column| column.name).collect::<Vec<_>>().join(","))?;
        Ok(Self { out, line: Vec::new() })
    }
}

impl<W: Write> Table for Csv<W> {
    fn row(&mut self, row: &Row) -> io::Result<()> {
        self.line.clear();
        for (i, value) in row.values().enumerate() {
            if i > 0 {
                self.line.push(b',');
            }
            match value {
                Value::Nothing => {}
                Value::Number(number) => write!(self.line, "{number}")?,
                Value::Fraction(number) => write!(self.line, "{number}")?,
                Value::Name(text) | Value::Text(text) => self.line.extend(text.as_bytes()),
                Value::Flag(flag) => self.line.extend(if flag { &b"true"[..] } else { b"false" }),
            }
        }
        self.line.push(b'\n');
        self.out.write_all(&self.line)
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.out.flush()
    }
}
