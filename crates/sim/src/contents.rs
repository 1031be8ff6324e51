//! What pages hold, as far as paging is concerned: what each codec makes of it.

use memfit_codec::generate::{Rng, GENERATORS};
use memfit_codec::{entropy, same_filled, CodecId, Worker, CODECS, CODEC_IDS, ENTROPY_MAX, PAGE};
use std::collections::HashMap;
use std::sync::OnceLock;

/// Pages of a generator that are compressed to stand for all of its pages.
const SAMPLES: u64 = 64;
/// Seed of what they hold.
const SEED: u64 = 1;
/// Room for as many generators.
const GENERATORS_MAX: usize = 64;

/// Names a [`Content`] of [`Contents`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentId(pub u32);

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Content {
    /// It is one word, repeated.
    pub word: Option<u64>,
    /// Entropy of its first bytes, as [`memfit_codec::entropy`] says; `None` where nobody has asked.
    pub entropy: Option<u32>,
    /// Bytes that each codec by number makes of it; [`PAGE`] and more: it does not get smaller; 0: not known.
    lens: [u16; CODEC_IDS + 1],
}

impl Content {
    /// Of which nothing is known but what one codec has made of it; `None`: it did not get smaller.
    pub fn coded(codec: CodecId, len: Option<u16>, entropy: Option<u32>) -> Content {
        let mut lens = [0; CODEC_IDS + 1];
        lens[usize::from(codec.0)] = len.unwrap_or(PAGE as u16);
        Content { word: None, entropy, lens }
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

    /// Bytes that a codec makes of it, `None` if it does not get smaller. Of a codec that was not tried: what another one has
    /// made of it, the smallest.
    pub fn len(&self, codec: CodecId) -> Option<u16> {
        let known = match self.lens[usize::from(codec.0)] {
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
}

/// All contents of a simulation, each once.
#[derive(Debug, Default)]
pub struct Contents {
    all: Vec<Content>,
    names: HashMap<Content, ContentId>,
    /// First of the samples of each generator.
    kinds: HashMap<u16, u32>,
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

/// Samples of a generator. They are compressed by the first simulation that meets it, which takes some milliseconds, and are the
/// same for all others.
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
}
