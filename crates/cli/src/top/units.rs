//! Numbers in few columns: at most six characters, whatever the value.

use std::time::Duration;

fn scaled(value: f64, base: f64, units: [&str; 7]) -> String {
    let (mut value, mut unit) = (value, 0);
    // 1023.5 would be printed as 1024.
    while value >= base - 0.5 && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 99.95);
    format!("{value:.digits$}{}", units[unit])
}

/// Bytes with units of 1024: `17B`, `1.5K`, `512M`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, ["B", "K", "M", "G", "T", "P", "E"])
}

/// Bytes a second.
#[must_use]
pub fn byte_rate(rate: f64) -> String {
    format!("{}/s", bytes(rate.round() as u64))
}

/// Counts with units of 1000: `999`, `1.2k`, `123k`.
#[must_use]
pub fn count(count: f64) -> String {
    if count.round() < 10_000.0 {
        return format!("{:.0}", count.round());
    }
    scaled(count, 1000.0, ["", "k", "M", "G", "T", "P", "E"])
}

/// Nanoseconds: `850ns`, `4.1us`, `12ms`; `-` for none.
#[must_use]
pub fn nanoseconds(ns: u64) -> String {
    match ns {
        0 => "-".into(),
        1..=999_499_999_999 => scaled(ns as f64, 1000.0, ["ns", "us", "ms", "s", "", "", ""]),
        _ => format!("{}s", ns / 1_000_000_000),
    }
}

/// `0:07`, `12:34`, `1:02:03`, `5d 01:02:03`.
#[must_use]
pub fn age(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (days, hours, minutes, seconds) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}:{seconds:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{seconds:02}"),
        _ => format!("{days}d {hours:02}:{minutes:02}:{seconds:02}"),
    }
}

/// `0.5 s`, `2 s`.
#[must_use]
pub fn interval(interval: Duration) -> String {
    format!("{} s", interval.as_secs_f64())
}

/// A share in whole percent; `<1%` if it is smaller but not 0.
#[must_use]
pub fn percent(part: f64, whole: f64) -> String {
    if part <= 0.0 || whole <= 0.0 {
        return "-".into();
    }
    match (part * 100.0 / whole).round() {
        share if share < 1.0 => "<1%".into(),
        share => format!("{share:.0}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn are_short_and_do_not_round_to_another_unit() {
        let all =
            [(0, "0B"), (1023, "1023B"), (1024, "1.0K"), (1536, "1.5K"), (512 << 20, "512M"), (u64::MAX, "16.0E")];
        for (value, text) in all {
            assert_eq!(bytes(value), text);
        }
        for (value, text) in
            [(0.0, "0"), (0.4, "0"), (9999.4, "9999"), (9999.6, "10.0k"), (123_456.0, "123k"), (1e6, "1.0M")]
        {
            assert_eq!(count(value), text);
        }
        for (value, text) in [(0, "-"), (850, "850ns"), (4100, "4.1us"), (999_999, "1.0ms"), (2_500_000_000, "2.5s")] {
            assert_eq!(nanoseconds(value), text);
        }
        let mut value = 1u64;
        while let Some(next) = value.checked_mul(3) {
            value = next;
            for text in [bytes(value), count(value as f64)] {
                assert!(text.len() <= 6, "{text}");
            }
        }
        assert_eq!(byte_rate(1_258_291.2), "1.2M/s");
    }

    #[test]
    fn times_and_shares() {
        let second = 1_000_000_000;
        assert_eq!(age(7 * second), "0:07");
        assert_eq!(age(3723 * second), "1:02:03");
        assert_eq!(age(435_723 * second), "5d 01:02:03");
        assert_eq!(
            (interval(Duration::from_millis(500)), interval(Duration::from_secs(2))),
            ("0.5 s".into(), "2 s".into())
        );
        assert_eq!(
            [percent(0.0, 5.0), percent(1.0, 1000.0), percent(2.0, 3.0), percent(1.0, 0.0)],
            ["-", "<1%", "67%", "-"]
        );
    }
}
