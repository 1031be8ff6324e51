//! Statements of a paper, and whether they hold in the simulation.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::RangeInclusive;

/// Numbers by name, such as `speedup(fft)`: ours, or those that a paper prints.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Numbers(BTreeMap<String, f64>);

impl Numbers {
    /// No numbers.
    pub fn new() -> Numbers {
        Numbers::default()
    }

    /// From pairs of a name and a number.
    pub fn of<'a>(pairs: impl IntoIterator<Item = (&'a str, f64)>) -> Numbers {
        Numbers(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// From tables of names and numbers; of a pair of numbers the middle.
    ///
    /// # Panics
    /// The text is something else.
    pub fn from_toml(text: &str) -> Numbers {
        let tables: toml::Table = text.parse().expect("TOML");
        let number = |value: &toml::Value| match value {
            toml::Value::Integer(number) => *number as f64,
            toml::Value::Float(number) => *number,
            other => panic!("not a number: {other:?}"),
        };
        let mut numbers = Numbers::new();
        for (name, value) in tables.values().flat_map(|table| table.as_table().expect("a table")) {
            let value = match value.as_array().map(Vec::as_slice) {
                Some([low, high]) => f64::midpoint(number(low), number(high)),
                _ => number(value),
            };
            let before = numbers.0.insert(name.clone(), value);
            assert!(before.is_none(), "{name} stands there twice");
        }
        numbers
    }

    /// Sets a number; ignores one that is missing or not finite.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Option<f64>>) {
        if let Some(value) = value.into().filter(|value| value.is_finite()) {
            self.0.insert(name.into(), value);
        }
    }

    /// The number of this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// The numbers of these names; `None` if one is missing.
    pub fn all(&self, names: &[&str]) -> Option<Vec<f64>> {
        names.iter().map(|name| self.get(name)).collect()
    }

    /// Whether each of the first numbers is less than each of the second.
    pub fn less(&self, low: &[&str], high: &[&str]) -> Option<bool> {
        let (low, high) = (self.all(low)?, self.all(high)?);
        Some(low.iter().all(|low| high.iter().all(|high| low < high)))
    }

    /// Whether each number is less than the next.
    pub fn rising(&self, names: &[&str]) -> Option<bool> {
        Some(self.all(names)?.windows(2).all(|pair| pair[0] < pair[1]))
    }

    /// Whether all numbers are from `low` to `high`.
    pub fn within(&self, names: &[&str], low: f64, high: f64) -> Option<bool> {
        self.all_within(names, low..=high)
    }

    /// As [`Numbers::within`], for owned names.
    pub fn all_within<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
        range: RangeInclusive<f64>,
    ) -> Option<bool> {
        let inside = |name: N| Some(range.contains(&self.get(name.as_ref())?));
        names.into_iter().try_fold(true, |all, name| inside(name).map(|inside| all && inside))
    }

    /// To six significant digits: what the processor rounds otherwise makes no difference.
    #[must_use]
    pub fn rounded(mut self) -> Numbers {
        let rounded = |value: f64| format!("{value:.5e}").parse().expect("a number");
        self.0.values_mut().for_each(|value| *value = rounded(*value));
        self
    }

    /// Removes the numbers whose names begin with one of these texts.
    #[must_use]
    pub fn without(mut self, begins: &[&str]) -> Numbers {
        self.0.retain(|name, _| !begins.iter().any(|begin| name.starts_with(begin)));
        self
    }

    /// For each name the middle of several values; a name that is missing somewhere is left out.
    pub fn middle(all: &[Numbers]) -> Numbers {
        let names = all.first().into_iter().flat_map(|first| first.0.keys());
        let of = |name: &String| {
            let mut values = values(all, name)?;
            values.sort_by(f64::total_cmp);
            let half = values.len() / 2;
            let middle =
                if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) };
            Some((name.clone(), middle))
        };
        Numbers(names.filter_map(of).collect())
    }

    /// Whether there are no numbers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All numbers by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

/// The values of a name; `None` if one is missing.
fn values(all: &[Numbers], name: &str) -> Option<Vec<f64>> {
    all.iter().map(|numbers| numbers.get(name)).collect()
}

/// How a statement is judged.
#[derive(Debug, Clone, Copy)]
pub enum Judge {
    /// By its numbers; `None` if one is missing.
    By(fn(&Numbers) -> Option<bool>),
    /// By its numbers, which are an input, were fitted, or follow from the rules alone: it proves
    /// nothing that it holds.
    PutIn(fn(&Numbers) -> Option<bool>),
    /// Something that it needs is not implemented.
    NotImplemented,
    /// The simulator cannot decide it.
    Cannot,
}

/// The verdict on a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Holds,
    /// It does not hold.
    Fails,
    /// It holds with some seeds.
    Undecided,
    /// It holds, since it was put in.
    PutIn,
    /// It needs what is not implemented.
    NotImplemented,
    /// The simulator cannot show it, or a number is missing.
    CannotBeHad,
}

impl Verdict {
    /// All of them, in the order of tables.
    pub const ALL: [Verdict; 6] = [
        Verdict::Holds,
        Verdict::Fails,
        Verdict::Undecided,
        Verdict::PutIn,
        Verdict::NotImplemented,
        Verdict::CannotBeHad,
    ];

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Fails => "does not hold",
            Verdict::Undecided => "undecided",
            Verdict::PutIn => "put in",
            Verdict::NotImplemented => "not implemented",
            Verdict::CannotBeHad => "cannot be had",
        }
    }
}

/// A statement of a paper about its figures and tables.
#[derive(Debug, Clone, Copy)]
pub struct Statement {
    /// Figure, table or section.
    pub source: &'static str,
    /// The statement, in our words.
    pub what: &'static str,
    /// The published values, or a note that there is only a plot.
    pub published: &'static str,
    /// Names of the numbers that it uses.
    pub numbers: &'static [&'static str],
    /// How it is judged.
    pub judge: Judge,
    /// What is known of the reasons for the numbers here.
    pub why: &'static str,
}

impl Statement {
    /// A statement that is judged by numbers.
    pub const fn new(
        source: &'static str,
        what: &'static str,
        published: &'static str,
        numbers: &'static [&'static str],
        by: fn(&Numbers) -> Option<bool>,
        why: &'static str,
    ) -> Statement {
        Statement { source, what, published, numbers, judge: Judge::By(by), why }
    }

    /// A statement that the simulator cannot decide.
    pub const fn cannot(
        source: &'static str,
        what: &'static str,
        published: &'static str,
        why: &'static str,
    ) -> Statement {
        Statement { source, what, published, numbers: &[], judge: Judge::Cannot, why }
    }

    /// The same statement, whose numbers were put in for this reason.
    pub const fn put_in(self, why: &'static str) -> Statement {
        let judge = match self.judge {
            Judge::By(by) => Judge::PutIn(by),
            other => other,
        };
        Statement { judge, why, ..self }
    }

    /// The same statement, about what is not implemented.
    pub const fn not_implemented(self) -> Statement {
        Statement { judge: Judge::NotImplemented, ..self }
    }

    /// The verdict with the numbers of several seeds, or of one run.
    pub fn verdict(&self, seeds: &[Numbers]) -> Verdict {
        let (by, holds) = match self.judge {
            Judge::By(by) => (by, Verdict::Holds),
            Judge::PutIn(by) => (by, Verdict::PutIn),
            Judge::NotImplemented => return Verdict::NotImplemented,
            Judge::Cannot => return Verdict::CannotBeHad,
        };
        match seeds.iter().map(by).collect::<Option<Vec<bool>>>() {
            Some(all) if all.is_empty() => Verdict::CannotBeHad,
            Some(all) if all.iter().all(|&one| one) => holds,
            Some(all) if all.contains(&true) => Verdict::Undecided,
            Some(_) => Verdict::Fails,
            None => Verdict::CannotBeHad,
        }
    }

    /// Its numbers as text: the middle of all seeds, and the least and the greatest unless they
    /// look the same.
    pub fn told(&self, seeds: &[Numbers]) -> String {
        let mut out = String::new();
        let middle = Numbers::middle(seeds);
        for name in self.numbers {
            let between = if out.is_empty() { "" } else { ", " };
            let value = middle.get(name).map_or("–".into(), short);
            let _ = write!(out, "{between}{name} {value}");
            let all = values(seeds, name).unwrap_or_default();
            let [least, most] = [f64::min, f64::max].map(|of| all.iter().copied().reduce(of).map(short));
            if let (Some(least), Some(most), true) = (&least, &most, least != most) {
                let _ = write!(out, " ({least} to {most})");
            }
        }
        out
    }

    /// Its numbers from recordings as text, as far as there are any, with the verdict if none is
    /// missing.
    pub fn told_recorded(&self, recorded: &Numbers) -> String {
        let one = std::slice::from_ref(recorded);
        if self.numbers.iter().all(|name| recorded.get(name).is_none()) {
            return "–".into();
        }
        match self.verdict(one) {
            Verdict::CannotBeHad | Verdict::NotImplemented => self.told(one),
            verdict => format!("{}: {}", verdict.name(), self.told(one)),
        }
    }

    /// What is known of the reasons.
    pub fn reason(&self, seeds: &[Numbers]) -> &'static str {
        match (self.verdict(seeds), self.judge) {
            (Verdict::CannotBeHad, Judge::By(_) | Judge::PutIn(_)) => "A number is missing: not simulated in this run.",
            _ => self.why,
        }
    }
}

/// A number with three significant digits.
pub fn short(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    let text = format!("{value:.*}", (2 - digits).clamp(0, 6) as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: [(&str, f64); 3] = [("a", 1.0), ("b", 2.0), ("c", 3.0)];

    #[test]
    fn orders_and_ranges() {
        let n = Numbers::of(NUMBERS);
        assert_eq!(n.less(&["a", "b"], &["c"]), Some(true));
        assert_eq!(n.less(&["a", "c"], &["b"]), Some(false));
        assert_eq!(n.less(&["a"], &["d"]), None);
        assert_eq!((n.rising(&["a", "b", "c"]), n.rising(&["a", "c", "b"])), (Some(true), Some(false)));
        assert_eq!((n.within(&["a", "b"], 1.0, 2.0), n.within(&["c"], 1.0, 2.0)), (Some(true), Some(false)));
    }

    #[test]
    fn numbers_have_six_digits() {
        let rounded = |value| Numbers::of([("x", value)]).rounded().get("x").unwrap();
        assert_eq!([1.0 / 3.0, 123_456_789.0, 0.0, -2.5e-7].map(rounded), [0.333_333, 123_457_000.0, 0.0, -2.5e-7]);
    }

    #[test]
    fn what_is_not_finite_is_missing() {
        let mut n = Numbers::new();
        n.set("x", f64::NAN);
        n.set("y", None);
        n.set("z", 0.5);
        assert_eq!((n.get("x"), n.get("y"), n.get("z")), (None, None, Some(0.5)));
    }

    #[test]
    fn verdicts() {
        let says = |by| Statement::new("Fig. 1", "a is less than b", "1, 2", &["a", "b"], by, "because");
        let n = [Numbers::of(NUMBERS)];
        let holds = says(|n| n.less(&["a"], &["b"]));
        assert_eq!((holds.verdict(&n), holds.reason(&n)), (Verdict::Holds, "because"));
        let fails = says(|n| n.less(&["b"], &["a"]));
        assert_eq!((fails.verdict(&n), fails.reason(&n)), (Verdict::Fails, "because"));
        assert_eq!(says(|n| n.less(&["q"], &["a"])).verdict(&n), Verdict::CannotBeHad);
        assert_eq!(holds.told(&n), "a 1, b 2");
        let cannot = Statement::cannot("Fig. 1", "it", "1", "no");
        assert_eq!((cannot.verdict(&n), cannot.reason(&n)), (Verdict::CannotBeHad, "no"));
        assert_eq!(cannot.not_implemented().verdict(&n), Verdict::NotImplemented);
        let put_in = holds.put_in("it is an input");
        assert_eq!((put_in.verdict(&n), put_in.reason(&n)), (Verdict::PutIn, "it is an input"));
        assert_eq!(fails.put_in("it is an input").verdict(&n), Verdict::Fails);
    }

    #[test]
    fn what_some_seeds_deny_is_undecided() {
        let of = |a, b| Numbers::of([("a", a), ("b", b)]);
        let seeds = [of(1.0, 2.0), of(5.0, 4.0), of(2.0, 2.004)];
        let less = |n: &Numbers| n.less(&["a"], &["b"]);
        let statement = Statement::new("Fig. 1", "a is less than b", "1, 2", &["a", "b"], less, "");
        assert_eq!(statement.verdict(&seeds), Verdict::Undecided);
        assert_eq!(statement.verdict(&[of(3.0, 2.0), of(2.0, 1.0)]), Verdict::Fails);
        assert_eq!(statement.told(&seeds), "a 2 (1 to 5), b 2 (2 to 4)");
        assert_eq!(Numbers::middle(&seeds[..2]), of(3.0, 3.0));
        assert_eq!((Numbers::middle(&[]), statement.verdict(&[])), (Numbers::new(), Verdict::CannotBeHad));
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.9634, 1.0, 12.345, 123.4, 51_408.0, 0.00123].map(short);
        assert_eq!(texts, ["0", "0.963", "1", "12.3", "123", "51408", "0.00123"]);
    }
}
