//! word-mask: memfit's word-pattern coder for pages of integers, pointers and small objects.
//!
//! A relative of WKdm and BDI, made for vector registers. WKdm looks words up in a hashed
//! dictionary, one word after the other. Here a word is compared with its predecessors at a few
//! *fixed distances*: eight lanes can do that at once, and the distances fit what memory holds:
//! arrays (distance 1 or 2), records of 16, 32, 48 and 64 bytes (4, 8, 12, 16), pointer halves (2).
//! On heap pages of CPython and node this also packs tighter than WKdm's dictionary.
//!
//! # Format
//!
//! The input is a sequence of little-endian 32-bit *words* in *groups* of eight; the last group is
//! padded with zero words, and sixteen zero words are assumed before the first. Four streams follow
//! each other without a header; all lengths follow from the original length and the earlier
//! streams:
//!
//! | stream | content |
//! |---|---|
//! | group map | one bit per group: it has a word that is not zero; unused bits are 0 |
//! | masks | one byte per mapped group: bit *j* = word *j* is not zero |
//! | codes | one nibble per such word, low nibble first; an unused last nibble is 0 |
//! | payload | the low 0 to 4 bytes of each such word, as its code says |
//!
//! A code names a predictor, the word `distance` words earlier (distance 0: the value 0), and the
//! number of low bytes in the payload; the bytes above are the predictor's. Codes are ordered by
//! gain, and the encoder takes the greatest that fits. So the encoding of an input is unique, and
//! all [`Coder`]s must agree byte for byte.
//!
//! Cost for 4 KiB: 16 bytes of map, up to 128 of masks, half a byte and the payload per non-zero
//! word.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(all(target_arch = "x86_64", memfit_avx512))]
mod avx512;
#[cfg(all(target_arch = "x86_64", memfit_avx512_model))]
mod avx512_model;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
mod portable;
mod tables;
#[cfg(test)]
mod tests;

use crate::{
    codec::{Codec, CodecEntry, CodecId, Corrupt},
    MAX_UNIT,
};
use std::sync::OnceLock;

impl CodecId {
    /// memfit's word-pattern coder.
    pub const WORD_MASK: CodecId = CodecId(3);
}

/// The line of `word-mask` in [`crate::CODECS`].
pub(crate) const ENTRY: CodecEntry = CodecEntry {
    id: CodecId::WORD_MASK,
    name: "word-mask",
    help: "fast; good on integers and pointers, poor on text",
    compress_ns: 2_300,
    decompress_ns: 2_200,
    family: CodecId::WORD_MASK,
    untrained: None,
    make: |_| Box::new(WordMask::new(Coder::best())),
};

/// Words per group.
const LANES: usize = 8;
/// Bytes per group.
const GROUP: usize = LANES * 4;
const MAX_GROUPS: usize = MAX_UNIT / GROUP;
const MAX_WORDS: usize = MAX_UNIT / 4;
/// Room after each scratch stream: the coders move whole registers and then advance by less.
const SLACK: usize = 64;

/// Distance in words from which each code predicts; 0 predicts zero. At most 16.
///
/// Chosen greedily on heap pages of CPython and node and on arrays of integers, floats and
/// pointers.
const DISTANCE: [u8; 16] = [0, 12, 8, 2, 2, 0, 12, 8, 2, 0, 16, 12, 8, 4, 2, 1];

/// Payload bytes of each code.
const LENGTH: [u8; 16] = [4, 3, 3, 3, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0];

/// Streams of one unit, unpacked: one mask per group, one code per byte.
struct Scratch {
    masks: [u8; MAX_GROUPS],
    codes: [u8; MAX_WORDS + SLACK],
    payload: [u8; MAX_UNIT + SLACK],
}

/// How much of the streams in [`Scratch`] is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Used {
    codes: usize,
    payload: usize,
}

/// Implementations of the coder with different instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coder {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(all(target_arch = "x86_64", memfit_avx512))]
    Avx512,
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Neon,
}

impl Coder {
    /// All coders for this processor family, slowest first.
    const ALL: &'static [Coder] = &[
        Coder::Portable,
        #[cfg(target_arch = "x86_64")]
        Coder::Avx2,
        #[cfg(all(target_arch = "x86_64", memfit_avx512))]
        Coder::Avx512,
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        Coder::Neon,
    ];

    /// Whether this CPU has the coder's instructions.
    fn available(self) -> bool {
        match self {
            Coder::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Coder::Avx2 => avx2::available(),
            #[cfg(all(target_arch = "x86_64", memfit_avx512))]
            Coder::Avx512 => avx512::available(),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Coder::Neon => neon::available(),
        }
    }

    /// The fastest coder that this CPU has.
    fn best() -> Coder {
        static BEST: OnceLock<Coder> = OnceLock::new();
        *BEST.get_or_init(|| Coder::ALL.iter().copied().rfind(|coder| coder.available()).unwrap_or(Coder::Portable))
    }
}

struct WordMask {
    scratch: Box<Scratch>,
    coder: Coder,
}

impl WordMask {
    fn new(coder: Coder) -> WordMask {
        let scratch = Scratch { masks: [0; MAX_GROUPS], codes: [0; MAX_WORDS + SLACK], payload: [0; MAX_UNIT + SLACK] };
        WordMask { scratch: Box::new(scratch), coder }
    }

    fn encode(&mut self, src: &[u8], limit: usize) -> Option<Used> {
        match self.coder {
            Coder::Portable => portable::encode(src, &mut self.scratch, limit),
            #[cfg(target_arch = "x86_64")]
            Coder::Avx2 => avx2::encode(src, &mut self.scratch, limit),
            #[cfg(all(target_arch = "x86_64", memfit_avx512))]
            Coder::Avx512 => avx512::encode(src, &mut self.scratch, limit),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Coder::Neon => neon::encode(src, &mut self.scratch, limit),
        }
    }

    fn decode(&mut self, dst: &mut [u8]) {
        match self.coder {
            Coder::Portable => portable::decode(&self.scratch, dst),
            #[cfg(target_arch = "x86_64")]
            Coder::Avx2 => avx2::decode(&self.scratch, dst),
            #[cfg(all(target_arch = "x86_64", memfit_avx512))]
            Coder::Avx512 => avx512::decode(&self.scratch, dst),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Coder::Neon => neon::decode(&self.scratch, dst),
        }
    }
}

impl Codec for WordMask {
    fn compress(&mut self, _: CodecId, src: &[u8], dst: &mut [u8], limit: usize) -> Option<usize> {
        let used = self.encode(src, limit)?;
        pack(&self.scratch, src.len().div_ceil(GROUP), used, &mut dst[..limit - 1])
    }

    fn decompress(&mut self, _: CodecId, src: &[u8], dst: &mut [u8]) -> Result<(), Corrupt> {
        unpack(src, dst.len(), &mut self.scratch)?;
        self.decode(dst);
        Ok(())
    }
}

/// Writes the four streams to `out`; `None` if they do not fit.
fn pack(s: &Scratch, groups: usize, used: Used, out: &mut [u8]) -> Option<usize> {
    let masks = &s.masks[..groups];
    let (map, out_rest) = out.split_at_mut_checked(groups.div_ceil(8))?;
    let mut mapped = 0;
    for (bits, eight) in map.iter_mut().zip(masks.chunks(8)) {
        *bits = eight.iter().enumerate().fold(0, |bits, (i, &m)| bits | u8::from(m != 0) << i);
        mapped += bits.count_ones() as usize;
    }
    let (packed_masks, rest) = out_rest.split_at_mut_checked(mapped)?;
    let (nibbles, rest) = rest.split_at_mut_checked(used.codes.div_ceil(2))?;
    let payload = rest.get_mut(..used.payload)?;

    let mut at = 0;
    for &mask in masks {
        // Without a branch on the data: the next mask overwrites one that is 0.
        if let Some(slot) = packed_masks.get_mut(at) {
            *slot = mask;
        }
        at += usize::from(mask != 0);
    }
    let codes = &s.codes[..used.codes];
    for (nibble, pair) in nibbles.iter_mut().zip(codes.chunks_exact(2)) {
        *nibble = pair[0] | pair[1] << 4;
    }
    if let (Some(last), [code]) = (nibbles.last_mut(), codes.chunks_exact(2).remainder()) {
        *last = *code;
    }
    payload.copy_from_slice(&s.payload[..used.payload]);
    Some(groups.div_ceil(8) + mapped + used.codes.div_ceil(2) + used.payload)
}

/// Splits `src` into the streams of [`Scratch`] and checks every length and all unused bits.
///
/// After `Ok`, and only then, the coders may rely on this: masks of all groups are set, words
/// beyond `len` are zero, there is one code per mask bit, and the payload is as long as the codes
/// ask for (so at most [`MAX_UNIT`]).
fn unpack(src: &[u8], len: usize, s: &mut Scratch) -> Result<Used, Corrupt> {
    let groups = len.div_ceil(GROUP);
    let (map, rest) = src.split_at_checked(groups.div_ceil(8)).ok_or(Corrupt)?;
    let mapped: usize = map.iter().map(|b| b.count_ones() as usize).sum();
    let (packed_masks, rest) = rest.split_at_checked(mapped).ok_or(Corrupt)?;
    if groups % 8 != 0 && map[map.len() - 1] >> (groups % 8) != 0 {
        return Err(Corrupt);
    }

    let mut at = 0;
    for (g, mask) in s.masks[..groups].iter_mut().enumerate() {
        let bit = map[g / 8] >> (g % 8) & 1;
        *mask = packed_masks.get(at).map_or(0, |m| m & bit.wrapping_neg());
        at += usize::from(bit);
    }
    let last_words = len % GROUP / 4;
    if last_words != 0 && s.masks[groups - 1] >> last_words != 0 {
        return Err(Corrupt);
    }

    let codes = packed_masks.iter().map(|m| m.count_ones() as usize).sum::<usize>();
    let (nibbles, payload) = rest.split_at_checked(codes.div_ceil(2)).ok_or(Corrupt)?;
    if codes % 2 != 0 && nibbles[nibbles.len() - 1] >> 4 != 0 {
        return Err(Corrupt);
    }
    for (pair, &nibble) in s.codes.chunks_exact_mut(2).zip(nibbles) {
        pair[0] = nibble & 15;
        pair[1] = nibble >> 4;
    }
    let wanted: usize = s.codes[..codes].chunks(LENGTH_BLOCK).map(payload_length).sum();
    if wanted != payload.len() {
        return Err(Corrupt);
    }
    s.payload[..wanted].copy_from_slice(payload);
    Ok(Used { codes, payload: wanted })
}

/// Number of codes whose lengths add up to at most a byte's maximum.
const LENGTH_BLOCK: usize = 32;

/// Sum of [`LENGTH`] over at most [`LENGTH_BLOCK`] codes, by comparisons, which the compiler can
/// vectorise.
fn payload_length(codes: &[u8]) -> usize {
    let length = |c: u8| u8::from(c < 1) + u8::from(c < 4) + u8::from(c < 6) + u8::from(c < 10);
    usize::from(codes.iter().fold(0u8, |sum, &c| sum + length(c)))
}

/// Block `i` of `src`, one or two groups; the last one may be short and is padded with zeros.
fn group_at<const N: usize>(src: &[u8], i: usize) -> [u8; N] {
    let mut group = [0; N];
    let rest = &src[i * N..];
    let n = rest.len().min(N);
    group[..n].copy_from_slice(&rest[..n]);
    group
}
