//! Apache Parquet: rows are collected into row groups, in which each column is written separately.

use crate::columns::{Column, Type};
use crate::row::{Row, Value};
use crate::Table;
use memfit_trace::Head;
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type as Schema};
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

/// Most rows of a row group, which are in memory until it is written: some tens of megabytes and
/// the texts.
pub const GROUP_ROWS: usize = 1 << 17;
/// A row group is written once its texts have that many bytes. Those of one row can have 21 MB.
pub const GROUP_TEXT_BYTES: usize = 32 << 20;

/// The present values of a column.
enum Values {
    Numbers(Vec<i64>),
    Fractions(Vec<f64>),
    Texts(Vec<ByteArray>),
    Flags(Vec<bool>),
}

/// A column of the current row group.
struct Gathered {
    name: &'static str,
    values: Values,
    /// For each row 1 if it has a value, else 0; `None` for columns that are always present.
    levels: Option<Vec<i16>>,
}

impl Gathered {
    fn new(column: &Column) -> Gathered {
        let values = match column.of {
            Type::Number | Type::Near | Type::Bits => Values::Numbers(Vec::new()),
            Type::Fraction => Values::Fractions(Vec::new()),
            Type::Name | Type::Text => Values::Texts(Vec::new()),
            Type::Flag => Values::Flags(Vec::new()),
        };
        Gathered { name: column.name, values, levels: (!column.always).then(Vec::new) }
    }
}

/// A Parquet file with any columns.
pub struct Parquet<W: Write + Send> {
    file: SerializedFileWriter<W>,
    columns: Vec<Gathered>,
    rows: usize,
    /// Bytes of the texts of the current row group.
    text_bytes: usize,
    /// Names seen so far: all rows share their bytes.
    names: HashMap<&'static str, ByteArray>,
}

fn schema(of: &str, columns: &[Column]) -> Result<Schema, ParquetError> {
    let fields = columns.iter().map(|column| {
        let (physical, logical) = match column.of {
            Type::Number | Type::Near => (Physical::INT64, None),
            Type::Fraction => (Physical::DOUBLE, None),
            Type::Bits => (Physical::INT64, Some(LogicalType::integer(64, false))),
            Type::Name | Type::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Type::Flag => (Physical::BOOLEAN, None),
        };
        let repetition = if column.always { Repetition::REQUIRED } else { Repetition::OPTIONAL };
        let field = Schema::primitive_type_builder(column.name, physical);
        field.with_logical_type(logical).with_repetition(repetition).build().map(Arc::new)
    });
    Schema::group_type_builder(of).with_fields(fields.collect::<Result<Vec<_>, _>>()?).build()
}

impl<W: Write + Send> Parquet<W> {
    /// Begins a file. `of` names the kind of row; `about` is JSON metadata for the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn new(out: W, of: &str, columns: &[Column], about: String) -> io::Result<Self> {
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by(format!("memfit {}", memfit_trace::MEMFIT))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_key_value_metadata(Some(vec![KeyValue::new("memfit".into(), about)]));
        for column in columns.iter().filter(|column| column.of == Type::Near) {
            let path = ColumnPath::from(column.name);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
        let schema = schema(of, columns).map_err(plain)?;
        let file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build())).map_err(plain)?;
        let columns = columns.iter().map(Gathered::new).collect();
        Ok(Self { file, columns, rows: 0, text_bytes: 0, names: HashMap::new() })
    }

    /// Adds a row, with a value for each column.
    ///
    /// # Errors
    /// When the file cannot be written.
    ///
    /// # Panics
    /// If a value does not have the type of its column, or is missing.
    pub fn row<'a>(&mut self, values: impl Iterator<Item = Value<'a>>) -> io::Result<()> {
        let mut gathered = self.columns.iter_mut();
        for value in values {
            let Gathered { name, values, levels } = gathered.next().expect("as many values as columns");
            match levels {
                Some(levels) => levels.push((value != Value::Nothing).into()),
                None => assert!(value != Value::Nothing, "each row has its {name}"),
            }
            match (values, value) {
                (_, Value::Nothing) => {}
                // The cast keeps the pattern of bits; numbers are below 2^63.
                (Values::Numbers(values), Value::Number(number)) => values.push(number as i64),
                (Values::Fractions(values), Value::Fraction(number)) => values.push(number),
                (Values::Texts(values), Value::Name(name)) => {
                    values.push(self.names.entry(name).or_insert_with(|| ByteArray::from(name)).clone());
                }
                (Values::Texts(values), Value::Text(text)) => {
                    self.text_bytes += text.len();
                    values.push(ByteArray::from(text));
                }
                (Values::Flags(values), Value::Flag(flag)) => values.push(flag),
                (_, value) => unreachable!("{name} has another type than {value:?}"),
            }
        }
        assert!(gathered.next().is_none(), "as many values as columns");
        self.rows += 1;
        if self.rows == GROUP_ROWS || self.text_bytes >= GROUP_TEXT_BYTES {
            self.write_group().map_err(plain)?;
        }
        Ok(())
    }

    /// Writes the remaining rows and the end of the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        if self.rows > 0 {
            self.write_group().map_err(plain)?;
        }
        self.file.close().map(drop).map_err(plain)
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        for Gathered { values, levels, .. } in &mut self.columns {
            let known = levels.as_deref();
            match values {
                Values::Numbers(values) => write_column::<Int64Type, W>(&mut group, values, known)?,
                Values::Fractions(values) => write_column::<DoubleType, W>(&mut group, values, known)?,
                Values::Texts(values) => write_column::<ByteArrayType, W>(&mut group, values, known)?,
                Values::Flags(values) => write_column::<BoolType, W>(&mut group, values, known)?,
            }
            levels.iter_mut().for_each(Vec::clear);
        }
        group.close()?;
        (self.rows, self.text_bytes) = (0, 0);
        Ok(())
    }
}

/// A Parquet file with the rows of a recording.
pub struct Recorded<W: Write + Send>(Parquet<W>);

impl<W: Write + Send> Recorded<W> {
    /// Begins a file with the head of the recording as metadata. `what` names the kind of row.
    pub fn new(out: W, what: &str, columns: &[Column], head: &Head) -> io::Result<Self> {
        Ok(Self(Parquet::new(out, what, columns, serde_json::to_string(head)?)?))
    }
}

impl<W: Write + Send> Table for Recorded<W> {
    fn row(&mut self, row: &Row) -> io::Result<()> {
        self.0.row(row.values())
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        self.0.finish()
    }
}

fn write_column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &mut Vec<T::T>,
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.expect("as many columns as in the schema");
    column.typed::<T>().write_batch(values, levels, None)?;
    values.clear();
    column.close()
}

/// The error of the file, if the Parquet error wraps one.
fn plain(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(cause) => io::Error::other(cause),
        },
        error => io::Error::other(error),
    }
}
