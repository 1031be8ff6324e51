//! Text for a terminal of 80 columns.

use std::fmt::Write;

/// Columns of the text.
pub const WIDTH: usize = 80;

/// Breaks a text at blanks so that it fits behind `indent` columns. Longer words stay whole, so
/// that users can copy them.
#[must_use]
pub fn wrapped(text: &str, indent: usize) -> String {
    let mut out = String::new();
    let mut column = indent;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > indent && column + 1 + length > WIDTH {
            let _ = write!(out, "\n{:indent$}", "");
            column = indent;
        } else if column > indent {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaks_at_blanks_only() {
        assert_eq!(wrapped("", 10), "");
        assert_eq!(wrapped("a b", 10), "a b");
        let path = "/x".repeat(60);
        assert_eq!(wrapped(&format!("at {path}"), 4), format!("at\n    {path}"));
        let text = wrapped(&"word ".repeat(40), 20);
        assert!(text.lines().skip(1).all(|line| line.starts_with("                    word") && line.len() <= WIDTH));
    }
}
