//! `memfit trace` with files that are no complete recording, or none that this version can replay:
//! the error message has the name and the place.

use crate::support::recording::{as_tables, good, info, memfit, text, trace, FILE};
use memfit_core::budget::Sizes;
use memfit_core::trace::Encoder;
use memfit_core::{CoreCall, ProcId, Tunables};
use memfit_trace::{Begins, Block, Head, Reader, Writer};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory of its own, for tests that run no program.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("record-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn file(&self, name: &str, contents: &[u8]) {
        fs::write(self.0.join(name), contents).unwrap();
    }

    /// All of `info`, `verify` and `export` fail with this text, and no table is left.
    #[track_caller]
    fn all_refuse(&self, file: &str, parts: &[&str]) {
        for words in [&["info"][..], &["verify"], &["export", "-o", "table.parquet"], &["export", "-o", "table.csv"]] {
            self.refuses(&[words, &[file]].concat(), 1, &[parts, &[file]].concat());
        }
        let left = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(left.filter(|name| name.contains("table")).collect::<Vec<_>>(), [""; 0]);
    }

    #[track_caller]
    fn refuses(&self, words: &[&str], code: i32, parts: &[&str]) {
        self.memfit_refuses(&[&["trace"], words].concat(), code, parts);
    }

    #[track_caller]
    fn memfit_refuses(&self, words: &[&str], code: i32, parts: &[&str]) {
        let ran = memfit(&self.0, words);
        assert_eq!(ran.code, Some(code), "{words:?}: {}", ran.err);
        assert!(ran.err.starts_with("memfit: ") && !ran.err.contains("panicked"), "{words:?}: {}", ran.err);
        for part in parts {
            assert!(ran.err.contains(part), "{words:?}: {part:?} is not in: {}", ran.err);
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn head() -> Head {
    let scheme = memfit_scheme::preset("memfit", &[]).unwrap().unwrap();
    let tunables = Tunables {
        sizes: Sizes::new(1 << 30, &scheme),
        scheme: Arc::new(scheme),
        staging_slots: 48,
        pool_frames: 100,
        area_frames: 264,
        swap: false,
        blocks: Vec::new(),
    };
    Head::of(&tunables, 1 << 30, vec!["sort".into(), "a b".into()], 1_700_000_000)
}

/// Three blocks of harmless calls, and a fourth that ends with `last`; `decided` is the hash of
/// decisions at the end.
fn recording(head: &Head, last: &CoreCall<'_>, decided: u64) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), head).unwrap();
    for block in 0..4u64 {
        let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
        for i in 0..100 {
            encoder.call(&mut bytes, if (block, i) == (3, 99) { last } else { &HARMLESS });
        }
        writer.block(Begins { first: block * 100 + 1, decided: 0, at_ns: block << 30 }, 100, &bytes).unwrap();
    }
    writer.end(Begins { first: 401, decided, at_ns: 4 << 30 }).unwrap()
}

const HARMLESS: CoreCall<'static> = CoreCall::SwapTakes { takes: true };

/// Offsets of all parts but the head.
fn parts(bytes: &[u8]) -> Vec<u64> {
    let mut reader = Reader::new(bytes).unwrap();
    let mut offsets = Vec::new();
    loop {
        let offset = reader.offset();
        match reader.block().unwrap() {
            Some(Block::Calls { .. } | Block::End(_)) => offsets.push(offset),
            None => return offsets,
        }
    }
}

#[test]
fn what_is_no_recording_is_named() {
    let directory = Directory::new("none");
    let whole = recording(&head(), &HARMLESS, 0);
    directory.file("whole", &whole);
    let told = good(&directory.0, "whole", true);
    as_tables(&directory.0, "whole", &told);
    assert_eq!((&told["calls"], &told["blocks"]), (&Value::from(400), &Value::from(4)));
    for table in ["table.csv", "table.parquet"] {
        fs::remove_file(directory.0.join(table)).unwrap();
    }
    directory.all_refuse("none", &["cannot read none: No such file"]);
    fs::create_dir(directory.0.join("directory")).unwrap();
    directory.all_refuse("directory", &["it is a directory"]);
    directory.file("empty", b"");
    directory.all_refuse("empty", &["the file is empty"]);
    directory.file("text", b"What is this, if it is no recording?");
    directory.all_refuse("text", &["this is no recorded run"]);
    directory.file("head", &whole[..100]);
    directory.all_refuse("head", &["the file is cut within its head"]);
    directory.file("format", &[&whole[..8], &[2], &whole[9..]].concat());
    directory.all_refuse("format", &["version 2 of the format, and this memfit reads 4"]);
    directory.file("more", &[&whole[..], b"x"].concat());
    directory.all_refuse("more", &["more behind the end of the run", &format!("at byte {}", whole.len())]);
    // With several files, each error is reported.
    let ran = trace(&directory.0, &["info", "none", "whole", "empty"]);
    assert_eq!((ran.code, ran.err.lines().count()), (Some(1), 2), "{}", ran.err);
    assert!(text(&ran.out).starts_with("whole: whole\n"), "{}", text(&ran.out));
    let ran = trace(&directory.0, &["info", "--json", "none", "whole"]);
    let values: Value = serde_json::from_slice(&ran.out).unwrap();
    assert!(values[0]["error"].as_str().unwrap().contains("No such file") && values[1]["whole"] == true, "{values:#}");
    let ran = trace(&directory.0, &["verify", "whole", "none", "whole"]);
    assert_eq!((ran.code, text(&ran.out).lines().count()), (Some(1), 2));
}

#[test]
fn damage_is_told_with_its_place() {
    let directory = Directory::new("damage");
    let whole = recording(&head(), &HARMLESS, 0);
    let offsets = parts(&whole);
    for (part, &offset) in offsets.iter().enumerate() {
        let mut bytes = whole.clone();
        bytes[offset as usize + 41] ^= 0x10;
        directory.file("damaged", &bytes);
        directory.all_refuse("damaged", &["the file is damaged", &format!("at byte {offset}")]);
        let told = trace(&directory.0, &["info", "--json", "damaged"]);
        let value: Value = serde_json::from_slice(&told.out).unwrap();
        let told = text(&trace(&directory.0, &["info", "damaged"]).out);
        assert!(told.contains(&format!(" {offset} of {} bytes, ", whole.len())), "{told}");
        if part > 0 {
            directory.refuses(&["verify", "damaged"], 1, &["for its last 100 calls there is nothing to compare"]);
        }
        assert_eq!((&value[0]["damaged_at"], &value[0]["calls"]), (&offset.into(), &(part * 100).into()));
        // Without the rest the recording counts as cut, which can happen to any run.
        directory.file("cut", &whole[..offset as usize + 20]);
        let told = good(&directory.0, "cut", false);
        assert_eq!((&told["cut_at"], &told["calls"]), (&offset.into(), &(part * 100).into()));
        as_tables(&directory.0, "cut", &told);
        for table in ["table.csv", "table.parquet"] {
            fs::remove_file(directory.0.join(table)).unwrap();
        }
    }
    let mut bytes = whole;
    bytes[500] ^= 1;
    directory.file("head", &bytes);
    directory.all_refuse("head", &["the file is damaged, at byte 0"]);
}

#[test]
fn a_replay_that_cannot_be_the_same_is_explained() {
    let directory = Directory::new("other");
    directory.file("other", &recording(&Head { memfit: "0.0.9".into(), ..head() }, &HARMLESS, 0));
    directory.refuses(&["verify", "other"], 1, &["other: ", "recorded by memfit 0.0.9, and this is memfit 0."]);
    assert_eq!(info(&directory.0, "other")["memfit"], "0.0.9");
    assert_eq!(trace(&directory.0, &["export", "other", "-o", "table.csv"]).code, Some(0));
    let large = Head { page_bytes: 16384, ..head() };
    directory.file("large", &recording(&large, &HARMLESS, 0));
    assert_eq!(info(&directory.0, "large")["page_bytes"], 16384);
    for words in [&["verify", "large"][..], &["export", "large", "-o", "table.parquet"]] {
        directory.refuses(words, 1, &["large: it has pages of 16384 bytes, and this version knows 4096"]);
    }
    directory.file("scheme", &recording(&Head { scheme: "name = 3".into(), ..head() }, &HARMLESS, 0));
    directory.refuses(&["verify", "scheme"], 1, &["scheme: its scheme cannot be used: line 1"]);
    assert_eq!(info(&directory.0, "scheme")["whole"], true);
    // A text of the recording does not reach the terminal as an order.
    let hostile = Head { scheme: "\"\\u001b[2J\\u202eevil\" = 1".into(), ..head() };
    directory.file("hostile", &recording(&hostile, &HARMLESS, 0));
    for words in [&["trace", "verify", "hostile"][..], &["sim", "hostile"], &["trace", "info", "hostile"]] {
        let ran = memfit(&directory.0, words);
        let drives = |c: char| c != '\n' && memfit_wire::is_unprintable(c);
        assert!(!ran.err.contains(drives) && !text(&ran.out).contains(drives), "{words:?}: {:?}", ran.err);
    }
    directory.refuses(&["verify", "hostile"], 1, &["[2J evil"]);
    directory.file("otherwise", &recording(&head(), &HARMLESS, 77));
    directory.refuses(&["verify", "otherwise"], 1, &["otherwise: ", "decides otherwise", "between calls 300 and 401"]);
    directory.file("impossible", &recording(&head(), &CoreCall::RemoveProcess { proc: ProcId(9) }, 0));
    for words in [&["trace", "verify", "impossible"][..], &["sim", "impossible"], &["advise", "impossible"]] {
        directory.memfit_refuses(words, 1, &["impossible: the replay comes to a call that is impossible in it"]);
    }
}

#[test]
fn tables_that_cannot_be_written_leave_nothing() {
    let directory = Directory::new("tables");
    directory.file(FILE, &recording(&head(), &HARMLESS, 0));
    directory.refuses(&["export", FILE], 2, &["--output"]);
    directory.refuses(&["export", FILE, "-o", "table"], 2, &["-o table: name it .parquet or .csv"]);
    directory.refuses(&["export", FILE, "-o", FILE, "--format", "csv"], 2, &["-o", "this is the recording"]);
    directory.refuses(&["export", FILE, "-o", "none/table.csv"], 1, &["-o none/table.csv: cannot be written: No such"]);
    directory.refuses(&["export", FILE, "-o", "/proc/table.csv"], 1, &["-o /proc/table.csv: cannot be written"]);
    for format in ["csv", "parquet"] {
        let words = ["export", FILE, "-o", "/dev/full", "--format", format];
        directory.refuses(&words, 1, &["cannot write /dev/full: No space left on device"]);
    }
    assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 3, "the recording and two outputs of the last command");
    // An existing table stays until the new one is complete.
    directory.file("table.csv", b"old");
    directory.refuses(&["export", "none", "-o", "table.csv"], 1, &["cannot read none"]);
    assert_eq!(fs::read(directory.0.join("table.csv")).unwrap(), b"old");
    let ran = trace(&directory.0, &["export", FILE, "-o", "/dev/stdout", "--format", "csv"]);
    assert_eq!((ran.code, text(&ran.out).lines().count()), (Some(0), 401), "{}", ran.err);
}
