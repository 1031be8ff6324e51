//! Shared by the vector coders: tables of byte moves, and arrays borrowed from slices.
#![allow(dead_code, reason = "each processor family uses its part")]

/// `GATHER[m]` moves the bytes at the set bits of `m` to the front.
pub(super) static GATHER: [[u8; 8]; 256] = tables().0;
/// `SPREAD[m]` moves the front bytes to the set bits of `m`; elsewhere it has 0x80, which a shuffle
/// turns into 0.
pub(super) static SPREAD: [[u8; 8]; 256] = tables().1;

const fn tables() -> ([[u8; 8]; 256], [[u8; 8]; 256]) {
    let mut gather = [[0; 8]; 256];
    let mut spread = [[0x80; 8]; 256];
    let mut m = 0;
    while m < 256 {
        let (mut bit, mut n) = (0, 0);
        while bit < 8 {
            if m >> bit & 1 == 1 {
                gather[m][n] = bit as u8;
                spread[m][bit] = n as u8;
                n += 1;
            }
            bit += 1;
        }
        m += 1;
    }
    (gather, spread)
}

#[inline(always)]
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..at + N].try_into().expect("length is N")
}

#[inline(always)]
pub(super) fn array_mut<const N: usize>(bytes: &mut [u8], at: usize) -> &mut [u8; N] {
    (&mut bytes[at..at + N]).try_into().expect("length is N")
}
