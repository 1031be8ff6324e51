//! The results as JSON, and whether other results are the same.
//!
//! A line has one number or one statement, so that two files can be compared line by line.

use crate::page::of_recordings;
use crate::statement::Numbers;
use crate::{Paper, Plan, Result};
use serde_json::{json, Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Of the form of the file.
const SCHEMA: u64 = 1;
/// What recordings give: it depends on the machine that made them.
const RECORDED: &str = "recorded";

/// All numbers and statements; the same for the same results. Of a number the values of all seeds,
/// or one if they are equal.
pub fn json(results: &[Result<'_>], plan: &Plan) -> String {
    text(&value(results, plan))
}

/// As [`json()`]; papers that are not among the results are those of the saved text.
///
/// # Errors
/// The saved text is not what [`json()`] makes, or is of other seeds or sizes.
pub fn merged(saved: &str, results: &[Result<'_>], plan: &Plan) -> std::result::Result<String, String> {
    let (saved, mut here) = (parsed(saved)?, value(results, plan));
    same_plan(&saved, &here)?;
    let papers = here["papers"].as_object_mut().expect("papers");
    for (name, paper) in saved["papers"].as_object().into_iter().flatten() {
        papers.entry(name).or_insert_with(|| paper.clone());
    }
    Ok(text(&here))
}

fn parsed(text: &str) -> std::result::Result<Value, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn same_plan(saved: &Value, here: &Value) -> std::result::Result<(), String> {
    for (name, value) in here.as_object().into_iter().flatten().filter(|(name, _)| *name != "papers") {
        if saved[name] != *value {
            return Err(format!("it is of {name} {}, and this run of {value}", saved[name]));
        }
    }
    Ok(())
}

fn value(results: &[Result<'_>], plan: &Plan) -> Value {
    let papers: Map<String, Value> =
        results.iter().map(|result| (result.paper.name.to_owned(), paper(result))).collect();
    json!({
        "schema": SCHEMA,
        "first_seed": plan.seed,
        "seeds": results.iter().map(|result| result.seeds.len()).max().unwrap_or(0),
        "scale": plan.scale,
        "quick": plan.quick,
        "papers": papers,
    })
}

fn paper(result: &Result<'_>) -> Value {
    of_numbers(result.paper, &result.seeds, &result.recorded, !result.recordings.is_empty())
}

/// What numbers say about a paper: those of each seed, and those of recordings, if there are any.
fn of_numbers(paper: &Paper, seeds: &[Numbers], recorded: &Numbers, any: bool) -> Value {
    let statements = paper.statements.iter().map(|s| {
        json!({
            "source": s.source,
            "what": s.what,
            "published": s.published,
            "here": s.told(seeds),
            RECORDED: s.told_recorded(recorded),
            "verdict": s.verdict(seeds).name(),
            "why": s.reason(seeds),
        })
    });
    json!({
        "title": paper.title,
        "setting": paper.setting,
        "differs": paper.differs,
        "statements": statements.collect::<Vec<_>>(),
        "numbers": of_all_seeds(seeds),
        RECORDED: {
            "notes": of_recordings(paper, any),
            "numbers": of_all_seeds(std::slice::from_ref(recorded)),
        },
    })
}

/// With a line for each value that holds no others, and for each statement.
fn text(value: &Value) -> String {
    let mut out = String::new();
    write_lines(value, &mut out);
    out.push('\n');
    out
}

fn write_lines(value: &Value, out: &mut String) {
    let is_statement = |one: &Value| one.get("verdict").is_some();
    let between = |i: usize| if i == 0 { "\n" } else { ",\n" };
    match value {
        Value::Object(all) if !is_statement(value) => {
            out.push('{');
            for (i, (name, value)) in all.iter().enumerate() {
                let _ = write!(out, "{}{}: ", between(i), json!(name));
                write_lines(value, out);
            }
            out.push_str("\n}");
        }
        Value::Array(all) if all.iter().any(is_statement) => {
            out.push('[');
            for (i, one) in all.iter().enumerate() {
                let _ = write!(out, "{}{one}", between(i));
            }
            out.push_str("\n]");
        }
        _ => {
            let _ = write!(out, "{value}");
        }
    }
}

/// By name the values of all seeds that have it, or one if they are equal.
fn of_all_seeds(seeds: &[Numbers]) -> BTreeMap<&str, Value> {
    let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, value) in seeds.iter().flat_map(Numbers::iter) {
        all.entry(name).or_default().push(value);
    }
    let short = |values: Vec<f64>| match values.len() == seeds.len() && values.iter().all(|value| *value == values[0]) {
        true => json!(values[0]),
        false => json!(values),
    };
    all.into_iter().map(|(name, values)| (name, short(values))).collect()
}

/// Where saved results of [`json()`] differ from these, a line each. Of papers that are not among
/// these nothing is compared, nor what recordings gave.
///
/// # Errors
/// The text is not what [`json()`] makes, or is of other seeds or sizes.
pub fn differences(saved: &str, results: &[Result<'_>], plan: &Plan) -> std::result::Result<Vec<String>, String> {
    let (saved, here) = (parsed(saved)?, value(results, plan));
    same_plan(&saved, &here)?;
    let mut out = Vec::new();
    for (paper, here) in here["papers"].as_object().into_iter().flatten() {
        compare(paper, &saved["papers"][paper], here, &mut out);
    }
    Ok(out)
}

fn compare(place: &str, saved: &Value, here: &Value, out: &mut Vec<String>) {
    match (saved, here) {
        (Value::Object(saved), Value::Object(here)) => {
            let names: std::collections::BTreeSet<&String> = saved.keys().chain(here.keys()).collect();
            for name in names.into_iter().filter(|name| *name != RECORDED) {
                let of = |all: &Map<String, Value>| all.get(name).cloned().unwrap_or(Value::Null);
                compare(&format!("{place}, {name}"), &of(saved), &of(here), out);
            }
        }
        (Value::Array(saved), Value::Array(here)) if saved.len() == here.len() && !place.contains(", numbers, ") => {
            for (i, (saved, here)) in saved.iter().zip(here).enumerate() {
                compare(&format!("{place}, {}", i + 1), saved, here, out);
            }
        }
        _ if saved != here => out.push(format!("{place}: {saved}, now {here}")),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAPERS;

    const SAVED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/papers/simulated.json");

    /// The numbers by seed. Which seeds lack a number is not saved: all must have it.
    fn by_seed(saved: &Value, seeds: usize) -> Vec<Numbers> {
        let mut all = vec![Numbers::new(); seeds];
        for (name, value) in saved.as_object().unwrap() {
            let values = value.as_array().cloned().unwrap_or_else(|| vec![value.clone(); seeds]);
            assert_eq!(values.len(), seeds, "{name}: some seeds lack it");
            all.iter_mut().zip(values).for_each(|(numbers, value)| numbers.set(name.as_str(), value.as_f64()));
        }
        all
    }

    /// A change of a text or of a judgement needs no simulation. `MEMFIT_BLESS=1` writes the
    /// statements of the saved results anew.
    #[test]
    fn saved_statements_follow_from_the_saved_numbers() {
        let saved = std::fs::read_to_string(SAVED).unwrap();
        let mut again = parsed(&saved).unwrap();
        let seeds = again["seeds"].as_u64().unwrap() as usize;
        for paper in PAPERS {
            let part = &mut again["papers"][paper.name];
            let recorded = by_seed(&part[RECORDED]["numbers"], 1).remove(0);
            let any = !recorded.is_empty();
            let recorded = recorded.without(paper.recorded.without);
            *part = of_numbers(paper, &by_seed(&part["numbers"], seeds), &recorded, any);
        }
        let again = text(&again);
        if std::env::var_os("MEMFIT_BLESS").is_some() {
            std::fs::write(SAVED, again).unwrap();
            return;
        }
        for (saved, again) in saved.lines().zip(again.lines()) {
            assert_eq!(
                saved, again,
                "MEMFIT_BLESS=1 cargo test -p memfit-papers --lib, then lab/bench/papers.py pages"
            );
        }
        assert_eq!(saved.len(), again.len());
    }

    #[test]
    fn equal_values_are_one() {
        let of = |a, b| Numbers::of([("a", a), ("b", b)]);
        let mut seeds = [of(1.0, 2.0), of(1.0, 3.0)];
        seeds[1].set("some", 4.0);
        let all = json!({ "numbers": of_all_seeds(&seeds) });
        assert_eq!(text(&all), "{\n\"numbers\": {\n\"a\": 1.0,\n\"b\": [2.0,3.0],\n\"some\": [4.0]\n}\n}\n");
    }

    #[test]
    fn what_differs_is_named() {
        let (saved, here) =
            (json!({"n": {"a": 1, "b": [1, 2]}, RECORDED: 1}), json!({"n": {"a": 2, "b": [1, 3]}, RECORDED: 2}));
        let mut out = Vec::new();
        compare("p", &saved, &here, &mut out);
        assert_eq!(out, ["p, n, a: 1, now 2", "p, n, b, 2: 2, now 3"]);
    }
}
