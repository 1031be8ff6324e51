//! Prints ratio and time of every codec on every kind of page, or on the pages of files given as arguments.
//!
//! Times are microseconds per 4 KiB page: the median of passes over 64 different pages, so that no codec learns a
//! page's branches by heart. Pages that do not shrink count as ratio 1 and have no time to decompress.

use memfit_codec::{checksum, generate, same_filled, CodecId, Worker, CODECS, PAGE};
use std::{hint::black_box, time::Instant};

const PAGES: usize = 64;
const PASSES: usize = 25;

fn median_us(mut pass: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..PASSES)
        .map(|_| {
            let start = Instant::now();
            pass();
            start.elapsed().as_secs_f64() * 1e6 / PAGES as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[PASSES / 2]
}

/// Ratio, us to compress, us to decompress.
fn measure(worker: &mut Worker, codec: CodecId, pages: &[u8]) -> (f64, f64, f64) {
    let count = pages.len() / PAGE;
    let scale = PAGES as f64 / count as f64;
    let mut dst = vec![0; PAGE];
    let compress = median_us(|| {
        for page in pages.chunks_exact(PAGE) {
            black_box(worker.compress(codec, page, &mut dst, PAGE));
        }
    });
    let mut packed = Vec::new();
    let mut total = 0;
    for page in pages.chunks_exact(PAGE) {
        match worker.compress(codec, page, &mut dst, PAGE) {
            Some(n) => packed.push(dst[..n].to_vec()),
            None => total += PAGE,
        }
    }
    total += packed.iter().map(Vec::len).sum::<usize>();
    let share = packed.len() as f64 / count as f64;
    let decompress = median_us(|| {
        for p in &packed {
            worker.decompress(codec, black_box(p), &mut dst).expect("own encoding");
        }
    });
    (total as f64 / pages.len() as f64, compress * scale, decompress * scale / share)
}

fn row(worker: &mut Worker, name: &str, pages: &[u8]) {
    print!("{name:<14}");
    for c in CODECS {
        let (ratio, compress, decompress) = measure(worker, c.id, pages);
        let decompress = if decompress.is_finite() { format!("{decompress:.2}") } else { "-".into() };
        print!(" | {ratio:>5.3} {compress:>6.2} {decompress:>6}");
    }
    println!();
}

fn main() {
    let mut worker = generate::trained_worker();
    print!("{:<14}", "page");
    CODECS.iter().for_each(|c| print!(" | {:^19}", c.name));
    print!("\n{:<14}", "");
    CODECS.iter().for_each(|_| print!(" | {:>5} {:>6} {:>6}", "ratio", "comp", "decomp"));
    println!();

    let files: Vec<String> = std::env::args().skip(1).collect();
    for file in &files {
        let bytes = std::fs::read(file).expect("readable file");
        let pages = (bytes.len() / PAGE).min(256) * PAGE;
        row(&mut worker, file.rsplit('/').next().unwrap_or(file), &bytes[..pages]);
    }
    if !files.is_empty() {
        return;
    }
    let mut pages = vec![0; PAGES * PAGE];
    for generator in generate::GENERATORS {
        let mut rng = generate::Rng::new(1);
        pages.chunks_exact_mut(PAGE).for_each(|page| (generator.fill)(&mut rng, page));
        row(&mut worker, generator.name, &pages);
    }
    let us = median_us(|| {
        pages.chunks_exact(PAGE).for_each(|p| {
            black_box(checksum(p));
        })
    });
    println!("checksum {us:.2} us");
    pages.fill(7);
    let us = median_us(|| {
        pages.chunks_exact(PAGE).for_each(|p| {
            black_box(same_filled(p));
        })
    });
    println!("same_filled {us:.2} us (worst case: the page is filled)");
}
