use super::*;
use crate::{Column, Series};
use std::collections::HashMap;

fn page(report: &Report) -> String {
    let mut bytes = Vec::new();
    report.write(&mut bytes).expect("writing to memory");
    String::from_utf8(bytes).expect("text")
}

fn report_of(figure: Figure) -> Report {
    let section = Section { title: "Section".into(), figures: vec![figure], ..Section::default() };
    Report { title: "Title".into(), sections: vec![section], ..Report::default() }
}

fn figure(kind: Kind, places: Vec<f64>, series: Vec<Series>) -> Figure {
    let x = Axis::new("Time", Unit::Seconds);
    Figure { series, ..Figure::new(kind, "Figure", "It says this.", x, Axis::new("Memory", Unit::Bytes), places) }
}

/// The data for the script.
fn figures(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once("id=\"figures\">").expect("the data");
    serde_json::from_str(rest.split_once("</script>").expect("its end").0).expect("JSON")
}

#[test]
fn all_text_is_text() {
    const EVIL: &str = "</script><script>alert(1)//--><!-- ' \" & \u{2028} \u{0} ]]>";
    let mut evil = figure(Kind::Lines, vec![0.0, 1.0], vec![Series::new(EVIL, [1.0, 2.0])]);
    (evil.title, evil.says) = (EVIL.into(), EVIL.into());
    (evil.x.label, evil.y.label) = (EVIL.into(), EVIL.into());
    (evil.marks, evil.levels) = (vec![Mark::new(0.5, EVIL)], vec![Mark::new(1.5, EVIL)]);
    let mut bars = evil.clone();
    (bars.kind, bars.places) = (Kind::Bars, Places::Names(vec![EVIL.into(), EVIL.into()]));
    let columns = vec![Column::new(EVIL, Unit::Count)];
    let table = Table { title: EVIL.into(), says: EVIL.into(), columns, rows: vec![vec![EVIL.into()]] };
    let section =
        Section { title: EVIL.into(), text: vec![EVIL.into()], tables: vec![table], figures: vec![evil, bars] };
    let facts = vec![(EVIL.into(), EVIL.into())];
    let report = Report { title: EVIL.into(), says: EVIL.into(), facts, sections: vec![section; 3] };
    let text = page(&report);
    let harmless = page(&report_of(figure(Kind::Lines, vec![0.0], vec![Series::new("a", [1.0])])));
    for tag in ["<script", "</script", "<!--", "-->"] {
        assert_eq!(text.matches(tag).count(), harmless.matches(tag).count(), "{tag}");
    }
    assert!(!text.contains("<script>alert"));
    assert!(!text.contains('\u{0}'));
    let data = figures(&text);
    assert_eq!(data[0]["series"][0]["name"], EVIL);
    assert_eq!(data[0]["marks"][0]["label"], EVIL);
    assert_eq!(data[1]["names"][1], EVIL);
}

#[test]
fn an_hour_is_less_than_two_megabytes() {
    let rows = 36_000u32;
    // No two values are equal, so that none is short by chance.
    let noise = |row: u32, series: u32| f64::from((row ^ series).wrapping_mul(2_654_435_761) % 1_073_741_824);
    let eight = (0..8u32).map(|at| {
        let series =
            (0..12).map(|series| Series::new("a series", (0..rows).map(move |row| noise(row, series * 8 + at))));
        let kind = if at % 2 == 0 { Kind::Stacked } else { Kind::Lines };
        figure(kind, (0..rows).map(|row| f64::from(row) / 10.0).collect(), series.collect())
    });
    let section = Section { figures: eight.collect(), ..Section::default() };
    let text = page(&Report { sections: vec![section], ..Report::default() });
    assert!(text.len() < 2_000_000, "{} bytes", text.len());
    assert!(text.len() > 500_000, "{} bytes: too little for what is in it", text.len());
    let data = figures(&text);
    assert_eq!(data[7]["data"].as_array().unwrap().len(), 13);
    assert!(data[7]["data"][12].as_array().unwrap().len() > 1400);
}

#[test]
fn more_than_that_is_less_for_each() {
    let places: Vec<f64> = (0..5000).map(f64::from).collect();
    let one = figure(Kind::Lines, places.clone(), (0..99).map(|_| Series::new("a", places.clone())).collect());
    let section = Section { figures: vec![one; 4], ..Section::default() };
    let report = Report { sections: vec![section], ..Report::default() };
    assert_eq!(report.limit(), NUMBERS_MAX / 400);
    assert!(page(&report).len() < 2_000_000);
}

#[test]
fn numbers_are_short() {
    let mib = 1048576.0;
    let values = [512.0 * mib, 511.987_654 * mib, f64::NAN, 0.0];
    let text = page(&report_of(figure(Kind::Lines, vec![0.0, 1.5, 2.0, 1e3], vec![Series::new("a", values)])));
    assert!(text.contains("\"data\":[[0,1.5,2,1000],[512,512,null,0]]"), "{}", figures(&text)[0]["data"]);
    let mut log = figure(Kind::Curves, vec![1.0, 2.0], vec![Series::new("a", [123_456_789.0, 1.5])]);
    log.y = Axis::log("Latency", Unit::Nanoseconds);
    let text = page(&report_of(log));
    assert!(text.contains("[123460000,1.5]"));
    assert!(text.contains("<td>123\u{a0}ms</td>"));
}

#[test]
fn there_is_a_table_with_the_same_numbers() {
    let figure = figure(Kind::Lines, vec![0.0, 60.0, 4000.5], vec![Series::new("pool", [0.0, 2048.0, 1024.0])]);
    let text = page(&report_of(figure));
    assert!(text.contains("<th scope=\"col\">Time (h:min:s)</th><th scope=\"col\">pool (KiB)</th>"));
    assert!(text.contains("<tr><th scope=\"row\">0:01:00.0</th><td>2</td></tr>"));
    assert!(text.contains("<tr><th scope=\"row\">1:06:40.5</th><td>1</td></tr>"));
}

#[test]
fn a_long_table_says_what_it_leaves_out() {
    let places: Vec<f64> = (0..6000).map(f64::from).collect();
    let text = page(&report_of(figure(Kind::Lines, places.clone(), vec![Series::new("a", places)])));
    assert!(text.contains(
        "Of 6\u{202f}000 rows the figure has 1\u{202f}500, this table has 120: two for each stretch, with the lowest"
    ));
    assert_eq!(text.matches("<tr>").count(), 121);
}

#[test]
fn tables_of_their_own() {
    let columns = vec![
        Column::new("Scheme", Unit::Count),
        Column::new("Faults", Unit::Count),
        Column::new("Cost", Unit::Nanoseconds),
        Column::new("Memory", Unit::Bytes),
    ];
    let rows = vec![
        vec!["lru".into(), 1_234_567.0.into(), 1500.0.into(), Cell::Missing],
        vec!["clock".into(), 5.0.into(), f64::NAN.into()],
    ];
    let table = Table { title: "Schemes".into(), says: String::new(), columns, rows };
    let section = Section { tables: vec![table], ..Section::default() };
    let text = page(&Report { sections: vec![section], ..Report::default() });
    assert!(text.contains("<th scope=\"col\" class=\"words\">Scheme</th><th scope=\"col\">Faults</th>"));
    let first =
        "<tr><th scope=\"row\" class=\"words\">lru</th><td>1\u{202f}234\u{202f}567</td><td>1.50</td><td class=\"words\">–</td></tr>";
    assert!(text.contains(first));
    assert!(text.contains(
        "<tr><th scope=\"row\" class=\"words\">clock</th><td>5</td><td>–</td><td class=\"words\">–</td></tr>"
    ));
}

#[test]
fn what_has_no_values_is_a_page_all_the_same() {
    let kinds = [Kind::Lines, Kind::Curves, Kind::Points, Kind::Stacked, Kind::Steps, Kind::Bars];
    let series = [
        vec![],
        vec![Series::default()],
        vec![Series::new("one", [1.0])],
        vec![Series::new("odd", [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN_POSITIVE])],
    ];
    for kind in kinds {
        for series in &series {
            for places in [vec![], vec![1.0], vec![f64::NAN; 5], vec![-1.0, 0.0, 1.0, f64::MAX, f64::MIN]] {
                let mut figure = figure(kind, places, series.clone());
                figure.marks = vec![Mark::new(f64::NAN, "nowhere")];
                for log in [false, true] {
                    (figure.x.log, figure.y.log) = (log, log);
                    let text = page(&report_of(figure.clone()));
                    figures(&text);
                    assert!(!text.contains("NaN\"") && !text.contains(">inf"));
                }
            }
        }
    }
    page(&Report::default());
}

#[test]
fn bars_of_numbers_have_them_as_names() {
    let figure = figure(Kind::Bars, vec![1.0, 2.0], vec![Series::new("a", [1.0, 2.0])]);
    let text = page(&report_of(figure));
    assert_eq!(figures(&text)[0]["names"], serde_json::json!(["1\u{a0}s", "2\u{a0}s"]));
    assert_eq!(figures(&text)[0]["data"][0], serde_json::json!([0, 1]));
}

#[test]
fn the_page_asks_for_nothing() {
    let text = page(&report_of(figure(Kind::Lines, vec![0.0], vec![Series::new("a", [1.0])])));
    for wish in [" src=", "@import", "url(", "fetch(", "XMLHttpRequest", "import("] {
        assert!(!text.contains(wish), "{wish}");
    }
    assert_eq!(text.matches("href=").count(), text.matches("href=\"data:,\"").count());
    assert!(text.contains("Leon Sorokin"), "uPlot's licence goes where uPlot goes");
}

/// Relative luminance of a colour by WCAG.
fn luminance(colour: &str) -> f64 {
    let part = |at: usize| f64::from(u8::from_str_radix(&colour[at..at + 2], 16).expect("two hex digits")) / 255.0;
    let linear = |part: f64| if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) };
    0.2126 * linear(part(1)) + 0.7152 * linear(part(3)) + 0.0722 * linear(part(5))
}

#[test]
fn colours_can_be_seen() {
    let contrast = |a: &str, b: &str| {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    };
    // --name: light-dark(#aabbcc, #ddeeff);
    let rules = STYLE.lines().filter_map(|line| line.trim().strip_prefix("--")?.split_once(": light-dark("));
    let colours: HashMap<&str, (&str, &str)> = rules
        .map(|(name, value)| (name, value.trim_end_matches(");").split_once(", ").expect("light and dark")))
        .collect();
    for theme in [|pair: (&'static str, &'static str)| pair.0, |pair: (&'static str, &'static str)| pair.1] {
        let colour = |name: &str| theme(colours[name]);
        for ground in ["page", "card"] {
            assert!(contrast(colour("text"), colour(ground)) > 7.0);
            assert!(contrast(colour("quiet"), colour(ground)) > 4.5);
            assert!(contrast(colour("link"), colour(ground)) > 4.5);
        }
        for at in 0..COLOURS {
            let found = contrast(colour(&format!("colour-{at}")), colour("card"));
            assert!(found >= 3.0, "colour {at} has {found}");
        }
    }
}
