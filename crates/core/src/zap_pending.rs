//! Ranges with a REMOVE event whose zap may still come.
//!
//! The thread that raises a REMOVE waits until the event is read, and zaps then: at any later
//! moment, until a proof (`begin_proof`) shows that every thread has left the call. Pages present
//! at the event are quarantined. A page that comes into the range afterwards is right with the zap
//! before it and with the zap after it. It may be evicted, and if it is absent it reads as zeros:
//! that is [`Entry::Lazy`](crate::Entry::Lazy).

use crate::entry::is_not_after;
use crate::ids::{Page, PageRange};
use alloc::{collections::BTreeMap, vec::Vec};

/// Most ranges of one process.
const RANGES_MAX: usize = 4096;

#[derive(Debug, Clone, Default)]
pub(crate) struct ZapPending {
    /// By first page: one past the last page, and the epoch of the newest REMOVE. Ranges do not
    /// overlap.
    ranges: BTreeMap<u64, (u64, u32)>,
    /// The newest epoch that is proved, while its ranges are still listed.
    over: Option<u32>,
}

impl ZapPending {
    /// A REMOVE event of a range was read, in the newest epoch.
    pub fn add(&mut self, range: PageRange, epoch: u32) {
        let (start, end) = (range.first.0, range.end());
        if start >= end {
            return;
        }
        self.cut(start, end);
        // At the limit a range is widened over the gap to its neighbour: that is weaker, but never
        // wrong.
        let full = self.ranges.len() >= RANGES_MAX;
        match self.ranges.range_mut(..start).next_back() {
            Some((_, last)) if full || *last == (start, epoch) => *last = (end, epoch),
            None if full => {
                let (_, (next, _)) = self.ranges.pop_first().expect("it is full");
                self.ranges.insert(start, (next, epoch));
            }
            _ => _ = self.ranges.insert(start, (end, epoch)),
        }
        // A range that was cut out of another one leaves two.
        while self.ranges.len() > RANGES_MAX {
            let mut pop = || self.ranges.pop_first().expect("there are more");
            let ((first, (_, one)), (_, (end, other))) = (pop(), pop());
            self.ranges.insert(first, (end, if is_not_after(one, other) { other } else { one }));
        }
    }

    /// Cuts a range out.
    fn cut(&mut self, start: u64, end: u64) {
        let from = self.ranges.range(..start).next_back().map_or(start, |(&s, _)| s);
        let hit: Vec<(u64, (u64, u32))> = self.ranges.range(from..end).map(|(&s, &d)| (s, d)).collect();
        for (s, (e, epoch)) in hit.into_iter().filter(|&(_, (e, _))| e > start) {
            self.ranges.remove(&s);
            if s < start {
                self.ranges.insert(s, (start, epoch));
            }
            if e > end {
                self.ranges.insert(end, (e, epoch));
            }
        }
    }

    /// The epoch of the newest pending zap of the page.
    pub fn of(&self, page: Page) -> Option<u32> {
        let (_, &(end, epoch)) = self.ranges.range(..=page.0).next_back()?;
        (page.0 < end).then_some(epoch)
    }

    /// All threads have left the calls of this epoch and of those before it.
    pub fn over(&mut self, epoch: u32) {
        self.over = self.over.filter(|&over| is_not_after(epoch, over)).or(Some(epoch));
    }

    /// Forgets the ranges of proved epochs.
    pub fn end(&mut self) {
        if let Some(epoch) = self.over.take() {
            self.ranges.retain(|_, d| !is_not_after(d.1, epoch));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::EPOCH_MAX;

    fn range(first: u64, pages: u64) -> PageRange {
        PageRange { first: Page(first), pages }
    }

    #[test]
    fn the_newest_event_counts_and_a_proof_ends_the_older_ones() {
        let mut zap_pending = ZapPending::default();
        zap_pending.add(range(10, 10), 0);
        zap_pending.add(range(14, 2), 3);
        let of = |zap_pending: &ZapPending| [9, 10, 13, 14, 15, 16, 19, 20].map(|page| zap_pending.of(Page(page)));
        assert_eq!(of(&zap_pending), [None, Some(0), Some(0), Some(3), Some(3), Some(0), Some(0), None]);
        zap_pending.over(2);
        assert_eq!(of(&zap_pending)[1], Some(0));
        zap_pending.end();
        assert_eq!(of(&zap_pending), [None, None, None, Some(3), Some(3), None, None, None]);
        zap_pending.over(3);
        zap_pending.end();
        assert!(zap_pending.is_empty());
    }

    #[test]
    fn too_many_ranges_become_wider_and_none_is_lost() {
        let mut zap_pending = ZapPending::default();
        // In scattered order: with a neighbour below, and without.
        let all: Vec<u64> = (0..RANGES_MAX as u64 + 50).map(|i| (i * 7919) % 100_003 * 4 + 8).collect();
        for (i, &page) in all.iter().enumerate() {
            zap_pending.add(range(page, 2), i as u32);
        }
        zap_pending.add(range(0, 1), 9000);
        assert!(zap_pending.ranges.len() <= RANGES_MAX);
        for (i, &page) in all.iter().enumerate() {
            assert!(zap_pending.of(Page(page + 1)).is_some_and(|epoch| epoch >= i as u32), "page {page}");
        }
        assert_eq!(zap_pending.of(Page(0)), Some(9000));
        // Each of these leaves two parts of the large one.
        zap_pending.add(range(1 << 20, 100_000), 9001);
        (0..100).for_each(|i| zap_pending.add(range((1 << 20) + i * 1000 + 500, 1), 9002));
        assert!(zap_pending.ranges.len() <= RANGES_MAX);
        let large = |page: &u64| zap_pending.of(Page((1 << 20) + page)) >= Some(9001 + u32::from(page % 1000 == 500));
        assert_eq!((0..100_000).find(|page| !large(page)), None);
    }

    #[test]
    fn epochs_begin_anew_at_their_end() {
        let mut zap_pending = ZapPending::default();
        zap_pending.add(range(10, 1), EPOCH_MAX);
        zap_pending.add(range(20, 1), 0);
        zap_pending.over(EPOCH_MAX);
        zap_pending.end();
        assert_eq!([10, 20].map(|page| zap_pending.of(Page(page))), [None, Some(0)], "0 comes after the last one");
        zap_pending.over(0);
        zap_pending.over(EPOCH_MAX);
        zap_pending.end();
        assert!(zap_pending.is_empty());
    }
}
