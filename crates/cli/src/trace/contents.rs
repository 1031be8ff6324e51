//! Statistics of the contents in recordings.

use super::grouped;
use memfit_codec::CodecId;
use memfit_core::trace::{Contents, Whose, CODECS_MAX, LEN_MAX};
use serde_json::{json, Map, Value};
use std::collections::HashSet;
use std::fmt::Write;

/// Most hashes that are kept to count distinct ones (16 MiB). If there are more, every second hash
/// is kept, then every fourth and so on.
const HASHES_MAX: usize = 1 << 20;

/// Counts distinct hashes: exact up to [`HASHES_MAX`], then an estimate.
#[derive(Default)]
struct Distinct {
    kept: HashSet<u64>,
    /// This many low bits of each kept hash are 0.
    bits: u32,
}

impl Distinct {
    fn see(&mut self, hash: u64, most: usize) {
        if hash.trailing_zeros() >= self.bits {
            self.kept.insert(hash);
        }
        while self.kept.len() > most {
            self.bits += 1;
            let bits = self.bits;
            self.kept.retain(|hash| hash.trailing_zeros() >= bits);
        }
    }

    fn count(&self) -> u64 {
        (self.kept.len() as u64) << self.bits
    }
}

/// Pages whose contents were recorded.
#[derive(Default)]
pub struct Pages {
    /// Pages that were being compressed, and pages of the sample.
    compressed: u64,
    sampled: u64,
    /// Pages that repeat one word.
    words: u64,
    distinct: Distinct,
    /// By codec number: pages that repeat no word, and their compressed size, bytes.
    codecs: [(u64, u64); CODECS_MAX],
}

impl Pages {
    /// Counts a page.
    pub fn see(&mut self, contents: &Contents) {
        match contents.whose {
            Whose::Object(_) => self.compressed += 1,
            Whose::Page { .. } => self.sampled += 1,
        }
        self.distinct.see(contents.hash, HASHES_MAX);
        if contents.word.is_some() {
            self.words += 1;
            return;
        }
        for (codec, len) in contents.tried() {
            let (pages, bytes) = &mut self.codecs[usize::from(codec)];
            (*pages, *bytes) = (*pages + 1, *bytes + u64::from(len));
        }
    }

    /// Whether there are any.
    pub fn any(&self) -> bool {
        self.compressed + self.sampled > 0
    }

    /// Name, pages and compressed / original length of each tried codec, the smallest first. All
    /// dictionaries count as one codec.
    fn ratios(&self) -> Vec<(&'static str, u64, f64)> {
        let mut all: Vec<(&'static str, u64, u64)> = Vec::new();
        for (codec, &(pages, bytes)) in (0..).zip(&self.codecs) {
            let Some(name) = CodecId(codec).name().filter(|_| pages > 0) else { continue };
            match all.iter_mut().find(|(other, ..)| *other == name) {
                Some((_, p, b)) => (*p, *b) = (*p + pages, *b + bytes),
                None => all.push((name, pages, bytes)),
            }
        }
        let ratio = |(name, pages, bytes)| (name, pages, bytes as f64 / (pages * u64::from(LEN_MAX)) as f64);
        let mut all: Vec<_> = all.into_iter().map(ratio).collect();
        all.sort_by(|a, b| a.2.total_cmp(&b.2));
        all
    }

    /// As JSON.
    pub fn value(&self) -> Value {
        let codec = |(name, pages, ratio): (&str, u64, f64)| (name.into(), json!({ "pages": pages, "ratio": ratio }));
        let codecs: Map<String, Value> = self.ratios().into_iter().map(codec).collect();
        json!({
            "compressed": self.compressed,
            "sampled": self.sampled,
            "word_pages": self.words,
            "distinct": self.distinct.count(),
            "distinct_exact": self.distinct.bits == 0,
            "codecs": codecs,
        })
    }

    /// As lines.
    pub fn text(&self) -> String {
        let about = if self.distinct.bits == 0 { "" } else { "about " };
        let mut out = format!(
            "  contents   of {} pages when they were compressed, {} of the sample; {about}{} different ones, {} of one word\n",
            grouped(self.compressed),
            grouped(self.sampled),
            grouped(self.distinct.count()),
            grouped(self.words)
        );
        for (name, pages, ratio) in self.ratios() {
            let _ = writeln!(out, "    {name:20} {ratio:.3} of the size of {} others", grouped(pages));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_core::ObjectId;

    #[test]
    fn different_hashes_are_counted_exactly_and_then_nearly() {
        let hashes = |count: u64| (1..=count).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
        let count = |of: u64| {
            let mut distinct = Distinct::default();
            hashes(of).chain(hashes(of)).for_each(|hash| distinct.see(hash, 4096));
            assert!(distinct.kept.len() <= 4096);
            distinct.count()
        };
        assert_eq!([0, 1, 4096].map(count), [0, 1, 4096]);
        let many = count(100_000);
        assert!(many.abs_diff(100_000) < 8_000, "{many}");
    }

    #[test]
    fn pages_of_a_word_are_no_codecs() {
        let mut pages = Pages::default();
        assert!(!pages.any());
        let mut see = |hash, word, tried: &[(usize, u16)]| {
            let mut lens = [0; CODECS_MAX];
            tried.iter().for_each(|&(codec, len)| lens[codec] = len);
            pages.see(&Contents { whose: Whose::Object(ObjectId(1)), hash, entropy: 0, word, lens });
        };
        see(1, Some(0), &[(1, 20)]);
        see(2, None, &[(1, 1024), (5, 512)]);
        see(3, None, &[(1, 4096), (6, 1024)]);
        see(3, None, &[(1, 1024)]);
        let value = pages.value();
        assert_eq!((&value["compressed"], &value["word_pages"], &value["distinct"]), (&4.into(), &1.into(), &3.into()));
        assert_eq!(value["codecs"]["lz4"], json!({ "pages": 3, "ratio": 0.5 }));
        assert_eq!(value["codecs"]["zstd-trained"], json!({ "pages": 2, "ratio": 0.1875 }));
        assert!(pages
            .text()
            .contains("4 pages when they were compressed, 0 of the sample; 3 different ones, 1 of one word\n"));
    }
}
