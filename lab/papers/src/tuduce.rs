//! Tuduce, Gross 2005: a compressed area of zones that adapts its size to its free room.

mod charts;
mod factors;
mod processors;
mod statements;

use crate::lab::{device, setup, Job, Load, Plan, Run, Runs, MIB};
use crate::recorded::Live;
use crate::statement::Numbers;
use crate::Paper;
use factors::shares;
use memfit_core::scheme::PoolScheme;
use memfit_sim::cost::CostTable;
use memfit_sim::device::Device;
use processors::{Processor, G5, PENTIUM_4};
use std::sync::Arc;

/// The paper.
pub static PAPER: Paper = Paper {
    name: "tuduce",
    title: "Adaptive compressed memory in zones",
    source: "Tuduce, Gross, \"Adaptive Main Memory Compression\", USENIX 2005",
    setting: "An eighth of the paper's size: 128 MiB for 1 GB, zones of 512 KiB for 4 MB; blocks and entries as in the paper; WKdm. \
              SMV at a quarter. Disk hdd-2005. The paper has no times of its processors for a page: those of WKdm on a Pentium Pro \
              are published (Wilson, Kaplan, Smaragdakis, USENIX 1999) and assumed to go by the clock: 17 and 10 us on the Pentium 4, 25 and 15 us \
              on the G5. All else, with memfit's hand-over of a fault to the pager, is assumed to be as much slower than today as WKdm's compression is: \
              4.1 and 6.0 times.",
    differs: &[
        "Fitted to plain swap: the time of a touch of SMV and of NS2 to their times with all memory, which are printed or follow from \
         printed slowdowns; and NS2's working set, 2 % of its pages with 99 % of ten touches a page, to its slowdowns without compression. NS2 on the \
         Pentium 4 takes 0.6 of the time of a touch on the G5, as SMV does: assumed. rand is not fitted: with the disk's data sheet it takes \
         as long as printed.",
        "Time is that of one processor and one disk, one thing after the other.",
        "Memory as percent of what the program allocates has 7 points added, which memfit keeps free and staged.",
        "rand and qsim touch what the generators say: uniformly random pages, and agents of 256 bytes in queues. NS2 and SMV are \
         orders of access made after what the paper says about them, not the programs.",
        "rand cannot have the ratio of 50 % that is printed and gain what is printed with the areas that are printed, by arithmetic: it is run with 50 % and 7 %.",
        "How long qsim runs is not printed. By the median of the seeds plain swap takes 0.7 to 1.4 of the printed time in 1 GB, and 2.6 to 4.3 of it \
         in 1.5 GB. With single seeds it takes a sixteenth of the printed time to five times as long, since the seed draws the order in which agents leave. The grids and single factors of qsim make 2 moves a page.",
        "A fixed area is an upper bound, not a reservation: see Fig. 4 and 5.",
        "Each frame of the area is charged with the tables of Eq. 1 as well: 8 bytes for a block, and 24 for an entry, which follows from its fields and is not printed.",
        "How often the area is looked at is scaled as all else: an eighth of the time or of the pages stored.",
    ],
    statements: statements::STATEMENTS,
    published: include_str!("../../published/tuduce.toml"),
    jobs,
    derive,
    charts: charts::charts,
    recorded: Live {
        scale: 2.0,
        differs: &[
            "A sixteenth of the paper's size, written in C after the paper's descriptions. rand, NS2 and qsim read and write each page \
             twice before what counts for them, and that is counted here as well; SMV has 14 points more memory.",
        ],
        // A program's share of the memory is another one there, and so are its accesses.
        without: &["slowdown(smv", "without("],
    },
};

const GB: f64 = 1024.0 * MIB;
const SCALE: f64 = 8.0;
const SCALE_QUICK: f64 = 128.0;
/// SMV is small already.
const SMV_SCALE: f64 = 4.0;
const SMV_SCALE_QUICK: f64 = 32.0;
/// Percentage points of the memory that memfit keeps free and staged.
const KEPT: f64 = 7.0;

/// Sizes of fixed areas in MB; they are rounded up to whole zones, see `fixed`.
const AREAS: [(&str, f64); 6] = [("48", 48.0), ("60", 60.0), ("72", 72.0), ("88", 88.0), ("92", 92.0), ("100", 100.0)];
const FIXED: [(&str, f64); 6] =
    [("16", 16.0), ("32", 32.0), ("64", 64.0), ("100", 100.0), ("140", 140.0), ("200", 200.0)];
const RAND: [&str; 3] = ["1.2", "1.4", "1.8"];
/// Percent of memory.
const SMV: [&str; 9] = ["97", "92", "87", "85", "82", "80", "78", "75", "73"];
/// Name, MB, percent of memory.
const NS2: [(&str, f64, f64); 7] = [
    ("730 70%", 730.0, 70.0),
    ("880 58%", 880.0, 58.0),
    ("880 50%", 880.0, 50.0),
    ("880 43%", 880.0, 43.0),
    ("990 51%", 990.0, 51.0),
    ("1500 68%", 1536.0, 68.0),
    ("1500 62%", 1536.0, 62.0),
];
/// The processors of Tables 1 and 2, and the time of a touch: with all memory SMV takes 6 s on the
/// Pentium 4 and 10 s on the G5.
const SMV_ON: [(&str, Processor, u32); 2] = [("smv", PENTIUM_4, 223), ("smv g5", G5, 375)];
/// Runs of Table 4 on the Pentium 4; the others are of the G5.
const NS2_P4: [&str; 3] = ["730 70%", "880 58%", "990 51%"];
/// With all memory, for the slowdowns of Table 3.
const NS2_FULL: [(&str, f64, f64); 2] = [("880 100%", 880.0, 100.0), ("1500 100%", 1536.0, 100.0)];
/// Percentages of NS2's pages that are its working set, and of its touches that go there: fitted to
/// the slowdowns without compression that Table 3 prints.
const NS2_SET: f64 = 2.0;
const NS2_SHARE: f64 = 99.0;
/// Name, GB, RAM in GB.
const QSIM: [(&str, f64, f64); 7] = [
    ("1.3 1", 1.33, 1.0),
    ("1.7 1", 1.77, 1.0),
    ("1.7 1.5", 1.77, 1.5),
    ("1.9 1", 1.99, 1.0),
    ("1.9 1.5", 1.99, 1.5),
    ("2.6 1", 2.66, 1.0),
    ("2.6 1.5", 2.66, 1.5),
];
/// Most MB of the area on the Pentium 4, whose kernel gives no more.
const CAP_P4: f64 = 100.0;
/// Sizes of Tables 6 to 8: name, GB.
const GRIDS: [(&str, f64); 4] = [("1.3", 1.33), ("1.7", 1.77), ("1.9", 1.99), ("2.6", 2.66)];
const EFFECTS: [&str; 7] = ["CF", "block", "zone", "CF+block", "CF+zone", "block+zone", "all three"];
/// Levels of the factors: CF, block in bytes, zone in MB. The high CF of rand is different.
const CFS: [u32; 2] = [4, 14];
const CFS_RAND: [u32; 2] = [4, 20];
const BLOCKS: [u32; 2] = [64, 1024];
const ZONES: [u32; 2] = [2, 8];
/// Levels for Fig. 6 and 7, which vary one factor at a time.
const CF_SWEEP: [&str; 6] = ["2", "4", "6", "9", "14", "20"];
const BLOCK_SWEEP: [&str; 5] = ["64", "128", "256", "512", "1024"];
const ZONE_SWEEP: [&str; 4] = ["2", "4", "8", "16"];
const SWEPT: [(&str, f64); 2] = [("1.3", 1.33), ("1.9", 1.99)];

/// The smallest possible zone, KiB.
const ZONE_MIN: f64 = 256.0;
/// Interval between two checks of the area at the paper's size, as in the scheme: ms, and stores.
const CHECK_MS: f64 = 1000.0;
const CHECK_STORES: f64 = 1024.0;
/// Pages for which an area that cannot grow keeps room, as in the scheme.
const RESERVE_PAGES: f64 = 64.0;

struct Bench<'a> {
    plan: &'a Plan,
    scale: f64,
    costs: Arc<CostTable>,
    device: Arc<Device>,
    jobs: Vec<Job>,
}

impl Bench<'_> {
    fn add(&mut self, workload: &str, config: &str, spec: &str, budget: f64, preset: &str, overrides: &[String]) {
        // Swap that is never full.
        let mut setup = setup((preset, overrides), budget, 4.0 * GB / self.scale, &self.costs, &self.device);
        setup.tables_per_frame = tables_per_frame(&setup.scheme.pool);
        self.jobs.push(Job { name: (workload.into(), config.into()), load: Load::Made(spec.into()), setup });
    }

    /// Overrides for an adaptive area: entries a page, bytes of a block, MB of a zone at the
    /// paper's size. A smaller scale fills a zone earlier, so the interval between checks is
    /// scaled, too.
    fn area(&self, scale: f64, entries: u32, block: u32, zone: f64) -> Vec<String> {
        let kib = ((zone * 1024.0 / scale / 4.0).round() * 4.0).max(ZONE_MIN);
        vec![
            format!("pool.zone_kib={kib}"),
            format!("pool.entries_per_frame={entries}"),
            format!("pool.block_bytes={block}"),
            format!("sizing.check_ms={}", (CHECK_MS / scale).round()),
            format!("sizing.check_stores={}", (CHECK_STORES / scale).round()),
            format!("sizing.reserve_pages={}", (RESERVE_PAGES / scale).round()),
        ]
    }

    /// Overrides for a fixed area in MB of 1 GB, rounded up, because a missing part of a zone costs
    /// the whole zone.
    fn fixed(&self, entries: u32, mb: f64) -> Vec<String> {
        let mut out = self.area(self.scale, entries, 128, 4.0);
        out.extend(["sizing=fixed".into(), at_most(mb)]);
        out
    }

    /// What is added from now on runs on this processor.
    fn on(&mut self, processor: Processor) {
        self.costs = processor.costs();
    }

    /// Adds a run without compression and one with an adaptive area.
    fn pair(&mut self, workload: &str, spec: &str, budget: f64, area: &[String]) {
        self.add(workload, "none", spec, budget, "swap", &[]);
        self.add(workload, "adaptive", spec, budget, "tuduce05", area);
    }

    fn qsim(&self, gb: f64, moves: f64) -> String {
        let moves = if self.plan.quick { MOVES_QUICK } else { moves };
        format!(
            "qsim:size={}M,scale={},moves={moves},warm=0,seed={}",
            (gb * 1024.0).round(),
            self.scale,
            self.plan.seed
        )
    }

    fn rand(&self, gb: &str, ratio: u32) -> String {
        format!("rand:size={gb}G,ratio={ratio},scale={},warm=0,seed={}", self.scale, self.plan.seed)
    }
}

/// Name of the workload, processor and memory of each run of NS2.
fn ns2() -> impl Iterator<Item = (&'static str, Processor, (&'static str, f64, f64))> {
    let of_p4 = NS2.into_iter().filter(|(name, ..)| NS2_P4.contains(name)).map(|run| ("ns2 p4", PENTIUM_4, run));
    NS2.into_iter().chain(NS2_FULL).map(|run| ("ns2", G5, run)).chain(of_p4)
}

/// Time of a touch, with one for the fill and ten more a page: by Table 3, 880 MB take 253 s with
/// all memory on the G5, and 1.5 GB 1204 s. The Pentium 4 takes 0.6 of it, as for SMV.
fn ns2_touch_ns(processor: Processor, mb: f64) -> u32 {
    let on_g5: u32 = if mb > 1000.0 { 277_000 } else { 102_000 };
    if processor.mhz == G5.mhz {
        on_g5
    } else {
        on_g5 / 10 * 6
    }
}

/// Equation 1, for a frame of an area in zones: two integers for each block, and six for each entry
/// of the table of compressed pages. None for the other pools, which are not the paper's.
fn tables_per_frame(pool: &PoolScheme) -> u64 {
    const INT: u64 = 4;
    match pool.kind.name {
        "zones" => 2 * INT * 4096 / u64::from(pool.block_bytes) + 6 * INT * u64::from(pool.entries_per_frame),
        _ => 0,
    }
}

/// Override for the size of a fixed area, or the largest one, in MB of 1 GB; rounded up.
fn at_most(mb: f64) -> String {
    format!("sizing.pool_permille={}", (mb / 1.024).ceil())
}

fn moves(gb: f64) -> f64 {
    MOVES.iter().find(|(size, _)| *size == gb).expect("a size of qsim").1
}

fn smv_scale(plan: &Plan) -> f64 {
    plan.divisor(SMV_SCALE, SMV_SCALE_QUICK)
}

/// Moves of agents for each page, by GB: chosen so that plain swap takes about the printed time in
/// 1 GB, by the median of the seeds. The seed draws the order in which agents leave, and single
/// seeds take a sixteenth of that time to twice as long.
const MOVES: [(f64, f64); 4] = [(1.33, 1.6), (1.77, 5.6), (1.99, 7.0), (2.66, 5.6)];
const MOVES_GRID: f64 = 2.0;
const MOVES_QUICK: f64 = 0.5;

fn jobs(plan: &Plan) -> Vec<Job> {
    let scale = plan.divisor(SCALE, SCALE_QUICK);
    let mut b = Bench { plan, scale, costs: G5.costs(), device: device("hdd-2005"), jobs: Vec::new() };
    let gb = GB / scale;
    let printed = PAPER.published();

    let thrasher = format!("thrasher:scale={scale}");
    for (workload, processor) in [("thrasher p4", PENTIUM_4), ("thrasher", G5)] {
        b.on(processor);
        b.add(workload, "none", &thrasher, gb, "swap", &[]);
        for (name, mb) in AREAS {
            let area = b.fixed(4, mb);
            b.add(workload, name, &thrasher, gb, "tuduce05", &area);
        }
    }
    for size in RAND {
        for (ratio, entries) in [(50, 4), (7, 14)] {
            let (spec, area) = (b.rand(size, ratio), b.area(scale, entries, 128, 4.0));
            b.pair(&format!("rand {size} {ratio}"), &spec, gb, &area);
        }
        let mb = printed.get(&format!("area(rand {size} 7)")).expect("it is printed");
        let (spec, area) = (b.rand(size, 50), b.fixed(4, mb));
        b.add(&format!("rand {size} 50"), "printed", &spec, gb, "tuduce05", &area);
        for (name, mb) in FIXED {
            let (spec, area) = (b.rand(size, 7), b.fixed(14, mb));
            b.add(&format!("rand {size} 7"), &format!("fixed {name}"), &spec, gb, "tuduce05", &area);
        }
        let spec = b.rand(size, 7);
        grid(&mut b, &format!("rand {size}"), &spec, CFS_RAND);
    }
    smv_and_ns2(&mut b);
    b.on(G5);
    let nine = b.area(scale, 9, 128, 4.0);
    for (name, size, ram) in QSIM {
        let spec = b.qsim(size, moves(size));
        b.pair(&format!("qsim {name}"), &spec, gb * ram, &nine);
        if ram == 1.0 {
            for (fixed, mb) in FIXED {
                let area = b.fixed(9, mb);
                b.add(&format!("qsim {name}"), &format!("fixed {fixed}"), &spec, gb, "tuduce05", &area);
            }
            let mut shrink = nine.clone();
            shrink.push("sizing.shrink_above_zones=3".into());
            b.add(&format!("qsim {name}"), "shrink3", &spec, gb, "tuduce05", &shrink);
        }
    }
    b.on(PENTIUM_4);
    let mut capped = nine.clone();
    capped.push(at_most(CAP_P4));
    let spec = b.qsim(1.99, moves(1.99));
    b.add("qsim 1.9 1", "capped p4", &spec, gb, "tuduce05", &capped);
    b.on(G5);
    for (name, size) in GRIDS {
        let spec = b.qsim(size, MOVES_GRID);
        grid(&mut b, &format!("qsim {name}"), &spec, CFS);
    }
    for (name, size) in SWEPT {
        let (spec, workload) = (b.qsim(size, MOVES_GRID), format!("sweep {name}"));
        let mut sweep = |factor: &str, level: &str, entries, block, zone| {
            let area = b.area(scale, entries, block, zone);
            b.add(&workload, &format!("{factor} {level}"), &spec, gb, "tuduce05", &area);
        };
        CF_SWEEP.iter().for_each(|cf| sweep("CF", cf, number(cf), 128, 4.0));
        BLOCK_SWEEP.iter().for_each(|block| sweep("block", block, 9, number(block), 4.0));
        ZONE_SWEEP.iter().for_each(|zone| sweep("zone", zone, 9, 128, number(zone).into()));
    }
    b.jobs
}

/// Adds the runs of Tables 1 to 4, each on its processor.
fn smv_and_ns2(b: &mut Bench<'_>) {
    let four = b.area(b.scale, 4, 128, 4.0);
    let area = b.area(smv_scale(b.plan), 4, 128, 4.0);
    for (name, processor, touch_ns) in SMV_ON {
        b.on(processor);
        let smv = format!("smv:scale={},touch_ns={touch_ns},seed={}", smv_scale(b.plan), b.plan.seed);
        for percent in SMV.into_iter().chain(["100"]) {
            let budget = 164.0 * MIB / smv_scale(b.plan) * (percent.parse::<f64>().expect("a number") + KEPT) / 100.0;
            let workload = format!("{name} {percent}");
            match percent {
                "100" => b.add(&workload, "none", &smv, budget, "swap", &[]),
                _ => b.pair(&workload, &smv, budget, &area),
            }
        }
    }
    let nine = b.area(b.scale, 9, 128, 4.0);
    for (prefix, processor, (name, mb, percent)) in ns2() {
        b.on(processor);
        let spec = format!(
            "ns2:size={mb}M,scale={},set={NS2_SET},share={NS2_SHARE},accesses=10,touch_ns={},warm=0,seed={}",
            b.scale,
            ns2_touch_ns(processor, mb),
            b.plan.seed
        );
        let (workload, budget) = (format!("{prefix} {name}"), mb * MIB / b.scale * (percent + KEPT) / 100.0);
        if percent == 100.0 {
            b.add(&workload, "none", &spec, budget, "swap", &[]);
            continue;
        }
        b.pair(&workload, &spec, budget, &four);
        if prefix == "ns2" {
            b.add(&workload, "adaptive9", &spec, budget, "tuduce05", &nine);
        }
    }
}

/// The level of a factor as a number.
fn number(level: &str) -> u32 {
    level.parse().expect("a number")
}

/// Adds the eight runs of a factorial experiment.
fn grid(b: &mut Bench<'_>, workload: &str, spec: &str, cfs: [u32; 2]) {
    for (levels, name) in levels() {
        let area = b.area(b.scale, cfs[levels[0]], BLOCKS[levels[1]], ZONES[levels[2]].into());
        b.add(&format!("grid {workload}"), &name, spec, GB / b.scale, "tuduce05", &area);
    }
}

/// The combinations of levels of CF, block and zone, with their names.
fn levels() -> impl Iterator<Item = ([usize; 3], String)> {
    (0..8).map(|bits| {
        let levels = [bits >> 2 & 1, bits >> 1 & 1, bits & 1];
        (levels, format!("{}-{}-{}", CFS[levels[0]], BLOCKS[levels[1]], ZONES[levels[2]]))
    })
}

/// Names of the workloads of SMV and NS2, which end in the percentage of memory.
fn smv_and_ns2_names() -> impl Iterator<Item = String> {
    let smv = SMV_ON.into_iter().flat_map(|(name, ..)| SMV.map(|percent| format!("{name} {percent}")));
    smv.chain(ns2().map(|(prefix, _, (name, ..))| format!("{prefix} {name}")))
}

/// Time of a run from its start, ns.
fn counted(run: &Run) -> f64 {
    run.end.serial as f64
}

fn derive(plan: &Plan, runs: &Runs) -> Numbers {
    let scale = plan.divisor(SCALE, SCALE_QUICK);
    let mut n = Numbers::new();
    let cycles = |run: &Run| (run.end.serial - run.mark(0).map_or(0, |snap| snap.serial)) as f64;
    for (workload, (name, _)) in ["thrasher", "thrasher p4"].into_iter().flat_map(|w| AREAS.map(|area| (w, area))) {
        n.set(format!("slowdown({workload} {name})"), runs.quotient(workload, name, "none", cycles));
    }
    let names = RAND
        .iter()
        .flat_map(|size| ["50", "7"].map(|ratio| format!("rand {size} {ratio}")))
        .chain(smv_and_ns2_names())
        .chain(QSIM.iter().map(|(name, ..)| format!("qsim {name}")));
    for workload in names {
        n.set(format!("speedup({workload})"), runs.quotient(&workload, "none", "adaptive", counted));
        n.set(format!("printed({workload})"), runs.quotient(&workload, "none", "printed", counted));
        let scale = if workload.starts_with("smv") { smv_scale(plan) } else { scale };
        n.set(format!("without({workload})"), runs.get(&workload, "none").map(|run| counted(run) * scale / 1e9));
        let adaptive = runs.get(&workload, "adaptive");
        n.set(format!("area({workload})"), adaptive.map(|run| run.most_frames() as f64 * 4096.0 * scale / MIB));
        n.set(
            format!("ratio({workload})"),
            adaptive.and_then(|run| {
                let (before, after) = run.end.tally.coded_bytes;
                (before > 0).then(|| after as f64 / before as f64)
            }),
        );
        let others = ["shrink3", "capped p4"].map(str::to_owned);
        for config in FIXED.iter().map(|(name, _)| format!("fixed {name}")).chain(others) {
            let of = runs.quotient(&workload, &config, "adaptive", counted);
            n.set(format!("{}({workload})", config.replace(' ', "-")), of);
        }
    }
    for (name, ..) in NS2 {
        n.set(format!("nine(ns2 {name})"), runs.quotient(&format!("ns2 {name}"), "none", "adaptive9", counted));
    }
    for workload in smv_and_ns2_names() {
        let (of, _) = workload.rsplit_once(' ').expect("a space before the percentage");
        let all = ["100", "100%"].into_iter().find_map(|all| runs.get(&format!("{of} {all}"), "none"));
        let none = runs.get(&workload, "none").map(counted);
        n.set(format!("slowdown({workload})"), none.zip(all.map(counted)).map(|(none, all)| none / all));
    }
    let grids = GRIDS.iter().map(|(name, ..)| format!("qsim {name}")).chain(RAND.map(|size| format!("rand {size}")));
    for workload in grids {
        let times = levels().map(|(_, config)| Some(counted(runs.get(&format!("grid {workload}"), &config)?) / 1e9));
        let Some(times) = times.collect::<Option<Vec<f64>>>() else { continue };
        for ((_, config), time) in levels().zip(&times) {
            n.set(format!("time({workload} {config})"), *time);
        }
        let shares = shares(times.try_into().expect("eight"));
        for (effect, share) in EFFECTS.iter().zip(shares) {
            n.set(format!("share({workload} {effect})"), share);
        }
    }
    for (name, _) in SWEPT {
        let sweeps = [("CF", &CF_SWEEP[..]), ("block", &BLOCK_SWEEP[..]), ("zone", &ZONE_SWEEP[..])];
        for (factor, levels) in sweeps {
            for level in levels {
                let run = runs.get(&format!("sweep {name}"), &format!("{factor} {level}"));
                n.set(format!("{factor}({name} {level})"), run.map(|run| counted(run) / 1e9));
                let area = run.map(|run| run.most_frames() as f64 * 4096.0 * scale / MIB);
                n.set(format!("{factor}-area({name} {level})"), area);
            }
        }
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 8 follows from Table 7, with the last digit off by one at most.
    #[test]
    fn shares_of_the_printed_times_are_the_printed_shares() {
        let printed = PAPER.published();
        let of = |name: String| printed.get(&name).expect("it is printed");
        for (name, _) in GRIDS {
            let times: Vec<f64> = levels().map(|(_, config)| of(format!("time(qsim {name} {config})"))).collect();
            for (got, effect) in shares(times.try_into().unwrap()).into_iter().zip(EFFECTS) {
                let printed = of(format!("share(qsim {name} {effect})"));
                assert!((got - printed).abs() < 0.051, "{name}: {got} for {printed}");
            }
        }
    }

    #[test]
    fn one_factor_alone_explains_all() {
        let times: Vec<f64> = levels().map(|(levels, _)| if levels[1] == 1 { 3.0 } else { 1.0 }).collect();
        assert_eq!(shares(times.try_into().unwrap()), [0.0, 100.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    }

    /// Of a zone of 4 MiB; the shares of `zones: eq1_printed_overhead`.
    #[test]
    fn eq1_is_charged() {
        let plan = Plan { seed: 1, scale: 1.0, quick: true };
        let jobs = jobs(&plan);
        let of = |config: &str| {
            let job = jobs.iter().find(|job| job.name == ("grid qsim 1.9".into(), config.into())).unwrap();
            job.setup.tables_per_frame as f64 / 4096.0
        };
        for (config, share) in [("4-64-2", 0.148), ("14-64-8", 0.207), ("4-1024-2", 0.031), ("14-1024-8", 0.090)] {
            assert!((of(config) - share).abs() < 0.001, "{config}: {}", of(config));
        }
        assert!(jobs.iter().filter(|job| job.name.1 == "none").all(|job| job.setup.tables_per_frame == 0));
    }
}
