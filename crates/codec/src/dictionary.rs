//! Dictionaries for zstd, trained on the programs' own pages.
//!
//! A page of 4 KiB is too short for zstd to learn from: its tables of symbol frequencies cost bytes
//! and time, and it has few earlier bytes to refer to. A dictionary supplies both. Measured with 64
//! sample pages and 16 KiB, half of each program's pages as samples and the other half compressed:
//! GNU sort's lines became 0.171 of their size instead of 0.237, SQLite's pages 0.222 instead of
//! 0.277, CPython's objects 0.121 instead of 0.132, all in less time than zstd 1 without a
//! dictionary.

#![allow(unsafe_code)] // foreign functions

use crate::PAGE_BYTES;
use std::sync::OnceLock;
use zstd_safe::{CDict, DDict};

/// Most dictionaries of a set. Each takes about 150 KiB and lives as long as the set: evicted pages
/// need it.
pub const DICTIONARIES_MAX: usize = 3;
/// Pages for the training of a dictionary (256 KiB). Twice as many gave the same result.
pub const TRAINING_PAGES: usize = 64;
/// Longest dictionary, bytes. 4 KiB were 4 to 10 % worse; more than 16 KiB would not stay in the
/// first-level cache.
const BYTES_MAX: usize = 16 << 10;
/// Compression level with a dictionary.
const LEVEL: i32 = 1;
/// Training parameters (ZDICT, fast cover): length of the weighed segments and of the counted
/// strings, bytes; logarithm of the number of counters: 6 << 16 bytes of memory, for 3 ms.
const SEGMENT: u32 = 200;
const STRING: u32 = 8;
const COUNTERS_LOG: u32 = 16;

/// A dictionary, ready for use in both directions.
pub(crate) struct Dictionary {
    bytes: Vec<u8>,
    pub write: CDict<'static>,
    /// Made at the first use: few programs have pages that stay out so long.
    strong: OnceLock<CDict<'static>>,
    pub read: DDict<'static>,
}

impl Dictionary {
    /// For the strong level, which the first call sets.
    pub fn strong(&self, level: i32) -> &CDict<'static> {
        self.strong.get_or_init(|| CDict::create(&self.bytes, level))
    }
}

/// The dictionaries of one pager, oldest first. They are never changed or removed.
#[derive(Default)]
pub struct Dictionaries {
    made: [OnceLock<Dictionary>; DICTIONARIES_MAX],
}

impl Dictionaries {
    /// An empty set.
    pub fn new() -> Dictionaries {
        Dictionaries::default()
    }

    /// Number of dictionaries.
    pub fn count(&self) -> usize {
        self.made.iter().take_while(|d| d.get().is_some()).count()
    }

    /// Trains one more dictionary on sample pages. Returns false if the set is full, or if the
    /// samples are too few or have nothing in common.
    pub fn train(&self, samples: &[u8]) -> bool {
        let Some(place) = self.made.get(self.count()) else { return false };
        let Some(bytes) = train(samples) else { return false };
        let (write, read) = (CDict::create(&bytes, LEVEL), DDict::create(&bytes));
        place.set(Dictionary { bytes, write, strong: OnceLock::new(), read }).is_ok()
    }

    pub(crate) fn get(&self, number: usize) -> Option<&Dictionary> {
        self.made.get(number)?.get()
    }
}

fn train(samples: &[u8]) -> Option<Vec<u8>> {
    let sizes = vec![PAGE_BYTES; samples.len() / PAGE_BYTES];
    let mut bytes = vec![0u8; BYTES_MAX];
    let parameters = zstd_sys::ZDICT_fastCover_params_t {
        k: SEGMENT,
        d: STRING,
        f: COUNTERS_LOG,
        steps: 0,
        nbThreads: 1,
        splitPoint: 0.0,
        accel: 1,
        shrinkDict: 0,
        shrinkDictMaxRegression: 0,
        zParams: zstd_sys::ZDICT_params_t { compressionLevel: LEVEL, notificationLevel: 0, dictID: 0 },
    };
    // SAFETY: the buffers have the lengths given; `sizes` has one entry a sample, and their sum is
    // at most the length of `samples`.
    let len = unsafe {
        zstd_sys::ZDICT_trainFromBuffer_fastCover(
            bytes.as_mut_ptr().cast(),
            bytes.len(),
            samples.as_ptr().cast(),
            sizes.as_ptr(),
            u32::try_from(sizes.len()).ok()?,
            parameters,
        )
    };
    // SAFETY: takes a number.
    let failed = unsafe { zstd_sys::ZDICT_isError(len) } != 0;
    (!failed && len <= bytes.len()).then(|| {
        bytes.truncate(len);
        bytes
    })
}
