//! Fault-around: how many pages one fault brings, from the faults before it.
//!
//! A few streams per process remember where a sequential reader would fault next. A hit doubles the
//! stream's window; a fault that no stream expected starts a new stream with a window of one page, in
//! the place of the least recently used one. Pages between that are resident do not break a stream: they raise
//! no fault.

use std::ops::Range;

const STREAMS: usize = 8;
/// Pages of this many a fault make a stream that is followed over resident pages, and so many of them at most (2 MiB).
const BRIDGE_WINDOW: u32 = 8;
const BRIDGE_PAGES: u64 = 512;

#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    /// Page of the last fault.
    page: u64,
    /// Page after the last one that was brought.
    next: u64,
    window: u32,
    used: u64,
}

/// The streams of one process.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    clock: u64,
}

impl Streams {
    /// Pages to bring with a fault at `page`, 1..=max, forward. `resident`: whether all of these pages are in the
    /// program, so that a reader passes them without a fault. A fault that is asked about again gets the same answer.
    pub fn window(&mut self, page: u64, max: u32, resident: impl Fn(Range<u64>) -> bool) -> u32 {
        self.clock += 1;
        if let Some(again) = self.streams.iter().find(|s| s.window > 0 && s.page == page && s.used + 64 > self.clock) {
            return again.window.min(max);
        }
        // A reader that skips a little (a header, a freed neighbour) is still sequential.
        let skips = |s: &Stream| page - s.next <= u64::from(s.window.min(4));
        let passes = |s: &Stream| s.window >= BRIDGE_WINDOW && page - s.next <= BRIDGE_PAGES && resident(s.next..page);
        let hit = |s: &Stream| s.window > 0 && page >= s.next && (skips(s) || passes(s));
        let i = match self.streams.iter().position(hit) {
            Some(i) => {
                self.streams[i].window = (self.streams[i].window * 2).min(max);
                i
            }
            None => {
                let i = (0..STREAMS).min_by_key(|&i| self.streams[i].used).unwrap_or(0);
                self.streams[i].window = 1;
                i
            }
        };
        (self.streams[i].used, self.streams[i].page) = (self.clock, page);
        self.streams[i].next = page + u64::from(self.streams[i].window);
        self.streams[i].window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_on_a_sequential_reader_and_stays_small_on_a_random_one() {
        let mut streams = Streams::default();
        let (mut page, mut windows) = (100, Vec::new());
        for _ in 0..6 {
            let window = streams.window(page, 16, |_| false);
            windows.push(window);
            page += u64::from(window);
        }
        assert_eq!(windows, [1, 2, 4, 8, 16, 16]);
        assert_eq!(streams.window(9_000, 16, |_| false), 1);
        assert_eq!(streams.window(5_000, 16, |_| false), 1);
        assert_eq!(streams.window(page, 16, |_| false), 16, "random faults between do not disturb a stream");
    }

    #[test]
    fn a_fault_that_is_asked_about_again_gets_the_same_window() {
        let mut streams = Streams::default();
        let mut page = 100;
        for _ in 0..4 {
            page += u64::from(streams.window(page, 16, |_| false));
        }
        assert_eq!(streams.window(page, 16, |_| false), 16);
        assert_eq!(streams.window(7_000, 16, |_| false), 1);
        assert_eq!(streams.window(page, 16, |_| false), 16);
        assert_eq!(streams.window(page + 16, 16, |_| false), 16);
    }

    #[test]
    fn a_stream_goes_on_behind_resident_pages() {
        let mut streams = Streams::default();
        let mut page = 100;
        for _ in 0..5 {
            page += u64::from(streams.window(page, 16, |_| false));
        }
        let resident = |pages: Range<u64>| pages == (page..page + 400);
        assert_eq!(streams.window(page + 400, 16, resident), 16);
        assert_eq!(streams.window(page + 800, 16, |_| false), 1, "not all of them resident");
        assert_eq!(streams.window(page + 816, 16, |_| false), 1, "too far");
        assert_eq!(streams.window(page + 1329 + 1, 16, |_| true), 1, "too far");
        assert_eq!(streams.window(page + 1000, 16, |_| true), 1, "a new stream is not followed");
    }
}
