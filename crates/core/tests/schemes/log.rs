//! Eviction of whole units to a log.

use super::bench::{anonymous, Bench};
use memfit_core::swap_log::stored_bytes;

/// The caller has room for exactly this many bytes.
#[test]
fn units_are_no_more_than_the_batch() {
    for max_bytes in [0, 5000, 20_000] {
        let mut bench = Bench::new("memfit", &["replacement=unit-lru"], 2048, 0);
        (0..40).for_each(|page| bench.store_only(page, anonymous(2500)));
        (40..1000).for_each(|page| bench.store_only(page, anonymous(100)));
        let mut victims = Vec::new();
        bench.core.pick_writeback(true, max_bytes, &mut victims);
        let bytes: u32 = victims.iter().map(|victim| stored_bytes(victim.runs.len())).sum();
        assert!(bytes <= max_bytes, "{bytes} bytes for a batch of {max_bytes}");
        assert_eq!(victims.is_empty(), max_bytes == 0);
        victims.iter().for_each(|victim| bench.core.written(victim.object, None));
        bench.core.check();
    }
}
