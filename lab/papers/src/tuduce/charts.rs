//! Figures and tables of Tuduce and Gross.

use super::{levels, AREAS, BLOCK_SWEEP, CF_SWEEP, EFFECTS, FIXED, GRIDS, NS2, QSIM, RAND, SMV, ZONE_SWEEP};
use crate::chart::Chart;
use memfit_report::Unit;

/// Workloads with a printed time without compression.
const WITHOUT: [&str; 10] = [
    "rand 1.2 7",
    "rand 1.4 7",
    "rand 1.8 7",
    "qsim 1.3 1",
    "qsim 1.7 1",
    "qsim 1.7 1.5",
    "qsim 1.9 1",
    "qsim 1.9 1.5",
    "qsim 2.6 1",
    "qsim 2.6 1.5",
];

/// All figures and tables.
#[expect(clippy::too_many_lines, reason = "a list")]
pub fn charts() -> Vec<Chart> {
    let at = |keys: &[&str]| -> Vec<(String, f64)> {
        keys.iter().map(|key| ((*key).to_owned(), key.parse().expect("a number"))).collect()
    };
    let series = |what: &str, keys: &[&str]| -> Vec<(String, String)> {
        keys.iter().map(|key| (format!("{key} GB"), format!("{what}({key} {{}})"))).collect()
    };
    let fixed = |workload: &str, keys: &[&str], end: &str| -> Vec<(String, String)> {
        keys.iter().map(|key| (format!("{key} GB"), format!("fixed-{{}}({workload} {key}{end})"))).collect()
    };
    let percents: Vec<(String, f64)> =
        SMV.iter().map(|key| ((*key).to_owned(), key.parse().expect("a number"))).collect();
    let swept = ["1.3", "1.9"];
    let seconds = ("Time", Unit::Seconds);
    let mut out = vec![
        Chart::curves(
            (
                "thrasher: time with a fixed area / without compression",
                "Section 5.1",
                "Compression loses, up to 3 times.",
            ),
            ("Area of the paper, MB", Unit::Count),
            at(&AREAS.map(|(key, _)| key)),
            ("Slowdown", Unit::Ratio),
            crate::chart::owned([("Pentium 4", "slowdown(thrasher p4 {})"), ("G5", "slowdown(thrasher {})")]),
        )
        .level(1.0, "without compression"),
        Chart::bars(
            ("rand: speedup", "Section 5.1", "It gains the more the larger it is, up to 19 times."),
            "Size and ratio",
            [
                ("rand 1.2 7", "1.2 GB, 7 %"),
                ("rand 1.4 7", "1.4 GB, 7 %"),
                ("rand 1.8 7", "1.8 GB, 7 %"),
                ("rand 1.2 50", "1.2 GB, 50 %"),
                ("rand 1.4 50", "1.4 GB, 50 %"),
                ("rand 1.8 50", "1.8 GB, 50 %"),
            ],
            ("Speedup", Unit::Ratio),
            [("speedup", "speedup({})")],
        ),
        Chart::bars(
            ("rand: area found", "Section 5.1", "64, 96 and 140 MB."),
            "Size and ratio",
            [("rand 1.2 7", "1.2 GB, 7 %"), ("rand 1.4 7", "1.4 GB, 7 %"), ("rand 1.8 7", "1.8 GB, 7 %")],
            ("Area at the paper's size, MB", Unit::Count),
            [("area", "area({})")],
        ),
        Chart::curves(
            ("SMV: speedup by memory", "Tables 1 and 2", "A slight shortage loses, a larger one gains 3 to 4 times."),
            ("Memory, of what it allocates", Unit::Percent),
            percents.clone(),
            ("Speedup", Unit::Ratio),
            crate::chart::owned([("Pentium 4", "speedup(smv {})"), ("G5", "speedup(smv g5 {})")]),
        )
        .level(1.0, "without compression"),
        Chart::curves(
            ("SMV: slowdown without compression", "Tables 1 and 2", "Hundreds of times from 85 % of the memory on."),
            ("Memory, of what it allocates", Unit::Percent),
            percents,
            ("Slowdown", Unit::Ratio),
            crate::chart::owned([("Pentium 4", "slowdown(smv {})"), ("G5", "slowdown(smv g5 {})")]),
        )
        .log(),
        Chart::bars(
            ("NS2: speedup", "Tables 3 and 4", "Little gain, never a loss."),
            "Size, MB, and memory",
            NS2.map(|(name, ..)| (name, name)),
            ("Speedup", Unit::Ratio),
            [("CF 4", "speedup(ns2 {})"), ("CF 9", "nine(ns2 {})")],
        )
        .level(1.0, "without compression"),
        Chart::bars(
            ("Time without compression, at the paper's size", "Table 5", "Up to 14 hours."),
            "Program, GB and RAM or ratio",
            WITHOUT.map(|name| (name, name)),
            seconds,
            [("time", "without({})")],
        )
        .log(),
        Chart::bars(
            ("qsim: speedup", "Table 5", "Tens of times; less with more RAM."),
            "Size and RAM, GB",
            QSIM.map(|(name, ..)| (name, name)),
            ("Speedup", Unit::Ratio),
            [("speedup", "speedup(qsim {})")],
        ),
        Chart::curves(
            ("qsim: time with a fixed area / with the adaptive one", "Fig. 4", "The adaptive size is among the best."),
            ("Area of the paper, MB", Unit::Count),
            at(&FIXED.map(|(key, _)| key)),
            ("Time / adaptive", Unit::Ratio),
            fixed("qsim", &["1.3", "1.7", "1.9", "2.6"], " 1"),
        )
        .log()
        .level(1.0, "adaptive"),
        Chart::curves(
            ("rand: time with a fixed area / with the adaptive one", "Fig. 5", "The adaptive size is among the best."),
            ("Area of the paper, MB", Unit::Count),
            at(&FIXED.map(|(key, _)| key)),
            ("Time / adaptive", Unit::Ratio),
            fixed("rand", &RAND, " 7"),
        )
        .log()
        .level(1.0, "adaptive"),
        Chart::curves(
            (
                "qsim: time by entries a page (CF)",
                "Fig. 6",
                "Good once the table has as many entries as the pages need.",
            ),
            ("CF", Unit::Count),
            at(&CF_SWEEP),
            seconds,
            series("CF", &swept),
        ),
        Chart::curves(
            ("qsim: time by the size of a block", "Fig. 6", "Blocks below 512 bytes are good, 1024 bad."),
            ("Block", Unit::Bytes),
            at(&BLOCK_SWEEP),
            seconds,
            series("block", &swept),
        ),
        Chart::curves(
            (
                "qsim: time by the size of a zone",
                "Fig. 6",
                "4 MB is good for small sizes, larger ones need larger zones.",
            ),
            ("Zone of the paper, MB", Unit::Count),
            at(&ZONE_SWEEP),
            seconds,
            series("zone", &swept),
        ),
    ];
    let configs: Vec<(String, String)> = levels().map(|(_, name)| (name.clone(), name)).collect();
    for (name, ..) in GRIDS {
        let title = format!("qsim {name} GB: time by CF, block (bytes) and zone (MB)");
        let mut chart = Chart::bars(
            (
                &title,
                "Table 7",
                "The factors interact: neither large blocks nor large zones are good or bad by themselves.",
            ),
            "CF-block-zone",
            [],
            seconds,
            [],
        )
        .log();
        chart.rows = configs.clone();
        chart.series = vec![("time".into(), format!("time(qsim {name} {{}})"))];
        out.push(chart);
    }
    let workloads = ["qsim 1.3", "qsim 1.7", "qsim 1.9", "qsim 2.6", "rand 1.2", "rand 1.4", "rand 1.8"];
    for workload in workloads {
        let title = format!("{workload} GB: share of the variation");
        let mut chart = Chart::bars(
            (&title, "Table 8", "Which factor or combination the time depends on."),
            "Effect",
            EFFECTS.map(|effect| (effect, effect)),
            ("Share", Unit::Percent),
            [],
        );
        chart.series = vec![("share".into(), format!("share({workload} {{}})"))];
        out.push(chart);
    }
    out
}
