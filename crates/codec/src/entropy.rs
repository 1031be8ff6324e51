//! Estimates the compressed length of a page from its first bytes, for admission by entropy.
//!
//! Kim, Kim and Seo, "ezswap: Enhanced Compressed Swap Scheme for Mobile Devices", IEEE Access
//! 2019, equation 3: the entropy of the first 512 bytes of a page, `H = - sum P(b) log2 P(b)`, 0 to
//! 8 bits, divided by 8, stands for compressed / original length. It depends on how often each byte
//! occurs, not on the order: a page that repeats the bytes 0 to 255 is taken for incompressible,
//! and so is a page whose first half is random.
//!
//! With the number `n` of occurrences of each byte it is `9 - sum n log2 n / 512`: one addition for
//! each of 256 values, from a table of `n log2 n` in fixed point. The result is within a few
//! hundredths of the formula rounded to a unit, and the same on every machine.

/// Bytes at the start of a page that count. The paper's correlation of their entropy with that of
/// whole pages is 0.955; for 256 bytes, 0.938.
pub const ENTROPY_BYTES: usize = 512;

/// The entropy of equally frequent bytes, 8 bits; stands for the ratio 1.
pub const ENTROPY_MAX: u32 = 1 << 16;

/// Fraction bits of [`N_LOG_N`] in addition to those of the result: then the rounding of all 256
/// values is a thirtieth of the result's unit.
const SPARE_BITS: u32 = 12;

/// `n log2 n` in the result's unit: 1 is a 512th of an eighth of 65536, which is 16 units.
static N_LOG_N: [u32; ENTROPY_BYTES + 1] = n_log_n();

/// `512 log2 512`: the sum for a page of one byte.
const ALL_ALIKE: u32 = (9 * 512 * 16) << SPARE_BITS;

/// Number of count tables; each counts every fourth byte. So increments for equal neighbours do not
/// wait for each other, and a count fits into a byte.
const TABLES: usize = 4;
const _: () = assert!(ENTROPY_BYTES / TABLES <= u8::MAX as usize);

/// The ratio estimated from the entropy of the first [`ENTROPY_BYTES`] of a page, in 1/65536: 0
/// (one repeated byte) to [`ENTROPY_MAX`].
///
/// # Panics
/// If `page` is shorter.
pub fn entropy(page: &[u8]) -> u32 {
    let mut counts = [[0u8; 256]; TABLES];
    for word in page[..ENTROPY_BYTES].chunks_exact(8) {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        for (i, byte) in bytes.into_iter().enumerate() {
            counts[i % TABLES][usize::from(byte)] += 1;
        }
    }
    // A separate pass: it needs no table, so the compiler vectorises it.
    let totals: [u16; 256] = std::array::from_fn(|kind| counts.iter().map(|table| u16::from(table[kind])).sum());
    let sum: u32 = totals.iter().map(|total| N_LOG_N[usize::from(*total)]).sum();
    (ALL_ALIKE - sum + (1 << (SPARE_BITS - 1))) >> SPARE_BITS
}

const fn n_log_n() -> [u32; ENTROPY_BYTES + 1] {
    const LOG_BITS: u32 = 40;
    let drop = LOG_BITS - SPARE_BITS - 4;
    let mut table = [0; ENTROPY_BYTES + 1];
    let mut n = 2;
    while n < table.len() {
        table[n] = ((n as u64 * log2(n as u64, LOG_BITS) + (1 << (drop - 1))) >> drop) as u32;
        n += 1;
    }
    table
}

/// The logarithm of `n`, with `bits` bits of fraction. Each squaring of a number from 1 to 2 gives
/// the next bit.
const fn log2(n: u64, bits: u32) -> u64 {
    let mut log = n.ilog2() as u64;
    let mut x = (n as u128) << (63 - n.ilog2());
    let mut bit = 0;
    while bit < bits {
        x = (x * x) >> 63;
        let carry = (x >> 64) as u64;
        x >>= carry;
        log = log << 1 | carry;
        bit += 1;
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Rng, GENERATORS};
    use crate::PAGE_BYTES;

    /// The formula, in bits.
    fn formula(bytes: &[u8]) -> f64 {
        let mut counts = [0u32; 256];
        bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        let part = |count: u32| f64::from(count) / bytes.len() as f64;
        -counts.into_iter().filter(|count| *count > 0).map(|count| part(count) * part(count).log2()).sum::<f64>()
    }

    fn page(byte: impl Fn(usize) -> u8) -> Vec<u8> {
        (0..PAGE_BYTES).map(byte).collect()
    }

    #[test]
    fn the_table_is_n_log_n() {
        assert_eq!((N_LOG_N[0], N_LOG_N[1], N_LOG_N[ENTROPY_BYTES]), (0, 0, ALL_ALIKE));
        for (n, entry) in N_LOG_N.iter().enumerate().skip(1) {
            let exact = n as f64 * (n as f64).log2() * f64::from(16 << SPARE_BITS);
            assert!((f64::from(*entry) - exact).abs() < 0.501, "{n}: {entry} and {exact}");
        }
    }

    #[test]
    fn s6_vectors() {
        for byte in [0, 1, 255] {
            assert_eq!(entropy(&page(|_| byte)), 0, "all alike");
        }
        assert_eq!(entropy(&page(|i| (i % 2) as u8 * 200)), ENTROPY_MAX / 8, "two kinds: 1 bit");
        assert_eq!(entropy(&page(|i| (i < 256) as u8)), ENTROPY_MAX / 8, "in whatever order");
        assert_eq!(entropy(&page(|i| i as u8)), ENTROPY_MAX, "each byte twice: 8 bits");
        assert_eq!(entropy(&page(|i| (i / 2) as u8)), ENTROPY_MAX, "in whatever order");
        // 1/2, 1/4, 1/8 and 1/8: 1.75 bits.
        assert_eq!(entropy(&page(|i| [0, 1, 0, 2, 0, 1, 0, 3][i % 8])), ENTROPY_MAX * 7 / 32);
    }

    #[test]
    fn s6_only_the_first_512_bytes_count() {
        let mut bytes = page(|i| if i < ENTROPY_BYTES { 7 } else { i as u8 });
        assert_eq!(entropy(&bytes), 0);
        assert_eq!(entropy(&bytes[..ENTROPY_BYTES]), 0);
        bytes[ENTROPY_BYTES - 1] = 8;
        // 511 and 1: 0.0204 bits.
        assert_eq!(entropy(&bytes), 167);
        bytes[0] = 9;
        assert!(entropy(&bytes) > 167);
    }

    #[test]
    #[should_panic(expected = "range end index 512 out of range")]
    fn s6_a_shorter_page_is_a_bug() {
        entropy(&[0; ENTROPY_BYTES - 1]);
    }

    #[test]
    fn s6_is_the_formula_on_every_kind_of_page() {
        let mut rng = Rng::new(3);
        let mut bytes = vec![0; PAGE_BYTES];
        let mut different = std::collections::BTreeSet::new();
        for round in 0..40 {
            for generator in GENERATORS {
                (generator.fill)(&mut rng, &mut bytes);
                // A random number of bytes of the sample are equal, so every count occurs.
                let alike = rng.below(ENTROPY_BYTES as u64 + 1) as usize * (round % 2);
                bytes[..alike].fill(1);
                let (ours, exact) = (entropy(&bytes), formula(&bytes[..ENTROPY_BYTES]) / 8.0 * 65536.0);
                // Half a unit is the resolution; from 0.0084 on that is less than a thousandth.
                assert!((f64::from(ours) - exact).abs() < 0.54, "{}: {ours} and {exact}", generator.name);
                assert!(ours <= ENTROPY_MAX);
                different.insert(ours);
            }
        }
        assert!(different.len() > 400, "only {} values", different.len());
    }

    /// The sample is small: random bytes never look completely random.
    #[test]
    fn s6_random_bytes() {
        let (mut rng, mut bytes) = (Rng::new(4), vec![0; PAGE_BYTES]);
        let rounds = 400;
        let (mut ours, mut quarter, mut half, mut whole) = (0, 0.0, 0.0, 0.0);
        for _ in 0..rounds {
            bytes.iter_mut().for_each(|byte| *byte = rng.next() as u8);
            assert!((60_000..ENTROPY_MAX).contains(&entropy(&bytes)));
            ours += entropy(&bytes);
            quarter += formula(&bytes[..256]);
            half += formula(&bytes[..512]);
            whole += formula(&bytes);
        }
        let mean = |sum: f64| sum / f64::from(rounds);
        assert!((mean(f64::from(ours)) / 65536.0 - 0.949).abs() < 0.002);
        for (bits, expected) in [(quarter, 7.17), (half, 7.59), (whole, 7.95)] {
            assert!((mean(bits) - expected).abs() < 0.01, "{} bits, not {expected}", mean(bits));
        }
    }
}
