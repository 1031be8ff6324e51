//! Which of three factors matters: a 2^3 factorial experiment, as in Jain's "The Art of Computer
//! Systems Performance Analysis" (1991), with one measurement for each combination of a low and a
//! high level.

/// The factors of each effect, as bits of the number of a run.
const EFFECTS: [usize; 7] = [0b100, 0b010, 0b001, 0b110, 0b101, 0b011, 0b111];

/// Percentage of the variation that each effect of [`EFFECTS`] explains; 0 if all results are
/// equal. In result `i` the first factor is high if bit 2 of `i` is set, the second with bit 1, the
/// third with bit 0.
///
/// An effect is the mean of all results, each with the sign `+` where the factor is high and `-`
/// where it is low; for several factors, with the product of the signs. Its share of the variation
/// is its square, relative to the sum of the squares of all seven effects.
pub(super) fn shares(results: [f64; 8]) -> [f64; 7] {
    let squares = EFFECTS.map(|factors| {
        let signed = results.iter().enumerate().map(|(run, result)| {
            let low_levels = (factors & !run).count_ones();
            if low_levels % 2 == 0 {
                *result
            } else {
                -*result
            }
        });
        (signed.sum::<f64>() / 8.0).powi(2)
    });
    let all: f64 = squares.iter().sum();
    squares.map(|square| if all > 0.0 { 100.0 * square / all } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by hand: y = 40 + 20 c + 10 b + 5 bc, in all combinations of b, c = -1, 1; a has no
    /// effect.
    #[test]
    fn effects_by_hand() {
        let results = [15.0, 45.0, 25.0, 75.0, 15.0, 45.0, 25.0, 75.0];
        let squares = [0.0, 100.0, 400.0, 0.0, 0.0, 25.0, 0.0];
        assert_eq!(shares(results), squares.map(|square| square * 100.0 / 525.0));
    }

    /// Each effect alone explains the whole variation.
    #[test]
    fn signs_of_interactions() {
        for (index, effect) in EFFECTS.into_iter().enumerate() {
            let results = std::array::from_fn(|run| {
                let sign = |bit: usize| if run >> bit & 1 == 1 { 1.0 } else { -1.0 };
                (0..3).filter(|bit| effect >> bit & 1 == 1).map(sign).product()
            });
            let expected: [f64; 7] = std::array::from_fn(|i| if i == index { 100.0 } else { 0.0 });
            assert_eq!(shares(results), expected, "effect {effect:03b}");
        }
    }

    #[test]
    fn equal_results_have_no_variation() {
        assert_eq!(shares([3.0; 8]), [0.0; 7]);
    }

    /// Tables 7 and 8 of the paper: the shares follow from the times of qsim, up to one in the last
    /// digit.
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
            let shares = shares(std::array::from_fn(|run| {
                let column = (run & 1) << 1 | run >> 1 & 1;
                if run >> 2 == 1 {
                    high[column]
                } else {
                    low[column]
                }
            }));
            for (share, printed) in shares.into_iter().zip(printed) {
                assert!((share - printed).abs() < 0.015, "{share} is printed as {printed}");
            }
            assert!((shares.iter().sum::<f64>() - 100.0).abs() < 1e-9);
        }
    }
}
