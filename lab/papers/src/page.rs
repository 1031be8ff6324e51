//! The results as a page.

use crate::recorded::Recording;
use crate::statement::{Statement, Verdict};
use crate::Chart;
use crate::{Paper, Plan, Result};
use memfit_report::{Cell, Column, Report, Section, Table, Unit};

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
        ("First seed", plan.seed.to_string()),
        ("Seeds", results.iter().map(|result| result.seeds.len()).max().unwrap_or(0).to_string()),
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
    let mut sums = [0.0; Verdict::ALL.len() + 1];
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for result in results {
        let by_verdict = result.count();
        let all = [by_verdict.iter().sum::<usize>()].into_iter().chain(by_verdict);
        let counts: Vec<f64> = all.map(|count| count as f64).collect();
        sums.iter_mut().zip(&counts).for_each(|(sum, count)| *sum += count);
        let mut row: Vec<Cell> = vec![result.paper.title.into(), result.paper.source.into()];
        row.extend(counts.into_iter().map(Cell::Number));
        rows.push(row);
    }
    let mut row: Vec<Cell> = vec!["all".into(), "".into()];
    row.extend(sums.map(Cell::Number));
    rows.push(row);
    let table = Table {
        title: "Statements of the papers".into(),
        says: format!("{} of {} hold.", sums[1], sums[0]),
        columns: words(&[&["Scheme", "Paper", "Statements"][..], &Verdict::ALL.map(Verdict::name)].concat()),
        rows,
    };
    Section { title: "Overview".into(), tables: vec![table], ..Section::default() }
}

/// The verdicts on the statements about a figure.
fn verdict(result: &Result<'_>, chart: &Chart) -> String {
    let of_source = || result.paper.statements.iter().filter(|s| s.source == chart.source);
    let mut about: Vec<_> = of_source().filter(|s| chart.draws(s.numbers)).collect();
    if about.is_empty() {
        about = of_source().collect();
    }
    let of = |wanted| about.iter().filter(|s| s.verdict(&result.seeds) == wanted).count();
    let counts = Verdict::ALL.map(|verdict| (of(verdict), verdict.name())).into_iter().filter(|(count, _)| *count > 0);
    match &about[..] {
        [] => String::new(),
        [one] => format!("Here: {}.", one.verdict(&result.seeds).name()),
        _ => {
            format!("Here: {}.", counts.map(|(count, name)| format!("{name}: {count}")).collect::<Vec<_>>().join(", "))
        }
    }
}

fn section(result: &Result<'_>) -> Section {
    let (paper, numbers, recorded) = (result.paper, &result.numbers, &result.recorded);
    let row = |s: &Statement| -> Vec<Cell> {
        let (told, real, why) = (s.told(&result.seeds), s.told_recorded(recorded), s.reason(&result.seeds));
        [s.what, s.source, s.verdict(&result.seeds).name(), s.published, &told, &real, why].map(Cell::from).into()
    };
    let table = Table {
        title: "What the paper says".into(),
        says: String::new(),
        columns: words(&["Statement", "Where", "Verdict", "Published", "Here", "Recorded", "Why"]),
        rows: paper.statements.iter().map(row).collect(),
    };
    let mut text = vec![format!("{}.", paper.source), paper.setting.into()];
    text.extend(paper.differs.iter().map(|text| (*text).to_owned()));
    text.extend(of_recordings(paper, !result.recordings.is_empty()).into_iter().map(str::to_owned));
    let published = paper.published();
    let charts = (paper.charts)();
    let figures = charts.iter().chain(&result.more);
    let figures = figures.filter_map(|chart| chart.figure(numbers, recorded, &published, &verdict(result, chart)));
    let mut tables = vec![table];
    tables.extend(recordings(result));
    Section { title: paper.title.into(), text, tables, figures: figures.collect() }
}

/// Notes about the recordings of a paper, if there are `any`.
pub(crate) fn of_recordings(paper: &Paper, any: bool) -> Vec<&'static str> {
    match any {
        false => vec![NONE],
        true => [RECORDED].into_iter().chain(paper.recorded.differs.iter().copied()).collect(),
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
