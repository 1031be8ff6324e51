//! Allocates short spans of contiguous frames by index, lowest address first.
//!
//! One bit per frame says whether it is free, in words of 64 frames; a span never crosses the
//! border of a word. So freed neighbours coalesce by themselves, and the longest free run of a word
//! takes a few shifts. For every length `n` an index (a bit per word, and a bit per 64 words) says
//! which words have `n` contiguous free frames:
//!
//! ```text
//! index of n   [bit per 64 words] -> [bit per word] -> word of 64 frames -> lowest run of n
//! ```
//!
//! Metadata: 1 bit per frame, and 1.02 / 64 bits per frame and length; about 0.14 bytes per frame
//! with 8 lengths.
//!
//! **Bounded fragmentation.** A word without a run of `n` free frames has at least `floor(64 / n)`
//! used frames (`u` used frames leave at most `u + 1` gaps of at most `n - 1` frames). So an
//! allocation of `n` frames succeeds while fewer than `area / 64 * floor(64 / n)` frames are used,
//! which is about `area / n`.

use super::{table_bytes, PoolFull, Span};
use crate::grow::reserve_tight;
use alloc::vec::Vec;

/// Longest span, frames.
pub const SPAN_MAX: u32 = 8;

const WORD: u32 = u64::BITS;

/// The allocator. The bitmap covers only the words touched so far, which are the lowest ones.
#[derive(Debug)]
pub struct SpanAlloc {
    /// Bit set: frame is free. Frames beyond `area` are never free.
    free: Vec<u64>,
    /// `with_run[n - 1]` has the words with at least `n` contiguous free frames.
    with_run: Vec<WordIndex>,
    area: u32,
    used: u32,
}

impl SpanAlloc {
    /// For an area of `area` frames and spans of `1..=span_max` frames.
    pub fn new(area: u32, span_max: u32) -> Self {
        assert!((1..=SPAN_MAX).contains(&span_max), "spans of up to {span_max} frames are not supported");
        let with_run = (0..span_max).map(|_| WordIndex::default()).collect();
        SpanAlloc { free: Vec::new(), with_run, area, used: 0 }
    }

    /// Frames in use.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Frames in the area.
    pub fn area(&self) -> u32 {
        self.area
    }

    /// Takes the lowest span of `frames` frames; `None` if the area has none.
    pub fn alloc(&mut self, frames: u32) -> Option<Span> {
        let index = frames as usize - 1;
        let word = loop {
            match self.with_run[index].first() {
                Some(word) => break word,
                None => self.add_word()?,
            }
        };
        let bit = runs(self.free[word], frames).trailing_zeros();
        self.free[word] &= !(mask(frames) << bit);
        self.refresh(word);
        self.used += frames;
        Some(Span { first: word as u32 * WORD + bit, frames })
    }

    /// Allocates a span, if no more than `limit` frames are in use afterwards.
    pub fn alloc_within(&mut self, frames: u32, limit: u32) -> Result<Span, PoolFull> {
        let full = |frames_used, frames_max| PoolFull { frames_used, frames_needed: frames, frames_max };
        if self.used.saturating_add(frames) > limit {
            return Err(full(self.used, limit));
        }
        self.alloc(frames).ok_or(full(self.used, self.area))
    }

    /// Frees a span. It need not have been allocated as one span, but all of its frames must be in
    /// use.
    pub fn free(&mut self, span: Span) {
        let (word, bit) = ((span.first / WORD) as usize, span.first % WORD);
        assert!(span.frames >= 1 && bit + span.frames <= WORD, "{span:?} is no span of this allocator");
        let bits = mask(span.frames) << bit;
        assert!(span.first + span.frames <= self.area && self.free[word] & bits == 0, "{span:?} is not in use");
        self.free[word] |= bits;
        self.refresh(word);
        self.used -= span.frames;
    }

    /// Whether the frame is in use.
    pub fn is_used(&self, frame: u32) -> bool {
        let word = self.free.get((frame / WORD) as usize).copied();
        word.is_some_and(|word| word >> (frame % WORD) & 1 == 0) && frame < self.area
    }

    /// Heap bytes.
    pub fn metadata_bytes(&self) -> u64 {
        let indexes: u64 = self.with_run.iter().map(|index| table_bytes(&index.words) + table_bytes(&index.top)).sum();
        table_bytes(&self.free) + table_bytes(&self.with_run) + indexes
    }

    /// Panics unless the indexes agree with the bitmap.
    pub fn check(&self) {
        let in_area = (self.free.len() as u32 * WORD).min(self.area);
        let free: u32 = self.free.iter().map(|word| word.count_ones()).sum();
        assert_eq!(free + self.used, in_area, "free and used frames add up to those seen so far");
        for (index, frames) in self.with_run.iter().zip(1..) {
            for (word, &bits) in self.free.iter().enumerate() {
                assert_eq!(index.has(word), runs(bits, frames) != 0, "word {word} has a run of {frames}");
            }
            index.check();
        }
    }

    /// Adds the next word of the area to the bitmap; `None` at the end of the area.
    fn add_word(&mut self) -> Option<()> {
        let seen = self.free.len() as u32 * WORD;
        let left = self.area.checked_sub(seen).filter(|&left| left > 0)?;
        reserve_tight(&mut self.free, 1);
        self.free.push(mask(left.min(WORD)));
        self.refresh(self.free.len() - 1);
        Some(())
    }

    fn refresh(&mut self, word: usize) {
        let bits = self.free[word];
        for (index, frames) in self.with_run.iter_mut().zip(1..) {
            index.set(word, runs(bits, frames) != 0);
        }
    }
}

/// The lowest `n` bits, `n` in `1..=64`.
fn mask(n: u32) -> u64 {
    u64::MAX >> (WORD - n)
}

/// Bit `i` set: the bits `i..i + n` are all set in `word`.
fn runs(word: u64, n: u32) -> u64 {
    let (mut runs, mut len) = (word, 1);
    while len < n {
        let step = len.min(n - len);
        runs &= runs >> step;
        len += step;
    }
    runs
}

/// A set of word numbers that finds its lowest member.
#[derive(Debug, Default)]
struct WordIndex {
    words: Vec<u64>,
    /// Bit set: the entry of `words` is not zero. Scanned from the start: an entry covers 1 GiB of
    /// frames.
    top: Vec<u64>,
}

impl WordIndex {
    fn first(&self) -> Option<usize> {
        let (i, top) = self.top.iter().enumerate().find(|(_, top)| **top != 0)?;
        let word = i * 64 + top.trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    fn has(&self, word: usize) -> bool {
        self.words.get(word / 64).is_some_and(|bits| bits >> (word % 64) & 1 == 1)
    }

    fn set(&mut self, word: usize, member: bool) {
        let (at, up) = (word / 64, word / 64 / 64);
        if at >= self.words.len() {
            let extra = at + 1 - self.words.len();
            reserve_tight(&mut self.words, extra);
            self.words.resize(at + 1, 0);
            self.top.resize(up + 1, 0);
        }
        let bits = &mut self.words[at];
        *bits = *bits & !(1 << (word % 64)) | u64::from(member) << (word % 64);
        let any = *bits != 0;
        self.top[up] = self.top[up] & !(1 << (at % 64)) | u64::from(any) << (at % 64);
    }

    fn check(&self) {
        for (at, &bits) in self.words.iter().enumerate() {
            assert_eq!(self.top[at / 64] >> (at % 64) & 1 == 1, bits != 0, "top bit of entry {at}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_bits() {
        assert_eq!(runs(0b0111_0110, 1), 0b0111_0110);
        assert_eq!(runs(0b0111_0110, 2), 0b0011_0010);
        assert_eq!(runs(0b0111_0110, 3), 0b0001_0000);
        assert_eq!(runs(0b0111_0110, 4), 0);
        assert_eq!(runs(u64::MAX, 8), mask(57));
    }

    #[test]
    fn lowest_fit_and_coalescing() {
        let mut alloc = SpanAlloc::new(130, 4);
        let spans: Vec<Span> = (0..32).map(|_| alloc.alloc(4).unwrap()).collect();
        assert_eq!(spans[17], Span { first: 68, frames: 4 });
        // The last word of the area has two frames only.
        assert_eq!(alloc.alloc(3), None);
        assert_eq!(alloc.alloc(2), Some(Span { first: 128, frames: 2 }));
        assert_eq!(alloc.alloc(1), None);
        // The end of one span and the start of the next make a new one; lower addresses first.
        alloc.free(Span { first: 42, frames: 2 });
        alloc.free(Span { first: 44, frames: 1 });
        alloc.free(Span { first: 20, frames: 1 });
        alloc.check();
        assert_eq!(alloc.alloc(3), Some(Span { first: 42, frames: 3 }));
        assert_eq!(alloc.alloc(1), Some(Span { first: 20, frames: 1 }));
        assert_eq!(alloc.used(), 130);
        alloc.check();
    }

    #[test]
    fn spans_do_not_cross_words() {
        let mut alloc = SpanAlloc::new(1 << 14, 7);
        for i in 0..(1 << 14) / 64 * 9 {
            let span = alloc.alloc(7).unwrap();
            assert_eq!(span.first, i / 9 * 64 + i % 9 * 7);
        }
        assert_eq!(alloc.alloc(7), None);
        assert_eq!(alloc.alloc(1), Some(Span { first: 63, frames: 1 }));
        alloc.check();
    }

    #[test]
    #[should_panic(expected = "is not in use")]
    fn double_free() {
        let mut alloc = SpanAlloc::new(64, 4);
        let span = alloc.alloc(2).unwrap();
        alloc.free(span);
        alloc.free(span);
    }
}
