//! A model of the instructions that [`super::avx512`] uses, in plain Rust after Intel's description
//! of each. It tests the coder on a CPU without them: `RUSTFLAGS="--cfg memfit_avx512_model" cargo
//! test -p memfit-codec --lib word_mask`.
#![allow(unsafe_code, missing_docs, non_camel_case_types, clippy::too_many_arguments)] // loads and stores, and their names
#![allow(clippy::missing_safety_doc, reason = "as the real ones")]

#[derive(Clone, Copy)]
pub struct __m512i([u8; 64]);
#[derive(Clone, Copy)]
pub struct __m128i([u8; 16]);
type __mmask16 = u16;

fn words(x: __m512i) -> [u32; 16] {
    std::array::from_fn(|i| u32::from_le_bytes(std::array::from_fn(|b| x.0[4 * i + b])))
}

fn from_words(words: [u32; 16]) -> __m512i {
    __m512i(std::array::from_fn(|b| words[b / 4].to_le_bytes()[b % 4]))
}

fn mask_of(holds: impl Fn(usize) -> bool, lanes: usize) -> u64 {
    (0..lanes).fold(0, |mask, i| mask | u64::from(holds(i)) << i)
}

fn compress<const N: usize>(mask: u64, a: [u8; N]) -> [u8; N] {
    let (mut out, mut n) = ([0; N], 0);
    for i in (0..N).filter(|i| mask >> i & 1 == 1) {
        out[n] = a[i];
        n += 1;
    }
    out
}

fn expand<const N: usize>(mask: u64, a: [u8; N]) -> [u8; N] {
    let (mut out, mut n) = ([0; N], 0);
    for i in (0..N).filter(|i| mask >> i & 1 == 1) {
        out[i] = a[n];
        n += 1;
    }
    out
}

macro_rules! bitwise {
    ($($name:ident $op:tt)+) => {
        $(pub fn $name(a: __m512i, b: __m512i) -> __m512i {
            __m512i(std::array::from_fn(|i| a.0[i] $op b.0[i]))
        })+
    };
}
bitwise!(_mm512_xor_si512 ^ _mm512_or_si512 | _mm512_and_si512 &);

pub fn _mm512_setzero_si512() -> __m512i {
    __m512i([0; 64])
}
pub fn _mm512_set1_epi32(a: i32) -> __m512i {
    from_words([a as u32; 16])
}
pub fn _mm512_set4_epi32(d: i32, c: i32, b: i32, a: i32) -> __m512i {
    from_words(std::array::from_fn(|i| [a, b, c, d][i % 4] as u32))
}
#[rustfmt::skip]
pub fn _mm512_setr_epi32(e15: i32, e14: i32, e13: i32, e12: i32, e11: i32, e10: i32, e9: i32, e8: i32,
    e7: i32, e6: i32, e5: i32, e4: i32, e3: i32, e2: i32, e1: i32, e0: i32) -> __m512i {
    from_words([e15, e14, e13, e12, e11, e10, e9, e8, e7, e6, e5, e4, e3, e2, e1, e0].map(|e| e as u32))
}
/// Concatenates `a` above `b` and shifts right by IMM words.
pub fn _mm512_alignr_epi32<const IMM: usize>(a: __m512i, b: __m512i) -> __m512i {
    from_words(std::array::from_fn(|i| if i + IMM < 16 { words(b)[i + IMM] } else { words(a)[i + IMM - 16] }))
}
pub fn _mm512_test_epi32_mask(a: __m512i, b: __m512i) -> __mmask16 {
    mask_of(|i| words(a)[i] & words(b)[i] != 0, 16) as u16
}
pub fn _mm512_testn_epi32_mask(a: __m512i, b: __m512i) -> __mmask16 {
    mask_of(|i| words(a)[i] & words(b)[i] == 0, 16) as u16
}
pub fn _mm512_cmplt_epi32_mask(a: __m512i, b: __m512i) -> __mmask16 {
    mask_of(|i| (words(a)[i] as i32) < words(b)[i] as i32, 16) as u16
}
pub fn _mm512_cmpgt_epu8_mask(a: __m512i, b: __m512i) -> u64 {
    mask_of(|i| a.0[i] > b.0[i], 64)
}
pub fn _mm512_mask_mov_epi32(src: __m512i, k: __mmask16, a: __m512i) -> __m512i {
    from_words(std::array::from_fn(|i| if k >> i & 1 == 1 { words(a)[i] } else { words(src)[i] }))
}
pub fn _mm512_maskz_mov_epi32(k: __mmask16, a: __m512i) -> __m512i {
    _mm512_mask_mov_epi32(_mm512_setzero_si512(), k, a)
}
/// Shuffles bytes within each 128 bits; 0 where the index's top bit is set.
pub fn _mm512_shuffle_epi8(a: __m512i, b: __m512i) -> __m512i {
    __m512i(std::array::from_fn(|i| if b.0[i] & 0x80 != 0 { 0 } else { a.0[i / 16 * 16 + usize::from(b.0[i] & 15)] }))
}
pub fn _mm_maskz_shuffle_epi8(k: __mmask16, a: __m128i, b: __m128i) -> __m128i {
    let byte = |i: usize| if b.0[i] & 0x80 != 0 { 0 } else { a.0[usize::from(b.0[i] & 15)] };
    __m128i(std::array::from_fn(|i| if k >> i & 1 == 1 { byte(i) } else { 0 }))
}
pub fn _mm512_permutexvar_epi32(index: __m512i, a: __m512i) -> __m512i {
    from_words(std::array::from_fn(|i| words(a)[words(index)[i] as usize & 15]))
}
pub fn _mm512_maskz_permutexvar_epi32(k: __mmask16, index: __m512i, a: __m512i) -> __m512i {
    _mm512_maskz_mov_epi32(k, _mm512_permutexvar_epi32(index, a))
}
pub fn _mm512_sub_epi32(a: __m512i, b: __m512i) -> __m512i {
    from_words(std::array::from_fn(|i| words(a)[i].wrapping_sub(words(b)[i])))
}
pub fn _mm512_cvtepu8_epi32(a: __m128i) -> __m512i {
    from_words(a.0.map(u32::from))
}
pub fn _mm512_cvtepi32_epi8(a: __m512i) -> __m128i {
    __m128i(words(a).map(|word| word as u8))
}
pub fn _mm512_movm_epi8(k: u64) -> __m512i {
    __m512i(std::array::from_fn(|i| if k >> i & 1 == 1 { 0xff } else { 0 }))
}
pub fn _mm_maskz_compress_epi8(k: __mmask16, a: __m128i) -> __m128i {
    __m128i(compress(u64::from(k), a.0))
}
pub fn _mm_maskz_expand_epi8(k: __mmask16, a: __m128i) -> __m128i {
    __m128i(expand(u64::from(k), a.0))
}
pub fn _mm512_maskz_compress_epi8(k: u64, a: __m512i) -> __m512i {
    __m512i(compress(k, a.0))
}
pub fn _mm512_maskz_expand_epi8(k: u64, a: __m512i) -> __m512i {
    __m512i(expand(k, a.0))
}
pub unsafe fn _mm_loadu_si128(from: *const __m128i) -> __m128i {
    // SAFETY: as the real one: 16 readable bytes.
    unsafe { from.read_unaligned() }
}
pub unsafe fn _mm512_loadu_si512(from: *const __m512i) -> __m512i {
    // SAFETY: as the real one: 64 readable bytes.
    unsafe { from.read_unaligned() }
}
pub unsafe fn _mm_storeu_si128(to: *mut __m128i, a: __m128i) {
    // SAFETY: as the real one: 16 writable bytes.
    unsafe { to.write_unaligned(a) }
}
pub unsafe fn _mm512_storeu_si512(to: *mut __m512i, a: __m512i) {
    // SAFETY: as the real one: 64 writable bytes.
    unsafe { to.write_unaligned(a) }
}
