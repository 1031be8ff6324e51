//! `make install`, with a program that needs more memory than its budget.

use crate::support::contents::assert_contents_eq;
use crate::support::known::{program, BUDGET, EVICTED};
use crate::support::{memfit, Bench};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// All files below a directory, relative to it.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(next) = directories.pop() {
        for path in fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => directories.push(path),
                false => found.push(path.strip_prefix(directory).unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn what_make_installs_works_and_can_be_removed() {
    let Some(bench) = Bench::new("install", &["make", "install", "sort", "seq"]) else { return };
    // What `make build` makes is here already.
    let (target, prefix) = (bench.directory.join("target"), bench.directory.join("prefix"));
    fs::create_dir_all(target.join("release")).unwrap();
    for name in ["memfit", "libmemfit.so"] {
        symlink(memfit().with_file_name(name), target.join("release").join(name)).unwrap();
    }
    let make = |goal: &str| {
        let mut command = Command::new("make");
        command.arg("-C").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).args([goal, "CARGO=false"]);
        command.arg(format!("PREFIX={}", prefix.display())).env("CARGO_TARGET_DIR", &target).env_remove("MAKEFLAGS");
        let ran = bench.checked(command, goal);
        assert_eq!(ran.code, Some(0), "make {goal}: {}", ran.err);
    };
    // Root, who installs, often has no cargo.
    make("install");
    let installed = files(&prefix);
    for file in
        ["bin/memfit", "lib/memfit/libmemfit.so", "share/man/man1/memfit-run.1", "share/zsh/site-functions/_memfit"]
    {
        assert!(installed.iter().any(|found| found == Path::new(file)), "no {file}: {installed:?}");
    }
    let line = "seq 600000 | sort -S 100M -r | cksum";
    let mut command = Command::new(prefix.join("bin/memfit"));
    command.arg("run");
    let (ran, stats) = bench.managed_by(command, line, 24 << 20);
    assert_contents_eq!(ran.out, bench.plain(line).out, "{}", ran.err);
    assert!(stats.number("/evictions/pages") > 0, "nothing was evicted: {:#}", stats.json);
    make("uninstall");
    assert_eq!(files(&prefix), Vec::<PathBuf>::new());
}

/// A package manager replaces the file while programs have it mapped.
#[test]
fn the_stub_has_another_name_or_is_removed() {
    let Some(bench) = program("other_stub", include_str!("../workloads/checked.c")) else { return };
    let stub = bench.directory.join("other.so");
    fs::copy(memfit().with_file_name("libmemfit.so"), &stub).unwrap();
    for line in ["./program 60 4", "./program 60 4 other.so"] {
        let mut command = bench.memfit();
        command.env("MEMFIT_STUB", &stub).arg("run");
        let (ran, stats) = bench.managed_by(command, line, BUDGET);
        let out = String::from_utf8_lossy(&ran.out);
        assert_contents_eq!((ran.code, &*out), (Some(0), "wrong: 0\n"), "{line}: {}", ran.err);
        assert!(stats.number("/evictions/pages") >= EVICTED, "{line}: {:#}", stats.json);
    }
}
