//! `memfit run --record-contents`: a recording says how small several codecs make each page that is
//! compressed, and pages of the sample. It is replayed as any other, and simulations of other
//! codecs have real sizes.

use crate::support::contents::assert_contents_eq;
use crate::support::process::{self, Limits, Ran};
use crate::support::{memfit_command, Bench, RUN_TIMEOUT};
use memfit_codec::generate::{Rng, GENERATORS};
use memfit_codec::{entropy, find, same_filled, CodecId, Worker, PAGE_BYTES};
use memfit_core::trace::{Contents, Decoder, Item, Note, Whose, LEN_MAX};
use memfit_core::{Coded, CoreCall};
use memfit_sim::replay;
use memfit_trace::{Block, Reader};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

const MIB: u64 = 1 << 20;
const FILE: &str = "run.memfit";
/// Pages of one word, of little and much repetition, of text, of noise.
const KINDS: [&str; 6] = ["zero", "int64-small", "pointers", "text", "f=0.40", "random"];
/// Different pages of each kind, and copies of all of them: 24 MiB.
const DIFFERENT: usize = 8;
const COPIES: usize = 128;

fn bench(name: &str, program: &str, source: &str) -> Option<Bench> {
    let bench = Bench::new(name, &["gcc"])?;
    bench.file("pages.h", include_str!("../workloads/pages.h"));
    bench.compile(&["gcc", "-O1"], program, source)?;
    Some(bench)
}

fn memfit(directory: &Path, words: &[&str]) -> Ran {
    let mut command = memfit_command();
    command.args(words);
    let ran = process::run(command, directory, &Limits::of(RUN_TIMEOUT));
    assert_eq!((ran.timed_out, ran.code), (false, Some(0)), "memfit {words:?}: {}", ran.err);
    ran
}

/// Pages as they are in the file; their [`key`]s tell them apart.
fn pages() -> Vec<Vec<u8>> {
    let mut rng = Rng::new(9);
    let mut all = Vec::new();
    for name in KINDS {
        let generator = GENERATORS.iter().find(|generator| generator.name == name).unwrap();
        for _ in 0..DIFFERENT {
            let mut page = vec![0; PAGE_BYTES];
            (generator.fill)(&mut rng, &mut page);
            all.push(page);
        }
    }
    all
}

type Key = (u32, Option<u64>, Vec<u16>);

fn key(page: &[u8], codecs: &[CodecId], worker: &mut Worker) -> Key {
    let mut out = [0; PAGE_BYTES * 2];
    let len = |codec: &CodecId| worker.compress(*codec, page, &mut out, PAGE_BYTES).map_or(LEN_MAX, |len| len as u16);
    (entropy(page), same_filled(page), codecs.iter().map(len).collect())
}

fn key_of(contents: &Contents, codecs: &[CodecId]) -> Key {
    (contents.entropy, contents.word, codecs.iter().map(|codec| contents.lens[usize::from(codec.0)]).collect())
}

/// All notes of a recording. The outcome of a page comes after its note, and agrees with it.
#[track_caller]
fn notes(directory: &Path, all: bool) -> Vec<Contents> {
    let open = || Reader::new(fs::File::open(directory.join(FILE)).unwrap()).unwrap();
    let replayed = replay(&mut open()).unwrap_or_else(|error| panic!("{error}"));
    assert!(replayed.cut.is_none() && replayed.compared == replayed.calls);
    let (mut notes, mut looked, mut reader) = (Vec::new(), HashMap::new(), open());
    while let Some(block) = reader.block().unwrap() {
        let Block::Calls { bytes, .. } = block else { continue };
        let mut decoder = Decoder::new(bytes);
        while let Some(item) = decoder.item().unwrap() {
            match item {
                Item::Note(Note::Contents(contents)) => {
                    notes.push(contents);
                    if let Whose::Object(object) = contents.whose {
                        assert!(all && looked.insert(object, contents).is_none(), "{object:?} twice");
                    }
                }
                Item::Call(CoreCall::Compressed { object, coded }) if all => {
                    let note = looked.remove(&object).expect("it was looked at");
                    match coded {
                        Coded::Word(word) => assert_eq!(note.word, Some(word)),
                        // A dictionary can have been made since the note.
                        Coded::Bytes { codec, len } => {
                            assert!(
                                [len, 0].contains(&u32::from(note.lens[usize::from(codec)])),
                                "{note:?}, {coded:?}"
                            );
                        }
                        Coded::Stored(_) | Coded::Incompressible => {}
                    }
                }
                _ => {}
            }
        }
    }
    // Two threads compress, and may have been interrupted by the end.
    assert!(looked.len() <= 2, "{} without an outcome", looked.len());
    notes
}

#[test]
fn lengths_and_hashes_are_those_of_the_pages() {
    let Some(bench) = bench("record_contents", "held", include_str!("../workloads/held.c")) else { return };
    let pages = pages();
    fs::write(bench.directory.join("pages"), pages.concat()).unwrap();
    let names = ["lz4", "lzo", "zstd", "word-mask", "wk4x4"];
    let option = format!("--record-contents={}", names.join(","));
    let line = format!("exec ./held pages {COPIES}");
    let (ran, stats) = bench.managed_with(&["--record", FILE, &option], &line, 16 * MIB);
    assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"0\n"[..]), "{}", ran.err);
    assert_eq!(ran.err, "");
    assert!(stats.number("/evictions/compressed") > 2000, "{:#}", stats.json);
    let notes = notes(&bench.directory, true);
    let codecs = names.map(|name| find(name).unwrap().id);
    let mut worker = Worker::new();
    let expected: HashSet<Key> = pages.iter().map(|page| key(page, &codecs, &mut worker)).collect();
    let different: HashSet<&Vec<u8>> = pages.iter().collect();
    assert_eq!(expected.len(), different.len(), "the pages cannot be told from each other");
    // Equal hashes mean equal pages, and equal pages equal hashes.
    let (mut by_hash, mut by_key) = (HashMap::new(), HashMap::new());
    let mut found = 0;
    for note in &notes {
        let key = key_of(note, &codecs);
        assert!(key.2.iter().all(|&len| len > 0), "{note:?}");
        assert_eq!(by_hash.entry(note.hash).or_insert_with(|| key.clone()), &key);
        if expected.contains(&key) {
            found += 1;
            assert_eq!(*by_key.entry(key).or_insert(note.hash), note.hash);
        }
    }
    assert!(by_key.len() == different.len() && found > 2000, "{} of {}, {found}", by_key.len(), different.len());
    tables(&bench.directory, &notes, by_hash.len());
    simulations(&bench.directory, &expected, &names);
    cut(&bench.directory);
}

/// `info` and `export` agree with the notes.
fn tables(directory: &Path, notes: &[Contents], different: usize) {
    let told: Value = serde_json::from_slice(&memfit(directory, &["trace", "info", "--json", FILE]).out).unwrap();
    let contents = &told[0]["contents"];
    let words = notes.iter().filter(|note| note.word.is_some()).count();
    for (name, count) in [("compressed", notes.len()), ("sampled", 0), ("distinct", different), ("word_pages", words)] {
        assert_eq!(contents[name], count, "{name}: {contents:#}");
    }
    let lens: Vec<u64> = notes.iter().filter(|note| note.word.is_none()).map(|note| note.lens[9].into()).collect();
    let ratio = lens.iter().sum::<u64>() as f64 / (lens.len() * PAGE_BYTES) as f64;
    assert!((contents["codecs"]["lzo"]["ratio"].as_f64().unwrap() - ratio).abs() < 1e-9, "{ratio}: {contents:#}");
    let text = memfit(directory, &["trace", "info", FILE]).out;
    assert!(String::from_utf8(text).unwrap().contains("pages when they were compressed, 0 of the sample; "));
    for table in ["table.csv", "table.parquet"] {
        memfit(directory, &["trace", "export", "--contents", FILE, "-o", table]);
    }
    let table = fs::read_to_string(directory.join("table.csv")).unwrap();
    assert_eq!(table.lines().count(), notes.len() + 1);
    let hashes = table.lines().skip(1).map(|line| line.split(',').nth(6).unwrap().parse::<u64>().unwrap());
    assert!(hashes.eq(notes.iter().map(|note| note.hash)));
}

/// Codecs other than that of the run have sizes of their own.
fn simulations(directory: &Path, expected: &HashSet<Key>, names: &[&str]) {
    let sim = |codec: &str| {
        let ran = memfit(directory, &["sim", FILE, "-s", "zram", "--set", &format!("codec={codec}"), "--json", "-"]);
        let rows: Value = serde_json::from_slice(&ran.out).unwrap();
        (rows["rows"][0]["compressed_ratio"].as_f64().unwrap(), ran.err)
    };
    for (i, name) in names.iter().enumerate() {
        let (ratio, err) = sim(name);
        assert_eq!(err, "", "{name}");
        // Pages that do not compress well are not counted; the other kinds are evicted about
        // equally often.
        let lens = expected.iter().filter(|key| key.1.is_none()).map(|key| f64::from(key.2[i]));
        let lens: Vec<f64> = lens.filter(|&len| len < 3000.0).collect();
        let mean = lens.iter().sum::<f64>() / lens.len() as f64 / PAGE_BYTES as f64;
        assert!((ratio - mean).abs() < 0.02, "{name}: {ratio}, and {mean} of the pages");
    }
    let (_, err) = sim("deflate");
    assert!(err.lines().count() == 1 && err.contains("what deflate would make of the pages was not recorded"), "{err}");
    assert!(err.contains("--record-contents=deflate"), "{err}");
}

/// Complete blocks of a cut file can be read.
fn cut(directory: &Path) {
    let bytes = fs::read(directory.join(FILE)).unwrap();
    fs::write(directory.join("cut"), &bytes[..bytes.len() / 2]).unwrap();
    let told: Value = serde_json::from_slice(&memfit(directory, &["trace", "info", "--json", "cut"]).out).unwrap();
    assert!(told[0]["whole"] == false && told[0]["contents"]["compressed"].as_u64() > Some(100), "{told:#}");
    memfit(directory, &["trace", "verify", "cut"]);
    assert!(memfit(directory, &["trace", "export", "--contents", "cut", "-o", "cut.csv"]).err.contains("rows before"));
}

#[test]
fn pages_of_the_sample_are_looked_at_while_they_are_staged() {
    let Some(bench) = bench("record_contents_sample", "sampled", include_str!("../workloads/sampled.c")) else {
        return;
    };
    let options = ["--record", FILE, "--record-access"];
    let (ran, stats) = bench.managed_with(&options, "exec ./sampled known", 2 << 30);
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
    assert_eq!(stats.number("/evictions/compressed"), 0, "memory was never short: {:#}", stats.json);
    let first: u64 = String::from_utf8(ran.out).unwrap().lines().next().unwrap().parse().unwrap();
    // As many pages as the program has there, each of which has its number in its first word.
    let (mut worker, codecs) = (Worker::new(), ["lz4", "zstd", "word-mask"].map(|name| find(name).unwrap().id));
    let (mut own, mut hashes) = (HashSet::new(), HashSet::new());
    for note in notes(&bench.directory, false) {
        let Whose::Page { page, .. } = note.whose else { panic!("{note:?}") };
        let Some(number) = page.0.checked_sub(first).filter(|&number| number < 1024) else { continue };
        if note.word == Some(0) {
            // The page was recorded before the program wrote to it.
            continue;
        }
        let mut bytes = vec![0; PAGE_BYTES];
        bytes[..8].copy_from_slice(&(number + 1).to_le_bytes());
        assert_eq!(key_of(&note, &codecs), key(&bytes, &codecs, &mut worker), "page {number}");
        own.insert(number);
        hashes.insert(note.hash);
    }
    assert!(own.len() > 20 && hashes.len() == own.len(), "{} pages, {} hashes", own.len(), hashes.len());
    let words = ["sim", FILE, "-s", "zram", "--set", "codec=lz4", "-m", "2M", "--json", "-"];
    let rows: Value = serde_json::from_slice(&memfit(&bench.directory, &words).out).unwrap();
    let ratio = rows["rows"][0]["compressed_ratio"].as_f64().unwrap();
    assert!(ratio > 0.0 && ratio < 0.2, "{ratio}: {rows:#}");
}
