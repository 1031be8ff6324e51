//! A program of single pages under a scheme: it stores and loads pages one by one, and shows where
//! each goes.

use memfit_core::budget::{Level, Sizes};
use memfit_core::driver::{Seen, Step};
use memfit_core::{
    Answer, Coded, Core, Counters, Effects, Entry, Extent, Fault, Filled, Origin, Page, PageRange, Placed, ProcId,
    Source, Stored, Tunables, WriteBack, PAGE_BYTES, RUN_PAGES,
};
use std::ops::Range;
use std::sync::Arc;

/// Where a page went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Went {
    /// Into the pool.
    Pool,
    /// Raw to the swap tier.
    Swap,
    /// Nowhere: a fault reads it from its file again.
    Dropped,
    /// Nowhere: its raw slot still has its bytes.
    Kept,
    /// It waits in staging, because the pool is full and nothing leaves it.
    Waits,
}

/// Properties of a page.
#[derive(Debug, Clone, Copy)]
pub struct Contents {
    /// Compressed length, bytes; 4096: incompressible.
    pub len: u32,
    /// Entropy of its first bytes, in 65536ths of the largest possible entropy.
    pub estimate: u32,
    /// A clean page of a file.
    pub file: bool,
    /// It has the bytes that it had when it last came back.
    pub unchanged: bool,
    pub origin: Origin,
}

/// Anonymous, evicted because a program waits, with an entropy that matches its compressed length.
pub fn anonymous(len: u32) -> Contents {
    Contents { len, estimate: len * 16, file: false, unchanged: false, origin: Origin::Direct }
}

/// A page of a file.
pub fn file(len: u32) -> Contents {
    Contents { file: true, ..anonymous(len) }
}

pub struct Bench {
    pub core: Core,
    proc: ProcId,
    /// Distance between pages. By default each page has a run of its own, so that it is evicted
    /// alone; 1 makes them neighbours.
    pub stride: u64,
    /// Writes under way, if they do not end at once.
    pub under_way: Option<Vec<WriteBack>>,
    /// Blocks of the written pages or buffers, in order.
    pub written: Vec<u32>,
    /// The device refuses raw pages.
    pub refuses: bool,
    /// How often the scheme wanted to know the entropy of a page.
    pub estimates: u32,
}

impl Bench {
    /// With this many frames in the pool and blocks in the swap tier.
    pub fn new(preset: &str, overrides: &[&str], pool_frames: u32, blocks: u32) -> Bench {
        let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
        let scheme = Arc::new(memfit_scheme::preset(preset, &overrides).expect("a preset").expect("sound overrides"));
        let tier = Some(0..blocks).filter(|_| blocks > 0).into_iter().collect();
        let mut core = Core::new(Tunables {
            sizes: Sizes::new(1 << 30, &scheme),
            scheme,
            staging_slots: 64,
            pool_frames,
            area_frames: pool_frames * 2 + 64,
            swap: blocks > 0,
            blocks: tier,
        });
        let (proc, _) = core.add_process(64);
        Bench { core, proc, stride: RUN_PAGES, under_way: None, written: Vec::new(), refuses: false, estimates: 0 }
    }

    /// A round of reclaim of which nothing is carried out.
    pub fn round(&mut self, tick: u64, cpus_full: bool) {
        let seen = Seen {
            level: Level::BelowLow,
            evicts: true,
            tier_writable: true,
            tier_has_space: true,
            cpus_full,
            ..Seen::default()
        };
        while !matches!(self.core.next_step(tick, seen), Step::RoundEnds { .. }) {}
    }

    pub fn counters(&self) -> Counters {
        self.core.counters().clone()
    }

    /// The program unmaps these pages.
    pub fn unmap(&mut self, pages: Range<u64>) {
        for page in pages {
            self.core.unmapped(self.proc, PageRange { first: self.at(page), pages: 1 });
        }
        self.apply_effects();
        self.core.check();
    }

    pub fn is_compressed(&self) -> bool {
        self.core.is_compressed(self.proc)
    }

    fn at(&self, page: u64) -> Page {
        Page(page * self.stride)
    }

    fn apply_effects(&mut self) -> Effects {
        self.core.take_effects()
    }

    /// The program touches a new page, of a file or anonymous.
    pub fn touch(&mut self, page: u64, file: bool) {
        self.begin_load(page);
        self.core.loaded(self.proc, self.at(page), if file { Filled::Read } else { Filled::Done });
        self.core.check();
    }

    /// The next victims, one by one; `clean`: pages of files are unchanged.
    pub fn victims(&mut self, count: usize, clean: bool) -> Vec<u64> {
        let mut pages = Vec::new();
        for _ in 0..count {
            let (_, victims) = self.core.pick_victims(1, 0, &|_| true).expect("there is a page");
            let page = victims[0].first;
            let answer = Answer { moved: 1, file: u64::from(clean), ..Answer::default() };
            self.core.evicted(self.proc, page, 1, answer, 0);
            self.core.check();
            pages.push(page.0 / self.stride);
        }
        pages
    }

    /// The program touches a new page, and it is evicted.
    fn evict(&mut self, page: u64, contents: Contents) {
        let page = self.at(page);
        let mut loads = Vec::new();
        let limit = PageRange { first: page, pages: 1 };
        match self.core.entry(self.proc, page) {
            Entry::Untracked => {
                assert_eq!(self.core.fault(self.proc, page, limit, 1, &mut loads), Fault::Load);
                self.core.loaded(self.proc, page, Filled::Done);
            }
            Entry::Resident => {}
            other => panic!("page {} is {other:?}", page.0),
        }
        let victims = self.core.claim_range(self.proc, limit, 1, 0);
        assert_eq!(victims.len(), 1, "page {} can be taken", page.0);
        let answer = Answer { moved: 1, file: u64::from(contents.file), ..Answer::default() };
        self.core.evicted(self.proc, page, 1, answer, 0);
        self.apply_effects();
    }

    /// Stores a page, with as much writeback as it needs.
    pub fn store(&mut self, page: u64, contents: Contents) -> Went {
        self.evict(page, contents);
        for _ in 0..64 {
            let mut picked = Vec::new();
            self.core.pick_compress(1, &mut picked);
            let Some(item) = picked.first().copied() else { return Went::Waits };
            let goes_on = self.core.goes_on(item.object);
            if let Some(extent) = self.core.kept_slot(item.object).filter(|_| goes_on && contents.unchanged) {
                let stored = Stored { extent, len: PAGE_BYTES as u16, codec: 0 };
                assert_eq!(self.core.compressed(item.object, Coded::Stored(stored)), Placed::Nothing);
                self.core.check();
                return Went::Kept;
            }
            let estimate = self.core.wants_estimate(item.object).then_some(contents.estimate);
            self.estimates += u32::from(estimate.is_some());
            let placed = self.core.offer(item.object, contents.origin, estimate).unwrap_or_else(|| {
                let coded = match contents.len {
                    4096.. => Coded::Incompressible,
                    len if len > self.core.len_max() => Coded::Incompressible,
                    len => Coded::Bytes { codec: 1, len },
                };
                self.core.compressed(item.object, coded)
            });
            let went = match placed {
                Placed::Nothing => Some(Went::Dropped),
                Placed::Refaulted => unreachable!("nothing faults here"),
                Placed::Pool { .. } => Some(Went::Pool),
                Placed::Swap => {
                    let block = self.core.block_of(item.object).expect("it has a slot");
                    self.written.push(block);
                    if self.refuses {
                        self.core.refused(item.object);
                        continue;
                    }
                    self.core.written(item.object, Some(memfit_core::blocks::extent(block, 0)));
                    Some(Went::Swap)
                }
                Placed::Full => None,
            };
            self.apply_effects();
            if self.core.wants_room() || went.is_none() {
                self.give_up(went.is_none());
            }
            if let Some(went) = went {
                self.core.check();
                return went;
            }
        }
        Went::Waits
    }

    /// Makes the pool write back some of its pages.
    pub fn write_back(&mut self) -> usize {
        self.give_up(true)
    }

    /// With `pressed` as `write_back`, else only pages that are due.
    fn give_up(&mut self, pressed: bool) -> usize {
        let mut victims = Vec::new();
        self.core.pick_writeback(pressed, u32::MAX, &mut victims);
        self.apply_effects();
        let count = victims.len();
        match &mut self.under_way {
            Some(under_way) => under_way.extend(victims),
            None => victims.into_iter().for_each(|victim| self.end_write(&victim, true)),
        }
        count
    }

    /// The device refuses the block of a write.
    pub fn refuse(&mut self, victim: &WriteBack) {
        self.core.refused(victim.object);
        self.apply_effects();
    }

    /// Ends a write; `well`: it succeeded.
    pub fn end_write(&mut self, victim: &WriteBack, well: bool) {
        let to = victim.to.expect("schemes of the papers write to blocks");
        let block = memfit_core::blocks::block_of(to);
        if self.written.last() != Some(&block) {
            self.written.push(block);
        }
        self.core.written(victim.object, well.then_some(to));
        self.apply_effects();
    }

    /// The source of a page's bytes.
    pub fn source(&mut self, page: u64) -> Source {
        let source = self.begin_load(page);
        self.core.loaded(self.proc, self.at(page), Filled::Retry);
        self.apply_effects();
        source
    }

    /// The program faults on the page; its bytes are being read.
    pub fn begin_load(&mut self, page: u64) -> Source {
        let mut loads = Vec::new();
        let limit = PageRange { first: self.at(page), pages: 1 };
        assert_eq!(self.core.fault(self.proc, self.at(page), limit, 1, &mut loads), Fault::Load, "page {page}");
        loads.swap_remove(0).source
    }

    /// A fault inside of a registered range: pages and sources, in the order of the core's answer.
    pub fn fault(&mut self, page: u64, limit: Range<u64>, most: u32) -> Vec<(u64, Source)> {
        let loads = self.begin_fault(page, limit, most);
        loads.iter().for_each(|&(page, _)| self.end_load(page));
        loads
    }

    /// As `fault`, but leaves the bytes being read.
    pub fn begin_fault(&mut self, page: u64, limit: Range<u64>, most: u32) -> Vec<(u64, Source)> {
        let limit = PageRange { first: self.at(limit.start), pages: (limit.end - limit.start) * self.stride };
        let mut loads = Vec::new();
        assert_eq!(self.core.fault(self.proc, self.at(page), limit, most, &mut loads), Fault::Load, "page {page}");
        loads.iter().map(|load| (load.page.0 / self.stride, load.source.clone())).collect()
    }

    /// The program passes over `pages` neighbours: what each fault brings.
    pub fn load_in_sequence(&mut self, first: u64, pages: u64) -> Vec<Vec<Source>> {
        let limit = PageRange { first: self.at(first), pages };
        let (mut faults, mut page) = (Vec::new(), limit.first);
        while page.0 < limit.end() {
            let mut loads = Vec::new();
            assert_eq!(self.core.fault(self.proc, page, limit, pages as u32, &mut loads), Fault::Load);
            loads.iter().for_each(|load| self.core.loaded(self.proc, load.page, Filled::Done));
            page.0 += loads.len() as u64;
            faults.push(loads.iter().map(|load| load.source.clone()).collect());
        }
        self.apply_effects();
        faults
    }

    /// The page could not be filled now.
    pub fn retry_load(&mut self, page: u64) {
        self.core.loaded(self.proc, self.at(page), Filled::Retry);
        self.apply_effects();
        self.core.check();
    }

    pub fn end_load(&mut self, page: u64) {
        self.core.loaded(self.proc, self.at(page), Filled::Done);
        self.apply_effects();
        self.core.check();
    }

    /// Begins and ends a load.
    pub fn load(&mut self, page: u64) -> Source {
        let source = self.begin_load(page);
        self.end_load(page);
        source
    }

    /// The program frees the page.
    pub fn free(&mut self, page: u64) {
        self.core.unmapped(self.proc, PageRange { first: self.at(page), pages: 1 });
        self.apply_effects();
        self.core.check();
    }
}

pub fn in_pool(source: &Source) -> bool {
    matches!(source, Source::Pooled { .. })
}

/// Place in the swap tier.
pub fn extent(source: &Source) -> Extent {
    match source {
        Source::Swapped { extent, .. } => *extent,
        other => panic!("not in the swap tier but {other:?}"),
    }
}

impl Bench {
    /// Puts a page into the pool, without the writeback that is due.
    pub fn store_only(&mut self, page: u64, contents: Contents) {
        self.evict(page, contents);
        let mut picked = Vec::new();
        self.core.pick_compress(1, &mut picked);
        let object = picked[0].object;
        assert!(self.core.offer(object, contents.origin, None).is_none());
        self.core.compressed(object, Coded::Bytes { codec: 1, len: contents.len });
        self.apply_effects();
    }
}
