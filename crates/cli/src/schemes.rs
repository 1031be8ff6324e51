//! `memfit schemes`: lists the presets, choices and numbers that a scheme can have.

use crate::args::SchemesArgs;
use crate::errors::Failure;
use crate::layout::wrapped;
use memfit_core::scheme::{Axis, Number, NUMBERS};
use memfit_scheme::{axes, PRESETS};
use std::fmt::Write;

/// Lists everything, or prints one preset.
///
/// # Errors
/// When there is no preset of that name.
pub fn run(args: &SchemesArgs) -> Result<i32, Failure> {
    match &args.name {
        None => crate::print(&list())?,
        Some(name) => crate::print(preset(name)?)?,
    }
    Ok(0)
}

fn preset(name: &str) -> Result<&'static str, Failure> {
    let found = PRESETS.iter().find(|preset| preset.name == name);
    found.map(|preset| preset.text).ok_or_else(|| {
        let names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
        Failure::usage(format!("there is no scheme {name}; there are: {}", names.join(", ")))
    })
}

fn list() -> String {
    let mut out = String::from("Presets, for memfit run -s NAME (memfit schemes NAME prints one as TOML):\n\n");
    let width = PRESETS.iter().map(|preset| preset.name.len()).max().unwrap_or(0);
    for preset in PRESETS {
        let summary =
            memfit_scheme::preset(preset.name, &[]).and_then(Result::ok).map_or_else(String::new, |s| s.summary);
        line(&mut out, 2, width, preset.name, &summary);
    }
    out.push_str("\nChoices, for memfit run --set AXIS=CHOICE:\n");
    axes().for_each(|axis| list_axis(&mut out, axis));
    out.push_str("\nNumbers, for memfit run --set KEY=VALUE:\n");
    NUMBERS.iter().for_each(|number| list_number(&mut out, number));
    out
}

fn list_axis(out: &mut String, axis: &Axis) {
    let _ = writeln!(out, "\n  {}: {}", axis.name, wrapped(axis.help, axis.name.len() + 4));
    let width = axis.choices().map(|choice| choice.name.len()).max().unwrap_or(0);
    for choice in axis.choices() {
        line(out, 4, width, choice.name, choice.help);
    }
}

fn list_number(out: &mut String, number: &Number) {
    let Number { key, help, default, .. } = number;
    let _ = writeln!(out, "\n  {key}: {}, default {default}", range(number));
    let _ = writeln!(out, "    {}", wrapped(&format!("{help}."), 4));
}

fn range(Number { unit, min, max, .. }: &Number) -> String {
    match memfit_scheme::is_switch(unit) {
        true => unit.to_string(),
        false => format!("{min} to {max} {unit}"),
    }
}

/// A name and its text beside it.
fn line(out: &mut String, margin: usize, width: usize, name: &str, text: &str) {
    let _ = writeln!(out, "{:margin$}{name:width$}  {}", "", wrapped(text, margin + width + 2));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::WIDTH;

    #[test]
    fn lists_all_tables_in_eighty_columns() {
        let text = list();
        let names = PRESETS.iter().map(|p| p.name).chain(axes().map(|a| a.name)).chain(NUMBERS.iter().map(|n| n.key));
        for name in names {
            assert!(text.contains(name), "{name}");
        }
        assert_eq!(text.lines().find(|line| line.chars().count() > WIDTH), None);
        assert!(text.contains("\n  admission.offered_window: 0 or 1, default 0\n"), "{text}");
    }

    #[test]
    fn prints_what_can_be_read_again() {
        for entry in PRESETS {
            assert!(memfit_scheme::parse(preset(entry.name).unwrap(), &[]).is_ok(), "{}", entry.name);
        }
        let error = preset("memfti").unwrap_err();
        assert_eq!(error.code, 2);
        assert!(error.message.contains("there is no scheme memfti; there are: memfit"), "{error}");
    }
}
