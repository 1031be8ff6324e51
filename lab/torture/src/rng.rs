//! Small deterministic random numbers: splitmix64, because every operation starts its own stream.

/// The splitmix64 finaliser: a bijection that spreads every input bit over the whole word.
#[inline]
pub fn mix(x: u64) -> u64 {
    let z = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Combines two numbers into a seed; order matters.
#[inline]
pub fn mix2(a: u64, b: u64) -> u64 {
    mix(mix(a.wrapping_add(0x9E37_79B9_7F4A_7C15)).wrapping_add(b))
}

/// A stream of random numbers.
#[derive(Clone, Copy, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A stream that depends only on the seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Uniform in `0..n`; 0 when `n` is 0. The tiny bias of the multiplication does not matter
    /// here.
    #[inline]
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// Uniform in `lo..=hi`.
    pub fn range(&mut self, lo: usize, hi: usize) -> usize {
        debug_assert!(lo <= hi);
        lo + self.below(hi - lo + 1)
    }

    /// True once in `n` on average.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// In `0..n`; small values are far more likely (cube of a uniform number), which gives hot and
    /// cold places.
    pub fn skewed(&mut self, n: usize) -> usize {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        ((n as f64 * unit * unit * unit) as usize).min(n.saturating_sub(1))
    }

    /// In `1..=max`; each power of two is about equally likely.
    pub fn log_size(&mut self, max: usize) -> usize {
        let bits = usize::BITS - max.max(1).leading_zeros();
        let top = 1usize << self.below(bits as usize);
        (top + self.below(top)).min(max.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_stream() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        assert!((0..1000).all(|_| a.next() == b.next()));
        assert_ne!(Rng::new(7).next(), Rng::new(8).next());
        assert_ne!(mix2(1, 2), mix2(2, 1));
    }

    #[test]
    fn bounds_hold() {
        let mut rng = Rng::new(1);
        for n in 1..200 {
            assert!(rng.below(n) < n);
            assert!(rng.skewed(n) < n);
            assert!((1..=n).contains(&rng.log_size(n)));
            assert!((3..=n + 3).contains(&rng.range(3, n + 3)));
        }
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn skew_prefers_small() {
        let mut rng = Rng::new(2);
        let low = (0..10_000).filter(|_| rng.skewed(1000) < 125).count();
        assert!((4500..5500).contains(&low), "{low}");
    }

    #[test]
    fn log_size_reaches_all_scales() {
        let mut rng = Rng::new(3);
        let (mut small, mut large) = (0, 0);
        for _ in 0..1000 {
            let n = rng.log_size(2048);
            small += usize::from(n < 8);
            large += usize::from(n > 512);
        }
        assert!(small > 100 && large > 50, "{small} {large}");
    }
}
