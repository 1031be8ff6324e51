//! What programs do to their memory, as the simulator takes it: from a generator, or from a
//! recorded run.

use crate::contents::ContentId;

/// In place of a generator: nothing is known of what is written.
pub const UNKNOWN: u16 = u16::MAX;

/// How a page is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Read.
    Read,
    /// Written to: what it holds is another content of its kind from now on.
    Write,
    /// A page of a file, clean, is read: when it was dropped it is read from there.
    File,
}

/// One thing that happens. Pages are numbers of pages of 4 KiB in the address space of a process.
/// Processes have the numbers that the workload gives them, in use from [`Event::Starts`] or
/// [`Event::Forks`] to [`Event::Ends`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A process without any memory.
    Starts {
        /// Its number.
        proc: u32,
    },
    /// It is gone, with all of its pages.
    Ends {
        /// Its number.
        proc: u32,
    },
    /// A process with the same memory.
    Forks {
        /// Number of the parent.
        parent: u32,
        /// Of the new one.
        child: u32,
        /// With what is in memory; otherwise that is found there later.
        present: bool,
    },
    /// Memory is mapped: its pages will hold, when they are written, what this generator of
    /// [`memfit_codec::generate::GENERATORS`] makes. Until then they are zeros. May be said again
    /// with another one.
    Maps {
        /// The process.
        proc: u32,
        /// First page.
        first: u64,
        /// Pages.
        pages: u64,
        /// Index of the generator.
        kind: u16,
    },
    /// A page is in memory, without a fault: a recorded run has found it there when it began to
    /// manage it.
    Present {
        /// The process.
        proc: u32,
        /// The page.
        page: u64,
    },
    /// A page is used.
    Touches {
        /// The process.
        proc: u32,
        /// The page.
        page: u64,
        /// For what.
        how: How,
    },
    /// A page comes back beside the one before it, without being used: a recorded run has brought
    /// it.
    Brought {
        /// The process.
        proc: u32,
        /// The page.
        page: u64,
    },
    /// A page leaves memory: a recorded run has evicted it then.
    Leaves {
        /// The process.
        proc: u32,
        /// The page.
        page: u64,
        /// What it holds, if that is known: the number of one of [`crate::Batch`]'s.
        content: Option<ContentId>,
        /// It is a clean page of a file.
        file: bool,
    },
    /// What pages hold is thrown away (munmap, MADV_DONTNEED).
    Frees {
        /// The process.
        proc: u32,
        /// First page.
        first: u64,
        /// Pages.
        pages: u64,
    },
    /// Pages are mapped elsewhere (mremap).
    Moves {
        /// The process.
        proc: u32,
        /// First page.
        first: u64,
        /// Pages.
        pages: u64,
        /// First page from now on.
        to: u64,
    },
    /// The program computes, and no page is used for the first time meanwhile.
    Computes {
        /// Time, ns.
        ns: u64,
    },
    /// Somebody wants to know what was up to here: the end of a launch, of a turn, of a repetition.
    Reaches {
        /// Which mark; the workload's own.
        mark: u32,
    },
}

/// A source of events, the same each time from the same seed. Its memory does not grow with the
/// number of events.
pub trait Workload: Iterator<Item = Event> + Send {
    /// Says what a mark is, for tables.
    fn mark(&self, mark: u32) -> String {
        format!("mark {mark}")
    }
}
