//! Shared read-only mappings of files: every change shows, also in fork children and in stopped
//! processes.

use crate::support::contents::assert_contents_eq;
use crate::support::known::program;
use crate::support::{skip, Bench};
use memfit_os::lease::{Lease, Waiter};
use memfit_os::transfer::Transfers;
use std::fs::File;
use std::os::fd::AsFd;

const BUDGET: u64 = 16 << 20;

/// The program, if the kernel gives leases on files of the bench.
fn readers(test: &str) -> Option<Bench> {
    leased(test, include_str!("../workloads/shared_file.c"))
}

fn leased(test: &str, source: &str) -> Option<Bench> {
    let bench = program(test, source)?;
    let path = bench.directory.join("leased");
    std::fs::write(&path, b"a file").unwrap();
    match Lease::take(File::open(&path).unwrap().as_fd(), Waiter::new().id()) {
        Ok(_) => Some(bench),
        Err(error) => {
            skip(test, &format!("no lease on a file in {}: {error}", bench.directory.display()));
            None
        }
    }
}

#[test]
fn changes_of_a_shared_file_show_at_once() {
    let Some(bench) = readers("shared_files") else { return };
    let (ran, stats) = bench.managed_with(&["--files"], "./program shared-data 24 8", BUDGET);
    let out =
        "paged: yes\nmremap: ENOMEM\npaged again: yes\nthe file's: yes\npaged again: yes\npaged again: yes\nright\n";
    assert_contents_eq!((ran.code, &*String::from_utf8_lossy(&ran.out)), (Some(0), out), "{}", ran.err);
    let (faults, evicted) = (stats.number("/faults/file"), stats.number("/evictions/pages"));
    assert!(faults > 500 && evicted > 1000, "{faults} {evicted}: {:#}", stats.json);
}

#[test]
fn a_stopped_process_sees_the_change_when_it_goes_on() {
    let Some(bench) = readers("shared_files_stopped") else { return };
    let (ran, _) = bench.managed_with(&["--files"], "./program shared-data 24 1 stopped", BUDGET);
    let out = "paged: yes\nmremap: ENOMEM\nthe stopped child: right\n";
    assert_contents_eq!((ran.code, &*String::from_utf8_lossy(&ran.out)), (Some(0), out), "{}", ran.err);
}

/// Each page is read from the file once, is in memory once, and is still there for a process that
/// comes when all others have ended.
#[test]
fn processes_share_the_pages_of_a_file() {
    let Some(bench) = leased("page_cache", include_str!("../workloads/page_cache.c")) else { return };
    let (ran, stats) = bench.managed_with(&["--files"], "./program data 24", BUDGET);
    let out = "write: SIGSEGV\nbehind the end: SIGBUS\nright\nspoilt: Killed\ntruncated\n";
    assert_contents_eq!((ran.code, &*String::from_utf8_lossy(&ran.out)), (Some(0), out), "{}", ran.err);
    assert!(ran.err.contains("killed process") && ran.err.contains("has changed memfit's copy"), "{}", ran.err);
    // Once for the first five, and again after the file was spoilt and truncated.
    let (read, evicted) = (stats.number("/files/read_bytes"), stats.number("/evictions/pages"));
    assert!(read <= 80 << 20 && evicted > 6144, "{read} {evicted}: {:#}", stats.json);
    // Four processes at a time map 24 MiB each.
    let peak = stats.number("/peak/total_bytes");
    assert!(peak < 24 << 20, "{peak}: {:#}", stats.json);
}

/// Of a file that does not fit, a part stays in memory. What is read is read in large pieces, also
/// what was dropped.
#[test]
fn a_loop_over_a_shared_file_reads_a_part_of_it_each_time() {
    const MIB: u64 = 24;
    const PASSES: u64 = 10;
    let Some(bench) = leased("scan", include_str!("../workloads/scan.c")) else { return };
    let (ran, stats) = bench.managed_with(&["--files"], &format!("./program data {MIB} {PASSES}"), BUDGET);
    assert_contents_eq!((ran.code, &*String::from_utf8_lossy(&ran.out)), (Some(0), "right\n"), "{}", ran.err);
    let (reads, bytes) = (stats.number("/files/reads"), stats.number("/files/read_bytes"));
    assert!(bytes < (MIB * PASSES * 9 / 10) << 20, "{bytes}: {:#}", stats.json);
    // Faults bring 64 KiB. What is read ahead is 256 KiB.
    let least = if Transfers::new().fd() >= 0 { 128 << 10 } else { 48 << 10 };
    assert!(bytes / reads > least, "{bytes} bytes in {reads} reads: {:#}", stats.json);
}

/// Without --files, and with a scheme that leaves files to the kernel, nothing changes.
#[test]
fn shared_files_are_the_kernels_by_default() {
    let Some(bench) = readers("shared_files_default") else { return };
    let (ran, stats) = bench.managed_with(&[], "./program shared-data 24 2", BUDGET);
    let out = String::from_utf8_lossy(&ran.out);
    assert!(ran.code == Some(0) && out.starts_with("paged: no\n") && out.ends_with("right\n"), "{out}{}", ran.err);
    assert_eq!(stats.number("/files/reads"), 0);
}
