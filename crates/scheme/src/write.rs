//! From a scheme to TOML.

use super::{allowed_range, axes, is_switch, numbers_of, sections};
use memfit_core::scheme::{Choice, Scheme};
use std::fmt::Write;

/// TOML with comments that parses to the same scheme.
pub fn to_toml(scheme: &Scheme) -> String {
    let mut out = String::new();
    comment(
        &mut out,
        "A memfit scheme: one choice on each axis, and numbers. A key that is left out has its default; an unknown \
         one is an error. The command line overrides any of them: --set pool.chain_frames=2 --set codec=lz4",
    );
    let _ = write!(out, "\nname = {}\nsummary = {}\n", quoted(&scheme.name), quoted(&scheme.summary));
    for section in sections() {
        out.push('\n');
        let axis = axes().find(|axis| axis.name == section);
        if let Some(axis) = axis {
            comment(&mut out, &format!("{}:", axis.help));
            let width = axis.choices().map(|choice| choice.name.len()).max().unwrap_or(0);
            for Choice { name, help } in axis.choices() {
                let _ = writeln!(out, "#   {name:width$}  {help}");
            }
        }
        let _ = writeln!(out, "[{section}]");
        if let Some(axis) = axis {
            let _ = writeln!(out, "kind = {}", quoted(axis.chosen(scheme).name));
        }
        for (number, field) in numbers_of(section) {
            comment(&mut out, &format!("{}.", number.help));
            let unit = if is_switch(number.unit) { "" } else { "In " };
            comment(&mut out, &format!("{unit}{}, default {}.", allowed_range(number), number.default));
            let _ = writeln!(out, "{field} = {}", number.value(scheme));
        }
    }
    out
}

/// Appends a comment, wrapped.
fn comment(out: &mut String, text: &str) {
    let mut column = 0;
    for word in text.split_whitespace() {
        if column > 0 && column + 1 + word.len() <= 100 {
            column += 1 + word.len();
        } else {
            out.push_str(if column == 0 { "#" } else { "\n#" });
            column = 2 + word.len();
        }
        out.push(' ');
        out.push_str(word);
    }
    out.push('\n');
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => drop(write!(out, "\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out + "\""
}
