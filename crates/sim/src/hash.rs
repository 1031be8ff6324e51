//! A fast hash for numbers of pages, chunks and places. It resists nobody who chooses the numbers:
//! a recording can be made such that its replay takes very long (docs/trace.md).

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map with such keys.
pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<Multiply>>;

/// A set of such keys.
pub type NumberSet<K> = HashSet<K, BuildHasherDefault<Multiply>>;

/// A multiplicative hash.
#[derive(Debug, Default, Clone)]
pub struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.write_u64(b.into()));
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}
