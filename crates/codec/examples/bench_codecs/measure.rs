//! Ratio and time of one codec on one set of pages.

use crate::liblzo::LibLzo;
use memfit_codec::{CodecId, Worker};
use std::{hint::black_box, time::Instant};

/// Passes over a set; the median is reported.
const PASSES: usize = 5;
/// Pages in a time measurement: enough that the CPU does not learn them, and few enough for slow
/// codecs.
pub const TIMED_PAGES: usize = 512;

/// Microseconds per page: median, least and most of the passes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Time {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

/// Results of one codec on one set.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Compressed lengths by unit; the original length if a unit did not shrink.
    pub lens: Vec<usize>,
    pub original: usize,
    pub compress: Time,
    /// Over the units that shrank; `None` if there was none.
    pub decompress: Option<Time>,
}

impl Figures {
    pub fn ratio(&self) -> f64 {
        self.lens.iter().sum::<usize>() as f64 / self.original as f64
    }
}

/// A codec of the table, or the library for comparison.
pub enum Coder<'a> {
    Ours(&'a mut Worker, CodecId),
    LibLzo(&'a mut LibLzo),
}

impl Coder<'_> {
    /// Length of the compressed bytes, which are copied to `dst`.
    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        match self {
            Coder::Ours(worker, codec) => worker.compress(*codec, src, dst, src.len()),
            Coder::LibLzo(library) => {
                let packed = library.compress(src);
                let fits = packed.len() < src.len();
                fits.then(|| {
                    dst[..packed.len()].copy_from_slice(packed);
                    packed.len()
                })
            }
        }
    }

    fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> bool {
        match self {
            Coder::Ours(worker, codec) => worker.decompress(*codec, src, dst).is_ok(),
            Coder::LibLzo(library) => library.decompress(src, dst),
        }
    }
}

pub fn time(pages: f64, mut pass: impl FnMut()) -> Time {
    pass();
    let mut times: Vec<f64> = (0..PASSES)
        .map(|_| {
            let start = Instant::now();
            pass();
            start.elapsed().as_secs_f64() * 1e6 / pages
        })
        .collect();
    times.sort_by(f64::total_cmp);
    Time { median: times[PASSES / 2], least: times[0], most: times[PASSES - 1] }
}

/// Results of `coder` on these units; checks that it restores each of them.
pub fn measure(coder: &mut Coder<'_>, units: &[&[u8]]) -> Figures {
    let longest = units.iter().map(|unit| unit.len()).max().unwrap_or(0);
    let original: usize = units.iter().map(|unit| unit.len()).sum();
    let (mut dst, mut out) = (vec![0; longest], vec![0; longest]);
    let mut packed = Vec::new();
    let mut figures = Figures { original, ..Figures::default() };
    for unit in units {
        let len = coder.compress(unit, &mut dst);
        if let Some(len) = len {
            let restored = coder.decompress(&dst[..len], &mut out[..unit.len()]);
            assert!(restored && out[..unit.len()] == **unit, "not restored");
            packed.push((dst[..len].to_vec(), unit.len()));
        }
        figures.lens.push(len.unwrap_or(unit.len()));
    }
    let pages = |bytes: usize| bytes as f64 / memfit_codec::PAGE_BYTES as f64;
    let every = (pages(original) as usize / TIMED_PAGES).max(1);
    let some: Vec<&[u8]> = units.iter().copied().step_by(every).collect();
    figures.compress = time(pages(some.iter().map(|unit| unit.len()).sum()), || {
        for unit in &some {
            black_box(coder.compress(black_box(unit), &mut dst));
        }
    });
    let some: Vec<_> = packed.iter().step_by(every).collect();
    let shrunk: usize = some.iter().map(|(_, len)| len).sum();
    figures.decompress = (shrunk > 0).then(|| {
        time(pages(shrunk), || {
            for (bytes, len) in &some {
                black_box(coder.decompress(black_box(bytes), &mut out[..*len]));
            }
        })
    });
    figures
}
