//! The model: what memory must hold, in 8 bytes per page, with a short history for reports. It
//! makes no system calls.

use crate::content::{fill, kind_for, Kind, PageBuf, Tag, PAGE};

/// Protection that was set last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Prot {
    /// Read and write.
    ReadWrite,
    /// Read only.
    Read,
    /// No access.
    None,
    /// Read, write, execute.
    Exec,
}

impl Prot {
    /// Whether the program may load from it.
    pub fn readable(self) -> bool {
        self != Prot::None
    }

    /// Whether the program may store to it.
    pub fn writable(self) -> bool {
        matches!(self, Prot::ReadWrite | Prot::Exec)
    }
}

/// One page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageModel {
    /// Version of the last whole-page change.
    pub version: u32,
    /// Kind of the contents that it left.
    pub kind: Kind,
    /// Number of partial writes since.
    pub patches: u8,
    /// Protection.
    pub prot: Prot,
    /// Between MADV_FREE and the next write: the page has its old bytes or zeros.
    pub lazy: bool,
}

impl PageModel {
    /// A page that must read as zeros.
    pub fn zero(version: u32) -> PageModel {
        PageModel { version, kind: Kind::Zero, patches: 0, prot: Prot::ReadWrite, lazy: false }
    }

    /// The bytes are gone and read as zeros; the protection stays.
    pub fn drop_bytes(&mut self, version: u32) {
        *self = PageModel { prot: self.prot, ..PageModel::zero(version) };
    }
}

/// One event in the history of a region or thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Event {
    /// Number of the operation in its thread.
    pub op_no: u64,
    /// Index of the operation's kind in the table of operations.
    pub op: u8,
    /// A text for what was done.
    pub what: &'static str,
    /// First page, by its number in the region (not its place in the mapping).
    pub first: u32,
    /// Number of pages.
    pub count: u32,
    /// Version given to pages that changed.
    pub version: u32,
}

/// Events that a history keeps.
pub const HISTORY: usize = 24;

/// The last few events.
#[derive(Clone, Debug)]
pub struct History {
    ring: [Event; HISTORY],
    total: usize,
}

impl History {
    /// An empty history.
    pub fn new() -> History {
        History { ring: [Event::default(); HISTORY], total: 0 }
    }

    /// Adds an event, and drops the oldest one.
    pub fn push(&mut self, event: Event) {
        self.ring[self.total % HISTORY] = event;
        self.total += 1;
    }

    /// The events, newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Event> {
        let kept = self.total.min(HISTORY);
        (1..=kept).map(move |back| &self.ring[(self.total - back) % HISTORY])
    }
}

/// A range of pages with one key.
#[derive(Clone, Debug)]
pub struct TestRegion {
    /// Random number that its contents depend on.
    pub key: u64,
    /// Address of its first page.
    pub addr: usize,
    /// Number of its first page: not 0 if the head was cut off.
    pub base: u32,
    /// The pages.
    pub pages: Vec<PageModel>,
    /// Whether it is in the thread's arena.
    pub in_arena: bool,
    /// Its last events.
    pub history: History,
}

impl TestRegion {
    /// Fresh zero pages.
    pub fn new(key: u64, addr: usize, count: usize, in_arena: bool, version: u32) -> TestRegion {
        let pages = vec![PageModel::zero(version); count];
        TestRegion { key, addr, base: 0, pages, in_arena, history: History::new() }
    }

    /// Number of pages.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Address after the last page.
    pub fn end(&self) -> usize {
        self.addr + self.len() * PAGE
    }

    /// The tag of page `i`'s contents.
    pub fn tag(&self, i: usize) -> Tag {
        Tag { region: self.key, page: self.base + i as u32, version: self.pages[i].version }
    }

    /// Builds the contents that page `i` must have (a lazy page: had before MADV_FREE).
    pub fn expect(&self, i: usize, buf: &mut PageBuf) {
        let page = &self.pages[i];
        fill(buf, self.tag(i), page.kind, page.patches);
    }

    /// Page `i` is about to be written whole with `version`.
    pub fn renew(&mut self, i: usize, version: u32) {
        let kind = kind_for(Tag { region: self.key, page: self.base + i as u32, version });
        let prot = self.pages[i].prot;
        self.pages[i] = PageModel { version, kind, patches: 0, prot, lazy: false };
    }

    /// Adds zero pages at the end.
    pub fn grow(&mut self, count: usize, version: u32) {
        self.pages.resize(self.pages.len() + count, PageModel::zero(version));
    }

    /// Splits off the pages from `at` on as a region of their own.
    pub fn split_off(&mut self, at: usize) -> TestRegion {
        TestRegion {
            key: self.key,
            addr: self.addr + at * PAGE,
            base: self.base + at as u32,
            pages: self.pages.split_off(at),
            in_arena: self.in_arena,
            history: self.history.clone(),
        }
    }
}

/// A difference between the actual and the expected contents of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// First wrong word.
    pub word: usize,
    /// Its expected value.
    pub expected: u64,
    /// Its actual value.
    pub found: u64,
    /// Number of wrong words in the page.
    pub wrong: usize,
}

/// Result of a successful comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The bytes are as modelled.
    AsModelled,
    /// The kernel has dropped a lazily freed page: from now on it must be zero.
    Dropped,
}

/// Compares actual with expected bytes. In a lazy page each word may also be zero.
pub fn compare(expected: &PageBuf, found: &PageBuf, lazy: bool) -> Result<Seen, Mismatch> {
    if expected.0 == found.0 {
        return Ok(Seen::AsModelled);
    }
    let bad = |(_, (e, f)): &(usize, (&u64, &u64))| e != f && !(lazy && **f == 0);
    let pairs = || expected.0.iter().zip(found.0.iter()).enumerate();
    match pairs().find(bad) {
        None => Ok(Seen::Dropped),
        Some((word, (e, f))) => Err(Mismatch { word, expected: *e, found: *f, wrong: pairs().filter(bad).count() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::fill_base;

    fn written(count: usize) -> TestRegion {
        let mut region = TestRegion::new(77, 0x10000, count, false, 0);
        (0..count).for_each(|i| region.renew(i, 3));
        region
    }

    fn image(region: &TestRegion, i: usize) -> PageBuf {
        let mut buf = PageBuf::zeroed();
        region.expect(i, &mut buf);
        buf
    }

    #[test]
    fn page_model_is_small() {
        assert_eq!(size_of::<PageModel>(), 8);
    }

    #[test]
    fn splits_keep_contents() {
        let whole = written(10);
        let mut head = whole.clone();
        let mut tail = head.split_off(4);
        assert_eq!((head.len(), tail.len(), head.end()), (4, 6, tail.addr));
        for i in 0..10 {
            let part = if i < 4 { image(&head, i) } else { image(&tail, i - 4) };
            assert_eq!(image(&whole, i).0, part.0);
        }
        let tail = tail.split_off(2);
        assert_eq!(tail.addr, whole.addr + 6 * PAGE);
        assert_eq!(image(&whole, 7).0, image(&tail, 1).0);
    }

    #[test]
    fn fresh_and_dropped_pages_are_zero() {
        let mut region = written(3);
        region.grow(2, 4);
        assert!(image(&region, 4).is_zero());
        region.pages[1].prot = Prot::Read;
        region.pages[1].drop_bytes(5);
        assert!(image(&region, 1).is_zero());
        assert_eq!(region.pages[1].prot, Prot::Read);
    }

    #[test]
    fn compare_finds_one_flipped_bit() {
        let mut expected = PageBuf::zeroed();
        fill_base(&mut expected, Tag { region: 1, page: 1, version: 1 }, Kind::Random);
        let mut found = expected.clone();
        assert_eq!(compare(&expected, &found, false), Ok(Seen::AsModelled));
        found.0[100] ^= 1;
        let bad = compare(&expected, &found, true).unwrap_err();
        assert_eq!((bad.word, bad.wrong, bad.expected ^ bad.found), (100, 1, 1));
    }

    #[test]
    fn lazy_pages_may_become_zero_but_nothing_else() {
        let expected = PageBuf([7; 512]);
        let mut found = expected.clone();
        found.0[300..].fill(0);
        assert_eq!(compare(&expected, &found, true), Ok(Seen::Dropped));
        assert_eq!(compare(&expected, &found, false).unwrap_err().wrong, 212);
        found.0[3] = 8;
        assert_eq!(compare(&expected, &found, true).unwrap_err().word, 3);
    }

    #[test]
    fn history_keeps_the_newest() {
        let mut history = History::new();
        for op_no in 0..100 {
            history.push(Event { op_no, ..Event::default() });
        }
        let kept: Vec<u64> = history.iter().map(|e| e.op_no).collect();
        assert_eq!(kept, (100 - HISTORY as u64..100).rev().collect::<Vec<_>>());
    }
}
