//! What the program may read: the values that some order of its own calls explains.

/// The values a page may have for the program. A value is 0..16; a set is a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Cell {
    allowed: u16,
    /// Written while a removal is under way: it may count as before or after.
    since: u16,
    /// Removals under way.
    removals: u8,
    /// MADV_FREE: may still become zero.
    free: bool,
}

impl Cell {
    /// Holds exactly this value.
    pub fn of(value: u8) -> Cell {
        Cell { allowed: 1 << value, ..Cell::default() }
    }

    /// The program writes a value.
    pub fn write(&mut self, value: u8) {
        self.allowed = 1 << value;
        if self.removals > 0 {
            self.allowed |= 1;
            self.since |= 1 << value;
        } else {
            self.free = false;
        }
    }

    /// A MADV_DONTNEED or MADV_FREE begins.
    pub fn removal_begins(&mut self) {
        self.removals += 1;
        self.allowed |= 1;
    }

    /// It zaps, or with `free` only marks.
    pub fn removal_ends(&mut self, free: bool) {
        self.removals = self.removals.saturating_sub(1);
        if free {
            self.free = true;
            self.allowed |= 1;
        } else {
            self.allowed = 1 | self.since;
        }
        if self.removals == 0 {
            self.since = 0;
        }
    }

    /// The program reads a value: whether that is allowed. What it has seen it may rely on.
    #[must_use]
    pub fn read(&mut self, value: u8) -> bool {
        let seen = 1 << value;
        let fits = self.allowed & seen != 0;
        self.allowed = seen;
        if self.removals > 0 {
            self.allowed |= 1 | self.since;
        }
        if self.free && value != 0 {
            self.allowed |= 1;
        }
        fits
    }

    /// As it is in a fork child, or after mremap: removals under way in the old place do not reach
    /// it.
    pub fn elsewhere(self) -> Cell {
        Cell { removals: 0, since: 0, ..self }
    }

    /// The allowed values, for messages.
    pub fn values(self) -> Vec<u8> {
        (0..16).filter(|v| self.allowed >> v & 1 == 1).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_allows_zero_from_its_begin_and_demands_it_from_its_end() {
        let mut cell = Cell::of(3);
        cell.removal_begins();
        assert_eq!(cell.values(), [0, 3]);
        assert!(cell.read(0), "zero early");
        cell.write(5);
        cell.removal_ends(false);
        assert_eq!(cell.values(), [0, 5], "a write beside it counts before or after");
        assert!(cell.read(5));
        assert!(!cell.read(0), "what was seen stays");
    }

    #[test]
    fn a_freed_page_may_become_zero_until_it_is_written() {
        let mut cell = Cell::of(3);
        cell.removal_begins();
        cell.removal_ends(true);
        assert!(cell.read(3) && cell.read(3) && cell.read(0));
        assert!(!cell.read(3), "zero is final");
        cell.write(4);
        assert!(!cell.read(0));
    }
}
