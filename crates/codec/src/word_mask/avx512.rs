//! The word-mask coder with AVX-512: sixteen words at a time, the same bytes as
//! [`super::portable`].
//!
//! Two groups fill a register, so the sixteen preceding words are one register, too, and a shift
//! over both reaches every predictor. VBMI2 compresses and expands bytes by a mask: what takes
//! tables in [`super::avx2`] is a single instruction here. (Ice Lake, Zen 4 and later.)
//!
//! Memory is accessed only through slices with checked bounds; `unsafe` is needed for the
//! instruction set alone.

#![allow(unsafe_code)] // vector instructions
#![allow(clippy::incompatible_msrv, reason = "build.rs leaves this file out for compilers without these intrinsics")]

use super::tables::{array, array_mut};
use super::{group_at, Scratch, Used, DISTANCE, GROUP, LENGTH};

#[cfg(memfit_avx512_model)]
use super::avx512_model::*;
#[cfg(not(memfit_avx512_model))]
use std::arch::x86_64::*;

/// Bytes of two groups.
const BLOCK: usize = 2 * GROUP;

/// Whether this CPU can run [`encode`] and [`decode`].
pub(super) fn available() -> bool {
    if cfg!(memfit_avx512_model) {
        return true;
    }
    // Miri supports too few of the instructions.
    !cfg!(miri)
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vbmi2")
        && is_x86_feature_detected!("popcnt")
}

/// As [`super::portable::encode`].
pub(super) fn encode(src: &[u8], s: &mut Scratch, limit: usize) -> Option<Used> {
    assert!(available());
    // SAFETY: the CPU has all features that the function names.
    unsafe { encode_avx512(src, s, limit) }
}

/// As [`super::portable::decode`].
pub(super) fn decode(s: &Scratch, dst: &mut [u8]) {
    assert!(available());
    // SAFETY: the CPU has all features that the function names.
    unsafe { decode_avx512(s, dst) }
}

/// Best code of each lane: the greatest whose predictor differs from `x` in no more bytes than the
/// payload holds. `prev` has the sixteen preceding words.
#[cfg_attr(not(memfit_avx512_model), target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt"))]
#[inline]
#[allow(unused_unsafe)] // calls of intrinsics without pointers are safe in a newer Rust than ours may be
unsafe fn classify(x: __m512i, prev: __m512i) -> __m512i {
    // SAFETY: register operations; the caller has the features.
    unsafe {
        // Differences from the predictors at distances 0, 1, 2, 4, 8, 12, 16.
        let y0 = x;
        let y1 = _mm512_xor_si512(x, _mm512_alignr_epi32::<15>(x, prev));
        let y2 = _mm512_xor_si512(x, _mm512_alignr_epi32::<14>(x, prev));
        let y4 = _mm512_xor_si512(x, _mm512_alignr_epi32::<12>(x, prev));
        let y8 = _mm512_xor_si512(x, _mm512_alignr_epi32::<8>(x, prev));
        let y12 = _mm512_xor_si512(x, _mm512_alignr_epi32::<4>(x, prev));
        let y16 = _mm512_xor_si512(x, prev);
        let mut best = _mm512_setzero_si512();
        macro_rules! offer {
            ($code:literal, $difference:expr, $above:literal) => {
                // All bits above the payload are equal.
                let fits = _mm512_testn_epi32_mask($difference, _mm512_set1_epi32(!0 << $above));
                best = _mm512_mask_mov_epi32(best, fits, _mm512_set1_epi32($code));
            };
        }
        offer!(1, y12, 24);
        offer!(2, y8, 24);
        offer!(3, y2, 24);
        offer!(4, y2, 16);
        offer!(5, y0, 16);
        offer!(6, y12, 8);
        offer!(7, y8, 8);
        offer!(8, y2, 8);
        offer!(9, y0, 8);
        offer!(10, y16, 0);
        offer!(11, y12, 0);
        offer!(12, y8, 0);
        offer!(13, y4, 0);
        offer!(14, y2, 0);
        offer!(15, y1, 0);
        best
    }
}

/// Mask of the bytes of the sixteen words that the payload holds, from each word's length.
#[cfg_attr(not(memfit_avx512_model), target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt"))]
#[inline]
#[allow(unused_unsafe)]
unsafe fn held(lengths: __m128i) -> u64 {
    // SAFETY: register operations; the caller has the features.
    unsafe {
        let to_lanes = _mm512_set4_epi32(0x0c0c_0c0c, 0x0808_0808, 0x0404_0404, 0);
        let lengths = _mm512_shuffle_epi8(_mm512_cvtepu8_epi32(lengths), to_lanes);
        _mm512_cmpgt_epu8_mask(lengths, _mm512_set1_epi32(0x0302_0100))
    }
}

#[cfg_attr(not(memfit_avx512_model), target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt"))]
#[allow(unused_unsafe)]
unsafe fn encode_avx512(src: &[u8], s: &mut Scratch, limit: usize) -> Option<Used> {
    // SAFETY: all loads and stores are of arrays borrowed from slices; the caller has the features.
    unsafe {
        let lengths = _mm_loadu_si128(LENGTH.as_ptr().cast());
        let mut prev = _mm512_setzero_si512();
        let mut used = Used { codes: 0, payload: 0 };
        for b in 0..src.len().div_ceil(BLOCK) {
            let block: [u8; BLOCK] = group_at(src, b);
            let x = _mm512_loadu_si512(block.as_ptr().cast());
            let mask = _mm512_test_epi32_mask(x, x);
            // A second group beyond the end is zero, and its mask is never read.
            *array_mut(&mut s.masks, 2 * b) = mask.to_le_bytes();
            if mask != 0 {
                let codes = _mm512_cvtepi32_epi8(classify(x, prev));
                let room: &mut [u8; 16] = array_mut(&mut s.codes, used.codes);
                _mm_storeu_si128(room.as_mut_ptr().cast(), _mm_maskz_compress_epi8(mask, codes));
                used.codes += mask.count_ones() as usize;

                let held = held(_mm_maskz_shuffle_epi8(mask, lengths, codes));
                let room: &mut [u8; BLOCK] = array_mut(&mut s.payload, used.payload);
                _mm512_storeu_si512(room.as_mut_ptr().cast(), _mm512_maskz_compress_epi8(held, x));
                used.payload += held.count_ones() as usize;
                if used.payload + used.codes / 2 >= limit {
                    return None;
                }
            }
            prev = x;
        }
        Some(used)
    }
}

#[cfg_attr(not(memfit_avx512_model), target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt"))]
#[allow(unused_unsafe)]
unsafe fn decode_avx512(s: &Scratch, dst: &mut [u8]) {
    // SAFETY: all loads and stores are of arrays borrowed from slices; the caller has the features.
    unsafe {
        let (lengths, distances) = (_mm_loadu_si128(LENGTH.as_ptr().cast()), _mm_loadu_si128(DISTANCE.as_ptr().cast()));
        let lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let mut prev = _mm512_setzero_si512();
        let (mut at_code, mut at_payload) = (0, 0);
        for (b, out) in dst.chunks_mut(BLOCK).enumerate() {
            // The mask of a second group beyond the end may be anything.
            let second = if out.len() > GROUP { s.masks[2 * b + 1] } else { 0 };
            let mask = u16::from_le_bytes([s.masks[2 * b], second]);
            let mut x = _mm512_setzero_si512();
            if mask != 0 {
                let codes: &[u8; 16] = array(&s.codes, at_code);
                at_code += mask.count_ones() as usize;
                let codes = _mm_maskz_expand_epi8(mask, _mm_loadu_si128(codes.as_ptr().cast()));
                let held = held(_mm_maskz_shuffle_epi8(mask, lengths, codes));
                let distance = _mm512_cvtepu8_epi32(_mm_maskz_shuffle_epi8(mask, distances, codes));
                let payload: &[u8; BLOCK] = array(&s.payload, at_payload);
                at_payload += held.count_ones() as usize;
                x = _mm512_maskz_expand_epi8(held, _mm512_loadu_si512(payload.as_ptr().cast()));

                // Index of the predictor; negative in `prev`, where the low four bits select the
                // lane.
                let mut from = _mm512_sub_epi32(lane, distance);
                let predicted = _mm512_test_epi32_mask(distance, distance);
                let outside = _mm512_cmplt_epi32_mask(from, _mm512_setzero_si512()) & predicted;
                let lacking = _mm512_movm_epi8(!held);
                let before = _mm512_maskz_permutexvar_epi32(outside, from, prev);
                x = _mm512_or_si512(x, _mm512_and_si512(before, lacking));

                // Predictors within the block form chains of up to sixteen; pointer doubling
                // resolves them. `keep` is what a lane still lacks and takes from lane `from`.
                let mut keep = _mm512_maskz_mov_epi32(predicted & !outside, lacking);
                for _ in 0..4 {
                    x = _mm512_or_si512(x, _mm512_and_si512(_mm512_permutexvar_epi32(from, x), keep));
                    keep = _mm512_and_si512(keep, _mm512_permutexvar_epi32(from, keep));
                    from = _mm512_permutexvar_epi32(from, from);
                }
            }
            if let Ok(out) = <&mut [u8; BLOCK]>::try_from(&mut *out) {
                _mm512_storeu_si512(out.as_mut_ptr().cast(), x);
            } else {
                let mut whole = [0u8; BLOCK];
                _mm512_storeu_si512(whole.as_mut_ptr().cast(), x);
                out.copy_from_slice(&whole[..out.len()]);
            }
            prev = x;
        }
    }
}
