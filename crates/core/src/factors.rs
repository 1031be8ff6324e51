//! Which of three factors matters: a 2^3 factorial experiment, as in Jain's "The Art of Computer
//! Systems Performance Analysis" (1991), with one measurement for each combination of a low and a
//! high level.
//!
//! The effect of a factor, or of several together, is half of the result's change between its
//! levels: the mean of all results, each with the sign `+` where the factor is high and `-` where
//! it is low; for several factors, with the product of the signs. Its share of the variation is its
//! square, relative to the sum of the squares of all seven effects. No decision depends on this
//! module, so it may use floating point.

/// Number of combinations.
pub const RUNS: usize = 8;

/// The seven effects in the order of [`Study`], as bit sets: A is 1, B is 2, C is 4.
pub const EFFECTS: [usize; 7] = [0b001, 0b010, 0b100, 0b011, 0b101, 0b110, 0b111];

/// Names of [`EFFECTS`] for factors with these names.
pub fn names(factors: [&str; 3]) -> [String; 7] {
    EFFECTS.map(|effect| {
        let of: Vec<&str> = (0..3).filter(|bit| effect >> bit & 1 == 1).map(|bit| factors[bit]).collect();
        of.join("+")
    })
}

/// Evaluation of an experiment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Study {
    /// Mean of the results, in their unit.
    pub mean: f64,
    /// The effects A, B, C, AB, AC, BC, ABC, in that unit: a high level adds this to the mean, a
    /// low level subtracts it.
    pub effects: [f64; 7],
    /// Shares of the effects in the variation, percent; 0 if all results are equal.
    pub shares: [f64; 7],
}

/// Evaluates an experiment. In result `i` the factors whose bits are set in `i` are high, as in
/// [`EFFECTS`].
pub fn study(results: &[f64; RUNS]) -> Study {
    let effect = |factors: usize| {
        let signed = results.iter().enumerate().map(|(run, result)| {
            let low_levels = (factors & !run).count_ones();
            if low_levels % 2 == 0 {
                *result
            } else {
                -*result
            }
        });
        signed.sum::<f64>() / RUNS as f64
    };
    let effects = EFFECTS.map(effect);
    let all: f64 = effects.iter().map(|effect| effect * effect).sum();
    let shares = effects.map(|effect| if all > 0.0 { 100.0 * effect * effect / all } else { 0.0 });
    Study { mean: effect(0), effects, shares }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by hand: y = 40 + 20 a + 10 b + 5 ab, in all combinations of a, b = -1, 1; c has no
    /// effect.
    #[test]
    fn effects_by_hand() {
        let results = [15.0, 45.0, 25.0, 75.0, 15.0, 45.0, 25.0, 75.0];
        let Study { mean, effects, shares } = study(&results);
        assert_eq!((mean, effects), (40.0, [20.0, 10.0, 0.0, 5.0, 0.0, 0.0, 0.0]));
        assert_eq!(shares, [400.0, 100.0, 0.0, 25.0, 0.0, 0.0, 0.0].map(|square| square * 100.0 / 525.0));
        assert_eq!(
            names(["CF", "block", "zone"]),
            ["CF", "block", "zone", "CF+block", "CF+zone", "block+zone", "CF+block+zone",]
        );
    }

    /// Each effect alone gives the right sign, interactions included.
    #[test]
    fn signs_of_interactions() {
        let only = |effect: usize| {
            let mut results = [0.0; RUNS];
            for (run, result) in results.iter_mut().enumerate() {
                let sign = |bit: usize| if run >> bit & 1 == 1 { 1.0 } else { -1.0 };
                *result = (0..3).filter(|bit| effect >> bit & 1 == 1).map(sign).product();
            }
            study(&results).effects
        };
        for (index, effect) in EFFECTS.into_iter().enumerate() {
            let expected: [f64; 7] = std::array::from_fn(|i| f64::from(u8::from(i == index)));
            assert_eq!(only(effect), expected, "effect {effect:03b}");
        }
    }

    #[test]
    fn equal_results_have_no_variation() {
        assert_eq!(study(&[3.0; RUNS]), Study { mean: 3.0, effects: [0.0; 7], shares: [0.0; 7] });
    }

    /// Tables 7 and 8 of Tuduce and Gross 2005: the shares follow from the times of qsim, up to one
    /// in the last digit.
    #[test]
    fn table_8_follows_from_table_7() {
        // CF 4 and 14, blocks of 64 and 1024 bytes, zones of 2 and 8 MiB. For each CF the columns
        // of Table 7: 2 MiB with 64 and 1024 bytes, 8 MiB with 64 and 1024 bytes.
        let table_7 = [
            ([245.30, 258.30, 688.96, 165.64], [147.38, 253.49, 144.51, 152.63]),
            ([2229.04, 1796.98, 2803.01, 552.47], [595.96, 1980.51, 551.54, 660.04]),
            ([7351.71, 5479.42, 4395.01, 888.60], [954.99, 6354.63, 872.34, 973.74]),
            ([7721.11, 6340.01, 3688.07, 1055.76], [1116.68, 7380.94, 981.45, 1092.29]),
        ];
        let table_8 = [
            [23.61, 8.51, 3.31, 21.14, 11.2, 21.81, 10.42],
            [27.91, 3.06, 8.96, 37.69, 1.04, 20.70, 0.64],
            [18.50, 0.00, 39.03, 27.29, 1.00, 11.08, 3.10],
            [13.13, 1.08, 47.99, 20.90, 1.62, 10.62, 4.65],
        ];
        for ((low, high), printed) in table_7.into_iter().zip(table_8) {
            let results: [f64; RUNS] =
                std::array::from_fn(|run| if run & 1 == 1 { high[run / 2] } else { low[run / 2] });
            let shares = study(&results).shares;
            for (share, printed) in shares.into_iter().zip(printed) {
                assert!((share - printed).abs() < 0.015, "{share} is printed as {printed}");
            }
            assert!((shares.iter().sum::<f64>() - 100.0).abs() < 1e-9);
        }
    }
}
