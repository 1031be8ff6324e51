//! LZRW1: R. N. Williams, "An Extremely Fast Ziv-Lempel Data Compression Algorithm", DCC 1991,
//! section 3.
//!
//! Groups of sixteen items, each group after a control word of 16 bits, least significant first: 0
//! is a literal byte, 1 a copy of 3 to 16 bytes from 1 to 4095 back. A copy is two bytes: the
//! distance's bits 8 to 11 and length - 1, then the distance's low byte. Constants of the paper:
//! 4096 places, hash of three bytes with the multiplier 40543, copies of 16 bytes at most, only
//! literals in the last 16.
//!
//! Deviations: no flag in front (a unit that does not shrink is not kept), and the table, which the
//! paper leaves as it is, is cleared first, so that the same input gives the same output.

use crate::{
    codec::{Codec, CodecEntry, CodecId, Corrupt},
    lz::{repeat, In, Out},
};

/// The line of `lzrw1` in [`crate::CODECS`].
pub(crate) const ENTRY: CodecEntry = CodecEntry {
    id: CodecId(13),
    name: "lzrw1",
    help: "an early fast one, for comparison",
    compress_ns: 12_000,
    decompress_ns: 4_100,
    family: CodecId(13),
    untrained: None,
    make: |_| Box::new(Lzrw1 { table: Box::new([0; PLACES]) }),
};

const PLACES: usize = 4096;
const COPY_MAX: usize = 16;
const COPY_MIN: usize = 3;
const DISTANCE_MAX: usize = 4095;
const ITEMS: usize = 16;

struct Lzrw1 {
    /// Place in the unit of the last three bytes with this hash; 0 also where there were none.
    table: Box<[u16; PLACES]>,
}

fn hash(b: &[u8]) -> usize {
    let mixed = ((u32::from(b[0]) << 4 ^ u32::from(b[1])) << 4) ^ u32::from(b[2]);
    (40543u32.wrapping_mul(mixed) >> 4) as usize & (PLACES - 1)
}

impl Codec for Lzrw1 {
    fn compress(&mut self, _: CodecId, src: &[u8], dst: &mut [u8], limit: usize) -> Option<usize> {
        self.table.fill(0);
        let mut out = Out::new(&mut dst[..limit - 1]);
        let mut at = 0;
        while at < src.len() {
            let control_at = out.len();
            out.extend(&[0, 0])?;
            let mut control = 0u16;
            for item in 0..ITEMS {
                let Some(next) = src.get(at..at + COPY_MAX) else {
                    let Some(&literal) = src.get(at) else { break };
                    out.push(literal)?;
                    at += 1;
                    continue;
                };
                let place = &mut self.table[hash(next)];
                let candidate = usize::from(*place);
                *place = at as u16;
                let distance = at - candidate;
                let len = if (1..=DISTANCE_MAX).contains(&distance) {
                    next.iter().zip(&src[candidate..]).take_while(|(a, b)| a == b).count()
                } else {
                    0
                };
                if len < COPY_MIN {
                    out.push(next[0])?;
                    at += 1;
                } else {
                    out.extend(&[(distance >> 4 & 0xf0 | (len - 1)) as u8, distance as u8])?;
                    control |= 1 << item;
                    at += len;
                }
            }
            out.set_u16(control_at, control);
        }
        Some(out.len())
    }

    fn decompress(&mut self, _: CodecId, src: &[u8], dst: &mut [u8]) -> Result<(), Corrupt> {
        let (mut src, mut to) = (In::new(src), 0);
        while !src.is_empty() {
            let control = src.u16()?;
            for item in 0..ITEMS {
                if src.is_empty() {
                    if item == 0 {
                        return Err(Corrupt);
                    }
                    break;
                }
                let first = src.byte()?;
                if control >> item & 1 == 0 {
                    *dst.get_mut(to).ok_or(Corrupt)? = first;
                    to += 1;
                } else {
                    let distance = usize::from(first & 0xf0) << 4 | usize::from(src.byte()?);
                    let len = usize::from(first & 15) + 1;
                    repeat(dst, to, distance, len)?;
                    to += len;
                }
            }
        }
        if to == dst.len() {
            Ok(())
        } else {
            Err(Corrupt)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand from the paper: three literals, a copy of 16 from 3 back, one of 16 from where such
    /// bytes began an item last, and literals at the end.
    #[test]
    fn follows_the_paper() {
        let src: Vec<u8> = b"abc".iter().copied().cycle().take(40).collect();
        let mut out = [0; 64];
        let mut lzrw1 = Lzrw1 { table: Box::new([0; PLACES]) };
        let len = lzrw1.compress(ENTRY.id, &src, &mut out, 64).unwrap();
        let literals = &src[35..];
        let wanted = [&[0b11000, 0][..], b"abc", &[15, 3, 15, 18], literals].concat();
        assert_eq!(out[..len], wanted);
        let mut back = [0; 40];
        assert_eq!(lzrw1.decompress(ENTRY.id, &wanted, &mut back), Ok(()));
        assert_eq!(back[..], src);
    }
}
