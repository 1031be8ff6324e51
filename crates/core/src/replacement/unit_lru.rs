//! Evicts whole units: first the one with the longest time since its last store.
//!
//! So zswap evicts from zbud and z3fold: J. Kim, C. Kim, E. Seo, *ezswap: Enhanced Compressed Swap
//! Scheme for Mobile Devices*, IEEE Access 2019 (here `Z10`); the same for zbud in M. Salahuddin,
//! D. Shin, *Selective Rejection Technique for Compressed Object at Compressed Swap Cache*. Only a
//! store makes a unit the newest. A load does not: it removes the page.
//!
//! An open point of the papers: here a unit that could not be emptied counts as the newest, so that
//! others come first and it does not hold up faults that wait for room.
//!
//! Metadata: 12 bytes per unit number up to the highest known one.

use super::{Policy, ReplacementEntry, ReplacementMode, Zpage};
use crate::grow::reserve_tight;
use crate::list::{Linked, Links, List};
use crate::pool::{Leaving, Unit, UnitView};
use alloc::{boxed::Box, vec::Vec};

/// Entry of this policy in [`super::REPLACEMENTS`].
pub(super) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "unit-lru",
    help: "whole frames or zspages, that first in which nothing was stored for longest",
    fits: |pool| pool.leaving == Leaving::ZpagesAndUnits,
    make: |_| ReplacementMode::Policy(Box::new(UnitLru::new())),
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    Listed,
    Taken,
}

/// A unit.
#[derive(Debug, Clone, Copy)]
struct Node {
    links: Links,
    state: State,
}

impl Node {
    const UNKNOWN: Node = Node { links: Links::UNLINKED, state: State::Unknown };
}

impl Linked for Vec<Node> {
    fn links(&mut self, i: u32) -> &mut Links {
        &mut self[i as usize].links
    }
}

/// The policy.
struct UnitLru {
    /// By unit number; the last one is known.
    nodes: Vec<Node>,
    /// Known units that are not taken. The head is the newest.
    list: List,
}

impl UnitLru {
    fn new() -> Self {
        UnitLru { nodes: Vec::new(), list: List::EMPTY }
    }

    fn make_newest(&mut self, unit: Unit) {
        self.list.push_front(&mut self.nodes, unit.0);
        self.nodes[unit.0 as usize].state = State::Listed;
    }

    fn forget(&mut self, unit: Unit) {
        if self.nodes[unit.0 as usize].state == State::Listed {
            self.list.remove(&mut self.nodes, unit.0);
        }
        self.nodes[unit.0 as usize].state = State::Unknown;
        while self.nodes.last().is_some_and(|node| node.state == State::Unknown) {
            self.nodes.pop();
        }
        // The remaining slack makes the next growth cheap.
        if self.nodes.capacity() > 2 * self.nodes.len() + 64 {
            self.nodes.shrink_to(self.nodes.len() + self.nodes.len() / 8);
        }
    }

    fn state(&self, unit: Unit) -> State {
        self.nodes.get(unit.0 as usize).map_or(State::Unknown, |node| node.state)
    }
}

impl Policy for UnitLru {
    fn stored(&mut self, _zpage: Zpage, unit: Unit, _view: UnitView) {
        match self.state(unit) {
            State::Listed => self.list.remove(&mut self.nodes, unit.0),
            State::Taken => panic!("{unit:?} is taken: nothing may be stored in it"),
            State::Unknown if unit.0 as usize >= self.nodes.len() => {
                let extra = unit.0 as usize + 1 - self.nodes.len();
                reserve_tight(&mut self.nodes, extra);
                self.nodes.resize(unit.0 as usize + 1, Node::UNKNOWN);
            }
            State::Unknown => {}
        }
        self.make_newest(unit);
    }

    fn left(&mut self, _zpage: Zpage, unit: Unit, view: UnitView) {
        assert_ne!(self.state(unit), State::Unknown, "{unit:?} is not known");
        if view.zpages == 0 {
            self.forget(unit);
        }
    }

    fn victims(&mut self, out: &mut Vec<Unit>) {
        if self.list.len > 0 {
            let oldest = self.list.tail;
            self.list.remove(&mut self.nodes, oldest);
            self.nodes[oldest as usize].state = State::Taken;
            out.push(Unit(oldest));
        }
    }

    fn returned(&mut self, unit: Unit, _view: UnitView) {
        assert_eq!(self.state(unit), State::Taken, "{unit:?} is returned");
        self.make_newest(unit);
    }

    fn metadata_bytes(&self) -> u64 {
        (size_of::<Self>() + self.nodes.capacity() * size_of::<Node>()) as u64
    }

    fn check(&self) {
        let (mut prev, mut next, mut len) = (Links::UNLINKED.prev, self.list.head, 0);
        while next != Links::UNLINKED.next {
            let node = self.nodes[next as usize];
            assert_eq!((node.links.prev, node.state), (prev, State::Listed), "unit {next}");
            (prev, next, len) = (next, node.links.next, len + 1);
            assert!(len <= self.list.len, "the list is a loop");
        }
        assert_eq!((prev, len), (self.list.tail, self.list.len));
        let listed = self.nodes.iter().filter(|node| node.state == State::Listed).count();
        assert_eq!(listed, len as usize, "every known unit that is not taken is on the list");
        assert!(self.nodes.last().is_none_or(|node| node.state != State::Unknown), "free nodes at the end are cut off");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{self, Handle, Move, Pool, PoolParams};

    fn zpage() -> Zpage {
        Zpage { handle: Handle::from_raw(0), len: 1000, file: false }
    }

    fn view(zpages: u16) -> UnitView {
        UnitView { class: 0, zpages, capacity: 3, frames: 1, free_bytes: 0 }
    }

    fn stored(policy: &mut UnitLru, units: &[u32]) {
        for &unit in units {
            policy.stored(zpage(), Unit(unit), view(1));
            policy.check();
        }
    }

    fn victim(policy: &mut UnitLru) -> Option<u32> {
        let mut out = Vec::new();
        policy.victims(&mut out);
        policy.check();
        assert!(out.len() <= 1, "{out:?}");
        out.first().map(|unit| unit.0)
    }

    #[test]
    fn z10_a_store_makes_a_unit_the_newest_and_nothing_else_does() {
        let mut policy = UnitLru::new();
        stored(&mut policy, &[4, 2, 7, 4, 9]);
        // Head to tail: 9 4 7 2. One of two zpages of the tail leaves (a load): no change.
        policy.left(zpage(), Unit(2), view(1));
        assert_eq!([victim(&mut policy), victim(&mut policy)], [Some(2), Some(7)]);
        // 9 4, and 2 and 7 are taken. A store in 4 makes it the newest.
        stored(&mut policy, &[4]);
        assert_eq!([victim(&mut policy), victim(&mut policy), victim(&mut policy)], [Some(9), Some(4), None]);
    }

    #[test]
    fn empty_units_are_forgotten_taken_or_not() {
        let mut policy = UnitLru::new();
        stored(&mut policy, &[0, 1, 2, 3]);
        assert_eq!(victim(&mut policy), Some(0));
        policy.left(zpage(), Unit(0), view(0));
        policy.left(zpage(), Unit(2), view(0));
        policy.check();
        // 3 1. The freed numbers are used again: 2 0 3 1.
        stored(&mut policy, &[0, 2]);
        let order: Vec<u32> = std::iter::from_fn(|| victim(&mut policy)).collect();
        assert_eq!(order, [1, 3, 0, 2]);
    }

    #[test]
    fn returned_units_come_last() {
        let mut policy = UnitLru::new();
        stored(&mut policy, &[5, 6, 7]);
        assert_eq!(victim(&mut policy), Some(5));
        policy.returned(Unit(5), view(2));
        assert_eq!([victim(&mut policy), victim(&mut policy), victim(&mut policy)], [Some(6), Some(7), Some(5)]);
    }

    #[test]
    #[should_panic(expected = "Unit(3) is taken")]
    fn nothing_is_stored_in_a_taken_unit() {
        let mut policy = UnitLru::new();
        stored(&mut policy, &[3]);
        victim(&mut policy);
        stored(&mut policy, &[3]);
    }

    #[test]
    fn metadata_grows_tightly_and_shrinks() {
        let mut policy = UnitLru::new();
        let empty = policy.metadata_bytes();
        (0..10_000).for_each(|unit| policy.stored(zpage(), Unit(unit), view(1)));
        let full = policy.metadata_bytes() - empty;
        assert!((120_000..140_000).contains(&full), "{full}");
        (1_000..10_000).for_each(|unit| policy.left(zpage(), Unit(unit), view(0)));
        policy.check();
        let left = policy.metadata_bytes() - empty;
        assert!((12_000..26_000).contains(&left), "{left}");
    }

    /// A pool with this policy, used as the core uses them.
    struct Evicting {
        pool: Box<dyn Pool>,
        policy: UnitLru,
        evicted: Vec<(u32, usize)>,
    }

    impl Evicting {
        fn new(pool: &str, limit: u32) -> Self {
            let pool = (pool::find(pool).unwrap().make)(&PoolParams::new(limit, limit));
            Evicting { pool, policy: UnitLru::new(), evicted: Vec::new() }
        }

        /// Stores a zpage; evicts units until it fits.
        fn store(&mut self, len: u32) -> Handle {
            let placed = loop {
                match self.pool.place(len) {
                    Ok(placed) => break placed,
                    Err(_) => self.evict(),
                }
            };
            let unit = self.pool.unit(placed.handle);
            self.policy.stored(Zpage { handle: placed.handle, len, file: false }, unit, self.pool.view(unit));
            placed.handle
        }

        fn evict(&mut self) {
            let (mut units, mut zpages) = (Vec::new(), Vec::new());
            self.policy.victims(&mut units);
            self.pool.seal(units[0], true);
            self.pool.zpages(units[0], &mut zpages);
            self.evicted.push((units[0].0, zpages.len()));
            zpages.into_iter().for_each(|handle| self.remove(handle));
        }

        fn remove(&mut self, handle: Handle) {
            let (unit, len) = (self.pool.unit(handle), self.pool.len(handle));
            let emptied = !self.pool.remove(handle).is_empty();
            let view = if emptied { UnitView::default() } else { self.pool.view(unit) };
            if !emptied {
                self.pool.tidy(unit, &|_| true, &mut Vec::<Move>::new());
            }
            self.policy.left(Zpage { handle, len, file: false }, unit, view);
            self.policy.check();
            self.pool.check();
        }
    }

    #[test]
    fn z10_all_zpages_of_the_frame_leave_when_a_pool_is_full() {
        for (pool, most) in [("zbud", 2), ("z3fold", 3)] {
            let mut both = Evicting::new(pool, 3);
            let handles: Vec<Handle> = (0..3 * most).map(|_| both.store(1000)).collect();
            assert_eq!(both.evicted, []);
            // A load removes a page of the oldest frame, and a store fills it again: now frame 1 is
            // the oldest.
            both.remove(handles[0]);
            both.store(1300);
            both.store(1000);
            assert_eq!(both.evicted, [(1, most)]);
            // The rest of frame 1 is used first; then frame 2 is the oldest, and then 0.
            for _ in 0..2 * most {
                both.store(1000);
            }
            assert_eq!(both.evicted, [(1, most), (2, most), (0, most)]);
        }
    }
}
