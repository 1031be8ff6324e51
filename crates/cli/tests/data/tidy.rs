//! Rules for every file: short lines, short files, and the agreed terms.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const MARKDOWN_COLUMNS: usize = 120;
const COMMENT_COLUMNS: usize = 100;
/// Most lines of a Rust file without the tests at its end. Files of tests may be longer.
const FILE_LINES: usize = 800;
/// Parts of names for which the project has another term; docs/terms.md has the list.
const OTHER_WORDS: [&str; 22] = [
    "brake",
    "chooser",
    "doubt",
    "doubtful",
    "doubts",
    "engage",
    "engaged",
    "engages",
    "folds",
    "habits",
    "hurried",
    "hurry",
    "impolite",
    "kit",
    "looker",
    "outsider",
    "outsiders",
    "settle",
    "shield",
    "shields",
    "stranger",
    "witness",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files of the repository with these endings, and their text.
fn files(endings: &[&str]) -> Vec<(String, String)> {
    let listed = Command::new("git").arg("-C").arg(root()).args(["ls-files", "-z"]).output().expect("git");
    assert!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).unwrap();
    let of_these = |name: &&str| endings.iter().any(|ending| name.ends_with(ending)) && root().join(name).exists();
    let read = |name: &str| (name.to_owned(), fs::read_to_string(root().join(name)).unwrap());
    let found: Vec<_> = names.split('\0').filter(of_these).map(read).collect();
    assert!(found.len() > 10, "{found:?}");
    found
}

#[track_caller]
fn none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

/// Tables, code, and what programs write (docs/papers, blocks between "begin" and "end") may be
/// wider.
#[test]
fn lines_of_markdown() {
    let mut wide = Vec::new();
    for (name, text) in files(&[".md"]) {
        let mut free = name.starts_with("docs/papers/");
        for (number, line) in text.lines().enumerate() {
            let start = line.trim_start();
            if start.starts_with("```") {
                free = !free;
            } else if start.starts_with("<!--") && start.contains(": begin") {
                free = true;
            } else if start.starts_with("<!--") && start.contains(": end") {
                free = false;
            } else if !free && !start.starts_with('|') && line.chars().count() > MARKDOWN_COLUMNS {
                wide.push(format!("{name}:{}", number + 1));
            }
        }
    }
    none("lines of Markdown over 120 columns", &wide);
}

#[test]
fn lines_of_comments() {
    let mut wide = Vec::new();
    for (name, text) in files(&[".rs"]) {
        let mut code = false;
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start().strip_prefix("//").map(|text| text.trim_start_matches(['/', '!', ' ']));
            code ^= comment.is_some_and(|text| text.starts_with("```"));
            let table = |text: &str| text.starts_with('|');
            if !code && comment.is_some_and(|text| !table(text)) && line.chars().count() > COMMENT_COLUMNS {
                wide.push(format!("{name}:{}", number + 1));
            }
        }
    }
    none("comments over 100 columns", &wide);
}

#[test]
fn lengths_of_files() {
    let tests = |name: &str| name.contains("tests") || name.ends_with("core/src/chaos.rs");
    let long = |(name, text): (String, String)| {
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap().lines().count();
        (code > FILE_LINES && !tests(&name)).then(|| format!("{name}: {code} lines"))
    };
    none("files over 800 lines", &files(&[".rs"]).into_iter().filter_map(long).collect::<Vec<_>>());
}

#[test]
fn words() {
    let mut found = Vec::new();
    for (name, text) in files(&[".rs", ".c", ".h"]) {
        if name.ends_with("tidy.rs") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap();
            let words = parts(code).filter(|part| OTHER_WORDS.contains(&part.as_str()));
            found.extend(words.map(|word| format!("{name}:{}: {word}", number + 1)));
        }
    }
    none("words for which there is another", &found);
}

/// The parts of the identifiers in a line: `take_kit` and `TakeKit` have two.
fn parts(line: &str) -> impl Iterator<Item = String> + '_ {
    let identifiers = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.len() > 2);
    identifiers.flat_map(|word| {
        let mut parts = vec![String::new()];
        for c in word.chars() {
            let small = parts.last().and_then(|part: &String| part.chars().last()).is_some_and(|c| c.is_lowercase());
            if c == '_' || (c.is_uppercase() && small) {
                parts.push(String::new());
            }
            if c != '_' {
                parts.last_mut().unwrap().push(c);
            }
        }
        parts.into_iter().map(|part| part.to_ascii_lowercase())
    })
}
