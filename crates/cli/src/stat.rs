//! `memfit stat`: the running trees of this user, once.

use crate::args::StatArgs;
use crate::errors::{describe, tell, Failure};
use crate::top::canvas::fit;
use crate::top::plain::sizes;
use crate::top::terminal;
use crate::top::units::bytes;
use crate::trees::{self, Question};
use memfit_os::proctree;
use memfit_stats::{Process, Stats};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::HashSet;
use std::fmt::Write;
use std::io::IsTerminal;

/// Prints all trees; returns 0 even when there is none.
///
/// # Errors
/// When trees cannot be listed or nothing can be printed. A tree that does not answer is reported
/// on standard error and gives exit status 1.
pub fn run(args: &StatArgs) -> Result<i32, Failure> {
    if args.json {
        // As the pagers tell it, whichever version they have.
        let (answers, code) = answers::<Value>()?;
        crate::print(&json(&answers))?;
        return Ok(code);
    }
    let (answers, code) = answers::<Stats>()?;
    let text = match args.processes {
        true => answers.iter().map(|tree| table(std::slice::from_ref(tree)) + &processes(&tree.1)).collect(),
        false => table(&answers),
    };
    let text = match std::io::stdout().is_terminal() {
        true => within(&text, terminal::size().0),
        false => text,
    };
    if answers.is_empty() {
        tell("no tree of yours is running");
    }
    crate::print(&text)?;
    Ok(code)
}

/// What all trees tell, by their names, and the exit status.
fn answers<T: DeserializeOwned>() -> Result<(Vec<(String, T)>, i32), Failure> {
    let mut answers = Vec::new();
    let mut code = 0;
    for tree in trees::running()? {
        match tree.ask_and_wait(Question::All) {
            Ok(Some(answer)) => answers.push((tree.pid().to_owned(), answer)),
            Ok(None) => {}
            Err(error) => {
                tell(&format!("the pager of {} does not answer: {}", tree.pid(), describe(&error)));
                code = 1;
            }
        }
    }
    Ok((answers, code))
}

/// Lines of this width at most, with a mark where one is cut.
fn within(text: &str, columns: usize) -> String {
    text.lines().map(|line| fit(line, columns) + "\n").collect()
}

fn json(trees: &[(String, Value)]) -> String {
    let values: Vec<&Value> = trees.iter().map(|(_, value)| value).collect();
    format!("{:#}\n", serde_json::json!(values))
}

fn table(trees: &[(String, Stats)]) -> String {
    if trees.is_empty() {
        return String::new();
    }
    let mut rows =
        vec![["PID", "BUDGET", "USED", "RESIDENT", "STAGED", "POOL", "SWAP", "RATIO", "PROCS"].map(String::from)];
    rows.extend(trees.iter().map(|(pid, stats)| row(pid, stats)));
    let commands = std::iter::once("COMMAND".to_owned()).chain(trees.iter().map(|(_, stats)| command(stats)));
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

/// The running processes of a tree, the largest first, as far as the pager has told them.
fn processes(stats: &Stats) -> String {
    let mut running: Vec<&Process> = stats.processes.iter().filter(|process| process.running).collect();
    running.sort_by_key(|process| std::cmp::Reverse(process.resident_bytes));
    let mut rows = vec![["  PID", "RESIDENT", "PEAK", "FAULTS", "EVICTED"].map(String::from)];
    rows.extend(running.iter().map(|p| {
        let paged = |text: String| if p.paged { text } else { "-".into() };
        let (resident, peak) = (bytes(p.resident_bytes), bytes(p.peak_total_bytes));
        [p.pid.to_string(), resident, peak, paged(p.faults.to_string()), paged(bytes(p.evicted_pages * 4096))]
    }));
    let mut names: Vec<String> =
        std::iter::once("PROCESS".to_owned()).chain(running.iter().map(|process| process.title())).collect();
    if let Some(more @ 1..) = stats.processes_left_out {
        rows.push([const { String::new() }; 5]);
        names.push(format!("and {more} smaller process{}", if more == 1 { "" } else { "es" }));
    }
    if stats.files.resident_bytes > 0 {
        rows.push(["-", &bytes(stats.files.resident_bytes), "-", "-", "-"].map(String::from));
        names.push("(pages of shared files)".into());
    }
    aligned(&rows, names.into_iter())
}

fn row(pid: &str, stats: &Stats) -> [String; 9] {
    let [budget, total, resident, staged, pool, swap, ratio] = sizes(stats);
    let processes = living(&stats.processes) + stats.processes_left_out.unwrap_or(0) as usize;
    [pid.to_owned(), budget, total, resident, staged, pool, swap, ratio, processes.to_string()]
}

/// How many processes of the list still run: those that ended are listed too, and a pid that was
/// used again twice.
fn living(list: &[Process]) -> usize {
    let pids: HashSet<i32> = list.iter().map(|process| process.pid).collect();
    pids.into_iter().filter(|pid| proctree::read_stat(*pid).is_some_and(|stat| !stat.is_dead())).count()
}

fn command(stats: &Stats) -> String {
    stats.command.join(" ").replace(memfit_wire::is_unprintable, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_is_known() {
        let of_json = |json| serde_json::from_value::<Stats>(json).unwrap();
        let known = of_json(serde_json::json!({
            "budget_bytes": 1u64 << 30, "command": ["sort", "a\nb"], "processes": [{"pid": std::process::id()}, {"pid": 1 << 30}], "pool": {"zpages": 512},
            "now": {"total_bytes": 900u64 << 20, "resident_bytes": 1u64 << 29, "pool_bytes": 1u64 << 20},
        }));
        let text = table(&[("41".into(), known), ("7".into(), Stats::default())]);
        let lines: Vec<&str> = text.lines().collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[0]), "PID BUDGET USED RESIDENT STAGED POOL SWAP RATIO PROCS COMMAND");
        assert_eq!(words(lines[1]), "41 1.0G 900M 512M 0B 1.0M 0B 2.0 1 sort a b");
        assert_eq!(words(lines[2]), "7 0B 0B 0B 0B 0B 0B - 0");
        let stats = of_json(serde_json::json!({ "processes": [
            {"pid": 7, "comm": "small", "running": true, "resident_bytes": 1u64 << 20, "peak_total_bytes": 1u64 << 21},
            {"pid": 9, "comm": "gone", "running": false, "resident_bytes": 0},
            {"pid": 8, "comm": "large", "running": true, "paged": true, "resident_bytes": 1u64 << 30, "faults": 5, "evicted_pages": 256},
        ]}));
        let text = processes(&stats);
        let lines: Vec<String> = text.lines().map(words).collect();
        assert_eq!(lines[0], "PID RESIDENT PEAK FAULTS EVICTED PROCESS");
        assert_eq!(lines[1..], ["8 1.0G 0B 5 1.0M large", "7 1.0M 2.0M - - small"]);
        let files = |more| serde_json::json!({"files": {"resident_bytes": 2u64 << 20}, "processes_left_out": more});
        let below = |json| processes(&of_json(json)).lines().skip(1).map(words).collect::<Vec<_>>();
        let of_files = "- 2.0M - - - (pages of shared files)";
        assert_eq!(below(files(0)), [of_files]);
        assert_eq!(below(files(1)), ["and 1 smaller process", of_files]);
        assert_eq!(below(files(9)), ["and 9 smaller processes", of_files]);
        // A terminal cuts it, a pipe does not.
        let long = Stats { command: vec!["x".repeat(60), "end".into()], ..Stats::default() };
        let text = table(&[("7".into(), long)]);
        assert!(text.ends_with("x end\n"), "{text}");
        let cut = within(&text, 70);
        assert!(cut.lines().all(|line| line.chars().count() <= 70) && cut.ends_with("x~\n"), "{cut}");
        assert_eq!(cut.lines().count(), 2);
        assert_eq!(table(&[]), "");
        assert_eq!(json(&[]), "[]\n");
    }
}
