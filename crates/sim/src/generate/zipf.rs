//! Random pages by Zipf's law: the n-th most likely page in proportion to 1 / n^skew.
//!
//! The draws use the alias method (A. J. Walker, "An Efficient Method for Generating Discrete
//! Random Variables with General Distributions", ACM TOMS 3(3), 1977), with tables built as by M.
//! D. Vose, "A Linear Algorithm for Generating Random Numbers with a Given Distribution", IEEE TSE
//! 17(9), 1991. They are exact up to rounding, at any skew, and take one lookup in a table of 8
//! bytes a page. Rejection-inversion (Hörmann and Derflinger 1996) needs no such table, but several
//! logarithms a draw, and a second table for the place of the n-th page.

use super::stream::{process, shuffle, workload, StreamRegion, Writes};
use super::Values;
use crate::workload::{Event, Workload};
use memfit_codec::generate::Rng;

/// Random numbers, each with its own probability.
struct Alias(Vec<Cell>);

/// One of as many equally likely cells as there are numbers: yields its own number or another one.
#[derive(Clone, Copy)]
struct Cell {
    /// Probability that it yields its own number, in units of 2^-32.
    itself: u32,
    other: u32,
}

impl Alias {
    /// Number i in proportion to `weights[i]`. No weight is negative, and not all are 0.
    fn new(mut weights: Vec<f64>) -> Alias {
        let mean = weights.iter().sum::<f64>() / weights.len() as f64;
        weights.iter_mut().for_each(|weight| *weight /= mean);
        let mut cells: Vec<Cell> = (0..weights.len() as u32).map(|i| Cell { itself: u32::MAX, other: i }).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..weights.len() as u32).partition(|&i| weights[i as usize] < 1.0);
        while let (Some(&big), Some(little)) = (large.last(), small.pop()) {
            let itself = weights[little as usize];
            cells[little as usize] = Cell { itself: (itself * (1u64 << 32) as f64) as u32, other: big };
            // The rest of the small one's cell goes to the large one.
            weights[big as usize] -= 1.0 - itself;
            if weights[big as usize] < 1.0 {
                large.pop();
                small.push(big);
            }
        }
        Alias(cells)
    }

    /// Draws a number.
    fn draw(&self, rng: &mut Rng) -> u64 {
        // A random multiple of the number of cells: its integer part is the cell, its fraction
        // decides between the cell's two numbers.
        let random = u128::from(rng.next()) * self.0.len() as u128;
        let (cell, behind) = ((random >> 64) as usize, (random >> 32) as u32);
        let Cell { itself, other } = self.0[cell];
        // Without a branch, because it would be unpredictable.
        let not_itself = u32::from(behind >= itself).wrapping_neg();
        u64::from(cell as u32 ^ (cell as u32 ^ other) & not_itself)
    }
}

/// Touches pages by Zipf's law. Mark 0 is the end of the fill, mark 1 that of the accesses.
pub(super) fn zipf(v: &Values<'_>) -> Box<dyn Workload> {
    let (pages, skew, mut rng) = (v.count("pages"), v.real("skew"), Rng::new(v.count("seed")));
    // The places of the likely pages are random, too.
    let mut weights: Vec<f64> = (1..=pages).map(|rank| (rank as f64).powf(-skew)).collect();
    shuffle(&mut weights, &mut rng);
    let alias = Alias::new(weights);
    draws(v, rng, move |rng| alias.draw(rng))
}

/// Touches all pages with the same probability; marks as for [`zipf`].
pub(super) fn uniform(v: &Values<'_>) -> Box<dyn Workload> {
    let pages = v.count("pages");
    draws(v, Rng::new(v.count("seed")), move |rng| rng.below(pages))
}

fn draws(v: &Values<'_>, mut rng: Rng, draw: impl Fn(&mut Rng) -> u64 + Send + 'static) -> Box<dyn Workload> {
    let data = StreamRegion::new(0, v.count("pages"));
    let writes = Writes::percent(v.real("writes"));
    let touches = (0..v.count("accesses")).map(move |_| {
        let page = draw(&mut rng);
        data.touch(page, writes.how(&mut rng))
    });
    let body = data.fill().chain([Event::Reaches { mark: 0 }]).chain(touches).chain([Event::Reaches { mark: 1 }]);
    let events = process(0, vec![data.maps(v.kind("contents"))], body);
    workload(events, v.count("touch_ns"), |mark| if mark == 0 { "filled".into() } else { "accesses".into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sum of (seen - expected)^2 / expected over the first numbers, each expected often enough;
    /// all others count as one more.
    fn chi_square(weights: &[f64], draws: u64, first: usize) -> f64 {
        let (alias, mut rng) = (Alias::new(weights.to_vec()), Rng::new(9));
        let (mut seen, sum) = (vec![0u64; first + 1], weights.iter().sum::<f64>());
        for _ in 0..draws {
            seen[(alias.draw(&mut rng) as usize).min(first)] += 1;
        }
        let expected = |weights: &[f64]| weights.iter().sum::<f64>() / sum * draws as f64;
        let parts = (0..first).map(|i| expected(&weights[i..=i])).chain([expected(&weights[first..])]);
        parts.zip(seen).map(|(want, got)| (got as f64 - want).powi(2) / want).sum()
    }

    #[test]
    fn frequencies_are_those_of_the_formula() {
        for skew in [0.0, 0.5, 0.8, 1.0, 1.2, 2.0] {
            let weights: Vec<f64> = (1..=10_000).map(|rank| f64::from(rank).powf(-skew)).collect();
            let got = chi_square(&weights, 2_000_000, 50);
            // With 50 degrees of freedom, 86.7 is exceeded once in a thousand times.
            assert!(got < 86.7, "skew {skew}: {got}");
        }
        // The test distinguishes 1.0 from 0.97.
        let weights = |skew: f64| (1..=10_000).map(move |rank| f64::from(rank).powf(-skew)).collect::<Vec<_>>();
        let (want, alias) = (weights(0.97), Alias::new(weights(1.0)));
        let (mut rng, mut first) = (Rng::new(9), 0);
        (0..2_000_000).for_each(|_| first += u64::from(alias.draw(&mut rng) == 0));
        let expected = 2e6 / want.iter().sum::<f64>();
        assert!((first as f64 - expected).powi(2) / expected > 86.7);
    }

    #[test]
    fn what_has_no_weight_is_never_drawn() {
        let (alias, mut rng) = (Alias::new(vec![0.0, 3.0, 0.0, 1.0]), Rng::new(2));
        let mut seen = [0; 4];
        (0..40_000).for_each(|_| seen[alias.draw(&mut rng) as usize] += 1);
        assert_eq!((seen[0], seen[2]), (0, 0));
        assert!((29_500..30_500).contains(&seen[1]), "{seen:?}");
        assert_eq!(Alias::new(vec![1.0]).draw(&mut rng), 0);
    }
}
