//! Regions that all threads of a process read, and sometimes change, under a lock.

use crate::content::PageBuf;
use crate::ctx::Ctx;
use crate::model::{compare, Event, History, Seen, TestRegion};
use crate::report::{self, Who};
use crate::rng::{mix2, Rng};
use crate::sys::{Errno, Span, RW};
use std::sync::RwLock;

/// A region and the number of its last change.
pub struct Shared {
    region: TestRegion,
    version: u32,
}

/// Pages of each region.
const PAGES: usize = 64;

impl Shared {
    /// Maps and writes regions of `pages` pages in total.
    pub fn create(pages: usize, seed: u64) -> Result<Vec<RwLock<Shared>>, Errno> {
        let make = |i: usize| {
            let span = Span::map(PAGES, RW, 0)?;
            let region = TestRegion::new(mix2(seed, i as u64), span.addr(), PAGES, false, 0);
            let mut shared = Shared { region, version: 0 };
            shared.write(0, PAGES);
            Ok(RwLock::new(shared))
        };
        (0..(pages / PAGES).max(1)).map(make).collect()
    }

    fn span(&self) -> Span {
        Span::owned(self.region.addr, self.region.len())
    }

    fn write(&mut self, first: usize, count: usize) {
        self.version += 1;
        let (span, mut buf) = (self.span(), PageBuf::zeroed());
        for i in first..first + count {
            self.region.renew(i, self.version);
            self.region.expect(i, &mut buf);
            span.copy_in(i, &buf);
        }
    }

    fn verify(&self, who: &Who, first: usize, count: usize, recent: &History) {
        let (mut expected, mut found) = (PageBuf::zeroed(), PageBuf::zeroed());
        for i in first..first + count {
            self.region.expect(i, &mut expected);
            self.span().copy_out(i, &mut found);
            match compare(&expected, &found, false) {
                Ok(Seen::AsModelled) => {}
                Ok(Seen::Dropped) => unreachable!("no page is lazy"),
                Err(bad) => report::wrong_page(who, "shared region", &self.region, i, bad, &found, recent),
            }
        }
    }

    /// Compares the whole region; returns its number of pages.
    pub fn verify_all(&self, who: &Who) -> usize {
        self.verify(who, 0, PAGES, &self.region.history);
        PAGES
    }

    /// Flips a bit in every page.
    pub fn corrupt(&self) {
        let span = self.span();
        (0..PAGES).for_each(|i| span.sub(i, 1).store(5, span.sub(i, 1).load(5) ^ 1 << 9));
    }

    fn change(&mut self, ctx: &mut Ctx, first: usize, count: usize) {
        let drop_bytes = ctx.rng.one_in(3);
        self.region.history.push(Event {
            op_no: ctx.who.op_no,
            op: ctx.who.op as u8,
            what: if drop_bytes { "dontneed" } else { "write" },
            first: first as u32,
            count: count as u32,
            version: self.version + 1,
        });
        if drop_bytes {
            self.version += 1;
            let part = self.span().sub(first, count);
            ctx.must("madvise DONTNEED", part.advise(libc::MADV_DONTNEED));
            let version = self.version;
            self.region.pages[first..first + count].iter_mut().for_each(|p| p.drop_bytes(version));
        } else {
            self.write(first, count);
        }
    }
}

/// A random run of pages.
fn some_run(rng: &mut Rng) -> (usize, usize) {
    let first = rng.below(PAGES);
    (first, rng.log_size((PAGES - first).min(32)))
}

/// Mostly reads.
pub fn shared(ctx: &mut Ctx) {
    let world = ctx.world;
    let i = ctx.rng.skewed(world.shared.len());
    let (first, count) = some_run(&mut ctx.rng);
    // A thread that fails never returns, so no lock is poisoned.
    if ctx.rng.one_in(10) {
        if let Ok(mut shared) = world.shared[i].write() {
            shared.change(ctx, first, count);
        }
    } else if let Ok(shared) = world.shared[i].read() {
        shared.verify(&ctx.who, first, count, &ctx.recent);
        ctx.stats.add_verified(count as u64);
    }
}
