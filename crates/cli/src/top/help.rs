//! The help of `memfit top`.

use super::canvas::{wrap, Canvas, BOLD, PLAIN, REVERSE};
use super::view::View;
use ratatui_core::buffer::Buffer;

const KEYS: [(&str, &str); 8] = [
    ("q Esc Ctrl-C", "leave"),
    ("space", "pause and go on"),
    ("+ -", "longer or shorter interval"),
    ("tab", "next tree, shift-tab the one before"),
    ("up down PgUp PgDn", "scroll the processes; Home, End"),
    ("p r k e f s t c", "sort: pid resident peak evicted faults faults/s state command"),
    ("< >", "sort by the column beside; same key again: other way round"),
    ("Ctrl-L", "draw the screen again"),
];

const MEANINGS: [(&str, &str); 12] = [
    ("resident", "what can be evicted, shared pages once; of a process: all"),
    ("other", "what is not paged (yet), and memfit's own code and stacks"),
    ("staged", "pages on their way out, not yet compressed"),
    ("pool", "memory that holds compressed pages"),
    ("tables", "what memfit needs to know where each page is"),
    (
        "faults",
        "by where the page was: nowhere (zero), staged, filled with one word, in the pool, in the swap file, in a \
         mapped file",
    ),
    ("p50 p99 max", "time in the pager until the program goes on, since the start"),
    ("paging", "memory taken out and brought back; pages not taken, and why"),
    ("ratio", "bytes of pages to one byte that holds them"),
    ("codecs", "share of the pages compressed so, since the start"),
    ("warning", "the last one that was given, also when its cause is over"),
    ("evicted", "bytes taken out of a process since its start; - : not paged"),
];

/// From this width on the texts are beside their names, at this column; below, under them.
const WIDE: usize = 60;
const TEXT_COLUMN: usize = 19;
/// The column of the texts in a narrow terminal.
const NARROW_COLUMN: usize = 3;

/// A row of the help.
enum Row {
    Title(&'static str),
    /// A name, and a text and its column.
    Line(&'static str, String, usize),
}

fn rows(width: usize) -> Vec<Row> {
    let mut all = Vec::new();
    let beside = width >= WIDE;
    let column = if beside { TEXT_COLUMN } else { NARROW_COLUMN };
    for (title, entries) in [("KEYS", &KEYS[..]), ("WHAT THE NUMBERS MEAN", &MEANINGS[..])] {
        all.push(Row::Title(title));
        for &(name, text) in entries {
            let mut name = name;
            if !beside {
                all.push(Row::Line(std::mem::take(&mut name), String::new(), column));
            }
            for line in wrap(text, width.saturating_sub(column), usize::MAX) {
                all.push(Row::Line(std::mem::take(&mut name), line, column));
            }
        }
    }
    all
}

/// Draws over all of the screen, and stores in the view how many rows there are.
pub fn draw(canvas: &mut Buffer, view: &mut View) {
    let rows = rows(canvas.width());
    let room = canvas.height().saturating_sub(1);
    view.help_rows = (room, rows.len());
    let hidden = rows.len().saturating_sub(room);
    view.help_scrolled = view.help_scrolled.min(hidden);
    for (y, row) in rows.iter().skip(view.help_scrolled).take(room).enumerate() {
        match row {
            Row::Title(title) => {
                canvas.paint(y, REVERSE);
                canvas.put(0, y, title, REVERSE);
            }
            Row::Line(name, text, column) => {
                canvas.put(1, y, name, BOLD);
                canvas.put(*column, y, text, PLAIN);
            }
        }
    }
    let keys = if hidden > 0 { "up down: scroll   other keys: back" } else { "any key: back" };
    canvas.put(0, room, keys, BOLD);
}
