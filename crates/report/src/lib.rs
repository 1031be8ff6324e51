//! Figures and tables as one HTML page that needs nothing else: no network, no fonts, no second
//! file.
//!
//! A caller describes what is to be seen, in plain units (bytes, nanoseconds, seconds), here or as
//! JSON ([`Report::from_json`]), and [`Report::write`] makes the page: drawn by uPlot
//! (assets/uplot-*), light and dark, each figure with its numbers as a table. What is too long to
//! be drawn is thinned here, so that the page of an hour's run stays below 2 MB; peaks stay.
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

/// Most points of a series that a page holds; what is longer is thinned, so that lowest and highest
/// values stay.
pub const POINTS_MAX: usize = 1500;
/// Most numbers of all long series of a page: with more of them, each gets fewer points than
/// [`POINTS_MAX`].
pub const NUMBERS_MAX: usize = 160_000;
/// And the fewest points that a long series gets, however many there are.
pub const POINTS_MIN: usize = 100;
/// Most rows of the table under a figure. The page can save all points that it has as CSV.
pub const ROWS_MAX: usize = 120;

/// A page.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// What it is about, in a few words.
    pub title: String,
    /// What one learns from it: one sentence.
    #[serde(default)]
    pub says: String,
    /// What was run and how, names and values: the command, the budget, the scheme, the version.
    #[serde(default)]
    pub facts: Vec<(String, String)>,
    /// Its parts.
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
    /// Tables of their own; figures have theirs anyway.
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
    /// Lines, for what was sampled. A missing value is a gap.
    Lines,
    /// Lines with a marker at each point, for what was measured at a few places. They go on over
    /// missing values, so that series may have places of their own ([`join`]).
    Curves,
    /// Markers alone.
    Points,
    /// Areas on top of each other, the first one at the bottom, of values that are not negative. A
    /// missing value counts as nothing.
    Stacked,
    /// Each value holds from its place to the next one: what changes at once, or a histogram. The
    /// last place only ends what began before it; its values are not drawn.
    Steps,
    /// Bars beside each other for each place, which is a name.
    Bars,
}

/// Where values are along x.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged, expecting = "places are an array of numbers, or one of names")]
pub enum Places {
    /// In the unit of the axis. Those that are not finite are left out, and so are those that are
    /// not positive on a logarithmic axis; what is not in order is sorted.
    Numbers(Vec<f64>),
    /// At equal distances.
    Names(Vec<String>),
}

/// What an axis shows.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// What it is, without its unit: "Memory".
    pub label: String,
    /// What its values are given in.
    #[serde(default)]
    pub unit: Unit,
    /// Logarithmic. Values that are not positive are then missing.
    #[serde(default)]
    pub log: bool,
}

/// The values of one thing.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// What it is, in a few words.
    pub name: String,
    /// A value for each place, in the unit of the y axis; `None`, and what is not finite, is
    /// missing, as are those behind the end.
    pub values: Vec<Option<f64>>,
    /// Dashed: not measured here, such as what a paper published.
    #[serde(default)]
    pub dashed: bool,
    /// The colour, counted from 0, of [`COLOURS`]; `None` is the one of its position. The same
    /// thing in several figures, or ours and the paper's value of it, should have one colour.
    #[serde(default)]
    pub colour: Option<usize>,
}

/// A place or a value that is marked by a line.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// Where, in the unit of the axis; among names their position, counted from 0.
    pub at: f64,
    /// What is there, in a few words.
    pub label: String,
}

/// Colours of series; with more series than that, colours come again, with another line.
pub const COLOURS: usize = 8;

/// A figure. Below it are its values as a table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// What it shows, in a few words.
    pub title: String,
    /// What one sees: one sentence.
    #[serde(default)]
    pub says: String,
    /// How it is drawn.
    pub kind: Kind,
    /// To the right.
    pub x: Axis,
    /// Upwards. It begins at 0 if no value is negative, unless it is logarithmic.
    pub y: Axis,
    /// Where values are, the same for all series.
    pub places: Places,
    /// Values.
    pub series: Vec<Series>,
    /// Marked places along x: vertical lines.
    #[serde(default)]
    pub marks: Vec<Mark>,
    /// Marked values along y, such as the budget: horizontal lines, always in sight.
    #[serde(default)]
    pub levels: Vec<Mark>,
}

/// A table.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// What it shows, in a few words.
    pub title: String,
    /// What one sees, one sentence; may be empty.
    #[serde(default)]
    pub says: String,
    /// What its columns are. The first one says what the rows are.
    pub columns: Vec<Column>,
    /// Cells of each row.
    pub rows: Vec<Vec<Cell>>,
}

/// A column.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// What it is, without its unit.
    pub name: String,
    /// What its numbers are given in.
    #[serde(default)]
    pub unit: Unit,
}

/// What is in a table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a cell is a text, a number, or null where nothing is known")]
pub enum Cell {
    /// Words.
    Text(String),
    /// A number, in the unit of the column.
    Number(f64),
    /// It is not known.
    Missing,
}

impl Axis {
    /// A linear one.
    pub fn new(label: &str, unit: Unit) -> Axis {
        Axis { label: label.into(), unit, log: false }
    }

    /// A logarithmic one.
    pub fn log(label: &str, unit: Unit) -> Axis {
        Axis { log: true, ..Axis::new(label, unit) }
    }
}

impl Series {
    /// Of values that are all there.
    pub fn new(name: &str, values: impl IntoIterator<Item = f64>) -> Series {
        Series::with_gaps(name, values.into_iter().map(Some))
    }

    /// Of values of which some are missing.
    pub fn with_gaps(name: &str, values: impl IntoIterator<Item = Option<f64>>) -> Series {
        Series { name: name.into(), values: values.into_iter().collect(), dashed: false, colour: None }
    }

    /// The same, dashed.
    #[must_use]
    pub fn dashed(self) -> Series {
        Series { dashed: true, ..self }
    }

    /// The same in that colour, counted from 0.
    #[must_use]
    pub fn colour(self, colour: usize) -> Series {
        Series { colour: Some(colour), ..self }
    }
}

impl Mark {
    /// A mark there.
    pub fn new(at: f64, label: &str) -> Mark {
        Mark { at, label: label.into() }
    }
}

impl Figure {
    /// With numbers along x and no values yet.
    pub fn new(kind: Kind, title: &str, says: &str, x: Axis, y: Axis, places: Vec<f64>) -> Figure {
        let (title, says, places) = (title.into(), says.into(), Places::Numbers(places));
        Figure { title, says, kind, x, y, places, series: Vec::new(), marks: Vec::new(), levels: Vec::new() }
    }

    /// With names along x, `label` being what they are, and no values yet.
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
    /// A column of numbers in that unit, or of words.
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

/// Curves of (x, y) with places of their own as places and values for one figure of
/// [`Kind::Curves`].
pub fn join(curves: &[Vec<(f64, f64)>]) -> (Vec<f64>, Vec<Vec<Option<f64>>>) {
    let mut places: Vec<f64> = curves.iter().flatten().map(|&(x, _)| x).filter(|x| x.is_finite()).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let at = |curve: &Vec<(f64, f64)>, place: f64| curve.iter().find(|(x, _)| *x == place).map(|&(_, y)| y);
    let values = curves.iter().map(|curve| places.iter().map(|&place| at(curve, place)).collect()).collect();
    (places, values)
}
