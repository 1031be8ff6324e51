//! Whether clean pages of files are worth their compression.
//!
//! A program that reads a file once, from its beginning to its end, wants none of the pages back:
//! to compress them is for nothing. So the core counts what becomes of such pages in the pool: a
//! fault wants them, or they are dropped. While fewer than one in [`WORTH`] is wanted, only one in
//! [`TRIAL`] goes to the pool, to show when that changes. The others are dropped at once.
//!
//! This holds where the coldest pages leave the pool first. Where a policy decides, the published
//! scheme does, too.

/// To compress a page takes 4 to 20 us, to read one from a fast disk 60 (docs/performance.md).
const WORTH: u32 = 8;
const TRIAL: u32 = 16;
/// Least outcomes to decide by.
const LEAST: u32 = 256;
/// From so many outcomes on, all count half: older ones fade.
const WINDOW: u32 = 2048;

/// What became of pages of files in the pool.
#[derive(Debug, Default)]
pub struct FileTrial {
    wanted: u32,
    dropped: u32,
    turn: u32,
}

impl FileTrial {
    /// Whether the next page goes to the pool.
    pub fn admits(&mut self) -> bool {
        let all = self.wanted + self.dropped;
        if all < LEAST || self.wanted * WORTH >= all {
            return true;
        }
        self.turn = (self.turn + 1) % TRIAL;
        self.turn == 0
    }

    /// A page has left the pool: a fault wanted it, or it was dropped.
    pub fn note(&mut self, wanted: bool) {
        *(if wanted { &mut self.wanted } else { &mut self.dropped }) += 1;
        if self.wanted + self.dropped >= WINDOW {
            (self.wanted, self.dropped) = (self.wanted / 2, self.dropped / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_nobody_wants_are_mostly_dropped() {
        let mut trial = FileTrial::default();
        let admitted = |trial: &mut FileTrial| (0..160).filter(|_| trial.admits()).count();
        (0..LEAST - 1).for_each(|_| trial.note(false));
        assert_eq!(admitted(&mut trial), 160, "too few to decide");
        trial.note(false);
        assert_eq!(admitted(&mut trial), 10, "one in sixteen, as a trial");
        (0..WINDOW).for_each(|i| trial.note(i % 4 == 0));
        assert_eq!(admitted(&mut trial), 160, "a quarter is wanted now");
        (0..2 * WINDOW).for_each(|i| trial.note(i % 16 == 0));
        assert_eq!(admitted(&mut trial), 10, "a sixteenth");
    }
}
