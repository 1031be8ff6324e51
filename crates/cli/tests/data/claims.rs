//! What README.md says is shown: the table "Claims" of CONTRIBUTING.md names a test or a bench for
//! each, and the speeds are those of docs/performance.md.

use crate::surface::{shown_by, tests_of};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// Text without line breaks and decoration.
fn plain(text: &str) -> String {
    text.replace(['*', '`'], "").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The text below a heading, up to the next one of its level or of a higher one.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let marks = heading.split(' ').next().unwrap();
    let from = text.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading:?}")) + heading.len() + 2;
    let levels = (2..=marks.len()).map(|level| format!("\n{} ", &marks[..level]));
    let end = levels.filter_map(|mark| text[from..].find(&mark)).min().map_or(text.len(), |end| from + end);
    &text[from..end]
}

/// The rows of the table of a text, without its head.
fn rows(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix('|')).skip(1)
}

/// The columns of each row.
fn table(text: &str) -> Vec<Vec<&str>> {
    rows(text).map(|row| row.split('|').map(str::trim).collect()).collect()
}

fn claims() -> Vec<(String, Vec<String>)> {
    let text = read("CONTRIBUTING.md");
    rows(section(&text, "### Claims")).map(|row| (plain(row.split('|').next().unwrap()), shown_by(row))).collect()
}

#[test]
fn each_claim_is_in_the_readme_and_has_a_test_or_a_bench() {
    let readme = plain(&read("README.md"));
    let tests: BTreeSet<String> = ["behaviour", "data", "statistic"].into_iter().flat_map(tests_of).collect();
    let makefile = read("Makefile");
    let exists = |name: &String| match name.strip_prefix("make ") {
        Some(goal) => makefile.contains(&format!("\n{goal}: ")),
        None => tests.contains(name) || root().join(name).is_file(),
    };
    for (claim, shown) in claims() {
        assert!(readme.contains(&claim), "README.md does not say: {claim}");
        assert!(!shown.is_empty(), "nothing shows: {claim}");
        let unknown: Vec<_> = shown.iter().filter(|name| !exists(name)).collect();
        assert!(unknown.is_empty(), "{unknown:?} does not exist: {claim}");
    }
}

#[test]
fn each_section_of_the_readme_has_claims() {
    let (text, claims) = (read("README.md"), claims());
    let (first, _) = text.split_once("\n## ").unwrap();
    let sections = text.split("\n## ").skip(1).chain([first]);
    for part in sections.map(plain) {
        assert!(claims.iter().any(|(claim, _)| part.contains(claim)), "no claim of: {}", &part[..60]);
    }
}

#[test]
fn speeds_are_those_of_the_measurements() {
    let (readme, measured) = (read("README.md"), read("docs/performance.md"));
    let measured = table(section(&measured, "## Half of the natural peak"));
    let number = |cell: &str| cell.trim_matches('*').split(" (").next().unwrap().to_owned();
    let shown = table(section(&readme, "## Speed"));
    assert!(shown.len() >= 6, "{shown:?}");
    for row in shown {
        let program = measured.iter().find(|other| other[0] == row[0]);
        let program = program.unwrap_or_else(|| panic!("{} is not in docs/performance.md", row[0]));
        let numbers = |row: &[&str]| row.iter().map(|cell| number(cell).to_lowercase()).collect::<Vec<_>>();
        assert_eq!(numbers(&row[1..]), numbers(&program[2..5]), "{}", row[0]);
    }
}
