//! Clean copies: bytes that stay in the swap tier after their page came back.
//!
//! An incompressible page goes to the device each time it is evicted, and so does a compressed one
//! where the pool keeps other pages (`memfit_core::Core::goes_on`). If the program has not changed
//! the page meanwhile, the bytes on the device are still right: nothing is written, and the page
//! keeps its place among its neighbours for read-ahead. Only the contents tell whether the page was
//! changed. They are compared in staging, by a hash that only this pager can compute. A table says
//! which contents are where. It knows no pages, so no event concerns it.
//!
//! Raw slots are the core's: it knows which slot may still have a page's bytes. The hash of what
//! was last read from a slot is beside its seal ([`super::blocks`]).
//!
//! The hash is the tag of AES-128-GCM with a random key of its own and a constant nonce. That is
//! safe: the ciphertext is discarded at once, and no tag leaves the pager. The tag is GHASH (NIST
//! SP 800-38D, section 6.4) of the page and of constants. For somebody without the key, any two
//! different pages have the same 96 bits with a probability below 2^-87. With the available crates
//! this is three times as fast as GHASH alone.

use memfit_core::swap_log::SegmentId;
use memfit_core::{ContentHash, Extent, Stored};
use ring::aead::{Aad, LessSafeKey, Nonce, Tag, UnboundKey, AES_128_GCM};
use ring::hmac;
use std::collections::HashMap;
use std::io;

/// Entries that share an index; a new entry replaces the oldest.
const WAYS: usize = 8;
/// Entries of the first table; it doubles when it is three quarters full.
const ENTRIES_MIN: usize = 1024;

/// Keyed hash of the contents of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash([u32; 3]);

/// Twenty bytes. Unit `u32::MAX` marks an empty entry.
#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: Hash,
    unit: u32,
    len: u16,
    codec: u8,
}

const EMPTY: Entry = Entry { hash: Hash([0; 3]), unit: u32::MAX, len: 0, codec: 0 };

impl Entry {
    fn stored(&self) -> Stored {
        Stored { extent: Extent { unit: self.unit }, len: self.len, codec: self.codec }
    }
}

/// Hashes pages.
pub struct Hasher {
    pages: LessSafeKey,
    labels: hmac::Key,
}

impl Hasher {
    /// With a new random key.
    ///
    /// # Errors
    /// When the kernel has no random bytes.
    pub fn new() -> io::Result<Hasher> {
        let mut key = [0u8; 16];
        memfit_os::memory::random(&mut key)?;
        let key = UnboundKey::new(&AES_128_GCM, &key).expect("sixteen bytes are a key");
        let mut of_labels = [0; 32];
        memfit_os::memory::random(&mut of_labels)?;
        Ok(Hasher { pages: LessSafeKey::new(key), labels: hmac::Key::new(hmac::HMAC_SHA256, &of_labels) })
    }

    /// The hash of a page.
    pub fn hash(&self, page: &[u8]) -> Hash {
        Hash(words(self.tag(page).as_ref()))
    }

    /// Another name of the hash, which may go into a recording: it does not tell the hash.
    pub fn label(&self, page: &[u8]) -> ContentHash {
        words(hmac::sign(&self.labels, self.tag(page).as_ref()).as_ref())
    }

    fn tag(&self, page: &[u8]) -> Tag {
        let mut scratch = [0; memfit_core::PAGE_BYTES as usize];
        scratch[..page.len()].copy_from_slice(page);
        let always = Nonce::assume_unique_for_key([0; 12]);
        let tag = self.pages.seal_in_place_separate_tag(always, Aad::empty(), &mut scratch[..page.len()]);
        tag.expect("a page is shorter than 64 GiB")
    }
}

/// The first twelve bytes.
fn words(tag: &[u8]) -> [u32; 3] {
    std::array::from_fn(|i| u32::from_le_bytes(tag[i * 4..][..4].try_into().expect("four bytes")))
}

/// Which contents are where.
#[derive(Default)]
pub struct Copies {
    table: Vec<Entry>,
    live: usize,
    most: usize,
    /// Objects that a fault is about to free, with the hash of the bytes given to the program.
    leaving: HashMap<u32, Entry>,
}

impl Copies {
    /// A table of at most `most` copies.
    pub fn new(most: usize) -> Copies {
        Copies { most: most.max(ENTRIES_MIN).next_multiple_of(WAYS), ..Copies::default() }
    }

    /// The object goes to a program. If that frees it, its bytes stay.
    pub fn leaves(&mut self, stored: Stored, hash: Hash) {
        let Stored { extent: Extent { unit }, len, codec } = stored;
        self.leaving.insert(unit, Entry { hash, unit, len, codec });
    }

    /// The object was not freed.
    pub fn stays(&mut self, extent: Extent) {
        self.leaving.remove(&extent.unit);
    }

    /// An object of `len` bytes is freed. Returns the extents to free, with their lengths: its own,
    /// others that it replaces, or none.
    pub fn freed(&mut self, extent: Extent, len: u16) -> Vec<(Extent, u16)> {
        let Some(entry) = self.leaving.remove(&extent.unit) else { return vec![(extent, len)] };
        let mut out = Vec::new();
        if self.live * 4 >= self.table.len() * 3 && self.table.len() < self.most {
            out = self.grow();
        }
        out.extend(self.insert(entry));
        out
    }

    /// Doubles the table. Returns what has no place in its new set.
    fn grow(&mut self) -> Vec<(Extent, u16)> {
        let mut lost = Vec::new();
        let new = (self.table.len() * 2).clamp(ENTRIES_MIN, self.most);
        let old = std::mem::replace(&mut self.table, vec![EMPTY; new]);
        self.live = 0;
        for entry in old.into_iter().filter(|entry| entry.unit != EMPTY.unit) {
            lost.extend(self.insert(entry));
        }
        lost
    }

    fn set(&self, hash: Hash) -> std::ops::Range<usize> {
        let sets = (self.table.len() / WAYS) as u64;
        let start = ((u64::from(hash.0[0]) * sets) >> 32) as usize * WAYS;
        start..start + WAYS
    }

    /// Youngest first; returns the oldest of a full set.
    fn insert(&mut self, entry: Entry) -> Option<(Extent, u16)> {
        let range = self.set(entry.hash);
        let set = &mut self.table[range];
        let place = set.iter().position(|entry| entry.unit == EMPTY.unit).unwrap_or(WAYS - 1);
        let out = set[place];
        set[..=place].rotate_right(1);
        set[0] = entry;
        self.live += usize::from(out.unit == EMPTY.unit);
        (out.unit != EMPTY.unit).then_some((Extent { unit: out.unit }, out.len))
    }

    /// Whether there are any.
    pub fn any(&self) -> bool {
        self.live > 0
    }

    /// Where these contents are. The copy leaves the table: it belongs to the caller now.
    pub fn take(&mut self, hash: Hash) -> Option<Stored> {
        if self.live == 0 {
            return None;
        }
        let range = self.set(hash);
        let set = &mut self.table[range];
        let place = set.iter().position(|entry| entry.hash == hash && entry.unit != EMPTY.unit)?;
        let stored = set[place].stored();
        set[place..].rotate_left(1);
        set[WAYS - 1] = EMPTY;
        self.live -= 1;
        Some(stored)
    }

    /// Removes the copies in a segment, or all, and returns their extents.
    pub fn drop_all(&mut self, segment: Option<SegmentId>) -> Vec<(Extent, u16)> {
        let mut out = Vec::new();
        if self.live == 0 {
            return out;
        }
        for set in self.table.chunks_exact_mut(WAYS) {
            for place in (0..WAYS).rev() {
                let extent = Extent { unit: set[place].unit };
                if extent.unit != EMPTY.unit && segment.is_none_or(|segment| SegmentId::of(extent) == segment) {
                    out.push((extent, set[place].len));
                    set[place..].rotate_left(1);
                    set[WAYS - 1] = EMPTY;
                }
            }
        }
        self.live -= out.len();
        out
    }

    /// Bytes of the table.
    pub fn metadata_bytes(&self) -> u64 {
        (self.table.capacity() * size_of::<Entry>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(number: u32) -> Vec<u8> {
        let mut rng = memfit_codec::generate::Rng::new(u64::from(number));
        (0..512).flat_map(|_| rng.next().to_le_bytes()).collect()
    }

    #[test]
    fn finds_what_is_the_same_and_nothing_else() {
        let (hasher, mut copies) = (Hasher::new().unwrap(), Copies::new(100_000));
        assert_eq!(copies.take(hasher.hash(&page(1))), None);
        let extent = |number| Extent { unit: number * 65 };
        let stored =
            |number: u32| Stored { extent: extent(number), len: (number % 4096) as u16, codec: (number % 7) as u8 };
        let mut dropped = Vec::new();
        for number in 0..5000 {
            copies.leaves(stored(number), hasher.hash(&page(number)));
            dropped.extend(copies.freed(extent(number), stored(number).len));
        }
        assert!(dropped.len() < 600, "{} of 5000 had no place in their set", dropped.len());
        let mut changed = page(77);
        changed[4095] ^= 1;
        assert_eq!(copies.take(hasher.hash(&changed)), None);
        let other = Hasher::new().unwrap();
        for number in (0..5000).filter(|&n| n % 2 == 0 && !dropped.contains(&(extent(n), stored(n).len))) {
            assert_eq!(copies.take(other.hash(&page(number))), None, "another key");
            assert_eq!(copies.take(hasher.hash(&page(number))), Some(stored(number)));
            assert_eq!(copies.take(hasher.hash(&page(number))), None, "only once");
        }
        let segment = SegmentId::of(extent(63));
        let gone = copies.drop_all(Some(segment));
        assert!(!gone.is_empty() && gone.iter().all(|&(extent, _)| SegmentId::of(extent) == segment));
        assert_eq!(copies.drop_all(Some(segment)), []);
        let rest = copies.drop_all(None).len();
        assert!(rest > 2000 && !copies.any());
    }

    #[test]
    fn what_no_fault_announced_is_freed() {
        let (hasher, mut copies) = (Hasher::new().unwrap(), Copies::new(100));
        let extent = Extent { unit: 7 };
        assert_eq!(copies.freed(extent, 100), [(extent, 100)]);
        copies.leaves(Stored { extent, len: 100, codec: 2 }, hasher.hash(&page(1)));
        copies.stays(extent);
        assert_eq!(copies.freed(extent, 100), [(extent, 100)]);
        assert!(!copies.any());
    }
}
