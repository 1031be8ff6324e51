//! Compressed bytes of fixed inputs, to detect a change of a format or of a library.
//!
//! A line of `vectors/golden.txt` is a codec, length and checksum of its compressed page, and the
//! bytes of a small unit. These bytes must be readable for ever, even if the encoder writes others.
//! `MEMFIT_BLESS=1` writes the file; a codec's bytes may change in it only if the old ones can
//! still be read.
#![cfg(not(miri))] // foreign code

use memfit_codec::generate::{trained_worker, Rng, GENERATORS};
use memfit_codec::{find, Worker, CODECS, PAGE_BYTES};
use std::fmt::Write;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/golden.txt");
const SMALL: usize = 320;

/// Pieces of several kinds of pages.
fn fixed(len: usize) -> Vec<u8> {
    let (mut rng, mut bytes) = (Rng::new(1999), vec![0; len]);
    let kinds = ["text", "py-objects", "int64-small", "f=0.20", "pointers"];
    for (piece, kind) in bytes.chunks_mut(len / kinds.len() / 8 * 8).zip(kinds.iter().cycle()) {
        let generator = GENERATORS.iter().find(|generator| generator.name == *kind).expect("a kind of page");
        (generator.fill)(&mut rng, piece);
    }
    bytes
}

fn golden(worker: &mut Worker) -> String {
    let mut out = String::new();
    for codec in CODECS {
        let mut packed = vec![0; PAGE_BYTES];
        let len = worker.compress(codec.id, &fixed(PAGE_BYTES), &mut packed, PAGE_BYTES).expect("shrinks");
        let _ = write!(out, "{} {len} {:08x}", codec.name, crc32fast::hash(&packed[..len]));
        // Dictionaries live as long as a run, so later runs need not read bytes written with one.
        if codec.untrained.is_none() {
            let len = worker.compress(codec.id, &fixed(SMALL), &mut packed, PAGE_BYTES).expect("fits");
            out.push(' ');
            for byte in &packed[..len] {
                let _ = write!(out, "{byte:02x}");
            }
        }
        out.push('\n');
    }
    out
}

#[test]
fn compressed_bytes_are_as_ever() {
    let mut worker = trained_worker();
    let now = golden(&mut worker);
    if std::env::var_os("MEMFIT_BLESS").is_some() {
        std::fs::write(FILE, now).expect("a file of this repository");
        return;
    }
    for (was, now) in include_str!("vectors/golden.txt").lines().zip(now.lines()) {
        assert_eq!(was, now);
    }
}

#[test]
fn old_bytes_are_still_read() {
    let mut worker = Worker::new();
    let mut read = 0;
    for line in include_str!("vectors/golden.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let Some(hex) = words.get(3) else { continue };
        let digits: Vec<u8> = hex.chars().map(|digit| digit.to_digit(16).expect("hexadecimal") as u8).collect();
        let packed: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        let mut out = vec![0; SMALL];
        assert_eq!(worker.decompress(find(words[0]).expect("a codec").id, &packed, &mut out), Ok(()), "{}", words[0]);
        assert!(out == fixed(SMALL), "{} restored other bytes", words[0]);
        read += 1;
    }
    assert_eq!(read, CODECS.iter().filter(|codec| codec.untrained.is_none()).count());
}
