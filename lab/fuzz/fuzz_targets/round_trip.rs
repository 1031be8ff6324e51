//! Any page: what a codec packs within its limit, it restores; a piece of that is refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memfit_codec::{fill, generate::trained_worker, same_filled, Corrupt, Worker, CODECS, PAGE_BYTES};
use memfit_fuzz::{page, Guarded};
use std::cell::RefCell;

thread_local! {
    static STATE: RefCell<(Worker, [Guarded; 3])> =
        RefCell::new((trained_worker(), [(); 3].map(|()| Guarded::new(PAGE_BYTES))));
}

fuzz_target!(|data: &[u8]| {
    let Some((&tight, rest)) = data.split_first() else { return };
    let original = page(rest);
    STATE.with_borrow_mut(|(worker, [src, packed, out])| {
        src.copy_from_slice(&original);
        for codec in CODECS {
            let mut limit = PAGE_BYTES;
            // Twice: with room, and with about as much as is needed.
            for _ in 0..2 {
                packed.set_len(limit);
                let Some(len) = worker.compress(codec.id, src, packed, limit) else { break };
                assert!(len < limit, "{}: {len} bytes within {limit}", codec.name);
                let bytes = packed.to_vec();
                for kept in [len, len - 1 - usize::from(tight) % len] {
                    packed.set_len(kept);
                    packed.copy_from_slice(&bytes[..kept]);
                    out.fill(0xaa);
                    let result = worker.decompress(codec.id, packed, out);
                    assert_eq!(result, if kept == len { Ok(()) } else { Err(Corrupt) }, "{}: {kept}", codec.name);
                    assert!(kept < len || **out == *original, "{} restored another page", codec.name);
                }
                limit = (len + 16).saturating_sub(usize::from(tight) / 8).min(PAGE_BYTES);
            }
        }
        if let Some(word) = same_filled(src) {
            fill(out, word);
            assert!(**out == *original, "filled with {word:#x}");
        }
        assert!(**src == *original, "a compressor wrote to its input");
    });
});
