//! LZO1X, the format of the kernel's `lzo` and of liblzo2's LZO1X-1 and LZO1X-999, in safe Rust.
//!
//! Both directions are written from the description of the bit stream in Linux's
//! `Documentation/staging/lzo.rst` (version 0: without the run lengths of lzo-rle), not from other
//! code. The decoder reads any conforming stream. The encoder is of the kind of LZO1X-1: greedy,
//! one candidate by a hash of four bytes, longer steps where nothing repeats. Its bytes differ from
//! those of liblzo2, but hardly in number; `tests/lzo.rs` checks both directions against liblzo2.
//!
//! Why no crate: `lzo1x` and `rust-lzo` are under the GPL, `lzokay` is slow and needs a worst-case
//! buffer, `lzo` only decodes.
//!
//! # Format
//!
//! A stream of instructions. *State* is the number of literals of the previous instruction: 0 to 3,
//! or 4 for "four or more". S is the number of literals that follow a match. If the field of a
//! length is 0, the length continues in bytes: 255 for each zero byte, then the first other byte.
//!
//! | first byte | | then | means |
//! |---|---|---|---|
//! | `0000LLLL`, state 0 | | | 3 + L literals, L from 15 + 3 in bytes |
//! | `0000DDSS`, state 1 to 3 | | H | 2 bytes from H·4 + D + 1 |
//! | `0000DDSS`, state 4 | | H | 3 bytes from H·4 + D + 2049 |
//! | `0001HLLL` | L up to 9, then in bytes | 16 bits: D·4 + S | 2 + L bytes from 16384 + H·16384 + D; D = H = 0 is the end |
//! | `001LLLLL` | L up to 33, then in bytes | 16 bits: D·4 + S | 2 + L bytes from D + 1 |
//! | `01LDDDSS` | | H | 3 + L bytes from H·8 + D + 1 |
//! | `1LLDDDSS` | | H | 5 + L bytes from H·8 + D + 1 |
//!
//! Only the first byte of the stream may be above 17 and mean (byte − 17) literals.

use crate::{
    codec::{Codec, CodecEntry, CodecId, Corrupt},
    lz::{common, repeat, word32, In, Out},
    MAX_UNIT, PAGE_BYTES,
};

impl CodecId {
    /// LZO1X, without a header.
    pub const LZO: CodecId = CodecId(9);
}

/// The line of `lzo` in [`crate::CODECS`].
pub(crate) const ENTRY: CodecEntry = CodecEntry {
    id: CodecId::LZO,
    name: "lzo",
    help: "LZO1X as in the kernel: between lz4 and zstd-fast",
    compress_ns: 6_100,
    decompress_ns: 2_700,
    family: CodecId::LZO,
    untrained: None,
    make: |_| Box::new(Lzo { table: Box::new([0; 1 << TABLE_LOG]) }),
};

/// Places by hash of four bytes: 8 KiB for pages, which are cleared for each; 16 KiB for longer
/// units.
const TABLE_LOG: u32 = 13;
const TABLE_LOG_PAGE: u32 = 12;
/// Shortest match that the encoder searches.
const MATCH_MIN: usize = 4;
/// Farthest matches of the three forms that the encoder writes.
const NEAR: usize = 0x800;
const MIDDLE: usize = 0x4000;
const FAR: usize = 0xbfff;
/// After 32 bytes without a match every second position is examined, after 64 every third.
const STEP_LOG: usize = 5;

const END: [u8; 3] = [0x11, 0, 0];

struct Lzo {
    /// Place in the unit of the last four bytes with this hash. What is not there yet is 0, a place
    /// like any other: all candidates are compared.
    table: Box<[u16; 1 << TABLE_LOG]>,
}

impl Codec for Lzo {
    fn compress(&mut self, _: CodecId, src: &[u8], dst: &mut [u8], limit: usize) -> Option<usize> {
        let log = if src.len() <= PAGE_BYTES { TABLE_LOG_PAGE } else { TABLE_LOG };
        let table = &mut self.table[..1 << log];
        table.fill(0);
        let mut out = Out::new(&mut dst[..limit - 1]);
        let (mut at, mut from) = (1, 0);
        while at + MATCH_MIN <= src.len() {
            let word = word32(src, at);
            let place = &mut table[(word.wrapping_mul(0x9e37_79b1) >> (32 - log)) as usize];
            let candidate = usize::from(*place);
            *place = at as u16;
            if word32(src, candidate) != word || at - candidate > FAR {
                at += 1 + ((at - from) >> STEP_LOG);
                continue;
            }
            let len = MATCH_MIN + common(src, candidate + MATCH_MIN, at + MATCH_MIN);
            write_literals(&mut out, &src[from..at])?;
            write_match(&mut out, at - candidate, len)?;
            at += len;
            from = at;
        }
        write_literals(&mut out, &src[from..])?;
        out.extend(&END)?;
        Some(out.len())
    }

    fn decompress(&mut self, _: CodecId, src: &[u8], dst: &mut [u8]) -> Result<(), Corrupt> {
        decode(In::new(src), dst)
    }
}

fn write_literals(out: &mut Out<'_>, literals: &[u8]) -> Option<()> {
    match literals.len() {
        0 => return Some(()),
        n @ 1..=238 if out.len() == 0 => out.push(17 + n as u8)?,
        // In the last match, whose S field is still 0.
        n @ 1..=3 => *out.back(2) |= n as u8,
        n @ 4..=18 => out.push(n as u8 - 3)?,
        n => {
            out.push(0)?;
            write_rest(out, n - 18)?;
        }
    }
    out.extend(literals)
}

fn write_match(out: &mut Out<'_>, distance: usize, len: usize) -> Option<()> {
    if distance <= NEAR && len <= 8 {
        let d = distance - 1;
        return out.extend(&[((len - 1) << 5 | (d & 7) << 2) as u8, (d >> 3) as u8]);
    }
    let (form, short, d) = if distance <= MIDDLE {
        (32, 33, distance - 1)
    } else {
        let d = distance - MIDDLE;
        (16 | (d >> 14) << 3, 9, d & (MIDDLE - 1))
    };
    if len <= short {
        out.push((form | (len - 2)) as u8)?;
    } else {
        out.push(form as u8)?;
        write_rest(out, len - short)?;
    }
    out.extend(&((d << 2) as u16).to_le_bytes())
}

/// A length that is too long for its field.
fn write_rest(out: &mut Out<'_>, mut rest: usize) -> Option<()> {
    while rest > 255 {
        out.push(0)?;
        rest -= 255;
    }
    out.push(rest as u8)
}

fn read_rest(src: &mut In<'_>, mut len: usize) -> Result<usize, Corrupt> {
    loop {
        match src.byte()? {
            0 if len > MAX_UNIT => return Err(Corrupt),
            0 => len += 255,
            last => return Ok(len + usize::from(last)),
        }
    }
}

fn decode(mut src: In<'_>, dst: &mut [u8]) -> Result<(), Corrupt> {
    let (mut to, mut state) = (0, 0);
    let mut code = usize::from(src.byte()?);
    if code > 17 {
        let len = code - 17;
        src.literals(dst, to, len)?;
        (to, state) = (len, len.min(4));
        code = usize::from(src.byte()?);
    }
    loop {
        let (distance, len, literals);
        if code >= 64 {
            distance = (usize::from(src.byte()?) << 3) + (code >> 2 & 7) + 1;
            (len, literals) = ((code >> 5) + 1, code & 3);
        } else if code >= 32 {
            len = 2 + if code & 31 != 0 { code & 31 } else { read_rest(&mut src, 31)? };
            let d = usize::from(src.u16()?);
            (distance, literals) = ((d >> 2) + 1, d & 3);
        } else if code >= 16 {
            len = 2 + if code & 7 != 0 { code & 7 } else { read_rest(&mut src, 7)? };
            let d = usize::from(src.u16()?);
            (distance, literals) = (MIDDLE + ((code & 8) << 11) + (d >> 2), d & 3);
            if distance == MIDDLE {
                return if to == dst.len() && src.is_empty() { Ok(()) } else { Err(Corrupt) };
            }
        } else if state == 0 {
            let len = 3 + if code != 0 { code } else { read_rest(&mut src, 15)? };
            src.literals(dst, to, len)?;
            (to, state) = (to + len, 4);
            code = usize::from(src.byte()?);
            continue;
        } else {
            let (base, short) = if state == 4 { (2049, 3) } else { (1, 2) };
            distance = (usize::from(src.byte()?) << 2) + (code >> 2) + base;
            (len, literals) = (short, code & 3);
        }
        repeat(dst, to, distance, len)?;
        to += len;
        if literals != 0 {
            src.literals(dst, to, literals)?;
            to += literals;
        }
        state = literals;
        code = usize::from(src.byte()?);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(stream: &[u8], len: usize) -> Result<Vec<u8>, Corrupt> {
        let mut out = vec![0xaa; len];
        decode(In::new(stream), &mut out).map(|()| out)
    }

    /// Each form of the table by hand, also those that the encoder never writes.
    #[test]
    fn every_instruction() {
        let literals: Vec<u8> = (0..16).collect();
        let with = |instructions: &[u8]| [&[17 + 16], &literals[..], instructions, &END].concat();
        let after = |more: &[u8]| Ok([&literals[..], more].concat());
        assert_eq!(decoded(&with(&[]), 16), after(&[]));
        // 01LDDDSS: three bytes, distance 1 + 1·8 + 2, then one literal; and with L, from the
        // start.
        assert_eq!(decoded(&with(&[0x40 | 2 << 2 | 1, 1, 99]), 20), after(&[5, 6, 7, 99]));
        assert_eq!(decoded(&with(&[0x60 | 7 << 2, 1]), 20), after(&[0, 1, 2, 3]));
        assert_eq!(decoded(&with(&[0xe0 | 7 << 2, 1]), 24), after(&[0, 1, 2, 3, 4, 5, 6, 7]));
        // 001LLLLL: short, and 33 + 3 bytes in one more byte.
        assert_eq!(decoded(&with(&[0x20 | 4, 15 << 2 | 2, 0, 70, 71]), 24), after(&[0, 1, 2, 3, 4, 5, 70, 71]));
        assert_eq!(decoded(&with(&[0x20, 3, 0, 0]), 16 + 36), after(&[15; 36]));
        // 0000DDSS after two literals: two bytes, distance 1 + 0·4 + 3.
        let two = [0x40 | 2, 0, 50, 51, 3 << 2, 0];
        assert_eq!(decoded(&with(&two), 16 + 3 + 2 + 2), after(&[15, 15, 15, 50, 51, 15, 15]));
        // 0000LLLL after a match: four literals, and 18 + 2.
        let four = [0x40, 0, 1, 50, 51, 52, 53];
        assert_eq!(decoded(&with(&four), 16 + 7), after(&[15, 15, 15, 50, 51, 52, 53]));
        let twenty = [&[0x40, 0, 0, 2][..], &[9; 20]].concat();
        assert_eq!(decoded(&with(&twenty), 16 + 23), after(&[&[15, 15, 15][..], &[9; 20]].concat()));
        // A state of 4: three bytes from 2049 and more, here out of 2050 literals.
        let long: Vec<u8> = (0..2050).map(|i| (i % 251) as u8).collect();
        let mut stream = vec![0];
        write_rest(&mut Out::new(&mut [0; 20]), 2050 - 18).unwrap();
        stream.extend([0; 7]);
        stream.push((2050 - 18 - 7 * 255) as u8);
        stream.extend(&long);
        stream.extend([1 << 2, 0]);
        stream.extend(END);
        assert_eq!(decoded(&stream, 2053), Ok([&long[..], &[0, 1, 2]].concat()));
    }

    #[test]
    #[cfg_attr(miri, ignore = "long")]
    fn far_matches() {
        // 16 KiB, 32 KiB and 48 KiB apart; one too far, which becomes literals.
        let mut lzo = Lzo { table: Box::new([0; 1 << TABLE_LOG]) };
        let mut packed = vec![0; 2 * MAX_UNIT];
        for distance in [MIDDLE - 8, MIDDLE, MIDDLE + 8, 2 * MIDDLE, FAR - 7, FAR + 1] {
            let mut rng = crate::generate::Rng::new(distance as u64);
            let mut unit: Vec<u8> = vec![0; MAX_UNIT];
            unit[..64].iter_mut().for_each(|b| *b = rng.next() as u8);
            let (start, rest) = unit.split_at_mut(64);
            rest[distance - 64..distance].copy_from_slice(start);
            let limit = packed.len();
            let len = lzo.compress(CodecId::LZO, &unit, &mut packed, limit).expect("room");
            assert_eq!(decoded(&packed[..len], MAX_UNIT).as_deref(), Ok(&unit[..]), "{distance}");
        }
    }

    #[test]
    fn refuses_what_is_no_stream() {
        for bad in [
            &[][..],
            &[17],
            &END,
            &[16, 0, 0],
            &[18],
            &[21, 1, 2, 3],
            &[21, 1, 2, 3, 4],
            &[0; 40],
            &[0x40, 0, 0x11, 0, 0],
        ] {
            assert_eq!(decoded(bad, 8), Err(Corrupt), "{bad:?}");
        }
        let whole = [&[17 + 8, 1, 2, 3, 4, 5, 6, 7, 8][..], &END].concat();
        assert!(decoded(&whole, 8).is_ok());
        for other in [7, 9, 16] {
            assert_eq!(decoded(&whole, other), Err(Corrupt));
        }
        assert_eq!(decoded(&[&whole[..], &[0]].concat(), 8), Err(Corrupt));
    }
}
