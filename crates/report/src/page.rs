//! Writes the page: text and tables as HTML, and the data of figures as JSON for the script.

use crate::thin::{Keep, Rows};
use crate::unit::{clock, fixed, significant, Multiple, Shown, Unit};
use crate::{Axis, Cell, Figure, Kind, Mark, Places, Report, Section, Table};
use crate::{COLOURS, NUMBERS_MAX, POINTS_MAX, POINTS_MIN, ROWS_MAX};
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::io::{self, Write};

const STYLE: &str = include_str!("../assets/report.css");
const SCRIPT: &str = include_str!("../assets/report.js");
const UPLOT_STYLE: &str = include_str!("../assets/uplot-1.6.32/uPlot.min.css");
const UPLOT: &str = include_str!("../assets/uplot-1.6.32/uPlot.iife.min.js");
const UPLOT_LICENCE: &str = include_str!("../assets/uplot-1.6.32/LICENSE");
/// With this policy a browser loads nothing from elsewhere, whatever the page contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
/// Significant digits of numbers on logarithmic axes, and of places.
const LOG_DIGITS: i32 = 5;
const PLACE_DIGITS: i32 = 6;
/// Seconds along x from which on times are shown as a clock.
const CLOCK: f64 = 120.0;

impl Report {
    /// Writes the page.
    ///
    /// # Errors
    /// When `to` cannot be written.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let limit = self.limit();
        let figures = self.sections.iter().flat_map(|section| &section.figures);
        let drawn: Vec<Drawn> = figures.map(|figure| Drawn::of(figure, limit)).collect();
        let title = escaped(&self.title);
        write!(to, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")?;
        writeln!(to, "<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">")?;
        writeln!(to, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
        writeln!(to, "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">")?;
        writeln!(to, "<title>{title}</title>\n<style>\n{UPLOT_STYLE}\n{STYLE}</style>\n</head>\n<body>")?;
        self.write_head(to, &title)?;
        writeln!(to, "<main>")?;
        let mut rest = drawn.iter();
        for (at, section) in self.sections.iter().enumerate() {
            let first = drawn.len() - rest.len();
            let own: Vec<&Drawn> = rest.by_ref().take(section.figures.len()).collect();
            section.write(to, at, first, &own)?;
        }
        writeln!(to, "</main>\n<footer>")?;
        if !drawn.is_empty() {
            write!(
                to,
                "<p class=\"how\">Drag across a figure to look closer, click twice to see all again. Names above a "
            )?;
            writeln!(to, "figure switch its series. With the keyboard: arrow keys on a figure read its values.</p>")?;
        }
        writeln!(to, "<p>memfit {}</p>\n</footer>", env!("CARGO_PKG_VERSION"))?;
        writeln!(to, "<script type=\"application/json\" id=\"figures\">{}</script>", json(&drawn)?)?;
        write!(to, "<script>\n/*\n{UPLOT_LICENCE}*/\n{UPLOT}\n</script>\n<script>\n{SCRIPT}</script>\n")?;
        writeln!(to, "</body>\n</html>")
    }

    fn write_head(&self, to: &mut impl Write, title: &str) -> io::Result<()> {
        writeln!(to, "<header>\n<div class=\"themes\" role=\"group\" aria-label=\"Colours\" hidden>")?;
        for (theme, name) in [("auto", "Auto"), ("light", "Light"), ("dark", "Dark")] {
            writeln!(to, "<button type=\"button\" data-theme=\"{theme}\">{name}</button>")?;
        }
        writeln!(to, "</div>\n<h1>{title}</h1>")?;
        paragraph(to, "says", &self.says)?;
        if !self.facts.is_empty() {
            writeln!(to, "<dl class=\"facts\">")?;
            for (name, value) in &self.facts {
                writeln!(to, "<div><dt>{}</dt><dd>{}</dd></div>", escaped(name), escaped(value))?;
            }
            writeln!(to, "</dl>")?;
        }
        if self.sections.len() > 2 {
            writeln!(to, "<nav aria-label=\"Sections\"><ul>")?;
            for (at, section) in self.sections.iter().enumerate() {
                writeln!(to, "<li><a href=\"#section-{at}\">{}</a></li>", escaped(&section.title))?;
            }
            writeln!(to, "</ul></nav>")?;
        }
        writeln!(to, "</header>\n<noscript><p class=\"note\">Without scripts there are only the tables.</p></noscript>")
    }

    /// Most points of a series in this page.
    fn limit(&self) -> usize {
        let rows = |figure: &Figure| match &figure.places {
            Places::Numbers(numbers) => numbers.len(),
            Places::Names(_) => 0,
        };
        let figures = self.sections.iter().flat_map(|section| &section.figures);
        let columns =
            figures.filter(|figure| rows(figure) > POINTS_MIN).map(|figure| figure.series.len() + 1).sum::<usize>();
        (NUMBERS_MAX / columns.max(1)).clamp(POINTS_MIN, POINTS_MAX)
    }
}

impl Section {
    /// `first` is the number of its first figure in the page.
    fn write(&self, to: &mut impl Write, at: usize, first: usize, drawn: &[&Drawn]) -> io::Result<()> {
        writeln!(to, "<section id=\"section-{at}\">\n<h2>{}</h2>", escaped(&self.title))?;
        for text in &self.text {
            paragraph(to, "text", text)?;
        }
        for table in &self.tables {
            table.write(to)?;
        }
        for (at, (figure, drawn)) in self.figures.iter().zip(drawn).enumerate() {
            figure.write(to, first + at, drawn)?;
        }
        writeln!(to, "</section>")
    }
}

impl Table {
    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let cells = |column: usize| self.rows.iter().map(move |row| row.get(column).unwrap_or(&Cell::Missing));
        let numbers = |column: usize| {
            cells(column).filter_map(|cell| match cell {
                Cell::Number(number) if number.is_finite() => Some(*number),
                _ => None,
            })
        };
        let columns: Vec<(bool, Shown)> = (0..self.columns.len())
            .map(|at| {
                let unit = self.columns[at].unit;
                let mut shown = Shown::of(unit, numbers(at), 3);
                if unit == Unit::Count && shown.by > 1.0 {
                    // A table has room for all digits.
                    let decimals = if numbers(at).all(|number| number.fract() == 0.0) { 0 } else { 1 };
                    shown = Shown { by: 1.0, suffix: "", decimals };
                }
                (numbers(at).next().is_some(), shown)
            })
            .collect();
        writeln!(to, "<div class=\"sheet\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">", escaped(&self.title))?;
        write!(to, "<table>\n<caption><strong>{}</strong>", escaped(&self.title))?;
        if !self.says.is_empty() {
            write!(to, " <span>{}</span>", escaped(&self.says))?;
        }
        write!(to, "</caption>\n<thead><tr>")?;
        for (column, (is_number, shown)) in self.columns.iter().zip(&columns) {
            let class = if *is_number { "" } else { " class=\"words\"" };
            write!(to, "<th scope=\"col\"{class}>{}</th>", escaped(&with_unit(&column.name, shown.suffix)))?;
        }
        write!(to, "</tr></thead>\n<tbody>\n")?;
        for row in &self.rows {
            write!(to, "<tr>")?;
            for (at, (is_number, shown)) in columns.iter().enumerate() {
                let (text, class) = match row.get(at) {
                    Some(Cell::Text(text)) => (escaped(text).into_owned(), " class=\"words\""),
                    Some(Cell::Number(number)) if number.is_finite() => (shown.write(*number), ""),
                    // Missing: aligned like the head of its column.
                    _ => ("–".into(), if *is_number { "" } else { " class=\"words\"" }),
                };
                match at {
                    0 => write!(to, "<th scope=\"row\"{class}>{text}</th>")?,
                    _ => write!(to, "<td{class}>{text}</td>")?,
                }
            }
            writeln!(to, "</tr>")?;
        }
        writeln!(to, "</tbody>\n</table>\n</div>")
    }
}

impl Figure {
    fn write(&self, to: &mut impl Write, number: usize, drawn: &Drawn) -> io::Result<()> {
        let (title, says) = (escaped(&self.title), escaped(&self.says));
        writeln!(to, "<figure id=\"figure-{number}\">\n<figcaption><h3>{title}</h3><p>{says}</p></figcaption>")?;
        writeln!(to, "<div class=\"legend\" role=\"group\" aria-label=\"Series of {title}\"></div>")?;
        writeln!(to, "<p class=\"label-y\">{}</p>", escaped(&drawn.y.label))?;
        let spoken = escaped_owned(drawn.spoken(self));
        writeln!(
            to,
            "<div class=\"plot\" data-figure=\"{number}\" role=\"img\" tabindex=\"0\" aria-label=\"{spoken}\"></div>"
        )?;
        writeln!(to, "<p class=\"label-x\">{}</p>", escaped(&drawn.x.label))?;
        writeln!(to, "<p class=\"spoken\" aria-live=\"polite\"></p>")?;
        self.write_table(to, drawn)?;
        writeln!(to, "</figure>")
    }

    fn write_table(&self, to: &mut impl Write, drawn: &Drawn) -> io::Result<()> {
        let rows = drawn.rows.thinned(ROWS_MAX, Keep::of(self.kind));
        let (held, shown) = (drawn.rows.places.len(), rows.places.len());
        let mut note = String::new();
        if shown < held || held < drawn.measured {
            let kept = match Keep::of(self.kind) {
                Keep::Each => {
                    "two for each stretch, with the lowest and the highest value of each series in their order"
                }
                Keep::Sums => "those with the lowest and the highest sum of each stretch",
            };
            let count = |count: usize| fixed(count as f64, 0);
            let figure =
                if held < drawn.measured { format!("the figure has {}, ", count(held)) } else { String::new() };
            let measured = count(drawn.measured);
            note = format!("Of {measured} rows {figure}this table has {}: {kept}.", count(shown));
        }
        writeln!(to, "<details><summary>Numbers</summary>\n<div class=\"tools\" hidden></div>")?;
        writeln!(
            to,
            "<div class=\"sheet\" tabindex=\"0\" role=\"region\" aria-label=\"Numbers of {}\">",
            escaped(&self.title)
        )?;
        writeln!(to, "<table>\n<caption><strong>{}</strong> <span>{note}</span></caption>", escaped(&self.title))?;
        let class = if drawn.names.is_some() { " class=\"words\"" } else { "" };
        write!(to, "<thead><tr><th scope=\"col\"{class}>{}</th>", escaped(&drawn.x.column))?;
        for series in &self.series {
            write!(to, "<th scope=\"col\">{}</th>", escaped(&with_unit(&series.name, drawn.y.suffix)))?;
        }
        write!(to, "</tr></thead>\n<tbody>\n")?;
        // The last place of a histogram has no value.
        let rows_with_values = if self.kind == Kind::Steps && shown > 1 { shown - 1 } else { shown };
        for row in 0..rows_with_values {
            let place = match &drawn.names {
                Some(names) => escaped(names.get(rows.places[row] as usize).map_or("", String::as_str)).into_owned(),
                None => drawn.x.write(rows.places[row]),
            };
            write!(to, "<tr><th scope=\"row\"{class}>{place}</th>")?;
            for column in &rows.columns {
                match column[row] {
                    Some(value) => write!(to, "<td>{}</td>", drawn.y.write(value))?,
                    None => write!(to, "<td>–</td>")?,
                }
            }
            writeln!(to, "</tr>")?;
        }
        writeln!(to, "</tbody>\n</table>\n</div>\n</details>")
    }
}

/// A figure in the form that the script gets.
#[derive(Serialize)]
struct Drawn {
    kind: &'static str,
    names: Option<Vec<String>>,
    x: Scale,
    y: Scale,
    data: Vec<Vec<Short>>,
    /// Each pair of rows has the lowest and the highest values of a bucket; a row is not a moment.
    pairs: bool,
    series: Vec<DrawnSeries>,
    marks: Vec<DrawnMark>,
    levels: Vec<DrawnMark>,
    title: String,
    /// Number of rows before thinning.
    #[serde(skip)]
    measured: usize,
    /// The rows of which `data` is made.
    #[serde(skip)]
    rows: Rows,
}

#[derive(Serialize)]
struct DrawnSeries {
    name: String,
    dashed: bool,
    /// Counted from 0.
    colour: usize,
    /// How many rounds of all colours were used before it.
    again: usize,
}

#[derive(Serialize)]
struct DrawnMark {
    at: Short,
    label: String,
}

/// How an axis writes its numbers. A linear axis has one multiple of its unit, in which the script
/// gets all values. On a logarithmic axis each number has the multiple that fits it.
#[derive(Serialize)]
struct Scale {
    /// Label with the unit.
    label: String,
    /// Label for the head of a column.
    #[serde(skip)]
    column: String,
    log: bool,
    /// Round numbers are powers of two.
    binary: bool,
    suffix: &'static str,
    decimals: usize,
    /// Form of a clock for seconds: min:s or h:min:s.
    clock: Option<&'static str>,
    multiples: &'static [Multiple],
    #[serde(skip)]
    shown: Shown,
    #[serde(skip)]
    unit: Unit,
}

/// A number in its shortest form; one that is not finite becomes null.
struct Short(Option<f64>);

impl Serialize for Short {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.filter(|value| value.is_finite()) {
            None => to.serialize_none(),
            // An integer is written without ".0".
            Some(value) if value.fract() == 0.0 && value.abs() < 1e15 => to.serialize_i64(value as i64),
            Some(value) => to.serialize_f64(value),
        }
    }
}

impl Scale {
    fn of(axis: &Axis, values: impl Iterator<Item = f64> + Clone, digits: i32, clocked: bool) -> Scale {
        let unit = axis.unit;
        let mut shown = Shown::of(unit, values.clone(), digits).shortest(values.clone());
        let largest = values.fold(0.0, |largest: f64, value| largest.max(value.abs()));
        let clock =
            (clocked && unit == Unit::Seconds && !axis.log && largest >= CLOCK).then_some(match largest >= 3600.0 {
                true => "h:min:s",
                false => "min:s",
            });
        if clock.is_some() {
            shown.decimals = shown.decimals.min(1);
        }
        let label = match (axis.log, clock, unit) {
            (true, ..) => axis.label.clone(),
            (_, Some(clock), _) => with_unit(&axis.label, clock),
            // The label of a ratio names its unit.
            (_, _, Unit::Ratio) => axis.label.clone(),
            _ => with_unit(&axis.label, shown.suffix),
        };
        let column = label.clone();
        let label = if axis.log { format!("{label}, logarithmic") } else { label };
        let (suffix, multiples) = if axis.log { ("", unit.multiples()) } else { (shown.suffix, &[][..]) };
        let binary = unit == Unit::Bytes || unit == Unit::BytesPerSecond;
        Scale { label, column, log: axis.log, binary, suffix, decimals: shown.decimals, clock, multiples, shown, unit }
    }

    fn short(&self, value: f64) -> Short {
        Short(Some(if self.log { significant(value, LOG_DIGITS) } else { self.shown.rounded(value) }))
    }

    /// The text in a table.
    fn write(&self, value: f64) -> String {
        match self.clock {
            _ if self.log => self.unit.alone(value),
            Some(form) => clock(value, form.starts_with('h'), self.decimals),
            None => self.shown.write(value),
        }
    }
}

impl Drawn {
    fn of(figure: &Figure, limit: usize) -> Drawn {
        let all = Rows::of(figure);
        let measured = all.places.len();
        let bars_of_numbers = figure.kind == Kind::Bars && matches!(figure.places, Places::Numbers(_));
        let names = match &figure.places {
            Places::Names(names) => Some(names.clone()),
            Places::Numbers(_) if bars_of_numbers => {
                Some(all.places.iter().map(|place| figure.x.unit.alone(*place)).collect())
            }
            Places::Numbers(_) => None,
        };
        let mut rows = if names.is_some() { all } else { all.thinned(limit, Keep::of(figure.kind)) };
        if bars_of_numbers {
            rows.places = (0..measured).map(|place| place as f64).collect();
        }
        let levels = figure.levels.iter().map(|level| level.at).filter(|at| at.is_finite());
        let y = Scale::of(&figure.y, rows.values().chain(levels), if names.is_some() { 3 } else { 4 }, false);
        let x = match &names {
            Some(_) => Scale::of(&Axis::new(&figure.x.label, Unit::Count), [].into_iter(), 1, false),
            None => Scale::of(&figure.x, rows.places.iter().copied(), PLACE_DIGITS, true),
        };
        let pairs = rows.places.len() < measured && Keep::of(figure.kind) == Keep::Each;
        let mut data: Vec<Vec<Short>> = vec![rows.places.iter().map(|place| x.short(*place)).collect()];
        for column in &rows.columns {
            data.push(column.iter().map(|value| value.map_or(Short(None), |value| y.short(value))).collect());
        }
        let kind = match figure.kind {
            Kind::Lines => "lines",
            Kind::Curves => "curves",
            Kind::Points => "points",
            Kind::Stacked => "stacked",
            Kind::Steps => "steps",
            Kind::Bars => "bars",
        };
        let series = figure.series.iter().enumerate().map(|(at, series)| {
            let colour = series.colour.unwrap_or(at);
            let (name, dashed) = (series.name.clone(), series.dashed);
            DrawnSeries { name, dashed, colour: colour % COLOURS, again: colour / COLOURS }
        });
        let marks = |marks: &[Mark], scale: &Scale| -> Vec<DrawnMark> {
            let there = marks.iter().filter(|mark| mark.at.is_finite() && (!scale.log || mark.at > 0.0));
            there.map(|mark| DrawnMark { at: scale.short(mark.at), label: mark.label.clone() }).collect()
        };
        let (marks, levels, series) = (marks(&figure.marks, &x), marks(&figure.levels, &y), series.collect());
        Drawn { kind, names, x, y, data, series, marks, levels, title: figure.title.clone(), pairs, measured, rows }
    }

    /// The figure in words, for screen readers.
    fn spoken(&self, figure: &Figure) -> String {
        let kind = match figure.kind {
            Kind::Lines | Kind::Curves => "Lines",
            Kind::Points => "Points",
            Kind::Stacked => "Stacked areas",
            Kind::Steps => "Steps",
            Kind::Bars => "Bars",
        };
        let names: Vec<&str> = figure.series.iter().map(|series| series.name.as_str()).collect();
        let mut text = format!("{}. {} {kind}: {}.", figure.title, figure.says, names.join(", "));
        let values = self.rows.values();
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            return text + " There are no values.";
        }
        let value = |value: f64| {
            if self.y.log {
                self.y.write(value)
            } else {
                with_unit_after(&self.y.write(value), self.y.suffix)
            }
        };
        text += &format!(" Values of {} from {} to {}.", figure.y.label, value(low), value(high));
        for (marks, way) in [(&figure.marks, "Marked place"), (&figure.levels, "Marked value")] {
            for mark in marks.iter().filter(|mark| !mark.label.is_empty()) {
                text += &format!(" {way}: {}.", mark.label);
            }
        }
        text
    }
}

fn with_unit(name: &str, suffix: &str) -> String {
    let suffix = match suffix {
        "" => return name.into(),
        "k" => "thousands",
        "M" => "millions",
        "G" => "billions",
        "/s" => "per second",
        suffix => suffix,
    };
    format!("{name} ({suffix})")
}

fn with_unit_after(number: &str, suffix: &str) -> String {
    match suffix {
        "" => number.into(),
        "×" => format!("{number}×"),
        _ => format!("{number} {suffix}"),
    }
}

fn paragraph(to: &mut impl Write, class: &str, text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    writeln!(to, "<p class=\"{class}\">{}</p>", escaped(text))
}

/// Text that is safe between tags and in quoted attributes.
fn escaped(text: &str) -> Cow<'_, str> {
    let special = |c: char| {
        matches!(c, '&' | '<' | '>' | '"' | '\'') || (memfit_wire::is_unprintable(c) && c != '\n' && c != '\t')
    };
    if !text.contains(special) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // HTML cannot represent them.
            c if special(c) => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

fn escaped_owned(text: String) -> String {
    escaped(&text).into_owned()
}

/// JSON that is safe in a script element. These characters occur only in strings of JSON, where
/// they can be escaped.
fn json(value: &impl Serialize) -> io::Result<String> {
    let text = serde_json::to_string(value).map_err(io::Error::other)?;
    Ok(text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"))
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
