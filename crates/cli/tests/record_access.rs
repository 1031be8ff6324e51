//! `memfit run --record-access`: pages of a sample are taken away again and again, and come back as they were; the recording has their
//! touches, and can be replayed.

mod support;

use memfit_core::sample::{Sampled, EVERYTHING};
use memfit_core::trace::{Decoder, Item, Note};
use memfit_core::{Asked, Page};
use memfit_sim::replay;
use memfit_trace::{Block, Reader};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use support::stats::Stats;
use support::{memfit, say, Bench};

/// Far more than the programs need.
const PLENTY: u64 = 2 << 30;
const OPTIONS: [&str; 3] = ["--record", "recording", "--record-access"];

/// What is in a recording.
#[derive(Default)]
struct Found {
    /// Pages that faulted, in order.
    faults: Vec<Page>,
    sampled: Vec<Sampled>,
}

fn reader(directory: &Path) -> Reader<BufReader<File>> {
    Reader::new(BufReader::new(File::open(directory.join("recording")).unwrap())).unwrap()
}

/// Replays the recording and reads it.
#[track_caller]
fn recording(bench: &Bench) -> Found {
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
                    if let Asked::Fault { page, .. } = asked {
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

fn tell(bench: &Bench, stats: &Stats, found: &Found) {
    let last = found.sampled[found.sampled.len() - 1];
    let (staged, evicted) = (stats.number("/faults/staged"), stats.number("/evictions/pages"));
    say(&format!(
        "{:24} 1 in {}, every {} ms at the end; {evicted} pages taken, {staged} faults from staging",
        bench.name,
        EVERYTHING / last.threshold,
        last.period_ms
    ));
}

fn compiled(bench: &Bench) -> bool {
    bench.file("pages.h", include_str!("workloads/pages.h"));
    bench.compile(&["gcc"], "sampled", include_str!("workloads/sampled.c")).is_some()
}

/// Pages and rounds, as in the program.
const PAGES: u64 = 1024;
const TOUCHED: u64 = 256;
const ROUNDS: usize = 8;

#[test]
fn touches_of_sampled_pages_are_recorded() {
    let Some(bench) = Bench::new("record_access_known", &["gcc"]) else { return };
    if !compiled(&bench) {
        return;
    }
    let (ran, stats) = bench.managed_with(&OPTIONS, "exec ./sampled known", PLENTY);
    let out = String::from_utf8_lossy(&ran.out);
    let numbers: Vec<u64> = out.lines().map(|line| line.parse().unwrap()).collect();
    assert!((ran.code, &*ran.err, numbers.len()) == (Some(0), "", 2) && numbers[1] == 0, "{out}{}", ran.err);
    let found = recording(&bench);
    tell(&bench, &stats, &found);
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
    // A fault that meets its page in a batch or an event is asked about again.
    assert!(
        touched.iter().all(|&times| times <= 4 * (ROUNDS + 1)) && sum <= touched.len() * (ROUNDS + 2),
        "{touched:?}"
    );
    assert!(others.iter().all(|&times| times <= 2), "never touched after they were filled: {others:?}");
    // On a busy machine a pass can take longer than the program's pause.
    assert!(sum * 10 >= touched.len() * ROUNDS * 7, "{touched:?}");
    assert!(touched.len() + others.len() >= 64, "the sample is too small to tell: {:?}", found.sampled);
}

fn keeps_every_byte(bench: &Bench, line: &str, budget: u64) -> Stats {
    let (ran, stats) = bench.managed_with(&OPTIONS, line, budget);
    let out = String::from_utf8_lossy(&ran.out);
    assert!(ran.code == Some(0) && ran.err.is_empty(), "{:?}\n{}\n{out}", ran.code, ran.err);
    tell(bench, &stats, &recording(bench));
    // Where memory is short the sample is small, and passes wait.
    if budget == PLENTY {
        let counts = ["/evictions/pages", "/faults/staged"].map(|key| stats.number(key));
        assert!(counts.iter().all(|&count| count > 1000), "{counts:?}\n{:#}", stats.json);
    }
    stats
}

#[test]
fn processes_that_fork() {
    let Some(bench) = Bench::new("record_access_forks", &["gcc"]) else { return };
    if compiled(&bench) {
        let stats = keeps_every_byte(&bench, "exec ./sampled", PLENTY);
        assert_eq!(stats.number("/evictions/compressed"), 0, "memory was never short: {:#}", stats.json);
    }
}

#[test]
fn processes_of_an_ordinary_user() {
    let Some(bench) = Bench::ordinary("record_access_user", &["gcc"]) else { return };
    if compiled(&bench) {
        keeps_every_byte(&bench, "exec ./sampled", PLENTY);
    }
}

#[test]
fn torture() {
    let Some(bench) = Bench::new("record_access_torture", &[]) else { return };
    let program = memfit().with_file_name("memfit-torture");
    assert!(
        program.is_file(),
        "{} is missing: `cargo build --workspace` with the same profile first",
        program.display()
    );
    for (mode, budget) in [
        ("--threads 3 --seed 71 --mix mremap=40,dontneed=40,free=20,munmap=30,mmap=30", PLENTY),
        ("--threads 2 --forks --seed 72", PLENTY),
        ("--threads 2 --processes 2 --size 64M --stop-cont --exits --seed 73", 48 << 20),
    ] {
        let common = "--size 128M --seconds 4 --verify-all-at-end --stall 20";
        let directory = bench.directory.display();
        keeps_every_byte(&bench, &format!("exec {} {common} {mode} --dir {directory}", program.display()), budget);
    }
}
