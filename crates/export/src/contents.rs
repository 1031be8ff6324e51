//! Rows of recorded page contents.

use crate::columns::{always, maybe, Column, Type};
use crate::row::{Row, Value};
use memfit_codec::CODECS;
use memfit_core::trace::{Contents, Whose};
use std::sync::LazyLock;

/// Number of columns before those of the codecs.
const FIRST: usize = 9;

/// All columns of the table of contents, in order. The last ones are those of the codecs.
pub static CONTENTS_COLUMNS: LazyLock<Vec<Column>> = LazyLock::new(|| {
    let first: [Column; FIRST] = [
        always("number", Type::Near),
        always("time_ns", Type::Near),
        maybe("process", Type::Number),
        maybe("page", Type::Near),
        maybe("object", Type::Near),
        maybe("calls_since", Type::Number),
        always("hash", Type::Bits),
        always("entropy", Type::Number),
        maybe("word", Type::Bits),
    ];
    let codecs = CODECS.iter().map(|codec| maybe(codec.name.replace('-', "_").leak(), Type::Number));
    first.into_iter().chain(codecs).collect()
});

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
        self.values.extend(CODECS.iter().map(|codec| {
            let len = codec.ids().rev().map(|id| contents.lens[usize::from(id)]).find(|&len| len > 0);
            len.map_or(Value::Nothing, |len| Value::Number(len.into()))
        }));
    }
}
