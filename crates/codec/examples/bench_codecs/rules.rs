//! Results of selection rules on the real heaps: which codecs to weigh, and how much better a
//! slower one must be.
//!
//! As in the codec selector: the first codec is used up to the score "good enough", else each
//! slower one that beats the best so far by "worth". Here the verdict is by the mean of a run of
//! pages, samples cost nothing, and times are the minimum of the passes, since other load on the
//! machine only adds time.

use crate::Heap;

/// A rule: its codecs, fastest first, and its two numbers in parts of 1024.
pub struct Rule {
    pub name: &'static str,
    pub codecs: &'static [&'static str],
    pub good_enough: usize,
    pub worth: usize,
}

const fn fast(name: &'static str, codecs: &'static [&'static str]) -> Rule {
    Rule { name, codecs, good_enough: 256, worth: 82 }
}

const fn dense(name: &'static str, codecs: &'static [&'static str]) -> Rule {
    Rule { name, codecs, good_enough: 128, worth: 41 }
}

pub static RULES: &[Rule] = &[
    fast("**Fast**", &["word-mask", "lz4"]),
    fast("Fast", &["word-mask", "lz4hc"]),
    fast("Fast", &["word-mask", "lzo"]),
    fast("Fast", &["word-mask", "zstd-fast"]),
    fast("Fast", &["wkdm", "lz4"]),
    fast("Fast", &["wk4x4", "lz4"]),
    fast("Fast", &["lz4"]),
    dense("**Dense**", &["word-mask", "zstd-fast", "zstd"]),
    dense("Dense", &["word-mask", "lz4hc", "zstd"]),
    dense("Dense", &["word-mask", "zstd-fast", "deflate"]),
    dense("Dense", &["word-mask", "zstd"]),
    dense("**Spill**", &["word-mask", "zstd-fast"]),
    dense("**Trained**", &["word-mask", "zstd-trained", "zstd"]),
    dense("Trained", &["word-mask", "zstd-trained"]),
    dense("Trained", &["word-mask", "zstd-trained", "deflate"]),
    dense("Trained", &["word-mask", "zstd-trained", "zstd-strong-trained"]),
    dense("cold", &["zstd-strong-trained"]),
];

/// Ratio, us to compress and us to decompress per page; all heaps have equal weight.
pub fn apply(rule: &Rule, heaps: &[Heap], run: usize) -> (f64, f64, f64) {
    let mut sums = (0.0, 0.0, 0.0);
    for heap in heaps {
        let figures: Vec<_> = rule.codecs.iter().map(|name| heap.codec(name)).collect();
        let (mut bytes, mut compress, mut decompress) = (0, 0.0, 0.0);
        let count = figures[0].lens.len();
        for from in (0..count).step_by(run) {
            let pages = from..(from + run).min(count);
            let lens: Vec<usize> = figures.iter().map(|f| f.lens[pages.clone()].iter().sum()).collect();
            let score = |i: usize| lens[i] * 1024 / (pages.len() * memfit_codec::PAGE_BYTES);
            let mut best = 0;
            if score(0) > rule.good_enough {
                for i in 1..lens.len() {
                    if score(i) + rule.worth < score(best) {
                        best = i;
                    }
                }
            }
            bytes += lens[best];
            compress += figures[best].compress.least * pages.len() as f64;
            decompress += figures[best].decompress.map_or(0.0, |time| time.least) * pages.len() as f64;
        }
        let count = count as f64;
        sums.0 += bytes as f64 / (count * memfit_codec::PAGE_BYTES as f64);
        sums.1 += compress / count;
        sums.2 += decompress / count;
    }
    let heaps = heaps.len() as f64;
    (sums.0 / heaps, sums.1 / heaps, sums.2 / heaps)
}
