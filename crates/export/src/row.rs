//! A row: that of a call here.

use crate::columns::{At, COLUMNS};
use memfit_core::{Coded, CoreCall, Extent, Filled, ObjectId, Origin, Page, PageRange, ProcId, Stored};
use std::fmt::Write;

/// What a row has in a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// It has nothing there.
    Nothing,
    /// For numbers and bits.
    Number(u64),
    /// For fractions.
    Fraction(f64),
    /// For names.
    Name(&'static str),
    /// For texts.
    Text(&'a str),
    /// For flags.
    Flag(bool),
}

/// A row, to be used again for the next one.
#[derive(Debug, Default)]
pub struct Row {
    /// In the order of the table's columns, but for the list.
    pub values: Vec<Value<'static>>,
    /// The one text that the row of a call can have.
    list: String,
    pub has_list: bool,
}

impl Row {
    /// What it has, in the order of the table's columns.
    pub fn values(&self) -> impl Iterator<Item = Value<'_>> {
        self.values.iter().enumerate().map(|(at, &value)| match at == At::List as usize && self.has_list {
            true => Value::Text(&self.list),
            false => value,
        })
    }

    /// Becomes the row of a call.
    pub fn fill(&mut self, number: u64, time_ns: u64, asked: &CoreCall<'_>) {
        self.values.clear();
        self.values.resize(COLUMNS.len(), Value::Nothing);
        self.has_list = false;
        self.number(At::Number, number);
        self.number(At::TimeNs, time_ns);
        self.name(At::Call, asked.name());
        match *asked {
            CoreCall::AddProcess { slots } => self.number(At::Slots, slots),
            CoreCall::RemoveProcess { proc } | CoreCall::Unpark { proc } | CoreCall::BeginProof { proc } => {
                self.process(proc)
            }
            CoreCall::Adopt { proc, page, zero } => {
                self.at(proc, page);
                self.flag(zero);
            }
            CoreCall::PickVictims { most, tick, free } => {
                self.most(most);
                self.number(At::TickMs, tick);
                self.list(free.iter().map(|proc| proc.0.into()));
            }
            CoreCall::ClaimRange { proc, range, most, tick } => {
                self.range(proc, range);
                self.most(most);
                self.number(At::TickMs, tick);
            }
            CoreCall::Evicted { proc, first, pages, answer, tick } => {
                self.range(proc, PageRange { first, pages: pages.into() });
                self.number(At::Moved, answer.moved);
                self.number(At::Dropped, answer.dropped);
                self.number(At::File, answer.file);
                self.flag(answer.park);
                self.number(At::TickMs, tick);
            }
            CoreCall::Pin { proc, pages } => {
                self.process(proc);
                self.number(At::Pages, pages.len() as u64);
                self.list(pages.iter().map(|page| page.0));
            }
            CoreCall::Fault { proc, page, limit, most } => {
                self.at(proc, page);
                self.number(At::MappingPage, limit.first.0);
                self.number(At::MappingPages, limit.pages);
                // Any number of them is no number.
                if most != u32::MAX {
                    self.most(most);
                }
            }
            CoreCall::SwappedAhead { proc, page, most } => {
                self.at(proc, page);
                self.most(most);
            }
            CoreCall::ReadElsewhere { pages } => self.number(At::Pages, pages),
            CoreCall::Loaded { proc, page, filled } => {
                self.at(proc, page);
                self.name(At::Result, name_of_filled(filled));
            }
            CoreCall::Removed { proc, range }
            | CoreCall::Unmapped { proc, range }
            | CoreCall::Disown { proc, range }
            | CoreCall::Inherit { child: proc, range } => {
                self.range(proc, range);
            }
            CoreCall::Remapped { proc, from, to } => {
                self.range(proc, from);
                self.number(At::ToPage, to.0);
            }
            CoreCall::Forked { parent, slots, present } => {
                self.process(parent);
                self.number(At::Slots, slots);
                self.flag(present);
            }
            CoreCall::EndZapPending { proc, epoch } => {
                self.process(proc);
                self.number(At::Epoch, epoch);
            }
            CoreCall::EndQuarantine { proc, page, epoch, present } => {
                self.at(proc, page);
                self.number(At::Epoch, epoch);
                self.flag(present);
            }
            CoreCall::PickCompress { most } | CoreCall::Compact { most } => self.most(most),
            CoreCall::GoesOn { object } | CoreCall::BlockOf { object } => self.object(object),
            CoreCall::Offer { object, origin, estimate } => {
                self.object(object);
                self.name(At::Origin, name_of_origin(origin));
                if let Some(estimate) = estimate {
                    self.number(At::Entropy, estimate);
                }
            }
            CoreCall::Compressed { object, coded } => self.compressed(object, coded),
            CoreCall::SetBusy { busy: flag }
            | CoreCall::ClosePool { closed: flag }
            | CoreCall::SwapTakes { takes: flag } => {
                self.flag(flag);
            }
            CoreCall::Look { tick } => self.number(At::TickMs, tick),
            CoreCall::PickWriteback { pressed, most_bytes } => {
                self.most(most_bytes);
                self.flag(pressed);
            }
            CoreCall::Written { object, extent } => {
                self.object(object);
                if let Some(Extent { unit }) = extent {
                    self.number(At::Unit, unit);
                }
            }
            CoreCall::Relocated { object, from, to } => {
                self.object(object);
                self.number(At::FromUnit, from.unit);
                self.stored(to);
            }
        }
    }

    fn compressed(&mut self, object: ObjectId, coded: Coded) {
        self.object(object);
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
                self.stored(stored);
                "stored"
            }
        };
        self.name(At::Result, result);
    }

    fn stored(&mut self, stored: Stored) {
        self.number(At::Unit, stored.extent.unit);
        self.number(At::Len, stored.len);
        self.number(At::Codec, stored.codec);
    }

    fn at(&mut self, proc: ProcId, page: Page) {
        self.process(proc);
        self.number(At::Page, page.0);
    }

    fn range(&mut self, proc: ProcId, range: PageRange) {
        self.at(proc, range.first);
        self.number(At::Pages, range.pages);
    }

    fn process(&mut self, proc: ProcId) {
        self.number(At::Process, proc.0);
    }

    fn object(&mut self, object: ObjectId) {
        self.number(At::Object, object.0);
    }

    fn most(&mut self, most: u32) {
        self.number(At::Most, most);
    }

    fn flag(&mut self, flag: bool) {
        self.values[At::Flag as usize] = Value::Flag(flag);
    }

    fn number(&mut self, at: At, number: impl Into<u64>) {
        self.values[at as usize] = Value::Number(number.into());
    }

    fn name(&mut self, at: At, name: &'static str) {
        self.values[at as usize] = Value::Name(name);
    }

    fn list(&mut self, numbers: impl Iterator<Item = u64>) {
        self.list.clear();
        for (i, number) in numbers.enumerate() {
            let _ = write!(self.list, "{}{number}", if i == 0 { "" } else { " " });
        }
        self.has_list = true;
    }
}

fn name_of_filled(filled: Filled) -> &'static str {
    match filled {
        Filled::Done => "done",
        Filled::Read => "read",
        Filled::Exists => "exists",
        Filled::Retry => "retry",
    }
}

fn name_of_origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Background => "background",
        Origin::Direct => "direct",
        Origin::Process => "process",
    }
}
