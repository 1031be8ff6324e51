//! Confidentiality and integrity of the swap tier: AES-128-GCM with a key that exists only in this
//! pager's memory.
//!
//! The nonce is the sequence number of the segment's use or of the block's write, which never
//! repeats, and the place. So bytes of another place, older bytes and damaged bytes do not open:
//! the tag is the checksum as well.

use super::ALIGN;
use ring::aead::{Aad, LessSafeKey, Nonce, Tag, UnboundKey, AES_128_GCM};
use std::io;

/// Bytes of the tag before each object.
pub const TAG_BYTES: usize = 16;

/// The expanded key, in memory that is neither swapped nor dumped where that is allowed.
pub struct Cipher {
    inner: Box<Page>,
}

/// Alone in its pages, so that locking and unlocking them affects nothing else.
#[repr(align(4096))]
struct Page(LessSafeKey);

/// Where an object is, and what it is: all of it is authenticated.
#[derive(Debug, Clone, Copy)]
pub struct Label {
    /// Number of the segment's use, or of the block's write.
    pub sequence: u64,
    /// Unit of the extent.
    pub unit: u32,
    /// Codec number.
    pub codec: u8,
}

impl Label {
    fn nonce(&self) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&self.sequence.to_le_bytes());
        nonce[8..].copy_from_slice(&self.unit.to_le_bytes());
        Nonce::assume_unique_for_key(nonce)
    }
}

impl Cipher {
    /// With a new random key.
    ///
    /// # Errors
    /// When the kernel has no random bytes.
    pub fn new() -> io::Result<Cipher> {
        let mut key = [0u8; 16];
        memfit_os::memory::random(&mut key)?;
        let expanded = UnboundKey::new(&AES_128_GCM, &key).expect("sixteen bytes are a key");
        let inner = Box::new(Page(LessSafeKey::new(expanded)));
        memfit_os::memory::keep_secret((&raw const *inner).cast(), size_of::<Page>().next_multiple_of(ALIGN));
        memfit_os::memory::wipe(&mut key);
        Ok(Cipher { inner })
    }

    /// Encrypts in place and returns the tag. At most once for each label.
    pub fn seal(&self, label: Label, bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        let tag = self.inner.0.seal_in_place_separate_tag(label.nonce(), Aad::from([label.codec]), bytes);
        let tag = tag.expect("an object is shorter than 64 GiB");
        tag.as_ref().try_into().expect("a tag has its length")
    }

    /// Decrypts in place. False if the bytes were not sealed under this label.
    pub fn open(&self, label: Label, tag: [u8; TAG_BYTES], bytes: &mut [u8]) -> bool {
        let (nonce, aad) = (label.nonce(), Aad::from([label.codec]));
        self.inner.0.open_in_place_separate_tag(nonce, aad, Tag::from(tag), bytes, 0..).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_what_was_sealed_there_and_nothing_else() {
        let cipher = Cipher::new().unwrap();
        let label = Label { sequence: 9, unit: 77, codec: 1 };
        let plain: Vec<u8> = (0..3000u32).map(|i| (i * 7) as u8).collect();
        let mut sealed = plain.clone();
        let tag = cipher.seal(label, &mut sealed);
        assert_ne!(sealed, plain);
        let opens = |cipher: &Cipher, label, bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            cipher.open(label, tag, &mut bytes).then_some(bytes)
        };
        assert_eq!(opens(&cipher, label, &sealed), Some(plain));
        assert_eq!(opens(&cipher, Label { sequence: 10, ..label }, &sealed), None, "an older use of the segment");
        assert_eq!(opens(&cipher, Label { unit: 78, ..label }, &sealed), None, "another place");
        assert_eq!(opens(&cipher, Label { codec: 2, ..label }, &sealed), None, "another codec");
        assert_eq!(opens(&Cipher::new().unwrap(), label, &sealed), None, "another key");
        let mut flipped = sealed.clone();
        flipped[2999] ^= 0x80;
        assert_eq!(opens(&cipher, label, &flipped), None);
        assert_eq!(opens(&cipher, label, &sealed[..2999]), None, "shorter");
    }
}
