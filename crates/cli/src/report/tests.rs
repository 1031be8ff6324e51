use super::*;
use memfit_pager::regions::{Region, Use};
use memfit_pager::timeline::{Bytes, Counts, FaultTimes, ProcessCourse, Timeline};
use memfit_report::{Cell, Figure};
use serde_json::{json, Value};
use std::collections::BTreeSet;

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

fn quiet_stats() -> Value {
    json!({
        "version": "0.1.0", "command": ["/usr/bin/python3", "a b.py"], "scheme": "memfit",
        "budget_bytes": 64 * MIB, "wall_ns": 1500 * MS, "peak": {"total_bytes": 31 * MIB},
        "evictions": {"pages": 0}, "faults": {"total": 0}, "swap": {"enabled": true},
        "processes": [{"pid": 5, "comm": "python3"}], "warnings": [], "exit": {"code": 0, "signal": null},
    })
}

/// A run of an hour in which everything happens all the time.
#[expect(clippy::too_many_lines, reason = "a list")]
fn busy() -> (Value, Course) {
    let mut timeline = Timeline::default();
    let end = 3600 * 1000u64;
    for ms in (0..=end).step_by(50) {
        let wave = (ms % 60_000) * MIB / 10_000;
        let bytes = Bytes {
            total: 58 * MIB + wave,
            resident: 30 * MIB,
            staged: MIB,
            pool: 18 * MIB,
            metadata: MIB,
            swap: 5 * MIB + ms * 100,
            pooled: 60 * MIB,
            swapped: 10 * MIB,
            ..Bytes::default()
        };
        let processes = (0..40u64).map(|n| (n as i32 + 100, "worker", MIB + n * 100_000 + ms * n % 77_777));
        timeline.add(bytes, processes, MIB);
        if timeline.is_due(ms * MS) {
            let counts = Counts {
                faults: [ms, ms / 3, ms / 5, ms * 7 + ms * ms % 1001, ms * 2, 0],
                evicted: ms * 10,
                swap_read: ms * 5000,
                swap_written: ms * 9000,
                compressed: ms * 8,
                in_bytes: ms * 8 * 4096,
                out_bytes: ms * 8 * 1000 + ms * ms % 10_007,
            };
            timeline.close(ms * MS, counts);
        }
    }
    let bounds_ns: Vec<u64> =
        (0..101u64).map(|class| 256 * 11u64.pow((class / 20) as u32) * (20 + class % 20) / 20).collect();
    let counts =
        (0..6).map(|source| (0..100).map(|class| if source == 5 { 0 } else { class * source + 1 }).collect()).collect();
    let mut course = timeline.course(FaultTimes { bounds_ns, counts });
    let region = |pid: i32, used: Use, start: u64, pages: u64, bytes: u64| Region {
        pid,
        comm: "worker".into(),
        used,
        start: start * MIB,
        end: (start + 1) * MIB,
        codecs: [("lz4".to_owned(), (pages * 3 / 4, bytes / 2)), ("zstd".to_owned(), (pages / 4, bytes / 2))].into(),
        incompressible: 7,
        filled: 5,
    };
    course.regions = vec![
        region(100, Use::Heap, 3, 2000, 2_048_000),
        region(101, Use::Heap, 1, 1200, 2_457_600),
        region(100, Use::Anonymous, 80, 400, 1_638_400),
        region(100, Use::Heap, 2, 200, 409_600),
        region(100, Use::Stack, 90, 8, 4096),
        Region { codecs: [].into(), ..region(0, Use::Others, 0, 0, 0) },
    ];
    let times = json!({"p50": 9000, "p90": 90_000, "p99": 1_000_000, "max": 9_000_000});
    let by = |p50: u64| json!({"p50": p50, "p90": 2, "p99": 3, "max": 4});
    let mut latency = times;
    latency["by_source"] =
        json!({"zero": by(1), "staged": by(2), "filled": by(3), "pool": by(9000), "swap": by(150_000)});
    let mut stats = quiet_stats();
    stats["peak"] = json!({"total_bytes": 66 * MIB, "swap_bytes": 300 * MIB});
    stats["evictions"] =
        json!({"pages": end * 10, "compressed": end * 8, "filled": end, "rejected": {"incompressible": end}});
    let faults = [end, end / 3, end / 5, end * 7, end * 2];
    stats["faults"] = json!({
        "total": faults.iter().sum::<u64>(), "zero": faults[0], "staged": faults[1], "filled": faults[2], "pool": faults[3],
        "swap": faults[4], "file": 0,
    });
    stats["swap"] = json!({"enabled": true, "read_bytes": end * 5000, "write_bytes": end * 9000});
    stats["codecs"] = json!({
        "zstd": {"pages": 1000, "in_bytes": 4_096_000, "out_bytes": 1_024_000},
        "lz4": {"pages": 3000, "in_bytes": 12_288_000, "out_bytes": 6_144_000},
    });
    stats["fault_latency_ns"] = latency;
    stats["processes"] =
        (0..40).map(|n| json!({"pid": n + 100, "comm": "worker", "peak_total_bytes": n, "paged": true})).collect();
    stats["warnings"] = json!(["something <odd>"]);
    stats["wall_ns"] = json!(end * MS);
    (stats, course)
}

#[test]
fn pages_that_left_have_a_row_for_each_place() {
    let mut stats = quiet_stats();
    stats["evictions"] = json!({
        "pages": 99, "compressed": 1, "filled": 2, "same": 3, "stored_raw": 4, "clean": 5, "file_dropped": 6, "dropped": 7,
        "to_swap": 8, "rejected": {
            "incompressible": 10, "by_entropy": 11, "by_need": 12, "in_advance": 13, "pool_full": 14, "refaulted": 15,
        },
    });
    stats["faults"] = json!({"total": 20, "staged": 16});
    let page = report(&stats, &Course::default());
    let tables = page.sections.iter().flat_map(|section| &section.tables);
    let rows = tables.filter(|table| table.title == "What became of pages that left").flat_map(|table| &table.rows);
    let numbers: BTreeSet<u64> = rows
        .map(|row| match row[1] {
            Cell::Number(pages) => pages as u64,
            ref other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(numbers, (1..=8).chain(10..=16).collect());
}

fn parsed(stats: &Value) -> Stats {
    serde_json::from_value(stats.clone()).unwrap()
}

/// With spaces that break, so that words can be compared.
fn report(stats: &Value, course: &Course) -> Report {
    let mut report = of(&Run { stats: &parsed(stats), course, swap: "chosen automatically" });
    let plain = |text: &mut String| *text = text.replace('\u{a0}', " ");
    plain(&mut report.title);
    plain(&mut report.says);
    report.facts.iter_mut().for_each(|(_, value)| plain(value));
    report.sections.iter_mut().flat_map(|section| &mut section.figures).for_each(|figure| plain(&mut figure.says));
    report
}

fn figures(report: &Report) -> Vec<&Figure> {
    report.sections.iter().flat_map(|section| &section.figures).collect()
}

fn fact<'a>(report: &'a Report, name: &str) -> &'a str {
    &report.facts.iter().find(|(fact, _)| fact == name).unwrap_or_else(|| panic!("no {name}")).1
}

#[test]
fn a_run_that_needed_no_paging_has_a_short_page() {
    let mut timeline = Timeline::default();
    for at in [0, 700, 1500] {
        timeline.add(Bytes { total: (30 + at / 1500) * MIB, ..Bytes::default() }, [(5, "python3", MIB)].into_iter(), 0);
        timeline.close(at * MS, Counts::default());
    }
    let (mut stats, course) = (quiet_stats(), timeline.course(FaultTimes::default()));
    let page = report(&stats, &course);
    assert_eq!(page.title, "python3 within 64 MiB");
    assert!(page.says.contains("needed 31 MiB at most, 48 % of its budget: nothing was paged"), "{}", page.says);
    assert_eq!(page.sections.len(), 1);
    let all = figures(&page);
    assert_eq!((all.len(), all[0].series.len()), (1, 1), "what was never there is not drawn");
    assert_eq!((fact(&page, "Command"), fact(&page, "Exit")), ("/usr/bin/python3 'a b.py'", "status 0"));
    stats["exit"] = json!({"code": null, "signal": 9});
    stats["peak"]["total_bytes"] = json!(70 * MIB);
    let page = report(&stats, &course);
    assert_eq!(fact(&page, "Exit"), "killed by signal 9 (SIGKILL)");
    assert!(page.says.contains("more than its budget"), "{}", page.says);
}

#[test]
fn a_run_without_samples_has_a_page() {
    let (stats, _) = busy();
    for stats in [stats, quiet_stats(), json!({})] {
        let page = page(&Run { stats: &parsed(&stats), course: &Course::default(), swap: "none" });
        assert!(String::from_utf8(page).unwrap().contains("gave no samples"));
    }
}

#[test]
fn an_hour_in_which_all_happens() {
    let (stats, course) = busy();
    let page = report(&stats, &course);
    let titles: Vec<&str> = figures(&page).iter().map(|figure| figure.title.as_str()).collect();
    assert_eq!(
        titles,
        [
            "Memory by state",
            "What the programs have, wherever it is",
            "Resident memory by process",
            "Faults by source over time",
            "How long faults took",
            "Ratio by codec",
            "Ratio by region",
            "Ratio over time",
            "Swap traffic",
            "Swap since the start"
        ]
    );
    assert!(
        page.says.contains("had up to 115 MiB of memory and exceeded its budget of 64 MiB by 3.1 %"),
        "{}",
        page.says
    );
    assert_eq!(page.sections.last().unwrap().text, ["something <odd>"]);
    for figure in figures(&page) {
        assert!(!figure.says.is_empty() && !figure.series.is_empty(), "{figure:?}");
        let memfit_report::Places::Numbers(places) = &figure.places else { continue };
        assert!(places.iter().all(|place| place.is_finite()) && places.is_sorted(), "{}", figure.title);
        for series in &figure.series {
            assert_eq!(series.values.len(), places.len(), "{}: {}", figure.title, series.name);
            assert!(series.values.iter().all(|v| v.is_some_and(|v| v.is_finite() && v >= 0.0)), "{}", figure.title);
        }
    }
    // As many as the counters say.
    let rates = figures(&page)[3];
    let pool = rates.series.iter().find(|series| series.name == "compressed pool").unwrap();
    let mean = pool.values.iter().flatten().sum::<f64>() / pool.values.len() as f64;
    assert!((mean / 7000.0 - 1.0).abs() < 0.05, "{mean}");
    let regions = figures(&page)[6];
    let memfit_report::Places::Names(names) = &regions.places else { panic!("{regions:?}") };
    let names: Vec<String> = names.iter().map(|name| name.replace('\u{a0}', " ")).collect();
    // Those of the process that has most first, by address. Of the stack there are too few pages.
    assert_eq!(names, ["heap 1, 100", "heap 2, 100", "anon, 100", "heap, 101"]);
    assert_eq!(regions.series[0].values, [2.0, 4.0, 1.0, 2.0].map(Some));
    assert!(regions.says.contains("heap 2, 100 by 4.00 (7.8 MiB of pages) and anon, 100 by 1.00"), "{}", regions.says);
    let table =
        page.sections.iter().flat_map(|section| &section.tables).find(|table| table.title == "Regions of memory");
    let rows = &table.unwrap().rows;
    assert_eq!((rows.len(), &rows[5][0], &rows[5][2]), (6, &"all others".into(), &Cell::Missing));
    assert_eq!(rows[0][2], "200000–300000".into());
    assert_eq!(rows[0][9], Cell::Text("lz4\u{a0}75\u{a0}%, zstd\u{a0}25\u{a0}%".into()));
    assert_eq!((&rows[3][6], &rows[3][7]), (&Cell::Missing, &Cell::Number(7.0)), "too few pages for a ratio");
    let html = super::page(&Run { stats: &parsed(&stats), course: &course, swap: "x" });
    assert!(html.len() < 2 << 20, "{}", html.len());
}

#[test]
fn stretches_go_from_the_start_to_the_end() {
    let sample = |ms: u64| Sample {
        at_ns: ms * MS,
        counts: Counts { evicted: ms * 10, ..Counts::default() },
        ..Sample::default()
    };
    for count in [0u64, 1, 2, 239, 240, 241, 479, 481, 2000] {
        let samples: Vec<Sample> = (1..=count).map(|n| sample(n * 100)).collect();
        let all = stretches(&samples);
        assert!(all.len() <= RATES_MAX, "{count}");
        assert!(all.iter().all(|stretch| (stretch.rate(|s| s.counts.evicted) - 10_000.0).abs() < 1e-6));
        assert!(all.windows(2).all(|pair| pair[0].to == pair[1].from));
        let ends = all.first().map(|first| first.from.at_ns).zip(all.last().map(|last| last.to.at_ns));
        assert_eq!(ends, (count > 0).then_some((0, count * 100 * MS)));
    }
    // The last sample is made at the end of the run, perhaps just after another. No stretch is so
    // short that its rate is noise.
    let all = stretches(&[0, 20, 40, 60, 80, 99, 112, 115].map(sample));
    assert_eq!(all.iter().map(|stretch| stretch.to.at_ns / MS).collect::<Vec<_>>(), [60, 115]);
}

#[test]
fn small_processes_are_others() {
    let course = Course {
        samples: vec![Sample::default(), Sample { at_ns: MS, ..Sample::default() }],
        processes: [(1, 9 * MIB), (2, 5 * MIB), (3, MIB / 2)]
            .map(|(pid, bytes)| ProcessCourse { pid, comm: "x".into(), bytes: vec![0, bytes] })
            .into(),
        others: vec![0, MIB],
        ..Course::default()
    };
    let mut stats = quiet_stats();
    stats["processes"] = json!([{"pid": 1}, {"pid": 2}]);
    let page = report(&stats, &course);
    let by_process = figures(&page)[1];
    let names: Vec<&str> = by_process.series.iter().map(|series| series.name.as_str()).collect();
    assert_eq!(names, ["x 1", "x 2", "all others"]);
    assert_eq!(by_process.series[2].values[1], Some(1.5 * MIB as f64));
    assert!(by_process.says.contains("x (1) had most, up to 9 MiB in RAM; of 2, the 2 that"), "{}", by_process.says);
}
