//! Calls of the core as bytes: what a recording holds between the borders of its blocks.
//!
//! A call is its tag (one byte: the number in the low six bits, two flags above), then its
//! arguments as LEB128 numbers. Pages, objects, units of the swap tier and ticks are differences
//! from the last one of their kind, in zigzag form: 0, -1, 1, -2 are 0, 1, 2, 3. At the beginning
//! of a block all of them are 0. docs/trace.md has the table of the calls.
//!
//! Between calls there can be notes, whose tags are from 48 on. They are no calls and have no
//! numbers; each says how long it is, so that a reader can leave out those that it does not know.

mod contents;

pub use contents::{Contents, Whose, CODECS_MAX, LEN_MAX};

use crate::core_call::CoreCall;
use crate::evict::Answer;
use crate::fault::{Filled, Stored};
use crate::ids::{Extent, ObjectId, Page, PageRange, ProcId};
use crate::reclaim::{Coded, Origin};
use crate::sample::Sampled;

/// What is not a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damaged {
    /// The bytes end in the middle of a call.
    Short,
    /// A tag, a choice or a number that no call has.
    Wrong,
}

/// What is said between two calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// What is sampled from here on.
    Sampled(Sampled),
    /// What a page held.
    Contents(Contents),
    /// A note that this version does not know.
    Unknown {
        /// Its tag, 48 to 63.
        tag: u8,
    },
}

/// One of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// The next call.
    Call(CoreCall<'a>),
    /// What is said before it.
    Note(Note),
}

/// The last of each kind.
#[derive(Debug, Clone, Copy, Default)]
struct Last {
    page: u64,
    object: u64,
    unit: u64,
    tick: u64,
}

/// Writes calls, from the beginning of a block on.
#[derive(Debug, Default)]
pub struct Encoder {
    last: Last,
}

/// Reads them.
#[derive(Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    last: Last,
    procs: Vec<ProcId>,
    pages: Vec<Page>,
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn difference(out: &mut Vec<u8>, last: &mut u64, value: u64) {
    let by = value.wrapping_sub(std::mem::replace(last, value)) as i64;
    number(out, (by << 1 ^ by >> 63) as u64);
}

/// Which call, and what goes into its flags.
const ADD_PROCESS: u8 = 0;
const REMOVE_PROCESS: u8 = 1;
const ADOPT: u8 = 2;
const PICK_VICTIMS: u8 = 3;
const CLAIM_RANGE: u8 = 4;
const EVICTED: u8 = 5;
const PIN: u8 = 6;
const UNPARK: u8 = 7;
const FAULT: u8 = 8;
const SWAPPED_AHEAD: u8 = 9;
const READ_ELSEWHERE: u8 = 10;
const LOADED: u8 = 11;
const REMOVED: u8 = 12;
const UNMAPPED: u8 = 13;
const DISOWN: u8 = 14;
const REMAPPED: u8 = 15;
const FORKED: u8 = 16;
const BEGIN_PROOF: u8 = 17;
const END_ZAP_PENDING: u8 = 18;
const END_QUARANTINE: u8 = 19;
const PICK_COMPRESS: u8 = 20;
const GOES_ON: u8 = 21;
const OFFER: u8 = 22;
const COMPRESSED: u8 = 23;
const COMPACT: u8 = 24;
const SET_BUSY: u8 = 25;
const CLOSE_POOL: u8 = 26;
const LOOK: u8 = 27;
const SWAP_TAKES: u8 = 28;
const PICK_WRITEBACK: u8 = 29;
const BLOCK_OF: u8 = 30;
const WRITTEN: u8 = 31;
const RELOCATED: u8 = 32;
const INHERIT: u8 = 33;
/// The first tag of a note.
const NOTES: u8 = 48;
const SAMPLED: u8 = 48;
const CONTENTS: u8 = 49;
const FLAGS_SHIFT: u32 = 6;

impl Encoder {
    /// Appends a note; of those that are not known, nothing.
    pub fn note(&mut self, out: &mut Vec<u8>, note: Note) {
        let mut body = Vec::new();
        let tag = match note {
            Note::Sampled(Sampled { threshold, period_ms }) => {
                [threshold, period_ms].into_iter().for_each(|n| number(&mut body, n.into()));
                SAMPLED
            }
            Note::Contents(contents) => {
                contents.encode(&mut body);
                CONTENTS
            }
            Note::Unknown { .. } => return,
        };
        tagged(out, tag, 0, &[body.len() as u64]);
        out.append(&mut body);
    }

    /// Appends a call.
    pub fn call(&mut self, out: &mut Vec<u8>, call: &CoreCall<'_>) {
        match *call {
            CoreCall::AddProcess { slots } => tagged(out, ADD_PROCESS, 0, &[slots.into()]),
            CoreCall::RemoveProcess { proc } => tagged(out, REMOVE_PROCESS, 0, &[proc.0.into()]),
            CoreCall::Adopt { proc, page, zero } => self.at(out, ADOPT, zero.into(), proc, page),
            CoreCall::PickVictims { most, tick, free } => {
                tagged(out, PICK_VICTIMS, 0, &[most.into()]);
                self.tick(out, tick);
                number(out, free.len() as u64);
                free.iter().for_each(|proc| number(out, proc.0.into()));
            }
            CoreCall::ClaimRange { proc, range, most, tick } => {
                self.range(out, CLAIM_RANGE, proc, range);
                number(out, most.into());
                self.tick(out, tick);
            }
            CoreCall::Evicted { proc, first, pages, answer, tick } => {
                let Answer { moved, dropped, park, file } = answer;
                // Mostly all of them have moved, and nothing else.
                let all = u64::MAX >> (64 - pages.clamp(1, 64));
                let usual = moved == all && dropped == 0 && file == 0;
                self.at(out, EVICTED, u8::from(usual) | u8::from(park) << 1, proc, first);
                number(out, pages.into());
                if !usual {
                    [moved, dropped, file].into_iter().for_each(|mask| number(out, mask));
                }
                self.tick(out, tick);
            }
            CoreCall::Pin { proc, pages } => {
                tagged(out, PIN, 0, &[proc.0.into(), pages.len() as u64]);
                pages.iter().for_each(|page| difference(out, &mut self.last.page, page.0));
            }
            CoreCall::Unpark { proc } => tagged(out, UNPARK, 0, &[proc.0.into()]),
            CoreCall::Fault { proc, page, limit, most } => {
                // Most readers take as many as there are.
                self.at(out, FAULT, u8::from(most == u32::MAX), proc, page);
                let mut from = page.0;
                difference(out, &mut from, limit.first.0);
                number(out, limit.pages);
                if most != u32::MAX {
                    number(out, most.into());
                }
            }
            CoreCall::SwappedAhead { proc, page, most } => {
                self.at(out, SWAPPED_AHEAD, 0, proc, page);
                number(out, most.into());
            }
            CoreCall::ReadElsewhere { pages } => tagged(out, READ_ELSEWHERE, 0, &[pages.into()]),
            CoreCall::Loaded { proc, page, filled } => self.at(out, LOADED, filled as u8, proc, page),
            CoreCall::Removed { proc, range } => self.range(out, REMOVED, proc, range),
            CoreCall::Unmapped { proc, range } => self.range(out, UNMAPPED, proc, range),
            CoreCall::Disown { proc, range } => self.range(out, DISOWN, proc, range),
            CoreCall::Remapped { proc, from, to } => {
                self.range(out, REMAPPED, proc, from);
                difference(out, &mut self.last.page, to.0);
            }
            CoreCall::Forked { parent, slots, present } => {
                tagged(out, FORKED, present.into(), &[parent.0.into(), slots.into()]);
            }
            CoreCall::BeginProof { proc } => tagged(out, BEGIN_PROOF, 0, &[proc.0.into()]),
            CoreCall::EndZapPending { proc, epoch } => tagged(out, END_ZAP_PENDING, 0, &[proc.0.into(), epoch.into()]),
            CoreCall::EndQuarantine { proc, page, epoch, present } => {
                self.at(out, END_QUARANTINE, present.into(), proc, page);
                number(out, epoch.into());
            }
            CoreCall::PickCompress { most } => tagged(out, PICK_COMPRESS, 0, &[most.into()]),
            CoreCall::GoesOn { object } => self.of(out, GOES_ON, 0, object),
            CoreCall::Offer { object, origin, estimate } => {
                self.of(out, OFFER, u8::from(estimate.is_some()), object);
                number(out, origin as u64);
                estimate.into_iter().for_each(|estimate| number(out, estimate.into()));
            }
            CoreCall::Compressed { object, coded } => self.compressed(out, object, coded),
            CoreCall::Compact { most } => tagged(out, COMPACT, 0, &[most.into()]),
            CoreCall::SetBusy { busy } => tagged(out, SET_BUSY, busy.into(), &[]),
            CoreCall::ClosePool { closed } => tagged(out, CLOSE_POOL, closed.into(), &[]),
            CoreCall::Look { tick } => {
                tagged(out, LOOK, 0, &[]);
                self.tick(out, tick);
            }
            CoreCall::SwapTakes { takes } => tagged(out, SWAP_TAKES, takes.into(), &[]),
            CoreCall::PickWriteback { pressed, most_bytes } => {
                tagged(out, PICK_WRITEBACK, pressed.into(), &[most_bytes.into()]);
            }
            CoreCall::BlockOf { object } => self.of(out, BLOCK_OF, 0, object),
            CoreCall::Written { object, extent } => {
                self.of(out, WRITTEN, u8::from(extent.is_some()), object);
                extent.into_iter().for_each(|extent| difference(out, &mut self.last.unit, extent.unit.into()));
            }
            CoreCall::Relocated { object, from, to } => {
                self.of(out, RELOCATED, 0, object);
                difference(out, &mut self.last.unit, from.unit.into());
                self.stored(out, to);
            }
            CoreCall::Inherit { child, range } => self.range(out, INHERIT, child, range),
        }
    }

    fn compressed(&mut self, out: &mut Vec<u8>, object: ObjectId, coded: Coded) {
        let which = match coded {
            Coded::Incompressible => 0,
            Coded::Bytes { .. } => 1,
            Coded::Word(_) => 2,
            Coded::Stored(_) => 3,
        };
        self.of(out, COMPRESSED, which, object);
        match coded {
            Coded::Incompressible => {}
            Coded::Bytes { codec, len } => [codec.into(), len.into()].into_iter().for_each(|n| number(out, n)),
            Coded::Word(word) => out.extend(word.to_le_bytes()),
            Coded::Stored(stored) => self.stored(out, stored),
        }
    }

    fn stored(&mut self, out: &mut Vec<u8>, stored: Stored) {
        difference(out, &mut self.last.unit, stored.extent.unit.into());
        number(out, stored.len.into());
        number(out, stored.codec.into());
    }

    fn at(&mut self, out: &mut Vec<u8>, tag: u8, flags: u8, proc: ProcId, page: Page) {
        tagged(out, tag, flags, &[proc.0.into()]);
        difference(out, &mut self.last.page, page.0);
    }

    fn range(&mut self, out: &mut Vec<u8>, tag: u8, proc: ProcId, range: PageRange) {
        self.at(out, tag, 0, proc, range.first);
        number(out, range.pages);
    }

    fn of(&mut self, out: &mut Vec<u8>, tag: u8, flags: u8, object: ObjectId) {
        tagged(out, tag, flags, &[]);
        difference(out, &mut self.last.object, object.0.into());
    }

    fn tick(&mut self, out: &mut Vec<u8>, tick: u64) {
        difference(out, &mut self.last.tick, tick);
    }
}

fn tagged(out: &mut Vec<u8>, tag: u8, flags: u8, numbers: &[u64]) {
    out.push(tag | flags << FLAGS_SHIFT);
    numbers.iter().for_each(|&n| number(out, n));
}

impl<'a> Decoder<'a> {
    /// Of the bytes of one block.
    pub fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { bytes, last: Last::default(), procs: Vec::new(), pages: Vec::new() }
    }

    /// The next call, notes left out; `None` at the end.
    ///
    /// # Errors
    /// When the bytes are not those of an encoder.
    pub fn call(&mut self) -> Result<Option<CoreCall<'_>>, Damaged> {
        while self.note()?.is_some() {}
        self.core_call()
    }

    /// The next call or note; `None` at the end.
    ///
    /// # Errors
    /// When the bytes are not those of an encoder.
    pub fn item(&mut self) -> Result<Option<Item<'_>>, Damaged> {
        match self.note()? {
            Some(note) => Ok(Some(Item::Note(note))),
            None => Ok(self.core_call()?.map(Item::Call)),
        }
    }

    /// The note that comes next, if it is one.
    fn note(&mut self) -> Result<Option<Note>, Damaged> {
        let tag = match self.bytes.first().map(|first| first & ((1 << FLAGS_SHIFT) - 1)) {
            Some(tag) if tag >= NOTES => tag,
            _ => return Ok(None),
        };
        self.bytes = &self.bytes[1..];
        let length = self.number()?;
        if length > self.bytes.len() as u64 {
            return Err(Damaged::Short);
        }
        let (body, rest) = self.bytes.split_at(length as usize);
        self.bytes = rest;
        let mut body = Decoder::new(body);
        // A later version may say more than this: that is left out.
        let note = match tag {
            SAMPLED => Note::Sampled(Sampled { threshold: body.small()?, period_ms: body.small()? }),
            CONTENTS => Note::Contents(Contents::decode(&mut body)?),
            tag => Note::Unknown { tag },
        };
        Ok(Some(note))
    }

    fn core_call(&mut self) -> Result<Option<CoreCall<'_>>, Damaged> {
        let Some((&first, rest)) = self.bytes.split_first() else { return Ok(None) };
        self.bytes = rest;
        let (tag, flags) = (first & ((1 << FLAGS_SHIFT) - 1), first >> FLAGS_SHIFT);
        let flag = flags & 1 == 1;
        Ok(Some(match tag {
            ADD_PROCESS => CoreCall::AddProcess { slots: self.small()? },
            REMOVE_PROCESS => CoreCall::RemoveProcess { proc: self.proc()? },
            ADOPT => CoreCall::Adopt { proc: self.proc()?, page: self.page()?, zero: flag },
            PICK_VICTIMS => {
                let (most, tick) = (self.small()?, self.tick()?);
                self.procs.clear();
                for _ in 0..self.small()? {
                    let proc = self.proc()?;
                    self.procs.push(proc);
                }
                CoreCall::PickVictims { most, tick, free: &self.procs }
            }
            CLAIM_RANGE => {
                let (proc, range) = (self.proc()?, self.range()?);
                CoreCall::ClaimRange { proc, range, most: self.small()?, tick: self.tick()? }
            }
            EVICTED => {
                let (proc, first, pages) = (self.proc()?, self.page()?, self.small()?);
                if !(1..=64).contains(&pages) {
                    return Err(Damaged::Wrong);
                }
                let (moved, dropped, file) = match flag {
                    true => (u64::MAX >> (64 - pages), 0, 0),
                    false => (self.number()?, self.number()?, self.number()?),
                };
                let answer = Answer { moved, dropped, park: flags & 2 != 0, file };
                CoreCall::Evicted { proc, first, pages, answer, tick: self.tick()? }
            }
            PIN => {
                let proc = self.proc()?;
                self.pages.clear();
                for _ in 0..self.small()? {
                    let page = self.page()?;
                    self.pages.push(page);
                }
                CoreCall::Pin { proc, pages: &self.pages }
            }
            UNPARK => CoreCall::Unpark { proc: self.proc()? },
            FAULT => {
                let (proc, page) = (self.proc()?, self.page()?);
                let first = Page(page.0.wrapping_add(self.by()?));
                let limit = PageRange { first, pages: self.number()? };
                CoreCall::Fault { proc, page, limit, most: if flag { u32::MAX } else { self.small()? } }
            }
            SWAPPED_AHEAD => CoreCall::SwappedAhead { proc: self.proc()?, page: self.page()?, most: self.small()? },
            READ_ELSEWHERE => CoreCall::ReadElsewhere { pages: self.small()? },
            LOADED => {
                let filled = [Filled::Done, Filled::Read, Filled::Exists, Filled::Retry][usize::from(flags)];
                CoreCall::Loaded { proc: self.proc()?, page: self.page()?, filled }
            }
            REMOVED => CoreCall::Removed { proc: self.proc()?, range: self.range()? },
            UNMAPPED => CoreCall::Unmapped { proc: self.proc()?, range: self.range()? },
            DISOWN => CoreCall::Disown { proc: self.proc()?, range: self.range()? },
            REMAPPED => CoreCall::Remapped { proc: self.proc()?, from: self.range()?, to: self.page()? },
            FORKED => CoreCall::Forked { parent: self.proc()?, slots: self.small()?, present: flag },
            BEGIN_PROOF => CoreCall::BeginProof { proc: self.proc()? },
            END_ZAP_PENDING => CoreCall::EndZapPending { proc: self.proc()?, epoch: self.small()? },
            END_QUARANTINE => {
                CoreCall::EndQuarantine { proc: self.proc()?, page: self.page()?, epoch: self.small()?, present: flag }
            }
            PICK_COMPRESS => CoreCall::PickCompress { most: self.small()? },
            GOES_ON => CoreCall::GoesOn { object: self.object()? },
            OFFER => {
                let object = self.object()?;
                let origin = match self.number()? {
                    0 => Origin::Background,
                    1 => Origin::Direct,
                    2 => Origin::Process,
                    _ => return Err(Damaged::Wrong),
                };
                CoreCall::Offer { object, origin, estimate: if flag { Some(self.small()?) } else { None } }
            }
            COMPRESSED => {
                let object = self.object()?;
                let coded = match flags {
                    0 => Coded::Incompressible,
                    1 => Coded::Bytes { codec: self.byte()?, len: self.small()? },
                    2 => Coded::Word(self.word()?),
                    _ => Coded::Stored(self.stored()?),
                };
                CoreCall::Compressed { object, coded }
            }
            COMPACT => CoreCall::Compact { most: self.small()? },
            SET_BUSY => CoreCall::SetBusy { busy: flag },
            CLOSE_POOL => CoreCall::ClosePool { closed: flag },
            LOOK => CoreCall::Look { tick: self.tick()? },
            SWAP_TAKES => CoreCall::SwapTakes { takes: flag },
            PICK_WRITEBACK => CoreCall::PickWriteback { pressed: flag, most_bytes: self.small()? },
            BLOCK_OF => CoreCall::BlockOf { object: self.object()? },
            WRITTEN => {
                let object = self.object()?;
                CoreCall::Written { object, extent: if flag { Some(self.extent()?) } else { None } }
            }
            RELOCATED => CoreCall::Relocated { object: self.object()?, from: self.extent()?, to: self.stored()? },
            INHERIT => CoreCall::Inherit { child: self.proc()?, range: self.range()? },
            _ => return Err(Damaged::Wrong),
        }))
    }

    fn number(&mut self) -> Result<u64, Damaged> {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let (&byte, rest) = self.bytes.split_first().ok_or(Damaged::Short)?;
            self.bytes = rest;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return Err(Damaged::Wrong);
            }
            value |= part << shift;
            shift += 7;
            if byte < 0x80 {
                return Ok(value);
            }
            if shift > 63 {
                return Err(Damaged::Wrong);
            }
        }
    }

    fn small(&mut self) -> Result<u32, Damaged> {
        self.number()?.try_into().map_err(|_| Damaged::Wrong)
    }

    fn byte(&mut self) -> Result<u8, Damaged> {
        self.number()?.try_into().map_err(|_| Damaged::Wrong)
    }

    fn word(&mut self) -> Result<u64, Damaged> {
        let (bytes, rest) = self.bytes.split_first_chunk().ok_or(Damaged::Short)?;
        self.bytes = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    fn by(&mut self) -> Result<u64, Damaged> {
        let by = self.number()?;
        Ok(by >> 1 ^ (by & 1).wrapping_neg())
    }

    fn proc(&mut self) -> Result<ProcId, Damaged> {
        Ok(ProcId(self.small()?))
    }

    fn page(&mut self) -> Result<Page, Damaged> {
        self.last.page = self.last.page.wrapping_add(self.by()?);
        Ok(Page(self.last.page))
    }

    fn range(&mut self) -> Result<PageRange, Damaged> {
        Ok(PageRange { first: self.page()?, pages: self.number()? })
    }

    fn object(&mut self) -> Result<ObjectId, Damaged> {
        self.last.object = self.last.object.wrapping_add(self.by()?);
        u32::try_from(self.last.object).map(ObjectId).map_err(|_| Damaged::Wrong)
    }

    fn extent(&mut self) -> Result<Extent, Damaged> {
        self.last.unit = self.last.unit.wrapping_add(self.by()?);
        u32::try_from(self.last.unit).map(|unit| Extent { unit }).map_err(|_| Damaged::Wrong)
    }

    fn stored(&mut self) -> Result<Stored, Damaged> {
        let (extent, len) = (self.extent()?, self.number()?.try_into().map_err(|_| Damaged::Wrong)?);
        Ok(Stored { extent, len, codec: self.byte()? })
    }

    fn tick(&mut self) -> Result<u64, Damaged> {
        self.last.tick = self.last.tick.wrapping_add(self.by()?);
        Ok(self.last.tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: ProcId = ProcId(3);
    const O: ObjectId = ObjectId(70_000);

    fn range(first: u64, pages: u64) -> PageRange {
        PageRange { first: Page(first), pages }
    }

    fn stored(unit: u32) -> Stored {
        Stored { extent: Extent { unit }, len: 4096, codec: 9 }
    }

    fn evicted(pages: u32, answer: Answer) -> CoreCall<'static> {
        CoreCall::Evicted { proc: P, first: Page(64), pages, answer, tick: 7 }
    }

    /// Each call at least once, with numbers at the ends of what they can be.
    fn calls() -> Vec<CoreCall<'static>> {
        let whole = Answer { moved: u64::MAX, ..Answer::default() };
        let part = Answer { moved: 0b1011, dropped: 0b100, park: true, file: 0b1000 };
        let parked = Answer { park: true, ..whole };
        let (page, object) = (Page(0x7_ffff_ffff), O);
        vec![
            CoreCall::AddProcess { slots: 0 },
            CoreCall::RemoveProcess { proc: ProcId(u32::MAX) },
            CoreCall::Adopt { proc: P, page, zero: true },
            CoreCall::PickVictims { most: 128, tick: 1_000_000, free: &[P, ProcId(0), ProcId(500)] },
            CoreCall::PickVictims { most: 128, tick: 999_999, free: &[] },
            CoreCall::ClaimRange { proc: P, range: range(0, u64::MAX >> 12), most: 32, tick: 0 },
            evicted(64, whole),
            evicted(64, parked),
            evicted(4, part),
            evicted(1, Answer { moved: 1, ..Answer::default() }),
            evicted(1, Answer::default()),
            CoreCall::Pin { proc: P, pages: &[Page(1), Page(0), Page(1 << 35)] },
            CoreCall::Unpark { proc: P },
            CoreCall::Fault { proc: P, page, limit: range(0x7_0000_0000, 1 << 33), most: u32::MAX },
            CoreCall::Fault { proc: P, page: Page(0), limit: range(0, 1), most: 0 },
            CoreCall::SwappedAhead { proc: P, page, most: 128 },
            CoreCall::ReadElsewhere { pages: 16 },
            CoreCall::Loaded { proc: P, page, filled: Filled::Done },
            CoreCall::Loaded { proc: P, page, filled: Filled::Read },
            CoreCall::Loaded { proc: P, page, filled: Filled::Exists },
            CoreCall::Loaded { proc: P, page, filled: Filled::Retry },
            CoreCall::Removed { proc: P, range: range(5, 6) },
            CoreCall::Unmapped { proc: P, range: range(6, 0) },
            CoreCall::Disown { proc: P, range: range(7, 1 << 51) },
            CoreCall::Remapped { proc: P, from: range(100, 50), to: Page(1 << 34) },
            CoreCall::Forked { parent: P, slots: 48, present: true },
            CoreCall::Forked { parent: P, slots: 48, present: false },
            CoreCall::BeginProof { proc: P },
            CoreCall::EndZapPending { proc: P, epoch: 1 << 27 },
            CoreCall::EndQuarantine { proc: P, page, epoch: 1, present: true },
            CoreCall::PickCompress { most: u32::MAX },
            CoreCall::GoesOn { object },
            CoreCall::Offer { object, origin: Origin::Background, estimate: None },
            CoreCall::Offer { object, origin: Origin::Direct, estimate: Some(65536) },
            CoreCall::Offer { object: ObjectId(0), origin: Origin::Process, estimate: Some(0) },
            CoreCall::Compressed { object, coded: Coded::Incompressible },
            CoreCall::Compressed { object, coded: Coded::Bytes { codec: 255, len: 4095 } },
            CoreCall::Compressed { object, coded: Coded::Word(u64::MAX) },
            CoreCall::Compressed { object, coded: Coded::Stored(stored(u32::MAX)) },
            CoreCall::Compact { most: 32 },
            CoreCall::SetBusy { busy: true },
            CoreCall::ClosePool { closed: false },
            CoreCall::Look { tick: u64::from(u32::MAX) + 1 },
            CoreCall::SwapTakes { takes: true },
            CoreCall::PickWriteback { pressed: false, most_bytes: u32::MAX },
            CoreCall::BlockOf { object: ObjectId(u32::MAX - 1) },
            CoreCall::Written { object, extent: Some(Extent { unit: 0 }) },
            CoreCall::Written { object, extent: None },
            CoreCall::Relocated { object, from: Extent { unit: 12 }, to: stored(13) },
            CoreCall::Inherit { child: P, range: PageRange::ALL },
        ]
    }

    fn encoded(calls: &[CoreCall<'_>]) -> Vec<u8> {
        let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
        calls.iter().for_each(|call| encoder.call(&mut bytes, call));
        bytes
    }

    #[test]
    fn each_call_comes_back() {
        let calls = calls();
        let bytes = encoded(&calls);
        let mut decoder = Decoder::new(&bytes);
        for call in &calls {
            assert_eq!(decoder.call().unwrap().as_ref(), Some(call));
            assert_eq!(usize::from(encoded(&[*call])[0] & ((1 << FLAGS_SHIFT) - 1)), call.kind(), "{}", call.name());
        }
        assert_eq!(decoder.call(), Ok(None));
    }

    #[test]
    fn notes_are_between_calls_and_change_nothing_of_them() {
        let sampled = |threshold| Note::Sampled(Sampled { threshold, period_ms: 100 });
        let calls = calls();
        let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
        for (i, call) in calls.iter().enumerate() {
            encoder.note(&mut bytes, sampled(i as u32));
            encoder.call(&mut bytes, call);
        }
        encoder.note(&mut bytes, sampled(u32::MAX));
        // One that says more than is known, and one that nobody knows.
        bytes.extend([48, 3, 1, 2, 0xff, 63, 2, 0xff, 0xff]);
        let mut decoder = Decoder::new(&bytes);
        for (i, call) in calls.iter().enumerate() {
            assert_eq!(decoder.item(), Ok(Some(Item::Note(sampled(i as u32)))));
            assert_eq!(decoder.item(), Ok(Some(Item::Call(*call))));
        }
        assert_eq!(decoder.item(), Ok(Some(Item::Note(sampled(u32::MAX)))));
        assert_eq!(decoder.item(), Ok(Some(Item::Note(Note::Sampled(Sampled { threshold: 1, period_ms: 2 })))));
        assert_eq!(decoder.item(), Ok(Some(Item::Note(Note::Unknown { tag: 63 }))));
        assert_eq!(decoder.item(), Ok(None));
        let mut decoder = Decoder::new(&bytes);
        for call in &calls {
            assert_eq!(decoder.call().unwrap().as_ref(), Some(call));
        }
        assert_eq!(decoder.call(), Ok(None));
        for damaged in [&[48][..], &[48, 2, 1], &[48, 1, 1], &[48, 2, 0x80, 0x80], &[50, 0xff, 0xff]] {
            assert_eq!(Decoder::new(damaged).item(), Err(Damaged::Short), "{damaged:?}");
        }
        assert_eq!(Decoder::new(&[INHERIT + 1]).item(), Err(Damaged::Wrong));
    }

    #[test]
    fn what_follows_each_other_is_short() {
        let loads: Vec<CoreCall<'_>> = (0..16)
            .map(|i| CoreCall::Loaded { proc: P, page: Page(0x7_1234_5678 + i), filled: Filled::Done })
            .collect();
        // Tag, process, difference; the first one has its page.
        assert_eq!(encoded(&loads).len(), 16 * 3 + 5);
    }

    /// A block that ends too early or has another byte somewhere gives calls or an error, and no
    /// more calls than bytes.
    #[test]
    fn damaged_bytes_are_no_more_than_an_error() {
        let bytes = encoded(&calls());
        let read = |bytes: &[u8]| {
            let (mut decoder, mut calls) = (Decoder::new(bytes), 0);
            loop {
                match decoder.call() {
                    Ok(Some(_)) => calls += 1,
                    Ok(None) => return (calls, None),
                    Err(damaged) => return (calls, Some(damaged)),
                }
                assert!(calls <= bytes.len());
            }
        };
        let whole = read(&bytes);
        assert_eq!(whole, (calls().len(), None));
        for end in 0..bytes.len() {
            let (calls, damaged) = read(&bytes[..end]);
            assert!(calls < whole.0 && matches!(damaged, None | Some(Damaged::Short)), "cut at {end}: {damaged:?}");
        }
        for at in 0..bytes.len() {
            for wrong in [0, 0x3f, 0x7f, 0x80, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = wrong;
                read(&bytes);
            }
        }
        assert_eq!(read(&[47]), (0, Some(Damaged::Wrong)), "no such call");
        assert_eq!(
            read(&[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]),
            (0, Some(Damaged::Wrong)),
            "65 bits"
        );
    }
}
