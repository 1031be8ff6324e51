//! Index from units to zspages, by first frame.
//!
//! 8 bytes per frame up to the highest used one. Only replacement by units needs it, so it is
//! created by the first query.

use super::super::{shrink_loose, table_bytes, Unit};
use crate::grow::reserve_tight;
use alloc::vec::Vec;

/// What starts at a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    /// Size class.
    pub class: u8,
    /// Zspage of that class, or the handle of an object that fills the frame.
    pub number: u32,
}

/// Nothing starts here. No zspage and no handle has this number.
const NOTHING: Start = Start { class: 0, number: u32::MAX };

/// The index.
#[derive(Debug, Default)]
pub(super) struct UnitIndex {
    /// By frame; the last entry is in use.
    starts: Vec<Start>,
}

impl UnitIndex {
    pub fn insert(&mut self, first_frame: u32, start: Start) {
        let end = first_frame as usize + 1;
        if end > self.starts.len() {
            let extra = end - self.starts.len();
            reserve_tight(&mut self.starts, extra);
            self.starts.resize(end, NOTHING);
        }
        assert_eq!(self.starts[first_frame as usize], NOTHING, "frame {first_frame} was free");
        self.starts[first_frame as usize] = start;
    }

    pub fn remove(&mut self, first_frame: u32) {
        assert_ne!(self.starts[first_frame as usize], NOTHING, "frame {first_frame} begins a unit");
        self.starts[first_frame as usize] = NOTHING;
        while self.starts.last() == Some(&NOTHING) {
            self.starts.pop();
        }
        shrink_loose(&mut self.starts);
    }

    pub fn get(&self, unit: Unit) -> Start {
        let start = self.starts.get(unit.0 as usize).copied().filter(|start| *start != NOTHING);
        start.unwrap_or_else(|| panic!("{unit:?} is not in use"))
    }

    /// First frames in ascending order, and what starts there.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Start)> + '_ {
        (0..).zip(self.starts.iter().copied()).filter(|(_, start)| *start != NOTHING)
    }

    pub fn metadata_bytes(&self) -> u64 {
        table_bytes(&self.starts)
    }
}
