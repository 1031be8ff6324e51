//! The word-mask coder with NEON: eight words at a time in two registers, the same bytes as
//! [`super::portable`].
//!
//! NEON table lookups give 0 for an index beyond their registers, which makes most masks
//! unnecessary: one byte index looks for a predictor in the two preceding groups and then in the
//! group itself, and finds it in exactly one of them.
//!
//! Memory is accessed only through slices with checked bounds; `unsafe` is needed for the
//! instruction set alone.

#![allow(unsafe_code)] // vector instructions

use super::tables::{array, array_mut, GATHER, SPREAD};
use super::{group_at, Scratch, Used, DISTANCE, GROUP, LENGTH};
use std::arch::aarch64::*;

/// Eight words.
type Group = [uint32x4_t; 2];

/// Whether this CPU can run [`encode`] and [`decode`].
pub(super) fn available() -> bool {
    // Miri supports too few of the instructions.
    !cfg!(miri) && std::arch::is_aarch64_feature_detected!("neon")
}

/// As [`super::portable::encode`].
pub(super) fn encode(src: &[u8], s: &mut Scratch, limit: usize) -> Option<Used> {
    assert!(available());
    // SAFETY: the CPU has NEON.
    unsafe { encode_neon(src, s, limit) }
}

/// As [`super::portable::decode`].
pub(super) fn decode(s: &Scratch, dst: &mut [u8]) {
    assert!(available());
    // SAFETY: the CPU has NEON.
    unsafe { decode_neon(s, dst) }
}

/// Best code of each of four lanes: the greatest whose predictor differs from `x` in no more bytes
/// than the payload holds. `before` has the preceding sixteen words, the nearest four first.
#[target_feature(enable = "neon")]
#[inline]
#[allow(unused_unsafe)] // calls of intrinsics without pointers are safe in a newer Rust than ours may be
unsafe fn classify(x: uint32x4_t, before: [uint32x4_t; 4]) -> uint32x4_t {
    // SAFETY: register operations; the caller has NEON.
    unsafe {
        let [d4, d8, d12, d16] = before;
        // Differences from the predictors at distances 0, 1, 2, 4, 8, 12, 16.
        let y0 = x;
        let y1 = veorq_u32(x, vextq_u32::<3>(d4, x));
        let y2 = veorq_u32(x, vextq_u32::<2>(d4, x));
        let (y4, y8, y12, y16) = (veorq_u32(x, d4), veorq_u32(x, d8), veorq_u32(x, d12), veorq_u32(x, d16));
        let mut best = vdupq_n_u32(0);
        macro_rules! offer {
            ($code:literal, $above:expr) => {
                best = vmaxq_u32(best, vandq_u32(vceqzq_u32($above), vdupq_n_u32($code)));
            };
        }
        offer!(1, vshrq_n_u32::<24>(y12));
        offer!(2, vshrq_n_u32::<24>(y8));
        offer!(3, vshrq_n_u32::<24>(y2));
        offer!(4, vshrq_n_u32::<16>(y2));
        offer!(5, vshrq_n_u32::<16>(y0));
        offer!(6, vshrq_n_u32::<8>(y12));
        offer!(7, vshrq_n_u32::<8>(y8));
        offer!(8, vshrq_n_u32::<8>(y2));
        offer!(9, vshrq_n_u32::<8>(y0));
        offer!(10, y16);
        offer!(11, y12);
        offer!(12, y8);
        offer!(13, y4);
        offer!(14, y2);
        offer!(15, y1);
        best
    }
}

/// The low byte of each of eight lanes.
#[target_feature(enable = "neon")]
#[inline]
#[allow(unused_unsafe)]
unsafe fn low_bytes(x: Group) -> uint8x8_t {
    // SAFETY: register operations; the caller has NEON.
    unsafe { vmovn_u16(vcombine_u16(vmovn_u32(x[0]), vmovn_u32(x[1]))) }
}

#[target_feature(enable = "neon")]
#[allow(unused_unsafe)]
unsafe fn encode_neon(src: &[u8], s: &mut Scratch, limit: usize) -> Option<Used> {
    // SAFETY: all loads and stores are of arrays borrowed from slices; the caller has NEON.
    unsafe {
        let lengths = vld1q_u8(LENGTH.as_ptr());
        let bit = vcreate_u8(0x8040_2010_0804_0201);
        let zero = vdupq_n_u32(0);
        let (mut prev, mut prev2): (Group, Group) = ([zero; 2], [zero; 2]);
        let mut used = Used { codes: 0, payload: 0 };
        for g in 0..src.len().div_ceil(GROUP) {
            let group: [u8; GROUP] = group_at(src, g);
            let x: Group =
                [vreinterpretq_u32_u8(vld1q_u8(group.as_ptr())), vreinterpretq_u32_u8(vld1q_u8(group[16..].as_ptr()))];
            let is_zero = low_bytes([vceqzq_u32(x[0]), vceqzq_u32(x[1])]);
            let mask = vaddv_u8(vbic_u8(bit, is_zero));
            s.masks[g] = mask;
            if mask != 0 {
                let codes = low_bytes([
                    classify(x[0], [prev[1], prev[0], prev2[1], prev2[0]]),
                    classify(x[1], [x[0], prev[1], prev[0], prev2[1]]),
                ]);
                let gather = vld1_u8(GATHER[usize::from(mask)].as_ptr());
                let room: &mut [u8; 8] = array_mut(&mut s.codes, used.codes);
                vst1_u8(room.as_mut_ptr(), vtbl1_u8(codes, gather));
                used.codes += mask.count_ones() as usize;

                // A product with 0x0101.. sums bytes: byte j has the length of words 0 to j, at
                // most 32.
                let lengths = vbic_u8(vqtbl1_u8(lengths, codes), is_zero);
                let ends = vget_lane_u64::<0>(vreinterpret_u64_u8(lengths)).wrapping_mul(0x0101_0101_0101_0101);
                let starts = ends << 8;
                let room: &mut [u8; 36] = array_mut(&mut s.payload, used.payload);
                for (j, word) in group.chunks_exact(4).enumerate() {
                    // A whole word each; the next one overwrites the excess. The mask is a hint for
                    // the compiler.
                    let at = (starts >> (8 * j) & 31) as usize;
                    room[at..at + 4].copy_from_slice(word);
                }
                used.payload += (ends >> 56) as usize;
                if used.payload + used.codes / 2 >= limit {
                    return None;
                }
            }
            prev2 = prev;
            prev = x;
        }
        Some(used)
    }
}

#[target_feature(enable = "neon")]
#[allow(unused_unsafe)]
unsafe fn decode_neon(s: &Scratch, dst: &mut [u8]) {
    // SAFETY: all loads and stores are of arrays borrowed from slices; the caller has NEON.
    unsafe {
        let zero = vdupq_n_u8(0);
        let (mut prev, mut prev2) = ([zero; 2], [zero; 2]);
        let (mut at_code, mut at_payload) = (0, 0);
        for (g, out) in dst.chunks_mut(GROUP).enumerate() {
            let mask = s.masks[g];
            let x = if mask == 0 {
                [zero; 2]
            } else {
                let codes: &[u8; 8] = array(&s.codes, at_code);
                at_code += mask.count_ones() as usize;
                decode_group(mask, codes, &s.payload, &mut at_payload, prev, prev2)
            };
            let mut whole = [0u8; GROUP];
            vst1q_u8(whole.as_mut_ptr(), x[0]);
            vst1q_u8(whole[16..].as_mut_ptr(), x[1]);
            out.copy_from_slice(&whole[..out.len()]);
            prev2 = prev;
            prev = x;
        }
    }
}

/// Byte `b` of lane `j` is byte 4 j + b of the two registers.
static LANE_OF_BYTE: [[u8; 16]; 2] =
    [[0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3], [4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7]];
static BYTE_OF_LANE: [u8; 16] = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3];
static BYTE: [[u8; 16]; 2] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31],
];

/// Eight words from their mask, codes and payload, without a branch on the data.
#[target_feature(enable = "neon")]
#[inline]
#[allow(unused_unsafe)]
unsafe fn decode_group(
    mask: u8,
    codes: &[u8; 8],
    payload: &[u8],
    at_payload: &mut usize,
    prev: [uint8x16_t; 2],
    prev2: [uint8x16_t; 2],
) -> [uint8x16_t; 2] {
    // SAFETY: all loads are of arrays borrowed from slices; the caller has NEON.
    unsafe {
        // Codes to their lanes; a zero lane gets the top bit, so that both lookups give it length
        // 0, distance 0.
        let spread = vld1_u8(SPREAD[usize::from(mask)].as_ptr());
        let codes = vtbl1_u8(vld1_u8(codes.as_ptr()), spread);
        let codes = vorr_u8(codes, vand_u8(spread, vdup_n_u8(0x80)));
        let lengths = vqtbl1_u8(vld1q_u8(LENGTH.as_ptr()), codes);
        let distance = vqtbl1_u8(vld1q_u8(DISTANCE.as_ptr()), codes);

        let ends = vget_lane_u64::<0>(vreinterpret_u64_u8(lengths)).wrapping_mul(0x0101_0101_0101_0101);
        let bytes: &[u8; GROUP] = array(payload, *at_payload);
        let bytes = uint8x16x2_t(vld1q_u8(bytes.as_ptr()), vld1q_u8(bytes[16..].as_ptr()));
        *at_payload += (ends >> 56) as usize;
        let per_lane = vcombine_u8(lengths, distance);
        let starts = vcombine_u8(vcreate_u8(ends << 8), vdup_n_u8(0));

        let in_lane = vld1q_u8(BYTE_OF_LANE.as_ptr());
        let before = uint8x16x4_t(prev2[0], prev2[1], prev[0], prev[1]);
        let (mut x, mut keep, mut from) = ([in_lane; 2], [in_lane; 2], [in_lane; 2]);
        for h in 0..2 {
            let lane = vld1q_u8(LANE_OF_BYTE[h].as_ptr());
            // Which bytes the payload holds, and where.
            let held = vcgtq_u8(vqtbl1q_u8(per_lane, lane), in_lane);
            let start = vqtbl1q_u8(starts, lane);
            let low = vandq_u8(vqtbl2q_u8(bytes, vaddq_u8(start, in_lane)), held);
            // Byte index of the predictor relative to this group; negative in the 64 bytes before
            // it. Distance 0 is the byte itself: no predictor.
            let distance = vqtbl1q_u8(per_lane, vaddq_u8(lane, vdupq_n_u8(8)));
            from[h] = vsubq_u8(vld1q_u8(BYTE[h].as_ptr()), vshlq_n_u8::<2>(distance));
            let predicted = vqtbl4q_u8(before, vaddq_u8(from[h], vdupq_n_u8(64)));
            x[h] = vorrq_u8(low, vbicq_u8(predicted, held));
            let inside = vandq_u8(vtstq_u8(distance, distance), vcltq_u8(from[h], vdupq_n_u8(32)));
            keep[h] = vbicq_u8(inside, held);
        }
        // Predictors within the group form chains of up to eight; pointer doubling resolves them.
        // `keep` is what a byte still lacks and takes from byte `from`.
        for _ in 0..3 {
            let (all, lacking) = (uint8x16x2_t(x[0], x[1]), uint8x16x2_t(keep[0], keep[1]));
            let origin = uint8x16x2_t(from[0], from[1]);
            for h in 0..2 {
                x[h] = vorrq_u8(x[h], vandq_u8(vqtbl2q_u8(all, from[h]), keep[h]));
                keep[h] = vandq_u8(keep[h], vqtbl2q_u8(lacking, from[h]));
                from[h] = vqtbl2q_u8(origin, from[h]);
            }
        }
        x
    }
}
