//! Refaults under each replacement mode on known access patterns, in miniature: a program of which
//! a given number of pages may be resident.

use memfit_core::replacement::find;
use memfit_core::scheme::{Classes, ReclaimKind, Scheme};
use memfit_core::{Answer, Coded, Core, Entry, Extent, Fault, Filled, Origin, Page, PageRange, ProcId, Stored};

mod support;

const PAGES: u64 = 16_000;
const STAGED: usize = 400;

struct Program {
    core: Core,
    proc: ProcId,
    /// Most pages that stay in the program.
    room: u64,
    /// Pages that stay in the pool, and objects written to the swap tier so far.
    pool: u64,
    written: u32,
    /// Whether the swap tier keeps copies, so that unchanged pages need no write.
    clean: bool,
    /// The pages are those of a file.
    of_file: bool,
    /// Refaults of pages that were compressed; and those from the swap tier or the file.
    back: u64,
    fetched: u64,
}

impl Program {
    fn new(kind: ReclaimKind, room: u64) -> Program {
        Program::with(Classes::Anonymous, kind, room)
    }

    /// Of pages that have their contents from a file unless the classes are those of anonymous
    /// memory.
    fn with(classes: Classes, kind: ReclaimKind, room: u64) -> Program {
        let mut scheme = Scheme { classes, ..Scheme::default() };
        (scheme.reclaim.kind, scheme.fault.around_pages, scheme.fault.zero_run_pages) = (kind, 1, 1);
        // The pool's queues have the names of the program's, with one exception.
        scheme.replacement.kind = match kind {
            ReclaimKind::Fifo => find("fifo"),
            other => find(other.name()),
        }
        .expect("it is in the table");
        let mut core = support::core(scheme, 4096);
        let (proc, _) = core.add_process(4096);
        let of_file = classes != Classes::Anonymous;
        Program { core, proc, room, pool: u64::MAX, written: 0, clean: false, of_file, back: 0, fetched: 0 }
    }

    /// With at most `pool` pages in the pool and a swap tier for the rest.
    fn spilling(kind: ReclaimKind, room: u64, pool: u64) -> Program {
        let mut program = Program::new(kind, room);
        program.core.swap_takes(true);
        Program { pool, ..program }
    }

    fn touch(&mut self, page: u64) {
        let page = Page(page);
        if matches!(self.core.entry(self.proc, page), Entry::Resident) {
            return;
        }
        let read = |core: &Core| core.counters().faults_swap + core.counters().faults_file;
        let (before, fetched) = (self.core.counters().faults_pool, read(&self.core));
        let mut loads = Vec::new();
        let limit = PageRange { first: Page(0), pages: PAGES };
        assert_eq!(self.core.fault(self.proc, page, limit, u32::MAX, &mut loads), Fault::Load);
        let filled = if self.of_file { Filled::Read } else { Filled::Done };
        loads.iter().for_each(|load| self.core.loaded(self.proc, load.page, filled));
        self.back += self.core.counters().faults_pool - before;
        self.fetched += read(&self.core) - fetched;
        while self.core.present_pages(self.proc) > self.room {
            self.reclaim();
        }
    }

    fn reclaim(&mut self) {
        let (proc, victims) = self.core.pick_victims(64, 0, &|_| true).expect("there are victims");
        for victim in victims {
            let pages = victim.slots.len() as u32;
            let moved = u64::MAX >> (64 - pages);
            let answer = Answer { moved, file: if self.of_file { moved } else { 0 }, ..Answer::default() };
            self.core.evicted(proc, victim.first, pages, answer, 0);
        }
        let mut picked = Vec::new();
        self.core.pick_compress((self.core.totals_staged() as usize).saturating_sub(STAGED), &mut picked);
        for item in picked {
            drop(self.core.take_effects());
            if self.of_file && self.core.offer(item.object, Origin::Background, None).is_some() {
                continue;
            }
            let asked = self.core.goes_on(item.object);
            let extent = Extent { unit: self.written * 9 + 1 };
            let coded = match asked && self.clean {
                true => Coded::Stored(Stored { extent, len: 500, codec: 1 }),
                false => Coded::Bytes { codec: 1, len: 500 },
            };
            self.core.compressed(item.object, coded);
        }
        while self.core.totals(0).pooled > self.pool {
            let mut batch = Vec::new();
            self.core.pick_writeback(true, if self.of_file { 0 } else { 8 * 576 }, &mut batch);
            for item in batch {
                self.written += 1;
                self.core.written(item.object, Some(Extent { unit: self.written * 9 }));
            }
        }
    }

    /// Refaults in `turns` turns of a pattern, after as many to warm up.
    fn cost(&mut self, turns: u64, pattern: &mut dyn FnMut(u64) -> u64) -> u64 {
        (0..turns).for_each(|turn| self.touch(pattern(turn)));
        self.core.check();
        (self.back, self.fetched) = (0, 0);
        (turns..turns * 2).for_each(|turn| self.touch(pattern(turn)));
        self.core.check();
        self.back
    }

    /// Refaults from the swap tier alone.
    fn fetches(mut self, turns: u64, pattern: &mut dyn FnMut(u64) -> u64) -> u64 {
        self.cost(turns, pattern);
        self.fetched
    }
}

fn fetches(room: u64, pool: u64, turns: u64, pattern: impl Fn() -> Box<dyn FnMut(u64) -> u64>) -> [u64; 3] {
    [ReclaimKind::Fifo, ReclaimKind::Bimodal, ReclaimKind::Dueling]
        .map(|kind| Program::spilling(kind, room, pool).fetches(turns, &mut *pattern()))
}

fn costs(room: u64, turns: u64, pattern: impl Fn() -> Box<dyn FnMut(u64) -> u64>) -> [u64; 3] {
    [ReclaimKind::Fifo, ReclaimKind::Bimodal, ReclaimKind::Dueling]
        .map(|kind| Program::new(kind, room).cost(turns, &mut *pattern()))
}

/// A fixed sequence of numbers.
fn random(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    }
}

/// A pattern of random pages.
fn random_pages(seed: u64) -> Box<dyn FnMut(u64) -> u64> {
    let mut next = random(seed);
    Box::new(move |_| next() % PAGES)
}

/// A pattern that passes 20 times over one part, then over the next.
fn twenty_passes_over_each(part: u64) -> Box<dyn FnMut(u64) -> u64> {
    Box::new(move |turn| turn / (part * 20) % (PAGES / part) * part + turn % part)
}

#[test]
fn a_loop_that_does_not_fit_keeps_a_part() {
    let turns = PAGES * 10;
    let [second, bimodal, dueling] = costs(PAGES * 3 / 4, turns, || Box::new(|turn| turn % PAGES));
    assert_eq!(second, turns, "each page has just left when it is wanted");
    // Any policy must bring back a quarter in each pass.
    assert!((turns / 4..turns / 2).contains(&bimodal), "{bimodal} of {turns}");
    assert!((turns / 4..turns * 6 / 10).contains(&dueling), "{dueling} of {turns}");
}

#[test]
fn of_a_loop_that_fits_into_ram_compressed_in_part_the_pool_keeps_a_part() {
    let turns = PAGES * 10;
    let [second, bimodal, dueling] = fetches(PAGES / 16, PAGES / 2, turns, || Box::new(|turn| turn % PAGES));
    assert_eq!(second, turns, "each page has just been written when it is wanted");
    // Any policy must read seven in sixteen from the device in each pass.
    assert!((turns * 7 / 16..turns * 3 / 5).contains(&bimodal), "{bimodal} of {turns}");
    assert!((turns * 7 / 16..turns * 7 / 10).contains(&dueling), "{dueling} of {turns}");
}

#[test]
fn of_a_loop_over_a_file_that_does_not_fit_a_part_is_kept() {
    let turns = PAGES * 10;
    let reads = |classes, room, pool| {
        [ReclaimKind::Fifo, ReclaimKind::Dueling].map(|kind| {
            let program = Program { pool, ..Program::with(classes, kind, room) };
            program.fetches(turns, &mut |turn| turn % PAGES)
        })
    };
    let [second, dueling] = reads(Classes::FileDropped, PAGES * 3 / 4, u64::MAX);
    assert_eq!(second, turns, "each page has just been dropped when it is wanted");
    assert!((turns / 4..turns * 6 / 10).contains(&dueling), "{dueling} of {turns}");
    let [second, dueling] = reads(Classes::FilePooled, PAGES / 16, PAGES / 2);
    assert!((turns * 7 / 16..turns * 3 / 5).contains(&dueling), "{dueling} of {turns}, FIFO: {second}");
}

#[test]
fn what_the_pool_holds_of_random_touches_is_the_same_whatever_is_done() {
    let turns = PAGES * 10;
    let [second, bimodal, dueling] = fetches(PAGES / 16, PAGES / 2, turns, || random_pages(5));
    for other in [bimodal, dueling] {
        assert!(other.abs_diff(second) < second / 20, "{second} {bimodal} {dueling}");
    }
}

#[test]
fn what_came_from_the_tier_and_is_unchanged_goes_back_unwritten() {
    let turns = PAGES * 10;
    let [dirty, clean] = [false, true].map(|clean| {
        let mut program = Program { clean, ..Program::spilling(ReclaimKind::Bimodal, PAGES / 16, PAGES / 2) };
        program.cost(turns, &mut |turn| turn % PAGES);
        program.written
    });
    assert!(u64::from(dirty) > turns && clean < dirty / 8, "{dirty} {clean}");
}

#[test]
fn the_pool_follows_work_on_one_part_after_the_other() {
    // Twenty passes over an eighth, which just fits into RAM, then over the next.
    let [second, bimodal, dueling] = fetches(PAGES / 16, PAGES / 12, PAGES * 20, || twenty_passes_over_each(PAGES / 8));
    // The samples cost something: their shares are fair over all pages, not over the part in use.
    assert!(second * 8 < bimodal && dueling < bimodal / 3, "{second} {bimodal} {dueling}");
}

#[test]
fn work_on_one_part_after_the_other_is_left_to_second_chance() {
    // Twenty passes over an eighth, then over the next.
    let [second, bimodal, dueling] = costs(PAGES / 4, PAGES * 20, || twenty_passes_over_each(PAGES / 8));
    assert!(second * 2 < bimodal, "{second} {bimodal}");
    assert!(dueling < second * 3 / 2, "{second} {dueling}");
}

#[test]
fn random_touches_cost_the_same_whatever_is_done() {
    let turns = PAGES * 10;
    let [second, bimodal, dueling] = costs(PAGES / 2, turns, || random_pages(7));
    for other in [bimodal, dueling] {
        assert!(other.abs_diff(second) < second / 20, "{second} {bimodal} {dueling}");
    }
}

#[test]
fn what_is_used_all_the_time_stays_while_a_scan_passes() {
    // Two touches in three go to a twentieth of the pages, the third passes through all others.
    let turns = PAGES * 10;
    let [second, bimodal, dueling] = costs(PAGES / 4, turns, || {
        let (mut next, mut scan) = (random(3), 0);
        Box::new(move |turn| {
            if turn % 3 > 0 {
                return next() % (PAGES / 20);
            }
            scan += 1;
            PAGES / 20 + scan % (PAGES - PAGES / 20)
        })
    });
    assert!(bimodal < second, "{second} {bimodal}");
    assert!(dueling < second, "{second} {dueling}");
}

#[test]
fn the_winner_changes_with_the_program() {
    let mut program = Program::new(ReclaimKind::Dueling, PAGES / 2);
    let looped = program.cost(PAGES * 10, &mut |turn| turn % PAGES);
    // Then passes over each quarter: all but the first should find its pages.
    let parts = program.cost(PAGES * 40, &mut *twenty_passes_over_each(PAGES / 4));
    let again = program.cost(PAGES * 10, &mut |turn| turn % PAGES);
    assert!(looped < PAGES * 8, "{looped}");
    assert!(parts < PAGES * 40 / 8, "{parts}");
    assert!(again < PAGES * 8, "{again}");
}
