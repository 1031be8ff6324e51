//! Every preset under a real program: right output, and for each preset what distinguishes it.

use crate::support::contents::assert_contents_eq;
use crate::support::known::program;
use crate::support::recording::recorded;
use crate::support::stats::Stats;
use crate::support::{skip, Bench};
use memfit_os::{probe, uffd};
use memfit_scheme::PRESETS;

const BUDGET: u64 = 20 << 20;
/// The budget in pages.
const FRAMES: u64 = BUDGET / 4096;

/// What must hold of a run under each preset.
fn expect(preset: &str, stats: &Stats) {
    let number = |key: &str| stats.number(key);
    let (pool, swap) = (number("/faults/pool"), number("/faults/swap"));
    let (compressed, to_swap) = (number("/evictions/compressed"), number("/evictions/to_swap"));
    let units = number("/pool/evicted_units");
    let rejected = |why: &str| number(&format!("/evictions/rejected/{why}"));
    let limit = number("/pool/limit_bytes") / 4096;
    let what = format!("{preset}: {:#}", stats.json);
    assert!(preset == "memfit" || preset == "zram" || number("/peak/pool_bytes") <= (limit + 64) * 4096, "{what}");
    match preset {
        "memfit" => assert!(pool > 0 && swap > 0 && units == 0, "{what}"),
        "swap" => assert!(compressed == 0 && pool == 0 && swap > FRAMES && to_swap > FRAMES, "{what}"),
        // What finds no room goes to swap, and nothing is evicted from the pool for it.
        "zram" => assert!(pool > FRAMES / 2 && rejected("pool_full") > 0 && units == 0, "{what}"),
        "zswap-zsmalloc" => assert!(pool > 0 && rejected("pool_full") > 0 && units == 0, "{what}"),
        "hybrid18" => assert!(rejected("in_advance") > 0 && swap > 0 && units == 0, "{what}"),
        "tuduce05" => assert!(pool > 0 && to_swap > 0 && units == 0, "{what}"),
        // Many buffers in one write.
        "cervera99" => assert!(units > 0 && number("/swap/writes") * 4 < units && swap > FRAMES, "{what}"),
        "ca+sa" | "ezswap" => assert!(units > 0 && pool > 0 && swap > 0, "{what}"),
        _ => assert!(units > 0 && swap > 0 && compressed > 0, "{what}"),
    }
    if !["memfit", "cervera99"].contains(&preset) {
        // Whole pages are written.
        assert_eq!(number("/swap/write_bytes") % 4096, 0, "{what}");
        assert!(number("/swap/write_bytes") <= to_swap * 4096 + (to_swap / 8 + 64) * 4096, "{what}");
    }
}

#[test]
fn every_preset_runs_a_program_right_and_decides_the_same_again() {
    let Some(bench) = Bench::new("schemes", &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc", "-O2"], "mix", include_str!("../workloads/mix.c")) else { return };
    for preset in PRESETS {
        // Presets that are relatives of others only fill their memory and read it once.
        let relative = ["zswap-zbud", "zsmalloc-sr", "apa", "apa+sa", "apa+ca"].contains(&preset.name);
        let line = if relative { "./mix 36 0" } else { "./mix 36 2 rand" };
        let (ran, stats, told) = recorded(&bench, &["-s", preset.name], line, BUDGET);
        assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"right\n"[..]), "{}: {}", preset.name, ran.err);
        assert_eq!((&stats.json["scheme"], &told["scheme"]), (&preset.name.into(), &preset.name.into()));
        assert_eq!(stats.number("/swap/errors"), 0);
        expect(preset.name, &stats);
    }
}

/// Blocks that were read serve later faults, also those of fork children that share them.
#[test]
fn blocks_that_were_read_stay_in_the_pool() {
    let Some(bench) = Bench::new("schemes_cached", &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc", "-O2"], "mix", include_str!("../workloads/mix.c")) else { return };
    let Some(_) = bench.compile(&["gcc", "-O2"], "children", include_str!("../workloads/children.c")) else { return };
    let options = ["-s", "cervera99", "--set", "swap_format.cache_reads=1"];
    for line in ["./mix 36 2 rand", "./children"] {
        let known = bench.plain(line);
        let (ran, stats, _) = recorded(&bench, &options, line, BUDGET);
        assert_contents_eq!((ran.code, &*ran.out), (known.code, &*known.out), "{line}: {}", ran.err);
        let (cached, swap) = (stats.number("/pool/cached_reads"), stats.number("/faults/swap"));
        assert!(cached > FRAMES / 8 && cached <= swap, "{line}: {:#}", stats.json);
        assert_eq!(stats.number("/swap/errors"), 0);
    }
}

/// Clean pages of files: filled from the file, dropped or pooled, anonymous once the program writes
/// to them; with forks, moves and unmappings.
#[test]
fn pages_of_files_are_in_the_budget() {
    let Some(bench) = Bench::new("schemes_files", &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc", "-O2"], "mapped", include_str!("../workloads/mapped.c")) else { return };
    for (scheme, file) in [("ca+sa", "./mapped file 12 6 1"), ("ezswap", "./mapped file 16 6 1")] {
        // Both kinds in turn: else the pool holds pages of files too shortly for a second pass.
        let (ran, stats) = bench.managed_with(&["-s", scheme, "--set", "reclaim.file_age=1"], file, 16 << 20);
        assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"right\n"[..]), "{scheme}: {}", ran.err);
        let dropped = stats.number("/evictions/file_dropped");
        let (from_files, read) = (stats.number("/faults/file"), stats.number("/files/read_bytes"));
        assert!(from_files > 1000 && dropped > 300 && read > 4 << 20, "{scheme}: {:#}", stats.json);
        assert!(scheme == "ca+sa" || stats.number("/faults/pool") > 100, "{scheme}: {:#}", stats.json);
    }
    // By default memfit leaves pages of files to the kernel.
    let (ran, stats) = bench.managed("./mapped file 32 8 1", 20 << 20);
    assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"right\n"[..]), "{}", ran.err);
    assert_eq!((stats.number("/faults/file"), stats.number("/files/reads")), (0, 0));
}

/// Where the kernel tells which pages are accessed, those that are used most stay. Elsewhere the
/// user is told, and page faults decide. A recording decides the same again.
#[test]
fn accessed_bits() {
    let Some(bench) = program("accessed", include_str!("../workloads/skewed.c")) else { return };
    let line = "./program 60 150000";
    let [without, with] = ["0", "1"].map(|bits| {
        let key = format!("reclaim.accessed_bits={bits}");
        let (ran, stats, _) = recorded(&bench, &["--set", &key], line, 40 << 20);
        assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"wrong: 0\n"[..]), "{key}: {}", ran.err);
        (ran.err, stats)
    });
    let back = |stats: &Stats| stats.number("/faults/pool") + stats.number("/faults/swap");
    assert_eq!((&*without.0, without.1.number("/evictions/accessed")), ("", 0));
    if !probe::can_enable(uffd::ACCESSES) {
        assert!(with.0.starts_with("memfit: reclaim.accessed_bits: no such bits from this kernel"), "{}", with.0);
        return skip("accessed", "no accessed bits before Linux 7.3");
    }
    assert_eq!(with.0, "");
    let (before, after) = (back(&without.1), back(&with.1));
    let accessed = with.1.number("/evictions/accessed");
    assert!(accessed > 1000 && after * 10 < before * 9, "{before} pages came back, {after} with the bits; {accessed}");
}

/// What docs/limits.md says of mappings whose pages memfit fills.
#[test]
fn mappings_of_files_that_memfit_fills_differ() {
    let Some(bench) = Bench::new("schemes_files_differ", &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc", "-O2"], "mapped", include_str!("../workloads/mapped.c")) else { return };
    let line = "./mapped file 8 24 1 differs";
    let plain = String::from_utf8(bench.plain(line).out).unwrap();
    let kernels = "named in maps: yes\nbehind the end: SIGBUS\na write: SIGSEGV\nmremap: done\nright\n";
    assert_eq!(plain, kernels);
    for scheme in ["apa", "apa+sa", "apa+ca", "ca+sa", "ezswap"] {
        let (ran, stats) = bench.managed_with(&["-s", scheme], line, 20 << 20);
        let found = String::from_utf8_lossy(&ran.out);
        let memfits = "named in maps: no\nbehind the end: zeros\na write: nothing\nmremap: ENOMEM\nright\n";
        assert_contents_eq!((ran.code, &*found), (Some(0), memfits), "{scheme}: {}", ran.err);
        assert!(stats.number("/files/read_bytes") >= 8 << 20, "{scheme}: {:#}", stats.json);
    }
}

/// Where the kernel reports no forks, memfit leaves them to the kernel: what was never read would
/// be missing in a child.
#[test]
fn pages_of_files_of_an_ordinary_user() {
    let Some(bench) = Bench::ordinary("schemes_files_ordinary", &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc", "-O2"], "mapped", include_str!("../workloads/mapped.c")) else { return };
    let (ran, stats) = bench.managed_with(&["-s", "apa"], "./mapped file 16 24 1", 20 << 20);
    assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"right\n"[..]), "{}", ran.err);
    assert!(stats.number("/faults/file") == 0 && stats.number("/evictions/pages") > 1000, "{:#}", stats.json);
}

/// A swap tier that is too small: objects without a slot stay in RAM, and nothing is lost.
#[test]
fn a_tier_that_is_nearly_full() {
    let Some(bench) = Bench::new("schemes_full", &["gcc"]) else { return };
    let Some(_) = bench.compile(&["gcc", "-O2"], "mix", include_str!("../workloads/mix.c")) else { return };
    let (ran, _) = bench.managed_with(&["-s", "hybrid18", "--swap-size", "16M"], "./mix 28 1 rand", 20 << 20);
    assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"right\n"[..]), "{}", ran.err);
}

#[test]
fn some_schemes_need_a_tier() {
    let Some(bench) = Bench::new("schemes_no_tier", &[]) else { return };
    for (scheme, why) in
        [("swap", "keeps pages in swap alone"), ("cervera99", "stores no page without a block of swap for it")]
    {
        let mut command = crate::support::memfit_command();
        command.args(["run", "-s", scheme, "--swap", "none", "-m", "32M", "true"]);
        let ran = bench.checked(command, &format!("memfit run -s {scheme} --swap none"));
        assert_eq!(ran.code, Some(2), "{}", ran.err);
        assert!(ran.err.contains(&format!("scheme {scheme} {why}: it needs a swap tier")), "{}", ran.err);
    }
}

/// Its pool grows step by step.
#[test]
fn a_pool_of_zones_takes_what_fits_without_a_tier() {
    let Some(bench) = Bench::new("schemes_zones_alone", &["python3"]) else { return };
    let program = "b = bytearray(90 << 20)\n\
                   for at in range(0, len(b), 4096): b[at:at + 8] = at.to_bytes(8, 'little')\n\
                   print(all(b[at:at + 8] == at.to_bytes(8, 'little') for at in range(0, len(b), 4096)))";
    let mut command = crate::support::memfit_command();
    command.args(["run", "-s", "tuduce05", "--swap", "none", "-m", "64M", "--", "python3", "-c", program]);
    let ran = bench.checked(command, "memfit run -s tuduce05 --swap none");
    assert_contents_eq!((ran.code, &*ran.out), (Some(0), &b"True\n"[..]), "{}", ran.err);
}
