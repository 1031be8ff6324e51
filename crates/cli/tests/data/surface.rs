//! docs/kernel-surface.md names tests that exist, and names each row of the programs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// The files of a directory with this ending: their names without it, and their text.
fn sources(directory: &str, ending: &str) -> Vec<(String, String)> {
    let of = |path: PathBuf| {
        let stem = path.file_name()?.to_str()?.strip_suffix(ending)?.to_owned();
        Some((stem, fs::read_to_string(path).unwrap()))
    };
    let found: Vec<_> =
        fs::read_dir(tests().join(directory)).unwrap().filter_map(|entry| of(entry.unwrap().path())).collect();
    assert!(found.len() >= 4, "{directory}: {found:?}");
    found
}

/// Rows: `{"name", function},` in the programs.
pub fn rows() -> BTreeSet<String> {
    let row = |line: &str| Some(line.trim().strip_prefix("{\"")?.split_once('"')?.0.to_owned());
    sources("workloads/surface", ".c").iter().flat_map(|(_, text)| text.lines().filter_map(row)).collect()
}

/// Tests of the kind that a folder has: `module::name`.
pub fn tests_of(folder: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (module, text) in sources(folder, ".rs") {
        for (test, function) in text.lines().zip(text.lines().skip(1)) {
            if let (true, Some(name)) = (test == "#[test]", function.strip_prefix("fn ")) {
                found.insert(format!("{module}::{}", name.split('(').next().unwrap()));
            }
        }
    }
    found
}

/// The names in the last columns of the tables.
fn named() -> BTreeSet<String> {
    let text = fs::read_to_string(tests().join("../../../docs/kernel-surface.md")).unwrap();
    text.lines().filter(|line| line.starts_with("| ")).flat_map(shown_by).collect()
}

/// The names in the last column of a row.
pub fn shown_by(row: &str) -> Vec<String> {
    let shown = row.trim_end_matches('|').rsplit('|').next().unwrap();
    assert!(!shown.trim().is_empty(), "nothing shows this: {row}");
    shown.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn what_the_kernel_surface_names_exists() {
    let exist = &rows() | &tests_of("behaviour");
    let unknown: Vec<_> = named().into_iter().filter(|name| !exist.contains(name)).collect();
    assert!(unknown.is_empty(), "docs/kernel-surface.md names what does not exist: {unknown:?}");
}

#[test]
fn each_row_is_in_the_kernel_surface() {
    let missing = &rows() - &named();
    assert!(missing.is_empty(), "not in docs/kernel-surface.md: {missing:?}");
}
