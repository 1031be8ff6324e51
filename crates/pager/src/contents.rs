//! Page contents, for recordings: a hash, and the size that each of some codecs makes of a page.
//!
//! Two kinds of pages are sampled: those that are about to be compressed, by the thread that
//! compresses them; and, when accesses are recorded, sampled pages in staging, most of which come
//! back before they are compressed. The latter are copied under the core lock: a staged page keeps
//! its slot that long, so it needs no pin. The copy is processed without the lock.

use crate::proc::{slot_offset, Proc};
use crate::record::Notes;
use crate::state::{Shared, State};
use crate::swap::Aligned;
use memfit_codec::{
    entropy, same_filled, CodecEntry, CodecId, CodecSelector, Dictionaries, Worker, CODEC_IDS, PAGE_BYTES,
};
use memfit_core::sample::{Sampled, REGION_PAGES};
use memfit_core::trace::{Contents as Held, Note, Whose, CODECS_MAX, LEN_MAX};
use memfit_core::{Core, Page};
use ring::hmac;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

const _: () = assert!(CODEC_IDS <= CODECS_MAX && LEN_MAX as usize == PAGE_BYTES);

/// Most CPU time for the contents of sampled pages, thousandths of one CPU.
const PERMILLE: i64 = 20;
/// Most time that is saved up for that, ns: the share of one second.
const SAVED_MAX: i64 = 20_000_000;
/// Longest step, ns, so that reclaim does not wait for it.
const STEP_MAX: i64 = 1_000_000;
/// Pages tried under one hold of the core lock.
const TRIES: usize = 64;
/// Time between two steps while pages are due, and between two rounds over all pages.
const BETWEEN: Duration = Duration::from_millis(20);
const ROUND: Duration = Duration::from_millis(100);
/// Time after which a page is read again: most keep their contents, or get similar ones.
const AGAIN: Duration = Duration::from_secs(30);
/// Pages whose last reading is remembered: more than are ever sampled at once.
const KNOWN_MAX: usize = 1 << 16;
/// Runs of the page table scanned under one hold of the core lock: under 100 us.
const RUNS: usize = 4096;

/// What all threads share.
pub struct Contents {
    /// Whether pages that are compressed are recorded.
    pub all: bool,
    codecs: Vec<CodecId>,
    dictionaries: Arc<Dictionaries>,
    key: hmac::Key,
    notes: Notes,
}

impl Contents {
    /// Makes a random key. The codecs of the scheme are always among those tried, and for a sample
    /// also LZO, the codec of the kernel's designs, for comparison.
    ///
    /// # Errors
    /// When the kernel has no random bytes.
    pub fn new(kinds: &[&'static CodecEntry], shared: &Shared, notes: Notes) -> io::Result<Contents> {
        let mut key = [0; 32];
        memfit_os::memory::random(&mut key)?;
        let own = shared.scheme.codec.kind.map_or_else(CodecSelector::all_codecs, |codec| vec![CodecId(codec)]);
        let of_the_kernel = shared.sampling.as_ref().map(|_| CodecId::LZO);
        let mut codecs = Vec::new();
        for codec in own.into_iter().chain(of_the_kernel).chain(kinds.iter().map(|codec| codec.id)) {
            if !codecs.contains(&codec) {
                codecs.push(codec);
            }
        }
        let (key, dictionaries) = (hmac::Key::new(hmac::HMAC_SHA256, &key), Arc::clone(&shared.dictionaries));
        Ok(Contents { all: !kinds.is_empty(), codecs, dictionaries, key, notes })
    }

    /// The contents of a page. `scratch` is longer than a page.
    pub fn examine(&self, whose: Whose, page: &[u8], worker: &mut Worker, scratch: &mut [u8]) -> Held {
        // Without the key nobody can test by its hash whether a page held given contents.
        let tag = hmac::sign(&self.key, page);
        let hash = tag.as_ref().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let mut lens = [0; CODECS_MAX];
        for codec in &self.codecs {
            let codec = codec.newest(self.dictionaries.count());
            // Plain zstd stands for the trained codec while there is no dictionary.
            if lens[usize::from(codec.0)] == 0 {
                let len = worker.compress(codec, page, scratch, PAGE_BYTES);
                lens[usize::from(codec.0)] = len.map_or(LEN_MAX, |len| len as u16);
            }
        }
        Held { whose, hash, entropy: entropy(page), word: same_filled(page), lens }
    }

    /// Records the contents. The caller holds the core lock, which puts the note between the right
    /// calls.
    pub fn note(&self, core: &Core, held: Held) {
        self.notes.note(core, Note::Contents(held));
    }
}

/// Reads the contents of sampled pages, step by step.
pub struct ContentScanner {
    shared: Arc<Shared>,
    worker: Worker,
    page: Aligned,
    scratch: Box<[u8]>,
    /// Pages that are due, in order.
    due: VecDeque<(Arc<Proc>, Page)>,
    /// Processes left in this round, and the region from which to go on.
    round: Vec<(Arc<Proc>, u64)>,
    /// When each page of a process was last read.
    known: HashMap<(u32, u64), Instant>,
    /// Time left, ns; negative if the last step took more than was left.
    saved: i64,
    last: Instant,
    next_round: Instant,
}

impl ContentScanner {
    /// `None` unless accesses are recorded.
    pub fn new(shared: &Arc<Shared>) -> Option<ContentScanner> {
        shared.sampling.as_ref().and(shared.contents.as_ref())?;
        let now = Instant::now();
        Some(ContentScanner {
            shared: Arc::clone(shared),
            worker: Worker::with(&shared.dictionaries),
            page: Aligned::new(PAGE_BYTES),
            scratch: vec![0; PAGE_BYTES * 2].into(),
            due: VecDeque::new(),
            round: Vec::new(),
            known: HashMap::new(),
            saved: 0,
            last: now,
            next_round: now,
        })
    }

    /// Reads as many pages as there is time for. Returns when the next step is due.
    pub fn step(&mut self) -> Duration {
        let begun = Instant::now();
        self.saved = (self.saved + (begun - self.last).as_nanos() as i64 / 1000 * PERMILLE).min(SAVED_MAX);
        self.last = begun;
        let (most, mut left) = (self.saved.min(STEP_MAX), true);
        while left && (begun.elapsed().as_nanos() as i64) < most {
            left = self.examine() || self.find();
        }
        // Includes the time of the search.
        self.saved -= begun.elapsed().as_nanos() as i64;
        match left {
            true => BETWEEN,
            false => self.next_round.saturating_duration_since(Instant::now()).max(BETWEEN),
        }
    }

    /// Reads the next page that is due. False if none was left.
    fn examine(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let Some(contents) = &shared.contents else { return false };
        let state = shared.lock();
        let copied = (0..TRIES).find_map(|_| {
            let (proc, page) = self.due.pop_front()?;
            let at = self.copy(&state, &proc, page)?;
            Some((proc, page, at))
        });
        drop(state);
        let Some((proc, page, at)) = copied else { return !self.due.is_empty() };
        let whose = |calls| Whose::Page { proc: proc.id, page, calls };
        let held = contents.examine(whose(0), self.page.bytes(), &mut self.worker, &mut self.scratch);
        self.known.insert((proc.id.0, page.0), Instant::now());
        if let Some(state) = shared.lock_for(&proc) {
            contents.note(&state.core, Held { whose: whose(state.core.number() - at), ..held });
        }
        true
    }

    /// Copies a page if it is staged now. Returns the number of the last core call.
    fn copy(&mut self, state: &State, proc: &Proc, page: Page) -> Option<u64> {
        if proc.removed.load(Relaxed) {
            return None;
        }
        let slot = state.core.staged(proc.id, page)?;
        let segment = state.segments.get(&slot.area)?;
        // The slot is the page's while the core's lock is held.
        segment.copy_page(slot_offset(slot.index), self.page.bytes());
        Some(state.core.number())
    }

    /// Finds more pages that are due. False if there can be none now.
    fn find(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let Some(sampled) = shared.sampling.as_ref().map(crate::sampling::Sampling::sampled) else { return false };
        if self.round.is_empty() {
            if Instant::now() < self.next_round {
                return false;
            }
            self.begin(sampled);
        }
        let Some((proc, from)) = self.round.pop() else { return false };
        let mut regions = Vec::new();
        let Some(state) = shared.lock_for(&proc) else { return true };
        if let Some(next) = state.core.sampled_regions(proc.id, from, RUNS, sampled, &mut regions) {
            self.round.push((Arc::clone(&proc), next));
        }
        drop(state);
        for region in regions.iter().filter(|region| region.pages > region.takeable) {
            for page in (0..REGION_PAGES).map(|i| Page(region.first().0 + i)) {
                if self.known.get(&(proc.id.0, page.0)).is_none_or(|last| last.elapsed() > AGAIN) {
                    self.due.push_back((Arc::clone(&proc), page));
                }
            }
        }
        true
    }

    /// Begins a round over all processes.
    fn begin(&mut self, sampled: Sampled) {
        self.next_round = Instant::now() + ROUND;
        let procs = self.shared.procs.lock().clone();
        if self.known.len() > KNOWN_MAX / 2 {
            // Forgets pages that are no longer sampled, or whose process has ended.
            self.known.retain(|&(id, page), _| sampled.has(Page(page)) && procs.iter().any(|proc| proc.id.0 == id));
        }
        if self.known.len() > KNOWN_MAX {
            self.known.clear();
        }
        self.round = procs.into_iter().filter(|proc| proc.identity.get().is_some()).map(|proc| (proc, 0)).collect();
    }
}
