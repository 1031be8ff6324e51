//! Applications of a phone that stay in the background until memory is short. Then the phone's
//! low-memory killer takes the largest of them: it is killed, and its next launch starts it again,
//! or it leaves memory as a whole. The scheme determines when, so no fixed workload can express
//! this.
//!
//! The killer runs when a program had to wait for reclaim ([`Killer`]), and when there is no room.
//!
//! Sizes are those of the workload `hybrid18`.

use crate::lab::{Watched, BEGINS};
use memfit_codec::generate::Rng;
use memfit_core::ProcId;
use memfit_sim::{kind, Access, Event};

/// Names and KiB of data of the 16 applications, at a 36th of the phone's size.
pub const APPS: [(&str, u64); 16] = [
    ("Clash Royale", 6144),
    ("Lineage 2 Revolution", 6144),
    ("Asphalt 8", 6144),
    ("Raven", 6144),
    ("Anypang3", 6144),
    ("FIFA Online 4M", 6144),
    ("YouTube", 3584),
    ("Camera", 3584),
    ("Gallery", 3584),
    ("Music", 3584),
    ("Play Store", 2304),
    ("Google Map", 2304),
    ("Phone", 2304),
    ("Settings", 2304),
    ("Chrome", 4096),
    ("Naver", 4096),
];
/// KiB of the file of an application, at the same size.
const CODE_KIB: u64 = 512;
/// The divisor at which the KiB above are given.
pub const SCALE: f64 = 36.0;

/// Number of runs of each kind, of ten runs: LZO compresses the whole to a half.
const HOLDS: [(usize, &str); 5] = [(1, "zero"), (3, "f=0.20"), (4, "f=0.40"), (1, "f=0.65"), (1, "f=0.80")];
const RUN: u64 = 8;
/// Pages that are used together.
const BLOCK: u64 = 8;
/// First page of the data and of the file.
const DATA: u64 = 256;
const FILE: u64 = 1 << 20;
const TOUCH_NS: u64 = 1000;
/// Below this percentage memory is short: background reclaim works and cannot go on.
const LOW_PERCENT: u64 = 2;
/// Fewer free frames of the pool or blocks of swap than this count as none.
const FULL: u32 = 16;

/// What the low-memory killer does with the application that it has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Killer {
    /// It kills.
    Kills,
    /// The application leaves memory as a whole, unless the pool is full, or half of it is out
    /// already: then it is killed (Han et al. 2018, rules 4 to 9).
    Reclaims,
}

/// Applications in turns; each is launched once a turn, in a new order.
#[derive(Debug, Clone)]
pub struct Phone {
    /// Number of applications; those beyond 16 repeat the list, with data of their own.
    pub apps: usize,
    /// Number of turns.
    pub turns: u64,
    /// Divisor of the phone's sizes.
    pub scale: f64,
    /// Seed.
    pub seed: u64,
    /// Time in use after a launch, ns.
    pub dwell_ns: u64,
    /// Time to read a page of a file for the first time, ns.
    pub file_ns: u64,
    /// Processor time to start an application, ns.
    pub start_ns: u64,
    /// The low-memory killer.
    pub killer: Killer,
    /// Percentage of its blocks that each launch of an application touches.
    pub hot: u64,
}

/// A running application.
#[derive(Clone, Copy)]
struct Alive {
    /// Process number in the workload, new at each start.
    proc: u32,
    /// Process number in the core.
    id: ProcId,
}

struct Session<'a, 'b> {
    phone: &'a Phone,
    watched: &'a mut Watched<'b>,
    alive: Vec<Option<Alive>>,
    starts: u32,
    over_budget: u64,
    waits: u64,
}

/// Mixes a number into a pseudo-random one.
fn hash(x: u64) -> u64 {
    Rng::new(x ^ 0x5851_f42d_4c95_7f2d).next()
}

impl Phone {
    /// Pages of data and of the file of an application.
    fn size(&self, app: usize) -> (u64, u64) {
        let scaled = |kib: u64| ((kib as f64 / 4.0 * SCALE / self.scale).round() as u64).max(BLOCK);
        (scaled(APPS[app % APPS.len()].1), scaled(CODE_KIB))
    }

    /// Bytes of all applications.
    pub fn bytes(&self) -> f64 {
        (0..self.apps).map(|app| self.size(app)).map(|(data, file)| (data + file) as f64 * 4096.0).sum()
    }

    /// Runs the phone. Mark `turn * (apps + 1) + app` is the end of a launch; with `app` equal to
    /// `apps` it is the end of a turn.
    pub fn run(&self, watched: &mut Watched<'_>) {
        let alive = (0..self.apps).map(|_| None).collect();
        let mut session = Session { phone: self, watched, alive, starts: 0, over_budget: 0, waits: 0 };
        let mut rng = Rng::new(hash(self.seed));
        let mut order: Vec<usize> = (0..self.apps).collect();
        for turn in 0..self.turns {
            for end in (2..=order.len()).rev() {
                order.swap(end - 1, rng.below(end as u64) as usize);
            }
            for &app in &order {
                session.visit(app, turn);
            }
            session.watched.mark((turn * (self.apps as u64 + 1)) as u32 + self.apps as u32);
        }
    }

    /// Whether a page is touched by each launch (`turn` 0), or by the use in a turn.
    fn wanted(&self, app: usize, page: u64, turn: u64) -> bool {
        let random = hash(self.seed ^ hash((page / BLOCK) ^ ((app as u64) << 40)));
        if random % 100 < self.hot {
            turn == 0
        } else {
            turn > 0 && (random >> 20) % 10 == turn % 10
        }
    }
}

impl Session<'_, '_> {
    fn event(&mut self, event: Event) {
        self.watched.machine.event(event);
    }

    fn visit(&mut self, app: usize, turn: u64) {
        self.watched.mark(BEGINS);
        match self.alive[app] {
            None => self.start(app),
            // It is in the foreground.
            Some(Alive { proc, .. }) => self.event(Event::LeavesWhole { proc, leaves: false }),
        }
        self.touches(app, 0);
        self.watched.mark((turn * (self.phone.apps as u64 + 1)) as u32 + app as u32);
        self.touches(app, turn + 1);
        self.event(Event::Computes { ns: self.phone.dwell_ns });
        self.run_killer(app);
    }

    /// Starts a process that makes its data and reads its file.
    fn start(&mut self, app: usize) {
        let proc = self.starts;
        self.starts += 1;
        self.event(Event::Starts { proc });
        self.event(Event::Computes { ns: self.phone.start_ns });
        self.alive[app] = Some(Alive { proc, id: self.watched.machine.core().last_process() });
        let (data, file) = self.phone.size(app);
        let mut rng = Rng::new(hash(self.phone.seed ^ ((app as u64) << 8)));
        let named = |name| kind(name).expect("a generator of this name");
        let mut deck: Vec<u16> =
            HOLDS.iter().flat_map(|&(count, name)| std::iter::repeat_n(named(name), count)).collect();
        for run in 0..data.div_ceil(RUN) {
            let at = (run % deck.len() as u64) as usize;
            if at == 0 {
                for end in (2..=deck.len()).rev() {
                    deck.swap(end - 1, rng.below(end as u64) as usize);
                }
            }
            let pages = RUN.min(data - run * RUN);
            self.event(Event::Maps { proc, first: DATA + run * RUN, pages, kind: deck[at] });
        }
        self.event(Event::Maps { proc, first: FILE, pages: file, kind: named("f=0.28") });
        for page in 0..data {
            self.touch(app, DATA + page, Access::Write);
        }
        for page in 0..file {
            self.event(Event::Computes { ns: self.phone.file_ns });
            self.touch(app, FILE + page, Access::File);
        }
    }

    fn touches(&mut self, app: usize, turn: u64) {
        let (data, file) = self.phone.size(app);
        for page in (0..data).filter(|&page| self.phone.wanted(app, page, turn)).collect::<Vec<_>>() {
            self.touch(app, DATA + page, if page % 4 == 0 { Access::Write } else { Access::Read });
        }
        for page in (0..file).filter(|&page| self.phone.wanted(app, FILE + page, turn)).collect::<Vec<_>>() {
            self.touch(app, FILE + page, Access::File);
        }
    }

    fn touch(&mut self, app: usize, page: u64, how: Access) {
        let Some(Alive { proc, .. }) = self.alive[app] else { return };
        self.event(Event::Touches { proc, page, how });
        self.event(Event::Computes { ns: TOUCH_NS });
        self.run_killer(app);
    }

    /// Runs the low-memory killer if memory was short; `app` is in use.
    fn run_killer(&mut self, app: usize) {
        let tally = self.watched.machine.tally();
        let (over_budget, waits) = (tally.over_budget, tally.waits);
        let fails = over_budget > self.over_budget || self.short();
        let had_to_wait = waits > self.waits;
        (self.over_budget, self.waits) = (over_budget, waits);
        match self.phone.killer {
            _ if fails => self.kill(app),
            _ if !had_to_wait => {}
            Killer::Kills => self.kill(app),
            Killer::Reclaims => self.reclaim(app),
        }
    }

    /// Whether little memory is free and there is no room for evicted pages.
    fn short(&self) -> bool {
        let (core, setup) = (self.watched.machine.core(), self.watched.setup);
        let used = core.present_total() + u64::from(core.pool_usage().frames) + u64::from(core.staging_allocated());
        let (free, low) =
            (setup.budget / 4096 - used.min(setup.budget / 4096), setup.budget / 4096 * LOW_PERCENT / 100);
        let blocks = setup.swap_bytes / 4096;
        free < low && self.pool_is_full() && blocks - u64::from(core.blocks_in_use()) < u64::from(FULL)
    }

    fn pool_is_full(&self) -> bool {
        let core = self.watched.machine.core();
        core.pool_limit().saturating_sub(core.pool_usage().frames) < FULL
    }

    /// The application with most resident pages, except the one in use.
    fn largest(&self, in_use: usize) -> Option<usize> {
        let core = self.watched.machine.core();
        let others = self.alive.iter().enumerate().filter(|(app, _)| *app != in_use);
        let sizes = others.filter_map(|(number, app)| Some((core.present_pages(app.as_ref()?.id), number)));
        Some(sizes.max()?.1)
    }

    /// Rules 5, 7 and 8 of the paper.
    fn reclaim(&mut self, in_use: usize) {
        let core = self.watched.machine.core();
        let Some(victim) = self.largest(in_use).filter(|_| !core.processes_leave()) else { return };
        let Some(Alive { proc, id }) = self.alive[victim] else { return };
        if self.pool_is_full() || core.out_pages(id) >= core.present_pages(id) {
            return self.kill(in_use);
        }
        self.event(Event::LeavesWhole { proc, leaves: true });
        self.watched.left_whole += 1;
    }

    fn kill(&mut self, in_use: usize) {
        let Some(victim) = self.largest(in_use) else { return };
        let Some(Alive { proc, .. }) = self.alive[victim].take() else { return };
        self.event(Event::Ends { proc });
        self.watched.kills += 1;
    }
}
