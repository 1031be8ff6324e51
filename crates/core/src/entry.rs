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
    /// Present, but a fault that finds the page absent gives zeros. Three cases: after MADV_FREE,
    /// with the quarantine over, the kernel may drop the page until it is written; a pending zap
    /// may still hit a page that came into the range after the REMOVE event was read; fork does not
    /// copy a mapping of the zero page if nothing in its VMA was ever written.
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
            Untracked => !matches!(new, Evicting(_) | Loading(_)),
            Resident => matches!(new, Evicting(_) | Quarantined(_) | Untracked),
            Lazy => matches!(new, Evicting(_) | Quarantined(_) | Filling(_) | Untracked),
            Quarantined(_) => matches!(new, Quarantined(_) | Lazy | Filling(_) | Untracked),
            Evicting(_) => matches!(new, Out(_) | Resident | Lazy | Untracked),
            Out(_) => matches!(new, Loading(_) | Untracked),
            Loading(_) => matches!(new, Resident | Lazy | Out(_) | Untracked),
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
