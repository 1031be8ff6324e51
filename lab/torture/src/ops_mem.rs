//! Plain loads and stores.

use crate::ctx::{Ctx, Need};

/// Compares a run.
pub fn read(ctx: &mut Ctx) {
    let run = ctx.pick_run(64);
    ctx.make(run, Need::Read);
    ctx.note("read", run);
    ctx.verify(run, "read");
}

/// Writes whole pages, and sometimes compares them at once.
pub fn write(ctx: &mut Ctx) {
    let run = ctx.pick_run(64);
    ctx.make(run, Need::Write);
    ctx.write(run);
    if ctx.rng.one_in(4) {
        ctx.verify(run, "just written");
    }
}

/// Writes bytes of one page, sometimes without comparing it first.
pub fn patch(ctx: &mut Ctx) {
    let run = ctx.pick_run(1);
    ctx.make(run, Need::Write);
    if ctx.rng.one_in(4) {
        ctx.verify(run, "before a patch");
    }
    ctx.patch(run);
    if ctx.rng.one_in(2) {
        ctx.verify(run, "just patched");
    }
}

/// Compares a whole region.
pub fn sweep(ctx: &mut Ctx) {
    let r = ctx.pick_region();
    let run = ctx.whole(r);
    ctx.make(run, Need::Read);
    ctx.note("sweep", run);
    ctx.verify(run, "sweep");
}
