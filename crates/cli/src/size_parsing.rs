//! Sizes as users write them: `512M`, `1.5G`, `40%`.

use std::fmt;

/// The allowed forms of a size, for messages.
pub const ALLOWED: &str =
    "a number with K, M, G or T (powers of 1024) such as 512M or 1.5G, or a percentage such as 50%";

/// A size that may depend on the machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Size {
    /// That many bytes.
    Bytes(u64),
    /// A share of a base, percent: more than 0, at most 100 ([`parse`]) or 10000
    /// ([`parse_of_need`]).
    Percent(f64),
}

impl Size {
    /// The size in bytes, with `base_bytes` as 100 %.
    #[must_use]
    pub fn resolve(self, base_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (base_bytes as f64 * percent / 100.0) as u64,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => f.write_str(&human(*bytes)),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Reads a size.
///
/// # Errors
/// A sentence that says what is wrong and what is allowed.
pub fn parse(text: &str) -> Result<Size, String> {
    parse_up_to(text, 100.0)
}

/// As [`parse`], for a percentage of what a program needs, which may exceed 100.
///
/// # Errors
/// As [`parse`].
pub fn parse_of_need(text: &str) -> Result<Size, String> {
    parse_up_to(text, 10_000.0)
}

fn parse_up_to(text: &str, percent_max: f64) -> Result<Size, String> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    if number.is_empty() || !number.starts_with(|c: char| c.is_ascii_digit()) || number.ends_with('.') {
        return Err(format!("it does not start with a number; write {ALLOWED}"));
    }
    let value: f64 = number.parse().map_err(|_| format!("'{number}' is not a number; write {ALLOWED}"))?;
    let shift = match unit {
        "%" if value > 0.0 && value <= percent_max => return Ok(Size::Percent(value)),
        "%" => return Err(format!("a percentage is more than 0 and at most {percent_max}")),
        "" | "B" => 0,
        "K" | "k" | "KiB" => 10,
        "M" | "m" | "MiB" => 20,
        "G" | "g" | "GiB" => 30,
        "T" | "t" | "TiB" => 40,
        _ => return Err(format!("'{unit}' is not a unit; write {ALLOWED}")),
    };
    // Whole numbers are exact; a fraction of a byte is cut off.
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(1 << shift),
        Err(_) if !number.contains('.') => None,
        Err(_) if shift == 0 => return Err("a number of bytes has no fraction".into()),
        Err(_) => {
            let bytes = value * (1u64 << shift) as f64;
            (bytes < u64::MAX as f64).then_some(bytes as u64)
        }
    };
    bytes.map(Size::Bytes).ok_or_else(|| "it is larger than 16 EiB, the largest size there is".into())
}

fn scaled(bytes: u64) -> (f64, &'static str) {
    let (mut value, mut unit) = (bytes as f64, 0);
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    // 1023.5 would be printed as 1024.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    (value, UNITS[unit])
}

/// Bytes for people: `512 MiB`, `1.5 GiB`, `17 B`.
#[must_use]
pub fn human(bytes: u64) -> String {
    let (value, unit) = scaled(bytes);
    let digits = usize::from(value < 99.95 && (value * 10.0).round() % 10.0 != 0.0);
    format!("{value:.digits$} {unit}")
}

/// Two sizes, with so many decimals that they differ.
#[must_use]
pub fn human_apart(sizes: [u64; 2]) -> [String; 2] {
    let with = |digits: usize| {
        sizes.map(|bytes| {
            let (value, unit) = scaled(bytes);
            format!("{value:.digits$} {unit}")
        })
    };
    let differ = |texts: &[String; 2]| texts[0] != texts[1];
    let short = sizes.map(human);
    if differ(&short) || sizes[0] == sizes[1] {
        return short;
    }
    (1..=6).map(with).find(differ).unwrap_or(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_differ_look_so() {
        let kib = |kib: u64| kib << 10;
        assert_eq!(human_apart([kib(126 << 10), kib(125 << 10)]), ["126 MiB", "125 MiB"]);
        assert_eq!(human_apart([kib((126 << 10) + 100), kib(126 << 10)]), ["126.1 MiB", "126.0 MiB"]);
        assert_eq!(human_apart([kib((71 << 10) + 20), kib(71 << 10)]), ["71.02 MiB", "71.00 MiB"]);
        assert_eq!(human_apart([5 << 30, (5 << 30) + kib(6 << 10)]), ["5.00 GiB", "5.01 GiB"]);
        assert_eq!(human_apart([7, 7]), ["7 B", "7 B"]);
    }

    #[test]
    fn reads_what_is_allowed() {
        let good = [
            ("0", 0),
            ("4096", 4096),
            ("17B", 17),
            ("16M", 16 << 20),
            ("2g", 2 << 30),
            ("2GiB", 2 << 30),
            ("1.5G", 3 << 29),
            ("0.5K", 512),
            ("1T", 1 << 40),
            ("16777215T", 16777215 << 40),
            ("9007199254740993", 9007199254740993),
        ];
        for (text, bytes) in good {
            assert_eq!(parse(text), Ok(Size::Bytes(bytes)), "{text}");
        }
        assert_eq!(parse("37.5%"), Ok(Size::Percent(37.5)));
        assert_eq!(parse("50%").unwrap().resolve(1 << 30), 1 << 29);
        assert_eq!(parse("1K").unwrap().resolve(1 << 30), 1024);
    }

    #[test]
    fn refuses_the_rest_with_a_reason() {
        let bad = [
            ("", "does not start with a number"),
            ("G", "does not start with a number"),
            ("-5M", "does not start with a number"),
            (".5G", "does not start with a number"),
            ("1.G", "does not start with a number"),
            ("1.2.3G", "'1.2.3' is not a number"),
            ("2GB", "'GB' is not a unit"),
            ("2 G", "' G' is not a unit"),
            ("5X", "'X' is not a unit"),
            ("1e9", "'e9' is not a unit"),
            ("0%", "more than 0 and at most 100"),
            ("101%", "more than 0 and at most 100"),
            ("1.5", "no fraction"),
            ("16777216T", "larger than 16 EiB"),
            ("99999999999999999999", "larger than 16 EiB"),
            ("16777216.5T", "larger than 16 EiB"),
        ];
        for (text, reason) in bad {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
        assert_eq!(parse_of_need("10000%"), Ok(Size::Percent(10_000.0)));
        assert_eq!(parse_of_need("10001%").unwrap_err(), "a percentage is more than 0 and at most 10000");
    }

    #[test]
    fn writes_for_people() {
        let shown = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (512 << 20, "512 MiB"),
            ((1 << 20) - 1, "1 MiB"),
            (3 << 29, "1.5 GiB"),
            (u64::MAX, "16 EiB"),
        ];
        for (bytes, text) in shown {
            assert_eq!(human(bytes), text);
        }
    }
}
