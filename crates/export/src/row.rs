//! A row of a table, and the row of a call.

use crate::columns::{At, COLUMNS};
use memfit_core::budget::Level;
use memfit_core::driver::Seen;
use memfit_core::{
    Answer, Coded, ContentHash, CoreCall, Extent, Fields, Filled, ObjectId, Origin, Page, PageRange, ProcId, Stored,
};
use std::fmt::Write;

/// A value in a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// No value.
    Nothing,
    /// For `Number`, `Near` and `Bits`.
    Number(u64),
    /// For `Fraction`.
    Fraction(f64),
    /// For `Name`.
    Name(&'static str),
    /// For `Text`.
    Text(&'a str),
    /// For `Flag`.
    Flag(bool),
}

/// A row; its memory is reused for the next one.
#[derive(Debug, Default)]
pub struct Row {
    /// In the order of the table's columns, without the list.
    pub values: Vec<Value<'static>>,
    /// The only text that the row of a call can have.
    list: String,
    pub has_list: bool,
}

impl Row {
    /// The values, in the order of the table's columns.
    pub fn values(&self) -> impl Iterator<Item = Value<'_>> {
        self.values.iter().enumerate().map(|(at, &value)| match at == At::List as usize && self.has_list {
            true => Value::Text(&self.list),
            false => value,
        })
    }

    /// Turns this into the row of a call.
    pub fn fill(&mut self, number: u64, time_ns: u64, call: &CoreCall<'_>) {
        self.values.clear();
        self.values.resize(COLUMNS.len(), Value::Nothing);
        self.has_list = false;
        self.number(At::Number, number);
        self.number(At::TimeNs, time_ns);
        self.name(At::Call, call.name());
        call.fields(self);
    }

    fn number(&mut self, at: At, number: impl Into<u64>) {
        self.values[at as usize] = Value::Number(number.into());
    }

    fn name(&mut self, at: At, name: &'static str) {
        self.values[at as usize] = Value::Name(name);
    }

    fn numbers(&mut self, numbers: impl Iterator<Item = u64>) {
        self.list.clear();
        for (i, number) in numbers.enumerate() {
            let _ = write!(self.list, "{}{number}", if i == 0 { "" } else { " " });
        }
        self.has_list = true;
    }
}

/// Puts each argument of a call in its column.
impl Fields for Row {
    fn proc(&mut self, _: &'static str, proc: ProcId) {
        self.number(At::Process, proc.0);
    }

    fn page(&mut self, name: &'static str, page: Page) {
        self.number(if name == "to" { At::ToPage } else { At::Page }, page.0);
    }

    fn range(&mut self, _: &'static str, range: PageRange) {
        self.number(At::Page, range.first.0);
        self.number(At::Pages, range.pages);
    }

    fn limit(&mut self, _: &'static str, limit: PageRange) {
        self.number(At::MappingPage, limit.first.0);
        self.number(At::MappingPages, limit.pages);
    }

    fn object(&mut self, _: &'static str, object: ObjectId) {
        self.number(At::Object, object.0);
    }

    fn tick(&mut self, _: &'static str, tick_ms: u64) {
        self.number(At::TickMs, tick_ms);
    }

    fn small(&mut self, name: &'static str, number: u32) {
        let at = match name {
            "slots" => At::Slots,
            "epoch" => At::Epoch,
            "pages" => At::Pages,
            _ => At::Most,
        };
        self.number(at, number);
    }

    fn most(&mut self, _: &'static str, most: u32) {
        // `u32::MAX` means no limit: no value.
        if most != u32::MAX {
            self.number(At::Most, most);
        }
    }

    fn pages(&mut self, _: &'static str, pages: u32) {
        self.number(At::Pages, pages);
    }

    fn answer(&mut self, name: &'static str, answer: Answer) {
        self.number(At::Moved, answer.moved);
        self.number(At::Dropped, answer.dropped);
        self.number(At::File, answer.file);
        self.flag(name, answer.park);
    }

    fn flag(&mut self, _: &'static str, flag: bool) {
        self.values[At::Flag as usize] = Value::Flag(flag);
    }

    fn filled(&mut self, _: &'static str, filled: Filled) {
        let name = match filled {
            Filled::Done => "done",
            Filled::Read => "read",
            Filled::Exists => "exists",
            Filled::Retry => "retry",
        };
        self.name(At::Result, name);
    }

    fn origin(&mut self, _: &'static str, origin: Origin) {
        let name = match origin {
            Origin::Background => "background",
            Origin::Direct => "direct",
            Origin::Process => "process",
        };
        self.name(At::Origin, name);
    }

    fn seen(&mut self, _: &'static str, seen: Seen) {
        let name = match seen.level {
            Level::FarOver => "far_over",
            Level::Over => "over",
            Level::BelowMin => "below_min",
            Level::BelowLow => "below_low",
            Level::BelowHigh => "below_high",
            Level::Enough => "enough",
        };
        self.name(At::Level, name);
        self.number(At::Gained, seen.gained);
        self.number(At::Unmanaged, seen.unmanaged);
        self.number(At::Facts, seen.facts());
        self.number(At::ReadUs, seen.read_us);
    }

    fn estimate(&mut self, _: &'static str, estimate: Option<u32>) {
        estimate.into_iter().for_each(|estimate| self.number(At::Entropy, estimate));
    }

    fn coded(&mut self, name: &'static str, coded: Coded) {
        let result = match coded {
            Coded::Incompressible => "incompressible",
            Coded::Bytes { codec, len } => {
                self.number(At::Codec, codec);
                self.number(At::Len, len);
                "bytes"
            }
            Coded::Word(word) => {
                self.number(At::Word, word);
                "word"
            }
            Coded::Stored(stored) => {
                self.stored(name, stored);
                "stored"
            }
        };
        self.name(At::Result, result);
    }

    fn extent(&mut self, _: &'static str, from: Extent) {
        self.number(At::FromUnit, from.unit);
    }

    fn written(&mut self, _: &'static str, extent: Option<Extent>) {
        extent.into_iter().for_each(|extent| self.number(At::Unit, extent.unit));
    }

    fn stored(&mut self, _: &'static str, stored: Stored) {
        self.number(At::Unit, stored.extent.unit);
        self.number(At::Len, stored.len);
        self.number(At::Codec, stored.codec);
    }

    fn list(&mut self, _: &'static str, pages: &[Page]) {
        self.number(At::Pages, pages.len() as u64);
        self.numbers(pages.iter().map(|page| page.0));
    }

    fn hash(&mut self, _: &'static str, hash: ContentHash) {
        self.numbers(hash.into_iter().map(u64::from));
    }

    fn procs(&mut self, _: &'static str, procs: &[ProcId]) {
        self.numbers(procs.iter().map(|proc| proc.0.into()));
    }
}
