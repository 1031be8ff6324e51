//! Sets of addresses, as ranges that neither overlap nor touch.

use alloc::{collections::BTreeMap, vec::Vec};

/// A set of addresses, bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Ranges(
    /// Start to end, `end` exclusive.
    BTreeMap<u64, u64>,
);

impl Ranges {
    /// Adds a range, joining neighbours.
    pub fn add(&mut self, mut start: u64, mut end: u64) {
        while let Some((s, e)) = self.0.range(..=end).next_back().map(|(&s, &e)| (s, e)).filter(|&(_, e)| e >= start) {
            self.0.remove(&s);
            (start, end) = (start.min(s), end.max(e));
        }
        if start < end {
            self.0.insert(start, end);
        }
    }

    /// Removes a range. Returns whether any of it was in the set.
    pub fn cut(&mut self, start: u64, end: u64) -> bool {
        let hit: Vec<(u64, u64)> = self.within(start, end).collect();
        for &(s, e) in &hit {
            let (&whole, &whole_end) = self.0.range(..=s).next_back().expect("it was just found");
            self.0.remove(&whole);
            if whole < s {
                self.0.insert(whole, s);
            }
            if e < whole_end {
                self.0.insert(e, whole_end);
            }
        }
        !hit.is_empty()
    }

    /// Adds what is within a range of `len` once more, at another place.
    pub fn copy(&mut self, from: u64, to: u64, len: u64) {
        let there: Vec<_> = self.within(from, from + len).map(|(s, e)| (s - from + to, e - from + to)).collect();
        there.into_iter().for_each(|(s, e)| self.add(s, e));
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The range around an address.
    pub fn around(&self, address: u64) -> Option<(u64, u64)> {
        let (&start, &end) = self.0.range(..=address).next_back()?;
        (address < end).then_some((start, end))
    }

    /// Whether any of a range is in the set.
    pub fn meets(&self, start: u64, end: u64) -> bool {
        start < end && self.0.range(..end).next_back().is_some_and(|(_, &e)| e > start)
    }

    /// The parts of the set within a range, in order.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = self.0.range(..=start).next_back().map_or(start, |(&s, _)| s);
        let parts = self.0.range(first..end.max(first)).map(move |(&s, &e)| (s.max(start), e.min(end)));
        parts.filter(|(s, e)| s < e)
    }

    /// The parts of a range that are not in the set, in order.
    pub fn gaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let (mut out, mut at) = (Vec::new(), start);
        for (s, e) in self.within(start, end) {
            out.extend((at < s).then_some((at, s)));
            at = e;
        }
        out.extend((at < end).then_some((at, end)));
        out
    }

    /// All ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(&s, &e)| (s, e))
    }
}

impl FromIterator<(u64, u64)> for Ranges {
    fn from_iter<T: IntoIterator<Item = (u64, u64)>>(parts: T) -> Ranges {
        let mut all = Ranges::default();
        parts.into_iter().for_each(|(s, e)| all.add(s, e));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares it with a set of numbers, with random operations.
    #[test]
    fn is_a_set_of_addresses() {
        const END: u64 = 40;
        let (mut ranges, mut set, mut seed) = (Ranges::default(), [false; END as usize], 1u64);
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        for _ in 0..20_000 {
            let (start, len) = (random(END - 8), random(8));
            let end = start + len;
            if random(2) == 0 {
                ranges.add(start, end);
                set[start as usize..end as usize].fill(true);
            } else {
                let any = set[start as usize..end as usize].contains(&true);
                assert_eq!(ranges.meets(start, end), any);
                assert_eq!(ranges.cut(start, end), any);
                set[start as usize..end as usize].fill(false);
            }
            let mut last = None;
            for (s, e) in ranges.iter() {
                assert!(s < e && last.is_none_or(|end| end < s));
                last = Some(e);
            }
            for at in 0..END {
                assert_eq!(ranges.around(at).is_some(), set[at as usize]);
            }
            let inside: u64 = ranges.within(start, end).map(|(s, e)| e - s).sum();
            let outside: u64 = ranges.gaps(start, end).iter().map(|(s, e)| e - s).sum();
            assert_eq!(inside, set[start as usize..end as usize].iter().filter(|&&x| x).count() as u64);
            assert_eq!(inside + outside, len);
        }
    }
}
