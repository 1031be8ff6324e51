//! Clean copies: incompressible pages that came back from the swap tier, and whose bytes are left there.
//!
//! Such a page goes to the device each time it leaves. If it was not written to meanwhile, the bytes on the device are still
//! right: then nothing is written, and the page keeps its place among its neighbours, so that it can be read ahead. Whether
//! it was written to is told by its contents alone, when it is in staging: by a hash that only this pager can compute. A
//! table of hashes says which contents are where; it knows nothing of pages, so that no event concerns it.
//!
//! The hash is the tag of AES-128-GCM under a random key of its own and a nonce that never changes. What that encrypts is thrown
//! away at once and no tag is shown to anybody, so nothing is lost by it; and the tag is GHASH (NIST SP 800-38D, section 6.4)
//! of the page and of what is always the same, which for two different pages gives the same 96 bits with a probability below
//! 2^-87, whatever is in them, to somebody who does not know the key. Three times as fast as GHASH alone with the crates there
//! are.

use super::COPY_BYTES;
use memfit_core::swap_log::SegmentId;
use memfit_core::Extent;
use ring::aead::{Aad, LessSafeKey, Nonce, UnboundKey, AES_128_GCM};
use std::collections::HashMap;
use std::io;

/// Entries that share an index; the oldest makes room.
const WAYS: usize = 8;
/// Entries of the first table; it doubles when it is three quarters full.
const ENTRIES_MIN: usize = 1024;

/// Of the contents of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash([u32; 3]);

/// Sixteen bytes. Unit `u32::MAX` is none.
#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: Hash,
    unit: u32,
}

const EMPTY: Entry = Entry { hash: Hash([0; 3]), unit: u32::MAX };

/// Hashes pages.
pub struct Hasher(LessSafeKey);

impl Hasher {
    /// With a new random key.
    ///
    /// # Errors
    /// When the kernel has no random bytes.
    pub fn new() -> io::Result<Hasher> {
        let mut key = [0u8; 16];
        memfit_os::memory::random(&mut key)?;
        let key = UnboundKey::new(&AES_128_GCM, &key).expect("sixteen bytes are a key");
        Ok(Hasher(LessSafeKey::new(key)))
    }

    /// Of a page.
    pub fn hash(&self, page: &[u8]) -> Hash {
        let mut scratch = [0; COPY_BYTES as usize];
        scratch[..page.len()].copy_from_slice(page);
        let always = Nonce::assume_unique_for_key([0; 12]);
        let tag = self.0.seal_in_place_separate_tag(always, Aad::empty(), &mut scratch[..page.len()]);
        let tag = tag.expect("a page is shorter than 64 GiB");
        Hash(std::array::from_fn(|i| u32::from_le_bytes(tag.as_ref()[i * 4..][..4].try_into().expect("four bytes"))))
    }
}

/// Which contents are where.
#[derive(Default)]
pub struct Copies {
    table: Vec<Entry>,
    live: usize,
    most: usize,
    /// Objects that a fault is about to free, with the hash of what it gave to the program.
    leaving: HashMap<u32, Hash>,
}

impl Copies {
    /// For so many pages at most.
    pub fn new(most: usize) -> Copies {
        Copies { most: most.max(ENTRIES_MIN).next_multiple_of(WAYS), ..Copies::default() }
    }

    /// The object there is given to a program; if it is freed by that, its bytes stay.
    pub fn leaves(&mut self, extent: Extent, hash: Hash) {
        self.leaving.insert(extent.unit, hash);
    }

    /// It was not freed.
    pub fn stays(&mut self, extent: Extent) {
        self.leaving.remove(&extent.unit);
    }

    /// An object is freed. Returns the extents that are to be freed: its own, others in its stead, or none.
    pub fn freed(&mut self, extent: Extent) -> Vec<Extent> {
        let Some(hash) = self.leaving.remove(&extent.unit) else { return vec![extent] };
        let mut out = Vec::new();
        if self.live * 4 >= self.table.len() * 3 && self.table.len() < self.most {
            out = self.grow();
        }
        out.extend(self.insert(Entry { hash, unit: extent.unit }));
        out
    }

    /// Returns what had no place in its new set.
    fn grow(&mut self) -> Vec<Extent> {
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

    /// Youngest first; the oldest of a full set leaves.
    fn insert(&mut self, entry: Entry) -> Option<Extent> {
        let range = self.set(entry.hash);
        let set = &mut self.table[range];
        let place = set.iter().position(|entry| entry.unit == EMPTY.unit).unwrap_or(WAYS - 1);
        let out = set[place];
        set[..=place].rotate_right(1);
        set[0] = entry;
        self.live += usize::from(out.unit == EMPTY.unit);
        (out.unit != EMPTY.unit).then_some(Extent { unit: out.unit })
    }

    /// Whether there are any.
    pub fn any(&self) -> bool {
        self.live > 0
    }

    /// Where these contents are; they belong to the caller now.
    pub fn take(&mut self, hash: Hash) -> Option<Extent> {
        if self.live == 0 {
            return None;
        }
        let range = self.set(hash);
        let set = &mut self.table[range];
        let place = set.iter().position(|entry| entry.hash == hash && entry.unit != EMPTY.unit)?;
        let unit = set[place].unit;
        set[place..].rotate_left(1);
        set[WAYS - 1] = EMPTY;
        self.live -= 1;
        Some(Extent { unit })
    }

    /// Gives up those of a segment, or all.
    pub fn drop_all(&mut self, segment: Option<SegmentId>) -> Vec<Extent> {
        let mut out = Vec::new();
        for set in self.table.chunks_exact_mut(WAYS) {
            for place in (0..WAYS).rev() {
                let extent = Extent { unit: set[place].unit };
                if extent.unit != EMPTY.unit && segment.is_none_or(|segment| SegmentId::of(extent) == segment) {
                    out.push(extent);
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
        let mut dropped = Vec::new();
        for number in 0..5000 {
            copies.leaves(extent(number), hasher.hash(&page(number)));
            dropped.extend(copies.freed(extent(number)));
        }
        assert!(dropped.len() < 600, "{} of 5000 had no place in their set", dropped.len());
        let mut changed = page(77);
        changed[4095] ^= 1;
        assert_eq!(copies.take(hasher.hash(&changed)), None);
        let other = Hasher::new().unwrap();
        for number in (0..5000).filter(|&n| n % 2 == 0 && !dropped.contains(&extent(n))) {
            assert_eq!(copies.take(other.hash(&page(number))), None, "another key");
            assert_eq!(copies.take(hasher.hash(&page(number))), Some(extent(number)));
            assert_eq!(copies.take(hasher.hash(&page(number))), None, "only once");
        }
        let segment = SegmentId::of(extent(63));
        let gone = copies.drop_all(Some(segment));
        assert!(!gone.is_empty() && gone.iter().all(|&extent| SegmentId::of(extent) == segment));
        assert_eq!(copies.drop_all(Some(segment)), []);
        let rest = copies.drop_all(None).len();
        assert!(rest > 2000 && !copies.any());
    }

    #[test]
    fn what_no_fault_announced_is_freed() {
        let (hasher, mut copies) = (Hasher::new().unwrap(), Copies::new(100));
        let extent = Extent { unit: 7 };
        assert_eq!(copies.freed(extent), [extent]);
        copies.leaves(extent, hasher.hash(&page(1)));
        copies.stays(extent);
        assert_eq!(copies.freed(extent), [extent]);
        assert!(!copies.any());
    }
}
