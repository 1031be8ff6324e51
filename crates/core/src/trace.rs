//! Core calls as bytes: the contents of a recording's blocks.
//!
//! A call is its tag (one byte: the number in the low six bits, two flags above), then its
//! arguments as LEB128 numbers. Pages, objects, units of the swap tier and ticks are differences
//! from the last one of their kind, in zigzag form: 0, -1, 1, -2 are 0, 1, 2, 3. At the start of a
//! block all of them are 0. docs/trace.md has the table of the calls.
//!
//! Notes can stand between calls; their tags are 48 and above. They are no calls and have no
//! numbers. Each has its length, so that a reader can skip unknown notes.

mod contents;

use alloc::vec::Vec;
pub use contents::{Contents, Whose, CODECS_MAX, LEN_MAX};

use crate::budget::LEVELS;
use crate::core_call::{CoreCall, Fields};
use crate::driver::Seen;
use crate::evict::Answer;
use crate::fault::{Filled, Stored};
use crate::ids::{Extent, ObjectId, Page, PageRange, ProcId};
use crate::object::ContentHash;
use crate::reclaim::{Coded, Origin};
use crate::sample::Sampled;

/// Why bytes cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damaged {
    /// The bytes end in the middle of a call.
    Short,
    /// A tag, a variant or a number that no call has.
    Wrong,
}

/// A note between two calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// The sampling from here on.
    Sampled(Sampled),
    /// What a page contained.
    Contents(Contents),
    /// A note that this version does not know.
    Unknown {
        /// Its tag, 48 to 63.
        tag: u8,
    },
}

/// A call or a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// The next call.
    Call(CoreCall<'a>),
    /// A note before the next call.
    Note(Note),
}

/// The last value of each kind.
#[derive(Debug, Clone, Copy, Default)]
struct Last {
    page: u64,
    object: u64,
    unit: u64,
    tick: u64,
}

/// Encodes calls from the start of a block on.
#[derive(Debug, Default)]
pub struct Encoder {
    last: Last,
}

/// Decodes the calls and notes of a block.
#[derive(Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    last: Last,
    /// Flags of the call that is being read, and the number of pages of its answer.
    flags: u8,
    answered: u32,
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
    let by = value.wrapping_sub(core::mem::replace(last, value)) as i64;
    number(out, (by << 1 ^ by >> 63) as u64);
}

/// Tags from this on are notes.
const NOTES: u8 = 48;
const SAMPLED: u8 = 48;
const CONTENTS: u8 = 49;
const FLAGS_SHIFT: u32 = 6;

impl Encoder {
    /// Appends a note; [`Note::Unknown`] appends nothing.
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
        tagged(out, tag, &[body.len() as u64]);
        out.append(&mut body);
    }

    /// Appends a call.
    pub fn call(&mut self, out: &mut Vec<u8>, call: &CoreCall<'_>) {
        let tag = out.len();
        out.push(call.kind() as u8);
        call.fields(&mut Put { last: &mut self.last, out, tag, pages: 0 });
    }
}

fn tagged(out: &mut Vec<u8>, tag: u8, numbers: &[u64]) {
    out.push(tag);
    numbers.iter().for_each(|&n| number(out, n));
}

/// Appends the arguments of a call whose tag is at `tag`.
struct Put<'a> {
    last: &'a mut Last,
    out: &'a mut Vec<u8>,
    tag: usize,
    pages: u32,
}

impl Put<'_> {
    fn flags(&mut self, flags: u8) {
        self.out[self.tag] |= flags << FLAGS_SHIFT;
    }

    fn number(&mut self, value: impl Into<u64>) {
        number(self.out, value.into());
    }
}

impl Fields for Put<'_> {
    fn proc(&mut self, _: &'static str, proc: ProcId) {
        self.number(proc.0);
    }

    fn page(&mut self, _: &'static str, page: Page) {
        difference(self.out, &mut self.last.page, page.0);
    }

    fn range(&mut self, name: &'static str, range: PageRange) {
        self.page(name, range.first);
        self.number(range.pages);
    }

    fn limit(&mut self, _: &'static str, limit: PageRange) {
        difference(self.out, &mut self.last.page.clone(), limit.first.0);
        self.number(limit.pages);
    }

    fn object(&mut self, _: &'static str, object: ObjectId) {
        difference(self.out, &mut self.last.object, object.0.into());
    }

    fn tick(&mut self, _: &'static str, tick_ms: u64) {
        difference(self.out, &mut self.last.tick, tick_ms);
    }

    fn small(&mut self, _: &'static str, number: u32) {
        self.number(number);
    }

    fn hash(&mut self, _: &'static str, hash: ContentHash) {
        hash.into_iter().for_each(|part| self.number(part));
    }

    fn most(&mut self, _: &'static str, most: u32) {
        match most {
            u32::MAX => self.flags(1),
            most => self.number(most),
        }
    }

    fn pages(&mut self, _: &'static str, pages: u32) {
        self.pages = pages;
        self.number(pages);
    }

    fn answer(&mut self, _: &'static str, answer: Answer) {
        let Answer { moved, dropped, park, file } = answer;
        // Usually all pages have moved and nothing else happened.
        let all = u64::MAX >> (64 - self.pages.clamp(1, 64));
        let usual = moved == all && dropped == 0 && file == 0;
        self.flags(u8::from(usual) | u8::from(park) << 1);
        if !usual {
            [moved, dropped, file].into_iter().for_each(|mask| self.number(mask));
        }
    }

    fn flag(&mut self, _: &'static str, flag: bool) {
        self.flags(flag.into());
    }

    fn filled(&mut self, _: &'static str, filled: Filled) {
        self.flags(filled as u8);
    }

    fn origin(&mut self, _: &'static str, origin: Origin) {
        self.number(origin as u64);
    }

    fn estimate(&mut self, _: &'static str, estimate: Option<u32>) {
        self.flags(estimate.is_some().into());
        estimate.into_iter().for_each(|estimate| self.number(estimate));
    }

    fn seen(&mut self, _: &'static str, seen: Seen) {
        self.number(seen.level as u64);
        self.number(seen.gained);
        self.number(seen.unmanaged);
        self.number(seen.facts());
        self.number(seen.read_us);
    }

    fn coded(&mut self, name: &'static str, coded: Coded) {
        match coded {
            Coded::Incompressible => {}
            Coded::Bytes { codec, len } => {
                self.flags(1);
                self.number(codec);
                self.number(len);
            }
            Coded::Word(word) => {
                self.flags(2);
                self.out.extend(word.to_le_bytes());
            }
            Coded::Stored(stored) => {
                self.flags(3);
                self.stored(name, stored);
            }
        }
    }

    fn extent(&mut self, _: &'static str, extent: Extent) {
        difference(self.out, &mut self.last.unit, extent.unit.into());
    }

    fn written(&mut self, name: &'static str, extent: Option<Extent>) {
        self.flags(extent.is_some().into());
        extent.into_iter().for_each(|extent| self.extent(name, extent));
    }

    fn stored(&mut self, name: &'static str, stored: Stored) {
        self.extent(name, stored.extent);
        self.number(stored.len);
        self.number(stored.codec);
    }

    fn list(&mut self, name: &'static str, pages: &[Page]) {
        self.number(pages.len() as u64);
        pages.iter().for_each(|&page| self.page(name, page));
    }

    fn procs(&mut self, _: &'static str, procs: &[ProcId]) {
        self.number(procs.len() as u64);
        procs.iter().for_each(|proc| self.number(proc.0));
    }
}

impl<'a> Decoder<'a> {
    /// A decoder of the bytes of one block.
    pub fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { bytes, last: Last::default(), flags: 0, answered: 0, procs: Vec::new(), pages: Vec::new() }
    }

    /// The next call, without notes; `None` at the end.
    ///
    /// # Errors
    /// When no encoder can have written the bytes.
    pub fn call(&mut self) -> Result<Option<CoreCall<'_>>, Damaged> {
        while self.note()?.is_some() {}
        self.core_call()
    }

    /// The next call or note; `None` at the end.
    ///
    /// # Errors
    /// When no encoder can have written the bytes.
    pub fn item(&mut self) -> Result<Option<Item<'_>>, Damaged> {
        match self.note()? {
            Some(note) => Ok(Some(Item::Note(note))),
            None => Ok(self.core_call()?.map(Item::Call)),
        }
    }

    /// The next note, if a note comes next.
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
        // A later version may add fields, which are skipped.
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
        self.flags = first >> FLAGS_SHIFT;
        CoreCall::read(first & ((1 << FLAGS_SHIFT) - 1), self).map(Some)
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

    pub(crate) fn small(&mut self) -> Result<u32, Damaged> {
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

    pub(crate) fn proc(&mut self) -> Result<ProcId, Damaged> {
        Ok(ProcId(self.small()?))
    }

    pub(crate) fn page(&mut self) -> Result<Page, Damaged> {
        self.last.page = self.last.page.wrapping_add(self.by()?);
        Ok(Page(self.last.page))
    }

    pub(crate) fn range(&mut self) -> Result<PageRange, Damaged> {
        Ok(PageRange { first: self.page()?, pages: self.number()? })
    }

    pub(crate) fn object(&mut self) -> Result<ObjectId, Damaged> {
        self.last.object = self.last.object.wrapping_add(self.by()?);
        u32::try_from(self.last.object).map(ObjectId).map_err(|_| Damaged::Wrong)
    }

    pub(crate) fn extent(&mut self) -> Result<Extent, Damaged> {
        self.last.unit = self.last.unit.wrapping_add(self.by()?);
        u32::try_from(self.last.unit).map(|unit| Extent { unit }).map_err(|_| Damaged::Wrong)
    }

    pub(crate) fn stored(&mut self) -> Result<Stored, Damaged> {
        let (extent, len) = (self.extent()?, self.number()?.try_into().map_err(|_| Damaged::Wrong)?);
        Ok(Stored { extent, len, codec: self.byte()? })
    }

    pub(crate) fn tick(&mut self) -> Result<u64, Damaged> {
        self.last.tick = self.last.tick.wrapping_add(self.by()?);
        Ok(self.last.tick)
    }

    /// Decodes the arguments of a call by their kinds, as in [`Fields`].
    pub(crate) fn limit(&mut self) -> Result<PageRange, Damaged> {
        let first = Page(self.last.page.wrapping_add(self.by()?));
        Ok(PageRange { first, pages: self.number()? })
    }

    pub(crate) fn hash(&mut self) -> Result<ContentHash, Damaged> {
        Ok([self.small()?, self.small()?, self.small()?])
    }

    pub(crate) fn most(&mut self) -> Result<u32, Damaged> {
        if self.flags & 1 == 1 {
            Ok(u32::MAX)
        } else {
            self.small()
        }
    }

    pub(crate) fn pages(&mut self) -> Result<u32, Damaged> {
        self.answered = self.small()?;
        if (1..=64).contains(&self.answered) {
            Ok(self.answered)
        } else {
            Err(Damaged::Wrong)
        }
    }

    pub(crate) fn answer(&mut self) -> Result<Answer, Damaged> {
        let (moved, dropped, file) = match self.flags & 1 == 1 {
            true => (u64::MAX >> (64 - self.answered), 0, 0),
            false => (self.number()?, self.number()?, self.number()?),
        };
        Ok(Answer { moved, dropped, park: self.flags & 2 != 0, file })
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Damaged> {
        Ok(self.flags & 1 == 1)
    }

    pub(crate) fn filled(&mut self) -> Result<Filled, Damaged> {
        Ok([Filled::Done, Filled::Read, Filled::Exists, Filled::Retry][usize::from(self.flags)])
    }

    pub(crate) fn origin(&mut self) -> Result<Origin, Damaged> {
        let origins = [Origin::Background, Origin::Direct, Origin::Process];
        origins.get(self.number()? as usize).copied().ok_or(Damaged::Wrong)
    }

    pub(crate) fn seen(&mut self) -> Result<Seen, Damaged> {
        let level = LEVELS.get(self.number()? as usize).copied().ok_or(Damaged::Wrong)?;
        Ok(Seen::of(level, self.small()?, self.small()?, self.byte()?, self.small()?))
    }

    pub(crate) fn estimate(&mut self) -> Result<Option<u32>, Damaged> {
        Ok(if self.flags & 1 == 1 { Some(self.small()?) } else { None })
    }

    pub(crate) fn coded(&mut self) -> Result<Coded, Damaged> {
        Ok(match self.flags {
            0 => Coded::Incompressible,
            1 => Coded::Bytes { codec: self.byte()?, len: self.small()? },
            2 => Coded::Word(self.word()?),
            _ => Coded::Stored(self.stored()?),
        })
    }

    pub(crate) fn written(&mut self) -> Result<Option<Extent>, Damaged> {
        Ok(if self.flags & 1 == 1 { Some(self.extent()?) } else { None })
    }

    pub(crate) fn list(&mut self) -> Result<&[Page], Damaged> {
        self.pages.clear();
        for _ in 0..self.small()? {
            let page = self.page()?;
            self.pages.push(page);
        }
        Ok(&self.pages)
    }

    pub(crate) fn procs(&mut self) -> Result<&[ProcId], Damaged> {
        self.procs.clear();
        for _ in 0..self.small()? {
            let proc = self.proc()?;
            self.procs.push(proc);
        }
        Ok(&self.procs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Level;
    use crate::core_call::CALL_NAMES;

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

    /// Each call at least once, with numbers at the limits of their ranges.
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
            CoreCall::NextStep { tick: u64::from(u32::MAX) + 1, seen: Seen::default() },
            CoreCall::NextStep { tick: 0, seen: Seen::of(Level::FarOver, u32::MAX, 300, 0xff, 7000) },
            CoreCall::SwapTakes { takes: true },
            CoreCall::PickWriteback { pressed: false, most_bytes: u32::MAX },
            CoreCall::BlockOf { object: ObjectId(u32::MAX - 1) },
            CoreCall::Written { object, extent: Some(Extent { unit: 0 }) },
            CoreCall::Written { object, extent: None },
            CoreCall::Relocated { object, from: Extent { unit: 12 }, to: stored(13) },
            CoreCall::Inherit { child: P, range: PageRange::ALL },
            CoreCall::NotCompressed { object },
            CoreCall::Shares { proc: P, first: Page(16), shared: 0xffff },
            CoreCall::SharesNothing { proc: P },
            CoreCall::ClaimShared { proc: P, range: range(5, 6), tick: 3 },
            CoreCall::PickShared { most: 128, tick: 4, free: &[P] },
            CoreCall::SameAs { object, hash: [0, u32::MAX, 7] },
            CoreCall::Refused { object },
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
        // A note with unknown fields, and an unknown note.
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
        assert_eq!(Decoder::new(&[CALL_NAMES.len() as u8]).item(), Err(Damaged::Wrong));
    }

    #[test]
    fn what_follows_each_other_is_short() {
        let loads: Vec<CoreCall<'_>> = (0..16)
            .map(|i| CoreCall::Loaded { proc: P, page: Page(0x7_1234_5678 + i), filled: Filled::Done })
            .collect();
        // Tag, process, difference; the first entry has its page.
        assert_eq!(encoded(&loads).len(), 16 * 3 + 5);
    }

    /// A truncated block or a changed byte gives calls or an error, and no more calls than bytes.
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
