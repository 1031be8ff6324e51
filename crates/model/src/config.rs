//! What a search runs: scripts, what the pager may do meanwhile, and which rule is broken.

use crate::program::Op;
use crate::PageNo;

/// A rule that a run leaves out, with its number in the design if it has one there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// 3: events are read while the stub may be inside a MOVE; the batch is drained as if it were
    ///    not.
    R3Gate,
    /// 3: events are read and handled, and the batch goes on.
    R3Cancel,
    /// 3a: the stub trusts the number of pages that the MOVE reports.
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
    /// 20: a FORK is handled before the events that were queued before it.
    R20Hoist,
    /// A REMAP to a place that the table still has does not wait for the event that left it.
    RemapOrder,
    /// `io` is let go while such a REMAP waits.
    RemapLocked,
    /// What leaves the target of a REMAP does not wait until all events are read, though memory
    /// that nobody knew of may have been there before.
    Grown,
    /// A fork child's table is believed where the child has nothing registered.
    Confirm,
    /// A fork child is confirmed by what was registered before its `io` was taken, events pending
    /// or not.
    ConfirmLocked,
    /// A page that should be there is verified without `io`, by what the table said before.
    VerifyLocked,
    /// Pages come, and are adopted, as if the zap of every REMOVE were over when it is read.
    ZapPending,
    /// Pages after MADV_FREE are moved as they are: the kernel may drop them in the window.
    Populate,
    /// 21: pages are adopted without a look for pending events.
    R21,
    /// Pages are adopted without a proof that their mappings are registered: a range that was
    /// registered can have had holes.
    Registered,
    /// That proof is made with a page that the table has, and that may be in a batch.
    ProofUnknown,
    /// 22: threads that have a process in a list do not look whether it was removed meanwhile.
    R22,
}

/// What is at a page when the run starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Init {
    /// Nothing is mapped.
    Hole,
    /// Mapped, with a value, not registered.
    Plain(u8),
    /// Mapped and registered, never touched.
    Empty,
    /// The same, but the pager does not know that it is registered: its mapping has grown.
    Grown,
    /// Mapped, registered and adopted, with a value.
    Resident(u8),
    /// Evicted, in staging.
    Staged(u8),
    /// Evicted, compressed.
    Pooled(u8),
}

/// A program and what the pager may do beside it.
#[derive(Debug, Clone, Default)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// The pages at the start; the others are holes.
    pub init: Vec<Init>,
    /// One script a thread; the first is the main thread.
    pub threads: Vec<Vec<Op>>,
    /// The script of a fork child.
    pub child: Vec<Op>,
    /// Batches that may be posted.
    pub posts: u8,
    /// Most pages of a batch; 0 for all.
    pub batch: usize,
    /// Most pages of one range of a batch; 0 for no limit.
    pub split: usize,
    /// Pages that may be compressed.
    pub compress: u8,
    /// Objects that may be written to the swap tier; 0 for no swap tier.
    pub writes: u8,
    /// Looks for new memory.
    pub rescans: u8,
    /// Proofs for the quarantine.
    pub proofs: u8,
    /// Pages after MADV_FREE that the kernel may drop.
    pub drops: u8,
    /// MOVE may move pages that it does not report.
    pub misreport: bool,
    /// Pages filled with zeros, or brought back, by one fault at most.
    pub around: u8,
    /// The pager's threads may hold a process in a list while it ends.
    pub stale_lists: bool,
    /// The child is attached too: looks for new memory may be at the child.
    pub child_attached: bool,
}

impl Scenario {
    /// One thread, or several.
    pub fn new(name: &'static str, init: &[Init], threads: &[&[Op]]) -> Scenario {
        let threads = threads.iter().map(|t| t.to_vec()).collect();
        Scenario { name, init: init.to_vec(), threads, around: 1, ..Scenario::default() }
    }
    /// Batches, with at most so many pages each.
    pub fn posts(mut self, posts: u8, pages: usize) -> Scenario {
        (self.posts, self.batch) = (posts, pages);
        self
    }
    /// What happens to evicted pages.
    pub fn pool(mut self, compress: u8, writes: u8) -> Scenario {
        (self.compress, self.writes) = (compress, writes);
        self
    }
    /// Looks for new memory.
    pub fn rescans(mut self, rescans: u8) -> Scenario {
        self.rescans = rescans;
        self
    }
    /// Proofs for the quarantine.
    pub fn proofs(mut self, proofs: u8) -> Scenario {
        self.proofs = proofs;
        self
    }
    /// What the fork child does.
    pub fn child(mut self, script: &[Op]) -> Scenario {
        self.child = script.to_vec();
        self
    }
    /// Changes anything else.
    pub fn with(mut self, change: impl FnOnce(&mut Scenario)) -> Scenario {
        change(&mut self);
        self
    }
    /// What is at a page at the start.
    pub fn at(&self, page: PageNo) -> Init {
        self.init.get(usize::from(page)).copied().unwrap_or(Init::Hole)
    }
}

/// What the modelled pager and stub do otherwise than the real ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct Changes {
    off: Option<Rule>,
}

impl Changes {
    /// One rule is left out.
    pub fn without(rule: Rule) -> Changes {
        Changes { off: Some(rule) }
    }
    /// Whether a rule is kept.
    pub fn keeps(&self, rule: Rule) -> bool {
        self.off != Some(rule)
    }
}
