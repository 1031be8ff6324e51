//! Shared by memfit's own Lempel-Ziv coders: bounded output, copies, comparisons. All in safe Rust.

use crate::codec::Corrupt;

/// Compressed bytes so far, with a bound: `None` from any call means that the unit does not fit.
pub(crate) struct Out<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl<'a> Out<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Out<'a> {
        Out { bytes, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn push(&mut self, byte: u8) -> Option<()> {
        *self.bytes.get_mut(self.len)? = byte;
        self.len += 1;
        Some(())
    }

    #[inline]
    pub(crate) fn extend(&mut self, bytes: &[u8]) -> Option<()> {
        self.bytes.get_mut(self.len..self.len + bytes.len())?.copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }

    /// A byte of the output so far, counted from the end: 1 is the last one.
    #[inline]
    pub(crate) fn back(&mut self, distance: usize) -> &mut u8 {
        &mut self.bytes[self.len - distance]
    }

    /// Overwrites two bytes of the output so far.
    #[inline]
    pub(crate) fn set_u16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
}

/// Compressed bytes that are not read yet.
pub(crate) struct In<'a> {
    bytes: &'a [u8],
}

impl<'a> In<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> In<'a> {
        In { bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Corrupt> {
        let (&first, rest) = self.bytes.split_first().ok_or(Corrupt)?;
        self.bytes = rest;
        Ok(first)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, Corrupt> {
        let (first, rest) = self.bytes.split_first_chunk::<2>().ok_or(Corrupt)?;
        self.bytes = rest;
        Ok(u16::from_le_bytes(*first))
    }

    /// Copies `len` bytes to `dst[to..]`. May write up to [`STEP`] bytes there, which a later copy
    /// overwrites.
    #[inline]
    pub(crate) fn literals(&mut self, dst: &mut [u8], to: usize, len: usize) -> Result<(), Corrupt> {
        let (first, rest) = self.bytes.split_at_checked(len).ok_or(Corrupt)?;
        match (self.bytes.first_chunk::<STEP>(), dst.get_mut(to..to + STEP)) {
            (Some(step), Some(room)) if len <= STEP => room.copy_from_slice(step),
            _ => dst.get_mut(to..to + len).ok_or(Corrupt)?.copy_from_slice(first),
        }
        self.bytes = rest;
        Ok(())
    }
}

/// Bytes copied at once where there is room: one register.
const STEP: usize = 16;

/// Fills `dst[to..to + len]` with what is `distance` bytes before it; they may overlap. May write
/// up to [`STEP`] bytes there, which a later copy overwrites.
#[inline]
pub(crate) fn repeat(dst: &mut [u8], to: usize, distance: usize, len: usize) -> Result<(), Corrupt> {
    if distance == 0 || distance > to || len > dst.len() - to {
        return Err(Corrupt);
    }
    let from = to - distance;
    if len <= STEP && distance >= STEP && dst.len() - to >= STEP {
        let mut step = [0; STEP];
        step.copy_from_slice(&dst[from..from + STEP]);
        dst[to..to + STEP].copy_from_slice(&step);
    } else if distance == 1 {
        let byte = dst[from];
        dst[to..to + len].fill(byte);
    } else {
        // Each copy doubles the available source.
        let mut done = 0;
        while done < len {
            let n = (distance + done).min(len - done);
            dst.copy_within(from..from + n, to + done);
            done += n;
        }
    }
    Ok(())
}

/// Number of equal bytes from `a` and from `b` on; `a < b`.
#[inline]
pub(crate) fn common(src: &[u8], a: usize, b: usize) -> usize {
    let (first, second) = (&src[a..], &src[b..]);
    let mut len = 0;
    for (x, y) in first.chunks_exact(8).zip(second.chunks_exact(8)) {
        let difference = word64(x) ^ word64(y);
        if difference != 0 {
            return len + (difference.trailing_zeros() / 8) as usize;
        }
        len += 8;
    }
    len + first[len..].iter().zip(&second[len..]).take_while(|(x, y)| x == y).count()
}

fn word64(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(word)
}

/// The little-endian word at `at`.
#[inline]
pub(crate) fn word32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_of_every_distance_and_length() {
        for distance in 1..40 {
            for len in 0..80 {
                let mut dst: Vec<u8> = (0..120).collect();
                let mut wanted = dst.clone();
                (40..40 + len).for_each(|i| wanted[i] = wanted[i - distance]);
                assert_eq!(repeat(&mut dst, 40, distance, len), Ok(()));
                assert_eq!(dst[..40 + len], wanted[..40 + len], "{distance} {len}");
                assert_eq!(dst[40 + len.max(STEP)..], wanted[40 + len.max(STEP)..], "{distance} {len}");
            }
        }
        let mut dst = [0; 20];
        for (to, distance, len) in [(0, 1, 1), (5, 6, 1), (5, 0, 1), (5, 2, 16), (20, 3, 1)] {
            assert_eq!(repeat(&mut dst, to, distance, len), Err(Corrupt));
        }
        assert_eq!(repeat(&mut dst, 20, 3, 0), Ok(()));
    }

    #[test]
    fn counts_equal_bytes() {
        let mut src = [7u8; 64];
        assert_eq!(common(&src, 0, 1), 63);
        for at in [1, 7, 8, 15, 16, 40] {
            src.fill(7);
            src[10 + at] = 8;
            assert_eq!(common(&src, 9 - 9 * usize::from(at < 8), 10), at, "{at}");
        }
        assert_eq!(common(&[1, 2, 3, 1, 2, 3], 0, 3), 3);
    }
}
