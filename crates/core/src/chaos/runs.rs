//! The schemes and sizes that the random programs run with.

use super::{World, FILES};
use std::collections::HashMap;

/// Runs a scheme; returns how often each operation happened.
fn run(
    preset: &str,
    overrides: &[&str],
    frames: u32,
    blocks: u32,
    seed: u64,
    steps: u32,
) -> HashMap<&'static str, u64> {
    let mut world = World::new(preset, overrides, frames, blocks, seed);
    FILES.with(|files| files.set(world.scheme.classes != crate::scheme::Classes::Anonymous));
    for i in 0..steps {
        world.step();
        if i % 16 == 0 {
            world.core.check();
        }
    }
    world.stats.insert("spared", world.core.counters().spared);
    println!("{preset} {overrides:?} {frames} {blocks} {seed}: {:?}", world.stats);
    world.replay();
    world.finish();
    world.stats
}

const SCHEMES: &[(&str, &[&str])] = &[
    ("memfit", &[]),
    ("memfit", &["replacement=unit-lru"]),
    ("memfit", &["swap_format=raw-slots"]),
    ("swap", &[]),
    ("zram", &[]),
    ("zswap-zbud", &[]),
    ("zswap-z3fold", &[]),
    ("zswap-z3fold", &["pool.header_chunks=1", "replacement=fifo"]),
    ("zswap-zsmalloc", &[]),
    ("cervera99", &[]),
    ("cervera99", &["swap_format.cache_reads=1"]),
    ("tuduce05", &["pool.zone_kib=256"]),
    ("hybrid18", &[]),
    ("zsmalloc-sr", &[]),
    ("apa", &[]),
    ("apa+sa", &[]),
    ("apa+ca", &[]),
    ("ca+sa", &[]),
    ("ezswap", &[]),
    ("memfit", &["pool=dummy", "replacement=dummy"]),
];

/// Returns how often a page left to the raw slot that was kept for it: unchanged, and changed.
fn all(frames: u32, blocks: u32, steps: u32) -> [u64; 2] {
    let mut spared = 0;
    let seeds: u64 = std::env::var("CHAOS_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3);
    let (mut failed, mut below, mut clean, mut changed) = (Vec::new(), 0, 0, 0);
    let (mut same, mut shared) = (0, 0);
    for (preset, overrides) in SCHEMES {
        for seed in 0..seeds {
            let result = std::panic::catch_unwind(|| run(preset, overrides, frames, blocks, seed, steps));
            let count = |what| result.as_ref().map_or(0, |stats| stats.get(what).copied().unwrap_or(0));
            below += count("below");
            spared += count("spared");
            (same, shared) = (same + count("same"), shared + count("shared"));
            (clean, changed) = (clean + count("clean"), changed + count("changed"));
            if let Err(why) = result {
                let why =
                    why.downcast_ref::<String>().cloned().or_else(|| why.downcast_ref::<&str>().map(|s| s.to_string()));
                failed.push(format!("{preset} {overrides:?} seed {seed}: {why:?}"));
                break;
            }
        }
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
    assert!(below > 0, "no fault brought pages below it");
    assert!(spared > 0, "no hot page stayed");
    assert!(same > 10 && shared > 10, "{same} pages had the contents of another, {shared} batches were shared");
    [clean, changed]
}

#[test]
fn any_order_with_a_large_tier() {
    let [clean, changed] = all(12, 2000, 4000);
    assert!(clean > 20 && changed > 5, "{clean} pages left unchanged, {changed} changed");
}

#[test]
fn any_order_with_a_small_tier() {
    all(12, 60, 4000);
}

#[test]
fn any_order_with_a_tiny_pool() {
    all(5, 100, 4000);
}

#[test]
fn blocks_that_were_read_in_any_order() {
    let mut cached = 0;
    for seed in 0..40 {
        let (frames, blocks) = ([3, 5, 12, 30][seed % 4], [60, 2000][seed / 4 % 2]);
        let stats = run("cervera99", &["swap_format.cache_reads=1"], frames, blocks, seed as u64, 4000);
        cached += stats.get("cached").copied().unwrap_or(0);
    }
    assert!(cached > 100, "{cached} blocks were cached");
}

/// Raw pages are due after one or two turns: until then there is room for them, and one page in two
/// may be raw.
#[test]
fn any_order_with_raw_pages_in_a_roomy_pool() {
    let mut due = 0;
    for seed in 0..40 {
        for format in ["swap_format=compressed-extents", "swap_format=raw-slots"] {
            let stats = run("memfit", &["admission.raw_percent=50", format], 80, 2000, seed, 4000);
            due += stats.get("due").copied().unwrap_or(0);
        }
    }
    assert!(due > 8, "{due} times there was something due");
}
