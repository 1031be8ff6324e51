//! Han, Kim, Lee, Lee, Kim 2018: zRAM and flash swap together, routed by who reclaims.

use crate::chart::Chart;
use crate::lab::{costs, device, mean, setup, Job, Load, Plan, Run, Runs, Snap};
use crate::phone::{Killer, Phone, APPS};
use crate::recorded::Live;
use crate::statement::{Numbers, Statement};
use crate::Paper;
use memfit_report::Unit;

/// The paper.
pub static PAPER: Paper = Paper {
    name: "han",
    title: "Hybrid swapping with per-process reclaim",
    source: "Han, Kim, Lee, Lee, Kim, \"A Hybrid Swapping Scheme Based On Per-Process Reclaim for Performance Improvement of \
             Android Smartphones\", IEEE Access 6, 2018",
    setting: "A 36th of the phones' size: 56 MiB with 16 applications of 75 MiB, 112 and 168 MiB with 60 of 281 MiB. Storage \
              emmc-han and costs han18, which are the paper's equations 3 to 6. 12.5 % of the frames for zRAM (a quarter of RAM \
              uncompressed) and a quarter of RAM for swap in storage, which the paper does not tell. Times, pages and bytes are \
              multiplied by 36 again.",
    differs: &[
        "The low-memory killer runs when a program had to wait for reclaim, and when there is no room at all: the paper does not \
         tell its thresholds. With 2 GB it runs under zSWAP before the pool writes anything to storage. It \
         takes the application with most in memory, except the one in use. Under zRAM and zSWAP it kills it. Under hybrid the application leaves memory as a whole, unless the space for it in RAM is full or half of the \
         application is out already: then it is killed (rules 4 to 9).",
        "What has left as a whole comes back page by page when it is touched; the paper describes no prefetch.",
        "An application that was killed starts anew at its next launch: it makes its data and reads its file at the paper's cost of \
         a page. A start takes a second of the processor besides, at the phone's size: assumed, so that starts take about two \
         seconds.",
        "memfit's hybrid gives a slot in storage to each page in zRAM as well, which the paper's two spaces side by side do not; so \
         that many slots are added to its storage here.",
        "By their presets zSWAP and storage alone read 8 pages around a fault from storage, and hybrid one.",
        "The first turn, which starts all, is not counted.",
        "How much an application touches when it is entered is not printed. 20 % of its pages are fitted to the two pages-in and \
         pages-out counts of zSWAP on the phone with 2 GB; all else is predicted. The figure of entry times by this share shows \
         what depends on it.",
        "What an application does with its processor when it is entered, most of the seconds that are printed, is not known: entry \
         times here are page operations alone.",
    ],
    statements: STATEMENTS,
    published: include_str!("../../published/han.toml"),
    jobs,
    derive,
    charts,
    recorded: Live {
        scale: 1.0,
        differs: &[
            "16 applications written in C beside the phone with 2 GB; 8 turns. No application is killed, and zRAM alone takes what it \
             needs.",
            "The first turn is counted as well. When an application is triggered is not in a recording, so there are no entry \
             times; and no time passes between two turns, so bytes a day cannot be had.",
        ],
        without: &["written(", "days(", "kills(", "wear(", "left whole("],
    },
};

const SCALE: f64 = 36.0;
const SCALE_QUICK: f64 = 288.0;
/// RAM of the phone with 2 GB.
const RAM: f64 = 56.0 * 36.0 * 1_048_576.0;
/// Name, RAM relative to that phone, applications.
const PHONES: [(&str, f64, usize); 3] = [("Stylo", 1.0, 16), ("G7", 2.0, 60), ("V35", 3.0, 60)];
const SCHEMES: [&str; 3] = ["zram", "zswap", "hybrid"];
/// Percentage of its pages that a launch of an application touches. Fitted: under zSWAP the phone
/// with 2 GB moves about as many pages as printed. The other values show what depends on it.
const HOT: u64 = 20;
const HOTS: [u64; 5] = [10, 15, 20, 30, 40];
/// Storage alone, for the order of O(t) on the first phone.
const STORAGE: &str = "storage";
/// Share of the frames for compressed pages, and pages that a frame holds.
const ZRAM: f64 = 0.125;
const COMPRESSES: f64 = 2.0;
/// Rated writes of the storage, bytes.
const RATED: f64 = 9.0 * 1_099_511_627_776.0;
/// At the phone's size, time in use after a launch; and time to read a page of a file, equation 3.
const DWELL_NS: f64 = 10_800_000_000.0;
const FILE_NS: u64 = 195_300;
/// Processor time to start an application at the phone's size: with its file a start takes two
/// seconds. Assumed.
const START_NS: f64 = 1_000_000_000.0;

/// Name of the phone with 2 GB, with launches that touch another percentage.
fn touching(hot: u64) -> String {
    if hot == HOT {
        "Stylo".into()
    } else {
        format!("Stylo {hot}%")
    }
}

fn scale(plan: &Plan) -> f64 {
    plan.divisor(SCALE, SCALE_QUICK)
}

fn phone(plan: &Plan, apps: usize, killer: Killer, hot: u64) -> Phone {
    let scale = scale(plan);
    let turns = if plan.quick { 3 } else { 16 };
    let (dwell_ns, start_ns) = ((DWELL_NS / scale) as u64, (START_NS / scale) as u64);
    Phone { apps, turns, scale, seed: plan.seed, dwell_ns, file_ns: FILE_NS, start_ns, killer, hot }
}

fn jobs(plan: &Plan) -> Vec<Job> {
    let (costs, device) = (costs("han18"), device("emmc-han"));
    let mut out = Vec::new();
    let phones = PHONES.map(|(name, ram, apps)| (name.to_owned(), ram, apps, HOT));
    let other = HOTS.iter().filter(|&&hot| hot != HOT).map(|&hot| (touching(hot), 1.0, APPS.len(), hot));
    for (name, ram, apps, hot) in phones.into_iter().chain(other) {
        let ram = RAM * ram / scale(plan);
        for scheme in SCHEMES.into_iter().chain((name == "Stylo").then_some(STORAGE)) {
            let files = ["classes=file-dropped", "reclaim.file_age=64"];
            let (preset, more, swap): (_, &[&str], _) = match scheme {
                "zram" => ("zram", &["sizing=fixed", "codec.same_filled=0"], 0.0),
                "zswap" => ("zswap-zbud", &[], ram / 4.0),
                STORAGE => ("swap", &[], ram / 4.0),
                // memfit gives each page in zRAM a slot, too. As many slots are added, so that
                // storage is separate from zRAM.
                _ => ("hybrid18", &[], ram / 4.0 + ram * ZRAM * COMPRESSES),
            };
            let killer = if scheme == "hybrid" { Killer::Reclaims } else { Killer::Kills };
            let space = ["sizing.pool_permille=125"];
            let overrides: Vec<String> =
                files.iter().chain(more).chain(&space).map(|text| (*text).to_owned()).collect();
            out.push(Job {
                name: (name.clone(), scheme.into()),
                load: Load::Phone(phone(plan, apps, killer, hot)),
                setup: setup((preset, &overrides), ram, swap, &costs, &device),
            });
        }
    }
    out
}

/// Pages moved from the end of the first turn to the end of the run, at the phone's size.
struct Moved {
    /// Pages in (i) and out (o): files read again (f), storage (s), compressed space (z).
    fi: f64,
    si: f64,
    so: f64,
    zi: f64,
    zo: f64,
}

impl Moved {
    fn between(from: &Snap, to: &Snap, scale: f64) -> Moved {
        let of = |count: fn(&Snap) -> u64| (count(to) - count(from)) as f64 * scale;
        Moved {
            fi: of(|s| s.tally.file_reads.bytes / 4096),
            si: of(|s| s.tally.reads.bytes / 4096),
            so: of(|s| s.tally.writes.bytes / 4096),
            zi: of(|s| s.tally.faults.pool + s.tally.around.pool),
            zo: of(|s| s.tally.compressions.iter().sum()),
        }
    }

    /// O(t) of equations 12, 14 and 16, ms.
    fn cost(&self, cached: bool) -> f64 {
        let also = f64::from(u8::from(cached));
        0.1953 * self.fi
            + (0.1953 + 0.0781 * also) * self.si
            + (0.3906 + 0.0390 * also) * self.so
            + 0.0390 * self.zi
            + 0.0781 * self.zo
    }
}

fn derive(plan: &Plan, runs: &Runs) -> Numbers {
    let (mut n, scale) = (Numbers::new(), scale(plan));
    for (name, ram, apps) in PHONES {
        let ram = RAM * ram / scale;
        for scheme in SCHEMES.into_iter().chain([STORAGE]) {
            let Some(run) = runs.get(name, scheme) else { continue };
            let key = |what: &str| format!("{what}({name} {scheme})");
            let first = run.mark_or_start(apps as u32);
            n.set(key("extended"), extended(run, first, ram));
            let entries = entries(run, apps, scale);
            n.set(key("entry"), mean(entries.iter().map(|(_, ms)| *ms)));
            if apps == APPS.len() {
                for (number, (app, _)) in APPS.iter().enumerate() {
                    let of = entries.iter().filter(|(app, _)| *app == number).map(|(_, ms)| *ms);
                    n.set(format!("entry({name} {scheme} {app})"), mean(of));
                }
            }
            let moved = Moved::between(first, &run.end, scale);
            n.set(key("in"), moved.si + moved.zi);
            n.set(key("out"), moved.so + moved.zo);
            n.set(key("reread"), moved.fi);
            n.set(key("to storage"), moved.so);
            n.set(key("to zram"), moved.zo);
            n.set(key("cost"), moved.cost(scheme == "zswap") / 1000.0);
            n.set(key("kills"), (run.end.kills - first.kills) as f64);
            n.set(key("left whole"), (run.end.left_whole - first.left_whole) as f64);
            // Time is scaled like bytes.
            let (bytes, days) = (moved.so * 4096.0, (run.end.at - first.at) as f64 * scale / 86_400e9);
            n.set(key("written"), bytes / days / 1_073_741_824.0 * 2.0);
            n.set(key("days"), (bytes > 0.0).then(|| RATED / bytes * days));
        }
        for other in ["zram", "zswap"] {
            let pairs = APPS.map(|(app, _)| {
                let of = |scheme: &str| n.get(&format!("entry({name} {scheme} {app})"));
                Some(of("hybrid")? < of(other)?)
            });
            let faster = pairs.into_iter().collect::<Option<Vec<_>>>();
            n.set(
                format!("faster({name} {other})"),
                faster.map(|all| all.into_iter().filter(|faster| *faster).count() as f64),
            );
        }
        let written = |scheme: &str| n.get(&format!("written({name} {scheme})"));
        n.set(format!("wear({name})"), written("zswap").zip(written("hybrid")).map(|(zswap, hybrid)| zswap / hybrid));
        let both =
            |scheme: &str| Some(n.get(&format!("in({name} {scheme})"))? + n.get(&format!("out({name} {scheme})"))?);
        n.set(format!("swaps({name})"), both("zswap").zip(both("hybrid")).map(|(zswap, hybrid)| zswap / hybrid));
    }
    for gb in [4.5, 29.0] {
        n.set(format!("days(printed {gb})"), RATED / (gb * 1_073_741_824.0) * 2.0);
    }
    for (hot, scheme) in HOTS.iter().flat_map(|hot| SCHEMES.map(|scheme| (hot, scheme))) {
        let run = runs.get(&touching(*hot), scheme);
        let entries = run.map(|run| entries(run, APPS.len(), scale));
        n.set(
            format!("entry by share({hot} {scheme})"),
            entries.and_then(|all| mean(all.into_iter().map(|(_, ms)| ms))),
        );
    }
    n
}

/// Entry times after the first turn: the application, and ms at the phone's size.
fn entries(run: &Run, apps: usize, scale: f64) -> Vec<(usize, f64)> {
    let later = run.launches(apps as u32).filter(|(mark, ..)| *mark as usize / (apps + 1) > 0);
    later.map(|(mark, ns, _)| (mark as usize % (apps + 1), ns as f64 * scale / 1e6)).collect()
}

/// All pages that the applications have, wherever they are, relative to RAM: the mean after the
/// first turn.
fn extended(run: &Run, first: &Snap, ram: f64) -> Option<f64> {
    let later = run.snaps.iter().filter(|snap| snap.at > first.at);
    mean(later.map(|snap| (snap.resident + snap.zpages + snap.swapped) as f64 * 4096.0 / ram))
}

const STAYS: &str = "Background reclaim finds room in storage in time, so that programs hardly ever wait under hybrid and most applications \
    stay. Under the others programs wait, and the killer runs.";
const KILLER: &str = "The killer decides it, whose threshold is assumed: it runs whenever a program waits. With 2 GB zSWAP therefore kills \
    as many as zRAM, and writes nothing to storage. Under hybrid background reclaim finds room in storage in time, so that programs hardly \
    ever wait and most applications stay.";
const STORED: &str = "By their origin most pages go to storage under hybrid, where a page costs several times what it costs in RAM. What stays \
    alive is swapped out and in again at each entry, and under hybrid more stays; an application that starts anew swaps \
    nothing in.";
const STARTS: &str = "It follows from the kills, and these from the killer's threshold, which is assumed: with 2 GB zSWAP kills before it \
    writes anything to storage. Under the others an entry pays for the starts of applications that were killed, under hybrid for pages \
    from storage. With \
    20 % of the pages touched at an entry the starts cost more, with 30 % they do not (see the figure by this share).";
const LARGEST: &str = "What hybrid gains are the starts of a few: the killer takes the largest. The other applications come from storage and not \
    from RAM at each entry.";
const SIXTY: &str = "60 applications fit under none of the schemes, so that hybrid kills as well. What it keeps comes from storage at each entry.";

static STATEMENTS: &[Statement] = &[
    Statement::new(
        "Table 4",
        "hybrid has the largest logical memory, on each phone",
        "1.29 1.32 1.27 of RAM; zRAM 1.10 1.15 1.10, zSWAP 1.10 1.24 1.13",
        &[
            "extended(Stylo zram)",
            "extended(Stylo zswap)",
            "extended(Stylo hybrid)",
            "extended(G7 hybrid)",
            "extended(V35 hybrid)",
            "to storage(Stylo zswap)",
        ],
        |n| {
            let of = |phone: &str| {
                n.less(
                    &[&format!("extended({phone} zram)"), &format!("extended({phone} zswap)")],
                    &[&format!("extended({phone} hybrid)")],
                )
            };
            Some(of("Stylo")? && of("G7")? && of("V35")?)
        },
        "",
    )
    .put_in(KILLER),
    Statement::new(
        "Table 4",
        "and extends RAM by a quarter to a third",
        "1.27 to 1.32",
        &["extended(Stylo hybrid)", "extended(G7 hybrid)", "extended(V35 hybrid)"],
        |n| n.within(&["extended(Stylo hybrid)", "extended(G7 hybrid)", "extended(V35 hybrid)"], 1.2, 1.4),
        "With 2 GB all 16 applications stay, and there is no more to hold. On the larger phones it is more than printed: the two spaces \
         have the sizes that are assumed, and with 60 applications both are always full.",
    ),
    Statement::new(
        "Table 4",
        "zSWAP at least as large as zRAM",
        "1.10/1.10 1.24/1.15 1.13/1.10",
        &["extended(G7 zram)", "extended(G7 zswap)", "extended(V35 zram)", "extended(V35 zswap)"],
        |n| {
            let of = |phone: &str| {
                Some(n.get(&format!("extended({phone} zram)"))? <= n.get(&format!("extended({phone} zswap)"))? * 1.005)
            };
            Some(of("Stylo")? && of("G7")? && of("V35")?)
        },
        "",
    ),
    Statement::new(
        "Table 5",
        "2 GB: hybrid is fastest on average",
        "1360 ms; zRAM 1737, zSWAP 1885",
        &["entry(Stylo zram)", "entry(Stylo zswap)", "entry(Stylo hybrid)", "to storage(Stylo zswap)"],
        |n| n.less(&["entry(Stylo hybrid)"], &["entry(Stylo zram)", "entry(Stylo zswap)"]),
        "",
    )
    .put_in(STARTS),
    Statement::new(
        "Table 5",
        "for at least 12 of the 16 applications, against each of the others",
        "15 against zRAM, 15 against zSWAP",
        &["faster(Stylo zram)", "faster(Stylo zswap)"],
        |n| n.within(&["faster(Stylo zram)", "faster(Stylo zswap)"], 12.0, 16.0),
        LARGEST,
    ),
    Statement::new(
        "Table 6",
        "4 GB: hybrid is fastest on average",
        "900 ms; zRAM 993, zSWAP 1098",
        &["entry(G7 zram)", "entry(G7 zswap)", "entry(G7 hybrid)"],
        |n| n.less(&["entry(G7 hybrid)"], &["entry(G7 zram)", "entry(G7 zswap)"]),
        SIXTY,
    ),
    Statement::new(
        "Table 7",
        "6 GB: hybrid is fastest on average",
        "780 ms; zRAM 890, zSWAP 961",
        &["entry(V35 zram)", "entry(V35 zswap)", "entry(V35 hybrid)"],
        |n| n.less(&["entry(V35 hybrid)"], &["entry(V35 zram)", "entry(V35 zswap)"]),
        SIXTY,
    ),
    Statement::new(
        "Tables 5 to 7",
        "zSWAP is slowest on average, on each phone",
        "1885 1098 961 ms",
        &["entry(Stylo zswap)", "entry(G7 zswap)", "entry(V35 zswap)"],
        |n| {
            let of = |phone: &str| {
                n.less(
                    &[&format!("entry({phone} zram)"), &format!("entry({phone} hybrid)")],
                    &[&format!("entry({phone} zswap)")],
                )
            };
            Some(of("Stylo")? && of("G7")? && of("V35")?)
        },
        SIXTY,
    ),
    Statement::new(
        "Tables 5 to 7",
        "hybrid with 4 GB is as good as zRAM with 6 GB (to a tenth)",
        "900, 890 ms",
        &["entry(G7 hybrid)", "entry(V35 zram)"],
        |n| Some(n.get("entry(G7 hybrid)")? < 1.1 * n.get("entry(V35 zram)")?),
        SIXTY,
    ),
    Statement::new(
        "Section IV-B",
        "zSWAP swaps at least 3 times as many pages, on each phone",
        "3.5 6.9 10.3 times",
        &["swaps(Stylo)", "swaps(G7)", "swaps(V35)"],
        |n| n.within(&["swaps(Stylo)", "swaps(G7)", "swaps(V35)"], 3.0, 1e9),
        STORED,
    ),
    Statement::new(
        "Section IV-B",
        "a larger RAM swaps less with the same applications (6 GB against 4)",
        "1 047 354 < 1 396 442 in (zSWAP), 117 166 < 220 442 (hybrid)",
        &["in(V35 zswap)", "in(G7 zswap)", "in(V35 hybrid)", "in(G7 hybrid)"],
        |n| Some(n.rising(&["in(V35 zswap)", "in(G7 zswap)"])? && n.rising(&["in(V35 hybrid)", "in(G7 hybrid)"])?),
        "With more memory fewer applications are killed, and those that live are swapped instead of started anew. The paper does not \
         tell its kills.",
    ),
    Statement::new(
        "Section IV-C",
        "hybrid writes several times less to storage than zSWAP (60 applications)",
        "4.5 and 29 GB in 48 hours: 6.4 times",
        &["wear(G7)", "wear(V35)"],
        |n| n.within(&["wear(G7)", "wear(V35)"], 2.0, 1e9),
        STORED,
    ),
    Statement::new(
        "Section IV-C",
        "days until 9 TB are written follow from that: 4096 and 635 for the printed bytes",
        "4096, 635",
        &["days(printed 4.5)", "days(printed 29)"],
        |n| Some(n.get("days(printed 4.5)")?.floor() == 4096.0 && n.get("days(printed 29)")?.floor() == 635.0),
        "",
    )
    .put_in("It is arithmetic on printed numbers."),
    Statement::new(
        "Equations 10, 12 and 16",
        "the cost of page operations O(t) is least with zRAM alone, most with storage alone, and hybrid is between",
        "the order is claimed without numbers",
        &["cost(Stylo zram)", "cost(Stylo hybrid)", "cost(Stylo storage)"],
        |n| n.rising(&["cost(Stylo zram)", "cost(Stylo hybrid)", "cost(Stylo storage)"]),
        STORED,
    ),
    Statement::new(
        "Rules 4 to 9",
        "a process is swapped out whole to zRAM instead of being killed: fewer are killed than under the others",
        "by Reclaim_Efficiency_Estimator; no numbers",
        &["left whole(Stylo hybrid)", "kills(Stylo hybrid)", "kills(Stylo zram)", "kills(Stylo zswap)"],
        |n| {
            let of = |phone: &str| {
                let fewer = n.less(
                    &[&format!("kills({phone} hybrid)")],
                    &[&format!("kills({phone} zram)"), &format!("kills({phone} zswap)")],
                )?;
                Some(fewer && n.get(&format!("left whole({phone} hybrid)"))? > 0.0)
            };
            Some(of("Stylo")? && of("G7")? && of("V35")?)
        },
        STAYS,
    ),
];

/// Entry times of the phone with 2 GB: by application, and by the share that a launch touches.
fn entry_times() -> (Chart, Chart) {
    let mut apps = Chart::bars(
        ("Entry time by application, 2 GB", "Table 5", "Hybrid is faster for nearly all of the 16."),
        "Application",
        APPS.map(|(app, _)| (app, app)),
        ("Entry time, ms", Unit::Count),
        [],
    );
    apps.series = SCHEMES.iter().map(|scheme| ((*scheme).to_owned(), format!("entry(Stylo {scheme} {{}})"))).collect();
    let shares = Chart::curves(
        (
            "Mean entry time by the share of its pages that a launch touches, 2 GB",
            "Section IV-B",
            "Hybrid is fastest. The share is not printed; 20 % fits the pages that zSWAP moves.",
        ),
        ("Touched by a launch", Unit::Percent),
        HOTS.map(|hot| (hot.to_string(), hot as f64)).to_vec(),
        ("Entry time, ms", Unit::Count),
        SCHEMES.map(|scheme| (scheme.to_owned(), format!("entry by share({{}} {scheme})"))).to_vec(),
    );
    (apps, shares)
}

fn charts() -> Vec<Chart> {
    let phones = [("Stylo", "2 GB, 16 applications"), ("G7", "4 GB, 60"), ("V35", "6 GB, 60")];
    let three = |what: &'static str| -> Vec<(String, String)> {
        SCHEMES.iter().map(|scheme| ((*scheme).to_owned(), format!("{what}({{}} {scheme})"))).collect()
    };
    let of = |title: (&str, &'static str, &'static str), what: &'static str, y: (&'static str, Unit)| {
        let mut chart = Chart::bars(title, "Phone", phones, y, []);
        chart.series = three(what);
        chart
    };
    let (apps, shares) = entry_times();
    vec![
        of(
            ("Logical memory / RAM", "Table 4", "Hybrid extends RAM most, by a quarter to a third."),
            "extended",
            ("Logical memory / RAM", Unit::Ratio),
        )
        .level(1.0, "RAM"),
        of(
            ("Mean entry time", "Tables 5 to 7", "Hybrid is fastest, zSWAP slowest."),
            "entry",
            ("Entry time, ms", Unit::Count),
        ),
        apps,
        shares,
        of(
            ("Pages swapped in", "Section IV-B", "zSWAP swaps several times as many as hybrid."),
            "in",
            ("Pages", Unit::Count),
        ),
        of(
            ("Pages swapped out", "Section IV-B", "zSWAP swaps several times as many as hybrid."),
            "out",
            ("Pages", Unit::Count),
        ),
        of(
            ("GB written to storage in 48 hours at this pace", "Section IV-C", "Hybrid writes 6.4 times less."),
            "written",
            ("Written, GB", Unit::Count),
        ),
        of(
            ("Days until 9 TB are written", "Section IV-C", "4096 days under hybrid, 635 under zSWAP."),
            "days",
            ("Days", Unit::Count),
        )
        .log(),
        of(
            ("Cost of all page operations by the paper's equations", "Equations 12 to 16", "No numbers are printed."),
            "cost",
            ("O(t)", Unit::Seconds),
        ),
        of(
            ("Applications killed after the first turn", "Rules 4 to 9", "The paper prints none."),
            "kills",
            ("Killed", Unit::Count),
        ),
        of(
            ("Applications that left memory as a whole after the first turn", "Rules 4 to 9", "The paper prints none."),
            "left whole",
            ("Left whole", Unit::Count),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of equations 14 and 16.
    #[test]
    fn the_cost_is_that_of_the_equations() {
        let moved = Moved { fi: 1000.0, si: 100.0, so: 200.0, zi: 500.0, zo: 600.0 };
        assert!((moved.cost(false) - 359.3).abs() < 0.1, "{}", moved.cost(false));
        assert!((moved.cost(true) - 374.9).abs() < 0.1, "{}", moved.cost(true));
    }

    #[test]
    fn averages_are_those_of_the_rows() {
        let printed = PAPER.published();
        let of = |name: String| printed.get(&name).expect("it is printed");
        for scheme in SCHEMES {
            let mean = APPS.iter().map(|(app, _)| of(format!("entry(Stylo {scheme} {app})"))).sum::<f64>() / 16.0;
            let printed = of(format!("entry(Stylo {scheme})"));
            assert!((0.0..1.0).contains(&(mean - printed)), "{mean} for {printed}");
        }
    }
}
