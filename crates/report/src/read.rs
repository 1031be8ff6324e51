//! Reads the description of a page from JSON. docs/report.md has the format: the fields of
//! [`Report`] by name.

use crate::{Figure, Places, Report, Table, COLOURS};

impl Report {
    /// Reads a description.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn from_json(text: &[u8]) -> Result<Report, String> {
        let report: Report = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        for section in &report.sections {
            let parts = section.tables.iter().map(check_table).chain(section.figures.iter().map(check_figure));
            if let Some(wrong) = parts.filter_map(Result::err).next() {
                return Err(format!("section {:?}: {wrong}", section.title));
            }
        }
        Ok(report)
    }
}

fn check_table(table: &Table) -> Result<(), String> {
    let columns = table.columns.len();
    match table.rows.iter().enumerate().find(|(_, row)| row.len() > columns) {
        Some((at, row)) => {
            Err(format!("table {:?}: row {} has {} cells for {columns} columns", table.title, at + 1, row.len()))
        }
        None => Ok(()),
    }
}

fn check_figure(figure: &Figure) -> Result<(), String> {
    let places = match &figure.places {
        Places::Numbers(numbers) => numbers.len(),
        Places::Names(names) => names.len(),
    };
    for series in &figure.series {
        let wrong = match series.colour {
            Some(colour) if colour >= COLOURS => format!("has the colour {colour}: there are 0 to {}", COLOURS - 1),
            _ if series.values.len() > places => format!("has {} values for {places} places", series.values.len()),
            _ => continue,
        };
        return Err(format!("figure {:?}: series {:?} {wrong}", figure.title, series.name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, Cell, Column, Kind, Mark, Section, Series, Unit};

    /// A description that uses every field; docs/report.md shows it.
    const WHOLE: &str = include_str!("../examples/described.json");

    #[test]
    fn reads_all_that_a_page_can_have() {
        let axis = |label: &str, unit| Axis::new(label, unit);
        let mut bars = Figure::of_names(
            Kind::Bars,
            "Time by program",
            "The sort gains most.",
            "Program",
            axis("Time / time without a limit", Unit::Ratio),
            ["sort", "sqlite"],
        );
        bars.series = vec![
            Series::with_gaps("ours", [Some(1.25), None]),
            Series::new("published", [1.5, 2.0]).dashed().colour(0),
        ];
        bars.levels = vec![Mark::new(1.0, "no limit")];
        let mut curve = Figure::new(
            Kind::Curves,
            "Faults by budget",
            "",
            Axis::log("Budget", Unit::Bytes),
            axis("Faults", Unit::Count),
            vec![67_108_864.0, 134_217_728.0],
        );
        curve.series = vec![Series::new("memfit", [1200.0, 40.0])];
        curve.marks = vec![Mark::new(134_217_728.0, "needed")];
        let table = Table {
            title: "Runs".into(),
            says: "Medians.".into(),
            columns: vec![Column::new("Program", Unit::Count), Column::new("Time", Unit::Seconds)],
            rows: vec![vec!["sort".into(), Cell::Number(3.5)], vec!["sqlite".into(), Cell::Missing]],
        };
        let expected = Report {
            title: "Two programs".into(),
            says: "Both fit.".into(),
            facts: vec![("Budget".into(), "64 MiB".into())],
            sections: vec![Section {
                title: "Results".into(),
                text: vec!["Three runs each.".into()],
                tables: vec![table],
                figures: vec![bars, curve],
            }],
        };
        assert_eq!(Report::from_json(WHOLE.as_bytes()), Ok(expected));
        assert!(include_str!("../../../docs/report.md").contains(WHOLE));
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        for (from, to, wrong) in [
            ("\"title\": \"Two programs\",", "", "missing field `title`"),
            ("\"says\"", "\"say\"", "unknown field `say`, expected one of `title`, `says`"),
            ("\"bars\"", "\"bar\"", "unknown variant `bar`, expected one of `lines`, `curves`"),
            ("\"seconds\"", "\"s\"", "unknown variant `s`, expected one of `bytes`, `bytes_per_second`"),
            ("[\"sort\", \"sqlite\"]", "[\"sort\", 3]", "places are an array of numbers, or one of names at line"),
            ("[\"sort\", 3.5]", "[\"sort\", true]", "a cell is a text, a number, or null"),
            (
                "[\"sort\", 3.5]",
                "[\"sort\", 3.5, 4]",
                "section \"Results\": table \"Runs\": row 1 has 3 cells for 2 columns",
            ),
            ("[1.25, null]", "[1, 2, 3]", "figure \"Time by program\": series \"ours\" has 3 values for 2 places"),
            ("\"colour\": 0", "\"colour\": 8", "series \"published\" has the colour 8: there are 0 to 7"),
            ("1200", "1e999", "number out of range at line"),
            ("}", "", "EOF while parsing"),
        ] {
            let text = if wrong.starts_with("EOF") {
                WHOLE.trim_end().strip_suffix('}').unwrap().into()
            } else {
                WHOLE.replacen(from, to, 1)
            };
            assert_ne!(text, WHOLE, "{from}");
            let error = Report::from_json(text.as_bytes()).unwrap_err();
            assert!(error.contains(wrong), "{error}");
        }
        assert!(Report::from_json(b"\xff").unwrap_err().contains("line 1 column 1"));
    }
}
