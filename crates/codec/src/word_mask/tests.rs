use super::*;
use crate::generate::{Rng, GENERATORS};

/// Every coder that this CPU can run; reports the others once.
fn coders() -> Vec<WordMask> {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| {
        for coder in Coder::ALL.iter().filter(|coder| !coder.available()) {
            crate::skip::skip(&format!("word-mask with {coder:?}"), "this CPU has no such instructions");
        }
    });
    Coder::ALL.iter().filter(|coder| coder.available()).map(|&coder| WordMask::new(coder)).collect()
}

/// All coders on `src`: they must pack the same bytes, and every decoder must restore them.
fn agree(coders: &mut [WordMask], src: &[u8]) {
    let mut a = vec![0; 2 * src.len() + 64];
    let mut b = a.clone();
    let limit = a.len();
    let n = coders[0].compress(CodecId::WORD_MASK, src, &mut a, limit).expect("room for anything");
    let exact: Box<[u8]> = a[..n].into();
    for codec in coders {
        let coder = codec.coder;
        assert_eq!(codec.compress(CodecId::WORD_MASK, src, &mut b, limit), Some(n), "{coder:?}");
        assert!(*exact == b[..n], "{coder:?}");
        let mut out = vec![0xaa; src.len()].into_boxed_slice();
        codec.decompress(CodecId::WORD_MASK, &exact, &mut out).expect("own encoding");
        assert!(*out == *src, "{coder:?}: length {}", src.len());
        assert_eq!(codec.compress(CodecId::WORD_MASK, src, &mut b, n), None, "limit is exclusive");
        assert_eq!(codec.compress(CodecId::WORD_MASK, src, &mut b, n + 1), Some(n));
    }
}

#[test]
fn coders_agree_on_pages_and_odd_lengths() {
    let (mut coders, mut rng) = (coders(), Rng::new(3));
    for generator in GENERATORS {
        let mut unit = vec![0; if cfg!(miri) { 512 } else { MAX_UNIT }];
        (generator.fill)(&mut rng, &mut unit);
        for len in [8, 16, 24, 32, 40, 56, 64, 72, 96, 120, 256, 264, 4096, 4104, 8184, 65528, 65536] {
            agree(&mut coders, &unit[..len.min(unit.len())]);
        }
    }
}

/// Words for which every code, and chains of predictions within a group, are common.
#[test]
fn coders_agree_on_chains() {
    let (mut coders, mut rng) = (coders(), Rng::new(4));
    for round in 0..if cfg!(miri) { 4 } else { 3000 } {
        let mut words = [0u32; 96];
        for i in 0..words.len() {
            let distance = [1, 2, 4, 8, 12, 16][rng.below(6) as usize].min(i);
            let near = words[i - distance] & !(0xffu32 << (8 * rng.below(4)));
            words[i] = match rng.below(8) {
                0 => 0,
                1 => rng.next() as u32 >> (8 * rng.below(4)),
                2..=4 => words[i - distance],
                _ => near ^ (rng.next() as u32 & ((1u64 << (8 * rng.below(4))) - 1) as u32),
            };
        }
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let len = 8 + 8 * (round % 48);
        agree(&mut coders, &bytes[..len]);
    }
}

#[test]
fn decoders_agree_on_any_valid_streams() {
    let (mut coders, mut rng) = (coders(), Rng::new(5));
    for _ in 0..if cfg!(miri) { 4 } else { 3000 } {
        // Streams that no encoder makes: any mask, any code, any payload.
        let groups = 1 + rng.below(12) as usize;
        let masks: Vec<u8> = (0..groups).map(|_| rng.next() as u8 | 1).collect();
        let mut src = vec![0xff; groups / 8];
        if groups % 8 != 0 {
            src.push((1 << (groups % 8)) - 1);
        }
        src.extend(&masks);
        let codes: usize = masks.iter().map(|m| m.count_ones() as usize).sum();
        let mut payload = 0;
        for i in 0..codes.div_ceil(2) {
            let pair = rng.next() as u8;
            let both = 2 * i + 1 < codes;
            src.push(if both { pair } else { pair & 15 });
            payload += usize::from(LENGTH[usize::from(pair & 15)]);
            payload += if both { usize::from(LENGTH[usize::from(pair >> 4)]) } else { 0 };
        }
        src.extend((0..payload).map(|_| rng.next() as u8));
        let mut first = None;
        for codec in &mut coders {
            let mut out = vec![0xaa; groups * GROUP];
            assert_eq!(codec.decompress(CodecId::WORD_MASK, &src, &mut out), Ok(()));
            assert_eq!(*first.get_or_insert_with(|| out.clone()), out, "{:?}", codec.coder);
            let cut = &src[..src.len() - 1];
            assert_eq!(codec.decompress(CodecId::WORD_MASK, cut, &mut out), Err(Corrupt));
            if codes % 2 != 0 {
                let mut unused = src.clone();
                unused[groups.div_ceil(8) + groups + codes / 2] |= 0x10;
                assert_eq!(codec.decompress(CodecId::WORD_MASK, &unused, &mut out), Err(Corrupt), "last nibble");
            }
        }
    }
}

#[test]
fn the_coder_in_use_is_the_fastest_that_this_cpu_has() {
    assert_eq!(Some(Coder::best()), coders().last().map(|codec| codec.coder));
}

/// The format is stored in swap tiers: these bytes never change.
#[test]
fn golden_bytes() {
    let words: [u32; 10] = [5, 0, 0x1234_5678, 0x7f00, 5, 0, 0x1234_56ff, 0x7f00, 5, 5];
    let src: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let mut out = [0; 64];
    for mut codec in coders() {
        let n = codec.compress(CodecId::WORD_MASK, &src, &mut out, 64).unwrap();
        assert_eq!(
            out[..n],
            [
                0b11,
                0b1101_1101,
                0b11,
                0x09,
                0xd5,
                0xd0,
                0xfd,
                5,
                0x78,
                0x56,
                0x34,
                0x12,
                0x00,
                0x7f,
                0xff,
                0x56,
                0x34,
                0x12
            ],
            "{:?}: {:x?}",
            codec.coder,
            &out[..n]
        );
    }
}

#[test]
fn payload_length_is_the_sum_of_lengths() {
    for code in 0..16u8 {
        assert_eq!(payload_length(&[code; LENGTH_BLOCK]), LENGTH_BLOCK * usize::from(LENGTH[usize::from(code)]));
    }
}
