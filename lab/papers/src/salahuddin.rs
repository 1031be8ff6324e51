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
    setting: "The paper's size: 2 GB, a browser of 634 MiB with all of the system, a program that fills 1500 MiB, swap of 256 MiB, a \
              pool of 20 MiB. Device sd-a1, an SD card; LZO takes 73 us, which is the published speed on an ARMv7 board by the \
              clock, and the processor's other costs are assumed.",
    differs: &[
        "Fitted to the column of the original, which the paper does not change: the browser's size to 127 MB of swap, and the part of \
         its pages that does not compress (9 %) to 619 zpages a MB. The rest of its contents is assumed: an eighth zeros, five \
         eighths small objects, a quarter pointers. Two tables have other sizes and other parts. Time is not fitted: it is made up of the \
         program's own time and the card's, and there is one number for the two.",
        "Where as many pages leave as are printed for a scheme, the browser is smaller: 622 MB for zbud, 569 MB for the enhanced one.",
        "No page compresses to more than 2448 bytes and less than a page. So caps from 2448 to 3264 bytes reject the same pages.",
        "Only the idle memory of the browser leaves, also while the other program fills its own. So the contents of that program do not \
         matter, and both variants differ by their times alone.",
        "The simulator's two clocks: the program waits for reclaim when memory is short, and reclaim for the card.",
        "Swap usage is slots: zswap gives one to every page that leaves, also to those in the pool. So the printed 62 MB of the \
         enhanced one are 12 800 pages in the pool, 1900 written back and about 1100 rejected. What is on the card is a figure of \
         its own.",
        "memfit moves pages in runs into staging before they are compressed, 3 % of the budget. These are in memory still: they do \
         not count as swap in use.",
    ],
    statements: STATEMENTS,
    published: include_str!("../../published/salahuddin.toml"),
    jobs,
    derive,
    charts,
    recorded: Live {
        scale: 4.0,
        differs: &[
            "A quarter of the paper's size: a browser, in C, of 135 MiB that is idle, and a program that fills 375 MiB, in 512 MiB. What \
             counts is the time from the start of that program to its end. Only times are taken: a recording does not tell when \
             the memory is filled, and how much leaves differs from run to run.",
        ],
        without: &[
            "saves(",
            "uses(",
            "usage(",
            "on the card(",
            "density(",
            "writeback(",
            "rejected(",
            "time(as printed",
            "time(random",
            "time(browser",
        ],
    },
};

/// Of the Exynos 4412.
const CLOCK_MHZ: u32 = 1700;
const RAM: f64 = 2048.0 * MIB;
const SWAP: f64 = 256.0 * MIB;
const SCALE: f64 = 1.0;
const SCALE_QUICK: f64 = 16.0;
/// Memory of the browser, MiB, and percentage of its pages that do not compress: fitted.
const BROWSER: u32 = 634;
const RANDOM: u32 = 9;
/// Other values of the two.
const BROWSERS: [u32; 6] = [560, 580, 600, 620, 634, 650];
const RANDOMS: [u32; 5] = [0, 5, 9, 15, 20];
/// Replacement in the pool: three readings of Table 1, whose text and pseudocode differ, and LRU.
const READINGS: [(&str, &str); 4] = [
    ("class and group", "round-robin"),
    ("class", "round-robin-class"),
    ("group", "round-robin-group"),
    ("LRU of zspages", "unit-lru"),
];
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
    let job = |case: Case| {
        let Case { variant, name, config, rule, browser, random } = case;
        let load = format!(
            "zsmalloc-sr:scale={scale},browser={browser}M,random={random},variant={variant},seed={}",
            plan.seed
        );
        let (preset, own) = match config {
            "original" => ("zswap-zsmalloc", Some("replacement=none")),
            "zbud" => ("zswap-zbud", None),
            _ => ("zsmalloc-sr", None),
        };
        let own = own.into_iter().chain(["sizing.pool_permille=10"]).map(str::to_owned);
        let overrides: Vec<String> = own.chain(rule).collect();
        let setup = setup((preset, &overrides), RAM / scale, SWAP / scale, &costs, &device);
        Job { name: (variant.into(), name), load: Load::Made(load), setup }
    };
    cases().into_iter().filter(|case| case.run_name() == case.name).map(job).collect()
}

/// What is simulated under one name.
struct Case {
    variant: &'static str,
    name: String,
    config: &'static str,
    /// A change of the scheme.
    rule: Option<String>,
    /// Memory of the browser, MiB.
    browser: u32,
    /// Percentage of its pages that do not compress.
    random: u32,
}

impl Case {
    /// Under which name it runs: several may be the same.
    fn run_name(&self) -> &str {
        let own = ["admission.max_len=3072", "replacement=round-robin"];
        let same = self.rule.as_deref().is_none_or(|rule| own.contains(&rule));
        if same && (self.browser, self.random) == (BROWSER, RANDOM) {
            self.config
        } else {
            &self.name
        }
    }

    /// Whether its pool takes pages that do not compress.
    fn takes_all(&self) -> bool {
        self.config != "enhanced" || self.rule.as_deref() == Some("admission.max_len=4096")
    }
}

fn cases() -> Vec<Case> {
    let fitted = |variant, name, config| Case { variant, name, config, rule: None, browser: BROWSER, random: RANDOM };
    let mix = |name, config| fitted("mix", name, config);
    let mut out: Vec<Case> = ["mix", "word"]
        .into_iter()
        .flat_map(|variant| CONFIGS.map(|config| fitted(variant, config.to_owned(), config)))
        .collect();
    let enhanced = |name, rule| Case { rule: Some(rule), ..mix(name, "enhanced") };
    out.extend(CAPS.map(|cap| enhanced(format!("cap {cap}"), format!("admission.max_len={cap}"))));
    out.extend(READINGS.map(|(_, rule)| enhanced(format!("reading {rule}"), format!("replacement={rule}"))));
    let printed = PAPER.published();
    let used = |config| printed.get(&format!("usage({config} mix)")).expect("it is printed") as u32;
    out.extend(["zbud", "enhanced"].map(|config| {
        let browser = BROWSER - (used("original") - used(config));
        Case { browser, ..mix(format!("as printed {config}"), config) }
    }));
    for config in CONFIGS {
        out.extend(BROWSERS.map(|browser| Case { browser, ..mix(format!("browser {browser} {config}"), config) }));
        out.extend(RANDOMS.map(|random| Case { random, ..mix(format!("random {random} {config}"), config) }));
    }
    out
}

fn derive(plan: &Plan, runs: &Runs) -> Numbers {
    let (mut n, scale) = (Numbers::new(), scale(plan));
    for case in cases() {
        let Some(run) = runs.get(case.variant, case.run_name()) else { continue };
        let (Some(open), Some(filled)) = (run.mark(OPEN), run.mark(FILLED)) else { continue };
        let key = |what: &str| format!("{what}({} {})", case.name, case.variant);
        n.set(key("time"), (filled.at - open.at) as f64 * scale / 1e9);
        n.set(key("usage"), filled.blocks.saturating_sub(filled.staged) as f64 * 4096.0 * scale / MIB);
        n.set(key("on the card"), filled.swapped as f64 * 4096.0 * scale / MIB);
        n.set(key("density"), (filled.frames > 0).then(|| filled.zpages as f64 / (filled.frames as f64 / 256.0)));
        let counters = &filled.counters;
        let rejected = counters.pool_full + if case.takes_all() { 0 } else { counters.incompressible };
        n.set(key("writeback"), counters.to_swap.saturating_sub(rejected) as f64 * scale);
        n.set(key("rejected"), rejected as f64 * scale);
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

/// Percentage of the memory of all zpages in each class, for the pages of the browser.
fn shares() -> Vec<f64> {
    const OBJECTS: [(f64, &str); 3] = [(0.125, "zero"), (0.625, "py-objects"), (0.25, "pointers")];
    const SAMPLES: u64 = 1000;
    let sizes = classes();
    let mut bytes = vec![0.0; sizes.len()];
    let mut contents = Contents::new();
    let random = f64::from(RANDOM) / 100.0;
    let kinds = OBJECTS.map(|(part, name)| (part * (1.0 - random), name)).into_iter().chain([(random, "random")]);
    for (weight, name) in kinds {
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
    but evicts whole zspages, whose pages have slots far apart: random writes of 2 ms each on this card. Both write \
    about the same here, in the paper the original 65 MB more.";
const FAR_APART: &str = "The enhanced one hardly writes then. What the original refuses is written in the order of the slots. What zbud writes \
    back has slots far apart: random writes of 2 ms each on this card.";
const ROUND_ROBIN: &str = "While little has been written back, the enhanced one is densest (see the table by the browser's size). Round-robin \
    over the classes then evicts as many zspages of classes with small zpages, which have few, as of those with large ones, and \
    the pool fills with large zpages. With LRU of zspages the enhanced one stays the densest (see the table by replacement).";
const SLOTS: &str = "A page gets its slot when it leaves, so that all use as many as leave. A pool can change that by its own size, 20 MB: with \
    the lowest caps it stays nearly empty, and programs have its memory. The paper's columns differ by 53 and 65 MB.";
const AS_MANY: &str =
    "Both have the same browser here, and turn their pool over: each page that is kept is written back later.";
const LEAVE: &str =
    "How many pages leave is put in: the pages in the pool, those written back and those rejected add up to it.";

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
        |n| Some(n.get("uses(68)")? + n.get("uses(69)")? > 20.0),
        "",
    )
    .put_in("9 % of the browser's pages do not compress, which is fitted. The bound is ours."),
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
        &["usage(cap 1024 mix)", "usage(cap 1536 mix)", "usage(cap 3072 mix)"],
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
        ROUND_ROBIN,
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
        AS_MANY,
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
    Statement::new(
        "Table 2, derived",
        "with as many pages leaving as printed for zbud (115 MB), it writes back as many as printed (to a tenth)",
        "19 128",
        &["writeback(as printed zbud mix)"],
        |n| n.within(&["writeback(as printed zbud mix)"], 0.9 * 19_128.0, 1.1 * 19_128.0),
        "",
    )
    .put_in(LEAVE),
    Statement::new(
        "Table 2, derived",
        "with as many leaving as printed for each, the enhanced one writes back a third of zbud's at most",
        "1911, 19 128",
        &["writeback(as printed enhanced mix)", "writeback(as printed zbud mix)"],
        |n| Some(3.0 * n.get("writeback(as printed enhanced mix)")? < n.get("writeback(as printed zbud mix)")?),
        "",
    )
    .put_in(LEAVE),
    Statement::new(
        "Table 2, derived",
        "with as many leaving as printed for each, density: zbud < original < enhanced",
        "499 619 641 zpages a MB",
        &["density(as printed zbud mix)", "density(original mix)", "density(as printed enhanced mix)"],
        |n| n.rising(&["density(as printed zbud mix)", "density(original mix)", "density(as printed enhanced mix)"]),
        "",
    )
    .put_in("As few pages leave under the enhanced one as are printed. With 11 MB more four tenths of its pool have been written back, and it is less dense than the original."),
    Statement::new(
        "Table 2, derived",
        "with as many leaving as printed for each, time: enhanced < zbud < original",
        "16.16 17.99 28.04 s",
        &["time(as printed enhanced mix)", "time(as printed zbud mix)", "time(original mix)"],
        |n| n.rising(&["time(as printed enhanced mix)", "time(as printed zbud mix)", "time(original mix)"]),
        FAR_APART,
    ),
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
    let mut out = vec![
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
    ];
    out.extend(sweeps());
    out
}

/// What is fitted or read in one of several ways, and other values of it.
fn sweeps() -> Vec<Chart> {
    let by_browser = |title: (&str, &'static str, &'static str), what: &str, y: (&'static str, Unit)| {
        let rows = BROWSERS.map(|browser| (browser.to_string(), f64::from(browser)));
        let series = CONFIGS.map(|config| (config.into(), format!("{what}(browser {{}} {config} mix)")));
        Chart::curves(title, ("Browser, MB", Unit::Count), rows, y, series)
    };
    let by_reading = |what: &str, key: &'static str, y: &'static str| {
        let says =
            "Turns, of the classes by the text, of the fullness groups by the pseudocode. LRU is not the paper's.";
        let title = format!("{what} of the enhanced one, by replacement");
        let mut chart = Chart::bars(
            (&title, "Table 1", says),
            "Turns by",
            READINGS.map(|(text, rule)| (rule, text)),
            (y, Unit::Count),
            [],
        );
        chart.series = vec![("enhanced".into(), format!("{key}(reading {{}} mix)"))];
        chart
    };
    vec![
        by_browser(
            (
                "Zpages written back, by the browser's size",
                "Table 2",
                "19 128 by zbud with 115 MB of swap, which is a browser of 622 MB here; 1911 by the enhanced one with 62 MB, 569 MB here.",
            ),
            "writeback",
            ("Zpages", Unit::Count),
        ),
        by_browser(
            (
                "Density, by the browser's size",
                "Table 2",
                "499, 619 and 641 with 115, 127 and 62 MB of swap: zbud, original and enhanced; browsers of 622, 634 and 569 MB here.",
            ),
            "density",
            ("Zpages a MB", Unit::Count),
        ),
        by_reading("Density", "density", "Zpages a MB"),
        by_reading("Zpages written back", "writeback", "Zpages"),
        Chart::curves(
            (
                "Density, by the pages that do not compress",
                "Table 2",
                "zbud below the two others. What the pages hold is not printed; 9 % fits the original's 619.",
            ),
            ("Do not compress", Unit::Percent),
            RANDOMS.map(|random| (random.to_string(), f64::from(random))),
            ("Zpages a MB", Unit::Count),
            CONFIGS.map(|config| (config.into(), format!("density(random {{}} {config} mix)"))),
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
