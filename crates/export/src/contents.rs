//! Rows of recorded page contents.

use crate::columns::{always, maybe, Column, Type};
use crate::row::{Row, Value};
use memfit_core::trace::{Contents, Whose};

/// Number of columns before those of the codecs.
const FIRST: usize = 9;

macro_rules! columns {
    ($($name:literal $codec:literal to $last:literal;)*) => {
        /// All columns of the table of contents, in order.
        pub const CONTENTS_COLUMNS: &[Column] = &[
            always("number", Type::Near),
            always("time_ns", Type::Near),
            maybe("process", Type::Number),
            maybe("page", Type::Near),
            maybe("object", Type::Near),
            maybe("calls_since", Type::Number),
            always("hash", Type::Bits),
            always("entropy", Type::Number),
            maybe("word", Type::Bits),
            $(maybe($name, Type::Number),)*
        ];
        /// First and last number of each codec, in the order of the columns: the variants of a
        /// codec with different dictionaries share a column.
        const CODECS: &[[u8; 2]] = &[$([$codec, $last],)*];
    };
}

columns! {
    "lz4" 1 to 1;
    "lz4hc" 8 to 8;
    "lzo" 9 to 9;
    "lzrw1" 13 to 13;
    "deflate" 10 to 10;
    "zstd" 2 to 2;
    "zstd_fast" 4 to 4;
    "zstd_trained" 5 to 7;
    "zstd_strong" 14 to 14;
    "zstd_strong_trained" 15 to 17;
    "word_mask" 3 to 3;
    "wkdm" 11 to 11;
    "wk4x4" 12 to 12;
}

impl Row {
    /// Turns this into the row of a note before call `number`.
    pub fn fill_contents(&mut self, number: u64, time_ns: u64, contents: &Contents) {
        let mut values = [Value::Nothing; FIRST];
        values[0] = Value::Number(number);
        values[1] = Value::Number(time_ns);
        match contents.whose {
            Whose::Object(object) => values[4] = Value::Number(object.0.into()),
            Whose::Page { proc, page, calls } => {
                values[2] = Value::Number(proc.0.into());
                values[3] = Value::Number(page.0);
                values[5] = Value::Number(calls);
            }
        }
        values[6] = Value::Number(contents.hash);
        values[7] = Value::Number(contents.entropy.into());
        if let Some(word) = contents.word {
            values[8] = Value::Number(word);
        }
        self.has_list = false;
        self.values.clear();
        self.values.extend(values);
        self.values.extend(CODECS.iter().map(|&[first, last]| {
            let len = (first..=last).rev().map(|codec| contents.lens[usize::from(codec)]).find(|&len| len > 0);
            len.map_or(Value::Nothing, |len| Value::Number(len.into()))
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_codec::{CodecId, CODECS as ALL, CODEC_IDS};

    #[test]
    fn each_codec_has_its_column() {
        let columns: Vec<String> =
            CONTENTS_COLUMNS[FIRST..].iter().map(|column| column.name.replace('_', "-")).collect();
        assert_eq!(columns, ALL.iter().map(|entry| entry.name).collect::<Vec<_>>());
        for (name, &[first, last]) in columns.iter().zip(CODECS) {
            assert!((first..=last).all(|codec| CodecId(codec).name() == Some(name)), "{name}");
        }
        let numbers: usize = CODECS.iter().map(|[first, last]| usize::from(last - first) + 1).sum();
        assert_eq!(numbers, (0..CODEC_IDS).filter(|&codec| CodecId(codec as u8).name().is_some()).count());
    }
}
