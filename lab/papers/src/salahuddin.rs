//! Salahuddin, Shin: zsmalloc with writeback and a size cap of 3072 bytes.

use crate::arm::arm;
use crate::chart::Chart;
use crate::lab::{device, setup, Job, Load, Plan, Runs, MIB};
use crate::recorded::Live;
use crate::statement::{Numbers, Statement};
use crate::Paper;
use memfit_codec::CodecId;
use memfit_report::Unit;
use memfit_sim::{kind, Contents};

/// The paper.
pub static PAPER: Paper = Paper {
    name: "salahuddin",
    title: "zsmalloc with write-back and selective rejection",
    source: "Salahuddin, Shin, \"Selective Rejection Technique for Compressed Object at Compressed Swap Cache\"",
    setting: "A quarter of the paper's size: 512 MiB for 2 GB, a browser of 162 MiB, a program that fills 375 MiB, swap of 64 MiB, a \
              pool of 5 MiB. Device sd-a1, an SD card; LZO takes 73 us, which is the published speed on an ARMv7 board by the \
              clock, and the processor's other costs are assumed. Times, pages and bytes are multiplied by 4 again.",
    differs: &[
        "What leaves is the idle memory of the browser alone, also while the other program fills its own: what that writes does not \
         matter, and both variants are the same but for the time.",
        "What the pages hold is not printed: 40 % of the program's have 20 % of random bytes, 40 % have half, 20 % are random.",
        "The simulator's two clocks: the program waits for reclaim when memory is short, and reclaim for the card.",
        "Swap usage is slots: zswap gives one to every page that leaves, also to those in the pool. So the printed 62 MB of the \
         enhanced one are 12 800 pages in the pool, 1900 written back and about 1100 rejected. What is on the card is a figure of \
         its own.",
        "memfit moves pages in runs into staging before they are compressed, 3 % of the budget.",
    ],
    statements: STATEMENTS,
    published: include_str!("../../published/salahuddin.toml"),
    jobs,
    derive,
    charts,
    recorded: Live {
        scale: 16.0,
        differs: &[
            "A browser's engine (node) with pages that are idle, and a program that fills 94 MiB, in 136 MiB. What counts is the time from the \
             start of that program to its end. Together they take a third more than there is, in the paper a twentieth: so that much \
             more leaves.",
        ],
        without: &["saves(", "uses("],
    },
};

/// Of the Exynos 4412.
const CLOCK_MHZ: u32 = 1700;
const RAM: f64 = 2048.0 * MIB;
const SWAP: f64 = 256.0 * MIB;
const SCALE: f64 = 4.0;
const SCALE_QUICK: f64 = 16.0;
const CAPS: [&str; 8] = ["1024", "1536", "2048", "2448", "2720", "3072", "3264", "4096"];
const CONFIGS: [&str; 3] = ["original", "zbud", "enhanced"];
/// Marks of the workload: the hog has filled its memory; the browser is open.
const FILLED: u32 = 1;
const OPEN: u32 = 0;

fn scale(plan: &Plan) -> f64 {
    plan.divisor(SCALE, SCALE_QUICK)
}

fn jobs(plan: &Plan) -> Vec<Job> {
    let (costs, device, scale) = (arm("Cortex-A9", CLOCK_MHZ), device("sd-a1"), scale(plan));
    let mut out = Vec::new();
    for variant in ["mix", "word"] {
        let load = Load::Made(format!("zsmalloc-sr:scale={scale},variant={variant},seed={}", plan.seed));
        let mut add = |config: &str, preset: &str, overrides: &[&str]| {
            let mut overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
            overrides.push("sizing.pool_permille=10".into());
            let setup = setup((preset, &overrides), RAM / scale, SWAP / scale, &costs, &device);
            out.push(Job { name: (variant.into(), config.into()), load: load.clone(), setup });
        };
        add("original", "zswap-zsmalloc", &["replacement=none"]);
        add("zbud", "zswap-zbud", &[]);
        add("enhanced", "zsmalloc-sr", &[]);
        if variant == "mix" {
            for cap in CAPS {
                add(&format!("cap {cap}"), "zsmalloc-sr", &[&format!("admission.max_len={cap}")]);
            }
        }
    }
    out
}

fn derive(plan: &Plan, runs: &Runs) -> Numbers {
    let (mut n, scale) = (Numbers::new(), scale(plan));
    for variant in ["mix", "word"] {
        let caps = CAPS.map(|cap| format!("cap {cap}"));
        for config in CONFIGS.into_iter().chain(caps.iter().map(String::as_str)) {
            let Some(run) = runs.get(variant, config) else { continue };
            let (Some(open), Some(filled)) = (run.mark(OPEN), run.mark(FILLED)) else { continue };
            let key = |what: &str| format!("{what}({config} {variant})");
            n.set(key("time"), (filled.at - open.at) as f64 * scale / 1e9);
            n.set(key("usage"), filled.blocks as f64 * 4096.0 * scale / MIB);
            n.set(key("on the card"), filled.swapped as f64 * 4096.0 * scale / MIB);
            n.set(key("density"), (filled.frames > 0).then(|| filled.zpages as f64 / (filled.frames as f64 / 256.0)));
            let counters = &filled.counters;
            // With admission `all`, incompressible pages go to the pool.
            let rejected = match config {
                "original" | "zbud" => counters.pool_full,
                _ => counters.pool_full + counters.incompressible,
            };
            n.set(key("writeback"), counters.to_swap.saturating_sub(rejected) as f64 * scale);
            n.set(key("rejected"), rejected as f64 * scale);
            n.set(key("random"), filled.tally.writes.random() as f64 * scale);
            n.set(key("written"), filled.tally.writes.bytes as f64 * scale / MIB);
        }
    }
    for (class, (size, share)) in classes().iter().zip(shares()).enumerate() {
        n.set(format!("saves({})", class + 1), 100.0 - f64::from(*size) / 40.96);
        n.set(format!("uses({})", class + 1), share);
    }
    n
}

/// Size classes by the rule of the kernel of that time. Candidates are 16 bytes apart. Each takes
/// the number of pages from 1 to 4 with the best use in whole percent. Neighbours with the same
/// numbers of pages and objects are one class.
fn classes() -> Vec<u32> {
    let mut out: Vec<(u32, u32, u32)> = Vec::new();
    for size in (32..=4096).step_by(16) {
        let used = |pages: u32| pages * 4096 / size * size * 100 / (pages * 4096);
        let pages = (1..=4).reduce(|best, pages| if used(pages) > used(best) { pages } else { best }).expect("four");
        let objects = pages * 4096 / size;
        match out.last_mut() {
            Some(last) if (last.1, last.2) == (pages, objects) => last.0 = size,
            _ => out.push((size, pages, objects)),
        }
    }
    out.into_iter().map(|(size, ..)| size).collect()
}

/// Percentage of the memory of all zpages in each class, for the pages of browser and hog as the
/// workload mixes them.
fn shares() -> Vec<f64> {
    // Tenths; the browser has 650 of 2150 MB.
    const BROWSER: [(f64, &str); 4] = [(1.0, "zero"), (5.0, "py-objects"), (2.0, "pointers"), (2.0, "random")];
    const HOG: [(f64, &str); 3] = [(4.0, "f=0.20"), (4.0, "f=0.50"), (2.0, "random")];
    const SAMPLES: u64 = 1000;
    let sizes = classes();
    let mut bytes = vec![0.0; sizes.len()];
    let mut contents = Contents::new();
    let kinds = BROWSER.iter().map(|(tenths, name)| (tenths * 650.0, name));
    for (weight, name) in kinds.chain(HOG.iter().map(|(tenths, name)| (tenths * 1500.0, name))) {
        for which in 0..SAMPLES {
            let id = contents.sample(kind(name).expect("a generator of this name"), which);
            let len = contents.get(id).len(CodecId::LZO).map_or(4096, u32::from);
            let class = sizes.iter().position(|size| len <= *size).expect("the last one takes a page");
            bytes[class] += weight * f64::from(sizes[class]);
        }
    }
    let all: f64 = bytes.iter().sum();
    bytes.into_iter().map(|bytes| 100.0 * bytes / all).collect()
}

const IN_ORDER: &str = "What the original refuses is written at once, in the order of the slots, with few seeks. The enhanced one rejects less, \
    but evicts whole zspages besides, whose pages have slots far apart: random writes of 2 ms each on this card. The \
    paper's original writes 65 MB more than the enhanced one, here both write about the same.";
const PUSHED_OUT: &str = "A pool of 1 % of RAM is turned over several times: what is kept now is written back later, so that all write back about \
    as much.";
const SLOTS: &str = "A page gets its slot when it leaves, so that all use as many as leave. In the paper twice as many leave under the two \
    others as under the enhanced one, which no rule of the pool explains.";

static STATEMENTS: &[Statement] = &[
    Statement::new(
        "Fig. 2",
        "the 68th class saves 20 % of a page, the first two about 99 %",
        "20 %, 99 %",
        &["saves(1)", "saves(2)", "saves(68)", "saves(69)"],
        |n| {
            Some(
                classes().len() == 69
                    && n.within(&["saves(1)", "saves(2)"], 98.5, 99.5)?
                    && n.within(&["saves(68)"], 20.0, 20.5)?,
            )
        },
        "",
    )
    .put_in("It follows from the rule of the size classes alone."),
    Statement::new(
        "Fig. 2",
        "the top classes (above 3072 bytes) take much memory and save little",
        "a plot",
        &["uses(68)", "uses(69)"],
        |n| Some(n.get("uses(68)")? + n.get("uses(69)")? > 25.0),
        "",
    ),
    Statement::new(
        "Fig. 3",
        "swap usage is lowest with the cap at 3072",
        "a plot, with its minimum there",
        &["usage(cap 2048 mix)", "usage(cap 3072 mix)", "usage(cap 4096 mix)"],
        |n| {
            let all = CAPS.map(|cap| n.get(&format!("usage(cap {cap} mix)")));
            let least = all.into_iter().collect::<Option<Vec<_>>>()?.into_iter().reduce(f64::min)?;
            Some(n.get("usage(cap 3072 mix)")? <= least)
        },
        SLOTS,
    ),
    Statement::new(
        "Fig. 3",
        "below 3072 it rises, because too many pages are refused",
        "a plot",
        &["usage(cap 1024 mix)", "usage(cap 2048 mix)", "usage(cap 3072 mix)"],
        |n| n.less(&["usage(cap 3072 mix)"], &["usage(cap 1024 mix)", "usage(cap 1536 mix)"]),
        SLOTS,
    ),
    Statement::new(
        "Table 2",
        "the enhanced one is faster than zbud",
        "16.16 s, 17.99 s",
        &["time(enhanced mix)", "time(zbud mix)"],
        |n| n.less(&["time(enhanced mix)"], &["time(zbud mix)"]),
        "",
    ),
    Statement::new(
        "Table 2",
        "and far before the original (by a fifth at least)",
        "16.16 s, 28.04 s",
        &["time(enhanced mix)", "time(original mix)"],
        |n| Some(n.get("time(enhanced mix)")? < 0.8 * n.get("time(original mix)")?),
        IN_ORDER,
    ),
    Statement::new(
        "Table 2",
        "about half of the swap space (at most 0.7)",
        "62 MB; zbud 115, original 127",
        &["usage(enhanced mix)", "usage(zbud mix)", "usage(original mix)"],
        |n| {
            let least = n.get("usage(zbud mix)")?.min(n.get("usage(original mix)")?);
            Some(n.get("usage(enhanced mix)")? < 0.7 * least)
        },
        SLOTS,
    ),
    Statement::new(
        "Table 2",
        "density: zbud < original < enhanced",
        "499 619 641 zpages a MB",
        &["density(zbud mix)", "density(original mix)", "density(enhanced mix)"],
        |n| n.rising(&["density(zbud mix)", "density(original mix)", "density(enhanced mix)"]),
        "",
    ),
    Statement::new(
        "Table 2",
        "zbud never holds more than 512 a MB (derived: two a page)",
        "499",
        &["density(zbud mix)"],
        |n| n.within(&["density(zbud mix)"], 0.0, 512.0),
        "",
    )
    .put_in("It follows from the rules of zbud alone."),
    Statement::new(
        "Table 2",
        "far fewer write-backs than zbud (a third at most)",
        "1911, 19 128",
        &["writeback(enhanced mix)", "writeback(zbud mix)"],
        |n| Some(3.0 * n.get("writeback(enhanced mix)")? < n.get("writeback(zbud mix)")?),
        PUSHED_OUT,
    ),
    Statement::new(
        "Table 2",
        "the original writes nothing back",
        "0",
        &["writeback(original mix)"],
        |n| n.within(&["writeback(original mix)"], 0.0, 0.0),
        "",
    )
    .put_in("The original cannot write back."),
];

fn charts() -> Vec<Chart> {
    let of = |title: (&str, &'static str, &'static str), what: &'static str, y: (&'static str, Unit)| {
        let mut chart = Chart::bars(title, "Scheme", CONFIGS.map(|config| (config, config)), y, []);
        chart.series = vec![
            ("mixed pages".into(), format!("{what}({{}} mix)")),
            ("a word a page".into(), format!("{what}({{}} word)")),
        ];
        chart
    };
    let numbers = |count: usize| (1..=count).map(|class| (class.to_string(), class as f64));
    let caps: Vec<(String, f64)> = CAPS.iter().map(|cap| ((*cap).to_owned(), cap.parse().expect("a number"))).collect();
    vec![
        Chart::curves(
            (
                "Saving and share of the memory by size class",
                "Fig. 2",
                "The small classes save nearly a page each, the last ones next to nothing and take much of the memory.",
            ),
            ("Class", Unit::Count),
            numbers(69),
            ("Of a page; of all", Unit::Percent),
            crate::chart::owned([("saved of a page", "saves({})"), ("share of the memory", "uses({})")]),
        ),
        Chart::curves(
            ("Swap usage by the cap", "Fig. 3", "Lowest at 3072 bytes."),
            ("Cap", Unit::Bytes),
            caps,
            ("Swap in use, MB", Unit::Count),
            crate::chart::owned([("mixed pages", "usage(cap {} mix)")]),
        ),
        of(
            ("Time of the allocation", "Table 2", "The enhanced one is fastest, the original far behind."),
            "time",
            ("Time", Unit::Seconds),
        ),
        of(
            ("Slots in use, also for pages in the pool", "Table 2", "Half as much under the enhanced one."),
            "usage",
            ("Swap in use, MB", Unit::Count),
        ),
        of(
            ("Of these, on the card", "Table 2", "The paper does not print it."),
            "on the card",
            ("On the card, MB", Unit::Count),
        ),
        of(("Density", "Table 2", "zbud below the two others."), "density", ("Zpages a MB", Unit::Count)),
        of(
            ("Zpages written back", "Table 2", "A tenth of zbud's under the enhanced one."),
            "writeback",
            ("Zpages", Unit::Count),
        ),
        of(
            (
                "Pages that go to swap as they are",
                "Table 2",
                "Derived from the table: about 1100 under the enhanced one, 330 under zbud.",
            ),
            "rejected",
            ("Pages", Unit::Count),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classes_are_the_printed_ones() {
        let classes = classes();
        assert_eq!(classes.len(), 69);
        assert_eq!((classes[1], classes[66], classes[67], classes[68]), (48, 3072, 3264, 4096));
    }

    #[test]
    fn shares_are_of_all() {
        let sum: f64 = shares().iter().sum();
        assert!((sum - 100.0).abs() < 1e-6);
    }
}
