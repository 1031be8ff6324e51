//! `memfit stat`: the running trees of this user, once.

use crate::args::StatArgs;
use crate::errors::{describe, Failure};
use crate::size_parsing::human;
use crate::trees::{self, Question};
use memfit_os::proctree;
use serde_json::Value;
use std::collections::HashSet;
use std::fmt::Write;

/// Prints all trees; returns 0 even when there is none.
///
/// # Errors
/// When trees cannot be listed or nothing can be printed. A tree that does not answer is reported
/// on standard error and gives exit status 1.
pub fn run(args: &StatArgs) -> Result<i32, Failure> {
    let mut answers = Vec::new();
    let mut code = 0;
    for tree in trees::running()? {
        match tree.ask_and_wait(Question::All) {
            Ok(Some(answer)) => answers.push((tree.pid().to_owned(), answer)),
            Ok(None) => {}
            Err(error) => {
                eprintln!("memfit: the pager of {} does not answer: {}", tree.pid(), describe(&error));
                code = 1;
            }
        }
    }
    let text = match args {
        StatArgs { json: true, .. } => json(&answers),
        StatArgs { processes: true, .. } => {
            answers.iter().map(|tree| table(std::slice::from_ref(tree)) + &processes(&tree.1)).collect()
        }
        _ => table(&answers),
    };
    if answers.is_empty() && !args.json {
        eprintln!("memfit: no tree of yours is running");
    }
    crate::print(&text)?;
    Ok(code)
}

fn json(trees: &[(String, Value)]) -> String {
    let values: Vec<&Value> = trees.iter().map(|(_, value)| value).collect();
    format!("{:#}\n", serde_json::json!(values))
}

fn table(trees: &[(String, Value)]) -> String {
    if trees.is_empty() {
        return String::new();
    }
    let mut rows =
        vec![["PID", "BUDGET", "USED", "RESIDENT", "STAGED", "POOL", "SWAP", "RATIO", "PROCS"].map(String::from)];
    rows.extend(trees.iter().map(|(pid, value)| row(pid, value)));
    let commands = std::iter::once("COMMAND".to_owned()).chain(trees.iter().map(|(_, value)| command(value)));
    aligned(&rows, commands)
}

/// Rows of right-aligned numbers, each with a text behind them.
fn aligned<const N: usize>(rows: &[[String; N]], texts: impl Iterator<Item = String>) -> String {
    let widths: Vec<usize> = (0..N).map(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
    let mut out = String::new();
    for (row, text) in rows.iter().zip(texts) {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(out, "{cell:>width$}  ");
        }
        let _ = writeln!(out, "{text}");
    }
    out
}

/// The running processes of a tree, the largest first.
fn processes(value: &Value) -> String {
    let number = |process: &Value, key: &str| process.get(key).and_then(Value::as_u64).unwrap_or(0);
    let list = value.get("processes").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut running: Vec<&Value> = list.iter().filter(|p| p["running"] == true).collect();
    running.sort_by_key(|p| std::cmp::Reverse(number(p, "resident_bytes")));
    let mut rows = vec![["  PID", "RESIDENT", "PEAK", "FAULTS", "EVICTED"].map(String::from)];
    rows.extend(running.iter().map(|p| {
        let faults = if p["paged"] == true { number(p, "faults").to_string() } else { "-".into() };
        let (resident, peak) = (human(number(p, "resident_bytes")), human(number(p, "peak_total_bytes")));
        [number(p, "pid").to_string(), resident, peak, faults, human(number(p, "evicted_pages") * 4096)]
    }));
    let names = running.iter().map(|p| p["comm"].as_str().unwrap_or("").replace(char::is_control, " "));
    aligned(&rows, std::iter::once("PROCESS".to_owned()).chain(names))
}

fn row(pid: &str, value: &Value) -> [String; 9] {
    let size = |pointer: &str| value.pointer(pointer).and_then(Value::as_u64).map_or_else(|| "-".into(), human);
    let left_out = value.get("processes_left_out").and_then(Value::as_u64).unwrap_or(0);
    let processes = match value.get("processes") {
        Some(Value::Array(list)) => (living(list) + left_out as usize).to_string(),
        _ => "-".into(),
    };
    [
        pid.to_owned(),
        size("/budget_bytes"),
        size("/now/total_bytes"),
        size("/now/resident_bytes"),
        size("/now/staged_bytes"),
        size("/now/pool_bytes"),
        size("/now/swap_bytes"),
        ratio(value),
        processes,
    ]
}

/// How many processes of the list still run: those that ended are listed too, and a pid that was
/// used again twice.
fn living(list: &[Value]) -> usize {
    let pid = |process: &Value| i32::try_from(process.get("pid")?.as_i64()?).ok();
    let pids: HashSet<i32> = list.iter().filter_map(pid).collect();
    pids.into_iter().filter(|pid| proctree::read_stat(*pid).is_some_and(|stat| !stat.is_dead())).count()
}

/// How many times larger the pages in the pool are than what holds them.
fn ratio(value: &Value) -> String {
    let number = |pointer: &str| value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    match (number("/pool/zpages"), number("/now/pool_bytes")) {
        (0, _) | (_, 0) => "-".into(),
        (pages, bytes) => format!("{:.1}", (pages * 4096) as f64 / bytes as f64),
    }
}

fn command(value: &Value) -> String {
    let text = match value.get("command") {
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        Some(Value::String(text)) => text.clone(),
        _ => String::new(),
    };
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_is_known() {
        let value = serde_json::json!({
            "budget_bytes": 1u64 << 30, "command": ["sort", "a\nb"], "processes": [{"pid": std::process::id()}, {"pid": 1 << 30}], "pool": {"zpages": 512},
            "now": {"total_bytes": 900u64 << 20, "resident_bytes": 1u64 << 29, "pool_bytes": 1u64 << 20},
        });
        let text = table(&[("41".into(), value), ("7".into(), serde_json::json!({}))]);
        let lines: Vec<&str> = text.lines().collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[0]), "PID BUDGET USED RESIDENT STAGED POOL SWAP RATIO PROCS COMMAND");
        assert_eq!(words(lines[1]), "41 1 GiB 900 MiB 512 MiB - 1 MiB - 2.0 1 sort a b");
        assert_eq!(words(lines[2]), "7 - - - - - - - -");
        let value = serde_json::json!({ "processes": [
            {"pid": 7, "comm": "small", "running": true, "resident_bytes": 1u64 << 20, "peak_total_bytes": 1u64 << 21},
            {"pid": 9, "comm": "gone", "running": false, "resident_bytes": 0},
            {"pid": 8, "comm": "large", "running": true, "paged": true, "resident_bytes": 1u64 << 30, "faults": 5, "evicted_pages": 256},
        ]});
        let text = processes(&value);
        let lines: Vec<String> = text.lines().map(words).collect();
        assert_eq!(lines[0], "PID RESIDENT PEAK FAULTS EVICTED PROCESS");
        assert_eq!(lines[1..], ["8 1 GiB 0 B 5 1 MiB large", "7 1 MiB 2 MiB - 0 B small"]);
        assert_eq!(table(&[]), "");
        assert_eq!(json(&[]), "[]\n");
    }
}
