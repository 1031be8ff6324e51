//! Samples of the pages that zstd compresses, and when a dictionary is trained with them.

use memfit_codec::{Dictionaries, DICTIONARIES_MAX, PAGE_BYTES, TRAINING_PAGES};

/// For each dictionary: how many pages are compressed before its first sample, and between two. The
/// first is early, to be of use soon. The others span the first 16 MiB and the first 256 MiB, for
/// programs that change.
const PLANS: [Plan; DICTIONARIES_MAX] =
    [Plan { from: 64, every: 4 }, Plan { from: 2048, every: 32 }, Plan { from: 32_768, every: 512 }];
/// Smallest budget with dictionaries, bytes: three of them and a training take 1.2 MiB.
const BUDGET_MIN: u64 = 48 << 20;

struct Plan {
    from: u64,
    every: u64,
}

/// Collects samples of all processes: pages that compress alike share a dictionary.
pub struct Trainer {
    enabled: bool,
    seen: u64,
    /// The samples of the next dictionary; takes no memory between two.
    samples: Vec<u8>,
}

impl Trainer {
    /// For a tree with this budget, bytes.
    pub fn new(budget: u64) -> Trainer {
        Trainer { enabled: budget >= BUDGET_MIN, seen: 0, samples: Vec::new() }
    }

    /// Notes a page that zstd compresses. With enough samples it trains a dictionary: 3 to 10 ms,
    /// at most [`DICTIONARIES_MAX`] times.
    pub fn saw(&mut self, page: &[u8], dictionaries: &Dictionaries) {
        let Some(plan) = PLANS.get(dictionaries.count()).filter(|_| self.enabled) else { return };
        self.seen += 1;
        if self.seen < plan.from || (self.seen - plan.from) % plan.every != 0 {
            return;
        }
        self.samples.reserve_exact((TRAINING_PAGES * PAGE_BYTES).saturating_sub(self.samples.len()));
        self.samples.extend_from_slice(page);
        if self.samples.len() == TRAINING_PAGES * PAGE_BYTES {
            // If these samples give no dictionary, later ones would not either.
            self.enabled = dictionaries.train(&self.samples);
            self.samples = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_codec::generate::samples;

    #[test]
    fn makes_each_dictionary_at_its_time_and_keeps_no_memory() {
        let (dictionaries, mut trainer) = (Dictionaries::new(), Trainer::new(1 << 30));
        let pages = samples(1, 256);
        let mut made = Vec::new();
        for (seen, page) in pages.chunks(PAGE_BYTES).cycle().take(80_000).enumerate() {
            trainer.saw(page, &dictionaries);
            if dictionaries.count() > made.len() {
                made.push(seen as u64 + 1);
                assert_eq!(trainer.samples.capacity(), 0);
            }
        }
        assert_eq!(made, PLANS.map(|plan| plan.from + (TRAINING_PAGES as u64 - 1) * plan.every));
    }

    #[test]
    fn a_small_budget_has_none() {
        let (dictionaries, mut trainer) = (Dictionaries::new(), Trainer::new(32 << 20));
        samples(1, 1000).chunks(PAGE_BYTES).for_each(|page| trainer.saw(page, &dictionaries));
        assert_eq!(dictionaries.count(), 0);
    }
}
