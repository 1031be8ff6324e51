//! The programs of Cervera, Cortes and Becerra, "Improving Application Performance through Swap
//! Compression", FREENIX 1999, Table 1: one process, or several at once in turns.

use super::stream::{part, process, workload, Mix, StreamRegion, Turns};
use super::{choice, count, pages, param, scale, slice, touch_ns, Param, Unit, Values, SEED};
use crate::workload::{Event, Workload};
use memfit_codec::generate::Rng;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

const fn processes(default: &'static str) -> Param {
    count("processes", "at once", default, 1.0, 1000.0)
}

const fn side(default: &'static str) -> Param {
    count("side", "numbers in a row; as many rows at the paper's size", default, 256.0, 32_768.0)
}

const TIMES: Param = count("times", "there and back", "1", 1.0, 1e6);
const WAYS: &[&str] = &["no", "yes"];
const SCRATCH_ABOUT: &str = "rows go to a second matrix, columns back from it";
const SLICE: Param = slice("1000");

pub(super) const FFT: &[Param] = &[
    processes("1"),
    side("2048"),
    scale("1"),
    TIMES,
    choice("scratch", SCRATCH_ABOUT, WAYS, "no"),
    SLICE,
    touch_ns("20"),
    SEED,
];

pub(super) const FFT_X10: &[Param] = &[
    processes("10"),
    side("512"),
    scale("1"),
    TIMES,
    choice("scratch", SCRATCH_ABOUT, WAYS, "yes"),
    SLICE,
    touch_ns("20"),
    SEED,
];

const fn text(default: &'static str) -> Param {
    pages("text", "what is sorted, at the paper's size", default)
}

pub(super) const SORT: &[Param] = &[processes("1"), text("20M"), scale("1"), SLICE, touch_ns("50"), SEED];
pub(super) const SORT_X6: &[Param] = &[processes("6"), text("4M"), scale("1"), SLICE, touch_ns("50"), SEED];

const fn records(default: &'static str) -> Param {
    pages("records", "memory of a process, at the paper's size", default)
}

const fn pending(default: &'static str) -> Param {
    param("pending", "records of events that wait at a time", Unit::Percent, default, 0.001, 100.0)
}

const fn events(default: &'static str) -> Param {
    count("events", "of a process, at the paper's size", default, 0.0, 1e12)
}

pub(super) const SIMULATOR: &[Param] =
    &[processes("1"), records("120M"), pending("95"), events("30000"), scale("1"), SLICE, touch_ns("500"), SEED];
pub(super) const SIMULATOR_X5: &[Param] =
    &[processes("5"), records("24M"), pending("0.5"), events("120000"), scale("1"), SLICE, touch_ns("500"), SEED];

const fn frames(default: &'static str) -> Param {
    count("frames", "of a film, at the paper's size", default, 1.0, 1e6)
}

const SHOWS: Param = count("shows", "of the film from memory", "3", 0.0, 1e6);

pub(super) const XANIM: &[Param] = &[processes("1"), frames("1500"), SHOWS, scale("1"), SLICE, touch_ns("10000"), SEED];
pub(super) const XANIM_X4: &[Param] =
    &[processes("4"), frames("375"), SHOWS, scale("1"), SLICE, touch_ns("10000"), SEED];

/// Complex numbers of two float64 in a page.
const NUMBERS: u64 = 256;
/// Records of lines in a page: 32 bytes each, as in GNU sort.
const LINES: u64 = 128;
/// Pages of line records for each page of text: lines of 10.2 bytes, so that 20 and 30 MiB of text
/// take 114 and 171 MiB.
const LINES_TO_TEXT: f64 = 160.0 / 51.0;
/// Records of events in a page: 512 bytes each.
const RECORDS: u64 = 8;
/// Bytes of a frame of 320 x 240.
const FRAME: u64 = 76_800;

/// Identical processes in turns. Mark n p + i is the end of part n of process i of p.
fn at_once<I: Iterator<Item = Event> + Send + 'static>(
    v: &Values<'_>,
    parts: &'static [&'static str],
    program: impl Fn(u32, Rng) -> I,
) -> Box<dyn Workload> {
    let (count, mut rng) = (v.count("processes") as u32, Rng::new(v.count("seed")));
    let all = (0..count).map(|proc| program(proc, part(&mut rng))).collect();
    workload(Turns::new(all, v.count("slice")), v.count("touch_ns"), move |mark| {
        let part = parts.get((mark / count) as usize).unwrap_or(&"goes on");
        if count == 1 {
            (*part).to_string()
        } else {
            format!("process {}: {part}", mark % count + 1)
        }
    })
}

/// Fills the matrix, then goes through rows and, at strides, through columns, there and back.
pub(super) fn fft(v: &Values<'_>) -> Box<dyn Workload> {
    let (columns, count) = (v.count("side"), v.count("processes") as u32);
    let rows = ((columns as f64 / v.real("scale")).round() as u64).max(1);
    let row_pages = columns.div_ceil(NUMBERS);
    let (times, scratch) = (v.count("times"), v.choice("scratch") == "yes");
    // Several processes have slightly more compressible pages (61.2 % instead of 64.9 %).
    let mix = match count {
        1 => Mix::new(&[(10, "complex-real")]),
        _ => Mix::new(&[(9, "complex-real"), (1, "f=0.28")]),
    };
    at_once(v, &["filled", "transformed"], |proc, mut rng| {
        let matrix = StreamRegion::new(proc, rows * row_pages);
        let other = if scratch { matrix.next(matrix.pages) } else { matrix };
        let mut maps = mix.maps(matrix, &mut rng);
        if scratch {
            maps.extend(mix.maps(other, &mut rng));
        }
        let pass = move |_| {
            let by_rows = (0..rows).flat_map(move |row| {
                let row = row * row_pages..(row + 1) * row_pages;
                row.clone().map(move |page| matrix.read(page)).chain(row.map(move |page| other.write(page)))
            });
            let by_columns = (0..columns).flat_map(move |column| {
                let pages = (0..rows).map(move |row| row * row_pages + column / NUMBERS);
                pages.clone().map(move |page| other.read(page)).chain(pages.map(move |page| matrix.write(page)))
            });
            by_rows.chain(by_columns)
        };
        let body = matrix.fill().chain([Event::Reaches { mark: proc }]).chain((0..2 * times).flat_map(pass));
        process(proc, maps, body.chain([Event::Reaches { mark: count + proc }]))
    })
}

/// Reads the text and makes a record for each line. Sorts the records by merging in the order of
/// GNU sort: halves first, so that merges are of neighbours. Then writes the lines in the order of
/// the records.
pub(super) fn sort(v: &Values<'_>) -> Box<dyn Workload> {
    let text_pages = ((v.real("text") / v.real("scale")).round() as u64).max(1);
    let line_pages = (text_pages as f64 * LINES_TO_TEXT).ceil() as u64;
    let count = v.count("processes") as u32;
    // With the text 0.48 and 0.51 under LZO; the paper has 0.465 and 0.513.
    let mix = match count {
        1 => Mix::new(&[(10, "py-dict")]),
        _ => Mix::new(&[(5, "py-dict"), (5, "pointers")]),
    };
    at_once(v, &["filled", "sorted", "written"], |proc, mut rng| {
        let text = StreamRegion::new(proc, text_pages);
        let lines = text.next(line_pages);
        let sort = Sort { text, lines, halves: lines.next(line_pages.div_ceil(2)) };
        let mut maps = Mix::new(&[(10, "text")]).maps(text, &mut rng);
        maps.extend(mix.maps(lines, &mut rng));
        maps.extend(mix.maps(sort.halves, &mut rng));
        let mark = move |part| [Event::Reaches { mark: part * count + proc }];
        let mut written = part(&mut rng);
        let merges = (0..line_pages).flat_map(move |page| {
            let mut rng = part(&mut rng);
            let runs = runs_complete_with(page, line_pages).into_iter();
            let leaf = [sort.text.read(page * text_pages / line_pages), sort.lines.write(page)];
            leaf.into_iter().chain(runs.flat_map(move |(from, end)| sort.merge(from, end, part(&mut rng))))
        });
        let output = (0..line_pages).flat_map(move |page| {
            let read = sort.lookups(0, line_pages, part(&mut written));
            [lines.read(page)].into_iter().chain(read)
        });
        let body = text.fill().chain(lines.fill()).chain(mark(0)).chain(merges).chain(mark(1)).chain(output);
        process(proc, maps, body.chain(mark(2)))
    })
}

#[derive(Clone, Copy)]
struct Sort {
    text: StreamRegion,
    lines: StreamRegion,
    halves: StreamRegion,
}

impl Sort {
    /// Reads the lines of a page of records. They lie at random places in the text of the record
    /// pages `from` to `end`.
    fn lookups(self, from: u64, end: u64, mut rng: Rng) -> impl Iterator<Item = Event> + Send {
        let (pages, all) = (self.text.pages, self.lines.pages);
        let (first, end) = (from * pages / all, (end * pages).div_ceil(all));
        let count = if end - first == 1 { 1 } else { LINES };
        (0..count).map(move |_| self.text.read(first + rng.below(end - first)))
    }

    /// Merges two sorted runs of records with half as much extra memory.
    fn merge(self, from: u64, end: u64, mut rng: Rng) -> impl Iterator<Item = Event> + Send {
        (from..end).flat_map(move |page| {
            let half = from / 2 + (page - from) / 2;
            let half = if page % 2 == 0 { self.halves.write(half) } else { self.halves.read(half) };
            [half, self.lines.write(page)].into_iter().chain(self.lookups(from, end, part(&mut rng)))
        })
    }
}

/// Runs that can be merged as soon as this leaf is sorted, smaller ones first: those of a power of
/// two of leaves that end with it, and with the last leaf all that remain.
fn runs_complete_with(leaf: u64, leaves: u64) -> Vec<(u64, u64)> {
    let end = leaf + 1;
    let mut runs: Vec<(u64, u64)> = (1..=end.trailing_zeros()).map(|power| (end - (1 << power), end)).collect();
    if end == leaves {
        let (mut left, mut done) = (leaves & (leaves - 1), 1 << leaves.trailing_zeros());
        while left > 0 {
            done += 1 << left.trailing_zeros();
            left &= left - 1;
            runs.push((leaves - done, leaves));
        }
    }
    runs
}

/// Handles events in order of time. The record of a handled event is cleared and goes to the end of
/// a queue. The next event takes its record from the front of the queue. So all memory is in use,
/// however few events wait.
pub(super) fn simulator(v: &Values<'_>) -> Box<dyn Workload> {
    let pages = ((v.real("records") / v.real("scale")).round() as u64).max(1);
    let (count, events) = (v.count("processes") as u32, (v.real("events") / v.real("scale")).round() as u64);
    let records = pages * RECORDS;
    let pending = ((records as f64 * v.real("pending") / 100.0) as u64).clamp(1, records);
    // 0.067 under LZO; with several processes nearly all pages are zeros.
    let mix = match count {
        1 => Mix::new(&[(5, "sparse"), (5, "f=0.05")]),
        _ => Mix::new(&[(10, "zero")]),
    };
    at_once(v, &["cleared", "filled", "simulated"], |proc, mut rng| {
        let data = StreamRegion::new(proc, pages);
        let maps = mix.maps(data, &mut rng);
        let mut freed: VecDeque<u32> = (0..records as u32).collect();
        let mut waiting = BinaryHeap::with_capacity(pending as usize);
        let mark = move |part: u32| Event::Reaches { mark: part * count + proc };
        let record = move |record: u32| data.write(u64::from(record) / RECORDS);
        let handled = (0..pending + events).flat_map(move |event| {
            let (mut now, mut done) = (0, None);
            if event >= pending {
                let Reverse((time, which)) = waiting.pop().expect("as many wait as at the start");
                (now, done) = (time, Some(which));
                freed.push_back(which);
            }
            let next = freed.pop_front().expect("more records than wait");
            waiting.push(Reverse((now + 1 + rng.below(4 * records), next)));
            let filled = (event + 1 == pending).then(|| mark(1));
            done.map(record).into_iter().chain([record(next)]).chain(filled)
        });
        process(proc, maps, data.fill().chain([mark(0)]).chain(handled).chain([mark(2)]))
    })
}

/// Decodes a film into memory, then shows it from there some times.
pub(super) fn xanim(v: &Values<'_>) -> Box<dyn Workload> {
    let frames = ((v.real("frames") / v.real("scale")).round() as u64).max(1);
    let (count, shows) = (v.count("processes") as u32, v.count("shows"));
    // 0.281 and 0.381 under LZO; the paper has 0.278 and 0.379.
    let mix = match count {
        1 => Mix::new(&[(10, "f=0.20")]),
        _ => Mix::new(&[(8, "f=0.28"), (2, "f=0.375")]),
    };
    at_once(v, &["decoded", "shown"], |proc, mut rng| {
        let film = StreamRegion::new(proc, (frames * FRAME).div_ceil(4096));
        let maps = mix.maps(film, &mut rng);
        let mark = move |part: u32| [Event::Reaches { mark: part * count + proc }];
        let body = film.fill().chain(mark(0)).chain((0..shows).flat_map(move |_| film.walk())).chain(mark(1));
        process(proc, maps, body)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_merged_after_its_halves() {
        for leaves in 1..70 {
            // Sorted runs in the order of their places.
            let mut sorted: Vec<(u64, u64)> = Vec::new();
            for leaf in 0..leaves {
                sorted.push((leaf, leaf + 1));
                for (from, end) in runs_complete_with(leaf, leaves) {
                    let (second, first) = (sorted.pop().unwrap(), sorted.pop().unwrap());
                    assert_eq!((first.0, first.1, second.1), (from, second.0, end), "{leaf} of {leaves}");
                    sorted.push((from, end));
                }
            }
            assert_eq!(sorted, [(0, leaves)]);
        }
    }
}
