//! Fault-around: how many pages one fault brings, judged by the faults before it.
//!
//! A process has a few streams, which remember where a sequential reader would fault next. Of two
//! consecutive faults at that page, the second doubles the stream's window (for pages of zeros each
//! does): small blocks of neighbours must not make it large. A fault a little further on halves the
//! window: the reader skips pages, and pages brought in vain must be evicted again. A fault that no
//! stream expected starts a stream with a window of one page, in place of the least recently used
//! one. Resident pages in between do not break a stream: they raise no fault.
//!
//! Descents do the same for readers that go downwards. They are separate, so that a program that
//! goes downwards by chance loses no stream. The reader may visit a few pages in another order: a
//! program that frees its objects from last to first also touches the header of each block, at its
//! low end. Once such a reader has come back to skipped pages, later faults bring skipped pages
//! along and count as expected. Pages of zeros are never brought downwards.

use core::ops::Range;

const STREAMS: usize = 8;
/// Most pages that a sequential reader skips: a header, a freed neighbour.
const SKIPPED_PAGES: u32 = 4;
/// A stream with at least BRIDGE_WINDOW pages a fault continues after resident pages, at most
/// BRIDGE_PAGES of them (2 MiB).
const BRIDGE_WINDOW: u32 = 8;
const BRIDGE_PAGES: u64 = 512;

/// The pages that a fault brings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Window {
    /// Pages upwards from the faulting one, which is included.
    pub ahead: u32,
    /// Pages below it.
    pub behind: u32,
    /// Whether the reader goes downwards.
    pub down: bool,
}

impl Window {
    fn at_most(self, max: u32) -> Window {
        let ahead = self.ahead.min(max);
        Window { ahead, behind: self.behind.min(max - ahead), ..self }
    }
}

/// A window that grows with faults at the expected page.
#[derive(Debug, Clone, Copy, Default)]
struct Growth {
    /// Pages; 0 if not in use.
    window: u32,
    /// Whether the next fault at the expected page doubles the window.
    grows: bool,
}

impl Growth {
    const NEW: Growth = Growth { window: 1, grows: false };

    fn fault(&mut self, expected: bool, zeros: bool, max: u32) {
        let window = match (expected, self.grows || zeros) {
            (true, true) => self.window * 2,
            (true, false) => self.window,
            (false, _) => (self.window / 2).max(1),
        };
        (self.window, self.grows) = (window.min(max), expected && !self.grows);
    }

    fn passes(&self, between: Range<u64>, resident: impl Fn(Range<u64>) -> bool) -> bool {
        self.window >= BRIDGE_WINDOW && between.end - between.start <= BRIDGE_PAGES && resident(between)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    /// Page of the last fault, and the window that it got.
    page: u64,
    brought: Window,
    /// The page after the last one brought upwards.
    next: u64,
    growth: Growth,
    used: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Descent {
    /// Lowest page that was brought.
    low: u64,
    growth: Growth,
    /// Pages skipped last: the first one, and the one after the last.
    left_out: (u64, u64),
    /// Whether the reader has come back to skipped pages.
    comes_back: bool,
    used: u64,
}

/// The streams of one process.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    descents: [Descent; STREAMS],
    clock: u64,
}

impl Streams {
    /// The pages to bring with a fault at `page`; 1..=max. `resident`: whether all pages of a range
    /// are in the program, so that a reader passes them without a fault. `zeros`: the pages are
    /// new. When the pager asks about the same fault again, it gets the same answer.
    pub fn window(&mut self, page: u64, max: u32, zeros: bool, resident: impl Fn(Range<u64>) -> bool) -> Window {
        self.clock += 1;
        let recent = |s: &&Stream| s.growth.window > 0 && s.page == page && s.used + 64 > self.clock;
        if let Some(again) = self.streams.iter().find(recent) {
            return again.brought.at_most(max);
        }
        let descent = if zeros { Window::default() } else { self.descend(page, max, &resident) };
        let stream = self.stream(page, max, zeros, &resident);
        let ahead = stream.growth.window.max(descent.ahead);
        stream.brought = Window { ahead, ..descent }.at_most(max);
        (stream.page, stream.next) = (page, page + u64::from(stream.brought.ahead));
        stream.brought
    }

    /// Finds or starts the stream of a fault and updates its window.
    fn stream(&mut self, page: u64, max: u32, zeros: bool, resident: impl Fn(Range<u64>) -> bool) -> &mut Stream {
        let skips = |s: &Stream| page - s.next <= u64::from(s.growth.window.min(SKIPPED_PAGES));
        let passes = |s: &Stream| s.growth.passes(s.next..page, &resident);
        let hit = |s: &Stream| s.growth.window > 0 && page >= s.next && (skips(s) || passes(s));
        let found = self.streams.iter().position(hit);
        let i = found.unwrap_or_else(|| (0..STREAMS).min_by_key(|&i| self.streams[i].used).unwrap_or(0));
        let stream = &mut self.streams[i];
        stream.used = self.clock;
        match found {
            Some(_) => stream.growth.fault(page == stream.next || resident(stream.next..page), zeros, max),
            None => stream.growth = Growth::NEW,
        }
        stream
    }

    /// The pages that a fault brings if the reader goes downwards.
    fn descend(&mut self, page: u64, max: u32, resident: impl Fn(Range<u64>) -> bool) -> Window {
        let clock = self.clock;
        let alone = Window { ahead: 1, behind: 0, down: false };
        let comes_back = |d: &&mut Descent| d.growth.window > 0 && (d.left_out.0..d.left_out.1).contains(&page);
        if let Some(descent) = self.descents.iter_mut().find(comes_back) {
            let goes_down = descent.comes_back || descent.growth.window > 1;
            let ahead = (descent.left_out.1 - page) as u32;
            (descent.left_out.1, descent.comes_back, descent.used) = (page, true, clock);
            return if goes_down { Window { ahead, behind: 0, down: true } } else { alone };
        }
        let near = |d: &Descent| d.low - page - 1 <= u64::from(SKIPPED_PAGES);
        let passes = |d: &Descent| d.growth.passes(page + 1..d.low, &resident);
        let falls = |d: &&mut Descent| d.growth.window > 0 && page < d.low && (near(d) || passes(d));
        let Some(descent) = self.descents.iter_mut().find(falls) else {
            let i = (0..STREAMS).min_by_key(|&i| self.descents[i].used).unwrap_or(0);
            self.descents[i] = Descent { low: page, growth: Growth::NEW, used: clock, ..Descent::default() };
            return alone;
        };
        let between = (page + 1, descent.low);
        let passed = between.0 == between.1 || resident(between.0..between.1);
        descent.growth.fault(passed || descent.comes_back, false, max);
        let along = if passed || !descent.comes_back { 0 } else { (between.1 - between.0) as u32 };
        descent.left_out = if passed || descent.comes_back { (0, 0) } else { between };
        let behind = descent.growth.window - 1;
        let window = Window { ahead: 1 + along, behind, down: behind + along > 0 }.at_most(max);
        (descent.low, descent.used) = (page.saturating_sub(window.behind.into()), clock);
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The window of a fault of an upward reader.
    fn up(streams: &mut Streams, page: u64, resident: impl Fn(Range<u64>) -> bool) -> u32 {
        let window = streams.window(page, 16, false, resident);
        assert_eq!((window.behind, window.down), (0, false), "at {page}");
        window.ahead
    }

    /// Streams after `faults` faults of a sequential reader that starts at page 100, and its next
    /// page.
    fn sequential(faults: u32) -> (Streams, u64) {
        let (mut streams, mut page) = (Streams::default(), 100);
        (0..faults).for_each(|_| page += u64::from(up(&mut streams, page, |_| false)));
        (streams, page)
    }

    #[test]
    fn doubles_on_a_sequential_reader_and_stays_small_on_a_random_one() {
        let mut windows = Vec::new();
        let (mut streams, mut page) = sequential(0);
        for _ in 0..11 {
            windows.push(up(&mut streams, page, |_| false));
            page += u64::from(windows[windows.len() - 1]);
        }
        assert_eq!(windows, [1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 16]);
        let zeros: Vec<u32> =
            [0, 1, 3, 7].iter().map(|at| streams.window(700 + at, 16, true, |_| false).ahead).collect();
        assert_eq!(zeros, [1, 2, 4, 8]);
        assert_eq!(up(&mut streams, 9_000, |_| false), 1);
        assert_eq!(up(&mut streams, 5_000, |_| false), 1);
        assert_eq!(up(&mut streams, page, |_| false), 16, "random faults between do not disturb a stream");
    }

    #[test]
    fn halves_on_a_reader_that_leaves_pages_out() {
        let (mut streams, page) = sequential(9);
        assert_eq!(up(&mut streams, page + 3, |pages| pages != (page..page + 3)), 8, "three pages left out");
        assert_eq!(up(&mut streams, page + 13, |_| false), 4);
        assert_eq!(up(&mut streams, page + 17, |_| false), 4);
        assert_eq!(up(&mut streams, page + 21, |_| false), 8);
        assert_eq!(up(&mut streams, page + 30, |pages| pages == (page + 29..page + 30)), 8, "resident, not left out");
        // The reader wants every other block of 8 pages: of each block's pages two are brought in
        // vain. If every fault doubled the window, it would be seven.
        let (mut streams, mut vain, mut page) = (Streams::default(), 0, 0);
        while page < 8000 {
            let window = up(&mut streams, page, |_| false);
            let end = page + u64::from(window);
            vain += (page..end).filter(|page| page / 8 % 2 == 1).count();
            page = (end..).find(|page| page / 8 % 2 == 0).unwrap();
        }
        assert_eq!(vain, 1000, "for 4000 pages");
    }

    #[test]
    fn a_fault_that_is_asked_about_again_gets_the_same_window() {
        let (mut streams, page) = sequential(8);
        assert_eq!(up(&mut streams, page, |_| false), 16);
        assert_eq!(up(&mut streams, 7_000, |_| false), 1);
        assert_eq!(up(&mut streams, page, |_| false), 16);
        assert_eq!(up(&mut streams, page + 16, |_| false), 16);
    }

    #[test]
    fn a_stream_goes_on_behind_resident_pages() {
        let (mut streams, page) = sequential(9);
        let resident = |pages: Range<u64>| pages == (page..page + 400);
        assert_eq!(up(&mut streams, page + 400, resident), 16);
        assert_eq!(up(&mut streams, page + 800, |_| false), 1, "not all of them resident");
        assert_eq!(up(&mut streams, page + 816, |_| false), 1, "too far");
        assert_eq!(up(&mut streams, page + 1329 + 1, |_| true), 1, "too far");
        assert_eq!(up(&mut streams, page + 1000, |_| true), 1, "a new stream is not followed");
    }

    /// Faults of a reader of these pages: faulting page, pages upwards from it, pages below it.
    fn faults(streams: &mut Streams, pages: impl Iterator<Item = u64>) -> Vec<(u64, u32, u32)> {
        let mut there = std::collections::BTreeSet::new();
        let mut faults = Vec::new();
        for page in pages {
            if !there.contains(&page) {
                let window = streams.window(page, 16, false, |mut pages| pages.all(|page| there.contains(&page)));
                there.extend(page.saturating_sub(window.behind.into())..page + u64::from(window.ahead));
                faults.push((page, window.ahead, window.behind));
            }
        }
        faults
    }

    #[test]
    fn goes_downwards_with_a_descending_reader() {
        let mut streams = Streams::default();
        let behind: Vec<u32> = faults(&mut streams, (0..1000).rev()).into_iter().map(|(_, _, behind)| behind).collect();
        assert_eq!(behind[..11], [0, 0, 1, 1, 3, 3, 7, 7, 15, 15, 15]);
        assert_eq!(behind.len(), 8 + (1000 - 30usize).div_ceil(16));
        assert_eq!(up(&mut streams, 5_000, |_| false), 1, "others do not");
    }

    #[test]
    fn a_descending_reader_may_go_through_its_blocks_in_another_order() {
        for order in [[3, 0, 2, 1], [3, 0, 1, 2], [1, 3, 0, 2], [0, 3, 1, 2], [2, 1, 3, 0]] {
            let pages = (0..250).rev().flat_map(|block| order.map(|page| block * 4 + page));
            let faults = faults(&mut Streams::default(), pages);
            assert!(faults.len() < 85, "{order:?}: {} faults for 1000 pages", faults.len());
            assert!(faults.iter().all(|&(_, ahead, behind)| ahead + behind <= 16), "{faults:?}");
        }
        // Blocks of four pages: skipped pages come along once the reader has come back to some.
        let mut streams = Streams::default();
        let pages = [15, 14, 13, 12, 11, 8, 10, 9, 7, 4, 6, 5];
        let got = faults(&mut streams, pages.into_iter());
        let first = [(15, 1, 0), (14, 1, 0), (13, 1, 1), (11, 1, 1), (8, 1, 0), (9, 1, 0)];
        assert_eq!(got, [&first[..], &[(7, 1, 0), (4, 3, 1)]].concat());
    }

    #[test]
    fn halves_on_a_descending_reader_that_leaves_pages_out() {
        let mut streams = Streams::default();
        let last = faults(&mut streams, (800..1000).rev()).pop().unwrap();
        let low = last.0 - 15;
        let behind = [3, 14, 21].map(|by| streams.window(low - by, 16, false, |_| false).behind);
        assert_eq!(behind, [7, 3, 1], "none of those that are left out is wanted");
        let vain: u32 = faults(&mut Streams::default(), (0..1000).rev().step_by(2)).iter().map(|f| f.1 + f.2 - 1).sum();
        assert_eq!(vain, 0, "every other page");
    }

    #[test]
    fn only_what_is_likely_to_go_on_goes_downwards() {
        let (mut streams, page) = sequential(5);
        assert_eq!(up(&mut streams, page, |_| false), 4);
        assert_eq!(up(&mut streams, 99, |_| false), 1, "the page below a stream with a large window");
        assert_eq!(up(&mut streams, 97, |_| false), 1, "a page is left out");
        assert_eq!(up(&mut streams, 95, |pages| pages == (96..97)), 1, "it is resident");
        for stride in [3, 5, 17] {
            let got = faults(&mut Streams::default(), (0..1000).rev().step_by(stride));
            assert!(got.iter().all(|&(_, ahead, behind)| (ahead, behind) == (1, 0)), "{stride}: {got:?}");
        }
        let mut streams = Streams::default();
        let zeros: Vec<Window> = [9, 8, 7, 6].iter().map(|&page| streams.window(page, 16, true, |_| false)).collect();
        assert!(zeros.iter().all(|w| (w.ahead, w.behind, w.down) == (1, 0, false)), "zeros: {zeros:?}");
    }

    #[test]
    fn a_descending_stream_goes_on_below_resident_pages() {
        let mut streams = Streams::default();
        let last = faults(&mut streams, (500..1000).rev()).pop().unwrap();
        let low = last.0 - 15;
        assert_eq!(streams.window(low - 401, 16, false, |pages| pages == (low - 400..low)).behind, 15);
        let low = low - 416;
        assert_eq!(streams.window(low - 20, 16, false, |_| false).behind, 0, "not all of them resident");
    }

    #[test]
    fn a_fault_below_that_is_asked_about_again_gets_the_same_window() {
        let mut streams = Streams::default();
        faults(&mut streams, (0..100).rev().take(14));
        let first = streams.window(85, 16, false, |_| false);
        assert_eq!(first, Window { ahead: 1, behind: 7, down: true });
        assert_eq!(streams.window(85, 16, false, |_| true), first);
        assert_eq!(
            streams.window(85, 4, false, |_| false),
            Window { behind: 3, ..first },
            "not more than there may be"
        );
        let next = [77, 69].map(|page| streams.window(page, 16, false, |_| false).behind);
        assert_eq!(next, [7, 15], "and goes on where it was");
    }
}
