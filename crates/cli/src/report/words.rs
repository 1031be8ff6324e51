//! Numbers in sentences. Spaces before units do not break.

use crate::size_parsing::human;

/// Bytes.
pub(super) fn size(bytes: u64) -> String {
    human(bytes).replace(' ', "\u{a0}")
}

/// A number with thin spaces between thousands.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A number of things.
pub(super) fn times(number: u64, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A time with three significant digits and a fitting unit.
pub(crate) fn duration(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns}\u{a0}ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => return seconds(ns),
    };
    format!("{}\u{a0}{unit}", three_digits(value))
}

/// A time in seconds, minutes or hours.
pub(super) fn seconds(ns: u64) -> String {
    let all = ns as f64 / 1e9;
    let whole = all.round() as u64;
    match whole {
        0..120 => format!("{}\u{a0}s", three_digits(all)),
        120..7200 => format!("{}\u{a0}min {}\u{a0}s", whole / 60, whole % 60),
        _ => format!("{}\u{a0}h {}\u{a0}min", whole / 3600, whole % 3600 / 60),
    }
}

fn three_digits(value: f64) -> String {
    let digits = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$}")
}

/// A share in percent.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let percent = part as f64 * 100.0 / whole.max(1) as f64;
    match percent {
        0.0 => "0\u{a0}%".into(),
        _ if percent < 0.1 => "less than 0.1\u{a0}%".into(),
        _ if percent < 9.95 => format!("{percent:.1}\u{a0}%"),
        _ => format!("{percent:.0}\u{a0}%"),
    }
}

/// A factor.
pub(super) fn factor(value: f64) -> String {
    three_digits(value)
}

/// A list with `and`.
pub(super) fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// A command line as a user would type it; cut if it is long.
pub(super) fn command(words: &[String]) -> String {
    const LONGEST: usize = 150;
    let plain = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_./=:,+@%^".contains(c));
    let quoted =
        words.iter().map(|word| if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) });
    let text = quoted.collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{} ...", &text[..at]),
        None => text,
    }
}

/// Its name, in brackets.
pub(super) fn signal(number: i32) -> &'static str {
    match number {
        libc::SIGHUP => " (SIGHUP)",
        libc::SIGINT => " (SIGINT)",
        libc::SIGQUIT => " (SIGQUIT)",
        libc::SIGABRT => " (SIGABRT)",
        libc::SIGKILL => " (SIGKILL)",
        libc::SIGSEGV => " (SIGSEGV)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGPIPE => " (SIGPIPE)",
        libc::SIGTERM => " (SIGTERM)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]);
        assert_eq!((times(1, "fault"), times(2, "fault")), ("1 fault".into(), "2 faults".into()));
        let plain = |text: String| text.replace('\u{a0}', " ");
        let durations =
            [12, 4100, 20_500, 999_960, 3_900_000, 181_000_000, 1_500_000_000].map(|ns| plain(duration(ns)));
        assert_eq!(durations, ["12 ns", "4.10 µs", "20.5 µs", "1000 µs", "3.90 ms", "181 ms", "1.50 s"]);
        assert_eq!(
            [300, 12_000, 119_000, 125_000, 7_260_000].map(|ms| plain(seconds(ms * 1_000_000))),
            ["0.30 s", "12.0 s", "119 s", "2 min 5 s", "2 h 1 min"]
        );
        assert_eq!(
            [0, 1, 50, 99, 1500].map(|part| plain(percent(part, 2000))),
            ["0 %", "less than 0.1 %", "2.5 %", "5.0 %", "75 %"]
        );
        assert_eq!(list(&["a".into(), "b".into(), "c".into()]), "a, b and c");
    }

    #[test]
    fn commands_can_be_typed() {
        let words = |words: &[&str]| command(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&["sort", "-S", "1G", "a b", "", "it's"]), r"sort -S 1G 'a b' '' 'it'\''s'");
        assert!(words(&["x", &"é".repeat(5000)]).chars().count() < 160);
    }
}
