//! Selects the codec of each region: the fastest one that packs well, a slower one where that is
//! clearly better, none where no codec helps. The caller's [`Aim`] says which codecs are weighed
//! and what is clearly better.
//!
//! Contents are alike within a region (256 KiB of address space; the caller makes the key). So one
//! page in [`SAMPLE_EVERY`] is compressed with all codecs of the aim, and the others follow the
//! verdict. Only the order of calls decides, without a clock or randomness, so a recorded run can
//! be replayed.
//!
//! | verdict | when (running mean of compressed / original length) |
//! |---|---|
//! | word-mask | at most [`Aim::good_enough`]; it takes a third of LZ4's time |
//! | the next slower one | better by [`Aim::worth`] than the verdict so far |
//! | skip | [`FAILURES_TO_SKIP`] compressions in a row, by whichever codec, missed their limit |

use crate::codec::CodecId;

/// Scores are fractions of this: compressed length / original length; `ONE` for an incompressible
/// page.
const ONE: u16 = 1024;
/// One page in this many is tried with all codecs of the aim.
const SAMPLE_EVERY: u16 = 32;
/// Failed compressions in a row (a sample counts for each codec) after which pages of a region are
/// skipped.
const FAILURES_TO_SKIP: u8 = 3;
/// Pages skipped between two samples of an incompressible region: at first, and at most (the number
/// doubles).
const SKIP_FIRST: u16 = 16;
const SKIP_MOST: u16 = 128;
/// Regions remembered: 4096 of 256 KiB are 1 GiB. Two regions in one slot displace each other,
/// which costs samples.
const SLOTS: usize = 4096;

/// Most codecs that an aim weighs.
const CODECS_MAX: usize = 3;

/// What the caller wants from a codec.
///
/// Reasons for these codecs (`make bench-codecs`, heaps of seven programs; lab/bench/README.md has
/// the table): of the other codecs only slower ones are smaller. With lzo instead of LZ4 the fast
/// rule would give 0.369 instead of 0.393 of the size, for 1 us more in both directions; with lz4hc
/// 0.350, for ten times the time to compress; with zstd-fast 0.288, for twice the time in both
/// directions, which is what the dense rule is for. wkdm and wk4x4 are slower than word-mask and
/// gain at most 1 % beside LZ4; deflate is larger and slower than zstd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Little time.
    Fast,
    /// Few bytes: where most pages are evicted, each saved frame is a page in the program's memory.
    Dense,
    /// As `Dense`, with a trained dictionary. [`CodecId::ZSTD_TRAINED`] stands for the newest one.
    Trained,
    /// Fewer bytes for little more time: where most pages go on to a fast device.
    Spill,
}

impl Aim {
    /// The codecs that the aim weighs, fastest first.
    fn codecs(self) -> &'static [CodecId] {
        match self {
            Aim::Fast => &[CodecId::WORD_MASK, CodecId::LZ4],
            Aim::Dense => &[CodecId::WORD_MASK, CodecId::ZSTD_FAST, CodecId::ZSTD],
            Aim::Trained => &[CodecId::WORD_MASK, CodecId::ZSTD_TRAINED, CodecId::ZSTD],
            Aim::Spill => &[CodecId::WORD_MASK, CodecId::ZSTD_FAST],
        }
    }

    /// The codecs that any aim weighs, each once.
    pub fn all_codecs() -> Vec<CodecId> {
        let mut all = Vec::new();
        let aims = [Aim::Fast, Aim::Dense, Aim::Trained, Aim::Spill];
        aims.iter().flat_map(|aim| aim.codecs()).for_each(|&codec| {
            if !all.contains(&codec) {
                all.push(codec);
            }
        });
        all
    }

    /// Up to this score (25 %; 12 %) the first codec is used whatever the others reach: little is
    /// left to gain.
    fn good_enough(self) -> u16 {
        match self {
            Aim::Fast => 256,
            Aim::Dense | Aim::Trained | Aim::Spill => 128,
        }
    }

    /// Minimum gain of a slower codec. Fast: 8 % of the page, about 330 bytes, is worth 1 to 9 us
    /// more per page; not more, because the heaps of CPython and node on which LZ4 wins also
    /// decompress faster with it. Dense: 4 %.
    fn worth(self) -> u16 {
        match self {
            Aim::Fast => 82,
            Aim::Dense | Aim::Trained | Aim::Spill => 41,
        }
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
    /// Running mean scores of the aim's codecs.
    scores: [u16; CODECS_MAX],
    aim: Aim,
    /// Pages left until the next sample.
    until_sample: u16,
    /// Pages in the current wait between two samples while skipping.
    skip: u16,
    failures: u8,
    /// The codec in use failed, and no other codec has a good score: sample soon.
    ask_soon: bool,
    known: bool,
}

const UNKNOWN: RegionChoice = RegionChoice {
    key: 0,
    scores: [ONE; CODECS_MAX],
    aim: Aim::Fast,
    until_sample: 0,
    skip: SKIP_FIRST,
    failures: 0,
    ask_soon: false,
    known: false,
};

impl RegionChoice {
    fn verdict(&self) -> CodecId {
        let (codecs, mut best) = (self.aim.codecs(), 0);
        if self.scores[0] > self.aim.good_enough() {
            for i in 1..codecs.len() {
                if self.scores[i].saturating_add(self.aim.worth()) < self.scores[best] {
                    best = i;
                }
            }
        }
        codecs[best]
    }
}

/// Running scores of up to 4096 regions, in a fixed table of 96 KiB.
pub struct CodecSelector {
    regions: Box<[RegionChoice]>,
}

impl CodecSelector {
    /// Empty: the first page of each region is a sample.
    pub fn new() -> CodecSelector {
        CodecSelector { regions: vec![UNKNOWN; SLOTS].into_boxed_slice() }
    }

    /// What to do with the next page of this region. Counts the page, so call it once per page.
    pub fn choose(&mut self, region_key: u64, aim: Aim) -> Choice {
        let region = self.slot(region_key);
        if region.key != region_key || !region.known {
            *region = RegionChoice { key: region_key, known: true, aim, ..UNKNOWN };
        }
        if region.aim != aim {
            (region.aim, region.scores) = (aim, [ONE; CODECS_MAX]);
            // A region that is incompressible for one aim is so for the other.
            region.ask_soon = region.failures < FAILURES_TO_SKIP;
        }
        let skipping = region.failures >= FAILURES_TO_SKIP;
        if region.until_sample == 0 || region.ask_soon {
            region.ask_soon = false;
            region.until_sample = if skipping { region.skip } else { SAMPLE_EVERY - 1 };
            if skipping {
                region.skip = (region.skip * 2).min(SKIP_MOST);
            }
            return Choice::Sample(aim.codecs());
        }
        region.until_sample -= 1;
        if skipping {
            Choice::Skip
        } else {
            Choice::Use(region.verdict())
        }
    }

    /// Reports the result of one compression: lengths in bytes; `None` if it reached its limit.
    ///
    /// Codecs that the region does not weigh and regions displaced meanwhile are ignored.
    pub fn record(&mut self, region_key: u64, codec: CodecId, in_len: usize, out_len: Option<usize>) {
        let region = self.slot(region_key);
        if region.key != region_key || !region.known || in_len == 0 {
            return;
        }
        let now = out_len.map_or(ONE, |out| (out.min(in_len) * usize::from(ONE) / in_len) as u16);
        let Some(i) = region.aim.codecs().iter().position(|&c| c == codec) else { return };
        let others = (0..CODECS_MAX).any(|other| other != i && region.scores[other] != ONE);
        // Each result counts a quarter: four pages of new contents turn a verdict. The first result
        // of a codec, and one after "incompressible", replaces the score.
        let score = &mut region.scores[i];
        *score = if *score == ONE { now } else { (3 * *score + now) / 4 };
        if out_len.is_some() {
            region.failures = 0;
            region.skip = SKIP_FIRST;
            region.until_sample = region.until_sample.min(SAMPLE_EVERY - 1);
            region.ask_soon = false;
        } else if region.failures < FAILURES_TO_SKIP {
            region.failures += 1;
            let decided = region.failures == FAILURES_TO_SKIP;
            region.ask_soon = !decided && !others;
            if decided {
                region.until_sample = region.skip;
            }
        }
    }

    fn slot(&mut self, key: u64) -> &mut RegionChoice {
        // Fibonacci hashing: it spreads neighbouring regions, and the top bits depend on all bits
        // of the key.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS.trailing_zeros());
        &mut self.regions[hash as usize]
    }
}

impl Default for CodecSelector {
    fn default() -> Self {
        CodecSelector::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE_BYTES;

    /// Compresses `pages` pages with given lengths; counts (word-mask only, other only, both,
    /// skipped).
    fn run_for(
        aim: Aim,
        c: &mut CodecSelector,
        key: u64,
        pages: usize,
        word_mask: Option<usize>,
        other: Option<usize>,
    ) -> [usize; 4] {
        let mut n = [0; 4];
        for _ in 0..pages {
            let choice = c.choose(key, aim);
            for &codec in aim.codecs() {
                if choice == Choice::Sample(aim.codecs()) || choice == Choice::Use(codec) {
                    c.record(key, codec, PAGE_BYTES, if codec == CodecId::WORD_MASK { word_mask } else { other });
                }
            }
            n[match choice {
                Choice::Use(CodecId::WORD_MASK) => 0,
                Choice::Use(_) => 1,
                Choice::Sample(_) => 2,
                Choice::Skip => 3,
            }] += 1;
        }
        n
    }

    fn run(c: &mut CodecSelector, key: u64, pages: usize, word_mask: Option<usize>, lz4: Option<usize>) -> [usize; 4] {
        run_for(Aim::Fast, c, key, pages, word_mask, lz4)
    }

    #[test]
    fn another_aim_is_another_verdict() {
        let mut c = CodecSelector::new();
        let mut counts = |aim, word_mask, other| run_for(aim, &mut c, 1, 40, Some(word_mask), Some(other));
        assert_eq!(counts(Aim::Fast, 1000, 900), [38, 0, 2, 0]);
        assert_eq!(counts(Aim::Dense, 1000, 500), [0, 38, 2, 0], "asked at once");
        assert_eq!(counts(Aim::Fast, 1000, 900), [38, 0, 2, 0]);
        assert_eq!(counts(Aim::Dense, 500, 300), [38, 0, 2, 0], "good enough");
    }

    #[test]
    fn each_slower_codec_must_be_worth_it() {
        let mut c = CodecSelector::new();
        let mut used = |key, lens: [usize; 3]| {
            (0..40).fold(CodecId(0), |last, _| match c.choose(key, Aim::Dense) {
                Choice::Sample(codecs) => {
                    codecs.iter().zip(lens).for_each(|(&codec, len)| c.record(key, codec, PAGE_BYTES, Some(len)));
                    last
                }
                Choice::Use(codec) => codec,
                Choice::Skip => panic!("nothing failed"),
            })
        };
        assert_eq!(used(1, [3000, 1150, 1100]), CodecId::ZSTD_FAST);
        assert_eq!(used(2, [3000, 1300, 1000]), CodecId::ZSTD);
        assert_eq!(used(3, [1150, 1100, 1000]), CodecId::WORD_MASK, "4 % is the least");
        assert_eq!(used(4, [1150, 1100, 900]), CodecId::ZSTD, "each is compared with the best so far");
    }

    #[test]
    fn what_goes_on_to_a_device_is_not_compressed_at_any_price() {
        let mut c = CodecSelector::new();
        let Choice::Sample(codecs) = c.choose(1, Aim::Spill) else { panic!("the first is a sample") };
        assert_eq!(codecs, [CodecId::WORD_MASK, CodecId::ZSTD_FAST]);
        codecs.iter().zip([2500, 2000]).for_each(|(&codec, len)| c.record(1, codec, PAGE_BYTES, Some(len)));
        assert_eq!(c.choose(1, Aim::Spill), Choice::Use(CodecId::ZSTD_FAST));
    }

    #[test]
    fn another_aim_does_not_try_the_hopeless_again() {
        let mut c = CodecSelector::new();
        run(&mut c, 1, 200, None, None);
        let [_, _, both, skipped] = run_for(Aim::Dense, &mut c, 1, 20, None, None);
        assert!(both <= 1 && skipped >= 19, "{both} {skipped}");
    }

    #[test]
    fn verdicts() {
        let mut c = CodecSelector::new();
        assert_eq!(run(&mut c, 1, 320, Some(1000), Some(400)), [310, 0, 10, 0], "good enough");
        assert_eq!(run(&mut c, 2, 320, Some(2400), Some(2200)), [310, 0, 10, 0], "close to lz4");
        assert_eq!(run(&mut c, 3, 320, Some(3400), Some(1500)), [0, 310, 10, 0], "lz4 clearly better");
        assert_eq!(run(&mut c, 4, 320, None, Some(1500)), [0, 310, 10, 0], "only lz4 can");
    }

    #[test]
    fn incompressible_regions_cost_little_and_recover() {
        let mut c = CodecSelector::new();
        let [w, l, both, skipped] = run(&mut c, 7, 1280, None, None);
        assert!(w + l <= 2 && both <= 16 && skipped >= 1260, "{w} {l} {both} {skipped}");
        let [w, _, both, skipped] = run(&mut c, 7, 1280, Some(800), Some(900));
        assert!(skipped <= usize::from(SKIP_MOST) && w > 1000 && both < 45, "{w} {both} {skipped}");
    }

    #[test]
    fn follows_changing_contents() {
        let mut c = CodecSelector::new();
        run(&mut c, 9, 100, Some(1000), Some(1500));
        let n = run(&mut c, 9, 320, Some(4000), Some(1500));
        assert!(n[1] > 150, "moves to lz4: {n:?}");
        let n = run(&mut c, 9, 320, Some(1000), Some(1500));
        assert!(n[0] > 150, "and back: {n:?}");
    }

    #[test]
    fn displaced_regions_are_sampled_again() {
        let mut c = CodecSelector::new();
        for key in 0..3 * SLOTS as u64 {
            assert_eq!(c.choose(key, Aim::Fast), Choice::Sample(Aim::Fast.codecs()));
            c.record(key, CodecId::WORD_MASK, PAGE_BYTES, Some(10));
        }
        c.record(u64::MAX, CodecId::LZ4, PAGE_BYTES, None);
        c.record(5, CodecId::ZSTD, PAGE_BYTES, None);
    }
}
