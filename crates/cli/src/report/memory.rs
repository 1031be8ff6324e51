//! Memory over time: by state, at its uncompressed size wherever it is, by process.

use super::words::{factor, list, size};
use super::{seconds, time, Run, POOL, RESIDENT, STAGED, SWAP, TABLES, UNMANAGED};
use memfit_pager::timeline::{Bytes, Sample};
use memfit_report::{Axis, Cell, Column, Figure, Kind, Mark, Section, Series, Table, Unit};
use memfit_stats::Process;

/// A part of memory: its name, its colour, where it stands.
type Part = (&'static str, usize, fn(&Bytes) -> u64);

/// The parts that count towards the budget.
const IN_RAM: [Part; 5] = [
    ("resident, managed", RESIDENT, |bytes| bytes.resident),
    ("resident, unmanaged", UNMANAGED, |bytes| bytes.unmanaged),
    ("taken out, not yet compressed", STAGED, |bytes| bytes.staged),
    ("compressed pool", POOL, |bytes| bytes.pool),
    ("tables of memfit", TABLES, |bytes| bytes.metadata),
];
/// The programs' memory at its uncompressed size.
const WHEREVER: [Part; 5] = [
    IN_RAM[0],
    IN_RAM[1],
    IN_RAM[2],
    ("in the pool, before compression", POOL, |bytes| bytes.pooled),
    ("in swap, before compression", SWAP, |bytes| bytes.swapped),
];
const STATES: &str =
    "Managed memory can be taken out. Unmanaged is the rest: all of it far below the budget, where memfit registers \
                      nothing; later what cannot be paged, such as shared and locked memory, and memfit's own.";
/// Rows of the table of processes.
const ROWS: usize = 25;
/// A process that never had more gets no band.
const BAND_BYTES: u64 = 1 << 20;

/// The part of the page.
pub(super) fn section(run: &Run<'_>) -> Section {
    let mut text = vec![STATES.to_owned()];
    let mut figures = Vec::new();
    if run.samples().is_empty() {
        text = vec!["The pager gave no samples of this run.".into()];
    } else {
        figures.push(by_state(run));
        figures.extend(wherever(run));
    }
    Section { title: "Memory".into(), text, tables: Vec::new(), figures }
}

/// The part about the processes, if there were several.
pub(super) fn processes(run: &Run<'_>) -> Option<Section> {
    let (tables, figures): (Vec<Table>, Vec<Figure>) =
        (table(run).into_iter().collect(), by_process(run).into_iter().collect());
    let section = || Section { title: "Processes".into(), text: Vec::new(), tables, figures };
    (run.process_count() > 1).then(section)
}

/// Peak of the programs' memory in RAM, pool and swap at its uncompressed size, bytes.
pub(super) fn held(run: &Run<'_>) -> u64 {
    run.samples().iter().map(held_at).max().unwrap_or(0)
}

fn held_at(sample: &Sample) -> u64 {
    WHEREVER.iter().map(|(_, _, of)| of(&sample.bytes)).sum()
}

fn places(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(|sample| seconds(sample.at_ns)).collect()
}

/// The parts that ever occur.
fn bands(samples: &[Sample], parts: &[Part]) -> Vec<Series> {
    let there = parts.iter().filter(|(_, _, of)| samples.iter().any(|sample| of(&sample.bytes) > 0));
    let series = there.map(|(name, colour, of)| {
        Series::new(name, samples.iter().map(|sample| of(&sample.bytes) as f64)).colour(*colour)
    });
    series.collect()
}

fn budget_level(run: &Run<'_>) -> Mark {
    Mark::new(run.budget() as f64, &format!("budget {}", size(run.budget())))
}

fn by_state(run: &Run<'_>) -> Figure {
    let samples = run.samples();
    // The first of equal samples: max_by_key gives the last.
    let highest = samples.iter().rev().max_by_key(|sample| sample.bytes.total).copied().unwrap_or_default();
    let parts = IN_RAM.map(|(name, _, of)| (name, of(&highest.bytes)));
    let mut large: Vec<_> = parts.into_iter().filter(|(_, bytes)| *bytes * 50 >= highest.bytes.total).collect();
    large.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let large: Vec<String> = large.into_iter().map(|(name, bytes)| format!("{} {name}", size(bytes))).collect();
    let says = format!(
        "The highest use, {} of the {} budget, was after {:.1} s: {}.",
        size(highest.bytes.total),
        size(run.budget()),
        seconds(highest.at_ns),
        list(&large)
    );
    let mut figure =
        Figure::new(Kind::Stacked, "Memory by state", &says, time(), Axis::new("Memory", Unit::Bytes), places(samples));
    figure.series = bands(samples, &IN_RAM);
    figure.levels = vec![budget_level(run)];
    figure
}

/// The figure that shows how much fits into the budget; `None` if that is about what is in RAM.
fn wherever(run: &Run<'_>) -> Option<Figure> {
    if held(run) < run.peak() + run.peak() / 20 {
        return None;
    }
    let samples = run.samples();
    let most = samples.iter().rev().max_by_key(|sample| held_at(sample))?;
    let Bytes { pool, pooled, swapped, .. } = most.bytes;
    let mut ways = Vec::new();
    let matters = |bytes: u64| bytes > 0 && bytes * 50 >= held_at(most);
    if matters(pooled) {
        ways.push(format!("{} of it took {} in the pool", size(pooled), size(pool)));
    }
    if matters(swapped) {
        ways.push(format!("{} {} in swap", size(swapped), if matters(pooled) { "lay" } else { "of it lay" }));
    }
    let how = if ways.is_empty() { String::new() } else { format!(": {}", list(&ways)) };
    let says = format!(
        "The programs had up to {}, {} times the budget{how}. Pages of one repeated word take no room and are not in it.",
        size(held_at(most)),
        factor(held_at(most) as f64 / run.budget().max(1) as f64),
    );
    let (x, y) = (time(), Axis::new("Size before compression", Unit::Bytes));
    let mut figure = Figure::new(Kind::Stacked, "What the programs have, wherever it is", &says, x, y, places(samples));
    figure.series = bands(samples, &WHEREVER);
    figure.levels = vec![budget_level(run)];
    Some(figure)
}

fn by_process(run: &Run<'_>) -> Option<Figure> {
    let samples = run.samples();
    let peak = |bytes: &[u64]| bytes.iter().copied().max().unwrap_or(0);
    let (bands, small): (Vec<_>, Vec<_>) =
        run.course.processes.iter().partition(|process| peak(&process.bytes) >= BAND_BYTES);
    if bands.len() < 2 {
        return None;
    }
    let mut rest = run.course.others.clone();
    for process in small {
        rest.iter_mut().zip(&process.bytes).for_each(|(sum, bytes)| *sum += bytes);
    }
    let largest = bands[0];
    let others = peak(&rest) >= BAND_BYTES;
    let most = bands.iter().map(|process| &process.bytes);
    let together = (0..samples.len()).map(|at| most.clone().filter(|bytes| bytes.get(at) > Some(&BAND_BYTES)).count());
    let tail = match others {
        true => format!("of {}, the {} that had most are told apart.", run.process_count(), bands.len()),
        false => format!("up to {} processes had more than 1 MiB at the same time.", together.max().unwrap_or(0)),
    };
    let says =
        format!("{} ({}) had most, up to {} in RAM; {tail}", largest.comm, largest.pid, size(peak(&largest.bytes)));
    let (x, y) = (time(), Axis::new("Resident memory", Unit::Bytes));
    let mut figure = Figure::new(Kind::Stacked, "Resident memory by process", &says, x, y, places(samples));
    let numbers = |bytes: &[u64]| bytes.iter().map(|bytes| *bytes as f64).collect::<Vec<_>>();
    let name = |comm: &str, pid: i32| format!("{comm} {pid}");
    figure.series =
        bands.iter().map(|process| Series::new(&name(&process.comm, process.pid), numbers(&process.bytes))).collect();
    if others {
        figure.series.push(Series::new("all others", numbers(&rest)));
    }
    figure.levels = vec![budget_level(run)];
    Some(figure)
}

/// The largest of several processes.
fn table(run: &Run<'_>) -> Option<Table> {
    let mut rows: Vec<&Process> = run.stats.processes.iter().collect();
    if rows.len() < 2 {
        return None;
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.peak_total_bytes));
    let says = match rows.len() > ROWS {
        true => format!("The {ROWS} largest of {}.", rows.len()),
        false => String::new(),
    };
    let columns = [
        ("Process", Unit::Count),
        ("Most resident", Unit::Bytes),
        ("Pages taken out", Unit::Count),
        ("Faults", Unit::Count),
        ("Paged", Unit::Count),
    ];
    let row = |row: &&Process| -> Vec<Cell> {
        let [peak, evicted, faults] = [row.peak_total_bytes, row.evicted_pages, row.faults].map(|n| (n as f64).into());
        let name = format!("{} {}", row.comm, row.pid);
        vec![name.as_str().into(), peak, evicted, faults, if row.paged { "yes" } else { "no" }.into()]
    };
    Some(Table {
        title: "Processes".into(),
        says,
        columns: columns.map(|(name, unit)| Column::new(name, unit)).into(),
        rows: rows.iter().take(ROWS).map(row).collect(),
    })
}
