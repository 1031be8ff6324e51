//! The C heap: blocks of all sizes with known contents.

use crate::content::stream_word;
use crate::ctx::Ctx;
use crate::report::{self, Who};
use crate::rng::{mix2, Rng};

struct Block {
    at: *mut u64,
    words: usize,
    seed: u64,
}

/// Heap blocks of a thread.
pub struct Heap {
    blocks: Vec<Block>,
    bytes: usize,
    limit: usize,
}

/// Large enough for blocks that malloc maps separately.
const LARGEST_WORDS: usize = 1 << 17;

impl Heap {
    /// An empty heap of at most `limit` bytes.
    pub fn new(limit: usize) -> Heap {
        Heap { blocks: Vec::new(), bytes: 0, limit }
    }

    fn largest(&self) -> usize {
        LARGEST_WORDS.min(self.limit / 8 / 4).max(16)
    }

    fn alloc(&mut self, who: &Who, rng: &mut Rng) {
        let words = rng.log_size(self.largest());
        // SAFETY: plain allocations; checked for null below.
        let at = unsafe {
            match rng.below(4) {
                0 => libc::calloc(words, 8),
                1 => libc::memalign(16 << rng.below(9), words * 8),
                _ => libc::malloc(words * 8),
            }
        };
        if at.is_null() {
            report::broken(who, "malloc", &"no memory");
        }
        let block = Block { at: at.cast(), words, seed: rng.next() };
        block.fill(0);
        self.bytes += words * 8;
        self.blocks.push(block);
    }

    fn resize(&mut self, i: usize, who: &Who, rng: &mut Rng) {
        let words = rng.log_size(self.largest());
        let block = &mut self.blocks[i];
        // SAFETY: a live block of this heap; on success the old pointer is not used again.
        let at = unsafe { libc::realloc(block.at.cast(), words * 8) };
        if at.is_null() {
            report::broken(who, "realloc", &"no memory");
        }
        let kept = words.min(block.words);
        self.bytes = self.bytes + words * 8 - block.words * 8;
        block.at = at.cast();
        block.words = words;
        block.check(who, kept, "after realloc");
        block.fill(kept);
    }

    fn free(&mut self, i: usize, who: &Who) {
        let block = self.blocks.swap_remove(i);
        block.check(who, block.words, "before free");
        self.bytes -= block.words * 8;
        // SAFETY: a live block, removed from the list.
        unsafe { libc::free(block.at.cast()) };
    }

    /// Checks all blocks; returns their number. Does not allocate.
    pub fn verify_all(&self, who: &Who) -> usize {
        self.blocks.iter().for_each(|b| b.check(who, b.words, "heap block"));
        self.blocks.len()
    }

    /// Flips a bit of a block.
    pub fn corrupt(&mut self) {
        if let Some(block) = self.blocks.first_mut() {
            // SAFETY: the first word of a live block.
            unsafe { *block.at ^= 1 << 17 };
        }
    }
}

impl Block {
    fn word(&self, i: usize) -> u64 {
        stream_word(mix2(self.seed, 0) & !3 | self.seed & 3, i)
    }

    fn fill(&self, from: usize) {
        for i in from..self.words {
            // SAFETY: inside a live block of `words` words.
            unsafe { self.at.add(i).write(self.word(i)) };
        }
    }

    fn check(&self, who: &Who, words: usize, what: &str) {
        for i in 0..words {
            // SAFETY: inside a live block, which was filled.
            let found = unsafe { self.at.add(i).read_volatile() };
            let expected = self.word(i);
            if found != expected {
                report::wrong_value(who, what, self.at as usize + i * 8, expected, found);
            }
        }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        for block in self.blocks.drain(..) {
            // SAFETY: a live block, removed from the list.
            unsafe { libc::free(block.at.cast()) };
        }
    }
}

/// A few allocations, resizes, checks and frees.
pub fn heap(ctx: &mut Ctx) {
    let (heap, rng, who) = (&mut ctx.heap, &mut ctx.rng, &ctx.who);
    for _ in 0..rng.range(1, 8) {
        let n = heap.blocks.len();
        let full = heap.bytes >= heap.limit || n >= 4000;
        match rng.below(8) {
            _ if n > 0 && full => heap.free(rng.below(n), who),
            0..=3 => heap.alloc(who, rng),
            4 if n > 0 => heap.resize(rng.below(n), who, rng),
            5 if n > 0 => heap.free(rng.below(n), who),
            _ if n > 0 => {
                let block = &heap.blocks[rng.below(n)];
                block.check(who, block.words, "heap block");
            }
            _ => {}
        }
    }
    if rng.one_in(200) {
        // SAFETY: gives free memory back to the kernel, which touches no live block.
        unsafe { libc::malloc_trim(0) };
    }
    ctx.stats.add_verified(0);
}
