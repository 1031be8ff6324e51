//! Figures: which numbers are drawn, and how.

use crate::statement::Numbers;
use memfit_report::{Axis, Figure, Kind as Drawn, Series, Unit};

/// Kind of drawing.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// Bars for each row.
    Bars,
    /// Curves, with the x values of the rows.
    Curves(Vec<f64>),
    /// Points without lines, with the x values of the rows.
    Points(Vec<f64>),
}

/// A figure or a table of a paper.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Title.
    pub title: String,
    /// The figure or table that it reproduces; statements of the same source refer to it.
    pub source: &'static str,
    /// What the published one shows.
    pub says: &'static str,
    /// Kind of drawing.
    pub kind: Kind,
    /// Label and unit of the x axis.
    pub x: (&'static str, Unit),
    /// For each row, the key in the names of numbers, and the label.
    pub rows: Vec<(String, String)>,
    /// Series: the label, and the name of the number of a row, with `{}` in place of the key.
    pub series: Vec<(String, String)>,
    /// Label and unit of the y axis, and whether it is logarithmic.
    pub y: (&'static str, Unit, bool),
    /// Marked values and their labels.
    pub levels: Vec<(f64, &'static str)>,
}

impl Chart {
    /// Bars on a linear axis.
    pub fn bars(
        (title, source, says): (&str, &'static str, &'static str),
        x: &'static str,
        rows: impl IntoIterator<Item = (&'static str, &'static str)>,
        y: (&'static str, Unit),
        series: impl IntoIterator<Item = (&'static str, &'static str)>,
    ) -> Chart {
        Chart {
            title: title.into(),
            source,
            says,
            kind: Kind::Bars,
            x: (x, Unit::Count),
            rows: owned(rows),
            series: owned(series),
            y: (y.0, y.1, false),
            levels: Vec::new(),
        }
    }

    /// Curves over numeric rows.
    pub fn curves(
        (title, source, says): (&str, &'static str, &'static str),
        (x, unit): (&'static str, Unit),
        rows: impl IntoIterator<Item = (String, f64)>,
        y: (&'static str, Unit),
        series: impl IntoIterator<Item = (String, String)>,
    ) -> Chart {
        let (rows, places): (Vec<_>, Vec<_>) = rows.into_iter().map(|(key, at)| ((key.clone(), key), at)).unzip();
        Chart {
            title: title.into(),
            source,
            says,
            kind: Kind::Curves(places),
            x: (x, unit),
            rows,
            series: series.into_iter().collect(),
            y: (y.0, y.1, false),
            levels: Vec::new(),
        }
    }

    /// Makes the y axis logarithmic.
    #[must_use]
    pub fn log(self) -> Chart {
        Chart { y: (self.y.0, self.y.1, true), ..self }
    }

    /// Marks a value.
    #[must_use]
    pub fn level(mut self, at: f64, label: &'static str) -> Chart {
        self.levels.push((at, label));
        self
    }

    /// Name of the number of a row in a series.
    fn name(pattern: &str, key: &str) -> String {
        pattern.replace("{}", key)
    }

    /// Whether it draws one of these numbers.
    pub fn draws(&self, names: &[&str]) -> bool {
        let drawn = |name: &str| {
            let of =
                |(_, pattern): &(String, String)| self.rows.iter().any(|(key, _)| Chart::name(pattern, key) == name);
            self.series.iter().any(of)
        };
        names.iter().any(|name| drawn(name))
    }

    /// The figure with our numbers, those of recordings, and, dashed in the same colour, the
    /// published ones. `None` if it has no numbers of ours.
    pub fn figure(&self, ours: &Numbers, recorded: &Numbers, published: &Numbers, verdict: &str) -> Option<Figure> {
        let mut series = Vec::new();
        for (colour, (label, pattern)) in self.series.iter().enumerate() {
            let of = |numbers: &Numbers| -> Vec<Option<f64>> {
                self.rows.iter().map(|(key, _)| numbers.get(&Chart::name(pattern, key))).collect()
            };
            let (here, real, printed) = (of(ours), of(recorded), of(published));
            if here.iter().any(Option::is_some) {
                let named = if self.series.len() == 1 { "simulated".to_owned() } else { label.clone() };
                series.push(Series::with_gaps(&named, here).colour(colour));
            }
            if real.iter().any(Option::is_some) {
                let named = if self.series.len() == 1 { "recorded".to_owned() } else { format!("{label}, recorded") };
                series.push(Series::with_gaps(&named, real).colour(self.series.len() + colour));
            }
            if printed.iter().any(Option::is_some) {
                let named = if self.series.len() == 1 { "paper".to_owned() } else { format!("{label}, paper") };
                series.push(Series::with_gaps(&named, printed).dashed().colour(colour));
            }
        }
        if series.iter().all(|series| series.dashed) {
            return None;
        }
        let (title, says) = (format!("{}: {}", self.source, self.title), format!("Published: {} {verdict}", self.says));
        let y = Axis { label: self.y.0.into(), unit: self.y.1, log: self.y.2 };
        let labels = self.rows.iter().map(|(_, label)| label.clone());
        let mut figure = match &self.kind {
            Kind::Bars => Figure::of_names(Drawn::Bars, &title, says.trim(), self.x.0, y, labels),
            Kind::Curves(places) | Kind::Points(places) => {
                let kind = if matches!(self.kind, Kind::Points(_)) { Drawn::Points } else { Drawn::Curves };
                Figure::new(kind, &title, says.trim(), Axis::new(self.x.0, self.x.1), y, places.clone())
            }
        };
        figure.series = series;
        figure.levels = self.levels.iter().map(|&(at, label)| memfit_report::Mark::new(at, label)).collect();
        Some(figure)
    }
}

/// Copies pairs into owned strings.
pub fn owned<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<(String, String)> {
    pairs.into_iter().map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
}
