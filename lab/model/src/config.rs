//! Input of a search: scripts, the pager's possible actions, and the rule that is broken.

use crate::program::Op;
use crate::PageNo;

/// A rule that a run leaves out, with its number in the design if it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// 3: events are read while the stub may be inside a MOVE; the batch is drained regardless.
    R3Gate,
    /// 3: events are read and handled while the batch goes on.
    R3Cancel,
    /// 3a: the stub trusts the number of pages that MOVE reports.
    R3a,
    /// 5: EAGAIN counts as done.
    R5Done,
    /// 5: EAGAIN is retried without reading the events.
    R5Retry,
    /// 6: a busy page is not drained before its mremap.
    R6,
    /// 8: pages present at a REMOVE stay resident.
    R8,
    /// 11: evictions in flight are not drained before a FORK.
    R11,
    /// 20: the faults of a read are served before its events.
    R20,
    /// 20: a FORK is handled after the faults of its read.
    R20Fork,
    /// 20: a FORK is handled before the events queued ahead of it.
    R20Hoist,
    /// A REMAP to a place known as occupied does not wait for the event that leaves the place.
    RemapOrder,
    /// `io` is released while such a REMAP waits.
    RemapLocked,
    /// An event that leaves the target of a REMAP does not wait until all events are read, although
    /// memory that the pager did not know may have been there earlier.
    Grown,
    /// A fork child's table keeps pages where the child has nothing registered.
    Confirm,
    /// A fork child is confirmed by the registrations seen before its `io` was taken, whether or
    /// not events are pending.
    ConfirmLocked,
    /// A page that should be present is verified without `io`, by an earlier answer of the table.
    VerifyLocked,
    /// Pages are filled and adopted as if a REMOVE's zap were over when the event is read.
    ZapPending,
    /// Pages after MADV_FREE are moved unchanged, so the kernel may drop them in the window.
    Populate,
    /// 21: pages are adopted without a check for pending events.
    R21,
    /// Pages are adopted without a proof that their mappings are registered: a range can have had
    /// holes when it was registered.
    Registered,
    /// That proof uses a page that is in the table and may be in a batch.
    ProofUnknown,
    /// 22: threads that hold a process in a list do not check whether it was removed meanwhile.
    R22,
}

/// State of a page when the run starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Init {
    /// Nothing is mapped.
    Hole,
    /// Mapped, with a value, not registered.
    Plain(u8),
    /// Mapped and registered, never touched.
    Empty,
    /// As `Empty`, but unknown to the pager as registered, because its mapping grew.
    Grown,
    /// Mapped, registered and adopted, with a value.
    Resident(u8),
    /// Evicted, in staging.
    Staged(u8),
    /// Evicted, compressed.
    Pooled(u8),
}

/// A program, and what the pager may do meanwhile.
#[derive(Debug, Clone, Default)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// Pages at the start; all others are holes.
    pub init: Vec<Init>,
    /// A script for each thread; the first is the main thread.
    pub threads: Vec<Vec<Op>>,
    /// The script of a fork child.
    pub child: Vec<Op>,
    /// How many batches may be posted.
    pub posts: u8,
    /// Most pages of a batch; 0 for all.
    pub batch: usize,
    /// Most pages of one range of a batch; 0 for no limit.
    pub split: usize,
    /// How many pages may be compressed.
    pub compress: u8,
    /// How many objects may be written to the swap tier; 0: no swap tier.
    pub writes: u8,
    /// How many times the monitor may look for new memory.
    pub rescans: u8,
    /// How many quarantine proofs may begin.
    pub proofs: u8,
    /// How many pages the kernel may drop after MADV_FREE.
    pub drops: u8,
    /// MOVE may move pages that it does not report.
    pub misreport: bool,
    /// Most pages that one fault fills with zeros or brings back.
    pub around: u8,
    /// The pager's threads may hold a process in a list while it ends.
    pub stale_lists: bool,
    /// The child is attached too, so the monitor may look for new memory there.
    pub child_attached: bool,
}

impl Scenario {
    /// A scenario with these pages and a script for each thread.
    pub fn new(name: &'static str, init: &[Init], threads: &[&[Op]]) -> Scenario {
        let threads = threads.iter().map(|t| t.to_vec()).collect();
        Scenario { name, init: init.to_vec(), threads, around: 1, ..Scenario::default() }
    }
    /// Allows batches, of at most `pages` pages each.
    pub fn posts(mut self, posts: u8, pages: usize) -> Scenario {
        (self.posts, self.batch) = (posts, pages);
        self
    }
    /// Allows compression and writeback of evicted pages.
    pub fn pool(mut self, compress: u8, writes: u8) -> Scenario {
        (self.compress, self.writes) = (compress, writes);
        self
    }
    /// Allows looks for new memory.
    pub fn rescans(mut self, rescans: u8) -> Scenario {
        self.rescans = rescans;
        self
    }
    /// Allows quarantine proofs.
    pub fn proofs(mut self, proofs: u8) -> Scenario {
        self.proofs = proofs;
        self
    }
    /// Sets the script of the fork child.
    pub fn child(mut self, script: &[Op]) -> Scenario {
        self.child = script.to_vec();
        self
    }
    /// Changes other fields.
    pub fn with(mut self, change: impl FnOnce(&mut Scenario)) -> Scenario {
        change(&mut self);
        self
    }
    /// State of a page at the start.
    pub fn at(&self, page: PageNo) -> Init {
        self.init.get(usize::from(page)).copied().unwrap_or(Init::Hole)
    }
}

/// Differences of the modelled pager and stub from the real ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct Changes {
    off: Option<Rule>,
}

impl Changes {
    /// Leaves a rule out.
    pub fn without(rule: Rule) -> Changes {
        Changes { off: Some(rule) }
    }
    /// Whether a rule is kept.
    pub fn keeps(&self, rule: Rule) -> bool {
        self.off != Some(rule)
    }
}
