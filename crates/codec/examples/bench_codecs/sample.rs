//! The entropy estimate compared with lzo: its cost, and how well it predicts the ratio.

use crate::measure::{time, Figures, Time, TIMED_PAGES};
use memfit_codec::{entropy, ENTROPY_MAX};
use std::hint::black_box;

/// The codec that it is compared with.
pub const CODEC: &str = "lzo";

/// Results for one set of pages.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Estimated ratio and lzo's ratio of each page.
    pub ratios: Vec<(f64, f64)>,
    pub time: Time,
}

/// Estimates for these pages, with the results of lzo.
pub fn sample(pages: &[&[u8]], lzo: &Figures) -> Sample {
    let estimate = |page: &[u8]| f64::from(entropy(page)) / f64::from(ENTROPY_MAX);
    let pairs = pages.iter().zip(&lzo.lens);
    let ratios = pairs.map(|(page, len)| (estimate(page), *len as f64 / page.len() as f64)).collect();
    let some: Vec<&[u8]> = pages.iter().copied().step_by((pages.len() / TIMED_PAGES).max(1)).collect();
    let time = time(some.len() as f64, || {
        for page in &some {
            black_box(entropy(black_box(page)));
        }
    });
    Sample { ratios, time }
}

/// Pearson's correlation; `None` if either side is constant.
pub fn correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let (x, y) = means(pairs);
    let sum = |f: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|pair| f(pair.0 - x, pair.1 - y)).sum::<f64>();
    let deviations = (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt();
    (deviations > 1e-9).then(|| sum(&|a, b| a * b) / deviations)
}

pub fn means(pairs: &[(f64, f64)]) -> (f64, f64) {
    let n = pairs.len() as f64;
    pairs.iter().fold((0.0, 0.0), |(x, y), pair| (x + pair.0 / n, y + pair.1 / n))
}
