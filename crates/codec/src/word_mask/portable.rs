//! The word-mask coder in plain safe Rust: the reference for the format, and the coder that Miri
//! runs.

use super::{group_at, Scratch, Used, DISTANCE, GROUP, LANES, LENGTH};

/// The two groups before the current one, then the current one.
type Window = [u32; 3 * LANES];
/// Index of the current group in a [`Window`].
const NOW: usize = 2 * LANES;

/// Mask of the bits that code `c` takes from its payload; the others come from the predictor.
fn payload_bits(code: usize) -> u32 {
    ((1u64 << (8 * u32::from(LENGTH[code]))) - 1) as u32
}

fn predictor(window: &Window, word: usize, code: usize) -> u32 {
    match usize::from(DISTANCE[code]) {
        0 => 0,
        distance => window[NOW + word - distance],
    }
}

/// Splits `src` into streams; `None` as soon as they cannot be shorter than `limit` bytes.
pub(super) fn encode(src: &[u8], s: &mut Scratch, limit: usize) -> Option<Used> {
    let mut window: Window = [0; 3 * LANES];
    let mut used = Used { codes: 0, payload: 0 };
    for g in 0..src.len().div_ceil(GROUP) {
        window.copy_within(LANES.., 0);
        for (word, bytes) in window[NOW..].iter_mut().zip(group_at::<GROUP>(src, g).chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        s.masks[g] = 0;
        for j in 0..LANES {
            let word = window[NOW + j];
            if word == 0 {
                continue;
            }
            s.masks[g] |= 1 << j;
            let fits = |&code: &usize| (word ^ predictor(&window, j, code)) & !payload_bits(code) == 0;
            let code = (0..16).rev().find(fits).unwrap_or(0);
            s.codes[used.codes] = code as u8;
            used.codes += 1;
            s.payload[used.payload..used.payload + 4].copy_from_slice(&word.to_le_bytes());
            used.payload += usize::from(LENGTH[code]);
        }
        if used.payload + used.codes / 2 >= limit {
            return None;
        }
    }
    Some(used)
}

/// Rebuilds the original from streams that `unpack` has checked.
pub(super) fn decode(s: &Scratch, dst: &mut [u8]) {
    let mut window: Window = [0; 3 * LANES];
    let (mut codes, mut payload) = (0, 0);
    for (out, &mask) in dst.chunks_mut(GROUP).zip(&s.masks) {
        window.copy_within(LANES.., 0);
        for j in 0..LANES {
            window[NOW + j] = 0;
            if mask >> j & 1 == 0 {
                continue;
            }
            let code = usize::from(s.codes[codes] & 15);
            codes += 1;
            let p = &s.payload[payload..payload + 4];
            payload += usize::from(LENGTH[code]);
            let bits = payload_bits(code);
            let low = u32::from_le_bytes([p[0], p[1], p[2], p[3]]) & bits;
            window[NOW + j] = predictor(&window, j, code) & !bits | low;
        }
        for (bytes, word) in out.chunks_exact_mut(4).zip(&window[NOW..]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }
}
