//! Where a run is queued when its pages come back: the two ways, and the duel between them.
//!
//! *Young*: at the young end, so that the oldest leave first (FIFO; what is touched again soon
//! after it left comes back from staging). Good for programs that stay with some pages for a while.
//! On a loop over a little more than fits it keeps nothing: each page leaves just before it is
//! wanted.
//!
//! *Bimodal*: on probation, in a queue of its own that leaves first; one run in [`BIMODAL_EVERY`],
//! and what is touched again from staging, goes to the young end. On a loop most of what is
//! resident stays, and only the rest comes and goes.
//!
//! Which of the two is better is found by set dueling (Qureshi et al., "Adaptive Insertion Policies
//! for High Performance Caching", ISCA 2007, sections 4 and 5, there for the sets of a processor's
//! cache): a sample of the runs always does the one, another sample the other, both with their fair
//! share of the memory, and the rest follows whichever brings fewer pages back.
//!
//! The same for the objects in the pool, which leave it for the swap tier: there the runs of a
//! sample are those of the pages that they hold, *back* is from the tier, and a page that comes
//! from the tier goes on probation.

use crate::scheme::ReclaimKind;

/// Groups of runs, each with queues of its own.
pub(crate) const GROUPS: usize = 3;
/// The runs that follow the winner.
pub(crate) const FOLLOWERS: u8 = 0;
/// The sample that does *young*, and the one that does *bimodal*.
pub(crate) const YOUNG_LEADERS: u8 = 1;
pub(crate) const BIMODAL_LEADERS: u8 = 2;
/// One run in so many belongs to each sample.
const LEADERS_EVERY: u64 = 16;
/// One run in so many that comes back goes to the young end though it does *bimodal*: so that the
/// part which stays changes with what the program does (section 4.2 there: 1/32).
const BIMODAL_EVERY: u32 = 32;
/// Part of a group's resident pages that are on probation at least: time to be touched again.
const PROBATION_PART: u64 = 16;
/// Pages brought back in both samples between two verdicts.
const WINDOW: u64 = 1024;
/// *Bimodal* must bring back fewer pages by a part of so many to be taken: its runs leave one by
/// one, which costs more. In the pool it may bring back more by as much: what goes on at once need
/// not be compressed or written if it was not changed.
const MARGIN: u64 = 12;
/// Objects in a row that go to the young end though their group does *bimodal*: neighbours, so that
/// what is read together stays together.
const TOGETHER: u32 = 64;
/// Tracked pages below which a sample says nothing.
const SAMPLE_MIN: u64 = 64;

/// Pages of one group.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group {
    /// That can be taken away.
    pub resident: u64,
    /// Of these, in runs on probation.
    pub probation: u64,
    /// That are out, or on their way back.
    pub out: u64,
}

impl Group {
    fn tracked(&self) -> u64 {
        self.resident + self.out
    }
}

/// The verdict, and what it is made from.
#[derive(Debug)]
pub(crate) struct Duel {
    kind: ReclaimKind,
    /// Pages that each sample has brought back.
    back: [u64; 2],
    bimodal_wins: bool,
    returns: u32,
    pool: bool,
}

impl Duel {
    /// About resident runs.
    pub fn of_resident(kind: ReclaimKind) -> Duel {
        Duel { kind, back: [0; 2], bimodal_wins: kind == ReclaimKind::Bimodal, returns: 0, pool: false }
    }

    /// About objects in the pool, and which of them are written to the swap tier.
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

    /// Whether a group does *bimodal*.
    pub fn bimodal(&self, group: u8) -> bool {
        match group {
            YOUNG_LEADERS => false,
            BIMODAL_LEADERS => true,
            _ => self.bimodal_wins,
        }
    }

    /// Whether a run of which nothing was resident goes on probation now that a page comes back.
    pub fn on_probation(&mut self, group: u8) -> bool {
        if !self.bimodal(group) {
            return false;
        }
        self.returns = self.returns.wrapping_add(1);
        let together = if self.pool { TOGETHER } else { 1 };
        self.returns / together % BIMODAL_EVERY != 0
    }

    /// Whether what is on probation leaves before the rest of its group.
    pub fn probation_first(&self, group: u8, pages: &Group) -> bool {
        let least = if self.bimodal(group) { pages.resident / PROBATION_PART } else { 0 };
        pages.probation > least
    }

    /// The groups in the order in which they give pages: by the part of them that is resident.
    pub fn order(&self, groups: &[Group]) -> [u8; GROUPS] {
        let mut order = [FOLLOWERS, YOUNG_LEADERS, BIMODAL_LEADERS];
        let part = |group: u8| {
            let pages = &groups[usize::from(group)];
            pages.resident * 1024 / pages.tracked().max(1)
        };
        order.sort_by_key(|&group| std::cmp::Reverse(part(group)));
        order
    }

    /// A page of a group comes back from the pool or from the swap tier.
    pub fn came_back(&mut self, group: u8, groups: &[Group]) {
        let Some(back) = usize::from(group).checked_sub(1).and_then(|leader| self.back.get_mut(leader)) else { return };
        *back += 1;
        let tracked = |group: u8| groups[usize::from(group)].tracked();
        let (young, bimodal) = (tracked(YOUNG_LEADERS), tracked(BIMODAL_LEADERS));
        // A loop passes first over what both samples keep, then over what one of them does.
        let window = if self.pool { WINDOW.max(young + bimodal) } else { WINDOW };
        if self.back.iter().sum::<u64>() < window {
            return;
        }
        if young.min(bimodal) >= SAMPLE_MIN {
            // Pages brought back for each tracked page, as cross products.
            let (with_young, with_bimodal) = (self.back[0] * bimodal, self.back[1] * young);
            self.bimodal_wins = if self.pool {
                with_bimodal <= with_young + with_young / MARGIN
            } else {
                let handicap = if self.bimodal_wins { 0 } else { with_young / MARGIN };
                with_bimodal + handicap < with_young
            };
        }
        // The past counts half of the window, its past a quarter, and so on.
        self.back = self.back.map(|pages| pages / 2);
    }
}
