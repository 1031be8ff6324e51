//! Ages of evicted pages, in evictions since: what a frame is worth to the programs, and what to
//! the pool.
//!
//! A page that comes back soon would have stayed in memory if the programs had more frames (refault
//! distance, as in the kernel's `workingset.c`). Pages that have been in the pool for longest, and
//! do not come back, take frames for nothing. Both are rates of faults for a frame, so they can be
//! compared, with the cost of a read from the swap tier instead of the pool.

use crate::grow::reserve_tight;
use crate::ids::ObjectId;
use crate::price::{self, Price, Return};
use alloc::{collections::VecDeque, vec::Vec};

/// An epoch ends when one in so many of the resident pages has left, and `EPOCH_MIN` at least. So
/// as many pages leave in so many epochs as are in memory.
const EPOCHS: u64 = price::EPOCHS as u64;
const EPOCH_MIN: u64 = 64;
/// Counts of faults decay by one in so many in each epoch.
const DECAY: u64 = 8;
/// Counted for one fault.
const FAULT: u64 = 64;
/// Fewest near faults that say anything.
const NEAR_MIN: u64 = 64 * FAULT;
/// So many pooled pages, one in `OLDEST_PART` and `OLDEST_MIN` at least, are as old as what counts
/// as oldest: a few that are much older say nothing of the others.
const OLDEST_PART: u64 = 16;
const OLDEST_MIN: u64 = 16;
/// Elapsed time of a fault from the pool, with the eviction that makes room for it, us
/// (docs/performance.md, Many processes).
const POOL_FAULT_US: u64 = 25;
/// Time of a read from the swap tier in a fault, us, before one has been measured.
const READ_US: u32 = 100;
/// Cost of a write, us. Its time is a tenth of that; the rest is for wear.
const WRITE_US: u64 = 25;
/// Most buckets of pooled objects by age.
const BUCKETS: usize = 64;

/// Pooled objects whose pages were evicted from epoch `first` on, up to the next bucket.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    first: u32,
    objects: u32,
}

/// Ages of objects, and the faults that tell what frames are worth.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    /// The current epoch, and evictions in it.
    now: u32,
    evictions: u64,
    /// Epochs in which as many pages leave as are in memory.
    near_age: u32,
    /// The epoch in which the page of each object was evicted.
    born: Vec<u32>,
    /// From the oldest on. The older, the more epochs a bucket may have.
    pooled: VecDeque<Bucket>,
    /// The youngest epoch that ever had a bucket.
    newest: u32,
    /// Age of the oldest pooled objects, epochs.
    oldest: u32,
    /// Faults on near pages from the pool. Faults on pages of the older half of the pool by age, or
    /// as old and no longer there.
    near: u64,
    tail: u64,
    price: Price,
}

/// Evictions in an epoch, for so many pages in memory.
fn epoch_length(resident: u64) -> u64 {
    (resident / EPOCHS).max(EPOCH_MIN)
}

impl Ages {
    /// A page was evicted; so many are in memory.
    pub fn evicted(&mut self, id: ObjectId, resident: u64) {
        let i = id.0 as usize;
        if self.born.len() <= i {
            let missing = i + 1 - self.born.len();
            reserve_tight(&mut self.born, missing);
            self.born.resize(i + 1, 0);
        }
        self.born[i] = self.now;
        self.evictions += 1;
        let length = epoch_length(resident);
        self.near_age = (resident / length) as u32;
        if self.evictions >= length {
            (self.evictions, self.now) = (0, self.now.saturating_add(1));
            self.near -= self.near / DECAY;
            self.tail -= self.tail / DECAY;
            self.find_oldest();
        }
    }

    fn age(&self, id: ObjectId) -> u32 {
        self.now - self.born[id.0 as usize]
    }

    fn find_oldest(&mut self) {
        let all: u64 = self.pooled.iter().map(|bucket| u64::from(bucket.objects)).sum();
        let mut left = (all / OLDEST_PART).max(OLDEST_MIN);
        self.oldest = 0;
        for bucket in &self.pooled {
            if u64::from(bucket.objects) >= left {
                self.oldest = self.now - bucket.first;
                break;
            }
            left -= u64::from(bucket.objects);
        }
    }

    /// The bucket of an epoch, if there is one.
    fn bucket(&self, epoch: u32) -> Option<usize> {
        self.pooled.partition_point(|bucket| bucket.first <= epoch).checked_sub(1)
    }

    /// The object enters the pool.
    pub fn enters(&mut self, id: ObjectId) {
        let born = self.born[id.0 as usize];
        // An epoch between two buckets belongs to the older one, for all of its objects.
        if self.pooled.is_empty() || born > self.newest {
            self.newest = born.max(self.newest);
            self.pooled.push_back(Bucket { first: born, objects: 0 });
        }
        let at = self.bucket(born).unwrap_or_else(|| {
            self.pooled.push_front(Bucket { first: born, objects: 0 });
            0
        });
        self.pooled[at].objects += 1;
        if self.pooled.len() > BUCKETS {
            self.merge();
        }
    }

    /// Merges the two neighbours that have the fewest epochs for their age.
    fn merge(&mut self) {
        let end = |i: usize| self.pooled.get(i).map_or(self.now + 1, |bucket| bucket.first);
        let width = |&i: &usize| {
            let first = self.pooled[i].first;
            (u64::from(end(i + 2) - first) << 32) / u64::from(self.now - first + 1)
        };
        let Some(at) = (0..self.pooled.len() - 1).min_by_key(width) else { return };
        if let Some(merged) = self.pooled.remove(at + 1) {
            self.pooled[at].objects += merged.objects;
        }
    }

    /// The object leaves the pool.
    pub fn leaves(&mut self, id: ObjectId) {
        let at = self.bucket(self.born[id.0 as usize]).expect("a pooled object is counted");
        self.pooled[at].objects -= 1;
        if self.pooled[at].objects == 0 {
            self.pooled.remove(at);
        }
    }

    /// Whether the object is in the older half of the pool by age.
    pub fn is_old(&self, id: ObjectId) -> bool {
        self.age(id) >= self.oldest / 2
    }

    /// A fault on the page of an object that is in the pool, or was.
    pub fn faulted(&mut self, id: ObjectId, pooled: bool) {
        let age = self.age(id);
        self.near += if pooled && age <= self.near_age { FAULT } else { 0 };
        // What is much older left the pool long ago, and says nothing of the pages that are there.
        let of_tail = self.is_old(id) && (pooled || age <= self.oldest.saturating_mul(2));
        self.tail += if of_tail { FAULT } else { 0 };
    }

    /// A page came back; so many are in memory.
    pub fn came_back(&mut self, id: ObjectId, how: Return, resident: u64) {
        self.price.came_back(self.age(id), how, epoch_length(resident));
    }

    /// See [`Price::of_page`].
    pub fn page_price(&self, resident: u64, zpages: u64, frames: u64) -> u64 {
        self.price.of_page(epoch_length(resident), zpages, frames)
    }

    /// Whether frames of the older pooled objects are worth more to the programs. `resident`:
    /// pages in memory. The pool has `zpages` in `frames`. `read_us`: time of a read from the swap
    /// tier in a fault; 0: not known.
    pub fn pool_gives(&self, resident: u64, zpages: u64, frames: u64, read_us: u32) -> bool {
        let old = self.pooled.iter().take_while(|bucket| self.now - bucket.first >= self.oldest / 2);
        let old: u64 = old.map(|bucket| u64::from(bucket.objects)).sum();
        if self.near < NEAR_MIN || old == 0 {
            return false;
        }
        let read_us = if read_us == 0 { READ_US } else { read_us };
        // Both sides are times in DECAY epochs for a frame, each times FAULT:
        //   POOL_FAULT_US * near / resident
        //     > zpages / frames * (read_us * tail / old + write / oldest)
        let write = u128::from(WRITE_US * DECAY * FAULT);
        let [near, tail, old, oldest] = [self.near, self.tail, old, self.oldest.max(1).into()].map(u128::from);
        let gain = u128::from(POOL_FAULT_US) * near * u128::from(frames) * old * oldest;
        let loss = u128::from(resident) * u128::from(zpages) * (u128::from(read_us) * tail * oldest + write * old);
        gain > loss
    }

    /// Bytes of the tables.
    pub fn metadata_bytes(&self) -> u64 {
        (self.born.capacity() * size_of::<u32>()) as u64
    }

    /// Asserts that the counts are those of the pooled objects.
    pub fn check(&self, pooled: impl Iterator<Item = ObjectId>) {
        let mut counts: Vec<Bucket> = self.pooled.iter().map(|bucket| Bucket { objects: 0, ..*bucket }).collect();
        for id in pooled {
            let born = self.born[id.0 as usize];
            let at = counts.partition_point(|bucket| bucket.first <= born);
            counts[at - 1].objects += 1;
        }
        assert!(counts.iter().map(|bucket| bucket.objects).eq(self.pooled.iter().map(|bucket| bucket.objects)));
        assert!(self.pooled.len() <= BUCKETS && self.pooled.iter().all(|bucket| bucket.objects > 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1024 pages are in memory: an epoch has 128 evictions.
    const RESIDENT: u64 = 1024;

    /// Evicts the page of an object, which enters the pool.
    fn evict(ages: &mut Ages, i: u32) {
        ages.evicted(ObjectId(i), RESIDENT);
        ages.enters(ObjectId(i));
    }

    fn back(ages: &mut Ages, i: u32) {
        ages.faulted(ObjectId(i), true);
        ages.leaves(ObjectId(i));
    }

    /// A working set that does not fit beside `cold` pages that nobody wants.
    fn thrashing(cold: u32) -> Ages {
        let mut ages = Ages::default();
        (0..cold).for_each(|i| evict(&mut ages, i));
        for i in 0..50_000 {
            if i >= 512 {
                back(&mut ages, cold + i % 512);
            }
            evict(&mut ages, cold + i % 512);
        }
        ages
    }

    #[test]
    fn cold_pages_give_way_to_a_working_set() {
        let ages = thrashing(4000);
        assert!(ages.pool_gives(RESIDENT, 4512, 2000, 0) && ages.pool_gives(RESIDENT, 4512, 2000, 10_000));
        assert!(ages.is_old(ObjectId(0)) && ages.is_old(ObjectId(3999)) && !ages.is_old(ObjectId(4000)));
        ages.check((0..4512).map(ObjectId));
        assert!(!Ages::default().pool_gives(RESIDENT, 4512, 2000, 0), "nothing is known");
    }

    #[test]
    fn where_a_read_takes_long_few_faults_on_cold_pages_count() {
        let mut ages = thrashing(4000);
        (0..40).for_each(|i| ages.faulted(ObjectId(i), true));
        assert!(ages.pool_gives(RESIDENT, 4512, 2000, 0) && !ages.pool_gives(RESIDENT, 4512, 2000, 10_000));
    }

    #[test]
    fn pages_that_are_all_wanted_as_often_stay_in_the_pool() {
        let mut ages = Ages::default();
        (0..4096).for_each(|i| evict(&mut ages, i));
        let mut random = 1u32;
        for _ in 0..100_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            back(&mut ages, random >> 20);
            evict(&mut ages, random >> 20);
            assert!(!ages.pool_gives(RESIDENT, 4096, 2000, 60));
        }
        ages.check((0..4096).map(ObjectId));
    }

    #[test]
    fn reads_of_what_was_written_end_it() {
        let mut ages = thrashing(4000);
        (0..2000).for_each(|i| ages.leaves(ObjectId(i)));
        assert!(ages.pool_gives(RESIDENT, 2512, 1100, 0));
        (0..400).for_each(|i| ages.faulted(ObjectId(i), false));
        assert!(!ages.pool_gives(RESIDENT, 2512, 1100, 0));
    }

    #[test]
    fn a_few_pages_that_are_much_older_say_nothing() {
        let ages = thrashing(8);
        assert!(!ages.is_old(ObjectId(0)) || ages.oldest < 16, "{}", ages.oldest);
        assert!(!ages.pool_gives(RESIDENT, 520, 250, 0));
    }

    #[test]
    fn the_buckets_stay_few_and_fine_and_count_right() {
        let mut ages = Ages::default();
        let stays = |i: &u32| i % 3 == 0 && i % 5 != 0;
        for i in 0..20_000 {
            evict(&mut ages, i);
            if !stays(&i) {
                ages.leaves(ObjectId(i));
            }
        }
        ages.check((0..20_000).filter(stays).map(ObjectId));
        // An object whose write failed comes back with its age, also where its bucket is gone.
        (0..10_000).filter(stays).for_each(|i| ages.leaves(ObjectId(i)));
        ages.enters(ObjectId(3));
        ages.enters(ObjectId(6000));
        ages.check([3, 6000].into_iter().chain((10_000..20_000).filter(stays)).map(ObjectId));
        (10_000..19_000).filter(stays).for_each(|i| ages.leaves(ObjectId(i)));
        // What is left is young: after as many evictions again there is a bucket for each epoch.
        for i in 20_000..22_000 {
            evict(&mut ages, i);
        }
        let fine = ages.pooled.iter().filter(|bucket| bucket.first >= 20_000 / 128).count();
        assert_eq!(fine, 2000 / 128 + 1);
    }
}
