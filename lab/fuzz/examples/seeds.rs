//! Writes what the targets start from into lab/fuzz/corpus: packed pages of every kind by every
//! codec, pages, the presets, and what /proc says about this process. A fuzzer alone takes long to
//! find a valid zstd frame.
//!
//! `cargo run --no-default-features --example seeds`, in lab/fuzz/.

use memfit_codec::generate::{trained_worker, Rng, GENERATORS};
use memfit_codec::{CODECS, PAGE_BYTES};
use memfit_scheme::PRESETS;
use std::fs;
use std::path::Path;

fn write(target: &str, name: &str, parts: &[&[u8]]) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join(name), parts.concat()).unwrap();
}

fn main() {
    let (mut worker, mut rng) = (trained_worker(), Rng::new(1));
    for generator in GENERATORS {
        let mut page = vec![0; PAGE_BYTES];
        (generator.fill)(&mut rng, &mut page);
        write("round_trip", generator.name, &[&[16, 0xff], &page]);
        for codec in CODECS {
            let mut packed = vec![0; PAGE_BYTES];
            if let Some(len) = worker.compress(codec.id, &page, &mut packed, PAGE_BYTES) {
                // The first byte chooses the length of a page.
                write("decompress", &format!("{}-{}", codec.name, generator.name), &[&[0], &packed[..len]]);
            }
        }
    }
    for preset in PRESETS {
        write("scheme", preset.name, &[preset.text.as_bytes()]);
        write(
            "scheme",
            &format!("{}-set", preset.name),
            &[preset.text.as_bytes(), b"\0codec=zstd\0sizing.low_percent=3"],
        );
    }
    for file in ["maps", "smaps", "stat"] {
        write("proc_text", file, &[&fs::read(Path::new("/proc/self").join(file)).unwrap()]);
    }
}
