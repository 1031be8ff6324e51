//! A recorded run as a workload: what its programs did, without the decisions of its scheme.
//!
//! The recording is replayed at the same time. The replay says where each page is and checks that
//! the recording was read right.
//!
//! The content of a page is known only when the page was compressed, which is after it left. Events
//! wait for it, at most [`WAITING`] of them. A run recorded with contents has the sizes that
//! several codecs give for each page, and for some sampled pages also when no codec compressed
//! them. A page that came back before it was compressed or sampled has no known content. It gets
//! its last known content, otherwise the last one of its region, otherwise, in a miniature, that of
//! one of the sampled pages.

use crate::contents::{Content, ContentId, Contents};
use crate::event_source::{Batch, EventSource, BATCH};
use crate::hash::{NumberMap, NumberSet};
use crate::replay::{begins, ReplayError};
use crate::workload::{Access, Event, UNKNOWN};
use memfit_codec::CodecId;
use memfit_core::sample::{mix, Sampled, REGION_PAGES};
use memfit_core::scheme::SwapFormat;
use memfit_core::trace::{Contents as Held, Damaged, Decoder, Item, Note, Whose};
use memfit_core::{Coded, Core, CoreCall, Entry, Filled, ObjectId, Page, PageRange};
use memfit_trace::{Block, ReadError, Reader, MEMFIT};
use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;

/// Most events that wait for the content of a page.
const WAITING: usize = 1 << 16;
/// Pages of a region; they compress alike.
const REGION: u64 = 64;
/// Most contents of sampled pages that are kept to stand for others.
const KEPT: usize = 4096;

/// An evicted page whose content is not known yet.
#[derive(Debug, Clone, Copy)]
struct AwaitingContent {
    proc: u32,
    page: u64,
    /// Number of its event, counted from the start.
    event: u64,
    /// Number of the call that evicted it.
    call: u64,
    entropy: Option<u32>,
    /// Its recorded content.
    held: Option<ContentId>,
}

/// Contents in the recording, as far as it was read.
#[derive(Debug, Clone, Default)]
pub struct RecordedContents {
    /// Pages whose content was recorded.
    pub pages: u64,
    /// Bit mask of the codecs that were tried.
    codecs: u32,
    /// Distinct pages of the sample.
    sampled: u64,
    /// A uniform sample of these.
    kept: Vec<Content>,
}

impl RecordedContents {
    fn see(&mut self, held: &Held) {
        self.pages += 1;
        self.codecs |= held.tried().fold(0, |bits, (codec, _)| bits | 1 << codec);
    }

    /// Adds a page of the sample.
    fn keep(&mut self, content: Content) {
        self.sampled += 1;
        if self.kept.len() < KEPT {
            return self.kept.push(content);
        }
        if let Some(place) = self.kept.get_mut((mix(self.sampled) % self.sampled) as usize) {
            *place = content;
        }
    }

    /// Whether this codec was tried; a trained one, with any dictionary.
    pub fn has(&self, codec: CodecId) -> bool {
        (codec.0..memfit_core::trace::CODECS_MAX as u8)
            .take_while(|&id| id == codec.0 || CodecId(id).name() == codec.name())
            .any(|id| self.codecs >> id & 1 == 1)
    }

    /// Contents of sampled pages, to stand for pages whose content was not recorded.
    pub fn kept(&self) -> &[Content] {
        &self.kept
    }
}

/// A recording that is being read.
pub struct Recorded<R> {
    reader: Reader<R>,
    core: Core,
    contents: Contents,
    events: VecDeque<Event>,
    /// Number of events handed out.
    gone: u64,
    /// Evicted pages of unknown content, by object.
    left: NumberMap<ObjectId, AwaitingContent>,
    /// The same in the order of their events; skips entries whose content is known by now.
    waiting: VecDeque<(u64, ObjectId)>,
    faults: NumberSet<(u32, u64)>,
    /// The last mapping reported for each process.
    mapped: NumberMap<u32, PageRange>,
    /// Content found last, by process and region.
    found: NumberMap<(u32, u64), ContentId>,
    /// Content found last of sampled pages, by process and page.
    seen: NumberMap<(u32, u64), ContentId>,
    noted: RecordedContents,
    /// Share of the run's time in which its programs computed, in 1024ths.
    computing: u64,
    at_ns: u64,
    tick: Option<u64>,
    /// By the last note; `None` if the run was recorded without accesses.
    sampled: Option<Sampled>,
    /// Only these pages are reported, if set.
    only: Option<Sampled>,
    /// Contents that stand for those that were not recorded.
    others: Arc<[Content]>,
    same: u64,
    ended: bool,
    cut: Option<ReadError>,
    /// Size of the recording in bytes, if it is known.
    length: Option<u64>,
}

impl<R: Read> Recorded<R> {
    /// Begins to read. `computing`: share of the run's time in which its programs computed, 0 to 1;
    /// they waited for the rest.
    ///
    /// # Errors
    /// If the recording is from another version of memfit, or no core can be made from its head.
    pub fn new(reader: Reader<R>, computing: f64) -> Result<Recorded<R>, ReplayError> {
        if reader.head().memfit != MEMFIT {
            return Err(ReplayError::Version(reader.head().memfit.clone()));
        }
        let mut core = Core::new(reader.head().tunables().map_err(ReplayError::Head)?);
        core.hash_decisions();
        Ok(Recorded {
            reader,
            core,
            contents: Contents::new(),
            events: VecDeque::new(),
            gone: 0,
            left: NumberMap::default(),
            waiting: VecDeque::new(),
            faults: NumberSet::default(),
            mapped: NumberMap::default(),
            found: NumberMap::default(),
            seen: NumberMap::default(),
            noted: RecordedContents::default(),
            computing: (computing.clamp(0.0, 1.0) * 1024.0) as u64,
            at_ns: 0,
            tick: None,
            sampled: None,
            only: None,
            others: Arc::new([]),
            same: 0,
            ended: false,
            cut: None,
            length: None,
        })
    }

    /// Where and why the recording was cut, once the reader has reached that place.
    pub fn cut(&self) -> Option<&ReadError> {
        self.cut.as_ref()
    }

    /// Time of the run so far, ns.
    pub fn run_ns(&self) -> u64 {
        self.at_ns
    }

    /// Number of calls so far.
    pub fn calls(&self) -> u64 {
        self.core.number()
    }

    /// Reports only sampled pages. A page whose content was not recorded gets one of `others`.
    #[must_use]
    pub fn of_sample(self, sampled: Sampled, others: Arc<[Content]>) -> Recorded<R> {
        Recorded { only: Some(sampled), others, ..self }
    }

    /// Contents in the recording, as far as it was read.
    pub fn noted(&self) -> &RecordedContents {
        &self.noted
    }

    /// Sets the size of the recording in bytes, for [`EventSource::share`].
    #[must_use]
    pub fn of_length(self, length: Option<u64>) -> Recorded<R> {
        Recorded { length, ..self }
    }

    /// The pages that the run samples, by what was read, which is ahead of the events handed out.
    /// The recording has nearly all touches of these pages. `None` if the run was recorded without
    /// accesses.
    pub fn sampled(&self) -> Option<Sampled> {
        self.sampled
    }

    /// The replayed core.
    pub fn core(&self) -> &Core {
        &self.core
    }

    fn read_block(&mut self) -> Result<(), ReplayError> {
        let offset = self.reader.offset();
        let block = match self.reader.block() {
            Ok(Some(block)) => block,
            Ok(None) => {
                self.ended = true;
                return Ok(());
            }
            Err(error) if error.is_cut() => {
                (self.cut, self.ended) = (Some(error), true);
                return Ok(());
            }
            Err(error) => return Err(ReplayError::Read(error)),
        };
        let begins = begins(&block);
        if (self.core.number() + 1, self.core.decided()) != (begins.first, begins.decided) {
            return Err(ReplayError::Diverged { after: self.same, before: begins.first });
        }
        self.same = self.core.number();
        // Copied, because the reader keeps the block's bytes.
        let asked = match block {
            Block::Calls { bytes, calls, .. } => Some((bytes.to_vec(), calls)),
            Block::End(_) => None,
        };
        // The ticks of the calls may have been ahead of it.
        self.passes(begins.at_ns.saturating_sub(self.at_ns));
        self.at_ns = self.at_ns.max(begins.at_ns);
        self.tick = None;
        let Some((bytes, mut left)) = asked else { return Ok(()) };
        let wrong = |damaged| ReplayError::Calls(offset, damaged);
        let mut decoder = Decoder::new(&bytes);
        while let Some(item) = decoder.item().map_err(wrong)? {
            let asked = match item {
                Item::Call(asked) => asked,
                Item::Note(Note::Sampled(sampled)) => {
                    self.sampled = Some(sampled);
                    continue;
                }
                Item::Note(Note::Contents(held)) => {
                    self.held(&held);
                    continue;
                }
                Item::Note(Note::Unknown { .. }) => continue,
            };
            left = left.checked_sub(1).ok_or(wrong(Damaged::Wrong))?;
            self.before(&asked);
            self.core.replay(&asked);
            self.after(&asked);
        }
        if left == 0 {
            Ok(())
        } else {
            Err(wrong(Damaged::Short))
        }
    }

    fn passes(&mut self, ns: u64) {
        let ns = ns / 1024 * self.computing;
        if ns > 0 {
            self.push(Event::Computes { ns });
        }
    }

    /// Some calls carry ticks, more often than blocks begin.
    fn ticks(&mut self, tick: u64) {
        if let Some(last) = self.tick.filter(|&last| tick > last) {
            let ns = (tick - last) * 1_000_000;
            self.passes(ns);
            self.at_ns += ns;
        }
        self.tick = Some(tick);
    }

    fn push(&mut self, event: Event) {
        self.events.push_back(event);
    }

    fn tells(&self, page: Page) -> bool {
        self.only.is_none_or(|sampled| sampled.has(page))
    }

    /// The part of the mapping around a page that the workload reports. With sampling it is the
    /// page's sample region, so that a simulated fault brings in sampled pages only.
    fn told_of(&self, page: Page, limit: PageRange) -> PageRange {
        if self.only.is_none() {
            return limit;
        }
        let region = page.0 / REGION_PAGES * REGION_PAGES;
        let (first, end) = (limit.first.0.max(region), (limit.first.0 + limit.pages).min(region + REGION_PAGES));
        PageRange { first: Page(first), pages: if self.tells(page) { end.saturating_sub(first) } else { 0 } }
    }

    /// Reports what is visible only before the core carries out the call.
    fn before(&mut self, asked: &CoreCall<'_>) {
        match *asked {
            CoreCall::RemoveProcess { proc } => {
                self.push(Event::Ends { proc: proc.0 });
                self.mapped.remove(&proc.0);
                self.found.retain(|&(other, _), _| other != proc.0);
                self.seen.retain(|&(other, _), _| other != proc.0);
                self.faults.retain(|&(other, _)| other != proc.0);
            }
            CoreCall::Fault { proc, page, limit, .. } => {
                self.faults.insert((proc.0, page.0));
                let limit = self.told_of(page, limit);
                if limit.pages > 0 && self.mapped.insert(proc.0, limit) != Some(limit) {
                    let (first, pages) = (limit.first.0, limit.pages);
                    self.push(Event::Maps { proc: proc.0, first, pages, kind: UNKNOWN });
                }
            }
            CoreCall::Loaded { proc, page, filled } => {
                let entry = self.core.entry(proc, page);
                if filled == Filled::Retry {
                    return;
                }
                if let Entry::Loading(object) = entry {
                    // An object without another reference will never be compressed now.
                    if self.core.refs(object) == 1 {
                        self.left.remove(&object);
                    }
                }
                let (proc, page) = (proc.0, page.0);
                let how = if filled == Filled::Read { Access::File } else { Access::Read };
                let asked_for = self.faults.remove(&(proc, page));
                let was_there = filled == Filled::Exists && matches!(entry, Entry::Filling(_));
                if !self.tells(Page(page)) {
                    return;
                }
                self.push(match (was_there, asked_for) {
                    (true, _) => Event::Present { proc, page },
                    (_, true) => Event::Touches { proc, page, how },
                    (_, false) => Event::Brought { proc, page },
                });
            }
            CoreCall::Removed { proc, range }
            | CoreCall::Unmapped { proc, range }
            | CoreCall::Disown { proc, range } => {
                self.push(Event::Frees { proc: proc.0, first: range.first.0, pages: range.pages });
            }
            CoreCall::Remapped { proc, from, to } => {
                self.push(Event::Moves { proc: proc.0, first: from.first.0, pages: from.pages, to: to.0 });
            }
            CoreCall::ReclaimProcess { proc } => self.push(Event::LeavesWhole { proc: proc.0, leaves: true }),
            CoreCall::StopProcessReclaim { proc } => self.push(Event::LeavesWhole { proc: proc.0, leaves: false }),
            CoreCall::SetBackground { proc, background } => {
                self.push(Event::Background { proc: proc.0, background });
            }
            CoreCall::Compressed { object, coded } => self.known(object, coded),
            CoreCall::Offer { object, estimate, .. } => {
                let held = self.left.get_mut(&object).and_then(|left| {
                    left.entropy = estimate;
                    left.held
                });
                // A page that is offered was not found unchanged.
                if let Some((left, content)) = held.and_then(|content| Some((self.left.remove(&object)?, content))) {
                    self.learn(left, content);
                }
            }
            CoreCall::PickVictims { tick, .. } | CoreCall::NextStep { tick, .. } => self.ticks(tick),
            CoreCall::Evicted { tick, .. } if tick > 0 => self.ticks(tick),
            _ => {}
        }
    }

    /// Reports what is visible only after the call.
    fn after(&mut self, asked: &CoreCall<'_>) {
        match *asked {
            CoreCall::AddProcess { .. } => {
                let proc = self.core.last_process().0;
                self.push(Event::Starts { proc });
            }
            CoreCall::Forked { parent, present, .. } => {
                let child = self.core.last_process().0;
                self.push(Event::Forks { parent: parent.0, child, present });
            }
            CoreCall::Adopt { proc, page, .. } if self.tells(page) => {
                self.push(Event::Present { proc: proc.0, page: page.0 })
            }
            CoreCall::EndQuarantine { proc, page, present: true, .. }
                if self.tells(page) && matches!(self.core.entry(proc, page), Entry::Resident | Entry::Lazy) =>
            {
                self.push(Event::Present { proc: proc.0, page: page.0 });
            }
            CoreCall::Evicted { proc, first, pages, answer, .. } => {
                for i in 0..u64::from(pages) {
                    let page = first.0 + i;
                    let entry = self.core.entry(proc, Page(page));
                    if !self.tells(Page(page)) {
                        // An earlier object can have had this number.
                        if let Entry::Out(object) = entry {
                            self.left.remove(&object);
                        }
                        continue;
                    }
                    if let Entry::Out(object) = entry {
                        let event = self.gone + self.events.len() as u64;
                        let call = self.core.number();
                        self.left.insert(
                            object,
                            AwaitingContent { proc: proc.0, page, event, call, entropy: None, held: None },
                        );
                        self.waiting.push_back((event, object));
                        // `ready` hands the event out when its content is known.
                        let file = answer.file >> i & 1 == 1;
                        let (proc, content) = (proc.0, None);
                        self.push(Event::Leaves { proc, page, content, guessed: false, file, same: false });
                    } else if answer.dropped >> i & 1 == 1 {
                        self.push(Event::Frees { proc: proc.0, first: page, pages: 1 });
                    }
                }
            }
            _ => {}
        }
    }

    /// A codec has compressed an object: its content is known.
    fn known(&mut self, object: ObjectId, coded: Coded) {
        let Some(left) = self.left.remove(&object) else { return };
        if let Coded::Stored(_) = coded {
            self.unchanged(left.event);
        }
        if let Some(content) = left.held {
            return self.learn(left, content);
        }
        let raw_slots = self.core.tunables().scheme.swap_format.kind == SwapFormat::RawSlots;
        let content = match coded {
            // A raw slot says nothing about the length: `guess` takes what was known of the page.
            Coded::Stored(_) if raw_slots => return,
            Coded::Word(word) => Content::word(word),
            Coded::Bytes { codec, len } => Content::coded(CodecId(codec), Some(len as u16), left.entropy),
            Coded::Stored(stored) => match stored.codec {
                0 => Content::coded(CodecId(0), None, left.entropy),
                codec => Content::coded(CodecId(codec), Some(stored.len), left.entropy),
            },
            Coded::Incompressible => Content::coded(CodecId(0), None, left.entropy),
        };
        let content = self.contents.near(content);
        self.learn(left, content);
    }

    fn learn(&mut self, left: AwaitingContent, content: ContentId) {
        self.found.insert((left.proc, left.page / REGION), content);
        if self.only.is_some() {
            self.seen.insert((left.proc, left.page), content);
        }
        self.tell(left.event, content);
    }

    /// Takes a recorded content.
    fn held(&mut self, held: &Held) {
        self.noted.see(held);
        let content = Content::held(held);
        match held.whose {
            Whose::Object(object) => {
                // The codec, or the answer to the offer, follows.
                if let Some(left) = self.left.get_mut(&object) {
                    left.held = Some(self.contents.near(content));
                }
            }
            Whose::Page { proc, page, calls } if self.tells(page) => {
                let name = self.contents.near(content);
                if self.seen.insert((proc.0, page.0), name).is_none() {
                    self.noted.keep(content);
                }
                self.found.insert((proc.0, page.0 / REGION), name);
                // The page may have come back and left again since the content was read.
                let Entry::Out(object) = self.core.entry(proc, page) else { return };
                let looked = self.core.number().saturating_sub(calls);
                let same = |left: &AwaitingContent| (left.proc, left.page) == (proc.0, page.0) && left.call <= looked;
                if self.left.get(&object).is_some_and(same) {
                    if let Some(left) = self.left.remove(&object) {
                        self.learn(left, name);
                    }
                }
            }
            Whose::Page { .. } => {}
        }
    }

    fn unchanged(&mut self, event: u64) {
        let index = event.checked_sub(self.gone).map(|index| index as usize);
        if let Some(Event::Leaves { same, .. }) = index.and_then(|index| self.events.get_mut(index)) {
            *same = true;
        }
    }

    fn tell(&mut self, event: u64, found: ContentId) {
        let Some(index) = event.checked_sub(self.gone) else { return };
        if let Some(Event::Leaves { content, .. }) = self.events.get_mut(index as usize) {
            *content = Some(found);
        }
    }

    /// Number of events that can be handed out: those before the first that still waits.
    fn ready(&mut self) -> usize {
        while let Some(&(event, object)) = self.waiting.front() {
            let waits = self.left.get(&object).is_some_and(|left| left.event == event);
            if waits && !self.ended && self.events.len() < WAITING {
                return event.saturating_sub(self.gone) as usize;
            }
            self.waiting.pop_front();
            if event >= self.gone {
                self.guess(event);
            }
        }
        self.events.len()
    }

    /// The content of this page will never be known: takes the last one of the page, of its region,
    /// or of a page of the sample.
    fn guess(&mut self, event: u64) {
        let index = (event - self.gone) as usize;
        let Some(&Event::Leaves { proc, page, content: None, .. }) = self.events.get(index) else { return };
        let own = self.seen.get(&(proc, page)).copied();
        let near = self.found.get(&(proc, page / REGION)).copied();
        let found = own.or(near).or_else(|| self.other(proc, page));
        if let Some(Event::Leaves { content, guessed, .. }) = self.events.get_mut(index) {
            (*content, *guessed) = (found, found.is_some() && own.is_none());
        }
    }

    /// Content of a page of the sample, always the same one for the same page.
    fn other(&mut self, proc: u32, page: u64) -> Option<ContentId> {
        let which = mix(page ^ u64::from(proc) << 48).checked_rem(self.others.len() as u64)?;
        Some(self.contents.near(self.others[which as usize]))
    }
}

impl<R: Read + Send> EventSource for Recorded<R> {
    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReplayError> {
        batch.clear();
        loop {
            let ready = self.ready().min(BATCH - batch.events.len());
            batch.events.extend(self.events.drain(..ready));
            self.gone += ready as u64;
            if batch.events.len() >= BATCH || (self.ended && self.events.is_empty()) {
                break;
            }
            if !self.ended {
                self.read_block()?;
            }
        }
        batch.learn(&self.contents);
        Ok(!batch.events.is_empty())
    }

    /// By bytes read. Events that wait are only a few blocks behind.
    fn share(&self) -> Option<f64> {
        self.length.map(|length| (self.reader.offset() as f64 / length.max(1) as f64).min(1.0))
    }

    fn end(&self) -> Option<String> {
        self.cut.as_ref().map(|cut| format!("{cut}: what came before it was used"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::CostTable;
    use crate::device::Device;
    use crate::{Machine, Recorder, Residents, Setup};
    use memfit_core::sample::EVERYTHING;
    use memfit_core::{Answer, ProcId};

    const LZ4: Coded = Coded::Bytes { codec: 1, len: 900 };

    /// A recording without calls: tests make them.
    fn without_calls() -> Vec<u8> {
        let setup = Setup {
            scheme: Arc::new(memfit_scheme::preset("memfit", &[]).unwrap().unwrap()),
            budget: 16 << 20,
            swap_bytes: 64 << 20,
            residents: Residents::Simulated,
            rate: 1.0,
            tables_per_frame: 0,
            costs: Arc::new(CostTable::find("measured").unwrap()),
            device: Arc::new(Device::find("ssd-nvme").unwrap()),
        };
        let mut machine = Machine::new(&setup, Contents::new());
        Recorder::start(&mut machine, Vec::new(), Vec::new()).unwrap().finish(&mut machine).unwrap()
    }

    struct Calls<'a>(Recorded<&'a [u8]>, ProcId);

    impl Calls<'_> {
        /// Begins with a process, and samples pages below this threshold.
        fn new(bytes: &[u8], threshold: u32) -> Calls<'_> {
            let others = Arc::new([Content::noise()]);
            let recorded = Recorded::new(Reader::new(bytes).unwrap(), 1.0).unwrap();
            let mut calls = Calls(recorded.of_sample(Sampled { threshold, period_ms: 100 }, others), ProcId(0));
            calls.call(CoreCall::AddProcess { slots: 64 });
            calls.1 = calls.0.core.last_process();
            calls
        }

        fn call(&mut self, call: CoreCall<'_>) {
            self.0.before(&call);
            self.0.core.replay(&call);
            self.0.core.apply_effects(|_, _| {});
            self.0.after(&call);
        }

        fn adopts(&mut self, page: u64) {
            self.call(CoreCall::Adopt { proc: self.1, page: Page(page), zero: false });
        }

        fn evicts(&mut self, page: u64) -> ObjectId {
            let (proc, first, tick) = (self.1, Page(page), 1);
            self.call(CoreCall::ClaimRange { proc, range: PageRange { first, pages: 1 }, most: 1, tick });
            let answer = Answer { moved: 1, ..Answer::default() };
            self.call(CoreCall::Evicted { proc, first, pages: 1, answer, tick });
            match self.0.core.entry(proc, first) {
                Entry::Out(object) => object,
                other => panic!("page {page} is {other:?}"),
            }
        }

        fn compresses(&mut self, object: ObjectId) {
            self.call(CoreCall::PickCompress { most: 1 });
            self.call(CoreCall::Compressed { object, coded: LZ4 });
        }

        fn brings_back(&mut self, page: u64) {
            let (proc, page) = (self.1, Page(page));
            let limit = PageRange { first: page, pages: 1 };
            self.call(CoreCall::Fault { proc, page, limit, most: 1 });
            self.call(CoreCall::Loaded { proc, page, filled: Filled::Done });
        }

        /// Content, and whether it was guessed, of each page that left.
        fn left(&mut self) -> Vec<(u64, Option<Content>, bool)> {
            self.0.ended = true;
            self.0.ready();
            let contents = &self.0.contents;
            let left = |event: &Event| match *event {
                Event::Leaves { page, content, guessed, .. } => {
                    Some((page, content.map(|content| *contents.get(content)), guessed))
                }
                _ => None,
            };
            self.0.events.iter().filter_map(left).collect()
        }
    }

    #[test]
    fn the_content_of_another_page_is_a_guess() {
        let bytes = without_calls();
        let mut calls = Calls::new(&bytes, EVERYTHING);
        let (own, near, far) = (5, 6, 5 + 10 * REGION);
        [own, near, far].into_iter().for_each(|page| calls.adopts(page));
        let object = calls.evicts(own);
        calls.compresses(object);
        calls.brings_back(own);
        [own, near, far].into_iter().for_each(|page| _ = calls.evicts(page));
        let known = Some(Content::coded(CodecId(1), Some(900), None));
        let other = Some(Content::noise());
        let expected = [(own, known, false), (own, known, false), (near, known, true), (far, other, true)];
        assert_eq!(calls.left(), expected);
    }

    /// A page that is freed before it is compressed leaves the number of its object to another one.
    #[test]
    fn a_page_of_the_sample_does_not_get_the_content_of_another_page() {
        let bytes = without_calls();
        let sampled = Sampled { threshold: EVERYTHING / 2, period_ms: 100 };
        let is_sampled = |page: &u64| sampled.has(Page(*page));
        let regions = || (0..1000).map(|region| region * REGION_PAGES);
        let inside = regions().find(is_sampled).unwrap();
        let outside = regions().find(|page| !is_sampled(page)).unwrap();
        let mut calls = Calls::new(&bytes, sampled.threshold);
        calls.0.others = Arc::new([]);
        calls.adopts(inside);
        calls.adopts(outside);
        let freed = calls.evicts(inside);
        calls.call(CoreCall::Unmapped { proc: calls.1, range: PageRange { first: Page(inside), pages: 1 } });
        let object = calls.evicts(outside);
        assert_eq!(object, freed, "numbers are used again");
        calls.compresses(object);
        assert_eq!(calls.left(), [(inside, None, false)]);
    }
}
