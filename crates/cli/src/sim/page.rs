//! Results of simulations as an HTML page.

use super::curve::Found;
use super::table::Row;
use crate::size_parsing::human;
use memfit_report::{join, Axis, Figure, Kind, Mark, Report, Section, Series, Table, Unit};

/// The page of a sweep. `found`: the smallest budgets that keep the bound, if they were searched.
pub fn page(rows: &[Row], found: &[Found], bound: f64, facts: Vec<(String, String)>) -> Report {
    let mut workloads: Vec<&str> = Vec::new();
    for row in rows {
        if !workloads.contains(&row.workload.as_str()) {
            workloads.push(&row.workload);
        }
    }
    let sections = workloads.iter().map(|workload| {
        let own: Vec<&Row> = rows.iter().filter(|row| row.workload == *workload).collect();
        let found: Vec<&Found> = found.iter().filter(|found| found.workload == *workload).collect();
        section(workload, &own, &found, bound)
    });
    let mut sections: Vec<Section> = sections.collect();
    sections.push(Section { title: "All results".into(), tables: vec![table(rows)], ..Section::default() });
    Report {
        title: format!("Simulation of {}", workloads.join(", ")),
        says: "What programs would cost under these schemes and budgets. Simulated, not measured.".into(),
        facts,
        sections,
    }
}

fn section(workload: &str, rows: &[&Row], found: &[&Found], bound: f64) -> Section {
    let mut labels: Vec<String> = Vec::new();
    for row in rows {
        if !labels.contains(&row.label()) {
            labels.push(row.label());
        }
    }
    let mut budgets: Vec<u64> = rows.iter().map(|row| row.budget).collect();
    budgets.sort_unstable();
    budgets.dedup();
    let mut text = Vec::new();
    if let Some(row) = rows.iter().find(|row| row.footprint > 0) {
        text.push(format!("With all of its pages in memory it would need {}.", human(row.footprint)));
    }
    text.extend(found.iter().map(|found| found.says(bound)));
    let figures = if budgets.len() > 1 { curves(rows, &labels, found, bound) } else { bars(rows) };
    Section { title: workload.into(), text, figures, ..Section::default() }
}

type Get = fn(&Row) -> Option<f64>;

/// The measures that are drawn against the budget.
fn measures() -> [(&'static str, Unit, Get); 4] {
    [
        ("Time in terms of that without a limit", Unit::Ratio, |row| row.outcome.slowdown()),
        ("Faults of evicted pages", Unit::Count, |row| Some(row.outcome.tally.faults.major() as f64)),
        ("Written to the swap tier", Unit::Bytes, |row| {
            (!row.counted).then_some(row.outcome.tally.writes.bytes as f64)
        }),
        ("Read from the swap tier", Unit::Bytes, |row| (!row.counted).then_some(row.outcome.tally.reads.bytes as f64)),
    ]
}

fn curves(rows: &[&Row], labels: &[String], found: &[&Found], bound: f64) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (i, (title, unit, get)) in measures().into_iter().enumerate() {
        let lines: Vec<Vec<(f64, f64)>> = labels
            .iter()
            .map(|wanted| {
                let own = rows.iter().filter(|row| row.label() == *wanted);
                let mut points: Vec<(f64, f64)> = own.filter_map(|row| Some((row.budget as f64, get(row)?))).collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                points
            })
            .collect();
        if lines.iter().flatten().all(|&(_, y)| y == 0.0) {
            continue;
        }
        let best = labels.iter().zip(&lines).filter_map(|(label, line)| Some((label, line.first()?.1)));
        let best = best.min_by(|a, b| a.1.total_cmp(&b.1));
        let says = best.map_or_else(String::new, |(label, _)| format!("In the smallest budget {label} has the least."));
        let (places, values) = join(&lines);
        let y = Axis { label: title.into(), unit, log: i == 0 };
        let title = format!("{title} against the budget");
        let mut figure = Figure::new(Kind::Curves, &title, &says, Axis::new("Budget", Unit::Bytes), y, places);
        figure.series = labels.iter().zip(values).map(|(name, values)| Series::with_gaps(name, values)).collect();
        if i == 0 {
            figure.levels = vec![Mark::new(bound, &format!("{:.0} % slower", (bound - 1.0) * 100.0))];
            figure.marks = found
                .iter()
                .filter_map(|found| Some(Mark::new(found.budget? as f64, &format!("{} fits", found.label()))))
                .collect();
        }
        figures.push(figure);
    }
    figures
}

/// Not of yardsticks, which know neither times nor sources.
fn bars(rows: &[&Row]) -> Vec<Figure> {
    let rows: Vec<&Row> = rows.iter().copied().filter(|row| !row.counted).collect();
    let names: Vec<String> = rows.iter().map(|row| row.label()).collect();
    let share = |of: fn(&Row) -> u64| rows.iter().map(move |row| of(row) as f64).collect::<Vec<_>>();
    let time = Axis::new("Time", Unit::Nanoseconds);
    let fastest = rows.iter().min_by_key(|row| row.outcome.times.program).map_or_else(String::new, |row| row.label());
    let says = format!("{fastest} takes the least time.");
    let mut times = Figure::of_names(Kind::Stacked, "Where the time goes", &says, "scheme", time, names.clone());
    times.kind = Kind::Bars;
    times.series = vec![
        Series::new("computes", share(|row| row.outcome.times.computes)),
        Series::new("waits for faults", share(|row| row.outcome.times.faults - row.outcome.times.reads)),
        Series::new("waits for reads", share(|row| row.outcome.times.reads)),
        Series::new("waits for reclaim", share(|row| row.outcome.times.waits)),
    ];
    let count = Axis::new("Faults", Unit::Count);
    let says = "A fault of the pool costs a decompression, one of the swap tier a read as well.";
    let mut faults = Figure::of_names(Kind::Bars, "Faults by source", says, "scheme", count, names.clone());
    faults.series = vec![
        Series::new("staging", share(|row| row.outcome.tally.faults.staged)),
        Series::new("one word", share(|row| row.outcome.tally.faults.filled)),
        Series::new("pool", share(|row| row.outcome.tally.faults.pool)),
        Series::new("swap tier", share(|row| row.outcome.tally.faults.swap)),
        Series::new("file", share(|row| row.outcome.tally.faults.file)),
    ];
    faults.series.retain(|series| series.values.iter().flatten().any(|&value| value > 0.0));
    let bytes = Axis::new("Bytes", Unit::Bytes);
    let says = "What the device of the swap tier has to do.";
    let mut traffic = Figure::of_names(Kind::Bars, "Swap traffic", says, "scheme", bytes, names);
    traffic.series = vec![
        Series::new("read", share(|row| row.outcome.tally.reads.bytes)),
        Series::new("written", share(|row| row.outcome.tally.writes.bytes)),
    ];
    let any = |figure: &Figure| figure.series.iter().flat_map(|s| s.values.iter().flatten()).any(|&value| value > 0.0);
    [times, faults, traffic].into_iter().filter(any).collect()
}

fn table(rows: &[Row]) -> Table {
    let (columns, cells) = super::table::for_page(rows);
    Table { title: "Each workload, scheme and budget".into(), says: String::new(), columns, rows: cells }
}
