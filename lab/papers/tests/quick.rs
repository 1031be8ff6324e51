//! A quick run of everything: the numbers are deterministic, and every statement has a verdict.

use memfit_papers::{
    differences, json, merged, report, run, Judge, Plan, Recordings, Result, Statement, Verdict, PAPERS,
};
use memfit_sim::cost::CostTable;
use memfit_sim::device::Device;
use memfit_sim::generate::Spec;
use memfit_sim::{Contents, Machine, Recorder, Residents, Setup};
use std::collections::HashSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PLAN: Plan = Plan { seed: 7, scale: 1.0, quick: true };

/// A directory that is removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// Records fft at the size of a quick run.
fn record(path: &Path, preset: &str, overrides: &[&str]) {
    let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
    let setup = Setup {
        scheme: Arc::new(memfit_scheme::preset(preset, &overrides).unwrap().unwrap()),
        budget: 3_584 << 10,
        swap_bytes: 64 << 20,
        residents: Residents::Simulated,
        rate: 1.0,
        tables_per_frame: 0,
        costs: Arc::new(CostTable::find("measured").unwrap()),
        device: Arc::new(Device::find("ssd-nvme").unwrap()),
    };
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut machine = Machine::new(&setup, Contents::new());
    let command = vec!["/somewhere/fft".into(), "1024".into()];
    let recorder = Recorder::start(&mut machine, File::create(path).unwrap(), command).unwrap();
    for event in Spec::parse("fft:scale=16,seed=7").unwrap().make() {
        machine.event(event);
        recorder.now(machine.times().program);
    }
    recorder.finish(&mut machine).unwrap();
}

/// Recordings as a user may have them: two usable ones, one that corresponds to no simulation, and
/// a damaged one.
fn recorded() -> Folder {
    let folder = Folder(std::env::temp_dir().join(format!("memfit-papers-{}", std::process::id())));
    record(&folder.0.join("cervera/fft/plain.memfit"), "swap", &["fault.around_pages=1"]);
    record(&folder.0.join("cervera/fft/cache_1024.memfit"), "cervera99", &["sizing.pool_permille=18"]);
    fs::copy(folder.0.join("cervera/fft/plain.memfit"), folder.0.join("cervera/fft/unheard-of.memfit")).unwrap();
    fs::write(folder.0.join("cervera/fft/best.memfit"), "no recording").unwrap();
    folder
}

fn results(threads: usize, recordings: &mut Recordings) -> Vec<Result<'static>> {
    run(PAPERS, &PLAN, 2, threads, &[], recordings, &|_, _| {})
}

/// One run shows what the results contain, a second one that they are deterministic.
#[test]
fn the_same_seed_and_recordings_give_the_same_numbers() {
    let folder = recorded();
    let load = || Recordings::load(&folder.0).unwrap();
    let (mut recordings, mut none) = (load(), Recordings::load(&folder.0.join("none")).unwrap());
    let first = results(2, &mut recordings);
    let text = json(&first, &PLAN);
    assert_eq!(text, json(&results(3, &mut load()), &PLAN));
    let mut page = Vec::new();
    report(&first, &PLAN).write(&mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    all_is_there(&first, &page);
    recordings_are_beside(&first, &recordings, &page, &text);
    // Without recordings the result says how to make them.
    assert!(none.all.is_empty() && none.left_out.is_empty());
    let one = run(&PAPERS[3..4], &PLAN, 2, 2, &[], &mut none, &|_, _| {});
    let without = json(&one, &PLAN);
    assert!(without.contains("`make papers-record` makes them") && !without.contains("real programs, each run"));
    saved_results_are_compared(&text, &one);
}

/// Of one paper, without recordings.
fn saved_results_are_compared(saved: &str, one: &[Result<'_>]) {
    assert_eq!(differences(saved, one, &PLAN), Ok(Vec::new()));
    let mut changed: serde_json::Value = serde_json::from_str(saved).unwrap();
    let numbers = changed["papers"]["salahuddin"]["numbers"].as_object_mut().unwrap();
    let name = numbers.keys().find(|name| name.starts_with("density(")).unwrap().clone();
    numbers.insert(name, 0.5.into());
    let found = differences(&changed.to_string(), one, &PLAN).unwrap();
    assert!(matches!(&found[..], [one] if one.starts_with("salahuddin, numbers, density(")), "{found:?}");
    let other = Plan { scale: 2.0, ..PLAN };
    assert_eq!(differences(saved, one, &other).unwrap_err(), "it is of scale 1.0, and this run of 2.0");
    assert!(differences("{", one, &PLAN).is_err());
    assert_eq!(merged(saved, one, &PLAN).unwrap(), saved, "the other papers stay");
    assert!(merged(saved, one, &other).is_err());
}

fn all_is_there(results: &[Result<'_>], page: &str) {
    for result in results {
        for statement in result.paper.statements {
            let verdict = statement.verdict(&result.seeds);
            let by_numbers = matches!(statement.judge, Judge::By(_) | Judge::PutIn(_));
            assert!(!by_numbers || verdict != Verdict::CannotBeHad, "{}: a number is missing", statement.what);
            assert!(page.contains(statement.source), "{}: not in the page", statement.source);
        }
        // A figure without our numbers would not be drawn.
        let published = result.paper.published();
        for chart in (result.paper.charts)() {
            let figure = chart.figure(&result.numbers, &result.recorded, &published, "");
            assert!(figure.is_some(), "{}: no numbers", chart.title);
        }
        for (name, _) in published.iter() {
            let ours = result.numbers.get(name).is_some();
            // The G5's values of SMV stand beside its only simulation; sizes are inputs, or of the
            // live runs.
            let other = name.starts_with("g5(") || (result.paper.name == "tuduce" && name.starts_with("ratio("));
            assert!(ours || other, "{}: nothing beside {name}", result.paper.name);
        }
    }
}

fn recordings_are_beside(results: &[Result<'_>], recordings: &Recordings, page: &str, doc: &str) {
    let cervera = &results[0];
    assert_eq!(cervera.recordings.len(), 2);
    let left_out = recordings.left_out.join("; ");
    assert!(
        left_out.contains("best.memfit") && left_out.contains("fft/unheard-of: there is no simulation"),
        "{left_out}"
    );
    // The recorded program is the generated one, so its pages compress alike.
    let pair = |name: &str| [&cervera.numbers, &cervera.recorded].map(|numbers| numbers.get(name).unwrap());
    let [made, real] = pair("ratio(fft)");
    assert!((made - real).abs() < 0.02, "{made}, recorded {real}");
    // So do the bytes that it writes.
    let [made, real] = pair("written(fft)");
    assert!((made - real).abs() < 0.1, "{made}, recorded {real}");
    // Its time is that of a simpler computer; its computing time is estimated from the recording.
    let real = cervera.recorded.get("speedup(fft)").unwrap();
    assert!((0.5..2.0).contains(&real), "{real}");
    assert_eq!(cervera.recorded.get("ratio(sort)"), None);
    assert!(results[1..].iter().all(|result| result.recorded.is_empty() && result.recordings.is_empty()));
    // The page has the command, but not its path.
    assert!(page.contains("fft 1024") && !page.contains("somewhere"));
    assert!(page.contains("recorded") && doc.contains("real programs, each run") && doc.contains("makes them"));
}

#[test]
fn every_statement_has_its_source_and_published_value() {
    let mut seen = HashSet::new();
    for paper in PAPERS {
        assert!(!paper.source.is_empty() && !paper.setting.is_empty() && !paper.differs.is_empty(), "{}", paper.name);
        for statement in paper.statements {
            let texts = [statement.source, statement.what, statement.published];
            assert!(texts.iter().all(|text| !text.is_empty()), "{}: {texts:?}", paper.name);
            assert!(seen.insert((paper.name, statement.source, statement.what)), "{texts:?} twice");
            if let Judge::By(_) | Judge::PutIn(_) = statement.judge {
                assert!(!statement.numbers.is_empty(), "{texts:?}: no numbers");
            }
        }
        // Each figure has a text and a source.
        for chart in (paper.charts)() {
            assert!(!chart.says.is_empty() && !chart.source.is_empty(), "{}", chart.title);
        }
    }
}

/// Every figure and table that is simulated or accounted for.
#[test]
fn no_figure_is_left_out() {
    const WANTED: &[(&str, &[&str])] = &[
        ("cervera", &["Table 1", "Fig. 4", "Fig. 5", "Fig. 6", "Fig. 7"]),
        (
            "tuduce",
            &[
                "Tables 1 and 2",
                "Tables 3 and 4",
                "Table 5",
                "Table 7",
                "Table 8",
                "Fig. 4",
                "Fig. 5",
                "Fig. 6",
                "Fig. 7",
            ],
        ),
        ("han", &["Table 4", "Table 5", "Table 6", "Table 7", "Section IV-B", "Section IV-C"]),
        ("salahuddin", &["Fig. 2", "Fig. 3", "Table 2"]),
        ("ezswap", &["Fig. 4", "Fig. 5", "Fig. 6", "Fig. 8", "Fig. 9", "Fig. 10", "Fig. 11", "Table 3"]),
    ];
    assert_eq!(WANTED.len(), PAPERS.len());
    for (name, sources) in WANTED {
        let paper = PAPERS.iter().find(|paper| paper.name == *name).unwrap();
        for source in *sources {
            assert!(paper.statements.iter().any(|s| s.source == *source), "{name}: {source}");
        }
    }
}

#[test]
fn the_saved_results_are_of_these_statements() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/papers/simulated.json");
    let saved: serde_json::Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    for paper in PAPERS {
        let saved = saved["papers"][paper.name]["statements"].as_array().unwrap();
        let told = |name: &str| saved.iter().map(|one| one[name].as_str().unwrap()).collect::<Vec<_>>();
        let of = |text: fn(&Statement) -> &'static str| paper.statements.iter().map(text).collect::<Vec<_>>();
        assert_eq!(told("what"), of(|s| s.what), "{}: make papers-sim", paper.name);
        assert_eq!(told("source"), of(|s| s.source), "{}: make papers-sim", paper.name);
        assert_eq!(told("published"), of(|s| s.published), "{}: make papers-sim", paper.name);
    }
}
