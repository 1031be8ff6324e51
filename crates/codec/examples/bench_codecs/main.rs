//! Every codec on generated pages and on pages of real heaps: ratio and microseconds per page to
//! compress and to decompress, as Markdown tables. `make bench-codecs` collects the samples and
//! runs this.
//!
//! `bench_codecs [DIRECTORY]`: each `NAME.pages` in it is a heap, in runs of [`RUN`] neighbouring
//! pages.
//!
//! Ratio is compressed / original length; a page that does not shrink counts with its original
//! length. Same-filled pages are left out, because no codec ever sees them. The dictionary is
//! trained on pages of the set, which are then not measured.

mod liblzo;
mod measure;
mod sample;

use liblzo::LibLzo;
use measure::{measure, Coder, Figures, Time};
use memfit_codec::{generate, same_filled, Dictionaries, Worker, CODECS, PAGE_BYTES, TRAINING_PAGES};
use sample::{sample, Sample};
use std::{path::Path, sync::Arc};

/// Pages in a run of neighbours.
const RUN: usize = 16;
/// Pages of each generator.
const GENERATED: usize = 192;
/// Codecs that are also measured with longer units.
const LONG: [&str; 8] = ["lz4", "lz4hc", "lzo", "deflate", "zstd-fast", "zstd", "zstd-strong", "word-mask"];
/// Column of the library.
const LIBRARY: &str = "C lzo1x-1";

/// A set of pages, and the results of the codecs.
pub struct Heap {
    /// Name in the table.
    pub name: String,
    /// By name of the codec.
    pub figures: Vec<(String, Figures)>,
    /// The entropy estimate, as used by admission.
    pub sample: Sample,
}

impl Heap {
    fn codec(&self, name: &str) -> &Figures {
        &self.figures.iter().find(|(codec, _)| codec == name).expect("a codec of the table").1
    }
}

/// Measures all codecs on these pages, some of which train the dictionary.
fn heap(name: &str, pages: &[&[u8]], library: &mut Option<LibLzo>) -> Heap {
    let pages: Vec<&[u8]> = pages.iter().copied().filter(|page| same_filled(page).is_none()).collect();
    let every = pages.len().div_ceil(TRAINING_PAGES).max(2);
    let learnt: Vec<u8> = pages.iter().step_by(every).copied().flatten().copied().collect();
    let others: Vec<&[u8]> = pages.iter().enumerate().filter(|(i, _)| i % every != 0).map(|(_, page)| *page).collect();
    let dictionaries = Arc::new(Dictionaries::new());
    let trained = dictionaries.train(&learnt);
    let mut worker = Worker::with(&dictionaries);
    let mut figures = Vec::new();
    for codec in CODECS {
        let id = if trained { codec.id } else { codec.id.newest(0) };
        figures.push((codec.name.to_owned(), measure(&mut Coder::Ours(&mut worker, id), &others)));
    }
    if let Some(library) = library {
        figures.push((LIBRARY.to_owned(), measure(&mut Coder::LibLzo(library), &others)));
    }
    eprintln!("bench-codecs: {name}: {} pages{}", others.len(), if trained { "" } else { ", no dictionary" });
    let lzo = figures.iter().find(|(codec, _)| codec == sample::CODEC).expect("a codec of the table");
    let sample = sample(&others, &lzo.1);
    Heap { name: name.to_owned(), figures, sample }
}

fn row(cells: impl IntoIterator<Item = String>) {
    println!("| {} |", cells.into_iter().collect::<Vec<_>>().join(" | "));
}

fn head(first: &str, names: impl IntoIterator<Item = String>) {
    let names: Vec<String> = names.into_iter().collect();
    row(std::iter::once(first.to_owned()).chain(names.iter().cloned()));
    row(std::iter::once("---".to_owned()).chain(names.iter().map(|_| "---:".to_owned())));
}

/// One table of all codecs on all sets.
fn table(title: &str, sets: &[Heap], cell: impl Fn(&Figures) -> String) {
    println!("\n{title}\n");
    let Some(first) = sets.first() else { return };
    head("pages", first.figures.iter().map(|(name, _)| name.clone()));
    for set in sets {
        row(std::iter::once(set.name.clone()).chain(set.figures.iter().map(|(_, figures)| cell(figures))));
    }
}

fn tables(what: &str, sets: &[Heap]) {
    table(&format!("{what}: ratio"), sets, |f| format!("{:.3}", f.ratio()));
    table(&format!("{what}: us to compress a page"), sets, |f| format!("{:.2}", f.compress.median));
    table(&format!("{what}: us to decompress a page"), sets, |f| {
        f.decompress.map_or("–".to_owned(), |time| format!("{:.2}", time.median))
    });
}

/// Cost and accuracy of the entropy estimate.
fn sample_table(what: &str, sets: &[Heap]) {
    println!("\n{what}: entropy of 512 bytes, before a page is compressed by {}\n", sample::CODEC);
    let columns = ["estimate", "ratio", "us", "us to compress", "part", "correlation of estimate and ratio"];
    head("pages", columns.map(str::to_owned));
    let print = |name: &str, ratios: &[(f64, f64)], ours: f64, theirs: f64| {
        let (estimate, ratio) = sample::means(ratios);
        row([
            name.to_owned(),
            format!("{estimate:.3}"),
            format!("{ratio:.3}"),
            format!("{ours:.2}"),
            format!("{theirs:.2}"),
            format!("{:.1} %", 100.0 * ours / theirs),
            sample::correlation(ratios).map_or("–".to_owned(), |value| format!("{value:.2}")),
        ]);
    };
    let (mut all, mut ours, mut theirs) = (Vec::new(), 0.0, 0.0);
    for set in sets {
        let (of_entropy, of_lzo) = (set.sample.time.least, set.codec(sample::CODEC).compress.least);
        print(&set.name, &set.sample.ratios, of_entropy, of_lzo);
        all.extend_from_slice(&set.sample.ratios);
        (ours, theirs) = (ours + of_entropy / sets.len() as f64, theirs + of_lzo / sets.len() as f64);
    }
    print("entropy of 512 bytes", &all, ours, theirs);
}

/// Mean over the sets, with equal weights.
fn mean(times: impl Iterator<Item = Time>) -> String {
    let times: Vec<Time> = times.collect();
    let of = |part: fn(&Time) -> f64| times.iter().map(part).sum::<f64>() / times.len().max(1) as f64;
    format!("{:.2} ({:.2} to {:.2})", of(|t| t.median), of(|t| t.least), of(|t| t.most))
}

fn totals(heaps: &[Heap]) {
    println!("\nReal heaps together, each counted the same: medians, and (least to most) of the passes\n");
    head("codec", ["ratio", "us to compress", "us to decompress"].map(str::to_owned));
    for (i, (name, _)) in heaps[0].figures.iter().enumerate() {
        let figures = || heaps.iter().map(|heap| &heap.figures[i].1);
        let ratio = figures().map(Figures::ratio).sum::<f64>() / heaps.len() as f64;
        let decompress = mean(figures().filter_map(|f| f.decompress));
        row([name.clone(), format!("{ratio:.3}"), mean(figures().map(|f| f.compress)), decompress]);
    }
}

/// The runs of the real heaps as units of 1, 4 and 16 pages.
fn units(heaps: &[(String, Vec<u8>)]) {
    println!("\nReal heaps together in longer units, runs without a page of one word");
    println!("(ratio, us per 4 KiB to compress and to decompress)\n");
    let mut worker = Worker::new();
    head("codec", ["4 KiB", "16 KiB", "64 KiB"].map(str::to_owned));
    for codec in CODECS.iter().filter(|codec| LONG.contains(&codec.name)) {
        let mut cells = vec![codec.name.to_owned()];
        for pages in [1, 4, RUN] {
            let (mut ratio, mut compress, mut decompress, mut count) = (0.0, 0.0, 0.0, 0.0);
            for (_, bytes) in heaps {
                let whole = |run: &&[u8]| run.chunks(PAGE_BYTES).all(|page| same_filled(page).is_none());
                let runs = bytes.chunks_exact(RUN * PAGE_BYTES).filter(whole).take(32);
                let units: Vec<&[u8]> = runs.flat_map(|run| run.chunks(pages * PAGE_BYTES)).collect();
                if units.is_empty() {
                    continue;
                }
                let figures = measure(&mut Coder::Ours(&mut worker, codec.id), &units);
                ratio += figures.ratio();
                compress += figures.compress.median;
                decompress += figures.decompress.map_or(0.0, |time| time.median);
                count += 1.0;
            }
            cells.push(format!("{:.3}, {:.1}, {:.1}", ratio / count, compress / count, decompress / count));
        }
        row(cells);
    }
}

fn read(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut heaps = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "pages") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            heaps.push((name, std::fs::read(&path).expect("readable samples")));
        }
    }
    heaps.sort();
    heaps.retain(|(_, bytes)| bytes.len() >= 2 * TRAINING_PAGES * PAGE_BYTES);
    heaps
}

fn main() {
    let mut library = LibLzo::open();
    if library.is_none() {
        eprintln!("bench-codecs: there is no liblzo2.so.2 here: the figures of the C library's LZO are left out");
    }
    let samples = std::env::args_os().nth(1).map_or(Vec::new(), |directory| read(Path::new(&directory)));
    let heaps: Vec<Heap> = samples
        .iter()
        .map(|(name, bytes)| heap(name, &bytes.chunks_exact(PAGE_BYTES).collect::<Vec<_>>(), &mut library))
        .collect();
    if !heaps.is_empty() {
        totals(&heaps);
        units(&samples);
        tables("Real heaps", &heaps);
        sample_table("Real heaps", &heaps);
    }
    let generated: Vec<Heap> = generate::GENERATORS
        .iter()
        .filter(|generator| generator.name != "zero")
        .map(|generator| {
            let (mut rng, mut bytes) = (generate::Rng::new(1), vec![0; GENERATED * PAGE_BYTES]);
            bytes.chunks_exact_mut(PAGE_BYTES).for_each(|page| (generator.fill)(&mut rng, page));
            heap(generator.name, &bytes.chunks_exact(PAGE_BYTES).collect::<Vec<_>>(), &mut library)
        })
        .collect();
    tables("Generated pages", &generated);
    sample_table("Generated pages", &generated);
}
