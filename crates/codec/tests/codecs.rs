//! Every codec of the table: round trips over all kinds of pages, and decoding of bytes that no
//! compressor made.
#![cfg(not(miri))] // foreign code

use memfit_codec::{
    fill, find,
    generate::{samples, trained_worker, Rng, GENERATORS},
    same_filled, CodecId, Corrupt, Dictionaries, Worker, CODECS, DICTIONARIES_MAX, MAX_UNIT, PAGE_BYTES,
    TRAINING_PAGES,
};
use proptest::prelude::*;
use std::sync::Arc;

/// Compresses and restores through buffers of exact size; checks the meaning of `limit`.
fn round_trip(worker: &mut Worker, codec: CodecId, src: &[u8]) -> Option<Box<[u8]>> {
    let mut dst = vec![0x55; src.len()].into_boxed_slice();
    let n = worker.compress(codec, src, &mut dst, src.len())?;
    assert!(n < src.len());
    let packed: Box<[u8]> = dst[..n].into();
    let mut out = vec![0xaa; src.len()].into_boxed_slice();
    assert_eq!(worker.decompress(codec, &packed, &mut out), Ok(()), "{codec:?}");
    assert!(*out == *src, "{codec:?} restored other bytes");
    let limit = src.len();
    assert_eq!(worker.compress(codec, src, &mut dst, limit), Some(n));
    assert!(*packed == dst[..n], "same input, same output");
    // LZ4 and zstd need a few bytes more than the result has, so a limit of n + 1 may fail.
    let tight = worker.compress(codec, src, &mut dst, n + 1);
    assert!(tight.is_none_or(|m| m <= n), "{codec:?}");
    Some(packed)
}

/// A damaged encoding may decode to anything or be refused; nothing else may happen.
fn abuse(worker: &mut Worker, codec: CodecId, packed: &[u8], len: usize, rng: &mut Rng) {
    let mut out = vec![0; len].into_boxed_slice();
    let mut bad: Box<[u8]> = packed.into();
    for _ in 0..1 + rng.below(4) {
        if !bad.is_empty() {
            bad[rng.below(packed.len() as u64) as usize] ^= 1 << rng.below(8);
        }
    }
    let _ = worker.decompress(codec, &bad, &mut out);
    let cut: Box<[u8]> = packed[..rng.below(packed.len() as u64 + 1) as usize].into();
    if cut.len() < packed.len() {
        assert_eq!(worker.decompress(codec, &cut, &mut out), Err(Corrupt), "{codec:?} cut to {}", cut.len());
    }
    let noise: Box<[u8]> = (0..rng.below(200)).map(|_| rng.next() as u8).collect();
    let _ = worker.decompress(codec, &noise, &mut out);
    // A valid encoding, but of another length.
    let mut other = vec![0; 8 * (1 + rng.below(1024) as usize)].into_boxed_slice();
    if other.len() != len {
        let _ = worker.decompress(codec, packed, &mut other);
    }
}

#[test]
fn every_codec_on_every_page() {
    let mut worker = trained_worker();
    let mut rng = Rng::new(11);
    for codec in CODECS {
        for generator in GENERATORS {
            for len in [8, 64, 504, PAGE_BYTES, PAGE_BYTES + 8, 3 * PAGE_BYTES, MAX_UNIT] {
                let mut src = vec![0; len].into_boxed_slice();
                (generator.fill)(&mut rng, &mut src);
                round_trip(&mut worker, codec.id, &src);
            }
        }
        let mut src = vec![0; PAGE_BYTES];
        assert!(round_trip(&mut worker, codec.id, &src).expect("zeros shrink").len() < PAGE_BYTES / 7);
        let random = GENERATORS.iter().find(|g| g.name == "random").expect("a kind of page");
        (random.fill)(&mut rng, &mut src);
        assert_eq!(round_trip(&mut worker, codec.id, &src), None, "random bytes do not shrink");
    }
}

#[test]
fn damaged_input() {
    let mut worker = trained_worker();
    let mut rng = Rng::new(12);
    for codec in CODECS {
        for generator in GENERATORS {
            for round in 0..60 {
                let mut src = vec![0; if round % 3 == 0 { 8 + 8 * rng.below(40) as usize } else { PAGE_BYTES }];
                (generator.fill)(&mut rng, &mut src);
                if let Some(packed) = round_trip(&mut worker, codec.id, &src) {
                    abuse(&mut worker, codec.id, &packed, src.len(), &mut rng);
                    // The worker still works.
                    round_trip(&mut worker, codec.id, &src);
                }
            }
        }
    }
}

#[test]
fn refused_arguments() {
    let mut worker = trained_worker();
    let mut page = [0; PAGE_BYTES];
    for codec in CODECS {
        assert_eq!(worker.decompress(codec.id, &[], &mut page), Err(Corrupt));
        assert_eq!(worker.decompress(codec.id, &[0; 16], &mut page[..7]), Err(Corrupt));
        assert_eq!(worker.decompress(codec.id, &[0; 16], &mut []), Err(Corrupt));
        assert_eq!(worker.compress(codec.id, &[0; 64], &mut page, 0), None);
        assert_eq!(worker.compress(codec.id, &[0; 64], &mut page, 1), None);
        assert_eq!(worker.compress(codec.id, &[], &mut page, 64), None);
    }
    for unknown in [0, 200, 255] {
        assert_eq!(worker.decompress(CodecId(unknown), &[0; 16], &mut page), Err(Corrupt));
    }
    assert_eq!(find("word-mask").map(|entry| entry.id), Some(CodecId::WORD_MASK));
}

#[test]
fn each_dictionary_reads_what_it_wrote_and_no_other() {
    let dictionaries = Arc::new(Dictionaries::new());
    let (mut writer, mut reader) = (Worker::with(&dictionaries), Worker::with(&dictionaries));
    let kinds: Vec<_> = GENERATORS.iter().filter(|g| g.name != "random").collect();
    let (mut rng, mut page, mut packed, mut out) = (Rng::new(9), [0; PAGE_BYTES], [0; PAGE_BYTES], [0; PAGE_BYTES]);
    (kinds[0].fill)(&mut rng, &mut page);
    assert_eq!(writer.compress(CodecId::ZSTD_TRAINED, &page, &mut packed, PAGE_BYTES), None, "there is none yet");
    assert_eq!(reader.decompress(CodecId::ZSTD_TRAINED, &packed, &mut out), Err(Corrupt));
    let mut kept: Vec<(CodecId, [u8; PAGE_BYTES], Vec<u8>)> = Vec::new();
    for number in 0..DICTIONARIES_MAX {
        assert_eq!(dictionaries.count(), number);
        assert!(dictionaries.train(&samples(number as u64, TRAINING_PAGES)));
        let id = CodecId::ZSTD_TRAINED.with(number);
        for kind in &kinds {
            (kind.fill)(&mut rng, &mut page);
            let Some(len) = writer.compress(id, &page, &mut packed, PAGE_BYTES) else { continue };
            kept.push((id, page, packed[..len].to_vec()));
        }
        // Also pages that were written with older dictionaries.
        for (id, page, packed) in &kept {
            assert_eq!(reader.decompress(*id, packed, &mut out), Ok(()));
            assert!(out == *page, "{id:?} restored other bytes");
        }
    }
    assert!(kept.len() > DICTIONARIES_MAX * kinds.len() / 2, "{} pages", kept.len());
    assert!(!dictionaries.train(&samples(7, TRAINING_PAGES)), "there is room for so many only");
}

#[test]
fn nothing_in_common_gives_no_dictionary() {
    let dictionaries = Dictionaries::new();
    for samples in [&[][..], &[0; PAGE_BYTES], &[7; 100]] {
        assert!(!dictionaries.train(samples));
    }
    assert_eq!(dictionaries.count(), 0);
}

#[test]
fn a_dictionary_makes_pages_like_its_samples_smaller() {
    let (mut packed, mut smaller) = ([0; PAGE_BYTES], Vec::new());
    for generator in GENERATORS {
        let (mut rng, mut pages) = (Rng::new(3), vec![0; 2 * TRAINING_PAGES * PAGE_BYTES]);
        pages.chunks_mut(PAGE_BYTES).for_each(|page| (generator.fill)(&mut rng, page));
        let (learnt, others) = pages.split_at(TRAINING_PAGES * PAGE_BYTES);
        let dictionaries = Arc::new(Dictionaries::new());
        if !dictionaries.train(learnt) {
            continue;
        }
        let mut worker = Worker::with(&dictionaries);
        let mut sum = |id| -> usize {
            others
                .chunks(PAGE_BYTES)
                .map(|page| worker.compress(id, page, &mut packed, PAGE_BYTES).unwrap_or(PAGE_BYTES))
                .sum()
        };
        let (plain, trained) = (sum(CodecId::ZSTD), sum(CodecId::ZSTD_TRAINED));
        // Not for every kind: small integers come out larger.
        if trained * 10 < plain * 9 {
            smaller.push(generator.name);
        }
    }
    assert!(smaller.contains(&"text") && smaller.len() > 1, "by a tenth: only {smaller:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Mixtures: pieces of different kinds of pages, at any multiple of 8 bytes.
    #[test]
    fn round_trips(seed: u64, pieces in prop::collection::vec((0..GENERATORS.len(), 1usize..200), 1..8)) {
        let mut worker = trained_worker();
        let mut rng = Rng::new(seed);
        let mut src = Vec::new();
        for (kind, words) in pieces {
            let mut piece = vec![0; 8 * words];
            (GENERATORS[kind].fill)(&mut rng, &mut piece);
            src.extend(piece);
        }
        for codec in CODECS {
            if let Some(packed) = round_trip(&mut worker, codec.id, &src) {
                abuse(&mut worker, codec.id, &packed, src.len(), &mut rng);
            }
        }
    }

    #[test]
    fn any_bytes_decode_or_are_refused(src: Vec<u8>, words in 1usize..600) {
        let mut worker = trained_worker();
        let mut out = vec![0; 8 * words].into_boxed_slice();
        let src = src.into_boxed_slice();
        for codec in CODECS {
            let _ = worker.decompress(codec.id, &src, &mut out);
        }
    }

    #[test]
    fn same_filled_is_exact(word: u64, words in 1usize..600, at: prop::sample::Index, flip in 1u8..) {
        let mut page = vec![0; 8 * words];
        fill(&mut page, word);
        prop_assert_eq!(same_filled(&page), Some(word));
        let at = at.index(page.len());
        page[at] ^= flip;
        let one = <[u8; 8]>::try_from(&page[..]).ok().map(u64::from_ne_bytes);
        prop_assert_eq!(same_filled(&page), one);
    }
}
