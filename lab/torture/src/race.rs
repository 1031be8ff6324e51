//! Pages that several threads use at the same time on purpose.
//!
//! The race area consists of slots of eight pages. Four are *flip* pages. Their owner writes
//! versions, drops and frees them, while every thread reads them under a sequence count, so that a
//! reader knows exactly which values are possible. Four are *neighbours*, interleaved with the flip
//! pages or behind them, whose mapping the owner changes in every way.
//!
//! The counter area consists of pages with atomic counters that every thread increments, words that
//! belong to one thread each, and one mutex with the counter that it guards. Each thread keeps a
//! tally of its own; the sums must match.

use crate::content::PAGE;
use crate::ctx::Ctx;
use crate::report::{self, Who};
use crate::rng::{mix2, Rng};
use crate::status::MAX_THREADS;
use crate::sys::{Errno, Span, RW};
use crate::world::World;
use std::sync::atomic::{fence, AtomicBool, AtomicU64, Ordering::SeqCst};

const SLOT_PAGES: usize = 8;
const FLIPS: usize = 4;
const PAGE_WORDS: usize = PAGE / 8;

// Phases of a flip page, in the low bits of its state; the version is above.
const STABLE: u64 = 0;
const WRITING: u64 = 1;
const DROPPING: u64 = 2;
const ZERO: u64 = 3;
const PHASES: u64 = 4;

/// The race area.
pub struct RaceArea {
    span: Span,
    states: Vec<AtomicU64>,
    /// Neighbour pages whose addresses another mapping took.
    lost: Vec<AtomicBool>,
    seed: u64,
}

/// Page of a slot: even slots interleave flip pages and neighbours, odd slots separate them.
fn page_in_slot(slot: usize, i: usize, neighbour: bool) -> usize {
    let n = usize::from(neighbour);
    slot * SLOT_PAGES + if slot % 2 == 0 { 2 * i + n } else { n * FLIPS + i }
}

/// The word of a flip page: the version in the low 24 bits, a hash above.
fn flip_word(seed: u64, page: usize, word: usize, version: u64) -> u64 {
    let hash = mix2(seed ^ (page as u64) << 32, (word as u64) << 40 ^ version);
    // Never zero, because zero means a dropped page.
    hash << 24 | version & 0xFF_FFFF | 1 << 63
}

impl RaceArea {
    /// Maps `slots` slots.
    pub fn new(slots: usize, seed: u64) -> Result<RaceArea, Errno> {
        let span = Span::map(slots * SLOT_PAGES, RW, 0)?;
        let states = (0..slots * FLIPS).map(|_| AtomicU64::new(ZERO)).collect();
        let lost = (0..slots * FLIPS).map(|_| AtomicBool::new(false)).collect();
        Ok(RaceArea { span, states, lost, seed })
    }

    fn slots(&self) -> usize {
        self.states.len() / FLIPS
    }

    fn flip_page(&self, flip: usize) -> usize {
        page_in_slot(flip / FLIPS, flip % FLIPS, false)
    }

    fn is_version(&self, flip: usize, word: usize, found: u64, from: u64, to: u64) -> bool {
        let version = (from & !0xFF_FFFF) | (found & 0xFF_FFFF);
        [version, version + 0x100_0000]
            .iter()
            .any(|v| (from..=to).contains(v) && found == flip_word(self.seed, flip, word, *v))
    }

    /// Reads one word of a flip page and checks that its value is possible.
    fn read(&self, who: &Who, flip: usize, word: usize) {
        let page = self.span.sub(self.flip_page(flip), 1);
        let before = self.states[flip].load(SeqCst);
        let found = page.load(word);
        fence(SeqCst);
        let after = self.states[flip].load(SeqCst);
        let (v1, v2) = (before / PHASES, after / PHASES);
        let exact = (before == after).then_some(before % PHASES);
        let (oldest, zero_ok) = match exact {
            Some(STABLE) => (v1, false),
            Some(ZERO) => (v1 + 1, true),
            Some(DROPPING) => (v1, true),
            // While version v is written, words can still have version v - 1 or be zero.
            _ => (v1.saturating_sub(1), true),
        };
        if found == 0 && zero_ok || self.is_version(flip, word, found, oldest, v2) {
            return;
        }
        let expected = if exact == Some(ZERO) { 0 } else { flip_word(self.seed, flip, word, v2) };
        let what = format!("race page {flip}, version {v1} to {v2}, phase {} to {}", before % PHASES, after % PHASES);
        report::wrong_value(who, &what, page.addr() + word * 8, expected, found);
    }

    fn write(&self, flip: usize) {
        let page = self.span.sub(self.flip_page(flip), 1);
        let version = self.states[flip].load(SeqCst) / PHASES + 1;
        self.states[flip].store(version * PHASES + WRITING, SeqCst);
        for word in 0..PAGE_WORDS {
            page.store(word, flip_word(self.seed, flip, word, version));
        }
        self.states[flip].store(version * PHASES + STABLE, SeqCst);
    }

    fn set_phase(&self, flip: usize, phase: u64) {
        let version = self.states[flip].load(SeqCst) / PHASES;
        self.states[flip].store(version * PHASES + phase, SeqCst);
    }

    /// Drops a run of flip pages of one slot (one page if they are interleaved with neighbours).
    fn drop_bytes(&self, flip: usize, count: usize) -> Result<(), Errno> {
        (flip..flip + count).for_each(|f| self.set_phase(f, DROPPING));
        self.span.sub(self.flip_page(flip), count).advise(libc::MADV_DONTNEED)?;
        (flip..flip + count).for_each(|f| self.set_phase(f, ZERO));
        Ok(())
    }

    /// Compares all flip pages, after all threads have ended.
    pub fn verify_all(&self, who: &Who) -> usize {
        for flip in 0..self.states.len() {
            (0..PAGE_WORDS).for_each(|word| self.read(who, flip, word));
        }
        self.states.len()
    }

    /// Flips a bit in each page.
    pub fn corrupt(&self) {
        for flip in 0..self.states.len() {
            let page = self.span.sub(self.flip_page(flip), 1);
            page.store(7, page.load(7) ^ 1 << 40);
        }
    }
}

/// Reads words of one or a few flip pages of any thread.
pub fn read(ctx: &mut Ctx) {
    let area = &ctx.world.race;
    for _ in 0..ctx.rng.range(1, 4) {
        let flip = ctx.rng.below(area.states.len());
        let first = ctx.rng.below(PAGE_WORDS);
        for i in 0..64 {
            area.read(&ctx.who, flip, (first + i * 7) % PAGE_WORDS);
        }
    }
    ctx.stats.add_verified(0);
}

/// A random slot of this thread.
fn own_slot(ctx: &mut Ctx) -> usize {
    let threads = ctx.world.opts.threads;
    let per_thread = ctx.world.race.slots() / threads;
    ctx.who.thread + threads * ctx.rng.below(per_thread)
}

/// Writes or drops flip pages.
pub fn write(ctx: &mut Ctx) {
    let slot = own_slot(ctx);
    let area = &ctx.world.race;
    let i = ctx.rng.below(FLIPS);
    let flip = slot * FLIPS + i;
    let count = if slot % 2 == 0 { 1 } else { ctx.rng.range(1, FLIPS - i) };
    match ctx.rng.below(4) {
        0 => ctx.must("madvise DONTNEED", area.drop_bytes(flip, count)),
        1 => {
            ctx.must("madvise DONTNEED", area.drop_bytes(flip, count));
            (flip..flip + count).for_each(|f| area.write(f));
        }
        2 if ctx.rng.one_in(4) => {
            area.set_phase(flip, DROPPING);
            let page = area.span.sub(area.flip_page(flip), 1);
            ctx.must("madvise FREE", page.advise(libc::MADV_FREE));
        }
        _ => (flip..flip + count).for_each(|f| area.write(f)),
    }
}

fn junk(seed: u64, word: usize) -> u64 {
    mix2(seed, word as u64)
}

fn fill_junk(span: Span, seed: u64) {
    (0..span.len() / 8).step_by(16).for_each(|word| span.store(word, junk(seed, word)));
}

/// Checks every 16th word; `None`: all are zero.
fn check_junk(ctx: &Ctx, span: Span, seed: Option<u64>, what: &str) {
    for word in (0..span.len() / 8).step_by(16) {
        let expected = seed.map_or(0, |s| junk(s, word));
        let found = span.load(word);
        if found != expected {
            report::wrong_value(&ctx.who, what, span.addr() + word * 8, expected, found);
        }
    }
}

/// Changes the mapping of pages next to flip pages that others read. Afterwards the page is mapped
/// with arbitrary contents.
pub fn neighbour(ctx: &mut Ctx) {
    let slot = own_slot(ctx);
    let area = &ctx.world.race;
    let i = ctx.rng.below(FLIPS);
    if area.lost[slot * FLIPS + i].load(SeqCst) {
        return ctx.refused();
    }
    let span = area.span.sub(page_in_slot(slot, i, true), 1);
    let seed = ctx.rng.next();
    fill_junk(span, seed);
    match ctx.rng.below(6) {
        0 => {
            ctx.must("mprotect", span.protect(libc::PROT_NONE));
            ctx.must("mprotect", span.protect(RW));
            check_junk(ctx, span, Some(seed), "neighbour after mprotect NONE");
        }
        1 => {
            ctx.must("mprotect", span.protect(libc::PROT_READ));
            check_junk(ctx, span, Some(seed), "neighbour while read only");
            ctx.must("mprotect", span.protect(RW));
        }
        2 => {
            ctx.must("madvise", span.advise(libc::MADV_DONTNEED));
            check_junk(ctx, span, None, "neighbour after MADV_DONTNEED");
        }
        3 => {
            ctx.must("mmap over", Span::map_at(span.addr(), 1, RW, libc::MAP_FIXED));
            check_junk(ctx, span, None, "neighbour mapped over");
        }
        4 => hole(ctx, span, slot * FLIPS + i),
        _ => away_and_back(ctx, span, seed),
    }
}

/// Unmaps and maps again, unless another mapping takes the hole.
fn hole(ctx: &mut Ctx, span: Span, index: usize) {
    ctx.must("munmap", span.unmap());
    match Span::map_at(span.addr(), 1, RW, libc::MAP_FIXED_NOREPLACE) {
        Ok(_) => check_junk(ctx, span, None, "neighbour unmapped and mapped"),
        Err(Errno(libc::EEXIST)) => {
            ctx.world.race.lost[index].store(true, SeqCst);
            ctx.refused();
        }
        Err(e) => ctx.broken("mmap FIXED_NOREPLACE", &e),
    }
}

/// Moves the page into the arena and back, without ever leaving a hole.
fn away_and_back(ctx: &mut Ctx, span: Span, seed: u64) {
    let used = ctx.used();
    let Some(target) = ctx.arena.find(1, &used, &mut ctx.rng) else {
        return ctx.refused();
    };
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    let away = ctx.must("mremap away", span.remap(1, flags, target));
    check_junk(ctx, away, Some(seed), "neighbour moved away");
    check_junk(ctx, span, None, "neighbour left behind");
    ctx.must("mremap back", away.remap(1, flags, span.addr()));
    check_junk(ctx, span, Some(seed), "neighbour moved back");
    ctx.must("mmap NONE over", ctx.arena.reserve_again(away));
}

/// Counters per page; they are [`STRIDE`] words apart.
const COUNTERS: usize = 16;
const STRIDE: usize = PAGE_WORDS / COUNTERS;

/// Word of the `i`-th counter of a page.
fn counter_word(i: usize) -> usize {
    i * STRIDE
}

/// Word that belongs to one thread.
fn own_word(thread: usize) -> usize {
    STRIDE * (thread % COUNTERS) + 1 + thread / COUNTERS
}

/// The counter area.
pub struct CounterArea {
    span: Span,
    /// A page with a pthread mutex and the counter that it guards.
    locked: Span,
    totals: Vec<AtomicU64>,
    owned: Vec<AtomicU64>,
    locked_total: AtomicU64,
}

/// Sums of what a thread has added.
pub struct Tally {
    counters: Vec<u32>,
    owned: Vec<u32>,
    locked: u64,
    /// Seed with which the thread-local storage was filled last.
    pub tls_seed: u64,
}

impl Tally {
    /// A tally of zeros.
    pub fn new(world: &World) -> Tally {
        let pages = world.counters.span.pages();
        Tally { counters: vec![0; pages * COUNTERS], owned: vec![0; pages], locked: 0, tls_seed: 0 }
    }
}

/// Word of the guarded counter, behind the mutex.
const GUARDED: usize = 64;

impl CounterArea {
    /// Maps `pages` pages of counters for `threads` threads.
    pub fn new(pages: usize, threads: usize) -> Result<CounterArea, Errno> {
        assert!(threads <= MAX_THREADS);
        let (span, locked) = (Span::map(pages, RW, 0)?, Span::map(1, RW, 0)?);
        // SAFETY: page-aligned zero bytes; the mutex stays there and is not moved.
        unsafe { libc::pthread_mutex_init(locked.ptr().cast(), std::ptr::null()) };
        let zeros = |n: usize| (0..n).map(|_| AtomicU64::new(0)).collect();
        let (totals, owned) = (zeros(pages * COUNTERS), zeros(pages * threads));
        Ok(CounterArea { span, locked, totals, owned, locked_total: AtomicU64::new(0) })
    }

    fn threads(&self) -> usize {
        self.owned.len() / self.span.pages()
    }

    fn expect(&self, who: &Who, what: &str, span: Span, word: usize, expected: u64) {
        let found = span.load(word);
        if found != expected {
            report::wrong_value(who, what, span.addr() + word * 8, expected, found);
        }
    }

    /// Adds the tally of a thread that has ended to the totals.
    pub fn add(&self, thread: usize, tally: &Tally) {
        for (total, &n) in self.totals.iter().zip(&tally.counters) {
            total.fetch_add(u64::from(n), SeqCst);
        }
        for (page, &n) in tally.owned.iter().enumerate() {
            self.owned[page * self.threads() + thread].fetch_add(u64::from(n), SeqCst);
        }
        self.locked_total.fetch_add(tally.locked, SeqCst);
    }

    /// Checks every word of every page, after all threads have ended.
    pub fn verify_all(&self, who: &Who) -> usize {
        let threads = self.threads();
        for page in 0..self.span.pages() {
            let span = self.span.sub(page, 1);
            let mut expected = [0u64; PAGE_WORDS];
            for i in 0..COUNTERS {
                expected[counter_word(i)] = self.totals[page * COUNTERS + i].load(SeqCst);
            }
            for thread in 0..threads {
                expected[own_word(thread)] = self.owned[page * threads + thread].load(SeqCst);
            }
            for (word, &value) in expected.iter().enumerate() {
                self.expect(who, "counter page: the total of all threads", span, word, value);
            }
        }
        let total = self.locked_total.load(SeqCst);
        self.expect(who, "counter guarded by a mutex", self.locked, GUARDED, total);
        self.span.pages() + 1
    }

    /// Takes one increment back.
    pub fn corrupt(&self, rng: &mut Rng) {
        self.span.fetch_add(rng.below(self.span.pages()) * PAGE_WORDS, u64::MAX);
    }
}

/// Increments counters that all threads share, and own words in the same pages.
pub fn counter(ctx: &mut Ctx) {
    let area = &ctx.world.counters;
    let pages = area.span.pages();
    for _ in 0..ctx.rng.range(1, 32) {
        let page = if ctx.rng.one_in(2) { ctx.rng.below(pages) } else { ctx.rng.skewed(pages) };
        let span = area.span.sub(page, 1);
        if ctx.rng.one_in(4) {
            let word = own_word(ctx.who.thread);
            let mine = &mut ctx.tally.owned[page];
            area.expect(&ctx.who, "word of one thread in a shared page", span, word, u64::from(*mine));
            *mine += 1;
            span.store(word, u64::from(*mine));
        } else {
            let i = ctx.rng.below(COUNTERS);
            let before = span.fetch_add(counter_word(i), 1);
            let mine = &mut ctx.tally.counters[page * COUNTERS + i];
            if before < u64::from(*mine) {
                let at = span.addr() + counter_word(i) * 8;
                report::wrong_value(&ctx.who, "counter below our own share", at, u64::from(*mine), before);
            }
            *mine += 1;
        }
    }
}

/// Plain loads and stores under a mutex in the same page.
pub fn mutex(ctx: &mut Ctx) {
    let page = ctx.world.counters.locked;
    for _ in 0..ctx.rng.range(1, 8) {
        // SAFETY: an initialised mutex at a fixed address.
        let locked = unsafe { libc::pthread_mutex_lock(page.ptr().cast()) };
        if locked != 0 {
            ctx.broken("pthread_mutex_lock", &Errno(locked));
        }
        let value = page.load(GUARDED);
        if value < ctx.tally.locked {
            report::wrong_value(&ctx.who, "guarded counter", page.addr(), ctx.tally.locked, value);
        }
        if ctx.rng.one_in(500) {
            std::thread::yield_now();
        }
        page.store(GUARDED, value + 1);
        ctx.tally.locked += 1;
        // SAFETY: this thread has just locked it.
        unsafe { libc::pthread_mutex_unlock(page.ptr().cast()) };
    }
    if ctx.rng.one_in(1000) {
        // MADV_COLD may fail; it changes no byte.
        let _ = page.advise(libc::MADV_COLD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn slots_are_full_and_pages_distinct() {
        let mut pages = HashSet::new();
        for slot in 0..6 {
            for i in 0..FLIPS {
                assert!(pages.insert(page_in_slot(slot, i, false)));
                assert!(pages.insert(page_in_slot(slot, i, true)));
            }
        }
        assert_eq!(pages.into_iter().max(), Some(6 * SLOT_PAGES - 1));
    }

    #[test]
    fn counter_words_are_distinct() {
        let mut words: HashSet<usize> = (0..COUNTERS).map(counter_word).collect();
        words.extend((0..MAX_THREADS).map(own_word));
        assert_eq!(words.len(), COUNTERS + MAX_THREADS);
        assert!(words.iter().all(|&w| w < PAGE_WORDS));
    }

    #[test]
    fn versions_are_recognised_in_their_window_only() {
        let area = RaceArea::new(2, 99).unwrap();
        for version in [1u64, 5, 0xFF_FFFF, 0x100_0000, 0x100_0001] {
            let word = flip_word(99, 3, 17, version);
            assert_ne!(word, 0);
            assert!(area.is_version(3, 17, word, version.saturating_sub(2), version + 1));
            assert!(!area.is_version(3, 17, word, version + 1, version + 5));
            assert!(!area.is_version(3, 18, word, version, version));
            assert!(!area.is_version(2, 17, word, version, version));
        }
    }
}
