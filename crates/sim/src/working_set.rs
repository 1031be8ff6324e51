//! What programs do with their pages, for people: how many they use again within a time window, how
//! often in sequence, and for how many the contents are known.

use crate::event_source::{each_event, EventSource};
use crate::hash::NumberMap;
use crate::lru::{rename, Table};
use crate::replay::ReplayError;
use crate::workload::{Event, UNKNOWN};

/// Positions kept for each process, newest first, from which a sequence can go on. Several, because
/// threads and arrays take turns.
const STREAMS: usize = 8;

/// Measurements of a workload.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkingSet {
    /// Touches of pages that had been touched earlier.
    pub again: u64,
    /// Of these, touches of the page after one of the last few touched.
    pub in_sequence: u64,
    /// Pages that the recorded run evicted, or that a generated workload mapped.
    pub pages: u64,
    /// Of these, pages whose own content is known.
    pub known: u64,
    /// Pages used again, for each window that had any.
    windows: Vec<u32>,
    /// Processes at the end of each window.
    processes: Vec<u32>,
}

impl WorkingSet {
    /// Measures a whole workload. `window_ns`: length of a time window, ns.
    ///
    /// # Errors
    /// If the source fails.
    pub fn of(source: &mut dyn EventSource, window_ns: u64) -> Result<WorkingSet, ReplayError> {
        let mut watch = Watch::new(window_ns);
        each_event(source, &mut |_| {}, |event| watch.see(event))?;
        Ok(watch.end())
    }

    /// Median over the windows of the pages used again: a working set (P. J. Denning, "The working
    /// set model for program behavior", CACM 11(5), 1968). Pages that are new in a window do not
    /// count.
    pub fn most_pages(&self) -> u64 {
        middle(&self.windows)
    }

    /// Median over the windows of the number of processes.
    pub fn processes(&self) -> u64 {
        middle(&self.processes)
    }
}

fn middle(numbers: &[u32]) -> u64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().map_or(0, u64::from)
}

struct Watch {
    window_ns: u64,
    /// Time in the current window, and its number, from 1 on.
    at_ns: u64,
    window: u32,
    used: u32,
    /// The window in which each page was used last.
    table: Table,
    streams: NumberMap<u32, [u64; STREAMS]>,
    processes: u32,
    working_set: WorkingSet,
}

impl Watch {
    fn new(window_ns: u64) -> Watch {
        let (table, streams) = (Table::default(), NumberMap::default());
        let (window_ns, working_set) = (window_ns.max(1), WorkingSet::default());
        Watch { window_ns, at_ns: 0, window: 1, used: 0, table, streams, processes: 0, working_set }
    }

    fn see(&mut self, event: &Event) {
        match *event {
            Event::Touches { proc, page, .. } => self.touch(proc, page, true),
            Event::Present { proc, page } | Event::Brought { proc, page } => self.touch(proc, page, false),
            Event::Leaves { content, guessed, .. } => {
                self.working_set.pages += 1;
                self.working_set.known += u64::from(content.is_some() && !guessed);
            }
            // In recordings the kind is unknown; [`Event::Leaves`] counts there.
            Event::Maps { pages, kind, .. } if kind != UNKNOWN => {
                self.working_set.pages += pages;
                self.working_set.known += pages;
            }
            Event::Frees { proc, first, pages } => self.table.take(proc, first, pages, |_, _| {}),
            Event::Moves { proc, first, pages, to } => rename(&mut self.table, proc, first, pages, to, |_, _| {}),
            Event::Ends { proc } => {
                self.table.take_process(proc, |_| {});
                self.streams.remove(&proc);
                self.processes = self.processes.saturating_sub(1);
            }
            Event::Computes { ns } => self.passes(ns),
            Event::Starts { .. } | Event::Forks { .. } => self.processes += 1,
            Event::Maps { .. } | Event::Reaches { .. } | Event::LeavesWhole { .. } | Event::Background { .. } => {}
        }
    }

    /// `by_itself`: not brought in beside a faulting page.
    fn touch(&mut self, proc: u32, page: u64, by_itself: bool) {
        let last = std::mem::replace(self.table.number(proc, page), self.window);
        self.used += u32::from(last > 0 && last < self.window);
        let streams = self.streams.entry(proc).or_insert([u64::MAX; STREAMS]);
        let found = streams.iter().position(|&at| at == page || at.wrapping_add(1) == page);
        if by_itself && last > 0 && found.is_none_or(|i| streams[i] != page) {
            self.working_set.again += 1;
            self.working_set.in_sequence += u64::from(found.is_some());
        }
        streams[..=found.unwrap_or(STREAMS - 1)].rotate_right(1);
        streams[0] = page;
    }

    fn passes(&mut self, ns: u64) {
        self.at_ns += ns;
        if self.at_ns < self.window_ns {
            return;
        }
        // A window without use says nothing of how much is used at once.
        self.at_ns %= self.window_ns;
        self.window += 1;
        self.working_set.processes.push(self.processes);
        if self.used > 0 {
            self.working_set.windows.push(std::mem::take(&mut self.used));
        }
    }

    fn end(mut self) -> WorkingSet {
        if self.used > 0 {
            self.working_set.windows.push(self.used);
        }
        self.working_set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Access;

    fn touch(page: u64) -> Event {
        Event::Touches { proc: 1, page, how: Access::Read }
    }

    fn seen(events: impl IntoIterator<Item = Event>) -> WorkingSet {
        let mut watch = Watch::new(1000);
        events.into_iter().for_each(|event| watch.see(&event));
        watch.end()
    }

    #[test]
    fn what_is_used_again_within_a_window_is_the_working_set() {
        let fill = (0..100).map(touch);
        let second = Event::Computes { ns: 1000 };
        // Ten pages in each of 20 windows, several times; then all of them in one.
        let small = (0..20).flat_map(|_| (0..30).map(|i| touch(i % 10)).chain([second]));
        let working_set = seen(fill.clone().chain([second]).chain(small.clone()).chain((0..100).map(touch)));
        assert_eq!((working_set.most_pages(), working_set.windows.len()), (10, 21));
        let all = (0..20).flat_map(|_| (0..100).map(touch).chain([second]));
        assert_eq!(seen(fill.clone().chain([second]).chain(all)).most_pages(), 100);
        assert_eq!(seen(fill.clone()).most_pages(), 0, "pages that are new");
        let freed = [second, Event::Frees { proc: 1, first: 0, pages: 100 }];
        assert_eq!(seen(fill.clone().chain(freed).chain(fill)).most_pages(), 0, "new again");
    }

    #[test]
    fn sequences_are_told_from_jumps() {
        let share = |working_set: WorkingSet| working_set.in_sequence * 100 / working_set.again;
        let forwards = (0..3).flat_map(|_| (0..1000).map(touch));
        assert!(share(seen(forwards)) >= 99);
        let turns = (0..3).flat_map(|_| (0..1000).flat_map(|i| [touch(i), touch(50_000 + i)]));
        assert!(share(seen(turns)) >= 99, "two arrays in turns");
        let jumps = (0..3000).map(|i| touch(i * 7919 % 1000));
        assert!(share(seen(jumps)) <= 1);
    }

    #[test]
    fn processes_that_live_for_long_are_counted() {
        let (start, window) = (|proc| Event::Starts { proc }, Event::Computes { ns: 1000 });
        let short = (9..40).flat_map(|proc| [start(proc), Event::Ends { proc }]);
        let fork = Event::Forks { parent: 1, child: 2, present: true };
        assert_eq!(seen([start(1), fork].into_iter().chain(short).chain([window; 3])).processes(), 2);
    }

    /// Also of a process whose number another one has later.
    #[test]
    fn processes_that_ended_take_no_memory() {
        let mut watch = Watch::new(1000);
        for proc in 0..1000 {
            watch.see(&Event::Touches { proc, page: 5, how: Access::Read });
            watch.see(&Event::Ends { proc });
        }
        assert_eq!(watch.table.processes(), (0, 1));
        watch.see(&Event::Touches { proc: 7, page: 5, how: Access::Read });
        assert_eq!(watch.end().again, 0, "it is new there");
    }

    #[test]
    fn what_is_known_of_contents_is_counted() {
        let leaves = |content, guessed| Event::Leaves { proc: 1, page: 3, content, guessed, file: false, same: false };
        let some = Some(crate::ContentId(0));
        let working_set = seen([leaves(None, false), leaves(some, false), leaves(None, false), leaves(some, true)]);
        assert_eq!((working_set.pages, working_set.known), (4, 1));
        let maps = |kind| Event::Maps { proc: 1, first: 0, pages: 10, kind };
        assert_eq!(seen([maps(UNKNOWN)]).pages, 0);
        assert_eq!(seen([maps(1)]).known, 10);
    }
}
