//! Where a run is queued when its pages come back: two insertion policies, and a duel between them.
//!
//! *Young* inserts at the young end, so that the oldest runs leave first (FIFO; pages that refault
//! soon after eviction come back from staging). This suits programs that stay with the same pages
//! for a while. In a loop over slightly more than fits, nothing is kept: each page leaves just
//! before its next use.
//!
//! *Bimodal* inserts on probation, in a separate queue that leaves first. One run in
//! [`BIMODAL_EVERY`], and pages that refault from staging, go to the young end. In a loop, most
//! resident pages then stay and only the rest comes and goes.
//!
//! Set dueling selects the policy (Qureshi et al., "Adaptive Insertion Policies for High
//! Performance Caching", ISCA 2007, sections 4 and 5, there for the sets of a processor's cache).
//! One sample of the runs always uses *young*, another *bimodal*, both with their fair share of the
//! memory. The other runs follow the sample with fewer refaults.
//!
//! Another duel decides for objects in the pool, which leave for the swap tier. There the samples
//! are the runs of the objects' pages, a page comes *back* from the tier, or if it was dropped from
//! its file, and such a page goes on probation.

use crate::scheme::ReclaimKind;

/// Groups of runs, each with queues of its own.
pub(crate) const GROUPS: usize = 3;
/// The runs that follow the winner.
pub(crate) const FOLLOWERS: u8 = 0;
/// The sample that uses *young*, and the one that uses *bimodal*.
pub(crate) const YOUNG_LEADERS: u8 = 1;
pub(crate) const BIMODAL_LEADERS: u8 = 2;
/// One run in this many belongs to each sample.
const LEADERS_EVERY: u64 = 16;
/// Under *bimodal*, one returning run in this many goes to the young end, so that the part that
/// stays follows the program's changes (section 4.2 there: 1/32).
const BIMODAL_EVERY: u32 = 32;
/// While at most one in this many of a group's resident pages is on probation, they have time to be
/// touched again: they do not leave before older pages.
const PROBATION_PART: u64 = 16;
/// Refaults in both samples before the first verdict. Half of the counts stay for the next one.
const WINDOW: u64 = 1024;
/// To take over, *bimodal* must have fewer refaults by one in this many: its runs leave one by one,
/// which costs more. In the pool it may have more refaults by as much: a page that leaves the pool
/// at once, unchanged, needs no compression and no write.
const MARGIN: u64 = 12;
/// Consecutive objects that go to the young end together under *bimodal*: they are neighbours, and
/// what is read together stays together.
const TOGETHER: u32 = 64;
/// A sample with fewer tracked pages gives no verdict.
const SAMPLE_MIN: u64 = 64;

/// Page counts of one group.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group {
    /// Pages that can be evicted.
    pub resident: u64,
    /// Of these, pages in runs on probation.
    pub probation: u64,
    /// Pages that are out, or on their way back.
    pub out: u64,
}

impl Group {
    fn tracked(&self) -> u64 {
        self.resident + self.out
    }
}

/// The verdict and the counts behind it.
#[derive(Debug)]
pub(crate) struct Duel {
    kind: ReclaimKind,
    /// Refaults of each sample.
    back: [u64; 2],
    bimodal_wins: bool,
    returns: u32,
    pool: bool,
}

impl Duel {
    /// For resident runs.
    pub fn of_resident(kind: ReclaimKind) -> Duel {
        Duel { kind, back: [0; 2], bimodal_wins: kind == ReclaimKind::Bimodal, returns: 0, pool: false }
    }

    /// For objects in the pool, which writeback moves to the swap tier.
    pub fn of_pool(kind: ReclaimKind) -> Duel {
        Duel { pool: true, ..Duel::of_resident(kind) }
    }

    /// The group of a run.
    pub fn group(&self, number: u64) -> u8 {
        if self.kind != ReclaimKind::Dueling {
            return FOLLOWERS;
        }
        match (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % LEADERS_EVERY {
            0 => YOUNG_LEADERS,
            1 => BIMODAL_LEADERS,
            _ => FOLLOWERS,
        }
    }

    /// Whether a group uses *bimodal*.
    pub fn bimodal(&self, group: u8) -> bool {
        match group {
            YOUNG_LEADERS => false,
            BIMODAL_LEADERS => true,
            _ => self.bimodal_wins,
        }
    }

    /// Whether a run without resident pages goes on probation when a page comes back.
    pub fn on_probation(&mut self, group: u8) -> bool {
        if !self.bimodal(group) {
            return false;
        }
        self.returns = self.returns.wrapping_add(1);
        let together = if self.pool { TOGETHER } else { 1 };
        self.returns / together % BIMODAL_EVERY != 0
    }

    /// Whether runs on probation leave before the rest of their group, even if they are younger.
    pub fn probation_first(&self, group: u8, pages: &Group) -> bool {
        let least = if self.bimodal(group) { pages.resident / PROBATION_PART } else { 0 };
        pages.probation > least
    }

    /// The groups in the order in which they give pages: the largest resident part first.
    pub fn order(&self, groups: &[Group]) -> [u8; GROUPS] {
        let mut order = [FOLLOWERS, YOUNG_LEADERS, BIMODAL_LEADERS];
        let part = |group: u8| {
            let pages = &groups[usize::from(group)];
            pages.resident * 1024 / pages.tracked().max(1)
        };
        order.sort_by_key(|&group| core::cmp::Reverse(part(group)));
        order
    }

    /// A page of a group comes back from the pool, from the swap tier or from its file.
    pub fn came_back(&mut self, group: u8, groups: &[Group]) {
        let Some(back) = usize::from(group).checked_sub(1).and_then(|leader| self.back.get_mut(leader)) else { return };
        *back += 1;
        let tracked = |group: u8| groups[usize::from(group)].tracked();
        let (young, bimodal) = (tracked(YOUNG_LEADERS), tracked(BIMODAL_LEADERS));
        // A loop first passes over pages that both samples keep, then over pages that one of them
        // keeps.
        let window = if self.pool { WINDOW.max(young + bimodal) } else { WINDOW };
        if self.back.iter().sum::<u64>() < window {
            return;
        }
        if young.min(bimodal) >= SAMPLE_MIN {
            // Refaults per tracked page, compared as cross products.
            let (with_young, with_bimodal) = (self.back[0] * bimodal, self.back[1] * young);
            self.bimodal_wins = if self.pool {
                with_bimodal <= with_young + with_young / MARGIN
            } else {
                let handicap = if self.bimodal_wins { 0 } else { with_young / MARGIN };
                with_bimodal + handicap < with_young
            };
        }
        // Older counts decay: half for the last window, a quarter for the one before, and so on.
        self.back = self.back.map(|pages| pages / 2);
    }
}
