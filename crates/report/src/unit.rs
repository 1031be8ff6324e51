//! Units, and the form of numbers in each of them.

use serde::Deserialize;
use std::fmt::Write;

/// The unit of a number, which decides its form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes, shown as KiB, MiB, GiB.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Nanoseconds, shown as µs, ms, s.
    Nanoseconds,
    /// Seconds; along x shown as a clock, from two minutes on.
    Seconds,
    /// A count.
    #[default]
    Count,
    /// A count per second.
    PerSecond,
    /// A factor: 2.5 is shown as 2.5×.
    Ratio,
    /// Percent: 12.5 is shown as 12.5 %.
    Percent,
}

/// A multiple of a unit: its size in the unit, the smallest value for which it is used, its suffix.
pub(crate) type Multiple = (f64, f64, &'static str);

const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;
const GIB: f64 = 1024.0 * MIB;
const TIB: f64 = 1024.0 * GIB;

// Between 1 and 4 GiB, budgets are usually given in MiB.
const BYTES: &[Multiple] =
    &[(1.0, 0.0, "B"), (KIB, KIB, "KiB"), (MIB, MIB, "MiB"), (GIB, 4.0 * GIB, "GiB"), (TIB, 4.0 * TIB, "TiB")];
const BYTES_PER_SECOND: &[Multiple] =
    &[(1.0, 0.0, "B/s"), (KIB, KIB, "KiB/s"), (MIB, MIB, "MiB/s"), (GIB, 4.0 * GIB, "GiB/s")];
const NANOSECONDS: &[Multiple] = &[(1.0, 0.0, "ns"), (1e3, 1e3, "µs"), (1e6, 1e6, "ms"), (1e9, 1e9, "s")];
const SECONDS: &[Multiple] = &[(1e-6, 0.0, "µs"), (1e-3, 1e-3, "ms"), (1.0, 1.0, "s")];
// Counts below 100 000 are short enough to show all digits.
const COUNT: &[Multiple] = &[(1.0, 0.0, ""), (1e3, 1e5, "k"), (1e6, 1e6, "M"), (1e9, 1e9, "G")];
const PER_SECOND: &[Multiple] = &[(1.0, 0.0, "/s"), (1e3, 1e5, "k/s"), (1e6, 1e6, "M/s"), (1e9, 1e9, "G/s")];
const RATIO: &[Multiple] = &[(1.0, 0.0, "×")];
const PERCENT: &[Multiple] = &[(1.0, 0.0, "%")];

impl Unit {
    pub(crate) fn multiples(self) -> &'static [Multiple] {
        match self {
            Unit::Bytes => BYTES,
            Unit::BytesPerSecond => BYTES_PER_SECOND,
            Unit::Nanoseconds => NANOSECONDS,
            Unit::Seconds => SECONDS,
            Unit::Count => COUNT,
            Unit::PerSecond => PER_SECOND,
            Unit::Ratio => RATIO,
            Unit::Percent => PERCENT,
        }
    }

    fn multiple(self, value: f64) -> Multiple {
        let multiples = self.multiples();
        *multiples.iter().rev().find(|(_, from, _)| value.abs() >= *from).unwrap_or(&multiples[0])
    }

    /// A single number with the multiple that fits it best.
    pub(crate) fn alone(self, value: f64) -> String {
        let (by, _, suffix) = self.multiple(value);
        let shown = value / by;
        let decimals = if shown.fract() == 0.0 { 0 } else { (3 - digits(shown)).clamp(0, 6) as usize };
        with_suffix(&fixed(shown, decimals), suffix)
    }
}

/// The common form of the numbers of an axis or column, so that they can be compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Shown {
    pub(crate) by: f64,
    pub(crate) suffix: &'static str,
    pub(crate) decimals: usize,
}

impl Shown {
    /// The form for these values: at least `precision` significant digits of the largest one, and
    /// one more decimal if small values would otherwise have no digits.
    pub(crate) fn of(unit: Unit, values: impl Iterator<Item = f64> + Clone, precision: i32) -> Shown {
        let largest = values.clone().fold(0.0, |largest: f64, value| largest.max(value.abs()));
        let (by, _, suffix) = unit.multiple(largest);
        if values.clone().all(|value| (value / by).fract() == 0.0) {
            return Shown { by, suffix, decimals: 0 };
        }
        let smallest = values.map(f64::abs).filter(|value| *value > 0.0).fold(largest, f64::min);
        let wanted = precision - digits(largest / by);
        let decimals = wanted.max((2 - digits(smallest / by)).min(wanted + 1)).clamp(0, 9);
        Shown { by, suffix, decimals: decimals as usize }
    }

    /// Removes decimals that are zeros in all of these values.
    pub(crate) fn shortest(self, values: impl Iterator<Item = f64> + Clone) -> Shown {
        let shorter = |decimals| Shown { decimals, ..self };
        let same = |other: &Shown| values.clone().all(|value| other.rounded(value) == self.rounded(value));
        (0..self.decimals).map(shorter).find(same).unwrap_or(self)
    }

    /// The value in a page: in this multiple, with the shown decimals only.
    pub(crate) fn rounded(&self, value: f64) -> f64 {
        let tens = 10f64.powi(self.decimals as i32);
        let rounded = (value / self.by * tens).round() / tens;
        // Only for values too large to need rounding: `tens` times such a value can be infinite.
        if rounded.is_finite() {
            rounded
        } else {
            value / self.by
        }
    }

    /// The number without its suffix, which is in the head of the column.
    pub(crate) fn write(&self, value: f64) -> String {
        fixed(value / self.by, self.decimals)
    }
}

/// Digits before the point: 1 of 5, 3 of 512, 0 of 0.5, -1 of 0.05.
fn digits(value: f64) -> i32 {
    if value == 0.0 {
        return 1;
    }
    value.abs().log10().floor() as i32 + 1
}

/// The value with `count` significant digits.
pub(crate) fn significant(value: f64, count: i32) -> f64 {
    let tens = 10f64.powi(count - digits(value));
    let rounded =
        if tens > 1.0 { (value * tens).round() / tens } else { (value * tens).round() * (1.0 / tens).round() };
    if rounded.is_finite() {
        rounded
    } else {
        value
    }
}

/// With narrow no-break spaces between thousands, and a minus sign (U+2212).
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    let plain = format!("{:.decimals$}", value.abs());
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let negative = value < 0.0 && plain.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
    let mut text = String::from(if negative { "−" } else { "" });
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text + rest
}

fn with_suffix(number: &str, suffix: &str) -> String {
    match suffix {
        "" => number.into(),
        "×" => format!("{number}×"),
        _ => format!("{number}\u{a0}{suffix}"),
    }
}

/// Seconds as a clock: 1:02:03, or 2:03 when `hours` are not needed.
pub(crate) fn clock(seconds: f64, hours: bool, decimals: usize) -> String {
    let tens = 10f64.powi(decimals as i32);
    let parts = (seconds.abs() * tens).round() as u64;
    let (whole, part) = (parts / tens as u64, parts % tens as u64);
    let mut text = String::from(if seconds < 0.0 { "−" } else { "" });
    let _ = match hours {
        true => write!(text, "{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60),
        false => write!(text, "{}:{:02}", whole / 60, whole % 60),
    };
    if decimals > 0 {
        let _ = write!(text, ".{part:0decimals$}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_count() {
        assert_eq!(fixed(1234567.891, 2), "1\u{202f}234\u{202f}567.89");
        assert_eq!(fixed(-12.34, 1), "−12.3");
        assert_eq!(fixed(-0.001, 1), "0.0", "nothing is not negative");
        assert_eq!(significant(512.3456, 4), 512.3);
        assert_eq!(significant(123_456_789.0, 4), 123_500_000.0);
        assert_eq!(significant(0.000_123_456, 4), 0.000_123_5);
        assert_eq!(significant(0.0, 4), 0.0);
        assert_eq!(significant(f64::MAX, 4), f64::MAX);
    }

    #[test]
    fn one_multiple_for_all() {
        let bytes = [512.0 * MIB, 3.25 * MIB, 4096.0];
        let shown = Shown::of(Unit::Bytes, bytes.into_iter(), 4);
        assert_eq!((shown.suffix, shown.decimals), ("MiB", 2));
        assert_eq!(bytes.map(|value| shown.write(value)), ["512.00", "3.25", "0.00"]);
        assert_eq!(shown.rounded(1234.5 * KIB), 1.21);
        let whole = Shown::of(Unit::Count, [12_345.0, 3.0].into_iter(), 4);
        assert_eq!((whole.suffix, whole.decimals), ("", 0));
        let tenths = Shown::of(Unit::Seconds, [0.1 + 0.2, 59.9].into_iter(), 6);
        assert_eq!((tenths.decimals, tenths.shortest([0.1 + 0.2, 59.9].into_iter()).decimals), (4, 1));
        let tiny = Shown::of(Unit::Ratio, [0.001234].into_iter(), 4);
        assert_eq!(tiny.write(0.001234), "0.001234");
        assert_eq!(Shown::of(Unit::Bytes, std::iter::empty(), 4), Shown { by: 1.0, suffix: "B", decimals: 0 });
        assert_eq!(Shown::of(Unit::Bytes, [f64::MAX].into_iter(), 4).suffix, "TiB");
    }

    #[test]
    fn a_number_alone_has_the_unit_that_fits_it() {
        assert_eq!(Unit::Nanoseconds.alone(1500.0), "1.50\u{a0}µs");
        assert_eq!(Unit::Nanoseconds.alone(100.0), "100\u{a0}ns");
        assert_eq!(Unit::Bytes.alone(1536.0 * MIB), "1\u{202f}536\u{a0}MiB");
        assert_eq!(Unit::Seconds.alone(0.0125), "12.5\u{a0}ms");
        assert_eq!(Unit::Ratio.alone(2.5), "2.50×");
        assert_eq!(Unit::Count.alone(7.0), "7");
    }

    #[test]
    fn clocks() {
        assert_eq!(clock(3723.0, true, 0), "1:02:03");
        assert_eq!(clock(123.46, false, 1), "2:03.5");
        assert_eq!(clock(59.99, false, 0), "1:00");
    }
}
