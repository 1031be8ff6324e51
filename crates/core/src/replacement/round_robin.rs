//! Round robin over size classes and fullness groups: write-back for zsmalloc.
//!
//! After Salahuddin and Shin, *Selective Rejection Technique for Compressed Object at Compressed
//! Swap Cache*. Each class sorts its zspages into three groups by fullness; each group is a list,
//! least recently used first. A store moves the zspage to the end of the list of its group, and so
//! does a change of group; a load without a change of group does not. The order between classes is
//! unknown, so victims are taken in turns:
//!
//! ```text
//! class 1                     class 2                     class 3
//! [almost empty][..full][full][almost empty][..full][full][almost empty] ...
//!                             ^ marker: the next turn takes the head of the first non-empty list
//! ```
//!
//! The paper's text describes turns over classes, its pseudocode turns over groups; so there are
//! three variants:
//!
//! - `round-robin`: over all groups of all classes, class by class. It fits both.
//! - `round-robin-class`: over the classes; in a class the emptiest group that has a zspage.
//! - `round-robin-group`: over the three groups; each list has the zspages of all classes.
//!
//! Differences from the paper: the pseudocode forgets what earlier turns freed and does not end
//! when nothing is left. Here each call takes one zspage, and the caller adds up the frames. Full
//! zspages are in lists, too, or they would never leave. The number of classes is not known in
//! advance: a turn that finds nothing behind the marker starts again from the front, which is the
//! same. A zspage that was taken and could not be emptied comes back as the most recently used.
//!
//! When not to use it: in the worst case it writes 256 small objects to free the 3 frames of their
//! zspage.
//!
//! Metadata: 12 bytes per frame up to the highest used one, 36 per class.

use super::{Policy, ReplacementEntry, ReplacementMode, Zpage};
use crate::grow::reserve_tight;
use crate::ids::NIL;
use crate::list::{Linked, Links, List};
use crate::pool::{Unit, UnitView};
use alloc::{boxed::Box, vec::Vec};

/// Entries of these policies in [`super::REPLACEMENTS`].
pub(super) const BY_LIST: ReplacementEntry = ReplacementEntry {
    name: "round-robin",
    help: "whole zspages, in turns from each fullness group of each size class, the least recently used first",
    fits: |pool| pool.name == "zsmalloc",
    make: |_| ReplacementMode::Policy(Box::new(RoundRobin::new(Turns::Lists))),
};
pub(super) const BY_CLASS: ReplacementEntry = ReplacementEntry {
    name: "round-robin-class",
    help: "whole zspages, in turns from each size class, of its emptiest fullness group the least recently used",
    make: |_| ReplacementMode::Policy(Box::new(RoundRobin::new(Turns::Classes))),
    ..BY_LIST
};
pub(super) const BY_GROUP: ReplacementEntry = ReplacementEntry {
    name: "round-robin-group",
    help: "whole zspages, in turns from each fullness group, the least recently used of all size classes",
    make: |_| ReplacementMode::Policy(Box::new(RoundRobin::new(Turns::Groups))),
    ..BY_LIST
};

/// What the turns iterate over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turns {
    Lists,
    Classes,
    Groups,
}

/// Fullness groups of a class.
const GROUPS: usize = 3;

/// Fullness group of a zspage that is not empty: almost empty (up to a quarter), almost full, full.
fn group(view: UnitView) -> usize {
    match (view.zpages, view.capacity) {
        (n, capacity) if n == capacity => 2,
        (n, capacity) => usize::from(u32::from(n) * 4 > u32::from(capacity)),
    }
}

/// State of a zspage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No zspage starts at this frame.
    Unknown,
    /// Being evicted.
    Taken,
    /// In the list of this number.
    Listed(u16),
}

/// A frame where a zspage may start.
#[derive(Debug, Clone, Copy)]
struct Node {
    links: Links,
    state: State,
}

const UNKNOWN: Node = Node { links: Links::UNLINKED, state: State::Unknown };

impl Linked for Vec<Node> {
    fn links(&mut self, i: u32) -> &mut Links {
        &mut self[i as usize].links
    }
}

/// The policy.
struct RoundRobin {
    turns: Turns,
    /// By unit number, which is that of the first frame; the last one is known.
    nodes: Vec<Node>,
    /// `GROUPS` lists for each class, or for all classes together; see [`RoundRobin::list_of`].
    lists: Vec<List>,
    /// List where the next turn starts; kept between calls. The number of lists stands for the
    /// first one.
    marker: usize,
}

impl RoundRobin {
    fn new(turns: Turns) -> Self {
        RoundRobin { turns, nodes: Vec::new(), lists: Vec::new(), marker: 0 }
    }

    /// Index of the list for a zspage.
    fn list_of(&self, view: UnitView) -> usize {
        let class = if self.turns == Turns::Groups { 0 } else { usize::from(view.class) };
        class * GROUPS + group(view)
    }

    /// Where the next turn starts after one that took from `list`.
    fn after(&self, list: usize) -> usize {
        match self.turns {
            Turns::Lists | Turns::Groups => list + 1,
            Turns::Classes => (list / GROUPS + 1) * GROUPS,
        }
    }

    /// Appends a zspage that is in no list to a list.
    fn link(&mut self, unit: Unit, list: usize) {
        if list >= self.lists.len() {
            self.lists.resize((list / GROUPS + 1) * GROUPS, List::EMPTY);
        }
        self.lists[list].push_back(&mut self.nodes, unit.0);
        self.nodes[unit.0 as usize].state = State::Listed(list as u16);
    }

    fn unlink(&mut self, unit: Unit, list: u16, state: State) {
        self.lists[usize::from(list)].remove(&mut self.nodes, unit.0);
        self.nodes[unit.0 as usize].state = state;
    }

    fn state(&self, unit: Unit) -> State {
        self.nodes.get(unit.0 as usize).map_or(State::Unknown, |node| node.state)
    }

    /// Cuts off the frames behind the last zspage.
    fn trim(&mut self) {
        while self.nodes.last().is_some_and(|node| node.state == State::Unknown) {
            self.nodes.pop();
        }
        if self.nodes.capacity() > 2 * self.nodes.len() + 64 {
            self.nodes.shrink_to(self.nodes.len() + self.nodes.len() / 8);
        }
    }
}

impl Policy for RoundRobin {
    fn stored(&mut self, _zpage: Zpage, unit: Unit, view: UnitView) {
        match self.state(unit) {
            State::Unknown => {
                let end = unit.0 as usize + 1;
                if end > self.nodes.len() {
                    let extra = end - self.nodes.len();
                    reserve_tight(&mut self.nodes, extra);
                    self.nodes.resize(end, UNKNOWN);
                }
            }
            State::Listed(list) => self.unlink(unit, list, State::Unknown),
            State::Taken => panic!("{unit:?} is being evicted"),
        }
        self.link(unit, self.list_of(view));
    }

    fn left(&mut self, _zpage: Zpage, unit: Unit, view: UnitView) {
        let state = self.state(unit);
        assert_ne!(state, State::Unknown, "{unit:?} is known");
        if view.zpages == 0 {
            if let State::Listed(list) = state {
                self.unlink(unit, list, State::Unknown);
            }
            self.nodes[unit.0 as usize].state = State::Unknown;
            self.trim();
            return;
        }
        let State::Listed(old) = state else { return };
        let new = self.list_of(view);
        if usize::from(old) != new {
            self.unlink(unit, old, State::Unknown);
            self.link(unit, new);
        }
    }

    fn victims(&mut self, out: &mut Vec<Unit>) {
        // At most three lists for each of about 69 classes: negligible next to an eviction.
        let lists = (self.marker..self.lists.len()).chain(0..self.marker.min(self.lists.len()));
        let Some(list) = lists.into_iter().find(|&list| self.lists[list].head != NIL) else { return };
        let unit = Unit(self.lists[list].head);
        self.unlink(unit, list as u16, State::Taken);
        self.marker = self.after(list);
        out.push(unit);
    }

    fn returned(&mut self, unit: Unit, view: UnitView) {
        assert_eq!(self.state(unit), State::Taken, "{unit:?} was to be evicted");
        self.link(unit, self.list_of(view));
    }

    fn metadata_bytes(&self) -> u64 {
        (self.nodes.capacity() * size_of::<Node>() + self.lists.capacity() * size_of::<List>()) as u64
    }

    fn check(&self) {
        let mut listed = 0;
        for (number, list) in self.lists.iter().enumerate() {
            let (mut prev, mut len, mut unit) = (NIL, 0, list.head);
            while unit != NIL {
                let Node { links, state } = self.nodes[unit as usize];
                assert_eq!((links.prev, state), (prev, State::Listed(number as u16)), "{unit} in list {number}");
                len += 1;
                assert!(len <= list.len, "list {number} is longer than it says");
                (prev, unit) = (unit, links.next);
            }
            assert_eq!((prev, len), (list.tail, list.len), "list {number}");
            listed += len as usize;
        }
        assert_eq!(listed, self.nodes.iter().filter(|node| matches!(node.state, State::Listed(_))).count());
        assert!(
            self.nodes.last().is_none_or(|node| node.state != State::Unknown),
            "unknown frames at the end are cut off"
        );
        assert!(self.marker <= self.lists.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{find, Handle, Pool, PoolFull, PoolParams};

    fn zpage() -> Zpage {
        Zpage { handle: Handle::from_raw(0), len: 1000, file: false }
    }

    fn view(class: u16, zpages: u16, capacity: u16) -> UnitView {
        UnitView { class, zpages, capacity, frames: 1, free_bytes: 0 }
    }

    impl RoundRobin {
        /// A store after which a zspage of 8 slots has `zpages` zpages.
        fn store(&mut self, unit: u32, class: u16, zpages: u16) {
            self.stored(zpage(), Unit(unit), view(class, zpages, 8));
            self.check();
        }

        /// A removal after which a zspage of 8 slots has `zpages` zpages.
        fn leave(&mut self, unit: u32, class: u16, zpages: u16) {
            self.left(zpage(), Unit(unit), view(class, zpages, 8));
            self.check();
        }

        fn victim(&mut self) -> Option<u32> {
            let mut out = Vec::new();
            self.victims(&mut out);
            self.check();
            assert!(out.len() <= 1, "one zspage in a turn");
            out.first().map(|unit| unit.0)
        }

        fn all_victims(&mut self) -> Vec<u32> {
            std::iter::from_fn(|| self.victim()).collect()
        }

        /// The zspages of a list, least recently used first.
        fn list(&self, class: usize, group: usize) -> Vec<u32> {
            let one = |unit: u32| (unit != NIL).then_some(unit);
            let head = self.lists.get(class * GROUPS + group).map_or(NIL, |list| list.head);
            std::iter::successors(one(head), |&unit| one(self.nodes[unit as usize].links.next)).collect()
        }
    }

    #[test]
    fn z5_groups_of_zspages() {
        let groups = |capacity: u16| (1..=capacity).map(|n| group(view(0, n, capacity))).collect::<Vec<_>>();
        assert_eq!(groups(1), [2]);
        assert_eq!(groups(2), [1, 2]);
        assert_eq!(groups(3), [1, 1, 2]);
        assert_eq!(groups(4), [0, 1, 1, 2]);
        assert_eq!(groups(8), [0, 0, 1, 1, 1, 1, 1, 2]);
        assert_eq!([64, 65, 255, 256].map(|n| group(view(1, n, 256))), [0, 1, 1, 2]);
    }

    /// Rules 4, 5 and 8, and which operations refresh (section 5, item 6).
    #[test]
    fn z4_z8_each_change_of_the_group_goes_to_the_end_of_its_list() {
        let mut policy = RoundRobin::new(Turns::Lists);
        (1..=3).for_each(|unit| policy.store(unit, 0, 1));
        assert_eq!(policy.list(0, 0), [1, 2, 3]);
        // A store refreshes even without a change of group; a removal does not.
        policy.store(1, 0, 2);
        assert_eq!(policy.list(0, 0), [2, 3, 1]);
        policy.leave(1, 0, 1);
        policy.leave(1, 0, 1);
        policy.store(2, 0, 2);
        policy.leave(3, 0, 1);
        assert_eq!(policy.list(0, 0), [3, 1, 2]);
        // Almost empty -> almost full -> full.
        [1, 2, 3].into_iter().for_each(|unit| policy.store(unit, 0, 3));
        assert_eq!((policy.list(0, 0), policy.list(0, 1)), (vec![], vec![1, 2, 3]));
        [2, 1].into_iter().for_each(|unit| policy.store(unit, 0, 8));
        assert_eq!((policy.list(0, 1), policy.list(0, 2)), (vec![3], vec![2, 1]));
        // Full -> almost full -> almost empty -> released.
        policy.leave(2, 0, 7);
        assert_eq!((policy.list(0, 1), policy.list(0, 2)), (vec![3, 2], vec![1]));
        policy.leave(3, 0, 3);
        assert_eq!(policy.list(0, 1), [3, 2]);
        policy.leave(3, 0, 2);
        assert_eq!((policy.list(0, 0), policy.list(0, 1)), (vec![3], vec![2]));
        policy.leave(3, 0, 0);
        assert_eq!((policy.list(0, 0), policy.state(Unit(3))), (vec![], State::Unknown));
        // A zspage of another class may start at its frame.
        policy.store(3, 1, 1);
        assert_eq!(policy.list(1, 0), [3]);
    }

    /// Groups by class: class 0 has almost empty 10 and 15, full 13; class 1 has almost empty 17,
    /// almost full 12; class 2 has almost empty 14, full 11 and 16.
    fn example(turns: Turns) -> RoundRobin {
        let mut policy = RoundRobin::new(turns);
        let stores = [(0, 1), (2, 8), (1, 5), (0, 8), (2, 1), (0, 2), (2, 8), (1, 2)];
        (10..).zip(stores).for_each(|(unit, (class, zpages))| policy.store(unit, class, zpages));
        policy
    }

    /// Rules 9 and 11; zspages with room are victims, too (section 5, item 7).
    #[test]
    fn z9_z11_orders_of_the_three_kinds_of_turns() {
        assert_eq!(example(Turns::Lists).all_victims(), [10, 13, 17, 12, 14, 11, 15, 16]);
        assert_eq!(example(Turns::Classes).all_victims(), [10, 17, 14, 15, 12, 11, 13, 16]);
        assert_eq!(example(Turns::Groups).all_victims(), [10, 12, 11, 14, 13, 15, 16, 17]);
    }

    #[test]
    fn z11_the_marker_survives_calls() {
        let mut policy = example(Turns::Lists);
        assert_eq!([policy.victim(), policy.victim()], [Some(10), Some(13)]);
        // A zspage that comes to class 0 now waits for the next turn; one that comes to a later
        // list does not.
        policy.store(1, 0, 8);
        policy.store(2, 1, 8);
        assert_eq!([0; 5].map(|_| policy.victim().unwrap()), [17, 12, 2, 14, 11]);
        // The pool has more classes behind the last list, which may be in use at the next call.
        policy.store(3, 40, 1);
        assert_eq!([0; 4].map(|_| policy.victim().unwrap()), [3, 15, 1, 16]);
        // By class: the marker is behind class 0, whatever else is in it.
        let mut policy = example(Turns::Classes);
        assert_eq!(policy.victim(), Some(10));
        policy.store(1, 0, 1);
        assert_eq!(policy.victim(), Some(17));
        // By group: almost empty comes after full.
        let mut policy = example(Turns::Groups);
        assert_eq!([0; 3].map(|_| policy.victim().unwrap()), [10, 12, 11]);
        policy.store(1, 2, 5);
        assert_eq!([0; 3].map(|_| policy.victim().unwrap()), [14, 1, 13]);
    }

    /// Rule 11, mended: the loop ends when all groups are empty.
    #[test]
    fn z11_nothing_comes_of_nothing() {
        for turns in [Turns::Lists, Turns::Classes, Turns::Groups] {
            let mut policy = RoundRobin::new(turns);
            assert_eq!(policy.victim(), None);
            policy.store(5, 3, 8);
            assert_eq!([policy.victim(), policy.victim()], [Some(5), None]);
            policy.leave(5, 3, 0);
            assert_eq!(policy.victim(), None);
            assert!(policy.nodes.is_empty());
        }
    }

    #[test]
    fn a_taken_zspage_is_not_taken_again_unless_returned() {
        let mut policy = example(Turns::Lists);
        assert_eq!([policy.victim(), policy.victim()], [Some(10), Some(13)]);
        // A change of group during the eviction has no effect.
        policy.leave(13, 0, 7);
        policy.leave(13, 0, 1);
        assert_eq!(policy.list(0, 0), [15]);
        policy.returned(Unit(13), view(0, 1, 8));
        policy.check();
        assert_eq!(policy.list(0, 0), [15, 13]);
        policy.leave(10, 0, 0);
        assert_eq!(policy.all_victims(), [17, 12, 14, 11, 15, 16, 13]);
    }

    #[test]
    #[should_panic(expected = "Unit(10) is being evicted")]
    fn nothing_is_stored_in_what_is_evicted() {
        let mut policy = example(Turns::Lists);
        assert_eq!(policy.victim(), Some(10));
        policy.store(10, 0, 2);
    }

    /// A pool of a given number of frames with the policy, and the number of written zpages.
    struct Swap {
        pool: Box<dyn Pool>,
        policy: RoundRobin,
        written: u32,
    }

    impl Swap {
        fn new(limit_frames: u32) -> Swap {
            let pool = (find("zsmalloc").unwrap().make)(&PoolParams::new(1 << 10, limit_frames));
            Swap { pool, policy: RoundRobin::new(Turns::Lists), written: 0 }
        }

        /// Stores a zpage, evicting whole zspages until there is room. Returns the frames that were
        /// freed for it.
        fn store(&mut self, len: u32) -> u32 {
            let mut frames = 0;
            loop {
                match self.pool.place(len) {
                    Ok(placed) => {
                        let unit = self.pool.unit(placed.handle);
                        self.policy.stored(
                            Zpage { handle: placed.handle, len, file: false },
                            unit,
                            self.pool.view(unit),
                        );
                        return frames;
                    }
                    Err(PoolFull { .. }) => frames += self.evict(),
                }
            }
        }

        fn evict(&mut self) -> u32 {
            let unit = Unit(self.policy.victim().expect("something is stored"));
            let (view, mut zpages) = (self.pool.view(unit), Vec::new());
            self.pool.seal(unit, true);
            self.pool.zpages(unit, &mut zpages);
            let mut freed = 0;
            for (left, &handle) in zpages.iter().enumerate().rev() {
                let gone = Zpage { handle, len: self.pool.len(handle), file: false };
                freed += self.pool.remove(handle).frames;
                self.policy.left(gone, unit, UnitView { zpages: left as u16, ..view });
                self.written += 1;
            }
            assert_eq!(freed, u32::from(view.frames), "all of it went, so its frames are free");
            self.policy.check();
            freed
        }
    }

    /// Rules 10 and 12, and the check of section 2.8: 256 zpages are written to free 12 KiB.
    #[test]
    fn z10_z12_a_full_pool_evicts_whole_zspages() {
        let mut swap = Swap::new(6);
        assert_eq!((0..512).map(|_| swap.store(48)).sum::<u32>(), 0);
        assert_eq!((swap.store(48), swap.written), (3, 256));
        // The marker is behind this class. So the turn starts again, and the list of the almost
        // empty zspage comes before that of the full one, which is older.
        assert_eq!((swap.store(4096), swap.written), (3, 257));
    }

    /// Section 5, item 8: evictions free as many frames as the new zspage has.
    #[test]
    fn z12_eviction_goes_on_until_the_frames_of_the_new_zspage_are_free() {
        let mut swap = Swap::new(8);
        (0..8).for_each(|_| assert_eq!(swap.store(4096), 0));
        assert_eq!((swap.store(3264), swap.written), (4, 4));
        assert_eq!((swap.store(3264), swap.written), (0, 4));
        assert_eq!((swap.store(4096), swap.written), (4, 6));
    }
}
