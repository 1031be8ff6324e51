//! Apache Parquet: rows are gathered into groups, of which each column is written on its own.

use crate::columns::{Column, Type};
use crate::row::{Row, Value};
use crate::Table;
use memfit_trace::Head;
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type as Schema};
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

/// Rows that are written together, and kept in memory until then: some tens of megabytes.
pub const GROUP_ROWS: usize = 1 << 17;

/// Values of a column that its rows have.
enum Values {
    Numbers(Vec<i64>),
    Texts(Vec<ByteArray>),
    Flags(Vec<bool>),
}

/// A column of the group.
struct Gathered {
    values: Values,
    /// For each row whether it has a value (1, else 0); empty for columns that each row has.
    levels: Vec<i16>,
}

pub struct Parquet<W: Write + Send> {
    file: SerializedFileWriter<W>,
    about: &'static [Column],
    columns: Vec<Gathered>,
    rows: usize,
    /// Names that were seen: all rows share their bytes.
    names: HashMap<&'static str, ByteArray>,
}

impl<W: Write + Send> Parquet<W> {
    /// Begins a file; what the run was goes with it. A row is a `what`.
    pub fn new(out: W, what: &str, columns: &'static [Column], head: &Head) -> io::Result<Self> {
        let fields = columns.iter().map(|column| {
            let (physical, logical) = match column.of {
                Type::Number => (Physical::INT64, None),
                Type::Bits => (Physical::INT64, Some(LogicalType::integer(64, false))),
                Type::Name | Type::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
                Type::Flag => (Physical::BOOLEAN, None),
            };
            let repetition = if column.always { Repetition::REQUIRED } else { Repetition::OPTIONAL };
            let field = Schema::primitive_type_builder(column.name, physical);
            field.with_logical_type(logical).with_repetition(repetition).build().map(Arc::new)
        });
        let fields = fields.collect::<Result<Vec<_>, _>>().map_err(plain)?;
        let schema = Schema::group_type_builder(what).with_fields(fields).build().map_err(plain)?;
        let about = serde_json::to_string(head)?;
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by(format!("memfit {}", memfit_trace::MEMFIT))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_key_value_metadata(Some(vec![KeyValue::new("memfit".into(), about)]));
        // Few values of these come twice, and most are near the one before.
        let near = ["number", "time_ns", "page", "to_page", "mapping_page", "object", "tick_ms", "unit", "from_unit"];
        for name in near.into_iter().filter(|name| columns.iter().any(|column| column.name == *name)) {
            let path = ColumnPath::from(name);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
        let file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build())).map_err(plain)?;
        let gathered = columns.iter().map(|column| Gathered {
            values: match column.of {
                Type::Number | Type::Bits => Values::Numbers(Vec::new()),
                Type::Name | Type::Text => Values::Texts(Vec::new()),
                Type::Flag => Values::Flags(Vec::new()),
            },
            levels: Vec::new(),
        });
        Ok(Self { file, about: columns, columns: gathered.collect(), rows: 0, names: HashMap::new() })
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        for (column, gathered) in self.about.iter().zip(&mut self.columns) {
            let levels = (!column.always).then_some(&gathered.levels[..]);
            match &mut gathered.values {
                Values::Numbers(values) => write_column::<Int64Type, W>(&mut group, values, levels)?,
                Values::Texts(values) => write_column::<ByteArrayType, W>(&mut group, values, levels)?,
                Values::Flags(values) => write_column::<BoolType, W>(&mut group, values, levels)?,
            }
            gathered.levels.clear();
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }
}

impl<W: Write + Send> Table for Parquet<W> {
    fn row(&mut self, row: &Row) -> io::Result<()> {
        for ((column, gathered), value) in self.about.iter().zip(&mut self.columns).zip(&row.values) {
            if !column.always {
                gathered.levels.push((*value != Value::Nothing).into());
            }
            match (&mut gathered.values, *value) {
                (_, Value::Nothing) => {}
                // Bits keep their pattern; numbers are small.
                (Values::Numbers(values), Value::Number(number)) => values.push(number as i64),
                (Values::Texts(values), Value::Name(name)) => {
                    values.push(self.names.entry(name).or_insert_with(|| ByteArray::from(name)).clone());
                }
                (Values::Texts(values), Value::Text) => values.push(ByteArray::from(&*row.text)),
                (Values::Flags(values), Value::Flag(flag)) => values.push(flag),
                (_, value) => unreachable!("{} has another type than {value:?}", column.name),
            }
        }
        self.rows += 1;
        if self.rows == GROUP_ROWS {
            self.write_group().map_err(plain)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        if self.rows > 0 {
            self.write_group().map_err(plain)?;
        }
        self.file.close().map(drop).map_err(plain)
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

/// What was wrong with the file, if that was it.
fn plain(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(cause) => io::Error::other(cause),
        },
        error => io::Error::other(error),
    }
}
