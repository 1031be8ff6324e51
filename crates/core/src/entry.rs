//! The state of one page, and which changes of it are legal.

use crate::ids::ObjectId;

/// State of one page in one address space. See ARCHITECTURE.md, "Page states".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Never seen present: a fault fills it with zeros.
    Untracked,
    /// In the program's memory, in a registered range.
    Resident,
    /// In the program's memory when a REMOVE event came; the kernel may zap it at any moment. The
    /// number is the process's epoch at the last such event.
    Quarantined(u32),
    /// Present, but a fault that finds the page absent gives zeros. Four cases: after MADV_FREE,
    /// with the quarantine over, the kernel may drop the page until it is written; the program may
    /// have called MADV_FREE before memfit knew of the page; a pending zap may still hit a page
    /// that came into the range after the REMOVE event was read; fork does not copy a mapping of
    /// the zero page if nothing in its VMA was ever written.
    Lazy,
    /// In a batch for the stub; the page has this staging slot.
    Evicting(BatchSlot),
    /// Evicted: the bytes are in this object.
    Out(ObjectId),
    /// The process's fault thread is copying the page back from this object.
    Loading(ObjectId),
    /// The process's fault thread is filling the page with zeros.
    Filling(Unfilled),
}

impl Entry {
    /// Whether a transition to `new` exists; ARCHITECTURE.md, "Page states", says who makes each.
    /// Any entry can become Untracked, when its mapping or process is gone.
    pub fn may_become(self, new: Entry) -> bool {
        use Entry::*;
        match self {
            // Also Out: a fork child and a moved mapping get the entries of others. A page leaves
            // or loads only as a tracked one.
            Untracked => !matches!(new, Evicting(_) | Loading(_)),
            // Never Filling: a fault that finds a resident page absent has found a lost page.
            Resident => matches!(new, Evicting(_) | Quarantined(_) | Untracked),
            // Filling: the kernel dropped or zapped the page before the fault.
            Lazy => matches!(new, Evicting(_) | Quarantined(_) | Filling(_) | Untracked),
            // Again Quarantined: a later event has a newer epoch. Never Evicting: the page would
            // come back after its zap. Never Resident: only a fill shows that the zap is over.
            Quarantined(_) => matches!(new, Quarantined(_) | Lazy | Filling(_) | Untracked),
            // Resident, Lazy: the page did not move. Untracked: the kernel had dropped a Lazy page.
            Evicting(_) => matches!(new, Out(_) | Resident | Lazy | Untracked),
            // Never Resident: while the bytes are copied, the object must be pinned.
            Out(_) => matches!(new, Loading(_) | Untracked),
            // Out: the kernel refused the copy because of an unread event.
            Loading(_) => matches!(new, Resident | Lazy | Out(_) | Untracked),
            // Quarantined, Lazy, Untracked: the entry before, because nothing was filled.
            Filling(_) => matches!(new, Resident | Lazy | Quarantined(_) | Untracked),
        }
    }
}

/// Index of the staging slot of a page in a batch, and in bit 28 whether the page was
/// [`Entry::Lazy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BatchSlot(u32);

impl BatchSlot {
    pub(crate) fn new(index: u32, lazy: bool) -> BatchSlot {
        BatchSlot(index | u32::from(lazy) << 28)
    }

    pub(crate) fn index(self) -> u32 {
        self.0 & !(1 << 28)
    }

    pub(crate) fn was_lazy(self) -> bool {
        self.0 >> 28 & 1 == 1
    }
}

/// The entry of a page before it became [`Entry::Filling`]. Proofs and batches leave it alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Unfilled(u32);

impl Unfilled {
    const UNTRACKED: Unfilled = Unfilled(0);
    const LAZY: Unfilled = Unfilled(1);

    pub(crate) fn of(entry: Entry) -> Unfilled {
        match entry {
            Entry::Lazy => Self::LAZY,
            Entry::Quarantined(epoch) => Unfilled(epoch + 2),
            _ => Self::UNTRACKED,
        }
    }

    pub(crate) fn entry(self) -> Entry {
        match self {
            Self::UNTRACKED => Entry::Untracked,
            Self::LAZY => Entry::Lazy,
            Unfilled(epoch) => Entry::Quarantined(epoch - 2),
        }
    }
}

/// [`Entry`] in 32 bits: a 3-bit tag and a 29-bit number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packed(pub u32);

/// Largest number in an entry: 2^29 - 1 objects, 2 TiB of pages.
pub(crate) const ENTRY_NUMBER_MAX: u32 = (1 << 29) - 1;
/// Largest number of a proof ([`Entry::Quarantined`]); 0 comes after it.
pub(crate) const EPOCH_MAX: u32 = ENTRY_NUMBER_MAX >> 1;

/// Whether epoch `a` is not after `b`. Epochs that are compared lie near each other.
pub(crate) fn is_not_after(a: u32, b: u32) -> bool {
    b.wrapping_sub(a) & EPOCH_MAX <= EPOCH_MAX / 2
}

impl Packed {
    pub fn new(entry: Entry) -> Packed {
        let (tag, number) = match entry {
            Entry::Untracked => (0, 0),
            Entry::Resident => (1, 0),
            Entry::Quarantined(epoch) => (2, epoch),
            Entry::Evicting(slot) => (3, slot.0),
            Entry::Out(object) => (4, object.0),
            Entry::Loading(object) => (5, object.0),
            Entry::Filling(before) => (6, before.0),
            Entry::Lazy => (7, 0),
        };
        assert!(number <= ENTRY_NUMBER_MAX, "entry number {number} does not fit");
        Packed(tag << 29 | number)
    }

    pub fn get(self) -> Entry {
        let number = self.0 & ENTRY_NUMBER_MAX;
        match self.0 >> 29 {
            0 => Entry::Untracked,
            1 => Entry::Resident,
            2 => Entry::Quarantined(number),
            3 => Entry::Evicting(BatchSlot(number)),
            4 => Entry::Out(ObjectId(number)),
            5 => Entry::Loading(ObjectId(number)),
            6 => Entry::Filling(Unfilled(number)),
            _ => Entry::Lazy,
        }
    }
}

/// Whether the page can be evicted.
pub(crate) fn evictable(entry: Entry) -> bool {
    matches!(entry, Entry::Resident | Entry::Lazy)
}

/// 1 if the fault thread is filling the page.
pub(crate) fn coming(entry: Entry) -> u64 {
    u64::from(matches!(entry, Entry::Loading(_) | Entry::Filling(_)))
}

pub(crate) fn quarantined(entry: Entry) -> u64 {
    u64::from(matches!(entry, Entry::Quarantined(_)))
}

pub(crate) fn evicting(entry: Entry) -> u64 {
    u64::from(matches!(entry, Entry::Evicting(_)))
}

pub(crate) fn present(entry: Entry) -> u64 {
    u64::from(matches!(entry, Entry::Resident | Entry::Lazy | Entry::Quarantined(_) | Entry::Evicting(_)))
}

/// 1 if the page's bytes are outside of the program's memory.
pub(crate) fn out(entry: Entry) -> u64 {
    u64::from(matches!(entry, Entry::Out(_) | Entry::Loading(_)))
}

#[cfg(test)]
mod tests {
    use super::Entry::*;
    use super::*;

    const EVICTING: Entry = Evicting(BatchSlot(3));
    const OUT: Entry = Out(ObjectId(7));
    const LOADING: Entry = Loading(ObjectId(7));
    const FILLING: Entry = Filling(Unfilled::LAZY);
    const QUARANTINED: Entry = Quarantined(5);

    #[test]
    fn illegal_transitions() {
        let illegal: [(Entry, &[Entry]); 8] = [
            (Untracked, &[EVICTING, LOADING]),
            (Resident, &[Resident, Lazy, OUT, LOADING, FILLING]),
            (Lazy, &[Resident, Lazy, OUT, LOADING]),
            (QUARANTINED, &[Resident, EVICTING, OUT, LOADING]),
            (EVICTING, &[QUARANTINED, EVICTING, LOADING, FILLING]),
            (OUT, &[Resident, Lazy, QUARANTINED, EVICTING, OUT, FILLING]),
            (LOADING, &[QUARANTINED, EVICTING, LOADING, FILLING]),
            (FILLING, &[EVICTING, OUT, LOADING, FILLING]),
        ];
        for (old, never) in illegal {
            for (new, _) in illegal {
                assert_eq!(old.may_become(new), !never.contains(&new), "{old:?} to {new:?}");
            }
        }
    }

    #[test]
    fn entries_are_packed_whole() {
        let all = [Untracked, Resident, Lazy, QUARANTINED, EVICTING, OUT, LOADING, FILLING];
        let lazy = BatchSlot::new(3, true);
        assert_eq!((lazy.index(), lazy.was_lazy(), BatchSlot(3).was_lazy()), (3, true, false));
        for entry in all.into_iter().chain([Evicting(lazy)]) {
            assert_eq!(Packed::new(entry).get(), entry);
        }
        for entry in [Untracked, Lazy, QUARANTINED] {
            assert_eq!(Unfilled::of(entry).entry(), entry);
        }
    }
}
