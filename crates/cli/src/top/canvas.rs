//! Text in a picture of the screen. Pure functions.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use unicode_width::UnicodeWidthChar;

/// Usual text.
pub const PLAIN: Style = Style::reset();
/// Text that must be seen.
pub const BOLD: Style = PLAIN.add_modifier(Modifier::BOLD);
/// Heads of tables.
pub const REVERSE: Style = PLAIN.add_modifier(Modifier::REVERSED);

/// Text in one of the terminal's own colours, which the user can choose.
#[must_use]
pub const fn of(colour: Color) -> Style {
    PLAIN.fg(colour)
}

/// Writes into a picture, and cuts what does not fit.
pub trait Canvas {
    /// Columns.
    fn width(&self) -> usize;
    /// Rows.
    fn height(&self) -> usize;
    /// Writes from column `x` on. Returns the column behind the text.
    fn put(&mut self, x: usize, y: usize, text: &str, style: Style) -> usize;
    /// Gives all cells of a row the style, empty cells, too.
    fn paint(&mut self, y: usize, style: Style);

    /// Writes a text that ends before column `end`; cuts a text that is too long at the left.
    fn put_right(&mut self, end: usize, y: usize, text: &str, style: Style) {
        let width = width(text);
        match end.checked_sub(width) {
            Some(x) => drop(self.put(x, y, text, style)),
            None => drop(self.put(0, y, &text.chars().skip(width - end).collect::<String>(), style)),
        }
    }
}

impl Canvas for Buffer {
    fn width(&self) -> usize {
        self.area.width.into()
    }

    fn height(&self) -> usize {
        self.area.height.into()
    }

    fn put(&mut self, x: usize, y: usize, text: &str, style: Style) -> usize {
        if x >= self.width() || y >= self.height() {
            return x;
        }
        self.set_stringn(x as u16, y as u16, text, self.width(), style).0.into()
    }

    fn paint(&mut self, y: usize, style: Style) {
        self.set_style(Rect { y: y as u16, height: 1, ..self.area }, style);
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
pub(super) mod tests {
    use super::*;
    use ratatui_core::buffer::CellWidth;

    pub(in crate::top) fn empty(width: u16, height: u16) -> Buffer {
        Buffer::empty(Rect::new(0, 0, width, height))
    }

    /// The rows as text, without trailing blanks.
    pub(in crate::top) fn text(picture: &Buffer) -> String {
        let row = |y| {
            let (mut row, mut x) = (String::new(), 0);
            while x < picture.area.width {
                let symbol = picture[(x, y)].symbol();
                row += symbol;
                x += symbol.cell_width().max(1);
            }
            row.trim_end().to_owned() + "\n"
        };
        (0..picture.area.height).map(row).collect()
    }

    #[test]
    fn texts_are_cut_at_the_edges() {
        let mut canvas = empty(6, 2);
        assert_eq!(canvas.put(4, 0, "abc", PLAIN), 6);
        canvas.put_right(6, 1, "12345678", BOLD);
        canvas.put(0, 7, "below", PLAIN);
        assert_eq!(text(&canvas), "    ab\n345678\n");
        assert_eq!(text(&empty(0, 0)), "");
        assert_eq!(wrap("one two three four", 8, 2), ["one two", "three f~"]);
        assert_eq!(wrap("one two", 8, 2), ["one two"]);
        assert!(wrap("one", 8, 0).is_empty() && wrap("", 8, 2).is_empty() && wrap("one", 0, 1) == [""]);
        assert_eq!([fit("abcdef", 6), fit("abcdef", 4), fit("abc", 0)], ["abcdef", "abc~", ""]);
    }

    #[test]
    fn wide_and_dangerous_characters() {
        let mut canvas = empty(5, 1);
        canvas.put(0, 0, "a\u{1b}\u{301}語語b", PLAIN);
        assert_eq!(text(&canvas), "a語語\n");
        assert_eq!((width("語b"), fit("語語語", 4)), (3, "語~".into()));
        let mut half = empty(2, 1);
        half.put(1, 0, "語", PLAIN);
        assert_eq!(text(&half), "\n", "no half of a character");
    }
}
