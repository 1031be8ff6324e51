//! Any bytes in place of compressed ones: every codec restores something or refuses, and stays
//! inside its buffers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memfit_codec::{generate::trained_worker, Corrupt, Worker, CODECS, MAX_UNIT, PAGE_BYTES};
use memfit_fuzz::Guarded;
use std::cell::RefCell;

/// Lengths of originals: a page mostly, then runs, small ones, odd ones, and those that are to be
/// refused.
fn length(choice: u8) -> usize {
    match choice {
        0..=127 => PAGE_BYTES,
        128..=191 => PAGE_BYTES * usize::from(choice % 16 + 1),
        192..=223 => 8 * usize::from(choice % 32 + 1),
        224..=247 => PAGE_BYTES + 8 * usize::from(choice % 24),
        248..=251 => usize::from(choice - 247),
        252..=254 => MAX_UNIT + usize::from(choice - 251),
        255 => 0,
    }
}

thread_local! {
    static STATE: RefCell<(Worker, Guarded, Guarded)> =
        RefCell::new((trained_worker(), Guarded::new(1 << 20), Guarded::new(MAX_UNIT + 8)));
}

fuzz_target!(|data: &[u8]| {
    let Some((&choice, packed)) = data.split_first() else { return };
    STATE.with_borrow_mut(|(worker, src, out)| {
        src.set_len(packed.len());
        src.copy_from_slice(packed);
        let len = length(choice);
        out.set_len(len);
        for codec in CODECS {
            let result = worker.decompress(codec.id, src, out);
            let allowed = len > 0 && len <= MAX_UNIT && len % 8 == 0;
            assert!(allowed || result == Err(Corrupt), "{}: {len} bytes", codec.name);
            assert!(**src == *packed, "{} wrote to its input", codec.name);
            if result.is_ok() {
                let first = out.to_vec();
                out.fill(0xaa);
                assert_eq!(worker.decompress(codec.id, src, out), Ok(()), "{}", codec.name);
                assert!(first == **out, "{}: what it restores depends on what was there", codec.name);
            }
        }
    });
});
