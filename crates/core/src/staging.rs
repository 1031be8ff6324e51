//! Staging slots: the free ones of each area, within one limit over all areas.

use crate::ids::{AreaId, StagingSlot};
use alloc::vec::Vec;

/// Most slots that one area gives to another at once.
const SHRINK: usize = 64;
/// With so many slots at hand an area takes none of another one: so many pages are worth a batch.
const ENOUGH: u32 = 32;
/// Several areas together leave one of so many slots free.
const SLACK_PART: u32 = 4;

#[derive(Debug)]
struct Area {
    /// Free slots that still hold memory; the last one is taken next.
    free: Vec<u32>,
    /// Punched slots: free, but the kernel must allocate their memory again.
    punched: Vec<u32>,
    next_fresh: u32,
    capacity: u32,
    in_use: u32,
    /// The process is gone; the area closes with its last slot in use.
    orphan: bool,
}

/// All staging areas.
#[derive(Debug)]
pub(crate) struct Staging {
    areas: Vec<Option<Area>>,
    /// Slots that hold memory, over all areas.
    pub allocated: u32,
    /// Of these, slots in use.
    pub in_use: u32,
    /// Most slots that may hold memory.
    pub cap: u32,
    /// Slots whose memory the pager must give back.
    pub punch: Vec<StagingSlot>,
    /// Areas whose segment the pager must close.
    pub closed: Vec<AreaId>,
}

impl Staging {
    pub fn new(cap: u32) -> Staging {
        Staging { areas: Vec::new(), allocated: 0, in_use: 0, cap, punch: Vec::new(), closed: Vec::new() }
    }

    pub fn add_area(&mut self, capacity: u32) -> AreaId {
        let area = Area { free: Vec::new(), punched: Vec::new(), next_fresh: 0, capacity, in_use: 0, orphan: false };
        match self.areas.iter().position(Option::is_none) {
            Some(i) => {
                self.areas[i] = Some(area);
                AreaId(i as u32)
            }
            None => {
                self.areas.push(Some(area));
                AreaId(self.areas.len() as u32 - 1)
            }
        }
    }

    fn area(&mut self, id: AreaId) -> &mut Area {
        self.areas[id.0 as usize].as_mut().expect("staging area exists")
    }

    /// Takes a slot of this area. `None` if the area is full, or the limit is reached and no other
    /// area has a free slot with memory.
    pub fn take(&mut self, id: AreaId) -> Option<StagingSlot> {
        if self.area(id).free.is_empty() && !self.grow(id) {
            return None;
        }
        let area = self.area(id);
        let index = area.free.pop()?;
        area.in_use += 1;
        self.in_use += 1;
        Some(StagingSlot { area: id, index })
    }

    /// Number of slots that shall be taken from this area. If few are at hand, they become
    /// [`ENOUGH`] with memory of other areas.
    pub fn room(&self, id: AreaId) -> u32 {
        let area = self.areas[id.0 as usize].as_ref().expect("staging area exists");
        let free = area.free.len() as u32;
        let fresh = area.punched.len() as u32 + area.capacity - area.next_fresh;
        let unallocated = self.cap.saturating_sub(self.allocated);
        let at_hand = free + fresh.min(unallocated);
        let elsewhere = self.allocated - self.in_use - free;
        let room = if at_hand >= ENOUGH { at_hand } else { (free + fresh.min(unallocated + elsewhere)).min(ENOUGH) };
        room.min(self.usable().saturating_sub(self.in_use))
    }

    /// Most slots that shall be in use.
    pub fn usable(&self) -> u32 {
        self.cap - self.slack()
    }

    /// Slots that stay free where several areas share the limit, so that each has some for its next
    /// batch. To take a slot of another area costs a system call, the kernel's work for a new page,
    /// and a page fault of the pager.
    fn slack(&self) -> u32 {
        let several = self.areas.iter().flatten().nth(1).is_some();
        if several {
            self.cap / SLACK_PART
        } else {
            0
        }
    }

    fn grow(&mut self, id: AreaId) -> bool {
        let area = self.area(id);
        if area.punched.is_empty() && area.next_fresh == area.capacity {
            return false;
        }
        if self.allocated >= self.cap && !self.shrink_another(id) {
            return false;
        }
        let area = self.area(id);
        let index = area.punched.pop().unwrap_or_else(|| {
            area.next_fresh += 1;
            area.next_fresh - 1
        });
        area.free.push(index);
        self.allocated += 1;
        true
    }

    /// Punches free slots of the area that has most of them.
    fn shrink_another(&mut self, but: AreaId) -> bool {
        let free = |area: &Option<Area>| area.as_ref().map_or(0, |area| area.free.len());
        let others = (0..self.areas.len()).filter(|&i| i as u32 != but.0);
        let Some(most) = others.rev().max_by_key(|&i| free(&self.areas[i])) else { return false };
        let free = free(&self.areas[most]);
        if free > 0 {
            self.release(AreaId(most as u32), free.div_ceil(2).min(SHRINK));
        }
        free > 0
    }

    pub fn give_back(&mut self, slot: StagingSlot) {
        let area = self.area(slot.area);
        assert!(area.in_use > 0 && !area.free.contains_debug(slot.index), "staging slot freed twice");
        area.in_use -= 1;
        area.free.push(slot.index);
        self.in_use -= 1;
        self.drop_if_done(slot.area);
    }

    /// Gives back the memory of free slots of an area, at most so many, the highest numbers first.
    /// Whether no free slot holds memory then.
    pub fn release(&mut self, id: AreaId, most: usize) -> bool {
        let area = self.areas[id.0 as usize].as_mut().expect("staging area exists");
        // Neighbours are given back by one system call.
        area.free.sort_unstable();
        let kept = area.free.len().saturating_sub(most);
        let given = area.free.split_off(kept);
        self.allocated -= given.len() as u32;
        self.punch.extend(given.iter().map(|&index| StagingSlot { area: id, index }));
        area.punched.extend(given.iter().rev());
        kept == 0
    }

    /// The process is gone: the area closes with its last slot in use.
    pub fn orphan(&mut self, id: AreaId) {
        self.area(id).orphan = true;
        self.drop_if_done(id);
    }

    /// Panics if the sums are not those of the areas.
    pub fn check(&self) {
        let areas = || self.areas.iter().flatten();
        assert_eq!(self.in_use, areas().map(|area| area.in_use).sum::<u32>(), "staging slots in use");
        let with_memory = areas().map(|area| area.in_use + area.free.len() as u32).sum::<u32>();
        assert_eq!(self.allocated, with_memory, "staging slots with memory");
    }

    fn drop_if_done(&mut self, id: AreaId) {
        let area = self.area(id);
        if area.orphan && area.in_use == 0 {
            self.allocated -= area.free.len() as u32;
            self.areas[id.0 as usize] = None;
            self.punch.retain(|slot| slot.area != id);
            self.closed.push(id);
        }
    }
}

trait ContainsDebug {
    fn contains_debug(&self, index: u32) -> bool;
}

impl ContainsDebug for Vec<u32> {
    /// O(n), so only in debug builds.
    fn contains_debug(&self, index: u32) -> bool {
        cfg!(debug_assertions) && self.contains(&index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_area_gets_memory_that_the_first_does_not_use() {
        let mut staging = Staging::new(4);
        let (a, b) = (staging.add_area(8), staging.add_area(8));
        let slots: Vec<_> = (0..4).map(|_| staging.take(a).unwrap()).collect();
        assert_eq!((staging.take(a), staging.take(b)), (None, None));
        staging.give_back(slots[1]);
        assert_eq!(staging.take(b).unwrap(), StagingSlot { area: b, index: 0 });
        assert_eq!(staging.punch, [slots[1]]);
        assert_eq!(staging.allocated, 4);
    }

    #[test]
    fn the_room_of_an_area_leaves_a_quarter_free_if_there_are_others() {
        let mut staging = Staging::new(8);
        let a = staging.add_area(16);
        assert_eq!((staging.room(a), staging.slack()), (8, 0));
        let b = staging.add_area(3);
        assert_eq!((staging.room(a), staging.room(b), staging.slack()), (6, 3, 2));
        let slots: Vec<_> = (0..5).map(|_| staging.take(a).unwrap()).collect();
        assert_eq!((staging.room(a), staging.room(b)), (1, 1));
        slots[..2].iter().for_each(|&slot| staging.give_back(slot));
        assert_eq!((staging.room(a), staging.room(b), staging.in_use), (3, 3, 3));
        (0..3).for_each(|_| assert!(staging.take(b).is_some()));
        assert_eq!((staging.room(a), staging.room(b)), (0, 0));
        assert!(staging.take(b).is_none() && staging.take(a).is_some(), "a batch that is under way may take more");
    }

    #[test]
    fn an_area_with_enough_slots_takes_none_of_another() {
        let mut staging = Staging::new(4 * ENOUGH);
        let (a, b) = (staging.add_area(8 * ENOUGH), staging.add_area(8 * ENOUGH));
        let of_a: Vec<_> = (0..3 * ENOUGH).map(|_| staging.take(a).unwrap()).collect();
        of_a.into_iter().for_each(|slot| staging.give_back(slot));
        assert_eq!(staging.room(b), ENOUGH, "what has no memory yet");
        let taken: Vec<_> = (0..ENOUGH).map(|_| staging.take(b).unwrap()).collect();
        assert!(staging.punch.is_empty());
        assert_eq!(staging.room(b), ENOUGH, "of those of the other");
        assert!(staging.take(b).is_some() && !staging.punch.is_empty());
        taken.into_iter().for_each(|slot| staging.give_back(slot));
        let room = staging.room(b);
        assert!((ENOUGH..2 * ENOUGH + SHRINK as u32).contains(&room), "{room}: its own");
        let before = staging.punch.len();
        (0..room).for_each(|_| assert!(staging.take(b).is_some()));
        assert_eq!(staging.punch.len(), before);
    }

    #[test]
    fn the_area_with_most_free_slots_gives_some() {
        let mut staging = Staging::new(8);
        let (a, b, c) = (staging.add_area(8), staging.add_area(8), staging.add_area(8));
        let of_a: Vec<_> = (0..2).map(|_| staging.take(a).unwrap()).collect();
        let of_b: Vec<_> = (0..6).map(|_| staging.take(b).unwrap()).collect();
        of_a.into_iter().for_each(|slot| staging.give_back(slot));
        of_b[..4].iter().for_each(|&slot| staging.give_back(slot));
        assert!(staging.take(c).is_some());
        assert_eq!((staging.punch.as_slice(), staging.allocated), (&of_b[2..4], 7), "half of them");
        assert!(staging.take(c).is_some() && staging.punch.len() == 2);
    }

    #[test]
    fn released_slots_hold_no_memory_until_they_are_taken_again() {
        let mut staging = Staging::new(4);
        let (a, b) = (staging.add_area(8), staging.add_area(8));
        let slots: Vec<_> = (0..4).map(|_| staging.take(a).unwrap()).collect();
        [0, 2, 3].iter().for_each(|&i| staging.give_back(slots[i]));
        assert!(!staging.release(a, 2));
        assert_eq!((staging.punch.as_slice(), staging.allocated), (&slots[2..], 2));
        assert!(staging.release(a, 2) && staging.release(a, 2));
        assert_eq!((staging.punch.len(), staging.allocated, staging.room(a), staging.room(b)), (3, 1, 2, 2));
        assert_eq!(staging.take(a), Some(slots[0]));
    }

    #[test]
    fn an_area_outlives_its_process_until_its_last_slot_is_free() {
        let mut staging = Staging::new(4);
        let a = staging.add_area(8);
        let slot = staging.take(a).unwrap();
        staging.orphan(a);
        assert!(staging.closed.is_empty());
        staging.give_back(slot);
        assert_eq!((staging.closed.as_slice(), staging.allocated), ([a].as_slice(), 0));
    }
}
