//! The chain of zones, oldest first, and first fit over it.
//!
//! Zones have rising positions in the order in which they were appended. A removed zone leaves a
//! gap, and the gaps are closed when the positions run out, so that both operations are O(1) on
//! average. A binary tree over the positions has the largest room below each node: free blocks of
//! a zone that takes a new page, else 0. So the first zone with room is found in O(log zones),
//! without a walk along the chain.

use super::super::table_bytes;
use crate::grow::reserve_tight;
use crate::ids::NIL;
use alloc::{vec, vec::Vec};

/// The zones in order.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// Zone at each position, or `NIL` for a gap.
    zones: Vec<u32>,
    /// Position of each zone.
    positions: Vec<u32>,
    /// Node 1 is the root, the children of node `i` are `2 * i` and `2 * i + 1`; the second half of
    /// the table are the positions.
    tree: Vec<u32>,
    live: u32,
}

impl Chain {
    /// Number of zones.
    pub fn live(&self) -> u32 {
        self.live
    }

    /// Appends a zone, without room.
    pub fn push(&mut self, zone: u32) {
        if self.zones.len() == self.tree.len() / 2 {
            self.rebuild();
        }
        let missing = (zone as usize + 1).saturating_sub(self.positions.len());
        reserve_tight(&mut self.positions, missing);
        self.positions.resize(self.positions.len() + missing, NIL);
        self.positions[zone as usize] = self.zones.len() as u32;
        self.zones.push(zone);
        self.live += 1;
    }

    /// Removes a zone.
    pub fn remove(&mut self, zone: u32) {
        self.set(zone, 0);
        let position = core::mem::replace(&mut self.positions[zone as usize], NIL);
        self.zones[position as usize] = NIL;
        self.live -= 1;
        while self.zones.last() == Some(&NIL) {
            self.zones.pop();
        }
        while self.positions.last() == Some(&NIL) {
            self.positions.pop();
        }
        // The tables are far larger than needed.
        if self.tree.len() > 16 && self.live as usize * 8 < self.tree.len() {
            self.rebuild();
        }
    }

    /// Sets the room of a zone.
    pub fn set(&mut self, zone: u32, room: u32) {
        let mut node = self.tree.len() / 2 + self.positions[zone as usize] as usize;
        self.tree[node] = room;
        while node > 1 {
            node /= 2;
            self.tree[node] = self.tree[2 * node].max(self.tree[2 * node + 1]);
        }
    }

    /// First zone with at least this many free blocks; `blocks` is more than 0.
    pub fn first_fit(&self, blocks: u32) -> Option<u32> {
        if self.tree.get(1).is_none_or(|&most| most < blocks) {
            return None;
        }
        let (half, mut node) = (self.tree.len() / 2, 1);
        while node < half {
            node = if self.tree[2 * node] >= blocks { 2 * node } else { 2 * node + 1 };
        }
        Some(self.zones[node - half])
    }

    /// The zones in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.zones.iter().copied().filter(|zone| *zone != NIL)
    }

    /// Closes the gaps and sizes the tables for twice the number of zones.
    fn rebuild(&mut self) {
        let half = self.tree.len() / 2;
        let rooms: Vec<(u32, u32)> =
            self.iter().map(|zone| (zone, self.tree[half + self.positions[zone as usize] as usize])).collect();
        let half = (2 * rooms.len()).next_power_of_two().max(4);
        self.tree = vec![0; 2 * half];
        self.zones = Vec::with_capacity(half);
        for (position, (zone, room)) in rooms.into_iter().enumerate() {
            self.zones.push(zone);
            self.positions[zone as usize] = position as u32;
            self.tree[half + position] = room;
        }
        for node in (1..half).rev() {
            self.tree[node] = self.tree[2 * node].max(self.tree[2 * node + 1]);
        }
        self.positions.shrink_to_fit();
    }

    /// Heap bytes.
    pub fn metadata_bytes(&self) -> u64 {
        table_bytes(&self.zones) + table_bytes(&self.positions) + table_bytes(&self.tree)
    }

    /// Panics unless the tree agrees with the rooms of the zones.
    pub fn check(&self, room: impl Fn(u32) -> u32) {
        assert_eq!(self.iter().count() as u32, self.live);
        let half = self.tree.len() / 2;
        for (position, &zone) in self.zones.iter().enumerate() {
            if zone == NIL {
                assert_eq!(self.tree[half + position], 0, "room in the gap {position}");
            } else {
                assert_eq!(self.positions[zone as usize] as usize, position);
                assert_eq!(self.tree[half + position], room(zone), "room of zone {zone}");
            }
        }
        for node in 1..half {
            assert_eq!(self.tree[node], self.tree[2 * node].max(self.tree[2 * node + 1]), "node {node}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_fit_in_order_of_the_chain() {
        let mut chain = Chain::default();
        assert_eq!(chain.first_fit(1), None);
        for (zone, blocks) in [(5, 3), (0, 9), (7, 8), (1, 20)] {
            chain.push(zone);
            chain.set(zone, blocks);
        }
        assert_eq!([3, 4, 9, 10, 21].map(|k| chain.first_fit(k)), [Some(5), Some(0), Some(0), Some(1), None]);
        // A zone that comes back goes to the end, whatever its number.
        chain.remove(0);
        chain.push(0);
        chain.set(0, 30);
        assert_eq!(chain.iter().collect::<Vec<_>>(), [5, 7, 1, 0]);
        assert_eq!([4, 21].map(|k| chain.first_fit(k)), [Some(7), Some(0)]);
    }

    /// Many zones come and go: positions run out, and the tables shrink again.
    #[test]
    fn positions_are_used_again() {
        let room = |zone: u32| zone % 50 + 1;
        let (mut chain, mut model) = (Chain::default(), Vec::new());
        for step in 0..3000u32 {
            let zone = step * 7 % 1000;
            match model.iter().position(|other| *other == zone) {
                Some(at) => {
                    model.remove(at);
                    chain.remove(zone);
                }
                None => {
                    model.push(zone);
                    chain.push(zone);
                    chain.set(zone, room(zone));
                }
            }
            if step % 97 == 0 {
                chain.check(room);
                assert_eq!(chain.iter().collect::<Vec<_>>(), model);
                let first = |k| model.iter().copied().find(|zone| room(*zone) >= k);
                assert!((1..52).all(|k| chain.first_fit(k) == first(k)));
            }
        }
        let full = chain.metadata_bytes();
        model.drain(..990).for_each(|zone| chain.remove(zone));
        chain.check(room);
        assert!(chain.metadata_bytes() < full / 3, "{} of {full} bytes", chain.metadata_bytes());
    }
}
