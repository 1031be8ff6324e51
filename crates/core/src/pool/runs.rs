//! Where the bytes of an object are: in most pools in one run, in others in several.

use super::{Handle, Slot};
use alloc::vec::Vec;

/// Contiguous bytes of the frame area; they may cross frame borders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Run {
    slot: Slot,
    len: u32,
}

impl Run {
    fn byte(self) -> u64 {
        self.slot.byte()
    }
}

/// The bytes of an object, in order. Takes no memory of its own if they are in one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runs {
    first: Run,
    rest: Vec<Run>,
}

impl Runs {
    /// All in one run.
    pub fn one(slot: Slot, len: u32) -> Runs {
        Runs { first: Run { slot, len }, rest: Vec::new() }
    }

    /// Appends bytes: to the last run if they follow it in memory.
    pub fn push(&mut self, slot: Slot, len: u32) {
        let last = self.rest.last_mut().unwrap_or(&mut self.first);
        if last.byte() + u64::from(last.len) == slot.byte() {
            last.len += len;
        } else {
            self.rest.push(Run { slot, len });
        }
    }

    /// Where the first byte is.
    pub fn slot(&self) -> Slot {
        self.first.slot
    }

    /// Bytes of all runs; never 0.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u32 {
        self.iter().map(|run| run.len).sum()
    }

    fn iter(&self) -> impl Iterator<Item = Run> + '_ {
        core::iter::once(self.first).chain(self.rest.iter().copied())
    }

    /// For each run its distance from the start of the frame area, and which bytes of the object it
    /// has.
    pub fn parts(&self) -> impl Iterator<Item = (u64, core::ops::Range<usize>)> + '_ {
        self.iter().scan(0, |done, run| {
            let start = *done;
            *done += run.len as usize;
            Some((run.byte(), start..*done))
        })
    }
}

/// Bytes to move. The ranges of a [`Move::pieces`] may overlap: each is one `memmove`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The zpage.
    pub handle: Handle,
    /// Old position.
    pub from: Runs,
    /// New position, of as many bytes. If one of the two has several runs, the old bytes and the
    /// new ones have none in common.
    pub to: Runs,
}

impl Move {
    /// From one run to another.
    pub fn of_one(handle: Handle, from: Slot, to: Slot, len: u32) -> Move {
        Move { handle, from: Runs::one(from, len), to: Runs::one(to, len) }
    }

    /// Old and new distance from the start of the frame area, and bytes, of each part that is
    /// contiguous in both.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, u64, usize)> + '_ {
        let (mut from, mut to) = (self.from.iter(), self.to.iter());
        let (mut old, mut new) = (from.next(), to.next());
        let mut done = (0, 0);
        core::iter::from_fn(move || {
            let (a, b) = (old?, new?);
            let len = (a.len - done.0).min(b.len - done.1);
            let piece = (a.byte() + u64::from(done.0), b.byte() + u64::from(done.1), len as usize);
            done = (done.0 + len, done.1 + len);
            if done.0 == a.len {
                (old, done.0) = (from.next(), 0);
            }
            if done.1 == b.len {
                (new, done.1) = (to.next(), 0);
            }
            Some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(byte: u32) -> Slot {
        Slot { frame: byte / 4096, offset: (byte % 4096) as u16 }
    }

    #[test]
    fn bytes_that_follow_are_one_run() {
        let mut runs = Runs::one(at(4000), 100);
        runs.push(at(4100), 28);
        assert_eq!(runs, Runs::one(at(4000), 128), "over the border of a frame");
        runs.push(at(3872), 128);
        runs.push(at(8000), 72);
        assert_eq!((runs.len(), runs.slot()), (328, at(4000)));
        assert_eq!(runs.parts().collect::<Vec<_>>(), [(4000, 0..128), (3872, 128..256), (8000, 256..328)]);
    }

    #[test]
    fn a_move_is_cut_where_either_side_is() {
        let (mut from, mut to) = (Runs::one(at(0), 10), Runs::one(at(100), 4));
        from.push(at(50), 5);
        to.push(at(200), 6);
        to.push(at(300), 5);
        let step = Move { handle: Handle(0), from, to };
        assert_eq!(step.pieces().collect::<Vec<_>>(), [(0, 100, 4), (4, 200, 6), (50, 300, 5)]);
        let one = Move::of_one(Handle(0), at(64), at(0), 100);
        assert_eq!(one.pieces().collect::<Vec<_>>(), [(64, 0, 100)]);
    }
}
