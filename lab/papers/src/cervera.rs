//! Cervera, Cortes, Becerra 1999: a small write cache of compressed pages against plain swap.

use crate::chart::Chart;
use crate::lab::{costs, device, setup, Job, Load, Plan, Run, Runs, MIB};
use crate::one_computer::{OneComputer, Seeks, Writes};
use crate::recorded::Live;
use crate::statement::{Numbers, Statement};
use crate::Paper;
use memfit_report::Unit;

/// The paper.
pub static PAPER: Paper = Paper {
    name: "cervera",
    title: "Compressed swap with a write cache",
    source: "Cervera, Cortes, Becerra, \"Improving Application Performance through Swap Compression\", FREENIX 1999",
    setting: "Half the paper's size: 28 MiB of memory for its 64 MiB less 8 for the system, 64 MiB of swap. The cache keeps its \
              share of RAM. Disk hdd-1999, costs cervera99 (300 us to compress a page, 50 to decompress it).",
    differs: &[
        "Time is that of one processor and one disk with a queue. The processor is given as by Linux 2.0; a process that waits \
         for the disk leaves it to another. The process that causes a cleaning waits for it, as in the paper (rule 12).",
        "Plain swap takes pages from the programs as memfit does. It writes four at a time, each time that four have come in: \
         kswapd of Linux 2.0 takes four when it is woken. Neighbours that wait in the queue of the disk become one write. \
         How many pages are written together decides most of the gain, so that it is drawn for 1 and 32, too.",
        "A seek takes less the shorter it is, by the square root: 1 ms to the next track, 8 ms for a third of 9 GB. A read of \
         the page after the one read last is answered by the disk's own buffer, also from the same block.",
        "The paper does not say how long its programs compute. Here a touch of a page takes 1 us in fft and sort, 5 us in \
         simulator, 100 us in xanim. With a quarter or four times as much, or with a disk of a quarter of the surface, the \
         speedups of single processes change by at most 12 %. Those of several processes change more, since a process that \
         has its pages in memory runs on while the others wait, and how far it comes \
         decides how many pages come back at all.",
        "Recorded programs run on a simpler computer, on which computing, reads, writes and codec follow one after the other, \
         and pages are written as memfit writes them.",
    ],
    statements: STATEMENTS,
    published: include_str!("../../published/cervera.toml"),
    jobs,
    derive,
    charts,
    recorded: Live {
        scale: 1.0,
        differs: &[
            "fft, a simulator of disks and a player of films written in C after the paper's, and sort of the GNU core utilities, in 30 \
             MiB.",
            "The swap of a recorded run is never full, so that it does not show how much more the same swap holds (Fig. 7).",
        ],
        without: &["swap("],
    },
};

/// Number of processes, and time of the processor for a touch of a page, ns. The paper has no
/// times. Estimates for the Pentium II at 350 MHz: fft, 5 N log N operations at 50 million a
/// second; sort, 1 us a comparison; simulator, 10 us an event of two touches; xanim, 2 ms a frame
/// of 19 pages.
fn processes(program: &str) -> (u32, u64) {
    match program {
        "fft" => (1, 1000),
        "fft-x10" => (10, 1000),
        "sort" => (1, 1000),
        "sort-x6" => (6, 1000),
        "simulator" => (1, 5000),
        "simulator-x5" => (5, 5000),
        "xanim" => (1, 100_000),
        "xanim-x4" => (4, 100_000),
        _ => unreachable!("no program is called {program}"),
    }
}

/// The paper's memory for programs, swap and general cache, bytes.
const RAM: f64 = 56.0 * MIB;
const SWAP: f64 = 128.0 * MIB;
const SCALE: f64 = 2.0;
const SCALE_QUICK: f64 = 16.0;

/// The disk beside `hdd-1999`: its average seek; the seek to the next track and the surface are
/// usual ones of 1999.
pub(crate) const SEEKS: Seeks = Seeks { surface: 9_000_000_000, average_ns: 8_000_000, track_ns: 1_000_000 };

/// Pages that Linux 2.0 writes when it is woken, with a seek if the disk has done something else
/// meanwhile (`kswapd_ctl.maxpages`). A process that finds no free page writes one.
const KSWAPD_PAGES: u64 = 4;
/// Other numbers of pages with which the gains are drawn.
const OTHER_PACES: [u64; 2] = [1, 32];
/// So memfit takes as few pages at a time as it can, as late as it can.
const KSWAPD: [&str; 3] = ["reclaim.batch_pages=16", "sizing.low_percent=1", "sizing.high_percent=2"];

/// Name, label.
const PROGRAMS: [(&str, &str); 8] = [
    ("fft", "fft"),
    ("fft-x10", "fft x10"),
    ("sort", "sort"),
    ("sort-x6", "sort x6"),
    ("simulator", "simulator"),
    ("simulator-x5", "simulator x5"),
    ("xanim", "xanim"),
    ("xanim-x4", "xanim x4"),
];
/// Cache sizes of Fig. 5 in KiB, and in permille of the memory.
const CACHES: [(&str, u32); 5] = [("256", 5), ("512", 9), ("1024", 18), ("2048", 36), ("4096", 71)];
/// Thresholds of Fig. 6 in percent, with the smallest cache.
const THRESHOLDS: [&str; 7] = ["1", "5", "10", "20", "30", "50", "70"];
/// Fig. 7 caps the gain at this factor, by the size of its table.
const MAX_GAIN: f64 = 2.0;

fn cswap(permille: u32, threshold: &str) -> Vec<String> {
    vec![format!("sizing.pool_permille={permille}"), format!("replacement.threshold_percent={threshold}")]
}

fn jobs(plan: &Plan) -> Vec<Job> {
    let scale = plan.divisor(SCALE, SCALE_QUICK);
    let (costs, device) = (costs("cervera99"), device("hdd-1999"));
    let mut out = Vec::new();
    for (program, _) in PROGRAMS {
        let (processes, touch_ns) = processes(program);
        let spec = format!("{program}:scale={scale},seed={},touch_ns=0", plan.seed);
        let mut add = |config: String, preset: &str, writes: Writes, overrides: Vec<String>| {
            let load = OneComputer { spec: spec.clone(), processes, touch_ns, writes, seeks: SEEKS, scale };
            let overrides = [overrides, KSWAPD.map(String::from).to_vec()].concat();
            let setup = setup((preset, &overrides), RAM / scale, SWAP / scale, &costs, &device);
            out.push(Job { name: (program.into(), config), load: Load::OneComputer(load), setup });
        };
        // Linux 2.0 does no read-ahead.
        for pages in [KSWAPD_PAGES].into_iter().chain(OTHER_PACES) {
            add(plain(pages), "swap", Writes::Paced(pages), vec!["fault.around_pages=1".into()]);
        }
        add("best".into(), "cervera99", Writes::Waited, cswap(18, "15"));
        let reads_too = [cswap(18, "50"), vec!["swap_format.cache_reads=1".into()]].concat();
        add("reads too".into(), "cervera99", Writes::Waited, reads_too);
        for (kib, permille) in CACHES {
            add(format!("cache {kib}"), "cervera99", Writes::Waited, cswap(permille, "50"));
        }
        for threshold in THRESHOLDS {
            if threshold != "50" {
                add(format!("threshold {threshold}"), "cervera99", Writes::Waited, cswap(5, threshold));
            }
        }
    }
    out
}

/// The name of plain swap that writes so many pages at a time. `plain` is the one that all else is
/// compared with.
fn plain(pages: u64) -> String {
    if pages == KSWAPD_PAGES {
        "plain".into()
    } else {
        format!("plain {pages}")
    }
}

/// Time of a run, ns. A recorded one has no [`OneComputer`]: there, nothing goes on while a process
/// waits.
fn time(run: &Run) -> f64 {
    run.elapsed.unwrap_or(run.end.serial) as f64
}

fn derive(_: &Plan, runs: &Runs) -> Numbers {
    let mut n = Numbers::new();
    for (program, _) in PROGRAMS {
        let speedup = |config: &str| runs.quotient(program, "plain", config, time);
        n.set(format!("speedup({program})"), speedup("cache 1024"));
        n.set(format!("best({program})"), speedup("best"));
        for pages in OTHER_PACES {
            n.set(format!("paced({program} {pages})"), runs.quotient(program, &plain(pages), "cache 1024", time));
        }
        for (kib, _) in CACHES {
            n.set(format!("cache({program} {kib})"), speedup(&format!("cache {kib}")));
        }
        for threshold in THRESHOLDS {
            let config = if threshold == "50" { "cache 256".into() } else { format!("threshold {threshold}") };
            n.set(format!("threshold({program} {threshold})"), speedup(&config));
        }
        let of = |threshold: &&str| n.get(&format!("threshold({program} {threshold})"));
        let best = THRESHOLDS.iter().filter_map(|threshold| Some((of(threshold)?, threshold.parse::<f64>().ok()?)));
        let best = best.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, threshold)| threshold);
        n.set(format!("best threshold({program})"), best);
        n.set(
            format!("written({program})"),
            runs.quotient(program, "cache 1024", "plain", |run| run.end.tally.writes.bytes as f64),
        );
        // Without blocks that were read, by the same with them.
        let hits = |run: &Run| (run.end.tally.faults.pool + run.end.tally.around.pool) as f64;
        let written = |run: &Run| run.end.tally.writes.bytes as f64;
        n.set(format!("hits({program})"), runs.quotient(program, "cache 1024", "reads too", hits));
        n.set(format!("blocks({program})"), runs.quotient(program, "cache 1024", "reads too", written));
        n.set(format!("reads too({program})"), speedup("reads too"));
        if let Some(run) = runs.get(program, "cache 1024") {
            n.set(format!("ratio({program})"), ratio(run));
            n.set(format!("swap({program})"), held(run.snaps.iter().map(|snap| (snap.swapped, snap.blocks))));
        }
    }
    n
}

/// Mean compressed size of all pages that were compressed. An incompressible page counts as a whole
/// one.
fn ratio(run: &Run) -> Option<f64> {
    let tally = &run.end.tally;
    let (before, after) = tally.coded_bytes;
    let tried: u64 = tally.compressions.iter().sum::<u64>() * 4096;
    (tried > 0).then(|| (after + tried - before) as f64 / tried as f64)
}

/// Evicted pages for each block in use, at most [`MAX_GAIN`], when most of the swap is in use:
/// early on, nearly all evicted pages may be in the cache. `of`: evicted pages and blocks at each
/// moment.
fn held(of: impl Iterator<Item = (u64, u64)>) -> Option<f64> {
    let (pages, blocks) = of.max_by_key(|(_, blocks)| *blocks)?;
    (blocks > 0).then(|| (pages as f64 / blocks as f64).min(MAX_GAIN))
}

/// Hits and written blocks of a cache without blocks that were read, by those of one with them.
const HITS: [&str; 8] = [
    "hits(fft)",
    "hits(fft-x10)",
    "hits(sort)",
    "hits(sort-x6)",
    "hits(simulator)",
    "hits(simulator-x5)",
    "hits(xanim)",
    "hits(xanim-x4)",
];
const BLOCKS: [&str; 8] = [
    "blocks(fft)",
    "blocks(fft-x10)",
    "blocks(sort)",
    "blocks(sort-x6)",
    "blocks(simulator)",
    "blocks(simulator-x5)",
    "blocks(xanim)",
    "blocks(xanim-x4)",
];

const HOLDS_MORE: &str = "For all but fft and fft x10 what 4 MB hold compressed outweighs what they take: each page found there saves a read \
                          with a seek, and these programs do not fit anyway. For xanim and xanim x4 that is little.";
const LONG_WRITE: &str = "A larger threshold is fewer seeks for several processes, too. Even a write of all 35 buffers of the smallest cache takes \
                          as long as three or four reads of single pages: no other process waits long behind it.";
const FEW_COME_BACK: &str =
    "Few pages come back with plain swap: a process that has its pages in memory runs until it has ended, while the \
                            others wait. So the time of the codec decides.";

static STATEMENTS: &[Statement] = &[
    Statement::new(
        "Table 1",
        "compressed size of what is swapped out (within 0.1)",
        "0.649 0.612 0.465 0.513 0.067 0.011 0.278 0.379",
        &[
            "ratio(fft)",
            "ratio(fft-x10)",
            "ratio(sort)",
            "ratio(sort-x6)",
            "ratio(simulator)",
            "ratio(simulator-x5)",
            "ratio(xanim)",
            "ratio(xanim-x4)",
        ],
        |n| {
            let printed = PAPER.published();
            let close = |(program, _): &(&str, &str)| {
                let name = format!("ratio({program})");
                Some((n.get(&name)? - printed.get(&name)?).abs() < 0.1)
            };
            PROGRAMS.iter().map(close).try_fold(true, |all, one| Some(all && one?))
        },
        "",
    )
    .put_in("The generators of the programs' pages were made after these ratios."),
    Statement::new(
        "Fig. 4",
        "fft is slower with compression: one page a buffer",
        "0.96",
        &["speedup(fft)", "paced(fft 32)"],
        |n| Some(n.get("speedup(fft)")? < 1.0),
        "Plain swap writes four pages with each seek, compressed swap some 60, which saves more time than codec and cache cost. It is \
         slower than a plain swap that writes 32 pages at a time.",
    ),
    Statement::new(
        "Fig. 4",
        "the other six gain 1.2 to 2.1",
        "1.2 to 2.1; single values only in a plot",
        &[
            "speedup(fft-x10)",
            "speedup(sort)",
            "speedup(sort-x6)",
            "speedup(simulator)",
            "speedup(xanim)",
            "speedup(xanim-x4)",
        ],
        |n| {
            let six = ["fft-x10", "sort", "sort-x6", "simulator", "xanim", "xanim-x4"];
            n.all_within(six.map(|program| format!("speedup({program})")), 1.2..=2.1)
        },
        "xanim reads its film in order: with plain swap a seek to the writes and one back interrupt that after each four pages. Few \
         pages of fft x10 come back with plain swap, so that the time of the codec decides.",
    ),
    Statement::new(
        "Fig. 4",
        "simulator x5 gains most of all",
        "6.5",
        &["speedup(simulator-x5)", "speedup(simulator)"],
        |n| {
            n.less(
                &["speedup(fft)", "speedup(sort)", "speedup(sort-x6)", "speedup(simulator)", "speedup(xanim)"],
                &["speedup(simulator-x5)"],
            )
        },
        FEW_COME_BACK,
    ),
    Statement::new(
        "Fig. 4",
        "and by more than 4",
        "6.5",
        &["speedup(simulator-x5)"],
        |n| Some(n.get("speedup(simulator-x5)")? > 4.0),
        FEW_COME_BACK,
    ),
    Statement::new(
        "Fig. 4",
        "a gain even at a ratio of 62 % (fft x10)",
        "more than 1.2",
        &["speedup(fft-x10)"],
        |n| Some(n.get("speedup(fft-x10)")? > 1.0),
        FEW_COME_BACK,
    ),
    Statement::new(
        "Fig. 5",
        "very large caches take memory from the program: 4 MB is worse than the best one for most",
        "a plot",
        &[
            "cache(fft 2048)",
            "cache(fft 4096)",
            "cache(fft-x10 2048)",
            "cache(fft-x10 4096)",
            "cache(sort 2048)",
            "cache(sort 4096)",
            "cache(sort-x6 2048)",
            "cache(sort-x6 4096)",
            "cache(simulator 2048)",
            "cache(simulator 4096)",
            "cache(xanim 2048)",
            "cache(xanim 4096)",
            "cache(xanim-x4 2048)",
            "cache(xanim-x4 4096)",
        ],
        |n| {
            let worse = |p: &str| Some(n.get(&format!("cache({p} 4096)"))? < best_cache(n, p)?);
            let all = ["fft", "fft-x10", "sort", "sort-x6", "simulator", "xanim", "xanim-x4"].map(worse);
            Some(all.into_iter().collect::<Option<Vec<_>>>()?.iter().filter(|worse| **worse).count() >= 4)
        },
        HOLDS_MORE,
    ),
    Statement::new(
        "Fig. 5",
        "about 1 MB is good throughout: within a tenth of the best size",
        "a plot",
        &[
            "cache(sort 1024)",
            "cache(sort 4096)",
            "cache(sort-x6 1024)",
            "cache(sort-x6 4096)",
            "cache(simulator 1024)",
            "cache(simulator 4096)",
        ],
        |n| {
            let good = |p: &str| Some(n.get(&format!("cache({p} 1024)"))? > 0.9 * best_cache(n, p)?);
            let all = ["fft", "fft-x10", "sort", "sort-x6", "simulator", "xanim", "xanim-x4"].map(good);
            Some(all.into_iter().collect::<Option<Vec<_>>>()?.into_iter().all(|good| good))
        },
        HOLDS_MORE,
    ),
    Statement::new(
        "Fig. 6",
        "very small thresholds are bad: many small writes, whose seeks take the time",
        "a plot",
        &["threshold(xanim 1)", "threshold(xanim 20)", "threshold(xanim-x4 1)", "threshold(xanim-x4 20)"],
        |n| {
            Some(
                n.less(&["threshold(xanim 1)"], &["threshold(xanim 20)"])?
                    && n.less(&["threshold(xanim-x4 1)"], &["threshold(xanim-x4 20)"])?,
            )
        },
        "",
    ),
    Statement::new(
        "Fig. 6",
        "a large threshold keeps the gain of one process (to a tenth)",
        "a plot",
        &["threshold(xanim 20)", "threshold(xanim 70)", "threshold(simulator 20)", "threshold(simulator 70)"],
        |n| {
            let keeps = |p: &str| {
                Some(n.get(&format!("threshold({p} 70)"))? > 0.9 * n.get(&format!("threshold({p} 20)"))?)
            };
            Some(keeps("xanim")? && keeps("simulator")? && keeps("fft")?)
        },
        "",
    ),
    Statement::new(
        "Fig. 6",
        "but several processes lose by it: they wait behind the long write",
        "a plot",
        &["threshold(xanim-x4 20)", "threshold(xanim-x4 70)", "threshold(fft-x10 20)", "threshold(fft-x10 70)"],
        |n| {
            Some(
                n.less(&["threshold(xanim-x4 70)"], &["threshold(xanim-x4 20)"])?
                    && n.less(&["threshold(fft-x10 70)"], &["threshold(fft-x10 20)"])?,
            )
        },
        LONG_WRITE,
    ),
    Statement::new(
        "Fig. 6",
        "thresholds of 10 to 20 % are the best for most (of 7, at least 4)",
        "10 to 20 %",
        &[
            "best threshold(fft)",
            "best threshold(sort)",
            "best threshold(sort-x6)",
            "best threshold(xanim)",
            "best threshold(xanim-x4)",
        ],
        |n| {
            let all = ["fft", "fft-x10", "sort", "sort-x6", "simulator", "xanim", "xanim-x4"];
            let best = all.map(|program| n.get(&format!("best threshold({program})")));
            let best = best.into_iter().collect::<Option<Vec<_>>>()?;
            Some(best.iter().filter(|threshold| (10.0..=20.0).contains(*threshold)).count() >= 4)
        },
        LONG_WRITE,
    ),
    Statement::new(
        "Section 2.4",
        "a cache without blocks that were read has about as many hits (for 5 of 8 programs, within a fifth)",
        "no numbers",
        &HITS,
        |n| most(n, "hits", |part| (0.8..=1.2).contains(&part), 5),
        "Pages leave in runs of neighbours. sort, simulator and xanim ask for neighbours one after the other, so that a block that was \
         read answers the next faults, too. In fft and fft x10 most blocks hold one page.",
    ),
    Statement::new(
        "Section 2.4",
        "and far fewer blocks are written (for 5 of 8 programs, a fifth fewer)",
        "no numbers",
        &BLOCKS,
        |n| most(n, "blocks", |part| part <= 0.8, 5),
        "Nearly each page that leaves is written with either cache: few come back or are freed before that.",
    ),
    Statement::new(
        "Fig. 7",
        "the same swap holds over half as much again in most cases (of 8, at least 5)",
        "more than +50 % in most cases; at most twice as much, by the size of the table",
        &[
            "swap(fft)",
            "swap(fft-x10)",
            "swap(sort)",
            "swap(sort-x6)",
            "swap(simulator)",
            "swap(xanim)",
            "swap(xanim-x4)",
        ],
        |n| most(n, "swap", |gain| gain > 1.5, 5),
        "When most blocks are in use. simulator x5 writes nothing with compression.",
    ),
];

/// Whether a number of so many programs is as wanted. A missing one matters only if the others do
/// not decide.
fn most(n: &Numbers, what: &str, is_wanted: impl Fn(f64) -> bool, count: usize) -> Option<bool> {
    let all = PROGRAMS.map(|(program, _)| n.get(&format!("{what}({program})")));
    let wanted = all.iter().flatten().filter(|&&number| is_wanted(number)).count();
    let missing = all.iter().filter(|number| number.is_none()).count();
    match wanted {
        _ if wanted >= count => Some(true),
        _ if wanted + missing < count => Some(false),
        _ => None,
    }
}

/// The best speedup of all cache sizes.
fn best_cache(n: &Numbers, program: &str) -> Option<f64> {
    CACHES
        .iter()
        .map(|(kib, _)| n.get(&format!("cache({program} {kib})")))
        .collect::<Option<Vec<_>>>()?
        .into_iter()
        .reduce(f64::max)
}

fn charts() -> Vec<Chart> {
    let of = |what: &str, programs: &[(&str, &str)]| -> Vec<(String, String)> {
        programs.iter().map(|(key, label)| ((*label).to_owned(), format!("{what}({key} {{}})"))).collect()
    };
    let at = |keys: &[&str]| -> Vec<(String, f64)> {
        keys.iter().map(|key| ((*key).to_owned(), key.parse().expect("a number"))).collect()
    };
    let without_x5: Vec<(&str, &str)> = PROGRAMS.into_iter().filter(|(key, _)| *key != "simulator-x5").collect();
    let mut caches = Chart::curves(
        ("Speedup by the size of the cache", "Fig. 5", "No size is best for all; very large ones hurt."),
        ("Cache of the paper, KiB", Unit::Count),
        at(&CACHES.map(|(kib, _)| kib)),
        ("Speedup", Unit::Ratio),
        of("cache", &without_x5),
    );
    caches = caches.level(1.0, "plain swap");
    let mut thresholds = Chart::curves(
        (
            "Speedup by the threshold, cache 256 KiB",
            "Fig. 6",
            "Small thresholds are bad; the best are 10 to 20 %; large ones cost several processes.",
        ),
        ("Threshold", Unit::Percent),
        at(&THRESHOLDS),
        ("Speedup", Unit::Ratio),
        of("threshold", &without_x5),
    );
    thresholds = thresholds.level(1.0, "plain swap");
    vec![
        Chart::bars(
            ("Compressed size / size", "Table 1", "the ratios, after which the generators are made."),
            "Program",
            PROGRAMS,
            ("Compressed / original", Unit::Ratio),
            [("ratio", "ratio({})")],
        ),
        Chart::bars(
            (
                "Speedup: time with plain swap / time with compressed swap",
                "Fig. 4",
                "fft loses a little, simulator x5 gains 6.5, the others 1.2 to 2.1, drawn by their middle.",
            ),
            "Program",
            PROGRAMS,
            ("Speedup", Unit::Ratio),
            [
                ("threshold 50 %", "speedup({})"),
                ("threshold 15 %", "best({})"),
                ("50 %, blocks that were read are cached, too", "reads too({})"),
                ("50 %, plain swap writes 1 page at a time", "paced({} 1)"),
                ("50 %, plain swap writes 32 pages at a time", "paced({} 32)"),
            ],
        )
        .log()
        .level(1.2, "1.2: least of the six others, paper")
        .level(2.1, "2.1: most of them"),
        caches,
        thresholds,
        Chart::bars(
            (
                "Swap that plain pages would need / swap that holds them",
                "Fig. 7",
                "More than half as much again in most cases, at most twice as much.",
            ),
            "Program",
            PROGRAMS,
            ("Pages for each block in use", Unit::Ratio),
            [("gain", "swap({})")],
        )
        .level(1.5, "+50 %"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_swap_holds_what_it_does_when_most_is_in_use() {
        assert_eq!(held([(0, 0), (90, 10), (150, 100), (60, 30)].into_iter()), Some(1.5));
        assert_eq!(held([(90, 10)].into_iter()), Some(MAX_GAIN));
        assert_eq!((held([(5, 0)].into_iter()), held(std::iter::empty())), (None, None));
    }

    #[test]
    fn a_missing_number_does_not_count_as_not_over() {
        let names = PROGRAMS.map(|(program, _)| format!("swap({program})"));
        let of = |over: usize, under: usize| {
            let gains = std::iter::repeat_n(1.6, over).chain(std::iter::repeat_n(1.4, under));
            Numbers::of(names.iter().map(String::as_str).zip(gains))
        };
        let judged = [(5, 0), (4, 0), (4, 1), (4, 4), (0, 3), (0, 4)]
            .map(|(over, under)| most(&of(over, under), "swap", |gain| gain > 1.5, 5));
        assert_eq!(judged, [Some(true), None, None, Some(false), None, Some(false)]);
    }
}
