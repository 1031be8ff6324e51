//! The blocks of one device: which are free, where the free runs are, and how many objects each
//! holds.
//!
//! One bit per block says whether it is free. A *leaf* of 512 blocks has the length of the free
//! runs at its start and end and of its longest one. A binary tree over the leaves has the same of
//! every aligned piece. So the lowest run of any length and the next free block are found on one
//! walk down the tree. The tables cover only the lowest blocks, as far as any search has come:
//!
//! ```text
//! blocks       |<----------- seen: leaves in the tables ----------->|<- free, not in the tables ->|
//! ```
//!
//! Metadata per seen block: 1 bit, 2 bytes of count, 12 / 256 bytes of tree.

use crate::grow::reserve_tight;
use alloc::vec::Vec;

const WORD: u32 = u64::BITS;
const LEAF_WORDS: usize = 8;
/// Blocks of a leaf.
pub(super) const LEAF: u32 = LEAF_WORDS as u32 * WORD;

/// Free runs of an aligned piece, in blocks: at its start, at its end, and the longest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Runs {
    head: u32,
    tail: u32,
    most: u32,
}

impl Runs {
    fn of_leaf(words: &[u64]) -> Runs {
        let mut runs = Runs::default();
        // Length of the free run that ends here.
        let mut open = 0;
        for (i, &word) in (0..).zip(words) {
            if word == u64::MAX {
                open += WORD;
                continue;
            }
            let first = open + word.trailing_ones();
            if open == i * WORD {
                runs.head = first;
            }
            runs.most = runs.most.max(first);
            if word.count_ones() > runs.most {
                runs.most = runs.most.max(longest(word));
            }
            open = word.leading_ones();
        }
        if open == LEAF {
            runs.head = open;
        }
        Runs { tail: open, most: runs.most.max(open), ..runs }
    }

    /// Joins two neighbours of `half` blocks each.
    fn join(left: Runs, right: Runs, half: u32) -> Runs {
        Runs {
            head: if left.head == half { half + right.head } else { left.head },
            tail: if right.tail == half { half + left.tail } else { right.tail },
            most: left.most.max(right.most).max(left.tail + right.head),
        }
    }
}

/// Length of the longest run of ones.
fn longest(mut word: u64) -> u32 {
    let mut len = 0;
    // Each round shortens all runs by one.
    while word != 0 {
        word &= word << 1;
        len += 1;
    }
    len
}

/// Iterator over the free runs of some words, in ascending order: start and length.
struct FreeRuns<'a> {
    words: &'a [u64],
    at: u32,
}

impl FreeRuns<'_> {
    /// The first free (or used) block at or after `at`; the end if there is none.
    fn next_block(&self, free: bool) -> u32 {
        let end = self.words.len() as u32 * WORD;
        let mut at = self.at;
        while at < end {
            let word = self.words[(at / WORD) as usize];
            let wanted = if free { word } else { !word } >> (at % WORD);
            if wanted != 0 {
                return at + wanted.trailing_zeros();
            }
            at = (at / WORD + 1) * WORD;
        }
        end
    }
}

impl Iterator for FreeRuns<'_> {
    type Item = (u32, u32);

    fn next(&mut self) -> Option<(u32, u32)> {
        let start = self.next_block(true);
        self.at = start;
        self.at = self.next_block(false);
        (self.at > start).then(|| (start, self.at - start))
    }
}

/// Contiguous blocks, counted from 0 inside.
#[derive(Debug)]
pub(super) struct BlockRegion {
    first: u32,
    blocks: u32,
    used: u32,
    /// Bit set: the block is free. In whole leaves; bits beyond the end of the region are never
    /// set.
    free: Vec<u64>,
    /// Objects in each seen block.
    counts: Vec<u16>,
    /// `levels[k]` has the pieces of `LEAF << k` blocks; the last level has one piece.
    levels: Vec<Vec<Runs>>,
    /// Where the search for a single block continues.
    cursor: u32,
    /// No block from here on was ever used.
    top: u32,
}

impl BlockRegion {
    pub fn new(range: &core::ops::Range<u32>) -> Self {
        let (free, counts, levels) = (Vec::new(), Vec::new(), Vec::new());
        let (first, blocks) = (range.start, range.end - range.start);
        BlockRegion { first, blocks, used: 0, free, counts, levels, cursor: 0, top: 0 }
    }

    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    pub fn used(&self) -> u32 {
        self.used
    }

    pub fn range(&self) -> core::ops::Range<u32> {
        self.first..self.first + self.blocks
    }

    /// Takes the next free block after the last one taken; at the end, continues from the start.
    pub fn take_next(&mut self) -> Option<u32> {
        if self.used == self.blocks {
            return None;
        }
        let index = self.next_free(self.cursor).or_else(|| self.next_free(0)).expect("a block is free");
        self.occupy(index, 1);
        self.cursor = index + 1;
        Some(self.first + index)
    }

    /// First block of the lowest run of at least `len` free blocks.
    pub fn first_run(&mut self, len: u32) -> Option<u32> {
        if len > self.blocks - self.used {
            return None;
        }
        while self.longest_seen() < len {
            self.grow()?;
        }
        Some(self.first + self.find_run(len))
    }

    /// Length of the longest free run.
    pub fn longest(&mut self) -> u32 {
        while self.grow().is_some() {}
        self.longest_seen()
    }

    fn longest_seen(&self) -> u32 {
        self.levels.last().map_or(0, |top| top[0].most)
    }

    /// Takes free blocks; each then holds one object.
    pub fn take_run(&mut self, block: u32, len: u32) {
        self.occupy(block - self.first, len);
    }

    /// Objects in a block, 0 if it is free.
    pub fn count(&self, block: u32) -> u16 {
        self.counts.get((block - self.first) as usize).copied().unwrap_or(0)
    }

    /// Adds objects to a used block.
    pub fn add(&mut self, block: u32, objects: u16) {
        let count = self.counts.get_mut((block - self.first) as usize).filter(|count| **count > 0);
        let count = count.unwrap_or_else(|| panic!("block {block} is free"));
        *count = count.checked_add(objects).expect("a block does not hold so many objects");
    }

    /// Removes an object from a block. Returns whether it was the last one, so that the block is
    /// free.
    pub fn release(&mut self, block: u32) -> bool {
        let index = block - self.first;
        let count = self.counts.get_mut(index as usize).filter(|count| **count > 0);
        let count = count.unwrap_or_else(|| panic!("block {block} is free"));
        *count -= 1;
        if *count > 0 {
            return false;
        }
        self.free[(index / WORD) as usize] |= 1 << (index % WORD);
        self.used -= 1;
        self.refresh(index / LEAF);
        true
    }

    /// Gives up all blocks behind the last one that was ever used. Returns how many.
    pub fn cut(&mut self) -> u32 {
        let cut = self.blocks - self.top;
        self.blocks = self.top;
        let seen = self.counts.len() as u32;
        (self.top..seen).for_each(|index| self.free[(index / WORD) as usize] &= !(1 << (index % WORD)));
        (self.top / LEAF..seen / LEAF).for_each(|leaf| self.refresh(leaf));
        cut
    }

    /// Heap bytes.
    pub fn metadata_bytes(&self) -> u64 {
        let levels: usize = self.levels.iter().map(|level| level.capacity() * size_of::<Runs>()).sum();
        let lists = self.levels.capacity() * size_of::<Vec<Runs>>();
        (self.free.capacity() * size_of::<u64>() + self.counts.capacity() * size_of::<u16>() + levels + lists) as u64
    }

    /// Panics unless counts, bits and tree agree.
    pub fn check(&self) {
        assert_eq!(self.counts.len(), self.free.len() * WORD as usize);
        let mut used = 0;
        for (index, &count) in (0..).zip(&self.counts) {
            let free = self.free[(index / WORD) as usize] >> (index % WORD) & 1 == 1;
            assert_eq!(free, count == 0 && index < self.blocks, "block {index} with {count} objects");
            used += u32::from(count > 0);
        }
        assert_eq!(used, self.used);
        for (leaf, words) in self.free.chunks(LEAF_WORDS).enumerate() {
            assert_eq!(self.levels[0][leaf], Runs::of_leaf(words), "runs of leaf {leaf}");
        }
        assert_eq!(self.levels.first().map_or(0, Vec::len), self.free.len() / LEAF_WORDS);
        for (k, pair) in self.levels.windows(2).enumerate() {
            assert_eq!(pair[1].len(), pair[0].len().div_ceil(2));
            for (i, node) in pair[1].iter().enumerate() {
                assert_eq!(*node, self.joined(k + 1, i), "piece {i} of level {k}");
            }
        }
        assert!(self.levels.last().is_none_or(|top| top.len() == 1));
    }

    /// Adds the next leaf to the tables; `None` if they cover all blocks.
    fn grow(&mut self) -> Option<()> {
        let seen = self.counts.len() as u32;
        let left = self.blocks.checked_sub(seen).filter(|&left| left > 0)?;
        reserve_tight(&mut self.free, LEAF_WORDS);
        reserve_tight(&mut self.counts, LEAF as usize);
        for word in 0..LEAF_WORDS as u32 {
            let bits = left.saturating_sub(word * WORD).min(WORD);
            self.free.push(u64::MAX.checked_shr(WORD - bits).unwrap_or(0));
        }
        self.counts.resize(self.free.len() * WORD as usize, 0);
        self.refresh(seen / LEAF);
        Some(())
    }

    /// The lowest free block from `from` on.
    fn next_free(&mut self, from: u32) -> Option<u32> {
        loop {
            if let Some(index) = self.next_seen(from) {
                return Some(index);
            }
            self.grow()?;
        }
    }

    fn next_seen(&self, from: u32) -> Option<u32> {
        let leaf = (from / LEAF) as usize;
        let rest = FreeRuns { words: self.free.get(leaf * LEAF_WORDS..(leaf + 1) * LEAF_WORDS)?, at: from % LEAF };
        if let Some((start, _)) = { rest }.next() {
            return Some(leaf as u32 * LEAF + start);
        }
        // Up to the first piece on the right with a free block, and down to its lowest one.
        let (mut level, mut piece) = (0, leaf);
        loop {
            if piece % 2 == 0 && self.levels[level].get(piece + 1).is_some_and(|runs| runs.most > 0) {
                break;
            }
            (level, piece) = (level + 1, piece / 2);
            if level == self.levels.len() {
                return None;
            }
        }
        Some(self.descend(level, piece + 1, 1))
    }

    /// Start of the lowest run of at least `len` blocks; there must be one.
    fn find_run(&self, len: u32) -> u32 {
        self.descend(self.levels.len() - 1, 0, len)
    }

    /// Start of the lowest run of at least `len` blocks in a piece that has one.
    fn descend(&self, level: usize, piece: usize, len: u32) -> u32 {
        let (mut level, mut piece) = (level, piece);
        while level > 0 {
            let (below, half) = (&self.levels[level - 1], LEAF << (level - 1));
            let left = below[2 * piece];
            if left.most < len && below.get(2 * piece + 1).is_some_and(|right| left.tail + right.head >= len) {
                return (2 * piece as u32 + 1) * half - left.tail;
            }
            (level, piece) = (level - 1, 2 * piece + usize::from(left.most < len));
        }
        let words = &self.free[piece * LEAF_WORDS..][..LEAF_WORDS];
        let (start, _) = (FreeRuns { words, at: 0 }).find(|run| run.1 >= len).expect("the tree knows of a run");
        piece as u32 * LEAF + start
    }

    /// Marks free blocks as used, with one object each.
    fn occupy(&mut self, index: u32, len: u32) {
        while (self.counts.len() as u32) < index + len {
            self.grow().expect("the blocks are of this region");
        }
        for i in index..index + len {
            let bit = 1 << (i % WORD);
            assert!(self.free[(i / WORD) as usize] & bit != 0, "block {} is in use", self.first + i);
            self.free[(i / WORD) as usize] &= !bit;
            self.counts[i as usize] = 1;
        }
        self.used += len;
        self.top = self.top.max(index + len);
        (index / LEAF..=(index + len - 1) / LEAF).for_each(|leaf| self.refresh(leaf));
    }

    /// Updates the tree for a leaf, which may be a new one at the end.
    fn refresh(&mut self, leaf: u32) {
        let mut piece = leaf as usize;
        let mut runs = Runs::of_leaf(&self.free[piece * LEAF_WORDS..][..LEAF_WORDS]);
        for level in 0.. {
            if level == self.levels.len() {
                self.levels.push(Vec::new());
            }
            let row = &mut self.levels[level];
            match row.get_mut(piece) {
                Some(old) if *old == runs => return,
                Some(old) => *old = runs,
                None => {
                    reserve_tight(row, 1);
                    row.push(runs);
                }
            }
            if row.len() == 1 {
                return;
            }
            piece /= 2;
            runs = self.joined(level + 1, piece);
        }
    }

    fn joined(&self, level: usize, piece: usize) -> Runs {
        let below = &self.levels[level - 1];
        let right = below.get(2 * piece + 1).copied().unwrap_or_default();
        Runs::join(below[2 * piece], right, LEAF << (level - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runs_of_a_leaf_are_those_that_one_finds_by_going_through_it() {
        let mut random = 1u64;
        for round in 0..20_000 {
            let words: Vec<u64> = (0..LEAF_WORDS)
                .map(|_| {
                    let mut next = || {
                        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        random ^ random >> 29
                    };
                    match next() >> 61 {
                        0 | 1 => u64::MAX,
                        2 => 0,
                        3 => u64::MAX << (next() % 64),
                        4 => u64::MAX >> (next() % 64),
                        5 => next() | next() | next(),
                        _ if round % 5 == 0 => u64::MAX,
                        _ => next(),
                    }
                })
                .collect();
            let mut runs = Runs::default();
            for (start, len) in (FreeRuns { words: &words, at: 0 }) {
                runs.most = runs.most.max(len);
                if start == 0 {
                    runs.head = len;
                }
                if start + len == LEAF {
                    runs.tail = len;
                }
            }
            assert_eq!(Runs::of_leaf(&words), runs, "{words:x?}");
        }
    }

    #[test]
    fn runs_of_a_leaf() {
        let mut words = [0u64; LEAF_WORDS];
        assert_eq!(Runs::of_leaf(&words), Runs::default());
        words[0] = 0b0111_0011;
        words[1] = u64::MAX << 60;
        words[2] = 0b11;
        words[7] = 0b101 << 61;
        let runs = [(0, 2), (4, 3), (124, 6), (509, 1), (511, 1)];
        assert_eq!((FreeRuns { words: &words, at: 0 }).collect::<Vec<_>>(), runs);
        assert_eq!(Runs::of_leaf(&words), Runs { head: 2, tail: 1, most: 6 });
        assert_eq!(Runs::of_leaf(&[u64::MAX; LEAF_WORDS]), Runs { head: LEAF, tail: LEAF, most: LEAF });
    }

    #[test]
    fn runs_join_over_the_middle() {
        let (all, none) = (Runs { head: 8, tail: 8, most: 8 }, Runs::default());
        let (ends, start) = (Runs { head: 2, tail: 3, most: 3 }, Runs { head: 1, tail: 0, most: 4 });
        assert_eq!(Runs::join(all, all, 8), Runs { head: 16, tail: 16, most: 16 });
        assert_eq!(Runs::join(all, start, 8), Runs { head: 9, tail: 0, most: 9 });
        assert_eq!(Runs::join(ends, start, 8), Runs { head: 2, tail: 0, most: 4 });
        assert_eq!(Runs::join(ends, all, 8), Runs { head: 2, tail: 11, most: 11 });
        assert_eq!(Runs::join(none, ends, 8), Runs { head: 0, tail: 3, most: 3 });
    }
}
