//! The results as a page, as JSON and as Markdown.

use crate::recorded::Recording;
use crate::statement::{Numbers, Statement, Verdict};
use crate::Chart;
use crate::{Plan, Result};
use memfit_report::{Cell, Column, Report, Section, Table, Unit};
use serde_json::{json, Map, Value};
use std::fmt::Write;

const SAYS: &str =
    "What five papers print, and what the same programs do in the simulator: signs, order and rough size are \
                    compared; absolute times belong to the machines.";

/// What a recording shows, and what it does not show.
const RECORDED: &str = "Recorded: real programs, each run under each scheme and recorded without its accesses (`memfit run --record`). A recording is simulated under the scheme and in the budget in which it was made, with the pages in memory that were there then: the order of faults, what leaves and what it compresses to are those of the run. What a program computes is the least time of its runs, less what its waits cost there: made on a machine that did other things as well, the same recordings had gains from compression that were up to ten times less. How often a page in memory was touched is not in such a recording, so that it cannot stand for another budget or another scheme.";
const NONE: &str = "No recordings of real programs were there. `make papers-record` makes them, `make papers-sim` simulates those that are \
                    there beside the programs that are made up.";

/// The results as a page.
pub fn report(results: &[Result<'_>], plan: &Plan) -> Report {
    let facts = [
        ("Seed", plan.seed.to_string()),
        ("Sizes divided by, beyond each paper's setting", plan.scale.to_string()),
        ("Kind of run", if plan.quick { "quick: small and short, for tests only" } else { "full" }.to_owned()),
        ("Version", format!("memfit {}", env!("CARGO_PKG_VERSION"))),
    ];
    let mut sections = vec![overview(results)];
    sections.extend(results.iter().map(section));
    Report {
        title: "The papers' figures and tables, simulated".into(),
        says: SAYS.into(),
        facts: facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        sections,
    }
}

fn words(columns: &[&str]) -> Vec<Column> {
    columns.iter().map(|name| Column::new(name, Unit::Count)).collect()
}

fn overview(results: &[Result<'_>]) -> Section {
    let mut sums = [0.0; 4];
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for result in results {
        let (hold, fail, cannot) = result.count();
        let counts = [hold + fail + cannot, hold, fail, cannot].map(|count| count as f64);
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        let mut row: Vec<Cell> = vec![result.paper.title.into(), result.paper.source.into()];
        row.extend(counts.map(Cell::Number));
        rows.push(row);
    }
    let mut row: Vec<Cell> = vec!["all".into(), "".into()];
    row.extend(sums.map(Cell::Number));
    rows.push(row);
    let table = Table {
        title: "Statements of the papers".into(),
        says: format!("{} of {} hold.", sums[1], sums[0]),
        columns: words(&["Scheme", "Paper", "Statements", "hold", "do not hold", "cannot be had"]),
        rows,
    };
    Section { title: "Overview".into(), tables: vec![table], ..Section::default() }
}

/// Whether the statements about a figure hold, as a sentence.
fn verdict(result: &Result<'_>, chart: &Chart) -> String {
    let of_source = || result.paper.statements.iter().filter(|s| s.source == chart.source);
    let mut about: Vec<_> = of_source().filter(|s| chart.draws(s.numbers)).collect();
    if about.is_empty() {
        about = of_source().collect();
    }
    let of = |wanted| about.iter().filter(move |s| s.verdict(&result.numbers) == wanted).map(|s| s.what);
    let (holds, fails) = (of(Verdict::Holds).count(), of(Verdict::Fails).collect::<Vec<_>>());
    match (about.len(), holds) {
        (0, _) => String::new(),
        (1, 1) => "Here: it holds.".into(),
        (all, holds) if all == holds => format!("Here: all {all} statements hold."),
        (1, _) if fails.is_empty() => "Here: it cannot be had.".into(),
        (1, _) => "Here: it does not hold.".into(),
        (all, holds) if fails.is_empty() => {
            format!("Here: {holds} of {all} statements hold, the others cannot be had.")
        }
        (all, holds) => format!("Here: {holds} of {all} statements hold, but not: {}.", fails.join("; ")),
    }
}

fn section(result: &Result<'_>) -> Section {
    let (paper, numbers, recorded) = (result.paper, &result.numbers, &result.recorded);
    let row = |s: &Statement| -> Vec<Cell> {
        let (told, real, why) = (s.told(numbers), s.told_recorded(recorded), s.reason(numbers));
        [s.what, s.source, s.verdict(numbers).name(), s.published, &told, &real, why].map(Cell::from).into()
    };
    let table = Table {
        title: "What the paper says".into(),
        says: String::new(),
        columns: words(&["Statement", "Where", "Verdict", "Published", "Here", "Recorded", "Why not"]),
        rows: paper.statements.iter().map(row).collect(),
    };
    let mut text = vec![format!("{}.", paper.source), paper.setting.into()];
    text.extend(paper.differs.iter().map(|text| (*text).to_owned()));
    text.extend(of_recordings(result).into_iter().map(str::to_owned));
    let published = paper.published();
    let charts = (paper.charts)();
    let figures = charts.iter().chain(&result.more);
    let figures = figures.filter_map(|chart| chart.figure(numbers, recorded, &published, &verdict(result, chart)));
    let mut tables = vec![table];
    tables.extend(recordings(result));
    Section { title: paper.title.into(), text, tables, figures: figures.collect() }
}

/// Notes about the recordings of a paper.
fn of_recordings<'a>(result: &Result<'a>) -> Vec<&'a str> {
    match result.recordings.is_empty() {
        true => vec![NONE],
        false => [RECORDED].into_iter().chain(result.paper.recorded.differs.iter().copied()).collect(),
    }
}

/// The table of a paper's recordings.
fn recordings(result: &Result<'_>) -> Option<Table> {
    let row = |of: &Recording| -> Vec<Cell> {
        let mut row: Vec<Cell> =
            [&of.name.0, &of.name.1, &of.command, &of.scheme.name].map(|text| text.as_str().into()).into();
        row.push(Cell::Number(of.budget as f64));
        row.extend([of.run_ns as f64 / 1e9, of.computing_ns / 1e9, of.calls as f64].map(Cell::Number));
        row.push(of.end.as_deref().unwrap_or("whole").into());
        row
    };
    let mut columns = words(&["Simulation", "Configuration", "Command", "Scheme"]);
    columns.push(Column::new("Budget", Unit::Bytes));
    columns.extend(["Time of the run", "Computed"].map(|name| Column::new(name, Unit::Seconds)));
    columns.extend(words(&["Calls", "End"]));
    (!result.recordings.is_empty()).then(|| Table {
        title: "Recordings".into(),
        says: "Computed: of the run that waited least for its pages, by the costs of a machine of today.".into(),
        columns,
        rows: result.recordings.iter().map(row).collect(),
    })
}

/// All numbers and statements as JSON; the same for the same results.
pub fn json(results: &[Result<'_>], plan: &Plan) -> String {
    let numbers = |numbers: &Numbers| {
        Value::Object(numbers.iter().map(|(name, value)| (name.to_owned(), json!(value))).collect::<Map<_, _>>())
    };
    let of = |result: &Result<'_>| {
        let statements: Vec<Value> = result
            .paper
            .statements
            .iter()
            .map(|s| {
                json!({
                    "source": s.source,
                    "what": s.what,
                    "published": s.published,
                    "here": s.told(&result.numbers),
                    "recorded": s.told_recorded(&result.recorded),
                    "verdict": s.verdict(&result.numbers).name(),
                    "why": s.reason(&result.numbers),
                })
            })
            .collect();
        json!({
            "paper": result.paper.name,
            "source": result.paper.source,
            "statements": statements,
            "numbers": numbers(&result.numbers),
            "recorded": numbers(&result.recorded),
            "published": numbers(&result.paper.published()),
        })
    };
    let all: Vec<Value> = results.iter().map(of).collect();
    let whole = json!({ "seed": plan.seed, "scale": plan.scale, "quick": plan.quick, "papers": all });
    let mut text = serde_json::to_string_pretty(&whole).expect("texts and numbers");
    text.push('\n');
    text
}

/// The text of docs/papers/simulated.md.
pub fn markdown(results: &[Result<'_>], plan: &Plan) -> String {
    let mut out = String::from(include_str!("simulated_head.md"));
    let _ = writeln!(out, "\n## Result with the seed {}\n", plan.seed);
    out.push_str("| scheme | hold | do not hold | cannot be had |\n|---|---:|---:|---:|\n");
    for result in results {
        let (hold, fail, cannot) = result.count();
        let _ = writeln!(out, "| {} | {hold} | {fail} | {cannot} |", result.paper.title);
    }
    for result in results {
        let (paper, numbers) = (result.paper, &result.numbers);
        let _ = writeln!(out, "\n## {}\n\n{}.\n\n{}\n", paper.title, paper.source, paper.setting);
        for text in paper.differs {
            let _ = writeln!(out, "- {text}");
        }
        for text in of_recordings(result) {
            let _ = writeln!(out, "- {text}");
        }
        out.push_str("\n| statement | source | published | here | verdict | why not | recorded |\n|---|---|---|---|---|---|---|\n");
        for s in paper.statements {
            let (told, verdict, why) = (s.told(numbers), s.verdict(numbers).name(), s.reason(numbers));
            let real = s.told_recorded(&result.recorded);
            let _ =
                writeln!(out, "| {} | {} | {} | {told} | {verdict} | {why} | {real} |", s.what, s.source, s.published);
        }
    }
    out
}
