//! A quick run of everything: the same numbers each time, and every statement accounted for.

use memfit_papers::{json, markdown, report, run, Judge, Plan, Result, Verdict, PAPERS};
use std::collections::HashSet;

const PLAN: Plan = Plan { seed: 7, scale: 1.0, quick: true };

fn results(threads: usize) -> Vec<Result<'static>> {
    run(PAPERS, &PLAN, threads, &[], &|_, _| {})
}

#[test]
fn the_same_seed_gives_the_same_numbers() {
    let (first, second) = (results(2), results(1));
    let text = json(&first, &PLAN);
    assert_eq!(text, json(&second, &PLAN));
    let mut page = Vec::new();
    report(&first, &PLAN).write(&mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    for result in &first {
        for statement in result.paper.statements {
            let verdict = statement.verdict(&result.numbers);
            let by_numbers = matches!(statement.judge, Judge::By(_));
            assert!(!by_numbers || verdict != Verdict::CannotBeHad, "{}: a number is missing", statement.what);
            assert!(page.contains(statement.source), "{}: not in the page", statement.source);
        }
        // A figure without numbers of ours would not be drawn.
        let published = (result.paper.published)();
        for chart in (result.paper.charts)() {
            assert!(chart.figure(&result.numbers, &published, "").is_some(), "{}: no numbers", chart.title);
        }
        for (name, _) in published.iter() {
            let ours = result.numbers.get(name).is_some();
            // The G5's values of SMV stand beside the one simulation of it.
            assert!(ours || name.starts_with("g5("), "{}: nothing beside {name}", result.paper.name);
        }
    }
    assert!(markdown(&first, &PLAN).contains("| does not hold |"));
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
            if let Judge::By(_) = statement.judge {
                assert!(!statement.numbers.is_empty(), "{texts:?}: no numbers");
            }
        }
        // Nothing that is drawn is left without a word.
        for chart in (paper.charts)() {
            assert!(!chart.says.is_empty() && !chart.source.is_empty(), "{}", chart.title);
        }
    }
}

/// The figures and tables that are to be had or accounted for.
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
fn the_summary_in_the_documentation_is_of_these_statements() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/papers/simulated.md");
    let doc = std::fs::read_to_string(path).unwrap();
    let rows: Vec<&str> = doc.lines().filter(|line| line.starts_with("| ")).collect();
    for paper in PAPERS {
        for statement in paper.statements {
            let row = format!("| {} | {} | {} |", statement.what, statement.source, statement.published);
            assert!(rows.iter().any(|line| line.starts_with(&row)), "not in {path}: {row}");
        }
    }
}
