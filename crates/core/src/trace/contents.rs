//! The note about a page's contents: sizes and a hash. Of the bytes it has only the word of a
//! same-filled page.

use super::{number, Damaged, Decoder};
use crate::ids::{ObjectId, Page, ProcId, PAGE_BYTES};
use alloc::vec::Vec;

/// Codec numbers below this fit into a note.
pub const CODECS_MAX: usize = 32;
/// Length that stands for "not smaller": a page.
pub const LEN_MAX: u16 = PAGE_BYTES as u16;

/// Flags of a note.
const OF_PAGE: u64 = 1;
const HAS_WORD: u64 = 2;

/// Which page was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// A page that is being compressed: the object's next `offer` or `compressed` is about these
    /// bytes.
    Object(ObjectId),
    /// A staged page of the sample.
    Page {
        /// Its process.
        proc: ProcId,
        /// The page.
        page: Page,
        /// Number of core calls between the measurement and this note.
        calls: u64,
    },
}

/// What a page contained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    /// The page.
    pub whose: Whose,
    /// Equal for equal pages of one recording, and meaningless otherwise: its key is not stored.
    pub hash: u64,
    /// Entropy of the first 512 bytes, in 65536ths.
    pub entropy: u32,
    /// The repeated word of a same-filled page.
    pub word: Option<u64>,
    /// Compressed length by codec number, bytes, at most [`LEN_MAX`]; 0: not tried.
    pub lens: [u16; CODECS_MAX],
}

impl Contents {
    /// Numbers and lengths of the codecs that were tried.
    pub fn tried(&self) -> impl Iterator<Item = (u8, u16)> + '_ {
        (0..).zip(self.lens).filter(|&(_, len)| len > 0)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let word = if self.word.is_some() { HAS_WORD } else { 0 };
        match self.whose {
            Whose::Object(object) => [word, object.0.into()].into_iter().for_each(|n| number(out, n)),
            Whose::Page { proc, page, calls } => {
                [OF_PAGE | word, proc.0.into(), page.0, calls].into_iter().for_each(|n| number(out, n));
            }
        }
        out.extend(self.hash.to_le_bytes());
        number(out, self.entropy.into());
        self.word.into_iter().for_each(|word| out.extend(word.to_le_bytes()));
        number(out, self.tried().count() as u64);
        self.tried().for_each(|(codec, len)| [codec.into(), len.into()].into_iter().for_each(|n| number(out, n)));
    }

    pub(super) fn decode(body: &mut Decoder<'_>) -> Result<Contents, Damaged> {
        let flags = body.number()?;
        if flags & !(OF_PAGE | HAS_WORD) != 0 {
            return Err(Damaged::Wrong);
        }
        let whose = match flags & OF_PAGE {
            0 => Whose::Object(ObjectId(body.small()?)),
            _ => Whose::Page { proc: body.proc()?, page: Page(body.number()?), calls: body.number()? },
        };
        let (hash, entropy) = (body.word()?, body.small()?);
        let word = if flags & HAS_WORD == 0 { None } else { Some(body.word()?) };
        let mut lens = [0; CODECS_MAX];
        for _ in 0..body.number()? {
            let codec = body.number()?;
            let len = u16::try_from(body.number()?).ok().filter(|len| (1..=LEN_MAX).contains(len));
            let len = len.ok_or(Damaged::Wrong)?;
            // A later version may have more codecs.
            if let Some(place) = usize::try_from(codec).ok().and_then(|codec| lens.get_mut(codec)) {
                *place = len;
            }
        }
        Ok(Contents { whose, hash, entropy, word, lens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Encoder, Item, Note};

    fn lens(tried: &[(usize, u16)]) -> [u16; CODECS_MAX] {
        let mut lens = [0; CODECS_MAX];
        tried.iter().for_each(|&(codec, len)| lens[codec] = len);
        lens
    }

    /// Each field at both ends of its range.
    fn all() -> Vec<Contents> {
        let page = |proc, page, calls| Whose::Page { proc: ProcId(proc), page: Page(page), calls };
        let every: Vec<(usize, u16)> = (0..CODECS_MAX).map(|codec| (codec, LEN_MAX - codec as u16)).collect();
        let of = |whose, hash, entropy, word, tried: &[_]| Contents { whose, hash, entropy, word, lens: lens(tried) };
        vec![
            of(Whose::Object(ObjectId(0)), 0, 0, None, &[]),
            of(Whose::Object(ObjectId(u32::MAX)), u64::MAX, 65536, Some(u64::MAX), &every),
            of(page(0, 0, 0), 1, 40_000, None, &[(1, 900), (14, LEN_MAX)]),
            of(page(u32::MAX, u64::MAX, u64::MAX), 1 << 63, u32::MAX, Some(0), &[(CODECS_MAX - 1, 1)]),
        ]
    }

    fn encoded(all: &[Contents]) -> Vec<u8> {
        let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
        all.iter().for_each(|&contents| encoder.note(&mut bytes, Note::Contents(contents)));
        bytes
    }

    #[test]
    fn each_comes_back() {
        let (all, bytes) = (all(), encoded(&all()));
        let mut decoder = Decoder::new(&bytes);
        for &contents in &all {
            assert_eq!(decoder.item(), Ok(Some(Item::Note(Note::Contents(contents)))));
        }
        assert_eq!(decoder.item(), Ok(None));
        assert_eq!(all[2].tried().collect::<Vec<_>>(), [(1, 900), (14, LEN_MAX)]);
    }

    #[test]
    fn what_a_later_version_says_besides_is_left_out() {
        let body = |tried: &[u8]| [&[0, 5], &[7; 8][..], &[3], tried].concat();
        let note = |body: &[u8]| [&[49, body.len() as u8], body].concat();
        let read = |tried: &[u8]| {
            let bytes = note(&body(tried));
            match Decoder::new(&bytes).item() {
                Ok(Some(Item::Note(Note::Contents(contents)))) => Ok(contents.tried().collect::<Vec<_>>()),
                Err(damaged) => Err(damaged),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(read(&[1, 4, 9]), Ok(vec![(4, 9)]));
        assert_eq!(read(&[2, 0xff, 0x7f, 9, 4, 9]), Ok(vec![(4, 9)]), "a codec that nobody knows");
        assert_eq!(read(&[1, 4, 9, 1, 2, 3]), Ok(vec![(4, 9)]), "more");
        assert_eq!(read(&[1, 4, 0]), Err(Damaged::Wrong), "no length");
        assert_eq!(read(&[1, 4, 0x81, 0x20]), Err(Damaged::Wrong), "longer than a page");
        assert_eq!(read(&[2, 4, 9]), Err(Damaged::Short));
        assert_eq!(Decoder::new(&note(&[4, 5])).item(), Err(Damaged::Wrong), "flags of another version");
    }

    /// Truncated or changed bytes give notes or an error.
    #[test]
    fn damaged_bytes_are_no_more_than_an_error() {
        let bytes = encoded(&all());
        let read = |bytes: &[u8]| {
            let (mut decoder, mut notes) = (Decoder::new(bytes), 0);
            loop {
                match decoder.item() {
                    Ok(Some(_)) => notes += 1,
                    Ok(None) => return (notes, None),
                    Err(damaged) => return (notes, Some(damaged)),
                }
            }
        };
        assert_eq!(read(&bytes), (all().len(), None));
        for end in 0..bytes.len() {
            let (notes, damaged) = read(&bytes[..end]);
            assert!(notes < all().len() && matches!(damaged, None | Some(Damaged::Short)), "{end}: {damaged:?}");
        }
        for at in 0..bytes.len() {
            for wrong in 0..=255 {
                let mut bytes = bytes.clone();
                bytes[at] = wrong;
                read(&bytes);
            }
        }
    }
}
