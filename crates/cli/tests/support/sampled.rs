//! Recordings of the touches of sampled pages: what is in them, and a program whose touches are
//! known.

use super::contents::assert_contents;
use super::stats::Stats;
use super::{say, Bench};
use memfit_core::sample::{Sampled, EVERYTHING};
use memfit_core::trace::{Decoder, Item, Note};
use memfit_core::{CoreCall, Page};
use memfit_sim::replay;
use memfit_trace::{Block, Reader};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// Far more than the programs need.
pub const PLENTY: u64 = 2 << 30;
pub const OPTIONS: [&str; 3] = ["--record", "recording", "--record-access"];

/// What is in a recording.
#[derive(Default)]
pub struct Found {
    /// Pages that faulted, in order.
    pub faults: Vec<Page>,
    pub sampled: Vec<Sampled>,
}

fn reader(directory: &Path) -> Reader<BufReader<File>> {
    Reader::new(BufReader::new(File::open(directory.join("recording")).unwrap())).unwrap()
}

/// Replays the recording and reads it.
#[track_caller]
pub fn recording(bench: &Bench) -> Found {
    let replayed = replay(&mut reader(&bench.directory)).unwrap_or_else(|error| panic!("{error}"));
    assert!(replayed.cut.is_none(), "{:?}", replayed.cut);
    let (mut reader, mut found, mut calls) = (reader(&bench.directory), Found::default(), 0);
    while let Some(block) = reader.block().unwrap() {
        let Block::Calls { bytes, .. } = block else { continue };
        let mut decoder = Decoder::new(bytes);
        while let Some(item) = decoder.item().unwrap() {
            match item {
                Item::Note(Note::Sampled(sampled)) => found.sampled.push(sampled),
                Item::Note(Note::Contents(_)) => {}
                Item::Note(note) => panic!("{note:?}"),
                Item::Call(asked) => {
                    assert!(!found.sampled.is_empty(), "it begins with what is sampled");
                    calls += 1;
                    if let CoreCall::Fault { page, .. } = asked {
                        found.faults.push(page);
                    }
                }
            }
        }
    }
    assert_eq!(calls, replayed.calls);
    let thresholds: Vec<u32> = found.sampled.iter().map(|sampled| sampled.threshold).collect();
    assert!(thresholds[0] == EVERYTHING && thresholds.is_sorted_by(|a, b| a >= b), "{thresholds:?}");
    found
}

pub fn tell(bench: &Bench, stats: &Stats, found: &Found) {
    let last = found.sampled[found.sampled.len() - 1];
    let (staged, evicted) = (stats.number("/faults/staged"), stats.number("/evictions/pages"));
    say(&format!(
        "{:24} 1 in {}, every {} ms at the end; {evicted} pages taken, {staged} faults from staging",
        bench.name,
        EVERYTHING / last.threshold,
        last.period_ms
    ));
}

pub fn compiled(bench: &Bench) -> bool {
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    bench.compile(&["gcc"], "sampled", include_str!("../workloads/sampled.c")).is_some()
}

/// Pages and rounds, as in the program.
const PAGES: u64 = 1024;
const TOUCHED: u64 = 256;
pub const ROUNDS: usize = 8;

/// How often each sampled page of a known program faulted, by what the program does with it.
pub struct Known {
    pub touched: Vec<usize>,
    pub others: Vec<usize>,
}

/// Records a program whose touches are known. The recording must invent none.
#[track_caller]
pub fn known(bench: &Bench) -> Option<Known> {
    if !compiled(bench) {
        return None;
    }
    let (ran, stats) = bench.managed_with(&OPTIONS, "exec ./sampled known", PLENTY);
    let out = String::from_utf8_lossy(&ran.out);
    let numbers: Vec<u64> = out.lines().map(|line| line.parse().unwrap()).collect();
    assert_contents!((ran.code, numbers.len()) == (Some(0), 2) && numbers[1] == 0, "{out}{}", ran.err);
    assert_eq!(ran.err, "");
    let found = recording(bench);
    tell(bench, &stats, &found);
    let last = found.sampled[found.sampled.len() - 1];
    let times = |page| found.faults.iter().filter(|fault| fault.0 == numbers[0] + page).count();
    let sampled = |page: &u64| last.has(Page(numbers[0] + page));
    let touched: Vec<usize> = (0..TOUCHED).filter(sampled).map(times).collect();
    let others: Vec<usize> = (TOUCHED..PAGES).filter(sampled).map(times).collect();
    let sum: usize = touched.iter().sum();
    say(&format!(
        "  {} sampled pages touched, {:.2} times each of {}; {} others, {} touches of them",
        touched.len(),
        sum as f64 / touched.len().max(1) as f64,
        ROUNDS + 1,
        others.len(),
        others.iter().sum::<usize>()
    ));
    // The pager asks the core again about a fault that met a batch or an event.
    assert!(
        touched.iter().all(|&times| times <= 4 * (ROUNDS + 1)) && sum <= touched.len() * (ROUNDS + 2),
        "{touched:?}"
    );
    let filled: usize = others.iter().sum();
    assert!(
        others.iter().all(|&times| times <= 4) && filled <= others.len() * 11 / 10,
        "never touched after they were filled: {others:?}"
    );
    Some(Known { touched, others })
}
