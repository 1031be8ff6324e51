//! Dirty buffers in order of age; finds the oldest one with enough room.
//!
//! Each buffer has a *position*, higher than those of all older ones. A tree of maxima over the
//! positions, 16 per node, leads to the lowest position with enough room. Positions of removed
//! buffers stay empty until there are as many of them as live ones; then all are renumbered, which
//! costs O(1) per added buffer.

use super::super::{shrink_loose, table_bytes};
use crate::grow::reserve_tight;
use crate::ids::NIL;
use alloc::{vec, vec::Vec};

/// Children of a node.
const FAN: usize = 16;

/// Fewer empty positions than this are not worth a renumbering.
const LOOSE_MIN: usize = 64;

#[derive(Debug)]
pub(super) struct AgeOrder {
    /// Frame of the buffer at each position; `NIL` if empty.
    frames: Vec<u32>,
    /// `levels[0]` has the room at each position, `levels[k + 1]` the maximum of each 16 entries of
    /// level `k`. The last level has at most 16 entries.
    levels: Vec<Vec<u16>>,
    live: u32,
}

impl AgeOrder {
    pub fn new() -> Self {
        AgeOrder { frames: Vec::new(), levels: vec![Vec::new()], live: 0 }
    }

    /// Number of buffers.
    pub fn live(&self) -> u32 {
        self.live
    }

    /// Appends the youngest buffer, without room; returns its position. `moved` is called with
    /// other buffers that get new positions.
    pub fn push(&mut self, frame: u32, moved: impl FnMut(u32, u32)) -> u32 {
        if self.frames.len() >= 2 * self.live as usize + LOOSE_MIN {
            self.renumber(moved);
        }
        let position = self.frames.len();
        reserve_tight(&mut self.frames, 1);
        self.frames.push(frame);
        self.live += 1;
        let mut at = position;
        for level in 0.. {
            if level == self.levels.len() {
                // The level below has outgrown one node.
                let below = &self.levels[level - 1];
                self.levels
                    .push(below.chunks(FAN).map(|children| *children.iter().max().expect("not empty")).collect());
            }
            let row = &mut self.levels[level];
            if at == row.len() {
                reserve_tight(row, 1);
                row.push(0);
            }
            if row.len() <= FAN {
                break;
            }
            at /= FAN;
        }
        position as u32
    }

    /// Sets the room of the buffer at a position; 0 hides it from [`AgeOrder::oldest`].
    pub fn set_room(&mut self, position: u32, room: u16) {
        let (mut at, mut most) = (position as usize, room);
        for level in 0..self.levels.len() {
            if core::mem::replace(&mut self.levels[level][at], most) == most {
                return;
            }
            at /= FAN;
            most = self.most_below(level, at);
        }
    }

    /// Removes the buffer at a position.
    pub fn remove(&mut self, position: u32) {
        self.set_room(position, 0);
        self.frames[position as usize] = NIL;
        self.live -= 1;
        while self.frames.last() == Some(&NIL) {
            self.frames.pop();
        }
        self.cut();
    }

    /// Frame of the oldest buffer with at least this much room; `room` is at least 1.
    pub fn oldest(&self, room: u16) -> Option<u32> {
        let mut at = self.levels.last()?.iter().position(|&most| most >= room)?;
        for row in self.levels.iter().rev().skip(1) {
            let children = row[at * FAN..].iter().take(FAN);
            at = at * FAN + { children }.position(|&most| most >= room).expect("the node says so");
        }
        Some(self.frames[at])
    }

    pub fn metadata_bytes(&self) -> u64 {
        let levels: u64 = self.levels.iter().map(table_bytes).sum();
        table_bytes(&self.frames) + table_bytes(&self.levels) + levels
    }

    /// Frame and room of the buffer at a position.
    pub fn at(&self, position: u32) -> (u32, u16) {
        (self.frames[position as usize], self.levels[0][position as usize])
    }

    /// Panics unless the tree agrees with the positions.
    pub fn check(&self) {
        assert_eq!(self.frames.iter().filter(|frame| **frame != NIL).count(), self.live as usize);
        assert!(self.frames.last() != Some(&NIL), "empty positions at the end are cut off");
        for (position, frame) in self.frames.iter().enumerate() {
            assert!(*frame != NIL || self.levels[0][position] == 0, "position {position} is empty but has room");
        }
        let mut len = self.frames.len();
        for (level, row) in self.levels.iter().enumerate() {
            assert_eq!(row.len(), len, "length of level {level}");
            if level > 0 {
                (0..len).for_each(|at| assert_eq!(row[at], self.most_below(level - 1, at), "{at} of level {level}"));
            }
            assert_eq!(len <= FAN, level + 1 == self.levels.len());
            len = len.div_ceil(FAN);
        }
    }

    fn most_below(&self, level: usize, node: usize) -> u16 {
        let children = self.levels[level].get(node * FAN..).unwrap_or_default();
        children.iter().take(FAN).copied().max().unwrap_or(0)
    }

    /// Gives the live buffers the lowest positions, in the same order.
    fn renumber(&mut self, mut moved: impl FnMut(u32, u32)) {
        let mut end = 0;
        for position in 0..self.frames.len() {
            let frame = self.frames[position];
            if frame == NIL {
                continue;
            }
            if position != end {
                self.frames[end] = frame;
                self.levels[0][end] = self.levels[0][position];
                moved(frame, end as u32);
            }
            end += 1;
        }
        self.frames.truncate(end);
        self.cut();
        for level in 1..self.levels.len() {
            for at in 0..self.levels[level].len() {
                self.levels[level][at] = self.most_below(level - 1, at);
            }
        }
    }

    /// Cuts the tree to the number of positions.
    fn cut(&mut self) {
        let mut len = self.frames.len();
        shrink_loose(&mut self.frames);
        for level in 0.. {
            let row = &mut self.levels[level];
            row.truncate(len);
            shrink_loose(row);
            if len <= FAN {
                self.levels.truncate(level + 1);
                return;
            }
            len = len.div_ceil(FAN);
        }
    }
}
