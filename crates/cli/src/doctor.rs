//! `memfit doctor`: what this machine can do, and how to fix what it cannot.
//!
//! JSON, schema 1: `{"schema":1, "version":"...", "ok":bool, "checks":[{"id":"...", "name":"...",
//! "status":"ok"|"missing"|"optional", "detail":"...", "fix":"..."|null}]}`. `ok` is false when any
//! check is missing.

use crate::args::DoctorArgs;
use crate::checks::{self, Check, Status};
use crate::errors::Failure;
use crate::layout::wrapped;
use std::fmt::Write;
use std::io::IsTerminal;

/// Columns before a detail: margin, status, name.
const INDENT: usize = 2 + 10 + 23;

/// Prints the checks; 0 when `memfit run` can work.
///
/// # Errors
/// When nothing can be printed.
pub fn run(args: &DoctorArgs) -> Result<i32, Failure> {
    let checks = checks::all();
    let text = match args.json {
        true => json(&checks),
        false => text(&checks, std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()),
    };
    crate::print(&text)?;
    Ok(i32::from(!can_run(&checks)))
}

fn can_run(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.status != Status::Missing)
}

fn json(checks: &[Check]) -> String {
    let value = serde_json::json!({
        "schema": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "ok": can_run(checks),
        "checks": checks,
    });
    format!("{value:#}\n")
}

fn text(checks: &[Check], color: bool) -> String {
    let mut out = String::from("\n");
    for check in checks {
        let (word, code) = match check.status {
            Status::Ok => ("ok", "32"),
            Status::Missing => ("missing", "31;1"),
            Status::Optional => ("optional", "33"),
        };
        let padding = " ".repeat(10 - word.len());
        let word = if color { format!("\x1b[{code}m{word}\x1b[0m") } else { word.to_owned() };
        let detail = wrapped(&check.detail, INDENT);
        let _ = writeln!(out, "  {word}{padding}{:23}{detail}", check.name);
        if let Some(fix) = &check.fix {
            let _ = writeln!(out, "{:12}fix: {}", "", wrapped(fix, 17));
        }
    }
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let verdict = match (count(Status::Missing), count(Status::Optional)) {
        (0, 0) => "memfit can run here.".to_owned(),
        (0, 1) => "memfit can run here; 1 thing would make it better.".to_owned(),
        (0, n) => format!("memfit can run here; {n} things would make it better."),
        (1, _) => "memfit cannot run here: 1 thing is missing.".to_owned(),
        (n, _) => format!("memfit cannot run here: {n} things are missing."),
    };
    let _ = writeln!(out, "\n  {verdict}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::WIDTH;

    fn check(status: Status, fix: Option<&str>) -> Check {
        let detail = "some words ".repeat(12).trim_end().to_owned();
        Check { id: "x", name: "the longest name here", status, detail, fix: fix.map(str::to_owned) }
    }

    #[test]
    fn fits_in_eighty_columns() {
        let checks = [check(Status::Ok, None), check(Status::Missing, Some(&"do this and that ".repeat(9)))];
        let text = text(&checks, false);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains("\n  missing   the longest name here  some words"), "{text}");
        assert!(text.contains("cannot run here: 1 thing is missing"));
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn the_real_report_fits_too() {
        let text = text(&checks::all(), false);
        let long = text.lines().find(|line| line.chars().count() > WIDTH && !line.contains('/'));
        assert_eq!(long, None);
    }

    #[test]
    fn optional_items_do_not_forbid() {
        let checks = [check(Status::Ok, None), check(Status::Optional, Some("fix"))];
        assert!(can_run(&checks));
        assert!(text(&checks, true).contains("\x1b[33moptional\x1b[0m  the longest"));
        let value: serde_json::Value = serde_json::from_str(&json(&checks)).unwrap();
        assert_eq!(value["ok"], true);
        assert_eq!(value["schema"], 1);
        assert_eq!(value["checks"][1]["status"], "optional");
        assert_eq!(value["checks"][0]["fix"], serde_json::Value::Null);
    }
}
