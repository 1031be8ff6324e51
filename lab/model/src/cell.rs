//! The values that the program may read: those that some order of its own calls explains.

/// The values that a page may have for the program, as a bit mask. Values are 0..16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Cell {
    allowed: u16,
    /// Values written during a removal: such a write may count as before or after it.
    since: u16,
    /// Removals in progress.
    removals: u8,
    /// Freed by MADV_FREE: may still become zero.
    free: bool,
}

impl Cell {
    /// A page that holds exactly this value.
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

    /// The removal zaps, or with `free` only marks.
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

    /// Reads a value. Returns whether it is allowed; from now on the program may rely on it.
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

    /// The values in a fork child or after mremap: removals in progress at the old place do not
    /// reach the new one.
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
