//! LZO1X against the C library: vectors that it made, and both directions where it is installed.
#![cfg(not(miri))] // foreign code

#[path = "../examples/bench_codecs/liblzo.rs"]
mod liblzo;
#[path = "../../../tests/skip.rs"]
mod skip;

use liblzo::LibLzo;
use memfit_codec::generate::{Rng, GENERATORS};
use memfit_codec::{CodecId, Worker, MAX_UNIT, PAGE_BYTES};
use std::collections::BTreeMap;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().map(|digit| digit.to_digit(16).expect("a hexadecimal digit")).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// Decodes streams of LZO1X-1 and LZO1X-999; the latter use every instruction of the format.
#[test]
fn vectors_of_the_c_library() {
    let mut worker = Worker::new();
    let mut checked = 0;
    for unit in include_str!("vectors/lzo.txt").split("\nunit ").skip(1) {
        let mut parts: BTreeMap<&str, String> = BTreeMap::new();
        let mut part = "";
        for line in unit.lines().skip(1).filter(|line| !line.is_empty()) {
            match line.strip_prefix("  ") {
                Some(hex) => parts.entry(part).or_default().push_str(hex),
                None => part = line,
            }
        }
        let original = bytes(&parts["original"]);
        for by in ["lzo1x_1", "lzo1x_999"] {
            let mut out = vec![0; original.len()];
            assert_eq!(worker.decompress(CodecId::LZO, &bytes(&parts[by]), &mut out), Ok(()), "{unit}: {by}");
            assert!(out == original, "{unit}: {by}");
            checked += 1;
        }
    }
    assert_eq!(checked, 8);
}

#[test]
fn both_directions_against_the_c_library() {
    let Some(mut library) = LibLzo::open() else {
        let why = "there is no liblzo2.so.2; tests/setup installs it";
        return skip::skip("both_directions_against_the_c_library", why);
    };
    let (mut worker, mut rng) = (Worker::new(), Rng::new(21));
    let (mut ours, mut theirs) = (0, 0);
    for generator in GENERATORS {
        for len in [8, 24, 200, 504, PAGE_BYTES, PAGE_BYTES, PAGE_BYTES, 3 * PAGE_BYTES + 8, MAX_UNIT] {
            let (mut unit, mut out, mut packed) = (vec![0; len], vec![0; len], vec![0; len]);
            (generator.fill)(&mut rng, &mut unit);
            let their = library.compress(&unit).to_vec();
            assert_eq!(worker.decompress(CodecId::LZO, &their, &mut out), Ok(()), "{} {len}", generator.name);
            assert!(out == unit, "{} {len}", generator.name);
            let our = worker.compress(CodecId::LZO, &unit, &mut packed, len);
            if let Some(our) = our {
                out.fill(0xaa);
                assert!(library.decompress(&packed[..our], &mut out), "{} {len}", generator.name);
                assert!(out == unit, "{} {len}", generator.name);
            }
            if len == PAGE_BYTES {
                (ours, theirs) = (ours + our.unwrap_or(len), theirs + their.len().min(len));
            }
        }
    }
    assert!(ours * 100 < theirs * 103, "pages became {ours} bytes, those of the library {theirs}");
}
