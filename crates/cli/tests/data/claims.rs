//! What README.md and docs/limits.md say is shown: the tables "Claims" and "Limits" of
//! CONTRIBUTING.md name a test or a bench for each, and the speeds are those of
//! docs/performance.md.

use crate::surface::{self, shown_by, tests_of};
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

/// What is said, what shows it, and the row.
fn statements(heading: &str) -> Vec<(String, Vec<String>, String)> {
    let text = read("CONTRIBUTING.md");
    let of = |row: &str| (plain(row.split('|').next().unwrap()), shown_by(row), row.to_owned());
    rows(section(&text, heading)).map(of).collect()
}

/// Names of no test, row, file or goal of the Makefile.
fn unknown(shown: &[String]) -> Vec<&String> {
    let tests: BTreeSet<String> = ["behaviour", "data", "statistic"].into_iter().flat_map(tests_of).collect();
    let (makefile, rows) = (read("Makefile"), surface::rows());
    let exists = |name: &str| match name.strip_prefix("make ") {
        Some(goal) => makefile.contains(&format!("\n{goal}: ")),
        None => tests.contains(name) || rows.contains(name) || root().join(name).is_file(),
    };
    shown.iter().filter(|name| !exists(name)).collect()
}

#[test]
fn each_claim_is_in_the_readme_and_has_a_test_or_a_bench() {
    let readme = plain(&read("README.md"));
    for (claim, shown, _) in statements("### Claims") {
        assert!(readme.contains(&claim), "README.md does not say: {claim}");
        assert!(!shown.is_empty(), "nothing shows: {claim}");
        assert_eq!(unknown(&shown), [""; 0], "names that do not exist: {claim}");
    }
}

#[test]
fn each_limit_has_a_test_or_says_that_none_shows_it() {
    let text = read("docs/limits.md");
    let (all, limits) = (plain(&text), statements("### Limits"));
    for (limit, shown, row) in &limits {
        assert!(all.contains(limit), "docs/limits.md does not say: {limit}");
        assert!(!shown.is_empty() || row.contains("none"), "nothing shows: {limit}");
        assert_eq!(unknown(shown), [""; 0], "names that do not exist: {limit}");
    }
    let (_, body) = text.split_once("\n## ").unwrap();
    let entry = |part: &str| plain(part.split("\n\n").next().unwrap());
    let entries: Vec<String> = body.split("\n- ").skip(1).map(entry).collect();
    assert!(entries.len() > 40, "{entries:?}");
    for entry in entries {
        assert!(limits.iter().any(|(limit, ..)| entry.contains(limit)), "no row of CONTRIBUTING.md has: {entry}");
    }
}

#[test]
fn each_section_of_the_readme_has_claims() {
    let (text, claims) = (read("README.md"), statements("### Claims"));
    let (first, _) = text.split_once("\n## ").unwrap();
    let sections = text.split("\n## ").skip(1).chain([first]);
    for part in sections.map(plain) {
        assert!(claims.iter().any(|(claim, ..)| part.contains(claim)), "no claim of: {}", &part[..60]);
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
        assert_eq!(numbers(&row[1..]), numbers(&program[1..5]), "{}", row[0]);
    }
}
