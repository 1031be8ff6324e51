//! The order of the steps of reclaim.

use memfit_core::budget::{Level, Sizes};
use memfit_core::driver::{Seen, Step, Trouble};
use memfit_core::scheme::Scheme;
use memfit_core::{Answer, Coded, Core, Entry, Origin, Page, PageRange, Placed, ProcId, Tunables, RUN_PAGES};
use std::sync::Arc;

const STAGING: u32 = 64;
const LOW: Seen = Seen {
    level: Level::BelowLow,
    gained: 0,
    blocked: false,
    unmanaged: 0,
    evicts: true,
    tier_writable: true,
    tier_has_space: true,
    tier_slow: false,
    tier_busy: false,
    cpus_full: false,
    answer_late: false,
    read_us: 0,
};
const BACKGROUND: Step = Step::Compress { most: 32, origin: Origin::Background };

/// A core and the driver's caller.
struct Caller {
    core: Core,
    proc: ProcId,
    tick: u64,
}

impl Caller {
    /// With a budget of so many pages, of which some are resident.
    fn new(budget_pages: u64, resident: u64) -> Caller {
        Caller::of(Scheme::default(), budget_pages, resident)
    }

    fn of(scheme: Scheme, budget_pages: u64, resident: u64) -> Caller {
        let mut core = Core::new(Tunables {
            sizes: Sizes::new(budget_pages * 4096, &scheme),
            scheme: Arc::new(scheme),
            staging_slots: STAGING,
            pool_frames: 64,
            area_frames: 128,
            swap: true,
            blocks: Vec::new(),
        });
        let (proc, _) = core.add_process(STAGING);
        (0..resident).for_each(|page| assert!(core.adopt(proc, Page(page), false)));
        Caller { core, proc, tick: 0 }
    }

    /// Evicts pages into staging.
    fn stage(&mut self, pages: usize) {
        while (self.core.totals_staged() as usize) < pages {
            let left = pages - self.core.totals_staged() as usize;
            let (_, victims) = self.core.pick_victims(left, 0, &|_| true).expect("there are pages");
            for victim in victims {
                let answer = Answer { moved: u64::MAX >> (64 - victim.slots.len()), ..Answer::default() };
                self.core.evicted(self.proc, victim.first, victim.slots.len() as u32, answer, 0);
            }
        }
    }

    fn next(&mut self, seen: Seen) -> Step {
        self.core.next_step(self.tick, seen)
    }

    /// The steps of a round that begins now. Each gains what `gained` says of it.
    fn round(&mut self, seen: Seen, gained: impl Fn(Step) -> u32) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut last = 0;
        loop {
            let step = self.next(Seen { gained: last, ..seen });
            last = gained(step);
            steps.push(step);
            if matches!(step, Step::RoundEnds { .. }) {
                return steps;
            }
        }
    }

    /// A round in which the oldest run refuses to move.
    fn refused(&mut self, seen: Seen) -> Vec<Step> {
        let mut steps = Vec::new();
        loop {
            steps.push(self.next(seen));
            match steps.last() {
                Some(Step::Evict) => {
                    let picked = self.core.pick_victims(RUN_PAGES as usize, self.tick, &|_| true);
                    for victim in picked.into_iter().flat_map(|(_, victims)| victims) {
                        let answer = Answer { park: true, ..Answer::default() };
                        self.core.evicted(self.proc, victim.first, victim.slots.len() as u32, answer, self.tick);
                    }
                }
                Some(Step::RoundEnds { .. }) => return steps,
                _ => {}
            }
        }
    }

    /// Rounds without gain for so many ms; what they told.
    fn in_vain(&mut self, seen: Seen, ms: u64) -> Vec<Trouble> {
        let (end, mut told) = (self.tick + ms, Vec::new());
        while self.tick < end {
            self.tick += 1;
            if let Some(Step::RoundEnds { trouble, .. }) = self.round(seen, |_| 0).last() {
                told.extend(*trouble);
            }
        }
        told
    }

    /// A round without gain in each of so many ms, in which the pool is found full or not; what
    /// they told.
    fn with_full_pool(&mut self, seen: Seen, full: bool, ms: u64) -> Vec<Trouble> {
        let mut told = Vec::new();
        for _ in 0..ms {
            self.tick += 1;
            let mut blocked = false;
            loop {
                let step = self.next(Seen { blocked, ..seen });
                blocked = full && matches!(step, Step::Compress { .. });
                if let Step::RoundEnds { trouble, .. } = step {
                    told.extend(trouble);
                    break;
                }
            }
        }
        told
    }
}

/// Nothing takes a page.
const NONE: Seen = Seen { level: Level::FarOver, tier_has_space: false, ..LOW };
const ENDS: Step = Step::RoundEnds { stuck: false, trouble: None };

#[test]
fn a_round_that_gains_takes_these_steps() {
    let mut caller = Caller::new(4096, 2000);
    let steps = caller.round(LOW, |step| u32::from(step == Step::Collect) * 64);
    assert_eq!(steps, [Step::Evict, Step::WriteRaw, Step::Reap, Step::Collect, Step::Clean, ENDS]);
    // With many pages staged, they are compressed before the answers are collected.
    caller.stage(40);
    let steps = caller.round(LOW, |step| u32::from(step == Step::Collect) * 64);
    assert_eq!(steps, [Step::Evict, BACKGROUND, Step::WriteRaw, Step::Reap, Step::Collect, Step::Clean, ENDS]);
}

#[test]
fn a_round_without_gain_waits_and_compresses_and_is_followed_by_a_longer_and_longer_pause() {
    let mut caller = Caller::new(4096, 2000);
    caller.stage(5);
    let direct = Step::Compress { most: 32, origin: Origin::Direct };
    let collect = [Step::Evict, Step::WriteRaw, Step::Reap, Step::Collect, Step::WaitForBatch, Step::Collect];
    let steps = caller.round(Seen { level: Level::BelowMin, ..LOW }, |_| 0);
    assert_eq!(steps, [&collect[..], &[direct, Step::Flush, Step::Clean, ENDS]].concat());
    assert_eq!(caller.next(LOW), Step::Pause { us: 500 });
    caller.round(LOW, |_| 0);
    assert_eq!(caller.next(LOW), Step::Pause { us: 1000 });
    caller.round(LOW, |_| 0);
    assert_eq!(caller.next(Seen { tier_busy: true, ..LOW }), Step::WaitForDevice);
    // After a pause, the low watermark decides; after a wait for the device, the high one.
    let between = Seen { level: Level::BelowHigh, ..LOW };
    assert_eq!(caller.next(between), Step::Evict);
    caller.round(LOW, |_| 0);
    assert_eq!(caller.next(LOW), Step::Pause { us: 2000 });
    assert_eq!(caller.next(between), Step::Sleep);
}

#[test]
fn reclaim_works_from_the_low_to_the_high_watermark() {
    let mut caller = Caller::new(4096, 2000);
    let at = |level| Seen { level, ..LOW };
    assert_eq!(caller.next(at(Level::BelowHigh)), Step::Sleep);
    for step in [Step::Collect, Step::Reap, Step::Clean, Step::Sleep] {
        assert_eq!(caller.next(at(Level::BelowHigh)), step);
        assert_eq!(caller.core.reclaim_sleeps(), step == Step::Sleep);
    }
    for step in [Step::Collect, Step::Reap, Step::Clean] {
        assert_eq!(caller.next(at(Level::BelowHigh)), step);
    }
    caller.round(LOW, |step| u32::from(step == Step::Collect));
    caller.round(at(Level::BelowHigh), |step| u32::from(step == Step::Collect));
    assert_eq!(caller.next(at(Level::Enough)), Step::Sleep);
}

/// cervera99, rule 12; a device that does not answer is not waited for for ever.
#[test]
fn a_synchronous_scheme_waits_for_its_writes() {
    let mut scheme = Scheme::default();
    scheme.swap_format.synchronous = 1;
    let mut caller = Caller::of(scheme, 1 << 20, 10);
    let busy = Seen { tier_busy: true, ..LOW };
    let write_back = |caller: &mut Caller, seen: Seen| {
        assert!((0..1000).any(|_| caller.next(seen) == Step::WriteBack { pressed: true }));
    };
    write_back(&mut caller, busy);
    for _ in 0..3 {
        assert_eq!(caller.next(busy), Step::WaitForDevice);
        assert_eq!(caller.next(busy), Step::Reap);
    }
    assert_eq!(caller.next(LOW), Step::Flush);
    write_back(&mut caller, busy);
    let waits = |caller: &mut Caller| {
        (0..10_000).take_while(|_| matches!(caller.next(busy), Step::WaitForDevice | Step::Reap)).count()
    };
    assert_eq!(waits(&mut caller), 2 * 400);
    // Nor once more, before it has answered.
    write_back(&mut caller, busy);
    assert_eq!(waits(&mut caller), 0);
    write_back(&mut caller, LOW);
    assert_eq!(caller.next(LOW), Step::Flush);
    write_back(&mut caller, busy);
    assert_eq!(caller.next(busy), Step::WaitForDevice);
    // Each write that ends is an answer.
    for _ in 0..1000 {
        assert_eq!(caller.next(busy), Step::Reap);
        assert_eq!(caller.next(Seen { gained: 1, ..busy }), Step::WaitForDevice);
    }
    let mut others = Caller::new(1 << 20, 10);
    write_back(&mut others, busy);
    assert_eq!(others.next(busy), Step::Flush);
}

#[test]
fn only_the_pool_gives_when_the_resident_pages_are_at_their_floor() {
    let mut caller = Caller::new(1 << 20, 10);
    let steps = caller.round(LOW, |step| u32::from(matches!(step, Step::WriteBack { .. })));
    let waits = [Step::WriteRaw, Step::Reap, Step::Collect, Step::WaitForBatch, Step::Collect];
    assert_eq!(steps, [&waits[..], &[Step::WriteBack { pressed: true }, Step::Clean, ENDS]].concat());
    // Memory that cannot be evicted is resident, too.
    let steps = caller.round(Seen { unmanaged: 1 << 20, ..LOW }, |step| u32::from(step == Step::Evict));
    assert_eq!(steps[0], Step::Evict);
    // Where a recording decides which pages are resident, only the pool gives.
    let recorded = Seen { evicts: false, level: Level::BelowMin, unmanaged: 1 << 20, ..LOW };
    let steps = caller.round(recorded, |_| 1);
    assert!(!steps.contains(&Step::Evict) && steps.contains(&Step::WriteBack { pressed: true }), "{steps:?}");
}

#[test]
fn a_full_pool_gives_room_at_once_and_is_left_alone_for_2_ms_if_it_cannot() {
    let mut caller = Caller::new(4096, 2000);
    caller.stage(40);
    assert_eq!((caller.next(LOW), caller.next(LOW)), (Step::Evict, BACKGROUND));
    let (blocked, no_room) = (Seen { blocked: true, ..LOW }, Seen { tier_has_space: false, ..LOW });
    assert_eq!(caller.next(blocked), Step::WriteBack { pressed: true });
    assert_eq!(caller.next(LOW), Step::WriteRaw);
    caller.round(LOW, |_| 1);
    assert!(!caller.round(no_room, |_| 1).contains(&BACKGROUND));
    assert!(caller.round(LOW, |_| 1).contains(&BACKGROUND), "the tier takes pages");
    caller.tick += 2;
    assert!(caller.round(no_room, |_| 1).contains(&BACKGROUND));
}

#[test]
fn compaction_comes_first_and_pauses_when_nothing_can_move() {
    let mut caller = Caller::new(4096, 2000);
    // Zpages of a tenth of a page, of which nine in ten then go away: most of the pool is waste.
    for _ in 0..4 {
        caller.stage(40);
        let mut picked = Vec::new();
        caller.core.pick_compress(40, &mut picked);
        for item in picked {
            let placed = caller.core.compressed(item.object, Coded::Bytes { codec: 1, len: 1300 });
            assert!(matches!(placed, Placed::Pool { .. }));
        }
    }
    let is_out = |page: &u64| matches!(caller.core.entry(caller.proc, Page(*page)), Entry::Out(_));
    let out: Vec<u64> = (0..2000).filter(is_out).collect();
    for page in out.iter().enumerate().filter(|(i, _)| i % 4 > 0).map(|(_, &page)| page) {
        caller.core.unmapped(caller.proc, PageRange { first: Page(page), pages: 1 });
    }
    assert_eq!(caller.next(LOW), Step::Compact);
    assert_eq!(caller.next(Seen { gained: 3, level: Level::Enough, ..LOW }), ENDS, "that was enough");
    assert_eq!(caller.next(LOW), Step::Compact);
    assert_eq!(caller.next(Seen { blocked: true, ..LOW }), Step::Evict);
    let mut rounds = 0;
    while !caller.round(LOW, |_| 1).contains(&Step::Compact) {
        rounds += 1;
        assert!(rounds < 100, "compaction is not tried again");
    }
    assert!(rounds > 60, "{rounds} rounds");
}

/// Nothing moves under a policy, and yet the tables of a pool that has become small do.
#[test]
fn the_tables_of_the_pool_shrink_under_every_replacement() {
    for preset in ["memfit", "zswap-zbud", "zswap-z3fold", "zswap-zsmalloc"] {
        let scheme = memfit_scheme::preset(preset, &[]).expect("a preset").expect("sound overrides");
        let mut caller = Caller::of(scheme, 4096, 2000);
        let mut first = None;
        while caller.core.pool_usage().zpages < 120 {
            caller.stage(40);
            let mut picked = Vec::new();
            caller.core.pick_compress(40, &mut picked);
            for item in picked {
                first.get_or_insert(item.object);
                let placed = caller.core.compressed(item.object, Coded::Bytes { codec: 1, len: 1000 });
                assert!(matches!(placed, Placed::Pool { .. }));
            }
        }
        // Its place is in front of all others.
        let goes = |page: &u64| match caller.core.entry(caller.proc, Page(*page)) {
            Entry::Out(object) => Some(object) != first,
            _ => false,
        };
        let out: Vec<u64> = (0..2000).filter(goes).collect();
        for page in out {
            caller.core.unmapped(caller.proc, PageRange { first: Page(page), pages: 1 });
        }
        let before = caller.core.metadata_bytes();
        caller.round(LOW, |_| 0);
        let after = caller.core.metadata_bytes();
        assert!(after + 50 * 8 < before, "{preset}: {after} of {before} bytes");
    }
}

#[test]
fn nobody_waits_for_reclaim_that_gains_nothing_and_the_user_is_told() {
    let mut caller = Caller::new(4096, 2000);
    let over = Seen { level: Level::Over, ..LOW };
    assert_eq!(caller.in_vain(over, 45), []);
    assert!(!caller.core.is_stuck());
    caller.in_vain(over, 10);
    assert!(caller.core.is_stuck());
    let told = caller.in_vain(over, 10_000);
    assert_eq!(told, [Trouble::Short], "once");
    // 64 pages in 50 ms are worth waiting for.
    caller.tick += 60;
    caller.round(over, |step| u32::from(step == Step::Collect) * 64);
    assert!(!caller.core.is_stuck());
}

/// The pages of a pinned huge page are in many runs, and all refuse to move.
#[test]
fn reclaim_neither_pauses_nor_counts_as_stuck_while_runs_refuse_and_others_had_no_turn() {
    let mut caller = Caller::new(4096, 2000);
    let over = Seen { level: Level::Over, ..LOW };
    for _ in 0..2000 / RUN_PAGES {
        caller.tick += 20;
        let steps = caller.refused(over);
        assert_eq!((steps.first(), steps.last()), (Some(&Step::Evict), Some(&ENDS)));
    }
    // All had a turn by now.
    caller.in_vain(over, 100);
    assert!(caller.core.is_stuck());
}

/// While one process is busy with a batch, the next choice leaves it out.
#[test]
fn a_process_that_gives_pages_still_counts_while_others_are_asked() {
    let mut caller = Caller::new(4096, 2000);
    let (other, _) = caller.core.add_process(64);
    (0..RUN_PAGES).for_each(|page| assert!(caller.core.adopt(other, Page(page), false)));
    loop {
        match caller.next(LOW) {
            Step::Evict => {
                let first = caller.proc;
                for may in [first, other] {
                    let picked =
                        caller.core.pick_victims(RUN_PAGES as usize, caller.tick, &|proc| proc == may || may == first);
                    let (proc, victims) = picked.expect("it has pages");
                    for victim in victims {
                        let answer = Answer { park: true, ..Answer::default() };
                        caller.core.evicted(proc, victim.first, victim.slots.len() as u32, answer, caller.tick);
                    }
                }
            }
            Step::RoundEnds { .. } => break,
            _ => {}
        }
    }
    assert_eq!(caller.next(LOW), Step::Evict, "the first process has more");
}

#[test]
fn runs_that_refuse_again_are_no_reason_to_go_on_unless_others_have_left_since() {
    let mut caller = Caller::new(4096, 2000);
    for _ in 0..2000 / RUN_PAGES {
        caller.refused(LOW);
    }
    caller.tick += 1000;
    caller.refused(LOW);
    assert!(matches!(caller.next(LOW), Step::Pause { .. }), "though the others are queued");
    caller.tick += 60;
    caller.round(LOW, |step| u32::from(step == Step::Collect) * 64);
    caller.refused(LOW);
    assert_eq!(caller.next(LOW), Step::Evict);
}

#[test]
fn nobody_goes_on_while_an_answer_is_late() {
    let mut caller = Caller::new(4096, 2000);
    let late = Seen { answer_late: true, ..LOW };
    caller.in_vain(late, 900);
    assert!(!caller.core.is_stuck());
    caller.in_vain(LOW, 1);
    assert!(caller.core.is_stuck());
}

#[test]
fn slow_rounds_that_gain_are_worth_waiting_for() {
    for (pages, stuck) in [(20, false), (10, true)] {
        let mut caller = Caller::new(4096, 2000);
        for _ in 0..20 {
            caller.tick += 40;
            caller.round(LOW, |step| u32::from(step == Step::Collect) * pages);
        }
        assert_eq!(caller.core.is_stuck(), stuck, "{pages} pages");
    }
    let mut caller = Caller::new(4096, 2000);
    for _ in 0..200 {
        caller.tick += 1;
        caller.round(LOW, |step| u32::from(step == Step::Collect));
    }
    assert!(caller.core.is_stuck(), "a page in each of many rounds");
}

/// It is reported again and again: what was done about it may not have been enough.
#[test]
fn the_run_is_hopeless_when_nothing_takes_a_page_far_over_the_budget() {
    let hopeless = |seen: Seen, full: bool| {
        let mut caller = Caller::new(4096, 2000);
        caller.stage(40);
        caller.with_full_pool(seen, full, 300)
    };
    assert_eq!(hopeless(NONE, true), [Trouble::Hopeless; 2]);
    assert_eq!(hopeless(NONE, false), [], "the pool takes pages");
    assert_eq!(hopeless(Seen { tier_has_space: true, ..NONE }, true), [], "the tier does");
    assert_eq!(hopeless(Seen { level: Level::Over, ..NONE }, true), []);
}

/// A pool that is full and may grow takes pages later; not so if nothing fills it.
#[test]
fn the_run_is_not_hopeless_while_the_pool_may_grow() {
    let growing = || memfit_scheme::preset("tuduce05", &[]).expect("a preset").expect("sound overrides");
    let mut caller = Caller::of(growing(), 4096, 2000);
    caller.stage(40);
    assert_eq!(caller.with_full_pool(NONE, true, 300), []);
    assert_eq!(Caller::of(growing(), 1 << 20, 10).in_vain(NONE, 300), [Trouble::Hopeless; 2]);
}

/// They fill the pool no further, which may have room.
#[test]
fn the_run_is_hopeless_when_the_resident_pages_are_at_their_floor() {
    let hopeless = |seen: Seen| Caller::new(1 << 20, 10).in_vain(seen, 300);
    assert_eq!(hopeless(NONE), [Trouble::Hopeless; 2]);
    assert_eq!(hopeless(Seen { tier_has_space: true, ..NONE }), [], "the tier takes pages of the pool");
    assert_eq!(hopeless(Seen { level: Level::Over, ..NONE }), []);
    assert_eq!(hopeless(Seen { unmanaged: 1 << 20, ..NONE }), [], "others are resident");
}

#[test]
fn only_hopeless_times_in_a_row_end_a_run() {
    let mut caller = Caller::new(4096, 2000);
    caller.stage(40);
    for _ in 0..10 {
        assert_eq!(caller.with_full_pool(NONE, true, 80), [], "one window");
        // The budget holds again, nearly.
        let better = Seen { level: Level::Over, ..NONE };
        for _ in 0..60 {
            caller.tick += 1;
            caller.round(better, |step| u32::from(step == Step::Collect) * 64);
        }
        assert!(!caller.core.is_stuck());
    }
    for _ in 0..10 {
        assert_eq!(caller.with_full_pool(NONE, true, 80), [], "one window");
        while caller.next(Seen { level: Level::Enough, ..LOW }) != Step::Sleep {}
    }
    // Pages that move into staging between two such times free nothing.
    assert_eq!(caller.with_full_pool(NONE, true, 80), []);
    for _ in 0..60 {
        caller.tick += 1;
        caller.round(NONE, |step| u32::from(step == Step::Collect) * 64);
    }
    assert_eq!(caller.with_full_pool(NONE, true, 80), [Trouble::Hopeless]);
}
