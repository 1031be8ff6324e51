//! Fault-around: how many pages one fault brings, from the faults before it.
//!
//! A few streams per process remember where a sequential reader would fault next. Of two faults in a row that come there the second
//! doubles the stream's window (each, for pages of zeros): small blocks of neighbours shall not make it large. A fault a
//! little further halves it: the reader leaves pages out, and what is brought in vain must be evicted again. A fault that no
//! stream expected starts a new stream with a window of one page, in the place of the least recently used one. Pages between
//! that are resident do not break a stream: they raise no fault.

use std::ops::Range;

const STREAMS: usize = 8;
/// Most pages that a sequential reader leaves out: a header, a freed neighbour.
const SKIPPED_PAGES: u32 = 4;
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
    /// Whether the next fault doubles the window if it comes where it is expected.
    grows: bool,
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
    /// program, so that a reader passes them without a fault. `zeros`: they are new. A fault that is asked about again gets the same
    /// answer.
    pub fn window(&mut self, page: u64, max: u32, zeros: bool, resident: impl Fn(Range<u64>) -> bool) -> u32 {
        self.clock += 1;
        if let Some(again) = self.streams.iter().find(|s| s.window > 0 && s.page == page && s.used + 64 > self.clock) {
            return again.window.min(max);
        }
        let skips = |s: &Stream| page - s.next <= u64::from(s.window.min(SKIPPED_PAGES));
        let passes = |s: &Stream| s.window >= BRIDGE_WINDOW && page - s.next <= BRIDGE_PAGES && resident(s.next..page);
        let hit = |s: &&mut Stream| s.window > 0 && page >= s.next && (skips(s) || passes(s));
        let stream = match self.streams.iter_mut().find(hit) {
            Some(stream) => {
                let expected = page == stream.next || resident(stream.next..page);
                let window = match (expected, stream.grows || zeros) {
                    (true, true) => stream.window * 2,
                    (true, false) => stream.window,
                    (false, _) => (stream.window / 2).max(1),
                };
                (stream.window, stream.grows) = (window.min(max), expected && !stream.grows);
                stream
            }
            None => {
                let i = (0..STREAMS).min_by_key(|&i| self.streams[i].used).unwrap_or(0);
                (self.streams[i].window, self.streams[i].grows) = (1, false);
                &mut self.streams[i]
            }
        };
        (stream.used, stream.page) = (self.clock, page);
        stream.next = page + u64::from(stream.window);
        stream.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams after so many faults of a sequential reader from page 100 on, and the next page.
    fn sequential(faults: u32) -> (Streams, u64) {
        let (mut streams, mut page) = (Streams::default(), 100);
        (0..faults).for_each(|_| page += u64::from(streams.window(page, 16, false, |_| false)));
        (streams, page)
    }

    #[test]
    fn doubles_on_a_sequential_reader_and_stays_small_on_a_random_one() {
        let mut windows = Vec::new();
        let (mut streams, mut page) = sequential(0);
        for _ in 0..11 {
            windows.push(streams.window(page, 16, false, |_| false));
            page += u64::from(windows[windows.len() - 1]);
        }
        assert_eq!(windows, [1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 16]);
        let zeros: Vec<u32> = [0, 1, 3, 7].iter().map(|at| streams.window(700 + at, 16, true, |_| false)).collect();
        assert_eq!(zeros, [1, 2, 4, 8]);
        assert_eq!(streams.window(9_000, 16, false, |_| false), 1);
        assert_eq!(streams.window(5_000, 16, false, |_| false), 1);
        assert_eq!(streams.window(page, 16, false, |_| false), 16, "random faults between do not disturb a stream");
    }

    #[test]
    fn halves_on_a_reader_that_leaves_pages_out() {
        let (mut streams, page) = sequential(9);
        assert_eq!(streams.window(page + 3, 16, false, |pages| pages != (page..page + 3)), 8, "three pages left out");
        assert_eq!(streams.window(page + 13, 16, false, |_| false), 4);
        assert_eq!(streams.window(page + 17, 16, false, |_| false), 4);
        assert_eq!(streams.window(page + 21, 16, false, |_| false), 8);
        assert_eq!(
            streams.window(page + 30, 16, false, |pages| pages == (page + 29..page + 30)),
            8,
            "resident, not left out"
        );
        // Every other block of 8 pages: two of each are brought in vain. With twice as many pages at each fault it would be seven.
        let (mut streams, mut vain, mut page) = (Streams::default(), 0, 0);
        while page < 8000 {
            let window = streams.window(page, 16, false, |_| false);
            let end = page + u64::from(window);
            vain += (page..end).filter(|page| page / 8 % 2 == 1).count();
            page = (end..).find(|page| page / 8 % 2 == 0).unwrap();
        }
        assert_eq!(vain, 1000, "for 4000 pages");
    }

    #[test]
    fn a_fault_that_is_asked_about_again_gets_the_same_window() {
        let (mut streams, page) = sequential(8);
        assert_eq!(streams.window(page, 16, false, |_| false), 16);
        assert_eq!(streams.window(7_000, 16, false, |_| false), 1);
        assert_eq!(streams.window(page, 16, false, |_| false), 16);
        assert_eq!(streams.window(page + 16, 16, false, |_| false), 16);
    }

    #[test]
    fn a_stream_goes_on_behind_resident_pages() {
        let (mut streams, page) = sequential(9);
        let resident = |pages: Range<u64>| pages == (page..page + 400);
        assert_eq!(streams.window(page + 400, 16, false, resident), 16);
        assert_eq!(streams.window(page + 800, 16, false, |_| false), 1, "not all of them resident");
        assert_eq!(streams.window(page + 816, 16, false, |_| false), 1, "too far");
        assert_eq!(streams.window(page + 1329 + 1, 16, false, |_| true), 1, "too far");
        assert_eq!(streams.window(page + 1000, 16, false, |_| true), 1, "a new stream is not followed");
    }
}
