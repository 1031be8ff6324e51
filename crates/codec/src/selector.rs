//! Selects the codec of each region: the one whose time and bytes cost least, none where no codec
//! helps.
//!
//! Contents are alike within a region (256 KiB of address space; the caller makes the key). So some
//! pages of it, the samples, are compressed with every codec that could be best, and the others
//! follow the verdict. Only what the caller passes in decides, without a clock or randomness.
//!
//! | verdict | when |
//! |---|---|
//! | a codec | its time for a page, both directions, plus its mean compressed length times the price of memory ([`Worth`]) is the least |
//! | skip | of [`FAILURES_TO_SKIP`] pages in a row no codec that was tried met the limit |

use crate::codec::CodecId;

/// Scores are fractions of this: compressed length / original length; `ONE` for an incompressible
/// page.
const ONE: u16 = 1024;
/// Pages from one sample of a region to the next: at first, and at most. The number doubles with
/// each sample as long as the codec stays the same.
const WAIT_FIRST: u16 = 32;
const WAIT_MOST: u16 = 256;
/// The same in a region whose pages are skipped.
const SKIP_FIRST: u16 = 16;
const SKIP_MOST: u16 = 128;
/// Difference from the mean score that shows other contents.
const OTHER_CONTENTS: u16 = ONE / 8;
/// Failed pages in a row after which pages of a region are skipped. A page fails if all codecs that
/// were tried with it fail, so a sample counts once.
const FAILURES_TO_SKIP: u8 = 3;
/// Regions remembered: 4096 of 256 KiB are 1 GiB. Two regions in one slot displace each other,
/// which costs samples, and neither counts as new then.
const SLOTS: usize = 4096;
/// So many pages of a region count as new: as many as it has, of 4 KiB.
const NEW_PAGES: u8 = 64;
/// A page that does not compress goes to the swap tier: a write and a read, ns.
const FAILS_NS: u64 = 100_000;

/// The codecs weighed, fastest first, with and without a trained dictionary.
///
/// Reasons (`make bench-codecs`, heaps of seven programs; lab/bench/README.md has the table): of
/// the other codecs only slower ones are smaller. lzo instead of LZ4 saves 9 %, for 2.5 us more;
/// lz4hc 12 %, for eleven times the time to compress. wkdm and wk4x4 are slower than word-mask and
/// gain at most 1 % beside LZ4; deflate is larger and slower than zstd. With a dictionary of the
/// program's own pages zstd is faster than zstd-fast and mostly smaller than zstd.
const PLAIN: [CodecId; CODECS_MAX] = [CodecId::WORD_MASK, CodecId::LZ4, CodecId::ZSTD_FAST, CodecId::ZSTD];
const TRAINED: [CodecId; CODECS_MAX] = [CodecId::WORD_MASK, CodecId::LZ4, CodecId::ZSTD_TRAINED, CodecId::ZSTD_FAST];
const CODECS_MAX: usize = 4;
/// The first of them that differs.
const DIFFER: usize = 2;

/// Time of a codec for a page, to compress and to decompress it, ns: of codecs that were in use in
/// runs of CPython, SQLite and sort (docs/performance.md, Codecs and pool). Only their relation to
/// `FAULT_NS` matters. The table of codecs was made on a busier machine.
fn time_ns(codec: CodecId) -> u64 {
    match codec {
        CodecId::WORD_MASK => 2200,
        CodecId::LZ4 => 3300,
        CodecId::ZSTD_TRAINED => 7000,
        CodecId::ZSTD_FAST => 8500,
        _ => 13_500,
    }
}

/// What memory is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worth {
    /// Time that the memory of a whole page is worth until the page comes back, ns.
    pub page_ns: u64,
    /// The same, where that is more, for the first 64 pages of a region: how the program
    /// will use them is not known.
    pub new_page_ns: u64,
    /// Whether there is a trained dictionary. [`CodecId::ZSTD_TRAINED`] stands for the newest one.
    pub trained: bool,
}

impl Worth {
    fn codecs(self) -> &'static [CodecId] {
        codecs(self.trained)
    }
}

fn codecs(trained: bool) -> &'static [CodecId] {
    match trained {
        true => &TRAINED,
        false => &PLAIN,
    }
}

/// What to do with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Compress with this codec.
    Use(CodecId),
    /// Compress with each of these, record all, keep the shortest.
    Sample(&'static [CodecId]),
    /// Do not try: pages of this region have been incompressible.
    Skip,
}

/// Slot of one region.
#[derive(Clone, Copy)]
struct RegionChoice {
    key: u64,
    /// Running mean scores of the codecs. `ONE`: not known, or it failed twice in a row.
    scores: [u16; CODECS_MAX],
    /// Pages left until the next sample, and from that one to the next.
    until_sample: u16,
    wait: u16,
    /// Pages that still count as new.
    new: u8,
    failures: u8,
    /// The largest limit since the last page that did not fail, bytes: the failures are those of
    /// this limit.
    limit: u16,
    /// Codecs that samples have tried, from the first on.
    tried: u8,
    /// Bit i: the last result of codec i was a failure.
    failed: u8,
    in_use: CodecId,
    trained: bool,
    /// The codec in use failed, and no other codec has a good score: sample soon.
    ask_soon: bool,
    /// The last page was a sample.
    sampled: bool,
    known: bool,
}

const UNKNOWN: RegionChoice = RegionChoice {
    key: 0,
    scores: [ONE; CODECS_MAX],
    until_sample: 0,
    wait: WAIT_FIRST,
    new: NEW_PAGES,
    failures: 0,
    limit: 0,
    tried: 0,
    failed: 0,
    in_use: CodecId(0),
    trained: false,
    ask_soon: false,
    sampled: false,
    known: false,
};

impl RegionChoice {
    fn skips(&self) -> bool {
        self.failures >= FAILURES_TO_SKIP
    }

    /// Pages that failed under a smaller limit say nothing of this one.
    fn grow_limit(&mut self, limit: usize) {
        let limit = u16::try_from(limit).unwrap_or(u16::MAX);
        if limit > self.limit {
            self.limit = limit;
            if self.skips() {
                (self.failures, self.wait, self.until_sample) = (0, WAIT_FIRST, 0);
            }
        }
    }

    /// Cost of a codec for a page: its time, and the memory that its bytes take.
    fn cost(&self, i: usize, page_ns: u64, codecs: &[CodecId]) -> u64 {
        let fails = if self.scores[i] == ONE { FAILS_NS } else { 0 };
        time_ns(codecs[i]) + fails + page_ns * u64::from(self.scores[i]) / u64::from(ONE)
    }

    /// The codec that costs least, and how many codecs a sample tries: those up to it, and all that
    /// cost less if they leave nothing of a page.
    fn best(&self, page_ns: u64, codecs: &[CodecId]) -> (CodecId, usize) {
        let tried = 0..usize::from(self.tried.max(1));
        let best = tried.min_by_key(|&i| self.cost(i, page_ns, codecs)).unwrap_or(0);
        let least = self.cost(best, page_ns, codecs);
        let last = (best + 1..codecs.len()).rev().find(|&i| time_ns(codecs[i]) < least);
        (codecs[best], last.unwrap_or(best) + 1)
    }
}

/// Running scores of up to 4096 regions, in a fixed table of 128 KiB.
pub struct CodecSelector {
    regions: Box<[RegionChoice]>,
}

impl CodecSelector {
    /// Empty: the first page of each region is a sample.
    pub fn new() -> CodecSelector {
        CodecSelector { regions: vec![UNKNOWN; SLOTS].into_boxed_slice() }
    }

    /// The codecs that are ever weighed, each once.
    pub fn all_codecs() -> Vec<CodecId> {
        let more = TRAINED.iter().filter(|codec| !PLAIN.contains(codec));
        PLAIN.iter().chain(more).copied().collect()
    }

    /// What to do with the next page of this region, whose compressed length has this limit. Counts
    /// the page, so call it once per page.
    pub fn choose(&mut self, region_key: u64, worth: Worth, limit: usize) -> Choice {
        let region = &mut self.regions[slot_of(region_key)];
        if region.key != region_key || !region.known {
            let new = if region.known { 0 } else { NEW_PAGES };
            *region = RegionChoice { key: region_key, known: true, trained: worth.trained, new, ..UNKNOWN };
        }
        region.grow_limit(limit);
        if region.trained != worth.trained {
            region.trained = worth.trained;
            region.scores[DIFFER..].fill(ONE);
            region.tried = region.tried.min(DIFFER as u8);
        }
        let page_ns = if region.new > 0 { worth.page_ns.max(worth.new_page_ns) } else { worth.page_ns };
        region.new = region.new.saturating_sub(1);
        let codecs = worth.codecs();
        let (best, sample) = region.best(page_ns, codecs);
        if best != region.in_use && !region.skips() {
            region.in_use = best;
            region.wait = WAIT_FIRST;
            region.until_sample = region.until_sample.min(WAIT_FIRST);
        }
        let untried = sample > usize::from(region.tried) && !region.skips();
        if region.until_sample == 0 || region.ask_soon || untried {
            (region.ask_soon, region.sampled) = (false, true);
            region.tried = region.tried.max(sample as u8);
            region.until_sample = region.wait - 1;
            region.wait = (region.wait * 2).min(if region.skips() { SKIP_MOST } else { WAIT_MOST });
            return Choice::Sample(&codecs[..sample]);
        }
        region.until_sample -= 1;
        region.sampled = false;
        match region.skips() {
            true => Choice::Skip,
            false => Choice::Use(best),
        }
    }

    /// Reports the result of one compression: lengths in bytes; `None` if it reached its limit.
    ///
    /// Codecs that the region does not weigh and regions displaced meanwhile are ignored.
    pub fn record(&mut self, region_key: u64, codec: CodecId, in_len: usize, out_len: Option<usize>) {
        let region = &mut self.regions[slot_of(region_key)];
        if region.key != region_key || !region.known || in_len == 0 {
            return;
        }
        let now = out_len.map_or(ONE, |out| (out.min(in_len) * usize::from(ONE) / in_len) as u16);
        let Some(i) = codecs(region.trained).iter().position(|&c| c == codec) else { return };
        // Only samples tell of a codec that is not in use: other contents ask for more of them.
        if codec != region.in_use && region.scores[i].abs_diff(now) > OTHER_CONTENTS {
            region.wait = WAIT_FIRST;
            region.until_sample = region.until_sample.min(WAIT_FIRST - 1);
        }
        // Each result counts a quarter: four pages of new contents turn a verdict. The first result
        // of a codec, and one after failures, replaces the score.
        let (score, bit) = (&mut region.scores[i], 1 << i);
        *score = match out_len {
            None if region.failed & bit != 0 => ONE,
            Some(_) if *score == ONE => now,
            _ => (3 * *score + now) / 4,
        };
        region.failed = if out_len.is_none() { region.failed | bit } else { region.failed & !bit };
    }

    /// Reports, after the results of its codecs, whether one of them met the limit. Not for pages
    /// that are skipped.
    pub fn record_page(&mut self, region_key: u64, fits: bool) {
        let region = &mut self.regions[slot_of(region_key)];
        if region.key != region_key || !region.known {
            return;
        }
        if fits {
            if region.skips() {
                region.wait = WAIT_FIRST;
            }
            (region.failures, region.limit) = (0, 0);
            region.until_sample = region.until_sample.min(region.wait - 1);
            region.ask_soon = false;
        } else if !region.skips() {
            region.failures += 1;
            if region.skips() {
                (region.wait, region.until_sample) = (SKIP_FIRST, SKIP_FIRST);
            }
            let weighed = codecs(region.trained).iter().zip(region.scores);
            let others = weighed.into_iter().any(|(&codec, score)| codec != region.in_use && score != ONE);
            // A sample has asked the others already.
            region.ask_soon = !region.skips() && !region.sampled && !others;
        }
    }
}

impl Default for CodecSelector {
    fn default() -> Self {
        CodecSelector::new()
    }
}

fn slot_of(key: u64) -> usize {
    // Fibonacci hashing: it spreads neighbouring regions, and the top bits depend on all bits of
    // the key.
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE_BYTES;

    fn worth(page_us: u64) -> Worth {
        Worth { page_ns: page_us * 1000, new_page_ns: 0, trained: false }
    }

    /// Compressed lengths by codec; the others fail.
    type Lens<'a> = &'a [(CodecId, usize)];

    /// The limit of a compressed page in these tests.
    const LIMIT: usize = 3900;

    /// Compresses pages of a region; the choices, and the codec of the last page.
    fn run(c: &mut CodecSelector, key: u64, pages: usize, worth: Worth, lens: Lens) -> (Vec<Choice>, Option<CodecId>) {
        let mut last = None;
        let choices = (0..pages).map(|_| {
            let choice = c.choose(key, worth, LIMIT);
            let used = match &choice {
                Choice::Use(codec) => std::slice::from_ref(codec),
                Choice::Sample(codecs) => codecs,
                Choice::Skip => &[],
            };
            for &codec in used {
                let len = lens.iter().find(|(of, _)| *of == codec).map(|&(_, len)| len);
                c.record(key, codec, PAGE_BYTES, len);
            }
            if !used.is_empty() {
                c.record_page(key, used.iter().any(|&codec| lens.iter().any(|(of, _)| *of == codec)));
            }
            if let Choice::Use(codec) = choice {
                last = Some(codec);
            }
            choice
        });
        (choices.collect(), last)
    }

    /// The verdict for contents of these lengths.
    fn verdict(worth: Worth, lens: Lens) -> CodecId {
        run(&mut CodecSelector::new(), 1, 40, worth, lens).1.expect("not all pages are samples")
    }

    fn samples(choices: &[Choice]) -> usize {
        choices.iter().filter(|choice| matches!(choice, Choice::Sample(_))).count()
    }

    const OBJECTS: Lens = &[
        (CodecId::WORD_MASK, 1250),
        (CodecId::LZ4, 1100),
        (CodecId::ZSTD_FAST, 600),
        (CodecId::ZSTD_TRAINED, 500),
        (CodecId::ZSTD, 580),
    ];

    #[test]
    fn the_dearer_memory_is_the_smaller_pages_become() {
        assert_eq!(verdict(worth(0), OBJECTS), CodecId::WORD_MASK);
        assert_eq!(verdict(worth(20), OBJECTS), CodecId::WORD_MASK, "0.7 us gained, 1 lost");
        assert_eq!(verdict(worth(35), OBJECTS), CodecId::LZ4);
        assert_eq!(verdict(worth(60), OBJECTS), CodecId::ZSTD_FAST);
        assert_eq!(verdict(worth(5000), OBJECTS), CodecId::ZSTD);
        let trained = Worth { trained: true, ..worth(35) };
        assert_eq!(verdict(trained, OBJECTS), CodecId::ZSTD_TRAINED);
        let new = Worth { new_page_ns: 60_000, ..worth(0) };
        let mut c = CodecSelector::new();
        assert_eq!(run(&mut c, 1, 40, new, OBJECTS).1, Some(CodecId::ZSTD_FAST), "pages that leave first");
        assert_eq!(run(&mut c, 1, 40, new, OBJECTS).1, Some(CodecId::WORD_MASK), "and again");
    }

    #[test]
    fn a_codec_that_fails_is_dear() {
        assert_eq!(verdict(worth(0), &[(CodecId::LZ4, 3000)]), CodecId::LZ4);
        assert_eq!(verdict(worth(0), &[(CodecId::ZSTD, 3600)]), CodecId::ZSTD);
        // Also one that was in use until now.
        let mut c = CodecSelector::new();
        assert_eq!(run(&mut c, 1, 500, worth(0), OBJECTS).1, Some(CodecId::WORD_MASK));
        let (choices, last) = run(&mut c, 1, 500, worth(0), &[(CodecId::LZ4, 3000)]);
        assert_eq!(last, Some(CodecId::LZ4));
        let lost = choices.iter().filter(|&&c| c == Choice::Skip || c == Choice::Use(CodecId::WORD_MASK)).count();
        assert!(lost < 10, "{lost}");
    }

    #[test]
    fn samples_have_the_codec_in_use_and_those_that_could_be_better() {
        let sampled = |page_us, lens| {
            let (choices, last) = run(&mut CodecSelector::new(), 1, 300, worth(page_us), lens);
            let samples = choices.into_iter().filter_map(|choice| match choice {
                Choice::Sample(codecs) => Some(codecs.len()),
                _ => None,
            });
            (samples.collect::<Vec<_>>(), last.expect("not all pages are samples"))
        };
        let (lens, _) = sampled(0, OBJECTS);
        assert_eq!((lens[0], *lens.last().expect("some")), (4, 1), "nothing is quicker than word-mask");
        let (lens, last) = sampled(40, &[(CodecId::ZSTD, 600)]);
        assert!(lens.iter().all(|&len| len == 4) && last == CodecId::ZSTD, "{lens:?}");
        let (lens, _) = sampled(13, &[(CodecId::WORD_MASK, 40), (CodecId::LZ4, 60)]);
        assert_eq!(lens.last(), Some(&1), "what is small already cannot gain much");
        // With a dearer memory the others are tried at once.
        let mut c = CodecSelector::new();
        run(&mut c, 1, 40, Worth { trained: true, ..worth(0) }, OBJECTS);
        run(&mut c, 1, 40, worth(0), OBJECTS);
        assert_eq!(c.choose(1, worth(60), LIMIT), Choice::Sample(&PLAIN));
    }

    #[test]
    fn a_dictionary_is_tried_when_there_is_one() {
        let mut c = CodecSelector::new();
        run(&mut c, 1, 100, worth(60), OBJECTS);
        let trained = Worth { trained: true, ..worth(60) };
        assert_eq!(c.choose(1, trained, LIMIT), Choice::Sample(&TRAINED));
        assert_eq!(run(&mut c, 1, 40, trained, OBJECTS).1, Some(CodecId::ZSTD_TRAINED));
    }

    #[test]
    fn samples_become_rare_where_they_tell_nothing_new() {
        let mut c = CodecSelector::new();
        let (choices, _) = run(&mut c, 1, 10_000, worth(35), OBJECTS);
        let few = samples(&choices);
        assert!((30..60).contains(&few), "{few}");
        assert!(samples(&choices[..100]) >= 3);
    }

    #[test]
    fn incompressible_regions_cost_little_and_recover() {
        let mut c = CodecSelector::new();
        let (choices, _) = run(&mut c, 7, 1280, worth(35), &[]);
        let skipped = choices.iter().filter(|&&choice| choice == Choice::Skip).count();
        assert!(samples(&choices) <= 16 && skipped >= 1260, "{} {skipped}", samples(&choices));
        let (choices, last) = run(&mut c, 7, 1280, worth(0), OBJECTS);
        let skipped = choices.iter().filter(|&&choice| choice == Choice::Skip).count();
        assert!(skipped <= usize::from(SKIP_MOST) && last == Some(CodecId::WORD_MASK), "{skipped}");
    }

    #[test]
    fn follows_changing_contents() {
        let mut c = CodecSelector::new();
        let other: Lens = &[(CodecId::WORD_MASK, 4000), (CodecId::LZ4, 900)];
        assert_eq!(run(&mut c, 9, 1000, worth(10), OBJECTS).1, Some(CodecId::WORD_MASK));
        assert_eq!(run(&mut c, 9, 320, worth(10), other).1, Some(CodecId::LZ4));
        assert_eq!(run(&mut c, 9, 640, worth(10), OBJECTS).1, Some(CodecId::WORD_MASK));
    }

    #[test]
    fn displaced_regions_are_sampled_again() {
        let mut c = CodecSelector::new();
        for key in 0..3 * SLOTS as u64 {
            assert_eq!(c.choose(key, worth(0), LIMIT), Choice::Sample(&PLAIN));
            c.record(key, CodecId::WORD_MASK, PAGE_BYTES, Some(10));
        }
        c.record(u64::MAX, CodecId::LZ4, PAGE_BYTES, None);
        c.record(5, CodecId::ZSTD, PAGE_BYTES, None);
        c.record_page(u64::MAX, false);
    }

    #[test]
    fn pages_that_one_codec_compresses_are_not_skipped() {
        let mut c = CodecSelector::new();
        let (choices, last) = run(&mut c, 1, 640, worth(43), &[(CodecId::WORD_MASK, 2700)]);
        assert!(!choices.contains(&Choice::Skip), "sorted integers of 32 bits");
        assert_eq!(last, Some(CodecId::WORD_MASK));
    }

    #[test]
    fn three_pages_in_a_row_that_fail_are_the_verdict() {
        let mut c = CodecSelector::new();
        let (choices, _) = run(&mut c, 1, 5, worth(43), &[]);
        let skipped: Vec<bool> = choices.iter().map(|&choice| choice == Choice::Skip).collect();
        assert_eq!(skipped, [false, false, false, true, true]);
    }

    #[test]
    fn a_larger_limit_ends_the_verdict_of_a_smaller_one() {
        let mut c = CodecSelector::new();
        run(&mut c, 1, 4, worth(43), &[]);
        assert_eq!(c.choose(1, worth(43), LIMIT), Choice::Skip);
        assert_eq!(c.choose(1, worth(43), LIMIT - 900), Choice::Skip);
        assert_eq!(c.choose(1, worth(43), LIMIT), Choice::Skip, "pages have failed under this limit");
        assert_eq!(c.choose(1, worth(43), LIMIT + 1), Choice::Sample(&PLAIN));
        c.record_page(1, false);
        assert!(matches!(c.choose(1, worth(43), LIMIT + 1), Choice::Use(_)), "and two more must fail again");
        // A success under a large limit says nothing of failures under a smaller one.
        c.record_page(1, true);
        for _ in 0..3 {
            c.choose(1, worth(43), LIMIT - 900);
            c.record_page(1, false);
        }
        assert_eq!(c.choose(1, worth(43), LIMIT - 900), Choice::Skip);
        assert!(matches!(c.choose(1, worth(43), LIMIT), Choice::Sample(_)));
    }
}
