//! What pages hold, as far as paging is concerned: what each codec makes of it.

use crate::hash::NumberMap;
use memfit_codec::generate::{Rng, GENERATORS};
use memfit_codec::{entropy, same_filled, CodecId, Worker, CODECS, CODEC_IDS, DICTIONARIES_MAX, ENTROPY_MAX, PAGE};
use memfit_core::trace::Contents as Held;
use std::collections::HashMap;
use std::sync::OnceLock;

/// Pages of a generator that are compressed to stand for all of its pages.
const SAMPLES: u64 = 64;
/// Seed of what they hold.
const SEED: u64 = 1;
/// Room for as many generators.
const GENERATORS_MAX: usize = 64;

/// As many contents of recorded pages are told from each other, 5 MiB of them. The others are the
/// nearest by [`Content::rough`].
const EXACT_MAX: usize = 1 << 16;

/// Names a [`Content`] of [`Contents`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentId(pub u32);

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Content {
    /// It is one word, repeated.
    pub word: Option<u64>,
    /// Entropy of its first bytes, as [`memfit_codec::entropy`] says; `None` where nobody has
    /// asked.
    pub entropy: Option<u32>,
    /// Bytes that each codec by number makes of it; [`PAGE`] and more: it does not get smaller; 0:
    /// not known.
    lens: [u16; CODEC_IDS + 1],
}

impl Content {
    /// Of which nothing is known but what one codec has made of it; `None`: it did not get smaller.
    pub fn coded(codec: CodecId, len: Option<u16>, entropy: Option<u32>) -> Content {
        let mut lens = [0; CODEC_IDS + 1];
        lens[usize::from(codec.0)] = len.unwrap_or(PAGE as u16);
        Content { word: None, entropy, lens }
    }

    /// What was recorded of a page.
    pub fn held(held: &Held) -> Content {
        let mut lens = [0; CODEC_IDS + 1];
        lens.iter_mut().zip(held.lens).for_each(|(to, len)| *to = len);
        Content { word: held.word, entropy: Some(held.entropy), lens }
    }

    /// A page of one word.
    pub fn word(word: u64) -> Content {
        Content { word: Some(word), entropy: Some(0), lens: [0; CODEC_IDS + 1] }
    }

    /// That nothing compresses.
    pub fn noise() -> Content {
        Content { word: None, entropy: None, lens: [PAGE as u16; CODEC_IDS + 1] }
    }

    /// The real thing: what all codecs make of a page.
    pub fn of(page: &[u8], worker: &mut Worker) -> Content {
        let mut lens = [0; CODEC_IDS + 1];
        let mut out = [0; PAGE * 2];
        for codec in CODECS {
            let id = codec.id.newest(0);
            let len = worker.compress(id, page, &mut out, PAGE);
            lens[usize::from(codec.id.0)] = len.map_or(PAGE as u16, |len| len as u16);
        }
        Content { word: same_filled(page), entropy: Some(entropy(page)), lens }
    }

    /// What this codec has made of it. Of a trained one whichever dictionary was used, or else what
    /// its relative without one has made of it; 0: neither was tried.
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

    /// Bytes that a codec makes of it, `None` if it does not get smaller. Of a codec that was not
    /// tried: what another one has made of it, the smallest.
    pub fn len(&self, codec: CodecId) -> Option<u16> {
        let known = match self.tried(codec) {
            0 => self.lens.iter().copied().filter(|&len| len > 0).min().unwrap_or(PAGE as u16),
            len => len,
        };
        (usize::from(known) < PAGE).then_some(known)
    }

    /// Its entropy; of one that nobody has asked for, what its smallest length lets expect.
    pub fn estimate(&self) -> u32 {
        let smallest = self.lens.iter().copied().filter(|&len| len > 0).min().unwrap_or(PAGE as u16);
        self.entropy.unwrap_or_else(|| u32::from(smallest) * ENTROPY_MAX / PAGE as u32)
    }

    /// Whether this codec was tried.
    pub fn knows(&self, codec: CodecId) -> bool {
        self.lens[usize::from(codec.0)] > 0
    }

    /// The same for contents that are alike: three of the lengths, in eighths of a KiB.
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
    /// Of those beyond [`EXACT_MAX`].
    rough: HashMap<(bool, [u8; 3]), ContentId>,
    /// First of the samples of each generator.
    kinds: NumberMap<u16, u32>,
}

impl Contents {
    /// Nothing yet.
    pub fn new() -> Contents {
        Contents::default()
    }

    /// Names a content.
    pub fn intern(&mut self, content: Content) -> ContentId {
        let Contents { all, names, .. } = self;
        *names.entry(content).or_insert_with(|| {
            all.push(content);
            ContentId(all.len() as u32 - 1)
        })
    }

    /// Names a content, or one that is alike when there are many: nearly every page that is written
    /// to is another one.
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

    /// By its name.
    pub fn get(&self, id: ContentId) -> &Content {
        &self.all[id.0 as usize]
    }

    /// All from this number on.
    pub fn since(&self, first: usize) -> impl Iterator<Item = Content> + '_ {
        self.all[first..].iter().copied()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// What nothing compresses.
    pub fn noise(&mut self) -> ContentId {
        self.intern(Content::noise())
    }

    /// What was never written to.
    pub fn zeros(&mut self) -> ContentId {
        self.intern(Content::word(0))
    }

    /// What a page holds that this generator has filled: always the same for the same `which`.
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

/// Samples of a generator. They are compressed by the first simulation that meets it, which takes
/// some milliseconds, and are the same for all others.
fn samples(kind: u16) -> &'static [Content] {
    static MADE: [OnceLock<Vec<Content>>; GENERATORS_MAX] = [const { OnceLock::new() }; GENERATORS_MAX];
    let kind = usize::from(kind);
    MADE[kind].get_or_init(|| {
        let (mut worker, mut rng) = (Worker::new(), Rng::new(SEED + kind as u64));
        let mut page = [0; PAGE];
        let sample = |_| {
            (GENERATORS[kind].fill)(&mut rng, &mut page);
            Content::of(&page, &mut worker)
        };
        (0..SAMPLES).map(sample).collect()
    })
}

/// The generator of this name.
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
                usize::from(contents.get(id).len(codec).unwrap_or(PAGE as u16))
            });
            lens.sum::<usize>() as f64 / 1000.0 / PAGE as f64
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
