//! Sorts the values of a figure, and reduces their number.

use crate::{Figure, Kind, Places};

/// Values of all series at common places, sorted, all finite.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rows {
    /// The places.
    pub(crate) places: Vec<f64>,
    /// For each series a value for each place.
    pub(crate) columns: Vec<Vec<Option<f64>>>,
}

/// How the rows of a bucket become two rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The lowest and the highest value of each series, in their order along x, at the first and
    /// the last place of the bucket. So a peak keeps its height, and moves by less than a bucket.
    Each,
    /// The rows with the lowest and the highest sum, unchanged, and the very first and last row:
    /// the bands of a stack belong together.
    Sums,
}

impl Rows {
    /// The drawable values of a figure. Names are at places 0, 1, 2...
    pub(crate) fn of(figure: &Figure) -> Rows {
        let places: Vec<f64> = match &figure.places {
            Places::Numbers(numbers) => numbers.clone(),
            Places::Names(names) => (0..names.len()).map(|place| place as f64).collect(),
        };
        let numbers = matches!(figure.places, Places::Numbers(_));
        let drawn = |value: f64, log: bool| value.is_finite() && (!log || value > 0.0);
        let mut order: Vec<usize> =
            (0..places.len()).filter(|&row| drawn(places[row], figure.x.log && numbers)).collect();
        order.sort_by(|&a, &b| places[a].total_cmp(&places[b]));
        let value = |values: &[Option<f64>], row: usize| values.get(row).copied().flatten();
        let columns = figure.series.iter().map(|series| {
            order.iter().map(|&row| value(&series.values, row).filter(|value| drawn(*value, figure.y.log))).collect()
        });
        Rows { columns: columns.collect(), places: order.iter().map(|&row| places[row]).collect() }
    }

    /// All values that are not missing.
    pub(crate) fn values(&self) -> impl Iterator<Item = f64> + Clone + '_ {
        self.columns.iter().flatten().filter_map(|value| *value)
    }

    /// At most `limit` rows; unchanged if there are no more.
    pub(crate) fn thinned(&self, limit: usize, keep: Keep) -> Rows {
        let rows = self.places.len();
        if rows <= limit {
            return self.clone();
        }
        // A thinned stack also keeps its first and its last row.
        let ends = if keep == Keep::Sums { 2 } else { 0 };
        let buckets = (limit.saturating_sub(ends) / 2).max(1);
        let mut thin = Rows { places: Vec::new(), columns: vec![Vec::new(); self.columns.len()] };
        for bucket in 0..buckets {
            let (first, end) = (bucket * rows / buckets, (bucket + 1) * rows / buckets);
            match keep {
                Keep::Each => self.extremes(first, end, &mut thin),
                Keep::Sums => self.sums(first, end, rows, &mut thin),
            }
        }
        thin
    }

    fn extremes(&self, first: usize, end: usize, thin: &mut Rows) {
        let alone = end - first == 1;
        thin.places.push(self.places[first]);
        if !alone {
            thin.places.push(self.places[end - 1]);
        }
        for (column, out) in self.columns.iter().zip(&mut thin.columns) {
            let there = || (first..end).filter_map(|row| column[row].map(|value| (row, value)));
            let lowest = there().min_by(|a, b| a.1.total_cmp(&b.1));
            let highest = there().max_by(|a, b| a.1.total_cmp(&b.1));
            let (Some(lowest), Some(highest)) = (lowest, highest) else {
                out.extend(std::iter::repeat_n(None, if alone { 1 } else { 2 }));
                continue;
            };
            out.push(Some(if lowest.0 <= highest.0 { lowest.1 } else { highest.1 }));
            if !alone {
                out.push(Some(if lowest.0 <= highest.0 { highest.1 } else { lowest.1 }));
            }
        }
    }

    fn sums(&self, first: usize, end: usize, rows: usize, thin: &mut Rows) {
        let sum = |row: usize| self.columns.iter().filter_map(|column| column[row]).sum::<f64>();
        let lowest = (first..end).min_by(|&a, &b| sum(a).total_cmp(&sum(b)));
        let highest = (first..end).max_by(|&a, &b| sum(a).total_cmp(&sum(b)));
        let ends = [0, rows - 1].into_iter().filter(|row| (first..end).contains(row));
        let mut kept: Vec<usize> = lowest.into_iter().chain(highest).chain(ends).collect();
        kept.sort_unstable();
        kept.dedup();
        for row in kept {
            thin.places.push(self.places[row]);
            for (column, out) in self.columns.iter().zip(&mut thin.columns) {
                out.push(column[row]);
            }
        }
    }
}

impl Keep {
    pub(crate) fn of(kind: Kind) -> Keep {
        match kind {
            Kind::Stacked => Keep::Sums,
            _ => Keep::Each,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, Series, Unit};

    fn figure(kind: Kind, places: Vec<f64>, series: Vec<Series>) -> Figure {
        let x = Axis::new("Time", Unit::Seconds);
        let y = Axis::new("Memory", Unit::Bytes);
        Figure { series, ..Figure::new(kind, "", "", x, y, places) }
    }

    fn at(value: f64) -> Option<f64> {
        Some(value)
    }

    #[test]
    fn peaks_stay() {
        let places: Vec<f64> = (0..36_000).map(|row| f64::from(row) / 10.0).collect();
        let mut values = vec![10.0; 36_000];
        values[17_003] = 99.0;
        values[17_004] = 1.0;
        let still = vec![5.0; 36_000];
        let rows = Rows::of(&figure(Kind::Lines, places, vec![Series::new("a", values), Series::new("b", still)]));
        let thin = rows.thinned(1500, Keep::Each);
        assert_eq!(thin.places.len(), 1500);
        assert!(thin.columns.iter().all(|column| column.len() == 1500));
        assert_eq!((thin.places[0], *thin.places.last().unwrap()), (0.0, 3599.9));
        assert!(thin.places.is_sorted());
        let high = thin.columns[0].iter().position(|value| *value == at(99.0)).expect("the peak");
        assert!((thin.places[high] - 1700.3).abs() < 3600.0 / 750.0);
        assert_eq!(thin.columns[0][high + 1], at(1.0), "what came after the peak comes after it");
        assert!(thin.columns[1].iter().all(|value| *value == at(5.0)));
    }

    #[test]
    fn rows_of_a_stack_stay_together() {
        let places: Vec<f64> = (0..10_000).map(f64::from).collect();
        let mut low: Vec<f64> = (0..10_000).map(|row| f64::from(row % 7)).collect();
        let high: Vec<f64> = low.iter().map(|value| 7.0 - value).collect();
        low[5000] += 100.0;
        let rows = Rows::of(&figure(Kind::Stacked, places, vec![Series::new("a", low), Series::new("b", high)]));
        let thin = rows.thinned(100, Keep::Sums);
        assert!(thin.places.len() <= 100 && thin.places.is_sorted());
        assert_eq!((thin.places[0], *thin.places.last().unwrap()), (0.0, 9999.0));
        let sums = thin.columns[0].iter().zip(&thin.columns[1]).map(|(a, b)| a.unwrap() + b.unwrap());
        assert_eq!(sums.clone().fold(0.0, f64::max), 107.0);
        assert!(sums.filter(|sum| *sum != 7.0).count() == 1);
    }

    #[test]
    fn gaps_stay() {
        let places: Vec<f64> = (0..1000).map(f64::from).collect();
        let values = (0..1000).map(|row| (!(300..700).contains(&row)).then_some(1.0));
        let rows = Rows::of(&figure(Kind::Lines, places, vec![Series::with_gaps("a", values)]));
        let thin = rows.thinned(100, Keep::Each);
        assert_eq!(thin.columns[0].iter().filter(|value| value.is_none()).count(), 40);
    }

    #[test]
    fn what_cannot_be_drawn_is_missing() {
        let places = vec![3.0, f64::NAN, 1.0, f64::INFINITY, 2.0];
        let values = [f64::INFINITY, 1.0, f64::NAN, 1.0, 7.0];
        let rows = Rows::of(&figure(Kind::Lines, places, vec![Series::new("a", values), Series::new("b", [1.0])]));
        assert_eq!(rows.places, [1.0, 2.0, 3.0]);
        assert_eq!(rows.columns, [vec![None, at(7.0), None], vec![None, None, at(1.0)]]);
        let mut log = figure(Kind::Curves, vec![0.0, 1.0, 10.0], vec![Series::new("a", [1.0, 0.0, 2.0])]);
        (log.x.log, log.y.log) = (true, true);
        let rows = Rows::of(&log);
        assert_eq!((rows.places, rows.columns), (vec![1.0, 10.0], vec![vec![None, at(2.0)]]));
    }

    #[test]
    fn nothing_and_one_point() {
        for limit in [0, 1, 2, 100] {
            let none = Rows::of(&figure(Kind::Lines, Vec::new(), vec![Series::default()]));
            assert_eq!(none.thinned(limit, Keep::Each), none);
            let one = Rows::of(&figure(Kind::Stacked, vec![1.0], vec![Series::new("a", [2.0])]));
            assert_eq!(one.thinned(limit, Keep::Sums), one);
            assert_eq!(one.thinned(limit, Keep::Each), one);
        }
    }
}
