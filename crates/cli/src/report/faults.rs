//! Page faults: how many from which source, and how long they took.

use super::words::{count, duration, list, percent};
use super::{stretch_words, stretches, time, Run, FILE, FILLED, POOL, STAGED, SWAP, UNMANAGED};
use memfit_pager::timeline::FaultTimes;
use memfit_report::{Axis, Cell, Column, Figure, Kind, Mark, Section, Series, Table, Unit};
use memfit_stats::{Quantiles, SOURCES};

/// Names, their words in a sentence, and colours; in the order of [`SOURCES`].
const KINDS: [(&str, &str, usize); SOURCES.len()] = [
    ("first touch", "with zeros at a first touch", UNMANAGED),
    ("not yet compressed", "from pages not yet compressed", STAGED),
    ("one repeated word", "with one repeated word", FILLED),
    ("compressed pool", "from the compressed pool", POOL),
    ("swap", "from swap", SWAP),
    ("file", "from files", FILE),
];
/// A source with fewer faults gets no distribution.
const DISTRIBUTION: u64 = 50;
const WHAT: &str =
    "A program that touches a page which is outside, or registered memory for the first time, waits for memfit: a \
                    fault. Those that the kernel serves alone are not counted.";
/// Classes of the pager's histogram that are merged: four per octave are enough to see.
const TOGETHER: usize = 2;

/// The part of the page.
pub(super) fn section(run: &Run<'_>) -> Section {
    let total = run.stats.faults.total;
    let mut section = Section { title: "Faults".into(), ..Section::default() };
    if total == 0 {
        section.text = vec!["No page that was taken out was touched again.".into()];
        return section;
    }
    section.text = vec![WHAT.to_owned()];
    section.tables = vec![table(run)];
    section.figures = over_time(run).into_iter().chain(latency(run)).collect();
    section
}

fn of(run: &Run<'_>, source: usize) -> u64 {
    run.stats.faults.by_source.values()[source]
}

/// The sources that occur, the most frequent first.
fn frequent(run: &Run<'_>) -> Vec<usize> {
    let mut all: Vec<usize> = (0..SOURCES.len()).filter(|&source| of(run, source) > 0).collect();
    all.sort_by_key(|&source| std::cmp::Reverse(of(run, source)));
    all
}

fn table(run: &Run<'_>) -> Table {
    let total: u64 = (0..SOURCES.len()).map(|source| of(run, source)).sum();
    let columns = [
        ("Source", Unit::Count),
        ("Faults", Unit::Count),
        ("Share", Unit::Percent),
        ("Median", Unit::Nanoseconds),
        ("90 % within", Unit::Nanoseconds),
        ("99 % within", Unit::Nanoseconds),
        ("Longest", Unit::Nanoseconds),
    ];
    let row = |name: &str, faults: u64, times: &Quantiles| -> Vec<Cell> {
        let share = faults as f64 * 100.0 / total.max(1) as f64;
        let [p50, p90, p99, max] = [times.p50, times.p90, times.p99, times.max].map(|ns| Cell::from(ns as f64));
        vec![name.into(), (faults as f64).into(), share.into(), p50, p90, p99, max]
    };
    let latency = &run.stats.fault_latency_ns;
    let of_source = |source: usize| row(KINDS[source].0, of(run, source), &latency.by_source.values()[source]);
    let mut rows: Vec<Vec<Cell>> = frequent(run).into_iter().map(of_source).collect();
    if rows.len() > 1 {
        rows.push(row("all", total, &latency.all));
    }
    let columns = columns.map(|(name, unit)| Column::new(name, unit)).into();
    Table { title: "Faults by source".into(), says: String::new(), columns, rows }
}

fn over_time(run: &Run<'_>) -> Option<Figure> {
    let all = stretches(run.samples());
    let sum = |counts: &[u64; SOURCES.len()]| counts.iter().sum::<u64>();
    let rate = |stretch: &super::Stretch| stretch.rate(|sample| sum(&sample.counts.faults));
    let busiest = all.iter().max_by(|a, b| rate(a).total_cmp(&rate(b)))?;
    let total: u64 = (0..SOURCES.len()).map(|source| of(run, source)).sum();
    let shares: Vec<String> = frequent(run)
        .into_iter()
        .take(3)
        .map(|source| (percent(of(run, source), total), KINDS[source].1))
        .enumerate()
        .map(|(at, (share, how))| format!("{share}{} {how}", if at == 0 { " were served" } else { "" }))
        .collect();
    let says = format!(
        "Of all {}. The most at a time were {} a second, around {:.1} s. {}",
        list(&shares),
        count(rate(busiest).round() as u64),
        busiest.middle(),
        stretch_words(&all)
    );
    let places = all.iter().map(super::Stretch::middle).collect();
    let y = Axis::new("Faults", Unit::PerSecond);
    let mut figure = Figure::new(Kind::Stacked, "Faults by source over time", &says, time(), y, places);
    let there = (0..SOURCES.len()).filter(|&source| of(run, source) > 0);
    let series = there.map(|source| {
        let rates = all.iter().map(|stretch| stretch.rate(|sample| sample.counts.faults[source]));
        Series::new(KINDS[source].0, rates).colour(KINDS[source].2)
    });
    figure.series = series.collect();
    Some(figure)
}

fn latency(run: &Run<'_>) -> Option<Figure> {
    let times = wider(&run.course.fault_times);
    if times.bounds_ns.len() < 2 {
        return None;
    }
    let Quantiles { p50, p90, p99, max, .. } = run.stats.fault_latency_ns.all;
    let slowest = frequent(run).into_iter().max_by_key(|&source| median(run, source))?;
    let mut says = format!(
        "Half of all faults took {} at most, 90 % {}, 99 % {}; the longest took {}.",
        duration(p50),
        duration(p90),
        duration(p99),
        duration(max)
    );
    if frequent(run).len() > 1 {
        says += &format!(" Slowest in the median: {}, {}.", KINDS[slowest].0, duration(median(run, slowest)));
    }
    says += " Drawn are shares of the faults of each source, so that rare sources can be seen, too.";
    let places = times.bounds_ns.iter().map(|bound| *bound as f64).collect();
    let x = Axis::log("Time until the program goes on", Unit::Nanoseconds);
    let y = Axis::new("Share of the source's faults", Unit::Percent);
    let mut figure = Figure::new(Kind::Steps, "How long faults took", &says, x, y, places);
    let sums: Vec<u64> = times.counts.iter().map(|counts| counts.iter().sum()).collect();
    let least = sums.iter().copied().max().unwrap_or(0).clamp(1, DISTRIBUTION);
    for (((name, _, colour), counts), sum) in KINDS.iter().zip(&times.counts).zip(sums) {
        if sum >= least {
            let shares = counts.iter().chain([&0]).map(|count| *count as f64 * 100.0 / sum as f64);
            figure.series.push(Series::new(name, shares).colour(*colour));
        }
    }
    let marks = [(p50, "half"), (p90, "90 %"), (p99, "99 %")];
    figure.marks = marks.map(|(ns, name)| Mark::new(ns as f64, &format!("{name} {}", duration(ns)))).into();
    Some(figure)
}

fn median(run: &Run<'_>, source: usize) -> u64 {
    run.stats.fault_latency_ns.by_source.values()[source].p50
}

/// Merges classes.
fn wider(times: &FaultTimes) -> FaultTimes {
    let mut bounds_ns: Vec<u64> = times.bounds_ns.iter().step_by(TOGETHER).copied().collect();
    if times.bounds_ns.len().is_multiple_of(TOGETHER) {
        bounds_ns.extend(times.bounds_ns.last());
    }
    let sums = |counts: &Vec<u64>| counts.chunks(TOGETHER).map(|classes| classes.iter().sum()).collect();
    FaultTimes { bounds_ns, counts: times.counts.iter().map(sums).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wider_classes_have_the_same_faults() {
        let wide = |bounds: &[u64], counts: &[u64]| {
            let wide = wider(&FaultTimes { bounds_ns: bounds.into(), counts: vec![counts.into()] });
            (wide.bounds_ns, wide.counts[0].clone())
        };
        assert_eq!(wide(&[1, 2, 3, 4, 5], &[1, 2, 3, 4]), (vec![1, 3, 5], vec![3, 7]));
        assert_eq!(wide(&[1, 2, 3, 4], &[1, 2, 3]), (vec![1, 3, 4], vec![3, 3]));
        assert_eq!(wide(&[1, 2], &[1]), (vec![1, 2], vec![1]));
        assert_eq!(wide(&[], &[]), (vec![], vec![]));
    }
}
