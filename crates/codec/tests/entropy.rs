//! How well the entropy of a page's first bytes predicts that of the whole page, and its compressed
//! length: figures 5 and 6 of ezswap, on generated pages. `--nocapture` prints the correlations;
//! `make bench-codecs` prints those of real heaps.
#![cfg(not(miri))] // foreign code

use memfit_codec::generate::{Rng, GENERATORS};
use memfit_codec::{entropy, CodecId, Worker, ENTROPY_BYTES, ENTROPY_MAX, PAGE_BYTES};

/// Pages of each kind.
const EACH: usize = 60;

/// Entropy per byte in bits, by the formula.
fn bits(bytes: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    let part = |count: &u32| f64::from(*count) / bytes.len() as f64;
    -counts.iter().filter(|count| **count > 0).map(|count| part(count) * part(count).log2()).sum::<f64>()
}

/// Pearson's correlation.
fn correlation(pairs: &[(f64, f64)]) -> f64 {
    let n = pairs.len() as f64;
    let (x, y) = pairs.iter().fold((0.0, 0.0), |(x, y), pair| (x + pair.0 / n, y + pair.1 / n));
    let sum = |f: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|pair| f(pair.0 - x, pair.1 - y)).sum::<f64>();
    sum(&|a, b| a * b) / (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt()
}

#[test]
fn correlation_by_hand() {
    let near = |pairs: &[(f64, f64)], expected: f64| assert!((correlation(pairs) - expected).abs() < 1e-9);
    near(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)], 1.0);
    near(&[(0.0, 1.0), (1.0, 0.0)], -1.0);
    near(&[(-1.0, 1.0), (0.0, -2.0), (1.0, 1.0)], 0.0);
}

#[test]
fn s6_tells_the_entropy_of_the_page_and_the_ratio_of_lzo() {
    let (mut worker, mut rng) = (Worker::new(), Rng::new(8));
    let (mut page, mut packed) = (vec![0; PAGE_BYTES], vec![0; PAGE_BYTES]);
    let (mut half, mut quarter, mut ratio, mut usual) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for generator in GENERATORS {
        for _ in 0..EACH {
            (generator.fill)(&mut rng, &mut page);
            let (estimate, whole) = (f64::from(entropy(&page)) / f64::from(ENTROPY_MAX), bits(&page));
            half.push((estimate, whole));
            quarter.push((bits(&page[..ENTROPY_BYTES / 2]), whole));
            let len = worker.compress(CodecId::LZO, &page, &mut packed, PAGE_BYTES).unwrap_or(PAGE_BYTES);
            ratio.push((estimate, len as f64 / PAGE_BYTES as f64));
            // Two kinds mislead it: all bytes equally often in sequence, and pages whose end
            // differs from their start.
            if !["bytes-0-255", "half-random"].contains(&generator.name) {
                usual.push((estimate, len as f64 / PAGE_BYTES as f64));
            }
        }
    }
    let [half, quarter, ratio, usual] = [half, quarter, ratio, usual].map(|pairs| correlation(&pairs));
    println!("entropy of 512 bytes and of the page: {half:.3}; of 256 bytes: {quarter:.3}");
    println!("entropy of 512 bytes and ratio of lzo: {ratio:.3}; without pages made to mislead: {usual:.3}");
    assert!(half > 0.9 && quarter > 0.85, "{half} {quarter}");
    assert!(ratio > 0.6 && usual > ratio && usual > 0.75, "{ratio} {usual}");
}

/// What the estimate cannot see, so that nothing relies on it.
#[test]
fn s6_is_blind_to_order_and_to_the_rest_of_the_page() {
    let (mut worker, mut rng, mut packed) = (Worker::new(), Rng::new(9), vec![0; PAGE_BYTES]);
    for (name, estimate, real) in [("bytes-0-255", 1.0, 0.07), ("half-random", 0.95, 0.54)] {
        let generator = GENERATORS.iter().find(|generator| generator.name == name).expect("a kind of page");
        let mut page = vec![0; PAGE_BYTES];
        (generator.fill)(&mut rng, &mut page);
        let guess = f64::from(entropy(&page)) / f64::from(ENTROPY_MAX);
        let len = worker.compress(CodecId::LZO, &page, &mut packed, PAGE_BYTES).expect("it shrinks");
        assert!((guess - estimate).abs() < 0.01, "{name}: {guess}");
        assert!((len as f64 / PAGE_BYTES as f64 - real).abs() < 0.04, "{name}: {len}");
    }
}
