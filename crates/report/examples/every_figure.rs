//! A page with a figure of each kind, of invented numbers: `cargo run -p memfit-report --example
//! every_figure > page.html`.

use memfit_report::{join, Axis, Cell, Column, Figure, Kind, Mark, Report, Section, Series, Table, Unit};
use std::io;

const MIB: f64 = 1024.0 * 1024.0;

/// The page.
pub fn every_figure() -> Report {
    let facts = [
        ("Command", "sqlite3 -batch :memory: '.read /srv/queries/all.sql'"),
        ("Budget", "512 MiB"),
        ("Scheme", "second chance, zstd, spilling"),
        ("Time", "1 h 0 min 12 s"),
        ("Peak without paging", "1 402 MiB"),
        ("Version", "memfit 0.1.0"),
    ];
    Report {
        title: "sqlite3 in half of its memory".into(),
        says: "The program stayed within 512 MiB for an hour and took 4.1 % longer than without a budget.".into(),
        facts: facts.map(|(name, value)| (name.into(), value.into())).into(),
        sections: vec![over_time(), codecs(), comparison()],
    }
}

/// Reproducible numbers between 0 and 1 that look like noise.
fn noise(step: usize, series: usize) -> f64 {
    let mut bits =
        (step as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (series as u64 + 1).wrapping_mul(0xd1b5_4a32_d192_ed03);
    bits = (bits ^ (bits >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (bits >> 40) as f64 / (1u64 << 24) as f64
}

fn seconds() -> Vec<f64> {
    (0..36_120).map(|step| step as f64 / 10.0).collect()
}

fn time() -> Axis {
    Axis::new("Time since the start", Unit::Seconds)
}

#[expect(clippy::too_many_lines, reason = "a list")]
fn over_time() -> Section {
    let seconds = seconds();
    let of = |name: &str, value: &dyn Fn(usize, f64) -> f64| {
        Series::new(name, seconds.iter().enumerate().map(|(step, second)| value(step, *second).max(0.0)))
    };
    let grown = |second: f64| (second / 300.0).min(1.0);
    let wave = |second: f64, period: f64| (second / period * std::f64::consts::TAU).sin();
    let resident = |step: usize, second: f64| {
        MIB * (grown(second) * (318.0 + 40.0 * wave(second, 900.0)) + 12.0 * noise(step / 20, 0))
    };
    let mut memory = Figure::new(
        Kind::Stacked,
        "Memory by state",
        "What is resident and what is compressed together stay below the budget; the rest is in the swap file.",
        time(),
        Axis::new("Memory", Unit::Bytes),
        seconds.clone(),
    );
    memory.series = vec![
        of("resident", &resident),
        of("compressed in the pool", &|step, second| {
            MIB * grown(second) * (118.0 - 24.0 * wave(second, 900.0) + 6.0 * noise(step / 30, 1))
        }),
        of("kept in advance", &|step, _| MIB * (8.0 + 4.0 * noise(step / 50, 2))),
        of("in the swap file", &|_, second| MIB * (second / 3600.0 * 640.0 - 60.0)),
    ];
    memory.levels = vec![Mark::new(512.0 * MIB, "budget 512 MiB")];
    memory.marks = vec![Mark::new(420.0, "index built"), Mark::new(2400.0, "second pass")];

    let mut faults = Figure::new(
        Kind::Lines,
        "Faults by source",
        "Most faults are served from the pool; those from the swap file come in bursts when the second pass begins.",
        time(),
        Axis::new("Faults", Unit::PerSecond),
        seconds.clone(),
    );
    let burst = |second: f64| if (2400.0..2520.0).contains(&second) { 5400.0 } else { 0.0 };
    faults.series = vec![
        of("pool", &|step, second| grown(second) * (2600.0 + 700.0 * wave(second, 440.0) + 900.0 * noise(step, 4))),
        of("swap file", &|step, second| (grown(second) * 260.0 + burst(second)) * noise(step, 5)),
        of("first touch", &|step, second| 9000.0 * (-second / 140.0).exp() * (0.6 + 0.4 * noise(step, 6))),
    ];
    for value in &mut faults.series[0].values[30_100..31_000] {
        *value = None;
    }
    faults.marks = vec![Mark::new(2400.0, "second pass"), Mark::new(3010.0, "stopped by the user")];

    let mut swap = Figure::new(
        Kind::Lines,
        "Swap traffic",
        "Twice as much is written as is read back.",
        time(),
        Axis::new("Traffic", Unit::BytesPerSecond),
        seconds.clone(),
    );
    swap.series = vec![
        of("written", &|step, second| MIB * grown(second) * 6.0 * noise(step / 3, 7)),
        of("read", &|step, second| MIB * (grown(second) + burst(second) / 900.0) * 2.2 * noise(step / 3, 8)),
    ];

    let mut processes = Figure::new(
        Kind::Stacked,
        "Memory by process",
        "The two workers share what the first process leaves.",
        time(),
        Axis::new("Resident", Unit::Bytes),
        seconds.clone(),
    );
    processes.series = (0..6)
        .map(|process| {
            of(&format!("sqlite3 {}", 4711 + process), &|step, second| {
                let alive = second > 280.0 * process as f64 && second < 3700.0 - 200.0 * process as f64;
                let size = 30.0 + 28.0 * noise(process, 9) + 20.0 * wave(second, 700.0 + 90.0 * process as f64);
                f64::from(alive) * MIB * (size + 3.0 * noise(step / 9, process))
            })
        })
        .collect();

    let mut budget = Figure::new(
        Kind::Steps,
        "Budget as it was set",
        "The budget was lowered twice while the program ran.",
        time(),
        Axis::new("Budget", Unit::Bytes),
        vec![0.0, 900.0, 2100.0, 3612.0],
    );
    budget.series = vec![Series::new("budget", [1024.0 * MIB, 768.0 * MIB, 512.0 * MIB, 0.0])];

    Section {
        title: "Over time".into(),
        text: vec!["Sampled ten times a second. What is drawn keeps the highest and the lowest values.".into()],
        tables: Vec::new(),
        figures: vec![memory, faults, swap, processes, budget],
    }
}

fn codecs() -> Section {
    let bounds: Vec<f64> = (0..=44).map(|step| 200.0 * 10f64.powf(f64::from(step) / 8.0)).collect();
    let bell = |middle: f64, width: f64, high: f64| {
        bounds
            .iter()
            .map(move |bound| (high * (-((bound / middle).log10() / width).powi(2)).exp()).floor())
            .collect::<Vec<f64>>()
    };
    let mut latency = Figure::new(
        Kind::Steps,
        "How long faults took",
        "A fault from the pool takes 4 µs, one from the swap file 150 µs, and one in a thousand more than 2 ms.",
        Axis::log("Latency", Unit::Nanoseconds),
        Axis::new("Faults", Unit::Count),
        bounds.clone(),
    );
    latency.series = vec![
        Series::new("pool", bell(4e3, 0.25, 61_000.0)),
        Series::new("swap file", bell(150e3, 0.4, 14_000.0)),
        Series::new("zero page", bell(0.9e3, 0.15, 30_000.0)),
    ];
    latency.marks = vec![Mark::new(4100.0, "median 4.1 µs"), Mark::new(310e3, "99 % 310 µs")];

    let mut ratio = Figure::of_names(
        Kind::Bars,
        "Compression by region",
        "The page cache of the database compresses best; random keys do not compress at all.",
        "Region",
        Axis::new("Compression ratio", Unit::Ratio),
        ["heap", "page cache", "stacks", "anonymous, random keys"],
    );
    ratio.series = vec![
        Series::new("lz4", [2.31, 3.02, 5.4, 1.0]),
        Series::new("zstd 1", [2.92, 4.11, 7.2, 1.0]),
        Series::new("zstd 3", [3.04, 4.4, 7.5, 1.01]),
    ];
    ratio.levels = vec![Mark::new(1.0, "no gain")];

    let columns = vec![
        Column::new("Codec", Unit::Count),
        Column::new("Pages", Unit::Count),
        Column::new("Stored", Unit::Bytes),
        Column::new("Compressing", Unit::Nanoseconds),
        Column::new("Share", Unit::Percent),
    ];
    let row = |name: &str, pages: f64, stored: f64, time: Option<f64>, share: f64| -> Vec<Cell> {
        vec![name.into(), pages.into(), (stored * MIB).into(), time.into(), share.into()]
    };
    let rows = vec![
        row("lz4", 1_204_331.0, 812.5, Some(1830.0), 61.2),
        row("zstd 1", 702_118.0, 391.25, Some(6204.0), 35.7),
        row("one value", 61_007.0, 0.0, None, 3.1),
    ];
    let table = Table { title: "Codecs".into(), says: "What was compressed with what.".into(), columns, rows };
    Section {
        title: "Faults and compression".into(),
        text: Vec::new(),
        tables: vec![table],
        figures: vec![latency, ratio],
    }
}

fn comparison() -> Section {
    let names = ["LRU", "second chance", "random", "Belady's optimum"];
    let budgets = [64.0, 96.0, 128.0, 192.0, 256.0, 384.0, 512.0, 768.0, 1024.0];
    let curve = |scheme: usize| -> Vec<(f64, f64)> {
        let cost = |budget: f64| 4e10 / budget.powf(1.25 + 0.14 * scheme as f64) * (1.0 + 0.5 * scheme as f64);
        let measured = budgets.iter().skip(scheme % 2);
        measured.map(|budget| (budget * MIB, cost(*budget))).collect()
    };
    let (places, values) = join(&[curve(0), curve(1), curve(2), curve(3)]);
    let mut curves = Figure::new(
        Kind::Curves,
        "Cost of faults against the budget",
        "From 256 MiB on the schemes differ by a factor of two; below that all of them wait for the swap file.",
        Axis::log("Budget", Unit::Bytes),
        Axis::log("Time in faults", Unit::Nanoseconds),
        places,
    );
    curves.series = names.iter().zip(values).map(|(name, values)| Series::with_gaps(name, values)).collect();
    curves.series[3].dashed = true;
    curves.marks = vec![Mark::new(512.0 * MIB, "this run")];

    let programs = ["sqlite", "redis", "gcc", "numpy sort", "java"];
    let mut bars = Figure::of_names(
        Kind::Bars,
        "Slowdown by program",
        "No scheme is best everywhere: the sort prefers random victims.",
        "Program",
        Axis::new("Time compared with no budget", Unit::Ratio),
        programs,
    );
    bars.series = vec![
        Series::new(names[0], [1.31, 1.22, 1.05, 2.44, 1.6]),
        Series::new(names[1], [1.28, 1.19, 1.04, 2.31, 1.52]),
        Series::with_gaps(names[2], [Some(1.62), Some(1.7), Some(1.2), Some(1.92), None]),
    ];

    let mut paper = Figure::of_names(
        Kind::Bars,
        "The paper's values and ours",
        "Ours have the same order; the gain for gcc is smaller than the published one.",
        "Program",
        Axis::new("Faults fewer than LRU", Unit::Percent),
        programs,
    );
    paper.series = vec![
        Series::new("paper", [24.0, 31.0, 18.0, 40.0, 12.0]).dashed().colour(1),
        Series::new("ours", [22.5, 29.1, 9.8, 41.3, 11.0]).colour(1),
    ];

    let mut points = Figure::of_names(
        Kind::Points,
        "The same as points",
        "Points show how far ours are from the published values.",
        "Program",
        Axis::new("Faults fewer than LRU", Unit::Percent),
        programs,
    );
    points.series = paper.series.clone();
    points.series[0].colour = Some(0);

    let title = "Schemes & papers".into();
    Section { title, figures: vec![curves, bars, paper, points], ..Section::default() }
}

#[allow(dead_code)] // The test in the browser has only the page.
fn main() -> io::Result<()> {
    every_figure().write(&mut io::stdout().lock())
}
