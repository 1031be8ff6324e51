//! Staging slots: the free ones of each area, within one limit over all areas.

use crate::ids::{AreaId, StagingSlot};
use alloc::vec::Vec;

#[derive(Debug)]
struct Area {
    /// Free slots that still hold memory; the last one was used last.
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
    /// Most slots that may hold memory.
    pub cap: u32,
    /// Slots whose memory the pager must give back.
    pub punch: Vec<StagingSlot>,
    /// Areas whose segment the pager must close.
    pub closed: Vec<AreaId>,
}

impl Staging {
    pub fn new(cap: u32) -> Staging {
        Staging { areas: Vec::new(), allocated: 0, cap, punch: Vec::new(), closed: Vec::new() }
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
        Some(StagingSlot { area: id, index })
    }

    /// Number of slots that can be taken from this area.
    pub fn room(&self, id: AreaId) -> u32 {
        let area = self.areas[id.0 as usize].as_ref().expect("staging area exists");
        let free = area.free.len() as u32;
        let elsewhere = self.areas.iter().flatten().map(|area| area.free.len() as u32).sum::<u32>() - free;
        let fresh = area.punched.len() as u32 + area.capacity - area.next_fresh;
        free + fresh.min(self.cap.saturating_sub(self.allocated) + elsewhere)
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

    /// Punches a free slot of another area.
    fn shrink_another(&mut self, but: AreaId) -> bool {
        for (i, area) in self.areas.iter_mut().enumerate() {
            let Some(area) = area else { continue };
            if i as u32 != but.0 && !area.free.is_empty() {
                let index = area.free.remove(0);
                area.punched.push(index);
                self.punch.push(StagingSlot { area: AreaId(i as u32), index });
                self.allocated -= 1;
                return true;
            }
        }
        false
    }

    pub fn give_back(&mut self, slot: StagingSlot) {
        let area = self.area(slot.area);
        assert!(area.in_use > 0 && !area.free.contains_debug(slot.index), "staging slot freed twice");
        area.in_use -= 1;
        area.free.push(slot.index);
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

    fn drop_if_done(&mut self, id: AreaId) {
        let area = self.area(id);
        if area.orphan && area.in_use == 0 {
            self.allocated -= area.free.len() as u32;
            self.areas[id.0 as usize] = None;
            self.punch.retain(|slot| slot.area != id);
            self.closed.push(id);
        }
    }

    /// Slots in use over all areas.
    pub fn in_use(&self) -> u32 {
        self.areas.iter().flatten().map(|a| a.in_use).sum()
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
    fn the_room_of_an_area_is_what_it_gives() {
        let mut staging = Staging::new(6);
        let (a, b) = (staging.add_area(8), staging.add_area(3));
        assert_eq!((staging.room(a), staging.room(b)), (6, 3));
        let slots: Vec<_> = (0..4).map(|_| staging.take(a).unwrap()).collect();
        assert_eq!((staging.room(a), staging.room(b)), (2, 2), "the cap");
        slots[..2].iter().for_each(|&slot| staging.give_back(slot));
        assert_eq!((staging.room(a), staging.room(b)), (4, 3), "and what the other does not use");
        (0..3).for_each(|_| assert!(staging.take(b).is_some()));
        assert_eq!((staging.room(a), staging.room(b)), (1, 0), "one of its free ones was punched");
        assert!(staging.take(b).is_none() && staging.take(a).is_some() && staging.take(a).is_none());
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
        assert_eq!((staging.punch.len(), staging.allocated, staging.room(a), staging.room(b)), (3, 1, 3, 3));
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
