//! Figures and tables as one self-contained HTML page: no network, no fonts, no second file.
//!
//! A caller describes the page in plain units (bytes, nanoseconds, seconds), in Rust or as JSON
//! ([`Report::from_json`]). [`Report::write`] makes the page: figures drawn by uPlot
//! (assets/uplot-*), light and dark, and the numbers of each figure as a table. Series that are too
//! long are thinned, so that the page of an hour's run stays below 2 MB; peaks stay.
//!
//! ```
//! use memfit_report::{Axis, Figure, Kind, Mark, Report, Section, Series, Unit};
//!
//! let (time, memory) = (Axis::new("Time", Unit::Seconds), Axis::new("Memory", Unit::Bytes));
//! let says = "The program stays below its budget.";
//! let mut figure = Figure::new(Kind::Stacked, "Memory by state", says, time, memory, vec![0.0, 0.1, 0.2]);
//! figure.series = vec![Series::new("resident", [1e6, 2e6, 2e6]), Series::new("pool", [0.0, 0.0, 5e5])];
//! figure.levels = vec![Mark::new(4e6, "budget 4 MB")];
//! let section = Section { title: "Over time".into(), figures: vec![figure], ..Section::default() };
//! let report = Report { title: "A run".into(), sections: vec![section], ..Report::default() };
//! let mut page = Vec::new();
//! report.write(&mut page)?;
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]

mod page;
mod read;
mod thin;
mod unit;

use serde::Deserialize;
pub use unit::Unit;

/// Most points of a series in a page. A longer series is thinned so that its lowest and highest
/// values stay.
pub const POINTS_MAX: usize = 1500;
/// Most numbers in all long series of a page: if there are more, each gets fewer points than
/// [`POINTS_MAX`].
pub const NUMBERS_MAX: usize = 160_000;
/// Fewest points of a long series, however many series there are.
pub const POINTS_MIN: usize = 100;
/// Most rows of the table under a figure. The page can save all of its points as CSV.
pub const ROWS_MAX: usize = 120;

/// A page.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Title, a few words.
    pub title: String,
    /// The conclusion, one sentence.
    #[serde(default)]
    pub says: String,
    /// Names and values that describe the run: command, budget, scheme, version.
    #[serde(default)]
    pub facts: Vec<(String, String)>,
    /// In the order of the page.
    pub sections: Vec<Section>,
}

/// A part of a page: text, then tables, then figures.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// Paragraphs.
    #[serde(default)]
    pub text: Vec<String>,
    /// Tables besides those of the figures.
    #[serde(default)]
    pub tables: Vec<Table>,
    /// Figures.
    #[serde(default)]
    pub figures: Vec<Figure>,
}

/// How values are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Lines, for sampled values. A missing value is a gap.
    Lines,
    /// Lines with a marker at each point, for values measured at a few places. They go on over
    /// missing values, so that each series can have its own places ([`join`]).
    Curves,
    /// Markers only.
    Points,
    /// Areas on top of each other, the first one at the bottom, for values that are not negative. A
    /// missing value counts as 0.
    Stacked,
    /// Each value holds from its place to the next one: step functions and histograms. The last
    /// place only ends the step before it; its values are not drawn.
    Steps,
    /// Groups of bars, one group for each place, which is a name.
    Bars,
}

/// Places of the values along x.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged, expecting = "places are an array of numbers, or one of names")]
pub enum Places {
    /// Numbers in the unit of the axis. Those that are not finite are left out, and on a
    /// logarithmic axis also those that are not positive. They are sorted.
    Numbers(Vec<f64>),
    /// Names at equal distances.
    Names(Vec<String>),
}

/// An axis.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// The quantity without its unit: "Memory".
    pub label: String,
    /// Unit of the values.
    #[serde(default)]
    pub unit: Unit,
    /// Logarithmic; values that are not positive then count as missing.
    #[serde(default)]
    pub log: bool,
}

/// A series of values.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Name, a few words.
    pub name: String,
    /// A value for each place, in the unit of the y axis. `None` and values that are not finite are
    /// missing, as are values beyond the end.
    pub values: Vec<Option<f64>>,
    /// Dashed: not measured by memfit, such as a paper's published values.
    #[serde(default)]
    pub dashed: bool,
    /// Colour number below [`COLOURS`]; `None`: by position. The same thing in several figures, or
    /// memfit's and the paper's value of it, should have one colour.
    #[serde(default)]
    pub colour: Option<usize>,
}

/// A place or value that is marked by a line.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// Position in the unit of the axis; among names their index, from 0.
    pub at: f64,
    /// Label, a few words.
    pub label: String,
}

/// Number of colours of series. Further series use the colours again, with another line style.
pub const COLOURS: usize = 8;

/// A figure. The page shows its values as a table below it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Title, a few words.
    pub title: String,
    /// What the figure shows, one sentence.
    #[serde(default)]
    pub says: String,
    /// How it is drawn.
    pub kind: Kind,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis. It begins at 0 if no value is negative, unless it is logarithmic.
    pub y: Axis,
    /// Places of the values, the same for all series.
    pub places: Places,
    /// One row of values for each line or bar.
    pub series: Vec<Series>,
    /// Marked places along x: vertical lines.
    #[serde(default)]
    pub marks: Vec<Mark>,
    /// Marked values along y, such as the budget: horizontal lines, always in view.
    #[serde(default)]
    pub levels: Vec<Mark>,
}

/// A table.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Title, a few words.
    pub title: String,
    /// What the table shows, one sentence; may be empty.
    #[serde(default)]
    pub says: String,
    /// The columns. The first one names the rows.
    pub columns: Vec<Column>,
    /// Cells of each row.
    pub rows: Vec<Vec<Cell>>,
}

/// A column.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Name without its unit.
    pub name: String,
    /// Unit of its numbers.
    #[serde(default)]
    pub unit: Unit,
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a cell is a text, a number, or null where nothing is known")]
pub enum Cell {
    /// A text.
    Text(String),
    /// A number, in the unit of the column.
    Number(f64),
    /// No value is known.
    Missing,
}

impl Axis {
    /// A linear axis.
    pub fn new(label: &str, unit: Unit) -> Axis {
        Axis { label: label.into(), unit, log: false }
    }

    /// A logarithmic axis.
    pub fn log(label: &str, unit: Unit) -> Axis {
        Axis { log: true, ..Axis::new(label, unit) }
    }
}

impl Series {
    /// A series without missing values.
    pub fn new(name: &str, values: impl IntoIterator<Item = f64>) -> Series {
        Series::with_gaps(name, values.into_iter().map(Some))
    }

    /// A series with missing values.
    pub fn with_gaps(name: &str, values: impl IntoIterator<Item = Option<f64>>) -> Series {
        Series { name: name.into(), values: values.into_iter().collect(), dashed: false, colour: None }
    }

    /// The same series, dashed.
    #[must_use]
    pub fn dashed(self) -> Series {
        Series { dashed: true, ..self }
    }

    /// The same series in this colour, counted from 0.
    #[must_use]
    pub fn colour(self, colour: usize) -> Series {
        Series { colour: Some(colour), ..self }
    }
}

impl Mark {
    /// A mark at this position.
    pub fn new(at: f64, label: &str) -> Mark {
        Mark { at, label: label.into() }
    }
}

impl Figure {
    /// A figure with numbers along x and without series.
    pub fn new(kind: Kind, title: &str, says: &str, x: Axis, y: Axis, places: Vec<f64>) -> Figure {
        let (title, says, places) = (title.into(), says.into(), Places::Numbers(places));
        Figure { title, says, kind, x, y, places, series: Vec::new(), marks: Vec::new(), levels: Vec::new() }
    }

    /// A figure with names along x and without series; `label` says what the names are.
    pub fn of_names<S: Into<String>>(
        kind: Kind,
        title: &str,
        says: &str,
        label: &str,
        y: Axis,
        names: impl IntoIterator<Item = S>,
    ) -> Figure {
        let places = Places::Names(names.into_iter().map(Into::into).collect());
        Figure { places, ..Figure::new(kind, title, says, Axis::new(label, Unit::Count), y, Vec::new()) }
    }
}

impl Column {
    /// A column of numbers in this unit, or of texts.
    pub fn new(name: &str, unit: Unit) -> Column {
        Column { name: name.into(), unit }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.into())
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Cell {
        Cell::Number(number)
    }
}

impl From<Option<f64>> for Cell {
    fn from(number: Option<f64>) -> Cell {
        number.map_or(Cell::Missing, Cell::Number)
    }
}

/// Joins curves of (x, y), each with places of its own: common places and the values of each curve
/// there, for one figure of [`Kind::Curves`].
pub fn join(curves: &[Vec<(f64, f64)>]) -> (Vec<f64>, Vec<Vec<Option<f64>>>) {
    let mut places: Vec<f64> = curves.iter().flatten().map(|&(x, _)| x).filter(|x| x.is_finite()).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let at = |curve: &Vec<(f64, f64)>, place: f64| curve.iter().find(|(x, _)| *x == place).map(|&(_, y)| y);
    let values = curves.iter().map(|curve| places.iter().map(|&place| at(curve, place)).collect()).collect();
    (places, values)
}
