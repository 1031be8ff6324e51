//! Every workload of the table: deterministic, within its mapped memory, and as large as its paper
//! says.

use memfit_codec::generate::GENERATORS;
use memfit_sim::generate::{Param, Spec, Unit, WorkloadEntry, WORKLOADS};
use memfit_sim::{Access, Event};
use std::collections::HashMap;

fn spec(text: &str) -> Spec {
    Spec::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn hash_of_the_first(text: &str, count: usize) -> u64 {
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    spec(text).make().take(count).fold(1, |hash, event| {
        let (words, more) = match event {
            Event::Starts { proc } => ([1, proc.into(), 0], 0),
            Event::Ends { proc } => ([2, proc.into(), 0], 0),
            Event::Maps { proc, first, pages, kind } => ([3, proc.into(), first], pages << 16 | u64::from(kind)),
            Event::Touches { proc, page, how } => ([4, proc.into(), page], how as u64),
            Event::Frees { proc, first, pages } => ([5, proc.into(), first], pages),
            Event::Computes { ns } => ([6, ns, 0], 0),
            Event::Reaches { mark } => ([7, mark.into(), 0], 0),
            other => panic!("no workload makes {other:?}"),
        };
        words.into_iter().chain([more]).fold(hash, mix)
    })
}

/// Counts of a workload, checked on the way.
#[derive(Debug, Default)]
struct Seen {
    events: u64,
    touches: u64,
    processes: u64,
    /// Most pages with contents at a time.
    peak_pages: u64,
    marks: Vec<u32>,
    /// Touches since the last mark.
    since_mark: Vec<u64>,
    ns: u64,
}

/// State of each page of a process: mapped (1), touched (2), page of a file (4).
type Pages = Vec<u8>;

/// By process number; `None` before the start and after the end.
type Processes = Vec<Option<Pages>>;

fn of(processes: &mut Processes, proc: u32) -> &mut Pages {
    let process = processes.get_mut(proc as usize).and_then(Option::as_mut);
    process.unwrap_or_else(|| panic!("there is no process {proc}"))
}

fn check(text: &str) -> Seen {
    let (mut seen, mut since) = (Seen::default(), 0);
    let mut processes = Processes::new();
    let mut started = std::collections::HashSet::new();
    let mut held = 0u64;
    let mut workload = spec(text).make();
    for event in workload.by_ref() {
        seen.events += 1;
        match event {
            Event::Starts { proc } => {
                // A number stands for one process only.
                assert!(started.insert(proc), "{text}: {proc} starts again");
                processes.resize(processes.len().max(proc as usize + 1), None);
                processes[proc as usize] = Some(Pages::new());
                seen.processes += 1;
            }
            Event::Ends { proc } => {
                held -= of(&mut processes, proc).iter().filter(|&&page| page & 2 > 0).count() as u64;
                processes[proc as usize] = None;
            }
            Event::Maps { proc, first, pages, kind } => {
                assert!(pages > 0 && usize::from(kind) < GENERATORS.len(), "{text}: {event:?}");
                let (of, end) = (of(&mut processes, proc), (first + pages) as usize);
                if of.len() < end {
                    of.resize(end, 0);
                }
                of[first as usize..end].iter_mut().for_each(|page| *page |= 1);
            }
            Event::Touches { proc, page, how } => {
                let page = of(&mut processes, proc).get_mut(page as usize).filter(|page| **page & 1 > 0);
                let page = page.unwrap_or_else(|| panic!("{text}: {event:?} is not mapped"));
                let used = if how == Access::File { 2 | 4 } else { 2 };
                if *page & 2 == 0 {
                    *page |= used;
                    held += 1;
                    seen.peak_pages = seen.peak_pages.max(held);
                }
                assert_eq!(*page & 4, used & 4, "{text}: {event:?} is of a file, or is not");
                seen.touches += 1;
                since += 1;
            }
            Event::Frees { proc, first, pages } => {
                for page in &mut of(&mut processes, proc)[first as usize..(first + pages) as usize] {
                    assert!(*page & 1 > 0, "{text}: {event:?} is not mapped");
                    held -= u64::from(*page & 2 > 0);
                    *page = 0;
                }
            }
            Event::Computes { ns } => seen.ns += ns,
            Event::Reaches { mark } => {
                seen.marks.push(mark);
                seen.since_mark.push(std::mem::take(&mut since));
            }
            other => panic!("{text}: no workload makes {other:?}"),
        }
    }
    assert!(processes.iter().all(Option::is_none), "{text}: some have not ended");
    assert_eq!(workload.next(), None, "{text}: goes on after its end");
    let names: Vec<String> = seen.marks.iter().map(|&mark| workload.mark(mark)).collect();
    let different: std::collections::HashSet<&String> = names.iter().collect();
    assert_eq!(different.len(), names.len(), "{text}: marks share names: {names:?}");
    assert!(!names.is_empty() && names.iter().all(|name| !name.is_empty()));
    seen
}

/// With default parameters: workload, processes started in all, expected peak in MiB by its source;
/// then measured: peak pages with contents, events.
const SIZES: &[(&str, u64, f64, u64, u64)] = &[
    ("scan", 1, 154.0, 39424, 237_477),
    ("uniform", 1, 154.0, 39424, 1_043_490),
    ("zipf", 1, 154.0, 39424, 1_043_490),
    ("phase", 1, 154.0, 39424, 1_645_846),
    ("burst", 1, 144.0, 36864, 87454),
    ("launch", 14, 168.0, 43008, 662_797),
    ("hog", 4, 352.0, 90112, 126_370),
    ("fft", 1, 64.0, 16384, 16_924_997),
    ("fft-x10", 10, 80.0, 20480, 10_578_685),
    ("sort", 1, 115.0, 29215, 30_706_407),
    ("sort-x6", 6, 6.0 * 23.0, 35064, 31_609_145),
    ("simulator", 1, 120.0, 30720, 327_587),
    ("simulator-x5", 5, 120.0, 30720, 1_236_790),
    ("xanim", 1, 110.0, 28125, 112_945),
    ("xanim-x4", 4, 4.0 * 27.5, 28128, 114_163),
    ("thrasher", 1, 154.0, 39322, 236_865),
    ("rand", 1, 154.0, 39322, 143_532),
    ("smv", 1, 164.0, 41984, 24_918_283),
    ("ns2", 1, 91.0, 23360, 118_277),
    ("qsim", 1, 166.0, 42598, 475_880),
    ("hybrid18", 16, 75.0, 19200, 162_672),
    ("ezswap", 71, 14.0 * 15.0 + 24.75, 60130, 2_370_211),
    ("zsmalloc-sr", 2, 375.0 + 158.5, 136_576, 189_409),
];

#[test]
fn each_is_as_large_as_its_source_says_and_stays_in_its_memory() {
    let names = |all: &mut dyn Iterator<Item = &'static str>| all.collect::<Vec<_>>();
    assert_eq!(names(&mut SIZES.iter().map(|size| size.0)), names(&mut WORKLOADS.iter().map(|entry| entry.name)));
    for &(name, processes, mib, pages, events) in SIZES {
        let seen = check(name);
        assert_eq!((seen.processes, seen.peak_pages, seen.events), (processes, pages, events), "{name}");
        assert!((pages as f64 / 256.0 / mib - 1.0).abs() < 0.01, "{name}");
    }
}

#[test]
fn other_parameters_are_as_well_behaved() {
    for (text, mib) in [
        ("thrasher:scale=1,cycles=1", 1228.8),
        ("rand:scale=16,ratio=7", 76.8),
        ("smv:cold=0,scale=10", 16.4),
        ("ns2:size=1500M", 187.5),
        ("qsim:size=2.6G,scale=16", 166.4),
        ("fft:scale=2", 32.0),
        ("fft-x10:scale=2,slice=1", 40.0),
        ("sort:scale=7,processes=3", 3.0 * 16.31),
        ("sort:text=1", 7.0 / 256.0),
        ("simulator:scale=2,pending=100", 60.0),
        ("xanim:scale=2", 55.0),
        ("hybrid18:apps=60,turns=11", 285.5),
        ("hybrid18:ends=once,turns=10", 6.0 + 8.0),
        ("ezswap:apps=8,ends=stay", 8.0 * 15.0 + 24.75),
        ("ezswap:apps=16,ends=once,repetitions=4", 16.0 * 12.4 + 2.45 + 24.75),
        ("ezswap:services_file=0,services_data=0", 14.0 * 15.0),
        ("launch:order=shuffled,apps=3,ends=repetition,media=8,code=8", 12.2),
        ("zsmalloc-sr:scale=16,variant=word,active=50", 133.4),
        ("hog:programs=1,background=1,hog=1", 2.0 / 256.0),
        ("burst:kept=1,bursts=3,pages=10", 20.0 / 256.0),
        ("phase:lies=scattered,set=100,moves=30", 154.0),
        ("phase:pages=1,accesses=10,set=0.001", 1.0 / 256.0),
        ("zipf:pages=1,accesses=5", 1.0 / 256.0),
        ("scan:passes=0,touch_ns=0", 154.0),
    ] {
        let got = check(text).peak_pages as f64 / 256.0;
        assert!((got / mib - 1.0).abs() < 0.02, "{text}: {got} MiB");
    }
}

#[test]
fn the_same_seed_does_the_same() {
    for entry in WORKLOADS {
        let first = |text: &str| hash_of_the_first(text, 150_000);
        assert_eq!(first(entry.name), first(entry.name), "{}", entry.name);
        // A single matrix or film has nothing random; with several, the contents of pages are
        // random.
        let (chance, more) = match entry.name {
            "thrasher" => (false, ""),
            "fft" | "xanim" => (true, "processes=2,"),
            _ => (true, ""),
        };
        assert_eq!(entry.params.iter().any(|param| param.name == "seed"), chance, "{}", entry.name);
        if chance {
            let seeded = |seed| first(&format!("{}:{more}seed={seed}", entry.name));
            assert_ne!(seeded(1), seeded(2), "{}", entry.name);
        }
    }
}

#[test]
fn time_of_the_program_is_that_of_its_touches_and_pauses() {
    let seen = check("scan:pages=1000,passes=3,touch_ns=7");
    assert_eq!((seen.touches, seen.ns), (4000, 28_000));
    assert_eq!(check("burst:pages=10,bursts=5,pause_ms=3,touch_ns=0").ns, 15_000_000);
    assert_eq!(check("launch:apps=2,repetitions=3,dwell_ms=4,touch_ns=0").ns, 24_000_000);
}

/// Pages of touches, by mark: those up to the first mark, up to the second, and so on.
fn pages_by_mark(text: &str) -> Vec<Vec<u64>> {
    let mut out = vec![vec![]];
    for event in spec(text).make() {
        match event {
            Event::Touches { page, .. } => out.last_mut().unwrap().push(page),
            Event::Reaches { .. } => out.push(vec![]),
            _ => {}
        }
    }
    out
}

/// Touches of each page, in descending order.
fn counts(touches: &[u64]) -> Vec<u64> {
    let mut counts: HashMap<u64, u64> = HashMap::new();
    touches.iter().for_each(|&page| *counts.entry(page).or_default() += 1);
    let mut counts: Vec<u64> = counts.into_values().collect();
    counts.sort_unstable_by_key(|&count| std::cmp::Reverse(count));
    counts
}

#[test]
fn rand_touches_pages_as_often_as_in_the_paper() {
    for (size, each) in [("1.2G", 0.64), ("1.4G", 3.3), ("1.8G", 12.7)] {
        for scale in [1, 8] {
            let seen = check(&format!("rand:size={size},scale={scale},warm=0"));
            let got = seen.since_mark[2] as f64 / seen.peak_pages as f64;
            assert!((got - each).abs() < 0.05, "{size}: {got}");
        }
    }
    // In random order: 0.64 touches a page leave 53 % of the pages out.
    let touches = &pages_by_mark("rand:warm=0")[2];
    assert!((counts(touches).len() as f64 / 39_322.0 - 0.47).abs() < 0.01);
}

#[test]
fn cycles_touch_each_page_once_in_order() {
    for text in ["thrasher:scale=100", "scan:pages=1000", "xanim:scale=50,shows=0"] {
        for cycle in pages_by_mark(text).iter().filter(|cycle| !cycle.is_empty()) {
            assert!(cycle.windows(2).all(|pair| pair[1] == pair[0] + 1), "{text}");
        }
    }
    assert_eq!(pages_by_mark("thrasher:scale=100,cycles=4").len(), 6);
}

#[test]
fn fft_goes_through_rows_and_then_strides_through_columns() {
    let marks = pages_by_mark("fft:side=512");
    let (first, touches) = (marks[0][0], &marks[1]);
    // Two pages a row: read, then written.
    let rows: Vec<u64> = (0..512).flat_map(|row| [0, 1, 0, 1].map(|page| first + 2 * row + page)).collect();
    let column: Vec<u64> = (0..512).map(|row| first + 2 * row).collect();
    assert_eq!(touches[..2048], rows);
    assert_eq!(touches[2048..2560], column);
    assert_eq!(touches[2560..3072], column);
    assert_eq!(touches[2048 + 1024 * 256], first + 1, "the 257th column is in the second page of each row");
    assert_eq!(touches.len(), 2 * (2048 + 512 * 1024));
}

#[test]
fn working_sets_take_their_share() {
    let counts_of = counts(&pages_by_mark("ns2:accesses=20")[2]);
    let (set, all) = (counts_of.iter().take(23_360 * 15 / 100).sum::<u64>(), counts_of.iter().sum::<u64>());
    // 95 %, and the random hits among the other touches.
    assert!((set as f64 / all as f64 - 0.9575).abs() < 0.01);
    for lies in ["together", "scattered"] {
        let phases = pages_by_mark(&format!("phase:pages=10000,share=100,phases=3,accesses=50000,lies={lies}"));
        let sets: Vec<std::collections::HashSet<u64>> =
            phases[1..4].iter().map(|touches| touches.iter().copied().collect()).collect();
        assert!(sets.iter().all(|set| set.len() == 2000));
        assert!(sets[0].is_disjoint(&sets[1]) && sets[1].is_disjoint(&sets[2]));
        let neighbours = sets[0].iter().filter(|&page| sets[0].contains(&(page + 1))).count();
        assert_eq!(neighbours == 1999, lies == "together");
    }
}

#[test]
fn zipf_touches_pages_by_its_law() {
    for skew in [0.5, 1.0, 1.5] {
        let got = counts(&pages_by_mark(&format!("zipf:pages=10000,skew={skew},accesses=2000000"))[1]);
        let weight = |rank: usize| (rank as f64).powf(-skew);
        let sum: f64 = (1..=10_000).map(weight).sum();
        for rank in [1, 2, 3, 5, 10] {
            let want = weight(rank) / sum * 2e6;
            assert!((got[rank - 1] as f64 - want).abs() < 5.0 * want.sqrt(), "skew {skew}, rank {rank}");
        }
    }
}

#[test]
fn every_turn_launches_every_application_once() {
    let turns = |text: &str, apps: usize| {
        let marks = check(text).marks;
        let turns: Vec<Vec<u32>> = marks.chunks(apps + 1).map(<[u32]>::to_vec).collect();
        for (turn, marks) in turns.iter().enumerate() {
            let mut sorted = marks.clone();
            sorted.sort_unstable();
            let from = (turn * (apps + 1)) as u32;
            assert_eq!(sorted, (from..from + apps as u32 + 1).collect::<Vec<_>>());
        }
        let orders: std::collections::HashSet<Vec<u32>> =
            turns.iter().map(|turn| turn.iter().map(|mark| mark % (apps as u32 + 1)).collect()).collect();
        (turns.len(), orders.len())
    };
    assert_eq!(turns("hybrid18", 16), (16, 16));
    assert_eq!(turns("hybrid18:apps=60,turns=3", 60), (3, 3));
    assert_eq!(turns("ezswap", 14), (5, 1));
    let cycle = spec("ezswap:apps=14").make();
    assert_eq!(cycle.mark(9), "turn 1: launch of Amazon Kindle");
    assert_eq!(cycle.mark(14), "turn 1 ends");
    assert_eq!(cycle.mark(15), "turn 2: launch of Play Store");
    assert_eq!(spec("hybrid18:apps=60").make().mark(16), "turn 1: launch of Clash Royale 2");
    assert_eq!(spec("fft-x10").make().mark(12), "process 3: transformed");
}

#[test]
fn specs_are_read_and_written() {
    let pages = |text: &str| check(text).peak_pages;
    assert_eq!(pages("uniform:pages=1.5M,accesses=0"), 384);
    assert_eq!(pages("uniform:accesses=0,pages=40K"), 10);
    assert_eq!(pages("uniform:accesses=0,pages=0.0005G"), 131);
    for entry in WORKLOADS {
        let written = spec(entry.name).to_string();
        assert_eq!(spec(&written).to_string(), written);
        assert!(std::ptr::eq(spec(&written).entry(), entry));
        assert!(!entry.about.is_empty() && entry.params.iter().all(|param| !param.about.is_empty()));
    }
    assert_eq!(
        spec("zipf:skew=1.25,contents=random,pages=4M").to_string(),
        "zipf:pages=1024,skew=1.25,accesses=1000000,writes=50,contents=random,touch_ns=1000,seed=1"
    );
}

#[test]
fn what_cannot_be_read_is_said_clearly() {
    let names = WORKLOADS.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
    for (text, message) in [
        ("", format!("no workload is called ''; there are {names}")),
        ("Zipf", format!("no workload is called 'Zipf'; there are {names}")),
        (
            "zipf:page=1",
            "zipf has no parameter 'page'; it has pages, skew, accesses, writes, contents, touch_ns, seed".into(),
        ),
        ("zipf:", "'' is not NAME=VALUE".into()),
        ("zipf:pages=1,", "'' is not NAME=VALUE".into()),
        ("zipf:pages", "'pages' is not NAME=VALUE".into()),
        ("zipf:pages=1,pages=2", "pages is there twice".into()),
        (
            "zipf:pages=",
            "pages=: not a number of pages, nor a size such as 154M; it goes from 1 to 67108864 pages of 4 KiB".into(),
        ),
        (
            "zipf:pages=12X",
            "pages=12X: not a number of pages, nor a size such as 154M; it goes from 1 to 67108864 pages of 4 KiB"
                .into(),
        ),
        ("zipf:pages=-1", "pages=-1: it goes from 1 to 67108864 pages of 4 KiB".into()),
        ("zipf:pages=1.5", "pages=1.5: not a whole number".into()),
        ("zipf:pages=1K", "pages=1K: it goes from 1 to 67108864 pages of 4 KiB".into()),
        ("zipf:pages=300G", "pages=300G: it goes from 1 to 67108864 pages of 4 KiB".into()),
        ("zipf:skew=-1", "skew=-1: it goes from 0 to 2".into()),
        ("zipf:skew=2.5", "skew=2.5: it goes from 0 to 2".into()),
        ("zipf:skew=inf", "skew=inf: not a number; it goes from 0 to 2".into()),
        ("zipf:accesses=1e6", "accesses=1e6: not a number; it goes from 0 to 1000000000000000".into()),
        ("zipf:accesses=0.5", "accesses=0.5: not a whole number".into()),
        ("zipf:writes=101", "writes=101: it goes from 0 to 100".into()),
        ("ezswap:ends=never", "ends=never: it is one of stay, repetition, once".into()),
        ("rand:size=1.3G", "size=1.3G: it is one of 1.2G, 1.4G, 1.8G".into()),
        ("ezswap:apps=17", "apps=17: it goes from 1 to 16".into()),
    ] {
        assert_eq!(Spec::parse(text).map(|spec| spec.to_string()).unwrap_err().to_string(), message, "{text}");
    }
    let error = Spec::parse("scan:contents=f=0.3").unwrap_err().to_string();
    assert!(error.starts_with("contents=f=0.3: it is one of zero, sparse, f=0.05,"), "{error}");
}

/// The generated part of a workload's section in docs/workloads.md: heading, help, parameters.
fn section(entry: &WorkloadEntry) -> String {
    let mut out = format!("### {}\n\n`{}`: {}.\n\n", entry.name, entry.name, entry.about);
    out += "| Parameter | Default | Range | |\n|---|---|---|---|\n";
    for Param { name, about, unit, default, min, max } in entry.params {
        let range = match unit {
            Unit::Pages => format!("{min} to {max} pages, or a size"),
            Unit::Count => format!("{min} to {max}"),
            Unit::Real => format!("{min} to {max}, with decimals"),
            Unit::Percent => format!("{min} to {max} %"),
            Unit::Nanoseconds => format!("{min} to {max} ns"),
            Unit::Milliseconds => format!("{min} to {max} ms"),
            Unit::Content => "a kind of content".into(),
            Unit::Choice(names) => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
        };
        out += &format!("| `{name}` | `{default}` | {range} | {about} |\n");
    }
    out
}

#[test]
fn the_documentation_has_them_all() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/workloads.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut from = 0;
    for (entry, &(name, processes, _, pages, events)) in WORKLOADS.iter().zip(SIZES) {
        let row = format!("| `{name}` | {:.1} | {processes} | {events} |\n", pages as f64 / 256.0);
        assert!(text.contains(&row), "docs/workloads.md lacks this row of sizes:\n{row}");
        let section = section(entry);
        let at = text[from..].find(&section);
        from += at.unwrap_or_else(|| panic!("docs/workloads.md lacks, here or at all:\n{section}")) + section.len();
        let prose = text[from..].split("\n#").next().unwrap();
        assert!(prose.contains("After: ") && prose.contains("Assumed: "), "nothing is said about {name}");
    }
    assert_eq!(text.matches("\n### ").count(), WORKLOADS.len(), "docs/workloads.md has one that there is not");
    let kinds = GENERATORS.iter().map(|kind| format!("`{}`", kind.name)).collect::<Vec<_>>().join(", ");
    assert!(
        text.split_whitespace().collect::<Vec<_>>().join(" ").contains(&kinds),
        "docs/workloads.md lacks the kinds of content:\n{kinds}"
    );
}
