//! Contents of pages as far as paging is concerned: the size that each codec gives.

use crate::hash::NumberMap;
use memfit_codec::generate::{Rng, GENERATORS};
use memfit_codec::{
    entropy, same_filled, CodecId, Worker, CODECS, CODEC_IDS, DICTIONARIES_MAX, ENTROPY_MAX, PAGE_BYTES,
};
use memfit_core::trace::Contents as Held;
use std::collections::HashMap;
use std::sync::OnceLock;

/// Pages of a generator that are compressed to stand for all of its pages.
const SAMPLES: u64 = 64;
/// Seed of these pages.
const SEED: u64 = 1;
/// Most generators.
const GENERATORS_MAX: usize = 64;

/// Most contents that [`Contents::near`] distinguishes, 5 MiB of them. Beyond that similar ones
/// count as the same, by [`Content::rough`].
const EXACT_MAX: usize = 1 << 16;

/// Number of a [`Content`] in [`Contents`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentId(pub u32);

/// The content of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Content {
    /// The word that fills the page, if it is a single one.
    pub word: Option<u64>,
    /// Entropy of its first bytes by [`memfit_codec::entropy`]; `None` if it was not estimated.
    pub entropy: Option<u32>,
    /// Compressed size for each codec number, bytes. [`PAGE_BYTES`] or more: incompressible; 0: not
    /// known.
    lens: [u16; CODEC_IDS + 1],
}

impl Content {
    /// A content of which only the result of one codec is known; `len` `None`: incompressible.
    pub fn coded(codec: CodecId, len: Option<u16>, entropy: Option<u32>) -> Content {
        let mut lens = [0; CODEC_IDS + 1];
        lens[usize::from(codec.0)] = len.unwrap_or(PAGE_BYTES as u16);
        Content { word: None, entropy, lens }
    }

    /// The recorded content of a page.
    pub fn held(held: &Held) -> Content {
        let mut lens = [0; CODEC_IDS + 1];
        lens.iter_mut().zip(held.lens).for_each(|(to, len)| *to = len);
        Content { word: held.word, entropy: Some(held.entropy), lens }
    }

    /// A page filled with one word.
    pub fn word(word: u64) -> Content {
        Content { word: Some(word), entropy: Some(0), lens: [0; CODEC_IDS + 1] }
    }

    /// A page that no codec compresses.
    pub fn noise() -> Content {
        Content { word: None, entropy: None, lens: [PAGE_BYTES as u16; CODEC_IDS + 1] }
    }

    /// Compresses a page with every codec.
    pub fn of(page: &[u8], worker: &mut Worker) -> Content {
        let mut lens = [0; CODEC_IDS + 1];
        let mut out = [0; PAGE_BYTES * 2];
        for codec in CODECS {
            let id = codec.id.newest(0);
            let len = worker.compress(id, page, &mut out, PAGE_BYTES);
            lens[usize::from(codec.id.0)] = len.map_or(PAGE_BYTES as u16, |len| len as u16);
        }
        Content { word: same_filled(page), entropy: Some(entropy(page)), lens }
    }

    /// Size that this codec gave; 0: not tried. For a trained codec, with any dictionary, or else
    /// that of the same codec without a dictionary.
    fn tried(&self, codec: CodecId) -> u16 {
        let first = usize::from(codec.0);
        let relative = codec.newest(0);
        match self.lens[first] {
            0 if relative != codec => {
                let trained = self.lens[first..first + DICTIONARIES_MAX].iter().rev();
                trained.copied().find(|&len| len > 0).unwrap_or(self.lens[usize::from(relative.0)])
            }
            len => len,
        }
    }

    /// Compressed size with a codec, bytes; `None` if it is incompressible. For a codec that was
    /// not tried, the smallest size of the others.
    pub fn len(&self, codec: CodecId) -> Option<u16> {
        let known = match self.tried(codec) {
            0 => self.lens.iter().copied().filter(|&len| len > 0).min().unwrap_or(PAGE_BYTES as u16),
            len => len,
        };
        (usize::from(known) < PAGE_BYTES).then_some(known)
    }

    /// The codec of the run, if its result is all that was recorded.
    pub fn only(&self) -> Option<CodecId> {
        // A page that the run stored raw has 0.
        let mut known = (1..self.lens.len()).filter(|&codec| self.lens[codec] > 0);
        known.next().filter(|_| known.next().is_none()).map(|codec| CodecId(codec as u8))
    }

    /// Estimate of entropy; if there is none, derived from the smallest compressed size.
    pub fn estimate(&self) -> u32 {
        let smallest = self.lens.iter().copied().filter(|&len| len > 0).min().unwrap_or(PAGE_BYTES as u16);
        self.entropy.unwrap_or_else(|| u32::from(smallest) * ENTROPY_MAX / PAGE_BYTES as u32)
    }

    /// Whether this codec was tried.
    pub fn knows(&self, codec: CodecId) -> bool {
        self.lens[usize::from(codec.0)] > 0
    }

    /// A key that similar contents share: three of the sizes, in eighths of a KiB.
    fn rough(&self) -> (bool, [u8; 3]) {
        let known: Vec<u16> = self.lens.iter().copied().filter(|&len| len > 0).collect();
        let len = |at: usize| known.get(at).map_or(0, |len| len.div_ceil(128) as u8);
        (self.word.is_some(), [len(0), len(known.len() / 2), len(known.len().saturating_sub(1))])
    }
}

/// All contents of a simulation, each once.
#[derive(Debug, Default)]
pub struct Contents {
    all: Vec<Content>,
    names: HashMap<Content, ContentId>,
    /// Contents beyond [`EXACT_MAX`] by their key.
    rough: HashMap<(bool, [u8; 3]), ContentId>,
    /// First sample of each generator.
    kinds: NumberMap<u16, u32>,
}

impl Contents {
    /// No contents.
    pub fn new() -> Contents {
        Contents::default()
    }

    /// The number of a content; adds it if it is new.
    pub fn intern(&mut self, content: Content) -> ContentId {
        let Contents { all, names, .. } = self;
        *names.entry(content).or_insert_with(|| {
            all.push(content);
            ContentId(all.len() as u32 - 1)
        })
    }

    /// The number of a content, or of a similar one if there are many. Nearly every written page
    /// has a content of its own.
    pub fn near(&mut self, content: Content) -> ContentId {
        if self.all.len() < EXACT_MAX || self.names.contains_key(&content) {
            return self.intern(content);
        }
        let rough = content.rough();
        match self.rough.get(&rough) {
            Some(&id) => id,
            None => {
                let id = self.intern(content);
                self.rough.insert(rough, id);
                id
            }
        }
    }

    /// The content with a number.
    pub fn get(&self, id: ContentId) -> &Content {
        &self.all[id.0 as usize]
    }

    /// All contents from this number on.
    pub fn since(&self, first: usize) -> impl Iterator<Item = Content> + '_ {
        self.all[first..].iter().copied()
    }

    /// Number of contents.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// A page that no codec compresses.
    pub fn noise(&mut self) -> ContentId {
        self.intern(Content::noise())
    }

    /// A page that was never written.
    pub fn zeros(&mut self) -> ContentId {
        self.intern(Content::word(0))
    }

    /// Content of a page filled by this generator: always the same for the same `which`.
    pub fn sample(&mut self, kind: u16, which: u64) -> ContentId {
        let all = &mut self.all;
        let first = *self.kinds.entry(kind).or_insert_with(|| {
            let first = all.len() as u32;
            all.extend(samples(kind));
            first
        });
        let mixed = (which ^ which >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ContentId(first + (mixed >> 32) as u32 % SAMPLES as u32)
    }
}

/// Samples of a generator. The first simulation that needs them compresses them, which takes some
/// milliseconds; all others share them.
fn samples(kind: u16) -> &'static [Content] {
    static MADE: [OnceLock<Vec<Content>>; GENERATORS_MAX] = [const { OnceLock::new() }; GENERATORS_MAX];
    let kind = usize::from(kind);
    MADE[kind].get_or_init(|| {
        let (mut worker, mut rng) = (Worker::new(), Rng::new(SEED + kind as u64));
        let mut page = [0; PAGE_BYTES];
        let sample = |_| {
            (GENERATORS[kind].fill)(&mut rng, &mut page);
            Content::of(&page, &mut worker)
        };
        (0..SAMPLES).map(sample).collect()
    })
}

/// Index of the generator with this name.
pub fn kind(name: &str) -> Option<u16> {
    GENERATORS.iter().position(|generator| generator.name == name).map(|i| i as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_what_codecs_make_of_the_generators_pages() {
        let mut contents = Contents::new();
        let half = kind("f=0.50").unwrap();
        let ratio = |contents: &mut Contents, kind, codec| {
            let lens = (0..1000).map(|which| {
                let id = contents.sample(kind, which);
                usize::from(contents.get(id).len(codec).unwrap_or(PAGE_BYTES as u16))
            });
            lens.sum::<usize>() as f64 / 1000.0 / PAGE_BYTES as f64
        };
        // LZO1X-1 makes 0.58 and 1.00 of such pages, measured with the reference library.
        assert!((ratio(&mut contents, half, CodecId::LZO) - 0.58).abs() < 0.03);
        assert!(ratio(&mut contents, kind("random").unwrap(), CodecId::LZO) > 0.999);
        let zero = contents.sample(kind("zero").unwrap(), 7);
        assert_eq!(contents.get(zero).word, Some(0));
        assert_eq!(contents.sample(half, 5), contents.sample(half, 5));
        assert_eq!(contents.count() as u64, 3 * SAMPLES);
    }

    #[test]
    fn of_a_codec_that_was_not_tried_is_known_what_another_has_made() {
        let content = Content::coded(CodecId::LZ4, Some(900), None);
        assert_eq!((content.len(CodecId::LZ4), content.len(CodecId::ZSTD)), (Some(900), Some(900)));
        assert!(content.knows(CodecId::LZ4) && !content.knows(CodecId::ZSTD));
        assert_eq!(Content::coded(CodecId::LZ4, None, None).len(CodecId::LZO), None);
        assert_eq!((content.only(), Content::noise().only()), (Some(CodecId::LZ4), None));
        assert_eq!(Content::noise().len(CodecId::LZ4), None);
        let mut contents = Contents::new();
        let id = contents.intern(content);
        assert_eq!((contents.intern(content), contents.count()), (id, 1));
    }

    fn held(word: Option<u64>, tried: &[(usize, u16)]) -> Content {
        let mut lens = [0; memfit_core::trace::CODECS_MAX];
        tried.iter().for_each(|&(codec, len)| lens[codec] = len);
        let whose = memfit_core::trace::Whose::Object(memfit_core::ObjectId(1));
        Content::held(&Held { whose, hash: 1, entropy: 7, word, lens })
    }

    #[test]
    fn recorded_lengths_are_those_of_their_codecs() {
        let content = held(None, &[(1, 900), (2, 700), (6, 650), (9, 4096), (31, 5)]);
        let lens = [CodecId::LZ4, CodecId::ZSTD, CodecId::ZSTD_TRAINED, CodecId::LZO].map(|codec| content.len(codec));
        assert_eq!(lens, [Some(900), Some(700), Some(650), None]);
        assert_eq!(content.len(CodecId::WKDM), Some(650), "not tried: the smallest");
        let plain = held(None, &[(1, 900), (2, 700), (9, 400)]);
        assert_eq!(plain.len(CodecId::ZSTD_TRAINED), Some(700), "there was no dictionary");
        assert_eq!((content.estimate(), held(Some(5), &[]).word), (7, Some(5)));
    }

    #[test]
    fn many_contents_take_bounded_memory() {
        let mut contents = Contents::new();
        let different = |i: u32| held(None, &[(1, (i % 4000) as u16 + 1), (2, (i / 97 % 4001) as u16 + 1), (3, 9)]);
        let mut furthest = 0;
        for i in 0..2 * EXACT_MAX as u32 {
            let content = different(i);
            let id = contents.near(content);
            let found = contents.get(id);
            assert!(i >= EXACT_MAX as u32 || *found == content);
            let by = [CodecId::LZ4, CodecId::ZSTD]
                .map(|codec| found.len(codec).unwrap().abs_diff(content.len(codec).unwrap()));
            furthest = furthest.max(by[0]).max(by[1]);
        }
        assert!(furthest > 0 && furthest < 128, "{furthest}");
        assert!(contents.count() < EXACT_MAX + 33 * 33, "{}", contents.count());
    }
}
