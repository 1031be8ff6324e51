//! The blocks of one zone: which are free, and where the free runs are.
//!
//! A bit per block says whether it is free. A binary tree over the words of the bitmap has three
//! numbers for each part of the zone: the length of the free run at its start, of that at its end,
//! and of the longest one. So finding, taking and freeing a run is O(log words); a search finds the
//! lowest run of `k` free blocks.
//!
//! ```text
//! tree   [ head 0, longest 5, tail 3 ]                       both halves together
//!        [ 0, 2, 2 ]         [ 3, 3, 3 ]                     3 + 2 meet in the middle: longest 5
//! words  ..xx.x.x x.xxx..     ...xxxx. x..x....              (8 blocks a word here, 64 in truth)
//! ```
//!
//! No page needs more than [`RUN_MAX`] blocks, so lengths are capped at that and a node takes 3
//! bytes. With the bitmap that is 0.22 to 0.31 bytes per block; the two numbers of the paper's
//! block table take 8.

use super::super::span::{mask, runs};
use super::super::{table_bytes, LEN_MAX};
use alloc::{vec, vec::Vec};

/// Smallest block, bytes.
pub(super) const BLOCK_BYTES_MIN: u32 = 32;

/// Most blocks of a page.
pub(super) const RUN_MAX: u32 = LEN_MAX / BLOCK_BYTES_MIN;
const _: () = assert!(RUN_MAX <= u8::MAX as u32);

const WORD: u32 = u64::BITS;

/// Free runs of a part of the zone, in blocks; each at most [`RUN_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Runs {
    /// At its start.
    head: u8,
    /// At its end.
    tail: u8,
    /// The longest one.
    longest: u8,
}

impl Runs {
    fn of_word(word: u64) -> Runs {
        let (mut longest, mut step) = (0, WORD);
        // The longest run, by binary search for its length.
        while step > 0 {
            if longest + step <= WORD && runs(word, longest + step) != 0 {
                longest += step;
            }
            step /= 2;
        }
        Runs { head: word.trailing_ones() as u8, tail: word.leading_ones() as u8, longest: longest as u8 }
    }

    /// Joins two neighbours of `blocks` blocks each.
    fn join(left: Runs, right: Runs, blocks: u32) -> Runs {
        let all = blocks.min(RUN_MAX) as u8;
        let reach = |near: u8, far: u8| if near == all { capped(near, far) } else { near };
        Runs {
            head: reach(left.head, right.head),
            tail: reach(right.tail, left.tail),
            longest: left.longest.max(right.longest).max(capped(left.tail, right.head)),
        }
    }
}

fn capped(a: u8, b: u8) -> u8 {
    (u32::from(a) + u32::from(b)).min(RUN_MAX) as u8
}

/// Free and used blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Bit set: block is free. Bits beyond the zone are never set.
    free: Vec<u64>,
    /// Node 1 is the root, the children of node `i` are `2 * i` and `2 * i + 1`; the second half of
    /// the table are the words.
    tree: Vec<Runs>,
    used: u32,
    blocks: u32,
}

impl Blocks {
    /// A map of `blocks` free blocks.
    pub fn new(blocks: u32) -> Blocks {
        let words = blocks.div_ceil(WORD);
        let free: Vec<u64> = (0..words).map(|word| mask((blocks - word * WORD).min(WORD))).collect();
        let tree = vec![Runs::default(); 2 * free.len().next_power_of_two()];
        let mut new = Blocks { free, tree, used: 0, blocks };
        new.refresh(0, words as usize - 1);
        new
    }

    /// Blocks in use.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Free blocks, contiguous or not.
    pub fn free(&self) -> u32 {
        self.blocks - self.used
    }

    /// Length of the longest free run, at most [`RUN_MAX`].
    pub fn longest(&self) -> u32 {
        u32::from(self.tree[1].longest)
    }

    /// First block of the lowest run of `blocks` free blocks, `1..=RUN_MAX`.
    pub fn lowest(&self, blocks: u32) -> Option<u32> {
        if self.longest() < blocks {
            return None;
        }
        let words = self.tree.len() / 2;
        let (mut node, mut first, mut len) = (1, 0, words as u32 * WORD);
        while node < words {
            let (left, right) = (self.tree[2 * node], self.tree[2 * node + 1]);
            len /= 2;
            if u32::from(left.longest) >= blocks {
                node *= 2;
            } else if u32::from(left.tail) + u32::from(right.head) >= blocks {
                return Some(first + len - u32::from(left.tail));
            } else {
                node = 2 * node + 1;
                first += len;
            }
        }
        Some(first + runs(self.free[node - words], blocks).trailing_zeros())
    }

    /// Marks free blocks as used.
    pub fn take(&mut self, first: u32, blocks: u32) {
        self.flip(first, blocks, true);
        self.used += blocks;
    }

    /// Marks used blocks as free.
    pub fn put(&mut self, first: u32, blocks: u32) {
        self.flip(first, blocks, false);
        self.used -= blocks;
    }

    fn flip(&mut self, first: u32, blocks: u32, was_free: bool) {
        let end = first + blocks;
        let (low, high) = ((first / WORD) as usize, ((end - 1) / WORD) as usize);
        let mut at = first;
        for word in &mut self.free[low..=high] {
            let n = (end - at).min(WORD - at % WORD);
            let bits = mask(n) << (at % WORD);
            assert_eq!(*word & bits, if was_free { bits } else { 0 }, "blocks {first} to {end}");
            *word ^= bits;
            at += n;
        }
        self.refresh(low, high);
    }

    /// Updates the tree for the words `low..=high`.
    fn refresh(&mut self, low: usize, high: usize) {
        let words = self.tree.len() / 2;
        for word in low..=high {
            self.tree[words + word] = Runs::of_word(self.free[word]);
        }
        let (mut low, mut high, mut len) = (words + low, words + high, WORD);
        while low > 1 {
            (low, high) = (low / 2, high / 2);
            for node in low..=high {
                self.tree[node] = Runs::join(self.tree[2 * node], self.tree[2 * node + 1], len);
            }
            len *= 2;
        }
    }

    /// Heap bytes.
    pub fn metadata_bytes(&self) -> u64 {
        table_bytes(&self.free) + table_bytes(&self.tree)
    }

    /// Whether all these blocks are in use.
    pub fn all_used(&self, first: u32, blocks: u32) -> bool {
        (first..first + blocks).all(|block| self.free[(block / WORD) as usize] >> (block % WORD) & 1 == 0)
    }

    /// Panics unless the tree agrees with a walk over the blocks.
    pub fn check(&self) {
        let bit = |block: u32| self.free[(block / WORD) as usize] >> (block % WORD) & 1 == 1;
        assert_eq!((0..self.blocks).filter(|&block| bit(block)).count() as u32, self.free());
        assert!(
            (self.blocks..self.free.len() as u32 * WORD).all(|block| !bit(block)),
            "blocks beyond the zone are free"
        );
        let (mut longest, mut run) = (0, 0);
        for block in 0..self.blocks {
            run = if bit(block) { run + 1 } else { 0 };
            longest = longest.max(run);
        }
        assert_eq!(self.longest(), longest.min(RUN_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_words_and_neighbours() {
        assert_eq!(Runs::of_word(0), Runs::default());
        assert_eq!(Runs::of_word(u64::MAX), Runs { head: 64, tail: 64, longest: 64 });
        let left = Runs::of_word(0b11 << 62 | 0b111_0011);
        assert_eq!(left, Runs { head: 2, tail: 2, longest: 3 });
        let right = Runs::of_word(0b1_1111);
        assert_eq!(Runs::join(left, right, 64), Runs { head: 2, tail: 0, longest: 7 });
        let free = Runs::of_word(u64::MAX);
        assert_eq!(Runs::join(left, free, 64), Runs { head: 2, tail: 66, longest: 66 });
        assert_eq!(Runs::join(free, right, 64), Runs { head: 69, tail: 0, longest: 69 });
        // Beyond what a page needs, the exact length does not matter.
        let long = Runs::join(free, free, 64);
        assert_eq!(Runs::join(long, long, 128), Runs { head: 128, tail: 128, longest: 128 });
    }

    /// Three words and a bit: runs over word borders, and a last word that is not whole.
    #[test]
    fn lowest_run_by_hand() {
        let mut blocks = Blocks::new(200);
        assert_eq!((blocks.longest(), blocks.lowest(128)), (128, Some(0)));
        blocks.take(0, 200);
        assert_eq!((blocks.longest(), blocks.lowest(1), blocks.free()), (0, None, 0));
        blocks.put(60, 8);
        blocks.put(120, 80);
        blocks.put(10, 3);
        blocks.check();
        assert_eq!(
            [3, 4, 8, 9, 80, 81].map(|k| blocks.lowest(k)),
            [Some(10), Some(60), Some(60), Some(120), Some(120), None]
        );
        blocks.take(120, 74);
        assert_eq!([6, 7].map(|k| blocks.lowest(k)), [Some(60), Some(60)]);
        blocks.take(60, 8);
        assert_eq!([6, 7].map(|k| blocks.lowest(k)), [Some(194), None]);
        blocks.check();
        assert!(blocks.all_used(13, 47) && !blocks.all_used(12, 47));
    }

    /// Compared with a walk over all blocks, with runs of every length.
    #[test]
    fn lowest_run_as_by_walking() {
        let (mut blocks, mut free, mut taken) = (Blocks::new(1000), vec![true; 1000], Vec::new());
        for step in 0..4000u32 {
            let k = 1 + step.wrapping_mul(2_654_435_761) % RUN_MAX;
            let expected = free.windows(k as usize).position(|run| run.iter().all(|free| *free));
            assert_eq!(blocks.lowest(k), expected.map(|block| block as u32), "{k} blocks at step {step}");
            match expected {
                Some(first) if step % 3 != 0 => {
                    blocks.take(first as u32, k);
                    free[first..][..k as usize].fill(false);
                    taken.push((first, k));
                }
                _ if taken.is_empty() => {}
                _ => {
                    let (first, k) = taken.swap_remove(step as usize * 7 % taken.len());
                    blocks.put(first as u32, k);
                    free[first..][..k as usize].fill(true);
                }
            }
            blocks.check();
        }
    }

    #[test]
    #[should_panic(expected = "blocks 5 to 7")]
    fn double_take() {
        let mut blocks = Blocks::new(64);
        blocks.take(6, 1);
        blocks.take(5, 2);
    }
}
