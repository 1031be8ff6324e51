//! Load control: while processes take pages from each other, some of them wait by turns.
//!
//! A program thrashes when it waits for its pages for longer than it works between two faults (the
//! L = S criterion, Denning et al., Acta Informatica 7, 1976). If several do, and memory is enough
//! for some of them at a time, all get more done by turns (Reuven and Wiseman, The Computer Journal
//! 49, 2006). What they need is not known before, so it is tried: half of them are held, then more
//! while those that run still thrash. A turn that brings too little ends it for a while. When
//! those that run become idle, as many of the others go on: they may wait for each other.
//!
//! A process is held at its next page fault; it keeps what it has until others need the memory.

use crate::ids::ProcId;
use alloc::vec::Vec;

/// How long programs thrash before some are held, ms.
const DETECT_MS: u64 = 700;
/// How long after a change the programs must thrash, or be calm, for the next one, ms. The pages of
/// a process that goes on take about as long to come back.
const CHANGE_MS: u64 = 1000;
/// A turn must bring so many percent more work than before.
const GAIN_PERCENT: u64 = 125;
/// Time without turns after those that brought too little: at first, and at most, ms.
const REST_FIRST_MS: u64 = 10_000;
const REST_MOST_MS: u64 = 160_000;
/// A process takes part that works or waits for pages for one in so many parts of the time.
const ACTIVE: u64 = 10;
/// How long fewer processes must be active than may run, so that as many go on as are missing, ms.
const FEW_MS: u64 = 200;
/// CPUs must be idle for this share of the time, percent, so that one more process runs.
const IDLE_PERCENT: u64 = 25;
/// Turns until one process more than fitted is tried again.
const PATIENCE: u32 = 4;

/// What a process did since the last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The process.
    pub proc: ProcId,
    /// CPU time of its own work, ns.
    pub worked_ns: u64,
    /// Time for which its threads waited for pages, together, ns; not while it was held.
    pub waited_ns: u64,
    /// It is never held.
    pub exempt: bool,
}

/// Decides which processes are held.
#[derive(Debug)]
pub struct LoadControl {
    /// Length of a turn, ms; 0: nobody is ever held.
    turn_ms: u64,
    /// The one that has waited for longest first.
    held: Vec<ProcId>,
    /// Those that went on last, the earliest first.
    released: Vec<ProcId>,
    /// How many may run at a time.
    most: usize,
    /// So many did not fit, until so many turns have passed.
    too_many: usize,
    patience: u32,
    /// Since when the programs thrash, and since when they are calm, ms; and their work meanwhile,
    /// ns.
    thrashing_ms: u64,
    calm_ms: u64,
    thrashing_work: u64,
    /// Since when fewer processes are active than may run, ms.
    few_ms: u64,
    /// Work before turns began, ns per ms.
    before: u64,
    /// The last turn has brought enough.
    pays: bool,
    /// Time and work in this turn, ms and ns.
    in_turn_ms: u64,
    turn_work: u64,
    /// Time until turns may begin, ms, and how long the next rest will be.
    rest_ms: u64,
    next_rest_ms: u64,
    /// Times that a process was held.
    count: u64,
}

impl LoadControl {
    /// Nobody is held. `turn_ms`: length of a turn, ms; 0 turns it off.
    pub fn new(turn_ms: u64) -> LoadControl {
        LoadControl {
            turn_ms,
            held: Vec::new(),
            released: Vec::new(),
            most: 0,
            too_many: usize::MAX,
            patience: 0,
            thrashing_ms: 0,
            calm_ms: 0,
            thrashing_work: 0,
            few_ms: 0,
            before: 0,
            pays: false,
            in_turn_ms: 0,
            turn_work: 0,
            rest_ms: 0,
            next_rest_ms: REST_FIRST_MS,
            count: 0,
        }
    }

    /// Whether a process is held.
    pub fn holds(&self, proc: ProcId) -> bool {
        self.held.contains(&proc)
    }

    /// Whether a process is held now: only then is it of interest how idle the CPUs are.
    pub fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether nobody is ever held.
    pub fn is_off(&self) -> bool {
        self.turn_ms == 0
    }

    /// The process is not held, whatever was decided.
    pub fn forget(&mut self, proc: ProcId) {
        self.held.retain(|held| *held != proc);
    }

    /// How often a process was held.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Takes what all processes did in the last `ms`, and in which share of the time the CPUs were
    /// idle. [`LoadControl::holds`] may have changed after it.
    pub fn step(&mut self, ms: u64, idle_percent: u64, all: &[Progress]) {
        self.rest_ms = self.rest_ms.saturating_sub(ms);
        let exists = |proc: &ProcId| all.iter().any(|progress| progress.proc == *proc);
        self.held.retain(exists);
        self.released.retain(exists);
        let least = ms * 1_000_000 / ACTIVE;
        let is_active = |p: &&Progress| !self.holds(p.proc) && p.worked_ns + p.waited_ns >= least;
        let running: Vec<Progress> = all.iter().filter(is_active).copied().collect();
        let worked: u64 = running.iter().map(|progress| progress.worked_ns).sum();
        let waited: u64 = running.iter().map(|progress| progress.waited_ns).sum();
        let wait_for_pages = running.iter().filter(|progress| progress.waited_ns >= least).count();
        let thrashes = waited >= worked && waited >= ms * 500_000;
        self.count_time(ms, thrashes, waited < worked / 4, worked);
        if self.held.is_empty() {
            if thrashes
                && wait_for_pages >= 2
                && self.thrashing_ms >= DETECT_MS
                && self.rest_ms == 0
                && self.turn_ms > 0
            {
                self.begin(running);
            }
            return;
        }
        self.in_turn_ms += ms;
        self.turn_work += worked;
        self.few_ms = if running.len() < self.most { self.few_ms + ms } else { 0 };
        let take_pages = wait_for_pages >= 2 && running.len() > 1;
        if self.thrashing_ms >= CHANGE_MS && take_pages {
            self.hold_half(&running);
        } else if self.in_turn_ms >= self.turn_ms {
            self.end_turn(&running, take_pages);
        } else if self.few_ms >= FEW_MS {
            self.release(self.most - running.len());
        } else if self.calm_ms >= CHANGE_MS && idle_percent >= IDLE_PERCENT && self.most + 1 < self.too_many {
            self.most += 1;
            self.release(1);
        }
    }

    fn count_time(&mut self, ms: u64, thrashes: bool, calm: bool, worked: u64) {
        if !thrashes {
            (self.thrashing_ms, self.thrashing_work) = (0, 0);
        } else {
            self.thrashing_ms += ms;
            self.thrashing_work += worked;
        }
        self.calm_ms = if calm { self.calm_ms + ms } else { 0 };
    }

    /// Something has changed: what was seen before does not count.
    fn start_anew(&mut self) {
        (self.thrashing_ms, self.thrashing_work, self.calm_ms, self.few_ms) = (0, 0, 0, 0);
    }

    fn begin(&mut self, running: Vec<Progress>) {
        self.before = self.thrashing_work / self.thrashing_ms;
        self.pays = false;
        (self.in_turn_ms, self.turn_work) = (0, 0);
        self.released.clear();
        self.too_many = running.len();
        self.patience = PATIENCE;
        self.most = running.len().div_ceil(2);
        self.hold(&running, running.len() - self.most);
        if self.held.is_empty() {
            self.rest();
        }
    }

    /// Too many run: half of them are held. A turn of fewer than before starts anew.
    fn hold_half(&mut self, running: &[Progress]) {
        self.too_many = running.len();
        self.patience = PATIENCE;
        let most = (running.len() / 2).min(self.most);
        if most < self.most && some_may_be_held(running) {
            (self.in_turn_ms, self.turn_work) = (0, 0);
        }
        self.most = most;
        self.hold(running, running.len() - most);
    }

    /// Holds so many of the processes that run: those first that have run for longest, and of these
    /// the one that has worked least.
    fn hold(&mut self, running: &[Progress], count: usize) {
        let since = |proc: ProcId| self.released.iter().position(|&released| released == proc).map_or(0, |at| at + 1);
        let mut may: Vec<&Progress> = running.iter().filter(|progress| !progress.exempt).collect();
        may.sort_by_key(|progress| (since(progress.proc), progress.worked_ns, progress.proc.0));
        let chosen: Vec<ProcId> = may.iter().take(count).map(|progress| progress.proc).collect();
        self.released.retain(|proc| !chosen.contains(proc));
        self.count += chosen.len() as u64;
        self.held.extend(chosen);
        self.start_anew();
    }

    /// So many go on, those first that have waited for longest.
    fn release(&mut self, count: usize) {
        let count = count.min(self.held.len());
        self.released.extend(self.held.drain(..count));
        self.start_anew();
        if !self.held.is_empty() {
            return;
        }
        // Of a turn that has just begun nothing is known yet.
        let paid = self.pays && self.in_turn_ms < CHANGE_MS;
        if !paid && !self.brought_enough() {
            return self.rest();
        }
        // Nobody is left to wait: turns have paid, and may begin again soon.
        self.next_rest_ms = REST_FIRST_MS;
        self.rest_ms = CHANGE_MS;
        self.released.clear();
    }

    /// Whether this turn has brought so much that turns pay.
    fn brought_enough(&self) -> bool {
        self.turn_work * 100 > self.before * GAIN_PERCENT * self.in_turn_ms
    }

    /// The turn is over: others run. If it has brought too little, fewer run, or, where that is not
    /// possible, all.
    fn end_turn(&mut self, running: &[Progress], take_pages: bool) {
        let enough = self.brought_enough();
        self.pays = enough;
        let fewer = running.len() / 2 < self.most && some_may_be_held(running);
        if !enough && take_pages && fewer {
            return self.hold_half(running);
        }
        (self.in_turn_ms, self.turn_work) = (0, 0);
        if !enough {
            return self.rest();
        }
        self.next_rest_ms = REST_FIRST_MS;
        self.patience = self.patience.saturating_sub(1);
        if self.patience == 0 {
            self.too_many = usize::MAX;
        }
        let next = self.held.len().min(self.most);
        let go_on: Vec<ProcId> = self.held.drain(..next).collect();
        self.hold(running, next);
        self.released.extend(go_on);
    }

    /// All go on. Turns may begin again later.
    fn rest(&mut self) {
        self.held.clear();
        self.released.clear();
        self.rest_ms = self.next_rest_ms;
        self.next_rest_ms = (self.next_rest_ms * 2).min(REST_MOST_MS);
        self.start_anew();
    }
}

fn some_may_be_held(running: &[Progress]) -> bool {
    running.iter().any(|progress| !progress.exempt)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 100;
    const STEP_NS: u64 = STEP * 1_000_000;

    /// Processes with working sets, on two CPUs. One that goes on first gets its pages back.
    struct Machine {
        control: LoadControl,
        memory: u64,
        needs: Vec<u64>,
        /// Pages that each has back, and what it has done.
        has: Vec<u64>,
        work: Vec<u64>,
        exempt: Vec<bool>,
        /// How long each has been held at a time, at most, ms.
        held: Vec<u64>,
        longest: u64,
    }

    impl Machine {
        fn new(turn_ms: u64, memory: u64, needs: &[u64]) -> Machine {
            let count = needs.len();
            Machine {
                control: LoadControl::new(turn_ms),
                memory,
                needs: needs.into(),
                has: vec![0; count],
                work: vec![0; count],
                exempt: vec![false; count],
                held: vec![0; count],
                longest: 0,
            }
        }

        /// Runs for so many steps. `works`: whether a process has something to do, by who is held.
        fn run(&mut self, steps: u64, works: impl Fn(usize, &dyn Fn(usize) -> bool) -> bool) {
            for _ in 0..steps {
                let holds = |i: usize| self.control.holds(ProcId(i as u32));
                let runs: Vec<bool> =
                    (0..self.needs.len()).map(|i| self.needs[i] > 0 && !holds(i) && works(i, &holds)).collect();
                let (mut all, mut busy) = (Vec::new(), 0);
                let wanted: u64 = (0..runs.len()).filter(|&i| runs[i]).map(|i| self.needs[i]).sum();
                let count = runs.iter().filter(|&&runs| runs).count().max(1) as u64;
                for (i, &runs) in runs.iter().enumerate() {
                    self.held[i] = if holds(i) { self.held[i] + STEP } else { 0 };
                    self.longest = self.longest.max(self.held[i]);
                    let (mut worked_ns, mut waited_ns) = (0, 0);
                    if !runs && wanted > self.memory {
                        self.has[i] = 0;
                    } else if runs && wanted > self.memory {
                        (worked_ns, waited_ns, self.has[i]) = (STEP_NS / 20, STEP_NS * 18 / 20, 0);
                    } else if runs && self.has[i] < self.needs[i] {
                        self.has[i] += 20;
                        (worked_ns, waited_ns) = (STEP_NS / 5, STEP_NS * 4 / 5);
                    } else if runs {
                        worked_ns = STEP_NS * 2.min(count) / count;
                    }
                    busy += worked_ns;
                    self.work[i] += worked_ns / 1_000_000;
                    all.push(Progress { proc: ProcId(i as u32), worked_ns, waited_ns, exempt: self.exempt[i] });
                }
                self.control.step(STEP, 100 - (busy * 100 / (2 * STEP_NS)).min(100), &all);
            }
        }

        fn total(&self) -> u64 {
            self.work.iter().sum()
        }
    }

    fn always(_: usize, _: &dyn Fn(usize) -> bool) -> bool {
        true
    }

    #[test]
    fn processes_that_fit_by_turns_get_more_done() {
        let mut without = Machine::new(0, 250, &[100; 6]);
        without.run(1200, always);
        let mut machine = Machine::new(5000, 250, &[100; 6]);
        machine.run(1200, always);
        assert!(machine.total() > 4 * without.total(), "{} and {}", machine.total(), without.total());
        let (least, most) = (machine.work.iter().min().unwrap(), machine.work.iter().max().unwrap());
        assert!(least * 2 > *most, "each gets its share: {:?}", machine.work);
        assert!(machine.longest <= 16_000, "two of six run: {} ms", machine.longest);
    }

    #[test]
    fn one_at_a_time_where_no_two_fit() {
        let mut machine = Machine::new(5000, 150, &[100; 3]);
        machine.run(600, always);
        assert!(machine.total() > 40_000, "{}", machine.total());
        assert!(machine.work.iter().all(|&work| work > 8000), "{:?}", machine.work);
    }

    #[test]
    fn a_short_turn_of_too_many_is_followed_by_one_of_fewer() {
        let mut machine = Machine::new(1000, 150, &[100; 3]);
        machine.run(300, always);
        assert!(machine.work.iter().all(|&work| work > 3000), "{:?}", machine.work);
        assert!(machine.longest <= 4000, "{} ms", machine.longest);
    }

    #[test]
    fn those_that_are_never_held_hold_nobody_up_for_long() {
        let mut machine = Machine::new(5000, 50, &[100; 5]);
        machine.exempt = vec![true, true, true, true, false];
        for second in 0..60 {
            // One of them works in every other second only.
            machine.run(10, |i, _| i != 3 || second % 2 == 0);
        }
        assert!(machine.longest <= 6000, "{} ms", machine.longest);
    }

    #[test]
    fn nobody_is_held_in_vain_for_long() {
        let mut machine = Machine::new(5000, 50, &[100; 4]);
        machine.run(3000, always);
        let held: u64 = machine.control.count();
        assert!((1..40).contains(&held), "held {held} times in 300 s");
    }

    #[test]
    fn processes_that_wait_for_each_other_go_on() {
        // Each works only while the other one is not held.
        let mut machine = Machine::new(5000, 150, &[100; 2]);
        machine.run(600, |i, holds| !holds(1 - i));
        assert!(machine.longest <= 1000, "{} ms", machine.longest);
        assert!((1..5).contains(&machine.control.count()), "in 60 s: {} times", machine.control.count());
    }

    #[test]
    fn as_many_go_on_as_are_missing() {
        let mut machine = Machine::new(5000, 3000, &[100; 64]);
        machine.run(10, always);
        assert_eq!(machine.control.held.len(), 32);
        // All but eight of those that run wait at a barrier.
        let held: Vec<bool> = (0..64).map(|i| machine.control.holds(ProcId(i))).collect();
        let at_work: Vec<usize> = (0..64).filter(|&i| !held[i]).take(8).collect();
        machine.run(2, |i, _| at_work.contains(&i));
        assert_eq!(machine.control.held.len(), 8);
    }

    #[test]
    fn a_barrier_does_not_end_turns_that_pay() {
        let mut machine = Machine::new(5000, 150, &[100; 2]);
        for _ in 0..20 {
            machine.run(30, always);
            machine.run(3, |_, _| false);
        }
        // A turn begins after 0.7 s, and is over at the barrier.
        assert!(machine.control.count() >= 10, "in 66 s: {} times", machine.control.count());
    }

    #[test]
    fn a_process_that_ends_makes_room_for_the_next() {
        let mut machine = Machine::new(60_000, 150, &[100; 3]);
        machine.run(60, always);
        assert_eq!(machine.control.held.len(), 2);
        let runs = (0..3).find(|&i| !machine.control.holds(ProcId(i))).unwrap() as usize;
        machine.needs[runs] = 0;
        machine.run(3, always);
        assert_eq!(machine.control.held.len(), 1);
    }

    #[test]
    fn some_are_never_held_and_one_alone_is_not() {
        let mut machine = Machine::new(5000, 150, &[100; 3]);
        machine.exempt = vec![true, true, false];
        machine.run(600, always);
        assert!(!machine.control.holds(ProcId(0)) && !machine.control.holds(ProcId(1)));
        let mut alone = Machine::new(5000, 50, &[100]);
        alone.run(600, always);
        assert_eq!(alone.control.count(), 0);
        let mut fits = Machine::new(5000, 500, &[100; 4]);
        fits.run(600, always);
        assert_eq!(fits.control.count(), 0);
        let mut off = Machine::new(0, 150, &[100; 4]);
        off.run(600, always);
        assert_eq!(off.control.count(), 0);
    }
}
