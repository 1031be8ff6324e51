//! How well the entropy of the start of a page represents the whole page: Fig. 5 and 6 of ezswap.

use crate::chart::{Chart, Kind};
use crate::statement::Numbers;
use memfit_codec::generate::{Rng, GENERATORS};
use memfit_codec::{same_filled, CodecId, Worker, PAGE_BYTES};
use memfit_report::Unit;

/// Most pages of files that are measured.
const FILE_PAGES_MAX: usize = 50_000;
/// Pages of files that are drawn.
const DRAWN: usize = 400;

/// Entropy of bytes as a share of 8 bits: equation 3.
pub fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    let part = |count: u32| f64::from(count) / bytes.len() as f64;
    let bits =
        -counts.into_iter().filter(|&count| count > 0).map(|count| part(count) * part(count).log2()).sum::<f64>();
    bits.max(0.0) / 8.0
}

/// Entropy of parts of a page, and its ratio under LZO.
struct Seen {
    quarter: f64,
    half: f64,
    whole: f64,
    ratio: f64,
}

fn examine(page: &[u8], worker: &mut Worker) -> Seen {
    let mut out = [0; PAGE_BYTES * 2];
    let len = worker.compress(CodecId::LZO, page, &mut out, PAGE_BYTES).unwrap_or(PAGE_BYTES);
    Seen {
        quarter: entropy(&page[..256]),
        half: entropy(&page[..512]),
        whole: entropy(page),
        ratio: len as f64 / PAGE_BYTES as f64,
    }
}

/// Pearson's correlation.
fn correlation(pairs: impl Iterator<Item = (f64, f64)> + Clone) -> Option<f64> {
    let count = pairs.clone().count() as f64;
    let (x, y) = pairs.clone().fold((0.0, 0.0), |(x, y), (a, b)| (x + a / count, y + b / count));
    let (xy, xx, yy) = pairs.fold((0.0, 0.0, 0.0), |(xy, xx, yy), (a, b)| {
        (xy + (a - x) * (b - y), xx + (a - x).powi(2), yy + (b - y).powi(2))
    });
    (xx > 0.0 && yy > 0.0).then(|| xy / (xx * yy).sqrt())
}

fn correlations(n: &mut Numbers, of: &str, seen: &[Seen]) {
    n.set(format!("correlation(256 {of})"), correlation(seen.iter().map(|s| (s.quarter, s.whole))));
    n.set(format!("correlation(512 {of})"), correlation(seen.iter().map(|s| (s.half, s.whole))));
    n.set(format!("correlation(lzo {of})"), correlation(seen.iter().map(|s| (s.half, s.ratio))));
}

/// Kinds that byte entropy misjudges on purpose: a page whose second half differs from the first,
/// and a repetitive one.
const MISJUDGED: [&str; 2] = ["half-random", "bytes-0-255"];

/// Names of all kinds of pages.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    GENERATORS.iter().map(|generator| generator.name)
}

/// Measures `each` pages of every generator.
pub fn derive(n: &mut Numbers, seed: u64, each: usize) {
    let (mut all, mut usual) = (Vec::new(), Vec::new());
    let mut worker = Worker::new();
    for (number, generator) in GENERATORS.iter().enumerate() {
        let mut rng = Rng::new(seed ^ ((number as u64) << 32));
        let mut page = [0; PAGE_BYTES];
        let mut sums = [0.0; 3];
        for _ in 0..each {
            (generator.fill)(&mut rng, &mut page);
            let seen = examine(&page, &mut worker);
            [seen.half, seen.whole, seen.ratio].iter().zip(&mut sums).for_each(|(one, sum)| *sum += one / each as f64);
            if !MISJUDGED.contains(&generator.name) {
                usual.push(Seen { ..seen });
            }
            all.push(seen);
        }
        for (what, mean) in ["estimate", "entropy", "lzo"].into_iter().zip(sums) {
            n.set(format!("{what}({})", generator.name), mean);
        }
    }
    correlations(n, "all", &all);
    correlations(n, "usual", &usual);
}

/// Measures pages of files, and draws them.
pub fn of_files(files: &[(String, Vec<u8>)], n: &mut Numbers) -> Vec<Chart> {
    if files.is_empty() {
        return Vec::new();
    }
    let mut worker = Worker::new();
    let pages =
        files.iter().flat_map(|(_, bytes)| bytes.chunks_exact(PAGE_BYTES)).filter(|page| same_filled(page).is_none());
    let seen: Vec<Seen> = pages.take(FILE_PAGES_MAX).map(|page| examine(page, &mut worker)).collect();
    correlations(n, "files", &seen);
    let mut rows = Vec::new();
    let mut places = Vec::new();
    let step = (seen.len() / DRAWN).max(1);
    for (number, page) in seen.iter().step_by(step).enumerate() {
        n.set(format!("drawn({number})"), page.ratio);
        rows.push((number.to_string(), number.to_string()));
        places.push(page.half);
    }
    vec![Chart {
        title: format!("Entropy estimate and LZO's ratio, {} pages of {} files", seen.len(), files.len()),
        source: "Fig. 6",
        says: "a correlation of 0.88 over 200 000 pages of a phone.",
        kind: Kind::Points(places),
        x: ("Estimate: entropy of the first 512 bytes / 8", Unit::Ratio),
        rows,
        series: vec![("pages".into(), "drawn({})".into())],
        y: ("LZO's ratio", Unit::Ratio, false),
        levels: Vec::new(),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropies_by_hand() {
        assert_eq!(entropy(&[7; 512]), 0.0);
        let two: Vec<u8> = (0..512).map(|i| i as u8 % 2).collect();
        assert_eq!(entropy(&two), 0.125);
        let all: Vec<u8> = (0..512).map(|i| i as u8).collect();
        assert_eq!(entropy(&all), 1.0);
    }

    #[test]
    fn correlations_by_hand() {
        let line = [(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)];
        assert!((correlation(line.into_iter()).unwrap() - 1.0).abs() < 1e-12);
        let back = line.map(|(x, y)| (x, -y));
        assert!((correlation(back.into_iter()).unwrap() + 1.0).abs() < 1e-12);
        assert_eq!(correlation([(1.0, 1.0), (1.0, 2.0)].into_iter()), None);
        // (0 0) (1 1) (2 0): no slope.
        assert!(correlation([(0.0, 0.0), (1.0, 1.0), (2.0, 0.0)].into_iter()).unwrap().abs() < 1e-12);
    }
}
