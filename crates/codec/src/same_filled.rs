//! Detects pages that repeat one 8-byte word: mostly zero pages, then fills with -1, NaN or a
//! colour.
//!
//! Such a page needs only the word and no pool space. It is detected before any codec runs.

/// Words compared between two checks of the result: short enough to leave early, long enough to
/// vectorise.
const BLOCK: usize = 32;

/// The word (native byte order) that `page` repeats, or `None`.
///
/// An empty page or a length that is no multiple of 8 bytes gives `None`.
pub fn same_filled(page: &[u8]) -> Option<u64> {
    if page.len() % 8 != 0 {
        return None;
    }
    let word = word_at(page.get(..8)?);
    // Most pages with equal starts differ at the end: one load there saves the scan.
    if word_at(&page[page.len() - 8..]) != word {
        return None;
    }
    for block in page.chunks(BLOCK * 8) {
        // An OR of differences, without a branch per word, so that the compiler uses vector
        // registers.
        if block.chunks_exact(8).fold(0, |diff, w| diff | (word_at(w) ^ word)) != 0 {
            return None;
        }
    }
    Some(word)
}

/// Fills `page` with repetitions of `word` (native byte order). A last part shorter than 8 bytes
/// gets the start of the word.
pub fn fill(page: &mut [u8], word: u64) {
    let bytes = word.to_ne_bytes();
    let mut words = page.chunks_exact_mut(8);
    for w in &mut words {
        w.copy_from_slice(&bytes);
    }
    let rest = words.into_remainder();
    rest.copy_from_slice(&bytes[..rest.len()]);
}

/// The first 8 bytes of `bytes`, which must have that many.
fn word_at(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_ne_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_fills_and_nothing_else() {
        let mut page = [0u8; crate::PAGE_BYTES];
        for word in [0, u64::MAX, 0x0123_4567_89ab_cdef] {
            fill(&mut page, word);
            assert_eq!(same_filled(&page), Some(word));
            for at in [0, 1, 7, 8, 1000, 2047, 2048, 4088, 4095] {
                page[at] ^= 0x10;
                assert_eq!(same_filled(&page), None, "byte {at}");
                page[at] ^= 0x10;
            }
        }
    }

    #[test]
    fn odd_lengths() {
        assert_eq!(same_filled(&[]), None);
        assert_eq!(same_filled(&[0; 7]), None);
        assert_eq!(same_filled(&[0; 9]), None);
        assert_eq!(same_filled(&[5; 8]), Some(0x0505_0505_0505_0505));
        let mut odd = [0; 11];
        fill(&mut odd, u64::from_ne_bytes([1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(odd, [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3]);
    }
}
