//! A computer of the papers: one processor, one disk, and processes that wait for it while others
//! run.
//!
//! The processor is given as by Linux 2.0: to the process that can run and has most of its time
//! left. When none of these has any, each process gets a slice more, and keeps half of what it has
//! left. So one that has waited for the disk goes first. The processor does all work: computing,
//! codec and eviction. The disk serves its queue in order.
//!
//! The machine decides when it evicts by its own clocks ([`memfit_sim::Machine`]), not by that of
//! this computer. A page that comes back before its write has begun is read from the disk.

use crate::lab::Watched;
use memfit_sim::device::{Costs, Device, Operation};
use memfit_sim::{Event, Workload};
use std::collections::VecDeque;
use std::sync::Arc;

/// The slice of a process: 20 ticks of 10 ms (Linux 2.0, `DEF_PRIORITY`).
const SLICE_NS: f64 = 200e6;
/// Writes of pages that may be under way before the process that evicts waits for the oldest one.
/// Assumed: Linux 2.2 has this bound (`SWAP_CLUSTER_MAX`), Linux 2.0 another one, by free memory.
const QUEUED_PAGES: usize = 32;
const PAGE: u64 = 4096;

/// How pages are written, and who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// This many pages are written together whenever as many have come in. The process that evicts
    /// waits only when too many writes are under way.
    Paced(u64),
    /// The process that causes a write waits for it (Cervera, Cortes and Becerra: cleaning is
    /// synchronous).
    Waited,
}

/// Seeks of a disk. A seek over a third of the surface or more takes the average time; a shorter
/// one less, by the square root of its length.
#[derive(Debug, Clone, Copy)]
pub struct Seeks {
    /// Bytes of the whole surface.
    pub surface: u64,
    /// Average seek, ns; a part of [`Costs::random_ns`].
    pub average_ns: u64,
    /// Seek to the next track, ns.
    pub track_ns: u64,
}

impl Seeks {
    /// What a seek of `bytes` takes less than an average one, ns.
    fn saved_ns(&self, bytes: u64) -> u64 {
        let part = (bytes as f64 / (self.surface as f64 / 3.0)).min(1.0).sqrt();
        ((self.average_ns - self.track_ns) as f64 * (1.0 - part)) as u64
    }
}

/// A disk with a queue.
struct Disk {
    device: Arc<Device>,
    seeks: Seeks,
    /// The last operation in the queue, and when it begins, ns.
    last: (Operation, u64),
    /// When the queue is empty, ns.
    until: u64,
    /// When the writes that nobody waits for end, ns, in their order.
    writes: VecDeque<u64>,
}

impl Disk {
    fn new(device: &Arc<Device>, seeks: Seeks) -> Disk {
        let nowhere = Operation { at: 0, bytes: 0, write: false };
        Disk { device: Arc::clone(device), seeks, last: (nowhere, 0), until: 0, writes: VecDeque::new() }
    }

    /// Queues an operation. Returns when it ends, ns.
    fn queue(&mut self, now: u64, operation: Operation) -> u64 {
        let costs = if operation.write { self.device.write } else { self.device.read };
        let begins = self.until.max(now);
        let transfer = operation.bytes * costs.transfer_4k_ns / PAGE;
        self.until = begins + self.fixed_ns(&costs, now, &operation) + transfer;
        self.last = (operation, begins);
        self.until
    }

    /// Command, seek and half a turn, as far as the operation needs them.
    fn fixed_ns(&self, costs: &Costs, now: u64, operation: &Operation) -> u64 {
        let (last, begins) = &self.last;
        let end = last.at + last.bytes;
        if operation.at == end && operation.write == last.write {
            // One that has not begun becomes longer; else the disk's buffer goes on.
            return if *begins > now { 0 } else { costs.sequential_ns };
        }
        if !operation.write && !last.write && operation.at + PAGE == end {
            // The block is still in the disk's buffer.
            return costs.sequential_ns;
        }
        costs.random_ns.saturating_sub(self.seeks.saved_ns(operation.at.abs_diff(end)))
    }

    /// Queues the write of a page that nobody waits for.
    fn queue_write(&mut self, now: u64, at: u64) {
        let end = self.queue(now, Operation { at, bytes: PAGE, write: true });
        self.writes.push_back(end);
    }

    /// When few enough of these writes are under way, ns.
    fn has_room(&mut self, now: u64) -> u64 {
        while self.writes.front().is_some_and(|end| *end <= now) {
            self.writes.pop_front();
        }
        match self.writes.len().checked_sub(QUEUED_PAGES + 1) {
            Some(over) => self.writes[over],
            None => now,
        }
    }
}

/// What the processor knows of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claim {
    /// When it can go on, ns.
    ready: u64,
    /// What it has left of its time, ns.
    left: u64,
    ended: bool,
}

/// Who gets the processor.
struct Processor {
    claims: Vec<Claim>,
    /// What a process gets when none that can run has any time left, ns.
    slice: u64,
}

impl Processor {
    fn new(processes: u32, slice: u64) -> Processor {
        Processor { claims: vec![Claim { ready: 0, left: slice, ended: false }; processes as usize], slice }
    }

    /// The next process, and when it begins, ns. Of those with the same time left, the first one
    /// from `turn` on. `None`: all have ended.
    fn next(&mut self, now: u64, turn: usize) -> Option<(usize, u64)> {
        let now = self.claims.iter().filter(|claim| !claim.ended).map(|claim| claim.ready).min()?.max(now);
        let can_run = |claim: &Claim| !claim.ended && claim.ready <= now;
        if self.claims.iter().filter(|claim| can_run(claim)).all(|claim| claim.left == 0) {
            self.claims.iter_mut().for_each(|claim| claim.left = claim.left / 2 + self.slice);
        }
        let count = self.claims.len();
        let from_turn = (turn..turn + count).map(|process| process % count);
        let all = from_turn.filter(|&process| can_run(&self.claims[process]));
        let most =
            |best: usize, other: usize| if self.claims[other].left > self.claims[best].left { other } else { best };
        all.reduce(most).map(|process| (process, now))
    }

    /// The moments after `since` at which other processes can go on, with what they have left.
    fn wake(&self, process: usize, since: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let others = self.claims.iter().enumerate().filter(move |(other, claim)| *other != process && !claim.ended);
        others.map(|(_, claim)| (claim.ready, claim.left)).filter(move |(ready, _)| *ready > since)
    }

    /// Whether a process that has woken up after `since` takes the processor from this one: if it
    /// has over 3 ticks more left.
    fn preempts(&self, process: usize, since: u64, now: u64) -> bool {
        let least = self.claims[process].left + self.slice * 3 / 20;
        self.wake(process, since).any(|(ready, left)| ready <= now && left > least)
    }
}

/// What runs, and how.
#[derive(Debug, Clone)]
pub struct OneComputer {
    /// A workload in text form, without time for touches. Its processes are numbered from 0, and
    /// each of them ends.
    pub spec: String,
    /// Number of its processes.
    pub processes: u32,
    /// Time of the processor for a touch of a page, ns.
    pub touch_ns: u64,
    /// How pages are written.
    pub writes: Writes,
    /// The disk.
    pub seeks: Seeks,
    /// Divisor of the paper's sizes, and so of the slice.
    pub scale: f64,
}

/// Runs the processes. Returns the time until the last one has ended, ns.
pub fn run(watched: &mut Watched<'_>, source: Box<dyn Workload>, load: &OneComputer) -> u64 {
    watched.machine.log_operations();
    let slice = (SLICE_NS / load.scale) as u64;
    let disk = Disk::new(&watched.setup.device, load.seeks);
    let computer = Computer {
        watched,
        disk,
        processor: Processor::new(load.processes, slice),
        load,
        source,
        last: 0,
        events: vec![VecDeque::new(); load.processes as usize],
        now: 0,
        operations: Vec::new(),
        unwritten: VecDeque::new(),
        came_in: 0,
    };
    computer.run()
}

struct Computer<'a, 'b> {
    watched: &'a mut Watched<'b>,
    disk: Disk,
    processor: Processor,
    load: &'a OneComputer,
    source: Box<dyn Workload>,
    /// The process of the last event of the source.
    last: usize,
    /// What each process will do, as far as the source was read.
    events: Vec<VecDeque<Event>>,
    now: u64,
    operations: Vec<Operation>,
    /// With [`Writes::Paced`]: pages that are to be written, and the number of pages that have come
    /// in since the last ones were.
    unwritten: VecDeque<u64>,
    came_in: u64,
}

impl Computer<'_, '_> {
    fn run(mut self) -> u64 {
        let mut turn = 0;
        while let Some((process, now)) = self.processor.next(self.now, turn) {
            (self.now, turn) = (now, process + 1);
            self.run_process(process);
        }
        self.processor.claims.iter().map(|claim| claim.ready).fold(self.now, u64::max)
    }

    /// Runs a process until it waits, ends, has no time left, or another one takes the processor.
    fn run_process(&mut self, process: usize) {
        let (began, had) = (self.now, self.processor.claims[process].left);
        let mut looked = self.now;
        let next_wake = |processor: &Processor, since| processor.wake(process, since).map(|(ready, _)| ready).min();
        let mut wakes = next_wake(&self.processor, looked);
        loop {
            let event = self.next_event(process);
            let ready = event.map_or(self.now, |event| self.carry_out(event));
            let left = had.saturating_sub(self.now - began);
            let ended = matches!(event, None | Some(Event::Ends { .. }));
            self.processor.claims[process] = Claim { ready, left, ended };
            if ended || ready > self.now || left == 0 {
                return;
            }
            if wakes.is_some_and(|wakes| wakes <= self.now) {
                if self.processor.preempts(process, looked, self.now) {
                    return;
                }
                looked = self.now;
                wakes = next_wake(&self.processor, looked);
            }
        }
    }

    /// The next event of a process. Reads the source until there is one.
    fn next_event(&mut self, process: usize) -> Option<Event> {
        loop {
            if let Some(event) = self.events[process].pop_front() {
                return Some(event);
            }
            let event = self.source.next()?;
            let of = match event {
                Event::Starts { proc } | Event::Ends { proc } | Event::Touches { proc, .. } => proc as usize,
                Event::Maps { proc, .. } | Event::Frees { proc, .. } | Event::Moves { proc, .. } => proc as usize,
                Event::Computes { .. } | Event::Reaches { .. } => self.last,
                other => panic!("{other:?}: not of a process by itself"),
            };
            self.last = of;
            self.events[of].push_back(event);
        }
    }

    /// Carries out an event. Returns when its process can go on, ns.
    fn carry_out(&mut self, event: Event) -> u64 {
        let (processor, pages) = (self.processor_ns(), self.pages_in());
        self.watched.event(event);
        if matches!(event, Event::Touches { .. }) && self.load.touch_ns > 0 {
            self.watched.event(Event::Computes { ns: self.load.touch_ns });
        }
        self.now += self.processor_ns() - processor;
        self.came_in += self.pages_in() - pages;
        self.operations.clear();
        self.watched.machine.take_operations(&mut self.operations);
        let mut ready = self.now;
        for &operation in &self.operations {
            if operation.write && self.load.writes != Writes::Waited {
                self.unwritten.extend((operation.at..operation.at + operation.bytes).step_by(PAGE as usize));
            } else {
                ready = ready.max(self.disk.queue(self.now, operation));
            }
        }
        match self.load.writes {
            Writes::Paced(pages) => ready.max(self.write_paced(pages)),
            Writes::Waited => ready,
        }
    }

    /// Writes pages as far as others have come in. Returns when the process can go on, ns.
    fn write_paced(&mut self, pages: u64) -> u64 {
        let mut ready = self.now;
        while self.came_in >= pages && !self.unwritten.is_empty() {
            self.came_in -= pages;
            for at in self.unwritten.drain(..self.unwritten.len().min(pages as usize)) {
                self.disk.queue_write(self.now, at);
            }
            ready = self.disk.has_room(self.now);
        }
        self.came_in = self.came_in.min(pages);
        ready
    }

    /// Pages that have come into memory so far.
    fn pages_in(&self) -> u64 {
        let tally = self.watched.machine.tally();
        tally.faults.total() + tally.around.total()
    }

    /// Time of the processor so far, ns.
    fn processor_ns(&self) -> u64 {
        let times = self.watched.machine.times();
        times.program - times.reads - times.waits + times.reclaim
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cervera::SEEKS;
    use crate::lab::{costs, device, setup};
    use memfit_sim::Access;

    fn disk() -> Disk {
        Disk::new(&device("hdd-1999"), SEEKS)
    }

    fn page(number: u64, write: bool) -> Operation {
        Operation { at: number * PAGE, bytes: PAGE, write }
    }

    #[test]
    fn the_queue_is_served_in_order_and_neighbours_in_it_are_one() {
        let mut disk = disk();
        let first = disk.queue(0, page(1000, true));
        let second = disk.queue(0, page(1001, true));
        // The second one has its command, since the first one has begun; the third one has none.
        assert_eq!(second - first, 500_000 + 409_600);
        assert_eq!(disk.queue(0, page(1002, true)) - second, 409_600);
        // A read of another place waits for all.
        let read = disk.queue(0, page(5, false));
        assert!(read > second + 409_600 + 4_170_000, "{read}");
        // The page behind it, the same block once more.
        assert_eq!(disk.queue(read, page(6, false)) - read, 500_000 + 409_600);
        let again = disk.until;
        assert_eq!(disk.queue(again, page(6, false)) - again, 500_000 + 409_600);
    }

    #[test]
    fn short_seeks_are_shorter() {
        let seek = |bytes: u64| disk().queue(0, Operation { at: bytes, bytes: 0, write: false });
        assert_eq!(seek(6_000_000_000), 12_670_000);
        assert_eq!(seek(3_000_000_000), 12_670_000);
        // A quarter of the way from a track to the average, at a sixteenth of the third.
        assert_eq!(seek(3_000_000_000 / 16), 12_670_000 - 7_000_000 * 3 / 4);
    }

    #[test]
    fn too_many_writes_are_waited_for() {
        let mut disk = disk();
        (0..QUEUED_PAGES as u64).for_each(|number| disk.queue_write(0, 2 * number * PAGE));
        assert_eq!(disk.has_room(0), 0);
        let first = disk.writes[0];
        disk.queue_write(0, 900 * PAGE);
        assert_eq!(disk.has_room(0), first);
        assert_eq!(disk.has_room(first), first);
    }

    /// With a slice of 200 ms.
    fn processor(claims: &[(u64, u64)]) -> Processor {
        let claim = |&(ready, left): &(u64, u64)| Claim { ready, left, ended: false };
        Processor { claims: claims.iter().map(claim).collect(), slice: 200 }
    }

    #[test]
    fn the_processor_goes_to_the_one_with_most_time_left() {
        assert_eq!(processor(&[(0, 20), (0, 70), (0, 50)]).next(5, 0), Some((1, 5)));
        // Of those alike, the next one in turn.
        assert_eq!(processor(&[(0, 70), (0, 70), (0, 50)]).next(5, 1), Some((1, 5)));
        assert_eq!(processor(&[(0, 70), (0, 70), (0, 50)]).next(5, 2), Some((0, 5)));
        // One that waits gets it when its time has come, if nobody else can run.
        assert_eq!(processor(&[(9, 200), (0, 1)]).next(5, 0), Some((1, 5)));
        assert_eq!(processor(&[(9, 200), (8, 1)]).next(5, 0), Some((1, 8)));
    }

    #[test]
    fn one_that_has_waited_has_more_time_left() {
        let mut processor = processor(&[(0, 0), (900, 80), (0, 0)]);
        assert_eq!(processor.next(5, 0), Some((0, 5)));
        assert_eq!(processor.claims.iter().map(|claim| claim.left).collect::<Vec<_>>(), [200, 240, 200]);
    }

    #[test]
    fn ended_processes_get_nothing() {
        let mut processor = processor(&[(0, 90), (3, 0)]);
        processor.claims[0].ended = true;
        assert_eq!(processor.next(0, 0), Some((1, 3)));
        assert_eq!(processor.claims[1].left, 200);
        processor.claims[1].ended = true;
        assert_eq!(processor.next(0, 0), None);
    }

    #[test]
    fn one_that_wakes_up_with_more_time_left_preempts() {
        let processor = processor(&[(0, 100), (20, 131), (30, 130), (0, 400)]);
        // 30 of 200 are the 3 ticks; the last one was ready before.
        assert!(processor.preempts(0, 10, 20));
        assert!(!processor.preempts(0, 20, 40));
        assert!(!processor.preempts(0, 10, 19));
        assert_eq!(processor.wake(0, 10).map(|(ready, _)| ready).min(), Some(20));
    }

    /// A workload from a list.
    struct All(std::vec::IntoIter<Event>);

    impl Iterator for All {
        type Item = Event;
        fn next(&mut self) -> Option<Event> {
            self.0.next()
        }
    }

    impl Workload for All {}

    /// Processes of 12 MiB, all of which they write twice, and 8 MiB of memory for each. Returns
    /// the time that they take, and that of computing.
    fn elapsed(processes: u32, touch_ns: u64, writes: Writes) -> (u64, u64) {
        const PAGES: u64 = 3072;
        let program = |proc: u32| {
            let kind = memfit_sim::kind("random").expect("it is there");
            let start = [Event::Starts { proc }, Event::Maps { proc, first: 0, pages: PAGES, kind }];
            let body = (0..2 * PAGES).map(move |page| Event::Touches { proc, page: page % PAGES, how: Access::Write });
            start.into_iter().chain(body).chain([Event::Ends { proc }])
        };
        let all: Vec<Event> = (0..processes).flat_map(program).collect();
        let budget = f64::from(8 << 20) * f64::from(processes);
        let (costs, device) = (costs("cervera99"), device("hdd-1999"));
        let setup = setup(("swap", &["fault.around_pages=1".into()]), budget, f64::from(64 << 20), &costs, &device);
        let mut watched = Watched::new(&setup);
        let load = OneComputer { spec: String::new(), processes, touch_ns, writes, seeks: SEEKS, scale: 1.0 };
        let elapsed = run(&mut watched, Box::new(All(all.into_iter())), &load);
        (elapsed, u64::from(processes) * 2 * PAGES * touch_ns)
    }

    #[test]
    fn others_compute_while_a_process_waits() {
        let (one, computing) = elapsed(1, 10_000_000, Writes::Waited);
        let waits = one - computing;
        assert!(waits > 3_000_000_000, "{waits}");
        // Most of what two of them wait is hidden, though the disk seeks between their places.
        let (two, computing) = elapsed(2, 10_000_000, Writes::Waited);
        assert!(two - computing < waits, "{} of twice {waits}", two - computing);
    }

    #[test]
    fn few_pages_at_a_time_cost_seeks() {
        let of = |writes| elapsed(1, 1_000_000, writes);
        let ((four, computing), (one, _)) = (of(Writes::Paced(4)), of(Writes::Paced(1)));
        // Each write is followed by a read elsewhere.
        assert!(computing < four && four < one, "{computing} {four} {one}");
        let two = || elapsed(2, 1_000_000, Writes::Paced(1));
        assert_eq!(two(), two());
    }

    #[test]
    fn writes_are_waited_for_where_the_paper_does() {
        // There is time enough to write beside the computing.
        let (waited, computing) = elapsed(1, 20_000_000, Writes::Waited);
        let (paced, _) = elapsed(1, 20_000_000, Writes::Paced(16));
        assert!(waited - computing > (paced - computing) * 11 / 10, "{waited} {paced} {computing}");
    }
}
