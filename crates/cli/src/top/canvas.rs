//! A picture of the screen: cells, and the escape sequences that turn one picture into the next.
//! Pure.

use std::fmt::Write;
use termion::{color, cursor, style};
use unicode_width::UnicodeWidthChar;

/// One of the terminal's own sixteen colours, so that it fits the user's choice of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Colour {
    Red,
    Green,
    Yellow,
    Blue,
    Magenta,
    Cyan,
}

/// How a cell looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    /// `None` is the terminal's usual one.
    pub colour: Option<Colour>,
    /// Brighter or thicker.
    pub bold: bool,
    /// Colours exchanged.
    pub reverse: bool,
}

impl Style {
    /// As text usually looks.
    pub const PLAIN: Style = Style { colour: None, bold: false, reverse: false };
    /// For what must be seen.
    pub const BOLD: Style = Style { bold: true, ..Self::PLAIN };
    /// Heads of tables.
    pub const REVERSE: Style = Style { reverse: true, ..Self::PLAIN };

    /// In a colour.
    #[must_use]
    pub const fn of(colour: Colour) -> Style {
        Style { colour: Some(colour), ..Self::PLAIN }
    }

    fn escape(self, colours: bool, out: &mut String) {
        let _ = write!(out, "{}", style::Reset);
        if self.bold {
            let _ = write!(out, "{}", style::Bold);
        }
        if self.reverse {
            let _ = write!(out, "{}", style::Invert);
        }
        let _ = match self.colour.filter(|_| colours) {
            None => Ok(()),
            Some(Colour::Red) => write!(out, "{}", color::Fg(color::Red)),
            Some(Colour::Green) => write!(out, "{}", color::Fg(color::Green)),
            Some(Colour::Yellow) => write!(out, "{}", color::Fg(color::Yellow)),
            Some(Colour::Blue) => write!(out, "{}", color::Fg(color::Blue)),
            Some(Colour::Magenta) => write!(out, "{}", color::Fg(color::Magenta)),
            Some(Colour::Cyan) => write!(out, "{}", color::Fg(color::Cyan)),
        };
    }
}

/// The second half of a character that takes two cells.
const SECOND_HALF: char = '\0';

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    character: char,
    style: Style,
}

const EMPTY: Cell = Cell { character: ' ', style: Style::PLAIN };

/// The picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Canvas {
    width: usize,
    height: usize,
    cells: Vec<Cell>,
}

impl Canvas {
    /// An empty one.
    #[must_use]
    pub fn new(width: usize, height: usize) -> Self {
        Self { width, height, cells: vec![EMPTY; width * height] }
    }

    /// Columns.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    #[must_use]
    pub fn height(&self) -> usize {
        self.height
    }

    /// Writes from column `x` on and cuts what does not fit. Returns the column behind the text.
    pub fn put(&mut self, x: usize, y: usize, text: &str, style: Style) -> usize {
        if y >= self.height {
            return x;
        }
        let mut at = x;
        for character in text.chars() {
            let wide = match character.width() {
                Some(1) => false,
                Some(2) => true,
                // Control characters and combining marks.
                _ => continue,
            };
            let end = at + 1 + usize::from(wide);
            if end > self.width {
                break;
            }
            self.cells[y * self.width + at] = Cell { character, style };
            if wide {
                self.cells[y * self.width + at + 1] = Cell { character: SECOND_HALF, style };
            }
            at = end;
        }
        at
    }

    /// Writes so that it ends before column `end`; cut at the left when it is too long.
    pub fn put_right(&mut self, end: usize, y: usize, text: &str, style: Style) {
        let width = width(text);
        match end.checked_sub(width) {
            Some(x) => drop(self.put(x, y, text, style)),
            None => drop(self.put(0, y, &text.chars().skip(width - end).collect::<String>(), style)),
        }
    }

    /// Gives all cells of a row the style, also the empty ones.
    pub fn paint(&mut self, y: usize, style: Style) {
        if y < self.height {
            self.cells[y * self.width..(y + 1) * self.width].iter_mut().for_each(|cell| cell.style = style);
        }
    }

    /// The rows as text, without trailing blanks.
    #[must_use]
    pub fn text(&self) -> String {
        let row = |cells: &[Cell]| {
            let text: String = cells.iter().map(|cell| cell.character).filter(|c| *c != SECOND_HALF).collect();
            text.trim_end().to_owned() + "\n"
        };
        self.cells.chunks(self.width.max(1)).map(row).collect()
    }

    /// Escape sequences that turn the picture on the screen into this one. `old` is `None` if the
    /// contents of the screen are unknown.
    #[must_use]
    pub fn changes_since(&self, old: Option<&Canvas>, colours: bool) -> String {
        let old = old.filter(|old| (old.width, old.height) == (self.width, self.height));
        let mut out = String::new();
        if old.is_none() {
            let _ = write!(out, "{}{}", style::Reset, termion::clear::All);
        }
        for y in 0..self.height {
            self.row_changes(y, old, colours, &mut out);
        }
        if !out.is_empty() {
            let _ = write!(out, "{}", style::Reset);
        }
        out
    }

    fn row_changes(&self, y: usize, old: Option<&Canvas>, colours: bool, out: &mut String) {
        let row = y * self.width..(y + 1) * self.width;
        let new = &self.cells[row.clone()];
        let differs = |x: &usize| old.map_or(new[*x] != EMPTY, |old| old.cells[row.start + x] != new[*x]);
        let Some(mut first) = (0..self.width).find(differs) else { return };
        let last = (0..self.width).rev().find(differs).unwrap_or(first);
        if new[first].character == SECOND_HALF {
            first -= 1;
        }
        let _ = write!(out, "{}", cursor::Goto(first as u16 + 1, y as u16 + 1));
        let mut style = None;
        for cell in &new[first..=last] {
            if style != Some(cell.style) {
                cell.style.escape(colours, out);
                style = Some(cell.style);
            }
            if cell.character != SECOND_HALF {
                out.push(cell.character);
            }
        }
    }
}

/// Cells that a text takes.
#[must_use]
pub fn width(text: &str) -> usize {
    text.chars().filter_map(UnicodeWidthChar::width).sum()
}

/// The start of a text, with a mark where it was cut.
#[must_use]
pub fn fit(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for character in text.chars() {
        used += character.width().unwrap_or(0);
        if used >= room {
            break;
        }
        out.push(character);
    }
    if room > 0 {
        out.push('~');
    }
    out
}

/// The words of a text in at most `rows` rows of width `room`; the last row is cut.
#[must_use]
pub fn wrap(text: &str, room: usize, rows: usize) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let more = out.len() < rows;
        match out.last_mut() {
            Some(row) if !more || width(row) + 1 + width(word) <= room => *row = format!("{row} {word}"),
            _ if more => out.push(word.to_owned()),
            _ => break,
        }
    }
    out.iter().map(|row| fit(row, room)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_at_the_edges() {
        let mut canvas = Canvas::new(6, 2);
        assert_eq!(canvas.put(4, 0, "abc", Style::PLAIN), 6);
        canvas.put_right(6, 1, "12345678", Style::BOLD);
        canvas.put(0, 7, "below", Style::PLAIN);
        assert_eq!(canvas.text(), "    ab\n345678\n");
        assert_eq!(Canvas::new(0, 0).text(), "");
        assert_eq!(wrap("one two three four", 8, 2), ["one two", "three f~"]);
        assert_eq!(wrap("one two", 8, 2), ["one two"]);
        assert!(wrap("one", 8, 0).is_empty() && wrap("", 8, 2).is_empty() && wrap("one", 0, 1) == [""]);
        assert_eq!([fit("abcdef", 6), fit("abcdef", 4), fit("abc", 0)], ["abcdef", "abc~", ""]);
    }

    #[test]
    fn wide_and_dangerous_characters() {
        let mut canvas = Canvas::new(5, 1);
        canvas.put(0, 0, "a\u{1b}\u{301}語語b", Style::PLAIN);
        assert_eq!(canvas.text(), "a語語\n");
        assert_eq!((width("語b"), fit("語語語", 4)), (3, "語~".into()));
        let mut half = Canvas::new(2, 1);
        half.put(1, 0, "語", Style::PLAIN);
        assert_eq!(half.text(), "\n", "no half of a character");
    }

    #[test]
    fn only_changes_are_sent() {
        let mut old = Canvas::new(10, 3);
        old.put(0, 0, "same", Style::PLAIN);
        old.put(0, 1, "count 12", Style::PLAIN);
        let mut new = old.clone();
        assert_eq!(new.changes_since(Some(&old), true), "");
        new.put(6, 1, "13", Style::of(Colour::Red));
        let changes = new.changes_since(Some(&old), true);
        assert!(
            changes.starts_with("\u{1b}[2;7H") && changes.contains("13") && !changes.contains("same"),
            "{changes:?}"
        );
        assert!(changes.contains("\u{1b}[38;5;1m"), "{changes:?}");
        assert!(!new.changes_since(Some(&old), false).contains("[38"), "no colours when they are not wanted");
        let all = new.changes_since(None, true);
        assert!(all.contains("\u{1b}[2J") && all.contains("same"), "{all:?}");
        assert!(new.changes_since(Some(&Canvas::new(9, 3)), true).contains("same"), "another size draws everything");
        let mut wide = Canvas::new(4, 1);
        wide.put(0, 0, "語", Style::PLAIN);
        let mut styled = wide.clone();
        styled.cells[1].style = Style::BOLD;
        assert!(styled.changes_since(Some(&wide), true).contains('語'), "a character is drawn whole");
    }
}
