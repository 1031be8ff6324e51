//! Results of simulations: one table of columns for the terminal, CSV, JSON and Parquet.

use super::curve::Found;
use crate::report::words::duration;
use crate::size_parsing::human;
use memfit_export::Type;
use memfit_report::{Cell, Unit};
use memfit_sim::Outcome;
use serde_json::{json, Map};
use std::fmt::Write as _;
use std::io::{self, Write};

/// A workload under a scheme in a budget.
#[derive(Clone)]
pub struct Row {
    /// Its name on the command line.
    pub workload: String,
    /// Name of the scheme.
    pub scheme: String,
    /// The settings of the scheme that were changed.
    pub set: String,
    /// Budget, bytes.
    pub budget: u64,
    /// What the workload needs, bytes; 0: not determined.
    pub footprint: u64,
    /// Result of the simulation.
    pub outcome: Outcome,
    /// A yardstick, which only counts touches and faults: most columns are unknown.
    pub counted: bool,
}

impl Row {
    /// The scheme, with its changed settings.
    pub fn label(&self) -> String {
        label(&self.scheme, &self.set)
    }
}

/// A scheme, with its changed settings.
pub fn label(scheme: &str, set: &str) -> String {
    match set.is_empty() {
        true => scheme.to_owned(),
        false => format!("{scheme} {set}"),
    }
}

/// Columns that are known for a yardstick.
const COUNTED: [&str; 8] =
    ["workload", "scheme", "set", "budget_bytes", "footprint_bytes", "touches", "faults", "faults_zero"];

/// A cell.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Text(String),
    Count(u64),
    Bytes(u64),
    Ns(u64),
    Number(Option<f64>),
    Whole(Option<u64>),
    Unknown,
}

struct Column {
    /// Name in CSV and JSON, with the unit.
    key: &'static str,
    /// Name on the terminal; empty: not shown there.
    short: &'static str,
    get: fn(&Row) -> Value,
}

const fn column(key: &'static str, short: &'static str, get: fn(&Row) -> Value) -> Column {
    Column { key, short, get }
}

impl Column {
    fn value(&self, row: &Row) -> Value {
        match row.counted && !COUNTED.contains(&self.key) {
            true => Value::Unknown,
            false => (self.get)(row),
        }
    }

    /// A value of the column's type.
    fn example(&self) -> Value {
        let (empty, outcome) = (String::new, Outcome::default());
        let (workload, scheme, set) = (empty(), empty(), empty());
        (self.get)(&Row { workload, scheme, set, budget: 0, footprint: 0, outcome, counted: false })
    }
}

static COLUMNS: &[Column] = &[
    column("workload", "workload", |row| Value::Text(row.workload.clone())),
    column("scheme", "scheme", |row| Value::Text(row.scheme.clone())),
    column("set", "set", |row| Value::Text(row.set.clone())),
    column("budget_bytes", "budget", |row| Value::Bytes(row.budget)),
    column("footprint_bytes", "", |row| Value::Bytes(row.footprint)),
    column("program_ns", "time", |row| Value::Ns(row.outcome.times.program)),
    column("slowdown", "slowdown", |row| Value::Number(row.outcome.slowdown())),
    column("computes_ns", "", |row| Value::Ns(row.outcome.times.computes)),
    column("fault_wait_ns", "", |row| Value::Ns(row.outcome.times.faults)),
    column("read_wait_ns", "", |row| Value::Ns(row.outcome.times.reads)),
    column("reclaim_wait_ns", "", |row| Value::Ns(row.outcome.times.waits)),
    column("reclaim_ns", "", |row| Value::Ns(row.outcome.times.reclaim)),
    column("device_write_ns", "", |row| Value::Ns(row.outcome.times.writes)),
    column("operations_ns", "", |row| Value::Ns(row.outcome.operations_ns)),
    column("touches", "", |row| Value::Count(row.outcome.tally.touches)),
    column("faults", "faults", |row| Value::Count(row.outcome.tally.faults.major())),
    column("faults_zero", "", |row| Value::Count(row.outcome.tally.faults.zero)),
    column("faults_staged", "", |row| Value::Count(row.outcome.tally.faults.staged)),
    column("faults_filled", "", |row| Value::Count(row.outcome.tally.faults.filled)),
    column("faults_pool", "pool", |row| Value::Count(row.outcome.tally.faults.pool)),
    column("faults_swap", "swap", |row| Value::Count(row.outcome.tally.faults.swap)),
    column("faults_file", "file", |row| Value::Count(row.outcome.tally.faults.file)),
    column("around_pages", "around", |row| Value::Count(row.outcome.tally.around.evicted())),
    column("zero_run_pages", "", |row| Value::Count(row.outcome.tally.around.zero)),
    column("evicted_pages", "", |row| Value::Count(row.outcome.tally.evicted)),
    column("compressions", "coded", |row| Value::Count(row.outcome.tally.compressions.iter().sum())),
    column("compressed_ratio", "ratio", |row| Value::Number(row.outcome.ratio())),
    column("entropy_estimates", "", |row| Value::Count(row.outcome.tally.estimates)),
    column("reads", "", |row| Value::Count(row.outcome.tally.reads.operations)),
    column("read_bytes", "read", |row| Value::Bytes(row.outcome.tally.reads.bytes)),
    column("writes", "", |row| Value::Count(row.outcome.tally.writes.operations)),
    column("write_bytes", "written", |row| Value::Bytes(row.outcome.tally.writes.bytes)),
    column("object_bytes", "", |row| Value::Bytes(row.outcome.tally.object_bytes)),
    column("file_read_bytes", "", |row| Value::Bytes(row.outcome.tally.file_reads.bytes)),
    column("peak_bytes", "peak", |row| Value::Bytes(row.outcome.tally.peak_bytes)),
    column("over_budget", "", |row| Value::Count(row.outcome.tally.over_budget)),
    column("pool_zpages", "", |row| Value::Count(row.outcome.pool.0)),
    column("pool_frames", "", |row| Value::Count(row.outcome.pool.1)),
    column("energy_nj", "", |row| Value::Whole(row.outcome.energy_nj)),
    column("days_to_rated_writes", "", |row| Value::Number(row.outcome.days_to_rated_writes)),
];

fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Count(count) | Value::Whole(Some(count)) => count.to_string(),
        Value::Bytes(bytes) => human(*bytes),
        Value::Ns(ns) => duration(*ns).replace('\u{a0}', " "),
        Value::Number(Some(number)) => format!("{number:.3}"),
        Value::Number(None) | Value::Whole(None) | Value::Unknown => "-".into(),
    }
}

/// The columns for people: those that are not empty or zero in every row, and the faults, of which
/// none is a result, too.
fn columns(rows: &[Row]) -> Vec<&'static Column> {
    let empty = |value: &Value| {
        matches!(value, Value::Count(0) | Value::Bytes(0) | Value::Unknown) || *value == Value::Text("".into())
    };
    let shown = COLUMNS.iter().filter(|column| !column.short.is_empty());
    shown.filter(|column| column.key == "faults" || rows.iter().any(|row| !empty(&column.value(row)))).collect()
}

/// The table for a terminal.
pub fn text(rows: &[Row]) -> String {
    let columns = columns(rows);
    let cells: Vec<Vec<String>> = std::iter::once(columns.iter().map(|column| column.short.to_owned()).collect())
        .chain(rows.iter().map(|row| columns.iter().map(|column| shown(&column.value(row))).collect()))
        .collect();
    let width = |i: usize| cells.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let left: Vec<bool> =
        columns.iter().map(|c| rows.iter().all(|row| matches!(c.value(row), Value::Text(_)))).collect();
    let mut out = String::new();
    for row in cells {
        let mut line = String::new();
        for ((cell, &width), &left) in row.iter().zip(&widths).zip(&left) {
            let _ = match left {
                true => write!(line, "{cell:width$}  "),
                false => write!(line, "{cell:>width$}  "),
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// The same columns for an HTML page.
pub fn for_page(rows: &[Row]) -> (Vec<memfit_report::Column>, Vec<Vec<Cell>>) {
    let unit = |column: &Column| match column.example() {
        Value::Bytes(_) => Unit::Bytes,
        Value::Ns(_) => Unit::Nanoseconds,
        Value::Number(_) => Unit::Ratio,
        _ => Unit::Count,
    };
    let shown = columns(rows);
    let cell = |value| match value {
        Value::Text(text) => Cell::Text(text),
        Value::Count(n) | Value::Bytes(n) | Value::Ns(n) => Cell::Number(n as f64),
        Value::Whole(n) => n.map(|n| n as f64).into(),
        Value::Number(number) => number.into(),
        Value::Unknown => Cell::Missing,
    };
    let cells = rows.iter().map(|row| shown.iter().map(|column| cell(column.value(row))).collect()).collect();
    (shown.iter().map(|column| memfit_report::Column::new(column.short, unit(column))).collect(), cells)
}

/// A head, then one line per row.
pub fn csv(rows: &[Row]) -> String {
    let quoted = |text: &str| match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    let mut out = COLUMNS.iter().map(|column| column.key).collect::<Vec<_>>().join(",");
    out.push('\n');
    for row in rows {
        let cells = COLUMNS.iter().map(|column| match column.value(row) {
            Value::Text(text) => quoted(&text),
            Value::Count(n) | Value::Bytes(n) | Value::Ns(n) | Value::Whole(Some(n)) => n.to_string(),
            Value::Number(Some(number)) => number.to_string(),
            Value::Number(None) | Value::Whole(None) | Value::Unknown => String::new(),
        });
        out.push_str(&cells.collect::<Vec<_>>().join(","));
        out.push('\n');
    }
    out
}

/// The table as Apache Parquet. `about`: facts about the simulations, stored with it.
pub fn parquet(rows: &[Row], out: impl Write + Send, about: &[(String, String)]) -> io::Result<()> {
    use memfit_export::{Column, Parquet, Value as Cell};
    let columns: Vec<Column> = COLUMNS
        .iter()
        .map(|column| Column {
            name: column.key,
            of: match column.example() {
                Value::Text(_) => Type::Text,
                Value::Number(_) => Type::Fraction,
                Value::Count(_) | Value::Bytes(_) | Value::Ns(_) | Value::Whole(_) | Value::Unknown => Type::Number,
            },
            always: COUNTED.contains(&column.key),
        })
        .collect();
    let about: Map<_, _> = about.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    let mut table = Parquet::new(out, "result", &columns, serde_json::Value::Object(about).to_string())?;
    for row in rows {
        let values: Vec<Value> = COLUMNS.iter().map(|column| column.value(row)).collect();
        table.row(values.iter().map(|value| match value {
            Value::Text(text) => Cell::Text(text),
            Value::Count(n) | Value::Bytes(n) | Value::Ns(n) | Value::Whole(Some(n)) => Cell::Number(*n),
            Value::Number(Some(number)) => Cell::Fraction(*number),
            Value::Number(None) | Value::Whole(None) | Value::Unknown => Cell::Nothing,
        }))?;
    }
    table.finish()
}

/// An object with the array `rows`, one object per row, and with `smallest`, the answers for the
/// curves, if there are curves.
pub fn json(rows: &[Row], found: Option<&[Found]>) -> String {
    let object = |row: &Row| {
        let fields = COLUMNS.iter().map(|column| {
            let value = match column.value(row) {
                Value::Text(text) => json!(text),
                Value::Count(n) | Value::Bytes(n) | Value::Ns(n) => json!(n),
                Value::Whole(n) => json!(n),
                Value::Number(number) => json!(number),
                Value::Unknown => json!(null),
            };
            (column.key.to_owned(), value)
        });
        serde_json::Value::Object(fields.collect::<Map<_, _>>())
    };
    let all: Vec<_> = rows.iter().map(object).collect();
    let mut value = json!({ "schema": 1, "rows": all });
    if let Some(found) = found {
        let answer = |found: &Found| {
            let Found { workload, scheme, set, budget, fails } = found;
            json!({ "workload": workload, "scheme": scheme, "set": set, "budget_bytes": budget, "fails_bytes": fails })
        };
        value["smallest"] = found.iter().map(answer).collect();
    }
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_filled_ahead_did_not_come_back() {
        let mut outcome = Outcome::default();
        (outcome.tally.around.zero, outcome.tally.around.staged, outcome.tally.around.pool) = (100, 1, 20);
        let (workload, scheme) = ("scan".to_owned(), "memfit".to_owned());
        let row = Row { workload, scheme, set: String::new(), budget: 1, footprint: 1, outcome, counted: false };
        let value: serde_json::Value = serde_json::from_str(&json(&[row], None)).unwrap();
        assert_eq!((&value["rows"][0]["around_pages"], &value["rows"][0]["zero_run_pages"]), (&json!(21), &json!(100)));
    }

    #[test]
    fn what_a_yardstick_does_not_know_is_empty() {
        let mut outcome = Outcome::default();
        outcome.tally.touches = 30;
        (outcome.tally.faults.zero, outcome.tally.faults.swap) = (10, 7);
        let (workload, scheme) = ("scan".to_owned(), "lru".to_owned());
        let row = Row { workload, scheme, set: String::new(), budget: 8192, footprint: 40960, outcome, counted: true };
        let text = csv(std::slice::from_ref(&row));
        let (keys, cells) = text.trim_end().split_once('\n').unwrap();
        let known: Vec<_> = keys.split(',').zip(cells.split(',')).filter(|(_, cell)| !cell.is_empty()).collect();
        let counts = [("budget_bytes", "8192"), ("footprint_bytes", "40960"), ("touches", "30"), ("faults", "7")];
        assert_eq!(known[..2], [("workload", "scan"), ("scheme", "lru")]);
        assert_eq!(known[2..6], counts);
        assert_eq!(known[6..], [("faults_zero", "10")]);
        let value: serde_json::Value = serde_json::from_str(&json(std::slice::from_ref(&row), None)).unwrap();
        assert!(value["rows"][0]["program_ns"].is_null() && value["rows"][0]["faults"] == 7);
        // On the terminal a column that is empty in all rows is left out, but for that of the
        // faults: none is a result.
        assert_eq!(super::text(std::slice::from_ref(&row)).lines().next().unwrap(), "workload  scheme  budget  faults");
        let none = Row { outcome: Outcome::default(), ..row };
        assert_eq!(super::text(&[none]).lines().next().unwrap(), "workload  scheme  budget  faults");
    }
}
