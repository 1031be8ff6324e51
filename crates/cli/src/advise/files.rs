//! Advice for programs to read: the command line, a scheme as TOML, JSON.

use super::choice::in_swap;
use super::subject::Basis;
use super::words::text;
use super::{Advice, Options};
use serde_json::{json, Value};
use std::sync::Arc;

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Bytes as options take them: whole MiB.
fn size(bytes: u64) -> String {
    format!("{}M", bytes.div_ceil(1 << 20))
}

/// The recorded commands, each once.
pub fn stands_for(advice: &Advice) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for need in advice.needs.iter().filter(|need| need.subject.command().is_some()) {
        if !all.contains(&need.subject.what()) {
            all.push(need.subject.what());
        }
    }
    all
}

/// The command line to run.
pub fn command_line(advice: &Advice, options: &Options<'_>) -> String {
    let mut words = vec!["memfit run".to_owned(), format!("-m {}", size(advice.budget))];
    // A file can have the name of a preset in it.
    let given = options.schemes.iter().position(|scheme| Arc::ptr_eq(scheme, &advice.scheme));
    let name = given.map_or(&advice.scheme.name, |at| &options.names[at]);
    match options.toml {
        Some(path) => words.push(format!("-s {}", quoted(&as_file(path)))),
        None if name == "memfit" => {}
        None => words.push(format!("-s {}", quoted(name))),
    }
    if let Some(bytes) = advice.swap_size() {
        words.push(format!("--swap-size {}", size(bytes)));
    }
    words.push("--".into());
    match advice.worst().subject.command() {
        Some(command) => words.extend(command.iter().map(|word| quoted(word))),
        None => words.push("COMMAND".into()),
    }
    words.join(" ").replace(memfit_wire::is_unprintable, " ")
}

/// A name that is not a preset must look like a file.
fn as_file(path: &std::path::Path) -> String {
    let text = path.to_string_lossy().into_owned();
    match text.contains('/') || text.ends_with(".toml") {
        true => text,
        false => format!("./{text}"),
    }
}

/// The scheme, with the advice in its comments. Advice that is no part of a scheme stands there as
/// a command line.
pub fn toml(advice: &Advice, options: &Options<'_>) -> String {
    let mut out = String::new();
    for line in format!("memfit advise {}\n\n{}", env!("CARGO_PKG_VERSION"), text(advice, options)).lines() {
        out.push_str(format!("# {line}").trim_end());
        out.push('\n');
    }
    out.push('\n');
    out.push_str(&memfit_scheme::to_toml(&advice.scheme));
    out
}

/// The whole advice as JSON.
pub fn json(advice: &Advice, options: &Options<'_>) -> String {
    let basis = |basis: &Basis| match *basis {
        Basis::Made => json!({ "kind": "made" }),
        Basis::Accesses { part, pages, period_ms } => {
            json!({ "kind": "accesses", "sampled": part, "sampled_pages": pages, "period_ms": period_ms })
        }
        Basis::Faults { budget } => json!({ "kind": "faults", "budget_bytes": budget }),
    };
    let needs = advice.needs.iter().map(|need| {
        let subject = &need.subject;
        let schemes = need
            .found
            .iter()
            .map(|found| json!({ "scheme": found.scheme, "budget_bytes": found.budget, "fails_bytes": found.fails }));
        json!({
            "workload": subject.known.name,
            "command": subject.command(),
            "basis": basis(&subject.basis),
            "budget_bytes": need.budget,
            "footprint_bytes": subject.footprint(),
            "besides_bytes": need.besides(),
            "working_set_bytes": subject.working_set(),
            "working_set_at_most_bytes": subject.working_set_at_most(),
            "working_set_ns": subject.window_ns(),
            "touches_again": subject.working_set.again,
            "in_sequence": subject.working_set.in_sequence,
            "smallest": schemes.collect::<Vec<Value>>(),
            "pool_bytes": need.outcome.tally.peak_pool_bytes,
            "swap_bytes": in_swap(&need.outcome),
        })
    });
    let costs = advice.costs.iter().map(|cost| {
        let (outcome, tally) = (&cost.outcome, &cost.outcome.tally);
        json!({
            "percent": cost.percent,
            "budget_bytes": cost.budget,
            "slowdown": outcome.slowdown(),
            "faults": tally.faults.major(),
            "faults_swap": tally.faults.swap,
            "evicted_pages": tally.evicted,
            "write_bytes": tally.writes.bytes,
            "read_bytes": tally.reads.bytes,
            "days_to_rated_writes": outcome.days_to_rated_writes,
        })
    });
    let contents = &advice.contents;
    let value = json!({
        "schema": 1,
        "command_line": command_line(advice, options),
        "scheme": advice.scheme.name,
        "budget_bytes": advice.budget,
        "all_bytes": advice.all(),
        "slowdown_percent": advice.slowdown,
        "swap_size_bytes": advice.swap_size(),
        "swap_bytes": advice.swap,
        "pool_bytes": advice.pool,
        "slowdown_without_swap": advice.without_swap,
        "contents": {
            "known": contents.known, "ratio": contents.ratio, "one_word": contents.one_word, "raw": contents.raw,
        },
        "device": advice.device.name,
        "costs": costs.collect::<Vec<Value>>(),
        "workloads": needs.collect::<Vec<Value>>(),
    });
    format!("{value:#}\n")
}
