//! Selects the codec of each region: the one whose time and bytes cost least, none where no codec
//! helps.
//!
//! Contents are alike within a region (256 KiB of address space; the caller makes the key). So some
//! pages of it, the samples, are compressed with every codec that could be best, and the others
//! follow the verdict. Only what the caller passes in decides, without a clock or randomness.
//!
//! | verdict | when |
//! |---|---|
//! | a codec | its time for a page, both directions, plus its mean compressed length times the price of memory ([`Worth`]), plus the cost of a page that fails times the share of those that fail with this codec only, is the least |
//! | skip | of some pages in a row no codec that was tried met the limit: [`FAILURES_LEAST`] in a region of which no page has compressed, more in others |

use crate::{CodecId, PAGE_BYTES};

/// Scores are fractions of this: compressed length / original length; `ONE` where no page is known.
const ONE: u16 = 1024;
/// Pages from one sample of a region to the next: at first, and at most. The number doubles with
/// each sample as long as the codec stays the same.
const WAIT_FIRST: u16 = 32;
const WAIT_MOST: u16 = 256;
/// Pages until the first sample of a region that begins with the verdict of another one.
const WAIT_INHERITED: u16 = 8;
/// The same in a region whose pages are skipped.
const SKIP_FIRST: u16 = 16;
const SKIP_MOST: u16 = 128;
/// Difference from the mean score that shows other contents.
const OTHER_CONTENTS: u16 = ONE / 8;
/// Share of missed pages above which a page that the codec compresses shows other contents, too.
const OTHER_SHARE: u16 = ALL / 8;
/// Failed pages in a row after which pages of a region are skipped, if none has compressed.
const FAILURES_LEAST: u8 = 32;
/// If some have: as many as cost, to try in vain, the time of so many pages that go to the swap
/// tier. Where just enough pages compress that it pays to try all, one row in 150 of that length
/// fails.
const FAILURES_COST: u64 = 5;
/// Most failed pages in a row for which no other codec is asked. The number doubles with each page
/// that fails with all codecs.
const UNASKED_MOST: u8 = 8;
/// Regions remembered, at least and at most: 4096 of 256 KiB are 1 GiB.
const SLOTS_LEAST: usize = 4096;
const SLOTS_MOST: usize = 1 << 20;
/// So many pages of a region count as new: as many as it has, of 4 KiB.
const NEW_PAGES: u8 = 64;
/// A page that does not compress goes to the swap tier: a write and a read, ns.
const FAILS_NS: u64 = 100_000;
/// All pages, as a share of the pages that a codec misses.
const ALL: u16 = 1 << 15;
/// That share is the mean of about so many pages. Where memory has no price, LZ4 costs less once
/// word-mask has missed two of them, and word-mask does again after some samples.
const SHARE_PAGES: u32 = 32;
/// A sample counts as so many pages in the share of a codec that is not in use.
const SAMPLE_PAGES: u32 = 16;

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

/// Time of all codecs but the one that takes `own`, which is one of them.
fn others_ns(own: u64, codecs: &[CodecId]) -> u64 {
    codecs.iter().map(|&codec| time_ns(codec)).sum::<u64>() - own
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
enum Choice {
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
    /// Running mean scores of the codecs, of pages that they have compressed.
    scores: [u16; CODECS_MAX],
    /// Running share of the pages that others have compressed and this codec has not, of [`ALL`].
    fails: [u16; CODECS_MAX],
    /// Pages left until the next sample, and from that one to the next.
    until_sample: u16,
    wait: u16,
    /// Pages that still count as new.
    new: u8,
    /// Pages in a row that no codec compressed, and how many begin to skip pages.
    failures: u8,
    to_skip: u8,
    /// Whether a codec has compressed a page of this region.
    compresses: bool,
    /// Failed pages in a row for which no other codec is asked, and those that are left of them.
    unasked: u8,
    unasked_left: u8,
    /// The largest limit since the last page that did not fail, bytes: the failures are those of
    /// this limit.
    limit: u16,
    /// Codecs that samples have tried, from the first on.
    tried: u8,
    in_use: CodecId,
    trained: bool,
    known: bool,
}

const UNKNOWN: RegionChoice = RegionChoice {
    key: 0,
    scores: [ONE; CODECS_MAX],
    fails: [0; CODECS_MAX],
    until_sample: 0,
    wait: WAIT_FIRST,
    new: NEW_PAGES,
    failures: 0,
    to_skip: FAILURES_LEAST,
    compresses: false,
    unasked: 0,
    unasked_left: 0,
    limit: 0,
    tried: 0,
    in_use: CodecId(0),
    trained: false,
    known: false,
};

impl RegionChoice {
    /// A region that begins with the verdict of this one: the one before it is most like it. It is
    /// sampled soon, but not at its first page: a program may have one page in each region.
    fn inherited(&self, key: u64, new: u8) -> RegionChoice {
        let until_sample = self.until_sample.min(WAIT_INHERITED);
        let (failures, compresses, limit) = (0, false, 0);
        RegionChoice { key, new, until_sample, failures, compresses, limit, wait: WAIT_FIRST, known: true, ..*self }
    }

    fn skips(&self) -> bool {
        self.failures >= self.to_skip
    }

    /// Failed pages in a row after which pages are skipped: the less it costs to try one, and the
    /// more one that compresses saves, the more.
    fn failures_to_skip(&self, page_ns: u64, codecs: &[CodecId]) -> u8 {
        if !self.compresses {
            return FAILURES_LEAST;
        }
        // In a long row the other codecs are tried on one page after each `UNASKED_MOST`.
        let own = time_ns(self.in_use);
        let try_ns = own + others_ns(own, codecs) / (u64::from(UNASKED_MOST) + 1);
        let failures = FAILURES_COST * FAILS_NS.max(page_ns) / try_ns;
        failures.clamp(FAILURES_LEAST.into(), u8::MAX.into()) as u8
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

    /// A new dictionary is another codec.
    fn follow_training(&mut self, trained: bool) {
        if self.trained != trained {
            self.trained = trained;
            self.scores[DIFFER..].fill(ONE);
            self.fails[DIFFER..].fill(0);
            self.tried = self.tried.min(DIFFER as u8);
        }
    }

    /// Cost of a codec for a page: its time, the memory that its bytes take, and that it may fail.
    fn cost(&self, i: usize, page_ns: u64, codecs: &[CodecId]) -> u64 {
        let share = |part: u16, all: u16, ns: u64| ns * u64::from(part) / u64::from(all);
        let own = time_ns(codecs[i]);
        let others = others_ns(own, codecs);
        // After so many pages that fail for good, the others are tried on the next one that fails.
        let lost = u64::from(self.unasked);
        let fails_ns = (others + lost * FAILS_NS) / (lost + 1);
        let fails = if self.scores[i] == ONE { ALL } else { self.fails[i] };
        own + share(fails, ALL, fails_ns) + share(self.scores[i], ONE, page_ns)
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

    /// What to do with the next page.
    fn choose(&mut self, worth: Worth) -> Choice {
        self.follow_training(worth.trained);
        let page_ns = if self.new > 0 { worth.page_ns.max(worth.new_page_ns) } else { worth.page_ns };
        self.new = self.new.saturating_sub(1);
        let codecs = worth.codecs();
        let (best, sample) = self.best(page_ns, codecs);
        if best != self.in_use && !self.skips() {
            self.in_use = best;
            self.sample_within(WAIT_FIRST);
        }
        self.to_skip = self.failures_to_skip(page_ns, codecs);
        let most = if self.skips() { SKIP_MOST } else { WAIT_MOST };
        (self.wait, self.until_sample) = (self.wait.min(most), self.until_sample.min(most - 1));
        let untried = sample > usize::from(self.tried) && !self.skips();
        if self.until_sample == 0 || untried {
            self.until_sample = self.wait - 1;
            self.wait = (self.wait * 2).min(most);
            // What comes after skipped pages may be anything.
            let sample = if self.skips() { codecs.len() } else { sample };
            return Choice::Sample(&codecs[..sample]);
        }
        self.until_sample -= 1;
        match self.skips() {
            true => Choice::Skip,
            false => Choice::Use(best),
        }
    }

    fn sample_within(&mut self, pages: u16) {
        self.wait = WAIT_FIRST;
        self.until_sample = self.until_sample.min(pages);
    }

    /// Whether to try the other codecs on a page that failed. What does not compress with the codec
    /// in use fails with the others mostly, too; but a page that fails costs as much as ten codecs.
    fn asks(&mut self) -> bool {
        let asks = self.unasked_left == 0 && !self.skips();
        self.unasked_left = self.unasked_left.saturating_sub(1);
        asks
    }

    /// Notes the results of a page that a codec has compressed.
    fn compressed(&mut self, results: &Results) {
        for (i, result) in results.of.iter().enumerate() {
            let (score, fails) = (&mut self.scores[i], &mut self.fails[i]);
            let in_use = codecs(self.trained)[i] == self.in_use;
            // A page that the codec in use misses is tried with the others at once. So only samples
            // tell of them on pages that it compresses.
            let pages = if in_use || results.asked { 1 } else { SAMPLE_PAGES };
            match *result {
                None => {}
                Some(None) => *fails = mean(*fails, ALL, pages),
                Some(Some(now)) => {
                    let other = score.abs_diff(now) > OTHER_CONTENTS || *fails > OTHER_SHARE;
                    // Each result counts a quarter: four pages of new contents turn a verdict.
                    *score = if *score == ONE { now } else { (3 * *score + now) / 4 };
                    *fails = mean(*fails, 0, pages);
                    // Only samples tell of a codec that is not in use: other contents ask for more.
                    if other && !in_use {
                        self.sample_within(WAIT_FIRST - 1);
                    }
                }
            }
        }
        if self.skips() {
            self.sample_within(WAIT_FIRST - 1);
        }
        (self.failures, self.limit, self.compresses) = (0, 0, true);
        if results.asked {
            (self.unasked, self.unasked_left) = (0, 0);
        }
    }

    /// Notes a page that no codec compressed. It says nothing of any codec.
    fn failed(&mut self, results: &Results) {
        if results.asked {
            self.unasked = (self.unasked * 2).clamp(1, UNASKED_MOST);
            self.unasked_left = self.unasked;
        }
        if !self.skips() {
            self.failures += 1;
            if self.skips() {
                (self.wait, self.until_sample) = (SKIP_FIRST, SKIP_FIRST);
            }
        }
    }
}

/// The mean of a share, of about [`SHARE_PAGES`], and of `pages` more with this one.
fn mean(share: u16, now: u16, pages: u32) -> u16 {
    ((u32::from(share) * SHARE_PAGES + u32::from(now) * pages) / (SHARE_PAGES + pages)) as u16
}

/// Scores of one page by codec: not tried, failed, or how small it became.
#[derive(Default)]
struct Results {
    of: [Option<Option<u16>>; CODECS_MAX],
    /// The codec in use failed, and the others were tried.
    asked: bool,
}

impl Results {
    /// Tries codecs that were not tried, `list` being all that are weighed.
    fn try_all(&mut self, codecs: &[CodecId], list: &[CodecId], compress: &mut impl FnMut(CodecId) -> Option<usize>) {
        for (i, &codec) in list.iter().enumerate() {
            if codecs.contains(&codec) && self.of[i].is_none() {
                let score = |len: usize| (len.min(PAGE_BYTES) * usize::from(ONE) / PAGE_BYTES) as u16;
                self.of[i] = Some(compress(codec).map(score));
            }
        }
    }

    fn fit(&self) -> bool {
        self.of.iter().any(|result| matches!(result, Some(Some(_))))
    }
}

/// Verdicts on regions. Two regions in one slot displace each other: each then begins with the
/// verdict of the region before it, and its pages do not count as new.
pub struct CodecSelector {
    regions: Box<[RegionChoice]>,
    /// The slot that was used last.
    last: usize,
    /// Regions that were displaced since the table has this size, and its largest size.
    displaced: usize,
    most: usize,
}

impl CodecSelector {
    /// Empty: the first page of all is a sample. Remembers 4096 regions in 40 bytes for each, and
    /// more when they displace each other: up to four times as many as `pages` pages have.
    pub fn new(pages: u64) -> CodecSelector {
        let regions = usize::try_from(pages / u64::from(NEW_PAGES)).unwrap_or(usize::MAX);
        let most = (regions.min(SLOTS_MOST / 2) * 2).next_power_of_two().max(SLOTS_LEAST);
        CodecSelector { regions: vec![UNKNOWN; SLOTS_LEAST].into(), last: 0, displaced: 0, most }
    }

    /// The codecs that are ever weighed, each once.
    pub fn all_codecs() -> Vec<CodecId> {
        let more = TRAINED.iter().filter(|codec| !PLAIN.contains(codec));
        PLAIN.iter().chain(more).copied().collect()
    }

    /// Compresses a page of this region with the codecs that are chosen for it. `compress` gives
    /// the length in bytes, or `None` if it reached `limit`, and keeps the shortest result.
    /// [`CodecId::ZSTD_TRAINED`] stands for the newest dictionary. Call it once for each page.
    pub fn compress(
        &mut self,
        region_key: u64,
        worth: Worth,
        limit: usize,
        mut compress: impl FnMut(CodecId) -> Option<usize>,
    ) {
        let region = self.region(region_key);
        region.grow_limit(limit);
        let choice = region.choose(worth);
        let (list, mut results) = (worth.codecs(), Results::default());
        match &choice {
            Choice::Skip => return,
            Choice::Use(codec) => results.try_all(std::slice::from_ref(codec), list, &mut compress),
            Choice::Sample(codecs) => {
                region.tried = region.tried.max(codecs.len() as u8);
                results.try_all(codecs, list, &mut compress);
            }
        }
        if !results.fit() && region.asks() {
            (results.asked, region.tried) = (true, list.len() as u8);
            results.try_all(list, list, &mut compress);
        }
        match results.fit() {
            true => region.compressed(&results),
            false => region.failed(&results),
        }
    }

    fn region(&mut self, key: u64) -> &mut RegionChoice {
        let slot = slot_of(key, self.regions.len());
        let last = std::mem::replace(&mut self.last, slot);
        let old = &self.regions[slot];
        if old.known && old.key == key {
            return &mut self.regions[slot];
        }
        let displaces = old.known;
        self.regions[slot] = self.regions[last].inherited(key, if displaces { 0 } else { NEW_PAGES });
        self.displaced += usize::from(displaces);
        if self.displaced > self.regions.len() && self.regions.len() < self.most {
            self.grow();
        }
        &mut self.regions[self.last]
    }

    fn grow(&mut self) {
        let slots = self.regions.len() * 2;
        let last = self.regions[self.last].key;
        let old = std::mem::replace(&mut self.regions, vec![UNKNOWN; slots].into());
        for &region in old.iter().filter(|region| region.known) {
            self.regions[slot_of(region.key, slots)] = region;
        }
        (self.displaced, self.last) = (0, slot_of(last, slots));
    }
}

fn slot_of(key: u64, slots: usize) -> usize {
    // Fibonacci hashing: it spreads neighbouring regions, and the top bits depend on all bits of
    // the key.
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - slots.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worth(page_us: u64) -> Worth {
        Worth { page_ns: page_us * 1000, new_page_ns: 0, trained: false }
    }

    /// Compressed lengths by codec; the others fail.
    type Lens<'a> = &'a [(CodecId, usize)];

    /// The limit of a compressed page in these tests.
    const LIMIT: usize = 3900;

    fn selector() -> CodecSelector {
        CodecSelector::new(0)
    }

    /// Compresses a page; the codecs that were tried on it.
    fn page(c: &mut CodecSelector, key: u64, worth: Worth, limit: usize, lens: Lens) -> Vec<CodecId> {
        let mut tried = Vec::new();
        c.compress(key, worth, limit, |codec| {
            tried.push(codec);
            lens.iter().find(|(of, _)| *of == codec).map(|&(_, len)| len).filter(|&len| len < limit)
        });
        tried
    }

    /// Compresses pages of a region; the codecs that were tried on each, and the last that was
    /// tried alone.
    fn run(
        c: &mut CodecSelector,
        key: u64,
        pages: usize,
        worth: Worth,
        lens: Lens,
    ) -> (Vec<Vec<CodecId>>, Option<CodecId>) {
        let tried: Vec<Vec<CodecId>> = (0..pages).map(|_| page(c, key, worth, LIMIT, lens)).collect();
        let last = tried.iter().rev().find_map(|codecs| <[CodecId; 1]>::try_from(&codecs[..]).ok());
        (tried, last.map(|[codec]| codec))
    }

    /// The verdict for contents of these lengths.
    fn verdict(worth: Worth, lens: Lens) -> CodecId {
        run(&mut selector(), 1, 40, worth, lens).1.expect("not all pages are samples")
    }

    fn several(tried: &[Vec<CodecId>]) -> usize {
        tried.iter().filter(|codecs| codecs.len() > 1).count()
    }

    fn skipped(tried: &[Vec<CodecId>]) -> usize {
        tried.iter().filter(|codecs| codecs.is_empty()).count()
    }

    /// For each page whether it is one of this share, of 100, in an order without a pattern.
    fn shares(percent: u64) -> impl Iterator<Item = bool> {
        let mut seed = 88_172_645_463_325_252u64;
        std::iter::repeat_with(move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % 100 < percent
        })
    }

    /// Compresses pages of which this share, of 100, fails with all codecs; the others have these
    /// lengths. How many of these were lost, and how often a codec ran.
    fn mixed(region: usize, pages: usize, worth: Worth, percent: u64, lens: Lens) -> (usize, usize) {
        let (mut c, mut lost, mut runs) = (selector(), 0, 0);
        for (at, fails) in shares(percent).take(pages).enumerate() {
            let tried = page(&mut c, (at / region) as u64, worth, LIMIT, if fails { &[] } else { lens });
            let fits = tried.iter().any(|codec| lens.iter().any(|(of, _)| of == codec));
            lost += usize::from(!fails && !fits);
            runs += tried.len();
        }
        (lost, runs)
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
        let mut c = selector();
        assert_eq!(run(&mut c, 1, 40, new, OBJECTS).1, Some(CodecId::ZSTD_FAST), "pages that leave first");
        assert_eq!(run(&mut c, 1, 40, new, OBJECTS).1, Some(CodecId::WORD_MASK), "and again");
    }

    #[test]
    fn a_codec_that_fails_is_dear() {
        assert_eq!(verdict(worth(0), &[(CodecId::LZ4, 3000)]), CodecId::LZ4);
        assert_eq!(verdict(worth(0), &[(CodecId::ZSTD, 3600)]), CodecId::ZSTD);
        // Also one that was in use until now.
        let mut c = selector();
        assert_eq!(run(&mut c, 1, 500, worth(0), OBJECTS).1, Some(CodecId::WORD_MASK));
        let (tried, last) = run(&mut c, 1, 500, worth(0), &[(CodecId::LZ4, 3000)]);
        assert_eq!(last, Some(CodecId::LZ4));
        assert!(tried.iter().all(|codecs| codecs.contains(&CodecId::LZ4)), "no page is lost");
        assert!(tried.iter().map(Vec::len).sum::<usize>() < 600);
    }

    #[test]
    fn a_codec_that_fails_for_every_other_page_is_not_used() {
        let mut c = selector();
        let alone: Vec<CodecId> = (0..1000)
            .flat_map(|at| {
                let text = [(CodecId::LZ4, 1500), (CodecId::ZSTD, 900)];
                let tried = page(&mut c, 1, worth(0), LIMIT, if at % 2 == 0 { OBJECTS } else { &text });
                assert!(at % 2 == 0 || tried.contains(&CodecId::LZ4), "page {at} is lost");
                <[CodecId; 1]>::try_from(tried).ok().map(|[codec]| codec)
            })
            .collect();
        assert!(alone.len() > 950, "{}", alone.len());
        assert!(alone[20..].iter().all(|&codec| codec == CodecId::LZ4));
    }

    #[test]
    fn samples_have_the_codec_in_use_and_those_that_could_be_better() {
        let sampled = |page_us, lens| {
            let (tried, last) = run(&mut selector(), 1, 300, worth(page_us), lens);
            (several(&tried), tried[0].len(), last.expect("not all pages are samples"))
        };
        let (samples, first, _) = sampled(0, OBJECTS);
        assert_eq!((samples, first), (1, 4), "nothing is quicker than word-mask");
        let (samples, _, last) = sampled(40, &[(CodecId::ZSTD, 600)]);
        assert!(samples >= 3 && last == CodecId::ZSTD, "{samples}");
        let (samples, ..) = sampled(13, &[(CodecId::WORD_MASK, 40), (CodecId::LZ4, 60)]);
        assert_eq!(samples, 1, "what is small already cannot gain much");
        // With a dearer memory the others are tried at once.
        let mut c = selector();
        run(&mut c, 1, 40, Worth { trained: true, ..worth(0) }, OBJECTS);
        run(&mut c, 1, 40, worth(0), OBJECTS);
        assert_eq!(page(&mut c, 1, worth(60), LIMIT, OBJECTS), PLAIN);
    }

    #[test]
    fn a_dictionary_is_tried_when_there_is_one() {
        let mut c = selector();
        run(&mut c, 1, 100, worth(60), OBJECTS);
        let trained = Worth { trained: true, ..worth(60) };
        assert_eq!(page(&mut c, 1, trained, LIMIT, OBJECTS), TRAINED);
        assert_eq!(run(&mut c, 1, 40, trained, OBJECTS).1, Some(CodecId::ZSTD_TRAINED));
    }

    #[test]
    fn samples_become_rare_where_they_tell_nothing_new() {
        let mut c = selector();
        let (tried, _) = run(&mut c, 1, 10_000, worth(35), OBJECTS);
        let few = several(&tried);
        assert!((30..60).contains(&few), "{few}");
        assert!(several(&tried[..100]) >= 3);
    }

    #[test]
    fn incompressible_regions_cost_little_and_recover() {
        let mut c = selector();
        let (tried, _) = run(&mut c, 7, 1280, worth(35), &[]);
        let runs: usize = tried.iter().map(Vec::len).sum();
        assert!(skipped(&tried) >= 1230 && runs <= 120, "{} {runs}", skipped(&tried));
        let (tried, last) = run(&mut c, 7, 1280, worth(0), OBJECTS);
        assert!(skipped(&tried) <= usize::from(SKIP_MOST) && last == Some(CodecId::WORD_MASK), "{}", skipped(&tried));
        // Regions that the program fills once.
        let (_, runs) = mixed(64, 64 * 100, worth(35), 100, OBJECTS);
        assert!(runs < 64 * 100, "{runs} for {} pages", 64 * 100);
    }

    #[test]
    fn other_contents_after_skipped_pages_are_found() {
        let mut c = selector();
        run(&mut c, 1, 200, worth(0), OBJECTS);
        run(&mut c, 1, 200, worth(0), &[]);
        let (tried, last) = run(&mut c, 1, 500, worth(0), &[(CodecId::LZ4, 1500), (CodecId::ZSTD, 900)]);
        assert!(skipped(&tried) <= usize::from(SKIP_MOST) && last == Some(CodecId::LZ4), "{}", skipped(&tried));
    }

    #[test]
    fn pages_that_compress_among_others_that_do_not_are_not_lost() {
        for (region, percent) in [64, 6400].into_iter().flat_map(|region| [10, 30, 50, 70].map(|of| (region, of))) {
            let (lost, runs) = mixed(region, 64 * 100, worth(35), percent, OBJECTS);
            assert_eq!(lost, 0, "{percent} %, regions of {region}");
            assert!(runs < 64 * 100 * 2, "{percent} %, regions of {region}: {runs}");
        }
        let (lost, _) = mixed(64, 64 * 100, worth(35), 90, OBJECTS);
        assert!(lost < 64, "{lost} of some 640");
        // Also in regions that live long.
        let (lost, runs) = mixed(64 * 1000, 64 * 1000, worth(0), 90, OBJECTS);
        assert!(lost < 64, "{lost} of some 6400");
        assert!(runs < 64 * 1000 * 3 / 2, "{runs}");
        // To try a slow codec on ten pages costs as much as one that compresses saves.
        let (lost, _) = mixed(64 * 1000, 64 * 1000, worth(60), 90, OBJECTS);
        assert!((640..3200).contains(&lost), "{lost} of some 6400");
        let (lost, _) = mixed(64 * 1000, 64 * 1000, worth(60), 70, OBJECTS);
        assert!(lost < 64, "{lost} of some 19200");
        // Some fail although another codec would do, while no other codec is asked.
        let (lost, _) = mixed(64, 64 * 100, worth(0), 50, &[(CodecId::ZSTD, 2000)]);
        assert!(lost < 32, "{lost} of some 3200");
    }

    #[test]
    fn the_more_a_page_that_compresses_saves_the_later_pages_are_skipped() {
        let failures = |worth: Worth, lens| {
            let mut c = selector();
            run(&mut c, 1, 1, worth, lens);
            (0..1000).find(|_| page(&mut c, 1, worth, LIMIT, &[]).is_empty())
        };
        assert_eq!(failures(worth(0), &[]), Some(31), "with one before");
        assert_eq!(failures(worth(0), OBJECTS), Some(99), "word-mask");
        assert_eq!(failures(worth(60), OBJECTS), Some(47), "zstd-fast");
        assert_eq!(failures(worth(300), OBJECTS), Some(141), "memory is dearer than the swap tier");
        assert_eq!(failures(worth(10_000), OBJECTS), Some(255));
        // Where one page in a hundred compresses, most are skipped.
        let (_, runs) = mixed(64 * 100, 64 * 100, worth(0), 99, OBJECTS);
        assert!(runs < 64 * 100 / 2, "{runs}");
    }

    #[test]
    fn follows_changing_contents() {
        let mut c = selector();
        let other: Lens = &[(CodecId::WORD_MASK, 4000), (CodecId::LZ4, 900)];
        assert_eq!(run(&mut c, 9, 1000, worth(10), OBJECTS).1, Some(CodecId::WORD_MASK));
        assert_eq!(run(&mut c, 9, 320, worth(10), other).1, Some(CodecId::LZ4));
        assert_eq!(run(&mut c, 9, 640, worth(10), OBJECTS).1, Some(CodecId::WORD_MASK));
    }

    #[test]
    fn a_codec_that_misses_few_pages_stays_in_use() {
        let text: Lens = &[(CodecId::LZ4, 1500), (CodecId::ZSTD_FAST, 1000), (CodecId::ZSTD, 900)];
        let mut c = selector();
        run(&mut c, 1, 1000, worth(0), OBJECTS);
        let word_mask = |tried: &[CodecId]| tried == [CodecId::WORD_MASK];
        // One page, and two in a row.
        assert_eq!(page(&mut c, 1, worth(0), LIMIT, text), PLAIN);
        assert!(run(&mut c, 1, 100, worth(0), OBJECTS).0.iter().all(|tried| word_mask(tried)));
        run(&mut c, 1, 2, worth(0), text);
        let (tried, last) = run(&mut c, 1, 200, worth(0), OBJECTS);
        assert!(!word_mask(&tried[0]), "LZ4 costs less for a while");
        assert_eq!(last, Some(CodecId::WORD_MASK));
        // One page in fifty: LZ4 costs 1.1 us more for each, and a page that fails 25 us.
        let mut c = selector();
        let pages =
            shares(2).take(6400).map(|miss| page(&mut c, 1, worth(0), LIMIT, if miss { text } else { OBJECTS }));
        let alone = pages.filter(|tried| word_mask(tried)).count();
        assert!(alone > 6400 * 3 / 4, "{alone}");
    }

    #[test]
    fn a_region_begins_with_the_verdict_of_the_one_before_it() {
        // One page in each region, and more regions than slots: as in one region.
        let mut c = selector();
        let tried: Vec<_> =
            (0..3 * SLOTS_LEAST as u64).map(|key| page(&mut c, key, worth(0), LIMIT, OBJECTS)).collect();
        assert_eq!(tried[0], PLAIN);
        assert_eq!(several(&tried), 1);
        let tried: Vec<_> =
            (0..3 * SLOTS_LEAST as u64).map(|key| page(&mut c, key, worth(60), LIMIT, OBJECTS)).collect();
        assert!(several(&tried) * 7 < tried.len(), "{}", several(&tried));
        assert!(tried[100..].iter().filter(|codecs| codecs.len() == 1).all(|codecs| codecs[0] == CodecId::ZSTD_FAST));
        // Of other contents it learns soon.
        let (tried, last) =
            run(&mut c, u64::MAX, 64, worth(60), &[(CodecId::WORD_MASK, 600), (CodecId::ZSTD_FAST, 590)]);
        assert!(tried[..=usize::from(WAIT_INHERITED)].iter().any(|codecs| codecs.len() > 1));
        assert_eq!(last, Some(CodecId::WORD_MASK));
    }

    #[test]
    fn the_table_grows_with_the_program() {
        assert_eq!(size_of::<RegionChoice>(), 40);
        // Half of the regions have other contents.
        let (regions, mut c) = (4 * SLOTS_LEAST as u64, CodecSelector::new(4 * SLOTS_LEAST as u64 * 64));
        let text: Lens = &[(CodecId::LZ4, 1500), (CodecId::ZSTD, 1400)];
        let mut lap = || -> usize {
            let of = |key: u64| if key * 7 % 16 < 8 { OBJECTS } else { text };
            (0..regions)
                .map(|key| page(&mut c, key * 11 % regions, worth(0), LIMIT, of(key * 11 % regions)).len())
                .sum()
        };
        let laps: Vec<usize> = (0..20).map(|_| lap()).collect();
        assert!(laps[19] < regions as usize * 11 / 10, "{laps:?} for {regions} pages");
        assert_eq!(c.regions.len(), 8 * SLOTS_LEAST);
        assert_eq!(CodecSelector::new(u64::MAX).most, SLOTS_MOST);
        // A small budget does not pay for a large table.
        let mut c = CodecSelector::new(4096);
        (0..10 * SLOTS_LEAST as u64).for_each(|key| _ = page(&mut c, key, worth(0), LIMIT, OBJECTS));
        assert_eq!(c.regions.len(), SLOTS_LEAST);
    }

    #[test]
    fn pages_that_one_codec_compresses_are_not_skipped() {
        let mut c = selector();
        let (tried, last) = run(&mut c, 1, 640, worth(43), &[(CodecId::WORD_MASK, 2700)]);
        assert_eq!(skipped(&tried), 0, "sorted integers of 32 bits");
        assert_eq!(last, Some(CodecId::WORD_MASK));
    }

    #[test]
    fn a_larger_limit_ends_the_verdict_of_a_smaller_one() {
        let mut c = selector();
        let failures = usize::from(FAILURES_LEAST);
        let (tried, _) = run(&mut c, 1, failures + 1, worth(43), &[]);
        assert_eq!((skipped(&tried[..failures]), skipped(&tried[failures..])), (0, 1));
        let mut tried = |limit, lens| page(&mut c, 1, worth(43), limit, lens);
        assert!(tried(LIMIT - 900, &[]).is_empty());
        assert!(tried(LIMIT, &[]).is_empty(), "pages have failed under this limit");
        assert_eq!(tried(LIMIT + 1, &[]), PLAIN);
        assert!(!tried(LIMIT + 1, &[]).is_empty(), "and as many must fail again");
        // A success under a large limit says nothing of failures under a smaller one.
        tried(LIMIT + 1, OBJECTS);
        assert!((0..1000).any(|_| tried(LIMIT - 900, &[]).is_empty()));
        assert!(tried(LIMIT, OBJECTS).len() > 1);
    }
}
