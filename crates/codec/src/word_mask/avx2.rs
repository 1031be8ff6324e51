//! The word-mask coder with AVX2: eight words at a time, the same bytes as [`super::portable`].
//!
//! Memory is accessed only through slices with checked bounds (a few predictable branches per
//! group); `unsafe` is needed for the instruction set alone.

#![allow(unsafe_code)] // vector instructions

use super::tables::{array, array_mut, GATHER, SPREAD};
use super::{group_at, Scratch, Used, DISTANCE, GROUP, LENGTH};
use std::arch::x86_64::*;

/// Whether this CPU can run [`encode`] and [`decode`].
pub(super) fn available() -> bool {
    // Miri supports too few of the instructions.
    !cfg!(miri) && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt")
}

/// As [`super::portable::encode`].
pub(super) fn encode(src: &[u8], s: &mut Scratch, limit: usize) -> Option<Used> {
    assert!(available());
    // SAFETY: the CPU has AVX2 and POPCNT.
    unsafe { encode_avx2(src, s, limit) }
}

/// As [`super::portable::decode`].
pub(super) fn decode(s: &Scratch, dst: &mut [u8]) {
    assert!(available());
    // SAFETY: the CPU has AVX2 and POPCNT.
    unsafe { decode_avx2(s, dst) }
}

/// Best code of each lane: the greatest whose predictor differs from `x` in no more bytes than the
/// payload holds.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
#[allow(unused_unsafe)] // calls of intrinsics without pointers are safe in a newer Rust than ours may be
unsafe fn classify(x: __m256i, prev: __m256i, prev2: __m256i) -> __m256i {
    // SAFETY: register operations; the caller has AVX2.
    unsafe {
        let d4 = _mm256_permute2x128_si256(prev, x, 0x21);
        let d12 = _mm256_permute2x128_si256(prev2, prev, 0x21);
        let zero = _mm256_setzero_si256();
        // Differences from the predictors at distances 0, 2, 8, 12, of which low bytes may differ.
        let y0 = x;
        let y2 = _mm256_xor_si256(x, _mm256_alignr_epi8(x, d4, 8));
        let y8 = _mm256_xor_si256(x, prev);
        let y12 = _mm256_xor_si256(x, d12);
        let mut best = zero;
        macro_rules! offer {
            ($code:literal, $equal:expr) => {
                best = _mm256_max_epu8(best, _mm256_and_si256($equal, _mm256_set1_epi32($code)))
            };
        }
        offer!(1, _mm256_cmpeq_epi32(_mm256_srli_epi32(y12, 24), zero));
        offer!(2, _mm256_cmpeq_epi32(_mm256_srli_epi32(y8, 24), zero));
        offer!(3, _mm256_cmpeq_epi32(_mm256_srli_epi32(y2, 24), zero));
        offer!(4, _mm256_cmpeq_epi32(_mm256_srli_epi32(y2, 16), zero));
        offer!(5, _mm256_cmpeq_epi32(_mm256_srli_epi32(y0, 16), zero));
        offer!(6, _mm256_cmpeq_epi32(_mm256_srli_epi32(y12, 8), zero));
        offer!(7, _mm256_cmpeq_epi32(_mm256_srli_epi32(y8, 8), zero));
        offer!(8, _mm256_cmpeq_epi32(_mm256_srli_epi32(y2, 8), zero));
        offer!(9, _mm256_cmpeq_epi32(_mm256_srli_epi32(y0, 8), zero));
        offer!(10, _mm256_cmpeq_epi32(x, prev2));
        offer!(11, _mm256_cmpeq_epi32(y12, zero));
        offer!(12, _mm256_cmpeq_epi32(y8, zero));
        offer!(13, _mm256_cmpeq_epi32(x, d4));
        offer!(14, _mm256_cmpeq_epi32(y2, zero));
        offer!(15, _mm256_cmpeq_epi32(x, _mm256_alignr_epi8(x, d4, 12)));
        best
    }
}

#[target_feature(enable = "avx2,popcnt")]
#[allow(unused_unsafe)]
unsafe fn encode_avx2(src: &[u8], s: &mut Scratch, limit: usize) -> Option<Used> {
    // SAFETY: all loads and stores are of arrays borrowed from slices; the caller has AVX2.
    unsafe {
        let lengths = _mm_loadu_si128(LENGTH.as_ptr().cast());
        let low_bytes = _mm256_setr_epi8(
            0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, //
            -1, -1, -1, -1, 0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1,
        );
        let zero = _mm256_setzero_si256();
        let (mut prev, mut prev2) = (zero, zero);
        let mut used = Used { codes: 0, payload: 0 };
        for g in 0..src.len().div_ceil(GROUP) {
            let group: [u8; GROUP] = group_at(src, g);
            let x = _mm256_loadu_si256(group.as_ptr().cast());
            let is_zero = _mm256_cmpeq_epi32(x, zero);
            let mask = !_mm256_movemask_ps(_mm256_castsi256_ps(is_zero)) as u8;
            s.masks[g] = mask;
            if mask != 0 {
                // Zero lanes get the top bit, which the length lookup turns into 0.
                let lanes =
                    _mm256_or_si256(classify(x, prev, prev2), _mm256_and_si256(is_zero, _mm256_set1_epi32(0x80)));
                let halves = _mm256_shuffle_epi8(lanes, low_bytes);
                let codes = _mm_or_si128(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
                let gather = _mm_loadl_epi64(GATHER[usize::from(mask)].as_ptr().cast());
                let room: &mut [u8; 8] = array_mut(&mut s.codes, used.codes);
                _mm_storel_epi64(room.as_mut_ptr().cast(), _mm_shuffle_epi8(codes, gather));
                used.codes += mask.count_ones() as usize;

                // A product with 0x0101.. sums bytes: byte j has the length of words 0 to j, at
                // most 32.
                let ends =
                    (_mm_cvtsi128_si64(_mm_shuffle_epi8(lengths, codes)) as u64).wrapping_mul(0x0101_0101_0101_0101);
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

#[target_feature(enable = "avx2,popcnt")]
#[allow(unused_unsafe)]
unsafe fn decode_avx2(s: &Scratch, dst: &mut [u8]) {
    // SAFETY: all loads and stores are of arrays borrowed from slices; the caller has AVX2.
    unsafe {
        let zero = _mm256_setzero_si256();
        let (mut prev, mut prev2) = (zero, zero);
        let (mut at_code, mut at_payload) = (0, 0);
        for (g, out) in dst.chunks_mut(GROUP).enumerate() {
            let mask = s.masks[g];
            let x = if mask == 0 {
                zero
            } else {
                let codes: &[u8; 8] = array(&s.codes, at_code);
                at_code += mask.count_ones() as usize;
                decode_group(mask, codes, &s.payload, &mut at_payload, prev, prev2)
            };
            if let Ok(out) = <&mut [u8; GROUP]>::try_from(&mut *out) {
                _mm256_storeu_si256(out.as_mut_ptr().cast(), x);
            } else {
                let mut whole = [0u8; GROUP];
                _mm256_storeu_si256(whole.as_mut_ptr().cast(), x);
                out.copy_from_slice(&whole[..out.len()]);
            }
            prev2 = prev;
            prev = x;
        }
    }
}

/// Eight words from their mask, codes and payload, without a branch on the data.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
#[allow(unused_unsafe)]
unsafe fn decode_group(
    mask: u8,
    codes: &[u8; 8],
    payload: &[u8],
    at_payload: &mut usize,
    prev: __m256i,
    prev2: __m256i,
) -> __m256i {
    // SAFETY: all loads are of arrays borrowed from slices; the caller has AVX2.
    unsafe {
        let zero = _mm256_setzero_si256();
        // Codes to their lanes; a zero lane gets the top bit, so that both lookups give it length
        // 0, distance 0.
        let spread = _mm_loadl_epi64(SPREAD[usize::from(mask)].as_ptr().cast());
        let codes = _mm_shuffle_epi8(_mm_loadl_epi64(codes.as_ptr().cast()), spread);
        let codes = _mm_or_si128(codes, _mm_and_si128(spread, _mm_set1_epi8(-128)));
        let lengths = _mm_shuffle_epi8(_mm_loadu_si128(LENGTH.as_ptr().cast()), codes);
        let distance = _mm256_cvtepu8_epi32(_mm_shuffle_epi8(_mm_loadu_si128(DISTANCE.as_ptr().cast()), codes));

        // Start of each word's payload, counted from that of its half (a shuffle reaches 16 bytes).
        let ends = (_mm_cvtsi128_si64(lengths) as u64).wrapping_mul(0x0101_0101_0101_0101);
        let starts = ends << 8;
        let half = starts >> 32 & 0xff;
        let starts = starts - half * 0x0101_0101_0000_0000;
        let low = _mm_loadu_si128(array::<16>(payload, *at_payload).as_ptr().cast());
        let high = _mm_loadu_si128(array::<16>(payload, *at_payload + half as usize).as_ptr().cast());
        *at_payload += (ends >> 56) as usize;

        // Bytes 0 to 3 of each lane: where they start, and which of them the payload holds.
        let to_lanes = _mm256_setr_epi8(
            0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, //
            4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7,
        );
        let byte = _mm256_set1_epi32(0x0302_0100);
        let start = _mm256_shuffle_epi8(_mm256_set1_epi64x(starts as i64), to_lanes);
        let length = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(lengths), to_lanes);
        let held = _mm256_cmpgt_epi8(length, byte);
        let bytes = _mm256_shuffle_epi8(_mm256_set_m128i(high, low), _mm256_add_epi8(start, byte));
        let bytes = _mm256_and_si256(bytes, held);

        // Index of the predictor relative to this group; negative in an earlier group. Only the low
        // three bits select a lane, as -8..-1 (prev) and -16..-9 (prev2) need.
        let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let mut from = _mm256_sub_epi32(lane, distance);
        let before = _mm256_blendv_epi8(
            _mm256_permutevar8x32_epi32(prev, from),
            _mm256_permutevar8x32_epi32(prev2, from),
            _mm256_cmpgt_epi32(_mm256_set1_epi32(-8), from),
        );
        let predicted = _mm256_andnot_si256(held, _mm256_cmpgt_epi32(distance, zero));
        let outside = _mm256_cmpgt_epi32(zero, from);
        let mut x = _mm256_or_si256(bytes, _mm256_and_si256(before, _mm256_and_si256(predicted, outside)));

        // Predictors within the group form chains of up to eight; pointer doubling resolves them.
        // `keep` is what a lane still lacks and takes from lane `from`.
        let mut keep = _mm256_andnot_si256(outside, predicted);
        for _ in 0..3 {
            x = _mm256_or_si256(x, _mm256_and_si256(_mm256_permutevar8x32_epi32(x, from), keep));
            keep = _mm256_and_si256(keep, _mm256_permutevar8x32_epi32(keep, from));
            from = _mm256_permutevar8x32_epi32(from, from);
        }
        x
    }
}
