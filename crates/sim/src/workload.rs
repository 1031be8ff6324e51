//! What programs do to their memory, as input of the simulator: generated, or from a recorded run.

use crate::contents::ContentId;

/// In place of a generator: the contents of written pages are unknown.
pub const UNKNOWN: u16 = u16::MAX;

/// How a page is touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Read,
    /// Written: from now on the page holds another content of its kind.
    Write,
    /// Read of a clean page of a file; if the page was dropped, it is read from the file.
    File,
}

/// One event. Pages are numbers of 4 KiB pages in the address space of a process. The workload
/// numbers the processes; a number is valid from [`Event::Starts`] or [`Event::Forks`] to
/// [`Event::Ends`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A process starts, without memory.
    Starts {
        /// Its number.
        proc: u32,
    },
    /// A process ends; all of its pages are freed.
    Ends {
        /// Its number.
        proc: u32,
    },
    /// A process forks; the child has the same memory.
    Forks {
        /// Number of the parent.
        parent: u32,
        /// Number of the child.
        child: u32,
        /// The parent's resident pages are the child's at once; otherwise they come as `Present`.
        present: bool,
    },
    /// Memory is mapped. A written page will hold what this generator of
    /// [`memfit_codec::generate::GENERATORS`] makes; until then it holds zeros. The generator of a
    /// range can be changed by another such event.
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
    /// A page is in memory without a fault: the recorded run found it present when it adopted
    /// memory.
    Present {
        /// The process.
        proc: u32,
        /// The page.
        page: u64,
    },
    /// A page is touched.
    Touches {
        /// The process.
        proc: u32,
        /// The page.
        page: u64,
        /// Kind of the touch.
        how: Access,
    },
    /// A process leaves memory as a whole (`memfit bg`), or stops leaving (`memfit fg`).
    LeavesWhole {
        /// The process.
        proc: u32,
        /// Whether it leaves.
        leaves: bool,
    },
    /// A process goes to the background, or to the foreground.
    Background {
        /// The process.
        proc: u32,
        /// Whether it goes to the background.
        background: bool,
    },
    /// A page comes in without a touch: the recorded run brought it in beside a faulting page.
    Brought {
        /// The process.
        proc: u32,
        /// The page.
        page: u64,
    },
    /// The recorded run evicts a page.
    Leaves {
        /// The process.
        proc: u32,
        /// The page.
        page: u64,
        /// The content if it is known or guessed, by its number in [`crate::Batch`]es.
        content: Option<ContentId>,
        /// The content is that of another page.
        guessed: bool,
        /// It is a clean page of a file.
        file: bool,
        /// It is unchanged since it came from the swap tier: the recorded run had a copy there.
        same: bool,
    },
    /// The contents of pages are discarded (munmap, MADV_DONTNEED).
    Frees {
        /// The process.
        proc: u32,
        /// First page.
        first: u64,
        /// Pages.
        pages: u64,
    },
    /// Pages are moved in the address space (mremap).
    Moves {
        /// The process.
        proc: u32,
        /// First page.
        first: u64,
        /// Pages.
        pages: u64,
        /// First page of the new place.
        to: u64,
    },
    /// The programs compute, without a first touch of a page meanwhile.
    Computes {
        /// Time, ns.
        ns: u64,
    },
    /// Asks for the machine's state at this point: the end of a launch, a turn or a repetition.
    Reaches {
        /// Number of the mark, chosen by the workload.
        mark: u32,
    },
}

/// A source of events. The same seed gives the same events. Its memory does not grow with the
/// number of events.
pub trait Workload: Iterator<Item = Event> + Send {
    /// Name of a mark, for tables.
    fn mark(&self, mark: u32) -> String {
        format!("mark {mark}")
    }
}
