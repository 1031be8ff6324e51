//! The help of `memfit top`.

use super::canvas::{Canvas, BOLD, PLAIN, REVERSE};
use ratatui_core::buffer::Buffer;

pub(super) const KEYS: [(&str, &str); 8] = [
    ("q Esc Ctrl-C", "leave"),
    ("space", "pause and go on"),
    ("+ -", "longer or shorter interval"),
    ("tab", "next tree, shift-tab the one before"),
    ("up down PgUp PgDn", "scroll the processes; Home, End"),
    ("p r k e f s t c", "sort: pid resident peak evicted faults faults/s state command"),
    ("< >", "sort by the column beside; same key again: other way round"),
    ("Ctrl-L", "draw the screen again"),
];

pub(super) const MEANINGS: [(&str, &str); 13] = [
    ("resident", "programs' pages that can be evicted; shared ones count once"),
    ("other", "what is not paged (yet), and memfit's own code and stacks"),
    ("staged", "pages on their way out, not yet compressed"),
    ("pool", "memory that holds compressed pages"),
    ("tables", "what memfit needs to know where each page is"),
    ("faults", "by where the page was: nowhere (zero), staged, filled with"),
    ("", "one word, in the pool, in the swap file, in a mapped file"),
    ("p50 p99 max", "time in the pager until the program goes on, since the start"),
    ("paging", "memory taken out and brought back; pages not taken, and why"),
    ("ratio", "bytes of pages to one byte that holds them"),
    ("codecs", "share of the pages compressed so, since the start"),
    ("warning", "the last one that was given, also when its cause is over"),
    ("evicted", "bytes taken out of a process since its start; - : not paged"),
];

/// Draws over all of the screen.
pub fn draw(canvas: &mut Buffer) {
    let mut y = 0;
    for (title, rows) in [("KEYS", &KEYS[..]), ("WHAT THE NUMBERS MEAN", &MEANINGS[..])] {
        canvas.paint(y, REVERSE);
        canvas.put(0, y, title, REVERSE);
        for (i, (name, text)) in rows.iter().enumerate() {
            canvas.put(1, y + 1 + i, name, BOLD);
            canvas.put(19, y + 1 + i, text, PLAIN);
        }
        y += rows.len() + 1;
    }
    let last = canvas.height().saturating_sub(1);
    canvas.put(0, last, &format!("{:1$}", "any key: back", canvas.width()), BOLD);
}
